"""Records pairs of PyTorch profiler traces with and without one cause, and times both without it.

usage: python benchmarks/pairs/record.py OUT [--only NAME ...] [--seconds 540] [--each 60]

Needs PyTorch and a GPU; nsys is not used. Every group of workloads runs in a process of its own: one
that fails or exceeds its `--each` seconds is noted in the labels with its message, and the others go
on. OUT/traces/NAME.json.gz are the traces, OUT/labels.json says of each what a diagnosis must say and
what was measured (steps in milliseconds by the host's clock and by CUDA events, several rounds of
each); it is written anew after every group. Without a GPU all of it runs small, on the CPU, to try it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass(frozen=True)
class Group:
    """A generator of variants: `function` of `module`, run under `environment`."""

    module: str
    function: str
    environment: dict[str, str] = field(default_factory=dict)
    slow: bool = False  # compiles: may take twice the time


GROUPS = {
    "launches": Group("host_side", "launches"),
    "large_launches": Group("host_side", "large_launches"),
    "readbacks": Group("host_side", "readbacks"),
    "copies": Group("device_side", "copies"),
    "precision": Group("device_side", "precision"),
    "attention": Group("device_side", "attention"),
    "allocations": Group("host_side", "allocations"),
    "allocations_not_cached": Group("host_side", "allocations", NO_CACHING),
    "collections": Group("host_side", "collections"),
    "lock_holders": Group("host_side", "lock_holders"),
    "detokenisers": Group("host_side", "detokenisers"),
    "prefills": Group("host_side", "prefills"),
    "offload": Group("device_side", "offload"),
    "streams": Group("device_side", "streams"),
    "generates": Group("generate", "generates", slow=True),
    "quantising": Group("device_side", "quantising", slow=True),
    "fusion": Group("device_side", "fusion", slow=True),
    "logits": Group("device_side", "logits"),
    "casts": Group("device_side", "casts"),
    "cache_joins": Group("device_side", "cache_joins"),
}


def run_group(name: str, out: Path) -> None:
    """Records the variants of a group; called in the group's own process."""
    import gpu
    import measure
    import torch

    group = GROUPS[name]
    torch.manual_seed(0)
    if not gpu.HERE:
        torch.set_num_threads(1)
    path = out / f"{name}.json"
    found: dict[str, Any] = {"about": gpu.about(), "captures": {}, "failed": {}}
    variants: Iterator[measure.Variant] = getattr(__import__(group.module), group.function)()
    while True:
        begin = time.perf_counter()
        variant = None
        try:
            variant = next(variants, None)
            if variant is None:
                break
            label = measure.record(variant, out / "traces")
            label["environment"] = group.environment
            found["captures"][variant.name] = label
            took = time.perf_counter() - begin
            print(f"  {variant.name:24} {label['step_ms']:9.3f} ms a step ({took:.1f} s)", flush=True)
        except Exception as error:
            where = variant.name if variant is not None else name
            found["failed"][where] = f"{type(error).__name__}: {error}"[:400]
            traceback.print_exc(limit=-4, file=sys.stdout)
            sys.stdout.flush()
            if variant is None:  # the generator itself is over
                break
        finally:
            path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def gather(out: Path, lost: dict[str, str]) -> dict[str, Any]:
    """The labels of all groups that have written theirs."""
    labels: dict[str, Any] = {"about": {}, "captures": {}, "failed": dict(lost)}
    for name in GROUPS:
        path = out / f"{name}.json"
        if path.exists():
            part = json.loads(path.read_text(encoding="utf-8"))
            labels["about"] = part["about"]
            labels["captures"].update(part["captures"])
            labels["failed"].update(part["failed"])
    (out / "labels.json").write_text(json.dumps(labels, indent=1), encoding="utf-8")
    return labels


def run_all(out: Path, names: list[str], seconds: float, each: float) -> dict[str, Any]:
    lost: dict[str, str] = {}
    end = time.monotonic() + seconds
    for name in names:
        group = GROUPS[name]
        limit = min(each * (2 if group.slow else 1), end - time.monotonic())
        if limit < 5:
            lost[name] = "no time was left"
            continue
        print(f"{name}", flush=True)
        command = [sys.executable, str(Path(__file__).resolve()), str(out), "--one", name]
        try:
            code = subprocess.run(command, env=os.environ | group.environment, timeout=limit, check=False)
            if code.returncode:
                lost[name] = f"exit {code.returncode}"
        except subprocess.TimeoutExpired:
            lost[name] = f"not done in {limit:.0f} s"
        if name in lost:
            print(f"  {name}: {lost[name]}", flush=True)
        gather(out, lost)
    return gather(out, lost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=540.0, help="of all groups")
    parser.add_argument(
        "--each", type=float, default=60.0, help="seconds of a group; twice for those that compile"
    )
    parser.add_argument("--one", choices=list(GROUPS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    (args.out / "traces").mkdir(parents=True, exist_ok=True)
    if args.one:
        run_group(args.one, args.out)
        return
    begin = time.monotonic()
    labels = run_all(args.out, args.only, args.seconds, args.each)
    size = sum(p.stat().st_size for p in (args.out / "traces").iterdir())
    print(f"{len(labels['captures'])} traces, {size / 1e6:.1f} MB, {time.monotonic() - begin:.0f} s")
    for name, reason in labels["failed"].items():
        print(f"failed: {name}: {reason}")


if __name__ == "__main__":
    main()
