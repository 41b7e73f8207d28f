"""Tokens that are exchanged with the experts of other ranks, and batches cut in two to hide it."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.reports.summary import otherwise
from tests.gain import scenes
from tests.scenarios.machine import (
    ALL_REDUCE,
    DECODE_ATTENTION,
    GEMM,
    GEMV,
    NORM,
    PREFILL_ATTENTION,
    Kernel,
    Machine,
)
from tests.scenarios.support import diagnosed, expect, fact, finding, job_of, ranked
from tests.scenarios.test_recorded_causes import advice

EXPERTS = Kernel("void deep_gemm::sm90_m_grouped_fp8_gemm_masked_1d2d_impl<(unsigned)7168>(float*)", 132)
DISPATCH = Kernel("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*)", 24)
COMBINE = Kernel("void deep_ep::internode_ll::combine<false, 7168, 9>(void*, void*, int*)", 24)
LAYERS = 16


def layer(m: Machine, halves: int, exchange: float, together: bool) -> None:
    """Attention and products, tokens to the experts, experts, tokens back. Of two halves one exchanges on a
    stream of its own while the other computes, or no kernel begins until it has done so."""
    part = 1 / halves
    side = 9 if halves == 2 and together else 7
    for _ in range(halves):
        m.layers(1, [(NORM, 2), (GEMV, 30 * part), (DECODE_ATTENTION, 70 * part), (GEMV, 18 * part)])
        m.launch(DISPATCH, exchange * part, stream=side)
    for _ in range(halves):
        m.layers(1, [(EXPERTS, 50 * part), (EXPERTS, 50 * part)])
        m.launch(COMBINE, exchange * part, stream=side)


def decode(
    halves: int, exchange: float = 64, together: bool = False, name: str = "decode_step {}"
) -> Machine:
    m = Machine()
    for i in range(10):
        with m.step(name.format(i)):
            for _ in range(LAYERS):
                layer(m, halves, exchange, together)
            m.wait()
    return m


def test_two_halves_that_hide_nothing(tmp_path: Path) -> None:
    d = diagnosed(decode(2), tmp_path)
    expect(d, "halves-take-turns", never=("exposed-communication", "low-overlap", "launch-bound"))
    assert fact(d, "comm.halves") is True
    assert advice(d, "halves-take-turns")[:2] == ["give-all-ranks", "whole-small-batches"]


def test_two_halves_that_hide_their_exchanges(tmp_path: Path) -> None:
    d = diagnosed(decode(2, together=True), tmp_path)
    assert fact(d, "comm.halves") is True
    assert fact(d, "comm.exchange_hidden_ratio") == pytest.approx(1, abs=0.2)
    expect(d, never=("halves-take-turns", "exposed-communication", "low-overlap"))


def test_a_whole_batch_may_be_cut(tmp_path: Path) -> None:
    d = diagnosed(decode(1), tmp_path)
    expect(d, "exposed-communication", never=("halves-take-turns",))
    assert fact(d, "comm.halves") is False
    assert fact(d, "comm.exchange_part_ratio") == 1
    assert advice(d, "exposed-communication")[1:] == ["alternate-half-batches", "one-kernel-experts"]


@pytest.mark.parametrize(("sequences", "cut"), [(1, False), (31, False), (32, True)])
def test_a_batch_of_few_sequences_stays_whole(tmp_path: Path, sequences: int, cut: bool) -> None:
    name = f"execute_context_0(0)_generation_{sequences}({sequences})"
    d = diagnosed(decode(1, name=name), tmp_path)
    expect(d, "exposed-communication")
    assert fact(d, "serving.decode_batch") == sequences
    assert ("alternate-half-batches" in advice(d, "exposed-communication")) is cut


def test_steps_that_read_prompts_may_be_cut_beside_small_decodes(tmp_path: Path) -> None:
    m = Machine()
    for _ in range(5):
        for tokens, name in (
            (1, "execute_context_0(0)_generation_4(4)"),
            (8, "execute_context_2(8192)_generation_0(0)"),
        ):
            with m.step(name):
                for _ in range(LAYERS):
                    m.layers(
                        1,
                        [
                            (NORM, 2),
                            (GEMM, 30 * tokens),
                            (PREFILL_ATTENTION if tokens > 1 else DECODE_ATTENTION, 70 * tokens),
                        ],
                    )
                    m.launch(DISPATCH, 64 * tokens, stream=7)
                    m.layers(1, [(EXPERTS, 100 * tokens)])
                    m.launch(COMBINE, 64 * tokens, stream=7)
                m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "serving.decode_batch") == 4
    assert fact(d, "serving.decode_window_ratio") < 0.5
    assert "alternate-half-batches" in advice(d, "exposed-communication")


def test_short_exchanges_of_halves(tmp_path: Path) -> None:
    d = diagnosed(decode(2, exchange=3), tmp_path)
    assert fact(d, "comm.halves") is True
    assert "halves-take-turns" not in ranked(d)


def test_layers_without_experts_between_those_with(tmp_path: Path) -> None:
    """Attention twice before each exchange, and an all-reduce of a dense layer: no batch is cut there."""
    m = Machine()
    for i in range(10):
        with m.step(f"decode_step {i}"):
            for _ in range(LAYERS):
                m.layers(1, [(NORM, 2), (DECODE_ATTENTION, 70), (GEMV, 48), (ALL_REDUCE, 200)])
                layer(m, 1, 64, together=False)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "comm.halves") is False
    assert fact(d, "comm.exchange_part_ratio") == pytest.approx(128 / 328, rel=0.02)
    assert fact(d, "comm.in_line_ratio") == pytest.approx(200 / 328, rel=0.02)
    assert {"alternate-half-batches", "overlap-communication"}.isdisjoint(advice(d, "exposed-communication"))


@pytest.mark.parametrize(("kernel", "collective"), [(321, 486), (150, 400), (480, 120), (300, 290)])
def test_collectives_that_outlast_the_kernels_are_to_move_less(
    kernel: int, collective: int, tmp_path: Path
) -> None:
    """Beside each other the longer part sets the pace: where that is the collectives' one, moving less comes
    first, and what overlapping wins is said beside it."""
    export = scenes.kernels((scenes.GEMM, kernel), (scenes.NCCL, collective), step="iteration")
    d = job_of(export, tmp_path)
    expect(d, "exposed-communication")
    found = next(f for f in d.findings if f.cause == "exposed-communication")
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx((max(kernel, collective) + 2) / 1e3, rel=0.1)
    longer = collective > kernel
    program = [a for a in advice(d, "exposed-communication") if a != "give-all-ranks"]
    assert program[0] == ("exchange-fewer-bytes" if longer else "overlap-communication")
    assert ("set the pace" in found.message) == longer
    assert otherwise(found) == ("overlap communication with compute" if longer else "")


def split_layers(name: str, beside: bool, us: float = 150) -> Machine:
    """Layers that GPUs share: an all-reduce behind attention and one behind the MLP, on a stream of their
    own; `beside` it the kernels of the other half of the batch, else the layer waits for it."""
    m = Machine()
    for i in range(12):
        with m.step(f"{name} {i}"):
            for _ in range(2 * LAYERS):
                m.layers(1, [(NORM, 4), (GEMV, 180), (DECODE_ATTENTION, 60)])
                m.join(20, on=7)
                m.launch(ALL_REDUCE, us, stream=20)
                if not beside:
                    m.join(7, on=20)
            m.join(7, on=20)
            m.wait()
    return m


def test_nothing_hides_the_all_reduces_of_a_decode_step(tmp_path: Path) -> None:
    """Each layer begins with what they add up: no estimate of overlapping, with the reason, at most MEDIUM by
    the share held, and no advice to overlap."""
    d = diagnosed(split_layers("decode_step", beside=False), tmp_path)
    expect(d, "exposed-communication")
    found = finding(d, "exposed-communication")
    assert fact(d, "comm.in_line_ratio") == 1.0
    assert found.severity == "medium"
    assert found.gain is not None
    assert (found.gain.speedup, found.gain.reason is None) == (None, False)
    assert "the next layer begins with what the collectives join" in str(found.gain.reason)
    assert "overlap-communication" not in advice(d, "exposed-communication")


def test_half_a_batch_hides_the_all_reduces_of_the_other(tmp_path: Path) -> None:
    d = diagnosed(split_layers("decode_step", beside=True), tmp_path)
    assert fact(d, "comm.in_line_ratio") == 0.0
    assert "exposed-communication" not in ranked(d)


def test_a_prompt_can_be_cut_in_two_halves(tmp_path: Path) -> None:
    """The same kernels in steps that read prompts: the halves of a prompt hide each other's all-reduces."""
    d = job_of(split_layers("prefill", beside=False), tmp_path)
    found = finding(d, "exposed-communication")
    assert fact(d, "comm.in_line_ratio") == 0.0
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.speedup.mid == pytest.approx(394 / 244, rel=0.05)
    assert "overlap-communication" in advice(d, "exposed-communication")
