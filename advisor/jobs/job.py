"""Summaries of all ranks -> the conclusions about their job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from advisor.engine.compile import CompiledRule, Program
from advisor.engine.conclude import Conclusions, conclude
from advisor.engine.infer import Engine, Inference, infer
from advisor.engine.judge import Duration, predicted
from advisor.engine.rank import rank, unconditional, without_repeats
from advisor.facts.catalog import CATALOGUE, JOINT
from advisor.facts.host import own_gap_facts, waited_outliers
from advisor.facts.needs import reason
from advisor.facts.writer import FactWriter
from advisor.jobs.align import RankRows
from advisor.jobs.gains import transfer_gain, with_arrivals
from advisor.jobs.late_ranks import TRANSFERS, job_facts, listed, rank_call_facts
from advisor.jobs.reduction import RankSummary, whole_fact
from advisor.jobs.waiting import Waits, reduce_ranks
from advisor.knowledge.facts import need
from advisor.model.facts import TRACE, FactBase, Scope, Table
from advisor.model.findings import Finding, Healthy, NotEvaluated, Overruled
from advisor.model.gain import Prediction


class Part(Struct, frozen=True):
    """A capture of the job and the rank of each of its devices that is one."""

    summary: RankSummary
    rows: tuple[RankRows, ...]

    @property
    def rank_of(self) -> dict[int, int]:
        """Device -> rank."""
        return {r.device: r.rank for r in self.rows}

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(r.rank for r in self.rows)


class Job(Conclusions, frozen=True, kw_only=True):
    """All conclusions about a job, before they are a document. `by_rank` are its findings of each rank."""

    parts: tuple[Part, ...]
    world: int  # ranks of the job, read or not
    waits: Waits
    inference: Inference
    by_rank: tuple[Finding, ...]

    @property
    def facts(self) -> FactBase:
        return self.inference.facts

    @property
    def count(self) -> int:
        """Ranks that were read."""
        return len(self.waits.ranks)


def numbered(found: Sequence[tuple[int | None, RankSummary]]) -> tuple[Part, ...]:
    """The captures with their ranks numbered consecutively: by their own metadata, by the number of the
    capture, else in the order given. Captures of several GPUs count up inside."""
    most = max((len(s.rows) for _, s in found), default=1)
    taken: set[int] = set()
    parts = []
    for place, (number, summary) in enumerate(found):
        first = place if number is None else number
        ranks = [r.rank for r in summary.rows]
        if not summary.numbered:
            ranks = [first * most + i for i in range(len(ranks))]
        if taken & set(ranks):  # numbers that contradict each other
            free = max(taken) + 1
            ranks = list(range(free, free + len(ranks)))
        taken |= set(ranks)
        rows = tuple(replace(r, rank=n) for r, n in zip(summary.rows, ranks, strict=True))
        parts.append(Part(summary, rows))
    return tuple(parts)


def conclude_job(parts: Sequence[Part], program: Program, engine: Engine, given: int) -> Job:
    """One inference over the facts of all ranks, each with its rank in the scope, and those about the
    waits between them. `given` counts the ranks asked for, unreadable ones included."""
    parts = tuple(sorted(parts, key=lambda p: p.ranks))
    waits = reduce_ranks([r for p in parts for r in p.rows])
    world = _world_size(parts, given)
    inference = infer(_facts(parts, waits, world), program, engine=engine)

    def estimate(findings: Sequence[Finding]) -> Sequence[Finding]:
        steps = [p.summary.diagnosis.inputs[0].untraced_step_ms for p in parts]
        return with_arrivals(_predicted(findings, parts, inference.facts), waits, steps)

    found = conclude(inference, ms_of=_milliseconds(parts), estimate=estimate)
    merged = over_ranks(found, program.by_code, len(waits.ranks), world)
    rules = program.rules.by_code
    merged = replace(merged, findings=rank(without_repeats(merged.findings, rules, unconditional), rules))
    codes = {f.code for f in merged.findings}
    by_rank = tuple(f for f in found.findings if f.code in codes)
    return Job(**asdict(merged), parts=parts, world=world, waits=waits, inference=inference, by_rank=by_rank)


def _predicted(findings: Sequence[Finding], parts: Sequence[Part], facts: FactBase) -> Iterator[Finding]:
    """The findings with the gains of their fixes on their rank: for collectives of the transfers alone,
    if the waiting in them is known."""
    known = {
        (code, one): prediction
        for part in parts
        for (code, scope), prediction in part.summary.predictions.items()
        for one in scopes(scope, part.rank_of)
    }
    part_of = {r: p for p in parts for r in p.ranks}
    for finding in findings:
        scope = finding.scope
        if (prediction := known.get((finding.code, scope))) is None or scope.rank is None:
            yield finding
            continue
        if finding.part == "communication":
            exposed = part_of[scope.rank].summary.value("comm.exposed_ratio", Scope(device=scope.device))
            transfer = facts.value("comm.exposed_transfer_ratio", scope)
            whole = exposed if isinstance(exposed, float) else 0.0
            transferred = transfer if isinstance(transfer, float) else whole
            prediction = _of_transfers(prediction, transferred, whole)
        yield predicted(finding, prediction)


def _of_transfers(prediction: Prediction, transfer: float, exposed: float) -> Prediction:
    """The prediction for transfers alone, also that of each recommendation whose fix is the finding's own:
    one of them becomes the gain of the finding."""
    fix = prediction.gain.what_if
    others = tuple(
        (ask, transfer_gain(g, transfer, exposed) if g is not None and fix and g.what_if == fix else g)
        for ask, g in prediction.others
    )
    return prediction._replace(gain=transfer_gain(prediction.gain, transfer, exposed), others=others)


def _world_size(parts: Sequence[Part], given: int) -> int:
    """As the captures state it; if each holds several ranks, the launcher's number counts captures."""
    stated = max((p.summary.world_size or 0 for p in parts), default=0)
    most = max((len(p.rows) for p in parts), default=1)
    if most > 1 and not any(p.summary.numbered for p in parts) and stated <= len(parts):
        stated *= most
    return max(stated, given)


