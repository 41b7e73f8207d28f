from __future__ import annotations

import pytest

from advisor.engine.load import builtin_dir, load_rules
from advisor.errors import InputError
from advisor.pipeline.gate import check_codes, select
from advisor.reports import json_report
from advisor.reports.blocks import Next
from advisor.reports.ending import end
from tests.reports.fixture import DIAGNOSIS

KNOWN = {"LCH101", "LCH104", "SYN103", "CAP109", "ALC101", "XFR102", "UTL102", "HST101"}


RULES = load_rules(builtin_dir()).by_code


def codes(selected: tuple[str, ...] = (), ignored: tuple[str, ...] = ()) -> list[str]:
    return [f.code for f in select(DIAGNOSIS, selected, ignored, RULES).findings]


def test_exact_prefix_and_list() -> None:
    assert codes(("LCH101",)) == ["LCH101"]
    assert codes(("syn",)) == ["SYN103"]
    assert codes(("LCH,CAP109",)) == ["LCH101", "CAP109"]
    assert codes(ignored=("LCH SYN",)) == ["CAP109"]
    assert codes(("LCH", "SYN"), ("LCH101",)) == ["SYN103"]


def test_nothing_asked_changes_nothing() -> None:
    assert select(DIAGNOSIS, (), (), RULES) is DIAGNOSIS


def test_filters_every_list_but_keeps_what_was_inferred() -> None:
    kept = select(DIAGNOSIS, ("ALC",), (), RULES)
    assert [h.code for h in kept.healthy] == ["ALC101"]
    assert (kept.findings, kept.overruled, kept.not_evaluated) == ((), (), ())
    away = DIAGNOSIS.replaced(not_applicable=DIAGNOSIS.healthy[:1], does_not_apply=1)
    assert [select(away, (code,), (), RULES).does_not_apply for code in (away.healthy[0].code, "SYN")] == [
        0,
        0,
    ]
    away = away.replaced(healthy=())
    assert [
        select(away, (code,), (), RULES).does_not_apply for code in (away.not_applicable[0].code, "SYN")
    ] == [1, 0]
    assert kept.facts == DIAGNOSIS.facts
    assert select(DIAGNOSIS, ("SYN",), (), RULES).findings[0].rank == 2


def test_the_headline_verdict_plan_and_budget_are_those_of_the_findings_that_are_left() -> None:
    first, second = DIAGNOSIS.findings[:2]
    assert DIAGNOSIS.headline is not None
    assert DIAGNOSIS.headline.code == first.code
    left = select(DIAGNOSIS, (), (first.code,), RULES)
    assert left.headline is not None
    assert left.headline.code == second.code
    assert left.verdict.startswith(f"{second.title}. {second.message}")
    assert first.code not in {t.code for t in left.do}
    assert first.cause not in {c for b in left.budget for p in b.parts for c in p.findings}
    assert first.code not in json_report.render([left]).decode().partition('"facts"')[0]


def test_a_verdict_without_findings_names_what_is_left_out() -> None:
    left = select(DIAGNOSIS, (), ("LCH", "SYN", "CAP"), RULES)
    assert (left.headline, left.do, left.combined) == (None, (), None)
    assert left.verdict == (
        "No finding above info is left: --select or --ignore leaves out LCH101, SYN103, CAP109."
    )


def test_what_is_kept_whole_stays_as_it_was_inferred() -> None:
    left = select(DIAGNOSIS, ("LCH", "SYN", "CAP"), (), RULES)
    for name in ("headline", "verdict", "do", "combined", "budget"):
        assert getattr(left, name) == getattr(DIAGNOSIS, name)


@pytest.mark.parametrize(("code", "hint"), [("LCH110", "did you mean 'LCH1"), ("ZZZ", "advisor rules list")])
def test_an_unknown_code_is_an_error(code: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        check_codes(("LCH101", code), KNOWN, "--select")


def test_known_codes_and_prefixes_pass() -> None:
    check_codes(("lch", "SYN103,ALC101"), KNOWN, "--select")


def test_where_no_finding_is_selected_the_report_says_what_is_next() -> None:
    none = select(DIAGNOSIS, ("XYZ",), (), RULES)
    assert (none.headline, none.findings) == (None, ())
    (line,) = [n.text for n in end(none, 80) if isinstance(n, Next)]
    assert line
