"""``advisor run --again`` and ``advisor runs``: repeated after a change, is what was promised kept?"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.recording.store import drop_captures, read
from tests.recording.conftest import Made
from tests.recording.test_run import NOW, PY, QUICK, record, run
from tests.scenarios.machine import SILU, Machine

Captured = pytest.CaptureFixture[str]


Capture = Callable[..., str]


@pytest.fixture(scope="session")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Decode steps of 240 kernels, launched one by one or as a graph; each is written once."""

    @cache
    def written(graphs: bool, step_us: float) -> str:
        return str(decode(graphs, step_us).write(tmp_path_factory.mktemp("capture")))

    return lambda *, graphs, step_us=1.5: written(graphs, step_us)


def decode(graphs: bool, step_us: float) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            if graphs:
                m.replay(30, [(SILU, step_us)] * 8)
            else:
                m.layers(30, [(SILU, step_us)] * 8)
            m.wait()
    return m


def test_redacting_is_refused_before_anything_is_recorded(nsys: Made, capsys: Captured) -> None:
    tool = nsys()
    assert run(*NOW, "-q") == 0
    recorded = len(tool.recordings)
    capsys.readouterr()
    assert main(["run", "--again", "--redact", "-q"]) == 2
    assert "which --redact cannot change" in capsys.readouterr().err
    assert len(tool.recordings) == recorded


@pytest.fixture
def fixed(nsys: Made, capture: Capture) -> Any:
    """The nsys of PATH, after one run of the loop without graphs; a call sets what is exported next."""
    tool = nsys(export=capture(graphs=False))
    assert run("tail", *NOW, "--duration", "7", "-q", "--at-most", "1GB") == 0

    def export(**how: Any) -> Any:
        tool.behave(export=capture(**how))
        return tool

    return export


def test_a_promise_that_is_kept(fixed: Any, capsys: Captured) -> None:
    tool = fixed(graphs=True)
    capsys.readouterr()
    assert main(["run", "--again"]) == 0
    out = capsys.readouterr().out
    first, promise, *_ = out.splitlines()
    assert first == "run-2 against run-1"
    assert promise.split() >= ["promise"]
    assert "launch-bound: promised" in promise
    assert "kept" in " ".join(out.splitlines()[1:4])
    assert out.index("What moved") < out.index("What is next") < out.index("All runs")
    before, after = tool.profiled
    assert [o for o in before if not o.startswith("--output")] == [
        o for o in after if not o.startswith("--output")
    ]
    again = record("run-2")
    assert (again["goal"], again["command"], again["at_most"]) == ("tail", QUICK, 1_000_000_000)
    assert (again["against"], again["promises"][0]["outcome"]) == ("run-1", "kept")


