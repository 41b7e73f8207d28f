"""Texts in the forms that people paste, one for each form of public issues, with the values that each says.

The names are those of the forms; the numbers are made up, so that what is expected follows from them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.benchmark_reports import Ran, vllm_serve
from tests.profiler_tables import call, kernel, old_table, operator, table

GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


@dataclass(frozen=True)
class Form:
    """Facts with their values, None for an unknown one; the first causes, and those that it has not.
    `refused` is what the refusal says, in place of all of these."""

    text: str = ""
    facts: Mapping[str, float | bool | None] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    refused: str = ""


def _gpu_bound(synchronises: bool) -> str:
    """2 s of the host, 1.9 s of the GPU; the host waits in one row, which may have been cut off."""
    rows = [
        operator("aten::linear", 500, 200.0, inside=90.0, device=1_520_000.0),
        kernel(GEMM, 500, 3_040.0),
        kernel("elementwise_kernel<128, 4>", 1000, 380.0),
        call("cudaLaunchKernel", 1500, 5.0),
        call("cudaDeviceSynchronize", 1, 1_892_500.0),
    ]
    return table(rows, limit=None if synchronises else 3, order=lambda r: r.self_device + r.device / 1e6)


def _shapes_and_memory() -> str:
    """Operators alone, by shape: 70 % of what runs are products."""
    rows = [
        operator("aten::linear", 1000, 2.0, inside=118.0),
        operator("aten::mm", 1000, 80.0, device=700_000.0),
        operator("aten::mul", 2000, 20.0, device=300_000.0),
        call("cudaDeviceSynchronize", 1, 878_000.0),
    ]
    return table(rows, limit=3, memory=True, shapes=True, flops=True)


def _old() -> str:
    """torch 1.5: 30 ms of products, 10 ms of sums."""
    return old_table([
        operator("matmul", 10, 2.0, inside=100.0, device=30_000.0),
        operator("mm", 10, 100.0, device=30_000.0),
        operator("add", 10, 50.0, device=10_000.0),
    ])  # fmt: skip


def _vllm_line(
    second: int, running: int, waiting: int, output: float, cache: float, engine: int = 0, of: str = "GPU"
) -> str:
    return (
        f"(APIServer pid=7) INFO 12-01 08:00:{second:02d} [loggers.py:248] Engine {engine:03d}: Avg prompt "
        f"throughput: 80.0 tokens/s, Avg generation throughput: {output:.1f} tokens/s, Running: {running} "
        f"reqs, Waiting: {waiting} reqs, {of} KV cache usage: {cache:.1f}%, Prefix cache hit rate: 0.0%\n"
    )


def _vllm_v0_line(second: int, running: int, pending: int, output: float, cache: float) -> str:
    return (
        f"INFO 02-28 15:02:{second:02d} metrics.py:455] Avg prompt throughput: 300.0 tokens/s, Avg "
        f"generation throughput: {output:.1f} tokens/s, Running: {running} reqs, Swapped: 0 reqs, Pending: "
        f"{pending} reqs, GPU KV cache usage: {cache:.1f}%, CPU KV cache usage: 0.0%.\n"
    )


def _vllm_v0_preempted(second: int, so_far: int) -> str:
    return (
        f"WARNING 02-28 15:02:{second:02d} scheduler.py:1242] Sequence group cmpl-{so_far} is preempted by "
        "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the "
        f"end-to-end performance. total_num_cumulative_preemption={so_far}\n"
    )


def _sglang_line(second: int, running: int, queue: int, output: float, cache: float, graph: bool) -> str:
    return (
        f"[2025-07-01 10:00:{second:02d} TP0] Decode batch. #running-req: {running}, #token: 300000, token "
        f"usage: {cache:.2f}, cuda graph: {graph}, gen throughput (token/s): {output:.2f}, "
        f"#queue-req: {queue}\n"
    )


def _vllm_scrape(sums: Mapping[str, tuple[float, int]], **gauges: float) -> str:
    """Gauges, and histograms with their sum (s) and count."""
    label = '{engine="0",model_name="m"}'
    lines = [f"vllm:{name}{label} {value}\n" for name, value in gauges.items()]
    for name, (total, count) in sums.items():
        lines += [f"vllm:{name}_seconds_sum{label} {total}\n", f"vllm:{name}_seconds_count{label} {count}\n"]
    return "".join(lines)


def _scrapes() -> str:
    """200 requests between two scrapes: 3 s to the first token, 25 ms a token; before it 0.1 s and 10 ms."""
    before = {
        "time_to_first_token": (50_000.0, 500_000),
        "request_time_per_output_token": (5_000.0, 500_000),
        "e2e_request_latency": (900_000.0, 500_000),
    }
    after = {
        "time_to_first_token": (50_600.0, 500_200),
        "request_time_per_output_token": (5_005.0, 500_200),
        "e2e_request_latency": (901_400.0, 500_200),
    }
    gauges = {"num_requests_running": 32.0, "num_requests_waiting": 70.0, "kv_cache_usage_perc": 0.4}
    return _vllm_scrape(before, **gauges) + _vllm_scrape(after, **gauges)


def _queue_metrics() -> str:
    """One scrape of 50 requests: 4 of the 5 s to their first token they queue."""
    return _vllm_scrape(
        {
            "time_to_first_token": (250.0, 50),
            "request_queue_time": (200.0, 50),
            "request_time_per_output_token": (1.0, 50),
            "e2e_request_latency": (500.0, 50),
        },
        num_requests_running=5.0,
        num_requests_waiting=30.0,
        kv_cache_usage_perc=0.99,
        num_preemptions_total=12.0,
    )


_LLAMA_METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 4000
llamacpp:prompt_seconds_total 8
llamacpp:tokens_predicted_total 3000
llamacpp:tokens_predicted_seconds_total 60
llamacpp:n_decode_total 1500
llamacpp:prompt_tokens_seconds 500
llamacpp:predicted_tokens_seconds 50
llamacpp:requests_processing 2
llamacpp:requests_deferred 7
llamacpp:n_busy_slots_per_decode 1.9
"""


