"""Verdicts that hang on the exact value of a threshold."""

from __future__ import annotations

from advisor.model.facts import Scope
from advisor.model.findings import Diagnosis
from advisor.model.sensitivity import Flip
from advisor.reports.layout import Page
from advisor.reports.numbers import fact_unit, value_text

_SHOWN_CHANGES = 3


def sensitivity(page: Page, diagnosis: Diagnosis, verbosity: int) -> None:
    """One entry a threshold: the number, the threshold tried, and what would become of what."""
    flips = diagnosis.sensitivity
    if flips is None:
        return
    page.heading("Near a threshold", "what a tenth more or less would change")
    if not flips:
        page.line("  no verdict: every number is further than a tenth from its threshold")
    for flip in flips:
        _flip(page, flip, verbosity)


def _flip(page: Page, flip: Flip, verbosity: int) -> None:
    changes = {(c.code, c.before, c.after): c for c in flip.changes}
    told = [
        f"{c.code} {c.cause}{_where(c.scope)} {c.before} {page.glyphs.arrow} {c.after}".replace(
            "not_evaluated", "not evaluated"
        )
        for c in list(changes.values())[: None if verbosity > 0 else _SHOWN_CHANGES]
    ]
    if len(told) < len(changes):
        told.append(f"and {len(changes) - len(told)} more (-v)")
    page.wrapped("; ".join(told), ["  "], 4, "bold")
    unit = fact_unit(flip.facts[0].fact if flip.facts else "", flip.unit)
    old, new = value_text(flip.threshold, unit), value_text(flip.moved_to, unit)
    page.labelled("threshold", f"{flip.code}.{flip.param} {old}, tried {new}", 4)
    for fact in flip.facts[: None if verbosity > 0 else 1]:
        where = fact.scope.label()
        text = f"{fact.fact} is {value_text(fact.value, fact_unit(fact.fact, fact.unit))}"
        page.labelled("number", text + (f" ({where})" if where else ""), 4)
    if flip.first_before or flip.first_after:
        now = flip.first_after or "nothing"
        page.labelled("first", f"{now} instead of {flip.first_before or 'nothing'}", 4)


def _where(scope: Scope) -> str:
    label = scope.label()
    return f" ({label})" if label else ""
