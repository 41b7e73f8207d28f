"""Why a rule fired, and why not: trees of short statements for ``advisor explain CODE --trace``; and what a
threshold that is a tenth higher or lower would change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from advisor.engine.compile import Condition, Test
from advisor.engine.infer import Inference, infer
from advisor.engine.interpret import BranchResult, Checked, JoinResult, Link, Outcome, OutcomeState
from advisor.engine.judge import message_of
from advisor.engine.values import atom, compare, operand
from advisor.model.explanation import Reason, State
from advisor.model.facts import TRACE, Fact, Scope, Value
from advisor.model.findings import Finding, Related
from advisor.model.gain import Flip, FlipFact, StateChange
from advisor.model.numbers import distance, named_unit, value_text
from advisor.model.rules import RuleSpec

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


STATES: dict[OutcomeState, State] = {
    "fired": "fired",
    "overruled": "overruled",
    "quiet": "quiet",
    "unknown": "not_evaluated",
}


def nearest_first(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes that did not fire, nearest first."""
    return sorted(outcomes, key=lambda o: (*_distance(o), o.scope.sort_key()))


def obstacle(reasons: Iterable[Reason]) -> str:
    """What prevented the outcome, by the tree: the first condition that fails, however deep it lies."""
    found = (_first_failing(reason) for reason in reasons)
    return next((text for text in found if text), "none of its conditions holds")


def _first_failing(reason: Reason) -> str | None:
    if reason.kind == "guard" and reason.holds is False:
        return reason.text
    if reason.holds is not False:
        return None
    return next((text for child in reason.reasons if (text := _first_failing(child))), reason.text)


def shortfall(checked: Checked) -> float | None:
    """How far a number lies from its threshold, as a share of the threshold."""
    gap, numbers = _gap(checked), checked.numbers
    return gap / abs(numbers[1]) if gap is not None and numbers and numbers[1] else None


