"""NCCL's own NVTX ranges tell the size and the communicator of its kernels."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from advisor.pipeline.diagnose import diagnose
from advisor.sources.nsys.payloads import Operation, attributed
from advisor.sources.open import open_trace
from advisor.sources.schema import MISSING
from advisor.sources.trace import Trace
from tests.builder import Export

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GROUP_END, COLLECTIVE = 16777230, 16777223
COMM = 0xF00D_CAFE_0000_0001  # beyond 63 bits, as hashes are


def described(export: Export) -> Export:
    """The schemas as real exports of 3.25 list them: once for each process, the offset of the
    first field null."""
    for _ in range(2):
        for schema, entries, length in ((GROUP_END, 1, 8), (COLLECTIVE, 3, 24)):
            export.row(
                "NVTX_PAYLOAD_SCHEMAS",
                domainId=1,
                schemaId=schema,
                type=1,
                numEntries=entries,
                payloadSize=length,
            )
        for schema, i, kind, name, offset in (
            (GROUP_END, 0, 18, "NCCL communicator ID", None),
            (COLLECTIVE, 0, 18, "NCCL communicator ID", None),
            (COLLECTIVE, 1, 22, "Message size [bytes]", 8),
            (COLLECTIVE, 2, 16777232, "Reduction operation", 16),
        ):
            export.row(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                domainId=1,
                schemaId=schema,
                idx=i,
                type=kind,
                name=name,
                offset=offset,
            )
    return export


def payload(schema: int, *fields: int) -> bytes:
    body = b"".join(struct.pack("<Q", f) for f in fields)
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


def call(export: Export, start: int, end: int, size: int, comm: int = COMM) -> None:
    export.nvtx(
        59,
        start,
        end,
        textId=export.string("ncclAllReduce"),
        domainId=1,
        binaryData=payload(COLLECTIVE, comm, size, 0),
    )


def group(export: Export, at: int, *sizes: int, kernels: int | None = None) -> None:
    """A group: the calls, then the launches at its end."""
    for i, size in enumerate(sizes):
        call(export, at + 100 * i, at + 100 * i + 50, size)
    export.nvtx(
        59,
        at + 5_000,
        at + 60_000,
        textId=export.string("ncclGroupEnd"),
        domainId=1,
        binaryData=payload(GROUP_END, COMM),
    )
    for i in range(len(sizes) if kernels is None else kernels):
        export.launch(at=at + 6_000 + 10_000 * i, kernel=ALL_REDUCE, kernel_dur=3_000)


def new() -> Export:
    return described(Export("3.25").gpu().process(100))


def opened(export: Export, folder: Path) -> Trace:
    return open_trace(export.write(folder / "t.sqlite"))


def sizes(trace: Trace) -> list[int]:
    found: list[int] = trace.columns("collectives", ["bytes"])["bytes"].tolist()
    return found


def test_a_call_that_launches_by_itself(tmp_path: Path) -> None:
    export = new()
    call(export, 0, 20_000, 8192)
    export.launch(at=5_000, kernel=ALL_REDUCE).launch(at=50_000, kernel="gemm")
    trace = opened(export, tmp_path)
    read = trace.columns("collectives", ["start", "stream", "bytes", "sequence", "group_id"])
    kernels = trace.columns("kernels", ["start"])["start"]
    assert read["start"].tolist() == kernels[:1].tolist()
    assert read["bytes"].tolist() == [8192]
    assert read["sequence"].tolist() == [MISSING]
    assert trace.texts(read["group_id"]) == [f"{COMM:#x}"]


def test_groups_launch_at_their_end(tmp_path: Path) -> None:
    export = new()
    group(export, 0, 1_000)
    group(export, 100_000, 2_000, 3_000)
    assert sizes(opened(export, tmp_path)) == [1_000, 2_000, 3_000]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_folders_say_the_same(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    from tests.sources.test_nsys_columnar import exported

    export = new()
    group(export, 0, 1_000, 2_000)
    folder = exported(export.write(tmp_path / "t.sqlite"), tmp_path / "t", kind)
    assert sizes(open_trace(folder)) == [1_000, 2_000]


def test_calls_that_became_one_kernel_have_no_size_of_their_own(tmp_path: Path) -> None:
    export = new()
    group(export, 0, 1_000, 2_000, kernels=1)
    group(export, 100_000, 3_000, kernels=2)
    group(export, 200_000, 4_000)
    assert sizes(opened(export, tmp_path)) == [4_000]


def test_threads_do_not_mix(tmp_path: Path) -> None:
    export = new()
    for thread, size in ((101, 1_000), (102, 2_000)):
        export.thread(thread)
        call(export, thread, 20_000 + thread, size)
    for thread in (101, 102):
        export.thread(thread)
        export.launch(at=5_000 + thread * 100, kernel=ALL_REDUCE)
    assert sizes(opened(export, tmp_path)) == [1_000, 2_000]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"x",
        "text",
        payload(COLLECTIVE, COMM)[:-1],
        payload(7, 1, 2, 3),
        payload(COLLECTIVE, COMM, (1 << 64) - 1, 0),
    ],
)
def test_payloads_that_cannot_be_read(tmp_path: Path, damage: object) -> None:
    export = new()
    export.nvtx(59, 0, 20_000, textId=export.string("ncclAllReduce"), binaryData=damage)
    export.launch(at=5_000, kernel=ALL_REDUCE)
    assert sizes(opened(export, tmp_path)) == []


def test_without_payloads_there_is_no_table(tmp_path: Path) -> None:
    export = Export("3.25").gpu().process(100).range("ncclAllReduce", 0, 20_000)
    export.launch(at=5_000, kernel=ALL_REDUCE)
    assert not opened(export, tmp_path).has("collectives")
    export = new().launch(at=5_000, kernel=ALL_REDUCE)
    export.nvtx(59, 0, 20_000, textId=export.string("ncclAllReduce"), binaryData=None)
    (tmp_path / "empty").mkdir()
    assert not opened(export, tmp_path / "empty").has("collectives")
    (tmp_path / "other").mkdir()
    assert not opened(new().launch(at=0, kernel=ALL_REDUCE), tmp_path / "other").has("collectives")


def test_the_last_field_of_a_payload_may_end_it(tmp_path: Path) -> None:
    export = new()
    for _ in range(2):
        export.row("NVTX_PAYLOAD_SCHEMAS", domainId=1, schemaId=9, type=1, numEntries=2, payloadSize=16)
        for i, (name, offset) in enumerate((("NCCL communicator ID", None), ("Message size [bytes]", 8))):
            export.row(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                domainId=1,
                schemaId=9,
                idx=i,
                type=18,
                name=name,
                offset=offset,
            )
    export.nvtx(59, 0, 20_000, textId=export.string("ncclAllReduce"), binaryData=payload(9, COMM, 8192))
    assert sizes(opened(export.launch(at=5_000, kernel=ALL_REDUCE), tmp_path)) == [8192]


@pytest.mark.parametrize("launches", [1, 2])
def test_kernels_of_later_calls_than_any_recorded_have_no_size(tmp_path: Path, launches: int) -> None:
    export = new()
    for i in range(launches):
        export.launch(at=5_000 + 100 * i, kernel="gemm")
    export.kernel(90_000, 3_000, kernel=ALL_REDUCE, correlation=1_000_000)
    call(export, 0, 20_000, 8192)
    assert sizes(opened(export, tmp_path)) == []


def test_launches_before_the_first_call_belong_to_none() -> None:
    calls = [Operation(10, 1, 0), Operation(20, 2, 0)]
    assert attributed(calls, [5, 15, 25]) == [None, *calls]
    assert attributed([], [1, 2]) == [None, None]
    assert attributed(calls, []) == []
    assert attributed(calls, [10, 20]) == calls  # a launch at the very start of its call


def test_kernels_without_any_call_have_no_size(tmp_path: Path) -> None:
    export = new().kernel(9_000, 3_000, kernel=ALL_REDUCE)
    call(export, 0, 20_000, 8192)
    assert sizes(opened(export, tmp_path)) == []


@pytest.mark.parametrize("marked", [True, False], ids=["with steps", "without"])
def test_small_exposed_collectives_are_found(tmp_path: Path, marked: bool) -> None:
    """COM105 needs sizes, which kernels alone do not carry. Without steps it counts by kernels."""
    export = new()
    for step in range(6):
        at = step * 2_000_000
        if marked:
            export.range(f"decode_step {step}", at, at + 1_900_000)
        for i in range(24):
            group(export, at + i * 70_000, 4_096)
            export.launch(at=at + i * 70_000 + 62_000, dur=1_000, kernel="gemm", kernel_dur=4_000)
    found = diagnose(export.write(tmp_path / "t.sqlite"))
    facts = {f.name: f.value for f in found.facts if f.name.startswith("comm.small")}
    assert facts["comm.small_exposed_ratio"] >= 0.02
    del facts["comm.small_exposed_ratio"]
    (counted,) = facts.items()
    assert counted == (
        ("comm.small_calls_per_step", 24) if marked else ("comm.small_calls_per_100_kernels", 50)
    )
    (one,) = (f for f in found.findings if f.cause == "many-small-collectives")
    assert one.gain is not None
    assert one.gain.what_if == "one_shot_collectives"
    assert one.gain.speedup is None  # waiting for late ranks may be part of it
    assert ("a step" in one.message) == marked