def _facts(parts: Sequence[Part], waits: Waits, world_size: int) -> FactBase:
    """Facts about the job, and all of each rank; those about collectives without their waiting."""
    out = FactWriter(CATALOGUE)
    busy, exposed = [], {}
    visible = True
    for summary, rows in ((p.summary, rows) for p in parts for rows in p.rows):
        scope = Scope(device=rows.device)
        if isinstance(share := summary.value("budget.busy_ratio", scope), float):
            busy.append(share)
        if isinstance(ratio := summary.value("comm.exposed_ratio", scope), float):
            exposed[rows.rank, rows.device] = ratio
        visible &= len(rows) > 0 or not summary.opaque
    job_facts(out, waits, world_size=world_size, busy=busy, visible=visible)
    for name in (n for n, spec in CATALOGUE.items() if spec.over_ranks == "median"):
        if counts := [v for p in parts if isinstance(v := p.summary.value(name, TRACE), int)]:
            out.put(name, int(median(counts)))
    for scope, values in rank_call_facts(waits, exposed).items():
        own = out.at(scope)
        own |= values
    _own_gap(parts, waits, out)
    _waited_outliers(parts, waits, out)
    base = out.base
    base.captures = tuple(Scope(rank=r) for p in parts for r in p.ranks)
    for part in parts:
        _take(part, base)
    tables = frozenset(t for p in parts for t in p.summary.trace_tables)
    for part in reversed(parts):
        base.missing |= part.summary.missing
    base.missing |= {n: reason(CATALOGUE[n], tables) for n in JOINT} | _reasons(base)
    return base


def _own_gap(parts: Sequence[Part], waits: Waits, out: FactWriter) -> None:
    """Host gaps of the stage of a pipeline whose host is slow, without those in which another stage is at
    work."""
    if (slow := waits.stage_host) is None:
        return
    rows = waits.ranks[slow.rank]
    summary = next(p.summary for p in parts if rows.rank in p.ranks)
    gap, busy = (
        summary.value(name, Scope(device=rows.device)) for name in ("host.gap_ratio", "budget.busy_ratio")
    )
    if isinstance(gap, float) and isinstance(busy, float):
        own = out.at(Scope(rank=rows.rank, device=rows.device))
        own |= own_gap_facts(gap, slow.share, busy)


def _waited_outliers(parts: Sequence[Part], waits: Waits, out: FactWriter) -> None:
    """The slow steps of each rank, without waiting for others."""
    summaries = {rank: p.summary for p in parts for rank in p.ranks}
    for i, rows in enumerate(waits.ranks):
        value = partial(summaries[rows.rank].value, scope=Scope(device=rows.device))
        own = out.at(Scope(rank=rows.rank, device=rows.device))
        own |= waited_outliers(value, waits.longer_share(i))


