"""Pasted tables of `nsys stats`: every format reads alike, and what is none says so in one line."""

from __future__ import annotations

import gzip
import io
import lzma
import math
import os
import sys
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.cli.paths import hold_pipes
from advisor.errors import InputError
from advisor.pipeline.inputs import expand
from advisor.sources.open import open_trace
from advisor.sources.pasted.header import header_of
from advisor.sources.pasted.headings import cells_of, number, spaced
from advisor.sources.pasted.printed_tables import is_text, read_tables
from advisor.sources.pasted.raw_tables import REST, Table
from tests.pasted import FORMATS, Printed, as_columns, as_csv, as_old, pasted, printed

GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16_64x64, a | b>(T1::Params, int, float)"
KERNELS = printed(
    "cuda_gpu_kern_sum",
    (GEMM, 256, 48225.5, 48000.0, 47000, 90123, 812.4),
    ("flash_fwd_kernel", 256, 23529.0, 23000.0, 22000, 24000, 10.0),
)
CALLS_ = printed(
    "cuda_api_sum",
    ("cudaLaunchKernel", 512, 5000.0, 4500.0, 3000, 900000, 400.0),
    ("cuMemFreeAsync", 12, 2000.0, 2000.0, 2000, 2000, 0.0),
)
COPIES = printed("cuda_gpu_mem_time_sum", ("[CUDA memcpy Host-to-Device]", 7, 800.0, 800.0, 700, 900, 1.0))
RANGES = Printed(
    "nvtx_sum",
    ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Style", "Range"),
    ((100.0, 5_000_000, 5, 1_000_000.0, "PushPop", ":decode step"),),
)
OSRT = printed("osrt_sum", ("poll", 3, 9000.0, 9000.0, 9000, 9000, 0.0))
ALL = (KERNELS, CALLS_, COPIES, RANGES, OSRT)


def by_report(text: str) -> dict[str, Table]:
    return {table.report: table for table in read_tables(text)}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_reads_alike(form: str) -> None:
    found = by_report(pasted(ALL, form))
    assert list(found) == ["kernels", "calls", "copies", "ranges", "host_calls"]
    assert all(table.torn == 0 for table in found.values())
    first = found["kernels"].rows[0]
    assert first.values == {
        "percent": 67.2, "total": 12345728, "count": 256, "average": 48225.5, "median": 48000,
        "least": 47000, "most": 90123, "deviation": 812.4,
    }  # fmt: skip
    assert first.name.startswith("void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16")
    assert [r.name for r in found["calls"].rows] == ["cudaLaunchKernel", "cuMemFreeAsync"]
    assert found["ranges"].rows[0].name == "decode step"
    assert found["host_calls"].rows[0].name == "poll"


def test_up_to_two_columns_may_be_unknown() -> None:
    known = "Name,Total Time (ns),Instances"
    assert header_of(f"{known},Foo,Bar") is not None
    assert header_of(f"{known},Foo,Bar,Baz") is None


def test_unknown_columns_may_hold_words() -> None:
    table = by_report("Name,Foo,Total Time (ns),Instances\ngemm,red,500,5\n")["kernels"]
    assert (table.torn, table.rows[0].values) == (0, {"total": 500, "count": 5})


@pytest.mark.parametrize(
    "line",
    [
        "Name,Total Time (ns),Med (ns)",
        "Time (%),Name,StdDev (ns),Avg (ns)",
        "Total Time (ns),Instances,Avg (ns)",
        "Name," + " " * 2_000 + "Total Time (ns),Instances",
    ],
    ids=["one number", "one number and its spread", "no name", "too long"],
)
def test_headings_of_sums_have_a_name_and_two_numbers(line: str) -> None:
    assert header_of(line) is None


def test_two_commas_are_enough() -> None:
    assert header_of("Name,Total Time (ns),Instances") is not None


def test_quoted_cells_may_stand_behind_a_space() -> None:
    assert cells_of('1, "a, b", 2', ",") == ["1", "a, b", "2"]


