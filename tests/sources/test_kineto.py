"""Each trap that real traces of the PyTorch profiler hold for a reader, one test each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from advisor.sources.kineto.columns import GC_NAME
from advisor.sources.kineto.reader import short_name
from advisor.sources.open import open_trace
from advisor.sources.schema import (
    ALLOCATED,
    DEVICE_MEMORY,
    DTOD,
    DTOH,
    FREED,
    HTOD,
    MISSING,
    OPERATIONS,
    PAGEABLE,
    PINNED,
    PTOP,
    TABLES,
    UNKNOWN_MEMORY,
    Call,
)
from advisor.sources.trace import Trace
from tests.kineto_builder import BASE_NS, EPOCH_NS, START_NS, Profile, Style, decode, shuffled

STYLES = get_args(Style)
Opened = Callable[[Profile], Trace]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def open_profile(profile: Profile) -> Trace:
        return open_trace(profile.write(tmp_path / "trace.json"))

    return open_profile


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[int, ...]]:
    read = trace.columns(table, columns)
    return list(zip(*(read[c].tolist() for c in columns), strict=True))


def texts(trace: Trace, table: str, column: str) -> list[str]:
    return trace.texts(trace.columns(table, [column])[column])


def everything(style: Style = "new") -> Profile:
    return (
        Profile(style)
        .gpu()
        .process(100, tid=101)
        .annotation("ProfilerStep#1", 0, 100_000)
        .op("aten::mm", 1_000, 30_000)
        .launch(at=2_000, kernel="void gemm<int>(int*)", kernel_start=9_000, grid=(3, 4, 5))
        .copy(at=20_000, copy_start=27_000)
        .memset(at=40_000)
        .sync(at=50_000)
        .overhead("Activity Buffer Request", 60_000, 2_000)
        .memory(70_000, reserved=1 << 21)
        .graph_launch(at=80_000, nodes=[("a", 120_000, 1_000), ("b", 122_000, 1_000)])
    )


# ------------------------------------------------------------------ 1. categories


@pytest.mark.parametrize("style", STYLES)
def test_01_every_generation_of_the_format_fills_the_same_tables(opened: Opened, style: Style) -> None:
    trace = opened(everything(style))
    assert trace.tables == {"allocations", "api_calls", "copies", "kernels", "memsets", "overheads", "ranges"}
    for table in trace.tables:
        read = trace.columns(table, TABLES[table])
        assert len({len(values) for values in read.values()}) == 1
    first = rows(trace, "kernels", "start", "end", "device", "stream", "process", "blocks")[0]
    assert first == (9_000, 19_000, 0, 7, 100, 60)
    assert rows(trace, "kernels", "threads", "registers", "shared_bytes")[0] == (128, 32, 1024)
    assert rows(trace, "kernels", "grid_x", "grid_y", "grid_z", "block_x")[0] == (3, 4, 5, 128)
    assert rows(trace, "copies", "start", "end", "kind", "bytes") == [(27_000, 37_000, HTOD, 1 << 20)]
    assert texts(trace, "api_calls", "name_id") == [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaStreamSynchronize",
        "cudaGraphLaunch",
    ]
    assert [c for (c,) in rows(trace, "api_calls", "call")] == [
        Call.LAUNCH,
        Call.COPY,
        Call.MEMSET,
        Call.SYNC,
        Call.GRAPH_LAUNCH,
    ]
    assert rows(trace, "api_calls", "process", "thread")[0] == (100, 101)
    assert sorted(texts(trace, "ranges", "text_id")) == ["ProfilerStep#1", "aten::mm"]


def test_01_old_annotations_are_operators_without_a_namespace(opened: Opened) -> None:
    trace = opened(
        Profile("old").annotation("ProfilerStep#7", 0, 9_000).op("aten::add", 1_000, 1_000).launch(at=1_000)
    )
    assert rows(trace, "ranges", "domain") == [(0,), (OPERATIONS,)]
    assert texts(trace, "ranges", "text_id") == ["ProfilerStep#7", "aten::add"]


def test_01_what_repeats_or_explains_is_left_out(opened: Opened) -> None:
    profile = Profile().gpu().launch(at=0)
    for category in ("cuda_sync", "cuda_event", "cuda_profiler_range", "fwdbwd", "gpu_pm_counter"):
        profile.event(
            ph="X",
            cat=category,
            name="x",
            pid=1000,
            tid=1000,
            ts=profile.us(5),
            dur="#1.000#",
            args={"stream": 7, "device": 0, "correlation": 1},
        )
    trace = opened(profile)
    assert {table: trace.rows(table) for table in trace.tables} == {"kernels": 1, "api_calls": 1}


def test_01_driver_calls_are_calls(opened: Opened) -> None:
    trace = opened(Profile().launch(at=0, api="cuLaunchKernelEx"))
    assert rows(trace, "api_calls", "call") == [(Call.LAUNCH,)]
    assert trace.columns("kernels", ["correlation"])["correlation"].tolist() == [1]


# ------------------------------------------------------------------ 2. time


@pytest.mark.parametrize("style", STYLES)
def test_02_nanoseconds_are_exact(opened: Opened, style: Style) -> None:
    profile = Profile(style).annotation("start", 0, 10)
    unit = 1_000 if style in ("whole", "old") else 1
    for i in range(1, 2_000):
        profile.kernel(i * 1_001_007, i * 7)
    trace = opened(profile)
    for i, (start, end) in enumerate(rows(trace, "kernels", "start", "end"), 1):
        base = START_NS[style] // unit * unit
        begun = (START_NS[style] + i * 1_001_007) // unit * unit - base
        assert start == begun
        assert end - start == i * 7 // unit * unit


@pytest.mark.parametrize("style", STYLES)
def test_02_ranks_can_be_put_on_one_clock(opened: Opened, style: Style) -> None:
    trace = opened(Profile(style).launch(at=0))
    begun = BASE_NS + START_NS["new"] if style == "new" else EPOCH_NS
    assert trace.capture.start_utc_ns is not None
    assert abs(trace.capture.start_utc_ns - begun) < 1_000
    assert rows(trace, "api_calls", "start") == [(0,)]


def test_02_a_clock_since_boot_is_no_date(opened: Opened) -> None:
    trace = opened(Profile().launch(at=0).head(baseTimeNanoseconds=None))
    assert trace.capture.start_utc_ns is None


def test_02_the_trace_begins_with_its_earliest_event_of_any_kind(opened: Opened) -> None:
    trace = opened(Profile().launch(at=9_000).python("main", 0, 90_000))
    assert rows(trace, "api_calls", "start") == [(9_000,)]


def test_02_a_trace_without_spans_keeps_the_time_of_the_file(opened: Opened) -> None:
    assert opened(Profile().memory(10, 500)).capture.zero_ns == 0


def test_02_events_out_of_order_are_put_in_order(opened: Opened, tmp_path: Path) -> None:
    profile = decode(steps=3)
    plain = opened(profile)
    profile.events = shuffled(profile.events)
    other = open_trace(profile.write(tmp_path / "mixed.json"))
    for table in plain.tables:
        names = [n for n in TABLES[table] if not n.endswith("_id")]
        assert rows(plain, table, *names) == rows(other, table, *names)


def test_02_work_of_a_duration_below_zero_or_none_ends_before_it_starts(opened: Opened) -> None:
    profile = Profile().launch(at=0)
    kernel = next(e for e in profile.events if e["cat"] == "kernel")
    kernel["dur"] = -5
    profile.kernel(20_000)
    del next(e for e in reversed(profile.events) if e["cat"] == "kernel")["dur"]
    assert rows(opened(profile), "kernels", "start", "end") == [(7_000, 6_999), (20_000, 19_999)]


# ------------------------------------------------------------------ 3. devices and ranks


def test_03_devices_are_described(opened: Opened) -> None:
    trace = opened(Profile().gpu(0).gpu(1, sms=148).launch(at=0).head(cuda_runtime_version=12090))
    assert [(d.id, d.name, d.sm_count) for d in trace.devices] == [
        (0, "NVIDIA H200", 132),
        (1, "NVIDIA H200", 148),
    ]
    assert trace.devices[0].memory_bytes == 150_109_880_320
    assert trace.devices[0].compute_capability == (9, 0)
    assert trace.capture.cuda == "12.9"


@pytest.mark.parametrize("listed", [None, [], {}, "none", [1, None], [{"id": "x"}]])
def test_03_devices_may_not_be_listed(opened: Opened, listed: Any) -> None:
    trace = opened(Profile().launch(at=0, device=2).head(deviceProperties=listed))
    assert [(d.id, d.name, d.sm_count) for d in trace.devices] == [(2, None, None)]


def test_03_devices_of_2021_have_other_keys(opened: Opened) -> None:
    listed = [{"id": 0, "name": "Tesla V100", "major": 7, "minor": 0, "multiProcessorCount": 80}]
    (device,) = opened(Profile("old").launch(at=0).head(computeProperties=listed)).devices
    assert (device.name, device.sm_count, device.compute_capability) == ("Tesla V100", 80, (7, 0))


def test_03_a_device_without_a_name(opened: Opened) -> None:
    (device,) = opened(Profile().gpu(name="").launch(at=0)).devices
    assert device.name is None
    assert device.sm_count == 132


@pytest.mark.parametrize(
    ("info", "rank", "size"),
    [
        (None, None, None),
        ({"rank": 0}, 0, None),
        ({"backend": "nccl"}, None, None),
        ({"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0"}]}, 3, 8),
        ({"rank": "3", "world_size": "8"}, 3, 8),
        ({"rank": -1, "world_size": 0}, None, None),
        ("nccl", None, None),
    ],
)
def test_03_ranks(opened: Opened, info: Any, rank: int | None, size: int | None) -> None:
    capture = opened(Profile().launch(at=0).head(distributedInfo=info)).capture
    assert (capture.rank, capture.world_size) == (rank, size)


# ------------------------------------------------------------------ 4. links


def test_04_arrows_are_not_needed(opened: Opened) -> None:
    profile = decode(steps=2)
    profile.events = [e for e in profile.events if e["cat"] != "ac2g"]
    trace = opened(profile)
    calls = {c for c, k in rows(trace, "api_calls", "correlation", "call") if k == Call.LAUNCH}
    assert {c for (c,) in rows(trace, "kernels", "correlation")} == calls


def test_04_work_belongs_to_the_process_that_calls(opened: Opened) -> None:
    trace = opened(Profile().process(4321).launch(at=0, device=3))
    assert rows(trace, "kernels", "process", "device") == [(4321, 3)]
    assert trace.capture.processes == ((4321, ""),)


def test_04_work_without_a_call_belongs_to_the_only_process(opened: Opened) -> None:
    profile = Profile().process(4321).launch(at=0, kernel="a")
    args = {"device": 0, "stream": 7}
    profile.event(ph="X", cat="kernel", name="b", ts=profile.us(90_000), dur=1, pid=0, tid=7, args=args)
    assert rows(opened(profile), "kernels", "process", "correlation") == [(4321, 1), (4321, MISSING)]


def test_04_several_processes_in_one_file(opened: Opened) -> None:
    profile = Profile()
    for pid, at in ((10, 0), (20, 100_000)):  # two ranks' traces put together
        profile.process(pid).correlation = 0
        profile.launch(at=at, kernel="a").launch(at=at + 20_000, kernel="b")
    trace = opened(profile)
    assert rows(trace, "kernels", "correlation", "process") == [(1, 10), (2, 10), (1, 20), (2, 20)]


def test_04_work_launched_before_the_trace(opened: Opened) -> None:
    profile = Profile().kernel(0, correlation=77).process(5).launch(at=10_000)
    profile.process(6).call("cudaGetDevice", 11_000)
    trace = opened(profile)
    assert rows(trace, "kernels", "correlation", "process") == [(77, MISSING), (1, 5)]


def test_04_what_is_not_correlated_belongs_to_none_of_several_processes(opened: Opened) -> None:
    profile = Profile()
    for pid in (10, 20):
        profile.process(pid).call("cudaGetDevice", pid, correlation=0)
    assert rows(opened(profile.kernel(9_000)), "kernels", "process") == [(MISSING,)]


@pytest.mark.parametrize(("pids", "process"), [((10, 10), 10), ((10, 20), MISSING)])
def test_04_without_calls_work_belongs_to_the_only_annotated_process(
    opened: Opened, pids: tuple[int, int], process: int
) -> None:
    profile = Profile()
    for at, pid in enumerate(pids):
        profile.process(pid).annotation("step", at * 1_000, 1_000)
    assert rows(opened(profile.kernel(500, correlation=3)), "kernels", "process") == [(process,)]


def test_04_no_correlation_is_none(opened: Opened) -> None:
    profile = Profile().kernel(0, correlation=0)
    profile.kernel(20_000)
    del next(e for e in reversed(profile.events) if e["cat"] == "kernel")["args"]["correlation"]
    assert rows(opened(profile), "kernels", "correlation") == [(MISSING,), (MISSING,)]


def test_04_work_of_an_operator_whose_launches_all_have_theirs_stays_alone(opened: Opened) -> None:
    profile = Profile(amd=True).gpu().process(100).launch(at=0, kernel="a")
    profile.event(
        ph="X",
        cat="kernel",
        name="b",
        ts=90,
        dur=1,
        pid=0,
        tid=0,
        args={"device": 0, "stream": 0, "External id": 77, "correlation": 12345},
    )
    trace = opened(profile)
    assert trace.rows("kernels") == 2


def test_04_kinds_of_work_that_are_only_marks_are_none(opened: Opened) -> None:
    """Events of other phases than X have no duration."""
    profile = Profile().gpu().process(100).annotation("a", 0, 5_000).sync(at=9_000)
    profile.event(ph="i", cat="kernel", name="k", ts=5, pid=0, tid=7, args={"device": 0, "stream": 7})
    assert not opened(profile).has("kernels")


@pytest.mark.parametrize("highest", [1 << 31, 1 << 60])
def test_04_huge_correlation_ids_are_numbered_anew(opened: Opened, highest: int) -> None:
    profile = Profile()
    for i in range(3):
        profile.call("cudaLaunchKernel", i * 9_000, correlation=highest - 2 + i)
        profile.kernel(i * 9_000 + 5_000)
    trace = opened(profile)
    assert rows(trace, "kernels", "correlation") == [(1,), (2,), (3,)]
    assert rows(trace, "api_calls", "correlation") == [(1,), (2,), (3,)]


def test_04_stream_and_device_come_from_the_track_where_arguments_are_missing(opened: Opened) -> None:
    profile = Profile("old").launch(at=0, stream=20, device=2)
    kernel = next(e for e in profile.events if e["cat"] == "Kernel")
    kernel["args"] = {"correlation": 1}
    trace = opened(profile)
    columns = ("device", "stream", "correlation", "blocks", "threads", "registers", "context")
    assert rows(trace, "kernels", *columns) == [(2, 20, 1, *[MISSING] * 4)]


def test_04_copies_between_devices_name_three(opened: Opened) -> None:
    profile = Profile().copy(at=0, kind="PtoP (Device -> Device)", fromDevice=1, inDevice=4)
    del next(e for e in profile.events if e["cat"] == "gpu_memcpy")["args"]["device"]
    trace = opened(profile)
    assert rows(trace, "copies", "device", "kind", "src_memory") == [(4, PTOP, DEVICE_MEMORY)]


@pytest.mark.parametrize(
    ("name", "kind", "source", "target"),
    [
        ("HtoD (Pageable -> Device)", HTOD, PAGEABLE, DEVICE_MEMORY),
        ("HtoD (Pinned -> Device)", HTOD, PINNED, DEVICE_MEMORY),
        ("DtoH (Device -> Pageable)", DTOH, DEVICE_MEMORY, PAGEABLE),
        ("DtoD (Device -> Device)", DTOD, DEVICE_MEMORY, DEVICE_MEMORY),
        ("DtoH (Device -> Host)", DTOH, DEVICE_MEMORY, UNKNOWN_MEMORY),
        ("HtoD", HTOD, UNKNOWN_MEMORY, DEVICE_MEMORY),
        ("<unknown> (Unknown -> Unrecognized)", MISSING, UNKNOWN_MEMORY, UNKNOWN_MEMORY),
    ],
)
def test_04_names_of_copies(opened: Opened, name: str, kind: int, source: int, target: int) -> None:
    trace = opened(Profile().copy(at=0, kind=name))
    assert rows(trace, "copies", "kind", "src_memory", "dst_memory") == [(kind, source, target)]


def test_04_amd(opened: Opened) -> None:
    profile = (
        Profile(amd=True)
        .gpu(name="AMD Instinct MI300X", sms=304, capability=(9, 4))
        .launch(at=0, device=9, stream=3)
        .graph_launch(at=9_000, nodes=[("a", 40_000, 10), ("b", 41_000, 10)], device=9, stream=3)
        .copy(at=50_000, kind="DtoH (Device -> Host)", device=9)
        .sync(at=70_000)
    )
    next(e for e in profile.events if e["cat"] == "kernel")["args"]["grid"] = [1, 1, 1]
    trace = opened(profile)
    assert [c for (c,) in rows(trace, "api_calls", "call")] == [
        Call.LAUNCH,
        Call.GRAPH_LAUNCH,
        Call.COPY,
        Call.SYNC,
    ]
    unknown = ("blocks", "grid_x", "threads", "registers", "shared_bytes", "context")
    assert rows(trace, "kernels", *unknown) == [(MISSING,) * 6] * 3
    assert [n for (n,) in rows(trace, "kernels", "graph_node")] == [0, 1, 2]
    # Events count devices among all agents of the machine, the list does not.
    used = next(d for d in trace.devices if d.id == 9)
    assert (used.name, used.compute_capability) == ("AMD Instinct MI300X", None)
    assert trace.capture.cuda is None
    assert trace.capture.vendor == "AMD"


@pytest.mark.parametrize("said", ["hip_runtime_version", "roctracer_version", "the list of devices"])
def test_04_amd_is_known_by_its_runtime_or_its_devices(opened: Opened, said: str) -> None:
    profile = Profile().launch(at=0)
    listed = said == "the list of devices"
    profile.gpu(name="AMD Instinct MI300X") if listed else profile.head(**{said: 4})
    assert opened(profile).capture.vendor == "AMD"


# ------------------------------------------------------------------ 5. collectives


def test_05_collectives_tell_their_size_and_group(opened: Opened) -> None:
    args = {
        "Collective name": "allreduce",
        "In msg nelems": 4096,
        "Out msg nelems": 4096,
        "Group size": 8,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Seq": 17,
    }
    trace = opened(
        Profile()
        .launch(at=0, kernel="ncclDevKernel_AllReduce_Sum_bf16", **args)
        .launch(at=20_000, kernel="multimem_all_reduce_kernel")
    )
    assert rows(trace, "collectives", "start", "process", "correlation", "bytes", "sequence") == [
        (7_000, 1000, 1, 8192, 17)
    ]
    assert texts(trace, "collectives", "group_id") == ["3"]
    assert texts(trace, "collectives", "name_id") == ["allreduce"]
    assert trace.rows("kernels") == 2


def test_05_a_collective_of_unknown_type_has_no_size(opened: Opened) -> None:
    trace = opened(Profile().launch(at=0, **{"Collective name": "allgather", "dtype": "Quad"}))
    assert rows(trace, "collectives", "bytes", "sequence") == [(MISSING, MISSING)]


def test_05_a_barrier_moves_nothing(opened: Opened) -> None:
    args = {"Collective name": "barrier", "In msg nelems": 0, "Out msg nelems": 0, "dtype": "Byte"}
    assert rows(opened(Profile().launch(at=0, **args)), "collectives", "bytes") == [(0,)]


# ------------------------------------------------------------------ 6., 7. annotations


def test_06_operators_are_ranges_of_their_own(opened: Opened) -> None:
    trace = opened(
        Profile().annotation("step[DECODE bs=32]", 0, 50_000).op("aten::mm", 0, 20_000).launch(at=0)
    )
    known = dict(
        zip(texts(trace, "ranges", "text_id"), rows(trace, "ranges", "domain", "start"), strict=True)
    )
    assert known == {"step[DECODE bs=32]": (0, 0), "aten::mm": (OPERATIONS, 0)}


def test_07_annotations_count_once(opened: Opened) -> None:
    trace = opened(Profile().annotation("ProfilerStep#3", 0, 9_000).launch(at=0))
    assert trace.rows("ranges") == 1


@pytest.mark.parametrize("name", ["Python GC", "<built-in function collect>"])
def test_06_garbage_collection_is_a_range(opened: Opened, name: str) -> None:
    trace = opened(Profile().python("f.py(3): f", 0, 9_000).python(name, 10, 500).launch(at=0))
    assert texts(trace, "ranges", "text_id") == [GC_NAME]
    assert rows(trace, "ranges", "start", "end") == [(10, 510)]


# ------------------------------------------------------------------ 8. other traces


def test_08_a_trace_of_the_cpu_alone(opened: Opened) -> None:
    trace = opened(Profile().op("aten::add", 0, 1_000).annotation("ProfilerStep#0", 0, 9_000))
    assert trace.tables == {"ranges"}
    assert trace.devices == ()


def test_08_other_accelerators_are_left_out(opened: Opened) -> None:
    profile = Profile().op("aten::add", 0, 1_000)
    for category in ("mtia_runtime", "mtia_ccp_events", "xpu_runtime"):
        profile.event(
            ph="X",
            cat=category,
            name="x",
            pid=1,
            tid=1,
            ts=profile.us(5),
            dur=1,
            args={"device": "a", "stream": [1], "correlation": None},
        )
    assert opened(profile).tables == {"ranges"}


def test_08_a_trace_made_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 3}, '
        '{"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": 2, "pid": "GPU 1", '
        '"tid": "stream 9", "args": null}]}'
    )
    with open_trace(path) as trace:
        columns = ("start", "end", "device", "stream", "correlation", "process", "graph_node")
        assert rows(trace, "kernels", *columns) == [
            (0, -1, 0, MISSING, MISSING, MISSING, 0),
            (2_000, 4_000, 1, 9, *[MISSING] * 2, 0),
        ]
        assert texts(trace, "kernels", "name_id") == ["", "k"]


def test_08_the_bare_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 3, "dur": 1}]')
    with open_trace(path) as trace:
        assert texts(trace, "ranges", "text_id") == ["aten::add"]


# ------------------------------------------------------------------ graphs, calls, the rest


def test_kernels_of_a_graph_share_the_id_of_its_launch(opened: Opened) -> None:
    profile = Profile().launch(at=0)
    for i in range(2):
        begin = 100_000 * (i + 1)
        nodes = [(name, begin + 30_000 + j * 2_000, 1_000) for j, name in enumerate("abc")]
        profile.graph_launch(at=begin, nodes=nodes)
    trace = opened(profile)
    assert [n for (n,) in rows(trace, "kernels", "graph_node")] == [0, 1, 2, 3, 1, 2, 3]
    assert trace.capture.graph_trace_mode == "node"


def test_graphs_are_told_apart_by_process(opened: Opened) -> None:
    """The launches of two ranks have the same ids; only one of them launched a graph."""
    profile = Profile().process(10).graph_launch(at=0, nodes=[("a", 30_000, 1_000), ("b", 32_000, 1_000)])
    profile.correlation = 0
    profile.process(20).launch(at=50_000)
    assert [n for (n,) in rows(opened(profile), "kernels", "graph_node")] == [1, 2, 0]


def test_without_graphs_nothing_says_that_their_nodes_were_recorded(opened: Opened) -> None:
    assert opened(Profile().launch(at=0)).capture.graph_trace_mode is None


def test_a_graph_launched_before_the_trace(opened: Opened) -> None:
    profile = Profile().kernel(0, correlation=7).kernel(20_000, correlation=7)
    trace = opened(profile.kernel(40_000, correlation=8).launch(at=60_000))
    assert [n for (n,) in rows(trace, "kernels", "graph_node")] == [1, 2, 0, 0]


def test_a_nameless_call_that_a_kernel_came_of_launches(opened: Opened) -> None:
    trace = opened(Profile().launch(at=0, api="INVALID").call("INVALID", 9_000))
    assert rows(trace, "api_calls", "call") == [(Call.LAUNCH,), (Call.OTHER,)]


def test_modules_of_python_are_named_once_and_timed_each_time(opened: Opened) -> None:
    profile = Profile().launch(at=0)
    for at, name in enumerate(("Linear_0", "Linear_1", "Norm")):
        profile.python(f"nn.Module: {name}", at * 1_000, 500)
    trace = opened(profile)
    assert trace.capture.modules == ("Linear", "Norm")
    assert texts(trace, "modules", "text_id") == ["Linear_0", "Linear_1", "Norm"]


def test_overhead_is_what_the_profiler_costs(opened: Opened) -> None:
    trace = opened(
        Profile()
        .process(7)
        .launch(at=0)
        .overhead("Activity Buffer Request", 0, 5_000)
        .overhead("Buffer Flush", 9_000, 1_000)
        .overhead("Command Buffer Full", 20_000, 1_000)
        .overhead("Lazy Function Loading", 30_000, 1_000)
    )
    assert texts(trace, "overheads", "kind_id") == ["Activity Buffer Request", "Buffer Flush"]
    assert rows(trace, "overheads", "process", "thread") == [(7, MISSING)] * 2


def test_the_caching_allocators_reserve_is_device_memory(opened: Opened) -> None:
    profile = Profile().launch(at=0)
    for at, reserved in ((10, 500), (20, 500), (30, 800), (40, 600)):
        profile.memory(at, reserved, allocated=reserved - 100 if at > 10 else None)
    profile.memory(50, 77, device=1).memory(60, 9, type=0)  # the last one: of the host
    trace = opened(profile)
    assert rows(trace, "allocations", "time", "device", "bytes", "kind") == [
        (10, 0, 500, ALLOCATED),
        (30, 0, 300, ALLOCATED),
        (40, 0, 200, FREED),
        (50, 1, 77, ALLOCATED),
    ]
    assert rows(trace, "allocations", "tensors") == [(-1,), (700,), (500,), (-1,)]


def test_a_single_byte_is_an_allocation(opened: Opened) -> None:
    trace = opened(Profile().launch(at=0).memory(10, 500).memory(20, 501))
    assert rows(trace, "allocations", "bytes", "kind") == [(500, ALLOCATED), (1, ALLOCATED)]


def test_events_dropped_and_repaired_are_counted(opened: Opened) -> None:
    profile = Profile().launch(at=0, dur=0)
    profile.event(ph="X", cat="kernel", name="k", ts="late", dur=1, pid=0, tid=7)
    profile.event(ph="X", cat="cpu_op", name=["no text"], ts=1, dur=1, pid=1, tid=1)
    profile.event(ph="X", cat="kernel", name="k", ts=9, dur=-3, pid=0, tid=7)
    profile.events += [7, "x"]
    counts = [(r.kind, r.count, r.rows) for r in opened(profile).ledger.rows()]
    of = len(profile.events)
    assert counts == [
        ("dropped", 1, 3),
        ("dropped", 2, of),
        ("repaired", 1, of),
    ]  # a negative duration is doubted later


@pytest.mark.parametrize(
    ("said", "kept"), [("late", ["late"]), (["a", "", 5, None, "b"], ["a", "b"]), (7, []), ("", []), ({}, [])]
)
def test_complaints_are_texts(opened: Opened, said: Any, kept: list[str]) -> None:
    trace = opened(Profile().gpu().process(100).launch(at=0).head(WARNING=said))
    found = trace.columns("diagnostics", ("text_id",))["text_id"] if trace.has("diagnostics") else []
    assert trace.texts(found) == kept


def test_the_rank_of_a_trace_with_one_label_is_its_own(opened: Opened) -> None:
    profile = Profile().gpu().process(100).launch(at=0).head(distributedInfo={"rank": 3, "world_size": 8})
    for event in profile.events:
        event["pid"] = f"[TP03] {event['pid']}"
    capture = opened(profile).capture
    assert (capture.rank, capture.world_size) == (3, 8)


def test_what_the_profiler_complained_of(opened: Opened) -> None:
    trace = opened(Profile().launch(at=0).head(WARNING=["dropped 3 buffers"], ERROR=["no CUPTI"]))
    assert texts(trace, "diagnostics", "text_id") == ["dropped 3 buffers", "no CUPTI"]
    assert rows(trace, "diagnostics", "severity") == [(2,), (3,)]


def test_what_was_recorded_is_told(opened: Opened) -> None:
    capture = opened(everything().head(with_stack=1, record_shapes=1)).capture
    assert capture.format == "kineto-json"
    assert capture.producer == "PyTorch profiler"
    assert capture.options == {"with_stack": "1", "record_shapes": "1"}
    assert {"cuda_runtime", "kernel", "user_annotation"} <= set(capture.trace_sources)
    assert capture.warnings == ()
    assert capture.schema_version is None


def test_the_recorded_span_is_the_duration(opened: Opened) -> None:
    profile = Profile().launch(at=500)
    profile.event(
        ph="X",
        cat="Trace",
        name="PyTorch Profiler (0)",
        pid="Spans",
        tid="PyTorch Profiler",
        ts=profile.us(0),
        dur="#1500.250#",
    )
    assert opened(profile).capture.duration_ns == 1_500_250


def test_handles_in_place_of_thread_ids_stay_small(opened: Opened) -> None:
    trace = opened(Profile().thread(3_000_000_000).call("cudaMalloc", 0).thread(-4).call("x", 9))
    assert all(0 <= t < 1 << 31 for (t,) in rows(trace, "api_calls", "thread"))


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("gemm", "gemm"),
        ("void at::native::copy<4, float>(int, std::array<char*, 2ul>)", "copy"),
        ("void at::native::(anonymous namespace)::pad<c10::Half>(long)", "pad"),
        ("std::enable_if<!(false)>::type internal::gemvx::kernel<int, (bool)1>(T1)", "kernel"),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        ),
        ("<unnamed>", "<unnamed>"),
    ],
)
def test_short_names(opened: Opened, full: str, short: str) -> None:
    assert short_name(full) == short
    assert texts(opened(Profile().launch(at=0, kernel=full)), "kernels", "short_name_id") == [short]


def by_external_id(profile: Profile, external: int, events: int) -> None:
    """Takes the correlation ids of the latest spans away and leaves the operator's id."""
    spans = [e for e in profile.events if e.get("ph") == "X"][-events:]
    for event in spans:
        del event["args"]["correlation"]
        event["args"]["External id"] = external


