"""Verdicts near a threshold: found exactly where a plain rerun finds them, and quickly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from advisor.engine.conclude import conclude
from advisor.engine.infer import Inference, infer
from advisor.engine.load import RuleSet
from advisor.engine.reasons import sensitivity
from advisor.model.facts import Scope
from advisor.model.findings import Finding
from advisor.model.gain import Flip
from advisor.model.rules import RuleSpec
from advisor.pipeline.diagnose import Options, analyse, diagnose
from tests.captures import committed
from tests.engine.engine_support import base, ge, put, rule, rules


def param(default: Any, unit: str = "ratio") -> dict[str, Any]:
    return {"default": default, "unit": unit, "origin": "peer"}


def watched(code: str, cause: str, fact: str, limit: Any, unit: str = "ratio") -> RuleSpec:
    return rule(
        code,
        cause,
        [{"fact": fact, "op": "ge", "param": "limit"}],
        params={"limit": param(limit, unit)},
        impact={"fact": "f.share", "part": "idle"},
    )


def findings(inference: Inference) -> Sequence[Finding]:
    return conclude(inference).findings


def flips(facts: dict[str, Any], *specs: RuleSpec, unit: str = "ratio") -> tuple[Flip, ...]:
    made = infer(base({"f.share": 0.3} | facts, unit=unit), rules(*specs), engine="python")
    return sensitivity(made, findings)


@pytest.mark.parametrize(
    ("value", "moved", "before", "after"),
    [
        (0.21, 0.22, "fired", "quiet"),
        (0.19, 0.18, "quiet", "fired"),
        (0.2, 0.22, "fired", "quiet"),
        (0.23, None, "", ""),
        (0.17, None, "", ""),
    ],
)
def test_a_number_within_a_tenth(value: float, moved: float | None, before: str, after: str) -> None:
    found = flips({"f.a": value}, watched("ABC101", "near", "f.a", 0.2))
    if moved is None:
        assert found == ()
        return
    (flip,) = found
    assert (flip.code, flip.param, flip.threshold, flip.moved_to) == ("ABC101", "limit", 0.2, moved)
    (change,) = flip.changes
    assert (change.before, change.after, change.scope.device) == (before, after, 0)
    (fact,) = flip.facts
    assert (fact.fact, fact.value) == ("f.a", value)


def test_it_says_which_finding_would_come_first() -> None:
    other = rule("ABC102", "other", [ge("f.b", 1)], impact={"fact": "f.less", "part": "idle"})
    (flip,) = flips({"f.a": 0.21, "f.b": 1, "f.less": 0.1}, watched("ABC101", "near", "f.a", 0.2), other)
    assert (flip.first_before, flip.first_after) == ("ABC101", "ABC102")
    (alone,) = flips({"f.a": 0.21}, watched("ABC101", "near", "f.a", 0.2))
    assert (alone.first_before, alone.first_after) == ("ABC101", None)
    (last,) = flips({"f.a": 0.21, "f.b": 1, "f.less": 0.9}, watched("ABC101", "near", "f.a", 0.2), other)
    assert (last.first_before, last.first_after) == (None, None)


def test_what_hangs_on_a_verdict_flips_with_it() -> None:
    near = watched("ABC101", "near", "f.a", 0.2)
    ruled = rule("ABC102", "ruled", [ge("f.b", 1)])
    near = near.replaced(then=near.then.replaced(overrules=("ruled",)))
    (flip,) = flips({"f.a": 0.21, "f.b": 1}, near, ruled)
    assert {(c.code, c.before, c.after) for c in flip.changes} == {
        ("ABC101", "fired", "quiet"),
        ("ABC102", "overruled", "fired"),
    }


def test_a_flip_that_changes_no_verdict_is_none() -> None:
    both = rule(
        "ABC101",
        "both",
        {"any": [{"all": [{"fact": "f.a", "op": "ge", "param": "limit"}]}, {"all": [ge("f.b", 1)]}]},
        params={"limit": param(0.2)},
    )
    assert flips({"f.a": 0.21, "f.b": 1}, both) == ()
    assert len(flips({"f.a": 0.21, "f.b": 0}, both)) == 1


def test_a_share_is_not_moved_beyond_the_whole() -> None:
    """0.97 of a whole: 104.5 % is not a threshold."""
    found = flips({"f.a": 1.0}, watched("ABC101", "near", "f.a", 0.95))
    assert found == ()
    assert flips({"f.a": 1.0}, watched("ABC101", "near", "f.a", 1.0)) == ()
    (flip,) = flips({"f.a": 0.97}, watched("ABC101", "near", "f.a", 0.95))
    assert flip.moved_to == 1.0
    (over,) = flips({"f.a_over_b": 1.0}, watched("ABC101", "near", "f.a_over_b", 0.95))
    assert over.moved_to == pytest.approx(1.045)


def test_whole_counts_have_no_tenth() -> None:
    one = watched("ABC101", "near", "f.n", 1, "count")
    assert flips({"f.n": 1}, one, unit="count") == ()
    assert len(flips({"f.n": 1.0}, one, unit="count")) == 1  # a mean of counts has
    many = watched("ABC101", "near", "f.n", 20, "count")
    assert len(flips({"f.n": 21}, many, unit="count")) == 1


def test_a_count_that_moves_by_a_whole_one_does_flip() -> None:
    """Ten and eleven are different counts."""
    (flip,) = flips({"f.n": 10}, watched("ABC101", "near", "f.n", 10, "count"), unit="count")
    assert flip.moved_to == 11


def test_only_the_values_of_the_moved_comparison_are_named() -> None:
    near = watched("ABC101", "near", "f.a", 0.2)
    (flip,) = flips({"f.a": 0.21, "f.b": 0.21}, near)
    assert [fact.fact for fact in flip.facts] == ["f.a"]


def test_truth_and_texts_have_no_tenth() -> None:
    for limit, value in ((True, True), ("a", "a")):
        spec = watched("ABC101", "near", "f.a", limit)
        spec = spec.replaced(when=rule("ABC101", "x", [{"fact": "f.a", "op": "eq", "param": "limit"}]).when)
        assert flips({"f.a": value}, spec) == ()


def test_rows_of_a_table_count_too() -> None:
    joined = rule(
        "ABC101",
        "joined",
        {
            "all": [ge("f.b", 1)],
            "join": [
                {
                    "as": "j",
                    "entity": "copies",
                    "on": ["device"],
                    "where": [{"field": "size", "op": "ge", "param": "limit"}],
                }
            ],
        },
        params={"limit": param(10.0, "count")},
    )
    facts = base({"f.b": 1}, entities={"copies": [{"device": 0, "size": 9.5}]})
    (flip,) = sensitivity(infer(facts, rules(joined), engine="python"), findings)
    assert (flip.moved_to, flip.changes[0].after) == (9.0, "fired")


def test_every_scope_is_looked_at() -> None:
    near = watched("ABC101", "near", "f.a", 0.2)
    facts = base({"f.a": 0.9, "f.share": 0.3})
    put(facts, {"f.a": 0.19, "f.share": 0.3}, Scope(device=1))
    (flip,) = sensitivity(infer(facts, rules(near), engine="python"), findings)
    assert [c.scope.device for c in flip.changes] == [1]


# --- the rules that ship ---------------------------------------------------------------------


@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.slow)])
def test_it_finds_what_rerunning_everything_finds(every: int) -> None:
    """For each parameter that it names, and every so manieth of the others."""
    with analyse(committed("two_processes")) as done:
        found = sensitivity(done.inference, findings)
        program = done.inference.program
        states = {(o.code, o.scope): o.state for o in done.inference.outcomes}
        expected = set()
        named = {(f.code, f.param) for f in found}
        for number, (key, old) in enumerate(program.params.items()):
            if key not in named and number % every:
                continue
            if isinstance(old, bool) or not isinstance(old, int | float) or not old:
                continue
            for factor in (0.9, 1.1):
                moved = {**program.params, key: round(old * factor, 9)}
                after = infer(done.facts, program.rules, engine="python", params=moved)
                if any(states[o.code, o.scope] != o.state for o in after.outcomes):
                    expected.add((*key, factor))
    got = {(f.code, f.param, 0.9 if f.moved_to < f.threshold else 1.1) for f in found}  # type: ignore[operator]
    assert got <= expected
    # Whole counts and shares beyond one are left out on purpose.
    on_purpose = {("CAP119", "max_ranges"), ("CAP105", "min_steps"), ("UTL110", "min_processes")}
    assert {(c, p) for c, p, _ in expected - got} <= on_purpose


def least_s(work: Callable[[], object]) -> float:
    took = []
    for _ in range(3):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return min(took)


def test_it_takes_as_long_as_a_few_inferences() -> None:
    """And not as one for each of hundreds of parameters."""
    with analyse(committed("decode_eager_bs1")) as done:
        once = least_s(lambda: infer(done.facts, done.inference.program, engine="python"))
        assert least_s(lambda: sensitivity(done.inference, findings)) < 40 * once


def test_the_diagnosis_holds_it_only_where_asked() -> None:
    path = committed("prefill8b_bs4")
    assert diagnose(path).sensitivity is None
    found = diagnose(path, Options(sensitivity=True)).sensitivity
    assert found is not None
    (flip,) = (f for f in found if f.code == "UTL103")
    assert (flip.param, flip.moved_to) == ("min_sm", 0.99)
    assert flip.first_before == "UTL103"


def test_only_the_touched_rule_is_compiled_anew() -> None:
    """The same program with the same values means the same."""
    from advisor.engine.compile import compile_rules

    specs: RuleSet = rules(watched("ABC101", "near", "f.a", 0.2), rule("ABC102", "o", [ge("f.b", 1)]))
    program = compile_rules(specs)
    for key, value in program.params.items():
        assert program.with_param(key, value).by_code == program.by_code
