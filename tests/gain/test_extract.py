"""From a capture to the inputs of a replay: what waited for what, and how long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.gain.excerpt import NoReplay, choose_steps
from advisor.gain.inputs import NEVER
from advisor.gain.profiler import Scenario
from advisor.gain.replay import replay
from advisor.sources.schema import Call
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer
from tests.metrics.support import analysis


def test_the_unchanged_replay_is_the_capture(tmp_path: Path) -> None:
    r = replayer(scenes.waiting(gc=20), tmp_path)
    ops = r.a.ops
    assert replay(r.taken.inputs).tolist() == ops.end[r.taken.inputs.ops.at].tolist()
    assert r.captured_ns == 162 * US


def test_a_launch_on_a_free_stream_keeps_its_latency(tmp_path: Path) -> None:
    # Kernels start 2 us after their calls; the gap of 17 us to the one before is not theirs.
    ops = replayer(scenes.eager(), tmp_path).taken.inputs.ops
    assert set(ops.latency.tolist()) == {2 * US}
    assert ops.gap.max() == 900  # what NVIDIA published for a stream, as this capture shows none


def test_processes_that_take_turns_on_a_device_wait_for_it_however_early_they_launch(tmp_path: Path) -> None:
    """Every second kernel starts 60 us after its launch, on a free stream. Alone, its launch was slow, and
    launching earlier hides that; beside another process the device was not this one's."""

    def step(e: Export, t: int) -> None:
        for k in range(10):
            at, late = t + k * 100 * US, 60 if k % 2 else 2
            e.launch(at=at, dur=5 * US, kernel_start=at + (5 + late) * US, kernel_dur=10 * US)

    def gaps(export: Export) -> set[float]:
        ops = replayer(export, tmp_path).taken.inputs.ops
        return set(ops.gap[ops.latency == 60 * US].tolist())

    alone, shared = scenes.capture(step, 1000), scenes.capture(step, 1000)
    shared.process(2)
    for k in range(60):
        shared.launch(
            at=k * 100 * US + 20 * US, dur=5 * US, kernel_start=k * 100 * US + 30 * US, kernel_dur=US
        )
    assert gaps(alone) == {900}
    assert min(gaps(shared)) >= 50 * US


