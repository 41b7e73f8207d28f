"""Windows that hold too little work, and work that the window leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options, diagnose
from tests.builder import Export
from tests.scenarios.machine import DECODE_LAYER, GEMM, PREFILL_ATTENTION, Machine
from tests.scenarios.support import diagnosed, evidence, fact, ranked

US = 1_000


def decode(m: Machine, steps: int = 8) -> Machine:
    for i in range(steps):
        with m.step(f"decode_step {i}"):
            m.replay(22)
    return m


def places(d: Diagnosis) -> list[str]:
    """Where the GPU work outside the window lies, as the finding shows it."""
    (found,) = [f for f in d.findings if f.cause == "work-outside-window"]
    return [str(row[0]) for row in found.evidence[0].rows]


def causes(d: Diagnosis) -> set[str]:
    return {f.cause for f in d.findings}


def says_nothing_of_the_program(d: Diagnosis) -> None:
    assert d.healthy == ()
    assert {f.code[:3] for f in d.findings} == {"CAP"}
    assert "busy" not in d.verdict


# ------------------------------------------------------------------------- too little


def test_one_memset_is_no_busy_gpu(tmp_path: Path) -> None:
    d = diagnosed(Export().process(1).memset(at=0, dur=4 * US), tmp_path)
    assert ranked(d) == ["too-little-work"]
    assert "1 GPU operations" in d.verdict
    says_nothing_of_the_program(d)


def two_kernels(apart: int, long: int) -> Export:
    """Two kernels of `long` us that begin `apart` us from each other."""
    export = Export().process(1)
    for i in range(2):
        export.launch(
            at=i * 10 * US, kernel=f"k{i}", kernel_start=(100 + i * apart) * US, kernel_dur=long * US
        )
    return export


def test_two_kernels_are_no_busy_gpu(tmp_path: Path) -> None:
    d = diagnosed(two_kernels(apart=600, long=500), tmp_path)
    assert ranked(d) == ["too-little-work"]
    says_nothing_of_the_program(d)


def test_two_kernels_that_run_for_long_are_judged(tmp_path: Path) -> None:
    d = diagnosed(two_kernels(apart=60_000, long=50_000), tmp_path)
    assert "too-little-work" not in ranked(d)
    assert {n.stopped_by for n in d.not_evaluated} <= {None, "window-too-short"}  # for the ticks
    assert "the GPU is busy 90.9 % of the window" in d.verdict


@pytest.mark.parametrize(("apart_us", "judged"), [(50_000, False), (50, True)])
def test_kernels_that_are_lost_in_a_long_capture_are_not_judged(
    tmp_path: Path, apart_us: int, judged: bool
) -> None:
    """60 different kernels of 1 us: in three seconds nothing can be said of them, in 3 ms something can."""
    export = Export().gpu().process(1)
    for i in range(60):
        export.launch(at=i * apart_us * US, kernel=f"k{i}", kernel_dur=1 * US)
    d = diagnosed(export, tmp_path)
    assert ("too-little-work" not in ranked(d)) is judged
    assert ("launch-bound" in causes(d) or "host-gap" in causes(d)) is judged
    if not judged:
        says_nothing_of_the_program(d)


def launches_after_start_up(count: int) -> Machine:
    """80 ms of start-up, and `count` short kernels that wait for their launches."""
    m = Machine()
    m.call("cudaMalloc_v3020", 80_000)
    for _ in range(count):
        m.launch(GEMM, 2, call=8)
    return m


def test_two_milliseconds_after_start_up_are_not_blamed(tmp_path: Path) -> None:
    d = diagnosed(launches_after_start_up(200), tmp_path)
    assert ranked(d) == ["startup-in-window"]
    assert "too-little-work" in [f.cause for f in d.findings]
    assert ("launch-bound", "too-little-work") in [(o.cause, o.by) for o in d.overruled]
    says_nothing_of_the_program(d)


def test_a_larger_part_after_start_up_is_blamed(tmp_path: Path) -> None:
    d = diagnosed(launches_after_start_up(2_000), tmp_path)
    assert "launch-bound" in ranked(d)
    assert "too-little-work" not in [f.cause for f in d.findings]


# ------------------------------------------------------------------------- outside


def test_a_prefill_that_is_left_out_as_the_first_step_is_told(tmp_path: Path) -> None:
    m = Machine()
    with m.step("prefill"):
        for _ in range(10):
            m.launch(PREFILL_ATTENTION, 1_000)
    path = decode(m).export.write(tmp_path / "trace.sqlite")
    d = diagnose(path)
    assert places(d) == ["a first step that does other work"]
    assert fact(d, "capture.outside_work_ratio", None) == pytest.approx(10 / 18, abs=0.05)
    assert evidence(d, "work-outside-window") == ["GPU work outside the window, share of the GPU time"]

    whole = fact(d, "capture.whole_work_window", None)
    advice = [r.action for f in d.findings for r in f.recommendations]
    assert any(f"--window {whole}" in action for action in advice), advice
    again = diagnose(path, Options(window=str(whole)))
    assert fact(again, "capture.outside_work_ratio", None) == 0.0
    assert "work-outside-window" not in [f.cause for f in again.findings]


def test_a_first_step_like_the_others_is_not_told(tmp_path: Path) -> None:
    d = diagnosed(decode(Machine()), tmp_path)
    assert fact(d, "capture.outside_work_ratio", None) == 0.0
    assert "work-outside-window" not in [f.cause for f in d.findings]


def test_work_under_way_when_the_recording_began_is_told(tmp_path: Path) -> None:
    """2 ms of an iteration that was launched before the capture."""
    m = Machine(start=3_000)
    for k in range(4):
        m.export.kernel(500 * k * US, 500 * US, "late", correlation=900_000 + k)
    d = diagnosed(decode(m), tmp_path)
    assert places(d) == ["before the window"]


def test_work_of_a_side_stream_that_runs_after_the_window_is_told(tmp_path: Path) -> None:
    """The last step issues an upload on another stream, which ends 5 ms after the step."""
    m = decode(Machine())
    m.wait()
    with m.step("decode_step 8"):
        m.copy("HtoD", 256 * 1024, stream=20)
        m.replay(22)
    d = diagnosed(m, tmp_path)
    assert places(d) == ["launched inside the window, ran after it"]


def test_start_up_is_not_told_twice(tmp_path: Path) -> None:
    m = Machine()
    m.call("cudaMalloc_v3020", 30_000)
    m.copy("HtoD", 256 * 1024, "pageable", gb_per_s=6)
    d = diagnosed(decode(m, 20), tmp_path)
    assert "startup-in-window" in ranked(d)
    assert "work-outside-window" not in [f.cause for f in d.findings]


# ------------------------------------------------------------------------- work from before the recording


def one_pass(held_up: bool) -> Export:
    """A pass of 40 products of 500 us, launched ahead of the device, which begins with them 60 ms later:
    because of work of another stream that is recorded, or of work that is not."""
    e = Export().gpu().process(1)
    e.launch(at=0, dur=5 * US, kernel="fill_kernel", kernel_start=10 * US, kernel_dur=3 * US, stream=13)
    if held_up:
        for i in range(60):
            e.launch(
                (10 + i) * US, 1 * US, PREFILL_ATTENTION.name, (100 + 1_000 * i) * US, 990 * US, stream=13
            )
    for i in range(40):
        e.launch((20 + 10 * i) * US, 5 * US, GEMM.name, (60_100 + 500 * i) * US, 499 * US)
    return e


def test_work_from_before_the_recording_is_no_idle_device(tmp_path: Path) -> None:
    d = diagnosed(one_pass(held_up=False), tmp_path)
    assert fact(d, "capture.earlier_work_ms", None) == pytest.approx(60.075, abs=0.01)
    assert fact(d, "budget.busy_ratio") > 0.99
    assert {"earlier-work-unrecorded", "launch-queue-latency"} & causes(d) == {"earlier-work-unrecorded"}


def test_a_note_on_the_capture_is_no_candidate_for_a_fix(tmp_path: Path) -> None:
    e = Export().process(1).launch(at=0, dur=US, kernel="prepare", kernel_start=10 * US, kernel_dur=3 * US)
    for i in range(40):
        e.launch((20 + 10 * i) * US, 5 * US, "my_kernel", (60_100 + 500 * i) * US, 499 * US, stream=13)
    d = diagnosed(e, tmp_path)
    assert (
        "Nothing else above 3 % of the window was found: the GPU is busy 99.7 % of the window." in d.verdict
    )
    assert "earlier-work-unrecorded" in causes(d)


def test_a_process_that_creates_its_context_has_no_earlier_work(tmp_path: Path) -> None:
    """Its first copy waits 17 ms until its buffers are pinned."""
    e = Export().process(1).call("cudaHostAlloc_v3020", 0, 300_000 * US)
    e.copy(301_000 * US, 20 * US, "HtoD", bytes=10**8, copy_start=318_000 * US, copy_dur=7_600 * US)
    for i in range(40):
        e.launch((302_000 + 10 * i) * US, 5 * US, "my_kernel", (325_600 + 500 * i) * US, 499 * US)
    d = diagnosed(e, tmp_path)
    assert fact(d, "capture.earlier_work_ms", None) == 0
    assert "earlier-work-unrecorded" not in causes(d)


def test_a_stream_that_waits_for_recorded_work(tmp_path: Path) -> None:
    d = diagnosed(one_pass(held_up=True), tmp_path)
    assert fact(d, "capture.earlier_work_ms", None) == 0
    assert "earlier-work-unrecorded" not in causes(d)


# ------------------------------------------------------------------------- one whole step


def one_step(busy: bool) -> Machine:
    """Weights are copied for 120 ms, then there is one step of 5 ms; `busy` or launched slowly."""
    m = Machine()
    for i in range(12):
        m.export.copy(at=i * 10_000 * US, copy_dur=9_990 * US, bytes=400_000_000, memory="pinned")
    m.work(125_000)
    with m.step("decode_step 0"):
        for _ in range(28):
            m.layers(1, [(kernel, us * 4.5) for kernel, us in DECODE_LAYER], call=2 if busy else 60)
        m.wait()
    return m


def test_one_busy_step_is_judged_for_what_it_can_tell(tmp_path: Path) -> None:
    d = diagnosed(one_step(busy=True), tmp_path)
    assert fact(d, "capture.steps_busy_ratio", None) >= 0.9  # type: ignore[operator]
    assert "too-little-work" not in causes(d)
    assert {"LCH101", "UTL100"} <= {h.code for h in d.ticks}
    assert "KRN105" in {h.code for h in d.observed}
    assert "HST105" not in {h.code for h in d.healthy}  # whether a step is an outlier takes several
    assert "too little to praise" not in d.verdict
    assert "window-too-short" in causes(d)


def test_one_step_that_waits_is_not_called_in_order(tmp_path: Path) -> None:
    d = diagnosed(one_step(busy=False), tmp_path)
    assert fact(d, "capture.steps_busy_ratio", None) < 0.9  # type: ignore[operator]
    assert d.ticks == ()
