"""What a worker sends back of one capture: its conclusions, its facts, one row a collective."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from advisor.engine.compile import Program
from advisor.facts.catalog import CATALOGUE
from advisor.model.capture import Recorder
from advisor.model.facts import Fact, FactBase, Interval, Scope, Table, Value
from advisor.model.findings import Diagnosis, Timeline
from advisor.model.gain import Gain
from advisor.ranks.rows import RankRows

#: Rows of each table that travel from all ranks but the first.
_TABLE_ROWS = 20

Key = tuple[str, Scope]


@dataclass(frozen=True)
class RankSummary:
    """One capture. `rows` has an entry for each rank in it, numbered within the capture unless its
    metadata say more; `numbered` is true where they do. `facts` are scoped as in the capture;
    `collectives` are the names of the operations that wait for other ranks, `experts` of those of
    experts; `gains` has by device and code what the rank by itself would win of what only all ranks
    can judge; `predicts` is false where nothing can be estimated from the capture."""

    diagnosis: Diagnosis
    facts: tuple[tuple[str, Scope, Value], ...]
    trace_tables: tuple[str, ...]
    tables: dict[Key, Table]
    places: dict[Key, tuple[Interval, ...]]
    rows: tuple[RankRows, ...]
    rank: int | None
    world_size: int | None
    numbered: bool
    opaque: bool
    recorder: Recorder
    collectives: tuple[str, ...] = ()
    experts: tuple[str, ...] = ()
    gains: tuple[tuple[int, str, Gain], ...] = ()
    predicts: bool = True

    def value(self, name: str, scope: Scope) -> Value | None:
        """A fact in exactly this scope."""
        return next((v for n, s, v in self.facts if n == name and s == scope), None)


def communication_codes(program: Program) -> frozenset[str]:
    """The rules that only all ranks together can judge: they look at `ranks.*` or `rank.*`, or at
    nothing but collectives."""
    out = set()
    for code, rule in program.by_code.items():
        groups = {t.fact.partition(".")[0] for t in rule.tests()}
        if groups & {"ranks", "rank"} or groups == {"comm"}:
            out.add(code)
    return frozenset(out)


def trimmed(diagnosis: Diagnosis, whole: bool) -> Diagnosis:
    """The document without what the others' would only repeat; `whole` for the first rank, whose
    tables stand for all."""
    changes: dict[str, object] = {
        "facts": (),
        "thresholds": (),
        "timeline": Timeline(),
        "sensitivity": None,
        "combined": None,
    }
    if not whole:
        changes["tables"] = {name: table.first(_TABLE_ROWS) for name, table in diagnosis.tables.items()}
        changes["work"] = None
    return diagnosis.model_copy(update=changes)


def renamed(summary: RankSummary, path: str) -> RankSummary:
    """The summary with the path that the user gave: workers may know the file by another."""
    inputs = tuple(i.model_copy(update={"path": path}) for i in summary.diagnosis.inputs)
    return replace(summary, diagnosis=summary.diagnosis.model_copy(update={"inputs": inputs}))


def flat_facts(base: FactBase) -> tuple[tuple[str, Scope, Value], ...]:
    """Facts as bare values; what the catalogue says of them need not travel."""
    return tuple((f.name, f.scope, f.value) for f in base)


def whole_fact(
    name: str, scope: Scope, value: Value, tables: Iterable[str], window: tuple[int, int] | None
) -> Fact:
    """A bare value with what the catalogue says of it."""
    spec = CATALOGUE[name]
    read, columns = spec.sources(frozenset(tables))
    over = window if spec.windowed else None
    return Fact(name, value, spec.unit, scope, read, columns, spec.how, over)


def encode(summary: RankSummary) -> bytes:
    """The summary in few bytes."""
    document = summary.diagnosis.model_dump_json().encode()
    rest = (
        summary.facts,
        summary.trace_tables,
        summary.tables,
        summary.places,
        tuple(r.packed() for r in summary.rows),
        summary.rank,
        summary.world_size,
        summary.numbered,
        summary.opaque,
        summary.recorder,
        summary.collectives,
        summary.experts,
        summary.gains,
        summary.predicts,
    )
    return zlib.compress(pickle.dumps((document, rest), protocol=5), 1)


def decode(data: bytes) -> RankSummary:
    """What `encode` made. Only for bytes of our own workers: it unpickles."""
    document, rest = pickle.loads(zlib.decompress(data))
    return RankSummary(Diagnosis.model_validate_json(document), *rest)
