"""Of any capture the headline, the first row of the table and "Do, in this order" begin with the same fix.
The rules not judged are one number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import advisor
from advisor.errors import AdvisorError
from advisor.model.findings import Diagnosis
from advisor.reports import blocks as b
from advisor.reports import ending, summary
from tests import captures as captured
from tests.captures import EXAMPLES, each
from tests.test_ticks import captures


def first_do(d: Diagnosis) -> str | None:
    """What the table says to do of the first finding; of a limit, the line below the table."""
    for block in summary.findings(d):
        if isinstance(block, b.Grid) and block.rows[0][0] == "1":
            return str(block.rows[0][-1])
        if isinstance(block, b.Labelled) and block.text.startswith("#1 "):
            return block.text.partition(": ")[2]
    return None


def in_one_order(d: Diagnosis) -> None:
    row, first = first_do(d), summary.headline(d)
    if row is None or first is None or not d.do:
        return
    title = {a.action: summary.fix(a) for f in d.findings for a in f.recommendations}[d.do[0].action]
    advice = next(a for f in d.findings for a in f.recommendations if a.action == d.do[0].action)
    before, found, _ = row.partition(title)  # before it: which row it is part of, and the rank
    assert found
    assert not before or before.endswith(": ")
    text = summary.what_to_do(d, first).lower()
    assert text.startswith((title.lower(), (advice.sentence or title).lower()))
    assert d.headline is not None
    assert d.headline.do == d.do[0].action


def in_one_count(d: Diagnosis) -> None:
    judged_not = re.compile(r"(\d+) not judged")
    silent = len({n.code for n in d.not_evaluated})
    for printed in (ending.counts(d), ending.checked(d, 80)):
        (count,) = judged_not.findall(printed)
        assert int(count) == silent == d.not_judged
    assert not (spoken := re.findall(r"(\d+) rules? could not", d.verdict)) or int(spoken[0]) == silent


@pytest.mark.parametrize("path", each(captures()))
def test_rules_not_judged_are_counted_once_and_alike(path: Path) -> None:
    try:
        in_one_count(captured.diagnosed(path))
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")


@pytest.mark.parametrize("path", each(captures()))
def test_headline_table_and_plan_begin_with_the_same_fix(path: Path) -> None:
    try:
        in_one_order(captured.diagnosed(path))
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")


def test_of_a_job_of_ranks_too() -> None:
    d = advisor.diagnose(EXAMPLES / "dlrm_8_ranks")
    assert d.do[0].code == "SYN101"
    assert first_do(d) == "remove needless waits, then use CUDA graphs"
    in_one_order(d)
