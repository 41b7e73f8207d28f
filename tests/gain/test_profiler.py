"""What is taken out of a capture as the profiler's: worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.gain.attach import assumptions
from advisor.gain.estimate import Replayer
from advisor.gain.profiler import Scenario, corrected, has_launches, has_nodes
from advisor.metrics.profiled.stage import measure
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer, step_us
from tests.kineto_builder import Profile

NOTHING, MIDDLE, ALL = (Scenario(launch=x, node_gap=0.0) for x in (0.0, 0.5, 1.0))


def traced_graph(e: Export, t: int) -> None:
    """A graph launch of 600 us, its nodes right behind, a wait; then 100 us of host code."""
    nodes = [("a", t + 605 * US, 50 * US), ("b", t + 656 * US, 50 * US)]
    e.graph_launch(at=t, dur=600 * US, nodes=nodes)
    e.sync(at=t + 601 * US, dur=110 * US)


def test_a_traced_graph_launch_costs_what_an_untraced_one_does(tmp_path: Path) -> None:
    r = replayer(scenes.capture(traced_graph, 811), tmp_path)
    assert has_nodes(r.taken.inputs)
    assert r.captured_ns == 811 * US
    # 530 of the 600 us are the profiler's.
    assert step_us(r, scenario=NOTHING) == 811 - 530


def test_a_graph_that_the_gpu_traced_itself_is_taken_as_it_is(tmp_path: Path) -> None:
    export = scenes.capture(traced_graph, 811).diagnostic("Hardware tracing used for CUDA tracing")
    r = replayer(export, tmp_path)
    assert step_us(r, scenario=Scenario(0.0, 1.0)) == 811
    assert "graph nodes were traced by hardware: their times are taken as they are" in assumptions(r, [])


def test_the_gap_between_nodes_has_a_range(tmp_path: Path) -> None:
    # One gap a step: 1 us captured, 0.5 us published, half way between.
    r = replayer(scenes.capture(traced_graph, 811), tmp_path)
    assert step_us(r, scenario=Scenario(0.0, 1.0)) == pytest.approx(281 - 0.5)
    assert step_us(r, scenario=Scenario(0.0, 0.5)) == pytest.approx(281 - 0.25)


def inflated(times: float, count: int = 10) -> Export:
    """Steps of one graph with two kernels of 50 us; before them each kernel ran `count` times by a
    launch of its own, `times` as fast (in no time at all, which cannot be, from 1e9 on)."""
    export = Export().gpu().process(1)
    for i in range(2 * count):
        at = i * 100 * US
        export.launch(
            at=at, dur=5 * US, kernel="ab"[i % 2], kernel_start=at + 7 * US, kernel_dur=round(50 * US / times)
        )
    for i in range(9):
        t = (200 * count + i * 811) * US
        export.range(f"iteration {i}", t, t + 810 * US)
        traced_graph(export, t)
    return export


def test_graph_kernels_are_shortened_where_the_capture_proves_it(tmp_path: Path) -> None:
    r = replayer(inflated(1.25), tmp_path)
    assert r.inflation == pytest.approx(1.25)
    # The capture itself is replayed as it is; without the profiler, 281 us lose 2 x 10.
    assert r.captured_ns == 811 * US
    assert step_us(r, scenario=NOTHING) == pytest.approx(281 - 20)
    assert any("1.25 times as long" in text for text in assumptions(r, []))


def launches(own: int, slot: int = 30, count: int = 100) -> Export:
    """A launch each `slot` us whose call takes `own`, and a kernel of 3."""

    def step(e: Export, t: int) -> None:
        for k in range(count):
            at = t + k * slot * US
            e.launch(at=at, dur=own * US, kernel="k", kernel_start=at + (own + 2) * US, kernel_dur=3 * US)

    return scenes.capture(step, count * slot)


def test_slow_launch_calls_show_that_tracing_slowed_the_host(tmp_path: Path) -> None:
    """4 of 30 us are the tracing of the launch; the other 26 take 1.15 * 4.5 / 8 of that time."""
    r = replayer(launches(own=8), tmp_path)
    assert r.work.tracing_pace == pytest.approx(0.646875)
    assert step_us(r, scenario=NOTHING) == pytest.approx(3_000)
    assert step_us(r, scenario=MIDDLE) == pytest.approx(100 * 26 * 0.646875, rel=0.02)
    assert step_us(r, scenario=ALL) == pytest.approx(100 * 14 * 0.646875, rel=0.02)


def test_launch_calls_that_are_far_too_slow_are_slow_without_tracing(tmp_path: Path) -> None:
    assert replayer(launches(own=25), tmp_path).work.tracing_pace == 0.6


def test_launch_calls_of_a_host_that_is_not_slow_show_nothing_more(tmp_path: Path) -> None:
    r = replayer(launches(own=5), tmp_path)
    assert r.work.tracing_pace == 1.0
    assert step_us(r, scenario=MIDDLE) == pytest.approx(100 * 26, rel=0.02)


def test_no_pace_makes_launches_cheaper_than_they_are_without_tracing(tmp_path: Path) -> None:
    """Tracing accounts for all but 5 of 16 us from one launch to the next; nothing is left to be slow."""
    r = replayer(launches(own=15, slot=16), tmp_path)
    assert r.work.tracing_pace == 0.6
    assert step_us(r, scenario=MIDDLE) == pytest.approx(100 * 12 * 0.6, rel=0.02)
    assert step_us(r, scenario=ALL) == pytest.approx(100 * 5, rel=0.02)


def test_few_launches_show_no_pace(tmp_path: Path) -> None:
    assert replayer(launches(own=10, count=7), tmp_path).work.tracing_pace == 1.0


@pytest.mark.parametrize(("times", "count"), [(1.15, 10), (1.25, 7), (0.8, 10), (2.5, 10), (1e9, 10)])
def test_graph_kernels_keep_their_time_without_proof(tmp_path: Path, times: float, count: int) -> None:
    r = replayer(inflated(times, count), tmp_path)
    assert r.inflation == 1.0
    assert step_us(r, scenario=NOTHING) == 281


def test_kernels_that_never_ran_outside_prove_nothing(tmp_path: Path) -> None:
    assert replayer(scenes.capture(traced_graph, 811), tmp_path).inflation == 1.0
    # A tenth of the graph's work does not stand for the rest.
    export = inflated(1.5)
    for i in range(20):
        t = (10_000 + 800 * i) * US
        export.graph_launch(at=t, dur=20 * US, nodes=[("other", t + 30 * US, 700 * US)])
    assert replayer(export, tmp_path).inflation == 1.0


def test_a_graph_without_nodes_keeps_its_launch(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        e.graph_launch(at=t, dur=600 * US, nodes=[("a", t + 605 * US, 50 * US)], mode="graph")
        e.sync(at=t + 601 * US, dur=60 * US)

    r = replayer(scenes.capture(step, 761), tmp_path)
    assert not has_nodes(r.taken.inputs)
    assert step_us(r, scenario=NOTHING) == 761


def test_a_traced_launch_costs_16_us_at_most_and_5_stay(tmp_path: Path) -> None:
    # Slots of 20 us: up to 15 of them may be the profiler's, as 5 are the launch's own.
    r = replayer(scenes.eager(count=20, slot=20), tmp_path)
    assert has_launches(r.taken.inputs)
    # Half way are the 4 us that most captures show.
    assert [step_us(r, scenario=s) for s in (NOTHING, MIDDLE, ALL)] == [400, 320, 100]
    # Slots of 50 us: up to 16.
    r = replayer(scenes.eager(count=20, slot=50), tmp_path)
    assert step_us(r, scenario=ALL) == 20 * 34


Record = Callable[[Profile, int], object]


def profiled(at: Record = lambda *_: None, slot: int = 60, tail: Record = lambda *_: None) -> Profile:
    """Six steps of ten launches, one each `slot` us, with what `at` records behind each, and `tail` behind
    the last of a step."""
    trace = Profile().gpu().process(1)
    for step in range(6):
        start = step * 10 * slot * US
        trace.annotation(f"ProfilerStep#{step}", start, 10 * slot * US)
        for now in range(start, start + 10 * slot * US, slot * US):
            trace.launch(at=now, kernel_dur=2 * US)
            at(trace, now)
        tail(trace, start + 9 * slot * US)
    return trace


def shown(trace: Profile, folder: Path) -> Replayer:
    trace.write(path := folder / "trace.json")
    return Replayer(measure(open_trace(path)))


@pytest.mark.parametrize(
    ("operators", "sizes", "stays"),
    [(0, False, 44), (1, False, 40.6), (5, False, 27), (20, False, 5), (1, True, 38.2), (5, True, 15)],
)
def test_recorded_operators_cost_up_to_3_4_us_each_and_their_sizes_2_4(
    tmp_path: Path, operators: int, sizes: bool, stays: float
) -> None:
    """Launches every 60 us: at most 16 us are the tracer's, the rest that of the operators."""

    def record(trace: Profile, now: int) -> None:
        for k in range(operators):
            dims = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]} if sizes else {}
            trace.op("aten::mm", now + (6 + 2 * k) * US, US, **dims)

    r = shown(profiled(record), tmp_path)
    assert step_us(r, scenario=NOTHING) == pytest.approx(600)
    assert step_us(r, scenario=ALL) == pytest.approx(10 * stays)
    assert 10 * stays < step_us(r, scenario=MIDDLE) < 600


