"""Captures of many ranks -> one `Diagnosis`: each is reduced by itself, then all are joined."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from advisor import __version__
from advisor.engine.rank import worth_reporting
from advisor.engine.states import answered, why_not
from advisor.errors import AdvisorError, InputError
from advisor.facts.catalog import CATALOGUE, JOINT
from advisor.knowledge.files import with_sources
from advisor.model.facts import TRACE, Fact, Scope
from advisor.model.findings import UNREADABLE, Diagnosis, Gain, Input, Tool
from advisor.pipeline.diagnose import Options, analyse, assemble, program_about
from advisor.pipeline.given import parse_weights
from advisor.pipeline.verdict import headline, to_do
from advisor.ranks import sections
from advisor.ranks.job import Job, conclude_job, numbered, scopes
from advisor.ranks.reduction import RankSummary, decode, encode, renamed, trimmed, whole_fact

if TYPE_CHECKING:
    from advisor.engine.compile import Program
    from advisor.engine.infer import Engine
    from advisor.pipeline.diagnose import Analysed

#: Facts in the document of a job; beyond, those of ranks that no finding is about are left out.
_MAX_FACTS = 5_000


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


def summarise(done: Analysed, whole: bool = True) -> RankSummary:
    """A capture without conclusions: all ranks are judged in one inference."""
    from advisor.engine.conclude import MAX_RANGES, MAX_ROWS, conclude
    from advisor.pipeline import document
    from advisor.ranks.reduction import rank_rows

    base, analysis = done.facts, done.analysis
    alone = assemble(replace(done, options=dataclasses.replace(done.options, sensitivity=False)))
    if all(f.part == "communication" for f in worth_reporting(alone.findings)):
        # Only all ranks together show whether collectives wait or transfer.
        options = done.gains.options(document.is_language_model(analysis.workload) is True)
        alone = alone.replaced(options=options or ())
    rules = done.inference.program.rules.by_code.values()
    evidence = {name for rule in rules for name in rule.evidence}
    remedy = document.remedies(analysis, base, done.serving)
    unknown = {name for o in done.inference.outcomes for name in o.missing}
    ms_of = document.milliseconds(analysis)
    rows, known = rank_rows(analysis)
    capture = analysis.trace.capture
    return RankSummary(
        trimmed(alone, whole),
        tuple((f.name, f.scope, f.value) for f in base),  # their catalogue entries need not be sent
        base.missing,
        {name: flag for name in unknown if (flag := remedy(name))},
        tuple(sorted(analysis.trace.tables)),
        {key: table.first(MAX_ROWS) for key, table in base.tables.items() if key[0] in evidence},
        {key: tuple(places[:MAX_RANGES]) for key, places in base.intervals.items()},
        base.entities,
        {(f.code, f.scope): done.gains.prediction(f) for f in conclude(done.inference).findings},
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
) -> Diagnosis:
    """Diagnose the captures of one job, each with its rank if that is known. `run` reduces the captures (by
    default here, one after the other); `warn` gets one line for each unreadable one. Raises InputError if
    none could be read, RuleError for bad rules."""
    from advisor.engine.infer import default_engine
    from advisor.engine.load import builtin_dir

    chosen = options or Options()
    if chosen.weight_bytes:  # read here: workers may not see the file
        chosen = dataclasses.replace(chosen, weight_bytes=str(parse_weights(chosen.weight_bytes)))
    program = program_about("trace", (builtin_dir(), *chosen.rules), chosen.params)
    tasks = [Task(str(path), chosen, i == 0) for i, (_, path) in enumerate(files)]
    results = run(tasks) if run else [reduce_capture(task) for task in tasks]
    # There are no reference cycles to collect here, but thousands of small objects make the collector
    # traverse all of them again and again: it would take half of the time.
    was = gc.isenabled()
    gc.disable()
    try:
        return _joined(files, results, program, chosen.engine or default_engine(), warn)
    finally:
        if was:
            gc.enable()


def _joined(
    files: Sequence[tuple[int | None, Path]],
    results: Sequence[Reduced],
    program: Program,
    engine: Engine,
    warn: Callable[[str], None] | None,
) -> Diagnosis:
    """The document of the job from the reduced captures."""
    found: list[tuple[int | None, RankSummary]] = []
    lost: list[tuple[int | None, Path, str]] = []
    for (number, path), result in zip(files, results, strict=True):
        if result.data is not None:
            found.append((number, renamed(decode(result.data), str(path))))
        else:
            lost.append((number, path, result.error or "no result"))
    if warn is not None:
        for number, _, why in lost:
            warn(why if number is None else f"rank {number} is missing: {why}")
    if not found:
        raise InputError(lost[0][2] if lost else "no captures were given")
    parts = numbered(found)
    given = sum(len(p.rows) for p in parts) + len(lost)
    highest = max((number for number, _ in files if number is not None), default=0)
    job = conclude_job(parts, program, engine, max(given, highest + 1))
    return _document(job, program, lost)


def _document(job: Job, program: Program, lost: Sequence[tuple[int | None, Path, str]]) -> Diagnosis:
    from advisor.facts.needs import remedy
    from advisor.gain.whatifs import no_estimate
    from advisor.knowledge.engine_signs import Program, ServingEngine
    from advisor.pipeline import document

    first = job.parts[0].summary.diagnosis
    source = first.inputs[0]
    sure = source.serving_confidence or 1.0
    serving = ServingEngine(source.serving_engine, sure, source.serving_evidence, source.serving_version)
    known = Program(document.is_language_model(source.workload))
    findings = tuple(
        f
        if f.gain and (f.gain.speedup or f.gain.reason)
        else f.replaced(gain=Gain(reason=no_estimate(f.cause)))
        for f in document.with_options(job.findings, serving, known)
    )
    tables = frozenset(t for p in job.parts for t in p.summary.trace_tables)

    def remedy_of(name: str) -> str | None:
        if name in JOINT:
            return remedy(CATALOGUE[name], tables, job.facts.missing.get(name))
        return next((p.summary.remedies[name] for p in job.parts if name in p.summary.remedies), None)

    recorder = job.parts[0].summary.recorder
    not_evaluated = document.with_remedies(job.not_evaluated, remedy_of, recorder)
    numbers = {number for number, _, _ in lost if number is not None}
    diagnoses = [p.summary.diagnosis for p in job.parts]
    rules = program.rules.by_code
    budgets = sections.budgets([(p.summary, p.rank_of) for p in job.parts])
    budget = answered(budgets, job.by_rank, rules, why_not(job.inference))
    overlaps = {
        (r.rank, r.device): p.summary.value("comm.overlap_ratio", Scope(device=r.device))
        for p in job.parts
        for r in p.rows
    }
    of_first = f"(rank {job.parts[0].ranks[0]})"
    shown = {n: dataclasses.replace(t, title=f"{t.title} {of_first}") for n, t in first.tables.items()}
    options = () if worth_reporting(findings) else sections.options([p.summary for p in job.parts])
    return Diagnosis(
        tool=Tool(version=__version__, engine=job.inference.engine),
        headline=headline(findings, rules),
        do=to_do(findings, rules),
        options=options or (),
        inputs=(
            *sections.inputs([(p.summary, p.ranks) for p in job.parts]),
            *(Input(path=str(path), format=UNREADABLE, rank=n, warnings=(why,)) for n, path, why in lost),
        ),
        verdict=sections.verdict(diagnoses, job.count, job.world, findings, sorted(numbers), options),
        findings=findings,
        overruled=job.overruled,
        healthy=job.healthy,
        not_evaluated=not_evaluated,
        budget=budget,
        steps=sections.steps(diagnoses),
        facts=tuple(_facts(job)),
        thresholds=with_sources(job.thresholds),
        tables=shown | {"ranks": sections.rank_table(job.waits, budget, overlaps)},
        timeline=sections.timeline(job.waits),
        next_target=first.next_target,
        work=first.work,
    )


def _facts(job: Job) -> Iterable[Fact]:
    """The facts of the job, then those of its ranks: all, or of those that findings are about."""
    out = list(job.facts)
    total = len(out) + sum(len(p.summary.facts) for p in job.parts)
    named = {f.scope.rank for f in job.findings} | {job.parts[0].ranks[0]}
    have = {(f.name, f.scope) for f in out}
    for part in job.parts:
        if total > _MAX_FACTS and not named & set(part.ranks):
            continue
        if len(out) + len(part.summary.facts) > 2 * _MAX_FACTS:
            break
        window = part.rows[0].window
        for name, scope, value in part.summary.facts:
            if name in JOINT:
                continue
            for one in scopes(scope, part.rank_of):
                if (name, one) not in have:
                    out.append(whole_fact(name, one, value, part.summary.trace_tables, window))
    return sorted(out, key=lambda f: (f.name, f.scope.sort_key()))
