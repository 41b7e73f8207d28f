"""Which part of a capture is replayed: all steps of a small one, else stretches of them in proportion
(:mod:`advisor.gain.sampling`), or a window without repeated steps as one pass."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.sampling import Kinds, in_proportion, size_class
from advisor.metrics.budgeted.passes import DeviceKernels
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect, joined
from advisor.metrics.loaded.operations import of_copies
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.stage import Stepped
from advisor.metrics.steps.model import Steps
from advisor.model.arrays import Array, among, median_of
from advisor.model.gain import Timed
from advisor.model.numbers import percent
from advisor.sources.schema import MIGRATIONS, MISSING


class Replayed(Struct, frozen=True):
    """Which steps are replayed, one stretch after the other as if nothing lay between them.

    `stretches`: the first and the last step of each, ascending, with a step at least between two. Of them
    the `measured` steps are timed: positions, ascending, whose predecessor is replayed too. `weight`: how
    many steps of the window each of these stands for; 1 where all are replayed. `whole` is the number of
    steps in the window; `of` what is timed."""

    stretches: tuple[tuple[int, int], ...]
    measured: Array
    weight: Array
    whole: int
    of: Timed = "step"

    @property
    def first(self) -> int:
        return self.stretches[0][0]

    @property
    def last(self) -> int:
        return self.stretches[-1][1]

    def holds(self, step: Array) -> Array:
        """Mask of the steps that are replayed."""
        inside = [(step >= i) & (step <= j) for i, j in self.stretches]
        return np.asarray(np.logical_or.reduce(inside))

    def share(self, step: Array) -> Array:
        """The part of the window's steps for which each of these steps stands, 0 for those not measured."""
        at = np.minimum(np.searchsorted(self.measured, step), len(self.measured) - 1)
        return np.where(self.measured[at] == step, self.weight[at] / self.weight.sum(), 0.0)

    def mean(self, values: Array) -> float:
        """The mean of a step of the window, of one value a measured step."""
        return float(np.average(values, weights=self.weight))

    @property
    def alone(self) -> bool:
        """Whether nothing is replayed before the measured pass."""
        return bool(self.measured[0] == self.first)

    @property
    def note(self) -> str | None:
        """A note for readers if not all steps were replayed."""
        if len(self.measured) == self.whole:
            return None
        count = f"{len(self.measured)} of {self.whole} steps"
        return f"{count} were replayed, in proportion to their phases and times"


class NoReplay(Exception):
    """The capture cannot be replayed; the text says why."""


def choose_steps(a: Budgeted, limit: int = limits.DIAGNOSIS_OPS) -> Replayed:
    """The steps of the window, or, if they hold more than `limit` operations, stretches of them in which
    each phase and each length of steps counts as much as in the window. Raises NoReplay."""
    if len(a.ops) == 0:
        raise NoReplay("the capture holds no GPU operations to replay")
    lost = a.losses.lost_kernels
    if a.thinned.share or lost >= limits.LOST_RATIO * (a.losses.kernels + lost) > 0:
        raise NoReplay("a part of the events is missing all along, so the timeline cannot be replayed")
    if len(a.window.cut(a.damage.holes)):
        raise NoReplay("events were lost inside the window, so the timeline cannot be replayed")
    steps = a.window_steps[a.window_steps >= limits.LEAD_STEPS]
    if len(steps) == 0:
        return _alone(a, limit)
    # Steps of one phase may lie apart; a stretch includes the steps between them.
    lo, hi = int(steps[0]), int(steps[-1])
    whole = (lo - limits.LEAD_STEPS, hi)
    if int(a.steps.size[whole[0] : hi + 1].sum()) <= limit:
        return Replayed((whole,), steps, np.ones(len(steps)), len(steps))
    return Replayed(*_sampled(a, steps, limit), len(steps))


def _sampled(a: Budgeted, steps: Array, limit: int) -> tuple[tuple[tuple[int, int], ...], Array, Array]:
    """Stretches of these steps in proportion, as `in_proportion`."""
    phase = np.unique([a.steps.phase[i] for i in steps.tolist()], return_inverse=True)[1]
    time = np.diff(recorded_ends(a))[steps - 1]
    # What the host has launched ahead fills the queue of a step.
    unfinished = steps - np.searchsorted(a.steps.gpu_end, a.steps.host_start[steps], "right")
    size = a.steps.size
    return in_proportion(
        Kinds(steps, phase, size_class(size[steps]), time), size, int(median_of(unfinished)), limit
    )


