"""How work reaches the GPU: one by one, as graphs, through a full queue, from two processes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.scenarios.machine import (
    ADD,
    DECODE_ATTENTION,
    DECODE_LAYER,
    FULL,
    GEMM,
    GEMV,
    NORM,
    PREFILL_ATTENTION,
    SILU,
    Kernel,
    Machine,
)
from tests.scenarios.support import (
    HOST_SIDE,
    alarms,
    diagnosed,
    evidence,
    expect,
    explained,
    fact,
    ranked,
    severity,
)

SHORT = [(kernel, 1.5) for kernel, _ in DECODE_LAYER]
GPU_LIMITS = ("memory-bandwidth-bound", "compute-bound", "transfer-bound", "host-gap")
SYNCS = ("blocking-sync", "device-wide-sync", "readback-per-layer", "implicit-sync")


def slow_between_launches(kernel: float, host: float) -> Machine:
    """Kernels and the host code between their launches, us each."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for k in range(40):
                m.launch(GEMM if k % 2 else NORM, kernel)
                m.work(host)
            m.wait()
    return m


def test_host_code_between_launches_of_long_kernels(tmp_path: Path) -> None:
    """85 us of host for each kernel of 50 us: a graph leaves the kernels alone."""
    found = diagnosed(slow_between_launches(50, 80), tmp_path)
    assert ranked(found)[0] == "launch-gaps"
    assert {"launch-bound", "gpu-idle"}.isdisjoint(ranked(found))
    gain = next(f.gain for f in found.findings if f.cause == "launch-gaps")
    assert gain is not None
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(40 * 0.05, rel=0.05)


def test_host_code_that_hides_behind_kernels_leaves_no_gaps(tmp_path: Path) -> None:
    assert "launch-gaps" not in ranked(diagnosed(slow_between_launches(50, 20), tmp_path))


def launch_bound(**how: Any) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(22, SHORT, **how)
            m.wait()
    return m


@pytest.mark.parametrize(
    ("kernel", "between", "pause", "actions"),
    [
        pytest.param(100, 117, 0, ["fuse-small-kernels"], id="launching"),
        pytest.param(100, 106, 230, ["fuse-small-kernels", "move-host-work-off-loop"], id="both"),
    ],
)
def test_idle_time_that_no_cause_explains_is_answered_by_its_parts(
    tmp_path: Path, kernel: int, between: int, pause: int, actions: list[str]
) -> None:
    """Under a fifth of launching is no cause where kernels are long, and under a tenth of host code no
    host gap."""
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            for _ in range(20):
                m.launch(GEMM, kernel)
                m.work(between)
        m.work(pause)
    (idle,) = (f for f in diagnosed(m, tmp_path).findings if f.cause == "gpu-idle")
    assert [r.id for r in idle.recommendations] == [*actions, "look-at-largest-gaps"]


def test_decode_launched_one_by_one(tmp_path: Path) -> None:
    d = diagnosed(launch_bound(), tmp_path)
    expect(d, "launch-bound", never=(*GPU_LIMITS, *SYNCS, "under-filled-gpu", "dynamic-shapes"))
    assert severity(d, "launch-bound") == "high"
    # 1.5 us of work for every 5 us of launching, and a wait at the end of each step.
    assert fact(d, "launch.idle_ratio") == pytest.approx(0.70, abs=0.01)
    assert "The calling functions are not recorded" in evidence(d, "launch-bound")
    assert d.inputs[0].workload == "LLM decode"


def advice(d: Diagnosis, cause: str) -> set[str]:
    return {r.id for f in d.findings if f.cause == cause for r in f.recommendations}


@pytest.mark.parametrize(("call", "slow"), [(4, False), (15, True)])
def test_a_host_that_is_slow_at_launching_is_told_to_pin(tmp_path: Path, call: float, slow: bool) -> None:
    d = diagnosed(launch_bound(call=call), tmp_path)
    assert ("bind-to-numa-node" in advice(d, "launch-bound")) is slow
    found = [f for f in d.findings if f.cause == "slow-host"]
    assert bool(found) is slow
    assert fact(d, "launch.call_p10_ns") == call * 1_000
    for one in found:
        assert one.gain is not None
        assert one.gain.speedup is not None
        # The step is launching alone: it becomes shorter by no more than the calls do.
        assert 1.2 < one.gain.speedup.low < one.gain.speedup.mid < call / 4.5
        assert one.rank > 1