def test_a_count_of_none_follows_from_total_and_average() -> None:
    rows = by_report("Total Time (ns),Instances,Avg (ns),Name\n500,0,100,gemm\n")["kernels"].rows
    assert rows[0].values["count"] == 5


def test_the_median_of_an_odd_number_of_rows_is_the_middle_one() -> None:
    rows = "".join(f"{i},{t},k\n" for i, t in enumerate((70, 10, 20)))
    (row,) = by_report(f"Start (ns),Duration (ns),Name\n{rows}")["kernels"].rows
    assert row.values["median"] == 20


@pytest.mark.parametrize(
    ("percent", "total", "rest"),
    [("0.5", 5, 995), ("99.0", 990, None), ("50.0", 0, None), ("0.0", 5, None), ("50.0", 0.5, 0.5)],
)
def test_what_was_not_pasted_follows_from_the_shares(percent: str, total: int, rest: float | None) -> None:
    rows = by_report(f"Time (%),Total Time (ns),Instances,Name\n{percent},{total},5,gemm\n")["kernels"].rows
    assert [r.values["total"] for r in rows if r.name == REST] == ([] if rest is None else [rest])


@pytest.mark.parametrize(
    ("names", "report"),
    [
        (("poll", "read"), "host_calls"),
        (("poll", "softmax_fwd"), "kernels"),  # a word of kernels
        (("poll", "my_kernel2"), "kernels"),
        (("poll", "Foo::bar"), "kernels"),
        (("cudaFree", "cuMemFree", "poll"), "calls"),
        (("cudaFree", "poll"), "calls"),
        (("cudaFree", "poll", "read"), "kernels"),
        (("[CUDA memset]", "[CUDA memcpy Host-to-Device]"), "copies"),
    ],
)
def test_without_a_title_the_names_tell_the_report(names: tuple[str, ...], report: str) -> None:
    lines = "".join(f"500,5,{name}\n" for name in names)
    assert list(by_report(f"Total Time (ns),Instances,Name\n{lines}")) == [report]


def test_columns_of_bytes_or_a_title_tell_sizes() -> None:
    text = "Total ({}),Operations,Operation\n500,5,[CUDA memset]\n"
    assert list(by_report(text.format("MB"))) == ["sizes"]
    assert list(by_report("cuda_gpu_mem_size_sum\n" + text.format(""))) == ["sizes"]


def test_a_table_ends_with_an_empty_line() -> None:
    assert by_report(as_csv(KERNELS) + "\nthat was slow, was it not?\n")["kernels"].torn == 0
    assert by_report(as_csv(KERNELS) + "that was slow, was it not?\n")["kernels"].torn == 1


def test_the_title_nearest_before_an_array_counts() -> None:
    row = '[\n {"Total Time (ns)": 500, "Instances": 5, "Name": "x"}]\n'
    found = by_report(f"cuda_gpu_kern_sum\n{row}osrt_sum\n{row}cuda_api_sum nvtx osrtsum\n{row}")
    assert set(found) == {"kernels", "host_calls"}


def test_rows_of_an_array_that_are_torn_are_counted() -> None:
    rows = '{"Total Time (ns)": 500, "Instances": 5, "Name": "x"}, {"Instances": "many", "Name": "y"}'
    (table,) = read_tables(f"[{rows}]")
    assert (len(table.rows), table.torn) == (1, 1)


def test_the_median_of_an_even_number_of_rows_lies_between_the_middle_two() -> None:
    rows = "".join(f"{i},{t},k\n" for i, t in enumerate((70, 10, 20, 40)))
    (row,) = by_report(f"Start (ns),Duration (ns),Name\n{rows}")["kernels"].rows
    assert (row.values["median"], row.values["average"], row.values["count"]) == (30, 35, 4)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"", False),
        (b" \n", False),
        (b"a\0b", False),
        (b"a\xffb", False),
        ("gro\u00df".encode()[:-1], True),  # the last character is cut
        ("\ufeffa".encode("utf-16-le"), True),
    ],
)
def test_what_begins_like_text(head: bytes, text: bool) -> None:
    assert is_text(head) is text