def test_amd_work_is_joined_by_external_id_where_nothing_else_tells(opened: Opened) -> None:
    """Two operators of two launches each, their kernels in the order of launching; a graph of three
    kernels; and a launch with a correlation id, which counts before all."""
    profile = Profile(amd=True).gpu()
    for i, external in enumerate((50, 51)):
        at = i * 100_000
        profile.launch(at=at, kernel=f"first_{i}", kernel_start=at + 20_000)
        profile.launch(at=at + 6_000, kernel=f"second_{i}", kernel_start=at + 40_000)
        by_external_id(profile, external, 4)
    profile.graph_launch(300_000, nodes=[(f"node_{i}", 330_000 + i * 9_000, 5_000) for i in range(3)])
    by_external_id(profile, 52, 4)
    profile.launch(at=400_000, kernel="named")
    trace = opened(profile)
    calls = {c: at for at, c in rows(trace, "api_calls", "start", "correlation")}
    kernels = dict(
        zip(
            texts(trace, "kernels", "name_id"),
            (calls[c] for (c,) in rows(trace, "kernels", "correlation")),
            strict=True,
        )
    )
    assert kernels == {
        "first_0": 0,
        "second_0": 6_000,
        "first_1": 100_000,
        "second_1": 106_000,
        "node_0": 300_000,
        "node_1": 300_000,
        "node_2": 300_000,
        "named": 400_000,
    }
    (nodes,) = ([n for (n,) in rows(trace, "kernels", "graph_node")],)
    assert nodes == [0, 0, 0, 0, 1, 2, 3, 0]


