"""Kernels of two sides matched by logical operation, and API calls by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from advisor.compare.sides import Kernel, Phase, Side, paired, shared
from advisor.knowledge.verb_files import limit
from advisor.model.comparison import CallChange, OperationChange, OperationStatus
from advisor.model.findings import Diagnosis
from advisor.model.work import PhaseWork, Sketch

_NAMES = 3
_ROWS = 200
_TEMPLATE = re.compile(r"<.*|\(.*")


class Operation(Struct):
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
    for label, b, a in shared(phases):
        step = max(before.times(b).mean() if len(before.times(b)) else 0.0, 1e-6)
        worth = limit("operation-share") * step
        out += [
            OperationChange(
                operation=x.name,
                family=x.family,
                phase=label,
                status=_status(x, y, worth),
                calls_before=round(x.calls, 3),
                calls_after=round(y.calls, 3),
                before_ms=round(x.ms, 6),
                after_ms=round(y.ms, 6),
                kernels_before=x.names()[:_NAMES],
                kernels_after=y.names()[:_NAMES],
            )
            for x, y in operation_pairs(before.kernels(b).values(), after.kernels(a).values())
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
        steps = [s.diagnoses[0].excerpts[:1] for s in (before, after)]
        both = [e for one in steps for e in one if e.place is None]
        drawn = both[0].beside(both[1], (before.name, after.name)) if len(both) == len(steps) else None
        return Sketch(label, tuple(before.times(b).tolist()), tuple(after.times(a).tolist()), drawn)
    return None
