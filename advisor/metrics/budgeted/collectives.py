"""Collectives of one rank: kernels that exchange data with other GPUs, one row a call."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.budget import IDLE_PARTS
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import EMPTY, Coverage, intersect, union
from advisor.metrics.loaded.kernels import nth_alike
from advisor.metrics.loaded.operations import combinations
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, begins_run, rows_at
from advisor.sources.schema import MISSING, Call

#: Point-to-point calls, if the tracer recorded which ones (their kernels share one name).
SEND, RECEIVE = "send", "receive"
POINT_TO_POINT = frozenset(("send-recv", SEND, RECEIVE))
#: Those that join the parts of a model that is split over GPUs; others exchange tokens, or send to one rank.
JOINING = frozenset(("all-reduce", "all-gather", "reduce-scatter"))
#: What a collective does, by the words in its kernel name; the first that fits counts.
_KINDS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("reduce-scatter", r"reduce_?scatter"),
        ("all-reduce", r"all_?reduce|cross_device_reduce|shot_?reduce"),
        ("all-gather", r"all_?gather"),
        ("all-to-all", r"all_?(?:to|2)_?all|dispatch|combine"),
        ("send-recv", r"send_?recv"),
        (SEND, r"^send$"),
        (RECEIVE, r"^recv$"),
        ("broadcast", r"broad_?cast"),
        ("reduce", r"reduce"),
    )
)

_UNKNOWN = "collective"
_EXCHANGE = re.compile(r"(?i)(?:^|[^a-z])(?:all[ _-]?(?:to|2)[ _-]?all|a2a(?![a-z]))")

QUEUED = "idle, work was queued"
#: What a device does between two collectives -> idle parts of the budget.
_LEAD_PARTS: dict[str, tuple[str, ...]] = {
    "idle, launching kernels": ("launch_latency", "launch_call", "graph_launch_call"),
    "idle, synchronize calls": ("sync",),
    "idle, copy and allocation calls": ("copy_call", "alloc"),
    "idle, Python GC and GIL": ("gc", "gil"),
    "idle, host code": ("host_gap", "host_between_launches", "os"),
    QUEUED: ("queued", "graph_internal"),
}
#: Kernels of experts, which take longer on the rank that more tokens are sent to.
EXPERTS = "expert kernels"
KERNELS = "kernels"
#: The columns of `Collectives.lead`: they add up to the time since the collective before it.
LEADS = (KERNELS, EXPERTS, "copies", *_LEAD_PARTS, "idle, other")


_NONE = np.empty(0, np.int64)


class Collectives(Struct, frozen=True, kw_only=True):
    """Collective calls of one device, ascending by start; times in ns of the capture's own session.

    `kind` indexes `kinds`; `stream` counts the communicating streams in order of first use (their
    numbers differ between ranks); `exposed` is the time without any other kernel. `place` counts
    the calls of one kind in a step, apart for each phase, MISSING outside of certain steps. `group`
    indexes `groups`, the names of communicators; it, `sequence` and `bytes` are MISSING if the
    tracer did not record the calls' arguments.
    """

    kinds: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kind: Array = _NONE
    stream: Array = _NONE
    start: Array = _NONE
    duration: Array = _NONE
    exposed: Array = _NONE
    place: Array = _NONE
    bytes: Array = _NONE
    group: Array = _NONE
    sequence: Array = _NONE

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Array:
        return np.asarray(self.start + self.duration)


def kind_of(name: str) -> str:
    """``ncclDevKernel_AllReduce_Sum_bf16`` -> ``all-reduce``; ``collective`` where unknown."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), _UNKNOWN)


def device_collectives(a: Budgeted, device: int) -> Collectives:
    """Collectives of a device in the window. Sizes and communicators are known where the tracer
    recorded the calls' arguments (table `collectives`); kernels carry none."""
    mine = _rows(a, device)
    start, end = a.ops.start[mine], a.ops.end[mine]
    name, size, groups, group, sequence = _arguments(a, device, mine)
    exchange = _inside_exchanges(a, mine)
    some, index = combinations(a.op_name[mine], name, exchange)
    kinds_of = [_kind(a, *key) for key in rows_at(some, a.op_name[mine], name, exchange)]
    kinds = tuple(sorted(set(kinds_of)))
    kind = np.array([kinds.index(k) for k in kinds_of], np.int64)[index]
    # The numbers of sends and receives are not those of the collectives of the same communicator.
    between_two = np.array([k in (SEND, RECEIVE) for k in kinds] or [False])[kind]
    _, first, stream = np.unique(a.ops.stream[mine], return_index=True, return_inverse=True)
    cover = Coverage(a.budgets[device].compute if len(mine) else EMPTY)
    return Collectives(
        kinds=kinds,
        groups=groups,
        kind=kind,
        stream=np.argsort(np.argsort(first))[stream],
        start=start,
        duration=end - start,
        exposed=(end - start) - cover.within(start, end),
        place=_places(a.on(device), mine, kind),
        bytes=size,
        group=group,
        sequence=np.where(between_two, MISSING, sequence),
    )


