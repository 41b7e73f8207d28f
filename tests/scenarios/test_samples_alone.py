"""Samples without a trace: what each sampler's log, and nsys without CUDA, says by itself.

Every scene is a minute of one sample a second. Means while busy are sums over samples: SM Active
0.57 where GR Active is 0.95 is 0.57 / 0.95 = 0.6 while busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from advisor.reports.manager import sentences
from tests.builder import Export
from tests.reports.fixture import html_page
from tests.scenarios.support import fact, ranked, severity
from tests.server_logs import ENGINES, Server

SECONDS = 60
#: One second of a GPU: shares of 0..1, MHz, W and GiB of 80.
Second = dict[str, float]
IDLE: Second = {"gr": 0, "sm": 0, "tensor": 0, "dram": 0, "clock": 345, "power": 90, "memory": 40}
HEALTHY: Second = {
    "gr": 0.96, "sm": 0.86, "tensor": 0.3, "dram": 0.5, "clock": 1980, "power": 450, "memory": 60,
}  # fmt: skip
#: 0.57 / 0.95 = 60 % SM Active and 0.893 / 0.95 = 94 % DRAM while busy.
STREAMING = HEALTHY | {"gr": 0.95, "sm": 0.57, "tensor": 0.04, "dram": 0.893}
DENSE = HEALTHY | {"gr": 0.99, "sm": 0.95, "tensor": 0.62, "dram": 0.3}
#: 0.65 / 0.95 = 68 % SM Active and 42 % DRAM while busy.
HALF_USED = HEALTHY | {"gr": 0.95, "sm": 0.65, "tensor": 0.1, "dram": 0.4}
STARVED = HEALTHY | {"gr": 0.3, "sm": 0.27, "tensor": 0.1, "dram": 0.1}


def always(second: Second) -> list[Second]:
    return [second] * SECONDS


def dcgm(folder: Path, seconds: Sequence[Second]) -> Path:
    fields = (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE,DCGM_FI_PROF_SM_ACTIVE,DCGM_FI_PROF_PIPE_TENSOR_ACTIVE,"
        "DCGM_FI_PROF_DRAM_ACTIVE,DCGM_FI_DEV_SM_CLOCK,DCGM_FI_DEV_MAX_SM_CLOCK,"
        "DCGM_FI_DEV_POWER_USAGE,DCGM_FI_DEV_POWER_MGMT_LIMIT,DCGM_FI_DEV_FB_USED,"
        "DCGM_FI_DEV_FB_FREE"
    )
    return _written(
        folder / "dcgm.csv",
        f"timestamp,gpu,{fields}",
        (
            f"{1_700_000_000 + i},0,{s['gr']},{s['sm']},{s['tensor']},{s['dram']},{s['clock']},1980,"
            f"{s['power']},700,{s['memory'] * 1024},{(80 - s['memory']) * 1024}"
            for i, s in enumerate(seconds)
        ),
    )


def dcgmi(folder: Path, seconds: Sequence[Second]) -> Path:
    return _written(
        folder / "dcgmi.txt",
        "#Entity  GRACT  SMACT  TENSO  DRAMA  SMCLK\nID",
        (
            f"GPU 0  {s['gr']:.3f}  {s['sm']:.3f}  {s['tensor']:.3f}  {s['dram']:.3f}  {s['clock']}"
            for s in seconds
        ),
    )


def nvidia_smi(folder: Path, seconds: Sequence[Second]) -> Path:
    head = (
        "timestamp, index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
        "memory.total [MiB], power.draw [W], power.limit [W], clocks.current.sm [MHz], "
        "clocks.max.sm [MHz]"
    )
    return _written(
        folder / "smi.csv",
        head,
        (
            f"2023/11/14 22:13:{i:02d}.000, 0, {100 * s['gr']:.0f} %, {100 * s['dram']:.0f} %, "
            f"{s['memory'] * 1024:.0f} MiB, 81920 MiB, {s['power']:.2f} W, 700.00 W, "
            f"{s['clock']:.0f} MHz, 1980 MHz"
            for i, s in enumerate(seconds)
        ),
    )


def dmon(folder: Path, seconds: Sequence[Second]) -> Path:
    return _written(
        folder / "dmon.txt",
        "# gpu  pwr  sm  mem  pclk\n# Idx  W  %  %  MHz",
        (
            f"  0  {s['power']:.0f}  {100 * s['gr']:.0f}  {100 * s['dram']:.0f}  {s['clock']:.0f}"
            for s in seconds
        ),
    )


def nsys(folder: Path, seconds: Sequence[Second]) -> Path:
    """`nsys profile --trace=none --gpu-metrics-devices=all`: no table of CUDA at all."""
    metrics = {
        "GR Active": "gr",
        "SMs Active": "sm",
        "Tensor Active": "tensor",
        "DRAM Read Bandwidth": "dram",
    }
    export = Export(duration=SECONDS * 10**9).gpu().traced()
    export.gpu_metrics(
        {name: [round(100 * s[key]) for s in seconds] for name, key in metrics.items()}, period_ns=10**9
    )
    return export.write(folder / "metrics.sqlite")


def _written(path: Path, head: str, lines: Iterable[str]) -> Path:
    path.write_text("\n".join((head, *lines, "")))
    return path


Source = Callable[[Path, Sequence[Second]], Path]
#: Sources that tell SM, tensor and DRAM activity; the others only that some kernel ran.
PROFILING: tuple[Source, ...] = (dcgm, dcgmi, nsys)
UTILISATION: tuple[Source, ...] = (nvidia_smi, dmon)
EVERY = (*PROFILING, *UTILISATION)


def judged(source: Source, folder: Path, seconds: Sequence[Second]) -> Diagnosis:
    found = advisor.diagnose(source(folder, seconds))
    assert "no-gpu-activity" not in {f.cause for f in found.findings}
    assert "nothing can be judged" not in found.verdict
    return found


def unjudged(d: Diagnosis) -> dict[str, str]:
    return {n.cause: n.why or "" for n in d.not_evaluated}


@pytest.mark.parametrize("source", PROFILING)
def test_a_healthy_gpu(tmp_path: Path, source: Source) -> None:
    d = judged(source, tmp_path, always(HEALTHY))
    assert ranked(d) == []
    assert d.verdict.startswith("GPU samples alone, and no fault that they can show")
    assert fact(d, "activity.sm_busy_ratio") == pytest.approx(0.86 / 0.96, abs=0.01)
    assert {"host-gap", "launch-bound", "under-filled-gpu"} <= set(unjudged(d))


@pytest.mark.parametrize("source", UTILISATION)
def test_a_busy_gpu_of_which_only_that_is_known(tmp_path: Path, source: Source) -> None:
    """96 % utilisation is no SM Active: neither good nor bad can be said of it."""
    d = judged(source, tmp_path, always(HEALTHY))
    assert ranked(d) == []
    why = unjudged(d)
    assert "the samples do not hold SM Active" in why["low-gpu-utilisation"]
    assert "the samples do not hold DRAM activity" in why["memory-bandwidth-bound"]
    assert "the samples do not hold Tensor Active" in why["compute-bound"]


@pytest.mark.parametrize("source", EVERY)
def test_a_gpu_that_waits(tmp_path: Path, source: Source) -> None:
    d = judged(source, tmp_path, always(STARVED))
    assert ranked(d)[0] == "low-gpu-utilisation"
    assert severity(d, "low-gpu-utilisation") == "medium"
    assert fact(d, "activity.busy_ratio") == pytest.approx(0.3, abs=0.01)
    (found,) = (f for f in d.findings if f.cause == "low-gpu-utilisation")
    assert "a CUDA trace shows which, samples alone do not" in found.message


def _two_gpus(folder: Path, held: int) -> Diagnosis:
    """One works; the other one idles with `held` MiB in use."""
    head = "timestamp, index, utilization.gpu [%], memory.total [MiB], memory.used [MiB]"
    busy = [f"2024/11/23 12:00:{i:02d}.000, 0, 95 %, 49140 MiB, 25073 MiB" for i in range(60)]
    idle = [f"2024/11/23 12:00:{i:02d}.001, 1, 0 %, 49140 MiB, {held} MiB" for i in range(60)]
    lines = [row for pair in zip(busy, idle, strict=True) for row in pair]
    return advisor.diagnose(_written(folder / "smi.csv", head, lines))


def test_a_gpu_that_no_program_uses_has_nothing_to_fix(tmp_path: Path) -> None:
    d = _two_gpus(tmp_path, 15)
    assert ranked(d) == []
    assert [f.value for f in d.facts if f.name == "activity.unused"] == [False, True]


def test_a_gpu_that_holds_a_model_and_waits(tmp_path: Path) -> None:
    d = _two_gpus(tmp_path, 25_000)
    assert ranked(d) == ["low-gpu-utilisation"]
    assert [f.value for f in d.facts if f.name == "activity.unused"] == [False, False]


@pytest.mark.parametrize("source", PROFILING)
def test_the_bandwidth_limit(tmp_path: Path, source: Source) -> None:
    d = judged(source, tmp_path, always(STREAMING))
    assert ranked(d)[0] == "memory-bandwidth-bound"
    found = d.findings[0]
    assert found.severity == "medium"
    assert found.confidence < 0.6
    assert fact(d, "activity.dram_busy_ratio") == pytest.approx(0.94, abs=0.01)
    assert fact(d, "activity.sm_busy_ratio") == pytest.approx(0.6, abs=0.01)
    assert {"fp8-kv-cache", "tensor-parallel"} <= {r.id for r in found.recommendations}
    assert "do not show which kernels" in found.message


@pytest.mark.parametrize("source", PROFILING)
def test_the_bandwidth_limit_of_a_gpu_that_is_busy_half_of_the_time(tmp_path: Path, source: Source) -> None:
    """The mean over the window, 0.45, hides it; while busy DRAM is at 94 %. It holds half of the
    window."""
    d = judged(source, tmp_path, [STREAMING, IDLE] * (SECONDS // 2))
    assert "memory-bandwidth-bound" in ranked(d)
    assert fact(d, "activity.dram_bound_window_ratio") == pytest.approx(0.475, abs=0.02)
    assert severity(d, "memory-bandwidth-bound") == "medium"


@pytest.mark.parametrize("source", PROFILING)
def test_the_compute_limit(tmp_path: Path, source: Source) -> None:
    d = judged(source, tmp_path, always(DENSE))
    assert ranked(d) == ["compute-bound"]
    assert d.findings[0].severity == "medium"
    assert d.findings[0].confidence < 0.6


@pytest.mark.parametrize("source", PROFILING)
def test_neither_sms_nor_memory_are_used_up(tmp_path: Path, source: Source) -> None:
    d = judged(source, tmp_path, always(HALF_USED))
    assert ranked(d) == ["below-target"]
    assert severity(d, "below-target") == "low"


@pytest.mark.parametrize("source", EVERY)
def test_bursts(tmp_path: Path, source: Source) -> None:
    """Five seconds of work, five of nothing: busy 0.48 of the time, the bins are 0 and 0.86 (SM) or
    0.96 (GR)."""
    d = judged(source, tmp_path, ([HEALTHY] * 5 + [IDLE] * 5) * (SECONDS // 10))
    (found,) = (f for f in d.findings if f.cause == "bursty-utilisation")
    assert found.severity == "medium"
    assert [s.cause for s in found.explains] == ["low-gpu-utilisation"]


def test_quiet_time_before_and_after_the_work_is_no_burst(tmp_path: Path) -> None:
    d = judged(dcgm, tmp_path, [IDLE] * 20 + always(HEALTHY) + [IDLE] * 10)
    assert "bursty-utilisation" not in ranked(d)
    assert fact(d, "activity.burst_low_ratio") == pytest.approx(0.86)
    one_pause = judged(dcgm, tmp_path, always(HEALTHY) + [IDLE] * 20 + always(HEALTHY))
    assert fact(one_pause, "activity.burst_count") == 1
    assert "bursty-utilisation" not in ranked(one_pause)


def test_a_log_of_a_few_samples_is_not_judged(tmp_path: Path) -> None:
    assert "low-gpu-utilisation" in ranked(judged(nvidia_smi, tmp_path, [STARVED] * 11))
    d = judged(nvidia_smi, tmp_path, [STARVED] * 9)
    assert not ranked(d)
    assert "low-gpu-utilisation" in unjudged(d)


def test_advice_on_a_log_of_an_unknown_program_is_to_look_at_it(tmp_path: Path) -> None:
    """What the program is, the samples do not say: batch, graphs and host are offered with what they take."""
    (low, *_) = judged(nvidia_smi, tmp_path, always(STARVED)).findings
    offered = {r.id: r.condition for r in low.recommendations}
    assert list(offered) == ["trace-cuda", "raise-batch-size", "enable-cuda-graphs", "record-gil"]
    assert [a for a, condition in offered.items() if condition is None] == ["trace-cuda"]
    assert all(r.action.startswith("If ") for r in low.recommendations[1:])
    (bursts, *_) = judged(nvidia_smi, tmp_path, 6 * ([HEALTHY] * 5 + [IDLE] * 5)).findings
    assert [r.id for r in bursts.recommendations] == ["spread-load"]
    full = judged(nvidia_smi, tmp_path, always(HEALTHY | {"memory": 79})).findings
    assert [r.id for r in full[0].recommendations] == ["smaller-batch"]


@pytest.mark.parametrize("source", [dcgm, nvidia_smi])
def test_a_full_device(tmp_path: Path, source: Source) -> None:
    """79 of 80 GiB; DCGM tells what is used and what is free."""
    d = judged(source, tmp_path, always(HEALTHY | {"memory": 79}))
    assert ranked(d) == ["memory-near-full"]
    assert fact(d, "memory.used_ratio") == pytest.approx(79 / 80)


@pytest.mark.parametrize("memory", [0, 3])
def test_a_total_that_is_less_than_what_is_used_is_not_believed(tmp_path: Path, memory: int) -> None:
    log = nvidia_smi(tmp_path, always(HEALTHY))
    log.write_text(log.read_text().replace(f"{80 * 1024} MiB", f"{memory} MiB"))
    d = advisor.diagnose(log)
    assert "memory.used_ratio" not in {f.name for f in d.facts}


SCREEN = """\
| NVIDIA-SMI 550.127.05             Driver Version: 550.127.05     CUDA Version: 12.4     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
| N/A   31C    P0            576W /  700W |   79000MiB /  81559MiB |     97%      Default |
| Processes:                                                                              |
|    0   N/A  N/A      1234      C   {process:<30}           78990MiB |
"""


@pytest.mark.parametrize(
    ("process", "advice"),
    [
        ("VLLM::EngineCore", []),
        ("sglang::scheduler_TP0", []),
        ("text-generation-server", []),
        ("./llama-server", ["smaller-batch"]),
        ("python3", ["smaller-batch"]),
    ],
)
def test_no_engine_that_fills_its_memory_by_design_is_told_to_shrink_its_batch(
    tmp_path: Path, process: str, advice: list[str]
) -> None:
    """What the device memory holds is the choice of an engine that takes its share at the start, and a fault
    of none; of a program that nobody knows the advice has a condition."""
    (tmp_path / "smi.txt").write_text(SCREEN.format(process=process))
    (found,) = (f for f in advisor.diagnose(tmp_path / "smi.txt").findings if f.cause == "memory-near-full")
    said = [r for r in found.recommendations if r.id == "smaller-batch"]
    assert [r.id for r in said] == advice
    assert all(r.condition for r in said)
    assert found.severity == ("medium" if advice else "info")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_the_log_of_the_server_tells_whose_memory_it_is(tmp_path: Path, engine: str) -> None:
    (tmp_path / "smi.txt").write_text(SCREEN.format(process="python3"))
    (tmp_path / "server.log").write_text(ENGINES[engine](Server()))
    d = advisor.diagnose(tmp_path / "smi.txt", advisor.Options(log=tmp_path / "server.log"))
    (found,) = (f for f in d.findings if f.cause == "memory-near-full")
    assert found.severity == "info"
    assert fact(d, "memory.reserved_at_start", None) is True


@pytest.mark.parametrize("source", [dcgm, nvidia_smi])
def test_a_clock_held_down_by_the_power_limit(tmp_path: Path, source: Source) -> None:
    """1455 of 1980 MHz at 690 of 700 W: 26.5 % slower."""
    d = judged(source, tmp_path, always(HEALTHY | {"clock": 1455, "power": 690}))
    assert ranked(d) == ["clock-throttled"]
    assert fact(d, "clock.busy_ratio") == pytest.approx(1455 / 1980)
    assert fact(d, "clock.power_limited_ratio") == 1.0
    assert "The power limit" in d.findings[0].message


def test_a_low_clock_below_every_limit_is_no_throttling(tmp_path: Path) -> None:
    """61 % of the clock at 64 % of the power limit: application clocks, or a lock."""
    d = judged(nvidia_smi, tmp_path, always(HEALTHY | {"clock": 1200}))
    assert fact(d, "clock.limited_ratio") == 0.0
    assert fact(d, "clock.unexplained_ratio") == 1.0
    assert ranked(d) == ["low-clock"]
    assert d.findings[0].recommendations[0].id == "release-clocks"


@pytest.mark.parametrize(
    ("power", "clock", "cause", "action"),
    [
        (595, 1400, "low-clock", "read-clock-reasons"),  # 85 % of the limit: it may be reached in between
        (660, 1400, "low-clock", "read-clock-reasons"),
        (400, 1400, "low-clock", "release-clocks"),
        (690, 1400, "clock-throttled", "raise-power-limit"),
        (690, 1975, None, None),  # at the limit, and nothing is lost
        (595, 1980, None, None),
        (595, 1700, None, None),  # 86 % of the clock
    ],
)
def test_power_is_the_reason_where_it_is_at_its_limit_and_the_clock_is_lower(
    tmp_path: Path, power: float, clock: float, cause: str | None, action: str | None
) -> None:
    d = judged(nvidia_smi, tmp_path, always(HEALTHY | {"clock": clock, "power": power}))
    assert ranked(d) == ([cause] if cause else [])
    assert [f.recommendations[0].id for f in d.findings] == ([action] if action else [])


def test_power_that_is_seldom_at_its_limit_explains_no_clock_that_is_always_low(tmp_path: Path) -> None:
    """In every sixth second; a partner whose clock falls in those seconds alone lacks nothing."""
    low = [HEALTHY | {"clock": 1400, "power": 695 if i % 6 == 0 else 540} for i in range(SECONDS)]
    assert ranked(judged(nvidia_smi, tmp_path, low)) == ["low-clock"]
    now_and_then = [s | {"clock": 1400 if s["power"] > 600 else 1980} for s in low]
    assert ranked(judged(nvidia_smi, tmp_path, now_and_then)) == []


def test_an_idle_gpu_clocks_down_on_purpose(tmp_path: Path) -> None:
    """The log begins before the load: its idle seconds count for utilisation alone."""
    d = judged(nvidia_smi, tmp_path, [IDLE] * 20 + [HEALTHY] * 40)
    assert "clock-throttled" not in ranked(d)
    assert fact(d, "clock.busy_ratio") == 1.0


def test_samples_beside_a_cuda_trace_of_nothing_are_of_other_processes(tmp_path: Path) -> None:
    export = Export(duration=10**9).gpu().process(1).traced("CudaEvents")
    export.call("cudaMalloc", 0, 10**9 - 1).gpu_metrics({"GR Active": [95] * 10}, 100_000_000)
    d = advisor.diagnose(export.write(tmp_path / "t.sqlite"))
    assert ranked(d)[0] == "no-gpu-activity"


# ------------------------------------------------------------------ samples too coarse


def test_coarse_samples_beside_a_trace_give_means_while_busy(tmp_path: Path) -> None:
    """Ten kernels of 80 ms, one each 100 ms, under samples of 100 ms: too few to resolve them.
    DRAM 0.744 / 0.8 = 93 %, SM Active 0.48 / 0.8 = 60 % while busy."""
    export = Export(duration=2 * 10**9).gpu().process(1)
    for i in range(20):
        export.launch(at=i * 100_000_000, kernel_dur=80_000_000)
    export.gpu_metrics(
        {"GR Active": [80] * 20, "SMs Active": [48] * 20, "DRAM Read Bandwidth": [74] * 20},
        period_ns=100_000_000,
    )
    d = advisor.diagnose(export.write(tmp_path / "t.sqlite"))
    (found,) = (f for f in d.findings if f.cause == "memory-bandwidth-bound")
    assert found.severity == "medium"
    assert found.confidence < 0.6
    assert fact(d, "activity.kernels_resolved") is False
    assert fact(d, "activity.work_recorded") is True


# ------------------------------------------------------------------ allocations


def test_recorded_allocations_tell_a_full_device(tmp_path: Path) -> None:
    """148 of 150 GB are held at once; pinned host memory is none of the device's."""
    d = advisor.diagnose(_allocating(tmp_path, 148))
    assert severity(d, "memory-near-full") == "medium"
    assert fact(d, "memory.least_used_ratio") == pytest.approx(148 / 150)


