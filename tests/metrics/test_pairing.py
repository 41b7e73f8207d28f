"""Two recordings of one program: nsys gives the times, the PyTorch trace the names of what runs.

The program: steps of three layers, each a norm and two products, with a read-back at the end. What launches
each kernel is known, so that every operation can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.errors import InputError
from advisor.facts.catalog import build_facts
from advisor.knowledge.gpus import gpu
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.profiled.stage import Profiled, measure
from advisor.model.facts import TRACE, FactBase, Scope
from advisor.pipeline.diagnose import Options, diagnose
from advisor.pipeline.stats import stats
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.facts.test_values import expect_values
from tests.kineto_builder import Profile
from tests.scenarios.machine import ADD, GEMV, NORM, SILU

LAYERS = 3
STEP = 1_000_000
#: Kernel, ns, the line that launches it, operator, sizes.
LAYER = (
    (NORM, 10_000, "model.py(10): norm", "aten::rms_norm", [[1, 4096]]),
    (GEMV, 40_000, "model.py(20): project", "aten::mm", [[1, 4096], [4096, 8192]]),
    (SILU, 5_000, "model.py(30): act", "aten::silu", [[1, 8192]]),
    (GEMV, 40_000, "model.py(40): down", "aten::mm", [[1, 8192], [8192, 4096]]),
)
PIPE = 25_000
BANDWIDTH = 4.8e12  # of the GPU of the builder, bytes a second


def nsys(steps: int = 6, without: int | None = None, more: int | None = None, blocks: int = 264) -> Export:
    """The same program under nsys; kernel number `without` of a step is lost, after `more` there is one
    more kernel."""
    export = Export().gpu().process(1)
    for step in range(steps):
        at = step * STEP
        export.range(f"decode_step {step}", at, at + 900_000)
        for i in range(LAYERS * len(LAYER)):
            kernel, length, *_ = LAYER[i % len(LAYER)]
            if i != without:
                export.launch(at, 5_000, kernel.name, at + 7_000, length, grid=(blocks, 1, 1))
            at += max(length, PIPE)
            if i == more:
                export.launch(at, 5_000, ADD.name, at + 7_000, 4_000, grid=(blocks, 1, 1))
                at += PIPE
        export.copy(at, 5_000, "DtoH", 4, "pinned", at + 60_000, 2_000)
        export.sync(at + 10_000, 60_000)
    return export


def profile(steps: int = 4, stacks: bool = True, blocks: int = 264, kernels: bool = True) -> Profile:
    """The same program under the PyTorch profiler, with shapes and, if asked, with stacks."""
    p = Profile().gpu().process(1)
    for step in range(steps):
        at = step * 2 * STEP  # it runs half as fast there
        p.annotation(f"decode_step {step}", at, 1_900_000)
        if stacks:
            p.python("nn.Module: Model_0", at, 1_900_000)
        for layer in range(LAYERS):
            if stacks:
                p.python(f"nn.Module: Layer_{layer}", at, len(LAYER) * 90_000)
            for kernel, length, line, operator, sizes in LAYER:
                if stacks:
                    p.python(line, at, 80_000)
                types = ["c10::BFloat16"] * len(sizes)
                p.op(operator, at + 1_000, 70_000, **{"Input Dims": sizes, "Input type": types})
                if kernels:
                    p.launch(at + 2_000, 5_000, kernel.name, at + 10_000, length, grid=(blocks, 1, 1))
                at += 90_000
        p.op("aten::item", at, 200_000)
        if stacks:
            p.python("serve.py(7): sample", at - 1, 210_000)
        if kernels:
            p.copy(at + 10, 5_000, "DtoH (Device -> Pinned)", 4, at + 60_000, 2_000)
            p.sync(at + 10_000, 60_000)
    return p


def analysed(export: Export, trace: Profile, folder: Path) -> Iterator[Profiled]:
    other = trace.write(folder / "trace.json")
    with open_trace(export.write(folder / "report.sqlite")) as first, open_trace(other) as second:
        yield measure(first, other=second)


def lines(a: Profiled) -> list[str | None]:
    """The line that each kernel of the capture is said to come from, in the order of their starts."""
    found = a.provenance.ops
    assert found is not None
    rows = [i for i in range(len(a.ops)) if a.ops.kind[i] == Kind.KERNEL]
    return [found.lines[found.line[i]] if found.line[i] >= 0 else None for i in rows]


TRUE = [line for _ in range(LAYERS) for _, _, line, *_ in LAYER]


@pytest.mark.parametrize("steps", [2, 4, 9])
def test_each_kernel_gets_the_line_that_launched_it(steps: int, tmp_path: Path) -> None:
    """However many steps either recording has."""
    for a in analysed(nsys(steps), profile(4), tmp_path):
        assert lines(a) == TRUE * steps
        match = a.provenance.match
        assert match is not None
        assert (match.by, match.quality, match.same_ratio) == ("steps", 1.0, 1.0)


def test_layers_stay_apart(tmp_path: Path) -> None:
    for a in analysed(nsys(), profile(), tmp_path):
        found = a.provenance.ops
        assert found is not None
        paths = [
            [found.modules[m].name for m in found.path(int(m))] for m in found.module[: LAYERS * len(LAYER)]
        ]
        assert paths == [["Model_0", f"Layer_{i}"] for i in range(LAYERS) for _ in LAYER]


@pytest.mark.parametrize("lost", [0, 5, 11])
def test_a_lost_kernel_moves_no_other(lost: int, tmp_path: Path) -> None:
    for a in analysed(nsys(without=lost), profile(), tmp_path):
        assert lines(a) == [line for i, line in enumerate(TRUE) if i != lost] * 6


def test_a_kernel_that_only_one_recording_has_comes_from_nowhere(tmp_path: Path) -> None:
    for a in analysed(nsys(more=5), profile(), tmp_path):
        assert lines(a) == [*TRUE[:6], None, *TRUE[6:]] * 6


def test_other_batch_keeps_lines_but_no_sizes(tmp_path: Path) -> None:
    """A launch of another shape works on other sizes than the trace recorded."""
    export = nsys()
    for a in analysed(export, profile(blocks=200), tmp_path):
        match, found = a.provenance.match, a.provenance.ops
        assert match is not None
        assert found is not None
        assert match.same_ratio == 0.0
        assert lines(a) == TRUE * 6
        assert (found.operands < 0).all()
        with pytest.raises(InputError, match=r"0 % of the kernels .* launch shape"):
            a.provenance.check()


def test_every_verb_about_one_capture_takes_two_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pair = [str(nsys().write("r.sqlite")), str(profile().write("t.json"))]
    for args in (
        ["show", *pair, "KRN101"],
        ["explain", "KRN101", "--trace", pair[1], "--trace", pair[0]],
        ["whatif", *pair, "--fix", "cuda_graphs"],
    ):
        assert main([*args, "--together"]) == 0
        assert "r.sqlite" in capsys.readouterr().out
    assert main(["show", pair[0], "--together"]) == 2
    assert "--together takes two recordings of one program, not 1" in capsys.readouterr().err
    assert main(["show", *pair, "KRN101"]) == 2
    assert "add --together" in capsys.readouterr().err


def test_another_program_is_refused(tmp_path: Path) -> None:
    other = Profile().gpu().process(1)
    for i in range(40):
        other.launch(i * 100_000, 5_000, ADD.name)
    report, trace = nsys().write(tmp_path / "r.sqlite"), other.write(tmp_path / "t.json")
    with pytest.raises(InputError, match=r"--together: .*t\.json matches 0 % of .*r\.sqlite, less than 75 %"):
        diagnose(report, Options(together=trace))


def test_waits_get_the_line_that_waits(tmp_path: Path) -> None:
    """Calls are told by the launch before them, so that the 6 waits of nsys are those of 4 steps."""
    for a in analysed(nsys(), profile(), tmp_path):
        base = build_facts(a)
        device = Scope(device=0)
        expect_values(
            base,
            {
                "origin.sync_place": "serve.py(7): sample in Model > aten::item",
                "origin.copy_place": "serve.py(7): sample in Model > aten::item",
            },
        )
        assert base.value("origin.launch_place", device) is None  # no line makes half of them


def test_a_trace_without_gpu_work_is_laid_over_by_clock(tmp_path: Path) -> None:
    """Two profilers at once: one of them gets no GPU activity. Both say when they began."""
    other = profile(1, kernels=False).write(tmp_path / "trace.json")
    with open_trace(nsys(2).write(tmp_path / "report.sqlite")) as first, open_trace(other) as second:
        first.capture = first.capture.replaced(start_utc_ns=5_000)
        second.capture = second.capture.replaced(start_utc_ns=5_000 + STEP)
        a = measure(first, other=second)
        # The trace begins with the second step of nsys: its first product lies under the first norm's line.
        assert lines(a)[: LAYERS * len(LAYER)] == [None] * LAYERS * len(LAYER)
        assert lines(a)[LAYERS * len(LAYER)] == "model.py(10): norm"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> FactBase:
    for a in analysed(nsys(), profile(), tmp_path_factory.mktemp("pair")):
        return build_facts(a)
    raise AssertionError


def test_facts_of_a_pair(facts: FactBase) -> None:
    """The two products of a layer multiply by 4096 x 8192 elements of 2 bytes in 40 us each."""
    known = gpu("NVIDIA H200")
    assert known is not None
    expect_values(facts, {"origin.match_ratio": 1.0, "origin.same_shape_ratio": 1.0}, TRACE)
    expect_values(
        facts,
        {
            "origin.operator_ratio": 1.0,
            "origin.module_ratio": 1.0,
            "origin.line_ratio": 1.0,
            "origin.unfused_place": "model.py(10): norm in Layer > aten::rms_norm (67 %)",
            "kernel.matmul_sized_ratio": 1.0,
            "kernel.misaligned_window_ratio": 0.0,
            "kernel.matmul_flop_ratio": 2 * 4096 * 8192 / 40e-6 / (known.tensor_tflops["fp16"] * 1e12),
        },
    )
    # So no --weight-bytes is needed.
    decode = Scope(device=0, phase="decode")
    expect_values(facts, {"phase.gemm_dram_ratio": 4096 * 8192 * 2 / 40e-6 / BANDWIDTH}, decode)


def test_attention_by_its_recorded_sizes(tmp_path: Path) -> None:
    """32 heads of 128 over 8 heads of keys: 4 x 32 x 512 x 512 x 128 operations, and 2 x (32 + 8) x 512
    rows of 128 elements of 2 bytes, in 100 us."""
    p = Profile().gpu().process(1)
    layouts = {
        "aten::_flash_attention_forward": [[1, 512, 32, 128], [1, 512, 8, 128], [1, 512, 8, 128]],
        "aten::_cudnn_attention_forward": [[1, 32, 512, 128], [1, 8, 512, 128], [1, 8, 512, 128]],
        "aten::_efficient_attention_forward": [[512, 32, 128], [512, 8, 128], [512, 8, 128]],  # packed
    }
    for step in range(6):
        at = step * STEP
        p.annotation(f"prefill_step {step}", at, 900_000)
        for operator, sizes in layouts.items():
            p.op(operator, at + 1_000, 70_000, **{"Input Dims": sizes, "Input type": ["c10::BFloat16"] * 3})
            p.launch(at + 2_000, 5_000, "flash_fwd_kernel", at + 10_000, 100_000, grid=(264, 1, 1))
            at += 200_000
    with open_trace(p.write(tmp_path / "t.json")) as trace:
        base = build_facts(measure(trace))
    known = gpu("NVIDIA H200")
    assert known is not None
    flop, size = 4 * 32 * 512 * 512 * 128, 2 * (32 + 8) * 512 * 128 * 2
    expect_values(
        base,
        {
            "kernel.attention_flop_ratio": flop / 100e-6 / (known.tensor_tflops["fp16"] * 1e12),
            "kernel.attention_bandwidth_ratio": size / 100e-6 / BANDWIDTH,
        },
    )
    table = base.table("kernels.attention", Scope(device=0))
    assert table is not None
    assert [row[1] for row in table.rows] == ["1 x 32 heads x 512 x 128 x 512"] * 2


def test_operands_in_the_cache_are_not_held_against_memory(tmp_path: Path) -> None:
    """Keys and values of 8 MiB in 1 us would be 8.8 TB/s; the L2 cache of the GPU holds them."""
    p = Profile().gpu().process(1)
    sizes = [[1, 1, 32, 128], [1, 2048, 8, 128], [1, 2048, 8, 128]]
    large = [sizes[0], [1, 65536, 8, 128], [1, 65536, 8, 128]]
    for step in range(6):
        at = step * STEP
        p.annotation(f"decode_step {step}", at, 900_000)
        for dims, took in ((sizes, 1_000), (large, 100_000)):
            p.op(
                "aten::_flash_attention_forward",
                at + 1_000,
                70_000,
                **{"Input Dims": dims, "Input type": ["c10::BFloat16"] * 3},
            )
            p.launch(at + 2_000, 5_000, "flash_fwd_kernel", at + 10_000, took, grid=(264, 1, 1))
            at += 200_000
    with open_trace(p.write(tmp_path / "t.json")) as trace:
        base = build_facts(measure(trace))
    streamed = 2 * (32 + 65536 * 8) * 128 * 2 / 100e-6 / BANDWIDTH
    expect_values(base, {"kernel.attention_bandwidth_ratio": streamed})


def test_what_was_not_recorded_is_missing(tmp_path: Path) -> None:
    """Without stacks there are operators, and no share of modules or lines that would be 0."""
    with open_trace(profile(stacks=False).write(tmp_path / "t.json")) as trace:
        base = build_facts(measure(trace))
    found = {
        name: base.value(f"origin.{name}_ratio", Scope(device=0)) for name in ("operator", "module", "line")
    }
    assert found == {"operator": 1.0, "module": None, "line": None}


def test_place_of_most_launches_and_allocations(tmp_path: Path) -> None:
    trace = Profile().gpu().process(1)
    for i in range(6):
        at = i * STEP
        trace.annotation(f"decode_step {i}", at, 900_000)
        trace.python("cache.py(5): grow", at, 300_000)
        trace.op("aten::empty", at + 10, 200_000)
        trace.call("cudaMalloc", at + 100, 100_000)
        trace.launch(at + 310_000, kernel=GEMV.name)
    with open_trace(trace.write(tmp_path / "t.json")) as opened:
        base = build_facts(measure(opened))
    expect_values(base, {"origin.alloc_place": "cache.py(5): grow > aten::empty"})
    trace.python("serve.py(3): run", 0, 6 * STEP)
    with open_trace(trace.write(tmp_path / "u.json")) as opened:
        assert (
            build_facts(measure(opened)).value("origin.launch_place", Scope(device=0)) == "serve.py(3): run"
        )


def test_memory_events_of_the_other_recording_count_where_this_one_has_none(tmp_path: Path) -> None:
    """The allocator holds 1 GB, and takes 1 GB more in the first line of every step."""
    other = profile(steps=8)
    for step in range(8):
        other.memory(step * 2 * STEP + 5_000, (step + 1) * 10**9)
    with (
        open_trace(nsys().write(tmp_path / "r.sqlite")) as first,
        open_trace(other.write(tmp_path / "t.json")) as second,
    ):
        base = build_facts(measure(first, other=second))
    expect_values(base, {"memory.growth_bytes": 6e9})
    table = base.table("memory.places", Scope(device=0))
    assert table is not None
    ((place, times, taken),) = table.rows
    assert (place, times, taken) == (f"{LAYER[0][2]} in Layer > {LAYER[0][3]}", 7, 7 * 10**9)


def test_module_tree_of_a_pair(tmp_path: Path) -> None:
    """Self time is that of a module's own launches, total time also of those inside it."""
    other = profile().write(tmp_path / "t.json")
    report = nsys().write(tmp_path / "r.sqlite")
    frame = stats(report, "modules", options=Options(together=other, window="0/"))["modules"]
    layer = 95_000 * 6
    assert frame[["Module", "GPU Ops", "Self (ns)", "Total (ns)"]].to_numpy().tolist() == [
        ["Model_0", 6, 6 * 2_000, 3 * layer + 6 * 2_000],
        *([f"  Layer_{i}", 24, layer, layer] for i in range(LAYERS)),
    ]
    tables = diagnose(report, Options(together=other)).tables
    assert [row[:2] for row in tables["modules"].rows] == [("Model", 1), (". Layer", LAYERS)]
    assert tables["matmuls"].rows[0][:4] == ("aten::mm", "1 x 4096 x 8192", 2, 15)
