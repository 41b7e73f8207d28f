"""Facts about kernels of a pass of the model that other kernels could replace. Without steps the window
counts as one pass.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import KernelFamily
from advisor.metrics.adapters import adapter_kernels, is_adapter
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import UNFUSED, is_dequantising, is_unknown
from advisor.metrics.lookups import cache_reorders, embedding_lookups
from advisor.metrics.passes import narrowed_weights, sampling_sorts, widened_caches, widened_weights
from advisor.model.arrays import Array

_WIDENED = Need("no kernel only widens quantised values")

FACTS = (
    *group("device", needs.CUDA, [
        Entry("kernel.dequantise_ratio", "ratio", "kernels", "Share of the busy time in kernels that only widen quantised values: by name, or kernels of a framework before a product or attention that take as long as reading its weights or cache", "names; place and length"),
        Entry("kernel.dequantise_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
        Entry("kernel.weight_cast_ratio", "ratio", "kernels", "Share of the busy time in casts from FP32 to 16 bits before a product that take about as long as reading its weights", "names; place and length"),
        Entry("kernel.weight_cast_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
        Entry("kernel.adapter_ratio", "ratio", "kernels", "Share of the busy time in kernels of low-rank adapters (LoRA)", "names, or two unlike products behind one that takes as long or longer, each time with a multiplication and an addition behind them"),
        Entry("kernel.adapter_window_ratio", "ratio", "kernels", "The same as a share of the window", "x busy share"),
        Entry("kernel.adapter_count_ratio", "ratio", "kernels", "Share of the kernels that belong to low-rank adapters", "as kernel.adapter_ratio"),
        Entry("kernel.widened_operands", "text", "kernels", "What these kernels widen: weights, or keys and values (before attention), or both", "the kernel after them", needs=(needs.KERNELS, _WIDENED)),
        Entry("kernel.attention_pieces_window_ratio", "ratio", "kernels", "Share of the window in kernels, a softmax among them, between two matrix products of a layer: attention that no single kernel computes", "sum / window"),
        *needs.counted("kernel.attention_pieces", "kernels", "Attention that no single kernel computes", "count / steps", needs=(needs.KERNELS,)),
        Entry("kernel.cache_reorder_window_ratio", "ratio", "kernels", "Share of the window in gathers of rows in a language model of which eight or more follow each other without a product between them: caches of beams that changed places", "names and place; 3 us each or more"),
        Entry("embedding.lookup_window_ratio", "ratio", "kernels", "Share of the window from the first to the last of eight or more embedding kernels (outside language models gathers of rows, too) without a product between them", "sum of the stretches / window"),
        *needs.counted("embedding.lookups", "kernels", "Embedding kernels of such stretches", "count / steps", needs=(needs.KERNELS,)),
        Entry("kernel.unfused_named_ratio", "ratio", "kernels", "Share of the time of elementwise, copy, cast and norm kernels in those between the products of attention and in casts of weights and caches; 0 with steps, which tell what each of these wins", "sum / sum"),
    ], columns={"kernels": f"{needs.SPAN} name_id"}, needs=(needs.KERNELS,)),
    *group("device", needs.CUDA, [
        Entry("kernel.sampling_sort_window_ratio", "ratio", "kernels", "Share of the window in sorts and scans behind the last matrix product of a step: sampling that orders the vocabulary", "sum / window"),
    ], columns={"kernels": f"{needs.SPAN} name_id"}, needs=(needs.KERNELS, needs.STEPS)),
)  # fmt: skip

#: The shares that names alone show: all that sums contain.
BY_NAME: dict[str, Callable[[KernelFamily], bool]] = {
    "kernel.dequantise_ratio": is_dequantising,
    "kernel.adapter_ratio": is_adapter,
}


def pass_facts(a: Analysis, device: int, out: FactWriter) -> None:
    if not a.trace.has("kernels") or not len(a.kernels(device).at):
        return
    kernels, budget = a.kernels(device), a.budgets[device]
    at, name, length, pieces = kernels.at, kernels.name, kernels.length, kernels.attention_pieces
    busy, window = max(budget.busy_ns, 1), budget.window.nonzero_length
    placed = at, kernels.passes
    unknown = min(float(length[a.names.mask(is_unknown)[name]].sum()), busy)

    def held(mine: Array) -> float:
        return min(float(length[mine].sum()), busy)

    widened_cache, narrowed = widened_caches(a, *placed, pieces), narrowed_weights(a, *placed, pieces)
    widened = a.names.mask(is_dequantising)[name] | widened_weights(a, *placed, pieces) | widened_cache
    operands = (("weights", (widened & ~widened_cache).any()), ("keys and values", widened_cache.any()))
    adapting = adapter_kernels(a, at)
    shares = {}
    for subject, mine in (("dequantise", widened), ("weight_cast", narrowed), ("adapter", adapting)):
        spent = held(mine)
        for what, whole in (("ratio", busy), ("window_ratio", window)):
            # Unidentified kernels may belong to them or not.
            shares[f"kernel.{subject}_{what}"] = spent / whole, min(spent + unknown, busy) / whole
    out.put_between(shares)
    lookups = embedding_lookups(a, *placed)
    stretches = int((lookups.end - lookups.start).sum())
    out |= {
        "kernel.adapter_count_ratio": float(adapting.mean()),
        "kernel.widened_operands": " and ".join(what for what, found in operands if found) or None,
        "kernel.attention_pieces_window_ratio": held(pieces.inner) / window,
        "kernel.cache_reorder_window_ratio": held(cache_reorders(a, *placed).of) / window,
        "embedding.lookup_window_ratio": min(stretches / window, 1.0),
        **a.rates(
            device, {"kernel.attention_pieces": pieces.count, "embedding.lookups": int(lookups.of.sum())}
        ),
    }
    small = a.names.mask(lambda k: k.family in UNFUSED)[name] if not a.step_count else np.zeros(len(at), bool)
    named = small & (pieces.inner | widened | narrowed)
    out.put("kernel.unfused_named_ratio", float(length[named].sum() / max(length[small].sum(), 1)))
    if a.step_count:
        out.put("kernel.sampling_sort_window_ratio", held(sampling_sorts(a, at, kernels.step)) / window)
