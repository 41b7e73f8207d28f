"""The last stage: what samples, the order of the kernels and the spread of the steps add to the budgets.
Facts, gains and reports are made of it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from advisor.metrics.budgeted.layers import Layers, find_layers
from advisor.metrics.budgeted.stage import Budgeted, find_budgeted, seen_from
from advisor.metrics.budgeted.step_times import JudgedSteps, slow_steps
from advisor.metrics.intervals import union
from advisor.metrics.loaded.selection import Selection
from advisor.metrics.loaded.stage import fields_of, load
from advisor.metrics.profiled.activity import HEAVY, Activity, kernel_activity, launch_groups, launch_kinds
from advisor.metrics.profiled.rates import OperatorRates, operator_rates
from advisor.metrics.profiled.sampled import Samples, device_samples, lag_of
from advisor.metrics.stepped.stage import find_stepped
from advisor.model.arrays import Array
from advisor.sources.trace import Trace


class DeviceProfile(Struct, frozen=True):
    """One device in its window: its samples, by how much they are late against its kernels (`lag`, ns, as
    `lag_of`), the group of each kernel and the labels of the groups, as `launch_groups`, the sampled activity
    of each group (None unless samples are in line with kernels), the layers of a step, its slow steps, and
    the rates of operators with recorded sizes."""

    samples: Samples | None
    lag: int
    groups: tuple[Array, list[tuple[str, str]]]
    activity: Activity | None
    layers: Layers | None
    slow_steps: JudgedSteps | None
    rates: OperatorRates | None


class Profiled(Budgeted, frozen=True, eq=False):
    """A capture with all that is measured of it once. `other`: another recording of the same program.
    `waited`: the share of each device's collectives that is waiting for late ranks, where several ranks are
    in the capture."""

    profiles: Mapping[int, DeviceProfile]
    other: Budgeted | None = None
    waited: Mapping[int, float] = {}

    @property
    def slow_steps(self) -> JudgedSteps | None:
        """The slow steps of the device that is analysed."""
        return self.profiles[self.main_device].slow_steps

    @property
    def activity(self) -> dict[int, Activity]:
        """Sampled activity by kernel group, of the devices that have any."""
        return {d: p.activity for d, p in self.profiles.items() if p.activity is not None}

    def samples(self, device: int) -> Samples | None:
        return self.profiles[device].samples if device in self.profiles else None

    def sample_lag(self, device: int) -> int:
        return self.profiles[device].lag

    def kernel_groups(self, device: int) -> tuple[Array, list[tuple[str, str]]]:
        return self.profiles[device].groups

    def layers(self, device: int) -> Layers | None:
        return self.profiles[device].layers

    def operator_rates(self, device: int) -> OperatorRates | None:
        return self.profiles[device].rates if device in self.profiles else None

    def seen_from(self, device: int) -> Profiled:
        """The same capture by the steps of one of its devices, with that device alone; the one with most GPU
        time sees all of them."""
        if device == self.main_device:
            return self
        own = fields_of(Budgeted, seen_from(self, device))
        profiles = {device: self.profiles[device]}
        return Profiled(**own, profiles=profiles, other=self.other, waited=self.waited)


def measure(trace: Trace, selection: Selection | None = None, other: Trace | None = None) -> Profiled:
    """All stages of a capture. `other` is another recording of the same program, which supplies names. Raises
    InputError for a selection that cannot be used."""
    beside = None if other is None else find_budgeted(find_stepped(load(other)))
    return find_profiled(find_budgeted(find_stepped(load(trace, selection), beside)), beside)


def find_profiled(budgeted: Budgeted, other: Budgeted | None = None) -> Profiled:
    """The profiles of all devices."""
    profiles = {device: _profile(seen_from(budgeted, device)) for device in budgeted.work}
    return Profiled(**fields_of(Budgeted, budgeted), profiles=profiles, other=other)


def _profile(own: Budgeted) -> DeviceProfile:
    """The profile of the device that is analysed."""
    device = own.main_device
    ran, samples = own.kernels(device), device_samples(own.trace, device, own.window)
    groups = launch_groups(own.names, ran.name, ran.blocks)
    lag, activity = 0, None
    if samples is not None and device in own.budgets:
        filling = own.names.mask(lambda k: k.family in HEAVY)[ran.name]
        work = own.budgets[device].compute, union(ran.start[filling], ran.end[filling])
        lag = lag_of(samples, work)
        if own.trace.has("kernels") and not lag:
            kinds = launch_kinds(ran.name, ran.blocks)
            activity = kernel_activity(samples, ran.start, ran.end, *groups, kinds)
    return DeviceProfile(
        samples, lag, groups, activity, find_layers(own, device), slow_steps(own), operator_rates(own, device)
    )
