"""A folder from someone else, and the current folder of the command line: what stands in it contacts nobody,
names nothing outside of it, and starts nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.config import FLAGS, REACH, REACHES, SETTINGS, Settings, settle
from advisor.errors import InputError
from advisor.reading import leads_out
from advisor.recording.store import revision
from tests.builder import Export
from tests.cli.conftest import Run


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder, beside one that is none of its business."""
    (tmp_path / "outside" / "rules").mkdir(parents=True)
    (tmp_path / "outside" / "notes.json").write_text('{"secret": "notes"}')
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def scene() -> Export:
    """One launch and its kernel."""
    return Export().gpu().process(100).launch(0)


def advisor(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "advisor", *words]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, timeout=120)


# --- keys of a file -------------------------------------------------------------------------------


def test_every_option_says_what_it_could_do() -> None:
    """A new one is in no file until it is in `REACHES`, once."""
    named = [key for reach in REACHES for key in reach.keys.split()]
    assert sorted(named) == sorted(FLAGS)
    assert {key for key in FLAGS if REACH[key].in_files} == set(SETTINGS)


def test_every_option_whose_values_are_paths_is_held_below_the_folder() -> None:
    """Those of type path, and those that take a path as a text."""
    texts = {"weight_bytes", "baseline"}
    assert {key for key, setting in SETTINGS.items() if setting.paths} | texts == {
        key for key in SETTINGS if REACH[key].paths
    }


@pytest.mark.parametrize("key", [key for key in FLAGS if key not in SETTINGS])
@pytest.mark.parametrize("name", ["advisor.toml", "pyproject.toml"])
def test_what_writes_or_contacts_is_typed(key: str, name: str, tmp_path: Path) -> None:
    head = "[tool.advisor]\n" if name == "pyproject.toml" else ""
    (tmp_path / name).write_text(f"{head}{key} = 'x'\n")
    with pytest.raises(InputError) as caught:
        settle({}, tmp_path)
    assert "\n" not in str(caught.value)
    assert f"'{key}' {REACH[key].effect}; only the command line may: --{key}" in str(caught.value)
    with pytest.raises(InputError, match="only the command line may"):
        settle({"config": tmp_path / name}, tmp_path / "elsewhere")


def test_a_scheduler_is_not_contacted(here: Path, listener: socket.socket) -> None:
    """Whoever controls it would run code in this process."""
    for rank in (0, 1):
        scene().write(here / f"run_rank{rank}.sqlite")
    port = listener.getsockname()[1]
    (here / "advisor.toml").write_text(f'dask = "tcp://127.0.0.1:{port}"\n')
    done = advisor(here, ".")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "advisor: error: advisor.toml: 'dask' contacts an address; only the command line may: "
        "--dask ADDRESS|local\n"
    )
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_nothing_is_written(here: Path) -> None:
    scene().write(here / "a.sqlite")
    before = sorted(here.parent.rglob("*"))
    for key in ("output", "html", "xlsx"):
        (here / "advisor.toml").write_text(f'{key} = "../outside/made.{key}"\n')
        done = advisor(here, "a.sqlite")
        assert done.returncode == 2
        assert f"'{key}' writes files" in done.stderr
    assert sorted(here.parent.rglob("*")) == sorted([*before, here / "advisor.toml"])


def values(key: str) -> Iterator[Any]:
    """Ways out of the folder: up, from the root, by a link, by a link in a folder, by a chain of them."""
    for text in ("../outside", "/etc", "link", "of/link", "of", "chain", "in/../../outside", "no\0name"):
        yield [text] if SETTINGS[key].kind == "list" else text


@pytest.mark.parametrize("key", [key for key in SETTINGS if REACH[key].paths])
def test_paths_of_a_found_file_stay_below_its_folder(key: str, here: Path) -> None:
    (here / "link").symlink_to("../outside")
    (here / "of").mkdir()
    (here / "of" / "link").symlink_to(here.parent / "outside" / "notes.json")
    (here / "chain").symlink_to("of")
    for value in values(key):
        (here / "advisor.toml").write_text(f"{key.replace('_', '-')} = {json.dumps(value)}\n")
        with pytest.raises(InputError) as caught:
            settle({}, here)
        assert str(caught.value).startswith(f"advisor.toml: {key.replace('_', '-')}: ")
        assert "leads out of the folder of this file" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_links_within_the_folder_are_followed(here: Path) -> None:
    (here / "rules").mkdir()
    (here / "mine").symlink_to("rules")
    (here / "rules" / "circle").symlink_to("../mine")
    (here / "advisor.toml").write_text("rules = 'mine'\n")
    assert settle({}, here).rules == (Path("mine"),)


