"""``advisor run``: what is recorded, kept and said, and every way in which it can go wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.recording.watch import parse_size, size_text
from tests.recording.conftest import Made
from tests.recording.standin import StandIn

Captured = pytest.CaptureFixture[str]
PY = sys.executable
QUICK = [PY, "-c", "print('step 1'); print('step 2')"]
LONG = [PY, "-c", "import time; print('begun', flush=True); time.sleep(60)"]
NOW = ["--delay", "0"]


def run(*words: str, command: list[str] = QUICK) -> int:
    return main(["run", "--once", *words, "--", *command])


def record(name: str = "run-1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f".advisor/runs/{name}/run.json").read_text())
    return found


def files(name: str = "run-1") -> set[str]:
    return {p.name for p in Path(f".advisor/runs/{name}").iterdir()}


# --- what a run is ---------------------------------------------------------------------------------


def test_a_command_is_recorded_diagnosed_and_kept(nsys: Made, capsys: Captured) -> None:
    tool = nsys()
    assert run(*NOW) == 0
    said = capsys.readouterr()
    assert said.out.startswith(".advisor/runs/run-1/capture.sqlite\n")
    assert "LCH101 launch-bound" in said.out
    assert "step 2\n" in said.err  # the program's output, not on stdout
    assert files() == {
        "run.json",
        "plan.json",
        "diagnosis.json",
        "output.txt",
        "capture.nsys-rep",
        "capture.sqlite",
    }
    (profiled,) = tool.profiled
    assert profiled[-len(QUICK) :] == QUICK
    assert {"--trace=cuda,nvtx", "--cuda-graph-trace=node", "--duration=30"} <= set(profiled)
    kept = record()
    assert kept["state"] == "diagnosed"
    assert kept["command"] == QUICK
    assert kept["goal"] == "kernel-breakdown"
    assert kept["versions"]["nsys"].startswith("2024.4.1")
    assert (kept["exit_code"], kept["stopped"], kept["captures"]) == (0, None, ["capture.sqlite"])
    assert "step 2" in Path(".advisor/runs/run-1/output.txt").read_text()
    assert stat.S_IMODE(os.stat(".advisor/runs/run-1").st_mode) == 0o700
    diagnosis = json.loads(Path(".advisor/runs/run-1/diagnosis.json").read_text())
    assert diagnosis["findings"][0]["code"] == "LCH101"


def test_the_plan_is_that_of_capture(nsys: Made, capsys: Captured) -> None:
    tool = nsys()
    assert run("host-overhead", "--delay", "0", "--duration", "5", "-q") == 0
    capsys.readouterr()
    options = ["--delay", "0", "--duration", "5", "--nsys", "2024.4", "--format", "json"]
    assert main(["capture", "host-overhead", *options, "--", *QUICK]) == 0
    planned = json.loads(capsys.readouterr().out)["command_file"]
    left = {"--delay=0", "--export=sqlite"}  # nothing to wait for; exported by itself
    assert [o for o in planned if o not in left] == [o for o in tool.profiled[0] if o in planned]
    assert len(planned) - 2 == len([o for o in tool.profiled[0] if o in planned])


@pytest.mark.parametrize(
    ("version", "spelled"),
    [("2023.4.4.54", "--gpu-metrics-device=all"), ("2024.4.1.61", "--gpu-metrics-devices=all")],
)
def test_options_are_spelled_for_the_release(nsys: Made, version: str, spelled: str) -> None:
    tool = nsys(version=version)
    assert run("bandwidth", *NOW, "-q") == 0
    assert spelled in tool.profiled[0]


@pytest.mark.parametrize(
    ("command", "engine", "delay"),
    [
        ("vllm serve MODEL", "vllm", "--delay=90"),
        ("python3 -m sglang.launch_server --model-path M", "sglang", "--delay=90"),
        ("python3 x.py", "any", "--delay=10"),
    ],
)
def test_the_engine_is_that_of_the_command(
    nsys: Made, tmp_path: Path, command: str, engine: str, delay: str, capsys: Captured
) -> None:
    """Its loading and warming up are skipped by the clock: the command is run as it was typed."""
    tool = nsys()
    for name in ("vllm", "python3"):
        program = tmp_path / "bin" / name
        program.write_text("#!/bin/sh\nexit 3\n")
        program.chmod(0o755)
    assert run("-q", command=command.split()) == 3  # it fails before the window
    assert "exit code 3" in capsys.readouterr().err
    assert record()["serving_engine"] == engine
    assert delay in tool.profiled[0]


def test_variables_of_the_plan_reach_the_program(nsys: Made, tmp_path: Path) -> None:
    nsys()
    program = tmp_path / "bin" / "trtllm-serve"
    program.write_text("#!/bin/sh\nenv > seen\nexit 3\n")
    program.chmod(0o755)
    run("-q", command=["trtllm-serve", "MODEL"])
    seen = dict(line.partition("=")[::2] for line in Path("seen").read_text().splitlines())
    wanted = record()["variables"]
    assert wanted
    assert wanted.items() <= seen.items()
    assert not seen["TMPDIR"].startswith(os.getcwd())  # where it would write without us


@pytest.mark.slow
def test_runs_are_numbered_or_named(nsys: Made, capsys: Captured) -> None:
    nsys()
    assert [run(*NOW, "-q"), run(*NOW, "-q"), run(*NOW, "-q", "--name", "after")] == [0, 0, 0]
    assert {p.name for p in Path(".advisor/runs").iterdir()} == {"run-1", "run-2", "after"}
    assert run(*NOW, "--name", "after") == 2
    assert "a run 'after' exists" in capsys.readouterr().err
    assert run(*NOW, "--name", "../x") == 2


def test_git_takes_the_history_and_no_runs(nsys: Made) -> None:
    """What somebody wrote there stays; in a folder of the user's the runs alone are kept from git."""
    nsys()
    assert run(*NOW, "-q") == 0
    ignored = Path(".advisor/.gitignore").read_text()
    assert ignored == "*\n!/history/\n!/history/**\n"
    Path(".advisor/history").mkdir()
    Path(".advisor/history/findings.json").touch()
    git = ["git", "-c", "core.excludesFile=/dev/null"]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True
    ).stdout
    assert listed == "?? .advisor/history/findings.json\n"
    Path(".advisor/.gitignore").write_text("runs/*/*.sqlite\n")
    assert run(*NOW, "-q", "--folder", ".advisor") == 0
    assert Path(".advisor/.gitignore").read_text() == "runs/*/*.sqlite\n"
    assert run(*NOW, "-q", "--folder", ".") == 0
    assert not Path(".gitignore").exists()
    assert Path("runs/.gitignore").read_text() == "*\n"


