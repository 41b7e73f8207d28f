"""Before against after, as blocks: verdict, steps, where the time went, what else changed."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model import comparison as m
from advisor.model.facts import Cell
from advisor.model.findings import Finding, NotEvaluated, Span
from advisor.model.numbers import (
    CHANGES,
    amount,
    digits,
    fact_unit,
    megahertz,
    milliseconds,
    percent,
    signed,
    times,
    value_text,
)
from advisor.reports import phrases
from advisor.reports.blocks import Block, Grid, Heading, Labelled, Paragraph, first
from advisor.reports.budget_bar import words
from advisor.reports.layout import GLUE

ROWS = 8
#: Parts and operations that changed by less than this share of the step are left to -v.
WORTH = 0.005


def comparison(doc: m.Comparison, verbosity: int = 0) -> Iterator[Block]:
    """The whole report; with less verbosity only the verdict, with more every row."""
    if verbosity < 0:
        yield Paragraph(doc.summary)
        return
    yield from sides(("before", doc.before), ("after", doc.after), verbosity=verbosity)
    yield Paragraph(doc.summary, strong=True)
    for note in doc.notes:
        yield Labelled("note", note)
    yield from comparable(doc.comparability, verbosity)
    limit = None if verbosity > 0 else ROWS
    yield from _phases(doc.phases)
    if doc.verdict == "not-comparable" and verbosity <= 0:
        yield Labelled("", "Budget, operations, calls and findings of both sides: -v")
        yield from advice(doc.findings, verbosity)
        yield from unknown(doc.not_evaluated)
        return
    yield from budget(doc.budget, verbosity)
    yield from _operations(doc.operations, doc, limit)
    yield from _calls(doc, limit)
    yield from _findings(doc.changes, verbosity)
    yield from _checks(doc.checks, doc.gains, verbosity)
    yield from advice(doc.findings, verbosity, doc.contributions)
    yield from unknown(doc.not_evaluated)


def sides(*named: tuple[str, m.SideDoc], verbosity: int = 0) -> Iterator[Block]:
    """Which captures stand on each side, and what made them."""
    for name, side in named:
        shown = side.inputs if verbosity > 0 else side.inputs[:4]
        paths = ", ".join(i.path for i in shown)
        if len(shown) < len(side.inputs):
            paths += f" and {len(side.inputs) - len(shown)} more"
        yield Labelled(name, paths)
        entry = side.inputs[0]
        about = [
            entry.device,
            (entry.producer or "").replace("NVIDIA Nsight Systems", "nsys"),
            f"driver {entry.driver}" if entry.driver else None,
            f"CUDA {entry.cuda}" if entry.cuda else None,
            entry.serving_engine,
            f"{entry.steps} steps" if entry.steps else "no steps",
            f"GPU busy {value_text(entry.busy_share, 'ratio')}" if entry.busy_share is not None else None,
        ]
        yield Labelled("", f"{GLUE}· ".join(part for part in about if part))


def comparable(doc: m.Comparability, verbosity: int = 0) -> Iterator[Block]:
    """How far the sides may be compared, and why not further."""
    rows = [r for r in doc.reasons if r.state == "differs" and r.text]
    yield Heading("Comparability", percent(doc.score))
    for reason in rows:
        yield Labelled("differs", reason.text)
    for state in ("same", "unknown"):
        checks = dict.fromkeys(r.check for r in doc.reasons if r.state == state)
        if checks and verbosity <= 0:
            yield Labelled(state, ", ".join(checks))
    if verbosity > 0:
        table = tuple(
            (
                r.check,
                r.phase or "",
                r.state,
                _cell(r.before, r.check),
                _cell(r.after, r.check),
                f"{r.score:.2f}",
            )
            for r in doc.reasons
        )
        yield Grid(("check", "phase", "state", "before", "after", "factor"), table)


def _cell(value: Cell, check: str) -> Cell:
    if check == "clock" and isinstance(value, int | float):
        return megahertz(value)
    return value_text(value) if isinstance(value, int | float) else value


def _phases(phases: tuple[m.PhaseChange, ...]) -> Iterator[Block]:
    """The typical and the mean step of each phase, with the interval of the change."""
    yield Heading("Steps", "typical: the median ratio over all pairs of steps")
    rows: list[tuple[Cell, ...]] = []
    for p in phases:
        old, new = p.before, p.after
        count = _count(0 if old is None else old.steps, 0 if new is None else new.steps)
        for name, value in (("typical", p.typical), ("mean", p.mean)):
            first = name == "typical"
            rows.append(
                (
                    p.phase if first else "",
                    count if first else "",
                    name,
                    _time(old, first),
                    _time(new, first),
                    "-" if value is None else f"{signed(value.mid)} %",
                    "-" if value is None else f"{signed(value.low)} to {signed(value.high)} %",
                )
            )
    heads = ("phase", "steps", "", "before ms", "after ms", "change", "98 % interval")
    yield Grid(heads, tuple(rows))
    for p in phases if len(phases) > 1 else ():
        why = p.why.partition("; ")[0]
        yield Labelled(p.phase, f"{p.verdict}{f': {why}' if why else ''}")


def _count(before: int, after: int) -> str:
    return str(before) if before == after else f"{before}, {after}"


def _time(times: m.StepTimes | None, median: bool) -> str:
    if times is None:
        return "-"
    return milliseconds(times.median_ms if median else times.mean_ms)


def span(value: Span | None) -> str:
    """``-83.7 % (-86.6, -80.2)``"""
    if value is None:
        return "unknown"
    return f"{signed(value.mid)} % ({signed(value.low)}, {signed(value.high)})"


def change(before: float, after: float) -> str:
    """A relative change, or that something came or went."""
    if before <= 0 or after <= 0:
        return "" if before <= 0 and after <= 0 else "new" if before <= 0 else "gone"
    if after >= 10 * before:
        return f"{digits(after / before)} x"
    return f"{signed(after / before - 1)} %"


def budget(
    parts: tuple[m.PartChange, ...], verbosity: int = 0, names: tuple[str, str] = ("before", "after")
) -> Iterator[Block]:
    """Part by part; the last row is the sum, which is the mean step."""
    for phase in dict.fromkeys(p.phase for p in parts):
        if phase is not None and verbosity <= 0:
            continue
        rows = [p for p in parts if p.phase == phase]
        whole = sum(p.before_ms for p in rows), sum(p.after_ms for p in rows)
        least = 0.0 if verbosity > 0 else WORTH * max(whole)
        shown = [p for p in rows if max(p.before_ms, p.after_ms) >= least]
        shown.sort(key=lambda p: -abs(p.change_ms))
        title = "Budget" if phase is None else f"Budget of {phase}"
        yield Heading(title, "milliseconds a step, mean over steps and devices")
        table: list[tuple[Cell, ...]] = [
            (
                words(p.part),
                milliseconds(p.before_ms),
                milliseconds(p.after_ms),
                f"{p.change_ms:+,.2f}",
                change(p.before_ms, p.after_ms),
            )
            for p in shown
        ]
        table.append(
            (
                "all",
                milliseconds(whole[0]),
                milliseconds(whole[1]),
                f"{whole[1] - whole[0]:+,.2f}",
                change(*whole),
            )
        )
        yield Grid(("part", *names, "change", ""), tuple(table))


def _operations(
    operations: tuple[m.OperationChange, ...], doc: m.Comparison, limit: int | None
) -> Iterator[Block]:
    if not operations:
        return
    trifle = WORTH * sum(p.before_ms for p in doc.budget if p.phase is None)
    moved = tuple(o for o in operations if limit is None or _has_moved(o, trifle))
    yield Heading("Operations", "kernels matched by what they do, a step")
    if not moved:
        yield Labelled("", f"None of {len(operations)} moved by {100 * WORTH:g} % of the step or more.")
        return
    several = len(doc.phases) > 1
    rows = [
        (
            o.operation,
            *((o.phase,) if several else ()),
            o.status,
            _calls_text(o),
            milliseconds(o.before_ms),
            milliseconds(o.after_ms),
            f"{o.change_ms:+,.3f}",
        )
        for o in moved
    ]
    kept, more = first(rows, limit)
    heads = ("operation", *(("phase",) if several else ()), "", "calls", "before ms", "after ms", "change")
    yield Grid(heads, kept, more)
    for o in moved[:3]:
        if o.kernels_before[:1] != o.kernels_after[:1] and o.kernels_before and o.kernels_after:
            yield Labelled("kernel", f"{o.operation}: {o.kernels_before[0]} became {o.kernels_after[0]}")


def _has_moved(o: m.OperationChange, trifle: float) -> bool:
    """Something changed that is worth a line: what came or went from `trifle` ms a step on."""
    if o.status in ("added", "gone"):
        return abs(o.change_ms) >= trifle
    return o.status != "same"


def _calls_text(o: m.OperationChange) -> str:
    before, after = (digits(c) for c in (o.calls_before, o.calls_after))
    return before if before == after else f"{before}, {after}"


def _calls(doc: m.Comparison, limit: int | None) -> Iterator[Block]:
    step = sum(p.before_ms for p in doc.budget if p.phase is None)
    rows = [
        (
            c.call,
            digits(c.calls_before),
            digits(c.calls_after),
            milliseconds(c.before_ms),
            milliseconds(c.after_ms),
        )
        for c in doc.calls
        if limit is None
        or max(c.before_ms, c.after_ms) >= WORTH * step
        or abs(c.calls_after - c.calls_before) >= max(1.0, 0.1 * c.calls_before)
    ]
    if not rows:
        return
    yield Heading("CUDA API calls", "a step")
    kept, more = first(rows, limit)
    yield Grid(("call", "calls before", "after", "ms before", "after"), kept, more)


# ---------------------------------------------------------------- findings and promises


def _findings(changes: tuple[m.FindingChange, ...], verbosity: int) -> Iterator[Block]:
    shown = [c for c in changes if verbosity > 0 or _matters(c)]
    same = len(changes) - len(shown)
    if not changes:
        return
    yield Heading("Findings")
    rows = tuple(
        (
            c.status,
            c.cause,
            c.scope.label(),
            _level(c.severity_before, c.share_before, c.ms_before),
            _level(c.severity_after, c.share_after, c.ms_after),
            c.note,
        )
        for c in shown
    )
    if rows:
        heads = ("", "finding", "scope", "before", "after", "note")
        several = len({r[2] for r in rows if r[2]}) > 1
        keep = [i for i in range(len(heads)) if i not in (2, 5)]
        keep += ([2] if several else []) + ([5] if any(r[5] for r in rows) else [])
        keep.sort()
        table = tuple(tuple(r[i] for i in keep) for r in rows)
        yield Grid(tuple(heads[i] for i in keep), table)
    if same:
        yield Labelled("", f"{amount(same, 'finding')} unchanged or for information (-v)")


def _matters(c: m.FindingChange) -> bool:
    levels = {c.severity_before, c.severity_after} - {None, "info"}
    return c.status != "same" and bool(levels)


def _level(severity: str | None, share: float | None, ms: float | None) -> str:
    """``high 84 %, 10.7 ms``"""
    if severity is None:
        return "-"
    parts = [] if share is None else [percent(share)]
    parts += [] if ms is None else [f"{milliseconds(ms)} ms"]
    return " ".join([severity, ", ".join(parts)]).strip()


def _checks(
    checks: tuple[m.AdviceCheck, ...], gains: tuple[m.GainCheck, ...], verbosity: int
) -> Iterator[Block]:
    moved = [
        c
        for c in checks
        if verbosity > 0 or (c.outcome in ("as promised", "other way") and c.severity != "info")
    ]
    if not checks:
        return
    yield Heading("What was recommended before", "did the number move as promised?")
    rows = tuple(
        (
            c.outcome,
            c.id,
            f"{c.verify.fact} {CHANGES[c.verify.expect]}",
            value_text(c.before, fact_unit(c.verify.fact, c.unit)),
            value_text(c.after, fact_unit(c.verify.fact, c.unit)),
        )
        for c in moved
    )
    if rows:
        yield Grid(("", "advice", "promised", "before", "after"), rows)
    rest = len(checks) - len(moved)
    if rest:
        yield Labelled("", f"{amount(rest, 'number')} did not move or cannot be told (-v)")
    shown = set()
    for g in gains:
        after = g.predicted.step_after_ms
        if after is None or (g.outcome == "not applied" and verbosity <= 0):
            continue
        text = (
            f"{g.cause}, {g.outcome}: predicted {milliseconds(after.mid)} ms a step "
            f"({milliseconds(after.low)} to {milliseconds(after.high)}) without the profiler, measured "
            f"{_measured(g)} (was {milliseconds(g.measured_before_ms)}, {times(g.measured_speedup)} x)"
        )
        if text not in shown:
            yield Labelled("gain", text)
        shown.add(text)


def _measured(check: m.GainCheck) -> str:
    """``2.20 ms, 2.05 (2.00 to 2.20) without the profiler``"""
    traced, own = check.measured_after_ms, check.untraced_after_ms
    if own is None or abs(own.mid - traced) < 0.005 * traced:
        return f"{milliseconds(traced)} ms"
    return (
        f"{milliseconds(own.mid)} ms ({milliseconds(own.low)} to {milliseconds(own.high)}) without it and "
        f"{milliseconds(traced)} ms in the capture"
    )


def advice(
    findings: tuple[Finding, ...], verbosity: int = 0, grown: tuple[m.Contribution, ...] = ()
) -> Iterator[Block]:
    """What the findings ask for that hold what grew, then what the rules of the comparison recommend."""
    codes = {c.action: c.code for c in grown if c.action and c.code}
    for f in findings:
        if f.severity == "info" and verbosity <= 0 and not f.invalidates:
            continue
        for a in f.recommendations:
            codes.setdefault(a.action, f.code)
    if codes:
        yield Heading("What to do")
    for action, code in codes.items():
        yield Labelled(code, action)


def unknown(entries: tuple[NotEvaluated, ...]) -> Iterator[Block]:
    """Rules that could not judge."""
    if entries:
        yield Heading("Not judged")
    for n in entries:
        flag = f" (capture with {n.flag})" if n.flag else ""
        why = f"{', '.join(n.missing)} not known" if n.missing else phrases.why_not_judged(n)
        yield Labelled(n.code, f"{n.cause}: {why}{flag}")
