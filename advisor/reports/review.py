"""Decisions of a review as blocks, and what has become of findings since the last one."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.numbers import amount, value_text
from advisor.model.review import AUTOMATIC, WORDS, Decision, History, Review, State, Tracked
from advisor.reports.blocks import Block, Heading, Item, Labelled, Paragraph, Title

_ORDER: tuple[State, ...] = ("new", "worse", "same", "better", "unknown", "closed")


def review(doc: Review) -> Iterator[Block]:
    """Decided findings, then open ones, then the checklist where something was answered."""
    yield Title(f"Review of {doc.workbook}")
    yield Paragraph(summary(doc), strong=True, dense=True)
    if doc.captures:
        yield Labelled("captures", ", ".join(doc.captures))
    if doc.names or doc.day:
        yield Labelled("meeting", ", ".join((*([doc.day] if doc.day else []), *doc.names)))
    several = len({d.capture for d in doc.decisions}) > 1
    for title, decisions in (
        ("Decided", [d for d in doc.decisions if not (d.open or d.closed)]),
        ("Open", [d for d in doc.decisions if d.open]),
        ("Closed", [d for d in doc.decisions if d.closed]),
    ):
        if decisions:
            yield Heading(title)
            yield from (_decision(d, several) for d in decisions)
    answered = [s for s in doc.checklist if s.answer]
    automatic = [s for s in answered if s.signed_by == AUTOMATIC]
    signed = [s for s in answered if s.signed_by != AUTOMATIC]
    for title, answers in (("Checklist", signed), ("Checklist, answered by the capture", automatic)):
        if answers:
            yield Heading(title, f"{len(answers)} of {amount(len(doc.checklist), 'question')}")
        for s in answers:
            by = f"signed by {s.signed_by}" if s.signed_by and s.signed_by != AUTOMATIC else ""
            notes = tuple(n for n in (s.note, f"{by}, {s.signed_on}" if by and s.signed_on else by) if n)
            yield Item(f"{s.question or s.id} {WORDS.get(s.answer, s.answer)}", notes=notes)


def summary(doc: Review) -> str:
    """``5 findings: 2 accept, 1 defer, 2 open``"""
    states = [d.decision or "open" for d in doc.decisions if not d.closed]
    words = [*dict.fromkeys(s for s in states if s != "open"), "open"]
    counts = ", ".join(f"{states.count(w)} {w}" for w in words)
    return f"{amount(len(states), 'finding')}: {counts}"


def _decision(d: Decision, several: bool) -> Item:
    where = d.finding.partition("@")[2]
    about = [d.capture if several else "", where, d.severity or ""]
    about.append("" if d.share is None else value_text(d.share, "ratio"))
    parts = [
        d.decision or ("open" if d.open else "closed"),
        d.owner,
        f"due {d.due}" if d.due else "",
        d.comment,
    ]
    name = f"{d.code} {d.cause or d.title}"
    known = ", ".join(a for a in about if a)
    notes = tuple(
        f"{c.action.rstrip('.')}: {', '.join(p for p in (c.decision, c.owner) if p)}"
        for c in d.recommendations
    )
    return Item("; ".join(p for p in parts if p), code=f"{name} ({known})" if known else name, notes=notes)


# --- from review to review -------------------------------------------------------------------


def history(doc: History, day: str) -> Iterator[Block]:
    """A line a finding with what was decided: what is overdue first, what is closed last."""
    yield Title(sentence(doc, day))
    if doc.meetings:
        last = doc.meetings[-1]
        yield Labelled("capture", last.capture)
        yield Labelled("present", ", ".join(last.names) or "not noted")
    for tracked in in_order(doc, day):
        state = f"overdue, {tracked.state}" if tracked.overdue(day) else tracked.state
        share = "" if tracked.share is None else f", {value_text(tracked.share, 'ratio')}"
        if tracked.state in ("worse", "better") and tracked.was is not None:
            share += f", was {value_text(tracked.was, 'ratio')}"
        name = f"{tracked.finding.rstrip('@')} {tracked.cause} ({tracked.severity}{share})"
        decided = _decided(tracked, day)
        since = f"since {tracked.since}" if tracked.since else ""
        yield Item(name, code=state, notes=tuple(n for n in (decided, since) if n))


def in_order(doc: History, day: str) -> list[Tracked]:
    """The findings, overdue ones first, closed ones last."""
    return sorted(doc.findings, key=lambda t: (not t.overdue(day), _ORDER.index(t.state)))


def sentence(doc: History, day: str) -> str:
    """``Since 2026-11-01: 1 new, 1 worse, 0 better, 2 closed, 1 overdue``"""
    counts = [f"{len(doc.in_state(s))} {s}" for s in ("new", "worse", "better", "closed")]
    counts.append(f"{sum(t.overdue(day) for t in doc.findings)} overdue")
    before = doc.meetings[-2] if len(doc.meetings) > 1 else None
    since = f"Since {before.day or 'the last review'}" if before else "First review"
    return f"{since}: {', '.join(counts)}"


def _decided(tracked: Tracked, day: str) -> str:
    parts = [tracked.decision or (f"reopened (was {tracked.reopened})" if tracked.reopened else "")]
    parts += [tracked.owner, f"due {tracked.due}" if tracked.due else "", tracked.comment]
    parts.append(suppression(tracked, day))
    return "; ".join(p for p in parts if p)


def suppression(tracked: Tracked, day: str) -> str:
    """``suppressed until 2027-01-31: driver bug``; empty where it never was."""
    if tracked.suppressed is None:
        return ""
    word = "suppressed until" if tracked.hidden(day) else "was suppressed until"
    return f"{word} {tracked.suppressed.until}: {tracked.suppressed.reason}"
