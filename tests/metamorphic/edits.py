"""Edits of nsys SQLite exports: what they do to a capture is in their name."""

from __future__ import annotations

import random
import sqlite3
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

Db = sqlite3.Connection
Edit = Callable[[Db], object]

RUNTIME, KERNEL = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY, NVTX = "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"
MS = 1_000_000
#: Columns that hold times; columns that hold ids of strings.
TIMES = ("start", "end", "timestamp", "rawTimestamp")
STRINGS = ("demangledName", "shortName", "mangledName", "nameId", "textId")
_NO_EVENTS = ("TARGET_INFO", "META_DATA", "EXPORT_", "ANALYSIS", "ENUM_", "sqlite_")


def tables(db: Db) -> list[str]:
    return [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def columns(db: Db, table: str) -> list[str]:
    return [r[1] for r in db.execute(f'PRAGMA table_info("{table}")')]


def each(db: Db, *names: str) -> list[tuple[str, str]]:
    """Tables of events that have one of these columns, with it."""
    events = [t for t in tables(db) if not t.startswith(_NO_EVENTS)]
    return [(t, c) for t in events for c in columns(db, t) if c in names]


def change(db: Db, names: tuple[str, ...], value: str, where: str = "1") -> None:
    """Sets every such column to an expression of `x`, its old value."""
    for table, column in each(db, *names):
        new, rows = value.replace("{x}", column), where.replace("{x}", column)
        db.execute(f'UPDATE "{table}" SET "{column}" = {new} WHERE "{column}" IS NOT NULL AND {rows}')


# ------------------------------------------------------------------- what changes nothing


def shifted(ns: int) -> Edit:
    """All times later by so much."""
    return lambda db: change(db, TIMES, f"{{x}} + {ns}")


def stretched(db: Db) -> None:
    """The whole run a tenth slower: all times from the first on times 1.1."""
    change(db, TIMES, "CAST({x} * 1.1 AS INTEGER)")


def dropped(*names: str) -> Edit:
    return lambda db: [db.execute(f'DROP TABLE IF EXISTS "{n}"') for n in names]


def without_enums(db: Db) -> None:
    dropped(*(t for t in tables(db) if t.startswith("ENUM_")))(db)


def in_random_order(table: str) -> Edit:
    def edit(db: Db) -> None:
        rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
        random.Random(1).shuffle(rows)
        db.execute(f'DELETE FROM "{table}"')
        marks = ",".join("?" * len(rows[0]))
        db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)

    return edit


def all_in_random_order(db: Db) -> None:
    """As nsys 2025.6 and newer may export them: no table is sorted by time."""
    for table in tables(db):
        if db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] and not table.startswith("sqlite_"):
            in_random_order(table)(db)


def with_user_column(table: str) -> Edit:
    return lambda db: db.execute(f'ALTER TABLE "{table}" ADD COLUMN "my note" TEXT DEFAULT \'x\'')


def with_user_table(db: Db) -> None:
    db.execute("CREATE TABLE my_notes (start INTEGER, end INTEGER, text TEXT)")
    db.execute("INSERT INTO my_notes VALUES (0, 1000000000000, 'all of it')")


def with_user_view(db: Db) -> None:
    db.execute(f"CREATE VIEW my_kernels AS SELECT * FROM {KERNEL}")


def with_index(db: Db) -> None:
    db.execute(f"CREATE INDEX by_start ON {KERNEL} (start)")


def in_larger_pages(db: Db) -> None:
    db.commit()
    db.execute("PRAGMA page_size = 16384")
    db.execute("VACUUM")


def with_freed_pages(db: Db) -> None:
    """A table that came and went leaves free pages behind."""
    db.execute("CREATE TABLE gone (x TEXT)")
    db.executemany("INSERT INTO gone VALUES (?)", [("y" * 2000,)] * 500)
    db.commit()
    db.execute("DROP TABLE gone")


def processes_renumbered(db: Db) -> None:
    change(db, ("globalPid", "globalTid", "endGlobalTid"), "{x} + (1000 << 24)")
    if "PROCESSES" in tables(db):
        db.execute("UPDATE PROCESSES SET pid = pid + 1000")


def threads_renumbered(db: Db) -> None:
    change(db, ("globalTid", "endGlobalTid"), "{x} + 5000")