def test_operators_written_as_nvtx_ranges_cost_up_to_6_2_us_each_and_their_sizes_2_4(tmp_path: Path) -> None:
    """Launches every 60 us, two operators behind each: 60 - 16 - 2 x 8.6 us stay."""
    export = Export().process(1)
    for i in range(60):
        now = 60 * i * US
        if i % 10 == 0:
            export.range(f"iteration {i // 10}", now, now + 600 * US - 1)
        export.launch(at=now, dur=5 * US, kernel_start=now + 7 * US, kernel_dur=2 * US)
        for k in range(2):
            begin = now + (10 + 4 * k) * US
            export.range(f"aten::mul, seq = {i}, op_id = {2 * i + k}, sizes = [[8], []]", begin, begin + US)
    r = replayer(export, tmp_path)
    assert step_us(r, scenario=NOTHING) == pytest.approx(600)
    assert step_us(r, scenario=ALL) == pytest.approx(10 * (60 - 16 - 2 * 8.6))


def six_steps(name: str, tmp_path: Path, apart: int = 1) -> Replayer:
    """Steps of 100 us, marked for 90 us by names whose numbers are so far apart."""
    trace = Profile().gpu().process(1)
    for step in range(6):
        now = 100 * step * US
        trace.annotation(name.format(apart * step), now, 90 * US)
        trace.launch(at=now + 20 * US, dur=5 * US, kernel_dur=2 * US)
        trace.sync(at=now + 30 * US, dur=10 * US)
    return shown(trace, tmp_path)


