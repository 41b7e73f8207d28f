"""Captures that lack something, hold too much, or were taken of the wrong thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import advisor
from advisor.cli.extract_verbs import REPORTS
from advisor.cli.main import main
from advisor.config import CHOICES
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options
from advisor.reports.finding_text import cost_text
from tests.builder import Export
from tests.kineto_builder import Profile, decode
from tests.scenarios.machine import DECODE_LAYER, GEMM, Machine
from tests.scenarios.support import HOST_SIDE, alarms, diagnosed, evidence, expect, fact, ranked, severity

LAYER = [(kernel, 3 * us) for kernel, us in DECODE_LAYER]


def serve(m: Machine | None = None, steps: int = 12, first: int = 0) -> Machine:
    """Steps of one millisecond of replayed graph: healthy by themselves."""
    m = m or Machine()
    for i in range(first, first + steps):
        with m.step(f"decode_step {i}"):
            m.replay(22)
    return m


# ------------------------------------------------------------------------------- parts of a run


def test_several_capture_ranges(tmp_path: Path) -> None:
    """Three ranges of six steps; the 50 ms between them are neither idle nor part of a step."""
    m = Machine()
    for part in range(3):
        m.call("cudaProfilerStart", 30)
        serve(m, 6, 6 * part)
        m.wait()
        m.call("cudaProfilerStop", 30)
        m.now += 50_000
    d = diagnosed(m, tmp_path)
    expect(d, also=("several-capture-ranges",), never=("step-outliers", "host-gap"))
    (steps,) = d.steps
    assert steps.count == 17
    assert steps.p99_ms < 1.2 * steps.median_ms
    # Nothing was lost, so fixes are replayed: closing gaps of 1 us between graph nodes wins little.
    assert ranked(d) == []
    (gaps,) = [f for f in d.findings if f.cause == "graph-node-gaps"]
    assert gaps.gain is not None
    assert gaps.gain.speedup is not None
    assert gaps.gain.step_before_ms is not None
    assert gaps.gain.step_before_ms.high < 1.2 * steps.median_ms
    assert fact(d, "capture.range_count", None) == 3
    assert fact(d, "budget.busy_ratio") == pytest.approx(0.94, abs=0.02)


def test_start_up_in_the_window(tmp_path: Path) -> None:
    m = Machine()
    m.call("cuLibraryLoadData", 80_000)
    m.call("cudaMalloc_v3020", 3_000)
    m.copy("HtoD", 256 * 1024, "pageable", gb_per_s=6)
    m.call("cuModuleLoadData", 20_000)
    d = diagnosed(serve(m), tmp_path)
    expect(d, "startup-in-window", never=(*HOST_SIDE, "memory-growth"))
    assert ranked(d) == ["startup-in-window"]
    assert fact(d, "capture.startup_ms", None) == pytest.approx(147.8, abs=1)
    # What start-up takes is a share of the whole capture, not of the steps that are left.
    impact = d.findings[0].impact
    assert impact is not None
    assert impact.ms == pytest.approx(fact(d, "capture.startup_ms", None))
    parts = next(t for t in d.findings[0].evidence if t.title.startswith("What start-up was made of"))
    assert sum(row[1] for row in parts.rows) == pytest.approx(impact.ms)
    assert sum(row[2] for row in parts.rows) == pytest.approx(fact(d, "capture.startup_ratio", None))
    assert all(row[3] for row in parts.rows)
    assert cost_text(d.findings[0], has_steps=True).endswith(" of the capture (148 ms)")
    assert not d.findings[0].invalidates  # the steps behind it are good


@pytest.mark.parametrize(("again", "late"), [(True, pytest.approx(0.5, abs=0.1)), (False, None)])
def test_compilation_that_comes_back_in_the_loop_is_no_matter_of_warming_up(
    tmp_path: Path, again: bool, late: object
) -> None:
    """Of 24 steps every third compiles for 6 ms, or each of the second to the ninth, which are set aside."""
    m = Machine()
    for i in range(24):
        with m.step(f"decode_step {i}"):
            if i % 3 == 2 if again else 0 < i < 9:
                m.work(6_000, "entire_frame_compile (dynamo_timed)")
            m.replay(22)
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "startup-in-window", never=("host-gap",))
    assert fact(d, "startup.late_ratio", None) == late
    assert ("no-recompilation" in {r.id for r in d.findings[0].recommendations}) is again


# ------------------------------------------------------------------------------- lost events


def test_ids_that_jump(tmp_path: Path) -> None:
    """Events of 9 ms were dropped: the ids of the calls after it are 900,000 higher."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.layers(4, LAYER)
            m.wait()
        if i == 8:
            m.now += 9_000
            m.export.call("cudaLaunchKernel_v7000", round(m.now * 1e3), correlation=900_000)
    d = diagnosed(m, tmp_path)
    expect(d, "damaged-capture", never=("host-gap", "launch-bound", "gpu-idle"), damaged=True)
    assert fact(d, "budget.busy_ratio") > 0.9  # type: ignore[operator]
    assert fact(d, "capture.damaged_ratio", None) == pytest.approx(0.54, abs=0.03)
    for raised in ("CAP111.min_jump=1e9", "CAP111.min_lost=60%"):
        d = advisor.diagnose(tmp_path / "trace.sqlite", Options(params=(raised,)))
        assert "damaged-capture" not in [f.cause for f in d.findings], raised


