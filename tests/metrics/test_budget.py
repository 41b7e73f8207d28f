"""The exclusive budget: what each idle nanosecond is booked to, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.metrics import limits
from advisor.metrics.budgeted.budget import IDLE_PARTS, PARTS, DeviceBudget
from tests.builder import Export
from tests.metrics.support import analysis


def budget(export: Export, folder: Path, device: int = 0) -> DeviceBudget:
    return analysis(export, folder).budgets[device]


def parts(found: DeviceBudget) -> dict[str, int]:
    """The parts that hold anything; with the sum checked against the window."""
    assert sum(found.ns.values()) == found.window.length
    return {p: ns for p, ns in found.ns.items() if ns}


def two_launches(**second: int) -> Export:
    """A kernel at [10, 20) us, then one at [100, 110) us; the second launch as given."""
    return (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=10_000)
        .launch(kernel_start=100_000, kernel_dur=10_000, **second)
    )


def test_a_gap_is_split_at_the_launch_call_that_ends_it(tmp_path: Path) -> None:
    # [20, 90) us host code, [90, 97) us in the call, [97, 100) us until the kernel starts.
    found = budget(two_launches(at=90_000, dur=7_000), tmp_path)
    assert parts(found) == {
        "compute": 20_000,
        "host_between_launches": 70_000,
        "launch_call": 7_000,
        "launch_latency": 3_000,
    }


def test_work_that_was_queued_before_the_gap_is_not_the_hosts(tmp_path: Path) -> None:
    found = budget(two_launches(at=6_000, dur=5_000), tmp_path)
    assert parts(found) == {"compute": 20_000, "queued": 80_000}


@pytest.mark.parametrize(("returned", "part"), [(19_000, "launch_latency"), (18_000, "queued")])
def test_work_that_is_launched_as_the_one_ahead_ends_is_late(
    returned: int, part: str, tmp_path: Path
) -> None:
    """The kernel ahead ends at 20 us; starting takes 2 us from the end of the call."""
    found = budget(two_launches(at=returned - 5_000, dur=5_000), tmp_path)
    assert parts(found) == {"compute": 20_000, part: 80_000}


def test_a_launch_call_that_lasts_past_the_kernels_start(tmp_path: Path) -> None:
    found = budget(two_launches(at=90_000, dur=30_000), tmp_path)
    assert parts(found) == {"compute": 20_000, "host_between_launches": 70_000, "launch_call": 10_000}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cudaMalloc_v3020", "alloc"),
        ("cudaFree_v3020", "alloc"),
        ("cuMemAllocAsync", "alloc"),
        ("cudaStreamSynchronize_v3020", "sync"),
        ("cuStreamSynchronize", "sync"),
        ("cudaMemcpyAsync_v3020", "copy_call"),
        ("cudaEventRecord_v3020", "launch_call"),
    ],
)
def test_idle_inside_a_call_goes_to_what_the_call_does(tmp_path: Path, name: str, part: str) -> None:
    export = two_launches(at=95_000, dur=5_000).call(name, at=30_000, dur=20_000)
    found = parts(budget(export, tmp_path))
    assert found.get(part, 0) - (5_000 if part == "launch_call" else 0) >= 20_000


def test_the_refill_after_a_wait_belongs_to_the_wait(tmp_path: Path) -> None:
    # The wait covers [20, 40) us of the gap and the next call comes at 70 us.
    export = two_launches(at=70_000, dur=5_000).call("cudaStreamSynchronize", 15_000, 25_000)
    assert parts(budget(export, tmp_path)) == {
        "compute": 20_000,
        "sync": 20_000 + 30_000,
        "launch_call": 5_000,
        "launch_latency": 25_000,
    }


def test_host_code_long_after_a_wait_is_the_hosts_own(tmp_path: Path) -> None:
    late = 20_000 + 2 * limits.host.REFILL_NS + 50_000
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=10_000)
        .call("cudaStreamSynchronize", 15_000, 5_000)
        .launch(at=late, dur=5_000, kernel_start=late + 5_000, kernel_dur=10_000)
    )
    found = parts(budget(export, tmp_path))
    assert "sync" not in found
    assert found["host_gap"] == late - 20_000


def test_host_code_over_a_fifth_of_a_millisecond_is_a_gap_of_its_own(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=10_000)
        .launch(at=2_000_000, dur=5_000, kernel_start=2_005_000, kernel_dur=10_000)
    )
    assert parts(budget(export, tmp_path))["host_gap"] == 2_000_000 - 20_000


@pytest.mark.parametrize(("busy_until", "part"), [(100_000, "host_gap"), (20_000, "host_between_launches")])
def test_host_code_counts_whole_although_the_device_runs_on_for_its_first_part(
    busy_until: int, part: str, tmp_path: Path
) -> None:
    # The device waits 150 us, of 245 us or 165 us from call to call.
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=busy_until - 10_000)
        .launch(at=busy_until + 150_000, dur=5_000, kernel_start=busy_until + 155_000, kernel_dur=10_000)
    )
    found = parts(budget(export, tmp_path))
    assert found == {"compute": busy_until, part: 150_000, "launch_call": 5_000}


def test_garbage_collection_and_gil_take_precedence_over_calls(tmp_path: Path) -> None:
    export = (
        two_launches(at=95_000, dur=5_000)
        .call("cudaMalloc", at=30_000, dur=20_000)
        .range("Python GC", 25_000, 40_000)
        .range("Waiting for GIL", 60_000, 80_000)
    )
    found = parts(budget(export, tmp_path))
    assert found["gc"] == 15_000
    assert found["gil"] == 20_000
    assert found["alloc"] == 10_000


def test_operating_system_calls_explain_host_code_only(tmp_path: Path) -> None:
    export = (
        two_launches(at=80_000, dur=20_000)
        .osrt("poll", 30_000, 20_000)
        .osrt("pthread_mutex_lock", 85_000, 5_000)  # inside the launch call
    )
    found = parts(budget(export, tmp_path))
    assert found["os"] == 20_000
    assert found["launch_call"] == 20_000


def test_overhead_counts_only_where_the_device_is_idle(tmp_path: Path) -> None:
    export = two_launches(at=95_000, dur=5_000).overhead(12_000, 18_000)
    assert parts(budget(export, tmp_path))["profiler"] == 10_000


def test_node_tracing_of_a_graph_launch_is_the_profilers(tmp_path: Path) -> None:
    start = 50_000
    call = 600_000
    first = start + call - 10_000  # the first node starts before the call returns
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=30_000)
        .graph_launch(start, call, [("a", first, 10_000), ("b", first + 12_000, 10_000)])
    )
    inside = first - start
    assert parts(budget(export, tmp_path)) == {
        "compute": 50_000,
        "host_between_launches": start - 40_000,
        "graph_launch_call": limits.host.UNTRACED_GRAPH_LAUNCH_NS,
        "profiler": inside - limits.host.UNTRACED_GRAPH_LAUNCH_NS,
        "graph_internal": 2_000,
    }


def test_node_tracing_by_hardware_makes_no_launch_longer(tmp_path: Path) -> None:
    export = Export().process(1).launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=30_000)
    export.graph_launch(50_000, 600_000, [("a", 640_000, 10_000), ("b", 652_000, 10_000)])
    found = parts(budget(export.diagnostic("Hardware tracing used for CUDA tracing"), tmp_path))
    assert "profiler" not in found
    assert found["graph_launch_call"] == 590_000


def test_the_owner_of_a_gap_is_the_thread_that_ends_it(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=10_000)
        .call("cudaMalloc", at=30_000, dur=50_000)
        .thread(2)
        .launch(at=95_000, dur=5_000, kernel_start=100_000, kernel_dur=10_000)
    )
    found = parts(budget(export, tmp_path))
    assert "alloc" not in found
    assert found["host_between_launches"] == 75_000


def test_correlation_ids_repeat_between_processes(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=10_000)
        .process(2)
        .launch(at=90_000, dur=5_000, kernel_start=100_000, kernel_dur=10_000)
        .process(1)
        .launch(at=190_000, dur=5_000, kernel_start=200_000, kernel_dur=10_000)
    )
    assert parts(budget(export, tmp_path))["launch_latency"] == 10_000


def test_kernels_without_their_calls_leave_unknown_idle(tmp_path: Path) -> None:
    """A slice of a trace holds kernels whose launch lies outside of it."""
    export = two_launches(at=90_000, dur=5_000).kernel(200_000, 10_000, correlation=999_999)
    assert parts(budget(export, tmp_path))["unknown"] == 90_000


def test_copies_are_exposed_only_where_no_kernel_runs(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=50_000)
        .copy(6_000, 1_000, "HtoD", copy_start=40_000, copy_dur=60_000, stream=8)
        .copy(8_000, 1_000, "DtoH", copy_start=90_000, copy_dur=30_000, stream=9)
    )
    assert parts(budget(export, tmp_path)) == {"compute": 50_000, "htod": 40_000, "dtoh": 20_000}


def test_pages_of_unified_memory_and_the_fault_before_them(tmp_path: Path) -> None:
    # The kernel [10, 20) us; pages at [15, 25), [45, 50) and, after host code, at [1_000, 1_010).
    found = budget(
        Export()
        .process(1)
        .launch(at=0, dur=5_000, kernel_start=10_000, kernel_dur=10_000)
        .migration(15_000, 10_000)
        .migration(45_000, 5_000, "DtoH")
        .migration(1_000_000, 10_000, "DtoH"),
        tmp_path,
    )
    assert parts(found) == {
        "compute": 10_000,
        "migration": 20_000,
        "unified_memory": 20_000 + limits.host.FAULT_WAIT_NS,
        "host_gap": 950_000 - limits.host.FAULT_WAIT_NS,
    }


def test_communication_is_exposed_where_no_other_kernel_runs(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=1_000, kernel_start=10_000, kernel_dur=50_000)
        .launch(
            at=2_000,
            dur=1_000,
            kernel="ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
            kernel_start=40_000,
            kernel_dur=60_000,
            stream=8,
        )
    )
    assert parts(budget(export, tmp_path)) == {"compute": 50_000, "communication": 40_000}


def test_graph_runs_seen_as_one_block_are_busy(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .graph_launch(0, 20_000, [("a", 30_000, 100_000)], mode="graph")
        .graph_launch(25_000, 20_000, [("a", 140_000, 100_000)], mode="graph")
    )
    assert parts(budget(export, tmp_path)) == {"compute": 200_000, "queued": 10_000}


def test_each_device_has_a_budget_of_its_own(tmp_path: Path) -> None:
    export = (
        Export()
        .process(1)
        .launch(at=0, dur=1_000, kernel_start=10_000, kernel_dur=90_000, device=0)
        .launch(at=2_000, dur=1_000, kernel_start=10_000, kernel_dur=10_000, device=1)
        .launch(at=4_000, dur=1_000, kernel_start=90_000, kernel_dur=10_000, device=1)
    )
    both = analysis(export, tmp_path).budgets
    assert parts(both[0]) == {"compute": 90_000}
    assert parts(both[1]) == {"compute": 20_000, "queued": 70_000}


def test_parts_by_step_add_up_to_the_whole(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(4):
        at = i * 200_000
        export.range(f"iteration {i}", at, at + 100_000)
        for k in range(3):
            begin = at + 1_000 + k * 30_000
            export.launch(at=begin, dur=5_000, kernel_start=begin + 8_000, kernel_dur=10_000)
    a = analysis(export, tmp_path)
    found = a.budgets[0]
    assert a.step_count == 3
    assert found.by_step.sum(axis=0).tolist() == [float(found.ns[p]) for p in PARTS]
    busy = found.by_step[1:4, PARTS.index("compute")]
    assert busy.tolist() == [30_000.0] * 3
    assert sum(found.ns[p] for p in IDLE_PARTS) == found.window.length - 90_000
