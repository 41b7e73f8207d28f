"""Who waits, who is late, and why: facts and a table of the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from advisor.facts.communication import Calls, transfer_facts
from advisor.facts.writer import FactWriter
from advisor.jobs.late_group import UNSEEN, LateGroup
from advisor.jobs.waiting import Late, Waits
from advisor.metrics.budgeted.collectives import EXPERTS, KERNELS, QUEUED, small
from advisor.model.arrays import Array
from advisor.model.facts import Cell, Interval, Scope, Table, Value
from advisor.model.findings import Budget
from advisor.model.parts import BUSY

#: Facts about transfers, which take equally long on all ranks that share them: if ranks differ by less
#: than this factor, their windows differ.
TRANSFERS = ("comm.max_over_mean", "comm.excess_ratio", "comm.repeated_excess_ratio")
_AGREE = 1.5
#: Kernels shown beside those of other ranks.
_FEW = 8
#: GPUs are slower where most of their kernel time is, all of it by a like factor.
_ALIKE = 0.5
#: Ranks that are named one by one.
_NAMED = 8


def listed(ranks: Sequence[int]) -> str:
    """``ranks 1, 2 and 5``; the first ones if there are many."""
    named = [str(r) for r in ranks[:_NAMED]]
    if len(ranks) > _NAMED:
        named.append(f"{len(ranks) - _NAMED} more")
    text = ", ".join(named[:-1])
    return f"rank{'s' * (len(ranks) > 1)} " + (f"{text} and {named[-1]}" if text else named[-1])


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
        between = [staged / r.program_ns for r, staged in zip(ranks, waits.staged, strict=True)]
        out.put("ranks.stage_wait_ratio", min(float(np.mean(between)), 1.0))
        out.put("ranks.stage_of_idle_ratio", waits.idle_staged)
        if (slow := waits.stage_host) is not None:
            own = ranks[slow.rank].rank
            out |= {"ranks.stage_host_ratio": slow.share, "ranks.stage_host_rank": own}
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
    for i in range(len(ranks)):
        _rank_facts(out, waits, i)
    _arrivals(out, waits)


def _rank_facts(out: FactWriter, waits: Waits, i: int) -> None:
    """Facts and tables of the rank at place `i`."""
    rows, late, total = waits.ranks[i], waits.late[i], waits.total
    own = out.at(Scope(rank=rows.rank))
    caused = waits.caused[i] / total if total else 0.0
    own |= {
        "rank.last_ratio": waits.last[i] / waits.judged if waits.judged else None,
        "rank.caused_ratio": caused,
        "rank.caused_over_even": caused * len(waits.ranks),
        "rank.steady_ratio": _steady(waits, i),
        "rank.wait_ratio": waits.window_share(i, int(waits.wait[i].sum())),
        "rank.left_out_count": waits.left_out[i] or None,
        "rank.began_later_ns": waits.began_later[i] if waits.left_out[i] else None,
        "rank.clock_offset_ns": waits.offset(i),
    }
    if (pace := waits.paces[i]) is not None:
        own |= {"rank.slower_ratio": max(pace.slowdown - 1, 0.0), "rank.slower_alike_ratio": pace.alike}
        whole = max(sum(k.time for k in pace.kernels), 1.0)
        slower = [
            (k.name, k.time / whole, k.own / 1e6, k.others / 1e6, f"{k.slowdown:.2f} x") for k in pace.kernels
        ]
        own.table("ranks.pace", slower[:_FEW])
    if (group := waits.groups[i]) is not None:
        own |= _group_facts(waits, i, group)
        own.table("ranks.families", family_rows(waits, group))
    if late is not None:
        own |= {"rank.late_ns": late.late / late.calls, "rank.late_part": late_part(late, rows.leads)}
        _late_table(own, rows.rank, late, rows.leads)
        waiting = [(a, b, f"the others wait {ns / 1e6:.3g} ms in all") for a, b, ns in late.worst]
        own.places("communication", [Interval(a, b, None, None, text) for a, b, text in waiting])


def _steady(waits: Waits, i: int) -> float:
    """How much less a rank that is late together with others, or always, waits than the rest."""
    group = waits.groups[i]
    return 0.0 if group is None or i not in waits.together else group.steady[group.members.index(i)]


def _group_facts(waits: Waits, i: int, group: LateGroup) -> dict[str, Value | None]:
    """Facts about the ranks that rank i is late with, itself included."""
    ranks = waits.ranks
    part = group.part(ranks[i].leads)
    own: dict[str, Value | None] = {
        "rank.late_names": listed([ranks[k].rank for k in group.members]),
        "rank.late_caused_ratio": sum(waits.caused[k] for k in group.members) / max(waits.total, 1),
        "rank.late_by_ns": max(group.late, 0.0),
        "rank.late_work": part,
        "rank.late_spread_ratio": group.spread_ratio,
        "rank.late_pattern": pattern(waits, group),
    }
    if part in (KERNELS, EXPERTS) and (rows := family_rows(waits, group)):
        family, _, theirs, others, _ = rows[0]
        own |= {"rank.late_family": family, "rank.late_call_ns": theirs * 1e6}
        own["rank.others_call_ns"] = None if others is None else others * 1e6
    return own


class FamilyRow(NamedTuple):
    """A kernel family on the ranks that are late and on the others: calls a step, ms a call, and by how many
    ms a step it takes longer there."""

    family: str
    calls: float
    theirs: float
    others: float | None
    more: float


def family_rows(waits: Waits, group: LateGroup) -> list[FamilyRow]:
    """The kernel families, the one first that takes most longer on the ranks of the group."""
    sides: list[dict[str, Array]] = []
    for late in (True, False):
        of = [r.paces for k, r in enumerate(waits.ranks) if (k in group.members) is late]
        sums: dict[str, Array] = {}
        for kernel in (kernel for paces in of for kernel in paces):
            each = np.array([kernel.calls, kernel.time]) / len(of)
            sums[kernel.family] = sums.get(kernel.family, np.zeros(2)) + each
        sides.append(sums)
    nowhere = np.zeros(2)
    rows = []
    for family, own in sides[0].items():
        calls, time = own.tolist()
        other_calls, other_time = sides[1].get(family, nowhere).tolist()
        there = other_time / other_calls / 1e6 if other_calls else None
        rows.append(FamilyRow(family, calls, time / calls / 1e6, there, (time - other_time) / 1e6))
    return sorted(rows, key=lambda r: (-r.more, r.family))


#: What is behind the lateness, by the kernel family that takes longer or by what the device did.
_OF_FAMILY = {"attention": "data-parallel attention", "moe": "experts"}


def pattern(waits: Waits, group: LateGroup) -> str | None:
    """What makes these ranks late: their share of the requests (`data-parallel attention`), `experts`, other
    `work`, `copies`, a slower `pace` of all kernels, the `host`, or work that `waits for other work`; None
    if their windows do not show it."""
    part = group.part(waits.ranks[group.members[0]].leads)
    if part is None or part == UNSEEN:
        return None
    if part not in (KERNELS, EXPERTS):
        return {"copies": "copies", QUEUED: "waits for other work"}.get(part, "host")
    found = [waits.paces[k] for k in group.members]
    if all(p is not None and p.slowdown > 1 and p.alike >= _ALIKE for p in found):
        return "pace"
    rows = family_rows(waits, group)
    return "experts" if part == EXPERTS else _OF_FAMILY.get(rows[0].family if rows else "", "work")


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
        calls = Calls(rows.kind, rows.duration, rows.exposed, rows.bytes, rows.place, small(rows))
        measured = transfer_facts(calls, wait, found, exposed, rows.program_ns)
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


_HEADS = (
    "rank",
    "device",
    "window:ms",
    "busy:ratio",
    "compute:ratio",
    "exposed_collectives:ratio",
    "overlap:ratio",
    "waits:ratio",
    "comes_last:ratio",
    "causes:ratio",
    "clock_offset:us",
)


def rank_table(
    waits: Waits, budget: Sequence[Budget], overlaps: Mapping[tuple[int, int], Value | None]
) -> Table:
    """One row a rank: where its window goes, what it hides, which rank it waits for."""
    total = max(waits.total, 1)
    parts = {(b.rank, b.device): {p.part: p.share for p in b.parts} for b in budget if b.phase is None}

    def row(i: int) -> Iterator[Cell]:
        r = waits.ranks[i]
        shares, offset = parts.get((r.rank, r.device), {}), waits.offset(i)
        yield from (r.rank, r.device, r.window_ns / 1e6)
        yield sum(shares.get(p, 0.0) for p in BUSY) if shares else None
        yield from (shares.get("compute"), shares.get("communication"), overlaps.get((r.rank, r.device)))
        yield waits.window_share(i, int(waits.wait[i].sum())) if waits.judged else None
        yield waits.last[i] / waits.judged if waits.judged else None
        yield waits.caused[i] / total if waits.judged else None
        yield None if offset is None else offset / 1e3

    return Table(title="Ranks", columns=_HEADS, rows=tuple(tuple(row(i)) for i in range(len(waits.ranks))))
