"""Steps after a fix against the step of a partner without the cause, one scene for each class of causes whose
fix moves work beside other work, or takes away a part alone. The truth lies inside the range, and within a
tenth of its middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from advisor.model.findings import Diagnosis
from tests.scenarios.machine import ALL_REDUCE, DECODE_LAYER, GEMM, Machine
from tests.scenarios.support import diagnosed, fact, finding, job_of, ranked

MIB = 1024


def folder(path: Path) -> Path:
    return Path(mkdtemp(dir=path))


def step_ms(m: Machine, path: Path) -> float:
    step = diagnosed(m, folder(path)).inputs[0].step_ms
    assert step is not None
    return step


def holds(d: Diagnosis, cause: str, true_ms: float) -> None:
    gain = finding(d, cause).gain
    assert gain is not None
    assert gain.step_after_ms is not None
    after = gain.step_after_ms
    assert after.low <= true_ms <= after.high, (after, true_ms)
    assert after.mid == pytest.approx(true_ms, rel=0.1)


def decode(before: Callable[[Machine], object], layers: int, after: Callable[[Machine], object]) -> Machine:
    """Decode steps of one replayed graph, whose token is read back."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            before(m)
            m.replay(layers, call=9)
            m.read_back()
            after(m)
    return m


def nothing(_m: Machine) -> None:
    """Without the cause."""


@pytest.mark.parametrize(("wait", "code"), [(3_100, 0), (1_200, 900)])
def test_waiting_for_the_gil(wait: float, code: float, tmp_path: Path) -> None:
    """Host code that stays is won by nobody else."""

    def held(m: Machine) -> None:
        m.work(wait, "Waiting for GIL")
        m.work(code)

    d = diagnosed(decode(nothing, 30, held), tmp_path)
    holds(d, "gil-contention", step_ms(decode(nothing, 30, lambda m: m.work(code)), tmp_path))


@pytest.mark.parametrize(("host", "layers"), [(7_300, 80), (1_900, 80)], ids=["host longer", "GPU longer"])
def test_scheduling_ahead_ends_with_the_longer_of_both(host: float, layers: int, tmp_path: Path) -> None:
    def schedule(m: Machine) -> None:
        m.work(host, "schedule: allocate_slots")

    d = diagnosed(decode(schedule, layers, nothing), tmp_path)
    gpu = step_ms(decode(nothing, layers, nothing), tmp_path)
    holds(d, "input-preparation" if host > 1e3 * gpu else "host-gap", max(host / 1e3, gpu))


@pytest.mark.parametrize(("count", "kib", "host"), [(200, 12, 1_700), (64, 19, 2_600)])
def test_copies_that_are_packed_leave_the_host_code_that_makes_them(
    count: int, kib: float, host: float, tmp_path: Path
) -> None:
    def rows(m: Machine) -> None:
        m.work(host, "grammar_bitmask")
        for _ in range(count):
            m.copy("HtoD", kib, "pageable", gb_per_s=6)

    def packed(m: Machine) -> None:
        m.work(host, "grammar_bitmask")
        m.copy("HtoD", count * kib, gb_per_s=20)

    d = diagnosed(decode(rows, 60, nothing), tmp_path)
    holds(d, "tiny-copies", step_ms(decode(packed, 60, nothing), tmp_path))


def by_layer(mib: float, gb_per_s: float) -> Machine:
    """30 layers of 195 us, each behind the event of a copy of so much."""
    m = Machine()
    for i in range(10):
        with m.step(f"decode_step {i}"):
            for _ in range(30):
                m.copy("HtoD", mib * MIB, stream=9, gb_per_s=gb_per_s)
                m.join(7, on=9)
                m.launch(GEMM, 195, call=3)
                m.join(9, on=7)
            m.copy("DtoH", 4 / 1024)
            m.wait(stream=7)
    return m


@pytest.mark.parametrize(("mib", "true"), [(6, 30 * 6 * 1.048576 / 22), (3, 30 * 0.195)])
def test_a_cache_that_comes_up_layer_by_layer(mib: float, true: float, tmp_path: Path) -> None:
    """Over half of a link: 8.58 ms of copies set the pace, 4.29 ms lie beside 5.85 ms of kernels."""
    holds(diagnosed(by_layer(mib, 22), tmp_path), "transfer-bound", true)


def drafts(count: int, us: float, call: float | None) -> Machine:
    """A graph that the host waits for, and drafts behind it, one by one or (`call` None) as a graph."""
    m = Machine()
    for _ in range(14):
        with m.step("execute_context_0(0)_generation_4(24)"):
            with m.step("gpu_model_runner: forward"):
                m.replay(64, call=9)
            m.wait()
            with m.step("gpu_model_runner: draft"):
                kernels = [(DECODE_LAYER[k % 8][0], us) for k in range(count)]
                if call is None:
                    m.replay(1, kernels, call=20)
                for kernel, length in kernels if call is not None else ():
                    m.launch(kernel, length, call=call or 0)
            m.read_back()
    return m


