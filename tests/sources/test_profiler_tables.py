"""Printed tables of the PyTorch profiler: every layout reads alike, GPU time counts once, and malformed
pastes give an answer with their rows counted, or one clear line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.metrics.loaded.kernels import Sums, sums_of
from advisor.sources.open import open_trace
from advisor.sources.pasted.profiler_tables import layout_of, read_profiler_tables
from advisor.sources.pasted.raw_tables import REST
from advisor.sources.schema import BETWEEN_EVENTS, BY_OPERATOR, GPU_TOTAL, HOST_TOTAL, Summed
from advisor.sources.trace import Trace
from tests.pasted import wrapped
from tests.profiler_tables import (
    FORMS,
    Sum,
    as_csv,
    as_frame,
    as_html,
    call,
    kernel,
    of_range,
    old_table,
    operator,
    span,
    table,
)

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64>(Params)"
ROWS = [
    of_range("ProfilerStep*", 3, 2_000.0, own_us=100.0),
    span("ProfilerStep*", 3, 1_900.0),
    operator("aten::addmm", 30, 20.0, inside=6.0, device=1_500.0),
    operator("aten::linear", 30, 4.0, inside=30.0),
    operator("aten::item", 3, 2.0, inside=400.0),
    operator("aten::_local_scalar_dense", 3, 5.0, inside=390.0, device=6.0),
    call("cudaLaunchKernel", 30, 6.0),
    call("cudaStreamSynchronize", 3, 390.0),
    kernel(GEMM, 30, 50.0),
    kernel("Memcpy DtoH (Device -> Pageable)", 3, 2.0),
]
OPTIONS = {
    "plain": {},
    "memory": {"memory": True},
    "shapes": {"shapes": True},
    "stack": {"stack": True},
    "flops": {"flops": True},
    "all": {"memory": True, "shapes": True, "stack": True, "flops": True},
    "overload": {"overload": True},
    "ms": {"unit": "ms"},
    "us": {"unit": "us"},
    "device": {"backend": "Device"},
    "xpu": {"backend": "XPU"},
    "hip": {"backend": "HIP"},
    "short": {"width": 40},
}


def opened(folder: Path, text: str) -> Trace:
    path = folder / "table.txt"
    path.write_text(text)
    return open_trace(path)


def rows_of(trace: Trace, report: Summed) -> dict[str, tuple[int, float]]:
    """Count and total in us by name."""
    found: Sums = sums_of(trace, report)
    return {
        n: (int(c), round(t / 1e3, 1)) for n, c, t in zip(found.names, found.count, found.total, strict=True)
    }


def kernels(trace: Trace) -> list[tuple[str, tuple[int, float]]]:
    """The beginning of each name, count and total in us."""
    return [(name.split("<")[0], v) for name, v in rows_of(trace, Summed.KERNELS).items()]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_layout_reads_alike(
    tmp_path: Path, form: Callable[..., str], options: dict[str, object]
) -> None:
    with opened(tmp_path, form(ROWS, **options)) as trace:
        assert trace.capture.format == "pytorch-table"
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]
        assert rows_of(trace, Summed.COPIES) == {"[CUDA memcpy DtoH]": (3, 6.0)}
        assert rows_of(trace, Summed.CALLS) == {
            "cudaLaunchKernel": (30, 180.0),
            "cudaStreamSynchronize": (3, 1170.0),
        }
        assert rows_of(trace, Summed.RANGES) == {"ProfilerStep*": (3, 6000.0)}
        assert rows_of(trace, Summed.OPERATORS)["aten::addmm"] == (30, 600.0)
        assert rows_of(trace, Summed.WHOLE)["aten::addmm"] == (30, 780.0)
        totals = rows_of(trace, Summed.TOTALS)
        assert totals[HOST_TOTAL][1] == pytest.approx(2391.0, abs=1)
        assert totals[GPU_TOTAL][1] == pytest.approx(1506.0, abs=1)
        assert not list(trace.ledger.rows())


@pytest.mark.parametrize("form", [as_csv, as_frame])
@pytest.mark.parametrize("old", [False, True])
def test_an_export_by_pandas_reads_alike(tmp_path: Path, old: bool, form: Callable[..., str]) -> None:
    with opened(tmp_path, form(ROWS, old=old)) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]
        assert rows_of(trace, Summed.CALLS)["cudaLaunchKernel"] == (30, 180.0)


@pytest.mark.parametrize("strip", [False, True], ids=["as shown", "stripped"])
@pytest.mark.parametrize("width", [80, 100, 120, 132, 200])
@pytest.mark.parametrize("options", ["plain", "memory", "ms"])
def test_lines_that_a_terminal_wrapped(tmp_path: Path, options: str, width: int, strip: bool) -> None:
    text = wrapped(table(ROWS, **OPTIONS[options]), width, strip)
    with opened(tmp_path, "$ python profile.py\n" + text) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]
        assert rows_of(trace, Summed.COPIES) == {"[CUDA memcpy DtoH]": (3, 6.0)}
        assert rows_of(trace, Summed.OPERATORS)["aten::addmm"] == (30, 600.0)
        assert not list(trace.ledger.rows())


def test_a_piece_of_a_wrapped_row_that_is_lost_costs_what_stands_behind_it(tmp_path: Path) -> None:
    lines = wrapped(table(ROWS), 120, False).splitlines()
    del lines[12]
    with opened(tmp_path, "\n".join(lines)) as trace:
        assert sum(row.count for row in trace.ledger.rows() if row.kind == "dropped") > 0
        assert len(sums_of(trace, Summed.OPERATORS)) > 1


@pytest.mark.parametrize("broken", ["<![foo[", "<!ELEMENT >", "<table", "</td></tr>", "<!-- open"])
def test_markup_that_is_broken_behind_a_table_costs_nothing(tmp_path: Path, broken: str) -> None:
    with opened(tmp_path, as_html(ROWS) + broken) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]


def test_headings_of_torch_1_5() -> None:
    line = (
        "Name  Self CPU total %  Self CPU total  CPU total %  CPU total  CPU time avg  CUDA total %  "
        "CUDA total  CUDA time avg  Number of Calls"
    )
    layout = layout_of(line)
    assert layout is not None
    assert layout.fields[1:6] == ("percent", "self_host", "percent", "host", "average")


@pytest.mark.parametrize("closing", [True, False])
def test_tables_of_torch_1_4_count_the_operators_that_work_themselves(tmp_path: Path, closing: bool) -> None:
    rows = [
        operator("aten::matmul", 100, 10.0, inside=60.0, device=8_700.0),
        operator("aten::mm", 100, 57.0, inside=1.0, device=8_690.0),
        operator("aten::add", 100, 20.0, device=900.0),
    ]
    with opened(tmp_path, old_table(rows, closing=closing)) as trace:
        assert rows_of(trace, Summed.KERNELS) == {"aten::mm": (100, 8_690.0), "aten::add": (100, 900.0)}
        totals = rows_of(trace, Summed.TOTALS)
        assert GPU_TOTAL not in totals  # that of the table counts aten::mm twice
        assert totals[BETWEEN_EVENTS] == (1, 9_590.0)
        assert trace.capture.cuda_traced
        said = " ".join(trace.capture.warnings)
        assert "torch 1.4 to 1.6" in said
        assert ("18.3 ms in all" in said) == closing


OVERHEAD = ["Command Buffer Full", "Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource"]


@pytest.mark.parametrize("name", OVERHEAD)
def test_what_the_recording_costs_is_neither_kernel_nor_operator(tmp_path: Path, name: str) -> None:
    """CUPTI reports it beside the work; the table shows the time of kernels for it that it held up."""
    for row in (kernel(name, 4, 200.0), Sum(name, 4, 80.0, 80.0, 900.0, 900.0)):
        with opened(tmp_path, table([*ROWS, row], closing=False)) as trace:
            assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]
            assert name not in rows_of(trace, Summed.RANGES)
        with opened(tmp_path, table([r for r in ROWS if not r.gpu] + [row], closing=False)) as trace:
            assert name not in rows_of(trace, Summed.KERNELS)


@pytest.mark.parametrize("limit", [3, 5, 8])
def test_rows_that_were_cut_off_follow_from_the_totals(tmp_path: Path, limit: int) -> None:
    text = table(ROWS, limit=limit, order=lambda r: r.device)
    with opened(tmp_path, text) as trace:
        of_gpu = rows_of(trace, Summed.KERNELS) | rows_of(trace, Summed.COPIES)
        assert sum(t for _, t in of_gpu.values()) == pytest.approx(1506.0, abs=8)
        assert sum(t for _, t in rows_of(trace, Summed.OPERATORS).values()) == pytest.approx(2391.0, abs=25)


def test_operators_stand_for_kernels_that_are_not_listed(tmp_path: Path) -> None:
    with opened(tmp_path, table([r for r in ROWS if not r.gpu], closing=False)) as trace:
        assert rows_of(trace, Summed.KERNELS)["aten::addmm"] == (30, 1500.0)
        assert rows_of(trace, Summed.TOTALS)[BY_OPERATOR] == (1, 1506.0)
    with opened(tmp_path, table(ROWS)) as trace:
        assert BY_OPERATOR not in rows_of(trace, Summed.TOTALS)


def test_a_launch_call_may_show_the_time_of_its_kernels(tmp_path: Path) -> None:
    doubled = [
        Sum(r.name, r.count, r.self_host, r.host, 1500.0, 1500.0) if r.name == "cudaLaunchKernel" else r
        for r in ROWS
    ]
    with opened(tmp_path, table(doubled)) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]


def test_a_range_of_an_unknown_name_is_no_kernel(tmp_path: Path) -> None:
    """Where its row of the host was cut off, the total of the GPU tells."""
    with opened(tmp_path, table([*ROWS, span("my_block", 3, 480.0)])) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]


def test_tables_of_one_recording_count_once(tmp_path: Path) -> None:
    text = table(ROWS, order=lambda r: r.host) + "\n" + table(ROWS, order=lambda r: r.device, shapes=True)
    with opened(tmp_path, text) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]
        assert not trace.capture.warnings


def test_tables_of_other_recordings_are_left_out_and_named(tmp_path: Path) -> None:
    other = [kernel("other_gemm_kernel", 10, 5.0), operator("aten::mm", 10, 9.0, device=50.0)]
    with opened(tmp_path, table(ROWS) + "\nand compiled:\n" + table(other)) as trace:
        assert kernels(trace) == [("void cutlass::Kernel2", (30, 1500.0))]
        assert "1 more of the tables" in trace.capture.warnings[0]


def test_lines_of_two_processes_may_mix() -> None:
    one, two = table(ROWS).splitlines(), table(ROWS[2:]).splitlines()
    mixed = [
        f"(EngineCore_{k} pid=4{k}) {line}"
        for pair in zip(one, two, strict=False)
        for k, line in enumerate(pair)
    ]
    assert [len(t.rows) for t in read_profiler_tables("\n".join(mixed))] == [10, 8]


def test_groups_by_shape_are_rows_of_one_name(tmp_path: Path) -> None:
    parts = [operator("aten::mm", 10, 9.0, device=50.0), operator("aten::mm", 5, 9.0, device=25.0)]
    with opened(tmp_path, table(parts, shapes=True)) as trace:
        assert rows_of(trace, Summed.OPERATORS)["aten::mm"] == (15, 135.0)


def test_a_table_without_the_gpu_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, table([r for r in ROWS if not r.gpu], backend=None)) as trace:
        assert trace.capture.cuda_traced is False
        assert not len(sums_of(trace, Summed.KERNELS))


# --- malformed pastes: an answer with dropped rows counted, or one line ----------------------------

TEXT = table(ROWS)
LINES = TEXT.splitlines()
HEAD, BODY = LINES[1], LINES[3:13]


def _cut(text: str, at: int) -> str:
    return "\n".join(line[:at] for line in text.splitlines())


READABLE = {
    "no rules": ("\n".join(line for line in LINES if not line.startswith("---")), 0),
    "no closing lines": ("\n".join(LINES[:-2]), 0),
    "cut in the middle": ("\n".join(LINES[:8]), 0),
    "one line cut short": (TEXT.replace(BODY[2], BODY[2][:90]), 1),
    "two lines cut short": (TEXT.replace(BODY[2], BODY[2][:90]).replace(BODY[3], BODY[3][:80]), 2),
    "no unit": (TEXT.replace("1.500ms", "1.500"), 2),
    "a word in place of a count": (TEXT.replace(BODY[2].split()[-1] + "  \n", "many  \n", 1), 1),
    "an interrupted line": (TEXT.replace(BODY[4], BODY[4][:70] + "\n" + BODY[4][70:]), 2),
    "bars of progress": (TEXT.replace(BODY[1], "100%|####| 10/10 [00:01<00:00]\n" + BODY[1]), 1),
    "quoted": ("\n".join("> " + line for line in LINES), 0),
    "colours": ("\n".join("\x1b[32m" + line + "\x1b[0m" for line in LINES), 0),
    "Windows": (TEXT.replace("\n", "\r\n"), 0),
    "non-breaking spaces": (TEXT.replace("  ", "\u00a0 "), 0),
    "micro sign": (TEXT.replace("us ", "µs "), 0),
    "space before units": (TEXT.replace("ms ", " ms ").replace("0us ", "0 us "), 0),
    "tabs in place of spaces": (TEXT.replace("  ", "\t"), 0),
    "headings twice": (TEXT.replace(BODY[3], HEAD + "\n" + BODY[3]), 0),
    "text behind": (TEXT + "\nDoes anybody know what to do?\n", 0),
    "rank prefix": ("\n".join("[rank0]: " + line for line in LINES), 0),
    "time stamps": ("\n".join("2025-11-05 13:22:49,123 " + line for line in LINES), 0),
    "empty lines between": ("\n\n".join(LINES), 0),
    "negative times": (TEXT.replace("100.000us", "-100.000us"), 0),
    "a total that is no number": (TEXT.replace("Self CPU time total: ", "Self CPU time total: 4..5"), 0),
    "decimal commas": (TEXT.replace(".", ","), 0),
}


@pytest.mark.parametrize(("text", "torn"), READABLE.values(), ids=READABLE)
def test_a_malformed_paste_gives_what_can_be_read(tmp_path: Path, text: str, torn: int) -> None:
    with opened(tmp_path, text) as trace:
        assert len(sums_of(trace, Summed.OPERATORS)) > 1
        dropped = [row.count for row in trace.ledger.rows() if row.kind == "dropped"]
        assert sum(dropped) == torn


def test_a_total_below_zero_is_unknown(tmp_path: Path) -> None:
    below = TEXT.replace("Self CPU time total: ", "Self CPU time total: -")
    with opened(tmp_path, below) as trace:
        assert HOST_TOTAL not in rows_of(trace, Summed.TOTALS)
        assert GPU_TOTAL in rows_of(trace, Summed.TOTALS)
        assert [row.count for row in trace.ledger.rows() if row.kind == "repaired"] == [1]


UNREADABLE = {
    "headings alone": HEAD,
    "headings and rules": "\n".join(LINES[:3]),
    "rows without numbers": HEAD + "\naten::mm\naten::add\n",
    "names cut off the numbers": HEAD + "\n" + "\n".join(line[:40] for line in BODY),
    "every line cut": _cut(TEXT, 150).replace(_cut(HEAD, 150), HEAD),
    "counts of nothing": HEAD + "\n" + "\n".join(line.rstrip()[:-2] + " 0" for line in BODY),
    "impossible times": HEAD + "\n" + BODY[2].replace("us", "s").replace("600.000", "6" * 40),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_paste_without_a_row_says_so_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    assert "key_averages().table(" in message


def test_rest_is_named_as_in_tables_of_nsys(tmp_path: Path) -> None:
    with opened(tmp_path, table(ROWS, limit=3, order=lambda r: r.self_host)) as trace:
        assert REST in rows_of(trace, Summed.OPERATORS)
