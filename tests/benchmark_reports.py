"""Reports as benchmarks of serving engines write them, from one known run: vllm bench, sglang, trtllm-bench,
genai-perf, aiperf, llama-bench."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ran:
    """One run; the rest follows by Little's law. `failed`: None if the report does not count them."""

    in_flight: float = 16.0
    output_tokens: int = 128
    first_ms: float = 100.0
    token_ms: float = 10.0
    tensor_parallel: int = 1
    failed: int | None = None

    @property
    def request_ms(self) -> float:
        return self.first_ms + self.token_ms * (self.output_tokens - 1)

    @property
    def requests_per_s(self) -> float:
        return self.in_flight / self.request_ms * 1e3

    @property
    def tokens_per_s(self) -> float:
        return self.requests_per_s * self.output_tokens


def vllm_serve(r: Ran) -> str:
    failed = "" if r.failed is None else f"Failed requests:                         {r.failed}\n"
    return f"""\
Maximum request concurrency: {r.in_flight:.0f}
100%|##########| 400/400 [01:12<00:00,  5.55it/s]
============ Serving Benchmark Result ============
Successful requests:                     400
{failed}Maximum request concurrency:             {r.in_flight:.0f}
Benchmark duration (s):                  {400 / r.requests_per_s:.2f}
Total input tokens:                      400000
Total generated tokens:                  {400 * r.output_tokens}
Request throughput (req/s):              {r.requests_per_s:.4f}
Output token throughput (tok/s):         {r.tokens_per_s:.2f}
Peak output token throughput (tok/s):    {r.tokens_per_s * 1.3:.2f}
Total Token throughput (tok/s):          {r.tokens_per_s + 1000 * r.requests_per_s:.2f}
---------------Time to First Token----------------
Mean TTFT (ms):                          {r.first_ms:.2f}
Median TTFT (ms):                        {r.first_ms * 0.9:.2f}
P99 TTFT (ms):                           {r.first_ms * 2:.2f}
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          {r.token_ms:.2f}
Median TPOT (ms):                        {r.token_ms * 0.9:.2f}
---------------Inter-token Latency----------------
Mean ITL (ms):                           {r.token_ms:.2f}
==================================================
"""


def vllm_json(r: Ran) -> str:
    return json.dumps({
        "date": "20251105-132249", "endpoint_type": "vllm", "model_id": "m", "num_prompts": 400,
        "max_concurrency": r.in_flight, "completed": 400, "request_throughput": r.requests_per_s,
        "output_throughput": r.tokens_per_s, "total_token_throughput": r.tokens_per_s * 9,
        "mean_ttft_ms": r.first_ms, "mean_tpot_ms": r.token_ms, "mean_itl_ms": r.token_ms,
        "input_lens": [1000] * 400, "itls": [[0.01] * 3] * 400,
        **({} if r.failed is None else {"failed": r.failed}),
    })  # fmt: skip


def sglang_serving(r: Ran) -> str:
    return f"""\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 {r.in_flight * 2:.0f}
Successful requests:                     400
Request throughput (req/s):              {r.requests_per_s:.4f}
Input token throughput (tok/s):          {1000 * r.requests_per_s:.2f}
Output token throughput (tok/s):         {r.tokens_per_s:.2f}
Total token throughput (tok/s):          {r.tokens_per_s * 9:.2f}
Concurrency:                             {r.in_flight:.2f}
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   {r.request_ms:.2f}
---------------Time to First Token----------------
Mean TTFT (ms):                          {r.first_ms:.2f}
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          {r.token_ms:.2f}
==================================================
"""


def sglang_json(r: Ran) -> str:
    return (
        json.dumps(
            {
                "backend": "sglang",
                "dataset_name": "random",
                "max_concurrency": 2 * r.in_flight,
                "request_throughput": r.requests_per_s,
                "output_throughput": r.tokens_per_s,
                "mean_e2e_latency_ms": r.request_ms,
                "mean_ttft_ms": r.first_ms,
                "mean_tpot_ms": r.token_ms,
                "concurrency": r.in_flight,
                "accept_length": None,
                "completed": 400,
            }
            | ({} if r.failed is None else {"errors": [""] * 400 + ["TimeoutError"] * r.failed})
        )
        + "\n"
    )


def trtllm(r: Ran) -> str:
    return f"""\
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                {r.tensor_parallel}
Max Runtime Batch Size: 256
===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             400
Number of concurrent requests:  {r.in_flight:.4f}
Average Input Length (tokens):  1000.0000
Average Output Length (tokens): {r.output_tokens:.4f}
===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     {r.requests_per_s:.4f}
Total Output Throughput (tokens/sec):             {r.tokens_per_s:.4f}
Per User Output Throughput (tokens/sec/user):     {1e3 / r.token_ms:.4f}
Per GPU Output Throughput (tokens/sec/gpu):       {r.tokens_per_s / r.tensor_parallel:.4f}
Total Token Throughput (tokens/sec):              {r.tokens_per_s * 9:.4f}
Total Latency (ms):                               72000.1234
Average request latency (ms):                     {r.request_ms:.4f}
Average time-to-first-token [TTFT] (ms):          {r.first_ms:.4f}
Average time-per-output-token [TPOT] (ms):        {r.token_ms:.4f}
"""


