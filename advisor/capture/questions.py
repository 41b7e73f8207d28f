"""The questions that people ask of a capture, answered by the rules of kind `question`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.engine.infer import Inference
from advisor.engine.wording import worded
from advisor.facts.recording import RECORDING
from advisor.model.checkup import Question
from advisor.model.facts import TRACE, Fact, FactBase, Value


def question_facts(facts: FactBase, recording: Mapping[str, Value | None]) -> FactBase:
    """What questions look at: each fact of the trace at its largest over all scopes, since they ask
    about the capture as a whole, and how it was recorded (None: not known)."""
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
    """Every question in order of code, with its answer: that of the first branch that holds, else
    that of `otherwise`."""
    for outcome in inference.outcomes:
        spec = inference.program.by_code[outcome.code].spec
        if spec.kind != "question":
            continue
        answer = spec.answers[outcome.first]
        yield Question(
            id=spec.cause,
            question=spec.message,
            answer=answer.reply,
            reason=worded(inference, spec, answer.reason, TRACE),
            remedy=answer.remedy and worded(inference, spec, answer.remedy, TRACE),
        )