def test_steps_without_a_call(tmp_path: Path) -> None:
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            if 5 <= i < 11:
                m.work(700)  # its events are lost
            else:
                m.layers(4, LAYER)
                m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "damaged-capture", never=("host-gap", "launch-bound", "gpu-idle"), damaged=True)
    assert fact(d, "capture.empty_step_ratio", None) == 6 / 16


def test_a_range_that_was_opened_as_the_recording_stopped(tmp_path: Path) -> None:
    """`ProfilerStep` opens the next step before the profiler is told to stop: of two ranges one is
    empty, and nothing was lost."""
    for length in (30, 900):
        m = Machine()
        with m.step("ProfilerStep#1"):
            m.layers(40, LAYER)
            m.wait()
        with m.step("ProfilerStep#2"):
            m.work(length)
        folder = tmp_path / str(length)
        folder.mkdir()
        assert "damaged-capture" not in {f.cause for f in diagnosed(m, folder).findings}


def test_short_ranges_may_well_do_nothing(tmp_path: Path) -> None:
    """A third of the steps only schedule."""
    m = Machine()
    for i in range(15):
        with m.step(f"decode_step {i}"):
            if i % 3 == 1:
                m.work(20)
            else:
                m.layers(4, LAYER)
                m.wait()
    assert "damaged-capture" not in {f.cause for f in diagnosed(m, tmp_path).findings}


@pytest.mark.parametrize(("lost", "damaged"), [(2, False), (8, False), (9, True)])
def test_a_few_missing_records(tmp_path: Path, lost: int, damaged: bool) -> None:
    """Few launches stand beside graphs: what counts is the share of all kernels."""
    m = Machine()
    for i in range(4):
        with m.step(f"decode_step {i}"):
            m.replay(5, LAYER)
            if i == 1:
                for _ in range(lost):
                    m.call("cudaLaunchKernel_v7000", 4)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == pytest.approx(lost / (160 + lost))
    assert fact(d, "capture.launch_without_kernel_ratio", None) == 1.0
    assert ("damaged-capture" in {f.cause for f in d.findings}) is damaged


@pytest.mark.parametrize(
    ("text", "damaged"),
    [
        ("CUPTI lost some events.", True),
        ("Number of incomplete CUPTI events dropped: 3", False),
        ("Number of incomplete CUPTI events dropped: 900", True),
        ("Not all NVTX events might have been collected.", False),
    ],
)
def test_what_the_tool_says_it_lost(tmp_path: Path, text: str, damaged: bool) -> None:
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.layers(4, LAYER)
            m.wait()
    m.export.diagnostic(text)
    d = diagnosed(m, tmp_path)
    found = [f for f in d.findings if f.cause == "damaged-capture"]
    assert bool(found) is damaged
    if damaged:
        assert f"the tool says: {text}" in found[0].message


