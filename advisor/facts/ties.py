"""Facts about what ties host and device together: waits before host gaps, and the steps that hold them."""

from __future__ import annotations

import numpy as np

from advisor.facts import limits
from advisor.facts.writer import FactWriter
from advisor.metrics.budgeted.budget import DeviceBudget
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.ties import (
    HELD_COPY,
    NONE,
    RESULT,
    UPLOAD,
    Ties,
    find_ties,
    held_copies,
    typical_copy,
)
from advisor.metrics.stepped.enclosed import step_texts
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, median_of
from advisor.model.numbers import value_text
from advisor.sources.schema import MISSING, base_name


def tie_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    budget = a.budgets[device]
    if a.feeder(device) is None:
        return
    ties, whole = find_ties(a, budget), budget.ns["host_gap"]
    needless = (ties.kind == UPLOAD) | (ties.kind == HELD_COPY)
    held = int(ties.idle[needless].sum())
    out.put("sync.tie_ratio", held / budget.program_ns)
    if (implicit := out.value("sync.implicit_idle_ratio")) is not None:
        out.put("sync.implicit_cost_ratio", implicit + held / budget.program_ns)
    _held_copies(a, device, out)
    if whole:
        out.put("sync.tie_of_gap_ratio", held / whole)
        _gap_steps(a, budget, ties, out)
    if held > 0 and needless.any():
        out.put("sync.tie", _what(a, ties, needless))
        out.put("sync.tie_ms", median_of(ties.idle[needless]) / 1e6)
    kinds = np.bincount(ties.kind, ties.idle, NONE + 1)[:NONE]
    if whole > 0 and 2 * kinds.max() > whole:
        mine = ties.kind == int(kinds.argmax())
        out.put("host.gap_tie", _what(a, ties, mine))
        out.put("host.gap_tie_ratio", kinds.max() / whole)


def _what(a: Stepped, ties: Ties, mine: Array) -> str:
    """What most of these waits are for."""
    kind = int(np.bincount(ties.kind[mine], ties.idle[mine], 1).argmax())
    mine = mine & (ties.kind == kind)
    if kind in (UPLOAD, HELD_COPY, RESULT):
        copies = ties.copy[mine & (ties.copy != MISSING)]
        if not len(copies):
            return "a copy"
        size, pageable = typical_copy(a, copies)
        memory = "pageable" if pageable else "pinned"
        amount = value_text(float(size), "bytes")
        return {
            UPLOAD: f"an upload of {amount} from {memory} memory",
            HELD_COPY: f"an asynchronous copy of {amount} that returns only when it has run",
            RESULT: f"a copy of {amount} to the host",
        }[kind]
    names = a.trace.columns("api_calls", ("name_id",))["name_id"][ties.wait[mine]]
    values, count = np.unique(names, return_counts=True)
    return f"all work before it ({base_name(a.trace.texts([values[count.argmax()]])[0])})"


def _held_copies(a: Budgeted, device: int, out: FactWriter) -> None:
    """Host time in asynchronous copies of pinned memory that wait."""
    rows = held_copies(a, device)
    start, end = a.trace.columns("api_calls", ("start", "end")).values()
    first, last = a.host_window
    rows = rows[(start[rows] >= first) & (start[rows] < last)]
    out.put("sync.held_copy_time_ratio", int((end[rows] - start[rows]).sum()) / max(last - first, 1))
    out |= a.rates(device, {"sync.held_copies": len(rows)})


def _gap_steps(a: Stepped, budget: DeviceBudget, ties: Ties, out: FactWriter) -> None:
    """The steps of one name that hold nearly all of the host gaps, if others hold hardly any: a gap belongs
    to the step in whose range most of it lies, or else to the one before."""
    steps = a.window_steps
    texts = step_texts(a.ranges, a.steps, steps)
    if not len(steps) or not texts:
        return
    middle = (budget.gaps.start[ties.gap] + budget.gaps.end[ties.gap]) // 2
    at = np.searchsorted(a.steps.host_start[steps], middle, "right") - 1
    idle = np.bincount(np.maximum(at, 0), ties.idle, len(steps))
    names, of = np.unique(np.array(texts), return_inverse=True)
    held, count = np.bincount(of, idle), np.bincount(of)
    most = int(held.argmax())
    if (
        held[most] >= limits.ALL_IN_STEPS_RATIO * max(float(idle.sum()), 1.0)
        and 2 * count[most] <= len(steps)
        and count[most] >= limits.NAMED_STEPS
    ):
        out.put("host.gap_step", str(names[most]))
        out.put("host.gap_step_ratio", held[most] / idle.sum())
