"""Draws statements of the knowledge to hold against sources, the same for the same seed.

    python benchmarks/draw.py [--count N] [--seed N] [--kind KIND...]

A statement is one line of an option with its releases and note, one figure of a GPU, one entry of kernel
names, one flag, pitfall or remedy of captures, or one threshold with its origin. Whoever did not write it
looks each up and notes: right, inexact or wrong, with the source.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.engine.load import builtin_dir, load_rules
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import references
from advisor.knowledge.package_data import plain


class Statement(NamedTuple):
    """What is claimed, and where it stands."""

    kind: str
    place: str
    text: str


def of_options() -> Iterator[Statement]:
    for name, data in engines().items():
        for action, lines in data.options.items():
            for line in lines:
                when = [f"{k} {v}" for k in ("since", "until") if (v := getattr(line, k))]
                parts = [
                    line.line,
                    *when,
                    *([f"before: {line.before}"] if line.before else []),
                    line.note or "",
                ]
                yield Statement("option", f"engines/{name}.yaml {action}", "; ".join(p for p in parts if p))


def of_gpus() -> Iterator[Statement]:
    for gpu in plain("knowledge", "gpus.yaml")["gpus"]:
        for key, value in gpu.items():
            if key not in ("name", "match", "source"):
                cells = value.items() if isinstance(value, dict) else [("", value)]
                for part, figure in cells:
                    yield Statement("gpu", gpu["name"], f"{key} {part} {figure}".replace("  ", " "))


def of_kernels() -> Iterator[Statement]:
    for entry in plain("knowledge", "kernel_families.yaml")["kernels"]:
        names = [*entry.get("match", ()), *entry.get("words", ())]
        yield Statement("kernel", entry["family"], f"{entry['operation']}: {' | '.join(names)[:300]}")


def of_captures() -> Iterator[Statement]:
    data = plain("knowledge", "capture.yaml")
    for flag in data["flags"]:
        said = "; ".join(str(flag[k]) for k in ("note", "overhead") if flag.get(k))
        yield Statement("capture", "capture.yaml", f"{flag['flag']}: {said}")
    for trap in data["pitfalls"]:
        yield Statement("capture", f"capture.yaml {trap['id']}", trap["text"])
    for node in plain("knowledge", "troubleshooting.yaml")["nodes"]:
        if node.get("say"):
            yield Statement("capture", f"troubleshooting.yaml {node['id']}", node["say"])


def of_thresholds() -> Iterator[Statement]:
    known = references()
    for rule in load_rules(builtin_dir()).active:
        for name, param in rule.params.items():
            source = known[param.source].title if param.source in known else param.source or ""
            yield Statement("threshold", f"{rule.code}.{name}", f"{param.default}, {param.origin}: {source}")


POOLS = {
    "option": of_options,
    "gpu": of_gpus,
    "kernel": of_kernels,
    "capture": of_captures,
    "threshold": of_thresholds,
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw statements of the knowledge to check.")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--kind", action="append", choices=sorted(POOLS))
    given = parser.parse_args(argv)
    pool = [s for kind in given.kind or POOLS for s in POOLS[kind]()]
    sizes = ", ".join(f"{n} {kind}" for kind, n in Counter(s.kind for s in pool).items())
    drawn = random.Random(given.seed).sample(pool, min(given.count, len(pool)))
    print(f"{len(drawn)} of {len(pool)} statements ({sizes}), seed {given.seed}")
    for number, one in enumerate(sorted(drawn), 1):
        print(f"{number:3} {one.kind:9} {one.place}: {one.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
