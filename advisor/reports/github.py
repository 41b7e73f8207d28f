"""Workflow commands of GitHub Actions: a finding becomes an annotation of the run.

GitHub shows ten of each level a step; they come in the order of rank, so the first ones are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.findings import Diagnosis, Finding
from advisor.reports import phrases
from advisor.reports.layout import clean
from advisor.reports.ranks_text import path_of

COMMANDS = {"high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def render(diagnoses: Sequence[Diagnosis], many: bool = False) -> bytes:  # noqa: ARG001
    """One line a finding, before them the verdict, after them what is gone."""
    lines = [line for d in diagnoses for line in _lines(d)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _lines(diagnosis: Diagnosis) -> list[str]:
    file = path_of(diagnosis, None)
    name = phrases.title(diagnosis)
    lines = [_command("notice", f"advisor: {name}", file, [diagnosis.verdict])]
    has_steps = bool(diagnosis.steps)
    lines += [
        _command(COMMANDS[f.severity], _title(f), path_of(diagnosis, f.scope.rank), _said(f, has_steps))
        for f in diagnosis.findings
    ]
    if diagnosis.baseline is not None:
        gone = [f"{phrases.STATUS[g.status]}: {phrases.name(g)}" for g in diagnosis.baseline.gone]
        said = [phrases.baseline_text(diagnosis), *gone]
        lines.append(_command("notice", "advisor: baseline", file, said))
    return lines


def _title(finding: Finding) -> str:
    state = f"{finding.baseline}: " if finding.baseline else ""
    return f"{state}{phrases.name(finding)}, {finding.severity}"


def _said(finding: Finding, has_steps: bool) -> list[str]:
    cost = phrases.cost_text(finding, has_steps)
    return [
        f"{clean(finding.title)}. {clean(finding.message)}",
        *(["Cost: " + cost] if cost else []),
        *phrases.advice_lines(finding),
    ]


def _command(level: str, title: str, file: str, lines: Sequence[str]) -> str:
    """``::error title=...,file=...::message``; a `file` makes GitHub show it at that file."""
    where = f",file={_property(clean(file))}" if file else ""
    message = _data("\n".join(clean(line) for line in lines))
    return f"::{level} title={_property(clean(title))}{where}::{message}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
