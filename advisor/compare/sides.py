"""One side of a comparison: one or more captures of the same thing, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from advisor.compare.step_work import saved_work
from advisor.model.arrays import Array
from advisor.model.comparison import PhaseChange
from advisor.model.facts import LEVELS, Cell, Scope
from advisor.model.findings import Budget, Diagnosis
from advisor.model.gain import Span
from advisor.model.numbers import milliseconds, signed
from advisor.model.parts import BUSY
from advisor.model.work import KernelName, PhaseWork, Work

#: A phase of two sides: its label, and its name before and after, None if that side lacks it.
Phase = tuple[str, str | None, str | None]
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
    times = [[p.times_ms for p in d.work.phases] for d in (one, other) if d.work is not None]
    return len(times) == 2 and bool(times[0]) and times[0] == times[1]


@dataclass
class Side:
    """The captures of one side. Means over captures weight each capture equally."""

    name: str
    diagnoses: Sequence[Diagnosis]
    works: Sequence[Work] = field(init=False)

    def __post_init__(self) -> None:
        self.works = [saved_work(d) for d in self.diagnoses]

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
        rows = [(w, p) for w in self.works for p in w.phases if p.phase == phase]
        runs = [(w, np.array([t for t in p.times_ms if t > 0], float)) for w, p in rows]
        return [t.mean(keepdims=True) if w.opaque else t for w, t in runs if len(t)]

    def times(self, phase: str) -> Array:
        runs = self.runs(phase)
        return np.concatenate(runs) if runs else np.empty(0)

    def untraced_step(self, traced_ms: float) -> Span:
        """Step time without the profiler, ms, over the range of the captures."""
        inputs = [i for d in self.diagnoses for i in d.inputs]
        known = [(i.untraced_step_ms, i.step_ms) for i in inputs if i.step_ms and i.untraced_step_ms]
        if not known:
            return Span(low=traced_ms, mid=traced_ms, high=traced_ms)
        low, high = min(u.low / step for u, step in known), max(u.high / step for u, step in known)
        mid = sum(u.mid / step for u, step in known) / len(known)
        return Span(low=low * traced_ms, mid=mid * traced_ms, high=high * traced_ms)

    def steps(self, phase: str) -> int:
        return sum(r.steps for r in self.rows(phase))

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

    def host_share(self, phase: str) -> float:
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
            named = [f for f in diagnosis.facts if f.name == name]
            known = [f for f in named if f.scope.without_process().encloses(wanted)]
            if known:
                best = max(known, key=lambda f: LEVELS.index(f.scope.without_process().level))
                found.append(best.value)
                unit = best.unit
        numbers = [float(v) for v in found if isinstance(v, int | float)]
        if found and len(numbers) == len(found) and not isinstance(found[0], bool):
            return sum(numbers) / len(numbers), unit
        return (found[0] if found and len(set(found)) == 1 else None), unit

    def device_fact(self, name: str) -> float | None:
        """A number known for each device: the mean over devices and captures."""
        facts = [f.value for d in self.diagnoses for f in d.facts if f.name == name]
        values = [float(v) for v in facts if isinstance(v, int | float)]
        return sum(values) / len(values) if values else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Distinct values of a field of the inputs, in order."""
        values = (getattr(i, name) for d in self.diagnoses for i in d.inputs)
        return tuple(dict.fromkeys(str(v) for v in values if v is not None))


def paired(before: Side, after: Side) -> list[Phase]:
    """The phases, most time first. One that a side could not name is the only phase of the other."""
    b, a = before.phases, after.phases
    if len(b) == len(a) == 1 and b != a and "unknown" in (b[0], a[0]):
        return [(a[0] if b[0] == "unknown" else b[0], b[0], a[0])]
    weight = {p: max(before.shares.get(p, 0.0), after.shares.get(p, 0.0)) for p in (*b, *a)}
    order = sorted(weight, key=lambda p: (-weight[p], p))
    return [(p, p if p in b else None, p if p in a else None) for p in order]


def shared(phases: Sequence[Phase]) -> list[tuple[str, str, str]]:
    """The phases that both sides have."""
    return [(label, b, a) for label, b, a in phases if b is not None and a is not None]


# --- words and numbers in the sentences of comparisons --------------------------------------------


def ratio(value: float, sign: bool = True) -> str:
    """``-83.7 %``, ``+2.3 %``, ``+513 %``."""
    return f"{signed(value, sign)} %"


def interval(span: Span) -> str:
    """``-86.5 to -79.1 %``"""
    return f"{signed(span.low)} to {ratio(span.high)}"


def phase_words(phase: str) -> str:
    """A step of the phase, in words."""
    return {"unknown": "step", "window": "window"}.get(phase, f"{phase} step")


def step_times(phase: PhaseChange) -> str:
    """``from 12.73 to 2.08 ms``"""
    assert phase.before is not None
    assert phase.after is not None
    before, after = (milliseconds(s.median_ms) for s in (phase.before, phase.after))
    return f"from {before} to {after} ms"
