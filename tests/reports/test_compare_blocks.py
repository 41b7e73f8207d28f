"""What a comparison says of promised numbers: each is counted, and a fix that was not applied is named."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model.comparison import AdviceCheck, Comparability, Comparison, FindingChange, GainCheck, SideDoc
from advisor.model.findings import Input, Tool, Verify
from advisor.model.gain import Gain, Span
from advisor.reports.compare_blocks import comparison
from advisor.reports.text import plain

VERIFY = Verify(fact="launch.idle_ratio", expect="decrease")
SPAN = Span(low=1.0, mid=2.0, high=3.0)


def check(outcome: str, id: str, severity: str = "high", **more: Any) -> AdviceCheck:
    given = {"code": "LCH101", "cause": "launch-bound", "id": id, "verify": VERIFY, "unit": "ratio", **more}
    return AdviceCheck.model_validate({**given, "severity": severity, "outcome": outcome})


def change(status: str, severity: str) -> FindingChange:
    return FindingChange.model_validate(
        {
            "status": status,
            "code": "LCH101",
            "cause": "launch-bound",
            "title": "Slow",
            "severity_before": severity,
            "severity_after": severity,
        }
    )


def shown(verbosity: int = 0, **parts: Any) -> str:
    side = {
        n: SideDoc(name=n, inputs=(Input(path=f"{n}.sqlite", format="nsys"),)) for n in ("before", "after")
    }
    tool = Tool(version="1", engine="python")
    doc = Comparison(
        tool=tool, **side, verdict="no-change", summary="So.", comparability=Comparability(score=1.0), **parts
    )
    return " ".join(plain(comparison(doc, verbosity)).split())


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ((check("unchanged", "a"), check("unchanged", "b")), "2 numbers did not move (a, b) (-v)"),
        ((check("unknown", "a"),), "1 number is not known (a) (-v)"),
        (
            (check("unchanged", "a"), check("unknown", "b"), check("as promised", "c", "info")),
            "1 number did not move (a), 1 is not known (b), 1 belongs to a note (-v)",
        ),
    ],
)
def test_numbers_that_did_not_move_and_unknown_ones_are_counted_apart(
    checks: tuple[AdviceCheck, ...], told: str
) -> None:
    assert told in shown(checks=checks)
    assert "(-v)" not in shown(1, checks=checks)


def test_a_fix_that_was_not_applied_is_named() -> None:
    gain = GainCheck(
        code="LCH101",
        cause="launch-bound",
        predicted=Gain(step_after_ms=SPAN, speedup=SPAN),
        measured_before_ms=9.0,
        measured_after_ms=9.0,
        measured_speedup=1.0,
        outcome="not applied",
    )
    checks = (check("unchanged", "a"),)
    assert "not applied launch-bound" in shown(checks=checks, gains=(gain,))
    assert "predicted" not in shown(1, checks=checks, gains=(gain,))  # no number of what was not done
    applied = gain.replaced(outcome="as predicted")
    assert "not applied" not in shown(checks=checks, gains=(applied,))
    assert "measured 9.00 ms (traced: was 9.00, 1.00 x)" in shown(checks=checks, gains=(applied,))


@pytest.mark.parametrize(("after", "told"), [(0.9, True), (0.5, False)])
def test_a_share_that_grew_though_its_time_fell_as_promised_says_why(after: float, told: bool) -> None:
    kept = check("as promised", "a", before=0.8, after=after)
    assert ("judged in milliseconds" in shown(checks=(kept,))) is told


def test_findings_that_stayed_and_notes_are_counted_apart() -> None:
    text = shown(changes=(change("same", "high"), change("same", "info"), change("gone", "info")))
    assert "1 finding unchanged, 2 notes (-v)" in text
