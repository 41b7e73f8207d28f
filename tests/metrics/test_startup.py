"""Start-up wherever it stands: cold calls, warm-up steps, uploads, tear-down."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.metrics.budgeted.step_times import slow_steps
from advisor.metrics.stepped.startup import activity_span
from tests.builder import Export
from tests.metrics.support import analysis
from tests.scenarios.machine import DECODE_LAYER, Machine

US, MS = 1_000, 1_000_000


def steps(lengths: list[int], cold: dict[int, int] | None = None) -> Export:
    """Steps of ten launches, a call of 5 us and a kernel of 60 us each, as far apart as `lengths`
    (us) tell; the first call of step i takes `cold[i]` us and launches a kernel of its own."""
    export = Export().process(1)
    t = 0
    for i, length in enumerate(lengths):
        export.range("decode_step", t, t + (length - 10) * US)
        first = (cold or {}).get(i, 5)
        for k in range(10):
            at = t + (first - 5 + 100 * k) * US if k else t
            name = f"rare{i}" if k == 0 and i in (cold or {}) else f"k{k}"
            call = (first if k == 0 else 5) * US
            export.launch(at=at, dur=call, kernel=name, kernel_start=at + call + US, kernel_dur=60 * US)
        t += length * US
    return export


def test_a_first_launch_in_the_middle_is_start_up_and_not_launching(tmp_path: Path) -> None:
    """Step 3 loads the module of a kernel for 2 ms, of which the device idles all but 25 us."""
    a = analysis(steps([1000, 1000, 1000, 3000, 1000, 1000], {3: 2000}), tmp_path)
    ns = a.budgets[0].ns
    assert ns["startup"] == pytest.approx(2 * MS, abs=60 * US)
    assert ns["launch_call"] < 0.3 * MS
    assert [(e.kind, e.what) for e in a.startup.events] == [("modules", "cudaLaunchKernel_v7000")]


def test_a_step_that_loads_a_module_is_no_slow_step(tmp_path: Path) -> None:
    loading = analysis(steps([1000, 1000, 1000, 3000, 1000, 1000], {3: 2000}), tmp_path)
    (tmp_path / "pause").mkdir()
    pausing = analysis(steps([1000, 1000, 3000, 1000, 1000, 1000]), tmp_path / "pause")
    slow = [found[2].sum() for a in (loading, pausing) if (found := slow_steps(a)) is not None]
    assert slow == [0, 1]


def test_a_slow_launch_of_a_known_kernel_is_not_start_up(tmp_path: Path) -> None:
    export = steps([1000] * 6)
    export.launch(at=6 * MS, dur=2 * MS, kernel="k1", kernel_start=8 * MS + US, kernel_dur=60 * US)
    assert analysis(export, tmp_path).startup.length == 0


def test_a_range_of_warm_up_is_start_up_even_with_most_of_the_work(tmp_path: Path) -> None:
    """Without steps: 60 kernels inside the range of a warm-up, 40 after it."""
    export = (
        Export().process(1).range("[net|warmup|forward]", 0, 6 * MS).range("[net|measure]", 6 * MS, 10 * MS)
    )
    for i in range(100):
        export.launch(i * 100 * US, 5 * US, f"k{i * 7919 % 100}", kernel_dur=60 * US)
    assert analysis(export, tmp_path).startup.end == 6 * MS


def test_warm_up_steps_are_dropped_by_time_and_the_last_is_kept(tmp_path: Path) -> None:
    a = analysis(steps([3000, 2500, 1000, 1000, 1000], {0: 2000, 1: 1500}), tmp_path)
    assert (len(a.steps), a.step_count) == (5, 3)


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        pytest.param([9000, 8000, 6000, *[1000] * 8], 7, id="three slow first iterations"),
        pytest.param([9000, *[1000] * 8], 7, id="one, whose idle time ends with the next"),
        pytest.param([1000, 1000, 8000, *[1000] * 8], 10, id="a slow one among even ones"),
        pytest.param([3000, 2500, *[1000] * 8], 9, id="hardly slower"),
    ],
)
def test_first_iterations_far_slower_than_the_rest_are_warm_up(
    tmp_path: Path, lengths: list[int], kept: int
) -> None:
    """Without any call that shows why: the host compiles, for example."""
    assert analysis(steps(lengths), tmp_path).step_count == kept


@pytest.mark.parametrize(
    ("slow", "kept"),
    [
        pytest.param([4, 4, 3, 2], 26, id="a clock that rises"),
        pytest.param([4] * 10, 29, id="a third of the steps"),
        pytest.param([1, 1, 4], 29, id="slow steps later"),
        pytest.param([1.3, 1.3], 29, id="hardly slower"),
    ],
)
def test_first_steps_of_the_same_work_on_a_slower_device_are_warm_up(
    tmp_path: Path, slow: list[float], kept: int
) -> None:
    m = Machine()
    for times in [*slow, *[1.0] * (30 - len(slow))]:
        with m.step("decode_step"):
            m.replay(20, [(kernel, times * us) for kernel, us in DECODE_LAYER])
            m.read_back()
    assert analysis(m.export, tmp_path).step_count == kept


def test_of_two_cold_steps_the_last_is_kept(tmp_path: Path) -> None:
    a = analysis(steps([3000, 2500], {0: 2000, 1: 1500}), tmp_path)
    assert a.step_count == 1


def test_the_only_pass_is_kept_whole(tmp_path: Path) -> None:
    a = analysis(steps([3000], {0: 2000}), tmp_path)
    assert a.step_count == 1
    assert a.startup.end <= a.window.start <= a.steps.gpu_start[0]


def test_the_first_long_call_creates_the_context(tmp_path: Path) -> None:
    export = Export().process(1).call("cudaFree_v3020", 0, 200 * MS)
    for i in range(40):
        at = 201 * MS + i * 100 * US
        export.launch(at=at, kernel="k", kernel_start=at + 10 * US, kernel_dur=50 * US)
    a = analysis(export, tmp_path)
    assert {kind: spans.total for kind, spans in a.startup.parts.items()} == {"context": 200 * MS}
    assert a.startup.end == 200 * MS
    assert a.budgets[0].ns["startup"] == 0


def test_all_long_calls_before_the_first_work_are_start_up(tmp_path: Path) -> None:
    """A library frees something for a second, asks for properties eight times, and the program pins and
    allocates its buffers; its kernels are loaded later."""
    export = Export().process(1).call("cudaFree_v3020", 0, 200 * MS)
    export.call("cudaFree_v3020", 201 * MS, 1000 * MS)
    for i in range(8):
        export.call("cudaGetDeviceProperties_v2_v12000", (1201 + 3 * i) * MS, 3 * MS)
    export.call("cudaHostAlloc_v3020", 1225 * MS, 220 * MS).call("cudaMalloc_v3020", 1445 * MS, 2 * MS)
    for i in range(40):
        at = 1448 * MS + i * 100 * US
        export.launch(at=at, kernel="k", kernel_start=at + 10 * US, kernel_dur=50 * US)
    a = analysis(export, tmp_path)
    parts = {kind: spans.total // MS for kind, spans in a.startup.parts.items()}
    assert parts == {"context": 200, "libraries": 1024, "allocation": 222}
    assert a.startup.end == 1447 * MS


def test_a_library_is_set_up_before_the_first_kernel_though_constants_were_copied(tmp_path: Path) -> None:
    """72 bytes go up with the context; then a library frees something for 1.2 s, and one kernel runs."""
    export = Export().process(1).call("cudaMalloc_v3020", 0, 234 * MS)
    export.copy(at=233 * MS, kind="HtoD", bytes=72, dur=2 * US)
    export.call("cudaFree_v3020", 235 * MS, 1200 * MS)
    export.launch(at=1436 * MS, dur=20 * US, kernel="gemm", kernel_start=1437 * MS, kernel_dur=6 * US)
    a = analysis(export, tmp_path)
    assert a.startup.parts["libraries"].total == 1200 * MS


def test_first_launches_are_cold_where_no_launch_is_warm(tmp_path: Path) -> None:
    """Each of twelve kernels runs once; a launch call of a loaded kernel takes microseconds."""
    export = Export().process(1)
    for i in range(12):
        at, done = 4 * i * MS, (4 * i + 3) * MS
        export.launch(at=at, dur=3 * MS, kernel=f"k{i}", kernel_start=done + 10 * US, kernel_dur=50 * US)
    a = analysis(export, tmp_path)
    assert a.startup.parts["modules"].total == 12 * 3 * MS


def test_a_kernel_that_runs_before_its_cold_launch_returns_is_work(tmp_path: Path) -> None:
    """The only long kernel is launched cold and starts 2 us before that call has returned."""
    export = Export().gpu().process(1).call("cudaMalloc_v3020", 0, 100 * MS)
    export.launch(at=101 * MS, dur=9 * MS, kernel="long", kernel_start=110 * MS - 2 * US, kernel_dur=500 * MS)
    export.launch(at=111 * MS, kernel="reduce", kernel_start=611 * MS, kernel_dur=20 * US)
    a = analysis(export, tmp_path)
    assert a.startup.end == 110 * MS - 2 * US
    assert a.budgets[0].busy_ratio > 0.99


def test_an_upload_that_is_all_a_program_does_is_its_work(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(5):
        at = i * 30 * MS
        export.copy(at, 20 * MS, "HtoD", bytes=10**8, copy_start=at + MS, copy_dur=19 * MS)
    export.launch(at=150 * MS, kernel="k", kernel_start=151 * MS, kernel_dur=MS)
    a = analysis(export, tmp_path)
    assert a.startup.length == 0
    assert a.budgets[0].ns["htod"] == 5 * 19 * MS


def test_frees_after_the_last_work_are_tear_down(tmp_path: Path) -> None:
    export = steps([1000] * 6).call("cudaFree_v3020", 7 * MS, 5 * MS)
    a = analysis(export, tmp_path)
    assert a.startup.teardown.total == 5 * MS
    assert a.startup.length == 0


def tuned(
    tiles: int = 5, runs: int = 4, layers: int = 6, passes: int = 40, *, in_a_row: bool = True, later: int = 1
) -> Export:
    """Before so many passes of `layers`, each of their convolutions tries so many kernels; with `later`
    kernels of its own in the passes, each of which runs so many times in a row there."""
    export = Export().gpu().process(1)
    t = 0

    def launch(name: str, us: int) -> None:
        nonlocal t
        export.launch(at=t, dur=5 * US, kernel=name, kernel_start=t + 6 * US, kernel_dur=us * US)
        t += (us + 8) * US

    trials = [i % tiles if not in_a_row else i // runs for i in range(tiles * runs)]
    for _ in range(layers):
        for i in trials:
            launch(f"sm80_xmma_fprop_implicit_gemm_tile{i}", 50)
        launch("relu_kernel", 5)
        t += 300 * US
    for _ in range(passes):
        for _ in range(layers):
            for _ in range(later):
                launch("sm80_xmma_fprop_implicit_gemm_chosen", 40)
            launch("relu_kernel", 5)
    return export


def test_kernels_tried_in_a_row_and_never_again_are_autotuning(tmp_path: Path) -> None:
    a = analysis(tuned(), tmp_path)
    assert [e.kind for e in a.startup.events] == ["autotuning"]
    length = a.startup.parts["autotuning"].total
    assert length == pytest.approx(8.5 * MS, rel=0.1)
    first, last = activity_span(a.trace, a.ops)
    told = {f.name: f.value for f in advisor.diagnose(tmp_path / "trace.sqlite").facts}
    assert told["startup.autotuning_ratio"] == pytest.approx(length / (last - first))
    assert a.window.start >= a.startup.end > 8 * MS


@pytest.mark.parametrize(
    "export",
    [
        tuned(tiles=3),  # too few kernels
        tuned(layers=1, runs=2),  # too few runs
        tuned(in_a_row=False),  # a prompt, whose kernels take turns
        tuned(later=3),  # a benchmark, which repeats each kernel all along
    ],
)
def test_other_kernels_that_come_once_are_no_autotuning(export: Export, tmp_path: Path) -> None:
    assert "autotuning" not in analysis(export, tmp_path).startup.parts


def test_first_steps_that_are_slower_than_the_rest_are_counted(tmp_path: Path) -> None:
    d = advisor.diagnose(steps([4000, 2000, *[1000] * 8]).write(tmp_path / "trace.sqlite"))
    told = {f.name: f.value for f in d.facts}
    assert told["startup.warmup_step_count"] == 1
    assert told["startup.warmup_ratio"] == pytest.approx(4 / 14, abs=0.02)


def test_start_up_inside_the_only_step_is_told_of_the_window(tmp_path: Path) -> None:
    """Eight milliseconds of work, a library loaded for six, eight of work: shares count all 22."""
    m = Machine()
    with m.step("prefill 0"):
        for kernel, _ in (DECODE_LAYER[1], DECODE_LAYER[2]):
            for _ in range(40):
                m.launch(kernel, 200)
            m.wait()
            m.call("cuLibraryLoadData", 6000 if kernel is DECODE_LAYER[1][0] else 5)
    d = advisor.diagnose(m.write(tmp_path))
    told = {f.name: f.value for f in d.facts}
    assert told["startup.in_window_ratio"] == pytest.approx(6 / 22, abs=0.01)
    (found,) = (f for f in d.findings if f.cause == "startup-in-window")
    assert "Of the window around that part 27" in found.message


def test_allocations_hold_no_idle_time_of_start_up(tmp_path: Path) -> None:
    """A free loads a library for 6 ms in the first of two kernels; another one takes 2 ms."""
    m = Machine()
    with m.step("prefill 0"):
        for i, (kernel, _) in enumerate((DECODE_LAYER[1], DECODE_LAYER[2], DECODE_LAYER[1])):
            for _ in range(40):
                m.launch(kernel, 200)
            m.wait()
            if i == 0:
                m.export.call("cuLibraryLoadData", round(m.now * 1_000) + 100, 5_990_000)
            m.call("cudaFree_v3020", (6000, 2000, 5)[i])
    told = {f.name: f.value for f in advisor.diagnose(m.write(tmp_path)).facts}
    assert told["alloc.stall_idle_ratio"] == pytest.approx(2 / 32, abs=0.005)
    assert told["alloc.stall_idle_ratio"] <= told["alloc.idle_ratio"]


def test_modules_unloaded_after_the_work_are_tear_down(tmp_path: Path) -> None:
    """As a compiler's runtime does at exit: 40 ms of unloading after 6 ms of work."""
    export = steps([1000] * 6)
    for i in range(20):
        export.call("cuModuleUnload", 7 * MS + i * 2 * MS, 2 * MS)
    a = analysis(export, tmp_path)
    assert a.startup.length == 0
    assert a.startup.teardown.total == 40 * MS


