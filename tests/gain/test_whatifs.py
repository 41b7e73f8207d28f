"""The catalogue of what-ifs, and what `--fix` takes."""

from __future__ import annotations

import pytest

from advisor.errors import InputError
from advisor.gain.whatifs import catalogue, constant, make_fix, no_estimate, split_fix
from advisor.knowledge.files import references
from advisor.pipeline.explain import parse_fixes
from tests.for_each import for_each
from tests.shipped import shipped_rules

RULES = shipped_rules()


def test_every_constant_has_an_origin() -> None:
    for name, entry in catalogue().constants.items():
        assert entry.value > 0, name
        assert len(entry.origin) > 20, name
    assert constant("graph_node_gap") == 500
    assert {"cuda-graphs-post", "nsys-latency-post"} <= references().keys()


def test_every_rule_has_an_estimate_or_a_reason() -> None:
    for rule in RULES.by_code.values():
        if rule.gain is not None:
            for gain in rule.gain.choices:
                fix = make_fix(gain.what_if, gain.params)
                measure = catalogue().whatifs[fix.what_if].measure
                assert gain.measure == measure, rule.code
            # One that no what-if may apply to needs a reason for that case.
            assert (rule.cause in catalogue().no_estimate) == bool(gain.applies_when), rule.code
        elif rule.kind not in ("note", "question") and rule.subject != "recording":
            assert rule.cause in catalogue().no_estimate, rule.code
    assert catalogue().no_estimate.keys() <= {r.cause for r in RULES.by_code.values()}
    assert no_estimate("something-new").startswith("no what-if models")


def test_parameters_are_filled_in() -> None:
    fix = make_fix("speculate", {})
    assert fix.number("n") == 2
    assert fix.shown == {"n": 2}
    assert make_fix("cuda_graphs", {}).shown == {}
    assert make_fix("cuda_graphs", {"syncs": "removed"}).shown == {"syncs": "removed"}
    assert make_fix("pin_memory", {"gb_per_s": "12.5"}).shown == {"gb_per_s": 12.5}
    assert make_fix("speculate", {"n": 2}).key == fix.key
    assert make_fix("speculate", {"n": 3}).key != fix.key


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("remove_gc", "remove_gc", {}),
        ("batch:n=8", "batch", {"n": "8"}),
        (" remove_copy:at_least=1:idle_waits=kept ", "remove_copy", {"at_least": "1", "idle_waits": "kept"}),
    ],
)
def test_fixes_as_typed(text: str, name: str, params: dict[str, str]) -> None:
    assert split_fix(text) == (name, params)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("batch:n", "NAME:param=value"),
        ("batch:=8", "NAME:param=value"),
        ("batch:n=many", "expected a number"),
        ("batch:n=-1", "from 1 to 4096"),
        ("batch:n=nan", "expected a number"),
        ("batch:n=1e300", "from 1 to 4096"),
        ("batch:n=2:n=3", "gives n twice"),
        ("overlap_communication:overlap=1.5", "from 0 to 1"),
        ("fp8_weights:bytes_ratio=2", "from 0 to 1"),
        ("pin_memory:gb_per_s=-1", "0 or more"),
        ("", "names no what-if"),
        (":n=8", "names no what-if"),
        ("no-such-cause-at-all", "see 'advisor whatif --list'"),
        ("batch:m=8", "expected one of n"),
        ("remove_allocations:n=8", "takes none"),
        ("cuda_graphs:syncs=perhaps", "kept, removed"),
        ("cuda_graph", "did you mean 'cuda_graphs'"),
        ("KRN107", "names no what-if"),
        ("launch-bond", "did you mean 'launch-bound'"),
    ],
)
def test_fixes_that_are_none(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_fixes([text], RULES.by_code)


def test_a_rule_or_a_cause_names_its_what_if() -> None:
    one, two, three = parse_fixes(["lch101", "launch-bound:syncs=removed", "SYN101"], RULES.by_code)
    assert (one.what_if, one.code, one.cause) == ("cuda_graphs", "LCH101", "launch-bound")
    assert two.params["syncs"] == "removed"
    assert three.params["which"] == "in_step"


def test_assumptions_of_a_choice_stand_only_with_it() -> None:
    narrow, wide = (
        make_fix("tensor_rate", {"precision": "fp8"}),
        make_fix("tensor_rate", {"precision": "bf16"}),
    )
    assert set(narrow.assumptions) < set(wide.assumptions)
    assert any("FP32" in text for text in wide.assumptions)


@for_each(sorted(catalogue().whatifs))
def test_assumptions_are_for_choices_of_the_what_if(name: str) -> None:
    found = catalogue().whatifs[name]
    assert set(found.assumptions_for) <= {c for p in found.params.values() for c in p.choices}
