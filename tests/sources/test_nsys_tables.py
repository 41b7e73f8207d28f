"""Each trap that real nsys exports hold for a reader, one test each, and every table once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.sources.nsys.table_map import SAMPLING_CHAIN_OFFSET
from advisor.sources.open import open_trace
from advisor.sources.schema import (
    ALLOCATED,
    DEVICE_MEMORY,
    DTOH,
    FLOAT_COLUMNS,
    FREED,
    HTOD,
    MARK,
    MISSING,
    NARROW_COLUMNS,
    NIC_SENT,
    NIC_WAITS,
    PAGEABLE,
    PINNED,
    PUSH_POP,
    START_END,
    TABLES,
    Call,
)
from advisor.sources.sqlite.file import SqliteFile
from advisor.sources.sqlite.leaf_pages import NotPlain
from advisor.sources.sqlite.pages import PageReader
from advisor.sources.trace import Trace
from tests.builder import KERNEL, MEMCPY, MEMSET, NO_ID, RUNTIME, Export

#: What an export fills; its kernels carry no arguments that would tell of collectives.
FILLED = set(TABLES) - {"collectives", "python_calls", "python_rows", "modules", "sums", "load"}

SCHEMAS = ["2.9", "3.0", "3.1", "3.7", "3.16", "3.17", "3.25", "3.30"]


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    traces: list[Trace] = []

    def open_export(export: Export, **how: Any) -> Trace:
        traces.append(open_trace(export.write(tmp_path / f"{len(traces)}.sqlite", **how)))
        return traces[-1]

    yield open_export
    for trace in traces:
        trace.close()


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[int, ...]]:
    read = trace.columns(table, columns)
    return list(zip(*(read[c].tolist() for c in columns), strict=True))


def texts(trace: Trace, table: str, column: str) -> list[str]:
    return trace.texts(trace.columns(table, [column])[column])


def everything(schema: str = "3.7") -> Export:
    return (
        Export(schema)
        .gpu()
        .process(100)
        .range("iteration 0", 0, 50_000)
        .launch(at=0, kernel="gemm<int>(int*)")
        .copy(at=10_000)
        .memset(at=20_000)
        .sync(at=30_000)
        .event(at=31_000)
        .alloc(at=100, bytes=4096)
        .host_fault(at=200)
        .gpu_fault(at=300, dur=50, count=3)
        .graph_launch(at=40_000, nodes=[("a", 60_000, 10), ("b", 60_020, 10)], mode="graph")
        .gpu_metrics({"SM Active": [10, 20]})
        .overhead(1, 2)
        .osrt("poll", 1, 2)
        .diagnostic("a message")
        .callchain(1, [("inner", "lib"), ("outer", "lib")])
        .cpu_switch(at=6, running=False)
        .network(at=8, dur=5, nic=1, sent=9)
        .gpu_turn(at=7, dur=2, context=3)
        .host_sample(at=5, frames=[("main", "app")])
    )


# ------------------------------------------------------------------ every table


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_table_of_every_schema_reads_whole(opened: Any, schema: str) -> None:
    trace = opened(everything(schema))
    expected = set(FILLED)
    if schema == "2.9":
        expected -= {"graph_runs"}
    if schema in ("2.9", "3.0"):
        expected -= {"samples", "network"}
    assert trace.tables == expected
    for table, columns in TABLES.items():
        read = trace.columns(table, columns)
        assert len({len(values) for values in read.values()}) == 1
        if table not in expected:
            continue
        for name, values in read.items():
            is_float = table == "samples" and name in FLOAT_COLUMNS
            whole = np.int8 if name == "call" else np.int32 if name in NARROW_COLUMNS else np.int64
            assert values.dtype == (np.float64 if is_float else whole), (table, name)
            assert values.flags.c_contiguous or values.strides == (0,)
            assert len(values) > 0


@pytest.mark.parametrize("value", [-1, 2**30 - 1, 2**30, 2**31, 2**40])
def test_values_are_held_in_half_of_the_memory_where_sums_of_two_fit(opened: Any, value: int) -> None:
    trace = opened(Export().device(0).kernel(0, grid=(value, 1, 1)).kernel(20_000, grid=(7, 1, 1)))
    blocks = trace.columns("kernels", ("grid_x",))["grid_x"]
    assert blocks.tolist() == [value, 7]
    assert (blocks + blocks).tolist() == [2 * value, 14]
    assert blocks.dtype == (np.int32 if value < 2**30 else np.int64)


def test_kernel_columns(opened: Any) -> None:
    trace = opened(
        Export()
        .process(100)
        .device(3, context=9)
        .launch(
            at=0,
            dur=5_000,
            kernel="void gemm<bf16>(float*)",
            kernel_start=7_000,
            kernel_dur=10_000,
            stream=21,
            grid=(4, 3, 2),
            block=(32, 4, 1),
            registers=168,
            localMemoryPerThread=96,
            shared=(1024, 2048),
            mangled="_Z4gemm",
            short="gemm",
            graph_node=77,
        )
    )
    kernel = {name: values[0] for name, values in trace.columns("kernels", TABLES["kernels"]).items()}
    assert trace.text(kernel.pop("name_id")) == "void gemm<bf16>(float*)"
    assert trace.text(kernel.pop("short_name_id")) == "gemm"
    assert trace.text(kernel.pop("mangled_name_id")) == "_Z4gemm"
    assert kernel == {
        "start": 7_000,
        "end": 17_000,
        "device": 3,
        "stream": 21,
        "context": 9,
        "process": 100,
        "correlation": 1,
        "grid_x": 4,
        "grid_y": 3,
        "grid_z": 2,
        "blocks": 24,
        "block_x": 32,
        "block_y": 4,
        "block_z": 1,
        "threads": 128,
        "registers": 168,
        "shared_bytes": 3072,
        "local_bytes": 96,
        "graph_node": 77,
        "launch_type": 1,
        "cluster_blocks": MISSING,
    }


def test_blocks_of_a_cluster_are_recorded_from_2026_on(opened: Any) -> None:
    trace = opened(Export("3.25").process(1).launch(at=0, clusterX=2, clusterY=2, clusterZ=1, launchType=3))
    assert rows(trace, "kernels", "cluster_blocks", "launch_type") == [(4, 3)]


def test_kernel_without_a_graph_has_node_zero(opened: Any) -> None:
    trace = opened(Export().process(1).launch(at=0))
    assert rows(trace, "kernels", "graph_node") == [(0,)]


def test_copies_and_memsets(opened: Any) -> None:
    trace = opened(
        Export()
        .process(1)
        .copy(at=0, kind="HtoD", bytes=5, memory="pageable")
        .copy(at=9_000, kind="DtoH", bytes=6, memory="pinned", stream=8)
        .memset(at=20_000, bytes=7)
    )
    assert rows(trace, "copies", "bytes", "kind", "src_memory", "dst_memory", "stream") == [
        (5, HTOD, PAGEABLE, DEVICE_MEMORY, 7),
        (6, DTOH, DEVICE_MEMORY, PINNED, 8),
    ]
    assert rows(trace, "memsets", "bytes", "memory") == [(7, DEVICE_MEMORY)]
    assert rows(trace, "api_calls", "call") == [(Call.COPY,), (Call.COPY,), (Call.MEMSET,)]


def test_memory_kinds_numbered_otherwise_are_mapped_by_name(opened: Any) -> None:
    """CUPTI itself counts unknown 0, pageable 1, pinned 2, device 3; an export may follow."""
    export = Export().process(1).copy(at=0, srcKind=1, dstKind=3).memset(at=9, memKind=3)
    export.copy(at=99, srcKind=2, dstKind=None)
    for number, name in enumerate(("UNKNOWN", "PAGEABLE", "PINNED", "DEVICE")):
        export.row("ENUM_CUDA_MEM_KIND", id=number, name=f"CUDA_MEMOPR_MEMORY_KIND_{name}", label="")
    trace = opened(export)
    assert rows(trace, "copies", "src_memory", "dst_memory") == [(PAGEABLE, DEVICE_MEMORY), (PINNED, MISSING)]
    assert rows(trace, "memsets", "memory") == [(DEVICE_MEMORY,)]


def test_memory_kinds_that_have_no_name_here_are_left_as_they_are(opened: Any) -> None:
    export = Export().process(1).copy(at=0, srcKind=1, dstKind=9)
    for number, name in ((1, "PINNED"), (9, "OF_A_LATER_RELEASE")):
        export.row("ENUM_CUDA_MEM_KIND", id=number, name=f"CUDA_MEMOPR_MEMORY_KIND_{name}", label="")
    assert rows(opened(export), "copies", "src_memory", "dst_memory") == [(PINNED, 9)]


def test_page_faults_of_both_sides(opened: Any) -> None:
    trace = opened(everything())
    assert rows(trace, "page_faults", "start", "end", "device", "process", "count") == [
        (200, 200, MISSING, 100, 1),
        (300, 350, 0, 100, 3),
    ]


def test_allocations(opened: Any) -> None:
    trace = opened(Export().process(7).alloc(10, 4096, 0xABC).alloc(20, 4096, 0xABC, free=True))
    columns = ("time", "process", "device", "bytes", "kind", "memory", "address")
    assert rows(trace, "allocations", *columns) == [
        (10, 7, 0, 4096, ALLOCATED, DEVICE_MEMORY, 0xABC),
        (20, 7, 0, 4096, FREED, DEVICE_MEMORY, 0xABC),
    ]


def test_cuda_events_have_a_time_only_in_new_exports(opened: Any) -> None:
    for schema, time in (("3.17", MISSING), ("3.25", 500)):
        trace = opened(Export(schema).process(1).call("cudaEventRecord", 0).event(4, at=500))
        assert rows(trace, "events", "time", "event", "process", "stream", "correlation") == [
            (time, 4, 1, 7, 1)
        ]


def test_what_a_wait_is_for_is_in_its_ids(opened: Any) -> None:
    """The type of a wait is 3 here for all, as versions disagree about it."""
    export = Export("3.25").process(1).sync(0, 5, stream=13).sync(10, 5, stream=NO_ID, event=4, sync=2)
    trace = opened(export.sync(20, 5, stream=NO_ID).event(4, sync=2))
    columns = ("start", "end", "process", "stream", "event", "correlation")
    assert rows(trace, "waits", *columns) == [
        (0, 5, 1, 13, MISSING, 1),
        (10, 15, 1, MISSING, 4, 2),
        (20, 25, 1, MISSING, MISSING, 3),
    ]
    assert rows(trace, "events", "event", "sync") == [(4, 2)]
    assert rows(trace, "waits", "sync")[1] == (2,)


def test_host_samples_and_backtraces_do_not_share_chain_ids(opened: Any) -> None:
    trace = opened(
        Export()
        .process(5)
        .call("cudaMalloc", 0, callchain=1)
        .call("cudaFree", 9, callchain=2)
        .callchain(1, [("inner", "libcuda"), ("main", "app")])
        .callchain(2, [("other", "libcuda")])
        .host_sample(at=3, frames=[("loop", "app")])
    )
    assert rows(trace, "api_calls", "callchain") == [(1,), (2,)]
    (sample,) = rows(trace, "host_samples", "time", "process", "thread", "callchain")
    assert sample == (3, 5, 5, SAMPLING_CHAIN_OFFSET + 1)
    chains = trace.columns("callchains", TABLES["callchains"])
    frames = list(
        zip(
            chains["callchain"].tolist(),
            chains["depth"].tolist(),
            trace.texts(chains["symbol_id"]),
            trace.texts(chains["module_id"]),
            strict=True,
        )
    )
    assert frames == [
        (1, 0, "inner", "libcuda"),
        (1, 1, "main", "app"),
        (2, 0, "other", "libcuda"),
        (SAMPLING_CHAIN_OFFSET + 1, 0, "loop", "app"),
    ]


def test_backtrace_ids_that_count_from_zero(opened: Any) -> None:
    """2022.2: calls count their chains from 0, CUDA_CALLCHAINS from 1."""
    export = Export("2.9").process(5)
    for number, name in enumerate(("cudaMalloc", "cudaMemcpy", "cudaFree")):
        export.call(name, number * 10, callchain=number)
        export.callchain(number + 1, [(name, "libcudart")])
    trace = opened(export)
    assert rows(trace, "api_calls", "callchain") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("calls", "chains"),
    [
        ((0, 0, 1), (1, 2)),  # a zero that several calls have names no chain
        ((0, 1), (1, 2, 3)),  # the table goes on behind the last chain of a call
        ((0, 1), (2,)),  # or does not begin at 1
        ((0, 1), ()),
    ],
)
def test_backtrace_ids_that_count_alike_stay(
    opened: Any, calls: tuple[int, ...], chains: tuple[int, ...]
) -> None:
    export = Export("2.9").process(5)
    for number, chain in enumerate(calls):
        export.call("cudaMalloc", number * 10, callchain=chain)
    for chain in chains:
        export.callchain(chain, [("f", "m")])
    assert rows(opened(export), "api_calls", "callchain") == [(chain,) for chain in calls]


def test_a_zero_that_means_no_backtrace_stays(opened: Any) -> None:
    export = Export().process(5).callchain(1, [("f", "m")])
    export.call("cudaMalloc", 0, callchain=0).call("cudaFree", 9, callchain=1)
    assert rows(opened(export), "api_calls", "callchain") == [(0,), (1,)]


def test_diagnostics(opened: Any) -> None:
    trace = opened(Export().diagnostic("lost", at=-5, severity=3).diagnostic("lost", at=7))
    assert rows(trace, "diagnostics", "time", "severity") == [(-5, 3), (7, 2)]
    assert texts(trace, "diagnostics", "text_id") == ["lost", "lost"]
    assert len({text_id for (text_id,) in rows(trace, "diagnostics", "text_id")}) == 1


def test_host_calls(opened: Any) -> None:
    trace = opened(Export().process(5, tid=6).osrt("poll", 10, 90))
    assert rows(trace, "host_calls", "start", "end", "process", "thread") == [(10, 100, 5, 6)]
    assert texts(trace, "host_calls", "name_id") == ["poll"]


def test_overheads_of_both_tables(opened: Any) -> None:
    trace = opened(
        Export("3.25")
        .process(5)
        .overhead(0, 10, "CUDA profiling data flush")
        .cupti_overhead(20, 10, type=3)
        .cupti_overhead(40, 10, type=4, name="my own")
        .cupti_overhead(60, 10, type=6)  # loading a module
        .cupti_overhead(80, 10, type=8, name="a full queue")
    )
    assert rows(trace, "overheads", "start", "end", "process") == [(0, 10, 5), (20, 30, 5), (40, 50, 5)]
    assert texts(trace, "overheads", "kind_id") == [
        "CUDA profiling data flush",
        "Buffer flush (Profiler)",
        "my own",
    ]


# ------------------------------------------------------------------ realdata.md, section 4


def test_01_sync_type_is_not_trusted(opened: Any) -> None:
    """The same number means another call in each version: only the name counts."""
    export = Export().process(1)
    for number, api in enumerate(("cudaStreamSynchronize_v3020", "cudaDeviceSynchronize_v3020")):
        for sync_type in range(4):
            export.sync(at=(number * 4 + sync_type) * 100, dur=50, api=api, sync_type=sync_type)
    export.sync(at=5_000, api="cudaStreamWaitEvent_v3020", sync_type=3)
    export.sync(at=6_000, api="cuStreamSynchronize", sync_type=0)
    calls = [call for (call,) in rows(opened(export), "api_calls", "call")]
    assert calls == [Call.SYNC] * 8 + [Call.EVENT, Call.SYNC]


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA", None])
def test_02_version_table_of_either_name_or_none(opened: Any, table: str | None) -> None:
    trace = opened(Export(version_table=table).process(1).launch(at=0))
    assert trace.capture.schema_version == ("3.7" if table else None)
    assert trace.capture.producer == "NVIDIA Nsight Systems"
    assert trace.rows("kernels") == 1


@pytest.mark.parametrize("table", sorted(FILLED - {"callchains", "overheads", "page_faults"}))
def test_03_any_table_may_be_missing_or_empty(opened: Any, table: str) -> None:
    raw = {
        "kernels": KERNEL,
        "copies": MEMCPY,
        "memsets": MEMSET,
        "api_calls": RUNTIME,
        "graph_runs": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "ranges": "NVTX_EVENTS",
        "samples": "GPU_METRICS",
        "allocations": "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "events": "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        "waits": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "host_samples": "COMPOSITE_EVENTS",
        "diagnostics": "DIAGNOSTIC_EVENT",
        "host_calls": "OSRT_API",
        "cpu_switches": "SCHED_EVENTS",
        "network": "NET_NIC_METRIC",
        "gpu_switches": "GPU_CONTEXT_SWITCH_EVENTS",
    }[table]
    for export in (everything().without_tables(raw), everything().empty_tables(raw)):
        trace = opened(export)
        assert not trace.has(table)
        assert trace.tables == FILLED - {table}
        assert trace.rows(table) == 0


def test_03_many_tables_missing_at_once(opened: Any) -> None:
    side = (
        "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_STREAM",
        "PROCESSES",
        "StringIds",
        "ENUM_CUDA_MEM_KIND",
        "META_DATA_CAPTURE",
        "TARGET_INFO_SESSION_START_TIME",
    )
    trace = opened(everything().without_tables(*side))
    assert trace.rows("kernels") == 1
    assert texts(trace, "kernels", "name_id") == [""]
    assert trace.capture.start_utc_ns is None


def test_03_tables_that_are_present_but_empty_count_as_absent(opened: Any) -> None:
    trace = opened(Export("2.9", lazy=False).process(1).launch(at=0))
    assert trace.tables == {"kernels", "api_calls"}


def test_03_ranges_are_absent_where_only_domains_are_declared(opened: Any) -> None:
    trace = opened(Export().process(1).nvtx(75, 0, text="MPI").nvtx(39, 1, text="main"))
    assert not trace.has("ranges")


def test_04_graph_mode_work_sits_in_graph_runs(opened: Any) -> None:
    nodes = [("a", 30_000, 10_000), ("b", 45_000, 5_000)]
    trace = opened(Export().process(1).graph_launch(at=0, nodes=nodes, mode="graph", graph=12))
    assert not trace.has("kernels")
    assert rows(trace, "graph_runs", "start", "end", "graph", "correlation", "stream") == [
        (30_000, 50_000, 12, 1, 7)
    ]
    assert rows(trace, "api_calls", "call") == [(Call.GRAPH_LAUNCH,)]


def test_04_a_graph_without_an_id_is_told_by_its_executable(opened: Any) -> None:
    trace = opened(
        Export()
        .process(1)
        .graph_launch(at=0, nodes=[("a", 30, 10)], mode="graph", graph=12, executable=34)
        .without_columns("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "graphId")
    )
    assert rows(trace, "graph_runs", "graph") == [(34,)]


def test_04_node_mode_work_is_kernels_with_a_node(opened: Any) -> None:
    trace = opened(Export().process(1).graph_launch(at=0, nodes=[("a", 30, 10), ("b", 45, 5)]))
    found = rows(trace, "kernels", "start", "correlation", "graph_node")
    assert [row[:2] for row in found] == [(30, 1), (45, 1)]
    assert all(node > 0 for _, _, node in found)


@pytest.mark.parametrize("column", ["start", "end"])
def test_rows_without_a_place_in_time_are_no_rows(opened: Any, column: str) -> None:
    export = Export().process(1).launch(at=0)
    trace = opened(export.without_columns(KERNEL, column))
    assert not trace.has("kernels")
    assert trace.has("api_calls")
    (row,) = trace.ledger.rows()
    assert str(row) == f"1 of 1 rows of {KERNEL} dropped: the table has no column '{column}'"
    assert row.severity == "warning"


def test_05_absent_kernel_columns_read_as_missing(opened: Any) -> None:
    gone = (
        "mangledName",
        "registersPerThread",
        "gridZ",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "graphNodeId",
        "contextId",
        "globalPid",
    )
    trace = opened(Export().process(1).launch(at=0, grid=(5, 1, 1)).without_columns(KERNEL, *gone))
    columns = ("mangled_name_id", "registers", "grid_z", "blocks", "shared_bytes", "context", "process")
    assert rows(trace, "kernels", *columns) == [(MISSING,) * 7]
    assert rows(trace, "kernels", "grid_x", "threads", "graph_node") == [(5, 128, 0)]
    assert rows(trace, "kernels", "mangled_name_id") == [(MISSING,)]


def test_05_one_kind_of_shared_memory_is_enough(opened: Any) -> None:
    trace = opened(
        Export().process(1).launch(at=0, shared=(7, 9)).without_columns(KERNEL, "staticSharedMemory")
    )
    assert rows(trace, "kernels", "shared_bytes") == [(9,)]


def test_05_a_table_without_times_cannot_be_placed(opened: Any) -> None:
    trace = opened(everything().without_columns(KERNEL, "start"))
    assert not trace.has("kernels")


def test_06_columns_that_users_added_change_nothing(opened: Any) -> None:
    plain = everything()
    added = everything()
    for table in (KERNEL, RUNTIME, MEMCPY, "NVTX_EVENTS"):
        added.add_column(table, "name", "aten::mm").add_column(table, "odd name\"'", 5, "INTEGER")
    one, other = opened(plain), opened(added)
    for table in TABLES:
        for name, values in one.columns(table, TABLES[table]).items():
            np.testing.assert_array_equal(values, other.columns(table, [name])[name])


def test_06_columns_in_another_order(tmp_path: Path) -> None:
    path = Export().process(1).launch(at=0, kernel="gemm").write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as db:
        db.execute(
            f"create table k as select shortName, end, correlationId, start, demangledName from {KERNEL}"
        )
        db.execute(f"drop table {KERNEL}")
        db.execute(f"alter table k rename to {KERNEL}")
    with open_trace(path) as trace:
        assert rows(trace, "kernels", "start", "end", "correlation") == [(7_000, 17_000, 1)]
        assert texts(trace, "kernels", "name_id") == ["gemm"]


def test_07_a_call_recorded_in_two_layers_counts_once(opened: Any) -> None:
    trace = opened(
        Export("2.9")
        .process(1)
        .call("cudaHostRegister_v4000", 0, 50)
        .call_in_two_layers("cudaMalloc", 1_000, 1_000)
        .call_in_two_layers("cudaMemcpy", 3_000, 2_000)
        .call("cuLaunchKernel", 9_000, 10)
    )
    assert rows(trace, "api_calls", "start", "end", "correlation", "call") == [
        (0, 50, 1, Call.ALLOC),
        (1_000, 2_000, 2, Call.ALLOC),
        (3_000, 5_000, 3, Call.COPY),
        (9_000, 9_010, 4, Call.LAUNCH),
    ]
    assert texts(trace, "api_calls", "name_id")[1] == "cudaMalloc"
    assert trace.rows("api_calls") == 4


def test_07_driver_calls_inside_runtime_calls_stay(opened: Any) -> None:
    trace = opened(
        Export()
        .process(1)
        .call("cudaLaunchKernel_v7000", 0, 100)
        .call("cuLaunchKernel", 10, 80, correlation=1)
        .call("cudaStreamBeginCapture_v10000", 200, 10)
        .call("cudaStreamBeginCapture_v10010", 300, 10)
    )
    assert trace.rows("api_calls") == 4


def test_07_names_without_a_string_are_other_calls(opened: Any) -> None:
    trace = opened(Export().process(1).call("cudaMalloc", 0).without_tables("StringIds"))
    assert rows(trace, "api_calls", "call") == [(Call.OTHER,)]


@pytest.mark.parametrize(
    "damage",
    [
        "drop table StringIds",
        "alter table StringIds rename column id to other",
        "alter table StringIds rename column value to other",
    ],
)
def test_07_without_strings_threads_have_no_name(tmp_path: Path, damage: str) -> None:
    path = Export().process(1).thread(2, "worker").call("cudaMalloc", 0).write(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage)
    with open_trace(path) as trace:
        assert trace.capture.threads == ()
        assert trace.texts([1]) == [""]


def test_08_text_in_the_row_and_text_by_id_in_one_file(opened: Any) -> None:
    trace = opened(
        Export()
        .process(1, tid=2)
        .range("by id", 0, 10)
        .range_inline("inline", 20, 30, domain=3)
        .range_inline("by id", 40, 50)
        .range_inline("inline", 60, 70, style="start_end")
        .mark("a mark", 80)
        .range("by id", 90, 95, style="start_end")
    )
    assert rows(trace, "ranges", "start", "end", "process", "thread", "domain", "style") == [
        (0, 10, 1, 2, 0, PUSH_POP),
        (20, 30, 1, 2, 3, PUSH_POP),
        (40, 50, 1, 2, 0, PUSH_POP),
        (60, 70, 1, 2, 0, START_END),
        (80, 80, 1, 2, 0, MARK),
        (90, 95, 1, 2, 0, START_END),
    ]
    ids = [text_id for (text_id,) in rows(trace, "ranges", "text_id")]
    assert trace.texts(ids) == ["by id", "inline", "by id", "inline", "a mark", "by id"]
    assert ids[0] == ids[2] == ids[5]
    assert ids[1] == ids[3]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("gone", ["text", "textId"])
def test_08_one_of_the_two_text_columns_absent(opened: Any, gone: str) -> None:
    export = Export().process(1)
    (export.range if gone == "text" else export.range_inline)("step", 0, 10)
    trace = opened(export.without_columns("NVTX_EVENTS", gone))
    assert texts(trace, "ranges", "text_id") == ["step"]


def test_08_a_range_without_any_text(opened: Any) -> None:
    trace = opened(Export().process(1).nvtx(59, 0, 10).range_inline("", 20, 30))
    assert rows(trace, "ranges", "text_id")[0] == (MISSING,)
    assert texts(trace, "ranges", "text_id") == ["", ""]


def test_08_a_range_without_any_text_where_no_row_holds_one(opened: Any) -> None:
    export = Export().process(1).range("step", 0, 10).nvtx(59, 20, 30).without_columns("NVTX_EVENTS", "text")
    assert texts(opened(export), "ranges", "text_id") == ["step", ""]


def test_08_other_event_types_and_ranges_that_never_end_are_left_out(opened: Any) -> None:
    export = Export().process(1).nvtx(75, 0, text="domain").nvtx(33, 1, text="category")
    export.nvtx(39, 2, text="thread name").range("open", 5, None).range_inline("shut", 6, 9)
    export.range_inline("also open", 7, None, style="start_end").mark("m", 8)
    trace = opened(export)
    assert texts(trace, "ranges", "text_id") == ["shut", "m"]
    assert rows(trace, "ranges", "start", "end") == [(6, 9), (8, 8)]
    assert any("2" in line and "NVTX" in line for line in trace.capture.warnings)


def test_08_columns_of_ranges_asked_one_by_one_stay_aligned(opened: Any) -> None:
    export = Export().process(1)
    for i in range(50):
        export.range_inline(f"r{i}", i * 10, None if i % 3 == 0 else i * 10 + 5)
        export.range(f"s{i}", i * 10 + 1, i * 10 + 4)
    trace = opened(export)
    start = trace.columns("ranges", ["start"])["start"]
    names = texts(trace, "ranges", "text_id")
    assert len(start) == len(names)
    for at, name in zip(start.tolist(), names, strict=True):
        assert at == int(name[1:]) * 10 + (name[0] == "s")


def test_09_text_that_is_not_utf8_is_read_with_replacement(opened: Any) -> None:
    bad = b"caf\xe9 kernel"
    trace = opened(
        Export()
        .process(1, name="pyth\u00f6n")
        .launch(at=0, kernel=bad)
        .range_inline(b"step \xff", 0, 9)
        .range_inline(b"step \xff", 20, 29)
        .range(b"\xfe id", 30, 39)
        .diagnostic(b"\xfcber")
        .row("TARGET_INFO_SYSTEM_ENV", name="NvDriverVersion", value=b"\xff1.2")
        .option("DATE", "x")
    )
    assert texts(trace, "kernels", "name_id") == ["caf\ufffd kernel"]
    assert texts(trace, "ranges", "text_id") == ["step \ufffd", "step \ufffd", "\ufffd id"]
    assert texts(trace, "diagnostics", "text_id") == ["\ufffdber"]
    assert trace.capture.driver == "\ufffd1.2"


def test_10_times_start_anywhere_and_duration_is_not_the_window(opened: Any) -> None:
    start = 155_000_000_000
    trace = opened(Export(duration=300).process(1).launch(at=start, kernel_start=start + 9))
    assert rows(trace, "kernels", "start") == [(start + 9,)]
    assert trace.capture.duration_ns == 300


def test_10_times_before_the_session_stay_as_they_are(opened: Any) -> None:
    trace = opened(Export().process(1).call("cudaMalloc", -20_000_000_000, 10))
    assert rows(trace, "api_calls", "start", "end") == [(-20_000_000_000, -19_999_999_990)]


def test_11_correlation_ids_repeat_between_processes(opened: Any) -> None:
    export = Export()
    for pid, name in ((100, "rank0"), (200, "rank1")):
        export.process(pid).launch(at=pid, kernel=name)
    trace = opened(export)
    assert rows(trace, "kernels", "process", "correlation") == [(100, 1), (200, 1)]
    assert rows(trace, "api_calls", "process", "thread", "correlation") == [(100, 100, 1), (200, 200, 1)]


def test_11_kernels_without_a_call_are_normal_in_slices(opened: Any) -> None:
    trace = opened(Export().process(1).kernel(5, 10, correlation=900).kernel(50, correlation=0))
    assert rows(trace, "kernels", "correlation") == [(900,), (MISSING,)]
    assert not trace.has("api_calls")


def test_11_ids_that_are_null_are_missing(opened: Any) -> None:
    trace = opened(
        Export().row(RUNTIME, start=1, end=2, nameId=1).row(KERNEL, start=3, end=4, demangledName=1)
    )
    assert rows(trace, "api_calls", "process", "thread", "correlation", "callchain") == [(MISSING,) * 4]
    assert rows(trace, "kernels", "process", "correlation") == [(MISSING, MISSING)]


def test_12_devices_go_by_id_not_by_row(opened: Any) -> None:
    trace = opened(
        Export()
        .gpu(id=1, name="NVIDIA A40", sm_count=84)
        .gpu(id=0, name="NVIDIA A100-PCIE-40GB", sm_count=108)
        .process(1)
        .launch(at=0, device=1)
    )
    assert [(d.id, d.name) for d in trace.devices] == [(0, "NVIDIA A100-PCIE-40GB"), (1, "NVIDIA A40")]
    assert rows(trace, "kernels", "device") == [(1,)]


def test_12_cuda_ordinals_become_gpu_ids(opened: Any) -> None:
    """CUDA sorts a mixed node by speed: ordinal 0 is not GPU 0."""
    trace = opened(
        Export()
        .gpu(id=0, name="NVIDIA A40", cuda=1)
        .gpu(id=1, name="NVIDIA A100-PCIE-40GB", cuda=0)
        .process(1)
        .launch(at=0, device=0)
        .copy(at=9_000, device=1)
    )
    assert rows(trace, "kernels", "device") == [(1,)]
    assert rows(trace, "copies", "device") == [(0,)]


def test_12_two_processes_that_each_see_their_gpu_as_ordinal_0(opened: Any) -> None:
    export = Export("3.25")
    for pid, gpu in ((100, 0), (200, 1), (300, 5)):
        export.gpu(id=gpu).process(pid).cuda_device(cuda=0, gpu=gpu).launch(at=pid, device=0)
    export.process(400).launch(at=500, device=3)
    trace = opened(export)
    assert rows(trace, "kernels", "process", "device") == [(100, 0), (200, 1), (300, 5), (400, 3)]
    assert rows(trace, "kernels", "device") == [(0,), (1,), (5,), (3,)]
    assert [device.id for device in trace.devices] == [0, 1, 5]


def test_12_processes_that_the_table_of_devices_does_not_list(opened: Any) -> None:
    """In containers its pids are not those of the events: ordinals that all agree on still hold."""
    export = Export("3.25").gpu(id=4).process(100).cuda_device(cuda=0, gpu=4, pid=7)
    trace = opened(export.launch(at=0, device=0))
    assert rows(trace, "kernels", "device") == [(4,)]


def test_13_full_names_tell_kernels_apart_that_share_a_short_one(opened: Any) -> None:
    names = ["void at::elementwise_kernel<add>(int)", "void at::elementwise_kernel<mul>(int)"]
    export = Export().process(1)
    for number, name in enumerate(names):
        export.launch(at=number * 50_000, kernel=name, short="elementwise_kernel")
    trace = opened(export)
    assert texts(trace, "kernels", "name_id") == names
    assert len(set(texts(trace, "kernels", "short_name_id"))) == 1


def test_tables_with_a_version_suffix_stand_in_for_the_plain_one(tmp_path: Path) -> None:
    path = everything().write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("alter table NVTX_EVENTS rename to NVTX_EVENTS_V2")
        db.execute(f"alter table {KERNEL} rename to {KERNEL}_V3")
        db.execute(f"create table {KERNEL} (start integer, end integer)")
    with open_trace(path) as trace:
        assert texts(trace, "kernels", "name_id") == ["gemm<int>(int*)"]
        assert texts(trace, "ranges", "text_id") == ["iteration 0"]


def test_indexes_that_another_tool_added_do_not_reorder_rows(tmp_path: Path) -> None:
    export = Export().process(1)
    for i in range(200):
        export.launch(at=(200 - i) * 1_000, kernel=f"k{i % 7}")
    path = export.write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as db:
        db.execute(f"create index a on {KERNEL} (start, end)")
        db.execute(f"create index b on {KERNEL} (correlationId)")
    with open_trace(path) as trace:
        start = trace.columns("kernels", ["start"])["start"]
        correlation = trace.columns("kernels", ["correlation"])["correlation"]
        assert (np.diff(start) < 0).all()
        assert (np.diff(correlation) > 0).all()


def test_an_unknown_string_id_reads_as_empty(opened: Any) -> None:
    trace = opened(Export().process(1).launch(at=0, kernel="k"))
    assert trace.texts([1, MISSING, 10**12, 2]) == ["cudaLaunchKernel_v7000", "", "", "k"]


def test_more_strings_than_sqlite_takes_parameters(opened: Any) -> None:
    export = Export().process(1)
    for i in range(2_500):
        export.range(f"range {i}", i, i + 1)
    assert texts(opened(export), "ranges", "text_id")[-1] == "range 2499"


def test_pages_and_sql_give_the_same_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture large enough that its tables are decoded from pages, read once each way."""
    export = Export("3.16").gpu().process(100)
    for i in range(1_500):
        at = i * 100_000
        export.process(100 + i % 2).range_inline(f"step {i % 40}", at, at + 90_000)
        export.launch(at=at, kernel=f"k{i % 5}", grid=(i % 300 + 1, 1, 1), stream=7 + i % 3)
        export.copy(at=at + 20_000, bytes=i**3, memory="pinned" if i % 4 else "pageable")
        export.sync(at=at + 40_000)
    export.gpu_metrics({"SM Active": list(range(100)) * 15, "DRAM Read Bandwidth": [7] * 1_500})
    path = export.write(tmp_path / "t.sqlite")
    asked: list[str] = []

    def declined(*given: Any) -> Sequence[object]:
        asked.append(given[2])
        raise NotPlain("for the test")

    with open_trace(path) as trace:
        by_pages = {t: trace.columns(t, TABLES[t]) for t in sorted(trace.tables)}
    monkeypatch.setattr(PageReader, "read_columns", declined)
    with open_trace(path) as trace:
        by_sql = {t: trace.columns(t, TABLES[t]) for t in sorted(trace.tables)}
    assert {KERNEL, RUNTIME, MEMCPY, "GPU_METRICS", "NVTX_EVENTS"} <= set(asked)
    assert by_pages.keys() == by_sql.keys()
    for table, columns in by_pages.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(values, by_sql[table][name], err_msg=f"{table}.{name}")


