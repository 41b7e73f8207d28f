"""Kernel tables: durations by name or operation, families, launch shapes; and the sums of a whole recording
that `nsys stats` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import KernelFamilies, KernelFamily, step_patterns
from advisor.metrics import limits
from advisor.model.arrays import Array, begins_run, median_of, merged, pieces, sorting, sums_from
from advisor.model.once import cached_property
from advisor.sources.schema import TABLES, Summed
from advisor.sources.trace import Trace

#: Families whose work a fused kernel would do along the way (catalogue: unfused elementwise).
UNFUSED = frozenset(("elementwise", "activation", "norm", "rope", "copy", "softmax", "index", "quantise"))
MATMUL = frozenset(("gemm", "gemv", "conv", "moe"))
ATTENTION = frozenset(("attention",))
#: Helpers of a main kernel, as our own operation names call them.
_HELPERS = ("reduction", "reduce", "combine", "merge", "scheduling")


def is_unknown(kernel: KernelFamily) -> bool:
    """True if only a catch-all pattern matches the name: the kernel may be of any family."""
    return kernel.operation.startswith("other")


def is_helper(kernel: KernelFamily) -> bool:
    """True for the reduction or combining kernel beside a matrix product or attention kernel."""
    return kernel.family in MATMUL | ATTENTION and any(h in kernel.operation for h in _HELPERS)


def is_dequantising(kernel: KernelFamily) -> bool:
    """Kernels that widen quantised values and compute nothing else."""
    return kernel.operation == "dequantise"


def is_quantising(kernel: KernelFamily) -> bool:
    """Kernels that narrow values, or look for their scale, and compute nothing else."""
    return kernel.family == "quantise" and not is_dequantising(kernel)


def is_combining(kernel: KernelFamily) -> bool:
    """Kernels that add up what attention made of the parts of a sequence (split-KV, flash decoding)."""
    return kernel.family in ATTENTION and kernel.traits.get("combines") is True


def is_product(kernel: KernelFamily) -> bool:
    return kernel.family in ("gemm", "gemv")


def is_simt_fp32(kernel: KernelFamily) -> bool:
    """Products in FP32 on the ordinary cores."""
    return kernel.family in MATMUL and kernel.traits.get("simt_fp32") is True


def is_tf32(kernel: KernelFamily) -> bool:
    """Products of FP32 operands on the tensor cores."""
    return kernel.family in MATMUL and kernel.traits.get("precision") == "tf32"


def convolves_slowly(kernel: KernelFamily) -> bool:
    """Convolutions on a path that libraries fall back to: multiplied on the ordinary cores, or unfolded."""
    return kernel.family == "conv" and "convolves" in kernel.traits


def weight_bits(kernel: KernelFamily) -> int:
    """Bits of a weight that a matrix kernel reads, by its name; 16 where the name does not say."""
    if kernel.traits.get("quantised") is True:
        return 4
    return {"fp8": 8, "fp4": 4}.get(str(kernel.traits.get("precision")), 16)


class Names(Struct, frozen=True, dict=True):
    """Distinct kernel names of a capture. `index[i]` is the position of kernel row i's name."""

    ids: Array
    texts: list[str]
    short: list[str]
    index: Array
    known: list[KernelFamily]

    def mask(self, wanted: Any) -> Array:
        """Names for which `wanted(KernelFamily)` is true."""
        return np.array([bool(wanted(k)) for k in self.known], bool)

    @cached_property
    def families(self) -> list[str]:
        return [k.family for k in self.known]

    @cached_property
    def operations(self) -> list[str]:
        return [k.operation for k in self.known]


def kernel_names(trace: Trace, families: KernelFamilies) -> Names:
    """Names, families and operations of all kernels; each distinct name is classified once. Of a capture
    that holds sums alone, `index` has an entry for each of them."""
    if trace.summed:
        found = sums_of(trace, Summed.KERNELS).names
        each = np.arange(len(found))
        return Names(each, found, [base_name(n) for n in found], each, families.classify(found))
    columns = trace.columns("kernels", ("name_id", "short_name_id"))
    ids, index = dense(columns["name_id"])
    texts = trace.texts(ids.tolist())
    short_ids = np.zeros(len(ids), np.int64)
    short_ids[index] = columns["short_name_id"]
    short = [s or t for s, t in zip(trace.texts(short_ids.tolist()), texts, strict=True)]
    names = Names(ids, texts, short, index.astype(np.int32), families.classify(texts))
    nameless = [i for i, text in enumerate(texts) if families.is_nameless(text)]
    return _named_by_launch(trace, names, families, nameless) if nameless else names