def _llama_slots(at_once: int, token_ms: float) -> str:
    taken = "".join(f"slot launch_slot_: id  {i} | task {i} | processing task\n" for i in range(at_once))
    return "srv    load_model: initializing slots, n_slots = 16\n" + taken + "".join(
        f"slot print_timing: id  {i} | task {i} | \n"
        "prompt eval time =     400.00 ms /   400 tokens (    1.00 ms per token,  1000.00 tokens per "
        "second)\n"
        f"       eval time = {100 * token_ms:10.2f} ms /   100 tokens ({token_ms:8.2f} ms per token, "
        f"{1e3 / token_ms:8.2f} tokens per second)\n"
        f"      total time = {100 * token_ms + 400:10.2f} ms /   500 tokens\n"
        for i in range(at_once)
    )  # fmt: skip


_LLAMA_PERF = """\
load_tensors: offloading 24 repeating layers to GPU
load_tensors: offloaded 24/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  5100.10 MiB
llama_perf_sampler_print:    sampling time =      11.00 ms /   210 runs   (    0.05 ms per token, 19090.91 tokens per second)
llama_perf_context_print: prompt eval time =     500.00 ms /    10 tokens (   50.00 ms per token,    20.00 tokens per second)
llama_perf_context_print:        eval time =   10000.00 ms /   200 runs   (   50.00 ms per token,    20.00 tokens per second)
llama_perf_context_print:       total time =   10700.00 ms /   210 tokens
"""  # noqa: E501


def _trtllm(host: tuple[float, ...], device: float) -> str:
    return "".join(
        f"[06/11/2025-10:00:0{i}] [TRT-LLM] [RANK 0] [I] iter = {i + 7}, global_rank = 0, rank = 0, "
        f"currank_total_requests = 0/0, host_step_time = {ms}ms, prev_device_step_time = {device}ms, "
        f"timestamp = 2025-06-11 10:00:0{i}, num_scheduled_requests: 6, states = {{'num_ctx_requests': 0, "
        "'num_ctx_tokens': 0, 'num_generation_tokens': 6}\n"
        for i, ms in enumerate(host)
    )


