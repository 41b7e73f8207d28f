"""`advisor stats`: tables in the width of the terminal, CSV with the headings of `nsys stats`, pages."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.cells import cell_len

from advisor.model import numbers as figures
from advisor.model.kernel_labels import kernel_label
from advisor.model.records import Frozen
from advisor.model.stats_table import StatsTable, rounded, unit_of
from advisor.reports import budget_bar
from advisor.reports.blocks import Block, Grid, Heading, Heat, Paragraph, Report, Title
from advisor.reports.layout import Page, cut_middle, pad
from advisor.reports.output_file import clean
from advisor.reports.text import heat

#: Rows (kernels of a histogram) that text shows by default.
ROWS = {"histogram": 8, "tail": 15}
OTHER_ROWS = 40
#: Numbers that name something; they get no thousands separators.
IDS = frozenset(("PID", "TID", "DevId", "CorrId", "Device", "Ctx", "Strm"))
#: Columns that are shown only if their cells differ.
VARYING = IDS | {"Style", "Kind"}
#: The last column holds the names and gets at least this many cells, other text columns `TEXT`.
NAME, TEXT = 30, 18
#: Cells between columns, and of the longest bar; number of columns without room that are named.
GAP, BAR, NAMED = 2, 30, 6
#: Times that are compared with each other, in the unit that suits their average or median.
SPREAD = re.compile("([TAQK]?)(Avg|Med|Min|Max|StdDev|P\\d\\d)")
#: Columns of this rank are for programs.
DATA_ONLY = 6
#: How a number is written, by its unit.
FORMS: dict[str, Callable[[float], str]] = {
    "%": figures.digits,
    "MB": lambda v: figures.value_text(round(v * 1e6), "bytes"),
    "B": lambda v: figures.value_text(v, "bytes"),
    "MB/s": lambda v: figures.value_text(v * 1e6, "bytes_per_s"),
    "x": figures.times,
}
#: Columns of the tail report -> what a slow call coincides with, in words.
WITH = {
    "Sync": "a synchronize call",
    "Alloc": "an allocation or free call",
    "Copy": "a copy",
    "Other Stream": "another stream's kernel",
    "First Iteration": "the first iteration",
}
#: Slow calls have something in common if it holds for this share of them, and this many times as often as
#: for all calls.
COMMON, MORE = 50.0, 1.5


def render(page: Page, table: StatsTable, timeunit: str | None = None, limit: int | None = None) -> None:
    """One report. `timeunit`: one of `TIME_UNITS` for all times, else each column has the unit
    that suits it. `limit`: rows, 0 for all, None for the usual number."""
    kind = table.report.partition(":")[0]
    page.heading(table.title, table.report)
    page.wrapped(table.scope, style="dim")
    if table.report == "budget":
        table = replace(table, frame=table.frame[table.frame["Time (ns)"] > 0])
    count = ROWS.get(kind, OTHER_ROWS) if limit is None else limit
    shown = table.head(count or None)
    if len(shown):
        page.blank()
        if kind == "heatmap":
            heat(page, _heat(shown.frame))
        else:
            (_histogram if table.group else _table)(page, shown, timeunit)
    if table.note:
        page.wrapped(table.note)
    if more := table.items - shown.items:
        what = {"histogram": "kernels", "heatmap": "lanes"}.get(kind, "rows")
        page.wrapped(f"{page.glyphs.ellipsis} {more:,} more {what}: --limit 0 shows all", style="dim")


def _table(page: Page, table: StatsTable, timeunit: str | None) -> None:
    frame = table.frame

    def informative(name: str, rank: int) -> bool:
        """Whether a column has cells, and tells rows apart if it is an id."""
        if rank and name in VARYING:
            return frame[name].nunique(dropna=False) > 1
        return bool((frame[name].notna() & (frame[name] != "")).any())

    known = zip(map(str, frame), table.ranks, strict=True)
    ranks = {name: rank for name, rank in known if rank < DATA_ONLY and informative(name, rank)}
    shown = _columns(frame[list(ranks)], timeunit)
    need = []  # all of a number, the beginning and end of a name
    for i, (head, cells, number) in enumerate(shown, 1):
        widest, most = max(map(cell_len, cells)), NAME if i == len(shown) else TEXT
        wide = max(min(widest, most), min(cell_len(head), TEXT))
        need.append(max(widest, cell_len(head)) if number else wide)
    kept = fitting(need, list(ranks.values()), page.width)
    page.table([shown[i][0] for i in kept], [shown[i][1:] for i in kept], indent=0)
    if table.report == "tail":
        rows = page.lines[-len(frame) :]
        del page.lines[-len(frame) :]
        for row, note in zip(rows, _tail_notes(frame), strict=True):
            page.lines.append(row)
            page.wrapped(note, ["    "], 4, "dim")
    if left_out := [name for i, name in enumerate(ranks) if i not in kept]:
        heads = [name.partition(" (")[0] for name in sorted(left_out, key=lambda name: ranks[name])]
        page.wrapped(f"no room for {figures.first_few(heads, NAMED)}: --format csv has all", style="dim")


def fitting(need: Sequence[int], ranks: Sequence[int], width: int) -> list[int]:
    """Positions of the columns that fit, those of low rank first; rank 0 is always in."""
    kept = [i for i, rank in enumerate(ranks) if rank == 0]
    used = sum(need[i] + GAP for i in kept) - GAP
    for i in sorted(range(len(ranks)), key=lambda i: (ranks[i], i)):
        if ranks[i] and used + GAP + need[i] <= width:
            kept.append(i)
            used += GAP + need[i]
    return sorted(kept)


def _columns(frame: pd.DataFrame, timeunit: str | None) -> list[tuple[str, list[str], bool]]:
    """Head, cells and whether they are numbers, of each column."""
    units: dict[str, str] = {}
    for heading in map(str, frame):
        hit = SPREAD.match(heading)
        if hit and hit[2] in ("Avg", "P50") and unit_of(heading) == "ns" and frame[heading].notna().any():
            units[hit[1]] = figures.column("x:ns", frame[heading].dropna().tolist())[0].split()[-1]
    out = []
    for heading in map(str, frame):
        name, values = heading.partition(" (")[0], frame[heading]
        if not pd.api.types.is_numeric_dtype(values):
            words = budget_bar.words if name == "Part" else kernel_label
            out.append((name, [words(v) for v in values], False))
            continue
        head, known = _numbers(values.dropna(), timeunit, units)
        cells = pd.Series(known, values.dropna().index, dtype=object).reindex(values.index, fill_value="")
        out.append((head, cells.tolist(), True))
    return out


def _numbers(values: pd.Series, timeunit: str | None, units: dict[str, str]) -> tuple[str, list[str]]:
    """Head and cells of a column of numbers; `units` are those of spreads of time."""
    heading = str(values.name)
    name, unit = heading.partition(" (")[0].replace("Total Time", "Total"), unit_of(heading)
    hit = SPREAD.fullmatch(name)
    if unit == "ns" and timeunit is not None:
        heading, exact, places = scaled(values, timeunit)
        sign = unit_of(heading)
        places = min(places, 6 if sign == "s" else 3)
        return f"{name} {sign}", [f"{v:,.{places}f}" for v in exact]
    if unit == "ns" and hit and hit[1] in units:
        size = figures.IN_NS[units[hit[1]]]
        return f"{name} {units[hit[1]]}", [figures.aligned(v / size) for v in values]
    if unit == "ns" and name == "Start":
        return name, [figures.session_time(v) for v in values]
    if unit == "ns":
        return figures.column(f"{name}:ns", values.tolist())[:2]
    form = FORMS.get(unit, str if name in IDS else figures.digits)
    return f"{name} %" if unit == "%" else name, [form(v) for v in values]


def _tail_notes(frame: pd.DataFrame) -> list[str]:
    """Lines below each row of the tail report: the launch shape and what slow calls have in common."""
    out = []
    for row in frame.to_dict("records"):
        shape = f"grid {row['Grid']}, block {row['Block']}"
        if row["Places"] > 1:
            shape += f", place {row['Place']} of {row['Places']}"
        if row["Flag"]:
            shape = f"{row['Flag']} tail: {shape}"
        if row["Slow"]:
            shares = ((words, row[f"{n} (%)"], row[f"{n} of All (%)"]) for n, words in WITH.items())
            found = [
                f"{words} {figures.digits(mine)} % (all calls {figures.digits(of_all)} %)"
                for words, mine, of_all in shares
                if mine >= COMMON and mine >= MORE * of_all
            ]
            common = f"with {', '.join(found)}" if found else "nothing recorded coincides"
            alone = f"{figures.digits(row['Alone (%)'])} % of that time alone on the GPU"
            shape += f"; {row['Slow']:,} slow, {alone}, {common}"
        out.append(shape)
    return out


def _heat(frame: pd.DataFrame) -> Heat:
    """The lanes of a heat map."""
    lanes = []
    for name, part in frame.groupby("Lane", sort=False):
        share = (part["Busy (%)"] / 100.0).clip(0, 1)
        mean = 100.0 * share.mean() if share.notna().any() else 0.0
        shares = tuple(None if math.isnan(v) else v for v in share.tolist())
        lanes.append((str(name), FORMS["%"](float(mean)), shares))
    begin, end = frame["Start (ns)"].min(), frame["End (ns)"].max()
    return Heat(tuple(lanes), figures.session_time(begin), figures.session_time(end))


def _histogram(page: Page, table: StatsTable, timeunit: str | None) -> None:
    """Bars by kernel, as long as the count of the bin, at least one sign: a tail of single calls is seen."""
    for i, (name, part) in enumerate(table.frame.groupby("Name", sort=False)):
        if i:
            page.blank()
        total = f"  {part['Count'].sum():,} calls"
        shown = cut_middle(kernel_label(str(name)), page.width - len(total), page.glyphs.ellipsis)
        page.line((shown, "bold"), (total, "dim"))
        edges = pd.Series(np.append(part["Low (ns)"], part["High (ns)"].iloc[-1]), name=" (ns)")
        head, texts = _numbers(edges, timeunit, {})
        wide = max(map(len, texts))
        room = min(BAR, page.width - 2 * wide - 30)
        for low, high, n, share in zip(texts, texts[1:], part["Count"], part["Share (%)"], strict=False):
            length = max(round(n * room / part["Count"].max()), 1) if n else 0
            text = f"  {pad(low, wide, True)} - {pad(high, wide, True)} {head.strip()}  {n:>9,}"
            bar = (page.glyphs.bar * length, "green")
            page.line(f"{text}  {FORMS['%'](share):>5} %  ", bar)


SCHEMA_VERSION = 1
#: --timeunit -> its sign and how many ns it holds, as a power of ten.
TIME_UNITS = {"nsec": ("ns", 0), "usec": ("us", 3), "msec": ("ms", 6), "sec": ("s", 9)}
#: Decimals of a number with a fraction, by its unit.
DECIMALS = {"ns": 1, "%": 1, "MB": 3, "MB/s": 3, "x": 2}


def scaled(values: pd.Series, timeunit: str = "nsec") -> tuple[str, pd.Series, int]:
    """Heading, numbers and their decimals. Whole ns stay whole; in a larger unit a time keeps all digits."""
    heading, unit = str(values.name), unit_of(str(values.name))
    places = DECIMALS.get(unit, 0) if pd.api.types.is_float_dtype(values) else 0
    if places:
        exact = rounded(values.to_numpy(float, na_value=float("nan")), places)
        values = pd.Series(exact, values.index)
    if unit != "ns" or timeunit == "nsec":
        return heading, values, places
    sign, power = TIME_UNITS[timeunit]
    return heading.replace("(ns)", f"({sign})"), values / 10.0**power, places + power


def _inert(cell: object) -> object:
    """The cell on one line, marked as text if a spreadsheet (also a Japanese or Chinese one) would run it."""
    if not isinstance(cell, str):
        return cell
    return f"'{shown}" if (shown := clean(cell)).lstrip().startswith(tuple("=+-@＝＋－＠")) else shown


def csv_text(tables: Sequence[StatsTable], timeunit: str = "nsec", raw: bool = False) -> str:
    """One bare table; several are separated by an empty line and a line that begins with #. `raw`
    keeps texts as they are, also those that spreadsheets would run as formulas."""
    parts = []
    for table in tables:
        shown = {}
        for name in table.frame:
            heading, values, places = scaled(table.frame[name], timeunit)
            form = f"{{:.{places}f}}".format
            if not (raw or pd.api.types.is_numeric_dtype(values)):
                values = values.map(_inert, na_action="ignore")
            shown[heading] = values.map(form, na_action="ignore") if places else values
        note = f"; {table.note}" if table.note else ""
        head = f"# {table.report}: {table.scope}{note}\n" if len(tables) > 1 else ""
        # By default the writer does not quote a bare carriage return, at which readers end the row.
        returns = raw and any("\r" in str(cell) for cells in shown.values() for cell in cells)
        quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
        parts.append(head + pd.DataFrame(shown).to_csv(index=False, lineterminator="\n", quoting=quoting))
    return "\n".join(parts)


class Tables(Frozen, frozen=True, kw_only=True):
    """The document of `advisor stats`; the keys of a row are the headings of the CSV."""

    schema_version: int = SCHEMA_VERSION
    input: str
    reports: tuple[dict[str, Any], ...]


def report(path: str, tables: Sequence[StatsTable], timeunit: str = "nsec") -> Report:
    """The report of the tables for every format but text and CSV, which have layouts of their own."""
    reports = []
    for table in tables:
        shown = {}
        for name in table.frame:
            heading, values, places = scaled(table.frame[name], timeunit)
            if unit_of(heading) == "MB":  # to the byte: three decimals would hide small copies
                values, places = table.frame[name], 9
            values = values.round(places) if places else values
            shown[heading] = values.astype(object).where(values.notna(), None)
        about = {"report": table.report, "title": table.title, "scope": table.scope, "note": table.note}
        reports.append(about | {"rows": pd.DataFrame(shown).to_dict("records")})
    document = Tables(input=path, reports=tuple(reports))
    maps = {t.report: _heat(t.frame) for t in tables if t.report == "heatmap" and len(t)}
    return Report((document,), lambda _: _blocks(document, maps), "Tables of a capture")


def _blocks(document: Tables, maps: Mapping[str, Heat]) -> Iterator[Block]:
    yield Title(document.input)
    for table in document.reports:
        yield Heading(table["title"], table["report"])
        yield Paragraph("; ".join(t for t in (table["scope"], table["note"]) if t))
        rows = table["rows"]
        if table["report"] in maps:
            yield maps[table["report"]]
        elif rows and table["report"] == "modules":
            heads = ("module", "GPU ops", "self:ns", "total:ns", "share:ratio")
            unit = next(unit_of(name) for name in rows[0] if name.startswith("Self"))
            cells = []
            for row in rows:
                times = (row[f"{name} ({unit})"] * figures.IN_NS[unit] for name in ("Self", "Total"))
                cells.append((row["Module"], row["GPU Ops"], *times, row["Total (%)"] / 100))
            yield Grid(heads, tuple(cells), levels=tuple(row["Level"] for row in rows))
        elif rows:
            yield Grid(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))
