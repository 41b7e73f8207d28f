"""Transfers that move half of their bytes, where the capture shows the rate of the link."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.gain.estimate import Replayer
from advisor.gain.fixes_transfers import halved_numbers
from advisor.gain.replay_ops import NoEstimate
from advisor.metrics.profiled.stage import measure
from advisor.pipeline.diagnose import open_trace
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer, step_us
from tests.kineto_builder import Profile


def exchanging(folder: Path, mebibytes: float, times: tuple[int, ...] = (100,)) -> Replayer:
    """Steps of ten kernels of 20 us and a collective of so many us behind each in turn, launched ahead."""
    profile = Profile().gpu().process(100)
    on_gpu = 100 * US
    for i in range(60):
        if i % 10 == 0:
            profile.annotation(f"ProfilerStep#{i // 10}", i * 10 * US, 99 * US)
        at, us = i * 10 * US, times[i % len(times)]
        profile.launch(at, 2 * US, scenes.GEMM, on_gpu, 20 * US)
        told = {
            "Collective name": "allreduce",
            "In msg nelems": round(mebibytes * (1 << 19)),
            "dtype": "BFloat16",
        }
        elements = round(mebibytes * (1 << 19))
        told = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "BFloat16"}
        profile.launch(
            at + 4 * US, 2 * US, scenes.NCCL, on_gpu + 20 * US, us * US, **(told if elements else {})
        )
        on_gpu += (20 + us) * US
    return Replayer(measure(open_trace(profile.write(folder / "trace.json"))))


def test_half_of_the_bytes_take_half_of_the_time(tmp_path: Path) -> None:
    made = exchanging(tmp_path, mebibytes=4)
    won = [step_us(made) - step_us(made, fix("halve_bytes"), lean=lean) for lean in (-1, 0, 1)]
    assert won == [pytest.approx(10 * us, rel=0.02) for us in (25, 50, 50)]
    assert "41.9 GB/s" in halved_numbers(fix("halve_bytes"), made.work)[0]


def test_what_a_transfer_takes_beyond_the_quickest_of_its_size_stays(tmp_path: Path) -> None:
    """Every second one waits 100 us for a rank that is late: that is no transfer."""
    made = exchanging(tmp_path, mebibytes=4, times=(100, 200))
    assert step_us(made) - step_us(made, fix("halve_bytes")) == pytest.approx(10 * 50, rel=0.02)


@pytest.mark.parametrize(
    ("mebibytes", "why"), [(0, "how many bytes its collectives move"), (0.25, "large enough")]
)
def test_without_a_measured_rate_there_is_no_number(tmp_path: Path, mebibytes: float, why: str) -> None:
    made = exchanging(tmp_path, mebibytes)
    with pytest.raises(NoEstimate, match=why):
        step_us(made, fix("halve_bytes"))
    assert halved_numbers(fix("halve_bytes"), made.work) == []


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_copies_between_host_and_device(memory: str, tmp_path: Path) -> None:
    """A copy of 4 MiB in 300 us that a kernel of 100 waits for: half of it takes 150."""

    def step(e: Export, t: int) -> None:
        e.copy(t, 5 * US, bytes=4 << 20, memory=memory, copy_start=t + 7 * US, copy_dur=300 * US)
        e.launch(at=t + 10 * US, dur=5 * US, kernel_start=t + 308 * US, kernel_dur=100 * US)
        e.sync(at=t + 20 * US, dur=393 * US)

    made = replayer(scenes.capture(step, 420), tmp_path)
    halved = fix("halve_bytes", of="copies")
    if memory == "pinned":
        assert step_us(made) - step_us(made, halved) == pytest.approx(150, abs=2)
        assert "14 GB/s" in halved_numbers(halved, made.work)[0]
    else:  # what the host copies first shows no rate of the link
        with pytest.raises(NoEstimate, match="no copies large enough"):
            step_us(made, halved)
