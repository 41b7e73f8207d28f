"""The second stage: the steps of one process on one device, start-up, and the window that is analysed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from advisor.metrics.intervals import Spans, joined
from advisor.metrics.loaded.host import HostStates, capture_ranges, host_states
from advisor.metrics.loaded.stage import Loaded, fields_of
from advisor.metrics.loaded.workload import NO_KERNELS, printed, trace_method
from advisor.metrics.stepped.arrivals import Arrivals, find_arrivals
from advisor.metrics.stepped.damage import Damage, find_damage
from advisor.metrics.stepped.origins import Provenance
from advisor.metrics.stepped.phases import phase_times
from advisor.metrics.stepped.recording import Recording, find_recording
from advisor.metrics.stepped.startup import Startup, find_startup
from advisor.metrics.stepped.window import Stretches, Window, find_stretches, find_window
from advisor.model.arrays import Array, among, distinct
from advisor.sources.schema import MISSING, Call


class Started(Recording, frozen=True, eq=False):
    """What concerns a whole program, by the steps on one device: all devices share it but one that ran
    another program. `states` are those of the host threads; `pauses` are left out of step times: neither busy
    nor idle."""

    startup: Startup
    states: HostStates
    damage: Damage
    arrivals: Arrivals
    stretches: Stretches
    pauses: Spans


class Stepped(Started, frozen=True, eq=False):
    """A capture with the steps and the window of one process on one device.

    `in_window`: mask of the operations that overlap the window. `window_steps`: positions of the steps that
    end inside it (the budget's steps); `window_phases`: their phases. `host_window`: the host times (ns) of
    the window; `calls_in_window`: mask of the rows of api_calls that start there. `workload` as printed: of a
    language model with its phase. `beside`: the same of the other devices, for the one with most GPU time.
    """

    workload: str
    provenance: Provenance
    window: Window
    in_window: Array
    window_steps: Array
    window_phases: Array
    host_window: tuple[int, int]
    calls_in_window: Array
    beside: Mapping[int, Stepped]

    @property
    def step_count(self) -> int:
        """Steps in the window."""
        return len(self.window_steps)

    def on(self, device: int) -> Stepped:
        """The steps on a device."""
        return self if device == self.main_device else self.beside[device]

    def calls_of(self, *kinds: Call) -> Array:
        """Rows of api_calls of these classes in the window."""
        wanted = among(self.trace.columns("api_calls", ("call",))["call"], kinds)
        return np.flatnonzero(wanted & self.calls_in_window).astype(np.int32)


def find_stepped(loaded: Loaded, other: Recording | None = None) -> Stepped:
    """The steps on every device, seen from the one with most GPU time. `other` is another recording of the
    same program, which supplies names. Raises InputError for a window or phase that cannot be used."""
    recording = find_recording(loaded)
    provenance = Provenance(recording, other)
    main = _stepped(_started(recording), provenance, _workload(recording))
    sampled = distinct(loaded.trace.columns("samples", ("device",))["device"]).tolist()
    others = {*distinct(loaded.ops.device).tolist(), *sampled} - {main.main_device}
    return replace(main, beside={device: on_device(main, device) for device in sorted(others)})


def on_device(main: Stepped, device: int, process: int | None = None) -> Stepped:
    """The same capture by the steps of another device, or of another process on it."""
    recording = find_recording(main, device, process)
    if recording.runs.since == main.runs.since:
        started = Started(**(fields_of(Started, main) | fields_of(Recording, recording)))
    else:
        started = _started(recording)
    return _stepped(started, main.provenance, main.workload)


def _started(recording: Recording) -> Started:
    trace, ops = recording.trace, recording.ops
    startup = find_startup(recording, recording.repeated)
    nodes = bool(trace.has("kernels") and (ops.graph_node != 0).any())
    nodes = nodes and trace_method(trace) != "hardware"  # which makes no launch longer
    states = host_states(trace, recording.ranges, recording.roles, startup.cold, nodes)
    arrivals = find_arrivals(recording, states)
    stretches = find_stretches(recording, states, arrivals.waits)
    idle = stretches.long, stretches.lone, arrivals.waits
    return Started(
        **fields_of(Recording, recording),
        startup=startup,
        states=states,
        damage=find_damage(trace, recording.steps),
        arrivals=arrivals,
        stretches=stretches,
        pauses=joined(capture_ranges(trace), recording.earlier_work, *idle),
    )


def _workload(recording: Recording) -> str:
    if not len(recording.names.ids) and not len(recording.ops) and not len(recording.steps):
        return NO_KERNELS
    phases = phase_times(recording.steps, recording.trace, recording.names)
    return printed(recording.program, *phases)


def _stepped(started: Started, provenance: Provenance, workload: str) -> Stepped:
    ops, steps = started.ops, started.steps
    window = find_window(started, started.startup, joined(started.damage.holes, started.pauses))
    at = _window_steps(started, window)
    host_window = _host_window(started, window, at)
    calls = started.trace.columns("api_calls", ("start", "process"))
    called = (calls["start"] >= host_window[0]) & (calls["start"] < host_window[1])
    if len(steps) and steps.process != MISSING:
        called &= calls["process"] == steps.process
    return Stepped(
        **fields_of(Started, started),
        workload=workload,
        provenance=provenance,
        window=window,
        in_window=(ops.end > window.start) & (ops.start < window.end) & ~window.holes.holds(ops.start),
        window_steps=at,
        window_phases=np.array([steps.phase[i] for i in at.tolist()], str),
        host_window=host_window,
        calls_in_window=called,
        beside={},
    )


def _window_steps(recording: Recording, window: Window) -> Array:
    """Positions of the steps that end inside the window, and are of the phase that the user chose."""
    steps, chosen = recording.steps, recording.selection.phase
    inside = (steps.gpu_end > window.start) & (steps.gpu_end <= window.end)
    if chosen:
        inside &= np.array([p == chosen for p in steps.phase], bool)
    return np.flatnonzero(inside)


def _host_window(recording: Recording, window: Window, at: Array) -> tuple[int, int]:
    """Host times of the window: from the end of the step before the first one to the end of the last one,
    like step times; the window itself where steps are unknown or the user named the window."""
    steps = recording.steps
    named = recording.selection.window or recording.selection.nvtx
    if len(at) and steps.method != "opaque graph launches" and not named:
        first, last = int(at[0]), int(at[-1])
        lo = int(steps.host_start[first])
        lo = min(lo, int(steps.host_end[first - 1])) if first else lo
        return lo, max(int(steps.host_end[last]), lo + 1)
    return window.start, window.end
