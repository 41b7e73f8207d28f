"""The checklist as text: one question at a time, the list, the result."""

from __future__ import annotations

from rich.text import Text

from advisor.model.checklist import WORDS, CheckEntry, Checklist
from advisor.model.numbers import amount
from advisor.reports.layout import Page, Segment

_STYLES = {"yes": "green", "no": "bold red", "not_applicable": "dim", "later": "yellow"}
OPEN = "open"


def welcome(page: Page, checklist: Checklist, place: str) -> None:
    """What is answered already and what follows, before the first question."""
    answered = [e for e in checklist.entries if not e.open]
    left = len(checklist.entries) - len(answered)
    if checklist.captures:
        names = ", ".join(c.rsplit("/", 1)[-1] for c in checklist.captures)
        by = sum(e.by == "capture" for e in answered)
        page.wrapped(f"{names} answers {by} of {amount(len(checklist.entries), 'question')}:")
        for entry in answered:
            if entry.by == "capture" and entry.answer != "not_applicable":
                page.wrapped(f"{entry.id}: {entry.proof or 'yes'}", [mark(page, entry)], 4, "dim")
        page.blank()
    page.wrapped(
        f"{amount(left, 'question')} left to answer. Each answer is kept in {place} at once; "
        "Ctrl-C stops, --resume goes on."
    )


def question(page: Page, entry: CheckEntry, number: int, of: int, stage: str | None) -> None:
    """One question with why and how, below the title of its stage where that is new."""
    page.lines.append(Text(end=""))
    if stage is not None:
        page.line((stage, "bold underline"))
    page.wrapped(entry.question, [(f"{number}/{of} ", "dim")], 4, "bold")
    page.labelled("why", entry.why, 4)
    page.labelled("how", entry.how, 4)
    if entry.command:
        page.labelled("command", entry.command, 4)
    if entry.proof:
        page.labelled("measured", entry.proof, 4)


def render(page: Page, checklist: Checklist, verbosity: int = 0) -> None:
    """The whole list: every question with its answer; what is to be done stands out."""
    head = ", ".join(c.rsplit("/", 1)[-1] for c in checklist.captures)
    page.line(("Checklist of a performance analysis", "bold"), (f"  {head}" if head else "", "dim"))
    for stage, title in checklist.stages.items():
        entries = [e for e in checklist.entries if e.stage == stage]
        done = sum(not e.open for e in entries)
        page.heading(title, f"{done} of {len(entries)} answered")
        for entry in entries:
            _entry(page, entry, verbosity)
    page.blank()
    page.line((summary(checklist), "bold"))


def summary(checklist: Checklist) -> str:
    """``31 yes, 2 no, 5 not applicable, 7 open``"""
    parts = [f"{checklist.count(a)} {WORDS[a]}" for a in ("yes", "no", "not_applicable")]
    left = sum(e.open for e in checklist.entries)
    return f"{amount(len(checklist.entries), 'question')}: {', '.join(parts)}, {left} {OPEN}"


def mark(page: Page, entry: CheckEntry) -> Segment:
    glyphs = page.glyphs
    sign = {"yes": glyphs.ok, "no": glyphs.no, "not_applicable": glyphs.rule}.get(entry.answer or "", "?")
    return (f"  {sign} ", _STYLES.get(entry.answer or "", "yellow"))


def said(entry: CheckEntry) -> str:
    """The answer with its number and note, and the capture's where that differs."""
    word = WORDS[entry.answer] if entry.answer else OPEN
    parts = []
    if entry.proof:
        differs = entry.by == "person" and entry.measured not in (None, entry.answer)
        lead = f"the capture says {WORDS[entry.measured or 'yes']}: " if differs else ""
        parts.append(f"{lead}{entry.proof}")
    if entry.note:
        parts.append(f"note: {entry.note}")
    return f"{word} ({'; '.join(parts)})" if parts else word


def _entry(page: Page, entry: CheckEntry, verbosity: int) -> None:
    page.wrapped(entry.question, [mark(page, entry)], 4)
    page.wrapped(said(entry), ["    "], 4, "dim")
    if verbosity > 0 or entry.answer == "no":
        page.labelled("why", entry.why, 4)
        page.labelled("how", entry.how, 4)
        if entry.command:
            page.labelled("command", entry.command, 4)
    if verbosity > 0:
        page.labelled("id", entry.id, 4)
