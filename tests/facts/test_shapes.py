"""Kernels whose launch shape changes from step to step; by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.model.facts import FactBase, Scope
from tests.builder import Export
from tests.metrics.support import analysis

DEVICE = Scope(device=0)
STEPS = 5


def decode(folder: Path, name: str, lengths: dict[str, int], grids: dict[str, list[int]]) -> FactBase:
    """Five steps named `name`; `grids[kernel][step]` is the kernel's grid there, 0 for no call."""
    export = Export().gpu().process(1)
    for i in range(STEPS):
        at = i * 1_000_000
        export.range(f"{name} {i}", at, at + 500_000)
        for k, (kernel, per_step) in enumerate(grids.items()):
            if per_step[i]:
                begin = at + k * 50_000
                export.launch(begin, 5_000, kernel, begin + 10_000, lengths[kernel], grid=(per_step[i], 1, 1))
    return build_facts(analysis(export, folder))


def test_kernels_whose_grid_changes(tmp_path: Path) -> None:
    found = decode(
        tmp_path,
        "decode_step",
        {"gemm": 30_000, "scores": 10_000},
        # The first step is outside of the window: its shape does not count.
        {"gemm": [9, 8, 8, 8, 8], "scores": [1, 2, 3, 3, 4]},
    )
    assert found.value("kernel.varying_shape_ratio", DEVICE) == 0.25
    # 10 of 40 us of kernels a step; the window is that of the steps.
    busy = found.value("budget.compute_ratio", DEVICE)
    assert isinstance(busy, float)
    assert found.value("kernel.varying_shape_window_ratio", DEVICE) == pytest.approx(0.25 * busy)
    table = found.table("kernels.shapes", DEVICE)
    assert table is not None
    assert table.columns == (
        "kernel",
        "operation",
        "grids",
        "least blocks",
        "most blocks",
        "calls",
        "share:ratio",
    )
    ((kernel, _, *numbers),) = table.rows
    assert (kernel, numbers) == ("scores", [3, 2, 4, 4, 0.25])


@pytest.mark.parametrize(
    "scores",
    [
        [2, 2, 2, 2, 2],
        [2, 0, 2, 0, 2],  # missing in some steps, but of one shape
    ],
)
def test_a_constant_grid_does_not_vary(tmp_path: Path, scores: list[int]) -> None:
    found = decode(
        tmp_path, "decode_step", {"gemm": 30_000, "scores": 10_000}, {"gemm": [8] * STEPS, "scores": scores}
    )
    assert found.value("kernel.varying_shape_ratio", DEVICE) == 0.0
    assert found.table("kernels.shapes", DEVICE) is None


def test_the_same_shapes_in_every_step_do_not_vary(tmp_path: Path) -> None:
    export = Export().gpu().process(1)
    for i in range(STEPS):
        at = i * 1_000_000
        export.range(f"decode_step {i}", at, at + 500_000)
        for k, grid in enumerate((4, 8) if i % 2 else (8, 4)):
            begin = at + k * 50_000
            export.launch(begin, 5_000, "gemm", begin + 10_000, 20_000, grid=(grid, 1, 1))
    found = build_facts(analysis(export, tmp_path))
    assert found.value("kernel.varying_shape_ratio", DEVICE) == 0.0


def test_one_step_tells_nothing(tmp_path: Path) -> None:
    export = Export().gpu().process(1).range("decode_step 0", 0, 100_000).launch(0, 1_000)
    found = build_facts(analysis(export, tmp_path))
    assert found.value("kernel.varying_shape_ratio", DEVICE) is None