def trtllm_json(r: Ran) -> str:
    return json.dumps(
        {
            "world_info": {"tp_size": r.tensor_parallel, "max_batch_size": 256},
            "request_info": {"num_requests": 400, "avg_num_concurrent_requests": r.in_flight},
            "performance": {
                "request_throughput_req_s": r.requests_per_s,
                "system_output_throughput_tok_s": r.tokens_per_s,
                "avg_request_latency_ms": r.request_ms,
            },
            "streaming_metrics": {"avg_tpot_ms": r.token_ms, "avg_ttft_ms": r.first_ms},
        },
        indent=4,
    )


def _of_perf(r: Ran) -> dict[str, dict[str, float | str]]:
    return {
        "request_throughput": {"unit": "requests/sec", "avg": r.requests_per_s},
        "request_latency": {"unit": "ms", "avg": r.request_ms, "p99": r.request_ms * 2},
        "time_to_first_token": {"unit": "ms", "avg": r.first_ms},
        "inter_token_latency": {"unit": "ms", "avg": r.token_ms},
        "output_token_throughput": {"unit": "tokens/sec", "avg": r.tokens_per_s},
    }


def genai_json(r: Ran) -> str:
    stimulus = {"perf_analyzer": {"stimulus": {"concurrency": int(r.in_flight)}}}
    return json.dumps(_of_perf(r) | {"input_config": stimulus}, indent=2)


def aiperf_json(r: Ran) -> str:
    """With errors of a kind each, as they were counted."""
    records = _of_perf(r) | {"request_count": {"unit": "requests", "avg": 400.0}}
    kinds = [] if r.failed is None else [{"error_details": {"code": 503}, "count": r.failed}]
    errors = {} if r.failed is None else {"error_summary": kinds if r.failed else []}
    return json.dumps({"input_config": {"cli_command": "aiperf profile"}, "records": records} | errors)


def aiperf_csv(r: Ran) -> str:
    """As genai-perf's, with counts."""
    failed = "" if r.failed is None else f"Error Request Count,{r.failed}.00\n"
    return f"{genai_csv(r)}Request Count,400.00\n{failed}"


def genai_table(r: Ran) -> str:
    """As the terminal shows it."""
    return f"""\
                        NVIDIA GenAI-Perf | LLM Metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                         Statistic ┃      avg ┃      min ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│          Time To First Token (ms) │ {r.first_ms:,.2f} │ 12.00 │
│              Request Latency (ms) │ {r.request_ms:,.2f} │ 900.00 │
│          Inter Token Latency (ms) │ {r.token_ms:,.2f} │ 3.00 │
│ Output Token Throughput (per sec) │ {r.tokens_per_s:,.2f} │ N/A │
│      Request Throughput (per sec) │ {r.requests_per_s:,.4f} │ N/A │
└───────────────────────────────────┴──────────┴──────────┘
"""


def genai_csv(r: Ran) -> str:
    return f"""\
Metric,avg,min,max
Time To First Token (ms),"{r.first_ms:,.2f}",1.00,2.00
Request Latency (ms),"{r.request_ms:,.2f}",1.00,2.00
Inter Token Latency (ms),"{r.token_ms:,.2f}",1.00,2.00

Metric,Value
Output Token Throughput (per sec),"{r.tokens_per_s:,.2f}"
Request Throughput (per sec),{r.requests_per_s:.4f}
"""


#: Reports of requests of several clients.
SERVING: dict[str, Callable[[Ran], str]] = {
    "vllm serve": vllm_serve,
    "vllm JSON": vllm_json,
    "sglang": sglang_serving,
    "sglang JSON": sglang_json,
    "trtllm-bench": trtllm,
    "trtllm-bench JSON": trtllm_json,
    "genai-perf": genai_table,
    "genai-perf CSV": genai_csv,
    "genai-perf JSON": genai_json,
    "aiperf": aiperf_json,
    "aiperf CSV": aiperf_csv,
}


def one_batch(batch: int, step_ms: float) -> str:
    """sglang.bench_one_batch, which warms up first."""
    rate, slow = batch / step_ms * 1e3, step_ms * 3 / 1e3
    return f"""\
Warmup ...
Prefill. latency: 4.32211 s, throughput:    947.69 token/s
Decode.  median latency: {slow:.5f} s, median throughput: {rate / 3:9.2f} token/s
Total. latency:  6.476 s, throughput:    637.43 token/s
Benchmark ...
Prefill. latency: 0.37183 s, throughput:  11015.86 token/s
Decode 0. Batch size: {batch}, latency: {slow:.5f} s, throughput: {rate / 3:9.2f} token/s
Decode.  median latency: {step_ms / 1e3:.5f} s, median throughput: {rate:9.2f} token/s
Total. latency:  2.476 s, throughput:    937.43 token/s
"""


