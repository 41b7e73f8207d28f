"""Steps of few kernels: between two waits of the host the same work runs, again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.metrics.kernels import heaviest
from advisor.metrics.operations import Kind
from advisor.metrics.steps.model import Steps, Work
from advisor.metrics.steps.sequence import MIN_REPEATS, constant_stride, copied, segmented
from advisor.model.arrays import Array, distinct, merged, without
from advisor.sources.schema import DTOH, MISSING, Call

#: With fewer repetitions than this short work may as well be layers.
_REPEATS = 8
#: At least this share of the periods runs the same operations, in this share of the GPU time.
_SAME, _TIME = 0.95, 0.8
#: One kernel or two between waits may be a loop inside a step.
_KERNELS = 3
#: Each layer of a loop over experts reads back at least this many values.
IN_A_LOOP = 3
#: A pass waits at most this often: for its inputs, for its parts, for its result.
_WAITS = 8


def waited_behind(work: Work) -> Array:
    """Positions of the operations after which the host waits: several waits with nothing issued between
    them are one. Waits for uploads of inputs do not count."""
    return _behind(work, work.by_launch, _waits(work))


def _behind(work: Work, issued: Array, rows: Array) -> Array:
    """The last of the operations `issued` (positions in that order) before each of these calls."""
    last = np.searchsorted(work.launched[issued], work.calls["start"][rows], "right") - 1
    return np.asarray(issued[distinct(last[last >= 0])])


def _waits(work: Work) -> Array:
    """Rows of the calls in which the host waits for results."""
    down = distinct(work.ops.api[copied(work, DTOH)])
    calls = work.calls["call"]
    return merged(down[(down >= 0) & (calls[down] == Call.COPY)], work.calls_of(Call.SYNC))


def waited_sequences(work: Work, attention: Array) -> Iterator[Steps]:
    """The segmentation by the waits of the thread that feeds the main stream, if the work launched
    between them is the same in period after period; None if a period repeats one thing, which may be
    several passes, or contains one of the operations `attention`, as a layer does."""
    main = work.main_stream
    main = main[np.argsort(work.launched[main], kind="stable")]
    api = work.ops.api[main]
    if not (api >= 0).any():
        return
    thread, rows = work.calls["thread"], _waits(work)
    rows = rows[thread[rows] == heaviest(thread[api[api >= 0]])]
    place = np.full(len(work.ops), MISSING)
    place[main] = np.arange(len(main))
    last = np.sort(place[_behind(work, main, rows)])
    code = _codes(work, main)
    least = 1 if (work.ops.kind[main] == Kind.GRAPH_RUN).any() else _KERNELS
    length = work.length[main]
    for waits in range(1, min(_WAITS, len(last) // _REPEATS) + 1):
        at = last[(len(last) - 1) % waits :: waits]
        size = np.diff(at)
        usual = int(np.sort(size)[len(size) // 2]) if len(size) >= _REPEATS else 0
        if usual < 2:
            continue
        even = np.flatnonzero(size == usual)
        held = at[even][:, None] + 1 + np.arange(usual)
        typical = code[held[len(held) // 2]]
        alike = (code[held] == typical).all(axis=1)
        same, held = even[alike], held[alike]
        odd = without(np.arange(len(size)), same)
        if len(same) < _SAME * len(size) or constant_stride(odd, len(size)):
            continue
        once = np.isin(main[held[0]], attention).sum() == 1
        loop = not once and not _again(typical) and (typical >= 0).sum() >= least
        if loop and length[held].sum() >= _TIME * length.sum():
            yield segmented(work, main[at], "waits", 0.7)
        return


def routed_sequences(work: Work, routing: Array) -> Iterator[Steps]:
    """The segmentation by waits without a copy, as at the end of an iteration, if each part routes tokens
    to experts (operations `routing`) equally often and reads values back throughout: the number of
    kernels of experts depends on their tokens."""
    main = work.main_stream
    main = main[np.argsort(work.launched[main], kind="stable")]
    if not len(routing) or not (work.ops.api[main] >= 0).any():
        return
    read = np.isin(main, copied(work, DTOH))
    behind = np.isin(main, _behind(work, main, _waits(work)))
    last = np.flatnonzero(behind & ~read)
    if len(last) < MIN_REPEATS:
        return
    part = np.searchsorted(last, np.arange(len(main)))
    count = len(last) + 1
    routed, reads = (
        np.bincount(part[mine], minlength=count)[1:-1] for mine in (np.isin(main, routing), read)
    )
    if len(routed) and routed.min() > 0 and np.ptp(routed) == 0 and (reads >= IN_A_LOOP * routed).all():
        yield segmented(work, main[last], "waits", 0.7)


def _codes(work: Work, main: Array) -> Array:
    """What each of these operations is: its kernel's name, or a kind of copy or memset (negative)."""
    code = np.where(work.name[main] >= 0, work.name[main], -10 - work.ops.kind[main])
    code[work.ops.kind[main] == Kind.GRAPH_RUN] = len(work.heavy)
    copies = work.ops.kind[main] == Kind.COPY
    if copies.any():
        kind = work.trace.columns("copies", ("kind",))["kind"]
        code[copies] = -100 - kind[work.ops.row[main[copies]]]
    return np.asarray(code)


def _again(code: Array) -> bool:
    """True if it is the same thing several times."""
    return any((code[n:] == code[:-n]).all() for n in range(1, len(code) // 2 + 1) if len(code) % n == 0)
