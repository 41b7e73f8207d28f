"""A host thread that feeds a GPU: a script says what happens, the times follow from it.

    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for _ in range(40):
                m.launch(GEMM, 3)
            m.wait()
    path = m.write(folder)

Times are microseconds. A stream runs its work in order; work starts 2 us after its call returned or
when the stream is free. A queue holds a thousand operations, after which a launch call waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.builder import Export

SMS = 132
FULL = 2 * SMS  # blocks that fill the device twice


class Kernel(NamedTuple):
    name: str
    blocks: int = FULL


#: As an LLM on a Hopper GPU names them.
GEMV = Kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT")
GEMM = Kernel("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT")
DECODE_ATTENTION = Kernel(
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, false>(params)"
)
PREFILL_ATTENTION = Kernel(
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(params)"
)
NORM = Kernel("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, int)")
SILU = Kernel("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*)")
ADD = Kernel(
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul>>(int, at::native::CUDAFunctor_add<c10::BFloat16>)"
)
MUL = Kernel(
    "void at::native::elementwise_kernel<128, 4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float>>>(int, int)"
)
ALL_REDUCE = Kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24)

#: One layer of a decoder at batch 1, in us.
DECODE_LAYER: tuple[tuple[Kernel, float], ...] = (
    (NORM, 2), (GEMV, 6), (DECODE_ATTENTION, 4), (GEMV, 5), (NORM, 2), (GEMV, 9), (SILU, 2),
    (GEMV, 9),
)  # fmt: skip


class Machine:
    """`now` is the host's time in us. `export` takes anything that the script adds itself."""

    def __init__(
        self,
        export: Export | None = None,
        *,
        gpu: str | None = "NVIDIA H200",
        pid: int = 100,
        device: int = 0,
        start: float = 0,
        queue: int = 1_000,
        export_options: dict[str, Any] | None = None,
    ) -> None:
        """`gpu` describes the device in a new export; with `export` another machine's is shared."""
        if export is None:
            export = Export(**(export_options or {}))
            if gpu is not None:
                export.gpu(name=gpu)
        self.export = export.process(pid)
        self._pid, self._device, self._queue = pid, device, queue
        self.now = start
        self._free: dict[int, float] = {}
        self._ends: list[float] = []
        self._ran: list[tuple[float, float, Kernel]] = []
        self._graphs: dict[tuple[Kernel, ...], int] = {}

    # ------------------------------------------------------------------ work

    def launch(
        self,
        kernel: Kernel,
        us: float,
        *,
        call: float = 4,
        stream: int = 7,
        callchain: int | None = None,
        blocking: bool = False,
        **columns: Any,
    ) -> None:
        """A kernel of so many us. The host needs 1 us to its next call; a `blocking` call returns when the
        kernel has run, and 5 us more."""
        self._here()
        blocked = self._ends[-self._queue] if len(self._ends) >= self._queue else 0
        back = max(self.now + call, blocked)
        start, end = self._occupy(stream, back + 2, us)
        back = end + 5 if blocking else back
        self._ran.append((start, end, kernel))
        self.export.call(
            "cudaLaunchKernel_v7000", _ns(self.now), _ns(back - self.now), callchain=callchain
        ).kernel(
            _ns(start),
            _ns(us),
            kernel.name,
            stream=stream,
            device=self._device,
            **{"grid": (kernel.blocks, 1, 1)} | columns,
        )
        self.now = back + 1

    def layers(self, count: int, layer: Sequence[tuple[Kernel, float]] = DECODE_LAYER, **how: Any) -> None:
        """Every kernel of so many layers, launched one by one."""
        for kernel, us in list(layer) * count:
            self.launch(kernel, us, **how)

    def replay(
        self,
        count: int,
        layer: Sequence[tuple[Kernel, float]] = DECODE_LAYER,
        *,
        call: float = 70,
        between: float = 0.3,
        mode: str = "node",
    ) -> None:
        """So many layers as one CUDA graph, its nodes `between` us apart."""
        self._here()
        at, nodes = max(self.now + call + 2, self._free.get(7, 0)), []
        for kernel, us in list(layer) * count:
            nodes.append((kernel.name, _ns(at), _ns(us)))
            self._ran.append((at, at + us, kernel))
            at += us + between
        columns = {"grid": (FULL, 1, 1)} if mode == "node" else {}
        graph = self._graphs.setdefault(
            tuple(kernel for kernel, _ in list(layer) * count), len(self._graphs) + 1
        )
        self.export.graph_launch(
            _ns(self.now), _ns(call), nodes, mode, device=self._device, graph=graph, **columns
        )
        self._free[7] = at - between
        self.now += call + 1

    def sample(
        self, levels: dict[Kernel, tuple[int, int, int]], period: float = 100, gpu: int = 0, late: float = 0
    ) -> None:
        """GPU metrics of all that ran so far: `levels` are percent of (SM, DRAM, tensor) activity
        inside each kernel; a sample is their mean over its period, and its stamp is so many us `late`."""
        count = int(self.gpu_free // period) + 1
        mean = [[0.0] * 4 for _ in range(count)]
        for start, end, kernel in self._ran:
            while start < end:
                at = int(start // period)
                until = min(end, (at + 1) * period)
                for i, level in enumerate((100, *levels[kernel])):
                    mean[at][i] += level * (until - start) / period
                start = until
        columns = [[round(row[i]) for row in mean] for i in range(4)]
        self.export.gpu_metrics(
            {
                "GR Active": columns[0],
                "SMs Active": columns[1],
                "DRAM Read Bandwidth": columns[2],
                "DRAM Write Bandwidth": [0] * count,
                "Tensor Active": columns[3],
            },
            _ns(period),
            _ns(late),
            gpu=gpu,
        )

    def copy(
        self,
        kind: str,
        kib: float,
        memory: str = "pinned",
        *,
        gb_per_s: float = 50,
        stream: int = 7,
        api: str = "cudaMemcpyAsync_v3020",
        call: float = 5,
        blocks: bool | None = None,
    ) -> None:
        """A copy; the host waits for one from or to pageable memory, and for `cudaMemcpy`, unless `blocks`
        says otherwise."""
        self._here()
        us = max(kib * 1024 / gb_per_s / 1e3, 1.5)
        if blocks is None:
            blocks = memory == "pageable" or "Async" not in api
        # What blocks copies inside its call; the rest is queued as kernels are.
        start, end = self._occupy(stream, self.now + (2 if blocks else call + 2), us)
        back = end + 3 if blocks else self.now + call
        self.export.copy(
            _ns(self.now),
            _ns(back) - _ns(self.now),
            kind,
            round(kib * 1024),
            memory,
            _ns(start),
            _ns(end) - _ns(start),
            api=api,
            stream=stream,
            device=self._device,
        )
        self.now = back + 1

    def memset(self, us: float = 2, *, api: str = "cudaMemset_v3020") -> None:
        """A memset that the host waits for, unless it is called asynchronous."""
        self._here()
        start, end = self._occupy(7, self.now + 2, us)
        back = self.now + 3 if "Async" in api else end + 3
        self.export.memset(
            _ns(self.now),
            _ns(back) - _ns(self.now),
            1 << 20,
            _ns(start),
            _ns(end) - _ns(start),
            api=api,
            device=self._device,
        )
        self.now = back + 1

    def hold_until(self, us: float) -> None:
        """The device starts nothing of this process before then: another one has its turn."""
        self._free[7] = max(self._free.get(7, 0.0), us)

    # ------------------------------------------------------------------ the host

    def wait(self, api: str = "cudaStreamSynchronize_v3020", stream: int | None = None) -> None:
        """Waits until everything that was launched has run, and 4 us more. With a `stream` only for
        that one (`NO_ID` of tests.builder: for all), and what was waited for is recorded."""
        back = max([self.now, *([self._free[stream]] if stream in self._free else self._free.values())]) + 4
        if stream is None:
            self.call(api, back - self.now)
            return
        self._here()
        self.export.sync(_ns(self.now), _ns(back - self.now), api=api, stream=stream, device=self._device)
        self.now = back + 1

    def join(self, stream: int, on: int) -> None:
        """What follows on one stream starts when all that was issued on the other has ended (an event)."""
        self._free[stream] = max(self._free.get(stream, 0.0), self._free.get(on, 0.0))
        self.call("cudaEventRecord_v3020", 1)
        self.call("cudaStreamWaitEvent_v3020", 1)

    def read_back(self) -> None:
        """Fetches four bytes and waits for them, as `tensor.item()` does."""
        self.copy("DtoH", 4 / 1024, "pinned")
        self.wait()

    def call(self, name: str, us: float, **columns: Any) -> None:
        """A CUDA call that lasts so long."""
        self._here()
        self.export.call(name, _ns(self.now), _ns(us), **columns)
        self.now += us + 1

    def work(self, us: float, range: str | None = None) -> None:
        """Host code of so many us, as an NVTX range if named."""
        if range is not None:
            self._here()
            self.export.range(range, _ns(self.now), _ns(self.now + us))
        self.now += us

    def blocked(self, us: float, function: str) -> None:
        """The thread is inside an operating-system call."""
        self._here()
        self.export.osrt(function, _ns(self.now), _ns(us))
        self.now += us

    def preempted(self, us: float) -> None:
        """Others have the CPU of the thread."""
        self._here()
        self.export.cpu_switch(_ns(self.now), False).cpu_switch(_ns(self.now + us), True)
        self.now += us

    @contextmanager
    def step(self, name: str, *, inline: bool = False) -> Iterator[None]:
        """An NVTX range around what the block does."""
        begin = self.now
        yield
        self._here()
        add = self.export.range_inline if inline else self.export.range
        add(name, _ns(begin), _ns(self.now))

    def write(self, folder: Path, name: str = "trace.sqlite") -> Path:
        return self.export.write(folder / name)

    @property
    def gpu_free(self) -> float:
        """When the last work that was launched ends, us."""
        return max(self._free.values(), default=0.0)

    # ------------------------------------------------------------------ details

    def _here(self) -> None:
        self.export.process(self._pid)

    def _occupy(self, stream: int, earliest: float, us: float) -> tuple[float, float]:
        start = max(earliest, self._free.get(stream, 0.0))
        self._free[stream] = start + us
        self._ends.append(start + us)
        return start, start + us


def _ns(us: float) -> int:
    return round(us * 1_000)


Part = Callable[[Machine], object]


def decode_graphs(
    before: Part | None = None, after: Part | None = None, *, count: int, call: float
) -> Machine:
    """Decode steps of one graph of 40 layers, with something before and after each."""
    m = Machine()
    for i in range(count):
        with m.step(f"decode_step {i}"):
            if before is not None:
                before(m)
            m.replay(40, call=call)
            if after is not None:
                after(m)
            m.read_back()
    return m
