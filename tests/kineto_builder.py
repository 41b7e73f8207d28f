"""Writes traces of the PyTorch profiler as Kineto does, so that tests can say what was recorded.

    path = (
        Profile()
        .gpu(name="NVIDIA H200", sms=132)
        .process(100)
        .annotation("ProfilerStep#1", 0, 50_000)
        .launch(at=0, dur=5_000, kernel="gemm", kernel_start=7_000, kernel_dur=10_000)
        .sync(at=6_000, dur=12_000)
        .write(tmp_path / "trace.json.gz")
    )

Everything is in ns and counts from the start of the trace. Methods add events and return the
profile; what they leave out gets a sensible value. Correlation ids count up. `event(**fields)` adds
anything else, `head(**keys)` a key beside the events.

`style` is the generation of the format:

    new       torch 2.4 and later: microseconds with three digits, from `baseTimeNanoseconds`
    epoch     2.1 to 2.3: microseconds with three digits since 1970, too long for a float
    whole     1.10 to 2.0: whole microseconds since 1970
    old       1.8 and 1.9: the same, categories in capitals, thread and stream ids as text

`amd=True` names calls as HIP does and leaves out what ROCm does not tell.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

Style = Literal["new", "epoch", "whole", "old"]

EPOCH_NS = 1_713_478_953_123_456_000
BASE_NS = 1_790_857_026_000_000_000
#: Where the trace begins on the clock of the file.
START_NS = {"new": 4_327_283_343_412_757, "epoch": EPOCH_NS, "whole": EPOCH_NS, "old": EPOCH_NS}

OLD_CATEGORIES = {
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "cuda_runtime": "Runtime",
    "cpu_op": "Operator",
    "user_annotation": "Operator",
}

_NUMBER = re.compile(r'"#(-?[0-9.]+)#"')

Grid = tuple[int, int, int]


class Profile:
    """One trace to be. Attributes hold what the next event defaults to."""

    def __init__(self, style: Style = "new", *, amd: bool = False) -> None:
        self.style = style
        self.amd = amd
        self.events: list[Any] = []
        self.devices: list[dict[str, Any]] = []
        self.keys: dict[str, Any] = {"schemaVersion": 1}
        if style == "new":
            self.keys["baseTimeNanoseconds"] = BASE_NS
        if amd:
            self.keys["roctracer_version"] = 4.1
        self.pid = self.tid = 1000
        self.correlation = 0

    # ------------------------------------------------------------------ the head

    def gpu(
        self,
        id: int = 0,
        name: str = "NVIDIA H200",
        sms: int = 132,
        memory: int = 150_109_880_320,
        capability: tuple[int, int] = (9, 0),
    ) -> Self:
        self.devices.append(
            {
                "id": id,
                "name": name,
                "totalGlobalMem": memory,
                "computeMajor": capability[0],
                "computeMinor": capability[1],
                "numSms": sms,
            }
        )
        return self

    def head(self, **keys: Any) -> Self:
        """Keys beside the events; None takes one away."""
        self.keys |= keys
        return self

    # ------------------------------------------------------------------ where events happen

    def process(self, pid: int, tid: int | None = None) -> Self:
        self.pid, self.tid = pid, pid if tid is None else tid
        return self

    def thread(self, tid: int) -> Self:
        self.tid = tid
        return self

    # ------------------------------------------------------------------ the host

    def annotation(self, name: str, at: int, dur: int) -> Self:
        """A record_function range, and the copy of it that the profiler puts on the device."""
        self._span("user_annotation", name, at, dur, self.pid, self.tid, {"External id": 1})
        if self.style != "old":
            self._span("gpu_user_annotation", name, at, dur, 0, 7, {"External id": 1})
        return self

    def op(self, name: str, at: int, dur: int, **args: Any) -> Self:
        """An operator."""
        return self._span("cpu_op", name, at, dur, self.pid, self.tid, {"External id": 2} | args)

    def python(self, name: str, at: int, dur: int) -> Self:
        """A Python function, as recorded with stacks."""
        return self._span("python_function", name, at, dur, self.pid, self.tid, {"Python id": 1})

    def call(
        self,
        name: str,
        at: int,
        dur: int = 1_000,
        *,
        correlation: int | None = None,
        category: str | None = None,
    ) -> Self:
        """An API call; events that belong to it take their id from `self.correlation`."""
        self.correlation = self.correlation + 1 if correlation is None else correlation
        if category is None:
            category = "cuda_runtime" if name.startswith(("cuda", "hip")) else "cuda_driver"
        args = {"cbid": 211, "correlation": self.correlation}
        return self._span(category, name, at, dur, self.pid, self.tid, args)

    def sync(self, at: int, dur: int = 10_000, api: str = "cudaStreamSynchronize") -> Self:
        return self.call(self._api(api), at, dur)

    def overhead(self, name: str, at: int, dur: int) -> Self:
        return self._span("overhead", name, at, dur, -1, 0, None)

    def memory(
        self, at: int, reserved: int, device: int = 0, type: int = 1, allocated: int | None = None
    ) -> Self:
        """The caching allocator's own record; `reserved` is what it holds of the device, `allocated`
        what tensors use of that."""
        in_use = {} if allocated is None else {"Total Allocated": allocated}
        return self.event(
            ph="i",
            cat="cpu_instant_event",
            s="t",
            name="[memory]",
            pid=self.pid,
            tid=self.tid,
            ts=self.us(at),
            args={"Total Reserved": reserved, **in_use, "Device Id": device, "Device Type": type},
        )

    # ------------------------------------------------------------------ the device

    def launch(
        self,
        at: int,
        dur: int = 5_000,
        kernel: str = "kernel",
        kernel_start: int | None = None,
        kernel_dur: int = 10_000,
        *,
        api: str = "cudaLaunchKernel",
        **how: Any,
    ) -> Self:
        """A launch call and its kernel, which by default starts 2 us after the call's end."""
        self.call(self._api(api), at, dur)
        start = at + dur + 2_000 if kernel_start is None else kernel_start
        return self.kernel(start, kernel_dur, kernel, **how)

    def kernel(
        self,
        start: int,
        dur: int = 10_000,
        kernel: str = "kernel",
        *,
        stream: int = 7,
        device: int = 0,
        grid: Grid = (132, 1, 1),
        block: Grid = (128, 1, 1),
        correlation: int | None = None,
        **args: Any,
    ) -> Self:
        """A kernel alone, of the latest call."""
        told: dict[str, Any] = {
            "context": 1,
            "registers per thread": 32,
            "shared memory": 1024,
            "grid": list(grid),
            "block": list(block),
        }
        if self.amd:
            told = {"kind": "Dispatch Kernel"}
        return self._work("kernel", kernel, start, dur, stream, device, correlation, told | args)

    def copy(
        self,
        at: int,
        dur: int = 5_000,
        kind: str = "HtoD (Pageable -> Device)",
        bytes: int = 1 << 20,
        copy_start: int | None = None,
        copy_dur: int = 10_000,
        *,
        api: str = "cudaMemcpyAsync",
        stream: int = 7,
        device: int = 0,
        **args: Any,
    ) -> Self:
        self.call(self._api(api), at, dur)
        start = at + dur + 1_000 if copy_start is None else copy_start
        told = {"context": 1, "bytes": bytes, "memory bandwidth (GB/s)": 1.5} | args
        return self._work("gpu_memcpy", f"Memcpy {kind}", start, copy_dur, stream, device, None, told)

    def memset(self, at: int, dur: int = 3_000, bytes: int = 4096, memset_dur: int = 1_000) -> Self:
        self.call(self._api("cudaMemsetAsync"), at, dur)
        return self._work(
            "gpu_memset",
            "Memset (Device)",
            at + dur + 1_000,
            memset_dur,
            7,
            0,
            None,
            {"context": 1, "bytes": bytes},
        )

    def graph_launch(
        self, at: int, dur: int = 20_000, nodes: Sequence[tuple[str, int, int]] = (), **how: Any
    ) -> Self:
        """A graph launch; `nodes` are (kernel, start, duration)."""
        self.call(self._api("cudaGraphLaunch"), at, dur)
        for kernel, start, length in nodes:
            self.kernel(start, length, kernel, **how)
        return self

    # ------------------------------------------------------------------ anything else

    def event(self, **fields: Any) -> Self:
        self.events.append(fields)
        return self

    def us(self, ns: int) -> str:
        """A time of the trace as the file has it: a number once it is written."""
        return self._us(START_NS[self.style] + ns)

    def text(self) -> str:
        """The JSON."""
        keys = {key: value for key, value in self.keys.items() if value is not None}
        if self.devices:
            keys["deviceProperties"] = self.devices
        document = keys | {"traceEvents": self.events, "traceName": "trace.json"}
        return _NUMBER.sub(r"\1", json.dumps(document))

    def write(self, path: str | Path) -> Path:
        """Writes the file, compressed where its name says so, and returns its path."""
        path = Path(path)
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    # ------------------------------------------------------------------ details

    def _us(self, ns: int) -> str:
        if self.style in ("whole", "old"):
            return f"#{ns // 1000}#"
        return f"#{ns // 1000}.{ns % 1000:03}#"

    def _api(self, name: str) -> str:
        return name.replace("cuda", "hip", 1) if self.amd else name

    def _span(
        self,
        category: str,
        name: str,
        at: int,
        dur: int,
        pid: int,
        tid: int | str,
        args: dict[str, Any] | None,
    ) -> Self:
        if self.style == "old":
            category, tid = OLD_CATEGORIES.get(category, category), str(tid)
            args = {k.replace("External", "external"): v for k, v in (args or {}).items()}
        fields = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": self.us(at),
            "dur": self._us(dur),
        }
        return self.event(**fields | ({} if args is None else {"args": args}))

    def _work(
        self,
        category: str,
        name: str,
        start: int,
        dur: int,
        stream: int,
        device: int,
        correlation: int | None,
        args: dict[str, Any],
    ) -> Self:
        if correlation is None:
            correlation = self.correlation
        place = {"device": device, "stream": stream, "correlation": correlation}
        tid: int | str = f"stream {stream}" if self.style == "old" else stream
        self._span(category, name, start, dur, device, tid, place | args)
        for phase in "sf":  # the arrow from the call
            self.event(
                ph=phase, id=correlation, pid=device, tid=tid, ts=self.us(start), cat="ac2g", name="ac2g"
            )
        return self


def decode(
    steps: int = 12, kernels: int = 40, *, step_ns: int = 1_000_000, profile: Profile | None = None
) -> Profile:
    """An eager loop of annotated steps whose GPU waits for the launches."""
    made = profile or Profile().gpu()
    for step in range(steps):
        begin = step * step_ns
        made.annotation(f"decode_step {step}", begin, step_ns - 10_000)
        for i in range(kernels):
            at = begin + i * 20_000
            made.op("aten::mm", at - 2_000 if at else 0, 15_000)
            made.launch(at=at, kernel=f"gemm_{i % 4}", kernel_dur=3_000)
    return made


def shuffled(events: Iterable[Any], seed: int = 7) -> list[Any]:
    """The events in another order: files do not keep the order of time."""
    import random

    mixed = list(events)
    random.Random(seed).shuffle(mixed)
    return mixed
