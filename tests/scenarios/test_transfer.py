"""Uploads: through pageable memory, from pinned memory, and hidden behind kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.scenarios.machine import DECODE_LAYER, GEMM, Kernel, Machine
from tests.scenarios.support import HOST_SIDE, alarms, diagnosed, expect, fact, ranked, severity

MIB = 1024


def upload(memory: str, gb_per_s: float, stream: int = 7) -> Machine:
    """16 MiB a step before one millisecond of kernels."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.copy("HtoD", 16 * MIB, memory, gb_per_s=gb_per_s, stream=stream)
            m.replay(22)
            if stream == 7:
                m.wait()
    return m


def test_pageable_uploads(tmp_path: Path) -> None:
    d = diagnosed(upload("pageable", 8), tmp_path)
    expect(d, "pageable-copies", "transfer-bound", never=("host-gap", "launch-bound", "slow-link"))
    assert fact(d, "copy.pageable_ratio") == pytest.approx(0.68, abs=0.02)


def test_pinned_uploads_on_the_stream_of_the_kernels(tmp_path: Path) -> None:
    d = diagnosed(upload("pinned", 50), tmp_path)
    expect(d, "transfer-bound", never=("pageable-copies", "host-gap", "launch-bound", "slow-link"))
    assert fact(d, "copy.exposed_ratio") == pytest.approx(0.27, abs=0.02)


def test_pinned_uploads_over_half_a_link(tmp_path: Path) -> None:
    d = diagnosed(upload("pinned", 20), tmp_path)
    # Both are high, and the link comes before what has to wait for it.
    expect(d, "slow-link", "transfer-bound", never=("pageable-copies",))
    assert fact(d, "copy.link_rate_ratio") == pytest.approx(20 / 55, abs=0.01)
    (gain,) = (f.gain for f in d.findings if f.cause == "slow-link")
    assert gain is not None
    assert gain.what_if == "full_link_rate"
    assert gain.speedup is not None
    copied = d.budget[0].parts
    share = next(p.share for p in copied if p.part == "htod")
    assert gain.speedup.mid == pytest.approx(1 / (1 - share * (1 - 20 / 55)), rel=0.05)


def test_uploads_hidden_behind_kernels(tmp_path: Path) -> None:
    d = diagnosed(upload("pinned", 50, stream=9), tmp_path)
    assert ranked(d) == []
    assert alarms(d) == []
    assert not HOST_SIDE & {f.cause for f in d.findings}
    assert fact(d, "copy.link_time_ratio") == pytest.approx(0.33, abs=0.03)
    assert fact(d, "copy.exposed_ratio") < 0.03  # type: ignore[operator]


def offloaded(name: str) -> Machine:
    """128 MiB of weights come up before each of eight layers: 21 ms of copies a step of 0.3 ms."""
    m = Machine()
    layer = DECODE_LAYER if name == "decode" else [(Kernel("stencil(double*, int)"), 10)] * 10
    for i in range(6):
        with m.step(f"{name}_step {i}" if name == "decode" else f"iteration {i}"):
            for _ in range(8):
                m.copy("HtoD", 128 * MIB, gb_per_s=50)
                m.layers(1, layer)
            m.wait()
    return m


def test_weights_that_come_up_layer_by_layer_belong_on_the_device(tmp_path: Path) -> None:
    """A copy stream hides nothing of them: the link is busy all the time. Whether they fit on the device
    is not in the capture, so that what this would win is not promised."""
    d = diagnosed(offloaded("decode"), tmp_path)
    expect(d, "transfer-bound")
    found = d.findings[0]
    assert (found.severity, found.recommendations[0].id) == ("medium", "keep-on-device")
    assert found.gain is not None
    assert found.gain.speedup is None


def test_copies_end_with_the_longer_of_copies_and_kernels(tmp_path: Path) -> None:
    """64 MiB at 50 GB/s take 1.34 ms, the kernels of a layer less: prefetched, the link sets the pace."""
    m = Machine()
    for i in range(6):
        with m.step(f"decode_step {i}"):
            for _ in range(8):
                m.copy("HtoD", 64 * MIB, gb_per_s=50)
                m.layers(1, [(Kernel("gemm"), 900)])
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "transfer-bound")
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(10.74, rel=0.05)


