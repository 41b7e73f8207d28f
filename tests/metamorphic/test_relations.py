"""Edits after which the same causes cost something in the same order, and their fixes win as much."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import HOLDS_MUCH, WORTH, share_saved
from tests.metamorphic import edits as e
from tests.metamorphic import variants as v
from tests.metamorphic.captures import after, before, of_each_first
from tests.metamorphic.edits import KERNEL, MS, RUNTIME

#: Shares of a step that are the same.
CLOSE = 0.02


class Relation(NamedTuple):
    """`beside` are the causes that the edit may bring along."""

    name: str
    capture: str
    edit: e.Edit
    beside: str = ""


RUN_AHEAD = e.several(v.from_share(0.0), e.cut_to(0.5))
RELATIONS = [
    Relation("half of it, launched before it began", "graph", RUN_AHEAD),
    Relation("half of it, launched before it began", "bound", RUN_AHEAD),
    Relation("one call in four lost", "graph", e.rows_lost(RUNTIME, 4), "damaged-capture"),
    Relation("half of the nodes lost", "graph", e.rows_lost(KERNEL, 2), "damaged-capture graph-node-gaps"),
    *(
        Relation(f"again after {ms} ms", capture, e.run_again(ms * MS), "step-outliers")
        for capture, ms in (("graph", 5), ("graph", 60), ("bound", 20), ("pageable", 30))
    ),
    *(
        Relation("again under one process id", capture, e.run_again(20 * MS, anew=True), "step-outliers")
        for capture in ("graph", "pageable")
    ),
]


def costly(d: Diagnosis, beside: str) -> dict[str, float | None]:
    """The causes that cost something, in order, and the share of a step that their fix saves."""
    found = [f for f in d.findings if f.severity != "info" and f.cause not in beside.split()]
    return {f.cause: f.ranking.saved if f.ranking else None for f in found}


def at_edge(d: Diagnosis) -> str:
    """Causes that are low or info by the optimistic end of their range alone, which lies at the edge
    between the two: an edit that moves savings by `CLOSE` at most, as a pause in a step, moves them over."""
    return " ".join(f.cause for f in d.findings if near(f))


def near(finding: Finding) -> bool:
    gain = finding.gain
    if finding.severity not in ("low", "info") or gain is None or gain.speedup is None:
        return False
    little = gain.measure == "latency" and share_saved(gain.speedup.mid) < WORTH
    return little and share_saved(gain.speedup.high) == pytest.approx(HOLDS_MUCH, abs=CLOSE)


@pytest.mark.parametrize("relation", of_each_first(RELATIONS))
def test_order_and_gains_stay(relation: Relation, tmp_path: Path) -> None:
    first = before(relation.capture)
    edited = after(relation.capture, relation.edit, tmp_path / "edited.sqlite")
    beside = f"{relation.beside} {at_edge(first)}"
    was, now = costly(first, beside), costly(edited, beside)
    assert list(now) == list(was)
    for cause, saved in now.items():
        if saved is not None:
            assert saved == pytest.approx(was[cause], rel=0.05, abs=CLOSE), cause


def test_a_pause_that_happened_once_is_told(tmp_path: Path) -> None:
    now = after("bound", e.run_again(20 * MS), tmp_path / "edited.sqlite")
    found = {f.cause: f.severity for f in now.findings}
    assert found["step-outliers"] == "low"


def test_no_larger_batch_is_promised_much_where_calls_are_lost(tmp_path: Path) -> None:
    """What the host does between the steps, which leads in the whole capture, cannot be judged."""
    now = after("gap", e.rows_lost(RUNTIME, 2), tmp_path / "edited.sqlite")
    assert [f.cause for f in now.findings if f.severity == "high"] == ["damaged-capture"]


def test_few_lost_kernels_leave_the_limit_of_dram_in_doubt(tmp_path: Path) -> None:
    """One row in a hundred: of some products the samples show the bandwidth less sharply."""
    lost = after("bound", e.rows_lost(KERNEL, 100), tmp_path / "edited.sqlite")
    found = next(f for f in lost.findings if f.cause == "memory-bandwidth-bound")
    sure = next(f for f in before("bound").findings if f.cause == "memory-bandwidth-bound")
    assert found.confidence < sure.confidence
    assert sure.severity == "medium"


def test_more_lost_kernels_leave_the_limit_of_dram_open(tmp_path: Path) -> None:
    lost = after("bound", e.rows_lost(KERNEL, 20), tmp_path / "edited.sqlite")
    (said,) = (n for n in lost.not_evaluated if n.cause == "memory-bandwidth-bound")
    assert "do not show on either side of the limit" in said.why
