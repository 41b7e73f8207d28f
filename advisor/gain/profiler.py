"""What the profiler did to the timeline, taken out as far as physics goes (design section 4).

* A graph launch whose nodes were traced by software costs `UNTRACED_GRAPH_LAUNCH_NS` at most; beyond that the
  call was the profiler's. Sure, so always taken out.
* Between two nodes of a graph run passes what node tracing shows, or up to what NVIDIA published
  for untraced graphs: a range. The PyTorch profiler makes these gaps longer: there it begins with the
  least that node tracing shows.
* Kernels of graph runs keep their captured times, unless the capture proves that node tracing made
  them longer: the same kernels, launched one by one, took much less. Sure, too.
* An eager launch was traced at a cost of 0 to 16 us, which nothing in the capture reveals, most often
  4, but a launch cannot have cost less without tracing than launches cost: a range, too. Each operator
  of a framework that was recorded cost up to 3.4 us more, up to 5.8 with the sizes of its operands, and
  each timed Python call up to 1.6.
* Launch calls that take longer than on a host that is not slow show that tracing slowed the host: its code
  between the launches of a step is then as much shorter, in the middle of the range and at its low end,
  but no shorter than launches cost without tracing.
* While it writes down what it has collected, and the device ran out of work, the program stands still:
  sure, and left out when the timeline is read (`excerpt.left_out`).
* Between two marks of steps PyTorch's profiler is at work (`step()`): sure, so always taken out. Ending the
  one mark and beginning the next, inside the ranges, costs up to twice as long again: a range.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from advisor.gain import limits
from advisor.gain.inputs import Inputs
from advisor.gain.whatifs import constant
from advisor.metrics import limits as metric_limits
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.recording import Recording
from advisor.model.arrays import Array, among, marked, median_of
from advisor.sources.schema import Call

#: Calls whose tracing costs as much as that of a launch.
TRACED = (Call.LAUNCH, Call.COPY, Call.MEMSET, Call.ALLOC, Call.FREE)


class Scenario(Struct, frozen=True):
    """Where in its range each uncertain quantity is assumed to be, 0..1.

    `launch`: share of the maximal cost of tracing an eager launch that is taken out; `node_gap`: from the
    captured gap between graph nodes (0) to the published one (1); `leans`: one for each fix, -1
    pessimistic, 0 as described, 1 optimistic. `profiler`: share of the time in which the device waited for
    the profiler that is taken out of the step: all, but in the range nothing, as the program may have had
    work of its own meanwhile. `waiting`: share of the host time without a call that counts as a wait for the
    GPU (`slack`): all, but in the range nothing, as nothing records a wait."""

    launch: float = 0.5
    node_gap: float = 0.5
    leans: tuple[int, ...] = ()
    profiler: float = 1.0
    waiting: float = 1.0

    def pace(self, pace: float) -> float:
        """The `tracing_pace` in this scenario: from the middle of the launches' range on all of it."""
        return float(pace ** min(2 * self.launch, 1.0))

    def lean(self, i: int) -> int:
        return self.leans[i] if i < len(self.leans) else 0


def corrected(
    inputs: Inputs, scenario: Scenario, by_software: bool = True, wider_gaps: bool = False, pace: float = 1.0
) -> Inputs:
    """The inputs of an untraced run under a scenario; tracing by hardware leaves graphs unchanged.
    `wider_gaps`: the recorder makes the gaps between graph nodes longer. `pace`: of `tracing_pace`."""
    if by_software:
        least = constant("graph_node_gap_traced") if wider_gaps else math.inf
        inputs = _node_gaps(_graph_launches(inputs), scenario.node_gap, least)
    traced = _traced_calls(_marks(_slack(inputs, scenario.waiting)), scenario.launch)
    return _at_pace(traced, scenario.pace(pace))