def test_recorded_allocations_never_tell_a_free_one(tmp_path: Path) -> None:
    d = advisor.diagnose(_allocating(tmp_path, 30))
    assert "memory-near-full" in unjudged(d)
    assert "memory-near-full" not in {h.cause for h in d.healthy}


def _allocating(folder: Path, gigabytes: int) -> Path:
    export = Export(duration=10**9).gpu(memory=150e9).process(1)
    export.alloc(0, 100 * 10**9, kind="pinned")
    export.alloc(1, 10 * 10**9, free=True)  # it was there when the capture began
    export.alloc(2, (gigabytes - 10) * 10**9)
    export.alloc(3, 10 * 10**9)
    for i in range(10):
        export.launch(at=i * 1_000_000, kernel_dur=800_000)
    return export.write(folder / "t.sqlite")


def without_tensor_pipe(source: str, folder: Path, second: Second) -> Diagnosis:
    """A log that has no column for the tensor pipe: of dcgmi, or of GPU metrics that nsys took."""
    if source == "dcgmi":
        row = f"GPU 0  {second['gr']:.3f}  {second['sm']:.3f}  {second['dram']:.3f}"
        path = _written(folder / "dcgmi.txt", "#Entity  GRACT  SMACT  DRAMA\nID", [row] * SECONDS)
    else:
        metrics = {"GR Active": "gr", "SMs Active": "sm", "DRAM Read Bandwidth": "dram"}
        export = Export(duration=SECONDS * 10**9).gpu().traced()
        export.gpu_metrics({n: [round(100 * second[k])] * SECONDS for n, k in metrics.items()}, 10**9)
        path = export.write(folder / "metrics.sqlite")
    return advisor.diagnose(path)


