"""Captures of many ranks -> one `Diagnosis`: each is reduced by itself, then all are joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from advisor import __version__
from advisor.engine.compile import Program
from advisor.engine.conclude import MAX_RANGES, MAX_ROWS, conclude
from advisor.engine.infer import default_engine
from advisor.engine.load import builtin_dir
from advisor.engine.rank import causes_behind, without_fault, worth_reporting
from advisor.engine.states import answered, by_state, why_not
from advisor.errors import AdvisorError, InputError
from advisor.facts.catalog import CATALOGUE, JOINT
from advisor.facts.needs import remedy
from advisor.gain.whatifs import no_estimate
from advisor.jobs.job import Job, Part, conclude_job, numbered, percent
from advisor.jobs.late_ranks import listed, rank_table
from advisor.jobs.reduction import RankSummary, decode, encode, rank_rows, renamed, trimmed
from advisor.jobs.waiting import Waits
from advisor.knowledge.engine_signs import Program as About
from advisor.knowledge.engine_signs import ServingEngine
from advisor.knowledge.files import with_sources
from advisor.metrics.intervals import Coverage, union
from advisor.model import findings as m
from advisor.model.facts import TRACE, Scope, documented
from advisor.model.gain import Choice
from advisor.pipeline import document
from advisor.pipeline.diagnose import Analysed, Options, analyse, assemble, name_of_unread, program_about
from advisor.pipeline.given import parse_weights
from advisor.pipeline.verdict import headline, large_parts, to_do


class Task(NamedTuple):
    """One capture to be reduced by a worker; `whole`: with the tables that represent all ranks."""

    path: str
    options: Options
    whole: bool


class Reduced(NamedTuple):
    """The result of a task: the encoded summary, or one line on why there is none."""

    data: bytes | None
    error: str | None


#: Reduces captures somewhere, in any order; one result a task, in the order of the tasks.
Run = Callable[[Sequence[Task]], Sequence[Reduced]]


def reduce_capture(task: Task) -> Reduced:
    """The work of a worker: everything about one capture, and what the others need of it."""
    try:
        with analyse(task.path, task.options) as done:
            return Reduced(encode(summarise(done, task.whole)), None)
    except AdvisorError as error:
        return Reduced(None, str(error))
    except MemoryError:
        return Reduced(None, f"{task.path}: not enough memory; give more memory, fewer --jobs, or a --window")


def summarise(done: Analysed, whole: bool = True) -> RankSummary:
    """A capture without conclusions: all ranks are judged in one inference."""
    base, analysis = done.facts, done.analysis
    alone = assemble(replace(done, options=dataclasses.replace(done.options, sensitivity=False)), of_job=True)
    if all(f.part == "communication" for f in worth_reporting(alone.findings)):
        # Only all ranks together show whether collectives wait or transfer.
        options = done.gains.options(document.is_language_model(analysis.workload) is True, of_job=True)
        alone = alone.replaced(options=options or ())
    rules = done.inference.program.rules.by_code.values()
    evidence = {name for rule in rules for name in rule.evidence}
    supply = document.remedies(analysis, base, done.serving)
    unknown = {name for o in done.inference.outcomes for name in o.missing}
    ms_of = document.milliseconds(analysis)
    rows, known = rank_rows(analysis)
    capture = analysis.trace.capture
    return RankSummary(
        trimmed(alone, whole),
        tuple((f.name, f.scope, f.value) for f in base),  # their catalogue entries need not be sent
        base.missing,
        {name: flag for name in unknown if (flag := supply(name))},
        tuple(sorted(analysis.trace.tables)),
        {key: table.first(MAX_ROWS) for key, table in base.tables.items() if key[0] in evidence},
        {key: tuple(places[:MAX_RANGES]) for key, places in base.intervals.items()},
        base.entities,
        {(f.code, f.scope): done.gains.prediction(f, of_job=True) for f in conclude(done.inference).findings},
        rows,
        capture.rank,
        capture.world_size,
        known,
        document.hidden_graphs(base),  # collectives may be in them
        capture.recorder,
        ms_of("step", TRACE, 1.0),
        ms_of("capture", TRACE, 1.0),
        done.gains.predicts,
    )


def diagnose_ranks(
    files: Sequence[tuple[int | None, Path]],
    options: Options | None = None,
    run: Run | None = None,
    warn: Callable[[str], None] | None = None,
) -> m.Diagnosis:
    """Diagnose the captures of one job, each with its rank if that is known. `run` reduces the captures (by
    default here, one after the other); `warn` gets one line for each unreadable one. Raises InputError if
    none could be read, RuleError for bad rules."""
    chosen = options or Options()
    if chosen.weight_bytes:  # read here: workers may not see the file
        chosen = dataclasses.replace(chosen, weight_bytes=str(parse_weights(chosen.weight_bytes)))
    program = program_about("trace", (builtin_dir(), *chosen.rules), chosen.params)
    tasks = [Task(str(path), chosen, i == 0) for i, (_, path) in enumerate(files)]
    results = run(tasks) if run else [reduce_capture(task) for task in tasks]
    return _joined(files, results, program, chosen, warn)


def _joined(
    files: Sequence[tuple[int | None, Path]],
    results: Sequence[Reduced],
    program: Program,
    options: Options,
    warn: Callable[[str], None] | None,
) -> m.Diagnosis:
    """The document of the job from the reduced captures."""
    found: list[tuple[int | None, RankSummary]] = []
    lost: list[tuple[int | None, Path, str]] = []
    for (number, path), result in zip(files, results, strict=True):
        if result.data is not None:
            summary = decode(result.data)
            # A redacted one keeps the name that it was given where its own rows were known.
            found.append((number, summary if options.redact else renamed(summary, str(path))))
        else:
            why = result.error or "no result"
            shown = name_of_unread(path, options)
            lost.append((number, Path(shown), why.replace(str(path), shown)))
    if warn is not None:
        for number, _, why in lost:
            warn(why if number is None else f"rank {number} is missing: {why}")
    if not found:
        raise InputError(lost[0][2] if lost else "no captures were given")
    parts = numbered(found)
    given = sum(len(p.rows) for p in parts) + len(lost)
    highest = max((number for number, _ in files if number is not None), default=0)
    engine = options.engine or default_engine()
    job = conclude_job(parts, program, engine, max(given, highest + 1))
    return _document(job, program, lost)


def _explained(finding: m.Finding) -> m.Finding:
    """The finding with a reason where it has no gain."""
    if finding.gain and (finding.gain.speedup or finding.gain.reason):
        return finding
    return finding.replaced(gain=m.Gain(reason=no_estimate(finding.cause)))


def _with_remedies(job: Job) -> tuple[m.NotEvaluated, ...]:
    """The rules that were not judged, with what would supply their facts: of all ranks together, or of the
    first that lacks one."""
    tables = frozenset(t for p in job.parts for t in p.summary.trace_tables)

    def remedy_of(name: str) -> str | None:
        if name in JOINT:
            return remedy(CATALOGUE[name], tables, job.facts.missing.get(name))
        return next((p.summary.remedies[name] for p in job.parts if name in p.summary.remedies), None)

    return document.with_remedies(job.not_evaluated, remedy_of, job.parts[0].summary.recorder)


def _inputs(job: Job, lost: Sequence[tuple[int | None, Path, str]]) -> tuple[m.Input, ...]:
    """The captures by rank, then those that could not be read."""
    read = (p.summary.diagnosis.inputs[0].replaced(rank=r, ranks=1) for p in job.parts for r in p.ranks)
    unread = (m.Input(path=str(path), format=m.UNREADABLE, rank=n, warnings=(why,)) for n, path, why in lost)
    return (*sorted(read, key=lambda e: (e.rank or 0, e.path)), *unread)


def _document(job: Job, program: Program, lost: Sequence[tuple[int | None, Path, str]]) -> m.Diagnosis:
    first = job.parts[0].summary.diagnosis
    source = first.inputs[0]
    sure = source.serving_confidence or 1.0
    serving = ServingEngine(source.serving_engine, sure, source.serving_evidence, source.serving_version)
    known = About(document.is_language_model(source.workload))
    findings = tuple(map(_explained, document.with_options(job.findings, serving, known)))
    numbers = {number for number, _, _ in lost if number is not None}
    diagnoses = [p.summary.diagnosis for p in job.parts]
    rules = program.rules.by_code
    budget = answered(_budgets(job.parts), job.by_rank, rules, why_not(job.inference))
    overlaps = {
        (r.rank, r.device): p.summary.value("comm.overlap_ratio", Scope(device=r.device))
        for p in job.parts
        for r in p.rows
    }
    of_first = f"(rank {job.parts[0].ranks[0]})"
    shown = {n: dataclasses.replace(t, title=f"{t.title} {of_first}") for n, t in first.tables.items()}
    options = () if worth_reporting(findings) else _options([p.summary for p in job.parts])
    return m.Diagnosis(
        tool=m.Tool(version=__version__, engine=job.inference.engine),
        headline=headline(findings, rules),
        do=to_do(findings, rules),
        options=options or (),
        inputs=_inputs(job, lost),
        verdict=_verdict(diagnoses, job.count, job.world, findings, sorted(numbers), options),
        findings=findings,
        overruled=job.overruled,
        **by_state(job.healthy),
        not_evaluated=_with_remedies(job),
        budget=budget,
        steps=_steps(diagnoses),
        facts=documented(job.facts),
        thresholds=with_sources(job.thresholds),
        tables=shown | {"ranks": rank_table(job.waits, budget, overlaps)},
        timeline=_timeline(job.waits),
        next_target=first.next_target,
        work=first.work,
    )


# --- sections of the document ----------------------------------------------------------------------

#: Bins of a lane, and how many ranks get one; the ranks that cause most waiting come first.
_BINS, _LANES = 1_000, 8
_SHOWN = 2


def _budgets(parts: Iterable[Part]) -> list[m.Budget]:
    """The budgets of all ranks."""
    own = ((budget, p.rank_of) for p in parts for budget in p.summary.diagnosis.budget)
    out = [b.replaced(rank=rank_of.get(b.device, min(rank_of.values()))) for b, rank_of in own]
    return sorted(out, key=lambda b: (b.rank or 0, b.device, b.phase or ""))


def _steps(diagnoses: Iterable[m.Diagnosis]) -> tuple[m.StepSummary, ...]:
    """By phase, the median over the ranks of each number."""
    by_phase: dict[str, list[m.StepSummary]] = {}
    for diagnosis in diagnoses:
        for one in diagnosis.main_steps:
            by_phase.setdefault(one.phase, []).append(one)
    return tuple(
        m.StepSummary(
            phase=phase,
            count=int(median(s.count for s in some)),
            **{n: median(getattr(s, n) for s in some) for n in ("median_ms", "mean_ms", "p99_ms")},
        )
        for phase, some in sorted(by_phase.items())
    )


def _timeline(waits: Waits) -> m.Timeline:
    """Collectives and waiting of the ranks that cause most of it and of the first one, on the
    common clock, counted from where the first window begins."""
    ranks, clocks = waits.ranks, waits.clocks
    if not waits.matched:
        return m.Timeline()
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
            lanes.append(m.Lane(name=f"rank {rows.rank}: {name}", values=values))
    return m.Timeline(start_ns=0, bin_ns=int(width[0]), lanes=tuple(lanes))


def _verdict(
    diagnoses: Sequence[m.Diagnosis],
    ranks: int,
    world: int,
    findings: Sequence[m.Finding],
    missing: Sequence[int],
    options: Sequence[Choice] | None = (),
) -> str:
    """One sentence on the job, in the form of a single capture's. `ranks` of `world` were read; `missing`
    were given and could not be read. For `options` see the function."""
    workload = next((d.inputs[0].workload for d in diagnoses if d.inputs[0].workload), None)
    of = f"{ranks} of {world} ranks" if world > ranks else f"{ranks} rank{'s' * (ranks != 1)}"
    if workload and not workload.startswith(("LLM", "no GPU", "unknown")):
        of += f", {workload}"
    tail = f" ({of}{f'; without {listed(missing)}' if missing else ''})"
    late, main = _began_later(findings), worth_reporting(findings)
    if main:
        where = main[0].scope.label()
        sentence = f"{late}{main[0].title}. {f'{where}. ' if where else ''}{main[0].message}"
        rest = causes_behind(main, _SHOWN)
        return sentence + (f" Then: {', '.join(rest)}." if rest else "") + tail
    busy = [d.inputs[0].busy_share for d in diagnoses if d.inputs[0].busy_share is not None]
    if not busy:
        return f"No GPU work was recorded, so nothing can be judged.{tail}"
    load = f"the GPUs are busy {percent(busy)} of the window"
    held = [(p.part, p.share) for d in diagnoses for b in d.budget for p in b.parts]
    return late + without_fault(options, load, "these captures", unowned=large_parts(held)) + tail


def _options(summaries: Sequence[RankSummary]) -> tuple[Choice, ...] | None:
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


def _began_later(findings: Iterable[m.Finding]) -> str:
    """A note for captures of ranks that did not begin together."""
    about = [f.scope.rank for f in findings if f.cause == "rank-began-later"]
    ranks = sorted(rank for rank in about if rank is not None)
    if not ranks:
        return ""
    verb = "begin" if len(ranks) > 1 else "begins"
    return f"The capture of {listed(ranks)} {verb} late; collectives missed for that reason are left out. "
