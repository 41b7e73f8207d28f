"""What the facts of captures answer: every item of the checklist with its number.

A comparison is true, false or not known; an item is answered only where that decides it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec import Struct, field

from advisor import __version__
from advisor.engine.values import atom, compare, k_and, k_or, operand
from advisor.engine.wording import Placeholder, Shown, placeholders, render
from advisor.knowledge.capture import nsys_needed
from advisor.knowledge.checklist import Applies, ChecklistItem, Comparison, checklist_items
from advisor.model.facts import Cell
from advisor.model.findings import ConditionDoc, Diagnosis, Input, Tool
from advisor.model.review import Answer, CheckEntry, Checklist

#: What is told of each input without being a fact of the catalogue.
INPUT_FACTS = ("producer", "device", "driver", "cuda", "serving_engine", "workload", "format",
               "nsys_fits", "several")  # fmt: skip
_NSYS = re.compile(r"Nsight Systems (\d+)\.(\d+)")


class CaptureFacts(Struct, frozen=True):
    """All that is known from captures: values of facts (one list a capture), their units, the limits of
    rules, and what would supply a fact that is missing."""

    captures: tuple[str, ...] = ()
    engine: str | None = None
    values: dict[str, tuple[tuple[Cell, ...], ...]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Cell] = field(default_factory=dict)
    remedies: dict[str, str] = field(default_factory=dict)


def capture_facts(diagnoses: Sequence[Diagnosis], engine: str | None = None) -> CaptureFacts:
    """What these diagnoses tell; `engine` is the serving engine where the user named it."""
    values: dict[str, list[list[Cell]]] = {}
    units: dict[str, str] = {}
    limits: dict[str, Cell] = {}
    remedies: dict[str, str] = {}

    def put(name: str, at: int, value: Cell, unit: str) -> None:
        if value is not None:
            values.setdefault(name, [[] for _ in diagnoses])[at].append(value)
            units[name] = unit

    for at, diagnosis in enumerate(diagnoses):
        for fact in diagnosis.facts:
            put(fact.name, at, fact.value, fact.unit)
        for entry in diagnosis.inputs:
            derived = {"nsys_fits": _nsys_fits(entry), "several": len(diagnoses) > 1 or None}
            for name in INPUT_FACTS:
                value = derived[name] if name in derived else getattr(entry, name)
                put(f"input.{name}", at, value, "text")
        limits |= {f"{t.code}.{t.param}": t.value for t in diagnosis.thresholds}
        for wanting in diagnosis.not_evaluated:
            if wanting.flag:
                remedies |= {name: wanting.flag for name in wanting.missing if name not in remedies}
    paths = [i.path for d in diagnoses for i in d.inputs]
    found = [i.serving_engine for d in diagnoses for i in d.inputs if i.serving_engine]
    return CaptureFacts(
        captures=tuple(dict.fromkeys(paths)),
        engine=engine or next(iter(found), None),
        values={n: tuple(tuple(v) for v in lists) for n, lists in values.items()},
        units=units,
        limits=limits,
        remedies=remedies,
    )


def _nsys_fits(entry: Input) -> bool | None:
    """Whether the nsys that recorded is as new as the driver's CUDA; None where nobody knows."""
    release = _NSYS.search(entry.producer or "")
    if release is None or entry.cuda is None:
        return None
    return nsys_needed((int(release[1]), int(release[2])), entry.cuda) is None


def checklist(known: CaptureFacts, session: str | None = None) -> Checklist:
    """Every item; those that the facts decide are answered."""
    data = checklist_items()
    return Checklist(
        tool=Tool(version=__version__, engine="facts"),
        session=session,
        captures=known.captures,
        serving_engine=known.engine,
        stages=data.stages,
        entries=tuple(_entry(item, known) for item in data.items),
    )


def command_of(item: ChecklistItem, captures: Sequence[str]) -> str | None:
    """The command that helps, with the path of the first capture in its place."""
    trace = shlex.quote(captures[0]) if captures else "TRACE"
    return None if item.command is None else item.command.replace("{trace}", trace)


def _entry(item: ChecklistItem, known: CaptureFacts) -> CheckEntry:
    answer, proof, conditions = _judged(item, known)
    return CheckEntry(
        id=item.id,
        stage=item.stage,
        step=item.step,
        question=item.question,
        why=item.why,
        how=item.how,
        command=command_of(item, known.captures),
        source=item.source,
        answer=answer,
        by=None if answer is None else "capture",
        measured=answer,
        proof=proof,
        conditions=conditions,
    )


def _judged(item: ChecklistItem, known: CaptureFacts) -> tuple[Answer | None, str, tuple[ConditionDoc, ...]]:
    reason = _not_for(item.applies, known)
    if reason:
        return "not_applicable", reason, ()
    if not known.captures:
        return None, "", ()
    met, unmet = item.met, item.unmet or []
    held = [_holds(c, known) for c in met]
    against = [_holds(c, known) for c in unmet]
    answer: Answer | None = None
    if True in against or (item.unmet is None and False in held):
        answer = "no"
    elif met and all(h is True for h in held) and True not in against:
        answer = "yes"
    conditions = tuple(d for c in (*met, *unmet) for d in _documents(c, known))
    proof = _proof(item, known)
    if answer == "no" and not proof:
        proof = _not_recorded([c.fact for c, h in zip(met, held, strict=True) if h is False], known)
    return answer, proof, conditions


