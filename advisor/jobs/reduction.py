"""The summary that a worker returns for one capture: its conclusions, its facts, one row a collective.
Several ranks in one capture are joined here as well.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from advisor.facts.catalog import CATALOGUE
from advisor.facts.communication import CrossRank
from advisor.facts.writer import FactWriter
from advisor.jobs.align import UNKNOWN, RankRows
from advisor.jobs.late_ranks import job_facts, rank_table
from advisor.jobs.recognise import distinct
from advisor.jobs.stages import work_of
from advisor.jobs.waiting import Waits, reduce_ranks
from advisor.metrics.budgeted.collectives import LEADS, Collectives, device_collectives, leads
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import EMPTY
from advisor.metrics.loaded.kernels import heaviest
from advisor.metrics.profiled.pace import kernel_paces
from advisor.metrics.profiled.stage import Profiled
from advisor.model.capture import Recorder
from advisor.model.facts import Fact, FactBase, Interval, Row, Scope, Table, Value
from advisor.model.findings import Budget, Diagnosis, Timeline
from advisor.model.gain import Prediction

#: Rows of each table that are sent by all ranks but the first.
_TABLE_ROWS = 20

Key = tuple[str, Scope]


class RankSummary(Struct, frozen=True):
    """One capture: its document without conclusions, and everything needed to infer them.

    `rows` has an entry for each rank in it, numbered within the capture unless its metadata say more;
    `numbered` is true if they do. Facts, tables, places, rows of `entities` and predictions are scoped as
    in the capture; `missing` and `remedies` say by name why a fact has no value and what would supply
    one. `step_ms` and `capture_ms` are None if only sums were recorded; `predicts` is false if nothing
    can be estimated from the capture."""

    diagnosis: Diagnosis
    facts: tuple[tuple[str, Scope, Value], ...]
    missing: dict[str, str]
    remedies: dict[str, str]
    trace_tables: tuple[str, ...]
    tables: dict[Key, Table]
    places: dict[Key, tuple[Interval, ...]]
    entities: dict[str, list[Row]]
    predictions: dict[Key, Prediction]
    rows: tuple[RankRows, ...]
    rank: int | None
    world_size: int | None
    numbered: bool
    opaque: bool
    recorder: Recorder
    step_ms: float | None = None
    capture_ms: float | None = None
    predicts: bool = True

    def value(self, name: str, scope: Scope) -> Value | None:
        """A fact in exactly this scope."""
        return next((v for n, s, v in self.facts if n == name and s == scope), None)


def trimmed(diagnosis: Diagnosis, whole: bool) -> Diagnosis:
    """The document without what other ranks repeat; `whole`: the first rank, whose tables represent all."""
    inferred = (
        "do",
        "findings",
        "overruled",
        "healthy",
        "observed",
        "not_applicable",
        "not_evaluated",
        "facts",
        "thresholds",
    )
    changes: dict[str, object] = dict.fromkeys(inferred, ())
    if not whole:
        changes["tables"] = {name: table.first(_TABLE_ROWS) for name, table in diagnosis.tables.items()}
        changes["work"] = None
    return diagnosis.replaced(**changes, timeline=Timeline(), sensitivity=None, combined=None)


def renamed(summary: RankSummary, path: str) -> RankSummary:
    """The summary with the path that the user gave: workers may know the file by another."""
    inputs = tuple(i.replaced(path=path) for i in summary.diagnosis.inputs)
    return replace(summary, diagnosis=summary.diagnosis.replaced(inputs=inputs))


def whole_fact(
    name: str, scope: Scope, value: Value, tables: Iterable[str], window: tuple[int, int] | None
) -> Fact:
    """A bare value with its catalogue entry."""
    spec = CATALOGUE[name]
    read, columns = spec.sources(frozenset(tables))
    over = window if spec.windowed and window else UNSET
    return Fact(name, value, spec.unit, scope, read, columns, spec.how, over)


def encode(summary: RankSummary) -> bytes:
    """The summary in few bytes."""
    document = summary.diagnosis.model_dump_json().encode()
    small = replace(summary, rows=tuple(r.packed() for r in summary.rows))
    rest = tuple(getattr(small, n) for n in small.__struct_fields__ if n != "diagnosis")
    return zlib.compress(pickle.dumps((document, rest), protocol=5), 1)


def decode(data: bytes) -> RankSummary:
    """The summary from `encode`. Only for bytes of our own workers: it unpickles."""
    document, rest = pickle.loads(zlib.decompress(data))
    return RankSummary(Diagnosis.model_validate_json(document), *rest)


# --- the collectives of a capture, by rank ---------------------------------------------------------


def rank_rows(a: Budgeted) -> tuple[tuple[RankRows, ...], bool]:
    """A rank for each device with collectives, or one where they are fewer than two; and whether
    their numbers come from the capture's metadata. Else they count from 0."""
    ranks, known = _ranks(a)
    return tuple(_rows(a, *rank) for rank in ranks), known


