"""Before against after, as blocks: verdict, steps, where the time went, what else changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.model import comparison as m
from advisor.model.facts import Cell
from advisor.model.findings import Finding, NotEvaluated, Span
from advisor.model.numbers import (
    CHANGES,
    amount,
    difference,
    digits,
    fact_unit,
    first_few,
    megahertz,
    milliseconds,
    percent,
    signed,
    times,
    value_text,
)
from advisor.reports import phrases
from advisor.reports.blocks import Block, Grid, Heading, Labelled, Paragraph, first, labelled
from advisor.reports.budget_bar import words
from advisor.reports.layout import GLUE

ROWS = 8
#: Parts and operations that changed by less than this share of the step are left to -v.
WORTH = 0.005


def comparison(doc: m.Comparison, verbosity: int = 0) -> Iterator[Block]:
    """The whole report; with more verbosity every row."""
    yield from sides(("before", doc.before), ("after", doc.after), verbosity=verbosity)
    yield Paragraph(doc.summary, strong=True)
    yield from (Labelled("note", note) for note in doc.notes)
    limit = None if verbosity > 0 else ROWS
    if doc.values:  # logs, samples and printed tables
        yield from _values(doc.values, limit)
        yield from _findings(doc.changes, verbosity)
        return
    yield from comparable(doc.comparability, verbosity)
    yield from _phases(doc.phases)
    if doc.verdict == "not-comparable" and verbosity <= 0:
        yield Labelled("", "Budget, operations, calls and findings of both sides: -v")
        yield from advice(doc.findings, verbosity)
        yield from unknown(doc.not_evaluated)
        return
    yield from budget(doc.budget, verbosity)
    yield from _operations(doc, limit)
    yield from _calls(doc, limit)
    yield from _findings(doc.changes, verbosity)
    yield from _checks(doc.checks, doc.gains, verbosity)
    yield from advice(doc.findings, verbosity, doc.contributions)
    yield from unknown(doc.not_evaluated)


def sides(*named: tuple[str, m.SideDoc], verbosity: int = 0) -> Iterator[Block]:
    """The captures of each side, and what recorded them."""
    for name, side in named:
        paths = [i.path for i in side.inputs]
        yield Labelled(name, first_few(paths, len(paths) if verbosity > 0 else 4))
        entry = side.inputs[0]
        about = (
            entry.device,
            phrases.recorder(entry),
            entry.driver and f"driver {entry.driver}",
            entry.cuda and f"CUDA {entry.cuda}",
            entry.serving_engine,
            f"{entry.steps or 'no'} steps",
            entry.busy_share is not None and f"GPU busy {value_text(entry.busy_share, 'ratio')}",
        )
        yield Labelled("", f"{GLUE}· ".join(part for part in about if part))


def comparable(doc: m.Comparability, verbosity: int = 0) -> Iterator[Block]:
    """How far the sides may be compared, and why not further."""
    yield Heading("Comparability", percent(doc.score))
    yield from (Labelled("differs", r.text) for r in doc.reasons if r.state == "differs" and r.text)
    for state in ("same", "unknown") if verbosity <= 0 else ():
        checks = dict.fromkeys(r.check for r in doc.reasons if r.state == state)
        yield from labelled((state, ", ".join(checks)))
    if verbosity > 0:
        rows: list[tuple[Cell, ...]] = []
        for r in doc.reasons:
            text = megahertz if r.check == "clock" else value_text
            both = (text(v) if isinstance(v, int | float) else v for v in (r.before, r.after))
            rows.append((r.check, r.phase or "", r.state, *both, f"{r.score:.2f}"))
        yield Grid(("check", "phase", "state", "before", "after", "factor"), tuple(rows))


def _ms(before: float, after: float) -> tuple[str, str]:
    return milliseconds(before), milliseconds(after)


def _alike(before: str, after: str) -> str:
    """Both sides, once if they do not differ."""
    return before if before == after else f"{before}, {after}"


def _phases(phases: tuple[m.PhaseChange, ...]) -> Iterator[Block]:
    """The typical and the mean step of each phase, with the interval of the change."""
    if not phases:
        return
    yield Heading("Steps", "typical: the median ratio over all pairs of steps")
    rows: list[tuple[Cell, ...]] = []
    for p in phases:
        both = (p.before, p.after)
        steps = _alike(*("0" if side is None else str(side.steps) for side in both))
        for name, of, value in (("typical", "median_ms", p.typical), ("mean", "mean_ms", p.mean)):
            times = ("-" if side is None else milliseconds(getattr(side, of)) for side in both)
            change, interval = "-", "-"
            if value is not None:
                change, interval = f"{signed(value.mid)} %", f"{signed(value.low)} to {signed(value.high)} %"
            about = (p.phase, steps) if name == "typical" else ("", "")
            rows.append((*about, name, *times, change, interval))
    heads = ("phase", "steps", "", "before ms", "after ms", "change", "98 % interval")
    yield Grid(heads, tuple(rows))
    for p in phases if len(phases) > 1 else ():
        why = p.why.partition("; ")[0]
        yield Labelled(p.phase, f"{p.verdict}{f': {why}' if why else ''}")


def _values(values: tuple[m.ValueChange, ...], limit: int | None) -> Iterator[Block]:
    """What both sides measured themselves; then the rows of printed tables."""
    yield Heading("Values", "what both sides hold")
    for row, heads in (
        (False, ("value", "before", "after", "change")),
        (True, ("row", "before", "after", "")),
    ):
        rows: list[tuple[Cell, ...]] = [
            (
                v.what,
                *("-" if x is None else value_text(x, v.unit) for x in (v.before, v.after)),
                change(v.before or 0.0, v.after or 0.0),
            )
            for v in values
            if v.row == row
        ]
        if rows:
            kept, more = first(rows, limit if row else None)
            yield Grid(heads, kept, more)


def span(value: Span | None) -> str:
    """``-83.7 % (-86.6, -80.2)``"""
    if value is None:
        return "unknown"
    return f"{signed(value.mid)} % ({signed(value.low)}, {signed(value.high)})"


def change(before: float, after: float) -> str:
    """A relative change, or that something appeared or disappeared."""
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
        ends = [(words(p.part), p.before_ms, p.after_ms, p.change_ms) for p in shown]
        ends.append(("all", *whole, whole[1] - whole[0]))
        table = ((part, *_ms(b, a), difference(moved, 2), change(b, a)) for part, b, a, moved in ends)
        yield Grid(("part", *names, "change", ""), tuple(table))


def _operations(doc: m.Comparison, limit: int | None) -> Iterator[Block]:
    if not doc.operations:
        return
    # Without -v: operations that appeared or disappeared and take at least this many ms a step, and
    # others that changed.
    trifle = WORTH * sum(p.before_ms for p in doc.budget if p.phase is None)
    one_side = ("added", "gone")
    moved = [
        o
        for o in doc.operations
        if limit is None or (abs(o.change_ms) >= trifle if o.status in one_side else o.status != "same")
    ]
    yield Heading("Operations", "kernels matched by what they do, a step")
    if not moved:
        yield Labelled("", f"None of {len(doc.operations)} moved by {100 * WORTH:g} % of the step or more.")
        return
    several = len(doc.phases) > 1
    rows: list[tuple[Cell, ...]] = []
    for o in moved:
        calls = _alike(digits(o.calls_before), digits(o.calls_after))
        what = (o.operation, o.phase, o.status) if several else (o.operation, o.status)
        rows.append((*what, calls, *_ms(o.before_ms, o.after_ms), difference(o.change_ms, 3)))
    kept, more = first(rows, limit)
    heads = ("operation", *(("phase",) if several else ()), "", "calls", "before ms", "after ms", "change")
    yield Grid(heads, kept, more)
    for o in moved[:3]:
        if o.kernels_before[:1] != o.kernels_after[:1] and o.kernels_before and o.kernels_after:
            yield Labelled("kernel", f"{o.operation}: {o.kernels_before[0]} became {o.kernels_after[0]}")


def _calls(doc: m.Comparison, limit: int | None) -> Iterator[Block]:
    step = sum(p.before_ms for p in doc.budget if p.phase is None)
    rows = [
        (c.call, digits(c.calls_before), digits(c.calls_after), *_ms(c.before_ms, c.after_ms))
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


def _findings(changes: tuple[m.FindingChange, ...], verbosity: int) -> Iterator[Block]:
    if not changes:
        return
    matters = [c for c in changes if not {c.severity_before, c.severity_after} <= {None, "info"}]
    shown = changes if verbosity > 0 else [c for c in matters if c.status != "same"]
    yield Heading("Findings")
    if shown:
        table: dict[str, list[str]] = {
            "": [c.status for c in shown],
            "finding": [c.cause for c in shown],
            "scope": [c.scope.label() for c in shown],
            "before": [_level(c.severity_before, c.share_before, c.ms_before) for c in shown],
            "after": [_level(c.severity_after, c.share_after, c.ms_after) for c in shown],
            "note": [c.note for c in shown],
        }
        if len(set(table["scope"]) - {""}) <= 1:
            del table["scope"]
        if not any(table["note"]):
            del table["note"]
        yield Grid(tuple(table), tuple(zip(*table.values(), strict=True)))
    same, notes = len(matters) - len(shown), len(changes) - len(matters)
    hidden = [f"{amount(same, 'finding')} unchanged"] * (same > 0) + [amount(notes, "note")] * (notes > 0)
    if hidden and verbosity <= 0:
        yield Labelled("", f"{', '.join(hidden)} (-v)")


def _level(severity: str | None, share: float | None, ms: float | None) -> str:
    """``high 84 %, 10.7 ms``"""
    parts = [] if share is None else [percent(share)]
    parts += [] if ms is None else [f"{milliseconds(ms)} ms"]
    return "-" if severity is None else f"{severity} {', '.join(parts)}".strip()


def _checks(
    checks: tuple[m.AdviceCheck, ...], gains: tuple[m.GainCheck, ...], verbosity: int
) -> Iterator[Block]:
    if not checks:
        return
    yield Heading("What was recommended before", "did the number move as promised?")
    moved = ("as promised", "other way")
    shown = [c for c in checks if verbosity > 0 or (c.outcome in moved and c.severity != "info")]
    rows = []
    for c in shown:
        numbers = (value_text(v, fact_unit(c.verify.fact, c.unit)) for v in (c.before, c.after))
        rows.append((c.outcome, c.id, f"{c.verify.fact} {CHANGES[c.verify.expect]}", *numbers))
    if rows:
        yield Grid(("", "advice", "promised", "before", "after"), tuple(rows))
    if any(map(_only_in_ms, shown)):
        yield Labelled("", "Shares of the step are judged in milliseconds, as the step changed as well.")
    yield from labelled(("", _left_out([c for c in checks if c not in shown])))
    yield from labelled(
        *((words, ", ".join(_causes(gains, outcome))) for outcome, words in _UNCREDITED.items())
    )
    texts = []
    for g in gains:
        if (after := g.predicted.step_after_ms) is None or g.outcome in _UNCREDITED:
            continue
        traced, own = g.measured_after_ms, g.untraced_after_ms
        measured = f"{milliseconds(traced)} ms"
        if own is not None and abs(own.mid - traced) >= 0.005 * traced:
            about = "" if own.low == own.high else "about "
            measured += f" in the capture, {about}{_range(own)} without it"
        was, speedup = milliseconds(g.measured_before_ms), times(g.measured_speedup)
        texts.append(
            f"{g.cause}, {g.outcome}: predicted {_range(after, ' a step')} without the profiler, "
            f"measured {measured} (traced: was {was}, {speedup} x)"
        )
    yield from (Labelled("gain", text) for text in dict.fromkeys(texts))


#: Fixes whose gain the measured step does not show, and the words before their causes.
_UNCREDITED = {"not applied": "not applied", "with others": "together", "not known": "perhaps"}


def _causes(gains: Sequence[m.GainCheck], outcome: str) -> Iterator[str]:
    """The causes whose fix has this outcome, and what the step then says of them."""
    found = list(dict.fromkeys(g.cause for g in gains if g.outcome == outcome))
    if outcome == "with others" and found:
        first = next(g for g in gains if g.outcome == outcome)
        old, new = milliseconds(first.measured_before_ms), milliseconds(first.measured_after_ms)
        yield f"{' and '.join(found)}: the step went from {old} to {new} ms by all of these fixes"
        return
    yield from found


def _only_in_ms(check: m.AdviceCheck) -> bool:
    """Whether a number moved as promised in milliseconds a step, and as a share the other way."""
    before, after = check.before, check.after
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return False
    wrong = {"decrease": after > before, "increase": after < before}.get(check.verify.expect, False)
    return check.outcome == "as promised" and wrong


def _left_out(checks: list[m.AdviceCheck]) -> str:
    """``3 numbers did not move (compile-model), 1 is not known, 2 belong to notes (-v)``; empty for none."""
    notes = [c for c in checks if c.severity == "info"]
    still, unknown = (
        [c for c in checks if c.outcome == outcome and c not in notes] for outcome in ("unchanged", "unknown")
    )
    parts: list[str] = []
    for some, one, many in (
        (still, "did not move", "did not move"),
        (unknown, "is not known", "are not known"),
        (notes, "belongs to a note", "belong to notes"),
    ):
        if some:
            count = str(len(some)) if parts else amount(len(some), "number")
            names = f" ({', '.join(dict.fromkeys(c.id for c in some))})" if some is not notes else ""
            parts.append(f"{count} {one if len(some) == 1 else many}{names}")
    return f"{', '.join(parts)} (-v)" if parts else ""


def _range(span: Span, per: str = "") -> str:
    low, mid, high = (milliseconds(v) for v in (span.low, span.mid, span.high))
    return f"{mid} ms{per} ({low} to {high})"


def advice(
    findings: tuple[Finding, ...], verbosity: int = 0, grown: tuple[m.Contribution, ...] = ()
) -> Iterator[Block]:
    """Advice for the causes of what grew, then of the rules of the comparison."""
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
    """Rules that could not be evaluated."""
    if entries:
        yield Heading("Not judged")
    for n in entries:
        flag = f" (capture with {n.flag})" if n.flag else ""
        why = f"{', '.join(n.missing)} not known" if n.missing else phrases.why_not_judged(n)
        yield Labelled(n.code, f"{n.cause}: {why}{flag}")
