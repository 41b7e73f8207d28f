"""``advisor attach``: what is recorded of a server, and every way in which that can go wrong. In each the
server's profiler is stopped."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.cli.main import main
from advisor.recording import attach
from advisor.recording.server import Pace, Server, engine_of
from tests.recording.servers import Engine, Standin

Captured = pytest.CaptureFixture[str]
Made = Callable[..., Standin]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Makes a server, in an empty current folder. None of them profiles at the end."""
    (tmp_path / "here").mkdir()
    (tmp_path / "traces").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    pace = Pace(load=0.4, look=0.05, arrive=1.0, least=0.3, most=0.6, quiet=0.2)
    monkeypatch.setattr("advisor.recording.attach.PACE", pace)
    monkeypatch.setattr("advisor.recording.server.ANSWER_S", 3.0)
    for name, value in (("START_S", 0.5), ("_AGAIN_S", 0.05), ("_HURRY_S", 0.3)):
        monkeypatch.setattr(f"advisor.recording.profiling.{name}", value)
    made: list[Standin] = []

    def make(name: str = "vllm", version: str | None = None, **behaviour: Any) -> Standin:
        version = version or {"vllm": "0.33.0", "sglang": "0.5.23"}[name]
        standin = Standin(Engine(name, version, tmp_path / "traces", **behaviour))
        made.append(standin)
        return standin

    yield make
    for standin in made:
        standin.close()


@pytest.fixture
def traces(tmp_path: Path) -> tuple[str, str]:
    return "--traces", str(tmp_path / "traces")


