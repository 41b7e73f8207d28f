"""Low-rank adapters: kernels written for them, and adapters that run operator by operator."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.files import KernelFamily
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import UNFUSED, dense, is_helper, is_product
from advisor.model.arrays import Array, among, begins_run, ordered

#: Casts and dropout between the product and its adapter, and casts between the adapter and its addition.
_BETWEEN = 2
#: A product of an adapter takes at most this many times as long as the product beside it.
_THIN = 1.25
#: The least number of times that an adapter runs in a capture.
_OFTEN = 8

_PRODUCT, _SCALE, _ADD, _SMALL, _BOTH = range(1, 6)


def is_adapter(kernel: KernelFamily) -> bool:
    """True for a kernel that is made for adapters."""
    return kernel.operation == "LoRA GEMM"


def adapter_kernels(a: Analysis, at: Array) -> Array:
    """Which operations `at` (positions in `ops`) compute adapters: kernels written for them; and, by order,
    a product, two shorter ones unlike each other, a multiplication by the scale and an addition to the
    first result (a compiler fuses the last two), without the first product. Keys and values, which are two
    products behind one as well, are equal to each other.
    """
    names, name, duration = a.names, a.op_name[at], a.ops.length[at]
    start, stream = a.ops.start[at], a.ops.stream[at]
    out = np.append(names.mask(is_adapter), False)[name]
    signs = [_sign(k) for k in names.known]
    if _PRODUCT not in signs or not ({_SCALE, _ADD} <= set(signs) or _BOTH in signs):
        return out
    order = ordered(start, stream)
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
    found = (down - first - 1 <= _BETWEEN) & (small[down] - small[first + 1] == down - first - 1)
    found &= (up == down + 1) & (scale == up + 1) & (add < after) & (add - scale - 1 <= _BETWEEN)
    last = np.minimum(add, len(main) - 1)
    found &= (add == scale) | (small[last] - small[np.minimum(scale + 1, last)] == add - scale - 1)
    found &= stream[row[first]] == stream[row[last]]
    thin = np.maximum(duration[row[down]], duration[row[up]]) <= _THIN * duration[row[first]]
    blocks = a.trace.columns("kernels", ("blocks",))["blocks"]
    two = [(name[each], blocks[a.ops.row[at[each]]]) for each in (row[down], row[up])]
    found &= thin & ~((two[0][0] == two[1][0]) & (two[0][1] == two[1][1]))
    kinds, key = dense((two[0][0].astype(np.int64) << 32) | two[1][0])
    found &= (np.bincount(key[found], minlength=len(kinds)) >= _OFTEN)[key]
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
