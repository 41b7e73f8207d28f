"""`advisor capture`: formats, files, refusals, and its questions in a real terminal."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from advisor.knowledge.verb_files import capture_goals
from tests.checklist.test_wizard import DOWN, ENTER, ROOT, ended, environment
from tests.cli.conftest import Run

Captured = pytest.CaptureFixture[str]
pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")


def test_a_plan_fits_80_columns_and_can_be_pasted(run: Run, capsys: Captured) -> None:
    assert run("capture", "bandwidth", "--engine", "vllm", "--where", "kubernetes") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for part in ("1 Go in", "2 Check", "4 Record", "Options", "Mind", "Variants", "Again: advisor"):
        assert part in shown


def test_quiet_means_commands_only(run: Run, capsys: Captured) -> None:
    """As a shell reads them: no heading, no explanation, nothing that belongs into the program."""
    assert run("capture", "tail", "--engine", "pytorch", "-q") == 0
    out = capsys.readouterr().out.replace("\\\n", "")
    programs = [line.split()[0] for line in out.splitlines()]
    assert set(programs) == {"nsys", "nvidia-smi", "advisor"}
    assert "nsys profile --trace=cuda,nvtx" in out
    assert "cudaProfilerStart()" not in out


def test_your_own_command(run: Run, capsys: Captured) -> None:
    assert run("capture", "tail", "--format", "json", "--", "python", "my serve.py", "-x") == 0
    plan = json.loads(capsys.readouterr().out)
    (line,) = next(s for s in plan["steps"] if s["id"] == "record")["lines"]
    assert line["command"].endswith("-o advisor_tail python 'my serve.py' -x")


def test_a_command_file_for_nsys(run: Run, capsys: Captured, tmp_path: Path) -> None:
    args = ("capture", "kernel-breakdown", "--engine", "tensorrt-llm", "--command-file", "n.cfg")
    assert run(*args) == 0
    lines = (tmp_path / "n.cfg").read_text(encoding="utf-8").splitlines()
    assert "--trace=cuda,nvtx" in lines
    assert "--cuda-graph-trace=node" in lines
    assert any(line.startswith("--env-var=TLLM_PROFILE_START_STOP=100-150,") for line in lines)
    # nsys 2023.4 ignores all options of a file that begins with a comment.
    assert all(line.startswith("--") for line in lines)
    said = capsys.readouterr().err
    assert "nsys profile --command-file=n.cfg" in said
    assert "(by: advisor capture kernel-breakdown --engine tensorrt-llm)" in said
    assert run(*args) == 2
    assert "add --force" in capsys.readouterr().err


def test_list_and_troubleshoot(run: Run, capsys: Captured) -> None:
    assert run("capture", "--list") == 0
    assert "running-server" in capsys.readouterr().out
    assert run("capture", "--troubleshoot", "leftover-qdstrm") == 0
    assert "QdstrmImporter" in capsys.readouterr().out
    assert run("capture", "--troubleshoot") == 0
    shown = capsys.readouterr().out
    assert "What is wrong?" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert run("capture", "--troubleshoot", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["symptoms"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "no terminal; name a goal: kernel-breakdown"),
        (("kernels",), "no goal 'kernels'"),
        (("./serve.py",), "unknown goal './serve.py'; expected one of"),
        (("tail", "--phase", "train"), "invalid value 'train'; expected one of prefill, decode"),
        (("tail", "--nsys", "new"), "'new' is not a release"),
        (("tail", "--format", "xml"), "expected one of text, json"),
        (("tail", "-o", "a", "--command-file", "a"), "both name a"),
        (("--troubleshoot", "a-symptom"), "no symptom 'a-symptom'"),
        (("--troubleshoot", "no-cuda", "no-nvtx"), "takes one symptom"),
    ],
)
def test_refusals_are_one_line(run: Run, capsys: Captured, args: tuple[str, ...], says: str) -> None:
    assert run("capture", *args) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def terminal(folder: Path, *args: str, columns: int = 100):  # type: ignore[no-untyped-def]
    return pexpect.spawn(
        sys.executable,
        [str(ROOT / "tests" / "cli" / "driver.py"), "capture", *args],
        cwd=str(folder),
        env=environment(),
        encoding="utf-8",
        dimensions=(50, columns),
        timeout=120,
    )


def test_it_asks_where_nothing_is_said(tmp_path: Path) -> None:
    child = terminal(tmp_path, "-o", "plan.txt")
    for question, keys in (
        ("What is to be found out", "2"),
        ("Which serving engine", "b"),
        ("What is to be found out", "3"),
        ("Which serving engine", DOWN),
        ("Which phase", "3"),
        ("Where does it run", "5"),
        ("How many ranks", "\x15" + "8"),
        ("Your command", "python x.py"),
    ):
        child.expect(question)
        child.send(keys + ENTER)
    assert ended(child) == 0
    text = (tmp_path / "plan.txt").read_text(encoding="utf-8")
    assert "advisor capture bandwidth --engine vllm --phase decode --where slurm --ranks 8 --" in (
        " ".join(text.split())
    )


@pytest.mark.slow
def test_choices_are_whole_in_a_narrow_terminal(tmp_path: Path) -> None:
    child = terminal(tmp_path, columns=60)
    child.expect("h[)] help")
    words = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", child.before).split())
    for goal in capture_goals().goals:
        assert goal.question in words
    child.send("q" + ENTER)
    assert ended(child) == 130


@pytest.mark.slow
def test_ctrl_c_while_it_asks(tmp_path: Path) -> None:
    child = terminal(tmp_path)
    child.expect("What is to be found out")
    child.sendcontrol("c")
    child.expect("advisor: interrupted")
    assert ended(child) == 130


@pytest.mark.slow
def test_it_walks_from_symptom_to_remedy(tmp_path: Path) -> None:
    child = terminal(tmp_path, "--troubleshoot")
    child.expect("What is wrong")
    child.send("3" + ENTER)
    child.expect("What did nsys start")
    child.send("b" + ENTER)
    child.expect("What is wrong")
    child.send("3" + ENTER)
    child.expect("What did nsys start")
    child.send("1" + ENTER)
    child.expect("Put nsys in front of the server")
    assert ended(child) == 0
