"""Where benchmark reports keep their numbers: paths in JSON (trtllm-bench --report_json; vllm bench serve,
throughput and latency; sglang bench_serving and bench_one_batch; genai-perf and aiperf exports) and, by their
last part, column heads of CSV files; lines of text reports and first cells of genai-perf's CSV and tables.
"""

from __future__ import annotations

from typing import NamedTuple


class BenchmarkMetric(NamedTuple):
    """A number of a report; values are multiplied by `scale` to come in `unit`. `better` says which way is
    good, "higher" or "lower", if runs are compared by it."""

    unit: str
    keys: tuple[str, ...]
    labels: tuple[str, ...] = ()
    better: str | None = None
    scale: float = 1.0


class Tool(NamedTuple):
    """A benchmark, known by any of its signs; `engine` if it measures one engine."""

    title: str
    engine: str | None
    signs: tuple[str, ...]


#: The first whose sign a report holds.
TOOLS = (
    Tool(
        "trtllm-bench",
        "tensorrt-llm",
        ("system_output_throughput_tok_s", "= PERFORMANCE OVERVIEW", r"^Per GPU Output Throughput \("),
    ),
    Tool(
        "sglang.bench_one_batch",
        "sglang",
        ('"median_decode_(?:latency|throughput)"', r"^Prefill\. latency:", r"^Decode\.\s+median latency:"),
    ),
    Tool(
        "sglang.bench_serving",
        "sglang",
        (r"^Backend:\s+sglang", r'"backend":\s*"sglang', r"^Total generated tokens \(retokenized\)"),
    ),
    Tool("aiperf", None, ("NVIDIA AIPerf", '"aiperf_version"', r'"cli_command":\s*"aiperf')),
    Tool(
        "genai-perf",
        None,
        (
            "NVIDIA GenAI-Perf",
            r'"inter_token_latency":\s*\{',
            r'^[│|"]?\s*Inter Token Latency \(ms\)',
            r"^Output Token Throughput \(per sec\)",
            r'(?i)^[│|"]?\s*Output token throughput \((?:per sec|tokens/sec)\)',
        ),
    ),
    Tool(
        "vllm bench serve",
        "vllm",
        ("Serving Benchmark Result", '"(?:mean|median)_tpot_ms"', '"endpoint_type"'),
    ),
    Tool(
        "vllm bench throughput",
        "vllm",
        (
            r"^Throughput: [\d.]+ requests/s, [\d.]+ total tokens/s",
            r'"total_num_tokens"[\s\S]{0,400}"tokens_per_second"',
        ),
    ),
    Tool(
        "vllm bench latency",
        "vllm",
        (r"^Avg latency: [\d.]+ seconds", r'"avg_latency"[^"]*"latencies"[^"]*"percentiles"'),
    ),
)
#: Metric -> where it stands. Of those with `better`, the first that both sides report is compared, so the
#: most telling stands first.
METRICS = {
    "output-throughput": BenchmarkMetric(
        "tok/s",
        (
            "performance.system_output_throughput_tok_s",
            "output_throughput",
            "output_token_throughput.avg",
            "records.output_token_throughput.avg",
            "output_tokens_per_second",
            "median_decode_throughput",
        ),
        labels=(
            "^Throughput: .* total tokens/s, ",
            r"^Decode\. .*median throughput:",
            r"^Total Output Throughput \(tokens/sec\)",
            r"^(?:Total )?Token Throughput \(tokens/sec\)",
            r"^Output token throughput \(tok/s\)",
            r"(?i)^Output token throughput \((?:per sec|tokens/sec)\)",
        ),
        better="higher",
    ),
    "total-throughput": BenchmarkMetric(
        "tok/s",
        (
            "performance.system_total_throughput_tok_s",
            "total_token_throughput",
            "total_token_throughput.avg",
            "tokens_per_second",
            "throughput_tok_s",
            "tok_s",
            "throughput",
            "overall_throughput",
        ),
        labels=(
            r"^Throughput: [\d.]+ requests/s, ",
            r"^Total Token Throughput \(tokens/sec\)",
            r"^Total [Tt]oken throughput \(tok/s\)",
        ),
        better="higher",
    ),
    "request-throughput": BenchmarkMetric(
        "req/s",
        (
            "performance.request_throughput_req_s",
            "request_throughput",
            "request_throughput.avg",
            "records.request_throughput.avg",
            "requests_per_second",
        ),
        labels=(
            r"(?i)^Request throughput \((?:req/sec|per sec|requests/sec)\)",
            r"^Request throughput \(req/s\)",
            r"^Throughput:(?= [\d.]+ requests/s)",
        ),
        better="higher",
    ),
    "time-per-output-token": BenchmarkMetric(
        "ms",
        (
            "streaming_metrics.avg_tpot_ms",
            "mean_tpot_ms",
            "inter_token_latency.avg",
            "records.inter_token_latency.avg",
            "tpot_ms",
        ),
        labels=(
            r"^Average time-per-output-token \[TPOT\] \(ms\)",
            r"^Mean TPOT \(ms\)",
            r"(?i)^Inter token latency \(ms\)",
        ),
        better="lower",
    ),
    "time-between-tokens": BenchmarkMetric("ms", ("mean_itl_ms",), labels=(r"^Mean ITL \(ms\)",)),
    "step-time": BenchmarkMetric(
        "ms", ("step_ms", "step_time_ms", "latency_ms", "time_ms", "ms"), better="lower"
    ),
    "latency": BenchmarkMetric(
        "ms", ("avg_latency",), labels=("^Avg latency",), better="lower", scale=1000.0
    ),
    # What a run was, and how its requests fared.
    "concurrency": BenchmarkMetric(
        "requests",
        (
            "request_info.avg_num_concurrent_requests",
            "concurrency",
            "max_concurrency",
            "input_config.perf_analyzer.stimulus.concurrency",
            "input_config.concurrency",
            "input_config.loadgen.concurrency",
            "batch_size",
        ),
        labels=(
            "^Concurrency:",
            "^Number of concurrent requests:",
            "^Max(?:imum)? request concurrency:",
            r"^(?!.*\bserve\b)(?:(?>.*?Namespace\().*\bbatch_size=|.*--batch-size[ =])",
        ),
    ),
    "first-token": BenchmarkMetric(
        "ms",
        (
            "streaming_metrics.avg_ttft_ms",
            "mean_ttft_ms",
            "time_to_first_token.avg",
            "records.time_to_first_token.avg",
            "ttft_ms",
        ),
        labels=(
            r"^Average time-to-first-token \[TTFT\] \(ms\)",
            r"^Mean TTFT \(ms\)",
            r"(?i)^Time to first token \(ms\)",
        ),
    ),
    "request-latency": BenchmarkMetric(
        "ms",
        (
            "performance.avg_request_latency_ms",
            "mean_e2e_latency_ms",
            "mean_e2el_ms",
            "request_latency.avg",
            "records.request_latency.avg",
        ),
        labels=(
            r"^Average request latency \(ms\)",
            r"^Mean E2EL? ?(?:Latency )?\(ms\)",
            r"(?i)^Request latency \(ms\)",
        ),
    ),
    "decode-step": BenchmarkMetric(
        "ms", ("median_decode_latency",), labels=(r"^Decode\.\s+median latency:",), scale=1000.0
    ),
    "output-tokens": BenchmarkMetric(
        "tokens", ("output_len",), labels=(r"^(?:(?>.*?Namespace\().*\boutput_len=|.*--output-len[ =])",)
    ),
    "input-tokens": BenchmarkMetric(
        "tokens", ("input_len",), labels=(r"^(?:(?>.*?Namespace\().*\binput_len=|.*--input-len[ =])",)
    ),
    "accepted": BenchmarkMetric(
        "tokens",
        ("accept_length", "decoding_stats.acceptance_length_percentiles.average"),
        labels=("^Accept length:", "^Acceptance length:"),
    ),
    "failed": BenchmarkMetric(
        "requests",
        ("failed", "error_request_count.avg", "records.error_request_count.avg"),
        labels=(r"(?i)^(?:Failed requests:|(?:Failed|Error) request count\b(?: \(\w+\))?)",),
    ),
    "completed": BenchmarkMetric(
        "requests",
        ("completed", "request_count.avg", "records.request_count.avg"),
        labels=("^Successful requests:", r"(?i)^Request count\b(?: \(\w+\))?"),
    ),
    "gpus": BenchmarkMetric(
        "GPUs", ("world_info.tp_size",), labels=("^TP Size:", r"^(?>.*?Namespace\().*\btensor_parallel_size=")
    ),
    "batch-limit": BenchmarkMetric(
        "requests", ("world_info.max_batch_size",), labels=("^Max Runtime Batch Size:",)
    ),
}
#: Metrics by which runs are compared, the most informative first.
COMPARED = {name: metric for name, metric in METRICS.items() if metric.better}