def test_a_name_with_spaces_may_stand_first() -> None:
    header = header_of("Name  Total Time (ns)  Instances")
    assert header is not None
    assert spaced("my kernel 5 7", header.columns) == ["my kernel", "5", "7"]
    assert spaced("5 7", header.columns) is None


def test_tables_of_2020_without_median() -> None:
    found = by_report(as_old(KERNELS) + as_old(CALLS_))
    assert found["kernels"].rows[0].values["most"] == 90123
    assert "median" not in found["kernels"].rows[0].values
    assert found["calls"].rows[1].values["count"] == 12


def test_other_units_and_rows_that_were_cut_off() -> None:
    head = ("Time (%)", "Total Time (ms)", "Instances", "Avg (us)", "Kernel Name")
    rows = (
        (" 45.0%", "9.000", "1,000", "9.0", "gemm_kernel<...>"),
        ("5.0%", "1.000", "10", "100", "norm_kernel"),
    )
    found = by_report(as_columns(Printed("", head, rows)))["kernels"].rows
    assert [(r.name, r.values["total"]) for r in found] == [
        ("gemm_kernel<...>", 9e6),
        ("norm_kernel", 1e6),
        (REST, 10e6),
    ]
    assert found[0].values["average"] == 9000


def test_reports_that_join_or_split_others() -> None:
    spread = [f"{p}{n} (ns)" for p in "TAQK" for n in ("Avg", "Med", "Min", "Max", "StdDev")]
    launches = Printed(
        "cuda_kern_exec_sum",
        ("PID", "TID", "DevId", "Count", "QCount", *spread, "API Name", "Kernel Name"),
        (
            (8, 8, 0, 10, 9, *range(100, 120), "cudaLaunchKernel", "norm_kernel(int)"),
            (8, 8, 0, 1, 0, *range(100, 120), "cudaLaunchKernel", "once(int)"),
        ),
    )
    found = by_report(as_csv(launches))
    assert found["queue"].rows[0].values == {
        "count": 9, "total": 9 * 110, "average": 110, "median": 111, "least": 112, "most": 113,
        "deviation": 114,
    }  # fmt: skip
    assert [r.name for r in found["queue"].rows] == ["norm_kernel(int)"]
    assert [r.values["total"] for r in found["kernels"].rows] == [10 * 115, 115]
    joined = Printed(
        "cuda_api_gpu_sum",
        ("Time (%)", "Total Time (ns)", "Instances", "Category", "Operation"),
        (
            (60.0, 600, 2, "CUDA_KERNEL", "norm_kernel"),
            (30.0, 300, 3, "CUDA_API", "cudaLaunchKernel"),
            (10.0, 100, 1, "MEMORY_OPER", "[CUDA memset]"),
        ),
    )
    found = by_report(as_columns(joined))
    assert {k: t.rows[0].values["total"] for k, t in found.items()} == {
        "kernels": 600,
        "calls": 300,
        "copies": 100,
    }
    # A report of its own counts before parts of others.
    assert by_report(as_csv(joined) + as_csv(KERNELS))["kernels"].rows[0].name == GEMM
    trace = Printed(
        "cuda_gpu_trace",
        ("Start (ns)", "Duration (ns)", "CorrId", "GrdX", "Bytes (MB)", "Name"),
        (
            (0, 10, 1, 8, "", "norm_kernel"),
            (50, 30, 2, 8, "", "norm_kernel"),
            (90, 5, 3, "", 2.0, "[CUDA memset]"),
        ),
    )
    found = by_report(as_csv(trace))
    assert found["kernels"].rows[0].values == {
        "count": 2, "total": 40, "average": 20, "median": 20, "least": 10, "most": 30
    }  # fmt: skip
    assert found["sizes"].rows[0].values["total"] == 2e6


