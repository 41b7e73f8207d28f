"""Lines that serving engines log about their load, and about themselves when they start -> rows and settings.

vLLM (V0 and V1), SGLang, TensorRT-LLM (iteration log, and iteration statistics as JSON lines), llama.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from advisor.numerals import finite, read_float, read_int
from advisor.reading import short_lines
from advisor.sources.schema import LOAD_BOTH, LOAD_DECODE, LOAD_PREFILL
from advisor.sources.serving.line_times import Clock, Moment
from advisor.sources.serving.llama_bench import Tested
from advisor.sources.serving.request_lines import ITERATION, OLLAMA, TGI, of_iteration, of_ollama, of_tgi
from advisor.sources.serving.several_lines import SeveralLines
from advisor.sources.serving.timed_slots import TimedSlots

Row = dict[str, float]

#: What a line about the load of an engine contains.
_VLLM = re.compile(
    r"Avg prompt throughput:\s*(\d+(?:\.\d+)?) tokens/s, "
    r"Avg generation throughput:\s*(\d+(?:\.\d+)?) tokens/s"
)
_SGLANG = re.compile(r"^(?>.*?\b(?:Decode|Prefill) batch\b)(?:[,.\s]\D*?#|.*#running-req)")
_TRTLLM = re.compile(r"^(?>.*?\biter = \d+,).*(?:num_scheduled_requests|currank_total_requests)")
_LLAMA = re.compile(
    r"(prompt eval|eval) time\s*=\s*(\d+(?:\.\d+)?) ms /\s*(\d+) (?:tokens|runs)"
    r"(?:\s*\(\s*\d+(?:\.\d+)? ms per token,\s*(\d+(?:\.\d+)?) tokens per second)?"
)
_REQUESTS = tuple(map(re.compile, (TGI, OLLAMA, ITERATION)))
_SPECULATION = re.compile(r"Mean acceptance length:|Draft acceptance rate:")
#: llama.cpp: a share of the drafted tokens, and since 2026 the tokens that a verification yields.
_LLAMA_DRAFTS = re.compile(
    r"\bdraft acceptance(?: rate)? = (\d+(?:\.\d+)?) \(.{0,40}?generated\)(?:, mean len =\s*(\d+(?:\.\d+)?))?"
)
_PREEMPTED = re.compile(r"is preempted by|Retract requests|#retracted_reqs|Decode out of memory happened")
_RETRACTED = re.compile(r"#retracted_reqs:?\s{0,20}=?\s{0,20}(\d+)")
#: vLLM 0.x warns of the 1st preemption, the 51st, the 101st, ..., with their number so far.
_SO_FAR = re.compile(r"total_num_cumulative_preemption=(\d+)")
#: SGLang, where others read the prompts: those that wait to get their cache again, at that moment.
_RETRACTED_NOW = re.compile(r"#retracted-req: (\d+)")
#: In the line of the load, those since the line before.
_SINCE = re.compile(r"\bPreemptions: (\d+)")
#: vLLM, if it logs requests: a line for each.
_ABORTED = re.compile(r"\bAborted request \S{1,200}\.|\bRequest \S{1,200} aborted\.")
_CACHE_FILL = re.compile(r"\b(\w+) KV cache usage:\s*(\d+(?:\.\d+)?)%")
#: Not the beginning of a release or an address.
_NUMBER = r"\s*[:=]\s*['\"]?(-?\d++(?:\.\d++)?+)(?!\.\d)"
_ENGINES = {
    "vllm": r"\bvLLM (?:API server|server)|\bIteration\(\d+\): \d+ context req|\bLLM engine \(v"
    r"|\bvllm\.|Avg generation throughput: ",
    "sglang": r"\bsglang\b|\bServerArgs\(|server_args=|Decode batch|Prefill batch",
    "tgi": r"\btext_generation_(?:launcher|router)\b",
    "tensorrt-llm": r"\[TRT-LLM\]|\[TensorRT-LLM\]|tensorrt_llm",
    "native": r"\boffloaded \d+/\d+ layers to GPU|\bllama_(?:perf|print_timings|context|model)"
    r"|\bllama\.cpp\b|\bslot +(?:release|print_timing|launch_slot)|\bllama_server\b|\bllama-server\b",
}
_VERSION = re.compile(
    r"(?:vLLM API server version|LLM engine \(v|sglang(?:==| version:? ?)|TensorRT[- ]LLM version:)"
    r"\s*v?(\d+\.\d+[\w.+]*)"
)
#: Setting -> the names that engines give it where they list their arguments.
_SETTINGS = {
    "batch_limit": r"max_num_seqs|max_running_requests|max_batch_size|n_parallel|n_slots|max_num_sequences",
    "token_budget": r"max_num_batched_tokens|chunked_prefill_size|max_num_tokens",
    "tensor_parallel": r"tensor_parallel_size|tp_size|tensor_parallelism",
    "largest_graph": r"max_(?:cudagraph_)?capture_size|cuda_graph_max_b(?:s(?:_decode)?|atch_size)",
    "drafted": r"num_speculative_tokens|speculative_num_draft_tokens|max_draft_len",
    "cache_tokens": r"max_total_num_tokens",
}
_SETTING = {name: re.compile(rf"['\"]?\b(?:{names})['\"]?{_NUMBER}") for name, names in _SETTINGS.items()}
_OPTION = {
    name: re.compile(rf"--(?:{names.replace('_', '[-_]')})[ =](\d++)(?!\.\d)")
    for name, names in _SETTINGS.items()
}
_CACHE_SIZE = re.compile(
    r"\b(?:GPU|CPU) KV cache size:\s*([\d,]+) tokens|Maximum concurrency for [\d,]+ tokens"
)
_GRAPH_SIZES = re.compile(
    r"(?:Capture cuda graph bs|cudagraph_capture_sizes['\"]?:?)\s{0,20}[:=]?\s{0,20}\[([\d, ]+)\]"
)
_NO_GRAPHS = re.compile(
    r"(?:enforce_eager|disable_cuda_graph)['\"]?\s*[:=]\s*True|--enforce-eager|--disable-cuda-graph\b"
)
_ON_CPU = re.compile(
    r"\bCPU KV cache size:|\breqs, CPU KV cache usage:|\bcpu_worker\.py\b|\bdevice_config=cpu\b"
)
#: A server that reads prompts for others, by its arguments or by what its lines count.
_FOR_OTHERS = re.compile(
    r"\bkv_role['\"]?\s*[:=]\s*['\"]kv_producer|\bdisaggregation_mode='prefill'"
    r"|--disaggregation-mode[ =]prefill|#(?:unbootstrapped|transferring|bootstrap|inflight)-req\b"
)
#: What Compose and kubectl put before the lines of a container.
_CONTAINER = re.compile(r"(?:\x1b\[[\d;]*m)?(?:([\w.@-]{1,120}?) {1,60}\| |\[(\w{1,20}/[\w./-]{1,200})\] )")
#: More than any setting here counts.
_MOST_SET = 1e12


class ServerLog(Struct):
    """What a log holds: rows in the order of its lines, settings by our names, the engine and its release.
    `began`: when the row with time 0 was written, if its line has a date. `torn` counts lines of the load
    that could not be read; `preempted` is the least number of requests that lost their cache, `aborted`
    that of requests that were aborted, None if no line counts them; `replicas` names those that lines of
    several containers number; `tested` are the models of a benchmark that tells how many of their layers
    the GPU has; `title` is the name of the tool, if it is not that of the engine."""

    rows: list[Row] = field(default_factory=list)
    settings: dict[str, float] = field(default_factory=dict)
    engine: str | None = None
    version: str | None = None
    title: str | None = None
    replicas: list[str] = field(default_factory=list)
    tested: list[Tested] = field(default_factory=list)
    began: Moment | None = None
    torn: int = 0
    preempted: int | None = None
    aborted: int | None = None


def has_load(line: str) -> bool:
    """True for a line of one of these kinds."""
    return any(p.search(line) for p in (_VLLM, _SGLANG, _TRTLLM, _LLAMA, *_REQUESTS)) or (
        "iterLatencyMS" in line or '"predicted_per_second"' in line
    )


def read_log(text: str) -> ServerLog:
    """All that the lines say; without rows if none is known."""
    lines, longer = short_lines(text)
    log = ServerLog(torn=longer)
    containers: list[str] = []
    several, slots, clock = SeveralLines(), TimedSlots(), Clock()
    for line in lines:
        read_settings(line, log)
        several.read(line)
        slots.read(line)
        before = len(log.rows)
        _read_line(line, log)
        if len(log.rows) > before and (now := clock.read(line)) is not None:
            for row in log.rows[before:]:
                row["time_s"] = now
        if (at_once := several.at_once) > 1:
            for row in log.rows[before:]:
                _of_slots(row, at_once)
        hit = _CONTAINER.match(line)
        containers += [(hit[1] or hit[2]) if hit else ""] * (len(log.rows) - before)
    log.began = clock.began
    log.settings |= several.settings()
    if over_time := slots.rows():  # more than what single requests say of themselves
        log.settings |= slots.settings()
        log.rows = over_time + [row for row in log.rows if "acceptance" in row]
        log.began = None
        return log
    if len(set(containers)) > 1:
        _number_replicas(log, containers)
    _without_steps(log)
    return log


def _without_steps(log: ServerLog) -> None:
    """Leave out the single steps of vLLM where lines about all of them are there."""
    if log.engine == "vllm" and any("step_ms" not in row and "waiting" in row for row in log.rows):
        log.rows = [row for row in log.rows if "step_ms" not in row]


def _of_slots(row: Row, at_once: int) -> None:
    """The row of a request of llama.cpp, which ran beside others: each gets tokens at its rate."""
    row["running"] = float(at_once)
    for column in ("output_per_s", "prompt_per_s"):
        if column in row and (column == "output_per_s" or row["kind"] != LOAD_PREFILL):
            row[column] *= at_once


def _number_replicas(log: ServerLog, containers: Sequence[str]) -> None:
    """Tell servers of several containers apart, each with its own replicas."""
    numbers: dict[tuple[str, float | None], int] = {}
    for row, container in zip(log.rows, containers, strict=True):
        row["replica"] = float(numbers.setdefault((container, row.get("replica")), len(numbers)))
    for container, replica in numbers:
        several = sum(name == container for name, _ in numbers) > 1
        log.replicas.append(f"{container or 'no name'}{f' {replica:g}' if several and replica else ''}")


def _read_line(line: str, log: ServerLog) -> None:
    for sign, read in _READERS:
        if re.search(sign, line):
            rows = list(read(line))
            log.rows += rows
            log.torn += not rows
            if sign == OLLAMA:
                log.title = "Ollama"
            if _SINCE.search(line):
                _preempted(line, log)
            if (hit := _RETRACTED_NOW.search(line)) and (now := read_int(hit[1])):
                log.preempted = max(log.preempted or 0, now)
            return
    if hit := _LLAMA_DRAFTS.search(line):
        accepted = read_float(hit[2]) if hit[2] else None
        log.rows.append(_row(LOAD_BOTH, acceptance=read_float(hit[1]), accepted=accepted))
    elif _SPECULATION.search(line):
        share = _find(r"[Dd]raft acceptance rate:\s*(\d+(?:\.\d+)?)", line)
        in_percent = re.search(r"[Dd]raft acceptance rate:\s*\d+(?:\.\d+)?%", line)
        accepted = _find(r"Mean acceptance length:\s*(\d+(?:\.\d+)?)", line)
        log.rows.append(_row(LOAD_BOTH, accepted=accepted, acceptance=_share(share) if in_percent else share))
    if _PREEMPTED.search(line):
        _preempted(line, log)
    if _ABORTED.search(line):
        log.aborted = (log.aborted or 0) + 1


def _preempted(line: str, log: ServerLog) -> None:
    """Count the requests that a line says lost their cache."""
    so_far = _SO_FAR.search(line)
    counted = so_far or _SINCE.search(line) or _RETRACTED.search(line)
    count = read_int(counted[1]) if counted else 1
    if count is None:
        log.torn += 1
    elif so_far:
        log.preempted = max(log.preempted or 0, count)
    else:
        log.preempted = (log.preempted or 0) + count


def read_settings(line: str, log: ServerLog) -> None:
    """The engine, its release and its settings, as far as a line tells of them."""
    if log.engine is None:
        log.engine = next((e for e, sign in _ENGINES.items() if re.search(sign, line)), None)
    if log.version is None and (hit := _VERSION.search(line)):
        log.version = hit[1]
    for name, pattern in _SETTING.items():
        if hit := pattern.search(line) or _OPTION[name].search(line):
            _set(log, name, read_float(hit[1]), again=False)
    if (hit := _CACHE_SIZE.search(line)) and hit[1]:
        _set(log, "cache_tokens", read_float(hit[1]))
    if hit := _GRAPH_SIZES.search(line):
        sizes = [read_float(number) for number in re.findall(r"\d+", hit[1])]
        _set(log, "largest_graph", max((s for s in sizes if s is not None), default=0.0))
    if _NO_GRAPHS.search(line):
        log.settings["no_graphs"] = 1.0
    if _ON_CPU.search(line):
        log.settings["on_cpu"] = 1.0
    if _FOR_OTHERS.search(line):
        log.settings["reads_for_others"] = 1.0


def _set(log: ServerLog, name: str, value: float | None, again: bool = True) -> None:
    """Take a setting, of which `again` says whether a later line counts; a line without its number is torn.
    Engines write what is below 0 or 0 for none."""
    if value is None or value > _MOST_SET:
        log.torn += 1
    elif value > 0 or name == "largest_graph":
        log.settings = log.settings | {name: value} if again else {name: value} | log.settings


def _find(pattern: str, line: str) -> float | None:
    hit = re.search(pattern, line)
    return read_float(hit[1]) if hit else None


def _row(kind: int, **values: float | None) -> Row:
    return {"kind": float(kind), **{name: v for name, v in values.items() if v is not None}}


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _vllm(line: str) -> Iterator[Row]:
    hit = _VLLM.search(line)
    running = _find(r"Running:\s*(\d+) reqs", line)
    if hit is None or running is None:
        return
    hits = _find(r"Prefix cache hit rate:\s*(?:GPU:\s*)?(\d+(?:\.\d+)?)%", line)
    cache = _CACHE_FILL.search(line)
    waiting = _find(r"(?:Waiting|Pending):\s*(\d+) reqs", line)
    swapped = _find(r"Swapped:\s*(\d+) reqs", line)  # of 0.x: they wait for room as well
    yield _row(
        LOAD_BOTH,
        replica=_find(r"Engine (\d+):", line),
        running=running,
        waiting=waiting if swapped is None else (waiting or 0.0) + swapped,
        fetching=_fetching(line),
        prompt_per_s=read_float(hit[1]),
        output_per_s=read_float(hit[2]),
        cache_used=_share(read_float(cache[2]) if cache else None),
        prefix_hit=_share(hits),
    )


def _fetching(line: str) -> float | None:
    """Of those that wait, requests whose KV cache comes from elsewhere and is not there yet."""
    hit = re.search(r"KV fetch: (\d+) waiting to start, (\d+) in progress, \d+ completed waiting", line)
    return sum(read_float(text) or 0.0 for text in hit.groups()) if hit else None


def _sglang(line: str) -> Iterator[Row]:
    decodes = "Decode batch" in line
    running = _find(r"#running-req:?\s*(\d+)", line)
    waiting = _find(r"#queue-req:?\s*(\d+)", line)
    if running is None and (decodes or waiting is None):  # a server that reads prompts for others counts none
        return
    cached, new = _find(r"#cached-token:?\s*(\d+)", line), _find(r"#new-token:?\s*(\d+)", line)
    hits = _share(_find(r"cache hit rate:?\s*(\d+(?:\.\d+)?)%", line))
    if cached is not None and new is not None and cached + new:
        hits = cached / (cached + new)
    graph = re.search(r"cuda graph:?\s*(True|False)", line)
    # Those whose cache is on its way, where others read the prompts; the queue counts them not.
    fetching = _find(r"#transfer-req:?\s*(\d+)", line) if decodes else None
    yield _row(
        LOAD_DECODE if decodes else LOAD_PREFILL,
        replica=_find(r"\bDP(\d+)\b", line),
        running=running,
        waiting=waiting if fetching is None else (waiting or 0.0) + fetching,
        fetching=fetching,
        output_per_s=_find(r"gen throughput \(token/s\):?\s*(\d+(?:\.\d+)?)", line),
        prompt_per_s=_find(r"input throughput \(token/s\):?\s*(\d+(?:\.\d+)?)", line),
        cache_used=_find(r"(?:^|[ ,])token usage:?\s*(\d+(?:\.\d+)?)", line),
        prefix_hit=hits,
        accepted=_find(r"accept len:?\s*(\d+(?:\.\d+)?)", line),
        graph=float(graph[1] == "True") if graph and decodes else None,
    )


def _trtllm(line: str) -> Iterator[Row]:
    new, context = (_find(rf"'num_{what}_tokens': (\d+)", line) for what in ("generation", "ctx"))
    step = _find(r"(?:host_step_time|prev_device_step_time|iter_latency_ms) = (\d+(?:\.\d+)?) ?ms", line)
    running = _find(r"num_scheduled_requests: (\d+)", line)
    if running is None:
        return
    waits = _find(r"currank_total_requests = (\d+)/\d", line)
    yield _row(
        LOAD_PREFILL if context and not new else LOAD_BOTH if context else LOAD_DECODE,
        replica=_find(r"\brank = (\d+)", line),
        running=running,
        waiting=None if waits is None else max(waits - running, 0.0),
        output_per_s=new / step * 1e3 if new and step else None,
        prompt_per_s=context / step * 1e3 if context and step else None,
        step_ms=step,
    )


def _statistics(line: str) -> Iterator[Row]:
    """Iteration statistics of TensorRT-LLM, and answers of llama.cpp's server with their `timings`."""
    try:
        found: Any = json.loads(line[line.index("{") : line.rindex("}") + 1])
    except (ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    if isinstance(timings := found.get("timings", found), dict) and "predicted_per_second" in timings:
        output, prompt = (finite(timings.get(f"{what}_per_second")) for what in ("predicted", "prompt"))
        if output is not None:
            yield _row(LOAD_DECODE, running=1.0, output_per_s=output, prompt_per_s=prompt)
        return
    cache, batch = (found.get(f"{name}Stats") for name in ("kvCache", "inflightBatching"))
    number = {
        name: value
        for part in (found, cache, batch)
        if isinstance(part, dict)
        for name, raw in part.items()
        if (value := finite(raw)) is not None
    }
    if (active := number.get("numActiveRequests")) is None:
        return
    step, made, read = (number.get(n) for n in ("iterLatencyMS", "numGenRequests", "numCtxTokens"))
    blocks, used = number.get("maxNumBlocks"), number.get("usedNumBlocks")
    yield _row(
        LOAD_PREFILL if read and not made else LOAD_BOTH,
        running=active,
        waiting=number.get("numQueuedRequests"),
        cache_used=used / blocks if blocks and used is not None else None,
        prefix_hit=number.get("cacheHitRate"),
        output_per_s=made / step * 1e3 if made and step else None,
        prompt_per_s=(read or 0.0) / step * 1e3 if step else None,
        step_ms=step,
    )


def _llama(line: str) -> Iterator[Row]:
    for hit in _LLAMA.finditer(line):
        ms, count = read_float(hit[2]), read_float(hit[3])
        if not ms or count is None:
            continue
        # The first token comes with the prompt, so that the rate that is said is of one step less.
        rate = (read_float(hit[4]) if hit[4] else None) or count / ms * 1e3
        if hit[1] == "eval":
            yield _row(LOAD_DECODE, running=1.0, output_per_s=rate)
        else:
            yield _row(LOAD_PREFILL, running=1.0, prompt_per_s=rate)


_READERS: tuple[tuple[str, Callable[[str], Iterator[Row]]], ...] = (
    (_VLLM.pattern, _vllm),
    (_SGLANG.pattern, _sglang),
    (_TRTLLM.pattern, _trtllm),
    ('iterLatencyMS|"predicted_per_second"', _statistics),
    (_LLAMA.pattern, _llama),
    (TGI, of_tgi),
    (OLLAMA, of_ollama),
    (ITERATION, of_iteration),
)
