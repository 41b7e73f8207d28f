"""Files are written whole or not at all, and are on the disk when that is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.writing import replace_file


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is written out and renamed, in order, by name."""
    calls: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        calls.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def replaced(source: str, target: Path) -> None:
        calls.append(("replace", str(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return calls


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of descriptors are Linux's")
def test_the_content_is_on_the_disk_before_the_name_and_then_the_name(
    seen: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Renamed first, a file that loses power is empty, and the old one gone."""
    replace_file(tmp_path / "kept.json", (b"new",))
    (content, temporary), *rest = seen
    assert (content, Path(temporary).parent) == ("sync", tmp_path)
    assert rest == [("replace", str(tmp_path / "kept.json")), ("sync", str(tmp_path))]
    assert (tmp_path / "kept.json").read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fails_keeps_the_old_file(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "kept").write_text("old")
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=os.strerror(number)):
        replace_file(tmp_path / "kept", (b"new",))
    assert (tmp_path / "kept").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_that_writes_nothing_out_is_no_fault(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuses)
    replace_file(tmp_path / "kept", (b"new",))
    assert (tmp_path / "kept").read_text() == "new"


def test_pieces_that_fail_leave_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        replace_file(tmp_path / "kept", pieces())
    assert list(tmp_path.iterdir()) == []