def test_views_of_a_capture_call_nothing_with_side_effects(tmp_path: Path) -> None:
    path = tmp_path / "views.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create view v as select load_extension('x') as a")
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of load_extension"):
        SqliteFile(path).rows("select * from v")


def test_counters_of_a_network_card_are_rates_but_for_waits(opened: Any) -> None:
    """Bytes a ms become bytes a second; a card is known by its number, one that no map names by its id."""
    export = Export("3.25").network(at=8, dur=5, nic=1, sent=9, waits=4).network(at=20, dur=5, nic=2, sent=0)
    of_card = {"globalId": 2 << 48, "start": 30, "end": 35}
    export.row("NET_NIC_METRIC", **of_card, metricsIdx=6, value=-1)  # not measured
    export.row("NET_NIC_METRIC", **of_card, metricsIdx=7, value=5)  # of a counter that nothing reads
    export.row("NET_NIC_METRIC", **of_card | {"globalId": 77}, metricsIdx=6, value=3)
    export.row("TARGET_INFO_NETWORK_METRICS", metricsIdx=None, name="IB: Bytes sent", unit="bytes/ms")
    assert rows(opened(export), "network", "start", "nic", "kind", "value") == [
        (8, 1, NIC_SENT, 9_000),
        (8, 1, NIC_WAITS, 4),
        (20, 2, NIC_SENT, 0),
        (20, 2, NIC_WAITS, 0),
        (30, 77, NIC_SENT, 3_000),
    ]
