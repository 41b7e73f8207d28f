"""The pass of ``advisor run`` that times a step without the profiler."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.cli.main import main
from advisor.pipeline import unprofiled
from advisor.recording import load
from advisor.sources.serving.metrics_text import read_metrics
from tests.recording.conftest import Made
from tests.recording.servers import Engine, Standin
from tests.recording.standin import StandIn
from tests.recording.test_run import PY, QUICK, Started, files, marked, needs_proc, record
from tests.scenarios.machine import SILU, Machine
from tests.server_logs import Moment, Server, sglang

Captured = pytest.CaptureFixture[str]


def steps(folder: Path, *, named: str | None = "step", light: bool = False) -> Path:
    """Steps that the host launches too slowly; `light`: their ranges alone, and twice as fast."""
    m = Machine()
    for i in range(12):
        if light:
            with m.step(f"{named} {i}"):
                m.work(500)
        elif named is None:
            m.layers(30, [(SILU, 1.5)] * 8)
            m.wait()
        else:
            with m.step(f"{named} {i}"):
                m.layers(30, [(SILU, 1.5)] * 8)
                m.wait()
    folder.mkdir()
    return m.write(folder)


@pytest.fixture
def tool(nsys: Made, tmp_path: Path) -> StandIn:
    """An nsys in whose captures steps take longer than without tracing."""
    light = steps(tmp_path / "light", light=True)
    return nsys(export=str(steps(tmp_path / "traced")), light=str(light))


def run(*words: str, command: list[str] = QUICK) -> int:
    return main(["run", "--delay", "0", "-q", *words, "--", *command])


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(".advisor/runs/run-1/diagnosis.json").read_text())
    return found


def promised(found: dict[str, Any]) -> dict[str, float]:
    speedup: dict[str, float] = found["findings"][0]["gain"]["speedup"]
    return speedup


def test_ranges_of_a_light_trace_are_the_step(tool: StandIn, capsys: Captured) -> None:
    assert run("--once") == 0
    assert len(tool.recordings) == 1
    before = promised(document())
    assert main(["runs", "rm", "run-1"]) == 0
    capsys.readouterr()
    assert run() == 0
    err = capsys.readouterr().err
    assert (
        "COMMAND is run again, as its range 'step' times a step, which is then timed without the profiler"
        in err
    )
    light = tool.recordings[-1]
    assert "--trace=nvtx" in light
    assert not [o for o in light if "cuda" in o or "gpu" in o]
    assert "--duration=30" in light  # the window of the others
    assert record()["unprofiled_ms"] == pytest.approx(0.5, rel=0.1)
    (source,) = document()["inputs"]
    assert source["untraced_step_from"] == "as given"
    assert source["untraced_step_ms"]["mid"] == pytest.approx(0.5, rel=0.1)
    assert promised(document())["high"] < before["low"]  # tracing made launches slow, not the program
    assert "unprofiled" in files()
    assert main(["runs", "show", "run-1"]) == 0
    assert "without the profiler a step takes" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--once",), ("--passes", "1"), ("--unprofiled-step", "0.5")])
def test_it_is_left_out(tool: StandIn, words: tuple[str, ...]) -> None:
    assert run(*words) == 0
    assert tool.recordings == tool.profiled


def test_no_ranges_no_pass(nsys: Made, tmp_path: Path) -> None:
    tool = nsys(export=str(steps(tmp_path / "plain", named=None)))
    assert run() == 0
    assert tool.recordings == tool.profiled


def test_it_is_repeated_with_the_run(tool: StandIn) -> None:
    assert run() == 0
    before = len(tool.recordings)
    assert main(["run", "--again", "-q"]) == 0
    assert ["--trace=nvtx" in p for p in tool.recordings[before:]] == [False, True]
    assert record("run-2")["unprofiled_ms"] is not None


def test_a_light_trace_that_fails_costs_nothing(tool: StandIn, capsys: Captured) -> None:
    known = json.loads((tool.folder / "behaviour.json").read_text())
    tool.behave(**known, light_fails=True)
    assert run() == 0
    assert "note: the step was not timed without the profiler: " in capsys.readouterr().err
    assert (record()["state"], record()["unprofiled_ms"]) == ("diagnosed", None)


@pytest.mark.slow
@needs_proc
def test_ctrl_c_in_the_light_trace_keeps_what_there_is(tool: StandIn) -> None:
    code = (
        "import os, time\n"
        "n = len([x for x in os.listdir('.') if x.startswith('begun')])\n"
        "open(f'begun{n}', 'w')\n"
        "time.sleep(60 * (n == 2))"
    )
    begun = Started("--passes", "2", "--delay", "0", command=[PY, "-c", code], once=False)
    exit_code, out, _ = begun.when(Path("begun2"), signal.SIGINT)
    assert (exit_code, marked()) == (130, [])
    assert "launch-bound" in out
    assert (record()["state"], record()["unprofiled_ms"]) == ("diagnosed", None)
    assert len(tool.recordings) == 3


def test_a_light_trace_without_the_ranges(nsys: Made, tmp_path: Path, capsys: Captured) -> None:
    light = steps(tmp_path / "light", named="other", light=True)
    nsys(export=str(steps(tmp_path / "traced")), light=str(light))
    assert run() == 0
    assert "neither ranges nor a load" in capsys.readouterr().err
    assert record()["unprofiled_ms"] is None


def test_the_load_that_an_engine_prints_is_the_log(nsys: Made, tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "log.txt"
    log.write_text(sglang(Server(moments=[Moment(running=4, output=800.0)] * 8)))
    tool = nsys(export=str(steps(tmp_path / "plain", named=None)))
    assert run(command=[PY, "-c", f"print(open({str(log)!r}).read())"]) == 0
    assert "COMMAND is run again, as it prints its load" in capsys.readouterr().err
    assert len(tool.recordings) == len(tool.profiled) + 1
    found = {fact["name"]: fact["value"] for fact in document()["facts"]}
    assert (found["load.running"], found["load.output_per_s"]) == (4, 800)


def test_a_benchmark_of_latency_prints_a_step(nsys: Made, tmp_path: Path) -> None:
    """Its command line says of how many tokens; the time is taken where it fits the capture."""
    alone = advisor.diagnose(steps(tmp_path / "alone", named="decode_step")).inputs[0].untraced_step_ms
    assert alone is not None
    plain = steps(tmp_path / "plain", named="decode_step")
    nsys(export=str(plain), light=str(steps(tmp_path / "light", named="other", light=True)))
    vllm = tmp_path / "bin" / "vllm"
    seconds = 100 * (alone.low + alone.high) / 2e3
    vllm.write_text(f"#!/bin/sh\necho Avg latency: {seconds:.5f} seconds\n")
    vllm.chmod(0o755)
    words = ["--model", "m", "--output-len", "100", "--batch-size", "1"]
    assert run(command=["vllm", "bench", "latency", *words]) == 0
    (source,) = document()["inputs"]
    assert source["untraced_step_from"] == "by the log"
    assert source["untraced_step_ms"]["mid"] == pytest.approx(seconds * 10, rel=0.01)


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("vllm serve M", 8000),
        ("/opt/bin/vllm serve M --port 81", 81),
        ("python3 -m vllm.entrypoints.openai.api_server --port=82", 82),
        ("python3 -m sglang.launch_server --model-path M", 30000),
        ("python3 serve.py --port 80", None),
        ("vllm bench latency", None),
    ],
)
def test_where_a_command_listens(command: str, port: int | None) -> None:
    assert unprofiled.port_of(command.split()) == port


class Counting(Standin):
    """A server whose time goes on by 50 ms whenever it is asked, however long the test takes."""

    def time_ns(self) -> int:
        return len(self.asked) * 50_000_000

    @property
    def steps(self) -> float:
        return self.time_ns() / 1e6 / self.engine.step_ms


def test_metrics_of_a_server_are_read_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight requests get a token each millisecond."""
    standin = Counting(Engine(running=8, step_ms=1.0))
    monkeypatch.setattr(unprofiled, "_SCRAPE_S", 0.01)
    monkeypatch.setattr(load, "time_ns", standin.time_ns)
    file = tmp_path / "metrics.txt"
    try:
        with unprofiled.Watching(["vllm", "serve", "M", "--port", standin.url.rpartition(":")[2]], file):
            while len(standin.asked) < 5:
                time.sleep(0.01)
    finally:
        standin.close()
    rows = read_metrics(file.read_text()).rows
    assert {row["running"] for row in rows} == {8}
    assert rows[-1]["output_per_s"] == pytest.approx(8000)
    with unprofiled.Watching(["python3", "x.py"], tmp_path / "none.txt"):
        pass
    assert not (tmp_path / "none.txt").exists()
