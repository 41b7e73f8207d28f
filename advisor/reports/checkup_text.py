"""The checkup of a capture, for people."""

from __future__ import annotations

from advisor.model.checkup import Also, Checkup, Named, Plan
from advisor.model.numbers import amount, value_text
from advisor.model.rules import Reply
from advisor.reports.blocks import LEVEL_STYLE, level_text, write
from advisor.reports.header import header_input
from advisor.reports.layout import GLUE, Page, Segment, pad
from advisor.reports.shell import shell_lines
from advisor.reports.wording import remedy_lead, remedy_text

_WORD = 8
#: More rules than these are counted, where they were named before.
SHOWN_NAMES = 6


def checkup(page: Page, doc: Checkup, verbosity: int = 0) -> None:
    """The whole report; the command to record again comes last but one line."""
    write(page, header_input(doc.input))
    _recorded(page, doc)
    page.blank()
    page.wrapped(doc.sentence, style="bold")
    _questions(page, doc)
    _findings(page, doc, verbosity)
    _blocked(page, doc, verbosity)
    _plan(page, doc.plan, verbosity)
    page.blank()
    page.line(("Next: ", "dim"), (_next(doc), "bold"))


def _recorded(page: Page, doc: Checkup) -> None:
    found = doc.recorded
    parts = [value_text(found.size_bytes, "bytes")]
    if found.schema_version:
        parts.append(f"schema {found.schema_version}")
    if found.duration_ms:
        parts.append(f"{value_text(found.duration_ms, 'ms')} recorded")
    page.labelled("file", f"{doc.input.format}, {', '.join(parts)}")
    page.labelled("program", " ".join(found.command) or "not in the export")
    options = " ".join(merged(found.options)) or "none that the export tells"
    told = " (as far as what was recorded shows)" if found.options and not found.options_known else ""
    page.labelled("options", options + told)
    if found.graph_trace:
        page.labelled("graphs", f"traced by {found.graph_trace}")
    page.labelled("sampled", ", ".join(found.sampled) or "nothing")
    rows = [f"{count:,} {table.replace('_', ' ')}" for table, count in found.tables.items()]
    page.labelled("holds", ", ".join(rows) or "no rows")


def merged(options: tuple[str, ...]) -> list[str]:
    """Options as one types them: the trace sources in one list."""
    sources = [o[8:] for o in options if o.startswith("--trace=")]
    rest = [o for o in options if not o.startswith("--trace=")]
    return [f"--trace={','.join(sources)}", *rest] if sources else rest


def _sign(page: Page, answer: Reply) -> Segment:
    glyph, style = {
        "yes": (page.glyphs.ok, "green"),
        "partly": (page.glyphs.partly, "yellow"),
        "no": (page.glyphs.no, "red"),
    }[answer]
    return (f"  {glyph} {pad(answer, _WORD)}", style)


def _questions(page: Page, doc: Checkup) -> None:
    page.heading("What it can answer")
    for asked in doc.questions:
        page.wrapped(asked.question, [_sign(page, asked.answer)], 4 + _WORD)
        text = asked.reason
        if asked.remedy:
            text += f"; {remedy_text(asked.remedy)}"
        page.wrapped(text, [" " * (4 + _WORD)], 4 + _WORD, "dim")


def _findings(page: Page, doc: Checkup, verbosity: int) -> None:
    page.heading("Capture quality", "findings about the capture itself")
    if not doc.findings:
        page.line(f"  {page.glyphs.ok} nothing is wrong with it")
    for found in doc.findings:
        page.line(
            "  ",
            (level_text(page.glyphs, found.severity), LEVEL_STYLE[found.severity]),
            " ",
            (f"{found.code} {found.cause}", "bold"),
        )
        page.wrapped(found.message, ["    "], 4)
        told = found.severity != "info" or found.invalidates
        for advice in found.recommendations[: None if verbosity > 0 else int(told)]:
            page.labelled("do", advice.action, 4, 4)


def _blocked(page: Page, doc: Checkup, verbosity: int) -> None:
    waiting = sum(len(group.rules) for group in doc.blocked)
    if not waiting:
        return
    page.heading("Rules that cannot run", f"{waiting} of {doc.rules}, by what is missing")
    for group in doc.blocked:
        count = amount(len(group.rules), "rule")
        if group.remedy is None:
            page.line(f"  {count}: nothing that can be recorded would help")
        else:
            page.wrapped(group.remedy, [f"  {count}: {remedy_lead(group.remedy)} "], 4, "bold")
        page.wrapped(_names(group.rules), ["    "], 4)
        for why in group.why if verbosity > 0 else ():
            page.wrapped(why, ["    as "], 6, "dim")


def _names(rules: tuple[Named, ...]) -> str:
    return ", ".join(f"{r.code}{GLUE}{r.cause}" for r in rules)


def _plan(page: Page, plan: Plan, verbosity: int) -> None:
    news = [o for o in plan.options if o.new]
    if not (plan.enables or plan.addresses or news or plan.also or plan.left_out):
        return
    page.heading("Record again", _enables(plan))
    for line in shell_lines(plan.command, page.width, 2) if plan.command else ():
        page.line((line, "bold"))
    for option in plan.options if verbosity > 0 else news:
        cost = f"overhead: {option.overhead}" if option.overhead else ""
        text = "; ".join(t for t in (option.purpose, cost) if t)
        said = f"{option.option}{f': {text}' if text else ''}"
        page.wrapped(said, [("  new  " if option.new else "  kept ", "dim")], 9)
    for item in plan.also:
        page.wrapped(_also(item), [("  also ", "dim")], 9)
    for left in plan.left_out:
        text = f"{left.option} ({_names(left.rules)}): {left.overhead}; a capture of its own"
        page.wrapped(text, [("  not  ", "dim")], 9)
    for trap in plan.pitfalls:
        page.wrapped(trap.text, [("  mind ", "dim")], 9)


def _also(item: Also) -> str:
    if len(item.rules) > SHOWN_NAMES:
        return f"{item.need}, for {amount(len(item.rules), 'rule')}"
    return item.need + (f", for {_names(item.rules)}" if item.rules else "")


def _enables(plan: Plan) -> str:
    parts = []
    if plan.enables:
        parts.append(f"lets {amount(len(plan.enables), 'more rule')} run")
    if plan.addresses:
        parts.append(f"addresses {', '.join(plan.addresses)}")
    return "; ".join(parts)


def _next(doc: Checkup) -> str:
    if any(f.invalidates for f in doc.findings):
        return "record again as above, then: advisor doctor advisor_recapture.sqlite"
    return f"advisor {doc.input.path}"
