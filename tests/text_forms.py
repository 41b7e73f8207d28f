"""A text of each form of a server's words that is read, by its name on the page docs/server_texts.md."""

from __future__ import annotations

from collections.abc import Mapping

from tests import benchmark_reports as reports
from tests.pasted_forms import FORMS
from tests.server_logs import ENGINES, Server

#: Facts of the load -> their words on the page, in its order.
WORDS: Mapping[str, str] = {
    "load.running": "running",
    "load.waiting": "waiting",
    "load.output_per_s": "tokens/s",
    "load.token_ms": "ms a token",
    "load.first_token_ms": "first token",
    "load.prompt_ms": "time of a prompt",
    "load.request_ms": "request",
    "load.queue_ms": "queue",
    "load.cache_used": "KV cache",
    "load.preemptions": "preemptions",
    "load.failed": "failed requests",
    "load.aborted": "aborted requests",
}
_TGI = (
    'INFO generate: total_time="2.0s" validation_time="1ms" queue_time="1ms" inference_time="1.9s" '
    'time_per_token="30ms" seed="None"}: text_generation_router::server: Success\n'
)
_OLLAMA = '[GIN] 2025/11/28 - 17:45:32 | 200 |  2.5s |       127.0.0.1 | POST     "/api/chat"\n'
_ITERATION = (
    "INFO 06-01 08:00:01 [loggers.py:198] Engine 000: Iteration(7): 0 context requests, 0 context tokens, 8 "
    "generation requests, 8 generation tokens, iteration elapsed time: 20.00 ms, GPU KV cache usage: 40.0%\n"
)
_TIMED = (
    "0.01.000.000 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0\n"
    "0.03.500.000 I slot print_timing: id  0 | task 0 | prompt eval time =  500.00 ms /  100 tokens\n"
    "0.03.500.000 I slot print_timing: id  0 | task 0 |        eval time = 2000.00 ms /  100 tokens "
    "(   20.00 ms per token,    50.00 tokens per second)\n"
    "0.03.500.000 I slot      release: id  0 | task 0 | stop processing: n_tokens = 199, truncated = 0\n"
)
_TGI_METRICS = "tgi_batch_current_size 8\ntgi_queue_size 3\ntgi_request_failure 1\n" + "".join(
    f"tgi_{name}_sum {total}\ntgi_{name}_count 10\n"
    for name, total in {
        "request_duration": 20,
        "request_queue_duration": 1,
        "request_mean_time_per_token_duration": 0.3,
    }.items()
)
_SGLANG_METRICS = (
    'sglang:num_running_reqs{tp_rank="0"} 8\nsglang:num_queue_reqs{tp_rank="0"} 2\n'
    "sglang:num_aborted_requests_total 1\n"
    'sglang:token_usage{tp_rank="0"} 0.5\nsglang:gen_throughput{tp_rank="0"} 400\n'
    'sglang:time_to_first_token_seconds_sum{tp_rank="0"} 2\n'
    'sglang:time_to_first_token_seconds_count{tp_rank="0"} 10\n'
)
TEXTS: Mapping[str, str] = {
    "vLLM V1, log": ENGINES["vllm"](Server()),
    "vLLM V0, log": ENGINES["vllm-v0"](Server()),
    "vLLM, log of iterations": _ITERATION * 4,
    "vLLM, `/metrics`": FORMS["vllm_queue_metrics.txt"].text
    + 'vllm:request_success_total{finished_reason="abort"} 1\n',
    "SGLang, log": ENGINES["sglang"](Server()),
    "SGLang, `/metrics`": _SGLANG_METRICS,
    "TensorRT-LLM, iteration log": ENGINES["trtllm"](Server()),
    "TensorRT-LLM, iteration statistics": ENGINES["statistics"](Server()),
    "llama.cpp, log by slots": FORMS["llama_server_slots.log"].text,
    "llama.cpp, log with times": _TIMED,
    "llama.cpp, `llama_perf`": FORMS["llama_perf_2025.txt"].text,
    "llama.cpp, `/metrics`": FORMS["llama_metrics.txt"].text,
    "Ollama, log": _OLLAMA * 3,
    "TGI, log": _TGI * 3,
    "TGI, `/metrics`": _TGI_METRICS,
    "Triton, `/metrics`": FORMS["triton_metrics.txt"].text + "nv_inference_request_failure 1\n",
    "`vllm bench serve`": reports.vllm_serve(reports.Ran(failed=1)),
    "`sglang.bench_serving`": reports.sglang_json(reports.Ran(failed=1)),
    "`trtllm-bench`": reports.trtllm(reports.Ran()),
    "`genai-perf`": reports.genai_table(reports.Ran()),
    "`aiperf`": reports.aiperf_json(reports.Ran(failed=1)),
    "`llama-bench`": reports.llama_bench(4, 20.0),
}
