"""Printed tables of nsys in other locales, of narrow terminals, and with numbers that are ambiguous."""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.sources.open import open_trace
from advisor.sources.pasted.locales import marked, read
from advisor.sources.pasted.printed_tables import read_tables
from advisor.sources.pasted.raw_tables import Table
from tests.pasted import (
    FORMATS,
    LOCALES,
    Printed,
    as_boxes,
    as_columns,
    as_csv,
    as_old,
    in_locale,
    pasted,
    wrapped,
)
from tests.scenarios.support import ranked
from tests.sources.test_pasted import ALL, CALLS_, GEMM, KERNELS

ORACLE = Path(__file__).parents[1] / "data" / "oracle"


def as_tables(text: str) -> dict[str, Table]:
    return {table.report: table for table in read_tables(text)}


def values(text: str) -> dict[str, dict[str, dict[str, float]]]:
    return {n: {r.name: r.values for r in t.rows} for n, t in as_tables(text).items()}


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "json"])
@pytest.mark.parametrize("separators", LOCALES.values(), ids=LOCALES)
def test_every_locale_reads_alike(separators: tuple[str, str], form: str) -> None:
    text = pasted([in_locale(p, *separators) for p in ALL], form)
    found = values(text)
    assert list(found) == list(values(pasted(ALL, form)))
    for report, rows in values(pasted(ALL, form)).items():
        for name, row in rows.items():
            near = next(v for n, v in found[report].items() if n.split()[-1] == name.split()[-1])
            assert near == pytest.approx(row), (report, name)
    assert all(t.torn == 0 and t.doubtful == 0 for t in as_tables(text).values())


@pytest.mark.parametrize("separators", LOCALES.values(), ids=LOCALES)
def test_tables_of_2020_in_every_locale(separators: tuple[str, str]) -> None:
    assert values(as_old(in_locale(KERNELS, *separators))) == values(as_old(KERNELS))


@pytest.mark.parametrize("strip", [False, True], ids=["as shown", "stripped"])
@pytest.mark.parametrize("width", [80, 100, 120, 132])
@pytest.mark.parametrize("form", [as_columns, as_boxes])
def test_lines_that_a_terminal_wrapped(form: Callable[[Printed], str], width: int, strip: bool) -> None:
    whole = form(KERNELS) + "\n" + form(CALLS_)
    found, wanted = values(wrapped(whole, width, strip)), values(whole)
    assert {k: list(v.values()) for k, v in found.items()} == {k: list(v.values()) for k, v in wanted.items()}


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("1,234", 1234, 1.234), ("1.234", 1.234, 1234), ("12,5", None, 12.5), ("12.5", 12.5, None),
        ("1.234.567", None, 1234567), ("1,234,567.8", 1234567.8, None), ("1'234'567.8", 1234567.8, None),
        ("1 234 567,8", None, 1234567.8), ("12,34,567", 1234567, None), ("1.5e3", 1500, 1500),
        ("45,2%", None, 45.2), ("1,5 ms", None, 1.5e6), ("1,23", None, 1.23), ("1 23", None, None),
    ],
)  # fmt: skip
def test_the_two_ways_to_read_a_number(text: str, point: float | None, comma: float | None) -> None:
    for way, value in enumerate((point, comma)):
        if value is None:
            with pytest.raises(ValueError, match=r"\d"):
                read(text, way)
        else:
            assert read(text, way) == pytest.approx(value)


def test_thin_spaces_are_no_ends_of_cells() -> None:
    assert marked("12\u202f345 7\u00a0890") == "12'345 7'890"
    assert marked("12\u00a03456") == "12\u00a03456"


def table_of(*rows: str) -> str:
    return "Time (%)\tTotal Time (ms)\tInstances\tAvg (ms)\tName\n" + "\n".join(rows) + "\n"


def test_columns_that_add_up_decide() -> None:
    """1,234 ms in all: 617 us twice, or 617 ms twice."""
    (row,) = as_tables(table_of("100\t1,234\t2\t0,617\tgemm"))["kernels"].rows
    assert row.values["total"] == pytest.approx(1.234e6)
    (row,) = as_tables(table_of("100\t1,234\t2\t617\tgemm"))["kernels"].rows
    assert row.values["total"] == pytest.approx(1234e6)


def test_what_nothing_decides_is_said(tmp_path: Path) -> None:
    path = tmp_path / "stats.txt"
    path.write_text(table_of("60\t1,236\t3\t412\tgemm").replace("Avg (ms)", "Med (ms)"))
    with open_trace(path) as trace:
        assert [r.count for r in trace.ledger.rows() if r.kind == "doubted"] == [1]


def _oracle(name: str) -> list[Printed]:
    found = []
    for path in sorted(ORACLE.glob(f"{name}.*.csv.xz")):
        report = path.name.split(".")[1]
        if report in ("cuda_kern_exec_sum", "nvtx_kern_sum"):
            continue
        head, *rows = csv.reader(io.StringIO(lzma.decompress(path.read_bytes()).decode()))

        def cell(text: str) -> object:
            try:
                return float(text) if "." in text else int(text)
            except ValueError:
                return text

        found.append(Printed(report, tuple(head), tuple(tuple(map(cell, row)) for row in rows)))
    return found


@pytest.mark.parametrize("separators", ["en_US", "de_DE", "fr_FR", "de_CH"])
def test_a_stored_capture_is_told_alike_in_four_locales(tmp_path: Path, separators: str) -> None:
    reports = _oracle("decode_eager_bs1")
    assert len(reports) >= 4
    plain, other = tmp_path / "plain.txt", tmp_path / "other.txt"
    plain.write_text(pasted(reports))
    other.write_text(pasted([in_locale(p, *LOCALES[separators]) for p in reports], "columns"))
    first, second = advisor.diagnose(plain), advisor.diagnose(other)
    assert ranked(first) == ranked(second)
    assert [f.share for f in first.findings] == pytest.approx([f.share for f in second.findings], rel=0.01)


def test_a_long_line_of_spaces_between_digits_is_read_in_bounded_time() -> None:
    text = as_columns(KERNELS, thousands=False).replace(GEMM, "x " + "123 " * 400)
    assert as_tables(text)["kernels"].rows
    assert as_csv(KERNELS)