@pytest.mark.slow
def test_captures_of_old_runs_go_and_their_diagnoses_stay(nsys: Made, capsys: Captured) -> None:
    nsys()
    for _ in range(3):
        assert run(*NOW, "-q", "--keep", "2") == 0
    assert files("run-1") == {"run.json", "plan.json", "diagnosis.json"}
    assert "capture.sqlite" in files("run-2") & files("run-3")
    assert "captures of run-1 removed" in capsys.readouterr().err


def test_a_run_that_still_records_keeps_what_it_has(nsys: Made) -> None:
    tool = nsys()
    first = Started(*NOW)
    wait_for(tool.folder / "recording")
    assert run(*NOW, "-q", "--keep", "1") == 0
    assert {"run.json", "plan.json", "output.txt"} <= files("run-1")
    assert main(["runs", "rm", "run-1"]) == 2
    code, _, _ = first.when(tool.folder / "recording", signal.SIGINT)
    assert (code, record()["state"]) == (130, "diagnosed")
    assert "capture.sqlite" in files("run-1") & files("run-2")


@pytest.mark.slow
def test_several_ranges_are_several_captures(nsys: Made, capsys: Captured) -> None:
    nsys(reports=2, calls=True)
    assert run("--repeat", "2", "-q") == 0
    assert record()["captures"] == ["capture.1.sqlite", "capture.2.sqlite"]
    assert "capture.2.sqlite" in capsys.readouterr().out


