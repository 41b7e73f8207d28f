"""Transfers of the KV cache between the servers of disaggregated serving, by ranges and marks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.knowledge.files import step_patterns
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Spans, joined, union
from advisor.model.arrays import Array
from advisor.sources.schema import MISSING


class Transfers(NamedTuple):
    """What a process posted, in order of time: `start` and `end` of the call that posts a transfer,
    `done` when the program first saw it complete (MISSING where no mark with its id follows),
    `fetched` for those that it fetches. `asking` are the ranges in which an engine waits for
    transfers or asks for their state."""

    start: Array
    end: Array
    done: Array
    fetched: Array
    asking: Spans

    @property
    def fetching(self) -> Spans:
        """Time in which something that the process asked for is on its way."""
        known = self.fetched & (self.done != MISSING)
        return union(self.start[known], self.done[known])

    @property
    def awaited(self) -> Spans:
        return joined(self.fetching, self.asking)


def kv_transfers(a: Analysis, device: int) -> Transfers | None:
    """Transfers of the processes that use a device; None where no range tells of any."""
    kinds = a.ranges.matching(step_patterns().transfer)
    if not kinds:
        return None
    columns = a.trace.columns("ranges", ("start", "end", "process", "text_id", "payload"))
    text = np.searchsorted(a.ranges.text_ids, columns["text_id"])
    own = np.isin(columns["process"], np.unique(a.ops.process[a.device_ops(device)]))

    def rows(*wanted: str) -> Array:
        return np.flatnonzero(own & np.isin(text, [i for i, kind in kinds.items() if kind in wanted]))

    posts, marks, asked = rows("fetch", "send"), rows("complete"), rows("receiving", "sending")
    if not len(posts) and not len(asked):
        return None
    start, end = columns["start"], columns["end"]
    posts = posts[np.argsort(start[posts], kind="stable")]
    return Transfers(
        start[posts],
        end[posts],
        _completed(posts, marks, start, columns["process"], columns["payload"]),
        np.isin(posts, rows("fetch")),
        union(start[asked], end[asked]),
    )


def _completed(posts: Array, marks: Array, start: Array, process: Array, number: Array) -> Array:
    """When each post is followed by the mark of its id, before that id is posted again."""
    at = np.concatenate((posts, marks))
    at = at[np.lexsort((start[at], number[at], process[at]))]
    mark = np.isin(at, marks)
    same = (number[at][1:] == number[at][:-1]) & (process[at][1:] == process[at][:-1])
    pair = np.flatnonzero(same & mark[1:] & ~mark[:-1] & (number[at][:-1] != MISSING))
    done = np.full(len(start), MISSING, np.int64)
    done[at[pair]] = start[at[pair + 1]]
    return done[posts]
