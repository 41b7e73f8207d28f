"""Mixture-of-experts layers that run as separate operators instead of one library kernel, and how evenly
tokens are spread over experts, as far as launches show it; and low-rank adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import KernelFamily
from advisor.metrics import limits
from advisor.metrics.budgeted.matmuls import matmuls
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import MATMUL, UNFUSED, dense, is_helper, is_product
from advisor.metrics.loaded.operations import Kind, combinations
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, among, begins_run, distinct, median_of, ordered, where
from advisor.sources.schema import DTOH, MISSING

_GROUPING, _COMBINE = ("sort", "histogram", "select / compact"), ("index_add", "gather / scatter")
#: What a loop launches beside the products of its experts; a norm, attention or a collective ends a layer.
_OF_A_LOOP = frozenset(("activation", "elementwise", "index", "copy", "scan_sort", "memset", "quantise"))


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


def loose_experts(a: Budgeted, device: int) -> LooseExperts | None:
    """Loose experts in the steps of the window, else in all of it; None if it holds no kernels."""
    at = a.device_kernels(device)
    step = a.steps.op_step[at] if a.step_count else np.zeros(len(at), np.int32)
    inside = where(step >= 0)
    at, step = at[inside], step[inside]
    if len(at) == 0:
        return None

    def rows(family: str, *wanted: str) -> Array:
        mask = a.names.mask(lambda k: k.family == family and k.operation in wanted)
        return np.flatnonzero(mask[a.op_name[at]])

    topk, grouping = rows("scan_sort", "top-k"), rows("scan_sort", *_GROUPING)
    combine = rows("index", *_COMBINE)
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
    opens, closes = np.append(opens, first[apart]), np.append(closes, last[apart])
    loop = np.append(loops, np.ones(apart.sum(), bool))
    order = np.argsort(opens)
    opens, closes, loop = opens[order], closes[order], loop[order]
    start, end = a.ops.start[at[opens]], a.ops.end[at[closes]]
    read = np.sort(a.ops.start[_readbacks(a, device)])
    readbacks = np.searchsorted(read, end) - np.searchsorted(read, start)
    count = len(topk), len(grouping), len(combine)
    return LooseExperts(*count, start, end, closes - opens + 1, readbacks, loop)


def _loops(a: Stepped, at: Array, step: Array, topk: Array) -> tuple[Array, Array]:
    """First and last kernel (positions in `at`, ascending) of each layer whose experts run one by one."""

    def named(wanted: Callable[[KernelFamily], bool]) -> Array:
        return a.names.mask(wanted)[a.op_name[at]]

    product = named(lambda k: is_product(k) and not is_helper(k))
    active = named(lambda k: k.family == "activation")
    inside = product | named(
        lambda k: (k.family in _OF_A_LOOP and k.operation != "top-k") or k.operation == "reduction (CUB)"
    )
    run = np.cumsum(~inside | begins_run(step), dtype=np.int32) - np.int32(1)
    # Activations with a product between them and the one before, of the same run.
    acted = np.flatnonzero(active & inside)
    fed = np.diff(np.cumsum(product, dtype=np.int32)[acted], prepend=0) > 0
    count = np.bincount(run[acted[fed]], minlength=run[-1] + 1)
    rows = np.flatnonzero(product)
    if not len(rows):
        return rows, rows
    first, last = np.full(run[-1] + 1, len(at)), np.full(run[-1] + 1, MISSING)
    np.minimum.at(first, run[rows], rows)
    held = np.flatnonzero(inside)
    np.maximum.at(last, run[held], held)
    gate = np.append(topk, MISSING)[np.searchsorted(topk, first) - 1]
    gated = (gate >= 0) & (first - gate <= limits.kernels.GATE_DISTANCE)
    found = (count >= limits.kernels.EXPERT_ACTIVATIONS) | (
        gated & (np.bincount(run[rows], minlength=len(count)) >= limits.kernels.EXPERT_PRODUCTS)
    )
    found &= (first < last) & (gated | ~gated[found].any())  # else one that the window cuts
    if found.sum() < limits.kernels.EXPERT_LOOPS * max(a.step_count, 1):
        found[:] = False
    return np.where(gated, gate, first)[found], last[found]


def _readbacks(a: Loaded, device: int) -> Array:
    """Positions of the copies of counts and indices to the host."""
    at = np.flatnonzero((a.ops.kind == Kind.COPY) & (a.ops.device == device))
    kind, size = (column[a.ops.row[at]] for column in a.trace.columns("copies", ("kind", "bytes")).values())
    return np.asarray(at[(kind == DTOH) & (size <= limits.kernels.READBACK_BYTES)])


# ------------------------------------------------------------------------- how even routing is


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
        most = self.time[measure <= np.quantile(measure, limits.kernels.MOST_EVEN_RATIO)]
        low, mid, high = (float(x) / mean for x in np.percentile(most, (25, 50, 75)))
        return low, mid, max(high, 1.0)


def routing(a: Budgeted, device: int) -> list[Routing]:
    """How evenly tokens were spread over experts; empty if no kernels of experts are seen."""
    found = list(_loose(a, device))
    return found or list(_grouped(a, device))


def _grouped(a: Budgeted, device: int) -> Iterator[Routing]:
    """By name, grid and the kernel before: the products of one layer may share both."""
    all_at = a.device_kernels(device)
    grouped = a.names.mask(lambda k: k.family == "moe" and "GEMM" in k.operation)
    mine = np.flatnonzero(grouped[a.op_name[all_at]])
    if not len(mine):
        return
    at, before = all_at[mine], a.op_name[all_at][mine - 1]
    first, shape = combinations(a.op_name[at], _blocks(a, at), before)
    for one in range(len(first)):
        same = at[shape == one]
        if len(same) >= limits.kernels.EVEN_LAYERS:
            none = np.full(len(same), np.nan)
            yield Routing("grouped", same, a.ops.length[same], none, none, none, "blocks")


def _loose(a: Budgeted, device: int) -> Iterator[Routing]:
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
    tokens = (name.astype(np.int64) * (1 << 32) + _blocks(a, at))[opens]
    duration = a.ops.length[at]
    for alike in distinct(tokens).tolist():
        layers = np.flatnonzero(tokens == alike)
        mine = np.isin(layer, layers)
        hit = np.bincount(layer[mine & active], minlength=len(tokens))[layers].astype(float)
        if len(layers) < limits.kernels.EVEN_LAYERS or not hit.all():
            continue
        time = np.bincount(layer[mine], (duration * (product | active))[mine], len(tokens))[layers]
        most, total = np.zeros(len(tokens)), np.bincount(layer[active], size[active], len(tokens))[layers]
        np.maximum.at(most, layer[active], size[active])
        by = "one by one" if median_of(hit) >= limits.kernels.EXPERT_ACTIVATIONS else "padded"
        if by == "padded" and np.ptp(total) == 0:
            by = "grouped"
        experts = at[mine & (product | active)]
        yield Routing(by, experts, time, most[layers], hit, most[layers] * hit / total, unit)


def _sizes(a: Budgeted, device: int, at: Array, product: Array, active: Array) -> tuple[Array, str]:
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


def _blocks(a: Loaded, at: Array) -> Array:
    return np.asarray(a.trace.columns("kernels", ("blocks",))["blocks"][a.ops.row[at]])


# --- low-rank adapters: kernels written for them, and adapters that run operator by operator --------


_PRODUCT, _SCALE, _ADD, _SMALL, _BOTH = range(1, 6)


def is_adapter(kernel: KernelFamily) -> bool:
    """True for a kernel that is made for adapters."""
    return kernel.operation == "LoRA GEMM"


def adapter_kernels(a: Loaded, at: Array) -> Array:
    """Which operations `at` (positions in `ops`) compute adapters: kernels written for them; and, by order,
    a product, two shorter ones unlike each other, a multiplication by the scale and an addition to the
    first result (a compiler fuses the last two), without the first product. Keys and values, which are two
    products behind one as well, are equal to each other."""
    names, name = a.names, a.op_name[at]
    out = np.append(names.mask(is_adapter), False)[name]
    signs = [_sign(k) for k in names.known]
    if _PRODUCT not in signs or not ({_SCALE, _ADD} <= set(signs) or _BOTH in signs):
        return out
    order = ordered(a.ops.start[at], a.ops.stream[at])
    sign = np.array([*signs, 0], np.int8)[name[order]]
    helper = np.append(names.mask(is_helper), False)[name[order]]
    main = np.flatnonzero(~helper)  # a product's reduction belongs to it
    row, kind = order[main], sign[main]
    product = kind == _PRODUCT
    if not among(kind[np.flatnonzero(product[:-2] & product[1:-1]) + 2], (_SCALE, _BOTH)).any():
        return out  # no two products followed by a scale
    products = np.flatnonzero(product)
    if len(products) < 3:
        return out
    first, down, up = products[:-2], products[1:-1], products[2:]
    after = np.append(products[3:], len(main))
    small = np.append(0, np.cumsum(kind == _SMALL))
    scale, add = (_next((kind == wanted) | (kind == _BOTH), up) for wanted in (_SCALE, _ADD))
    found = (down - first - 1 <= limits.kernels.ADAPTER_DISTANCE) & (
        small[down] - small[first + 1] == down - first - 1
    )
    found &= (
        (up == down + 1)
        & (scale == up + 1)
        & (add < after)
        & (add - scale - 1 <= limits.kernels.ADAPTER_DISTANCE)
    )
    last = np.minimum(add, len(main) - 1)
    found &= (add == scale) | (small[last] - small[np.minimum(scale + 1, last)] == add - scale - 1)
    stream, length = a.ops.stream, a.ops.length
    found &= stream[at[row[first]]] == stream[at[row[last]]]
    longer = np.maximum(length[at[row[down]]], length[at[row[up]]])
    thin = longer <= limits.kernels.ADAPTER_FACTOR * length[at[row[first]]]
    narrow, wide = name[row[down]], name[row[up]]
    found &= thin & ((narrow != wide) | (_blocks(a, at[row[down]]) != _blocks(a, at[row[up]])))
    kinds, key = dense((narrow.astype(np.int64) << 32) | wide)
    found &= (np.bincount(key[found], minlength=len(kinds)) >= limits.kernels.ADAPTER_RUNS)[key]
    inside = np.zeros(len(order) + 1, np.int64)
    np.add.at(inside, main[first[found]] + 1, 1)
    np.add.at(inside, main[add[found]] + 1, -1)
    mine = np.cumsum(inside[:-1]) > 0
    # The reduction behind the first product belongs to it.
    begins = np.flatnonzero(begins_run(np.cumsum(~helper)))
    own = np.repeat(np.isin(begins, main[first[found]]), np.diff(np.append(begins, len(order))))
    out[order] |= mine & ~(own & helper)
    return out


def _sign(kernel: KernelFamily) -> int:
    if is_product(kernel):
        return _PRODUCT
    if kernel.traits.get("scales_and_adds") is True:
        return _BOTH
    if kernel.family == "elementwise":
        return {"multiply": _SCALE, "add": _ADD}.get(kernel.operation, _SMALL)
    return _SMALL if kernel.family in UNFUSED else 0


def _next(wanted: Array, after: Array) -> Array:
    """Position of the next wanted one behind each of `after`; the length where there is none."""
    at = np.append(np.flatnonzero(wanted), len(wanted))
    return np.asarray(at[np.searchsorted(at, after, "right")])
