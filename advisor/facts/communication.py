"""Facts about collectives, and GPUs of one process that take turns. Only all ranks together distinguish
waiting from transfer: with `waits` given facts are about the transfer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from advisor.facts import limits
from advisor.facts.writer import FactWriter
from advisor.metrics.budgeted.collectives import (
    POINT_TO_POINT,
    Collectives,
    blocking,
    device_collectives,
    gradients,
    in_line,
    joining,
    overlap,
    rows_of_collectives,
    small,
)
from advisor.metrics.budgeted.exchanges import find_exchanges
from advisor.metrics.budgeted.sharing import find_turns
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, subtract, union
from advisor.metrics.loaded.kernels import distribution
from advisor.model.arrays import Array, distinct, largest, rows_at
from advisor.model.facts import Interval, Value
from advisor.sources.schema import MISSING, NIC_WAITS


class CrossRank(NamedTuple):
    """The cross-rank view of one capture: the time that each collective waited for a later rank (by
    device; negative if no other rank has it), a function that writes the facts about the ranks, for which
    share of the time the GPU of a stage of a pipeline waits for its own host (by device), and how much longer
    than usually each waits in its collectives (by device, share of the window)."""

    waits: Mapping[int, Array]
    put: Callable[[FactWriter], None]
    of_host: Mapping[int, float] = MappingProxyType({})
    waited: Mapping[int, float] = MappingProxyType({})


class Calls(NamedTuple):
    """Columns of collectives, a row a call: `duration` and `exposed` in ns, `size` in bytes, `place` in
    the step, whether it is `small`."""

    kind: Array
    duration: Array
    exposed: Array
    size: Array
    place: Array
    small: Array


def call_facts(calls: Calls, window: int) -> dict[str, Value | None]:
    """Numbers about single calls, without waiting where that is known. Only calls of one kind and size
    are similar, or, if the size is unknown, of one place in the step."""
    kind, duration, exposed, size, place, small = calls
    out: dict[str, Value | None] = {}
    sized = size != MISSING
    # Calls with neither size nor place cannot be compared.
    known = np.flatnonzero(sized | (place != MISSING))
    keys = np.column_stack([kind, size, np.where(sized, MISSING, place)])[known]
    alike = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    d = distribution(alike, duration[known], int(alike.max(initial=-1)) + 1)
    enough = d.count >= limits.COLLECTIVE_CALLS
    if enough.any():
        ratio = d.maximum * d.count / np.maximum(d.total, 1)
        excess = np.maximum(duration[known] - 2 * d.p50[alike], 0)[enough[alike]]
        out["comm.max_over_mean"] = ratio[enough].max()
        out["comm.excess_ratio"] = excess.sum() / window
        out["comm.repeated_excess_ratio"] = (excess.sum() - excess.max()) / window
    out["comm.small_exposed_ratio"] = exposed[small].sum() / window
    return out


def transfer_facts(
    calls: Calls, wait: Array, found: Array, exposed_ratio: float, window: int
) -> dict[str, Value | None]:
    """`call_facts` without the waiting, and the exposed share without it. `wait` is known for the calls
    `found` on the other ranks, and counts as exposed as far as its call is; the other calls are assumed
    to be similar. `exposed_ratio` is the budget's: streams overlap."""
    some, waited = Calls(*(column[found] for column in calls)), wait[found]
    part = float(some.duration.sum()) / max(float(calls.duration.sum()), 1.0)
    waiting = float(np.minimum(some.exposed, waited).sum()) / max(float(some.exposed.sum()), 1.0)
    rest = some._replace(duration=some.duration - waited, exposed=np.maximum(some.exposed - waited, 0))
    numbers = call_facts(rest, max(round(window * part), 1))
    return {"comm.exposed_transfer_ratio": max(exposed_ratio * (1.0 - waiting), 0.0), **numbers}


