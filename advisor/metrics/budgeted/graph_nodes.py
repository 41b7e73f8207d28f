"""Times of the nodes of CUDA and HIP graphs, and whether they can be those of the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.metrics import limits
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import ATTENTION, call_key, launch_shape
from advisor.metrics.loaded.operations import combinations

#: Work of one launch shape whose size the shape does not show: what was routed, how long a cache is, who came
#: late.
_VARIES = frozenset((*ATTENTION, "communication", "moe", "sampling", "unknown"))


class UnevenNodes(NamedTuple):
    """`share` of the time of nodes lies in kernels of one name and launch shape that take several times as
    long as each other inside one replay; the longest takes `over` times the shortest."""

    share: float
    over: float


def uneven_nodes(a: Budgeted, device: int) -> UnevenNodes | None:
    """None if no node of a graph was recorded."""
    at = a.device_kernels(device)
    at = at[a.ops.graph_node[at] != 0]
    whole = float(a.ops.length[at].sum())
    if not len(at) or whole <= 0:
        return None
    fixed = at[a.names.mask(lambda k: k.family not in _VARIES)[a.op_name[at]]]
    key = call_key(a.op_name[fixed], launch_shape(a.trace, a.ops.row[fixed])).view(np.int64)
    _, group = combinations(a.ops.process[fixed], a.ops.correlation[fixed], key)
    count = int(group.max(initial=-1)) + 1
    length = a.ops.length[fixed]
    calls = np.bincount(group, minlength=count)
    least, most = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(least, group, length)
    np.maximum.at(most, group, length)
    over = most / np.maximum(least, 1)
    uneven = (calls >= limits.kernels.UNEVEN_CALLS) & (over >= limits.kernels.UNEVEN_NODES)
    held = float(length[uneven[group]].sum()) if count else 0.0
    return UnevenNodes(held / whole, float(over[uneven].max(initial=1.0)))