def test_a_pause_without_loss_is_idle_time(tmp_path: Path) -> None:
    """The twin of both: the same silence, with ids that go on and every range filled."""
    m = Machine()
    for i in range(16):
        with m.step(f"decode_step {i}"):
            m.layers(4, LAYER)
            m.wait()
        if i == 8:
            m.work(9_000)
    d = diagnosed(m, tmp_path)
    expect(d, "step-outliers", never=("damaged-capture",))
    assert "Step 9 lost 9 ms" in d.findings[0].message


# ------------------------------------------------------------------------------- nothing to see


@pytest.mark.parametrize(
    "export",
    [
        lambda: Export().gpu().process(1).osrt("poll", 0, 1_000_000).range("work", 0, 1_000_000),
        lambda: Export(lazy=False).gpu(),
        lambda: Export().process(1).host_sample(1_000, [("main", "/app/x")]),
    ],
    ids=["CPU only", "zero rows", "CPU samples only"],
)
def test_no_gpu_work(tmp_path: Path, export: Callable[[], Export]) -> None:
    d = diagnosed(export(), tmp_path)
    expect(d, "no-gpu-activity", never=("damaged-capture", "wrong-process"), damaged=True)
    assert ranked(d) == ["no-gpu-activity"]
    assert d.budget == ()
    assert d.findings[0].recommendations


@pytest.mark.parametrize(
    ("sources", "told"),
    [(("Cuda", "NvtxEvents"), False), (("NvtxEvents",), True), ((), True)],
    ids=["CUDA traced", "CUDA not traced", "not told"],
)
def test_what_was_traced_already_is_not_advised(tmp_path: Path, sources: tuple[str, ...], told: bool) -> None:
    export = Export().gpu().process(1).osrt("poll", 0, 1_000_000)
    if sources:
        export.traced(*sources)
    path = export.write(tmp_path / "t.sqlite")
    advice = {a.id for a in advisor.diagnose(path).findings[0].recommendations}
    assert {"attach-to-gpu-process", "check-gpu-access"} <= advice
    assert ("trace-cuda" in advice) is told
    asked = {q.id: q.remedy for q in advisor.doctor(path).questions}
    wanted = "--trace=cuda,nvtx" if told else "GPU work in the captured process"
    assert asked["kernel-breakdown"] == asked["host-overhead"] == wanted


def of_operators(*names: str) -> Profile:
    """A trace of operators alone."""
    made = Profile()
    for i in range(8):
        for k, name in enumerate(names or ("aten::mm", "aten::relu")):
            made.op(name, i * 100_000 + k * 10_000, 8_000)
    return made


@pytest.mark.parametrize(
    ("profile", "ran_on", "first"),
    [
        (of_operators().gpu(), None, "record-cuda-activity"),
        (of_operators().head(deviceProperties=[]), "cpu", "move-to-gpu"),
        (of_operators("aten::mm", "aten::mkldnn_convolution").gpu(), "cpu", "move-to-gpu"),
        (of_operators("aten::mkldnn_linear", "aten::cudnn_convolution"), "gpu", "record-cuda-activity"),
        (of_operators().gpu().memory(0, 64, type=0), "cpu", "move-to-gpu"),
        (of_operators().gpu().memory(0, 64), "gpu", "record-cuda-activity"),
        (of_operators().gpu().call("cudaGetDeviceCount", 0, 5_000), "cpu", "move-to-gpu"),
        (of_operators().event(ph="X", cat="mtia_runtime", name="run", ts=1, dur=1), "accelerator", None),
        (of_operators("aten::mm", "npu::npu_dtype_cast"), "accelerator", None),
    ],
    ids=[
        "GPU listed",
        "no GPU",
        "CPU operator",
        "GPU operator",
        "memory of the CPU",
        "memory of the GPU",
        "CUDA traced",
        "MTIA",
        "NPU",
    ],
)
def test_a_model_that_ran_on_the_cpu_is_moved_not_recorded_again(
    tmp_path: Path, profile: Profile, ran_on: str | None, first: str | None
) -> None:
    d = advisor.diagnose(profile.write(tmp_path / "trace.json"))
    assert ranked(d) == ["no-gpu-activity"]
    assert fact(d, "capture.ran_on", None) == ran_on
    advice = [a.id for a in d.findings[0].recommendations]
    assert advice[:1] == ([] if first is None else [first])
    # Where nothing tells which it was, both are said.
    assert ({"move-to-gpu", "record-cuda-activity"} <= set(advice)) is (ran_on is None)


