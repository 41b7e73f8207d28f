"""What would supply a missing fact: never an option that was on already."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.facts.catalog import CATALOGUE
from advisor.facts.missing import combine, options_of, reason, remedy
from advisor.knowledge.files import capture_knowledge, engines
from advisor.sources.schema import TABLES

ALL = frozenset(TABLES)
CUDA = frozenset({"kernels", "api_calls", "ranges", "copies"})


@pytest.mark.parametrize(
    ("name", "tables", "about", "wanted"),
    [
        ("activity.sm_ratio", CUDA, {}, "--gpu-metrics-devices=all"),
        ("capture.sample_period_over_kernel", CUDA, {}, "--gpu-metrics-devices=all"),
        ("host.os_idle_ratio", CUDA, {}, "--trace=cuda,nvtx,osrt"),
        ("memory.growth_ratio", CUDA, {}, "--cuda-memory-usage=true"),
        ("host.gil_idle_ratio", CUDA, {}, "--trace=cuda,nvtx,python-gil"),
        ("host.gil_idle_ratio", frozenset({"kernels"}), {}, "--trace=cuda,nvtx,python-gil"),
        # Samples are there and too slow for the kernels.
        ("activity.dram_bound_busy_ratio", CUDA | {"samples"}, {},
         "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"),
        # Only the program can do something about steps and collections.
        ("phase.is_decode", CUDA, {}, "an NVTX range around each step"),
        ("phase.is_decode", CUDA - {"ranges"}, {}, "--trace=cuda,nvtx"),
        ("phase.is_decode", CUDA - {"ranges"}, {"nvtx": True}, "an NVTX range around each step"),
        ("sync.calls_per_step", CUDA, {}, "an NVTX range around each step"),
        ("host.gc_idle_ratio", CUDA, {}, "NVTX ranges from gc.callbacks"),
        ("host.gc_idle_ratio", CUDA, {"serving": "vllm"}, "NVTX ranges from gc.callbacks"),
        ("host.gc_idle_ratio", CUDA, {"serving": "tensorrt-llm"}, "TLLM_PROFILE_RECORD_GC=1"),
        ("host.gc_idle_ratio", CUDA - {"ranges"}, {"serving": "tensorrt-llm"},
         "TLLM_PROFILE_RECORD_GC=1 --trace=cuda,nvtx"),
        ("host.preparation_ratio", CUDA, {"serving": "vllm"}, "VLLM_NVTX_SCOPES_FOR_PROFILING=1"),
        # CUDA was traced: tracing it again records nothing new.
        ("kernel.unfused_ratio", CUDA - {"kernels"}, {"hidden_graphs": True},
         "--cuda-graph-trace=node"),
        ("phase.gemm_dram_ratio", CUDA - {"kernels"}, {"hidden_graphs": True},
         "--cuda-graph-trace=node --gpu-metrics-devices=all"),
        ("kernel.unfused_ratio", frozenset(), {"no_gpu_work": True},
         "GPU work in the captured process"),
        ("activity.sm_ratio", frozenset(), {"no_gpu_work": True}, "--gpu-metrics-devices=all"),
        ("bandwidth.weights_ratio", CUDA, {}, "--weight-bytes"),
        ("capture.debug_build", CUDA, {}, None),
        ("kernel.small_grid_ratio", CUDA, {}, None),
    ],
)  # fmt: skip
def test_remedy(
    name: str, tables: frozenset[str], about: dict[str, Any], wanted: str | None
) -> None:
    assert remedy(name, tables, **about) == wanted


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_option_that_is_named_is_known(name: str) -> None:
    """Whatever is missing, the planner knows what an option costs and an engine its variables."""
    flags = {o for f in capture_knowledge().flags for o in f.flag.split()}
    sources = {s for o in flags if o.startswith("--trace=") for s in o[8:].split(",")}
    variables = {
        f"{v.variable}={v.value}" for data in engines().values() for v in data.capture
    }  # fmt: skip
    for serving in (None, "vllm", "tensorrt-llm"):
        for tables in (ALL, frozenset[str](), ALL - {"kernels"}, ALL - {"ranges"}):
            for hidden in (False, True):
                fix = remedy(name, tables, hidden_graphs=hidden, serving=serving)
                for option in options_of(fix or ""):
                    if option.startswith("--trace="):
                        assert set(option[8:].split(",")) <= sources
                    else:
                        assert option in flags | variables | {"--weight-bytes"}


def test_a_reason_names_the_absent_table() -> None:
    assert reason("activity.sm_ratio", CUDA) == "the capture holds no samples"
    assert reason("sync.calls_per_step", CUDA) == "no step structure was found"


@pytest.mark.parametrize(
    ("fixes", "wanted"),
    [
        (["--trace=cuda,nvtx", "--trace=cuda,nvtx,osrt"], "--trace=cuda,nvtx,osrt"),
        (["--gpu-metrics-devices=all", "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"],
         "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"),
        (["a longer capture", "--trace=cuda,nvtx", "A_B=1"],
         "A_B=1 --trace=cuda,nvtx and a longer capture"),
        (["--weight-bytes", "--gpu-metrics-devices=all"], "--gpu-metrics-devices=all"),
        (["--weight-bytes"], "--weight-bytes"),
        ([], None),
    ],
)  # fmt: skip
def test_remedies_are_merged(fixes: list[str], wanted: str | None) -> None:
    assert combine(fixes) == wanted
