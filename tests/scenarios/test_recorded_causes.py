"""The cause that a capture records leads: polling, small collectives without sizes, steps without a graph."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.scenarios.machine import ALL_REDUCE, DECODE_LAYER, GEMM, NORM, Kernel, Machine
from tests.scenarios.support import diagnosed, expect, fact, severity

OPTIMIZER = Kernel("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(float*)", 640)
DISPATCH = Kernel("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*)", 24)


def advice(d: object, cause: str) -> list[str]:
    return [r.id for f in d.findings if f.cause == cause for r in f.recommendations]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------- polling


@pytest.mark.parametrize("sleep", ["clock_nanosleep", "usleep"])
@pytest.mark.parametrize("queries", [True, False])
def test_a_loop_that_sleeps_while_its_work_runs_polls(tmp_path: Path, sleep: str, queries: bool) -> None:
    """Steps of 2.4 ms, looked for each 1 ms: 0.6 ms are slept for nothing."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(56)
            while True:
                if queries:
                    m.call("cudaEventQuery_v3020", 1.5)
                if m.now >= m.gpu_free:
                    break
                m.blocked(1_060, sleep)
            m.copy("DtoH", 0.1)
    d = diagnosed(m, tmp_path)
    expect(d, "os-blocked", never=("host-gap", "waits-for-requests"))
    assert fact(d, "host.os_polling_ratio") == pytest.approx(1, abs=0.05)
    assert advice(d, "os-blocked") == ["wait-for-event"]
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert sleep in found.message