@pytest.mark.parametrize("source", ["dcgmi", "nsys"])
@pytest.mark.parametrize(
    ("change", "bound"),
    [
        ({}, True),
        ({"dram": 0.62}, False),
        ({"sm": 0.86}, False),
        ({"gr": 0.7, "sm": 0.67, "dram": 0.2}, False),
    ],
)
def test_full_sms_beside_spare_dram_are_bound_by_arithmetic(
    tmp_path: Path, source: str, change: Second, bound: bool
) -> None:
    """95 / 99 % SM Active and 30 / 99 % DRAM; near it: DRAM, SM Active, and a device that idles for 30 %."""
    d = without_tensor_pipe(source, tmp_path, DENSE | change)
    assert fact(d, "activity.tensor_busy_ratio") is None
    found = [f for f in d.findings if f.cause == "compute-bound"]
    assert bool(found) == bound
    if bound:
        assert found[0].message.startswith("The GPU is well used")
        assert "no fault" not in d.verdict


def smi(folder: Path, clock: int, heat: int) -> Path:
    """A minute of a busy GPU, without its power and the driver's reasons."""
    head = "timestamp,index,utilization.gpu,clocks.sm,clocks.max.sm,temperature.gpu"
    lines = (f"2023/11/14 22:13:{i:02d}.000,0,98,{clock},1980,{heat}" for i in range(SECONDS))
    return _written(folder / "smi.csv", head, lines)