def communication_facts(a: Budgeted, device: int, out: FactWriter, waits: Array | None = None) -> None:
    """Without collectives among the recorded kernels, communication takes 0 of the time. `waits` has a
    time for each collective, negative if unknown."""
    if not a.trace.has("kernels"):
        return
    found, budget = device_collectives(a, device), a.budgets[device]
    exposed, window = budget.share("communication"), budget.program_ns
    if len(found) == 0:
        of_all = "time", "exposed", "exposed_transfer"
        of_some = "exchange_exposed", "exchange_part", "point_to_point", "point_to_point_over", "in_line"
        out |= {f"comm.{name}_ratio": 0.0 for name in (*of_all, *of_some)} | {"comm.halves": False}
        return
    time, hidden = overlap(a, device)
    sized, little = found.bytes != MISSING, small(found)
    known = waits is not None and bool((waits >= 0).any())
    if waits is None or not known:
        waits = np.zeros(len(found), np.int64)
    calls = Calls(found.kind, found.duration, found.exposed, found.bytes, found.place, little)
    row = rows_of_collectives(a, device, found)
    added = gradients(a, device, found)
    all_exposed = max(int(found.exposed.sum()), 1)
    out |= {
        "comm.time_ratio": time / window,
        "comm.exposed_ratio": exposed,
        "comm.blocking_ratio": blocking(a, device, found),
        "comm.waiting_known": known,
        "comm.over_compute": time / budget.ns["compute"] if time > budget.ns["compute"] > 0 else None,
        "comm.overlap_ratio": hidden / max(time, 1),
        "comm.calls_per_step": len(found) / a.step_count if a.step_count else None,
        **transfer_facts(calls, waits, waits >= 0, exposed, window),
        "comm.row_exposed_ratio": found.exposed[row].sum() / window,
        **a.rates(device, {"comm.row_calls": len(row)}),
        **a.rates(device, {"comm.small_calls": (little & (found.exposed > 0)).sum()}),
        "comm.gradient_ratio": None if added is None else found.exposed[added].sum() / all_exposed,
        "comm.reduces_ratio": found.exposed[joining(found)].sum() / all_exposed,
        "comm.in_line_ratio": found.exposed[in_line(a, device, found)].sum() / all_exposed,
        "comm.sizes_known": sized.any(),
        **_exchange_facts(a, device, found, np.maximum(waits, 0)),
    }
    d = distribution(found.kind, found.duration, len(found.kinds))
    alone = np.bincount(found.kind, found.exposed, minlength=len(found.kinds))
    shares = d.total / 1e6, d.total / window, alone / window
    columns = (found.kinds, d.count, *shares, d.p50 / 1e3, d.maximum / 1e3)
    out.table("comm.kinds", rows_at(np.flatnonzero(d.count), *columns))
    longest = rows_at(largest(found.exposed, 50), found.start, found.end, found.kind)
    out.places("communication", [Interval(lo, hi, None, None, found.kinds[k]) for lo, hi, k in longest])


def _exchange_facts(a: Budgeted, device: int, found: Collectives, waits: Array) -> dict[str, Value | None]:
    """Of the exchanges of tokens with experts, without which there are none; and what else one process sends
    to another."""
    exchanges = find_exchanges(a, device, found)
    mine, exposed = exchanges.rows, np.maximum(found.exposed - waits, 0)
    own, whole = max(int(found.duration[mine].sum()), 1), max(int(exposed.sum()), 1)
    to_one = np.array([kind in POINT_TO_POINT for kind in found.kinds], bool)[found.kind]
    to_one[mine] = False
    sent = exposed[to_one]
    usual = np.quantile(sent, limits.SHORT_TRANSFERS) if len(sent) else 0.0
    return {
        "comm.point_to_point_ratio": sent.sum() / whole,
        "comm.point_to_point_over_ratio": np.maximum(sent - usual, 0).sum() / max(int(sent.sum()), 1),
        "comm.exchange_exposed_ratio": exposed[mine].sum() / a.budgets[device].program_ns,
        "comm.exchange_part_ratio": exposed[mine].sum() / whole,
        "comm.exchange_hidden_ratio": 1.0 - found.exposed[mine].sum() / own if len(mine) else None,
        "comm.halves": exchanges.halves,
    }


def rank_facts(a: Budgeted, out: FactWriter) -> None:
    """What one capture records about its job; the rest needs all ranks."""
    size = a.trace.capture.world_size
    out.put("ranks.count", 1)
    if size:
        out.put("ranks.world_size", size)
        out.put("ranks.missing_count", max(size - 1, 0))
    elif a.budgets and not a.communication.any():
        out.put("ranks.missing_count", 0)
        out.put("ranks.matched_count", 0)
        out.put("ranks.stage_wait_ratio", 0.0)


# --- network cards while collectives run ----------------------------------------------------------


def network_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Without samples of network cards no fact is written."""
    if not a.trace.has("network"):
        return
    budget = a.budgets[device]
    window = (budget.window.start, budget.window.end)
    rows = a.trace.columns("network", ("start", "end", "nic", "kind", "value"), window)
    waits = rows["kind"] == NIC_WAITS
    moves = ~waits & (rows["value"] > 0)
    out.put("network.card_count", len(distinct(rows["nic"][moves])))
    out.put("network.peak_rate", float(rows["value"][moves].max(initial=0)))
    mine = a.device_ops(device)
    mine = mine[a.communication[mine]]
    exposed = subtract(union(a.ops.start[mine], a.ops.end[mine]), budget.compute)
    start, end, value = (rows[name][waits] for name in ("start", "end", "value"))
    inside = Coverage(exposed).within(start, end) >= limits.COMMUNICATING_RATIO * np.maximum(end - start, 1)
    if inside.any():
        samples, at = np.unique(start[inside], return_inverse=True)
        out.put("network.waits_ratio", (np.bincount(at, value[inside] > 0, len(samples)) > 0).mean())


# --- GPUs of one process that take turns ----------------------------------------------------------


def turn_facts(a: Budgeted, out: FactWriter) -> None:
    found = find_turns(a)
    if found is None:
        return
    out |= {
        "gpus.computing_count": len(found.devices),
        "gpus.alone_ratio": found.alone_ratio if len(found.devices) > 1 else None,
        "gpus.turn_wait_ratio": found.waiting_ratio,
        "gpus.turn_of_idle_ratio": found.of_idle_ratio if len(found.devices) > 1 else None,
    }
    if len(found.devices) == 1:
        return
    whole, each = max(found.whole, 1), zip(found.devices, found.compute, found.alone, strict=True)
    rows = [[d, own / 1e6, own / whole, alone / whole, (found.any - own) / whole] for d, own, alone in each]
    out.table("gpus.turns", rows)
