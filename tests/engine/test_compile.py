"""Strata, parameters, and the limits of the engine refused before it sees them."""

from __future__ import annotations

from typing import Any

import pytest

import advisor.engine.compile as compiling
from advisor.engine.compile import compile_rules
from advisor.engine.infer import infer
from advisor.engine.values import parse_params
from advisor.errors import RuleError
from advisor.model.facts import sees
from advisor.model.rules import RuleSpec
from tests.engine.engine_support import base, ge, needs_durable, rule, rules


def refused(*specs: RuleSpec) -> str:
    with pytest.raises(RuleError) as caught:
        compile_rules(rules(*specs))
    return str(caught.value)


def test_strata_lie_above_what_they_need() -> None:
    program = compile_rules(
        rules(
            rule("ABC100", "d", [{"cause": "c"}, {"symptom": "s"}]),
            rule("ABC101", "c", [ge("f.a", 1)], unless=[{"symptom": "s"}]),
            rule("ABC102", "s", [ge("f.a", 1)], kind="symptom"),
            rule("ABC103", "r", [ge("f.a", 1)], then={"overrules": ["t"]}),
            rule("ABC104", "t", [ge("f.a", 1)]),
        )
    )
    assert [[r.spec.cause for r in s] for s in program.strata] == [["s", "r"], ["c", "t"], ["d"]]


def test_cycles_are_named_with_their_rules() -> None:
    found = refused(
        rule("ABC100", "a", [{"cause": "b"}]),
        rule("ABC101", "b", [ge("f.a", 1)], unless=[{"cause": "c"}]),
        rule("ABC102", "c", [{"cause": "a"}]),
        rule("ABC103", "d", [ge("f.a", 1)], then={"overrules": ["e"]}),
        rule("ABC104", "e", [ge("f.a", 1)], then={"overrules": ["d"]}),
        rule("ABC105", "f", [{"cause": "e"}]),
    )
    lines = found.splitlines()
    assert len(lines) == 2
    assert "ABC100 -> ABC101 -> ABC102 -> ABC100 need each other's outcome" in lines[0]
    assert "ABC103 -> ABC104 -> ABC103 need each other's outcome" in lines[1]


def test_a_removed_rule_is_no_target() -> None:
    gone = rule("ABC100", "s", [ge("f.a", 1)], kind="symptom", lifecycle="removed")
    assert "no active rule has the symptom s" in refused(gone, rule("ABC101", "c", [{"symptom": "s"}]))


def test_too_many_conditions() -> None:
    """Error 304 of the engine: 16 conditions, the anchor included."""
    guards = [ge(f"g.g{i}", 1) for i in range(7)]
    when = {"all": [ge(f"f.f{i}", 1) for i in range(8)]}
    compile_rules(rules(rule("ABC100", "c", when, unless=guards)))
    join = {"as": "j", "entity": "e", "on": ["device"], "where": [{"field": "u", "op": "ge", "value": 1}]}
    more = rule("ABC100", "c", when | {"join": [join]}, unless=guards)
    assert "16 conditions with guards and joins; at most 15" in refused(more)


@pytest.mark.parametrize("count", [pytest.param(14, marks=needs_durable), 15, 500])
def test_a_cause_that_many_rules_overrule(count: int) -> None:
    """Overruling rules are conditions of the engine rule, but no fault of the rule that they overrule."""
    rulers = [
        rule(f"ABD{100 + i}", f"r{i}", [ge("f.a", 2 + (i < count - 1))], then={"overrules": ["c"]})
        for i in range(count)
    ]
    found = infer(base({"f.a": 2}), rules(rule("ABC100", "c", [ge("f.a", 1)]), *rulers), engine="durable")
    assert [o.code for o in found.in_state("fired")] == [f"ABD{99 + count}"]
    assert [o.code for o in found.in_state("overruled")] == ["ABC100"]
    assert found.engine == ("durable" if count < 15 else "python")
    says = f"ABC100 has {count + 1} conditions with the rules that overrule it"
    assert found.notes == (() if count < 15 else (f"the built-in interpreter judges: {says}",))


