"""A gain is credited to the fix that was made: found from both captures, each by its number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.comparison.before_after import compare
from advisor.facts.catalog import CATALOGUE
from advisor.gain.whatifs import catalogue
from advisor.knowledge.verb_files import signs_of_fixes
from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis
from advisor.model.gain import Span
from tests.captures import EXAMPLES, SHARED, diagnosed
from tests.compare.support import side, with_times

REAL = pytest.mark.skipif(not (SHARED / "h200").is_dir(), reason="needs the shared captures")


def diagnosis(name: str) -> Diagnosis:
    file = f"{name}.sqlite.xz"
    ours = EXAMPLES / file
    return diagnosed(ours if ours.is_file() else SHARED / "h200" / file)


def compared(before: str, after: str) -> Comparison:
    return compare(side("before", diagnosis(before)), side("after", diagnosis(after)))


def after_fix(before: Diagnosis, ms: float, gone: str, **facts: float) -> Diagnosis:
    """The capture after a fix: steps of `ms`, a cause gone, and other numbers, with `__` for the dot."""
    assert before.work is not None
    phase = before.work.phases[0]
    mean = sum(phase.times_ms) / len(phase.times_ms)
    moved = {name.replace("__", "."): value for name, value in facts.items()}
    own = Span(low=ms, mid=ms, high=ms)
    return with_times(before, {phase.phase: [t * ms / mean for t in phase.times_ms]}).replaced(
        inputs=tuple(i.replaced(step_ms=ms, untraced_step_ms=own) for i in before.inputs),
        findings=tuple(f for f in before.findings if f.cause != gone),
        facts=tuple(replace(f, value=moved.get(f.name, f.value)) for f in before.facts),
    )


def outcomes(found: Comparison) -> dict[str, str]:
    return {g.cause: g.outcome for g in found.gains}


def test_every_sign_is_of_a_what_if_and_a_fact_of_captures() -> None:
    known = catalogue().whatifs
    for what_if, sign in signs_of_fixes().items():
        assert what_if in known, what_if
        assert sign.fact in CATALOGUE, sign.fact
        assert sign.over is None or sign.over in CATALOGUE, sign.over


def test_graphs_are_credited_to_the_launches_and_not_to_fusion() -> None:
    found = outcomes(compared("decode_eager_bs1", "decode_graph_bs1"))
    assert found["launch-bound"] == "as predicted"
    assert found["unfused-elementwise"] == "not applied"


def test_a_cause_that_shrank_beside_a_fix_is_not_credited() -> None:
    """Pinned copies are shorter, so less of them is exposed; nothing was prefetched."""
    before = diagnosis("decode_h2d_pageable")
    pinned = {"copy__pageable_ratio": 0.0, "copy__exposed_ratio": 0.37, "copy__pageable_excess_ratio": 0.0}
    own = {"copy__link_time_ratio": 0.37, "copy__link_exposed_ratio": 0.37}
    after = after_fix(before, 3.3, "pageable-copies", **pinned, **own)
    found = outcomes(compare(side("before", before), side("after", after)))
    assert found["pageable-copies"] in ("as predicted", "less than predicted", "more than predicted")
    assert found.get("transfer-bound", "not applied") == "not applied"


def test_a_number_that_hardly_moved_is_no_fix() -> None:
    before = diagnosis("decode_h2d_pageable")
    ratio = next(f.value for f in before.facts if f.name == "copy.pageable_ratio")
    assert isinstance(ratio, float)
    after = after_fix(before, 8.0, "", copy__pageable_ratio=0.8 * ratio)
    assert outcomes(compare(side("before", before), side("after", after)))["pageable-copies"] == "not applied"


@REAL
def test_pinning_is_not_credited_to_prefetching() -> None:
    found = compared("decode_h2d_pageable", "decode_h2d_pinned")
    assert outcomes(found)["pageable-copies"] == "as predicted"
    assert outcomes(found)["transfer-bound"] == "not applied"
    # The exposed time fell because the copies got faster.
    assert not [c for c in found.checks if c.cause == "transfer-bound" and c.outcome == "as promised"]


@REAL
def test_a_step_that_two_fixes_changed_is_credited_to_neither_alone() -> None:
    found = compared("decode_sync", "decode_graph_bs1")
    assert outcomes(found)["blocking-sync"] == outcomes(found)["launch-bound"] == "with others"


@REAL
def test_a_fix_that_was_not_made_has_no_number() -> None:
    found = outcomes(compared("decode_sync", "decode_eager_bs1"))
    assert found["launch-bound"] == "not applied"
    assert found["blocking-sync"] in ("no effect", "as predicted")


def test_the_same_capture_made_no_fix() -> None:
    found = compared("decode_eager_bs1", "decode_eager_bs1")
    assert set(outcomes(found).values()) <= {"not applied"}
