"""GPUs of one process that work at the same time, or one after another."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.facts.catalog import build_facts
from advisor.metrics.budgeted.sharing import Turns, find_turns
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Diagnosis
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.scenarios.machine import ALL_REDUCE, GEMM, Kernel, Machine


def turns_of(export: Export, folder: Path) -> Turns | None:
    with open_trace(export.write(folder / "trace.sqlite")) as trace:
        return find_turns(measure(trace))


def two(*kernels: tuple[int, int, int], name: str = "work") -> Export:
    """Kernels as (GPU, start, end) in us, each launched at the beginning."""
    e = Export().gpu(name="NVIDIA H200").gpu(name="NVIDIA H200").process(1)
    for i, (device, start, end) in enumerate(kernels):
        us = 1_000
        e.launch(i * 100, 50, name, start * us, (end - start) * us, device=device)
    return e


def test_the_facts(tmp_path: Path) -> None:
    path = two((0, 10, 60), (1, 40, 110)).write(tmp_path / "trace.sqlite")
    with open_trace(path) as trace:
        base = build_facts(measure(trace))
    assert base.value("gpus.computing_count") == 2
    assert base.value("gpus.alone_ratio") == pytest.approx(0.8)
    assert base.value("gpus.turn_wait_ratio") == pytest.approx((0.5 + 0.3) / 2)
    assert base.value("gpus.turn_of_idle_ratio") == pytest.approx(1)


def test_one_after_another(tmp_path: Path) -> None:
    found = turns_of(two((0, 10, 40), (1, 40, 100), (0, 100, 110)), tmp_path)
    assert found == Turns((0, 1), (40_000, 60_000), (40_000, 60_000), 100_000, 100_000)
    assert found.alone_ratio == 1
    assert found.waiting_ratio == pytest.approx((0.6 + 0.4) / 2)


def test_at_the_same_time_for_a_part(tmp_path: Path) -> None:
    found = turns_of(two((0, 10, 60), (1, 40, 110)), tmp_path)
    assert found == Turns((0, 1), (50_000, 70_000), (30_000, 50_000), 100_000, 100_000)
    assert found.alone_ratio == pytest.approx(0.8)


def test_a_copy_to_the_next_gpu_is_part_of_the_turn(tmp_path: Path) -> None:
    e = two((0, 10, 30), (1, 70, 90), (0, 90, 110))
    e.copy(900, 50, "PtoP", 1 << 26, "device", 30_000, 40_000, device=0)
    found = turns_of(e, tmp_path)
    assert found is not None
    assert found.compute == found.alone == (80_000, 20_000)
    assert found.waiting_ratio == pytest.approx((0.2 + 0.8) / 2)


def test_a_gpu_that_only_receives_copies_takes_no_part(tmp_path: Path) -> None:
    e = two((0, 10, 30), (0, 40, 60)).copy(900, 50, "PtoP", 1 << 26, "device", 30_000, 10_000, device=1)
    found = turns_of(e, tmp_path)
    assert found is not None
    assert found.devices == (0,)


def test_one_gpu_has_no_turns(tmp_path: Path) -> None:
    found = turns_of(two((0, 10, 40), (0, 50, 60)), tmp_path)
    assert found is not None
    assert (found.devices, found.waiting_ratio) == ((0,), 0)


def test_a_gpu_that_hardly_works_takes_no_part(tmp_path: Path) -> None:
    found = turns_of(two((0, 10, 110), (1, 110, 114)), tmp_path)
    assert found is not None
    assert found.devices == (0,)


def test_collectives_are_no_turn_of_their_own(tmp_path: Path) -> None:
    export = two((0, 10, 40), (1, 40, 100))
    export.launch(900, 50, ALL_REDUCE.name, 100_000, 50_000, device=0)
    export.launch(1_000, 50, ALL_REDUCE.name, 100_000, 50_000, device=1)
    found = turns_of(export, tmp_path)
    assert found is not None
    assert (found.compute, found.alone) == ((30_000, 60_000), (30_000, 60_000))


# ------------------------------------------------------------------ what is concluded of it

NORM = Kernel("void rms_norm_kernel<__nv_bfloat16>()", 132)


def split(
    folder: Path, gpus: int = 4, layer: float = 60, *, together: bool = False, written: float = 0
) -> Diagnosis:
    """Decode steps whose layers are spread over GPUs, which pass the hidden state on; `together` they
    work on parts of the same layers. The profiler writes for `written` us at the end of each step."""
    export = Export()
    for _ in range(gpus):
        export.gpu(name="NVIDIA H200")
    machines = [Machine(export, device=g, start=500) for g in range(gpus)]
    now = 500.0
    for i in range(20):
        begin, ready = now, 0.0
        for one in machines:
            one.now = now
            one.hold_until(0 if together else ready)
            for _ in range(6):
                one.launch(GEMM, layer)
                one.launch(NORM, 3)
            one.copy("PtoP", 64, "device")
            now, ready = one.now, one.gpu_free
        for one in machines:
            one.now = now
            one.wait()
            now = one.now
        if written:
            export.overhead(round(now * 1_000), round(written * 1_000))
            now += written
        export.process(100).range(f"decode_step {i}", round(begin * 1_000), round(now * 1_000))
    return advisor.diagnose(export.write(folder / "trace.sqlite"))


@pytest.mark.parametrize(("gpus", "waiting"), [(2, 0.5), (4, 0.75)])
def test_layers_that_are_spread_over_gpus(tmp_path: Path, gpus: int, waiting: float) -> None:
    d = split(tmp_path, gpus)
    first = d.findings[0]
    assert (first.cause, first.severity) == ("gpus-take-turns", "medium")
    assert first.share == pytest.approx(waiting, abs=0.05)
    assert first.recommendations[0].id == "tensor-parallel"


@pytest.mark.parametrize("written", [0, 800])
def test_what_the_profiler_writes_is_no_part_of_the_whole(tmp_path: Path, written: float) -> None:
    """Each of two GPUs has nothing to do for half of the step, whatever the profiler takes of it."""
    d = split(tmp_path, 2, written=written)
    assert d.findings[0].cause == "gpus-take-turns"
    assert d.findings[0].share == pytest.approx(0.5, abs=0.05)


def test_gpus_that_share_each_layer_take_no_turns(tmp_path: Path) -> None:
    d = split(tmp_path, 2, layer=400, together=True)
    assert "gpus-take-turns" not in {f.cause for f in d.findings}
    assert "gpus-take-turns" in {h.cause for h in d.healthy}
