"""Parsed rules and knowledge are kept between runs; whatever is wrong with the cache only costs
time."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from advisor import cache
from advisor.cache import cached, content_of
from advisor.engine.load import builtin_dir, load_rules, read_rules
from advisor.knowledge import files
from advisor.knowledge.shapes import Sign
from advisor.pipeline import diagnose


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "inference-advisor"


def sign(weight: float) -> Sign:
    return Sign(match="vllm", weight=weight)


def never() -> Sign:
    raise AssertionError("made again although it is in the cache")


def test_the_same_content_is_made_once() -> None:
    assert cached("signs", [b"a"], lambda: sign(1)) == sign(1)
    assert cached("signs", [b"a"], never) == sign(1)


def test_the_folder_is_its_users_alone(folder: Path) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_other_content_is_made_anew() -> None:
    cached("signs", [b"a", b"b"], lambda: sign(1))
    assert cached("signs", [b"ab"], lambda: sign(2)) == sign(2)


def test_two_versions_share_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    with monkeypatch.context() as patched:
        patched.setattr(cache, "__version__", "99.0")
        assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)
    assert cached("signs", [b"a"], never) == sign(1)


@pytest.mark.parametrize("broken", [b"", b"\x80", b"no pickle", pickle.dumps(os.system)])
def test_a_broken_file_is_ignored_and_replaced(folder: Path, broken: bytes) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    (file,) = folder.iterdir()
    file.write_bytes(broken)
    assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)
    assert cached("signs", [b"a"], never) == sign(2)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_or_a_device_in_its_place_is_ignored_and_replaced(folder: Path) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    (file,) = folder.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)
    assert file.is_file()
    file.unlink()
    file.symlink_to("/dev/zero")
    assert cached("signs", [b"a"], lambda: sign(3)) == sign(3)
    assert cached("signs", [b"a"], never) == sign(3)
    assert not file.is_symlink()


def test_nothing_is_left_of_a_file_whose_writing_was_broken_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    killed, running = folder / "killed.part", folder / "running.part"
    for part in (killed, running):
        part.touch()
    os.utime(killed, (0, 0))
    cached("signs", [b"b"], lambda: sign(1))
    assert not killed.exists()
    assert running.exists()
    before = set(folder.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", lambda *_: never_written())
        with pytest.raises(KeyboardInterrupt):
            cached("signs", [b"c"], lambda: sign(1))
    assert set(folder.iterdir()) == before


def never_written() -> None:
    raise KeyboardInterrupt


class Planted:
    """Unpickled, it would make a folder."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.made),)


def test_a_planted_file_runs_no_code(folder: Path, tmp_path: Path) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    (file,) = folder.iterdir()
    file.write_bytes(pickle.dumps(Planted(tmp_path / "planted")))
    assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize(
    "planted",
    [
        b"csubprocess\nPopen\n.",
        b"cadvisor.knowledge.files\nPath\n.",
        b"cadvisor.knowledge.files\nload\n.",
        b"\x80\x04\x8c\x18advisor.knowledge.files\x8c\tPath.home\x93.",
    ],
    ids=["another module", "what a module of ours imports", "a function of ours", "a method"],
)
def test_a_file_holds_nothing_but_our_data_classes(folder: Path, planted: bytes) -> None:
    cached("signs", [b"a"], lambda: sign(1))
    (file,) = folder.iterdir()
    file.write_bytes(planted)
    assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)


def test_a_change_of_the_code_makes_everything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"findings.py", "load.py", "whatifs.py"} <= {Path(p).name for p, *_ in cache._stamps()}
    cached("signs", [b"a"], lambda: sign(1))
    monkeypatch.setattr(cache, "_stamps", lambda: [("findings.py", 1, 2)])
    assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)


def test_folders_are_made_and_files_are_their_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    cached("signs", [b"a"], lambda: sign(1))
    (file,) = (tmp_path / "not" / "there" / "inference-advisor").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["a file", "no home"])
def test_without_a_folder_everything_is_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "a file":
        (tmp_path / "taken").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    else:
        monkeypatch.setattr(cache, "folder", lambda: None)
    assert cached("signs", [b"a"], lambda: sign(1)) == sign(1)