def _kind(a: Loaded, kernel: int, call: int, exchange: int) -> str:
    """The kind by the name of the kernel, or of the call or of the range around it where several kinds share
    a kernel."""
    kind = kind_of(a.names.texts[kernel])
    if kind != "send-recv":
        return kind
    recorded = _UNKNOWN if call == MISSING else kind_of(a.trace.texts([call])[0])
    if recorded in (_UNKNOWN, "send-recv") and exchange:
        return "all-to-all"
    return kind if recorded == _UNKNOWN else recorded


def _inside_exchanges(a: Loaded, mine: Array) -> Array:
    """Whether the operations were issued inside a range or operator named after an all-to-all exchange, which
    NCCL makes of sends and receives."""
    api = a.ops.api[mine]
    found = a.ranges.matching(lambda text: _EXCHANGE.search(text) or None)
    if not found or not len(mine) or not a.trace.has("api_calls"):
        return np.zeros(len(mine), np.int64)
    start, thread = (column[api] for column in a.trace.columns("api_calls", ("start", "thread")).values())
    return ((api >= 0) & a.ranges.hold(list(found), thread, start)).astype(np.int64)


def small(found: Collectives) -> Array:
    """Mask of the collectives below `LATENCY_BYTES`; where no sizes are recorded, of the short ones of each
    `JOINING` kind of which most are."""
    known = found.bytes != MISSING
    if known.any():
        return np.asarray(known & (found.bytes < limits.kernels.LATENCY_BYTES))
    short = found.duration < limits.kernels.SHORT_COLLECTIVE_NS
    out = np.zeros(len(found), bool)
    for kind in (k for k, name in enumerate(found.kinds) if name in JOINING):
        mine = found.kind == kind
        out |= mine & short & (2 * (mine & short).sum() > mine.sum())
    return out


def small_collectives(a: Budgeted, device: int) -> Array:
    """The same as positions in `ops`."""
    return _rows(a, device)[small(device_collectives(a, device))]


def rows_of_collectives(a: Budgeted, device: int, found: Collectives) -> Array:
    """Positions in `found` of collectives that follow another one of their kind, with hardly any other kernel
    beside them or between, in rows of which at least half are short: gradients that are exchanged one by one,
    small and large ones. Sends to one rank are none."""
    alone = found.exposed >= limits.kernels.ALONE_RATIO * found.duration
    alone &= np.array([kind not in (SEND, RECEIVE) for kind in found.kinds] or [False])[found.kind]
    alike = ~begins_run(found.kind, found.stream, alone)[1:] & alone[1:]
    between = Coverage(a.budgets[device].compute).within(found.end[:-1], found.start[1:])
    follows = np.append([False], alike & (between <= limits.kernels.BETWEEN_ROW_NS))[: len(found)]
    row = np.cumsum(~follows)
    short = found.duration < limits.kernels.SHORT_COLLECTIVE_NS
    mostly = 2 * np.bincount(row, short, len(found) + 1) >= np.bincount(row, minlength=len(found) + 1)
    return np.flatnonzero(follows & mostly[row])


def gradients(a: Budgeted, device: int, found: Collectives) -> Array | None:
    """Mask of the collectives that add up gradients: all-reduces and reduce-scatters after the loss of a
    training step, before its optimiser. None if no loss or no optimiser is known by its kernels."""
    at = a.device_kernels(device)
    loss = a.ops.start[at[a.names.mask(lambda k: k.operation == "loss")[a.op_name[at]]]]
    update = a.ops.start[at[a.names.mask(lambda k: k.family == "optimizer")[a.op_name[at]]]]
    if not len(loss) or not len(update):
        return None
    adds = np.array([kind in ("all-reduce", "reduce-scatter") for kind in found.kinds] or [False])[found.kind]
    last = [np.append([-1], times)[np.searchsorted(times, found.start, "right")] for times in (loss, update)]
    return np.asarray(adds & (last[0] > last[1]))


def collectives_in_rows(a: Budgeted, device: int) -> Array:
    """The same as positions in `ops`."""
    return _rows(a, device)[rows_of_collectives(a, device, device_collectives(a, device))]


def joining(found: Collectives) -> Array:
    """Mask of the collectives that join what ranks have computed."""
    return np.array([kind in JOINING for kind in found.kinds], bool)[found.kind]


def in_line(a: Budgeted, device: int, found: Collectives) -> Array:
    """Mask of the collectives of decode steps that join the parts of layers, where hardly any other kernel
    runs beside collectives: the next layer begins with what they join, and neither the other half of a batch
    nor other requests compute meanwhile."""
    time, hidden = overlap(a, device)
    if hidden >= limits.kernels.OVERLAPPING_RATIO * max(time, 1):
        return np.zeros(len(found), bool)
    decodes = np.array([phase == "decode" for phase in a.steps.phase] + [False])  # MISSING is the last
    return np.asarray(joining(found) & decodes[a.steps.op_step[_rows(a, device)]])


def collectives_in_line(a: Budgeted, device: int) -> Array:
    """The same as positions in `ops`."""
    return _rows(a, device)[in_line(a, device, device_collectives(a, device))]


