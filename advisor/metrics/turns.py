"""Whether the GPUs of one process work at the same time or one after another, the processes of one
GPU, and devices whose work has nothing to do with that of others: replicas of a model in one capture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Spans, intersect, joined, subtract, union, union_by
from advisor.metrics.operations import Kind
from advisor.metrics.window import Window
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import PTOP

#: A GPU that computes for less than this share of the busiest one's time has no part of its own in the
#: work: buffers that are cleared, a peer's copy.
_TAKES_PART = 0.05


class Turns(Struct, frozen=True):
    """GPUs that the main process computes on in the window of its main device; times in ns. `any` is
    how long at least one of them computes, `alone` of each how long it does so with no other. Of a
    single GPU nothing is measured."""

    devices: tuple[int, ...]
    compute: tuple[int, ...]
    alone: tuple[int, ...]
    any: int
    window: int

    @property
    def alone_ratio(self) -> float:
        return sum(self.alone) / max(self.any, 1)

    @property
    def waiting_ratio(self) -> float:
        """Share of the window in which a GPU has nothing to do while another one computes, on average."""
        idle = [self.any - own for own in self.compute]
        return sum(idle) / len(idle) / max(self.window, 1)


def find_turns(a: Analysis) -> Turns | None:
    """None where the process computes on no GPU."""
    if len(a.devices) == 1 and len(a.names.ids):
        return Turns((a.devices[0],), (0,), (0,), 0, a.window.length)
    own = a.in_window & (a.op_name >= 0) & ~a.communication & (a.ops.process == a.main_process)
    spans: dict[int, Spans] = {}
    for device in a.devices:
        mine = own & (a.ops.device == device)
        spans[device] = a.window.cut(union(a.ops.start[mine], a.ops.end[mine]))
    most = max((s.total for s in spans.values()), default=0)
    spans = {d: s for d, s in spans.items() if s.total and s.total >= _TAKES_PART * most}
    if not spans:
        return None
    length, of = _single(list(spans.values()))
    alone = tuple(int(length[of == i].sum()) for i in range(len(spans)))
    compute = tuple(s.total for s in spans.values())
    return Turns(tuple(spans), compute, alone, joined(*spans.values()).total, a.window.length)


def _single(sets: list[Spans]) -> tuple[Array, Array]:
    """Stretches that lie in exactly one of the sets: their lengths, and which set."""
    time = np.concatenate([np.concatenate((s.start, s.end)) for s in sets])
    step = np.concatenate([np.repeat([1, -1], len(s)) for s in sets])
    which = np.repeat(np.arange(len(sets)), [2 * len(s) for s in sets])
    order = np.argsort(time, kind="stable")
    time, step, which = time[order], step[order], which[order]
    # Where one is open, the sum of the numbers of the open ones is its own.
    depth, number = np.cumsum(step)[:-1], np.cumsum(step * which)[:-1]
    return np.diff(time)[depth == 1], number[depth == 1]


def processes_wait_ns(a: Analysis, mine: Array, own: Mapping[int, Spans], window: Window) -> int:
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


# --- devices whose work has nothing to do with that of others -------------------------------------


def threads_elsewhere(a: Analysis) -> Array | None:
    """Threads that issue the work of other devices than the analysed one, where that work and its own
    are apart: no thread issues both, no collective runs and no copy goes from device to device. None
    where they are not, and of a single device."""
    ops, api = a.ops, a.trace.columns("api_calls", ("thread",))["thread"]
    other = ops.device != a.main_device
    if not other.any() or a.communication.any():
        return None
    copies = ops.row[ops.kind == Kind.COPY]
    if (a.trace.columns("copies", ("kind",))["kind"][copies] == PTOP).any():
        return None
    issued = ops.api >= 0
    elsewhere, own = (distinct(api[ops.api[issued & mine]]) for mine in (other, ~other))
    if not len(elsewhere) or not len(own) or np.isin(own, elsewhere).any():
        return None
    return elsewhere