def test_a_flag_may_lead_anywhere(here: Path) -> None:
    rules = (here.parent / "outside" / "rules",)
    assert settle({"rules": rules}, here).rules == rules


def test_a_file_that_the_user_names_may_lead_anywhere(here: Path) -> None:
    """Its paths are those from its folder, and the files of the current folder do not count."""
    named = here.parent / "outside" / "mine.toml"
    named.write_text("rules = ['../here', 'rules']\nbaseline = 'main'\nweight-bytes = '8'\nlog = 'a.log'\n")
    (here / "advisor.toml").write_text("top = 1\nunknown = 2\n")
    settings = settle({"config": named, "folder": None}, here)
    folder = named.parent
    assert settings == Settings(
        rules=(folder / "../here", folder / "rules"),
        baseline="main",
        weight_bytes="8",
        log=folder / "a.log",
        config=named,
    )


def test_the_command_line_takes_such_a_file(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "advisor.toml").write_text("dask = 'tcp://127.0.0.1:1'\n")
    (tmp_path / "mine.toml").write_text("[tool.advisor]\nquiet = true\n")
    assert run("a.sqlite", "--config", "mine.toml") == 0
    assert capsys.readouterr().out.startswith("Use CUDA graphs: ")
    assert run("a.sqlite", "--config", "mine.tom") == 2
    assert "--config: mine.tom: no such file" in capsys.readouterr().err


def test_a_settings_file_that_is_a_link_out_of_the_folder_has_to_be_named(here: Path) -> None:
    (here.parent / "outside" / "own.toml").write_text("top = 1\n")
    (here / "advisor.toml").symlink_to("../outside/own.toml")
    with pytest.raises(
        InputError, match=r"^advisor.toml: a link out of this folder; .*--config advisor.toml$"
    ):
        settle({}, here)
    assert settle({"config": here / "advisor.toml"}, here).top == 1
    # Build systems lay out whole checkouts as links; without options of ours that is nothing to us.
    (here / "advisor.toml").unlink()
    (here.parent / "outside" / "project.toml").write_text("[project]\nname = 'x'\n")
    (here / "pyproject.toml").symlink_to("../outside/project.toml")
    assert settle({}, here) == Settings()


# --- what it takes to read one --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 20_000) + " = 1",
        "[" + " . ".join("a" * 20_000) + "]",
        ".".join(['"a"'] * 20_000) + " = 1",
        "top = {" + ".".join(["'a'"] * 20_000) + " = 1}",
    ],
    ids=["bare", "table", "quoted", "inline"],
)
def test_a_key_of_many_parts_is_refused_before_it_takes_memory(text: str, tmp_path: Path) -> None:
    """Time and memory of the TOML reader grow with the square of the parts: 40 KB took 1.5 GB."""
    (tmp_path / "advisor.toml").write_text(f"top = 1\n{text}\n")
    with pytest.raises(
        InputError, match=r"^advisor.toml: not valid TOML: a key of more than 32 parts \(at line 2\)$"
    ):
        settle({}, tmp_path)


def test_points_in_texts_and_remarks_are_no_parts_of_keys(tmp_path: Path) -> None:
    many = ".".join("a" * 100)
    text = f"# {many}\nnvtx = '{many}'\n" + f'window = """{many}"""\nlog = "\\"{many}"\n'
    (tmp_path / "advisor.toml").write_text(text)
    assert settle({}, tmp_path).nvtx == many


def test_files_of_options_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "advisor.toml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(InputError, match=r"advisor.toml: larger than 1 MB"):
        settle({}, tmp_path)
    (tmp_path / "advisor.toml").write_text("top = " + "[" * 100_000)
    with pytest.raises(InputError, match=r"^advisor.toml: not valid TOML: nested too deeply$"):
        settle({}, tmp_path)


