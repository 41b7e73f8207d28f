"""Whether the table that PyTorch prints of a trace says what the trace itself says.

usage: python benchmarks/agreement.py [--traces DIR] [--write]

DIR holds traces of the PyTorch profiler (default ../shared/traces); those of examples/ and tests/data are
read as well. Of each its `key_averages().table()` is made (tests/profiler_tables.py) and diagnosed like the
trace.Prints the page benchmarks/agreement.md, which `--write` writes: the first cause of both, whether they
mean the same, and where they do not, what sums cannot tell. Ends with 1 where there is no such reason.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from advisor.errors import AdvisorError  # noqa: E402
from advisor.model.findings import Diagnosis  # noqa: E402
from advisor.pipeline.diagnose import diagnose  # noqa: E402
from tests.profiler_tables import averages, table  # noqa: E402

#: Causes of a trace -> what sums call the same.
SAME = {
    "launch-bound": {"launches-outlast-kernels", "launch-calls"},
    "host-gap": {"gpu-idle-in-sums", "host-waits", "loading-in-sums"},
    "gpu-idle": {"gpu-idle-in-sums", "launches-outlast-kernels"},
    "python-gc": {"gpu-idle-in-sums"},
    "blocking-sync": {"host-waits", "readback-per-layer", "gpu-idle-in-sums"},
    "transfer-bound": {"copy-time"},
    "pageable-copies": {"copy-time"},
    "exposed-communication": {"collective-time"},
    "input-preparation": {"loading-in-sums"},
    "compute-bound": {"gpu-fills-the-time"},
    "allocation-stalls": {"allocation-churn", "allocation-calls"},
}
#: First cause of a trace -> what a table lacks to see it; it may name another cause, or none.
CANNOT = {
    "": "the trace shows that the GPU does not wait for it",
    "tail-latency": "sums hold no single call, so none is slow",
    "graph-node-gaps": "gaps between kernels have no row",
    "graph-replay-gaps": "gaps between replays have no row",
    "queue-empty": "gaps between kernels have no row",
    "host-gap": "an idle GPU has no row, and other threads hide it in the total of the host",
    "kv-cache-concatenation": "the order of kernels is lost, so that none stands in front of an attention",
    "repeated-weight-casts": "the order of kernels is lost, so that none stands in front of a product",
    "unfused-attention": "the order of kernels is lost, so that products and softmax are not one attention",
    "compute-bound": "how fast the products run takes their sizes, which no row has",
    "fp32-matmul": "the names of these products do not say their precision",
    "under-filled-gpu": "the number of blocks of a kernel has no column",
    "old-architecture-kernels": "the table does not name the GPU",
    "exposed-communication": "what hides a collective has no row",
    "transfer-bound": "whether kernels hide a copy has no row, so that other work may stand first",
    "pageable-copies": "whether kernels hide a copy has no row, so that other work may stand first",
    "allocation-churn": "an idle GPU has no row: launches, which take longer than the kernels, stand first",
    "unfused-elementwise": "its share of the whole recording is smaller than that of the steady steps",
    "blocking-sync": "a collective holds the waiting for other ranks, which the table counts as GPU time",
    "launch-bound": "a collective holds the waiting for other ranks, which the table counts as GPU time",
}


class Row(NamedTuple):
    name: str
    of_trace: tuple[str, ...]
    of_table: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        if not self.of_trace or not self.of_table:
            return not self.of_trace and not self.of_table
        first, mine = self.of_trace[0], self.of_table[0]
        return mine == first or mine in SAME.get(first, ())

    @property
    def names_another(self) -> bool:
        """Whether the table names a cause first that the trace has not at all."""
        mine = self.of_table[:1]
        known = {*self.of_trace, *(s for cause in self.of_trace for s in SAME.get(cause, ()))}
        return bool(mine) and mine[0] not in known

    @property
    def why(self) -> str:
        """Why they differ, if sums cannot tell; empty where they should."""
        return CANNOT.get(self.of_trace[0] if self.of_trace else "", "")


def traces(folder: Path) -> Iterator[Path]:
    """Traces of the PyTorch profiler below these folders."""
    for top in (ROOT / "examples", ROOT / "tests" / "data", folder):
        for path in sorted(top.rglob("*.json*")):
            if path.suffix in (".json", ".gz", ".xz") and ".json" in path.name:
                yield path


def causes(found: Diagnosis) -> tuple[str, ...]:
    """The first causes that cost time, without those about the recording."""
    return tuple(dict.fromkeys(f.cause for f in found.findings if not f.code.startswith("CAP")))


def compared(path: Path, folder: Path) -> Row | None:
    """None for other files."""
    whole = path
    if path.suffix == ".xz":
        whole = folder / path.stem
        whole.write_bytes(lzma.decompress(path.read_bytes()))
    printed = folder / "table.txt"
    try:
        of_trace = diagnose(whole)
        if of_trace.inputs[0].format != "kineto-json":
            return None
        printed.write_text(table(averages(whole)))
        of_table = causes(diagnose(printed))
    except AdvisorError as fault:
        print(f"{path}: {fault}", file=sys.stderr)
        return None
    return Row(f"{path.parent.name}/{path.name.split('.json')[0]}", causes(of_trace), of_table)


def page(rows: Sequence[Row]) -> str:
    """The page of agreements."""
    same, apart = [r for r in rows if r.agrees], [r for r in rows if not r.agrees]
    wrong = [r for r in apart if r.names_another]
    lines = [
        "# What a printed table says of a trace",
        "",
        "For whoever pasted `prof.key_averages().table()` and asks how far to trust the answer. Of each",
        "trace of the PyTorch profiler at hand the table was made and diagnosed like the trace:",
        "`python benchmarks/agreement.py --write`.",
        "",
        f"{len(same)} of {len(rows)} tables name the same first cause as their trace. Of the other "
        f"{len(apart)}, {len(wrong)} name one first that the trace has not at all.",
        "",
        "| trace | first cause of the trace | first cause of its table | agree | what the table lacks |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        first, mine = (x[0] if x else "none" for x in (r.of_trace, r.of_table))
        lines.append(
            f"| {r.name} | {first} | {mine} | {'yes' if r.agrees else 'no'} | {'' if r.agrees else r.why} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in traces(args.traces):
            row = compared(path, Path(folder))
            if row is not None:
                rows.append(row)
    text = page(rows)
    print(text, end="")
    if args.write:
        (ROOT / "benchmarks" / "agreement.md").write_text(text, encoding="utf-8")
    return 1 if any(not r.agrees and not r.why for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