def tracing_pace(a: Loaded, inputs: Inputs) -> float:
    """What host time beside eager launches takes untraced, over what tracing leaves of it, 0..1: below 1
    where launch calls take clearly longer than on a host that is not slow. The PyTorch profiler's take longer
    than those of nsys anywhere."""
    calls = inputs.calls
    own = calls.own[(calls.kind == Call.LAUNCH) & (calls.own <= limits.BLOCKED_NS)]
    if len(own) < limits.TYPICAL_LAUNCHES:
        return 1.0
    by_nsys = a.trace.capture.recorder.nsys_options
    usual = constant("healthy_launch" if by_nsys else "healthy_launch_torch")
    pace = limits.CLEARLY_SLOW * usual / max(median_of(own), 1.0)
    return min(max(pace, limits.LEAST_PACE), 1.0)


def node_inflation(a: Recording) -> float:
    """How many times as long kernels took in node-traced graph runs as when launched one by one in the same
    shape; 1 unless the capture proves it: they must be most of the graphs' work, beyond what clocks and
    caches do. Another GPU has its own clocks, another process other data."""
    own = (a.ops.device == a.main_device) & (a.ops.process == a.main_process) & (a.ops.length > 0)
    kernel = np.flatnonzero(own & (a.ops.kind == Kind.KERNEL))
    node = a.ops.graph_node[kernel] != 0
    if not node.any() or node.all():
        return 1.0
    columns = a.trace.columns("kernels", ("blocks", "threads"))
    row = a.ops.row[kernel]
    shape = (columns["blocks"][row].astype(np.int64) << 11) | columns["threads"][row]  # at most 2^31 and 2^10
    group = dense((a.op_name[kernel].astype(np.int64) << 42) | shape)[1]
    time = a.ops.length[kernel].astype(float)
    both = np.flatnonzero(
        (np.bincount(group, node) >= limits.PROVING_RUNS) & (np.bincount(group, ~node) >= limits.PROVING_RUNS)
    )
    inside = outside = 0.0
    for one in both.tolist():
        mine = group == one
        usual = median_of(time[mine & node]) / median_of(time[mine & ~node])
        # A kernel that takes twice as long works on more: a draft and its target share kernels and grids.
        if usual <= 1 + constant("inflation_most"):
            traced = float(time[mine & node].sum())
            inside += traced
            outside += traced / usual
    if inside < 0.5 * float(time[node].sum()) or inside < outside * (1 + constant("inflation")):
        return 1.0
    return inside / outside


def without_inflation(a: Loaded, inputs: Inputs, inflation: float) -> Inputs:
    """The inputs with the kernels of graph runs as short as outside of them."""
    if inflation <= 1.0:
        return inputs
    at = inputs.ops.at
    mine = (a.ops.graph_node[at] != 0) & (a.ops.kind[at] == Kind.KERNEL)
    duration = inputs.ops.duration
    return inputs.with_ops(duration=np.where(mine, duration / inflation, duration))


def has_nodes(inputs: Inputs) -> bool:
    """Graph runs were traced node by node."""
    return bool(inputs.ops.node.any())


def has_launches(inputs: Inputs) -> bool:
    """Work was launched call by call."""
    return bool((inputs.calls.kind == Call.LAUNCH).any())


def slows_host(inputs: Inputs) -> bool:
    """Tracing took an unknown time of the host: of launches, or of recording operators and marking steps."""
    return has_launches(inputs) or bool(inputs.calls.recorded.any())


def _graph_launches(inputs: Inputs) -> Inputs:
    """Launches of graphs whose nodes were traced take no longer than untraced ones."""
    calls, ops = inputs.calls, inputs.ops
    traced = marked(len(calls), ops.call[ops.node])
    traced &= calls.kind == Call.GRAPH_LAUNCH
    if not traced.any():
        return inputs
    own = np.where(traced, np.minimum(calls.own, metric_limits.host.UNTRACED_GRAPH_LAUNCH_NS), calls.own)
    return inputs.with_calls(own=own)


def usual_node_gaps(inputs: Inputs) -> Array:
    """Graph nodes that follow the one before as soon as the device can. Nodes that overlap run in
    branches of the graph and have no gap to change."""
    gap = inputs.ops.gap
    return np.asarray(inputs.ops.node & (gap >= 0) & (gap < limits.NODE_GAP_NS))


