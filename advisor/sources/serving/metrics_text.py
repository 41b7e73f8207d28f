"""`/metrics` of serving engines in the text format of Prometheus -> rows of their load.

One scrape shows what is so now and means since the start; of two, counters and means are those between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from advisor.sources.schema import LOAD_BOTH
from advisor.sources.serving.log_lines import Row, ServerLog

_SAMPLE = re.compile(
    r"^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?\s+(-?[\d.]+(?:[eE][-+]?\d+)?|NaN|[+-]Inf)(?:\s+\d+)?\s*$"
)
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
_PREFIXES = {"vllm:": "vllm", "sglang:": "sglang", "sglang_": "sglang", "tgi_": "tgi", "nv_": "triton-server"}
#: Our column -> names of gauges, and what they are multiplied with.
_GAUGES = {
    "running": (("vllm:num_requests_running", "sglang:num_running_reqs", "tgi_batch_current_size"), 1.0),
    "waiting": (
        (
            "vllm:num_requests_waiting",
            "sglang:num_queue_reqs",
            "tgi_queue_size",
            "nv_inference_pending_request_count",
        ),
        1.0,
    ),
    "cache_used": (("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"), 1.0),
    "output_per_s": (("vllm:avg_generation_throughput_toks_per_s", "sglang:gen_throughput"), 1.0),
    "prompt_per_s": (("vllm:avg_prompt_throughput_toks_per_s",), 1.0),
    "prefix_hit": (("sglang:cache_hit_rate", "vllm:gpu_prefix_cache_hit_rate"), 1.0),
    "accepted": (("sglang:spec_accept_length",), 1.0),
}
#: Our column -> counters of which the first is divided by the second, and the factor of the quotient.
_QUOTIENTS = {
    "token_ms": (
        (
            ("vllm:time_per_output_token_seconds_sum", "vllm:time_per_output_token_seconds_count", 1e3),
            (
                "vllm:request_time_per_output_token_seconds_sum",
                "vllm:request_time_per_output_token_seconds_count",
                1e3,
            ),
            ("vllm:inter_token_latency_seconds_sum", "vllm:inter_token_latency_seconds_count", 1e3),
            ("sglang:time_per_output_token_seconds_sum", "sglang:time_per_output_token_seconds_count", 1e3),
            ("sglang:inter_token_latency_seconds_sum", "sglang:inter_token_latency_seconds_count", 1e3),
            (
                "tgi_request_mean_time_per_token_duration_sum",
                "tgi_request_mean_time_per_token_duration_count",
                1e3,
            ),
        )
    ),
    "queue_ms": (
        (
            ("vllm:request_queue_time_seconds_sum", "vllm:request_queue_time_seconds_count", 1e3),
            ("sglang:queue_time_seconds_sum", "sglang:queue_time_seconds_count", 1e3),
            ("tgi_request_queue_duration_sum", "tgi_request_queue_duration_count", 1e3),
            ("nv_inference_queue_duration_us", "nv_inference_request_success", 1e-3),
        )
    ),
    "prefix_hit": (
        (
            ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", 1.0),
            ("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total", 1.0),
        )
    ),
    "acceptance": (
        (("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total", 1.0),)
    ),
}
_PREEMPTIONS = (
    "vllm:num_preemptions_total",
    "sglang:num_retracted_reqs",
    "sglang:num_retracted_requests_total",
)
_SETTINGS = {"vllm:cache_config_info": {"num_gpu_blocks": "cache_blocks"}}


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def is_metrics(text: str) -> bool:
    """True if the text holds a metric of an engine that is known here."""
    return any(sample.name.startswith(tuple(_PREFIXES)) for sample in _samples(text))


def _samples(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        if line.startswith("#") or not (hit := _SAMPLE.match(line.strip())):
            continue
        try:
            yield Sample(hit[1], dict(_LABEL.findall(hit[2] or "")), float(hit[3]))
        except ValueError:
            continue


def read_metrics(text: str) -> ServerLog:
    """A row for each replica and scrape; of means and counters, the last scrape holds what changed."""
    scrapes: list[dict[str, dict[str, float]]] = []
    seen: set[tuple[str, str]] = set()
    log = ServerLog()
    for sample in _samples(text):
        engine = next((e for prefix, e in _PREFIXES.items() if sample.name.startswith(prefix)), None)
        if engine is None:
            continue
        log.engine = log.engine or engine
        key = (sample.name, repr(sorted(sample.labels.items())))
        if not scrapes or key in seen:
            scrapes.append({})
            seen.clear()
        seen.add(key)
        replica = sample.labels.get("engine", sample.labels.get("dp_rank", "0"))
        of = scrapes[-1].setdefault(replica, {})
        of[sample.name] = of.get(sample.name, 0.0) + sample.value
    for at, scrape in enumerate(scrapes):
        for replica, values in scrape.items():
            before = scrapes[0].get(replica, {}) if at and at == len(scrapes) - 1 else {}
            log.rows.append(_row(replica, values, before))
    if scrapes:
        first, last = (
            sum(of.get(n, 0.0) for of in s.values() for n in _PREEMPTIONS) for s in (scrapes[0], scrapes[-1])
        )
        log.preempted = int(last - first if len(scrapes) > 1 else last)
    return log


def _row(replica: str, values: Mapping[str, float], before: Mapping[str, float]) -> Row:
    row: Row = {"kind": float(LOAD_BOTH), "replica": float(replica) if replica.isdigit() else 0.0}
    for column, (names, scale) in _GAUGES.items():
        if (value := next((values[n] for n in names if n in values), None)) is not None:
            row[column] = value * scale
    for column, quotients in _QUOTIENTS.items():
        for above, below, scale in quotients:
            count = values.get(below, 0.0) - before.get(below, 0.0)
            if above in values and count > 0:
                row[column] = (values[above] - before.get(above, 0.0)) / count * scale
                break
    return row