def test_calls_that_wait_in_a_full_queue_are_no_slow_host(tmp_path: Path) -> None:
    m = Machine(queue=20)
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(22, [(GEMM, 30)])
    assert "slow-host" not in ranked(diagnosed(m, tmp_path))


def test_graphs_that_leave_some_steps_out(tmp_path: Path) -> None:
    """Decode is replayed; one step in four is launched one by one. Without the wait at the end of each step
    those launches would hide behind the replays: the waits come first, and their estimate holds that."""

    def made(waits: bool) -> Machine:
        m = Machine()
        for i in range(16):
            with m.step(f"decode_step {i}"):
                if i % 4 == 3:
                    m.layers(22, SHORT)
                else:
                    m.replay(22)
                if waits:
                    m.wait()
        return m

    m = made(waits=True)
    d = diagnosed(m, tmp_path)
    expect(d, "blocking-sync", "launch-bound")
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.speedup is not None
    assert gain.speedup.low <= m.gpu_free / made(waits=False).gpu_free <= gain.speedup.high
    assert 0 < fact(d, "launch.eager_kernel_ratio") < 0.5
    assert "graph-what-is-left" in advice(d, "launch-bound")
    assert "enable-cuda-graphs" not in advice(d, "launch-bound")
    (tmp_path / "eager").mkdir()
    eager = advice(diagnosed(launch_bound(), tmp_path / "eager"), "launch-bound")
    assert "graph-what-is-left" not in eager
    assert "enable-cuda-graphs" in eager


def test_launches_are_traced_to_the_functions_that_make_them(tmp_path: Path) -> None:
    """A stack is recorded at the slower calls, fewer than half of all."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for k, (kernel, us) in enumerate(SHORT * 22):
                stacked = k % 5 < 2
                m.launch(kernel, us, call=8 if stacked else 4, callchain=1 if stacked else None)
            m.wait()
    m.export.callchain(
        1,
        [
            ("cudaLaunchKernel", "/opt/cuda/libcudart.so.12"),
            ("Decoder::layer(int)", "/app/serve"),
            ("main", "/app/serve"),
        ],
    )
    found = next(f for f in diagnosed(m, tmp_path).findings if f.cause == "launch-bound")
    table = found.evidence[0]
    assert table.title == "Where the launch calls come from, by CUDA backtraces, share of their time"
    per_step = sum(k % 5 < 2 for k in range(22 * len(SHORT)))
    row = ("main > Decoder::layer", "cudaLaunchKernel", 11 * per_step, float(per_step))
    assert table.rows[0][:4] == row


def test_replayed_graphs_are_healthy(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
    d = diagnosed(m, tmp_path)
    assert ranked(d) == []
    assert alarms(d) == []
    assert not HOST_SIDE & {f.cause for f in d.findings}
    assert fact(d, "budget.busy_ratio") == pytest.approx(0.94, abs=0.01)
    assert {"UTL100", "LCH104", "HST101"} <= {h.code for h in d.healthy}


def test_gaps_between_the_nodes_of_a_graph_are_not_the_program_s(tmp_path: Path) -> None:
    """Replays back to back, their nodes as far apart as they are long: half of the window idle."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, SHORT, between=1.5)
    d = diagnosed(m, tmp_path)
    assert fact(d, "budget.graph_internal_ratio") == pytest.approx(0.5, abs=0.05)
    assert fact(d, "budget.waiting_ratio") == pytest.approx(0, abs=0.05)
    assert alarms(d) == []
    assert not HOST_SIDE & {f.cause for f in d.findings}


