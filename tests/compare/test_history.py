"""Reviews that build on each other: findings tracked, decisions that hold, gates that let pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.compare import history
from advisor.errors import InputError
from advisor.model.facts import Scope
from advisor.model.findings import Diagnosis, Tool, identity
from advisor.model.review import Choice, Decision, History, Review
from advisor.reports import json_report
from tests.reports.fixture import DIAGNOSIS

FIRST = DIAGNOSIS.findings[0]
MONDAY, FRIDAY = "2026-11-02", "2026-11-06"


def having(*findings: Any) -> Diagnosis:
    return DIAGNOSIS.model_copy(update={"findings": findings})


def first(**changes: Any) -> Any:
    return FIRST.model_copy(update=changes)


def decided(**said: Any) -> Review:
    decision = Decision(capture="a", finding=FIRST.identity, code=FIRST.code, **said)
    return Review(tool=Tool(version="1", engine="x"), workbook="w.xlsx", decisions=(decision,))


def after(*diagnoses: Diagnosis, review: Review | None = None) -> History:
    """Reviews on one day after the other; `review` is of the first."""
    found = history.recorded(History(), diagnoses[0], "2026-11-01", review=review)
    for number, diagnosis in enumerate(diagnoses[1:], 2):
        found = history.recorded(found, diagnosis, f"2026-11-{number:02}")
    return found


def states(found: History) -> dict[str, str]:
    return {t.code: t.state for t in found.findings}


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        (having(), having(FIRST), "new"),
        (having(FIRST), having(FIRST), "same"),
        (having(first(severity="low")), having(first(severity="high")), "worse"),
        (having(first(severity="high")), having(first(severity="low")), "better"),
        (having(FIRST), having(), "closed"),
    ],
)
def test_a_finding_is_followed_from_capture_to_capture(before: Diagnosis, now: Diagnosis, state: str) -> None:
    assert states(after(before, now)) == {FIRST.code: state}


def test_of_several_captures_a_finding_counts_where_it_is_largest() -> None:
    half = FIRST.impact.model_copy(update={"share": 0.5})
    small, large = (having(first(impact=half.model_copy(update={"share": s}))) for s in (0.1, 0.5))
    (found,) = history.recorded(after(small), small, FRIDAY, others=[large, having()]).findings
    assert (found.share, found.was) == (0.5, 0.1)
    (gone,) = history.recorded(after(small), having(), FRIDAY, others=[having()]).findings
    assert gone.state == "closed"
    (still,) = history.recorded(after(small), having(), FRIDAY, others=[small]).findings
    assert still.state != "closed"


def test_a_capture_that_cannot_answer_closes_nothing() -> None:
    changes = {"code": FIRST.code, "scope": FIRST.scope, "stopped_by": None}
    lacking = DIAGNOSIS.not_evaluated[0].model_copy(update=changes)
    blind = DIAGNOSIS.model_copy(update={"findings": (), "not_evaluated": (lacking,)})
    assert states(after(having(FIRST), blind)) == {FIRST.code: "unknown"}


def test_a_decision_stays_until_the_finding_is_worse() -> None:
    review = decided(decision="accept", owner="Ada", due=FRIDAY)
    low, high = having(first(severity="low")), having(first(severity="high"))
    (kept,) = after(low, low, review=review).findings
    assert (kept.decision, kept.owner, kept.due) == ("accept", "Ada", FRIDAY)
    (again,) = after(low, high, review=review).findings
    assert (again.decision, again.reopened, again.owner) == ("", "accept", "Ada")


def test_a_decision_about_something_smaller_does_not_hold() -> None:
    """Friday's capture is recorded with what Monday's meeting decided."""
    low, high = having(first(severity="low")), having(first(severity="high"))
    for severity, decision, reopened in (("low", "", "accept"), ("high", "accept", "")):
        review = decided(decision="accept", owner="Ada", severity=severity)
        (found,) = history.recorded(after(low), high, FRIDAY, review=review).findings
        assert (found.decision, found.reopened, found.owner) == (decision, reopened, "Ada")


def test_a_row_that_nobody_touched_decides_nothing() -> None:
    low = having(first(severity="low"))
    for review in (decided(severity="high"), None):
        earlier = after(low, review=decided(decision="accept", owner="Ada"))
        (found,) = history.recorded(earlier, low, FRIDAY, review=review).findings
        assert (found.decision, found.owner, found.severity) == ("accept", "Ada", "low")


def test_a_new_decision_ends_what_was_reopened() -> None:
    low, high = having(first(severity="low")), having(first(severity="high"))
    earlier = after(low, high, review=decided(decision="accept"))
    assert earlier.findings[0].reopened == "accept"
    for said, reopened in (({"decision": "reject"}, ""), ({"owner": "Ada"}, "accept")):
        (found,) = history.recorded(earlier, high, FRIDAY, review=decided(**said)).findings
        assert (found.decision, found.reopened) == (said.get("decision", ""), reopened)


def test_of_one_finding_in_several_captures_what_was_decided_counts() -> None:
    decision = decided(decision="accept", severity="low").decisions[0]
    blank = decision.model_copy(update={"decision": "", "owner": ""})
    for rows in ((blank, decision), (decision, blank)):
        review = Review(tool=Tool(version="1", engine="x"), workbook="w.xlsx", decisions=rows)
        assert [f.decision for f in history.of_review(review).findings] == ["accept"]


def test_a_review_is_a_history_of_one_meeting() -> None:
    choice = Choice(advice="graphs", decision="accept")
    review = decided(decision="accept", severity="low", share=0.1, recommendations=(choice,))
    past = history.of_review(review.model_copy(update={"names": ("Ada",), "day": MONDAY}))
    assert (past.meetings[0].day, past.meetings[0].names) == (MONDAY, ("Ada",))
    (before,) = past.findings
    assert (before.finding, before.scope, before.state) == (FIRST.identity, FIRST.scope, "same")
    assert before.recommendations == (choice,)
    (now,) = history.recorded(past, having(first(severity="high")), FRIDAY).findings
    assert (now.state, now.was, now.reopened, now.recommendations) == ("worse", 0.1, "accept", ())


@pytest.mark.parametrize(
    "scope",
    [Scope(), Scope(rank=3, device=1, phase="decode"), Scope(device=0, operation="add, phase=x (1=2)")],
)
def test_the_scope_of_a_finding_is_read_back(scope: Scope) -> None:
    review = decided(severity="low")
    found = review.decisions[0].model_copy(update={"finding": identity("LCH101", scope)})
    (tracked,) = history.of_review(review.model_copy(update={"decisions": (found,)})).findings
    assert tracked.scope == scope


def test_a_decision_on_a_finding_that_is_gone_stays_to_be_seen() -> None:
    (gone,) = after(having(FIRST), having(), having(), review=decided(decision="done", owner="Ada")).findings
    assert (gone.state, gone.decision, gone.owner) == ("closed", "done", "Ada")
    (back,) = after(having(FIRST), having(), having(FIRST), review=decided(decision="done")).findings
    assert (back.state, back.decision, back.reopened, back.since) == ("new", "", "done", "2026-11-03")


@pytest.mark.parametrize(
    ("said", "day", "overdue"),
    [
        ({"decision": "accept"}, "2026-11-07", True),
        ({"decision": "accept"}, FRIDAY, False),
        ({"decision": "done"}, "2026-11-07", False),
        ({}, "2026-11-07", True),
    ],
)
def test_overdue_is_what_was_due_and_is_not_done(said: dict[str, str], day: str, overdue: bool) -> None:
    (tracked,) = after(having(FIRST), review=decided(due=FRIDAY, **said)).findings
    assert tracked.overdue(day) is overdue


def test_suppression_ends_with_its_day_and_when_it_gets_worse() -> None:
    low, high = having(first(severity="low")), having(first(severity="high"))
    found = history.suppressed(after(low), FIRST.identity, "known driver bug", FRIDAY)
    assert found.hidden(FRIDAY) == {FIRST.identity}
    assert not found.hidden("2026-11-07")
    assert history.recorded(found, low, MONDAY).hidden(MONDAY)
    assert not history.recorded(found, high, MONDAY).hidden(MONDAY)
    with pytest.raises(InputError, match="no finding of the history; there are: LCH101"):
        history.suppressed(found, "SYN999", "x", FRIDAY)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "one.json"
    path.write_bytes(json_report.render([DIAGNOSIS]))
    return path


def test_the_verbs(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", "record", str(saved), "--date", MONDAY, "--names", "Ada, Grace"]) == 0
    assert main(["review", "record", str(saved), "--date", FRIDAY]) == 0
    capsys.readouterr()
    assert main(["review", "status", "--date", FRIDAY]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Since {MONDAY}: 0 new, 0 worse, 0 better, 0 closed, 0 overdue")
    assert FIRST.identity in out
    document = json.loads(Path(".advisor/history/findings.json").read_text())
    assert document["meetings"][0]["names"] == ["Ada", "Grace"]
    assert main(["review", "status", "--format", "markdown"]) == 0
    assert "- **same**: " in capsys.readouterr().out
    # A history is no baseline.
    assert main(["baseline", "list"]) == 0
    assert "0 baselines" in capsys.readouterr().out


def test_captures_of_one_meeting_are_one_record(saved: Path) -> None:
    """A finding that both have counts where its share is largest; none of the other's is closed."""
    other = saved.with_name("other.json")
    less = DIAGNOSIS.findings[0].model_copy(update={"impact": None})
    other.write_bytes(json_report.render([DIAGNOSIS.model_copy(update={"findings": (less,)})]))
    assert main(["review", "record", str(saved), str(other), "--date", MONDAY]) == 0
    document = json.loads(Path(".advisor/history/findings.json").read_text())
    assert len(document["meetings"]) == 1
    kept = [t for t in document["findings"] if t["finding"] == less.identity]
    assert [t["share"] for t in kept] == [DIAGNOSIS.findings[0].share]
    assert len(document["findings"]) == sum(f.kind != "limit" for f in DIAGNOSIS.findings)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["status"], "no review is recorded"),
        (["record", "one.json", "--date", "soon"], "--date: invalid value 'soon'; expected a day like"),
        (["suppress", "X", "--reason", "why", "--until", "never"], "--until: invalid value 'never'"),
        (["suppress", "X", "--reason", " ", "--until", FRIDAY], "--reason: say why"),
    ],
)
def test_what_is_wrong_is_one_line(
    saved: Path, arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saved.exists()
    assert main(["review", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_a_file_that_is_no_history(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = history.path_of(Path(".advisor"))
    path.parent.mkdir(parents=True)
    path.write_bytes(saved.read_bytes())
    assert main(["review", "status"]) == 2
    assert "not a history of findings" in capsys.readouterr().err
