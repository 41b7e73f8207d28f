"""What-ifs that make transfers shorter: fewer bytes at the rate that the capture itself shows."""

from __future__ import annotations

import numpy as np

from advisor.gain import limits
from advisor.gain.changes import what_if
from advisor.gain.inputs import Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate, Work
from advisor.gain.whatifs import Fix
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.collectives import bytes_of_collectives
from advisor.model.arrays import Array, distinct


@what_if()
def halve_bytes(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Transfers of at least a mebibyte move half of their bytes, at the rate of the quickest transfer of the
    same kind and size. Time beyond that rate is waiting and stays. Pessimistic: half of the gain."""
    mine, least = _measured(str(fix.params["of"]), work, inputs.ops.duration)
    goes = (1 - limits.HALVED_TRANSFERS_REMAIN[lean + 1]) * least
    return inputs.with_ops(duration=np.where(mine, inputs.ops.duration - goes, inputs.ops.duration))


def halved_numbers(fix: Fix, work: Work) -> list[str]:
    """The rate at which the transfers are taken to move half of their bytes, for readers."""
    of = str(fix.params["of"])
    try:
        mine, least = _measured(of, work, work.taken.inputs.ops.duration)
    except NoEstimate:
        return []
    rate = float(_moved(of, work)[mine].sum()) / max(float(least[mine].sum()), 1.0) * 1e9
    return [
        f"{of} of a mebibyte and more reach {rate / 1e9:.3g} GB/s here, at which half of the bytes are moved"
    ]


def _moved(of: str, work: Work) -> Array:
    """Bytes of each transfer of this sort in the window; 0 or less for all else, and if unknown."""
    if of == "copies":
        return np.where(work.large_pinned, work.copied, 0)
    moved = np.zeros(len(work), np.int64)
    for device in distinct(work.device).tolist():
        at, size = bytes_of_collectives(work.a, device)
        known = np.zeros(len(work.a.ops), np.int64)
        known[at] = size
        moved = np.where(work.device == device, known[work.at], moved)
    return np.where(work.communication, moved, 0)


def _measured(of: str, work: Work, duration: Array) -> tuple[Array, Array]:
    """Mask of the transfers whose rate the capture shows, and the time, ns, of the quickest one of each kind
    and size. Raises NoEstimate."""
    size = _moved(of, work)
    if of == "collectives" and (size[work.communication] <= 0).all():
        raise NoEstimate(
            "the capture does not say how many bytes its collectives move, so no rate is measured"
        )
    mine = size >= metric_limits.kernels.LATENCY_BYTES
    if not mine.any():
        raise NoEstimate(f"the replayed steps hold no {of} large enough to show the rate of the link")
    key = np.stack((work.name, work.direction, size))
    _, group = np.unique(key[:, mine], axis=1, return_inverse=True)
    quickest = np.full(int(group.max()) + 1, np.inf)
    np.minimum.at(quickest, group.reshape(-1), duration[mine])
    least = np.zeros(len(work))
    least[mine] = quickest[group.reshape(-1)]
    return mine, least
