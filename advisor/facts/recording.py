"""The catalogue of facts about how a capture was recorded, which the questions of `advisor doctor`
look at beside the facts of the trace."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.facts.spec import FactSpec
from advisor.model.facts import Unit

#: Trace tables whose presence decides an answer.
ASKED_TABLES = ("kernels", "api_calls", "samples", "ranges", "allocations", "host_samples",
                "callchains")  # fmt: skip

_ROWS: tuple[tuple[str, Unit, str, str], ...] = (
    *((f"has_{t}", "flag", f"The capture holds the table `{t}`", "row count") for t in ASKED_TABLES),
    ("has_backtraces", "flag", "CUDA calls carry backtraces", "call chains of the calls"),
    ("has_steps", "flag", "Steps were found in the window", "as capture.step_count"),
    ("step_method", "text", "How steps were found", "none without steps"),
    ("phases", "text", "Phases that distinguish the steps", "prefill, decode, mixed"),
    ("world_size", "count", "Ranks of the job that the capture belongs to", "capture metadata"),
    ("cuda_remedy", "text", "What would record CUDA at work", "by what was lost or unused"),
    ("kernel_remedy", "text", "What would record the kernels", "nodes where graphs hide them"),
)

RECORDING: Mapping[str, FactSpec] = {
    f"recording.{name}": FactSpec(f"recording.{name}", unit, "trace", meaning, (), how, "sketch")
    for name, unit, meaning, how in _ROWS
}
