"""The wizard in a real terminal: finish, interrupt and resume, go back, refuse, no input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from advisor.knowledge.verb_files import checklist_items

pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [str(ROOT / "tests" / "cli" / "driver.py"), "checklist"]
IDS = [item.id for item in checklist_items().items]
#: What the stand-in capture of the driver leaves open last.
LAST = IDS[-3:]
DOWN, ENTER = "\x1b[B", "\r"


def environment() -> dict[str, str]:
    dropped = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    # This terminal answers no question about the cursor, and each prompt would wait a second for it.
    quick = {"PROMPT_TOOLKIT_NO_CPR": "1"}
    return {**kept, **quick, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}


def terminal(folder: Path, *args: str):  # type: ignore[no-untyped-def]
    return pexpect.spawn(
        sys.executable,
        [*COMMAND, *args],
        cwd=str(folder),
        env=environment(),
        encoding="utf-8",
        dimensions=(50, 100),
        timeout=120,
    )


def unattended(folder: Path, *args: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """The checklist without a terminal."""
    return subprocess.run(
        [sys.executable, *COMMAND, *args],
        cwd=folder,
        env=environment(),
        input=said,
        capture_output=True,
        check=False,
        text=True,
    )


def answer(child, key: str, note: str = "") -> None:  # type: ignore[no-untyped-def]
    """Wait for a question, answer it by its key and give a note."""
    child.expect("Answer")
    child.expect("later")
    child.send(key + ENTER)
    if key != "l":
        child.expect("Note")
        child.send(note + ENTER)


def ended(child) -> int:  # type: ignore[no-untyped-def]
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus if child.exitstatus is not None else -1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.sqlite").touch()
    given = {name: "yes" for name in IDS if name not in LAST}
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    return tmp_path


def saved(folder: Path, name: str = "advisor") -> dict[str, dict[str, str]]:
    text = (folder / f"{name}.checklist.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = yaml.safe_load(text)["answers"]
    return found


@pytest.mark.slow
def test_finish(folder: Path) -> None:
    child = terminal(
        folder,
        "a.sqlite",
        "--session",
        "friday",
        "--answers",
        "answers.yaml",
        "-o",
        "result.json",
        "--format",
        "json",
    )
    child.expect("questions? left to answer")
    child.expect(rf"{len(IDS) - 2}/{len(IDS)}")
    answer(child, "n", "TTFT quoted from a trace")
    answer(child, "x")
    answer(child, "l")
    assert ended(child) == 0
    assert saved(folder, "friday")[LAST[0]] == {"answer": "no", "note": "TTFT quoted from a trace"}
    done = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    by_id = {e["id"]: e["answer"] for e in done["entries"]}
    assert [by_id[i] for i in LAST] == ["no", "not_applicable", "later"]
    assert done["captures"] == ["/data/captures/2026-11-20/decode_[eager]_batch_size_1.sqlite"]


@pytest.mark.slow
def test_every_answer_is_saved_interrupt_and_resume(folder: Path) -> None:
    child = terminal(folder, "--answers", "answers.yaml", "--session", "mine")
    answer(child, "y", "first")
    child.expect("Answer")
    # Saved before the next question is answered.
    assert saved(folder, "mine")[LAST[0]] == {"answer": "yes", "note": "first"}
    child.sendcontrol("c")
    child.expect(re.escape("advisor checklist --resume --session mine"))
    assert ended(child) == 130
    again = terminal(folder, "--resume", "--session", "mine")
    again.expect("2 questions left to answer")
    again.expect("1/2")
    answer(again, "y")
    answer(again, "n", "not yet")
    again.expect("1 no")
    assert ended(again) == 0
    assert [saved(folder, "mine")[i]["answer"] for i in LAST] == ["yes", "yes", "no"]
    assert saved(folder, "mine")[LAST[0]]["note"] == "first"


@pytest.mark.slow
def test_an_interrupted_note_leaves_the_question_open(folder: Path) -> None:
    child = terminal(folder, "--answers", "answers.yaml")
    child.expect("Answer")
    child.send("y" + ENTER)
    child.expect("Note")
    child.sendcontrol("c")
    assert ended(child) == 130
    assert LAST[0] not in saved(folder)


@pytest.mark.slow
def test_arrows_and_back(folder: Path) -> None:
    child = terminal(folder, "--answers", "answers.yaml")
    child.expect("Answer")
    child.expect("later")
    child.send(DOWN + ENTER)
    child.expect("Note")
    child.send("oops" + ENTER)
    child.expect("Answer")
    child.expect("back")
    child.send("b" + ENTER)
    answer(child, "y", "\x15right")
    answer(child, "y")
    answer(child, "y")
    assert ended(child) == 0
    assert saved(folder)[LAST[0]] == {"answer": "yes", "note": "right"}


@pytest.mark.slow
def test_help_and_quit(folder: Path) -> None:
    child = terminal(folder, "--answers", "answers.yaml")
    child.expect("help")
    child.send("h" + ENTER)
    child.expect("b goes back to the question before")
    answer(child, "y", "h")
    child.expect("b goes back to the question before")
    child.expect("b: back, q: quit, h: help")
    child.send("kept" + ENTER)
    child.expect("Answer")
    child.expect("help")
    child.send("q" + ENTER)
    child.expect(re.escape("Saved. Go on with: advisor checklist --resume"))
    assert ended(child) == 130
    assert saved(folder)[LAST[0]] == {"answer": "yes", "note": "kept"}


@pytest.mark.slow
def test_the_eight_steps(folder: Path) -> None:
    """Only they are asked and shown; answers to other questions of the session stay."""
    done = unattended(folder, "--short", "--no-input", "--session", "s", "--answers", "answers.yaml")
    assert (done.returncode, done.stdout.splitlines()[-1][:12]) == (0, "10 questions")
    child = terminal(folder, "--short", "--resume", "--session", "s")
    child.expect("1 question left to answer")
    answer(child, "y")
    assert ended(child) == 0
    assert saved(folder, "s")["documented"]["answer"] == "yes"


@pytest.mark.slow
def test_back_from_the_note_to_the_answer(folder: Path) -> None:
    child = terminal(folder, "--answers", "answers.yaml")
    answer(child, "y", "b")
    answer(child, "n", "why not")
    answer(child, "y")
    answer(child, "y")
    assert ended(child) == 0
    assert saved(folder)[LAST[0]] == {"answer": "no", "note": "why not"}


@pytest.mark.slow
def test_what_the_capture_says_is_shown_first(folder: Path) -> None:
    child = terminal(folder, "a.sqlite", "--answers", "answers.yaml")
    child.expect("answers [0-9]+ of [0-9]+ questions")
    child.expect("launches-analysed: .*55.3 % of the window waits for the next launch")
    # Only the open prompt saves on Ctrl-C; before it the interrupt is nobody's answer.
    child.expect("Answer")
    child.expect("later")
    child.sendcontrol("c")
    child.expect("Saved")
    assert ended(child) == 130


def test_without_a_terminal_it_refuses(folder: Path) -> None:
    done = unattended(folder, "a.sqlite", said="y\ny\n")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("advisor: error: this asks questions and there is no terminal")
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in folder.iterdir()) == ["a.sqlite", "answers.yaml"]


def test_no_input_takes_the_same_path(folder: Path) -> None:
    done = unattended(folder, "--answers", "answers.yaml", "--no-input", "--session", "ci")
    assert (done.returncode, done.stderr) == (0, "Saved in ci.checklist.yaml.\n")
    assert done.stdout.splitlines()[-1].endswith("3 open")
    by_wizard = terminal(folder, "--answers", "answers.yaml", "--session", "person")
    by_wizard.expect("Answer")
    by_wizard.sendcontrol("c")
    assert ended(by_wizard) == 130
    assert saved(folder, "ci") == saved(folder, "person")
