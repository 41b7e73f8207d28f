"""Why something was not judged: the table or column named is really not there."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

import advisor
from tests.builder import Export
from tests.captures import DATA, EXAMPLES
from tests.docs.scripts import script

ROOT = Path(__file__).parents[2]
#: Beside the checkout, where somebody has put more captures.
SHARED = ROOT.parent / "shared" / "traces"
COMMITTED = sorted(p for f in (DATA, EXAMPLES) for end in ("*.sqlite.xz", "*.json.gz") for p in f.rglob(end))
#: Further ranks of a job, and larger models in the same mode of launching.
FURTHER = re.compile("rank[1-9]|decode8b|prefill8b")
OTHERS = sorted(p for end in ("sqlite.xz", "json.gz", "json.xz") for p in SHARED.glob(f"**/*.{end}"))
#: Every tenth of them, as they take a second each; `ADVISOR_ALL_CAPTURES=1` looks at all.
SAMPLED = OTHERS[:: 1 if os.environ.get("ADVISOR_ALL_CAPTURES") else 10]
US = 1_000


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


def wrong_reasons(path: Path) -> list[str]:
    """Outcomes whose reason names a table or column that is there, or that the fact that is missing
    is not made of; or that have no reason."""
    wrong: list[str] = script("benchmarks/reasons.py").reasons(path)[1]
    return wrong


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.name, marks=[pytest.mark.slow] if FURTHER.match(p.name) else [])
        for p in COMMITTED
    ],
)
def test_reasons_of_committed_captures(path: Path) -> None:
    assert wrong_reasons(path) == []


@pytest.mark.parametrize("export", [kernels_only, no_results, no_dram_samples, no_work])
def test_reasons_of_scenes(tmp_path: Path, export: object) -> None:
    assert callable(export)
    assert wrong_reasons(export().write(tmp_path / "t.sqlite")) == []


@pytest.mark.slow
@pytest.mark.skipif(not OTHERS, reason="no further captures beside the checkout")
def test_reasons_of_other_captures() -> None:
    wrong = Counter(text for path in SAMPLED for text in wrong_reasons(path))
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
