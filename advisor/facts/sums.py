"""Facts of sums alone, as `nsys stats` prints them: how much, how often, and never when.

They count the whole recording, start-up included, on all GPUs together. Facts of other modules that are
shares of kernel time, or counts, have here the value that follows from the sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from advisor.facts import needs
from advisor.facts.device import FAMILY_SHARES, is_skinny
from advisor.facts.passes import BY_NAME
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import KernelFamily
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import (
    ATTENTION,
    MATMUL,
    UNFUSED,
    Sums,
    is_unknown,
    shorten,
    steps_of,
    sums_of,
    weight_bits,
    weighted_median,
)
from advisor.model.arrays import Array, among
from advisor.model.facts import Scope, Value
from advisor.model.numbers import value_text
from advisor.sources.schema import Call, Summed, base_name, classify

_KEPT = 20
_ROWS = 200
_SHORT_NS = 10_000
_SMALL_COPY = 4096
#: A copy of at most 4 KiB takes less; used if sizes were not printed.
_SMALL_COPY_NS = 5_000
#: The host's cost of an eager launch (nsys-profiling skill).
_LAUNCH_NS = 5_000
#: A call of this length, and this many times the length of its copy, waits for the device.
_BLOCKS_NS, _BLOCKS_TIMES = 20_000, 5
#: The longest call of a name is start-up from this length on: context creation; a first launch.
_FIRST_NS, _FIRST_LAUNCH_NS = 10_000_000, 1_000_000
_STARTUP = re.compile(
    r"Init$|Ctx(?:Create|Set)|PrimaryCtx|GraphInstantiate|HostAlloc|HostRegister|MallocHost"
)
_DIRECTIONS = {
    r"HtoD|Host-to-Device": "HtoD", r"DtoH|Device-to-Host": "DtoH", r"DtoD|Device-to-Device": "DtoD",
    r"PtoP|Peer-to-Peer": "PtoP", r"memset": "memset",
}  # fmt: skip

_PRODUCTS = Need("the sums hold no matrix product", None)
_COLLECTIVE = Need("the sums hold no collective", None)


def _report(name: str, report: Summed) -> Need:
    supply = f"the table {name} of nsys stats beside them"
    return Need(f"the sums hold no {name}", supply, lambda a: len(sums_of(a.trace, report)) > 0)


_API = _report("cuda_api_sum", Summed.CALLS)
_KERNELS = _report("cuda_gpu_kern_sum", Summed.KERNELS)
_COPIES = _report("cuda_gpu_mem_time_sum", Summed.COPIES)

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.sums_only", "flag", "", "The capture holds sums by name and no times, as nsys stats prints them", "format of the input", columns={}),
        Entry("sums.startup_api_ratio", "ratio", "sums", "Share of the time in CUDA calls that only start-up makes: context creation, module loads, first launches, pinned allocations, building of graphs", "names of calls; the longest call of a name from 10 ms on (launches: 1 ms)", needs=(_API,)),
    ], columns={"sums": "report name_id total most"}, windowed=False),
    *group("device", needs.CUDA, [
        Entry("sums.kernel_ms", "ms", "sums", "Time of all kernels", "sum over kernels and GPUs", needs=(_KERNELS,)),
        Entry("sums.kernel_mean_ns", "ns", "sums", "Mean kernel", "sum / count", needs=(_KERNELS,)),
        Entry("sums.launch_over_kernel", "ratio", "sums", "Time that launching all kernels one by one takes at the usual length of a call, over the time of all kernels", "count x median of each launch call / sum of kernel times", needs=(_KERNELS, _API)),
        Entry("sums.launch_idle_ratio", "ratio", "sums", "Share of that time for which the GPU then has nothing to run, at least", "1 - 1 / sums.launch_over_kernel, at least 0; where no calls were printed, with 5 us a launch (nsys-profiling skill)", needs=(_KERNELS,)),
        Entry("sums.wait_ratio", "ratio", "sums", "Share of the recording in synchronize calls and blocking copies, at most", "sum / the larger of all kernel time and all time in CUDA calls; a copy call blocks without Async in its name, or from 20 us and five times the mean copy on", needs=(_API,)),
        Entry("sums.longest_wait", "text", "sums", "The waiting call with most time", "name, count and mean", needs=(_API, Need("no call of the sums waits"))),
        Entry("sums.allocation_ratio", "ratio", "sums", "Share of the recording in allocation and free calls, at most", "as sums.wait_ratio", needs=(_API,)),
        Entry("sums.copy_ratio", "ratio", "sums", "Share of the time of all kernels, copies and memsets that HtoD and DtoH copies take", "sum / sum", needs=(_KERNELS, _COPIES)),
        Entry("sums.upload_of_copies_ratio", "ratio", "sums", "How much of the HtoD and DtoH time is HtoD", "sum / sum", needs=(_COPIES,)),
        Entry("sums.collective_ratio", "ratio", "sums", "Share of the kernel time in collectives", "sum / sum", needs=(_KERNELS,)),
        Entry("sums.collective_above_least_ratio", "ratio", "sums", "How much of the time of collectives lies above the fastest call of each: waiting for other ranks, or more bytes", "1 - count x least / sum", needs=(_KERNELS, _COLLECTIVE)),
        Entry("sums.product_ratio", "ratio", "sums", "Share of the kernel time without collectives in matrix products", "families gemm, gemv, conv, moe", needs=(_KERNELS,)),
        Entry("sums.skinny_of_products_ratio", "ratio", "sums", "Share of the time of matrix products in GEMV and skinny GEMM kernels", "names and tile sizes", needs=(_KERNELS, _PRODUCTS)),
        Entry("sums.precisions", "text", "sums", "Precisions of the matrix products by time", "names; unnamed where they do not say", needs=(_KERNELS, _PRODUCTS)),
    ], columns={"sums": "report name_id count total median least most"}, windowed=False),
    *group("operation", needs.CUDA, [
        Entry("sums.max_over_p50", "ratio", "sums", "Slowest call over the median one, of the kernel name that loses most", "a name may have several launch shapes"),
        Entry("sums.slowest_deviations", "count", "sums", "How many standard deviations the slowest call of that name is above the mean: high where few calls are slow, low where two sizes of work mix", "(max - mean) / standard deviation", needs=(_KERNELS, Need("the sums hold no standard deviation"))),
        Entry("sums.lost_ratio", "ratio", "sums", "The least share of all kernel time that calls slower than the median lose", "max(sum - count x median, max - median) / sum over all kernels"),
    ], columns={"sums": "report name_id count total median most deviation"}, needs=(_KERNELS,), windowed=False),
)  # fmt: skip


def sums_facts(a: Analysis, out: FactWriter) -> None:
    alone = a.trace.summed
    out.put("capture.sums_only", alone)
    if not alone:
        return
    out = out.at(Scope(device=0))
    kernels, calls, copies, sizes, ranges, _, queue = (sums_of(a.trace, report) for report in Summed)
    steps = steps_of(ranges)
    count = float(kernels.count.sum())
    out.put("capture.step_count", steps)
    if len(ranges):
        out.put("capture.nvtx_range_count", int(ranges.count.sum()))
    if count:
        moved = float(copies.count.sum()) if len(copies) else 0.0
        out |= {"capture.kernel_count": int(count), "capture.gpu_work_count": int(count + moved)}
        _kernels(a, kernels, steps, out)
        _operations(a, kernels, out)
    if len(queue) and kernels.total.sum():
        out.put("launch.queue_over_kernel", float(queue.total.sum() / kernels.total.sum()))

    def rates(counts: dict[str, float | None]) -> None:
        per = f"_per_{'step' if steps else '100_kernels'}"
        whole = steps or count / 100
        if whole:
            for name, number in counts.items():
                out.put(name + per, None if number is None else number / whole)

    directions = np.array([_direction(n) for n in copies.names], str)
    crossing = among(directions, ("HtoD", "DtoH"))
    if len(copies):
        moving = float(copies.total[crossing].sum())
        busy = float(copies.total.sum() + kernels.total.sum())
        uploads = float(copies.total[directions == "HtoD"].sum())
        out.put("sums.copy_ratio", moving / busy if count and busy else None)
        out.put("sums.upload_of_copies_ratio", uploads / moving if moving else None)
        if count:
            out.put("copy.dtod_busy_ratio", float(copies.total[directions == "DtoD"].sum()) / busy)
        _copy_table(copies, directions, sizes, out)
    if len(sizes):
        rates({"copy.tiny": sum(float(sizes.count[i]) for i in range(len(sizes)) if _is_small(sizes, i))})
    if len(calls):
        _calls(calls, copies.take(crossing), kernels, rates, _readable(copies, sizes), out)
    if count:
        over = out.value("sums.launch_over_kernel")
        over = _LAUNCH_NS * count / max(float(kernels.total.sum()), 1.0) if over is None else over
        out.put("sums.launch_idle_ratio", max(1 - 1 / over, 0.0) if over else 0.0)


def _readable(copies: Sums, sizes: Sums) -> float | None:
    """DtoH copies of a few bytes; None if neither times nor sizes of copies were printed."""
    for sums, small in ((sizes, _SMALL_COPY), (copies, _SMALL_COPY_NS)):
        back = [i for i, n in enumerate(sums.names) if _direction(n) == "DtoH"]
        if len(sums):
            mean = (sums.total[i] / max(sums.count[i], 1) <= small for i in back)
            return float(sum(sums.count[i] for i, few in zip(back, mean, strict=True) if few))
    return None


def _is_small(sizes: Sums, i: int) -> bool:
    crosses = _direction(sizes.names[i]) in ("HtoD", "DtoH")
    return crosses and sizes.total[i] < _SMALL_COPY * max(sizes.count[i], 1)


def _direction(operation: str) -> str:
    return next((d for pattern, d in _DIRECTIONS.items() if re.search(pattern, operation)), "other")


def _calls(
    calls: Sums,
    copies: Sums,
    kernels: Sums,
    rates: Callable[[dict[str, float | None]], None],
    readable: float | None,
    out: FactWriter,
) -> None:
    kind = np.array([classify(n) for n in calls.names])
    whole = max(float(calls.total.sum()), 1.0)
    lasts = max(whole, float(kernels.total.sum()))
    mean = calls.mean
    of = {c: kind == c for c in Call}
    first = np.where(of[Call.LAUNCH], _FIRST_LAUNCH_NS, _FIRST_NS)
    once = among(kind, (Call.LAUNCH, Call.ALLOC, Call.FREE, Call.MODULE)) & (calls.most >= first)
    never_again = of[Call.MODULE] | np.array([bool(_STARTUP.search(base_name(n))) for n in calls.names])
    startup = np.where(never_again, calls.total, np.where(once, np.nan_to_num(calls.most), 0.0))
    out.put("sums.startup_api_ratio", float(startup.sum()) / whole)
    moved = float(copies.mean.min()) if len(copies) else 0.0
    slow = (mean >= _BLOCKS_NS) & (mean >= _BLOCKS_TIMES * moved)
    named = np.array(["Async" not in n for n in calls.names])
    waits = of[Call.SYNC] | (of[Call.COPY] & (named | slow))
    out |= {
        "sums.wait_ratio": float(calls.total[waits].sum()) / lasts,
        "sums.allocation_ratio": float(calls.total[of[Call.ALLOC] | of[Call.FREE]].sum()) / lasts,
    }
    if waits.any():
        i = int(np.argmax(np.where(waits, calls.total, -1.0)))
        text = f"{base_name(calls.names[i])}, {int(calls.count[i]):,} calls of {value_text(float(mean[i]), 'ns')} on average"
        out.put("sums.longest_wait", text)
    if kernels.total.sum():
        usual = np.where(np.isnan(calls.median), mean, calls.median) * calls.count
        launching = float(usual[of[Call.LAUNCH]].sum())
        out.put("sums.launch_over_kernel", launching / float(kernels.total.sum()))
    graphs = float(calls.count[of[Call.GRAPH_LAUNCH]].sum())
    out.put("capture.graph_launch_count", int(graphs))
    if len(kernels):
        eager = float(calls.count[of[Call.LAUNCH]].sum())
        # Kernels of graphs are launched by no call of their own: 0 beyond the calls, 0 recorded.
        out.put("capture.opaque_graph_ratio", float(graphs > 0 and kernels.count.sum() <= eager))
    wide = np.array([("DeviceSynchronize" in n or "CtxSynchronize" in n) for n in calls.names])
    fills = of[Call.MEMSET] & named
    many = float(calls.count[waits].sum())
    rates(
        {
            "alloc.calls": float(calls.count[of[Call.ALLOC] | of[Call.FREE]].sum()),
            "sync.device_wide": float(calls.count[wide].sum()),
            "sync.memset": float(calls.count[fills].sum()),
            "sync.readbacks": None if readable is None else min(readable, many),
        }
    )
    head = "call, count, total:ms, share:ratio, p50:us, max:us"
    for key, title, wanted in (
        ("api.top", "CUDA API calls by time, share of all calls", np.ones(len(calls), bool)),
        ("sync.top_calls", "Synchronize and blocking calls, share of all calls", waits),
        ("alloc.calls", "Allocation and free calls, share of all calls", of[Call.ALLOC] | of[Call.FREE]),
        ("launch.top_calls", "Launch calls, share of all calls", of[Call.LAUNCH] | of[Call.GRAPH_LAUNCH]),
    ):
        rows = [
            [base_name(calls.names[i]), int(calls.count[i]), calls.total[i] / 1e6, calls.total[i] / whole,
             _known(calls.median[i], 1e3), _known(calls.most[i], 1e3)]
            for i in np.flatnonzero(wanted)[:_ROWS].tolist()
        ]  # fmt: skip
        out.table(key, rows, title=title, columns=head)


def _known(value: float, unit: float) -> float | None:
    return None if np.isnan(value) else float(value) / unit


def _kernels(a: Analysis, kernels: Sums, steps: int, out: FactWriter) -> None:
    total, count = float(kernels.total.sum()), float(kernels.count.sum())
    if not total:
        return

    def held(wanted: Callable[[KernelFamily], bool]) -> float:
        return float(kernels.total[a.names.mask(wanted)].sum())

    operations: dict[str, float] = {}
    families: dict[str, list[float]] = {}
    precisions: dict[str, float] = {}
    for known, ns, n in zip(a.names.known, kernels.total.tolist(), kernels.count.tolist(), strict=True):
        operations[known.operation] = operations.get(known.operation, 0.0) + ns
        row = families.setdefault(known.family, [0.0, 0.0])
        row[0], row[1] = row[0] + n, row[1] + ns
        if known.family in MATMUL:
            bits = known.traits.get("precision") or (
                "4-bit weights" if weight_bits(known) == 4 else "unnamed"
            )
            precisions[str(bits)] = precisions.get(str(bits), 0.0) + ns
    products, unknown = held(lambda k: k.family in MATMUL), held(is_unknown)
    shared = a.names.mask(lambda k: k.family == "communication")
    exchanged = float(kernels.total[shared].sum())
    small = a.names.mask(lambda k: k.family in UNFUSED)
    out |= {
        "sums.kernel_ms": total / 1e6,
        "sums.kernel_mean_ns": total / count,
        "sums.collective_ratio": exchanged / total,
        "sums.product_ratio": products / (total - exchanged) if total > exchanged else None,
        "kernel.duration_p50_ns": weighted_median(kernels.median, kernels.count),
        "kernel.short_ratio": float(kernels.count[kernels.median < _SHORT_NS].sum()) / count,
        "kernel.per_step": count / steps if steps else None,
        "kernel.top_operation_ratio": max(operations.values()) / total,
        "kernel.unfused_p50_ns": weighted_median(kernels.median[small], kernels.count[small]),
        "kernel.framework_ratio": float(kernels.count[a.names.mask(_of_framework)].sum()) / count,
        "kernel.unmapped_ratio": unknown / total,
        "kernel.compiled_ratio": _share(
            kernels.count, small, a.names.mask(lambda k: "(Inductor" in k.operation)
        ),
    }
    least = float((kernels.count * kernels.least)[shared].sum())
    if exchanged and not np.isnan(least):
        out.put("sums.collective_above_least_ratio", max(1 - least / exchanged, 0.0))
    if products:
        out.put("sums.skinny_of_products_ratio", held(is_skinny) / products)
        ranked = sorted(precisions.items(), key=lambda p: (-p[1], p[0]))
        shares = (f"{p} {ns / products:.1%}".replace("%", " %") for p, ns in ranked)
        out.put("sums.precisions", ", ".join(shares))
        narrow = held(lambda k: k.family in MATMUL and weight_bits(k) < 16)
        out.put("kernel.quantised_matmul_ratio", narrow / products)
    shares_of = {n: held(wanted) for n, wanted in (FAMILY_SHARES | BY_NAME).items()}
    shares_of["kernel.matmul_attention_ratio"] = held(lambda k: k.family in MATMUL | ATTENTION)
    # Unidentified kernels may belong to each family or not.
    out.put_between({n: (t / total, min(t + unknown, total) / total) for n, t in shares_of.items()})
    rows = [
        [name, known.operation, known.family, int(kernels.count[i]), kernels.total[i] / 1e6,
         kernels.total[i] / total, _known(kernels.median[i], 1e3), _known(kernels.most[i], 1e3)]
        for i, (name, known) in enumerate(zip(kernels.names, a.names.known, strict=True))
    ]  # fmt: skip
    head = "kernel, operation, family, calls, total:ms, share:ratio, p50:us, max:us"
    out.table("kernels.top", rows[:_ROWS], columns=head)
    out.table(
        "kernels.families",
        [
            [f, int(n), t / 1e6, t / total]
            for f, (n, t) in sorted(families.items(), key=lambda kv: (-kv[1][1], kv[0]))
        ],
    )


def _of_framework(kernel: KernelFamily) -> bool:
    """Names without their namespaces (``:base``) show it by the operation alone."""
    return kernel.of_framework or kernel.engine is not None or "(ATen" in kernel.operation


def _share(weight: Array, whole: Array, part: Array) -> float | None:
    sum_ = float(weight[whole].sum())
    return float(weight[whole & part].sum()) / sum_ if sum_ else None


def _operations(a: Analysis, kernels: Sums, out: FactWriter) -> None:
    """The largest operations; the slowest call of each is that of the kernel name that loses most."""
    total = max(float(kernels.total.sum()), 1.0)
    operations = np.array(a.names.operations)
    lost = np.maximum(kernels.total - kernels.count * kernels.median, kernels.most - kernels.median)
    lost = np.maximum(np.nan_to_num(lost, nan=-1.0), -1.0)
    for name in list(dict.fromkeys(operations.tolist()))[:_KEPT]:
        mine = np.flatnonzero(operations == name)
        worst = int(mine[np.argmax(lost[mine])])
        own = out.at(Scope(device=0, operation=name))
        shares = {"operation.time_ratio": float(kernels.total[mine].sum()) / total}
        own |= {"operation.name": name, **shares, "operation.count": int(kernels.count[mine].sum())}
        if lost[worst] < 0 or not kernels.median[worst] > 0:
            continue
        slowest = float(kernels.most[worst])
        over, spread = slowest / float(kernels.median[worst]), float(kernels.deviation[worst])
        own |= {
            "operation.max_over_p50": over,
            "sums.max_over_p50": over,
            "sums.slowest_deviations": (slowest - float(kernels.mean[worst])) / spread
            if spread > 0
            else None,
            "sums.lost_ratio": float(lost[worst]) / total,
        }
        row: list[Value | None] = [shorten(kernels.names[worst], 60), int(kernels.count[worst]), float(kernels.median[worst]) / 1e3,
               float(kernels.mean[worst]) / 1e3, slowest / 1e3, float(lost[worst]) / 1e6]  # fmt: skip
        head = "kernel, calls, p50:us, mean:us, max:us, lost at least:ms"
        own.table("operations.tail", [row], title="Durations of the kernel that loses most", columns=head)


def _copy_table(copies: Sums, directions: Array, sizes: Sums, out: FactWriter) -> None:
    size = dict(zip(sizes.names, sizes.mean.tolist(), strict=True))
    whole = max(float(copies.total.sum()), 1.0)
    out.table(
        "copies.classes", [
            [str(directions[i]), int(copies.count[i]), size.get(name), copies.total[i] / 1e6,
             copies.total[i] / whole, copies.total[i] / max(copies.count[i], 1) / 1e3]
            for i, name in enumerate(copies.names)
        ], title="Copies and memsets", columns="direction, count, mean size:bytes, time:ms, of the copies:ratio, mean:us",
    )  # fmt: skip