def test_a_loop_that_polls_in_an_event_loop_polls(tmp_path: Path) -> None:
    """asyncio.sleep() between questions is a wait in epoll."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(56)
            while m.now < m.gpu_free:
                m.call("cudaEventQuery_v3020", 1.5)
                m.blocked(1_000, "epoll_wait")
            m.call("cudaEventQuery_v3020", 1.5)
    d = diagnosed(m, tmp_path)
    expect(d, "os-blocked", never=("waits-for-requests",))
    assert advice(d, "os-blocked") == ["wait-for-event"]


def test_a_sleep_behind_the_work_is_no_poll(tmp_path: Path) -> None:
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(56)
            m.wait()
            m.blocked(600, "usleep")
    d = diagnosed(m, tmp_path)
    assert fact(d, "host.os_polling_ratio") == 0
    assert fact(d, "host.os_sleep_ratio") == 1
    assert advice(d, "os-blocked") == ["start-when-done"]


def test_sleeps_of_uneven_length_are_neither(tmp_path: Path) -> None:
    """Of training, to which nobody sends requests: 0.3 to 1.5 ms behind steps of 2 ms."""
    m = Machine()
    for i in range(16):
        with m.step(f"train_step {i}"):
            for _ in range(19):
                m.launch(GEMM, 100)
            m.launch(OPTIMIZER, 100)
            m.wait()
            m.blocked(300 + 400 * (i * 7 % 4), "usleep")
    d = diagnosed(m, tmp_path)
    assert (fact(d, "host.os_polling_ratio"), fact(d, "host.os_tick_ratio")) == (0, 0)
    assert advice(d, "os-blocked")[-1] == "drop-sleeps"


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("call", ["clock_nanosleep", "usleep"])
def test_a_scheduler_with_a_tick_sleeps_for_nothing(tmp_path: Path, call: str, ranges: bool) -> None:
    """Steps of 2.9 ms that begin each 5 ms."""
    m = Machine()
    for i in range(20):
        with m.step(f"decode_step {i}") if ranges else nullcontext():
            m.replay(70)
            m.wait()
        m.blocked((m.now // 5_000 + 1) * 5_000 - m.now, call)
    d = diagnosed(m, tmp_path)
    expect(d, "os-blocked", never=("host-gap", "waits-for-requests"))
    assert fact(d, "host.os_tick_ratio") == pytest.approx(1, abs=0.05)
    assert advice(d, "os-blocked")[0] == "start-when-done"
    assert "capture-under-load" not in advice(d, "os-blocked")
    (found,) = [f for f in d.findings if f.cause == "os-blocked"]
    assert found.severity == "high"
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.low <= 2.95 <= found.gain.step_after_ms.high


def test_a_loop_that_sleeps_until_others_answer_has_no_tick(tmp_path: Path) -> None:
    """Messages of another process are no sleep; nor is there a tick if few steps wait."""
    for folder, call, each in (("poll", "poll", 1), ("few", "usleep", 3)):
        (tmp_path / folder).mkdir()
        m = Machine()
        for i in range(21):
            with m.step(f"decode_step {i}"):
                m.replay(70)
                m.wait()
            if i % each == 0:
                m.blocked(1_800, call)
        d = diagnosed(m, tmp_path / folder)
        assert fact(d, "host.os_tick_ratio") == 0
        assert "start-when-done" not in advice(d, "os-blocked")


# ------------------------------------------------------------------------------- collectives


def parallel(kernel: Kernel, us: float, each: int = 1) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(30, (*DECODE_LAYER, *(((kernel, us),) * each)))
            m.wait()
    return m


def test_small_all_reduces_are_known_by_their_time(tmp_path: Path) -> None:
    d = diagnosed(parallel(ALL_REDUCE, 40), tmp_path)
    expect(d, also=("many-small-collectives", "exposed-communication"))
    assert severity(d, "many-small-collectives") in ("low", "medium", "high")
    assert fact(d, "comm.small_calls_per_step") == 30
    assert fact(d, "comm.sizes_known") is False
    assert advice(d, "many-small-collectives")[:2] == ["give-all-ranks", "one-shot-all-reduce"]
    assert "fewer-gpus-per-model" in advice(d, "exposed-communication")
    assert not any("holds no collectives" in n.why for n in d.not_evaluated)


@pytest.mark.parametrize(("us", "kernel"), [(400, ALL_REDUCE), (40, DISPATCH)])
def test_large_ones_and_exchanges_with_experts_are_not(tmp_path: Path, us: float, kernel: Kernel) -> None:
    d = diagnosed(parallel(kernel, us), tmp_path)
    expect(d, also=("exposed-communication",), never=("many-small-collectives",))
    assert fact(d, "comm.reduces_ratio") == (1.0 if kernel is ALL_REDUCE else 0.0)
    assert ("fewer-gpus-per-model" in advice(d, "exposed-communication")) is (kernel is ALL_REDUCE)


# ------------------------------------------------------------------------------- steps without a graph


def mixed(eager: int) -> Machine:
    """Batches of 64 have a graph; this many of 16 steps hold 72 sequences and have none."""
    m = Machine()
    for i in range(16):
        larger = (i // 4) % 2 == 1 if eager == 8 else i >= 16 - eager
        with m.step(f"execute_context_0(0)_generation_{'72(72)' if larger else '64(64)'}"):
            if larger:
                m.layers(20, call=9)
            else:
                m.replay(20)
            m.launch(GEMM, 8)
            m.wait()
    return m


def test_the_sizes_without_a_graph_are_named(tmp_path: Path) -> None:
    d = diagnosed(mixed(8), tmp_path)
    expect(d, "launch-bound", never=("host-gap",))
    assert fact(d, "graph.eager_steps") == "decode of 72"
    assert fact(d, "graph.replaying_step_ratio") == pytest.approx(7 / 15, abs=0.07)
    assert advice(d, "launch-bound")[0] == "graph-what-is-left"
    (found,) = [f for f in d.findings if f.cause == "launch-bound"]
    assert "decode of 72" in found.recommendations[0].action
    assert "enforce-eager" not in json.dumps([str(r) for r in found.recommendations])


def test_a_program_without_graphs_is_told_to_use_them(tmp_path: Path) -> None:
    d = diagnosed(mixed(16), tmp_path)
    assert fact(d, "graph.replaying_step_ratio") == 0
    assert fact(d, "graph.eager_steps") is None
    assert advice(d, "launch-bound")[0] == "enable-cuda-graphs"


# ------------------------------------------------------------------------------- memory in pieces


def retries(fails: bool) -> Machine:
    """In every fourth step the pool frees six blocks and takes a larger one; before that, it may fail to."""
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            m.export.range("aten::empty", round(m.now * 1e3), round(m.now * 1e3) + 500)
            if i % 4 == 3:
                if fails:
                    m.call("cudaMalloc_v3020", 300, result=2)
                for _ in range(6):
                    m.call("cudaFree_v3020", 400)
                m.call("cudaMalloc_v3020", 1_500)
            m.replay(22)
            m.wait()
    return m


@pytest.mark.parametrize("fails", [True, False])
def test_allocations_that_fail_until_memory_is_freed(tmp_path: Path, fails: bool) -> None:
    d = diagnosed(retries(fails), tmp_path)
    expect(d, "allocation-churn", never=("step-outliers",))
    assert fact(d, "alloc.retry_count") == (6 if fails else 0)
    assert (advice(d, "allocation-churn")[0] == "expandable-segments") is fails
    assert severity(d, "allocation-churn") == "high"


# ------------------------------------------------------------------------------- no CPU, no calls recorded


def stopped(every_ms: float, for_ms: float, steps: int = 300) -> Machine:
    """Eager decode of some 2 ms a step whose thread is stopped at this rhythm, wherever it is."""
    m, due = Machine(), every_ms * 1e3
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            for _ in range(30):
                m.layers(1, call=3)
                if m.now >= due:
                    stop = due + for_ms * 1e3 - m.now
                    m.preempted(max(stop, 1_000))
                    due += every_ms * 1e3
            m.wait()
    return m


@pytest.mark.parametrize("steps", [300, 240], ids=["many stops", "three stops"])
def test_stops_at_a_rhythm_of_100_ms_are_a_quota(tmp_path: Path, steps: int) -> None:
    d = diagnosed(stopped(100, 30, steps), tmp_path)
    expect(d, "cpu-contention", never=("host-gap",))
    assert fact(d, "host.off_cpu_quota_ratio") == pytest.approx(1, abs=0.1)
    assert advice(d, "cpu-contention")[0] == "raise-cpu-quota"


def test_stops_amid_launches_are_others_that_have_the_cpu(tmp_path: Path) -> None:
    d = diagnosed(stopped(37, 9), tmp_path)
    expect(d, "cpu-contention", never=("host-gap",))
    assert advice(d, "cpu-contention")[0] == "reserve-cores"


def test_a_loop_that_sleeps_for_its_input_has_a_cpu(tmp_path: Path) -> None:
    """A camera with 30 pictures a second; calls of the operating system are not recorded."""
    m = Machine()
    for i in range(40):
        with m.step(f"decode_step {i}"):
            m.layers(30, call=3)
            m.wait()
        m.preempted(33_333 * (i + 1) - m.now)
    d = diagnosed(m, tmp_path)
    assert "cpu-contention" not in {f.cause for f in d.findings}


@pytest.mark.parametrize("per_second", [24, 30, 120])
def test_a_loop_that_sleeps_amid_what_looks_like_a_step(tmp_path: Path, per_second: int) -> None:
    """The picture is mapped and copied when it comes, then the thread sleeps for the next one, and only then
    it is worked on: whatever counts as a step, the sleep is at one place in it. No range names a step."""
    m = Machine()
    for i in range(60):
        m.call("cudaGraphicsMapResources_v3020", 100)
        m.copy("HtoD", 900, "pageable")
        m.call("cudaGraphicsUnmapResources_v3020", 60)
        m.preempted(max(1e6 / per_second * (i + 1) - m.now, 1_500))
        m.memset(5)
        for kernel in (GEMM, NORM, GEMM, NORM):
            m.launch(kernel, 300 + 40 * (i % 5))
        m.wait("cudaDeviceSynchronize_v3020")
        m.work(150)
    d = diagnosed(m, tmp_path)
    assert "cpu-contention" not in {f.cause for f in d.findings}
    gap = next(f for f in d.findings if f.cause in ("host-gap", "waits-for-requests"))
    assert gap.severity in ("info", "low", "medium")


# ------------------------------------------------------------------------------- another thread


@pytest.mark.parametrize("covers", [True, False])
def test_the_thread_that_works_in_the_gaps_is_named(tmp_path: Path, covers: bool) -> None:
    """The loop waits without a range of its own while a thread turns tokens into text."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
        begin = round(m.now * 1e3)
        m.export.thread(77).range("detokenize", begin + 20_000, begin + (1_180_000 if covers else 300_000))
        m.export.thread(m.export.pid)
        m.work(1_200)
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap")
    assert fact(d, "host.gap_other_range") == ("detokenize" if covers else None)
    assert ("detokenize" in d.findings[0].message) is covers


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_process_that_sends_the_steps_is_named(tmp_path: Path, on_gpu: bool) -> None:
    """A worker waits for its scheduler, which is a process of its own; one that computes on the GPU as well
    is another worker."""
    m = Machine()
    for i in range(16):
        begin = round(m.now * 1e3)
        m.export.process(200, name="scheduler").range("schedule", begin, begin + 1_180_000)
        if on_gpu:
            m.export.launch(begin, kernel_start=begin + 7_000, kernel_dur=1_000)
        m.export.process(100)
        m.work(1_200)
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "host-gap")
    assert ("schedule" in d.findings[0].message) is not on_gpu


# ------------------------------------------------------------------------------- a slow link


def test_the_link_is_mended_before_the_copies_over_it(tmp_path: Path) -> None:
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.copy("HtoD", 8_192, gb_per_s=6)
            m.replay(22)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert [t.cause for t in d.do][:2] == ["slow-link", "transfer-bound"]
    assert "before transfer-bound" in d.do[0].because
