"""Share of the kernel time that is mapped to a named operation, for each capture.

    python benchmarks/mapped.py [CAPTURE|FOLDER...]      (default: the captures of this repository)

What only a catch-all of knowledge/kernel_families.yaml takes (`other`, `other ATen kernel`) counts
as unnamed; its largest kernels are printed.
The whole capture counts, warm-up and start-up included.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.metrics.profiled.stage import measure
from advisor.pipeline.diagnose import open_trace
from advisor.pipeline.inputs import expand

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = (ROOT / "examples" / "captures", ROOT / "tests" / "data" / "captures")
_SHOWN = 3


def mapped_share(path: Path) -> tuple[float | None, list[tuple[str, float]]]:
    """The share, None without kernels, and the largest unnamed kernels with theirs."""
    with open_trace(path) as trace:
        if not trace.has("kernels"):
            return None, []
        names = measure(trace).names
        span = trace.columns("kernels", ("start", "end"))
        time = np.bincount(names.index, span["end"] - span["start"], minlength=len(names.ids))
    other = np.array([operation.startswith("other") for operation in names.operations])
    total = max(float(time.sum()), 1.0)
    largest = sorted(np.flatnonzero(other).tolist(), key=lambda i: -time[i])[:_SHOWN]
    return 1.0 - float(time[other].sum()) / total, [(names.texts[i], float(time[i]) / total) for i in largest]


def main(argv: Sequence[str]) -> int:
    for path in expand([Path(a) for a in argv] or COMMITTED):
        try:
            share, rest = mapped_share(path)
        except InputError as error:
            print(f"{path.name}: {error}")
            continue
        print(f"{'no kernels' if share is None else f'{share:10.2%}'}  {path.name}")
        for name, part in rest:
            print(f"{part:14.2%}  {name[:100]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
