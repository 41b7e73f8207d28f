"""Step times with and without fixes, and how sure they are.

Every uncertain quantity (the profiler's cost of a launch, the gap between graph nodes, the effect of a fix,
the noise between two runs) is moved to both ends of its range while the others stay in the middle, on both
sides alike. Independent errors add in quadrature, here of logarithms, since a speed-up is a ratio. Whatever
is assumed, no untraced step takes longer than the traced one or less than the GPU alone needs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.gain import limits
from advisor.gain.excerpt import NoReplay, Replayed, as_one_pass, choose_steps, recorded_times
from advisor.gain.extract import Extract, extract
from advisor.gain.fixes import apply
from advisor.gain.inputs import Inputs, Waits
from advisor.gain.possible import Possible, busy_ns, gpu_ns, profiler_ns
from advisor.gain.profiler import (
    Scenario,
    corrected,
    has_launches,
    has_nodes,
    node_inflation,
    slows_host,
    without_inflation,
)
from advisor.gain.replay import StepTimes
from advisor.gain.replay_ops import NoEstimate, Work
from advisor.gain.resources import Resources
from advisor.gain.spread import around, error_of_mean, error_of_ratio, ratio_noise
from advisor.gain.whatifs import Fix, catalogue, constant
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.workload import trace_method
from advisor.metrics.profiled.stage import Profiled
from advisor.model.arrays import Array
from advisor.model.findings import Span
from advisor.model.gain import HOLDS_MUCH, may_be_half, share_saved

#: Halvings of a range of 0..1: enough for 0.1 % of the widest range of step times.
_HALVINGS = 10
#: Number of inputs that are kept: the scenarios of a few fixes.
_KEPT = 16
_NO_WAITS = Waits.none()


class Estimate(Struct, frozen=True):
    """Predicted step times, ms, before and after some fixes. `bound` is the time that the GPU itself then
    needs: no faster host makes a step shorter or a gain larger than `bound_speedup` (Amdahl). `traced`: what
    tracing changed makes the range wide."""

    before: Span
    after: Span
    speedup: Span
    bound: Span
    bound_speedup: Span
    measure: str
    traced: bool = False


class Replayer:
    """Replays of one capture; inputs shared by several estimates are computed once."""

    def __init__(
        self,
        a: Profiled,
        weight_bytes: int | None = None,
        limit: int = limits.DIAGNOSIS_OPS,
        unprofiled_ns: float | None = None,
        unprofiled_from: str = "as given",
    ) -> None:
        """`unprofiled_ns` is the step time of a run without the profiler, if known, and where it is from: all
        times are scaled to it. Raises NoReplay if the capture cannot be replayed."""
        self.a = a = as_one_pass(a)
        self.unprofiled_ns, self.unprofiled_from = unprofiled_ns, unprofiled_from
        self.excerpt: Replayed = choose_steps(a, limit)
        self.taken: Extract = extract(a, self.excerpt)
        self.work = Work(a, self.taken, weight_bytes)
        given = self.taken.main, self.work.remembered, self.work.kind != Kind.COPY
        self.times = StepTimes(self.excerpt, *given)
        self.by_software = trace_method(a.trace) != "hardware"
        self.wider_gaps = not a.trace.capture.recorder.nsys_options
        self.inflation = node_inflation(a)
        self._untraced = without_inflation(a, self.taken.inputs, self.inflation)
        self._known: dict[tuple[Any, ...], float] = {}
        #: The latest inputs, from which steps and bounds, and the next fix or scenario, start.
        self.latest: dict[tuple[Any, ...], Inputs] = {}
        self._bounds: deque[tuple[Inputs, float]] = deque(maxlen=_KEPT)
        if self.traced_ns <= 0:
            raise NoReplay("the steps take no time: their kernels lack the ends")

    # ------------------------------------------------------------ times

    def inputs(self, fixes: Sequence[Fix], scenario: Scenario) -> Inputs:
        """The capture's inputs without the profiler, changed by the fixes in their order."""
        key: tuple[Any, ...] = (scenario.launch, scenario.node_gap, scenario.waiting)
        recorded_by = self.by_software, self.wider_gaps, self.work.tracing_pace
        as_traced = partial(corrected, self._untraced, scenario, *recorded_by)
        inputs = self._made(key, as_traced)
        for i, fix in enumerate(fixes):
            key = (*key, fix.key, scenario.lean(i))
            inputs = self._made(key, partial(apply, fix, inputs, self.work, scenario, scenario.lean(i)))
        return inputs

    def _made(self, key: tuple[Any, ...], make: Callable[[], Inputs]) -> Inputs:
        found = self.latest.pop(key, None) or make()
        self.latest[key] = found  # the last in the order of use
        if len(self.latest) > _KEPT:
            del self.latest[next(iter(self.latest))]
        return found

    def step_ns(self, fixes: Sequence[Fix], scenario: Scenario) -> float:
        """Mean step time under a scenario. A known unprofiled step time is met without a fix; the part of
        it that no cost of tracing explains shrinks in proportion with the time that fixes remove."""
        replayed = self._replayed(fixes, scenario)
        before = self._replayed((), replace(scenario, leans=()))
        if self.unprofiled_ns is None:
            possible = self._possible
            step, after = possible.step(before), possible.with_fixes(before, replayed)
            lost = possible.lost(step, scenario.profiler)
            return max(after - lost, min(after, self._bound(fixes, scenario))) if lost > 0 else after
        scaled = replayed * (self.unprofiled_ns / before) ** min(replayed / before, 1.0)
        return float(max(scaled, min(replayed, self.bound_ns(fixes, scenario))))

    @cached_property
    def traced_ns(self) -> float:
        """Mean time of all steps of the window as captured; without steps that of the one pass."""
        if self.excerpt.of == "step":
            return float(step_times(self.a).mean())
        return self.excerpt.mean(recorded_times(self.a, self.excerpt))

    @cached_property
    def _possible(self) -> Possible:
        least = min(gpu_ns(self.a, self.inflation), self.traced_ns)
        return Possible(least, self.traced_ns, profiler_ns(self.a) if self.excerpt.of == "step" else 0.0)

    def _replayed(self, fixes: Sequence[Fix], scenario: Scenario) -> float:
        key = (tuple(f.key for f in fixes), scenario)
        if key not in self._known:
            inputs = self.inputs(fixes, scenario)
            step = max(self.times.mean(inputs), self._least(fixes, inputs), self._alone(fixes, scenario))
            if fixes and inputs.no_longer_than(self.inputs((), scenario)):
                # The steps before the measured ones may have ended sooner than these.
                step = min(step, self._replayed((), replace(scenario, leans=())))
            self._known[key] = step
        return self._known[key]

    def _least(self, fixes: Sequence[Fix], inputs: Inputs) -> float:
        """Time in which a device is busy in a step, ns, if kernels overlap as recorded: the removed ones may
        all have run alone. Copies cost kernels beside them nothing. 0 for fixes that let work overlap."""
        specs = [catalogue().whatifs[fix.what_if] for fix in fixes]
        if not all(spec.keeps_work or spec.shortens for spec in specs):
            return 0.0
        before = after = self.times.work(inputs)
        if not all(spec.keeps_work for spec in specs):
            before = max(self.times.work(self.taken.inputs), after)
        return self._recorded_busy * before - (before - after)

    def _alone(self, fixes: Sequence[Fix], scenario: Scenario, host: bool = True) -> float:
        """Time of the copy engine, the link or the thread that has the most work by itself in a step, ns; as
        much less as what it has to do without a fix exceeds the step: that is of other steps."""
        if not fixes:
            return 0.0
        unfixed = replace(scenario, leans=())
        step = self._replayed((), unfixed) if host else self._bound((), unfixed)
        before, after = (
            self._resources.needs(self.inputs(*of), host) for of in (((), unfixed), (fixes, scenario))
        )
        return float((after * np.minimum(step / np.maximum(before, 1.0), 1.0)).max(initial=0.0))

    @cached_property
    def _resources(self) -> Resources:
        return Resources(self.work)

    @cached_property
    def _recorded_busy(self) -> float:
        """Time in which kernels ran on the busiest device in the measured steps, over their summed time."""
        at = self.taken.inputs.ops.at[self.times.kernels(self.taken.inputs)]
        total = float(self.a.ops.length[at].sum())
        return busy_ns(self.a, at) / max(total, 1.0)

    @cached_property
    def middle(self) -> Scenario:
        """The middle scenario: the one whose step time is nearest to the unprofiled one, if that is known."""
        return self._scenario_for(self.unprofiled_ns) if self.unprofiled_ns else Scenario()

    def middle_of(self, fixes: Sequence[Fix]) -> Scenario:
        return replace(self.middle, leans=(0,) * len(fixes))

    @property
    def unexplained(self) -> float:
        """How much longer (below 0: shorter) than any cost of tracing explains the unprofiled step is, as a
        share."""
        known = self.unprofiled_ns
        return known / self._replayed((), self.middle) - 1.0 if known else 0.0

    def _scenario_for(self, step_ns: float) -> Scenario:
        """The scenario with this step time: first by the cost of tracing launches, then by the gap of
        nodes."""
        found = Scenario()
        if slows_host(self.taken.inputs):
            found = self._halved(step_ns, lambda x: Scenario(launch=x))
        ends = [self._replayed((), replace(found, node_gap=x)) for x in (0.0, 1.0)]
        if min(ends) < max(ends) and min(ends) <= step_ns <= max(ends):
            launched = found
            found = self._halved(step_ns, lambda x: replace(launched, node_gap=x))
        return found

    def _halved(self, step_ns: float, scenario: Callable[[float], Scenario]) -> Scenario:
        """The scenario, numbered from 0 to 1, whose step time is nearest."""
        low, high = 0.0, 1.0
        rises = self._replayed((), scenario(high)) > self._replayed((), scenario(low))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if (self._replayed((), scenario(middle)) > step_ns) == rises:
                high = middle
            else:
                low = middle
        return scenario((low + high) / 2)

    @cached_property
    def captured_ns(self) -> float:
        """Mean step time of the unchanged replay, which is that of the capture."""
        return self.times.mean(self.taken.inputs)

    def bound_ns(self, fixes: Sequence[Fix], scenario: Scenario) -> float:
        """Mean step time under a scenario if the host took no time at all and nothing waited. It is
        shortened only if the unprofiled step took less than the GPU itself would need."""
        bound = self._bound(fixes, scenario)
        if self.unprofiled_ns is None:
            return min(bound, self.step_ns(fixes, scenario))
        return bound * min(self.unprofiled_ns / self._bound((), replace(scenario, leans=())), 1.0)

    def _bound(self, fixes: Sequence[Fix], scenario: Scenario) -> float:
        key = ("bound", tuple(f.key for f in fixes), scenario)
        if key not in self._known:
            inputs = self.inputs(fixes, scenario)
            least = self._least(fixes, inputs), self._alone(fixes, scenario, host=False)
            self._known[key] = max(self._free_step(inputs), *least)
        return self._known[key]

    def _free_step(self, inputs: Inputs) -> float:
        """Mean step time if calls take no time and nothing waits: once for inputs of the same work."""
        for before, known in self._bounds:
            if inputs.same_work(before):
                return known
        still = np.zeros(len(inputs.calls))
        free = replace(inputs.with_calls(pre=still, own=still), waits=_NO_WAITS)
        step = self.times.mean(free)
        self._bounds.append((inputs, step))
        return step

    @cached_property
    def noise(self) -> float:
        """Relative error of the mean step: that of the captured steps, and what two runs differ by; that of
        most programs if one pass alone is timed."""
        if self.excerpt.alone:
            return constant("lone_noise")
        time = recorded_times(self.a, self.excerpt).astype(float)
        mean, error = self.excerpt.mean(time), error_of_mean(time, self._phase, self.excerpt.weight)
        return math.hypot(error / mean if mean > 0 else 0.0, self._between_runs)

    @cached_property
    def _between_runs(self) -> float:
        """What a step varies by between two runs, relative: the CPU copies what is not pinned."""
        copied = float(self.taken.inputs.ops.duration[self.work.pageable].sum()) / self.work.steps
        return math.hypot(constant("noise"), constant("pageable_spread") * min(copied / self.traced_ns, 1.0))

    @cached_property
    def _phase(self) -> Array:  # of each measured step
        return np.array([self.a.steps.phase[i] for i in self.excerpt.measured.tolist()])

    def _ratio_noise(self, fixes: Sequence[Fix]) -> float:
        """Relative error of a speed-up: steps vary together before and after a fix, so that what is spread
        alike cancels."""
        if self.excerpt.alone:
            return self.noise
        before, after = (self.times.each(self.inputs(f, self.middle_of(f))) for f in ((), fixes))
        if not len(before) == len(after) == len(self._phase):
            return self.noise
        error = error_of_ratio(before, after, self._phase, self.excerpt.weight)
        return math.hypot(error, self._between_runs)

    # ------------------------------------------------------------ estimates

    def untraced_ms(self) -> Span:
        """Step time without the profiler, ms."""
        return self._before_ms(self._befores(self._ends(())))

    def _before_ms(self, befores: Sequence[float]) -> Span:
        """The step without a fix, within what is possible; a measured one is known."""
        step = self.step_ns((), self.middle)
        if self.unprofiled_ns is not None:
            return Span(low=step, mid=step, high=step).in_ms()
        wide = around(step, self.step_ns((), self._unbounded(())), befores, self.noise)
        low, high = max(wide.low, self._possible.gpu_ns), min(wide.high, self.traced_ns)
        return wide.replaced(low=low, high=high).in_ms()

    def _befores(self, ends: Sequence[Scenario]) -> list[float]:
        """Step times under these scenarios without a fix."""
        return [self.step_ns((), replace(s, leans=())) for s in ends]

    def _unbounded(self, fixes: Sequence[Fix]) -> Scenario:
        """The middle scenario without the bound that the profiler's part sets to the middle of a step: ranges
        lie around it, since tracing also hides what the GPU needs from node to node of a graph."""
        middle = self.middle_of(fixes)
        bounded = self.unprofiled_ns is None and self._possible.profiler_ns > 0
        return replace(middle, profiler=0.0) if bounded else middle

    def _ends(self, fixes: Sequence[Fix]) -> list[Scenario]:
        return [s for pair in self._dimensions(fixes) for s in pair]

    def estimate(self, fixes: Sequence[Fix]) -> Estimate:
        """Before, after and speed-up with their ranges. Raises NoEstimate."""
        middle = self.middle_of(fixes)
        ends, before = self._ends(fixes), self.step_ns((), self.middle)
        after, bound = self.step_ns(fixes, middle), self.bound_ns(fixes, middle)
        befores = self._befores(ends)
        afters, bounds = [], []
        for scenario in ends:
            afters.append(self.step_ns(fixes, scenario))
            bounds.append(self.bound_ns(fixes, scenario))
        if min(before, after, bound, *befores, *afters, *bounds) <= 0.0:
            raise NoEstimate("the replayed steps would hold no work")
        throughput = any(is_throughput(fix) for fix in fixes)
        times = work_times(fixes)
        model = constant("model_error")
        noise = self.noise if throughput else self._ratio_noise(fixes)
        unbounded = self._unbounded(fixes)
        free = self.step_ns((), self._unbounded(()))
        free_after, free_bound = self.step_ns(fixes, unbounded), self.bound_ns(fixes, unbounded)

        def ratio(new: float, free_new: float, news: Sequence[float]) -> Span:
            sure = math.hypot(noise, model)
            if throughput:
                # Another load is another run, whose host may be slower as far as it matters.
                sure = math.hypot(sure, min(constant("host_run_spread"), max(math.log(after / bound), 0.0)))
            return around(
                times * before / new,
                times * free / free_new,
                [times * b / x for b, x in zip(befores, news, strict=True)],
                sure if throughput else ratio_noise(before, new, sure),
            )

        speedup, most = ratio(after, free_after, afters), ratio(bound, free_bound, bounds)
        # A fix that only removes time makes nothing slower, however its errors add up.
        slowest = min((b / x for b, x in zip(befores, afters, strict=True)), default=1.0)
        least = min(1.0, speedup.mid, times * slowest)
        high = min(speedup.high, most.high)
        if throughput:
            # More work shortens no step, so the gain is at most the increase of the work.
            others = [fix for fix in fixes if not is_throughput(fix)]
            high = min(high, times * (self.estimate(others).speedup.high if others else 1.0))
        least_ns = around(bound, free_bound, bounds, model)
        after_ns = around(after, free_after, afters, model)
        speedup = Span(low=max(speedup.low, least), mid=speedup.mid, high=max(high, speedup.mid))
        step, after_ns = self._before_ms(befores), after_ns.replaced(low=max(after_ns.low, least_ns.low))
        if least >= 1.0:
            after_ns = after_ns.replaced(high=min(after_ns.high, max(step.high * 1e6, after)))
        return Estimate(
            before=step,
            after=after_ns.in_ms(),
            speedup=speedup,
            bound=least_ns.in_ms(),
            bound_speedup=most,
            measure="throughput" if throughput else "latency",
            traced=self._by_tracing(fixes, speedup),
        )

    def _by_tracing(self, fixes: Sequence[Fix], speedup: Span) -> bool:
        """Whether the range is wide by what tracing changed: launches whose unknown cost may be much of the
        step, or the gaps between graph nodes that a fix shortens."""
        if self.unprofiled_ns is not None or not may_be_half(speedup):
            return False
        if any(fix.what_if == "shorten_node_gaps" for fix in fixes):
            return True
        ends = [replace(self.middle_of(fixes), launch=x) for x in (0.0, 1.0)]
        befores = self._befores(ends)
        least = min(before / self.step_ns(fixes, s) for before, s in zip(befores, ends, strict=True))
        much = share_saved(max(befores) / min(befores)) >= HOLDS_MUCH
        return has_launches(self.taken.inputs) and (much or share_saved(least) < share_saved(speedup.mid) / 2)

    def _dimensions(self, fixes: Sequence[Fix]) -> list[tuple[Scenario, Scenario]]:
        """Scenarios at both ends of each uncertain quantity."""
        inputs, middle = self.taken.inputs, self._unbounded(fixes)
        out = []
        if middle.profiler < 1.0:
            out.append((middle, replace(middle, profiler=1.0)))
        if self.unprofiled_ns is None and slows_host(inputs):
            out.append((replace(middle, launch=0.0), replace(middle, launch=1.0)))
        if inputs.calls.slack.any():
            out.append((replace(middle, waiting=0.0), middle))
        # A step without graphs shows nothing of the gap between the nodes that it would have.
        known = self.unprofiled_ns is not None and not has_launches(inputs)
        graphs = any(f.what_if == "cuda_graphs" for f in fixes)
        if graphs or (has_nodes(inputs) and not known):
            out.append((replace(middle, node_gap=0.0), replace(middle, node_gap=1.0)))
        for i, fix in enumerate(fixes):
            if not catalogue().whatifs[fix.what_if].certain:
                down, up = list(middle.leans), list(middle.leans)
                down[i], up[i] = -1, 1
                out.append((replace(middle, leans=tuple(down)), replace(middle, leans=tuple(up))))
        return out


def is_throughput(fix: Fix) -> bool:
    """The fix puts more work into a step; its gain counts work a second, not the step's time."""
    return catalogue().whatifs[fix.what_if].measure == "throughput"


def work_times(fixes: Sequence[Fix]) -> float:
    """How many times as much work a step does with these fixes."""
    return math.prod((fix.number("n") for fix in fixes if is_throughput(fix)), start=1.0)