def _ranks(a: Budgeted) -> tuple[list[tuple[int, int, Collectives | None]], bool]:
    """Number, device and collectives of each rank, and whether the numbers are known."""
    found = {device: device_collectives(a, device) for device in a.devices}
    several = {d: c for d, c in found.items() if len(c)}
    if len(several) < 2:
        listed = [d.id for d in a.trace.devices]
        device = next(iter(several or found), listed[0] if listed else 0)
        number = a.trace.capture.rank
        return [(number or 0, device, found.get(device))], number is not None
    numbers = [_mpi_rank(a, device) for device in several]
    known = distinct(numbers)
    ranks = [n for n in numbers if n is not None] if known else range(len(numbers))
    return [(rank, *found) for rank, found in zip(ranks, several.items(), strict=True)], known


def waits_inside(a: Budgeted) -> Waits | None:
    """Waiting between the GPUs of one capture, if two communicate."""
    ranks, _ = _ranks(a)
    if len(ranks) < 2:
        return None
    return reduce_ranks([_rows(a, *rank) for rank in ranks], one_clock=True)


def with_waits(a: Profiled, waits: Waits | None) -> Profiled:
    """The capture with the share of each device's collectives that is waiting for late ranks, where the other
    GPUs show it."""
    if waits is None:
        return a
    waited = {
        r.device: float(wait.sum()) / max(int(r.duration.sum()), 1)
        for r, wait, known in zip(waits.ranks, waits.wait, waits.found, strict=True)
        if known.any()
    }
    return replace(a, waited=waited)


def cross_rank(a: Budgeted, waits: Waits) -> CrossRank:
    """The same for the facts of the capture."""

    def put(out: FactWriter) -> None:
        busy = [b.busy_ratio for b in a.budgets.values()]
        job_facts(out, waits, world_size=a.trace.capture.world_size, busy=busy)

    by_device = {
        r.device: np.where(known, wait, UNKNOWN)
        for r, wait, known in zip(waits.ranks, waits.wait, waits.found, strict=True)
    }
    slow = waits.stage_host
    of_host = {} if slow is None else {waits.ranks[slow.rank].device: slow.share}
    longer = {r.device: waits.longer_share(i) for i, r in enumerate(waits.ranks)}
    return CrossRank(by_device, put, of_host, longer)


def rank_section(waits: Waits, budgets: Sequence[Budget], base: FactBase) -> Table:
    """The table of the ranks in this capture."""
    rank_of = {r.device: r.rank for r in waits.ranks}
    own = [b.replaced(rank=rank_of[b.device]) for b in budgets if b.device in rank_of]
    overlaps = {
        (rank, device): base.value("comm.overlap_ratio", Scope(device=device))
        for device, rank in rank_of.items()
    }
    return rank_table(waits, own, overlaps)


def _rows(a: Budgeted, rank: int, device: int, found: Collectives | None) -> RankRows:
    window = a.window
    if found is None:
        found = device_collectives(a, device) if device in a.budgets else Collectives()
    lead = leads(a, device, found) if len(found) else np.empty((0, len(LEADS)))
    return RankRows(
        **asdict(found),
        rank=rank,
        device=device,
        zero=a.trace.capture.start_utc_ns,
        window=(window.start, window.end),
        window_ns=a.budgets[device].window.length if device in a.budgets else window.length,
        profiler_ns=a.budgets[device].ns["profiler"] if device in a.budgets else 0,
        steps=a.step_count,
        leads=LEADS,
        lead=np.where(np.isnan(lead), UNKNOWN, lead).astype(np.int64),
        paces=kernel_paces(a, device) if len(found) else (),
        busy=work_of(a.budgets[device].compute, found.kinds) if len(found) else EMPTY,
    )


def _mpi_rank(a: Budgeted, device: int) -> int | None:
    """The MPI rank of the process that runs most of the device's collectives."""
    known = dict(a.trace.capture.process_ranks)
    at = a.device_kernels(device)
    process = a.ops.process[at[a.communication[at]]]
    if not known or len(process) == 0:
        return None
    return known.get(heaviest(process))
