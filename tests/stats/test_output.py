"""What `advisor stats` prints: text in 80 columns, CSV as nsys has it, JSON; and its errors."""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from advisor.cli.main import main
from advisor.model.stats_table import StatsTable
from advisor.reports import json_report
from advisor.reports.layout import Page
from advisor.reports.stats_tables import csv_text, fitting, render, report
from tests.stats.support import Captured, csv_rows, printed
from tests.stats.test_oracle import COMMITTED
from tests.stats.test_tails import loop

EVERY = (
    "kernels",
    "tail",
    "api",
    "launch",
    "copies",
    "copy-sizes",
    "nvtx",
    "nvtx-kernels",
    "osrt",
    "trace",
    "histogram",
    "pace",
    "budget",
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return (
        loop({5: 30_000, 9: 30_000}).call("cudaMalloc_v3020", 5_310_000, 5_000).write(tmp_path / "t.sqlite")
    )


def sample() -> StatsTable:
    frame = pd.DataFrame(
        {
            "Time (%)": [66.65, 33.35],
            "Total Time (ns)": [2_000_000, 1_000_001],
            "Avg (ns)": [1_500.25, 300.0],
            "Bytes (B)": pd.array([2_000, pd.NA], "Int64"),
            "Name": ["void gemm<float, (int)3>(int)", 'say "a", b'],
        }
    )
    return StatsTable("kernels", "Sample", frame, scope="whole capture", ranks=(0,) * 5)


def test_a_tail_table_keeps_its_percentiles_in_80_columns(trace: Path, capsys: Captured) -> None:
    text = printed(capsys, trace, "--report", "tail")
    head = next(line for line in text.splitlines() if line.startswith("Count"))
    assert {"P50", "P95", "P99", "Max", "Tail", "Max/P50"} <= set(head.split())
    assert max(map(len, text.splitlines())) <= 80


def test_names_that_a_spreadsheet_would_run_are_inert_in_csv() -> None:
    names = ["=1+1", "+a", "-b", "@c", "\t=d", "e=f", "＝g", "x\r=h", "\x1b=i\u202e"]
    frame = pd.DataFrame({"Name": names, "Sum": [-1, *range(2, 10)]})
    table = StatsTable("kernels", "Sample", frame, scope="whole capture", ranks=(0,) * 2)
    _, *cells = csv.reader(io.StringIO(csv_text([table]), newline=""))
    shown = ["'=1+1", "'+a", "'-b", "'@c", "' =d", "e=f", "'＝g", "x =h", "?=i?"]
    assert [name for name, _ in cells] == shown
    assert cells[0][1] == "-1"
    _, *cells = csv.reader(io.StringIO(csv_text([table], raw=True), newline=""))
    assert cells == [[name, str(sum)] for name, sum in frame.itertuples(index=False)]


def test_csv() -> None:
    assert csv_text([sample()]) == (
        "Time (%),Total Time (ns),Avg (ns),Bytes (B),Name\n"
        '66.7,2000000,1500.3,2000,"void gemm<float, (int)3>(int)"\n'
        '33.4,1000001,300.0,,"say ""a"", b"\n'
    )


def test_csv_keeps_every_digit_in_larger_units() -> None:
    assert csv_text([sample()], "msec").splitlines()[1:] == [
        '66.7,2.000000,0.0015003,2000,"void gemm<float, (int)3>(int)"',
        '33.4,1.000001,0.0003000,,"say ""a"", b"',
    ]
    assert csv_text([sample()], "sec").startswith("Time (%),Total Time (s),Avg (s)")


def test_several_csv_tables_are_told_apart() -> None:
    lines = csv_text([sample(), sample()]).split("\n")
    assert lines[0] == "# kernels: whole capture"
    assert lines[4:6] == ["", "# kernels: whole capture"]


def test_json() -> None:
    document = json.loads(json_report.document(report("t.sqlite", [sample()])))
    assert document["input"] == "t.sqlite"
    (table,) = document["reports"]
    assert table["scope"] == "whole capture"
    assert table["rows"][0]["Total Time (ns)"] == 2_000_000
    assert table["rows"][1] == {
        "Time (%)": 33.4,
        "Total Time (ns)": 1_000_001,
        "Avg (ns)": 300.0,
        "Bytes (B)": None,
        "Name": 'say "a", b',
    }


def test_json_has_sizes_to_the_byte(capsys: Captured) -> None:
    out = printed(capsys, COMMITTED, "-r", "copy-sizes", "--format", "json")
    (row,) = json.loads(out)["reports"][0]["rows"]
    assert row["Total (MB)"] == 0.000128


def lines(table: StatsTable, width: int = 80, **options: object) -> list[str]:
    page = Page(width)
    render(page, table, **options)  # type: ignore[arg-type]
    return [line.plain for line in page.lines]


def test_text() -> None:
    assert lines(sample()) == [
        "Sample  kernels",
        "whole capture",
        "",
        "Time %  Total ms  Avg us     Bytes  Name",
        "  66.7      2.00    1.50  1.95 KiB  gemm fp32 3",
        '  33.4      1.00    0.30            say "a", b',
    ]


def test_text_in_a_given_unit() -> None:
    assert lines(sample(), timeunit="nsec")[3:] == [
        "Time %   Total ns   Avg ns     Bytes  Name",
        "  66.7  2,000,000  1,500.3  1.95 KiB  gemm fp32 3",
        '  33.4  1,000,001    300.0            say "a", b',
    ]
    assert lines(sample(), timeunit="usec")[3].split("  ")[2] == "Avg us"


def test_a_limit_is_told() -> None:
    assert lines(sample(), limit=1)[-1] == "… 1 more rows: --limit 0 shows all"
    assert len(lines(sample(), limit=0)) == 6


def test_columns_of_low_rank_come_first() -> None:
    #      name 30, two of 10 with rank 0, the others as there is room
    need, ranks = [10, 10, 20, 9, 30], [0, 0, 2, 1, 0]
    assert fitting(need, ranks, 80) == [0, 1, 3, 4]
    assert fitting(need, ranks, 100) == [0, 1, 2, 3, 4]
    assert fitting(need, ranks, 40) == [0, 1, 4]


@pytest.mark.parametrize("columns", ["80", "60", "120"])
def test_text_fits(columns: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = printed(capsys, COMMITTED, "--report", ",".join(EVERY))
    assert max(map(len, out.splitlines())) <= int(columns)
    heads = [n for n, line in enumerate(out.splitlines()) if line.rpartition("  ")[2] in EVERY]
    assert [out.splitlines()[n].rpartition("  ")[2] for n in heads] == list(EVERY)
    assert all(after - before > 2 for before, after in pairwise([*heads, len(out.splitlines())]))


def test_csv_and_json_hold_the_same(capsys: Captured) -> None:
    csv = printed(capsys, COMMITTED, "-r", ",".join(EVERY), "--format", "csv")
    tables = [csv_rows(part.partition("\n")[2].strip()) for part in re.split(r"(?m)^# ", csv)[1:]]
    reports = json.loads(printed(capsys, COMMITTED, "-r", ",".join(EVERY), "--format", "json"))["reports"]
    assert [r["report"] for r in reports] == list(EVERY)
    for found, table in zip(reports, tables, strict=True):
        assert len(found["rows"]) == max(len(table) - 1, 0)
        if found["rows"]:
            assert list(found["rows"][0]) == table[0]
        else:
            assert found["report"] == "osrt"
            assert found["note"].startswith("the capture holds no OS runtime calls")


def test_the_tail_report_says_what_coincides(trace: Path, capsys: Captured) -> None:
    out = printed(capsys, trace, "--report", "tail")
    assert "steady window" in out
    text = " ".join(out.split())
    assert "systematic tail: grid 132x1x1, block 128x1x1; 2 slow" in text
    assert "with an allocation or free call 50 % (all calls 3.33 %)" in text


def test_a_histogram_shows_single_calls(trace: Path, capsys: Captured) -> None:
    out = printed(capsys, trace, "-r", "histogram")
    add = out[out.index("add  30 calls") :].split("\n\n")[0].splitlines()
    assert add[1].endswith("█" * 30)
    # Two calls of 30 us: in the last bin, with empty ones between.
    filled = [line.count("█") for line in add[1:]]
    assert filled[0] == 30
    assert set(filled[1:-1]) == {0}
    assert filled[-1] == 2


def test_several_reports_and_names(trace: Path, capsys: Captured) -> None:
    out = printed(capsys, trace, "-r", "kernels,api", "-r", "cuda_gpu_trace", "--limit", 2)
    heads = ["CUDA GPU kernel summary", "CUDA API summary", "CUDA GPU trace"]
    assert [line.split("  ")[0] for line in out.splitlines() if line.startswith("CUDA")] == heads


def test_the_default_is_kernels(trace: Path, capsys: Captured) -> None:
    assert printed(capsys, trace) == printed(capsys, trace, "--report", "kernels")


def test_output_in_a_file(trace: Path, tmp_path: Path, capsys: Captured) -> None:
    for form in ("text", "csv", "json"):
        target = tmp_path / f"out.{form}"
        assert printed(capsys, trace, "-r", "kernels", "--format", form, "-o", target) == ""
        assert "gemm" in target.read_text(encoding="utf-8")
        assert main(["stats", str(trace), "-r", "kernels", "--format", form, "-o", str(target)]) == 2
        assert "add --force" in capsys.readouterr().err
    assert "gemm" in printed(capsys, trace, "-o", "-")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-r", "kernel"], "did you mean 'kernels"),
        (["--format", "yaml"], "--format"),
        (["--names", "short"], "--names"),
        (["--limit", "-1"], "--limit"),
        (["-r", "tail", "--window", "9s/10s"], "lies outside the capture"),
        (["-r", "tail", "--nvtx", "iteration"], "no range is named"),
        (["-r", "kernels", "--phase", "prefill"], "no step is prefill"),
    ],
)
def test_errors_in_one_line(options: list[str], message: str, trace: Path, capsys: Captured) -> None:
    assert main(["stats", str(trace), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
