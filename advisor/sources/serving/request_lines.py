"""Lines that tell of one request, or of one step -> rows of the load: TGI (each request with its times),
Ollama (each request as its web framework, Gin, logs it), vLLM's details of iterations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.numerals import read_float
from advisor.sources.schema import LOAD_BOTH, LOAD_DECODE, LOAD_PREFILL

Row = dict[str, float]

#: `inference_time="1.539s" time_per_token="30.7ms"`, with ANSI codes taken out, or as JSON.
TGI = r'\btime_per_token(?:=|": ?)"[\d.]+(?:ns|µs|us|ms|s)"'
_TGI_FIELD = re.compile(
    r'\b(total_time|queue_time|inference_time|time_per_token)(?:=|": ?)"(\d+(?:\.\d+)?)(ns|µs|us|ms|s)"'
)
#: TGI divides the whole inference by its tokens: of fewer than these the prompt is no small share.
_MANY_TOKENS = 32
#: `[GIN] 2025/03/04 - 10:00:00 | 200 |  1.234567s |  127.0.0.1 | POST  "/api/chat"`: minutes as `1m2.5s`.
OLLAMA = (
    r"\[GIN\] \d{4}/\d\d/\d\d - [\d:]{8} \|[^|]{0,12}\b200\b[^|]{0,8}\|[^|]{1,30}\|[^|]{1,60}\|[^|\"]{1,30}"
    r"\"/(?:api/(?:generate|chat)|v1/(?:chat/)?completions|v1/messages)\""
)
_GIN_TOOK = re.compile(r"\|\s*(?:(\d{1,5})h)?(?:(\d{1,2})m)?(\d{1,12}(?:\.\d{1,12})?)(µs|us|ms|s)\s*\|")
ITERATION = r"\bIteration\(\d+\): \d+ context requests, "
_ITERATION = re.compile(
    r"\bIteration\(\d+\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens, iteration elapsed time: (\d+(?:\.\d+)?) ms(?! \(dummy\))"
)
_FILL = re.compile(r"\bKV cache usage: (\d+(?:\.\d+)?)%")
_ENGINE = re.compile(r"\bEngine (\d+):")
_MS = {"ns": 1e-6, "µs": 1e-3, "us": 1e-3, "ms": 1.0, "s": 1e3}


def of_tgi(line: str) -> Iterator[Row]:
    """A request that is done, with the time of a token, which holds a share of its prompt: a small one where
    the answer is long."""
    ms: dict[str, float] = {}
    for name, text, unit in _TGI_FIELD.findall(line):
        if (value := read_float(text)) is not None:
            ms[name] = value * _MS[unit]
    if not {"total_time", "time_per_token"} <= ms.keys():
        return
    row: Row = {"kind": float(LOAD_BOTH), "request_ms": ms["total_time"], "request_count": 1.0}
    if "queue_time" in ms:
        row |= {"queue_ms": ms["queue_time"], "queue_count": 1.0}
    if (token := ms["time_per_token"]) > 0 and ms.get("inference_time", 0.0) > 0:
        tokens = ms["inference_time"] / token
        row["output_tokens"] = tokens
        if tokens >= _MANY_TOKENS:
            row |= {"token_ms": token, "token_count": tokens}
    yield row


def of_ollama(line: str) -> Iterator[Row]:
    """A request that is done: Ollama tells how long it took, and nothing of its tokens."""
    hit = _GIN_TOOK.search(line)
    value = read_float(hit[3]) if hit else None
    if hit is None or value is None:
        return
    hours, minutes = (read_float(text or "0") or 0.0 for text in hit.group(1, 2))
    ms = value * _MS[hit[4]] + (hours * 60 + minutes) * 60e3
    yield {"kind": float(LOAD_BOTH), "request_ms": ms, "request_count": 1.0}


def of_iteration(line: str) -> Iterator[Row]:
    """A step of vLLM (`--enable-logging-iteration-details`)."""
    if (hit := _ITERATION.search(line)) is None:
        return
    numbers = [read_float(text) for text in hit.groups()]
    if None in numbers:
        return
    prompts, read, decodes, made, ms = (number or 0.0 for number in numbers)
    row: Row = {
        "kind": float(LOAD_PREFILL if prompts and not decodes else LOAD_BOTH if prompts else LOAD_DECODE),
        "running": prompts + decodes,
        "step_ms": ms,
    }
    if ms > 0:
        row |= {"output_per_s": made / ms * 1e3, "prompt_per_s": read / ms * 1e3}
    if (fill := _FILL.search(line)) and (used := read_float(fill[1])) is not None:
        row["cache_used"] = used / 100
    if (engine := _ENGINE.search(line)) and (number := read_float(engine[1])) is not None:
        row["replica"] = number
    yield row
