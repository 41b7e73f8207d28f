"""The checklist in Markdown: task lists, so that they can be ticked where Markdown is shown."""

from __future__ import annotations

from advisor.model.checklist import CheckEntry, Checklist
from advisor.reports.checklist_text import said, summary
from advisor.reports.markdown import code, prose, text


def render(checklist: Checklist) -> bytes:
    """One list a stage; what was answered with no says what to do."""
    parts = ["# Checklist of a performance analysis"]
    if checklist.captures:
        parts.append(", ".join(code(c.rsplit("/", 1)[-1]) for c in checklist.captures))
    parts.append(f"**{text(summary(checklist))}**")
    for stage, title in checklist.stages.items():
        entries = [e for e in checklist.entries if e.stage == stage]
        parts.append(f"## {text(title)}")
        parts.append("\n".join(_entry(e) for e in entries))
    return ("\n\n".join(parts) + "\n").encode("utf-8", "replace")


def _entry(entry: CheckEntry) -> str:
    tick = "x" if entry.answer in ("yes", "not_applicable") else " "
    line = f"- [{tick}] {prose(entry.question)} **{text(said(entry))}**"
    if entry.answer in ("no", "later", None):
        line += f"\n  - {prose(entry.how)}"
        if entry.command:
            line += f"\n  - {code(entry.command)}"
    return line
