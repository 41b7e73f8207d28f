"""Programs that run operator by operator, as the PyTorch profiler records them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.kineto_builder import Profile
from tests.scenarios.machine import ADD, DECODE_ATTENTION, GEMM, GEMV, MUL, NORM, SILU, Kernel
from tests.scenarios.support import fact, severity

THIN_DOWN = Kernel("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(int)", 4)
THIN_UP = Kernel("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8", 32)


class Loop:
    """The host needs `host` us for an operator and its launch; work follows each other on one stream."""

    def __init__(self, host: float = 8) -> None:
        self.profile = Profile().gpu(name="NVIDIA H100 80GB HBM3", memory=85_000_000_000).process(100)
        self._host, self._steps = host, 0
        self.now = self._free = 0.0

    @contextmanager
    def step(self, name: str = "ProfilerStep#{}") -> Iterator[None]:
        begin = self.now
        yield
        self.profile.annotation(name.format(self._steps), _ns(begin), _ns(self.now) - _ns(begin))
        self._steps += 1

    def op(self, name: str, kernel: Kernel, us: float) -> None:
        at, host = self.now, self._host
        self.profile.op(name, _ns(at), _ns(host - 0.5))
        start = max(at + host, self._free)
        grid = (kernel.blocks, 1, 1)
        self.profile.launch(_ns(at + 2), _ns(host - 4), kernel.name, _ns(start), _ns(us), grid=grid)
        self._free, self.now = start + us, at + host

    def item(self) -> None:
        """A value for the host: a copy, and the wait for it."""
        at = self.now
        start = max(at + 6, self._free)
        self.profile.op("aten::item", _ns(at), _ns(start + 9 - at))
        self.profile.op("aten::_local_scalar_dense", _ns(at + 0.5), _ns(start + 8 - at))
        how = {"kind": "DtoH (Device -> Pageable)", "bytes": 8, "copy_dur": 1_000}
        self.profile.copy(_ns(at + 1), 4_000, copy_start=_ns(start), **how)
        self.profile.sync(_ns(at + 5.5), _ns(start + 4 - at - 5.5))
        self._free, self.now = start + 1, start + 9

    def host(self, us: float) -> None:
        self.now += us

    def wait(self) -> None:
        end = max(self._free, self.now) + 4
        self.profile.sync(_ns(self.now), _ns(end - self.now), api="cudaDeviceSynchronize")
        self.now = end + 2

    def diagnosed(self, folder: Path) -> Diagnosis:
        return advisor.diagnose(self.profile.write(folder / "trace.json.gz"))


def _ns(us: float) -> int:
    return round(us * 1_000)


SCALE_AND_ADD = Kernel("triton_poi_fused_add_mul_3")


def adapted(p: Loop, us: float, adapter: bool, compiled: bool = False) -> None:
    p.op("aten::mm", GEMM if us > 20 else GEMV, us)
    if adapter:
        p.op("aten::mm", THIN_DOWN, min(us, 6))
        p.op("aten::mm", THIN_UP, min(us, 5))
    if adapter and compiled:
        p.op("triton_poi_fused_add_mul_3", SCALE_AND_ADD, 7)
    elif adapter:
        p.op("aten::mul", MUL, 3)
        p.op("aten::add", ADD, 4)


def decoder(
    us: float, adapter: bool = True, layers: int = 16, host: float = 8, compiled: bool = False
) -> Loop:
    """Layers of four products, of `us` each, with or without a low-rank adapter beside each."""
    p = Loop(host)
    for _ in range(6):
        with p.step():
            for _ in range(layers):
                p.op("aten::native_layer_norm", NORM, 3)
                adapted(p, us, adapter, compiled)
                p.op("aten::scaled_dot_product_attention", DECODE_ATTENTION, us / 2)
                adapted(p, us, adapter, compiled)
                p.op("aten::native_layer_norm", NORM, 3)
                adapted(p, us, adapter, compiled)
                p.op("aten::silu", SILU, 3)
                adapted(p, us, adapter, compiled)
            p.wait()
    return p


@pytest.mark.parametrize("compiled", [False, True])
def test_adapters_beside_each_product_of_a_busy_device(compiled: bool, tmp_path: Path) -> None:
    """18 us of kernels beside each product of 60 us: merging them is 7.36 to 4.45 ms or nearly so."""
    d = decoder(60, compiled=compiled).diagnosed(tmp_path)
    found = next(f for f in d.findings if f.cause == "adapter-overhead")
    assert fact(d, "kernel.adapter_ratio") == 72 / (72 + 240 + 30 + 9)
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    merged = decoder(60, adapter=False).diagnosed(tmp_path).inputs[0].untraced_step_ms
    assert merged is not None
    assert found.gain.step_after_ms.low <= merged.mid <= found.gain.step_after_ms.high


def test_adapters_whose_launches_cost(tmp_path: Path) -> None:
    """Kernels of 6 us, launched every 12: of 76 launches a layer of 5, 16 are those of adapters."""
    d = decoder(6, host=12).diagnosed(tmp_path)
    assert severity(d, "adapter-overhead") == "high"
    assert "launch-bound" in {f.cause for f in d.findings}


def test_without_adapters_none_is_named(tmp_path: Path) -> None:
    assert severity(decoder(60, adapter=False).diagnosed(tmp_path), "adapter-overhead") is None


@pytest.mark.parametrize("compiled", [False, True])
def test_keys_and_values_behind_a_query_are_no_adapter(compiled: bool, tmp_path: Path) -> None:
    """Three products, a multiplication and an addition: but keys and values are one kernel each."""
    p = Loop()
    for _ in range(6):
        with p.step():
            for _ in range(16):
                p.op("aten::native_layer_norm", NORM, 3)
                p.op("aten::mm", GEMM, 60)
                p.op("aten::mm", GEMV, 20)
                p.op("aten::mm", GEMV, 20)
                if compiled:
                    p.op("triton_poi_fused_add_mul_3", SCALE_AND_ADD, 7)
                else:
                    p.op("aten::mul", MUL, 3)
                    p.op("aten::add", ADD, 4)
                p.op("aten::scaled_dot_product_attention", DECODE_ATTENTION, 30)
                p.op("aten::mm", GEMM, 60)
            p.wait()
    d = p.diagnosed(tmp_path)
    assert fact(d, "kernel.adapter_ratio") == 0
    assert severity(d, "adapter-overhead") is None


TOPK = Kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)", 64)
COUNT_TRUE = Kernel("void cub::DeviceReduceSingleTileKernel<bool*, int*>(bool*)", 1)
SELECT = Kernel("void cub::DeviceSelectSweepKernel<bool*, long*>(bool*)", 8)
WRITE_INDICES = Kernel(
    "void at::native::write_indices<long>(long*, at::native::TensorDims<long>, int, int)", 8
)
TAKE = Kernel("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", 64)
ADD_BACK = Kernel("void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int>(int)", 64)
EQ = Kernel("void at::native::vectorized_elementwise_kernel<4, at::native::CompareFunctor<long>>(int)", 8)
SOFTMAX = Kernel(
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)", 8
)


def experts_in_a_loop(
    experts: int = 8,
    layers: int = 6,
    steps: int = 6,
    *,
    model: bool = True,
    skip: bool = True,
    how: str = "where",
) -> Loop:
    """Each layer asks which tokens each expert gets, waits for the answer, and runs that expert's products;
    one without tokens is skipped. `how` it asks: where, item. Without `model` these layers are all."""
    p = Loop(host=9)
    for i in range(steps):
        if model:
            p.op("aten::embedding", EMBEDDING, 2)
        for layer in range(layers):
            if model:
                p.op("aten::native_layer_norm", NORM, 3)
                p.op("aten::mm", GEMV, 8)
                p.op("aten::scaled_dot_product_attention", DECODE_ATTENTION, 6)
                p.op("aten::mm", GEMV, 6)
                p.op("aten::native_layer_norm", NORM, 3)
            p.op("aten::mm", GEMV, 3)
            p.op("aten::softmax", SOFTMAX, 2)
            p.op("aten::topk", TOPK, 6)
            for expert in range(experts):
                p.op("aten::eq", EQ, 2)
                if how == "where":
                    p.op("aten::nonzero", COUNT_TRUE, 2)
                    p.item()
                    p.op("aten::nonzero", SELECT, 3)
                    p.op("aten::nonzero", WRITE_INDICES, 2)
                else:
                    p.op("aten::any", ANY, 2)
                    p.item()
                if skip and (7 * i + 3 * layer + 5 * expert) % 5 == 0:
                    continue
                p.op("aten::index", TAKE, 2)
                product = PRODUCTS[(3 * i + layer + expert) % 3]
                p.op("aten::mm", product, 7)
                p.op("aten::silu", SILU, 2)
                p.op("aten::mm", product, 7)
                p.op("aten::mul", MUL, 2)
                p.op("aten::mm", product, 7)
                p.op("aten::index_add_", ADD_BACK, 3)
        if model:
            p.op("aten::native_layer_norm", NORM, 3)
            p.op("aten::mm", GEMV, 30)
            p.op("aten::argmax", ARGMAX, 4)
            p.item()
        else:
            p.wait()
    return p


PRODUCTS = tuple(Kernel(f"nvjet_tst_{n}x8_64x16_4x1_v_bz_TNT") for n in (64, 128, 192))
ANY = Kernel("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, or_kernel_cuda>>(int)", 1)
EMBEDDING = Kernel(
    "void at::native::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2, 2, -2>(int)", 8
)
ARGMAX = Kernel(
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(int)",
    1,
)


@pytest.mark.parametrize("how", ["where", "item"])
def test_a_loop_over_experts_reads_back_what_each_gets(tmp_path: Path, how: str) -> None:
    """Six layers of eight experts with a wait each; a layer of grouped products launches eight kernels."""
    d = experts_in_a_loop(how=how).diagnosed(tmp_path)
    assert d.findings[0].cause == "unfused-moe"
    assert fact(d, "experts.readbacks_per_layer") == 8
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.speedup is not None
    assert gain.speedup.low > 1.3


@pytest.mark.parametrize(
    ("layers", "experts"), [(6, 8), (1, 32), pytest.param(12, 16, marks=pytest.mark.slow)]
)
def test_layers_of_experts_alone_have_steps_although_their_kernels_vary(
    tmp_path: Path, layers: int, experts: int
) -> None:
    d = experts_in_a_loop(experts, layers, 10, model=False).diagnosed(tmp_path)
    assert fact(d, "capture.step_method", None) == "waits"
    assert d.inputs[0].steps in (8, 9)
    assert fact(d, "experts.topk_per_step") == layers
    assert d.findings[0].cause == "unfused-moe"
    gain = d.findings[0].gain
    assert gain is not None
    assert gain.speedup is not None
    assert gain.speedup.mid > 1.5
