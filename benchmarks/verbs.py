"""Processor time and memory of what else a user waits for, as multiples of a diagnosis of the same
capture.

usage: python benchmarks/verbs.py [--capture FILE] [--runs N]

Verbs take turns with the diagnosis, whole processes; the least of the runs counts.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from diagnose import DEMO, Run, advisor, process
from tile import unpacked


def verbs(capture: str, folder: Path) -> dict[str, tuple[str, ...]]:
    return {
        "--help": ("--help",),
        "diagnose --help": ("diagnose", "--help"),
        "diagnose --format json": ("diagnose", capture, "--format", "json"),
        "diagnose --html": ("diagnose", capture, "--html", str(folder / "a.html"), "--force"),
        "diagnose --xlsx": ("diagnose", capture, "--xlsx", str(folder / "a.xlsx"), "--force"),
        "compare with itself": ("compare", capture, capture),
        "doctor": ("doctor", capture),
        "whatif": ("whatif", capture, "--fix", "cuda_graphs"),
        "explain CODE --trace": ("explain", "SYN101", "--trace", capture),
        "show 1": ("show", capture, "1"),
        "stats": ("stats", capture),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capture", type=Path, default=DEMO)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        capture = str(unpacked(args.capture, Path(name)))
        plain = advisor("diagnose", capture)
        process(*plain)  # fills the cache of rules and knowledge
        for title, words in verbs(capture, Path(name)).items():
            pairs = [(process(*advisor(*words)), process(*plain)) for _ in range(args.runs)]

            def least(of: int, pairs: list[tuple[Run, Run]] = pairs) -> float:
                return min(pair[of].cpu_s for pair in pairs)

            print(
                f"{title:24} {least(0):6.2f} s  {least(0) / least(1):5.2f} x  "
                f"{max(pair[0].peak_mib for pair in pairs):5.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
