"""Facts about what the host waited for: events, streams, whole contexts, and work of other streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import heaviest
from advisor.metrics.waited import CONTEXT, EVENT, STREAM, feeder_waits, recorded_waits
from advisor.sources.schema import MISSING

_ROWS = 12
_KINDS = {EVENT: "event", STREAM: "stream", CONTEXT: "context"}

_WAITED = Need(
    "the capture does not record what synchronize calls wait for", None,
    lambda a: recorded_waits(a, a.main_device) is not None,
)  # fmt: skip
_FOR_STREAMS = Need("no wait for a stream or a context is recorded")
_FOR_CONTEXTS = Need("no wait for a whole context found work")
_LATE = Need("no wait went on for the work of other streams")
_NAMED = Need("no wait for a known stream is recorded")

_WORK = {"waits": "start end stream event process correlation", "api_calls": origin.CALLS, "kernels": f"{origin.SPAN} {origin.JOIN} stream"}  # fmt: skip

FACTS = group("device", needs.CUDA, [
    Entry("sync.event_wait_ratio", "ratio", "api_calls", "Share of the window the feeding thread waits for events", "sum of such waits / host side of the window"),
    Entry("sync.stream_wait_ratio", "ratio", "api_calls", "Share of the window the feeding thread waits for single streams", "sum of such waits / host side of the window"),
    Entry("sync.context_wait_ratio", "ratio", "api_calls", "Share of the window the feeding thread waits for a whole device or context", "sum of waits that name neither stream nor event / host side of the window"),
    Entry("sync.waited_stream", "count", "api_calls", "The stream the feeding thread waits for longest, of an event the one it was recorded on", "largest sum over waits of known stream", needs=(needs.FEEDER, _WAITED, _NAMED)),
    Entry("sync.context_wait_streams", "count", "api_calls", "Streams with work left when a wait for a whole context begins", "median over those waits that find any", needs=(needs.FEEDER, _WAITED, _FOR_CONTEXTS)),
    Entry("sync.empty_wait_ratio", "ratio", "api_calls", "Share of the waits for streams and contexts that find no work left", "count", needs=(needs.FEEDER, _WAITED, _FOR_STREAMS)),
    Entry("sync.over_wait_ratio", "ratio", "api_calls", "Share of the window in which waits go on for the work of other streams after what the host asked for has ended", "from the end of the read-backs since the last wait or, in a wait for a context without one, of the stream with most kernel time, to that of the work waited for"),
    Entry("sync.over_waited_stream", "count", "api_calls", "The stream whose work they go on for most", "largest sum of that time", needs=(needs.FEEDER, _WAITED, _LATE)),
], columns=_WORK, needs=(needs.FEEDER, _WAITED))  # fmt: skip


def wait_facts(a: Analysis, device: int, out: FactWriter) -> None:
    waits = feeder_waits(a, device)
    if waits is None:
        return
    host = max(a.host_window[1] - a.host_window[0], 1)
    length = waits.end - waits.start
    named, wide = waits.stream != MISSING, (waits.kind == CONTEXT) & (waits.pending > 0)
    for_work = waits.kind != EVENT
    out |= {
        **{f"sync.{n}_wait_ratio": float(length[waits.kind == k].sum()) / host for k, n in _KINDS.items()},
        "sync.waited_stream": heaviest(waits.stream[named], length[named]) if named.any() else None,
        "sync.context_wait_streams": float(np.median(waits.pending[wide])) if wide.any() else None,
        "sync.empty_wait_ratio": float((waits.pending == 0)[for_work].mean()) if for_work.any() else None,
        "sync.over_wait_ratio": float(waits.over.sum()) / host,
        "sync.over_waited_stream": heaviest(waits.other, waits.over) if waits.over.any() else None,
    }
    rows: list[list[Any]] = []
    for kind, stream in np.unique(np.stack((waits.kind, waits.stream)), axis=1).T.tolist():
        mine = (waits.kind == kind) & (waits.stream == stream)
        over, empty = waits.over[mine], float((waits.pending[mine] == 0).mean())
        rows.append(
            [
                _KINDS[kind],
                None if stream == MISSING else stream,
                int(mine.sum()),
                float(length[mine].sum()) / host,
                None if kind == EVENT else empty,
                float(over.sum()) / host,
                heaviest(waits.other[mine], over) if over.any() else None,
            ]
        )
    rows.sort(key=lambda r: -float(r[3]))
    out.table("sync.waits", rows[:_ROWS])
