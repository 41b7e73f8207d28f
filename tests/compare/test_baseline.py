"""New, known and gone: what a saved diagnosis says about this one.

Reviews that build on each other: findings tracked, decisions that hold, gates that let pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.comparison import baseline
from advisor.comparison.baseline import Weight, change, mark, mark_all, read
from advisor.comparison.step_work import saved_work
from advisor.comparison.store import names
from advisor.engine.load import builtin_dir, load_rules
from advisor.errors import InputError
from advisor.model.facts import Scope
from advisor.model.findings import Diagnosis, Tool, identity
from advisor.model.review import Choice, Decision, History, Review
from advisor.pipeline.gate import failure, select
from advisor.pipeline.inputs import is_saved, located
from advisor.reading import hold
from advisor.reports import json_report, summary
from tests.reports.fixture import DIAGNOSIS, HEALTHY

FILE = Path("old.json")
FIRST = DIAGNOSIS.findings[0]
RULES = load_rules(builtin_dir()).by_code


def saved(diagnosis: Diagnosis, tmp_path: Path) -> Any:
    path = tmp_path / "old.json"
    path.write_bytes(json_report.render([diagnosis]))
    return read(path)[0]


def states(diagnosis: Diagnosis) -> dict[str, str | None]:
    return {f.code: f.baseline for f in diagnosis.findings}


def without(*codes: str) -> Diagnosis:
    kept = tuple(f for f in DIAGNOSIS.findings if f.code not in codes)
    return DIAGNOSIS.replaced(findings=kept)


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
    moved = DIAGNOSIS.replaced(findings=(first.replaced(scope=Scope(device=1)),))
    marked = mark(moved, saved(without("SYN103", "CAP109"), tmp_path), FILE)
    assert states(marked) == {"LCH101": "new"}
    assert marked.baseline is not None
    assert [g.scope.phase for g in marked.baseline.gone] == ["decode"]


def test_a_process_has_another_id_in_every_run(tmp_path: Path) -> None:
    def of(process: int) -> Diagnosis:
        scope = Scope(device=0, process=process)
        first = DIAGNOSIS.findings[0].replaced(scope=scope)
        return DIAGNOSIS.replaced(findings=(first,))

    assert states(mark(of(4711), saved(of(42), tmp_path), FILE)) == {"LCH101": "known"}
    assert identity("LCH101", Scope(device=0, process=7)) == "LCH101@device=0"


def test_gone_only_where_the_rule_looked_again(tmp_path: Path) -> None:
    # UTL102 could not be evaluated, HST101 was overruled: neither has got better.
    old = DIAGNOSIS.replaced(
        findings=(
            DIAGNOSIS.findings[1].replaced(code="UTL102"),
            DIAGNOSIS.findings[1].replaced(code="HST101", scope=Scope(device=1)),
            DIAGNOSIS.findings[1].replaced(code="UTL105"),
            DIAGNOSIS.findings[1].replaced(code="SYN101"),
        )
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
    void = DIAGNOSIS.findings[2].replaced(invalidates=True, code="CAP101")
    marked = mark(DIAGNOSIS.replaced(findings=(void,), not_evaluated=()), saved(DIAGNOSIS, tmp_path), FILE)
    assert marked.baseline is not None
    assert {g.status for g in marked.baseline.gone} == {"not_evaluated"}


def test_what_makes_a_capture_void_is_gone_where_another_reason_makes_it_void(tmp_path: Path) -> None:
    """Rules about the capture look at every capture, also at one that nothing else is said of."""
    opaque = DIAGNOSIS.findings[0].replaced(invalidates=True, code="CAP102")
    lost = DIAGNOSIS.findings[0].replaced(invalidates=True, code="CAP101")
    before = DIAGNOSIS.replaced(findings=(opaque, DIAGNOSIS.findings[1]))
    now = DIAGNOSIS.replaced(findings=(lost,), not_evaluated=(), overruled=())
    marked = mark(now, saved(before, tmp_path), tmp_path)
    assert marked.baseline is not None
    assert [g.status for g in marked.baseline.gone] == ["gone", "not_evaluated"]


def test_what_the_baseline_could_not_see(tmp_path: Path) -> None:
    seen = DIAGNOSIS.findings[1].replaced(code="UTL105", scope=Scope(device=0))
    now = DIAGNOSIS.replaced(findings=(seen,))
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
        located("-", tmp_path)
    with pytest.raises(InputError, match="no such file, and no baseline of that name"):
        located("absent", tmp_path)
    hold(Path("pasted"), b'{"schema_version": 1}')
    assert located("pasted", tmp_path) == Path("pasted")
    assert is_saved(Path("pasted"))


def test_a_folder_is_no_saved_diagnosis_and_one_that_is_missing_has_no_baselines(tmp_path: Path) -> None:
    assert not is_saved(tmp_path)
    (tmp_path / "b.json").touch()
    (tmp_path / "a.json").touch()
    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "none") == []


def test_selection_is_for_both_sides(tmp_path: Path) -> None:
    marked = mark(without("CAP109"), saved(without("LCH101"), tmp_path), FILE)
    kept = select(marked, ("LCH",), (), RULES)
    assert kept.baseline is not None
    assert (kept.baseline.new, kept.baseline.known, kept.baseline.gone) == (1, 0, ())
    shown = select(marked, (), ("LCH",), RULES)
    assert shown.baseline is not None
    assert [g.code for g in shown.baseline.gone] == ["CAP109"]


def test_several_captures_by_name(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(json_report.render([HEALTHY, without("LCH101")], many=True))
    moved = DIAGNOSIS.inputs[0].replaced(path="/elsewhere/" + FILE.name)
    marked = mark_all([DIAGNOSIS, HEALTHY], read(path), path)
    assert (states(marked[0])["LCH101"], states(marked[0])["CAP109"]) == ("new", "known")
    assert marked[1].baseline is not None
    stranger = DIAGNOSIS.replaced(inputs=(moved,))
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
        ('{"schema_version": 1, "findings": [{"code": 3}]}', r"findings.0..code: Expected str, got int"),
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
    first = DIAGNOSIS.findings[0].replaced(**changes)
    return DIAGNOSIS.replaced(findings=(first, *DIAGNOSIS.findings[1:]))


def share(of: float) -> dict[str, Any]:
    impact = DIAGNOSIS.findings[0].impact
    assert impact is not None
    return {"impact": impact.replaced(share=of)}


def shared(by: float) -> dict[str, Any]:
    return share((DIAGNOSIS.findings[0].share or 0.0) + by)


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        (Weight("low", 0.1, None), Weight("high", 0.1, None), "worse"),
        (Weight("high", 0.1, None), Weight("medium", 0.1, None), "better"),
        (Weight("low", 0.1, None), Weight("low", 0.151, None), "worse"),
        (Weight("low", 0.1, None), Weight("low", 0.049, None), "better"),
        (Weight("low", 0.1, None), Weight("low", 0.149, None), None),
        (Weight("low", 0.3, None), Weight("high", 0.1, None), "worse"),
        (Weight("low", None, None), Weight("low", 0.3, None), None),
        # 0.87 of 14.42 ms, then 0.91 of 2.08 ms: a larger part of a shorter step, and graver, but no worse.
        (Weight("low", 0.06, 0.87), Weight("high", 0.44, 0.91), None),
        (Weight("high", 0.44, 0.91), Weight("low", 0.06, 0.87), None),
        (Weight("high", 0.5, 1.0), Weight("high", 0.5, 1.2), "worse"),
        (Weight("high", 0.5, 1.0), Weight("low", 0.1, 0.5), "better"),
        (Weight("low", 0.0, 0.0), Weight("low", 0.0, 0.0), None),
    ],
)
def test_what_has_become_worse_or_better(before: Weight, now: Weight, changed: str | None) -> None:
    assert change(before, now) == changed


def test_findings_of_a_step_are_weighed_by_its_milliseconds(tmp_path: Path) -> None:
    marked = mark(moved(**shared(0.2)), saved(DIAGNOSIS, tmp_path), FILE)
    assert [f.changed for f in marked.findings] == [None, None, None]
    longer = FIRST.impact.replaced(ms=FIRST.impact.ms * 2)
    marked = mark(moved(impact=longer), saved(DIAGNOSIS, tmp_path), FILE)
    assert [f.changed for f in marked.findings] == ["worse", None, None]


def in_steps_of(ms: float) -> Diagnosis:
    """The sample with steps of about so long."""
    work = DIAGNOSIS.work or saved_work(DIAGNOSIS)
    times = tuple(ms * (1 + 0.002 * (i % 5)) for i in range(20))
    phases = tuple(p.replaced(times_ms=times, steps=20) for p in work.phases)
    entry = DIAGNOSIS.inputs[0].replaced(step_ms=sum(times) / len(times))
    work = work.replaced(phases=phases)
    return DIAGNOSIS.replaced(work=work, inputs=(entry, *DIAGNOSIS.inputs[1:]))


@pytest.mark.parametrize(
    ("before", "now", "verdict", "fails"),
    [
        (2.08, 14.42, "regression", True),
        (14.42, 2.08, "improvement", False),
        (2.08, 2.08, "no-change", False),
    ],
)
def test_the_step_is_compared_and_a_slower_one_fails_the_gate(
    before: float, now: float, verdict: str, fails: bool, tmp_path: Path
) -> None:
    marked = mark(in_steps_of(now), saved(in_steps_of(before), tmp_path), FILE)
    assert marked.baseline is not None
    step = marked.baseline.step
    assert step is not None
    assert step.verdict == verdict
    assert (step.before_ms, step.after_ms) == pytest.approx((before * 1.004, now * 1.004))  # medians
    said = failure([marked], None, worse=True, folder=tmp_path)
    assert bool(said) == fails
    assert ("from 2.09 to 14.48 ms" in said) == fails
    assert not failure([marked], None, new=True, folder=tmp_path)
    told = [str(block) for block in summary.head(marked)]
    verdict_at = next(i for i, text in enumerate(told) if summary.verdict(marked) in text)
    assert step.summary in told[verdict_at + 1]


MONDAY, FRIDAY = "2026-11-02", "2026-11-06"


def having(*findings: Any) -> Diagnosis:
    return DIAGNOSIS.replaced(findings=findings)


def first(**changes: Any) -> Any:
    return FIRST.replaced(**changes)


def graded(severity: str) -> Any:
    """The sample's first finding, which holds more of the step the graver it is."""
    ms = {"low": 0.5, "medium": 1.0, "high": 2.0}[severity]
    return first(severity=severity, impact=FIRST.impact.replaced(ms=ms, share=ms / 4))


