"""A printed table of the PyTorch profiler as a source: kernels, copies, CUDA calls, operators and ranges.

The table shows GPU time several times: for the kernel, for the operator that launched it, for the range
around both and in some releases for the launch call. One of these views is kept, the one that shows most.
Tables of torch 1.4 to 1.6 count GPU time with all that an operator calls: there the operators stand for it
that do their work themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InputError
from advisor.model.capture import Capture, Recorder
from advisor.model.numbers import value_text
from advisor.reading import decoded
from advisor.sources.pasted.printed_tables import is_text, sums_columns
from advisor.sources.pasted.profiler_tables import Operator, ProfilerTable, has_headings, read_profiler_tables
from advisor.sources.pasted.raw_tables import REST, Row
from advisor.sources.schema import BETWEEN_EVENTS, BY_OPERATOR, GPU_TOTAL, HOST_TOTAL, Summed
from advisor.sources.trace import InMemory

FORMAT = "pytorch-table"
RECORDER = Recorder(
    clock="no times: sums of the profiled stretch",
    again='prof.export_chrome_trace("trace.json"); advisor trace.json',
)
_MOST_BYTES = 256 << 20
_CALL = re.compile(r"^(?:cuda|hip)[A-Z]\w*|^(?:cu|hsa_)[A-Z]\w*|^(?:Runtime|Lazy) ")
_COPY = re.compile(r"^(?:Memcpy ([HDP])to([HDP])|Copy([HDP])\w*?To([HDP])(?:ost|evice|eer))\b")
#: What the recording itself costs; it shows the time of kernels that it holds up.
_OVERHEAD = re.compile(
    r"^(?:Command Buffer Full|Activity Buffer Request|Buffer Flush|Driver Compiler|Instrumentation|Resource"
    r"|Unrecognized)$"
)
#: Ranges around GPU work that the profiler shows as if they ran on the GPU.
_SPAN = re.compile(
    r"^ProfilerStep[#*]|^## Call CompiledFxGraph|^Torch-Compiled Region|^nccl:|^DDP |^PL_|^\[pl\]"
    r"|^(?:Optimizer|FullyShardedDataParallel|DistributedDataParallel)\.|^CompiledFunction|^enumerate\("
    r"|^execute_\w+\(|^step\[|^\[Executor\]|(?i:^(?:decode|prefill|forward|iteration|step)(?:[ _#:.-]\w*)?$)"
)
#: How names of kernels look; a range of the program may have any name.
_KERNEL = re.compile(
    r"(?i)^void |^_Z|[<(]|kernel|gemm|nccl|triton|cutlass|cudnn|flash|nvjet|cijk|_sm\d\d"
    r"|^(?:ampere|volta|turing)"
)
_OPERATOR = re.compile(r"::|^\w+Backward\d*$|^torch_\w+$")
#: Two views of the same time may differ by rounding; rows that were cut off are shown from this share on.
_ROUNDING, _CUT = 1.02, 0.01
#: Kernels say more than the operators that launched them: they are kept from this share of theirs on.
_KERNELS_FROM = 0.8
#: An operator does its work itself if at least this share of its host time is its own; one that only calls
#: others spends most of it in them.
_ITSELF_FROM = 0.5
#: Share of the host's time in rows that were cut off, from which on it is said.
_MUCH = 0.1


class ProfilerSums(InMemory):
    """The sums of one recording. Of tables that belong to several, those of the first are read."""

    def __init__(self, shown: Path, text: str) -> None:
        super().__init__()
        tables = read_profiler_tables(text)
        if not tables:
            raise InputError(
                f"{shown}: headings of a table of the PyTorch profiler, and no row that can be read; print "
                'it again: print(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=-1))'
            )
        mine = [tables[0], *(t for t in tables[1:] if _same_recording(tables[0], t))]
        rows = _joined(mine)
        torn, others = sum(t.torn for t in mine), len(tables) - len(mine)
        summed = _summed(rows, mine)
        self._tables["sums"], self._texts = sums_columns(summed)
        self.ledger.note(
            "dropped",
            "lines inside the tables that could not be read or are impossible",
            "sums",
            torn,
            len(rows) + torn,
        )
        self.ledger.note(
            "repaired",
            "times below zero, read as 0 (totals: as unknown)",
            "sums",
            sum(t.negative for t in mine),
            len(rows),
        )
        warnings = _warnings(summed, mine)
        if others:
            more = f"{others} more of the tables belong to other recordings; give each a file of its own"
            warnings.insert(0, more)
        self.capture = Capture(
            path=str(shown),
            format=FORMAT,
            recorder=RECORDER,
            size_bytes=len(text.encode("utf-8", "replace")),
            producer="PyTorch profiler",
            vendor="AMD" if any(r.name.startswith("hip") for r in rows) else "NVIDIA",
            cuda_traced=any(t.backend is not None for t in mine),
            device_numbers="all GPUs of the process together",
            warnings=tuple(warnings),
        )


def open_profiler_tables(path: Path, shown: Path) -> ProfilerSums:
    """Raises InputError if no row can be read."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{shown}: too large for a printed table (more than {_MOST_BYTES >> 20} MiB)")
    return ProfilerSums(shown, decoded(path.read_bytes()))


