"""Printed tables of the PyTorch profiler: runs with one known fault each, healthy ones and near misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.docs.scripts import script
from tests.profiler_tables import Sum, averages, call, kernel, of_range, old_table, operator, span, table
from tests.scenarios.support import fact, ranked
from tests.test_kineto_captures import EXAMPLE, SHARED

GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


@dataclass(frozen=True)
class Scene:
    """`steps` steps of the parts that follow, in us a step."""

    steps: int = 10
    #: Kernels of products and their time each.
    products: int = 100
    product_us: float = 200.0
    small: int = 0
    small_us: float = 2.0
    #: What the host itself takes for the operator around each kernel, and for its launch.
    operator_us: float = 8.0
    launch_us: float = 5.0
    reads: int = 0
    read_us: float = 0.0
    between_us: float = 0.0
    loading_us: float = 0.0
    graphs: bool = False

    def rows(self) -> list[Sum]:
        n, work = self.steps, self.products + self.small
        gpu = n * (self.products * self.product_us + self.small * self.small_us)
        rows = [
            kernel(GEMM, n * self.products, self.product_us),
            call(
                "cudaGraphLaunch" if self.graphs else "cudaLaunchKernel",
                n if self.graphs else n * work,
                20.0 if self.graphs else self.launch_us,
            ),
        ]
        if not self.graphs:
            rows.append(operator("aten::mm", n * work, self.operator_us, inside=self.launch_us, device=gpu))
        if self.small:
            rows += [kernel(ADD, n * self.small, self.small_us), kernel(FLASH, n * 10, 20.0)]
            rows.append(kernel("rms_norm_kernel<c10::BFloat16>(int)", n * 10, 2.0))
        if self.reads:
            rows += [
                operator("aten::item", n * self.reads, 1.0, inside=self.read_us + 4.0),
                operator("aten::_local_scalar_dense", n * self.reads, 4.0, inside=self.read_us),
                call("cudaStreamSynchronize", n * self.reads, self.read_us),
                kernel("Memcpy DtoH (Device -> Pageable)", n * self.reads, 1.5),
            ]
        if self.loading_us:
            name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            rows.append(of_range(name, n, self.loading_us, own_us=self.loading_us))
        host = sum(r.self_host for r in rows) / n
        wall = max(host + self.between_us, gpu / n)
        rows += [operator(f"aten::{name}", n, 2.0) for name in ("embedding", "layer_norm", "softmax")]
        rows.append(of_range("ProfilerStep*", n, wall, own_us=self.between_us))
        rows.append(span("ProfilerStep*", n, wall))
        end = max(gpu / n - host - self.between_us, 0.0)
        return [*rows, call("cudaDeviceSynchronize", 1, n * end)] if end else rows


SCENES: dict[str, tuple[Scene, str | None, Sequence[str]]] = {
    # products of 200 us keep the GPU busy: nothing to win on the host
    "healthy": (Scene(), None, ("launches-outlast-kernels", "gpu-idle-in-sums", "host-waits")),
    "launch-bound": (Scene(product_us=4.0, small=100), "launches-outlast-kernels", ("gpu-idle-in-sums",)),
    "near miss: kernels as long as their launches": (
        Scene(product_us=14.0),
        None,
        ("launches-outlast-kernels", "gpu-idle-in-sums"),
    ),
    "graphs replay them": (Scene(product_us=4.0, graphs=True), None, ("launches-outlast-kernels",)),
    "code between steps": (Scene(between_us=40_000.0), "gpu-idle-in-sums", ("launches-outlast-kernels",)),
    "near miss: little code between steps": (
        Scene(between_us=24_000.0),
        None,
        ("gpu-idle-in-sums", "launches-outlast-kernels"),
    ),
    "graphs and code between": (
        Scene(graphs=True, between_us=40_000.0),
        "gpu-idle-in-sums",
        ("launches-outlast-kernels",),
    ),
    "data loader": (Scene(loading_us=40_000.0), "loading-in-sums", ("launches-outlast-kernels",)),
    "results read in every layer": (
        Scene(products=20, product_us=100.0, reads=30, read_us=70.0),
        "readback-per-layer",
        ("launches-outlast-kernels",),
    ),
    "near miss: one read a step": (Scene(reads=1, read_us=500.0), None, ("readback-per-layer", "host-waits")),
    "elementwise work": (
        Scene(product_us=100.0, small=2000, small_us=5.0, operator_us=1.0, launch_us=1.0),
        "unfused-elementwise",
        ("launches-outlast-kernels",),
    ),
}


def told(folder: Path, rows: Sequence[Sum], **options: object) -> Diagnosis:
    path = folder / "table.txt"
    path.write_text(table(rows, **options))
    return advisor.diagnose(path)


@pytest.mark.parametrize(("scene", "first", "never"), SCENES.values(), ids=SCENES)
def test_the_first_cause(tmp_path: Path, scene: Scene, first: str | None, never: Sequence[str]) -> None:
    found = ranked(told(tmp_path, scene.rows()))
    assert (found[0] if found else None) == first, found
    assert not set(never) & set(found)


@pytest.mark.parametrize("limit", [6, 10])
def test_a_table_of_the_largest_rows_says_the_same(tmp_path: Path, limit: int) -> None:
    rows = Scene(product_us=4.0, small=100).rows()
    found = ranked(told(tmp_path, rows, limit=limit, order=lambda r: r.device))
    assert found[0] == "launches-outlast-kernels"


@pytest.mark.parametrize("limit", [2, 3])
def test_a_busy_gpu_is_not_launch_bound_because_the_wait_for_it_was_cut_off(
    tmp_path: Path, limit: int
) -> None:
    """The host waits 19 of 20 ms for the GPU in a call that the largest rows by GPU time leave out."""
    scene = Scene(products=10, product_us=2_000.0, operator_us=40.0)
    rows = [r for r in scene.rows() if "Step" not in r.name]
    found = told(tmp_path, rows, limit=limit, order=lambda r: r.device)
    assert "launches-outlast-kernels" not in ranked(found)
    assert "GPU work takes up to 100 %" in found.verdict
    assert "stand in rows that were not pasted" in " ".join(found.inputs[0].warnings)


def test_kernels_of_many_launches_are_not_held_up_by_launching(tmp_path: Path) -> None:
    """The host takes 180 us for each kernel of 150 us, which is no launching: other code takes it."""
    scene = Scene(products=100, product_us=150.0, operator_us=175.0)
    assert "launches-outlast-kernels" not in ranked(told(tmp_path, scene.rows()))
    found = ranked(told(tmp_path, replace(scene, between_us=12_000.0).rows()))
    assert found[0] == "gpu-idle-in-sums"


def test_operators_without_their_kernels_are_called_operators(tmp_path: Path) -> None:
    rows = [operator("aten::mm", 4_000, 30.0, device=40_000.0)]
    found = told(tmp_path, rows)
    assert ranked(found)[0] == "launches-outlast-kernels"
    assert found.findings[0].message.startswith("4,000 operators whose kernels take 10 us on average")


def test_a_table_of_torch_1_4_is_not_said_to_lack_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(old_table([operator("aten::mm", 100, 5_700.0, device=870_000.0)]))
    found = advisor.diagnose(path)
    assert not {"no-gpu-activity", "launches-outlast-kernels"} & set(ranked(found))
    assert "CUDA total (870 ms in all)" in found.inputs[0].warnings[0]


def test_the_data_loader_is_named(tmp_path: Path) -> None:
    found = ranked(told(tmp_path, Scene(loading_us=40_000.0).rows()))
    assert "loading-in-sums" in found
    assert "loading-in-sums" not in ranked(told(tmp_path, Scene(loading_us=1_000.0).rows()))


def test_first_time_work_is_named(tmp_path: Path) -> None:
    rows = [*Scene().rows(), operator("aten::conv2d", 1, 3_000_000.0)]
    assert "first-time-work" in ranked(told(tmp_path, rows))
    rows = [*Scene().rows(), operator("aten::conv2d", 1, 30_000.0)]
    assert "first-time-work" not in ranked(told(tmp_path, rows))


def test_a_table_of_the_host_alone_says_what_it_hides(tmp_path: Path) -> None:
    rows = [r for r in Scene().rows() if not r.gpu]
    found = told(tmp_path, rows, backend=None)
    assert found.findings[0].cause == "no-gpu-activity"
    assert "no columns of the GPU" in found.findings[0].message
    assert "record-cuda-activity" in [r.id for r in found.findings[0].recommendations]


def test_the_table_that_vllm_writes(tmp_path: Path) -> None:
    """Its ranges count the steps, on the host and once more on the GPU; graphs launch the kernels."""
    name = "execute_context_0(0)_generation_8(8)"
    rows = [
        of_range(name, 20, 1_200.0, own_us=900.0), span(name, 20, 5_200.0),
        of_range("execute_context_1(512)_generation_7(7)", 1, 9_000.0, own_us=2_000.0),
        span("execute_context_1(512)_generation_7(7)", 1, 11_000.0),
        call("cudaGraphLaunch", 20, 300.0), call("cudaEventSynchronize", 21, 4_100.0),
        kernel(GEMM, 2_000, 40.0), kernel("reshape_and_cache_flash_kernel<bf16>(int)", 640, 2.0),
        kernel("void vllm::act_and_mul_kernel<c10::BFloat16>(int)", 640, 3.0), kernel(FLASH, 640, 20.0),
    ]  # fmt: skip
    found = told(tmp_path, rows)
    assert fact(found, "capture.step_count", None) == 21
    assert fact(found, "sums.kernel_ms") == pytest.approx(96.0)
    assert found.inputs[0].serving_engine == "vllm"
    assert not {"launches-outlast-kernels", "gpu-idle-in-sums", "host-waits"} & set(ranked(found))


def test_a_wait_for_what_began_before_is_no_idle_gpu(tmp_path: Path) -> None:
    rows = [*Scene(steps=1).rows(), call("cudaMemcpyAsync", 1, 460_000.0)]
    found = ranked(told(tmp_path, [r for r in rows if "Step" not in r.name]))
    assert "gpu-idle-in-sums" not in found


def test_a_trace_is_what_answers_more(tmp_path: Path) -> None:
    found = told(tmp_path, Scene(product_us=4.0, small=100).rows())
    assert "prof.export_chrome_trace" in found.verdict
    assert "nsys export" not in found.verdict
    ids = [r.id for r in found.findings[0].recommendations]
    assert "export-trace" in ids
    assert "export-again" not in ids


#: Trace -> first causes of its own table; sums cannot tell what bounds a GPU that works all the time.
AGREE = {
    "decode_eager": {"launches-outlast-kernels"},
    "decode_sync": {"launches-outlast-kernels"},
    "hf_generate": {"launches-outlast-kernels"},
    "decode_graph": {"unfused-elementwise"},
    "prefill8b_bs4": {"unfused-elementwise", "gpu-fills-the-time"},
}


@pytest.mark.parametrize("name", AGREE)
def test_the_table_of_a_trace_says_what_the_trace_says(tmp_path: Path, name: str) -> None:
    path = SHARED / "kineto" / f"{name}.json.gz"
    path = EXAMPLE if name == "decode_graph" else path
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    found = ranked(told(tmp_path, averages(path)))
    assert found[0] in AGREE[name], found


def test_rows_that_were_cut_or_torn_lower_the_confidence(tmp_path: Path) -> None:
    rows = sorted(Scene(product_us=4.0, small=100).rows(), key=lambda r: -r.self_device - r.self_host)
    text = table(rows)
    torn = [line[:90] if "aten::mm" in line else line for line in text.splitlines()]
    sure = {}
    for name, printed in (("whole", text), ("cut", table(rows, limit=5)), ("torn", "\n".join(torn))):
        path = tmp_path / f"{name}.txt"
        path.write_text(printed)
        found = advisor.diagnose(path)
        sure[name] = next(f for f in found.findings if f.cause == "launches-outlast-kernels").confidence
        assert (fact(found, "sums.listed_ratio", None) == 1.0) == (name == "whole")
    assert sure["whole"] > sure["cut"]
    assert sure["whole"] > sure["torn"]


def test_the_page_of_agreements_names_why_sums_cannot_tell() -> None:
    agreement = script("benchmarks/agreement.py")
    first, mine = ("launch-bound", "tiny-copies"), ("launches-outlast-kernels",)
    same = agreement.Row("a", first, mine)
    apart = agreement.Row("b", ("tail-latency",), ("copy-time",))
    late = agreement.Row("c", ("tail-latency", "transfer-bound"), ("copy-time",))
    assert [r.agrees for r in (same, apart, late)] == [True, False, False]
    assert [r.names_another for r in (same, apart, late)] == [False, True, False]
    text = agreement.page([same, apart, late])
    assert "1 of 3 tables name the same first cause" in text
    assert "Of the other 2, 1 name one first that the trace has not at all" in text
    assert "sums hold no single call" in text
    page = (agreement.ROOT / "benchmarks" / "agreement.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if "| no |" in line]
    assert rows
    assert not [row for row in rows if row.endswith("| no |  |")]
