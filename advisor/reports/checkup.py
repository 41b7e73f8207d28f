"""What a capture can answer and how to record a better one, as blocks: checkup and capture plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.model import capture_plan as m
from advisor.model.numbers import amount, value_text
from advisor.reports.blocks import Block, Command, Gap, Heading, Item, Labelled, Next, Paragraph, Title
from advisor.reports.header import header_input
from advisor.reports.layout import GLUE
from advisor.reports.phrases import remedy_text


def plan(planned: m.CapturePlan, verbosity: int = 0) -> Iterator[Block]:
    """The whole plan; with `verbosity` below 0 the shell commands alone."""
    if verbosity < 0:
        yield from (Command(line.command) for step in planned.steps for line in step.lines if line.shell)
        return
    about = [planned.engine_title, planned.phase, "" if planned.place == "bare" else planned.place_title]
    yield Title(planned.title)
    yield Paragraph(", ".join(a for a in about if a), dense=True)
    yield Paragraph(planned.question, dense=True)
    for number, step in enumerate(planned.steps, 1):
        yield Heading(f"{number} {step.title}")
        for i, line in enumerate(step.lines):
            yield Command(line.command)
            # What holds of several lines is said once, after the last.
            if line.what and (i + 1 == len(step.lines) or step.lines[i + 1].what != line.what):
                yield Paragraph(line.what, dense=True)
        for note in step.notes:
            yield Labelled("note", note)
    if planned.variables:
        yield Heading("Variables")
        yield from (Item(v.effect, code=f"{v.variable}={v.value}") for v in planned.variables)
    if planned.flags:
        yield Heading("Options", "what each is for, and what it costs")
        yield from map(_flag, planned.flags)
    if planned.pitfalls:
        yield Heading("Mind")
        yield from (Item(trap.text, "-") for trap in planned.pitfalls)
    if planned.variants:
        yield Heading("Variants", "what else may be wanted")
        yield from map(_variant, planned.variants)
    yield Gap()
    yield Paragraph(f"Again: {planned.again}")


def _flag(flag: m.FlagText) -> Item:
    """What an option is for, what it supplies and what it costs."""
    supplies = f"supplies {', '.join(flag.supplies)}" if flag.supplies else ""
    cost = f"cost: {flag.overhead}" if flag.overhead not in ("", "none") else ""
    return Item("; ".join(t for t in (flag.why, supplies, cost) if t), code=flag.option)


def _variant(variant: m.Variant) -> Item:
    lines = (*(o.line for o in variant.options), *variant.lines)
    below: tuple[Block, ...] = (*(Command(line) for line in lines), *map(_flag, variant.flags))
    return Item(variant.text, code=f"{variant.title} ({variant.id})", below=below)


def goals(doc: m.GoalList) -> Iterator[Block]:
    """What may be planned."""
    yield Heading("Goals")
    yield from (Labelled(name, question) for name, question in doc.goals.items())
    for title, names in (
        ("Engines", doc.engines),
        ("Places (--where)", doc.places),
        ("Symptoms (--troubleshoot)", doc.symptoms),
    ):
        yield Heading(title)
        yield Paragraph(", ".join(names))
    yield Gap()
    yield Next(f"advisor capture {next(iter(doc.goals))}")


def troubles(tree: m.Troubles) -> Iterator[Block]:
    """The decision tree as an outline."""
    nodes = {n.id: n for n in tree.nodes}
    if len(tree.symptoms) > 1:
        yield Title(tree.ask)
    for name in tree.symptoms:
        node = nodes[name]
        yield Heading(node.symptom or node.ask or node.id, name)
        yield from _node(node, nodes, 1, set())
    yield Gap()
    yield Next("advisor capture --troubleshoot SYMPTOM")


def _node(
    node: m.TroubleNode, nodes: Mapping[str, m.TroubleNode], depth: int, shown: set[str]
) -> Iterator[Block]:
    yield Paragraph(node.say or node.ask or "", dense=True)
    yield from map(Command, node.commands)
    for answer in node.answers:
        then = nodes[answer.then]
        if then.id in shown or (then.symptom is not None and depth > 1):
            below: tuple[Block, ...] = (Paragraph(f"see {then.id}", dense=True),)
        else:
            shown.add(then.id)
            below = tuple(_node(then, nodes, depth + 1, shown))
        yield Item(answer.text, "→", below=below)


def node(step: m.TroubleNode) -> Iterator[Block]:
    """One node of the tree, where a person walks through it."""
    yield Gap()
    if step.say:
        yield Paragraph(step.say, strong=True, dense=True)
    elif step.commands:
        yield Paragraph("Look at", dense=True)
    yield from map(Command, step.commands)


#: More rules than these are counted, where they were named before.
SHOWN_NAMES = 6
_SIGNS = {"yes": "ok", "partly": "partly", "no": "no"}


def checkup(doc: m.Checkup, verbosity: int = 0) -> Iterator[Block]:
    """The whole report; the command to record again comes last but one line."""
    yield from header_input(doc.input)
    yield from _recorded(doc)
    yield Paragraph(doc.sentence, strong=True)
    yield Heading("What it can answer")
    for asked in doc.questions:
        reason = asked.reason + (f"; {remedy_text(asked.remedy)}" if asked.remedy else "")
        yield Item(asked.question, _SIGNS[asked.answer], asked.answer, (reason,))
    yield Heading("Capture quality", "findings about the capture itself")
    if not doc.findings:
        yield Item("nothing is wrong with it", "ok")
    for found in doc.findings:
        matters = found.severity != "info" or found.invalidates
        advice = found.recommendations[: None if verbosity > 0 else int(matters)]
        fixes = tuple(f"fix: {a.action}" for a in advice)
        yield Item(found.message, found.severity, f"{found.severity} {found.code} {found.cause}", fixes)
    yield from _blocked(doc, verbosity)
    yield from _plan(doc.plan, verbosity)
    yield Gap()
    if any(f.invalidates for f in doc.findings):
        yield Next("record again as above, then: advisor doctor advisor_recapture.sqlite")
    else:
        yield Next(f"advisor {doc.input.path}")


def _recorded(doc: m.Checkup) -> Iterator[Block]:
    found = doc.recorded
    parts = [value_text(found.size_bytes, "bytes")]
    if found.schema_version:
        parts.append(f"schema {found.schema_version}")
    if found.duration_ms:
        parts.append(f"{value_text(found.duration_ms, 'ms')} recorded")
    yield Labelled("file", f"{doc.input.format}, {', '.join(parts)}")
    yield Labelled("program", " ".join(found.command) or "not in the export")
    options = " ".join(merged(found.options)) or "none recorded in the export"
    inferred = " (as far as what was recorded shows)" if found.options and not found.options_known else ""
    yield Labelled("options", options + inferred)
    if found.graph_trace:
        yield Labelled("graphs", f"traced by {found.graph_trace}")
    yield Labelled("sampled", ", ".join(found.sampled) or "nothing")
    rows = [f"{count:,} {table.replace('_', ' ')}" for table, count in found.tables.items()]
    yield Labelled("holds", ", ".join(rows) or "no rows")


def merged(options: tuple[str, ...]) -> list[str]:
    """Options as one types them: the trace sources in one list."""
    sources = [o[8:] for o in options if o.startswith("--trace=")]
    rest = [o for o in options if not o.startswith("--trace=")]
    return [f"--trace={','.join(sources)}", *rest] if sources else rest


def _blocked(doc: m.Checkup, verbosity: int) -> Iterator[Block]:
    waiting = sum(len(group.rules) for group in doc.blocked)
    if not waiting:
        return
    yield Heading("Rules that cannot run", f"{waiting} of {doc.rules}, by what is missing")
    for group in doc.blocked:
        helps = remedy_text(group.remedy) if group.remedy else "nothing that can be recorded would help"
        why = tuple(f"as {w}" for w in group.why) if verbosity > 0 else ()
        yield Item(helps, code=amount(len(group.rules), "rule"), notes=(_names(group.rules), *why))


def _names(rules: tuple[m.Named, ...]) -> str:
    return ", ".join(f"{r.code}{GLUE}{r.cause}" for r in rules)


def _plan(plan: m.Plan, verbosity: int) -> Iterator[Block]:
    news = [o for o in plan.options if o.new]
    if not (plan.enables or plan.addresses or news or plan.also or plan.left_out):
        return
    yield Heading("Record again", _enables(plan))
    if plan.command:
        yield Command(plan.command)
    for option in plan.options if verbosity > 0 else news:
        cost = f"overhead: {option.overhead}" if option.overhead else ""
        text = "; ".join(t for t in (option.purpose, cost) if t)
        yield Labelled("new" if option.new else "kept", f"{option.option}{f': {text}' if text else ''}")
    for item in plan.also:
        yield Labelled("also", _also(item))
    for left in plan.left_out:
        text = f"{left.option} ({_names(left.rules)}): {left.overhead}; a capture of its own"
        yield Labelled("not", text)
    for trap in plan.pitfalls:
        yield Labelled("mind", trap.text)


def _also(item: m.Also) -> str:
    if len(item.rules) > SHOWN_NAMES:
        return f"{item.need}, for {amount(len(item.rules), 'rule')}"
    return item.need + (f", for {_names(item.rules)}" if item.rules else "")


def _enables(plan: m.Plan) -> str:
    parts = []
    if plan.enables:
        parts.append(f"lets {amount(len(plan.enables), 'more rule')} run")
    if plan.addresses:
        parts.append(f"addresses {', '.join(plan.addresses)}")
    return "; ".join(parts)
