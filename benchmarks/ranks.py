"""Many ranks: wall time and memory of `advisor diagnose rank*.sqlite`, and of the reduction alone.

usage: python benchmarks/ranks.py [--ranks N] [--kernels N] [--jobs N]... [--simulate N]
                                  [--collectives N] [--keep DIR]

Generates a job of N ranks with about so many kernels each (a decode step of 32 layers with two
all-reduces a layer, tiled in time; eight ranks differ, further ones are copies of these) and runs
the command on one rank and on all. `--simulate` reduces summaries of so many ranks, made of one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tile import tile  # noqa: E402

from tests.ranks.cluster import Cluster  # noqa: E402
from tests.scenarios.machine import ALL_REDUCE, DECODE_ATTENTION, GEMM, NORM, SILU  # noqa: E402

DIFFERENT = 8
STEPS, LAYERS = 13, 32
A_STEP = LAYERS * 10


def generate(folder: Path, ranks: int, kernels: int) -> list[Path]:
    job = Cluster(min(ranks, DIFFERENT), clock_errors_us={1: 800.0, 3: -2_500.0})
    for i in range(STEPS):
        with job.step(f"decode_step {i}"):
            for layer in range(LAYERS):
                for kernel, us in ((NORM, 8), (GEMM, 40), (DECODE_ATTENTION, 25), (GEMM, 30)):
                    job.compute(kernel, us, more={2: 12} if layer % 4 == 0 else None)
                job.collective(ALL_REDUCE, 12)
                for kernel, us in ((NORM, 8), (GEMM, 45), (SILU, 9), (GEMM, 45)):
                    job.compute(kernel, us)
                job.collective(ALL_REDUCE, 12)
    (folder / "base").mkdir(exist_ok=True)
    base = job.write(folder / "base", "base{}.sqlite")
    times = max(round(kernels / (STEPS * A_STEP)), 1)
    # One period for all, beyond the end of the last rank: they stay together.
    period = round(max(m.gpu_free - 500 for m in job.machines) * 1_000) + 50_000
    paths = []
    for rank in range(ranks):
        path = folder / f"rank{rank}.sqlite"
        if rank < len(base):
            tile(base[rank], path, times, period)
        else:
            shutil.copyfile(paths[rank % DIFFERENT], path)
        paths.append(path)
    return paths


def measured(command: list[str]) -> tuple[float, float, dict[int, int]]:
    """Wall seconds, CPU seconds of the process and its children, and the peak resident KiB of the
    process (under 0) and of each child."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peaks: dict[int, int] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for pid in family(child.pid):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                hit = [line for line in status.splitlines() if line.startswith("VmHWM")]
                if hit:
                    peaks[pid] = max(peaks.get(pid, 0), int(hit[0].split()[1]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    over.set()
    watcher.join()
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(command)} failed")
    others = {p: k for p, k in peaks.items() if p != child.pid}
    return wall, usage.ru_utime + usage.ru_stime, others | {0: peaks.get(child.pid, 0)}


def family(pid: int) -> list[int]:
    out = [pid]
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            out += [p for c in child.read_text().split() for p in family(int(c))]
        except OSError:
            continue
    return out


def simulate(path: Path, ranks: int, collectives: int) -> dict[str, float]:
    """Seconds to put together `ranks` summaries, decoding included; each is that of one real
    rank, with arrivals of its own."""
    from advisor.jobs.reduction import decode, encode
    from advisor.pipeline.diagnose import Options
    from advisor.pipeline.ranks import Reduced, Task, diagnose_ranks, reduce_capture

    first = reduce_capture(Task(str(path), Options(), True)).data
    other = reduce_capture(Task(str(path), Options(), False)).data
    assert first is not None
    assert other is not None
    rng = np.random.default_rng(1)
    encoded = []
    for rank in range(ranks):
        summary = decode(first if rank == 0 else other)
        rows = summary.rows[0].unpacked()
        count = min(collectives, len(rows))
        columns = {n: getattr(rows, n) for n in rows.__struct_fields__}
        cut = {n: a[:count] for n, a in columns.items() if isinstance(a, np.ndarray) and len(a) == len(rows)}
        late = rng.integers(0, 3_000, count) + (30_000 if rank == ranks // 3 else 0)
        late = np.minimum(late, cut["duration"] - 1)
        cut["start"] = cut["start"] + late
        cut["duration"] = cut["duration"] - late
        own = replace(rows, zero=(rows.zero or 0) + int(rng.integers(-(10**6), 10**6)), **cut)
        encoded.append(encode(replace(summary, rows=(own,))))
    begin, busy = time.perf_counter(), time.process_time()
    files = [(r, Path(f"rank{r}.sqlite")) for r in range(ranks)]
    diagnosis = diagnose_ranks(files, run=lambda _: [Reduced(data, None) for data in encoded])
    wall, busy = time.perf_counter() - begin, time.process_time() - busy
    named = [f.scope.rank for f in diagnosis.findings if f.cause == "rank-arrival-skew"]
    return {
        "ranks": ranks,
        "collectives_a_rank": count,
        "reduction_s": wall,
        "reduction_cpu_s": busy,
        "bytes_a_rank": float(np.mean([len(d) for d in encoded])),
        "late_rank_named": float(named == [ranks // 3]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, action="append", default=None)
    parser.add_argument("--simulate", type=int, default=1_000)
    parser.add_argument("--collectives", type=int, default=1_000)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    advisor = str(Path(sys.executable).parent / "advisor")
    result: dict[str, object] = {"cores": len(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory() as name:
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        paths = sorted(folder.glob("rank*.sqlite"))
        if len(paths) < args.ranks:
            paths = generate(folder, args.ranks, args.kernels)
        paths = paths[: args.ranks]
        result["file_mb"] = paths[0].stat().st_size / 1e6
        one, cpu, peaks = measured([advisor, str(paths[0]), "--format", "json"])
        result["one_rank"] = {"wall_s": one, "cpu_s": cpu, "peak_mb": max(peaks.values()) / 1024}
        for jobs in args.jobs or [len(os.sched_getaffinity(0))]:
            wall, cpu, peaks = measured([advisor, *map(str, paths), "--format", "json", "--jobs", str(jobs)])
            parent = peaks.pop(0)
            result[f"{len(paths)}_ranks_{jobs}_jobs"] = {
                "wall_s": wall,
                "cpu_s": cpu,
                "ranks_a_s": len(paths) / wall,
                "parent_peak_mb": parent / 1024,
                "worker_peak_mb": max(peaks.values(), default=0) / 1024,
            }
        if args.simulate:
            result["simulated"] = simulate(paths[0], args.simulate, args.collectives)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