def decided(**said: Any) -> Review:
    decision = Decision(capture="a", finding=FIRST.identity, code=FIRST.code, **said)
    return Review(tool=Tool(version="1", engine="x"), workbook="w.xlsx", decisions=(decision,))


def after(*diagnoses: Diagnosis, review: Review | None = None) -> History:
    """Reviews on one day after the other; `review` is of the first."""
    found = baseline.recorded(History(), diagnoses[0], "2026-11-01", review=review)
    for number, diagnosis in enumerate(diagnoses[1:], 2):
        found = baseline.recorded(found, diagnosis, f"2026-11-{number:02}")
    return found


def tracked_states(found: History) -> dict[str, str]:
    return {t.code: t.state for t in found.findings}


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        (having(), having(FIRST), "new"),
        (having(FIRST), having(FIRST), "same"),
        (having(graded("low")), having(graded("high")), "worse"),
        (having(graded("high")), having(graded("low")), "better"),
        (having(FIRST), having(), "closed"),
    ],
)
def test_a_finding_is_followed_from_capture_to_capture(before: Diagnosis, now: Diagnosis, state: str) -> None:
    assert tracked_states(after(before, now)) == {FIRST.code: state}


def test_of_several_captures_a_finding_counts_where_it_is_largest() -> None:
    half = FIRST.impact.replaced(share=0.5)
    small, large = (having(first(impact=half.replaced(share=s))) for s in (0.1, 0.5))
    (found,) = baseline.recorded(after(small), small, FRIDAY, others=[large, having()]).findings
    assert (found.share, found.was) == (0.5, 0.1)
    (gone,) = baseline.recorded(after(small), having(), FRIDAY, others=[having()]).findings
    assert gone.state == "closed"
    (still,) = baseline.recorded(after(small), having(), FRIDAY, others=[small]).findings
    assert still.state != "closed"


