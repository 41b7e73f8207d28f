"""GPU time by Python module, as the PyTorch profiler records them with ``with_stack=True``."""

from __future__ import annotations

import numpy as np
import pandas as pd

from advisor.metrics.origins import module_tree
from advisor.metrics.stats.sums import Query


def modules(q: Query) -> pd.DataFrame:
    """The module tree: time on the GPU of what each module launched itself, and with those below it."""
    a, found = q.a, q.a.provenance.ops
    at = np.arange(len(a.ops)) if q.whole else np.flatnonzero(a.in_window)
    duration = (a.ops.end - a.ops.start)[at]
    rows = [] if found is None else module_tree(found, at, duration, apart=True)
    whole = max(int(duration.sum()), 1)
    frame = pd.DataFrame(
        [
            [f"{'  ' * r.level}{r.name}", r.kernels, r.self_ns, r.total_ns, 100 * r.total_ns / whole, r.level]
            for r in rows
        ],
        columns=["Module", "GPU Ops", "Self (ns)", "Total (ns)", "Total (%)", "Level"],
    )
    if rows:
        held = sum(r.total_ns for r in rows if r.level == 0)
        frame.attrs["note"] = f"{held / whole:.1%} of the GPU time lies in modules"
    return frame
