"""Facts: named, typed, scoped values with unit and provenance, and the base that holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, get_args

from msgspec import UNSET, Struct, UnsetType, field

if TYPE_CHECKING:  # finished documents need no NumPy
    from advisor.model.held import HeldKernels

Severity = Literal["info", "low", "medium", "high"]
#: From the least to the most severe.
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Value = bool | int | float | str
#: The value of a cell of a table.
Cell = Value | None
Unit = Literal[
    "ratio", "ns", "ms", "us", "bytes", "count", "count_per_s", "bytes_per_s", "hz", "flag", "text"
]
Level = Literal["trace", "rank", "device", "process", "phase", "operation"]


def sees(level: Level) -> frozenset[str]:
    """The levels whose facts are visible at `level`: itself and the wider, never its siblings."""
    wider: tuple[Level, ...] = ("trace", "rank", "device")
    above = wider[: wider.index(level)] if level in wider else wider
    return frozenset((*above, level))


#: Narrower levels see the facts of wider ones, never the reverse. The last three are siblings:
#: a device holds processes, phases and operations side by side.
LEVELS: tuple[Level, ...] = get_args(Level)


#: What facts are about: one trace, a comparison of two, how a trace was recorded, or the captures that
#: `advisor checklist` is given.
Subject = Literal["trace", "comparison", "context", "router", "recording", "checklist"]
_SUBJECTS: dict[str, Subject] = {
    "compare": "comparison",
    "context": "context",
    "moe": "router",
    "recording": "recording",
    "input": "checklist",
}


def subject_of(fact: str) -> Subject:
    """The subject of a fact: the group that its name begins with."""
    return _SUBJECTS.get(fact.partition(".")[0], "trace")


#: The verb that answers the questions about a subject.
ASKED_BY = {"recording": "doctor", "checklist": "checklist"}


def of_job(fact: str) -> bool:
    """Whether a fact is made of all captures of a job, so that no single capture has it."""
    return fact.partition(".")[0] in ("rank", "ranks")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a fact or finding is about; null means everything at that level."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    rank: int | None = None
    device: int | None = None
    process: int | None = None
    phase: str | None = None
    operation: str | None = None

    @property
    def level(self) -> Level:
        """The narrowest level that is named."""
        for name in ("operation", "phase", "process", "device", "rank"):
            if getattr(self, name) is not None:
                return name
        return "trace"

    def aside(self) -> str:
        """`` (device 0)`` after a name; empty for the whole trace."""
        return f" ({label})" if (label := self.label()) else ""

    def encloses(self, other: Scope) -> bool:
        """True if `other` has the same names for all levels named here; also for itself."""
        return all(mine is None or mine == getattr(other, name) for name, mine in self.as_dict().items())

    def without_process(self) -> Scope:
        """The same in another run, which has other process ids."""
        return replace(self, process=None)

    def only(self, names: Collection[str]) -> Scope:
        """The scope that names these levels alone."""
        return replace(self, **{k: None for k in self.as_dict() if k not in names})

    def as_dict(self) -> dict[str, int | str | None]:
        return {
            "rank": self.rank,
            "device": self.device,
            "process": self.process,
            "phase": self.phase,
            "operation": self.operation,
        }

    def sort_key(self) -> tuple[tuple[int, str], ...]:
        """A total order in which a wider scope comes before the scopes that it encloses."""
        return tuple(
            (0, "") if v is None else (1, f"{v:012d}" if isinstance(v, int) else str(v))
            for v in self.as_dict().values()
        )

    def label(self) -> str:
        """Short text for people, such as ``device 0, decode``; empty for the whole trace."""
        named = ((k, v) for k, v in self.as_dict().items() if v is not None)
        return ", ".join(f"{k} {v}" if isinstance(v, int) else v for k, v in named)


TRACE = Scope()


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of one catalogue entry in one scope, and where it came from: the tables and columns
    read, and how it was computed.

    `window` (ns) is what it was computed over, unset for the whole file and in documents."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    value: Value
    unit: Unit
    scope: Scope = TRACE
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    method: str = ""
    window: tuple[int, int] | UnsetType = UNSET


def documented(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Facts as documents hold them, without their windows."""
    return tuple(replace(f, window=UNSET) for f in facts)


@dataclass(frozen=True, slots=True)
class Table:
    """A small table of evidence: a title, column heads with their unit suffix, and rows."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"rows of another length than its {len(self.columns)} columns")

    def first(self, rows: int) -> Table:
        """The table with at most this many rows."""
        return replace(self, rows=self.rows[:rows])

    def filled(self) -> Table:
        """The table without columns that are empty in every row."""
        kept = [i for i in range(len(self.columns)) if any(row[i] is not None for row in self.rows)]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """A place on the timeline, in the times (ns) that the viewer of the capture shows."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    start_ns: int
    end_ns: int
    stream: int | None = None
    thread: int | None = None
    label: str = ""


