"""Source mutation: do the tests of a package notice when its code is changed a little?

    python benchmarks/mutants.py [PACKAGE...] [--count N] [--seed 1] [--into FILE] [--again]

Every place (or a sample of them) in the functions of a package where a comparison, a boolean or arithmetic
operator, a number, a truth value or the condition of an `if` can be exchanged for its neighbour. First each
test runs alone, in a fork of one process that has imported everything, and says which lines of the package it
reaches. Then each change runs in such a fork the tests that reach its line, fastest first, up to the first
that fails: some hundredths of a second for most. Prints what survived, `unreached` where no test comes by,
unless `mutants.md` beside this file says why no test can notice it, and the share that was noticed. A change
is named by the source line that it is in, so that lines may move. Results are collected `--into` a file: a
later run goes on where the last one ended, or tries the survivors `--again`, whose table then shows both.

Thresholds of the rules have cases of their own, which `mutation.py` checks.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: Package -> its modules and the tests that are about them.
PACKAGES: dict[str, tuple[str, str]] = {
    "nsys": (
        "sources/nsys sources/schema.py sources/open.py sources/trace.py",
        "sources/test_nsys_*.py sources/test_calls.py sources/test_open.py sources/test_peek.py "
        "sources/test_ledger.py sources/test_read_ahead.py",
    ),
    "sqlite": (
        "sources/sqlite",
        "sources/test_sqlite_*.py sources/test_ledger.py sources/test_open.py sources/test_read_ahead.py",
    ),
    "kineto": ("sources/kineto", "sources/test_kineto*.py sources/test_ledger.py ranks/test_recognise.py"),
    "logs": ("sources/samplers sources/pasted", "sources/test_samplers.py sources/test_pasted.py"),
    "redaction": (
        "capture/redact.py capture/redact_tables.py capture/redact_text.py capture/redact_command.py "
        "capture/redact_names.py capture/redact_trace.py capture/redact_kept.py",
        "redact",
    ),
    "guards": (
        "reading.py config.py sources/packed.py comparison/baseline.py comparison/store.py",
        "test_reading.py test_faults.py fuzz cli/test_config.py "
        "sources/test_open.py sources/test_packed.py sources/test_nsys_columnar.py "
        "compare/test_baseline.py compare/test_compare.py",
    ),
    "statistics": (
        "comparison/statistics.py model/numbers.py model/arrays.py metrics/intervals.py "
        "metrics/profiled/pace.py metrics/budgeted/like.py metrics/loaded/kernels.py",
        "compare/test_statistics.py compare/test_compare.py model metrics/test_intervals.py "
        "metrics/test_kernels.py facts/test_values.py "
        "metrics/test_drift.py metrics/test_activity.py ranks/test_pace.py "
        "stats/test_tails.py stats/test_sums.py facts/test_sums.py",
    ),
    "thresholds": (
        "engine/interpret.py engine/values.py engine/reasons.py engine/states.py",
        "engine/test_kleene.py engine/test_states.py engine/test_reasons.py engine/test_scopes.py "
        "engine/test_compile.py engine/test_answered.py "
        "engine/test_sensitivity.py engine/test_text.py engine/test_conclude.py",
    ),
    "engine": ("engine", "engine"),
    "gain": ("gain", "gain"),
    "metrics": ("metrics", "metrics stats facts"),
    "layout": ("reports/layout.py reports/text.py", "reports/test_layout.py reports/test_text_blocks.py"),
}
#: Of the tests that reach a change, fastest first, those are run that take no longer together: at first, and
#: where it survived that.
ENOUGH_S, ENOUGH_AGAIN_S = 5, 30
#: Seconds and bytes beyond what any of the tests takes: a change that needs more is noticed.
LIMIT_S, LIMIT_BYTES = 60, 8 << 30
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


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
            notes += [n.returns for n in inside if isinstance(n, ast.FunctionDef) and n.returns]
            # `zip(..., strict=...)` only guards what is so already.
            notes += [n.value for n in inside if isinstance(n, ast.keyword) and n.arg == "strict"]
            noted = {n for note in notes for n in ast.walk(note)}
            for node in inside:
                for change, _ in enumerate(changes(node) if node not in noted else ()):
                    yield Place(path, prefix + function.name, numbers[node], change)


def mutated(place: Place) -> tuple[CodeType, set[int], str]:
    """The code of the changed function, the lines that were changed, and how."""
    tree = ast.parse(place.path.read_text(encoding="utf-8"))
    node: Any = next(n for i, n in enumerate(ast.walk(tree)) if i == place.node)
    changed = node.test if isinstance(node, ast.If | ast.While) else node
    before = ast.unparse(node).partition("\n")[0]
    twins = [
        n
        for n in ast.walk(tree)
        if type(n) is type(node)
        and (n.lineno, n.end_lineno) == (node.lineno, node.end_lineno)
        and n.col_offset < node.col_offset
        and ast.unparse(n).partition("\n")[0] == before
    ]
    list(changes(node))[place.change](node)
    after = ast.unparse(node).partition("\n")[0]
    todo = [compile(ast.fix_missing_locations(tree), str(place.path), "exec")]
    for code in todo:
        todo += [c for c in code.co_consts if isinstance(c, CodeType)]
    # Of functions of one name (a property and its setter) the last.
    (*_, found) = [c for c in todo if c.co_qualname == place.function]
    lines = set(range(changed.lineno, changed.end_lineno + 1))
    source = place.path.read_text(encoding="utf-8").splitlines()[node.lineno - 1].strip()
    nth = f" ({len(twins) + 1})" if twins else ""
    return found, lines, f"{place.path.relative_to(ROOT)}: {before} -> {after}{nth} in: {source}"


def explained() -> set[str]:
    """The changes that no test can notice, as `mutants.md` lists them: indented, below their file."""
    found, path = set(), ""
    for line in (ROOT / "benchmarks" / "mutants.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            path = line[3:]
        elif line.startswith("    "):
            found.add(f"{path}: {line.strip()}")
    return found


def function_of(place: Place) -> FunctionType | None:
    """The function as it was imported, out of whatever decorators made of it."""
    holder: Any = sys.modules[place.module]
    for name in place.function.split("."):
        holder = vars(holder).get(name)
    for inner in ("fget", "func", "__func__", "__wrapped__"):
        holder = getattr(holder, inner, holder)
    return holder if isinstance(holder, FunctionType) else None


def forked(work: Callable[[], Any]) -> Any:
    """What this returns in a process of its own; None when it hangs, dies or needs too much."""
    sys.stdout.flush()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_S)
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            with os.fdopen(into, "wb") as pipe:
                pickle.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(told) if told else None


def passes(
    tests: list[pytest.Item], function: FunctionType | None = None, code: CodeType | None = None
) -> bool:
    """Whether the tests pass with this code in the function, up to the first that does not."""
    if function is not None and code is not None:
        function.__code__ = code
    following = [*tests[1:], None] if tests else []
    return not any(
        report.failed
        for test, after in zip(tests, following, strict=True)
        for report in runtestprotocol(test, nextitem=after, log=False)
    )


def reached(test: pytest.Item, paths: set[str]) -> tuple[bool, float, set[tuple[str, int]]]:
    """Whether a test passes, its seconds, and which lines of these files it reaches."""
    lines: set[tuple[str, int]] = set()

    def inside(frame: FrameType, *_: object) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return inside

    start = time.process_time()
    sys.settrace(lambda frame, *_: inside if frame.f_code.co_filename in paths else None)
    try:
        passed = passes([test])
    finally:
        sys.settrace(None)
    return passed, time.process_time() - start, lines


class Results:
    """What became of each change, first and last, in a file that grows by a line a change."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.first: dict[tuple[str, str], bool] = {}
        self.last: dict[tuple[str, str], bool] = {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            self._keep(**json.loads(line))

    def _keep(self, package: str, change: str, noticed: bool) -> None:
        self.first.setdefault((package, change), noticed)
        self.last[package, change] = noticed

    def add(self, package: str, change: str, noticed: bool) -> None:
        self._keep(package, change, noticed)
        if self.path is not None:
            with self.path.open("a") as file:
                print(json.dumps({"package": package, "change": change, "noticed": noticed}), file=file)

    def keep(self, package: str, there: set[str]) -> None:
        """Forget the changes of a package that no longer can be made."""
        for known in (self.first, self.last):
            for name, change in [k for k in known if k[0] == package and k[1] not in there]:
                del known[name, change]

    def table(self) -> Iterator[str]:
        why = explained()
        yield "| package | tried | noticed first | now | explained | unexplained |\n|---|---|---|---|---|---|"
        for package in dict.fromkeys(name for name, _ in self.first):
            first, last = (
                [v for (name, _), v in known.items() if name == package] for known in (self.first, self.last)
            )
            shares = (f"{sum(v):,} ({sum(v) / len(v):.0%})" for v in (first, last))
            left = [change for (name, change), v in self.last.items() if name == package and not v]
            known = len(why & set(left))
            yield f"| {package} | {len(first):,} | {' | '.join(shares)} | {known} | {len(left) - known} |"


class Mutants:
    """A plugin of pytest: instead of the tests it runs the changes of a package."""

    def __init__(self, package: str, options: argparse.Namespace, results: Results) -> None:
        self.package, self.options, self.results = package, options, results

    def wanted(self, change: str) -> bool:
        noticed = self.results.last.get((self.package, change))
        return noticed is False if self.options.again else noticed is None

    def apart(self, work: Callable[[], Any]) -> Any:
        """`forked`, with a place of its own for the folders of tests."""
        with tempfile.TemporaryDirectory() as folder:
            self.folders._basetemp = Path(folder)
            return forked(work)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        modules = [ROOT / "advisor" / name for name in PACKAGES[self.package][0].split()]
        paths = [p for m in modules for p in ([m] if m.suffix else sorted(m.glob("**/*.py")))]
        every = [p for path in paths for p in places(path)]
        every = [p for p in every if p.module in sys.modules and function_of(p) is not None]
        count = len(every) if self.options.again else min(self.options.count or len(every), len(every))
        sample = [(p, *mutated(p)) for p in random.Random(self.options.seed).sample(every, count)]
        if self.options.again:
            self.results.keep(self.package, {change for *_, change in sample})
        todo = [(p, *rest, change) for p, *rest, change in sample if self.wanted(change)]
        if not todo:
            return True
        why = explained()
        self.folders = session.config._tmp_path_factory  # type: ignore[attr-defined]
        names = {str(p) for p in paths}
        told = [(t, *(self.apart(partial(reached, t, names)) or (False, 0.0, set()))) for t in session.items]
        told.sort(key=lambda t: t[2])
        for test in (t for t, passed, *_ in told if not passed):
            print(f"left out, as it fails without any change: {test.nodeid}", flush=True)
        enough = ENOUGH_AGAIN_S if self.options.again else ENOUGH_S
        control = [test for test, passed, took, _ in told if passed and took < 1][::10]
        for number, (place, code, lines, change) in enumerate(todo, 1):
            here = {(str(place.path), line) for line in lines}
            asked = [(test, took) for test, passed, took, seen in told if passed and seen & here]
            sums = accumulate(took for _, took in asked)
            tests = [test for (test, _), until in zip(asked, sums, strict=True) if until <= enough]
            survived = bool(self.apart(partial(passes, tests, function_of(place), code)))
            self.results.add(self.package, change, not survived)
            if survived and change not in why:
                print(f"{change}{'' if asked else '  unreached'}", flush=True)
            if number % 50 == 0 and not self.apart(partial(passes, control)):
                raise SystemExit(f"{self.package}: the tests fail without any change; discard the last 50")
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", nargs="*", choices=[*PACKAGES, []])
    parser.add_argument("--count", type=int, help="a sample of so many places; without it all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    os.chdir(ROOT)
    # What fails need not be made smaller, and the same examples come each time.
    settings.register_profile(
        "untimed", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
    )
    results = Results(options.into)
    quiet = ["-s", "-qq", "-oaddopts=", "-mnot slow"]  # in this process, and the tests of a default run
    quiet += [f"-pno:{name}" for name in ("cacheprovider", "xdist", "warnings")]
    for package in options.package or PACKAGES:
        tests = [str(p) for name in PACKAGES[package][1].split() for p in (ROOT / "tests").glob(name)]
        pytest.main([*quiet, *tests], plugins=[Mutants(package, options, results)])
    print("", *results.table(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