class Explainer(Struct, frozen=True):
    """Explains outcomes of one inference; `why` says why a fact has no value."""

    inference: Inference
    why: Callable[[str], str | None]

    def tree(self, outcome: Outcome) -> Reason:
        """One outcome with its reasons, down to the facts."""
        return (self._fired if outcome.state in ("fired", "overruled") else self._missed)(outcome)

    def facts(self, reason: Reason, scope: Scope = TRACE) -> Iterator[Fact]:
        """The facts of a tree, in the order in which they appear."""
        scope = scope if reason.rule is None else reason.rule.scope
        if reason.condition is not None:
            fact = self.inference.view.fact(reason.condition.fact, scope)
            if fact is not None:
                yield fact
        for child in reason.reasons:
            yield from self.facts(child, scope)

    def related(self, outcome: Outcome) -> Related:
        """The rule of an outcome, with its message if it fired."""
        return self.rule(outcome.code, outcome.scope, outcome.state in ("fired", "overruled"))

    def rule(self, code: str, scope: Scope, fired: bool = True) -> Related:
        spec = self.inference.program.by_code[code].spec
        text = message_of(self.inference, spec, scope) if fired else ""
        return Related(code=code, cause=spec.cause, scope=scope, message=text)

    def _about(self, outcome: Outcome, reason: Reason) -> Reason:
        """The reason with the rule of the outcome and its state."""
        return reason.replaced(rule=self.related(outcome), state=STATES[outcome.state])

    # --- fired -------------------------------------------------------------------------------

    def _fired(self, outcome: Outcome, name: str = "") -> Reason:
        reasons: list[Reason] = []
        if outcome.state == "overruled":
            reasons += [self._ruler(link) for link in outcome.overruled_by]
        for branch in outcome.branches:
            if branch.truth:
                reasons += [self._condition(c, outcome) for c in branch.conditions]
        reasons += [_join(j) for j in outcome.joins if j.join.required or j.truth]
        reasons += [self._guard(g.checked, outcome) for g in outcome.guards]
        text = f"{name}{_place(outcome.scope)}: {outcome.state}"
        return self._about(outcome, Reason(kind="outcome", text=text, holds=True, reasons=tuple(reasons)))

    def _ruler(self, link: Link) -> Reason:
        found = Reason(kind="ruler", text=f"overruled by {link.name} ({_place(link.scope)})", holds=True)
        ruler = self.inference.outcome(link.name, link.scope)
        if ruler is None:
            return found
        return self._about(ruler, found.replaced(reasons=self._fired(ruler).reasons))

    def _condition(self, checked: Checked, outcome: Outcome) -> Reason:
        """A condition of an outcome with both its numbers, or with the outcomes behind it."""
        test = checked.condition
        if isinstance(test, Test):
            off = shortfall(checked) if checked.truth is False else None
            why = self.why(test.fact) if checked.truth is None else None
            return Reason(
                kind="fact",
                text=fact_text(checked, outcome.scope, why),
                holds=checked.truth,
                condition=checked.doc,
                off_by=None if off is None else round(off, 6),
                why=why,
            )
        behind = (self.inference.outcome(link.name, link.scope) for link in checked.links)
        word = {True: "fired", False: "did not fire", None: "could not be judged"}[checked.truth]
        explain = self._fired if checked.truth else self._missed
        return Reason(
            kind="state",
            text=f"{test.kind} {test.cause} {word}",
            holds=checked.truth,
            reasons=tuple(explain(o, f"{o.code}, ") for o in behind if o is not None),
        )

    def _guard(self, checked: Checked, outcome: Outcome) -> Reason:
        inner = self._condition(checked, outcome)
        word = {True: "stopped, as", False: "not stopped, as", None: "not checked, as"}
        holds = None if checked.truth is None else not checked.truth
        text = f"{word[checked.truth]} {inner.text}"
        return inner.replaced(kind="guard", text=text, holds=holds)

    # --- not fired ---------------------------------------------------------------------------

    def _missed(self, outcome: Outcome, name: str = "") -> Reason:
        """Why the rule did not fire: the nearest branch, then other conditions, then the other branches."""
        place = f"{name}{_place(outcome.scope)}: "
        if outcome.state == "overruled":
            rulers = tuple(map(self._ruler, outcome.overruled_by))
            found = Reason(kind="outcome", text=f"{place}overruled", holds=False, reasons=rulers)
            return self._about(outcome, found)
        reasons: list[Reason] = []
        others: list[Reason] = []
        if not any(b.truth for b in outcome.branches):
            nearest, *rest = sorted(outcome.branches, key=_branch_distance)
            reasons += self._misses(nearest, outcome)
            missed = ((b, self._misses(b, outcome)) for b in rest)
            others = [
                Reason(kind="branch", text=f"nor {b.name}", holds=b.truth, reasons=r) for b, r in missed
            ]
        reasons += [_join(j) for j in outcome.joins if j.join.required and not j.truth]
        reasons += [self._guard(g.checked, outcome) for g in outcome.guards if not g.clear]
        found = Reason(kind="outcome", text=f"{place}quiet", holds=False, reasons=(*reasons, *others))
        if outcome.state == "unknown":
            text = f"{place}not evaluated, missing {', '.join(outcome.missing)}"
            found = found.replaced(text=text, holds=None)
        return self._about(outcome, found)

    def _misses(self, branch: BranchResult, outcome: Outcome) -> tuple[Reason, ...]:
        """The conditions of a branch: failed ones (farthest first), unknown ones, then met ones."""
        ordered = sorted(
            branch.conditions,
            key=lambda c: (c.truth is not False, c.truth is True, -_relative(c) * (c.truth is False)),
        )
        return tuple(self._condition(c, outcome) for c in ordered)


# --- texts and distances ---------------------------------------------------------------------


def fact_text(checked: Checked, scope: Scope, why: str | None = None) -> str:
    """``x.ratio is 12 %, at least 10 % (min_x)``; `why` says why the fact has no value."""
    test = checked.condition
    assert isinstance(test, Test)
    wanted = f"{_WORDS[test.op]} {value_text(test.raw, checked.doc.unit or named_unit(test.fact))}"
    wanted += f" ({test.param})" if test.param else ""
    if checked.truth is None:
        return f"whether {test.fact} is {wanted} is not known" + (f": {why}" if why else "")
    fact = next((x for x in checked.links if x.kind == "fact"), None)
    wider = "" if fact is None or fact.scope == scope else f" ({_place(fact.scope)})"
    text = f"{test.fact}{wider} is {value_text(checked.doc.value, checked.doc.unit)}, "
    return text + (wanted if checked.truth else f"not {wanted}{_short_of(checked)}")


def _short_of(checked: Checked) -> str:
    """How far a number is from its threshold."""
    gap, share = _gap(checked), shortfall(checked)
    if gap is None:
        return ""
    if share or not gap:
        return f": {distance(share or 0.0)}"
    return f": off by {value_text(gap, checked.doc.unit)}"


def _gap(checked: Checked) -> float | None:
    numbers = checked.numbers
    return None if numbers is None else abs(numbers[0] - numbers[1])


