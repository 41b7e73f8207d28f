"""Uploads: through pageable memory, from pinned memory, and hidden behind kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.machine import Machine
from tests.scenarios.support import HOST_SIDE, alarms, diagnosed, expect, fact, ranked

MIB = 1024


def upload(memory: str, gb_per_s: float, stream: int = 7) -> Machine:
    """16 MiB a step before one millisecond of kernels."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.copy("HtoD", 16 * MIB, memory, gb_per_s=gb_per_s, stream=stream)
            m.replay(22)
            if stream == 7:
                m.wait()
    return m


def test_pageable_uploads(tmp_path: Path) -> None:
    d = diagnosed(upload("pageable", 8), tmp_path)
    expect(d, "transfer-bound", "pageable-copies", never=("host-gap", "launch-bound", "slow-link"))
    assert fact(d, "copy.pageable_ratio") == pytest.approx(0.68, abs=0.02)


def test_pinned_uploads_on_the_stream_of_the_kernels(tmp_path: Path) -> None:
    d = diagnosed(upload("pinned", 50), tmp_path)
    expect(d, "transfer-bound", never=("pageable-copies", "host-gap", "launch-bound", "slow-link"))
    assert fact(d, "copy.exposed_ratio") == pytest.approx(0.27, abs=0.02)


def test_pinned_uploads_over_half_a_link(tmp_path: Path) -> None:
    d = diagnosed(upload("pinned", 20), tmp_path)
    expect(d, "transfer-bound", also=("slow-link",), never=("pageable-copies",))
    assert fact(d, "copy.link_rate_ratio") == pytest.approx(20 / 55, abs=0.01)


def test_uploads_hidden_behind_kernels(tmp_path: Path) -> None:
    d = diagnosed(upload("pinned", 50, stream=9), tmp_path)
    assert ranked(d) == []
    assert alarms(d) == []
    assert not HOST_SIDE & {f.cause for f in d.findings}
    assert fact(d, "copy.link_time_ratio") == pytest.approx(0.33, abs=0.03)
    assert fact(d, "copy.exposed_ratio") < 0.03  # type: ignore[operator]
