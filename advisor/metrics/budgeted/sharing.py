"""Who shares what: whether the GPUs of a process, and the processes of a GPU, take turns; and devices whose
work has nothing to do with that of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, Spans, intersect, joined, subtract, union, union_by
from advisor.metrics.loaded.kernels import launch_shape
from advisor.metrics.loaded.operations import combinations, of_copies
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.window import Window
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import PTOP


class Turns(Struct, frozen=True):
    """GPUs that the main process computes on in the window of its main device; times in ns. `whole` is that
    window without what the profiler took of it. `compute` and `alone` include copies from one GPU to
    another, which hand its work on. `any` is how long at least one of them computes, `alone` of each how
    long it does so with no other. Of a single GPU nothing is measured."""

    devices: tuple[int, ...]
    compute: tuple[int, ...]
    alone: tuple[int, ...]
    any: int
    whole: int

    @property
    def alone_ratio(self) -> float:
        return sum(self.alone) / max(self.any, 1)

    @property
    def waiting_ratio(self) -> float:
        """Share of the whole in which a GPU has nothing to do while another one computes, on average."""
        idle = [self.any - own for own in self.compute]
        return min(sum(idle) / len(idle) / max(self.whole, 1), 1.0)

    @property
    def of_idle_ratio(self) -> float:
        """The same as a share of the time in which a GPU has nothing to do."""
        idle = sum(self.whole - own for own in self.compute)
        return min(sum(self.any - own for own in self.compute) / max(idle, 1), 1.0)


def find_turns(a: Budgeted) -> Turns | None:
    """None if the process computes on no GPU."""
    if a.main_device not in a.budgets:
        return None
    whole = a.budgets[a.main_device].program_ns
    if len(a.devices) == 1 and len(a.names.ids):
        return Turns((a.devices[0],), (0,), (0,), 0, whole)
    mine = a.in_window & (a.ops.process == a.main_process)

    def spans_on(device: int, kind: Array) -> Spans:
        at = mine & kind & (a.ops.device == device)
        return a.window.cut(union(a.ops.start[at], a.ops.end[at]))

    kernel, handed = (a.op_name >= 0) & ~a.communication, of_copies(a.trace, a.ops) == PTOP
    spans = {d: spans_on(d, kernel) for d in a.devices}
    most = max((s.total for s in spans.values()), default=0)
    spans = {
        d: joined(s, spans_on(d, handed))
        for d, s in spans.items()
        if s.total and s.total >= limits.host.TAKES_PART_RATIO * most
    }
    if not spans:
        return None
    length, of = alone(list(spans.values()))
    own = tuple(int(length[of == i].sum()) for i in range(len(spans)))
    compute = tuple(s.total for s in spans.values())
    return Turns(tuple(spans), compute, own, joined(*spans.values()).total, whole)


def alone(sets: Sequence[Spans]) -> tuple[Array, Array]:
    """Stretches covered by exactly one of the sets: their lengths, and which set."""
    time = np.concatenate([np.concatenate((s.start, s.end)) for s in sets])
    step = np.concatenate([np.repeat([1, -1], len(s)) for s in sets])
    which = np.repeat(np.arange(len(sets)), [2 * len(s) for s in sets])
    order = np.argsort(time, kind="stable")
    time, step, which = time[order], step[order], which[order]
    # Where one set is open, the sum of the numbers of the open ones is its number.
    depth, number = np.cumsum(step)[:-1], np.cumsum(step * which)[:-1]
    return np.diff(time)[depth == 1], number[depth == 1]


def processes_wait_ns(a: Loaded, mine: Array, own: Mapping[int, Spans], window: Window) -> int:
    """How long work of one process waits for that of another, ns: `mine` are the device's operations,
    `own` when each process has the device."""
    issued = mine[a.ops.api[mine] >= 0]
    called = a.trace.columns("api_calls", ("end",))["end"][a.ops.api[issued]]
    queued = union_by(a.ops.process[issued], called, a.ops.start[issued])
    waits = [
        subtract(intersect(spans, joined(*(s for p, s in own.items() if p != process))), own[process])
        for process, spans in queued.items()
    ]
    return window.cut(joined(*waits)).total


def slowed_beside(a: Loaded, mine: Array, own: Mapping[int, Spans]) -> float | None:
    """How much longer kernels take beside the work of other processes than the same ones alone, over the time
    of those that ran beside it; None if no kernel ran often enough both beside it and alone. `mine` and `own`
    as for `processes_wait_ns`."""
    kernels = mine[a.op_name[mine] >= 0]
    beside = np.zeros(len(kernels))
    for process in own:
        here = a.ops.process[kernels] == process
        others = Coverage(joined(*(spans for other, spans in own.items() if other != process)))
        at = kernels[here]
        beside[here] = others.within(a.ops.start[at], a.ops.end[at]) / np.maximum(a.ops.length[at], 1)
    shape = launch_shape(a.trace, a.ops.row[kernels])
    _, group = combinations(a.ops.process[kernels], a.op_name[kernels], shape)
    length, shared = a.ops.length[kernels], beside >= limits.kernels.BESIDE_RATIO
    count, total = (
        np.stack([np.bincount(group[m], w[m], int(group.max(initial=-1)) + 1) for m in (shared, ~shared)])
        for w in (np.ones(len(group)), length)
    )
    both = (count >= limits.kernels.COMPARED_CALLS).all(axis=0)
    if not both.any():
        return None
    alone = total[1][both] / count[1][both] * count[0][both]
    return float(total[0][both].sum() / max(alone.sum(), 1.0) - 1)


def threads_elsewhere(a: Recording) -> Array | None:
    """Threads that issue the work of other devices than the analysed one, if its work is independent of
    theirs: no thread issues both, no collective runs and no copy goes from device to device. None if it is
    not, and for a single device."""
    ops, api = a.ops, a.trace.columns("api_calls", ("thread",))["thread"]
    other = ops.device != a.main_device
    if not other.any() or a.communication.any():
        return None
    if (of_copies(a.trace, ops) == PTOP).any():
        return None
    issued = ops.api >= 0
    elsewhere, own = (distinct(api[ops.api[issued & mine]]) for mine in (other, ~other))
    if not len(elsewhere) or not len(own) or np.isin(own, elsewhere).any():
        return None
    return elsewhere
