"""Wall time of `advisor diagnose` on a large PyTorch profiler trace, whole process.

usage: python benchmarks/kineto.py [TRACE] [--megabytes N] [--runs N]

Without a trace the committed one is repeated along its time axis until it has the size.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
from pathlib import Path

from diagnose import advisor, process

DEMO = Path(__file__).resolve().parents[1] / "examples/captures/kineto_decode_graph.json.gz"


def repeated(source: Path, target: Path, size: int) -> None:
    """The trace again and again, each copy later and with correlation ids of its own."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    events = [e for e in document["traceEvents"] if "ts" in e]
    text = json.dumps(events)
    first = min(float(e["ts"]) for e in events)
    span = max(float(e["ts"]) + float(e.get("dur", 0)) for e in events) - first + 1000
    ids = max((e.get("args", {}).get("correlation", 0) for e in events), default=0) + 1
    out = list(document["traceEvents"])
    for copy in range(1, max(size // len(text), 1)):
        for event in json.loads(text):
            event["ts"] = float(event["ts"]) + copy * span
            if "correlation" in event.get("args", {}):
                event["args"]["correlation"] += copy * ids
            out.append(event)
    target.write_text(json.dumps({**document, "traceEvents": out}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        trace = args.trace
        if trace is None:
            trace = Path(name) / "large.json"
            repeated(DEMO, trace, args.megabytes * 10**6)
        ran = [process(*advisor("diagnose", str(trace), "-q")) for _ in range(args.runs)]
        print(f"{trace.stat().st_size / 1e6:8.1f} MB")
        print(f"{statistics.median(run.wall_s for run in ran):8.2f} s")
        print(f"{max(run.peak_mib for run in ran):8.0f} MB peak")


if __name__ == "__main__":
    main()
