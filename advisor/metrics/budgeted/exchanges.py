"""Exchanges of tokens between the ranks that hold the experts of a layer, and whether a batch is cut into two
halves, of which one exchanges while the other computes."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.collectives import POINT_TO_POINT, Collectives
from advisor.metrics.budgeted.stage import Budgeted
from advisor.model.arrays import Array

#: What an all-to-all may also run as: before the experts, and behind them.
_TO_EXPERTS = POINT_TO_POINT | {"all-to-all", "all-gather"}
_BACK = POINT_TO_POINT | {"all-to-all", "reduce-scatter"}
_NOTHING, _ATTENTION, _EXPERTS = range(3)


class Exchanges(Struct, frozen=True):
    """`rows`: which collectives of a device take tokens to their experts or back, as positions among them.
    `halves`: the batch is cut in two."""

    rows: Array
    halves: bool


def find_exchanges(a: Budgeted, device: int, found: Collectives) -> Exchanges:
    """Collectives between attention and kernels of experts, in the order in which kernels begin; none if no
    kernels of experts run, and none that send tokens to them.

    Of two halves the one attends while the tokens of the other are sent: an exchange then lies between the
    attention of both. Of a whole batch, experts follow an exchange, or come before it: where no kernel is
    known to be of experts, nothing tells them apart."""
    at = a.device_kernels(device)
    at = at[np.argsort(a.ops.start[at], kind="stable")]
    mark = np.full(len(at), _NOTHING)
    mark[a.names.mask(lambda k: k.family == "attention")[a.op_name[at]]] = _ATTENTION
    mark[a.names.mask(lambda k: k.family == "moe")[a.op_name[at]]] = _EXPERTS
    sends = a.names.mask(lambda k: k.operation.startswith("expert dispatch"))[a.op_name[at]]
    experts = bool((mark == _EXPERTS).any())
    if not experts and not sends.any():
        return Exchanges(np.empty(0, np.int64), halves=False)
    marked = np.flatnonzero(mark)
    around = np.concatenate(([_NOTHING], mark[marked], [_NOTHING]))
    behind = np.searchsorted(a.ops.start[at[marked]], found.start, "left")
    before, after = around[behind], around[behind + 1]
    to, back, plain = (
        np.array([kind in kinds for kind in found.kinds] or [False])[found.kind]
        for kinds in (_TO_EXPERTS, _BACK, ("all-to-all",))
    )
    mine = plain | to & (after == _EXPERTS) | back & (before == _EXPERTS)
    between = plain & (before == _ATTENTION) & (after == _ATTENTION)
    halves = between.sum() >= limits.kernels.HALVES_RATIO * max(int(mine.sum()), 1)
    return Exchanges(np.flatnonzero(mine), bool(experts and halves and between.any()))
