"""The words of a rule with the values of a capture: messages, and conditions with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.engine.compile import Condition, Test
from advisor.engine.infer import Inference
from advisor.engine.interpret import Checked, Outcome
from advisor.engine.judge import doubts_of
from advisor.engine.text import Placeholder, Shown, render
from advisor.model.facts import Scope
from advisor.model.findings import ConditionDoc
from advisor.model.gain import WORTH, Choice
from advisor.model.numbers import percent, times
from advisor.model.rules import RuleSpec


def without_fault(options: Sequence[Choice] | None, load: str, captures: str, bound: str = "") -> str:
    """The verdict where nothing is at fault: what could be done all the same (`options`; None
    where nothing can be predicted from the `captures`), or how busy the GPU is (`load`)."""
    if options:
        offered = ", ".join(f"{o.title} {times(o.speedup.mid)} x" for o in options)
        return f"No fault{bound}. Options: {offered}."
    if options is None:
        return f"No fault found: {load}{bound}. What a fix would win cannot be predicted from {captures}."
    return f"Nothing to fix above {percent(WORTH)} of the step: {load}{bound}."


def worded(inference: Inference, spec: RuleSpec, template: str, scope: Scope) -> str:
    """A message with the values of its placeholders."""
    return render(template, lambda p: _shown(inference, spec, scope, p))


def message_of(inference: Inference, spec: RuleSpec, scope: Scope) -> str:
    """The rule's message, and after it what the capture cannot show."""
    doubts = (d.text for d in doubts_of(inference, spec, scope))
    return worded(inference, spec, " ".join((spec.message, *doubts)), scope)


def _shown(inference: Inference, spec: RuleSpec, scope: Scope, wanted: Placeholder) -> Shown | None:
    if wanted.is_param:
        value = inference.program.params.get((spec.code, wanted.name))
        return None if value is None else Shown(value, spec.params[wanted.name].unit)
    fact = inference.view.fact(wanted.name, scope)
    return None if fact is None else Shown(fact.value, fact.unit)


def outcome_message(inference: Inference, outcome: Outcome) -> str:
    spec = inference.program.by_code[outcome.code].spec
    return worded(inference, spec, spec.message, outcome.scope)


def condition_docs(spec: RuleSpec, checked: Iterable[Checked]) -> tuple[ConditionDoc, ...]:
    """Conditions with both their numbers, each once."""
    return tuple(dict.fromkeys(condition_doc(c, spec) for c in checked))


def condition_doc(checked: Checked, spec: RuleSpec) -> ConditionDoc:
    condition: Condition = checked.condition
    if isinstance(condition, Test):
        param = spec.params.get(condition.param or "")
        return ConditionDoc(
            fact=condition.fact,
            op=condition.op,
            threshold=condition.raw,
            value=checked.value,
            unit=checked.unit or ("" if param is None else param.unit),
            param=condition.param,
            holds=checked.truth,
        )
    word = {True: "fired", False: "quiet", None: None}[checked.truth]
    return ConditionDoc(
        fact=f"{condition.kind}:{condition.cause}",
        op="eq",
        threshold="fired",
        value=word,
        unit="text",
        holds=checked.truth,
    )
