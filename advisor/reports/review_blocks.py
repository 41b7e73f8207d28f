"""People's decisions and answers as blocks: a review, findings from review to review, the checklist."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model import review as m
from advisor.model.numbers import amount, milliseconds, value_text
from advisor.reports.blocks import Block, Gap, Heading, Item, Labelled, Paragraph, Title, labelled

_ORDER: tuple[m.State, ...] = ("new", "worse", "same", "better", "unknown", "closed")


def review(doc: m.Review) -> Iterator[Block]:
    """Decided findings, then open ones, then the checklist if something was answered."""
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
    automatic = [s for s in answered if s.signed_by == m.AUTOMATIC]
    signed = [s for s in answered if s.signed_by != m.AUTOMATIC]
    for title, answers in (("Checklist", signed), ("Checklist, answered by the capture", automatic)):
        if answers:
            yield Heading(title, f"{len(answers)} of {amount(len(doc.checklist), 'question')}")
        for s in answers:
            by = f"signed by {s.signed_by}" if s.signed_by and s.signed_by != m.AUTOMATIC else ""
            notes = tuple(n for n in (s.note, f"{by}, {s.signed_on}" if by and s.signed_on else by) if n)
            yield Item(f"{s.question or s.id} {m.WORDS.get(s.answer, s.answer)}", notes=notes)


def summary(doc: m.Review) -> str:
    """``5 findings: 2 accept, 1 defer, 2 open``"""
    states = [d.decision or "open" for d in doc.decisions if not d.closed]
    words = [*dict.fromkeys(s for s in states if s != "open"), "open"]
    counts = ", ".join(f"{states.count(w)} {w}" for w in words)
    return f"{amount(len(states), 'finding')}: {counts}"


def _decision(d: m.Decision, several: bool) -> Item:
    where = d.finding.partition("@")[2]
    about = [d.capture if several else "", where, d.severity or ""]
    about.append("" if d.share is None else value_text(d.share, "ratio"))
    state, due = d.decision or ("open" if d.open else "closed"), f"due {d.due}" if d.due else ""
    name, known = f"{d.code} {d.cause or d.title}", ", ".join(filter(None, about))
    chosen = (", ".join(filter(None, (c.decision, c.owner))) for c in d.recommendations)
    notes = tuple(f"{c.action.rstrip('.')}: {t}" for c, t in zip(d.recommendations, chosen, strict=True))
    text = "; ".join(filter(None, (state, d.owner, due, d.comment)))
    return Item(text, code=f"{name} ({known})" if known else name, notes=notes)


def history(doc: m.History, day: str) -> Iterator[Block]:
    """A line a finding with its decision: overdue ones first, closed ones last."""
    yield Title(sentence(doc, day))
    if doc.meetings:
        last = doc.meetings[-1]
        yield Labelled("capture", last.capture)
        yield Labelled("present", ", ".join(last.names) or "not noted")
    for tracked in in_order(doc, day):
        state = f"overdue, {tracked.state}" if tracked.overdue(day) else tracked.state
        size, was = _sizes(tracked)
        share = f", {size}" if size else ""
        if tracked.state in ("worse", "better") and was:
            share += f", was {was}"
        name = f"{tracked.finding.rstrip('@')} {tracked.cause} ({tracked.severity}{share})"
        parts = [tracked.decision or (f"reopened (was {tracked.reopened})" if tracked.reopened else "")]
        parts += [tracked.owner, f"due {tracked.due}" if tracked.due else "", tracked.comment]
        decided = "; ".join(p for p in (*parts, suppression(tracked, day)) if p)
        since = f"since {tracked.since}" if tracked.since else ""
        yield Item(name, code=state, notes=tuple(n for n in (decided, since) if n))


def _sizes(tracked: m.Tracked) -> tuple[str, str]:
    """What it holds now and held before: in ms a step if both are known, as shares otherwise."""
    if tracked.ms is not None and tracked.was_ms is not None:
        return f"{milliseconds(tracked.ms)} ms a step", f"{milliseconds(tracked.was_ms)} ms"
    now, was = ("" if share is None else value_text(share, "ratio") for share in (tracked.share, tracked.was))
    return now, was


def in_order(doc: m.History, day: str) -> list[m.Tracked]:
    """The findings, overdue ones first, closed ones last."""
    return sorted(doc.findings, key=lambda t: (not t.overdue(day), _ORDER.index(t.state)))


def sentence(doc: m.History, day: str) -> str:
    """``Since 2026-11-01: 1 new, 1 worse, 0 better, 2 closed, 1 overdue``"""
    counts = [f"{len(doc.in_state(s))} {s}" for s in ("new", "worse", "better", "closed")]
    counts.append(f"{sum(t.overdue(day) for t in doc.findings)} overdue")
    before = doc.meetings[-2] if len(doc.meetings) > 1 else None
    since = f"Since {before.day or 'the last review'}" if before else "First review"
    return f"{since}: {', '.join(counts)}"


def suppression(tracked: m.Tracked, day: str) -> str:
    """``suppressed until 2027-01-31: driver bug``; empty if it never was."""
    if tracked.suppressed is None:
        return ""
    word = "suppressed until" if tracked.hidden(day) else "was suppressed until"
    return f"{word} {tracked.suppressed.until}: {tracked.suppressed.reason}"


_SIGNS = {"yes": "ok", "no": "no", "not_applicable": "-"}
OPEN = "open"


def welcome(checklist: m.Checklist, place: str) -> Iterator[Block]:
    """The answers so far and what follows, before the first question."""
    answered = [e for e in checklist.entries if not e.open]
    left = len(checklist.entries) - len(answered)
    if checklist.captures:
        by = [e for e in answered if e.by == "capture"]
        total = amount(len(checklist.entries), "question")
        yield Paragraph(f"{_names(checklist)} answers {len(by)} of {total}:", dense=True)
        shown = (e for e in by if e.answer != "not_applicable")
        yield from (Item(e.proof or "yes", _sign(e), e.id) for e in shown)
    yield Paragraph(
        f"{amount(left, 'question')} left to answer. Each answer is kept in {place} at once; "
        "Ctrl-C stops, --resume goes on."
    )


def question(entry: m.CheckEntry, number: int, of: int, stage: str | None) -> Iterator[Block]:
    """One question with why and how, below the title of its stage if that is new."""
    yield Gap()
    if stage is not None:
        yield Heading(stage)
    yield Paragraph(f"{number}/{of} {entry.question}", strong=True, dense=True)
    yield from _about(entry)
    if entry.proof:
        yield Labelled("measured", entry.proof)


def checklist(doc: m.Checklist, verbosity: int = 0) -> Iterator[Block]:
    """The whole list: every question with its answer; open tasks stand out."""
    yield Title("Checklist of a performance analysis")
    if doc.captures:
        yield Paragraph(_names(doc), dense=True)
    for stage, title in doc.stages.items():
        entries = [e for e in doc.entries if e.stage == stage]
        done = sum(not e.open for e in entries)
        yield Heading(title, f"{done} of {len(entries)} answered")
        for e in entries:
            id = e.id if verbosity > 0 else ""
            below = tuple(_about(e, id)) if id or e.answer == "no" else ()
            tick = e.answer in ("yes", "not_applicable")
            yield Item(e.question, _sign(e), notes=(proof_of(e),), below=below, tick=tick)
    yield Gap()
    yield Paragraph(tally(doc), strong=True)


def tally(checklist: m.Checklist) -> str:
    """``31 yes, 2 no, 5 not applicable, 7 open``"""
    parts = [f"{checklist.count(a)} {m.WORDS[a]}" for a in ("yes", "no", "not_applicable")]
    left = sum(e.open for e in checklist.entries)
    return f"{amount(len(checklist.entries), 'question')}: {', '.join(parts)}, {left} {OPEN}"


def _names(checklist: m.Checklist) -> str:
    return ", ".join(c.rsplit("/", 1)[-1] for c in checklist.captures)


def _sign(entry: m.CheckEntry) -> str:
    return _SIGNS.get(entry.answer or "", "?")


def proof_of(entry: m.CheckEntry) -> str:
    """The answer with its number and note, and the capture's if that differs."""
    word = m.WORDS[entry.answer] if entry.answer else OPEN
    if entry.by == "capture":
        word += ", by the capture"
    parts = []
    if entry.proof:
        differs = entry.by == "person" and entry.measured not in (None, entry.answer)
        lead = f"the capture says {m.WORDS[entry.measured or 'yes']}: " if differs else ""
        parts.append(f"{lead}{entry.proof}")
    if entry.note:
        parts.append(f"note: {entry.note}")
    return f"{word} ({'; '.join(parts)})" if parts else word


def _about(entry: m.CheckEntry, id: str = "") -> Iterator[Labelled]:
    return labelled(("why", entry.why), ("how", entry.how), ("command", entry.command), ("id", id))