@pytest.mark.parametrize(("count", "us", "call"), [(320, 4, 12), (160, 6, 11)])
def test_drafts_launched_one_by_one(count: int, us: float, call: float, tmp_path: Path) -> None:
    d = diagnosed(drafts(count, us, call), tmp_path)
    holds(d, "launch-bound", step_ms(drafts(count, us, None), tmp_path))


def rebuilding(built: bool) -> Machine:
    """48 graphs a step, each instantiated in 55 us and destroyed."""
    m = Machine()
    for i in range(10):
        with m.step(f"decode_step {i}"):
            for _ in range(48):
                if built:
                    m.call("cudaGraphInstantiate_v12000", 55)
                m.replay(1, call=9)
                if built:
                    m.call("cudaGraphExecDestroy_v10000", 14)
            m.read_back()
    return m


def test_graphs_that_are_built_in_each_step(tmp_path: Path) -> None:
    holds(diagnosed(rebuilding(True), tmp_path), "graph-rebuilds", step_ms(rebuilding(False), tmp_path))


def test_each_part_of_blocked_time_is_won_by_its_own_fix(tmp_path: Path) -> None:
    """1.4 ms in `read` and 0.35 ms for a lock; the first fix leaves the lock."""

    def blocked(read: float) -> Machine:
        def calls(m: Machine) -> None:
            if read:
                m.blocked(read, "read")
            m.blocked(350, "pthread_mutex_lock")

        return decode(nothing, 40, calls)

    holds(diagnosed(blocked(1_400), tmp_path), "os-blocked", step_ms(blocked(0), tmp_path))


@pytest.mark.parametrize(("every", "slower"), [(3, 1.7), (4, 1.9)])
def test_a_neighbour_in_some_steps(every: int, slower: float, tmp_path: Path) -> None:
    def beside(factor: float) -> Machine:
        m = Machine()
        for i in range(40):
            k = factor if i % every == 0 else 1.0
            with m.step(f"decode_step {i}"):
                m.replay(30, [(GEMM, 100 * k), (GEMM, 40 * k)], call=20)
                m.read_back()
        return m

    holds(diagnosed(beside(slower), tmp_path), "gpu-slower-at-times", step_ms(beside(1), tmp_path))


def in_halves(compute: float, exchange: float) -> Machine:
    """Two half batches of 40 layers: while one computes, the other exchanges on a stream of its own."""
    m = Machine()
    for i in range(8):
        with m.step(f"decode_step {i}"):
            for _ in range(40):
                for half in (30, 31):
                    m.join(7, on=half)
                    m.launch(GEMM, compute / 2, call=2)
                    m.join(half, on=7)
                    m.join(20, on=half)
                    m.launch(ALL_REDUCE, exchange / 2, stream=20, call=2)
                    m.join(half, on=20)
            m.join(7, on=20)
            m.read_back()
    return m


def test_two_half_batches_end_with_the_longer_of_both(tmp_path: Path) -> None:
    """Collectives of 24.4 ms a step set the pace whatever lies beside them: no promise goes below, and where
    they are the shorter part nothing is said."""
    d = diagnosed(in_halves(210, 610), folder(tmp_path))
    found = finding(d, "exposed-communication")
    assert found.severity == "medium"
    assert found.gain is None or found.gain.speedup is None
    assert fact(d, "comm.over_compute") == pytest.approx(610 / 210, rel=0.05)
    assert ranked(diagnosed(in_halves(610, 210), folder(tmp_path))) == []


def gradients(compute: float, exchange: float, *, beside: bool) -> Machine:
    """24 layers, whose gradients are exchanged behind all of them or each beside the next layer."""
    m = Machine()
    for i in range(8):
        with m.step(f"train_step {i}"):
            for _ in range(24):
                m.launch(GEMM, compute, call=2)
                if beside:
                    m.join(20, on=7)
                    m.launch(ALL_REDUCE, exchange, stream=20, call=2)
            for _ in range(0 if beside else 24):
                m.launch(ALL_REDUCE, exchange, call=2)
            if beside:
                m.join(7, on=20)
            m.wait()
    return m


@pytest.mark.parametrize(("compute", "exchange"), [(310, 190), (190, 310), (250, 90)])
def test_gradients_beside_the_layers(compute: float, exchange: float, tmp_path: Path) -> None:
    d = job_of(gradients(compute, exchange, beside=False), tmp_path)
    holds(d, "exposed-communication", step_ms(gradients(compute, exchange, beside=True), tmp_path))


@pytest.mark.parametrize(("mib", "kernel"), [(820, 3_083), (240, 7_917)], ids=["copies longer", "both alike"])
def test_shards_of_training_on_the_host(mib: float, kernel: float, tmp_path: Path) -> None:
    """12 shards over a full link: 206 ms of copies beside 37 of kernels, and 60 beside 95."""
    m = Machine()
    for i in range(6):
        with m.step(f"train_step {i}"):
            for _ in range(12):
                m.copy("HtoD", mib * MIB)
                m.launch(GEMM, kernel)
            m.wait()
    copies, kernels = 12 * mib * 1.048576 / 50, 12 * kernel / 1e3
    d = diagnosed(m, tmp_path)
    holds(d, "transfer-bound", max(copies, kernels))
    assert (finding(d, "transfer-bound").recommendations[0].id == "keep-on-device") is (copies > kernels)
