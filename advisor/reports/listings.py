"""What verbs print as blocks: checkups and capture plans, facts, what-ifs, baselines, redacted copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from advisor.model import capture_plan as m
from advisor.model.explanation import WhatIfList
from advisor.model.facts import Fact
from advisor.model.findings import Diagnosis, StepSummary
from advisor.model.numbers import amount, fact_unit, milliseconds, value_text
from advisor.model.records import Frozen
from advisor.reports import blocks as b
from advisor.reports.blocks import Block, Gap, Grid, Heading, Item, Labelled, Next, Paragraph, Title
from advisor.reports.layout import GLUE
from advisor.reports.phrases import header_input, remedy_text


class FactList(Frozen, frozen=True, kw_only=True):
    """The facts that rules may use."""

    schema_version: int = 1
    facts: tuple[dict[str, str], ...]

    @classmethod
    def of(cls, specs: Iterable[object]) -> FactList:
        """From the declarations of facts."""
        keys = ("name", "unit", "level", "meaning", "how", "flag")
        return cls(facts=tuple({key: getattr(spec, key) for key in keys} for spec in specs))


class FactValues(Frozen, frozen=True, kw_only=True):
    """Facts with their values in a capture."""

    schema_version: int = 1
    capture: str
    facts: tuple[Fact, ...]


def catalogue(listed: FactList) -> Iterator[Block]:
    """Facts by name, unit, level, meaning, method and the capture option that supplies them."""
    group = ""
    for fact in listed.facts:
        name, how, flag = fact["name"], fact["how"], fact["flag"]
        if name.split(".")[0] != group:
            group = name.split(".")[0]
            yield Heading(group)
        notes = (f"{fact['meaning']} ({how})" if how else fact["meaning"], f"from {flag}" if flag else "")
        yield Item(f"{fact['unit']}, by {fact['level']}", code=name, notes=tuple(filter(None, notes)))
    yield Gap()
    yield Paragraph(amount(len(listed.facts), "fact"))


def values(found: FactValues) -> Iterator[Block]:
    """Each value with its scope, the tables and columns read, and the method."""
    for fact in found.facts:
        where = fact.scope.label()
        source = ", ".join(fact.tables) + (f" ({', '.join(fact.columns)})" if fact.columns else "")
        note = ": ".join(t for t in (source, fact.method) if t)
        shown = value_text(fact.value, fact_unit(fact.name, fact.unit))
        yield Item(f"{shown}  {where}".strip(), code=fact.name, notes=(note,) if note else ())
    yield Gap()
    yield Paragraph(amount(len(found.facts), "value"))


def whatifs(listed: WhatIfList) -> Iterator[Block]:
    """All what-ifs: name, title, measure, what changes, a line a parameter."""
    for name, spec in listed.whatifs.items():
        note = "" if spec["measure"] == "latency" else f" ({spec['measure']})"
        params = [
            f":{key}={p['default']:{'g' if isinstance(p['default'], float) else ''}}  "
            f"{p['meaning']} ({'|'.join(p['choices']) or p['unit']})"
            for key, p in spec["params"].items()
        ]
        yield Item(spec["title"] + note, code=name, notes=(spec["changes"], *params))


class BaselineEntry(Frozen, frozen=True, kw_only=True):
    """One diagnosis of a baseline in short."""

    captures: tuple[str, ...]
    steps: tuple[StepSummary, ...]
    verdict: str


class SavedBaseline(Frozen, frozen=True, kw_only=True):
    """The baseline saved under a name; `fault` says why a file cannot be read."""

    name: str
    entries: tuple[BaselineEntry, ...]
    fault: str = ""


class BaselineList(Frozen, frozen=True, kw_only=True):
    """The baselines of a folder."""

    schema_version: int = 1
    folder: str
    baselines: tuple[SavedBaseline, ...]


def baselines(listed: BaselineList) -> Iterator[Block]:
    """For each name its capture, its steps, its verdict; the fault of a bad file."""
    for saved in listed.baselines:
        yield from baseline(saved.name, saved.entries)
        yield from b.labelled(("unusable", saved.fault))
    yield Gap()
    yield Paragraph(f"{amount(len(listed.baselines), 'baseline')} in {listed.folder}")


def in_short(diagnosis: Diagnosis) -> BaselineEntry:
    captures = tuple(i.path for i in diagnosis.inputs)
    return BaselineEntry(captures=captures, steps=diagnosis.main_steps, verdict=diagnosis.verdict)


def baseline(name: str, entries: Sequence[BaselineEntry]) -> Iterator[Block]:
    """One name and its content."""
    yield Title(name)
    for e in entries:
        steps = (f"{amount(s.count, f'{s.phase} step')} of {milliseconds(s.median_ms)} ms" for s in e.steps)
        captures = ", ".join(e.captures)
        yield from b.labelled(("capture", captures), ("steps", ", ".join(steps)), ("verdict", e.verdict))


def redacted(source: str, target: str, done: Any) -> Iterator[Block]:
    """What a copy leaves out: `done` has sizes, what was `removed`, and texts that are `kept`."""
    before, after = (value_text(size, "bytes") for size in (done.bytes_before, done.bytes_after))
    yield Paragraph(f"{target} ({after}), from {source} ({before}), which is unchanged", strong=True)
    if done.removed:
        yield Heading("Taken out or changed")
        yield Grid(("what", "count", "table"), tuple((r.what, r.count, r.table) for r in done.removed))
    else:
        yield Paragraph("Nothing private was found.", dense=True)
    if done.kept:
        yield Heading("Kept: read it before you pass the copy on")
        for kept in done.kept:
            more = kept.count - len(kept.shown)
            rest = f" and {more:,} more" if more else ""
            listed = f": {kept.listed.format(target)}" if more and kept.listed else ""
            yield Labelled(kept.what, f"{', '.join(kept.shown)}{rest}{listed}")
    yield Paragraph("Times, sizes, devices and other numbers stay, too.", dense=True)
    yield Next(f"advisor {target}")


def plan(planned: m.CapturePlan, verbosity: int = 0) -> Iterator[b.Block]:
    """The whole plan; with `verbosity` below 0 the shell commands alone."""
    if verbosity < 0:
        yield from (b.Command(line.command) for step in planned.steps for line in step.lines if line.shell)
        return
    about = [planned.engine_title, planned.phase, "" if planned.place == "bare" else planned.place_title]
    yield b.Title(planned.title)
    yield b.Paragraph(", ".join(a for a in about if a), dense=True)
    yield b.Paragraph(planned.question, dense=True)
    for number, step in enumerate(planned.steps, 1):
        yield b.Heading(f"{number} {step.title}")
        for i, line in enumerate(step.lines):
            yield b.Command(line.command)
            # A text shared by consecutive lines is printed once, after the last.
            if line.what and (i + 1 == len(step.lines) or step.lines[i + 1].what != line.what):
                yield b.Paragraph(line.what, dense=True)
        yield from (b.Labelled("note", note) for note in step.notes)
    variables = [b.Item(v.effect, code=f"{v.variable}={v.value}") for v in planned.variables]
    variants = []
    for v in planned.variants:
        lines = map(b.Command, (*(o.line for o in v.options), *v.lines))
        below: tuple[b.Block, ...] = (*lines, *map(_flag, v.flags))
        variants.append(b.Item(v.text, code=f"{v.title} ({v.id})", below=below))
    for heading, note, items in (
        ("Variables", "", variables),
        ("Options", "what each is for, and what it costs", [*map(_flag, planned.flags)]),
        ("Mind", "", [b.Item(trap.text, "-") for trap in planned.pitfalls]),
        ("Variants", "what else may be wanted", variants),
    ):
        if items:
            yield b.Heading(heading, note)
            yield from items
    yield b.Gap()
    yield b.Paragraph(f"Again: {planned.again}")


def _flag(flag: m.FlagText) -> b.Item:
    """The purpose of an option, what it supplies and what it costs."""
    supplies = f"supplies {', '.join(flag.supplies)}" if flag.supplies else ""
    cost = f"cost: {flag.overhead}" if flag.overhead not in ("", "none") else ""
    return b.Item("; ".join(t for t in (flag.why, supplies, cost) if t), code=flag.option)


def goals(doc: m.GoalList) -> Iterator[b.Block]:
    """The goals that can be planned."""
    yield b.Heading("Goals")
    yield from (b.Labelled(name, question) for name, question in doc.goals.items())
    for title, names in (
        ("Engines", doc.engines),
        ("Places (--where)", doc.places),
        ("Symptoms (--troubleshoot)", doc.symptoms),
    ):
        yield b.Heading(title)
        yield b.Paragraph(", ".join(names))
    yield b.Gap()
    yield b.Next(f"advisor capture {next(iter(doc.goals))}")


def troubles(tree: m.Troubles) -> Iterator[b.Block]:
    """The decision tree as an outline."""
    nodes = {n.id: n for n in tree.nodes}
    if len(tree.symptoms) > 1:
        yield b.Title(tree.ask)
    for name in tree.symptoms:
        node = nodes[name]
        yield b.Heading(node.symptom or node.ask or node.id, name)
        yield from _node(node, nodes, True, set())
    yield b.Gap()
    yield b.Next("advisor capture --troubleshoot SYMPTOM")


def _node(
    at: m.TroubleNode, nodes: Mapping[str, m.TroubleNode], top: bool, shown: set[str]
) -> Iterator[b.Block]:
    yield b.Paragraph(at.say or at.ask or "", dense=True)
    yield from map(b.Command, at.commands)
    for answer in at.answers:
        then = nodes[answer.then]
        below: tuple[b.Block, ...] = (b.Paragraph(f"see {then.id}", dense=True),)
        if then.id not in shown and (top or then.symptom is None):
            shown.add(then.id)
            below = tuple(_node(then, nodes, False, shown))
        yield b.Item(answer.text, "→", below=below)


def node(step: m.TroubleNode) -> Iterator[b.Block]:
    """One node of the tree, for a person who walks through it."""
    yield b.Gap()
    if step.say or step.commands:
        yield b.Paragraph(step.say or "Look at", strong=bool(step.say), dense=True)
    yield from map(b.Command, step.commands)


#: Number of rules of a need that are named; the rest are counted.
SHOWN_NAMES = 6
_SIGNS = {"yes": "ok", "partly": "partly", "no": "no"}


def checkup(doc: m.Checkup, verbosity: int = 0) -> Iterator[b.Block]:
    """The whole report; the command to record again comes last but one line."""
    yield from header_input(doc.input, doc.steps)
    if doc.of_job:
        yield b.Labelled("job", doc.of_job)
    yield from _recorded(doc)
    yield b.Paragraph(doc.sentence, strong=True)
    yield b.Heading("What it can answer")
    for asked in doc.questions:
        reason = asked.reason + (f"; {remedy_text(asked.remedy)}" if asked.remedy else "")
        yield b.Item(asked.question, _SIGNS[asked.answer], asked.answer, (reason,))
    yield b.Heading("Capture quality", "findings about the capture itself")
    if not doc.findings:
        yield b.Item("nothing is wrong with it", "ok")
    for found in doc.findings:
        matters = found.severity != "info" or found.invalidates
        advice = found.recommendations[: None if verbosity > 0 else int(matters)]
        fixes = tuple(f"fix: {a.action}" for a in advice)
        yield b.Item(found.message, found.severity, f"{found.severity} {found.code} {found.cause}", fixes)
    if waiting := sum(len(group.rules) for group in doc.blocked):
        yield b.Heading(
            "Rules that cannot run", f"{waiting} of the {doc.rules} about a capture, by what is missing"
        )
    for group in doc.blocked:
        helps = remedy_text(group.remedy) if group.remedy else "nothing that can be recorded would help"
        why = tuple(f"as {w}" for w in group.why) if verbosity > 0 else ()
        yield b.Item(helps, code=amount(len(group.rules), "rule"), notes=(_names(group.rules), *why))
    yield from _plan(doc.plan, verbosity)
    yield b.Gap()
    if any(f.invalidates for f in doc.findings):
        yield b.Next("record again as above, then: advisor doctor advisor_recapture.sqlite")
    else:
        yield b.Next(f"advisor {doc.input.path}")


def _recorded(doc: m.Checkup) -> Iterator[b.Block]:
    found = doc.recorded
    parts = [doc.input.format, value_text(found.size_bytes, "bytes")]
    parts += [f"schema {found.schema_version}"] * bool(found.schema_version)
    parts += [f"{value_text(found.duration_ms, 'ms')} recorded"] * bool(found.duration_ms)
    options = " ".join(merged(found.options)) or "none recorded in the export"
    inferred = " (as far as what was recorded shows)" if found.options and not found.options_known else ""
    rows = [f"{count:,} {table.replace('_', ' ')}" for table, count in found.tables.items()]
    yield from b.labelled(
        ("file", ", ".join(parts)),
        ("program", " ".join(found.command) or "not in the export"),
        ("options", options + inferred),
        ("graphs", f"traced by {found.graph_trace}" if found.graph_trace else ""),
        ("sampled", ", ".join(found.sampled) or "nothing"),
        ("holds", ", ".join(rows) or "no rows"),
    )


def merged(options: tuple[str, ...]) -> list[str]:
    """Options as typed: the trace sources in one list."""
    sources = [o[8:] for o in options if o.startswith("--trace=")]
    rest = [o for o in options if not o.startswith("--trace=")]
    return [f"--trace={','.join(sources)}", *rest] if sources else rest


def _names(rules: tuple[m.Named, ...]) -> str:
    return ", ".join(f"{r.code}{GLUE}{r.cause}" for r in rules)


def _plan(plan: m.Plan, verbosity: int) -> Iterator[b.Block]:
    news = [o for o in plan.options if o.new]
    if not (plan.enables or plan.addresses or news or plan.also or plan.left_out):
        return
    lets = [f"lets {amount(len(plan.enables), 'more rule')} run"] * bool(plan.enables)
    lets += [f"addresses {', '.join(plan.addresses)}"] * bool(plan.addresses)
    yield b.Heading("Record again", "; ".join(lets))
    if plan.command:
        yield b.Command(plan.command)
    for option in plan.options if verbosity > 0 else news:
        cost = f"overhead: {option.overhead}" if option.overhead else ""
        text = "; ".join(t for t in (option.purpose, cost) if t)
        yield b.Labelled("new" if option.new else "kept", f"{option.option}{f': {text}' if text else ''}")
    for also in plan.also:
        many = len(also.rules) > SHOWN_NAMES
        names = amount(len(also.rules), "rule") if many else _names(also.rules)
        yield b.Labelled("also", also.need + (f", for {names}" if names else ""))
    for left in plan.left_out:
        text = f"{left.option} ({_names(left.rules)}): {left.overhead}; a capture of its own"
        yield b.Labelled("not", text)
    yield from (b.Labelled("mind", trap.text) for trap in plan.pitfalls)
