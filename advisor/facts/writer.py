"""Collects facts: checks each against the catalogue and records where it came from; why a fact has no value,
and what would supply it: an option of the capture, or a better run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache, partial
from typing import TYPE_CHECKING, Self

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import EVIDENCE_TABLES, FactSpec
from advisor.knowledge.files import engines
from advisor.model.facts import TRACE, Fact, FactBase, Interval, Row, Scope, Table, Value
from advisor.model.once import kept
from advisor.sources.schema import MISSING, TABLES

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis


class FactWriter:
    """Fills a `FactBase`. A value of None or NaN is unknown and stays missing."""

    def __init__(
        self,
        catalogue: Mapping[str, FactSpec],
        window: tuple[int, int] | None = None,
        tables: frozenset[str] = frozenset(),
    ) -> None:
        """`tables` are those that the capture holds."""
        self.base = FactBase()
        self._scope = TRACE
        self._catalogue = catalogue
        self._window = window
        self._tables = tables

    def at(self, scope: Scope) -> FactWriter:
        """A writer to the same base; facts that are not about the whole trace get this scope."""
        own = copy(self)
        own._scope = scope
        return own

    def put(self, name: str, value: Value | None) -> None:
        """Store a value. Raises KeyError for a name that is not in the catalogue, ValueError if this
        writer is for a scope of another level: both are programming errors."""
        spec = self._catalogue[name]
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return
        scope = self._scope_of(name)
        if scope.level != spec.level:
            raise ValueError(f"{name} is a fact about a {spec.level}, not about {scope}")
        if isinstance(value, float):
            value = float(value)
        tables, columns = spec.sources(self._tables)
        window = self._window if spec.windowed else None
        self.base.add(Fact(name, value, spec.unit, scope, tables, columns, spec.how, window))

    def _scope_of(self, name: str) -> Scope:
        return TRACE if self._catalogue[name].level == "trace" else self._scope

    def value(self, name: str) -> float | None:
        """A number that was put before; None if it is missing or no number."""
        found = self.base.value(name, self._scope_of(name))
        return float(found) if isinstance(found, int | float) else None

    def __ior__(self, values: Mapping[str, Value | None]) -> Self:
        """`put` for each."""
        for name, value in values.items():
            self.put(name, value)
        return self

    def put_between(self, values: dict[str, tuple[float, float]], unknown: str | None = None) -> None:
        """Shares known as (least, most): the least is stored, the most decides whether a verdict may rest
        on it. `unknown` names what may count or not, unless it is unnamed kernels."""
        for name, (least, most) in values.items():
            self.put(name, least)
            if unknown is not None:
                self.base.unknown[name] = unknown
            if most > least:
                self.base.ranges[name, self._scope] = (least, most)

    def table(
        self,
        name: str,
        rows: Sequence[Sequence[Value | None]],
        *,
        title: str | None = None,
        columns: str | None = None,
    ) -> None:
        """Keep an evidence table; an empty one is left out. Title and columns (separated by commas) are
        those of `EVIDENCE_TABLES` unless given."""
        if name not in EVIDENCE_TABLES:
            raise ValueError(f"unknown evidence table {name}; add it to EVIDENCE_TABLES")
        if rows:
            usual = EVIDENCE_TABLES[name]
            heads = tuple((columns or usual[1]).split(", "))
            table = Table(title or usual[0], heads, tuple(tuple(r) for r in rows))
            self.base.tables[name, self._scope] = table

    def places(self, name: str, intervals: Sequence[Interval]) -> None:
        if intervals:
            self.base.intervals[name, self._scope] = list(intervals)

    def entity(self, name: str, rows: Sequence[Row]) -> None:
        self.base.entities.setdefault(name, []).extend(rows)

    def explain_missing(self, a: Analysis) -> None:
        """Record why each catalogue entry without a value has none, in all scopes or in some."""

        @cache
        def empty(table: str, column: str) -> bool:
            values = a.trace.columns(table, (column,))[column]
            return not np.any(~np.isnan(values) if values.dtype.kind == "f" else values != MISSING)

        present = {name for name, _ in self.base.facts}
        sampled = sorted({s.device for _, s in self.base.facts if s.device is not None})
        for name, spec in self._catalogue.items():
            if spec.level in ("trace", "rank"):
                lacking = [] if name in present else [a]
            else:
                devices = a.devices or (sampled if "samples" in spec.columns else [])
                devices = devices or ([a.main_device] if "sums" in spec.columns else [])
                lacking = [
                    a.on(d)
                    for d in devices
                    if spec.level != "device" or (name, Scope(device=d)) not in self.base.facts
                ]
            if name not in present or spec.level != "trace":
                self.base.missing[name] = reason(spec, a.trace.tables, empty, lacking)


# --- why a fact has no value, and what would supply it --------------------------------------------


#: The option that fills a table; CUDA tracing fills the others.
_TABLES = {
    "samples": needs.SAMPLES, "allocations": needs.MEMORY, "host_calls": needs.OSRT, "collectives": needs.SIZES,
    "page_faults": needs.FAULTS, "host_samples": "--sample=process-tree",
    "network": needs.NETWORK, "cpu_switches": needs.CPU_SWITCHES, "gpu_switches": needs.GPU_SWITCHES,
}  # fmt: skip
#: Columns of `samples` that not every sampler fills, in words. GPU utilisation, as in nvidia-smi, is GR
#: Active: it means that some kernel ran, and nothing about SMs or memory.
_MEASURES = {
    "sm_active": "SM Active", "dram_read": "DRAM activity", "tensor_active": "Tensor Active",
    "sm_clock_hz": "the SM clock",
}  # fmt: skip
#: Columns that a capture may hold without a value in any row.
_OPTIONAL = {"api_calls": {"result"}, "collectives": {"bytes"},
             "samples": set(TABLES["samples"]) - {"time", "device"}}  # fmt: skip
#: Columns that select samples, whatever is measured with these samples.
_SELECTING = {"sm_active", "gr_active"}
#: What CUDA tracing records of a process; a table of these that is absent beside kernels is empty.
_WORK = ("kernels", "copies", "memsets", "graph_runs")
#: Remedies that add nothing if the kernels themselves are missing.
_OF_KERNELS = (needs.CUDA, needs.LONGER, needs.STEP_RANGES, needs.FASTER)
NOT_IN_SUMS = "sums do not say it"
_NOTHING = "the window holds nothing of the kind"

#: True for a column of a table without a value in any row.
Empty = Callable[[str, str], bool]


def absent_tables(spec: FactSpec, tables: frozenset[str]) -> list[str]:
    """The absent tables of a fact: those it requires, else all of its tables if none of them is there."""
    if spec.tables:
        return [t for t in spec.tables if t not in tables]
    made_of = [] if spec.over_ranks == "joint" else list(spec.columns)
    work = [t for t in made_of if t in _WORK]
    if len(work) > 1 and not any(t in tables for t in work):
        return work
    return [] if any(t in tables for t in made_of) else made_of


def empty_columns(spec: FactSpec, tables: frozenset[str], empty: Empty) -> list[str]:
    """Columns of a fact, as ``table.column``, that may be without values and have none in this capture."""
    found = []
    for table, made_of in spec.columns.items():
        optional = [c for c in made_of if c in _OPTIONAL.get(table, ())]
        decisive = [c for c in optional if c not in _SELECTING] or optional
        if table in tables and decisive and all(empty(table, c) for c in decisive):
            found += [f"{table}.{c}" for c in decisive]
    return found


def reason(
    spec: FactSpec,
    tables: frozenset[str],
    empty: Empty | None = None,
    lacking: Sequence[Analysis] | None = None,
) -> str:
    """Why a fact has no value in a capture that holds `tables`: the absent tables or columns, else the
    first of its needs that is not met on one of the devices without a value (`lacking`; None if they
    cannot be examined)."""
    absent = absent_tables(spec, tables)
    if "sums" in tables and (absent or (spec.columns and "sums" not in spec.columns)):
        return NOT_IN_SUMS
    if absent:
        return f"the capture holds no {', '.join(absent)}"
    columns = empty_columns(spec, tables, empty) if empty else []
    if words := [w for c, w in _MEASURES.items() if f"samples.{c}" in columns]:
        return f"the samples do not hold {' and '.join(words)}"
    if columns:
        return f"the capture has no value of {', '.join(columns)}"
    for need in spec.needs:
        if lacking is None or not all(
            need.met and kept(a, "met", id(need), partial(need.met, a)) for a in lacking
        ):
            return need.lack
    return _NOTHING if tables & set(_WORK) else "no GPU work to judge"


def remedy(
    spec: FactSpec,
    tables: frozenset[str],
    why: str | None = None,
    *,
    hidden_graphs: bool = False,
    no_gpu_work: bool = False,
    lost_work: bool = False,
    nvtx: bool = False,
    serving: str | None = None,
) -> str | None:
    """What would supply a fact that has no value for the reason `why`: options of the capture, an option
    of this command or a better run; None if nothing does.

    `hidden_graphs`: CUDA graphs were replayed whose kernels are not in the capture; `no_gpu_work`: CUDA
    was traced and the process never used the GPU; `lost_work`: it launched kernels and none was recorded;
    `nvtx`: ranges were traced, so their absence means that the program pushes none; `serving`: the
    serving engine, which may have a switch of its own.
    """
    unmet = [n.supply for n in spec.needs if n.lack == why]
    if "sums" in tables and "sums" not in spec.tables:
        return needs.SUMMED if spec.flag == needs.CUDA else combine([needs.CUDA, spec.flag])
    if nvtx and "ranges" not in tables:
        tables |= {"ranges"}
        if "ranges" in spec.tables:  # the program has to push them
            unmet = [n.supply for n in spec.needs if n.supply and not options_of(n.supply)]
    absent = [t for t in spec.tables if t not in tables]
    made_of = {*_WORK, *absent} & {*_WORK, "api_calls"}
    of_work = spec.flag == needs.CUDA and (
        spec.level != "trace" or not spec.columns.keys().isdisjoint(made_of)
    )
    if (hidden_graphs or no_gpu_work or lost_work) and (of_work or "kernels" in absent):
        besides = _besides(spec, absent, unmet[0] if unmet else None, serving)
        # CUDA was traced: the kernels inside the graphs are missing.
        if hidden_graphs:
            return combine([needs.NODES, besides])
        return combine([besides, needs.LOSSLESS if lost_work else needs.OWNER])
    if switch := _switch(spec, serving):
        return combine([switch, needs.CUDA if "ranges" in absent else ""])
    if "kernels" in tables and any(t in _WORK for t in absent):
        return None  # CUDA was traced, and there was nothing of the kind
    if absent:
        return _of_tables(spec, absent)
    if unmet:
        pushed = unmet[0] != needs.STEP_RANGES or "ranges" in tables
        return unmet[0] if pushed else needs.CUDA
    return None if why == _NOTHING else spec.supply or spec.flag or None


def _besides(spec: FactSpec, absent: list[str], fix: str | None, serving: str | None) -> str:
    """What a fact needs besides the kernels themselves."""
    others = [t for t in absent if t != "kernels"]
    if others:
        flag = _of_tables(spec, others)
        return flag if flag and flag != needs.CUDA else ""
    fix = _switch(spec, serving) or fix
    return "" if fix in _OF_KERNELS else fix or ""


def _of_tables(spec: FactSpec, absent: list[str]) -> str | None:
    """The options that fill the absent tables; the GIL has ranges of its own."""
    gil = [needs.GIL] if spec.flag == needs.GIL else []
    return combine([*(_TABLES.get(t, needs.CUDA) for t in absent), *gil])


def _switch(spec: FactSpec, serving: str | None) -> str | None:
    """The environment variable by which a serving engine records this fact."""
    data = engines().get(serving or "")
    kinds = {need.switch for need in spec.needs if need.switch}
    lines = () if data is None else (v for v in data.capture if kinds & set(v.supplies))
    return next((f"{v.variable}={v.value}" for v in lines), None)


def options_of(fix: str) -> tuple[str, ...]:
    """The options and variables that a remedy names; none where it is a better run."""
    return tuple(w for w in fix.split() if re.match(r"--?[a-z]|[A-Z][A-Z0-9_]*=", w))


def combine(fixes: Iterable[str]) -> str | None:
    """Several remedies as one: trace lists merged, no duplicates, words after options.

    The size of the weights is only the second-best substitute for samples.
    """
    wanted = list(dict.fromkeys(part for fix in fixes for part in fix.split(" and ") if part))
    if any(f != needs.WEIGHTS for f in wanted):
        wanted = [f for f in wanted if f != needs.WEIGHTS]
    options = [o for fix in wanted for o in options_of(fix)]
    traced = [s for o in options if o.startswith("--trace=") for s in o[8:].split(",")]
    merged = [f"--trace={','.join(dict.fromkeys(traced))}"] if traced else []
    rest = [o for o in options if not o.startswith("--trace=")]
    variables = [o for o in rest if not o.startswith("-")]
    ordered = [*variables, *merged, *(o for o in rest if o.startswith("-"))]
    words = [f for f in wanted if not options_of(f)]
    text = " ".join(dict.fromkeys(ordered))
    return " and ".join(t for t in (text, *words) if t) or None