Row = Mapping[str, Value | None]
T = TypeVar("T")


class FactBase(Struct):
    """All facts of one trace. Filled by ``advisor.facts``, then only read.

    A name has at most one value in a scope. ``missing`` says why a catalogue entry has no value;
    ``ranges`` hold the least and the most that a value can be if part of what it counts is unknown,
    ``unknown`` what that part is, other than unnamed kernels, and ``undecided`` the names that were
    removed for that reason; ``held`` the kernels that a share is of; ``entities`` are tables of rows that
    rules may join; ``tables`` and ``intervals`` are evidence, keyed by name and scope. `captures` are the
    scopes of the captures: the whole trace, or in a job each of its ranks."""

    facts: dict[tuple[str, Scope], Fact] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    ranges: dict[tuple[str, Scope], tuple[float, float]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    undecided: set[str] = field(default_factory=set)
    entities: dict[str, list[Row]] = field(default_factory=dict)
    tables: dict[tuple[str, Scope], Table] = field(default_factory=dict)
    intervals: dict[tuple[str, Scope], list[Interval]] = field(default_factory=dict)
    held: dict[tuple[str, Scope], HeldKernels] = field(default_factory=dict)
    captures: tuple[Scope, ...] = (TRACE,)

    def add(self, fact: Fact) -> None:
        """Store a fact; a second value for the same name and scope is a programming error."""
        key = (fact.name, fact.scope)
        if key in self.facts:
            raise ValueError(f"fact {fact.name} has two values in scope {fact.scope}")
        self.facts[key] = fact

    def update(self, other: FactBase) -> None:
        """Take over all that another one holds of the same captures."""
        for fact in other.facts.values():
            self.add(fact)
        self.missing.update(other.missing)
        self.ranges.update(other.ranges)
        self.unknown.update(other.unknown)
        self.undecided.update(other.undecided)
        self.tables.update(other.tables)
        self.intervals.update(other.intervals)
        self.held.update(other.held)
        for name, rows in other.entities.items():
            self.entities.setdefault(name, []).extend(rows)

    def take_out(self, name: str, scope: Scope, why: str) -> None:
        """Make a fact unknown that only a part of the capture supports."""
        if self.facts.pop((name, scope), None) is not None:
            self.undecided.add(name)
            self.missing[name] = why

    def get(self, name: str, scope: Scope = TRACE) -> Fact | None:
        """The value of `name` seen from `scope`: there, else in the narrowest enclosing scope."""
        return _nearest(self.facts, name, scope)

    def value(self, name: str, scope: Scope = TRACE) -> Value | None:
        """Like :meth:`get`, the bare value."""
        fact = self.get(name, scope)
        return None if fact is None else fact.value

    @property
    def of_job(self) -> bool:
        """Whether these are the facts of several captures, each a rank."""
        return self.captures != (TRACE,)

    def capture_of(self, scope: Scope) -> Scope:
        """The capture that a scope lies in; the whole trace for what is about all of a job."""
        return Scope(rank=scope.rank) if self.of_job else TRACE

    def scopes(self, level: str) -> list[Scope]:
        """Every scope of one level that a fact is about, in a fixed order; the trace always."""
        each = {id(s): s for _, s in self.facts}.values()  # facts share scopes, and hashing them takes time
        seen = {s for s in each if s.level == level}
        if level == "trace":
            seen.add(TRACE)
        return sorted(seen, key=Scope.sort_key)

    def table(self, name: str, scope: Scope) -> Table | None:
        """The evidence table of this name in the scope, or in an enclosing one."""
        return _nearest(self.tables, name, scope)

    def places(self, name: str, scope: Scope) -> Sequence[Interval]:
        """The timeline places of this name in the scope, or in an enclosing one."""
        return _nearest(self.intervals, name, scope) or ()

    def __iter__(self) -> Iterator[Fact]:
        each = {id(f.scope): f.scope for f in self.facts.values()}  # few, and shared
        place = {key: scope.sort_key() for key, scope in each.items()}
        return iter(sorted(self.facts.values(), key=lambda f: (f.name, place[id(f.scope)])))

    def __len__(self) -> int:
        return len(self.facts)


@lru_cache(maxsize=1 << 14)
def outward(scope: Scope) -> tuple[Scope, ...]:
    """The scope and every wider one, narrowest first, the whole trace last."""
    named = [k for k, v in scope.as_dict().items() if v is not None]
    kept = sorted((c for n in range(len(named)) for c in combinations(named, n)), key=lambda c: (-len(c), c))
    wider = sorted(map(scope.only, kept), key=lambda s: -LEVELS.index(s.level))
    return scope, *wider


def _nearest(known: Mapping[tuple[str, Scope], T], name: str, scope: Scope) -> T | None:
    """What is known under a name in the scope, else in the narrowest enclosing one."""
    return next((known[name, s] for s in outward(scope) if (name, s) in known), None)
