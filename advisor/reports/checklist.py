"""The checklist as blocks: one question at a time, the list, the result."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.numbers import amount
from advisor.model.review import WORDS, CheckEntry, Checklist
from advisor.reports.blocks import Block, Gap, Heading, Item, Labelled, Paragraph, Title

_SIGNS = {"yes": "ok", "no": "no", "not_applicable": "-"}
OPEN = "open"


def welcome(checklist: Checklist, place: str) -> Iterator[Block]:
    """What is answered already and what follows, before the first question."""
    answered = [e for e in checklist.entries if not e.open]
    left = len(checklist.entries) - len(answered)
    if checklist.captures:
        by = sum(e.by == "capture" for e in answered)
        total = amount(len(checklist.entries), "question")
        yield Paragraph(f"{_names(checklist)} answers {by} of {total}:", dense=True)
        for entry in answered:
            if entry.by == "capture" and entry.answer != "not_applicable":
                yield Item(entry.proof or "yes", _sign(entry), entry.id)
    yield Paragraph(
        f"{amount(left, 'question')} left to answer. Each answer is kept in {place} at once; "
        "Ctrl-C stops, --resume goes on."
    )


def question(entry: CheckEntry, number: int, of: int, stage: str | None) -> Iterator[Block]:
    """One question with why and how, below the title of its stage where that is new."""
    yield Gap()
    if stage is not None:
        yield Heading(stage)
    yield Paragraph(f"{number}/{of} {entry.question}", strong=True, dense=True)
    yield from _about(entry)
    if entry.proof:
        yield Labelled("measured", entry.proof)


def checklist(doc: Checklist, verbosity: int = 0) -> Iterator[Block]:
    """The whole list: every question with its answer; what is to be done stands out."""
    yield Title("Checklist of a performance analysis")
    if doc.captures:
        yield Paragraph(_names(doc), dense=True)
    for stage, title in doc.stages.items():
        entries = [e for e in doc.entries if e.stage == stage]
        done = sum(not e.open for e in entries)
        yield Heading(title, f"{done} of {len(entries)} answered")
        yield from (_entry(e, verbosity) for e in entries)
    yield Gap()
    yield Paragraph(summary(doc), strong=True)


def summary(checklist: Checklist) -> str:
    """``31 yes, 2 no, 5 not applicable, 7 open``"""
    parts = [f"{checklist.count(a)} {WORDS[a]}" for a in ("yes", "no", "not_applicable")]
    left = sum(e.open for e in checklist.entries)
    return f"{amount(len(checklist.entries), 'question')}: {', '.join(parts)}, {left} {OPEN}"


def _names(checklist: Checklist) -> str:
    return ", ".join(c.rsplit("/", 1)[-1] for c in checklist.captures)


def _sign(entry: CheckEntry) -> str:
    return _SIGNS.get(entry.answer or "", "?")


def proof_of(entry: CheckEntry) -> str:
    """The answer with its number and note, and the capture's where that differs."""
    word = WORDS[entry.answer] if entry.answer else OPEN
    if entry.by == "capture":
        word += ", by the capture"
    parts = []
    if entry.proof:
        differs = entry.by == "person" and entry.measured not in (None, entry.answer)
        lead = f"the capture says {WORDS[entry.measured or 'yes']}: " if differs else ""
        parts.append(f"{lead}{entry.proof}")
    if entry.note:
        parts.append(f"note: {entry.note}")
    return f"{word} ({'; '.join(parts)})" if parts else word


def _entry(entry: CheckEntry, verbosity: int) -> Item:
    below = tuple(_about(entry)) if verbosity > 0 or entry.answer == "no" else ()
    if verbosity > 0:
        below = (*below, Labelled("id", entry.id))
    done = entry.answer in ("yes", "not_applicable")
    return Item(entry.question, _sign(entry), notes=(proof_of(entry),), below=below, tick=done)


def _about(entry: CheckEntry) -> Iterator[Labelled]:
    for label, text in (("why", entry.why), ("how", entry.how), ("command", entry.command)):
        if text:
            yield Labelled(label, text)
