"""The third stage: what each device did in its window, and what every part of the window was spent on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.budgeted.budget import DeviceBudget, device_budget
from advisor.metrics.budgeted.passes import DeviceKernels
from advisor.metrics.loaded.kernels import heaviest, worked
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import fields_of
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, picked


class DeviceWork(Struct, frozen=True):
    """One device's work in its window: positions in `ops` of its operations (`at`), its kernels, and the
    thread that issued most of the operations (`feeder`)."""

    at: Array
    kernels: DeviceKernels
    feeder: int | None


class Budgeted(Stepped, frozen=True, eq=False):
    """A capture with the work of every device, and the budget of each that did work in its window."""

    work: Mapping[int, DeviceWork]
    budgets: Mapping[int, DeviceBudget]

    @property
    def devices(self) -> list[int]:
        """Devices that did work in their window, and enough of it to be judged."""
        return list(self.budgets)

    def device_ops(self, device: int) -> Array:
        """Positions in `ops` of a device's operations in its window."""
        return self.work[device].at

    def device_copies(self, device: int) -> Array:
        """Positions in `ops` of a device's copies in its window."""
        at = self.device_ops(device)
        return np.asarray(at[picked(self.ops.kind, at) == Kind.COPY])

    def device_kernels(self, device: int) -> Array:
        """Positions in `ops` of a device's kernels in its window."""
        return self.kernels(device).at

    def kernels(self, device: int) -> DeviceKernels:
        """A device's kernels in its window."""
        return self.work[device].kernels

    def feeder(self, device: int) -> int | None:
        """The thread that issued most of the device's operations in the window."""
        return self.work[device].feeder

    def rates(self, device: int, counts: Mapping[str, float | None]) -> dict[str, float]:
        """Counts of the window by name, as ``NAME_per_step``; without certain steps as
        ``NAME_per_100_kernels``, if there are enough for a rate. None values are left out."""
        known = {name: count for name, count in counts.items() if count is not None}
        if self.step_count:
            return {f"{n}_per_step": count / self.step_count for n, count in known.items()}
        ran = len(self.device_kernels(device))
        return {
            f"{n}_per_100_kernels": 100 * c / ran for n, c in known.items() if ran >= limits.host.RATE_KERNELS
        }


def find_budgeted(stepped: Stepped) -> Budgeted:
    """The budgets of all devices."""
    every = {stepped.main_device: stepped, **stepped.beside}
    work = {device: _work(own) for device, own in every.items()}
    used = worked(stepped.ops.device, np.maximum(stepped.ops.length, 0))
    budgets = {device: device_budget(every[device]) for device in used if len(work[device].at)}
    return Budgeted(**fields_of(Stepped, stepped), work=work, budgets=budgets)


def seen_from(a: Budgeted, device: int) -> Budgeted:
    """The same capture by the steps of one of its devices, with that device alone."""
    own = {device: a.budgets[device]} if device in a.budgets else {}
    return Budgeted(**fields_of(Stepped, a.on(device)), work={device: a.work[device]}, budgets=own)


def _work(own: Stepped) -> DeviceWork:
    """The work of the device that these steps are of."""
    mine = own.in_window & (own.ops.device == own.main_device)
    at = np.flatnonzero(mine).astype(np.int32)
    api = picked(own.ops.api, at)
    threads = own.trace.columns("api_calls", ("thread",))["thread"][api[api >= 0]]
    kernels = DeviceKernels(own, at[picked(own.op_name, at) >= 0])
    return DeviceWork(at, kernels, heaviest(threads) if len(threads) else None)
