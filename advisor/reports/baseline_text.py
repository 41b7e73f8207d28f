"""The list of baselines."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.findings import Diagnosis
from advisor.model.numbers import amount, milliseconds
from advisor.reports.layout import Page


def listing(page: Page, folder: str, entries: Sequence[tuple[str, Sequence[Diagnosis], str]]) -> None:
    """A block for each name: its capture, its steps, its verdict; the fault of a bad file."""
    for name, diagnoses, fault in entries:
        entry(page, name, diagnoses)
        if fault:
            page.labelled("unusable", fault)
    page.blank()
    page.line((f"{amount(len(entries), 'baseline')} in {folder}", "dim"))


def entry(page: Page, name: str, diagnoses: Sequence[Diagnosis]) -> None:
    """One name and what it holds."""
    page.line((name, "bold"))
    for diagnosis in diagnoses:
        page.labelled("capture", ", ".join(i.path for i in diagnosis.inputs))
        steps = ", ".join(
            f"{amount(s.count, f'{s.phase} step')} of {milliseconds(s.median_ms)} ms"
            for s in diagnosis.main_steps
        )
        if steps:
            page.labelled("steps", steps)
        page.labelled("verdict", diagnosis.verdict)
