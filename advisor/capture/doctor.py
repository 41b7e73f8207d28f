"""`advisor doctor`: faults of a capture itself, and the questions that people ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from advisor.capture.options import Recording
from advisor.capture.planner import UnmetNeed
from advisor.engine.infer import Inference
from advisor.engine.wording import worded
from advisor.facts.spec import RECORDING
from advisor.facts.writer import combine
from advisor.model.capture import Capture
from advisor.model.capture_plan import Blocked, Named, Question, Recorded
from advisor.model.facts import TRACE, Fact, FactBase, Value
from advisor.model.findings import Finding, NotEvaluated


def recorded(capture: Capture, recording: Recording, rows: Mapping[str, int]) -> Recorded:
    """The file in numbers; `rows` by table."""
    hertz = f" at {capture.sample_hz:,.0f} Hz" if capture.sample_hz else ""
    sampled = {"samples": f"GPU metrics{hertz}", "host_samples": "CPU"}
    return Recorded(
        size_bytes=capture.size_bytes,
        schema_version=capture.schema_version,
        duration_ms=None if capture.duration_ns is None else capture.duration_ns / 1e6,
        command=recording.command,
        options=recording.options,
        options_known=recording.known,
        graph_trace=capture.graph_trace_mode,
        sampled=tuple(text for table, text in sampled.items() if table in rows),
        tables=dict(sorted(rows.items())),
    )


def unmet_needs(entries: Sequence[NotEvaluated], remedy: Callable[[str], str | None]) -> list[UnmetNeed]:
    """Each rule that could not run, once, with what would supply all the facts that it misses."""
    by: dict[str, UnmetNeed] = {}
    for entry in entries:
        rule = Named(code=entry.code, cause=entry.cause)
        found = [remedy(name) for name in entry.missing]
        # As in the report: the size of the weights counts only if nothing else helps.
        needed = None if None in found or not found else combine(f for f in found if f)
        by.setdefault(entry.code, UnmetNeed(rule, needed))
    return list(by.values())


def blocked(entries: Sequence[NotEvaluated], needs: Sequence[UnmetNeed]) -> tuple[Blocked, ...]:
    """Rules that cannot run, by what is missing, the most first; what nothing supplies comes last."""
    why: dict[str, list[str]] = {}
    for entry in entries:
        if entry.why:
            why.setdefault(entry.code, []).extend(entry.why.split("; "))
    groups: dict[str | None, list[Named]] = {}
    for need in needs:
        groups.setdefault(need.remedy, []).append(need.rule)
    found = [
        Blocked(
            remedy=remedy,
            rules=tuple(rules),
            why=tuple(dict.fromkeys(w for r in rules for w in why.get(r.code, ()))),
        )
        for remedy, rules in groups.items()
    ]
    return tuple(sorted(found, key=lambda b: (b.remedy is None, -len(b.rules), b.remedy or "")))


def sentence(questions: Sequence[Question], found: Sequence[Finding], waiting: int, rules: int) -> str:
    """The capture in one sentence."""
    whole, partly = (sum(q.answer == answer for q in questions) for answer in ("yes", "partly"))
    heavy = next((f for f in found if f.severity in ("medium", "high") or f.invalidates), None)
    text = f"It answers {whole} of {len(questions)} questions"
    text += f" and {partly} in part" if partly else ""
    text += f"; {waiting} of {rules} rules cannot run on it." if waiting else "; every rule runs."
    return f"{heavy.title}. {text}" if heavy else text


# --- the questions that people ask of a capture, answered by the rules of kind `question` ---------


def question_facts(facts: FactBase, recording: Mapping[str, Value | None]) -> FactBase:
    """The facts that questions use: each fact of the trace at its largest over all scopes, since they ask
    about the capture as a whole, and how it was recorded (None: unknown)."""
    base = FactBase()
    for fact in facts:
        known = base.facts.get((fact.name, TRACE))
        if known is None or _larger(fact.value, known.value):
            base.facts[fact.name, TRACE] = Fact(fact.name, fact.value, fact.unit, TRACE)
    for name, value in recording.items():
        if value is not None:
            base.add(Fact(name, value, RECORDING[name].unit, TRACE))
    return base


def _larger(value: Value, than: Value) -> bool:
    numbers = not isinstance(value, str) and not isinstance(than, str)
    return numbers and max(value, than) != than


def questions(inference: Inference) -> Iterator[Question]:
    """Every question by code, with the answer of the first branch that holds, else of `otherwise`."""
    for outcome in inference.outcomes:
        spec = inference.program.by_code[outcome.code].spec
        if (answer := inference.answer(outcome)) is None:
            continue
        yield Question(
            id=spec.cause,
            question=spec.message,
            answer=answer.reply,
            reason=worded(inference, spec, answer.reason, TRACE),
            remedy=answer.remedy and worded(inference, spec, answer.remedy, TRACE),
        )