def one_batch_json(batch: int, step_ms: float) -> str:
    return json.dumps({
        "run_name": "default", "batch_size": batch, "input_len": 1024, "output_len": 128,
        "prefill_latency": 0.37, "prefill_throughput": 11015.0, "median_decode_latency": step_ms / 1e3,
        "median_decode_throughput": batch / step_ms * 1e3, "total_latency": 2.4,
        "overall_throughput": 937.0,
    })  # fmt: skip


@dataclass(frozen=True)
class LlamaTests:
    """What llama-bench says of the model that it tested; `gpu_layers` None as of backends without a GPU."""

    model: str = "llama 8B Q4_K - Medium"
    parameters: float = 8.03e9
    gpu_layers: int | None = 99
    backend: str = "CUDA"


def llama_bench(batch: int, step_ms: float, of: LlamaTests | None = None) -> str:
    of = of or LlamaTests()
    layers = "" if of.gpu_layers is None else f" {of.gpu_layers:3d} |"
    about = f"| {of.model:30} | 4.58 GiB | {of.parameters / 1e9:6.2f} B | {of.backend:7} |{layers}"
    head = "" if of.gpu_layers is None else " ngl |"
    return f"""\
| model              |     size |  params | backend |{head}  test |             t/s |
| ------------------ | -------: | ------: | ------- |{" --: |" if head else ""} ----: | --------------: |
{about} pp512 | 9000.10 ± 20.20 |
{about} tg128 | {batch / step_ms * 1e3:.2f} ± 0.50 |
"""


_LLAMA_NAMES = (
    "build_commit",
    "backends",
    "model_type",
    "model_n_params",
    "n_gpu_layers",
    "n_prompt",
    "n_gen",
    "n_depth",
    "avg_ts",
    "stddev_ts",
)


def _llama_records(batch: int, step_ms: float, of: LlamaTests | None) -> list[list[str]]:
    """One test of prompts, one of tokens."""
    of = of or LlamaTests()
    about = ["3469684", of.backend, of.model, f"{of.parameters:.0f}", str(of.gpu_layers or 0)]
    made = f"{batch / step_ms * 1e3:.6f}"
    return [[*about, "512", "0", "0", "9000.100000", "20.2"], [*about, "0", "128", "0", made, "0.5"]]


def llama_csv(batch: int, step_ms: float, of: LlamaTests | None = None) -> str:
    rows = [",".join(f'"{cell}"' for cell in row) for row in _llama_records(batch, step_ms, of)]
    return "\n".join([",".join(_LLAMA_NAMES), *rows, ""])


def llama_sql(batch: int, step_ms: float, of: LlamaTests | None = None) -> str:
    values = [", ".join(f"'{cell}'" for cell in row) for row in _llama_records(batch, step_ms, of)]
    table = (
        "CREATE TABLE IF NOT EXISTS llama_bench (\n  n_prompt INTEGER,\n  n_gen INTEGER,\n  avg_ts REAL\n);\n"
    )
    into = f"INSERT INTO llama_bench ({', '.join(_LLAMA_NAMES)}) VALUES"
    return "\n".join([table, *(f"{into} ({v});" for v in values), ""])


def llama_json(batch: int, step_ms: float, of: LlamaTests | None = None) -> str:
    of = of or LlamaTests()
    about = {
        "backends": of.backend,
        "model_type": of.model,
        "model_n_params": int(of.parameters),
        "n_gpu_layers": of.gpu_layers or 0,
        "n_batch": 2048,
    }
    tests = [(512, 0, 9000.0), (0, 128, batch / step_ms * 1e3), (512, 128, 500.0)]
    return json.dumps([{**about, "n_prompt": p, "n_gen": g, "avg_ts": rate} for p, g, rate in tests])


def llama_batched(batch: int, step_ms: float) -> str:
    return f"""\
|  PP |  TG |    B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s |    T s |  S t/s |
|-----|-----|------|------|--------|----------|--------|----------|--------|--------|
| 128 | 128 | {batch:4d} |  256 |  0.100 |  1280.00 |  1.000 | {batch / step_ms * 1e3:.2f} |  1.100 | 232.00 |
"""


#: Reports that time decode steps of one batch.
STEPS: dict[str, Callable[[int, float], str]] = {
    "one batch": one_batch,
    "one batch JSON": one_batch_json,
    "llama-bench": llama_bench,
    "llama-bench JSON": llama_json,
    "llama-bench CSV": llama_csv,
    "llama-bench SQL": llama_sql,
    "llama-batched-bench": llama_batched,
}


def vllm_latency(batch: int, output_tokens: int, seconds: float) -> str:
    return f"""\
INFO 11-05 13:20:01 [latency.py:60] Namespace(subparser='bench', bench_type='latency', input_len=32, \
output_len={output_tokens}, batch_size={batch}, n=1)
Avg latency: {seconds} seconds
10% percentile latency: {seconds * 0.9} seconds
"""


def vllm_throughput(tokens_per_s: float) -> str:
    total = f"{tokens_per_s * 3:.2f} total tokens/s"
    return f"Throughput: 5.12 requests/s, {total}, {tokens_per_s:.2f} output tokens/s\n"
