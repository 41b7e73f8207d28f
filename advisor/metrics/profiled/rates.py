"""How fast operators run: what their calls compute and move over the time of their kernels, against the rates
of the GPU."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from advisor.knowledge.gpus import cached_bytes, dram_peak, gpu_of
from advisor.knowledge.healthy_rates import HealthyRate, healthy_rate
from advisor.knowledge.operators import OperatorWork
from advisor.knowledge.shapes import Precision
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import is_simt_fp32, is_tf32
from advisor.metrics.loaded.operations import combinations
from advisor.model.arrays import Array, rows_at
from advisor.model.capture import Device
from advisor.sources.schema import MISSING

#: Kernels of a call by what their names say of FP32 operands.
_UNNAMED, _ORDINARY, _TENSOR = 0, 1, 2
_PRECISIONS: dict[int, tuple[Precision, ...]] = {
    _UNNAMED: ("fp32", "tf32"),
    _ORDINARY: ("fp32",),
    _TENSOR: ("tf32",),
}


class OperatorRate(NamedTuple):
    """Calls of one operator with arguments of the same sizes and types: how many, the time of their kernels
    (ns, of all calls), and the rates of the device that bound them.

    `peaks`: operations a second at the least and at the most (FP32 operands may run on ordinary or on tensor
    cores); None if tensor cores do not do the work or the rate is unknown. `bandwidth`: bytes a second,
    None if unknown. `cache`: bytes that may come from the L2 cache."""

    name: str
    work: OperatorWork
    calls: int
    time_ns: float
    peaks: tuple[float, float] | None
    bandwidth: float | None
    cache: float
    healthy: HealthyRate | None

    @property
    def flop_per_s(self) -> float:
        return self.calls * self.work.flop / self.time_ns * 1e9

    @property
    def bytes_per_s(self) -> float | None:
        return None if self.work.bytes is None else self.calls * self.work.bytes / self.time_ns * 1e9

    @property
    def is_impossible(self) -> bool:
        """Whether it ran faster than the device can: times or sizes are damaged. Bytes in the L2 cache need
        not come from memory."""
        if self.peaks is not None and self.flop_per_s > self.peaks[1]:
            return True
        if self.work.bytes is None or self.bandwidth is None:
            return False
        return self.calls * max(self.work.bytes - self.cache, 0.0) / self.time_ns * 1e9 > self.bandwidth

    @property
    def of_peak(self) -> tuple[float, float] | None:
        """Operations a second of the peak, at least and at most; None if unknown or impossible."""
        if self.peaks is None or self.is_impossible:
            return None
        low, high = self.flop_per_s / self.peaks[1], self.flop_per_s / self.peaks[0]
        return low, min(high, 1.0)

    @property
    def judged(self) -> tuple[float, HealthyRate] | None:
        """The share of the peak, at most, and what healthy kernels reach; None if that is not known for its
        size, and where its bytes take longer than its operations."""
        if self.healthy is None or self.of_peak is None or self.peaks is None:
            return None
        moving = (self.work.bytes or 0.0) / (self.bandwidth or math.inf)
        return (self.of_peak[1], self.healthy) if self.work.flop / self.peaks[1] >= moving else None

    @property
    def of_bandwidth(self) -> float | None:
        """Bytes a second of the peak of memory; None if unknown, impossible, or faster than it from the
        cache."""
        rate = self.bytes_per_s
        if rate is None or self.bandwidth is None or self.is_impossible or rate > self.bandwidth:
            return None
        return rate / self.bandwidth

    @property
    def roofline_ns(self) -> float | None:
        """The least time of all calls at the rates of the device, no more than they took; None if no rate is
        known or it is impossible."""
        if self.is_impossible:
            return None
        least = []
        if self.peaks is not None:
            least.append(self.calls * self.work.flop / self.peaks[1] * 1e9)
        if self.work.bytes is not None and self.bandwidth is not None:
            least.append(self.calls * self.work.bytes / self.bandwidth * 1e9)
        return min(max(least), self.time_ns) if least else None

    @property
    def of_roofline(self) -> float | None:
        least = self.roofline_ns
        return None if least is None else least / self.time_ns


class OperatorRates(Struct, frozen=True):
    """The operators of a device with known work, the one with most time first, and the kernels of its window:
    time of all (ns), positions in `ops` of those of such operators and which one of `rates` each is part of,
    and positions of the others."""

    rates: list[OperatorRate]
    kernel_ns: float
    at: Array
    rate: Array
    others: Array

    @property
    def sized_ns(self) -> float:
        return sum(rate.time_ns for rate in self.rates)


def operator_rates(a: Budgeted, device: int) -> OperatorRates | None:
    """None if no kernel of the window belongs to an operator whose work is known. Calls of which the window
    holds a part of the kernels count among the others."""
    found = a.provenance.operator_calls
    at = a.device_kernels(device)
    if found is None or not len(at):
        return None
    call = found.call[at]
    inside = call >= 0
    if not inside.any():
        return None
    of_device = found.call[(a.op_name >= 0) & (a.ops.device == device)]
    whole = np.bincount(of_device[of_device >= 0], minlength=len(found.work_of))
    held = np.bincount(call[inside], minlength=len(found.work_of))
    inside &= np.append(held == whole, False)[call]
    duration = a.ops.length[at].astype(float)
    time = np.bincount(call[inside], duration[inside], len(found.work_of))
    fp32 = _kernels_of_fp32(a, a.op_name[at[inside]], call[inside], len(found.work_of))
    ran = np.flatnonzero(time > 0)
    inside &= np.append(time > 0, False)[call]
    first, group = combinations(found.work_of[ran], fp32[ran])
    calls, spent = np.bincount(group, minlength=len(first)), np.bincount(group, time[ran], len(first))
    about = a.device(device)
    rates = []
    for i, (work, kind) in enumerate(rows_at(first, found.work_of[ran], fp32[ran])):
        name, what = found.works[work]
        bounds = _peaks(about, what, kind), dram_peak(about), cached_bytes(about)
        known = healthy_rate(about, what)
        rates.append(OperatorRate(name, what, int(calls[i]), float(spent[i]), *bounds, known))
    order = np.argsort([-rate.time_ns for rate in rates], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    of_call = np.full(len(found.work_of), MISSING, np.int64)
    of_call[ran] = place[group]
    ordered = [rates[i] for i in order.tolist()]
    return OperatorRates(ordered, float(duration.sum()), at[inside], of_call[call[inside]], at[~inside])


def _kernels_of_fp32(a: Budgeted, name: Array, call: Array, calls: int) -> Array:
    """Of each call whether the names of its kernels say that FP32 operands run on ordinary or on tensor
    cores."""
    out = np.full(calls, _UNNAMED)
    for kind, wanted in ((_ORDINARY, is_simt_fp32), (_TENSOR, is_tf32)):
        out[call[a.names.mask(wanted)[name]]] = kind
    return out


def _peaks(device: Device, work: OperatorWork, kind: int) -> tuple[float, float] | None:
    """Least and most operations a second of products of these operands; None if unknown."""
    about = gpu_of(device)
    if about is None or not work.matrix or work.precision is None:
        return None
    precisions = _PRECISIONS[kind] if work.precision == "fp32" else (work.precision,)
    rates = [rate for rate in map(about.flop_per_s, precisions) if rate]
    return (min(rates), max(rates)) if rates else None


class SlowKernels(NamedTuple):
    """Kernels of a family that reach less than a part of what healthy ones do: positions in `ops`, of each
    the share of its time that the usual healthy share and the best one would take, and the operators."""

    family: str
    at: Array
    usual: Array
    best: Array
    rates: list[OperatorRate]


def slow_kernels(found: OperatorRates, part: float) -> SlowKernels | None:
    """Those of the family with most time in operators that reach less than `part` of the usual share."""
    usual, best = np.ones(len(found.rates)), np.ones(len(found.rates))
    slow: dict[str, list[int]] = {}
    for i, rate in enumerate(found.rates):
        if (judged := rate.judged) is not None and judged[0] < part * judged[1].usual:
            slow.setdefault(rate.work.family, []).append(i)
            usual[i], best[i] = judged[0] / judged[1].usual, judged[0] / judged[1].best
    if not slow:
        return None
    family = max(slow, key=lambda f: sum(found.rates[i].time_ns for i in slow[f]))
    mine = np.isin(found.rate, slow[family])
    of = found.rate[mine]
    return SlowKernels(family, found.at[mine], usual[of], best[of], [found.rates[i] for i in slow[family]])


def family_times(a: Budgeted, at: Array) -> list[tuple[str, int, float]]:
    """Family, number and time (ns) of kernels (positions in `ops`), the heaviest family first."""
    families: dict[str, int] = {}
    index = np.array([families.setdefault(k.family, len(families)) for k in a.names.known], np.int64)
    of = index[a.op_name[at]]
    count = np.bincount(of, minlength=len(families)).tolist()
    time = np.bincount(of, a.ops.length[at], len(families)).tolist()
    rows = [(name, count[i], time[i]) for name, i in families.items() if count[i]]
    return sorted(rows, key=lambda row: -row[2])
