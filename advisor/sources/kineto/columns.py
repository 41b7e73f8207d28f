"""Values of decoded events -> columns: exact nanoseconds, integers, ids of texts; and what follows from
several events: processes, graphs, launches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.model.arrays import begins_run, distinct, merged
from advisor.numerals import read_int
from advisor.sources.kineto.decode import Inexact
from advisor.sources.schema import (
    COPY_KINDS,
    DTOD,
    DTOH,
    HTOD,
    MEMORY_KINDS,
    MISSING,
    PTOP,
    UNKNOWN_MEMORY,
    Call,
    Ints,
)
from advisor.sources.trace import Columns

#: Category -> the kind of its events. Capitals: until 2021. Other categories are skipped: flows, the
#: copies of annotations on the device, sync records that repeat an API call, other accelerators.
ROLES = {
    "kernel": "kernels",
    "Kernel": "kernels",
    "gpu_memcpy": "copies",
    "Memcpy": "copies",
    "gpu_memset": "memsets",
    "Memset": "memsets",
    "cuda_runtime": "api_calls",
    "cuda_driver": "api_calls",
    "Runtime": "api_calls",
    "hip_runtime": "api_calls",
    "hip_driver": "api_calls",
    "user_annotation": "annotations",
    "cpu_op": "operators",
    "Operator": "old_operators",
    "python_function": "python",
    "overhead": "overheads",
    "cpu_instant_event": "instants",
    "Trace": "spans",
}

_WITHOUT_ROLE = (
    "gpu_user_annotation cuda_sync cuda_event cuda_profiler_range xpu_runtime xpu_driver mtia_runtime "
    "mtia_ccp_events mtia_insight hpu_op glow_runtime privateuse1_runtime privateuse1_driver "
    "collective_comm ac2g"
)
#: All of them, and those that only this profiler writes, on devices that are not supported.
KNOWN = frozenset((*ROLES, *_WITHOUT_ROLE.split()))

#: Garbage collection, as recorded on request and as it shows among Python functions.
GC_NAMES = frozenset({"Python GC", "<built-in function collect>"})
GC_NAME = "Python GC"

#: A Python module that ran: its class, and a number for each object of the class.
MODULE_PREFIX = "nn.Module: "
MODULE = re.compile(rf"^{re.escape(MODULE_PREFIX)}(.+?)(?:_\d+)?$")

#: A Python function outside of PyTorch.
FUNCTION = re.compile(r"^(?!(?:.*/)?torch/|<)[^:]+\.py\(\d+\): \w+$")

#: Names of threads as Kineto writes them, ``thread 777 (detokenizer)``; streams of GPUs are no threads.
THREAD = re.compile(r"^(?:thread \d+(?: \((.*)\))?|stream -?\d+)$")

#: The profiler's own overhead; loading of kernels and a full queue are CUDA's.
PROFILER_COST = re.compile(r"(?i)activity buffer|buffer flush|instrumentation|^resource")

_COPY = re.compile(r"(?i)memcpy\s+(\w+)(?:\s{0,9}\(([^()>]{1,99}?)\s{0,9}->\s{0,9}([^()]{1,99}?)\))?")
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
    ways = (found[1] if found else "", (kind or name or "").lower().removeprefix("copy"))
    short = (way.lower().replace("host", "h").replace("device", "d") for way in ways)
    direction = next((COPY_KINDS[way] for way in short if way in COPY_KINDS), MISSING)
    if found is None or found[2] is None:
        source = "device" if direction in (DTOH, DTOD, PTOP) else ""
        target = "device" if direction in (HTOD, DTOD, PTOP) else ""
        return direction, memory_kind(source), memory_kind(target)
    return direction, memory_kind(found[2]), memory_kind(found[3])


def memory_kind(text: str) -> int:
    return MEMORY_KINDS.get(text.strip().lower(), UNKNOWN_MEMORY)


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
        number = read_int(digits) if digits.isascii() and digits.isdigit() else None
        value = MISSING if number is None else number
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
    parts = {part[:2]: read_int(part[2:]) or 0 for part in label.split("-")}
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


# --- what follows from several events --------------------------------------------------------------

Tables = dict[str, Columns]

#: Operators whose work depends on numbers among their arguments: strides of convolutions, causal masks, sizes
#: of results.
NUMBERED = re.compile(r"conv|att|mha|flash|upsample")

GPU_WORK = ("kernels", "copies", "memsets")
_ON_GPU = (*GPU_WORK, "collectives")

#: Correlation ids from here on are renumbered, so that tables can be indexed by them.
_LARGE_ID = 1 << 31


def from_zero(tables: Tables, zero: int) -> None:
    """All times from `zero` on."""
    for columns in tables.values():
        for name in ("start", "end", "time"):
            if name in columns:
                columns[name] = columns[name] - zero


def small_ids(tables: Tables) -> None:
    """Correlation ids that fit into an index; small ones stay as they are."""
    used = [tables[t] for t in (*_ON_GPU, "api_calls") if t in tables]
    if max((int(c["correlation"].max()) for c in used), default=0) < _LARGE_ID:
        return
    known = distinct(np.concatenate([c["correlation"] for c in used]))
    known = known[known != MISSING]
    for columns in used:
        ids = columns["correlation"]
        columns["correlation"] = np.where(ids == MISSING, MISSING, np.searchsorted(known, ids) + 1)


#: Work -> the calls that issue it.
_ISSUERS = {"kernels": (Call.LAUNCH, Call.GRAPH_LAUNCH), "copies": (Call.COPY,), "memsets": (Call.MEMSET,)}


def join_by_external_id(tables: Tables) -> None:
    """Gives work the correlation id of its call if both carry only the id of the operator around them, as
    in some ROCm traces: of one operator the first launch has the first kernel, and so on. Remaining work
    belongs to the last launch if that replays a graph."""
    calls = tables.get("api_calls")
    if calls is None:
        return
    highest = max(int(tables[t]["correlation"].max()) for t in (*_ISSUERS, "api_calls") if t in tables)
    unnamed = np.flatnonzero(calls["correlation"] == MISSING)
    calls["correlation"][unnamed] = np.arange(highest + 1, highest + 1 + len(unnamed))
    for table, classes in _ISSUERS.items():
        if table not in tables:
            continue
        work = tables[table]
        issuing = np.isin(calls["call"], classes) & (calls["external"] != MISSING)
        free = issuing & ~np.isin(calls["correlation"], work["correlation"])
        loose = (work["external"] != MISSING) & ~np.isin(work["correlation"], calls["correlation"])
        launch, orphan = np.flatnonzero(free), np.flatnonzero(loose)
        if not len(launch) or not len(orphan):
            continue
        launch = launch[np.lexsort((calls["start"][launch], calls["external"][launch]))]
        begun = calls["external"][launch]
        first = np.searchsorted(begun, work["external"][orphan], "left")
        last = np.searchsorted(begun, work["external"][orphan], "right") - 1
        at = first + _ranks(work["external"][orphan], work["start"][orphan]) - 1
        replays = calls["call"][launch[np.maximum(last, 0)]] == Call.GRAPH_LAUNCH
        at = np.where((at > last) & replays, last, at)
        hit = (last >= first) & (at <= last)
        work["correlation"][orphan[hit]] = calls["correlation"][launch[at[hit]]]


def processes_of_ranks(tables: Tables) -> dict[int, int]:
    """Number of a rank's label -> its process, the one with most calls; empty for a trace of one rank."""
    calls = tables.get("api_calls", {})
    if "label" not in calls:
        return {}
    found = {}
    for label in distinct(calls["label"][calls["label"] != MISSING]).tolist():
        processes, count = np.unique(calls["process"][calls["label"] == label], return_counts=True)
        found[label] = int(processes[np.argmax(count)])
    return found


