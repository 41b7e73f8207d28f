"""Autotuning without a range: kernels of the same product tried one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.metrics.kernels import MATMUL, Names
from advisor.metrics.operations import Operations
from advisor.model.arrays import Array, distinct

#: Trials: at most this many kernels apart, of this many kernels, this many in all, and most of what runs
#: there.
_NEAR, _KERNELS, _RUNS, _MOST = 16, 4, 12, 0.5
#: A kernel that runs as often in a row through the rest of the capture is a benchmark.
_BENCHMARK = 0.5


def find_autotuning(ops: Operations, op_name: Array, names: Names, until: int) -> Iterator[tuple[int, int]]:
    """Positions of the first and the last trial of each stretch; kernels that also run after `until`
    (ns) were chosen. `op_name` is the position of each operation's name in `names`."""
    clears = names.mask(lambda k: k.operation == "fill")  # caches between trials
    at = np.flatnonzero(op_name >= 0)
    at = at[~clears[op_name[at]]]
    name = op_name[at]
    same = name[1:] == name[:-1]
    in_a_row = names.mask(lambda k: k.family in MATMUL)[name] & (
        np.append(same, False) | np.append(False, same)
    )
    last = np.zeros(len(names.ids), np.int64)
    np.maximum.at(last, name, ops.end[at])
    tried = np.flatnonzero(in_a_row & (last[name] <= until))
    if len(tried) < _RUNS:
        return
    groups = np.split(tried, np.flatnonzero(np.diff(tried) > _NEAR) + 1)
    found = [
        (int(g[0]), int(g[-1]))
        for g in groups
        if len(g) >= max(_RUNS, _MOST * (g[-1] - g[0] + 1)) and len(distinct(name[g])) >= _KERNELS
    ]
    if found and in_a_row[found[-1][1] + 1 :].mean() < _BENCHMARK:
        yield from ((int(at[first]), int(at[end])) for first, end in found)
