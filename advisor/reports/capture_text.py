"""A plan of a capture as text: what to type, in order, and what every option is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from advisor.model.capture_plan import CapturePlan, FlagText, PlanStep, TroubleNode, Troubles, Variant
from advisor.reports.layout import Page
from advisor.reports.shell import shell_lines


def plan(page: Page, planned: CapturePlan, verbosity: int = 0) -> None:
    """The whole plan; with `verbosity` below 0 the shell commands alone."""
    if verbosity < 0:
        lines = [line for step in planned.steps for line in step.lines if line.shell]
        commands(page, [line.command for line in lines], 0)
        return
    where = "" if planned.place == "bare" else f", {planned.place_title}"
    phase = f", {planned.phase}" if planned.phase else ""
    page.line((planned.title, "bold"), (f"  {planned.engine_title}{phase}{where}", "dim"))
    page.wrapped(f"{planned.question}", ["  "], 2)
    for number, step in enumerate(planned.steps, 1):
        _step(page, step, number)
    if planned.variables:
        page.heading("Variables")
        for v in planned.variables:
            _explained(page, f"{v.variable}={v.value}", [v.effect])
    if planned.flags:
        page.heading("Options", "what each is for, and what it costs")
        for flag in planned.flags:
            _explained(page, flag.option, _purpose(flag))
    if planned.pitfalls:
        page.heading("Mind")
        for trap in planned.pitfalls:
            page.wrapped(trap.text, [f"  {page.glyphs.arrow} "], 4)
    if planned.variants:
        page.heading("Variants", "what else may be wanted")
        for variant in planned.variants:
            _variant(page, variant)
    page.blank()
    page.wrapped(planned.again, [("Again: ", "dim")], 7, "bold")


def _step(page: Page, step: PlanStep, number: int) -> None:
    page.heading(f"{number} {step.title}")
    for i, line in enumerate(step.lines):
        for part in shell_lines(line.command, page.width, 2):
            page.line((part, "bold"))
        # What holds of several lines is said once, after the last.
        if line.what and (i + 1 == len(step.lines) or step.lines[i + 1].what != line.what):
            page.wrapped(line.what, ["    "], 4, "dim")
    for note in step.notes:
        page.wrapped(note, ["  ", ("note ", "dim")], 7)


def _purpose(flag: FlagText) -> list[str]:
    """What an option is for, what it supplies and what it costs."""
    supplies = f"supplies {', '.join(flag.supplies)}" if flag.supplies else ""
    cost = f"cost: {flag.overhead}" if flag.overhead not in ("", "none") else ""
    return [flag.why, supplies, cost]


def _explained(page: Page, name: str, texts: Iterable[str]) -> None:
    """``--trace=cuda   what it does; supplies kernels; cost: ...``"""
    text = "; ".join(t for t in texts if t)
    if cell_len(name) <= 28:
        page.labelled(name, text, 2, 30)
    else:
        page.line(("  " + name, "dim"))
        page.wrapped(text, [" " * 32], 32)


def _variant(page: Page, variant: Variant) -> None:
    page.line((f"  {variant.title}", "bold"), (f"  {variant.id}", "dim"))
    page.wrapped(variant.text, ["    "], 4)
    for option in variant.options:
        page.wrapped(option.line, ["    "], 6, "bold")
    for line in variant.lines:
        for part in shell_lines(line, page.width, 4):
            page.line((part, "bold"))
    for flag in variant.flags:
        text = "; ".join(p for p in _purpose(flag) if p)
        page.wrapped(text, ["      ", (f"{flag.option}  ", "dim")], 8)


def goals(page: Page, known: Sequence[tuple[str, str, str]], names: dict[str, list[str]]) -> None:
    """What may be planned: goals with their questions, engines, places."""
    page.line(("Goals", "bold underline"))
    width = max(len(k[0]) for k in known) + 2
    for name, _, asks in known:
        page.labelled(name, asks, 2, width)
    for title, values in names.items():
        page.heading(title)
        page.wrapped(", ".join(values), ["  "], 2)
    page.blank()
    page.line(("Next: ", "dim"), (f"advisor capture {known[0][0]}", "bold"))


def troubles(page: Page, tree: Troubles) -> None:
    """The decision tree as an outline."""
    nodes = {n.id: n for n in tree.nodes}
    if len(tree.symptoms) > 1:
        page.line((tree.ask, "bold"))
    for name in tree.symptoms:
        node = nodes[name]
        page.blank()
        page.line((node.symptom or node.ask or node.id, "bold underline"), (f"  {name}", "dim"))
        _node(page, node, nodes, 1, set())
    page.blank()
    page.line(("Next: ", "dim"), ("advisor capture --troubleshoot SYMPTOM", "bold"))


def _node(page: Page, node: TroubleNode, nodes: dict[str, TroubleNode], depth: int, shown: set[str]) -> None:
    margin = "  " * depth
    page.wrapped(node.say or node.ask or "", [margin], len(margin), "" if node.say else "italic")
    commands(page, node.commands, len(margin) + 2)
    for answer in node.answers:
        page.wrapped(answer.text, [margin, f"{page.glyphs.arrow} "], len(margin) + 3, "bold")
        then = nodes[answer.then]
        if then.id in shown or (then.symptom is not None and depth > 1):
            page.line(margin + "  ", (f"see {then.id}", "dim"))
        else:
            shown.add(then.id)
            _node(page, then, nodes, depth + 1, shown)


def commands(page: Page, lines: Sequence[str], indent: int) -> None:
    for line in lines:
        for part in shell_lines(line, page.width, indent):
            page.line((part, "bold"))


def node(page: Page, step: TroubleNode) -> None:
    """One node of the tree, where a person walks through it."""
    page.blank()
    if step.say:
        page.wrapped(step.say, ["  "], 2, "bold")
        commands(page, step.commands, 4)
    elif step.commands:
        page.line(("  Look at", "dim"))
        commands(page, step.commands, 4)
