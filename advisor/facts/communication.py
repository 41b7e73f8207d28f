"""Facts about collectives. Only all ranks together tell waiting from transfer: with `waits` given
they are about the transfer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.collectives import Collectives, device_collectives, overlap
from advisor.metrics.kernels import distribution
from advisor.model.facts import Interval, Scope, Value
from advisor.sources.schema import MISSING

Array = NDArray[Any]

_SMALL_BYTES = 1 << 20
#: Below this many calls a mean says nothing.
_MIN_CALLS = 8


class CrossRank(NamedTuple):
    """What several ranks in one capture tell: the time that each collective waited for a later
    rank (by device; negative where no other rank has it), and a function that writes the facts
    about the ranks."""

    waits: Mapping[int, Array]
    put: Callable[[FactWriter], None]


def call_facts(
    kind: Array,
    duration: Array,
    exposed: Array,
    size: Array,
    window: int,
    steps: int,
) -> dict[str, Value | None]:
    """Numbers about the single calls: `duration` and `exposed` in ns, without waiting where that
    is known. Only calls of one kind and size are alike (a size that is not known is one size)."""
    out: dict[str, Value | None] = {}
    alike = np.unique(np.column_stack([kind, size]), axis=0, return_inverse=True)[1].reshape(-1)
    d = distribution(alike, duration, int(alike.max(initial=-1)) + 1)
    telling = np.flatnonzero(d.count >= _MIN_CALLS)
    if len(telling):
        worst = int(telling[np.argmax((d.maximum * d.count / np.maximum(d.total, 1))[telling])])
        mine = duration[alike == worst]
        excess = np.maximum(mine - 2 * d.p50[worst], 0)
        out["comm.max_over_mean"] = float(mine.max() / max(mine.mean(), 1))
        out["comm.excess_ratio"] = float(excess.sum()) / window
        out["comm.repeated_excess_ratio"] = float(excess.sum() - excess.max()) / window
    sized = size != MISSING
    if sized.any():
        small = sized & (size < _SMALL_BYTES) & (exposed > 0)
        out["comm.small_exposed_ratio"] = float(exposed[small].sum()) / window
        out["comm.small_calls_per_step"] = float(small.sum()) / steps if steps else None
    return out


def transfer_facts(
    kind: Array,
    duration: Array,
    exposed: Array,
    size: Array,
    wait: Array,
    found: Array,
    exposed_ratio: float,
    window: int,
    steps: int,
) -> dict[str, Value | None]:
    """`call_facts` without the waiting, and the exposed share without it. `wait` is known of the
    calls that were `found` on the other ranks, and counts as exposed as far as its call is; the
    other calls are taken to be alike. `exposed_ratio` is the budget's: streams overlap."""
    known = exposed[found]
    part = float(duration[found].sum()) / max(float(duration.sum()), 1.0)
    waiting = float(np.minimum(known, wait[found]).sum()) / max(float(known.sum()), 1.0)
    some = call_facts(
        kind[found], (duration - wait)[found], np.maximum(known - wait[found], 0),
        size[found], max(round(window * part), 1), steps,
    )  # fmt: skip
    per_step = some.get("comm.small_calls_per_step")
    if isinstance(per_step, float):
        some["comm.small_calls_per_step"] = per_step * len(found) / max(int(found.sum()), 1)
    return {"comm.exposed_transfer_ratio": max(exposed_ratio * (1.0 - waiting), 0.0), **some}


def communication_facts(
    a: Analysis, device: int, out: FactWriter, waits: Array | None = None
) -> None:
    """Where kernels are recorded and none of them is a collective, there is no communication.
    `waits` has a time for each collective, negative where it is not known."""
    if not a.trace.has("kernels"):
        return
    found = device_collectives(a, device)
    scope, budget = Scope(device=device), a.budgets[device]
    exposed = budget.share("communication")
    if len(found) == 0:
        names = ("comm.time_ratio", "comm.exposed_ratio", "comm.exposed_transfer_ratio")
        out.put_all(dict.fromkeys(names, 0.0), scope)
        return
    window = max(budget.window.length, 1)
    time, hidden = overlap(a, device)
    known = waits is not None and bool((waits >= 0).any())
    if waits is None or not known:
        waits = np.zeros(len(found), np.int64)
    out.put_all({
        "comm.time_ratio": time / window,
        "comm.exposed_ratio": exposed,
        "comm.waiting_known": known,
        "comm.overlap_ratio": hidden / max(time, 1),
        "comm.calls_per_step": len(found) / a.step_count if a.step_count else None,
        **transfer_facts(
            found.kind, found.duration, found.exposed, found.bytes, waits, waits >= 0, exposed,
            window, a.step_count,
        ),
    }, scope)  # fmt: skip
    _evidence(found, scope, window, out)


def _evidence(found: Collectives, scope: Scope, window: int, out: FactWriter) -> None:
    d = distribution(found.kind, found.duration, len(found.kinds))
    exposed_by_kind = np.bincount(found.kind, found.exposed, minlength=len(found.kinds))
    out.table("comm.kinds", scope, "Collectives by kind",
              ("kind", "calls", "total:ms", "share:ratio", "exposed:ratio", "p50:us", "max:us"),
              [[kind, int(d.count[i]), float(d.total[i]) / 1e6, float(d.total[i]) / window,
                float(exposed_by_kind[i]) / window, float(d.p50[i]) / 1e3,
                float(d.maximum[i]) / 1e3]
               for i, kind in enumerate(found.kinds) if d.count[i]])  # fmt: skip
    longest = np.argsort(-found.exposed, kind="stable")[:50]
    out.places("communication", scope, [
        Interval(int(found.start[i]), int(found.end[i]), None, None, found.kinds[found.kind[i]])
        for i in longest.tolist() if found.exposed[i] > 0
    ])  # fmt: skip


def rank_facts(a: Analysis, out: FactWriter) -> None:
    """What one capture tells of the job it belongs to; the rest takes all ranks."""
    size = a.trace.capture.world_size
    out.put("ranks.count", 1)
    if size:
        out.put("ranks.world_size", size)
        out.put("ranks.missing_count", max(size - 1, 0))
    elif a.budgets and not any(a.communication):
        out.put("ranks.missing_count", 0)