def test_a_queued_kernel_keeps_its_gap(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        for k in range(10):
            start = t + (7 + 21 * k) * US  # kernels of 20 us, 1 us apart, launched each 6 us
            e.launch(at=t + 6 * k * US, dur=5 * US, kernel_start=start, kernel_dur=20 * US)

    ops = replayer(scenes.capture(step, 210), tmp_path).taken.inputs.ops
    queued = ops.gap == 1 * US
    assert queued.sum() >= 9 * 5
    # When such a kernel would start on a free stream is not seen: the usual latency is taken, but
    # never more than was seen, which is 2 us for the first of a step.
    assert set(ops.latency[queued].tolist()) == {2 * US, 3 * US}


def test_a_wait_is_for_the_last_work_that_had_ended(tmp_path: Path) -> None:
    inputs = replayer(scenes.waiting(), tmp_path).taken.inputs
    assert (inputs.calls.kind[inputs.waits.call] == Call.SYNC).all()
    assert inputs.ops.call[inputs.waits.op].tolist() == (inputs.waits.call - 1).tolist()
    assert set(inputs.waits.lag.tolist()) == {5 * US}
    # What such a call takes by itself is not seen here, as every one waited.
    assert set(inputs.calls.own[inputs.waits.call].tolist()) == {2 * US}


def test_waiting_for_an_event_of_the_step_before(tmp_path: Path) -> None:
    """The wait returns while the work launched last still runs."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 50 * US, kernel_dur=90 * US)
        # The kernel of the step before ended at t + 40; this one runs until t + 140.
        e.sync(at=t + 6 * US, dur=39 * US, api="cudaEventSynchronize_v3020")

    inputs = replayer(scenes.capture(step, 100), tmp_path).taken.inputs
    assert inputs.ops.call[inputs.waits.op].tolist() == (inputs.waits.call - 3).tolist()
    assert set(inputs.waits.lag.tolist()) == {5 * US}


def test_a_copy_inside_its_call_holds_it(tmp_path: Path) -> None:
    inputs = replayer(scenes.copying(), tmp_path).taken.inputs
    held = inputs.ops.by_start
    assert held.sum() == len(inputs.ops) / 2
    assert inputs.waits.op.tolist() == np.flatnonzero(held).tolist()
    assert set(inputs.ops.latency[held].tolist()) == {5 * US}  # after the call began


def test_nodes_of_a_graph_are_a_chain(tmp_path: Path) -> None:
    ops = replayer(scenes.kernels(("a", 10), ("b", 20), ("c", 30)), tmp_path).taken.inputs.ops
    assert ops.node.reshape(-1, 3).tolist() == [[False, True, True]] * 6
    assert (ops.latency[ops.node] == NEVER).all()
    assert set(ops.gap[ops.node].tolist()) == {1 * US}


def test_kernels_that_ran_out_of_order_hold_the_stream_for_their_own_time(tmp_path: Path) -> None:
    """Wrongly joined launches: the kernel of the second call, 40 us, began before that of the
    first, 20 us. The overlap that their order suggests is longer than both."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=US, kernel="a", kernel_start=t + 80 * US, kernel_dur=20 * US)
        e.launch(at=t + 2 * US, dur=US, kernel="b", kernel_start=t + 10 * US, kernel_dur=40 * US)

    r = replayer(scenes.capture(step, 100), tmp_path)
    assert r.times.busiest(r.taken.inputs) == 20 * US
    assert r.estimate([fix("cuda_graphs")]).bound.low > 0


def test_branches_of_a_graph_overlap(tmp_path: Path) -> None:
    """Nodes [30, 130) and [70, 150) of each step: 120 us of the device, though 180 of kernels."""

    def step(e: Export, t: int) -> None:
        nodes = [("a", t + 30 * US, 100 * US), ("b", t + 70 * US, 80 * US)]
        e.graph_launch(at=t, dur=20 * US, nodes=nodes)

    r = replayer(scenes.capture(step, 121), tmp_path)
    assert r.captured_ns == 121 * US
    assert r.times.busiest(r.taken.inputs) == 120 * US
    assert r.step_ns((), Scenario(node_gap=1.0)) <= 121 * US


def test_a_stream_that_waited_for_another(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=80 * US, stream=7)
        e.launch(at=t + 10 * US, dur=5 * US, kernel_start=t + 89 * US, kernel_dur=5 * US, stream=8)

    r = replayer(scenes.capture(step, 120), tmp_path)
    joins = r.taken.inputs.joins
    assert len(joins) == 5  # the last one begins after the last step's end
    assert set(joins.delay.tolist()) == {2 * US}
    # A shorter kernel on the one stream lets the other begin sooner.
    ops = r.taken.inputs.ops
    shorter = r.taken.inputs.with_ops(duration=np.where(ops.duration > 10 * US, 20 * US, 5 * US))
    end = replay(shorter)
    start = end - shorter.ops.duration
    assert (start[joins.op] - end[joins.on]).tolist() == [2 * US] * 5


def test_a_launch_that_waited_for_room_in_the_queue(tmp_path: Path) -> None:
    """160 launches of 1 us before kernels of 60 us; those from the 140th on wait 60 us each."""

    def step(e: Export, t: int) -> None:
        at = t
        for k in range(160):
            dur = (1 if k < 140 else 60) * US
            start = t + (5 + 60 * k) * US
            e.launch(at=at, dur=dur, kernel_start=start, kernel_dur=60 * US)
            at += dur + (US if k < 140 else 0)

    r = replayer(scenes.capture(step, 9_600, steps=3), tmp_path)
    inputs = r.taken.inputs
    blocked = inputs.calls.kind[inputs.waits.call] == Call.LAUNCH
    # Of each run of blocked launches the last keeps its wait; the host runs ahead of the others.
    assert blocked.sum() == 3
    assert r.captured_ns == 9_600 * US
    assert inputs.calls.own.max() == 1 * US


def test_what_explains_host_time(tmp_path: Path) -> None:
    calls = replayer(scenes.waiting(gc=20, gil=0), tmp_path).taken.inputs.calls
    first = calls.kind == Call.LAUNCH
    assert calls.gc[first].tolist() == [0, *[20 * US] * 5]
    assert calls.pre[first].tolist() == [0, *[50 * US] * 5]
    # The wait comes after the last work of its step, the launch is the next one's first.
    assert calls.between.all()


def test_threads_take_turns(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.thread(1).launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=3 * US)
        e.thread(2).launch(at=t + 50 * US, dur=5 * US, kernel_start=t + 57 * US, kernel_dur=3 * US)
        e.thread(1)

    r = replayer(scenes.capture(step, 100), tmp_path)
    hands = r.taken.inputs.handovers
    assert set(hands.delay.tolist()) == {45 * US}
    # Each takes over 45 us after the other: half of the host time gone is 50 us a step gone.
    faster = r.taken.inputs
    faster = type(faster)(
        faster.calls,
        faster.ops,
        faster.waits,
        faster.joins,
        type(hands)(hands.call, hands.after, hands.delay - 25 * US),
        faster.origin,
        faster.ready,
    )
    pre = np.minimum(faster.calls.pre, 20 * US)
    faster = faster.with_calls(pre=pre)
    assert r.times.mean(faster) == 50 * US


# ---------------------------------------------------------------- which steps


def test_all_steps_of_a_small_capture(tmp_path: Path) -> None:
    chosen = choose_steps(analysis(scenes.eager(), tmp_path))
    assert (chosen.first, chosen.last) == (0, 5)
    assert chosen.measured.tolist() == [1, 2, 3, 4, 5]
    assert chosen.note is None


def test_a_stretch_of_a_large_one(tmp_path: Path) -> None:
    """Ten steps, the fourth to sixth twice as long: of three, one slow step is nearest to the
    mean of 130 us."""
    export, at = Export().process(1), 0
    for i in range(11):
        length = (200 if i in (4, 5, 6) else 100) * US
        export.range(f"iteration {i}", at, at + length - 1)
        export.launch(at=at, dur=5 * US, kernel_start=at + 7 * US, kernel_dur=length - 10 * US)
        at += length
    chosen = choose_steps(analysis(export, tmp_path), limit=4)
    assert len(chosen.measured) == 3
    assert sum(i in (4, 5, 6) for i in chosen.measured) == 1
    assert chosen.note == "3 of 10 steps were replayed, in proportion to their phases and times"


@pytest.mark.parametrize(
    ("export", "why"), [(Export().process(1).call("cudaFree_v3020", 0), "no GPU operations")]
)
def test_what_cannot_be_replayed(tmp_path: Path, export: Export, why: str) -> None:
    with pytest.raises(NoReplay, match=why):
        choose_steps(analysis(export, tmp_path))


def test_the_time_between_capture_ranges_takes_none(tmp_path: Path) -> None:
    """Two ranges of three steps, 5 ms apart: the same replay as of six steps in a row."""
    export, at = Export().process(1), 0
    for i in range(6):
        if i == 3:
            export.call("cudaProfilerStop", at, US)
            export.call("cudaProfilerStart", at + 5_001 * US, US)
            at += 5_002 * US
        export.range(f"iteration {i}", at, at + 100 * US - 1)
        export.launch(at=at, dur=5 * US, kernel_start=at + 7 * US, kernel_dur=80 * US)
        at += 100 * US
    r = replayer(export, tmp_path)
    assert len(r.a.pauses) == 1
    assert r.captured_ns == pytest.approx(100 * US, rel=0.01)
    assert r.noise == pytest.approx(0.02, abs=5e-4)
    assert r.excerpt.note is None


def test_steps_of_one_phase_are_replayed_with_what_lies_between(tmp_path: Path) -> None:
    """Nothing is lost where `--phase` looks at every third step alone."""
    export = Export().process(1)
    for i in range(9):
        at = i * 100 * US
        export.range("prefill" if i % 3 == 0 else "decode_step", at, at + 50 * US)
        export.launch(at=at + US, dur=5 * US, kernel_start=at + 20 * US, kernel_dur=30 * US)
    chosen = choose_steps(analysis(export, tmp_path, phase="prefill"))
    assert chosen.measured.tolist() == [3, 6]


def test_a_timeline_that_lost_events_is_not_replayed(tmp_path: Path) -> None:
    export = scenes.eager()
    export.correlation += 500_000
    export._correlations[1] = export.correlation
    export.range("iteration 6", 2400 * US, 2500 * US)
    export.launch(at=2410 * US, kernel_start=2450 * US, kernel_dur=40 * US)
    with pytest.raises(NoReplay, match="events were lost inside the window"):
        choose_steps(analysis(export, tmp_path))


@pytest.mark.parametrize(
    ("waited", "after", "joined"), [(500, 14, True), (500, 16, False), (40, 6, False), (40, 4, True)]
)
def test_a_kernel_right_behind_a_copy_of_another_stream_waited_for_it(
    tmp_path: Path, waited: int, after: int, joined: bool
) -> None:
    """Within a tenth of what it waited, at least 5 us, at most 15."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=20 * US, stream=7)
        copy = {"copy_start": t + 13 * US, "copy_dur": (14 + waited - after) * US}
        e.copy(at=t + 6 * US, memory="pinned", stream=8, **copy)
        start = t + (27 + waited) * US
        e.launch(at=t + 12 * US, dur=5 * US, kernel_start=start, kernel_dur=20 * US, stream=7)

    joins = replayer(scenes.capture(step, 700), tmp_path).taken.inputs.joins
    assert bool(len(joins)) is joined
