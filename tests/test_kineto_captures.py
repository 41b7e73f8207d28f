"""Traces of the PyTorch profiler from file to finding: the same facts and rules as for nsys."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options, diagnose
from tests.kineto_builder import Profile, decode

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "captures" / "kineto_decode_graph.json.gz"
SHARED = ROOT.parent / "shared" / "traces"


@cache
def example() -> Diagnosis:
    return diagnose(EXAMPLE)


def facts(diagnosis: Diagnosis, device: int | None = 0) -> dict[str, Any]:
    return {f.name: f.value for f in diagnosis.facts if f.scope.device in (device, None)}


def causes(diagnosis: Diagnosis) -> list[str]:
    return [f.cause for f in diagnosis.findings]


# ------------------------------------------------------------------ the committed trace


def test_the_example_says_what_the_nsys_capture_of_the_workload_says() -> None:
    found = causes(example())
    assert found[0] in {"under-filled-gpu", "unfused-elementwise"}
    assert not {"launch-bound", "no-gpu-activity", "host-gap", "compute-bound"} & set(found)
    (about,) = example().inputs
    assert about.format == "kineto-json"
    assert about.producer == "PyTorch profiler"
    assert about.device == "NVIDIA H200"
    assert about.cuda == "13.0"
    assert about.workload == "LLM decode"


def test_graph_launches_are_its_steps() -> None:
    (about,) = example().inputs
    assert about.step_method == "graph launches"
    assert about.kernels_per_step == 797
    (steps,) = example().steps
    assert steps.phase == "decode"
    assert steps.median_ms == pytest.approx(2.36, abs=0.02)
    assert facts(example())["launch.eager_kernel_ratio"] == 0.0
    assert facts(example())["graph.kernel_ratio"] == 1.0


def test_what_the_format_does_not_tell_is_missing_and_not_zero() -> None:
    known = facts(example())
    for name in (
        "activity.dram_ratio",
        "activity.sm_ratio",
        "capture.error_call_count",
        "capture.schema_known",
        "capture.debug_build",
        "host.gil_idle_ratio",
        "host.os_idle_ratio",
        "memory.growth_ratio",
        "bandwidth.weights_ratio",
    ):
        assert name not in known
    unjudged = {n.cause for n in example().not_evaluated}
    assert {"memory-bandwidth-bound", "low-gpu-utilisation", "cuda-errors"} <= unjudged


def test_the_size_of_the_weights_gives_bandwidth() -> None:
    """The peak is not in the trace; that of this GPU is known."""
    known = facts(diagnose(EXAMPLE, Options(weight_bytes="2.2GB")))
    assert known["bandwidth.weights_ratio"] == pytest.approx(0.23, abs=0.02)


def test_a_window_in_time_of_the_trace() -> None:
    whole = example().inputs[0].window_ns
    assert whole is not None
    half = (whole[0] + whole[1]) // 2
    (about,) = diagnose(EXAMPLE, Options(window=f"{whole[0]}ns/{half}ns")).inputs
    assert about.window_ns == (whole[0], half)


# ------------------------------------------------------------------ generated traces


def test_an_eager_loop_is_launch_bound(tmp_path: Path) -> None:
    found = diagnose(decode().write(tmp_path / "t.json"))
    assert causes(found)[0] == "launch-bound"
    (about,) = found.inputs
    assert (about.steps, about.step_method) == (11, "ranges")
    assert {s.phase for s in found.steps} == {"decode"}
    assert facts(found)["capture.nvtx_range_count"] == 12
    sites = next(e for e in found.findings[0].evidence if "come from" in e.title)
    assert sites.rows[0][0] == "aten::mm"


def test_operators_mark_no_steps(tmp_path: Path) -> None:
    profile = decode()
    profile.events = [e for e in profile.events if "annotation" not in e["cat"]]
    found = diagnose(profile.write(tmp_path / "t.json"))
    assert facts(found)["capture.nvtx_range_count"] == 0
    assert "capture.nvtx_coverage_ratio" not in facts(found)
    assert "no-nvtx-ranges" in causes(found)


@pytest.mark.parametrize(
    ("name", "phase", "engine"),
    [
        ("execute_context_1(888)_generation_0(0)", "prefill", "vllm"),
        ("execute_context_0(0)_generation_32(32)", "decode", "vllm"),
        ("step[DECODE bs=32]", "decode", "sglang"),
        ("step[EXTEND bs=15 toks=15360]", "prefill", "sglang"),
    ],
)
def test_annotations_of_serving_engines(tmp_path: Path, name: str, phase: str, engine: str) -> None:
    profile = decode(steps=4)
    for event in profile.events:
        if "annotation" in event["cat"]:
            event["name"] = name
    found = diagnose(profile.write(tmp_path / "t.json"))
    assert [s.phase for s in found.steps] == [phase]
    assert found.inputs[0].serving_engine == engine


def test_one_annotated_step_is_one_step_whatever_repeats_in_it(tmp_path: Path) -> None:
    profile = Profile().gpu().annotation("ProfilerStep#6", 0, 30_000_000)
    for layer in range(32):
        for i in range(20):
            at = 1_000 + (layer * 20 + i) * 20_000
            profile.launch(at=at, kernel=f"kernel_{i}", kernel_dur=15_000)
    (about,) = diagnose(profile.write(tmp_path / "t.json")).inputs
    assert (about.steps, about.step_method) == (1, "ranges")


def test_amd_is_judged_by_what_it_tells(tmp_path: Path) -> None:
    profile = decode(profile=Profile(amd=True).gpu(name="AMD Instinct MI300X", capability=(9, 4)))
    profile.copy(at=5_000_000, kind="DtoH (Device -> Host)", copy_dur=400_000)
    found = diagnose(profile.write(tmp_path / "t.json"))
    assert causes(found)[0] == "launch-bound"
    known = facts(found)
    for name in (
        "kernel.small_grid_ratio",
        "kernel.old_architecture_ratio",
        "kernel.varying_shape_ratio",
        "kernel.several_waves_ratio",
        "copy.pageable_ratio",
        "copy.link_time_ratio",
    ):
        assert name not in known
    assert known["copy.exposed_ratio"] > 0
    assert found.next_target is not None  # with a tool that knows this GPU
    assert found.next_target.command.startswith("rocprof-compute profile")
    unjudged = {n.cause for n in found.not_evaluated}
    assert {"under-filled-gpu", "pageable-copies", "old-architecture-kernels"} <= unjudged


def test_a_trace_of_the_cpu_alone_has_no_gpu_activity(tmp_path: Path) -> None:
    profile = Profile().annotation("ProfilerStep#1", 0, 9_000).op("aten::add", 0, 1_000)
    assert causes(diagnose(profile.write(tmp_path / "t.json")))[0] == "no-gpu-activity"


def test_python_garbage_collection_is_a_cause(tmp_path: Path) -> None:
    profile = decode(steps=6, step_ns=20_000_000)
    for step in range(6):
        profile.python("Python GC", step * 20_000_000 + 2_000_000, 16_000_000)
    assert causes(diagnose(profile.write(tmp_path / "t.json")))[0] == "python-gc"


@pytest.mark.parametrize("style", ["epoch", "whole", "old"])
def test_other_generations_of_the_format_give_the_same_findings(tmp_path: Path, style: Any) -> None:
    new = diagnose(decode().write(tmp_path / "new.json"))
    other = diagnose(decode(profile=Profile(style).gpu()).write(tmp_path / "t.json"))
    assert causes(other) == causes(new)


# ------------------------------------------------------------------ speed, all real traces


def _labels() -> list[tuple[Path, dict[str, Any]]]:
    if not (SHARED / "labels.yaml").is_file():
        return []
    labels = yaml.safe_load((SHARED / "labels.yaml").read_text())
    named = [(SHARED / "kineto" / f"{n}.json.gz", want) for n, want in labels["kineto"].items()]
    named += [(SHARED / "public" / n, want) for n, want in labels["public"].items() if n.endswith(".json.gz")]
    return named


@pytest.mark.slow
@pytest.mark.skipif(not _labels(), reason="the labelled traces are not on this machine")
@pytest.mark.parametrize(("path", "want"), _labels(), ids=[p.name for p, _ in _labels()])
def test_labelled_traces(path: Path, want: dict[str, Any]) -> None:
    found = causes(diagnose(path))
    assert not want.get("top") or found[0] in want["top"]
    assert set(want.get("include", ())) <= set(found)
    assert not set(want.get("never", ())) & set(found)


@pytest.mark.slow
@pytest.mark.skipif(not _labels(), reason="the real traces are not on this machine")
@pytest.mark.parametrize(("path", "want"), _labels(), ids=[p.name for p, _ in _labels()])
def test_real_traces_read_whole(path: Path, want: dict[str, Any]) -> None:
    """Every event of the kinds that are read, at the nanosecond that the file has."""
    from decimal import Decimal

    from advisor.sources.open import open_trace

    del want
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    first = min(e["ts"] for e in events if e["ph"] == "X")
    with open_trace(path) as trace:
        for table, categories in (
            ("kernels", {"kernel"}),
            ("copies", {"gpu_memcpy"}),
            ("memsets", {"gpu_memset"}),
            ("api_calls", {"cuda_runtime", "cuda_driver"}),
        ):
            mine = [e for e in events if e.get("cat") in categories]
            read = trace.columns(table, ["start", "end", "correlation"])
            want_rows = sorted(
                (
                    int((e["ts"] - first) * 1000),
                    int((e["ts"] - first + e["dur"]) * 1000),
                    e["args"]["correlation"],
                )
                for e in mine
            )
            assert sorted(zip(*(v.tolist() for v in read.values()), strict=True)) == want_rows
            assert trace.has(table) == bool(mine)


@pytest.mark.parametrize("name", ["AMD Instinct MI300X", ""])
def test_an_amd_gpu_is_not_told_to_use_tools_of_another_vendor(tmp_path: Path, name: str) -> None:
    """What cannot be known of it is not evaluated, and no option of nsys would help."""
    profile = Profile(amd=True).gpu(name=name, sms=304, capability=(9, 4)).process(100)
    for step in range(5):
        at = step * 1_000_000
        profile.annotation(f"step[DECODE bs={32}]", at, 900_000)
        for i in range(20):
            profile.launch(at=at + i * 40_000, kernel="Cijk_Alik", kernel_start=at + i * 40_000 + 9_000)
    found = diagnose(profile.write(tmp_path / "t.json"))
    assert "no-gpu-metrics" not in causes(found)
    unknown = {n.cause: n.flag for n in found.not_evaluated}
    assert {"no-gpu-metrics", "low-gpu-utilisation", "under-filled-gpu"} <= unknown.keys()
    assert not [flag for flag in unknown.values() if flag and ("nsys" in flag or "--gpu" in flag)]
    assert found.steps[0].phase == "decode"


def test_who_ran_the_pytorch_profiler_is_told_of_nsys(tmp_path: Path) -> None:
    found = diagnose(decode().write(tmp_path / "t.json"))
    (finding,) = (f for f in found.findings if f.cause == "no-gpu-metrics")
    assert facts(found)["capture.nsys_recorded"] is False
    assert [r.id for r in finding.recommendations] == ["sample-gpu-metrics", "give-weight-bytes"]
    assert "nsys profile" in finding.recommendations[0].action
