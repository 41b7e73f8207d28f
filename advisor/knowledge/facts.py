"""The facts that `knowledge/facts/` declares, a file for each module of `advisor/facts/` that computes them;
and the tables of ``tables.yaml``, which findings show as evidence or rules may join.

A declaration holds everything about a fact; the catalogue, where values come from, why one is missing and
the pages of the documentation derive from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from msgspec import Struct, field

from advisor.errors import AdvisorError
from advisor.knowledge.files import shipped
from advisor.knowledge.package_data import names
from advisor.knowledge.shapes import Data, File, Name, Text
from advisor.model.facts import Level, Unit
from advisor.model.file_content import Constraint
from advisor.model.parts import PARTS

#: How a fact combines over a job of ranks: it keeps a value for each, the job has their median as well,
#: or it is made of all captures together.
OverRanks = Literal["each", "median", "joint"]


class Need(Data, frozen=True, kw_only=True):
    """Something that a fact needs besides its tables and columns.

    `met` is the name of the predicate that looks for it in the analysis of one device, with `argument` if it
    takes one (`advisor.facts.needs.PREDICATES`); without `met` it is all that the fact can lack. `supply` is
    what would provide it, an option or a better run; `switch` is the kind of record under which the
    knowledge of a serving engine lists a variable that does so.
    """

    lack: Text
    supply: Text | None = None
    met: Name | None = None
    argument: str | int | None = None
    switch: Name | None = None


class FactSpec(Struct, frozen=True):
    """One fact: its name, unit, meaning, sources and formula.

    `how` is its formula. `tables` are the trace tables without which it has no value, `columns` all that it
    is made of, by table: none if it comes from metadata or from several captures. `flag` is the capture
    option that records them; `supply` says how to get them otherwise. `needs` are checked in their order.
    `windowed` is false for counts over the whole file. `over_ranks` is how it combines over a job.
    """

    name: str
    unit: Unit
    level: Level
    meaning: str
    tables: tuple[str, ...]
    how: str
    flag: str
    columns: Mapping[str, tuple[str, ...]]
    needs: tuple[Need, ...]
    supply: str | None
    windowed: bool
    over_ranks: OverRanks

    def sources(self, present: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tables and ``table.column`` names that it was made of in a capture with the tables
        `present`."""
        if "sums" in present and self.columns:
            return ("sums",), tuple(f"sums.{c}" for c in self.columns.get("sums", ("count", "total")))
        # A count of 0 because tables are missing still comes from those tables.
        read = {t: c for t, c in self.columns.items() if t in present} or self.columns
        tables = tuple(t for t in self.tables if t in present) or tuple(read)
        return tables, tuple(f"{t}.{c}" for t, names in read.items() for c in names)


# --- the files -----------------------------------------------------------------------------------

#: Columns by table, or the name of such, or several of these: what a later one says of a table counts.
ColumnsByTable = dict[Name, tuple[Name, ...]]
Columns = Name | ColumnsByTable | tuple[Name | ColumnsByTable, ...]


class FactLine(Data, frozen=True, kw_only=True):
    """See `FactSpec`; what it leaves out is as in its group. The entry ``NAME_per_*`` is two facts, a count
    by step and one by 100 kernels, and its meaning says what is counted."""

    unit: Unit
    meaning: Annotated[str, Constraint(min_length=10)]
    formula: Text | None = None
    tables: tuple[Name, ...] | None = None
    columns: Columns | None = None
    needs: tuple[Name | Need, ...] | None = None
    supply: Text | None = None
    windowed: bool | None = None
    over_ranks: OverRanks | None = None


class FactGroup(Data, frozen=True, kw_only=True):
    """Facts of one scope and one option, and what they have in common."""

    scope: Level
    flag: str = ""
    tables: tuple[Name, ...] = ()
    columns: Columns = field(default_factory=dict)
    needs: tuple[Name | Need, ...] = ()
    supply: Text | None = None
    windowed: bool = True
    over_ranks: OverRanks = "each"
    facts: dict[Annotated[str, Constraint(pattern=r"^[a-z]+\.[a-z0-9_]+(_per_\*)?$")], FactLine]


