"""Programs of many kinds alone and under ``advisor run``: is anything different for who uses them?

    python benchmarks/programs.py [--nsys PATH] [--write]

Each is run alone, with the profiler of PyTorch, and with nsys: that of PATH, else of --nsys, else a stand-in
with its options, signals and exit codes. Compared are the exit code, the lines that the program prints,
requests served, and files and processes left; lines of the tools themselves do not count.
Torch is that of this Python, else a stand-in. `--write` writes benchmarks/programs.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from advisor.recording.record import OF_NSYS  # noqa: E402
from tests.kineto_builder import decode  # noqa: E402
from tests.recording import fake_torch  # noqa: E402
from tests.recording.standin import StandIn  # noqa: E402
from tests.recording.test_programs import FORK, MODEL, SERVER, WORKER  # noqa: E402
from tests.scenarios.machine import SILU, Machine  # noqa: E402

PY = sys.executable
#: By this variable the processes of a program are found.
MARK = "ADVISOR_PROGRAM"
LOOP = "for x in range({n}):\n    model(x)\nprint('made', x + 1, flush=True)\n"
#: Lines of the profiler of PyTorch and of torchrun.
_OF_TOOLS = re.compile(
    r"USDT:|\s*$|ERROR: External init callback|\*{20,}|Setting OMP_NUM_THREADS|.*(?:W\d{4} |[Ww]arnings?\b)"
)


class Program(NamedTuple):
    """What is run: a script behind `python`, or a whole command with it."""

    name: str
    text: str
    command: tuple[str, ...] = (PY, "program.py")
    given: str | None = None
    real_torch: bool = False


PROGRAMS = (
    Program("server, a thread a request", SERVER),
    Program("model in a worker thread", WORKER),
    Program("workers by fork", FORK.replace("METHOD", "'fork'")),
    Program("workers by spawn", FORK.replace("METHOD", "'spawn'")),
    Program(
        "torchrun, two ranks",
        LOOP.format(n=100),
        (PY, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "program.py"),
        real_torch=True,
    ),
    Program(
        "generator of tokens",
        "def tokens():\n    x = 0\n    while True:\n        x = model(x)\n        yield x\n"
        "for n, token in enumerate(tokens()):\n    if n == 200:\n        print('made all', flush=True)\n"
        "        break\n",
    ),
    Program(
        "torch.compile",
        "m = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))\n"
        "c = torch.compile(m, backend='eager')\nx = torch.zeros(4, 64)\n"
        "for _ in range(400):\n    x = c(x)\n    time.sleep(0.002)\nprint('made all', flush=True)\n",
        real_torch=True,
    ),
    Program(
        "reads standard input",
        "print('read', sys.stdin.read(), flush=True)\n" + LOOP.format(n=200),
        given="a prompt",
    ),
    Program("ends at once", "model(1)\nprint('done', flush=True)\n"),
    Program(
        "catches everything",
        "for x in range(200):\n    try:\n        model(x)\n    except BaseException as error:\n"
        "        print('caught', type(error).__name__, flush=True)\nprint('made all', flush=True)\n",
    ),
    Program("fails", LOOP.format(n=60) + "raise SystemExit(3)\n"),
    Program("is killed", LOOP.format(n=60) + "os.kill(os.getpid(), 9)\n"),
)


class Result(NamedTuple):
    """What a run of a program left."""

    code: int
    lines: tuple[str, ...]
    files: tuple[str, ...]
    processes: int
    requests: str


def carried_out(
    program: Program, folder: Path, before: Sequence[str], path: str, lib: str, trace: Path
) -> Result:
    """Run it, behind the words of a recorder if there are any."""
    folder.mkdir()
    (folder / "program.py").write_text(MODEL + program.text, encoding="utf-8")
    environment = {**os.environ, "PATH": path, "PYTHONPATH": lib, MARK: str(folder), "FAKE_TRACE": str(trace)}
    given = {"stdin": subprocess.DEVNULL} if program.given is None else {"input": program.given}
    done = subprocess.run(
        [*before, *program.command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        **given,
    )
    refused = before and "error: " in done.stderr and not (folder / ".advisor").exists()
    logs = sorted((folder / ".advisor").glob("runs/*/output.txt"))
    text = logs[-1].read_text(encoding="utf-8") if before and logs else done.stdout + done.stderr
    lines = sorted(n for n in text.splitlines() if not (_OF_TOOLS.match(n) or OF_NSYS.fullmatch(n)))
    files = sorted(
        p.name for p in folder.iterdir() if p.name not in ("program.py", "__pycache__", ".advisor")
    )
    served = re.search(r"answered (\d+)", text)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    lines = [] if refused else lines
    return Result(code, tuple(lines), tuple(files), left(folder), served[1] if served else "-")


def left(folder: Path) -> int:
    """Processes of a program that still run."""
    wanted, count = f"{MARK}={folder}".encode(), 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            count += wanted in path.read_bytes().split(b"\0")
        except OSError:
            continue
    return count


def told(alone: Result, under: Result, ended: bool) -> str:
    """What is different under a recorder, in words; nothing where nothing is. `ended`: nothing was recorded,
    which has an exit code of its own where the program ended well."""
    found: list[str] = []
    if under.code == 2 and not under.lines:
        return "not started: the message has the way"
    if under.code != alone.code and not (ended and alone.code == 0 and under.code == 2):
        found.append(f"exit code {under.code}")
    if under.lines != alone.lines:
        more = sorted({*under.lines} ^ {*alone.lines})
        found.append(f"other output ({'; '.join(more)[:160]})")
    if under.requests != alone.requests:
        found.append(f"{under.requests} requests")
    if under.files != alone.files:
        found.append("files left: " + ", ".join({*under.files} - {*alone.files}))
    if under.processes:
        found.append(f"{under.processes} processes left")
    return "; ".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nsys", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    real_torch = importlib.util.find_spec("torch") is not None
    wrong, rows = 0, []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        trace = decode().write(place / "t.json")
        lib = str(ROOT) if real_torch else f"{fake_torch.write(place / 'lib')}{os.pathsep}{ROOT}"
        machine = Machine()
        for i in range(12):
            with machine.step(f"step {i}"):
                machine.layers(30, [(SILU, 1.5)] * 8)
                machine.wait()
        named = args.nsys or shutil.which("nsys")
        path = os.environ["PATH"]
        if named is None:
            (place / "export").mkdir()
            path = f"{StandIn(place / 'bin', machine.write(place / 'export')).folder}{os.pathsep}{path}"
        run = (PY, "-m", "advisor", "run", "--once", "-q")
        nsys = (*run, "--delay", "0", "--duration", "60", *(("--nsys", str(named)) if named else ()), "--")
        torch = (*run, "--recorder", "torch", "--until-end", "--")
        for number, program in enumerate(PROGRAMS):
            if program.real_torch and not real_torch:
                continue
            found = [
                carried_out(program, place / f"{number}-{kind}", before, path, lib, trace)
                for kind, before in (("alone", ()), ("torch", torch), ("nsys", nsys))
            ]
            alone = found[0]
            notes = [told(alone, each, ended=each.code == 2) for each in found[1:]]
            wrong += sum(bool(note) and not note.startswith("not started") for note in notes)
            how = ["recorded" if each.code in (0, alone.code) else "refused" for each in found[1:]]
            rows.append(
                f"| {program.name} | {alone.code} | {alone.requests} | "
                + " | ".join(
                    f"{each.code} | {did} | {note or 'none'}"
                    for each, did, note in zip(found[1:], how, notes, strict=True)
                )
                + " |"
            )
            print(rows[-1], flush=True)
    version = (
        subprocess.run([str(named), "--version"], capture_output=True, text=True).stdout.strip()
        if named
        else "a stand-in"
    )
    if args.write:
        text = [
            "# Programs under `advisor run`",
            "",
            "<!-- Written by benchmarks/programs.py --write; do not edit. -->",
            "",
            "Each program alone, with the profiler of PyTorch (`--recorder torch --until-end`) and with nsys",
            "(`--delay 0 --duration 60`), once. What could differ: exit code, printed lines, requests",
            "served, files beside `.advisor`, and processes left; where nothing could be recorded (the model",
            "works in other processes, or in a thread for each request) the exit code is 2. Torch is",
            f"{'real (on a CPU)' if real_torch else 'a stand-in'}, nsys is {version}.",
            "",
            "| program | exit code alone | requests | torch: exit code | torch | different |"
            " nsys: exit code | nsys | different |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
        ]
        Path(__file__).with_suffix(".md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print(f"{wrong} differences")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