def _not_recorded(facts: Sequence[str], known: CaptureFacts) -> str:
    """``the capture does not record host.gil_wait_ratio (--trace=cuda,nvtx,python-gil would)``"""
    flags = list(dict.fromkeys(known.remedies[f] for f in facts if f in known.remedies))
    text = f"the capture does not record {', '.join(facts)}" if facts else ""
    return f"{text} ({flags[0]} would)" if text and flags else text


def _not_for(applies: Applies, known: CaptureFacts) -> str:
    """Why the item does not concern this work; empty where it does, or where nothing tells."""
    if known.engine and known.engine in applies.not_engines:
        return f"not for {known.engine}"
    if applies.engines and (known.engine or known.captures):
        wanted = " and ".join(applies.engines)
        if known.engine is None:
            return f"for {wanted}, of which the capture shows no sign"
        if known.engine not in applies.engines:
            return f"for {wanted}; this is {known.engine}"
    if known.captures:
        held = [_holds(c, known) for c in applies.facts]
        if False in held or (None in held and applies.unknown == "skip"):
            return applies.otherwise or ""
    return ""


def _limit(comparison: Comparison, known: CaptureFacts) -> Cell:
    if comparison.param is None:
        return comparison.value
    return known.limits.get(comparison.param)


def _holds(comparison: Comparison, known: CaptureFacts) -> bool | None:
    """True, false, or None where the captures do not record it."""
    lists = known.values.get(comparison.fact) or tuple(() for _ in known.captures)
    limit = True if comparison.op == "known" else _limit(comparison, known)
    # Of a capture that does not tell the fact, one value that nobody knows.
    results = [_compare(comparison.op, v, limit) for values in lists for v in values or (None,)]
    if comparison.over == "any":
        return k_or(*results)
    return k_and(*results) if results else None


def _compare(op: str, value: Cell, limit: Cell) -> bool | None:
    """By the operators of the rules; None where the fact or its limit is not known."""
    return None if limit is None else compare(atom(value), op, operand(limit))


def _documents(comparison: Comparison, known: CaptureFacts) -> list[ConditionDoc]:
    """The comparison with both its numbers, once for each different value."""
    lists = known.values.get(comparison.fact, ())
    values: Sequence[Cell] = list(dict.fromkeys(v for each in lists for v in each)) or [None]
    if comparison.op == "known":
        return [
            ConditionDoc(
                fact=comparison.fact,
                op="known",
                value=v,
                unit=known.units.get(comparison.fact, ""),
                holds=v is not None,
            )
            for v in values[:1]
        ]
    limit = _limit(comparison, known)
    return [
        ConditionDoc(
            fact=comparison.fact,
            op=comparison.op,
            threshold=limit,
            value=value,
            unit=known.units.get(comparison.fact, ""),
            param=comparison.param,
            holds=_compare(comparison.op, value, limit),
        )
        for value in values
    ]


def _proof(item: ChecklistItem, known: CaptureFacts) -> str:
    """The numbers in words, capture by capture where they differ; empty where none is known."""
    captures_of: dict[str, list[str]] = {}
    for at, path in enumerate(known.captures):
        text = next((s for line in item.say if (s := _filled(line, known, at))), "")
        if text:
            captures_of.setdefault(text, []).append(path.rsplit("/", 1)[-1])
    if len(captures_of) <= 1:
        return next(iter(captures_of), "")
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in captures_of.items())


def _filled(template: str, known: CaptureFacts, at: int) -> str:
    """The line with its numbers; empty where one is not known."""
    if not all(_cells(known, p.name, at) for p in placeholders(template)):
        return ""
    return render(template, lambda p: _shown(known, p, at))


def _cells(known: CaptureFacts, name: str, at: int) -> tuple[Cell, ...]:
    lists = known.values.get(name)
    return lists[at] if lists and at < len(lists) else ()


def _shown(known: CaptureFacts, wanted: Placeholder, at: int) -> Shown | None:
    """The value; the span from least to most where there is one a device, phase or operation."""
    from advisor.engine.wording import show

    cells = list(dict.fromkeys(_cells(known, wanted.name, at)))
    unit = known.units.get(wanted.name, "")
    if not cells:
        return None
    numbers = [c for c in cells if isinstance(c, int | float) and not isinstance(c, bool)]
    if len(numbers) == len(cells) > 1:
        ends = [show(Shown(n, unit), wanted.format) for n in (min(numbers), max(numbers))]
        return Shown(f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ends[0], "text")
    if len(cells) > 1:
        return Shown(tuple(str(c) for c in cells), "text")
    value = cells[0]
    return None if value is None else Shown(value, unit)
