"""Stretches of a host thread that begin and end inside one range: they belong to what the range is around,
and wait for no request."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.files import step_patterns
from advisor.metrics import limits
from advisor.metrics.intervals import Spans
from advisor.metrics.loaded.host import Ranges
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, marked


def enclosed(ranges: Ranges, steps: Steps, thread: int, spans: Spans, *, passes: bool = False) -> Array:
    """Whether a range of the thread is open all through each of these spans (ascending, disjoint), but for a
    tenth at either end; with `passes` only ranges that mark a pass. A range around many steps says nothing
    about one stretch, nor does one iteration of a loop, which may begin with waiting, or a range that is
    named so."""
    if not len(spans) or not len(ranges):
        return np.zeros(len(spans), bool)
    start, end, _ = _around_one(ranges, steps, thread, int(spans.start[0]), int(spans.end[-1]), passes)
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end))
    edge = (spans.end - spans.start) // limits.window.EDGE_OF_STRETCH
    return np.asarray(reach[np.searchsorted(start, spans.start + edge, "right")] >= spans.end - edge)


def range_around(ranges: Ranges, steps: Steps, thread: int, lo: int, hi: int) -> str | None:
    """The text of the innermost such range around [lo, hi); None if there is none."""
    start, end, text = _around_one(ranges, steps, thread, lo, hi, passes=False)
    edge = (hi - lo) // limits.window.EDGE_OF_STRETCH
    around = np.flatnonzero((start <= lo + edge) & (end >= hi - edge))
    if not len(around):
        return None
    return ranges.texts[int(text[around[np.argmin((end - start)[around])]])]


def _around_one(
    ranges: Ranges, steps: Steps, thread: int, lo: int, hi: int, passes: bool
) -> tuple[Array, Array, Array]:
    """Begin, end and text of the ranges of a thread that overlap [lo, hi) and are around one thing: at most
    half of the steps."""
    patterns = step_patterns()

    def silent(text: str) -> bool | None:
        if (step := patterns.step(text)) is not None:
            return step.kind == "loop" or None
        waits = patterns.role(text) == "waiting" and patterns.transfer(text) is None
        return waits or bool(patterns.is_container(text)) or None

    none = marked(len(ranges.texts), list(ranges.matching(silent)))
    rows, begun = ranges.of_thread(thread, lo, hi), np.sort(steps.host_start)
    held = np.searchsorted(begun, rows["end"]) - np.searchsorted(begun, rows["start"])
    at = ~none[rows["text"]] & (held <= max(len(begun) // 2, 1))
    if passes:
        named = marked(len(ranges.texts), list(ranges.matching(patterns.step)))[rows["text"]]
        at &= named | ((steps.method == "ranges") & np.isin(rows["start"], begun))
    return rows["start"][at], rows["end"][at], rows["text"][at]


def step_texts(ranges: Ranges, steps: Steps, at: Array) -> list[str]:
    """The text of the range of each step (positions `at`); nothing where steps were not found by ranges of
    several names."""
    if steps.method != "ranges" or not len(at):
        return []
    rows = ranges.rows(list(ranges.matching(step_patterns().step)))
    mine = rows["thread"] == steps.thread
    start, text = rows["start"][mine], rows["text"][mine]
    place = np.searchsorted(start, steps.host_start[at])
    same = np.append(start, 0)[np.minimum(place, len(start))] == steps.host_start[at]
    if not ((place < len(start)) & same).all():
        return []
    texts = [ranges.texts[i] for i in text[place].tolist()]
    return texts if 1 < len(set(texts)) < len(texts) else []
