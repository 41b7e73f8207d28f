"""The diagnosis as blocks: findings in full, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.findings import Diagnosis
from advisor.reports import gain_text, phrases, ranks_text, sensitivity_text, summary, tail
from advisor.reports.blocks import Bars, Block, Entry, Fold, Heading, Item, Paragraph
from advisor.reports.finding_text import Detail, Shown, finding
from advisor.reports.header import header


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
    yield from gain_text.combined(d)
    yield from ranks_text.ranks(d, None if detail.table is None else ranks_text.SHOWN)
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
    yield from sensitivity_text.sensitivity(d)
    yield from tail.thresholds(d)


def gone(d: Diagnosis) -> Iterator[Block]:
    """What only the baseline has, and what became of it."""
    if d.baseline is not None and d.baseline.gone:
        yield Heading("In the baseline only")
        for entry in d.baseline.gone:
            known = entry.status == "gone"
            yield Item(phrases.STATUS[entry.status], "ok" if known else "?", phrases.name(entry))
