"""Facts about the largest operations: shares and tails, launch shapes that vary from step to step;
techniques that a program uses already, so that no advice asks for them; layers and experts of a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import islice

import numpy as np

from advisor.facts import limits
from advisor.facts.device import of_older_architecture
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import KernelFamily, kernel_families
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.experts import loose_experts
from advisor.metrics.budgeted.layers import PARTS, in_norms
from advisor.metrics.budgeted.like import alone_ratio, like_calls, two_modes
from advisor.metrics.budgeted.passes import DeviceKernels
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.loaded.kernels import (
    ATTENTION,
    MATMUL,
    UNFUSED,
    composition,
    dense,
    distribution,
    shorten,
)
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.pace import trend_ratio
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, among, by_number, distinct, marked, median_of, percentiles, rows_at
from advisor.model.facts import Scope
from advisor.model.numbers import percent
from advisor.sources.schema import COOPERATIVE

_KEPT = 20
_SHAPES = 10
_NAMED = 3


def operation_facts(a: Budgeted, device: int, out: FactWriter, waits: Array | None = None) -> None:
    """Tails are taken among similar calls: one process, kernel and launch shape, the same kernels before and
    after it, places in the step that take as long. A GEMM of one shape serves projections of different depth,
    and only its place in the sequence tells them apart. Slow calls of a group of two modes are no tail.

    `waits` is the time that each collective waited for a later rank, if other ranks show it: such a call
    is not slow.
    """
    like = like_calls(a, device)
    if len(like) == 0:
        return
    group, duration, of_name, spread = like.group, like.duration, like.name, like.spread
    operations = a.names.operations
    labels = sorted(set(operations))
    family_of = dict(zip(operations, a.names.families, strict=True))
    of_operation = np.searchsorted(labels, [operations[n] for n in of_name])
    total = np.bincount(of_operation, spread.total, minlength=len(labels))
    if waits is not None and len(waits):
        duration = duration.astype(np.int64)
        duration[a.communication[like.at]] -= np.maximum(waits, 0)
        spread = distribution(group, duration, len(like))
    window = a.budgets[device].program_ns
    frequent = (spread.count >= metric_limits.kernels.TAIL_CALLS) & (spread.p50 > 0)
    for one in np.flatnonzero(frequent & (spread.tail >= limits.LOST_TAIL_RATIO * window)).tolist():
        frequent[one] = not two_modes(a, device, like, one, duration)
    calls, behind = by_number(group), np.cumsum(spread.count)  # of each group, one after the other
    slow = np.flatnonzero(duration > metric_limits.kernels.SLOW_CALL_FACTOR * spread.p50[group])
    largest = np.argsort(-total, kind="stable")[:_KEPT]
    place = np.full(len(labels), len(largest))
    place[largest] = np.arange(len(largest))
    place = np.where(frequent, place[of_operation], len(largest))[group]
    by_step = _lost_by_step(a, like.at, place, np.maximum(duration - spread.p50[group], 0))
    slowest = max(percentiles(step_times(a), 99)[0], 1) if by_step is not None else 1
    for number, i in enumerate(largest.tolist()):
        own = out.at(Scope(device=device, operation=labels[i]))
        mine = np.flatnonzero(of_operation == i)
        frequent_names = mine[frequent[mine]]
        tail = float(spread.tail[frequent_names].sum())
        own |= {
            "operation.name": labels[i],
            "operation.family": family_of[labels[i]],
            "operation.time_ratio": total[i] / max(total.sum(), 1),
            "operation.window_ratio": min(total[i] / window, 1.0),
            "operation.count": spread.count[mine].sum(),
        }
        if len(frequent_names) == 0:
            continue
        worst = int(frequent_names[np.argmax(spread.tail[frequent_names])])
        like_worst = duration[calls[behind[worst] - spread.count[worst] : behind[worst]]]
        # Calls side by side may lose more time than the step has.
        at_p99 = None if by_step is None else min(float(percentiles(by_step[number], 99)[0] / slowest), 1.0)
        own |= {
            "operation.max_over_p50": spread.maximum[worst] / spread.p50[worst],
            "operation.p99_over_p50": spread.p99[worst] / spread.p50[worst],
            "operation.tail_window_ratio": tail / window,
            "operation.tail_p99_ratio": at_p99 or tail / window,
            "operation.tail_steps_ratio": at_p99,
            "operation.trend_ratio": trend_ratio(like_worst),
            "operation.tail_over_time_ratio": tail / max(total[i], 1.0),
            "operation.slow_count": marked(len(frequent), frequent_names)[group[slow]].sum(),
        }
        of_worst = slow[group[slow] == worst]
        if len(of_worst):
            own.put("operation.tail_blocks_ratio", alone_ratio(a, device, like.at[of_worst]))
        kernel, lost = shorten(a.names.texts[of_name[worst]], 60), spread.tail[worst] / 1e6
        times = _recorded_quantiles(like.duration[group == worst])
        own.table("operations.tail", [[labels[i], kernel, spread.count[worst], *times, lost]])


def _recorded_quantiles(duration: Array) -> list[float]:
    """Median, 99th percentile and longest of some durations (ns), us; each one that was recorded."""
    recorded = np.sort(duration)
    ranks = (np.ceil(q * len(recorded)).astype(int) - 1 for q in (0.5, 0.99, 1.0))
    return [recorded[rank] / 1e3 for rank in ranks]


def _lost_by_step(a: Stepped, at: Array, group: Array, lost: Array) -> Array | None:
    """Time lost by operations (positions in `ops`), ns, by group and step of the window; None without
    steps."""
    steps = a.window_steps
    if len(steps) == 0:
        return None
    width = len(a.steps) + 1
    by_step = np.bincount(group * width + a.steps.op_step[at] + 1, lost, (int(group.max()) + 1) * width)
    return np.asarray(by_step.reshape(-1, width)[:, steps + 1])


# --- launch shapes that change from step to step: what keeps a step from becoming one CUDA graph ---


def shape_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Share of kernel time in names whose launch shapes differ between steps of the commonest phase, and
    the table of those names."""
    if not a.trace.has("kernels") or a.step_count < 2:
        return
    kernels = a.kernels(device)
    inside, step = kernels.of_one_phase
    name, blocks, shape = (v[inside] for v in (kernels.name, kernels.blocks, kernels.shape))
    if len(step) == 0 or (blocks == 0).any():  # not recorded
        return
    varies = _varying(name, step, shape, len(a.names.ids))
    time = np.bincount(name, kernels.length[inside], minlength=len(a.names.ids))
    whole = max(float(time.sum()), 1.0)
    share = float(time[varies].sum()) / whole
    out.put("kernel.varying_shape_ratio", share)
    out.put("kernel.varying_shape_window_ratio", share * a.budgets[device].share("compute"))
    rows = []
    for i in np.flatnonzero(varies)[np.argsort(-time[varies], kind="stable")][:_SHAPES].tolist():
        mine = name == i
        counts = len(distinct(shape[mine])), blocks[mine].min(), blocks[mine].max(), mine.sum()
        rows.append([a.names.texts[i], a.names.operations[i], *counts, time[i] / whole])
    out.table("kernels.shapes", rows)


