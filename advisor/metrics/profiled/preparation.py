"""What prepares the batch of a step before its CUDA graph is replayed: a few small kernels and copies that
the host launches one by one."""

from __future__ import annotations

import numpy as np

from advisor.metrics.loaded.operations import of_copies
from advisor.metrics.profiled.activity import HEAVY
from advisor.metrics.stepped.recording import Recording
from advisor.model.arrays import Array, begins_run, picked
from advisor.sources.schema import DTOH, MISSING, Call


def preparing(a: Recording, device: int) -> Array:
    """Mask of all operations of the device that prepare a replay: they are launched one by one between two
    replays, with no product, attention or expert kernel among them, and belong to the step of the second;
    where it is the replay that begins a step, or no step is known, they follow the last copy of results to
    the host, or the begin of the recording."""
    mine = np.flatnonzero(a.ops.device == device)
    api = picked(a.ops.api, mine)
    calls = a.trace.columns("api_calls", ("call",))["call"]
    replayed = picked(a.ops.graph_node, mine) != 0
    replayed |= (api >= 0) & (calls.take(api) == Call.GRAPH_LAUNCH) if len(calls) else False
    if not replayed.any() or replayed.all():
        return np.zeros(len(mine), bool)
    # The replay that comes next, by the position of its first operation; the last stretch has none.
    first = np.flatnonzero(replayed & begins_run(replayed))
    after = np.searchsorted(first, np.arange(len(mine)))
    followed = ~replayed & (after < len(first))
    name = picked(a.op_name, mine)
    products = np.append(a.names.mask(lambda k: k.family in HEAVY), False)  # the last one: no kernel
    heavy = products[np.where(name >= 0, name, -1)] & ~replayed
    whole = np.bincount(after[heavy], minlength=len(first) + 1) > 0
    step = a.steps.op_step[mine]
    of_next = step[first[np.minimum(after, len(first) - 1)]]
    same = (step == of_next) & (step != MISSING)
    read = np.flatnonzero(picked(of_copies(a.trace, a.ops), mine) == DTOH)
    last_read = np.zeros(len(first) + 1, np.int64)
    np.maximum.at(last_read, after[read], read + 1)
    behind = ((last_read[after] > 0) | (after == 0)) & (np.arange(len(mine)) >= last_read[after])
    return np.asarray(followed & ~whole[after] & (same | behind))
