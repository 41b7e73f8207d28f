"""`knowledge/facts/` and the code agree: what code can write is declared, and what is declared is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from advisor.errors import AdvisorError
from advisor.facts import catalog, needs
from advisor.facts import limits as fact_limits
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.facts import FactFile, declared, evidence_tables, facts_of, files, need, shared
from advisor.knowledge.package_data import data_dir
from advisor.metrics import limits
from advisor.sources.schema import TABLES
from tests.knowledge_files import load

ROOT = Path(__file__).resolve().parents[2]
FOLDER = data_dir("knowledge") / "facts"
#: Files whose facts other modules than that of the same name in advisor/facts/ write.
WRITERS = {
    "communication": ("facts/communication.py", "jobs/*.py"),
    "comparison": ("comparison/*.py",),
    "recording": ("pipeline/doctor.py",),
}
DECLARED = {name: spec for file in files() for name, spec in facts_of(file).items()}
GROUPS = {name.partition(".")[0] for name in DECLARED}
#: A count is written under the name that both of its facts begin with.
COUNTS = {name.rpartition("_per_")[0] for name in DECLARED if name.endswith("_per_step")}


def texts(path: Path) -> Iterator[str]:
    """The strings of a module, with ``{}`` for what an f-string puts in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named(text: str) -> bool:
    """Whether a string names facts."""
    return text.partition(".")[0] in GROUPS and re.fullmatch(r"[a-z]+\.[a-z0-9_{}]+", text) is not None


@pytest.mark.parametrize("file", sorted({*files()} - {"shared", "input"}))  # inputs are written by a loop
def test_what_is_declared_is_written_by_the_module_of_its_file(file: str) -> None:
    modules = WRITERS.get(file, (f"facts/{file}.py",))
    written = [t for m in modules for path in (ROOT / "advisor").glob(m) for t in texts(path) if named(t)]
    written += [f"{t}_per_{by}" for t in written for by in ("step", "100_kernels") if t in COUNTS]
    pattern = re.compile("|".join(re.escape(t).replace(r"\{\}", "[a-z0-9_]+") for t in written) or "$^")
    assert [name for name in facts_of(file) if not pattern.fullmatch(name)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "advisor" / "facts").glob("*.py")), ids=lambda p: p.stem)
def test_what_a_module_names_is_declared(path: Path) -> None:
    known = [*DECLARED, *COUNTS, *evidence_tables()]

    def is_known(text: str) -> bool:
        pattern = re.compile(re.escape(text).replace(r"\{\}", "[a-z0-9_]+"))
        return any(pattern.fullmatch(name) for name in known)

    assert [t for t in texts(path) if named(t) and not is_known(t)] == []


def test_every_module_has_a_file() -> None:
    modules = {m.__name__.rpartition(".")[2] for m in catalog._MODULES}
    assert {*modules, "shared", "comparison", "recording", "input"} == set(files())


def test_needs_and_predicates_are_those_of_each_other() -> None:
    declared = {n.met for spec in DECLARED.values() for n in spec.needs if n.met}
    assert declared == set(needs.PREDICATES)


def test_what_supplies_facts_is_listed_and_all_that_is_listed_is_used() -> None:
    used = {fix for spec in DECLARED.values() for fix in (spec.flag, spec.supply)}
    used |= {n.supply for spec in DECLARED.values() for n in spec.needs}
    in_code = {v for k, v in vars(needs).items() if k.isupper() and k[0] != "_" and isinstance(v, str)}
    used |= (in_code - {needs.NOT_IN_SUMS}) | set(shared().fills.values())
    kinds = {n.switch for spec in DECLARED.values() for n in spec.needs}
    switches = (v for e in engines().values() for v in e.capture if kinds & set(v.supplies))
    used |= {v.setting for v in switches}
    assert used - {"", None} == set(shared().supplies)


def test_words_are_said_of_tables_and_columns_that_exist() -> None:
    assert {*shared().words, *shared().fills} <= set(TABLES)
    assert shared().measures.keys() <= set(TABLES["samples"])


def test_the_first_thing_that_is_lacking_stands_for_several() -> None:
    assert needs.lacks("--gpu-metrics-devices=all and GPU work in the captured process") == "no GPU work"
    assert needs.lacks("--gpu-metrics-devices=all --gpu-metrics-frequency=100000") == "GPU metrics too coarse"
    assert needs.lacks("--trace=cuda,nvtx,python-gil,osrt --gpuctxsw=true") == "no host trace"
    assert needs.lacks("--trace=cuda,nvtx -c cudaProfilerApi") == "no CUDA or NVTX trace"
    assert needs.lacks("a newer driver") is None


def test_numbers_in_words_are_those_of_the_code() -> None:
    assert f"fewer than {limits.host.RATE_KERNELS} kernels" in need("kernels_for_a_rate").lack
    drift = need("twelve_steps_of_a_phase")
    assert drift.argument == limits.kernels.DRIFT_STEPS
    assert f"fewer than {limits.kernels.DRIFT_STEPS} steps" in drift.lack
    assert f"fewer than {fact_limits.COLLECTIVE_CALLS} " in need("like_collectives", "communication").lack
    assert f"{fact_limits.BUSY_SAMPLE_RATIO:.0%}".replace("%", " %") in need("busy_samples", "activity").lack


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("needs: [migrations]", "needs: [stops]", "a group: unknown need 'stops'; neither here nor"),
        ("needs: [migrations, ", "needs: [stops, ", "unified.unasked_ratio: unknown need 'stops'"),
        ("tables: [copies]", "columns: used", "unified.migration_count: unknown columns 'used'; neither"),
        ("unit: ratio", "unit: share", "unit: Input should be 'ratio'"),
        ("unit: ratio", "units: ratio", "units: Extra inputs are not permitted"),
        ("formula: sum", "", "unified.migrated_bytes: formula: field required"),
        ("unified.migrated_bytes", "memory.used_ratio", "memory.used_ratio: memory.yaml declares it as well"),
        ("unified.migrated_bytes", "copy.tiny_per_*", "copy.tiny_per_step: copies.yaml declares it as well"),
        ("needs:\n", "needs:\n  steps: {lack: no steps}\n", "shared.yaml has the need 'steps' as well"),
        (
            "unit: ratio",
            "unit: ratio\n        supply: luck",
            "unified.migration_ratio: 'luck' is not in the sup",
        ),
    ],
)
def test_a_fault_is_one_line_that_says_where(old: str, new: str, error: str, tmp_path: Path) -> None:
    folder = copytree(FOLDER, tmp_path / "facts")
    path = folder / "memory.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(AdvisorError) as fault:
        declared({p.stem: load(p, FactFile) for p in sorted(folder.glob("*.yaml"))})
    assert error in str(fault.value)
    assert "memory.yaml" in str(fault.value)
