"""More edits of nsys SQLite exports: as other versions, other programs and other hands leave them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from tests.metamorphic.edits import (
    KERNEL,
    MEMCPY,
    MS,
    NVTX,
    RUNTIME,
    TIMES,
    Db,
    Edit,
    call,
    change,
    columns,
    copies_each_step,
    feeder,
    insert,
    span,
    string,
    tables,
    with_copies_table,
    with_idle_gpu,
    without,
    work_row,
)

GRAPH_RUNS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"


# ------------------------------------------------------------------- times


def to_unit(ns: int) -> Edit:
    """Clocks that tick once in so many ns."""
    return lambda db: change(db, TIMES, f"({{x}} / {ns}) * {ns}")


def from_share(share: float) -> Edit:
    """Only the last part of the capture is left: what was launched before runs on into it."""
    return without("start", "<", share)


def one_pause(ns: int) -> Edit:
    """The program stops once, between two steps in the middle, with an idle device."""

    def edit(db: Db) -> None:
        begun = db.execute(
            f"SELECT start FROM {NVTX} LEFT JOIN StringIds ON id = textId "
            "WHERE coalesce(text, value) LIKE 'decode_step%' ORDER BY 1"
        ).fetchall()
        at = begun[len(begun) // 2][0]
        change(db, TIMES, f"CASE WHEN {{x}} >= {at} THEN {{x}} + {ns} ELSE {{x}} END")

    return edit


def one_row_far_away(table: str) -> Edit:
    """The clock of one row is thirty years ahead."""
    year = 365 * 86_400 * 1_000 * MS
    return lambda db: db.execute(
        f'UPDATE "{table}" SET start = start + {30 * year}, end = end + {30 * year} '
        f'WHERE rowid = (SELECT max(rowid) / 2 FROM "{table}")'
    )


# ------------------------------------------------------------------- names


def kernels_by_short_name(db: Db) -> None:
    """No demangled names: only what stands before the first bracket."""
    db.execute(f"UPDATE {KERNEL} SET demangledName = shortName")


def ranges_of(column: str, value: int) -> Edit:
    """Every range in this domain, or of this type."""
    return lambda db: db.execute(f"UPDATE {NVTX} SET {column} = {value} WHERE end IS NOT NULL")


def inside_one_range(text: str) -> Edit:
    """The whole program in one more range."""

    def edit(db: Db) -> None:
        first, last = db.execute(f"SELECT min(start), max(end) FROM {RUNTIME}").fetchone()
        ends = {"start": first - 1000, "end": last + 1000}
        insert(db, NVTX, **ends, eventType=59, text=text, globalTid=feeder(db))

    return edit


def with_marks(db: Db) -> None:
    """A mark at every call."""
    thread = feeder(db)
    for i, (at,) in enumerate(db.execute(f"SELECT start FROM {RUNTIME} ORDER BY 1").fetchall()[::20]):
        insert(db, NVTX, start=at, end=None, eventType=34, text=f"mark {i}", globalTid=thread)


def with_open_range(db: Db) -> None:
    """A range that was never popped."""
    at = db.execute(f"SELECT min(start) FROM {RUNTIME}").fetchone()[0]
    insert(db, NVTX, start=at, end=None, eventType=59, text="main", globalTid=feeder(db))


def steps_merged(db: Db) -> None:
    """A range around every two steps in place of one around each."""
    rows = db.execute(
        f"SELECT n.rowid, n.start, n.end FROM {NVTX} n LEFT JOIN StringIds ON id = textId "
        "WHERE coalesce(text, value) LIKE 'decode_step%' ORDER BY n.start"
    ).fetchall()
    for (first, _, _), (second, _, end) in zip(rows[::2], rows[1::2], strict=False):
        db.execute(f"UPDATE {NVTX} SET end = {end} WHERE rowid = {first}")
        db.execute(f"DELETE FROM {NVTX} WHERE rowid = {second}")


def step_ranges(db: Db) -> list[tuple[int, int, int, int]]:
    """Row, start, end and thread of each range around a step, in order of time."""
    return db.execute(
        f"SELECT n.rowid, n.start, n.end, n.globalTid FROM {NVTX} n LEFT JOIN StringIds ON id = textId "
        "WHERE coalesce(text, value) LIKE 'decode_step%' ORDER BY n.start"
    ).fetchall()


def every_second_step_range_lost(db: Db) -> None:
    for row, *_ in step_ranges(db)[1::2]:
        db.execute(f"DELETE FROM {NVTX} WHERE rowid = {row}")


def steps_without_numbers(db: Db) -> None:
    name = string(db, "decode_step")
    for row, *_ in step_ranges(db):
        db.execute(f"UPDATE {NVTX} SET text = NULL, textId = {name} WHERE rowid = {row}")


def threads_in_turns(db: Db) -> None:
    """A pool of two threads issues the steps in turn."""
    for row, start, end, thread in step_ranges(db)[1::2]:
        db.execute(f"UPDATE {NVTX} SET globalTid = {thread + 1} WHERE rowid = {row}")
        db.execute(
            f"UPDATE {RUNTIME} SET globalTid = {thread + 1} "
            f"WHERE globalTid = {thread} AND start BETWEEN {start} AND {end}"
        )


# ------------------------------------------------------------------- streams, devices, threads


def on_streams(count: int) -> Edit:
    """Work takes turns on so many streams, at the same times."""
    return lambda db: db.execute(f"UPDATE {KERNEL} SET streamId = streamId + rowid % {count}")


def on_device(number: int) -> Edit:
    """The GPU has another number."""

    def edit(db: Db) -> None:
        change(db, ("deviceId",), str(number))
        if "TARGET_INFO_GPU" in tables(db):
            db.execute(f"UPDATE TARGET_INFO_GPU SET id = {number}")
        if "TARGET_INFO_CUDA_DEVICE" in tables(db):
            db.execute(f"UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = {number}")

    return edit


def with_poller(db: Db) -> None:
    """Another thread of the process asks an event every 50 us."""
    thread, (first, last) = feeder(db), span(db)
    name = string(db, "cudaEventQuery_v3020")
    number = db.execute(f"SELECT max(correlationId) FROM {RUNTIME}").fetchone()[0]
    for i, at in enumerate(range(first, last, 50_000), 1):
        own = {"globalTid": thread + 7, "correlationId": number + i, "nameId": name, "returnValue": 600}
        insert(db, RUNTIME, start=at, end=at + 1_000, **own)


def with_small_process(db: Db) -> None:
    """Another process runs one short kernel a millisecond on the same GPU."""
    (first, last), other = span(db), 88 << 24
    names = ("deviceId", "contextId", "streamId", "globalPid", "demangledName", "shortName")
    row = db.execute(f"SELECT {','.join(names)} FROM {KERNEL} LIMIT 1").fetchone()
    where: dict[str, Any] = dict(zip(names, row, strict=True))
    where |= {"globalPid": where["globalPid"] + other, "streamId": 99, "contextId": 9}
    thread, name = feeder(db) + other, string(db, "cudaLaunchKernel_v7000")
    shape = {f"{kind}{axis}": 1 for kind in ("grid", "block") for axis in "XYZ"}
    for i, at in enumerate(range(first, last - MS, MS), 1):
        own = {"globalTid": thread, "correlationId": i, "nameId": name, "returnValue": 0}
        insert(db, RUNTIME, start=at, end=at + 5_000, **own)
        insert(db, KERNEL, **where, **shape, start=at + 7_000, end=at + 9_000, correlationId=i)


def with_memset_on_idle_gpu(db: Db) -> None:
    """The program clears 64 bytes on another GPU that it does not use."""
    with_idle_gpu(db)
    if MEMSET not in tables(db):
        db.execute(
            f"CREATE TABLE {MEMSET} (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
            "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER, "
            "memKind INTEGER)"
        )
    at = sum(span(db)) // 2
    own = call(db, feeder(db), "cudaMemsetAsync_v3020", at, 2_000)
    where = work_row(db) | {"deviceId": 1, "contextId": 9}
    insert(db, MEMSET, **where, start=at + 5_000, end=at + 6_000, bytes=64, correlationId=own)


# ------------------------------------------------------------------- what was recorded


def in_a_long_recording(db: Db) -> None:
    """The same process asked for a device 19 seconds before the work, and 19 seconds after it."""
    change(db, TIMES, f"{{x}} + {20_000 * MS}")
    (first, last), thread = span(db), feeder(db)
    for at in (first - 19_000 * MS, last + 19_000 * MS):
        call(db, thread, "cudaGetDevice_v3020", at, 500)


def graphs_in_one_block(db: Db) -> None:
    """CUDA graphs traced as a whole: one row a run in place of its kernels."""
    if GRAPH_RUNS not in tables(db):
        db.execute(
            f"CREATE TABLE {GRAPH_RUNS} (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
            "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
            "graphId INTEGER, graphExecId INTEGER)"
        )
    runs = db.execute(
        f"SELECT min(start), max(end), deviceId, contextId, min(streamId), correlationId, globalPid "
        f"FROM {KERNEL} WHERE graphNodeId IS NOT NULL GROUP BY correlationId, globalPid"
    ).fetchall()
    names = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
    for run in runs:
        insert(db, GRAPH_RUNS, **dict(zip(names, run, strict=True)), graphId=1, graphExecId=2)
    db.execute(f"DELETE FROM {KERNEL} WHERE graphNodeId IS NOT NULL")
    if "META_DATA_CAPTURE" in tables(db):
        db.execute(
            "UPDATE META_DATA_CAPTURE SET value = 'Graph' WHERE name LIKE '%CUDA_GRAPH_TRACE_OPTIONS:MODE'"
        )


def graphs_unrolled(db: Db) -> None:
    """Kernels launched one by one in place of graphs, each from 9 to 3 us before it runs; the device
    waits 12 us for each."""
    rows = db.execute(f"SELECT rowid, start, end FROM {KERNEL} ORDER BY start").fetchall()
    first, late = rows[0][1], 0
    shifts = []
    for row, start, end in rows:
        begin, late = start + late, late + 12_000
        db.execute(f"UPDATE {KERNEL} SET start = {begin}, end = {begin + end - start} WHERE rowid = {row}")
        shifts.append((start, late))
    ranges = db.execute(f"SELECT rowid, start, end FROM {NVTX} WHERE end IS NOT NULL").fetchall()
    starts = [s for s, _ in shifts]

    def later(at: int) -> int:
        i = bisect_right(starts, at)
        return at if at < first or not i else at + shifts[i - 1][1]

    for row, start, end in ranges:
        db.execute(f"UPDATE {NVTX} SET start = {later(start)}, end = {later(end)} WHERE rowid = {row}")
    thread = feeder(db)
    db.execute(f"DELETE FROM {RUNTIME}")
    insert(
        db,
        RUNTIME,
        start=first - 50_000,
        end=first - 49_000,
        globalTid=thread,
        correlationId=1,
        nameId=string(db, "cudaGetDevice_v3020"),
        returnValue=0,
    )
    if "graphNodeId" in columns(db, KERNEL):
        db.execute(f"UPDATE {KERNEL} SET graphNodeId = NULL")
    for row, start in db.execute(f"SELECT rowid, start FROM {KERNEL} ORDER BY start").fetchall():
        number = call(db, thread, "cudaLaunchKernel_v7000", start - 9_000, 6_000)
        db.execute(f"UPDATE {KERNEL} SET correlationId = {number} WHERE rowid = {row}")


def sampled_half_as_often(db: Db) -> None:
    """GPU metrics at half of the rate: the mean of two samples in place of both."""
    times = [t for (t,) in db.execute("SELECT DISTINCT timestamp FROM GPU_METRICS ORDER BY 1")]
    db.execute("CREATE TEMP TABLE pairs (second INTEGER PRIMARY KEY, first INTEGER)")
    db.executemany("INSERT INTO pairs VALUES (?, ?)", zip(times[1::2], times[::2], strict=False))
    db.execute(
        "UPDATE GPU_METRICS SET timestamp = first FROM pairs WHERE GPU_METRICS.timestamp = pairs.second"
    )
    kept = [n for n in columns(db, "GPU_METRICS") if n != "value"]
    db.execute(
        f"CREATE TEMP TABLE means AS SELECT {','.join(kept)}, CAST(round(avg(value)) AS INTEGER) AS value "
        f"FROM GPU_METRICS GROUP BY {','.join(kept)}"
    )
    db.execute("DELETE FROM GPU_METRICS")
    db.execute(f"INSERT INTO GPU_METRICS ({','.join(kept)}, value) SELECT {','.join(kept)}, value FROM means")


def some_rows_doubled(table: str, every: int) -> Edit:
    return lambda db: db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" WHERE rowid % {every} = 0')


def pageable_uploads(db: Db) -> None:
    """Uploads whose calls return at once, from memory that is said to be pageable."""
    with_copies_table(copies_each_step(1, MS))(db)
    db.execute(f"UPDATE {MEMCPY} SET srcKind = 0 WHERE srcKind = 1")


def behind_a_view(table: str) -> Edit:
    """A view of the rows in place of the table."""

    def edit(db: Db) -> None:
        db.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_rows"')
        db.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "{table}_rows"')

    return edit


def calls_without_names(db: Db) -> None:
    """The strings of calls are gone; those of kernels stay."""
    db.execute(f"DELETE FROM StringIds WHERE id IN (SELECT nameId FROM {RUNTIME})")
