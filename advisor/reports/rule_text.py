"""What a rule means, for people: ``advisor explain CODE`` and the generated pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from advisor.model.numbers import CHANGES, OPS, fact_unit, named_unit, value_text
from advisor.reports.layout import Page

if TYPE_CHECKING:
    from advisor.model.findings import Reference
    from advisor.model.rules import Answer, Guard, Join, Param, RuleSpec


def explain(page: Page, rule: RuleSpec, references: Mapping[str, Reference]) -> None:
    """One rule in full: what, why, when it is harmless, fix, verify, thresholds, references."""
    page.line((f"{rule.code} {rule.cause}", "bold"), (f"  {rule.kind}, {rule.lifecycle}", "dim"))
    page.wrapped(rule.message if rule.answers else rule.title, style="bold")
    _section(page, "What", rule.docs.what)
    _section(page, "Why it matters", rule.docs.why)
    _section(page, "Harmless when", rule.docs.harmless_when)
    _fires(page, rule)
    _fix(page, rule)
    if rule.docs.verify:
        _section(page, "How to verify", rule.docs.verify)
    _thresholds(page, rule)
    if rule.needs is not None:
        _section(page, "Capture with", rule.needs.flag)
    _references(page, rule, references)
    page.blank()
    page.line(("Next: ", "dim"), (_next(rule), "bold"))


def _next(rule: RuleSpec) -> str:
    if rule.subject == "recording":
        return "advisor doctor TRACE"
    return f"advisor TRACE --select {rule.code}"


def _section(page: Page, head: str, text: str) -> None:
    page.heading(head)
    for paragraph in text.strip().split("\n\n"):
        page.wrapped(paragraph, ["  "], 2)


def _fires(page: Page, rule: RuleSpec) -> None:
    page.heading("Answers" if rule.answers else "Fires when", f"judged for {judged_for(rule)}")
    for i, branch in enumerate(rule.when.branches):
        if rule.answers:
            page.wrapped(f"{_answer(rule.answers[i])}, where", ["  "], 4)
        elif i:
            page.line(("  or", "bold"))
        for condition in branch:
            page.line(f"  - {condition_line(condition, rule)}")
    if rule.otherwise is not None:
        page.wrapped(f"otherwise {_answer(rule.otherwise)}", ["  "], 4)
    for join in rule.when.join:
        if not join.optional:
            page.wrapped(join_line(join, rule), ["  - "], 4)
    if rule.unless:
        page.line(("  unless", "bold"))
        for guard in rule.unless:
            page.line(f"  - {condition_line(guard, rule)}{if_unknown(guard)}")


def judged_for(rule: RuleSpec) -> str:
    """Where the rule gives a verdict: ``each device``, ``the capture as a whole``."""
    return "the capture as a whole" if rule.scope == "trace" else f"each {rule.scope}"


def if_unknown(guard: Guard) -> str:
    """What a guard does where its fact is not known; by default the rule is not evaluated."""
    return " (passes where that is unknown)" if guard.if_unknown else ""


def _answer(answer: Answer) -> str:
    return f"{answer.reply}: {answer.reason}"


def condition_line(condition: object, rule: RuleSpec) -> str:
    """``launch.idle_ratio >= 10.0 % (min_idle)``, or the name of a symptom or cause."""
    for kind in ("symptom", "cause"):
        name = getattr(condition, kind, None)
        if name is not None:
            where = " in any narrower scope" if getattr(condition, "over", None) else ""
            return f"{kind} {name}{where}"
    fact, op = getattr(condition, "fact", ""), getattr(condition, "op", "")
    return f"{fact} {OPS[op]} {_operand(condition, rule, named_unit(fact), fact)}"


def join_line(join: Join, rule: RuleSpec) -> str:
    """``rows of copy_class exist with kind = DtoH and per_step >= 4 (min_readbacks)``."""
    rows = " and ".join(f"{w.field} {OPS[w.op]} {_operand(w, rule, named_unit(w.field))}" for w in join.where)
    return f"rows of {join.entity} exist" + (f" with {rows}" if rows else "")


def _operand(comparison: object, rule: RuleSpec, unit: str, fact: str = "") -> str:
    name = getattr(comparison, "param", None)
    if name is not None and name in rule.params:
        param = rule.params[name]
        return f"{_value(param.default, fact_unit(fact, param.unit))} ({name})"
    return _value(getattr(comparison, "value", None), unit)


def _value(value: object, unit: str) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(v) for v in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value_text(value, unit)
    return str(value)


def _fix(page: Page, rule: RuleSpec) -> None:
    if not rule.docs.fix and not rule.recommendations:
        return
    page.heading("How to fix")
    if rule.docs.fix:
        page.wrapped(rule.docs.fix, ["  "], 2)
    for first in rule.requires:
        page.wrapped(f"first {first.cause}, where it was found: {first.because}", ["  - "], 4)
    for advice in rule.recommendations:
        only = " and ".join(condition_line(c, rule) for c in advice.applies_when)
        only = f", where {only}" if only else ""
        page.wrapped(f"{advice.action.rstrip('.')} (effort {advice.effort}{only})", ["  - "], 4)
        if advice.verify is not None:
            text = f"{advice.verify.fact} {CHANGES[advice.verify.expect]}"
            page.wrapped(text, ["    ", ("verify: ", "dim")], 6)


def _thresholds(page: Page, rule: RuleSpec) -> None:
    if not rule.params:
        return
    page.heading("Thresholds", f"change one with --param {rule.code}.NAME=VALUE")
    names = list(rule.params)
    page.table(
        ("name", "default", "origin"),
        [
            (names, False),
            ([threshold(rule, name) for name in names], True),
            ([origin(rule.params[name]) for name in names], False),
        ],
    )


def threshold(rule: RuleSpec, name: str) -> str:
    """The default of a parameter, in the unit of the fact that it is compared with."""
    param = rule.params[name]
    conditions = (*(c for branch in rule.when.branches for c in branch), *rule.unless)
    facts = [getattr(c, "fact", "") for c in conditions if getattr(c, "param", None) == name]
    return _value(param.default, fact_unit(facts[0] if facts else "", param.unit))


def origin(param: Param) -> str:
    """Where the number comes from."""
    return f"{param.origin}, {param.source}" if param.source else param.origin


def _references(page: Page, rule: RuleSpec, references: Mapping[str, Reference]) -> None:
    if not rule.docs.references:
        return
    page.heading("References")
    for key in rule.docs.references:
        ref = references.get(key)
        page.wrapped(key if ref is None else ref.title or key, ["  - "], 4)
        if ref is not None and ref.url:
            page.wrapped(ref.url, ["  "], 2, "dim")