def test_a_process_traced_without_any_cuda_call_ran_on_the_cpu(tmp_path: Path) -> None:
    """Its ranges prove that nsys was in the process; without CUDA among the sources they prove nothing."""
    for sources, ran_on in ((("Cuda", "NvtxEvents"), "cpu"), (("NvtxEvents",), None)):
        export = Export().gpu().process(1).range("forward", 0, 1_000_000).traced(*sources)
        folder = tmp_path / str(ran_on)
        folder.mkdir()
        d = diagnosed(export, folder)
        assert fact(d, "capture.ran_on", None) == ran_on
        advice = [a.id for a in d.findings[0].recommendations]
        assert "attach-to-gpu-process" in advice  # it may be a launcher as well
        assert ("trace-cuda" in advice) is (ran_on is None)
        assert "move-to-gpu" in advice


@pytest.mark.parametrize(
    ("command", "client"),
    [
        (("/usr/bin/curl", "-s", "http://localhost:8000/v1/completions"), True),
        (("vllm", "bench", "serve", "--model", "m"), True),
        (("python3", "-m", "sglang.benchmark.serving", "--num-prompts", "64"), True),
        (("python3", "-m", "vllm.entrypoints.openai.api_server"), False),
    ],
)
def test_the_profiler_watched_the_client(tmp_path: Path, command: tuple[str, ...], client: bool) -> None:
    export = Export().gpu().process(1).command(*command).osrt("poll", 0, 1_000_000)
    d = diagnosed(export, tmp_path)
    expect(d, "wrong-process" if client else "no-gpu-activity", damaged=True)
    assert ("no-gpu-activity" in ranked(d)) is not client


@pytest.mark.parametrize(
    ("command", "side"),
    [
        ("python3 -m sglang.launch_server --disaggregation-mode prefill", "prefill"),
        ("python3 -m dynamo.vllm --disaggregation-mode=decode", "decode"),
        ("""vllm serve m --kv-transfer-config {"kv_role":"kv_consumer"}""", "decode"),
        ("lmdeploy serve api_server m --role Prefill", "prefill"),
        ("vllm serve m", "not-told"),
    ],
)
def test_the_command_tells_which_side_of_disaggregated_serving_it_is(
    tmp_path: Path, command: str, side: str
) -> None:
    m = serve()
    m.export.command(*command.split())
    assert fact(diagnosed(m, tmp_path), "capture.serving_side", None) == side


def test_a_client_that_uses_the_gpu_is_the_right_process(tmp_path: Path) -> None:
    m = serve()
    m.export.command("/usr/bin/curl", "http://localhost")
    expect(diagnosed(m, tmp_path), never=("wrong-process",))


# ------------------------------------------------------------------------------- what stands in it

SECRET = "hf_AbCdEfSeCrEt123"


def leaky() -> Machine:
    m = serve()
    export = m.export.command("/opt/serve", "--port", "8000")
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"):
        export.environment(name, SECRET)
    export.environment("PATH", "/usr/bin")
    return m


def test_secrets_come_behind_all_that_costs_the_program_something(tmp_path: Path) -> None:
    """A wait in each step saves little, so it is low; the note on secrets is medium and still no headline."""
    m = leaky()
    for i in range(12, 40):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.wait()
            m.work(60)
    d = diagnosed(m, tmp_path)
    assert severity(d, "secrets-in-export") == "medium"
    assert severity(d, ranked(d)[0]) == "low"
    assert ranked(d)[-1] == "secrets-in-export"


