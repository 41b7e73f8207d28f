"""Sections of the job's `Diagnosis`: inputs, budgets, steps, the table of ranks, the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from advisor.engine.rank import causes_behind, worth_telling
from advisor.engine.wording import without_fault
from advisor.metrics.intervals import Coverage, union
from advisor.model.facts import Cell, Table
from advisor.model.findings import Budget, Diagnosis, Finding, Input, Lane, Part, StepSummary, Timeline
from advisor.model.gain import Choice
from advisor.model.parts import BUSY
from advisor.ranks.merge import listed, percent
from advisor.ranks.summary import RankSummary
from advisor.ranks.waits import Waits

#: Bins of a lane, and ranks that get one: those that cause most waiting.
_BINS, _LANES = 1_000, 8
_SHOWN = 2

_HEADS = ("rank", "device", "window:ms", "busy:ratio", "compute:ratio", "exposed_collectives:ratio",
          "overlap:ratio", "waits:ratio", "comes_last:ratio", "causes:ratio",
          "clock_offset:us")  # fmt: skip


def inputs(parts: Sequence[tuple[RankSummary, Sequence[int]]]) -> tuple[Input, ...]:
    """One entry a rank, in order of rank."""
    out = []
    for summary, ranks in parts:
        entry = summary.diagnosis.inputs[0]
        out += [entry.model_copy(update={"rank": rank, "ranks": 1}) for rank in ranks]
    return tuple(sorted(out, key=lambda e: (e.rank or 0, e.path)))


def budgets(parts: Sequence[tuple[RankSummary, Mapping[int, int]]]) -> tuple[Budget, ...]:
    """The budgets of all ranks; `parts` has the rank of each device of a capture."""
    out = [
        budget.model_copy(update={"rank": rank_of.get(budget.device, min(rank_of.values()))})
        for summary, rank_of in parts
        for budget in summary.diagnosis.budget
    ]
    return tuple(sorted(out, key=lambda b: (b.rank or 0, b.device, b.phase or "")))


def why_open(_budget: Budget, part: Part) -> str:
    """Why the job has no finding about a part of one rank: what its own capture says."""
    return part.why or f"{', '.join(part.findings)} on this rank alone"


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
            median_ms=median(s.median_ms for s in some),
            mean_ms=median(s.mean_ms for s in some),
            p99_ms=median(s.p99_ms for s in some),
        )
        for phase, some in sorted(by_phase.items())
    )


def rank_table(waits: Waits, budget: Sequence[Budget], overlaps: Mapping[tuple[int, int], float]) -> Table:
    """One row a rank: where its window goes, what it hides, which rank it waits for."""
    total = max(waits.total, 1)
    whole = {(b.rank, b.device): b for b in budget if b.phase is None}
    rows: list[tuple[Cell, ...]] = []
    for i, r in enumerate(waits.ranks):
        own = whole.get((r.rank, r.device))
        shares = {p.part: p.share for p in own.parts} if own is not None else {}
        busy = sum(shares.get(p, 0.0) for p in BUSY) if shares else None
        rows.append(
            (
                r.rank,
                r.device,
                r.window_ns / 1e6,
                busy,
                shares.get("compute"),
                shares.get("communication"),
                overlaps.get((r.rank, r.device)),
                waits.window_share(i, int(waits.wait[i].sum())) if waits.judged else None,
                waits.last[i] / waits.judged if waits.judged else None,
                waits.caused[i] / total if waits.judged else None,
                None if (offset := waits.offset(i)) is None else offset / 1e3,
            )
        )
    return Table(title="Ranks", columns=_HEADS, rows=tuple(rows))


def timeline(waits: Waits) -> Timeline:
    """Collectives and waiting of the ranks that cause most of it and of the first one, on the
    common clock, counted from where the first window begins."""
    ranks, clocks = waits.ranks, waits.clocks
    if not waits.matched:
        return Timeline()
    order = sorted(range(len(ranks)), key=lambda i: (-waits.caused[i], i))
    shown = sorted({0, *order[: _LANES - 1]})
    bounds = [c(np.array(r.window)) for r, c in zip(ranks, clocks, strict=True)]
    low = min(int(b[0]) for b in bounds)
    high = max(int(b[1]) for b in bounds)
    edges = np.linspace(low, high, min(_BINS, max(high - low, 1)) + 1).astype(np.int64)
    width = np.maximum(np.diff(edges), 1)
    lanes = []
    for i in shown:
        rows, clock = ranks[i], clocks[i]
        start = clock(rows.start)
        for name, length in (("collectives", rows.duration), ("waiting", waits.wait[i])):
            share = Coverage(union(start, start + length)).within(edges[:-1], edges[1:]) / width
            lanes.append(
                Lane(name=f"rank {rows.rank}: {name}", values=tuple(round(float(v), 4) for v in share))
            )
    return Timeline(start_ns=0, bin_ns=int(width[0]), lanes=tuple(lanes))


def verdict(
    diagnoses: Sequence[Diagnosis],
    ranks: int,
    world: int,
    findings: Sequence[Finding],
    missing: Sequence[int],
    options: Sequence[Choice] | None = (),
) -> str:
    """One sentence on the job, in the form of a single capture's. `ranks` of `world` were read;
    `missing` are those that were given and could not be. Of `options`, see the function."""
    workload = next((d.inputs[0].workload for d in diagnoses if d.inputs[0].workload), None)
    of = f"{ranks} of {world} ranks" if world > ranks else f"{ranks} rank{'s' * (ranks != 1)}"
    if workload and not workload.startswith(("LLM", "no GPU", "unknown")):
        of += f", {workload}"
    tail = f" ({of}{f'; without {listed(missing)}' if missing else ''})"
    telling = worth_telling(findings)
    if telling:
        first = telling[0]
        where = first.scope.label()
        sentence = f"{_began_later(findings)}{first.title}: "
        sentence += f"{f'{where}. ' if where else ''}{first.message}"
        rest = causes_behind(telling, _SHOWN)
        return sentence + (f" Then: {', '.join(rest)}." if rest else "") + tail
    busy = [d.inputs[0].busy_share for d in diagnoses if d.inputs[0].busy_share is not None]
    if not busy:
        return f"No GPU work was recorded, so nothing can be judged.{tail}"
    late, load = _began_later(findings), f"the GPUs are busy {percent(busy)} of the window"
    return late + without_fault(options, load, "these captures") + tail


def options(summaries: Sequence[RankSummary]) -> tuple[Choice, ...] | None:
    """The what-ifs that save `WORTH` or more on every rank, with what they save on the rank where
    that is least, since all go at one pace; None where some rank predicts nothing."""
    if not all(s.predicts for s in summaries):
        return None
    found: dict[str, list[Choice]] = {}
    for summary in summaries:
        for choice in summary.diagnosis.options:
            found.setdefault(choice.what_if, []).append(choice)
    least = [min(c, key=lambda o: o.saved) for c in found.values() if len(c) == len(summaries)]
    return tuple(sorted(least, key=lambda c: (-c.saved, c.what_if)))


def _began_later(findings: Iterable[Finding]) -> str:
    """What is to be known first where captures of ranks did not begin together."""
    ranks = sorted(
        f.scope.rank for f in findings if f.cause == "rank-began-later" and f.scope.rank is not None
    )
    if not ranks:
        return ""
    verb = "begin" if len(ranks) > 1 else "begins"
    return f"The capture of {listed(ranks)} {verb} late; what it is late for by that is left out. "
