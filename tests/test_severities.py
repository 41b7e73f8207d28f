"""Severity comes from the one estimate, of any capture: by the middle that is printed; without one by what is
held, and high only for faults whose rule declares that what they hold is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine.severity import by_share
from advisor.errors import AdvisorError
from advisor.model.findings import SEVERITIES, Finding
from advisor.model.gain import WORTH, Ranking
from tests import captures as captured
from tests.captures import each
from tests.shipped import shipped_rules
from tests.test_ticks import captures

CAPTURES = pytest.mark.parametrize("path", each(captures()))
RULES = shipped_rules().by_code
#: What holds a severity below that of its share, each said in words with the rank of the finding.
CAPS = ("cap", "aside", "behind")


def found(path: Path) -> list[tuple[Finding, Ranking]]:
    """The findings with the arithmetic of their severity, without those of levels of their own."""
    try:
        d = captured.diagnosed(path)
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")
    return [(f, f.ranking) for f in d.findings if f.ranking is not None and f.ranking.levels is None]


def heavy(severity: str) -> int:
    return SEVERITIES.index(severity)  # type: ignore[arg-type]


@CAPTURES
def test_with_an_estimate_the_printed_middle_decides(path: Path) -> None:
    for f, terms in found(path):
        if terms.saved is None:
            continue
        if f.gain is not None and f.gain.measure == "latency" and not terms.measured:
            printed = f.gain.alone if f.gain.after_first is None else f.gain.after_first
            # What lies inside another finding is still worth a line.
            assert terms.saved in (pytest.approx(printed), WORTH if f.gain.part_of else None), f.code
        capped = any(getattr(terms, name) for name in CAPS)
        assert heavy(f.severity) <= max(
            heavy(by_share(terms.saved)), heavy("low"), heavy("medium") * (terms.tail > 0)
        )
        assert capped or heavy(f.severity) >= heavy(by_share(terms.saved)), (f.code, f.severity, terms)


@CAPTURES
def test_without_an_estimate_only_faults_whose_held_time_is_lost_are_high(path: Path) -> None:
    for f, terms in found(path):
        if terms.saved is None and f.severity == "high":
            assert terms.lost, f.code
            assert f.kind == "cause", f.code


def test_only_faults_declare_that_what_they_hold_is_lost() -> None:
    """No description, no wait for requests and no limit."""
    declared = {r.cause: r.kind for r in RULES.values() if r.severity.lost is not False}
    assert set(declared.values()) == {"cause"}
    assert not {c for c in declared if "request" in c}
