"""The terminal report: verdict, findings with the numbers that prove them, budget, what is next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model.findings import Diagnosis
from advisor.reports import blocks, gain_text, phrases, sensitivity_text, summary
from advisor.reports.diagnosis_blocks import full, gone
from advisor.reports.finding_text import Detail
from advisor.reports.layout import Page

if TYPE_CHECKING:
    from rich.text import Text

TOP = 5
#: Changes of a moved threshold that are named without -v.
CHANGES = 3


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
        blocks.write(page, full(diagnosis, Detail(), options.ranking, page.width))
        return
    blocks.write(page, summary.summary(diagnosis, options.top))
    if options.ranking:
        blocks.write(page, gain_text.ranking(diagnosis))
    blocks.write(page, sensitivity_text.sensitivity(diagnosis, CHANGES))
    blocks.write(page, summary.end(diagnosis, page.width))


def plain(diagnosis: Diagnosis, options: TextOptions) -> str:
    """The report as text without escape codes."""
    return "".join(f"{line.plain}\n" for line in render([diagnosis], options))


def _quiet(page: Page, diagnosis: Diagnosis, options: TextOptions) -> None:
    """The fix and what it wins, with the finding that asks for it; then what the baseline had."""
    first = summary.headline(diagnosis)
    name = f"{diagnosis.inputs[0].path}: " if options.named else ""
    state = f", {phrases.state(first)}" if first is not None and first.baseline else ""
    found = f" ({first.code} {first.cause}{state})" if first is not None else ""
    page.wrapped(f"{name}{summary.verdict(diagnosis)}{found}")
    if text := phrases.baseline_text(diagnosis):
        page.wrapped(text, style="dim")
    blocks.write(page, gone(diagnosis))
