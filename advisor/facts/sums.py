"""Facts of sums alone, as `nsys stats` prints them: how much, how often, and never when.

They count the whole recording, start-up included, on all GPUs together. Facts of other modules that are
shares of kernel time, or counts, have here the value that follows from the sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from advisor.facts import limits
from advisor.facts import profiled_sums as profiled
from advisor.facts.device import FAMILY_SHARES, is_skinny
from advisor.facts.host import LOCKS_PAGES
from advisor.facts.needs import predicate
from advisor.facts.phases import BY_NAME
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import KernelFamily
from advisor.metrics.loaded.kernels import (
    ATTENTION,
    MATMUL,
    UNFUSED,
    Names,
    Sums,
    is_unknown,
    shorten,
    steps_of,
    sums_of,
    weight_bits,
    weighted_median,
)
from advisor.metrics.loaded.stage import Loaded
from advisor.model.arrays import Array, among, by_label, rows_at
from advisor.model.facts import Scope
from advisor.model.numbers import percent, value_text
from advisor.sources.schema import Call, Summed, base_name, classify

_KEPT = 20
_ROWS = 200
_STARTUP = re.compile(r"Init$|Ctx(?:Create|Set)|PrimaryCtx|GraphInstantiate")
_DIRECTIONS = {
    r"HtoD|Host-to-Device": "HtoD",
    r"DtoH|Device-to-Host": "DtoH",
    r"DtoD|Device-to-Device": "DtoD",
    r"PtoP|Peer-to-Peer": "PtoP",
    r"memset": "memset",
}
_CROSSING = ("HtoD", "DtoH")


@predicate
def sums_of_report(a: Loaded, report: str) -> bool:
    return len(sums_of(a.trace, Summed[report.upper()])) > 0


def sums_facts(a: Loaded, out: FactWriter) -> None:
    out.put("capture.sums_only", a.trace.summed)
    if not a.trace.summed:
        return
    out.put("sums.listed_ratio", _listed(a))
    out = out.at(Scope(device=0))
    kernels, calls, copies, sizes, ranges, _, queue = (
        sums_of(a.trace, r) for r in Summed if r <= Summed.QUEUE
    )
    steps, time = steps_of(ranges), float(kernels.total.sum())
    # Operators are no kernels: of these only the launches tell how many ran.
    listed = 0.0 if profiled.by_operator(a) else float(kernels.count.sum())
    count = _kernel_count(kernels, calls, listed)
    ways, of_sizes = (np.array([_direction(name) for name in sums.names], str) for sums in (copies, sizes))
    crossing = copies.take(among(ways, _CROSSING))
    out |= {
        "capture.step_count": steps,
        "capture.nvtx_range_count": int(ranges.count.sum()) if len(ranges) else None,
        "launch.queue_over_kernel": queue.total.sum() / time if len(queue) and time else None,
    }
    if count:
        out |= {"capture.kernel_count": int(count), "capture.gpu_work_count": int(count + copies.count.sum())}
    if kernels.count.any():
        _kernels(a, kernels, count, listed, steps, out)
        _operations(a, kernels, out)
    if len(copies):
        moving, busy = float(crossing.total.sum()), float(copies.total.sum()) + time
        uploads, fills = (copies.total[ways == way].sum() for way in ("HtoD", "memset"))
        out |= {
            "sums.copy_ratio": moving / busy if time and busy else None,
            "sums.memset_ratio": fills / busy if time and busy else None,
            "sums.upload_of_copies_ratio": uploads / moving if moving else None,
            "copy.dtod_busy_ratio": copies.total[ways == "DtoD"].sum() / busy if time else None,
        }
        whole, size = max(float(copies.total.sum()), 1.0), dict(zip(sizes.names, sizes.mean, strict=True))
        shown = (copies.total / 1e6, copies.total / whole, copies.mean / 1e3)
        means = [size.get(name) for name in copies.names]
        rows = rows_at(np.arange(len(copies)), ways, copies.count.astype(int), means, *shown)
        head = "direction, count, mean size:bytes, time:ms, of the copies:ratio, mean:us"
        out.table("copies.classes", rows, title="Copies and memsets", columns=head)
    rates = {}
    if len(sizes):
        tiny = among(of_sizes, _CROSSING) & (
            sizes.total < limits.TINY_COPY_BYTES * np.maximum(sizes.count, 1)
        )
        rates["copy.tiny"] = sizes.count[tiny].sum()
    if len(calls):
        # DtoH copies of a few bytes, by their size or else their time.
        by = ((sizes, of_sizes, limits.READBACK_BYTES), (copies, ways, limits.READBACK_COPY_NS))
        few = (s.count[(way == "DtoH") & (s.mean <= most)].sum() for s, way, most in by if len(s))
        rates |= _calls(a, calls, crossing, kernels, next(few, np.nan), out)
    rates |= profiled.profiled_facts(a, waiting(calls, crossing), time + float(copies.total.sum()), out)
    if whole := steps or count / 100:
        per = f"_per_{'step' if steps else '100_kernels'}"
        out |= {name + per: number / whole for name, number in rates.items()}
    launched = count or float(kernels.count.sum())
    if launched and time and not profiled.between_events(a):
        over = out.value("sums.launch_over_kernel")
        over = limits.EAGER_LAUNCH_NS * launched / time if over is None else over
        what = "kernels of {} on average" if count else "operators whose kernels take {} on average"
        out |= {
            "sums.launch_idle_ratio": max(1 - 1 / over, 0.0) if over else 0.0,
            "sums.launched_count": int(launched),
            "sums.launched_mean_ns": time / launched,
            "sums.launched": f"{int(launched):,} {what.format(value_text(time / launched, 'ns'))}",
        }


def _listed(a: Loaded) -> float:
    """Share of the time that stands in rows which were pasted and could be read; by time for rows that a
    total shows as missing (they count nothing), by number for those that could not be read."""
    shown = whole = 0.0
    for report in (Summed.KERNELS, Summed.OPERATORS):
        rows = sums_of(a.trace, report)
        whole += float(rows.total.sum())
        shown += float(rows.total[rows.count > 0].sum())
    listed = shown / whole if whole else 1.0
    for row in a.trace.ledger.rows():
        if row.kind == "dropped" and row.table == "sums" and row.rows:
            listed *= 1 - row.count / row.rows
    return listed


def _kernel_count(kernels: Sums, calls: Sums, listed: float) -> float:
    """How many kernels ran: where rows were cut off, or are operators (none `listed`), at least as many as
    were launched one by one; 0 if nothing tells."""
    if not len(kernels) or (listed and (kernels.count > 0).all()):
        return listed
    kind = np.array([classify(n) for n in calls.names])
    return max(listed, float(calls.count[kind == Call.LAUNCH].sum()) if len(calls) else 0.0)


def waiting(calls: Sums, copies: Sums) -> Array:
    """Which of the calls wait for the GPU, loading apart; `copies` cross the link."""
    if not len(calls):
        return np.zeros(0, bool)
    kind = np.array([classify(n) for n in calls.names])
    moved = float(copies.mean.min()) if len(copies) else 0.0
    slow = (calls.mean >= limits.BLOCKING_CALL_NS) & (calls.mean >= limits.BLOCKING_COPY_FACTOR * moved)
    named = np.array(["Async" not in n for n in calls.names])
    return np.asarray((kind == Call.SYNC) | ((kind == Call.COPY) & (named | slow) & ~_loads(calls)))


def _loads(calls: Sums) -> Array:
    """Uploads that load weights: larger than inputs of a step."""
    copies = np.array([classify(n) == Call.COPY and _direction(n) == "HtoD" for n in calls.names], bool)
    return np.asarray(copies & (calls.mean >= limits.LOADING_UPLOAD_NS))


def _direction(operation: str) -> str:
    return next((d for pattern, d in _DIRECTIONS.items() if re.search(pattern, operation)), "other")


def _calls(
    a: Loaded, calls: Sums, copies: Sums, kernels: Sums, readable: float, out: FactWriter
) -> dict[str, float]:
    """Facts of CUDA calls; counts that become rates. `copies` cross the link, `readable` are small."""
    host = profiled.host_total(a)
    kind = np.array([classify(n) for n in calls.names])
    whole, kernel_time = max(float(calls.total.sum()), 1.0), float(kernels.total.sum())
    lasts, mean, of = max(whole, kernel_time, host), calls.mean, {c: kind == c for c in Call}
    first = np.where(of[Call.LAUNCH], limits.FIRST_LAUNCH_NS, limits.FIRST_CALL_NS)
    once = among(kind, (Call.LAUNCH, Call.ALLOC, Call.FREE, Call.MODULE)) & (calls.most >= first)
    starts, pinned = (
        np.array([bool(name.search(base_name(n))) for n in calls.names]) for name in (_STARTUP, LOCKS_PAGES)
    )
    few = calls.count < limits.PINNED_IN_LOOP_CALLS
    never_again = of[Call.MODULE] | starts | (pinned & of[Call.ALLOC] & few)
    startup = np.where(
        never_again | _loads(calls), calls.total, np.where(once, np.nan_to_num(calls.most), 0.0)
    )
    steady = calls.total - startup
    named = np.array(["Async" not in n for n in calls.names])
    wide = np.array([("DeviceSynchronize" in n or "CtxSynchronize" in n) for n in calls.names])
    waits, allocates = waiting(calls, copies), of[Call.ALLOC] | of[Call.FREE]
    graphs, eager = (calls.count[of[c]].sum() for c in (Call.GRAPH_LAUNCH, Call.LAUNCH))
    usual = profiled.usual_call(calls) * calls.count
    launches = float(steady[of[Call.LAUNCH]].sum())
    out |= {
        "sums.launch_call_ratio": launches / max(float(steady.sum()), 1.0),
        "sums.launch_call_count": int(eager),
        "sums.launch_call_mean_ns": launches / eager if eager else None,
        "sums.allocation_call_ratio": float(steady[allocates].sum()) / max(float(steady.sum()), 1.0),
        "sums.allocation_call_count": int(calls.count[allocates].sum()),
        "alloc.pinned_ratio": calls.total[allocates & pinned].sum() / max(calls.total[allocates].sum(), 1.0),
        "sums.startup_api_ratio": startup.sum() / whole,
        "sums.wait_ratio": calls.total[waits].sum() / lasts,
        "sums.wait_beyond_kernels_ratio": max(float(calls.total[waits].sum()) - kernel_time, 0.0) / lasts
        if kernel_time
        else None,
        "sums.allocation_ratio": calls.total[allocates].sum() / lasts,
        "sums.launch_over_kernel": usual[of[Call.LAUNCH]].sum() / kernel_time
        if kernel_time and not host  # else the operators around the launches count as well
        else None,
        # Launches of graphs may stand in rows that were not pasted.
        "capture.graph_launch_count": int(graphs) if graphs or not profiled.rows_cut(a) else None,
        # Kernels of graphs are launched by no call of their own: 0 beyond the calls, 0 recorded.
        "capture.opaque_graph_ratio": float(graphs > 0 and kernels.count.sum() <= eager)
        if len(kernels)
        else None,
    }
    if waits.any():
        i = int(np.argmax(np.where(waits, calls.total, -1.0)))
        length = value_text(float(mean[i]), "ns")
        text = f"{base_name(calls.names[i])}, {int(calls.count[i]):,} calls of {length} on average"
        out.put("sums.longest_wait", text)
    asked = {"sync.top_calls": waits, "alloc.calls": allocates}
    _call_tables(calls, asked | {"launch.top_calls": of[Call.LAUNCH] | of[Call.GRAPH_LAUNCH]}, out)
    return {
        "alloc.calls": calls.count[allocates].sum(),
        "sync.device_wide": calls.count[wide].sum(),
        "sync.memset": calls.count[of[Call.MEMSET] & named].sum(),
        "sync.readbacks": np.minimum(readable, calls.count[waits].sum()),
    }


def _call_tables(calls: Sums, wanted: dict[str, Array], out: FactWriter) -> None:
    """Tables of all calls and of those `wanted`, by time."""
    whole = max(float(calls.total.sum()), 1.0)
    head = "call, count, total:ms, share:ratio, p50:us, max:us"
    times = (calls.total / 1e6, calls.total / whole, calls.median / 1e3, calls.most / 1e3)
    shown = ([base_name(n) for n in calls.names], calls.count.astype(int), *times)
    wanted = {"api.top": np.ones(len(calls), bool), **wanted}
    for key, title in (
        ("api.top", "CUDA API calls by time"),
        ("sync.top_calls", "Synchronize and blocking calls"),
        ("alloc.calls", "Allocation and free calls"),
        ("launch.top_calls", "Launch calls"),
    ):
        rows = rows_at(np.flatnonzero(wanted[key])[:_ROWS], *shown)
        out.table(key, rows, title=f"{title}, share of all calls", columns=head)


def _kernels(a: Loaded, kernels: Sums, count: float, listed: float, steps: int, out: FactWriter) -> None:
    """`count`: kernels that ran, of which `kernels` may list some; 0 `listed` if they are operators."""
    total, names = float(kernels.total.sum()), a.names
    if not total:
        return

    def held(wanted: Callable[[KernelFamily], bool]) -> float:
        return float(kernels.total[names.mask(wanted)].sum())

    def precision(kernel: KernelFamily) -> str:
        unnamed = "4-bit weights" if weight_bits(kernel) == 4 else "unnamed"
        return str(kernel.traits.get("precision") or unnamed)

    products, unknown = held(lambda k: k.family in MATMUL), held(is_unknown)
    shared = names.mask(lambda k: k.family == "communication")
    exchanged, least = float(kernels.total[shared].sum()), (kernels.count * kernels.least)[shared].sum()
    small = names.mask(lambda k: k.family in UNFUSED)
    compiled = small & names.mask(lambda k: "(Inductor" in k.operation)
    out |= {
        "sums.kernel_ms": None if profiled.between_events(a) else total / 1e6,
        "sums.collective_ratio": exchanged / total,
        "sums.collective_above_least_ratio": np.maximum(1 - least / exchanged, 0.0) if exchanged else None,
        "sums.product_ratio": products / (total - exchanged) if total > exchanged else None,
        "kernel.per_step": count / steps if steps and count else None,
        "kernel.top_operation_ratio": by_label(names.operations, kernels.total)[1][0][0] / total,
        "kernel.unmapped_ratio": unknown / total,
    }
    if listed:
        mean = (total if count > listed else kernels.total[kernels.count > 0].sum()) / count
        out |= {
            "sums.kernel_mean_ns": mean,
            "kernel.duration_p50_ns": weighted_median(kernels.median, kernels.count),
            "kernel.short_ratio": kernels.count[kernels.median < limits.SHORT_KERNEL_NS].sum() / listed,
            "kernel.unfused_p50_ns": weighted_median(kernels.median[small], kernels.count[small]),
            "kernel.framework_ratio": kernels.count[names.mask(_of_framework)].sum() / listed,
            "kernel.compiled_ratio": kernels.count[compiled].sum() / kernels.count[small].sum()
            if kernels.count[small].any()
            else None,
        }
    if products:
        narrow = held(lambda k: k.family in MATMUL and weight_bits(k) < 16)
        mine = np.flatnonzero(names.mask(lambda k: k.family in MATMUL))
        kinds, (times,) = by_label([precision(names.known[i]) for i in mine], kernels.total[mine])
        shares = (f"{p} {percent(ns / products)}" for p, ns in zip(kinds, times, strict=True))
        out |= {
            "sums.skinny_of_products_ratio": held(is_skinny) / products,
            "sums.precisions": ", ".join(shares),
            "kernel.quantised_matmul_ratio": narrow / products,
        }
    shares_of = {n: held(wanted) for n, wanted in (FAMILY_SHARES | BY_NAME).items()}
    shares_of["kernel.matmul_attention_ratio"] = held(lambda k: k.family in MATMUL | ATTENTION)
    # Unidentified kernels may belong to each family or not.
    out.put_between({n: (t / total, min(t + unknown, total) / total) for n, t in shares_of.items()})
    _kernel_tables(kernels, names, total, out)


def _kernel_tables(kernels: Sums, names: Names, total: float, out: FactWriter) -> None:
    """Kernels and their families, by time; `total` is that of all (ns)."""
    calls, spent = kernels.count.astype(int), (kernels.total / 1e6, kernels.total / total)
    columns = (kernels.names, names.operations, names.families, calls, *spent)
    rows = rows_at(np.arange(len(calls))[:_ROWS], *columns, kernels.median / 1e3, kernels.most / 1e3)
    head = "kernel, operation, family, calls, total:ms, share:ratio, p50:us, max:us"
    out.table("kernels.top", rows, columns=head)
    families, (count_of, time_of) = by_label(names.families, calls, kernels.total)
    whole = np.arange(len(families))
    out.table(
        "kernels.families", rows_at(whole, families, count_of.astype(int), time_of / 1e6, time_of / total)
    )


def _of_framework(kernel: KernelFamily) -> bool:
    """Names without their namespaces (``:base``) show it by the operation alone."""
    return kernel.of_framework or kernel.engine is not None or "(ATen" in kernel.operation


def _operations(a: Loaded, kernels: Sums, out: FactWriter) -> None:
    """The largest operations; the slowest call of each is that of the kernel name that loses most."""
    total = max(float(kernels.total.sum()), 1.0)
    operations = np.array(a.names.operations)
    lost = np.maximum(kernels.total - kernels.count * kernels.median, kernels.most - kernels.median)
    lost = np.maximum(np.nan_to_num(lost, nan=-1.0), -1.0)
    over, spread = kernels.most / kernels.median, kernels.deviation
    for name in list(dict.fromkeys(a.names.operations))[:_KEPT]:
        mine = np.flatnonzero(operations == name)
        worst = int(mine[np.argmax(lost[mine])])
        own = out.at(Scope(device=0, operation=name))
        own |= {
            "operation.name": name,
            "operation.time_ratio": kernels.total[mine].sum() / total,
            "operation.count": int(kernels.count[mine].sum()),
        }
        apart = kernels.most[worst] - kernels.mean[worst]
        if lost[worst] < 0 or apart < 0 or not kernels.median[worst] > 0:
            continue  # not told, or a row that contradicts itself
        own |= {
            "operation.max_over_p50": over[worst],
            "sums.max_over_p50": over[worst],
            "sums.slowest_deviations": apart / spread[worst] if spread[worst] > 0 else None,
            "sums.lost_ratio": lost[worst] / total,
        }
        times = (v[worst] / 1e3 for v in (kernels.median, kernels.mean, kernels.most))
        row = [shorten(kernels.names[worst], 60), int(kernels.count[worst]), *times, lost[worst] / 1e6]
        head = "kernel, calls, p50:us, mean:us, max:us, lost at least:ms"
        own.table("operations.tail", [row], title="Durations of the kernel that loses most", columns=head)
