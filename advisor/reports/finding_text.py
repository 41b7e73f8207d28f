"""One finding in full: the numbers that fired it, what it costs, where it is, what to do."""

from __future__ import annotations

from advisor.model.facts import Interval, Table
from advisor.model.findings import Advice, Alternative, Finding, Gain, Verify
from advisor.reports.blocks import LEVEL_STYLE
from advisor.reports.budget_bar import words
from advisor.reports.gain_text import params_text, span_text, times_text
from advisor.reports.layout import Page, Segment, pad
from advisor.reports.numbers import (
    CHANGES,
    amount,
    column,
    condition_text,
    fact_unit,
    session_time,
    value_text,
)

EVIDENCE_ROWS = 8
PLACES = 3


def level(page: Page, severity: str) -> Segment:
    """The level as a glyph and a word, so that it reads without colour."""
    return (f"{page.glyphs.levels[severity]} {severity.upper():<6}", LEVEL_STYLE[severity])


def badge(page: Page, found: Finding) -> Segment:
    """The level of a finding; a limit is no fault, so it has a word and a colour of its own."""
    if found.kind == "limit":
        return (f"{page.glyphs.levels['info']} LIMIT ", "bold blue")
    return level(page, found.severity)


def baseline_mark(found: Finding) -> Segment:
    """``[NEW]`` or ``[known]`` where there is a baseline."""
    if found.baseline is None:
        return ""
    if found.changed is not None:
        return (f"  [{found.changed}]", "bold magenta" if found.changed == "worse" else "dim")
    return ("  [NEW]", "bold magenta") if found.baseline == "new" else ("  [known]", "dim")


#: What an earlier finding has shown (tables, options), and the rank of that finding.
Shown = dict[object, int]


def finding(page: Page, found: Finding, has_steps: bool, verbosity: int, shown: Shown | None = None) -> None:
    """The whole block of one finding; with `shown`, nothing that stood there before. `verbosity` 2
    prints every row and place."""
    shown = {} if shown is None or verbosity > 1 else shown
    rows, places = (EVIDENCE_ROWS, PLACES) if verbosity <= 1 else (None, None)
    sure = f"confidence {value_text(found.confidence, 'ratio')}"
    where = ", ".join(t for t in (found.scope.label(), sure) if t)
    page.line(
        (f"{found.rank}. ", "bold"),
        badge(page, found),
        " ",
        (f"{found.code} {found.cause}", "bold"),
        (f"  {where}", "dim"),
        baseline_mark(found),
    )
    page.wrapped(found.title, ["   "], 3, "bold")
    page.wrapped(found.message, ["   "], 3)
    _conditions(page, found, verbosity)
    if cost := cost_text(found, has_steps):
        page.labelled("cost", cost, 3)
    if found.gain is not None:
        text = gain_text(found.gain, page.glyphs.arrow)
        if text:
            page.labelled("gain", text, 3)
        if found.gain.assumptions:
            page.labelled("assumes", "; ".join(found.gain.assumptions), 3)
    for table in found.evidence:
        before = shown.setdefault(table, found.rank)
        if before == found.rank:
            evidence(page, table, rows)
        else:
            page.labelled("evidence", f"{table.title}: as in {before}.", 3)
    before = shown.setdefault(found.time_ranges, found.rank) if found.time_ranges else found.rank
    if before == found.rank:
        _places(page, found.time_ranges, places)
    else:
        page.labelled("where", f"as in {before}.", 3)
    for advice in found.recommendations:
        _advice(page, advice, found.rank, shown)
    told = {advice.id for advice in found.recommendations}
    for other in found.alternatives:
        if other.action not in told or (other.gain is not None and other.gain.speedup is not None):
            _alternative(page, other)
    if found.explains:
        names = [f"{s.code} {s.cause}" for s in found.explains]
        page.labelled("explains", ", ".join(dict.fromkeys(names)), 3)
    for i, ref in enumerate(found.references):
        page.labelled("see" if not i else "", ref.title or ref.id, 3)
        if ref.url:
            page.wrapped(ref.url, ["  "], 2, "dim")


