"""Each part of the time names the causes that speak of it, and says why they hold no more of it."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine.states import answered
from advisor.model.facts import Scope
from advisor.model.findings import Budget, Finding, Part, Related
from tests.engine.engine_support import DEV, ge, rule
from tests.engine.test_states import concluded

IMPACT = {"fact": "f.gap", "part": "host_between", "also": ["launch_call"]}
CAUSE = rule("HST101", "host-gap", [ge("f.gap", 0.1)], impact=IMPACT)
SYMPTOM = rule("UTL102", "idle", [ge("f.gap", 0.1)], kind="symptom", impact={"fact": "f.gap", "part": "sync"})
DAMAGE = rule("CAP101", "damaged", [ge("f.gap", 0.1)], invalidates=True, impact=IMPACT)


def found(spec: Any, gap: float, scope: Scope = DEV) -> Finding:
    (finding,) = [f for f in concluded({"f.gap": gap}, spec).findings if f.code == spec.code]
    return finding.replaced(scope=scope)


def parts(spec: Any, finding: Finding, phase: str | None = None, **shares: float) -> dict[str, Part]:
    """The parts of the budget of device 0 in rank 3, as the finding answers them."""
    given = tuple(Part(part=name, ms=1.0, share=share) for name, share in shares.items())
    budget = Budget(device=0, rank=3, window_ms=10.0, phase=phase, parts=given)
    (answer,) = answered([budget], [finding], {spec.code: spec}, lambda _, part: f"why {part.part}")
    return {p.part: p for p in answer.parts}


@pytest.mark.parametrize(
    ("gap", "why"),
    [(0.30, None), (0.25, None), (0.20, "why host_between")],  # half of the 40 + 10 % are 25 %
)
def test_a_cause_that_holds_half_of_its_parts_needs_no_other_word(gap: float, why: str | None) -> None:
    (told, other) = parts(CAUSE, found(CAUSE, gap), host_between=0.4, launch_call=0.1).values()
    assert (told.findings, told.why) == (("host-gap",), why)
    assert other.findings == ("host-gap",)


@pytest.mark.parametrize(("share", "spoken"), [(0.03, True), (0.029, False)])
def test_parts_of_less_than_three_percent_are_not_spoken_of(share: float, spoken: bool) -> None:
    told = parts(CAUSE, found(CAUSE, 0.3), host_between=share, sync=0.2)
    assert bool(told["host_between"].findings) == spoken
    assert (told["sync"].findings, told["sync"].why) == ((), "why sync")


def test_the_budget_of_a_phase_is_left_as_it_is() -> None:
    (told,) = parts(CAUSE, found(CAUSE, 0.3), phase="decode", host_between=0.4).values()
    assert (told.findings, told.why) == ((), None)


@pytest.mark.parametrize("busy", [True, False])
def test_of_work_a_cause_need_not_hold_most(busy: bool) -> None:
    """What computes is no loss: one cause that speaks of it is enough."""
    part = "compute" if busy else "sync"
    spec = rule("KRN101", "slow", [ge("f.gap", 0.1)], impact={"fact": "f.gap", "part": part})
    (told,) = parts(spec, found(spec, 0.1), **{part: 0.9}).values()
    assert (told.findings, told.why) == (("slow",), None if busy else f"why {part}")


@pytest.mark.parametrize(
    ("scope", "spoken"),
    [
        (DEV, True),
        (Scope(), True),
        (Scope(rank=3, device=0), True),
        (Scope(rank=2, device=0), False),
        (Scope(rank=2), True),  # a whole rank: its part in the job
        (Scope(device=1), False),
    ],
)
def test_only_causes_of_this_device_speak(scope: Scope, spoken: bool) -> None:
    (told,) = parts(CAUSE, found(CAUSE, 0.3, scope), host_between=0.4).values()
    assert (told.findings == ("host-gap",)) == spoken


def test_a_symptom_speaks_of_its_own_part() -> None:
    (told,) = parts(SYMPTOM, found(SYMPTOM, 0.3), sync=0.4).values()
    assert told.findings == ("idle",)


def test_a_cause_does_not_speak_of_the_parts_of_its_symptoms() -> None:
    budget = Budget(device=0, rank=3, window_ms=10.0, parts=(Part(part="sync", ms=1.0, share=0.4),))
    explained = found(CAUSE, 0.3).replaced(
        explains=(Related(code=SYMPTOM.code, cause=SYMPTOM.cause, scope=DEV),)
    )
    known = {s.code: s for s in (CAUSE, SYMPTOM)}
    (told,) = answered([budget], [explained], known, lambda *_: "why")
    assert (told.parts[0].findings, told.parts[0].why) == ((), "why")


def test_a_cause_that_holds_nothing_explains_nothing() -> None:
    finding = found(CAUSE, 0.3)
    assert finding.impact is not None
    (told,) = parts(
        CAUSE, finding.replaced(impact=finding.impact.replaced(share=0.0)), host_between=0.4
    ).values()
    assert (told.findings, told.why) == (("host-gap",), "why host_between")


def test_where_the_capture_is_damaged_nothing_more_is_said() -> None:
    (told,) = parts(DAMAGE, found(DAMAGE, 0.1), host_between=0.9).values()
    assert (told.findings, told.why) == (("damaged",), None)


def test_a_cause_without_its_share_speaks_of_no_part() -> None:
    finding = found(CAUSE, 0.3)
    assert finding.impact is not None
    for impact in (None, finding.impact.replaced(share=None)):
        (told,) = parts(CAUSE, finding.replaced(impact=impact), host_between=0.4).values()
        assert (told.findings, told.why) == ((), "why host_between")
