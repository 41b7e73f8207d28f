"""How fast a device runs kernels that other devices of its job run as well."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from msgspec import Struct

from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import dense, distribution, launch_shape
from advisor.metrics.tails import call_key

#: Kernels that are compared, the heaviest first: they hold nearly all of the time of real models.
_MOST = 200


class KernelPace(Struct, frozen=True):
    """One kernel with one launch shape: calls and time (ns) a step, or in the window where no steps
    are known, and the median duration (ns). `key` is the same on every rank."""

    key: int
    name: str
    calls: float
    time: float
    median: float


def kernel_paces(a: Analysis, device: int) -> tuple[KernelPace, ...]:
    """The heaviest kernels of the device in the window, without communication."""
    at = a.device_kernels(device)
    at = at[~a.communication[at]]
    if not len(at) or a.trace.summed:
        return ()
    shape = launch_shape(a.trace, a.ops.row[at])
    keys, group = dense(call_key(a.op_name[at], shape))
    spread = distribution(group, (a.ops.end - a.ops.start)[at], len(keys))
    example = np.zeros(len(keys), np.int64)
    example[group] = np.arange(len(at))
    steps = max(a.step_count, 1)
    return tuple(
        KernelPace(
            crc32(f"{a.names.texts[a.op_name[at[example[i]]]]} {shape[example[i]]}".encode()),
            a.names.short[a.op_name[at[example[i]]]],
            int(spread.count[i]) / steps,
            float(spread.total[i]) / steps,
            float(spread.p50[i]),
        )
        for i in np.argsort(-spread.total, kind="stable")[:_MOST].tolist()
    )
