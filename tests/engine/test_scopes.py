"""Where rules are evaluated and what they see from there: facts, outcomes, rows."""

from __future__ import annotations

import pytest

from advisor.engine.durable import available
from advisor.engine.infer import Engine, Inference, infer
from advisor.engine.interpret import FactView
from advisor.engine.load import RuleSet
from advisor.model.facts import TRACE, Fact, FactBase, Row, Scope
from tests.engine.engine_support import DECODE, DEV, SCOPES, base, because, ge, put, rule, rules

ENGINES: list[Engine] = ["python"]
if available()[0]:
    ENGINES.append("durable")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param  # type: ignore[no-any-return]


def states(found: Inference, code: str) -> dict[str, str]:
    return {o.scope.label(): o.state for o in found.by_code[code]}


def test_view_agrees_with_the_fact_base() -> None:
    facts = FactBase()
    for i, scope in enumerate(SCOPES):
        facts.add(Fact("f.a", i, "count", scope))
    view = FactView(facts)
    for scope in (*SCOPES, Scope(rank=1, device=0, phase="decode", operation="gemm")):
        assert view.fact("f.a", scope) == facts.get("f.a", scope)


def test_a_rule_is_evaluated_in_every_scope_of_its_level(engine: Engine) -> None:
    facts = base({"f.a": 1})
    put(facts, {"f.a": 0}, Scope(device=1))
    found = infer(facts, rules(rule("ABC100", "c", [ge("f.a", 1)])), engine=engine)
    assert states(found, "ABC100") == {"device 0": "fired", "device 1": "quiet"}


def test_wider_facts_are_visible_and_narrower_are_not(engine: Engine) -> None:
    facts = base({"f.wide": 1}, TRACE)
    put(facts, {"f.here": 1}, DEV)
    put(facts, {"f.narrow": 1}, DECODE)
    both = rule("ABC100", "c", [ge("f.wide", 1), ge("f.here", 1)])
    below = rule("ABC101", "d", [ge("f.narrow", 1)])
    found = infer(facts, rules(both, below), engine=engine)
    assert states(found, "ABC100") == {"device 0": "fired"}
    assert states(found, "ABC101") == {"device 0": "unknown"}


def test_without_a_device_the_whole_trace_is_judged(engine: Engine) -> None:
    one = rule("ABC100", "c", [ge("f.a", 1)])
    found = infer(FactBase(), rules(one), engine=engine)
    (outcome,) = found.outcomes
    assert (outcome.scope, outcome.state, outcome.missing) == (TRACE, "unknown", ("f.a",))


def test_without_a_phase_the_device_is_judged(engine: Engine) -> None:
    one = rule("ABC100", "c", [ge("f.a", 1)], scope="phase")
    assert states(infer(base({"f.a": 1}), rules(one), engine=engine), "ABC100") == {"device 0": "fired"}


def chained(condition: dict[str, str], scope: str, symptom_scope: str) -> RuleSet:
    symptom = rule("ABC100", "s", [ge("f.a", 1)], kind="symptom", scope=symptom_scope)
    return rules(symptom, rule("ABC101", "c", [condition], scope=scope))


def test_a_symptom_is_seen_from_narrower_scopes(engine: Engine) -> None:
    facts = base({"f.a": 1})
    put(facts, {"f.b": 1}, DECODE)
    found = infer(facts, chained({"symptom": "s"}, "phase", "device"), engine=engine)
    assert states(found, "ABC101") == {"device 0, decode": "fired"}


def test_over_any_looks_into_narrower_scopes(engine: Engine) -> None:
    facts = base({"f.a": 0}, Scope(device=0, phase="prefill"))
    put(facts, {"f.b": 1}, DEV)
    put(facts, {"f.a": 1}, DECODE)
    inner = chained({"symptom": "s", "over": "any"}, "device", "phase")
    assert states(infer(facts, inner, engine=engine), "ABC101") == {"device 0": "fired"}
    plain = chained({"symptom": "s"}, "device", "phase")
    assert states(infer(facts, plain, engine=engine), "ABC101") == {"device 0": "unknown"}


def test_an_unknown_symptom_hands_on_what_is_missing(engine: Engine) -> None:
    facts = base({"f.b": 1})
    found = infer(facts, chained({"symptom": "s"}, "device", "device"), engine=engine)
    (outcome,) = found.by_code["ABC101"]
    assert (outcome.state, outcome.missing) == ("unknown", ("f.a",))


JOIN = {
    "as": "d2h",
    "entity": "copy_class",
    "on": ["device"],
    "where": [{"field": "kind", "op": "eq", "value": "DtoH"}, {"field": "n", "op": "ge", "value": 4}],
}


