"""Compilation and autotuning, at the beginning of a program or again in its loop."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.metrics import limits
from advisor.metrics.loaded.kernels import MATMUL
from advisor.metrics.loaded.operations import combinations
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import MISSING, Call
from advisor.sources.trace import Columns


def compiled(a: Loaded, calls: Columns, modules: Array, first: int) -> Array:
    """Thread, begin and end of the host code directly before modules are loaded once there has been work
    (from `first` on, ns), if that happens again: what is loaded then has been compiled there."""
    rows = modules[(calls["call"][modules] == Call.MODULE) & (calls["start"][modules] > first)]
    thread, end = calls["thread"][rows], calls["start"][rows]
    begin = end.copy()
    for one in distinct(thread).tolist():
        mine, own = np.flatnonzero(thread == one), a.threads.of(one)
        before = np.searchsorted(own.start, end[mine], "left") - 1
        known = before >= 0
        begin[mine[known]] = np.maximum(own.end[before[known]], first)
    long = end - begin >= limits.host.LONG_HOST_NS
    long &= long.sum() >= limits.window.TRIAL_LOADS
    return np.stack((thread[long], begin[long], end[long]))


def trials(a: Loaded, calls: Columns, until: int, steps: Steps) -> Iterator[tuple[str, int, int, int]]:
    """Autotuning without a range: stretches in which kernels of the same product are tried one after the
    other, each with what it is, begin, end and thread. Kernels that also run after `until` (ns) were chosen,
    except those that few of the `steps` run."""
    ops, names = a.ops, a.names
    at = np.flatnonzero(a.op_name >= 0)
    at = at[~names.mask(lambda k: k.operation == "fill")[a.op_name[at]]]  # clears caches between trials
    name = a.op_name[at]
    same = name[1:] == name[:-1]
    products = names.mask(lambda k: k.family in MATMUL)[name]
    in_a_row = products & (np.append(same, False) | np.append(False, same))
    last = np.zeros(len(names.ids), np.int64)
    np.maximum.at(last, name, ops.end[at])
    again = np.zeros(len(names.ids), bool)
    if steps.believed and len(steps) >= limits.window.TRIAL_STEPS:
        inside = steps.op_step[at] >= 0
        of, _ = combinations(steps.op_step[at][inside], name[inside])
        again = np.bincount(name[inside][of], minlength=len(again)) <= limits.window.SELDOM_RATIO * len(steps)
    tried = np.flatnonzero(in_a_row & ((last[name] <= until) | again[name]))
    groups = np.split(tried, np.flatnonzero(np.diff(tried) > limits.window.TRIAL_DISTANCE) + 1)
    found = [
        (int(g[0]), int(g[-1]))
        for g in groups
        if len(g) >= limits.window.TRIALS
        and len(g) >= limits.window.TRIALS_RATIO * (g[-1] - g[0] + 1)
        and (
            len(distinct(name[g])) >= limits.window.TRIAL_KERNELS
            # An encoder that few steps run repeats its products as well, but with other kernels between.
            or (again[name[g]].all() and len(g) >= limits.window.ONLY_TRIALS_RATIO * (g[-1] - g[0] + 1))
        )
    ]
    rest = in_a_row[found[-1][1] + 1 :] if found else in_a_row[:0]
    if not found or (len(rest) and rest.mean() >= limits.window.BENCHMARK_RATIO):
        return
    for first, end in ((at[i], at[j]) for i, j in found):
        call = int(ops.api[first])
        begun = ops.start[first] if call < 0 else calls["start"][call]
        thread = MISSING if call < 0 else int(calls["thread"][call])
        what = f"trials of kernels, {end - first + 1:,} operations"
        yield what, int(begun), int(ops.end[end]), thread
