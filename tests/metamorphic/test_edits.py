"""Edits of captures with a known answer: what must appear, what must go, and what must stay.

"Same" is a relation to the diagnosis of the unedited capture and never a fixed list of causes:

    all      every finding with its severity and device, and the facts about the devices
    causes   the causes that cost something, beside those that the line itself names
    steps    the number of steps, within one
    process  the same of the process with most GPU time, beside another one
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor.comparison.before_after import compare
from advisor.comparison.sides import Side
from advisor.model.findings import Diagnosis, Span
from tests.metamorphic import edits as e
from tests.metamorphic import events as k
from tests.metamorphic.captures import after, after_events, before, before_events, of_each_first
from tests.metamorphic.edits import KERNEL, MEMCPY, MS, NVTX, RUNTIME


class Case(NamedTuple):
    """`unjudged` are causes that the edited capture cannot judge any more; places in time lie
    `later_s` later in it. A cause that a finding stands for counts as found."""

    name: str
    capture: str
    edit: Any
    same: str = "causes"  # "found": the same findings, those of no cost too
    appears: str = ""
    goes: str = ""
    stays: str = ""
    unjudged: str = ""
    later_s: float = 0.0
    but: str = ""  # the facts that the edit changes while all others stay the same


SYNC, DEVICE_SYNC = "cudaStreamSynchronize_v3020", "cudaDeviceSynchronize_v3020"
WAITS = (
    "sync.event_wait_ratio sync.stream_wait_ratio sync.context_wait_ratio sync.waited_stream "
    "sync.empty_wait_ratio sync.over_wait_ratio"
)
#: The fact that is a place in time.
PLACE = "host.slowest_step_at"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
CASES = [
    # ---- the same capture in other words
    Case("an hour later", "eager", e.shifted(3_600_000 * MS), "all", later_s=3600),
    Case("an hour later", "gc", e.shifted(3_600_000 * MS), "all", later_s=3600),
    Case("an odd number of ns later", "pageable", e.shifted(7_777_777), "all", later_s=0.007_777_777),
    Case("dated before the session", "bound", e.shifted(-100_000 * MS), "all", later_s=-100),
    Case("dated before the session", "pageable", e.shifted(-100 * MS), "all", later_s=-0.1),
    Case("dated before the session", "cold", e.shifted(-100_000 * MS), "all", later_s=-100),
    Case("dated from 1970 on", "bound", e.shifted(1_780_000_000_000 * MS), "all", later_s=-0.0063),
    Case("dated from 1970 on", "eager-u", e.shifted(1_780_000_000_000 * MS), "all", later_s=-0.0062),
    Case("a tenth slower", "eager-u", e.stretched),
    Case("a tenth slower", "pageable-u", e.stretched),
    Case("kernels in another order", "eager", e.in_random_order(KERNEL), "all"),
    Case("kernels in another order", "graph", e.in_random_order(KERNEL), "all"),
    Case("calls in another order", "eager", e.in_random_order(RUNTIME), "all"),
    Case("ranges in another order", "gc", e.in_random_order(NVTX), "all"),
    Case("copies in another order", "pageable", e.in_random_order(MEMCPY), "all"),
    Case("every table in another order", "graph", e.all_in_random_order, "all"),
    Case("a column of the user's", "eager", e.with_user_column(KERNEL), "all"),
    Case("a column of the user's among calls", "pageable", e.with_user_column(RUNTIME), "all"),
    Case("a table of the user's", "gap", e.with_user_table, "all"),
    Case("a view of the user's", "graph", e.with_user_view, "all"),
    Case("an index", "eager", e.with_index, "all"),
    Case("larger pages", "opaque", e.in_larger_pages, "all"),
    Case("free pages", "gc", e.with_freed_pages, "all"),
    Case("other process ids", "eager", e.processes_renumbered, "all"),
    Case("other process ids", "two", e.processes_renumbered, "all", but="launch.process_steps"),
    Case("other thread ids", "gap", e.threads_renumbered, "all"),
    Case("other streams", "pageable", e.streams_renumbered, "all", but="sync.waited_stream"),
    Case("other contexts", "two", e.contexts_renumbered, "all"),
    Case("other correlation ids", "eager", e.correlations_renumbered, "all"),
    Case("other correlation ids", "two", e.correlations_renumbered, "all"),
    Case("other string ids", "pageable", e.strings_renumbered, "all"),
    Case("another name of the process", "eager", e.process_named("/opt/x y/serve é"), "all"),
    Case("API names of a later version", "pageable", e.calls_of_version("_v13000"), "all"),
    Case("API names without a version", "gap", e.calls_of_version(""), "all"),
    Case("an idle GPU beside", "eager", e.with_idle_gpu),
    Case("a process that only pushes ranges", "gap", e.with_bystander),
    Case("calls long before and after", "whole", e.calls_far_away, "all", later_s=20),
    Case("calls long before and after", "cold", e.calls_far_away, "all", later_s=20),
    Case("the program once more", "cold", e.run_again(50 * MS)),
    Case("the program once more after 3 s", "cold", e.run_again(3_000 * MS)),
    Case("the program once more after 3 s", "bound", e.run_again(3_000 * MS), appears="long-interruptions"),
    Case("the program once more at once", "bound", e.run_again(MS), "", stays="memory-bandwidth-bound"),
    Case("another process after it", "cold", e.run_again(3_000 * MS, 7)),
    Case("another process after it", "eager", e.run_again(3_000 * MS, 7)),
    Case("no enumerations", "pageable", e.without_enums, "all"),
    Case("no names of threads", "gc", e.dropped("ThreadNames"), "all"),
    Case("no list of processes", "gap", e.dropped("PROCESSES"), "all"),
    Case("no options of the capture", "graph", e.dropped("META_DATA_CAPTURE")),
    Case("no description of the system", "eager", e.dropped("TARGET_INFO_SYSTEM_ENV"), "all"),
    Case(
        "no synchronisation records",
        "pageable",
        e.dropped("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
        "all",
        but=WAITS,
    ),
    Case("no creation of graphs", "graph", e.dropped("CUDA_GRAPH_EVENTS"), "all"),
    # ---- steps
    Case("no ranges", "eager-u", e.dropped(NVTX), "steps", "no-nvtx-ranges", stays="launch-bound"),
    Case("no ranges", "graph", e.dropped(NVTX), "steps", "no-nvtx-ranges"),
    Case("no ranges", "gap", e.dropped(NVTX), "steps", stays="host-gap"),
    Case("no ranges", "served", e.dropped(NVTX), "steps", "no-nvtx-ranges"),
    Case("ranges that say nothing", "gap", e.ranges_renamed, "steps", stays="host-gap"),
    Case("ranges that say nothing", "eager-u", e.ranges_renamed, "steps", stays="launch-bound"),
    Case("the first half alone", "eager", e.cut_to(0.5)),
    Case("the first half alone", "gap", e.cut_to(0.5)),
    Case("two thirds of it", "pageable", e.cut_to(0.66)),
    # ---- causes put in
    Case("host code in each step", "served", e.host_gaps(3 * MS), "steps", "host-gap"),
    Case("host code in each step", "eager-u", e.host_gaps(12 * MS), "steps", "host-gap"),
    Case("longer host gaps", "gap", e.host_gaps(5 * MS), "steps", stays="host-gap"),
    Case(
        "allocation in each step",
        "served",
        e.calls_each_step("cudaMalloc_v3020", "cudaFree_v3020", each_ns=300_000),
        "steps",
        "allocation-churn",
    ),
    Case(
        "allocation in each step",
        "eager-u",
        e.calls_each_step(*["cudaMalloc_v3020", "cudaFree_v3020"] * 5, each_ns=500_000),
        "steps",
        "allocation-churn",
    ),
    Case(
        "pooled allocation in each step",
        "served",
        e.calls_each_step("cudaMallocAsync_v11020", "cudaFreeAsync_v11020", each_ns=1_000),
        "steps",
    ),
    Case(
        "waits in each step",
        "served",
        e.calls_each_step(*[SYNC] * 10, each_ns=50_000),
        "steps",
        "blocking-sync",
    ),
    Case(
        "waits for nothing in each step",
        "eager-u",
        e.calls_each_step(*[SYNC] * 10, each_ns=400_000),
        "steps",
        "blocking-sync",
    ),
    Case(
        "waits for the device in each step",
        "launched",
        e.calls_each_step(*[DEVICE_SYNC] * 10, each_ns=50_000),
        "steps",
        "device-wide-sync",
    ),
    Case(
        "pageable uploads in each step",
        "served",
        e.with_copies_table(e.copies_each_step(0, MS)),
        "steps",
        "transfer-bound pageable-copies",
    ),
    Case(
        "pageable uploads in each step",
        "eager-u",
        e.copies_each_step(0, 8 * MS),
        "steps",
        "transfer-bound pageable-copies",
    ),
    Case(
        "pageable downloads in each step",
        "served",
        e.with_copies_table(e.copies_each_step(0, MS, 2)),
        "steps",
        "transfer-bound pageable-copies",
    ),
    Case(
        "pinned uploads in each step",
        "served",
        e.with_copies_table(e.copies_each_step(1, MS)),
        "steps",
        "transfer-bound",
    ),
    Case(
        "migrations in each step",
        "served",
        e.with_copies_table(e.migrations_each_step(MS)),
        "steps",
        "unified-memory-migration",
    ),
    Case(
        "migrations in each step",
        "eager-u",
        e.migrations_each_step(6 * MS),
        "steps",
        "unified-memory-migration",
    ),
    Case(
        "garbage collection in each step",
        "served",
        e.ranges_each_step("Python GC", 2 * MS),
        "steps",
        "python-gc",
    ),
    Case(
        "garbage collection in each step",
        "gap",
        e.ranges_each_step("Python GC", 9 * MS),
        "steps",
        "python-gc",
    ),
    Case(
        "the GIL taken in each step",
        "served",
        e.ranges_each_step("Waiting for GIL", 2 * MS),
        "steps",
        "gil-contention",
    ),
    Case(
        "a data loader in each step",
        "served",
        e.ranges_each_step(LOADER, 4 * MS),
        "steps",
        "host-gap input-preparation",
    ),
    Case("other host code in a range", "served", e.ranges_each_step("tokenize", 4 * MS), "steps", "host-gap"),
    Case("OS calls in each step", "served", e.os_calls_each_step("poll", 2 * MS), "steps", "os-blocked"),
    Case(
        "profiler flushes in each step", "served", e.overhead_each_step(2 * MS), "steps", "profiler-overhead"
    ),
    Case(
        "blocking memsets in each step",
        "served",
        e.calls_each_step(*["cudaMemset_v3020"] * 8, each_ns=20_000),
        "steps",
        "sync-memset",
    ),
    Case(
        "one slow allocation", "served", e.one_call("cudaMalloc_v3020", 5 * MS), "steps", "allocation-stalls"
    ),
    Case("calls that fail", "served", e.failing_calls, "steps", "cuda-errors"),
    # ---- causes taken out
    Case("gaps closed", "gap", e.gaps_closed, "steps", goes="host-gap"),
    Case(
        "ranges of the collector removed",
        "gc",
        e.ranges_removed("%gc%"),
        "steps",
        "host-gap",
        goes="python-gc",
    ),
    Case(
        "uploads from pinned memory",
        "pageable",
        e.copies_pinned,
        "steps",
        goes="pageable-copies",
        stays="transfer-bound",
    ),
    Case("uploads removed", "pageable-u", e.uploads_removed, "steps", goes="pageable-copies transfer-bound"),
    # ---- lost and doubled rows
    Case(
        "no ranges, and a kernel in 100 lost",
        "gap",
        e.both(e.dropped(NVTX), e.rows_lost(KERNEL, 100)),
        "steps",
        stays="host-gap",
    ),
    Case(
        "no ranges, and a kernel in ten lost",
        "pageable-u",
        e.both(e.dropped(NVTX), e.rows_lost(KERNEL, 10)),
        "",
        "damaged-capture",
    ),
    Case(
        "no ranges, and half of the kernels lost",
        "gap",
        e.both(e.dropped(NVTX), e.rows_lost(KERNEL, 2)),
        "",
        "damaged-capture",
    ),
    Case("no calls", "eager", e.dropped(RUNTIME), "", goes="launch-bound", unjudged="launch-bound"),
    Case("no calls", "gap", e.dropped(RUNTIME), "", goes="host-gap", unjudged="host-gap"),
    Case("no kernels", "launched", e.dropped(KERNEL), "", "damaged-capture"),
    Case("kernels without ends", "served", e.without_ends(KERNEL), "", "damaged-capture"),
    Case("kernels without ends", "launched", e.without_ends(KERNEL), "", "damaged-capture"),
    Case("no kernels of replayed graphs", "served", e.dropped(KERNEL), "", "opaque-cuda-graphs"),
    Case(
        "no GPU metrics",
        "bound",
        e.dropped("GPU_METRICS", "TARGET_INFO_GPU_METRICS"),
        "steps",
        "no-gpu-metrics",
        goes="memory-bandwidth-bound",
        unjudged="memory-bandwidth-bound",
    ),
    Case("no GPU metrics", "eager", e.dropped("GPU_METRICS"), "causes", "no-gpu-metrics"),
    Case("no description of the GPU", "eager", e.dropped("TARGET_INFO_GPU"), "steps", stays="launch-bound"),
    Case("no copies", "eager", e.dropped(MEMCPY)),
    Case("half of the kernels lost", "eager", e.rows_lost(KERNEL, 2), "", "damaged-capture"),
    Case("no kernels of a traced graph", "graph", e.dropped(KERNEL), "", "damaged-capture"),
    Case("half of the nodes of each replay lost", "graph", e.rows_lost(KERNEL, 2), "", "damaged-capture"),
    *(
        Case(name, capture, edit, "", "damaged-capture", goes)
        for name, edit in (
            ("doubled calls", e.rows_doubled(RUNTIME)),
            ("doubled kernels", e.rows_doubled(KERNEL)),
            ("kernels of -1 us", e.ended_before_start(KERNEL, 20)),
            ("calls of -1 us", e.ended_before_start(RUNTIME, 20)),
            ("kernels before their launch", e.kernels_before_launch(20)),
        )
        for capture, goes in (("eager", "launch-bound"), ("pageable", "transfer-bound"))
    ),
    Case(
        "half of the calls lost",
        "eager",
        e.rows_lost(RUNTIME, 2),
        "steps",
        "damaged-capture",
        goes="launch-bound",
        unjudged="launch-bound",
    ),
    Case("half of the calls lost", "pageable", e.rows_lost(RUNTIME, 2), "steps", stays="transfer-bound"),
    Case("one kernel in a thousand lost", "eager", e.rows_lost(KERNEL, 1000)),
    Case("one kernel in a thousand lost", "pageable", e.rows_lost(KERNEL, 1000)),
    Case("events reported as dropped", "eager", e.events_reported_lost, "steps", "damaged-capture"),
    Case("kernel names lost", "eager", e.names_lost, "steps", "damaged-capture"),
    Case("no grid sizes", "eager", e.column_dropped(KERNEL, "gridX"), "steps", stays="launch-bound"),
    Case(
        "no kinds of memory",
        "pageable",
        e.column_dropped(MEMCPY, "srcKind"),
        "steps",
        goes="pageable-copies",
        stays="transfer-bound",
    ),
    Case("no results of calls", "eager", e.column_dropped(RUNTIME, "returnValue")),
    Case("the same again on a second GPU", "launched", e.on_second_device),
    Case("the same again on a second GPU", "pageable-u", e.on_second_device),
]

#: The same for PyTorch profiler traces.
EVENT_CASES = [
    Case("an hour later", "kineto", k.shifted(3_600_000_000), "all"),
    Case("events in another order", "kineto", k.in_random_order, "all"),
    Case("events in another order", "script", k.in_random_order, "all"),
    Case("no flows", "kineto", k.without_phase("f"), "all"),
    Case("no names of threads", "kineto", k.without_phase("M"), "all"),
    Case("an event of the user's", "kineto", k.with_event_of_the_users, "all"),
    Case("events of no shape", "script", k.with_shapeless_events),
    Case("keys of the user's", "kineto", k.with_keys_of_the_users, "all"),
    Case("other correlation ids", "script", k.correlations_renumbered, "all"),
    Case("another process id", "script", k.process_renumbered, "all"),
    Case("no operators", "script", k.without("cpu_op"), "causes"),
    Case("no annotations", "kineto", k.without("user_annotation"), "steps"),
    Case("names that say nothing", "script", k.steps_renamed, "steps", stays="launch-bound"),
    Case("stacks recorded", "script", k.with_stacks, "steps", stays="launch-bound"),
    Case(
        "a data loader before each step",
        "script",
        k.with_loader,
        "steps",
        "input-preparation",
        stays="host-gap",
    ),
    Case("no calls", "script", k.without("cuda_runtime"), "", goes="launch-bound", unjudged="launch-bound"),
    Case(
        "kernels without a duration",
        "script",
        k.without_durations("kernel"),
        "",
        "damaged-capture",
        goes="launch-bound",
    ),
    Case("calls without a duration", "kineto", k.without_durations("cuda_runtime"), "", "damaged-capture"),
    Case("half of the kernels lost", "script", k.kernels_lost(2), "", "damaged-capture"),
]


def costly(d: Diagnosis) -> set[str]:
    return {f.cause for f in d.findings if f.severity != "info"}


def steps(d: Diagnosis) -> int:
    return sum(s.count for s in d.steps)


def found(d: Diagnosis) -> set[str]:
    """Causes of the findings, and those that were folded into them."""
    return {f.cause for f in d.findings} | {s.cause for f in d.findings for s in f.explains}


def differing(first: Diagnosis, second: Diagnosis, later_s: float) -> Iterator[tuple[str, str]]:
    """Facts about devices, phases and operations that are not the same, with their values."""
    values = [
        {(f.name, f.scope): f.value for f in d.facts if not f.name.startswith("capture.")}
        for d in (first, second)
    ]
    for key in values[0].keys() | values[1].keys():
        a, b = values[0].get(key), values[1].get(key)
        if isinstance(a, float) and isinstance(b, int | float):
            if not math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9):
                yield key[0], f"{key[1]}: {a} {b}"
        elif key[0] == PLACE and isinstance(a, str) and isinstance(b, str):
            if abs(_seconds(b) - _seconds(a) - later_s) > 1.5e-4:  # two roundings
                yield key[0], f"{key[1]}: {a} {b}"
        elif a != b:
            yield key[0], f"{key[1]}: {a} {b}"


def _seconds(text: str) -> float:
    return float(text.removesuffix(" s"))


@pytest.mark.parametrize("case", of_each_first(CASES))
def test_an_edit_of_an_export_has_its_known_effect(case: Case, tmp_path: Path) -> None:
    check(case, before(case.capture), after(case.capture, case.edit, tmp_path / "edited.sqlite"))


@pytest.mark.parametrize("case", of_each_first(EVENT_CASES))
def test_an_edit_of_events_has_its_known_effect(case: Case, tmp_path: Path) -> None:
    now = after_events(case.capture, case.edit, tmp_path / "edited.json")
    check(case, before_events(case.capture), now)


def check(case: Case, was: Diagnosis, now: Diagnosis) -> None:
    old, new = found(was), found(now)
    shown = [(f.cause, f.severity) for f in now.findings]
    appears, goes = set(case.appears.split()), set(case.goes.split())
    assert not appears & old, "the unedited capture has it already"
    assert goes <= old, "the unedited capture has nothing that could go"
    assert appears <= new, shown
    assert not goes & new, shown
    assert set(case.stays.split()) <= old & new, shown
    assert set(case.unjudged.split()) <= {n.cause for n in now.not_evaluated}
    if case.same == "all":
        differ = list(differing(was, now, case.later_s))
        assert {name for name, _ in differ} == set(case.but.split()), differ
        assert shown == [(f.cause, f.severity) for f in was.findings]
    elif case.same == "found":
        assert shown == [(f.cause, f.severity) for f in was.findings]
    elif case.same == "causes":
        assert costly(now) - appears == costly(was) - goes, shown
    elif case.same == "steps":
        assert abs(steps(now) - steps(was)) <= 1
    elif case.same == "process":
        assert abs((now.inputs[0].steps or 0) - (was.inputs[0].steps or 0)) <= 1


@pytest.mark.parametrize(
    ("capture", "edit"),
    [
        ("gc", e.dropped(RUNTIME)),
        ("gc", e.column_dropped(RUNTIME, "end")),
        ("pageable", e.dropped(KERNEL)),
        ("pageable", e.column_dropped(MEMCPY, "bytes")),
        ("two", e.column_dropped(RUNTIME, "correlationId")),
    ],
)
def test_what_is_missing_promises_nothing(capture: str, edit: e.Edit, tmp_path: Path) -> None:
    """Neither more than the whole capture does, nor advice with a hole in it."""

    def promised(d: Diagnosis) -> dict[str, Span]:
        return {f.cause: f.gain.speedup for f in d.findings if f.gain and f.gain.speedup}

    was, now = before(capture), after(capture, edit, tmp_path / "edited.sqlite")
    old = promised(was)
    for cause, speedup in promised(now).items():
        assert speedup.mid <= old[cause].high if cause in old else speedup.mid < 1.1, cause
    told = [now.verdict, *(f.message for f in now.findings), *(d.action for d in now.do)]
    assert not [text for text in told if "(unknown)" in text]


def test_a_pause_between_two_runs_leaves_the_gains(tmp_path: Path) -> None:
    gains = []
    for d in (before("bound"), after("bound", e.run_again(3_000 * MS), tmp_path / "edited.sqlite")):
        found = next(f for f in d.findings if f.cause == "memory-bandwidth-bound")
        assert found.gain is not None
        assert found.gain.speedup is not None
        gains.append(found.gain.speedup.mid)
    assert gains[1] == pytest.approx(gains[0], rel=0.02)


@pytest.mark.parametrize(
    ("capture", "cause", "times"), [("eager-u", "launch-bound", 50), ("gap", "host-gap", 250)]
)
def test_without_idle_time_a_step_takes_as_long_as_promised(
    capture: str, cause: str, times: int, tmp_path: Path
) -> None:
    was, now = before(capture), after(capture, e.idle_squeezed(times), tmp_path / "edited.sqlite")
    assert cause in costly(was) - costly(now)
    assert costly(now) <= costly(was) | {"unfused-elementwise"}
    gain = next(f.gain for f in was.findings if f.cause == cause)
    made = now.inputs[0].step_ms
    assert gain is not None
    assert gain.step_after_ms is not None
    assert made is not None
    assert 0.9 * gain.step_after_ms.low < made < 1.1 * gain.step_after_ms.high


def test_the_suite_is_as_large_as_promised() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize(
    ("cause", "edit"),
    [
        ("host-gap", e.host_gaps(3 * MS)),
        ("allocation-churn", e.calls_each_step("cudaMalloc_v3020", "cudaFree_v3020", each_ns=300_000)),
        ("blocking-sync", e.calls_each_step(*[SYNC] * 10, each_ns=50_000)),
        ("pageable-copies", e.with_copies_table(e.copies_each_step(0, MS))),
        ("slow-link", e.with_copies_table(e.copies_each_step(1, MS))),
        ("python-gc", e.ranges_each_step("Python GC", 2 * MS)),
    ],
)
def test_a_comparison_names_the_cause_that_was_put_in(cause: str, edit: e.Edit, tmp_path: Path) -> None:
    was, now = before("served"), after("served", edit, tmp_path / "edited.sqlite")
    for first, second, verdict in ((was, now, "regression"), (now, was, "improvement")):
        found = compare(Side("before", [first]), Side("after", [second]))
        assert (found.verdict, found.contributions[0].cause) == (verdict, cause)
