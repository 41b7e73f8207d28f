"""Rows that cannot be true are not believed, and what looks odd but may happen is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.builder import KERNEL, RUNTIME, Export
from tests.kineto_builder import Profile
from tests.scenarios.support import fact, ranked

US = 1_000
DAY = 86_400 * 10**9


def eager(broken: int = 0, **how: int) -> Export:
    """Two hundred launches of ordinary kernels, the first `broken` of them changed as `how` says:
    `early` us before the call, lasting `call` us of the host, or `length` us on the device."""
    e = Export().gpu().process(100)
    for i in range(200):
        at, odd = i * 40 * US, i < broken
        e.call("cudaLaunchKernel_v7000", at, how.get("call", 5) * US if odd else 5 * US)
        start = at - how["early"] * US if odd and "early" in how else at + 7 * US
        e.kernel(start, how.get("length", 20) * US if odd else 20 * US, f"k{i % 5}")
    return e


def edited(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    return path


def judged(export: Export, folder: Path, *statements: str) -> Diagnosis:
    return advisor.diagnose(edited(export.write(folder / "trace.sqlite"), *statements))


def assert_withheld(d: Diagnosis, said: str) -> None:
    """The counts come first, and only what is said of the capture stands beside them."""
    assert ranked(d)[0] == "damaged-capture"
    assert said in d.findings[0].message
    assert {f.code[:3] for f in d.findings} == {"CAP"}
    assert "high" not in {f.severity for f in d.findings[1:]}
    assert {h.code[:3] for h in d.healthy} <= {"CAP"}


def waited_for(length: int = 20, wait: str = "cudaDeviceSynchronize_v3020", devices: int = 1) -> Export:
    """Fifty kernels of `length` us, each on a stream of its own, and a wait of 60 us after each launch."""
    e = Export().gpu().process(100)
    for i in range(50):
        at = i * 500 * US
        e.launch(
            at,
            5 * US,
            f"k{i % 3}",
            kernel_start=at + 7 * US,
            kernel_dur=length * US,
            stream=7 + i % 20,
            device=i % devices,
        )
        e.call(wait, at + 6 * US, 60 * US)
    return e


def copied(after: int = 28) -> Export:
    """A copy of 10 us behind each kernel, which runs from 7 to 27 us after its call."""
    e = eager()
    for i in range(200):
        at = i * 40 * US
        e.copy(at + 6 * US, 1 * US, copy_start=at + after * US, copy_dur=10 * US)
    return e


def waited_for_stream(length: int, other: int = 0, context: int = 1) -> Export:
    """Fifty kernels of `length` us on stream 7, and a wait of 60 us after each launch for that stream, or the
    one `other` numbers on."""
    e = Export().gpu().process(100)
    for i in range(50):
        at = i * 500 * US
        e.launch(at, kernel=f"k{i % 3}", kernel_dur=length * US, contextId=context)
        e.sync(at + 6 * US, 60 * US, stream=7 + other)
    return e


def copied_beside_replays(stream: int, nodes: tuple[int, ...] = (7,)) -> Export:
    """Twenty replays of eight kernels, on these streams in turn, and a copy in the midst of each."""
    e = Export().gpu().process(100)
    for i in range(20):
        at = i * 100 * US
        e.graph_launch(at, 20 * US)
        for n in range(8):
            e.kernel(
                at + (30 + n * 5) * US, 5 * US, f"k{n}", stream=nodes[n % len(nodes)], graph_node=1 << 32 | n
            )
        e.copy(at + 21 * US, US, copy_start=at + 40 * US, copy_dur=3 * US, stream=stream)
    return e


def hidden_replays() -> Export:
    """Fifty graph launches that left no row, and a wait after each."""
    e = Export().gpu().process(100).traced("Cuda", graph_mode="graph")
    for i in range(50):
        e.call("cudaGraphLaunch_v10000", i * 400 * US, 20 * US)
        e.call("cudaStreamSynchronize_v3020", (i * 400 + 30) * US, 300 * US)
    return e


def replayed(length: int = 5) -> Export:
    """Twenty replays of one graph, each of eight kernels one after the other."""
    e = Export().gpu().process(100)
    for i in range(20):
        at = i * 100 * US
        e.graph_launch(
            at, 20 * US, [(f"k{n}", at + 30 * US + n * 5 * US, length * US) for n in range(8)], graph=3
        )
    return e


def waited_for_replays() -> Export:
    """Ten replays of 200 kernels, of which the last ends 200 us after the wait for it."""
    e = Export().gpu().process(100)
    for i in range(10):
        at = i * 3_000 * US
        nodes = [(f"k{n % 5}", at + (30 + n * 5) * US, 5 * US) for n in range(199)]
        e.graph_launch(at, 20 * US, [*nodes, ("last", at + 1_030 * US, 300 * US)], graph=3)
        e.call("cudaDeviceSynchronize_v3020", at + 25 * US, 1_105 * US)
    return e


BROKEN: dict[str, tuple[Callable[[], Export], tuple[str, ...], str]] = {
    "kernels before their launch": (
        lambda: eager(10, early=30),
        (),
        "10 of 200 kernels start before the call that issued them",
    ),
    "calls of -1 us": (lambda: eager(200, call=-1), (), "200 of 200 API calls end before they start"),
    "kernels of -1 us": (lambda: eager(5, length=-1), (), "5 of 200 kernels end before they start"),
    "kernels on top of each other": (
        lambda: eager(9, length=70),
        (),
        "kernels overlap the one ahead on their stream",
    ),
    "copies on top of kernels": (
        lambda: copied(after=20),
        (),
        "copies overlap the one ahead on their stream",
    ),
    "replays on top of each other": (
        lambda: replayed(90),
        (),
        "152 of 160 kernels overlap a graph launch on their stream",
    ),
    "kernels after their wait": (
        lambda: waited_for(300),
        (),
        "50 of 50 kernels end after a call has returned that waited for them",
    ),
    "the last kernels of replays after their wait": (
        waited_for_replays,
        (),
        "10 of 2,000 kernels end after a call has returned that waited for them",
    ),
    "copies on top of replays": (
        lambda: copied_beside_replays(7),
        (),
        "20 of 20 copies overlap a graph launch on their stream",
    ),
    "kernels after the wait for their stream": (
        lambda: waited_for_stream(300),
        (),
        "50 of 50 kernels end after a call has returned that waited for them",
    ),
    "kernels of a call that waits": (
        eager,
        (
            "insert into StringIds values (9999, 'cudaStreamSynchronize_v3020')",
            f"update {RUNTIME} set nameId = 9999 where rowid % 2 = 0",
        ),
        "100 of 200 kernels carry the correlation id of a call that issues no such work",
    ),
    "copies of a call that fills": (
        copied,
        (
            "insert into StringIds values (9999, 'cudaMemsetAsync_v3020')",
            f"update {RUNTIME} set nameId = 9999 "
            "where nameId = (select id from StringIds where value like 'cudaMemcpy%')",
        ),
        "200 of 200 copies carry the correlation id of a call that issues no such work",
    ),
    "ids of calls in no order": (
        hidden_replays,
        (f"update {RUNTIME} set correlationId = correlationId * 7 % 101",),
        "API calls carry a lower correlation id than the call ahead on their thread",
    ),
    "calls on top of each other": (
        lambda: eager(200, call=50),
        (),
        "199 of 200 API calls overlap the one ahead on their thread",
    ),
    "calls that never end": (
        eager,
        (f"update {RUNTIME} set end = {2**63 - 1} where rowid > 190",),
        "10 of 200 API calls lie months from the others",
    ),
    "calls of no length": (
        eager,
        (f"update {RUNTIME} set start = start + rowid, end = start + rowid",),
        "200 of 200 API calls last no time",
    ),
    "one correlation id on both sides": (
        eager,
        (f"update {RUNTIME} set correlationId = 7", f"update {KERNEL} set correlationId = 7"),
        "199 of 200 API calls carry the correlation id of another",
    ),
    "kernels from before all time": (
        lambda: loading_first(),
        (f"update {KERNEL} set start = {-(2**63)} where rowid % 7 = 0",),
        "28 of 200 kernels lie months from the others",
    ),
    "kernels that never end": (
        lambda: loading_first(254),
        (f"update {KERNEL} set end = {2**63 - 1}",),
        "254 of 254 kernels lie months from the others",
    ),
    "kernels of no length": (
        eager,
        (f"update {KERNEL} set start = start + rowid, end = start + rowid",),
        "200 of 200 kernels last no time",
    ),
    "grids of less than nothing": (
        eager,
        (f"update {KERNEL} set gridX = -5",),
        "200 of 200 kernels have a negative size",
    ),
    "bytes of less than nothing": (
        copied,
        ("update CUPTI_ACTIVITY_KIND_MEMCPY set bytes = -4096",),
        "200 of 200 copies have a negative size",
    ),
    "doubled kernels": (
        eager,
        (f"insert into {KERNEL} select * from {KERNEL}",),
        "200 of 400 kernels are recorded twice",
    ),
    "doubled calls": (
        eager,
        (f"insert into {RUNTIME} select * from {RUNTIME}",),
        "200 of 400 API calls are recorded twice",
    ),
    "one correlation id for all": (
        eager,
        (f"update {RUNTIME} set correlationId = 1",),
        "199 of 200 API calls carry the correlation id of another",
    ),
    "kernels years later": (
        eager,
        (f"update {KERNEL} set start = start + {900 * DAY}, end = end + {900 * DAY} where rowid < 4",),
        "3 of 200 kernels lie months from the others",
    ),
    "no strings": (eager, ("delete from StringIds",), "200 of 200 kernels have a name without text"),
    "kernels named like a call": (
        eager,
        (
            f"update {KERNEL} set shortName = (select max(nameId) from {RUNTIME}), "
            f"demangledName = (select max(nameId) from {RUNTIME})",
        ),
        "200 of 200 kernels have the name of a call",
    ),
    "kernels named like a call that nobody made": (
        lambda: eager().call("cudaMemcpyAsync_v3020", 9_000 * US, US),
        ("update StringIds set value = 'cudaMemcpyAsync' where value like 'k_'",),
        "200 of 200 kernels have the name of a call",
    ),
    "calls named like a kernel": (
        eager,
        (
            "update StringIds set value = 'void gemm<float>(float*)' "
            f"where id in (select nameId from {RUNTIME})",
        ),
        "200 of 200 API calls have the name of a kernel",
    ),
    "a view": (
        eager,
        (
            f"create table copied as select * from {KERNEL}",
            f"drop table {KERNEL}",
            f"create view {KERNEL} as select * from copied",
        ),
        f"{KERNEL} is a view, not a table",
    ),
    "samples above 100 %": (
        lambda: eager().gpu_metrics({"SMs Active": [40, 250] * 40}),
        (),
        "40 of 80 samples show a share above 100 %",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_impossible_rows_are_not_believed(tmp_path: Path, name: str) -> None:
    export, statements, said = BROKEN[name]
    assert_withheld(judged(export(), tmp_path, *statements), said)


@pytest.mark.parametrize("table", [KERNEL, RUNTIME])
@pytest.mark.parametrize("sign", ["+", "-"])
def test_a_single_row_years_away_is_left_out_and_named(tmp_path: Path, table: str, sign: str) -> None:
    sound = judged(eager(), tmp_path)
    far = f"update {table} set start = start {sign} {900 * DAY}, end = end {sign} {900 * DAY} where rowid = 7"
    d = advisor.diagnose(edited(tmp_path / "trace.sqlite", far))
    assert ranked(d) == ranked(sound)
    assert d.inputs[0].window_ms == pytest.approx(sound.inputs[0].window_ms, rel=0.02)
    assert d.inputs[0].warnings[-1].endswith("months from the others, left out: 1")
    assert fact(d, "capture.far_time_count", None) == 1


def test_what_would_have_been_said_is_named(tmp_path: Path) -> None:
    """Uploads hold most of the window by their rows; nothing of that is advice any more."""
    e = eager()
    for i in range(200):
        e.copy(i * 40 * US + 28 * US, 1 * US, copy_start=i * 40 * US + 28 * US, copy_dur=10 * US)
    sound = judged(e, tmp_path)
    assert "transfer-bound" in {f.cause for f in sound.findings}
    doubled = edited(tmp_path / "trace.sqlite", f"insert into {KERNEL} select * from {KERNEL}")
    d = advisor.diagnose(doubled)
    assert ("transfer-bound", "damaged-capture") in {(o.cause, o.by) for o in d.overruled}
    assert "transfer" not in d.verdict


def busy_by_samples() -> Export:
    """Twenty times 1 ms of kernels and 3 ms of none, in which the samples show the device active, too."""
    e = Export().gpu().process(100)
    for i in range(200):
        begin = i // 10 * 4_000 * US
        e.launch(begin + i % 10 * 10 * US, 4 * US, f"k{i % 5}", begin + (20 + i % 10 * 100) * US, 99 * US)
    return e.gpu_metrics({"GR Active": [60] * 800, "SMs Active": [60] * 800}, 100 * US)


def opaque_graphs() -> Export:
    """Graph launches that left no row, beside other kernels."""
    e = eager()
    for i in range(50):
        e.call("cudaGraphLaunch_v10000", (200 + i) * 40 * US, 20 * US)
    return e


def loading_first(kernels: int = 200) -> Export:
    """Half a second in which modules are loaded comes before the work."""
    e = Export().gpu().process(100)
    for i in range(50):
        e.call("cuModuleLoadData", i * 10_000 * US, 9_000 * US)
    for i in range(kernels):
        e.launch(500_000 * US + i * 40 * US, kernel=f"k{i % 5}", kernel_dur=20 * US)
    return e


@pytest.mark.parametrize(
    ("export", "cause"),
    [
        (busy_by_samples, "unrecorded-gpu-work"),
        (loading_first, "startup-in-window"),
        (opaque_graphs, "opaque-cuda-graphs"),
    ],
)
def test_what_rests_on_impossible_times_is_taken_back(
    tmp_path: Path, export: Callable[[], Export], cause: str
) -> None:
    """It speaks of the capture, but by times that cannot be."""
    sound = judged(export(), tmp_path)
    assert ("high", cause) in {(f.severity, f.cause) for f in sound.findings}, ranked(sound)
    d = advisor.diagnose(edited(tmp_path / "trace.sqlite", f"update {KERNEL} set gridX = -5"))
    assert_withheld(d, "200 of 200 kernels have a negative size")
    assert (cause, "damaged-capture") in {(o.cause, o.by) for o in d.overruled}


def test_the_doctor_says_so_too(tmp_path: Path) -> None:
    found = advisor.doctor(eager(10, early=30).write(tmp_path / "t.sqlite")).findings[0]
    assert found.cause == "damaged-capture"
    assert "10 of 200 kernels start before" in found.message


def test_one_row_in_a_hundred_is_no_damage(tmp_path: Path) -> None:
    d = judged(eager(2, early=30), tmp_path)
    assert fact(d, "capture.before_launch_count", None) == 2
    assert "damaged-capture" not in {f.cause for f in d.findings}


def two_processes() -> Export:
    """Correlation ids repeat between processes."""
    e = Export().gpu()
    for pid in (100, 200):
        e.process(pid)
        for i in range(50):
            e.launch(i * 50 * US, kernel=f"k{i % 3}")
    return e


def replays() -> Export:
    """The nodes of a graph carry one id, and run beside each other under one stream."""
    e = Export().gpu().process(100)
    for i in range(20):
        at = i * 100 * US
        nodes = [(f"k{n}", at + 30 * US + n * 5 * US, 20 * US) for n in range(8)]
        e.graph_launch(at, 20 * US, nodes)
    return e


def dependent_launches() -> Export:
    e = Export().gpu().process(100)
    for i in range(50):
        at = i * 40 * US
        e.launch(at, api="cudaLaunchKernelExC_v11060", kernel_start=at + 7 * US, kernel_dur=60 * US)
    return e


def skewed_clocks() -> Export:
    return eager(200, early=3)


def two_streams() -> Export:
    e = Export().gpu().process(100)
    for i in range(60):
        e.launch(i * 20 * US, kernel_dur=35 * US, stream=7 + i % 2)
    return e


def waits_for_a_stream() -> Export:
    return waited_for(300, "cudaStreamSynchronize_v3020")


def waits_for_one_of_two_devices() -> Export:
    return waited_for(300, devices=2)


def nested_calls() -> Export:
    """A runtime call that calls the driver, and returns as it does."""
    e = Export().gpu().process(100)
    for i in range(50):
        at = i * 40 * US
        e.call("cudaDeviceSynchronize_v3020", at + 20 * US, 10 * US)
        e.call("cuCtxSynchronize", at + 21 * US, 9 * US)
        e.launch(at, kernel_start=at + 7 * US, kernel_dur=10 * US)
    return e


def waits_for_another_stream() -> Export:
    return waited_for_stream(300, other=1)


def waits_for_that_stream_of_another_context() -> Export:
    return waited_for_stream(300, context=2)


def waits_long_enough() -> Export:
    return waited_for_stream(50)


def copies_on_another_stream() -> Export:
    return copied_beside_replays(8)


def copies_beside_a_graph_of_two_streams() -> Export:
    return copied_beside_replays(7, (7, 13))


@pytest.mark.parametrize(
    "export",
    [
        waits_for_another_stream,
        waits_for_that_stream_of_another_context,
        waits_long_enough,
        copies_on_another_stream,
        copies_beside_a_graph_of_two_streams,
        hidden_replays,
        two_processes,
        replays,
        dependent_launches,
        skewed_clocks,
        two_streams,
        copied,
        replayed,
        waited_for,
        waits_for_a_stream,
        waits_for_one_of_two_devices,
        nested_calls,
    ],
)
def test_what_may_happen_is_believed(tmp_path: Path, export: Callable[[], Export]) -> None:
    d = judged(export(), tmp_path)
    assert fact(d, "capture.invalid_row_ratio", None) == 0.0
    assert fact(d, "capture.invalid_rows", None) == "none"
    assert "damaged-capture" not in {f.cause for f in d.findings}


# --- rows whose times cannot be read ------------------------------------------------------------------


def kernels_alone(count: int = 50) -> Export:
    """Kernels of a program whose calls were not recorded."""
    e = Export().gpu().process(100)
    for i in range(count):
        e.range(f"step {i}", i * 20 * US, 15 * US).kernel(i * 20 * US, 9 * US, "gemm", correlation=0)
    return e


#: A table without the limits that an export gives its columns.
LOOSE = (
    f"create table loose as select * from {KERNEL}",
    f"drop table {KERNEL}",
    f"alter table loose rename to {KERNEL}",
)


@pytest.mark.parametrize("start", ["null", "'then'", "'never at 3'", "1e300", "x'00'"])
def test_kernels_without_a_time_are_damage(start: str, tmp_path: Path) -> None:
    """Read as 0 they would all run at once, on a GPU that is well used."""
    d = judged(kernels_alone(), tmp_path, *LOOSE, f"update {KERNEL} set start = {start}")
    assert_withheld(d, "50 of 50 ")


@pytest.mark.parametrize("edge", [2**63 - 1, -(2**63)])
def test_kernels_at_an_end_of_time_alone(edge: int, tmp_path: Path) -> None:
    d = judged(kernels_alone(), tmp_path, *LOOSE, f"update {KERNEL} set start = {edge}, end = {edge}")
    assert_withheld(d, "50 of 50 ")


@pytest.mark.parametrize("ts", [1e300, -1e300, float("nan"), float("inf"), "then", None, [], 1e19])
@pytest.mark.parametrize("launched", [True, False])
def test_events_of_pytorch_without_a_time_are_damage(ts: object, launched: bool, tmp_path: Path) -> None:
    """The program did run on the GPU: kernels of impossible times are kernels."""
    p = Profile().gpu().process(100)
    for i in range(50):
        p.op("aten::mm", i * 20 * US, 15 * US)
        if launched:
            p.launch(i * 20 * US, 5 * US, "gemm")
        else:
            p.kernel(i * 20 * US, 9 * US, "gemm", correlation=i + 1)
    path = p.write(tmp_path / "trace.json")
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["ts"] = ts
    path.write_text(json.dumps(document))
    d = advisor.diagnose(path)
    assert ranked(d)[0] == "damaged-capture"
    assert "50 of 50 kernels have no time that can be read" in d.findings[0].message
    assert "no-gpu-activity" not in ranked(d)
    assert "CPU" not in d.verdict
    assert [r.count for r in d.inputs[0].ledger if r.table == "kernels"] == [50]


def test_one_event_of_pytorch_without_a_time_is_counted_alone(tmp_path: Path) -> None:
    p = Profile().gpu().process(100)
    for i in range(200):
        p.launch(i * 20 * US, 5 * US, "gemm")
    path = p.write(tmp_path / "trace.json")
    document = json.loads(path.read_text())
    next(e for e in document["traceEvents"] if e.get("cat") == "kernel")["ts"] = "then"
    path.write_text(json.dumps(document))
    d = advisor.diagnose(path)
    assert "damaged-capture" not in ranked(d)
    assert [(r.count, r.rows) for r in d.inputs[0].ledger if r.table == "kernels"] == [(1, 200)]


def test_a_list_whose_operations_all_last_less_than_nothing_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    lines = [f"{i * 20_000},-5,{i + 1},NVIDIA H200 (0),1,7,gemm" for i in range(50)]
    path.write_text("\n".join(["Start (ns),Duration (ns),CorrId,Device,Ctx,Strm,Name", *lines, ""]))
    with pytest.raises(InputError, match="output of nsys without a table that can be read"):
        advisor.diagnose(path)
