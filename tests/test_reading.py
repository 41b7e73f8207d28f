"""Side inputs are read whole and never without a limit; temporary folders do not outlive a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.reading import _LOCK, Scratch, decoded, parse_json, parse_saved, read_bytes, similar


def test_a_file_of_the_largest_size_is_read_and_a_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(bytes(3 << 20))
    assert len(read_bytes(path, 3 << 20)) == 3 << 20
    with pytest.raises(InputError, match="larger than 2 MB"):
        read_bytes(path, (3 << 20) - 1)


def test_the_nearest_name_is_offered_without_its_endings(tmp_path: Path) -> None:
    for name in ("decode.sqlite.xz", "prefill.sqlite"):
        (tmp_path / name).touch()
    assert similar(tmp_path / "decod.json") == f"; did you mean '{tmp_path / 'decode.sqlite.xz'}'?"
    assert similar(tmp_path / "other.sqlite") == similar(tmp_path / "no" / "decode.sqlite") == ""


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_is_read_in_the_coding_that_its_first_bytes_say(coding: str) -> None:
    mark = "\ufeff" if coding in ("utf-16-le", "utf-16-be") else ""
    assert decoded((mark + "Größe\n").encode(coding)) == "Größe\n"
    assert decoded(b"a\xffb") == "a\ufffdb"


def test_json_that_is_nested_too_deeply_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


def test_saved_numbers_stay_in_64_bits() -> None:
    text = f"[{2**63 - 1025}, {-(2**63) + 1025}, -0, 1.5e3, 5e-324]"
    assert parse_saved(text) == [2**63 - 1025, -(2**63) + 1025, 0, 1500.0, 5e-324]
    assert [type(n) for n in parse_saved(text)] == [int, int, int, float, float]
    for number in ("1e308", str(2**63), str(-(2**63)), "1e999", "NaN", "-Infinity", "9" * 5_000):
        assert isinstance(parse_json(f"[{number[:400]}]"), list)  # others may hold it
        with pytest.raises(ValueError, match="number out of range"):
            parse_saved(f"[{number}]")
    with pytest.raises(ValueError, match=f"number out of range: {'9' * 20}$"):
        parse_saved(f"[{'9' * 5_000}]")


pytest.importorskip("fcntl", reason="nothing is swept without file locks")

#: Makes a folder with a copy in it, says so, and lives until its input ends.
HOLD = """
import sys
from pathlib import Path
from advisor.reading import Scratch
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
