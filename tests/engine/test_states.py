"""Three states: fired, in order (or close to a finding), not judged (stopped or lacking facts)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from advisor.engine.compile import Program, compile_rules
from advisor.engine.conclude import Conclusions, conclude
from advisor.engine.infer import Inference, infer
from advisor.engine.judge import impact_of
from advisor.facts.catalog import CATALOGUE
from advisor.model.facts import TRACE, Fact, FactBase, Row
from advisor.model.rules import Then
from tests.engine.engine_support import base, ge, rule, rules
from tests.shipped import shipped_rules

GAP = rule(
    "HST101",
    "host-gap",
    [ge("f.gap", 0.1)],
    healthy="{f.gap|pct} is idle",
    impact={"fact": "f.gap", "part": "host_between"},
)
REPLAY = rule("LCH104", "replay-gaps", [ge("f.replay", 0.1)], healthy="{f.replay|pct} is idle")
SHORT = rule("CAP105", "too-short", [{"fact": "f.steps", "op": "lt", "value": 5}], withholds_health=True)


def concluded(values: dict[str, Any], *specs: Any) -> Conclusions:
    return conclude(infer(base(values), rules(*specs), engine="python"))


@pytest.mark.parametrize(
    ("gap", "state"),
    [
        (0.0, "in order"),
        (0.02, "in order"),
        (0.03, "observed"),
        (0.089, "observed"),
        (0.091, "close"),
        (0.099, "close"),
    ],
)
def test_a_tick_means_a_small_impact(gap: float, state: str) -> None:
    (entry,) = concluded({"f.gap": gap}, GAP).healthy
    assert (entry.state, entry.close) == (state, state == "close")


@pytest.mark.parametrize(
    ("there", "state"),
    [
        ({"f.graphs": 1, "f.more": 0}, "in order"),
        ({"f.more": 1}, "in order"),
        ({"f.graphs": 0}, "does not apply"),
        ({}, "does not apply"),
    ],
)
def test_what_looks_at_nothing_does_not_apply(there: dict[str, Any], state: str) -> None:
    """One of the conditions says that its subject is there; one that is unknown does not."""
    graphs = rule(
        "LCH104", "a", [ge("f.replay", 0.1)], healthy="ok", looks_at=[ge("f.graphs", 1), ge("f.more", 1)]
    )
    (entry,) = concluded({"f.replay": 0.0, **there}, graphs).healthy
    assert entry.state == state


def test_a_rule_for_captures_of_another_kind_does_not_apply() -> None:
    spec = rule(
        "LCH104", "a", [ge("f.x", 0.1), {"fact": "f.decode", "op": "eq", "value": True}], healthy="ok"
    )
    (entry,) = concluded({"f.x": 0.3, "f.decode": False}, spec).healthy
    assert entry.state == "does not apply"


def test_a_note_that_fired_is_no_tick() -> None:
    (entry,) = concluded({"f.x": 0.3}, rule("LCH104", "a", [ge("f.x", 0.1)], kind="note")).healthy
    assert entry.state == "observed"


@pytest.mark.parametrize(("value", "close"), [(0.089, False), (0.091, True), (0.0999, True)])
def test_within_a_tenth_of_a_threshold_is_close(value: float, close: bool) -> None:
    (entry,) = concluded({"f.replay": value}, REPLAY).healthy
    assert entry.close is close


@pytest.mark.parametrize(("share", "close"), [(0.026, False), (0.028, True), (0.029, True), (0.031, True)])
def test_near_a_threshold_is_close_where_its_time_is_not_far_from_worth_it(share: float, close: bool) -> None:
    """Worth a look are 3 %; a tenth less is not far from that."""
    spec = rule("HST102", "a", [ge("f.x", 0.1)], healthy="ok", impact={"fact": "f.y", "part": "host_between"})
    (entry,) = concluded({"f.x": 0.095, "f.y": share}, spec).healthy
    assert entry.close is close


@pytest.mark.parametrize(("rows", "healthy"), [([], True), ([{"device": 0}], False)])
def test_what_a_rule_looks_for_is_absent_where_its_rows_are(rows: list[Row], healthy: bool) -> None:
    spec = rule(
        "ABC101",
        "a",
        {"all": [ge("f.x", 0.1)], "join": [{"as": "r", "entity": "rows", "on": ["device"]}]},
        unless=[ge("f.hidden", 0.5)],
        healthy="there are none",
    )
    facts = base({"f.x": 0.3, "f.hidden": 0.9}, entities={"rows": rows})
    found = conclude(infer(facts, rules(spec), engine="python"))
    assert bool(found.healthy) is healthy


def test_near_one_threshold_and_far_from_another_is_not_close() -> None:
    two = rule("ABC101", "a", [ge("f.x", 0.1), ge("f.y", 0.1)], healthy="ok")
    (entry,) = concluded({"f.x": 0.095, "f.y": 0.0}, two).healthy
    assert not entry.close


def test_what_a_guard_stopped_is_no_tick() -> None:
    guarded = REPLAY.replaced(
        unless=rule("ABC102", "x", [ge("f.x", 0)], unless=[ge("f.hidden", 0.01)]).unless
    )
    found = concluded({"f.replay": 0.3, "f.hidden": 0.5}, guarded)
    assert not found.healthy
    assert not found.findings
    (entry,) = found.not_evaluated
    assert (entry.stopped_by, entry.missing) == ("f.hidden", ())
    assert entry.why == "f.hidden is 50 %, at least 1 %"


def test_what_is_overruled_is_not_judged() -> None:
    ruler = GAP.replaced(then=Then(overrules=("replay-gaps",)))
    found = concluded({"f.gap": 0.3, "f.replay": 0.3}, ruler, REPLAY)
    assert [(n.code, n.stopped_by) for n in found.not_evaluated] == [("LCH104", "host-gap")]
    assert [o.code for o in found.overruled] == ["LCH104"]


def test_a_capture_that_is_too_short_has_findings_but_no_ticks() -> None:
    found = concluded({"f.steps": 1, "f.gap": 0.3, "f.replay": 0.0}, SHORT, GAP, REPLAY)
    assert {f.code for f in found.findings} == {"CAP105", "HST101"}
    assert not found.healthy
    assert [(n.code, n.stopped_by) for n in found.not_evaluated] == [("LCH104", "too-short")]


def test_what_lacks_facts_is_stopped_by_nothing() -> None:
    (entry,) = concluded({}, GAP).not_evaluated
    assert (entry.missing, entry.stopped_by) == (("f.gap",), None)


# --- whatever the facts are ------------------------------------------------------------------


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_rules(shipped_rules().about("trace"))


def random_facts(program: Program, seed: int) -> FactBase:
    """Facts of the whole trace that lie on, near and far from thresholds; a fifth is unknown."""
    rng = random.Random(seed)
    facts = FactBase()
    wanted: dict[str, list[Any]] = {}
    for one in program.by_code.values():
        for test in one.tests():
            wanted.setdefault(test.fact, []).append(test.raw)
        for name in () if one.spec.impact is None else one.spec.impact.facts:
            wanted.setdefault(name, []).append(0.03)
    for name, thresholds in sorted(wanted.items()):
        spec = CATALOGUE.get(name)
        if spec is None or rng.random() < 0.2:
            continue
        limit = rng.choice(thresholds)
        limit = rng.choice(limit) if isinstance(limit, tuple) else limit
        if isinstance(limit, bool):
            value: Any = rng.choice([True, False])
        elif isinstance(limit, int | float):
            value = float(limit) * rng.choice([0.0, 0.5, 0.85, 0.99, 1.0, 1.1, 3.0])
            value = min(value, 1.0) if spec.unit == "ratio" else value
        else:
            value = rng.choice([limit, "other"])
        facts.add(Fact(name, value, spec.unit, TRACE))
    return facts


@pytest.mark.parametrize("seed", range(20))
def test_texts_and_states_agree(program: Program, seed: int) -> None:
    inference = infer(random_facts(program, seed), program, engine="python")
    found = conclude(inference)
    fired = {f.code for f in found.findings} | {s.code for f in found.findings for s in f.explains}
    healthy, not_judged = {h.code for h in found.healthy}, {n.code for n in found.not_evaluated}
    assert not fired & (healthy | not_judged)
    assert not healthy & not_judged
    assert {o.code for o in found.overruled} <= not_judged
    for entry in found.not_evaluated:
        assert bool(entry.missing) is (entry.stopped_by is None)
    for entry in found.healthy:
        assert entry.state != "in order" or share_of(inference, entry.code) < 0.03, entry
    busy = inference.facts.value("capture.steps_busy_ratio")
    short = "CAP105" in fired and isinstance(busy, float) and busy < 0.9
    if short or fired & {"CAP111", "CAP122"}:
        assert not any(entry.applies for entry in found.healthy)


def share_of(inference: Inference, code: str) -> float:
    """The share of the step that a quiet rule is about; notes and the capture itself have none."""
    spec = inference.program.by_code[code].spec
    impact = impact_of(inference, spec, TRACE)
    if spec.kind == "note" or impact is None or impact.part == "capture":
        return 0.0
    return impact.share or 0.0