def record(name: str = "run-1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f".advisor/runs/{name}/run.json").read_text())
    return found


def diagnosis(name: str = "run-1") -> dict[str, Any]:
    found = json.loads(Path(f".advisor/runs/{name}/diagnosis.json").read_text())
    (one,) = found if isinstance(found, list) else (found,)
    return one


def facts(document: dict[str, Any]) -> dict[str, Any]:
    return {fact["name"]: fact["value"] for fact in document["facts"]}


def errors(said: Captured) -> list[str]:
    return [line for line in said.readouterr().err.splitlines() if line.startswith("advisor: error")]


# --- what a run is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.33.0", "0.12.0", "0.8.5", "0.11.1rc2.dev14+g1a2b3c4"])
def test_vllm_is_profiled_and_diagnosed(
    server: Made, traces: tuple[str, str], version: str, capsys: Captured
) -> None:
    standin = server(version=version)
    assert main(["attach", standin.url, *traces]) == 0
    said = capsys.readouterr()
    assert "launch-bound" in said.out
    assert "load: 8 requests run, 0 wait" in said.err
    assert not standin.profiling
    assert standin.bodies == [{"max_iterations": 20}, None]
    before = standin.asked[: standin.asked.index("POST /start_profile")]
    assert before.count("GET /metrics") >= 3  # looked at without the profiler
    kept = record()
    assert (kept["state"], kept["recorder"], kept["serving_engine"]) == ("diagnosed", "server", "vllm")
    assert kept["versions"]["vllm"] == version
    assert kept["command"][:3] == ["advisor", "attach", standin.url]
    found = facts(diagnosis())
    assert found["load.running"] == 8
    assert found["load.preemptions"] == 0  # three since the server started, none meanwhile
    assert found["load.output_per_s"] == pytest.approx(8 / 0.9e-3, rel=0.05)
    assert diagnosis()["inputs"][0]["untraced_step_from"] == "by the log"
    assert diagnosis()["inputs"][0]["untraced_step_ms"]["mid"] == pytest.approx(0.9, rel=0.05)
    assert main(["runs"]) == 0
    assert "run-1" in capsys.readouterr().out


@pytest.mark.parametrize("version", ["0.5.23", "0.5.3.post1", "0.4.6"])
def test_sglang_is_told_where_to_write(server: Made, version: str, capsys: Captured) -> None:
    standin = server("sglang", version, flush_s=0.3, pieces=3)
    assert main(["attach", standin.url, "--steps", "40"]) == 0
    said = capsys.readouterr()
    assert "launch-bound" in said.out
    assert not standin.profiling
    asked = standin.bodies[0]
    assert asked["num_steps"] == 40
    assert Path(asked["output_dir"]).is_relative_to(Path.cwd())
    found = facts(diagnosis())
    assert (found["load.running"], found["load.batch_limit"], found["load.eager_ratio"]) == (8, 64, 1.0)
    (trace,) = record()["captures"]
    assert trace.endswith("-TP-0.trace.json.gz")
    assert {p.name for p in Path(".advisor/runs/run-1").iterdir()} == {
        "run.json",
        "diagnosis.json",
        "metrics.txt",
        trace,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_profile_by_the_clock(server: Made, traces: tuple[str, str], name: str) -> None:
    standin = server(name)
    begun = time.monotonic()
    assert main(["attach", standin.url, *traces, "--seconds", "1", "-q"]) == 0
    assert time.monotonic() - begun > 1
    assert not standin.profiling
    assert not {"num_steps", "max_iterations"} & (standin.bodies[0] or {}).keys()


@pytest.mark.parametrize("name", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])
def test_all_ranks_are_one_job(server: Made, traces: tuple[str, str], name: str, capsys: Captured) -> None:
    standin = server(name, ranks=4, flush_s=0.1, told=True)  # so that it is known how many are waited for
    assert main(["attach", standin.url, *traces, "-q"]) == 0
    capsys.readouterr()
    found = facts(diagnosis())
    assert (found["ranks.count"], found["ranks.missing_count"]) == (4, 0)
    assert found["load.running"] == 8  # once, though each rank says it
    assert len(record()["captures"]) == 4
    assert len(list((Path(traces[1])).glob("*rank0*" if name == "vllm" else "*TP-0*"))) == 1  # left there


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_half_of_the_ranks_write_nothing(
    server: Made, traces: tuple[str, str], name: str, capsys: Captured
) -> None:
    standin = server(name, ranks=4, missing=(1, 3), told=True)
    assert main(["attach", standin.url, *traces, "--flush", "1"]) == 0
    said = capsys.readouterr()
    assert "2 of 4 ranks wrote a trace" in said.err
    found = facts(diagnosis())
    assert (found["ranks.count"], found["ranks.missing_count"]) == (2, 2)


@pytest.mark.slow
def test_ranks_that_only_their_traces_know_of(server: Made, traces: tuple[str, str]) -> None:
    standin = server(ranks=4, missing=(1, 3))
    assert main(["attach", standin.url, *traces, "-q"]) == 0
    assert facts(diagnosis())["ranks.missing_count"] == 2


@pytest.mark.slow
def test_traces_that_grow_slowly_are_waited_for(server: Made, traces: tuple[str, str]) -> None:
    standin = server("sglang", "0.4.6", flush_s=1.0, pieces=10, ranks=2)
    assert main(["attach", standin.url, *traces, "-q"]) == 0
    assert facts(diagnosis())["ranks.count"] == 2


@pytest.mark.slow
def test_the_folder_of_a_container_has_another_name_there(server: Made, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.symlink_to(tmp_path / "traces")
    standin = server("sglang")
    assert main(["attach", standin.url, "--traces", f"{tmp_path / 'traces'}:{there}", "-q"]) == 0
    assert standin.bodies[0]["output_dir"] == str(there)


@pytest.mark.slow
def test_vllm_in_development_mode_says_where_it_writes(server: Made) -> None:
    standin = server(told=True)
    assert main(["attach", standin.url, "-q"]) == 0
    assert facts(diagnosis())["load.batch_limit"] == 8


@pytest.mark.slow
def test_what_was_there_before_is_not_taken(server: Made, tmp_path: Path, traces: tuple[str, str]) -> None:
    (tmp_path / "traces" / "old_rank7.pt.trace.json").write_text("{}")
    assert main(["attach", server().url, *traces, "-q"]) == 0
    assert len(record()["captures"]) == 1


EARLIER = [
    "rank1.{ns}.pt.trace.json",  # as torch names them: when it was written
    "{s}.25-TP-0.trace.json",  # as SGLang does: when it began
    "mine.json",
]


@pytest.mark.parametrize("name", EARLIER)
def test_a_trace_of_an_earlier_profile_is_not_taken(
    server: Made, tmp_path: Path, traces: tuple[str, str], name: str, capsys: Captured
) -> None:
    """One that another client ended a minute before, and that is still being written."""
    before = time.time() - 60
    path = tmp_path / "traces" / name.format(ns=int(before * 1e9), s=int(before))
    base = int((before - 10) * 1e9)
    text = f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{{"name": "x", "ts": 9000000.5, "dur": 1}}]}}'
    standin = server(on={"/start_profile": lambda: path.write_text(text)})
    assert main(["attach", standin.url, *traces, "-q"]) == 0
    assert len(record()["captures"]) == 1
    assert path.name not in record()["captures"]
    assert f"left out, since it is of an earlier profile: {path.name}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_against_another(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server()
    assert main(["attach", standin.url, *traces, "-q"]) == 0
    for path in Path(traces[1]).iterdir():
        path.unlink()
    capsys.readouterr()
    assert main(["attach", standin.url, *traces, "--against", "run-1"]) == 0
    assert "run-2 against run-1" in capsys.readouterr().out
    assert main(["run", "--again"]) == 2
    assert f"repeat it: advisor attach {standin.url}" in errors(capsys)[0]


