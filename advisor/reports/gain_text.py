"""Estimates as text: the top fixes together, the answer to a what-if, the ranking's arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.model.explanation import WhatIfReport
from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import HELD_FACTOR, Combined, CombinedStep, Span, saved_terms
from advisor.model.numbers import milliseconds, times, value_text
from advisor.reports.blocks import Block, Gap, Grid, Heading, Item, Labelled, Paragraph, Title

#: A fix that wins less than this share of the step has nothing left to win.
_NOTHING = 0.0005


def params_text(params: Mapping[str, Any]) -> str:
    """``:n=8``, as `--fix` takes it."""
    return "".join(f":{k}={v}" for k, v in sorted(params.items()))


def span_text(span: Span) -> str:
    """Milliseconds: ``3.45 (3.25 to 3.83)``."""
    low, high = milliseconds(span.low), milliseconds(span.high)
    return milliseconds(span.mid) + ("" if low == high else f" ({low} to {high})")


def times_text(span: Span) -> str:
    """``4.23 x (2.47 to 6.09)``."""
    low, high = times(span.low), times(span.high)
    return f"{times(span.mid)} x" + ("" if low == high else f" ({low} to {high})")


def combined(diagnosis: Diagnosis) -> Iterator[Block]:
    """What the top fixes win one after the other; nothing is counted twice."""
    found = diagnosis.combined
    if found is None:
        return
    yield Heading("Fixes together", "in this order, nothing counted twice; ms a step")
    yield from _steps(found.steps, found.step_before_ms.mid)
    yield from _sum(found)
    for text in found.assumptions:
        yield Labelled("assumes", text)


def _steps(steps: Sequence[CombinedStep], first: float) -> Iterator[Block]:
    rows: list[tuple[str, ...]] = [("now", milliseconds(first), "", "", "")]
    notes = []
    for step in steps:
        name = f"{step.code or ''} {step.what_if}{params_text(step.params)}".strip()
        after, won = milliseconds(step.step_after_ms), milliseconds(step.marginal_ms)
        rows.append((name, after, won, value_text(step.marginal_share, "ratio"), times(step.speedup)))
        if step.note:
            notes.append(f"{name}: {step.note}")
        elif step.measure == "latency" and abs(step.marginal_share) < _NOTHING:
            left = "wins nothing here" if step is steps[0] else "nothing left to win after those before it"
            notes.append(f"{name}: {left}")
    yield Grid(("", "step ms", "wins ms", "of step", "so far x"), tuple(rows))
    for note in notes:
        yield Labelled("", note)


def _sum(found: Combined | WhatIfReport) -> Iterator[Block]:
    before, after = milliseconds(found.step_before_ms.mid), span_text(found.step_after_ms)
    yield Labelled("together", f"step {before} → {after} ms, {times_text(found.speedup)}")
    yield Labelled(
        "bound",
        f"the GPU alone needs {span_text(found.bound_ms)} ms a step then; no faster host wins more "
        f"than {times_text(found.bound_speedup)} (Amdahl)",
    )


def whatif(report: WhatIfReport) -> Iterator[Block]:
    """The answer of `advisor whatif`."""
    yield Title(report.input.path)
    replay = report.replay
    yield Labelled(
        "replayed",
        f"{replay.steps} of {replay.of_steps} steps, {milliseconds(replay.replayed_ms)} ms a step "
        f"(captured {milliseconds(replay.captured_ms)} ms, error {replay.error:+.2%})",
    )
    yield Labelled("untraced", f"{span_text(report.step_before_ms)} ms a step, without the profiler's part")
    yield Gap()
    yield from _steps(report.fixes, report.step_before_ms.mid)
    yield Gap()
    yield from _sum(report)
    if report.measure == "throughput":
        yield Labelled("measure", "throughput: the speed-up counts tokens a second, not step time")
    yield Gap()
    for text in report.assumptions:
        yield Labelled("assumes", text)


def ranking(diagnosis: Diagnosis) -> Iterator[Block]:
    """How each finding got its place."""
    yield Heading("Ranking", "share of the step saved x confidence = score")
    for finding in diagnosis.findings:
        yield Item(ranking_text(finding), sign=str(finding.rank))
    yield Paragraph(
        "Findings that invalidate the capture come first, by share; then by severity (high from "
        "20 % of the step saved, medium 10, low 3; medium at most without an estimate), in it "
        "latency before throughput, faults before limits, then by score."
    )


def ranking_text(finding: Finding) -> str:
    """``LCH101 launch-bound: (9.007 - 2.130) / 9.007 = 0.7635 x 0.8390 = 0.6406``."""
    terms = finding.ranking
    if terms is None:
        return f"{finding.code} {finding.cause}: score {finding.score:.4f}"
    share = f"{terms.share:.4f}"
    gain = finding.gain
    if terms.share_from == "gain" and gain is not None and gain.speedup is not None:
        ends = [f"{saved:.4f}" for saved in saved_terms(gain.speedup)]
        why = f"1 - 1 / {gain.speedup.mid:.3f}" if len(ends) == 1 else f"mean of {' and '.join(ends)}"
        why += f" = {share}"
        why += " (throughput)" if terms.throughput else ""
    else:
        why = f"share {share} (held)"
        if terms.saved is None and terms.levels is None:
            why += f" x {HELD_FACTOR} (no estimate)"
    place = {0: ", invalidates the capture", 2: ", capped at info"}.get(terms.tier, "")
    head = f"{finding.severity} {finding.code} {finding.cause}"
    return f"{head}: {why} x {terms.confidence:.4f} = {terms.score:.4f}{place}"
