"""What no diagnosis may say, of any capture: nothing to fix while much of the time has no owner, advice whose
condition the capture does not show, and durations that it does not hold. Ticks and untraced steps are looked
at in test_ticks.py and test_untraced_steps.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.facts.catalog import build_facts
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.profiled.stage import measure
from advisor.model.findings import Diagnosis, Finding
from advisor.model.rules import Action, FactCondition
from advisor.pipeline.diagnose import open_trace
from tests import captures as captured
from tests.captures import each
from tests.shipped import shipped_rules
from tests.test_ticks import captures

RULES = shipped_rules().by_code
CAPTURES = pytest.mark.parametrize("path", each(captures()))
#: A part of the budget, and of the step in kernels that are overhead alone, that has to have an owner.
MUCH, OVERHEAD = 0.10, 0.05
OVERHEADS = (
    "kernel.quantise_window_ratio",
    "kernel.dequantise_window_ratio",
    "kernel.weight_cast_window_ratio",
    "kernel.layout_window_ratio",
    "kernel.kv_combine_window_ratio",
)


def diagnosed(path: Path) -> Diagnosis:
    try:
        return captured.diagnosed(path)
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")


@CAPTURES
def test_nothing_to_fix_while_nothing_large_is_without_an_owner(path: Path) -> None:
    d = diagnosed(path)
    if "Nothing to fix" not in d.verdict:
        return
    owned = {f.impact.part for f in d.findings if f.severity != "info" and f.impact is not None}
    large = {p.part for b in d.budget for p in b.parts if p.share >= MUCH} - {"compute"} - owned
    assert not large, d.verdict
    overhead = {f.name: f.value for f in d.facts if f.name in OVERHEADS and float(f.value) >= OVERHEAD}
    assert not overhead, d.verdict


@CAPTURES
def test_the_parts_of_a_budget_are_the_whole_of_it(path: Path) -> None:
    for budget in diagnosed(path).budget:
        assert sum(part.share for part in budget.parts) == pytest.approx(1.0, abs=1e-3), budget
        assert all(0 <= part.share <= 1 for part in budget.parts)


def known(d: Diagnosis, f: Finding, condition: FactCondition) -> list[object]:
    """The values of a condition's fact that the finding sees."""
    wide = getattr(condition, "over", None) is not None
    return [x.value for x in d.facts if x.name == condition.fact and (wide or x.scope.encloses(f.scope))]


def given(found: Finding) -> Iterator[tuple[str, str, list[Action]]]:
    """Each action of a finding: its key and text, and what its rule has under the key, or that of a finding
    that said the same and was joined to it."""
    joined = {RULES[found.code].cause, *(c.cause for c in RULES[found.code].then.same_as)}
    joined |= {r.cause for r in RULES.values() if found.cause in {c.cause for c in r.then.same_as}}
    specs = [r for r in RULES.values() if r.cause in joined]
    for advice in found.recommendations:
        yield advice.id, advice.action, [a for r in specs for a in r.recommendations if a.id == advice.id]
    for other in found.alternatives:
        yield other.action, other.text, [a for r in specs for a in r.alternatives if a.id == other.action]


@CAPTURES
def test_no_advice_rests_on_what_the_capture_does_not_show(path: Path) -> None:
    """All conditions of an action are known to hold, or its text begins with what has to hold."""
    d = diagnosed(path)
    for finding in d.findings:
        for key, text, actions in given(finding):
            conditional = any(a.if_unknown and text.startswith(f"If {a.if_unknown}: ") for a in actions)
            sure = any(all(known(d, finding, c) or c.op == "known" for c in a.applies_when) for a in actions)
            assert conditional or sure, f"{finding.code} {key}: {text}"


#: Columns of tables whose durations were recorded; a median may lie half way between two.
RECORDED = ("p95", "p99", "max")


@CAPTURES
def test_durations_of_kernels_and_calls_are_rows_of_the_capture(path: Path) -> None:
    try:
        with open_trace(path) as trace:
            if trace.summed:
                pytest.skip("sums hold no rows")
            a = measure(trace)
            calls = trace.columns("api_calls", ("start", "end")) if trace.has("api_calls") else None
            lengths = a.ops.length.tolist()
            lengths += [] if calls is None else (calls["end"] - calls["start"]).tolist()
            tables = build_facts(a).tables
            steps = {ms for device in a.devices for ms in (step_times(a.on(device)) / 1e6).tolist()}
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")
    recorded = {"us": {ns / 1e3 for ns in lengths}, "ms": steps}
    for (name, _), table in tables.items():
        for at, column in enumerate(table.columns):
            kind, _, unit = column.partition(":")
            if kind in RECORDED and unit in recorded and (unit == "us" or name.startswith("steps.")):
                assert {row[at] for row in table.rows} - {None} <= recorded[unit], f"{name} {column}"
