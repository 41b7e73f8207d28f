"""The load of a server that runs, by its `/metrics`, before anything is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import monotonic, sleep, time_ns
from typing import NamedTuple

from advisor.model.numbers import percent
from advisor.recording import store
from advisor.recording.server import Answer, Engine, Pace, Server
from advisor.recording.watch import Notify
from advisor.sources.serving.log_lines import Row
from advisor.sources.serving.metrics_text import SERVER, engine_of, read_metrics, samples

#: Kept in the folder of a run, with the time of each scrape.
METRICS = "metrics.txt"


class Load(NamedTuple):
    """What was measured without the profiler: whether there is `any` request, how many run and wait, tokens
    a second, the time of one more token of a request in ms, and the share of the KV cache in use; None for
    what is not said."""

    any: bool
    running: float | None
    waiting: float | None
    output_per_s: float | None
    token_ms: float | None
    cache_used: float | None

    @property
    def text(self) -> str:
        """``12 requests run, 3 wait, 810 tokens/s, 14.8 ms a token``"""
        parts = (
            (self.running, "{:.3g} requests run"),
            (self.waiting, "{:.3g} wait"),
            (self.output_per_s, "{:.4g} tokens/s"),
            (self.token_ms, "{:.3g} ms a token"),
        )
        words = [text.format(value) for value, text in parts if value is not None]
        if self.cache_used is not None:
            words.append(f"{percent(self.cache_used, 2)} of the KV cache in use")
        return ", ".join(words)


class Scrapes:
    """What `/metrics` said at several times, with these times; and the settings of the server."""

    def __init__(self, settings: Iterable[str] = ()) -> None:
        self._lines = [f"{SERVER} {setting}" for setting in settings]
        self.count = 0

    def add(self, answer: Answer) -> bool:
        """Add a scrape; False if it holds nothing that is known."""
        lines = [*_stamped(answer.text, time_ns() // 1_000_000)] if answer.ok else []
        self._lines += lines
        self.count += bool(lines)
        return bool(lines)

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def at_once(server: Server) -> Load | None:
    """The load by one scrape; None without metrics."""
    rows = read_metrics(answer.text).rows if (answer := server.get("/metrics")).ok else []
    return _load(rows) if rows else None


def measured(
    pace: Pace, server: Server, engine: Engine, file: Path, notify: Notify, notes: list[str]
) -> Load | None:
    """The load by scrapes over some seconds, which are kept in a file with their times; None if the server
    has no metrics, which `notes` then say."""
    scrapes, begun = Scrapes(engine.settings), monotonic()
    while True:
        if not scrapes.add(server.get("/metrics")):
            flag = "; start it with --enable-metrics" if engine.name == "sglang" else ""
            notes.append(f"no load was measured: /metrics has none of {engine.title}{flag}")
            return None
        if scrapes.count > 1 and monotonic() - begun >= pace.load:
            break
        notify("measuring load without the profiler")
        sleep(pace.look)
    store.write(file, scrapes.text.encode())
    return _load(read_metrics(scrapes.text).rows)


def _stamped(text: str, time_ms: int) -> Iterator[str]:
    """The samples of the engine, with the time of the scrape."""
    for line in text.splitlines():
        for sample in samples(line):
            if engine_of(sample.name) and not sample.name.endswith("_bucket"):
                body = line.strip()
                yield body if sample.time is not None else f"{body} {time_ms}"


def _load(rows: Sequence[Row]) -> Load:
    """Medians over the moments, of all replicas together."""
    replicas = len({row.get("replica", 0.0) for row in rows}) or 1

    def middle(column: str) -> float | None:
        known = [row[column] for row in rows if column in row]
        return median(known) if known else None

    running, waiting, output = (
        None if (one := middle(column)) is None else one * replicas
        for column in ("running", "waiting", "output_per_s")
    )
    return Load(
        any=any(row.get("running", 0.0) > 0 for row in rows),
        running=running,
        waiting=waiting,
        output_per_s=output,
        token_ms=running / output * 1e3 if running and output else None,
        cache_used=middle("cache_used"),
    )
