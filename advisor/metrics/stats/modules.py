"""GPU time by Python module (PyTorch profiler, ``with_stack=True``) and by layer of the model."""

from __future__ import annotations

import numpy as np
import pandas as pd

from advisor.metrics.layers import find_layers
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


def layers(q: Query) -> pd.DataFrame:
    """Layers of the main device: medians over the steps of the commonest phase."""
    found = find_layers(q.a, q.a.main_device)
    if found is None:
        return pd.DataFrame()
    times = found.times((q.a.ops.end - q.a.ops.start)[found.at])
    attention, ffn, other = np.median(times, axis=0).T
    total = np.median(times.sum(axis=2), axis=0)
    frame = pd.DataFrame(
        {
            "Layer": np.arange(found.count), "Steps": len(times), "Total (ns)": total,
            "Share (%)": 100 * total / max(total.sum(), 1), "Attention (ns)": attention, "FFN (ns)": ffn,
            "Other (ns)": other,
        }
    )  # fmt: skip
    frame.attrs["note"] = f"layers by the {found.by}; medians over {len(times)} steps of the commonest phase"
    return frame
