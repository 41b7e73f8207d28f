"""One side of a comparison: one or more captures of the same thing, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from advisor.compare.work import saved_work
from advisor.model.arrays import Array
from advisor.model.comparison import PhaseChange
from advisor.model.facts import LEVELS, Cell, Scope
from advisor.model.findings import Budget, Diagnosis
from advisor.model.gain import Span
from advisor.model.numbers import milliseconds, signed
from advisor.model.parts import BUSY
from advisor.model.work import KernelName, PhaseWork, Work

#: Busy parts of the budget, and idle time within graphs: not the host's.
NOT_HOST = frozenset((*BUSY, "graph_internal", "unified_memory"))


@dataclass
class Kernel:
    """One kernel of a side: means over the steps of its captures."""

    name: KernelName
    calls: float = 0.0
    ms: float = 0.0
    blocks: float = 0.0
    blocks_most: int = 0


def same_steps(one: Diagnosis, other: Diagnosis) -> bool:
    """True for diagnoses of one recording: the same step times to the last digit."""
    if one.work is None or other.work is None:
        return False
    times = [[p.times_ms for p in d.work.phases] for d in (one, other) if d.work is not None]
    return bool(times[0]) and times[0] == times[1]


@dataclass
class Side:
    """The captures of one side. Means over captures weight each capture equally."""

    name: str
    diagnoses: Sequence[Diagnosis]
    works: Sequence[Work] = field(init=False)

    def __post_init__(self) -> None:
        self.works = [saved_work(d) for d in self.diagnoses]

    # ------------------------------------------------------------ phases and steps

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """Phases of any capture, the one that takes most time first."""
        return tuple(sorted(self.shares, key=lambda p: (-self.shares[p], p)))

    @cached_property
    def shares(self) -> dict[str, float]:
        """Share of the step time in each phase, 0..1."""
        total: dict[str, float] = {}
        for work in self.works:
            for phase in work.phases:
                steps = max(phase.steps, 1) / max(len(phase.times_ms), 1)  # of each recorded one
                own = float(np.sum(phase.times_ms)) * steps
                total[phase.phase] = total.get(phase.phase, 0.0) + own
        whole = sum(total.values())
        return {p: t / whole if whole else 0.0 for p, t in total.items()}

    def rows(self, phase: str) -> list[PhaseWork]:
        """This phase in every capture that has it."""
        return [p for w in self.works for p in w.phases if p.phase == phase]

    def runs(self, phase: str) -> list[Array]:
        """Step times of the phase in ms, one array a capture; if a capture has no single step times (no
        steps, opaque graphs), its mean."""
        out = []
        for work in self.works:
            for row in work.phases:
                times = np.array([t for t in row.times_ms if t > 0], float)
                if row.phase != phase or not len(times):
                    continue
                out.append(times.mean(keepdims=True) if work.opaque else times)
        return out

    def times(self, phase: str) -> Array:
        runs = self.runs(phase)
        return np.concatenate(runs) if runs else np.empty(0)

    def untraced_step(self, traced_ms: float) -> Span:
        """Step time without the profiler, ms, over the range of the captures."""
        known = [i for d in self.diagnoses for i in d.inputs if i.step_ms and i.untraced_step_ms]
        factors = [
            [getattr(i.untraced_step_ms, at) / i.step_ms for i in known] or [1.0]
            for at in ("low", "mid", "high")
        ]
        low, mid, high = min(factors[0]), sum(factors[1]) / len(factors[1]), max(factors[2])
        return Span(low=low * traced_ms, mid=mid * traced_ms, high=high * traced_ms)

    def steps(self, phase: str) -> int:
        return sum(r.steps for r in self.rows(phase))

    # ------------------------------------------------------------ kernels

    def kernels(self, phase: str) -> dict[str, Kernel]:
        """Kernels of the phase by full name."""
        found: dict[str, Kernel] = {}
        count = max(len(self.rows(phase)), 1)
        for work in self.works:
            for row in (p for p in work.phases if p.phase == phase):
                for k in row.kernels:
                    name = work.kernels[k.kernel]
                    kernel = found.setdefault(name.name, Kernel(name))
                    kernel.calls += k.calls / count
                    kernel.ms += k.ms / count
                    kernel.blocks += k.blocks * k.calls / count
                    kernel.blocks_most = max(kernel.blocks_most, k.blocks_max)
        for kernel in found.values():
            kernel.blocks /= max(kernel.calls, 1e-9)
        return found

    def mean(self, phase: str, name: str) -> float | None:
        """Mean over the captures of a number of PhaseWork, if it is known."""
        known = [float(v) for r in self.rows(phase) if (v := getattr(r, name)) is not None]
        return sum(known) / len(known) if known else None

    # ------------------------------------------------------------ budget and facts

    def budget(self, phase: str | None = None) -> dict[str, float]:
        """Milliseconds a step (or of the window without steps) by part, mean over devices."""
        total: dict[str, float] = {}
        count = 0
        for diagnosis in self.diagnoses:
            only = len(diagnosis.main_steps) == 1 and diagnosis.main_steps[0].phase == phase
            rows = [b for b in diagnosis.budget if b.phase == (None if only else phase)]
            steps = max(sum(s.count for s in diagnosis.main_steps if phase in (None, s.phase)), 1)
            count += len(rows)
            for budget in rows:
                for part in budget.parts:
                    total[part.part] = total.get(part.part, 0.0) + part.ms / steps
        return {p: ms / count for p, ms in total.items()} if count else {}

    def host_share(self, phase: str | None = None) -> float:
        """Share of the window in which the device waits for the host, mean over devices."""
        rows: list[Budget] = []
        for diagnosis in self.diagnoses:
            own = [b for b in diagnosis.budget if b.phase == phase]
            rows += own or [b for b in diagnosis.budget if b.phase is None]
        shares = [sum(p.share for p in b.parts if p.part not in NOT_HOST) for b in rows]
        return sum(shares) / len(shares) if shares else 0.0

    def fact(self, name: str, scope: Scope) -> tuple[Cell, str]:
        """A fact seen from a scope (the process aside), and its unit: the mean over captures of a number,
        else the value common to all of them."""
        wanted = scope.without_process()
        found: list[Cell] = []
        unit = ""
        for diagnosis in self.diagnoses:
            known = [
                (LEVELS.index(mine.level), f)
                for f in diagnosis.facts
                if f.name == name and (mine := f.scope.without_process()).encloses(wanted)
            ]
            if known:
                best = max(known, key=lambda item: item[0])[1]
                found.append(best.value)
                unit = best.unit
        numbers = [float(v) for v in found if isinstance(v, int | float)]
        if found and len(numbers) == len(found) and not isinstance(found[0], bool):
            return sum(numbers) / len(numbers), unit
        return (found[0] if found and len(set(found)) == 1 else None), unit

    def device_fact(self, name: str) -> float | None:
        """A number known for each device: the mean over devices and captures."""
        values = [
            float(f.value)
            for d in self.diagnoses
            for f in d.facts
            if f.name == name and isinstance(f.value, int | float)
        ]
        return sum(values) / len(values) if values else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Distinct values of a field of the inputs, in order."""
        values = (getattr(i, name) for d in self.diagnoses for i in d.inputs)
        return tuple(dict.fromkeys(str(v) for v in values if v is not None))


