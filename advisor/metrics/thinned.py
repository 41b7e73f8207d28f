"""Traces that hold only a part of the events: some of the calls, kernels and operators of each step were
left out when the file was made. The rest looks far apart, so idle time and launching are overstated.
Profilers number their records, and gaps in the numbers show the loss; so do steps of which no two run the
same.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics.kernels import dense, heaviest
from advisor.metrics.operations import Operations
from advisor.model.arrays import Array, distinct, median_of, ordered, where
from advisor.sources.schema import MISSING, OPERATIONS, Call
from advisor.sources.trace import Trace

#: PyTorch numbers operators one by one, ROCm its calls: of the whole traces measured, 92 % and more of
#: the numbers follow the one ahead.
_FOLLOW = 0.8
#: CUPTI numbers every call, recorded or not: in 60 whole captures (nsys 2022 to 2026,
#: PyTorch 1.8 to 2.11) a recorded call takes 15 numbers in the mean at most, and 12 in the median.
_WHOLE_IDS_PER_CALL, _MOST_MEAN, _MOST_MEDIAN = 15, 30, 20
#: A product of empty matrices launches nothing: missing launches count only if calls are this far apart.
_WIDE_MEAN = 18
#: Few numbers prove little, and the widest gaps are pauses of the recording.
_LEAST_OPERATORS, _LEAST_CALLS, _PAUSES = 50, 100, 98
#: Operators that always launch a kernel on a GPU.
_PRODUCTS = frozenset(("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm"))
_LEAST_PRODUCTS = 20


class Thinned(Struct, frozen=True):
    """Missing shares (0..1): of the operators and of the CUDA calls by their numbers, and of matrix
    products of PyTorch that launched nothing where others did. 0 if nothing shows a loss."""

    operators: float = 0.0
    calls: float = 0.0
    products: float = 0.0

    @property
    def share(self) -> float:
        return max(self.operators, self.calls, self.products)


def find_thinned(trace: Trace) -> Thinned:
    """Looks at the numbers of operators and calls, and at products without a launch."""
    ranges = trace.columns("ranges", ("process", "number"))
    operators = _gaps(ranges["process"], ranges["number"], _LEAST_OPERATORS)
    calls = trace.columns("api_calls", ("process", "correlation"))
    if trace.capture.vendor == "AMD":
        ids = _gaps(calls["process"], calls["correlation"], _LEAST_CALLS)
        return Thinned(_left_out(operators), _left_out(ids))
    ids = _gaps(calls["process"], calls["correlation"], _LEAST_CALLS, _WIDE_MEAN)
    mean, median = (float(ids.mean()), median_of(ids)) if len(ids) else (0.0, 0.0)
    sparse = mean >= _MOST_MEAN and median >= _MOST_MEDIAN
    return Thinned(
        _left_out(operators),
        1 - _WHOLE_IDS_PER_CALL / mean if sparse else 0.0,
        _products_left_out(trace) if mean >= _WIDE_MEAN else 0.0,
    )


def _gaps(process: Array, number: Array, least: int, wide: float = 0.0) -> Array:
    """Steps from number to number of the process with most of them, without the widest; empty for fewer
    than `least` numbers, or if they are less than `wide` on average."""
    known = number != MISSING
    if not known.any():
        return number[:0]
    process, number = process[at := where(known)], number[at]
    numbers = distinct(number[where(process == heaviest(process))])
    if len(numbers) < least or int(numbers[-1]) - int(numbers[0]) < wide * (len(numbers) - 1):
        return number[:0]
    gaps = np.diff(numbers)
    return np.asarray(gaps[gaps <= np.percentile(gaps, _PAUSES)])


def _left_out(gaps: Array) -> float:
    """Share of numbers missing from a sequence that should be consecutive."""
    if not len(gaps) or float((gaps == 1).mean()) >= _FOLLOW:
        return 0.0
    return 1 - 1 / float(gaps.mean())


def _products_left_out(trace: Trace) -> float:
    """Share of the matrix products without a call, if they lie among others that have one: a model on the
    CPU runs its products one after the other."""
    ranges = trace.columns("ranges", ("start", "end", "thread", "domain", "text_id"))
    at = np.flatnonzero(ranges["domain"] == OPERATIONS)
    names, of = dense(ranges["text_id"][at])
    at = at[np.array([t.partition(",")[0] in _PRODUCTS for t in trace.texts(names.tolist())], bool)[of]]
    calls = trace.columns("api_calls", ("start", "thread"))
    lost = changes = count = 0
    for thread in distinct(ranges["thread"][at]).tolist():
        begun = np.sort(calls["start"][calls["thread"] == thread])
        mine = at[ranges["thread"][at] == thread]
        start, end = ranges["start"][mine], ranges["end"][mine]
        within = (start >= begun.min(initial=end.max())) & (end <= begun.max(initial=0))
        mine = ordered(start[within])
        start, end = start[within][mine], end[within][mine]
        empty = np.searchsorted(begun, start) == np.searchsorted(begun, end)
        lost, count = lost + int(empty.sum()), count + len(empty)
        changes += int((empty[1:] != empty[:-1]).sum())
    if count < _LEAST_PRODUCTS:
        return 0.0
    share = lost / count
    return share if changes >= share * (1 - share) * count > 1 else 0.0


# --- steps, or replays of one graph, of which no two run the same kernels --------------------------------

#: Most steps are of about one size, and kernels come so often in each; fewer say little.
_ALIKE, _MOST_ALIKE, _LEAST_GROUPS, _OFTEN, _LEAST_NAMES = 0.2, 0.6, 4, 8, 5
#: Where a part of the rows is left out at random, nearly every kernel varies in number, each for itself,
#: and by less than a Poisson count (1) does. Measured: of 40 whole captures kernels with at most 75 % of
#: the rows vary, and those by 1.4 and more. What a solver repeats until it converges varies together.
_VARY, _MOST_SPREAD, _TOGETHER, _LEAST_LOSS = 0.9, 0.9, 2.5, 0.03


def uneven_share(trace: Trace, ops: Operations, op_name: Array, op_step: Array) -> float:
    """Share of the kernels left out at random, by the counts of kernels in steps, else in replays; 0 if
    these do not show it."""
    replay = np.full(len(ops), MISSING, np.int64)
    if trace.has("api_calls"):
        call = trace.columns("api_calls", ("call",))["call"][np.maximum(ops.api, 0)]
        replay = np.where((ops.api >= 0) & (call == Call.GRAPH_LAUNCH), ops.api, MISSING)
    return max(_random_loss(group, op_name) for group in (op_step, replay))


def _random_loss(group: Array, name: Array) -> float:
    """Counts of kernels thinned at random with probability p vary by 1 - p: the share lost."""
    inside = np.flatnonzero((group >= 0) & (name >= 0))
    groups, row = dense(group[inside])
    names, column = dense(name[inside])
    total = np.bincount(row, minlength=len(groups))
    alike = np.abs(total - median_of(total)) <= _ALIKE * median_of(total) if len(total) else total > 0
    if alike.sum() < max(_LEAST_GROUPS, _MOST_ALIKE * len(groups)):
        return 0.0
    counts = np.bincount(row * len(names) + column, minlength=len(groups) * len(names))
    counts = counts.reshape(len(groups), len(names))[alike]
    counts = counts[:, counts.mean(axis=0) >= _OFTEN]
    if counts.shape[1] < _LEAST_NAMES:
        return 0.0
    mean, spread = counts.mean(axis=0), counts.var(axis=0, ddof=1)
    loss = float(spread.sum() / mean.sum())
    varying = float(mean[spread > 0].sum() / mean.sum())
    apart = median_of(spread / mean) >= loss / 2
    if varying < _VARY or not apart or counts.sum(axis=1).var(ddof=1) > _TOGETHER * spread.sum():
        return 0.0
    return loss if _LEAST_LOSS <= loss <= _MOST_SPREAD else 0.0
