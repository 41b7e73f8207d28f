"""A host that waits, allocates, collects garbage or works while the GPU idles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import Gain
from tests.builder import NO_ID, Export
from tests.kineto_builder import Profile
from tests.scenarios.machine import (
    ADD,
    DECODE_LAYER,
    GEMM,
    GEMV,
    NORM,
    PREFILL_ATTENTION,
    SILU,
    Kernel,
    Machine,
)
from tests.scenarios.support import alarms, diagnosed, evidence, expect, explained, fact, ranked, severity

SYNCS = ("blocking-sync", "device-wide-sync", "readback-per-layer", "implicit-sync", "sync-memset")
WAITS = ("python-gc", "gil-contention", "os-blocked", "host-gap")
ALLOCATION = ("allocation-churn", "allocation-stalls", "memory-growth")


def serve(body: Callable[[Machine, int], None], steps: int = 12) -> Machine:
    """Steps of one millisecond of replayed graph each, and then what the body adds."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            body(m, i)
    return m


def advice(d: Diagnosis, cause: str) -> set[str]:
    return {r.id for f in d.findings if f.cause == cause for r in f.recommendations}


def long(times: float) -> list[tuple[object, float]]:
    return [(kernel, times * us) for kernel, us in DECODE_LAYER]


def test_a_loop_without_a_fault_has_no_finding(tmp_path: Path) -> None:
    """The twin of the scenarios below."""
    d = diagnosed(serve(lambda m, _: m.wait()), tmp_path)
    assert ranked(d) == []
    assert not {*SYNCS, *WAITS, *ALLOCATION} & {f.cause for f in d.findings}


# ------------------------------------------------------------------------------- host code


@pytest.mark.parametrize("inside", [True, False])
def test_host_code_between_steps(tmp_path: Path, inside: bool) -> None:
    """Scheduling and detokenising, whether the range of the step holds it or not."""
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            m.layers(20)
            m.wait()
            if inside:
                m.work(1_500)
        if not inside:
            m.work(1_500)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap", never=("launch-bound", *SYNCS))
    assert fact(d, "host.gap_ratio") == pytest.approx(1_500 / 2_400, abs=0.05)
    assert fact(d, "host.gap_max_ms") == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize(
    ("scheduling_us", "name", "after_ms"),
    [
        (2_000, "schedule", 2.0),  # the host sets the pace then
        (600, "schedule", 1.0),  # the GPU does
        (2_000, None, 1.0),  # nothing says that code without a name is needed in every step
    ],
)
def test_named_work_of_the_engine_moves_beside_the_gpu_and_takes_its_time_there(
    tmp_path: Path, scheduling_us: float, name: str | None, after_ms: float
) -> None:
    """A replay of 1 ms, then scheduling: ahead of the GPU, a step takes the longer of both."""

    def body(m: Machine, _: int) -> None:
        m.wait()
        m.work(scheduling_us, name)

    d = diagnosed(serve(body), tmp_path)
    (gap,) = [f for f in d.findings if f.cause in ("host-gap", "input-preparation") and f.severity != "info"]
    assert gap.gain is not None
    assert gap.gain.step_after_ms is not None
    assert gap.gain.step_after_ms.mid == pytest.approx(after_ms, rel=0.1)
    assert fact(d, "host.gap_over_busy") == pytest.approx(scheduling_us / 860, rel=0.05)
    shorten = {"shorten-host-work", "vectorise-preparation"}
    assert (gap.recommendations[0].id in shorten) == (scheduling_us > 1_000)