def shards(kernel: int, name: str = "train_step") -> Machine:
    """Eight layers, each behind 64 MiB of its weights, which take 1.34 ms to the device."""
    m = Machine()
    for i in range(6):
        with m.step(f"{name} {i}"):
            for _ in range(8):
                m.copy("HtoD", 64 * MIB, gb_per_s=50)
                m.layers(1, [(Kernel("gemm"), kernel)])
            m.wait()
    return m


@pytest.mark.parametrize("name", ["train_step", "decode_step"])
@pytest.mark.parametrize(
    ("kernel", "first", "moved", "removed"),
    [
        (150, "keep-on-device", 10.74, 1.3),  # moving wins 10 %, leaving the data there 89 %
        (300, "keep-on-device", 10.74, 2.5),
        (900, "prefetch-on-copy-stream", 10.74, 7.3),  # 40 of 60 %
        (2000, "prefetch-on-copy-stream", 16.1, 16.1),  # the near miss: the kernels take longer
    ],
)
def test_moving_copies_leads_where_it_wins_half_of_leaving_them_out(
    kernel: int, first: str, moved: float, removed: float, name: str, tmp_path: Path
) -> None:
    """Whether the weights fit on the device is not in the capture: what that would win is no promise."""
    d = diagnosed(shards(kernel, name), tmp_path)
    expect(d, "transfer-bound")
    found = d.findings[0]
    assert found.recommendations[0].id == first
    assert found.gain is not None
    assert found.gain.what_if == "overlap_copy"
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(moved, rel=0.1)
    (kept,) = (a for a in found.recommendations if a.id == "keep-on-device")
    assert kept.condition is not None
    assert "fits into GPU memory" in kept.condition
    assert kept.gain is not None
    assert kept.gain.step_after_ms is not None
    assert kept.gain.step_after_ms.mid == pytest.approx(removed, rel=0.1)
    longer = kernel < 1_340
    assert ("set the pace" in found.message) == longer
    assert ("copy-fewer-bytes" in [a.id for a in found.recommendations]) == longer


def both_ways(up: float, down: float, kernel: float, layers: int = 12) -> Machine:
    """Layers of so many us, with so many MiB up before and down behind each, all on one stream at 50 GB/s."""
    m = Machine()
    for i in range(6):
        with m.step(f"train_step {i}"):
            for _ in range(layers):
                m.copy("HtoD", up * MIB, gb_per_s=50)
                m.launch(GEMM, kernel)
                if down:
                    m.copy("DtoH", down * MIB, gb_per_s=50)
            m.wait()
    return m


@pytest.mark.parametrize(
    ("up", "down", "kernel", "after"),
    [
        (82, 82, 308, 12 * 1.720),  # 20.6 ms up, as much down and 3.7 of kernels
        (60, 41, 2_000, 12 * 2.0),  # the kernels take longer than either
        (41, 60, 900, 12 * 1.258),  # down takes longest
    ],
)
def test_copies_up_and_down_at_once(
    up: float, down: float, kernel: float, after: float, tmp_path: Path
) -> None:
    """A link moves both ways at once: beside the kernels the longer of both sets the pace."""
    d = diagnosed(both_ways(up, down, kernel), tmp_path)
    expect(d, "transfer-bound")
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(after, rel=0.05)
    in_turn = 12 * max((up + down) * MIB * 1024 / 50e6, kernel / 1e3)
    assert gain.step_after_ms.high == pytest.approx(in_turn, rel=0.1)
    assert fact(d, "copy.one_way_ratio") == pytest.approx(
        max(up, down) * MIB * 1024 / 50e3 / ((up + down) * MIB * 1024 / 50e3 + kernel), rel=0.02
    )


def test_copies_one_way_that_hold_nearly_all_are_promised_nothing(tmp_path: Path) -> None:
    """The near miss: the same bytes, all up."""
    found = diagnosed(both_ways(164, 0, 308), tmp_path).findings[0]
    assert found.recommendations[0].id == "keep-on-device"
    assert found.gain is not None
    assert found.gain.speedup is None


