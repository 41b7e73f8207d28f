"""One finding: its words, and the whole of it as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from advisor.model.facts import Interval, Table
from advisor.model.findings import Advice, Alternative, Finding, Gain, Option, Verify
from advisor.model.numbers import CHANGES, condition_parts, fact_unit, session_time, value_text
from advisor.reports.blocks import Block, Do, Entry, Grid, Labelled, Paragraph, Places
from advisor.reports.budget_bar import words
from advisor.reports.gain_text import params_text, span_text, times_text


class Detail(Struct, frozen=True):
    """How much is said of findings; None is all. `why`: also conditions that do not hold, and the
    parameters that move a threshold. `table` and `lists` are for the parts beside the findings."""

    findings: int | None = None
    rows: int | None = None
    tables: int | None = None
    places: int | None = None
    why: bool = True
    table: int | None = None
    lists: bool = True


#: One finding on a page: enough to act on it.
SHOWN = Detail(rows=8, places=3, why=False)
#: What an earlier finding has shown (tables, options, places), and the rank of that finding.
Shown = dict[Any, int]


def finding(found: Finding, has_steps: bool, detail: Detail, shown: Shown, clock: str = "") -> Entry:
    """The whole finding; nothing that `shown` says an earlier one has told already."""
    sure = f"confidence {value_text(found.confidence, 'ratio')}"
    where = ", ".join(t for t in (found.scope.label(), sure) if t)
    level = "limit" if found.kind == "limit" else found.severity
    name = f"{found.code} {found.cause}"
    parts = tuple(_parts(found, has_steps, detail, shown, clock))
    cost = ""
    if found.impact is not None and found.impact.share is not None:
        cost = f"{value_text(found.impact.share, 'ratio')} of the {found.impact.of(has_steps)}"
    return Entry(found.rank, level, name, where, found.changed or found.baseline or "", parts, cost)


def _parts(found: Finding, has_steps: bool, detail: Detail, shown: Shown, clock: str) -> Iterator[Block]:
    yield Paragraph(found.title, strong=True, dense=True)
    yield Paragraph(found.message, dense=True)
    yield from _conditions(found, detail)
    if cost := cost_text(found, has_steps):
        yield Labelled("cost", cost)
    if found.gain is not None:
        if text := gain_text(found.gain, "→"):
            yield Labelled("gain", text)
        if found.gain.why_more:
            yield Labelled("", f"more than its share: {found.gain.why_more}")
        if found.gain.assumptions:
            yield Labelled("assumes", "; ".join(found.gain.assumptions))
    for table in found.evidence[: detail.tables] if detail.rows != 0 else ():
        before = shown.setdefault(table, found.rank)
        if before != found.rank:
            yield Labelled("evidence", f"{table.title}: as in {before}")
        elif table.rows:
            yield grid(table, detail.rows)
    if found.time_ranges and detail.places != 0:
        before = shown.setdefault(found.time_ranges, found.rank)
        if before == found.rank:
            ranges = found.time_ranges[: detail.places]
            more = len(found.time_ranges) - len(ranges)
            yield Places(tuple(map(place_text, ranges)), ranges, more, clock)
        else:
            yield Labelled("where", f"as in {before}")
    for advice in found.recommendations:
        yield _advice(advice, found.rank, shown)
    notes = {advice.id for advice in found.recommendations}
    for other in found.alternatives:
        if other.action not in notes or (other.gain is not None and other.gain.speedup is not None):
            yield _alternative(other, found.rank, shown)
    if found.explains:
        names = dict.fromkeys(f"{s.code} {s.cause}" for s in found.explains)
        yield Labelled("explains", ", ".join(names))
    for i, r in enumerate(found.references):
        yield Labelled("" if i else "see", r.title or r.id, r.url or "")


def listed(label: str, texts: list[str]) -> Iterator[Labelled]:
    """Lines under one label."""
    for i, text in enumerate(texts):
        yield Labelled("" if i else label, text)


def _conditions(found: Finding, detail: Detail) -> Iterator[Block]:
    shown = [
        c for c in found.conditions if detail.why or c.holds or (c.holds is None and c.value is not None)
    ]
    rows: list[tuple[str, ...]] = []
    for c in shown:
        value, op, limit = condition_parts(c)
        kind, _, name = c.fact.partition(":")
        sign = {True: "yes", False: "no", None: "unknown"}[c.holds]
        fact, limit = (f"{kind} {name}", "") if name else (c.fact, f"{op} {limit}")
        rows.append((fact, value, limit, sign, c.param or "") if detail.why else (fact, value, limit))
    heads = ("because", "value", "threshold", "holds", "param")
    if rows:
        yield Grid(heads[: len(rows[0])], tuple(rows))


def cost_text(found: Finding, has_steps: bool) -> str:
    """``84.2 % of the step (launch call + launch latency, 10.7 ms a step)``; empty where it has none."""
    impact = found.impact
    if impact is None or impact.share is None:
        return ""
    of = impact.of(has_steps)
    parts = (impact.part,) if impact.parts is None else impact.parts
    notes = [" + ".join(map(words, parts))] if parts and of != "capture" else []
    if impact.ms is not None:
        notes.append(value_text(impact.ms, "ms") + (" a step" if of == "step" else ""))
    share = f"{value_text(impact.share, 'ratio')} of the {of}"
    return f"{share} ({', '.join(notes)})" if notes else share


def gain_text(gain: Gain, arrow: str = "->") -> str:
    """The estimate with its range, or why there is none; empty where neither is known."""
    if gain.speedup is None and gain.step_after_ms is None:
        return f"not estimated: {gain.reason}" if gain.reason else ""
    by = f" by what-if {gain.what_if}{params_text(gain.params)}" if gain.what_if else ""
    step = ""
    if gain.step_before_ms is not None and gain.step_after_ms is not None:
        before, after = span_text(gain.step_before_ms), span_text(gain.step_after_ms)
        step = f"step {before} {arrow} {after} ms"
    if gain.speedup is None:
        return step + by
    speedup = times_text(gain.speedup)
    if gain.measure == "throughput":
        # It counts tokens a second; the step itself does not get shorter.
        return f"throughput {speedup} in tokens/s{by}" + (f"; {step}" if step else "")
    return ", ".join(part for part in (step, speedup) if part) + by


def grid(table: Table, rows: int | None = None, item: str = "") -> Grid:
    """A table of the document, at most so many `rows` of it."""
    filled = table.filled()
    kept = filled.rows if rows is None else filled.rows[:rows]
    return Grid(filled.columns, kept, len(table.rows) - len(kept), title=table.title, item=item, wrapped=True)


def place_text(where: Interval) -> str:
    """``1.234567s for 124 us, stream 7, thread 41873: label``, as the viewer shows it."""
    text = f"{session_time(where.start_ns)} for {value_text(where.end_ns - where.start_ns, 'ns')}"
    if where.stream is not None:
        text += f", stream {where.stream}"
    if where.thread is not None:
        text += f", thread {where.thread}"
    return f"{text}: {where.label}" if where.label else text


def _advice(advice: Advice, rank: int, shown: Shown) -> Do:
    text = f"{advice.action.rstrip('.')} (effort {advice.effort})"
    verify = verify_text(advice.verify) if advice.verify is not None else ""
    return Do(text, *_option_lines(advice.options, rank, shown), verify)


def _option_lines(
    options: tuple[Option, ...], rank: int, shown: Shown
) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """The lines, or the finding that has shown them."""
    before = shown.setdefault(options, rank) if options else rank
    if before != rank:
        return (), f"options: as in {before}"
    # Lines of the engine "any" suit all of them and are commands of their own.
    return tuple(
        ("" if o.engine == "any" else o.engine, o.line, f"since {o.since}" if o.since else "")
        for o in options
    ), ""


def _alternative(other: Alternative, rank: int, shown: Shown) -> Do:
    """Another way to win, with its estimate where there is one."""
    notes, gain = [f"effort {other.effort}"], other.gain
    if gain is not None and gain.speedup is not None:
        tokens = " in tokens/s" if gain.measure == "throughput" else ""
        by = f" by what-if {gain.what_if}{params_text(gain.params)}"
        notes.insert(0, times_text(gain.speedup) + tokens + by)
    text = f"{other.text.rstrip('.')} ({', '.join(notes)})"
    return Do(text, *_option_lines(other.options, rank, shown), label="or")


def verify_text(verify: Verify) -> str:
    """What must move, and from where: ``launch.idle_ratio falls, now 52.3 %``."""
    change = CHANGES[verify.expect]
    now = "" if verify.now is None else f", now {value_text(verify.now, fact_unit(verify.fact, verify.unit))}"
    return f"{verify.fact} {change}{now}"
