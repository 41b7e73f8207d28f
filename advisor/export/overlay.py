"""Findings, idle gaps by their parts, steps and samples as tracks beside the capture; alone it is a
Chrome trace that Perfetto opens beside the capture.

All tracks belong to processes of their own, named ``advisor: ...``. Times are ns from the capture's zero;
a Chrome trace has microseconds with three decimals, written from integers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct, field

from advisor.metrics.budgeted import budget
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded import host
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array
from advisor.model.facts import Interval
from advisor.model.findings import Diagnosis
from advisor.model.parts import IDLE
from advisor.sources.schema import MISSING

#: Number of gaps drawn per device, and of samples over all devices.
GAPS = 1_000
SAMPLES = 200_000
#: Process ids of ours; devices count up from the last two.
FINDINGS, BUDGET, COUNTERS = 900_000_000, 900_000_100, 900_001_000
STEPS_TRACK, GAPS_TRACK = 1, 2

COUNTER_NAMES = {
    "gr_active": "GR Active %",
    "sm_active": "SM Active %",
    "sm_issue": "SM Issue %",
    "tensor_active": "Tensor Active %",
    "dram_read": "DRAM read %",
    "dram_write": "DRAM write %",
    "pcie_rx": "PCIe RX %",
    "pcie_tx": "PCIe TX %",
    "nvlink_rx": "NVLink RX %",
    "nvlink_tx": "NVLink TX %",
}


class Name(Struct, frozen=True):
    """The name of a process, or with a `track` above 0 of one of its tracks."""

    process: int
    track: int
    name: str


class Slice(Struct, frozen=True):
    """An interval on a track; those of one track nest. `colour` is one that chrome://tracing knows."""

    process: int
    track: int
    name: str
    start: int
    end: int
    details: dict[str, Any] = field(default_factory=dict)
    colour: str | None = None


class Count(Struct, frozen=True):
    """A sampled metric of one device: a value in percent at each time."""

    process: int
    name: str
    time: Array
    value: Array


Event = Name | Slice | Count


def events(analysis: Budgeted, diagnosis: Diagnosis, gaps: int = GAPS) -> Iterator[Event]:
    """Findings, then steps and the `gaps` largest idle gaps of each device."""
    yield from _findings(diagnosis)
    for device in sorted(analysis.budgets):
        process = BUDGET + device
        yield Name(process, 0, f"advisor: budget, device {device}")
        yield from _steps(analysis, process)
        yield from _gaps(analysis, device, process, gaps)
    if not analysis.budgets and analysis.step_count:
        yield Name(BUDGET, 0, "advisor: steps")
        yield from _steps(analysis, BUDGET)


def _findings(diagnosis: Diagnosis) -> Iterator[Event]:
    """A track for each finding that has places; overlapping ones continue on a second track."""
    yield Name(FINDINGS, 0, "advisor: findings")
    for finding in diagnosis.findings:
        name = f"{finding.code} {finding.cause}"
        device = "" if finding.scope.device is None else f", device {finding.scope.device}"
        do = next((advice.action for advice in finding.recommendations), None)
        for track, places in enumerate(_rows(finding.time_ranges), finding.rank * 100):
            yield Name(FINDINGS, track, f"{finding.rank}. {name} ({finding.severity}{device})")
            for place in places:
                about: dict[str, Any] = {"what": place.label or finding.title, "message": finding.message}
                about |= {"stream": place.stream, "thread": place.thread, "do": do}
                details = {key: value for key, value in about.items() if value is not None}
                yield Slice(FINDINGS, track, name, place.start_ns, place.end_ns, details)


def _rows(ranges: Iterable[Interval]) -> list[list[Interval]]:
    """Ranges in as few rows as possible without overlaps."""
    rows: list[list[Interval]] = []
    for place in sorted(ranges, key=lambda r: (r.start_ns, r.end_ns)):
        row = next((r for r in rows if r[-1].end_ns <= place.start_ns), None)
        if row is None:
            rows.append([place])
        else:
            row.append(place)
    return rows


def _steps(analysis: Stepped, process: int) -> Iterator[Event]:
    steps = analysis.steps
    if not analysis.step_count:
        return
    yield Name(process, STEPS_TRACK, "steps")
    for number, i in enumerate(analysis.window_steps.tolist(), 1):
        start = int(steps.gpu_end[i - 1] if i else steps.gpu_start[0])
        name = f"{steps.phase[i] or 'step'} {number}"
        yield Slice(process, STEPS_TRACK, name, start, int(steps.gpu_end[i]))


class GapSlices(Struct, frozen=True):
    """One gap; `parts` cover it without overlap, in order of time. `thread` issued its end."""

    start: int
    end: int
    thread: int | None
    parts: tuple[host.Slice, ...]


