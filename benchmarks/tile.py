"""Repeats a capture along its own time axis, so that a large trace keeps real proportions."""

from __future__ import annotations

import lzma
import shutil
import sqlite3
from pathlib import Path

_TIMES = ("start", "end", "timestamp", "rawTimestamp")
_NOT_EVENTS = (
    "ENUM_",
    "META_",
    "TARGET_",
    "ANALYSIS",
    "PROFILER_OVERHEAD",
    "CUDA_GRAPH_EVENTS",
    "DIAGNOSTIC_EVENT",
)


def unpacked(source: Path, folder: Path) -> Path:
    """The capture as plain SQLite in `folder`."""
    target = folder / source.name.removesuffix(".xz")
    if source.suffix == ".xz":
        with lzma.open(source) as packed, target.open("wb") as out:
            shutil.copyfileobj(packed, out)
    else:
        shutil.copyfile(source, target)
    return target


def tile(source: Path, target: Path, times: int, period: int | None = None) -> None:
    """Write `source` (SQLite or .xz of it) `times` times into `target`: times shifted by the span
    of the CUDA rows (or by `period` ns, which keeps ranks of one job together), correlation ids by
    their range, all else as captured."""
    shutil.move(unpacked(source, target.parent), target)
    db = sqlite3.connect(target)
    db.execute("pragma journal_mode = off")
    db.execute("pragma synchronous = off")
    tables = {
        name: [row[1] for row in db.execute(f'pragma table_info("{name}")')]
        for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall()
        if not name.startswith(_NOT_EVENTS)
    }
    spans, ids = [], [0]
    for name, columns in tables.items():
        if name.startswith("CUPTI") and {"start", "end"} <= set(columns):
            spans.append(db.execute(f'select min(start), max("end") from "{name}"').fetchone())
        if "correlationId" in columns:
            ids.append(db.execute(f'select max(correlationId) from "{name}"').fetchone()[0] or 0)
    lo = min(a for a, _ in spans if a is not None)
    hi = max(b for _, b in spans if b is not None)
    step = {**dict.fromkeys(_TIMES, period or hi - lo + 1000), "correlationId": max(ids) + 1}
    for name, columns in tables.items():
        if not set(columns) & {"start", "timestamp"}:
            continue
        rows = db.execute(f'select max(rowid) from "{name}"').fetchone()[0] or 0
        taken = f"rowid <= {rows}"
        if name == "GPU_METRICS":
            taken += f" and timestamp between {lo} and {hi}"
        into = ", ".join(f'"{c}"' for c in columns)
        values = ", ".join(f'"{c}" + :i * {step[c]}' if c in step else f'"{c}"' for c in columns)
        for i in range(1, times):
            db.execute(f'insert into "{name}" ({into}) select {values} from "{name}" where {taken}', {"i": i})
    db.commit()
    db.close()