def paired(before: Side, after: Side) -> list[tuple[str, str | None, str | None]]:
    """Phases side by side as (label, before, after), most time first; None if a side lacks it.

    A phase that one side could not name is the only phase of the other.
    """
    b, a = before.phases, after.phases
    if len(b) == len(a) == 1 and b != a and "unknown" in (b[0], a[0]):
        return [(a[0] if b[0] == "unknown" else b[0], b[0], a[0])]
    weight = {p: max(before.shares.get(p, 0.0), after.shares.get(p, 0.0)) for p in (*b, *a)}
    return [
        (p, p if p in b else None, p if p in a else None)
        for p in sorted(weight, key=lambda p: (-weight[p], p))
    ]


# --- words and numbers in the sentences of comparisons --------------------------------------------


def ratio(value: float, sign: bool = True) -> str:
    """``-83.7 %``, ``+2.3 %``, ``+513 %``."""
    return f"{signed(value, sign)} %"


def interval(span: Span) -> str:
    """``-86.5 to -79.1 %``"""
    return f"{signed(span.low)} to {ratio(span.high)}"


def phase_words(phase: str) -> str:
    """A step of the phase, in words."""
    known = {"unknown": "step", "window": "window"}
    return known.get(phase, f"{phase} step")


def step_times(phase: PhaseChange) -> str:
    """``from 12.73 to 2.08 ms``"""
    assert phase.before is not None
    assert phase.after is not None
    before, after = (milliseconds(s.median_ms) for s in (phase.before, phase.after))
    return f"from {before} to {after} ms"