def test_a_capture_that_cannot_answer_closes_nothing() -> None:
    changes = {"code": FIRST.code, "scope": FIRST.scope, "stopped_by": None}
    lacking = DIAGNOSIS.not_evaluated[0].replaced(**changes)
    blind = DIAGNOSIS.replaced(findings=(), not_evaluated=(lacking,))
    assert tracked_states(after(having(FIRST), blind)) == {FIRST.code: "unknown"}


def test_a_decision_stays_until_the_finding_is_worse() -> None:
    review = decided(decision="accept", owner="Ada", due=FRIDAY)
    low, high = having(graded("low")), having(graded("high"))
    (kept,) = after(low, low, review=review).findings
    assert (kept.decision, kept.owner, kept.due) == ("accept", "Ada", FRIDAY)
    (again,) = after(low, high, review=review).findings
    assert (again.decision, again.reopened, again.owner) == ("", "accept", "Ada")


def test_a_decision_about_something_smaller_does_not_hold() -> None:
    """Friday's capture is recorded with what Monday's meeting decided."""
    low, high = having(graded("low")), having(graded("high"))
    for severity, decision, reopened in (("low", "", "accept"), ("high", "accept", "")):
        review = decided(decision="accept", owner="Ada", severity=severity)
        (found,) = baseline.recorded(after(low), high, FRIDAY, review=review).findings
        assert (found.decision, found.reopened, found.owner) == (decision, reopened, "Ada")


