"""Speculative decoding in an engine whose forward pass verifies the drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.gain import perhaps_saved
from tests.scenarios.machine import DECODE_LAYER, Machine
from tests.scenarios.support import diagnosed, fact, ranked, severity


def vllm(layers: int, *, drafts: bool = True) -> Machine:
    """A forward of 80 layers a step, and drafts of so many."""
    m = Machine()
    for _ in range(16):
        with m.step("execute_context_0(0)_generation_4(24)"):
            with m.step("gpu_model_runner: forward"):
                m.replay(80, call=9)
            with m.step("gpu_model_runner: sample"):
                m.launch(DECODE_LAYER[0][0], 4)
            if drafts:
                with m.step("gpu_model_runner: draft"):
                    m.replay(layers, DECODE_LAYER[1:], call=9)
            m.read_back()
    return m


def test_drafts_that_take_a_third_of_the_step_are_noted(tmp_path: Path) -> None:
    d = diagnosed(vllm(50), tmp_path)
    assert severity(d, "costly-drafts") == "info"
    assert fact(d, "speculation.break_even_tokens") == pytest.approx(1.6, abs=0.1)


def test_drafts_that_take_longer_than_the_forward_pass(tmp_path: Path) -> None:
    assert severity(diagnosed(vllm(100), tmp_path), "costly-drafts") == "medium"


def test_cheap_drafts_and_none(tmp_path: Path) -> None:
    for name, script in (("cheap", vllm(10)), ("none", vllm(0, drafts=False))):
        folder = tmp_path / name
        folder.mkdir()
        d = diagnosed(script, folder)
        assert "costly-drafts" not in {f.cause for f in d.findings}
        assert ranked(d) == []


def launched_one_by_one(count: int, us: float) -> Machine:
    """A forward pass of 80 layers in a graph that the host waits for, and so many kernels of drafts after it,
    each of so many us and launched in 10: the capture does not show how much of that is the profiler's."""
    m = Machine()
    for _ in range(16):
        with m.step("execute_context_0(0)_generation_4(24)"):
            with m.step("gpu_model_runner: forward"):
                m.replay(80, call=9)
            m.wait()
            with m.step("gpu_model_runner: draft"):
                for i in range(count):
                    m.launch(DECODE_LAYER[i % 8][0], us, call=9)
            m.read_back()
    return m


def test_drafts_launched_one_by_one_perhaps_cost_much(tmp_path: Path) -> None:
    """A fifth of the step is idle, of which the profiler may have caused nearly all."""
    d = diagnosed(launched_one_by_one(200, 5), tmp_path)
    first = d.findings[0]
    assert (first.cause, ranked(d)[0]) == ("launch-bound", "launch-bound")
    most = perhaps_saved(first.gain)
    assert most is not None
    assert 0.1 < most < 0.2
    assert "perhaps up to" in first.message
    assert "--unprofiled-step" in first.message
    assert "No fault" not in d.verdict


@pytest.mark.parametrize(("count", "us"), [(200, 11), (30, 5)], ids=["the GPU is slower", "few"])
def test_drafts_launched_one_by_one_that_cost_little(count: int, us: float, tmp_path: Path) -> None:
    d = diagnosed(launched_one_by_one(count, us), tmp_path)
    assert "launch-bound" not in ranked(d)
    assert all(perhaps_saved(f.gain) is None for f in d.findings)
