"""Imports go one way: from the command line down to the model, never back up."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "advisor"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts)


def lint(folder: Path) -> str:
    """What import-linter says of the contracts in pyproject.toml, for the package in this folder."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
        "--no-cache",
    ]
    path = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False).stdout


def test_imports_keep_the_contracts() -> None:
    said = lint(ROOT)
    assert "0 broken" in said, said


#: An import that a contract forbids, by the module that it is put into; the last closes a circle.
PLANTED = {
    "advisor.model.facts": "from advisor.errors import AdvisorError",
    "advisor.sources.schema": "from advisor.knowledge.gpus import gpus",
    "advisor.metrics.budgeted.budget": "import advisor.facts.catalog",
    "advisor.engine.values": "from ..metrics import steps",
    "advisor.reports.diagnosis_blocks": "def f():\n    from advisor.pipeline.diagnose import Options",
    "advisor.gain.replay": "from advisor.jobs import align",
    "advisor.facts.device": "from advisor.sources.nsys.table_map import KERNEL",
    "advisor.sources.sqlite.file": "from advisor.sources.packed import unpack",
    "advisor.jobs.recognise": "if TYPE_CHECKING:\n    from advisor.jobs.job import Job",
}


def test_the_contracts_see_what_they_forbid(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "advisor", ignore=shutil.ignore_patterns("_data", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in PLANTED.items():
        with (tmp_path / f"{module.replace('.', '/')}.py").open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")
    said = lint(tmp_path)
    kept = [line for line in said.splitlines() if " KEPT" in line]
    assert kept == [], said
    assert "advisor.model.facts -> advisor.errors" in said


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("sources/sqlite/*.py")), ids=name_of)
def test_the_sqlite_reader_knows_no_format(path: Path) -> None:
    assert "nsys" not in path.read_text(encoding="utf-8")


#: Names that readers give to their formats.
FORMAT_NAME = re.compile(r"nsys-\w*|kineto[\w-]*|nvidia-smi\w*|dcgmi?")


def format_questions(module: str, source: str) -> list[str]:
    """Where a module asks which format a capture has, a line each."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and FORMAT_NAME.fullmatch(str(node.value)):
            found.append(f"{module}:{node.lineno} names {node.value}")
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith(
            (".format.startswith", ".format.endswith")
        ):
            found.append(f"{module}:{node.lineno} asks {ast.unparse(node)}")
    return found


def test_only_readers_know_formats() -> None:
    """What a reader says of its recorder is in `Capture.recorder`; redact rewrites nsys' own tables."""
    others = [p for p in MODULES if "sources" not in p.parts and not p.stem.startswith("redact")]
    asked = [q for p in others for q in format_questions(name_of(p), p.read_text(encoding="utf-8"))]
    assert asked == []


@pytest.mark.parametrize(
    "source", ['x = a.trace.capture.format.startswith("ns" + "ys")', 'x = inputs[0].format == "kineto-json"']
)
def test_the_test_sees_questions_about_formats(source: str) -> None:
    assert format_questions("advisor.facts.x", source)


def test_modules_stay_readable() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert long == {}, "split them by what they do"


#: Values that stand in facts and documents alike, each of one type.
VALUES = {"Scope", "Fact", "Table", "Interval"}


def rebuilt(source: str) -> list[int]:
    """Lines that make an object of what a document says."""
    found = []
    for call in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)):
        name = ast.unparse(call.func)
        spread = [k.value for k in call.keywords if k.arg is None]
        given = [*spread, *(call.args if name.endswith("model_validate") else [])]
        dumped = any(isinstance(v, ast.Call) and ast.unparse(v.func).endswith("model_dump") for v in given)
        if dumped or (name in VALUES and spread):
            found.append(call.lineno)
    return found


def test_no_document_is_turned_back_into_an_object() -> None:
    found = {name_of(path): rebuilt(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = Scope(**found.scope.model_dump())", [1]),
        ("x = Scope(**found.scope)", [1]),
        ("x = Finding.model_validate(found.model_dump())", [1]),
        ("x = {**found.model_dump()}", []),
        ("print(found.model_dump())", []),
    ],
)
def test_the_walk_sees_an_object_that_is_rebuilt(source: str, lines: list[int]) -> None:
    assert rebuilt(source) == lines