def test_a_simulation_that_uploads_all_the_time_is_promised_nothing(tmp_path: Path) -> None:
    """What it uploads may be new in every step."""
    d = diagnosed(offloaded("simulation"), tmp_path)
    expect(d, "transfer-bound")
    found = d.findings[0]
    assert found.severity == "medium"
    assert "copy-fewer-bytes" in [r.id for r in found.recommendations]
    assert found.gain is not None
    assert found.gain.speedup is None


def managed(prefetched: bool) -> Export:
    """Twelve steps of a kernel over 2 MiB that the host fills before and reads after it."""
    cause, e = "prefetch" if prefetched else "fault", Export().gpu().process(1)
    pages = 1 if prefetched else 32

    def migrations(at: int, direction: str) -> None:
        for page in range(pages):
            e.migration(
                at + 40_000 * page, 640_000 // pages // 16, direction, (2 << 20) // pages, cause, page << 16
            )

    for step in range(12):
        at = 3_000_000 * step
        e.range(f"decode_step {step}", at, at + 2_900_000)
        migrations(at + 20_000, "HtoD")
        e.launch(
            at,
            5_000,
            kernel_start=at + (100_000 if prefetched else 10_000),
            kernel_dur=500_000 if prefetched else 1_350_000,
        )
        migrations(at + 1_400_000, "DtoH")
        for page in range(pages):
            e.host_fault(at + 1_380_000 + 40_000 * page)
        e.gpu_fault(at + 15_000, 1_300_000, count=32)
    return e


def test_unified_memory_that_faults_to_and_fro(tmp_path: Path) -> None:
    d = diagnosed(managed(prefetched=False), tmp_path)
    assert "unified-memory-migration" in {f.cause for f in d.findings}
    assert fact(d, "budget.unified_memory_ratio") == pytest.approx(0.43, abs=0.03)
    assert fact(d, "unified.unasked_ratio") == 1
    assert fact(d, "unified.thrash_ratio") == pytest.approx(20 / 22, abs=0.01)
    assert fact(d, "unified.gpu_fault_count") == pytest.approx(32 * 11, abs=32)
    assert fact(d, "unified.host_fault_count") == pytest.approx(32 * 11, abs=32)


def test_unified_memory_that_is_prefetched(tmp_path: Path) -> None:
    d = diagnosed(managed(prefetched=True), tmp_path)
    assert fact(d, "unified.unasked_ratio") == 0
    assert fact(d, "unified.stall_ratio") == 0
    assert fact(d, "unified.migration_ratio") == pytest.approx(0.027, abs=0.005)


