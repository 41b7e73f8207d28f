"""A Chrome trace that Perfetto opens beside the capture: findings, idle gaps, steps, samples.

Times are those of the capture's own file, exact to the nanosecond: microseconds with three
decimals, written from integers. Everything lies on processes of its own, named ``advisor: ...``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.export.gap_slices import largest_gaps
from advisor.metrics.activity import Samples
from advisor.metrics.analysis import Analysis
from advisor.model.facts import Interval
from advisor.model.findings import Diagnosis, Finding
from advisor.model.parts import IDLE

#: Gaps of a device that are drawn, and samples over all devices.
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


def render(analysis: Analysis, diagnosis: Diagnosis, gaps: int = GAPS) -> bytes:
    """The overlay as JSON, one event a line."""
    about = {
        "tool": f"{diagnosis.tool.name} {diagnosis.tool.version}",
        "capture": ", ".join(i.path for i in diagnosis.inputs),
        "verdict": diagnosis.verdict,
        "times": "those of the capture's own file",
    }
    events = ",\n".join(_events(analysis, diagnosis, gaps))
    head = f'{{"displayTimeUnit":"ns","otherData":{_json(about)},"traceEvents":[\n'
    return f"{head}{events}\n]}}\n".encode("utf-8", "backslashreplace")


def _events(analysis: Analysis, diagnosis: Diagnosis, gaps: int) -> Iterator[str]:
    at = _Clock(analysis.trace.capture.zero_ns)
    yield from _findings(diagnosis, at)
    for device in sorted(analysis.budgets):
        process = BUDGET + device
        yield _name("process_name", process, 0, f"advisor: budget, device {device}")
        yield from _steps(analysis, process, at)
        yield from _gaps(analysis, device, process, gaps, at)
    if not analysis.budgets and analysis.step_count:
        yield _name("process_name", BUDGET, 0, "advisor: steps")
        yield from _steps(analysis, BUDGET, at)
    yield from _samples(analysis, at)


# ------------------------------------------------------------------ findings


def _findings(diagnosis: Diagnosis, at: _Clock) -> Iterator[str]:
    """A track for each finding that has places; overlapping ones continue on a second track."""
    yield _name("process_name", FINDINGS, 0, "advisor: findings")
    for finding in diagnosis.findings:
        for row, places in enumerate(_rows(finding.time_ranges)):
            track = finding.rank * 100 + row
            yield _name("thread_name", FINDINGS, track, _title(finding))
            for place in places:
                name = f"{finding.code} {finding.cause}"
                span = at.span(place.start_ns, place.end_ns)
                yield _slice(FINDINGS, track, name, span, _told(finding, place))


def _title(finding: Finding) -> str:
    device = "" if finding.scope.device is None else f", device {finding.scope.device}"
    return f"{finding.rank}. {finding.code} {finding.cause} ({finding.severity}{device})"


def _told(finding: Finding, place: Interval) -> dict[str, Any]:
    told: dict[str, Any] = {"what": place.label or finding.title, "message": finding.message}
    if place.stream is not None:
        told["stream"] = place.stream
    if place.thread is not None:
        told["thread"] = place.thread
    if finding.recommendations:
        told["do"] = finding.recommendations[0].action
    return told


def _rows(ranges: Iterable[Interval]) -> list[list[Interval]]:
    """Ranges in as few rows as it takes for none to overlap its neighbour."""
    rows: list[list[Interval]] = []
    for place in sorted(ranges, key=lambda r: (r.start_ns, r.end_ns)):
        row = next((r for r in rows if r[-1].end_ns <= place.start_ns), None)
        if row is None:
            rows.append([place])
        else:
            row.append(place)
    return rows


# ------------------------------------------------------------------ budget


def _steps(analysis: Analysis, process: int, at: _Clock) -> Iterator[str]:
    steps = analysis.steps
    if not analysis.step_count:
        return
    yield _name("thread_name", process, STEPS_TRACK, "steps")
    for number, i in enumerate(analysis.window_steps.tolist(), 1):
        start = int(steps.gpu_end[i - 1] if i else steps.gpu_start[0])
        name = f"{steps.phase[i] or 'step'} {number}"
        yield _slice(process, STEPS_TRACK, name, at.span(start, int(steps.gpu_end[i])), {})


def _gaps(analysis: Analysis, device: int, process: int, most: int, at: _Clock) -> Iterator[str]:
    """Each gap as a slice, the parts of the budget in it as slices below."""
    found = largest_gaps(analysis, device, most)
    if not found:
        return
    total = len(analysis.budgets[device].gaps)
    title = "idle gaps" if len(found) == total else f"the {len(found)} largest of {total} idle gaps"
    yield _name("thread_name", process, GAPS_TRACK, title)
    for gap in found:
        told: dict[str, Any] = {}
        for part, start, end in gap.parts:
            key = f"{_words(part)} ns"
            told[key] = told.get(key, 0) + end - start
        if gap.thread is not None:
            told["thread that issued the next operation"] = gap.thread
        yield _slice(process, GAPS_TRACK, "GPU idle", at.span(gap.start, gap.end), told)
        for part, start, end in gap.parts:
            span = at.span(start, end)
            yield _slice(process, GAPS_TRACK, _words(part), span, {}, IDLE[part].perfetto)


def _words(part: str) -> str:
    return part.replace("_", " ")


# ------------------------------------------------------------------ samples


def _samples(analysis: Analysis, at: _Clock) -> Iterator[str]:
    """Sampled metrics as counters; thinned, each value a mean over what it stands for. A device
    without recorded work may have samples all the same."""
    devices = sorted({*analysis.devices, *(d.id for d in analysis.trace.devices)})
    found = [(d, s) for d in devices if (s := analysis.samples(d)) is not None]
    count = sum(len(s) * len(s.values) for _, s in found)
    every = max(-(-count // SAMPLES), 1)
    for device, samples in found:
        process = COUNTERS + device
        note = f", mean of {every} samples" if every > 1 else ""
        yield _name("process_name", process, 0, f"advisor: GPU metrics, device {device}{note}")
        for column, name in COUNTER_NAMES.items():
            if column in samples.values:
                yield from _counter(process, name, samples, column, every, at)


def _counter(process: int, name: str, samples: Samples, column: str, every: int, at: _Clock) -> Iterator[str]:
    starts = np.arange(0, len(samples), every)
    values = samples.values[column]
    known = ~np.isnan(values)
    total = np.add.reduceat(np.where(known, values, 0.0), starts)
    count = np.add.reduceat(known.astype(np.int64), starts)
    head = f'{{"ph":"C","pid":{process},"name":{_json(name)},"ts":'
    for time, value, n in zip(samples.time[starts].tolist(), total.tolist(), count.tolist(), strict=True):
        if n:
            yield f'{head}{at.stamp(time)},"args":{{"value":{100.0 * value / n:.4g}}}}}'


# ------------------------------------------------------------------ lines


@dataclass(frozen=True)
class _Clock:
    """Writes times as the capture's file counts them; `zero` is its time of our 0, ns."""

    zero: int

    def stamp(self, ns: int) -> str:
        return _us(self.zero + ns)

    def span(self, start: int, end: int) -> str:
        return f'"ts":{self.stamp(start)},"dur":{_us(max(end - start, 0))}'


def _name(kind: str, process: int, track: int, name: str) -> str:
    head = f'{{"ph":"M","pid":{process},"tid":{track},"name":"{kind}"'
    return f'{head},"args":{{"name":{_json(name)}}}}}'


def _slice(
    process: int, track: int, name: str, span: str, told: dict[str, Any], colour: str | None = None
) -> str:
    tint = f',"cname":"{colour}"' if colour else ""
    args = f',"args":{_json(told)}' if told else ""
    return (
        f'{{"ph":"X","pid":{process},"tid":{track},"cat":"advisor","name":{_json(name)},{span}{tint}{args}}}'
    )


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with three decimals, exactly."""
    whole, rest = divmod(abs(ns), 1_000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
