"""The terminal report: verdict, findings with the numbers that prove them, budget, what is next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model.findings import Diagnosis, Finding
from advisor.reports import (
    budget_bar,
    finding_text,
    gain_text,
    header,
    phrases,
    ranks_text,
    sensitivity_text,
    tail,
)
from advisor.reports.layout import Page, Segment, cut_middle, pad

if TYPE_CHECKING:
    from rich.text import Text

TOP = 5


@dataclass(frozen=True)
class TextOptions:
    """How much is said, and in how many columns. `top`: findings shown in full; `ranking`: the
    arithmetic of their order; `named`: one report of several, so that each names its capture."""

    width: int = 80
    unicode: bool = True
    top: int = TOP
    verbosity: int = 0
    ranking: bool = False
    named: bool = False


def render(diagnosis: Diagnosis, options: TextOptions) -> list[Text]:
    """The report as styled lines, none wider than ``options.width`` cells."""
    page = Page(options.width, options.unicode)
    if options.verbosity < 0:
        _quiet(page, diagnosis, options)
        return page.lines
    header.header(page, diagnosis, options.verbosity)
    page.blank()
    page.wrapped(diagnosis.verdict, style="bold")
    _compared(page, diagnosis)
    _findings(page, diagnosis, options)
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
    if options.verbosity > 0:
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
                mark = finding_text.baseline_mark(finding)
                page.line(head, (finding.cause, "bold"), mark, f": {finding.title}")


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
    if options.named:
        path = diagnosis.inputs[0].path
        page.line((cut_middle(path, page.width, page.glyphs.ellipsis), "bold"))
    page.wrapped(diagnosis.verdict)
    _compared(page, diagnosis)
    for finding in diagnosis.findings[: options.top]:
        page.line(*_one_line(page, finding))
    _gone(page, diagnosis)


def _one_line(page: Page, finding: Finding) -> list[Segment]:
    share = phrases.share_text(finding)
    return [
        f"{finding.rank:>3} ",
        finding_text.badge(page, finding),
        f" {finding.code} ",
        (finding.cause, "bold"),
        finding_text.baseline_mark(finding),
        f" {pad(share, 7, right=True)}  " if share else "  ",
        finding.title,
    ]
