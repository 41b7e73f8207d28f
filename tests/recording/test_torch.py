"""``advisor run --recorder torch``: steps of a Python program are found, timed and profiled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.recording.torch_profiler import Program, fewer, parse
from tests.kineto_builder import Profile, decode
from tests.recording import fake_torch
from tests.recording.conftest import Made
from tests.recording.test_run import files, marked, record

Captured = pytest.CaptureFixture[str]
PY = sys.executable

DECODE = """
import sys, time
import torch

class Layer(torch.nn.Module):
    def forward(self, x):
        return x + 1

class Model(torch.nn.Module):
    def __init__(self):
        self.layers = [Layer() for _ in range(3)]
    def forward(self, x):
        time.sleep(0.004)
        for layer in self.layers:
            x = layer(x)
        return x

model, x = Model(), 0
for i in range(int(sys.argv[1])):
    x = model(x)
print("made", sys.argv[1:], __name__, flush=True)
"""

TRAIN = DECODE.replace("    x = model(x)", "    model(model(x))\n    optimizer.step()").replace(
    "model, x =", "optimizer = torch.optim.SGD()\nmodel, x ="
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and a Python with the stand-in for torch."""
    trace = decode().write(tmp_path / "fake.json")
    monkeypatch.setenv("FAKE_TRACE", str(trace))
    monkeypatch.setenv("PYTHONPATH", str(fake_torch.write(tmp_path / "lib")))
    monkeypatch.setenv("TEST_FOLDER", str(tmp_path))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "decode.py").write_text(DECODE)
    (folder / "train.py").write_text(TRAIN)
    return folder


def run(*words: str, command: list[str]) -> int:
    return main(["run", "--recorder", "torch", *words, "--", *command])


def profiled() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("profiled.json").read_text())
    return found