def test_what_tracing_adds_to_graph_launches_is_not_the_program_s(tmp_path: Path) -> None:
    """A step waits for its result, so that the stretched launch of the next one shows as idle."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, call=270)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "budget.idle_ratio") > 0.2
    assert fact(d, "budget.waiting_ratio") < 0.15
    assert not {"gpu-idle", "launch-bound"} & {f.cause for f in d.findings}


def test_a_wait_behind_every_replay_is_no_alarm(tmp_path: Path) -> None:
    """Each step then pays for one untraced graph launch, 70 us of 1,000."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert alarms(d) == []
    assert fact(d, "budget.graph_launch_call_ratio") == pytest.approx(0.07, abs=0.01)


def test_launch_calls_that_wait_for_a_full_queue_are_healthy(tmp_path: Path) -> None:
    m = Machine(queue=128)
    layer = [
        (NORM, 30),
        (GEMM, 400),
        (PREFILL_ATTENTION, 200),
        (GEMM, 300),
        (NORM, 30),
        (GEMM, 900),
        (SILU, 40),
        (GEMM, 500),
    ]
    for i in range(8):
        with m.step(f"prefill {i}"):
            m.layers(16, layer)
    d = diagnosed(m, tmp_path)
    expect(d, "compute-bound", never=HOST_SIDE)
    assert fact(d, "launch.call_time_ratio") > 0.9  # type: ignore[operator]
    assert "launch-back-pressure" in {h.cause for h in d.observed}