def test_too_many_variants() -> None:
    listed = {"fact": "t.t", "op": "one_of", "value": [f"w{i}" for i in range(16)]}
    guards = [ge(f"g.g{i}", 1) | {"if_unknown": "pass"} for i in range(3)]
    assert "ABC100#1 becomes 128 engine rules through its one_of lists" in refused(
        rule("ABC100", "c", [listed], unless=guards)
    )


def test_too_many_engine_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error 106 of the engine at 4096 rules."""
    monkeypatch.setattr(compiling, "MAX_ENGINE_RULES", 4)
    many = [rule(f"ABC{100 + i}", f"c{i}", [ge("f.a", 1)]) for i in range(5)]
    found = infer(base({"f.a": 1}), rules(*many), engine="durable")
    assert (found.engine, len(found.in_state("fired"))) == ("python", 5)
    assert found.notes == ("the built-in interpreter judges: the rules become 5 engine rules, more than 4",)


def test_too_many_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error 302 of the engine at 252 properties of a record."""
    monkeypatch.setattr(compiling, "MAX_FIELDS", 1)
    where = [{"field": f, "op": "ge", "value": 1} for f in ("u", "v")]
    join = {"as": "j", "entity": "e", "on": ["device"], "where": where}
    one = rule("ABC100", "c", {"all": [ge("f.a", 1)], "join": [join]})
    assert compile_rules(rules(one)).too_large() == "the rules use more than 1 fields of e"


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("trace", {"trace"}),
        ("device", {"trace", "rank", "device"}),
        ("phase", {"trace", "rank", "device", "phase"}),
        ("operation", {"trace", "rank", "device", "operation"}),
    ],
)
def test_levels_see_wider_ones_and_no_siblings(level: Any, seen: set[str]) -> None:
    assert sees(level) == seen


# --- parameters ------------------------------------------------------------------------------

PARAMS = {
    "limit": {"default": 0.15, "unit": "ratio", "origin": "peer", "source": "p"},
    "steps": {"default": 5, "unit": "count", "origin": "seed"},
    "names": {"default": ["a", "b"], "unit": "text", "origin": "seed"},
    "on": {"default": True, "unit": "flag", "origin": "seed"},
}
ONE = rules(
    rule(
        "ABC100",
        "c",
        [
            {"fact": "f.a", "op": "ge", "param": "limit"},
            {"fact": "f.n", "op": "ge", "param": "steps"},
            {"fact": "f.t", "op": "one_of", "param": "names"},
            {"fact": "f.b", "op": "eq", "param": "on"},
        ],
        params=PARAMS,
    )
)


SHARES = rules(
    rule(
        "ABC100",
        "c",
        [{"fact": "f.a", "op": "ge", "param": n} for n in ("share", "times")],
        params={
            "share": {"default": 0.5, "unit": "ratio", "origin": "peer"},
            "times": {"default": 1.0, "unit": "ratio", "origin": "peer"},
        },
    )
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("share=0", 0),
        ("share=1", 1),
        ("share=20%", 0.2),
        ("share=100%", 1.0),
        ("times=1.5", 1.5),
        ("times=3", 3),
    ],
)
def test_a_share_lies_between_nothing_and_the_whole(text: str, value: float) -> None:
    """A ratio that is 1 or more by default is a multiple."""
    assert list(parse_params(SHARES, [f"ABC100.{text}"]).values()) == [value]


@pytest.mark.parametrize(
    ("value", "hint"),
    [("1.5", "0.015 or 1.5%"), ("20", "0.2 or 20%"), ("100", "1 or 100%"), ("101", "0.2 or 20%"),
     ("-0.1", "0.2 or 20%"), ("120%", "0.012 or 1.2%")],
)  # fmt: skip
def test_a_share_of_more_than_the_whole_is_taken_for_percent(value: str, hint: str) -> None:
    with pytest.raises(RuleError) as error:
        parse_params(SHARES, [f"ABC100.share={value}"])
    assert str(error.value).endswith(f"it is a share from 0 to 1, such as {hint}")


