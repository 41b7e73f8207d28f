"""The budget as the HTML report draws it: one bar a device or phase over a common legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from advisor.model.comparison import PartChange
from advisor.model.findings import Budget
from advisor.model.numbers import milliseconds, percent, value_text
from advisor.model.parts import PARTS, Dots, PartSpec, Stripes
from advisor.reports.budget_bar import COLUMNS, shares, signs, unanswered, words
from advisor.reports.characters import clean
from advisor.reports.compare_blocks import change

#: A part below this share of every bar is added to the other small ones.
SMALL = 0.0005
#: From this share on a piece of the bar is wide enough for its sign and number.
LABELLED = 0.055
#: With more bars there is no room for times beside the shares.
ROOMY = 4
#: Parts of a comparison smaller than this share of the longer side are only in the tables.
COMPARED = 0.005


class Piece(Struct, frozen=True):
    """A piece of a budget bar. `css` names its colour and pattern."""

    part: str
    words: str
    sign: str
    css: str
    share: float
    percent: str
    ms: str

    @property
    def labelled(self) -> bool:
        return self.share >= LABELLED


class Bar(Struct, frozen=True):
    label: str
    window: str
    pieces: list[Piece]


class BudgetView(Struct, frozen=True):
    """Bars over one legend; `columns` name the bars, a row of `legend` has a cell for each."""

    bars: list[Bar]
    columns: list[str]
    legend: list[tuple[Piece, list[str]]]
    rest: str

    @property
    def many(self) -> bool:
        return len(self.bars) > COLUMNS


def budget_view(budgets: Sequence[Budget]) -> BudgetView:
    held = shares(budgets, SMALL)
    given = signs(list(held.cells), "C")  # compute needs a letter too, so that every piece has a sign

    def piece(part: str, share: float, ms: float) -> Piece:
        time = f"{milliseconds(ms)} ms"
        return Piece(part, words(part), given[part][0], piece_css(part), share, percent(share), time)

    bars = [
        Bar(
            label=f"{clean(b.phase)}, {b.place}" if b.phase else b.place,
            window=value_text(b.window_ms, "ms"),
            pieces=[piece(p.part, p.share, p.ms) for p in b.parts if p.share > 0],
        )
        for b in budgets
    ]
    shown = budgets if len(bars) <= ROOMY else ()
    ms = {(p.part, i): f" · {milliseconds(p.ms)} ms" for i, b in enumerate(shown) for p in b.parts}
    legend = []
    for part in held.parts:
        known = enumerate(held.cells[part])
        cells = ["" if s is None else f"{percent(s)}{ms.get((part, i), '')}" for i, s in known]
        legend.append((piece(part, held.largest[part], 0.0), cells))
    columns = ["least", "median", "most"] if held.many else [b.label for b in bars]
    small = [p for p in held.cells if 0 < held.largest[p] < SMALL]
    rest = [f"Below 0.05 %: {', '.join(words(p) for p in small)}."] if small else []
    return BudgetView(bars, columns, legend, " ".join([*unanswered(budgets), *rest]))


def piece_css(part: str) -> str:
    """The class that gives a part its colour and pattern."""
    return f"p-{part}" if part in PARTS else "p-unknown"


def piece_pattern(part: PartSpec) -> str:
    """The CSS of the pattern over a part's colour."""
    match part.pattern:
        case Stripes(degrees, tone, width, every):
            ink = f"var(--{'x' if tone == 'light' else 'y'}) 0 {width}px"
            stops = f"{degrees}deg, {ink}, transparent {width}px {every}px"
            return f" background-image: repeating-linear-gradient({stops});"
        case Dots(radius, edge, every):
            image = f"radial-gradient(var(--y) {radius:g}px, transparent {edge:g}px)"
            return f" background-image: {image}; background-size: {every}px {every}px;"
    return ""


def change_view(parts: Iterable[PartChange], names: tuple[str, str]) -> BudgetView | None:
    """A bar for each side, both to the scale of the longer one; None without parts."""
    rows = [p for p in parts if p.phase is None]
    whole = [sum(p.before_ms for p in rows), sum(p.after_ms for p in rows)]
    longest = max(whole, default=0.0)
    if longest <= 0:
        return None
    order = [p.part for p in rows]
    given = signs(order, "C")

    def piece(part: str, ms: float) -> Piece:
        about = (part, words(part), given[part][0], piece_css(part))
        return Piece(*about, ms / longest, f"{milliseconds(ms)} ms", "a step")

    bars = []
    for i, name in enumerate(names):
        pieces = [piece(p.part, (p.before_ms, p.after_ms)[i]) for p in rows]
        rest = longest - whole[i]
        if rest > COMPARED * longest:
            less = f"{milliseconds(rest)} ms less"
            pieces.append(Piece("", "shorter by", "", "p-none", rest / longest, less, "a step"))
        shown = [p for p in pieces if p.share > 0]
        bars.append(Bar(name, f"{milliseconds(whole[i])} ms a step", shown))
    kept = [p for p in rows if max(p.before_ms, p.after_ms) >= COMPARED * longest]
    legend = []
    for p in sorted(kept, key=lambda p: -abs(p.change_ms)):
        ends = (p.before_ms, p.after_ms)
        legend.append((piece(p.part, 0.0), [*map(milliseconds, ends), f"{p.change_ms:+,.2f}", change(*ends)]))
    heads = [f"{names[0]}, ms a step", names[1], "change", ""]
    return BudgetView(bars, heads, legend, "")
