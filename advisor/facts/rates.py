"""What the steps deliver: tokens a second, how much of the device's peaks that takes, and how many
sequences of a graph are padding; and how fast each matrix product of a decode step reads its weights.

A step of a dense decoder makes the same products in every layer and one of the output head. Where the
products of each step are as many as the config asks for, their order tells which is which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.activity import WEIGHT_BYTES, read_ratio
from advisor.facts.device import ACHIEVABLE
from advisor.facts.phases import ONE_PHASE, RESOLVE
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import StepName, gpu
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import MATMUL, shape_key
from advisor.metrics.matmuls import REDUCTION, Decoder
from advisor.metrics.pauses import step_sizes, step_times
from advisor.model.arrays import Array
from advisor.model.facts import Scope

_SIZES = Need(
    "the names of the steps do not tell how many tokens they work on",
    "an NVTX range around each step that names its batch",
)
_REPLAYED = Need("no graph is replayed for batches of several sizes")
_CONFIG = Need("the number of parameters is not given", "--weight-bytes config.json")
_MATCHED = Need(
    "no config.json was given (--weight-bytes), or the products of the steps are not those of the model"
)

FACTS = (
    *group("device", needs.CUDA, [
        Entry("serving.tokens_per_s", "count_per_s", "ranges", "Tokens that the steps work on a second, as captured: prompts read and tokens generated", "tokens by range names over step times", needs=(needs.STEPS, _SIZES)),
        Entry("serving.model_bandwidth_ratio", "ratio", "kernels", "Model-bandwidth utilisation: bytes of the weights over the time of a decode step, over the peak bandwidth (needs --weight-bytes)", "weight bytes x decode steps / their time / peak; none above 1", needs=(needs.STEPS, WEIGHT_BYTES)),
        Entry("serving.model_flop_ratio", "ratio", "ranges kernels", "Model-FLOP utilisation: two operations a parameter and token over the time of the steps, over the dense 16-bit peak (needs --weight-bytes config.json)", "2 x parameters x tokens / step times / peak; attention is not counted", needs=(needs.STEPS, _SIZES, _CONFIG)),
        Entry("graph.padded_ratio", "ratio", "ranges kernels", "Share of the sequences that replayed decode graphs compute for nothing: batches of several sizes replay one graph, whose size is at least that of the largest", "sum of (largest - batch) / sum of largest, over the steps that replay the same kernels in the same launch shapes", needs=(needs.STEPS, _SIZES, _REPLAYED)),
        Entry("graph.padded_window_ratio", "ratio", "ranges kernels", "The same as a share of the window, if all time of these steps followed the batch", "padded share of the steps' busy time", needs=(needs.STEPS, _SIZES, _REPLAYED)),
    ], columns=origin.STEPS),
    *group("phase", needs.CUDA, [
        Entry("phase.slowest_product", "text", "kernels", "The product whose weights are read slowest", "order of the products in a step, against config.json"),
        Entry("phase.product_headroom_window_ratio", "ratio", "kernels", "Time that all products would save at the achievable DRAM bandwidth, over the window", "sum of time x (1 - rate / 0.92)"),
    ], columns=origin.STEPS, needs=(needs.STEPS, needs.KERNELS, _MATCHED)),
    *group("phase", needs.SAMPLES, [
        Entry("phase.slowest_product_ratio", "ratio", "samples kernels", "At which share of peak bandwidth the slowest product of decode reads its weights; all products together where no config.json tells them apart", "bytes of the weights by config.json / median time / peak, else phase.gemm_dram_ratio"),
    ], columns=origin.DRAM, needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
)  # fmt: skip


def rate_facts(
    a: Analysis, device: int, out: FactWriter, weight_bytes: int | None, parameters: int | None
) -> None:
    """`weight_bytes` and `parameters` are those that one step reads, where the user gave them."""
    if not a.step_count:
        return
    scope, times = Scope(device=device), step_times(a)
    seconds = float(times.sum()) / 1e9
    decode = a.window_phases == "decode"
    if weight_bytes and decode.any():
        read = read_ratio(a, device, weight_bytes * int(decode.sum()), float(times[decode].sum()))
        out.put("serving.model_bandwidth_ratio", read, scope)
    sizes = step_sizes(a, a.window_steps)
    _padding(a, device, sizes, out)
    counts = [_tokens(size) for size in sizes]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not seconds:
        return
    out.put("serving.tokens_per_s", sum(known) / seconds, scope)
    about = gpu(a.device(device).name)
    peak = about.tensor_tflops.get("fp16") if about else None
    if parameters and peak:
        ratio = 2 * parameters * sum(known) / seconds / (peak * 1e12)
        out.put("serving.model_flop_ratio", ratio if ratio <= 1 else None, scope)


def _tokens(size: StepName | None) -> int | None:
    """Tokens of one step: those that its name counts, else one for each sequence of a decode."""
    if size is None:
        return None
    if size.tokens is not None:
        return size.tokens + (size.generation_tokens or size.generation or 0)
    return size.batch if size.phase == "decode" or not size.context else None


def _padding(a: Analysis, device: int, sizes: list[StepName | None], out: FactWriter) -> None:
    """How far batches lie below the largest that replays the same graph, where names tell batches."""
    batch = np.array([s.batch or 0 if s is not None and s.phase == "decode" else 0 for s in sizes])
    at = a.device_kernels(device)
    at = at[a.ops.graph_node[at] != 0]
    if not batch.any() or not len(at):
        return
    number = np.full(len(a.steps) + 1, len(batch))
    number[a.window_steps] = np.arange(len(batch))
    step = number[a.steps.op_step[at]]
    columns = a.trace.columns("kernels", ("grid_x", "grid_y", "grid_z", "threads"))
    shape = shape_key({k: v[a.ops.row[at]] for k, v in columns.items()}).astype(np.uint64)
    mark = (shape + np.uint64(1)) * (
        a.op_name[at].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    )
    graph = np.zeros(len(batch) + 1, np.uint64)
    np.add.at(graph, step, mark)  # wraps: a fingerprint of the kernels of the step
    mine = (batch > 0) & (graph[:-1] != 0)
    _, group = np.unique(graph[:-1][mine], return_inverse=True)
    largest = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, group, batch[mine])
    bucket = largest[group]
    if (bucket == batch[mine]).all():
        return
    scope, window = Scope(device=device), max(a.budgets[device].window.length, 1)
    wasted = bucket - batch[mine]
    busy = np.bincount(step, (a.ops.end - a.ops.start)[at], len(batch) + 1)[:-1][mine]
    out.put("graph.padded_ratio", float(wasted.sum() / bucket.sum()), scope)
    out.put("graph.padded_window_ratio", min(float((busy * wasted / bucket).sum()) / window, 1.0), scope)
    rows = sorted({(int(b), int(n)) for b, n in zip(bucket, batch[mine], strict=True)})
    out.table(
        "graph.buckets",
        scope,
        "Batches and the largest that replays the same graph",
        ("replayed with", "batch", "steps"),
        [[b, n, int(((bucket == b) & (batch[mine] == n)).sum())] for b, n in rows],
    )


# --- how fast each matrix product of a decode step reads its weights, by a model's config ---------


def product_facts(a: Analysis, device: int, out: FactWriter, decoder: Decoder | None) -> None:
    """Rates of the products of decode steps, where `decoder` says what they read."""
    if not a.step_count or not a.trace.has("kernels"):
        return
    scope = Scope(device=device, phase="decode")
    if not _of_decoder(a, device, scope, out, decoder):
        out.put("phase.slowest_product_ratio", out.base.value("phase.gemm_dram_ratio", scope), scope)


def _of_decoder(a: Analysis, device: int, scope: Scope, out: FactWriter, decoder: Decoder | None) -> bool:
    """Whether the products of the steps are those of the model; puts their rates."""
    if decoder is None:
        return False
    decode = a.window_steps[a.window_phases == "decode"]
    at = a.device_kernels(device)
    wanted = a.names.mask(lambda k: k.family in MATMUL and k.operation != REDUCTION)[a.op_name[at]]
    at = at[wanted & np.isin(a.steps.op_step[at], decode)]
    at = at[np.lexsort((a.ops.start[at], a.steps.op_step[at]))]
    count = len(at) // max(len(decode), 1)
    names = decoder.products(count)
    even = np.bincount(a.steps.op_step[at], minlength=len(a.steps))[decode] == count
    if not len(decode) or not names or not even.all():
        return False
    # Those of the layers in turn, then the output head.
    step = np.append(np.tile(np.arange(len(names) - 1), decoder.layers), len(names) - 1)
    products = [(name, round(parameters * decoder.bytes_each)) for name, parameters in names]
    return _product_rates(a, device, scope, out, products, at, np.tile(step, len(decode)))


def _product_rates(
    a: Analysis,
    device: int,
    scope: Scope,
    out: FactWriter,
    products: Sequence[tuple[str, int]],
    at: Array,
    kind: Array,
) -> bool:
    """`products` are (name, bytes); operation `at[i]` is the product of number `kind[i]`. False where
    the sizes cannot be those of this model, or the peak is not known."""
    length = (a.ops.end - a.ops.start)[at].astype(float)
    window = max(a.budgets[device].window.length, 1)
    rows: list[tuple[str, int, int, float, float, float]] = []
    spare = 0.0
    for i, (name, size) in enumerate(products):
        time = length[kind == i]
        rate = read_ratio(a, device, size, float(np.median(time)))
        if rate is None:
            return False
        spare += float(time.sum()) * max(1.0 - rate / ACHIEVABLE, 0.0)
        rows.append((name, size, len(time), float(np.median(time)) / 1e3, rate, float(time.sum()) / window))
    slowest = min(rows[:-1], key=lambda row: row[4])
    out.put("phase.slowest_product", slowest[0], scope)
    out.put("phase.slowest_product_ratio", slowest[4], scope)
    out.put("phase.product_headroom_window_ratio", min(spare / window, 1.0), scope)
    out.table(
        "kernels.products",
        scope,
        "Products of a step by the sizes in config.json, bandwidth of peak, share of the window",
        ("product", "weights:bytes", "calls", "p50:us", "bandwidth:ratio", "share:ratio"),
        rows,
    )
    return True