_TRITON = """\
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="bert",version="3"} 2000
nv_inference_count{model="bert",version="3"} 2000
nv_inference_exec_count{model="bert",version="3"} 2000
nv_inference_request_duration_us{model="bert",version="3"} 80000000
nv_inference_queue_duration_us{model="bert",version="3"} 50000000
nv_inference_compute_infer_duration_us{model="bert",version="3"} 29000000
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.42
"""

_BENCH = """\
============ Serving Benchmark Result ============
Successful requests:                     500
Benchmark duration (s):                  50.00
Total input tokens:                      100000
Total generated tokens:                  100500
Request throughput (req/s):              10.00
Output token throughput (tok/s):         2010.00
---------------Time to First Token----------------
Mean TTFT (ms):                          9000.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          90.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           50.00
==================================================
"""

_LATENCY = """\
Avg latency: 4.1250000000 seconds
10% percentile latency: 4.1001 seconds
50% percentile latency: 4.1199 seconds
99% percentile latency: 4.2000 seconds
"""

_ROCM_SMI = """\
============================ ROCm System Management Interface ============================
====================================== Concise Info ======================================
Device  Node  IDs              Temp        Power     SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
==========================================================================================
0       2     0x74a1,   28851  51.0°C      310.0W    1502Mhz  900Mhz   0%   auto  750.0W  71%    88%
==========================================================================================
================================== End of ROCm SMI Log ===================================
"""

_ANALYZE = """\
Processing [run.sqlite] with [cuda_api_sync.py]...

 ** CUDA Synchronization APIs (cuda_api_sync:rep):

The following are synchronization APIs that block the host until all issued CUDA calls are complete.

 Duration (ns)  Start (ns)   PID   TID       API Name
 -------------  ----------  -----  ----  ---------------------
     1,200,000  10,200,300   4321  4321  cudaStreamSynchronize
"""

