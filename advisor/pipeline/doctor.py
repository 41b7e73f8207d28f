"""``advisor.doctor``: what a capture can answer, and how to record a better one; and ``advisor.plan``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.capture.goals import plan as build
from advisor.capture.nsys_options import Recording, recording_of
from advisor.capture.planner import Situation, UnmetNeed
from advisor.capture.planner import plan as record_again
from advisor.engine.compile import Program
from advisor.engine.infer import Inference, infer
from advisor.engine.judge import worded
from advisor.engine.load import builtin_dir
from advisor.errors import invalid_choice
from advisor.facts.needs import CUDA, LOSSLESS, NODES, OWNER, combine
from advisor.knowledge.facts import facts_of
from advisor.model.capture import Capture
from advisor.model.capture_plan import Blocked, CapturePlan, Checkup, Named, Plan, Question, Recorded
from advisor.model.facts import TRACE, Fact, FactBase, Value
from advisor.model.findings import Finding, NotEvaluated, Tool
from advisor.model.options import Options, PlanRequest
from advisor.model.rules import judges_capture
from advisor.pipeline import document
from advisor.pipeline.diagnose import Analysed, Progress, all_rules, analyse, conclusions, program_about
from advisor.pipeline.each_rank import of_each
from advisor.pipeline.inputs import Job, Paths, listed, of_one, one_capture
from advisor.sources.schema import MISSING, Call

_PHASES = ("prefill", "decode", "mixed")
#: Trace tables whose presence decides an answer.
_ASKED_TABLES = ("kernels", "api_calls", "samples", "ranges", "allocations", "host_samples", "callchains")


def doctor(
    path: Paths, options: Options | None = None, progress: Progress | None = None, jobs: int = 1
) -> Checkup:
    """Check one capture, or the ranks of a job, which `jobs` processes read (0: one a core): then the rank on
    which most rules cannot run. Raises InputError for a capture that cannot be used."""
    chosen = options or Options()
    given = of_one(listed(path))
    if not isinstance(given, Job):
        alone = one_capture(listed(path))
        return _of_capture(1, alone.path, alone.options(chosen), progress)
    ask = partial(_of_capture, len(given.ranks))
    found = of_each(given, ask, Checkup, chosen, progress, jobs)
    waiting = {rank: sum(len(b.rules) for b in one.blocked) for rank, one in found.items()}
    rank = max(found, key=lambda r: waiting[r])
    alike = len({(*sorted((q.id, q.answer) for q in one.questions),) for one in found.values()}) == 1
    others = "the others answer the same" if alike else "the others do not answer alike"
    about = f"rank {rank} of {len(given.ranks)}, where most rules cannot run; {others}"
    return found[rank].replaced(input=found[rank].input.replaced(rank=rank), of_job=about)


def _of_capture(ranks: int, path: Path, chosen: Options, progress: Progress | None = None) -> Checkup:
    """One capture, that of one of this many ranks."""
    folders = (builtin_dir(), *chosen.rules)
    asking = all_rules(folders).about("recording")
    own = tuple(p for p in chosen.params if p.partition(".")[0].strip() in asking.by_code)
    program = program_about("recording", folders, own)
    others = replace(chosen, params=tuple(p for p in chosen.params if p not in own), mask=True)
    with analyse(path, others, progress) as done:
        return checkup(done, program, ranks)


def checkup(done: Analysed, program: Program, ranks: int = 1) -> Checkup:
    """The checkup of an analysed capture, one of this many ranks that were given; `program` are the rules
    about recordings."""
    a, facts = done.analysis, done.facts
    trace, capture = a.trace, a.trace.capture
    found = conclusions(done)
    faults = tuple(f for f in found.findings if judges_capture(f.code))
    findings = document.with_options(faults, done.serving, document.program_of(a))
    remedy = document.remedies(a, facts, done.serving)
    calls = trace.columns("api_calls", ("call", *(("callchain",) if trace.has("callchains") else ())))
    backtraces = "callchain" in calls and bool((calls["callchain"] != MISSING).any())
    gil, started = "host.gil_wait_ratio" in {n for n, _ in facts.facts}, Call.PROFILER in calls["call"]
    recording = recording_of(
        capture, trace.tables, gil_ranges=gil, backtraces=backtraces, profiler_calls=started
    )
    startup = facts.value("capture.startup_ms")
    about = Situation(
        causes=frozenset(f.cause for f in findings),
        serving=done.serving.name,
        version=done.serving.version,
        cuda=capture.cuda,
        startup_ms=float(startup) if isinstance(startup, int | float) else 0.0,
    )
    lacking = [n for n in found.not_evaluated if n.stopped_by is None]
    needs = _unmet_needs(lacking, remedy)
    asked_of = question_facts(facts, _recording(done, backtraces, ranks))
    asked = tuple(_questions(infer(asked_of, program, engine=done.inference.engine)))
    again = record_again(recording, needs, about)
    if capture.vendor != "NVIDIA":  # nsys records nothing of another vendor's GPUs
        again = Plan(command="", options=(), also=again.also)
        asked = tuple(q.replaced(remedy=None) if document.of_nsys(q.remedy or "") else q for q in asked)
    rules = len(done.inference.program.by_code)
    return Checkup(
        tool=Tool(version=__version__, engine=done.inference.engine),
        input=document.input_of(a, done.serving),
        steps=document.steps(a),
        sentence=_sentence(asked, findings, len(needs), rules),
        recorded=_recorded(capture, recording, {t: trace.rows(t) for t in sorted(trace.tables)}),
        questions=asked,
        findings=findings,
        rules=rules,
        blocked=_blocked(lacking, needs),
        plan=again,
    )


def _recording(done: Analysed, backtraces: bool, ranks: int) -> dict[str, Value | None]:
    """The facts of the group `recording`."""
    a, facts = done.analysis, done.facts
    phases = [p for p in sorted({s.phase for s in document.steps(a)}) if p in _PHASES]
    cuda = LOSSLESS if document.lost_work(facts) else OWNER if document.no_gpu_work(facts) else CUDA
    return {
        **{f"recording.has_{name}": name in a.trace.tables for name in _ASKED_TABLES},
        "recording.has_backtraces": backtraces,
        "recording.has_steps": bool(facts.value("capture.step_count")),
        "recording.step_method": a.steps.method if len(a.steps) else None,
        "recording.phases": ", ".join(phases) or None,
        "recording.ranks_given": ranks,
        "recording.world_size": a.trace.capture.world_size,
        "recording.cuda_remedy": cuda,
        "recording.kernel_remedy": NODES if document.hidden_graphs(facts) else cuda,
    }


def _recorded(capture: Capture, recording: Recording, rows: Mapping[str, int]) -> Recorded:
    """The file in numbers; `rows` by table."""
    hertz = f" at {capture.sample_hz:,.0f} Hz" if capture.sample_hz else ""
    sampled = {"samples": f"GPU metrics{hertz}", "host_samples": "CPU"}
    return Recorded(
        size_bytes=capture.size_bytes,
        schema_version=capture.schema_version,
        duration_ms=None if capture.duration_ns is None else capture.duration_ns / 1e6,
        command=recording.command,
        options=recording.options,
        options_known=recording.known,
        graph_trace=capture.graph_trace_mode,
        sampled=tuple(text for table, text in sampled.items() if table in rows),
        tables=dict(sorted(rows.items())),
    )


def _unmet_needs(entries: Sequence[NotEvaluated], remedy: Callable[[str], str | None]) -> list[UnmetNeed]:
    """Each rule that could not run, once, with what would supply all the facts that it misses."""
    by: dict[str, UnmetNeed] = {}
    for entry in entries:
        rule = Named(code=entry.code, cause=entry.cause)
        found = [remedy(name) for name in entry.missing]
        # As in the report: the size of the weights counts only if nothing else helps.
        needed = None if None in found or not found else combine(f for f in found if f)
        by.setdefault(entry.code, UnmetNeed(rule, needed))
    return list(by.values())


def _blocked(entries: Sequence[NotEvaluated], needs: Sequence[UnmetNeed]) -> tuple[Blocked, ...]:
    """Rules that cannot run, by what is missing, the most first; what nothing supplies comes last."""
    why: dict[str, list[str]] = {}
    for entry in entries:
        if entry.why:
            why.setdefault(entry.code, []).extend(entry.why.split("; "))
    groups: dict[str | None, list[Named]] = {}
    for need in needs:
        groups.setdefault(need.remedy, []).append(need.rule)
    found = [
        Blocked(
            remedy=remedy,
            rules=tuple(rules),
            why=tuple(dict.fromkeys(w for r in rules for w in why.get(r.code, ()))),
        )
        for remedy, rules in groups.items()
    ]
    return tuple(sorted(found, key=lambda b: (b.remedy is None, -len(b.rules), b.remedy or "")))


def _sentence(questions: Sequence[Question], found: Sequence[Finding], waiting: int, rules: int) -> str:
    """The capture in one sentence."""
    whole, partly = (sum(q.answer == answer for q in questions) for answer in ("yes", "partly"))
    heavy = next((f for f in found if f.severity in ("medium", "high") or f.invalidates), None)
    text = f"It answers {whole} of {len(questions)} questions"
    text += f" and {partly} in part" if partly else ""
    text += (
        f"; {waiting} of the {rules} rules about a capture cannot run on it."
        if waiting
        else "; every rule runs."
    )
    return f"{heavy.title}. {text}" if heavy else text


def question_facts(facts: FactBase, recording: Mapping[str, Value | None]) -> FactBase:
    """The facts that questions use: each fact of the trace at its largest over all scopes, since they ask
    about the capture as a whole, and how it was recorded (None: unknown)."""
    base, declared = FactBase(), facts_of("recording")
    for fact in facts:
        known = base.facts.get((fact.name, TRACE))
        if known is None or _larger(fact.value, known.value):
            base.facts[fact.name, TRACE] = Fact(fact.name, fact.value, fact.unit, TRACE)
    for name, value in recording.items():
        if value is not None:
            base.add(Fact(name, value, declared[name].unit, TRACE))
    return base


def _larger(value: Value, than: Value) -> bool:
    numbers = not isinstance(value, str) and not isinstance(than, str)
    return numbers and max(value, than) != than


def _questions(inference: Inference) -> Iterator[Question]:
    """Every question by code, with the answer of the first branch that holds, else of `otherwise`."""
    for outcome in inference.outcomes:
        spec = inference.program.by_code[outcome.code].spec
        if (answer := inference.answer(outcome)) is None:
            continue
        yield Question(
            id=spec.cause,
            question=spec.message,
            answer=answer.reply,
            reason=worded(inference, spec, answer.reason, TRACE),
            remedy=answer.remedy and worded(inference, spec, answer.remedy, TRACE),
        )


def plan(goal: str, command: Sequence[str] = (), **options: Any) -> CapturePlan:
    """The plan that `advisor capture GOAL -- COMMAND` prints; `options` are the fields of `PlanRequest`,
    which are those of the verb.

    Raises InputError for a goal, an engine or a place that is unknown, and for an unknown option.
    """
    known = [name for name in PlanRequest.__dataclass_fields__ if name not in ("goal", "command")]
    for name in options:
        if name not in known:
            raise invalid_choice("plan", name, known)
    words = tuple(command.split()) if isinstance(command, str) else tuple(command)
    return build(PlanRequest(goal=goal, command=words, **options))
