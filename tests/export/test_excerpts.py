"""Events of places and of a typical step: exact, joined to their calls, and bounded."""

from __future__ import annotations

import pytest

from advisor.export.excerpts import EVENTS, PLACES, STEP
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import diagnose, open_trace
from advisor.reports import json_report
from tests.captures import committed


@pytest.fixture(scope="module")
def eager() -> Diagnosis:
    return diagnose(committed("decode_eager_bs1"), drawn=True)


def test_the_typical_step_comes_first_and_is_whole(eager: Diagnosis) -> None:
    step = eager.excerpts[0]
    assert (step.place, step.title) == (None, "typical decode")
    kernels = [e for e in step.events if step.tracks[e.track].startswith("GPU")]
    assert len(kernels) >= 796
    assert len(step.events) == step.total
    median = eager.main_steps[0].median_ms
    assert (step.end_ns - step.start_ns) / 1e6 == pytest.approx(median, rel=0.2)


def test_every_finding_has_its_first_place(eager: Diagnosis) -> None:
    shown = {e.place for e in eager.excerpts}
    first = [f.time_ranges[0] for f in eager.findings if f.time_ranges]
    assert first
    assert all((r.start_ns, r.end_ns) in shown for r in first)
    assert len(eager.excerpts) <= PLACES
    assert all(len(e.events) <= EVENTS for e in eager.excerpts[1:])
    assert len(eager.excerpts[0].events) <= STEP * EVENTS


def test_they_are_no_part_of_the_json(eager: Diagnosis) -> None:
    assert b"excerpts" not in json_report.render([eager])


def test_events_are_those_of_the_capture(eager: Diagnosis) -> None:
    step = eager.excerpts[0]
    with open_trace(committed("decode_eager_bs1")) as trace:
        rows = trace.columns("kernels", ("start", "end", "name_id"))
        names = trace.texts(rows["name_id"].tolist())
        known = set(zip(names, rows["start"].tolist(), rows["end"].tolist(), strict=True))
    kernels = [e for e in step.events if step.texts[e.note].startswith("grid ")]
    shown = {(step.texts[e.name], at := step.start_ns + e.start, at + e.length) for e in kernels}
    inside = {k for k in known if k[2] > step.start_ns and k[1] < step.end_ns}
    assert len(kernels) == len(shown)
    assert shown == inside


def test_work_is_joined_to_its_call(eager: Diagnosis) -> None:
    step = eager.excerpts[0]
    joined = [(e, step.events[e.call]) for e in step.events if e.call >= 0]
    assert len(joined) >= 796
    assert all(step.tracks[call.track].endswith("CUDA calls") for _, call in joined)
    assert all(call.start <= work.start for work, call in joined)


def test_two_steps_stand_above_each_other_from_one_zero(eager: Diagnosis) -> None:
    step = eager.excerpts[0]
    both = step.beside(step, ("before", "after"))
    half = len(step.events)
    assert len(both.events) == both.total == 2 * half
    assert both.start_ns == 0
    for one, other in zip(both.events[:half], both.events[half:], strict=True):
        assert (one.start, one.length) == (other.start, other.length)
        assert both.texts[one.name] == both.texts[other.name]
        names = both.tracks[one.track], both.tracks[other.track]
        assert (names[0].partition(": ")[0], names[1].partition(": ")[0]) == ("before", "after")
        assert (one.call == -1) == (other.call == -1)
        assert one.call == -1 or both.events[other.call].start == both.events[one.call].start
