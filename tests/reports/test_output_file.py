from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.reports.output_file import check_target, write_atomic


def test_writes_with_the_usual_permissions(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_refuses_to_overwrite_without_force(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(b"old")
    with pytest.raises(InputError, match=r"report.json exists; add --force"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    write_atomic(target, b"new", force=True)
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop(*_: Any) -> None:
        raise error

    old = tmp_path / "old.json"
    old.write_bytes(b"old")
    monkeypatch.setattr("advisor.writing.rename", stop)
    for target in (old, tmp_path / "new.json"):
        with pytest.raises(error):
            write_atomic(target, b"new", force=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"old.json": b"old"}


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("advisor.writing.rename", full)
    with pytest.raises(InputError, match=r"cannot write .*: No space left on device"):
        write_atomic(tmp_path / "a", b"x")
    assert not list(tmp_path.iterdir())


def test_never_over_the_capture(tmp_path: Path) -> None:
    capture = tmp_path / "a.sqlite"
    capture.write_bytes(b"capture")
    link = tmp_path / "link"
    link.symlink_to(capture)
    with pytest.raises(InputError, match="is the capture itself"):
        check_target(link, force=True, inputs=[capture])


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomic(link, b"new", force=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_device_is_written_not_replaced() -> None:
    write_atomic(Path("/dev/null"), b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        check_target(tmp_path, force=True)
    with pytest.raises(InputError, match="there is no folder"):
        check_target(tmp_path / "no" / "report", force=True)


@pytest.mark.parametrize("piped", [True, False], ids=["pipe", "file"])
def test_standard_output_by_its_path(tmp_path: Path, piped: bool) -> None:
    """A pipe has no path of its own, and a file to which output goes exists already."""
    write = "from pathlib import Path; from advisor.reports.output_file import write_atomic as w"
    command = [sys.executable, "-c", f"{write}; w(Path('/dev/stdout'), b'whole')"]
    with (tmp_path / "out").open("wb") as file:
        done = subprocess.run(command, stdout=subprocess.PIPE if piped else file, check=True)
    assert (done.stdout if piped else (tmp_path / "out").read_bytes()) == b"whole"