def set_processes(tables: Tables, ranks: Mapping[int, int]) -> list[int]:
    """Gives GPU work the process that issued it: events on a GPU carry only its number, or the label of a
    rank in `ranks`. Returns the processes that called CUDA."""
    calls = tables.get("api_calls")
    hosts = distinct(calls["process"]) if calls is not None else np.empty(0, np.int64)
    hosts = hosts[hosts != MISSING]
    alone = int(hosts[0]) if len(hosts) == 1 else MISSING
    if len(hosts) == 0 and "ranges" in tables:
        annotated = distinct(tables["ranges"]["process"])
        alone = int(annotated[0]) if len(annotated) == 1 else MISSING
    for table in _ON_GPU:
        if table not in tables:
            continue
        columns = tables[table]
        columns["process"] = np.full(len(columns["start"]), alone, np.int64)
        if ranks and "label" in columns:
            known = np.array([*ranks.values(), MISSING], np.int64)
            number = {label: i for i, label in enumerate(ranks)}
            places = [number.get(label, len(ranks)) for label in columns["label"].tolist()]
            columns["process"] = known[np.array(places, np.int64)]
        elif len(hosts) > 1 and calls is not None:
            at = _latest_call(calls, columns["correlation"], columns["start"])
            columns["process"] = np.where(at >= 0, calls["process"][at], MISSING)
    if "overheads" in tables and alone != MISSING:
        tables["overheads"]["process"][:] = alone
    return [int(host) for host in hosts]


