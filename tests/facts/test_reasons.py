"""Why something was not judged: the table or column named is really not there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.facts.catalog import CATALOGUE
from advisor.model.findings import Diagnosis
from advisor.sources.open import open_trace
from advisor.sources.schema import MISSING, TABLES
from advisor.sources.trace import Trace
from tests.builder import Export
from tests.test_captures import DATA, EXAMPLES

ROOT = Path(__file__).parents[2]
#: Beside the checkout, where somebody has put more captures.
SHARED = ROOT.parent / "shared" / "traces"
COMMITTED = sorted(p for f in (DATA, EXAMPLES) for end in ("*.sqlite.xz", "*.json.gz") for p in f.rglob(end))
OTHERS = sorted([*SHARED.glob("**/*.sqlite.xz"), *SHARED.glob("**/*.json.gz")])
US = 1_000
#: Where neither a table nor a column nor anything else that was looked for is absent.
REASONS = {"the window holds nothing of the kind", "no GPU work to judge"}


def kernels_only() -> Export:
    e = Export().gpu().process(100)
    for i in range(40):
        e.kernel(i * 50 * US, 20 * US, f"k{i % 4}", correlation=0)
    return e


def no_results() -> Export:
    e = Export().gpu().process(100).without_columns("CUPTI_ACTIVITY_KIND_RUNTIME", "returnValue")
    for i in range(40):
        e.launch(i * 50 * US, kernel=f"k{i % 4}")
    return e


def no_dram_samples() -> Export:
    e = no_results().gpu_metrics({"SMs Active": [80] * 40}, period_ns=50 * US)
    return e.range("decode_step", 0, 2_000 * US)


def no_work() -> Export:
    return Export().gpu().process(100).osrt("poll", 0, 1_000_000)


def has_values(trace: Trace, table: str, column: str) -> bool:
    values = trace.columns(table, (column,))[column]
    known = ~np.isnan(values) if values.dtype.kind == "f" else values != MISSING
    return bool(known.any())


def wrong_reasons(path: Path) -> list[str]:
    """Outcomes whose reason names a table or column that is there, or that the fact that is missing
    is not made of; or that have no reason."""
    d: Diagnosis = advisor.diagnose(path)
    wrong = []
    with open_trace(path) as trace:
        for entry in d.not_evaluated:
            if entry.stopped_by:
                continue
            if not entry.why:
                wrong.append(f"{entry.code}: no reason for {', '.join(entry.missing)}")
                continue
            specs = [CATALOGUE[n] for n in entry.missing]
            made_of = {t for s in specs for t in (*s.tables, *s.columns)}
            lacks = {need.lack for s in specs for need in s.needs}
            wrong += [
                f"{entry.code}: {why!r} is no need of {entry.missing}"
                for why in entry.why.split("; ")
                if not re.match("the capture (holds|has) no |the samples do not hold ", why)
                and why not in lacks | REASONS
                and "knowledge/kernel_families.yaml" not in why
            ]
            for names in re.findall(r"the capture holds no ([a-z_, ]+)", entry.why):
                for table in names.split(", "):
                    if table in trace.tables or table not in made_of or table not in TABLES:
                        wrong.append(f"{entry.code}: {table} is no reason for {entry.missing}")
            for column in re.findall(r"\b[a-z_]+\.[a-z_]+\b", entry.why):
                table, _, name = column.partition(".")
                declared = {c for s in specs for c in s.columns.get(table, ())}
                if table in TABLES and (name not in declared or has_values(trace, table, name)):
                    wrong.append(f"{entry.code}: {column} is no reason for {entry.missing}")
    return wrong


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.name)
def test_reasons_of_committed_captures(path: Path) -> None:
    assert wrong_reasons(path) == []


@pytest.mark.parametrize("export", [kernels_only, no_results, no_dram_samples, no_work])
def test_reasons_of_scenes(tmp_path: Path, export: object) -> None:
    assert callable(export)
    assert wrong_reasons(export().write(tmp_path / "t.sqlite")) == []


@pytest.mark.skipif(not OTHERS, reason="no further captures beside the checkout")
def test_reasons_of_other_captures() -> None:
    # Every tenth: they take a second each.
    wrong = Counter(text for path in OTHERS[::10] for text in wrong_reasons(path))
    assert not wrong


def why(export: Export, folder: Path) -> dict[str, str]:
    d = advisor.diagnose(export.write(folder / "t.sqlite"))
    return {e.cause: e.why or "" for e in d.not_evaluated}


def test_a_column_that_is_absent_is_named(tmp_path: Path) -> None:
    assert why(no_results(), tmp_path)["cuda-errors"] == ("the capture has no value of api_calls.result")


def test_no_remedy_for_what_did_not_happen(tmp_path: Path) -> None:
    """CUDA was traced and nothing was copied: tracing CUDA again would record no copy either."""
    d = advisor.diagnose(no_results().write(tmp_path / "t.sqlite"))
    flags = {e.flag for e in d.not_evaluated if e.why == "the capture holds no copies"}
    assert flags == {None}