def captures(count: int, replayed: bool) -> Export:
    """Graphs captured over 2 ms each, one after the other, between kernels that run for 100 us; with a
    replay behind each where `replayed`."""
    export = Export().process(1)
    for i in range(count):
        t = 3 * i * MS
        export.launch(at=t, kernel="attention", kernel_start=t + 10 * US, kernel_dur=100 * US)
        export.call("cudaStreamBeginCapture_v10000", t + 150 * US, 5 * US)
        for k in range(10):
            export.call("cudaLaunchKernel_v7000", t + (200 + 190 * k) * US, 5 * US)
        export.call("cudaStreamEndCapture_v10000", t + 2_140 * US, 10 * US)
        export.call("cudaGraphInstantiateWithFlags_v11040", t + 2_150 * US, 450 * US)
        if replayed:
            export.graph_launch(at=t + 2_700 * US, dur=10 * US, nodes=[("k", t + 2_720 * US, 50 * US)])
    return export


def test_capturing_graphs_is_start_up(tmp_path: Path) -> None:
    """All of 24 captures and instantiations, of 2 ms and 450 us, come before any replay."""
    a = analysis(captures(24, replayed=False), tmp_path)
    assert a.startup.parts["graphs"].total == pytest.approx(24 * 2.45 * MS, rel=0.01)


def test_a_loop_that_captures_its_graph_anew_is_no_start_up(tmp_path: Path) -> None:
    """Only the first capture comes before the first replay."""
    a = analysis(captures(24, replayed=True), tmp_path)
    assert a.startup.parts["graphs"].total == pytest.approx(2.45 * MS, rel=0.01)
