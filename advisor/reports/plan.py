"""A plan of a capture as blocks: what to type, in order, and what every option is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from advisor.model.capture_plan import CapturePlan, FlagText, TroubleNode, Troubles, Variant
from advisor.reports.blocks import Block, Command, Gap, Heading, Item, Labelled, Next, Paragraph, Title


def plan(planned: CapturePlan, verbosity: int = 0) -> Iterator[Block]:
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


def _flag(flag: FlagText) -> Item:
    """What an option is for, what it supplies and what it costs."""
    supplies = f"supplies {', '.join(flag.supplies)}" if flag.supplies else ""
    cost = f"cost: {flag.overhead}" if flag.overhead not in ("", "none") else ""
    return Item("; ".join(t for t in (flag.why, supplies, cost) if t), code=flag.option)


def _variant(variant: Variant) -> Item:
    lines = (*(o.line for o in variant.options), *variant.lines)
    below: tuple[Block, ...] = (*(Command(line) for line in lines), *map(_flag, variant.flags))
    return Item(variant.text, code=f"{variant.title} ({variant.id})", below=below)


def goals(known: Sequence[tuple[str, str, str]], names: Mapping[str, Sequence[str]]) -> Iterator[Block]:
    """What may be planned: goals with their questions, engines, places."""
    yield Heading("Goals")
    yield from (Labelled(name, asks) for name, _, asks in known)
    for title, values in names.items():
        yield Heading(title)
        yield Paragraph(", ".join(values))
    yield Gap()
    yield Next(f"advisor capture {known[0][0]}")


def troubles(tree: Troubles) -> Iterator[Block]:
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
    node: TroubleNode, nodes: Mapping[str, TroubleNode], depth: int, shown: set[str]
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


def node(step: TroubleNode) -> Iterator[Block]:
    """One node of the tree, where a person walks through it."""
    yield Gap()
    if step.say:
        yield Paragraph(step.say, strong=True, dense=True)
    elif step.commands:
        yield Paragraph("Look at", dense=True)
    yield from map(Command, step.commands)