def _named_by_launch(trace: Trace, names: Names, families: KernelFamilies, nameless: list[int]) -> Names:
    """Names that stand for kernels of several kinds become one entry for each kind."""
    columns = trace.columns("kernels", ("start", "end", "registers", "shared_bytes"))
    start, end, registers, shared = columns.values()
    index, known = names.index.copy(), list(names.known)
    origin = list(range(len(known)))
    for i in nameless:
        rows = np.flatnonzero(index == i)
        keys, kind = dense(registers[rows].astype(np.int64) << 32 | shared[rows])
        found: dict[str, int] = {}  # operation -> position
        for k in range(len(keys)):
            mine = rows[kind == k]
            launch = int(registers[mine[0]]), int(shared[mine[0]]), median_of(end[mine] - start[mine])
            by_launch_shape = families.by_launch(names.texts[i], *launch)
            if not found:
                known[i] = by_launch_shape
            elif by_launch_shape.operation not in found:
                known.append(by_launch_shape)
                origin.append(i)
            index[mine] = found.setdefault(by_launch_shape.operation, len(known) - 1 if found else i)
    texts, short = ([column[i] for i in origin] for column in (names.texts, names.short))
    return Names(names.ids[origin], texts, short, index, known)


def dense(values: Array) -> tuple[Array, Array]:
    """Distinct integers, ascending, and the position of each value among them: `np.unique` with an
    inverse, by table instead of sorting a million of them (3 to 10 times faster)."""
    if len(values) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    lo, hi = int(values.min()), int(values.max())
    if lo == hi:  # one process, one device: most captures
        return np.array([lo]), np.zeros(len(values), np.int64)
    if hi - lo > min(_WIDEST, 16 * len(values) + 1000) or hi >= 1 << 63:  # and keys of 64 bits
        return _hashed(values) if len(values) > _FEW else np.unique(values, return_inverse=True)
    seen, at = np.zeros(hi - lo + 1, bool), np.empty(len(values), np.intp)
    np.subtract(values, lo, out=at, casting="unsafe")
    seen[at] = True
    known = np.flatnonzero(seen)
    if len(known) < len(seen):
        number = np.cumsum(seen) - 1
        for piece in pieces(len(at)):  # in place: a second column of positions takes as much again
            at[piece] = number[at[piece]]
    return known + lo, at


#: Entries of a table over all integers from the least to the greatest; up to this many values are sorted.
_WIDEST, _FEW = 4_000_000, 50_000
#: Slots of the table that keys are hashed to, as a power of two, and the multiplier of
#: Fibonacci hashing (Knuth, The Art of Computer Programming, 3, section 6.4).
_SLOT_BITS, _MULTIPLIER = 18, np.uint64(0x9E3779B97F4A7C15)


def _hashed(values: Array) -> tuple[Array, Array]:
    """`dense` for integers far apart: one value holds a slot, the few others of it are sorted."""
    group, holder = np.empty(len(values), np.intp), np.zeros(1 << _SLOT_BITS, values.dtype)
    for piece in pieces(len(values)):
        group[piece] = (values[piece].astype(np.uint64) * _MULTIPLIER) >> np.uint64(64 - _SLOT_BITS)
        holder[group[piece]] = values[piece]
    used = np.bincount(group, minlength=len(holder)) > 0
    known, number, others = holder[used], np.cumsum(used) - 1, list[Array]()
    for piece in pieces(len(values)):
        others.append(np.flatnonzero(holder[group[piece]] != values[piece]) + piece.start)
        group[piece] = number[group[piece]]
    other = np.concatenate(others)
    more, group_of_other = np.unique(values[other], return_inverse=True)
    group[other] = group_of_other + len(known)
    known = np.concatenate((known, more))
    order = np.argsort(known)
    rank = np.argsort(order)
    for piece in pieces(len(values)):
        group[piece] = rank[group[piece]]
    return known[order], group