def _varying(name: Array, step: Array, shape: Array, names: int) -> Array:
    """Mask over names: launched with several shapes, and not with the same ones in every step. Only the
    set of shapes counts, not how often each occurs: a lost row does not make a new shape."""
    steps = int(step.max(initial=0)) + 1
    known, kind = dense(name.astype(np.int64) * (1 << 24) + shape % (1 << 24))
    in_step = distinct(kind * steps + step)
    name_of, shape_of = known >> 24, known % (1 << 24)
    # The sum of the shapes is a fingerprint of their set; exact in float64 up to 2^53.
    cells, cell = dense(name_of[in_step // steps] * steps + in_step % steps)
    sums = np.bincount(cell, shape_of[in_step // steps], minlength=len(cells))
    most, least = np.zeros(names), np.full(names, np.inf)
    np.maximum.at(most, cells // steps, sums)
    np.minimum.at(least, cells // steps, sums)
    least[np.bincount(cells // steps, minlength=names) < steps] = 0  # not in every step
    several = np.bincount(name_of, minlength=names) > 1
    return np.asarray(several & (most != least))


# --- what a program uses already, so that no advice asks for it -----------------------------------


def in_use_facts(a: Profiled, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels"):
        return
    kernels = a.kernels(device)
    at, name, duration = kernels.at, kernels.name, kernels.length
    capability, old = a.device(device).compute_capability, of_older_architecture(a, device)

    def are(wanted: Callable[[KernelFamily], bool]) -> Array:
        return np.asarray(a.names.mask(wanted)[name])

    calls = are(lambda k: k.family in ATTENTION and "combine" not in k.operation)
    if calls.any():
        writes = are(lambda k: k.operation.startswith("index_copy"))
        out.put("kernel.static_cache_attention", writes.sum() >= calls.sum())
    _launches(a, kernels, out)
    if whole := duration[a.communication[at]].sum():
        nccl = are(lambda k: k.operation.startswith(("NCCL", "RCCL")))
        out.put("comm.nccl_ratio", duration[nccl].sum() / whole)
    if capability and old is not None and len(at):
        heavy, major = MATMUL | ATTENTION, capability[0]
        own = are(lambda k: k.family in heavy and k.sm is not None and k.sm // 10 >= major)
        out.put("kernel.current_architecture", own.any())
        if older := duration[old].sum():
            attention = are(lambda k: k.family in ATTENTION)
            out.put("kernel.old_attention_ratio", duration[old & attention].sum() / older)
    small = are(lambda k: k.family in UNFUSED)
    if not small.any():
        return
    time = composition(a.names.operations, name[small], duration[small])
    largest = ((operation, ns / max(a.budgets[device].busy_ns, 1)) for operation, ns in time.items())
    texts = (f"{operation} {percent(share)}" for operation, share in islice(largest, _NAMED))
    out |= {
        "kernel.fusable": "; ".join(_fusable({a.names.operations[i] for i in distinct(name)})) or None,
        "kernel.compiled_ratio": are(lambda k: "(Inductor" in k.operation)[small].mean(),
        "kernel.unfused_operations": ", ".join(texts) or None,
    }


def _fusable(ran: Collection[str]) -> list[str]:
    """Operations that run separately although one kernel can do all of them and none of that kind runs."""

    def runs(pattern: str) -> bool:
        return any(re.match(pattern, operation) for operation in ran)

    known = kernel_families().fusions.items()
    return [text for text, of in known if all(map(runs, of["apart"])) and not any(map(runs, of["fused"]))]


def _launches(a: Loaded, kernels: DeviceKernels, out: FactWriter) -> None:
    at, duration = kernels.at, kernels.length
    if not len(at):
        return
    stream = a.ops.stream[at]
    order = by_number(stream)  # kernels are sorted by start
    start, end, stream = kernels.start[order], kernels.end[order], stream[order]
    early = (stream[1:] == stream[:-1]) & (start[1:] < end[:-1])
    out.put("kernel.early_start_ratio", early.sum() / len(at))
    columns = a.trace.columns("kernels", ("launch_type", "cluster_blocks"))
    kind, cluster = (columns[n][kernels.row] for n in ("launch_type", "cluster_blocks"))
    for name, values, chosen in (
        ("kernel.cooperative_ratio", kind, among(kind, COOPERATIVE)),
        ("kernel.cluster_ratio", cluster, cluster > 1),
    ):
        if (values >= 0).all():
            out.put(name, duration[chosen].sum() / (duration.sum() or 1))


# --- layers and experts of a model ----------------------------------------------------------------


_ROWS = 30


def layer_facts(a: Profiled, device: int, out: FactWriter) -> None:
    found = a.layers(device) if a.trace.has("kernels") else None
    if found is None:
        return
    length = a.ops.length
    duration = length[found.at]
    times = found.times(duration)
    whole = float(duration.sum()) or 1.0
    attention, ffn, _ = (median_of(times[..., part]) for part in range(3))
    out |= {
        "layer.count": found.count,
        "layer.source": found.by,
        "layer.time_ns": median_of(times.sum(axis=2)),
        "layer.attention_ns": attention,
        "layer.ffn_ns": ffn or None,
        "layer.norm_ratio": float(duration[in_norms(a, found)].sum()) / whole,
        "layer.cache_join_ratio": float(length[found.joins].sum()) / whole,
    }
    kinds, of_name = np.unique([*a.names.operations, "KV cache append by concatenation"], return_inverse=True)
    of = of_name[a.op_name[found.at]]
    of[np.isin(found.at, found.joins)] = of_name[-1]
    layers, rows = times.shape[0] * found.count, []
    for part, name in enumerate(PARTS):
        mine = found.part == part
        time, count = (np.bincount(of[mine], weight, len(kinds)) for weight in (duration[mine], None))
        each = rows_at(np.flatnonzero(count), kinds, count / layers, time / layers / 1e3, time / whole)
        rows += [[name, *row] for row in each]
    title = f"What a layer of {found.count} takes, by the {found.by}"
    out.table("layers.parts", sorted(rows, key=lambda row: -row[4])[:_ROWS], title=title)


# --- mixture-of-experts layers that no kernel of a library runs as one ----------------------------


def expert_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    found = loose_experts(a, device)
    if found is None:
        return
    counts = {f"experts.{kind}": getattr(found, kind) for kind in ("topk", "grouping", "combine")}
    window, length = a.budgets[device].program_ns, found.end - found.start
    out |= {
        **a.rates(device, counts | {"experts.layers": len(found.start)}),
        "experts.loose_window_ratio": min(length.sum() / window, 1.0),
        "experts.loop_window_ratio": min(length[found.loop].sum() / window, 1.0),
        "experts.kernels_per_layer": found.kernels.mean() if len(found.kernels) else None,
        "experts.readbacks_per_layer": found.readbacks.mean() if len(found.readbacks) else 0.0,
    }