def bytes_of_collectives(a: Budgeted, device: int) -> tuple[Array, Array]:
    """Positions in `ops` of the collectives of a device, and how many bytes each moves, MISSING if the tracer
    did not record it."""
    return _rows(a, device), device_collectives(a, device).bytes


def _places(a: Stepped, mine: Array, kind: Array) -> Array:
    """Which call of its kind in its step each collective is; equal places of one phase repeat."""
    out = np.full(len(mine), MISSING, np.int64)
    inside = np.flatnonzero(a.steps.op_step[mine] != MISSING)
    if len(inside) == 0:
        return out
    step = a.steps.op_step[mine[inside]]
    phases = np.unique(a.steps.phase, return_inverse=True)[1].reshape(-1)
    out[inside] = nth_alike(kind[inside], step) * (int(phases.max()) + 1) + phases[step]
    return out


def leads(a: Budgeted, device: int, found: Collectives) -> Array:
    """ns that the device spent on each of `LEADS` since the end of the collective before, a row a call; NaN
    in the first row: the time before the window is unknown."""
    out = np.full((len(found), len(LEADS)), np.nan)
    if len(found) < 2:
        return out
    budget = a.budgets[device]
    before, start = np.maximum.accumulate(found.end)[:-1], found.start[1:]
    before = np.minimum(before, start)
    rest = start - before
    compute = Coverage(budget.compute).within(before, start)
    # Collectives are work, too: a gap lies between two of them or after all, never across one.
    at = np.searchsorted(found.start, budget.gaps.end, "left") - 1
    between = np.flatnonzero((at >= 0) & (at < len(rest)))
    parts = {n: np.bincount(at[between], budget.gap_parts[n][between], len(rest)) for n in IDLE_PARTS}
    copies = np.maximum(rest - compute - sum(parts.values()), 0)
    at = a.device_kernels(device)
    at = at[a.names.mask(lambda k: k.family == "moe")[a.op_name[at]]]
    experts = np.minimum(Coverage(union(a.ops.start[at], a.ops.end[at])).within(before, start), compute)
    columns = [compute - experts, experts, copies]
    columns += [sum(parts.pop(n) for n in names) for names in _LEAD_PARTS.values()]
    out[1:] = np.column_stack([*columns, sum(parts.values())])
    return out


def blocking(a: Budgeted, device: int, found: Collectives) -> float | None:
    """Share of the exposed time that held up the next kernel: it had been launched by the end of the
    collective, or the host waited for the collective in a call. Otherwise the host was late, and the device
    would have been idle anyway. None if nothing is exposed or launches are not recorded."""
    at = a.device_kernels(device)
    at = at[~a.communication[at]]
    follower = np.searchsorted(a.ops.start[at], found.end, "left")
    followed = np.flatnonzero((follower < len(at)) & (found.exposed > 0))
    call = a.ops.api[at[follower[followed]]]
    known, weight = call >= 0, found.exposed[followed]
    if not a.trace.has("api_calls") or not known.any():
        return None
    calls = a.trace.columns("api_calls", ("start", "end"))
    end, waits = found.end[followed][known], a.calls_of(Call.SYNC)
    held = calls["start"][call[known]] <= end
    held |= union(calls["start"][waits], calls["end"][waits]).holds(end)
    return float(weight[known][held].sum() / weight[known].sum())


def overlap(a: Budgeted, device: int) -> tuple[int, int]:
    """ns in which collectives run, and of these the ns in which other kernels run beside them."""
    mine = _rows(a, device)
    own = a.window.cut(union(a.ops.start[mine], a.ops.end[mine]))
    return own.total, intersect(own, a.budgets[device].compute).total


def _rows(a: Budgeted, device: int) -> Array:
    at = a.device_kernels(device)
    return at[a.communication[at]]


def _arguments(a: Loaded, device: int, mine: Array) -> tuple[Array, Array, tuple[str, ...], Array, Array]:
    """Name of the call, bytes, communicator and sequence number of each collective."""
    names = ("start", "device", "stream", "name_id", "bytes", "group_id", "sequence")
    recorded = a.trace.columns("collectives", names)
    rows = np.flatnonzero(recorded["device"] == device)
    rows = np.append(rows[np.lexsort((recorded["stream"][rows], recorded["start"][rows]))], MISSING)
    begun, on, *values = (np.append(recorded[n], MISSING)[rows] for n in names if n != "device")
    start, stream = a.ops.start[mine], a.ops.stream[mine]
    # Operations are sorted by start; two of one start differ by their stream.
    at = np.searchsorted(begun[:-1], start)
    hit = np.full(len(mine), MISSING, np.int64)
    for step in range(4):  # all of these streams may start at the same nanosecond
        here = np.minimum(at + step, len(rows) - 1)
        hit = np.where((begun[here] == start) & (on[here] == stream) & (hit == MISSING), here, hit)
    name, size, group_id, sequence = (column[hit] for column in values)
    ids, group = np.unique(group_id, return_inverse=True)
    texts = a.trace.texts(int(i) for i in ids if i != MISSING)
    known = (ids != MISSING).cumsum() - 1
    return name, size, tuple(texts), np.where(ids[group] == MISSING, MISSING, known[group]), sequence
