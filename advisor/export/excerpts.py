"""The events of the worst places of each finding and of one typical step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np

from advisor.export.capture_tracks import KINDS, Described
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, distinct
from advisor.model.facts import Interval
from advisor.model.findings import Finding
from advisor.model.work import Event, Excerpt
from advisor.sources.schema import MISSING, OPERATIONS

#: Excerpts; events of each; the typical step has as many events as this many places.
PLACES, EVENTS, STEP = 50, 200, 20
#: Context around a place: half of its length, and at least this (ns).
ROOM_NS = 20_000


def excerpts(analysis: Stepped, findings: Sequence[Finding]) -> tuple[Excerpt, ...]:
    """The typical step first, then places, the first of each finding before the second of any."""
    steps = typical_steps(analysis, findings[0].time_ranges if findings else ())
    typical = (_cut(analysis, title, start, end, STEP * EVENTS) for title, start, end in steps)
    ranked = chain.from_iterable(zip_longest(*(f.time_ranges for f in findings)))
    first: dict[tuple[int, int], Interval] = {}
    for place in filter(None, ranked):
        first.setdefault((place.start_ns, place.end_ns), place)
    places = []
    for (start, end), place in [*first.items()][: PLACES - (STEP if steps else 0)]:
        room = max((end - start) // 2, ROOM_NS)
        places.append(_cut(analysis, place.label, start - room, end + room, EVENTS, (start, end)))
    return (*typical, *places)


def typical_steps(analysis: Stepped, places: Sequence[Interval] = ()) -> list[tuple[str, int, int]]:
    """Title, start and end of the step closest to the median of the phase that takes most time, with one of
    the `places` in it if any such step has one."""
    if not analysis.step_count:
        return []
    times, phases = step_times(analysis), analysis.window_phases
    phase = max(np.unique(phases).tolist(), key=lambda p: times[phases == p].sum())
    mine = np.flatnonzero(phases == phase)
    begins, ends = (c[analysis.window_steps[mine]] for c in (analysis.steps.begin, analysis.steps.gpu_end))
    placed = np.zeros(len(mine), bool)
    for place in places:
        placed |= (begins < place.end_ns) & (ends > place.start_ns)
    mine = mine[placed] if placed.any() else mine
    at = int(mine[np.argmin(np.abs(times[mine] - np.median(times[phases == phase])))])
    step = int(analysis.window_steps[at])
    begin, end = int(analysis.steps.begin[step]), int(analysis.steps.gpu_end[step])
    # The host may run ahead of the device; the step shows where its calls began, within reason.
    issued = int(analysis.steps.host_start[step])
    return [(f"typical {phase or 'step'}", min(begin, max(issued, 2 * begin - end)), end)]


def _cut(
    analysis: Loaded, title: str, low: int, high: int, most: int, place: tuple[int, int] | None = None
) -> Excerpt:
    """Events that overlap the stretch; of more than `most` those that are longest within it."""
    parts = [p for p in _parts(analysis, low, high) if len(p[1])]
    source = np.repeat(np.arange(len(parts)), [len(p[1]) for p in parts])
    start, end = (np.concatenate([np.empty(0, np.int64), *(p[i] for p in parts)]) for i in (2, 3))
    kept = np.argsort(np.maximum(start, low) - np.minimum(end, high), kind="stable")[:most]
    known: dict[str, int] = {"": 0}
    rows: list[tuple[str, int, int, str, str, tuple[object, ...]]] = []
    first = np.concatenate(([0], np.cumsum([len(p[1]) for p in parts])))
    for i, (kind, row, begins, ends) in enumerate(parts):
        at = np.sort(kept[source[kept] == i]) - first[i]
        rows += _described(analysis, kind, row[at], begins[at], ends[at])
    rows.sort(key=lambda r: (r[0].startswith("thread"), r[0], r[1], -r[2]))
    tracks = list(dict.fromkeys(r[0] for r in rows))
    calls = {r[5]: i for i, r in enumerate(rows) if r[5][0] == "call"}

    def text(value: str) -> int:
        return known.setdefault(value, len(known))

    made = []
    for t, s, e, n, note, key in rows:
        call = calls.get(("call", key[1]), -1) if key[0] == "work" else -1
        made.append(Event(tracks.index(t), s - low, e - s, text(n), text(note), call))
    events = tuple(made)
    return Excerpt(title, low, high, tuple(tracks), tuple(known), events, len(start), place)


def _parts(analysis: Loaded, low: int, high: int) -> Iterator[tuple[str, Array, Array, Array]]:
    """Kind, rows, starts and ends of the events that overlap the stretch."""
    spans = {"work": (analysis.ops.start, analysis.ops.end)}
    for table in filter(analysis.trace.has, ("api_calls", "ranges")):
        columns = analysis.trace.columns(table, ("start", "end"))
        spans[table] = columns["start"], columns["end"]
    for name, (start, end) in spans.items():
        at = np.flatnonzero((start < high) & (end > low))
        yield name, at, start[at], end[at]


def _described(
    analysis: Loaded, kind: str, row: Array, start: Array, end: Array
) -> list[tuple[str, int, int, str, str, tuple[object, ...]]]:
    """Track, start, end, name, details, and what joins work to its call."""
    trace, ops = analysis.trace, analysis.ops
    times = start.tolist(), end.tolist()
    if kind == "work":
        names, notes = [""] * len(row), [""] * len(row)
        for which, _, describe in KINDS:
            mine = np.flatnonzero(ops.kind[row] == which)
            found = describe(trace, ops.row[row[mine]], ops.correlation[row[mine]])
            for i, name, note in zip(mine.tolist(), *_texts(found), strict=True):
                names[i], notes[i] = name, note
        several = len(distinct(ops.process)) > 1
        tracks = [
            f"GPU {d}, stream {s}" + (f", process {p}" if several else "")
            for d, s, p in zip(*(c[row].tolist() for c in (ops.device, ops.stream, ops.process)), strict=True)
        ]
        keys = [("work", None if c == MISSING else c) for c in ops.api[row].tolist()]
        return list(zip(tracks, *times, names, notes, keys, strict=True))
    column = "name_id" if kind == "api_calls" else "text_id"
    more = ("result",) if kind == "api_calls" else ("domain",)
    columns = trace.columns(kind, ("thread", column, *more))
    last = columns[more[0]][row].tolist()
    names = trace.texts(columns[column][row].tolist())
    if kind == "api_calls":
        what, notes = ["CUDA calls"] * len(last), [f"result {r}" if r > 0 else "" for r in last]
    else:
        what, notes = ["operators" if d == OPERATIONS else "NVTX" for d in last], [""] * len(last)
    own = dict(trace.capture.threads)
    tracks = [
        f"{own[t]} ({t}), {w}" if t in own else f"thread {t}, {w}"
        for t, w in zip(columns["thread"][row].tolist(), what, strict=True)
    ]
    keys = [("call" if kind == "api_calls" else "range", r) for r in row.tolist()]
    return list(zip(tracks, *times, names, notes, keys, strict=True))


def _texts(found: Described) -> tuple[list[str], list[str]]:
    """Names, and the details of each row except its correlation, which the arrow shows."""
    name, names, notes = found
    shown = [
        [
            "" if v == MISSING else f"{n.name} {n.texts[v] if n.texts is not None else format(v, ',')}"
            for v in n.values.tolist()
        ]
        for n in notes
        if n.name != "correlation"
    ]
    details = [", ".join(filter(None, row)) for row in zip(*shown, strict=True)] or [""] * len(name)
    return [names[i] for i in name.tolist()], details
