"""``advisor run`` with the nsys of this machine, which records programs without a GPU, too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.recording.watch import Limits, Watched
from tests.recording.test_run import Started, marked

pytestmark = pytest.mark.slow
PY = sys.executable
NSYS = shutil.which("nsys")


@pytest.fixture(scope="module", autouse=True)
def records(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips these tests where nsys is missing, or does not record at all (in some containers)."""
    if NSYS is None:
        pytest.skip("nsys is not installed here (Debian: nsight-systems of non-free)")
    folder = tmp_path_factory.mktemp("probe")
    words = [NSYS, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
    probe = Watched([*words, f"--output={folder}/x", "true"], folder, folder / "log")
    if probe.wait(Limits(seconds=30, flush_s=1), lambda *_: None, "").code:
        pytest.skip("nsys does not record here")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_FOLDER", str(tmp_path))


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(".advisor/runs/run-1/run.json").read_text())
    return found


def child(seconds: float, code: int) -> list[str]:
    """A program that starts another one, works, and ends with this code."""
    lines = [
        "import subprocess, sys, time",
        "print('parent', flush=True)",
        "subprocess.run([sys.executable, '-c', 'print(\"child\")'])",
        "open('working', 'w')",
        f"time.sleep({seconds})",
        f"sys.exit({code})",
    ]
    return [PY, "-c", "\n".join(lines)]


@pytest.mark.parametrize("code", [0, 3])
def test_from_a_command_to_a_diagnosis(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--once", "--delay", "0", "--", *child(1, code)]) == code
    said = capsys.readouterr()
    assert "CAP101 no-gpu-activity" in said.out
    assert "child" in said.err
    assert (record()["exit_code"], record()["state"]) == (code, "diagnosed")
    assert marked() == []


def test_a_program_shorter_than_the_delay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "1", "-q", "--", *child(0.5, 0)]) == 0
    assert "recorded again from its start" in capsys.readouterr().err


def test_a_window_of_time() -> None:
    begun = time.monotonic()
    assert main(["run", "--once", "-q", "--delay", "1", "--duration", "1", "--", *child(60, 0)]) == 0
    assert time.monotonic() - begun < 50
    assert record()["exit_code"] is None


def test_ctrl_c() -> None:
    code, out, _ = Started("--delay", "0", command=child(60, 0)).when(Path("working"), signal.SIGINT)
    assert code == 130
    assert "CAP101" in out
    assert record()["stopped"] == "Ctrl-C"
    assert marked() == []


def test_the_environment_of_the_program_is_its_own() -> None:
    code = "import os, tempfile; print('in', tempfile.gettempdir())"
    assert main(["run", "--once", "-q", "--delay", "0", "--", PY, "-c", code]) == 0
    assert f"in {tempfile.gettempdir()}\n" in Path(".advisor/runs/run-1/output.txt").read_text()
    assert not [p for p in os.listdir(".advisor/runs/run-1") if p == "tmp"]


def test_a_second_pass_leaves_out_what_this_release_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--delay", "0", "--duration", "5", "--flush", "20", "-q"]
    assert main(["run", *words, "--", *child(0.5, 0)]) == 0
    err = capsys.readouterr().err
    assert "pass 2 would add " in err
    assert record()["state"] == "diagnosed"
    assert marked() == []
