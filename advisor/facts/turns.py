"""Facts about GPUs of one process that take turns."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.turns import find_turns

_COMPUTES = Need("the process computes on no GPU in the window", needs.OWNER)
_SEVERAL = Need("the process computes on one GPU")

FACTS = group("trace", needs.CUDA, [
    Entry("gpus.computing_count", "count", "kernels", "GPUs that the main process computes on in the window", "GPUs with at least 5 % of the compute time of the busiest one"),
    Entry("gpus.alone_ratio", "ratio", "kernels", "Share of the time in which any of them computes that a single one does so", "union of the kernels but collectives, by GPU", needs=(_COMPUTES, _SEVERAL)),
    Entry("gpus.turn_wait_ratio", "ratio", "kernels", "Share of the window in which a GPU does not compute while another one does, on average", "(time of any - own time) / window, mean over the GPUs"),
], columns={"kernels": f"{origin.SPAN} name_id process"}, needs=(_COMPUTES,))  # fmt: skip


def turn_facts(a: Analysis, out: FactWriter) -> None:
    found = find_turns(a)
    if found is None:
        return
    out |= {
        "gpus.computing_count": len(found.devices),
        "gpus.alone_ratio": found.alone_ratio if len(found.devices) > 1 else None,
        "gpus.turn_wait_ratio": found.waiting_ratio,
    }
    if len(found.devices) == 1:
        return
    window = max(found.window, 1)
    out.table(
        "gpus.turns",
        [
            [device, own / 1e6, own / window, alone / window, (found.any - own) / window]
            for device, own, alone in zip(found.devices, found.compute, found.alone, strict=True)
        ],
    )