# --- the folder of baselines, reviews and runs ------------------------------------------------------


@pytest.mark.parametrize("linked", [".advisor", ".advisor/runs", ".advisor/runs/one", ".advisor/main.json"])
def test_what_is_kept_does_not_lead_out_of_the_folder(here: Path, linked: str) -> None:
    """Neither to be read nor to be written to; who laid it out like that names it."""
    (here / linked).parent.mkdir(parents=True, exist_ok=True)
    target = "notes.json" if linked.endswith("json") else "rules"
    (here / linked).symlink_to(here.parent / "outside" / target)
    before = sorted(here.parent.rglob("*"))
    for words in (["baseline", "list"], ["runs"], ["run", "--", "true"], ["review", "status"]):
        done = advisor(here, *words)
        assert done.returncode == 2
        assert (
            f".advisor: '{linked}' leads out of this folder; if you trust it: --folder .advisor"
            in done.stderr
        )
        assert len(done.stderr.splitlines()) == 1
    assert sorted(here.parent.rglob("*")) == before
    assert advisor(here, "baseline", "list", "--folder", ".advisor").returncode == 0


def test_a_name_that_no_file_can_have_leads_out(tmp_path: Path) -> None:
    assert leads_out(tmp_path / "a\0b", tmp_path)
    assert leads_out(tmp_path / ("a" * 5000), tmp_path) is None
    assert leads_out(tmp_path / "none", tmp_path) is None
    assert leads_out(tmp_path, tmp_path) is None
    assert leads_out(Path(os.sep), tmp_path) == Path(os.sep)


# --- programs that the folder names -----------------------------------------------------------------


@pytest.fixture
def repository(here: Path) -> Path:
    """One whose configuration names programs that `git status` starts."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")

    def run(*words: str) -> None:
        subprocess.run([*git, *words], cwd=here, check=True, capture_output=True)

    (here / "file").write_text("one")
    (here / ".gitattributes").write_text("file filter=own.er\n")
    run("init", "-q")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    for key in ("core.fsmonitor", "filter.own.er.clean", "filter.own.er.process"):
        run("config", key, f"touch {here.parent / 'outside' / key}")
    run("config", "filter.own.er.required", "true")
    return here


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_repository_starts_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`advisor run` asks for the commit, and whether files differ from it."""
    monkeypatch.chdir(repository)
    outside = sorted((repository.parent / "outside").iterdir())
    os.utime("file", (1, 1))  # git looks into it again
    commit, dirty = revision()
    assert len(commit or "") == 40
    assert dirty is False
    (repository / "file").write_text("two")
    assert revision() == (commit, True)
    assert sorted((repository.parent / "outside").iterdir()) == outside


# --- files that are written under names which the folder has already ----------------------------------


def test_a_link_to_nothing_is_not_written_through(here: Path) -> None:
    """The file would appear elsewhere."""
    scene().write(here / "a.sqlite")
    (here / "report.html").symlink_to("../outside/made.html")
    done = advisor(here, "a.sqlite", "--html", "report.html")
    assert done.returncode == 2
    assert "report.html is a link to a file that does not exist" in done.stderr
    assert not (here.parent / "outside" / "made.html").exists()


@pytest.mark.parametrize("there", [True, False], ids=["a session", "nothing"])
@pytest.mark.parametrize("words", [["--no-input", "--session", "one"], ["--resume", "--no-input"]])
def test_a_session_is_kept_in_the_folder(there: bool, words: list[str], here: Path) -> None:
    scene().write(here / "a.sqlite")
    outside = here.parent / "outside" / "one.checklist.yaml"
    if there:
        assert advisor(here, "checklist", "a.sqlite", "--no-input", "--session", str(outside)).returncode == 0
    before = outside.read_text() if there else None
    (here / "one.checklist.yaml").symlink_to(outside)
    done = advisor(here, "checklist", *(["a.sqlite"] if "--resume" not in words else []), *words)
    assert done.returncode == 2
    assert "one.checklist.yaml: a link out of this folder; if you trust it: --session ./" in done.stderr
    assert outside.read_text() == before if there else not outside.exists()
