"""Why a rule fired, and why not: trees of short statements for ``advisor explain CODE --trace``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

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
    "known": "known:",
}


Kind = Literal["rule", "outcome", "fact", "state", "rows", "guard", "ruler", "branch"]


@dataclass(frozen=True, slots=True)
class Node:
    """One statement; `holds` is its truth (None: unknown), `children` are its reasons.

    `checked` is the condition behind a fact, state or guard, `outcome` the rule behind an outcome.
    """

    text: str
    holds: bool | None = None
    children: tuple[Node, ...] = ()
    kind: Kind = "rule"
    checked: Checked | None = None
    outcome: Outcome | None = None

    def lines(self, depth: int = 0) -> Iterator[str]:
        yield "  " * depth + self.text
        for child in self.children:
            yield from child.lines(depth + 1)

    def walk(self) -> Iterator[Node]:
        """The node and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


def why(inference: Inference, code: str) -> Node:
    """For each scope in which the rule fired or was overruled: what it rests on, down to facts."""
    spec = inference.program.by_code[_known(inference, code)].spec
    found = [o for o in inference.by_code.get(code, ()) if o.state in ("fired", "overruled")]
    text = f"{code} {spec.cause}" + ("" if found else ": fired nowhere")
    return Node(text, bool(found), tuple(_fired(inference, o) for o in found))


def why_not(inference: Inference, code: str) -> Node:
    """For each scope in which the rule did not fire, nearest miss first: what stood in the way."""
    spec = inference.program.by_code[_known(inference, code)].spec
    found = nearest_first(o for o in inference.by_code.get(code, ()) if o.state != "fired")
    text = f"{code} {spec.cause}" + ("" if found else ": fired everywhere")
    return Node(text, not found, tuple(_missed(inference, o) for o in found))


def tree(inference: Inference, outcome: Outcome) -> Node:
    """One outcome with its reasons, down to the facts."""
    if outcome.state in ("fired", "overruled"):
        return _fired(inference, outcome)
    return _missed(inference, outcome)