def test_downloads_are_not_called_uploads(tmp_path: Path) -> None:
    """The rule about pageable copies speaks of both directions; here nothing goes up."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.copy("DtoH", 4 * 1024, "pageable", gb_per_s=6)
    (found,) = [f for f in diagnosed(m, tmp_path).findings if f.cause == "pageable-copies"]
    assert found.impact is not None
    assert found.impact.part == "dtoh"
    assert found.time_ranges


def test_keys_and_values_sent_behind_each_prefill(tmp_path: Path) -> None:
    """Of 3.2 + 1.6 ms a step, the copies can run beside the kernels: 3.2 ms are left."""
    m = Machine()
    for i in range(12):
        with m.step(f"prefill {i}"):
            m.layers(8, [(GEMM, 400)])
            for _ in range(8):
                m.copy("PtoP", 4_000, "device", gb_per_s=20.48)
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "exposed-peer-copies", never=("gpus-take-turns", "device-copy-churn"))
    assert fact(d, "copy.peer_exposed_ratio") == pytest.approx(1 / 3, abs=0.01)
    gain = next(f.gain for f in d.findings if f.cause == "exposed-peer-copies")
    assert gain is not None
    assert gain.step_after_ms is not None
    assert gain.step_after_ms.mid == pytest.approx(3.23, abs=0.05)


def in_pieces(count: int, kib: float, memory: str) -> Machine:
    """Inputs of a step, each tensor in a copy of its own."""
    m = Machine()
    for i in range(10):
        with m.step(f"forward {i}"):
            for _ in range(count):
                m.copy("HtoD", kib, memory, gb_per_s=12)
            m.layers(20, [(GEMM, 40), (GEMM, 50)])
            m.wait()
    return m


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_uploads_in_many_small_pieces(memory: str, tmp_path: Path) -> None:
    d = diagnosed(in_pieces(600, 16, memory), tmp_path)
    assert "tiny-copies" in ranked(d)[:2]
    (found,) = (f for f in d.findings if f.cause == "tiny-copies")
    assert found.severity == "high"
    assert [r.id for r in found.recommendations] == ["coalesce-copies"]
    assert fact(d, "copy.small_runs") == "600 copies a step to the device, of 16 KiB on average,"
    # That the host waits in each of them is the same time.
    assert "implicit-sync" not in {f.cause for f in d.findings}
    if memory == "pageable":
        assert fact(d, "sync.implicit_small_ratio") == pytest.approx(1.0, abs=0.01)
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    # 9.4 MiB in one copy, and 1.8 ms of products.
    assert found.gain.step_after_ms.mid == pytest.approx(2.0, rel=0.05)
    beside = next(f.gain for f in d.findings if f.cause == "transfer-bound")
    assert beside is not None
    assert beside.step_after_ms is not None
    assert beside.step_after_ms.low > 3  # issuing the copies takes the host as long as before


def test_few_small_uploads(tmp_path: Path) -> None:
    d = diagnosed(in_pieces(7, 16, "pinned"), tmp_path)
    assert "tiny-copies" not in ranked(d)
    assert fact(d, "copy.small_runs") is None


SAXPY = Kernel("saxpy(int, float, float*, float*)")


def examples(
    pieces: int = 1, *, kernel: float = 2_000, copied: bool = True, start_up: float = 150
) -> Machine:
    """A program that copies 40 MB up, computes and copies 40 MB back, each 6.8 ms from pageable memory."""
    m = Machine()
    m.call("cudaMalloc_v3020", start_up)
    for i in range(pieces):
        if copied or i == 0:
            m.copy("HtoD", 40_000, "pageable", gb_per_s=6, api="cudaMemcpy_v3020")
        m.launch(SAXPY, kernel, call=20)
        if copied or i == pieces - 1:
            m.copy("DtoH", 40_000, "pageable", gb_per_s=6, api="cudaMemcpy_v3020")
    return m


COPIES = "transfer-bound", "pageable-copies"


def severities(d: Diagnosis) -> set[str | None]:
    return {severity(d, cause) for cause in COPIES}


@pytest.mark.parametrize("start_up", [150, 120_000])
def test_one_copy_up_one_kernel_and_one_copy_down_dominate_nothing(tmp_path: Path, start_up: float) -> None:
    d = diagnosed(examples(start_up=start_up), tmp_path)
    assert fact(d, "copy.once_ratio") == pytest.approx(13.65 / 15.65, abs=0.01)
    assert severities(d) == {"low"}
    assert max(f.confidence for f in d.findings if f.cause in COPIES) < 0.45
    # The analysis has set start-up aside: it comes behind what it judges.
    assert ("startup-in-window" in ranked(d)[-1:]) == (start_up > 1_000)


def test_copies_that_come_with_every_piece_of_work_dominate(tmp_path: Path) -> None:
    d = diagnosed(examples(6), tmp_path)
    assert fact(d, "copy.once_ratio") == 0.0
    # Pinned copies leave little to hide: that is a part of the same time.
    assert (severity(d, "pageable-copies"), severity(d, "transfer-bound")) == ("high", "low")
    (hidden,) = (f.gain for f in d.findings if f.cause == "transfer-bound")
    assert hidden is not None
    assert hidden.part_of == "XFR101"


def test_copies_around_a_long_kernel_and_around_many(tmp_path: Path) -> None:
    """A kernel of 200 ms, beside which copies take 6 %, and 30 kernels, which are enough to judge: what they
    read counts as start-up, what is copied back not."""
    for name, m in (("long", examples(kernel=200_000)), ("many", examples(30, kernel=200, copied=False))):
        folder = tmp_path / name
        folder.mkdir()
        d = diagnosed(m, folder)
        assert fact(d, "copy.once_ratio") == pytest.approx(0.064 if name == "long" else 0.53, abs=0.01)
        assert min(f.confidence for f in d.findings if f.cause in COPIES) > 0.6
