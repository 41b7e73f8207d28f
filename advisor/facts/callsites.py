"""Which code makes the calls that a finding speaks of: evidence tables `call_sites.*`, and the code that
makes most of a class."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import call_site_patterns, step_patterns
from advisor.metrics.analysis import Analysis
from advisor.metrics.callsites import GROUPS, CallSiteFinder, CallSites
from advisor.model.facts import Scope, Value

_ROWS = 10
#: One place makes most of the calls where it holds this part of their time.
_MOST = 0.5
_WHAT = {
    "launch": "launch calls", "sync": "waiting calls", "copy": "copy and memset calls",
    "alloc": "allocation and free calls",
}  # fmt: skip
_HOW = {
    "backtraces": "CUDA backtraces",
    "stacks": "Python stacks",
    "samples": "CPU samples",
    "ranges": "enclosing ranges",
}
_UNNAMED = Need("nothing in the capture names code that makes most of these calls")

FACTS = group("device", needs.CUDA, [
    Entry(f"origin.{kind}_place", "text", "api_calls", f"The code that makes most {what}, by time", "backtraces, else Python stacks, CPU samples or ranges around the calls, from half of their time on")
    for kind, what in _WHAT.items()
], columns={"api_calls": origin.CALLS}, needs=(needs.FEEDER, _UNNAMED))  # fmt: skip

_NAMELESS = {
    "backtraces": "(without a backtrace)",
    "ranges": "(outside of ranges)",
    "stacks": "-",
    "samples": "-",
}


def call_site_tables(a: Analysis, device: int, out: FactWriter) -> None:
    """One table a class of calls that the feeding thread makes in the window; where the capture
    names none of them, one table `call_sites.flag` with the option that would."""
    feeder = a.feeder(device)
    if feeder is None:
        return
    finder = CallSiteFinder(
        a.trace,
        a.ranges,
        a.threads.of(feeder),
        a.host_window,
        a.budgets[device].gaps,
        call_site_patterns(),
        step_patterns(),
        a.provenance.calls,
    )
    scope = Scope(device=device)
    known = False
    for kind in GROUPS:
        found = finder.of(kind)
        if found is not None:
            known = True
            columns, rows = _columns(found), _rows(found, a.step_count)
            out.table(f"call_sites.{kind}", scope, _title(kind, found), columns, rows)
            top = next((s for s in found.sites if s.where), None)
            if top is not None and top.time_ns >= _MOST * found.time_ns:
                out.put(f"origin.{kind}_place", top.where, scope)
    if not known and any(map(finder.has, GROUPS)):
        title, flags = _missing(a)
        out.table("call_sites.flag", scope, title, ("capture with",), [[f] for f in flags])


def _missing(a: Analysis) -> tuple[str, tuple[str, ...]]:
    recorder, ranges = a.trace.capture.recorder, a.trace.has("ranges")
    if recorder.backtraces is None:  # ranges are all that this tool can record of it
        title, options = "The calling code is not recorded", [recorder.ranges]
    elif ranges:
        title, options = "The calling functions are not recorded", [recorder.backtraces]
    else:
        title = "Neither the calling functions nor ranges around them are recorded"
        options = [recorder.backtraces, recorder.ranges]
    return title, tuple(option for option in options if option)


def _title(kind: str, found: CallSites) -> str:
    title = f"Where the {_WHAT[kind]} come from, by {_HOW[found.source]}"
    if found.source == "samples":
        title += f" ({sum(s.calls for s in found.sites)} in {found.calls} calls)"
    return f"{title}, share of their time"


def _columns(found: CallSites) -> tuple[str, ...]:
    first = "range" if found.source == "ranges" else "called from"
    if found.source == "samples":
        return (first, "call", "samples", "total:ms", "share:ratio")
    return (first, "call", "calls", "a step", "total:ms", "share:ratio", "GPU idle:ms")


def _rows(found: CallSites, steps: int) -> list[list[Value | None]]:
    """The heaviest sites; what nothing names comes last."""
    rows: list[list[Value | None]] = []
    for site in sorted(found.sites, key=lambda s: s.where is None)[:_ROWS]:
        row: list[Value | None] = [
            site.where or _NAMELESS[found.source],
            site.call,
            site.calls,
            site.time_ns / 1e6,
            site.time_ns / max(found.time_ns, 1),
        ]
        if found.source != "samples":
            row.insert(3, site.calls / steps if steps else None)
            row.append(site.idle_ns / 1e6)
        rows.append(row)
    return rows
