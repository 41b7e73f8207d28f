"""Verdicts that hang on the exact value of a threshold."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.findings import Diagnosis
from advisor.model.numbers import fact_unit, value_text
from advisor.model.sensitivity import Flip
from advisor.reports.blocks import Block, Fold, Item


def sensitivity(diagnosis: Diagnosis, changes: int | None = None) -> Iterator[Block]:
    """An entry a threshold: the number, the threshold tried, and what would become of what."""
    flips = diagnosis.sensitivity
    if flips is None:
        return
    items = [_flip(f, changes) for f in flips]
    none = Item("no verdict: every number is further than a tenth from its threshold")
    yield Fold("Near a threshold", "what a tenth more or less would change", tuple(items or [none]))


def _flip(flip: Flip, limit: int | None) -> Item:
    found = {(c.code, c.before, c.after): c for c in flip.changes}
    told = []
    for c in list(found.values())[:limit]:
        where = f" ({c.scope.label()})" if c.scope.label() else ""
        told.append(
            f"{c.code} {c.cause}{where} {c.before} → {c.after}".replace("not_evaluated", "not evaluated")
        )
    if len(told) < len(found):
        told.append(f"and {len(found) - len(told)} more (-v)")
    unit = fact_unit(flip.facts[0].fact if flip.facts else "", flip.unit)
    old, new = value_text(flip.threshold, unit), value_text(flip.moved_to, unit)
    notes = [f"threshold {flip.code}.{flip.param} {old}, tried {new}"]
    for fact in flip.facts:
        where = f" ({fact.scope.label()})" if fact.scope.label() else ""
        notes.append(
            f"number {fact.fact} is {value_text(fact.value, fact_unit(fact.fact, fact.unit))}{where}"
        )
    if flip.first_before or flip.first_after:
        notes.append(f"first {flip.first_after or 'nothing'} instead of {flip.first_before or 'nothing'}")
    return Item("; ".join(told), notes=tuple(notes))
