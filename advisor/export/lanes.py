"""Intervals on tracks that show them without loss: in order, and nested where they overlap.

A track of Perfetto is a stack: an interval that begins inside another one has to end inside it.
Intervals that break this go to further lanes of their track.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.model.arrays import Array, distinct


class Order(Struct, frozen=True):
    """Beginnings and ends of intervals in the order of time. `begins` are rows by (start, longest
    first); each is at `begin_at` of the sequence. `ends` are the rows with a duration, by end, the
    innermost first; each is at `end_at`. An end comes before a beginning at the same time."""

    begins: Array
    ends: Array
    begin_at: Array
    end_at: Array


def in_order(start: Array, end: Array) -> Order:
    """The order of intervals with ``end >= start``."""
    begins = np.lexsort((-end, start)) if len(start) else np.empty(0, np.int64)
    lasting = begins[end[begins] > start[begins]]
    backwards = lasting[::-1]
    ends = backwards[np.argsort(end[backwards], kind="stable")]
    starts, stops = start[begins], end[ends]
    begin_at = np.arange(len(begins)) + np.searchsorted(stops, starts, "right")
    end_at = np.arange(len(ends)) + np.searchsorted(starts, stops, "left")
    return Order(begins, ends, begin_at, end_at)


def lanes(start: Array, end: Array, track: Array, order: Order | None = None) -> Array:
    """Lane of each interval within its track, 0 where the track's intervals nest."""
    lane = np.zeros(len(start), np.int64)
    order = order or in_order(start, end)
    # Points in time take no part: they fit everywhere.
    lasting = end[order.begins] > start[order.begins]
    rows = np.concatenate((order.begins[lasting], order.ends))
    at = np.concatenate((order.begin_at[lasting], order.end_at))
    opens = np.repeat([1, -1], [int(lasting.sum()), len(order.ends)])
    by_track = np.lexsort((at, track[rows]))
    rows, opens = rows[by_track], opens[by_track]
    # An end belongs to the latest open beginning of its level: the same interval, if all nest.
    level = np.cumsum(opens) + (opens < 0)
    pairs = rows[np.argsort(level, kind="stable")].reshape(-1, 2)
    for name in distinct(track[pairs[pairs[:, 0] != pairs[:, 1]]]).tolist():
        mine = order.begins[track[order.begins] == name]
        lane[mine] = _first_free(start[mine].tolist(), end[mine].tolist())
    return lane


def _first_free(starts: list[int], ends: list[int]) -> list[int]:
    """The first lane on which each interval nests; they come by (start, longest first)."""
    open_: list[list[int]] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        for lane, stack in enumerate(open_):  # noqa: B007
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or stack[-1] >= end:
                break
        else:
            lane, stack = len(open_), []
            open_.append(stack)
        if end > start:
            stack.append(end)
        found.append(lane)
    return found
