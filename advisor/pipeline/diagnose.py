"""The pipeline: capture -> trace -> metrics -> facts -> inference -> `Diagnosis`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, lru_cache
from pathlib import Path

from msgspec import Struct

from advisor import __version__
from advisor.comparison.step_work import work_of
from advisor.engine.compile import Program, compile_rules
from advisor.engine.conclude import Conclusions, conclude
from advisor.engine.infer import Inference, default_engine, infer, take_out_undecided
from advisor.engine.load import RuleSet, builtin_dir, load_rules, stamps
from advisor.engine.rank import hidden, worth_doing, worth_reporting
from advisor.engine.reasons import sensitivity
from advisor.engine.states import answered, by_state, why_not
from advisor.engine.values import parse_params
from advisor.errors import InputError
from advisor.export.excerpts import excerpts
from advisor.facts.catalog import build_facts
from advisor.gain.attach import Gains
from advisor.jobs.gains import with_arrivals
from advisor.jobs.reduction import cross_rank, rank_section, waits_inside, with_waits
from advisor.jobs.waiting import Waits
from advisor.knowledge.checked import newer_engine
from advisor.knowledge.engine_signs import ServingEngine
from advisor.knowledge.files import with_sources
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.loaded.selection import Selection, parse_time
from advisor.metrics.profiled.stage import Profiled, measure
from advisor.metrics.stepped.load import logged_step_ns
from advisor.model.facts import FactBase, Scope, Subject, documented
from advisor.model.findings import Diagnosis, Finding, Timeline, Tool
from advisor.model.options import Options as Options
from advisor.pipeline import document
from advisor.pipeline.given import given_acceptance, given_decoder, given_step_ns, given_weights
from advisor.pipeline.in_steps import with_steps
from advisor.pipeline.verdict import headline, to_do, unmeasured, verdict
from advisor.sources.open import needs_export, with_load, with_samples
from advisor.sources.open import open_trace as open_
from advisor.sources.trace import Trace

Progress = Callable[[str], None]


def open_trace(path: str | Path) -> Trace:
    """The columns of a capture. Raises InputError if it cannot be read as one."""
    return open_(Path(path))


def opened(path: str | Path, chosen: Options) -> Trace:
    """The capture, with samples or load of another log if one is given, and redacted if requested."""
    if chosen.gpu_metrics_offset is not None and chosen.gpu_metrics is None:
        raise InputError("--gpu-metrics-offset says where a log begins; add --gpu-metrics FILE")
    trace = open_trace(path)
    try:
        if chosen.gpu_metrics is not None:
            offset = chosen.gpu_metrics_offset
            trace = with_samples(trace, chosen.gpu_metrics, parse_time(offset) if offset else None)
        if chosen.log is not None:
            trace = with_load(trace, chosen.log)
        if chosen.redact:
            from advisor.capture.redact_trace import without_private

            trace = without_private(trace)
        elif chosen.mask:
            from advisor.capture.redact_trace import without_credentials

            trace = without_credentials(trace)
    except BaseException:
        trace.close()
        raise
    return trace


def name_of_unread(path: Path, options: Options) -> str:
    """A capture that cannot be read, as a report shows it."""
    if not options.redact:
        return str(path)
    from advisor.capture.redact_trace import unread_name

    return unread_name(path)


@contextmanager
def analysis_of(path: str | Path, chosen: Options, say: Progress = lambda _: None) -> Iterator[Profiled]:
    """The metrics of a capture, with another recording of the same program beside it if one is given. Raises
    InputError for captures that cannot be read or do not fit each other."""
    with ExitStack() as open_:
        trace = open_.enter_context(opened(path, chosen))
        trace.read_ahead("api_calls", "kernels")
        selection = Selection(chosen.window, chosen.nvtx, chosen.phase)
        other = None
        if chosen.together is not None:
            say(f"reading {chosen.together.name}")
            beside = dataclasses.replace(chosen, gpu_metrics=None, log=None)
            other = open_.enter_context(opened(chosen.together, beside))
        say("reading")
        measured = measure(trace, selection, other)
        measured.provenance.check()
        yield measured


class Analysed(Struct, frozen=True, dict=True):
    """One capture with all conclusions, while its file is open. `waits` is set if it holds several ranks."""

    analysis: Profiled
    facts: FactBase
    inference: Inference
    serving: ServingEngine
    options: Options
    waits: Waits | None = None

    @cached_property
    def gains(self) -> Gains:
        """The gains of fixes; every estimate is made once."""
        weights = given_weights(self.options.weight_bytes)
        unprofiled_ns, logged_ns = given_step_ns(self.options.unprofiled_step), logged_step_ns(self.analysis)
        return Gains(self.analysis, weights, unprofiled_ns=unprofiled_ns, logged_ns=logged_ns)


@contextmanager
def analyse(
    path: str | Path, options: Options | None = None, progress: Progress | None = None
) -> Iterator[Analysed]:
    """Read, measure and infer; the caller decides what to make of it. Raises InputError for a capture or
    selection that cannot be used, RuleError for bad rules."""
    chosen = options or Options()

    def compiled() -> Program:
        return program_about("trace", (builtin_dir(), *chosen.rules), chosen.params)

    say = progress or (lambda _: None)
    weights = given_weights(chosen.weight_bytes)
    given_step_ns(chosen.unprofiled_step)  # a wrong one fails before anything is read
    acceptance = given_acceptance(chosen.acceptance)
    if chosen.rules or chosen.params:  # faulty ones fail before anything is read
        compiled()
    say("exporting with nsys" if needs_export(path) else "reading")
    with analysis_of(path, chosen, say) as analysis:
        analysis.trace.read_ahead("samples")
        program = compiled()  # while tables are read, as most imports
        waits = waits_inside(analysis)
        analysis = with_waits(analysis, waits)
        ranks = cross_rank(analysis, waits) if waits else None
        decoder = given_decoder(chosen.weight_bytes)
        serving = document.serving_engine(analysis, chosen.serving_engine)
        facts = build_facts(analysis, weights, ranks, decoder, acceptance, serving.name)
        say("inferring")
        engine = chosen.engine or default_engine()
        take_out_undecided(facts, program)
        inference = infer(facts, program, engine=engine, strict=chosen.strict)
        yield Analysed(analysis, facts, inference, serving, chosen, waits)


def diagnose(
    path: str | Path, options: Options | None = None, progress: Progress | None = None, drawn: bool = False
) -> Diagnosis:
    """Diagnose one capture. `progress` gets the name of each stage as it begins. With `drawn` the events
    of places are kept for a page.

    Raises InputError for a capture or selection that cannot be used, RuleError for bad rules.
    """
    with analyse(path, options, progress) as done:
        found = assemble(done)
        if drawn:
            found = found.replaced(excerpts=excerpts(done.analysis, found.findings))
        return found


def conclusions(done: Analysed, inference: Inference | None = None) -> Conclusions:
    """The conclusions of the inference (or another one over the same facts), ranked by estimated gains."""

    def estimate(findings: Sequence[Finding]) -> Sequence[Finding]:
        if done.waits is None:
            return done.gains.with_gains(findings)
        # Several ranks in one capture show what only all of them can.
        return with_arrivals(done.gains.with_gains(findings), done.waits, [done.gains.untraced])

    ms_of = document.milliseconds(done.analysis)
    return conclude(
        inference or done.inference, ms_of=ms_of, estimate=estimate, once=done.gains.each_time_once
    )


def assemble(done: Analysed, of_job: bool = False) -> Diagnosis:
    """The document that every report is made from; `of_job`: of one rank of a job, without what `trimmed`
    takes away."""
    analysis, facts, serving = done.analysis, done.facts, done.serving
    timeline = Timeline() if of_job else document.timeline(analysis)  # first: the inputs of gains take memory
    found = conclusions(done)
    findings = document.with_options(found.findings, serving, document.program_of(analysis))
    findings = with_steps(analysis, findings, done.gains.removed_in)
    source, tables = document.input_of(analysis, serving), document.tables(analysis, facts)
    rules = done.inference.program.rules.by_code
    budget = answered(document.budgets(analysis), findings, rules, why_not(done.inference))
    if len(analysis.window_steps):
        scope = Scope(device=analysis.main_device)
        rates = (
            "tokens_per_s",
            "prompt_tokens_per_s",
            "written_tokens_per_s",
            "model_bandwidth_ratio",
            "model_flop_ratio",
        )
        source = source.replaced(
            step_ms=float(step_times(analysis).mean()) / 1e6,
            untraced_step_ms=done.gains.untraced,
            untraced_step_from=done.gains.untraced_from,
            **{name: facts.value(f"serving.{name}", scope) for name in rates},
        )
    if done.waits is not None:
        source = source.replaced(ranks=len(done.waits.ranks))
        tables["ranks"] = rank_section(done.waits, budget, facts)
    combined = None
    if not of_job:
        combined = done.gains.combined(worth_doing(found.findings, rules), hidden(found.findings))
    language_model = document.is_language_model(analysis.workload) is True
    options = () if worth_reporting(findings) else done.gains.options(language_model)
    flips = None
    if done.options.sensitivity:  # what a threshold moved by a tenth would change
        flips = sensitivity(done.inference, lambda i: conclusions(done, i).findings)
    return Diagnosis(
        tool=Tool(version=__version__, engine=done.inference.engine),
        inputs=(source,),
        verdict=verdict(analysis, findings, found.not_evaluated, options, facts)
        + unmeasured(analysis, facts, None if worth_reporting(findings) else not options)
        + newer_engine(serving.name, serving.version),
        headline=headline(findings, rules, done.gains.combined),
        do=to_do(findings, rules, combined),
        options=options or (),
        findings=findings,
        combined=combined,
        overruled=found.overruled,
        **by_state(found.healthy),
        not_evaluated=document.with_remedies(
            found.not_evaluated, document.remedies(analysis, facts, serving), analysis.trace.capture.recorder
        ),
        budget=budget,
        steps=document.steps(analysis),
        facts=documented(facts),
        thresholds=with_sources(found.thresholds),
        tables=tables,
        timeline=timeline,
        next_target=document.next_target(analysis),
        sensitivity=flips,
        work=work_of(analysis),
    )


def all_rules(folders: tuple[Path, ...]) -> RuleSet:
    """The rules of the folders. Read again only if a file has changed: few processes read many ranks, and
    `advisor doctor` asks for two subjects."""
    return _rules_of(folders, _stamps(folders))


def program_about(subject: Subject, folders: tuple[Path, ...], params: Iterable[str]) -> Program:
    """The compiled rules of the folders about a subject; compiled again only if a file has changed.
    `params` as given on the command line. RuleError for invalid rules or parameters."""
    return _program_of(subject, folders, tuple(params), _stamps(folders))


def _stamps(folders: tuple[Path, ...]) -> Hashable:
    """What changes with the files of rules; our own are read once."""
    return tuple(stamps(folder) for folder in folders if folder != builtin_dir())


@lru_cache(maxsize=2)
def _rules_of(folders: tuple[Path, ...], _stamps: Hashable) -> RuleSet:
    return load_rules(*folders)


@lru_cache(maxsize=4)
def _program_of(
    subject: Subject, folders: tuple[Path, ...], params: tuple[str, ...], stamps: Hashable
) -> Program:
    rules = _rules_of(folders, stamps).about(subject)
    return compile_rules(rules, parse_params(rules, params))
