"""The real captures that many tests look at, and what is said of each, which is found out once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import diagnose

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "captures"
DATA = Path(__file__).parent / "data" / "captures"
#: Captures that are too large for the repository, where a checkout has them beside it.
SHARED = ROOT.parent / "shared" / "traces"


def committed(name: str) -> Path:
    path = EXAMPLES / f"{name}.sqlite.xz"
    return path if path.is_file() else DATA / f"{name}.sqlite.xz"


@cache
def diagnosed(path: Path) -> Diagnosis:
    """What is said of a capture without any option."""
    return diagnose(path)


#: Captures of the repository that take two and more times as long as others.
LARGER = ("decode_eager_bs1", "decode_cpu_gap", "decode8b_graph_bs1", "prefill8b_bs4")


def smaller_of(captures: Iterable[str | Path]) -> list[Any]:
    """Captures of the repository as parameters; the larger ones are slow tests."""
    named = {Path(c).name.partition(".")[0]: c for c in captures}
    return [
        pytest.param(c, id=name, marks=[pytest.mark.slow] if name in LARGER else [])
        for name, c in named.items()
    ]


def each(paths: Iterable[Path]) -> list[Any]:
    """The captures as parameters; those beside the checkout are slow tests."""
    return [
        pytest.param(
            path,
            id=f"{path.parent.name}/{path.name}",
            marks=[] if path.is_relative_to(ROOT) else [pytest.mark.slow],
        )
        for path in paths
    ]