def _take(part: Part, base: FactBase) -> None:
    """All facts and evidence of a capture, now with the rank in their scope."""
    summary = part.summary
    window = part.rows[0].window if part.rows else None
    rank_of = part.rank_of
    for name, scope, value in summary.facts:
        if name in JOINT:
            continue
        for one in scopes(scope, rank_of):
            if (name, one) not in base.facts:
                base.add(whole_fact(name, one, value, summary.trace_tables, window))
    for (name, scope), table in summary.tables.items():
        for one in scopes(scope, rank_of):
            base.tables.setdefault((name, one), table)
    for (name, scope), places in summary.places.items():
        for one in scopes(scope, rank_of):
            base.intervals.setdefault((name, one), list(places))
    first = min(rank_of.values())
    for name, rows in summary.entities.items():
        into = base.entities.setdefault(name, [])
        for row in rows:
            device = row.get("device")
            into.append({**row, "rank": rank_of.get(device, first) if isinstance(device, int) else first})


def scopes(scope: Scope, rank_of: Mapping[int, int]) -> Iterator[Scope]:
    """A scope of one capture as scopes of the job; `rank_of` has the rank of each device. A device
    without a rank counts for the first rank."""
    if scope.device is None:
        yield from (dataclasses.replace(scope, rank=r) for r in rank_of.values())
    else:
        yield dataclasses.replace(scope, rank=rank_of.get(scope.device, min(rank_of.values())))


def _reasons(base: FactBase) -> dict[str, str]:
    """Why facts about the ranks have no value although several were given."""
    if ("ranks.matched_count", TRACE) not in base.facts:
        why = "collectives may be hidden inside CUDA graphs"
    elif base.value("ranks.matched_count") == 0:
        why = "no collective of one rank was found on another"
    else:
        began = "no window begins after another rank entered a collective"
        return {
            **dict.fromkeys(("rank.late_ns", "rank.late_part"), "no other rank waits for this one"),
            **dict.fromkeys(("rank.began_later_ns", "rank.left_out_count"), began),
            **dict.fromkeys(TRANSFERS, need("like_collectives", "communication").lack),
        }
    names = ("ranks.matched_count", "ranks.wait_ratio", "ranks.wait_window_ratio")
    return dict.fromkeys((*names, *(n for n, spec in CATALOGUE.items() if spec.level == "rank")), why)


def _milliseconds(parts: Sequence[Part]) -> Duration:
    """A share of the window in milliseconds a step, or of the capture, of a rank or of the mean one."""
    by_rank = {r: p.summary for p in parts for r in p.ranks}

    def of(part: str, scope: Scope, share: float | None) -> float | None:
        about = by_rank.values() if scope.rank is None else [by_rank[scope.rank]]
        of_one = [s.capture_ms if part == "capture" else s.step_ms for s in about]
        known = [ms for ms in of_one if ms is not None]
        return share * sum(known) / len(known) if share is not None and known else None

    return of


# --- conclusions about each rank -> one for what holds on most ranks -------------------------------

#: Ranks in a table of shares.
_SHARES = 16

Item = TypeVar("Item", Finding, Healthy, NotEvaluated, Overruled)


def over_ranks(
    found: Conclusions, rules: Mapping[str, CompiledRule], total: int, world: int | None = None
) -> Conclusions:
    """The conclusions of one inference over `total` ranks, of `world` in the job, with one entry for
    equal ones of several ranks; not yet ranked.

    A finding about most ranks names no rank and has the numbers of the one where it weighs most; else it
    is about that one and names the others. Findings of rules about the job stay. Healthy is what is
    healthy on all ranks without a finding or its symptom on any.
    """
    world = world or total
    of_job = {code for code, rule in rules.items() if rule.level in ("trace", "rank")}
    findings = [f for f in found.findings if f.code in of_job]
    of_ranks = (f for f in found.findings if f.code not in of_job)
    findings += [_merged(group, total, world) for group in _grouped(of_ranks, _about)]
    bad = {f.code for f in found.findings} | {s.code for f in found.findings for s in f.explains}
    healthy = [_on_all(g, total, world) for g in _grouped(found.healthy, _about) if g[0].code not in bad]
    return replace(
        found,
        findings=tuple(findings),
        overruled=_alike(found.overruled, lambda o: (o.by, *_about(o)), total),
        healthy=tuple(h for h in healthy if h is not None),
        not_evaluated=_alike(found.not_evaluated, lambda n: (n.missing, n.stopped_by, *_about(n)), total),
    )


def _about(what: Item) -> tuple[str, str, str]:
    """What the conclusions of several ranks have in common."""
    return what.code, what.scope.phase or "", what.scope.operation or ""


