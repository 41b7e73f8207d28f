"""Why and why not, in statements with both numbers."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.engine.infer import Inference, infer
from advisor.engine.reasons import Explainer, nearest_first
from advisor.model.explanation import Reason
from advisor.model.facts import FactBase, Scope
from tests.engine.engine_support import base, because, ge, put, rule, rules

IDLE = rule("UTL100", "gpu-idle", [ge("budget.idle_ratio", 0.15)], kind="symptom")
SYNC = rule(
    "SYN101",
    "blocking-sync",
    {
        "any": [
            {"all": [{"fact": "sync.idle_ratio", "op": "ge", "param": "min_idle"}, {"symptom": "gpu-idle"}]},
            {"all": [ge("sync.span_ratio", 0.2)]},
        ],
        "join": [
            {
                "as": "d2h",
                "entity": "copy_class",
                "on": ["device"],
                "where": [{"field": "kind", "op": "eq", "value": "DtoH"}],
            }
        ],
    },
    params={"min_idle": {"default": 0.05, "unit": "ratio", "origin": "peer"}},
    unless=[ge("capture.overhead_ratio", 0.2) | {"if_unknown": "pass"}],
)
RULER = rule("CAP102", "opaque", [ge("capture.opaque_count", 1)], then={"overrules": ["blocking-sync"]})


def inferred(facts: FactBase) -> Inference:
    return infer(facts, rules(IDLE, SYNC, RULER), engine="python")


def explained(inference: Inference, code: str = "SYN101") -> list[Reason]:
    """The trees of a rule: those that fired, then nearest misses first."""
    explainer = Explainer(inference, inference.facts.missing.get)
    found = inference.by_code[code]
    fired = [o for o in found if o.state == "fired"]
    missed = nearest_first(o for o in found if o.state != "fired")
    return [explainer.tree(o) for o in (*fired, *missed)]


def lines(reason: Reason, depth: int = 0) -> Iterator[str]:
    yield "  " * depth + reason.text
    for below in reason.reasons:
        yield from lines(below, depth + 1)


def known(**values: float) -> FactBase:
    named = {
        "budget.idle_ratio": 0.3,
        "sync.idle_ratio": 0.24,
        "sync.span_ratio": 0.1,
        "capture.opaque_count": 0,
    }
    named |= {k.replace("__", "."): v for k, v in values.items()}
    return base(named, entities={"copy_class": [{"device": 0, "kind": "DtoH"}]})


def test_why_goes_down_to_the_facts() -> None:
    (found,) = explained(inferred(known()))
    assert list(lines(found)) == [
        "device 0: fired",
        "  sync.idle_ratio is 24 %, at least 5 % (min_idle)",
        "  symptom gpu-idle fired",
        "    UTL100, device 0: fired",
        "      budget.idle_ratio is 30 %, at least 15 %",
        "  1 row of copy_class with kind equal to DtoH",
        "  not checked, as whether capture.overhead_ratio is at least 20 % is not known",
    ]


def test_why_not_says_how_far() -> None:
    (found,) = explained(inferred(known(sync__idle_ratio=0.04)))
    assert list(lines(found)) == [
        "device 0: quiet",
        "  sync.idle_ratio is 4 %, not at least 5 % (min_idle): off by 20 % of the threshold",
        "  symptom gpu-idle fired",
        "    UTL100, device 0: fired",
        "      budget.idle_ratio is 30 %, at least 15 %",
        "  nor SYN101#2",
        "    sync.span_ratio is 10 %, not at least 20 %: off by 50 % of the threshold",
    ]


def test_why_not_takes_the_nearest_branch_and_scope() -> None:
    facts = known(sync__idle_ratio=0.01, sync__span_ratio=0.19)
    put(facts, {"sync.idle_ratio": 0.0, "sync.span_ratio": 0.0}, Scope(device=1))
    texts = [n.text for n in explained(inferred(facts))]
    assert texts[0].startswith("device 0")
    assert "sync.span_ratio is 19 %" in explained(inferred(facts))[0].reasons[0].text


def test_why_not_says_what_is_missing_and_why() -> None:
    facts = known()
    del facts.facts["sync.idle_ratio", Scope(device=0)]
    facts.missing["sync.idle_ratio"] = "no API calls in this capture"
    (node,) = explained(inferred(facts))
    assert node.text == "device 0: not evaluated, missing sync.idle_ratio"
    assert node.holds is None
    assert (
        node.reasons[0].text
        == "whether sync.idle_ratio is at least 5 % (min_idle) is not known: no API calls in this capture"
    )


def test_why_not_shows_a_symptom_that_missed() -> None:
    (node,) = explained(inferred(known(budget__idle_ratio=0.1, sync__span_ratio=0)))
    assert [(n.kind, n.holds) for n in node.reasons] == [("state", False), ("fact", True), ("branch", False)]
    assert node.reasons[0].text == "symptom gpu-idle did not fire"
    assert "budget.idle_ratio is 10 %" in node.reasons[0].reasons[0].reasons[0].text


def test_why_not_shows_guards_rows_and_rulers() -> None:
    (node,) = explained(inferred(known(capture__overhead_ratio=0.3)))
    assert node.reasons[0].text == "stopped, as capture.overhead_ratio is 30 %, at least 20 %"
    facts = known()
    facts.entities["copy_class"] = []
    (node,) = explained(inferred(facts))
    assert node.reasons[0].text == "no row of copy_class with kind equal to DtoH"
    (node,) = explained(inferred(known(capture__opaque_count=1)))
    assert node.text == "device 0: overruled"
    assert node.reasons[0].text == "overruled by CAP102 (device 0)"


def test_outcomes_link_to_what_they_used() -> None:
    found = inferred(known())
    (outcome,) = found.by_code["SYN101"]
    assert set(because(outcome)) == {
        ("fact", "sync.idle_ratio"),
        ("outcome", "UTL100"),
        ("rows", "copy_class"),
    }
    (quiet,) = inferred(known(sync__idle_ratio=0.01)).by_code["SYN101"]
    assert ("fact", "sync.idle_ratio") in because(quiet)
