"""CPU time and memory of `advisor diagnose` over the size of a capture, and over what may be many.

usage: python benchmarks/scale.py [--most KERNELS] [--runs N] [--rows N N] [--json]

The first table repeats the demo up to `--most` kernels and gives the slope of CPU time and memory
from one size to the next (1 is linear) and the ratio to one SQL pass over the same file, taken in
turn. The second adds rows of one kind to the demo, so many and then four times as many, and gives
what a row costs: a cost that grows with the number is a defect. Processor seconds, not wall time,
so that other load on the machine matters less.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import diagnose
from tile import tile, unpacked

KERNELS, CALLS, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"


class Cost(NamedTuple):
    cpu_s: float
    peak_mib: float


def least(runs: int, *command: str) -> Cost:
    """The cheapest of several runs."""
    found = [diagnose.process(*command) for _ in range(runs)]
    return Cost(min(run.cpu_s for run in found), min(run.peak_mib for run in found))


def more(db: sqlite3.Connection, table: str, rows: int, **changed: str) -> None:
    """Copies `rows` rows of a table, repeating them as needed; `changed` are SQL expressions of
    columns, in which :n is the number of the copy."""
    columns = [row[1] for row in db.execute(f'pragma table_info("{table}")')]
    values = ", ".join(changed[c].replace(":n", "n") if c in changed else f'"{c}"' for c in columns)
    have = db.execute(f'select count(*) from "{table}"').fetchone()[0]
    db.execute(
        f"with recursive numbers(n) as (select 0 union all select n + 1 from numbers where n < {rows - 1}) "
        f'insert into "{table}" select {values} from numbers '
        f'join (select *, row_number() over () - 1 as place from "{table}") on place = n % {have}'
    )


def texts(db: sqlite3.Connection, rows: int, text: str) -> int:
    """Adds texts to the pool; the id of the first."""
    first = int(db.execute("select max(id) from StringIds").fetchone()[0]) + 1
    db.executemany("insert into StringIds values (?, ?)", ((first + i, f"{text}{i}") for i in range(rows)))
    return first


def many_names(db: sqlite3.Connection, rows: int) -> None:
    first = texts(db, rows, "triton_poi_fused_add_")
    more(db, KERNELS, rows, demangledName=f"{first} + :n", shortName=f"{first} + :n")


def many_streams(db: sqlite3.Connection, rows: int) -> None:
    more(db, KERNELS, rows, streamId=f"1000 + :n % {max(rows // 10, 1)}")


def many_processes(db: sqlite3.Connection, rows: int) -> None:
    more(db, CALLS, rows, globalTid=f"(1000000 + :n % {max(rows // 10, 1)}) << 24")


def many_threads(db: sqlite3.Connection, rows: int) -> None:
    more(db, CALLS, rows, globalTid=f"globalTid + 1 + :n % {max(rows // 10, 1)}")


def many_texts(db: sqlite3.Connection, rows: int) -> None:
    first = texts(db, rows, "request ")
    more(db, NVTX, rows, textId=f"{first} + :n", text="null")


def deep_ranges(db: sqlite3.Connection, rows: int) -> None:
    more(db, NVTX, rows, start="start + :n % 50", end='"end" - :n % 50')


CASES: dict[str, Callable[[sqlite3.Connection, int], None]] = {
    "distinct kernel names": many_names,
    "streams (one for ten rows)": many_streams,
    "processes (one for ten rows)": many_processes,
    "threads (one for ten rows)": many_threads,
    "distinct NVTX texts": many_texts,
    "NVTX ranges 50 deep": deep_ranges,
    "copies": lambda db, rows: more(db, "CUPTI_ACTIVITY_KIND_MEMCPY", rows, start="start + :n"),
    "metric rows": lambda db, rows: more(db, "GPU_METRICS", rows, timestamp="timestamp + :n"),
}


def sizes(folder: Path, most: int, runs: int) -> Iterator[dict[str, float]]:
    path = folder / "large.sqlite"
    times = 1
    while True:
        tile(diagnose.DEMO, path, times)
        with sqlite3.connect(path) as db:
            kernels = int(db.execute(f"select count(*) from {KERNELS}").fetchone()[0])
        if kernels > most and times > 1:
            return
        ours, floor = (
            least(runs, *command)
            for command in (
                diagnose.advisor("diagnose", str(path), "--format", "json"),
                (sys.executable, diagnose.__file__, "--sql-pass", str(path)),
            )
        )
        yield {
            "kernels": kernels,
            "file_mb": path.stat().st_size / 1e6,
            "cpu_s": ours.cpu_s,
            "peak_mib": ours.peak_mib,
            "over_sql_pass": ours.cpu_s / floor.cpu_s,
        }
        times *= 4


def cases(folder: Path, rows: tuple[int, int], runs: int) -> Iterator[dict[str, float | str]]:
    demo, path = unpacked(diagnose.DEMO, folder), folder / "case.sqlite"
    plain = least(runs, *diagnose.advisor("diagnose", str(demo), "--format", "json"))
    for name, add in CASES.items():
        row: dict[str, float | str] = {"case": name}
        for count in rows:
            shutil.copyfile(demo, path)
            with sqlite3.connect(path) as db:
                add(db, count)
            db.close()
            cost = least(runs, *diagnose.advisor("diagnose", str(path), "--format", "json"))
            row[f"us_a_row_of_{count}"] = (cost.cpu_s - plain.cpu_s) / count * 1e6
            row[f"kib_a_row_of_{count}"] = (cost.peak_mib - plain.peak_mib) / count * 1024
        yield row


def slope(one: dict[str, float], other: dict[str, float], of: str) -> float:
    """Exponent of growth with the number of kernels."""
    return math.log(other[of] / one[of]) / math.log(other["kernels"] / one["kernels"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1_000_000, help="kernels; 10 M needs 3 GB of disk")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs=2, default=(20_000, 80_000))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        table: list[dict[str, float | str]] = []
        by_size: list[dict[str, float]] = []
        for size in sizes(Path(name), args.most, args.runs):
            by_size.append(size)
            if not args.json:
                print("  ".join(f"{key} {value:,.4g}" for key, value in size.items()), flush=True)
        slopes = {of: [slope(*pair, of) for pair in pairwise(by_size)] for of in ("cpu_s", "peak_mib")}
        if not args.json:
            print(
                "  ".join(
                    f"slope of {of} {' '.join(f'{s:.2f}' for s in all_)}" for of, all_ in slopes.items()
                )
            )
        for case in cases(Path(name), tuple(args.rows), args.runs):
            table.append(case)
            if not args.json:
                print(
                    "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{v:30}" for k, v in case.items()),
                    flush=True,
                )
    if args.json:
        print(json.dumps({"sizes": by_size, "slopes": slopes, "cases": table}, indent=2))


if __name__ == "__main__":
    main()
