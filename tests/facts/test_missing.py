"""What would supply a missing fact: never an option that was on already."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from advisor.facts.catalog import CATALOGUE, build_facts
from advisor.facts.needs import combine, options_of, reason, remedy
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.facts import need
from advisor.knowledge.files import capture_knowledge
from advisor.metrics.profiled.stage import measure
from advisor.sources.open import open_trace
from advisor.sources.schema import TABLES
from tests.builder import Export

ALL = frozenset(TABLES) - {"sums", "load"}  # which are sources of their own
CUDA = frozenset({"kernels", "api_calls", "ranges", "copies"})
STEPS, COLLECTIVES, PEAK, WEIGHT_BYTES = map(need, ("steps", "collectives", "peak_bandwidth", "weight_bytes"))
ALIKE = need("like_collectives", "communication")
GC = "no garbage-collection ranges are recorded"


NO_KERNELS = CUDA - {"kernels"}
FASTER = "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"


@pytest.mark.parametrize(
    ("name", "tables", "about", "wanted"),
    [
        ("activity.sm_ratio", CUDA, {}, "--gpu-metrics-devices=all"),
        ("capture.sample_period_over_kernel", CUDA, {}, "--gpu-metrics-devices=all"),
        ("host.os_idle_ratio", CUDA, {}, "--trace=cuda,nvtx,osrt"),
        ("memory.growth_ratio", CUDA, {}, "--cuda-memory-usage=true"),
        ("host.gil_idle_ratio", CUDA, {}, "--trace=cuda,nvtx,python-gil"),
        ("host.gil_idle_ratio", frozenset({"kernels"}), {}, "--trace=cuda,nvtx,python-gil"),
        # CUDA was traced: tracing it again records nothing new.
        ("kernel.unfused_ratio", NO_KERNELS, {"hidden_graphs": True}, "--cuda-graph-trace=node"),
        (
            "phase.gemm_dram_ratio",
            NO_KERNELS,
            {"hidden_graphs": True},
            "--cuda-graph-trace=node --gpu-metrics-devices=all",
        ),
        ("kernel.unfused_ratio", frozenset(), {"no_gpu_work": True}, "GPU work in the captured process"),
        ("activity.sm_ratio", frozenset(), {"no_gpu_work": True}, "--gpu-metrics-devices=all"),
        ("capture.error_call_count", frozenset(), {"no_gpu_work": True}, "GPU work in the captured process"),
        # Samples that are there are not asked for again.
        (
            "activity.matmul_tensor_ratio",
            NO_KERNELS | {"samples"},
            {"hidden_graphs": True},
            "--cuda-graph-trace=node",
        ),
        # Ranges were traced, and the program pushes none.
        ("host.gc_idle_ratio", CUDA - {"ranges"}, {"nvtx": True}, "NVTX ranges from gc.callbacks"),
        (
            "host.preparation_ratio",
            CUDA - {"ranges"},
            {"nvtx": True, "no_gpu_work": True},
            "NVTX ranges of input preparation and GPU work in the captured process",
        ),
        # An engine may record it by itself, and what it records needs ranges.
        (
            "host.gc_idle_ratio",
            CUDA - {"ranges"},
            {"serving": "tensorrt-llm"},
            "TLLM_PROFILE_RECORD_GC=1 --trace=cuda,nvtx",
        ),
    ],
)
def test_what_supplies_absent_tables(
    name: str, tables: frozenset[str], about: dict[str, Any], wanted: str | None
) -> None:
    spec = CATALOGUE[name]
    assert remedy(spec, tables, reason(spec, tables), **about) == wanted


@pytest.mark.parametrize(
    ("name", "why", "about", "wanted"),
    [
        (
            "activity.dram_bound_busy_ratio",
            "the samples do not resolve the kernels",
            {"tables": CUDA | {"samples"}},
            FASTER,
        ),
        # Only the program can do something about steps and collections.
        ("phase.is_decode", STEPS.lack, {}, "an NVTX range around each step"),
        ("phase.is_decode", STEPS.lack, {"tables": CUDA - {"ranges"}}, "--trace=cuda,nvtx"),
        (
            "phase.is_decode",
            STEPS.lack,
            {"tables": CUDA - {"ranges"}, "nvtx": True},
            "an NVTX range around each step",
        ),
        ("sync.calls_per_step", STEPS.lack, {}, "an NVTX range around each step"),
        ("host.gc_idle_ratio", GC, {}, "NVTX ranges from gc.callbacks"),
        ("host.gc_idle_ratio", GC, {"serving": "vllm"}, "NVTX ranges from gc.callbacks"),
        ("host.gc_idle_ratio", GC, {"serving": "tensorrt-llm"}, "TLLM_PROFILE_RECORD_GC=1"),
        (
            "host.preparation_ratio",
            "no range names input preparation",
            {"serving": "vllm"},
            "VLLM_NVTX_SCOPES_FOR_PROFILING=1",
        ),
        (
            "bandwidth.weights_ratio",
            "no size of the weights was given that a step can have read",
            {},
            "--weight-bytes",
        ),
        # Nothing supplies what the tool does not record, or what did not happen.
        ("capture.debug_build", "the command line is not in the export", {}, None),
        ("capture.debug_build", "the command line is not in the export", {"lost_work": True}, None),
        # nsys samples the card, and not its clocks.
        (
            "clock.busy_ratio",
            "the samples do not hold the SM clock",
            {"tables": CUDA | {"samples"}},
            "a log of nvidia-smi, laid over the capture as its GPU metrics",
        ),
        ("launch.empty_queue_ratio", "the window holds nothing of the kind", {}, None),
        ("sync.readbacks_per_step", "the capture holds no copies", {"tables": CUDA - {"copies"}}, None),
        ("comm.max_over_mean", COLLECTIVES.lack, {}, None),
        ("comm.max_over_mean", ALIKE.lack, {}, "a longer capture (10 to 50 steps)"),
    ],
)
def test_what_supplies_what_is_too_little(
    name: str, why: str, about: dict[str, Any], wanted: str | None
) -> None:
    assert remedy(CATALOGUE[name], about.pop("tables", CUDA), why, **about) == wanted


def test_every_option_that_is_named_is_known() -> None:
    """Whatever is missing, the planner knows what an option costs and an engine its variables."""
    flags = {o for f in capture_knowledge().flags for o in f.flag.split()}
    sources = {s for o in flags if o.startswith("--trace=") for s in o[8:].split(",")}
    variables = {v.setting for data in engines().values() for v in data.capture}
    known = flags | variables | {"--weight-bytes", "--acceptance", "--together", "--log"}
    for spec in CATALOGUE.values():
        for why, serving, tables, hidden in product(
            (None, *(n.lack for n in spec.needs)),
            (None, "vllm", "tensorrt-llm"),
            (ALL, frozenset[str](), ALL - {"kernels"}, ALL - {"ranges"}),
            (False, True),
        ):
            fix = remedy(spec, tables, why, hidden_graphs=hidden, serving=serving)
            for option in options_of(fix or ""):
                if option.startswith("--trace="):
                    assert set(option[8:].split(",")) <= sources, spec.name
                else:
                    assert option in known, spec.name


def test_a_reason_names_what_was_looked_for_first() -> None:
    """Absent tables, then columns without a value, then what there was too little of."""
    spec = CATALOGUE["activity.sm_ratio"]
    assert reason(spec, CUDA) == "the capture holds no samples"
    assert reason(spec, ALL, lambda *_: True) == "the samples do not hold SM Active"
    assert reason(spec, ALL, lambda *_: False) == "no sample of the device lies in the window"
    assert reason(spec, ALL, lambda *_: False, []) == "the window holds nothing of the kind"
    assert reason(CATALOGUE["launch.calls_per_step"], CUDA) == STEPS.lack
    assert reason(CATALOGUE["launch.process_count"], CUDA) == "the window holds nothing of the kind"


def needs_of(name: str, export: Export, folder: Path) -> str:
    with open_trace(export.write(folder / "t.sqlite")) as trace:
        return build_facts(measure(trace)).missing[name]


def eager(count: int = 30) -> Export:
    """Launches of which no step is found: each kernel has a name of its own."""
    e = Export().gpu().process(1)
    for i in range(count):
        e.launch(i * 50_000, kernel=f"k{i}")
    return e


def steps(count: int, **gpu: Any) -> Export:
    e = Export().gpu(**gpu).process(1)
    for i in range(count):
        e.range(f"decode_step {i}", i * 1_000_000, i * 1_000_000 + 250_000)
        for j in range(10):
            e.launch(i * 1_000_000 + j * 20_000, kernel=f"k{j}")
    return e


def one_kernel() -> Export:
    """A program that uploads, runs one kernel and reads one number back: no rate follows from that."""
    e = Export().gpu().process(1)
    e.copy(0, 10_000, "HtoD", 1 << 20, "pageable", 2_000, 8_000)
    e.launch(20_000, kernel="reduce_baseline(int const*, int*)", kernel_dur=500_000)
    return e.copy(40_000, 600_000, "DtoH", 4, "pageable", 600_000, 1_000)


def simulation() -> Export:
    """A program of CUDA C++ that calls two kernels of its own over and over."""
    e = Export().gpu().process(1)
    for i in range(200):
        e.launch(i * 50_000, kernel=f"{('advance', 'collide')[i % 2]}_particles(float*, int)")
    return e


@pytest.mark.parametrize(
    ("name", "export", "wanted"),
    [
        ("launch.calls_per_step", eager(), STEPS.lack),
        ("kernel.per_step", eager(), STEPS.lack),
        ("host.step_outlier_ratio", eager(), STEPS.lack),
        ("kernel.varying_shape_ratio", eager(), STEPS.lack),
        ("phase.is_decode", eager(), STEPS.lack),
        # With steps, the reason is no longer that there are none.
        ("host.gap_range", steps(20), "no range, function or operator lies in most of the gaps"),
        ("host.preparation_ratio", steps(20), "no range names input preparation"),
        ("sync.memset_per_100_kernels", steps(20), "it is counted by step"),
        ("sync.readbacks_per_100_kernels", one_kernel(), "fewer than 20 kernels ran in the window"),
        ("comm.max_over_mean", steps(20), COLLECTIVES.lack),
        ("comm.calls_per_step", steps(20), COLLECTIVES.lack),
        ("operation.p99_over_p50", steps(4), "fewer than 20 like calls of the operation"),
        ("kernel.unfused_p50_ns", steps(20), "no kernel of these families ran"),
        ("copy.link_rate_ratio", steps(20), "the capture holds no copies"),
        ("bandwidth.weights_ratio", eager(), WEIGHT_BYTES.lack),
        ("bandwidth.weights_ratio", steps(20, name="Orin", bandwidth=None), PEAK.lack),
        ("bandwidth.weights_ratio", simulation(), "a program of this kind has no weights"),
        ("rank.wait_ratio", steps(20), "the captures of the other ranks were not given"),
    ],
)
def test_a_reason_is_what_was_not_found(name: str, export: Export, wanted: str, tmp_path: Path) -> None:
    assert needs_of(name, export, tmp_path) == wanted


@pytest.mark.parametrize(
    ("fixes", "wanted"),
    [
        (["--trace=cuda,nvtx", "--trace=cuda,nvtx,osrt"], "--trace=cuda,nvtx,osrt"),
        (
            ["--gpu-metrics-devices=all", "--gpu-metrics-devices=all --gpu-metrics-frequency=100000"],
            "--gpu-metrics-devices=all --gpu-metrics-frequency=100000",
        ),
        (["a longer capture", "--trace=cuda,nvtx", "A_B=1"], "A_B=1 --trace=cuda,nvtx and a longer capture"),
        (["--weight-bytes", "--gpu-metrics-devices=all"], "--gpu-metrics-devices=all"),
        (["--weight-bytes"], "--weight-bytes"),
        (
            ["--trace=cuda,nvtx and a longer capture", "another run and a longer capture"],
            "--trace=cuda,nvtx and a longer capture and another run",
        ),
        ([], None),
    ],
)
def test_remedies_are_merged(fixes: list[str], wanted: str | None) -> None:
    assert combine(fixes) == wanted
