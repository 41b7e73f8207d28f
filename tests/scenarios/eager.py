"""A PyTorch program that runs operator by operator, as the PyTorch profiler or nsys records it.

    p = Eager(shapes=True)
    for _ in range(6):
        with p.step():
            p.op("aten::mm", GEMM, 120, [[8, 4096], [4096, 4096]])
            p.wait()
    path = p.write(folder)

The host needs `host` us for an operator; work follows each other on one stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kineto_builder import Profile
from tests.scenarios.machine import FULL, Kernel, Machine

BF16, FP32, INT8 = "c10::BFloat16", "float", "signed char"
H100 = "NVIDIA H100 80GB HBM3"


class Eager:
    """`nsys` writes an nsys export with NVTX ranges instead of a PyTorch trace; `shapes` records operands."""

    def __init__(self, *, nsys: bool = False, shapes: bool = False, host: float = 8) -> None:
        self._nsys = Machine(gpu=H100) if nsys else None
        self._profile = Profile().gpu(name=H100, memory=85_000_000_000).process(100)
        self._shapes, self._host = shapes, host
        self._now = self._free = 0.0
        self._steps = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """One iteration between two calls of the profiler's `step()`."""
        name = f"ProfilerStep#{self._steps}"
        self._steps += 1
        if self._nsys is not None:
            with self._nsys.step(name):
                yield
            return
        begin = self._now
        yield
        self._profile.annotation(name, _ns(begin), _ns(self._now) - _ns(begin))

    def op(
        self,
        name: str,
        kernel: Kernel,
        us: float,
        sizes: Sequence[Sequence[int]] = (),
        types: Sequence[str] = (),
        *,
        inside: str | None = None,
    ) -> None:
        """An operator, `inside` another one if named, and its kernel of so many us."""
        if self._nsys is not None:
            self._nsys.launch(kernel, us, call=self._host - 1)
            return
        at, host = self._now, self._host
        if inside is not None:
            self._profile.op(inside, _ns(at), _ns(host - 0.5))
        args = {"Input Dims": sizes, "Input type": types or [BF16] * len(sizes)} if self._shapes else {}
        self._profile.op(name, _ns(at + 0.5), _ns(host - 1.5), **args)
        start = max(at + host, self._free)
        self._profile.launch(
            _ns(at + 2), _ns(host - 4), kernel.name, _ns(start), _ns(us), grid=(kernel.blocks, 1, 1)
        )
        self._free, self._now = start + us, at + host

    def wait(self) -> None:
        if self._nsys is not None:
            self._nsys.wait()
            return
        end = max(self._free, self._now) + 4
        self._profile.call("cudaDeviceSynchronize", _ns(self._now), _ns(end - self._now))
        self._now = end + 2

    def write(self, folder: Path, name: str = "trace") -> Path:
        if self._nsys is not None:
            return self._nsys.write(folder, f"{name}.sqlite")
        return self._profile.write(folder / f"{name}.json.gz")


def _ns(us: float) -> int:
    return round(us * 1_000)


_VECTOR = (
    "void at::native::vectorized_elementwise_kernel<4, {0}, std::array<char*, {1}ul> >(int, {0}, "
    "std::array<char*, {1}ul>)"
)
_STRIDED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{0}>(at::"
    "TensorIteratorBase&, {0} const&)::{{lambda(int)#1}}>(int, at::native::gpu_kernel_impl_"
    "nocast<{0}>(at::TensorIteratorBase&, {0} const&)::{{lambda(int)#1}})"
)
_UNROLLED = (
    "void at::native::unrolled_elementwise_kernel<{0}, std::array<char*, 2ul>, 4, "
    "TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
    "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, {0}, "
    "std::array<char*, 2ul>)"
)
_COPY = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#3}}::operator()() "
    "const::{{lambda()#{0}}}::operator()() const::{{lambda({1})#1}}"
)
_REDUCE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, {0}, unsigned int, float, 4, "
    "4> >(at::native::ReduceOp<float, {0}, unsigned int, float, 4, 4>)"
)


def vector(functor: str, tensors: int = 2, blocks: int = FULL) -> Kernel:
    return Kernel(_VECTOR.format(functor, tensors), blocks)


def strided(functor: str, blocks: int = FULL) -> Kernel:
    """As over broadcast or transposed operands."""
    return Kernel(_STRIDED.format(functor), blocks)


GEMM = Kernel("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT")
GEMV = Kernel("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT")
SGEMM = Kernel(
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_"
    "alignc4_execute_kernel__5x_cublas"
)
TF32 = Kernel(
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_"
    "off_kernel__5x_cublas"
)
FLASH = Kernel(
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)"
)
SCALE = vector(
    "at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >"
)
MUL = strided(
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >"
)
ADD = strided("at::native::CUDAFunctor_add<c10::BFloat16>")
SUB = strided("at::native::CUDAFunctor_add<float>")
EXP = vector(
    "at::native::exp_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() "
    "const::{lambda()#2}::operator()() const::{lambda(float)#1}"
)
DIV = strided(
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float> >"
)
MAX = Kernel(_REDUCE.format("at::native::MaxOps<float>"))
SUM = Kernel(
    _REDUCE.format(
        "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, "
        "float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>"
    )
)
FILL = vector("at::native::FillFunctor<c10::BFloat16>", 1, 1)
WHERE = strided(
    "at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&, "
    "c10::ScalarType)::{lambda(bool, c10::BFloat16, c10::BFloat16)#1}"
)
SOFTMAX = Kernel(
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
    "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)"
)
SOFTMAX_BACKWARD = Kernel(
    "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, c10::BFloat16, float, "
    "c10::BFloat16, at::native::(anonymous namespace)::SoftMaxBackwardEpilogue>(c10::BFloat16*, "
    "c10::BFloat16 const*, c10::BFloat16 const*, unsigned long)"
)
LOG_SOFTMAX = Kernel(
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
    "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)
TO_BF16 = vector("at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}")
TO_FP32 = vector(
    "at::native::bfloat16tofloat32_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}"
)
WIDEN = Kernel(_UNROLLED.format(_COPY.format(12, "c10::BFloat16")))
CONTIGUOUS = strided(_COPY.format(12, "c10::BFloat16"))
NORM = Kernel(
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, "
    "false>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, "
    "float*, c10::BFloat16*)"
)
GELU = vector(
    "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::"
    "operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}"
)
CAT = Kernel(
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<at::native::"
    "(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64, 16>(at::native::(anonymous "
    "namespace)::OpaqueType<2u>*)"
)
NLL = Kernel(
    "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, "
    "long>(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)",
    1,
)
