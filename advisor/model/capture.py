"""What a capture says about itself: the tool, its options, the machine. No event data. And the base of
all documents: frozen, and shown as one line in Python or a short page in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import field

from advisor.model.records import Frozen

#: What stands in for the method by which steps were found (`step_method`) where a capture holds no times.
SUMS, LOAD = "sums of the whole recording", "the load of a server, by its own words"


class Device(Frozen, frozen=True, kw_only=True):
    """One GPU as the capture describes it; None for unknown values.

    `id` is the capture's own number (`Capture.device_numbers` says whose); `bus_id` is the PCI address,
    which all tools share; `cuda_ordinals` are the numbers that processes use for the GPU."""

    id: int
    bus_id: str | None = None
    cuda_ordinals: tuple[int, ...] = ()
    name: str | None = None
    chip: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    clock_hz: float | None = None
    l2_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


class Recorder(Frozen, frozen=True, kw_only=True):
    """Properties of the tool that recorded a capture, for facts, advice and reports; each reader defines
    its own.

    `clock` says in words what its times count from, `tables` how its files name our tables.
    `nsys_options` is true if it takes the options of `nsys profile`, which advice then names.
    `backtraces` and `ranges` would record the source of the CUDA calls: the functions, and ranges around
    them. A tool of `samples_only` sees no kernels; one of `migrations` always records those of unified
    memory. `again` is what makes a capture with times of a run that was summed up."""

    clock: str = "times from the start of the capture"
    tables: dict[str, str] = field(default_factory=dict)
    nsys_options: bool = False
    backtraces: str | None = None
    ranges: str | None = None
    samples_only: bool = False
    migrations: bool = False
    again: str = ""


class Capture(Frozen, frozen=True, kw_only=True):
    """Metadata of one capture. Environment variables appear by name only, never with a value.

    `process_ranks` are (process, MPI rank), if several ranks may be in one capture, `threads` the names that
    programs gave their threads; `utc_offset_s` is by
    how much the machine's own clock is ahead of UTC. `vendor` made the GPUs, and `device_numbers` says in
    words whose numbers their ids are. `zero_ns` is the file's own time of our 0. `modules` are classes of
    Python modules that ran, `views` tables of the export that the file replaces by views: they are not
    read. `gpus_listed` are the GPUs that the recorder lists (None if it keeps no list), `memory_of` where
    memory was allocated. `cuda_traced` is None if the traced sources are not listed. `under_wsl`: the
    program ran in the Windows Subsystem for Linux, whose driver is that of Windows."""

    path: str
    format: str
    recorder: Recorder = Recorder()
    size_bytes: int = 0
    producer: str | None = None
    producer_version: str | None = None
    schema_version: str | None = None
    start_utc_ns: int | None = None
    utc_offset_s: int | None = None
    duration_ns: int | None = None
    zero_ns: int = 0
    vendor: Literal["NVIDIA", "AMD"] = "NVIDIA"
    device_numbers: str | None = None
    driver: str | None = None
    cuda: str | None = None
    under_wsl: bool | None = None
    command: tuple[str, ...] = ()
    environment_names: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    trace_sources: tuple[str, ...] = ()
    cuda_traced: bool | None = None
    gpus_listed: int | None = None
    memory_of: tuple[Literal["cpu", "gpu"], ...] = ()
    graph_trace_mode: str | None = None
    sample_hz: float | None = None
    world_size: int | None = None
    rank: int | None = None
    process_ranks: tuple[tuple[int, int], ...] = ()
    processes: tuple[tuple[int, str], ...] = ()
    threads: tuple[tuple[int, str], ...] = ()
    modules: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    views: tuple[str, ...] = ()


LedgerKind = Literal["dropped", "repaired", "doubted"]
#: From this share of a table on it is reported.
_NOTABLE = 0.01


class LedgerRow(Frozen, frozen=True, kw_only=True):
    """`count` of `rows` that were left out (dropped), read otherwise (repaired) or cannot be true
    (doubted)."""

    kind: LedgerKind
    what: str
    table: str
    count: int
    rows: int
    severity: Literal["note", "warning"]

    @classmethod
    def of(cls, kind: LedgerKind, what: str, table: str, count: int, rows: int) -> LedgerRow:
        severity: Literal["note", "warning"] = "warning" if count >= _NOTABLE * rows else "note"
        return cls(kind=kind, what=what, table=table, count=count, rows=rows, severity=severity)

    def __str__(self) -> str:
        return f"{self.count:,} of {self.rows:,} rows of {self.table} {self.kind}: {self.what}"


class InputDevice(Frozen, frozen=True, kw_only=True):
    """A GPU of the capture: its number in reports, its PCI address, its ordinals in the processes."""

    id: int
    name: str | None = None
    bus_id: str | None = None
    cuda_ordinals: tuple[int, ...] = ()


#: Maximal length of a sentence in the one line.
_LETTERS = 120


class Shown(Frozen, frozen=True, kw_only=True):
    """A document with one sentence, such as its `summary` or `verdict`, and rows for a table below it."""

    def _sentence(self) -> str:
        names = ("summary", "sentence", "verdict")
        return next((str(getattr(self, name)) for name in names if hasattr(self, name)), "")

    def _rows(self) -> Iterator[Sequence[object]]:
        yield from ()

    def __repr__(self) -> str:
        text = self._sentence()
        short = text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1].rstrip()}…"
        return f"<{type(self).__name__}: {short}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in self._rows()
        )
        return f"<p><b>{escape(self._sentence())}</b></p>" + (f"<table>{rows}</table>" if rows else "")