def test_kernels_by_range_count_once() -> None:
    """A kernel is in its range and in the ranges around that one."""
    head = ("NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst", "Total Time (ns)", "Kernel Name")
    rows = (
        ("iteration 1", "PushPop", 8, 8, 1, 5, 500, "norm_kernel"),
        ("iteration 2", "PushPop", 8, 8, 1, 6, 600, "norm_kernel"),
        ("attention", "PushPop", 8, 8, 1, 6, 300, "norm_kernel"),
    )
    found = by_report(as_csv(Printed("nvtx_kern_sum", head, rows)))["kernels"]
    assert sum(r.values["count"] for r in found.rows) == 11


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234,567", 1234567), ("48,225", 48225), ("45.2%", 45.2), ("60,7", 60.7), ("1.234.567,5", 1234567.5),
     ("3.5 ms", 3.5e6), ("2e3", 2000), ("12", 12)],
)  # fmt: skip
def test_numbers(text: str, value: float) -> None:
    assert number(text) == value
    with pytest.raises(ValueError, match="apples"):
        number(f"{text} apples")
    assert math.isnan(number("-"))


#: name of the file, its content: nothing in it can be read as sums
MALFORMED = {
    "prose": "Our GPU is slow, what should we do?",
    "headings alone": as_csv(KERNELS).split("\n")[1],
    "titles alone": "Processing [t.sqlite] with [cuda_gpu_kern_sum.py]...\n ** CUDA GPU Kernel Summary:\n",
    "skipped": "SKIPPED: /tmp/t.sqlite does not contain CUDA kernel data.\n",
    "rows without headings": "\n".join(as_csv(KERNELS).split("\n")[2:]),
    "another table": "a,b,c\n1,2,3\n",
    "other headings": "Total,Average,Colour\n1,2,red\n",
    "words for numbers": "Time (%),Total Time (ns),Instances,Name\nmuch,more,many,gemm\n",
    "torn in the first row": as_csv(KERNELS)[:150],
    "names missing": "Time (%),Total Time (ns),Instances,Name\n1,2,3,\n",
    "columns missing": "Time (%),Total Time (ns),Instances,Name\n1,gemm\n",
    "an empty array": "[]",
    "objects of another kind": '[{"a": 1}, {"b": 2}]',
    "JSON cut short": '[\n {"Time (%)": 1.0, "Total Time (ns)": 5, "Instances": 2, "Name": "x"},\n {"Ti',
    "JSON of words": '[{"Time (%)": "a", "Total Time (ns)": "b", "Instances": "c", "Name": "d"}]',
    "a box without rows": as_columns(KERNELS).split("\n")[3] + "\n+---+---+",
    "an error of nsys": "ERROR: /tmp/t.nsys-rep: Failed to open file.",
    "a quote that never ends": 'Time (%),Total Time (ns),Instances,Name\n1,2,"3,gemm\n',
    "only separators": "|---|---|\n|---|---|\n",
    "nvprof": "==123== Profiling result:\n Type  Time(%)  Time  Calls  Avg  Min  Max  Name\n",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_holds_no_sums_says_so_in_one_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text(MALFORMED[what])
    with pytest.raises(InputError) as raised:
        open_trace(path)
    said = str(raised.value)
    assert "\n" not in said
    assert "pasted.txt: " in said
    assert len(said) < 250


@pytest.mark.parametrize("what", MALFORMED)
def test_beside_a_good_file_it_is_one_line_too(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "kern.csv", tmp_path / "bad.txt"
    good.write_text(as_csv(KERNELS))
    bad.write_text(MALFORMED[what])
    assert main(["diagnose", str(good), str(bad), "--together"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "bad.txt" in line


def test_files_without_a_report_in_common_are_one_recording(tmp_path: Path) -> None:
    files = [
        tmp_path / name for name in ("stats_cuda_gpu_kern_sum.csv", "stats_cuda_api_sum.csv", "again.csv")
    ]
    for path, one in zip(files, (KERNELS, CALLS_, KERNELS), strict=True):
        path.write_text(as_csv(one))
    (joined,) = expand(files[:2])
    with open_trace(joined) as trace:
        assert trace.capture.path.endswith("kern_sum.csv + stats_cuda_api_sum.csv")
        assert sorted(set(trace.columns("sums", ("report",))["report"].tolist())) == [0, 1]
    assert expand(files) == files  # kernels of two recordings
    with pytest.raises(InputError, match=r"again\.csv both have sums of kernels"):
        expand(files, together=True)


@pytest.mark.parametrize("cells", ["1.0,5000,12", "1.0,-5,1,-5,-5,-5,-5,0,k", f"1.0,{1 << 63},1,1,1,1,1,0,k"])
def test_torn_and_impossible_lines_are_counted(cells: str, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    path.write_text(as_csv(KERNELS).rstrip("\n") + f"\n{cells}\n")
    with open_trace(path) as trace:
        (row,) = trace.ledger.rows()
        assert row.what == "lines inside the tables that could not be read or are impossible"
        assert (row.count, row.rows) == (1, 3)
        assert trace.columns("sums", ("count", "total"))["count"].tolist() == [256, 256]
        assert (trace.capture.format, trace.capture.producer_version) == ("nsys-stats", "2023.2.3")


def test_a_table_far_down_in_a_text_of_any_coding(tmp_path: Path) -> None:
    text = "NVIDIA Nsight Systems told us this.\n" * 200 + pasted(ALL, "columns")
    path = tmp_path / "notes.md"
    for data in (
        text.encode(),
        text.encode("utf-16"),
        gzip.compress(text.encode()),
        lzma.compress(text.encode()),
    ):
        path.write_bytes(data)
        with open_trace(path) as trace:
            assert trace.rows("sums") == 7


def test_standard_input_may_hold_any_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(as_csv(KERNELS).encode())

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Piped())
    hold_pipes(["-"])
    files = expand([Path("-")])
    for _ in range(2):  # it is opened more than once
        with open_trace(files[0]) as trace:
            assert trace.capture.path == "-"
            assert trace.rows("sums") == 2


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no /dev/fd on this machine")
def test_a_pipe_with_a_path() -> None:
    """As `/dev/stdin` is, and what a shell makes of `<(zcat report.csv.gz)`."""
    reader, writer = os.pipe()
    os.write(writer, as_csv(KERNELS).encode())
    os.close(writer)
    hold_pipes([f"/dev/fd/{reader}"])
    files = expand([Path(f"/dev/fd/{reader}")])
    os.close(reader)
    for _ in range(2):
        with open_trace(files[0]) as trace:
            assert trace.rows("sums") == 2


def test_a_torn_line_right_below_its_headings_is_counted() -> None:
    head, row = "Time (%),Total Time (ns),Instances,Avg (ns),Name", '50.0,1000,2,500.0,"gemm"'
    (table,) = read_tables(f"{head}\n12.0,3\n{row}\n")
    assert (table.rows[0].name, table.torn) == ("gemm", 1)


@pytest.mark.parametrize("report", ["gpukernsum", "cuda_gpu_kern_sum", "CUDA GPU Kernel Summary"])
def test_a_report_is_known_by_the_name_that_its_release_prints(report: str) -> None:
    head, row = "Time (%),Total Time (ns),Instances,Avg (ns),Name", '50.0,1000,2,500.0,"my_function"'
    (table,) = read_tables(f"Processing [t.sqlite] with [{report}]...\n\n{head}\n{row}\n")
    assert (table.report, table.kind) == ("kernels", "kernels")


def test_copies_without_a_size_have_no_table_of_sizes() -> None:
    text = (
        "Start (ns),Duration (ns),Bytes (MB),Name\n"
        '10,5,,"[CUDA memcpy Host-to-Device]"\n20,7,1.5,"[CUDA memcpy Device-to-Host]"\n30,9,,"gemm"\n'
    )
    found = by_report(text)
    assert {name: [r.name for r in table.rows] for name, table in found.items()} == {
        "copies": ["[CUDA memcpy Host-to-Device]", "[CUDA memcpy Device-to-Host]"],
        "sizes": ["[CUDA memcpy Device-to-Host]"],
        "kernels": ["gemm"],
    }
