"""One finding: its words, and all of it as blocks; estimates of fixes, and the ranking's arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from advisor.model.explanation import WhatIfReport
from advisor.model.facts import Interval, Table
from advisor.model.findings import Diagnosis, Finding, Gain, Option, Verify
from advisor.model.gain import (
    HELD_FACTOR,
    PERHAPS_HALF,
    Combined,
    CombinedStep,
    Span,
    Timed,
    may_be_half,
    whole,
)
from advisor.model.numbers import (
    CHANGES,
    certainty,
    condition_parts,
    difference,
    fact_unit,
    milliseconds,
    percent,
    session_time,
    times,
    value_text,
)
from advisor.reports import blocks as b
from advisor.reports.budget_bar import words


class Detail(Struct, frozen=True):
    """How much detail; None: all. `why`: conditions that do not hold, too, and parameters of thresholds."""

    findings: int | None = None
    rows: int | None = None
    tables: int | None = None
    places: int | None = None
    why: bool = True
    table: int | None = None
    lists: bool = True


#: One finding on a page: enough to act on it.
SHOWN = Detail(rows=8, places=3, why=False)
#: One of all findings with -v, or one by itself with it: with -vv all of it.
IN_FULL = Detail(rows=10, places=5)
#: Tables, options and places that are printed already -> rank of the finding with them.
Shown = dict[Any, int]


def finding(found: Finding, has_steps: bool, detail: Detail, shown: Shown, clock: str = "") -> b.Entry:
    """The whole finding, without parts that an earlier finding in `shown` has printed."""
    sure = certainty(found.confidence)
    where = ", ".join(t for t in (found.scope.label(), sure) if t)
    level = "limit" if found.kind == "limit" else found.severity
    name = f"{found.code} {found.cause}"
    parts = tuple(_parts(found, has_steps, detail, shown, clock))
    cost = cost_text(found, has_steps).partition(" (")[0]
    return b.Entry(found.rank, level, name, where, found.changed or found.baseline or "", parts, cost)


def _parts(found: Finding, has_steps: bool, detail: Detail, shown: Shown, clock: str) -> Iterator[b.Block]:
    yield b.Paragraph(found.title, strong=True, dense=True)
    yield b.Paragraph(found.message, dense=True)
    yield from _conditions(found, detail)
    yield from b.labelled(("cost", cost_text(found, has_steps)))
    if found.gain is not None:
        why_more = found.gain.why_more and f"more than its share: {found.gain.why_more}"
        assumed = "; ".join(found.gain.assumptions)
        yield from b.labelled(
            ("gain", gain_text(found.gain)), ("", why_more), ("saves", _saves(found)), ("assumes", assumed)
        )
    for table in found.evidence[: detail.tables] if detail.rows != 0 else ():
        before = shown.setdefault(table, found.rank)
        if before != found.rank:
            yield b.Labelled("evidence", f"{table.title}: as in {before}")
        elif table.rows:
            yield grid(table, detail.rows)
    if found.time_ranges and detail.places != 0:
        before = shown.setdefault(found.time_ranges, found.rank)
        if before == found.rank:
            ranges = found.time_ranges[: detail.places]
            more = len(found.time_ranges) - len(ranges)
            yield b.Places(tuple(map(place_text, ranges)), ranges, more, clock)
        else:
            yield b.Labelled("where", f"as in {before}")
    for advice in found.recommendations:
        text = f"{advice.action.rstrip('.')} ({', '.join(_notes(advice.effort, advice.gain))})"
        verify = verify_text(advice.verify) if advice.verify is not None else ""
        yield b.Do(text, *_option_lines(advice.options, found.rank, shown), verify)
    known = {advice.id for advice in found.recommendations}
    for other in found.alternatives:
        if (other.gain is None or other.gain.speedup is None) and other.action in known:
            continue
        text = f"{other.text.rstrip('.')} ({', '.join(_notes(other.effort, other.gain))})"
        yield b.Do(text, *_option_lines(other.options, found.rank, shown), label="or")
    explains = dict.fromkeys(f"{s.code} {s.cause}" for s in found.explains)
    yield from b.labelled(("explains", ", ".join(explains)))
    for i, r in enumerate(r for r in found.references if r.url):  # what a reader can open
        yield b.Labelled("" if i else "see", r.title or r.id, r.url or "")


def _notes(effort: str, gain: Gain | None) -> list[str]:
    """What a fix gains by itself, where that is estimated, and its effort."""
    notes = [f"effort {effort}"]
    if gain is not None and gain.speedup is not None:
        won = up_to(gain) if gain.measure == "throughput" else times_text(gain.speedup)
        notes.insert(0, f"{won} by what-if {gain.what_if}{params_text(gain.params)}")
    return notes


def _saves(found: Finding) -> str:
    """What the fix saves behind others, where that is not what it saves alone."""
    gain, ranking = found.gain, found.ranking
    if found.only_part:
        return f"no time of its own: it lies in that of {found.part_of}"
    if gain is None or gain.speedup is None or ranking is None or ranking.saved is None:
        return ""
    if gain.after_first is None:
        return ""
    if gain.part_of is not None:
        return f"{percent(gain.after_first)} of the {gain.of} once {gain.part_of} is fixed, as a part of it"
    return f"{percent(gain.after_first)} of the {gain.of} once the others are fixed"


def _conditions(found: Finding, detail: Detail) -> Iterator[b.Block]:
    rows: list[tuple[str, ...]] = []
    for c in found.conditions:
        if not (detail.why or c.holds or (c.holds is None and c.value is not None)):
            continue
        value, op, limit = condition_parts(c)
        kind, _, name = c.fact.partition(":")
        sign = {True: "yes", False: "no", None: "unknown"}[c.holds]
        fact, limit = (f"{kind} {name}", "") if name else (c.fact, f"{op} {limit}")
        rows.append((fact, value, limit, sign, c.param or "") if detail.why else (fact, value, limit))
    heads = ("because", "value", "threshold", "holds", "param")
    if rows:
        yield b.Grid(heads[: len(rows[0])], tuple(rows))


def cost_text(found: Finding, has_steps: bool) -> str:
    """``84.2 % of the step (launch call + launch latency, 10.7 ms of the traced step)``; empty if it has
    none. Costs are of the step (or window) as captured, gains start from the one without the profiler."""
    impact = found.impact
    if impact is None or impact.share is None:
        return ""
    of = impact.of(has_steps)
    parts = (impact.part,) if impact.parts is None else impact.parts
    notes = [" + ".join(map(words, parts))] if parts and of != "capture" else []
    if impact.ms is not None:
        whose = "" if of == "capture" else f" of the traced {whole(has_steps)}"
        notes.append(value_text(impact.ms, "ms") + whose)
    share = f"{value_text(impact.share, 'ratio')} of the {of}"
    return f"{share} ({', '.join(notes)})" if notes else share


def gain_text(gain: Gain) -> str:
    """The estimate with its range, or why there is none; empty if neither is known."""
    if gain.speedup is None and gain.step_after_ms is None:
        return f"not estimated: {gain.reason}" if gain.reason else ""
    by = f" by what-if {gain.what_if}{params_text(gain.params)}" if gain.what_if else ""
    step = ""
    if gain.step_before_ms is not None and gain.step_after_ms is not None:
        step = f"untraced {gain.of} {span_text(gain.step_before_ms)} → {span_text(gain.step_after_ms)} ms"
    if gain.speedup is None:
        return step + by
    if gain.measure == "throughput":
        return f"{up_to(gain)}{by}, if requests wait and memory holds them"
    speedup = times_text(gain.speedup)
    text = ", ".join(part for part in (step, speedup) if part) + by
    if (joint := gain.joint) is not None:  # the causes hold each other: alone it gains less
        before, after = milliseconds(joint.step_before_ms.mid), span_text(joint.step_after_ms)
        text += f"; fixes of {' and '.join(joint.codes)} together: untraced {gain.of} {before} → {after} ms"
        text += f", {times_text(joint.speedup)}"
    return text


def grid(table: Table, rows: int | None = None, item: str = "") -> b.Grid:
    """A table of the document, at most `rows` of its rows."""
    filled = table.filled()
    kept, more = b.first(filled.rows, rows)
    return b.Grid(filled.columns, kept, more, title=table.title, item=item, wrapped=True)


def place_text(where: Interval) -> str:
    """``1.234567s for 124 us, stream 7, thread 41873: label``, as in the viewer."""
    text = f"{session_time(where.start_ns)} for {value_text(where.end_ns - where.start_ns, 'ns')}"
    for name in ("stream", "thread"):
        if (number := getattr(where, name)) is not None:
            text += f", {name} {number}"
    return f"{text}: {where.label}" if where.label else text


def _option_lines(
    options: Sequence[Option], rank: int, shown: Shown
) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """The lines, or a reference to the finding that has printed them."""
    before = shown.setdefault(options, rank) if options else rank
    if before != rank:
        return (), f"options: as in {before}"
    # Lines of the engine "any" suit all of them and are commands of their own.
    names = ("" if o.engine == "any" else o.engine for o in options)
    lines = ((n, o.line, f"since {o.since}" if o.since else "") for n, o in zip(names, options, strict=True))
    return tuple(lines), ""


def verify_text(verify: Verify) -> str:
    """The number that must move, and from where: ``launch.idle_ratio falls, now 52.3 %``."""
    change = CHANGES[verify.expect]
    now = "" if verify.now is None else f", now {value_text(verify.now, fact_unit(verify.fact, verify.unit))}"
    return f"{verify.fact} {change}{now}"


#: A fix that gains less than this share of the step has nothing left to gain.
_NOTHING = 0.0005


def params_text(params: Mapping[str, Any]) -> str:
    """``:n=8``, as `--fix` takes it."""
    return "".join(f":{k}={v}" for k, v in sorted(params.items()))


def span_text(span: Span) -> str:
    """Milliseconds: ``3.45 (3.25 to 3.83)``."""
    low, high = milliseconds(span.low), milliseconds(span.high)
    return milliseconds(span.mid) + ("" if low == high else f" ({low} to {high})")


def up_to(gain: Gain) -> str:
    """What more work in a step wins at most: it counts tokens a second, and the step gets longer."""
    assert gain.speedup is not None
    speedup = gain.speedup
    low = "" if speedup.low == speedup.mid else f" ({times(speedup.low)} in the pessimistic estimate)"
    return f"up to {times(speedup.mid)} x {gain.per}s/s{low}"


def times_text(span: Span) -> str:
    """``4.23 x (2.47 to 6.09)``."""
    low, high = times(span.low), times(span.high)
    return f"{times(span.mid)} x" + ("" if low == high else f" ({low} to {high})")


def combined(diagnosis: Diagnosis) -> Iterator[b.Block]:
    """The gains of the top fixes one after the other; nothing is counted twice."""
    found = diagnosis.combined
    if found is None:
        return
    note = f"in this order, nothing counted twice; ms of the untraced {found.of}"
    yield b.Heading("Fixes together", note)
    yield from _steps(found.steps, found.step_before_ms.mid, found.of)
    yield from _sum(found)
    yield from (b.Labelled("assumes", text) for text in found.assumptions)


def _steps(steps: Sequence[CombinedStep], first: float, of: Timed) -> Iterator[b.Block]:
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
    yield b.Grid(("", f"{of} ms", "wins ms", f"of {of}", "so far x"), tuple(rows))
    yield from (b.Labelled("", note) for note in notes)


def _sum(found: Combined | WhatIfReport) -> Iterator[b.Block]:
    before, after = milliseconds(found.step_before_ms.mid), span_text(found.step_after_ms)
    yield b.Labelled("together", f"{found.of} {before} → {after} ms, {times_text(found.speedup)}")
    alone, most = span_text(found.bound_ms), times_text(found.bound_speedup)
    text = f"the GPU alone needs {alone} ms a {found.of} then; no faster host wins more than {most} (Amdahl)"
    yield b.Labelled("bound", text)


def whatif(report: WhatIfReport) -> Iterator[b.Block]:
    """The answer of `advisor whatif`."""
    yield b.Title(report.input.path)
    if report.of_job:
        yield b.Labelled("job", report.of_job)
    replay = report.replay
    text = f"{replay.steps} of {replay.of_steps} steps, {milliseconds(replay.replayed_ms)} ms a {report.of}"
    text += f" (captured {milliseconds(replay.captured_ms)} ms, error {difference(100 * replay.error, 2)} %)"
    yield b.Labelled("replayed", text)
    untraced = f"{span_text(report.step_before_ms)} ms a {report.of}, without the profiler's part"
    yield b.Labelled("untraced", untraced)
    yield b.Gap()
    yield from _steps(report.fixes, report.step_before_ms.mid, report.of)
    yield b.Gap()
    yield from _sum(report)
    if report.measure == "throughput":
        yield b.Labelled("measure", "throughput: the speed-up counts tokens a second, not step time")
    yield b.Gap()
    yield from (b.Labelled("assumes", text) for text in report.assumptions)


def ranking(diagnosis: Diagnosis) -> Iterator[b.Block]:
    """The arithmetic behind the rank of each finding."""
    yield b.Heading("Ranking", "share of the step saved x confidence = score")
    for finding in diagnosis.findings:
        yield b.Item(ranking_text(finding), sign=str(finding.rank))
    yield b.Paragraph(
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
    if gain is not None and gain.after_first is not None:
        behind = gain.part_of or " and ".join(gain.joint.codes if gain.joint is not None else ())
        why = f"saved once {behind} {'is' if gain.part_of else 'are'} fixed = {share}"
    elif terms.share_from == "gain" and gain is not None and gain.speedup is not None:
        why = f"1 - 1 / {gain.speedup.mid:.3f} = {share}" + (" (throughput)" if terms.throughput else "")
    else:
        why = f"share {share} (held)"
        if terms.saved is None and terms.levels is None:
            why += f" x {HELD_FACTOR} (no estimate)"
    if finding.only_part:
        why = f"share {share} (its time lies in that of {finding.part_of}) x {HELD_FACTOR} (no estimate)"
    place = {0: ", invalidates the capture", 2: ", capped at info"}.get(terms.tier, "")
    if terms.tier == 1 and gain is not None and gain.speedup is not None and may_be_half(gain.speedup):
        place = f", of which {PERHAPS_HALF} counts: the low end saves less than half of the middle"
    if terms.behind is not None:
        place += f", at most {finding.severity} behind {terms.behind}"
    elif terms.aside:
        place += ", medium at most, and behind all others: the analysis has set it aside"
    elif terms.cap in ("low", "medium") and finding.severity == terms.cap:
        place += f", at most {terms.cap} by its rule"
    head = f"{finding.severity} {finding.code} {finding.cause}"
    return f"{head}: {why} x {terms.confidence:.4f} = {terms.score:.4f}{place}"