def streams_renumbered(db: Db) -> None:
    change(db, ("streamId",), "{x} + 50")


def contexts_renumbered(db: Db) -> None:
    change(db, ("contextId",), "{x} + 3")


def correlations_renumbered(db: Db) -> None:
    change(db, ("correlationId",), "{x} + 700000", "{x} > 0")


def strings_renumbered(db: Db) -> None:
    change(db, STRINGS, "{x} + 90000")
    db.execute("UPDATE StringIds SET id = id + 90000")


def process_named(name: str) -> Edit:
    return lambda db: db.execute("UPDATE PROCESSES SET name = ?", (name,))


def calls_of_version(suffix: str) -> Edit:
    """cudaLaunchKernel_v7000 -> cudaLaunchKernel and the suffix."""

    def edit(db: Db) -> None:
        for at, text in db.execute("SELECT id, value FROM StringIds").fetchall():
            if str(text).startswith("cu") and "_v" in str(text):
                db.execute(
                    "UPDATE StringIds SET value = ? WHERE id = ?", (str(text).partition("_v")[0] + suffix, at)
                )

    return edit


def with_idle_gpu(db: Db) -> None:
    """The machine has another GPU of the same kind, which nobody uses."""
    values = db.execute("SELECT * FROM TARGET_INFO_GPU").fetchone()
    row = dict(zip(columns(db, "TARGET_INFO_GPU"), values, strict=True))
    insert(db, "TARGET_INFO_GPU", **row | {"id": 1, "cuDevice": 1})


def calls_far_away(db: Db) -> None:
    """Two short calls that issue nothing, 19 s before the first kernel and 19 s after the last."""
    shifted(20_000 * MS)(db)
    thread, (first, last) = feeder(db), span(db)
    for at in (first - 19_000 * MS, last + 19_000 * MS):
        call(db, thread, "cudaGetDevice_v3020", at, 500)


def run_again(pause: int, process: int = 0, *, anew: bool = False) -> Edit:
    """The program runs once more so long (ns) after it ended, as another process where asked; its ids
    of calls follow those of the first, or begin `anew`."""

    def edit(db: Db) -> None:
        first, last = db.execute(f"SELECT min(start), max(end) FROM {RUNTIME}").fetchone()
        for table, column in each(db, "timestamp"):  # samples of both runs must not mix
            db.execute(f'DELETE FROM "{table}" WHERE "{column}" NOT BETWEEN {first} AND {last}')
        ids = 1 + int(db.execute(f"SELECT max(correlationId) FROM {RUNTIME}").fetchone()[0])
        later = dict.fromkeys(TIMES, last - first + pause) | {"correlationId": 0 if anew else ids}
        later |= dict.fromkeys(("globalPid", "globalTid"), process << 24)
        for table in {t for t, _ in each(db, *TIMES)}:
            names = [r[1] for r in db.execute(f'PRAGMA table_info("{table}")') if not r[5]]
            values = ",".join(f'"{n}" + {later.get(n, 0)}' if n in later else f'"{n}"' for n in names)
            quoted = ",".join(f'"{n}"' for n in names)
            db.execute(f'INSERT INTO "{table}" ({quoted}) SELECT {values} FROM "{table}"')

    return edit


