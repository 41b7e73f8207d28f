"""Three-valued logic: the tables, and the states of a rule that follow from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from advisor.engine.durable import available
from advisor.engine.infer import Engine, infer
from advisor.engine.values import COMPLEMENT, atom, compare, k_and, k_not, k_or, key
from advisor.model.facts import FactBase, Scope
from tests.engine.engine_support import base, ge, put, rule, rules

T, F, U = True, False, None
AND = [(T, T, T), (T, F, F), (T, U, U), (F, F, F), (F, U, F), (U, U, U)]
OR = [(T, T, T), (T, F, T), (T, U, T), (F, F, F), (F, U, U), (U, U, U)]


@pytest.mark.parametrize(("a", "b", "result"), AND)
def test_and(a: bool | None, b: bool | None, result: bool | None) -> None:
    assert k_and(a, b) is result
    assert k_and(b, a) is result


@pytest.mark.parametrize(("a", "b", "result"), OR)
def test_or(a: bool | None, b: bool | None, result: bool | None) -> None:
    assert k_or(a, b) is result
    assert k_or(b, a) is result


@pytest.mark.parametrize("a", [T, F, U])
@pytest.mark.parametrize("b", [T, F, U])
def test_de_morgan(a: bool | None, b: bool | None) -> None:
    assert k_not(k_and(a, b)) is k_or(k_not(a), k_not(b))


def test_of_nothing() -> None:
    assert k_and() is True
    assert k_or() is False


@pytest.mark.parametrize("op", sorted(COMPLEMENT))
@pytest.mark.parametrize("value", [0.0, 1.0, 2.0, "a", "b", None])
def test_the_complement_is_the_negation(op: str, value: float | str | None) -> None:
    threshold = ("a", "c") if op == "one_of" else "a" if isinstance(value, str) else 1.0
    if isinstance(value, str) and op not in ("eq", "ne", "one_of"):
        pytest.skip("texts are not ordered")
    assert compare(value, COMPLEMENT[op], threshold) is k_not(compare(value, op, threshold))


def test_one_of_some_texts_or_none_of_them() -> None:
    for value, is_one in (("a", True), ("b", True), ("c", False)):
        assert compare(value, "one_of", ("a", "b")) is is_one
        assert compare(value, COMPLEMENT["one_of"], ("a", "b")) is not is_one


def test_whether_a_value_is_known_is_always_known() -> None:
    for value, is_known in ((None, False), (0.0, True), ("", True)):
        assert compare(value, "known", 1.0) is is_known
        assert compare(value, "known", 0.0) is not is_known


def test_a_value_of_the_wrong_class_is_unknown() -> None:
    assert compare("1", "ge", 1.0) is None
    assert compare(1.0, "eq", "1") is None
    assert compare(1.0, "one_of", ("1",)) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, None, [1], b"x"])
def test_what_is_no_finite_scalar_is_unknown(value: object) -> None:
    assert atom(value) is None


def test_numbers_that_the_engine_cannot_read_move_up_a_little() -> None:
    for value in (1e-05, 1e16, 1e22, 5e-324, -1e-05):
        moved = atom(value)
        assert isinstance(moved, float)
        assert moved >= value
        assert "." in repr(moved)
        assert moved == pytest.approx(value, rel=1e-15, abs=1e-323)


def test_identity_of_joined_fields() -> None:
    assert key(1) != key("1")
    assert key(True) is None
    assert key(1.0) is None
    assert key(None) is None


# --- states of a rule ------------------------------------------------------------------------

#: A fact of 1 makes the condition true, 0 false, and an absent one unknown.
_VALUE = {T: 1, F: 0}
_STATE = {T: "fired", F: "quiet", U: "unknown"}


def _state(when: object, facts: dict[str, bool | None], unless: object = ()) -> str:
    one = rule("ABC100", "c", when, unless=list(unless))  # type: ignore[call-overload]
    known = {f"f.{n}": _VALUE[v] for n, v in facts.items() if v is not None}
    (outcome,) = infer(base(known), rules(one), engine="python").outcomes
    return outcome.state


@pytest.mark.parametrize(("a", "b", "result"), AND)
def test_all(a: bool | None, b: bool | None, result: bool | None) -> None:
    assert _state([ge("f.a", 1), ge("f.b", 1)], {"a": a, "b": b}) == _STATE[result]


@pytest.mark.parametrize(("a", "b", "result"), OR)
def test_any(a: bool | None, b: bool | None, result: bool | None) -> None:
    when = {"any": [{"all": [ge("f.a", 1)]}, {"all": [ge("f.b", 1)]}]}
    assert _state(when, {"a": a, "b": b}) == _STATE[result]


@pytest.mark.parametrize(
    ("when", "guard", "passes", "state"),
    [
        (T, T, False, "quiet"),
        (T, F, False, "fired"),
        (T, U, False, "unknown"),
        (T, U, True, "fired"),
        (T, T, True, "quiet"),
        (F, U, False, "quiet"),
        (U, T, False, "quiet"),
        (U, F, False, "unknown"),
        (U, U, True, "unknown"),
    ],
)
def test_unless(when: bool | None, guard: bool | None, passes: bool, state: str) -> None:
    item = ge("f.g", 1) | ({"if_unknown": "pass"} if passes else {})
    assert _state([ge("f.a", 1)], {"a": when, "g": guard}, [item]) == state


def test_missing_names_only_what_matters() -> None:
    """A branch that is false anyway does not ask for its other facts."""
    when = {"any": [{"all": [ge("f.a", 1), ge("f.b", 1)]}, {"all": [ge("f.c", 1), ge("f.d", 1)]}]}
    one = rule("ABC100", "c", when, unless=[ge("f.g", 1), ge("f.h", 1) | {"if_unknown": "pass"}])
    (outcome,) = infer(base({"f.a": 0, "f.c": 1}), rules(one), engine="python").outcomes
    assert outcome.state == "unknown"
    assert outcome.missing == ("f.d", "f.g")


#: A fact in three captures, None where one lacks it -> whether any and whether every value is 1 or more.
SEVERAL = [
    ((1.0, 2.0, 3.0), T, T), ((1.0, 0.0, 3.0), T, F), ((0.0, 0.0, 0.0), F, F),
    ((1.0, None, 3.0), T, U), ((0.0, None, 0.0), U, F), ((None, None, None), U, U),
]  # fmt: skip


def of_captures(values: Sequence[float | None]) -> FactBase:
    facts = FactBase(captures=tuple(Scope(rank=at) for at in range(len(values))))
    for at, value in enumerate(values):
        if value is not None:
            put(facts, {"f.a": value}, Scope(rank=at, device=0))
    return facts


@pytest.mark.parametrize("engine", ["python", "durable"])
@pytest.mark.parametrize(("values", "some", "all_"), SEVERAL)
def test_any_and_every_value_of_the_captures(
    engine: Engine, values: Sequence[float | None], some: bool | None, all_: bool | None
) -> None:
    states = {T: "fired", F: "quiet", U: "unknown"}
    chosen = rules(
        rule("ABC100", "a", [{**ge("f.a", 1), "over": "any"}], scope="trace"),
        rule("ABC101", "b", [{**ge("f.a", 1), "over": "every"}], scope="trace"),
    )
    if engine == "durable" and not available()[0]:
        pytest.skip("durable-rules does not import")
    found = infer(of_captures(values), chosen, engine=engine, strict=True)
    assert [o.state for o in found.outcomes] == [states[some], states[all_]]


def test_the_value_that_decides_is_shown() -> None:
    every = rules(rule("ABC100", "a", [{**ge("f.a", 1), "over": "every"}], scope="trace"))
    (outcome,) = infer(of_captures((3.0, 0.5, 2.0)), every, engine="python").outcomes
    assert outcome.branches[0].conditions[0].doc.value == 0.5


def test_without_a_capture_nothing_is_known() -> None:
    lacks = {"fact": "f.a", "op": "known", "value": False, "over": "any"}
    chosen = rules(rule("ABC100", "a", [lacks], scope="trace"))
    assert [o.state for o in infer(of_captures(()), chosen, engine="python").outcomes] == ["unknown"]
    assert [o.state for o in infer(of_captures((None,)), chosen, engine="python").outcomes] == ["fired"]
