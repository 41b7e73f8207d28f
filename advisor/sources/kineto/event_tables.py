"""Events of the PyTorch profiler -> our tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import msgspec
import numpy as np

from advisor.model.arrays import begins_run
from advisor.sources.kineto import columns as kineto
from advisor.sources.kineto.decode import NO_ARGS, Args, Event, Inexact
from advisor.sources.schema import (
    ALLOCATED,
    DEVICE_MEMORY,
    FREED,
    MISSING,
    NARROW_COLUMNS,
    OPERATIONS,
    PUSH_POP,
    Ints,
)
from advisor.sources.trace import Columns, halved

_TID_MASK = 0x7FFFFFFF
#: Kinds of events that are ranges, in the order in which they are joined.
_RANGES = ("annotations", "operators", "old_operators", "python")
#: Kinds whose events are rows of the table of this name.
_COUNTED = ("kernels", "copies", "memsets", "api_calls")
_ENCODER = msgspec.json.Encoder()
#: Sizes of operators without arguments.
_NO_SIZES = (b"[]", b"null", b'""')


class Collector:
    """Takes events part by part and keeps columns of them. Times count from the file's zero, maybe 1970."""

    def __init__(self, external_ids: bool = False) -> None:
        """`external_ids`: keep the id of the operator around each call and each GPU operation."""
        self.pool = kineto.Pool()
        self._operand_texts: dict[bytes, int] = {}
        self._external_ids = external_ids
        #: Labels of ranks with their numbers, if the traces of several were merged.
        self.labels: dict[str, int] = {}
        self._merged: bool | None = None
        self.categories: set[str] = set()
        #: Classes of Python modules that ran.
        self.modules: set[str] = set()
        #: The earliest event of any kind, and the recorded span if the trace contains it.
        self.first = kineto.NO_TIME
        self.span: tuple[int, int] | None = None
        #: Events of a known kind without a time, and how many of them are rows of a table.
        self.timeless = 0
        self.timeless_rows: Counter[str] = Counter()
        #: Events that end before they start.
        self.negative = 0
        #: Kinds of devices on which memory was allocated.
        self.memory_devices = set[int]()
        #: Names of processes and of threads, by number.
        self.processes: dict[int, str] = {}
        self.threads: dict[int, str] = {}
        self._parts: dict[str, list[Columns]] = defaultdict(list)

    def add(self, events: Sequence[Event]) -> None:
        """Raises Inexact, without adding anything, if the events must be decoded as decimals."""
        found: dict[str, list[Event]] = defaultdict(list)
        if self._merged is None and events:  # all events of a merged file are labelled
            self._merged = kineto.rank_label(events[0].pid) is not None
        for event in events:
            found[event.cat or ""].append(event)
        begun = kineto.nanoseconds([e.ts for e in events if e.ph == "X"])
        begun = begun[begun != kineto.NO_TIME]
        before, timeless = (self.timeless, self.negative), Counter[str]()
        taken: list[tuple[str, Columns]] = []
        try:
            for category, rows in found.items():
                role = kineto.ROLES.get(category)
                known = self.timeless
                columns = getattr(self, f"_{role}")(rows) if role else None
                if role in _COUNTED:
                    timeless[role] += self.timeless - known
                if role and columns is not None:
                    taken.append((role, columns))
                if role == "kernels" and (collectives := self._collectives(rows)) is not None:
                    taken.append(("collectives", collectives))
                if role == "python":
                    taken.append(("python_rows", self._hosted(rows)[1]))
                    for table, kind in (("python_calls", kineto.FUNCTION), ("modules", kineto.MODULE)):
                        if (calls := self._functions(rows, kind)) is not None:
                            taken.append((table, calls))
        except Inexact:
            self.timeless, self.negative = before
            raise
        for events in found.values():
            if events[0].ph == "M":
                self._name(events)
        self.timeless_rows += timeless
        self.categories |= found.keys()
        if len(begun):
            first = int(begun.min())
            self.first = first if self.first == kineto.NO_TIME else min(first, self.first)
        for role, columns in taken:
            halves = {name: halved(columns[name]) for name in columns.keys() & NARROW_COLUMNS}
            self._parts[role].append(columns | halves)

    def tables(self) -> dict[str, Columns]:
        """All columns that were read, each table in order of time. Parts of them are given up as they are put
        together."""
        by_table = {role: parts for role, parts in self._parts.items() if role not in _RANGES}
        by_table["ranges"] = [part for role in _RANGES for part in self._parts.get(role, ())]
        joined = {
            table: {name: np.concatenate([p.pop(name) for p in parts]) for name in list(parts[0])}
            for table, parts in by_table.items()
            if parts
        }
        if "instants" in joined:
            joined["allocations"] = _allocations(joined.pop("instants"))
        for table, columns in joined.items():
            time = columns["time" if "time" in columns else "start"]
            if len(time) and (time[1:] < time[:-1]).any():
                order = np.argsort(time, kind="stable")
                joined[table] = {name: values[order] for name, values in columns.items()}
        return {table: columns for table, columns in joined.items() if len(next(iter(columns.values())))}

    def _name(self, events: Sequence[Event]) -> None:
        """Keeps the names that metadata gives processes and threads; of two for one the first."""
        for event in events:
            text = event.args.name if event.args is not None else None
            if event.ph != "M" or not isinstance(text, str) or not (text := text.strip()):
                continue
            if event.name == "process_name" and (number := kineto.integer(event.pid)) != MISSING:
                self.processes.setdefault(number, text)
            elif event.name == "thread_name" and (number := kineto.integer(event.tid)) != MISSING:
                known = kineto.THREAD.match(text)
                if own := known[1] if known else text:
                    self.threads.setdefault(number & _TID_MASK, own)

    def _timed(self, events: list[Event], least: int = 0) -> tuple[list[Event], Columns]:
        """The spans among the events, with start and end, at least `least` ns long: -1 keeps impossible
        ones."""
        if any(e.ph != "X" for e in events):
            events = [e for e in events if e.ph == "X"]
        start = kineto.nanoseconds([e.ts for e in events])
        length = kineto.nanoseconds([e.dur for e in events])  # a missing one is below 0, too
        known = start != kineto.NO_TIME
        if not known.all():
            self.timeless += int((~known).sum())
            events = [e for e, k in zip(events, known.tolist(), strict=True) if k]
            start, length = start[known], length[known]
        if least == 0:
            self.negative += int((length < 0).sum())
        return events, {"start": start, "end": start + np.maximum(length, least)}

    def _work(self, events: list[Event]) -> tuple[list[Event], list[Any], Columns]:
        """The common columns of GPU operations; the process comes later."""
        events, columns = self._timed(events, -1)
        args = [e.args or NO_ARGS for e in events]
        device = [
            a.device if a.device is not None else e.pid if a.in_device is None else a.in_device
            for a, e in zip(args, events, strict=True)
        ]
        stream = [e.tid if a.stream is None else a.stream for a, e in zip(args, events, strict=True)]
        columns |= {
            "device": np.maximum(kineto.integers(device), 0),  # a trace without ids has one
            "stream": kineto.integers(stream),
            "context": kineto.integers([a.context for a in args]),
            "correlation": _positive(kineto.integers([a.correlation for a in args])),
        }
        if self._external_ids:
            columns["external"] = _external(args)
        return events, args, columns | self._rank_of(events)

    def _rank_of(self, events: list[Event]) -> Columns:
        """The number of each event's rank in `labels`, where the file holds several ranks."""
        if not self._merged:
            return {}
        texts = [kineto.rank_label(e.pid) for e in events]
        number = {text: self.labels.setdefault(text, len(self.labels)) for text in set(texts) if text}
        return {"label": np.array([number.get(text or "", MISSING) for text in texts], np.int64)}

    def _kernels(self, events: list[Event]) -> Columns:
        events, args, columns = self._work(events)
        grid, block = kineto.triples([a.grid for a in args]), kineto.triples([a.block for a in args])
        columns |= {f"grid_{axis}": grid[:, i] for i, axis in enumerate("xyz")}
        columns |= {f"block_{axis}": block[:, i] for i, axis in enumerate("xyz")}
        columns |= {
            "name_id": self.pool.ids([e.name for e in events]),
            "blocks": kineto.product(grid),
            "threads": kineto.product(block),
            "registers": kineto.integers([a.registers for a in args]),
            "shared_bytes": kineto.integers([a.shared for a in args]),
        }
        return columns

    def _collectives(self, events: list[Event]) -> Columns | None:
        """Information in the kernels of collectives (since 2.2) about their call."""
        events = [e for e in events if e.args is not None and e.args.collective is not None]
        if not events:
            return None
        before = self.timeless
        events, args, columns = self._work(events)
        self.timeless = before  # they have been counted among the kernels
        del columns["end"], columns["context"]
        elements = np.maximum(
            kineto.integers([a.elements_in for a in args]), kineto.integers([a.elements_out for a in args])
        )
        size = np.array([kineto.ELEMENT_BYTES.get(str(a.dtype).lower(), MISSING) for a in args], np.int64)
        columns |= {
            "bytes": np.where((elements < 0) | (size < 0), MISSING, elements * size),
            "group_id": self.pool.ids([None if a.group is None else str(a.group) for a in args]),
            "sequence": kineto.integers([a.sequence for a in args]),
            "name_id": self.pool.ids([str(a.collective) for a in args]),
        }
        return columns

    def _copies(self, events: list[Event]) -> Columns:
        events, args, columns = self._work(events)
        given = (arg.kind if isinstance(arg.kind, str) else None for arg in args)
        keys = list(zip((e.name for e in events), given, strict=True))
        kinds = {key: kineto.copy_kinds(*key) for key in set(keys)}
        kind = np.array([kinds[key] for key in keys], np.int64).reshape(-1, 3)
        columns |= {
            "bytes": kineto.integers([a.bytes for a in args]),
            "kind": kind[:, 0],
            "src_memory": kind[:, 1],
            "dst_memory": kind[:, 2],
            "migration_cause": np.full(len(events), MISSING, np.int64),
            "address": np.full(len(events), MISSING, np.int64),
        }
        return columns

    def _memsets(self, events: list[Event]) -> Columns:
        events, args, columns = self._work(events)
        memory = [kineto.memory_kind(e.name.partition("(")[2].rstrip(")") if e.name else "") for e in events]
        columns |= {"bytes": kineto.integers([a.bytes for a in args]), "memory": np.array(memory, np.int64)}
        return columns

    def _api_calls(self, events: list[Event]) -> Columns:
        events, columns = self._hosted(events, -1)
        missing = np.full(len(events), MISSING, np.int64)
        args = [e.args or NO_ARGS for e in events]
        if self._external_ids:
            columns["external"] = _external(args)
        columns |= {
            "correlation": _positive(kineto.integers([a.correlation for a in args])),
            "name_id": self.pool.ids([e.name for e in events]),
            "result": missing,
            "callchain": missing,
        }
        return columns

    def _old_operators(self, events: list[Event]) -> Columns:
        """Until 2021 annotations were operators; only these have names without a namespace."""
        columns = self._ranges(events, OPERATIONS)
        own = self.pool.ids([text for text in self.pool if "::" not in text])
        columns["domain"] = np.where(np.isin(columns["text_id"], own), 0, OPERATIONS)
        return columns

    def _python(self, events: list[Event]) -> Columns | None:
        named = {e.name for e in events if e.name}
        self.modules |= {hit[1] for name in named if (hit := kineto.MODULE.match(name))}
        events = [e for e in events if e.name in kineto.GC_NAMES]
        if not events:
            return None
        columns = self._ranges(events, 0)
        columns["text_id"] = self.pool.ids([kineto.GC_NAME] * len(columns["start"]))
        return columns

    def _functions(self, events: list[Event], kind: re.Pattern[str]) -> Columns | None:
        """Calls of functions that are neither built in nor of PyTorch itself, or of modules."""
        events = _named(events, kind.match)
        if not events:
            return None
        events, columns = self._hosted(events)
        names = [(e.name or "").removeprefix(kineto.MODULE_PREFIX) for e in events]
        return columns | {"text_id": self.pool.ids(names)}

    def _ranges(self, events: list[Event], domain: int) -> Columns:
        events, columns = self._hosted(events)
        columns |= {
            "domain": np.full(len(events), domain, np.int64),
            "text_id": self.pool.ids([e.name for e in events]),
            "style": np.full(len(events), PUSH_POP, np.int64),
            "operands_id": self._operands(events),
            "number": _positive(_external([e.args or NO_ARGS for e in events])),
            "payload": np.full(len(events), MISSING, np.int64),
        }
        return columns

    _annotations = partialmethod(_ranges, domain=0)
    _operators = partialmethod(_ranges, domain=OPERATIONS)

    def _operands(self, events: list[Event]) -> Ints:
        """Texts such as `[[16, 1024], [1024, 1024]] ["c10::BFloat16", "c10::BFloat16"]`, if recorded, with
        strides where a tensor repeats itself, and numbers where the work of the operator depends on them."""
        known, names = self._operand_texts, {e.name for e in events}
        numbered = {name for name in names if name and kineto.NUMBERED.search(name)}

        def operands(name: str | None, args: Args) -> int:
            key = bytes(args.sizes)
            if not key or key in _NO_SIZES:
                return MISSING
            parts = [key, bytes(args.types) or b"[]"]
            strides = bytes(args.strides)
            repeats = b" 0" in strides or b"[0" in strides or b",0" in strides
            if repeats or name in numbered:
                parts.append(strides if repeats else b"[]")
            if name in numbered:
                parts.append(bytes(args.numbers) or b"[]")
            key = b" ".join(parts)
            found = known.get(key)
            if found is None:
                try:
                    text = " ".join(_ENCODER.encode(msgspec.json.decode(part)).decode() for part in parts)
                except (msgspec.DecodeError, RecursionError):
                    return MISSING
                found = known[key] = self.pool[text]
            return found

        return np.array([operands(e.name, e.args or NO_ARGS) for e in events], np.int64)

    def _overheads(self, events: list[Event]) -> Columns | None:
        events = _named(events, kineto.PROFILER_COST.search)
        if not events:
            return None
        events, columns = self._timed(events)
        missing = np.full(len(events), MISSING, np.int64)  # Kineto puts them into process -1
        columns |= {"process": missing, "thread": missing, "kind_id": self.pool.ids([e.name for e in events])}
        return columns

    def _instants(self, events: list[Event]) -> Columns | None:
        """The memory of a GPU held by the caching allocator after each of its allocations."""
        pairs = [(e, e.args) for e in events if e.args is not None]
        self.memory_devices |= {kineto.integer(a.device_type) for _, a in pairs}
        pairs = [(e, a) for e, a in pairs if a.reserved is not None and a.device_type == kineto.CUDA_DEVICE]
        if not pairs:
            return None
        events, args = [e for e, _ in pairs], [a for _, a in pairs]
        columns = {
            "time": kineto.nanoseconds([e.ts for e in events]),
            "device": kineto.integers([a.device_id for a in args]),
            "process": kineto.integers([e.pid for e in events]),
            "reserved": kineto.integers([a.reserved for a in args]),
            "allocated": kineto.integers([a.allocated for a in args]),
        }
        known = columns["time"] != kineto.NO_TIME
        return {name: values[known] for name, values in columns.items()}

    def _spans(self, events: list[Event]) -> None:
        events, columns = self._timed(events)
        if len(events):
            start, end = int(columns["start"].min()), int(columns["end"].max())
            first, last = self.span or (start, end)
            self.span = min(first, start), max(last, end)

    def _hosted(self, events: list[Event], least: int = 0) -> tuple[list[Event], Columns]:
        events, columns = self._timed(events, least)
        thread = kineto.integers([e.tid for e in events])
        columns |= {
            "process": kineto.integers([e.pid for e in events]),
            # Threads that ran no operator are known only by a part of their handle.
            "thread": np.where(thread == MISSING, MISSING, thread & _TID_MASK),
        }
        return events, columns | self._rank_of(events)