def test_a_row_that_nobody_touched_decides_nothing() -> None:
    low = having(graded("low"))
    for review in (decided(severity="high"), None):
        earlier = after(low, review=decided(decision="accept", owner="Ada"))
        (found,) = baseline.recorded(earlier, low, FRIDAY, review=review).findings
        assert (found.decision, found.owner, found.severity) == ("accept", "Ada", "low")


def test_a_new_decision_ends_what_was_reopened() -> None:
    low, high = having(graded("low")), having(graded("high"))
    earlier = after(low, high, review=decided(decision="accept"))
    assert earlier.findings[0].reopened == "accept"
    for said, reopened in (({"decision": "reject"}, ""), ({"owner": "Ada"}, "accept")):
        (found,) = baseline.recorded(earlier, high, FRIDAY, review=decided(**said)).findings
        assert (found.decision, found.reopened) == (said.get("decision", ""), reopened)


def test_of_one_finding_in_several_captures_what_was_decided_counts() -> None:
    decision = decided(decision="accept", severity="low").decisions[0]
    blank = decision.replaced(decision="", owner="")
    for rows in ((blank, decision), (decision, blank)):
        review = Review(tool=Tool(version="1", engine="x"), workbook="w.xlsx", decisions=rows)
        assert [f.decision for f in baseline.of_review(review).findings] == ["accept"]


def test_a_review_is_a_history_of_one_meeting() -> None:
    choice = Choice(advice="graphs", decision="accept")
    review = decided(decision="accept", severity="low", share=0.1, recommendations=(choice,))
    past = baseline.of_review(review.replaced(names=("Ada",), day=MONDAY))
    assert (past.meetings[0].day, past.meetings[0].names) == (MONDAY, ("Ada",))
    (before,) = past.findings
    assert (before.finding, before.scope, before.state) == (FIRST.identity, FIRST.scope, "same")
    assert before.recommendations == (choice,)
    (now,) = baseline.recorded(past, having(graded("high")), FRIDAY).findings
    assert (now.state, now.was, now.reopened, now.recommendations) == ("worse", 0.1, "accept", ())


@pytest.mark.parametrize(
    "scope",
    [Scope(), Scope(rank=3, device=1, phase="decode"), Scope(device=0, operation="add, phase=x (1=2)")],
)
def test_the_scope_of_a_finding_is_read_back(scope: Scope) -> None:
    review = decided(severity="low")
    found = review.decisions[0].replaced(finding=identity("LCH101", scope))
    (tracked,) = baseline.of_review(review.replaced(decisions=(found,))).findings
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
    low, high = having(graded("low")), having(graded("high"))
    found = baseline.suppressed(after(low), FIRST.identity, "known driver bug", FRIDAY)
    assert found.hidden(FRIDAY) == {FIRST.identity}
    assert not found.hidden("2026-11-07")
    assert baseline.recorded(found, low, MONDAY).hidden(MONDAY)
    assert not baseline.recorded(found, high, MONDAY).hidden(MONDAY)
    with pytest.raises(InputError, match="not a finding of the history, which has: LCH101"):
        baseline.suppressed(found, "SYN999", "x", FRIDAY)


@pytest.fixture
def saved_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "one.json"
    path.write_bytes(json_report.render([DIAGNOSIS]))
    return path


def test_the_verbs(saved_history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", "record", str(saved_history), "--date", MONDAY, "--names", "Ada, Grace"]) == 0
    assert main(["review", "record", str(saved_history), "--date", FRIDAY]) == 0
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


def test_captures_of_one_meeting_are_one_record(saved_history: Path) -> None:
    """A finding that both have counts where its share is largest; none of the other's is closed."""
    other = saved_history.with_name("other.json")
    less = DIAGNOSIS.findings[0].replaced(impact=None)
    other.write_bytes(json_report.render([DIAGNOSIS.replaced(findings=(less,))]))
    assert main(["review", "record", str(saved_history), str(other), "--date", MONDAY]) == 0
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
    saved_history: Path, arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saved_history.exists()
    assert main(["review", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_a_file_that_is_no_history(saved_history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = baseline.path_of(Path(".advisor"))
    path.parent.mkdir(parents=True)
    path.write_bytes(saved_history.read_bytes())
    assert main(["review", "status"]) == 2
    assert "not a history of findings" in capsys.readouterr().err