def largest_gaps(analysis: Budgeted, device: int, most: int) -> list[GapSlices]:
    """The `most` largest gaps of a device in order of time."""
    gaps = analysis.budgets[device].gaps
    largest = np.sort(np.argsort(-gaps.length, kind="stable")[:most])
    slices = budget.gap_slices(analysis.budgets[device], analysis.threads, analysis.states, largest.tolist())
    columns = (column[largest].tolist() for column in (gaps.start, gaps.end, gaps.thread))
    return [
        GapSlices(start, end, None if thread == MISSING else thread, tuple(parts))
        for start, end, thread, parts in zip(*columns, slices, strict=True)
    ]


def _gaps(analysis: Budgeted, device: int, process: int, most: int) -> Iterator[Event]:
    """Each gap as a slice, the parts of the budget in it as slices below."""
    found = largest_gaps(analysis, device, most)
    if not found:
        return
    total = len(analysis.budgets[device].gaps)
    title = "idle gaps" if len(found) == total else f"the {len(found)} largest of {total} idle gaps"
    yield Name(process, GAPS_TRACK, title)
    for gap in found:
        arguments: dict[str, Any] = {}
        for part, start, end in gap.parts:
            key = f"{IDLE[part].words} ns"
            arguments[key] = arguments.get(key, 0) + end - start
        if gap.thread is not None:
            arguments["thread that issued the next operation"] = gap.thread
        yield Slice(process, GAPS_TRACK, "GPU idle", gap.start, gap.end, arguments)
        for part, start, end in gap.parts:
            yield Slice(process, GAPS_TRACK, IDLE[part].words, start, end, {}, IDLE[part].perfetto)


def samples(analysis: Profiled) -> Iterator[Event]:
    """Sampled metrics as counters, thinned to means. A device without recorded work may have samples."""
    devices = sorted({*analysis.devices, *(d.id for d in analysis.trace.devices)})
    found = [(d, s) for d in devices if (s := analysis.samples(d)) is not None]
    count = sum(len(s) * len(s.values) for _, s in found)
    every = max(-(-count // SAMPLES), 1)
    for device, rows in found:
        process = COUNTERS + device
        note = f", mean of {every} samples" if every > 1 else ""
        yield Name(process, 0, f"advisor: GPU metrics, device {device}{note}")
        starts = np.arange(0, len(rows), every)
        for column in (c for c in COUNTER_NAMES if c in rows.values):
            values = rows.values[column]
            known = ~np.isnan(values)
            total = np.add.reduceat(np.where(known, values, 0.0), starts)
            valid = np.add.reduceat(known.astype(np.int64), starts)
            held = valid > 0
            mean = 100.0 * total[held] / valid[held]
            yield Count(process, COUNTER_NAMES[column], rows.time[starts][held], mean)


def render(analysis: Profiled, diagnosis: Diagnosis, gaps: int = GAPS) -> bytes:
    """The overlay as JSON, one event a line."""
    about = {
        "tool": f"{diagnosis.tool.name} {diagnosis.tool.version}",
        "capture": ", ".join(i.path for i in diagnosis.inputs),
        "verdict": diagnosis.verdict,
        "times": "those of the capture's own file",
    }
    found = chain(events(analysis, diagnosis, gaps), samples(analysis))
    lines = ",\n".join(_lines(found, analysis.trace.capture.zero_ns))
    head = f'{{"displayTimeUnit":"ns","otherData":{_json(about)},"traceEvents":[\n'
    return f"{head}{lines}\n]}}\n".encode("utf-8", "backslashreplace")


def _lines(events: Iterable[Event], zero: int) -> Iterator[str]:
    """Lines of JSON; `zero` is our time 0 in the clock of the capture's file, ns."""
    for event in events:
        if isinstance(event, Name):
            kind = "thread_name" if event.track else "process_name"
            head = f'{{"ph":"M","pid":{event.process},"tid":{event.track},"name":"{kind}"'
            yield f'{head},"args":{{"name":{_json(event.name)}}}}}'
        elif isinstance(event, Slice):
            head = f'{{"ph":"X","pid":{event.process},"tid":{event.track},"cat":"advisor"'
            times = f'"ts":{_us(zero + event.start)},"dur":{_us(max(event.end - event.start, 0))}'
            colour = f',"cname":"{event.colour}"' if event.colour else ""
            args = f',"args":{_json(event.details)}' if event.details else ""
            yield f'{head},"name":{_json(event.name)},{times}{colour}{args}}}'
        else:
            head = f'{{"ph":"C","pid":{event.process},"name":{_json(event.name)},"ts":'
            for time, value in zip(event.time.tolist(), event.value.tolist(), strict=True):
                yield f'{head}{_us(zero + time)},"args":{{"value":{value:.4g}}}}}'


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with three decimals, exactly."""
    whole, rest = divmod(abs(ns), 1_000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
