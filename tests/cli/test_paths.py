"""From folders to the captures that are meant."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from advisor.cli.main import main
from advisor.errors import InputError
from advisor.pipeline.inputs import expand
from tests.builder import Export
from tests.kineto_builder import Profile


def capture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return Export().gpu().process(1).launch(at=0).write(path)


def test_the_captures_in_a_folder_and_nothing_else(tmp_path: Path) -> None:
    two = [capture(tmp_path / "a.sqlite"), Profile().launch(at=0).write(tmp_path / "b.json")]
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "notes.txt").write_text("x")
    older = capture(tmp_path / "older" / "1" / "c.sqlite")
    assert expand([tmp_path]) == [*two, older]
    assert expand([two[1], tmp_path]) == [two[1], two[0], older]


def test_a_mistyped_name_is_answered_by_the_nearest(tmp_path: Path) -> None:
    capture(tmp_path / "decode.sqlite")
    with pytest.raises(InputError, match=r"no such file or folder; did you mean '.*/decode\.sqlite'\?"):
        expand([tmp_path / "deocde.sqlite"])
    with pytest.raises(InputError, match=r"no such file or folder$"):
        expand([tmp_path / "x"])
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(InputError, match=r"no such file or folder$"):
        expand([tmp_path / "link"])


def test_links_in_a_circle_are_not_taken_for_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match=r"a: cannot be read \(Too many levels"):
        expand([tmp_path / "a"])


def test_a_line_break_in_a_name_does_not_break_the_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a\nb\u2028c.sqlite").write_bytes(b"x")
    assert main([str(tmp_path / "a\nb\u2028c.sqlite")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "a?b?c.sqlite: not a SQLite database" in told


@pytest.mark.parametrize("verb", [(), ("diagnose",), ("stats",)])
def test_an_empty_name_is_not_the_current_folder(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(tmp_path / "a.sqlite")
    monkeypatch.chdir(tmp_path)
    assert main([*verb, ""]) == 2
    assert capsys.readouterr().err == "advisor: error: an empty argument; is a variable of the shell unset?\n"


def test_one_that_is_missing_among_several_is_left_to_the_reader(tmp_path: Path) -> None:
    there, missing = capture(tmp_path / "a.sqlite"), tmp_path / "b.sqlite"
    assert expand([there, missing]) == [there, missing]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_among_the_ranks_of_a_folder_is_left_to_the_reader(tmp_path: Path) -> None:
    there, pipe = capture(tmp_path / "rank0.sqlite"), tmp_path / "rank1.sqlite"
    os.mkfifo(pipe)
    assert expand([tmp_path]) == [there, pipe]


def test_an_empty_folder_named_like_a_rank_is_left_to_the_reader(tmp_path: Path) -> None:
    files = [capture(tmp_path / "files" / f"rank{i}.sqlite") for i in range(2)]
    for name in ("rank2", "rank0", "logs", ".rank3"):
        (tmp_path / "files" / name).mkdir()
    assert expand([tmp_path / "files"]) == [*files, tmp_path / "files" / "rank2"]
    inside = capture(tmp_path / "folders" / "rank0" / "trace.sqlite")
    (tmp_path / "folders" / "rank1" / "logs1").mkdir(parents=True)
    assert set(expand([tmp_path / "folders"])) == {inside, tmp_path / "folders" / "rank1"}


def test_one_that_may_not_be_read_among_several_is_left_to_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [capture(tmp_path / "one.sqlite"), capture(tmp_path / "two.sqlite")]

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert expand(files) == files


def test_a_folder_for_each_rank(tmp_path: Path) -> None:
    ranks = [capture(tmp_path / f"rank{i}" / "trace.sqlite") for i in range(3)]
    capture(tmp_path / ".cache" / "trace.sqlite")
    assert expand([tmp_path]) == ranks


def test_reports_beside_captures_are_named_where_nothing_can_export_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, report = capture(tmp_path / "a.sqlite"), tmp_path / "b.nsys-rep"
    for name in ("a.nsys-rep", "b.nsys-rep"):
        (tmp_path / name).write_bytes(b"report")
    monkeypatch.setattr("advisor.pipeline.inputs.which", lambda _: None)
    assert expand([tmp_path]) == [there]
    assert caplog.text.count(f"nsys export --type sqlite {report}") == 1
    monkeypatch.setattr("advisor.pipeline.inputs.which", lambda _: "/bin/nsys")
    assert expand([tmp_path]) == [there, report]


def test_a_folder_without_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.pipeline.inputs.which", lambda _: None)  # else nsys exports the report
    (tmp_path / "logs").mkdir()
    with pytest.raises(InputError, match="no captures"):
        expand([tmp_path])
    (tmp_path / "logs" / "run.nsys-rep").write_bytes(b"report")
    with pytest.raises(InputError, match=r"nsys export --type sqlite .*/logs/run\.nsys-rep"):
        expand([tmp_path])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind here")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    with pytest.raises(InputError, match="cannot be read"):
        expand([folder])


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no /dev/fd on this machine")
@pytest.mark.parametrize("verb", ["doctor", "stats", "facts", "explain LCH101 --trace"])
def test_verbs_for_one_capture_read_a_pipe(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = capture(tmp_path / "a.sqlite").read_bytes()
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(data)

    feeding = Thread(target=feed)
    feeding.start()
    path = f"/dev/fd/{reader}"
    assert main([*verb.split(), path]) == 0
    feeding.join()
    os.close(reader)
    assert capsys.readouterr().out
