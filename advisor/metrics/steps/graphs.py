"""Steps without ranges: periodic launches of CUDA graphs."""

from __future__ import annotations

import numpy as np

from advisor.metrics import limits
from advisor.metrics.loaded.kernels import heaviest
from advisor.metrics.steps.model import Steps, Work, graph_launches, opaque_steps, timed
from advisor.model.arrays import Array, marked, median_of
from advisor.sources.schema import HTOD, MISSING


def opaque_graphs(work: Work) -> Steps | None:
    """Graph launches of a capture without any GPU operation: host times only."""
    launch = graph_launches(work)
    if len(launch) < limits.steps.REPEATS or len(work.ops):
        return None
    start, end, thread = _of_main_thread(work, launch)
    outside = np.full(len(work.ops), MISSING, np.int64)
    return opaque_steps(work, start, end, outside, ("unknown",) * len(start), thread=thread)


def periodic_graphs(work: Work) -> Steps | None:
    """Graph launches of one size that hold most of the work."""
    launch = graph_launches(work)
    if len(launch) < limits.steps.REPEATS:
        return None
    start, end, thread = _of_main_thread(work, launch)
    number = np.full(len(work.calls["start"]), MISSING, np.int64)
    number[launch[work.calls["thread"][launch] == thread]] = np.arange(len(start))
    of_launch = np.where(work.ops.api >= 0, number[np.maximum(work.ops.api, 0)], MISSING)
    held = np.bincount(of_launch[(of_launch >= 0) & work.mine], minlength=len(start))
    full = held[held > 0]
    # A graph whose nodes were not recorded is one operation.
    most = held.sum() >= 0.5 * work.mine.sum() or work.share_inside(of_launch, copies=True) >= 0.5
    if not len(full) or not most or np.ptp(full) > limits.steps.SPREAD_RATIO * median_of(full):
        return None
    start = _with_inputs(work, start)
    # Everything issued from one launch up to the next belongs to the step, except whole passes.
    more, rest = _passes_between(work, start, of_launch == MISSING)
    order = np.argsort(np.concatenate((start, more[0])), kind="stable")
    start, end = (np.concatenate(both)[order] for both in ((start, more[0]), (end, more[1])))
    op_step = np.searchsorted(start, work.launched, "right") - 1
    op_step[work.launched >= rest] = MISSING
    return timed(
        work,
        op_step,
        len(start),
        "graph launches",
        limits.steps.GRAPH_LAUNCH_CONFIDENCE,
        host=(start, end),
        thread=thread,
    )


def _with_inputs(work: Work, start: Array) -> Array:
    """These host times, or those of the copies to the device directly before: inputs of the launch."""
    order = work.by_launch
    place = np.arange(len(order))
    other = np.maximum.accumulate(np.where(marked(len(work.ops), work.copied(HTOD))[order], -1, place))
    at = np.searchsorted(work.launched[order], start)
    first = np.where(at > 0, other[np.maximum(at - 1, 0)] + 1, at)
    return np.where(first < at, work.launched[order[np.minimum(first, len(order) - 1)]], start)


def _passes_between(work: Work, start: Array, alone: Array) -> tuple[tuple[Array, Array], int]:
    """Host times (begin, end) of passes of the model that were launched kernel by kernel between graph
    launches at `start`, such as prefills. Work that usually follows a launch belongs to its step; work
    before the first launch is a pass if it is about as long as the others. And the time from which on all
    work is none of them: after the last launch what runs kernels that ran at no time before, as the decoder
    of an image does, ends the run."""
    eager = work.by_launch[alone[work.by_launch]]
    count = np.bincount(np.searchsorted(start, work.launched[eager], "right"), minlength=len(start) + 1)
    own = int(median_of(count[1:]))
    end = np.cumsum(count)
    begin = end - count + np.where(np.arange(len(count)), own, 0)
    passes = np.flatnonzero(end - begin >= limits.steps.STEP_OPERATIONS)
    usual = median_of((end - begin)[passes[passes > 0]]) if (passes > 0).any() else 0
    found = []
    rest = int(np.iinfo(np.int64).max)
    for i in passes.tolist():
        group = eager[begin[i] : end[i]]
        name = work.name[group]
        if i == len(start) and not _ran_before(work, group):
            rest = int(work.launched[group[0]])
            break
        if work.heavy[name[name >= 0]].any() and (i or len(group) <= limits.steps.FIRST_PASS_FACTOR * usual):
            found.append((work.launched[group[0]], work.launched[group[-1]] + 1))
    times = np.array(found, np.int64).reshape(-1, 2)
    return (times[:, 0], times[:, 1]), rest


def _ran_before(work: Work, group: Array) -> bool:
    """True if most kernels of these operations are among those of earlier ones."""
    name = work.name[group]
    earlier = np.zeros(int(work.name.max(initial=0)) + 1, bool)
    before = work.name[work.mine & (work.launched < work.launched[group[0]])]
    earlier[before[before >= 0]] = True
    return bool(2 * earlier[name[name >= 0]].sum() >= (name >= 0).sum())


def _of_main_thread(work: Work, launch: Array) -> tuple[Array, Array, int]:
    """Start and end of the launches of the thread that makes most of them."""
    thread = heaviest(work.calls["thread"][launch])
    mine = launch[work.calls["thread"][launch] == thread]
    return work.calls["start"][mine], work.calls["end"][mine], thread