@pytest.mark.slow
def test_a_load_of_ours_is_run_meanwhile_and_ended(
    server: Made, traces: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = server(running=0)
    # A busy machine takes seconds to start Python.
    monkeypatch.setattr(attach, "PACE", replace(attach.PACE, arrive=60.0))

    def look() -> None:
        standin.engine.running = 8 * (tmp_path / "loaded").exists()

    standin.engine.on["/metrics"] = look
    client = (
        f"import os, time; open({str(tmp_path / 'loaded')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    load = f'{sys.executable} -c "{client}"'
    assert main(["attach", standin.url, *traces, "--load", load, "-q"]) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "loaded").read_text()), 0)


@pytest.mark.slow
def test_a_path_in_front_and_a_key(
    server: Made, traces: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    standin = server(prefix="/engine-3", key="secret")
    assert main(["attach", standin.url, *traces]) == 2
    assert "put the server's key into ADVISOR_API_KEY" in errors(capsys)[0]
    monkeypatch.setenv("ADVISOR_API_KEY", "secret")
    assert main(["attach", standin.url, *traces, "-q"]) == 0
    assert "secret" not in Path(".advisor/runs/run-1/run.json").read_text()


@pytest.mark.slow
def test_proxies_of_the_environment_are_not_asked(
    server: Made, traces: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert main(["attach", server().url, *traces, "-q"]) == 0


#: The command line, with each address that it looks up or connects to printed last.
AUDITED = """
import sys
seen = []
def see(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        seen.append(str(given[1] if event == "socket.connect" else given[:2]))
sys.addaudithook(see)
from advisor.cli.main import main
from advisor.recording import attach
code = main(sys.argv[1:])
print(sorted(set(seen)))
sys.exit(code)
"""


@pytest.mark.slow
def test_only_the_address_given_is_contacted(server: Made, traces: tuple[str, str]) -> None:
    standin = server()
    words = [sys.executable, "-c", AUDITED, "attach", standin.url, *traces, "--seconds", "1", "-q"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    port = standin.http.server_port
    assert done.stdout.splitlines()[-1] == str([f"('127.0.0.1', {port})"])


# --- what can go wrong -----------------------------------------------------------------------------


def fails(
    standin: Standin, capsys: Captured, *words: str, code: int = 2, running: bool = False
) -> tuple[str, str]:
    """The one line of an error, and all that was said; nothing is left profiling."""
    assert main(["attach", standin.url, *words]) == code
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("advisor: error")]
    assert len(lines) == (code == 2), err
    assert standin.profiling is running
    assert "Traceback" not in err
    return (lines or [""])[0], err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_no_load(server: Made, traces: tuple[str, str], name: str, capsys: Captured) -> None:
    standin = server(name, running=0)
    error, _ = fails(standin, capsys, *traces)
    assert "no request ran in 0 s; send it load meanwhile, or let --load 'COMMAND' do it" in error
    assert not standin.bodies  # nothing was started
    assert record()["state"] == "failed"


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.33.0", "--profiler-config.profiler torch --profiler-config.torch_profiler_dir"),
        ("0.12.0", "VLLM_TORCH_PROFILER_DIR=/"),
        ("0.8.5", "VLLM_TORCH_PROFILER_DIR=/"),
    ],
)
def test_a_profiler_that_was_not_enabled(
    server: Made, traces: tuple[str, str], version: str, flag: str, capsys: Captured
) -> None:
    error, _ = fails(server(version=version, enabled=False), capsys, *traces)
    assert flag in error
    assert not Path(".advisor").exists()


