"""The diagnosis as blocks: the short form, findings in full, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from advisor.model.findings import Diagnosis
from advisor.reports import gain_text, phrases, summary, tail, text
from advisor.reports.blocks import Bars, Block, Entry, Fold, Heading, Item, Paragraph, Report, Rule
from advisor.reports.finding_text import Detail, Shown, finding
from advisor.reports.header import SHOWN, header, ranks
from advisor.reports.layout import Page

if TYPE_CHECKING:
    from rich.text import Text

TOP = 5
#: Changes of a moved threshold that are named without -v.
CHANGES = 3
#: How much a format shows that folds; what does not fit is left out step by step.
STEPS = (
    Detail(findings=50, rows=8, tables=3, places=3, table=50),
    Detail(findings=50, rows=5, tables=1, places=3, table=50),
    Detail(findings=10, rows=5, tables=1, places=1, table=50),
    Detail(findings=5, rows=3, tables=1, places=0, table=50),
    Detail(findings=3, rows=0, tables=0, places=0, table=50),
    Detail(findings=0, lists=False, table=20),
    Detail(findings=0, lists=False, table=5),
    Detail(findings=0, lists=False, table=1),
)


class TextOptions(Struct, frozen=True):
    """How much is said, and in how many columns. `top`: findings listed; `ranking`: the arithmetic
    of their order; `named`: of several captures, so that each is named."""

    width: int = 80
    unicode: bool = True
    top: int = TOP
    verbosity: int = 0
    ranking: bool = False
    named: bool = False


def report(diagnoses: Sequence[Diagnosis], options: TextOptions | None = None, many: bool = False) -> Report:
    """Diagnoses as they are delivered."""
    return Report(
        diagnoses,
        partial(shown, diagnoses, options or TextOptions(named=many)),
        phrases.title(diagnoses[0]) if len(diagnoses) == 1 else f"{len(diagnoses)} captures",
        many,
        [partial(_folded, diagnoses, detail) for detail in STEPS],
        level=2,
    )


def shown(diagnoses: Sequence[Diagnosis], options: TextOptions, width: int = 80) -> Iterator[Block]:
    """The short form of one diagnosis, a row each of several, with -v all of each."""
    if options.verbosity < 0:
        for diagnosis in diagnoses:
            yield from _quiet(diagnosis, options)
    elif options.verbosity == 0 and options.named:
        yield from summary.table(diagnoses)
    else:
        for i, diagnosis in enumerate(diagnoses):
            if i:
                yield Rule()
            if options.verbosity > 0:
                yield from full(diagnosis, Detail(), options.ranking, width)
            else:
                yield from _short(diagnosis, options, width)


def _short(diagnosis: Diagnosis, options: TextOptions, width: int) -> Iterator[Block]:
    yield from summary.summary(diagnosis, options.top)
    if options.ranking:
        yield from gain_text.ranking(diagnosis)
    yield from tail.sensitivity(diagnosis, CHANGES)
    yield from summary.end(diagnosis, width)


def _quiet(diagnosis: Diagnosis, options: TextOptions) -> Iterator[Block]:
    """The fix and what it wins, with the finding that asks for it; then what the baseline had."""
    first = summary.headline(diagnosis)
    name = f"{diagnosis.inputs[0].path}: " if options.named else ""
    state = f", {phrases.state(first)}" if first is not None and first.baseline else ""
    found = f" ({first.code} {first.cause}{state})" if first is not None else ""
    yield Paragraph(f"{name}{summary.verdict(diagnosis)}{found}", dense=True)
    if words := phrases.baseline_text(diagnosis):
        yield Paragraph(words, dense=True)
    yield from gone(diagnosis)


def _folded(diagnoses: Sequence[Diagnosis], detail: Detail) -> Iterator[Block]:
    """The short form, and all the rest in parts that open on demand."""
    for i, d in enumerate(diagnoses):
        if i:
            yield Rule()
        yield from summary.summary(d, detail.table or 0, 0)
        if detail.lists:
            yield Fold("Capture", "", tuple(header(d, 4)))
        yield from entries(d, detail)
        yield from rest(d, detail)
        yield from summary.end(d, 80, 1)


def render(diagnoses: Sequence[Diagnosis], options: TextOptions) -> list[Text]:
    """Styled lines, none wider than ``options.width`` cells."""
    page = Page(options.width, options.unicode)
    text.write(page, shown(diagnoses, options, page.width))
    return page.lines


def plain(diagnosis: Diagnosis, options: TextOptions) -> str:
    """The report as text without escape codes."""
    return "".join(f"{line.plain}\n" for line in render([diagnosis], options))


def full(d: Diagnosis, detail: Detail, ranking: bool, width: int) -> Iterator[Block]:
    """Everything that the document says."""
    yield from header(d)
    if d.headline is not None:
        yield Paragraph(summary.verdict(d), strong=True)
    yield Paragraph(d.verdict, dense=d.headline is not None)
    if text := phrases.baseline_text(d):
        yield Paragraph(text)
    yield from entries(d, detail)
    if ranking:
        yield from gain_text.ranking(d)
    yield from rest(d, detail)
    yield from tail.facts(d)
    yield from tail.tables(d, 20)
    yield from summary.end(d, width, 1)


def entries(d: Diagnosis, detail: Detail) -> Iterator[Entry]:
    """Every finding, most severe first."""
    shown: Shown = {}
    clock = phrases.clock(*d.inputs)
    for found in d.findings[: detail.findings]:
        yield finding(found, bool(d.steps), detail, shown, clock)


def rest(d: Diagnosis, detail: Detail) -> Iterator[Block]:
    """What stands beside the findings; lists only where `detail` has them."""
    yield from gone(d)
    yield from tail.todo(d)
    yield from gain_text.combined(d)
    yield from ranks(d, None if detail.table is None else SHOWN)
    whole = tuple(b for b in d.budget if b.phase is None)
    phases = tuple(b for b in d.budget if b.phase is not None)
    if whole:
        yield Heading("Budget of the window", "where each GPU's time goes, in parts that add up")
        yield Bars(whole, brief=False)
    if not detail.lists:
        return
    if phases:
        yield Fold("Budget by phase", "", (Bars(phases, brief=False),))
    yield from tail.kernels(d)
    yield from tail.healthy(d, detail.table is None)
    yield from tail.not_judged(d, detail.table is None)
    yield from tail.sensitivity(d)
    yield from tail.thresholds(d)


def gone(d: Diagnosis) -> Iterator[Block]:
    """What only the baseline has, and what became of it."""
    if d.baseline is not None and d.baseline.gone:
        yield Heading("In the baseline only")
        for entry in d.baseline.gone:
            known = entry.status == "gone"
            yield Item(phrases.STATUS[entry.status], "ok" if known else "?", phrases.name(entry))
