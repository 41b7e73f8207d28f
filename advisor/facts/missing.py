"""Why a fact has no value, and the capture option that would supply it."""

from __future__ import annotations

from advisor.facts.catalog import CATALOGUE, CUDA, GIL, SAMPLES

_FASTER = "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"
_LONGER = "a longer capture (10 to 50 steps)"

#: Names that begin so -> (reason, what would help), where the tables themselves are there.
_REASONS: tuple[tuple[str, str, str | None], ...] = (
    ("bandwidth.", "the size of the weights was not given", "--weight-bytes"),
    ("host.gc_", "no garbage-collection ranges are recorded", "TLLM_PROFILE_RECORD_GC=1, -t nvtx"),
    ("host.gil_", "waiting for the GIL is not recorded", GIL),
    ("host.gap_", "no step structure was found", CUDA),
    ("host.step_", "fewer than three steps of one phase", _LONGER),
    ("host.preparation", "no range names input preparation", "-t nvtx and the engine's own ranges"),
    (
        "activity.burst",
        "the window is shorter than ten bins of 100 ms",
        "a capture of several seconds",
    ),
    ("activity.", "the samples do not resolve the kernels", _FASTER),
    ("capture.sample_", "no GPU metrics are sampled", SAMPLES),
    ("phase.gemm_", "the samples do not resolve the kernels of one phase", _FASTER),
    ("phase.attention_dram", "the samples do not resolve the kernels of one phase", _FASTER),
    ("phase.", "no phases were found", CUDA),
    ("operation.", "fewer than 20 like calls of any operation", _LONGER),
    ("memory.used", "the absolute use of device memory is not recorded", "--enable=nvml_metrics"),
    ("memory.growth", "too few steps with allocation events", "--cuda-memory-usage=true"),
    ("copy.link_rate", "no large pinned copies, or a GPU that is not in knowledge/gpus.yaml", None),
    ("kernel.old_arch", "the capture does not describe the GPU", None),
    ("kernel.small_grid", "the capture does not describe the GPU", None),
    ("kernel.several_waves", "the capture does not describe the GPU", None),
    ("kernel.varying", "fewer than two steps", _LONGER),
    ("launch.queue", "no kernel was launched by itself", None),
    ("capture.debug_build", "the command line is not in the export", None),
    ("capture.client_command", "the command line is not in the export", None),
    ("capture.schema", "the export does not tell its schema version", None),
)


def reason(name: str, tables: frozenset[str]) -> str:
    """Why a catalogue entry has no value in a capture that holds `tables`."""
    absent = [t for t in CATALOGUE[name].tables if t not in tables]
    if absent:
        return f"the capture holds no {', '.join(absent)}"
    if name.endswith("_per_step"):
        return "no step structure was found"
    return next(
        (why for start, why, _ in _REASONS if name.startswith(start)), "no GPU work to judge"
    )


def remedy(name: str, tables: frozenset[str]) -> str | None:
    """What would supply it: an option of the capture or of this command; None where none does."""
    spec = CATALOGUE[name]
    if any(t not in tables for t in spec.tables):
        return spec.flag or None
    hit = next((fix for start, _, fix in _REASONS if name.startswith(start)), spec.flag)
    return hit or None
