"""Logs and metrics as serving engines write them, from known load: vLLM, SGLang, TensorRT-LLM, llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Moment:
    """The load at one moment; tokens a second since the one before."""

    running: int = 16
    waiting: int = 0
    output: float = 800.0
    prompt: float = 0.0
    cache: float = 0.3
    graph: bool = True
    accepted: float | None = None
    replica: int | None = None


@dataclass(frozen=True)
class Server:
    """How it was started."""

    limit: int = 64
    tensor_parallel: int = 1
    largest_graph: int = 64
    drafted: int = 0
    no_graphs: bool = False
    preempted: int = 0
    moments: Sequence[Moment] = field(default_factory=lambda: [Moment()] * 12)


def vllm(server: Server) -> str:
    """V1."""
    eager = ", 'enforce_eager': True" if server.no_graphs else ""
    lines = [
        "(APIServer pid=71) INFO 11-05 13:20:01 [api_server.py:1896] vLLM API server version 0.11.0",
        f"(APIServer pid=71) INFO 11-05 13:20:01 [utils.py:233] non-default args: {{'model': 'm', "
        f"'max_num_seqs': {server.limit}, 'tensor_parallel_size': {server.tensor_parallel}{eager}}}",
        "(EngineCore_DP0 pid=99) INFO 11-05 13:21:44 [kv_cache_utils.py:1087] GPU KV cache size: 412,352 "
        "tokens",
    ]
    for i, m in enumerate(server.moments):
        lines.append(
            f"(APIServer pid=71) INFO 11-05 13:{22 + i // 6}:{i % 6}0 [loggers.py:127] Engine "
            f"{m.replica or 0:03d}: Avg prompt throughput: {m.prompt:.1f} tokens/s, Avg generation "
            f"throughput: {m.output:.1f} tokens/s, Running: {m.running} reqs, Waiting: {m.waiting} reqs, "
            f"GPU KV cache usage: {100 * m.cache:.1f}%, Prefix cache hit rate: 12.0%"
        )
        if m.accepted is not None:
            rate = 100 * (m.accepted - 1) / (server.drafted or 3)
            lines.append(
                "(APIServer pid=71) INFO 11-05 13:22:00 [metrics.py:96] SpecDecoding metrics: Mean "
                f"acceptance length: {m.accepted:.2f}, Accepted throughput: 3.00 tokens/s, Drafted "
                f"throughput: 9.00 tokens/s, Accepted: 30 tokens, Drafted: 90 tokens, Avg Draft acceptance "
                f"rate: {rate:.1f}%"
            )
    return "\n".join(lines) + "\n"


def vllm_v0(server: Server) -> str:
    eager = ", enforce_eager=True" if server.no_graphs else ", enforce_eager=False"
    lines = [
        f"INFO 06-01 10:00:00 llm_engine.py:161] Initializing an LLM engine (v0.5.4) with config: model='m', "
        f"tensor_parallel_size={server.tensor_parallel}{eager}, max_num_seqs={server.limit}"
    ]
    lines += [
        f"INFO 06-01 10:01:{i:02d} metrics.py:406] Avg prompt throughput: {m.prompt:.1f} tokens/s, Avg "
        f"generation throughput: {m.output:.1f} tokens/s, Running: {m.running} reqs, Swapped: 0 reqs, "
        f"Pending: {m.waiting} reqs, GPU KV cache usage: {100 * m.cache:.1f}%, CPU KV cache usage: 0.0%."
        for i, m in enumerate(server.moments)
    ]
    lines += [
        f"WARNING 06-01 10:02:00 scheduler.py:1242] Sequence group {i} is preempted by "
        "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space."
        for i in range(server.preempted)
    ]
    return "\n".join(lines) + "\n"


def sglang(server: Server) -> str:
    graphs = "True" if server.no_graphs else "False"
    lines = [
        f"[2025-08-01 10:00:00] server_args=ServerArgs(model_path='m', tp_size={server.tensor_parallel}, "
        f"max_running_requests={server.limit}, cuda_graph_max_bs={server.largest_graph}, "
        f"disable_cuda_graph={graphs}, speculative_num_draft_tokens={server.drafted or None})",
        "[2025-08-01 10:01:00 TP0] max_total_num_tokens=412352, chunked_prefill_size=8192, context_len=8192",
    ]
    for i, m in enumerate(server.moments):
        where = f"DP{m.replica} TP0" if m.replica is not None else "TP0"
        stamp = f"[2025-08-01 10:{2 + i // 60}:{i % 60:02d} {where}]"
        if m.prompt:
            lines.append(
                f"{stamp} Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 512, token usage: "
                f"{m.cache:.2f}, #running-req: {m.running}, #queue-req: {m.waiting}, "
            )
        accepted = f"accept len: {m.accepted:.2f}, " if m.accepted is not None else ""
        lines.append(
            f"{stamp} Decode batch, #running-req: {m.running}, #token: {int(412352 * m.cache)}, token usage: "
            f"{m.cache:.2f}, {accepted}cuda graph: {m.graph}, gen throughput (token/s): {m.output:.2f}, "
            f"#queue-req: {m.waiting}, "
        )
    if server.preempted:
        lines.append(
            f"[2025-08-01 10:09:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: "
            f"{server.preempted}, #new_token_ratio: 0.7"
        )
    return "\n".join(lines) + "\n"


def trtllm(server: Server) -> str:
    lines = [
        f"[TRT-LLM] [I] TensorRT-LLM version: 1.0.0, max_batch_size={server.limit}, "
        f"tensor_parallel_size={server.tensor_parallel}"
    ]
    for i, m in enumerate(server.moments):
        step = m.running / m.output * 1e3 if m.output else 5.0
        context = int(m.prompt * step / 1e3)
        lines.append(
            f"[11/05/2025-13:22:0{i % 10}] [TRT-LLM] [RANK 0] [I] iter = {i}, global_rank = 0, rank = 0, "
            f"currank_total_requests = {m.running + m.waiting}/{m.running + m.waiting}, host_step_time = "
            f"{step}ms, prev_device_step_time = {step}ms, timestamp = 2025-11-05 13:22:00, "
            f"num_scheduled_requests: {m.running}, states = {{'num_ctx_requests': {int(context > 0)}, "
            f"'num_ctx_tokens': {context}, 'num_generation_tokens': {m.running}}}"
        )
    return "\n".join(lines) + "\n"


def statistics(server: Server) -> str:
    """What `/metrics` of trtllm-serve returns, a line an iteration."""
    lines = []
    for i, m in enumerate(server.moments):
        step = m.running / m.output * 1e3 if m.output else 5.0
        lines.append(
            json.dumps(
                {
                    "iter": i,
                    "iterLatencyMS": step,
                    "numActiveRequests": m.running,
                    "numQueuedRequests": m.waiting,
                    "maxNumActiveRequests": server.limit,
                    "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": int(1000 * m.cache)},
                    "inflightBatchingStats": {
                        "numGenRequests": m.running,
                        "numCtxTokens": int(m.prompt * step / 1e3),
                    },
                }
            )
        )
    return "\n".join(lines) + "\n"


def prometheus(server: Server) -> str:
    """One scrape a moment, counters growing."""
    lines = []
    for i, m in enumerate(server.moments):
        label = f'{{engine="{m.replica or 0}",model_name="m"}}'
        per_token = m.running / m.output if m.output else 0.0
        lines += [
            "# HELP vllm:num_requests_running Number of requests in model execution batches.",
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{label} {float(m.running)}",
            f"vllm:num_requests_waiting{label} {float(m.waiting)}",
            f"vllm:kv_cache_usage_perc{label} {m.cache}",
            f"vllm:num_preemptions_total{label} {float(server.preempted * i)}",
            f"vllm:time_per_output_token_seconds_sum{label} {per_token * 1000 * (i + 1)}",
            f"vllm:time_per_output_token_seconds_count{label} {1000.0 * (i + 1)}",
        ]
    return "\n".join(lines) + "\n"


def llama(server: Server) -> str:
    lines = []
    for m in server.moments:
        lines += [
            "slot print_timing: id  0 | task 0 | ",
            "prompt eval time =  123.45 ms /   512 tokens (    0.24 ms per token, 4147.43 tokens per second)",
            f"       eval time = {128 / m.output * 1e3:10.2f} ms /   128 tokens (    9.64 ms per token, "
            f"{m.output:.2f} tokens per second)",
        ]
    return "\n".join(lines) + "\n"


ENGINES: dict[str, Callable[[Server], str]] = {
    "vllm": vllm,
    "vllm-v0": vllm_v0,
    "sglang": sglang,
    "trtllm": trtllm,
    "statistics": statistics,
    "prometheus": prometheus,
}
