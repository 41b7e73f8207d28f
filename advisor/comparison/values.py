"""Recordings without steps, before against after, by what they hold themselves: logs and metrics of servers,
reports of benchmarks, samples of a GPU, printed tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from advisor.comparison.sides import Side
from advisor.knowledge.verb_files import compared_values, limit
from advisor.model.capture import LOAD, SUMS
from advisor.model.comparison import Reason, ValueChange
from advisor.model.findings import Diagnosis, Verdict
from advisor.model.numbers import heading_parts, signed, value_text

SAMPLES = "samples of a GPU"


def kind_of(side: Side) -> str | None:
    """What a side without steps holds; None for captures, and for sides of several kinds."""
    kinds = {_kind(d) for d in side.diagnoses}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(diagnosis: Diagnosis) -> str | None:
    method = diagnosis.inputs[0].step_method
    if method in (LOAD, SUMS):
        return method
    known = {f.name: f.value for f in diagnosis.facts}
    unworked = known.get("activity.work_recorded") is False and method is None
    return SAMPLES if known.get("capture.sample_count") and unworked else None


def value_changes(before: Side, after: Side) -> tuple[ValueChange, ...]:
    """The values that both sides know, the most telling first; then the operations of printed tables by what
    they changed. Means over the captures of a side."""
    old, new = _means(before), _means(after)
    found = [
        ValueChange(
            name=v.fact,
            what=v.what,
            unit=old[v.fact][1],
            before=old[v.fact][0],
            after=new[v.fact][0],
            better=v.better,
            alike=v.alike,
        )
        for v in compared_values()
        if v.fact in old and v.fact in new
    ]
    return (*found, *_operations(before, after))


def judged(
    kind: str, before: Side, after: Side, changes: Sequence[ValueChange], gate: float
) -> tuple[Verdict, str, tuple[Reason, ...]]:
    """Verdict, summary and reasons. `gate` is the change (0.05: 5 %) from which on the first value that says
    what is better decides."""
    reasons = tuple(_reasons(before, after, changes))
    first = next((c for c in changes if c.better is not None and c.change is not None), None)
    why = next((r.text for r in reasons if r.state == "differs"), "")
    if not why and kind == SAMPLES:
        why = "samples do not say how much work was done in their time"
    elif not why and first is None:
        why = "no value that tells which side is better stands on both"
    if why or first is None or first.change is None:
        return "not-comparable", f"Not comparable: {why}.", reasons
    worse = first.change if first.better == "lower" else -first.change
    verdict: Verdict = "regression" if worse >= gate else "improvement" if worse <= -gate else "no-change"
    head = {"regression": "Regression", "improvement": "Improvement"}.get(verdict, "No change")
    text = f"{head}: {first.what} went {_both(first)} ({signed(first.change)} %)."
    others = [c for c in changes if c is not first and c.better and _is_large(c, gate)][:3]
    if others:
        text += f" Also: {'; '.join(f'{c.what} {_both(c)}' for c in others)}."
    return verdict, text, reasons


def _is_large(change: ValueChange, gate: float) -> bool:
    """True from the gate on, and for what was not there before."""
    if change.change is None:
        return change.before == 0 and bool(change.after)
    return abs(change.change) >= gate


def _both(change: ValueChange) -> str:
    return f"from {value_text(change.before, change.unit)} to {value_text(change.after, change.unit)}"


def _reasons(before: Side, after: Side, changes: Sequence[ValueChange]) -> list[Reason]:
    """What both sides should share: the engine and model if told, and the load that they were under."""
    found = []
    engines = [{d.inputs[0].serving_engine or "" for d in s.diagnoses} for s in (before, after)]
    if engines[0] != engines[1] and "" not in engines[0] | engines[1]:
        old, new = (", ".join(sorted(names)) for names in engines)
        text = f"the serving engine is {old} before and {new} after"
        found.append(Reason(check="serving engine", before=old, after=new, state="differs", text=text))
    for change in changes:
        if not change.alike or change.before is None or change.after is None:
            continue
        least, most = sorted((change.before, change.after))
        differs = most - least > limit("same-load") * most
        text = f"another load: {change.what} {_both(change)}" if differs else ""
        found.append(
            Reason(
                check=change.what,
                before=change.before,
                after=change.after,
                state="differs" if differs else "same",
                text=text,
            )
        )
    return found


def _means(side: Side) -> dict[str, tuple[float, str]]:
    """Each compared fact: its mean over the captures that know it, and its unit."""
    wanted = {v.fact for v in compared_values()}
    found: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for fact in (f for d in side.diagnoses for f in d.facts if f.name in wanted):
        if isinstance(fact.value, int | float):
            found.setdefault(fact.name, []).append(float(fact.value))
            units[fact.name] = "count" if fact.unit == "count_per_s" else fact.unit
    return {name: (fmean(values), units[name]) for name, values in found.items()}


def _operations(before: Side, after: Side) -> list[ValueChange]:
    """Rows of printed tables by name: total time of kernels, or of operators where no kernel is listed."""
    for table, name in (("kernels", "kernel"), ("operators", "name")):
        old, new = (_totals(side, table, name) for side in (before, after))
        if old and new:
            break
    else:
        return []
    rows = [
        ValueChange(
            name=f"{table}.{key}", what=key, unit="ms", before=old.get(key), after=new.get(key), row=True
        )
        for key in dict.fromkeys((*old, *new))
    ]
    return sorted(rows, key=lambda c: -abs((c.after or 0.0) - (c.before or 0.0)))


def _totals(side: Side, table: str, name: str) -> dict[str, float]:
    """Milliseconds by row, means over the captures."""
    totals: dict[str, float] = {}
    for d in side.diagnoses:
        if d.inputs[0].step_method != SUMS or (found := d.tables.get(table)) is None:
            continue
        heads = [heading_parts(column)[0] for column in found.columns]
        time = heads.index("total" if "total" in heads else "time")
        for row in found.rows:
            key, ms = str(row[heads.index(name)]), row[time]
            if isinstance(ms, int | float):
                totals[key] = totals.get(key, 0.0) + float(ms) / len(side.diagnoses)
    return totals
