"""The checklist with the answers from the facts of captures, each with its number. Rules judge; an item
without a rule needs a person."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct, field

from advisor import __version__
from advisor.engine.compile import Condition, Test, try_compile
from advisor.engine.infer import Inference, default_engine, infer
from advisor.engine.interpret import Outcome, test_doc
from advisor.engine.judge import worded
from advisor.engine.load import builtin_dir, load_rules, refuse
from advisor.engine.values import (
    STEP_COUNT,
    ParamKey,
    Placeholder,
    Shown,
    atom,
    placeholders,
    render,
    resolve_params,
    show,
)
from advisor.knowledge.facts import facts_of
from advisor.knowledge.verb_files import ChecklistItem, checklist_items, nsys_needed
from advisor.model.facts import TRACE, Cell, Fact, FactBase, Scope, Unit
from advisor.model.findings import ConditionDoc, Diagnosis, Input, Tool
from advisor.model.review import Answer, CheckEntry, Checklist
from advisor.numerals import read_int

_NSYS = re.compile(r"Nsight Systems (\d+)\.(\d+)")
_ENGINE = "input.serving_engine"


class CaptureFacts(Struct, frozen=True):
    """What captures contain: values of facts (one list a capture), their units, the parameters of rules,
    and what would supply a missing fact."""

    captures: tuple[str, ...] = ()
    engine: str | None = None
    values: dict[str, tuple[tuple[Cell, ...], ...]] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    limits: dict[ParamKey, Cell] = field(default_factory=dict)
    remedies: dict[str, str] = field(default_factory=dict)


def capture_facts(diagnoses: Sequence[Diagnosis], engine: str | None = None) -> CaptureFacts:
    """The facts of these diagnoses; `engine` is the serving engine named by the user."""
    values: dict[str, list[list[Cell]]] = {}
    units: dict[str, Unit] = {}
    compared, comparison = _compared(diagnoses)
    limits: dict[ParamKey, Cell] = {}
    remedies: dict[str, str] = {}

    def put(name: str, at: int, value: Cell, unit: Unit) -> None:
        if value is not None:
            values.setdefault(name, [[] for _ in diagnoses])[at].append(value)
            units[name] = unit

    for at, diagnosis in enumerate(diagnoses):
        for fact in diagnosis.facts:
            put(fact.name, at, fact.value, fact.unit)
        for entry in diagnosis.inputs:
            derived = {
                "nsys_fits": _nsys_fits(entry),
                "several": len(diagnoses) > 1 or None,
                "compared": compared,
                "comparison": comparison,
            }
            for name, spec in facts_of("input").items():
                if name != _ENGINE:
                    key = name.removeprefix("input.")
                    put(name, at, derived[key] if key in derived else getattr(entry, key), spec.unit)
        limits |= {(t.code, t.param): t.value for t in diagnosis.thresholds}
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


def _compared(diagnoses: Sequence[Diagnosis]) -> tuple[bool | None, str | None]:
    """Whether two captures, the first before the other, are comparable, and what comparing them says; None
    unless two are given, each of one process."""
    from advisor.comparison.before_after import compare
    from advisor.comparison.sides import Side, same_steps

    if len(diagnoses) != 2 or any(len(d.inputs) != 1 for d in diagnoses):
        return None, None
    before, after = diagnoses
    if same_steps(before, after):
        return False, "both captures hold the same steps"
    found = compare(Side("before", [before]), Side("after", [after]))
    return found.verdict != "not-comparable", found.summary


def _nsys_fits(entry: Input) -> bool | None:
    """Whether the nsys that recorded is as new as the driver's CUDA; None if unknown."""
    release = _NSYS.search(entry.producer or "")
    if release is None or entry.cuda is None:
        return None
    return nsys_needed((read_int(release[1]) or 0, read_int(release[2]) or 0), entry.cuda) is None


def checklist(known: CaptureFacts, session: str | None = None, folders: Sequence[Path] = ()) -> Checklist:
    """Every item, answered if the facts decide it. `folders` hold the user's own rules."""
    data = checklist_items()
    inference = _judged(known, folders)
    outcomes = {o.cause: o for o in inference.outcomes}
    return Checklist(
        tool=Tool(version=__version__, engine=inference.engine),
        session=session,
        captures=known.captures,
        serving_engine=known.engine,
        stages=data.stages,
        entries=tuple(_entry(item, outcomes.get(item.id), inference, known) for item in data.items),
    )


def _judged(known: CaptureFacts, folders: Sequence[Path]) -> Inference:
    """The checklist's rules over the facts that they use, each value in a scope of its own, with the
    parameters with which the captures were judged."""
    rules = load_rules(builtin_dir(), *folders)
    # The built-in value, if a rule of the user that replaces ours lacks the parameter.
    params = resolve_params(load_rules(builtin_dir()), {}) | resolve_params(rules, {})
    params |= {key: value for key, value in known.limits.items() if value is not None}
    program, problems = try_compile(rules.about("checklist"), params)
    refuse(problems)
    assert program is not None
    count = next((len(lists) for lists in known.values.values()), len(known.captures))
    base = FactBase(captures=tuple(Scope(rank=at) for at in range(count)))
    for name in dict.fromkeys(t.fact for rule in program.by_code.values() for t in rule.tests()):
        for at, values in enumerate(known.values.get(name, ())):
            for number, value in enumerate(v for v in dict.fromkeys(values) if v is not None):
                base.add(Fact(name, value, known.units[name], Scope(rank=at, process=number)))
    if known.engine is not None:
        base.add(Fact(_ENGINE, known.engine, "text"))
    return infer(base, program, engine=default_engine())


