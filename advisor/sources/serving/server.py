"""A server's log, its metrics, or a benchmark's report as a source: it fills the table `load` alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.errors import InputError, OtherTimeError
from advisor.model.capture import Capture, Recorder
from advisor.reading import decoded
from advisor.sources.ranges import possible
from advisor.sources.samplers.log import SampleLog
from advisor.sources.schema import TABLES
from advisor.sources.serving.benchmarks import like_runs, read_benchmark, tool_of, without_load
from advisor.sources.serving.line_times import Within, moment_of, within
from advisor.sources.serving.llama_bench import Tested
from advisor.sources.serving.log_lines import Row, ServerLog, has_load, read_log
from advisor.sources.serving.metrics_text import is_metrics, read_metrics
from advisor.sources.trace import Around, Columns, InMemory, Source

RECORDER = Recorder(clock="no times: lines in their order", samples_only=True)
FORMAT, METRICS, BENCHMARK = "server-log", "server-metrics", "benchmark"
_MOST_BYTES = 512 << 20
_TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "native": "llama.cpp",
    "tgi": "TGI",
    "triton-server": "Triton",
}
#: Engines that serve models of any kind.
_ANY_MODEL = ("triton-server",)
#: A command as each engine is started, from which the engine and its options are known.
_COMMANDS = {
    "vllm": "vllm serve",
    "sglang": "python -m sglang.launch_server",
    "tensorrt-llm": "trtllm-serve",
    "tgi": "text-generation-launcher",
}


class ServerLoad(InMemory):
    """The load of one server, of all its replicas. `settings` of its start-up are options of the capture."""

    def __init__(self, shown: Path, text: str) -> None:
        super().__init__()
        log, kind = parse(text)
        if not log.rows and kind == BENCHMARK and log.title:
            raise InputError(f"{shown}: a report of {log.title}{without_load(text)}")
        if not log.rows:
            raise InputError(
                f"{shown}: no server's log with lines about its load; give the part with lines such as "
                "'Avg generation throughput' (vLLM) or 'Decode batch' (SGLang), a scrape of /metrics, or "
                "the report of a benchmark"
            )
        if kind == BENCHMARK and (like := like_runs(log)) is not None:
            raise InputError(
                f"{shown}: holds runs of a like load ({_measured_text(like)}); give each a file of its own: "
                "advisor compare before.txt after.txt"
            )
        rows = [row for row in possible(log.rows, "load", self.ledger) if row is not None]
        if not any(row.keys() - {"kind", "replica"} for row in rows):
            raise InputError(
                f"{shown}: all lines about the load hold numbers that cannot be, such as shares above 1 or "
                "counts below 0; give the log as the server wrote it"
            )
        self._tables["load"] = {
            name: np.array([row.get(name, math.nan) for row in rows], float) for name in TABLES["load"]
        }
        self.ledger.note(
            "dropped", "lines of the load that could not be read", "load", log.torn, len(log.rows) + log.torn
        )
        counts = {"preempted": log.preempted, "aborted": log.aborted}
        settings = log.settings | {name: float(n) for name, n in counts.items() if n is not None}
        self.began = log.began
        self.capture = Capture(
            path=str(shown),
            format=kind,
            recorder=RECORDER,
            size_bytes=len(text.encode("utf-8", "replace")),
            producer=log.title or _TITLES.get(log.engine or "", "a serving engine"),
            producer_version=log.version,
            command=_command(log),
            options={name: f"{value:g}" for name, value in settings.items()}
            | ({"any_model": "yes"} if log.engine in _ANY_MODEL else {})
            | ({"replicas": ", ".join(log.replicas)} if log.replicas else {})
            | _tested(log.tested),
        )


class WithLoad(Around):
    """`source` with the load of the server that ran in it. What the source knows of itself goes first. Of a
    log with dates the lines in the time of samples count, in their time. Raises OtherTimeError if none
    does."""

    def __init__(self, source: Source, log: ServerLoad) -> None:
        super().__init__(source)
        self._log = log
        self.ledger.update(log.ledger)
        self._within, warnings = _within(source, log)
        options = {**log.capture.options, **source.capture.options}
        if self._within is not None and not self._within.rows.all():
            for counted in ("preempted", "aborted"):  # of all lines
                options.pop(counted, None)
        self.capture = source.capture.replaced(
            options=options,
            command=source.capture.command or log.capture.command,
            warnings=(*source.capture.warnings, *warnings),
        )

    def tables(self) -> frozenset[str]:
        return self._source.tables() | {"load"}

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        if table != "load":
            return self._source.read_columns(table, columns)
        read = self._log.read_columns(table, columns)
        if self._within is None:
            return read
        later = {name: self._within.shift_s if name == "time_s" else 0.0 for name in columns}
        return {name: read[name][self._within.rows] + later[name] for name in columns}


def _within(source: Source, log: ServerLoad) -> tuple[Within | None, list[str]]:
    """Which lines of the log lie in the time of samples, and remarks on them; None if a date is missing,
    or the source is a capture, which may be shorter than what a line tells of."""
    if not isinstance(source, SampleLog) or source.begin_ns is None or log.began is None:
        return None, []
    times_s = log.read_columns("load", ("time_s",))["time_s"]
    lasts_s = float(source.read_columns("samples", ("time",))["time"].max()) / 1e9
    zoned = log.began.zoned and not source.local
    if (found := within(times_s, log.began, source.begin_ns, lasts_s, zoned)) is None:
        raise OtherTimeError(
            f"{log.capture.path}: of another time than {source.capture.path} ({log.began}, and "
            f"{moment_of(source.begin_ns // 10**6)}); give a log and samples of one time"
        )
    warnings = []
    if not found.rows.all():
        count = int(found.rows.sum())
        warnings.append(f"of the log {count} of {len(times_s)} lines count, those in the time of the samples")
    if found.zone_s:
        hours = f"{abs(found.zone_s) / 3600:g} h {'behind' if found.zone_s > 0 else 'ahead of'}"
        warnings.append(
            f"the times of the log are taken to be {hours} those of the samples, as its lines fit so"
        )
    return found, warnings


def _measured_text(runs: Sequence[Row]) -> str:
    """What runs measured, one after the other."""
    units = (("token_ms", "ms a token"), ("output_per_s", "tokens/s"), ("request_ms", "ms a request"))
    name, unit = next((n, u) for n, u in units if all(n in run for run in runs))
    return f"{' and '.join(f'{run[name]:.4g}' for run in runs)} {unit}"


def _tested(models: Sequence[Tested]) -> dict[str, str]:
    """Models of which a benchmark says how many of their layers were on the GPU, one behind the other."""
    known = [m for m in models if m.gpu_layers is not None and m.gpu_layers >= 0]
    experts = [m.expert_layers for m in models if m.expert_layers is not None]
    found = {"expert_layers_on_cpu": f"{max(experts):g}"} if experts else {}
    if not known:
        return found
    return found | {
        "tested_models": "; ".join(m.model.replace(";", ",") for m in known),
        "tested_parameters": "; ".join("" if m.parameters is None else f"{m.parameters:g}" for m in known),
        "tested_gpu_layers": "; ".join(f"{m.gpu_layers:g}" for m in known),
    }


def _command(log: ServerLog) -> tuple[str, ...]:
    """A command that starts such a server, with its release."""
    if log.engine not in _COMMANDS:
        return ()
    return (_COMMANDS[log.engine], *((f"{log.engine}=={log.version}",) if log.version else ()))


def parse(text: str) -> tuple[ServerLog, str]:
    """What the text holds, and whether it is a log, metrics, or the report of a benchmark."""
    if is_metrics(text):
        return read_metrics(text), METRICS
    log = read_log(text)
    if not log.rows and (report := read_benchmark(text)).title is not None:
        return report, BENCHMARK
    return log, FORMAT


def open_server(path: Path, shown: Path) -> ServerLoad:
    """Raises InputError if no line tells of the load."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{shown}: too large for a server's log (more than {_MOST_BYTES >> 20} MiB)")
    return ServerLoad(shown, decoded(path.read_bytes()))


def is_server(head: bytes) -> bool:
    """True if the beginning of a file holds such lines."""
    return holds_load(head.decode("utf-8", "replace"))


def holds_load(text: str) -> bool:
    """True if any line reports the load of a server."""
    return is_metrics(text) or any(map(has_load, text.splitlines())) or tool_of(text) is not None
