"""``advisor.doctor``: what a capture can and cannot answer, and how to record a better one;
and ``advisor.plan``, how to record one for a goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.capture import doctor as checks
from advisor.capture.goals import plan as build
from advisor.capture.options import recording_of
from advisor.capture.planner import Situation
from advisor.capture.planner import plan as record_again
from advisor.engine.compile import Program
from advisor.engine.infer import infer
from advisor.engine.load import builtin_dir
from advisor.errors import invalid_choice
from advisor.facts.needs import CUDA, LOSSLESS, NODES, OWNER
from advisor.facts.spec import ASKED_TABLES
from advisor.model.capture_plan import CapturePlan, Checkup, Plan
from advisor.model.facts import Value
from advisor.model.findings import Tool
from advisor.model.options import Options, PlanRequest
from advisor.model.rules import judges_capture
from advisor.pipeline import document
from advisor.pipeline.diagnose import Analysed, Progress, all_rules, analyse, conclusions, program_about
from advisor.sources.schema import MISSING, Call

_PHASES = ("prefill", "decode", "mixed")


def doctor(path: str | Path, options: Options | None = None, progress: Progress | None = None) -> Checkup:
    """Check one capture. Raises InputError for a capture that cannot be used."""
    chosen = options or Options()
    folders = (builtin_dir(), *chosen.rules)
    asking = all_rules(folders).about("recording")
    own = tuple(p for p in chosen.params if p.partition(".")[0].strip() in asking.by_code)
    program = program_about("recording", folders, own)
    others = replace(chosen, params=tuple(p for p in chosen.params if p not in own))
    with analyse(path, others, progress) as done:
        return checkup(done, program)


def checkup(done: Analysed, program: Program) -> Checkup:
    """The checkup of an analysed capture; `program` are the rules about recordings."""
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
        cuda=capture.cuda,
        startup_ms=float(startup) if isinstance(startup, int | float) else 0.0,
    )
    lacking = [n for n in found.not_evaluated if n.stopped_by is None]
    needs = checks.unmet_needs(lacking, remedy)
    asked_of = checks.question_facts(facts, _recording(done, backtraces))
    asked = tuple(checks.questions(infer(asked_of, program, engine=done.inference.engine)))
    again = record_again(recording, needs, about)
    if capture.vendor != "NVIDIA":  # nsys records nothing of another vendor's GPUs
        again = Plan(command="", options=(), also=again.also)
        asked = tuple(q.replaced(remedy=None) if document.of_nsys(q.remedy or "") else q for q in asked)
    rules = len(done.inference.program.by_code)
    return Checkup(
        tool=Tool(version=__version__, engine=done.inference.engine),
        input=document.input_of(a, done.serving),
        steps=document.steps(a),
        sentence=checks.sentence(asked, findings, len(needs), rules),
        recorded=checks.recorded(capture, recording, {t: trace.rows(t) for t in sorted(trace.tables)}),
        questions=asked,
        findings=findings,
        rules=rules,
        blocked=checks.blocked(lacking, needs),
        plan=again,
    )


def _recording(done: Analysed, backtraces: bool) -> dict[str, Value | None]:
    """The facts of the group `recording`."""
    a, facts = done.analysis, done.facts
    phases = [p for p in sorted({s.phase for s in document.steps(a)}) if p in _PHASES]
    cuda = LOSSLESS if document.lost_work(facts) else OWNER if document.no_gpu_work(facts) else CUDA
    return {
        **{f"recording.has_{name}": name in a.trace.tables for name in ASKED_TABLES},
        "recording.has_backtraces": backtraces,
        "recording.has_steps": bool(facts.value("capture.step_count")),
        "recording.step_method": a.steps.method if len(a.steps) else None,
        "recording.phases": ", ".join(phases) or None,
        "recording.world_size": a.trace.capture.world_size,
        "recording.cuda_remedy": cuda,
        "recording.kernel_remedy": NODES if document.hidden_graphs(facts) else cuda,
    }


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
