"""Fixes of one finding, each by what it gains itself."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine.judge import predicted
from advisor.model.findings import Finding
from advisor.model.gain import Advice, Alternative, Gain, Prediction, Span


def gain(what: str, speedup: float, measure: Any = "latency") -> Gain:
    return Gain(what_if=what, speedup=Span(low=speedup, mid=speedup, high=speedup), measure=measure)


def finding(**more: Any) -> Finding:
    body = {
        "code": "ABC100",
        "cause": "c",
        "title": "t",
        "severity": "info",
        "confidence": 1.0,
        "message": "m",
    }
    return Finding(**{**body, **more})


def asked(what: str) -> Gain:
    return Gain(what_if=what)


def after(found: Finding, whole: Gain, **own: Gain) -> Finding:
    return predicted(found, Prediction(whole, tuple((asked(name), g) for name, g in own.items()), None))


def with_advice(*ids: str, effort: Any = "medium", **more: Any) -> Finding:
    advice = tuple(Advice(id=i, action=f"Do {i}.", effort=effort, gain=asked(i)) for i in ids)
    return finding(recommendations=advice, **more)


def test_the_fix_that_gains_most_comes_first_and_is_the_gain_of_the_finding() -> None:
    found = after(
        with_advice("lock", "read"), gain("all", 2.0), lock=gain("lock", 1.1), read=gain("read", 1.7)
    )
    assert [a.id for a in found.recommendations] == ["read", "lock"]
    assert found.gain == gain("read", 1.7)


def test_a_fix_that_gains_nothing_here_is_not_listed_unless_it_is_the_only_one() -> None:
    found = after(
        with_advice("lock", "read"), gain("all", 2.0), lock=gain("lock", 1.004), read=gain("read", 2.0)
    )
    assert [a.id for a in found.recommendations] == ["read"]
    alone = after(with_advice("lock"), gain("all", 1.0), lock=gain("lock", 1.0))
    assert [a.id for a in alone.recommendations] == ["lock"]


def test_fixes_without_a_gain_of_their_own_keep_their_place() -> None:
    advice = Advice(id="any", action="Do any.")
    found = after(
        finding(recommendations=(advice, *with_advice("lock", "read").recommendations)),
        gain("all", 2.0),
        lock=gain("lock", 1.1),
        read=gain("read", 1.7),
    )
    assert [a.id for a in found.recommendations] == ["any", "read", "lock"]
    assert found.gain == gain("all", 2.0)


@pytest.mark.parametrize(
    ("effort", "measure", "condition", "leads"),
    [
        ("low", "latency", None, True),
        ("medium", "latency", None, True),
        ("high", "latency", None, False),  # more effort
        ("low", "throughput", None, False),  # shortens no step
        ("low", "latency", "the model allows it", False),  # perhaps not possible
    ],
)
def test_an_alternative_that_gains_more_at_no_more_effort_leads(
    effort: Any, measure: Any, condition: str | None, leads: bool
) -> None:
    other = Alternative(
        action="kv", text="Store it.", effort=effort, gain=asked("kv"), condition=condition, what_if="kv"
    )
    advice = Advice(id="weights", action="Store weights.", effort="medium")
    found = after(
        finding(recommendations=(advice,), alternatives=(other,)),
        gain("weights", 1.12),
        kv=gain("kv", 1.21, measure),
    )
    assert [a.id for a in found.recommendations] == (["kv", "weights"] if leads else ["weights"])
    assert found.gain is not None
    assert found.gain.what_if == ("kv" if leads else "weights")
    assert len(found.alternatives) == (0 if leads else 1)
