"""Wall time and memory of `advisor diagnose`, as ratios to one SQL pass over the same file.

usage: python benchmarks/diagnose.py [--capture FILE] [--times N] [--runs N] [--small FILE]

Builds a large trace by repeating a capture (by default the demo, 80 times: 1.0 M kernels, 2.2 M API
calls, 3.8 M metric rows) and runs whole processes. The machine cancels out of a ratio only in the
same run, so both sides take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tile import tile, unpacked

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"
SUMS = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", 'count(*), sum("end" - start)'),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", 'count(*), sum("end" - start)'),
    ("GPU_METRICS", "sum(value)"),
)


def sql_pass(path: Path) -> None:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for table, what in SUMS:
        db.execute(f"select {what} from {table}").fetchone()


class Run(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mib: float


def process(*command: str) -> Run:
    """What one process took."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(command)} failed")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def advisor(*arguments: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).parent / "advisor"), *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capture", type=Path, default=DEMO)
    parser.add_argument("--times", type=int, default=80)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--small", type=Path, help="a capture to time by itself, start-up included")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        big = folder / "big.sqlite"
        tile(args.capture, big, args.times)
        result["file_mb"] = big.stat().st_size / 1e6
        floor, ours = [], []
        own = (sys.executable, __file__, "--sql-pass", str(big))
        for _ in range(args.runs):
            floor.append(process(*own))
            ours.append(process(*advisor("diagnose", str(big), "--format", "json")))
        result["sql_pass_s"] = statistics.median(run.wall_s for run in floor)
        result["diagnose_s"] = statistics.median(run.wall_s for run in ours)
        result["diagnose_over_sql_pass"] = result["diagnose_s"] / result["sql_pass_s"]
        result["diagnose_over_sql_pass_cpu"] = min(r.cpu_s for r in ours) / min(r.cpu_s for r in floor)
        result["diagnose_peak_mb"] = max(run.peak_mib for run in ours)
        small = unpacked(args.small or args.capture, folder)
        for key, command in {
            "small_diagnose_s": advisor("diagnose", str(small), "--format", "json"),
            "help_s": advisor("--help"),
            "explain_s": advisor("explain", "SYN101"),
        }.items():
            result[key] = statistics.median(process(*command).wall_s for _ in range(args.runs))
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for key, value in result.items():
        print(f"{key:26} {value:8.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sql-pass"]:
        sql_pass(Path(sys.argv[2]))
    else:
        main()
