"""Speech recognition: an encoder runs once a segment, a decoder once a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import DECODE_LAYER, GEMM, NORM, PREFILL_ATTENTION, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, severity

ARGMAX = Kernel(
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)"
)
ENCODER = (
    (NORM, 8),
    (GEMM, 60),
    (PREFILL_ATTENTION, 50),
    (GEMM, 30),
    (NORM, 8),
    (GEMM, 80),
    (GEMM, 80),
    (NORM, 15),
)


def test_tokens_are_steps_although_an_encoder_runs_between(tmp_path: Path) -> None:
    """Three segments of 40, 33 and 47 tokens; with the encoder a step has three times the usual kernels."""
    m = Machine()
    for tokens in (40, 33, 47):
        m.copy("HtoD", 480, "pinned")
        m.layers(24, ENCODER)
        for _ in range(tokens):
            for kernel, us in DECODE_LAYER * 12:
                m.launch(kernel, us * 0.6)
                m.work(8)
            m.launch(ARGMAX, 6)
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert fact(d, "capture.step_count", None) in (118, 119, 120)
    assert severity(d, "launch-bound") in ("medium", "high")
    assert next(f.gain for f in d.findings if f.cause == "launch-bound") is not None


def segments(mel_us: float) -> Machine:
    """Graphs of a decoder, and for every twentieth token an encoder before it."""
    m = Machine()
    for _ in range(5):
        m.work(mel_us, "log_mel_spectrogram")
        m.layers(24, ENCODER)
        for _ in range(20):
            with m.step("decode_token"):
                m.replay(12)
                m.launch(ARGMAX, 5)
                m.read_back()
    return m


def test_a_step_with_an_encoder_is_no_slow_step(tmp_path: Path) -> None:
    d = diagnosed(segments(50), tmp_path)
    assert severity(d, "step-outliers") is None
    # The attention of the encoder is none of decode.
    assert severity(d, "wide-decode-attention") is None


def test_what_the_host_does_before_an_encoder_makes_a_step_slow(tmp_path: Path) -> None:
    d = diagnosed(segments(9_000), tmp_path)
    assert severity(d, "step-outliers") == "medium"
    lost = fact(d, "host.slowest_step_lost_ms")
    assert isinstance(lost, float)
    assert 8.5 < lost < 9.5


@pytest.mark.parametrize("read_back", [False, True])
def test_layers_of_the_only_pass_are_no_steps(read_back: bool, tmp_path: Path) -> None:
    """A forward pass without ranges: what repeats holds one attention each."""
    m = Machine()
    for _ in range(24):
        m.layers(1, ENCODER)
        if read_back:
            m.read_back()
    m.wait()
    d = diagnosed(m, tmp_path)
    assert d.inputs[0].steps is None
    assert fact(d, "capture.step_count", None) == 0
    assert severity(d, "window-too-short") == "info"