def is_profiler_table(head: bytes) -> bool:
    """True if the beginning of a file holds the headings of such a table."""
    return is_text(head) and b"CPU" in head.upper() and has_headings(decoded(head))


def _same_recording(one: ProfilerTable, other: ProfilerTable) -> bool:
    """Two tables of one recording, sorted or grouped otherwise: equal totals, or rows in common."""
    if not math.isnan(one.host_total) and not math.isnan(other.host_total):
        return (one.host_total, one.device_total) == (other.host_total, other.device_total) or (
            one.host_total == other.host_total and math.isnan(one.device_total + other.device_total)
        )
    shared = {row[:4] for row in one.rows} & {row[:4] for row in other.rows}
    return len(shared) * 2 >= min(len(one.rows), len(other.rows))


def _joined(tables: Sequence[ProfilerTable]) -> list[Operator]:
    """The rows of all tables, those of a name from the first that has it: groups by shape or by stack are
    several rows of one name."""
    rows: list[Operator] = []
    for table in tables:
        known = {row.name for row in rows}
        rows += [row for row in table.rows if row.name not in known]
    return rows


def _summed(rows: Sequence[Operator], tables: Sequence[ProfilerTable]) -> list[tuple[Summed, Row]]:
    """The rows of `sums`."""
    whole = any(t.whole for t in tables)
    # A total of times that count what an operator calls counts most work several times.
    totals = [
        next((v for v in values if not math.isnan(v)), math.nan)
        for values in (
            [t.host_total for t in tables],
            [math.nan if whole else t.device_total for t in tables],
        )
    ]
    on_host = {row.name for row in rows if row.host > 0 or row.self_host > 0}
    out: list[tuple[Summed, Row]] = []
    kernels, spans, copies = [], [], []
    for row in rows:
        if not _on_device(row):
            out += _of_host(row)
        elif copy := _copy(row.name):
            copies.append((Summed.COPIES, _row(copy, row.calls, row.self_device)))
        elif _overhead(row):
            continue
        elif _is_span(row.name, on_host):
            spans.append(row)
        else:
            kernels.append(row)
    kernels, more = _within(kernels, totals[1] - sum(r.values["total"] for _, r in copies))
    spans += more
    moved = sum(row.values["total"] for _, row in copies)
    launched = _launched(rows, whole)
    by_operator = sum(row.self_device for row in launched)
    if operators_alone := sum(row.self_device for row in kernels) + moved < _KERNELS_FROM * by_operator:
        # Copies are part of what operators launched.
        kernels, copies, moved = launched, [], 0.0
    shown = sum(row.self_device for row in kernels) + moved
    out += [(Summed.KERNELS, _row(row.name, row.calls, row.self_device)) for row in kernels]
    out += copies
    if (rest := _rest(totals[1], shown, sum(row.self_device for row in spans))) is not None:
        out.append((Summed.KERNELS, rest))
    of_host = sum(row.values["total"] for report, row in out if report == Summed.OPERATORS)
    if (rest := _rest(totals[0], of_host, 0.0)) is not None:
        out.append((Summed.OPERATORS, rest))
    marks = {BY_OPERATOR: by_operator if operators_alone else math.nan}
    marks |= {BETWEEN_EVENTS: by_operator if whole else math.nan}
    for name, total in ({HOST_TOTAL: totals[0], GPU_TOTAL: totals[1]} | marks).items():
        if not math.isnan(total):
            out.append((Summed.TOTALS, Row(name, {"total": total, "count": 1})))
    return out


