"""What has become of findings since the last review, as text and as Markdown."""

from __future__ import annotations

from advisor.model.history import History, State, Tracked
from advisor.model.numbers import value_text
from advisor.reports.layout import Page
from advisor.reports.markdown import code, table, text

_ORDER: tuple[State, ...] = ("new", "worse", "same", "better", "unknown", "closed")


def sentence(history: History, day: str) -> str:
    """``Since 2026-11-01: 1 new, 1 worse, 0 better, 2 closed, 1 overdue``"""
    counts = [f"{len(history.in_state(s))} {s}" for s in ("new", "worse", "better", "closed")]
    counts.append(f"{sum(t.overdue(day) for t in history.findings)} overdue")
    since = f"Since {history.meetings[-2].day}" if len(history.meetings) > 1 else "First review"
    return f"{since}: {', '.join(counts)}"


def ordered(history: History, day: str) -> list[tuple[str, Tracked]]:
    """State and finding: what is overdue first, what is closed last."""
    rows = sorted(history.findings, key=lambda t: (not t.overdue(day), _ORDER.index(t.state)))
    return [(f"overdue, {t.state}" if t.overdue(day) else t.state, t) for t in rows]


def _said(tracked: Tracked, day: str) -> str:
    parts = [tracked.decision or (f"reopened (was {tracked.reopened})" if tracked.reopened else "")]
    parts += [tracked.owner, f"due {tracked.due}" if tracked.due else "", tracked.comment]
    if tracked.suppressed is not None:
        word = "suppressed until" if tracked.hidden(day) else "was suppressed until"
        parts.append(f"{word} {tracked.suppressed.until}: {tracked.suppressed.reason}")
    return "; ".join(p for p in parts if p)


def render(page: Page, history: History, day: str) -> None:
    """A line a finding, with what was decided."""
    page.line((sentence(history, day), "bold"))
    if history.meetings:
        last = history.meetings[-1]
        page.labelled("capture", last.capture)
        page.labelled("present", ", ".join(last.names) or "not noted")
    for state, tracked in ordered(history, day):
        page.line(
            (f"{state:<8}", "bold"), f"  {tracked.finding.rstrip('@')} {tracked.cause} ({tracked.severity})"
        )
        if said := _said(tracked, day):
            page.labelled("", said)


def markdown(history: History, day: str) -> bytes:
    """The same as a table."""
    rows = [
        [
            text(state),
            f"{code(t.finding.rstrip('@'))} {text(t.cause)}",
            text(t.severity),
            "" if t.share is None else value_text(t.share, "ratio"),
            text(t.since),
            text(_said(t, day)),
        ]
        for state, t in ordered(history, day)
    ]
    heads = ["state", "finding", "severity", "share", "since", "decided"]
    return f"# {text(sentence(history, day))}\n\n{table(heads, [False] * 6, rows)}\n".encode()
