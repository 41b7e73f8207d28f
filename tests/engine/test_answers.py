"""Every part of the budget of 3 % and more ends in a finding or in a sentence why not."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine.conclude import conclude
from advisor.engine.infer import infer
from advisor.engine.states import answered, why_not
from advisor.model.findings import Budget, Part
from advisor.model.gain import WORTH
from tests.captures import committed, diagnosed
from tests.engine.engine_support import base, ge, rule, rules
from tests.test_captures import COMMITTED


def about(code: str, cause: str, fact: str, part: str, *also: str, **more: Any) -> Any:
    impact = {"fact": fact, "part": part, "also": also}
    return rule(code, cause, [ge(fact, 0.1)], impact=impact, **more)


WAIT = about("SYN101", "waits", "f.sync", "sync", "copy_call")
LAUNCH = about("LCH101", "launching", "f.launch", "launch_call")


def part(values: dict[str, Any], share: float, *specs: Any, name: str = "sync") -> Part:
    """A part of the window of a device as it is answered."""
    inference = infer(base(values), rules(*specs), engine="python")
    findings = conclude(inference).findings
    budget = Budget(device=0, window_ms=10.0, parts=(Part(part=name, ms=10 * share, share=share),))
    by_code = inference.program.rules.by_code
    (out,) = answered([budget], findings, by_code, why_not(inference))
    return out.parts[0]


def test_a_finding_that_holds_half_of_a_part_answers_it() -> None:
    answer = part({"f.sync": 0.2}, 0.3, WAIT)
    assert (answer.findings, answer.why) == (("waits",), None)


def test_a_finding_that_holds_little_of_an_idle_part_leaves_a_sentence() -> None:
    answer = part({"f.sync": 0.12, "f.other": 0.05}, 0.3, WAIT, about("SYN102", "rest", "f.other", "sync"))
    assert answer.findings == ("waits",)
    assert answer.why is not None
    assert answer.why.startswith("rest did not fire: f.other is 5 %, not at least 10 %")


def test_of_a_busy_part_any_finding_is_enough() -> None:
    answer = part({"f.sync": 0.12}, 0.9, about("KRN101", "kernels", "f.sync", "compute"), name="compute")
    assert (answer.findings, answer.why) == (("kernels",), None)


def test_a_quiet_rule_is_named_with_the_number_that_failed() -> None:
    answer = part({"f.sync": 0.05, "f.launch": 0.0}, 0.05, WAIT, LAUNCH)
    assert not answer.findings
    assert answer.why == "waits did not fire: f.sync is 5 %, not at least 10 %: off by 50 % of the threshold"


def test_a_rule_for_captures_of_this_kind_comes_before_one_for_others() -> None:
    sums = {"fact": "f.sums", "op": "eq", "value": True}
    other = rule("SUM101", "sums", [sums, ge("f.sync", 0.1)], impact={"fact": "f.sync", "part": "sync"})
    own = about("SYN101", "waits", "f.sync", "copy_call", "sync")
    answer = part({"f.sync": 0.05, "f.sums": False}, 0.3, other, own)
    assert answer.why is not None
    assert answer.why.startswith("waits did not fire")


def test_of_several_rules_that_hold_most_of_the_time_the_nearest_is_named() -> None:
    impact = {"fact": "f.input", "part": "sync"}
    far = rule("HST106", "input", [ge("f.input", 0.1), ge("f.part", 0.5)], impact=impact)
    answer = part({"f.sync": 0.06, "f.input": 0.07, "f.part": 0.01}, 0.07, far, WAIT)
    assert answer.why is not None
    assert answer.why.startswith("waits did not fire: f.sync is 6 %")


def test_a_guard_is_named_as_what_stopped_the_rule() -> None:
    guarded = about("SYN101", "waits", "f.sync", "sync", unless=[ge("f.hidden", 0.01)])
    answer = part({"f.sync": 0.3, "f.hidden": 0.5}, 0.3, guarded)
    assert answer.why == "waits did not fire: stopped, as f.hidden is 50 %, at least 1 %"


def test_what_another_cause_explains_better_is_named() -> None:
    ruler = rule("LCH102", "storm", [ge("f.launch", 0.1)], then={"overrules": ["waits"]})
    answer = part({"f.sync": 0.3, "f.launch": 0.4}, 0.3, WAIT, ruler)
    assert answer.why == "waits fired, and storm explains the same better"


def test_a_missing_fact_is_named() -> None:
    assert part({}, 0.3, WAIT).why == "waits could not be judged, for lack of f.sync"


def test_a_rule_about_the_part_comes_before_one_that_also_speaks_of_it() -> None:
    copies = about("XFR101", "copies", "f.copy", "copy_call")
    answer = part({"f.sync": 0.09, "f.copy": 0.01}, 0.05, WAIT, copies, name="copy_call")
    assert answer.why is not None
    assert answer.why.startswith("copies did not fire")


def test_a_part_that_no_rule_speaks_of_says_what_it_is() -> None:
    assert part({}, 0.3, LAUNCH, name="unknown").why == (
        "no rule covers it (idle whose next operation has no API call in the capture)"
    )


@pytest.mark.parametrize("share", [0.0, WORTH - 0.001])
def test_small_parts_are_not_answered(share: float) -> None:
    answer = part({"f.sync": 0.2}, share, WAIT)
    assert (answer.findings, answer.why) == ((), None)


def test_damage_comes_before_every_answer() -> None:
    damaged = rule("CAP111", "damaged", [ge("f.lost", 0.1)], withholds=True)
    assert part({"f.sync": 0.01, "f.lost": 0.5}, 0.3, WAIT, damaged).why == "not judged: damaged comes first"


@pytest.mark.parametrize("name", COMMITTED)
def test_every_part_of_a_real_capture_is_answered(name: str) -> None:
    """No part is left to "the GPU is idle": that symptom speaks of none."""
    diagnosis = diagnosed(committed(name))
    causes = {f.cause for f in diagnosis.findings} - {"gpu-idle"}
    for one in (p for b in diagnosis.budget if b.phase is None for p in b.parts):
        assert set(one.findings) <= causes
        assert bool(one.findings or one.why) == (one.share >= WORTH)
