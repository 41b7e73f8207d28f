"""Everything computed from one trace, each part once and only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from advisor.knowledge.engine_signs import workload_knowledge
from advisor.knowledge.files import kernel_families, step_patterns
from advisor.metrics import limits
from advisor.metrics.activity import HEAVY, Activity, kernel_activity, launch_groups, launch_kinds
from advisor.metrics.arrivals import Arrivals, find_arrivals
from advisor.metrics.budget import DeviceBudget, device_budget
from advisor.metrics.captured import graph_captures
from advisor.metrics.damage import earlier_work, find_damage, find_losses, find_thinned
from advisor.metrics.host import HostStates, Ranges, Threads, capture_ranges, host_states
from advisor.metrics.integrity import find_invalid
from advisor.metrics.intervals import Spans, joined, union
from advisor.metrics.kernels import Names, heaviest, kernel_names, worked
from advisor.metrics.layers import Layers, find_layers
from advisor.metrics.operations import Kind, Operations, find_runs, operations
from advisor.metrics.origins import Provenance
from advisor.metrics.passes import DeviceKernels
from advisor.metrics.phases import JudgedSteps, phase_times, slow_steps, with_phases
from advisor.metrics.sampled import Samples, device_samples, lag_of
from advisor.metrics.selection import Selection
from advisor.metrics.startup import activity_span, find_startup
from advisor.metrics.steps.find import find_steps
from advisor.metrics.steps.model import Steps, Work, no_steps
from advisor.metrics.window import find_stretches, find_window
from advisor.metrics.workload import NO_KERNELS, Judgement, judge, look, printed, trace_method
from advisor.model.arrays import Array, among, constant, picked
from advisor.model.capture import Device
from advisor.model.once import cached_property, once_each
from advisor.sources.schema import MISSING, Call
from advisor.sources.trace import Trace

T = TypeVar("T")

#: Attributes that the views of all devices share.
_SHARED = (
    "ops",
    "names",
    "op_name",
    "ranges",
    "threads",
    "program",
    "workload",
    "span",
    "pauses",
    "startup",
    "damage",
    "communication",
    "roles",
    "states",
    "provenance",
    "losses",
    "thinned",
    "stretches",
    "runs",
    "arrivals",
)
_OF_PROGRAM = (
    "startup",
    "damage",
    "pauses",
    "states",
    "stretches",
    "arrivals",
)  # but if it ran another program


def computed_by(make: Callable[[Analysis], T]) -> cached_property[T]:
    """A metric that this function computes of an analysis."""
    return cached_property(make)


class Analysis:
    """Metrics of one trace, computed on first use and kept. Steps and window are those of one device and of
    the process with most GPU time on it: of the device with most GPU time, or of another with `on(device)`.
    `other` is another recording of the same program, which supplies names; `waited` the share of each
    device's collectives that is waiting for late ranks."""

    trace: Trace
    selection: Selection
    other: Analysis | None = None
    waited: Mapping[int, float] = {}

    ops: cached_property[Operations] = computed_by(lambda a: operations(a.trace))
    names: cached_property[Names] = computed_by(lambda a: kernel_names(a.trace, kernel_families()))
    ranges = computed_by(lambda a: Ranges(a.trace))
    threads = computed_by(lambda a: Threads(a.trace))
    span = computed_by(lambda a: activity_span(a.trace, a.ops))
    runs = computed_by(lambda a: find_runs(a.trace, a.ops, a.op_name))
    startup = computed_by(lambda a: find_startup(a, a.repeated))
    arrivals: cached_property[Arrivals] = computed_by(find_arrivals)
    stretches = computed_by(lambda a: find_stretches(a, a.arrivals.waits))
    damage = computed_by(lambda a: find_damage(a.trace, a.steps))
    captured = computed_by(lambda a: graph_captures(a.trace, a.ops))
    losses = computed_by(lambda a: find_losses(a.trace, a.ops, a.captured))
    earlier_work = computed_by(lambda a: earlier_work(a.trace, a.ops))
    thinned = computed_by(lambda a: find_thinned(a.trace))
    invalid = computed_by(lambda a: find_invalid(a.trace, a.ops))
    window = computed_by(find_window)
    trace_method = computed_by(lambda a: trace_method(a.trace))
    provenance: cached_property[Provenance] = computed_by(Provenance)
    _budget = computed_by(device_budget)
    slow_steps: cached_property[JudgedSteps | None] = computed_by(slow_steps)

    def __init__(self, trace: Trace, selection: Selection | None = None, device: int | None = None) -> None:
        self.trace, self.selection, self._device = trace, selection or Selection(), device

    def release(self) -> None:
        """Drop all computed metrics: they take more memory than the columns they come from."""
        kept = self.trace, self.selection, self._device
        self.__dict__.clear()
        self.__init__(*kept)  # type: ignore[misc]

    def on(self, device: int) -> Analysis:
        """The analysis of another device; metrics of the whole trace are shared."""
        return self if device == self.main_device else self._of_device(device)

    @once_each
    def _of_device(self, device: int) -> Analysis:
        return self._view(device)

    def of_process(self, process: int) -> Analysis:
        """The analysis of another process on this device, by its own steps."""
        if process == self.main_process:
            return self
        view = self._view(self.main_device)
        view.__dict__["main_process"] = process
        return view

    def _view(self, device: int) -> Analysis:
        view = Analysis(self.trace, self.selection, device)
        runs = self.runs.on(device, self.ops)
        names = (n for n in _SHARED if runs.since == self.runs.since or n not in _OF_PROGRAM)
        view.__dict__.update({name: getattr(self, name) for name in names} | {"runs": runs})
        return view

    @cached_property
    def main_device(self) -> int:
        """The device that is analysed."""
        if self._device is not None or not len(self.ops):
            return self._device or 0
        return heaviest(self.ops.device, np.maximum(self.ops.length, 0))

    @cached_property
    def main_process(self) -> int:
        """The process with most GPU time on the device; without GPU work the one with most calls."""
        mine, process = self.ops.device == self.main_device, self.ops.process
        if mine.any():
            if constant(process):
                return int(process[0])
            return heaviest(process[mine], np.maximum(self.ops.length[mine], 0))
        called = self.trace.columns("api_calls", ("process",))["process"]
        return heaviest(called) if len(called) else MISSING

    @cached_property
    def op_name(self) -> Array:
        """Position of each operation's kernel name in `names`, MISSING for other operations."""
        out = np.full(len(self.ops), MISSING, np.int32)
        kernel = self.ops.kind == Kind.KERNEL
        out[kernel] = self.names.index[self.ops.row[kernel]]
        return out

    @cached_property
    def steps(self) -> Steps:
        """The steps; none where the period found may not be a step."""
        found = self.repeated
        return found if found.believed else no_steps(len(self.ops), found.empty, found.ranges_seen)

    @cached_property
    def repeated(self) -> Steps:
        """The best candidate for steps, with its confidence."""
        lost = max(self.losses.share, self.thinned.share)
        known_by = ("loss", "elementwise (XLA)", "top-k")
        kinds = [k.operation if k.operation in known_by else k.family for k in self.names.known]
        mine = self.main_process, self.main_device, self.op_name, self.ranges, step_patterns(), kinds
        runs = self.runs.since, self.runs.until
        work = Work(self.trace, self.ops, *mine, lost, self.program.denoises, *runs)
        found = find_steps(work)
        if not found.believed and (cold := find_startup(self, found).end):
            found = max(found, find_steps(replace(work, since=cold)), key=lambda s: s.confidence)
        if not len(found) or not self.trace.has("kernels"):
            return found
        return with_phases(found, self.trace, self.ops, self.names, self.program.is_language_model)

    @cached_property
    def program(self) -> Judgement:
        """What kind of program was captured, without regard to phases."""
        return judge(look(self.trace, self.names, self.ranges), workload_knowledge())

    @cached_property
    def workload(self) -> str:
        """The workload as printed: for a language model with its phase."""
        if not len(self.names.ids) and not len(self.ops) and not len(self.steps):
            return NO_KERNELS
        return printed(self.program, *phase_times(self.steps, self.trace, self.names))

    @cached_property
    def pauses(self) -> Spans:
        """Stretches that are left out of step times: neither busy nor idle."""
        idle = self.stretches.long, self.stretches.lone, self.arrivals.waits
        return joined(capture_ranges(self.trace), self.earlier_work, *idle)

    @cached_property
    def devices(self) -> list[int]:
        """Devices that did work in their window, and enough of it to be judged."""
        if self._device is not None:
            return [self._device]
        used = worked(self.ops.device, np.maximum(self.ops.length, 0))
        return [d for d in used if len(self.on(d).device_ops(d))]

    def device(self, number: int) -> Device:
        """What the capture records of a device; an empty description if it records nothing."""
        return next((d for d in self.trace.devices if d.id == number), Device(id=number))

    @cached_property
    def in_window(self) -> Array:
        """Mask of the operations that overlap the window."""
        ops, window = self.ops, self.window
        return (ops.end > window.start) & (ops.start < window.end) & ~window.holes.holds(ops.start)

    @cached_property
    def window_steps(self) -> Array:
        """Positions of the steps that end inside the window (the budget's steps)."""
        ends, window = self.steps.gpu_end, self.window
        inside = (ends > window.start) & (ends <= window.end)
        if self.selection.phase:
            inside &= np.array([p == self.selection.phase for p in self.steps.phase], bool)
        return np.flatnonzero(inside)

    @cached_property
    def window_phases(self) -> Array:
        """Phases of `window_steps`."""
        return np.array([self.steps.phase[i] for i in self.window_steps.tolist()], str)

    @property
    def step_count(self) -> int:
        """Steps in the window."""
        return len(self.window_steps)

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

    @cached_property
    def communication(self) -> Array:
        """Mask of the operations that are collectives (MISSING is the last name)."""
        return np.append(self.names.mask(lambda k: k.family == "communication"), False)[self.op_name]

    @cached_property
    def roles(self) -> dict[int, str]:
        """Ranges that are no steps but explain time: position in `ranges.texts` -> role."""
        return dict(self.ranges.matching(step_patterns().role))

    @cached_property
    def states(self) -> HostStates:
        nodes = bool(self.trace.has("kernels") and (self.ops.graph_node != 0).any())
        nodes = nodes and self.trace_method != "hardware"  # which makes no launch longer
        return host_states(self.trace, self.ranges, self.roles, self.startup.cold, nodes)

    @cached_property
    def budgets(self) -> dict[int, DeviceBudget]:
        """Budget of every device that did work in its window."""
        return {device: self.on(device)._budget for device in self.devices}

    @once_each
    def device_ops(self, device: int) -> Array:
        """Positions in `ops` of a device's operations in its window."""
        mine = self.on(device).in_window
        if not constant(self.ops.device):
            mine = mine & (self.ops.device == device)
        return np.flatnonzero(mine).astype(np.int32)

    def device_copies(self, device: int) -> Array:
        """Positions in `ops` of a device's copies in its window."""
        at = self.device_ops(device)
        return np.asarray(at[picked(self.ops.kind, at) == Kind.COPY])

    def device_kernels(self, device: int) -> Array:
        """Positions in `ops` of a device's kernels in its window."""
        return self.kernels(device).at

    @once_each
    def kernels(self, device: int) -> DeviceKernels:
        """A device's kernels in the window."""
        at = self.device_ops(device)
        return DeviceKernels(self, at[picked(self.op_name, at) >= 0])

    @once_each
    def layers(self, device: int) -> Layers | None:
        return find_layers(self, device)

    @once_each
    def feeder(self, device: int) -> int | None:
        """The thread that issued most of the device's operations in the window."""
        api = picked(self.ops.api, self.device_ops(device))
        threads = self.trace.columns("api_calls", ("thread",))["thread"][api[api >= 0]]
        return heaviest(threads) if len(threads) else None

    @once_each
    def samples(self, device: int) -> Samples | None:
        return device_samples(self.trace, device, self.on(device).window)

    @once_each
    def sample_lag(self, device: int) -> int:
        """By how much the samples of a device are late against its kernels, ns, as `lag_of`."""
        samples, ran = self.samples(device), self.kernels(device)
        if samples is None:
            return 0
        filling = self.names.mask(lambda k: k.family in HEAVY)[ran.name]
        return lag_of(samples, (self.budgets[device].compute, union(ran.start[filling], ran.end[filling])))

    @cached_property
    def activity(self) -> dict[int, Activity | None]:
        """Sampled activity by kernel group, for every device with kernels and samples in line with them."""
        out: dict[int, Activity | None] = {}
        for device in self.devices:
            samples = self.samples(device)
            if samples is None or not self.trace.has("kernels") or self.sample_lag(device):
                continue
            ran = self.kernels(device)
            kinds, groups = launch_kinds(ran.name, ran.blocks), self.kernel_groups(device)
            out[device] = kernel_activity(samples, ran.start, ran.end, *groups, kinds)
        return out

    @once_each
    def kernel_groups(self, device: int) -> tuple[Array, list[tuple[str, str]]]:
        """Group of each of `device_kernels`, and the labels, as `launch_groups`."""
        ran = self.kernels(device)
        return launch_groups(self.names, ran.name, ran.blocks)

    @cached_property
    def calls_in_window(self) -> Array:
        """Mask of the rows of api_calls that start on the host side of the window."""
        calls = self.trace.columns("api_calls", ("start", "process"))
        lo, hi = self.host_window
        inside = (calls["start"] >= lo) & (calls["start"] < hi)
        if len(self.steps) and self.steps.process != MISSING:
            inside &= calls["process"] == self.steps.process
        return np.asarray(inside)

    @cached_property
    def host_window(self) -> tuple[int, int]:
        """Host times of the window: from the end of the step before the first one to the end of the last
        one, like step times; the window itself where steps are unknown or the user named the window."""
        at = self.window_steps
        named = self.selection.window or self.selection.nvtx
        if len(at) and self.steps.method != "opaque graph launches" and not named:
            first, last = int(at[0]), int(at[-1])
            lo = int(self.steps.host_start[first])
            lo = min(lo, int(self.steps.host_end[first - 1])) if first else lo
            return lo, max(int(self.steps.host_end[last]), lo + 1)
        return self.window.start, self.window.end

    def calls_of(self, *kinds: Call) -> Array:
        """Rows of api_calls of these classes in the window."""
        wanted = among(self.trace.columns("api_calls", ("call",))["call"], kinds)
        return np.flatnonzero(wanted & self.calls_in_window).astype(np.int32)

    @once_each
    def meets(self, need: tuple[Any, ...]) -> bool:
        """Whether something that facts need is there: a predicate, and its argument if it takes one."""
        predicate, *argument = need
        return bool(predicate(self, *argument))
