"""Lists of verbs as blocks: facts, what-ifs, baselines, and the removed parts of a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import field_serializer

from advisor.model.explanation import WhatIfList
from advisor.model.facts import Fact
from advisor.model.findings import Diagnosis
from advisor.model.numbers import amount, fact_unit, milliseconds, value_text
from advisor.model.records import Frozen
from advisor.reports.blocks import Block, Gap, Grid, Heading, Item, Labelled, Next, Paragraph, Title


class FactList(Frozen):
    """The facts that rules may use."""

    schema_version: int = 1
    facts: tuple[dict[str, str], ...]

    @classmethod
    def of(cls, specs: Iterable[object]) -> FactList:
        """From the declarations of facts."""
        keys = ("name", "unit", "level", "meaning", "how", "flag")
        return cls(facts=tuple({key: getattr(spec, key) for key in keys} for spec in specs))


class FactValues(Frozen):
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


class SavedBaseline(Frozen):
    """The baseline saved under a name; `fault` says why a file cannot be read."""

    name: str
    diagnoses: tuple[Diagnosis, ...]
    fault: str = ""

    @field_serializer("diagnoses")
    def _brief(self, diagnoses: tuple[Diagnosis, ...]) -> list[dict[str, Any]]:
        return [d.model_dump(mode="json", include={"inputs", "steps", "verdict"}) for d in diagnoses]


class BaselineList(Frozen):
    """The baselines of a folder."""

    schema_version: int = 1
    folder: str
    baselines: tuple[SavedBaseline, ...]


def baselines(listed: BaselineList) -> Iterator[Block]:
    """For each name its capture, its steps, its verdict; the fault of a bad file."""
    for entry in listed.baselines:
        yield from baseline(entry.name, entry.diagnoses)
        if entry.fault:
            yield Labelled("unusable", entry.fault)
    yield Gap()
    yield Paragraph(f"{amount(len(listed.baselines), 'baseline')} in {listed.folder}")


def baseline(name: str, diagnoses: Sequence[Diagnosis]) -> Iterator[Block]:
    """One name and its content."""
    yield Title(name)
    for diagnosis in diagnoses:
        yield Labelled("capture", ", ".join(i.path for i in diagnosis.inputs))
        steps = ", ".join(
            f"{amount(s.count, f'{s.phase} step')} of {milliseconds(s.median_ms)} ms"
            for s in diagnosis.main_steps
        )
        if steps:
            yield Labelled("steps", steps)
        yield Labelled("verdict", diagnosis.verdict)


def redacted(
    source: str,
    target: str,
    sizes: tuple[int, int],
    removed: Sequence[tuple[str, str, int]],
    kept: Sequence[str],
) -> Iterator[Block]:
    """The parts left out of a copy: `removed` holds (what, table, count), never a value; `kept` names
    variables that stay."""
    before, after = (value_text(size, "bytes") for size in sizes)
    yield Paragraph(f"{target} ({after}), from {source} ({before}), which is unchanged", strong=True)
    if removed:
        yield Heading("Taken out or changed")
        rows = tuple((what, count, table) for what, table, count in removed)
        yield Grid(("what", "count", "table"), rows)
    else:
        yield Paragraph("Nothing private was found.", dense=True)
    if kept:
        yield Labelled("kept", f"the numbers of {', '.join(kept)}, which tell the rank")
    yield Paragraph(
        "Kernel names and NVTX range texts stay, less paths and secrets in them: read those "
        "before you pass the copy on."
    )
    yield Next(f"advisor {target}")
