"""New, known and gone: what a saved diagnosis says about this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.diagnose import select
from advisor.compare.baseline import mark, mark_all, read
from advisor.compare.store import is_saved, locate, names
from advisor.errors import InputError
from advisor.model.facts import Scope
from advisor.model.findings import Diagnosis, identity
from advisor.reading import hold
from advisor.reports import json_report
from tests.reports.fixture import DIAGNOSIS, HEALTHY

FILE = Path("old.json")


def saved(diagnosis: Diagnosis, tmp_path: Path) -> Any:
    path = tmp_path / "old.json"
    path.write_bytes(json_report.render([diagnosis]))
    return read(path)[0]


def states(diagnosis: Diagnosis) -> dict[str, str | None]:
    return {f.code: f.baseline for f in diagnosis.findings}


def without(*codes: str) -> Diagnosis:
    kept = tuple(f for f in DIAGNOSIS.findings if f.code not in codes)
    return DIAGNOSIS.model_copy(update={"findings": kept})


def test_the_same_again_is_known(tmp_path: Path) -> None:
    marked = mark(DIAGNOSIS, saved(DIAGNOSIS, tmp_path), FILE)
    assert set(states(marked).values()) == {"known"}
    assert marked.baseline is not None
    assert (marked.baseline.new, marked.baseline.known, marked.baseline.gone) == (0, 3, ())
    assert marked.baseline.capture == "decode_[eager]_batch_size_1.sqlite"
    assert marked.baseline.verdict == DIAGNOSIS.verdict


def test_new_and_gone(tmp_path: Path) -> None:
    marked = mark(without("CAP109"), saved(without("LCH101"), tmp_path), FILE)
    assert states(marked) == {"LCH101": "new", "SYN103": "known"}
    assert marked.baseline is not None
    assert [(g.code, g.status) for g in marked.baseline.gone] == [("CAP109", "gone")]


def test_another_scope_is_another_finding(tmp_path: Path) -> None:
    first = DIAGNOSIS.findings[0]
    moved = DIAGNOSIS.model_copy(update={"findings": (first.model_copy(update={"scope": Scope(device=1)}),)})
    marked = mark(moved, saved(without("SYN103", "CAP109"), tmp_path), FILE)
    assert states(marked) == {"LCH101": "new"}
    assert marked.baseline is not None
    assert [g.scope.phase for g in marked.baseline.gone] == ["decode"]


def test_a_process_has_another_id_in_every_run(tmp_path: Path) -> None:
    def of(process: int) -> Diagnosis:
        scope = Scope(device=0, process=process)
        first = DIAGNOSIS.findings[0].model_copy(update={"scope": scope})
        return DIAGNOSIS.model_copy(update={"findings": (first,)})

    assert states(mark(of(4711), saved(of(42), tmp_path), FILE)) == {"LCH101": "known"}
    assert identity("LCH101", Scope(device=0, process=7)) == "LCH101@device=0"


def test_gone_only_where_the_rule_looked_again(tmp_path: Path) -> None:
    # UTL102 could not be evaluated, HST101 was overruled: neither has got better.
    old = DIAGNOSIS.model_copy(
        update={
            "findings": (
                DIAGNOSIS.findings[1].model_copy(update={"code": "UTL102"}),
                DIAGNOSIS.findings[1].model_copy(update={"code": "HST101", "scope": Scope(device=1)}),
                DIAGNOSIS.findings[1].model_copy(update={"code": "UTL105"}),
                DIAGNOSIS.findings[1].model_copy(update={"code": "SYN101"}),
            )
        }
    )
    marked = mark(DIAGNOSIS, saved(old, tmp_path), FILE)
    assert marked.baseline is not None
    assert {g.code: g.status for g in marked.baseline.gone} == {
        "UTL102": "not_evaluated",
        "HST101": "overruled",
        "UTL105": "not_evaluated",  # an entry without a scope is about every device
        "SYN101": "gone",
    }


def test_of_a_void_capture_nothing_is_gone(tmp_path: Path) -> None:
    void = DIAGNOSIS.findings[2].model_copy(update={"invalidates": True, "code": "CAP101"})
    marked = mark(
        DIAGNOSIS.model_copy(update={"findings": (void,), "not_evaluated": ()}),
        saved(DIAGNOSIS, tmp_path),
        FILE,
    )
    assert marked.baseline is not None
    assert {g.status for g in marked.baseline.gone} == {"not_evaluated"}


def test_what_makes_a_capture_void_is_gone_where_another_reason_makes_it_void(tmp_path: Path) -> None:
    """Rules about the capture look at every capture, also at one that nothing else is said of."""
    opaque = DIAGNOSIS.findings[0].model_copy(update={"invalidates": True, "code": "CAP102"})
    lost = DIAGNOSIS.findings[0].model_copy(update={"invalidates": True, "code": "CAP101"})
    before = DIAGNOSIS.model_copy(update={"findings": (opaque, DIAGNOSIS.findings[1])})
    now = DIAGNOSIS.model_copy(update={"findings": (lost,), "not_evaluated": (), "overruled": ()})
    marked = mark(now, saved(before, tmp_path), tmp_path)
    assert marked.baseline is not None
    assert [g.status for g in marked.baseline.gone] == ["gone", "not_evaluated"]


def test_what_the_baseline_could_not_see(tmp_path: Path) -> None:
    seen = DIAGNOSIS.findings[1].model_copy(update={"code": "UTL105", "scope": Scope(device=0)})
    now = DIAGNOSIS.model_copy(update={"findings": (seen,)})
    marked = mark(now, saved(DIAGNOSIS, tmp_path), FILE)
    assert marked.baseline is not None
    assert marked.baseline.not_evaluated_before == ("UTL105",)


def test_what_the_baseline_looked_for_and_did_not_have_is_new(tmp_path: Path) -> None:
    marked = mark(DIAGNOSIS, saved(without("LCH101"), tmp_path), FILE)
    assert marked.baseline is not None
    assert (marked.baseline.new, marked.baseline.not_evaluated_before) == (1, ())


def test_what_is_held_in_memory_is_taken_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.reading._held", {})
    with pytest.raises(InputError, match="standard input is not read here"):
        locate("-", tmp_path)
    with pytest.raises(InputError, match="no such file, and no baseline of that name"):
        locate("absent", tmp_path)
    hold(Path("pasted"), b'{"schema_version": 1}')
    assert locate("pasted", tmp_path) == Path("pasted")
    assert is_saved(Path("pasted"))


def test_a_folder_is_no_saved_diagnosis_and_one_that_is_missing_has_no_baselines(tmp_path: Path) -> None:
    assert not is_saved(tmp_path)
    (tmp_path / "b.json").touch()
    (tmp_path / "a.json").touch()
    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "none") == []


def test_selection_is_for_both_sides(tmp_path: Path) -> None:
    marked = mark(without("CAP109"), saved(without("LCH101"), tmp_path), FILE)
    kept = select(marked, ("LCH",), ())
    assert kept.baseline is not None
    assert (kept.baseline.new, kept.baseline.known, kept.baseline.gone) == (1, 0, ())
    shown = select(marked, (), ("LCH",))
    assert shown.baseline is not None
    assert [g.code for g in shown.baseline.gone] == ["CAP109"]


def test_several_captures_by_name(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(json_report.render([HEALTHY, without("LCH101")], many=True))
    moved = DIAGNOSIS.inputs[0].model_copy(update={"path": "/elsewhere/" + FILE.name})
    marked = mark_all([DIAGNOSIS, HEALTHY], read(path), path)
    assert (states(marked[0])["LCH101"], states(marked[0])["CAP109"]) == ("new", "known")
    assert marked[1].baseline is not None
    stranger = DIAGNOSIS.model_copy(update={"inputs": (moved,)})
    with pytest.raises(InputError, match=r"holds none of old.json"):
        mark_all([stranger], read(path), path)


def test_documents_of_other_versions(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    document = json.loads(json_report.render([DIAGNOSIS]))
    document["added_later"] = {"x": 1}
    document["findings"][0]["added_later"] = 1
    document["findings"][0]["scope"]["added_later"] = 1
    for key in ("healthy", "tables", "thresholds", "facts", "budget"):
        del document[key]
    path.write_text(json.dumps(document))
    assert states(mark(DIAGNOSIS, read(path)[0], path))["LCH101"] == "known"
    document["schema_version"] = 2
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="schema version 2, this advisor reads 1"):
        read(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not a JSON document"),
        ("[]", "not a saved diagnosis"),
        ('{"a": 1}', "not a saved diagnosis .schema_version"),
        ('{"schema_version": 1, "findings": [{"code": 3}]}', "findings.0.code"),
        ("SQLite format 3\0", "not a JSON document"),
    ],
)
def test_what_is_no_diagnosis(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read(path)
    assert "advisor TRACE --format json" in str(error.value)
    assert "\n" not in str(error.value)


def moved(**changes: Any) -> Diagnosis:
    """The sample diagnosis with another first finding."""
    first = DIAGNOSIS.findings[0].model_copy(update=changes)
    return DIAGNOSIS.model_copy(update={"findings": (first, *DIAGNOSIS.findings[1:])})


def share(of: float) -> dict[str, Any]:
    impact = DIAGNOSIS.findings[0].impact
    assert impact is not None
    return {"impact": impact.model_copy(update={"share": of})}


def shared(by: float) -> dict[str, Any]:
    return share((DIAGNOSIS.findings[0].share or 0.0) + by)


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ({"severity": "low"}, {"severity": "high"}, "worse"),
        ({"severity": "high"}, {"severity": "medium"}, "better"),
        ({}, shared(-0.051), "better"),
        (shared(-0.051), {}, "worse"),
        ({}, shared(-0.049), None),
        (share(0.0), share(0.05), "worse"),
        ({"severity": "low", **shared(0)}, {"severity": "high", **shared(-0.2)}, "worse"),
        ({"impact": None}, {}, None),
    ],
)
def test_what_has_become_worse_or_better(
    before: dict[str, Any], now: dict[str, Any], changed: str | None, tmp_path: Path
) -> None:
    marked = mark(moved(**now), saved(moved(**before), tmp_path), FILE)
    assert [f.changed for f in marked.findings] == [changed, None, None]
