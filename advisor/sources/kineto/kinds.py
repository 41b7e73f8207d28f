"""What Kineto calls things: categories of events, directions of copies, kinds of memory."""

from __future__ import annotations

import re

from advisor.sources.schema import (
    ARRAY,
    DEVICE_MEMORY,
    DEVICE_STATIC,
    DTOD,
    DTOH,
    HTOD,
    HTOH,
    MANAGED,
    MANAGED_STATIC,
    MISSING,
    PAGEABLE,
    PINNED,
    PTOP,
    UNKNOWN_MEMORY,
)

#: Category -> what its events are. Capitals: until 2021. What is not here is skipped: flows, the
#: copies of annotations on the device, sync records that repeat an API call, other accelerators.
ROLES = {
    "kernel": "kernels", "Kernel": "kernels",
    "gpu_memcpy": "copies", "Memcpy": "copies",
    "gpu_memset": "memsets", "Memset": "memsets",
    "cuda_runtime": "api_calls", "cuda_driver": "api_calls", "Runtime": "api_calls",
    "hip_runtime": "api_calls", "hip_driver": "api_calls",
    "user_annotation": "annotations",
    "cpu_op": "operators", "Operator": "old_operators",
    "python_function": "python",
    "overhead": "overheads",
    "cpu_instant_event": "instants",
    "Trace": "spans",
}  # fmt: skip

#: Categories that only this profiler writes, on devices that we cannot judge.
FOREIGN = frozenset({
    "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range", "xpu_runtime",
    "xpu_driver", "mtia_runtime", "mtia_ccp_events", "mtia_insight", "hpu_op", "glow_runtime",
    "privateuse1_runtime", "privateuse1_driver", "collective_comm", "ac2g",
})  # fmt: skip

#: Garbage collection, as recorded on request and as it shows among Python functions.
GC_NAMES = frozenset({"Python GC", "<built-in function collect>"})
GC_NAME = "Python GC"

#: A Python module that ran: its class, and a number for each object of the class.
MODULE_PREFIX = "nn.Module: "
MODULE = re.compile(rf"^{re.escape(MODULE_PREFIX)}(.+?)(?:_\d+)?$")

#: A Python function outside of PyTorch.
FUNCTION = re.compile(r"^(?!(?:.*/)?torch/|<)[^:]+\.py\(\d+\): \w+$")

#: What the profiler itself costs; loading of kernels and a full queue are CUDA's own.
PROFILER_COST = re.compile(r"(?i)activity buffer|buffer flush|instrumentation|^resource")

_COPY = re.compile(r"(?i)memcpy\s+(\w+)(?:\s*\((.+?)\s*->\s*(.+?)\))?")
_COPY_KINDS = {
    "htod": HTOD, "dtoh": DTOH, "htoa": 3, "atoh": 4, "atoa": 5, "atod": 6, "dtoa": 7,
    "dtod": DTOD, "htoh": HTOH, "ptop": PTOP,
    "hosttodevice": HTOD, "devicetohost": DTOH, "devicetodevice": DTOD, "hosttohost": HTOH,
}  # fmt: skip
_MEMORY_KINDS = {
    "pageable": PAGEABLE, "pinned": PINNED, "device": DEVICE_MEMORY, "array": ARRAY,
    "managed": MANAGED, "device static": DEVICE_STATIC, "managed static": MANAGED_STATIC,
}  # fmt: skip

#: Bytes of an element, by the name that c10 gives its type.
ELEMENT_BYTES = {
    "bool": 1, "byte": 1, "char": 1, "short": 2, "int": 4, "long": 8, "half": 2, "bfloat16": 2,
    "float": 4, "double": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip

CUDA_DEVICE = 1  # c10::DeviceType; ROCm calls itself CUDA here


def copy_kinds(name: str | None, kind: str | None = None) -> tuple[int, int, int]:
    """Direction and memory kinds of `Memcpy HtoD (Pageable -> Device)`. ROCm says `Host`, which may
    be either kind, and in old versions the direction by an argument alone."""
    found = _COPY.search(name or "")
    direction = _COPY_KINDS.get(found[1].lower()) if found else None
    if direction is None:
        direction = _COPY_KINDS.get((kind or name or "").lower().removeprefix("copy"), MISSING)
    if found is None or found[2] is None:
        sides = {HTOD: "?d", DTOH: "d?", DTOD: "dd", HTOH: "??", PTOP: "dd"}.get(direction, "??")
        source, target = (DEVICE_MEMORY if s == "d" else UNKNOWN_MEMORY for s in sides)
        return direction, source, target
    return direction, memory_kind(found[2]), memory_kind(found[3])


def memory_kind(text: str) -> int:
    return _MEMORY_KINDS.get(text.strip().lower(), UNKNOWN_MEMORY)
