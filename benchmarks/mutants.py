"""Source mutation: do the tests of a package notice when its code is changed a little?

    python benchmarks/mutants.py [PACKAGE...] [--count 60] [--seed 1] [--into FILE]

A sample of all places in the functions of a package where a comparison, a boolean or arithmetic operator,
a number, a truth value or the condition of an `if` can be exchanged for its neighbour. Each change is made
in a process of its own, a fork of one that has imported everything (so that a change costs little more than
the tests), which runs the tests of the package up to the first that fails. Prints what survived and the
share that was noticed, with the results of earlier runs where they are collected `--into` a file.

Thresholds of the rules have cases of their own, which `mutation.py` checks.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: Package -> its modules and the tests that are about them.
PACKAGES: dict[str, tuple[str, str]] = {
    "redaction": ("capture/redact_text.py", "redact/test_text.py redact/test_planted.py"),
    "redacted tables": ("capture/redact.py capture/redact_tables.py",
                        "redact/test_redact.py redact/test_planted.py"),
    "limits": ("reading.py scratch.py sources/packed.py sources/raw.py",
               "test_reading.py test_scratch.py fuzz/test_corpus.py sources/test_open.py"),
    "numbers": ("model/numbers.py", "model/test_numbers.py"),
    "intervals": ("metrics/intervals.py", "metrics/test_intervals.py"),
    "statistics": ("compare/statistics.py", "compare/test_statistics.py"),
    "tails and sums": ("metrics/tails.py metrics/sums.py", "stats/test_tails.py facts/test_sums.py"),
    "conditions": ("engine/interpret.py engine/values.py",
                   "engine/test_kleene.py engine/test_states.py engine/test_explain.py"),
    "sensitivity": ("engine/sensitivity.py", "engine/test_sensitivity.py"),
    "samplers": ("sources/samplers/log.py sources/samplers/rows.py", "sources/test_samplers.py"),
    "pasted tables": ("sources/pasted/headings.py sources/pasted/tables.py",
                      "sources/test_pasted.py"),
    "SQLite pages": ("sources/sqlite/file.py sources/sqlite/pages.py sources/sqlite/records.py",
                     "sources/test_sqlite_pages.py"),
    "Kineto": ("sources/kineto/decode.py sources/kineto/join.py sources/kineto/reader.py",
               "sources/test_kineto.py sources/test_kineto_bad_input.py"),
    "layout": ("reports/layout.py reports/text.py", "reports/test_layout.py reports/test_text_blocks.py"),
}  # fmt: skip
#: More than the tests of any package take.
LIMIT_S = 120
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or,
    ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Place(NamedTuple):
    """One change of one function: the node by its number in `ast.walk`, and which of its changes."""

    path: Path
    function: str
    node: int
    change: int

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)


def changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """What can be done to a node, each as a function of a copy of it."""

    def swap(name: str, at: int | None = None) -> Callable[[Any], None]:
        def change(n: Any) -> None:
            old = getattr(n, name) if at is None else getattr(n, name)[at]
            new = SWAPPED[type(old)]()
            if at is None:
                setattr(n, name, new)
            else:
                getattr(n, name)[at] = new

        return change

    match node:
        case ast.Compare(ops=ops):
            yield from (swap("ops", i) for i, op in enumerate(ops) if type(op) in SWAPPED)
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if type(node.op) in SWAPPED:
            yield swap("op")
        case ast.Constant(value=bool()):
            yield lambda n: setattr(n, "value", not n.value)
        case ast.Constant(value=int() | float()):
            yield lambda n: setattr(n, "value", n.value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            yield lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))


def places(path: Path) -> Iterator[Place]:
    """Every change in the bodies of a module's functions, but for annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    numbers = {node: n for n, node in enumerate(ast.walk(tree))}
    holders = [(tree, "")] + [(n, f"{n.name}.") for n in tree.body if isinstance(n, ast.ClassDef)]
    for holder, prefix in holders:
        for function in (n for n in holder.body if isinstance(n, ast.FunctionDef)):
            inside = [n for statement in function.body for n in ast.walk(statement)]
            notes = [n.annotation for n in inside if isinstance(n, ast.AnnAssign | ast.arg) and n.annotation]
            # `zip(..., strict=...)` only guards what is so already.
            notes += [n.value for n in inside if isinstance(n, ast.keyword) and n.arg == "strict"]
            noted = {n for note in notes for n in ast.walk(note)}
            for node in inside:
                for change, _ in enumerate(changes(node) if node not in noted else ()):
                    yield Place(path, prefix + function.name, numbers[node], change)


def mutated(place: Place) -> tuple[CodeType, str]:
    """The code of the changed function, and what was changed where."""
    tree = ast.parse(place.path.read_text(encoding="utf-8"))
    node: Any = next(n for i, n in enumerate(ast.walk(tree)) if i == place.node)
    before = ast.unparse(node).partition("\n")[0]
    list(changes(node))[place.change](node)
    after = ast.unparse(node).partition("\n")[0]
    todo = [compile(ast.fix_missing_locations(tree), str(place.path), "exec")]
    for code in todo:
        todo += [c for c in code.co_consts if isinstance(c, CodeType)]
    # Of functions of one name (a property and its setter) the last.
    (*_, found) = [c for c in todo if c.co_qualname == place.function]
    return found, f"{place.path.relative_to(ROOT)}:{node.lineno}: {before} -> {after}"


def function_of(place: Place) -> FunctionType | None:
    """The function as it was imported, out of whatever decorators made of it."""
    holder: Any = sys.modules[place.module]
    for name in place.function.split("."):
        holder = vars(holder).get(name)
    for inner in ("fget", "func", "__func__", "__wrapped__"):
        holder = getattr(holder, inner, holder)
    return holder if isinstance(holder, FunctionType) else None


def passes(tests: list[str], function: FunctionType | None = None, code: CodeType | None = None) -> bool:
    """Whether the tests pass with this code in the function; a hang is a failure."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if function is not None and code is not None:
            function.__code__ = code
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])))
    return os.waitpid(pid, 0)[1] == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="*", choices=[*PACKAGES, []])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    os.chdir(ROOT)
    found: dict[str, list[int]] = {}
    for package in options.package or PACKAGES:
        modules, tests = (names.split() for names in PACKAGES[package])
        tests = [f"tests/{name}" for name in tests]
        for path in (ROOT / t for t in tests):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if not passes(tests):
            raise SystemExit(f"{package}: the tests fail without any change")
        every = [p for module in modules for p in places(ROOT / "advisor" / module)]
        every = [p for p in every if p.module in sys.modules and function_of(p) is not None]
        found[package] = [0, 0, len(every)]
        for place in random.Random(options.seed).sample(every, min(options.count, len(every))):
            code, told = mutated(place)
            function = function_of(place)
            if function is None or function.__code__.co_freevars != code.co_freevars:
                continue
            survived = passes(tests, function, code)
            found[package][0] += 1
            found[package][1] += not survived
            if survived:
                print(f"{package}: {told}", flush=True)
            if options.into is not None:
                known = json.loads(options.into.read_text()) if options.into.exists() else {}
                options.into.write_text(json.dumps({**known, **found}))
    if options.into is not None:
        found = json.loads(options.into.read_text())
    print("\n| package | places | tried | noticed |\n|---|---|---|---|")
    for package, (tried, noticed, all_places) in found.items():
        print(f"| {package} | {all_places} | {tried} | {noticed} ({noticed / tried:.0%}) |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