class FactFile(File, frozen=True, kw_only=True):
    """Needs and columns that several facts have in common have a name: in ``shared.yaml`` for all files.

    Only ``shared.yaml`` has `supplies`: all that `flag` and `supply` may be, with what is said of a recording
    without it, in the order in which one stands for several; `fills`: what records a table; and in words
    some tables (`words`) and columns of samples (`measures`).
    """

    supplies: dict[Text, Text] = field(default_factory=dict)
    fills: dict[Name, Text] = field(default_factory=dict)
    words: dict[Name, Text] = field(default_factory=dict)
    measures: dict[Name, Text] = field(default_factory=dict)
    needs: dict[Name, Need] = field(default_factory=dict)
    columns: dict[Name, Columns] = field(default_factory=dict)
    groups: tuple[FactGroup, ...] = ()


#: What a count by step, and one by 100 kernels, needs besides what is counted, as ``shared.yaml`` names it.
_BY_STEP = ("steps",)
_BY_KERNELS = ("no_steps", "kernels", "kernels_for_a_rate")


class _Reader:
    """Makes the declarations of one file of what is written in it and in ``shared.yaml``."""

    def __init__(self, name: str, shared: FactFile, file: FactFile) -> None:
        self._path = f"facts/{name}.yaml"
        for kind, ours, common in (
            ("need", file.needs, shared.needs),
            ("columns", file.columns, shared.columns),
        ):
            if file is not shared and (twice := ours.keys() & common):
                raise AdvisorError(f"{self._path}: shared.yaml has the {kind} '{min(twice)}' as well")
        self.needs = shared.needs | file.needs
        self._columns = shared.columns | file.columns
        self._supplies = shared.supplies

    def facts(self, file: FactFile) -> Iterator[FactSpec]:
        """Those of all groups, in their order."""
        for group in file.groups:
            common = self._columns_of("a group", group.columns), self._needs_of("a group", group.needs)
            for name, line in group.facts.items():
                yield from self._of_line(name, line, group, *common)

    def _of_line(
        self, name: str, line: FactLine, group: FactGroup, columns: ColumnsByTable, needs: tuple[Need, ...]
    ) -> Iterator[FactSpec]:
        own = columns if line.columns is None else self._columns_of(name, line.columns)
        needed = needs if line.needs is None else self._needs_of(name, line.needs)
        tables = group.tables if line.tables is None else line.tables
        # The tables that the fact cannot do without come first.
        read = {t: own[t] for t in dict.fromkeys((*(t for t in tables if t in own), *own))}
        supply = line.supply or group.supply
        for fix in (group.flag, supply, *(n.supply for n in needed)):
            if fix and fix not in self._supplies:
                raise AdvisorError(f"{self._path}: {name}: '{fix}' is not in the supplies of shared.yaml")

        def spec(name: str, meaning: str, formula: str, needs: tuple[Need, ...]) -> FactSpec:
            return FactSpec(
                name=name,
                unit=line.unit,
                level=group.scope,
                meaning=meaning,
                tables=tables,
                how=formula,
                flag=group.flag,
                columns=read,
                needs=needs,
                supply=supply,
                windowed=group.windowed if line.windowed is None else line.windowed,
                over_ranks=line.over_ranks or group.over_ranks,
            )

        if name.endswith("_per_*"):
            stem, what = name.removesuffix("*"), line.meaning
            formula = line.formula or "count in the window / steps"
            yield spec(f"{stem}step", f"{what} a step", formula, needed + self._needs_of(name, _BY_STEP))
            meaning = f"{what} for every 100 kernels, where there are no steps"
            formula = "count in the window / kernels in the window x 100"
            yield spec(f"{stem}100_kernels", meaning, formula, needed + self._needs_of(name, _BY_KERNELS))
        elif line.formula is None:
            raise AdvisorError(f"{self._path}: {name}: formula: field required")
        else:
            yield spec(name, line.meaning, line.formula, needed)

    def _needs_of(self, fact: str, needs: tuple[str | Need, ...]) -> tuple[Need, ...]:
        return tuple(self._named(fact, n) if isinstance(n, str) else n for n in needs)

    def _named(self, fact: str, name: str) -> Need:
        if name not in self.needs:
            raise AdvisorError(
                f"{self._path}: {fact}: unknown need '{name}'; neither here nor in shared.yaml"
            )
        return self.needs[name]

    def _columns_of(self, fact: str, columns: Columns) -> ColumnsByTable:
        if isinstance(columns, dict):
            return columns
        if isinstance(columns, tuple):
            return {t: c for part in columns for t, c in self._columns_of(fact, part).items()}
        if columns not in self._columns:
            unknown = f"unknown columns '{columns}'; neither here nor in shared.yaml"
            raise AdvisorError(f"{self._path}: {fact}: {unknown}")
        return self._columns_of(fact, self._columns[columns])


