"""The texts of the fuzzer: what samplers, servers and profilers print, small and valid, in every layout."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import benchmark_reports, pasted, profiler_tables, server_logs
from tests.pasted_forms import FORMS
from tests.text_forms import TEXTS

SMI = "timestamp, index, name, utilization.gpu [%], clocks.current.sm [MHz], power.draw [W]\n" + "".join(
    f"2024/05/01 10:00:{i:02}.000, 0, NVIDIA H200, {i} %, 1980 MHz, 300.1 W\n" for i in range(30)
)
SMI_DMON = (
    "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk\n"
    "# Idx      W      C      C      %      %      %      %    MHz    MHz\n"
    + "    0    300     40     45     50     20      0      0   3201   1980\n"
    * 20
)
_DCGMI = (
    "#Entity   GRACT  SMACT  TENSO  DRAMA  POWER  SMCLK  TMPTR\nID\n"
    + "GPU 0     0.912  0.655  0.221  0.401  512.3  1755   55\n" * 12
)
#: The line of docs/run.md: every column that is read.
_SMI_ALL = (
    "timestamp, index, name, pci.bus_id, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz], "
    "power.draw [W], power.limit [W], clocks_event_reasons.active, temperature.gpu, memory.used [MiB], "
    "memory.total [MiB]\n"
) + "".join(
    f"2024/05/01 10:00:{i:02}.000, {gpu}, NVIDIA H200, 00000000:{gpu + 1:02}:00.0, 9{i % 10} %, 1500 MHz, "
    f"1980 MHz, 690.1 W, 700.00 W, 0x0000000000000004, {i + 50}, {100_000 + i} MiB, 143771 MiB\n"
    for i in range(15)
    for gpu in (0, 1)
)
_DCGMI_ALL = (
    "#Entity   GPUTL  SMCLK  SMMAX  POWER  PMLMT  CLKTR  TMPTR  FBUSD  FBTTL  GRACT  SMACT  TENSO  DRAMA\n"
    "ID\n"
    + "GPU 0     91     1755   1980   512.3  700.0  4      81     1024   143771 0.912  0.655  0.221  0.401\n"
    * 12
)
_DCGM = "timestamp,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_SM_ACTIVE,DCGM_FI_DEV_FB_USED\n" + "".join(
    f"2025-07-18T20:42:{i:02}Z,0,90,0.{i + 20},4096\n" for i in range(12)
)
_BY_METRIC = "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,value\n" + "".join(
    f'"2025-07-18T20:42:{i:02}Z","{metric}","0","nvidia0","GPU-a","H100","a","{value}"\n'
    for metric, value in (("DCGM_FI_DEV_GPU_UTIL", 90), ("DCGM_FI_DEV_FB_USED", 1024))
    for i in range(6)
)
_EXPORTER = "".join(
    f'{metric}{{gpu="0",UUID="GPU-0",modelName="NVIDIA H100 80GB HBM3"}} {value}\n'
    for _ in range(4)
    for metric, value in (("DCGM_FI_DEV_POWER_USAGE", 400.5), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.75))
)
_TEGRA = "".join(
    f"06-13-2026 14:17:{i:02} RAM 3308/7607MB (lfb 32x4MB) SWAP 11/3804MB (cached 0MB) CPU [0%@1510] "
    f"GR3D_FREQ {i + 80}%@[1098,1098] cpu@61.5C gpu@62.3C tj@62.4C VDD_IN 12517mW/10898mW\n"
    for i in range(12)
)
_OWN = "time,gpu,gpu_util_pct,mem_used_mib,power_w\n" + "".join(
    f"2025-07-18 20:42:{i:02},0,{i + 40},1024,70\n" for i in range(12)
)

_SERVER = server_logs.Server(
    drafted=3,
    preempted=2,
    moments=[server_logs.Moment(running=16 + i, waiting=i, accepted=2.5, prompt=100.0) for i in range(8)],
)
_NOTED = (
    "Capture cuda graph bs [1, 2, 4, 8]\n"
    "--max-num-seqs 256 --tensor-parallel-size 2\n"
    "KV cache pool is full. Retract requests. #retracted_reqs: 3\n"
)

_KERNELS = pasted.printed(
    "cuda_gpu_kern_sum",
    ("void gemm<float>(int)", 256, 48225.5, 48000.0, 47000, 90123, 812.4),
    ("flash_fwd_kernel", 256, 23529.0, 23000.0, 22000, 24000, 10.0),
)
_CALLS = pasted.printed(
    "cuda_api_sum",
    ("cudaLaunchKernel", 512, 5000.0, 4500.0, 3000, 900000, 400.0),
    ("cuMemFreeAsync", 12, 2000.0, 2000.0, 2000, 2000, 0.0),
)
_SUMS = [
    profiler_tables.operator("aten::mm", 64, 20.0, inside=10.0, device=64 * 300.0),
    profiler_tables.operator("aten::add", 128, 8.0, device=128 * 4.0),
    profiler_tables.call("cudaLaunchKernel", 192, 6.0),
    profiler_tables.kernel("ampere_bf16_s16816gemm", 64, 300.0),
    profiler_tables.kernel("vectorized_elementwise_kernel", 128, 4.0),
]


@cache
def texts() -> dict[str, list[str]]:
    """The valid texts of each kind."""
    logs = {name: make(_SERVER) for name, make in server_logs.ENGINES.items()}
    metrics = [logs.pop(name) for name in ("prometheus", "statistics")]
    sums = [form(_SUMS) for form in profiler_tables.FORMS.values()]
    sums += [profiler_tables.as_csv(_SUMS), profiler_tables.as_frame(_SUMS)]
    reports = [pasted.pasted([_KERNELS, _CALLS], form) for form in pasted.FORMATS]
    told = {name: text for name, text in TEXTS.items() if "bench" not in name and "perf`" not in name}
    forms = [
        form.text for name, form in FORMS.items() if name.startswith(("sglang", "vllm", "llama", "trtllm"))
    ]
    scraped = [text for name, text in told.items() if "/metrics" in name]
    scraped += [FORMS["scrapes2.txt"].text, _timed(FORMS["llama_metrics.txt"].text)]
    return {
        "sampler log": [
            SMI,
            _SMI_ALL,
            SMI_DMON,
            _DCGMI,
            _DCGMI_ALL,
            _DCGM,
            _BY_METRIC,
            _EXPORTER,
            _TEGRA,
            _OWN,
        ],
        "server log": [
            *(text + _NOTED for text in (*logs.values(), server_logs.llama(_SERVER))),
            *(text for name, text in told.items() if "/metrics" not in name),
            *forms,
        ],
        "server metrics": [*metrics, *scraped],
        "pasted table": [*sums, *reports, pasted.as_old(_KERNELS)],
        "benchmark report": _benchmarks(),
    }


def _timed(scrape: str) -> str:
    """Four scrapes with times: the counters grow by a tenth each."""
    lines = [line for line in scrape.splitlines() if not line.startswith("#")]
    return "".join(
        f"{name} {float(value) * (1 + i / 10):g} {1_700_000_000_000 + 2000 * i}\n"
        for i in range(4)
        for name, value in (line.split() for line in lines)
    )


def _benchmarks() -> list[str]:
    ran = benchmark_reports.Ran()
    of_load = ("vllm_serve", "vllm_json", "sglang_serving", "sglang_json", "trtllm", "trtllm_json")
    of_perf = ("genai_json", "genai_table", "genai_csv", "aiperf_json")
    of_steps = ("one_batch", "one_batch_json", "llama_bench", "llama_csv", "llama_sql", "llama_json")
    return [
        *(getattr(benchmark_reports, name)(ran) for name in (*of_load, *of_perf)),
        *(getattr(benchmark_reports, name)(4, 20.0) for name in (*of_steps, "llama_batched")),
        benchmark_reports.vllm_latency(4, 128, 3.0),
        benchmark_reports.vllm_throughput(900.0),
    ]
