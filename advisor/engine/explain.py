"""Why a rule fired, and why not: trees of short statements for ``advisor explain CODE --trace``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.engine.compile import Condition, Test
from advisor.engine.infer import Inference
from advisor.engine.interpret import BranchResult, Checked, JoinResult, Link, Outcome
from advisor.engine.text import natural, percent
from advisor.errors import RuleError
from advisor.model.facts import Scope

_WORDS = {
    "lt": "less than",
    "le": "at most",
    "gt": "more than",
    "ge": "at least",
    "eq": "equal to",
    "ne": "other than",
    "one_of": "one of",
}


@dataclass(frozen=True, slots=True)
class Node:
    """One statement; `holds` is its truth (None: unknown), `children` are its reasons."""

    text: str
    holds: bool | None = None
    children: tuple[Node, ...] = ()

    def lines(self, depth: int = 0) -> Iterator[str]:
        yield "  " * depth + self.text
        for child in self.children:
            yield from child.lines(depth + 1)


def why(inference: Inference, code: str) -> Node:
    """For each scope in which the rule fired or was overruled: what it rests on, down to facts."""
    spec = inference.program.by_code[_known(inference, code)].spec
    found = [o for o in inference.by_code.get(code, ()) if o.state in ("fired", "overruled")]
    text = f"{code} {spec.cause}" + ("" if found else ": fired nowhere")
    return Node(text, bool(found), tuple(_fired(inference, o) for o in found))


def why_not(inference: Inference, code: str) -> Node:
    """For each scope in which the rule did not fire, nearest miss first: what stood in the way."""
    spec = inference.program.by_code[_known(inference, code)].spec
    found = [o for o in inference.by_code.get(code, ()) if o.state != "fired"]
    found.sort(key=lambda o: (*_distance(o), o.scope.sort_key()))
    text = f"{code} {spec.cause}" + ("" if found else ": fired everywhere")
    return Node(text, not found, tuple(_missed(inference, o) for o in found))


def _known(inference: Inference, code: str) -> str:
    if code not in inference.program.by_code:
        raise RuleError(f"no active rule has the code {code}; see `advisor rules list`")
    return code


# --- fired -----------------------------------------------------------------------------------


def _fired(inference: Inference, outcome: Outcome) -> Node:
    children: list[Node] = []
    if outcome.state == "overruled":
        children += [_ruler(inference, link) for link in outcome.overruled_by]
    for branch in outcome.branches:
        if branch.truth:
            children += [_condition(inference, c, outcome.scope) for c in branch.conditions]
    children += [_join(j) for j in outcome.joins if j.join.required or j.truth]
    children += [_guard(inference, g.checked, outcome.scope) for g in outcome.guards]
    return Node(f"{_place(outcome.scope)}: {outcome.state}", True, tuple(children))


def _ruler(inference: Inference, link: Link) -> Node:
    ruler = inference.outcome(link.name, link.scope)
    reasons = () if ruler is None else _fired(inference, ruler).children
    return Node(f"overruled by {link.name} ({_place(link.scope)})", True, reasons)


def _condition(inference: Inference, checked: Checked, scope: Scope) -> Node:
    """A condition with both its numbers, and the outcomes behind it."""
    if isinstance(checked.condition, Test):
        return Node(_fact_text(inference, checked, scope), checked.truth)
    children = []
    for link in checked.links:
        outcome = inference.outcome(link.name, link.scope)
        if outcome is not None:
            told = _fired(inference, outcome) if checked.truth else _missed(inference, outcome)
            children.append(Node(f"{link.name}, {told.text}", told.holds, told.children))
    word = {True: "fired", False: "did not fire", None: "could not be judged"}[checked.truth]
    name = f"{checked.condition.kind} {checked.condition.cause} {word}"
    return Node(name, checked.truth, tuple(children))


def _fact_text(inference: Inference, checked: Checked, scope: Scope) -> str:
    test = checked.condition
    assert isinstance(test, Test)
    if checked.truth is None:
        reason = inference.facts.missing.get(test.fact)
        return f"{test.fact} is not known" + (f": {reason}" if reason else "")
    value = natural(checked.value, checked.unit)
    wanted = f"{_WORDS[test.op]} {natural(test.raw, checked.unit)}"
    named = f" ({test.param})" if test.param else ""
    fact = next((x for x in checked.links if x.kind == "fact"), None)
    wider = "" if fact is None or fact.scope == scope else f" ({_place(fact.scope)})"
    text = f"{test.fact}{wider} is {value}, "
    if checked.truth:
        return text + f"{wanted}{named}"
    return text + f"not {wanted}{named}{_short_of(checked)}"


def _short_of(checked: Checked) -> str:
    """How far a number is from its threshold."""
    gap = _gap(checked)
    test = checked.condition
    if gap is None or not isinstance(test, Test) or not isinstance(test.threshold, float):
        return ""
    share = f", {percent(gap / abs(test.threshold))} of the threshold" if test.threshold else ""
    return f": off by {natural(gap, checked.unit)}{share}"


def _gap(checked: Checked) -> float | None:
    test, value = checked.condition, checked.value
    if (
        isinstance(test, Test)
        and isinstance(test.threshold, float)
        and isinstance(value, int | float)
        and test.op in ("lt", "le", "gt", "ge")
        and not isinstance(value, bool)
    ):
        return abs(float(value) - test.threshold)
    return None


def _guard(inference: Inference, checked: Checked, scope: Scope) -> Node:
    inner = _condition(inference, checked, scope)
    word = {True: "stopped, as", False: "not stopped, as", None: "not checked, as"}[checked.truth]
    holds = None if checked.truth is None else not checked.truth
    return Node(f"{word} {inner.text}", holds, inner.children)


def _join(result: JoinResult) -> Node:
    join = result.join
    wanted = [f"{t.fact} {_WORDS[t.op]} {natural(t.raw, '')}" for t in join.where]
    with_ = f" with {', '.join(wanted)}" if wanted else ""
    if result.truth:
        return Node(f"{len(result.rows)} rows of {join.entity}{with_}", True)
    if result.truth is None:
        return Node(f"{' and '.join(result.missing)} is not known", None)
    return Node(f"no row of {join.entity}{with_}", False)


# --- not fired -------------------------------------------------------------------------------


def _missed(inference: Inference, outcome: Outcome) -> Node:
    """What stood in the way in the branch that came nearest."""
    place = f"{_place(outcome.scope)}: "
    if outcome.state == "overruled":
        rulers = tuple(_ruler(inference, link) for link in outcome.overruled_by)
        return Node(f"{place}overruled", False, rulers)
    children: list[Node] = []
    if not any(b.truth for b in outcome.branches):
        branch = min(outcome.branches, key=_branch_distance)
        children += [
            _condition(inference, c, outcome.scope) for c in branch.conditions if not c.truth
        ]
    children += [_join(j) for j in outcome.joins if j.join.required and not j.truth]
    children += [_guard(inference, g.checked, outcome.scope) for g in outcome.guards if not g.clear]
    if outcome.state == "unknown":
        listed = ", ".join(outcome.missing)
        return Node(f"{place}not evaluated, missing {listed}", None, tuple(children))
    return Node(f"{place}quiet", False, tuple(children))


def _distance(outcome: Outcome) -> tuple[int, int, float]:
    """Order of nearness: conditions that fail, conditions unknown, how far the numbers are off."""
    failed, unknown, gap = min(_branch_distance(b) for b in outcome.branches)
    others = [j.truth for j in outcome.joins if j.join.required]
    others += [g.clear for g in outcome.guards]
    if outcome.state == "overruled":
        return 0, 0, 0.0
    return failed + others.count(False), unknown + others.count(None), gap


def _branch_distance(branch: BranchResult) -> tuple[int, int, float]:
    truths = [c.truth for c in branch.conditions]
    gap = sum(_relative(c) for c in branch.conditions if c.truth is False)
    return truths.count(False), truths.count(None), gap


def _relative(checked: Checked) -> float:
    gap, condition = _gap(checked), checked.condition
    if gap is None or not isinstance(condition, Test) or not isinstance(condition.threshold, float):
        return 1.0
    return gap / (abs(condition.threshold) or 1.0)


def _place(scope: Scope) -> str:
    return scope.label() or "whole trace"


def describe(condition: Condition, unit: str = "") -> str:
    """A condition in words, without a value: ``budget.idle_ratio at least 15 %``."""
    if isinstance(condition, Test):
        return f"{condition.fact} {_WORDS[condition.op]} {natural(condition.raw, unit)}"
    return f"{condition.kind} {condition.cause}"