def extremes(group: Array, values: Array, groups: int) -> tuple[Array, Array]:
    """Least and greatest integer of each group, the latter at least 0; an empty group has the greatest
    possible integer and 0. Each pair of group and value is visited once."""
    lo = int(values.min(initial=0))
    width = int(values.max(initial=0)) - lo + 1
    if groups * width < 1 << 63:  # else a value at the end of its type
        pairs = dense(group.astype(np.int64) * width + (values - lo))[0]
        group, values = pairs // width, pairs % width + lo
    least, most = np.full(groups, np.iinfo(np.int64).max), np.zeros(groups, np.int64)
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return least, most


def heaviest(values: Array, weight: Array | None = None) -> int:
    """The value with the greatest sum of weights, else the most frequent; of equal ones the least."""
    known, at = dense(values)
    return int(known[np.argmax(np.bincount(at, weight))])


def worked(device: Array, time: Array) -> list[int]:
    """The devices that did enough work to be judged."""
    known, at = dense(device)
    total = np.bincount(at, time, len(known))
    return [int(d) for d in known[total >= limits.host.TOUCHED_RATIO * total.max(initial=0.0)]]


class Distribution(Struct, frozen=True):
    """Durations by group, ns. Arrays have one entry a group; empty groups hold zeros.

    `tail` is the time lost in slow calls, sum of max(0, duration - p50) (nsys-profiling skill).
    """

    count: Array
    total: Array
    minimum: Array
    p50: Array
    p95: Array
    p99: Array
    maximum: Array
    tail: Array


def nth_alike(*columns: Array) -> Array:
    """The number of earlier rows that equal each row in all columns."""
    order, nth = sorting(*columns), np.arange(len(columns[0]))
    first = np.flatnonzero(begins_run(*(column[order] for column in columns)))
    nth -= np.repeat(first, np.diff(np.append(first, len(nth))))
    if isinstance(order, slice):
        return nth
    out = np.empty_like(nth)
    out[order] = nth
    return out


