"""Speculative decoding in an engine whose forward pass verifies the drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

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
