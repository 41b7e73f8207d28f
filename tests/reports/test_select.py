from __future__ import annotations

import pytest

from advisor.errors import InputError
from advisor.pipeline.gate import check_codes, select
from advisor.reports.blocks import Next
from advisor.reports.ending import end
from tests.reports.fixture import DIAGNOSIS

KNOWN = {"LCH101", "LCH104", "SYN103", "CAP109", "ALC101", "XFR102", "UTL102", "HST101"}


def codes(selected: tuple[str, ...] = (), ignored: tuple[str, ...] = ()) -> list[str]:
    return [f.code for f in select(DIAGNOSIS, selected, ignored).findings]


def test_exact_prefix_and_list() -> None:
    assert codes(("LCH101",)) == ["LCH101"]
    assert codes(("syn",)) == ["SYN103"]
    assert codes(("LCH,CAP109",)) == ["LCH101", "CAP109"]
    assert codes(ignored=("LCH SYN",)) == ["CAP109"]
    assert codes(("LCH", "SYN"), ("LCH101",)) == ["SYN103"]


def test_nothing_asked_changes_nothing() -> None:
    assert select(DIAGNOSIS, (), ()) is DIAGNOSIS


def test_filters_every_list_but_keeps_what_was_inferred() -> None:
    kept = select(DIAGNOSIS, ("ALC",), ())
    assert [h.code for h in kept.healthy] == ["ALC101"]
    assert (kept.findings, kept.overruled, kept.not_evaluated) == ((), (), ())
    away = DIAGNOSIS.replaced(not_applicable=DIAGNOSIS.healthy[:1], does_not_apply=1)
    assert [select(away, (code,), ()).does_not_apply for code in (away.healthy[0].code, "SYN")] == [0, 0]
    away = away.replaced(healthy=())
    assert [select(away, (code,), ()).does_not_apply for code in (away.not_applicable[0].code, "SYN")] == [
        1,
        0,
    ]
    assert (kept.verdict, kept.facts, kept.budget) == (DIAGNOSIS.verdict, DIAGNOSIS.facts, DIAGNOSIS.budget)
    assert select(DIAGNOSIS, ("SYN",), ()).findings[0].rank == 2


@pytest.mark.parametrize(("code", "hint"), [("LCH110", "did you mean 'LCH1"), ("ZZZ", "advisor rules list")])
def test_an_unknown_code_is_an_error(code: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        check_codes(("LCH101", code), KNOWN, "--select")


def test_known_codes_and_prefixes_pass() -> None:
    check_codes(("lch", "SYN103,ALC101"), KNOWN, "--select")


def test_where_no_finding_is_selected_the_report_says_what_is_next() -> None:
    none = select(DIAGNOSIS, ("XYZ",), ())
    assert (none.headline is not None, none.findings) == (True, ())
    (line,) = [n.text for n in end(none, 80) if isinstance(n, Next)]
    assert line