def _latest_call(calls: Columns, correlation: Ints, start: Ints) -> Ints:
    """Row of the call with this correlation id that began last before the work: ids repeat where
    the traces of several ranks were put into one file."""
    order = np.lexsort((calls["start"], calls["correlation"]))
    ids, begun = calls["correlation"][order], calls["start"][order]
    both = np.concatenate((ids, correlation))
    when = np.concatenate((begun, start))
    ranked = np.lexsort((np.arange(len(both)), when, both))
    # Calls come before the work of the same time, so the count of calls so far is the position.
    seen = np.cumsum(ranked < len(ids))
    at = np.empty(len(correlation), np.int64)
    work = ranked >= len(ids)
    at[ranked[work] - len(ids)] = seen[work] - 1
    hit = (at >= 0) & (correlation != MISSING)
    hit &= ids[np.maximum(at, 0)] == correlation
    return np.where(hit, order[np.maximum(at, 0)], MISSING)


def set_graph_nodes(tables: Tables) -> bool:
    """Numbers the work of each graph launch from 1; 0 is work launched by itself. True if any. All nodes
    share the correlation id of their launch. If the launch lies before the trace, several kernels of one id
    still mean a graph."""
    calls = tables.get("api_calls")
    launches = {
        table: _keys(tables[table]["process"], tables[table]["correlation"])
        for table in (*GPU_WORK, "api_calls")
        if table in tables
    }
    if calls is not None:
        keys = launches.pop("api_calls")
        graphs = distinct(keys[(calls["call"] == Call.GRAPH_LAUNCH) & (keys != MISSING)])
        known = distinct(keys)
    else:
        graphs = known = np.empty(0, np.int64)
    if "kernels" in launches:
        ids, count = np.unique(launches["kernels"], return_counts=True)
        orphans = ids[(count > 1) & (ids != MISSING) & ~np.isin(ids, known)]
        graphs = merged(graphs, orphans)
    for table, keys in launches.items():
        inside = np.isin(keys, graphs) & (keys != MISSING)
        tables[table]["graph_node"] = np.where(inside, _ranks(keys), 0)
    return any((tables[table]["graph_node"] != 0).any() for table in launches)


def _keys(process: Ints, correlation: Ints) -> Ints:
    """One integer for (process, correlation), MISSING without a correlation."""
    wide = process.astype(np.int64)
    return np.where(correlation == MISSING, MISSING, (wide + 1) * _LARGE_ID + correlation)


def _ranks(keys: Ints, time: Ints | None = None) -> Ints:
    """Position of each row among those of its key, from 1: in the order of time, else of rows."""
    order = np.argsort(keys, kind="stable") if time is None else np.lexsort((time, keys))
    ranked = keys[order]
    first = np.flatnonzero(begins_run(ranked))
    length = np.diff(np.append(first, len(ranked)))
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(first, length) + 1
    return rank


def set_launches(tables: Tables, nameless: int) -> None:
    """Nameless calls are launches if a kernel came of them: until 2.0 cudaLaunchKernelExC had no name."""
    calls = tables.get("api_calls")
    if calls is None or "kernels" not in tables:
        return
    unknown = (calls["name_id"] == nameless) & (calls["correlation"] != MISSING)
    if unknown.any():
        launched = np.isin(calls["correlation"], tables["kernels"]["correlation"])
        calls["call"] = np.where(unknown & launched, int(Call.LAUNCH), calls["call"])
