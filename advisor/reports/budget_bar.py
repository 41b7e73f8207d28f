"""The budget of the window: one bar per device, each part a sign of its own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from advisor.model.findings import Budget, Part
from advisor.model.numbers import percent, percent_range, value_text
from advisor.model.parts import BUSY, PARTS
from advisor.reports.layout import GLUE, Page, pad
from advisor.reports.output_file import clean

SPARE = "123456789abcdefghijklmnopqrstuvwxyz"
#: In the short form: least share of a named part below one bar and below several; number of bars; least
#: share of a part without a finding that is explained, and of compute, which is the device's purpose.
WORTH, WORTH_OF_MANY, BRIEF, LARGE, MOST = 0.03, 0.05, 2, 0.1, 0.5
#: In the short form: the parts that are not named.
OTHERS = "others"
#: Column at which bars of the short form begin.
MARGIN = 12
COLUMNS = 8
NAME = 20


#: Sign and style of each part.
Signs = dict[str, tuple[str, str]]


def signs(parts: list[str], bar: str) -> Signs:
    """A sign for every part, distinct in any case, the same one in every report if the part is known."""
    given: Signs = {}
    for part in parts:
        sign, style = (PARTS[part].sign, PARTS[part].style) if part in PARTS else ("", "")
        sign = bar if part == "compute" else sign
        taken = {"", *(s.lower() for s, _ in given.values())}
        given[part] = next(s for s in (sign, *SPARE) if s.lower() not in taken), style
    return given


def cells(shares: list[float], width: int) -> list[int]:
    """Whole cells by largest remainder: they add up to `width` (or to the sum of the shares)."""
    total = sum(shares)
    if total <= 0:
        return [0] * len(shares)
    exact = [s * width / max(total, 1.0) for s in shares]
    whole = [int(e) for e in exact]
    missing = round(sum(exact)) - sum(whole)
    for i in sorted(range(len(exact)), key=lambda i: (whole[i] - exact[i], i))[:missing]:
        whole[i] += 1
    return whole


class Shares(NamedTuple):
    """Budgets as a table: `parts` of them, and for each its share in every budget or, if there are too
    many budgets, the least, median and most (`many`); None if a budget has no such part."""

    parts: list[str]
    cells: dict[str, list[float | None]]
    largest: dict[str, float]
    many: bool


def shares(budgets: Sequence[Budget], least: float = 0.0, most: int = COLUMNS) -> Shares:
    """The parts of which one budget holds `least` and more, largest first; the spread of more than `most`."""
    order = _order(budgets)
    tables = [{p.part: p.share for p in b.parts} for b in budgets]
    cells: dict[str, list[float | None]] = {p: [t.get(p) for t in tables] for p in order}
    known = {p: [t.get(p, 0.0) for t in tables] for p in order}
    largest = {p: max(row) for p, row in known.items()}
    if many := len(budgets) > most:
        cells = {p: [min(row), median(row), max(row)] for p, row in known.items()}
    parts = sorted((p for p in order if largest[p] >= least and largest[p] > 0), key=lambda p: -largest[p])
    return Shares(parts, cells, largest, many)


def full(page: Page, budgets: Sequence[Budget]) -> None:
    """A bar a device or phase and every part by name; why no finding explains the large ones."""
    given = signs(_order(budgets), page.glyphs.bar)
    for phase in dict.fromkeys(b.phase for b in budgets):
        some = [b for b in budgets if b.phase == phase]
        labels = [f"{phase}, {name}" if phase else name for name in _labels(some)]
        _bars(page, labels, some, given, max(map(len, labels)) + 4)
        # A column a device, of a single one with the time; the spread where not all fit.
        table = shares(some, most=min(COLUMNS, (page.width - NAME - 8) // 8))
        ms = {p.part: p.ms for p in some[0].parts} if len(some) == 1 else {}
        heads = ["least", "median", "most"] if table.many else _labels(some) if len(some) > 1 else []
        if heads:
            short = "".join(f"{h.replace('device ', 'dev ').replace('rank ', 'rk '):>8}" for h in heads)
            page.line(" " * (6 + NAME), (short, "dim"))
        for part in table.parts:
            numbers = "".join(f"{percent(s or 0.0):>8}" for s in table.cells[part])
            time = f"{value_text(ms[part], 'ms'):>11}" if part in ms else ""
            page.line("    ", given[part], f" {pad(words(part), NAME)}{numbers}{time}")
    for sentence in unanswered([b for b in budgets if b.phase is None]):
        page.wrapped(sentence, ["    "], 6, "dim")


def unanswered(budgets: Sequence[Budget], brief: bool = False) -> list[str]:
    """Why parts of at least 3 % have no finding (if `brief`, large parts only): one sentence a reason,
    with each part's share on the device where it is largest."""
    largest: dict[str, Part] = {}
    for part in (p for b in budgets for p in b.parts if p.why and not p.findings):
        if part.part not in largest or largest[part.part].share < part.share:
            largest[part.part] = part
    by_reason: dict[str | None, list[str]] = {}
    for part in sorted(largest.values(), key=lambda p: -p.share):
        if not brief or part.share >= (MOST if part.part == "compute" else LARGE):
            by_reason.setdefault(part.why, []).append(f"{words(part.part)} ({percent(part.share)})")
    return [clean(f"No finding about {', '.join(parts)}: {why}.") for why, parts in by_reason.items()]


