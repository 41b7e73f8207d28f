"""Values of decoded events -> columns: exact nanoseconds, integers, ids of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.sources.kineto.decode import Inexact
from advisor.sources.schema import DTOD, DTOH, HTOD, HTOH, MEMORY_KINDS, MISSING, PTOP, UNKNOWN_MEMORY

#: Category -> the kind of its events. Capitals: until 2021. Other categories are skipped: flows, the
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

#: Categories that only this profiler writes, on devices that are not supported.
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

#: The profiler's own overhead; loading of kernels and a full queue are CUDA's.
PROFILER_COST = re.compile(r"(?i)activity buffer|buffer flush|instrumentation|^resource")

_COPY = re.compile(r"(?i)memcpy\s+(\w+)(?:\s*\((.+?)\s*->\s*(.+?)\))?")
_COPY_KINDS = {
    "htod": HTOD, "dtoh": DTOH, "htoa": 3, "atoh": 4, "atoa": 5, "atod": 6, "dtoa": 7,
    "dtod": DTOD, "htoh": HTOH, "ptop": PTOP,
    "hosttodevice": HTOD, "devicetohost": DTOH, "devicetodevice": DTOD, "hosttohost": HTOH,
}  # fmt: skip
#: Bytes of an element, by the name that c10 gives its type.
ELEMENT_BYTES = {
    "bool": 1, "byte": 1, "char": 1, "short": 2, "int": 4, "long": 8, "half": 2, "bfloat16": 2,
    "float": 4, "double": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip

CUDA_DEVICE = 1  # c10::DeviceType; ROCm calls itself CUDA here
MEMORY_OF: dict[int, Literal["cpu", "gpu"]] = {0: "cpu", CUDA_DEVICE: "gpu"}


def copy_kinds(name: str | None, kind: str | None = None) -> tuple[int, int, int]:
    """Direction and memory kinds of `Memcpy HtoD (Pageable -> Device)`. ROCm says `Host`, which may
    be either kind, and in old versions the direction by an argument alone."""
    found = _COPY.search(name or "")
    direction = _COPY_KINDS.get(found[1].lower()) if found else None
    if direction is None:
        direction = _COPY_KINDS.get((kind or name or "").lower().removeprefix("copy"), MISSING)
    if found is None or found[2] is None:
        source = "device" if direction in (DTOH, DTOD, PTOP) else ""
        target = "device" if direction in (HTOD, DTOD, PTOP) else ""
        return direction, memory_kind(source), memory_kind(target)
    return direction, memory_kind(found[2]), memory_kind(found[3])


def memory_kind(text: str) -> int:
    return MEMORY_KINDS.get(text.strip().lower(), UNKNOWN_MEMORY)


Ints = NDArray[np.int64]

#: An invalid time; no clock shows it.
NO_TIME = int(np.iinfo(np.int64).min)

#: Below this many microseconds (101 days) a float is exact to the nanosecond.
_EXACT_FLOAT = 2.0**43
_RANK = re.compile(r"\[((?:TP|DP|PP|EP)\d+(?:-(?:TP|DP|PP|EP)\d+)*)\] ")
#: Times beyond this many microseconds are invalid.
_LATEST = 1 << 52


def _array(values: Sequence[Any]) -> NDArray[Any]:
    """The values as an array; empty and of objects if they are not uniform."""
    try:
        return np.array(values)
    except (ValueError, OverflowError):
        return np.empty(0, object)


def nanoseconds(microseconds: Sequence[Any]) -> Ints:
    """Microseconds as written -> ns, exactly; NO_TIME for anything else. Raises Inexact for floats that have
    lost their nanoseconds: the numbers must then be read as decimals."""
    array = _array(microseconds)
    if array.ndim != 1:
        array = np.empty(0, object)
    if array.dtype == np.int64 and (np.abs(array) < _LATEST).all():
        return np.asarray(array * 1000)
    if array.dtype == np.float64 and (np.abs(array) < _EXACT_FLOAT).all():
        whole = np.floor(array)
        fraction = np.rint((array - whole) * 1000).astype(np.int64)
        return np.asarray(whole.astype(np.int64) * 1000 + fraction)
    return np.array([_exact(value) for value in microseconds], np.int64)


def _exact(value: Any) -> int:
    if not isinstance(value, Decimal):
        if isinstance(value, float) and abs(value) >= _EXACT_FLOAT and not value.is_integer():
            raise Inexact
        try:
            value = Decimal(str(value))
        except InvalidOperation:
            return NO_TIME
    if not value.is_finite() or abs(value) >= _LATEST:
        return NO_TIME
    return int((value * 1000).to_integral_value())


def integer(value: Any) -> int:
    """A whole number, also from text such as `stream 7`; MISSING for anything else."""
    if isinstance(value, str):
        digits = value.strip().rpartition(" ")[2]
        value = int(digits) if digits.isascii() and digits.isdigit() else MISSING
    if isinstance(value, float | Decimal):
        try:
            value = int(value)
        except (ValueError, OverflowError):
            return MISSING
    if isinstance(value, bool) or not isinstance(value, int):
        return MISSING
    return value if -(1 << 63) <= value < 1 << 63 else MISSING


def rank_label(pid: Any) -> str | None:
    """``TP00-DP01`` of ``[TP00-DP01] 123``, as SGLang writes process ids where it merges the traces
    of its ranks (sglang/srt/utils/profile_merger.py of 0.5.23); None for any other."""
    found = _RANK.match(pid) if isinstance(pid, str) else None
    return found[1] if found else None


def rank_order(label: str) -> tuple[int, ...]:
    """Ranks in the order of the merged file: by data, expert, pipeline, then tensor parallelism."""
    parts = {part[:2]: int(part[2:]) for part in label.split("-")}
    return tuple(parts.get(kind, 0) for kind in ("DP", "EP", "PP", "TP"))


def integers(values: Sequence[Any]) -> Ints:
    """`integer` of each value, vectorised if all of them are whole numbers."""
    array = _array(values)
    if array.dtype == np.int64 and array.ndim == 1 and len(array):
        return array
    return np.array([integer(value) for value in values], np.int64)


def triples(values: Sequence[Any]) -> Ints:
    """Grid or block sizes, three a row; a row of MISSING for anything else."""
    array = _array(values)
    if array.dtype == np.int64 and array.shape == (len(values), 3):
        return array
    rows = [
        [integer(n) for n in v] if isinstance(v, list | tuple) and len(v) == 3 else [MISSING] * 3
        for v in values
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def product(sizes: Ints) -> Ints:
    """x * y * z of `triples`; MISSING if one of them is."""
    return np.where((sizes == MISSING).any(axis=1), MISSING, sizes.prod(axis=1))


class Pool(dict[str, int]):
    """Ids of texts, in the order of their first use."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def ids(self, texts: Sequence[str | None]) -> Ints:
        return np.array([self[text or ""] for text in texts], np.int64)
