"""How facts are declared, in the modules that compute them, and how their values are collected; what else
rules may name: parts of the budget, tables to join, tables of evidence, facts about the recording itself.

A declaration holds everything about a fact; the catalogue, where values come from, why one is missing and
the pages of the documentation derive from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import Struct, field

from advisor.model.facts import TRACE, Fact, FactBase, Interval, Level, Row, Scope, Table, Unit, Value
from advisor.model.gain import whole

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis


#: How a fact combines over a job of ranks: it keeps a value for each, the job has their median as well,
#: or it is made of all captures together.
OverRanks = Literal["each", "median", "joint"]


class Need(Struct, frozen=True):
    """Something that a fact needs besides its tables and columns.

    `met` looks for it in the analysis of one device; without `met` it is all that the fact can lack.
    `supply` is what would provide it, an option or a better run; `switch` is the kind of record under
    which the knowledge of a serving engine lists a variable that does so.
    """

    lack: str
    supply: str | None = None
    met: Callable[[Analysis], bool] | None = None
    switch: str | None = None


class FactSpec(Struct, frozen=True):
    """One fact: its name, unit, meaning, sources and formula.

    `tables` are the trace tables without which it has no value, `columns` all that it is made of, by
    table: none if it comes from metadata or from several captures. `flag` is the capture option that
    supplies them, `supply` what does if that is no option. `needs` are checked in their order. `windowed`
    is false for counts over the whole file. `over_ranks` is how it combines over a job.
    """

    name: str
    unit: Unit
    level: Level
    meaning: str
    tables: tuple[str, ...]
    how: str
    flag: str = ""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    supply: str | None = None
    windowed: bool = True
    over_ranks: OverRanks = "each"

    def sources(self, present: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tables and ``table.column`` names that it was made of in a capture with the tables
        `present`."""
        if "sums" in present and self.columns:
            return ("sums",), tuple(f"sums.{c}" for c in self.columns.get("sums", ("count", "total")))
        # A count of 0 because tables are missing still comes from those tables.
        read = {t: c for t, c in self.columns.items() if t in present} or self.columns
        tables = tuple(t for t in self.tables if t in present) or tuple(read)
        return tables, tuple(f"{t}.{c}" for t, names in read.items() for c in names)


class EntitySpec(Struct, frozen=True):
    """A table of rows that rules may join: its level and typed fields."""

    name: str
    level: Level
    meaning: str
    fields: dict[str, type]


class Entry(Struct, frozen=True):
    """The part of a declaration that is particular to one fact; the rest is that of its `group`."""

    name: str
    unit: Unit
    tables: str
    meaning: str
    how: str
    columns: Mapping[str, str] | None = None
    needs: tuple[Need, ...] | None = None
    supply: str | None = None
    windowed: bool | None = None
    over_ranks: OverRanks | None = None


def group(
    level: Level,
    flag: str,
    entries: Iterable[Entry],
    *,
    columns: Mapping[str, str],
    needs: tuple[Need, ...] = (),
    supply: str | None = None,
    windowed: bool = True,
    over_ranks: OverRanks = "each",
) -> tuple[FactSpec, ...]:
    """Facts that share a level, an option and, unless a fact has its own, columns and needs."""
    found = []
    for f in entries:
        made_of = _by_table(f.tables, columns if f.columns is None else f.columns)
        first = (f.name, f.unit, level, f.meaning, tuple(f.tables.split()), f.how, flag, made_of)
        needed, inside = needs if f.needs is None else f.needs, windowed if f.windowed is None else f.windowed
        found.append(FactSpec(*first, needed, f.supply or supply, inside, f.over_ranks or over_ranks))
    return tuple(found)