def test_secrets_are_reported(tmp_path: Path) -> None:
    d = diagnosed(leaky(), tmp_path)
    expect(d, "secrets-in-export")
    assert fact(d, "capture.secret_name_count", None) == 3
    assert SECRET not in d.model_dump_json()
    assert SECRET not in repr(d)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("diagnose", "-v", "--format", name) for name in CHOICES["format"]),
        ("diagnose",),
        ("facts",),
        tuple(word for name in REPORTS for word in ("--report", name)),
    ],
    ids=lambda a: " ".join(a)[:30],
)
def test_no_output_shows_the_value_of_a_secret(
    tmp_path: Path, arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(leaky().write(tmp_path))
    assert SECRET.encode() in Path(path).read_bytes()
    verb = arguments if arguments[0] != "--report" else ("stats", *arguments)
    assert main([verb[0], path, *verb[1:]]) == 0
    shown = "".join(capfd.readouterr())
    assert len(shown) > 200
    assert SECRET not in shown


def test_a_fault_of_the_program_shows_no_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = leaky().write(tmp_path)
    assert main(["diagnose", str(path), "--window", "99s/100s"]) == 2
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("command", "debug"),
    [
        (("/home/me/engine/target/debug/serve",), True),
        (("cargo", "run", "--bin", "serve"), True),
        (("env", "CUDA_LAUNCH_BLOCKING=1", "python3", "serve.py"), True),
        (("cargo", "run", "--release"), False),
        (("/home/me/engine/target/release/serve", "--log", "debug"), False),
    ],
)
def test_debug_builds(tmp_path: Path, command: tuple[str, ...], debug: bool) -> None:
    m = serve()
    m.export.command(*command)
    d = diagnosed(m, tmp_path)
    assert ("debug-build" in ranked(d)) is debug
    assert alarms(d) == []


def test_calls_that_return_errors(tmp_path: Path) -> None:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22)
            m.call("cudaMemcpyAsync_v3020", 4, result=1)
            m.call("cudaEventQuery_v3020", 2, result=600)  # not ready: no error
    d = diagnosed(m, tmp_path)
    expect(d, "cuda-errors")
    assert fact(d, "capture.error_call_count", None) == 12
    assert severity(d, "cuda-errors") == "medium"
    assert evidence(d, "cuda-errors") == ["Calls that returned an error"]


@pytest.mark.parametrize(
    ("results", "says", "advice"),
    [
        ([222] * 3, "cudaFree returned 222, cudaErrorUnsupportedPtxVersion", "match-driver-and-toolkit"),
        ([709, 700, 700], "cudaFree returned 700, cudaErrorIllegalAddress", "check-memory-accesses"),
        ([2, 209], "cudaFree returned 2, cudaErrorMemoryAllocation", "need-less-memory"),
        ([209, 704, 704], "cudaFree returned 209, cudaErrorNoKernelImageForDevice", "newer-library"),
        ([12345], "cudaFree returned 12345, which is not a known code", "find-failing-call"),
        ([709, 704], None, None),
    ],
)
def test_errors_have_a_name_and_a_remedy(
    tmp_path: Path, results: list[int], says: str | None, advice: str | None
) -> None:
    m = serve()
    for result in results:
        m.call("cudaFree_v3020", 4, result=result)
    d = diagnosed(m, tmp_path)
    found = [f for f in d.findings if f.cause == "cuda-errors"]
    assert [says in f.message for f in found] == ([] if says is None else [True])
    assert [f.recommendations[0].id for f in found] == ([] if advice is None else [advice])


@pytest.mark.parametrize(
    ("code", "share", "first"), [(700, 1.0, "cuda-errors"), (2, 1 / 2, "damaged-capture")]
)
def test_a_crash_leads_the_damage_that_it_does(tmp_path: Path, code: int, share: float, first: str) -> None:
    """The profiler lost the kernels; memory that runs out does not end the process."""
    m = Machine()
    for result in (0, code):
        m.call("cudaLaunchKernel_v7000", 4, result=result)
    m.call("cudaDeviceSynchronize_v3020", 900, result=code)
    d = diagnosed(m, tmp_path)
    expect(d, first, also=("cuda-errors", "damaged-capture"), damaged=True)
    assert fact(d, "capture.failed_ratio", None) == share


# ------------------------------------------------------------------------------- all of them


