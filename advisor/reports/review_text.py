"""Decisions of a review as Markdown, for the minutes or an issue, and as text."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.checklist import WORDS
from advisor.model.numbers import amount, value_text
from advisor.model.review import Decision, Review, SignOff
from advisor.reports.layout import Page
from advisor.reports.markdown import code, table, text


def markdown(review: Review) -> bytes:
    """Decided findings, then open ones, then the checklist where something was answered."""
    parts = [f"# Review of {code(review.workbook)}", f"**{text(summary(review))}**"]
    if review.captures:
        parts.append("Captures: " + ", ".join(code(c) for c in review.captures))
    decided = [d for d in review.decisions if not d.open]
    left = [d for d in review.decisions if d.open]
    if decided:
        parts += ["## Decided", _decisions(decided)]
    if left:
        parts += ["## Open", _decisions(left)]
    answered = [s for s in review.checklist if s.answer]
    if answered:
        parts += ["## Checklist", _checklist(answered)]
    return ("\n\n".join(parts) + "\n").encode("utf-8", "replace")


def summary(review: Review) -> str:
    """``5 findings: 2 accept, 1 defer, 2 open``"""
    words = dict.fromkeys(d.decision for d in review.decisions if d.decision)
    counts = [f"{sum(d.decision == w for d in review.decisions)} {w}" for w in words]
    counts.append(f"{sum(d.open for d in review.decisions)} open")
    return f"{amount(len(review.decisions), 'finding')}: {', '.join(counts)}"


def _decisions(decisions: Sequence[Decision]) -> str:
    several = len({d.capture for d in decisions}) > 1
    heads = [
        *(["capture"] if several else []),
        "finding",
        "severity",
        "share",
        "decision",
        "owner",
        "due",
        "comment",
    ]
    rows = []
    for d in decisions:
        share = "" if d.share is None else value_text(d.share, "ratio")
        name = f"{code(d.code)} {text(d.cause or d.title)}"
        said = [text(v) for v in (d.decision, d.owner, d.due or "", d.comment)]
        lead = [code(d.capture)] if several else []
        rows.append([*lead, name, text(d.severity), share, *said])
    return table(heads, [False] * len(heads), rows)


def _checklist(answered: Sequence[SignOff]) -> str:
    heads = ["question", "answer", "note", "signed by", "on"]
    rows = [
        [
            text(s.question or s.id),
            text(WORDS.get(s.answer, s.answer)),
            text(s.note),
            text(s.signed_by),
            text(s.signed_on or ""),
        ]
        for s in answered
    ]
    return table(heads, [False] * len(heads), rows)


def render(page: Page, review: Review) -> None:
    """A line a finding: what was decided, who does it, until when."""
    page.line((f"Review of {review.workbook}", "bold"), (f"  {summary(review)}", "dim"))
    for d in review.decisions:
        page.blank()
        page.line(
            (d.decision or "open", "bold" if d.decision else "yellow"),
            f"  {d.code} {d.cause}",
            (f"  {d.finding.partition('@')[2]}", "dim"),
        )
        for label, value in (("owner", d.owner), ("due", d.due), ("comment", d.comment)):
            if value:
                page.labelled(label, value)
    answered = [s for s in review.checklist if s.answer]
    if answered:
        page.heading("Checklist", f"{len(answered)} of {len(review.checklist)} answered")
        for s in answered:
            who = f" ({s.signed_by}{f', {s.signed_on}' if s.signed_on else ''})" if s.signed_by else ""
            page.wrapped(f"{s.question} {WORDS.get(s.answer, s.answer)}{who}", ["  "], 4)
