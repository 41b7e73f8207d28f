"""Which steps a fault is in, said behind the message of a finding: where steps of one name (a batch size)
hold nearly all of the idle time or copies that it is about, or of the time that its fix takes off kernels,
and others hold hardly any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from advisor.facts import limits
from advisor.metrics.budgeted.budget import BUSY_PARTS, PARTS, DeviceBudget
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.stepped.enclosed import step_texts
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array
from advisor.model.findings import Finding
from advisor.model.numbers import percent
from advisor.sources.schema import MISSING

#: Idle parts that belong to the step whose work ends them; others to the step whose range they lie in.
_OF_WORK = frozenset(
    (
        "launch_call",
        "launch_latency",
        "graph_launch_call",
        "host_between_launches",
        "queued",
        "graph_internal",
        "unified_memory",
    )
)
#: Parts that hold more than what such a finding is about, and those of the recording.
_NOT = frozenset(("compute", "communication", "profiler", "startup", "unknown"))
#: Steps and what (ns) the fix of a finding takes off their kernels.
Removed = Callable[[Finding], tuple[Array, Array] | None]


def with_steps(a: Budgeted, findings: Sequence[Finding], removed: Removed) -> tuple[Finding, ...]:
    """The findings, those above info with the steps that hold them."""
    steps = a.window_steps
    texts = step_texts(a.ranges, a.steps, steps)
    if not texts:
        return tuple(findings)
    names, of = np.unique(np.array(texts), return_inverse=True)
    out = []
    for finding in findings:
        found = None
        if finding.severity != "info" and finding.scope.phase is None:
            found = _held(a, finding, of, len(names), removed)
        if found is not None and str(names[found[0]]) not in finding.message:
            where = f" {percent(found[1])} of it lies in steps {names[found[0]]}."
            finding = finding.replaced(message=finding.message + where)
        out.append(finding)
    return tuple(out)


def _held(a: Budgeted, finding: Finding, of: Array, count: int, removed: Removed) -> tuple[int, float] | None:
    """The name (a position) that holds nearly all of the finding's time in the window, and the share."""
    device = finding.scope.device if finding.scope.device is not None else a.main_device
    budget = a.budgets.get(device)
    if budget is None or finding.impact is None:
        return None
    parts = {finding.impact.part, *(finding.impact.parts or ())}
    if finding.impact.part == "compute":
        time = _off_kernels(a, finding, removed)
    elif parts & _NOT or not parts <= set(PARTS):
        return None
    else:
        time = sum((_by_step(a, budget, part) for part in parts), np.zeros(len(of)))
    if time is None or not time.any():
        return None
    held, steps = np.bincount(of, time, count), np.bincount(of, minlength=count)
    most = int(held.argmax())
    share = float(held[most] / max(held.sum(), 1.0))
    few = 2 * steps[most] <= len(of) and steps[most] >= limits.NAMED_STEPS
    return (most, share) if few and share >= limits.ALL_IN_STEPS_RATIO else None


def _off_kernels(a: Stepped, finding: Finding, removed: Removed) -> Array | None:
    """Time (ns) that the fix takes off the kernels of each step of the window; None without an estimate."""
    found = removed(finding)
    if found is None:
        return None
    steps, (step, time) = a.window_steps, found
    place = np.minimum(np.searchsorted(steps, step), len(steps) - 1)
    return np.bincount(place, np.where(steps[place] == step, time, 0.0), len(steps))


def _by_step(a: Stepped, budget: DeviceBudget, part: str) -> Array:
    """Time (ns) of a part of the budget in each step of the window."""
    steps = a.window_steps
    if part in BUSY_PARTS or part not in budget.gap_parts:
        return np.asarray(budget.by_step[steps, PARTS.index(part)], float)
    idle, gaps = budget.gap_parts[part], budget.gaps
    middle = (gaps.start + gaps.end) // 2
    at = np.maximum(np.searchsorted(a.steps.host_start[steps], middle, "right") - 1, 0)
    if part in _OF_WORK:
        of_op = np.append(a.steps.op_step[a.ops.device == budget.device], MISSING)[gaps.next_op]
        place = np.minimum(np.searchsorted(steps, of_op), len(steps) - 1)
        at = np.where(steps[place] == of_op, place, at)
    return np.bincount(at, idle, len(steps))
