"""Real captures: what a right diagnosis says about each, and what it must not say."""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options, diagnose
from tests.captures import SHARED, committed, diagnosed, smaller_of
from tests.engine.engine_support import needs_durable

HOST_SIDE = {
    "launch-bound",
    "launch-storm",
    "host-gap",
    "graph-replay-gaps",
    "blocking-sync",
    "device-wide-sync",
    "implicit-sync",
    "launch-queue-latency",
    "gpu-idle",
    "transfer-bound",
    "pageable-copies",
}

#: capture -> (causes that may come first, causes that must be there, causes that must not)
COMMITTED: dict[str, tuple[set[str], set[str], set[str]]] = {
    "decode_eager_bs1": (
        {"launch-bound"},
        set(),
        {"memory-bandwidth-bound", "compute-bound", "allocation-churn", "transfer-bound"},
    ),
    "decode8b_graph_bs1": (
        {"memory-bandwidth-bound", "under-filled-gpu", "unfused-elementwise"},
        {"memory-bandwidth-bound"},
        {"compute-bound", *HOST_SIDE},
    ),
    "prefill8b_bs4": (
        {"compute-bound"},
        set(),
        {"memory-bandwidth-bound", "low-gpu-utilisation", *HOST_SIDE},
    ),
    "decode_cpu_gap": (
        {"host-gap", "graph-replay-gaps"},
        set(),
        {"launch-bound", "compute-bound", "memory-bandwidth-bound"},
    ),
    "decode_h2d_pageable": (
        {"transfer-bound", "pageable-copies"},
        {"transfer-bound", "pageable-copies"},
        {"launch-bound", "compute-bound", "memory-bandwidth-bound"},
    ),
    "decode_graph_opaque": ({"opaque-cuda-graphs"}, set(), {"no-gpu-activity", "host-gap", "launch-bound"}),
    "decode_gc": ({"python-gc"}, set(), {"launch-bound", "compute-bound", "memory-bandwidth-bound"}),
    "two_processes": (
        {"launch-bound", "launch-queue-latency"},
        {"launch-queue-latency"},
        {"compute-bound", "memory-bandwidth-bound"},
    ),
    "whole_run_no_capture_range": (
        {"damaged-capture", "startup-in-window"},
        {"startup-in-window"},
        {"compute-bound", "allocation-churn", "host-gap", "launch-bound", "low-gpu-utilisation"},
    ),
    "no_gpu_work": ({"no-gpu-activity"}, set(), {"launch-bound", "host-gap", "low-gpu-utilisation"}),
}


def causes(diagnosis: Diagnosis) -> list[str]:
    return [f.cause for f in diagnosis.findings]


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_captures(name: str) -> None:
    first, needed, forbidden = COMMITTED[name]
    found = causes(diagnosed(committed(name)))
    assert found[0] in first
    assert needed <= set(found)
    assert not forbidden & set(found)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_budget_adds_up(name: str) -> None:
    for budget in diagnosed(committed(name)).budget:
        assert sum(p.ms for p in budget.parts) == pytest.approx(budget.window_ms)
        assert all(p.ms >= 0 for p in budget.parts)


@pytest.mark.parametrize("name", smaller_of(COMMITTED))
@needs_durable
def test_both_engines_conclude_the_same(name: str) -> None:
    plain, durable = (diagnose(committed(name), Options(engine=e)) for e in ("python", "durable"))
    assert durable.tool.engine == "durable"
    assert plain.replaced(tool=durable.tool) == durable


def test_the_same_input_gives_the_same_bytes() -> None:
    path = committed("decode_h2d_pageable")
    assert diagnose(path).model_dump_json() == diagnose(path).model_dump_json()


def test_times_may_start_anywhere() -> None:
    """Session time is what the viewer shows; findings point into it."""
    found = diagnosed(committed("decode_eager_bs1")).findings[0]
    assert len(found.time_ranges) == 50
    assert all(0 < r.start_ns < r.end_ns for r in found.time_ranges)


@pytest.mark.slow
def test_many_diagnoses_leave_memory_flat_and_no_threads(tmp_path: Path) -> None:
    """24 diagnoses in one process; the first fill caches of the library."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc to read the resident size from")
    path = tmp_path / "small.sqlite"
    with lzma.open(committed("no_gpu_work")) as packed, path.open("wb") as out:
        shutil.copyfileobj(packed, out)
    # A process of its own: in this one other tests have grown the heap.
    command = [sys.executable, "-c", _REPEATED, str(path)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    early, late, threads = map(float, printed.split())
    assert threads == 1
    assert late - early < 1


#: Prints the largest resident size in MiB after diagnoses 4 to 8 and 20 to 24, and the threads
#: that are left. What the allocator keeps free differs by 14 MiB from one diagnosis to the next, so
#: glibc returns it before each reading.
_REPEATED = """
import ctypes, gc, sys, threading
from advisor import diagnose
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
sizes = []
for _ in range(24):
    diagnose(sys.argv[1])
    gc.collect()
    trim(0)
    sizes.append(int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20)
print(max(sizes[4:8]), max(sizes[20:]), threading.active_count())
"""


def _labels() -> list[tuple[str, str, dict[str, Any]]]:
    """Captures that only some machines hold, with what is right about each."""
    if not (SHARED / "labels.yaml").is_file():
        return []
    labels = yaml.safe_load((SHARED / "labels.yaml").read_text())
    return [
        (section, name, want)
        for section in ("h200", "public")
        for name, want in labels[section].items()
        if (section == "h200" or name.endswith(".sqlite"))
    ]


@pytest.mark.slow
@pytest.mark.skipif(not _labels(), reason="the labelled captures are not on this machine")
@pytest.mark.parametrize(("section", "name", "want"), _labels(), ids=[f"{s}-{n}" for s, n, _ in _labels()])
def test_labelled_captures(section: str, name: str, want: dict[str, Any]) -> None:
    base = SHARED / section / name
    path = base.with_name(base.name + (".sqlite.xz" if section == "h200" else ".xz"))
    found = causes(diagnose(path))
    if "top" in want:
        assert found[:1]
        assert found[0] in want["top"]
    assert set(want.get("include", ())) <= set(found)
    assert not set(want.get("never", ())) & set(found)
