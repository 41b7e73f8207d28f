"""Imports go one way: from the command line down to the model, never back up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "advisor"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400

#: From the bottom to the top; packages of one row do not import each other.
ORDER: tuple[tuple[str, ...], ...] = (
    ("errors", "process"),
    ("reading", "scratch"),
    ("model",),
    ("knowledge",),
    ("sources",),
    ("metrics",),
    ("facts",),
    ("engine",),
    ("gain", "ranks", "capture", "compare", "export"),
    ("recording",),
    ("pipeline",),
    ("watching",),
    ("reports",),
    ("checklist", "agents"),
    ("config",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, row in enumerate(ORDER) for name in row}

#: Narrower than the order: the only packages of ours that these may import.
ONLY: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "sources": {"model", "errors", "process", "reading", "scratch"},
    "metrics": {"sources", "model", "knowledge", "errors"},
    "facts": {"metrics", "sources", "model", "knowledge", "errors"},
    "reports": {"model", "errors", "reading"},
    "config": {"model", "errors", "reading"},
}
#: The engine knows facts by name; how they are computed is none of its business.
ENGINE_MUST_NOT = {"sources", "metrics", "facts"}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts)


def layer(module: str) -> str:
    """``advisor.reports.output_file`` is of the layer ``reports``."""
    return (*module.split("."), "__init__")[1]


def imports(module: str, source: str) -> Iterator[tuple[int, str]]:
    """Every import of ours, wherever it stands, as ``(line, module)``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            # `from advisor import x` may name a module or something in __init__.
            names = [f"{base}.{a.name}" if base == "advisor" else base for a in node.names]
        else:
            continue
        for name in names:
            if name == "advisor" or name.startswith("advisor."):
                yield node.lineno, name


def problems(module: str, source: str) -> list[str]:
    """What is wrong with the imports of one module, a line each."""
    mine = layer(module)
    found = []
    for line, target in imports(module, source):
        theirs = layer(target)
        if theirs == mine or target == "advisor.__version__":
            continue
        where = f"{module}:{line} imports {target}"
        if theirs not in RANK or mine not in RANK:
            found.append(f"{where}: not in ORDER; add its layer")
        elif RANK[theirs] >= RANK[mine]:
            found.append(f"{where}: {theirs} is above {mine}")
        elif mine in ONLY and theirs not in ONLY[mine]:
            allowed = ", ".join(sorted(ONLY[mine])) or "nothing of ours"
            found.append(f"{where}: {mine} may import {allowed}")
        elif mine == "engine" and theirs in ENGINE_MUST_NOT:
            found.append(f"{where}: the engine does not read traces")
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_upward_import(path: Path) -> None:
    assert problems(name_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("sources/sqlite/*.py")), ids=name_of)
def test_the_sqlite_reader_knows_no_format(path: Path) -> None:
    found = [target for _, target in imports(name_of(path), path.read_text(encoding="utf-8"))]
    allowed = (
        "advisor.errors",
        "advisor.reading",
        "advisor.reading",
        "advisor.model.arrays",
        "advisor.sources.sqlite",
    )
    allowed += ("advisor.sources.schema", "advisor.sources.trace")
    assert [t for t in found if not t.startswith(allowed)] == []
    assert "nsys" not in path.read_text(encoding="utf-8")


#: Names that readers give to their formats, and packages that know one.
FORMAT_NAME = re.compile(r"nsys-\w*|kineto[\w-]*|nvidia-smi\w*|dcgmi?")
READERS = tuple(f"advisor.sources.{name}" for name in ("nsys", "kineto", "samplers", "pasted"))


def format_questions(module: str, source: str) -> list[str]:
    """Where a module asks which format a capture has, a line each."""
    found = [
        f"{module}:{line} imports {target}"
        for line, target in imports(module, source)
        if target.startswith(READERS)
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and FORMAT_NAME.fullmatch(str(node.value)):
            found.append(f"{module}:{node.lineno} names {node.value}")
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith(
            (".format.startswith", ".format.endswith")
        ):
            found.append(f"{module}:{node.lineno} asks {ast.unparse(node)}")
    return found


#: What a reader says of its recorder is in `Capture.recorder`; redact rewrites nsys' own tables.
@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if layer(name_of(p)) != "sources" and not p.stem.startswith("redact")],
    ids=name_of,
)
def test_only_readers_know_formats(path: Path) -> None:
    assert format_questions(name_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        'x = a.trace.capture.format.startswith("ns" + "ys")',
        'x = inputs[0].format == "kineto-json"',
        "from advisor.sources.nsys.table_map import KERNEL",
        "def f():\n    from advisor.sources.samplers.log import read_log",
    ],
)
def test_the_test_sees_questions_about_formats(source: str) -> None:
    assert format_questions("advisor.facts.x", source)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_stay_readable(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{name_of(path)} has {lines} lines; split it by what it does"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("advisor.model.facts", "from advisor.errors import AdvisorError"),
        ("advisor.sources.nsys", "from advisor.knowledge.gpus import gpus"),
        ("advisor.metrics.budget", "import advisor.facts.catalog"),
        ("advisor.engine.infer", "from advisor.facts.catalog import build_facts"),
        ("advisor.engine.lint", "from advisor.facts.writer import FactWriter"),
        ("advisor.engine.infer", "from advisor.sources.trace import Trace"),
        ("advisor.engine.infer", "from ..metrics import steps"),
        ("advisor.reports.diagnosis_blocks", "def f():\n    from advisor.pipeline.diagnose import Options"),
        ("advisor.gain.replay", "from advisor.ranks import align"),
        ("advisor.facts.catalog", "from advisor import diagnose"),
        ("advisor.cli.x", "import advisor.unheard_of"),
    ],
)
def test_the_test_sees_upward_imports(module: str, source: str) -> None:
    assert problems(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("advisor.engine.lint", "from advisor.knowledge.facts import FactSpec"),
        ("advisor.reports.json_report", "from advisor.model.findings import Diagnosis"),
        ("advisor.pipeline.diagnose", "from advisor import __version__"),
        ("advisor.cli.diagnosis", "from advisor.pipeline.diagnose import Options"),
        ("advisor.metrics.budget", "from .intervals import union"),
    ],
)
def test_the_test_lets_downward_imports_pass(module: str, source: str) -> None:
    assert problems(module, source) == []


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


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_document_is_turned_back_into_an_object(path: Path) -> None:
    assert rebuilt(path.read_text(encoding="utf-8")) == []


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
