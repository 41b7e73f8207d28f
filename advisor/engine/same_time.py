"""Findings about mostly the same time become one.

A rule says in `then.same_as` which causes may speak of the same time, and by which fact that shows.
The finding whose fix saves more stays and takes over the other's advice; the other stands under
`explains`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from advisor.engine.infer import Inference
from advisor.engine.interpret import check_fact
from advisor.engine.rank import saved_of
from advisor.model.facts import Scope
from advisor.model.findings import Finding, Symptom
from advisor.model.gain import WORTH
from advisor.model.rules import RuleSpec

#: Two fixes save the same where their estimates are no further apart (shares of the step).
ALIKE = 0.01

#: (code, position in `same_as`, scope) -> the condition of that entry holds.
Holds = Callable[[str, int, Scope], bool]


def holds_in(inference: Inference) -> Holds:
    """The conditions as the facts of an inference have them."""

    def holds(code: str, at: int, scope: Scope) -> bool:
        tests = inference.program.by_code[code].same_as[at]
        return all(check_fact(t, scope, inference.view).truth for t in tests)

    return holds


def unconditional(_code: str, _at: int, _scope: Scope) -> bool:
    """For findings of several captures, where conditions were looked at in each."""
    return False


def without_repeats(
    findings: Iterable[Finding], rules: Mapping[str, RuleSpec], holds: Holds
) -> tuple[Finding, ...]:
    """The findings without repeats of one time that another one stands for. Where two fixes
    save the same, the one whose rule has the `same_as` goes: it names the more precise cause."""
    left = list(findings)
    for declaring in tuple(left):
        rule = rules.get(declaring.code)
        for at, entry in enumerate(rule.then.same_as if rule else ()):
            mine = _at(left, declaring.code, declaring.scope)
            if mine is None or (entry.when and not holds(declaring.code, at, declaring.scope)):
                continue
            other = next(
                (
                    i
                    for i, f in enumerate(left)
                    if f.cause == entry.cause and _overlap(f.scope, declaring.scope)
                ),
                None,
            )
            if other is None:
                continue
            stays, goes = (mine, other) if _ahead(left[mine], left[other]) else (other, mine)
            left[stays] = _joined(left[stays], left[goes])
            del left[goes]
    return tuple(left)


def _at(findings: Sequence[Finding], code: str, scope: Scope) -> int | None:
    return next((i for i, f in enumerate(findings) if (f.code, f.scope) == (code, scope)), None)


def _overlap(one: Scope, other: Scope) -> bool:
    return one.encloses(other) or other.encloses(one)


def _ahead(one: Finding, other: Finding) -> bool:
    """The fix of one saves more than that of the other. Where either has no estimate, what the
    causes hold tells. A symptom is ahead of no cause."""
    if one.kind == "symptom" and other.kind != "symptom":
        return False
    worth, against = _worth(one), _worth(other)
    if worth is None or against is None:
        worth, against = _held(one), _held(other)
    return worth - against >= ALIKE


def _worth(finding: Finding) -> float | None:
    """Share of the step that the fix saves. A larger batch makes no step shorter: it counts as the
    least that is worth telling, so that any fix that does comes before it."""
    saved = saved_of(finding.gain)
    if saved is None or finding.gain is None or finding.gain.measure == "latency":
        return saved
    return min(saved, WORTH)


def _held(finding: Finding) -> float:
    return (finding.impact.share if finding.impact else None) or 0.0


def _joined(stays: Finding, goes: Finding) -> Finding:
    """One finding with the advice of both, and the one estimate where only one has it."""
    told = {r.id for r in stays.recommendations}
    more = () if goes.kind == "symptom" else goes.recommendations
    own = Symptom(code=goes.code, cause=goes.cause, scope=goes.scope, message=goes.message)
    return stays.model_copy(
        update={
            "gain": goes.gain if saved_of(stays.gain) is None else stays.gain,
            "explains": (*stays.explains, own, *(s for s in goes.explains if s not in stays.explains)),
            "recommendations": (*stays.recommendations, *(r for r in more if r.id not in told)),
            "alternatives": tuple({a.action: a for a in (*goes.alternatives, *stays.alternatives)}.values()),
        }
    )
