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
from advisor.reports.header import path_of
from advisor.reports.layout import clean
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
    has_steps = bool(diagnosis.steps)
    lines += [
        _command(COMMANDS[f.severity], _title(f), path_of(diagnosis, f.scope.rank), _summary(f, has_steps))
        for f in diagnosis.findings
    ]
    if diagnosis.baseline is not None:
        gone = [f"{phrases.STATUS[g.status]}: {phrases.name(g)}" for g in diagnosis.baseline.gone]
        lines.append(_command("notice", "advisor: baseline", file, [phrases.baseline_text(diagnosis), *gone]))
    return lines


def _relative(path: str) -> str:
    """The path from the current folder, that of the checkout in a workflow: GitHub finds no others."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def _title(finding: Finding) -> str:
    state = f"{finding.baseline}: " if finding.baseline else ""
    return f"{state}{phrases.name(finding)}, {finding.severity}"


def _summary(finding: Finding, has_steps: bool) -> list[str]:
    """What it is, costs and asks for; GitHub shows little more, and the page of the run has the rest."""
    cost = phrases.cost_text(finding, has_steps)
    fix = first_fix(finding)
    won = f" (saves {saves(finding)})" if saves(finding) else ""
    return [f"{finding.title}.", *([f"Cost: {cost}"] if cost else []), *([f"Fix: {fix}{won}"] if fix else [])]


def _command(level: str, title: str, file: str, lines: Sequence[str]) -> str:
    """``::error title=...,file=...::message``; a `file` makes GitHub show it at that file."""
    where = f",file={_property(clean(_relative(file)))}" if file else ""
    message = _data("\n".join(clean(line) for line in lines))
    return f"::{level} title={_property(clean(title))}{where}::{message}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
