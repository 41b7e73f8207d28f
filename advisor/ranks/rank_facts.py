"""Cross-rank facts: who waits, who is late, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from advisor.facts.communication import Calls, transfer_facts
from advisor.facts.spec import FactWriter
from advisor.model.facts import Interval, Scope, Value
from advisor.ranks.waiting import Late, Waits

#: Facts about transfers, which take equally long on all ranks that share them: if ranks differ by less
#: than this factor, their windows differ.
TRANSFERS = ("comm.max_over_mean", "comm.excess_ratio", "comm.repeated_excess_ratio")
_AGREE = 1.5
#: Kernels shown beside those of other ranks.
_FEW = 8
#: The origin of a lateness before the first collective of the window.
UNSEEN = "what lies before its window"


def job_facts(
    out: FactWriter, waits: Waits, *, world_size: int | None, busy: Sequence[float], visible: bool = True
) -> None:
    """Facts about all ranks and about each. `busy` are the busy shares of the ranks that did GPU work;
    `visible` is false if collectives may hide inside opaque CUDA graphs."""
    ranks = waits.ranks
    size = max([world_size or 0, *(r.rank + 1 for r in ranks)])
    out |= {
        "ranks.count": len(ranks),
        "ranks.world_size": size,
        "ranks.missing_count": size - len(ranks),
        "ranks.busy_spread": max(busy) - min(busy) if busy else None,
    }
    if not waits.matched and not visible:
        return
    out.put("ranks.matched_count", waits.matched)
    if any(waits.staged) or waits.matched:
        between = [staged / max(r.window_ns, 1) for r, staged in zip(ranks, waits.staged, strict=True)]
        out.put("ranks.stage_wait_ratio", min(float(np.mean(between)), 1.0))
    if not waits.matched:
        return
    shares = [waits.window_share(i, w) for i, w in enumerate(waits.exposed)]
    total = waits.total
    uneven = [waits.window_share(i, w) for i, w in enumerate(waits.experts)]
    out |= {
        "ranks.expert_wait_ratio": sum(waits.experts) / max(sum(waits.exposed), 1),
        "ranks.expert_wait_window_ratio": float(np.mean(uneven)),
        "ranks.wait_ratio": total / max(waits.time, 1),
        "ranks.wait_window_ratio": float(np.mean(shares)),
        "ranks.most_caused_ratio": max(waits.caused) / total if total else 0.0,
    }
    _late_parts(out, waits)
    for i, rows in enumerate(ranks):
        own, late = out.at(Scope(rank=rows.rank)), waits.late[i]
        caused = waits.caused[i] / total if total else 0.0
        own |= {
            "rank.last_ratio": waits.last[i] / waits.judged if waits.judged else None,
            "rank.caused_ratio": caused,
            "rank.caused_over_even": caused * len(ranks),
            "rank.wait_ratio": waits.window_share(i, int(waits.wait[i].sum())),
            "rank.left_out_count": waits.left_out[i] or None,
            "rank.began_later_ns": waits.began_later[i] if waits.left_out[i] else None,
            "rank.clock_offset_ns": waits.offset(i),
        }
        if (pace := waits.paces[i]) is not None:
            own |= {"rank.slower_ratio": max(pace.slowdown - 1, 0.0), "rank.slower_alike_ratio": pace.alike}
            whole = max(sum(k.time for k in pace.kernels), 1.0)
            slower = [
                (k.name, k.time / whole, k.own / 1e6, k.others / 1e6, f"{k.slowdown:.2f} x")
                for k in pace.kernels
            ]
            own.table("ranks.pace", slower[:_FEW])
        if late is not None:
            own |= {"rank.late_ns": late.late / late.calls, "rank.late_part": late_part(late, rows.leads)}
            _late_table(own, rows.rank, late, rows.leads)
            waiting = [(a, b, f"the others wait {ns / 1e6:.3g} ms in all") for a, b, ns in late.worst]
            own.places("communication", [Interval(a, b, None, None, text) for a, b, text in waiting])
    _arrivals(out, waits)


def late_part(late: Late, leads: Sequence[str]) -> str | None:
    """What the rank did longer than the others before it came late; None if nothing stands out."""
    more = _longer(late, leads)
    name = max(more, key=lambda n: (more[n], n))
    return name if more[name] > 0 else None


def _longer(late: Late, leads: Sequence[str]) -> Counter[str]:
    """How much longer than the others it did each thing, ns."""
    more = {name: int(v) for name, v in zip(leads, late.lead - late.others, strict=True)}
    return Counter(more | {UNSEEN: late.unseen})


def _late_parts(out: FactWriter, waits: Waits) -> None:
    """What late ranks did longer than the others, whichever rank was late."""
    more: Counter[str] = Counter()
    for rows, late in zip(waits.ranks, waits.late, strict=True):
        if late is not None:
            more.update(_longer(late, rows.leads))
    ranked = sorted(((n, ns) for n, ns in more.items() if ns > 0), key=lambda m: (-m[1], m[0]))
    if not ranked:
        return
    lateness = max(sum(late.late for late in waits.late if late is not None), 1)
    out |= {"ranks.late_part": ranked[0][0], "ranks.late_part_ratio": min(ranked[0][1] / lateness, 1.0)}
    out.table("ranks.parts", [[name, ns / 1e6, min(ns / lateness, 1.0)] for name, ns in ranked])


def rank_call_facts(
    waits: Waits, known: Mapping[tuple[int, int], float]
) -> dict[Scope, dict[str, Value | None]]:
    """Facts about the calls of each rank without their waiting. `known`: exposed share by (rank, device)."""
    out: dict[Scope, dict[str, Value | None]] = {}
    for rows, wait, found in zip(waits.ranks, waits.wait, waits.found, strict=True):
        exposed = known.get((rows.rank, rows.device))
        if exposed is None or not found.any():
            continue
        calls = Calls(rows.kind, rows.duration, rows.exposed, rows.bytes, rows.place)
        measured = transfer_facts(calls, wait, found, exposed, rows.window_ns)
        out[Scope(rank=rows.rank, device=rows.device)] = measured | {"comm.waiting_known": True}
    for name in TRANSFERS:
        some = [v for measured in out.values() if isinstance(v := measured.get(name), float)]
        if some and max(some) <= _AGREE * min(some):
            for measured in out.values():
                if name in measured:
                    measured[name] = median(some)
    return out


def _late_table(out: FactWriter, rank: int, late: Late, leads: Sequence[str]) -> None:
    rows: list[tuple[str, float | None, float | None, float]] = [
        (name, own / 1e6, other / 1e6, (own - other) / 1e6)
        for name, own, other in zip(leads, late.lead.tolist(), late.others.tolist(), strict=True)
        if own or other
    ]
    if late.unseen:
        rows.append((UNSEEN, None, None, late.unseen / 1e6))
    rows.sort(key=lambda r: -r[3])
    title = f"What rank {rank} did before the {late.calls:,} collectives it came last to"
    out.table("ranks.late", rows, title=title)


def _arrivals(out: FactWriter, waits: Waits) -> None:
    """One row a rank, the one that causes most waiting first."""
    total = max(waits.total, 1)
    rows = [
        (
            waits.ranks[i].rank,
            waits.last[i],
            int(waits.found[i].sum()),
            waits.caused[i] / total,
            late.late / late.calls / 1e6 if (late := waits.late[i]) else None,
            float(waits.wait[i].sum()) / 1e6,
            None if (offset := waits.offset(i)) is None else offset / 1e3,
        )
        for i in waits.worst_first
    ]
    out.table("ranks.arrivals", rows)