def _launched(rows: Sequence[Operator], whole: bool) -> list[Operator]:
    """The operators that launched work, with the GPU time of what they launched themselves. With `whole` no
    column tells it: then those that do their work themselves have all of theirs."""
    if whole:
        own = [row for row in rows if row.device > 0 and row.self_host >= _ITSELF_FROM * row.host]
        return [row._replace(self_device=row.device) for row in own]
    return [
        row
        for row in rows
        if not _on_device(row) and row.self_device > 0 and not _CALL.match(row.name) and not _overhead(row)
    ]


def _warnings(rows: Sequence[tuple[Summed, Row]], tables: Sequence[ProfilerTable]) -> list[str]:
    """What the rows cannot say: the host's time where much of it was not pasted, and kernels where there are
    none."""
    texts = []
    of_host = [row for report, row in rows if report == Summed.OPERATORS]
    whole = sum(row.values["total"] for row in of_host)
    cut = sum(row.values["total"] for row in of_host if row.name == REST)
    if cut > _MUCH * whole:
        texts.append(
            f"{value_text(cut, 'ns')} of the {value_text(whole, 'ns')} of host time stand in rows that were "
            "not pasted, so what the host did then is unknown: print them all with row_limit=-1"
        )
    if any(table.whole for table in tables):
        total = next((t.device_total for t in tables if not math.isnan(t.device_total)), math.nan)
        named = "" if math.isnan(total) else f" ({value_text(total, 'ns')} in all)"
        texts.append(
            f"a table of torch 1.4 to 1.6: its CUDA total{named} counts what an operator calls once more, "
            "and the pauses between kernels, so shares are those of operators that do their work themselves; "
            "torch from 1.8 on lists kernels"
        )
    return texts


def _on_device(row: Operator) -> bool:
    """Work of the GPU itself: the host spent no time in it."""
    if row.on_device is not None:
        return row.on_device
    return row.self_device > 0 and not row.host > 0 and not row.self_host > 0


def _overhead(row: Operator) -> bool:
    """What the recording itself cost: neither a kernel nor an operator."""
    return bool(_OVERHEAD.match(row.name))


def _is_span(name: str, on_host: set[str]) -> bool:
    """A range around GPU work. The host has it as well, as it has the launch of a Triton kernel."""
    return bool(_SPAN.match(name)) or (name in on_host and not _KERNEL.search(name))


def _within(kernels: list[Operator], total: float) -> tuple[list[Operator], list[Operator]]:
    """The kernels, without rows that exceed the GPU's total together with them: ranges with names of their
    own. The largest whose name does not look like a kernel goes first."""
    spans: list[Operator] = []
    kept = sorted(kernels, key=lambda row: -row.self_device)
    while not math.isnan(total) and sum(row.self_device for row in kept) > total * _ROUNDING:
        unknown = [row for row in kept if not _KERNEL.search(row.name)]
        if not unknown:
            break
        kept.remove(unknown[0])
        spans.append(unknown[0])
    return kept, spans


def _copy(name: str) -> str | None:
    """A copy or memset as nsys calls it; None for other work."""
    if name.startswith("Memset"):
        return "[CUDA memset]"
    hit = _COPY.match(name)
    return f"[CUDA memcpy {hit[1] or hit[3]}to{hit[2] or hit[4]}]" if hit else None


def _of_host(row: Operator) -> list[tuple[Summed, Row]]:
    """What a row of the host says: of a CUDA call, an operator, or a range."""
    if not row.host > 0 and not row.self_host > 0:
        return []
    own = row.self_host if not math.isnan(row.self_host) else row.host
    found = [(Summed.OPERATORS, _row(row.name, row.calls, own))]
    if _overhead(row):
        return found
    if _CALL.match(row.name):
        return [*found, (Summed.CALLS, _row(row.name, row.calls, own))]
    found.append((Summed.WHOLE, _row(row.name, row.calls, row.host)))
    if not _OPERATOR.search(row.name):
        found.append((Summed.RANGES, _row(row.name, row.calls, row.host)))
    return found


def _row(name: str, count: float, total: float) -> Row:
    """Of one call, its time is the shortest and the longest as well."""
    values = {"count": count, "total": total, "average": total / count}
    return Row(name, values | (dict.fromkeys(("median", "least", "most"), total) if count == 1 else {}))


def _rest(total: float, shown: float, spans: float) -> Row | None:
    """What a total holds beyond the rows that were printed; some releases count ranges in it as well."""
    if math.isnan(total):
        return None
    missing = total - shown
    if spans and missing >= spans:
        missing -= spans
    return Row(REST, {"total": missing, "count": 0}) if missing > _CUT * total else None