def test_a_folder_of_somebody_else_stays_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing may be written, or what lies there may not be replaced."""
    cached("signs", [b"a"], lambda: sign(1))
    (file,) = folder.iterdir()
    file.write_bytes(b"not ours")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for module, name in ((os, "replace"), (cache, "NamedTemporaryFile")):
        monkeypatch.setattr(module, name, refuse)
        assert cached("signs", [b"a"], lambda: sign(2)) == sign(2)
        assert [(path, path.read_bytes()) for path in folder.iterdir()] == [(file, b"not ours")]


@pytest.mark.parametrize("read", [files.kernel_families, files.step_patterns, files.call_site_patterns])
def test_patterns_are_read_once(read: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    read.__wrapped__()  # type: ignore[attr-defined]
    monkeypatch.setattr(files, "load", lambda *_: never())
    read.__wrapped__()  # type: ignore[attr-defined]


def test_compiled_rules_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = partial(diagnose._program_of.__wrapped__, "trace", (builtin_dir(),))
    first = compiled((), ())
    monkeypatch.setattr("advisor.engine.compile.compile_rules", lambda *_: never())
    again = compiled((), ())
    assert (again.strata, again.params) == (first.strata, first.params)
    assert any(path.name.startswith("program_trace-") for path in folder.iterdir())
    with pytest.raises(AssertionError):  # a threshold of the user's own
        compiled(("SYN101.min_idle=0.2",), ())


def test_what_cannot_be_made_is_not_kept(folder: Path) -> None:
    with pytest.raises(AssertionError):
        cached("signs", [b"a"], never)
    assert not folder.exists()


def test_the_newest_files_of_a_name_stay(folder: Path) -> None:
    for i in range(10):
        cached("signs", [bytes([i])], lambda: sign(1))
        for file in folder.iterdir():
            os.utime(file, ns=(known := file.stat().st_mtime_ns - 10**9, known))
    cached("others", [b"a"], lambda: sign(1))
    assert len([*folder.glob("signs-*")]) == 8
    assert len([*folder.glob("others-*")]) == 1
    assert cached("signs", [bytes([9])], never) == sign(1)
    assert cached("signs", [bytes([0])], lambda: sign(2)) == sign(2)


def test_rules_from_the_cache_are_the_rules_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    load_rules()
    monkeypatch.setattr("advisor.engine.load.read_rules", never)
    kept = load_rules()
    read, problems = read_rules([builtin_dir()])
    assert kept.rules == read.rules
    assert not problems
    code = read.rules[0].code
    assert kept.problem(code, ("title",), "is wrong") == read.problem(code, ("title",), "is wrong")


def test_content_counts_not_when_it_was_written(tmp_path: Path) -> None:
    rule = tmp_path / "rule.yaml"
    rule.write_text("limit: 1")
    first, known = content_of([str(rule)]), rule.stat()
    os.utime(rule, ns=(0, 0))
    assert content_of([str(rule)]) == first
    rule.write_text("limit: 2")  # as long as before, and made to look as old
    os.utime(rule, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert content_of([str(rule)]) != first
    rule.write_text("limit: 1")
    assert content_of([str(rule)]) == first


def test_files_that_have_not_changed_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = tmp_path / "rule.yaml"
    rule.write_text("limit: 1")
    monkeypatch.setattr(cache, "_SETTLED_NS", 0)  # as if it had been there for long
    first = content_of([str(rule)])
    with monkeypatch.context() as patched:
        patched.setattr(cache, "_read", lambda _: never())
        assert content_of([str(rule)]) == first
    rule.write_text("limit: 2")
    assert content_of([str(rule)]) != first


def test_a_file_that_just_changed_is_read_again(tmp_path: Path, folder: Path) -> None:
    rule = tmp_path / "rule.yaml"
    rule.write_text("limit: 1")
    content_of([str(rule)])
    assert not folder.exists()  # the next change may come within the resolution of the times


def test_what_cannot_be_read_as_a_file_has_a_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "nowhere")
    paths = [str(tmp_path / name) for name in ("pipe.yaml", "link.yaml")]
    assert content_of(paths) == content_of(paths)
    assert content_of(paths[:1]) != content_of(paths[1:])


def test_rules_with_the_same_content_are_not_compiled_again(tmp_path: Path) -> None:
    rule = next(builtin_dir().rglob("SYN101.yaml"))
    (tmp_path / "own").mkdir()
    own = tmp_path / "own" / rule.name
    own.write_bytes(rule.read_bytes())
    folders = builtin_dir(), tmp_path / "own"
    compiled = partial(diagnose.program_about, "trace", folders, ())
    first = compiled()
    os.utime(own, ns=(0, 0))
    assert compiled() is first
    known = own.stat()
    text = own.read_text()
    own.write_text(text.replace("title: ", "title: X", 1)[: len(text)])
    os.utime(own, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert compiled() is not first
