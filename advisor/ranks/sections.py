"""Sections of the job's `Diagnosis`: inputs, budgets, steps, the table of ranks, the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from advisor.engine.rank import causes_behind, without_fault, worth_reporting
from advisor.metrics.intervals import Coverage, union
from advisor.model.facts import Cell, Table, Value
from advisor.model.findings import Budget, Diagnosis, Finding, Input, Lane, StepSummary, Timeline
from advisor.model.gain import Choice, Gain, Span, over_all
from advisor.model.parts import BUSY
from advisor.ranks.reduction import RankSummary
from advisor.ranks.waiting import Waits

#: Bins of a lane, and ranks that get one: those that cause most waiting.
_BINS, _LANES = 1_000, 8
_SHOWN = 2

#: Number of ranks that are named one by one.
_NAMED = 8

_HEADS = ("rank", "device", "window:ms", "busy:ratio", "compute:ratio", "exposed_collectives:ratio",
          "overlap:ratio", "waits:ratio", "comes_last:ratio", "causes:ratio",
          "clock_offset:us")  # fmt: skip


def listed(ranks: Sequence[int]) -> str:
    """``ranks 1, 2 and 5``; the first ones if there are many."""
    named = [str(r) for r in ranks[:_NAMED]]
    if len(ranks) > _NAMED:
        named.append(f"{len(ranks) - _NAMED} more")
    text = ", ".join(named[:-1])
    return f"rank{'s' * (len(ranks) > 1)} " + (f"{text} and {named[-1]}" if text else named[-1])


def percent(shares: Sequence[float]) -> str:
    """``71 to 88 %``; one number if both ends are equal, empty without any."""
    if not shares:
        return ""
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"{high} %" if low == high else f"{low} to {high} %"


def inputs(parts: Sequence[tuple[RankSummary, Sequence[int]]]) -> tuple[Input, ...]:
    """One entry a rank, in order of rank."""
    own = ((summary.diagnosis.inputs[0], rank) for summary, ranks in parts for rank in ranks)
    out = (entry.replaced(rank=rank, ranks=1) for entry, rank in own)
    return tuple(sorted(out, key=lambda e: (e.rank or 0, e.path)))


def budgets(parts: Sequence[tuple[RankSummary, Mapping[int, int]]]) -> tuple[Budget, ...]:
    """The budgets of all ranks; `parts` has the rank of each device of a capture."""
    own = [(budget, rank_of) for summary, rank_of in parts for budget in summary.diagnosis.budget]
    out = [b.replaced(rank=rank_of.get(b.device, min(rank_of.values()))) for b, rank_of in own]
    return tuple(sorted(out, key=lambda b: (b.rank or 0, b.device, b.phase or "")))


def steps(diagnoses: Iterable[Diagnosis]) -> tuple[StepSummary, ...]:
    """By phase, the median over the ranks of each number."""
    by_phase: dict[str, list[StepSummary]] = {}
    for diagnosis in diagnoses:
        for one in diagnosis.main_steps:
            by_phase.setdefault(one.phase, []).append(one)
    return tuple(
        StepSummary(
            phase=phase,
            count=int(median(s.count for s in some)),
            **{n: median(getattr(s, n) for s in some) for n in ("median_ms", "mean_ms", "p99_ms")},
        )
        for phase, some in sorted(by_phase.items())
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


def timeline(waits: Waits) -> Timeline:
    """Collectives and waiting of the ranks that cause most of it and of the first one, on the
    common clock, counted from where the first window begins."""
    ranks, clocks = waits.ranks, waits.clocks
    if not waits.matched:
        return Timeline()
    shown = sorted({0, *waits.worst_first[: _LANES - 1]})
    bounds = np.array([c(np.array(r.window)) for r, c in zip(ranks, clocks, strict=True)])
    low, high = int(bounds[:, 0].min()), int(bounds[:, 1].max())
    edges = np.linspace(low, high, min(_BINS, max(high - low, 1)) + 1).astype(np.int64)
    width = np.maximum(np.diff(edges), 1)
    lanes = []
    for i in shown:
        rows, start = ranks[i], clocks[i](ranks[i].start)
        for name, length in (("collectives", rows.duration), ("waiting", waits.wait[i])):
            share = Coverage(union(start, start + length)).within(edges[:-1], edges[1:]) / width
            values = tuple(round(float(v), 4) for v in share)
            lanes.append(Lane(name=f"rank {rows.rank}: {name}", values=values))
    return Timeline(start_ns=0, bin_ns=int(width[0]), lanes=tuple(lanes))


def verdict(
    diagnoses: Sequence[Diagnosis],
    ranks: int,
    world: int,
    findings: Sequence[Finding],
    missing: Sequence[int],
    options: Sequence[Choice] | None = (),
) -> str:
    """One sentence on the job, in the form of a single capture's. `ranks` of `world` were read; `missing`
    are those that were given and could not be. For `options` see the function."""
    workload = next((d.inputs[0].workload for d in diagnoses if d.inputs[0].workload), None)
    of = f"{ranks} of {world} ranks" if world > ranks else f"{ranks} rank{'s' * (ranks != 1)}"
    if workload and not workload.startswith(("LLM", "no GPU", "unknown")):
        of += f", {workload}"
    tail = f" ({of}{f'; without {listed(missing)}' if missing else ''})"
    late, main = _began_later(findings), worth_reporting(findings)
    if main:
        where = main[0].scope.label()
        sentence = f"{late}{main[0].title}: {f'{where}. ' if where else ''}{main[0].message}"
        rest = causes_behind(main, _SHOWN)
        return sentence + (f" Then: {', '.join(rest)}." if rest else "") + tail
    busy = [d.inputs[0].busy_share for d in diagnoses if d.inputs[0].busy_share is not None]
    if not busy:
        return f"No GPU work was recorded, so nothing can be judged.{tail}"
    load = f"the GPUs are busy {percent(busy)} of the window"
    return late + without_fault(options, load, "these captures") + tail


def options(summaries: Sequence[RankSummary]) -> tuple[Choice, ...] | None:
    """The what-ifs that save at least `WORTH` on every rank, with the saving on the rank where it is
    least, since all run at one pace; None if some rank predicts nothing."""
    if not all(s.predicts for s in summaries):
        return None
    found: dict[str, list[Choice]] = {}
    for summary in summaries:
        for choice in summary.diagnosis.options:
            found.setdefault(choice.what_if, []).append(choice)
    least = [min(c, key=lambda o: o.saved) for c in found.values() if len(c) == len(summaries)]
    return tuple(sorted(least, key=lambda c: (-c.saved, c.what_if)))


def _began_later(findings: Iterable[Finding]) -> str:
    """A note for captures of ranks that did not begin together."""
    about = [f.scope.rank for f in findings if f.cause == "rank-began-later"]
    ranks = sorted(rank for rank in about if rank is not None)
    if not ranks:
        return ""
    verb = "begin" if len(ranks) > 1 else "begins"
    return f"The capture of {listed(ranks)} {verb} late; what it is late for by that is left out. "


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
