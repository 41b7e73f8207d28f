"""What begins and ends inside one step belongs to that step: no request is missing meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.model.findings import Diagnosis
from tests.scenarios.machine import GEMM, NORM, PREFILL_ATTENTION, Machine
from tests.scenarios.support import diagnosed, expect, fact, finding, ranked, severity

#: One layer that reads a prompt, in us.
PROMPT_LAYER = ((NORM, 6), (GEMM, 300), (PREFILL_ATTENTION, 150), (GEMM, 300))

MISSING_REQUESTS = ("waits-for-requests", "long-interruptions")


def advice(d: Diagnosis) -> set[str]:
    return {r.id for f in d.findings if f.severity != "info" for r in f.recommendations}


def polled(m: Machine, us: float) -> None:
    """The thread looks again every millisecond."""
    while us > 0:
        m.blocked(min(us, 1_000), "poll")
        m.work(6)
        us -= 1_006


def waiting_in(name: str, us: float) -> Callable[[Machine], None]:
    def wait(m: Machine) -> None:
        with m.step(name):
            polled(m, us)

    return wait


def decode(m: Machine) -> None:
    m.replay(80, call=9)
    m.read_back()


def server(
    before: Callable[[Machine], None], *, every: int = 3, inside: bool = True, steps: int = 24
) -> Machine:
    """Decode steps of a vLLM server; `before` comes inside or before each of so many."""
    m = Machine()
    for i in range(steps):
        if i % every == 1 and not inside:
            before(m)
        with m.step("execute_context_0(0)_generation_24(24)"):
            if i % every == 1 and inside:
                before(m)
            decode(m)
    return m


# ------------------------------------------------------------------------ waits for the KV cache


@pytest.mark.parametrize("name", ["wait_for_layer_load", "start_load_kv", "kv_transfer_wait"])
def test_a_step_that_waits_for_the_kv_cache(tmp_path: Path, name: str) -> None:
    d = diagnosed(server(waiting_in(name, 12_000)), tmp_path)
    expect(
        d,
        "waits-for-kv-transfer",
        never=("os-blocked", "host-gap", "input-preparation", "step-outliers", *MISSING_REQUESTS),
    )
    found = finding(d, "waits-for-kv-transfer")
    assert found.severity == "high"
    assert name in found.message
    assert "capture-under-load" not in advice(d)
    assert fact(d, "kv.step_wait_ratio") == pytest.approx(1, abs=0.01)
    assert fact(d, "kv.os_idle_ratio") == pytest.approx(1, abs=0.01)
    assert fact(d, "kv.waiting_range") == name
    # Two of three steps do not wait, and show what the third would take.
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    (steps,) = d.steps
    assert found.gain.step_after_ms.low <= steps.median_ms <= found.gain.step_after_ms.high


def test_a_cache_that_has_come_in_time(tmp_path: Path) -> None:
    assert ranked(diagnosed(server(waiting_in("wait_for_layer_load", 40)), tmp_path)) == []


def test_a_server_without_a_sequence_waits_for_the_cache_of_its_next_one(tmp_path: Path) -> None:
    """Outside the steps nothing tells whether a sequence could run meanwhile."""
    wait = waiting_in("_check_disagg_gen_transfer_status", 12_000)
    d = diagnosed(server(wait, inside=False), tmp_path)
    expect(d, "waits-for-kv-transfer")
    assert severity(d, "waits-for-kv-transfer") == "medium"
    assert finding(d, "waits-for-kv-transfer").gain.speedup is None  # type: ignore[union-attr]


def test_a_step_that_waits_for_another_process(tmp_path: Path) -> None:
    """The range names what for; the step has its sequences already."""
    d = diagnosed(server(waiting_in("exchange_metadata", 12_000)), tmp_path)
    expect(d, "os-blocked", never=MISSING_REQUESTS)
    found = finding(d, "os-blocked")
    assert found.severity == "high"
    assert "exchange_metadata" in found.message
    assert fact(d, "host.os_range") == "exchange_metadata"
    assert fact(d, "host.os_in_step_ratio") == pytest.approx(1, abs=0.01)
    assert fact(d, "host.os_event_wait_ratio") == pytest.approx(0, abs=0.01)
    assert "capture-under-load" not in advice(d)
    assert found.gain is not None
    assert found.gain.step_after_ms is not None


@pytest.mark.parametrize("us", [12_000, 2_500])
def test_a_loop_that_waits_between_its_steps(tmp_path: Path, us: int) -> None:
    """Perhaps no request came: the load is asked about, and nothing is promised."""
    d = diagnosed(server(lambda m: polled(m, us), inside=False), tmp_path)
    found = [f for f in d.findings if f.cause in ("os-blocked", "waits-for-requests")]
    assert found
    assert all(f.severity != "high" for f in found)
    assert all(f.gain is None or f.gain.speedup is None for f in found)
    assert {"capture-under-load"} <= {r.id for f in found for r in f.recommendations}
    assert fact(d, "host.os_in_step_ratio") in (0, None)


# ------------------------------------------------------------------ long stretches inside a step


def serving(inside: Callable[[Machine, int], None], *, steps: int = 60, between: bool = False) -> Machine:
    """Decode steps of SGLang, and every fifteenth reads two prompts; `inside` comes amid their launches."""
    m = Machine()
    for i in range(steps):
        prompt = i % 15 == 14
        name = "step[EXTEND bs=2 toks=2048]" if prompt else "step[DECODE bs=8 toks=8]"
        if between:
            inside(m, i)
        with m.step(name):
            if prompt:
                m.layers(2, PROMPT_LAYER)
            if not between:
                inside(m, i)
            if prompt:
                m.layers(10, PROMPT_LAYER)
            else:
                m.replay(80, call=9)
            m.read_back()
    return m


@pytest.mark.parametrize("step", [44, 30], ids=["prompt", "decode"])
@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuLibraryLoadData"])
def test_a_form_of_the_step_that_is_compiled_in_the_loop(tmp_path: Path, step: int, call: str) -> None:
    def compile_once(m: Machine, i: int) -> None:
        if i == step:
            m.work(1_070_000)
            m.call(call, 900)

    d = diagnosed(serving(compile_once), tmp_path)
    expect(d, "step-outliers", never=(*MISSING_REQUESTS, "host-gap", "startup-in-window"))
    found = finding(d, "step-outliers")
    assert call in found.message
    assert "lost 1,0" in found.message
    form = "step[EXTEND bs=2 toks=2048]" if step == 44 else "step[DECODE bs=8 toks=8]"
    assert form in found.message
    assert fact(d, "interruption.inside_step", None) == form
    assert fact(d, "interruption.inside_count", None) == 1
    assert fact(d, "interruption.inside_load", None) == call
    assert fact(d, "interruption.inside_ms", None) == pytest.approx(1_070, rel=0.01)
    assert found.recommendations[0].id == "warm-up-first"
    assert found.severity == "medium"
    assert fact(d, "host.slowest_step_lost_ms") == pytest.approx(1_070, rel=0.01)
    assert "capture-under-load" not in advice(d)
    assert d.steps[0].mean_ms < 8  # the other steps are judged by their own time


def test_a_compiler_that_is_called_as_a_program(tmp_path: Path) -> None:
    def compile_once(m: Machine, i: int) -> None:
        if i == 29:
            m.blocked(1_070_000, "wait4")

    d = diagnosed(serving(compile_once), tmp_path)
    expect(d, "step-outliers", never=MISSING_REQUESTS)
    assert "wait4" in finding(d, "step-outliers").message
    assert fact(d, "interruption.inside_os_call", None) == "wait4"
    assert finding(d, "step-outliers").recommendations[0].id == "warm-up-first"


@pytest.mark.parametrize("named", [True, False])
def test_garbage_collection_inside_decode_steps(tmp_path: Path, named: bool) -> None:
    """180 ms, three times; where no range names it, it is what such a stretch suggests."""

    def collect(m: Machine, i: int) -> None:
        if i in (20, 60, 100):
            m.work(180_000, "Python GC" if named else None)

    d = diagnosed(serving(collect, steps=120), tmp_path)
    expect(d, "python-gc" if named else "step-outliers", never=(*MISSING_REQUESTS, "host-gap"))
    (first, *_) = d.findings
    assert any("gc.freeze" in r.action for r in first.recommendations)
    assert "capture-under-load" not in advice(d)
    assert "180" in first.message


def test_a_stretch_that_a_range_inside_the_step_names(tmp_path: Path) -> None:
    def save(m: Machine, i: int) -> None:
        if i == 30:
            m.work(400_000, "save_session")

    d = diagnosed(serving(save), tmp_path)
    expect(d, also=("step-outliers",), never=MISSING_REQUESTS)
    assert fact(d, "interruption.inside_range", None) == "save_session"
    assert finding(d, "step-outliers").recommendations[0].id == "shorten-interruptions"


def test_a_stretch_between_steps_may_wait_for_requests(tmp_path: Path) -> None:
    """The near miss: as long, and in no range."""

    def pause(m: Machine, i: int) -> None:
        if i == 30:
            m.work(1_070_000)

    d = diagnosed(serving(pause, between=True), tmp_path)
    expect(d, "long-interruptions", never=("step-outliers",))
    assert "capture-under-load" in advice(d)


def test_a_stretch_that_another_process_names(tmp_path: Path) -> None:
    """The images of a request are prepared elsewhere meanwhile: no request is missing."""

    def pause(m: Machine, i: int) -> None:
        if i in (20, 40):
            at = round(m.now * 1e3)
            m.export.process(900).thread(901).range("image_processor", at + 20_000, at + 699_000_000)
            m.export.process(100)
            m.work(700_000)

    d = diagnosed(serving(pause, between=True), tmp_path)
    expect(d, "long-interruptions")
    assert "image_processor" in finding(d, "long-interruptions").message
    assert fact(d, "interruption.other_range", None) == "image_processor"
    assert "capture-under-load" not in advice(d)


def test_steps_without_such_a_stretch(tmp_path: Path) -> None:
    """Healthy: the longest thing that happens inside a step is one of its own prompts."""
    d = diagnosed(serving(lambda *_: None), tmp_path)
    assert not {"step-outliers", "python-gc", *MISSING_REQUESTS} & set(ranked(d))