def test_amd_work_beyond_the_launches_of_its_operator_stays_alone(opened: Opened) -> None:
    """One launch has one kernel; what it does not explain, and the work of operators without a
    launch, is not given to another."""
    profile = Profile(amd=True).gpu().launch(at=0, kernel_start=20_000).kernel(40_000)
    by_external_id(profile, 50, 3)
    for start, external in ((60_000, 49), (80_000, 51)):
        profile.kernel(start)
        by_external_id(profile, external, 1)
    ((launch,),) = rows(opened(profile), "api_calls", "correlation")
    assert rows(opened(profile), "kernels", "correlation") == [(launch,), (MISSING,), (MISSING,), (MISSING,)]


def test_amd_launches_before_a_graph_in_one_operator_keep_their_kernels(opened: Opened) -> None:
    profile = Profile(amd=True).gpu().call("hipGetDevice", 0).launch(at=2_000, kernel_start=20_000)
    profile.graph_launch(9_000, nodes=[("a", 40_000, 10), ("b", 41_000, 10)])
    by_external_id(profile, 50, 6)
    trace = opened(profile)
    calls = {c: at for at, c in rows(trace, "api_calls", "start", "correlation")}
    assert [calls[c] for (c,) in rows(trace, "kernels", "correlation")] == [2_000, 9_000, 9_000]


# --- the ranks of SGLang, merged into one file -----------------------------------------------------


def test_ranks_that_were_merged_into_one_file_stay_apart(tmp_path: Path) -> None:
    """Correlation ids repeat from rank to rank; the label in the process id tells them apart."""
    events: list[dict[str, Any]] = []
    for rank, label in enumerate(("[TP01-DP00]", "[TP00-DP00]")):
        document = json.loads(decode().text())
        for event in document["traceEvents"]:
            event["ts"] += rank  # the calls of one rank lie between those of the other
            if event["pid"] != event.get("args", {}).get("device"):
                event["pid"] += 100 * rank
            event["pid"] = f"{label} {event['pid']}"
            if "device" in event.get("args", {}):
                event["args"]["device"] = rank
            events.append(event)
    path = tmp_path / "merged.trace.json"
    path.write_text(json.dumps(document | {"traceEvents": events}))
    trace = open_trace(path)
    placed = set(rows(trace, "kernels", "device", "process"))
    assert len(placed) == 2  # a process a device
    process = dict(placed)
    assert dict(trace.capture.process_ranks) == {process[0]: 1, process[1]: 0}
    assert (trace.capture.rank, trace.capture.world_size) == (None, 2)
