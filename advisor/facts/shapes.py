"""Launch shapes that change from step to step: what keeps a step from becoming one CUDA graph."""

from __future__ import annotations

import numpy as np

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import dense, shape_key
from advisor.metrics.phases import kernels_of_one_phase
from advisor.model.arrays import Array, distinct
from advisor.model.facts import Scope

_ROWS = 10

FACTS = (
    *group("device", needs.CUDA, [
        Entry("kernel.varying_shape_ratio", "ratio", "kernels", "Share of kernel time in kernels whose launch shape varies between steps", "distinct grids per name and position in the step"),
        Entry("kernel.varying_shape_window_ratio", "ratio", "kernels", "The same as a share of the window", "that share x kernel time / window"),
    ], columns={"kernels": f"{origin.SPAN} name_id {origin.SHAPE}"}, needs=(*needs.more_steps(2, "two steps"), needs.KERNELS, needs.LAUNCH_SHAPES)),
)  # fmt: skip


def shape_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Share of kernel time in names whose launch shapes differ between steps of the commonest
    phase, and the table of those names."""
    if not a.trace.has("kernels") or a.step_count < 2:
        return
    at, step = kernels_of_one_phase(a, device)
    if len(at) == 0:
        return
    row, name = a.ops.row[at], a.op_name[at]
    duration = (a.ops.end - a.ops.start)[at]
    columns = a.trace.columns("kernels", ("grid_x", "grid_y", "grid_z", "threads", "blocks"))
    columns = {k: v[row] for k, v in columns.items()}
    if (columns["blocks"] <= 0).any():
        return  # not recorded
    shape = shape_key(columns)
    varies = _varying(name, step, shape, len(a.names.ids))
    scope = Scope(device=device)
    time = np.bincount(name, duration, minlength=len(a.names.ids))
    whole = max(float(time.sum()), 1.0)
    share = float(time[varies].sum()) / whole
    out.put("kernel.varying_shape_ratio", share, scope)
    out.put("kernel.varying_shape_window_ratio", share * a.budgets[device].share("compute"), scope)
    rows = []
    for i in np.flatnonzero(varies)[np.argsort(-time[varies], kind="stable")][:_ROWS].tolist():
        mine = name == i
        blocks = columns["blocks"][mine]
        rows.append(
            [
                a.names.texts[i],
                a.names.operations[i],
                len(distinct(shape[mine])),
                int(blocks.min()),
                int(blocks.max()),
                int(mine.sum()),
                float(time[i]) / whole,
            ]
        )
    out.table(
        "kernels.shapes",
        scope,
        "Kernels whose launch shape changes between steps, share of the kernel time",
        ("kernel", "operation", "grids", "least blocks", "most blocks", "calls", "share:ratio"),
        rows,
    )


def _varying(name: Array, step: Array, shape: Array, names: int) -> Array:
    """Mask over names: launched with several shapes, and not with the same ones in every step. Only
    which shapes occur counts, not how often: a lost row does not make a new shape."""
    steps = int(step.max(initial=0)) + 1
    _, kind = dense(name * (1 << 24) + shape % (1 << 24))
    _, once = np.unique(kind * steps + step, return_index=True)
    # The sum of the shapes is a fingerprint of their set; exact in float64 up to 2^53.
    cells, cell = dense((name * steps + step)[once])
    sums = np.bincount(cell, shape[once] % (1 << 24), minlength=len(cells))
    most, least = np.zeros(names), np.full(names, np.inf)
    np.maximum.at(most, cells // steps, sums)
    np.minimum.at(least, cells // steps, sums)
    least[np.bincount(cells // steps, minlength=names) < steps] = 0  # not in every step
    of_kind = np.zeros(int(kind.max(initial=0)) + 1, np.int64)
    of_kind[kind] = name
    several = np.bincount(of_kind, minlength=names) > 1
    return np.asarray(several & (most != least))