def _conditions(page: Page, found: Finding, verbosity: int) -> None:
    shown = [
        c for c in found.conditions if verbosity > 1 or c.holds or (c.holds is None and c.value is not None)
    ]
    for i, condition in enumerate(shown):
        text = condition_text(condition)
        if condition.param and verbosity > 1:
            text += f"  (--param {found.code}.{condition.param}=...)"
        if condition.holds is False:
            text += "  (does not hold)"
        page.labelled("because" if i == 0 else "", text, 3)


def cost_text(found: Finding, has_steps: bool) -> str:
    """``84.2 % of the step (launch call, 10.7 ms a step)``; empty where it has none."""
    impact = found.impact
    if impact is None or impact.share is None:
        return ""
    of = impact.of(has_steps)
    said = [] if of == "capture" else [words(impact.part)]
    if impact.ms is not None:
        said.append(value_text(impact.ms, "ms") + (" a step" if of == "step" else ""))
    share = f"{value_text(impact.share, 'ratio')} of the {of}"
    return f"{share} ({', '.join(said)})" if said else share


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


def evidence(page: Page, table: Table, rows: int | None) -> None:
    """A small table; heads carry the unit."""
    if not table.rows:
        return
    page.labelled("evidence", table.title, 3)
    kept = table.rows if rows is None else table.rows[:rows]
    made = [column(h, [r[i] for r in kept]) for i, h in enumerate(table.columns)]
    page.table([m[0] for m in made], [(m[1], m[2]) for m in made], 5)
    if len(kept) < len(table.rows):
        page.line("     ", (f"and {amount(len(table.rows) - len(kept), 'row')} more (-v)", "dim"))


def _places(page: Page, ranges: tuple[Interval, ...], shown: int | None) -> None:
    for i, place in enumerate(ranges[:shown]):
        page.labelled("where" if i == 0 else "", place_text(place), 3)


def place_text(where: Interval) -> str:
    """``1.234567s for 124 us, stream 7, thread 41873: label``, as the viewer shows it."""
    text = f"{session_time(where.start_ns)} for {value_text(where.end_ns - where.start_ns, 'ns')}"
    if where.stream is not None:
        text += f", stream {where.stream}"
    if where.thread is not None:
        text += f", thread {where.thread}"
    return f"{text}: {where.label}" if where.label else text


def _advice(page: Page, advice: Advice, rank: int, shown: Shown) -> None:
    page.wrapped(
        f"{advice.action.rstrip('.')} (effort {advice.effort})", [("   " + pad("do", 10), "bold green")], 13
    )
    before = shown.setdefault(advice.options, rank) if advice.options else rank
    if before != rank:
        page.line(" " * 15, (f"options: as in {before}.", "dim"))
    for option in advice.options if before == rank else ():
        since = f" (since {option.since})" if option.since else ""
        # Lines of the engine "any" suit all of them and are commands of their own.
        engine = "" if option.engine == "any" else f"{option.engine}: "
        page.wrapped(f"{option.line}{since}", [" " * 15, (engine, "dim")], 17)
    if advice.verify is not None:
        page.wrapped(verify_text(advice.verify), [" " * 13, ("verify: ", "dim")], 15)


def _alternative(page: Page, other: Alternative) -> None:
    """Another way to win, with its estimate where there is one."""
    told, gain = [f"effort {other.effort}"], other.gain
    if gain is not None and gain.speedup is not None:
        tokens = " in tokens/s" if gain.measure == "throughput" else ""
        by = f" by what-if {gain.what_if}{params_text(gain.params)}"
        told.insert(0, times_text(gain.speedup) + tokens + by)
    text = f"{other.text.rstrip('.')} ({', '.join(told)})"
    page.wrapped(text, [("   " + pad("or", 10), "green")], 13)


def verify_text(verify: Verify) -> str:
    """What must move, and from where: ``launch.idle_ratio falls, now 52.3 %``."""
    change = CHANGES[verify.expect]
    now = "" if verify.now is None else f", now {value_text(verify.now, fact_unit(verify.fact, verify.unit))}"
    return f"{verify.fact} {change}{now}"
