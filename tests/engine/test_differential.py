"""durable-rules decides, as the interpreter would, returns its memory, and runs alone."""

from __future__ import annotations

import gc
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.compile import compile_rules
from advisor.engine.conclude import conclude
from advisor.engine.durable import EngineError, Matcher, Session
from advisor.engine.infer import Disagreement, infer
from advisor.engine.interpret import FactView, OutcomeLog, evaluate
from advisor.model.facts import FactBase, Scope
from tests.engine.engine_support import base, ge, needs_durable, put, random_facts, random_rules, rule, rules

pytestmark = needs_durable


@pytest.mark.parametrize(
    "block", [*range(3), *(pytest.param(block, marks=pytest.mark.slow) for block in range(3, 10))]
)
def test_random_rule_sets(block: int) -> None:
    """Missing facts, joins, chained symptoms and causes, guards, overrules: 60 sets a block."""
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        program = compile_rules(random_rules(rng))
        log = OutcomeLog(FactView(random_facts(rng)))
        with Matcher(program, log) as matcher:
            for number, stratum in enumerate(program.strata):
                found = [
                    evaluate(one, scope, log) for one in stratum for scope in log.view.scopes(one.spec.scope)
                ]
                defined = {(o.code, o.scope) for o in found if o.state == "fired"}
                assert matcher.fire(number) == defined, f"seed {seed}, stratum {number}"
                for outcome in found:
                    log.post(outcome)


def test_the_random_sets_reach_every_state() -> None:
    seen: dict[str, int] = {}
    for seed in range(200):
        rng = random.Random(seed)
        chosen = random_rules(rng)
        for outcome in infer(random_facts(rng), chosen, engine="python").outcomes:
            seen[outcome.state] = seen.get(outcome.state, 0) + 1
    assert set(seen) == {"fired", "quiet", "unknown", "overruled"}
    assert seen["fired"] > 200


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_facts_is_nothing(seed: int) -> None:
    rng = random.Random(seed)
    chosen, facts = random_rules(rng), random_facts(rng)
    expected = infer(facts, chosen, engine="durable").outcomes
    items = list(facts.facts.items())
    for _ in range(3):
        rng.shuffle(items)
        shuffled = FactBase(facts=dict(items), entities=facts.entities)
        found = infer(shuffled, chosen, engine="durable").outcomes
        assert repr(found) == repr(expected)  # by text: NaN differs from itself


def test_an_outcome_that_several_strata_ask_for_matches_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told in each of them, ten such outcomes made 3,456 matches of one rule."""
    quiet = [rule(f"ABC10{i}", f"quiet-{i}", [ge("f.a", 9)]) for i in range(4)]
    guards: list[dict[str, Any]] = [{"cause": one.cause} for one in quiet]
    chain = [
        rule("ABC200", "first", [ge("f.a", 1)], unless=guards),
        rule("ABC201", "second", [{"cause": "first"}], unless=guards),
        rule("ABC202", "third", [{"cause": "second"}], unless=guards),
    ]
    matches: list[str] = []
    run = Session.run

    def counted(session: Session) -> list[tuple[str, dict[str, Any]]]:
        found = run(session)
        matches.extend(name for name, _ in found if name != "end")
        return found

    monkeypatch.setattr(Session, "run", counted)
    infer(base({"f.a": 5}), rules(*quiet, *chain), engine="durable")
    assert len(matches) == len(set(matches)) == len(chain)


def test_what_durable_rules_fires_has_fired_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The interpreter explains what fired; where it cannot, the run goes on with a note."""
    here = Scope(device=0)
    chosen = rules(
        rule("ABC100", "c", [ge("f.a", 1)]),
        rule("ABC101", "d", [ge("f.a", 9)]),
        rule("ABC102", "e", [{"cause": "d"}]),
    )
    facts = base({"f.a": 5})

    def only_the_second(_: Matcher, stratum: int) -> set[tuple[str, Scope]]:
        return {("ABC101", here)} if stratum == 0 else {("ABC102", here)}

    monkeypatch.setattr(Matcher, "fire", only_the_second)
    found = infer(facts, chosen, engine="durable")
    assert [(o.code, o.state) for o in found.outcomes] == [
        ("ABC100", "quiet"),
        ("ABC101", "fired"),
        ("ABC102", "fired"),
    ]
    said = "durable-rules and the interpreter disagree on ABC100 (device 0), ABC101 (device 0)"
    assert found.notes == (f"{said}; please report this: durable-rules is followed",)
    assert caplog.messages == list(found.notes)
    assert len(conclude(found).findings) == 2
    with pytest.raises(Disagreement, match="disagree on ABC100"):
        infer(facts, chosen, engine="durable", strict=True)


def test_what_did_not_fire_is_quiet_overruled_or_unknown_as_the_interpreter_says() -> None:
    chosen = rules(
        rule("ABC100", "c", [ge("f.a", 1)]),
        rule("ABC101", "d", [ge("f.b", 1)]),
        rule("ABC102", "e", [ge("f.a", 1)], then={"overrules": ["f"]}),
        rule("ABC103", "f", [ge("f.a", 1)]),
    )
    found = infer(base({"f.a": 1}), chosen, engine="durable")
    assert [o.state for o in found.outcomes] == ["fired", "unknown", "fired", "overruled"]
    assert not found.notes


