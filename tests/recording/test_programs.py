"""Programs of many kinds under ``advisor run --recorder torch``: each does what it does alone, and is
recorded, or refused with what to use instead. With the stand-in for torch, and with torch where it is
installed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kineto_builder import decode
from tests.recording import fake_torch

PY = sys.executable
ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import os, sys, threading, time
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.004)
        if x < 0:
            raise ValueError("negative")
        return x + 1

model = Model()
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]
REAL = pytest.param(
    "real",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed in this Python"
    ),
)


@pytest.fixture(params=["stand-in", REAL])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a program under advisor, with words for `advisor run` and a text on standard input."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FAKE_TRACE": str(decode().write(tmp_path / "t.json")),
    }
    if request.param == "stand-in":
        lib = fake_torch.write(tmp_path / "lib")
        environment["PYTHONPATH"] = f"{lib}{os.pathsep}{ROOT}"
    folder = tmp_path / "here"
    folder.mkdir()

    def under(text: str, *words: str, command: tuple[str, ...] = (PY, "program.py"), given: str = "") -> Ran:
        (folder / "program.py").write_text(MODEL + text)
        advisor = (PY, "-m", "advisor", "run", "--recorder", "torch", *words, "--")
        done = subprocess.run(
            (*advisor, *command),
            cwd=folder,
            env=environment,
            **({"input": given} if given else {"stdin": subprocess.DEVNULL}),
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return under


def recorded(ran: Ran) -> bool:
    return ran.out.startswith(".advisor/runs/run-") and "trace.json" in ran.out


def of_ours(ran: Ran) -> list[str]:
    """Lines of tracebacks that name our files."""
    return [line for line in ran.err.splitlines() if "launcher.py" in line or "advisor/recording" in line]


pytestmark = pytest.mark.slow


SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        for x in range(3):
            model(x)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
answered = []
def client():
    for _ in range(10):
        answered.append(urlopen(url).read())
clients = [threading.Thread(target=client) for _ in range(4)]
for c in clients: c.start()
for c in clients: c.join()
server.shutdown()
print("answered", len(answered), set(answered), flush=True)
"""


def test_a_server_with_a_thread_for_each_request_answers_all(run: Run) -> None:
    ran = run(SERVER)
    assert "answered 40 {b'ok'}" in ran.err
    assert of_ours(ran) == []
    assert ran.code == 2
    assert "threads, in none often enough to be recorded" in ran.err


WORKER = """
def work():
    try:
        for x in range(300):
            model(x)
        print("worker made all", flush=True)
    except BaseException as error:
        print("worker got", type(error).__name__, flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("main ended", flush=True)
"""


def test_a_worker_thread_is_recorded_and_nothing_is_raised_in_it(run: Run) -> None:
    ran = run(WORKER)
    assert recorded(ran)
    assert ran.code == 0
    assert "worker got" not in ran.err
    assert of_ours(ran) == []


def test_a_worker_thread_runs_on_where_that_is_asked(run: Run) -> None:
    ran = run(WORKER, "--until-end")
    assert recorded(ran)
    assert "worker made all" in ran.err
    assert "main ended" in ran.err


@pytest.mark.parametrize("steps", [10, 35])
def test_a_thread_that_ends_while_it_is_timed_or_profiled(run: Run, steps: int) -> None:
    text = f"""
def work():
    for x in range({steps}):
        model(x)
for _ in range(4):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print("main ended", flush=True)
"""
    ran = run(text)
    assert "main ended" in ran.err
    assert of_ours(ran) == []
    assert recorded(ran) or "in none often enough to be recorded" in ran.err
    assert "killed" not in ran.err


def test_a_program_that_ends_while_a_thread_of_its_own_is_profiled(run: Run) -> None:
    text = """
made = []
def work():
    while True:
        made.append(model(1))
threading.Thread(target=work, daemon=True).start()
while len(made) < 70:
    time.sleep(0.01)
print("main ended", flush=True)
"""
    ran = run(text, "--steps", "1000")
    assert recorded(ran)
    assert ran.code == 0
    assert "main ended" in ran.err