@pytest.mark.parametrize(
    ("table", "state", "rows"),
    [
        ([{"device": 0, "kind": "DtoH", "n": 4}], "fired", 1),
        ([{"device": 0, "kind": "DtoH", "n": 4}, {"device": 0, "kind": "DtoH", "n": 5}], "fired", 2),
        ([{"device": 0, "kind": "DtoH", "n": 3}], "quiet", 0),
        ([{"device": 1, "kind": "DtoH", "n": 9}], "quiet", 0),
        ([{"device": "0", "kind": "DtoH", "n": 9}], "quiet", 0),
        ([{"device": None, "kind": "DtoH", "n": 9}], "quiet", 0),
        ([{"device": 0, "kind": "HtoD", "n": None}], "quiet", 0),
        ([{"device": 0, "kind": "DtoH", "n": None}], "unknown", 0),
        ([{"device": 0, "kind": "DtoH", "n": float("nan")}], "unknown", 0),
        ([], "quiet", 0),
        (None, "unknown", 0),
    ],
)
def test_joins(engine: Engine, table: list[Row] | None, state: str, rows: int) -> None:
    one = rule("ABC100", "c", {"all": [ge("f.a", 1)], "join": [JOIN]})
    facts = base({"f.a": 1}, entities={} if table is None else {"copy_class": table})
    (outcome,) = infer(facts, rules(one), engine=engine).outcomes
    assert outcome.state == state
    assert len(outcome.joins[0].rows) == rows
    if state == "unknown":
        assert outcome.missing == (("copy_class",) if table is None else ("copy_class.n",))


def test_a_join_without_rows_is_why_a_rule_is_quiet(engine: Engine) -> None:
    one = rule("ABC100", "c", {"all": [ge("f.a", 1)], "join": [JOIN]})
    rows = [{"device": 0, "kind": "DtoH", "n": 4}]
    for value, table, why in ((1, [], ["copy_class"]), (0, rows, ["f.a"]), (0, [], ["f.a", "copy_class"])):
        facts = base({"f.a": value}, entities={"copy_class": table})
        (outcome,) = infer(facts, rules(one), engine=engine).outcomes
        assert (outcome.state, [name for _, name in because(outcome)]) == ("quiet", why)


def test_without_a_rank_the_whole_capture_is_judged(engine: Engine) -> None:
    """Not each device: a rule about ranks says nothing about one of them."""
    found = infer(
        base({"f.a": 1}, DEV), rules(rule("ABC100", "c", [ge("f.a", 1)], scope="rank")), engine=engine
    )
    assert [o.scope for o in found.outcomes] == [TRACE]


def test_an_optional_join_is_evidence_only(engine: Engine) -> None:
    one = rule("ABC100", "c", {"all": [ge("f.a", 1)], "join": [JOIN | {"optional": True}]})
    (outcome,) = infer(base({"f.a": 1}), rules(one), engine=engine).outcomes
    assert outcome.state == "fired"
    assert outcome.joins[0].truth is None


def test_a_field_that_the_scope_leaves_open_does_not_restrict(engine: Engine) -> None:
    join = {"as": "x", "entity": "e", "on": ["device", "phase"]}
    one = rule("ABC100", "c", {"all": [ge("f.a", 1)], "join": [join]})
    facts = base({"f.a": 1}, entities={"e": [{"device": 0, "phase": "decode"}]})
    assert infer(facts, rules(one), engine=engine).outcomes[0].state == "fired"


def test_a_fact_between_two_limits(engine: Engine) -> None:
    """One record of the engine has to satisfy two conditions."""
    between = [ge("f.a", 0.1), {"fact": "f.a", "op": "lt", "value": 0.5}]
    one = rule("ABC100", "c", between)
    for value, state in ((0.3, "fired"), (0.5, "quiet"), (0.05, "quiet")):
        assert infer(base({"f.a": value}), rules(one), engine=engine).outcomes[0].state == state


def test_overruled_at_an_overlapping_scope(engine: Engine) -> None:
    facts = base({"f.a": 1})
    put(facts, {"f.a": 1}, Scope(device=1))
    put(facts, {"f.r": 1}, Scope(device=1, phase="decode"))
    ruler = rule("ABC101", "r", [ge("f.r", 1)], scope="phase", then={"overrules": ["c"]})
    found = infer(facts, rules(rule("ABC100", "c", [ge("f.a", 1)]), ruler), engine=engine)
    assert states(found, "ABC100") == {"device 0": "fired", "device 1": "overruled"}
    (link,) = found.by_code["ABC100"][1].overruled_by
    assert (link.name, link.scope) == ("ABC101", Scope(device=1, phase="decode"))


def test_an_unknown_overruling_cause_lets_pass(engine: Engine) -> None:
    ruler = rule("ABC101", "r", [ge("f.gone", 1)], then={"overrules": ["c"]})
    target = rule("ABC100", "c", [ge("f.a", 1)])
    found = infer(base({"f.a": 1}), rules(target, ruler), engine=engine)
    assert states(found, "ABC100") == {"device 0": "fired"}


