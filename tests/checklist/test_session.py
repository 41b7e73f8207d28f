"""Answers, sessions, and the walk through the questions; nobody is asked here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from advisor.checklist import session
from advisor.checklist.items import CaptureFacts, checklist
from advisor.checklist.session import BACK, Reply, answered, parse, read_answers, walk, with_replies
from advisor.errors import InputError
from advisor.model.review import CheckEntry, Checklist
from tests.checklist.test_items import known

FACTS = {"capture.gpu_work_count": 5, "capture.kernel_count": 5, "capture.debug_build": False}


@pytest.fixture
def measured() -> Checklist:
    return checklist(known([FACTS]))


def of(listed: Checklist, name: str) -> CheckEntry:
    return next(e for e in listed.entries if e.id == name)


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "answer", "note"),
    [
        ("yes", "yes", ""),
        (True, "yes", ""),
        ("Y", "yes", ""),
        (False, "no", ""),
        ("no", "no", ""),
        ("n/a", "not_applicable", ""),
        ("not applicable", "not_applicable", ""),
        ("not-applicable", "not_applicable", ""),
        ("later", "later", ""),
        ({"answer": False, "note": " why "}, "no", "why"),
    ],
)
def test_spellings(value: object, answer: str, note: str) -> None:
    assert parse(value, "here") == Reply(answer, note)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["maybe", None, 3, {"answer": "yes", "reason": "x"}])
def test_other_answers_are_refused(value: object) -> None:
    with pytest.raises(InputError, match="here"):
        parse(value, "here")


def test_a_file_of_answers(tmp_path: Path, measured: Checklist) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("load-levels: yes\nshapes-chosen: {answer: no, note: 'not: yet'}\n")
    replies = read_answers(file, measured)
    assert replies == {"load-levels": Reply("yes"), "shapes-chosen": Reply("no", "not: yet")}


def test_the_json_of_a_review_gives_only_what_people_answered(tmp_path: Path, measured: Checklist) -> None:
    file = tmp_path / "a.json"
    rows = [
        {"id": "load-levels", "answer": "yes", "measured": "", "note": "two"},
        {"id": "cuda-collected", "answer": "yes", "measured": "yes", "note": ""},
        {"id": "shapes-chosen", "answer": "", "measured": "", "note": ""},
    ]
    file.write_text(json.dumps({"decisions": [], "checklist": rows}))
    assert read_answers(file, measured) == {"load-levels": Reply("yes", "two")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("load-level: yes\n", "did you mean 'load-levels'"),
        ("load-levels: maybe\n", "load-levels: invalid value 'maybe'; expected one of yes, no"),
        ("- yes\n", "must be a table"),
        ("a: [\n", "neither YAML nor JSON"),
        ("answers: 3\n", "must be a table"),
    ],
)
def test_a_faulty_file_is_one_line(tmp_path: Path, measured: Checklist, text: str, says: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=says) as error:
        read_answers(file, measured)
    assert "\n" not in str(error.value)


def test_a_person_stands_over_the_capture_and_both_are_kept(measured: Checklist) -> None:
    done = with_replies(measured, {"cuda-collected": Reply("no", "only one GPU")})
    entry = of(done, "cuda-collected")
    assert (entry.answer, entry.by, entry.note) == ("no", "person", "only one GPU")
    assert (entry.measured, entry.proof) == ("yes", "5 kernels among 5 GPU operations")


# --- the walk --------------------------------------------------------------------------------


class Person:
    """Says what it was told to, one answer after the other."""

    def __init__(self, *replies: object) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    def ask(self, entry: CheckEntry, checklist: Checklist, number: int, of: int):  # type: ignore[no-untyped-def]
        del checklist, number, of
        self.asked.append(entry.id)
        reply = self.replies.pop(0) if self.replies else None
        if isinstance(reply, BaseException):
            raise reply
        return reply


def test_only_what_is_open_is_asked_and_every_answer_is_kept(measured: Checklist) -> None:
    kept: list[Checklist] = []
    person = Person(Reply("yes"), Reply("later"), Reply("no"))
    done = walk(measured, person.ask, lambda c, _: kept.append(c) or c)
    open_ids = [e.id for e in measured.entries if e.open]
    assert person.asked == open_ids
    assert [len([e for e in k.entries if e.by == "person"]) for k in kept] == [1, 2, 3]
    assert [of(done, i).answer for i in open_ids[:4]] == ["yes", "later", "no", None]


def test_back_returns_to_the_question_before(measured: Checklist) -> None:
    person = Person(Reply("yes"), BACK, Reply("no"), Reply("yes"))
    done = walk(measured, person.ask, lambda c, _: c)
    first, second = [e.id for e in measured.entries if e.open][:2]
    assert person.asked[:4] == [first, second, first, second]
    assert (of(done, first).answer, of(done, second).answer) == ("no", "yes")
    assert walk(measured, Person(BACK).ask, lambda c, _: c) == measured


def test_a_file_answers_first_and_also_what_was_measured(measured: Checklist) -> None:
    person = Person()
    replies = {"cuda-collected": Reply("no"), "load-levels": Reply("yes")}
    done = walk(measured, person.ask, lambda c, _: c, frozenset(replies), replies=replies)
    assert of(done, "cuda-collected").answer == "no"
    assert "load-levels" not in person.asked
    assert "cuda-collected" not in person.asked


def test_an_interruption_keeps_what_was_said(measured: Checklist, tmp_path: Path) -> None:
    place = tmp_path / "x.checklist.yaml"
    person = Person(Reply("yes", "noted"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        walk(measured, person.ask, session.Shared(place, print).keep)
    back = session.restore(place, checklist(CaptureFacts()))
    first = next(e.id for e in measured.entries if e.open)
    assert (of(back, first).answer, of(back, first).note) == ("yes", "noted")


def test_two_answers_to_one_question_at_once_are_told(measured: Checklist, tmp_path: Path) -> None:
    place, told = tmp_path / "x.checklist.yaml", list[str]()
    session.start(place, measured, False)
    first, second = (session.Shared(place, told.append) for _ in range(2))
    for one in (first, second):
        one.keep(measured, {})
    first.keep(measured, {"load-levels": Reply("yes")})
    second.keep(measured, {"other-load": Reply("no")} | {"load-levels": Reply("no", "one load alone")})
    expected = "load-levels: answered 'yes' and 'no' (one load alone) by two sessions at once; "
    assert told == [expected + "'no' (one load alone) is kept"]
    merged = first.keep(measured, {"load-levels": Reply("yes"), "cuda-collected": Reply("yes")})
    assert told[1:] == [expected + "'no' (one load alone) is kept"]
    assert of(merged, "load-levels").answer == "no"
    first.keep(merged, {"load-levels": Reply("yes"), "cuda-collected": Reply("yes")})
    second.keep(merged, {"load-levels": Reply("no", "one load alone")})
    assert len(told) == 2  # each of them was told once


def test_the_same_answer_twice_is_no_contradiction(measured: Checklist, tmp_path: Path) -> None:
    place, told = tmp_path / "x.checklist.yaml", list[str]()
    session.start(place, measured, False)
    for _ in range(2):
        session.Shared(place, told.append).keep(measured, {"load-levels": Reply("yes")})
    assert told == []


# --- sessions --------------------------------------------------------------------------------


def test_names_and_files(tmp_path: Path) -> None:
    assert session.path_of("friday") == Path("friday.checklist.yaml")
    assert session.path_of(None) == Path("advisor.checklist.yaml")
    assert session.path_of("a/b.yaml") == Path("a/b.yaml")
    assert session.resume_command(Path("friday.checklist.yaml")).endswith("--session friday")
    assert session.resume_command(tmp_path / "x.yaml").endswith(f"--session {tmp_path}/x.yaml")


def test_a_session_survives_without_the_capture(measured: Checklist, tmp_path: Path) -> None:
    place = tmp_path / "x.checklist.yaml"
    replies = {"load-levels": Reply("yes"), "cuda-collected": Reply("no", "ü")}
    session.save(place, with_replies(measured, replies))
    assert place.read_text(encoding="utf-8").startswith("# A checklist of advisor; go on with: ")
    assert yaml.safe_load(place.read_text(encoding="utf-8"))["answers"]["load-levels"] == {"answer": "yes"}
    back = session.restore(place, checklist(CaptureFacts()))
    assert back.captures == measured.captures
    assert of(back, "release-build").answer == "yes"
    assert of(back, "release-build").by == "capture"
    entry = of(back, "cuda-collected")
    assert (entry.answer, entry.measured, entry.note) == ("no", "yes", "ü")
    # Numbers of a capture that is there again win over those that were kept.
    again = session.restore(place, checklist(known([{**FACTS, "capture.debug_build": True}])))
    assert of(again, "release-build").answer == "no"
    # Commands still name the capture, not a word for one.
    assert [e.command for e in back.entries] == [e.command for e in measured.entries]
    assert any(measured.captures[0] in (e.command or "") for e in back.entries)


def test_a_session_may_be_called_json(measured: Checklist, tmp_path: Path) -> None:
    path = tmp_path / "review.json"
    session.save(path, measured)
    assert session.restore(path, measured) == measured


def test_the_session_to_resume(tmp_path: Path, measured: Checklist) -> None:
    with pytest.raises(InputError, match="no such session"):
        session.find(None, tmp_path)
    session.save(tmp_path / "one.checklist.yaml", measured)
    assert session.find(None, tmp_path).name == "one.checklist.yaml"
    session.save(tmp_path / "two.checklist.yaml", measured)
    with pytest.raises(InputError, match="one, two"):
        session.find(None, tmp_path)
    assert session.find("two", tmp_path).name == "two.checklist.yaml"
    session.save(tmp_path / "advisor.checklist.yaml", measured)
    assert session.find(None, tmp_path).name == "advisor.checklist.yaml"


@pytest.mark.parametrize("text", ["schema: 2\nanswers: {}\n", "schema: 1\n", "a: 1\n"])
def test_what_is_no_session_is_refused(tmp_path: Path, text: str) -> None:
    place = tmp_path / "x.yaml"
    place.write_text(text)
    with pytest.raises(InputError, match="not a session"):
        session.restore(place, checklist(CaptureFacts()))


def test_questions_of_another_release_are_left_behind(tmp_path: Path, measured: Checklist) -> None:
    place = tmp_path / "x.yaml"
    session.save(place, measured)
    content = yaml.safe_load(place.read_text(encoding="utf-8"))
    content["answers"]["no-longer-asked"] = {"answer": "yes"}
    place.write_text(yaml.safe_dump(content))
    assert session.restore(place, checklist(CaptureFacts())).entries


def test_saving_is_all_or_nothing(
    tmp_path: Path, measured: Checklist, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "x.checklist.yaml"
    session.save(place, measured)
    before = place.read_bytes()

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stopped)
    changed = measured.replaced(entries=tuple(answered(e, Reply("no")) for e in measured.entries))
    with pytest.raises(KeyboardInterrupt):
        session.save(place, changed)
    assert place.read_bytes() == before
    assert list(tmp_path.iterdir()) == [place]