def brief(page: Page, budgets: Sequence[Budget], ranks: Sequence[int] = ()) -> None:
    """One bar a device, of many those of `ranks`, else the least and the most busy, over the parts that hold
    enough, and the others as one."""
    drawn = list(budgets)
    if len(drawn) > BRIEF and (some := [b for b in drawn if b.rank in ranks][:BRIEF]):
        drawn = some
    elif len(drawn) > BRIEF:
        busy = [sum(p.share for p in b.parts if p.part in BUSY) for b in drawn]
        ranked = sorted(range(len(drawn)), key=lambda i: (busy[i], i))
        drawn = [drawn[i] for i in sorted(ranked[: BRIEF // 2] + ranked[-(BRIEF // 2) :])]
    given = signs(_order(drawn), page.glyphs.bar)
    table = shares(drawn, WORTH if len(drawn) == 1 else WORTH_OF_MANY)
    named = {p: sign for p, sign in given.items() if p in table.parts}
    drawn = [_joined(one, named) for one in drawn]
    named[OTHERS] = page.glyphs.dot, "dim"
    _bars(page, _labels(drawn) if len(drawn) > 1 else ["budget"], drawn, named, MARGIN)
    rows = ((p, [s or 0.0 for s in table.cells[p]]) for p in table.parts)
    texts = [f"{named[p][0]} {words(p)} {percent_range(own)}" for p, own in rows]
    if any(_counts(page, one, named, MARGIN)[-1] for one in drawn):
        texts.append(f"{named[OTHERS][0]} {OTHERS}")
    page.labelled("", ", ".join(t.replace(" ", GLUE) for t in texts))
    if open_parts := unanswered(budgets, brief=True):
        names = ", ".join(
            sentence.partition(":")[0].removeprefix("No finding about ") for sentence in open_parts
        )
        page.labelled("", f"no finding about {names}; -v says why")


def _joined(budget: Budget, named: Signs) -> Budget:
    """The parts that are named, and the sum of the others behind them."""
    parts = tuple(p for p in budget.parts if p.part in named)
    share, ms = (sum(getattr(p, n) for p in budget.parts if p.part not in named) for n in ("share", "ms"))
    return budget.replaced(parts=(*parts, Part(part=OTHERS, share=share, ms=ms)))


def _labels(budgets: list[Budget]) -> list[str]:
    """``device 0`` or ``rank 3``; both where a rank has several devices."""
    ranks = [b.rank for b in budgets]
    if None in ranks:
        return [f"device {b.device}" for b in budgets]
    if len(set(ranks)) == len(ranks):
        return [f"rank {r}" for r in ranks]
    return [f"rank {b.rank} device {b.device}" for b in budgets]


def _order(budgets: Sequence[Budget]) -> list[str]:
    """Parts in the order of the document, which is the order of precedence."""
    return list(dict.fromkeys(p.part for b in budgets for p in b.parts))


def _bars(page: Page, labels: list[str], budgets: list[Budget], given: Signs, margin: int) -> None:
    """A bar a budget behind its label, from column `margin` on."""
    for label, one in zip(labels, budgets, strict=True):
        counts = _counts(page, one, given, margin)
        # Letters stand on the colour of their part: one solid bar with names in it.
        pieces = [
            (sign * n, style + ("" if p == "compute" else " reverse"))
            for (p, (sign, style)), n in zip(given.items(), counts, strict=True)
        ]
        page.line(("  " + pad(label, margin - 2), "dim"), *pieces)


def _counts(page: Page, budget: Budget, given: Signs, margin: int) -> list[int]:
    """Cells of each part of a bar."""
    held = {p.part: p.share for p in budget.parts}
    return cells([held.get(p, 0.0) for p in given], page.width - margin - 1)


def words(part: str) -> str:
    """The name of a part of the budget in a text."""
    return PARTS[part].words if part in PARTS else part.replace("_", " ")