@pytest.mark.usefixtures("server")
def test_a_wrong_port(capsys: Captured) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    assert main(["attach", f"http://127.0.0.1:{port}"]) == 2
    assert "nothing listens there; is the port right" in errors(capsys)[0]


def test_another_server(server: Made, capsys: Captured) -> None:
    standin = server()
    standin.engine.name = "nginx"
    error, _ = fails(standin, capsys)
    assert "neither vLLM nor SGLang answers there" in error


def test_llama_cpp_is_named(server: Made, capsys: Captured) -> None:
    standin = server()
    standin.engine.name = "llama.cpp"
    error, _ = fails(standin, capsys)
    assert "llama.cpp b6700-1a2b3c4d answers there, which has no profiler to attach to" in error
    assert "advisor run --delay 20 -- llama-server" in error


@pytest.mark.usefixtures("server")
def test_a_server_that_does_not_speak_http(capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            connection, _ = listening.accept()
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        threading.Thread(target=talk, daemon=True).start()
        assert main(["attach", f"127.0.0.1:{listening.getsockname()[1]}"]) == 2
    assert "does not speak HTTP" in errors(capsys)[0]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://127.0.0.1", "is not an address of a server"),
        ("http://", "is not an address of a server"),
        ("http://127.0.0.1:port", "is not an address of a server"),
        ("http://me:secret@127.0.0.1", "write http://HOST:PORT alone"),
        ("http://127.0.0.1:8000/?key=1", "write http://HOST:PORT alone"),
        ("http://no-such-host.invalid:8000", "no such host"),
    ],
)
@pytest.mark.usefixtures("server")
def test_no_address(url: str, says: str, capsys: Captured) -> None:
    assert main(["attach", url]) == 2
    (line,) = errors(capsys)
    assert says in line
    assert "secret" not in line


def test_redirects_are_not_followed(server: Made, capsys: Captured) -> None:
    other = server()
    error, _ = fails(server(redirects=f"{other.url}/version"), capsys)
    assert "redirects to" in error
    assert not other.asked


