"""The sides of a comparison, each one or more captures of the same thing, and their kernels matched by
logical operation, API calls by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from advisor.comparison.step_work import saved_work
from advisor.knowledge.verb_files import limit
from advisor.model.arrays import Array
from advisor.model.comparison import CallChange, OperationChange, OperationStatus, PhaseChange
from advisor.model.facts import LEVELS, Cell, Scope
from advisor.model.findings import Budget, Diagnosis
from advisor.model.gain import Span
from advisor.model.numbers import milliseconds, signed
from advisor.model.parts import BUSY
from advisor.model.work import KernelName, PhaseWork, Sketch, Work

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


def same_steps(one: Diagnosis, other: Diagnosis) -> bool:
    """True for diagnoses of one recording: the same step times to the last digit."""
    times = [[p.times_ms for p in d.work.phases] for d in (one, other) if d.work is not None]
    return len(times) == 2 and any(times[0]) and times[0] == times[1]


@dataclass
class Side:
    """The captures of one side. Means over captures weight each capture equally."""

    name: str
    diagnoses: Sequence[Diagnosis]

    @cached_property
    def works(self) -> list[Work]:
        return [saved_work(d) for d in self.diagnoses]

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

    def rows(self, phase: str) -> list[tuple[Work, PhaseWork]]:
        """This phase in every capture that has it."""
        return [(w, p) for w in self.works for p in w.phases if p.phase == phase]

    def runs(self, phase: str) -> list[Array]:
        """Step times of the phase in ms, one array a capture; if a capture has no single step times (no
        steps, opaque graphs), its mean."""
        runs = [(w, np.array([t for t in p.times_ms if t > 0], float)) for w, p in self.rows(phase)]
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
        return sum(p.steps for _, p in self.rows(phase))

    def kernels(self, phase: str) -> dict[str, Kernel]:
        """Kernels of the phase by full name."""
        found: dict[str, Kernel] = {}
        rows = self.rows(phase)
        for name, k in ((w.kernels[k.kernel], k) for w, p in rows for k in p.kernels):
            kernel = found.setdefault(name.name, Kernel(name))
            kernel.calls += k.calls / len(rows)
            kernel.ms += k.ms / len(rows)
            kernel.blocks += k.blocks * k.calls / len(rows)
        for kernel in found.values():
            kernel.blocks /= max(kernel.calls, 1e-9)
        return found

    def mean(self, phase: str, name: str) -> float | None:
        """Mean over the captures of a number of PhaseWork, if it is known."""
        known = [float(v) for _, p in self.rows(phase) if (v := getattr(p, name)) is not None]
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
    old, new = before.phases, after.phases
    if len(old) == len(new) == 1 and old != new and "unknown" in (old[0], new[0]):
        return [(new[0] if old[0] == "unknown" else old[0], old[0], new[0])]
    weight = {p: max(before.shares.get(p, 0.0), after.shares.get(p, 0.0)) for p in (*old, *new)}
    order = sorted(weight, key=lambda p: (-weight[p], p))
    return [(p, p if p in old else None, p if p in new else None) for p in order]


def shared(phases: Sequence[Phase]) -> list[tuple[str, str, str]]:
    """The phases that both sides have."""
    return [(label, b, a) for label, b, a in phases if b is not None and a is not None]


# --- kernels and calls of two sides, matched -------------------------------------------------------

_NAMES = 3
_ROWS = 200
_TEMPLATE = re.compile(r"<.*|\(.*")


@dataclass
class Operation:
    """All kernels that carry out one logical operation."""

    name: str
    family: str
    calls: float = 0.0
    ms: float = 0.0
    kernels: list[Kernel] = field(default_factory=list)

    def names(self) -> tuple[str, ...]:
        """Full names of its kernels, largest first."""
        return tuple(k.name.name for k in sorted(self.kernels, key=lambda k: -k.ms))


def by_operation(kernels: Iterable[Kernel]) -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for kernel in kernels:
        name = kernel.name
        one = found.setdefault(name.operation, Operation(name.operation, name.family))
        one.calls += kernel.calls
        one.ms += kernel.ms
        one.kernels.append(kernel)
    return found


def operation_pairs(
    before: Iterable[Kernel], after: Iterable[Kernel]
) -> Iterator[tuple[Operation, Operation]]:
    """Every operation, in order of name, on both sides; without kernels on a side that lacks it."""
    old, new = by_operation(before), by_operation(after)
    for name in sorted(old.keys() | new.keys()):
        lacking = Operation(name, (old.get(name) or new[name]).family)
        yield old.get(name, lacking), new.get(name, lacking)


def operation_changes(before: Side, after: Side, phases: Sequence[Phase]) -> tuple[OperationChange, ...]:
    """Every operation of the phases that both sides have, the largest change first."""
    out = []
    for label, old_phase, new_phase in shared(phases):
        step = max(before.times(old_phase).mean() if len(before.times(old_phase)) else 0.0, 1e-6)
        worth = limit("operation-share") * step
        out += [
            OperationChange(
                operation=old.name,
                family=old.family,
                phase=label,
                status=_status(old, new, worth),
                calls_before=round(old.calls, 3),
                calls_after=round(new.calls, 3),
                before_ms=round(old.ms, 6),
                after_ms=round(new.ms, 6),
                kernels_before=old.names()[:_NAMES],
                kernels_after=new.names()[:_NAMES],
            )
            for old, new in operation_pairs(
                before.kernels(old_phase).values(), after.kernels(new_phase).values()
            )
        ]
    return tuple(sorted(out, key=lambda o: (-abs(o.change_ms), o.phase, o.operation))[:_ROWS])


def _status(before: Operation, after: Operation, worth: float) -> OperationStatus:
    if before.calls == 0:
        return "added"
    if after.calls == 0:
        return "gone"
    change = after.ms - before.ms
    if abs(change) < worth:
        alike = {_plain(n) for n in before.names()} & {_plain(n) for n in after.names()}
        return "same" if alike else "other kernels"
    calls = after.calls / before.calls
    each = (after.ms / after.calls) / (before.ms / before.calls) if before.ms else 1.0
    if abs(calls - 1) >= limit("call-count") and abs(calls - 1) >= abs(each - 1):
        return "more calls" if calls > 1 else "fewer calls"
    if abs(each - 1) >= limit("call-time") or abs(change) >= worth:
        return "slower" if change > 0 else "faster"
    return "same"


def _plain(name: str) -> str:
    return _TEMPLATE.sub("", name.removeprefix("void "))


def call_changes(before: Side, after: Side) -> tuple[CallChange, ...]:
    """CUDA API calls a step on both sides, most time first."""
    old, new = _calls(before), _calls(after)
    rows = []
    for name in sorted(old.keys() | new.keys()):
        (b, b_ms), (a, a_ms) = old.get(name, (0.0, 0.0)), new.get(name, (0.0, 0.0))
        calls = {"calls_before": round(b, 3), "calls_after": round(a, 3)}
        rows.append(CallChange(call=name, before_ms=round(b_ms, 6), after_ms=round(a_ms, 6), **calls))
    return tuple(sorted(rows, key=lambda c: (-max(c.before_ms, c.after_ms), c.call)))


def _calls(side: Side) -> dict[str, tuple[float, float]]:
    """Calls and milliseconds a step by name, means over the captures."""
    total: dict[str, tuple[float, float]] = {}
    for diagnosis in side.diagnoses:
        if (table := diagnosis.tables.get("api")) is None:
            continue
        steps = max(diagnosis.inputs[0].steps or 0, 1)
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=False))
            count, ms = (float(cells.get(c) or 0) / steps for c in ("count", "total:ms"))
            counted, spent = total.get(str(row[0]), (0.0, 0.0))
            total[str(row[0])] = counted + count, spent + ms
    share = max(len(side.diagnoses), 1)
    return {name: (count / share, ms / share) for name, (count, ms) in total.items()}


# --- steps of one side that hold several of the other, counted alike ------------------------------


def in_equal_steps(before: Side, after: Side) -> tuple[Side, Side, tuple[str, ...]]:
    """Both sides, the one with longer steps divided, and a note about it."""
    for _, b, a in shared(paired(before, after)):
        for one, other, mine, theirs in ((before, after, b, a), (after, before, a, b)):
            k = _multiple(one, other, mine, theirs)
            if k > 1:
                note = f"One step {one.name} is {k} steps {other.name}: its times count by {k}."
                divided = Side(one.name, [_divided(d, k) for d in one.diagnoses])
                return (divided, other, (note,)) if one is before else (other, divided, (note,))
    return before, after, ()


def _multiple(one: Side, other: Side, mine: str, theirs: str) -> int:
    """How many steps of `other` a step of `one` holds; 1 if the ratio is not whole."""
    long, short = one.kernels(mine), other.kernels(theirs)
    common = [name for name in long if name in short and short[name].calls > 0]
    once = [name for name in common if short[name].calls <= limit("once-a-step")]
    if len(once) in (0, len(common)):
        return 1
    ratios = {name: long[name].calls / short[name].calls for name in common}
    k = round(ratios[max(once, key=lambda name: short[name].ms)])
    if not 1 < k <= limit("steps-in-one"):
        return 1
    whole = sum(kernel.ms for kernel in long.values())
    alike = sum(long[n].ms for n in common if abs(ratios[n] / k - 1) <= limit("whole-multiple"))
    return k if alike >= limit("same-multiple") * whole else 1


def _divided(d: Diagnosis, k: int) -> Diagnosis:
    """A diagnosis whose steps are counted as k each."""
    times = ("median_ms", "mean_ms", "p99_ms")
    steps = (s.replaced(count=s.count * k, **{n: getattr(s, n) / k for n in times}) for s in d.steps)
    work = d.work and d.work.replaced(phases=tuple(_phase(p, k) for p in d.work.phases))
    return d.replaced(steps=tuple(steps), work=work)


def _phase(p: PhaseWork, k: int) -> PhaseWork:
    return p.replaced(
        steps=p.steps * k,
        times_ms=tuple(t / k for t in p.times_ms),
        layers=p.layers // k if p.layers and p.layers % k == 0 else p.layers,
        kernels=tuple(x.replaced(calls=x.calls / k, ms=x.ms / k) for x in p.kernels),
        **{name: getattr(p, name) / k for name in ("kernel_calls", "kernel_ms", "attention", "matmul")},
    )


def sketch(before: Side, after: Side) -> Sketch | None:
    """None without a phase that both sides have."""
    before, after, _ = in_equal_steps(before, after)
    for label, b, a in shared(paired(before, after))[:1]:
        steps = [(s.diagnoses[0].excerpts or ())[:1] for s in (before, after)]
        both = [e for one in steps for e in one if e.place is None]
        drawn = both[0].beside(both[1], (before.name, after.name)) if len(both) == len(steps) else None
        return Sketch(label, tuple(before.times(b).tolist()), tuple(after.times(a).tolist()), drawn)
    return None


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
