"""Steps: found from ranges, graph launches or the kernel sequence; timed on the GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.metrics.profiled.stage import measure
from advisor.metrics.steps.model import Steps
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.metrics.support import analysis

US = 1_000


def decode_loop(
    steps: int, *, name: str = "iteration {}", kernels: int = 4, period: int = 200 * US
) -> Export:
    """Steps of `kernels` kernels of 10 us; the GPU lags 50 us behind the host."""
    export = Export().process(1)
    for i in range(steps):
        at = i * period
        export.range(name.format(i), at, at + 100 * US)
        for k in range(kernels):
            begin = at + k * 20 * US
            export.launch(
                at=begin, dur=5 * US, kernel=f"k{k}", kernel_start=begin + 50 * US, kernel_dur=10 * US
            )
    return export


def test_step_time_runs_from_gpu_end_to_gpu_end(tmp_path: Path) -> None:
    steps = analysis(decode_loop(5), tmp_path).repeated
    assert steps.method == "ranges"
    assert len(steps) == 5
    assert steps.time.tolist() == [200 * US] * 4
    assert (steps.gpu_end - steps.host_start).tolist() == [120 * US] * 5


def test_the_window_is_the_steps_without_the_first(tmp_path: Path) -> None:
    a = analysis(decode_loop(5), tmp_path)
    assert (a.window.start, a.window.end) == (120 * US, 920 * US)
    assert a.step_count == 4
    assert a.window.method == "steps without the first"


def test_asynchronous_replay_is_timed_on_the_gpu_not_by_its_range(tmp_path: Path) -> None:
    """Three replays are launched within 30 us; each runs a millisecond."""
    export = Export().process(1)
    for i in range(3):
        at = i * 10 * US
        export.range(f"iteration {i}", at, at + 9 * US)
        export.graph_launch(at, 8 * US, [("a", (1 + i) * 1000 * US, 999 * US)])
    steps = analysis(export, tmp_path).repeated
    assert steps.time.tolist() == [1000 * US] * 2
    assert ((steps.host_end - steps.host_start) <= 9 * US).all()


def begun_ahead(steps: int, recorded: int, *, copies: bool = False) -> Export:
    """Steps of four kernels of 200 us, launched ahead of the GPU. Of the last step's kernels the recording
    holds so many, and of its calls all; with `copies` each step sends its inputs by another stream."""
    export = Export().process(1)
    for i in range(steps):
        at = i * 800 * US
        export.range(f"iteration {i}", at, at + 100 * US)
        if copies:
            export.copy(at, 5 * US, stream=13)
        for k in range(4):
            if i < steps - 1 or k < recorded:
                begin = (i * 4 + k) * 200 * US + 1_000 * US
                export.launch(
                    at + (k + 1) * 20 * US, 5 * US, kernel=f"k{k}", kernel_start=begin, kernel_dur=199 * US
                )
            else:
                export.call("cudaLaunchKernel_v7000", at + (k + 1) * 20 * US, 5 * US)
    return export


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("recorded", [0, 1, 3])
def test_a_step_in_which_the_recording_ends_does_not_count(
    tmp_path: Path, recorded: int, copies: bool
) -> None:
    """Its calls were recorded, and of its work what ran until then: it would be too short."""
    a = analysis(begun_ahead(8, recorded, copies=copies), tmp_path)
    assert len(a.repeated) == 7
    assert a.repeated.time.tolist() == [800 * US] * 6


def test_a_step_of_which_only_the_inputs_were_sent_does_not_count(tmp_path: Path) -> None:
    """Neither are the calls of its other work recorded."""
    export = begun_ahead(7, 4, copies=True).range("iteration 7", 5_600 * US, 5_700 * US)
    export.copy(5_600 * US, 5 * US, stream=13)
    assert len(analysis(export, tmp_path).repeated) == 7


def test_a_last_step_that_does_less_counts(tmp_path: Path) -> None:
    export = begun_ahead(7, 4).range("iteration 7", 5_600 * US, 5_700 * US)
    export.launch(5_620 * US, 5 * US, kernel="k0", kernel_start=6_600 * US, kernel_dur=199 * US)
    steps = analysis(export, tmp_path).repeated
    assert len(steps) == 8
    assert steps.time.tolist() == [800 * US] * 6 + [200 * US]


def test_a_last_step_on_the_other_of_two_streams_counts(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(8):
        at = i * 800 * US
        export.range(f"iteration {i}", at, at + 100 * US)
        for k in range(4 if i % 2 else 5):
            export.launch(at + k * 20 * US, 5 * US, kernel=f"k{k}", stream=13 if i % 2 else 7)
    assert len(analysis(export, tmp_path).repeated) == 8


def test_the_last_step_counts_where_every_step_lacks_its_last_kernel(tmp_path: Path) -> None:
    """Events were lost all along: the recording does not end in that step."""
    export = begun_ahead(8, 4)
    for i in range(8):
        export.call("cudaLaunchKernel_v7000", (i * 800 + 90) * US, 5 * US)
    assert len(analysis(export, tmp_path).repeated) == 8


def test_a_pass_is_preferred_to_the_loop_around_it(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(2):
        at = i * 1000 * US
        export.range(f"iteration {i}", at, at + 900 * US)
        export.range("prefill", at + US, at + 300 * US)
        export.launch(at=at + 10 * US, kernel_start=at + 50 * US, kernel_dur=200 * US)
        for d in range(3):
            begin = at + (400 + 100 * d) * US
            export.range("decode_step", begin, begin + 90 * US)
            export.launch(at=begin + US, kernel_start=begin + 10 * US, kernel_dur=50 * US)
    steps = analysis(export, tmp_path).repeated
    assert steps.phase == ("prefill", *["decode"] * 3) * 2


def test_of_passes_that_begin_at_once_the_outer_one_counts(tmp_path: Path) -> None:
    """The inner one, written first, holds no call: it has lost none either."""
    steps = analysis(nested_passes(5), tmp_path).repeated
    assert (len(steps), steps.empty, steps.ranges_seen) == (5, (), 5)


@pytest.mark.parametrize("calls", [0, 2])
def test_a_pass_inside_one_in_which_the_recording_ended_is_no_step(tmp_path: Path, calls: int) -> None:
    """The outer one has no end, so that it is not among the ranges."""
    export = nested_passes(5).range("gpu_model_runner: forward", 1_000 * US, 1_010 * US)
    for k in range(calls):
        export.launch(at=(1_001 + 4 * k) * US, dur=2 * US, kernel=f"k{k}")
    steps = analysis(export, tmp_path).repeated
    assert (len(steps), steps.empty, steps.ranges_seen) == (5, (), 5)


def nested_passes(steps: int) -> Export:
    """Passes of four kernels; in each the range of another pass, which begins with it."""
    export = Export().process(1)
    for i in range(steps):
        at = i * 200 * US
        export.range("gpu_model_runner: forward", at, at + 10 * US)
        export.range("execute_context_0(0)_generation_8(8)", at, at + 150 * US)
        for k in range(4):
            export.launch(at=at + 20 * US * (k + 1), dur=5 * US, kernel=f"k{k}")
    return export


def test_passes_that_hold_little_of_the_work_give_way_to_the_loop(tmp_path: Path) -> None:
    export = decode_loop(4, kernels=10, period=400 * US)
    for i in range(4):  # one of ten launches only
        export.range("decode_step", i * 400 * US, i * 400 * US + 5 * US)
    assert analysis(export, tmp_path).steps.phase == ("unknown",) * 4


def test_phases_come_from_serving_engine_ranges(tmp_path: Path) -> None:
    export = Export().process(1)
    names = [
        "execute_context_1(512)_generation_0(0)",
        "execute_context_0(0)_generation_16(16)",
        "execute_context_2(200)_generation_16(16)",
        "step[DECODE bs=32]",
    ]
    for i, name in enumerate(names[:3]):
        export.range(name, i * 100 * US, i * 100 * US + 50 * US)
        export.launch(at=i * 100 * US + US, kernel_start=i * 100 * US + 20 * US)
    assert analysis(export, tmp_path).steps.phase == ("prefill", "decode", "mixed")


def test_work_of_other_processes_is_in_no_step(tmp_path: Path) -> None:
    export = decode_loop(3)
    export.process(2).launch(at=30 * US, kernel="other", kernel_start=300 * US)
    a = analysis(export, tmp_path)
    other = a.ops.process == 2
    assert other.sum() == 1
    assert (a.steps.op_step[other] == -1).all()


def test_periodic_graph_launches_are_steps_without_ranges(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(5):
        at = i * 1000 * US
        export.graph_launch(at, 20 * US, [(f"k{k}", at + (30 + 20 * k) * US, 15 * US) for k in range(10)])
    steps = analysis(export, tmp_path).repeated
    assert steps.method == "graph launches"
    assert steps.time.tolist() == [1000 * US] * 4


def test_passes_between_graph_launches_are_steps_of_their_own(tmp_path: Path) -> None:
    """A server replays its decode step, each followed by a sampling kernel, and launches a prefill of
    thirty kernels before every third: four prefills and twelve decode steps."""
    export = Export().process(1)
    t = 0
    for i in range(12):
        if i % 3 == 0:
            for k in range(30):
                name = "gemm" if k % 3 == 0 else f"p{k}"
                export.launch(at=t, dur=2 * US, kernel=name, kernel_start=t + 4 * US, kernel_dur=5 * US)
                t += 10 * US
        nodes = [("gemm" if k % 3 == 0 else f"k{k}", t + (30 + 20 * k) * US, 15 * US) for k in range(12)]
        export.graph_launch(t, 20 * US, nodes)
        export.launch(at=t + 25 * US, kernel="argmax", kernel_start=t + 300 * US, kernel_dur=2 * US)
        t += 400 * US
    steps = analysis(export, tmp_path).repeated
    sizes = [int((steps.op_step == i).sum()) for i in range(len(steps))]
    assert (steps.method, sizes) == ("graph launches", [30, 13, 13, 13] * 4)


@pytest.mark.parametrize("replays", [3, 4, 20])
@pytest.mark.parametrize(("kernel", "parts"), [("conv{}", 0), ("k{}", 1)])
def test_what_runs_after_the_last_replay_alone_is_no_step(
    tmp_path: Path, replays: int, kernel: str, parts: int
) -> None:
    """A denoiser is replayed for 40 ms a time, and the image then decoded in 5 ms by kernels of their own.
    The model that was replayed, launched kernel by kernel, is one more step."""
    export = Export().process(1)
    t = 0
    for _ in range(replays):
        nodes = [("gemm" if k % 3 == 0 else f"k{k}", t + (30 + 1_000 * k) * US, 990 * US) for k in range(40)]
        export.graph_launch(t, 20 * US, nodes)
        t += 40_100 * US
    for k in range(50):
        name = "gemm" if k % 3 == 0 and parts else kernel.format(k % 40)
        export.launch(
            at=t + k * 10 * US, dur=2 * US, kernel=name, kernel_start=t + k * 100 * US, kernel_dur=99 * US
        )
    a = analysis(export, tmp_path)
    steps = a.repeated
    assert steps.method == "graph launches"
    assert len(steps) == replays + parts
    assert np.allclose(steps.time[: replays - 1] / US, 40_100, rtol=0.01)
    assert [int((steps.op_step == i).sum()) for i in range(replays)] == [40] * replays


def test_a_repeating_kernel_sequence_gives_steps(tmp_path: Path) -> None:
    """Six passes of three layers of four kernels, between an embedding and an argmax."""
    export = Export().process(1)
    t = 0
    for _ in range(6):
        sequence = ["embedding", *(["norm", "gemm", "attention", "mul"] * 3), "argmax"]
        for name in sequence:
            export.launch(at=t, dur=2 * US, kernel=name, kernel_start=t + 4 * US, kernel_dur=3 * US)
            t += 10 * US
    steps = analysis(export, tmp_path).repeated
    assert steps.method == "kernel sequence"
    assert len(steps) == 6
    assert np.unique(steps.time).tolist() == [14 * 10 * US]


def test_a_kernel_of_every_layer_does_not_mark_steps(tmp_path: Path) -> None:
    """Twelve layers a pass, three passes: what comes once a layer stumbles at each pass."""
    export = Export().process(1)
    t = 0
    for _ in range(3):
        layers = [f"{n}{i}" for _ in range(12) for i, n in enumerate("abcdefghij")]
        for name in ["embedding", *layers, "head", "argmax"]:
            export.launch(at=t, dur=2 * US, kernel=name, kernel_start=t + 4 * US, kernel_dur=3 * US)
            t += 10 * US
    assert len(analysis(export, tmp_path).repeated) == 3


def test_blocks_of_stages_do_not_mark_steps(tmp_path: Path) -> None:
    """Stages of 3, 4, 6 and 3 blocks (ResNet-50), the first block of each with one kernel more: ten
    passes are ten steps although the blocks return almost evenly."""
    export = Export().process(1)
    t = 0
    for _ in range(10):
        blocks = [
            name
            for n in (3, 4, 6, 3)
            for b in range(n)
            for name in (["down"] * (b == 0) + ["a"] * 19 + ["add"])
        ]
        for name in ["stem", *blocks, "head"]:
            export.launch(at=t, dur=2 * US, kernel=name, kernel_start=t + 4 * US, kernel_dur=3 * US)
            t += 10 * US
    assert len(analysis(export, tmp_path).repeated) == 10


@pytest.mark.parametrize("layers", [4, 12])
def test_two_passes_are_two_steps_where_what_comes_once_a_pass_says_so(tmp_path: Path, layers: int) -> None:
    export = passes_of_layers(2, layers, ("embedding", "head", "argmax"))
    steps = analysis(export, tmp_path).repeated
    assert (steps.method, len(steps)) == ("markers", 2)


@pytest.mark.parametrize(("layers", "steps"), [(12, 0), (4, 8)])
def test_two_passes_of_layers_are_no_steps(tmp_path: Path, layers: int, steps: int) -> None:
    """One stumble, in the middle: two passes. Few even returns may be steps, one of them odd."""
    export = passes_of_layers(2, layers, ("first", "head", "last"))
    assert len(analysis(export, tmp_path).repeated) == steps


def passes_of_layers(passes: int, layers: int, around: tuple[str, str, str]) -> Export:
    """Passes of layers of ten kernels: the first of `around`, the layers, its others."""
    export = Export().process(1)
    t = 0
    for _ in range(passes):
        names = [f"{n}{i}" for _ in range(layers) for i, n in enumerate("abcdefghij")]
        for name in [around[0], *names, *around[1:]]:
            export.launch(at=t, dur=2 * US, kernel=name, kernel_start=t + 4 * US, kernel_dur=3 * US)
            t += 10 * US
    return export


def test_what_repeats_inside_the_only_marked_step_are_layers(tmp_path: Path) -> None:
    export = Export().process(1).range("iteration 6", 100 * US, 5_000 * US)
    for i in range(400):
        at = (100 + 10 * i) * US
        export.launch(at=at, dur=2 * US, kernel=f"k{i % 20}", kernel_start=at + 4 * US, kernel_dur=3 * US)
    a = analysis(export, tmp_path)
    assert (a.steps.method, len(a.steps), a.window.method) == ("ranges", 1, "the one step")
    # One marked step among much other work is no reason to leave the rest out.
    for i in range(500):
        at = (6_000 + 10 * i) * US
        export.launch(at=at, dur=2 * US, kernel=f"k{i % 20}", kernel_start=at + 4 * US, kernel_dur=3 * US)
    (tmp_path / "more").mkdir()
    assert analysis(export, tmp_path / "more").repeated.method == "kernel sequence"


@pytest.mark.parametrize(
    ("ahead", "kernel", "begin"),
    [(900, "fill_kernel", 900), (20, "fill_kernel", 0), (900, "ampere_sgemm_128x64_tn", 0)],
    ids=["a model is built", "inputs are sent", "another pass"],
)
def test_the_only_marked_pass_begins_behind_the_set_up(
    ahead: int, kernel: str, begin: int, tmp_path: Path
) -> None:
    """One kernel, host code, then a forward pass of 90 us in its range, and the backward pass behind it."""
    export = Export().process(1).range("forward pass", ahead * US, (ahead + 90) * US)
    export.launch(at=0, dur=2 * US, kernel=kernel, kernel_start=4 * US, kernel_dur=3 * US)
    for i in range(20):
        at = (ahead + 10 * i) * US
        name = ("ampere_sgemm_128x64_tn", f"k{i}")[i % 2]
        export.launch(at=at, dur=2 * US, kernel=name, kernel_start=at + 4 * US, kernel_dur=8 * US)
    a = analysis(export, tmp_path)
    assert (a.steps.method, len(a.steps)) == ("single pass", 1)
    assert a.window.start == (begin + 4) * US
    assert a.window.end == (ahead + 202) * US


def test_irregular_work_has_no_steps(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(40):
        export.launch(at=i * 10 * US, kernel=f"k{i}", kernel_start=i * 10 * US + 7 * US)
    a = analysis(export, tmp_path)
    assert a.steps.method == "none"
    assert a.window.method == "first to last GPU operation"


def test_opaque_graph_launches_divide_the_time_evenly(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(10):
        export.graph_launch(i * 20 * US, 15 * US, mode="graph")
    export.call("cudaDeviceSynchronize_v3020", 200 * US, 800 * US)
    steps = analysis(export, tmp_path).repeated
    assert steps.method == "opaque graph launches"
    assert np.unique(steps.time).tolist() == [100 * US]


def test_opaque_graph_launches_behind_the_last_wait_are_no_steps(tmp_path: Path) -> None:
    """The capture ends while twenty more launches queue up: what they take is not known."""
    export = Export().process(1)
    for i in range(10):
        export.graph_launch(i * 20 * US, 15 * US, mode="graph")
    export.call("cudaDeviceSynchronize_v3020", 200 * US, 800 * US)
    for i in range(20):
        export.graph_launch((1010 + i * 20) * US, 15 * US, mode="graph")
    steps = analysis(export, tmp_path).repeated
    assert (len(steps), np.unique(steps.time).tolist()) == (10, [100 * US])


def test_opaque_graph_launches_without_any_wait_are_not_certain(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(10):
        export.graph_launch(i * 20 * US, 15 * US, mode="graph")
    steps = analysis(export, tmp_path).repeated
    assert (len(steps), steps.believed) == (10, False)


@pytest.mark.parametrize("mode", ["node", "graph"])
def test_inputs_that_go_up_before_a_graph_launch_belong_to_its_step(tmp_path: Path, mode: str) -> None:
    export = Export().process(1)
    for i in range(6):
        t = i * 1000 * US
        export.copy(t, 5 * US, "HtoD", 1 << 20, "pinned", t + 10 * US, 40 * US)
        export.graph_launch(t + 8 * US, 20 * US, [("gemm", t + 60 * US, 400 * US)], mode)
        export.copy(t + 30 * US, 5 * US, "DtoH", 4096, "pinned", t + 470 * US, 5 * US)
        export.call("cudaStreamSynchronize_v3020", t + 40 * US, 450 * US)
    steps = analysis(export, tmp_path).repeated
    assert (steps.method, steps.believed) == ("graph launches", True)
    assert steps.size.tolist() == [3] * 6
    assert (steps.gpu_end - steps.gpu_start).tolist() == [465 * US] * 6


def test_step_ranges_without_calls_are_remembered_as_empty(tmp_path: Path) -> None:
    export = decode_loop(3)
    export.range("iteration 3", 700 * US, 800 * US).range("iteration 4", 900 * US, 950 * US)
    a = analysis(export, tmp_path)
    assert len(a.steps) == 3
    assert a.damage.empty_steps == 2
    assert a.damage.holes.total == 150 * US


@pytest.mark.parametrize("selection", [{"window": "100us/300us"}, {"nvtx": "iteration 1"}])
def test_a_named_window_replaces_the_steady_one(tmp_path: Path, selection: dict[str, str]) -> None:
    a = analysis(decode_loop(5), tmp_path, **selection)
    lo, hi = (100 * US, 300 * US) if "window" in selection else (200 * US, 320 * US)
    assert (a.window.start, a.window.end) == (lo, hi)


def test_one_phase_can_be_looked_at_alone(tmp_path: Path) -> None:
    export = Export().process(1)
    for i, name in enumerate(["prefill", "decode_step", "decode_step", "prefill", "decode_step"]):
        at = i * 100 * US
        export.range(name, at, at + 50 * US)
        export.launch(at=at + US, dur=5 * US, kernel_start=at + 20 * US, kernel_dur=30 * US)
    a = analysis(export, tmp_path, phase="decode")
    assert a.step_count == 3
    assert a.window.length == 300 * US
    assert a.budgets[0].ns["compute"] == 90 * US


# --------------------------------------------------------------------- levels inside a step


def levels(export: Export, folder: Path) -> dict[str, int]:
    return dict(analysis(export, folder).steps.levels)


def layered(layers: int, steps: int = 4, *, named: bool = False) -> Export:
    """Steps of layers of six kernels and two more; `named` layers have a range."""
    export = Export().process(1)
    at = 0
    for i in range(steps):
        begin = at
        for n in range(layers):
            if named:
                export.range(f"layer_{n}", at, at + 58 * US)
            for k in range(6):
                export.launch(at=at, kernel=f"k{k}", kernel_start=at + 8 * US, kernel_dur=2 * US)
                at += 10 * US
        for last in ("head", "tail"):
            export.launch(at=at, kernel=last, kernel_start=at + 8 * US, kernel_dur=2 * US)
            at += 10 * US
        export.range(f"iteration {i}", begin, at)
    return export


def test_layers_show_as_repeats_of_their_kernels(tmp_path: Path) -> None:
    assert levels(layered(12), tmp_path) == {"repeats of 6 kernels": 12}


def test_numbered_ranges_inside_a_step_are_a_level(tmp_path: Path) -> None:
    found = levels(layered(5, named=True), tmp_path)
    assert found == {"ranges layer_#": 5, "repeats of 6 kernels": 5}


def test_pieces_of_a_compiled_graph_are_a_level(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(4):
        at = i * 1000 * US
        export.range(f"execute_context_0(0)_generation_{i}({i})", at, at + 900 * US)
        for piece in range(9):
            begin = at + piece * 100 * US
            nodes = [(f"k{k}", begin + (20 + 10 * k) * US, 8 * US) for k in range(5)]
            export.graph_launch(begin, 10 * US, nodes)
    assert levels(export, tmp_path) == {"graph launches": 9, "repeats of 5 kernels": 9}


def test_steps_of_different_kernels_have_no_level(tmp_path: Path) -> None:
    assert levels(decode_loop(5, kernels=20, period=800 * US), tmp_path) == {}


def test_steps_that_are_not_believed_have_no_levels(tmp_path: Path) -> None:
    export = layered(12)
    steps = analysis(export.without_tables("NVTX_EVENTS"), tmp_path).repeated
    assert not steps.believed
    assert steps.levels == ()


# --------------------------------------------------------------------- Python functions


def called(function: str, *, layers: int = 1, marked: bool = False, passes: int = 5) -> Profile:
    """Passes of twelve kernels of various lengths; each pass, or each of its `layers`, is one call
    of `function`. `marked` passes embed their input once."""
    made = Profile().gpu()
    at = 0
    for i in range(passes):
        for layer in range(layers):
            begin = at
            for k in range(12 // layers):
                if marked and layer == k == 0:
                    made.op("aten::embedding", at, 9_000)
                made.launch(at=at, kernel=f"k{i}_{layer}_{k}", kernel_dur=5_000)
                at += 20_000
            made.python(function, begin, at - begin)
    return made


def of_profile(profile: Profile, folder: Path) -> Steps:
    return measure(open_trace(profile.write(folder / "trace.json"))).repeated


@pytest.mark.parametrize("name", ["train_step", "execute_model", "generate", "_forward_step"])
def test_calls_of_a_function_named_as_a_step_are_steps(tmp_path: Path, name: str) -> None:
    steps = of_profile(called(f"app/loop.py(12): {name}"), tmp_path)
    assert (len(steps), steps.method) == (5, "Python functions")
    assert steps.believed


def test_calls_of_another_function_are_believed_where_a_marker_confirms(tmp_path: Path) -> None:
    alone = of_profile(called("app/loop.py(12): handle"), tmp_path)
    marked = of_profile(called("app/loop.py(12): handle", marked=True), tmp_path)
    assert (len(alone), len(marked), marked.method) == (5, 5, "Python functions")
    assert not alone.believed
    assert marked.believed


def test_calls_of_a_layer_are_no_steps(tmp_path: Path) -> None:
    """Four calls in each pass, of which only the first embeds."""
    steps = of_profile(called("app/model.py(3): forward", layers=4, marked=True), tmp_path)
    assert len(steps) != 20


def test_functions_of_pytorch_and_single_calls_are_no_steps(tmp_path: Path) -> None:
    library = of_profile(called("torch/nn/modules/module.py(1): train_step"), tmp_path)
    twice = of_profile(called("app/loop.py(12): train_step", passes=2), tmp_path)
    assert (library.method, twice.method) == ("none", "none")


def test_ranges_go_before_functions(tmp_path: Path) -> None:
    profile = called("app/loop.py(12): train_step")
    for i in range(5):
        profile.annotation(f"ProfilerStep#{i}", i * 240_000, 240_000)
    assert of_profile(profile, tmp_path).method == "ranges"


def test_results_that_come_down_once_a_pass_tell_steps(tmp_path: Path) -> None:
    """Every kernel runs in each of four layers; only the copies come once a pass."""
    export, at = Export().process(1), 0
    for i in range(9):
        export.copy(at, US, "HtoD", 4096, "pinned", at + 2 * US, US)
        for k in range(4 * 5):
            export.launch(at=at + (5 + 3 * k) * US, dur=US, kernel=f"k{k % 5}", kernel_dur=2 * US)
        export.copy(at + 80 * US, US, "DtoH", 4096, "pinned", at + 90 * US, US)
        at += (200 + 10 * (i % 2)) * US
    steps = analysis(export, tmp_path).repeated
    assert (steps.method, len(steps)) == ("copies", 9)
    assert np.unique(steps.time).tolist() == [200 * US, 210 * US]


def test_copies_of_one_direction_alone(tmp_path: Path) -> None:
    """Inputs go up and nothing comes down, too seldom to be steps."""
    export = Export().process(1).copy(0, US, "HtoD", 4096, "pinned", 2 * US, US)
    for k in range(60):
        export.launch(at=(5 + 3 * k) * US, dur=US, kernel=f"k{k % 5}{k // 20}", kernel_dur=2 * US)
    assert len(analysis(export, tmp_path).steps) == 0