def test_the_interpreter_takes_over_where_the_engine_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.engine.durable.MAX_RECORDS", 1)
    chosen = rules(rule("ABC100", "c", [ge("f.a", 1)]))
    found = infer(base({"f.a": 1}), chosen, engine="durable")
    assert (found.engine, [o.state for o in found.outcomes]) == ("python", ["fired"])
    assert found.notes == ("the built-in interpreter judges: it would take more than 1 records",)


def test_the_interpreter_takes_over_where_the_engine_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.engine.durable.MAX_CPU_S", 0.0)
    chosen = rules(*(rule(f"ABC{100 + i}", f"c{i}", [ge("f.a", 1)]) for i in range(20)))
    found = infer(base({"f.a": 1}), chosen, engine="durable")
    assert (found.engine, len(found.in_state("fired"))) == ("python", 20)
    why = "durable-rules took more than 0 s of processor time"
    assert found.notes == (f"the built-in interpreter judges: {why}",)


def test_three_hundred_rules_on_one_fact() -> None:
    """Above 64 tests that one record satisfies and 255 rules on one node the engine breaks."""
    many = rules(*(rule(f"ABC{100 + i}", f"c{i}", [ge("f.a", i)]) for i in range(300)))
    found = infer(base({"f.a": 149.5}), many, engine="durable")
    assert len(found.in_state("fired")) == 150


def test_three_hundred_rules_with_one_condition() -> None:
    """256 identical conditions crash the engine: they are spread over shards."""
    same = rules(*(rule(f"ABC{100 + i}", f"c{i}", [ge("f.a", 1)]) for i in range(300)))
    assert len(infer(base({"f.a": 1}), same, engine="durable").in_state("fired")) == 300


def test_six_hundred_facts_under_one_kind() -> None:
    """513 tests under one node hang the engine: names are grouped."""
    many = rules(*(rule(f"ABC{100 + i}", f"c{i}", [ge(f"f.x{i}", 1)]) for i in range(600)))
    facts = base({f"f.x{i}": i % 2 for i in range(600)})
    assert len(infer(facts, many, engine="durable").in_state("fired")) == 300


def test_many_scopes_and_rows() -> None:
    facts = FactBase()
    for i in range(60):
        put(facts, {"f.a": i}, Scope(device=i))
    facts.entities["e"] = [{"device": i, "u": j} for i in range(60) for j in range(20)]
    join = {"as": "j", "entity": "e", "on": ["device"], "where": [ge("f.a", 1)]}
    join["where"] = [{"field": "u", "op": "ge", "value": 5}]
    one = rule("ABC100", "c", {"all": [ge("f.a", 30)], "join": [join]})
    assert len(infer(facts, rules(one), engine="durable").in_state("fired")) == 30


@pytest.mark.parametrize("value", [1e-05, 1e16, 5e-324, -1e-05, 2**53 + 1, 1e308, -0.0, True, 7])
def test_awkward_numbers_meet_themselves(value: float) -> None:
    """At a threshold of its own value every number is equal to it, in both engines."""
    kinds = {"ge": "fired", "le": "fired", "gt": "quiet", "lt": "quiet"}
    if not isinstance(value, bool):
        for op, state in kinds.items():
            one = rules(rule("ABC100", "c", [{"fact": "f.a", "op": op, "value": value}]))
            assert infer(base({"f.a": value}), one, engine="durable").outcomes[0].state == state
    for op, state in {"eq": "fired", "ne": "quiet"}.items():
        one = rules(rule("ABC100", "c", [{"fact": "f.a", "op": op, "value": value}]))
        assert infer(base({"f.a": value}), one, engine="durable").outcomes[0].state == state


@pytest.mark.parametrize("text", ["", "a\0b", 'q"\\\n', "é\u2028", "\ud800", "x" * 100_000])
def test_awkward_texts(text: str) -> None:
    """Texts reach the engine as ids, so that nothing in them matters."""
    one = rules(
        rule("ABC100", "c", [{"fact": "f.t", "op": "eq", "value": text[:256]}]),
        rule("ABC101", "d", [{"fact": "f.t", "op": "ne", "value": "other"}]),
    )
    found = infer(base({"f.t": text}), one, engine="durable")
    assert [o.state for o in found.outcomes] == ["fired" if len(text) <= 256 else "quiet", "fired"]


# --- the session -----------------------------------------------------------------------------


def test_errors_propagate() -> None:
    with pytest.raises(EngineError, match="not a record"):
        Session({}).add({"k": "0", "num": float("nan")})
    broken = {"0": {"all": [{"c0": {"$and": [{"k": "0"}]}}], "desc": "no such key"}}
    with pytest.raises(EngineError, match="refuses the rules"):
        Session(broken)


def test_a_session_in_which_nothing_happens_closes() -> None:
    """Deleting a state in which nothing ever fired crashes the process."""
    unseen = {"k": "nobody looks at this"}
    for given, records in (({}, []), ({"0": {"all": [{"c0": {"$and": [{"k": "0"}]}}]}}, [unseen])):
        session = Session(given)
        for record in records:
            session.add(record)
        assert session.run() == []
        session.clear()
        session.delete()


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_is_returned_and_no_thread_is_left() -> None:
    rng = random.Random(1)
    chosen = [(random_rules(rng), random_facts(rng)) for _ in range(20)]
    threads = threading.active_count()
    before = 0.0
    for i in range(150):
        if i == 50:  # allocators have settled
            gc.collect()
            before = _resident()
        infer(chosen[i % 20][1], chosen[i % 20][0], engine="durable")
    gc.collect()
    assert threading.active_count() == threads
    assert _resident() - before < 8.0  # the stock host leaks 450 MiB here
