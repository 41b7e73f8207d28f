"""Reports of benchmarks of serving engines -> the numbers of their runs, and rows of their load.

`report_numbers` says where trtllm-bench, vllm bench, sglang, genai-perf and aiperf keep them; here are JSON,
CSV and labelled lines in general; `llama_bench` reads the tests of llama.cpp.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import Any

from advisor.numerals import finite, read_float
from advisor.reading import LONGEST_LINE, parse_json
from advisor.sources.schema import LOAD_BOTH, LOAD_DECODE
from advisor.sources.serving.llama_bench import is_llama_bench, llama_rows, models
from advisor.sources.serving.log_lines import Row, ServerLog
from advisor.sources.serving.report_numbers import METRICS, TOOLS, Tool

#: A run: its value by metric, all finite and above zero, but for requests that failed.
Run = dict[str, float]

_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")
#: What a run measured; without it a label that comes again belongs to the same run.
_RESULTS = ("output-throughput", "total-throughput", "request-throughput", "time-per-output-token", "latency")
#: Behind this line sglang.bench_one_batch measures; before it, it warms up.
_MEASURED = re.compile(r"^Benchmark \.\.\.$")
LLAMA = "llama-bench"
#: `vllm bench latency` times a batch from its prompts to its last tokens: a step by that includes its share
#: of the prompts, which is small where many tokens follow short prompts.
_SHORT_PROMPT, _MANY_TOKENS = 256, 32
_BATCH = 8.0  # what it takes if it is not told
#: Of fewer tokens a request, next to none comes after the first. Choice.
_SEVERAL_TOKENS = 1.5
#: Two runs have a like load if the requests on their way differ by less: those of an open loop fall with the
#: time of a request. Choice.
_LIKE_RUNS = 1.5
#: Three runs or more whose requests on their way differ by this and more are a sweep. Choice.
_SWEPT = 1.1


def tool_of(text: str) -> tuple[str, str | None] | None:
    """The benchmark that printed a text, and the engine that it measures; None for other texts."""
    if is_llama_bench(text):
        return LLAMA, "native"
    return next(((t.title, t.engine) for t in TOOLS if _is_of(text, t)), None)


def _is_of(text: str, tool: Tool) -> bool:
    return any(re.search(sign, text, re.MULTILINE) for sign in tool.signs)


def read_benchmark(text: str) -> ServerLog:
    """A row for each run that says anything of its load; without rows if none does."""
    tool = tool_of(text)
    if tool is None:
        return ServerLog()
    log = ServerLog(engine=tool[1], title=tool[0])
    if log.title == LLAMA:
        documents = _documents(text) or []
        log.rows += llama_rows(text, documents)
        tested = list(models(text, documents))
        if tested and all(model.on_cpu for model in tested):
            log.settings["on_cpu"] = 1.0
        log.tested = [model for model in tested if not model.on_cpu]
        return log
    for run in read_runs(text):
        row = _row(run)
        if row.keys() & {"output_per_s", "token_ms", "prompt_per_s"}:
            log.rows.append(row)
        for setting, metric in (("tensor_parallel", "gpus"), ("batch_limit", "batch-limit")):
            if metric in run:
                log.settings[setting] = run[metric]
    return log


def without_load(text: str) -> str:
    """What is said of a report that does not tell under which load it was measured."""
    runs = read_runs(text)
    if not any("completed" in run for run in runs) and (failed := sum(run.get("failed", 0) for run in runs)):
        return f": {failed:.0f} requests failed and none was answered; look into the log of the server"
    took = [run["latency"] for run in runs if "latency" in run]
    found = f": {took[0] / 1e3:.3g} s a batch, of a size and lengths that it does not tell" if took else ""
    return (
        f"{found or ', without the load that it was measured under'}; give the report of a benchmark that "
        "sends requests (vllm bench serve, sglang.bench_serving, genai-perf), or the log of the server"
    )


def like_runs(log: ServerLog) -> tuple[Row, Row] | None:
    """Two runs of a report under a like load, as before and after a change; None if there are none. Tests of
    llama-bench are of several models or settings."""
    if log.title == LLAMA:
        return None
    known = sorted((row for row in log.rows if "in_flight" in row), key=lambda row: row["in_flight"])
    steps = [after["in_flight"] / before["in_flight"] for before, after in pairwise(known)]
    if len(steps) > 1 and min(steps) >= _SWEPT:
        return None
    known = [row for row in log.rows if "in_flight" in row]
    return next((pair for pair in combinations(known, 2) if _are_like(*pair)), None)


def _are_like(one: Row, other: Row) -> bool:
    shared = [name for name in ("in_flight", "output_tokens") if name in one and name in other]
    values = [sorted((one[name], other[name])) for name in shared]
    return one.keys() == other.keys() and all(high <= low * _LIKE_RUNS for low, high in values)


def _token_ms(run: Run) -> float | None:
    """Time (ms) of a token after the first: a mean over tokens where the report has it. That over requests
    counts a request of ten tokens like one of a thousand. Where one answer holds several tokens, as with
    drafts, what lies between answers is longer than a token takes."""
    if (length := _length(run)) is not None and length < _SEVERAL_TOKENS:
        return None
    known = [run[name] for name in ("time-between-tokens", "time-per-output-token") if name in run]
    return min(known, default=None)


def _length(run: Run) -> float | None:
    """Tokens that a request gets."""
    tokens, requests = run.get("output-throughput"), run.get("request-throughput")
    return run.get("output-tokens") or (tokens / requests if tokens and requests else None)


def _row(run: Run) -> Row:
    """The load of a run. Its client counts the requests that are on their way; those that decode at once
    follow from the tokens a second after the first of each request, and the time per token (Little's law)."""
    tokens, token_ms = run.get("output-throughput"), _token_ms(run)
    requests, first_ms = run.get("request-throughput"), run.get("first-token")
    step, length, on_their_way = run.get("decode-step"), run.get("output-tokens"), run.get("concurrency")
    mostly_decode = True
    if tokens is None and (whole_ms := run.get("latency")) and length:
        on_their_way = on_their_way or _BATCH
        tokens = on_their_way * length / whole_ms * 1e3
        mostly_decode = length >= _MANY_TOKENS and run.get("input-tokens", 0.0) <= _SHORT_PROMPT
        step = whole_ms / length if mostly_decode else None
    length = _length(run)
    request_ms = run.get("request-latency") or run.get("latency")
    if request_ms is None and None not in (first_ms, token_ms, length):
        request_ms = first_ms + token_ms * max(length - 1, 0.0)  # type: ignore[operator]
    if on_their_way is None and requests and request_ms:
        on_their_way = requests * request_ms / 1e3
    decode = on_their_way if mostly_decode else None
    if tokens and token_ms:
        decode = max(tokens - (requests or 0.0), 0.0) * token_ms / 1e3
        if on_their_way is not None:
            decode = min(decode, on_their_way)
    if step and tokens:
        decode = on_their_way = tokens * step / 1e3
    found = {
        "kind": float(LOAD_DECODE if step else LOAD_BOTH),
        "running": decode,
        "in_flight": on_their_way,
        "output_per_s": tokens,
        "step_ms": step,
        "token_ms": token_ms or step,
        "first_token_ms": first_ms,
        "request_ms": request_ms,
        "output_tokens": length,
        "accepted": run.get("accepted"),
        "failed": run.get("failed"),
        "completed": run.get("completed"),
    }
    return {name: value for name, value in found.items() if value is not None}


# --- numbers of reports ----------------------------------------------------------------------------


def read_runs(text: str) -> list[Run]:
    """The runs of a report in JSON, CSV or text; empty if none of the metrics is found."""
    runs = _from_json(text)
    if runs is None:
        runs = _from_table(text) or list(_from_labels(text))
    found = (
        {m: v for m, v in run.items() if math.isfinite(v) and (v > 0 or (m == "failed" and v == 0))}
        for run in runs
    )
    return [run for run in found if run]


def _documents(text: str) -> list[Any] | None:
    """What a text holds as JSON, a list of documents or one a line; None if it is not JSON."""
    try:
        try:
            document = parse_json(text)
        except ValueError:
            if not text.lstrip().startswith("{"):
                return None
            document = [parse_json(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None
    return document if isinstance(document, list) else [document]


def _from_json(text: str) -> list[Run] | None:
    documents = _documents(text)
    return None if documents is None else [_by_key(e) for e in documents if isinstance(e, dict)]


def _by_key(report: dict[str, Any]) -> Run:
    out: Run = {}
    for name, metric in METRICS.items():
        for path in metric.keys:
            value: Any = report
            for part in path.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if (number := finite(value)) is not None:
                out[name] = number * metric.scale
                break
    if "failed" not in out and (failed := _listed_errors(report)) is not None:
        out["failed"] = failed
    return out


def _listed_errors(report: dict[str, Any]) -> float | None:
    """Requests that failed, by their errors: of vllm bench and sglang a text for each request, empty for
    those that did not fail; of aiperf the errors of each kind, counted. None if the report lists none."""
    errors, kinds = report.get("errors"), report.get("error_summary")
    if isinstance(errors, list) and all(isinstance(error, str) for error in errors):
        return float(sum(bool(error) for error in errors)) if errors else None
    if isinstance(kinds, list) and all(isinstance(kind, dict) for kind in kinds):
        counts = [finite(kind.get("count")) for kind in kinds]
        return sum(n for n in counts if n is not None) if None not in counts else None
    return None


def _from_table(text: str) -> list[Run]:
    """Runs of a CSV with a head: one a row, in columns named like the keys of reports."""
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except csv.Error:
        return []
    if len(rows) < 2:
        return []
    heads = {_plain(cell): i for i, cell in enumerate(rows[0])}
    columns: dict[str, tuple[int, float]] = {}
    for name, metric in METRICS.items():
        wanted = [_plain(p.removesuffix(".avg").rpartition(".")[2]) for p in metric.keys]
        at = next((heads[w] for w in wanted if w in heads), None)
        if at is not None:
            columns[name] = (at, metric.scale)
    runs = []
    for row in rows[1:]:
        cells = {n: (_cell(row[at]), scale) for n, (at, scale) in columns.items() if at < len(row)}
        runs.append({n: value * scale for n, (value, scale) in cells.items() if value is not None})
    return [run for run in runs if run]


def _plain(text: str) -> str:
    """``Output Throughput (tok/s)`` -> ``output_throughput_tok_s``"""
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")


def _from_labels(text: str) -> Iterator[Run]:
    """Numbers behind known labels, as in text reports and genai-perf's CSV; of a metric behind its first
    label. A label that comes again begins the next run, once this one holds a result."""
    out: dict[str, tuple[int, float]] = {}
    seen: set[tuple[str, int]] = set()
    for line in text.splitlines():
        clean = line[:LONGEST_LINE].strip().lstrip("#│|┃>").strip()
        found = {
            (name, i): value * metric.scale
            for name, metric in METRICS.items()
            for i, value in _behind(clean, metric.labels)
        }
        if _MEASURED.match(clean):
            out, seen = {}, set()
        elif seen & found.keys() and any(n in out for n in _RESULTS):
            yield {name: value for name, (_, value) in out.items()}
            out, seen = {}, set()
        seen |= found.keys()
        for (name, i), value in found.items():
            if name not in out or i <= out[name][0]:
                out[name] = i, value
    yield {name: value for name, (_, value) in out.items()}


def _behind(line: str, labels: Iterable[str]) -> Iterator[tuple[int, float]]:
    """The number behind the first label that the line begins with, and which label it is."""
    for i, label in enumerate(labels):
        if found := re.match(label, line):
            rest = line[found.end() :].lstrip(' ":,\t│|┃')
            number = _NUMBER.match(rest)
            # In CSV a number with a thousands comma is quoted, so a bare comma ends a cell.
            if number is not None:
                quoted = line[found.end() :].lstrip(" ,:\t").startswith('"')
                csv_row = line[found.end() :].lstrip('" ').startswith(",")
                text = number[0] if quoted or not csv_row else number[0].partition(",")[0]
                if (value := _cell(text)) is not None:
                    yield i, value
                return


def _cell(text: str) -> float | None:
    return read_float(text.strip().strip('"'))
