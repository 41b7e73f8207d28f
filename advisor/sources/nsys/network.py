"""What network cards carry, as `--nic-metrics` samples it.

Tables and columns: SQLite schema reference of the exporter; names and units of the counters
(bytes/ms, ticks/ms): as the network recipes of nsys select them.
"""

from __future__ import annotations

import numpy as np

from advisor.sources.raw import Keep, RawTables, named_rows
from advisor.sources.schema import MISSING, NIC_RECEIVED, NIC_SENT, NIC_WAITS
from advisor.sources.trace import Columns

METRICS, NAMES, CARDS = "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS", "NIC_ID_MAP"
_KINDS = {
    ("Bytes sent", "bytes/ms"): NIC_SENT,
    ("Bytes received", "bytes/ms"): NIC_RECEIVED,
    ("Send waits", "ticks/ms"): NIC_WAITS,
}
_READ = ("start", "end", "globalId", "metricsListId", "metricsIdx", "value")


def _wanted(raw: RawTables) -> dict[tuple[int, int], int]:
    """(list, place in it) -> what it counts, for the counters of InfiniBand and Ethernet that are read."""
    found = {}
    for row in named_rows(raw, NAMES, ("metricsListId", "metricsIdx", "name", "unit")):
        kind = _KINDS.get((str(row["name"]).partition(": ")[2], str(row["unit"])))
        if kind is not None and isinstance(row["metricsListId"], int) and isinstance(row["metricsIdx"], int):
            found[row["metricsListId"], row["metricsIdx"]] = kind
    return found


def recorded(raw: RawTables) -> bool:
    """True when a counter that is read has samples."""
    return raw.has(METRICS) and set(_READ) <= set(raw.columns(METRICS)) and bool(_wanted(raw))


def read_network(raw: RawTables) -> Columns:
    """All columns of `network`, in the order of the file."""
    wanted = _wanted(raw)
    keep = Keep("metricsIdx", tuple(sorted({place for _, place in wanted})))
    start, end, card, group, place, value = raw.read(METRICS, list(_READ), keep)
    kind = np.full(len(start), MISSING, np.int64)
    for (one, number), what in wanted.items():
        kind[(group == one) & (place == number)] = what
    nic = card.copy()
    for row in named_rows(raw, CARDS, ("nicId", "globalId")):
        if isinstance(row["nicId"], int) and isinstance(row["globalId"], int):
            nic[card == row["globalId"]] = row["nicId"]
    rate = np.where(kind == NIC_WAITS, value, value * 1000)
    known = (kind != MISSING) & (value >= 0)
    columns = {"start": start, "end": end, "nic": nic, "kind": kind, "value": rate}
    return {name: values[known] for name, values in columns.items()}
