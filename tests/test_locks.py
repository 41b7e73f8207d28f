"""The lock of a kept file or folder: who waits, for how long, and what is left."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from advisor import locks
from advisor.locks import InUse, locked
from advisor.writing import rename, replace_file

#: Holds the lock of a file, says so, and lives until its input ends.
HOLD = """
import sys
from pathlib import Path
from advisor.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLD, str(path)]
    begun = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert begun.stdout is not None
    assert begun.stdout.readline() == "held\n"
    return begun


def test_another_process_is_told_and_succeeds_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    with holder(file) as other:
        with (
            pytest.raises(InUse, match=r"kept.json: another advisor is changing it; try again"),
            locked(file, 0),
        ):
            pass
        assert other.stdin is not None
        other.stdin.close()
        with locked(file, 300) as sure:
            assert sure
    assert [*tmp_path.iterdir()] == []


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    with holder(file) as other:
        other.kill()
        other.wait()
        assert [p.name for p in tmp_path.iterdir()] == [".kept.json.lock"]
        with locked(file, 0):
            pass
    assert [*tmp_path.iterdir()] == []


def test_a_link_has_the_lock_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "kept.json").touch()
    (tmp_path / "link").symlink_to("kept.json")
    with locked(tmp_path / "kept.json"), pytest.raises(InUse), locked(tmp_path / "link", 0):
        pass


def test_folders_that_stay_empty_go_again(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b" / "kept.json"):
        pass
    assert [*tmp_path.iterdir()] == []
    with locked(tmp_path / "a" / "b" / "kept.json"):
        (tmp_path / "a" / "b" / "kept.json").touch()
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["kept.json"]


@pytest.mark.skipif(locks.fcntl is None, reason="other locks")
def test_on_a_disk_without_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with locked(tmp_path / "kept.json") as sure:
        assert not sure


def test_a_file_that_came_into_being_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "new.json", tmp_path / "other"
    replace_file(file, [b"first"], new=True)
    with pytest.raises(FileExistsError):
        replace_file(file, [b"second"], new=True)
    other.write_bytes(b"third")

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(FileExistsError):
        rename(other, file, new=True)
    rename(other, tmp_path / "next", new=True)
    assert (file.read_bytes(), (tmp_path / "next").read_bytes()) == (b"first", b"third")
    assert {p.name for p in tmp_path.iterdir()} == {"new.json", "next"}