@pytest.mark.slow
def test_no_fix_and_no_promise(fixed: Any, capsys: Captured) -> None:
    fixed(graphs=False, step_us=1.6)
    capsys.readouterr()
    assert main(["run", "--again", "run-1", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["promises"], found["against"]) == ("again", [], "run-1")
    assert found["comparison"]["kind"] == "comparison"
    assert [r["name"] for r in found["history"]] == ["run-1", "run-2"]


def test_a_regression_fails_the_gate(fixed: Any, capsys: Captured) -> None:
    """Exit codes are those of compare."""
    fixed(graphs=False, step_us=40)
    assert main(["run", "--again", "-q", "--fail-on", "regression"]) == 1
    assert "gate failed" in capsys.readouterr().err
    fixed(graphs=True)
    assert main(["run", "--again", "-q", "--fail-on", "regression"]) == 0


@pytest.mark.slow
def test_another_command_and_another_run_to_compare_with(fixed: Any) -> None:
    tool = fixed(graphs=False, step_us=1.6)
    changed = [PY, "-c", "print('--enable-graphs')"]
    assert main(["run", "--again", "-q", "--", *changed]) == 0
    assert tool.profiled[-1][-3:] == changed
    fixed(graphs=True)
    assert main(["run", "--again", "run-2", "--against", "run-1", "-q", "--name", "y"]) == 0
    assert record("y")["against"] == "run-1"
    assert record("y")["command"] == changed


@pytest.mark.slow
def test_the_page_has_the_history(fixed: Any) -> None:
    fixed(graphs=True)
    assert main(["run", "--again", "--html", "again.html", "-q"]) == 0
    page = Path("again.html").read_text()
    assert "run-1" in page
    assert "launch-bound" in page


WRONG = [
    (["run", "--against", "run-1", "--", PY], "add --again"),
    (["run", "--fail-on", "regression", "--", PY], "add --again"),
    (["run", "--again", "--baseline", "x"], "--again compares with a run"),
    (["run", "--again", "run-7"], "no run 'run-7'; did you mean 'run-1'?"),
    (["run", "--again", "--against", "run-8"], "no run 'run-8'"),
    (["runs", "show", "run-9"], "no run 'run-9'"),
    (["runs", "rm", "run-1", "run-9"], "no run 'run-9'"),
    (["runs", "compare", "run-1", "run-9"], "no run 'run-9'"),
    (["runs", "shwo"], "'shwo' is not a verb"),
]


def test_wrong_words(fixed: Any, capsys: Captured) -> None:
    fixed(graphs=True)
    capsys.readouterr()
    for words, problem in WRONG:
        assert main(words) == 2, words
        err = capsys.readouterr().err
        assert problem in err
        assert err.count("\n") == 1, words
        assert [p.name for p in Path(".advisor/runs").iterdir()] == ["run-1"], words


def test_no_runs_yet(nsys: Made, capsys: Captured) -> None:
    nsys()
    assert main(["run", "--again"]) == 2
    assert "no runs yet" in capsys.readouterr().err
    assert main(["runs"]) == 0
    assert "0 runs" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_failed_is_not_repeated_by_default(fixed: Any, capsys: Captured) -> None:
    fixed(graphs=True)
    assert run("-q", command=[PY, "-c", "raise SystemExit('no')"]) == 1  # its own
    assert main(["run", "--again", "run-2"]) == 2
    assert "run 'run-2' was not diagnosed" in capsys.readouterr().err
    assert main(["run", "--again", "-q"]) == 0
    assert record("run-3")["against"] == "run-1"


def test_runs_are_listed_shown_compared_and_removed(fixed: Any, capsys: Captured) -> None:
    fixed(graphs=True)
    assert main(["run", "--again", "-q"]) == 0
    capsys.readouterr()
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert "run-1" in out
    assert "launch-bound kept" in out
    assert out.rstrip().endswith("2 runs in .advisor/runs")
    assert main(["runs", "--format", "json"]) == 0
    assert [r["state"] for r in json.loads(capsys.readouterr().out)["runs"]] == ["diagnosed"] * 2

    assert main(["runs", "show", "run-2"]) == 0
    shown = capsys.readouterr().out
    assert "promised" in shown
    assert "nsys 2024.4.1" in shown
    assert main(["runs", "show", "run-1", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["diagnoses"][0]["findings"][0]["cause"] == "launch-bound"

    assert main(["runs", "compare", "run-2", "run-1", "--fail-on", "regression", "-q"]) == 1
    assert main(["runs", "rm", "run-1"]) == 0
    assert not Path(".advisor/runs/run-1").exists()


@pytest.mark.slow
def test_promises_are_scored_by_what_if_without_names_of_runs(fixed: Any, capsys: Captured) -> None:
    assert main(["runs", "--promises"]) == 0
    assert "No promise was put to the test yet" in capsys.readouterr().out
    fixed(graphs=True)
    assert main(["run", "--again", "-q"]) == 0
    capsys.readouterr()
    assert main(["runs", "--promises"]) == 0
    assert "cuda_graphs" in capsys.readouterr().out
    assert main(["runs", "--promises", "--format", "json", "-o", "record.json"]) == 0
    text = Path("record.json").read_text()
    score = next(s for s in json.loads(text)["scores"] if s["what_if"] == "cuda_graphs")
    assert (score["kept"], score["missed"]) == (1, 0)
    assert 0.5 < score["ratio"] < 1.5
    assert "run-" not in text
    assert "/" not in text


@pytest.mark.slow
def test_a_damaged_run_is_left_out(fixed: Any, capsys: Captured) -> None:
    fixed(graphs=True)
    Path(".advisor/runs/run-1/run.json").write_text('{"schema_version": 1, "name": 3}')
    assert main(["runs"]) == 0
    assert "0 runs" in capsys.readouterr().out
    assert main(["runs", "show", "run-1"]) == 2
    assert "not a run that can be read" in capsys.readouterr().err


@pytest.mark.slow
def test_a_program_that_was_too_short_once_is_recorded_from_its_start(nsys: Made, capsys: Captured) -> None:
    tool = nsys()
    assert main(["run", "-q", "--passes", "1", "--", *QUICK]) == 0
    err = capsys.readouterr().err
    assert "COMMAND is run again, as it ended after " in err
    assert ": recorded again from its start" in err
    assert main(["run", "--again", "-q"]) == 0
    assert "recorded again" not in capsys.readouterr().err
    assert len(tool.profiled) == 3


# --- a run that came with the folder of someone else ---------------------------------------------------


@pytest.fixture
def strangers(fixed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The run of another user."""
    tool = fixed(graphs=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other" / "user"))
    return tool


def test_the_command_of_a_strangers_run_is_not_started(strangers: Any, capsys: Captured) -> None:
    """Nor are its options given to nsys; who trusts the command types it."""
    started = len(strangers.profiled)
    capsys.readouterr()
    assert main(["run", "--again"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("advisor: error: run 'run-1' was not recorded by this user on this machine; ")
    assert "advisor run --again run-1 -- " in err
    assert len(err.splitlines()) == 1
    assert len(strangers.profiled) == started
    assert [p.name for p in Path(".advisor/runs").iterdir()] == ["run-1"]
    assert main(["run", "--again", "-q", *NOW, "--", *QUICK]) == 0
    assert record("run-2")["against"] == "run-1"
    assert "duration" not in record("run-2")["request"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("command", ["touch", "owned"]),
        ("options", ["--output=/tmp/owned"]),
        ("variables", {"LD_PRELOAD": "./owned.so"}),
        ("request", {"name": "../owned"}),
        ("recorder", "torch"),
        ("seal", None),
    ],
)
def test_a_record_that_was_changed_counts_as_a_strangers(
    fixed: Any, key: str, value: Any, capsys: Captured
) -> None:
    fixed(graphs=True)
    path = Path(".advisor/runs/run-1/run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    assert main(["run", "--again"]) == 2
    assert "was not recorded by this user" in capsys.readouterr().err
    assert not Path("owned").exists()


def test_without_a_home_folder_the_command_is_typed(
    fixed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fixed(graphs=True)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert run("tail", *NOW, "-q") == 0
    assert record("run-2")["seal"] is None
    assert main(["run", "--again", "-q"]) == 2
    assert main(["run", "--again", "-q", *NOW, "--", *QUICK]) == 0


def test_a_run_is_known_by_the_name_of_its_folder(fixed: Any) -> None:
    """The name in its record would be a path to anywhere."""
    fixed(graphs=True)
    path = Path(".advisor/runs/run-1/run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": "../../../outside"}))
    assert read(path.parent).name == "run-1"


def test_captures_that_are_links_are_removed_as_links(fixed: Any, tmp_path: Path) -> None:
    fixed(graphs=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    link = Path(".advisor/runs/run-1/capture")
    link.symlink_to(tmp_path / "precious")
    assert [path.name for path, _ in drop_captures(Path(".advisor"), 0)] == ["run-1"]
    assert not link.is_symlink()
    assert (tmp_path / "precious" / "file").exists()
