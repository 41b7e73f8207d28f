"""Work of another kind between decode steps: an encoder of sound or images, a vocoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import (
    DECODE_ATTENTION,
    DECODE_LAYER,
    GEMM,
    GEMV,
    NORM,
    PREFILL_ATTENTION,
    Kernel,
    Machine,
)
from tests.scenarios.support import diagnosed, expect, fact, ranked, severity

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


#: Four layers of an image encoder, in few large kernels.
LARGE = [(GEMM, 900), (PREFILL_ATTENTION, 1_200), (GEMM, 800), (GEMM, 900)] * 4
VOCODER = Kernel(
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_"
    "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cudnn"
)


def with_images(times: float = 1, *, inside: bool = False, every: int = 10, count: int = 40) -> Machine:
    """Decode graphs, and `every` so many steps an encoder of large kernels (15.2 ms, `times` so much),
    `inside` the range of the next step or before it."""
    m = Machine()

    def encode(i: int) -> None:
        if i % every == every // 2:
            m.layers(1, [(kernel, us * times) for kernel, us in LARGE])

    for i in range(count):
        if not inside:
            encode(i)
        with m.step(f"decode_step {i}"):
            if inside:
                encode(i)
            m.replay(40, call=15)
            m.read_back()
    return m


@pytest.mark.parametrize("inside", [False, True])
def test_an_encoder_of_few_large_kernels_is_other_work(inside: bool, tmp_path: Path) -> None:
    d = diagnosed(with_images(inside=inside), tmp_path)
    expect(d, "work-between-steps", never=("step-outliers", "startup-in-window", "gpu-slower-at-times"))
    assert severity(d, "work-between-steps") == "low"  # tokens come within 40 ms
    assert fact(d, "besides.step_count") == 4
    assert fact(d, "besides.ms") == pytest.approx(15.2)
    assert fact(d, "besides.window_ratio") == pytest.approx(0.48, abs=0.01)
    assert fact(d, "besides.usual_steps") == pytest.approx(15.2 / 1.68, rel=0.01)
    assert str(fact(d, "besides.operations")).startswith("GEMM (nvjet)")


def test_a_long_encoder_delays_tokens(tmp_path: Path) -> None:
    d = diagnosed(with_images(3), tmp_path)
    expect(d, "work-between-steps", never=("step-outliers",))
    assert severity(d, "work-between-steps") == "high"


def test_a_vocoder_behind_every_25th_token(tmp_path: Path) -> None:
    """One product in a row, in few of the steps: no trials of kernels."""
    m = Machine()
    for i in range(100):
        with m.step(f"decode_token {i}"):
            m.replay(16, call=12)
            m.read_back()
        if i % 25 == 24:
            m.layers(12, ((VOCODER, 350), (NORM, 40)))
            m.wait()
    d = diagnosed(m, tmp_path)
    expect(d, "work-between-steps", never=("step-outliers", "startup-in-window"))
    assert fact(d, "besides.operations") == "convolution (cuDNN)"


def test_a_step_of_a_larger_batch_is_not_work_besides(tmp_path: Path) -> None:
    """Its products are others, in place of the usual ones; the step is slow for no cause that is known."""
    m = Machine()
    for i in range(40):
        with m.step(f"decode_step {i}"):
            m.replay(
                40,
                [(GEMM if k is GEMV else k, us * 3) for k, us in DECODE_LAYER]
                if i % 10 == 5
                else DECODE_LAYER,
            )
            m.read_back()
    d = diagnosed(m, tmp_path)
    assert fact(d, "besides.step_count") == 0
    assert severity(d, "step-outliers") == "medium"


def test_a_short_encoder_is_not_told(tmp_path: Path) -> None:
    d = diagnosed(with_images(0.05), tmp_path)
    assert ranked(d) == []


def served(encoder: float, name: str | None = "gpu_model_runner: execute_mm_encoder") -> Machine:
    """Decodes of 2 ms, and in every tenth step a prompt of 50 ms behind an encoder of `encoder` ms."""
    m = Machine()
    for i in range(60):
        prompt = i % 10 == 9
        with m.step(f"execute_context_{int(prompt)}({1024 * prompt})_generation_16(16)"):
            if prompt and encoder:
                if name is None:
                    m.layers(8, [(GEMM, encoder * 1_000 / 8)])
                else:
                    with m.step(name):
                        m.layers(8, [(GEMM, encoder * 1_000 / 8)])
            for _ in range(20):
                m.layers(1, [(NORM, 4), (GEMV, 60), (DECODE_ATTENTION, 30)])
                if prompt:
                    m.layers(1, [(GEMM, 2_000), (PREFILL_ATTENTION, 500)])
            m.wait()
    return m


@pytest.mark.parametrize(
    ("encoder", "name", "first"),
    [
        (55, "gpu_model_runner: execute_mm_encoder", "run-encoder-apart"),
        (55, "vision_encoder", "run-encoder-apart"),
        (10, "gpu_model_runner: execute_mm_encoder", "smaller-chunks"),
        (55, None, "smaller-chunks"),
        (0, None, "smaller-chunks"),
    ],
)
def test_an_encoder_that_holds_half_of_a_stall(
    encoder: float, name: str | None, first: str, tmp_path: Path
) -> None:
    d = diagnosed(served(encoder, name), tmp_path)
    found = next(f for f in d.findings if f.cause == "prefill-holds-decode")
    assert found.recommendations[0].id == first
    if name is not None:
        assert fact(d, "serving.stall_encoder_ratio") == pytest.approx(encoder / (encoder + 52), rel=0.1)
        assert fact(d, "serving.stall_encoder") == name
        assert name in found.message
