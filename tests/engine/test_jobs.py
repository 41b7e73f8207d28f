"""Several captures in one inference: each is judged by itself, and all of them together once."""

from __future__ import annotations

import pytest

from advisor.engine.conclude import conclude
from advisor.engine.durable import available
from advisor.engine.infer import Engine, Inference, infer
from advisor.facts.catalog import CATALOGUE, JOINT
from advisor.model.facts import TRACE, FactBase, Scope, of_job
from advisor.model.rules import RuleSpec
from tests.engine.engine_support import ge, put, rule, rules

ENGINES: list[Engine] = ["python"]
if available()[0]:
    ENGINES.append("durable")

ALONE = rule("ABC100", "alone", [ge("f.capture", 1)], scope="trace")
DEVICE = rule("ABC101", "slow", [ge("f.device", 1), ge("f.capture", 0)])
LATE = rule("COM102", "late", [ge("rank.late", 1)], scope="rank")
ALL = rule("COM107", "waiting", [ge("ranks.wait", 1)], scope="trace")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param  # type: ignore[no-any-return]


def job() -> FactBase:
    """Three ranks; the last one has no device."""
    facts = FactBase(captures=tuple(Scope(rank=r) for r in range(3)))
    put(facts, {"ranks.wait": 1}, TRACE)
    for rank, value in enumerate((1, 0, 1)):
        put(facts, {"f.capture": value, "rank.late": value}, Scope(rank=rank))
    for rank in (0, 1):
        put(facts, {"f.device": rank}, Scope(rank=rank, device=0))
    return facts


def judged(engine: Engine, *some: RuleSpec, facts: FactBase | None = None) -> Inference:
    return infer(facts or job(), rules(*some), engine=engine, strict=True)


def states(found: Inference, code: str) -> dict[str, str]:
    return {o.scope.label() or "job": o.state for o in found.by_code[code]}


def test_a_rule_about_a_trace_is_judged_in_each_capture(engine: Engine) -> None:
    assert states(judged(engine, ALONE), "ABC100") == {
        "rank 0": "fired",
        "rank 1": "quiet",
        "rank 2": "fired",
    }


def test_a_rule_about_all_ranks_is_judged_once(engine: Engine) -> None:
    found = judged(engine, ALL, LATE)
    assert states(found, "COM107") == {"job": "fired"}
    assert states(found, "COM102") == {"rank 0": "fired", "rank 1": "quiet", "rank 2": "fired"}


def test_a_capture_without_the_level_is_judged_as_a_whole(engine: Engine) -> None:
    """And no rank sees the facts of another."""
    found = states(judged(engine, DEVICE), "ABC101")
    assert found == {"rank 0, device 0": "quiet", "rank 1, device 0": "fired", "rank 2": "unknown"}


def test_rows_are_those_of_the_rank(engine: Engine) -> None:
    facts = job()
    facts.entities["copy"] = [{"rank": 1, "device": 0, "kind": "HtoD"}]
    when = {"all": [ge("f.device", 0)], "join": [{"as": "c", "entity": "copy", "on": ["device"]}]}
    found = states(judged(engine, rule("ABC102", "copies", when), facts=facts), "ABC102")
    assert (found["rank 0, device 0"], found["rank 1, device 0"]) == ("quiet", "fired")


def test_a_capture_that_cannot_be_believed_withholds_its_own_findings(engine: Engine) -> None:
    damaged = rule("CAP111", "damaged", [ge("f.capture", 1)], scope="trace", withholds=True)
    some = rule("ABC103", "some", [ge("f.device", 0)])
    found = conclude(judged(engine, damaged, some, ALL))
    assert {(f.code, f.scope.rank) for f in found.findings} == {
        ("CAP111", 0),
        ("CAP111", 2),
        ("ABC103", 1),
        ("COM107", None),
    }
    assert [(o.code, o.scope.rank, o.by) for o in found.overruled] == [("ABC103", 0, "damaged")]


def test_a_late_rank_explains_what_the_others_show(engine: Engine) -> None:
    """A cause on one device explains only what that device shows."""
    low = rule("UTL101", "low", [ge("f.device", 0)], kind="symptom")
    late = rule("COM102", "late", [ge("rank.late", 1)], scope="rank", then={"explains": ["low"]})
    found = conclude(judged(engine, low, late))
    assert {f.code for f in found.findings} == {"COM102"}
    assert [s.scope.rank for s in found.findings[0].explains] == [0, 1]
    here = rule("ABC101", "slow", [ge("f.device", 1)], then={"explains": ["low"]})
    found = conclude(judged(engine, low, here))
    assert {(f.code, f.scope.rank) for f in found.findings} == {("ABC101", 1), ("UTL101", 0)}


def test_a_late_rank_overrules_what_others_show_of_some_operations(engine: Engine) -> None:
    """Where it is not known what an operation is, its finding stays."""
    facts = job()
    kinds = {"gemm": "gemm", "reduce": "communication", "odd": None}
    for name, family in kinds.items():
        scope = Scope(rank=1, device=0, operation=name)
        put(facts, {"f.tail": 1} | ({} if family is None else {"operation.family": family}), scope)
    where = [{"fact": "operation.family", "op": "eq", "value": "communication"}]
    tail = rule("KRN102", "tail", [ge("f.tail", 1)], scope="operation")
    then = {"overrules_where": [{"cause": "tail", "when": where}]}
    late = rule("COM102", "late", [ge("rank.late", 1)], scope="rank", then=then)
    found = judged(engine, tail, late, facts=facts)
    assert {o.scope.operation: o.state for o in found.by_code["KRN102"] if o.scope.operation} == {
        "gemm": "fired",
        "reduce": "overruled",
        "odd": "fired",
    }
    assert [(o.code, o.by) for o in conclude(found).overruled] == [("KRN102", "COM102")]
    on_time = infer(facts, rules(tail, late), engine=engine, given={"late": "quiet"})
    assert "overruled" not in {o.state for o in on_time.by_code["KRN102"]}


def test_facts_about_a_job_are_those_that_the_catalogue_calls_joint() -> None:
    assert {name for name in CATALOGUE if of_job(name)} == JOINT
