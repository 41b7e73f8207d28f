"""A hand-made diagnosis of the kind that matters: LLM decode, launch-bound, two devices.

Its names are as nasty as real ones get: rich markup, HTML, escape codes, wide characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.model.facts import Fact, Interval, Scope, Table
from advisor.model.findings import (
    Advice,
    Budget,
    ConditionDoc,
    Diagnosis,
    Finding,
    Gain,
    Healthy,
    Impact,
    Input,
    NextTarget,
    NotEvaluated,
    Option,
    Overruled,
    Part,
    Reference,
    Related,
    Span,
    StepSummary,
    Threshold,
    Tool,
    Verify,
)
from advisor.model.gain import Headline

if TYPE_CHECKING:
    from advisor.reports.diagnosis_blocks import TextOptions
    from advisor.reports.layout import Line


def page_lines(
    diagnoses: Sequence[Diagnosis], options: TextOptions | None = None, width: int = 80, unicode: bool = True
) -> list[Line]:
    """The report of these diagnoses as styled lines."""
    from advisor.reports import diagnosis_blocks, text  # what takes the sample alone starts in half the time
    from advisor.reports.layout import Page

    page = Page(width, unicode)
    text.write(page, diagnosis_blocks.shown(diagnoses, options or diagnosis_blocks.TextOptions(), page.width))
    return page.lines


def plain(
    diagnosis: Diagnosis, options: TextOptions | None = None, width: int = 80, unicode: bool = True
) -> str:
    """The report of a diagnosis as text."""
    return "".join(f"{line.plain}\n" for line in page_lines([diagnosis], options, width, unicode))


def html_page(diagnoses: Sequence[Diagnosis]) -> bytes:
    """The HTML report of these diagnoses."""
    from advisor.reports import diagnosis_blocks  # what takes the sample alone starts in half the time
    from advisor.reports.html import report as html

    return html.document(diagnosis_blocks.report(diagnoses))


def in_order(text: str, places: Sequence[str]) -> None:
    """Assert that each place follows the one before it in the text."""
    at = 0
    for place in places:
        assert place in text[at:], place
        at = text.index(place, at)


MUL = (
    "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast"
    "<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::"
    "binary_internal::MulFunctor<float>>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) "
    "(instance 1)]>(int, T3)"
)
NASTY = "[bold red]gemm[/bold red]_<script>alert(1)</script>_[x]\x1b[31m\u202e\ufffe\uffff"
DEVICE = Scope(device=0)


def budget(device: int, phase: str | None = None, **parts: float) -> Budget:
    """Shares by part; what is left is compute."""
    shares = {"compute": 1.0 - sum(parts.values()), **parts}
    return Budget(
        device=device,
        window_ms=300.0,
        phase=phase,
        parts=tuple(Part(part=p, ms=300.0 * s, share=s) for p, s in shares.items()),
    )


LAUNCH_BOUND = Finding(
    rank=1,
    code="LCH101",
    cause="launch-bound",
    title="The host launches kernels one by one and the GPU waits for each",
    severity="high",
    confidence=0.85,
    scope=Scope(device=0, phase="decode"),
    message=(
        "55.3 % of the window is idle inside or between launch calls: 847 kernels of 2.1 us "
        "a step are launched one by one into an empty queue."
    ),
    conditions=(
        ConditionDoc(
            fact="launch.idle_ratio",
            op="ge",
            threshold=0.1,
            value=0.553,
            unit="ratio",
            param="min_idle",
            holds=True,
        ),
        ConditionDoc(
            fact="kernel.duration_p50_ns",
            op="le",
            threshold=10_000,
            value=2_112,
            unit="ns",
            param="max_kernel",
            holds=True,
        ),
        ConditionDoc(
            fact="launch.empty_queue_ratio",
            op="ge",
            threshold=0.1,
            value=0.0996,
            unit="ratio",
            param="min_empty",
            holds=False,
        ),
    ),
    impact=Impact(part="launch_call", ms=5.49, share=0.553),
    evidence=(
        Table(
            title="Idle by the call that ends it",
            columns=("call", "count", "idle_ns", "share", "copied_bytes"),
            rows=(
                ("cudaLaunchKernel", 12_834, 98_412_000, 0.328, None),
                ("cuLaunchKernelEx", 4_224, 61_200_411, 0.204, None),
                (NASTY, 32, 5_104_220, 0.017, 4096),
                ("cudaMemcpyAsync", 32, 1_004_220, 0.003, 12_582_912),
                (MUL, 16, 504_220, 0.001, None),
                ("cudaEventRecord", 16, 4_220, 0.0001, None),
            ),
        ),
    ),
    time_ranges=tuple(
        Interval(
            start_ns=1_234_567_000 + i * 9_000_000,
            end_ns=1_234_691_000 + i * 9_000_000,
            stream=7,
            thread=41_873,
            label="iteration [3]",
        )
        for i in range(4)
    ),
    gain=Gain(
        what_if="cuda_graphs",
        params={"scope": "decode"},
        measure="latency",
        per="step",
        step_before_ms=Span(low=9.1, mid=9.92, high=10.6),
        step_after_ms=Span(low=2.1, mid=2.31, high=2.9),
        speedup=Span(low=3.1, mid=4.29, high=4.7),
        assumptions=("kernels keep their durations", "one graph launch per step"),
    ),
    recommendations=(
        Advice(
            id="cuda-graphs",
            title="use CUDA graphs",
            action="Capture the decode step as a CUDA graph and replay it",
            options=(
                Option(engine="vLLM", line="drop --enforce-eager", since="0.2.0"),
                Option(
                    engine="transformers",
                    line=(
                        'generate(cache_implementation="static") with '
                        'torch.compile(model, mode="reduce-overhead", fullgraph=True)'
                    ),
                    since="4.38",
                ),
            ),
            effort="low",
            verify=Verify(fact="launch.idle_ratio", expect="decrease", now=0.553, unit="ratio"),
        ),
        Advice(
            id="fuse",
            action="Fuse the elementwise kernels with torch.compile",
            effort="medium",
            verify=Verify(fact="kernel.per_step", expect="decrease", now=847.5, unit="count"),
        ),
    ),
    explains=(
        Related(code="UTL100", cause="gpu-idle", scope=DEVICE, message="59 % idle"),
        Related(code="LCH100", cause="queue-empty", scope=DEVICE, message="queue empty"),
    ),
    references=(Reference(id="cuda-graphs", title="CUDA graphs", url="https://example.invalid/graphs"),),
)

READBACK = Finding(
    rank=2,
    code="SYN103",
    cause="readback-per-layer",
    title="Small results are read back inside the step",
    severity="low",
    confidence=0.6,
    scope=DEVICE,
    message="22 copies of up to 4 KiB a step are followed by a wait.",
    conditions=(
        ConditionDoc(
            fact="sync.readbacks_per_step",
            op="ge",
            threshold=4,
            value=22.0,
            unit="count",
            param="min_d2h",
            holds=True,
        ),
        ConditionDoc(
            fact="symptom:queue-empty", op="eq", threshold="fired", value="fired", unit="text", holds=True
        ),
        ConditionDoc(fact="capture.overhead_idle_ratio", op="le", threshold=0.2, unit="ratio"),
    ),
    impact=Impact(part="sync", ms=0.31, share=0.031),
    gain=Gain(reason="the wait also orders two streams"),
    recommendations=(Advice(id="on-device", action="Keep the decision on the device"),),
)

COARSE = Finding(
    rank=3,
    code="CAP109",
    cause="sampling-too-coarse",
    title="GPU metrics are sampled more slowly than kernels run",
    severity="info",
    confidence=1.0,
    message="One sample of 100 us covers some 40 decode kernels, so activity is estimated.",
    conditions=(
        ConditionDoc(
            fact="capture.sample_period_over_kernel",
            op="ge",
            threshold=1.0,
            value=47.3,
            unit="ratio",
            holds=True,
        ),
    ),
)

DIAGNOSIS = Diagnosis(
    tool=Tool(version="0.1.0", engine="durable"),
    inputs=(
        Input(
            path="/data/captures/2026-11-20/decode_[eager]_batch_size_1.sqlite",
            format="nsys-sqlite",
            clock="session times, as the Nsight Systems GUI shows them",
            producer="nsys 2023.4.4",
            device="NVIDIA H200",
            driver="580.159",
            cuda="13.0",
            serving_engine="transformers",
            window_ms=300.0,
            window_ns=(1_200_000_000, 1_500_000_000),
            window_method="steps without the first",
            steps=32,
            step_method="NVTX ranges",
            workload="LLM decode",
            kernels_per_step=847.5,
            busy_share=0.41,
            startup_ms=4_210.0,
            warnings=("CPU sampling was not available",) * 2,
        ),
    ),
    verdict=(
        "Launch-bound decode: the GPU is idle for 55.3 % of the window because 847 kernels a "
        "step are launched one by one."
    ),
    headline=Headline(
        code="LCH101",
        cause="launch-bound",
        do="Capture the decode step as a CUDA graph and replay it",
        saves=0.767,
    ),
    findings=(LAUNCH_BOUND, READBACK, COARSE),
    overruled=(Overruled(code="HST101", cause="host-gap", by="launch-bound", scope=Scope(device=1)),),
    healthy=(
        Healthy(
            code="ALC101",
            cause="allocation-churn",
            scope=DEVICE,
            text="0.1 allocation and free calls a step take 0.0 % of the window",
            conditions=(
                ConditionDoc(fact="alloc.calls_per_step", op="gt", threshold=1, value=0.1, unit="count"),
            ),
        ),
        Healthy(
            code="XFR102",
            cause="transfer-bound",
            text=(
                "Exposed copies take 0.4 % of the window; uploads overlap with kernels and the "
                "link runs at 92 % of its practical rate"
            ),
        ),
    ),
    not_evaluated=(
        NotEvaluated(
            code="UTL102",
            cause="memory-bandwidth-bound",
            missing=("activity.dram_bound_window_ratio",),
            flag="--gpu-metrics-devices=all",
            lacks="no GPU metrics",
            scope=DEVICE,
        ),
        NotEvaluated(
            code="UTL105",
            cause="tensor-cores-idle",
            missing=("activity.matmul_tensor_ratio",),
            flag="--gpu-metrics-devices=all",
            lacks="no GPU metrics",
        ),
        NotEvaluated(
            code="HST103",
            cause="gil-contention",
            missing=("host.gil_wait_ratio",),
            flag="--trace=cuda,nvtx,python-gil",
            lacks="no host trace",
        ),
        NotEvaluated(
            code="COM102",
            cause="rank-arrival-skew",
            missing=("rank.skew_ratio",),
            why="needs the traces of several ranks",
        ),
        NotEvaluated(
            code="HST101", cause="host-gap", missing=(), stopped_by="launch-bound", scope=Scope(device=1)
        ),
    ),
    budget=(
        budget(0, launch_call=0.381, host_between_launches=0.172, sync=0.031, htod=0.004),
        budget(1, launch_call=0.341, host_between_launches=0.201, sync=0.02, profiler=0.001),
        budget(0, "decode", launch_call=0.401, host_between_launches=0.182, sync=0.031),
    ),
    steps=(
        StepSummary(phase="decode", count=31, median_ms=9.92, mean_ms=10.04, p99_ms=12.6),
        StepSummary(phase="prefill", count=1, median_ms=21.3, mean_ms=21.3, p99_ms=21.3),
    ),
    facts=(
        Fact(name="launch.idle_ratio", value=0.553, unit="ratio", scope=DEVICE),
        Fact(name="kernel.duration_p50_ns", value=2112, unit="ns", scope=DEVICE),
        Fact(name="capture.is_inference", value=True, unit="flag"),
        Fact(name="operation.max_over_p50", value=3.217, unit="ratio", scope=DEVICE),
    ),
    thresholds=(
        Threshold(code="LCH101", param="min_idle", value=0.1, default=0.15, unit="ratio", origin="measured"),
    ),
    tables={
        "kernels": Table(
            title="Kernels by time",
            columns=("kernel", "operation", "calls", "total:ns", "share:ratio", "p50:ns"),
            rows=(
                ("nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT", "gemv", 352, 4_709_848, 0.171, 13_376),
                (MUL, "elementwise mul", 2816, 4_037_026, 0.147, 1_408),
                (NASTY, "gemm", 704, 3_979_528, 0.145, 5_664),
                ("归一化核函数_归一化核函数_" * 4, "norm", 720, 2_578_315, 0.094, 3_520),
                ("flash_fwd_kernel", "attention", 352, 1_470_167, 0.053, 4_160),
                ("tail", "copy", 3, 1_470, 0.0001, 490),
            ),
        )
    },
    next_target=NextTarget(
        family="gemv",
        share=0.43,
        kernel="nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT",
        command=(
            "ncu --set full --kernel-name 'regex:^nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT$' "
            "--launch-skip 100 --launch-count 5 --export gemv python serve.py --batch 1"
        ),
        why="it streams the weights from DRAM and runs at 85 % of the achievable peak",
    ),
)

HEALTHY = Diagnosis(
    tool=Tool(version="0.1.0", engine="python"),
    inputs=(Input(path="well.sqlite", format="nsys-sqlite"),),
    verdict="Nothing to fix above 3 %: memory-bandwidth-bound at 91 % of the achievable peak.",
    healthy=(Healthy(code="SYN101", cause="blocking-sync", text="Waits cost 0.2 %"),),
)