def distribution(group: Array, duration: Array, groups: int) -> Distribution:
    """Quantiles by group with one sort. Percentiles are nearest-rank on sorted durations, the
    median is the mean of the middle two, as `nsys stats` has it."""
    count = np.bincount(group, minlength=groups)
    most, half = int(duration.max(initial=0)), max(32 - groups.bit_length(), 0)
    if duration.min(initial=0) >= 0 and most < 1 << 40:
        # One composite key sorts several times faster than a lexsort, one of 32 bits in half the time.
        bits, kind = (half, np.uint32) if most < 1 << half else (40, np.uint64)
        ranked: Array = np.left_shift(group, bits, dtype=kind, casting="unsafe")
        np.bitwise_or(ranked, duration, out=ranked, dtype=kind, casting="unsafe")
        ranked.sort()
        ranked &= (1 << bits) - 1
    else:
        ranked = duration[np.lexsort((duration, group))]
    del group, duration  # large: often nobody else holds them
    first, some = np.cumsum(count) - count, count > 0
    cuts = merged(first[some], (first + count // 2)[some])
    before = np.append(0, np.cumsum(sums_from(ranked, cuts))) if len(cuts) else cuts

    def at(position: Array) -> Array:
        out = np.zeros(groups)
        out[some] = ranked[(first + position)[some]]
        return out

    last = np.maximum(count - 1, 0)
    p50 = (at(last // 2) + at((last + 1) // 2)) / 2
    # Rank ceil(q x n) of the sorted calls, counted from 1.
    p95, p99 = (at(np.maximum(np.ceil(q * count).astype(np.int64) - 1, 0)) for q in (0.95, 0.99))
    begin, middle, end = (before[np.searchsorted(cuts, first + n)] for n in (0, count // 2, count))
    tail = end - middle - p50 * (count - count // 2)  # only the upper half lies above the median
    total = (end - begin).astype(float)
    return Distribution(count, total, at(count * 0), p50, p95, p99, at(last), tail)


def kernel_rows(trace: Trace, names: Names) -> tuple[Array, Array]:
    """Time (ns) of each entry of `Names.index`, and how many kernels it stands for."""
    if trace.summed:
        found = sums_of(trace, Summed.KERNELS)
        return found.total, found.count
    span = trace.columns("kernels", ("start", "end"))
    return (span["end"] - span["start"]).astype(float), np.ones(len(names.index))


def composition(labels: Sequence[str], index: Array, duration: Array) -> dict[str, float]:
    """Kernel time in ns by the labels of the names that `index` numbers, largest first."""
    by_name = np.bincount(index, duration, minlength=len(labels))
    out: dict[str, float] = {}
    for label, time in zip(labels, by_name.tolist(), strict=True):
        if time:
            out[label] = out.get(label, 0.0) + time
    return dict(sorted(out.items(), key=lambda kv: (-kv[1], kv[0])))


def launch_shape(trace: Trace, rows: Array | slice) -> Array:
    """One integer for grid and block sizes of each of these rows; collisions do not matter for counting."""
    factors = {"grid_x": 1_000_003, "grid_y": 7_919, "grid_z": 104_729, "threads": 31}
    columns = trace.columns("kernels", tuple(factors))
    out = np.zeros(len(columns["threads"][rows]), np.int64)
    for name, by in factors.items():
        out += np.multiply(columns[name][rows], by, dtype=np.int64)
    return out


def call_key(name: Array, shape: Array) -> Array:
    """A key of each call's kernel and launch shape."""
    return np.asarray(name.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ shape.astype(np.uint64))


def shorten(name: str, width: int) -> str:
    """Cut in the middle, where template arguments are least informative."""
    if len(name) <= width:
        return name
    head = (width - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


# --- sums of a whole recording by name, as nsys stats prints them ---------------------------------

_STATISTICS = TABLES["sums"][2:]


class Sums(Struct, frozen=True):
    """One report, a row a name. `count`, then ns (bytes of `SIZES`); NaN if it was not printed."""

    names: list[str]
    count: Array
    total: Array
    median: Array
    least: Array
    most: Array
    deviation: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.total / np.maximum(self.count, 1))

    def __len__(self) -> int:
        return len(self.names)

    def take(self, mask: Array) -> Sums:
        names = [n for n, wanted in zip(self.names, mask, strict=True) if wanted]
        return Sums(names, *(getattr(self, f)[mask] for f in list(self.__struct_fields__)[1:]))


def sums_of(trace: Trace, report: Summed) -> Sums:
    """The rows of one report, largest total first; those of one name (threads, devices) are one:
    its median is that of the rows' medians, by count."""
    columns = trace.columns("sums", ("report", "name_id", *_STATISTICS))
    mine = np.flatnonzero(columns["report"] == report)
    ids, at = np.unique(columns["name_id"][mine], return_inverse=True)
    value = {n: columns[n][mine].astype(float) for n in _STATISTICS}
    median = np.where(np.isnan(value["median"]), value["average"], value["median"])
    count, total = (np.bincount(at, np.nan_to_num(value[n]), minlength=len(ids)) for n in ("count", "total"))
    least, most = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.fmin.at(least, at, value["least"])
    np.fmax.at(most, at, value["most"])
    middle = np.array([weighted_median(median[at == i], value["count"][at == i]) for i in range(len(ids))])
    # Of rows of one name: the mean of the squares, less the square of the mean.
    squares = value["count"] * (value["deviation"] ** 2 + value["average"] ** 2)
    mean = total / np.maximum(count, 1)
    spread = np.bincount(at, squares, minlength=len(ids)) / np.maximum(count, 1) - mean**2
    deviation = np.sqrt(np.maximum(spread, 0))
    order = np.argsort(-total, kind="stable")
    names = trace.texts(ids[order].tolist())
    least, most = (np.where(np.isfinite(v), v, np.nan) for v in (least, most))
    return Sums(names, *(v[order] for v in (count, total, middle, least, most, deviation)))


def weighted_median(values: Array, weight: Array) -> float:
    """The median of `values` that each occur `weight` times; NaN without any. It is exact if all calls of
    a name take about equally long."""
    known = ~np.isnan(values) & (weight > 0)
    values, weight = values[known], weight[known]
    if not len(values):
        return float("nan")
    order = np.argsort(values, kind="stable")
    reach = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reach, reach[-1] / 2)])


def steps_of(ranges: Sums) -> int:
    """Passes (else loops) counted by the ranges, 0 if none is named like one."""
    patterns, count = step_patterns(), {"pass": 0.0, "loop": 0.0}
    for name, times in zip(ranges.names, ranges.count.tolist(), strict=True):
        if hit := patterns.step(name):
            count[hit.kind] += times
    return round(count["pass"] or count["loop"])


def base_name(name: str) -> str:
    """A kernel's name without return type, template and call arguments."""
    plain, before = name, ""
    while plain != before:
        before, plain = plain, re.sub(r"<[^<>]*>|\([^()]*\)", "", plain)
    return plain.split("<")[0].split("(")[0].split()[-1:][0] if plain.split() else name