def _grouped(found: Iterable[Item], key_of: Callable[[Item], Hashable]) -> list[list[Item]]:
    """By key, in order; in each group in order of scope."""
    grouped: dict[Hashable, list[Item]] = {}
    for what in found:
        grouped.setdefault((what.code, key_of(what)), []).append(what)
    return [sorted(grouped[key], key=lambda w: w.scope.sort_key()) for key in sorted(grouped, key=str)]


def _ranks(group: Iterable[Item]) -> list[int]:
    return sorted({w.scope.rank for w in group if w.scope.rank is not None})


def _widened(group: Sequence[Item]) -> Scope:
    """The scope of the first of a group, without the rank, device or process in which others differ."""
    first = group[0].scope
    device = first.device if all(w.scope.device == first.device for w in group) else None
    process = first.process if len(group) == 1 else None
    return dataclasses.replace(first, rank=None, device=device, process=process)


#: The table of a finding about several ranks, the one whose numbers the finding has first.
_BY_RANK = "Share by rank"


def rank_of(finding: Finding) -> int | None:
    """The rank of a job that the numbers and the gain of a finding are of; None if they are of the job."""
    first = (t.rows[0][0] for t in finding.evidence if t.title == _BY_RANK)
    rank = next(first, finding.scope.rank)
    return rank if isinstance(rank, int) else None


def _merged(group: Sequence[Finding], total: int, world: int) -> Finding:
    group = sorted(group, key=lambda f: -(f.share or 0.0) * f.confidence)
    worst, ranks = group[0], _ranks(group)
    shown = worst.scope.rank
    most = 2 * len(ranks) > total
    scope = dataclasses.replace(worst.scope, process=worst.scope.process if len(group) == 1 else None)
    shares = [(f.scope.rank, f.share) for f in group if f.share is not None]
    extent = _extent(ranks, total, world, shown, [share for _, share in shares])
    by_rank = Table(title=_BY_RANK, columns=("rank", "share:ratio"), rows=tuple(shares[:_SHARES]))
    places = (dataclasses.replace(t, label=f"rank {shown}: {t.label}") for t in worst.time_ranges)
    return worst.replaced(
        scope=_widened(group) if most else scope,
        message=f"{worst.message} {extent}".strip(),
        time_ranges=tuple(places),
        evidence=(*worst.evidence, by_rank) if len(shares) > 1 else worst.evidence,
    )


def _extent(ranks: Sequence[int], total: int, world: int, shown: int | None, shares: Sequence[float]) -> str:
    """Where else it holds, and how much there."""
    if world == 1:
        return ""
    if 2 * len(ranks) > total:
        between = f", a share of {percent(shares)}" if " to " in percent(shares) else ""
        on = f"{len(ranks)} of {world} ranks{unread(total, world)}"
        return f"On {on}{between}; the numbers are those of rank {shown}."
    others = [r for r in ranks if r != shown]
    return f"Also on {listed(others)}." if others else ""


def percent(shares: Sequence[float]) -> str:
    """``71 to 88 %``; one number if both ends are equal, empty without any."""
    if not shares:
        return ""
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"{high} %" if low == high else f"{low} to {high} %"


def unread(total: int, world: int) -> str:
    """`` (1 not read)`` where `total` of the `world` ranks were read."""
    return f" ({world - total} not read)" if world > total else ""


#: The states of what is no finding, the one furthest from healthy first.
_FROM_HEALTHY = ("close", "observed", "in order", "does not apply")


def _on_all(group: Sequence[Healthy], total: int, world: int) -> Healthy | None:
    """What is no finding on all ranks that were read, in the words of the first one that is furthest from
    healthy; else None."""
    first, ranks = min(group, key=lambda h: _FROM_HEALTHY.index(h.state)), _ranks(group)
    if first.scope.rank is None or world == 1:
        return first
    if len(ranks) < total:
        return None
    on = f"{total} of {world} ranks{unread(total, world)}" if world > total else f"all {total} ranks"
    text = f"On {on}; on rank {first.scope.rank}: {first.text}"
    return first.replaced(text=text, scope=_widened(group))


def _alike(found: Iterable[Item], key_of: Callable[[Item], Hashable], total: int) -> tuple[Item, ...]:
    """One entry for all equal ones: about no rank if they are most or of the job, else about each."""
    most = ((group, 2 * len(_ranks(group)) > total) for group in _grouped(found, key_of))
    merged = ([g[0].replaced(scope=_widened(g))] if one else g for g, one in most)
    return tuple(item for group in merged for item in group)
