"""Cut, lost and refused told apart: which launches without work are damage, and what says so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.scenarios.support import diagnosed, expect, fact, ranked

US = 1_000


def busy(launches: int = 200, cut: int | None = None, lost: frozenset[int] = frozenset()) -> Export:
    """A launch every 10 us of a kernel of 12: the queue grows. Kernels that had not begun at `cut`
    are not in the capture, nor are those of the launches `lost`."""
    e = Export().gpu().process(100)
    free = 0
    for i in range(launches):
        e.call("cudaLaunchKernel_v7000", i * 10 * US, 4 * US)
        start = max(free, i * 10 * US + 6 * US)
        free = start + 12 * US
        if i not in lost and (cut is None or start < cut):
            e.kernel(start, 12 * US, f"k{i % 4}")
    return e


def replays(mode: str | None, rows: str, lost: range = range(0)) -> Export:
    """Twenty graph launches of ten kernels, recorded as `rows` say, those of `lost` not at all."""
    e = Export().gpu().process(100).traced("Cuda", graph_mode=mode)
    for i in range(20):
        at = i * 200 * US
        nodes = [(f"k{n}", at + 30 * US + n * 15 * US, 14 * US) for n in range(10)]
        e.graph_launch(at, 20 * US, () if i in lost else nodes, rows)
    return e


def causes(export: Export, folder: Path) -> list[str]:
    return [f.cause for f in diagnosed(export, folder).findings]


def test_what_was_still_queued_at_the_cut_is_not_lost(tmp_path: Path) -> None:
    """The last 33 of 200 launches had not begun: no kernel waited less than they did."""
    d = diagnosed(busy(cut=2_000 * US), tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == 0.0
    assert fact(d, "capture.damage_signs", None) == "none"
    assert "damaged-capture" not in [f.cause for f in d.findings]


def test_a_copy_that_overtook_the_queue_does_not_make_it_lost(tmp_path: Path) -> None:
    """After the last launch an upload ran at once on a stream of its own."""
    e = busy(cut=2_000 * US).copy(1_995 * US, copy_start=1_999 * US, memory="pinned", stream=8)
    d = diagnosed(e, tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == 0.0


@pytest.mark.parametrize(
    ("wait", "lost"), [("cudaDeviceSynchronize_v3020", True), ("cudaStreamSynchronize_v3020", False)]
)
def test_what_a_call_has_waited_for_is_not_queued_any_more(wait: str, lost: bool, tmp_path: Path) -> None:
    """The same tail, but after the last launch a call waits for all that the device was given to do."""
    d = diagnosed(busy(cut=2_000 * US).call(wait, 2_010 * US, 400 * US), tmp_path)
    assert ("damaged-capture" in [f.cause for f in d.findings]) == lost
    assert ("33 of 200 kernel launches left no kernel" in d.findings[0].message) == lost


def test_a_wait_for_one_device_says_nothing_of_launches_on_another(tmp_path: Path) -> None:
    e = busy(cut=2_000 * US).launch(5 * US, 3 * US, "other", device=1)
    d = diagnosed(e.call("cudaDeviceSynchronize_v3020", 2_020 * US, 400 * US), tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == 0.0


def test_a_tail_longer_than_any_wait_is_lost(tmp_path: Path) -> None:
    """The calls of another 600 us follow: no kernel waited for so long."""
    d = diagnosed(busy(260, cut=1_400 * US), tmp_path)
    expect(d, "damaged-capture", damaged=True)
    assert "143 of 260 kernel launches left no kernel" in d.findings[0].message


def test_the_same_number_lost_within_is_damage(tmp_path: Path) -> None:
    expect(diagnosed(busy(lost=frozenset(range(80, 113))), tmp_path), "damaged-capture", damaged=True)


@pytest.mark.parametrize(
    ("without", "share"),
    [
        ("correlationId % 2", 100 / 199),  # every other call, the last one too
        ("start < 1000000", 0.0),  # a slice: the calls of its first kernels lie before it
    ],
)
def test_calls_lost_among_others_are_damage(without: str, share: float, tmp_path: Path) -> None:
    path = busy().write(tmp_path / "trace.sqlite")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {without}")
    d = advisor.diagnose(path)
    assert fact(d, "capture.lost_call_ratio", None) == pytest.approx(share, abs=0.01)
    assert ("damaged-capture" in [f.cause for f in d.findings]) == bool(share)
    assert ("stand without their call" in d.findings[0].message) == bool(share)


@pytest.mark.parametrize(
    ("table", "column", "lost"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", 0.0),  # of the only process there is
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId", 0.0),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid", 0.0),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "correlationId", None),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId", None),
    ],
)
def test_what_an_export_does_not_name_is_not_lost(
    table: str, column: str, lost: float | None, tmp_path: Path
) -> None:
    d = diagnosed(busy().without_columns(table, column), tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == lost
    assert "damaged-capture" not in [f.cause for f in d.findings]


def test_kernels_queued_before_a_slice_are_not_lost_where_another_stream_runs_at_once(tmp_path: Path) -> None:
    """Stream 7 runs 2 ms behind its calls, stream 13 at once: the slice of the calls from 1 ms on
    holds 100 kernels of stream 7 whose calls lie before it, beside new ones of stream 13."""
    e = Export().gpu().process(100)
    for i in range(200):
        e.launch(i * 10 * US, 5 * US, kernel_start=(2_000 + i * 10) * US, kernel_dur=9 * US, stream=7)
        if i % 5 == 0:
            e.launch((i * 10 + 5) * US, 3 * US, kernel_start=(i * 10 + 9) * US, kernel_dur=US, stream=13)
    path = e.write(tmp_path / "trace.sqlite")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start < 1000000")
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start < 1000000")
    assert fact(advisor.diagnose(path), "capture.lost_call_ratio", None) == 0.0


REASONS = [
    (
        "Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems.",
        "does not support the version of the installed CUDA driver",
        "update-nsys",
    ),
    ("CUDA profiling might have not been started correctly.", "not started", "start-under-profiler"),
    (
        "ERR_NVGPUCTRPERM: The user does not have permission to access GPU Performance Counters.",
        "may not read the performance counters",
        "allow-performance-counters",
    ),
    ("Number of incomplete CUPTI events dropped: 40.", "CUPTI dropped events", "flush-on-stop"),
]


@pytest.mark.parametrize(("said", "reason", "advice"), REASONS)
def test_launches_without_any_kernel_are_damage_with_its_reason(
    tmp_path: Path, said: str, reason: str, advice: str
) -> None:
    export = busy(lost=frozenset(range(200))).traced("Cuda").diagnostic(said)
    path = export.write(tmp_path / "t.sqlite")
    d = advisor.diagnose(path)
    first = d.findings[0]
    assert ranked(d) == ["damaged-capture"]
    assert "200 of 200 kernel launches left no kernel and none is recorded" in first.message
    assert reason in first.message
    told = {a.id for a in first.recommendations}
    others = {a for _, _, a in REASONS} - {advice}
    assert advice in told
    assert not told & (others - {"update-nsys"})
    checkup = advisor.doctor(path)
    asked = {q.id: q.remedy for q in checkup.questions}
    assert asked["kernel-breakdown"] == "a capture that loses no kernels"
    found = checkup.findings[0]
    assert (found.cause, found.message) == (first.cause, first.message)


def test_no_reason_is_made_up(tmp_path: Path) -> None:
    d = diagnosed(busy(lost=frozenset(range(200))), tmp_path)
    assert ranked(d) == ["damaged-capture"]
    assert "The tool says" not in d.findings[0].message


def test_calls_that_launch_nothing_are_no_damage_and_the_reason_is_told(tmp_path: Path) -> None:
    e = Export().gpu().process(100).call("cudaGetDeviceCount", 0).diagnostic(REASONS[0][0])
    d = diagnosed(e, tmp_path)
    assert ranked(d) == ["no-gpu-activity"]
    assert REASONS[0][1] in d.findings[0].message
    assert "update-nsys" in {a.id for a in d.findings[0].recommendations}


@pytest.mark.parametrize(
    ("mode", "rows", "lost", "wanted"),
    [
        ("Node", "node", range(5, 11), "damaged-capture"),
        (None, "node", range(5, 11), "damaged-capture"),
        ("Node", "node", range(20), "damaged-capture"),
        ("Graph", "graph", range(5, 11), "opaque-cuda-graphs"),
        ("Graph", "graph", range(0), "opaque-cuda-graphs"),
        ("Graph", "node", range(20), "opaque-cuda-graphs"),
        (None, "node", range(20), "opaque-cuda-graphs"),
    ],
)
def test_lost_replays_and_opaque_ones(
    tmp_path: Path, mode: str | None, rows: str, lost: range, wanted: str
) -> None:
    """What was asked for decides, else the rows of other launches."""
    found = causes(replays(mode, rows, lost), tmp_path)
    assert wanted in found
    other = {"damaged-capture": "opaque-cuda-graphs"}.get(wanted)
    assert other not in found
    if rows == "graph" and len(lost):
        assert "damaged-capture" in found


@pytest.mark.parametrize(("driver", "advised"), [("536.40", True), ("535.54.03", False)])
def test_missing_kernels_under_wsl_are_the_driver_of_windows(
    driver: str, advised: bool, tmp_path: Path
) -> None:
    """On Linux: 536 is a branch of Windows, 535 one of both."""
    export = busy(lost=frozenset(range(200))).system(NvDriverVersion=driver, SoftwarePlatform="L4X")
    d = diagnosed(export, tmp_path)
    first = d.findings[0]
    assert first.cause == "damaged-capture"
    assert (fact(d, "capture.platform", None) is not None) == advised
    assert ("ran in the Windows Subsystem for Linux" in first.message) == advised
    assert (first.recommendations[0].id == "update-windows-driver") == advised


# --- who traced: the GPU or CUPTI ----------------------------------------------------------------


def on_gb10(release: str, capability: tuple[int, int] = (12, 1)) -> Export:
    """200 launches without a kernel, as nsys 2026 records a DGX Spark by hardware."""
    e = Export(tool_version=release).gpu(name="NVIDIA GB10", capability=capability).process(100)
    for i in range(200):
        e.call("cudaLaunchKernel_v7000", i * 10 * US, 4 * US)
    return e


def lost(e: Export) -> Export:
    return e.diagnostic("Number of incomplete CUPTI events dropped: 200")


def advice(d: Diagnosis) -> list[str]:
    return [r.id for f in d.findings if f.cause == "damaged-capture" for r in f.recommendations]


def test_rows_that_the_hardware_trace_dropped_are_recorded_by_software(tmp_path: Path) -> None:
    told = lost(on_gb10("2026.3.1.12")).diagnostic("Hardware tracing used for CUDA tracing")
    d = diagnosed(told, tmp_path)
    assert fact(d, "capture.trace_method", None) == "hardware"
    assert fact(d, "capture.refusal", None) == "events-dropped"
    assert advice(d)[0] == "trace-by-software"
    assert "update-nsys" not in advice(d)


@pytest.mark.parametrize("busy", [True, False])
def test_counters_that_another_tool_holds(busy: bool, tmp_path: Path) -> None:
    """A capture without any GPU work: where the tool says why, the trace by software comes first."""
    e = Export(tool_version="2026.3.1.12").gpu(name="NVIDIA B300", capability=(10, 3)).process(100)
    e.traced("Cuda", "NvtxEvents").range("decode_step 0", 0, 900_000)
    if busy:
        e.diagnostic("CUPTI_ERROR_HARDWARE_BUSY: cannot enable hardware tracing")
    d = diagnosed(e, tmp_path)
    assert fact(d, "capture.refusal", None) == ("hardware-busy" if busy else "none")
    advised = [r.id for f in d.findings if f.cause == "no-gpu-activity" for r in f.recommendations]
    assert (advised[:1] == ["trace-by-software"]) is busy
    assert ("another tool holds" in d.findings[0].message) is busy


PERMISSION = "ERR_NVGPUCTRPERM: The user running nsys does not have permission"
DRIVER = "CUDA driver version (13.0) is not supported by this release"


@pytest.mark.parametrize(
    ("told", "advised"),
    [
        ((PERMISSION, DRIVER), ["allow-performance-counters", "update-nsys"]),
        ((DRIVER, PERMISSION), ["update-nsys", "allow-performance-counters"]),
        ((PERMISSION,), ["allow-performance-counters"]),
    ],
)
def test_advice_follows_the_order_in_which_the_tool_gives_its_reasons(
    told: tuple[str, ...], advised: list[str], tmp_path: Path
) -> None:
    e = Export(tool_version="2024.5.1.1").gpu(name="NVIDIA H100").process(100)
    e.traced("Cuda", "NvtxEvents").range("decode_step 0", 0, 900_000)
    for text in told:
        e.diagnostic(text)
    d = diagnosed(e, tmp_path)
    assert ranked(d) == ["no-gpu-activity"]
    given = [r.id for r in d.findings[0].recommendations]
    assert given[: len(advised)] == advised
    assert set(given) & {"allow-performance-counters", "update-nsys"} == set(advised)


@pytest.mark.parametrize("told", [(), (PERMISSION, DRIVER)])
def test_a_capture_with_gpu_work_needs_no_reason(told: tuple[str, ...], tmp_path: Path) -> None:
    """The healthy partner: what the tool said concerned nothing that is missing."""
    e = Export(tool_version="2024.5.1.1").gpu(name="NVIDIA H100").process(100)
    e.traced("Cuda", "NvtxEvents").range("decode_step 0", 0, 900_000)
    for i in range(40):
        e.kernel(i * 20_000, 15_000, "gemm")
    for text in told:
        e.diagnostic(text)
    assert "no-gpu-activity" not in {f.cause for f in diagnosed(e, tmp_path).findings}


@pytest.mark.parametrize(
    ("release", "capability", "sources", "method"),
    [
        ("2026.1.1.5", (12, 1), ("Cuda",), "not-told"),
        ("2025.6.3.541", (12, 1), ("Cuda",), "not-told"),
        ("2025.3.2.1", (12, 1), ("Cuda",), "software"),  # before it became the default
        ("2026.1.1.5", (9, 0), ("Cuda",), "software"),  # Hopper has none
        ("2026.1.1.5", (12, 1), ("cuda-sw",), "software"),
    ],
)
def test_what_the_release_and_the_gpu_can_do_tells_the_rest(
    release: str, capability: tuple[int, int], sources: tuple[str, ...], method: str, tmp_path: Path
) -> None:
    d = diagnosed(lost(on_gb10(release, capability)).traced(*sources), tmp_path)
    assert fact(d, "capture.trace_method", None) == method
    assert ("trace-by-software" in advice(d)) == (method == "not-told")


@pytest.mark.parametrize(("lost", "shown"), [(frozenset[int](), None), (frozenset({2, 5, 7}), "57 of 200")])
def test_nodes_that_some_replays_left_out_are_lost(
    lost: frozenset[int], shown: str | None, tmp_path: Path
) -> None:
    """Twenty replays and one that may be cut, of ten nodes: three are missing in all but the first."""
    e = Export().gpu().process(100).traced("Cuda", graph_mode="node")
    for i in range(21):
        at = i * 200 * US
        nodes = [(f"k{n}", at + 30 * US + n * 15 * US, 14 * US) for n in range(10)]
        e.call("cudaGraphLaunch_v10000", at, 20 * US)
        for n, (name, start, length) in enumerate(nodes):
            if i == 0 or n not in lost:
                e.kernel(start, length, name, graph_node=(1 << 32) | n)
    d = diagnosed(e, tmp_path)
    if shown is None:
        assert fact(d, "capture.lost_kernel_ratio", None) == 0.0
    else:
        expect(d, "damaged-capture", damaged=True)
        assert f"{shown} nodes of graph replays left no row" in d.findings[0].message


@pytest.mark.parametrize("called", [False, True])
def test_the_replay_that_ran_when_the_recording_began_lost_nothing(called: bool, tmp_path: Path) -> None:
    """Six replays of ten nodes, of the first of which seven ran before the recording, as its call did. With
    the call they are lost."""
    e = Export().gpu().process(100).traced("Cuda", graph_mode="node")
    for i in range(6):
        at = i * 200 * US
        if i or called:
            e.call("cudaGraphLaunch_v10000", at, 20 * US)
        for n in range(7 if i == 0 else 0, 10):
            linked = {} if i or called else {"correlation": 999}
            e.kernel(at + 30 * US + n * 15 * US, 14 * US, f"k{n}", graph_node=(1 << 32) | n, **linked)
    d = diagnosed(e, tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == (pytest.approx(7 / 60) if called else 0.0)


@pytest.mark.parametrize(
    ("table", "column"),
    [("CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId"), ("CUPTI_ACTIVITY_KIND_MEMSET", "correlationId")],
)
def test_nodes_that_an_export_cannot_name_are_not_lost(table: str, column: str, tmp_path: Path) -> None:
    """Twenty replays of ten kernels and a memset, without what tells whose they are."""
    e = Export().gpu().process(100).traced("Cuda", graph_mode="node")
    for i in range(20):
        at = i * 200 * US
        e.call("cudaGraphLaunch_v10000", at, 20 * US)
        e.memset(at, memset_start=at + 25 * US, api=None, graphNodeId=(1 << 32) | 10)
        for n in range(10):
            e.kernel(at + (30 + n * 15) * US, 14 * US, f"k{n}", graph_node=(1 << 32) | n)
    d = diagnosed(e.without_columns(table, column), tmp_path)
    assert fact(d, "capture.lost_kernel_ratio", None) == 0.0


def test_calls_that_cannot_be_true_say_nothing_of_start_up(tmp_path: Path) -> None:
    """A capture that is mostly start-up, one of whose calls in ten ends before it starts."""
    e = Export().gpu().process(100)
    e.call("cuLibraryLoadData", 0, 9_000_000 * US)
    for i in range(400):
        at = 9_000_000 * US + i * 100 * US
        e.launch(at, -US if i % 10 == 0 else 5 * US, f"k{i % 4}", at + 10 * US, 40 * US)
    d = diagnosed(e, tmp_path)
    assert d.findings[0].cause == "damaged-capture"
    assert "startup-in-window" not in {f.cause for f in d.findings}
    assert "startup-in-window" in {e.cause for e in d.not_evaluated}
