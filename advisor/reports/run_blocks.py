"""Runs as blocks: one with its diagnoses, a list, a run repeated after a change, and kept promises."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.findings import Span
from advisor.model.numbers import amount, digits, milliseconds, signed, value_text
from advisor.model.run import Again, Promise, Run, RunList, RunReport, Scores, ending, timed
from advisor.reports import compare_blocks
from advisor.reports.blocks import Block, Gap, Grid, Heading, Labelled, Next, Paragraph, Title, labelled
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.diagnosis_blocks import report as diagnosis_report

#: Letters of a commit that are shown.
_COMMIT = 8


def again(doc: Again, verbosity: int = 0) -> Iterator[Block]:
    """Did the promise hold, what moved, what is next; the whole comparison with more verbosity."""
    yield Title(f"{doc.name} against {doc.against}")
    for promise in doc.promises:
        yield Labelled("promise", f"{promise.cause}: {kept(promise)}")
    if not doc.promises:
        yield Labelled("promise", f"no fix that {doc.against} asks for shows in {doc.name}")
    if (step := doc.measured) is not None:
        change = (
            f"{milliseconds(step.before_ms)} to {milliseconds(step.after_ms)} ms, {signed(step.change)} %"
        )
        yield Labelled("measured", f"the step without the profiler, {change}")
    if verbosity < 0:
        yield Paragraph(doc.comparison.summary)
        return
    yield Heading("What moved")
    if verbosity > 0:
        yield from compare_blocks.comparison(doc.comparison, verbosity)
    else:
        yield Paragraph(doc.comparison.summary, dense=True)
        yield from labelled(*(("note", note) for note in doc.comparison.notes))
    yield Heading("What is next")
    yield Paragraph(doc.next, dense=True)
    yield Heading("All runs")
    yield _table(doc.history)
    yield Next(f"advisor runs show {doc.name}")


def kept(promise: Promise) -> str:
    """``promised 2.13 ms (1.91 to 2.36) a step, measured 2.19 ms: kept``"""
    promised, measured = promise.promised_ms, promise.measured_ms
    return f"promised {_span(promised)} a step, measured {_span(measured)}: {promise.outcome}"


def _span(span: Span) -> str:
    low, mid, high = (milliseconds(v) for v in (span.low, span.mid, span.high))
    return f"{mid} ms" if low == high else f"{mid} ms ({low} to {high})"


def listed(doc: RunList) -> Iterator[Block]:
    """One row a run."""
    if doc.runs:
        yield _table(doc.runs)
        for run in doc.runs:
            yield from labelled((run.name, run.verdict or "; ".join(run.notes) or run.state))
    yield Gap()
    yield Paragraph(f"{amount(len(doc.runs), 'run')} in {doc.folder}")


def _table(runs: tuple[Run, ...]) -> Grid:
    """When, what, the step of the phase with most steps, else the one timed without the profiler, its change,
    and what became of promises."""
    rows, before = [], None
    for run in runs:
        step = timed(run)
        change = "-"
        if step is not None and before is not None and before.phase == step.phase and before.ms:
            change = f"{signed(step.ms / before.ms - 1)} %"
        before = step or before
        ms = "-" if step is None else milliseconds(step.ms)
        held = ", ".join(f"{p.cause} {p.outcome}" for p in run.promises)
        rows.append((run.name, run.begun[:16].replace("T", " "), _commit(run), ms, change, held or "-"))
    return Grid(("run", "begun (UTC)", "commit", "step:ms", "change", "promises"), tuple(rows))


def _commit(run: Run) -> str:
    return "-" if run.commit is None else f"{run.commit[:_COMMIT]}{' +' if run.dirty else ''}"


def shown(doc: RunReport, verbosity: int = 0, width: int = 80) -> Iterator[Block]:
    """What was recorded, how, and what it says."""
    run = doc.run
    yield Title(run.name)
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    ended = "ended by the recording" if run.exit_code is None else ending(run.exit_code)
    size = value_text(run.bytes, "bytes")
    yield from labelled(
        ("begun", f"{run.begun} (commit {_commit(run)})" if run.commit else run.begun),
        ("command", " ".join(run.command)),
        ("goal", f"{run.goal}, {run.serving_engine} engine"),
        ("options", " ".join(run.options)),
        ("with", versions),
        ("ended", f"{ended} after {run.seconds:.1f} s, {size}" if run.seconds is not None else run.state),
        ("stopped", run.stopped),
        *((f"pass {n}", f"added {' '.join(each.added)}") for n, each in enumerate(run.passes, 2)),
        *(("note", note) for note in run.notes),
        *(("promise", f"{p.cause}: {kept(p)}, against {run.against}") for p in run.promises),
    )
    if doc.diagnoses:
        yield Gap()
        yield from diagnosis_report(doc.diagnoses, TextOptions(verbosity=verbosity)).blocks(width)


def scored(doc: Scores) -> Iterator[Block]:
    """Promises by what-if: kept, missed, and how far the steps were from what was promised."""
    if not doc.scores:
        yield Paragraph("No promise was put to the test yet: advisor run --again after a fix.")
        return
    rows = tuple((s.what_if, s.kept, s.missed, f"{digits(s.ratio)} x") for s in doc.scores)
    yield Grid(("what-if", "kept", "missed", "measured / promised"), rows)
