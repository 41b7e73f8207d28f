"""Parts of a step that repeat as regularly as steps do: layers, drafts, networks in turn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from advisor import diagnose
from advisor.metrics.steps.model import Steps
from advisor.reports.blocks import Labelled
from advisor.reports.phrases import header
from tests.builder import Export
from tests.metrics.support import analysis

US = 1_000
ADAM = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>(int)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>()"
LOSS = "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)"
LAYER = ["norm_kernel", "ampere_sgemm_128x64_tn", "flash_fwd_kernel", "gelu_kernel"]
BACK = ["norm_grad_kernel", "ampere_sgemm_128x64_nt", "flash_bwd_kernel"]


def program(passes: Iterable[list[str]], pause: int = 0) -> Export:
    """Kernels of 3 us launched every 10 us, `pause` us more before each pass."""
    export, at = Export().process(1), 0
    for kernels in passes:
        at += pause * US
        for name in kernels:
            export.launch(at=at, dur=2 * US, kernel=name, kernel_start=at + 4 * US, kernel_dur=3 * US)
            at += 10 * US
    return export


def found(export: Export, folder: Path) -> tuple[int, bool]:
    steps: Steps = analysis(export, folder).repeated
    return len(steps), steps.believed


@pytest.mark.parametrize(
    ("step", "believed"),
    [
        pytest.param([*LAYER * 12, *[*BACK, ADAM] * 12], False, id="an optimizer in every layer"),
        pytest.param([*LAYER * 12, LOSS, *[*BACK, ADAM] * 12], True, id="with a loss in every step"),
        pytest.param([*[*LAYER, ARGMAX, *BACK] * 8, LAYER[1]], False, id="routers by argmax"),
        pytest.param([*LAYER * 12, "gelu_kernel"], False, id="no kernel comes once a pass"),
    ],
)
def test_parts_that_stand_out_at_a_constant_stride_lie_in_a_step(
    tmp_path: Path, step: list[str], believed: bool
) -> None:
    assert found(program([step] * 10), tmp_path) == (10, believed)


def test_operators_in_ranges_are_no_steps(tmp_path: Path) -> None:
    """As `emit_nvtx` writes them: each a range with its arguments, 24 products in one pass."""
    export = Export().process(1)
    for i in range(24):
        at = i * 100 * US
        export.range(f"aten::linear, op_id = {i}, sizes = [[512, 768], [768]]", at, at + 60 * US)
        for k, name in enumerate(LAYER):
            export.launch(
                at=at + k * 10 * US,
                dur=2 * US,
                kernel=name,
                kernel_start=at + (k * 10 + 4) * US,
                kernel_dur=3 * US,
            )
    steps = analysis(export, tmp_path).repeated
    assert (steps.host_end - steps.host_start).max(initial=0) != 60 * US
    assert not steps.believed


def test_parts_with_a_pause_before_every_twelfth(tmp_path: Path) -> None:
    step = [*BACK, ADAM] * 12
    assert found(program([step] * 10, pause=500), tmp_path) == (10, False)


def test_a_training_loop_that_evaluates_now_and_then(tmp_path: Path) -> None:
    """Every tenth iteration is longer; each holds layers, so it is a pass."""
    step = [*LAYER * 6, *BACK * 6, ADAM]
    steps = [step, *[step] * 9, [*LAYER * 6, *step]] * 4
    assert found(program(steps), tmp_path) == (44, True)


def test_passes_of_two_lengths_in_turn_whose_results_the_host_reads(tmp_path: Path) -> None:
    export, at = Export().process(1), 0
    for i in range(20):
        for name in [*LAYER * (8 + 4 * (i % 2)), ARGMAX]:
            export.launch(at=at, dur=2 * US, kernel=name, kernel_start=at + 4 * US, kernel_dur=3 * US)
            at += 10 * US
        export.copy(at, 5 * US, "DtoH", 4, "pinned", at + US, 2 * US)
        at += 10 * US
    assert found(export, tmp_path) == (20, True)


def test_kernels_without_a_matrix_product_are_no_pass_of_a_model(tmp_path: Path) -> None:
    export = program([["sampleRays(Ray*, int)", "embedParticles(float*)"]] * 50)
    assert found(export, tmp_path) == (0, False)


def test_graphs_of_pieces_with_a_pause_after_every_step(tmp_path: Path) -> None:
    export, at = Export().process(1), 0
    for i in range(6 * 24):
        at += 400 * US if i % 24 == 0 else 0
        export.graph_launch(at, 10 * US, [(f"k{k}", at + (20 + 6 * k) * US, 5 * US) for k in range(10)])
        at += 80 * US
    assert found(export, tmp_path) == (6, False)


@pytest.mark.parametrize("place", [0, 3, 30, 57])
def test_the_kernel_that_marks_steps_may_stand_anywhere_in_them(tmp_path: Path, place: int) -> None:
    step = [f"k{i}" for i in range(57) for _ in range(1 + (i == 20))]
    step.insert(place, "marker")
    export = program([step] * 8)
    steps = analysis(export, tmp_path).repeated
    sizes = {int((steps.op_step == i).sum()) for i in range(len(steps))}
    assert (len(steps), sizes) == (8, {len(step)})


def test_steps_that_are_not_certain_count_nothing_by_step(tmp_path: Path) -> None:
    """Ten steps at 50 %: counts are by kernels, nothing is set aside as the first step, and the header
    says how many parts repeat with its confidence."""
    export = program([[*LAYER * 12, "gelu_kernel"]] * 10)
    a = analysis(export, tmp_path)
    assert (len(a.repeated), a.step_count) == (10, 0)
    assert set(a.rates(a.main_device, {"launch.calls": 4})) == {"launch.calls_per_100_kernels"}
    assert (a.window.start, a.window.end) == (a.ops.start[0], a.ops.end.max())
    d = diagnose(export.write(tmp_path / "t.sqlite"))
    (steps,) = (b.text for b in header(d) if isinstance(b, Labelled) and b.label == "steps")
    assert steps == "not found; 10 parts that repeat may be layers (from kernel sequence, 50 % sure)"
    assert "a step" not in " ".join(f.message for f in d.findings)