def test_the_time_between_two_marks_of_steps_is_the_profilers(tmp_path: Path) -> None:
    """Behind the last launch of a step a wait until 30 us, marks that end at 40 and begin at 50: those 10 us
    surely go, and up to 20 more; at least a launch's 5 us stay, and a thread without marks loses nothing."""

    marked, named = (six_steps(f"{mark}{{}}", tmp_path) for mark in ("ProfilerStep#", "step "))
    assert marked.captured_ns == named.captured_ns == 100 * US
    assert step_us(named, scenario=NOTHING) == pytest.approx(100)
    assert step_us(marked, scenario=NOTHING) == pytest.approx(90)
    gone = step_us(named, scenario=ALL) - step_us(marked, scenario=ALL)
    assert gone == pytest.approx(10 + 20)


def test_between_marks_whose_numbers_do_not_follow_lies_more_than_the_profiler(tmp_path: Path) -> None:
    """The same program, of which one step of three was recorded: what lies between is its own."""
    assert step_us(six_steps("ProfilerStep#{}", tmp_path, apart=3), scenario=NOTHING) == pytest.approx(100)


def test_timed_python_calls_cost_up_to_1_6_us_each(tmp_path: Path) -> None:
    def record(trace: Profile, now: int) -> None:
        for k in range(10):
            trace.python("model.py(7): forward", now + (6 + 3 * k) * US, 2 * US)

    assert step_us(shown(profiled(record), tmp_path), scenario=ALL) == pytest.approx(10 * (60 - 16 - 16))


