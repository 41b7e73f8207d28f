"""Devices whose work has nothing to do with that of others: replicas of a model in one capture."""

from __future__ import annotations

import numpy as np

from advisor.metrics.analysis import Analysis
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import PTOP


def threads_elsewhere(a: Analysis) -> Array | None:
    """Threads that issue the work of other devices than the analysed one, where that work and its own
    are apart: no thread issues both, no collective runs and no copy goes from device to device. None
    where they are not, and of a single device."""
    ops, api = a.ops, a.trace.columns("api_calls", ("thread",))["thread"]
    other = ops.device != a.main_device
    if not other.any() or a.communication.any():
        return None
    copies = ops.row[ops.kind == Kind.COPY]
    if (a.trace.columns("copies", ("kind",))["kind"][copies] == PTOP).any():
        return None
    issued = ops.api >= 0
    elsewhere, own = (distinct(api[ops.api[issued & mine]]) for mine in (other, ~other))
    if not len(elsewhere) or not len(own) or np.isin(own, elsewhere).any():
        return None
    return elsewhere
