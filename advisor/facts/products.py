"""How fast each matrix product of a decode step reads its weights, by the sizes in a model's config.

A step of a dense decoder makes the same products in every layer and one of the output head. Where the
products of each step are as many as the config asks for, their order tells which is which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.activity import read_ratio
from advisor.facts.device import ACHIEVABLE
from advisor.facts.phases import ONE_PHASE, RESOLVE
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import MATMUL
from advisor.metrics.matmuls import REDUCTION
from advisor.model.arrays import Array
from advisor.model.decoder import Decoder
from advisor.model.facts import Scope

_MATCHED = Need(
    "no config.json was given (--weight-bytes), or the products of the steps are not those of the model"
)

FACTS = (
    *group("phase", needs.CUDA, [
        Entry("phase.slowest_product", "text", "kernels", "The product whose weights are read slowest", "order of the products in a step, against config.json"),
        Entry("phase.product_headroom_window_ratio", "ratio", "kernels", "Time that all products would save at the achievable DRAM bandwidth, over the window", "sum of time x (1 - rate / 0.92)"),
    ], columns=origin.STEPS, needs=(needs.STEPS, needs.KERNELS, _MATCHED)),
    *group("phase", needs.SAMPLES, [
        Entry("phase.slowest_product_ratio", "ratio", "samples kernels", "At which share of peak bandwidth the slowest product of decode reads its weights; all products together where no config.json tells them apart", "bytes of the weights by config.json / median time / peak, else phase.gemm_dram_ratio"),
    ], columns=origin.DRAM, needs=(needs.STEPS, ONE_PHASE, RESOLVE)),
)  # fmt: skip


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
    return _rates(a, device, scope, out, products, at, np.tile(step, len(decode)))


def _rates(
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
