"""Stretches of a host thread that begin and end inside one range: they belong to what the range is around,
and wait for no request."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.files import step_patterns
from advisor.metrics import limits
from advisor.metrics.analysed import Analysed
from advisor.metrics.intervals import Spans
from advisor.model.arrays import Array, marked


def enclosed(a: Analysed, thread: int, spans: Spans, *, passes: bool = False) -> Array:
    """Whether a range of the thread is open all through each of these spans (ascending, disjoint), but for a
    tenth at either end; with `passes` only ranges that mark a pass. A range around many steps says nothing
    about one stretch, nor does one iteration of a loop, which may begin with waiting, or a range that is
    named so."""
    if not len(spans) or not len(a.ranges):
        return np.zeros(len(spans), bool)
    start, end, _ = _around_one(a, thread, int(spans.start[0]), int(spans.end[-1]), passes)
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end))
    edge = (spans.end - spans.start) // limits.window.EDGE_OF_STRETCH
    return np.asarray(reach[np.searchsorted(start, spans.start + edge, "right")] >= spans.end - edge)


def range_around(a: Analysed, thread: int, lo: int, hi: int) -> str | None:
    """The text of the innermost such range around [lo, hi); None if there is none."""
    start, end, text = _around_one(a, thread, lo, hi, passes=False)
    edge = (hi - lo) // limits.window.EDGE_OF_STRETCH
    around = np.flatnonzero((start <= lo + edge) & (end >= hi - edge))
    if not len(around):
        return None
    return a.ranges.texts[int(text[around[np.argmin((end - start)[around])]])]


def _around_one(a: Analysed, thread: int, lo: int, hi: int, passes: bool) -> tuple[Array, Array, Array]:
    """Begin, end and text of the ranges of a thread that overlap [lo, hi) and are around one thing: at most
    half of the steps."""
    patterns, ranges = step_patterns(), a.ranges

    def silent(text: str) -> bool | None:
        if (step := patterns.step(text)) is not None:
            return step.kind == "loop" or None
        waits = patterns.role(text) == "waiting" and patterns.transfer(text) is None
        return waits or bool(patterns.is_container(text)) or None

    none = marked(len(ranges.texts), list(ranges.matching(silent)))
    rows, steps = ranges.of_thread(thread, lo, hi), np.sort(a.repeated.host_start)
    held = np.searchsorted(steps, rows["end"]) - np.searchsorted(steps, rows["start"])
    at = ~none[rows["text"]] & (held <= max(len(steps) // 2, 1))
    if passes:
        named = marked(len(ranges.texts), list(ranges.matching(patterns.step)))[rows["text"]]
        at &= named | ((a.repeated.method == "ranges") & np.isin(rows["start"], steps))
    return rows["start"][at], rows["end"][at], rows["text"][at]


def step_texts(a: Analysed, steps: Array) -> list[str]:
    """The text of the range of each step; nothing where steps were not found by ranges of several names."""
    if a.steps.method != "ranges" or not len(steps):
        return []
    rows = a.ranges.rows(list(a.ranges.matching(step_patterns().step)))
    mine = rows["thread"] == a.steps.thread
    start, text = rows["start"][mine], rows["text"][mine]
    at = np.searchsorted(start, a.steps.host_start[steps])
    known = (at < len(start)) & (np.append(start, 0)[np.minimum(at, len(start))] == a.steps.host_start[steps])
    if not known.all():
        return []
    texts = [a.ranges.texts[i] for i in text[at].tolist()]
    return texts if 1 < len(set(texts)) < len(texts) else []