@pytest.mark.parametrize("pieces", [1, 24])
def test_host_code_between_the_launches_of_a_pass_is_no_work_to_schedule_ahead(
    tmp_path: Path, pieces: int
) -> None:
    """12 ms of Python in one piece between two steps, or before each of 24 layers."""
    m = Machine()
    m.export.range("aten::linear", 0, 1_000)
    for i in range(20):
        with m.step(f"decode_step {i}"):
            for layer in range(24):
                if layer % (24 // pieces) == 0:
                    m.work(12_000 / pieces)
                m.layers(1, call=3)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap")
    (gap,) = [f for f in d.findings if f.cause == "host-gap"]
    ahead, graphs = ("async-scheduling", "enable-cuda-graphs")
    ids = [r.id for r in gap.recommendations]
    assert (ahead in ids, graphs in ids) == ((True, False) if pieces == 1 else (False, True))


def test_garbage_collection(tmp_path: Path) -> None:
    def body(m: Machine, i: int) -> None:
        m.wait()
        if i % 4 == 2:
            m.work(900, "Python GC")

    d = diagnosed(serve(body, 24), tmp_path)
    expect(d, "python-gc", never=("host-gap", "gil-contention"))
    assert fact(d, "host.gc_max_ns") == 900_000
    assert severity(d, "python-gc") in ("medium", "high")
    (table,) = (
        e
        for f in d.findings
        if f.cause == "python-gc"
        for e in f.evidence
        if e.title == "Longest garbage collections"
    )
    assert [row[1] for row in table.rows] == [0.9] * len(table.rows)
    assert len(table.rows) in (5, 6)  # the first step is left out


def test_garbage_collection_beside_a_busy_gpu_costs_nothing(tmp_path: Path) -> None:
    d = diagnosed(serve(lambda m, _: m.work(400, "Python GC")), tmp_path)
    assert ranked(d) == []
    assert fact(d, "host.gc_max_ns") == 400_000


def test_each_fix_of_a_blocked_thread_has_the_gain_of_its_own_calls(tmp_path: Path) -> None:
    """Beside a replay of 0.86 ms a step, 0.9 ms in `read` and 0.3 ms for a lock."""

    def body(m: Machine, _: int) -> None:
        m.wait()
        m.blocked(300, "pthread_mutex_lock")
        m.blocked(900, "read")

    d = diagnosed(serve(body), tmp_path)
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert [r.id for r in found.recommendations] == ["move-io-off-loop", "shorten-locks"]
    first, second = (r.gain for r in found.recommendations)
    assert found.gain is not None
    assert (found.gain.step_after_ms, found.gain.params["calls"]) == (first and first.step_after_ms, "io")
    assert first is not None
    assert second is not None
    before, after, without_lock = (
        g and g.mid for g in (first.step_before_ms, first.step_after_ms, second.step_after_ms)
    )
    assert before is not None
    assert after == pytest.approx(before - 0.9, abs=0.05)
    assert without_lock == pytest.approx(before - 0.3, abs=0.05)


def test_waiting_for_the_gil(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.work(250, "Waiting for GIL")
        m.work(30, "Holding GIL")

    d = diagnosed(serve(body), tmp_path)
    expect(d, "gil-contention", never=("host-gap", "python-gc"))
    assert fact(d, "host.gil_wait_ratio") == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(("name", "shown"), [("detokenizer", "detokenizer (77)"), (None, 77)])
def test_who_holds_the_gil_meanwhile(name: str | None, shown: str | int, tmp_path: Path) -> None:
    """The launching thread waits 250 us a step; another thread holds the lock for 200 of them."""

    def body(m: Machine, step: int) -> None:
        m.wait()
        at = round(m.now * 1e3)
        m.export.thread(77, None if step else name).range("Holding GIL", at + 50_000, at + 250_000)
        m.export.thread(m.export.pid)
        m.work(250, "Waiting for GIL")

    d = diagnosed(serve(body), tmp_path)
    (table,) = (
        e
        for f in d.findings
        if f.cause == "gil-contention"
        for e in f.evidence
        if e.title.startswith("Who holds the GIL")
    )
    assert len(table.rows) == 1
    assert table.rows[0][0] == shown
    assert table.rows[0][2] == pytest.approx(0.8, abs=0.01)


def test_blocked_in_the_operating_system(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.blocked(250, "pthread_cond_wait")

    d = diagnosed(serve(body), tmp_path)
    expect(d, "os-blocked", never=("host-gap", "gil-contention"))
    assert fact(d, "host.os_idle_ratio") == pytest.approx(0.2, abs=0.03)


def test_waiting_for_events_promises_nothing(tmp_path: Path) -> None:
    """0.25 ms of epoll_wait between steps, and 0.05 ms on a lock: there may have been no request."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
        m.blocked(250, "epoll_wait")
        m.blocked(50, "pthread_mutex_lock")
    d = diagnosed(m, tmp_path)
    assert fact(d, "host.os_call") == "epoll_wait"
    assert fact(d, "host.os_call_ratio") == pytest.approx(250 / 300, abs=0.01)
    assert fact(d, "host.os_event_wait_ratio") == pytest.approx(250 / 300, abs=0.01)
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert "83.3 % of it in epoll_wait" in found.message
    assert found.recommendations[0].id == "capture-under-load"
    assert found.severity in ("low", "medium")
    assert found.gain is None or found.gain.speedup is None


def test_waiting_for_a_lock_wins_its_time(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.blocked(250, "pthread_mutex_lock")

    d = diagnosed(serve(body), tmp_path)
    expect(d, "os-blocked")
    assert fact(d, "host.os_event_wait_ratio") == 0.0
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert [r.id for r in found.recommendations] == ["shorten-locks"]
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.speedup.mid > 1.15


@pytest.mark.parametrize(
    ("calls", "advice"),
    [
        ({"write": 250}, ["move-io-off-loop"]),
        ({"fsync": 150, "pthread_cond_wait": 100}, ["shorten-locks", "move-io-off-loop"]),
        ({"write": 220, "sem_wait": 30}, ["move-io-off-loop"]),
        ({"pthread_mutex_lock": 250}, ["shorten-locks"]),
    ],
)
def test_advice_is_about_the_calls_that_hold_the_time(
    tmp_path: Path, calls: dict[str, int], advice: list[str]
) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        for name, us in calls.items():
            m.blocked(us, name)

    d = diagnosed(serve(body), tmp_path)
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert [r.id for r in found.recommendations] == advice
    whole = sum(calls.values())
    locks = sum(us for name, us in calls.items() if name.startswith(("pthread", "sem")))
    assert fact(d, "host.os_lock_ratio") == pytest.approx(locks / whole, abs=0.01)
    assert fact(d, "host.os_io_ratio") == pytest.approx(1 - locks / whole, abs=0.01)
    assert fact(d, "host.os_sleep_ratio") == 0


def test_a_thread_that_loses_its_cpu_between_steps(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.blocked(20, "poll")
        m.preempted(250)

    d = diagnosed(serve(body), tmp_path)
    expect(
        d, also=("cpu-contention",), never=("host-gap", "graph-replay-gaps", "os-blocked", "gil-contention")
    )
    assert fact(d, "host.off_cpu_of_gap_ratio") == pytest.approx(1, abs=0.02)
    assert fact(d, "host.off_cpu_idle_ratio") == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("state", [2, 3])
def test_a_thread_that_waits_off_its_cpu_asks_for_none(tmp_path: Path, state: int) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.blocked(20, "poll")
        m.export.cpu_switch(round(m.now * 1000), False, state=state)
        m.work(250)
        m.export.cpu_switch(round(m.now * 1000), True)

    d = diagnosed(serve(body), tmp_path)
    expect(d, also=("host-gap",), never=("cpu-contention",))
    assert fact(d, "host.off_cpu_idle_ratio") == 0


def test_a_thread_that_faults_on_pages_of_the_gpu_waits_for_them(tmp_path: Path) -> None:
    """0.25 ms off the CPU up to a migration: the driver moves pages that the host touches."""

    def body(m: Machine, _: int) -> None:
        m.wait()
        m.blocked(20, "poll")
        m.preempted(250)
        m.export.migration(round(m.now * 1000) - 5_000, 5_000, "DtoH")

    d = diagnosed(serve(body), tmp_path)
    assert "cpu-contention" not in ranked(d)
    (gap,) = [f for f in d.findings if f.cause == "host-gap"]
    assert gap.recommendations[0].id == "prefetch-unified-memory"
    assert fact(d, "host.off_cpu_idle_ratio") == pytest.approx(0, abs=0.01)


def test_a_loop_that_sleeps_until_its_input_comes_does_no_work(tmp_path: Path) -> None:
    """A camera gives a picture each 4 ms, and calls of the operating system are not recorded."""

    def body(m: Machine, _: int) -> None:
        m.wait()
        m.work(200)
        m.preempted(2_700)

    d = diagnosed(serve(body), tmp_path)
    assert fact(d, "host.gap_asleep_ratio") == pytest.approx(27 / 29, abs=0.02)
    assert "cpu-contention" not in ranked(d)
    (gap,) = [f for f in d.findings if f.cause == "host-gap"]
    assert gap.severity == "medium"
    assert gap.gain is not None
    assert gap.gain.speedup is not None
    assert gap.gain.speedup.low <= 1.0 < gap.gain.speedup.mid  # perhaps a picture comes no sooner
    assert "of it the thread is on no CPU" in gap.message
    assert gap.recommendations[0].id == "find-what-is-waited-for"


def test_a_loop_that_works_as_long_sleeps_for_nothing(tmp_path: Path) -> None:
    """The near miss: the thread had a CPU."""

    def body(m: Machine, _: int) -> None:
        m.wait()
        m.work(2_700)
        m.preempted(200)

    d = diagnosed(serve(body), tmp_path)
    (gap,) = [f for f in d.findings if f.cause == "host-gap"]
    assert "find-what-is-waited-for" not in {r.id for r in gap.recommendations}


def test_a_thread_that_gives_up_its_cpu_in_a_call_has_a_reason(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.export.cpu_switch(round(m.now * 1000), False)
        m.blocked(250, "pthread_cond_wait")
        m.export.cpu_switch(round(m.now * 1000), True)

    d = diagnosed(serve(body), tmp_path)
    expect(d, "os-blocked", never=("cpu-contention", "host-gap"))
    assert fact(d, "host.off_cpu_idle_ratio") == 0


# ------------------------------------------------------------------------------- waits


def test_a_flag_read_back_by_a_blocking_copy_after_every_kernel(tmp_path: Path) -> None:
    """A loop in C++ that asks the device whether to go on: no synchronize call, and pinned memory
    would leave the host waiting for the same four bytes."""
    m = Machine()
    for _ in range(300):
        m.launch(NORM, 10)
        m.copy("DtoH", 4 / 1024, "pageable", gb_per_s=0.01, api="cudaMemcpyFromSymbol_v3020", call=12)
    d = diagnosed(m, tmp_path)
    (found,) = [f for f in d.findings if f.cause == "readback-per-layer"]
    assert found.recommendations[0].id == "decide-on-device"
    assert fact(d, "sync.readback_idle_ratio") > 0.2
    assert fact(d, "sync.implicit_readback_ratio") == pytest.approx(1.0)
    assert "implicit-sync" not in ranked(d)


def test_a_device_wide_wait_after_every_step(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(4)
        m.wait("cudaDeviceSynchronize_v3020")
        m.work(80)
    d = diagnosed(m, tmp_path)
    expect(d, also=("blocking-sync",), never=("host-gap", "launch-bound", "device-wide-sync"))
    assert "device-wide-sync" in explained(d, "blocking-sync")
    assert fact(d, "sync.device_wide_per_step") == 1.0  # outside of the ranges, once a step
    assert fact(d, "sync.device_wide_idle_ratio") == fact(d, "sync.idle_after_ratio")
    assert "Synchronize and blocking calls, share of the window" in evidence(d, "blocking-sync")
    told = advice(d, "blocking-sync")
    assert {"drop-waits", "wait-for-event"} <= told
    assert not {"sample-on-device", "async-readback", "remove-host-readbacks"} & told  # nothing is read back


@pytest.mark.parametrize("device_wide", [True, False], ids=["device", "stream"])
def test_a_wait_that_lasts_until_an_upload_of_another_stream_ends(tmp_path: Path, device_wide: bool) -> None:
    """The token is read back while 300 us of weights are uploaded beside: waiting for it alone ends
    with the read-back."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.copy("HtoD", 14_648, stream=13)
            m.layers(4)
            m.copy("DtoH", 4 / 1024, "pinned")
            if device_wide:
                m.wait("cudaDeviceSynchronize_v3020", NO_ID)
            else:
                m.wait(stream=7)
    d = diagnosed(m, tmp_path)
    if device_wide:
        assert "waits-for-other-streams" in {
            *ranked(d),
            *(c for f in d.findings for c in explained(d, f.cause)),
        }
        assert fact(d, "sync.over_waited_stream") == 13
        assert fact(d, "sync.context_wait_streams") == 2
    else:
        assert fact(d, "sync.over_wait_ratio") == 0
        assert fact(d, "sync.waited_stream") == 7


def test_what_other_waits_cost_is_no_fault_of_device_wide_ones(tmp_path: Path) -> None:
    """The wait for another context, whose work is done, costs nothing: the device runs a long kernel."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(4)
        m.wait()
        m.work(80)
        m.launch(NORM, 400)
        m.call("cuCtxSynchronize", 5)
    d = diagnosed(m, tmp_path)
    assert (fact(d, "sync.device_wide_per_step"), fact(d, "sync.device_wide_idle_ratio")) == (1, 0)
    cost = fact(d, "sync.idle_after_ratio")
    assert isinstance(cost, float)
    assert cost > 0.01
    assert "device-wide-sync" not in {*ranked(d), *explained(d, "blocking-sync")}


def test_a_device_that_begins_late_is_no_fault_of_a_blocking_copy(tmp_path: Path) -> None:
    """Each kernel begins 15 ms after its launch; the host waits in the copy of its result meanwhile."""
    e = Export().gpu().process(1)
    for i in range(12):
        t = i * 16_000_000
        e.range(f"decode_step {i}", t, t + 15_900_000)
        e.launch(t, 10_000, NORM.name, t + 15_000_000, 500_000, grid=(NORM.blocks, 1, 1))
        e.copy(t + 20_000, 15_500_000, "DtoH", 256, "pageable", t + 15_510_000, 2_000)
    d = diagnosed(e, tmp_path)
    assert fact(d, "sync.implicit_calls_per_step") == 1
    assert fact(d, "sync.implicit_idle_ratio") == pytest.approx(0, abs=0.01)
    assert fact(d, "budget.queued_ratio") == pytest.approx(14.99 / 16, abs=0.05)
    expect(d, "launch-queue-latency", never=("implicit-sync", "launch-bound", "gpu-idle"))


def test_a_value_read_back_in_every_layer(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.layers(1, long(2))
                m.read_back()
                m.work(20, "check stop")
    d = diagnosed(m, tmp_path)
    expect(d, "blocking-sync", also=("tiny-copies",), never=("host-gap", "transfer-bound"))
    assert ("readback-per-layer", "SYN101") in {(o.cause, o.by) for o in d.overruled}
    assert fact(d, "sync.readbacks_per_step") == 22


def test_read_backs_that_the_gpu_hardly_notices(tmp_path: Path) -> None:
    """The same waits between layers of ten times the length cost 2 %."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.layers(1, long(16))
                m.read_back()
    d = diagnosed(m, tmp_path)
    assert ranked(d) == []
    assert severity(d, "readback-per-layer") == "info"


def test_buffers_cleared_synchronously(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                for half in (0, 4):
                    m.memset()
                    m.layers(1, long(4)[half : half + 4])
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "sync-memset", never=("launch-bound", "blocking-sync"))
    assert fact(d, "sync.memset_per_step") == 44
    # A memset starts when the kernels are done, returns 3 us after it has run, and the next call
    # comes 1 us later; the first of a step follows a wait and starts 2 us into its call.
    window = d.inputs[0].window_ms
    assert window is not None
    idle = fact(d, "sync.memset_idle_ratio")
    assert isinstance(idle, float)
    assert idle * window / 11 == pytest.approx((43 * 4 + 6) / 1_000, rel=0.01)


def test_synchronous_memsets_before_a_busy_gpu_are_no_alarm(tmp_path: Path) -> None:
    """The host spends most of the step in them, but what they wait for is useful work."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.memset()
                m.layers(1, long(8))
    d = diagnosed(m, tmp_path)
    assert fact(d, "sync.memset_time_ratio") > 0.8  # type: ignore[operator]
    assert alarms(d) == []


# ------------------------------------------------------------------------------- allocation


def test_allocation_in_every_layer(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(22):
                m.call("cudaMalloc_v3020", 60)
                m.layers(1)
                m.call("cudaFree_v3020", 90)
    d = diagnosed(m, tmp_path)
    expect(d, "allocation-churn", never=("launch-bound", "host-gap", "allocation-stalls"))
    assert fact(d, "alloc.calls_per_step") == 44
    assert ("implicit-sync", "ALC101") in {(o.cause, o.by) for o in d.overruled}


def test_one_slow_allocation_in_every_step(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.call("cudaMalloc_v3020", 400)

    d = diagnosed(serve(body), tmp_path)
    expect(d, "allocation-churn", never=("graph-replay-gaps", "host-gap", "allocation-stalls"))
    found = next(f for f in d.findings if f.cause == "allocation-churn")
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.speedup.mid > 1.2


def test_the_only_allocation_of_the_window_takes_long(tmp_path: Path) -> None:
    def body(m: Machine, i: int) -> None:
        m.wait()
        if i == 7:
            m.call("cudaMalloc_v3020", 5_000)

    d = diagnosed(stalled(body), tmp_path)
    expect(d, also=("allocation-stalls",), never=("allocation-churn", "host-gap"))


def test_waits_before_a_replay_are_no_gap_between_replays(tmp_path: Path) -> None:
    def body(m: Machine, _: int) -> None:
        m.wait()
        m.call("cudaStreamSynchronize_v3020", 300)

    d = diagnosed(serve(body), tmp_path)
    assert fact(d, "graph.replay_idle_ratio") < 0.1  # type: ignore[operator]
    assert fact(d, "budget.sync_ratio") > 0.15  # type: ignore[operator]
    assert "graph-replay-gaps" not in {f.cause for f in d.findings}


# ------------------------------------------------------------------------------- single pauses


def paused(pause: float, gap: float = 20) -> Machine:
    def body(m: Machine, i: int) -> None:
        m.wait()
        m.work(pause if i == 3 else gap)

    return serve(body, 16)


def test_one_long_pause_among_even_steps(tmp_path: Path) -> None:
    """Step 4 begins 31 ms late; nothing is wrong between the others."""
    d = diagnosed(paused(31_000), tmp_path)
    expect(d, "step-outliers", never=("host-gap",))
    found = next(f for f in d.findings if f.cause == "step-outliers")
    assert fact(d, "host.slowest_step") == 4
    assert fact(d, "host.slowest_step_lost_ms") == pytest.approx(31, abs=0.5)
    assert fact(d, "host.gap_ratio") < 0.05  # type: ignore[operator]
    assert d.steps[0].mean_ms == pytest.approx(1.04, abs=0.04)
    # Four steps of 1.04 ms have passed.
    assert str(fact(d, "host.slowest_step_at")) == "0.0040 s"
    assert "Step 4 lost 31 ms at 0.0040 s" in found.message


def test_one_pause_between_two_passes_promises_nothing(tmp_path: Path) -> None:
    """Nothing shows that it recurs; between four passes each gap does."""

    def pause(m: Machine, _: int) -> None:
        m.wait()
        m.work(740_000)

    found, gain = host_gap(serve(pause, 2), tmp_path)
    assert found.severity == "medium"
    assert "need not recur" in (gain.reason or "")
    (tmp_path / "four").mkdir()
    _, gain = host_gap(serve(pause, 4), tmp_path / "four")
    assert gain.speedup is not None


def host_gap(m: Machine, folder: Path) -> tuple[Finding, Gain]:
    (found,) = (f for f in diagnosed(m, folder).findings if f.cause == "host-gap")
    assert found.gain is not None
    return found, found.gain


def test_a_pause_beside_gaps_in_every_step_hides_none(tmp_path: Path) -> None:
    d = diagnosed(paused(31_000, 600), tmp_path)
    expect(d, "host-gap", also=("step-outliers",))


@pytest.mark.parametrize(
    ("slow", "cause"),
    [
        pytest.param(lambda m: m.work(1_500, "gc.collect"), "python-gc", id="garbage"),
        pytest.param(lambda m: m.blocked(1_500, "read"), "os-blocked", id="system"),
        pytest.param(lambda m: m.work(3_000), "host-gap", id="code"),
        pytest.param(lambda m: m.call("cudaMalloc_v3020", 1_500), "allocation-stalls", id="memory"),
        pytest.param(lambda m: m.copy("HtoD", 30_000, "pageable", gb_per_s=20), "transfer-bound", id="copy"),
    ],
)
def test_what_makes_every_eighth_step_slow_stands_for_the_slow_steps(
    tmp_path: Path, slow: Callable[[Machine], None], cause: str
) -> None:

    def body(m: Machine, i: int) -> None:
        if i % 8 == 3:
            slow(m)
        m.wait()

    d = diagnosed(serve(body, 60), tmp_path)
    expect(d, also=(cause,), never=("step-outliers",))
    assert "step-outliers" in {o.cause for o in d.overruled}


def test_prompts_that_no_range_marks_are_other_work(tmp_path: Path) -> None:
    def body(m: Machine, i: int) -> None:
        if i % 8 == 3:
            m.layers(20, [(PREFILL_ATTENTION, 30), (GEMM, 60)])
        m.wait()

    expect(diagnosed(serve(body, 60), tmp_path), also=("work-between-steps",), never=("step-outliers",))


def stalled(body: Callable[[Machine, int], None]) -> Machine:
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            m.layers(22)
            body(m, i)
    return m


def test_an_allocation_that_stalls_a_step(tmp_path: Path) -> None:
    def body(m: Machine, i: int) -> None:
        m.call("cudaMalloc_v3020", 5_000 if i == 7 else 20)
        m.wait()

    d = diagnosed(stalled(body), tmp_path)
    expect(d, "allocation-stalls", never=("allocation-churn", "host-gap", "step-outliers"))
    assert fact(d, "alloc.stall_max_ns") == 5_000_000


def test_an_allocation_that_is_slow_while_the_gpu_has_work(tmp_path: Path) -> None:
    """The queue holds more than the call takes."""

    def body(m: Machine, i: int) -> None:
        if i == 7:
            m.layers(1, long(200))
        m.call("cudaMalloc_v3020", 5_000 if i == 7 else 20)

    d = diagnosed(stalled(body), tmp_path)
    assert "allocation-stalls" in {f.cause for f in d.findings}
    assert alarms(d) == []
    assert fact(d, "alloc.stall_idle_ratio") == 0.0


def test_memory_that_grows(tmp_path: Path) -> None:
    """A gibibyte a step is kept; the other is given back."""

    def body(m: Machine, i: int) -> None:
        at = round(m.now * 1e3)
        m.export.alloc(at, 1 << 30, 0x10_0000_0000 + 2 * i)
        m.export.alloc(at + 100, 1 << 30, 0x10_0000_0001 + 2 * i)
        m.export.alloc(at + 200, 1 << 30, 0x10_0000_0001 + 2 * i, free=True)

    d = diagnosed(serve(body, 20), tmp_path)
    expect(d, also=("memory-growth",))
    # Levels after the steps are 2 to 20 GiB: 3.5 in the first quarter, 18.5 in the last.
    assert fact(d, "memory.growth_ratio") == pytest.approx((18.5 - 3.5) / 3.5, abs=0.3)
    assert fact(d, "memory.growth_bytes") == 15 << 30
    assert severity(d, "memory-growth") == "medium"
    assert fact(d, "memory.growth_device_ratio") == pytest.approx(15 / 140, rel=0.02)
    # The host issues a step in 71 us, and 21 of 140 GiB are in use.
    assert fact(d, "memory.full_in_ns") == pytest.approx(119 * 71e3, rel=0.02)


def test_memory_that_comes_and_goes_does_not_grow(tmp_path: Path) -> None:
    def body(m: Machine, i: int) -> None:
        at = round(m.now * 1e3)
        m.export.alloc(at, 1 << 30, 0x10_0000_0000 + i)
        m.export.alloc(at + 200, 1 << 30, 0x10_0000_0000 + i, free=True)

    d = diagnosed(serve(body, 20), tmp_path)
    expect(d, never=("memory-growth",))
    assert fact(d, "memory.growth_ratio") == 0.0


def loading(name: str) -> Machine:
    """Four milliseconds of host code in a range before one millisecond of kernels."""
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            m.work(4_000, name)
            m.replay(22)
            m.wait()
    return m


def test_a_data_loader_in_the_gap_is_named(tmp_path: Path) -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    d = diagnosed(loading(name), tmp_path)
    found = {f.cause: f for f in d.findings}
    assert "host-gap" in explained(d, "input-preparation")
    assert fact(d, "host.gap_range") == name
    assert fact(d, "host.data_loading_ratio") == pytest.approx(0.8, abs=0.05)
    assert severity(d, "input-preparation") == "high"
    (told,) = [s for s in found["input-preparation"].explains if s.cause == "host-gap"]
    assert name in told.message
    assert "data-loading-workers" in advice(d, "input-preparation")


@pytest.mark.parametrize(
    ("name", "schedules"), [("schedule: allocate_slots", True), ("prepare_inputs", False)]
)
def test_a_scheduler_is_not_told_to_use_array_operations(tmp_path: Path, name: str, schedules: bool) -> None:
    m = Machine()
    for _ in range(12):
        with m.step("execute_context_0(0)_generation_4(4)"):
            m.work(4_000, name)
            m.replay(22)
            m.read_back()
    d = diagnosed(m, tmp_path)
    expect(d, "input-preparation")
    assert fact(d, "host.scheduler_ratio") == (1 if schedules else 0)
    if schedules:
        assert fact(d, "host.scheduler_range") == name
    told = advice(d, "input-preparation")
    assert ("vectorise-preparation" in told) == (not schedules)


def test_the_loader_of_a_training_loop_is_named_although_autograd_launches_most(tmp_path: Path) -> None:
    """Thirty milliseconds in the loader, ten kernels forward, thirty backward from autograd's thread."""
    trace = Profile().gpu().process(10, 1)
    for i in range(6):
        t = i * 40_000_000
        trace.thread(1).annotation(f"ProfilerStep#{i}", t, 39_900_000)
        trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t + 1_000, 30_000_000)
        for k in range(40):
            trace.thread(1 if k < 10 else 2).launch(
                at=t + 30_100_000 + k * 200_000, kernel=f"sm90_xmma_gemm_bf16_{k}", kernel_dur=190_000
            )
    trace.write(path := tmp_path / "trace.json")
    d = advisor.diagnose(path)
    assert fact(d, "host.data_loading_ratio") == pytest.approx(0.75, abs=0.02)
    assert fact(d, "host.loading_gap_ratio") == pytest.approx(0.75, abs=0.02)
    assert "data-loading-workers" in advice(d, "input-preparation")
    assert d.headline is not None
    assert d.headline.cause == "input-preparation"


def beside_autograd(call: str, each_us: int, path: Path) -> Diagnosis:
    """Steps of 8 ms whose backward pass another thread launches, and twelve such calls of the main thread."""
    trace = Profile().gpu().process(10, 1)
    step = 8_000_000 + 12 * each_us * 1_000
    for i in range(10):
        t = i * step
        trace.thread(1).annotation(f"ProfilerStep#{i}", t, step - 10_000)
        for k in range(40):
            trace.thread(1 if k < 10 else 2).launch(
                at=t + k * 200_000, kernel=f"sm90_xmma_gemm_bf16_{k}", kernel_dur=190_000
            )
        for k in range(12):
            trace.thread(1).call(call, t + 8_000_000 + k * each_us * 1_000, each_us * 1_000 - 5_000)
    return advisor.diagnose(trace.write(path / "trace.json"))


@pytest.mark.parametrize(("each_us", "slow"), [(300, 0), (1_500, 1)])
def test_memory_that_the_main_thread_frees_is_churn_although_autograd_launches_most(
    tmp_path: Path, each_us: int, slow: int
) -> None:
    """`empty_cache()` after every step: twelve blocks go back, at once or slowly."""
    d = beside_autograd("cudaFree", each_us, tmp_path)
    expect(d, "allocation-churn", never=("host-gap", "allocation-stalls"))
    assert fact(d, "alloc.calls_per_step") == pytest.approx(12, abs=1)
    assert fact(d, "alloc.stall_call_ratio") == slow
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(8, rel=0.05)


def test_a_costly_call_of_the_main_thread_is_named_although_autograd_launches_most(tmp_path: Path) -> None:
    d = beside_autograd("cudaMemGetInfo", 300, tmp_path)
    expect(d, "costly-cuda-calls", never=("host-gap",))
    assert fact(d, "call.others_per_step") == pytest.approx(12, abs=1)


def test_a_data_loader_that_takes_less_than_half_of_the_step_is_the_cause_while_the_gpu_waits_for_it(
    tmp_path: Path,
) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            m.work(600, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
            m.replay(22)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert 0.2 < fact(d, "host.loading_gap_ratio") < 0.5
    assert d.headline is not None
    assert d.headline.cause == "input-preparation"
    assert "data-loading-workers" in advice(d, "input-preparation")


def test_other_host_work_in_the_gap_is_named_and_needs_no_loader(tmp_path: Path) -> None:
    d = diagnosed(loading("tokenize"), tmp_path)
    found = {f.cause: f for f in d.findings}
    assert "input-preparation" not in found
    assert fact(d, "host.gap_range") == "tokenize"
    assert "data-loading-workers" not in {r.id for r in found["host-gap"].recommendations}


def test_a_range_around_the_whole_step_names_no_gap(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"iteration {i}"):
            m.work(4_000)
            m.replay(22)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert "host-gap" in {f.cause for f in d.findings}
    assert not any(f.name == "host.gap_range" for f in d.facts)


@pytest.mark.parametrize("kind", ["python", "op"])
def test_the_function_or_operator_in_the_gap_is_named(kind: str, tmp_path: Path) -> None:
    """Steps of 1 ms: 0.6 ms in a function inside another one that launches kernels as well."""
    name = {"python": "server.py(12): tokenize", "op": "aten::multinomial"}[kind]
    profile = Profile().gpu()
    for i in range(12):
        at = i * 1_000_000
        profile.annotation(f"decode_step {i}", at, 990_000)
        profile.python("server.py(40): serve", at, 990_000)
        getattr(profile, kind)(name, at + 200_000, 600_000)
        for j in range(5):
            profile.launch(at=at + 20_000 * j, kernel="gemm", kernel_dur=15_000)
    d = advisor.diagnose(profile.write(tmp_path / "trace.json"))
    assert fact(d, "host.gap_range") == name
    found = {f.cause: f for f in d.findings}
    assert name in found["host-gap"].message


@pytest.mark.parametrize(("operator", "moves"), [("aten::normal_", True), ("tokenise", False)])
def test_an_operator_that_runs_on_the_cpu_belongs_on_the_device(
    tmp_path: Path, operator: str, moves: bool
) -> None:
    p = Profile().gpu()
    for i in range(12):
        t = i * 10_000_000
        p.annotation(f"step {i}", t, 9_900_000)
        p.op(operator, t + 1_000_000, 8_000_000)
        p.launch(t, kernel=NORM.name, kernel_dur=500_000)
    d = advisor.diagnose(p.write(tmp_path / "trace.json"))
    assert "host-gap" in ranked(d)
    assert ("create-on-device" in advice(d, "host-gap")) is moves


def test_layers_that_were_left_on_the_cpu(tmp_path: Path) -> None:
    """The host computes half of the layers between the logits and the hidden states of the next token:
    no schedule hides that, and what the GPU would take for them is not recorded."""
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            m.work(8_000)
            m.copy("HtoD", 16, "pageable", gb_per_s=6)
            m.layers(16)
            m.copy("DtoH", 500, "pageable", gb_per_s=8)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap")
    first = d.findings[0]
    assert (first.severity, first.recommendations[0].id) == ("medium", "compute-on-device")
    assert fact(d, "host.gap_exchange_ratio") == pytest.approx(1)
    assert first.gain is not None
    assert "computes on data" in (first.gain.reason or "")


def test_inputs_that_the_host_prepares_after_a_result_are_not_computed_from_it(tmp_path: Path) -> None:
    """An image of 600 KB goes up, scores of 4 KB come down: the host's work for the next one can be
    done before. Where as much goes up as came down, it may be the answer."""

    def found(kib: float) -> object:
        m = Machine()
        for _ in range(60):
            m.copy("HtoD", kib, "pinned")
            m.layers(1, [(GEMM, 40), (SILU, 8), (GEMM, 40), (ADD, 8)])
            m.copy("DtoH", 4, "pinned")
            m.wait()
            m.work(150)
        folder = tmp_path / str(kib)
        folder.mkdir()
        (gap,) = [f for f in diagnosed(m, folder).findings if f.cause == "host-gap"]
        assert gap.gain is not None
        return gap.gain.speedup

    assert found(600) is not None
    assert found(4) is None


def test_the_next_batch_of_an_encoder_is_not_computed_from_its_last_result(tmp_path: Path) -> None:
    """Embeddings come down, the host makes tokens of other texts for 2 ms, and those go up: that a text
    decoder does so between two tokens, and an encoder inside a step, are answers to what came down."""

    def found(step: str, kernels: list[tuple[Kernel, float]], inside: bool = False) -> Gain:
        m = Machine()
        for i in range(20):
            with m.step(f"{step} {i}"):
                m.copy("HtoD", 64, "pinned")
                m.layers(6, kernels)
                if inside:
                    m.copy("DtoH", 64, "pageable")
                    m.work(2_000)
                    m.copy("HtoD", 64, "pinned")
                    m.layers(6, kernels)
                m.copy("DtoH", 64, "pageable")
            if not inside:
                m.work(2_000)
        folder = tmp_path / f"{step}{inside}"
        folder.mkdir()
        (gap,) = [f for f in diagnosed(m, folder).findings if f.cause == "host-gap"]
        assert gap.gain is not None
        return gap.gain

    gelu = Kernel("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)")
    encoder = [(NORM, 8), (GEMM, 60), (PREFILL_ATTENTION, 40), (GEMM, 60), (gelu, 9)]
    assert found("encode batch", encoder).speedup is not None
    assert "computes on data" in (found("encode batch", encoder, inside=True).reason or "")
    assert "computes on data" in (found("decode_step", list(DECODE_LAYER) * 4).reason or "")


def test_sampling_on_the_cpu_is_done_on_the_gpu_instead(tmp_path: Path) -> None:
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}"):
            m.replay(28)
            m.copy("DtoH", 600, "pageable", gb_per_s=6)
            m.work(3_000)
            m.copy("HtoD", 8 / 1024, "pageable")
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap")
    assert d.findings[0].recommendations[0].id == "compute-on-device"
    assert severity(d, "host-gap") == "high"


def test_host_code_between_two_copies_of_a_step_is_a_gap(tmp_path: Path) -> None:
    """0.4 ms in each of 1.1: too long to be the cost of a launch, though it lies inside the step."""
    m = Machine()
    for i in range(20):
        with m.step(f"iteration {i}"):
            m.launch(NORM, 5)
            m.copy("DtoH", 256, "pageable", gb_per_s=5)
            m.work(400, "MPI_Sendrecv")
            m.copy("HtoD", 256, "pageable", gb_per_s=5)
            m.launch(GEMM, 600)
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap", never=("launch-bound",))
    assert fact(d, "host.gap_ratio") == pytest.approx(0.35, abs=0.03)


ARGMAX = Kernel(
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)"
)
ONLY_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize")


@pytest.mark.parametrize("how", ["nanosleep", "clock_nanosleep"])
def test_a_loop_that_sleeps_in_a_call_does_so_until_something_comes(how: str, tmp_path: Path) -> None:
    d = diagnosed(serve(lambda m, _: m.blocked(3_000, how)), tmp_path)
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert found.severity == "high"
    # Its steps begin evenly: it runs at a tick, and the next step could begin at once.
    assert found.gain is not None
    assert found.gain.step_after_ms is not None


def waiting_in_layers(
    how: str | None, marked: bool = False, head: bool = True, host: float = 0, steps: int = 20
) -> Machine:
    """24 layers a token, after each of which the host reads four bytes back, or waits for nothing."""
    m = Machine()
    for i in range(steps):
        with m.step(f"decode_step {i}") if marked else nullcontext():
            for _ in range(24):
                m.layers(1)
                if how == "item":
                    m.read_back()
                elif how:
                    m.wait(how)
                m.work(host)
            if head:
                m.launch(GEMV, 20)
                m.launch(ARGMAX, 4)
                m.read_back()
    m.wait()
    return m


@pytest.mark.parametrize(
    ("how", "marked"),
    [
        pytest.param(how, marked, marks=pytest.mark.slow if marked and how != "item" else [])
        for how in ("item", *ONLY_WAITS)
        for marked in (True, False)
    ],
)
def test_waits_in_each_layer_are_named_and_are_no_steps(how: str, marked: bool, tmp_path: Path) -> None:
    d = diagnosed(waiting_in_layers(how, marked), tmp_path)
    found = d.findings[0]
    assert (found.cause, found.severity, d.inputs[0].steps) == ("blocking-sync", "high", 19)
    assert fact(d, "sync.calls_per_step") == pytest.approx(25, abs=0.1)
    assert "25 blocking waits a step" in found.message or "24.9 blocking waits a step" in found.message
    assert ("cudaStreamSynchronize" if how == "item" else how) in found.message
    (tmp_path / "twin").mkdir()
    made = diagnosed(waiting_in_layers(None, marked), tmp_path / "twin").inputs[0].untraced_step_ms
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert made is not None
    after = found.gain.step_after_ms
    assert 0.99 * after.low < made.mid < after.high
    assert after.mid == pytest.approx(made.mid, rel=0.08)


@pytest.mark.parametrize("how", ["item", *ONLY_WAITS])
def test_waits_in_each_layer_of_a_program_without_steps(how: str, tmp_path: Path) -> None:
    d = diagnosed(waiting_in_layers(how, head=False), tmp_path)
    found = d.findings[0]
    assert (found.cause, d.inputs[0].steps) == ("blocking-sync", None)
    assert fact(d, "sync.calls_per_100_kernels") == pytest.approx(12.5, rel=0.05)
    assert "12.5 blocking waits for every 100 kernels" in found.message
    assert "sample-on-device" not in advice(d, "blocking-sync")


@pytest.mark.parametrize(("how", "result"), [("item", True), *((how, False) for how in ONLY_WAITS)])
def test_what_is_advised_against_waits_depends_on_what_is_behind_them(
    how: str, result: bool, tmp_path: Path
) -> None:
    d = diagnosed(waiting_in_layers(how, head=False), tmp_path)
    assert fact(d, "sync.result_ratio") == pytest.approx(float(result), abs=0.01)
    told = advice(d, "blocking-sync")
    assert ("async-readback" in told) is result
    assert ("drop-waits" in told) is not result
