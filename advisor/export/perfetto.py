"""A Chrome trace that Perfetto opens beside the capture: findings, idle gaps, steps, samples.

Times are those of the capture's own file, exact to the nanosecond: microseconds with three
decimals, written from integers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from advisor.export import overlay
from advisor.export.overlay import Count, Name, Slice
from advisor.metrics.analysis import Analysis
from advisor.model.findings import Diagnosis


def render(analysis: Analysis, diagnosis: Diagnosis, gaps: int = overlay.GAPS) -> bytes:
    """The overlay as JSON, one event a line."""
    about = {
        "tool": f"{diagnosis.tool.name} {diagnosis.tool.version}",
        "capture": ", ".join(i.path for i in diagnosis.inputs),
        "verdict": diagnosis.verdict,
        "times": "those of the capture's own file",
    }
    found = chain(overlay.events(analysis, diagnosis, gaps), overlay.samples(analysis))
    lines = ",\n".join(_lines(found, analysis.trace.capture.zero_ns))
    head = f'{{"displayTimeUnit":"ns","otherData":{_json(about)},"traceEvents":[\n'
    return f"{head}{lines}\n]}}\n".encode("utf-8", "backslashreplace")


def _lines(events: Iterable[overlay.Event], zero: int) -> Iterator[str]:
    """`zero` is what the capture's file calls our time 0, ns."""
    for event in events:
        if isinstance(event, Name):
            kind = "thread_name" if event.track else "process_name"
            head = f'{{"ph":"M","pid":{event.process},"tid":{event.track},"name":"{kind}"'
            yield f'{head},"args":{{"name":{_json(event.name)}}}}}'
        elif isinstance(event, Slice):
            yield _slice(event, zero)
        else:
            yield from _counts(event, zero)


def _slice(event: Slice, zero: int) -> str:
    colour = f',"cname":"{event.colour}"' if event.colour else ""
    args = f',"args":{_json(event.details)}' if event.details else ""
    duration = max(event.end - event.start, 0)
    return (
        f'{{"ph":"X","pid":{event.process},"tid":{event.track},"cat":"advisor","name":{_json(event.name)},'
        f'"ts":{_us(zero + event.start)},"dur":{_us(duration)}{colour}{args}}}'
    )


def _counts(event: Count, zero: int) -> Iterator[str]:
    head = f'{{"ph":"C","pid":{event.process},"name":{_json(event.name)},"ts":'
    for time, value in zip(event.time.tolist(), event.value.tolist(), strict=True):
        yield f'{head}{_us(zero + time)},"args":{{"value":{value:.4g}}}}}'


def _us(ns: int) -> str:
    """Nanoseconds as microseconds with three decimals, exactly."""
    whole, rest = divmod(abs(ns), 1_000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
