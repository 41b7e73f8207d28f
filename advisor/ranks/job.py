"""Summaries of all ranks -> the conclusions about their job."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from advisor.engine.compile import Program, State
from advisor.engine.findings import conclude
from advisor.engine.infer import Engine, infer
from advisor.engine.judge import Duration
from advisor.engine.rank import rank, unconditional, without_repeats
from advisor.engine.wording import placeholders
from advisor.facts.catalog import CATALOGUE, JOINT
from advisor.facts.communication import ALIKE
from advisor.facts.missing import reason
from advisor.facts.writer import FactWriter
from advisor.model.facts import TRACE, Fact, FactBase, Scope
from advisor.model.findings import Finding, Healthy, NotEvaluated, Overruled, Threshold
from advisor.model.gain import Gain
from advisor.ranks import merge
from advisor.ranks.align import RankRows
from advisor.ranks.facts import TRANSFERS, job_facts, rank_call_facts
from advisor.ranks.merge import RankFinding
from advisor.ranks.sections import with_gain
from advisor.ranks.summary import RankSummary, communication_codes, whole_fact
from advisor.ranks.waits import Waits, reduce_ranks

#: Facts that one inference is given, below the engine's own limit.
_MAX_FACTS = 4_000


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

    def about(self, device: int | None) -> tuple[int, ...]:
        """The ranks that a conclusion about this device of the capture is about."""
        known = self.rank_of
        if device is None:
            return self.ranks
        return (known[device],) if device in known else self.ranks[:1]


class Job(Struct, frozen=True):
    """All that is concluded about a job, before it is made into a document."""

    parts: tuple[Part, ...]
    world: int  # ranks of the job, read or not
    waits: Waits
    facts: FactBase
    findings: tuple[Finding, ...]
    overruled: tuple[Overruled, ...]
    healthy: tuple[Healthy, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    thresholds: tuple[Threshold, ...]

    @property
    def count(self) -> int:
        """Ranks that were read."""
        return len(self.waits.ranks)


def numbered(found: Sequence[tuple[int | None, RankSummary]]) -> tuple[Part, ...]:
    """The captures with the ranks in them numbered through: by their own metadata, by the number
    of the capture, else in the order given. Captures of several GPUs count up inside."""
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
    """Waits between the ranks, the rules that need all of them, and what single ranks concluded.
    `given` counts the ranks that were asked for, also those that could not be read.

    Where ranks wait, what single ranks say of the times of collectives is overruled.
    """
    parts = tuple(sorted(parts, key=lambda p: p.ranks))
    waits = reduce_ranks([r for p in parts for r in p.rows])
    small = _subset(program)
    world = _world_size(parts, given)
    facts = _facts(parts, waits, world, _looked_at(small))
    total = len(waits.ranks)
    ranks = tuple(r.rank for r in waits.ranks)
    stated = [RankFinding(p.about(f.scope.device), f) for p in parts for f in p.summary.diagnosis.findings]
    own: list[Finding] = []
    overruled = [(p.about(o.scope.device), o) for p in parts for o in p.summary.diagnosis.overruled]
    healthy = [(p.about(h.scope.device), h) for p in parts for h in p.summary.diagnosis.healthy]
    missing = [(p.about(n.scope.device), n) for p in parts for n in p.summary.diagnosis.not_evaluated]
    by_code = program.rules.by_code
    part_of = {r: p for p in parts for r in p.ranks}
    thresholds: tuple[Threshold, ...] = ()
    for number, base in enumerate(_chunks(facts)):
        found = conclude(infer(base, small, engine=engine), ms_of=_milliseconds(waits))
        thresholds = found.thresholds
        for f in (_estimated(f, waits, part_of, base) for f in found.findings):
            if by_code[f.code].scope not in ("trace", "rank"):
                stated.append(RankFinding(_about(f.scope.rank, ranks), f))
            elif f.scope.rank is not None or number == 0:
                own.append(f)
        overruled += [(_about(o.scope.rank, ranks), o) for o in found.overruled]
        missing += [(_about(n.scope.rank, ranks), n) for n in found.not_evaluated]
        healthy += [(_about(h.scope.rank, ranks), h) for h in found.healthy]
    stated, explained = _without_waiting(stated, own, parts)
    overruled += [(ranks, o) for ranks, o, _ in explained]
    missing += [
        (ranks, NotEvaluated(code=o.code, cause=o.cause, scope=o.scope, missing=(), stopped_by=by))
        for ranks, o, by in explained
    ]
    refolded = merge.refold([*own, *merge.merge_findings(stated, total, world)], by_code)
    merged = without_repeats(refolded, by_code, unconditional)
    fired = {f.code for f in merged} | {s.code for f in merged for s in f.explains}
    return Job(
        parts,
        world,
        waits,
        facts,
        rank(merged, by_code),
        tuple(merge.merge_overruled(overruled, total)),
        tuple(merge.merge_healthy(healthy, fired, total, world)),
        tuple(merge.merge_not_evaluated(missing, total)),
        thresholds,
    )


def _without_waiting(
    stated: Sequence[RankFinding], own: Sequence[Finding], parts: Sequence[Part]
) -> tuple[list[RankFinding], list[tuple[tuple[int, ...], Overruled, str]]]:
    """What single ranks say, without what the waiting between them explains: where ranks wait, the
    times of collectives show only that, and where uneven experts are why, so do the slow calls of
    expert kernels."""
    waiting = [f for f in own if f.impact is not None and f.impact.part == "communication"]
    if not waiting:
        return list(stated), []
    first = waiting[0]
    collectives = {n for p in parts for n in p.summary.collectives}
    experts = {n for p in parts for n in p.summary.experts}
    uneven = next((f for f in waiting if f.cause == "expert-imbalance"), None)
    kept: list[RankFinding] = []
    explained = []
    for one in stated:
        what, by = one.what, None
        if what.scope.operation in collectives:
            by = first
        elif what.scope.operation in experts and what.cause == "tail-latency":
            by = uneven
        if by is None:
            kept.append(one)
        else:
            explained.append(
                (
                    one.ranks,
                    Overruled(code=what.code, cause=what.cause, by=by.code, scope=what.scope),
                    by.cause,
                )
            )
    return kept, explained


def _estimated(finding: Finding, waits: Waits, part_of: Mapping[int, Part], base: FactBase) -> Finding:
    """The finding with what its end would win the job."""
    rank_, device = finding.scope.rank, finding.scope.device
    alone: dict[str, Gain] = {}
    exposed = transfer = 0.0
    part = None if rank_ is None else part_of.get(rank_)
    if part is not None and device is not None:
        alone = {code: gain for on, code, gain in part.summary.gains if on == device}
        known = part.summary.value("comm.exposed_ratio", Scope(device=device))
        measured = base.value("comm.exposed_transfer_ratio", Scope(rank=rank_, device=device))
        exposed = known if isinstance(known, float) else 0.0
        transfer = measured if isinstance(measured, float) else exposed
    return with_gain(finding, waits, alone, transfer, exposed)


def _about(one: int | None, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return ranks if one is None else (one,)


def _world_size(parts: Sequence[Part], given: int) -> int:
    """As the captures state it; where each holds several ranks, a launcher that counts captures is
    taken by its word for these."""
    stated = max((p.summary.world_size or 0 for p in parts), default=0)
    most = max((len(p.rows) for p in parts), default=1)
    if most > 1 and not any(p.summary.numbered for p in parts) and stated <= len(parts):
        stated *= most
    return max(stated, given)


# --- facts ---------------------------------------------------------------------------------------


def _facts(parts: Sequence[Part], waits: Waits, world_size: int, wanted: frozenset[str]) -> FactBase:
    """Facts about the job, and of each rank those about its collectives and the `wanted` ones."""
    out = FactWriter(CATALOGUE)
    busy, exposed = [], {}
    visible = True
    for part in parts:
        summary = part.summary
        for rows in part.rows:
            scope = Scope(device=rows.device)
            share = summary.value("budget.busy_ratio", scope)
            if isinstance(share, float):
                busy.append(share)
            ratio = summary.value("comm.exposed_ratio", scope)
            if isinstance(ratio, float):
                exposed[rows.rank, rows.device] = ratio
            visible &= len(rows) > 0 or not summary.opaque
    job_facts(out, waits, world_size=world_size, busy=busy, visible=visible)
    for name in (n for n, spec in CATALOGUE.items() if spec.over_ranks == "median"):
        if counts := [v for p in parts if isinstance(v := p.summary.value(name, TRACE), int)]:
            out.put(name, int(median(counts)))
    calls = rank_call_facts(waits, exposed)
    for scope, values in calls.items():
        out.put_all(values, scope)
    for part in parts:
        _take(part, out.base, wanted)
    known = {name for name, _ in out.base.facts}
    tables = frozenset(t for p in parts for t in p.summary.trace_tables)
    why = _reasons(out.base)
    out.base.missing.update(
        {n: why.get(n) or reason(s, tables) for n, s in CATALOGUE.items() if n not in known}
    )
    return out.base


def _take(part: Part, base: FactBase, wanted: frozenset[str]) -> None:
    """Facts, tables and places of a capture, now with the rank in their scope."""
    summary = part.summary
    window = part.rows[0].window if part.rows else None
    rank_of = part.rank_of
    for name, scope, value in summary.facts:
        if name not in wanted or name in JOINT:
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


def scopes(scope: Scope, rank_of: Mapping[int, int]) -> Iterator[Scope]:
    """A scope of one capture as scopes of the job; `rank_of` has the rank of each device."""
    if scope.device is None:
        yield from (dataclasses.replace(scope, rank=r) for r in rank_of.values())
    elif scope.device in rank_of:
        yield dataclasses.replace(scope, rank=rank_of[scope.device])


def _reasons(base: FactBase) -> dict[str, str]:
    """Why facts about the ranks have no value although several were given."""
    if ("ranks.matched_count", TRACE) not in base.facts:
        why = "collectives may be hidden inside CUDA graphs"
    elif base.value("ranks.matched_count") == 0:
        why = "no collective of one rank was found on another"
    else:
        late = ("rank.late_ns", "rank.late_part")
        began = ("rank.began_later_ns", "rank.left_out_count")
        return {
            **dict.fromkeys(late, "no other rank waits for this one"),
            **dict.fromkeys(began, "no window begins after another rank entered a collective"),
            **dict.fromkeys(TRANSFERS, ALIKE.lack),
        }
    names = ("ranks.matched_count", "ranks.wait_ratio", "ranks.wait_window_ratio")
    return dict.fromkeys((*names, *(n for n, spec in CATALOGUE.items() if spec.level == "rank")), why)


# --- inference -----------------------------------------------------------------------------------


def _subset(program: Program) -> Program:
    """The rules that need all ranks, and those whose outcome they look at."""
    wanted = set(communication_codes(program))
    by_cause = {r.spec.cause: c for c, r in program.by_code.items()}
    open_ = list(wanted)
    while open_:
        rule = program.by_code[open_.pop()]
        needed = {by_cause[s.cause] for s in rule.states() if isinstance(s, State)}
        open_ += needed - wanted
        wanted |= needed
    strata = tuple(some for s in program.strata if (some := tuple(r for r in s if r.spec.code in wanted)))
    return Program(strata, program.params, program.rules)


def _looked_at(program: Program) -> frozenset[str]:
    """The facts that these rules name anywhere, and all about collectives."""
    names = {n for n in CATALOGUE if n.startswith("comm.")}
    for rule in program.by_code.values():
        spec = rule.spec
        texts = (
            spec.message,
            spec.healthy or "",
            *(d.text for d in spec.doubts),
            *(r.action for r in spec.recommendations),
        )
        names |= {t.fact for t in rule.tests()} | {t.fact for some in rule.applies for t in some}
        names |= {p.name for text in texts for p in placeholders(text)}
        names |= {r.verify.fact for r in spec.recommendations if r.verify is not None}
        names |= {t.fact for some in rule.doubts for t in some}
        if spec.impact is not None:
            names |= set(spec.impact.facts)
    return frozenset(names & CATALOGUE.keys())


def _chunks(facts: FactBase) -> Iterator[FactBase]:
    """The facts of so many ranks at a time as one inference takes, those about the job with
    each. The rank that causes most waiting comes first: rules about the job ask for it."""
    wide = {k: f for k, f in facts.facts.items() if k[1].rank is None}
    by_rank: dict[int, dict[tuple[str, Scope], Fact]] = {}
    for key, fact in facts.facts.items():
        if key[1].rank is not None:
            by_rank.setdefault(key[1].rank, {})[key] = fact

    def caused(rank_: int) -> float:
        share = facts.value("rank.caused_ratio", Scope(rank=rank_))
        return share if isinstance(share, float) else 0.0

    chunk = dict(wide)
    for number in sorted(by_rank, key=lambda n: (-caused(n), n)):
        if len(chunk) + len(by_rank[number]) > _MAX_FACTS and len(chunk) > len(wide):
            yield replace(facts, facts=chunk)
            chunk = dict(wide)
        chunk |= by_rank[number]
    yield replace(facts, facts=chunk)


def _milliseconds(waits: Waits) -> Duration:
    """A share of the window in milliseconds a step, of the rank in question or of the mean one."""
    by_rank = {r.rank: r.window_ns / 1e6 / max(r.steps, 1) for r in waits.ranks}
    mean = sum(by_rank.values()) / max(len(by_rank), 1)

    def of(_part: str, scope: Scope, share: float | None) -> float | None:
        at = mean if scope.rank is None else by_rank.get(scope.rank, mean)
        return None if share is None else share * at

    return of