def test_params_decide_and_are_printed() -> None:
    facts = base({"f.a": 0.1, "f.n": 6, "f.t": "b", "f.b": True})
    assert infer(facts, ONE, engine="python").outcomes[0].state == "quiet"
    given = parse_params(ONE, ["abc100.limit=0.05", "ABC100.names=b, c"])
    found = infer(facts, ONE, engine="python", params=given)
    assert found.outcomes[0].state == "fired"
    listed = {t.param: t for t in found.program.thresholds}
    assert (listed["limit"].value, listed["limit"].default) == (0.05, 0.15)
    assert (listed["limit"].unit, listed["limit"].origin) == ("ratio", "peer")
    assert (listed["names"].value, listed["names"].default) == ("b, c", "a, b")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("Yes", True), ("false", False), ("no", False)])
def test_a_flag_is_said_in_words(text: str, value: bool) -> None:
    assert parse_params(ONE, [f"ABC100.on={text}"]) == {("ABC100", "on"): value}


def test_a_cause_sets_the_parameter_of_its_symptom_unless_that_has_its_own() -> None:
    limit = {"default": 0.15, "unit": "ratio", "origin": "seed"}
    compared = [{"fact": "f.a", "op": "ge", "param": "limit"}]
    two = rules(
        rule("ABC100", "s", compared, kind="symptom", params={"limit": limit}),
        rule("ABC101", "c", [{"symptom": "s"}], params={"least": {**limit, "sets": "ABC100.limit"}}),
    )
    facts = base({"f.a": 0.1})
    for given, state in [
        ([], "quiet"),
        (["ABC101.least=0.05"], "fired"),
        (["ABC100.limit=0.05"], "fired"),
        (["ABC101.least=0.05", "ABC100.limit=0.2"], "quiet"),
    ]:
        found = infer(facts, two, engine="python", params=parse_params(two, given))
        assert {o.state for o in found.outcomes} == {state}, given


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("limit=20%", 0.2),
        ("limit=0.2", 0.2),
        ("limit=1", 1),
        ("times=150%", 1.5),
        ("times=20", 20),
        ("times=0.5", 0.5),
    ],
)
def test_shares_may_be_given_in_per_cent_and_multiples_have_no_bound(text: str, value: float) -> None:
    times = {"default": 2.0, "unit": "ratio", "origin": "seed"}
    fact = {"fact": "f.a", "op": "ge", "param": "limit"}
    one = rules(
        rule(
            "ABC100",
            "c",
            [fact, {**fact, "param": "times"}],
            params={"limit": PARAMS["limit"], "times": times},
        )
    )
    program = compile_rules(one, parse_params(one, [f"ABC100.{text}"]))
    assert program.params["ABC100", text.partition("=")[0]] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ABC100.limit", "--param ABC100.limit: write CODE.name=value"),
        ("limit=3", "--param limit=3: write CODE.name=value"),
        ("ABC100.limits=3", "unknown parameter ABC100.limits; did you mean 'ABC100.limit'?"),
        ("XYZ900.q=3", "unknown parameter XYZ900.q; see `advisor explain CODE`"),
        ("ABC100.limit=many", "the parameter ABC100.limit cannot be 'many': give a number"),
        ("ABC100.limit=inf", "the parameter ABC100.limit cannot be 'inf': give a number"),
        (
            "ABC100.limit=20",
            "the parameter ABC100.limit cannot be 20: it is a share from 0 to 1, such as 0.2 or 2",
        ),
        ("ABC100.limit=-0.1", "the parameter ABC100.limit cannot be -0.1: it is a share from 0 to"),
        ("ABC100.limit=120%", "the parameter ABC100.limit cannot be 1.2: it is a share from 0 to 1"),
        ("ABC100.steps=20%", "the parameter ABC100.steps cannot be '20%': give a number"),
        ("ABC100.on=3", "the parameter ABC100.on cannot be '3': give a flag"),
        ("ABC100.names=", "the parameter ABC100.names cannot be (): expected a number"),
    ],
)
def test_wrong_params_are_one_line(text: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        compile_rules(ONE, parse_params(ONE, [text]))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