def _node_gaps(inputs: Inputs, share: float, least: float) -> Inputs:
    """Moves the mean gap of nodes by `share` from the captured one, at most `least`, to the published one."""
    ops = inputs.ops
    usual = usual_node_gaps(inputs)
    if not usual.any():
        return inputs
    captured = float(ops.gap[usual].mean())
    least = min(captured, least)
    change = least + share * (constant("graph_node_gap") - least) - captured
    return inputs.with_ops(gap=np.where(usual, ops.gap + change, ops.gap) if change else ops.gap)


def _slack(inputs: Inputs, share: float) -> Inputs:
    """The inputs in which only this share of the `slack` is a wait, and the rest is work of the host."""
    calls = inputs.calls
    if share == 1.0 or not calls.slack.any():
        return inputs
    return inputs.with_calls(pre=calls.pre + (1.0 - share) * calls.slack)


def _marks(inputs: Inputs) -> Inputs:
    """The inputs without the time between two marks of steps."""
    calls = inputs.calls
    if not calls.marking.any():
        return inputs
    return inputs.with_calls(pre=np.maximum(calls.pre - calls.marking, 0.0))


def _traced_calls(inputs: Inputs, share: float) -> Inputs:
    """Takes the cost of tracing calls and recording operators out of the host time before every call, and of
    a traced call before it: `share` of the maximum, squared for a call, as half way is what most captures
    show. At least the cost of a launch remains from a traced call to the next one."""
    calls = inputs.calls
    if not len(calls) or share == 0.0:
        return inputs
    launch = np.where(among(calls.kind, TRACED), constant("launch_trace_cost") * share**2, 0.0)
    return _shortened(inputs, share * calls.recorded, launch, evenly=False)


def _at_pace(inputs: Inputs, pace: float) -> Inputs:
    """The inputs with the traced calls inside steps, and the host code before them, at this pace; what
    garbage collection, the GIL and the operating system take stays, and so does the cost of a launch from a
    traced call to the next one."""
    calls = inputs.calls
    if not len(calls) or pace >= 1.0:
        return inputs
    mine = among(calls.kind, TRACED) & ~calls.between
    code = np.maximum(calls.pre - calls.explained, 0.0)
    before, inside = np.where(mine, (1.0 - pace) * code, 0.0), np.where(mine, (1.0 - pace) * calls.own, 0.0)
    return _shortened(inputs, before, inside, evenly=True)


def _shortened(inputs: Inputs, before: Array, inside: Array, evenly: bool) -> Inputs:
    """The inputs without so much of the host time `before` each call, and from its begin on (`inside`). At
    least the cost of a launch remains from a traced call to the next one of its thread. `evenly`: each loses
    its own; otherwise the code before a call loses all of it first, then the call before that."""
    calls = inputs.calls
    traced = among(calls.kind, TRACED)
    following = _next_of_thread(calls.thread)
    has = following >= 0
    # By the call that ends each slot; the last call of a thread ends its own.
    own, least, within = np.zeros(len(calls)), np.zeros(len(calls)), np.zeros(len(calls))
    own[following[has]] = np.where(traced, calls.own, 0.0)[has]
    least[following[has]] = np.where(traced, constant("launch_floor"), 0.0)[has]
    within[following[has]] = inside[has]
    wanted = before + within
    cost = np.minimum(wanted, np.maximum(own + calls.pre - least, 0.0))
    if evenly:
        outside = before * np.divide(cost, wanted, out=np.zeros(len(calls)), where=wanted > 0)
    else:
        outside = np.minimum(cost, calls.pre)
    left = np.where(~has & traced, np.clip(calls.own - constant("launch_floor"), 0.0, inside), 0.0)
    left[has] = (cost - outside)[following[has]]
    return inputs.with_calls(pre=calls.pre - outside, own=np.maximum(calls.own - left, 0.0))


def _next_of_thread(thread: Array) -> Array:
    """Position of the same thread's next call, -1 after its last."""
    out = np.full(len(thread), -1)
    order = np.argsort(thread, kind="stable")
    same = thread[order][1:] == thread[order][:-1]
    out[order[:-1][same]] = order[1:][same]
    return out