def window_again(gpu: tuple[int, int], host: tuple[int, int], times: int) -> Edit:
    """Only the rows of a window (what ran on the GPU in [start, end), the calls that issued it and what the
    host did meanwhile), so often in a row: times and ids of calls are moved on each time."""

    def edit(db: Db) -> None:
        held, (start, end) = set(tables(db)), gpu
        work = [t for t in (KERNEL, MEMCPY, "CUPTI_ACTIVITY_KIND_MEMSET") if t in held]
        ids = {
            name: " UNION ".join(f'SELECT correlationId FROM "{t}" WHERE {where}' for t in work)
            for name, where in (
                ("mine", f"start >= {start} AND start < {end}"),
                ("others", f"NOT (start >= {start} AND start < {end})"),
            )
        }
        for name, query in ids.items():
            db.execute(f"CREATE TEMP TABLE {name} AS SELECT DISTINCT correlationId AS id FROM ({query})")
        meanwhile = f"start >= {host[0]} AND start < {host[1]}"
        issued = "correlationId IN (SELECT id FROM mine)"
        kept = dict.fromkeys(work, f"start >= {start} AND start < {end}")
        kept[RUNTIME] = f"{issued} OR {meanwhile} AND correlationId NOT IN (SELECT id FROM others)"
        kept["GPU_METRICS"] = f"timestamp >= {start} AND timestamp < {end}"
        for table in {t for t, _ in each(db, "start", "timestamp")}:
            time = "start" if "start" in columns(db, table) else "timestamp"
            other = f"{time} >= {host[0]} AND {time} < {host[1]}"
            if "end" in columns(db, table):
                other += f' AND ("end" IS NULL OR "end" <= {max(host[1], end)})'
            db.execute(f'DELETE FROM "{table}" WHERE NOT ({kept.get(table, other)})')
        top = 1 + max(
            int(db.execute(f'SELECT coalesce(max(correlationId), 0) FROM "{t}"').fetchone()[0])
            for t, _ in each(db, "correlationId")
        )
        for table in {t for t, _ in each(db, *TIMES)}:
            names = [r[1] for r in db.execute(f'PRAGMA table_info("{table}")') if not r[5]]
            quoted = ",".join(f'"{n}"' for n in names)
            db.execute(f'CREATE TEMP TABLE rows_of AS SELECT {quoted} FROM "{table}"')
            for i in range(1, times):
                later = dict.fromkeys(TIMES, i * (end - start)) | {"correlationId": i * top}
                values = ",".join(f'"{n}" + {later[n]}' if n in later else f'"{n}"' for n in names)
                db.execute(f'INSERT INTO "{table}" ({quoted}) SELECT {values} FROM rows_of')
            db.execute("DROP TABLE rows_of")

    return edit


def ended(at: int) -> Edit:
    """The recording ended then: without what began later, and without GPU work that still ran. Ranges that
    were open have no end."""

    def edit(db: Db) -> None:
        for table, column in each(db, "start", "timestamp"):
            db.execute(f'DELETE FROM "{table}" WHERE "{column}" >= {at}')
        for table, column in each(db, "end"):
            if table == NVTX:
                db.execute(f'UPDATE {NVTX} SET "end" = NULL WHERE "end" > {at}')
            else:
                db.execute(f'DELETE FROM "{table}" WHERE "{column}" > {at}')

    return edit


def with_bystander(db: Db) -> None:
    """Another process that pushes ranges and never uses the GPU."""
    thread, start, end = feeder(db), *span(db)
    other = thread + (77 << 24)
    for i in range(20):
        at = start + (end - start) * i // 20
        insert(db, NVTX, start=at, end=at + 1000, eventType=59, text="poll", globalTid=other)


# ------------------------------------------------------------------- ranges and steps


def ranges_renamed(db: Db) -> None:
    """Names that mean nothing to anybody, with their numbers."""
    if "textId" in columns(db, NVTX):
        db.execute(
            f"UPDATE {NVTX} SET text = (SELECT value FROM StringIds WHERE id = textId), "
            "textId = NULL WHERE text IS NULL AND textId IS NOT NULL"
        )
    for old, new in (("decode_step", "zork"), ("iteration", "quux")):
        db.execute(f"UPDATE {NVTX} SET text = replace(text, '{old}', '{new}')")


def without(column: str, comparison: str, share: float) -> Edit:
    """The capture without the rows whose time compares so with this share of its length."""

    def edit(db: Db) -> None:
        first, last = span(db)
        at = first + int((last - first) * share)
        for table, time in each(db, column, "timestamp"):
            db.execute(f'DELETE FROM "{table}" WHERE "{time}" {comparison} {at}')

    return edit


def cut_to(share: float) -> Edit:
    """Only the first part of the capture is left."""
    return without("end", ">", share)


# ------------------------------------------------------------------- causes put in


def insert(db: Db, table: str, **values: Any) -> None:
    """A row; columns that the table lacks are left out, the others are null or 0."""
    info = db.execute(f'PRAGMA table_info("{table}")').fetchall()
    row = {r[1]: values.get(r[1], 0 if r[3] else None) for r in info}
    names = ",".join(f'"{n}"' for n in row)
    db.execute(f'INSERT INTO "{table}" ({names}) VALUES ({",".join("?" * len(row))})', list(row.values()))


