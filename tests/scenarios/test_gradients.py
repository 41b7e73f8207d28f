"""Training on several GPUs: how gradients are exchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.eager import GELU, LOG_SOFTMAX, NLL
from tests.scenarios.eager import NORM as LAYER_NORM
from tests.scenarios.machine import GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, severity
from tests.scenarios.test_recorded_causes import advice

ALL_REDUCE = Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24)
ADAM = Kernel(
    "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>"
)
LAYERS = 60
#: Of the four parameters of a layer, us; 11 of each are what beginning an all-reduce takes.
GRADIENTS, BEGINS = (12, 12, 14, 30), 11


#: What divides a gradient by the number of ranks.
DIVIDE = Kernel(
    "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float>>, std::array<char*, 2ul>>(int)"
)


def training(exchange: str) -> Machine:
    """The gradients are exchanged in a `loop` behind the backward pass, each divided there (`divided`), some
    large (`uneven`), in four `buckets` there, in many `large` ones, or one by one beside it (`hooks`)."""
    m = Machine()
    for i in range(8):
        with m.step(f"iteration {i}"):
            for _ in range(LAYERS):
                m.layers(1, ((LAYER_NORM, 8), (GEMM, 40), (GEMM, 40), (GELU, 5)))
            m.launch(LOG_SOFTMAX, 40)
            m.launch(NLL, 8)
            for layer in range(LAYERS):
                m.layers(1, ((GEMM, 40),) * 4)
                if exchange == "hooks" and layer:  # those of the layer before
                    for us in GRADIENTS:
                        m.launch(ALL_REDUCE, us, stream=20)
            if exchange == "loop":
                m.layers(LAYERS, tuple((ALL_REDUCE, us) for us in GRADIENTS))
            if exchange == "divided":
                m.layers(LAYERS, tuple(one for us in GRADIENTS for one in ((ALL_REDUCE, us), (DIVIDE, 3))))
            if exchange == "uneven":
                m.layers(LAYERS, ((ALL_REDUCE, 12), (ALL_REDUCE, 14), (ALL_REDUCE, 30), (ALL_REDUCE, 130)))
            if exchange == "large":
                m.layers(40, ((ALL_REDUCE, 240),))
            if exchange == "buckets":
                moved = sum(us - BEGINS for us in GRADIENTS) * LAYERS / 4
                m.layers(4, ((ALL_REDUCE, moved + BEGINS),))
            m.layers(4, ((ADAM, 120),))
            m.wait()
    return m


def test_an_all_reduce_for_each_parameter(tmp_path: Path) -> None:
    d = diagnosed(training("loop"), tmp_path)
    (tmp_path / "twin").mkdir()
    made = diagnosed(training("buckets"), tmp_path / "twin").inputs[0].step_ms
    found = next(f for f in d.findings if f.cause == "unbucketed-gradients")
    assert found.severity in ("low", "medium")
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    after = found.gain.step_after_ms
    assert made is not None
    assert after.low < made < after.high
    assert after.mid == pytest.approx(made, rel=0.05)


@pytest.mark.parametrize("exchange", ["loop", "divided", "uneven"])
def test_whatever_lies_between_and_however_large_some_are(exchange: str, tmp_path: Path) -> None:
    """One cure for all: buckets come first, whatever their pieces look like."""
    d = diagnosed(training(exchange), tmp_path)
    assert fact(d, "comm.row_calls_per_step") == pytest.approx(4 * LAYERS - 1)
    assert severity(d, "unbucketed-gradients") in ("low", "medium")
    assert advice(d, "exposed-communication")[0] == "bucket-collectives"
    assert "many-small-collectives" not in [f.cause for f in d.findings]


def split(name: str) -> Machine:
    """Layers that are split over GPUs, in training: two exchanges in the forward pass, two in the backward
    one; with `name` the gradients are exchanged, too."""
    m = Machine()
    for i in range(8):
        with m.step(f"iteration {i}"):
            for _ in range(LAYERS):
                m.layers(1, ((LAYER_NORM, 8), (GEMM, 40), (ALL_REDUCE, 40), (GEMM, 40), (ALL_REDUCE, 40)))
            m.launch(LOG_SOFTMAX, 40)
            m.launch(NLL, 8)
            for _ in range(LAYERS):
                m.layers(1, ((GEMM, 80), (ALL_REDUCE, 4), (GEMM, 80), (ALL_REDUCE, 4)))
            if name:
                m.layers(6, ((ALL_REDUCE, 2_000),))
            m.layers(4, ((ADAM, 120),))
            m.wait()
    return m


@pytest.mark.parametrize(("name", "told"), [("", False), ("gradients", True)])
def test_only_gradients_can_wait_for_the_last_micro_batch(name: str, told: bool, tmp_path: Path) -> None:
    d = diagnosed(split(name), tmp_path)
    assert severity(d, "unbucketed-gradients") is None
    found = advice(d, "exposed-communication")
    assert ("sync-once-a-step" in found) is told
    assert "bucket-collectives" not in found


@pytest.mark.parametrize("exchange", ["buckets", "hooks", "large"])
def test_gradients_in_buckets_or_behind_kernels(exchange: str, tmp_path: Path) -> None:
    assert severity(diagnosed(training(exchange), tmp_path), "unbucketed-gradients") is None
