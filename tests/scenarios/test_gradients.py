"""Training on several GPUs: how gradients are exchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.eager import GELU, LOG_SOFTMAX, NLL
from tests.scenarios.eager import NORM as LAYER_NORM
from tests.scenarios.machine import GEMM, Kernel, Machine
from tests.scenarios.support import diagnosed, severity

ALL_REDUCE = Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 24)
ADAM = Kernel(
    "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>"
)
LAYERS = 60
#: Of the four parameters of a layer, us; 11 of each are what beginning an all-reduce takes.
GRADIENTS, BEGINS = (12, 12, 14, 30), 11


def training(exchange: str) -> Machine:
    """The gradients are exchanged in a `loop` behind the backward pass, in four `buckets` there, or one by
    one beside it (`hooks`)."""
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


@pytest.mark.parametrize("exchange", ["buckets", "hooks"])
def test_gradients_in_buckets_or_behind_kernels(exchange: str, tmp_path: Path) -> None:
    assert severity(diagnosed(training(exchange), tmp_path), "unbucketed-gradients") is None