FORK = """
import multiprocessing
def work(n):
    for x in range(200):
        model(x)
    print("child", n, "made all", flush=True)
if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    children = [context.Process(target=work, args=(n,)) for n in range(2)]
    for c in children: c.start()
    for c in children: c.join()
    print("codes", [c.exitcode for c in children], flush=True)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_it_starts_work_unharmed_and_are_named(run: Run, method: str) -> None:
    ran = run(FORK.replace("METHOD", repr(method)))
    assert "codes [0, 0]" in ran.err
    for n in range(2):
        assert f"child {n} made all" in ran.err
    assert ran.code == 2
    assert "started others (2) that are not recorded" in ran.err
    assert of_ours(ran) == []


def test_a_child_that_is_forked_while_steps_are_recorded_makes_its_own(run: Run) -> None:
    text = """
for x in range(400):
    model(x)
    if x == 40 and os.fork() == 0:
        for y in range(100):
            model(y)
        print("child made", y + 1, flush=True)
        os._exit(0)
"""
    ran = run(text, "--until-end")
    assert recorded(ran)
    assert "child made 100" in ran.err


only_real = pytest.mark.parametrize("run", [REAL], indirect=True)


def test_torchrun_is_told_that_each_rank_records_itself(run: Run) -> None:
    """Before anything is started: the processes of its ranks are not recorded."""
    torchrun = (PY, "-m", "torch.distributed.run", "--nproc-per-node", "2", "program.py")
    ran = run("print('started', flush=True)", command=torchrun)
    assert ran.code == 2
    assert "started" not in ran.err
    assert "--nproc-per-node 2 --no-python advisor run --recorder torch -- python program.py" in ran.err


@only_real
def test_a_compiled_model_is_recorded(run: Run) -> None:
    text = """
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))
    def forward(self, x):
        return self.layers(x)
compiled = torch.compile(Layers(), backend="eager")
x = torch.zeros(4, 64)
for _ in range(2000):
    x = compiled(x)
    time.sleep(0.002)
"""
    ran = run(text)
    assert recorded(ran)
    assert ran.code == 0


def test_standard_input_is_the_programs_own(run: Run) -> None:
    text = """
print("read", repr(sys.stdin.read()), flush=True)
for x in range(300):
    model(x)
"""
    ran = run(text, given="a prompt")
    assert "read 'a prompt'" in ran.err
    assert recorded(ran)


def test_a_generator_of_tokens_is_recorded(run: Run) -> None:
    text = """
def tokens():
    x = 0
    while True:
        x = model(x)
        yield x
for n, token in enumerate(tokens()):
    if n == 300:
        print("made all", flush=True)
        break
"""
    ran = run(text)
    assert recorded(ran)
    assert ran.code == 0
    assert "made all" not in ran.err  # it is ended when the trace is written


def test_the_program_is_ended_as_ctrl_c_ends_it(run: Run) -> None:
    text = """
try:
    for x in range(300):
        model(x)
except KeyboardInterrupt:
    print("closing down", flush=True)
    raise SystemExit(3)
"""
    ran = run(text)
    assert recorded(ran)
    assert "closing down" in ran.err
    assert ran.code == 0


def test_a_program_that_catches_everything_is_recorded_and_ends(run: Run) -> None:
    text = """
for x in range(2000):
    try:
        model(x)
    except BaseException as error:
        print("caught", type(error).__name__, flush=True)
print("made all", flush=True)
"""
    ran = run(text)
    assert recorded(ran)
    assert ran.code == 0


def test_errors_of_the_program_are_its_own(run: Run) -> None:
    text = """
import traceback
for x in (1, 2, -1):
    try:
        model(x)
    except ValueError:
        print(traceback.format_exc(), flush=True)
model(-2)
"""
    ran = run(text)
    assert ran.code == 1
    assert "ended (exit code 1) before anything was recorded: ValueError: negative" in ran.err
    assert of_ours(ran) == []


def test_a_script_that_ends_early_says_so(run: Run) -> None:
    ran = run("model(1); print('done', flush=True)")
    assert "done" in ran.err
    assert recorded(ran)  # its one step


def test_a_program_that_is_killed_is_told_so(run: Run) -> None:
    ran = run("model(1); os.kill(os.getpid(), 9)")
    assert ran.code == 137
    assert "killed by SIGKILL" in ran.err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_nothing_of_it_is_left_running(run: Run, tmp_path: Path) -> None:
    text = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
for x in range(300):
    model(x)
"""
    ran = run(text)
    assert recorded(ran)
    pid = int((tmp_path / "here" / "child").read_text())
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("a child of the program was left running")
