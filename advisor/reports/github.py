"""Workflow commands of GitHub Actions: a finding becomes an annotation of the run.

GitHub shows ten of each level a step; they come in the order of rank, so the first ones are shown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis, Finding
from advisor.reports import phrases
from advisor.reports.blocks import Report
from advisor.reports.characters import clean
from advisor.reports.finding_text import cost_text
from advisor.reports.header import path_of
from advisor.reports.summary import first_fix, saves, verdict

COMMANDS = {"high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def document(report: Report) -> bytes:
    """One line a finding, before them the verdict, after them what is gone."""
    lines: list[str] = []
    for doc in report.documents:
        if isinstance(doc, Diagnosis):
            lines += _lines(doc)
        elif isinstance(doc, Comparison):
            lines += _compared(doc)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _compared(doc: Comparison) -> list[str]:
    """The verdict, then the notes."""
    level = {"regression": "error", "not-comparable": "error"}.get(doc.verdict, "notice")
    verdict = _command(level, f"advisor compare: {doc.verdict}", "", [doc.summary])
    return [verdict, *(_command("notice", "advisor compare", "", [note]) for note in doc.notes)]


def _lines(diagnosis: Diagnosis) -> list[str]:
    file = path_of(diagnosis, None)
    name = phrases.title(diagnosis)
    lines = [_command("notice", f"advisor: {name}", file, [verdict(diagnosis)])]
    for f in diagnosis.findings:
        title = f"{f.baseline}: " * bool(f.baseline) + f"{phrases.name(f)}, {f.severity}"
        about = _summary(f, bool(diagnosis.steps))
        lines.append(_command(COMMANDS[f.severity], title, path_of(diagnosis, f.scope.rank), about))
    if diagnosis.baseline is not None:
        gone = [f"{phrases.STATUS[g.status]}: {phrases.name(g)}" for g in diagnosis.baseline.gone]
        lines.append(_command("notice", "advisor: baseline", file, [phrases.baseline_text(diagnosis), *gone]))
    return lines


def _summary(finding: Finding, has_steps: bool) -> list[str]:
    """What it is, costs and asks for; GitHub shows little more, and the page of the run has the rest."""
    cost, fix, saved = cost_text(finding, has_steps), first_fix(finding), saves(finding)
    won = f" (saves {saved})" if saved else ""
    return [f"{finding.title}.", *[f"Cost: {cost}"] * bool(cost), *[f"Fix: {fix}{won}"] * bool(fix)]


def _command(level: str, title: str, file: str, lines: Sequence[str]) -> str:
    """``::error title=...,file=...::message``; a `file` makes GitHub show it at that file."""
    # GitHub resolves paths from the checkout only, which is the current folder in a workflow.
    file = file.removeprefix(os.path.join(os.getcwd(), ""))
    where = f",file={_property(clean(file))}" if file else ""
    message = _data("\n".join(clean(line) for line in lines))
    return f"::{level} title={_property(clean(title))}{where}::{message}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