def test_a_hot_gpu_at_two_thirds_of_its_clock_is_said_to_be_that(tmp_path: Path) -> None:
    """Nothing in the log says why; the near miss is as slow and cool, as dense products make it."""
    found = advisor.diagnose(smi(tmp_path, 1326, 82))
    assert ranked(found)[0] == "low-clock"
    assert "67 % of their highest clock" in found.findings[0].message
    assert "it reaches 82 C" in found.findings[0].message
    assert "improve-cooling" in [r.id for r in found.findings[0].recommendations]
    assert "low-clock" not in ranked(advisor.diagnose(smi(tmp_path, 1326, 60)))
    assert "low-clock" not in ranked(advisor.diagnose(smi(tmp_path, 1900, 82)))


def test_the_gpu_whose_clock_is_held_down_is_named_among_several(tmp_path: Path) -> None:
    """Two GPUs as hot, of which the second is slow."""
    head = "timestamp,index,utilization.gpu,clocks.sm,clocks.max.sm,temperature.gpu"
    lines = (
        f"2023/11/14 22:13:{i:02d}.000,{gpu},98,{clock},1980,82"
        for i in range(SECONDS)
        for gpu, clock in enumerate((1900, 1326))
    )
    found = advisor.diagnose(_written(tmp_path / "smi.csv", head, lines))
    assert [(f.cause, f.scope.device) for f in found.findings] == [("low-clock", 1)]
    assert sentences(found)[0] == "The GPU works 98 % of the time."
    assert "means of all GPUs" in html_page([found]).decode()
    assert "means of all GPUs" not in html_page([advisor.diagnose(smi(tmp_path, 1326, 82))]).decode()


def test_what_the_samples_hold_is_shown_over_time(tmp_path: Path) -> None:
    table = advisor.diagnose(smi(tmp_path, 1326, 82)).tables["samples"]
    rows = {row[1]: row[2:] for row in table.rows}
    assert rows["busy, %"][:5] == (98, 98, 98, 98, 98)
    assert rows["SM clock, MHz"][:6] == (1326, 1326, 1326, 1326, 1326, 1980)
    assert rows["SM clock, MHz"][6] == pytest.approx(0.67, abs=0.001)
    assert rows["temperature, C"][0] == 82
    assert "memory, GiB" not in rows


def test_a_log_of_nvidia_smi_is_not_asked_for_one(tmp_path: Path) -> None:
    found = advisor.diagnose(smi(tmp_path, 1900, 60))
    asked = " ".join(n.flag or "" for n in found.not_evaluated)
    assert "a log of nvidia-smi" not in asked
    assert "power.limit, clocks_throttle_reasons.active" in found.inputs[0].warnings[0]
