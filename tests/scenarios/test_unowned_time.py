"""Time that looks like compute or like launching and is neither: choosing tokens, clearing memory, locking
pages of the host, and launch calls that wait for their kernels."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from advisor.reports import summary
from tests.scenarios.machine import DECODE_LAYER, GEMM, Kernel, Machine, Part, decode_graphs
from tests.scenarios.support import alarms, diagnosed, expect, fact, ranked

MIB = 1024
#: What the kernels of a step take with their gaps, ms: 40 layers of 39 us.
COMPUTE = 40 * (39 + 8 * 0.3) / 1e3
LOG_SOFTMAX = Kernel(
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::"
    "(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)
TOP_K = Kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(float*)", 64)
CAST = Kernel(
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)"
)

steps = partial(decode_graphs, count=16, call=15)


def sampler(us: float) -> Part:
    def sample(m: Machine) -> None:
        m.launch(GEMM, 60)
        for kernel in (CAST, LOG_SOFTMAX, TOP_K):
            m.launch(kernel, us / 3)

    return sample


@pytest.mark.parametrize(("us", "found"), [(400, True), (40, False)])
def test_log_probabilities_of_the_whole_vocabulary(tmp_path: Path, us: float, found: bool) -> None:
    d = diagnosed(steps(after=sampler(us)), tmp_path)
    assert ("slow-sampling" in ranked(d)) is found
    assert summary.verdict(d).startswith("Busy, but whether its kernels are fast") is not found
    if found:
        gain = d.findings[0].gain
        assert gain is not None
        assert gain.step_after_ms is not None
        assert gain.step_after_ms.mid == pytest.approx(COMPUTE + 0.07, rel=0.03)


def test_work_between_the_products_chooses_no_token(tmp_path: Path) -> None:
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(1, [*DECODE_LAYER * 40, (LOG_SOFTMAX, 400), (GEMM, 60)], call=15)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert "slow-sampling" not in ranked(d)
    assert fact(d, "kernel.sampling_window_ratio") == 0


@pytest.mark.parametrize(("us", "found"), [(400, True), (30, False)])
def test_a_work_space_that_is_cleared_in_each_step(tmp_path: Path, us: float, found: bool) -> None:
    d = diagnosed(steps(lambda m: m.memset(us, api="cudaMemsetAsync_v3020")), tmp_path)
    assert ("large-memsets" in ranked(d)) is found
    assert summary.verdict(d).startswith("Busy, but whether its kernels are fast") is not found
    assert not alarms(d)


def test_clearing_beside_kernels_costs_nothing(tmp_path: Path) -> None:
    """The memset of 400 us runs on a stream of its own behind the launch of the graph."""

    def beside(m: Machine) -> None:
        at = round(m.now * 1e3)
        m.export.process(100).memset(at, 3_000, memset_start=at + 100_000, memset_dur=400_000, stream=9)
        m.now += 4

    d = diagnosed(steps(after=beside), tmp_path)
    assert "large-memsets" not in ranked(d)


def test_pages_that_are_locked_in_each_step(tmp_path: Path) -> None:
    """A pool of device memory is no help against it."""

    def lock(m: Machine) -> None:
        m.call("cudaHostAlloc_v3020", 1_200)
        m.copy("HtoD", 4 * MIB)

    def unlock(m: Machine) -> None:
        m.wait()
        m.call("cudaFreeHost_v3020", 600)

    d = diagnosed(steps(lock, unlock), tmp_path)
    expect(d, "allocation-churn", never=("host-gap", "launch-bound", "transfer-bound"))
    advised = [r.id for r in d.findings[0].recommendations]
    assert advised[0] == "preallocate-buffers"
    assert "use-memory-pool" not in advised


def test_memory_of_the_device_comes_from_a_pool(tmp_path: Path) -> None:
    def allocate(m: Machine) -> None:
        for _ in range(20):
            m.call("cudaMalloc_v3020", 80)

    d = diagnosed(steps(allocate), tmp_path)
    expect(d, "allocation-churn")
    assert d.findings[0].recommendations[0].id == "use-memory-pool"


def launched(blocking: bool) -> Machine:
    """Each kernel by a call of its own, which returns at once, or 5 us after the kernel."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(20, call=9, blocking=blocking)
            m.wait()
    return m


@pytest.mark.parametrize("blocking", [True, False])
def test_launch_calls_that_wait_for_their_kernels(tmp_path: Path, blocking: bool) -> None:
    d = diagnosed(launched(blocking), tmp_path)
    assert ("debug-build" in ranked(d)) is blocking
    assert ranked(d)[0] == ("debug-build" if blocking else "launch-bound")
    assert "blocking-sync" not in ranked(d)
    if blocking:
        assert "launch-bound" in ranked(d)
        assert d.findings[0].recommendations[0].id == "unset-launch-blocking"


@pytest.mark.parametrize("answers", [True, False])
def test_a_result_that_the_host_works_on_is_waited_for(tmp_path: Path, answers: bool) -> None:
    """32 MiB of logits come down in 2.8 ms and the host works for 2 ms: on them, before it sends back the
    tokens, or on something else, which it can do while they are copied."""

    def sample(m: Machine) -> None:
        m.copy("DtoH", 32 * MIB, gb_per_s=12)
        m.wait()
        m.work(2_000)
        if answers:
            m.copy("HtoD", 1)

    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.replay(40, call=15)
            sample(m)
    d = diagnosed(m, tmp_path)
    found = next(f for f in d.findings if f.cause == "transfer-bound")
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(
        COMPUTE + (2 if answers else 0), abs=0.15 if answers else 3
    )