def _alone(a: Stepped, limit: int) -> Replayed:
    """The only pass: it is timed from the begin of the window on, since nothing comes before it."""
    if len(a.window_steps) == 0:
        raise NoReplay("no work ran wholly in the window")
    only = int(a.window_steps[0])
    mine = a.steps.op_step == only
    if (size := int(mine.sum())) > max(limit, limits.MOST_ALONE_OPS):
        raise NoReplay(f"the window is one pass of {size:,} operations, too many to be replayed")
    if 2 * int(among(of_copies(a.trace, a.ops)[mine], MIGRATIONS).sum()) >= size:
        raise NoReplay("pages of unified memory move when they are touched, which a replay does not show")
    of: Timed = "step" if a.steps.believed else "window"
    if (share := a.window.cut(a.startup.spans).total / a.window.nonzero_length) >= limits.COLD_RATIO:
        raise NoReplay(
            f"start-up holds {percent(share)} of the {of}: what a warm one takes is not in the capture"
        )
    return Replayed(((only, only),), a.window_steps, np.ones(1), 1, of)


def as_one_pass(a: Profiled) -> Profiled:
    """The capture itself if it has steps in its window, else one in which the window is one pass:
    all work of the process on the device that ran in the window."""
    ops, window = a.ops, a.window
    if len(a.window_steps) or not len(ops):
        return a
    mine = (ops.device == a.main_device) & (ops.process == a.main_process)
    mine &= a.in_window & (ops.start >= window.start) & (ops.end <= window.end)
    if not mine.any():
        return a
    host = np.array([window.start], np.int64), np.array([window.end], np.int64)
    gpu = ops.start[mine].min(keepdims=True), ops.end[mine].max(keepdims=True)
    step = np.where(mine, 0, MISSING)
    steps = Steps("single pass", 0.0, ("unknown",), *host, *gpu, step)
    view = replace(a, steps=steps, window_steps=np.zeros(1, np.int64))
    kernels = DeviceKernels(view, a.device_kernels(a.main_device))
    own = replace(a.work[a.main_device], kernels=kernels)
    return replace(view, work={**a.work, a.main_device: own})


def recorded_times(a: Budgeted, excerpt: Replayed) -> Array:
    """How long each measured step took, ns of recorded time."""
    ends, at = recorded_ends(a), excerpt.measured
    if excerpt.alone:
        return np.asarray(ends[at] - _recorded(a, host_spans(a, excerpt).start[:1]))
    return np.asarray(ends[at] - ends[at - 1])


def recorded_ends(a: Budgeted) -> Array:
    """When each step ended, ns of recorded time."""
    return _recorded(a, a.steps.gpu_end)


def _recorded(a: Budgeted, time: Array) -> Array:
    """Times without the stretches before them that are left out."""
    return np.asarray(time - Coverage(left_out(a))(time))


def left_out(a: Budgeted) -> Spans:
    """Stretches that no replay knows: what was not recorded, such as the time between capture ranges, and
    what the profiler took for itself."""
    return joined(a.pauses, profiler_writes(a))


def profiler_writes(a: Budgeted) -> Spans:
    """When the profiler wrote down what it had collected of the process and the device ran out of work
    meanwhile, as the budget has it."""
    written = joined(a.states.overhead.get(a.main_process, EMPTY), *a.states.thread_overhead.values())
    if not len(written) or a.main_device not in a.budgets:
        return EMPTY
    budget = a.budgets[a.main_device]
    gaps = budget.gaps.take(np.flatnonzero(budget.gap_parts["profiler"]))
    return intersect(written, Spans(gaps.start, gaps.end))


def host_spans(a: Stepped, excerpt: Replayed) -> Spans:
    """Host times [from, to) of the calls that belong to each stretch: from the first call of its first step,
    or the begin of the window for a pass that is alone, to the last call that its steps need."""
    begin = [a.window.start if excerpt.alone else _first_call(a, i) for i, _ in excerpt.stretches]
    end = [
        _first_call(a, j + 1) if j + 1 < len(a.steps) else max(int(a.steps.gpu_end[j]), since + 1)
        for since, (_, j) in zip(begin, excerpt.stretches, strict=True)
    ]
    return Spans(np.array(begin, np.int64), np.array(end, np.int64))


def _first_call(a: Recording, step: int) -> int:
    """When the host began with a step: its range, else its first call, else its first work."""
    steps = a.steps
    if steps.method in ("ranges", "graph launches"):
        return int(steps.host_start[step])
    lo, hi = np.searchsorted(a.ops.start, (steps.gpu_start[step], steps.gpu_end[step]))
    api = a.ops.api[lo:hi][(steps.op_step[lo:hi] == step)]
    api = api[api >= 0]
    if len(api) == 0:
        return int(steps.gpu_start[step])
    return int(a.trace.columns("api_calls", ("start",))["start"][api].min())