FORMS: dict[str, Form] = {
    "gpubound_rowlimit.txt": Form(
        _gpu_bound(synchronises=False),
        {"sums.kernel_ms": 1900.0, "sums.product_ratio": 0.8, "sums.busy_most_ratio": 0.95},
        never=("launches-outlast-kernels", "gpu-idle-in-sums"),
    ),
    "gpubound_withsync.txt": Form(
        _gpu_bound(synchronises=True),
        {"sums.kernel_ms": 1900.0, "sums.product_ratio": 0.8, "sums.busy_most_ratio": 0.95},
        never=("launches-outlast-kernels", "gpu-idle-in-sums"),
    ),
    "ka_shapes_mem.txt": Form(
        _shapes_and_memory(),
        {"sums.kernel_ms": 1000.0, "sums.product_ratio": 0.7, "sums.busy_most_ratio": 1.0},
        never=("launches-outlast-kernels",),
    ),
    "ka_torch14.txt": Form(
        _old(), {"sums.product_ratio": 0.75, "sums.host_ms": 1.52}, never=("no-gpu-activity",)
    ),
    "vllm_bench_2026_two.txt": Form(
        "Before\n" + vllm_serve(Ran(token_ms=10.0)) + "\nAfter\n" + vllm_serve(Ran(token_ms=8.0)),
        refused=r"10 and 8 ms a token",
    ),
    # (100500 - 500) tokens of 50 ms in 50 s: 100 decode at once, of the 269 that are on their way
    "vllm_bench_ttft_heavy.txt": Form(_BENCH, {"load.running": 100.0, "load.token_ms": 50.0}),
    "sglang_bare_line.log": Form(
        "Decode batch. #running-req: 500, #token: 90210, token usage: 0.96, gen throughput (token/s): 900.00"
        ", #queue-req: 7000\n",
        {"load.running": 500, "load.waiting": 7000, "load.cache_used": 0.96, "load.token_ms": None},
        ("kv-cache-full", "server-overloaded"),
    ),
    "sglang_retract.log": Form(
        "".join(_sglang_line(i, 150, 90, 3000.0, 0.97, graph=False) for i in (0, 4, 8))
        + "[2025-07-01 10:00:09 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 14, "
        "#new_token_ratio: 0.5731 -> 0.8342\n",
        {"load.preemptions": 14, "load.token_ms": 50.0, "load.waiting": 90},
        ("kv-cache-full", "decode-beyond-graphs"),
    ),
    "vllm_dp4.log": Form(
        "".join(
            _vllm_line(i * 10, 100, 50, 2000.0, 95.0) + _vllm_line(i * 10, 4, 0, 200.0, 3.0, engine=1)
            for i in range(3)
        ),
        {
            "load.running": 104,
            "load.waiting": 50,
            "load.output_per_s": 2200.0,
            "load.cache_used": 0.95,
            "load.token_ms": None,
        },
        ("uneven-replicas",),
    ),
    "vllm_preempt_v0.log": Form(
        "".join(_vllm_v0_line(i * 5, 80, 120, 800.0, 99.0) for i in range(3))
        + _vllm_v0_preempted(16, 101)
        + _vllm_v0_preempted(18, 151),
        {"load.preemptions": 151, "load.token_ms": 100.0},
        ("kv-cache-full",),
    ),
    "vllm_cpu_real.log": Form(
        "(EngineCore pid=2) INFO 11-29 02:31:43 [kv_cache_utils.py:2327] CPU KV cache size: 1,280 tokens\n"
        "(APIServer pid=7) INFO 11-29 02:29:08 [api_utils.py:286] non-default args: {'enforce_eager': True}\n"
        + "".join(_vllm_line(i * 10, 4, 12, 200.0, 100.0, of="CPU") for i in range(4)),
        {
            "load.on_cpu": True,
            "load.cache_most": 1.0,
            "load.running": 4,
            "load.preemptions": None,
            "load.token_ms": 20.0,
        },
        ("kv-cache-full", "server-overloaded"),
        never=("decode-beyond-graphs",),
    ),
    "scrapes2.txt": Form(
        _scrapes(),
        {
            "load.first_token_ms": 3000.0,
            "load.token_ms": 25.0,
            "load.request_ms": 7000.0,
            "load.since_start": False,
        },
    ),
    "llama_metrics.txt": Form(
        _LLAMA_METRICS,
        {
            "load.running": 2,
            "load.waiting": 7,
            "load.slots_busy": 1.9,
            "load.slot_output_per_s": 50.0,
            "load.slot_prompt_per_s": 500.0,
            "load.token_ms": 20.0,
            "load.since_start": True,
        },
        ("all-slots-busy",),
    ),
    "llama_server_slots.log": Form(
        _llama_slots(5, 40.0), {"load.running": 5, "load.output_per_s": 125.0, "load.token_ms": 40.0}
    ),
    "llama_perf_2025.txt": Form(
        _LLAMA_PERF,
        {"load.layers_on_gpu": 24, "load.layers": 33, "load.output_per_s": 20.0},
        ("layers-on-cpu",),
    ),
    # the device's time stands in the line behind that of the host
    "trtllm_iter_2025b.log": Form(
        _trtllm((10.0, 10.0, 10.0, 10.0), 2.5),
        {"load.host_step_ms": 10.0, "load.device_step_ms": 2.5, "load.device_idle_ratio": 0.75},
        ("host-outlasts-device",),
    ),
    "triton_metrics.txt": Form(
        _TRITON,
        {
            "load.queue_ms": 25.0,
            "load.request_ms": 40.0,
            "load.queue_ratio": 0.625,
            "load.requests_a_batch": 1.0,
        },
        ("requests-queue",),
    ),
    "rocm_smi.txt": Form(_ROCM_SMI, refused="rocm-smi"),
    "vllm_bench_latency.txt": Form(_LATENCY, refused=r"vllm bench latency: 4\.1[23] s a batch"),
    "vllm_queue_metrics.txt": Form(
        _queue_metrics(),
        {
            "load.first_token_ms": 5000.0,
            "load.queue_ms": 4000.0,
            "load.queue_ratio": 0.4,
            "load.preemptions": 12,
            "load.since_start": True,
        },
        ("kv-cache-full", "server-overloaded", "requests-queue"),
    ),
    "nsys_expert.txt": Form(_ANALYZE, refused="nsys analyze"),
    "vllm_queue_with_room.log": Form(
        "".join(_vllm_v0_line(i * 5, 256, 900, 3200.0, 45.0) for i in range(2)),
        {"load.running": 256, "load.waiting": 900, "load.cache_most": 0.45, "load.output_per_s": 3200.0},
        ("batch-limit-reached",),
    ),
}
