"""Small captures: steps of one repeating pattern, in us, so that step times can be worked out."""

from __future__ import annotations

from collections.abc import Callable

from tests.builder import Export
from tests.gain.support import US

#: Writes one step that begins at a time (ns).
Step = Callable[[Export, int], object]

GEMM = "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()"
ATTENTION = "flash_fwd_splitkv_kernel"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def capture(step: Step, period: int, steps: int = 6, **gpu: object) -> Export:
    """`steps` steps of `period` us, each inside a range; the window leaves the first out."""
    export = Export().gpu(**gpu).process(1)  # type: ignore[arg-type]
    for i in range(steps):
        begin = i * period * US
        export.range(f"iteration {i}", begin, begin + period * US - 1)
        step(export, begin)
    return export


def eager(count: int = 20, slot: int = 20, kernel: str = "k") -> Export:
    """`count` launches a step, one each `slot` us: calls of 5, kernels of 3 that start 2 later."""

    def step(e: Export, t: int) -> None:
        for k in range(count):
            at = t + k * slot * US
            e.launch(at=at, dur=5 * US, kernel=kernel, kernel_start=at + 7 * US, kernel_dur=3 * US)

    return capture(step, count * slot)


def waiting(*, kernel: int = 100, gap: int = 50, gc: int = 0, gil: int = 0) -> Export:
    """A launch [0, 5), its kernel [7, 7 + kernel), a wait from 6 that returns 5 after it, then
    `gap` of host code, the last part of which is garbage collection or waiting for the GIL."""
    back = 7 + kernel + 5

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel="k", kernel_start=t + 7 * US, kernel_dur=kernel * US)
        e.sync(at=t + 6 * US, dur=(back - 6) * US)
        end = t + (back + gap) * US
        if gc:
            e.range("Python GC", end - gc * US, end)
        if gil:
            e.range("Waiting for GIL", end - gil * US, end)

    return capture(step, back + gap)


def reading_back() -> Export:
    """As `waiting` with a kernel of 100 us, of which 8 bytes are read back before the wait: the
    host needs what it waits for. Steps of 200 us."""

    def step(e: Export, t: int) -> None:
        e.launch(at=t, dur=5 * US, kernel_start=t + 7 * US, kernel_dur=100 * US)
        e.copy(at=t + 10 * US, dur=5 * US, kind="DtoH", bytes=8, copy_start=t + 108 * US, copy_dur=2 * US)
        e.sync(at=t + 16 * US, dur=99 * US)

    return capture(step, 200)


def copying(memory: str = "pageable") -> Export:
    """A megabyte from the host: the copy [5, 105) holds its call [0, 110); a launch [115, 120), its
    kernel [122, 142); 80 us of host code."""

    def step(e: Export, t: int) -> None:
        e.copy(at=t, dur=110 * US, bytes=1_000_000, memory=memory, copy_start=t + 5 * US, copy_dur=100 * US)
        e.launch(at=t + 115 * US, dur=5 * US, kernel="k", kernel_start=t + 122 * US, kernel_dur=20 * US)

    return capture(step, 200)


def kernels(
    *rows: tuple[str, int],
    grid: int = 132,
    threads: int = 128,
    steps: int = 6,
    step: str = "iteration",
    gpu: str = "NVIDIA H200",
) -> Export:
    """A step of one graph: kernels of (name, us), 1 us apart. The host launches one each 25 us and
    runs ahead, so the device limits."""
    export = Export().gpu(name=gpu).process(1)
    at = 30 * US
    for i in range(steps):
        export.range(f"{step} {i}", i * 25 * US, i * 25 * US + 24 * US)
        nodes = []
        for name, length in rows:
            nodes.append((name, at, length * US))
            at += (length + 1) * US
        export.graph_launch(
            at=i * 25 * US, dur=20 * US, nodes=nodes, grid=(grid, 1, 1), block=(threads, 1, 1)
        )
    return export


def sampled(
    *rows: tuple[str, int, int, int],
    grid: int = 1,
    steps: int = 6,
    step: str = "decode_step",
    memory: float = 150e9,
) -> Export:
    """As `kernels`, with samples each 10 us: (name, us, DRAM %, tensor %), one kernel right behind
    the other and all a multiple of 10 us long, so that each sample lies in one of them."""
    export = Export().gpu(memory=memory).process(1)
    at, dram, tensor = 30 * US, [0] * 3, [0] * 3
    for i in range(steps):
        export.range(f"{step} {i}", i * 25 * US, i * 25 * US + 24 * US)
        nodes = []
        for name, length, bytes_, cores in rows:
            nodes.append((name, at, length * US))
            at += length * US
            dram += [bytes_] * (length // 10)
            tensor += [cores] * (length // 10)
        export.graph_launch(at=i * 25 * US, dur=20 * US, nodes=nodes, grid=(grid, 1, 1), block=(1024, 1, 1))
    return export.gpu_metrics(
        {"DRAM Read Bandwidth": dram, "Tensor Active": tensor, "SM Active": [50] * len(dram)},
        period_ns=10 * US,
    )
