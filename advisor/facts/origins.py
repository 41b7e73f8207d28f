"""Where each fact comes from: the columns it is made of, and the stretch it covers.

For people who want to check a number by hand. Columns are those that the definition of the fact
names; what is read to find the window, the steps and the devices stands under `capture.step_count`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from advisor.facts.catalog import CATALOGUE

_SPAN = "start end device"
_JOIN = "process correlation"
_CALLS = "start end process thread correlation call"
_OPS = {
    "kernels": f"{_SPAN} {_JOIN}",
    "copies": f"{_SPAN} {_JOIN} kind",
    "memsets": f"{_SPAN} {_JOIN}",
    "graph_runs": f"{_SPAN} {_JOIN}",
}
_GAPS = {**_OPS, "api_calls": _CALLS}
_STEPS = {
    "kernels": f"{_SPAN} {_JOIN} stream name_id graph_node",
    "ranges": "start end thread text_id",
    "api_calls": _CALLS,
}
_SHAPE = "grid_x grid_y grid_z threads"
_RESOLVED = {"samples": "time device dram_read dram_write sm_active tensor_active",
             "kernels": f"{_SPAN} name_id {_SHAPE}"}  # fmt: skip
_DRAM = {"samples": "time device dram_read dram_write", "kernels": f"{_SPAN} name_id {_SHAPE}"}

#: Names that begin so -> columns by table; the longest that fits counts.
_COLUMNS: dict[str, dict[str, str]] = {
    "capture.gpu_work_count": {**_OPS, "api_calls": "call"},
    "capture.kernel_count": {"kernels": "start"},
    "capture.launch_without_kernel": {"api_calls": _CALLS, "kernels": _JOIN},
    "capture.graph_launch_count": {"api_calls": "call"},
    "capture.opaque_graph": {"api_calls": _CALLS, "kernels": _JOIN, "graph_runs": _JOIN},
    "capture.hidden_graph": {"api_calls": _CALLS, "kernels": _JOIN, "graph_runs": _JOIN},
    "capture.node_traced": {"kernels": "graph_node"},
    "startup.": {**_OPS, "api_calls": _CALLS},
    "capture.teardown": {**_OPS, "api_calls": _CALLS},
    "capture.unused": {**_OPS, "api_calls": _CALLS},
    "capture.startup": {**_OPS, "api_calls": _CALLS},
    "capture.steady": _GAPS,
    "capture.step_count": _STEPS,
    "capture.step_method": _STEPS,
    "capture.step_confidence": _STEPS,
    "capture.nvtx_range_count": {"ranges": "start"},
    "capture.nvtx_coverage": _STEPS,
    "capture.sample_": {"samples": "time device"},
    "capture.sample_period_over": {"samples": "time device", "kernels": "start end name_id"},
    "capture.gpu_busy_sampled": {"samples": "time gr_active"},
    "capture.overhead_idle": {**_GAPS, "overheads": "start end process"},
    "capture.traced_call_cost": {"api_calls": "start call"},
    "capture.damaged": {"api_calls": "start end process correlation"},
    "capture.correlation_jump": {"api_calls": "start process correlation"},
    "capture.empty_step": {"ranges": "start end thread text_id", "api_calls": "start thread"},
    "capture.lost_event": {"diagnostics": "text_id"},
    "capture.uncounted_loss": {"diagnostics": "text_id"},
    "capture.lost_kernel": {"api_calls": f"{_CALLS} result", "kernels": _JOIN,
                            "graph_runs": _JOIN},
    "capture.lost_row": {"api_calls": _CALLS, "kernels": _JOIN, "diagnostics": "text_id"},
    "capture.lost_ratio": {"api_calls": _CALLS, "kernels": _JOIN, "diagnostics": "text_id"},
    "capture.damage_signs": {"api_calls": _CALLS, "kernels": _JOIN, "diagnostics": "text_id"},
    "capture.invalid_row": {**_GAPS, "ranges": "start end", "host_calls": "start end",
                            "overheads": "start end", "samples": "gr_active"},
    "capture.end_before_start": {**_OPS, "api_calls": "start end", "ranges": "start end"},
    "capture.before_launch": {**_OPS, "api_calls": _CALLS},
    "capture.stream_overlap": {"kernels": f"{_SPAN} {_JOIN} context stream graph_node"},
    "capture.repeated_row": {**_OPS, "api_calls": f"{_CALLS} name_id"},
    "capture.repeated_correlation": {"api_calls": _CALLS, "kernels": _JOIN},
    "capture.far_time": {**_OPS, "api_calls": "start", "ranges": "start"},
    "capture.nameless": {"kernels": "name_id", "api_calls": "name_id"},
    "capture.overfull_sample": {"samples": "gr_active sm_active dram_read dram_write"},
    "capture.refusal": {"diagnostics": "text_id"},
    "capture.error_call": {"api_calls": "result"},
    "capture.range_count": {"api_calls": "start call name_id"},
    "capture.workload": {"kernels": "start end name_id", "ranges": "text_id"},
    "capture.is_inference": {"kernels": "start end name_id", "ranges": "text_id"},
    "workload.": {"kernels": "start end name_id", "ranges": "text_id"},
    "budget.": {**_GAPS, "overheads": "start end process", "host_calls": "start end thread",
                "ranges": "start end thread text_id"},
    "launch.": {"kernels": f"{_SPAN} {_JOIN} graph_node", "api_calls": _CALLS},
    "launch.call": {"api_calls": "start end thread call"},
    "graph.": {"kernels": f"{_SPAN} {_JOIN} graph_node", "api_calls": _CALLS},
    "serving.": _STEPS,
    "experts.": {"kernels": f"{_SPAN} name_id"},
    "kernel.": {"kernels": f"{_SPAN} name_id"},
    "kernel.duration": {"kernels": _SPAN},
    "kernel.short": {"kernels": _SPAN},
    "kernel.per_step": {"kernels": _SPAN},
    "kernel.small_grid": {"kernels": f"{_SPAN} name_id blocks"},
    "kernel.several_waves": {"kernels": f"{_SPAN} name_id blocks"},
    "kernel.varying": {"kernels": f"{_SPAN} name_id {_SHAPE}"},
    "sync.": {"kernels": f"{_SPAN} {_JOIN}", "api_calls": f"{_CALLS} name_id"},
    "sync.readback": {"copies": f"{_SPAN} {_JOIN} bytes kind", "api_calls": _CALLS},
    "copy.": {"copies": f"{_SPAN} bytes kind src_memory dst_memory", "kernels": _SPAN},
    "unified.": {"copies": f"{_SPAN} bytes kind migration_cause address", "kernels": _SPAN},
    "unified.gpu_fault": {"page_faults": "start device count"},
    "unified.host_fault": {"page_faults": "start device count"},
    "alloc.": {"api_calls": "start end thread call", "kernels": f"{_SPAN} {_JOIN}"},
    "memory.growth": {"allocations": "time device bytes kind"},
    "memory.used": {"samples": "time device memory_used_bytes"},
    "memory.peak": {"samples": "device memory_used_bytes",
                    "allocations": "time device bytes kind memory"},
    "memory.least": {"samples": "device memory_used_bytes",
                     "allocations": "time device bytes kind memory"},
    "host.": _GAPS,
    "host.gc": {"ranges": "start end thread text_id", **_GAPS},
    "host.gil": {"ranges": "start end thread text_id", **_GAPS},
    "host.data_loading": {"ranges": "start end thread text_id"},
    "host.gap_range": {"ranges": "start end thread text_id", **_GAPS},
    "host.preparation": {"ranges": "start end thread text_id"},
    "host.os": {"host_calls": "start end thread", **_GAPS},
    "host.step": _STEPS,
    "activity.": _RESOLVED,
    "activity.work": {**_OPS, "api_calls": _CALLS, "samples": "device"},
    "activity.busy": {**_OPS, "samples": "time device gr_active"},
    "activity.idle": {**_OPS, "samples": "time device gr_active"},
    "activity.sm_": {"samples": "time device sm_active"},
    "activity.tensor": {"samples": "time device tensor_active"},
    "activity.dram_ratio": {"samples": "time device dram_read dram_write"},
    "activity.dram_busy": {"samples": "time device dram_read dram_write"},
    "activity.dram_bound": _DRAM,
    "activity.burst": {"samples": "time device sm_active"},
    "clock.": {"samples": "time device sm_active sm_clock_hz"},
    "clock.power": {"samples": "time device sm_active power_w power_limit_w"},
    "clock.held": {"samples": "time device sm_active throttled"},
    "clock.limit": {"samples": "time device sm_active throttled overheated power_w power_limit_w"},
    "clock.temperature": {"samples": "time device sm_active temperature_c"},
    "bandwidth.": {"kernels": f"{_SPAN} name_id"},
    "step.": _STEPS,
    "phase.": _STEPS,
    "phase.gemm_dram": _DRAM,
    "phase.gemm_headroom": _DRAM,
    "phase.attention_dram": _DRAM,
    "operation.": {"kernels": f"{_SPAN} stream name_id {_SHAPE}"},
    "comm.": {"kernels": f"{_SPAN} name_id"},
    "comm.small": {"kernels": f"{_SPAN} name_id", "collectives": "start device stream bytes"},
    "ranks.": {"kernels": f"{_SPAN} stream name_id",
               "collectives": "start device stream bytes group_id sequence"},
    "ranks.count": {}, "ranks.world_size": {}, "ranks.missing": {}, "ranks.busy": _OPS,
    "rank.": {"kernels": f"{_SPAN} stream name_id",
              "collectives": "start device stream bytes group_id sequence"},
    "rank.late_part": _GAPS,
}  # fmt: skip

#: Facts about the capture that are measured over the window; the others are over the whole file.
_WINDOWED = frozenset({
    "capture.overhead_idle_ratio", "capture.traced_call_cost_ratio",
    "capture.nvtx_coverage_ratio", "capture.gpu_busy_sampled_ratio", "capture.step_count",
    "capture.step_method", "capture.step_confidence",
})  # fmt: skip


@cache
def columns(name: str) -> dict[str, tuple[str, ...]]:
    """The columns by table that a fact is made of; empty where it comes from metadata."""
    fits = [start for start in _COLUMNS if name.startswith(start)]
    if not fits:
        return {}
    found = {t: tuple(text.split()) for t, text in _COLUMNS[max(fits, key=len)].items()}
    needed = CATALOGUE[name].tables
    first = {t: found[t] for t in needed if t in found}
    return first | found


def sources(name: str, present: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tables and ``table.column`` names that a fact was made of in a capture of `present`."""
    # What is counted as none in tables that are not there still comes from those tables.
    read = {t: c for t, c in columns(name).items() if t in present} or columns(name)
    tables = tuple(t for t in CATALOGUE[name].tables if t in present) or tuple(read)
    return tables, tuple(f"{t}.{c}" for t, names in read.items() for c in names)


def over_window(name: str) -> bool:
    """False for what is counted over the whole file."""
    return not name.startswith(("capture.", "workload.")) or name in _WINDOWED
