"""Kernels of two sides matched by logical operation, and API calls by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from advisor.compare.sides import Kernel, Side
from advisor.knowledge.compare import limit
from advisor.model.comparison import CallChange, OperationChange, OperationStatus

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


def operation_changes(
    before: Side, after: Side, phases: list[tuple[str, str | None, str | None]]
) -> tuple[OperationChange, ...]:
    """Every operation of the phases that both sides have, largest change first."""
    out = []
    for label, b, a in phases:
        if b is None or a is None:
            continue
        old, new = by_operation(before.kernels(b).values()), by_operation(after.kernels(a).values())
        step = max(before.times(b).mean() if len(before.times(b)) else 0.0, 1e-6)
        worth = limit("operation-share") * step
        for name in sorted(old.keys() | new.keys()):
            x, y = old.get(name), new.get(name)
            family = (x or y).family  # type: ignore[union-attr]
            x, y = x or Operation(name, family), y or Operation(name, family)
            out.append(
                OperationChange(
                    operation=name,
                    family=family,
                    phase=label,
                    status=_status(x, y, worth),
                    calls_before=round(x.calls, 3),
                    calls_after=round(y.calls, 3),
                    before_ms=round(x.ms, 6),
                    after_ms=round(y.ms, 6),
                    kernels_before=x.names()[:_NAMES],
                    kernels_after=y.names()[:_NAMES],
                )
            )
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
    rows = [
        CallChange(
            call=name,
            calls_before=round(old.get(name, (0.0, 0.0))[0], 3),
            calls_after=round(new.get(name, (0.0, 0.0))[0], 3),
            before_ms=round(old.get(name, (0.0, 0.0))[1], 6),
            after_ms=round(new.get(name, (0.0, 0.0))[1], 6),
        )
        for name in sorted(old.keys() | new.keys())
    ]
    return tuple(sorted(rows, key=lambda c: (-max(c.before_ms, c.after_ms), c.call)))


def _calls(side: Side) -> dict[str, tuple[float, float]]:
    """Calls and milliseconds a step by name, means over the captures."""
    total: dict[str, tuple[float, float]] = {}
    for diagnosis in side.diagnoses:
        table = diagnosis.tables.get("api")
        steps = max(diagnosis.inputs[0].steps or 0, 1)
        for row in table.rows if table is not None else ():
            cells = dict(zip(table.columns, row, strict=False)) if table is not None else {}
            count, ms = total.get(str(row[0]), (0.0, 0.0))
            total[str(row[0])] = (
                count + float(cells.get("count") or 0) / steps,
                ms + float(cells.get("total:ms") or 0) / steps,
            )
    share = max(len(side.diagnoses), 1)
    return {name: (count / share, ms / share) for name, (count, ms) in total.items()}
