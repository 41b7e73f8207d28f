"""Variants of captures with a known answer; the relations are those of `test_edits`."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.pipeline.diagnose import Options, analysis_of
from tests.kineto_builder import Profile
from tests.metamorphic import edits as e
from tests.metamorphic import events as k
from tests.metamorphic import variants as v
from tests.metamorphic.captures import after, after_events, before, before_events, of_each_first
from tests.metamorphic.edits import KERNEL, MEMCPY, MS, NVTX, RUNTIME
from tests.metamorphic.test_edits import Case, check, found, steps

CASES = [
    # ---- times
    Case("session times since 1970", "launched", e.shifted(1_700_000_000 * 1_000 * MS), "causes"),
    Case("session times since 1970", "pageable", e.shifted(1_700_000_000 * 1_000 * MS), "causes"),
    Case("a clock of 32 ns", "launched", v.to_unit(32), "causes"),
    Case("a clock of 32 ns", "served", v.to_unit(32), "causes"),
    Case("a clock of 1 us", "pageable-u", v.to_unit(1000), "causes"),
    Case("the last two thirds", "launched", v.from_share(0.34), "causes"),
    Case("the last half", "gap", v.from_share(0.5), "causes"),
    Case("one pause", "served", v.one_pause(30 * MS), "steps", "step-outliers"),
    Case("one pause", "gap", v.one_pause(500 * MS), "steps", "long-interruptions", stays="host-gap"),
    Case("one pause", "launched", v.one_pause(30 * MS), "steps", "step-outliers"),
    Case("one kernel years away", "launched", v.one_row_far_away(KERNEL), "causes"),
    Case("one call years away", "launched", v.one_row_far_away(RUNTIME), "causes"),
    Case("one of 32 calls years away", "served", v.one_row_far_away(RUNTIME), "", "damaged-capture"),
    # ---- names and ranges
    Case("short kernel names alone", "served", v.kernels_by_short_name, "steps"),
    Case("ranges of another domain", "gap", v.ranges_of("domainId", 5), "causes"),
    Case("ranges by start and end", "gap", v.ranges_of("eventType", 60), "causes"),
    Case("a range around the whole program", "launched", v.inside_one_range("serve"), "causes"),
    Case("a range around the whole program", "gap", v.inside_one_range("main loop"), "causes"),
    Case("marks", "served", v.with_marks, "causes"),
    Case("a range that was never closed", "gap", v.with_open_range, "causes"),
    Case("every second step range lost", "gap", v.every_second_step_range_lost, "causes"),
    Case("every second step range lost", "served", v.every_second_step_range_lost, "causes"),
    Case("steps without numbers", "gap", v.steps_without_numbers, "causes"),
    Case("steps without numbers", "pageable-u", v.steps_without_numbers, "causes"),
    # ---- streams, devices, threads, processes
    Case("two streams in turns", "launched", v.on_streams(2), "causes"),
    Case("the third GPU", "launched", v.on_device(3), "causes"),
    Case("the third GPU", "pageable-u", v.on_device(3), "causes"),
    Case("a memset on an idle GPU", "graph", v.with_memset_on_idle_gpu, "found"),
    Case("a memset on an idle GPU", "gap", v.with_memset_on_idle_gpu, "found"),
    Case("two threads in turns", "launched", v.threads_in_turns, "causes"),
    Case("two threads in turns", "gap", v.threads_in_turns, "causes"),
    Case("two threads in turns", "pageable-u", v.threads_in_turns, "causes"),
    Case("a thread that polls", "served", v.with_poller, "causes"),
    Case("a thread that polls", "launched", v.with_poller, "causes"),
    Case("a small process beside", "launched", v.with_small_process, "process"),
    Case("a small process beside", "served", v.with_small_process, "process"),
    Case("a small process beside", "gap", v.with_small_process, "process", stays="host-gap"),
    # ---- what was recorded
    Case("a long recording", "two", v.in_a_long_recording, "found"),
    Case("a long recording", "launched", v.in_a_long_recording, "found"),
    Case("graphs as one block", "gap", v.graphs_in_one_block, "steps", stays="host-gap"),
    Case("graphs unrolled", "served", v.graphs_unrolled, "steps", "launch-bound"),
    Case("half of the samples", "bound", v.sampled_half_as_often, "steps", stays="memory-bandwidth-bound"),
    Case("one kernel in 500 twice", "launched", v.some_rows_doubled(KERNEL, 500), "causes"),
    Case("one call in 500 twice", "launched", v.some_rows_doubled(RUNTIME, 500), "causes"),
    Case("kernels behind a view", "launched", v.behind_a_view(KERNEL), "", "damaged-capture"),
    Case("pinned copies called pageable", "served", v.pageable_uploads, "steps", "pageable-copies"),
    Case("empty copies", "launched", e.with_copies_table(e.emptied(MEMCPY)), "causes"),
    Case("empty ranges", "served", e.emptied(NVTX), "steps", "no-nvtx-ranges"),
]

EVENT_CASES = [
    Case("times in whole us", "script", k.to_whole_us, "causes"),
    Case("kernels twice", "script", k.doubled("kernel"), "", "damaged-capture"),
    Case("nodes of graphs twice", "kineto", k.doubled("kernel"), "", "damaged-capture"),
    Case("one kernel years away", "script", k.one_far_away, "causes"),
    Case("the first half", "script", k.first_part(0.5), "causes"),
    Case("the third GPU", "script", k.on_device(3), "causes"),
    Case("a thread that polls", "script", k.with_polling_thread, "causes"),
    Case("no copies of annotations", "script", k.without("gpu_user_annotation"), "causes"),
]


@pytest.mark.parametrize("case", of_each_first(CASES))
def test_a_variant_of_an_export_has_its_known_effect(case: Case, tmp_path: Path) -> None:
    check(case, before(case.capture), after(case.capture, case.edit, tmp_path / "edited.sqlite"))


@pytest.mark.parametrize("case", of_each_first(EVENT_CASES))
def test_a_variant_of_events_has_its_known_effect(case: Case, tmp_path: Path) -> None:
    now = after_events(case.capture, case.edit, tmp_path / "edited.json")
    check(case, before_events(case.capture), now)


def test_a_range_around_two_steps_makes_one_of_them(tmp_path: Path) -> None:
    was, now = before("served"), after("served", v.steps_merged, tmp_path / "edited.sqlite")
    assert steps(now) == (steps(was) + 1) // 2 - 1
    assert found(now) == found(was)


def test_calls_without_names_cannot_be_judged(tmp_path: Path) -> None:
    now = after("launched", v.calls_without_names, tmp_path / "edited.sqlite")
    assert "damaged-capture" in found(now)
    assert "launch-bound" not in found(now)


def test_steps_without_annotations_do_not_depend_on_the_order_of_events(tmp_path: Path) -> None:
    """Twelve kernels come once a step each: the same of them marks the steps in every order."""
    made = Profile().gpu()
    for i in range(8 * 12 + 5):
        made.launch(at=i * 10_000, kernel=f"kernel_{i % 12}", kernel_dur=3_000)
    ends = []
    for name in ("was.json", "now.json"):
        with analysis_of(made.write(tmp_path / name), Options()) as analysis:
            ends.append(analysis.repeated.gpu_end.tolist())
        made.events.reverse()
    assert len(ends[0]) == 8
    assert ends[0] == ends[1]
