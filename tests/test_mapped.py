"""Kernel names of real captures fall into named operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.scripts import script

mapped = script("benchmarks/mapped.py")
CAPTURES = [path for folder in mapped.COMMITTED for path in sorted(folder.glob("*.sqlite.xz"))]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: p.name.partition(".")[0])
def test_kernel_time_is_mapped_to_named_operations(path: Path) -> None:
    share, rest = mapped.mapped_share(path)
    if share is None:
        pytest.skip("no kernels in this capture")
    assert share > 0.95, rest