@pytest.mark.parametrize("pause", [300, 20])
def test_graphs_recorded_as_blocks(tmp_path: Path, pause: int) -> None:
    """GRAPH_TRACE rows prove the idle time between runs: 300 us of host code and some 60 us of
    launching beside 760 us of work is said, 20 us is not. What runs inside them is not known."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, mode="graph")
            m.wait()
        m.work(pause)
    d = diagnosed(m, tmp_path)
    top = ["host-gap"] if pause > 100 else ["opaque-cuda-graphs"]
    expect(d, *top, also=("opaque-cuda-graphs",), never=("launch-bound",))
    opaque = next(f for f in d.findings if f.cause == "opaque-cuda-graphs")
    assert (opaque.severity, opaque.invalidates) == ("medium", False)
    assert "idle time between runs is judged" in opaque.message
    assert ("host-gap" in ranked(d)) == (pause > 100)


def test_graphs_of_which_nothing_is_recorded(tmp_path: Path) -> None:
    """No row of any kind: no idle time may be judged."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, mode="graph")
            m.wait()
        m.work(300)
    m.export.without_tables("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    d = diagnosed(m, tmp_path)
    expect(d, "opaque-cuda-graphs", never=("host-gap", "launch-bound", "graph-replay-gaps"))
    assert next(f for f in d.findings if f.cause == "opaque-cuda-graphs").invalidates


def test_replays_that_wait_for_the_host(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
            m.work(600)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap", never=("launch-bound", "blocking-sync"))
    assert {o.cause for o in d.overruled} == {"graph-replay-gaps"}


def test_no_kernel_at_all_came_of_the_launches(tmp_path: Path) -> None:
    """They are lost: that there was no GPU work is what this capture shows, not what happened."""
    m = Machine()
    for _ in range(8):
        m.call("cudaLaunchKernel_v7000", 10)
    m.wait("cudaDeviceSynchronize_v3020")
    d = diagnosed(m, tmp_path)
    expect(d, "damaged-capture", never=("no-gpu-activity",), damaged=True)
    assert fact(d, "capture.launch_without_kernel_ratio", None) == 1.0


def test_errors_are_why_there_is_no_work_if_all_launches_fail(tmp_path: Path) -> None:
    m = Machine()
    for _ in range(40):
        m.call("cudaLaunchKernel_v7000", 4, result=98)
    d = diagnosed(m, tmp_path)
    expect(d, "cuda-errors", "no-gpu-activity", damaged=True)
    assert severity(d, "cuda-errors") == "high"


def test_launches_that_failed_are_errors_and_no_damage(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            for _ in range(3):
                m.call("cudaLaunchKernel_v7000", 4, result=98)
    d = diagnosed(m, tmp_path)
    expect(d, "cuda-errors")
    assert fact(d, "capture.error_call_count", None) == 36
    assert fact(d, "capture.error_launch_ratio", None) == 36 / 48
    assert severity(d, "cuda-errors") == "high"


def test_grids_that_change_with_the_context(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.layers(1, [(NORM, 1.5), (GEMV, 1.5)])
                m.launch(DECODE_ATTENTION, 1.5, grid=(FULL + 8 * i, 1, 1))
                m.launch(ADD, 1.5)
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "launch-bound", also=("dynamic-shapes",))
    assert fact(d, "kernel.varying_shape_ratio") == pytest.approx(0.25)
    assert evidence(d, "dynamic-shapes") == [
        "Kernels whose launch shape changes between steps, share of the kernel time"
    ]


def test_grids_that_change_cost_a_busy_gpu_nothing(tmp_path: Path) -> None:
    """Kernels of 100 us hide their launches: graphs would win nothing, whatever shapes change."""
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            for j in range(16):
                m.launch(Kernel("void solve(float*, int)", FULL + 8 * i), 100, grid=(FULL + 8 * i + j, 1, 1))
    d = diagnosed(m, tmp_path)
    assert fact(d, "kernel.varying_shape_ratio") == pytest.approx(1.0)
    assert severity(d, "dynamic-shapes") == "info"


def test_two_processes_take_turns_on_a_gpu_that_is_never_idle(tmp_path: Path) -> None:
    """Steps of 2 ms of work; every other one waits for the slice of the other process to end."""
    export = Export().gpu()
    machines = [Machine(export, pid=pid) for pid in (100, 200)]
    for _ in range(12):
        for m, other in (machines, machines[::-1]):
            m.hold_until(other.gpu_free)
            m.launch(GEMM, 1_000)
            m.launch(GEMM, 1_000)
    d = diagnosed(export, tmp_path)
    assert fact(d, "budget.queued_ratio") == pytest.approx(0, abs=0.01)
    assert fact(d, "launch.process_wait_ratio") == pytest.approx(0.97, abs=0.03)
    expect(d, "shared-gpu")


def test_two_processes_take_turns(tmp_path: Path) -> None:
    """Without MPS each runs in slices of 1 ms; in the other's slice its queued work waits."""
    export = Export().gpu()
    for turn, pid in enumerate((100, 200)):
        m = Machine(export, pid=pid)
        for i in range(12):
            m.hold_until((2 * i + turn) * 1_000)
            with m.step(f"decode_step {i}"):
                m.layers(18)
            m.wait()
    d = diagnosed(export, tmp_path)
    expect(d, "shared-gpu", never=("launch-bound", "host-gap", *SYNCS))
    assert fact(d, "budget.queued_ratio") == pytest.approx(0.25, abs=0.1)
    assert fact(d, "launch.process_count") == 2
    assert fact(d, "launch.process_overlap_ratio") == 0.0
    assert "launch-queue-latency" in explained(d, "shared-gpu")
    assert "multi-process-service" in advice(d, "shared-gpu")


@pytest.mark.parametrize(
    ("behind", "first"), [(True, "no-host-functions"), (False, "check-stream-dependencies")]
)
def test_host_functions_hold_up_the_stream_behind_them(tmp_path: Path, behind: bool, first: str) -> None:
    """After each of three graphs a host function runs for 0.3 ms; or something else holds the device
    then, and the functions come at the end of the step."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(3):
                m.replay(8)
                if behind:
                    m.call("cudaLaunchHostFunc_v10000", 4)
                m.hold_until(m.gpu_free + 300)
            m.replay(8)
            if not behind:
                m.call("cudaLaunchHostFunc_v10000", 4)
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "launch-queue-latency", never=("launch-bound", "host-gap", *SYNCS))
    assert fact(d, "launch.behind_function_ratio") == (1.0 if behind else 0.0)
    assert d.findings[0].recommendations[0].id == first


def test_two_processes_side_by_side_are_told(tmp_path: Path) -> None:
    """Under MPS the kernels of both run at once, all of the time: what they take alone is not known."""
    export = Export().gpu()
    for pid in (100, 200):
        m = Machine(export, pid=pid)
        for i in range(12):
            m.hold_until(2_000 * i)
            with m.step(f"decode_step {i}"):
                m.layers(18)
            m.wait()
    d = diagnosed(export, tmp_path)
    assert fact(d, "launch.process_overlap_ratio") == pytest.approx(1.0, abs=0.05)
    assert severity(d, "shared-gpu") == "low"
    assert "multi-process-service" not in advice(d, "shared-gpu")
    assert "gpu-for-each" in advice(d, "shared-gpu")


@pytest.mark.parametrize("user", [None, 300], ids=["of another user", "of this user"])
def test_a_process_outside_the_capture_has_the_gpu_every_other_millisecond(
    tmp_path: Path, user: int | None
) -> None:
    m = Machine(Export().gpu(), pid=100)
    for i in range(12):
        m.export.gpu_turn(2_000_000 * i, 1_000_000, 0 if user is None else 9, user)
        m.export.gpu_turn(2_000_000 * i + 1_000_000, 1_000_000, 4, 100)
        m.hold_until(2_000 * i + 1_000)
        with m.step(f"decode_step {i}"):
            m.layers(18)
        m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "launch-queue-latency", never=("launch-bound", "host-gap", "shared-gpu", *SYNCS))
    assert fact(d, "launch.held_by_others_ratio") == pytest.approx(0.4, abs=0.1)
    assert "gpu-held-by-others" in explained(d, "launch-queue-latency")
    assert "multi-process-service" in advice(d, "launch-queue-latency")


def test_contexts_of_the_capture_hold_the_gpu_for_nobody_else(tmp_path: Path) -> None:
    m = Machine(Export().gpu(), pid=100)
    m.export.gpu_turn(0, 60_000_000, 4, 100)
    for i in range(12):
        m.hold_until(2_000 * i + 1_000)
        with m.step(f"decode_step {i}"):
            m.layers(18)
        m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "launch.held_by_others_ratio") == 0
    assert "gpu-held-by-others" not in {*ranked(d), *explained(d, "launch-queue-latency")}


@pytest.mark.parametrize(("kernel", "offered"), [("triton_poi_fused_add_mul_0", True), (ADD.name, False)])
def test_a_compiled_model_is_offered_what_tunes_it(tmp_path: Path, kernel: str, offered: bool) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, [(GEMV, 2), *[(Kernel(kernel), 2)] * 4])
    d = diagnosed(m, tmp_path)
    (found,) = (f for f in d.findings if f.cause == "unfused-elementwise")
    assert ("inductor-knobs" in {a.action for a in found.alternatives}) is offered


def test_who_captures_graphs_hears_of_fixed_addresses(tmp_path: Path) -> None:
    (found,) = (f for f in diagnosed(launch_bound(), tmp_path).findings if f.cause == "launch-bound")
    assert "graph-fixed-addresses" in {a.action for a in found.alternatives}


def test_waits_behind_graphs_of_which_nothing_is_recorded(tmp_path: Path) -> None:
    """The device may be busy all the time: neither idle time nor the one kernel beside each graph
    says that results are read back too often."""
    m = Machine()
    m.export.traced("Cuda", graph_mode="Graph")
    for _ in range(40):
        m.call("cudaGraphLaunch_v10000", 70)
        m.hold_until(m.now + 1_200)
        m.launch(NORM, 8)
        m.read_back()
        m.work(100)
    d = diagnosed(m, tmp_path)
    expect(d, "opaque-cuda-graphs", never=("readback-per-layer", "blocking-sync", "host-gap", "launch-bound"))
    assert ranked(d) == ["opaque-cuda-graphs"]


@pytest.mark.parametrize("anew", [True, False])
def test_graphs_built_in_every_step(tmp_path: Path, anew: bool) -> None:
    """A graph is captured and instantiated, or updated, before each replay: 2 ms beside 1.1 ms of kernels."""
    m = Machine()
    for _ in range(20):
        if anew:
            m.call("cudaStreamBeginCapture_v10000", 10)
            m.work(400)
            m.call("cudaStreamEndCapture_v10000", 30)
            m.call("cudaGraphInstantiateWithFlags_v11040", 1_500)
        else:
            m.call("cudaGraphExecUpdate_v12000", 2_000)
        m.replay(28)
        m.read_back()
    d = diagnosed(m, tmp_path)
    expect(d, "graph-rebuilds", never=("graph-replay-gaps", "host-gap", "launch-bound", "damaged-capture"))
    found = d.findings[0]
    assert (found.severity, found.recommendations[0].id) == ("high", "reuse-graphs")
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(1.2, rel=0.1)


#: Small kernels that prepare a batch for its graph.
METADATA = (
    Kernel("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<long>>(int)", 1),
    Kernel("void at_cuda_detail::cub::detail::scan::DeviceScanKernel<int>(int*)", 1),
    Kernel("clamp_position_kernel(long*, long)", 1),
)


def prepared(us: float, steps: int = 12, ranges: bool = True, kernel: Kernel | None = None) -> Machine:
    """Before its graph each step launches twelve small kernels, or those of a draft, with `us` of host code
    between them."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}") if ranges else nullcontext():
            for k in range(12):
                m.launch(kernel or METADATA[k % 3], 2)
                m.work(us / 12)
            m.replay(28)
            m.read_back()
    return m


@pytest.mark.parametrize(("us", "graded"), [(100, "low"), (200, "medium"), (800, "high")])
@pytest.mark.parametrize("steps", [2, 12])
def test_what_prepares_a_batch_outside_its_graph_has_one_name(
    tmp_path: Path, us: float, graded: str, steps: int
) -> None:
    """No cliff between nothing, CUDA graphs and compiling: the graph is there, and its batch is prepared
    ahead of it, also where a single step was recorded."""
    d = diagnosed(prepared(us, steps), tmp_path)
    expect(d, "graph-replay-gaps", never=("launch-bound", "gpu-idle", "host-gap", "damaged-capture"))
    assert severity(d, "graph-replay-gaps") == graded
    assert fact(d, "graph.preparation_ratio") == pytest.approx(0.97, abs=0.05)
    found = d.findings[0]
    assert found.recommendations[0].id == "graph-what-is-left"
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(1.28, rel=0.05)


@pytest.mark.parametrize("steps", [1, 2, 12])
def test_what_prepares_a_batch_without_ranges(tmp_path: Path, steps: int) -> None:
    """Also of one step alone, whose graph has none before it."""
    d = diagnosed(prepared(400, steps, ranges=False), tmp_path)
    expect(d, "graph-replay-gaps", never=("launch-bound", "gpu-idle", "host-gap"))


def test_a_draft_before_the_graph_is_launched_one_by_one(tmp_path: Path) -> None:
    """Products before the replay are a model, not the preparation of a batch."""
    d = diagnosed(prepared(800, kernel=GEMV), tmp_path)
    expect(d, "launch-bound", never=("graph-replay-gaps",))
    assert fact(d, "graph.preparation_ratio") is None


def beside_graphs(kernel_us: float, between: float, graph: int) -> Machine:
    """A graph of so many kernels, then as long ones that the host launches one by one."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            if graph:
                m.replay(graph, [(GEMM, kernel_us)])
                m.wait()
            for k in range(40):
                m.launch(GEMM if k % 2 else NORM, kernel_us)
                m.work(between)
            m.read_back()
    return m


@pytest.mark.parametrize(
    ("kernel_us", "between", "cause"),
    [(3, 20, "launch-bound"), (30, 60, "launch-gaps"), (60, 69, "gpu-idle")],
)
@pytest.mark.parametrize("graph", [0, 6])
def test_where_graphs_are_replayed_the_rest_is_captured_not_compiled(
    tmp_path: Path, kernel_us: float, between: float, cause: str, graph: int
) -> None:
    d = diagnosed(beside_graphs(kernel_us, between, graph), tmp_path)
    assert cause in ranked(d)
    first = "graph-what-is-left" if graph else {"gpu-idle": "compile-model"}.get(cause, "enable-cuda-graphs")
    assert next(f for f in d.findings if f.cause == cause).recommendations[0].id == first
    assert ("compile-model" in advice(d, cause)) is not bool(graph)


def test_preparation_beside_the_graph_of_the_step_before(tmp_path: Path) -> None:
    """The host is a step ahead: what it prepares costs the GPU nothing."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for k in range(12):
                m.launch(METADATA[k % 3], 2)
                m.work(30)
            m.replay(28)
    m.wait()
    d = diagnosed(m, tmp_path)
    assert {"graph-replay-gaps", "launch-bound", "host-gap"}.isdisjoint(ranked(d))


def captured_at(steps: set[int], count: int = 24) -> Machine:
    """Decode steps of 6 ms; before some of them a graph is captured, instantiated and uploaded: 17 ms."""
    m = Machine()
    for i in range(count):
        with m.step(f"decode_step {i}"):
            if i in steps:
                m.call("cudaStreamBeginCapture_v10000", 3)
                m.work(9_000)
                m.call("cudaStreamEndCapture_v10000", 350)
                m.call("cudaGraphInstantiateWithFlags_v11040", 6_800)
                m.call("cudaGraphUpload_v11010", 300)
            m.replay(28, [(kernel, 5 * us) for kernel, us in DECODE_LAYER])
            m.read_back()
    return m


@pytest.mark.parametrize("every", [3, 4, 6])
def test_graphs_captured_again_every_few_steps_are_no_startup(tmp_path: Path, every: int) -> None:
    """One cause, one finding: steps that capture are slow, and are no start-up, as they come back."""
    d = diagnosed(captured_at(set(range(3, 24, every))), tmp_path)
    expect(d, "graph-rebuilds", never=("startup-in-window", "step-outliers", "host-gap", "graph-replay-gaps"))
    assert severity(d, "graph-rebuilds") == "high"
    assert ranked(d) == ["graph-rebuilds"]


def test_graphs_captured_in_the_first_steps_are_startup(tmp_path: Path) -> None:
    d = diagnosed(captured_at({0, 1, 2}), tmp_path)
    assert "startup-in-window" in {f.cause for f in d.findings}
    assert "graph-rebuilds" not in {f.cause for f in d.findings}


@pytest.mark.parametrize("steps", [{0}, {0, 14}])
def test_a_graph_captured_once(tmp_path: Path, steps: set[int]) -> None:
    """Before the loop, and one more for a new size in the middle: nothing comes back."""
    d = diagnosed(captured_at(steps, 60), tmp_path)
    assert "graph-rebuilds" not in {f.cause for f in d.findings}


def warm_loop(steps: int = 40, cold: int = 1) -> Machine:
    """Steps of eight CuPy kernels of 8 us with a wait each; in the third step so many first launches of
    2.5 ms load a module."""
    m = Machine()
    for i in range(steps):
        with m.step(f"step {i}"):
            for k in range(8):
                m.launch(Kernel(f"cupy_multiply__float32_float32_{k % 4}"), 8)
                m.wait()
            for k in range(cold if i == 2 else 0):
                m.launch(Kernel(f"cupy_sum_{k}"), 8, call=2_500)
                m.wait()
    return m


def test_a_first_launch_in_a_warm_loop_is_no_startup_that_leads(tmp_path: Path) -> None:
    d = diagnosed(warm_loop(), tmp_path)
    assert fact(d, "startup.warm", None) is True
    assert float(str(fact(d, "capture.startup_ratio", None))) > 0.2
    assert "startup-in-window" not in {f.cause for f in d.findings}
    assert d.findings[0].severity in ("medium", "high")
    (part,) = (p for b in d.budget for p in b.parts if p.part == "startup")
    assert part.ms == pytest.approx(2.5, abs=0.1)


def test_a_first_launch_beside_few_steps_is_startup(tmp_path: Path) -> None:
    d = diagnosed(warm_loop(5), tmp_path)
    assert d.findings[0].cause == "startup-in-window"


def test_many_first_launches_are_startup(tmp_path: Path) -> None:
    d = diagnosed(warm_loop(cold=6), tmp_path)
    assert d.findings[0].cause == "startup-in-window"


def asked(call: str | None) -> Machine:
    """A graph a step, before which the host calls something that takes 450 us."""
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            if call:
                m.call(call, 450)
            m.replay(16, call=25)
            m.read_back()
    return m


@pytest.mark.parametrize("call", ["cudaMemGetInfo_v3020", "cudaGetDeviceProperties_v2_v12000"])
def test_a_call_that_issues_nothing_holds_up_each_step(call: str, tmp_path: Path) -> None:
    d = diagnosed(asked(call), tmp_path)
    (tmp_path / "twin").mkdir()
    made = diagnosed(asked(None), tmp_path / "twin").inputs[0].untraced_step_ms
    found = d.findings[0]
    assert (found.cause, found.severity) == ("costly-cuda-calls", "high")
    assert call.partition("_v")[0] in found.message
    assert not {"graph-replay-gaps", "host-gap", "launch-bound"} & set(ranked(d))
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert made is not None
    assert found.gain.step_after_ms.mid == pytest.approx(made.mid, rel=0.05)


def queried(queries: int) -> Machine:
    """60 products launched one by one, and so many queries of 2.5 us before each."""
    m = Machine()
    for i in range(15):
        with m.step(f"decode_step {i}"):
            for _ in range(60):
                for _ in range(queries):
                    m.call("cudaFuncGetAttributes_v3020", 2.5)
                m.launch(GEMM, 6)
            m.read_back()
    return m


def test_many_short_queries_before_each_launch(tmp_path: Path) -> None:
    """Each is short, and none lies in a host gap; without them launching alone costs."""
    d = diagnosed(queried(6), tmp_path)
    (tmp_path / "twin").mkdir()
    made = diagnosed(queried(0), tmp_path / "twin").inputs[0].untraced_step_ms
    expect(d, "costly-cuda-calls")
    found = d.findings[0]
    assert found.severity == "high"
    assert found.gain is not None
    after = found.gain.step_after_ms
    assert after is not None
    assert made is not None
    assert made.mid <= after.mid <= 1.25 * made.mid  # the host code between the queries stays


def partly_ahead(queued: int, waiting: int, bursts: int = 12) -> Export:
    """Twelve steps of launches every 10 us: behind each product of 60 us so many kernels of 2 us are queued
    by its end, one microsecond from one to the next, and for so many the device waits."""
    export, free, now = Export().gpu(name="NVIDIA H200").process(100), 0.0, 0.0
    for i in range(12):
        begin = now
        for _ in range(bursts):
            for k in range(1 + queued + waiting):
                start = max(now + 9, free + 1)
                us = 60 if k == 0 else 2
                export.call("cudaLaunchKernel_v7000", int(now * 1_000), 7_000)
                export.kernel(
                    int(start * 1_000), us * 1_000, (GEMM if k == 0 else NORM).name, grid=(FULL, 1, 1)
                )
                free, now = start + us, now + 10
            now = max(now, free - 2)
        export.call("cudaStreamSynchronize_v3020", int(now * 1_000), int((free + 5 - now) * 1_000))
        now = free + 10
        export.range(f"decode_step {i}", int(begin * 1_000), int(now * 1_000) - 1)
    return export


def number(found: Diagnosis, name: str) -> float:
    value = fact(found, name)
    assert isinstance(value, float)
    return value


def test_launches_hold_much_of_the_step_though_half_of_the_kernels_are_queued_in_time(tmp_path: Path) -> None:
    """A queue that is empty before two kernels in five, for a third of the step."""
    found = diagnosed(partly_ahead(queued=8, waiting=6), tmp_path)
    assert number(found, "launch.empty_queue_ratio") < 0.5
    assert number(found, "launch.idle_ratio") > 0.2
    expect(found, also=["launch-bound"])


def test_launches_that_hold_little_of_the_step_are_none_where_most_kernels_are_queued(tmp_path: Path) -> None:
    found = diagnosed(partly_ahead(queued=8, waiting=2), tmp_path)
    assert 0.1 <= number(found, "launch.idle_ratio") < 0.2
    expect(found, never=["launch-bound"])


def test_kernels_that_are_all_queued_in_time_wait_for_no_launch(tmp_path: Path) -> None:
    expect(diagnosed(partly_ahead(queued=6, waiting=0), tmp_path), never=["launch-bound", "queue-empty"])
