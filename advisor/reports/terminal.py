"""The terminal report: verdict, findings with the numbers that prove them, budget, what is next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model.findings import Diagnosis, Finding
from advisor.reports import budget_bar, finding_text, header, tail
from advisor.reports.layout import Page, Segment, pad
from advisor.reports.numbers import value_text

if TYPE_CHECKING:
    from rich.text import Text

TOP = 5


@dataclass(frozen=True)
class TextOptions:
    """How much is said, and in how many columns. `top`: findings shown in full."""

    width: int = 80
    unicode: bool = True
    top: int = TOP
    verbosity: int = 0


def render(diagnosis: Diagnosis, options: TextOptions) -> list[Text]:
    """The report as styled lines, none wider than ``options.width`` cells."""
    page = Page(options.width, options.unicode)
    if options.verbosity < 0:
        _quiet(page, diagnosis, options)
        return page.lines
    header.header(page, diagnosis, options.verbosity)
    page.blank()
    page.wrapped(diagnosis.verdict, style="bold")
    _findings(page, diagnosis, options)
    budget_bar.budget(page, diagnosis, options.verbosity)
    tail.kernels(page, diagnosis, options.verbosity)
    tail.healthy(page, diagnosis, options.verbosity)
    tail.not_evaluated(page, diagnosis, options.verbosity)
    if options.verbosity > 0:
        tail.overruled(page, diagnosis)
        tail.thresholds(page, diagnosis)
        tail.facts(page, diagnosis)
    tail.next_command(page, diagnosis)
    return page.lines


def plain(diagnosis: Diagnosis, options: TextOptions) -> str:
    """The report as text without escape codes, for a file."""
    return "".join(f"{line.plain}\n" for line in render(diagnosis, options))


def _findings(page: Page, diagnosis: Diagnosis, options: TextOptions) -> None:
    listed = [f for f in diagnosis.findings if f.severity != "info" or f.invalidates]
    shown: finding_text.Shown = {}
    for finding in listed[: options.top]:
        page.blank()
        finding_text.finding(page, finding, bool(diagnosis.steps), options.verbosity, shown)
    rest = listed[options.top :]
    if rest:
        page.heading(f"{len(rest)} more", f"--top {len(listed)} shows all in full")
        for finding in rest:
            page.line(*_one_line(page, finding))
    noted = [f for f in diagnosis.findings if f not in listed]
    if noted:
        page.heading("Also noted", "for information")
        for finding in noted:
            if options.verbosity > 0:
                page.blank()
                finding_text.finding(page, finding, bool(diagnosis.steps), options.verbosity)
            else:
                head = f" {finding.rank:>2} {page.glyphs.levels['info']} {finding.code} "
                page.line(head, (finding.cause, "bold"), f": {finding.title}")


def _quiet(page: Page, diagnosis: Diagnosis, options: TextOptions) -> None:
    page.wrapped(diagnosis.verdict)
    for finding in diagnosis.findings[: options.top]:
        page.line(*_one_line(page, finding))


def _one_line(page: Page, finding: Finding) -> list[Segment]:
    share = "" if finding.impact is None else value_text(finding.impact.share, "ratio")
    if finding.impact is not None and finding.impact.share is None:
        share = ""
    return [
        f"{finding.rank:>3} ",
        finding_text.level(page, finding.severity),
        f" {finding.code} ",
        (finding.cause, "bold"),
        f" {pad(share, 6, right=True)}  " if share else "  ",
        finding.title,
    ]
