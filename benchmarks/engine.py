"""Time to load the rules and to infer from a real capture with both engines, best of several runs.

usage: python benchmarks/engine.py [CAPTURE] [--runs N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from advisor.engine.compile import compile_rules
from advisor.engine.conclude import conclude
from advisor.engine.durable import available
from advisor.engine.infer import infer
from advisor.engine.load import builtin_dir, load_rules
from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.sources.open import open_trace

DEMO = Path(__file__).resolve().parents[1] / "examples/captures/decode_eager_bs1.sqlite.xz"


def best_ms(work: Callable[[], object], runs: int) -> float:
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return 1000 * min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", type=Path, nargs="?", default=DEMO)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    rules = load_rules(builtin_dir())
    program = compile_rules(rules)
    with open_trace(args.capture) as trace:
        facts = build_facts(measure(trace))
    print(f"{len(rules)} rules, {len(facts)} facts")
    print(f"load     {best_ms(lambda: load_rules(builtin_dir()), args.runs):7.1f} ms")
    print(f"compile  {best_ms(lambda: compile_rules(rules), args.runs):7.1f} ms")
    for engine in ("python", "durable") if available()[0] else ("python",):
        taken = best_ms(lambda e=engine: infer(facts, program, engine=e), args.runs)
        print(f"{engine:8} {taken:7.1f} ms")
    found = infer(facts, program, engine="python")
    print(f"conclude {best_ms(lambda: conclude(found), args.runs):7.1f} ms")


if __name__ == "__main__":
    main()
