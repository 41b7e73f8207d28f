"""`advisor stats` for people: tables in the width of the terminal, histograms as bars."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from advisor.model.stats import Column, StatsTable
from advisor.reports import budget_bar
from advisor.reports import numbers as figures
from advisor.reports.layout import Page, cut_middle, name_text, pad
from advisor.reports.stats_data import TIME_UNITS, numbers

#: Rows (kernels of a histogram) that text shows unless told otherwise.
ROWS = {"histogram": 8, "tail": 15}
OTHER_ROWS = 40
#: Numbers that name something; they get no thousands separators.
IDS = frozenset(("PID", "TID", "DevId", "CorrId", "Device", "Ctx", "Strm"))
#: The last column holds the names and gets at least this many cells, other text columns `TEXT`.
NAME, TEXT = 30, 18
#: How many columns without room are named.
NAMED = 6
#: Times that are read against each other.
SPREAD = re.compile("([TAQK]?)(Avg|Med|Min|Max|StdDev|P\\d\\d)")
#: Columns of this rank are for programs.
DATA_ONLY = 6
#: Shorter heads, where a column's numbers are shorter than its name.
HEADS = {"Total Time": "Total"}
GAP = 2
BAR = 30

#: Columns of the tail report -> what a slow call coincides with, in words.
WITH = {
    "Sync": "a synchronize call", "Alloc": "an allocation or free call", "Copy": "a copy",
    "Other Stream": "another stream's kernel", "First Iteration": "the first iteration",
}  # fmt: skip
#: What slow calls have in common is told from this share of them on, where it is this many
#: times as frequent as among all calls.
TOLD, MORE = 50.0, 1.5


def render(page: Page, table: StatsTable, timeunit: str | None = None, limit: int | None = None) -> None:
    """One report. `timeunit`: one of `TIME_UNITS` for all times, else each column has the unit
    that suits it. `limit`: rows, 0 for all, None for the usual number."""
    page.heading(table.title, table.report)
    page.wrapped(table.scope, style="dim")
    whole = table if table.quiet is None else table.take(np.flatnonzero(~table.quiet))
    count = ROWS.get(table.report, OTHER_ROWS) if limit is None else limit
    shown = whole.head(count or None)
    if len(shown):
        page.blank()
        if table.report == "histogram":
            _histogram(page, shown, timeunit)
        else:
            _table(page, shown, timeunit)
    if table.note:
        page.wrapped(table.note)
    more = whole.items - shown.items
    if more:
        what = "kernels" if table.group is not None else "rows"
        page.wrapped(f"{page.glyphs.ellipsis} {more:,} more {what}: --limit 0 shows all", style="dim")


# ------------------------------------------------------------------ tables


def _table(page: Page, table: StatsTable, timeunit: str | None) -> None:
    columns = [c for c in table.columns if _telling(c)]
    units = _spread_units(columns)
    shown = [_shown(c, timeunit, units) for c in columns]
    need = [
        _least(head, cells, column, column is columns[-1])
        for (head, cells, _), column in zip(shown, columns, strict=True)
    ]
    kept = fitting(need, [c.rank for c in columns], page.width)
    heads = [shown[i][0] for i in kept]
    cells = [shown[i][1] for i in kept]
    right = [shown[i][2] for i in kept]
    widths = _widths(
        [[h, *c] for h, c in zip(heads, cells, strict=True)], right, [need[i] for i in kept], page.width
    )
    _line(page, heads, widths, right, "dim")
    notes = _tail_notes(table) if table.report == "tail" else [""] * len(table)
    for row, note in zip(zip(*cells, strict=True), notes, strict=True):
        _line(page, row, widths, right, "")
        if note:
            page.wrapped(note, ["    "], 4, "dim")
    left_out = [columns[i] for i in range(len(columns)) if i not in kept]
    if left_out:
        named = [c.name for c in sorted(left_out, key=lambda c: c.rank)]
        rest = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        page.wrapped(f"no room for {', '.join(named[:NAMED])}{rest}: --format csv has all", style="dim")


def _telling(column: Column) -> bool:
    """Whether a column is worth its room: it has cells, and tells rows apart where it is an id."""
    if column.rank >= DATA_ONLY:
        return False
    if column.rank and (column.name in IDS or column.name in ("Style", "Kind")):
        return len(set(np.asarray(column.values, object).tolist())) > 1
    if column.is_text:
        return any(column.values)
    return column.absent is None or not bool(column.absent.all())


def fitting(need: Sequence[int], ranks: Sequence[int], width: int) -> list[int]:
    """Positions of the columns that fit, those of low rank first; rank 0 is always in."""
    kept = [i for i, rank in enumerate(ranks) if rank == 0]
    used = sum(need[i] + GAP for i in kept) - GAP
    for i in sorted(range(len(ranks)), key=lambda i: (ranks[i], i)):
        if ranks[i] and used + GAP + need[i] <= width:
            kept.append(i)
            used += GAP + need[i]
    return sorted(kept)


def _spread_units(columns: Sequence[Column]) -> dict[str, str]:
    """The unit that suits the averages or medians, for all columns of the spread; by the letter
    that the names of a spread begin with."""
    found = {}
    for column in columns:
        hit = SPREAD.fullmatch(column.name)
        if hit and hit[2] in ("Avg", "P50"):
            values = np.asarray(column.values)
            if column.absent is not None:
                values = values[~column.absent]
            if len(values):
                found[hit[1]] = figures.column("x:ns", values.tolist())[0].split()[-1]
    return found


def _shown(
    column: Column, timeunit: str | None, units: dict[str, str] | None = None
) -> tuple[str, list[str], bool]:
    """Head, cells and whether they are numbers; `units` are those of spreads of time."""
    if column.is_text:
        words = budget_bar.words if column.name == "Part" else name_text
        return column.name, [words(v) for v in column.values], False
    head, cells = _number_cells(column, timeunit, units)
    if column.absent is not None:
        cells = ["" if gone else c for c, gone in zip(cells, column.absent.tolist(), strict=True)]
    return head, cells, True


def _number_cells(
    column: Column, timeunit: str | None, units: dict[str, str] | None = None
) -> tuple[str, list[str]]:
    values = np.asarray(column.values).tolist()
    name = HEADS.get(column.name, column.name)
    if column.unit == "ns":
        if timeunit is not None:
            sign, power = TIME_UNITS[timeunit]
            exact, places = numbers(column, timeunit)
            places = min(places, 3 if power < 9 else 6)
            return f"{name} {sign}", [f"{v:,.{places}f}" for v in exact]
        if name == "Start":
            return name, [figures.session_time(v) for v in values]
        hit = SPREAD.fullmatch(name)
        if hit and (unit := (units or {}).get(hit[1], "")):
            size = figures.IN_NS[unit]
            return f"{name} {unit}", [figures.milliseconds(v / size) for v in values]
        heading, cells, _ = figures.column(f"{name}:ns", values)
        return heading, cells
    if column.unit == "%":
        return f"{name} %", [figures.percent(v / 100.0) for v in values]
    if column.unit in ("MB", "B"):
        scale = 1e6 if column.unit == "MB" else 1.0
        return name, [figures.value_text(round(v * scale), "bytes") for v in values]
    if column.unit == "MB/s":
        return name, [figures.value_text(v * 1e6, "bytes_per_s") for v in values]
    if column.unit == "x":
        return name, [f"{v:,.2f}" for v in values]
    return name, [str(v) if name in IDS else figures.grouped(v) for v in values]


def _least(head: str, cells: list[str], column: Column, last: bool) -> int:
    """Cells that a column needs: all of a number, the beginning and end of a name."""
    widest = max(cell_len(c) for c in cells)
    if not column.is_text:
        return max(widest, cell_len(head))
    return max(min(widest, NAME if last else TEXT), min(cell_len(head), TEXT))


def _widths(columns: list[list[str]], right: list[bool], need: list[int], width: int) -> list[int]:
    """Numbers get what they need; names share the rest, the widest giving way first."""
    full = [max(cell_len(c) for c in column) for column in columns]
    least = [f if r else min(f, n) for f, r, n in zip(full, right, need, strict=True)]
    over = sum(full) + GAP * (len(full) - 1) - width
    while over > 0:
        spare = [f - n for f, n in zip(full, least, strict=True)]
        if max(spare) <= 0:  # not even these fit: names give way further
            spare = [0 if r else f - 1 for f, r in zip(full, right, strict=True)]
        if max(spare) <= 0:
            break
        full[spare.index(max(spare))] -= 1
        over -= 1
    return full


def _line(page: Page, cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], style: str) -> None:
    parts = [
        pad(cut_middle(c, w, page.glyphs.ellipsis), w, r)
        for c, w, r in zip(cells, widths, right, strict=True)
    ]
    page.line(((" " * GAP).join(parts), style))


# ------------------------------------------------------------------ details


def _tail_notes(table: StatsTable) -> list[str]:
    """What stands below each row of the tail report: the launch shape and what slow calls share."""

    def column(name: str) -> list[float]:
        return np.asarray(table.column(name).values).tolist()  # type: ignore[no-any-return]

    slow, alone = column("Slow"), column("Alone")
    place, places = column("Place"), column("Places")
    shares = {name: (column(name), column(f"{name} of All")) for name in WITH}
    grid, block, flag = (table.column(name).values for name in ("Grid", "Block", "Flag"))
    out = []
    for i in range(len(table)):
        shape = f"grid {grid[i]}, block {block[i]}"
        if places[i] > 1:
            shape += f", place {int(place[i])} of {int(places[i])}"
        if flag[i]:
            shape = f"{flag[i]} tail: {shape}"
        if not slow[i]:
            out.append(shape)
            continue
        found = [
            f"{words} {mine[i]:.0f} % (all calls {of_all[i]:.0f} %)"
            for name, words in WITH.items()
            for mine, of_all in [shares[name]]
            if mine[i] >= TOLD and mine[i] >= MORE * of_all[i]
        ]
        told = f"with {', '.join(found)}" if found else "nothing recorded coincides"
        out.append(f"{shape}; {int(slow[i]):,} slow, {alone[i]:.0f} % of that time alone on the GPU, {told}")
    return out


def _histogram(page: Page, table: StatsTable, timeunit: str | None) -> None:
    """Bars by kernel: a bar's length is the count of the bin, at least one sign where there is
    one, so that a tail of single calls is seen."""
    group = table.group if table.group is not None else np.zeros(len(table), np.int64)
    for i, number in enumerate(np.unique(group).tolist()):
        part = table.take(np.flatnonzero(group == number))
        if i:
            page.blank()
        count = np.asarray(part.column("Count").values)
        total = f"  {int(count.sum()):,} calls"
        name = name_text(str(part.column("Name").values[0]))
        page.line((cut_middle(name, page.width - len(total), page.glyphs.ellipsis), "bold"), (total, "dim"))
        edges = np.append(np.asarray(part.column("Low").values), np.asarray(part.column("High").values)[-1:])
        head, texts = _number_cells(Column("", edges, "ns"), timeunit)
        low, high, share = texts[:-1], texts[1:], _shown(part.column("Share"), None)[1]
        wide = max(map(len, texts))
        room = min(BAR, page.width - 2 * wide - 30)
        for row, n in enumerate(count.tolist()):
            length = max(round(n * room / int(count.max())), 1) if n else 0
            page.line(
                f"  {pad(low[row], wide, True)} - {pad(high[row], wide, True)} {head.strip()}"
                f"  {n:>9,}  {share[row]:>5} %  ",
                (page.glyphs.bar * length, "green"),
            )
