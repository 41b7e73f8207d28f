"""Mixture-of-experts layers that run as separate operators instead of one library kernel, and how evenly
tokens are spread over experts, as far as launches show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import KernelFamily
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import MATMUL, is_helper
from advisor.metrics.matmuls import matmuls
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array, distinct, median_of
from advisor.sources.schema import DTOH, MISSING

_GROUPING = frozenset(("sort", "histogram", "select / compact"))
_COMBINE = frozenset(("index_add", "gather / scatter"))
#: What a loop launches beside the products of its experts; a norm, attention or a collective ends a layer.
_OF_A_LOOP = frozenset(("activation", "elementwise", "index", "copy", "scan_sort", "memset", "quantise"))
#: Activations, each behind products of its own, from which a layer runs its experts one by one (the
#: feed-forward network of a dense layer has one); products behind a top-k, where experts have no activation
#: (a dense layer has three behind its norm). A top-k at most this many kernels ahead begins the layer.
_ONE_BY_ONE, _PRODUCTS, _GATE = 3, 6, 8
#: Loops that come less often a step are no layers but, for example, the heads of a draft.
_LOOPS = 4
#: Larger copies to the host are data, in bytes.
_SMALL = 64 << 10


class LooseExperts(Struct, frozen=True):
    """How many kernels choose the experts of a token (`topk`), group tokens by expert
    (`grouping`) and add results up (`combine`). `start` and `end` (ns) of each layer of experts: from a
    top-k to the last combining kernel before the next one of its step, or the products of a loop over
    experts. `kernels` counts those inside, `readbacks` the small copies to the host; `loop` marks layers
    whose experts run one by one."""

    topk: int
    grouping: int
    combine: int
    start: Array
    end: Array
    kernels: Array
    readbacks: Array
    loop: Array


def loose_experts(a: Analysis, device: int) -> LooseExperts | None:
    """Loose experts in the steps of the window, else in all of it; None if the device runs no kernels
    there."""
    at = a.device_kernels(device)
    step = a.steps.op_step[at] if a.step_count else np.zeros(len(at), np.int64)
    at, step = at[step >= 0], step[step >= 0]
    if len(at) == 0:
        return None

    def rows(wanted: frozenset[str], family: str) -> Array:
        def is_one(kernel: KernelFamily) -> bool:
            return kernel.family == family and kernel.operation in wanted

        return np.flatnonzero(a.names.mask(is_one)[a.op_name[at]])

    topk = rows(frozenset(("top-k",)), "scan_sort")
    grouping, combine = rows(_GROUPING, "scan_sort"), rows(_COMBINE, "index")
    # The last combining kernel before the next top-k, of the same step where there is one: steps that are
    # known by their kernels alone may begin inside a layer.
    until = np.append(topk[1:], len(at))[: len(topk)]
    ends = np.searchsorted(step, step[topk], "right") if (np.diff(step) >= 0).all() else until
    before = np.append(-1, combine)
    own = before[np.searchsorted(combine, np.minimum(until, ends))]
    closes = np.where(own > topk, own, before[np.searchsorted(combine, until)])
    whole = (closes > topk) & (step[closes] <= step[topk] + 1)
    opens, closes = topk[whole], closes[whole]
    first, last = _loops(a, at, step, topk)
    reach = np.searchsorted(opens, last, "right") - 1  # the last stretch that begins before a loop ends
    apart = (reach < 0) | (np.append(closes, 0)[reach] < first)
    loops = np.searchsorted(first, closes, "right") > np.searchsorted(last, opens)
    order = np.argsort(np.concatenate((opens, first[apart])))
    opens, closes = np.concatenate((opens, first[apart]))[order], np.concatenate((closes, last[apart]))[order]
    loop = np.concatenate((loops, np.ones(apart.sum(), bool)))[order]
    start, end = a.ops.start[at[opens]], a.ops.end[at[closes]]
    read = np.sort(a.ops.start[_readbacks(a, device)])
    readbacks = np.searchsorted(read, end) - np.searchsorted(read, start)
    return LooseExperts(
        len(topk), len(grouping), len(combine), start, end, closes - opens + 1, readbacks, loop
    )


def _loops(a: Analysis, at: Array, step: Array, topk: Array) -> tuple[Array, Array]:
    """The first and last kernel (positions in `at`, ascending) of each layer that runs its experts one by
    one, whatever chose them."""
    names = a.names

    def named(wanted: Callable[[KernelFamily], bool]) -> Array:
        return names.mask(wanted)[a.op_name[at]]

    product = named(lambda k: k.family in ("gemm", "gemv") and not is_helper(k))
    active = named(lambda k: k.family == "activation")
    inside = product | named(
        lambda k: (k.family in _OF_A_LOOP and k.operation != "top-k") or k.operation == "reduction (CUB)"
    )
    run = np.cumsum(~inside | (np.diff(step, prepend=step[:1]) != 0))
    # Activations with a product between them and the one before, of the same run.
    done = np.cumsum(product)
    acted = np.flatnonzero(active & inside)
    fed = np.diff(done[acted], prepend=0) > 0
    count = np.bincount(run[acted[fed]], minlength=run[-1] + 1)
    rows = np.flatnonzero(product)
    if not len(rows):
        return rows, rows
    first, last = np.full(run[-1] + 1, len(at)), np.full(run[-1] + 1, MISSING)
    np.minimum.at(first, run[rows], rows)
    np.maximum.at(last, run[np.flatnonzero(inside)], np.flatnonzero(inside))
    gate = np.append(topk, MISSING)[np.searchsorted(topk, first) - 1]
    gated = (gate >= 0) & (first - gate <= _GATE)
    found = (count >= _ONE_BY_ONE) | (gated & (np.bincount(run[rows], minlength=len(count)) >= _PRODUCTS))
    found &= (first < last) & (gated | ~gated[found].any())  # else one that the window cuts
    if found.sum() < _LOOPS * max(a.step_count, 1):
        found[:] = False
    return np.where(gated, gate, first)[found], last[found]


def _readbacks(a: Analysis, device: int) -> Array:
    """Positions of the copies of counts and indices to the host."""
    at = np.flatnonzero((a.ops.kind == Kind.COPY) & (a.ops.device == device))
    copies = a.trace.columns("copies", ("kind", "bytes")) if len(at) else None
    if copies is None:
        return at
    row = a.ops.row[at]
    return np.asarray(at[(copies["kind"][row] == DTOH) & (copies["bytes"][row] <= _SMALL)])


# ------------------------------------------------------------------------- how even routing is

#: At least this many layers of equal size must be seen; this share of them counts as the most even.
_LAYERS, _MOST_EVEN = 8, 0.25


class Routing(Struct, frozen=True):
    """Expert layers that work on as many tokens, or launches of one shape of a grouped product.

    `by` says how experts run: "one by one", "padded" to the fullest one in one product, or "grouped",
    whose launches do not tell the tokens of an expert. `at` are the kernels of the experts (positions in
    `ops`); `time` (ns) is theirs in each layer; `size` what the layer's largest launch works on, `hit`
    and `uneven` how many experts were launched and how much more than the mean the fullest one has to
    do (one by one). `unit` of `size` is tokens (recorded shapes) or blocks of the activation's grid.
    """

    by: str
    at: Array
    time: Array
    size: Array
    hit: Array
    uneven: Array
    unit: str

    def even(self) -> tuple[float, float, float]:
        """Mean time of a layer with balanced routing over that of the recorded one: at least, probably, at
        most. With launches by expert it is that of the most even quarter of the layers; else as recorded,
        within the quarters of the layers."""
        mean = float(self.time.mean())
        if self.by == "grouped":
            low, high = np.percentile(self.time, (25, 75))
            return min(float(low) / mean, 1.0), 1.0, max(float(high) / mean, 1.0)
        measure = self.uneven if self.by == "one by one" else self.size
        most = self.time[measure <= np.quantile(measure, _MOST_EVEN)]
        low, mid, high = (float(x) / mean for x in np.percentile(most, (25, 50, 75)))
        return low, mid, max(high, 1.0)


def routing(a: Analysis, device: int) -> list[Routing]:
    """How evenly tokens were spread over experts; empty if no kernels of experts are seen."""
    found = list(_loose(a, device))
    return found or list(_grouped(a, device))


def _grouped(a: Analysis, device: int) -> Iterator[Routing]:
    """By name, grid and the kernel before: the products of one layer may share both."""
    all_at = a.device_kernels(device)
    mine = np.flatnonzero(
        a.names.mask(lambda k: k.family == "moe" and "GEMM" in k.operation)[a.op_name[all_at]]
    )
    if not len(mine):
        return
    at, before = all_at[mine], a.op_name[all_at][mine - 1]
    keys = np.stack((a.op_name[at], _blocks(a, at), before))
    _, shape = np.unique(keys, axis=1, return_inverse=True)
    shape = shape.ravel()
    for one in range(int(shape.max()) + 1):
        same = at[shape == one]
        if len(same) >= _LAYERS:
            none = np.full(len(same), np.nan)
            yield Routing("grouped", same, a.ops.length[same], none, none, none, "blocks")


def _loose(a: Analysis, device: int) -> Iterator[Routing]:
    found = loose_experts(a, device)
    at = a.device_kernels(device)
    if found is None or not len(found.start) or not a.trace.has("kernels"):
        return
    start = a.ops.start[at]
    layer = np.searchsorted(found.start, start, "right") - 1
    layer = np.where(start < np.append(found.end, 0)[layer], layer, MISSING)
    at, layer = at[layer >= 0], layer[layer >= 0]
    name = a.op_name[at]
    product = a.names.mask(lambda k: k.family in MATMUL)[name]
    active = a.names.mask(lambda k: k.family == "activation")[name]
    size, unit = _sizes(a, device, at, product, active)
    opens = np.searchsorted(layer, np.arange(len(found.start)))  # the top-k of each layer
    tokens = (name * (1 << 32) + _blocks(a, at))[opens]
    duration = a.ops.length[at]
    for alike in distinct(tokens).tolist():
        layers = np.flatnonzero(tokens == alike)
        mine = np.isin(layer, layers)
        hit = np.bincount(layer[mine & active], minlength=len(tokens))[layers].astype(float)
        if len(layers) < _LAYERS or not hit.all():
            continue
        time = np.bincount(layer[mine], (duration * (product | active))[mine], len(tokens))[layers]
        most, total = np.zeros(len(tokens)), np.bincount(layer[active], size[active], len(tokens))[layers]
        np.maximum.at(most, layer[active], size[active])
        by = "one by one" if median_of(hit) >= _ONE_BY_ONE else "padded"
        if by == "padded" and np.ptp(total) == 0:
            by = "grouped"
        experts = at[mine & (product | active)]
        yield Routing(by, experts, time, most[layers], hit, most[layers] * hit / total, unit)


def _sizes(a: Analysis, device: int, at: Array, product: Array, active: Array) -> tuple[Array, str]:
    """What each activation works on: rows of the product before it, else blocks of its own grid."""
    known = matmuls(a, device)
    if known is not None and active.any():
        rows = np.append([p.m for _, p in known.products], 0)
        of = dict(zip(known.at.tolist(), rows[known.product].tolist(), strict=True))
        before = np.maximum.accumulate(np.where(product, np.arange(len(at)), 0))
        known_rows = np.array([of.get(i, 0) for i in at[before].tolist()], float)
        if (known_rows[active] > 0).all():
            return known_rows, "tokens"
    return _blocks(a, at).astype(float), "blocks"


def _blocks(a: Analysis, at: Array) -> Array:
    return np.asarray(a.trace.columns("kernels", ("blocks",))["blocks"][a.ops.row[at]])