def nearest_first(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes that did not fire, those that missed by least first."""
    return sorted(outcomes, key=lambda o: (*_distance(o), o.scope.sort_key()))


def shortfall(checked: Checked) -> float | None:
    """How far a number lies from its threshold, as a share of the threshold."""
    gap, test = _gap(checked), checked.condition
    if gap is None or not isinstance(test, Test) or not isinstance(test.threshold, float):
        return None
    return gap / abs(test.threshold) if test.threshold else None


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
    text = f"{_place(outcome.scope)}: {outcome.state}"
    return Node(text, True, tuple(children), "outcome", outcome=outcome)


def _ruler(inference: Inference, link: Link) -> Node:
    ruler = inference.outcome(link.name, link.scope)
    reasons = () if ruler is None else _fired(inference, ruler).children
    text = f"overruled by {link.name} ({_place(link.scope)})"
    return Node(text, True, reasons, "ruler", outcome=ruler)


def _condition(inference: Inference, checked: Checked, scope: Scope) -> Node:
    """A condition with both its numbers, and the outcomes behind it."""
    if isinstance(checked.condition, Test):
        text = _fact_text(inference, checked, scope)
        return Node(text, checked.truth, (), "fact", checked)
    children = []
    for link in checked.links:
        outcome = inference.outcome(link.name, link.scope)
        if outcome is not None:
            told = _fired(inference, outcome) if checked.truth else _missed(inference, outcome)
            children.append(replace(told, text=f"{link.name}, {told.text}"))
    word = {True: "fired", False: "did not fire", None: "could not be judged"}[checked.truth]
    name = f"{checked.condition.kind} {checked.condition.cause} {word}"
    return Node(name, checked.truth, tuple(children), "state", checked)


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
    gap, share = _gap(checked), shortfall(checked)
    if gap is None:
        return ""
    if gap == 0.0:
        return ": exactly on it"
    off = natural(gap, checked.unit) if share is None else f"{percent(share)} of the threshold"
    return f": off by {off}"


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
    return Node(f"{word} {inner.text}", holds, inner.children, "guard", checked)


def _join(result: JoinResult) -> Node:
    join = result.join
    wanted = [f"{t.fact} {_WORDS[t.op]} {natural(t.raw, '')}" for t in join.where]
    with_ = f" with {', '.join(wanted)}" if wanted else ""
    if result.truth:
        count = len(result.rows)
        text = f"{count} {'row' if count == 1 else 'rows'} of {join.entity}{with_}"
    elif result.truth is None:
        text = f"{' and '.join(result.missing)} is not known"
    else:
        text = f"no row of {join.entity}{with_}"
    return Node(text, result.truth, (), "rows")


# --- not fired -------------------------------------------------------------------------------


def _missed(inference: Inference, outcome: Outcome) -> Node:
    """What stood in the way: of the branch that came nearest first, then what held there, then
    the other branches."""
    place = f"{_place(outcome.scope)}: "
    if outcome.state == "overruled":
        rulers = tuple(_ruler(inference, link) for link in outcome.overruled_by)
        return Node(f"{place}overruled", False, rulers, "outcome", outcome=outcome)
    children: list[Node] = []
    others: list[Node] = []
    if not any(b.truth for b in outcome.branches):
        nearest, *rest = sorted(outcome.branches, key=_branch_distance)
        children += _misses(inference, nearest, outcome.scope)
        others = [
            Node(f"nor {b.name}", b.truth, _misses(inference, b, outcome.scope), "branch")
            for b in rest
        ]
    children += [_join(j) for j in outcome.joins if j.join.required and not j.truth]
    children += [_guard(inference, g.checked, outcome.scope) for g in outcome.guards if not g.clear]
    text = f"{place}quiet"
    if outcome.state == "unknown":
        text = f"{place}not evaluated, missing {', '.join(outcome.missing)}"
    holds = None if outcome.state == "unknown" else False
    return Node(text, holds, (*children, *others), "outcome", outcome=outcome)


def _misses(inference: Inference, branch: BranchResult, scope: Scope) -> tuple[Node, ...]:
    """The conditions of a branch: those that fail, farthest first, then the unknown, then those
    that hold."""
    ordered = sorted(
        branch.conditions,
        key=lambda c: (c.truth is not False, c.truth is True, -_relative(c) * (c.truth is False)),
    )
    return tuple(_condition(inference, c, scope) for c in ordered)


def _distance(outcome: Outcome) -> tuple[int, int, float]:
    """Order of nearness: conditions that are not known to hold, those of them that fail, how far
    the numbers are off."""
    if outcome.state == "overruled":
        return 0, 0, 0.0
    open_, failed, gap = min(_branch_distance(b) for b in outcome.branches)
    others = [j.truth for j in outcome.joins if j.join.required]
    others += [g.clear for g in outcome.guards]
    return open_ + len(others) - others.count(True), failed + others.count(False), gap


def _branch_distance(branch: BranchResult) -> tuple[int, int, float]:
    truths = [c.truth for c in branch.conditions]
    failed = truths.count(False)
    gap = sum(_relative(c) for c in branch.conditions if c.truth is False)
    return failed + truths.count(None), failed, gap


def _relative(checked: Checked) -> float:
    gap, share = _gap(checked), shortfall(checked)
    return 1.0 if gap is None else gap if share is None else share


def _place(scope: Scope) -> str:
    return scope.label() or "whole trace"


def describe(condition: Condition, unit: str = "") -> str:
    """A condition in words, without a value: ``budget.idle_ratio at least 15 %``."""
    if isinstance(condition, Test):
        return f"{condition.fact} {_WORDS[condition.op]} {natural(condition.raw, unit)}"
    return f"{condition.kind} {condition.cause}"
