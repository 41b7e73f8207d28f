"""What facts need besides tables: steps, samples of a busy device, collectives, a known GPU; and the columns
that many of them are made of.
"""

from __future__ import annotations

from advisor.facts.spec import Entry, Need
from advisor.knowledge.gpus import dram_peak
from advisor.metrics.operations import FEWEST_KERNELS

CUDA = "--trace=cuda,nvtx"
SAMPLES = "--gpu-metrics-devices=all"
NVTX = "--trace=cuda,nvtx"
GIL = "--trace=cuda,nvtx,python-gil"
MEMORY = "--cuda-memory-usage=true"
FAULTS = "--cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true"
OSRT = "--trace=cuda,nvtx,osrt"
CPU_SWITCHES = "--trace=cuda,nvtx,osrt --cpuctxsw=process-tree"
NETWORK = "--nic-metrics=hf"
GPU_SWITCHES = "--gpuctxsw=true"
NODES = "--cuda-graph-trace=node"
FASTER = "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"
WEIGHTS = "--weight-bytes"
LONGER = "a longer capture (10 to 50 steps)"
SECONDS = "a capture of several seconds"
STEP_RANGES = "an NVTX range around each step"
OWNER = "GPU work in the captured process"
LOSSLESS = "a capture that loses no kernels"
ALL_RANKS = "the captures of all ranks"
SMI_LOG = "a log of nvidia-smi, laid over the capture as its GPU metrics"
SUMMED = "the capture that was summed up (advisor REPORT.sqlite)"
SIZES = "an nsys of 2026 or a PyTorch profiler trace, which record the arguments of NCCL"

STEPS = Need("no certain step structure was found", STEP_RANGES, lambda a: a.step_count > 0)
NO_STEPS = Need("it is counted by step", None, lambda a: not a.step_count)
FEEDER = Need("no API call is known to issue the GPU work", CUDA, lambda a: a.feeder(a.main_device) is not None)  # fmt: skip
KERNELS = Need("no kernel ran in the window", None, lambda a: len(a.device_kernels(a.main_device)) > 0)
FOR_A_RATE = Need(
    f"fewer than {FEWEST_KERNELS} kernels ran in the window", LONGER,
    lambda a: len(a.device_kernels(a.main_device)) >= FEWEST_KERNELS,
)  # fmt: skip
PEAK = Need("the peak bandwidth of this GPU is not known", None, lambda a: dram_peak(a.device(a.main_device)) is not None)  # fmt: skip
CAPABILITY = Need("the capture does not record the compute capability of the GPU", None, lambda a: bool(a.device(a.main_device).compute_capability))  # fmt: skip
COLLECTIVES = Need("no collective ran in the window", None, lambda a: bool(a.communication[a.device_ops(a.main_device)].any()))  # fmt: skip
SAMPLED = Need("no sample of the device lies in the window", None, lambda a: a.samples(a.main_device) is not None)  # fmt: skip
LAUNCH_SHAPES = Need(
    "the launch shapes of the kernels are not recorded", None,
    lambda a: a.trace.has("kernels") and bool((a.trace.columns("kernels", ("blocks",))["blocks"][
        a.ops.row[a.device_kernels(a.main_device)]] > 0).all()),
)  # fmt: skip


def more_steps(least: int, words: str) -> tuple[Need, ...]:
    """The needs of a fact that requires at least `least` certain steps (`words`)."""
    few = Need(f"fewer than {words}", LONGER, lambda a: a.step_count >= least)
    return (STEPS, few)


def counted(
    name: str,
    tables: str,
    what: str,
    by_step: str = "count in the window / steps",
    columns: dict[str, str] | None = None,
    needs: tuple[Need, ...] = (),
) -> tuple[Entry, Entry]:
    """The two facts of a count by `Analysis.rates`: per step and, without steps, per 100 kernels."""
    meaning = f"{what} for every 100 kernels, where there are no steps"
    how = "count in the window / kernels in the window x 100"
    without = (*needs, NO_STEPS, KERNELS, FOR_A_RATE)
    return (
        Entry(f"{name}_per_step", "count", tables, f"{what} a step", by_step, columns, (*needs, STEPS)),
        Entry(f"{name}_per_100_kernels", "count", tables, meaning, how, columns, without),
    )


SPAN = "start end device"
JOIN = "process correlation"
CALLS = "start end process thread correlation call"
SHAPE = "grid_x grid_y grid_z threads"
RANGES = "start end thread text_id"
OPS = {
    "kernels": f"{SPAN} {JOIN}", "copies": f"{SPAN} {JOIN} kind",
    "memsets": f"{SPAN} {JOIN}", "graph_runs": f"{SPAN} {JOIN}",
}  # fmt: skip
GAPS = {**OPS, "api_calls": CALLS}
STEP_COLUMNS = {
    "kernels": f"{SPAN} {JOIN} stream name_id graph_node", "ranges": RANGES, "api_calls": CALLS,
}  # fmt: skip
DRAM = {"samples": "time device dram_read dram_write", "kernels": f"{SPAN} name_id {SHAPE}"}