def test_a_diagnosis_is_the_same_twice_and_is_json(tmp_path: Path) -> None:
    path = leaky().write(tmp_path)
    first, second = (advisor.diagnose(path).model_dump_json() for _ in range(2))
    assert first == second
    assert json.loads(first)["schema_version"] == 1


@pytest.mark.parametrize("stacks", [True, False])
def test_recorded_python_calls_are_named_as_overhead(tmp_path: Path, stacks: bool) -> None:
    profile = decode().head(with_stack=int(stacks))
    d = advisor.diagnose(profile.write(tmp_path / "trace.json"))
    told = [f.message for f in d.findings if f.cause == "profiler-overhead"]
    assert any("with_stack" in message for message in told) == stacks


def test_what_timing_python_calls_costs(tmp_path: Path) -> None:
    """Around each of the 40 operators of a step of 1 ms a Python call of 2 us with one of 1 us in
    it: 160 begins and ends a step, half of them 0.5 us behind the one before."""
    profile = decode(steps=13).head(with_stack=1)
    for at in (step * 1_000_000 + i * 20_000 for step in range(13) for i in range(40)):
        profile.python("model.py(1): forward", at, 2_000)
        profile.python("<built-in function linear>", at + 500, 1_000)
    d = advisor.diagnose(profile.write(tmp_path / "trace.json"))
    assert fact(d, "capture.stack_option", None) == "with_stack"
    assert fact(d, "capture.python_call_count", None) == 80 * 12
    assert fact(d, "capture.python_calls_per_operator", None) == pytest.approx(2, rel=0.01)
    assert fact(d, "capture.stack_cost_ratio", None) == pytest.approx(160 * 0.5 / 1_000, rel=0.05)
    (told,) = [f for f in d.findings if f.cause == "profiler-overhead"]
    assert "960 Python calls" in told.message
    assert "does not tell" not in told.message
    assert any("without `with_stack=True`" in r.action for r in told.recommendations)


@pytest.mark.parametrize("calls", [2, 400])
def test_a_host_gap_among_timed_python_calls_is_less_sure(tmp_path: Path, calls: int) -> None:
    """Steps of 5 ms of which the GPU waits for 4 ms while Python calls of 2 us are timed."""
    profile = decode(steps=13, step_ns=5_000_000).head(with_stack=1)
    for at in (step * 5_000_000 + 900_000 + i * 8_000 for step in range(13) for i in range(calls)):
        profile.python("scheduler.py(1): schedule", at, 6_000)
        profile.python("<built-in function len>", at + 2_000, 2_000)
    d = advisor.diagnose(profile.write(tmp_path / "trace.json"))
    (gap,) = [f for f in d.findings if f.cause == "host-gap"]
    assert ("9,600 Python calls" in gap.message) == (calls == 400)
    assert (gap.confidence < 0.8) == (calls == 400)


@pytest.mark.parametrize(
    ("kind", "first"),
    [(3, []), (4, []), (2, ["host-gap"]), (6, ["host-gap"]), (8, ["host-gap"])],
    ids=["flush", "instrumentation", "compiler", "modules", "queue"],
)
def test_only_what_the_profiler_cost_is_taken_off_the_program(
    tmp_path: Path, kind: int, first: list[str]
) -> None:
    """The list of overheads also holds CUDA's own work, which an untraced run has as well."""
    m = Machine(export_options={"schema": "3.25.1"})
    for i in range(24):
        if i % 6 == 3:
            m.export.cupti_overhead(round(m.now * 1_000), 3_000_000, type=kind)
            m.work(3_000)
        with m.step(f"decode_step {i}"):
            m.layers(22, [(GEMM, 30)] * 4)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert ranked(d) == first


def capture_graphs(m: Machine, sizes: Sequence[int], ranges: bool = True) -> None:
    """As an engine does before it serves: each size runs once, and is then captured."""
    for size in sizes:
        with m.step(f"capture_{size}" if ranges else "forward"):
            m.layers(20)
            m.wait()
            m.call("cudaStreamBeginCapture_v10000", 3)
            for _ in range(160):
                m.call("cudaLaunchKernel_v7000", 3)
            m.call("cudaStreamEndCapture_v10000", 200)
            m.call("cudaGraphInstantiate_v12000", 9_000)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_capture_of_graphs_being_captured(tmp_path: Path, ranges: bool) -> None:
    m = Machine()
    capture_graphs(m, (64, 32, 16, 8, 4, 2, 1), ranges)
    d = diagnosed(m, tmp_path)
    expect(d, "startup-in-window", never=("launch-bound", "host-gap", "graph-rebuilds"))
    assert d.findings[0].recommendations[0].id == "profile-replays"


