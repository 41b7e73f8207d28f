"""Facts about the largest operations: shares and tails, launch shapes that vary from step to step;
techniques that a program uses already, so that no advice asks for them; layers and experts of a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import islice

import numpy as np

from advisor.facts import needs
from advisor.facts.device import of_older_architecture
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import KernelFamily, kernel_families
from advisor.metrics.analysis import Analysis
from advisor.metrics.experts import loose_experts
from advisor.metrics.kernels import ATTENTION, MATMUL, UNFUSED, composition, dense, distribution, shorten
from advisor.metrics.layers import PARTS, find_layers, in_norms
from advisor.metrics.like import MIN_CALLS, SLOW, alone_ratio, like_calls, two_modes
from advisor.metrics.pace import trend_ratio
from advisor.metrics.passes import DeviceKernels
from advisor.metrics.phases import step_times
from advisor.model.arrays import Array, among, by_number, distinct, marked, median_of, percentiles, rows_at
from advisor.model.facts import Scope
from advisor.sources.schema import COOPERATIVE

_KEPT = 20
#: Tails that lose less than this share of the window are in no finding (`min_lost` of KRN103 is the least).
_LEAST_LOST = 0.002
_LIKE_CALLS = Need(f"fewer than {MIN_CALLS} like calls of the operation", needs.LONGER)
_SHAPES = 10
_SMALL = Need("no elementwise, copy, activation, rope, softmax or norm kernel ran in the window")
_NAMED = 3

FACTS = (
    *group("operation", needs.CUDA, [
        Entry("operation.name", "text", "kernels", "The operation, as reports name it", "names of kernels", needs=(needs.KERNELS,)),
        Entry("operation.family", "text", "kernels", "What its kernels do, as knowledge/kernel_families.yaml has it: gemm, attention, communication, moe", "names of kernels", needs=(needs.KERNELS,)),
        Entry("operation.time_ratio", "ratio", "kernels", "Share of kernel time of this operation (the 20 largest are kept)", "time by logical operation", needs=(needs.KERNELS,)),
        Entry("operation.window_ratio", "ratio", "kernels", "Time of this operation over the untraced step", "sum / untraced window", needs=(needs.KERNELS,)),
        Entry("operation.count", "count", "kernels", "Calls in the window", "count", needs=(needs.KERNELS,)),
        Entry("operation.max_over_p50", "ratio", "kernels", "Slowest call over the median call, of its kernel with the largest tail", "per kernel name and launch shape"),
        Entry("operation.p99_over_p50", "ratio", "kernels", "99th percentile over the median", "per kernel name and launch shape"),
        Entry("operation.tail_window_ratio", "ratio", "kernels", "Time lost in the tail: sum of max(0, duration - p50), over the untraced step", "per kernel name and launch shape, summed"),
        Entry("operation.tail_p99_ratio", "ratio", "kernels", "What the slow calls cost the slowest steps: time lost in them in the step at the 99th percentile of that loss, over the 99th percentile of step times; without steps operation.tail_window_ratio", "sum of max(0, duration - p50) by step, p99 / p99"),
        Entry("operation.tail_steps_ratio", "ratio", "kernels", "operation.tail_p99_ratio where steps are known", "as above", needs=(needs.KERNELS, needs.STEPS)),
        Entry("operation.tail_over_time_ratio", "ratio", "kernels", "Time lost in the tail over the operation's own time", "as above"),
        Entry("operation.slow_count", "count", "kernels", "Calls that take more than 1.5 times the median of their like", "count"),
        Entry("operation.trend_ratio", "ratio", "kernels", "Share of that lost time that goes when calls are compared with the median of those around them: they get longer or shorter from the first to the last, as attention does with the context", "eight runs of calls in their order, whose medians keep an order; 0 where they do not", needs=(needs.KERNELS, _LIKE_CALLS)),
        Entry("operation.tail_blocks_ratio", "ratio", "kernels", "Share of that lost time during which nothing else runs on the device", "slow calls without a concurrent operation", needs=(needs.KERNELS, Need(f"no slow call among {MIN_CALLS} like ones", needs.LONGER))),
    ], columns={"kernels": f"{needs.SPAN} stream name_id {needs.SHAPE}"}, needs=(needs.KERNELS, _LIKE_CALLS)),
    *group("device", needs.CUDA, [
        Entry("kernel.varying_shape_ratio", "ratio", "kernels", "Share of kernel time in kernels whose launch shape varies between steps", "distinct grids per name and position in the step"),
        Entry("kernel.varying_shape_window_ratio", "ratio", "kernels", "The same as a share of the untraced step", "that share x kernel time / untraced window"),
    ], columns={"kernels": f"{needs.SPAN} name_id {needs.SHAPE}"}, needs=(*needs.more_steps(2, "two steps"), needs.KERNELS, needs.LAUNCH_SHAPES)),
    *group("device", needs.CUDA, [
        Entry("kernel.current_architecture", "flag", "kernels", "A GEMM or attention kernel built for this generation of SM ran: the libraries know the GPU", "sm number in names against the major compute capability", needs=(needs.KERNELS, needs.CAPABILITY)),
        Entry("kernel.old_attention_ratio", "ratio", "kernels", "Share of the time of kernels built for an older generation that attention holds", "as kernel.old_architecture_ratio, family attention", needs=(needs.KERNELS, needs.CAPABILITY, Need("no kernel of an older architecture ran in the window"))),
        Entry("kernel.compiled_ratio", "ratio", "kernels", "Share of the elementwise, copy, activation, rope, softmax and norm kernels that torch.compile generated", "count, by names", needs=(needs.KERNELS, _SMALL)),
        Entry("kernel.fusable", "text", "kernels", "What runs in kernels of its own although fused ones exist", "fusions of knowledge/kernel_families.yaml", needs=(needs.KERNELS, Need("no neighbours that a fused kernel exists for run apart"))),
        Entry("kernel.unfused_operations", "text", "kernels", "The operations that hold most of the time of these kernels, each with its share of the busy time", "the three largest", needs=(needs.KERNELS, _SMALL)),
        Entry("kernel.early_start_ratio", "ratio", "kernels", "Share of the kernels that begin before the kernel before them on their stream has ended: programmatic dependent launch, or branches of a graph", "count", columns={"kernels": f"{needs.SPAN} stream"}),
        Entry("kernel.cooperative_ratio", "ratio", "kernels", "Share of the kernel time in cooperative launches, whose blocks wait for each other: all of them have to fit on the device at once", "launch types 2 and 3", columns={"kernels": f"{needs.SPAN} launch_type"}, needs=(needs.KERNELS, Need("the launch type of the kernels is not recorded"))),
        Entry("kernel.cluster_ratio", "ratio", "kernels", "Share of the kernel time in launches with clusters of several blocks (Hopper and later)", "cluster dimensions", columns={"kernels": f"{needs.SPAN} cluster_blocks"}, needs=(needs.KERNELS, Need("the clusters of the kernels are not recorded", "an nsys of 2026"))),
        Entry("kernel.static_cache_attention", "flag", "kernels", "Attention runs over a static KV cache: at least one index_copy into it for every attention kernel", "count by operation, split-KV combines left out", needs=(needs.KERNELS, Need("no attention kernel ran in the window"))),
        Entry("comm.nccl_ratio", "ratio", "kernels", "Share of the collective time in kernels of NCCL or RCCL; the rest are one-shot kernels of PyTorch or an engine", "names", needs=(needs.COLLECTIVES,)),
    ], columns={"kernels": f"{needs.SPAN} name_id"}),
)  # fmt: skip


def operation_facts(a: Analysis, device: int, out: FactWriter, waits: Array | None = None) -> None:
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
        duration = duration.copy()
        duration[a.communication[like.at]] -= np.maximum(waits, 0)
        spread = distribution(group, duration, len(like))
    window = a.budgets[device].untraced_ns
    frequent = (spread.count >= MIN_CALLS) & (spread.p50 > 0)
    for one in np.flatnonzero(frequent & (spread.tail >= _LEAST_LOST * window)).tolist():
        frequent[one] = not two_modes(a, device, like, one, duration)
    calls, behind = by_number(group), np.cumsum(spread.count)  # of each group, one after the other
    slow = np.flatnonzero(duration > SLOW * spread.p50[group])
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
        # Each a duration that was recorded.
        recorded = np.sort(like.duration[group == worst])
        ranks = (np.ceil(q * len(recorded)).astype(int) - 1 for q in (0.5, 0.99, 1.0))
        times = (recorded[rank] / 1e3 for rank in ranks)
        kernel, lost = shorten(a.names.texts[of_name[worst]], 60), spread.tail[worst] / 1e6
        own.table("operations.tail", [[labels[i], kernel, spread.count[worst], *times, lost]])


def _lost_by_step(a: Analysis, at: Array, group: Array, lost: Array) -> Array | None:
    """Time lost by operations (positions in `ops`), ns, by group and step of the window; None without
    steps."""
    steps = a.window_steps
    if len(steps) == 0:
        return None
    width = len(a.steps) + 1
    by_step = np.bincount(group * width + a.steps.op_step[at] + 1, lost, (int(group.max()) + 1) * width)
    return np.asarray(by_step.reshape(-1, width)[:, steps + 1])


# --- launch shapes that change from step to step: what keeps a step from becoming one CUDA graph ---


def shape_facts(a: Analysis, device: int, out: FactWriter) -> None:
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
    known, kind = dense(name * (1 << 24) + shape % (1 << 24))
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


def in_use_facts(a: Analysis, device: int, out: FactWriter) -> None:
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
    texts = (f"{operation} {share:.1%}".replace("%", " %") for operation, share in islice(largest, _NAMED))
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


def _launches(a: Analysis, kernels: DeviceKernels, out: FactWriter) -> None:
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
_LAYERS = Need("no layers with attention show in modules, ranges, or the order of the kernels", "torch.profiler.profile(with_stack=True), or ranges that number the layers")  # fmt: skip
_HOW = "median over layers and steps of the commonest phase"
_EXPERT_COUNT = "count in the steps of the window / steps"
_STRETCH = Need(
    "no top-k kernel of a framework is followed by one that combines results, and no loop over experts shows"
)

LAYER_FACTS = (
    *group("device", "", [
        Entry("layer.count", "count", "kernels", "Layers of a step that hold attention", "modules of one class, numbered ranges, or repeats of the kernels"),
        Entry("layer.source", "text", "kernels", "How the layers were found: by Python modules, ranges, or the order of the kernels", "the first of them that shows any"),
        Entry("layer.time_ns", "ns", "kernels", "Kernel time of a layer", _HOW),
        Entry("layer.attention_ns", "ns", "kernels", "Kernel time of the attention part of a layer, with its projections", _HOW),
        Entry("layer.ffn_ns", "ns", "kernels", "Kernel time of the feed-forward network or the experts of a layer", _HOW),
        Entry("layer.norm_ratio", "ratio", "kernels", "Share of the kernel time of layers in norms and activations that are kernels of their own", "time by family"),
        Entry("layer.cache_join_ratio", "ratio", "kernels", "Share of the kernel time of layers in concatenations that append to the KV cache", "concatenations with attention next, without rotation, product or cache write between"),
    ], columns={"kernels": f"{needs.SPAN} name_id"}, needs=(needs.KERNELS, _LAYERS)),
    *group("device", needs.CUDA, [
        *needs.counted("experts.topk", "kernels", "Top-k kernels of a framework", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.grouping", "kernels", "Sort, histogram and select kernels", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.combine", "kernels", "Kernels that add rows up by index or scatter them,", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        *needs.counted("experts.layers", "kernels", "Layers of experts built of single operators: from a top-k kernel to the last combining kernel before the next top-k (of the step), or a loop over experts,", _EXPERT_COUNT, needs=(needs.KERNELS,)),
        Entry("experts.loose_window_ratio", "ratio", "kernels", "Share of the untraced step in such layers", "sum / untraced window"),
        Entry("experts.loop_window_ratio", "ratio", "kernels", "Share of the untraced step in such layers whose experts run one by one: three activations or more, each behind products of its own, or six products behind a top-k, without a norm, attention or collective between them", "sum / untraced window"),
        Entry("experts.kernels_per_layer", "count", "kernels", "Kernels in such a layer", "mean", needs=(needs.KERNELS, _STRETCH)),
        Entry("experts.readbacks_per_layer", "count", "kernels", "Copies of at most 64 KiB to the host in such a layer", "mean", columns={"kernels": f"{needs.SPAN} name_id", "copies": "start kind bytes"}, needs=(needs.KERNELS,)),
    ], columns={"kernels": f"{needs.SPAN} name_id"}, needs=(needs.KERNELS,)),
)  # fmt: skip


def layer_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = find_layers(a, device) if a.trace.has("kernels") else None
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


def expert_facts(a: Analysis, device: int, out: FactWriter) -> None:
    found = loose_experts(a, device)
    if found is None:
        return
    counts = {f"experts.{kind}": getattr(found, kind) for kind in ("topk", "grouping", "combine")}
    window, length = a.budgets[device].untraced_ns, found.end - found.start
    out |= {
        **a.rates(device, counts | {"experts.layers": len(found.start)}),
        "experts.loose_window_ratio": min(length.sum() / window, 1.0),
        "experts.loop_window_ratio": min(length[found.loop].sum() / window, 1.0),
        "experts.kernels_per_layer": found.kernels.mean() if len(found.kernels) else None,
        "experts.readbacks_per_layer": found.readbacks.mean() if len(found.readbacks) else 0.0,
    }
