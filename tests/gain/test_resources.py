"""No schedule makes a step shorter than what each copy engine, link and thread has to do by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer, step_us


def copying(up: tuple[int, ...], down: tuple[int, ...], kernel: int) -> Export:
    """A kernel of so many us behind copies of pinned memory, one after the other, each on its own stream."""

    def step(e: Export, t: int) -> None:
        free = t + 10 * US
        for k, (length, kind) in enumerate([*((u, "HtoD") for u in up), *((d, "DtoH") for d in down)]):
            moved = {"copy_start": free, "copy_dur": length * US, "memory": "pinned", "stream": 8 + k}
            e.copy(at=t + 2 * k * US, dur=US, bytes=length * 25_000, kind=kind, **moved)
            free += length * US
        e.launch(at=t + 8 * US, dur=US, kernel="k", kernel_start=free, kernel_dur=kernel * US)
        e.sync(at=t + 9 * US, dur=free + (kernel - 8) * US - t)

    return scenes.capture(step, sum(up) + sum(down) + kernel + 13)


@pytest.mark.parametrize(
    ("up", "down", "kernel", "truth"),
    [
        ((100, 100), (), 120, 200),  # one engine for both
        ((100,), (100,), 120, 120),  # one for each direction
        ((60, 50), (), 120, 120),  # the near miss: the kernel takes longer
        ((100, 30), (110,), 90, 130),
    ],
)
def test_copies_of_one_direction_run_one_behind_the_other(
    up: tuple[int, ...], down: tuple[int, ...], kernel: int, truth: int, tmp_path: Path
) -> None:
    r = replayer(copying(up, down, kernel), tmp_path)
    assert step_us(r) == pytest.approx(sum(up) + sum(down) + kernel, abs=15)
    assert step_us(r, fix("overlap_copy")) == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(("add", "collective"), [(40, 100), (80, 100), (80, 50)])
def test_fewer_kernels_hide_less_of_the_collectives(add: int, collective: int, tmp_path: Path) -> None:
    """A product of 20 us, two elementwise kernels and a collective. Beside each other the longer part stays,
    also once the kernels take less."""
    rows = (scenes.GEMM, 20), (scenes.ADD, add), (scenes.ADD, add), (scenes.NCCL, collective)
    r = replayer(scenes.kernels(*rows), tmp_path)
    beside, fused = fix("overlap_communication"), fix("fuse_elementwise")
    both = step_us(r, beside, fused)
    assert both >= collective
    assert both == pytest.approx(max(20 + 1.5 * add, collective), rel=0.1)
    assert step_us(r, fused, beside) == pytest.approx(both, rel=0.1)


@pytest.mark.parametrize(("kernel", "code"), [(40, 30), (80, 60), (80, 10)])
def test_a_host_ahead_of_the_gpu_still_takes_its_time(kernel: int, code: int, tmp_path: Path) -> None:
    """Six products a step, launched further and further ahead; twice as fast they wait for the host, if that
    takes longer: however few steps were recorded."""
    launch, count, steps = 5, 6, 8
    host = count * (launch + code)
    export = Export().gpu(name="NVIDIA H200").process(1)
    at, free = 0, 20 * US
    for i in range(steps):
        export.range(f"iteration {i}", at, at + host * US - 1)
        for _ in range(count):
            free = max(free, at + (launch + 2) * US)
            gemm = {"kernel": scenes.GEMM, "kernel_start": free, "kernel_dur": kernel * US}
            export.launch(at=at, dur=launch * US, grid=(4096, 1, 1), **gemm)
            free += kernel * US
            at += (launch + code) * US
    r = replayer(export, tmp_path)
    assert step_us(r) == pytest.approx(count * kernel, rel=0.02)
    made = step_us(r, fix("tensor_rate", precision="fp8"))
    product = count * kernel * 0.55  # the rate doubles, less a tenth
    assert made == pytest.approx(max(host, product), rel=0.1)
