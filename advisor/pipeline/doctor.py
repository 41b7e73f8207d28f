"""``advisor.doctor``: what a capture can and cannot answer, and how to record a better one."""

from __future__ import annotations

from pathlib import Path

from advisor import __version__
from advisor.capture import doctor as checks
from advisor.capture.planner import Situation, plan
from advisor.capture.questions import Seen, questions
from advisor.capture.recording import recording_of
from advisor.metrics.analysis import Analysis
from advisor.model.checkup import Checkup
from advisor.model.findings import Tool
from advisor.pipeline import document
from advisor.pipeline.diagnose import Analysed, Options, Progress, analyse, conclusions
from advisor.sources.schema import MISSING, Call


def doctor(
    path: str | Path, options: Options | None = None, progress: Progress | None = None
) -> Checkup:
    """Check one capture. Raises InputError for a capture that cannot be used."""
    with analyse(path, options, progress) as done:
        return checkup(done)


def checkup(done: Analysed) -> Checkup:
    """The checkup of an analysed capture."""
    a, facts = done.analysis, done.facts
    trace, capture = a.trace, a.trace.capture
    found = conclusions(done)
    faults = checks.about_capture(found.findings)
    findings = document.with_options(faults, done.serving, a.workload)
    remedy = document.remedies(a, facts, done.serving)
    backtraces = _backtraces(a)
    recording = recording_of(
        capture,
        trace.tables,
        gil_ranges=any(name == "host.gil_wait_ratio" for name, _ in facts.facts),
        backtraces=backtraces,
        profiler_calls=_profiler_calls(a),
    )
    startup = facts.value("capture.startup_ms")
    about = Situation(
        causes=frozenset(f.cause for f in findings),
        serving=done.serving.name,
        cuda=capture.cuda,
        startup_ms=float(startup) if isinstance(startup, int | float) else 0.0,
    )
    needs = checks.unmet_needs(found.not_evaluated, remedy)
    seen = Seen(
        facts,
        trace.tables,
        step_method=a.steps.method if len(a.steps) else None,
        phases=tuple(sorted({s.phase for s in document.steps(a)})),
        world_size=capture.world_size,
        backtraces=backtraces,
        no_gpu_work=document.no_gpu_work(facts),
    )
    asked = tuple(questions(seen))
    rules = len(done.inference.program.by_code)
    return Checkup(
        tool=Tool(version=__version__, engine=done.inference.engine),
        input=document.input_of(a, done.serving),
        sentence=checks.sentence(asked, findings, len(needs), rules),
        recorded=checks.recorded(
            capture, recording, {t: trace.rows(t) for t in sorted(trace.tables)}
        ),
        questions=asked,
        findings=findings,
        rules=rules,
        blocked=checks.blocked(found.not_evaluated, needs),
        plan=plan(recording, needs, about),
    )


def _backtraces(a: Analysis) -> bool:
    """True where CUDA calls carry backtraces."""
    if not (a.trace.has("api_calls") and a.trace.has("callchains")):
        return False
    return bool((a.trace.columns("api_calls", ("callchain",))["callchain"] != MISSING).any())


def _profiler_calls(a: Analysis) -> bool:
    """True where the program switches the profiler on and off itself."""
    if not a.trace.has("api_calls"):
        return False
    return bool((a.trace.columns("api_calls", ("call",))["call"] == Call.PROFILER).any())
