"""Captures of a made-up decoder, and where the committed and the labelled ones lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from advisor.comparison.sides import Side
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import diagnose
from tests import captures
from tests.builder import Export

ROOT = Path(__file__).resolve().parents[2]
LABELLED = captures.SHARED

GEMM = "nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT"
ATTENTION = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(params)"
NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
ADD = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>"
CAT = "void at::native::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4, 64, 64>(p)"
LINEAR = "fused_recurrent_gated_delta_rule_fwd_kernel"
SPARSE = "dsa_v2_decode_sm100"
INDEXER = "void deep_gemm::sm90_fp8_paged_mqa_logits<32, 128>(unsigned)"
SAMPLE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, ArgMaxOps>>"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::TensorInfo)"
SILU = "void at::native::vectorized_elementwise_kernel<8, at::native::silu_kernel(TensorIterator)>"


def decoder(
    path: Path,
    *,
    steps: int = 16,
    layers: int = 6,
    gemm: float = 40.0,
    attention: float = 20.0,
    norm: float = 6.0,
    cat: float = 0.0,
    blocks: int = 256,
    jitter: float = 0.004,
    gap: float = 0.0,
    slow: tuple[int, float] | None = None,
    prefills: int = 0,
    routed: bool = False,
    spread: int = 0,
    ranges: bool = True,
    graph_mode: str | None = None,
    gemm_name: str = GEMM,
    attention_name: str = ATTENTION,
    gpu: str = "NVIDIA H200",
    clock: float = 1.98e9,
    driver: str = "580.159",
    cuda: str = "13.0",
    tool: str = "2023.4.4.54",
    traced: tuple[str, ...] = ("Cuda", "NvtxEvents"),
    seed: int = 0,
) -> Path:
    """An export of a decoder that the GPU holds back; times are kernel times in us.

    `gap` is host work between steps, `slow` (n, us) makes every n-th step longer, `spread` varies
    the launch size of an expert's activation, `graph_mode` replays the step as a graph.
    """
    rng = np.random.default_rng(seed)
    export = (
        Export(tool_version=tool)
        .gpu(name=gpu, clock=clock)
        .system(NvDriverVersion=driver, CudaDriverVersion=cuda)
        .process(100)
        .traced(*traced, graph_mode=graph_mode and graph_mode.capitalize())
    )
    host, device = 1_000_000, 1_100_000
    for step in range(steps + prefills):
        prefill = step >= steps
        scale = 8.0 if prefill else 1.0
        length = float(1 + jitter * rng.standard_normal())
        if slow is not None and step % slow[0] == slow[0] - 1:
            device += int(slow[1] * 1e3)
        begin = host
        work: list[tuple[str, float, int]] = []
        for _ in range(layers):
            work += [(NORM, norm, blocks), (gemm_name, gemm, 132), (attention_name, attention, 64)]
            if cat:
                work.append((CAT, cat, blocks))
            if routed:
                work += [(TOPK, 3.0, 64)]
            if spread:
                work.append((SILU, 8.0, blocks + int(rng.integers(0, spread))))
            work.append((ADD, 4.0, blocks))
        work.append((SAMPLE, 10.0, 1))
        if graph_mode is not None:
            nodes = []
            for name, us, _ in work:
                nodes.append((name, device, int(us * scale * length * 1e3)))
                device += nodes[-1][2] + 300
            export.graph_launch(host, 20_000, nodes, graph_mode, grid=(blocks, 1, 1))
            host += 25_000
        else:
            for name, us, size in work:
                run = int(us * scale * length * 1e3)
                export.launch(
                    host, 1_500, name, kernel_start=device, kernel_dur=run, grid=(int(size * scale), 1, 1)
                )
                host, device = host + 2_500, device + run + 200
        if ranges:
            export.range("prefill" if prefill else f"decode_step {step}", begin - 500, host)
        host = max(host + 5_000, device - 60_000)
        if gap:
            host = device + int(gap * 1e3)
            device = host + 10_000
    return export.write(path)


def diagnosed(path: Path, **changes: Any) -> Diagnosis:
    return diagnose(decoder(path, **changes))


def side(name: str, *diagnoses: Diagnosis) -> Side:
    return Side(name, list(diagnoses))


def committed_diagnosis(name: str) -> Diagnosis:
    return captures.diagnosed(captures.committed(name))


def with_times(diagnosis: Diagnosis, times: dict[str, list[float]]) -> Diagnosis:
    """The diagnosis with other step times, as if only those steps had been recorded."""
    assert diagnosis.work is not None
    phases = tuple(
        p.replaced(times_ms=tuple(times[p.phase]), steps=len(times[p.phase]))
        for p in diagnosis.work.phases
        if times.get(p.phase)
    )
    return diagnosis.replaced(work=diagnosis.work.replaced(phases=phases))
