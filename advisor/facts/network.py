"""Facts about network cards while collectives run: what they carry, and whether they have to wait."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage, subtract, union
from advisor.sources.schema import NIC_WAITS

#: A sample tells of communication when at least half of it is that.
_INSIDE = 0.5

_FINE = Need(
    "no sample of a network card lies mostly in exposed communication", needs.NETWORK
)  # fmt: skip

FACTS = group("device", needs.NETWORK, [
    Entry("network.card_count", "count", "network", "Network cards that carry data in the window", "distinct cards with bytes", needs=()),
    Entry("network.peak_rate", "bytes_per_s", "network", "The most that one card sends, or receives, in a sample", "max over the samples of the window", needs=()),
    Entry("network.waits_ratio", "ratio", "network kernels", "Share of the sampled communication that no kernel hides in which a network card has data to send and cannot send it", "samples that lie in such communication for at least half of their time: count with send waits / count", needs=(needs.COLLECTIVES, _FINE)),
], columns={"network": "start end nic kind value", "kernels": "start end device name_id"})  # fmt: skip


def network_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Nothing is said of a capture without samples of network cards."""
    if not a.trace.has("network"):
        return
    budget = a.budgets[device]
    window = (budget.window.start, budget.window.end)
    rows = a.trace.columns("network", ("start", "end", "nic", "kind", "value"), window)
    bytes_ = (rows["kind"] != NIC_WAITS) & (rows["value"] > 0)
    out.put("network.card_count", len(np.unique(rows["nic"][bytes_])))
    out.put("network.peak_rate", float(rows["value"][bytes_].max(initial=0)))
    mine = a.device_ops(device)
    mine = mine[a.communication[mine]]
    exposed = subtract(union(a.ops.start[mine], a.ops.end[mine]), budget.compute)
    waits = rows["kind"] == NIC_WAITS
    start, end, value = (rows[name][waits] for name in ("start", "end", "value"))
    inside = Coverage(exposed).within(start, end) >= _INSIDE * np.maximum(end - start, 1)
    if inside.any():
        samples, at = np.unique(start[inside], return_inverse=True)
        waited = np.bincount(at, value[inside] > 0, len(samples)) > 0
        out.put("network.waits_ratio", float(waited.mean()))
