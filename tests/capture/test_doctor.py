"""`advisor.doctor`: what a capture can and cannot answer, from real and generated captures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.capture.nsys_options import recording_of
from advisor.cli.main import main
from advisor.errors import RuleError
from advisor.model.capture import Capture
from advisor.model.capture_plan import Checkup
from advisor.model.facts import TRACE, Fact, FactBase, Scope
from advisor.pipeline.diagnose import Options, diagnose
from advisor.pipeline.doctor import question_facts
from advisor.sources.nsys.metadata import NSYS
from advisor.sources.open import open_trace
from tests import kineto_builder as kineto
from tests.builder import Export
from tests.captures import committed
from tests.engine.engine_support import needs_durable
from tests.scenarios.machine import DECODE_LAYER, Machine


@cache
def checked(name: str, serving: str | None = None) -> Checkup:
    return advisor.doctor(committed(name), Options(serving_engine=serving))


def answers(found: Checkup) -> dict[str, str]:
    return {q.id: q.answer for q in found.questions}


# --- real captures ---------------------------------------------------------------------------


def test_a_good_capture() -> None:
    found = checked("decode_eager_bs1")
    assert answers(found) == {
        "kernel-breakdown": "yes",
        "host-overhead": "partly",  # 10 % of the window is what tracing costs at least
        "idle-attribution": "yes",
        "bandwidth": "partly",  # kernels of 2 us under samples of 100 us
        "tails": "yes",
        "gil-gc": "no",
        "memory": "no",
        "communication": "yes",
        "phases": "yes",
        "call-sites": "partly",
    }
    assert found.recorded.options[:3] == ("--trace=cuda", "--trace=nvtx", "--cuda-graph-trace=node")
    assert found.recorded.sampled == ("GPU metrics at 10,000 Hz",)
    assert found.recorded.tables["kernels"] == 12_736
    assert found.recorded.command == ("python3", "llm_workload.py")


def test_steps_are_those_of_the_diagnosis(capsys: pytest.CaptureFixture[str]) -> None:
    path = committed("decode_eager_bs1")
    assert checked("decode_eager_bs1").steps == diagnose(path).steps
    main(["doctor", str(path)])
    assert "15 decode (from ranges" in capsys.readouterr().out


def test_only_findings_about_the_capture_are_listed() -> None:
    found = checked("decode_eager_bs1")
    wanted = [f.code for f in diagnose(committed("decode_eager_bs1")).findings]
    assert [f.code for f in found.findings] == [c for c in wanted if c.startswith("CAP")]
    assert len(found.findings) < len(wanted)


def test_an_opaque_capture_is_one_flag_from_a_good_one() -> None:
    found = checked("decode_graph_opaque")
    assert found.findings[0].code == "CAP102"
    said = answers(found)
    assert (said["kernel-breakdown"], said["idle-attribution"]) == ("no", "no")
    assert found.blocked[0].remedy == "--cuda-graph-trace=node"
    assert len(found.blocked[0].rules) > 30
    assert "--cuda-graph-trace=node" in found.plan.command
    assert "opaque-cuda-graphs" in found.plan.addresses
    assert {r.code for r in found.blocked[0].rules} & {r.code for r in found.plan.enables}


def test_every_rule_that_cannot_run_is_counted_once() -> None:
    for name in ("decode_eager_bs1", "decode_graph_opaque", "no_gpu_work"):
        found = checked(name)
        waiting = [r.code for group in found.blocked for r in group.rules]
        silent = diagnose(committed(name)).not_evaluated
        unknown = {n.code for n in silent if n.stopped_by is None}
        assert sorted(waiting) == sorted(unknown)
        assert f"{len(waiting)} of the {found.rules} rules about a capture cannot run" in found.sentence
        told = {r.code for r in found.plan.enables}
        told |= {r.code for a in found.plan.also for r in a.rules}
        told |= {r.code for left in found.plan.left_out for r in left.rules}
        hopeless = {r.code for g in found.blocked if g.remedy is None for r in g.rules}
        assert told <= unknown - hopeless


def test_a_capture_without_gpu_work_asks_for_the_right_process() -> None:
    found = checked("no_gpu_work")
    assert set(answers(found).values()) == {"no"}
    assert found.blocked[0].remedy == "GPU work in the captured process"
    assert "--trace-fork-before-exec=true" in found.plan.command


def test_start_up_is_skipped_and_lost_events_need_a_newer_tool() -> None:
    found = checked("whole_run_no_capture_range")
    assert "--delay=1 --duration=10" in found.plan.command
    assert "nsys 2025.3 or newer" in found.plan.also[0].need
    trt = checked("whole_run_no_capture_range", "tensorrt-llm")
    assert trt.plan.command.startswith("TLLM_PROFILE_START_STOP=100-150 ")
    assert "TLLM_PROFILE_RECORD_GC=1" in trt.plan.command
    assert trt.input.serving_evidence == ("named by --serving-engine",)


# --- generated captures ----------------------------------------------------------------------


def decode(export: Export | None = None, **how: Any) -> Machine:
    m = Machine(export, **how)
    for i in range(8):
        with m.step(f"decode_step {i}"):
            m.layers(6, [(kernel, 1.5) for kernel, _ in DECODE_LAYER])
            m.wait()
    return m


def test_options_that_were_found_are_kept(tmp_path: Path) -> None:
    export = Export(tool_version="2025.5.1.10").gpu()
    export.traced("Cuda", "NvtxEvents", "OSRuntime", graph_mode="Node")
    export.option("COLLECT_GPU_MEMORY_USAGE", "true")
    export.option("LINUX_PERF_OPTIONS:COLLECT_IP_BACKTRACE_SAMPLES", "true")
    m = decode(export)
    m.export.command("vllm", "serve", "m", "--api-key", "s3cr3t")
    found = advisor.doctor(m.export.write(tmp_path / "t.sqlite"))
    assert found.recorded.options_known
    assert set(found.recorded.options) == {
        "--trace=cuda",
        "--trace=nvtx",
        "--trace=osrt",
        "--cuda-graph-trace=node",
        "--cuda-memory-usage=true",
        "--sample=process-tree",
    }
    for option in ("osrt", "--cuda-memory-usage=true", "--sample=process-tree"):
        assert option in found.plan.command
    assert found.plan.command.endswith("vllm serve m --api-key '***'")
    assert "s3cr3t" not in found.model_dump_json()
    assert "memory-usage-slows" in {p.id for p in found.plan.pitfalls}


def test_what_an_old_export_does_not_tell_is_told_by_its_rows(tmp_path: Path) -> None:
    m = decode(Export("2.9", tool_version="2022.1.3.3").gpu())
    m.export.osrt("poll", 10_000, 5_000)
    found = advisor.doctor(m.export.write(tmp_path / "t.sqlite"))
    assert not found.recorded.options_known
    assert found.recorded.options == ("--trace=cuda", "--trace=nvtx", "--trace=osrt")
    assert found.plan.command.endswith(" COMMAND")


def test_backtraces_answer_who_called(tmp_path: Path) -> None:
    m = decode()
    m.launch(DECODE_LAYER[0][0], 2, callchain=1)
    m.export.callchain(1, [("forward", "model.so")])
    found = advisor.doctor(m.export.write(tmp_path / "t.sqlite"))
    assert answers(found)["call-sites"] == "yes"
    assert "--cudabacktrace=all" in found.recorded.options


def test_gil_ranges_show_that_the_gil_was_traced(tmp_path: Path) -> None:
    m = decode()
    m.export.range("Waiting for GIL", 400_000, 30_000)
    found = advisor.doctor(m.export.write(tmp_path / "t.sqlite"))
    assert answers(found)["gil-gc"] == "partly"
    assert "--trace=python-gil" in found.recorded.options


# --- the questions, one by one ---------------------------------------------------------------


QUESTIONS = [
    "kernel-breakdown",
    "host-overhead",
    "idle-attribution",
    "bandwidth",
    "tails",
    "gil-gc",
    "memory",
    "communication",
    "phases",
    "call-sites",
]


def test_the_questions_keep_their_names_and_order() -> None:
    """What each is answered with stands in its cases, rules/questions/ASK1*.cases.yaml."""
    assert list(answers(checked("decode_eager_bs1"))) == QUESTIONS


@pytest.mark.parametrize("engine", [pytest.param("durable", marks=needs_durable), "python"])
def test_a_threshold_of_a_question_can_be_changed(engine: Any) -> None:
    chosen = Options(engine=engine, params=("ASK102.max_cost=0.5", "CAP104.min_startup=0.9"))
    found = advisor.doctor(committed("decode_eager_bs1"), chosen)
    assert answers(checked("decode_eager_bs1"))["host-overhead"] == "partly"
    assert answers(found)["host-overhead"] == "yes"


def test_a_parameter_that_no_question_has_is_refused() -> None:
    with pytest.raises(RuleError, match=r"unknown parameter ASK102[.]max_costs"):
        advisor.doctor(committed("decode_eager_bs1"), Options(params=("ASK102.max_costs=0.5",)))


def test_a_question_sees_each_fact_at_its_largest_over_the_scopes() -> None:
    facts = FactBase()
    for device, share in ((0, 0.1), (1, 0.4), (2, 0.2)):
        facts.add(Fact("budget.unknown_ratio", share, "ratio", Scope(device=device)))
    asked = question_facts(facts, {"recording.has_steps": True, "recording.phases": None})
    assert [(f.name, f.value, f.scope) for f in asked] == [
        ("budget.unknown_ratio", 0.4, TRACE),
        ("recording.has_steps", True, TRACE),
    ]


def test_a_question_is_never_part_of_a_diagnosis() -> None:
    found = diagnose(committed("decode_eager_bs1"))
    sections = (found.findings, found.healthy, found.not_evaluated, found.overruled)
    codes = {entry.code for section in sections for entry in section}
    codes |= {threshold.code for threshold in found.thresholds}
    assert codes
    assert not [code for code in codes if code.startswith("ASK")]


def test_explain_shows_the_answers_and_leads_to_the_doctor(capsys: Any) -> None:
    assert main(["explain", "ASK104"]) == 0
    shown = capsys.readouterr().out
    assert "no: no GPU metrics were sampled\n      where `" in shown
    assert "partly: the mean is known" in shown
    assert "Next: advisor doctor TRACE" in shown
    assert main(["explain", "ASK104", "--trace", str(committed("decode_eager_bs1"))]) == 2
    assert "see advisor doctor" in capsys.readouterr().err


# --- how it was recorded ---------------------------------------------------------------------


def test_the_highest_rate_that_was_sampled_counts() -> None:
    capture = Capture(
        path="t", format="nsys-sqlite", recorder=NSYS, sample_hz=20_000.0, trace_sources=("Cuda",)
    )
    recording = recording_of(capture, {"samples"})
    assert recording.has("--gpu-metrics-frequency=10000")
    assert not recording.has("--gpu-metrics-frequency=100000")


def test_options_of_another_tool_are_none_of_nsys() -> None:
    capture = Capture(path="t", format="kineto-json", trace_sources=("cpu_op", "kernel"))
    assert recording_of(capture, {"kernels"}).options == ()


def test_profiler_calls_show_a_capture_range() -> None:
    with open_trace(committed("decode_eager_bs1")) as trace:
        assert "ProfilerStart" in " ".join(
            trace.texts(set(trace.columns("api_calls", ("name_id",))["name_id"].tolist()))
        )
    assert "--capture-range=cudaProfilerApi" in checked("decode_eager_bs1").recorded.options
    assert not any("capture-range" in o for o in checked("whole_run_no_capture_range").recorded.options)


def test_no_option_of_nsys_for_a_gpu_that_it_cannot_record(tmp_path: Path, capsys: Any) -> None:
    profile = kineto.decode(profile=kineto.Profile(amd=True).gpu(name="AMD Instinct MI210"))
    path = profile.write(tmp_path / "trace.json")
    doc = advisor.doctor(path)
    assert not [q.remedy for q in doc.questions if q.remedy and q.remedy.startswith("-")]
    assert (doc.plan.command, doc.plan.options) == ("", ())
    assert main(["doctor", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "nsys profile" not in shown
    assert "--trace=" not in shown
