"""Who waits, who is late, and why: facts and a table of the ranks, and gains of the job without lateness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from advisor.facts.communication import Calls, transfer_facts
from advisor.facts.spec import FactWriter
from advisor.model.facts import Cell, Interval, Scope, Table, Value
from advisor.model.findings import Budget, Finding
from advisor.model.gain import Gain, Span, over_all
from advisor.model.parts import BUSY
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


_HEADS = ("rank", "device", "window:ms", "busy:ratio", "compute:ratio", "exposed_collectives:ratio",
          "overlap:ratio", "waits:ratio", "comes_last:ratio", "causes:ratio",
          "clock_offset:us")  # fmt: skip


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


# --- what the job wins where the late rank is mended, or where transfers are hidden ---------------
# A replay takes one capture. Ranks that meet in collectives go at one pace: what a rank waits less is
# what each step of all of them is shorter, unless the host was what they waited for all along.

#: A smaller share of the step is no saving.
_LEAST = 0.001

_UNSEEN = (
    "the reason is before its window; a capture that begins and ends together on all ranks would show it"
)
_PER_STEP = Gain(measure="latency", per="step")
_BALANCED = (
    "half to all of the waiting that uneven experts cause ends; every rank has them as slow as the "
    "mean of all then",
)
_LATE = (
    "between the surplus of the late rank shared out among all of them and that rank as early as "
    "the last but one",
    "all ranks go at one pace; waiting that another kernel hides, and what came before the "
    "windows, is not counted",
)


_AS_FAST = (
    "its kernels take as long as the same ones of the other ranks; between nine tenths of what that "
    "ends and all by which the rank is later than the last but one",
)
#: In a job of four ranks, one of them slowed by 10 to 40 %, four times: within 11 % of the measured gain.
_LEAST_OF_SLOWED, _TOWARDS_MOST = 0.9, 0.25


def arrival_gain(waits: Waits, rank: int | None, untraced: Span | None = None) -> Gain:
    """Step time of the job without the lateness of this rank; `untraced`: without the profiler, if known."""
    i = next(i for i, r in enumerate(waits.ranks) if r.rank == rank)
    late = waits.late[i]
    before = untraced or _before(waits)
    if before is None:
        return Gain(reason="these captures hold no steps in which it could be won")
    if late is None:
        return Gain(reason="it is last to no collective")
    low, high = (_job_share(waits, ns) for ns in sorted((late.surplus, late.shared)))
    if high < _LEAST:
        return Gain(reason=_UNSEEN)
    return _gain(_PER_STEP, before, (low, (low + high) / 2, high), _LATE)


def pace_gain(waits: Waits, rank: int | None, untraced: Span | None = None) -> Gain:
    """Step time of the job with a GPU as fast as the others: before each collective its kernels take
    less, and it comes with the last but one at best."""
    gain = arrival_gain(waits, rank, untraced)
    i = next(i for i, rows in enumerate(waits.ranks) if rows.rank == rank)
    late, pace = waits.late[i], waits.paces[i]
    if gain.step_before_ms is None or late is None or pace is None:
        return gain
    less = late.kernels * (1 - 1 / pace.slowdown)
    share = _job_share(waits, int(np.minimum(late.ahead, less).sum()))
    most = _job_share(waits, late.surplus)
    mid = share + _TOWARDS_MOST * (most - share)
    return _gain(_PER_STEP, gain.step_before_ms, (_LEAST_OF_SLOWED * share, mid, most), _AS_FAST)


def expert_gain(waits: Waits, untraced: Span | None = None) -> Gain:
    """Step time of the job with an equal amount of work for the experts of every rank; at least half of
    that, since replicas balance the past load."""
    shares = [waits.window_share(i, ns) for i, ns in enumerate(waits.experts)]
    most = sum(shares) / max(len(shares), 1)
    before = untraced or _before(waits)
    if before is None or most < _LEAST:
        return Gain(reason="these captures hold no steps in which it could be won")
    return _gain(_PER_STEP, before, (most / 2, most * 3 / 4, most), _BALANCED)


def _before(waits: Waits) -> Span | None:
    """The step time of the ranks, one step alone counting as its window; None without steps."""
    steps = [r.window_ns / r.steps / 1e6 for r in waits.ranks if r.steps]
    return Span(low=min(steps), mid=sum(steps) / len(steps), high=max(steps)) if steps else None


def transfer_gain(alone: Gain, transfer: float, exposed: float) -> Gain:
    """The estimate for one rank by itself, which hides waiting as well, for its transfers only:
    `transfer` and `exposed` are the shares of the window with and without the waiting."""
    if alone.speedup is None or alone.step_before_ms is None or exposed <= 0:
        return alone
    part, speedup = min(transfer / exposed, 1.0), alone.speedup
    low, mid, high = (part * (1 - 1 / max(s, 1.0)) for s in (speedup.low, speedup.mid, speedup.high))
    assumption = f"{part:.0%} of the exposed time is transfer; the waiting for late ranks stays"
    return _gain(alone, alone.step_before_ms, (low, mid, high), (*alone.assumptions, assumption))


def with_arrivals(
    findings: Iterable[Finding], waits: Waits, steps: Sequence[Span | None]
) -> tuple[Finding, ...]:
    """The findings, those about late ranks and uneven experts with the estimate for the job; `steps`:
    of each capture without the profiler, ms."""
    untraced = over_all(steps)
    gains: dict[str, Callable[[int | None], Gain]] = {
        "rank-arrival-skew": lambda rank: arrival_gain(waits, rank, untraced),
        "one-gpu-slower": lambda rank: pace_gain(waits, rank, untraced),
        "expert-imbalance": lambda _: expert_gain(waits, untraced),
    }
    return tuple(f.replaced(gain=gains[f.cause](f.scope.rank)) if f.cause in gains else f for f in findings)


def _job_share(waits: Waits, ns: int) -> float:
    """Share of the window that `ns` of waiting in the matched calls makes, mean over the ranks."""
    count = len(waits.ranks)
    return sum(waits.window_share(i, ns) for i in range(count)) / count


def _gain(gain: Gain, before: Span, saved: tuple[float, float, float], assumptions: tuple[str, ...]) -> Gain:
    low, mid, high = (min(s, 0.95) for s in saved)
    after = Span(low=before.low * (1 - high), mid=before.mid * (1 - mid), high=before.high * (1 - low))
    return gain.replaced(
        step_before_ms=before,
        step_after_ms=after,
        speedup=Span(low=1 / (1 - low), mid=1 / (1 - mid), high=1 / (1 - high)),
        assumptions=assumptions,
    )