def _by_table(tables: str, columns: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Columns as names, the tables that the fact cannot do without first."""
    order = [*(t for t in tables.split() if t in columns), *columns]
    return {t: tuple(columns[t].split()) for t in dict.fromkeys(order)}


def _plain(value: Any) -> Value | None:
    """A NumPy scalar as a plain value; None for NaN."""
    found: Value | None = getattr(value, "item", lambda: value)()
    return None if found != found else found


class FactWriter:
    """Fills a `FactBase`. A value of None or NaN is unknown and stays missing."""

    def __init__(
        self,
        catalogue: Mapping[str, FactSpec],
        window: tuple[int, int] | None = None,
        tables: frozenset[str] = frozenset(),
        has_steps: bool = False,
    ) -> None:
        """`tables` are the tables of the capture."""
        self.base = FactBase()
        self._scope = TRACE
        self._catalogue = catalogue
        self._window = window
        self._tables = tables
        self._whole = whole(has_steps)

    def at(self, scope: Scope) -> FactWriter:
        """A writer to the same base; facts that are not about the whole trace get this scope."""
        own = copy(self)
        own._scope = scope
        return own

    def put(self, name: str, value: Any) -> None:
        """Store a value. Raises KeyError for a name that is not in the catalogue, ValueError if this
        writer is for a scope of another level: both are programming errors."""
        spec = self._catalogue[name]
        value = _plain(value)
        if value is None or value in (math.inf, -math.inf):
            return
        scope = self._scope_of(name)
        if scope.level != spec.level:
            raise ValueError(f"{name} is a fact about a {spec.level}, not about {scope}")
        tables, columns = spec.sources(self._tables)
        window = self._window if spec.windowed else None
        self.base.add(Fact(name, value, spec.unit, scope, tables, columns, spec.how, window))

    def _scope_of(self, name: str) -> Scope:
        return TRACE if self._catalogue[name].level == "trace" else self._scope

    def value(self, name: str) -> float | None:
        """A number that was put before; None if it is missing or no number."""
        found = self.base.value(name, self._scope_of(name))
        return float(found) if isinstance(found, int | float) else None

    def __ior__(self, values: Mapping[str, Any]) -> Self:
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
        rows: Sequence[Sequence[Any]],
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
            named = title or usual[0].format(whole=self._whole)
            table = Table(named, heads, tuple(tuple(map(_plain, row)) for row in rows))
            self.base.tables[name, self._scope] = table

    def places(self, name: str, intervals: Sequence[Interval]) -> None:
        if intervals:
            self.base.intervals[name, self._scope] = list(intervals)

    def entity(self, name: str, rows: Sequence[Row]) -> None:
        self.base.entities.setdefault(name, []).extend(rows)


# --- the parts of the budget: what each counts of a device's window -------------------------------

#: Part -> what runs, or what the device waits for, during it.
PART_MEANINGS = {
    "compute": "kernels, memsets and graph runs run",
    "communication": "collectives run and nothing else does",
    "htod": "host-to-device copies run and no kernel does",
    "dtoh": "device-to-host copies run and no kernel or upload does",
    "other_copy": "device-to-device and peer copies run and nothing else does",
    "migration": "pages of unified memory migrate and nothing else runs",
    "graph_internal": "idle between two nodes of one graph run",
    "queued": "idle although the next operation had been queued before the gap began, or over 10 ms after its launch",
    "launch_latency": "idle from the return of the launch call to the start of its operation, up to 10 ms",
    "profiler": "idle that the profiler caused: flushes, and node tracing of graph launches",
    "startup": "idle in what happens once: context creation, module loads, set-up of libraries",
    "gc": "idle while Python collects garbage on the feeding thread",
    "gil": "idle while the feeding thread waits for the GIL",
    "alloc": "idle inside an allocation or free call",
    "sync": "idle inside a synchronize call, and in the host code after it up to the next call where that follows within 100 us",
    "copy_call": "idle inside a copy or memset call of the host",
    "launch_call": "idle inside a kernel-launch call of the host",
    "graph_launch_call": "idle inside a graph-launch call, up to its untraced cost",
    "os": "idle while the feeding thread is blocked in an operating-system call",
    "host_gap": "idle with no CUDA call on the feeding thread, between steps or in code of 0.2 ms and more",
    "host_between_launches": "idle with no CUDA call on the feeding thread, within a step",
    "unified_memory": "idle before pages of unified memory migrate, up to 100 us each time",
    "unknown": "idle whose next operation has no API call in the capture",
}

#: What the impact of a rule may be a share of: a part of the budget, several of them, or a whole.
IMPACT_PARTS = (*PART_MEANINGS, "idle", "step", "steps", "capture")

#: Tables of rows that rules may join.
ENTITIES: dict[str, EntitySpec] = {
    spec.name: spec
    for spec in (
        EntitySpec("copy_class", "device", "Copies by direction and kind of memory", {
            "device": int, "kind": str, "memory": str, "count": int, "per_step": float,
            "bytes": int, "mean_bytes": float, "time_ratio": float, "exposed_ratio": float,
            "rate_bytes_per_s": float,
        }),
        EntitySpec("sync_call", "device", "Blocking calls by name", {
            "device": int, "name": str, "count": int, "per_step": float, "time_ratio": float,
            "idle_ratio": float, "p50_ns": float, "max_ns": float,
        }),
        EntitySpec("family", "device", "Kernel families", {
            "device": int, "family": str, "count": int, "time_ratio": float, "dram_ratio": float,
            "sm_ratio": float, "tensor_ratio": float,
        }),
    )
}  # fmt: skip

#: The tables that a finding may show as evidence, all that rules can name and that facts write: title,
#: and columns with their units. `{whole}` is what shares of the untraced step are of. A fact gives its own
#: title where its findings decide it.
EVIDENCE_TABLES: dict[str, tuple[str, str]] = {
    "activity.groups": ("Sampled activity inside kernels (least squares), share of the window", "family, kernel and blocks, share:ratio, DRAM:ratio, SM:ratio, Tensor:ratio, error:ratio"),
    "alloc.calls": ("Allocation and free calls, share of the window", "call, count, a step, total:ms, share:ratio, p50:us, max:us"),
    "api.top": ("CUDA API calls by time, share of the window", "call, count, a step, total:ms, share:ratio, p50:us, max:us"),
    "call_sites.alloc": ("Where the allocations come from, share of their time", "called from, call, calls, a step, total:ms, share:ratio, GPU idle:ms"),
    "call_sites.copy": ("Where the copies come from, share of their time", "called from, call, calls, a step, total:ms, share:ratio, GPU idle:ms"),
    "call_sites.flag": ("The calling code is not recorded", "capture with"),
    "call_sites.launch": ("Where the launches come from, share of their time", "called from, call, calls, a step, total:ms, share:ratio, GPU idle:ms"),
    "call_sites.sync": ("Where the waits come from, share of their time", "called from, call, calls, a step, total:ms, share:ratio, GPU idle:ms"),
    "capture.damage": ("Signs of lost events", "sign, value"),
    "capture.errors": ("Calls that returned an error", "call, code, at:s, error"),
    "capture.invalid": ("Rows that cannot be true", "what is wrong, rows, count, share"),
    "capture.options": ("How it was recorded", "option, value"),
    "capture.outside_work": ("GPU work outside the window, share of the GPU time", "where, GPU time:ms, share:ratio, from:s, to:s"),
    "capture.startup_events": ("What start-up and tear-down did", "what, length:ms, at:s"),
    "capture.startup_parts": ("What start-up was made of, share of the capture", "part, length:ms, share:ratio, what would shorten it"),
    "clock.samples": ("Clocks, power and temperature while busy", "what, value, unit"),
    "comm.kinds": ("Collectives by kind, share of the {whole}", "kind, calls, total:ms, share:ratio, exposed:ratio, p50:us, max:us"),
    "copies.classes": ("Copies, share of the {whole}", "direction, memory, count, mean size:bytes, share:ratio, exposed:ratio, rate:bytes_per_s"),
    "gpus.turns": ("GPUs of the process, share of the window", "device, compute:ms, share:ratio, alone:ratio, while_others:ratio"),
    "graph.buckets": ("Batches and the largest that replays the same graph", "replayed with, batch, steps"),
    "host.collections": ("Longest garbage collections", "at:s, length:ms, GPU idle:ms, thread"),
    "host.gaps": ("Longest stretches of host code with an idle device", "at:s, length:ms, thread"),
    "host.gil_holders": ("Who holds the GIL while the launching thread waits", "thread, holds it:ms, share of the waiting:ratio"),
    "idle.parts": ("Where the idle time goes, share of the window", "part, time:ms, share:ratio"),
    "interruptions": ("Stretches without a kernel", "at, length:ms, copies:ms"),
    "kernels.attention": ("Attention by recorded sizes, as if no mask left any out: rates of the peak of its precision and of memory", "operator, batch x heads x queries x width x keys, bytes each, calls, time:ms, TFLOP/s, of peak:ratio, operands of bandwidth:ratio, share:ratio"),
    "kernels.families": ("Kernel families, share of the kernel time", "family, calls, time:ms, share:ratio"),
    "kernels.fp32": ("FP32 matrix kernels", "kernel, operation, calls, share:ratio, blocks"),
    "kernels.local": ("Kernels that use local memory", "kernel, operation, calls, share:ratio, bytes a thread"),
    "kernels.matmuls": ("Matrix products by recorded sizes: rates of the peak of their precision and of memory", "operator, m x k x n, bytes each, calls, time:ms, TFLOP/s, of peak:ratio, operands of bandwidth:ratio, share:ratio"),
    "kernels.old_architecture": ("Kernels built for an older architecture, share of the kernel time", "kernel, operation, calls, share:ratio, blocks"),
    "kernels.products": ("Products of a step by the sizes in config.json, bandwidth of peak, share of the {whole}", "product, weights:bytes, calls, p50:us, bandwidth:ratio, share:ratio"),
    "kernels.shapes": ("Kernels whose launch shape changes between steps, share of the kernel time", "kernel, operation, grids, least blocks, most blocks, calls, share:ratio"),
    "kernels.small_grid": ("Kernels that launch few blocks", "kernel, operation, calls, share:ratio, blocks"),
    "kernels.top": ("Kernels by time, share of the kernel time", "kernel, operation, family, calls, total:ms, share:ratio, p50:us, p95:us, p99:us, max:us"),
    "launch.top_calls": ("Launch calls, share of the window", "call, count, a step, total:ms, share:ratio, p50:us, max:us"),
    "layers.parts": ("What a layer takes", "part, operation, a layer, time a layer:us, share:ratio"),
    "memory.places": ("Code that makes the allocator take device memory", "allocated from, times, taken:bytes"),
    "operators.top": ("Operators, ranges and calls by the host's own time in them", "name, calls, time:ms, share:ratio, mean:us"),
    "operations.tail": ("Durations of the launch shape with the largest tail", "operation, kernel, calls, p50:us, p99:us, max:us, lost in tail:ms"),
    "origins.modules": ("GPU time by Python module", "module, objects, GPU work, self:ms, total:ms, share:ratio"),
    "origins.places": ("Code that launches the kernels", "launched from, kernels, time:ms, share:ratio"),
    "ranks.arrivals": ("Who comes last, and who waits", "rank, last, of, causes:ratio, late_on_average:ms, waits:ms, clock_offset:us"),
    "ranks.families": ("Kernel families on the late ranks and on the others", "family, calls a step, late ranks a call:ms, others a call:ms, more a step:ms"),
    "ranks.late": ("What a rank did before the collectives it came last to", "since_the_collective_before, this_rank:ms, other_ranks:ms, more:ms"),
    "ranks.pace": ("Kernels beside the same ones of the other ranks", "kernel, share:ratio, this_rank:ms, other_ranks:ms, longer"),
    "ranks.parts": ("What late ranks did longer than the others", "since_the_collective_before, longer:ms, of_the_lateness:ratio"),
    "steps.phases": ("Steps by phase", "phase, count, median:ms, mean:ms, p99:ms, max:ms"),
    "steps.slowest": ("Slowest steps", "step, phase, time:ms, end:s"),
    "sync.top_calls": ("Synchronize and blocking calls, share of the window", "call, count, a step, total:ms, share:ratio, p50:us, max:us"),
    "sync.waits": ("What the host waits for, share of the window", "for, stream, count, share:ratio, no work left:ratio, for other streams:ratio, which"),
    "unified.migrations": ("Migrations of unified memory, share of the {whole}", "direction, reason, count, mean size:bytes, share:ratio, rate:bytes_per_s"),
}  # fmt: skip


# --- the catalogue of facts about how a capture was recorded, which the questions of `advisor
# doctor` look at beside the facts of the trace

#: Trace tables whose presence decides an answer.
ASKED_TABLES = ("kernels", "api_calls", "samples", "ranges", "allocations", "host_samples",
                "callchains")  # fmt: skip

_ROWS: tuple[tuple[str, Unit, str, str], ...] = (
    *((f"has_{t}", "flag", f"The capture holds the table `{t}`", "row count") for t in ASKED_TABLES),
    ("has_backtraces", "flag", "CUDA calls carry backtraces", "call chains of the calls"),
    ("has_steps", "flag", "Steps were found in the window", "as capture.step_count"),
    ("step_method", "text", "How steps were found", "none without steps"),
    ("phases", "text", "Phases that distinguish the steps", "prefill, decode, mixed"),
    ("world_size", "count", "Ranks of the job that the capture belongs to", "capture metadata"),
    ("cuda_remedy", "text", "What would record CUDA at work", "by what was lost or unused"),
    ("kernel_remedy", "text", "What would record the kernels", "nodes where graphs hide them"),
)
_INPUT: tuple[tuple[str, Unit, str, str], ...] = (
    ("producer", "text", "What recorded the capture", "capture metadata"),
    ("driver", "text", "Version of the driver", "capture metadata"),
    ("cuda", "text", "Version of CUDA that the driver supports", "capture metadata"),
    ("format", "text", "What the capture was read as", "by its content"),
    ("serving_engine", "text", "Serving engine", "as given, else the first that a capture shows"),
    ("nsys_fits", "flag", "The nsys that recorded is as new as the driver's CUDA", "by their versions"),
    ("several", "flag", "More than one capture is given", "count"),
    (
        "compared",
        "flag",
        "Two captures are given, and a comparison found them comparable",
        "as advisor compare",
    ),
    ("comparison", "text", "What the comparison of two captures says", "as advisor compare"),
)


def _of(group: str, rows: tuple[tuple[str, Unit, str, str], ...]) -> Mapping[str, FactSpec]:
    named = ((f"{group}.{name}", unit, meaning, how) for name, unit, meaning, how in rows)
    return {n: FactSpec(n, unit, "trace", meaning, (), how, "sketch") for n, unit, meaning, how in named}


RECORDING = _of("recording", _ROWS)
#: What `advisor checklist` knows of each capture beside its facts.
INPUT = _of("input", _INPUT)
