"""Temporary folders: gone at the end, and those of killed runs gone with the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.scratch import Scratch

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
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / ".lock").touch()
    (tmp_path / "advisor-link").symlink_to(target)
    with Scratch(tmp_path):
        pass
    assert {p.name for p in tmp_path.iterdir()} == {"advisor-mine", "advisor-link", "elsewhere"}
    assert (target / ".lock").exists()