def string(db: Db, text: str) -> int:
    found = db.execute("SELECT id FROM StringIds WHERE value = ?", (text,)).fetchone()
    if found:
        return int(found[0])
    new = 1 + int(db.execute("SELECT max(id) FROM StringIds").fetchone()[0])
    insert(db, "StringIds", id=new, value=text)
    return new


def feeder(db: Db) -> int:
    """The globalTid with most API calls."""
    query = f"SELECT globalTid FROM {RUNTIME} GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
    return int(db.execute(query).fetchone()[0])


def span(db: Db) -> tuple[int, int]:
    first, last = db.execute(f"SELECT min(start), max(end) FROM {KERNEL}").fetchone()
    return int(first), int(last)


def call(db: Db, thread: int, name: str, at: int, dur: int, result: int = 0) -> int:
    """An API call of a thread; its correlation id."""
    new = 1 + int(db.execute(f"SELECT max(correlationId) FROM {RUNTIME}").fetchone()[0])
    insert(
        db,
        RUNTIME,
        start=at,
        end=at + dur,
        globalTid=thread,
        correlationId=new,
        nameId=string(db, name),
        returnValue=result,
    )
    return new


def hole(db: Db, ns: int) -> list[int]:
    """Stops the host for so long before the first call of every step, with an idle device: all that
    follows comes later. Where the holes begin."""
    steps = db.execute(
        f"SELECT start, end, globalTid FROM {NVTX} LEFT JOIN StringIds ON id = textId "
        "WHERE coalesce(text, value) LIKE 'decode_step%' ORDER BY start"
    ).fetchall()
    at = [
        int(
            db.execute(
                f"SELECT min(start) FROM {RUNTIME} WHERE start >= ? AND globalTid = ?", (start, thread)
            ).fetchone()[0]
        )
        for start, _, thread in steps
    ]
    db.create_function("later", 1, lambda x: x + ns * (bisect_left(at, x + 1)))
    for table, _ in each(db, "start"):
        keeps = table != NVTX  # a range grows by what happens inside it
        end = "later(start) + end - start" if keeps else "later(end)"
        db.execute(f'UPDATE "{table}" SET end = {end}, start = later(start)')
    return [t + ns * i for i, t in enumerate(at)]


def host_gaps(ns: int) -> Edit:
    return lambda db: hole(db, ns)


def calls_each_step(*names: str, each_ns: int) -> Edit:
    """Calls one after the other, the device idle meanwhile."""

    def edit(db: Db) -> None:
        thread = feeder(db)
        for at in hole(db, (each_ns + 1000) * len(names) + 1000):
            for i, name in enumerate(names):
                call(db, thread, name, at + (each_ns + 1000) * i, each_ns)

    return edit