def test_graphs_that_are_captured_before_many_replays(tmp_path: Path) -> None:
    """The healthy partner: the window leaves their capture out."""
    m = Machine()
    capture_graphs(m, (8, 4))
    for i in range(60):
        with m.step(f"decode_step {i}"):
            m.replay(120, call=70)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert "profile-replays" not in {r.id for f in d.findings for r in f.recommendations}
    assert d.inputs[0].steps is not None
    assert d.inputs[0].steps >= 58


def engine_operators(warm: bool, calls: bool, ran: int = 0) -> Profile:
    """Eight sizes of an engine of which PyTorch's profiler records operators: each may run once, and is
    captured then, with or without the calls that say so. Of `ran` sizes these launches leave kernels."""
    p, t = Profile().gpu().process(100), 0
    for size in range(8):
        for _ in range(20 if warm else 0):
            p.op("aten::mm", t, 30_000).launch(t + 5_000, 5_000, "nvjet_tst_128x256", t + 15_000, 10_000)
            t += 40_000
        p.call("cudaDeviceSynchronize", t, 50_000)
        t += 60_000
        if calls:
            p.call("cudaStreamBeginCapture", t, 3_000)
            t += 5_000
        for _ in range(40):
            p.op("vllm::unified_attention_with_output", t, 60_000)
            if size < ran:
                p.launch(t + 5_000, 4_000, "attention_kernel", t + 15_000, 5_000)
            else:
                p.call("cudaLaunchKernel", t + 5_000, 4_000)
            t += 70_000
        if calls:
            p.call("cudaStreamEndCapture", t, 200_000)
            t += 210_000
    return p


def said_of(p: Profile, folder: Path) -> tuple[str, list[str], Diagnosis]:
    d = advisor.diagnose(p.write(folder / "t.json"))
    return d.findings[0].cause, [r.id for r in d.findings[0].recommendations], d


@pytest.mark.parametrize("calls", [True, False])
def test_operators_of_an_engine_whose_graphs_are_captured(tmp_path: Path, calls: bool) -> None:
    """Also where only the operators tell: all of their launches ran nothing, and others did."""
    cause, advised, d = said_of(engine_operators(True, calls), tmp_path)
    assert (cause, advised[0]) == ("startup-in-window", "profile-replays")
    assert "damaged-capture" not in {f.cause for f in d.findings}
    assert fact(d, "capture.captured_launch_ratio", None) == pytest.approx(40 / 60)


def test_captured_graphs_alone_are_no_lack_of_a_gpu(tmp_path: Path) -> None:
    cause, advised, d = said_of(engine_operators(False, True), tmp_path)
    assert (cause, advised) == ("no-gpu-activity", ["profile-replays"])
    assert fact(d, "capture.ran_on", None) == "graphs"


def test_without_a_kernel_or_a_call_both_reasons_are_named(tmp_path: Path) -> None:
    cause, advised, _ = said_of(engine_operators(False, False), tmp_path)
    assert (cause, advised) == ("damaged-capture", ["profile-replays", "update-profiler"])


def test_operators_some_of_which_ran_are_damage(tmp_path: Path) -> None:
    cause, advised, d = said_of(engine_operators(True, False, ran=2), tmp_path)
    assert cause == "damaged-capture"
    assert "profile-replays" not in advised
    assert fact(d, "capture.captured_launch_ratio", None) == 0


def test_operators_whose_launches_run_are_no_capture(tmp_path: Path) -> None:
    _, _, d = said_of(engine_operators(True, False, ran=8), tmp_path)
    assert {"startup-in-window", "damaged-capture"}.isdisjoint(f.cause for f in d.findings)
