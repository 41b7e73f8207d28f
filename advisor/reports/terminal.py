"""The terminal report: verdict, findings with the numbers that prove them, budget, what is next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model.findings import Diagnosis
from advisor.reports import (
    blocks,
    budget_bar,
    finding_text,
    gain_text,
    header,
    phrases,
    ranks_text,
    sensitivity_text,
    summary,
    tail,
)
from advisor.reports.layout import Page

if TYPE_CHECKING:
    from rich.text import Text

TOP = 5


@dataclass(frozen=True)
class TextOptions:
    """How much is said, and in how many columns. `top`: findings listed; `ranking`: the arithmetic
    of their order; `named`: of several captures, so that each is named."""

    width: int = 80
    unicode: bool = True
    top: int = TOP
    verbosity: int = 0
    ranking: bool = False
    named: bool = False


def render(diagnoses: Sequence[Diagnosis], options: TextOptions) -> list[Text]:
    """Styled lines, none wider than ``options.width`` cells: the short form of one diagnosis, a row
    each of several, with -v all of each."""
    page = Page(options.width, options.unicode)
    if options.verbosity < 0:
        for diagnosis in diagnoses:
            _quiet(page, diagnosis, options)
    elif options.verbosity == 0 and options.named:
        blocks.write(page, summary.table(diagnoses))
    else:
        for i, diagnosis in enumerate(diagnoses):
            if i:
                page.blank()
                page.line(page.glyphs.rule * page.width)
                page.blank()
            _one(page, diagnosis, options)
    return page.lines


def _one(page: Page, diagnosis: Diagnosis, options: TextOptions) -> None:
    if options.verbosity > 0:
        _full(page, diagnosis, options)
        return
    blocks.write(page, summary.summary(diagnosis, options.top))
    if options.ranking:
        gain_text.ranking(page, diagnosis)
    sensitivity_text.sensitivity(page, diagnosis, 0)
    blocks.write(page, summary.end(diagnosis, page.width))


def _full(page: Page, diagnosis: Diagnosis, options: TextOptions) -> None:
    """Everything that the document says."""
    header.header(page, diagnosis, options.verbosity)
    page.blank()
    if diagnosis.headline is not None:
        page.wrapped(summary.verdict(diagnosis), style="bold")
    page.wrapped(diagnosis.verdict)
    _compared(page, diagnosis)
    _findings(page, diagnosis)
    _gone(page, diagnosis)
    gain_text.combined(page, diagnosis, options.verbosity)
    if options.ranking:
        gain_text.ranking(page, diagnosis)
    ranks_text.ranks(page, diagnosis, options.verbosity)
    budget_bar.budget(page, diagnosis, options.verbosity)
    tail.kernels(page, diagnosis, options.verbosity)
    tail.healthy(page, diagnosis, options.verbosity)
    tail.not_judged(page, diagnosis, options.verbosity)
    sensitivity_text.sensitivity(page, diagnosis, options.verbosity)
    tail.thresholds(page, diagnosis)
    tail.facts(page, diagnosis)
    blocks.write(page, summary.end(diagnosis, page.width, options.verbosity))


def plain(diagnosis: Diagnosis, options: TextOptions) -> str:
    """The report as text without escape codes."""
    return "".join(f"{line.plain}\n" for line in render([diagnosis], options))


def _findings(page: Page, diagnosis: Diagnosis) -> None:
    listed = [f for f in diagnosis.findings if f.severity != "info" or f.invalidates]
    noted = [f for f in diagnosis.findings if f not in listed]
    shown: finding_text.Shown = {}
    for finding in listed:
        page.blank()
        finding_text.finding(page, finding, bool(diagnosis.steps), 2, shown)
    if noted:
        page.heading("Also noted", "for information")
    for finding in noted:
        page.blank()
        finding_text.finding(page, finding, bool(diagnosis.steps), 2)


def _compared(page: Page, diagnosis: Diagnosis) -> None:
    """One line on the baseline, where there is one."""
    text = phrases.baseline_text(diagnosis)
    if text:
        page.wrapped(text, style="dim")


def _gone(page: Page, diagnosis: Diagnosis) -> None:
    """What only the baseline has, and what became of it."""
    if diagnosis.baseline is None or not diagnosis.baseline.gone:
        return
    page.heading("In the baseline only")
    for entry in diagnosis.baseline.gone:
        status = "" if entry.status == "gone" else f": {phrases.STATUS[entry.status]}"
        ok = page.glyphs.ok if entry.status == "gone" else "?"
        page.line(f"  {ok} ", (phrases.name(entry), "bold"), status)


def _quiet(page: Page, diagnosis: Diagnosis, options: TextOptions) -> None:
    """The fix and what it wins, with the finding that asks for it."""
    first = summary.headline(diagnosis)
    name = f"{diagnosis.inputs[0].path}: " if options.named else ""
    state = f", {phrases.state(first)}" if first is not None and first.baseline else ""
    found = f" ({first.code} {first.cause}{state})" if first is not None else ""
    page.wrapped(f"{name}{summary.verdict(diagnosis)}{found}")
    _compared(page, diagnosis)
    _gone(page, diagnosis)
