"""True number of steps of every labelled capture (steps.yaml) against the number that is found.

    python benchmarks/steps.py [--traces DIR] [--write]

DIR holds the captures (default ../shared/traces); what is not there is left out. Steps that are found
are counted before the first is set aside; they are believed from a confidence of 0.6. The exit code
is 1 where a number is believed and wrong; `--write` writes benchmarks/steps.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import yaml
from judgement import ROOT, path_of, short

from advisor.metrics.profiled.stage import measure
from advisor.metrics.steps.model import Steps
from advisor.pipeline.diagnose import open_trace

HEADS = ("capture", "evidence", "true", "found", "method", "confidence", "")


def verdict(true: int, steps: Steps) -> str:
    if len(steps) == true:
        return "right"
    return "**wrong**" if len(steps) and steps.believed else "not believed" if len(steps) else "none found"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows, verdicts = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"], Counter[str]()
    for section, captures in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items():
        for name, (true, evidence) in captures.items():
            with tempfile.TemporaryDirectory() as folder:
                path = path_of(args.traces, section, name, Path(folder))
                if path is None:
                    print(f"{section}/{name}: no such capture in {args.traces}", file=sys.stderr)
                    continue
                with open_trace(path) as trace:
                    steps = measure(trace).repeated
            verdicts[verdict(true, steps)] += 1
            cells = (short(f"{section}/{name}"), evidence, true, len(steps), steps.method, steps.confidence)
            rows.append(f"| {' | '.join(map(str, cells))} | {verdict(true, steps)} |")
    total = ", ".join(f"{count} {what}" for what, count in verdicts.most_common())
    text = "\n".join((*rows, "", f"{sum(verdicts.values())} captures: {total}."))
    print(text)
    if args.write:
        head = "# Steps: true and found\n\nWritten by `python benchmarks/steps.py --write`.\n\n"
        Path(__file__).with_suffix(".md").write_text(f"{head}{text}\n", encoding="utf-8")
    return 1 if verdicts["**wrong**"] else 0


if __name__ == "__main__":
    sys.exit(main())
