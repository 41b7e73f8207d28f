"""Temporary folders: gone at the end, and those of killed runs gone with the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.scratch import _LOCK, Scratch

pytest.importorskip("fcntl", reason="nothing is swept without file locks")

#: Makes a folder with a copy in it, says so, and lives until its input ends.
HOLD = """
import sys
from pathlib import Path
from advisor.scratch import Scratch
held = Scratch(Path(sys.argv[1]))
(held.path / "copy").write_text("secret")
print(held.path, flush=True)
sys.stdin.read()
"""


def holder(parent: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(parent)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_goes_with_its_content(tmp_path: Path) -> None:
    with Scratch(tmp_path) as folder:
        (folder / "copy").write_text("secret")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_goes_with_the_next_and_that_of_a_running_one_stays(tmp_path: Path) -> None:
    with holder(tmp_path) as killed, holder(tmp_path) as running:
        assert killed.stdout is not None
        assert running.stdout is not None
        left, used = Path(killed.stdout.readline().strip()), Path(running.stdout.readline().strip())
        killed.kill()
        killed.wait()
        assert (left / "copy").exists()
        with Scratch(tmp_path):
            assert not left.exists()
            assert (used / "copy").read_text() == "secret"


def test_other_folders_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "advisor-mine").mkdir()
    (tmp_path / "advisor-mine" / ".lock").touch()  # as other programs call theirs
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / _LOCK).touch()
    (tmp_path / "advisor-link").symlink_to(target)
    with Scratch(tmp_path):
        pass
    assert {p.name for p in tmp_path.iterdir()} == {"advisor-mine", "advisor-link", "elsewhere"}
    assert (target / _LOCK).exists()
    assert (tmp_path / "advisor-mine" / ".lock").exists()


def test_folders_in_use_in_the_same_process_stay(tmp_path: Path) -> None:
    with Scratch(tmp_path) as first, Scratch(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
        assert (first / _LOCK).stat().st_mode & 0o777 == 0o600


def test_folders_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "advisor-theirs"
    theirs.mkdir()
    (theirs / _LOCK).touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: theirs.stat().st_uid + 1)
        with Scratch(tmp_path):
            assert theirs.is_dir()
    with Scratch(tmp_path):
        assert not theirs.exists()


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="open files are not listed here")
def test_a_closed_folder_is_not_held(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with Scratch(tmp_path):
        assert len(os.listdir("/dev/fd")) > before
    assert len(os.listdir("/dev/fd")) == before