def command_of(item: ChecklistItem, captures: Sequence[str]) -> str | None:
    """The command that helps, with the path of the first capture in its place."""
    trace = shlex.quote(captures[0]) if captures else "TRACE"
    return None if item.command is None else item.command.replace("{trace}", trace)


def _entry(
    item: ChecklistItem, outcome: Outcome | None, inference: Inference, known: CaptureFacts
) -> CheckEntry:
    texts = (item.question, item.why, item.how, item.source)
    answer: Answer | None = None
    proof, conditions = "", tuple[ConditionDoc, ...]()
    if outcome is not None:
        spec = inference.program.by_code[outcome.code].spec
        texts = (spec.message, spec.docs.why, spec.docs.fix or "", next(iter(spec.docs.references), ""))
        answer, proof, conditions = _answered(item, outcome, inference, known)
    question, why, how, source = texts
    return CheckEntry(
        id=item.id,
        stage=item.stage,
        step=item.step,
        question=question,
        why=why,
        how=how,
        command=command_of(item, known.captures),
        source=source,
        answer=answer,
        by=None if answer is None else "capture",
        measured=answer,
        proof=proof,
        conditions=conditions,
    )


def _answered(
    item: ChecklistItem, outcome: Outcome, inference: Inference, known: CaptureFacts
) -> tuple[Answer | None, str, tuple[ConditionDoc, ...]]:
    """The answer of the rule, the numbers in words, and the conditions: those of yes if it has any."""
    spec, given = inference.program.by_code[outcome.code].spec, inference.answer(outcome)
    if given is not None and given.reply == "not_applicable":
        return given.reply, worded(inference, spec, given.reason, TRACE), ()
    if not known.captures:
        return None, "", ()
    replies = [(b, a.reply) for b, a in zip(outcome.branches, spec.answers, strict=False)]
    judged = [(b, reply) for b, reply in replies if reply != "not_applicable"]
    wanted = [b for b, reply in judged if reply == "yes"] or [b for b, _ in judged]
    checked = [c for b in wanted for c in b.conditions]
    conditions = tuple(d for c in checked for d in _documents(c.condition, known))
    proof = _proof(item, known)
    if given is None:
        return None, proof, conditions
    lacking = [c.condition.fact for c in checked if isinstance(c.condition, Test) and c.truth is False]
    if given.reply == "no" and not proof and lacking:
        proof = f"the capture does not record {', '.join(lacking)}"
        flag = next((known.remedies[fact] for fact in lacking if fact in known.remedies), None)
        proof += f" ({flag} would)" if flag else ""
    return cast(Answer, given.reply), proof, conditions


def _documents(test: Condition, known: CaptureFacts) -> Iterator[ConditionDoc]:
    """The condition with both its numbers, once for each different value."""
    if not isinstance(test, Test):
        return
    asks = test.op == "known"
    lists = known.values.get(test.fact, ())
    values: Sequence[Cell] = list(dict.fromkeys(v for each in lists for v in each)) or [None]
    for value in values[:1] if asks else values:
        found = test_doc(test, value, known.units.get(test.fact, ""), test.holds(atom(value)))
        yield found.replaced(threshold=None) if asks else found


def _proof(item: ChecklistItem, known: CaptureFacts) -> str:
    """The numbers in words, capture by capture where they differ; empty if none is known."""
    captures_of: dict[str, list[str]] = {}
    for at, path in enumerate(known.captures):
        text = next((s for line in item.say if (s := _filled(line, known, at))), "")
        if text:
            captures_of.setdefault(text, []).append(path.rsplit("/", 1)[-1])
    if len(captures_of) <= 1:
        return next(iter(captures_of), "")
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in captures_of.items())


def _filled(template: str, known: CaptureFacts, at: int) -> str:
    """The line with its numbers; empty if one is unknown."""
    if not all(_cells(known, p.name, at) for p in placeholders(template)):
        return ""
    steps = next(iter(_cells(known, STEP_COUNT, at)), None)
    return render(template, lambda p: _shown(known, p, at), steps)


def _cells(known: CaptureFacts, name: str, at: int) -> tuple[Cell, ...]:
    lists = known.values.get(name)
    return lists[at] if lists and at < len(lists) else ()


def _shown(known: CaptureFacts, wanted: Placeholder, at: int) -> Shown | None:
    """The value; the span from least to most if there is one per device, phase or operation."""
    cells = [c for c in dict.fromkeys(_cells(known, wanted.name, at)) if c is not None]
    unit = known.units.get(wanted.name, "")
    numbers = [c for c in cells if isinstance(c, int | float) and not isinstance(c, bool)]
    if len(numbers) == len(cells) > 1:
        ends = dict.fromkeys(show(Shown(n, unit), wanted.format) for n in (min(numbers), max(numbers)))
        return Shown(" to ".join(ends), "text")
    if len(cells) > 1:
        return Shown(tuple(map(str, cells)), "text")
    return Shown(cells[0], unit) if cells else None
