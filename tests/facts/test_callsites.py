"""Evidence `call_sites.*`: who makes the calls, by backtrace, CPU sample or range; by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.knowledge.files import call_site_patterns
from advisor.metrics.budgeted.callsites import function_name
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import FactBase, Scope, Table
from advisor.sources.kineto.reader import RECORDER as PYTORCH
from advisor.sources.nsys.metadata import NSYS
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.metrics.support import analysis

STEPS = 5
STEP = 1_000_000

CUDA = [("0x7f00", "/usr/lib64/libcuda.so.580.1"), ("cudaX", "/opt/cuda/lib64/libcudart.so.12")]
MAIN = [("main", "/app/serve"), ("__libc_start_main", "/lib64/libc-2.31.so"), ("_start", "/app/serve")]
SAMPLE = [*CUDA, ("sample_token(Logits&)", "/app/serve"), ("decode()", "/app/serve"), *MAIN]
STATS = [*CUDA, ("Stats::print(bool) const", "/app/serve"), *MAIN]


def facts(export: Export, folder: Path) -> FactBase:
    return build_facts(analysis(export, folder))


def tables(export: Export, folder: Path) -> dict[str, Table]:
    """`call_sites.*` of the first device, by what follows the dot."""
    return {
        name.removeprefix("call_sites."): found
        for (name, scope), found in facts(export, folder).tables.items()
        if name.startswith("call_sites.") and scope == Scope(device=0)
    }


def table(export: Export, folder: Path, group: str) -> Table:
    return tables(export, folder)[group]


def decode(*, chains: tuple[int | None, int | None] = (None, None), export: Export | None = None) -> Export:
    """Five steps of 1 ms: kernels at [10, 110) and [160, 260) us, each waited for.

    The wait for the first lasts [20, 115) us and the next launch comes at 150 us; the wait for
    the second lasts [165, 265) us and the next step's launch comes 735 us later. The window is
    the four steps from the second on.
    """
    export = Export().gpu().process(1) if export is None else export
    for i in range(STEPS):
        t = i * STEP
        export.range(f"iteration {i}", t, t + 300_000)
        export.launch(t, 5_000, "gemm", t + 10_000, 100_000)
        export.call("cudaStreamSynchronize_v3020", t + 20_000, 95_000, callchain=chains[0])
        export.launch(t + 150_000, 5_000, "gemm", t + 160_000, 100_000)
        export.call("cudaDeviceSynchronize_v3020", t + 165_000, 100_000, callchain=chains[1])
    return export


# ------------------------------------------------------------------------------- backtraces


def test_calling_functions_with_their_calls_time_and_idle(tmp_path: Path) -> None:
    export = decode(chains=(1, 2)).callchain(1, SAMPLE).callchain(2, STATS)
    found = table(export, tmp_path, "sync")
    assert found.title == "Where the waiting calls come from, by CUDA backtraces, share of their time"
    assert found.columns == (
        "called from",
        "call",
        "calls",
        "a step",
        "total:ms",
        "share:ratio",
        "GPU idle:ms",
    )
    # Idle while and after the first wait: [110, 150) us of four steps. The second wait returns
    # 5 us into a gap whose rest is too long to be its refill; the last gap lies outside.
    assert found.rows == (
        (
            "main > decode > sample_token",
            "cudaStreamSynchronize",
            4,
            1.0,
            0.38,
            pytest.approx(0.38 / 0.78),
            0.16,
        ),
        ("main > Stats::print", "cudaDeviceSynchronize", 4, 1.0, 0.4, pytest.approx(0.4 / 0.78), 0.015),
    )


def test_calls_below_the_threshold_of_the_backtrace_come_last(tmp_path: Path) -> None:
    """nsys takes backtraces of calls over 80 us only, unless told otherwise."""
    export = decode(chains=(0, 2)).callchain(2, STATS)
    rows = table(export, tmp_path, "sync").rows
    assert [r[:3] for r in rows] == [
        ("main > Stats::print", "cudaDeviceSynchronize", 4),
        ("(without a backtrace)", "cudaStreamSynchronize", 4),
    ]


def test_backtraces_of_other_calls_do_not_name_these(tmp_path: Path) -> None:
    export = decode(chains=(1, 2)).callchain(1, SAMPLE).callchain(2, STATS)
    assert tables(export, tmp_path).keys() == {"sync"}


def test_calls_of_one_function_from_one_place_are_one_row(tmp_path: Path) -> None:
    """nsys stores a chain a call, so equal ones have many ids; addresses may differ."""
    export = Export().gpu().process(1)
    for i in range(STEPS):
        t = i * STEP
        export.range(f"iteration {i}", t, t + 300_000)
        export.callchain(i + 1, [(f"0x7f{i}0", CUDA[0][1]), *SAMPLE[1:]])
        export.call("cudaLaunchKernel_v7000", t, 5_000, callchain=i + 1)
        export.kernel(t + 10_000, 100_000)
    rows = table(export, tmp_path, "launch").rows
    assert [r[:4] for r in rows] == [("main > decode > sample_token", "cudaLaunchKernel", 4, 1.0)]


TORCH = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"
TO = [
    *CUDA,
    ("at::native::copy_kernel_cuda(at::TensorIterator&, bool)", TORCH),
    ("torch::autograd::THPVariable_to(_object*, _object*)", TORCH),
    ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"),
    ("0x0", "[Unknown]"),
    ("[Broken backtraces]", "[Broken backtraces]"),
]


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        (TO, "torch::autograd::THPVariable_to > at::native::copy_kernel_cuda"),
        ([*TO[:4], ("sample (model.py:12)", "/app/model.py"), *TO[4:]], "sample (model.py:12)"),
        (
            [*CUDA, ("0x55", "/x/nvidia/cublas/lib/libcublasLt.so.12"), ("0x56", "/opt/libmine.so")],
            "[libmine.so]",
        ),
        # A kernel's stub has the kernel's name; wrappers of the runtime are no callers.
        (
            [
                ("cudaError cudaLaunchKernel<char>(char const*, dim3)", "/app/x"),
                ("saxpy(double*)", "/app/x"),
                ("saxpy(double*)", "/app/x"),
                *MAIN,
            ],
            "main > saxpy",
        ),
    ],
)
def test_frames_that_name_a_site(tmp_path: Path, frames: Iterable[tuple[str, str]], site: str) -> None:
    rows = table(decode(chains=(1, None)).callchain(1, frames), tmp_path, "sync").rows
    assert rows[0][0] == site


@pytest.mark.parametrize(
    "frames",
    [
        CUDA,
        [*CUDA, ("_start", "/app/serve")],
        [("0x1", "/usr/lib/x86_64-linux-gnu/libc.so.6"), ("clone3", "/lib64/libc.so.6")],
        [("0x1", "/opt/nsight/target-linux-x64/libToolsInjection64.so")],
    ],
)
def test_chains_that_name_nobody(tmp_path: Path, frames: Iterable[tuple[str, str]]) -> None:
    export = decode(chains=(1, None)).callchain(1, frames)
    assert tables(export, tmp_path).keys() == {"flag"}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("main", "main"),
        ("void at::native::f<float, at::A<int> >(at::Tensor&, int)", "at::native::f"),
        ("at::(anonymous namespace)::g(int)", "at::g"),
        ("std::vector<int> my::h<int>(std::vector<int> const&)", "my::h"),
        ("my::F::operator()(int) const", "my::F::operator()"),
        ("void my::f(int)::{lambda(int)#1}::operator()<int>(int) const", "my::f"),
        ("bool my::operator<< <int>(my::A<int> const&)", "my::operator"),
        ("decode_step (model.py:42)", "decode_step (model.py:42)"),
        ("0x7fd990700588", ""),
        ("", ""),
    ],
)
def test_function_name(symbol: str, name: str) -> None:
    assert function_name(symbol) == name


def test_an_application_may_be_called_like_a_verb_of_cuda() -> None:
    frame = call_site_patterns().frame
    assert frame("run_step", "/app/x") == frame("launch_all", "/app/x") == "application"
    assert frame("customCuda", "/app/libcudaish_app") == "application"
    assert frame("cudaMemcpy_ptsz", "/app/x") == "below"


# ------------------------------------------------------------------------------- CPU samples


def sampled(first: int, second: int) -> Export:
    """`first` samples of four steps' stream waits together, `second` of their device waits."""
    export = decode()
    for count, offset, frames in ((first, 20_000, SAMPLE), (second, 165_000, STATS)):
        for k in range(count):
            export.host_sample((1 + k % 4) * STEP + offset + 1_000 * (k // 4), frames)
    return export


def test_samples_divide_the_time_of_the_calls(tmp_path: Path) -> None:
    export = sampled(15, 5)
    export.thread(99).host_sample(STEP + 30_000, SAMPLE)  # another thread's
    export.thread(1).host_sample(STEP + 130_000, SAMPLE)  # between calls
    found = table(export, tmp_path, "sync")
    assert (
        found.title
        == "Where the waiting calls come from, by CPU samples (20 in 8 calls), share of their time"
    )
    assert found.columns == ("called from", "call", "samples", "total:ms", "share:ratio")
    assert found.rows == (
        (
            "main > decode > sample_token",
            "cudaStreamSynchronize",
            15,
            pytest.approx(0.585),
            pytest.approx(0.75),
        ),
        ("main > Stats::print", "cudaDeviceSynchronize", 5, pytest.approx(0.195), pytest.approx(0.25)),
    )


def test_few_samples_do_not_speak_for_the_calls(tmp_path: Path) -> None:
    export = sampled(15, 4).range("sampling", STEP + 10_000, STEP + 140_000)
    found = table(export, tmp_path, "sync")
    assert found.title == "Where the waiting calls come from, by enclosing ranges, share of their time"


def test_backtraces_go_before_samples(tmp_path: Path) -> None:
    export = sampled(20, 20).callchain(900, STATS)
    export.call("cudaStreamSynchronize_v3020", 2 * STEP + 500_000, 1_000, callchain=900)
    assert "backtraces" in table(export, tmp_path, "sync").title


# ------------------------------------------------------------------------------- ranges


def in_every_step(export: Export, text: str, lo: int, hi: int) -> Export:
    for i in range(STEPS):
        export.range(text.format(i=i), i * STEP + lo, i * STEP + hi)
    return export


def sites(export: Export, folder: Path, group: str = "sync") -> list[tuple[object, ...]]:
    return [r[:3] for r in table(export, folder, group).rows]


STREAM, DEVICE = "cudaStreamSynchronize", "cudaDeviceSynchronize"


def test_the_innermost_range_that_is_no_step(tmp_path: Path) -> None:
    export = decode()
    in_every_step(export, "model", 1_000, 290_000)
    in_every_step(export, "decode_step", 2_000, 289_000)  # a step, too
    in_every_step(export, "sampling", 15_000, 140_000)
    in_every_step(export, "Holding GIL", 16_000, 139_000)
    found = table(export, tmp_path, "sync")
    assert found.columns[0] == "range"
    assert [r[:3] for r in found.rows] == [("sampling", STREAM, 4), ("model", DEVICE, 4)]
    assert found.rows[0][3:] == (1.0, 0.38, pytest.approx(0.38 / 0.78), 0.16)


def test_calls_outside_of_ranges_come_last(tmp_path: Path) -> None:
    export = in_every_step(decode(), "report", 160_000, 290_000)
    assert sites(export, tmp_path) == [("report", DEVICE, 4), ("(outside of ranges)", STREAM, 4)]


def test_a_range_of_another_thread_encloses_nothing(tmp_path: Path) -> None:
    export = decode().thread(7)
    in_every_step(export, "loader", 0, 300_000)
    assert tables(export, tmp_path).keys() == {"flag"}


def test_ids_are_stripped_and_numbered_layers_are_one_site(tmp_path: Path) -> None:
    export = in_every_step(decode(), "layer.{i}.mlp, op_id = 77{i}", 15_000, 140_000)
    in_every_step(export, "head 2, seq = {i}, op_id = 9{i}", 160_000, 290_000)
    assert sites(export, tmp_path) == [("layer.#.mlp", STREAM, 4), ("head #", DEVICE, 4)]


def test_a_range_that_is_alone_keeps_its_number(tmp_path: Path) -> None:
    export = decode().range("layer 31", STEP + 10_000, STEP + 140_000)
    assert sites(export, tmp_path)[0] == ("layer 31", STREAM, 1)


def test_operation_ranges_serve_where_no_other_range_does(tmp_path: Path) -> None:
    export = in_every_step(decode(), "aten::item, seq = 1{i}, op_id = 5{i}", 12_000, 141_000)
    in_every_step(export, "aten::_local_scalar_dense, op_id = 6{i}", 13_000, 140_000)
    in_every_step(export, "check", 160_000, 290_000)
    in_every_step(export, "aten::item, seq = 2{i}, op_id = 7{i}", 161_000, 280_000)
    assert sites(export, tmp_path) == [
        ("aten::item > aten::_local_scalar_dense", STREAM, 4),
        ("check", DEVICE, 4),
    ]


# ------------------------------------------------------------------------------- neither


def test_without_any_of_them_one_row_says_what_would_tell(tmp_path: Path) -> None:
    found = tables(decode(), tmp_path)
    assert found.keys() == {"flag"}
    assert found["flag"].title == "The calling functions are not recorded"
    assert found["flag"].columns == ("capture with",)
    assert found["flag"].rows == ((NSYS.backtraces,),)
    assert NSYS.backtraces is not None
    assert NSYS.backtraces.startswith("--cudabacktrace=kernel")
    assert len(NSYS.backtraces) <= 75  # a line of a terminal, uncut


def test_without_nvtx_a_second_row_asks_for_that(tmp_path: Path) -> None:
    found = tables(decode().without_tables("NVTX_EVENTS"), tmp_path)
    assert found["flag"].rows == ((NSYS.backtraces,), ("--trace=cuda,nvtx",))


def test_without_calls_nothing_is_asked_for(tmp_path: Path) -> None:
    export = Export().gpu().process(1).kernel(0, 10_000, correlation=0)
    assert tables(export.kernel(20_000, 10_000, correlation=0), tmp_path) == {}


@pytest.mark.parametrize("op", [True, False])
def test_a_trace_of_the_pytorch_profiler(tmp_path: Path, op: bool) -> None:
    profile = Profile().gpu().process(100)
    for i in range(STEPS):
        t = i * STEP
        profile.annotation(f"ProfilerStep#{i}", t, 300_000)
        if op:
            profile.op("aten::add", t + 1_000, 20_000)
        profile.launch(t + 2_000, 5_000, "add", t + 10_000, 100_000)
    with open_trace(profile.write(tmp_path / "trace.json")) as trace:
        found = build_facts(measure(trace)).tables
    names = {name: t.rows for (name, _), t in found.items() if name.startswith("call_sites.")}
    if op:
        (row,) = names.pop("call_sites.launch")
        assert row[:3] == ("aten::add", "cudaLaunchKernel", 4)
        assert names == {}
    else:
        assert names == {"call_sites.flag": ((PYTORCH.ranges,),)}


# ------------------------------------------------------------------------------- classes


def test_classes_of_calls(tmp_path: Path) -> None:
    """A blocking copy or memset makes the host wait as well; driver calls inside runtime calls
    and calls of other threads or before the window do not count."""
    export = decode()
    in_every_step(export, "all", 0, 290_000)
    export.call("cudaMalloc", 500, 100)  # in the first step, which is left out
    for i in range(1, STEPS):
        t = i * STEP + 270_000
        export.copy(t, 2_000, "HtoD", copy_start=t + 3_000, copy_dur=500)
        export.memset(t + 4_000, 2_000, memset_start=t + 6_000, api="cudaMemset_v3020")
        export.call("cudaMalloc_v3020", t + 8_000, 2_000)
        export.call("cuMemAlloc_v2", t + 8_500, 1_000, correlation=export.correlation)
        export.call("cudaFree_v3020", t + 11_000, 2_000)
        export.graph_launch(t + 14_000, 1_000, [("node", t + 15_000, 1_000)])
        export.thread(8).call("cudaMalloc_v3020", t, 5_000).thread(1)
    calls = {group: {(r[1], r[2]) for r in found.rows} for group, found in tables(export, tmp_path).items()}
    assert calls == {
        "launch": {("cudaLaunchKernel", 8), ("cudaGraphLaunch", 4)},
        "sync": {(STREAM, 4), (DEVICE, 4), ("cudaMemset", 4)},
        "copy": {("cudaMemcpyAsync", 4), ("cudaMemset", 4)},
        "alloc": {("cudaMalloc", 4), ("cudaFree", 4)},
    }


def test_no_steps_no_calls_a_step(tmp_path: Path) -> None:
    export = Export().gpu().process(1).range("load", 0, 60_000)
    for k in range(4):
        export.launch(k * 10_000, 1_000, f"k{k}", k * 10_000 + 2_000, 5_000)
    (row,) = table(export, tmp_path, "launch").rows
    assert row[:4] == ("load", "cudaLaunchKernel", 3, None)


def test_each_device_has_tables_of_its_own(tmp_path: Path) -> None:
    export = decode()
    in_every_step(export, "first", 0, 290_000)
    export.process(2)
    for i in range(STEPS):
        t = i * STEP
        export.range("second", t, t + 100_000)
        export.launch(t + 1_000, 5_000, "other", t + 10_000, 50_000, device=1)
    found = facts(export, tmp_path)
    names = {
        device: [r[0] for r in t.rows]
        for device in (0, 1)
        if (t := found.table("call_sites.launch", Scope(device=device)))
    }
    assert names == {0: ["first"], 1: ["second"]}