def test_operators_behind_a_wait_were_recorded_as_well(tmp_path: Path) -> None:
    """Behind the last launch of a step a wait, then five operators in 44 us: 5 x 3.4 us of them."""
    times = []
    for count in (0, 5):

        def wait(trace: Profile, now: int, count: int = count) -> None:
            trace.sync(at=now + 6 * US, dur=10 * US)
            for k in range(count):
                trace.op("aten::argmax", now + (20 + 2 * k) * US, US)

        times.append(step_us(shown(profiled(tail=wait), tmp_path), scenario=ALL))
    assert times[0] - times[1] == pytest.approx(5 * 3.4)


def test_operators_between_two_launches_are_no_host_code_that_a_graph_leaves(tmp_path: Path) -> None:
    """300 us from launch to launch: 40 operators take them in a slow framework; one of them is host code."""

    steps = []
    for count in (40, 1):

        def record(trace: Profile, now: int, count: int = count) -> None:
            for k in range(count):
                trace.op("aten::view", now + (6 + 7 * k) * US, US)

        r = shown(profiled(record, 300), tmp_path)
        steps.append(step_us(r, fix("cuda_graphs"), scenario=NOTHING))
    assert steps[0] < 350
    assert steps[1] > 2500


def test_the_pytorch_profiler_makes_gaps_between_nodes_longer(tmp_path: Path) -> None:
    """0.4 us captured: 0.1 is the least that tracing shows, 0.5 the most without it. But no step takes
    longer untraced than traced."""
    trace = Profile().gpu().process(1)
    for step in range(6):
        now = step * 400 * US
        nodes = [("a", now + 20 * US, 100 * US), ("b", now + 120_400, 100 * US)]
        trace.graph_launch(at=now, dur=10 * US, nodes=nodes)
        trace.sync(at=now + 11 * US, dur=230 * US)
    r = shown(trace, tmp_path)
    times = [step_us(r, scenario=Scenario(0.0, x)) for x in (0.0, 0.5, 1.0)]
    assert times == pytest.approx([r.captured_ns / US + x for x in (-0.3, -0.1, 0.0)])


def test_a_step_is_never_shorter_than_its_kernels(tmp_path: Path) -> None:
    def step(e: Export, t: int) -> None:
        for k in range(20):
            at = t + k * 20 * US
            e.launch(at=at, dur=5 * US, kernel_start=at + 7 * US, kernel_dur=12 * US)

    # Launches every 5 us, kernels of 12 us: 0.9 us apart, as a stream is that is never empty.
    r = replayer(scenes.capture(step, 400), tmp_path)
    assert step_us(r, scenario=ALL) == pytest.approx(20 * 12.9)


def test_the_capture_itself_stays_as_it_is(tmp_path: Path) -> None:
    r = replayer(scenes.eager(), tmp_path)
    before = r.taken.inputs.calls.pre.copy()
    corrected(r.taken.inputs, ALL)
    assert (r.taken.inputs.calls.pre == before).all()