def one_call(name: str, ns: int) -> Edit:
    """One long call in one step; short ones of its kind in the others."""

    def edit(db: Db) -> None:
        at = hole(db, ns + 1000)
        for i, start in enumerate(at):
            call(db, feeder(db), name, start, ns if i == len(at) // 2 else 2000)

    return edit


def ranges_each_step(text: str, ns: int) -> Edit:
    """The hole lies in a range of this name."""

    def edit(db: Db) -> None:
        for at in hole(db, ns):
            insert(db, NVTX, start=at, end=at + ns - 1000, eventType=59, text=text, globalTid=feeder(db))

    return edit


def os_calls_each_step(name: str, ns: int) -> Edit:
    def edit(db: Db) -> None:
        if "OSRT_API" not in tables(db):
            db.execute(
                "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, "
                "nameId INTEGER, returnValue INTEGER)"
            )
        for at in hole(db, ns):
            insert(
                db, "OSRT_API", start=at, end=at + ns - 2000, globalTid=feeder(db), nameId=string(db, name)
            )

    return edit


def overhead_each_step(ns: int) -> Edit:
    def edit(db: Db) -> None:
        if "PROFILER_OVERHEAD" not in tables(db):
            db.execute(
                "CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, "
                "globalTid INTEGER, nameId INTEGER, returnValue INTEGER)"
            )
        for at in hole(db, ns):
            insert(
                db,
                "PROFILER_OVERHEAD",
                start=at,
                end=at + ns,
                globalTid=feeder(db),
                nameId=string(db, "CUPTI: buffer flush"),
            )

    return edit


def work_row(db: Db) -> dict[str, Any]:
    """Device, context, stream and process of the kernels."""
    names = ("deviceId", "contextId", "streamId", "globalPid")
    row = db.execute(f"SELECT {','.join(names)} FROM {KERNEL} LIMIT 1").fetchone()
    return dict(zip(names, row, strict=True))


def copies_each_step(memory: int, ns: int, kind: int = 1) -> Edit:
    """A copy of so long at 8 GB/s; the host waits for it if the memory is pageable (0)."""

    def edit(db: Db) -> None:
        where = work_row(db)
        host, gpu = memory, 2
        for at in hole(db, ns + 20_000):
            own = call(db, feeder(db), "cudaMemcpyAsync_v3020", at, ns + 10_000 if memory == 0 else 5_000)
            insert(
                db,
                MEMCPY,
                **where,
                start=at + 7_000,
                end=at + 7_000 + ns,
                bytes=8 * ns,
                copyKind=kind,
                srcKind=host if kind == 1 else gpu,
                dstKind=gpu if kind == 1 else host,
                correlationId=own,
            )

    return edit


def migrations_each_step(ns: int) -> Edit:
    """Pages of unified memory, 20 us each, 30 us apart."""

    def edit(db: Db) -> None:
        where = work_row(db) | {"streamId": 0}
        for at in hole(db, ns):
            for start in range(at + 30_000, at + ns - 20_000, 50_000):
                insert(
                    db,
                    MEMCPY,
                    **where,
                    start=start,
                    end=start + 20_000,
                    bytes=1 << 16,
                    copyKind=11,
                    srcKind=7,
                    dstKind=7,
                    migrationCause=2,
                )

    return edit


def with_copies_table(edit: Edit) -> Edit:
    """For captures that never copied."""

    def made(db: Db) -> None:
        if MEMCPY not in tables(db):
            db.execute(
                f"CREATE TABLE {MEMCPY} (start INTEGER, end INTEGER, deviceId INTEGER, "
                "contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
                "globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, "
                "dstKind INTEGER, migrationCause INTEGER)"
            )
        edit(db)

    return made


def failing_calls(db: Db) -> None:
    for at in hole(db, 3000):
        call(db, feeder(db), "cudaMalloc_v3020", at, 1000, result=2)


# ------------------------------------------------------------------- causes taken out


def gaps_closed(db: Db) -> None:
    """Where neither a call nor the device is at work for over 50 us, time is cut out."""
    spans = db.execute(
        " UNION ALL ".join(
            f"SELECT start, end FROM {t}" for t in (RUNTIME, KERNEL, MEMCPY) if t in tables(db)
        )
        + " ORDER BY 1"
    ).fetchall()
    starts, cut, reach, total = [], [], spans[0][1], 0
    for start, end in spans:
        if start - reach > 50_000:
            total += start - reach - 50_000
            starts.append(start)
            cut.append(total)
        reach = max(reach, end)
    db.create_function(
        "earlier", 1, lambda x: x - ([0, *cut][bisect_left(starts, x + 1)]), deterministic=True
    )
    change(db, TIMES, "earlier({x})")


def idle_squeezed(times: int) -> Edit:
    """Time in which no kernel runs passes so many times as fast, for the host as well."""

    def edit(db: Db) -> None:
        starts, ends = [], [0]
        for start, end in db.execute(f"SELECT start, end FROM {KERNEL} ORDER BY 1").fetchall():
            if start > ends[-1]:
                starts.append(start)
                ends.append(end)
            ends[-1] = max(ends[-1], end)
        gone = [0]  # of the idle time ahead of each stretch
        for end, start in zip(ends[1:], starts[1:], strict=False):
            gone.append(gone[-1] + (start - end) * (times - 1) // times)

        def earlier(x: int) -> int:
            i = bisect_left(starts, x + 1) - 1
            if i < 0:
                return x
            idle = max(x - ends[i + 1], 0) if i + 1 < len(starts) else 0
            return x - gone[i] - idle * (times - 1) // times

        db.create_function("earlier", 1, earlier, deterministic=True)
        change(db, TIMES, "earlier({x})")

    return edit


def both(*edits: Edit) -> Edit:
    return lambda db: [edit(db) for edit in edits]


def ranges_removed(pattern: str) -> Edit:
    def edit(db: Db) -> None:
        db.execute(
            f"DELETE FROM {NVTX} WHERE coalesce(text, (SELECT value FROM StringIds "
            "WHERE id = textId)) LIKE ?",
            (pattern,),
        )

    return edit


def copies_pinned(db: Db) -> None:
    db.execute(f"UPDATE {MEMCPY} SET srcKind = 1 WHERE srcKind = 0")
    db.execute(f"UPDATE {MEMCPY} SET dstKind = 1 WHERE dstKind = 0")


def uploads_removed(db: Db) -> None:
    """No upload, nor its call; the time that it took is cut out."""
    db.execute(
        f"DELETE FROM {RUNTIME} WHERE correlationId IN "
        f"(SELECT correlationId FROM {MEMCPY} WHERE copyKind = 1)"
    )
    db.execute(f"DELETE FROM {MEMCPY} WHERE copyKind = 1")
    gaps_closed(db)


# ------------------------------------------------------------------- lost and doubled rows


def rows_lost(table: str, every: int) -> Edit:
    """One row in so many is gone."""
    return lambda db: db.execute(f'DELETE FROM "{table}" WHERE rowid % {every} = 0')


def rows_doubled(table: str) -> Edit:
    return lambda db: db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')


def ended_before_start(table: str, every: int) -> Edit:
    """One row in so many lasts -1 us."""
    return lambda db: db.execute(f'UPDATE "{table}" SET end = start - 1000 WHERE rowid % {every} = 0')


def without_ends(table: str) -> Edit:
    """No row has an end, though the column is there."""

    def edit(db: Db) -> None:
        db.execute(f'CREATE TABLE kept AS SELECT * FROM "{table}"')  # without NOT NULL
        dropped(table)(db)
        db.execute(f'ALTER TABLE kept RENAME TO "{table}"')
        db.execute(f'UPDATE "{table}" SET end = NULL')

    return edit


def kernels_before_launch(every: int) -> Edit:
    """One kernel in so many runs 50 us before the call that launches it."""

    def edit(db: Db) -> None:
        db.execute(f"CREATE TEMP TABLE called AS SELECT correlationId AS id, start FROM {RUNTIME}")
        db.execute("CREATE INDEX temp.called_id ON called (id)")
        ahead = f"(SELECT {KERNEL}.start - start + 50000 FROM called WHERE id = correlationId)"
        db.execute(
            f"UPDATE {KERNEL} SET start = start - {ahead}, end = end - {ahead} "
            f"WHERE rowid % {every} = 0 AND {ahead} IS NOT NULL"
        )

    return edit


def emptied(table: str) -> Edit:
    return lambda db: db.execute(f'DELETE FROM "{table}"')


def column_dropped(table: str, column: str) -> Edit:
    return lambda db: db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')


def names_lost(db: Db) -> None:
    """The strings of kernels are gone; those of calls stay."""
    for column in ("demangledName", "shortName", "mangledName"):
        db.execute(f"DELETE FROM StringIds WHERE id IN (SELECT {column} FROM {KERNEL})")


def events_reported_lost(db: Db) -> None:
    db.execute(
        "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp INTEGER, "
        "timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT, "
        "globalPid INTEGER)"
    )
    insert(
        db,
        "DIAGNOSTIC_EVENT",
        timestamp=span(db)[0],
        severity=3,
        text="6000 CUDA events were dropped: the buffer was full.",
    )


def on_second_device(db: Db) -> None:
    """A second process does the same at the same time on a second GPU."""
    with_idle_gpu(db)
    for table in (
        RUNTIME,
        KERNEL,
        MEMCPY,
        NVTX,
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    ):
        if table not in tables(db):
            continue
        names = columns(db, table)
        new = {
            "globalPid": "globalPid + (1 << 24)",
            "globalTid": "globalTid + (1 << 24)",
            "deviceId": "deviceId + 1",
        }
        listed = ",".join(f'"{n}"' for n in names)
        values = ",".join(new.get(n, f'"{n}"') for n in names)
        db.execute(f'INSERT INTO "{table}" ({listed}) SELECT {values} FROM "{table}"')
    if "PROCESSES" in tables(db):
        db.execute("INSERT INTO PROCESSES SELECT globalPid + (1 << 24), pid + 1, name FROM PROCESSES")


def several(*edits: Edit) -> Edit:
    return lambda db: [edit(db) for edit in edits]