@pytest.mark.usefixtures("here")
def test_calls_of_the_outermost_module_are_steps(capsys: Captured) -> None:
    assert run(command=[PY, "decode.py", "500"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(".advisor/runs/run-1/trace.json\n")
    assert "steps are calls of Model" in said.err
    assert "made" not in said.err  # it is ended when the trace is written
    options = {"record_shapes": True, "with_stack": False, "profile_memory": False}
    assert profiled() == {"steps": 20, "activities": ["CPU"], **options}
    kept = record()
    assert (kept["recorder"], kept["exit_code"], kept["state"]) == ("torch", None, "diagnosed")
    assert kept["versions"]["torch"] == "2.6.0+fake"
    assert 4 <= kept["unprofiled_ms"] < 40
    diagnosis = json.loads(Path(".advisor/runs/run-1/diagnosis.json").read_text())
    assert diagnosis["steps"]


@pytest.mark.usefixtures("here")
def test_the_timed_step_is_the_unprofiled_one(capsys: Captured) -> None:
    """Unless another one is given."""
    assert run(command=[PY, "decode.py", "500"]) == 0
    assert f"{record()['unprofiled_ms']:.2f} ms untraced, as given" in capsys.readouterr().out
    assert run("--unprofiled-step", "0.77", command=[PY, "decode.py", "500"]) == 0
    assert "0.770 ms untraced, as given" in capsys.readouterr().out


def test_the_step_of_a_program_on_the_cpu_is_listed_and_compared(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Its trace shows no steps of a GPU; they were timed all the same."""
    made = Profile().op("aten::linear", 0, 100)
    monkeypatch.setenv("FAKE_TRACE", str(made.write(here / "cpu.json")))
    assert run("-q", command=[PY, "decode.py", "500"]) == 0
    assert main(["run", "--again", "-q"]) == 0
    assert record()["steps"] == []
    out = capsys.readouterr().out
    first, second = record()["unprofiled_ms"], record("run-2")["unprofiled_ms"]
    assert f"the step without the profiler, {first:.2f} to {second:.2f} ms" in out
    assert main(["runs", "--format", "json"]) == 0
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(f" {first:.2f} " in line for line in listed)
    assert any(f" {second:.2f} " in line and line.rstrip().endswith("-") for line in listed)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_steps_of_an_optimizer_come_before_calls(capsys: Captured) -> None:
    assert run("--steps", "7", command=[PY, "train.py", "500"]) == 0
    assert "steps are SGD.step" in capsys.readouterr().err
    assert profiled()["steps"] == 7
    assert record()["unprofiled_ms"] >= 8  # two passes


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_program_may_run_on(capsys: Captured) -> None:
    assert run("--until-end", command=[PY, "decode.py", "200", "--x"]) == 0
    assert "made ['200', '--x'] __main__" in capsys.readouterr().err
    assert record()["exit_code"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("goal", "option"), [("host-overhead", "with_stack"), ("memory", "profile_memory")])
@pytest.mark.usefixtures("here")
def test_what_a_goal_needs_is_profiled(goal: str, option: str) -> None:
    assert run(goal, "-q", command=[PY, "decode.py", "500"]) == 0
    assert profiled()[option] is True


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_program_with_few_steps_is_recorded_again(capsys: Captured) -> None:
    assert run("-q", command=[PY, "decode.py", "11"]) == 0
    assert "makes 11 steps: recorded again, 6 of them profiled" in capsys.readouterr().err
    assert profiled()["steps"] == 6
    assert record()["unprofiled_ms"] is not None


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_single_step_is_profiled() -> None:
    assert run("-q", command=[PY, "decode.py", "1"]) == 0
    assert profiled()["steps"] == 1
    assert record()["unprofiled_ms"] is None


def test_the_function_that_makes_a_step(here: Path, capsys: Captured) -> None:
    (here / "engine.py").write_text(
        "import time\nclass Engine:\n    def step(self):\n        time.sleep(0.002)\n"
    )
    (here / "serve.py").write_text("import engine\nfor _ in range(300):\n    engine.Engine().step()\n")
    assert run("-q", command=[PY, "serve.py"]) == 2
    assert "--steps-of module:function" in capsys.readouterr().err
    assert run("-q", "--steps-of", "engine:Engine.step", command=[PY, "serve.py"]) == 0
    assert profiled()["steps"] == 20
    assert run("-q", "--steps-of", "engine:Engine.stop", command=[PY, "serve.py"]) == 2
    assert "has no attribute 'stop'" in capsys.readouterr().err


@pytest.mark.slow
def test_modules_and_code_are_run_as_python_does(here: Path) -> None:
    (here / "decode.py").rename(here / "pkg.py")
    assert run("-q", command=[PY, "-u", "-m", "pkg", "500"]) == 0
    assert run("-q", command=[PY, "-c", DECODE, "500"]) == 0
    assert record("run-2")["command"] == [PY, "-c", DECODE, "500"]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_events_time_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPU", "1")
    assert run("-q", command=[PY, "decode.py", "500"]) == 0
    assert profiled()["activities"] == ["CPU", "CUDA"]
    assert 4 <= record()["unprofiled_ms"] < 40


def test_without_nsys_a_python_program_is_profiled_by_torch(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("advisor.recording.nsys._PLACES", ())
    monkeypatch.setenv("PATH", str(here))
    assert main(["run", "-q", "--", PY, "decode.py", "500"]) == 0
    assert "no nsys here: recorded by the profiler of PyTorch" in capsys.readouterr().err
    for words in (["--recorder", "nsys"], ["--calls"]):
        assert main(["run", *words, "--", PY, "decode.py", "500"]) == 2
        assert "nsys is neither on PATH" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_again_with_the_same_recorder(capsys: Captured) -> None:
    assert run("-q", "--steps", "9", command=[PY, "decode.py", "500"]) == 0
    assert main(["run", "--again", "-q"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
    assert record("run-2")["recorder"] == "torch"
    assert profiled()["steps"] == 9


# --- what goes wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "command", "problem"),
    [
        ((), ["true"], "records 'python SCRIPT'"),
        ((), [PY], "records 'python SCRIPT'"),
        (("--delay", "3"), [PY, "decode.py"], "are for nsys"),
        (("--nsys", "x"), [PY, "decode.py"], "are for nsys"),
        ((), [PY, "-c", "pass"], "no steps were found"),
    ],
)
@pytest.mark.usefixtures("here")
def test_wrong_words(words: tuple[str, ...], command: list[str], problem: str, capsys: Captured) -> None:
    assert run(*words, "-q", command=command) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert err.count("error:") == 1


def test_steps_are_of_torch_alone(nsys: Made, capsys: Captured) -> None:
    nsys()
    assert main(["run", "--steps", "3", "--", PY, "x.py"]) == 2
    assert "need --recorder torch" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_python_without_torch(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.delenv("PYTHONPATH")
    assert run("-q", command=[PY, "-S", "decode.py", "5"]) == 2
    assert "this Python has none" in capsys.readouterr().err


def test_a_program_that_fails(here: Path, capsys: Captured) -> None:
    """While it is profiled: what there is, is diagnosed. Before: one line."""
    text = DECODE.replace(
        "    x = model(x)", "    x = model(x)\n    if i == 40: raise SystemExit('out of memory')"
    )
    (here / "fails.py").write_text(text)
    assert run("-q", "--steps", "50", command=[PY, "fails.py", "500"]) == 1
    err = capsys.readouterr().err
    assert "COMMAND failed (exit code 1)" in err
    assert "out of memory" in err
    (here / "fails.py").write_text("raise ValueError('no such model')")
    assert run("-q", command=[PY, "fails.py"]) == 1
    assert "(exit code 1) before anything was recorded: ValueError: no such model" in capsys.readouterr().err


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here")


@pytest.mark.slow
@needs_proc
def test_ctrl_c_writes_what_was_profiled(here: Path) -> None:
    code = DECODE.replace("    x = model(x)", "    x = model(x)\n    if i == 60: open('profiling', 'w')")
    (here / "long.py").write_text(code)
    begun = subprocess.Popen(
        [
            PY,
            "-m",
            "advisor",
            "run",
            "--recorder",
            "torch",
            "--steps",
            "100000",
            "--",
            PY,
            "long.py",
            "100000",
        ],
        env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{Path(__file__).resolve().parents[2]}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not Path("profiling").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    begun.send_signal(signal.SIGINT)
    out, err = begun.communicate(timeout=120)
    assert begun.returncode == 130, err
    assert "trace.json" in out
    assert record()["stopped"] == "Ctrl-C"
    assert "trace.json" in files()
    assert marked() == []


# --- command lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python x.py --a -m", Program(("python",), "script", "x.py", ("--a", "-m"))),
        (
            "/opt/bin/python3.11 -u -X dev -m pkg.mod 1",
            Program(("/opt/bin/python3.11", "-u", "-X", "dev"), "module", "pkg.mod", ("1",)),
        ),
        ("python -c pass x", Program(("python",), "code", "pass", ("x",))),
        ("python", None),
        ("python -", None),
        ("python -m", None),
        ("vllm serve m", None),
        ("pythonic x.py", None),
    ],
)
def test_parts_of_a_command_line(command: str, program: Program | None) -> None:
    assert parse(command.split()) == program


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 11, 40])
def test_few_steps_are_divided(count: int) -> None:
    parts = fewer(count)
    assert sum(parts.values()) == count
    assert parts["steps"] >= 1