def _join(result: JoinResult) -> Reason:
    join = result.join
    wanted = [f"{t.fact} {_WORDS[t.op]} {value_text(t.raw, '')}" for t in join.where]
    with_ = f" with {', '.join(wanted)}" if wanted else ""
    if result.truth:
        count = len(result.rows)
        text = f"{count} {'row' if count == 1 else 'rows'} of {join.entity}{with_}"
    elif result.truth is None:
        text = f"{' and '.join(result.missing)} is not known"
    else:
        text = f"no row of {join.entity}{with_}"
    return Reason(kind="rows", text=text, holds=result.truth)


def _distance(outcome: Outcome) -> tuple[int, int, float]:
    """How near: number of conditions not known to hold, number that fail, distance of the numbers."""
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
        return f"{condition.fact} {_WORDS[condition.op]} {value_text(condition.raw, unit)}"
    return f"{condition.kind} {condition.cause}"


# --- verdicts that depend on the exact value of a threshold ---------------------------------------
# Every numeric parameter is moved to 0.9 and to 1.1 times its value, one at a time, and the rules are
# inferred again over the same facts. A parameter whose move changes the truth of no condition on any fact
# or row cannot change a verdict, so only the others are run; of those only the one rule is compiled anew.
# The interpreter does it, whichever engine ran: it defines what a rule means. A move of a count by less
# than one (one capture range, five steps) has no effect.

#: How far each threshold is moved.
STEPS = (0.9, 1.1)

#: The findings of an inference, in their order.
Findings = Callable[[Inference], Sequence[Finding]]


def sensitivity(inference: Inference, findings: Findings) -> tuple[Flip, ...]:
    """Every move of a threshold that changes the outcome of a rule, in order of code and name."""
    before = {(o.code, o.scope): o.state for o in inference.outcomes}
    ranked = findings(inference)
    first = ranked[0] if ranked else None
    facts: dict[str, list[Fact]] = {}
    for fact in inference.facts:
        facts.setdefault(fact.name, []).append(fact)
    flips = []
    for (code, name), old in sorted(inference.program.params.items()):
        if isinstance(old, bool) or not isinstance(old, int | float) or old == 0:
            continue
        rule = inference.program.by_code[code]
        tests = [t for t in rule.tests() if t.param == name]
        fields = [(j.entity, t) for j in rule.joins for t in j.where if t.param == name]
        for factor in STEPS:
            new = _moved(rule.spec, name, old, factor, [*tests, *(t for _, t in fields)])
            between = [(t, f) for t in tests for f in facts.get(t.fact, ()) if _between(t, new, f.value)]
            rows = ((t, row) for entity, t in fields for row in inference.facts.entities.get(entity, ()))
            if not between and not any(_between(t, new, row.get(t.fact)) for t, row in rows):
                continue
            program = inference.program.with_param((code, name), new)
            after = infer(inference.facts, program, engine="python")
            changed = [o for o in after.outcomes if before[o.code, o.scope] != o.state]
            if not changed:
                continue
            again = findings(after)
            now = again[0] if again else None
            same = (first and (first.code, first.scope)) == (now and (now.code, now.scope))
            crossed = (
                FlipFact(fact=f.name, op=t.op, value=f.value, unit=f.unit, scope=f.scope) for t, f in between
            )
            states = ((o, STATES[before[o.code, o.scope]], STATES[o.state]) for o in changed)
            flip = Flip(
                code=code,
                cause=rule.spec.cause,
                param=name,
                unit=rule.spec.params[name].unit,
                threshold=old,
                moved_to=new,
                facts=tuple(dict.fromkeys(crossed)),
                changes=tuple(
                    StateChange(code=o.code, cause=o.cause, scope=o.scope, before=was, after=is_)
                    for o, was, is_ in states
                ),
                first_before=None if same or first is None else first.code,
                first_after=None if same or now is None else now.code,
            )
            flips.append(flip)
    return tuple(flips)


def _moved(spec: RuleSpec, name: str, old: float, factor: float, tests: Iterable[Test]) -> float:
    """The threshold moved; a share of a whole cannot exceed one."""
    new = round(old * factor, 9)
    whole = spec.params[name].unit == "ratio" and not any("_over_" in t.fact for t in tests)
    return 1.0 if whole and old <= 1.0 < new else new


def _between(test: Test, new: float, raw: Value | None) -> bool:
    """True if the move changes the truth of the comparison for this value."""
    assert isinstance(test.threshold, float)
    if isinstance(raw, int) and abs(new - test.threshold) < 1:
        return False
    value = atom(raw)
    return test.holds(value) != compare(value, test.op, operand(new))