def _named(events: list[Event], matches: Callable[[str], object]) -> list[Event]:
    """The events whose name matches; each name is examined once."""
    names = {name for name in {e.name for e in events if e.name} if matches(name)}
    return [e for e in events if e.name in names]


def _positive(correlation: Ints) -> Ints:
    """CUPTI counts from 1; 0 is not an id."""
    return np.where(correlation > 0, correlation, MISSING)


def _external(args: Sequence[Any]) -> Ints:
    return kineto.integers([a.external_old if a.external is None else a.external for a in args])


def _allocations(level: Columns) -> Columns:
    """Device memory allocated and released, by the amount held by the allocator at each time. The first
    row of a device is the amount when recording began."""
    order = np.lexsort((level["time"], level["device"]))
    names = ("time", "device", "process", "reserved", "allocated")
    time, device, process, reserved, allocated = (level[n][order] for n in names)
    first = begins_run(device)
    before = np.where(first, 0, np.concatenate(([0], reserved[:-1])))
    change = reserved - before
    rows = np.flatnonzero(change)
    filled = np.full(len(rows), MISSING, np.int64)
    return {
        "time": time[rows],
        "device": device[rows],
        "process": process[rows],
        "bytes": np.abs(change[rows]),
        "kind": np.where(change[rows] > 0, ALLOCATED, FREED),
        "memory": np.full(len(rows), DEVICE_MEMORY, np.int64),
        "address": filled,
        "tensors": allocated[rows],
    }