def test_the_report_goes_where_it_is_asked(nsys: Made, capsys: Captured) -> None:
    nsys()
    assert run(*NOW, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["findings"]
    assert run(*NOW, "--html", "report.html", "--fail-on", "high", "-q") == 1
    assert "launch-bound" in Path("report.html").read_text()


def test_the_commit_of_the_working_folder(nsys: Made) -> None:
    nsys()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    Path("x.py").write_text("1\n")
    for words in (["init", "-q"], ["add", "x.py"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    assert run(*NOW, "-q") == 0
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert (record()["commit"], record()["dirty"]) == (commit.stdout.strip(), False)
    Path("x.py").write_text("2\n")
    assert run(*NOW, "-q") == 0
    assert record("run-2")["dirty"] is True


# --- words that are wrong: one line, exit code 2, and nothing begun ----------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "no COMMAND was given"),
        (["run", "python", "x.py"], "advisor run -- python x.py"),
        (["run", "kernel-breakdwon", "--", PY], "did you mean 'kernel-breakdown'?"),
        (["run", "tail", "x", "--", PY], "too many arguments: x"),
        (["run", "--", "no-such-program"], "no-such-program: no such program"),
        (["run", "running-server", "--", PY], "advisor capture running-server"),
        (["run", "--at-most", "much", "--", PY], "--at-most: 'much' is not a size"),
        (["run", "--stop-after", "0", "--", PY], "greater than or equal to 1"),
        (["run", "--engine", "vlm", "--", PY], "did you mean 'vllm'?"),
        (["run", "--iterations", "1-2", "--", PY], "no variable that names iterations"),
        (["run", "--nsys", "nowhere", "--", PY], "--nsys nowhere: no such program"),
    ],
)
def test_wrong_words(nsys: Made, words: list[str], said: str, capsys: Captured) -> None:
    nsys()
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not Path(".advisor").exists()


def test_an_empty_word_of_the_command_is_its_own(nsys: Made) -> None:
    tool = nsys()
    assert run(*NOW, "-q", command=[*QUICK, ""]) == 0
    assert tool.profiled[0][-1] == ""


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [({"version": "2020.3.1.72"}, "nsys 2020.3.1.72"), ({"says": "something else"}, "is not nsys")],
)
def test_an_nsys_that_cannot_be_used(nsys: Made, behaviour: Any, said: str, capsys: Captured) -> None:
    nsys(**behaviour)
    assert run() == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_no_nsys(nsys: Made, monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path) -> None:
    monkeypatch.setattr("advisor.recording.nsys._PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(command=["/bin/sh", "-c", "true"]) == 2
    err = capsys.readouterr().err
    assert "nsys is neither on PATH" in err
    assert err.count("\n") == 1
    # It is found where CUDA_HOME says, and by name of its folder.
    tool = nsys()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert run(*NOW, "-q") == 0
    monkeypatch.delenv("CUDA_HOME")
    assert run(*NOW, "-q", "--nsys", str(tool.folder)) == 0


def test_the_newest_of_the_usual_places(
    nsys: Made, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys().path.unlink()
    for release in ("2022.4.2", "2024.2.1", "2023.4.4"):
        StandIn(tmp_path / "opt" / release / "bin", export, version=release)
    monkeypatch.setattr("advisor.recording.nsys._PLACES", (f"{tmp_path}/opt/*/bin/nsys",))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(*NOW, "-q") == 0
    assert record()["versions"]["nsys"].startswith("2024.2.1")


def test_settings_of_this_process_do_not_reach_the_program(nsys: Made) -> None:
    """Threads of its linear algebra, for one: the program would be slower than alone."""
    nsys()
    show = "import os; print('threads', os.environ.get('OPENBLAS_NUM_THREADS'))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for given, seen in ((None, "None"), ("3", "3")):
        if given is not None:
            environment["OPENBLAS_NUM_THREADS"] = given
        done = subprocess.run(
            [PY, "-m", "advisor", "run", "--once", *NOW, "--", PY, "-c", show],
            env={**environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        assert f"threads {seen}\n" in done.stderr


# --- what can happen while it records ----------------------------------------------------------------


def test_a_program_that_fails_is_still_diagnosed(nsys: Made, capsys: Captured) -> None:
    nsys()
    code = "import sys; print('loading'); sys.exit('CUDA error: out of memory')"
    assert run(*NOW, "-q", command=[PY, "-c", code]) == 1
    said = capsys.readouterr()
    assert "COMMAND failed (exit code 1); its last lines:" in said.err
    assert "CUDA error: out of memory" in said.err
    assert "nsys-rep" not in said.err
    assert "launch-bound" in said.out
    assert record()["exit_code"] == 1


def test_a_program_that_a_signal_ends(nsys: Made) -> None:
    nsys()
    assert run(*NOW, "-q", command=[PY, "-c", "import os; os.kill(os.getpid(), 11)"]) == 139
    assert record()["exit_code"] == 139


def test_a_program_that_fails_before_the_window(nsys: Made, capsys: Captured) -> None:
    nsys()
    assert run("-q", command=[PY, "-c", "raise SystemExit('no such model')"]) == 1
    err = capsys.readouterr().err
    assert "exit code 1" in err
    assert "no such model" in err
    assert record()["state"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--calls",)])
def test_a_program_shorter_than_the_delay_or_without_calls(
    nsys: Made, words: tuple[str, ...], capsys: Captured
) -> None:
    tool = nsys()
    assert main(["run", "--passes", "1", "-q", *words, "--", *QUICK]) == 0
    err = capsys.readouterr().err
    assert "COMMAND is run again, as it ended after " in err
    assert "recorded again from its start" in err
    first, second = tool.profiled
    window = [o for o in first if o.startswith(("--delay", "--capture-range"))]
    assert window
    assert not set(window) & set(second)


@pytest.mark.slow
@pytest.mark.parametrize(
    "refusal",
    [
        "Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        "Illegal --gpu-metrics-devices argument: all.\nNone of the installed GPUs are supported",
    ],
)
def test_no_permission_for_counters(nsys: Made, refusal: str, capsys: Captured) -> None:
    tool = nsys(refuses_counters=refusal)
    assert run("bandwidth", *NOW, "-q") == 0
    assert "recorded again without them" in capsys.readouterr().err
    first, second = tool.profiled
    assert any(o.startswith("--gpu-metrics") for o in first)
    assert not any(o.startswith("--gpu-metrics") for o in second)
    assert "no permission" in record()["notes"][0]


@pytest.mark.slow
def test_options_that_the_release_does_not_know(nsys: Made, capsys: Captured) -> None:
    tool = nsys(unknown=["--cuda-graph-trace", "python-gil"])
    assert run("host-overhead", *NOW, "-q") == 0
    err = capsys.readouterr().err
    assert "left out what 2024.4.1.61-244134v0 does not know of --cuda-graph-trace=node" in err
    *_, last = tool.profiled
    assert "--trace=cuda,nvtx,osrt" in last
    assert not any(o.startswith("--cuda-graph-trace") for o in last)
    assert "--sample=process-tree" in last


def test_a_size_limit_stops_the_recording(nsys: Made, capsys: Captured) -> None:
    nsys(growth=200_000)
    assert run(*NOW, "-q", "--at-most", "3MB", command=LONG) == 0
    assert "the recording was stopped: --at-most 3 MB reached" in capsys.readouterr().err
    assert record()["stopped"] == "--at-most 3 MB reached"
    assert record()["exit_code"] is None


@pytest.mark.slow
def test_a_time_limit_stops_the_recording(nsys: Made) -> None:
    nsys()
    assert run(*NOW, "-q", "--stop-after", "1", command=LONG) == 0
    assert record()["stopped"] == "1 s are over"


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [{}, {"reports_0": True}])
def test_a_window_of_time_ends_the_program(nsys: Made, behaviour: dict[str, Any]) -> None:
    nsys(**behaviour)
    assert run(*NOW, "--duration", "1", "-q", command=LONG) == 0
    assert (record()["exit_code"], record()["stopped"]) == (None, None)


@pytest.mark.slow
def test_the_program_may_run_on(nsys: Made) -> None:
    nsys()
    code = "import time; time.sleep(1.5); open('ended', 'w')"
    assert run(*NOW, "--duration", "1", "-q", "--until-end", command=[PY, "-c", code]) == 0
    assert Path("ended").exists()
    assert record()["exit_code"] == 0


@pytest.mark.slow
def test_a_disk_that_fills_up(nsys: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = nsys()
    free = {False: 1 << 40, True: 1000}
    monkeypatch.setattr(
        "advisor.recording.watch.free_bytes", lambda _: free[(tool.folder / "recording").exists()]
    )
    assert run(*NOW, "-q", command=LONG) == 0
    assert record()["stopped"] == "the disk is nearly full (1 KB free)"


def test_a_disk_that_is_full_already(nsys: Made, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    nsys()
    monkeypatch.setattr("advisor.pipeline.record.free_bytes", lambda _: 1000)
    assert run() == 2
    assert "its disk has 1 KB free" in capsys.readouterr().err
    assert [*Path(".advisor/runs").iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ({"disk_full": True}, "No space left on device"),
        ({"agent_fails": "Agent launcher failed."}, "Agent launcher failed."),
        (
            {"agent_fails": "[QuadDCommon::tag_message*] = Local Endpoint is not available."},
            "Local Endpoint is not available.",
        ),
        ({"ending": ".qdstrm"}, "QdstrmImporter of 2024.4.1"),
        ({"export_fails": "Exception: report version is newer"}, "report version is newer"),
        ({"unknown": ["--output"]}, "unrecognised option '--output="),
    ],
)
def test_no_report(nsys: Made, behaviour: Any, said: str, capsys: Captured) -> None:
    nsys(**behaviour)
    assert run(*NOW, "-q") == 2  # nsys failed, not the program
    err = capsys.readouterr().err
    assert said in err
    assert err.count("error:") == 1
    assert "internal" not in err
    assert record()["state"] == "failed"
    assert said in record()["notes"][0]
    assert not Path(".advisor/runs/run-1/tmp").exists()


@pytest.mark.slow
def test_what_nsys_did_not_convert_is_converted(nsys: Made) -> None:
    nsys(ending=".qdstrm").with_importer()
    assert run(*NOW, "-q") == 0
    assert "capture.qdstrm" not in files()
    assert "capture.nsys-rep" in files()


def test_a_report_that_cannot_be_exported_is_kept(nsys: Made, capsys: Captured) -> None:
    nsys(export_fails="Exception")
    assert run(*NOW, "-q") == 2
    assert "the report is kept" in capsys.readouterr().err
    assert "capture.nsys-rep" in files()


# --- nothing is left running, nothing is lost -----------------------------------------------------------


def marked() -> list[str]:
    """Processes of the recordings of this test that run."""
    found, own = [], f"TEST_FOLDER={os.environ['TEST_FOLDER']}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
            if b"ADVISOR_RECORDING=" in environment and own in environment:
                found.append(path.parent.joinpath("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here")


@pytest.mark.slow
@needs_proc
def test_processes_that_nsys_leaves_are_ended(nsys: Made) -> None:
    nsys(daemon=True)
    assert run(*NOW, "-q") == 0
    assert marked() == []


@pytest.mark.slow
@needs_proc
def test_an_nsys_that_hangs_is_ended(nsys: Made, capsys: Captured) -> None:
    """It does not obey: it is killed, and of what it left the importer makes a report."""
    nsys(deaf=True, ending=".qdstrm").with_importer()
    assert run(*NOW, "-q", "--stop-after", "1", "--flush", "1", command=LONG) == 0
    assert marked() == []
    err = capsys.readouterr().err
    assert "nsys did not end by itself and was killed" in err
    assert "capture.nsys-rep" in files()


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("nested", [1, 2])
def test_children_of_the_program_end_with_it(nsys: Made, nested: int) -> None:
    nsys()
    sleep = "import time; time.sleep(60)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {sleep!r}], "
    code += f"start_new_session={nested > 1}); time.sleep(60)"
    assert run(*NOW, "--duration", "1", "-q", command=[PY, "-c", code]) == 0
    assert marked() == []


def wait_for(path: Path) -> None:
    """Wait until the file is there."""
    until = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < until, f"{path} does not appear"
        time.sleep(0.02)


class Started:
    """The command line in a process of its own, to be interrupted."""

    def __init__(self, *words: str, command: list[str] = LONG, once: bool = True) -> None:
        self.process = subprocess.Popen(
            [PY, "-m", "advisor", "run", *["--once"][:once], *words, "--", *command],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def when(self, path: Path, *signals: int) -> tuple[int, str, str]:
        """Its end, after signals that are sent once the file is there."""
        begun = time.monotonic()
        while not path.exists() and self.process.poll() is None and time.monotonic() - begun < 300:
            time.sleep(0.02)
        assert path.exists(), self.process.communicate()
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.5)
        out, err = self.process.communicate(timeout=300)
        assert "internal error" not in err
        return self.process.returncode, out, err


@needs_proc
def test_ctrl_c_stops_the_recording_and_diagnoses(nsys: Made) -> None:
    tool = nsys()
    code, out, err = Started(*NOW).when(tool.folder / "recording", signal.SIGINT)
    assert (code, marked()) == (130, [])
    assert "launch-bound" in out
    assert "the recording was stopped: Ctrl-C" in err
    assert record()["state"] == "diagnosed"


@pytest.mark.slow
@needs_proc
def test_ctrl_c_before_the_window(nsys: Made) -> None:
    nsys()
    begun = Started("--delay", "60", command=[PY, "-c", "import time; open('up', 'w'); time.sleep(60)"])
    code, _, err = begun.when(Path("up"), signal.SIGINT)
    assert (code, marked()) == (130, [])
    assert "stopped before anything was recorded (Ctrl-C)" in err


@pytest.mark.slow
@needs_proc
def test_ctrl_c_twice_ends_a_hanging_nsys(nsys: Made) -> None:
    tool = nsys(hangs=True, ending=".qdstrm")
    tool.with_importer()
    code, out, _ = Started(*NOW).when(tool.folder / "recording", signal.SIGINT, signal.SIGINT)
    assert (code, marked()) == (130, [])
    assert "launch-bound" in out


@pytest.mark.slow
@needs_proc
def test_ctrl_c_while_exporting_keeps_the_report(nsys: Made) -> None:
    tool = nsys(export_s=30)
    begun = Started(*NOW, command=QUICK)
    code, _, _ = begun.when(tool.folder / "exporting", signal.SIGINT)
    assert (code, marked()) == (130, [])
    assert "capture.nsys-rep" in files()
    assert record()["state"] == "failed"


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_cancelled_job_leaves_nothing_running(nsys: Made, number: int) -> None:
    tool = nsys(daemon=True)
    code, _, _ = Started(*NOW).when(tool.folder / "recording", number)
    assert (code, marked()) == (128 + number, [])
    assert "tmp" not in files()


@pytest.mark.slow
@needs_proc
def test_ctrl_c_twice_before_anything_was_recorded(nsys: Made) -> None:
    nsys(hangs=True)
    begun = Started("--delay", "60", command=[PY, "-c", DEAF])
    code, _, err = begun.when(Path("up"), signal.SIGINT, signal.SIGINT)
    assert (code, marked()) == (130, [])
    assert err.count("error:") == 1


DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('up', 'w')
time.sleep(60)
"""


@needs_proc
def test_nothing_is_left_where_advisor_is_killed(nsys: Made) -> None:
    """Not even a program that nsys started in a session of its own and that ignores SIGTERM."""
    nsys(daemon=True, deaf=True)
    begun = Started(*NOW, command=[PY, "-c", DEAF])
    wait_for(Path("up"))
    begun.process.kill()
    assert begun.process.wait() == -signal.SIGKILL
    until = time.monotonic() + 300
    while marked() and time.monotonic() < until:
        time.sleep(0.05)
    assert marked() == []


# --- a program is run again only after that is said -------------------------------------------------------


TWICE = [PY, "-c", "import sys; open('runs', 'a').write('x'); print(sys.stdin.read())"]


def runs_of(given: Any, *words: str) -> tuple[int, int, str]:
    """The exit code of `advisor run`, how often it ran a program that ends before its recording begins, and
    what it wrote on stderr."""
    done = subprocess.run(
        [PY, "-m", "advisor", "run", "--passes", "1", *words, "--", *TWICE],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        **given,
    )
    return done.returncode, len(Path("runs").read_text()), done.stderr


@pytest.mark.parametrize(
    ("given", "times"),
    [
        ({"stdin": subprocess.DEVNULL}, 2),
        ({"input": "a prompt"}, 1),  # a pipe
        ({"stdin": "full"}, 1),
        ({"stdin": "empty"}, 2),
    ],
)
def test_a_program_that_reads_its_input_is_run_once(nsys: Made, given: dict[str, Any], times: int) -> None:
    nsys()
    Path("full").write_text("a prompt")
    Path("empty").touch()
    if given.get("stdin") in ("full", "empty"):
        with open(given["stdin"]) as file:
            code, ran, err = runs_of({"stdin": file})
    else:
        code, ran, err = runs_of(given)
    assert (code, ran) == (0 if times == 2 else 2, times)
    assert ("COMMAND may be run again" in err) == (times == 2)
    assert ("its standard input can be read once only" in err) == (times == 1)
    if times == 1:
        assert "a prompt" in err
        assert "record it from its start: --delay 0" in err


def test_once_is_once(nsys: Made) -> None:
    nsys()
    code, ran, err = runs_of({"stdin": subprocess.DEVNULL}, "--once")
    assert (code, ran) == (2, 1)
    assert "before the recording began (--delay=10 --duration=30); record it from its start: --delay 0" in err


@pytest.mark.parametrize(("answer", "times"), [("y", 2), ("n", 1), ("", 2)])
def test_at_a_terminal_it_is_asked(nsys: Made, answer: str, times: int) -> None:
    nsys()
    code = "open('runs', 'a').write('x')"
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        os.execv(PY, [PY, "-m", "advisor", "run", "--", PY, "-c", code])
    seen = b""
    while b"Run COMMAND again?" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, f"{answer}\n".encode() * 9)  # it may ask for more than one reason
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        with suppress(OSError):
            os.read(terminal, 1000)
    os.close(terminal)
    ran = len(Path("runs").read_text())
    assert ran == 1 if times == 1 else ran >= 2


# --- sizes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2e9), ("500 mb", 5e8), ("1.5G", 1.5e9), ("1000", 1000), ("7k", 7000)]
)
def test_sizes(text: str, size: float) -> None:
    assert parse_size(text, "--at-most") == size


def test_sizes_as_text() -> None:
    assert [size_text(n) for n in (12, 3_400, 1.5e6, 2e9, 3e12)] == [
        "12 B",
        "3.4 KB",
        "1.5 MB",
        "2 GB",
        "3 TB",
    ]