@pytest.mark.slow
def test_a_server_that_hangs(server: Made, capsys: Captured) -> None:
    error, _ = fails(server(hangs=("/version",)), capsys)
    assert "no answer within 3 s" in error


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_answers_that_drip_are_cut(capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            try:
                while True:
                    connection.sendall(b"H")
                    time.sleep(0.1)
            except OSError:
                connection.close()

        threading.Thread(target=drip, daemon=True).start()
        begun = time.monotonic()
        assert main(["attach", f"127.0.0.1:{listening.getsockname()[1]}"]) == 2
    assert time.monotonic() - begun < 60
    assert "no answer within 3 s" in errors(capsys)[0]


def test_vllm_must_be_asked_where_it_writes(server: Made, capsys: Captured) -> None:
    error, _ = fails(server(), capsys)
    assert "--traces DIR" in error
    error, _ = fails(server(), capsys, "--traces", "nowhere")
    assert "nowhere: no such folder here" in error


@pytest.mark.parametrize(
    "refusal", [(409, '{"error": {"message": "A session is active."}}'), (500, "Internal Server Error")]
)
def test_a_profile_of_someone_else_goes_on(
    server: Made, traces: tuple[str, str], refusal: tuple[int, str], capsys: Captured
) -> None:
    standin = server(refuses=refusal)
    error, _ = fails(standin, capsys, *traces)
    assert f"HTTP {refusal[0]}" in error
    assert f"stop it: curl -X POST {standin.url}/stop_profile" in error
    assert "POST /stop_profile" not in standin.asked


def test_a_folder_that_the_server_does_not_write_to(server: Made, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "other").mkdir()
    error, _ = fails(server(), capsys, "--traces", str(tmp_path / "other"), "--flush", "1")
    assert "wrote no trace into" in error
    standin = server("sglang", missing=(0,))
    error, _ = fails(standin, capsys, "--flush", "1")
    assert "if it runs in a container or elsewhere, share a folder" in error


@pytest.mark.slow
def test_a_trace_that_is_not_finished_in_time(
    server: Made, traces: tuple[str, str], capsys: Captured
) -> None:
    standin = server("sglang", "0.4.6", ranks=2, flush_s=1.2, pieces=8)
    assert main(["attach", standin.url, *traces, "--flush", "2"]) == 0
    err = capsys.readouterr().err
    assert "left out, since the server had not finished writing" in err
    assert "1 of 2 ranks" in err


@pytest.mark.slow
def test_a_server_that_dies_while_it_is_profiled(
    server: Made, traces: tuple[str, str], capsys: Captured
) -> None:
    standin = server("sglang", step_ms=50)

    def die() -> None:
        standin.engine.missing = (0,)
        _later(0.2, standin.http.server_close)

    standin.engine.on["/start_profile"] = die
    assert main(["attach", standin.url, *traces]) == 2
    (line,) = errors(capsys)
    assert "nothing listens there" in line
    assert "it left no trace" in line


@pytest.mark.slow
def test_a_server_that_is_gone_before(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server()
    scrapes = iter((0, 0))

    def die() -> None:
        if next(scrapes, None) is None:
            standin.http.server_close()

    standin.engine.on["/metrics"] = die
    assert main(["attach", standin.url, *traces]) == 2
    assert "nothing listens there" in errors(capsys)[0]


@pytest.mark.slow
def test_a_start_that_is_not_answered_is_stopped_all_the_same(server: Made, traces: tuple[str, str]) -> None:
    standin = server()

    def begin() -> None:
        standin.profiling, standin.output = True, standin.engine.folder

    standin.engine.on["/start_profile"] = begin
    standin.engine.hangs = ("/start_profile",)
    assert main(["attach", standin.url, *traces, "--flush", "2"]) == 0
    assert not standin.profiling


@pytest.mark.slow
def test_a_stop_that_is_not_answered_is_said(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server(version="0.12.0", hangs=("/stop_profile",))
    standin.engine.on["/stop_profile"] = standin.over
    assert main(["attach", standin.url, *traces, "--flush", "1"]) == 0
    err = capsys.readouterr().err
    assert "has not answered" in err
    assert f"curl -X POST {standin.url}/stop_profile" in err


def test_https_where_there_is_none(server: Made, capsys: Captured) -> None:
    standin = server()
    assert main(["attach", standin.url.replace("http:", "https:")]) == 2
    assert "http instead of https?" in errors(capsys)[0]


@pytest.mark.usefixtures("server")
def test_an_answer_without_end_is_cut(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.recording.server._MOST_BYTES", 1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pour() -> None:
            connection, _ = listening.accept()
            with suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b"x" * 65536)

        threading.Thread(target=pour, daemon=True).start()
        assert main(["attach", f"127.0.0.1:{listening.getsockname()[1]}"]) == 2
    assert "answers more than 1 MB" in errors(capsys)[0]


def test_metrics_that_are_garbage(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server()
    standin.text = lambda: "\0\xff{}{}{}\nvllm:num_requests_running{engine= 1e999\n" * 9  # type: ignore[method-assign]
    assert main(["attach", standin.url, *traces]) == 0
    assert "no load was measured: /metrics has none of vLLM" in capsys.readouterr().err


def test_a_disk_that_is_full(
    server: Made, traces: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("advisor.recording.traces.os.link", full)
    monkeypatch.setattr("advisor.recording.traces.shutil.copyfile", full)
    error, _ = fails(server(), capsys, *traces)
    assert f"No space left on device); the traces are in {traces[1]}" in error
    monkeypatch.setattr("advisor.pipeline.record.free_bytes", lambda _: 1000)
    error, _ = fails(server(), capsys, *traces)
    assert "its disk has 1 KB free" in error


def test_traces_on_another_disk_are_copied(
    server: Made, traces: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("advisor.recording.traces.os.link", other)
    assert main(["attach", server().url, *traces, "-q"]) == 0
    assert len(record()["captures"]) == 1


def test_traces_of_another_user(
    server: Made, traces: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("advisor.recording.traces.gzip.open", refuse)
    error, _ = fails(server(), capsys, *traces)
    assert "the server runs as another one" in error


def test_no_metrics(server: Made, capsys: Captured) -> None:
    standin = server("sglang", metrics=False)
    assert main(["attach", standin.url]) == 0
    assert "start it with --enable-metrics" in capsys.readouterr().err
    assert "load.running" not in facts(diagnosis())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("false", "--load ended before a request ran: exit code 1"),
        ("sleep 30", "--load: no request ran in 1 s"),
        ("no-such-client", "no-such-client: cannot be run"),
        ("'open", "--load: No closing quotation"),
    ],
)
def test_a_load_that_is_none(
    server: Made, traces: tuple[str, str], load: str, says: str, capsys: Captured
) -> None:
    error, _ = fails(server(running=0), capsys, *traces, "--load", load)
    assert says in error


@pytest.mark.slow
def test_steps_that_do_not_come(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server(version="0.12.0", step_ms=400)
    assert main(["attach", standin.url, *traces]) == 0
    assert "of 20 steps were made" in capsys.readouterr().err


@pytest.mark.usefixtures("server")
def test_options_that_exclude_each_other() -> None:
    assert main(["attach", "127.0.0.1", "--steps", "2", "--seconds", "3"]) == 2
    assert main(["attach", "127.0.0.1", "--fail-on", "regression"]) == 2
    assert main(["attach", "127.0.0.1", "--against", "run-7"]) == 2
    assert main(["attach", "127.0.0.1", "--against", "run-1", "--baseline", "x"]) == 2


# --- Ctrl-C at each stage --------------------------------------------------------------------------


def _later(seconds: float, act: Callable[[], object]) -> None:
    threading.Timer(seconds, act).start()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/version", "/metrics"])
def test_ctrl_c_before_the_profile(
    server: Made, traces: tuple[str, str], path: str, capsys: Captured
) -> None:
    standin = server(on={path: interrupt})
    fails(standin, capsys, *traces, code=130)
    assert not standin.bodies


@pytest.mark.parametrize("delay", [0.0, pytest.param(0.05, marks=pytest.mark.slow), 0.15])
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_ctrl_c_while_it_starts_or_profiles(
    server: Made, traces: tuple[str, str], name: str, delay: float, capsys: Captured
) -> None:
    standin = server(name, step_ms=20)
    standin.engine.on["/start_profile"] = lambda: _later(delay, interrupt)
    fails(standin, capsys, *traces, code=130)
    assert "POST /stop_profile" in standin.asked
    assert record()["state"] == "diagnosed"  # what there is
    assert record()["stopped"] == "Ctrl-C"


@pytest.mark.slow
def test_ctrl_c_while_it_stops(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server(version="0.12.0", flush_s=0.5)
    standin.engine.on["/stop_profile"] = lambda: _later(0.1, interrupt)
    fails(standin, capsys, *traces, code=130)
    assert record()["state"] == "diagnosed"


@pytest.mark.slow
def test_ctrl_c_twice_while_it_stops(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server(version="0.12.0", hangs=("/stop_profile",))

    def twice() -> None:
        standin.profiling = False
        _later(0.1, interrupt)
        _later(0.3, interrupt)

    standin.engine.on["/stop_profile"] = twice
    begun = time.monotonic()
    _, err = fails(standin, capsys, *traces, code=130)
    assert record()["state"] == "failed"
    assert time.monotonic() - begun < 150  # and not the 300 s that a stop may take
    assert "has not answered (Ctrl-C)" in err


@pytest.mark.slow
def test_ctrl_c_while_traces_are_written(server: Made, traces: tuple[str, str], capsys: Captured) -> None:
    standin = server("sglang", "0.4.6", ranks=2, flush_s=0.8, pieces=4)
    standin.engine.on["/stop_profile"] = lambda: _later(1.2, interrupt)
    _, err = fails(standin, capsys, *traces, code=130)
    assert "1 of 2 ranks" in err


@pytest.mark.slow
def test_a_process_that_is_terminated_stops_the_profiler(server: Made, traces: tuple[str, str]) -> None:
    standin = server(step_ms=1000)
    words = [sys.executable, "-m", "advisor", "attach", standin.url, *traces, "--seconds", "60"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        begun = time.monotonic()
        while not standin.profiling and time.monotonic() - begun < 120:
            time.sleep(0.05)
        assert standin.profiling
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert not standin.profiling


def test_what_a_server_says_of_itself(server: Made) -> None:
    found = engine_of(Server(server("sglang", ranks=4).url))
    assert (found.title, found.ranks, found.profiles) == ("SGLang 0.5.23", 4, True)
    found = engine_of(Server(server(told=True, ranks=2).url))
    assert (found.title, found.ranks) == ("vLLM 0.33.0", 2)
    assert "tensor_parallel_size=2" in found.settings