def test_an_overruled_cause_overrules_nobody(engine: Engine) -> None:
    facts = base({"f.a": 1})
    chain = rules(
        rule("ABC100", "a", [ge("f.a", 1)], then={"overrules": ["b"]}),
        rule("ABC101", "b", [ge("f.a", 1)], then={"overrules": ["c"]}),
        rule("ABC102", "c", [ge("f.a", 1)]),
    )
    found = infer(facts, chain, engine=engine)
    assert [o.state for o in found.outcomes] == ["fired", "overruled", "fired"]
    assert [link.name for link in found.outcomes[1].overruled_by] == ["ABC100"]


def test_a_rule_that_would_not_fire_is_quiet_not_overruled(engine: Engine) -> None:
    ruler = rule("ABC101", "r", [ge("f.r", 1)], then={"overrules": ["c"]})
    target = rule("ABC100", "c", [ge("f.a", 1)])
    found = infer(base({"f.a": 0, "f.r": 1}), rules(target, ruler), engine=engine)
    assert states(found, "ABC100") == {"device 0": "quiet"}


def test_overruling_leaves_the_others_side_by_side(engine: Engine) -> None:
    """blocking-sync over readback-per-layer only: launch-bound stands beside it."""
    found = infer(
        base({"f.a": 1}),
        rules(
            rule("SYN101", "blocking-sync", [ge("f.a", 1)], then={"overrules": ["readback-per-layer"]}),
            rule("SYN103", "readback-per-layer", [ge("f.a", 1)]),
            rule("LCH101", "launch-bound", [ge("f.a", 1)]),
        ),
        engine=engine,
    )
    by_cause = {o.cause: o.state for o in found.outcomes}
    assert by_cause.pop("readback-per-layer") == "overruled"
    assert set(by_cause.values()) == {"fired"}


STANDING = {
    "opaque-cuda-graphs": ["host-gap", "launch-bound", "launch-storm", "graph-replay-gaps"],
    "launch-back-pressure": ["launch-bound", "launch-storm"],
    "python-gc": ["host-gap", "graph-replay-gaps", "launch-bound"],
    "gil-contention": ["host-gap", "graph-replay-gaps", "launch-bound"],
    "blocking-sync": ["readback-per-layer"],
    "host-gap": ["graph-replay-gaps"],
    "allocation-churn": ["implicit-sync"],
    "pageable-copies": [],
    "transfer-bound": [],
}


@pytest.mark.parametrize("ruler", STANDING)
def test_standing_overrules(engine: Engine, ruler: str) -> None:
    """Of all the causes of rule_schema.md, one that fires takes out its own and leaves the rest."""
    names = sorted({*STANDING, *(t for targets in STANDING.values() for t in targets)})
    made = [
        rule(
            f"ABC{100 + i}",
            name,
            [ge(f"f.x{i}", 1)],
            kind="note" if name == "launch-back-pressure" else "cause",
            then={"overrules": STANDING.get(name, [])},
        )
        for i, name in enumerate(names)
    ]
    fires = {ruler, *(set(names) - set(STANDING))}  # the ruler, and what overrules nobody
    fires |= set(STANDING[ruler])
    facts = base({f"f.x{i}": int(name in fires) for i, name in enumerate(names)})
    found = infer(facts, rules(*made), engine=engine)
    overruled = {o.cause for o in found.in_state("overruled")}
    assert overruled >= set(STANDING[ruler])
    assert {o.cause for o in found.in_state("fired")} == fires - overruled
    allowed = {t for o in found.in_state("fired") for t in STANDING.get(o.cause, [])}
    assert overruled == allowed & fires


def test_a_note_may_overrule(engine: Engine) -> None:
    """launch-back-pressure is a healthy observation, and takes launch-bound back."""
    note = rule(
        "LCH105",
        "launch-back-pressure",
        [ge("f.busy", 0.9)],
        kind="note",
        then={"overrules": ["launch-bound"]},
    )
    bound = rule("LCH101", "launch-bound", [ge("f.a", 1)])
    found = infer(base({"f.a": 1, "f.busy": 0.95}), rules(note, bound), engine=engine)
    assert {o.code: o.state for o in found.outcomes} == {"LCH101": "overruled", "LCH105": "fired"}


def test_removed_rules_are_not_evaluated(engine: Engine) -> None:
    gone = rule("ABC100", "c", [ge("f.a", 1)], lifecycle="removed")
    assert infer(base({"f.a": 1}), rules(gone), engine=engine).outcomes == ()


def test_the_interpreter_judges_what_the_engine_cannot_hold(engine: Engine) -> None:
    """A node of 64 devices gives more than 5,000 facts."""
    facts = base({f"f.x{i}": 1 for i in range(5001)})
    found = infer(facts, rules(rule("ABC100", "c", [ge("f.x5000", 1)])), engine=engine)
    assert (found.engine, len(found.in_state("fired"))) == ("python", 1)
    note = "5001 facts are more than the 5000 that durable-rules is given"
    assert list(found.notes) == [f"the built-in interpreter judges: {note}"] * (engine == "durable")
