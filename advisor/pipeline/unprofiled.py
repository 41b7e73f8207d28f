"""The step of a program without the profiler: the program once more, with its own ranges alone recorded,
beside what it prints and, where it is a server, what `/metrics` says of its load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import IO, NamedTuple

import numpy as np

from advisor.capture.nsys_options import apart, name_of
from advisor.errors import InputError
from advisor.model.arrays import Array
from advisor.model.options import Options
from advisor.model.run import Run
from advisor.pipeline.diagnose import analysis_of, open_trace
from advisor.reading import decoded
from advisor.recording.load import METRICS, Scrapes
from advisor.recording.nsys import Nsys
from advisor.recording.record import LOG, Recorded, Wanted, record
from advisor.recording.server import Server
from advisor.recording.watch import Limits, MayRepeat, Notify
from advisor.sources.serving.server import holds_load, parse
from advisor.sources.trace import Trace

#: Below the folder of a run.
FOLDER = "unprofiled"
#: Options that also hold for a recording of the ranges alone: its window, and how the program is followed.
_KEPT = (
    "--delay",
    "--duration",
    "--kill",
    "--wait",
    "--trace-fork-before-exec",
    "--env-var",
    "--force-overwrite",
)
_LIGHT = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none")
_FEWEST = 5
#: A step is the time from range to range if both differ by at most this share.
_LIKE = 0.1
_NUMBER = re.compile(r"\d+")
#: Where servers listen, by the words that start them, if no --port is given.
_PORTS = {"vllm serve": 8000, "api_server": 8000, "sglang serve": 30000, "launch_server": 30000}
_SCRAPE_S = 1.0


class Reason(NamedTuple):
    """Why a step can be timed without the profiler, in words; and the `range` that does so, if one does."""

    text: str
    range: str | None = None


class Known(NamedTuple):
    """What an unprofiled pass found: the step by ranges, or a log with the engine's load."""

    step_ms: float | None = None
    log: Path | None = None


def worth(folder: Path, run: Run, options: Options) -> Reason | None:
    """Why the program's step can be timed without the profiler; None if it cannot."""
    if (name := step_range(folder / run.captures[0], options)) is not None:
        return Reason(f"its range '{name.strip()}' times a step", name)
    if _load_of(run.command, folder / LOG) is not None:
        return Reason("it prints its load")
    if port_of(run.command) is not None:
        return Reason("its /metrics shows its load")
    return None


def measure(
    folder: Path,
    run: Run,
    nsys: Nsys,
    limits: Limits,
    why: Reason,
    notify: Notify,
    echo: IO[bytes] | None,
    may_repeat: MayRepeat,
) -> tuple[Known, Recorded]:
    """Run the program once more, with its ranges recorded and nothing else, into a folder of its own. Raises
    InputError where that fails."""
    place = folder / FOLDER
    place.mkdir()
    asked = [one for option in run.options for one in apart(option) if name_of(one) in _KEPT]
    with Watching(run.command, place / METRICS):
        done = record(
            Wanted([*asked, *_LIGHT], run.command, run.variables, limits),
            nsys,
            place,
            notify,
            echo,
            may_repeat,
        )
    if why.range is not None and (ns := _period(place / done.captures[0].name, why.range)) is not None:
        return Known(step_ms=ns / 1e6), done
    for file, command in ((place / METRICS, ()), (place / LOG, run.command)):
        if (text := _load_of(command, file)) is not None:
            file.write_text(text, encoding="utf-8")
            return Known(log=file), done
    return Known(), done


def _load_of(command: Sequence[str], file: Path) -> str | None:
    """What a file says of a load, behind the command that printed it; None if it says nothing."""
    if not file.is_file():
        return None
    before = f"{shlex.join(command)}\n" if command else ""
    text = before + decoded(file.read_bytes())
    return text if holds_load(text) and parse(text)[0].rows else None


def step_range(capture: Path, options: Options) -> str | None:
    """The name, without numbers, of the ranges that are the steps of a capture of one phase, if the time
    from one to the next is that of a step."""
    with analysis_of(capture, options) as a:
        rows = a.window_steps
        if a.steps.method != "ranges" or len(rows) < _FEWEST or len({*a.window_phases.tolist()}) != 1:
            return None
        starts, ends = a.steps.host_start[rows], a.steps.host_end[rows]
        step = float(np.median(np.diff(a.steps.gpu_end[rows])))
        for name, begins in _named(a.trace, starts, ends).items():
            if len(begins) == len(rows) and abs(float(np.median(np.diff(begins))) - step) <= _LIKE * step:
                return name
    return None


def _named(trace: Trace, starts: Array, ends: Array) -> dict[str, Array]:
    """The ranges that begin and end with the steps, by their name without numbers."""
    columns = trace.columns("ranges", ("start", "end", "text_id"))
    rows = np.flatnonzero(np.isin(columns["start"], starts) & np.isin(columns["end"], ends))
    found: dict[str, list[int]] = {}
    for row, text in zip(rows.tolist(), trace.texts(columns["text_id"][rows].tolist()), strict=True):
        found.setdefault(_NUMBER.sub("", text), []).append(int(columns["start"][row]))
    return {name: np.array(sorted(begins)) for name, begins in found.items()}


def _period(capture: Path, name: str) -> float | None:
    """The median time (ns) from one range of this name to the next, on the thread with most of them."""
    with open_trace(capture) as trace:
        if not trace.has("ranges"):
            return None
        columns = trace.columns("ranges", ("start", "text_id", "thread"))
        ids = np.unique(columns["text_id"])
        texts = trace.texts(ids.tolist())
        alike = [_NUMBER.sub("", text) == name for text in texts]
        at = np.isin(columns["text_id"], ids[alike])
        if at.sum() < _FEWEST:
            return None
        threads, counts = np.unique(columns["thread"][at], return_counts=True)
        begins = np.sort(columns["start"][at & (columns["thread"] == threads[counts.argmax()])])
        return float(np.median(np.diff(begins)))


def port_of(command: Sequence[str]) -> int | None:
    """The port on this machine at which a serving engine is started; None for another command."""
    line = " ".join(Path(word).name for word in command)
    usual = next((port for words, port in _PORTS.items() if words in line), None)
    if usual is None:
        return None
    given = re.search(r"--port[= ](\d{1,5})(?:\s|$)", " ".join(command))
    return int(given[1]) if given else usual


class Watching:
    """Reads `/metrics` of the server that a command starts, every second while the block runs, and keeps what
    it says of its load."""

    def __init__(self, command: Sequence[str], file: Path) -> None:
        self._port, self._file, self._over = port_of(command), file, Event()
        self._thread = Thread(target=self._read, daemon=True)

    def __enter__(self) -> None:
        if self._port is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._port is not None:
            self._thread.join()

    def _read(self) -> None:
        server, scrapes = Server(f"http://127.0.0.1:{self._port}"), Scrapes()
        while not self._over.wait(_SCRAPE_S):
            try:
                scrapes.add(server.get("/metrics"))
            except InputError:  # it loads its model
                continue
        if scrapes.count > 1:
            self._file.write_text(scrapes.text, encoding="utf-8")