class Declared(NamedTuple):
    """By file, its facts, and the needs that it can name; what they have in common."""

    facts: dict[str, tuple[FactSpec, ...]]
    needs: dict[str, dict[str, Need]]
    shared: FactFile


def declared(files: Mapping[str, FactFile]) -> Declared:
    """What files declare, by their names without ending. Raises AdvisorError, which names file and fact."""
    found = Declared({}, {}, files["shared"])
    place: dict[str, str] = {}
    for name, file in files.items():
        reader = _Reader(name, files["shared"], file)
        found.facts[name], found.needs[name] = tuple(reader.facts(file)), reader.needs
        for spec in found.facts[name]:
            if spec.name in place:
                raise AdvisorError(
                    f"facts/{name}.yaml: {spec.name}: {place[spec.name]}.yaml declares it as well"
                )
            place[spec.name] = name
    return found


@cache
def _declared() -> Declared:
    return declared({PurePath(n).stem: shipped(n, FactFile) for n in names("knowledge", "facts")})


def facts_of(*files: str) -> Mapping[str, FactSpec]:
    """The facts that these files declare, by name, in the order of the files."""
    return MappingProxyType({spec.name: spec for file in files for spec in _declared().facts[file]})


def need(name: str, file: str = "shared") -> Need:
    """A need by its name in a file, or in ``shared.yaml``."""
    return _declared().needs[file][name]


def shared() -> FactFile:
    """What the facts of all files have in common (``shared.yaml``)."""
    return _declared().shared


def files() -> tuple[str, ...]:
    """The files of `knowledge/facts/`, without ending."""
    return tuple(_declared().facts)


# --- tables.yaml ---------------------------------------------------------------------------------


class EvidenceTable(Data, frozen=True, kw_only=True):
    """A table that a finding may show: its title, and its columns with their units (``share:ratio``)."""

    title: Text
    columns: tuple[Text, ...]


class JoinedTable(Data, frozen=True, kw_only=True):
    """A table of rows that rules may join: the level of a row and its typed fields."""

    scope: Level
    meaning: Text
    fields: dict[Name, Literal["int", "float", "str"]]


class TableFile(File, frozen=True, kw_only=True):
    evidence: dict[str, EvidenceTable]
    joined: dict[Name, JoinedTable]


@cache
def _tables() -> TableFile:
    return shipped("tables.yaml", TableFile)


def evidence_tables() -> Mapping[str, EvidenceTable]:
    """All that rules can name and that facts write. A fact gives its own title where its findings decide
    it."""
    return _tables().evidence


def joined_tables() -> Mapping[str, JoinedTable]:
    """The tables that rules may join."""
    return _tables().joined


def joined_fields() -> dict[str, dict[str, type]]:
    """The fields of each of these tables, with their types."""
    types = {"int": int, "float": float, "str": str}
    return {name: {f: types[t] for f, t in table.fields.items()} for name, table in joined_tables().items()}


# --- parts of the budget ---------------------------------------------------------------------------


@cache
def part_meanings() -> Mapping[str, str]:
    """What runs, or what the device waits for, during each part: as the facts about them say."""
    facts = facts_of("device")
    return {part: facts[f"budget.{part}_ratio"].meaning.partition(": ")[2] for part in PARTS}


def impact_parts() -> tuple[str, ...]:
    """What the impact of a rule may be a share of: a part of the budget, several of them, or a whole."""
    return (*PARTS, "idle", "step", "steps", "capture")
