"""Findings whose time lies inside that of another one: one subject, under it.

A fix with an estimate is tried behind the others in a replay. Where there is none, two things prove that the
time of one finding lies inside another's:

* the kernels that both hold, where both are shares of kernels;
* the budget, whose parts are exclusive: what two hold together beyond the parts that both
  are of, they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from advisor.engine.infer import Inference
from advisor.engine.rank import in_one_place
from advisor.model.findings import Finding
from advisor.model.gain import Gain
from advisor.model.parts import PARTS
from advisor.model.rules import judges_capture

if TYPE_CHECKING:  # facts bring it along; the engine itself needs no NumPy
    from advisor.model.held import HeldKernels

#: From this share of its time on a finding lies inside another one. Choice: the rest is what two facts round
#: or leave out; lower, and findings that only overlap would be one.
INSIDE = 0.9


def without_own_time(findings: Sequence[Finding], inference: Inference) -> tuple[Finding, ...]:
    """The ranked findings; those without an estimate that lie inside the time of one before them with its
    code as `part_of`."""
    out: list[Finding] = []
    for finding in findings:
        other = next((f for f in _before(finding, out) if _lies_inside(finding, f, inference)), None)
        if other is not None:
            gain = (finding.gain or Gain()).replaced(part_of=other.code)
            finding = finding.replaced(gain=gain)
        out.append(finding)
    return tuple(out)


def _before(finding: Finding, others: Sequence[Finding]) -> Iterator[Finding]:
    """The causes in the same place, of these, under which a finding can stand: those above info that stand
    under none themselves."""
    gain = finding.gain
    estimated = gain is not None and gain.measure == "latency" and gain.speedup is not None
    if estimated or finding.part_of is not None or finding.invalidates or not _holds_time(finding):
        return
    causes = (f for f in others if f.kind == "cause" and f.part_of is None and f.code != finding.code)
    yield from (f for f in causes if _holds_time(f) and in_one_place(f, finding))


def _holds_time(finding: Finding) -> bool:
    """It is above info, and holds time of the program."""
    return finding.severity != "info" and bool(finding.share) and not judges_capture(finding.code)


def _lies_inside(finding: Finding, other: Finding, inference: Inference) -> bool:
    held, of = _kernels(finding, inference), _kernels(other, inference)
    if held is not None and of is not None:
        return held.share_in(of) >= INSIDE
    return _in_common(finding, other, inference) >= INSIDE * (finding.share or 0.0)


def _kernels(finding: Finding, inference: Inference) -> HeldKernels | None:
    """The kernels whose share is what the finding holds."""
    impact = inference.program.by_code[finding.code].spec.impact
    facts = (inference.view.fact(name, finding.scope) for name in (impact.facts if impact else ()))
    fact = next((f for f in facts if f is not None), None)
    return None if fact is None else inference.facts.held.get((fact.name, fact.scope))


def _in_common(finding: Finding, other: Finding, inference: Inference) -> float:
    """The least that both have in common, by the parts of the budget that they are of."""
    mine, its = _parts(finding), _parts(other)
    if not mine or not its or mine.isdisjoint(its):
        return 0.0
    size = 0.0
    for part in mine | its:
        share = inference.facts.value(f"budget.{part}_ratio", finding.scope)
        if not isinstance(share, float):
            return 0.0
        size += share
    return (finding.share or 0.0) + (other.share or 0.0) - size


def _parts(finding: Finding) -> set[str]:
    """The parts of the budget that make up what the finding holds; none if that is unknown."""
    impact = finding.impact
    if impact is None or impact.parts == () or impact.part == "capture":
        return set()
    parts = set(impact.parts or (impact.part,))
    return parts if parts <= PARTS.keys() else set()
