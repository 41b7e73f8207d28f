"""Where a change of the step comes from: the parts of the budget that moved, and who holds them."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.compare.differences import common_findings
from advisor.compare.sides import NOT_HOST, Side
from advisor.knowledge.compare import limit
from advisor.model.comparison import Contribution, OperationChange, PartChange, Verdict
from advisor.model.findings import Finding
from advisor.model.numbers import milliseconds
from advisor.model.parts import PARTS

#: So many parts at most are named.
_MOST = 3
#: Parts that an operation's kernels make.
_OPERATIONS_OF = {"compute": False, "communication": True}


def contributions(
    before: Side,
    after: Side,
    verdict: Verdict,
    budget: Sequence[PartChange],
    operations: Sequence[OperationChange],
) -> tuple[Contribution, ...]:
    """The parts that changed as the step did, the largest first; none without a change."""
    whole = [p for p in budget if p.phase is None]
    total = sum(p.change_ms for p in whole)
    if not (total > 0 if verdict == "regression" else verdict == "improvement" and total < 0):
        return ()
    moved = [p for p in whole if p.change_ms / total >= limit("contribution")]
    moved.sort(key=lambda p: -abs(p.change_ms))
    side, other = (after, before) if total > 0 else (before, after)
    out = []
    for p in moved[:_MOST]:
        finding = _holder(side, p.part, other)
        operation = _operation(p, operations)
        advice = finding.recommendations[0].action if finding and finding.recommendations else None
        out.append(
            Contribution(
                part=p.part,
                change_ms=round(p.change_ms, 6),
                share=round(p.change_ms / total, 6),
                code=finding.code if finding else None,
                cause=finding.cause if finding else None,
                action=advice if total > 0 else None,
                operation=operation.operation if operation else None,
                operation_ms=round(operation.change_ms, 6) if operation else None,
            )
        )
    return tuple(out)


def _holder(side: Side, part: str, other: Side) -> Finding | None:
    """The finding that speaks of a part in at least half of the captures and holds most time. What
    kernels lack on both sides did not change them."""
    causes = {
        cause
        for d in side.diagnoses
        for b in d.budget
        for p in b.parts
        if p.part == part
        for cause in p.findings
    }
    there = common_findings(other) if part in _OPERATIONS_OF else {}
    named = [
        f
        for key, f in common_findings(side).items()
        if f.cause in causes and not f.invalidates and key not in there
    ]
    return max(named, key=lambda f: f.impact.ms or 0.0 if f.impact else 0.0, default=None)


def _operation(part: PartChange, operations: Sequence[OperationChange]) -> OperationChange | None:
    """The operation that changed most the same way, if it holds enough of the part's change."""
    if part.part not in _OPERATIONS_OF:
        return None
    communicates = _OPERATIONS_OF[part.part]
    own = [o for o in operations if (o.family == "communication") == communicates]
    most = max(own, key=lambda o: o.change_ms / part.change_ms, default=None)
    return most if most and most.change_ms / part.change_ms >= limit("contribution") else None


def in_words(named: Sequence[Contribution], budget: Sequence[PartChange]) -> str:
    """A sentence to follow the verdict: ``Of +0.30 ms, +0.30 are Python GC (python-gc).``"""
    if not named:
        return ""
    total = sum(p.change_ms for p in budget if p.phase is None)
    by_cause: dict[str, list[Contribution]] = {}
    for c in named:
        by_cause.setdefault(c.cause or c.part, []).append(c)
    return f" Of {_signed(total)} ms a step, {_listed([_together(own) for own in by_cause.values()])}."


def _together(own: Sequence[Contribution]) -> str:
    """Parts that one finding holds: ``+9.00 are launch call and launch latency (launch-bound)``."""
    details = [own[0].cause] if own[0].cause else []
    details += [f"{c.operation} {_signed(c.operation_ms)} ms" for c in own if c.operation and c.operation_ms]
    about = f" ({', '.join(details)})" if details else ""
    words = _listed([PARTS[c.part].words.replace(", ", " ") for c in own])
    return f"{_signed(sum(c.change_ms for c in own))} are {words}{about}"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _signed(ms: float) -> str:
    return f"{'+' if ms > 0 else '-'}{milliseconds(abs(ms))}"


def hidden_host(budget: Sequence[PartChange], verdict: Verdict, gate: float) -> list[str]:
    """That the GPU waits longer for the host, where the step as a whole did not get slower."""
    whole = [p for p in budget if p.phase is None]
    parts = [p for p in whole if p.part not in NOT_HOST]
    before, after = (sum(getattr(p, side) for p in parts) for side in ("before_ms", "after_ms"))
    least = gate * sum(p.before_ms for p in whole)
    if verdict not in ("improvement", "no-change") or not parts or after - before < least:
        return []
    most = max(parts, key=lambda p: p.change_ms)
    return [
        f"The host got slower, which the step as a whole hides: the GPU waits {after:,.2f} ms a step for "
        f"it, {before:,.2f} before; most of it is {PARTS[most.part].words} ({most.change_ms:+,.2f} ms)."
    ]
