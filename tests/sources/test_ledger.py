"""What is dropped, repaired or doubted while reading is counted by kind and table."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Input
from advisor.pipeline.diagnose import diagnose
from advisor.sources.schema import cuda_version
from advisor.sources.trace import Ledger
from tests.builder import Export
from tests.kineto_builder import Profile

Counts = dict[tuple[str, str], tuple[int, int, str]]


def ledger(path: Path) -> tuple[Counts, Input]:
    (found,) = diagnose(path).inputs
    return {(r.kind, r.table): (r.count, r.rows, r.severity) for r in found.ledger}, found


def test_the_largest_count_stands_in_one_order() -> None:
    """Columns of a table are read one after the other, and tables in any order."""
    noted = Ledger()
    noted.note("repaired", "no number", "b", 0, 10)
    assert noted.rows() == ()
    noted.note("repaired", "no number", "b", 1, 10)
    noted.note("repaired", "no number", "a", 3, 2)
    noted.note("dropped", "no end", "b", 4, 10)
    for count in (3, 2):
        noted.note("repaired", "no number", "b", count, 9)
    assert [(r.kind, r.table, r.count, r.rows) for r in noted.rows()] == [
        ("dropped", "b", 4, 10),
        ("repaired", "a", 3, 3),
        ("repaired", "b", 3, 9),
    ]


def test_a_report_warns_of_what_no_rule_and_no_other_text_says() -> None:
    noted = Ledger()
    noted.note("dropped", "no end", "t", 50, 100)
    noted.note("repaired", "no number", "t", 50, 100)
    noted.note("doubted", "end before they start", "t", 50, 100)
    noted.note("dropped", "no start", "u", 1, 1_000)
    assert noted.warnings(["no number in 50 rows"]) == (
        "no number in 50 rows",
        "50 of 100 rows of t dropped: no end",
    )


@pytest.mark.parametrize(("number", "said"), [(12080, "12.8"), (1000, "1.0"), (999, None), (0, None)])
def test_versions_of_cuda_are_numbers(number: int, said: str | None) -> None:
    assert cuda_version(number) == said


def export() -> Export:
    e = Export().gpu().process(100)
    for i in range(120):
        e.launch(i * 20_000, 3_000, f"k{i % 3}", i * 20_000 + 5_000, 9_000)
    return e


def test_an_export(tmp_path: Path) -> None:
    whole, found = ledger(export().write(tmp_path / "whole.sqlite"))
    assert (whole, found.warnings) == ({}, ())
    e = export().kernel(5_000_000, -9, correlation=0).range("open", 0, None).range("closed", 0, 9)
    e.kernel(6_000_000, 5, correlation=0, grid=("12x", 1, 1))  # type: ignore[arg-type]
    e.gpu_metrics({"SMs Active [Throughput %]": [50] * 300}, start=-1)
    counts, found = ledger(e.write(tmp_path / "odd.sqlite"))
    assert counts == {
        ("dropped", "NVTX_EVENTS"): (1, 2, "warning"),
        ("dropped", "GPU_METRICS"): (1, 300, "note"),
        ("repaired", "CUPTI_ACTIVITY_KIND_KERNEL"): (1, 122, "note"),
        ("doubted", "kernels"): (1, 122, "note"),
    }
    assert found.warnings == ("NVTX ranges without an end, left out: 1",)


def test_a_share_of_a_hundredth_is_a_warning(tmp_path: Path) -> None:
    e = export().kernel(6_000_000, 5, correlation=0, grid=("1x", 1, 1))  # type: ignore[arg-type]
    e.kernel(7_000_000, 5, correlation=0, grid=("2x", 1, 1))  # type: ignore[arg-type]
    counts, found = ledger(e.write(tmp_path / "t.sqlite"))
    assert counts["repaired", "CUPTI_ACTIVITY_KIND_KERNEL"] == (2, 122, "warning")
    (warning,) = found.warnings
    assert warning.startswith("2 of 122 rows of CUPTI_ACTIVITY_KIND_KERNEL repaired: texts or fractions")


def test_a_trace(tmp_path: Path) -> None:
    p = Profile().gpu().process(100)
    for i in range(40):
        p.launch(at=i * 50_000, kernel="gemm", kernel_start=i * 50_000 + 7_000, kernel_dur=10_000)
    p.event(ph="X", cat="kernel", name="k", ts="late", dur=1, pid=0, tid=7)
    p.event(ph="X", cat="cpu_op", name=["no text"], ts=1, dur=-1, pid=1, tid=1)
    p.event(ph="X", cat="kernel", name="k", ts=9, dur=-3, pid=0, tid=7, args={"device": 0, "stream": 7})
    p.event(ph="X", cat="kernel", name="k", ts=99, pid=0, tid=7, args={"device": 0, "stream": 7})
    p.event(ph="X", cat="cpu_op", name="of no time", ts=5, dur=0, pid=1, tid=1)  # may be
    counts, found = ledger(p.write(tmp_path / "t.json"))
    rows = len(p.events)
    assert counts["dropped", "kernels"][:2] == (1, 43)
    assert ("dropped", "traceEvents") not in counts
    assert [(r.what, r.count, r.rows) for r in found.ledger if r.kind == "repaired"] == [
        ("values of another type than events have", 1, rows),
        ("durations missing or below 0, read as 0", 1, rows),  # an operator's
    ]
    assert counts["doubted", "kernels"][:2] == (2, 43)  # so is a kernel's, and another's is missing


def test_a_log(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"2024/05/01 10:00:{i:02}.000, 0, {i} %" for i in range(20)]
    rows[7] = "2024/05/01 10:0"
    path.write_text("\n".join(["timestamp, index, utilization.gpu [%]", *rows, ""]))
    assert ledger(path)[0] == {("dropped", "samples"): (1, 20, "warning")}


def test_a_broken_link_in_a_folder_is_a_missing_rank(tmp_path: Path) -> None:
    from advisor.pipeline.inputs import expand

    whole = export().write(tmp_path / "whole")
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.sqlite").symlink_to(whole)
    (tmp_path / "rank2.sqlite").symlink_to(tmp_path / "gone")
    assert [p.name for p in expand([tmp_path])] == ["rank0.sqlite", "rank1.sqlite", "rank2.sqlite"]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_fractions_in_a_folder(kind: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from advisor.sources.open import open_trace
    from tests.sources.test_nsys_columnar import _write

    table = pa.table({"start": [5.5, 7.0], "end": [9, 10], "globalPid": [2**48] * 2})
    _write(table, tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL", kind)
    with open_trace(tmp_path) as trace:
        trace.columns("kernels", ["start"])
        (row,) = trace.ledger.rows()
    assert (row.kind, row.count, row.rows) == ("repaired", 2, 2)
