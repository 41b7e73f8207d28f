"""Recording a server that runs: its load by `/metrics`, then its own profiler, which is stopped in any case,
then the traces that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep, time
from typing import IO, Any

from msgspec import Struct, field

from advisor.errors import InputError
from advisor.recording.load import METRICS, Load, at_once, measured
from advisor.recording.profiling import Session, terminated_as_interrupted
from advisor.recording.record import LOG, Recorded
from advisor.recording.server import Engine, Pace, Server
from advisor.recording.traces import TRACES, Files, collected, kept
from advisor.recording.watch import Notify, Watched, size_of
from advisor.sources.serving.metrics_text import samples

_ITERATIONS = "vllm:iteration_tokens_total_count"
#: A window of steps is given this many times the time that they take without the profiler.
_SLOWER = 30
PACE = Pace()


class Attach(Struct, frozen=True):
    """What to record: `steps`, or `seconds`; the folder of the traces as it is called here and `there`, where
    the server runs; a command that makes the load; and how long the server may take to write."""

    steps: int | None = 20
    seconds: float | None = None
    traces: Path | None = None
    there: str | None = None
    load: tuple[str, ...] = ()
    flush_s: float = 300.0
    pace: Pace = field(default_factory=lambda: PACE)


def check(wanted: Attach, server: Server, engine: Engine) -> None:
    """Raises InputError for what cannot be recorded there, before anything is started."""
    if engine.profiles is False:
        raise InputError(f"{server.url}: {engine.title} runs without its profiler; {engine.how_to_enable}")
    if wanted.traces is not None and not wanted.traces.is_dir():
        raise InputError(f"--traces {wanted.traces}: no such folder here; mount the server's folder first")
    if engine.name == "vllm" and wanted.traces is None and not (engine.traces and engine.traces.is_dir()):
        raise InputError(
            f"{server.url}: {engine.title} writes its traces where it was told at start-up; name that folder "
            "as it is seen from here: --traces DIR"
        )


def attach(
    wanted: Attach, server: Server, engine: Engine, folder: Path, notify: Notify, echo: IO[bytes] | None
) -> tuple[Recorded, Load | None]:
    """Measure, profile and collect into `folder`. Raises InputError where there is no load, and where nothing
    was recorded, but for what Ctrl-C ended; the server profiles no more in any case."""
    begun, folder = monotonic(), folder.absolute()
    traces = wanted.traces or (engine.traces if engine.name == "vllm" else None) or folder / TRACES
    if traces == folder / TRACES:
        traces.mkdir()
    notes: list[str] = []
    with terminated_as_interrupted():
        with _loaded(wanted, server, folder, notify, echo) as loaded:
            load = measured(wanted.pace, server, engine, folder / METRICS, notify, notes)
            if load is not None and not load.any:
                raise InputError(
                    f"{server.url}: no request ran in {wanted.pace.load:.0f} s; send it load meanwhile, or "
                    "let --load 'COMMAND' do it"
                )
            files = Files(traces, time() + server.ahead_s)
            body = _body(wanted, engine, wanted.there or str(traces.absolute()))
            session = Session(server, body, wanted.flush_s, notify)
            session.record(Window(wanted, server, engine, files, load, notes).over)
            if not loaded():
                notes.append("the load ended before the profile did; give --load a longer one")
        flush_s = 0.0 if session.given_up else wanted.flush_s
        found, late, given_up = collected(files, engine, wanted.pace, flush_s, notify)
    notes += session.notes + late
    interrupted = session.interrupted or given_up
    if not found and not interrupted:
        if session.gone:
            raise InputError(f"{session.notes[-1]}; it left no trace")
        raise InputError(_nothing(wanted, engine, traces, folder))
    return Recorded(
        options=tuple(f"{key}={value}" for key, value in body.items()),
        captures=tuple(kept(path, found, folder) for path in sorted(found)),
        code=None,
        stopped="Ctrl-C" if interrupted else None,
        interrupted=interrupted,
        seconds=monotonic() - begun,
        size=size_of(folder),
        last=(),
        notes=tuple(notes),
        versions={engine.name: engine.version},
    ), load


# --- the load ----------------------------------------------------------------------------------------------


@contextmanager
def _loaded(
    wanted: Attach, server: Server, folder: Path, notify: Notify, echo: IO[bytes] | None
) -> Iterator[Callable[[], bool]]:
    """The user's load, if there is one, while the block runs; whether it still does. Raises InputError if it
    ends or brings no request."""
    if not wanted.load:
        yield lambda: True
        return
    running = Watched(wanted.load, folder, folder / LOG, None, echo)
    try:
        begun, pace = monotonic(), wanted.pace
        while (load := at_once(server)) is not None and not load.any:
            if not running.runs:
                raise InputError(f"--load ended before a request ran: {running.last_line()}")
            if monotonic() - begun > pace.arrive:
                raise InputError(f"--load: no request ran in {pace.arrive:.0f} s")
            notify("waiting for the load")
            sleep(pace.look)
        sleep(pace.load)  # until it is steady
        yield lambda: running.runs
    finally:
        running.end()


# --- the profile -------------------------------------------------------------------------------------------


def _body(wanted: Attach, engine: Engine, there: str) -> dict[str, Any]:
    """What the profiler is started with. SGLang stops by itself after `num_steps`, and newer vLLM after
    `max_iterations`; older vLLM knows no body and ignores it."""
    if engine.name == "vllm":
        return {} if wanted.steps is None else {"max_iterations": wanted.steps}
    steps = {} if wanted.steps is None else {"num_steps": wanted.steps}
    return {"output_dir": there, "activities": ["CPU", "GPU"], "record_shapes": True, **steps}


class Window:
    """The part of the profile: `over` is asked again and again from the moment that the profiler runs."""

    def __init__(
        self,
        wanted: Attach,
        server: Server,
        engine: Engine,
        files: Files,
        load: Load | None,
        notes: list[str],
    ) -> None:
        self._server, self._files, self._notes, self._steps = server, files, notes, wanted.steps
        self._counts = engine.name == "vllm"
        self._begun: float | None = None
        self._first: float | None = None
        pace, step_ms = wanted.pace, None if load is None else load.token_ms
        if wanted.seconds is not None:
            self._limit = wanted.seconds
        elif step_ms is None:
            self._limit = pace.most
        else:
            self._limit = min(max(_SLOWER * (wanted.steps or 0) * step_ms / 1e3, pace.least), pace.most)

    def over(self) -> bool:
        """Whether the steps were made, or the time is up."""
        now = monotonic()
        self._begun = self._begun or now
        ended = now - self._begun >= self._limit
        if self._steps is None or self._files.new():  # it has stopped by itself, and writes
            return ended if self._steps is None else True
        count = _iterations(self._server) if self._counts else None
        if count is None:
            return ended
        self._first = count if self._first is None else self._first
        made = count - self._first
        if ended and made < self._steps:
            self._notes.append(f"{made:.0f} of {self._steps} steps were made in {self._limit:.0f} s")
        return ended or made >= self._steps


def _iterations(server: Server) -> float | None:
    """Steps that the busiest engine of vLLM has made."""
    counts = [s.value for s in samples(server.get("/metrics").text) if s.name == _ITERATIONS]
    return max(counts, default=None)


def _nothing(wanted: Attach, engine: Engine, traces: Path, folder: Path) -> str:
    """Why there is no trace."""
    if engine.name == "sglang" and traces == folder / TRACES:
        return (
            f"{engine.title} wrote no trace into {traces} in {wanted.flush_s:.0f} s; if it runs in a "
            "container or elsewhere, share a folder with it: --traces DIR, or DIR:ITS_NAME_THERE"
        )
    return (
        f"{engine.title} wrote no trace into {traces} in {wanted.flush_s:.0f} s; is that the folder that it "
        "was told, or does it take longer (--flush S)?"
    )
