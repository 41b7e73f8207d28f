"""Damaged inputs, thousands of them: is every answer a report or one clear line?

usage: python benchmarks/fuzz.py [--count N] [--kind KIND] [--seed N] [--save DIR] [--into FILE]
       python benchmarks/fuzz.py --replay FILE...

Each input is made by mutating a small valid one: cells of an nsys export by SQL, its bytes and those
of its packed and columnar forms, events of a PyTorch trace, lines and numbers of logs of samplers and
servers, of metrics and of printed tables, saved diagnoses, benchmark reports, rules, settings, reviews
and options of the command line. A process of its own runs each, with 10 s of processor time and 1 GB
beyond what the interpreter has. A failure is an internal error or traceback, another exit code than 0,
1 and 2, silence about an error, a hang, more memory, a changed input, a file left behind, or a fact that
cannot be (`fuzz_values.py`) of a capture that is not called damaged. Prints a table by kind, with that of
earlier runs where they are collected `--into` a file; `--save` keeps the inputs that failed, and
`--replay` runs saved ones (tests/fuzz/ holds those of the past).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fuzz_inputs import KINDS, VERBS, Case, make_seeds, quietly, write
from benchmarks.fuzz_mutations import apply_sql
from benchmarks.fuzz_values import called_damaged, impossible

LIMIT_S = 10
LIMIT_BYTES = 1 << 30


# ------------------------------------------------------------------ one run


def judged(code: int, out: str, err: str) -> str:
    """What is wrong with an answer; nothing where all is well."""
    if "Traceback" in err or "internal error" in err:
        return "internal error: " + err.strip().splitlines()[-1][:160]
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and not err.strip() and not out.strip():
        return "no word on what is wrong"
    if any(c in err for c in "\x1b\u202e"):
        return "control characters in a message"
    return ""


def believed(capture: str | None, folder: Path) -> str:
    """What cannot be among the facts of a capture, unless a report of it says first that it is damaged."""
    if capture is None:
        return ""
    code, out, _ = quietly(["facts", capture, "--format", "json"], folder)
    if code or not (found := impossible(json.loads(out))):
        return ""
    told = quietly([capture, "--format", "json"], folder)[1]
    return "" if called_damaged(json.loads(told)) else f"believed: {', '.join(found[:4])}"


def run_case(case: Case, folder: Path, temporary: Path) -> tuple[str, int]:
    """Runs a case in a process of its own; returns what went wrong, and the bytes that it took."""
    # What is kept of reviews is written by those that follow.
    before = {p: _state(p) for p in folder.rglob("*") if p.is_file() and "kept" not in p.parts}
    told = folder.parent / "told.json"
    told.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        tempfile.tempdir = str(temporary)
        signal.alarm(60 * LIMIT_S)  # of the clock on the wall: other programs run here, too
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
        started = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (started + 3 * LIMIT_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            wrong = judged(*quietly(case.args, folder)) or believed(case.capture, folder)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss) << 10
            if not wrong and grown > LIMIT_BYTES:
                wrong = f"{grown >> 20} MB"
        except BaseException as error:
            wrong = f"traceback: {type(error).__name__}: {error}"[:200]
            grown = 0
        told.write_text(json.dumps((wrong, grown)))
        sys.stdout.flush()
        os._exit(0)
    try:
        _, status = os.waitpid(pid, 0)
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hung = number in (signal.SIGALRM, signal.SIGXCPU)
        return "hang" if hung else f"killed by {signal.Signals(number).name}", 0
    wrong, grown = json.loads(told.read_text())
    if not wrong and (changed := [p.name for p, d in before.items() if not p.exists() or _state(p) != d]):
        wrong = f"changed: {changed}"
    left = [p.name for p in temporary.iterdir()] + [p.name for p in folder.iterdir() if p.name[:1] == "."]
    return wrong or (f"left behind: {left}" if left else ""), grown


def _state(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def replay(lines: Iterable[str], seeds: Path) -> list[str]:
    """Runs saved cases: lines of JSON with `args`, and `sql` (statements upon good.sqlite) or `files`
    (name: text). Returns what went wrong."""
    failures = []
    for line in filter(None, map(str.strip, lines)):
        entry = json.loads(line)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for seed in seeds.iterdir():
                (folder / seed.name).symlink_to(seed)
            if "sql" in entry:
                shutil.copyfile(seeds / "good.sqlite", folder / "t.sqlite")
                apply_sql(folder / "t.sqlite", entry["sql"])
            for file, text in entry.get("files", {}).items():
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).unlink(missing_ok=True)
                write(folder / file, text)
            if wrong := judged(*quietly(entry["args"], folder)):
                failures.append(f"{line[:200]}: {wrong}")
    return failures


@dataclass
class Tally:
    """What came of the inputs of one kind."""

    inputs: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0
    grown_bytes: int = 0

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.failures += other.failures
        self.cpu_s, self.grown_bytes = max(self.cpu_s, other.cpu_s), max(self.grown_bytes, other.grown_bytes)


def fuzz(count: int, seed: int, kinds: list[str], save: Path | None) -> dict[str, Tally]:
    """Runs `count` cases, or until Ctrl-C or SIGTERM; what came of them by kind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    done: dict[str, Tally] = defaultdict(Tally)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name, suppress(KeyboardInterrupt):
        seeds, temporary = Path(name, "seeds"), Path(name, "tmp")
        seeds.mkdir()
        temporary.mkdir()
        make_seeds(seeds)
        for verb in dict.fromkeys(VERBS):  # what is imported and cached now need not be in each process
            quietly(
                verb.format("good.sqlite").split(),
                shutil.copytree(seeds, Path(name, "warm"), dirs_exist_ok=True),
            )
        gc.freeze()
        weights = [KINDS[k][0] for k in kinds]
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            folder = Path(name, "run")
            shutil.copytree(seeds, folder, copy_function=os.link)
            case = KINDS[rng.choices(kinds, weights)[0]][1](folder, rng)
            start = _cpu_s()
            wrong, grown = run_case(case, folder, temporary)
            done[case.kind].add(Tally(1, Counter([wrong] if wrong else []), _cpu_s() - start, grown))
            if wrong:
                print(f"{seed}/{number} {' '.join(case.args)}: {wrong}", flush=True)
                if save is not None:
                    shutil.copytree(folder, save / f"{seed}-{number}", dirs_exist_ok=True)
                    (save / f"{seed}-{number}" / "args.json").write_text(json.dumps(case.args))
            shutil.rmtree(folder)
            for left in temporary.iterdir():
                shutil.rmtree(left, ignore_errors=True)
                left.unlink(missing_ok=True) if left.is_file() else None
    return done


def _cpu_s() -> float:
    """Processor time of all cases so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(done: Mapping[str, Tally]) -> str:
    """Markdown: a line for each kind and one for all."""
    every = Tally()
    for tally in done.values():
        every.add(tally)
    lines = ["| kind | inputs | failed | most processor time | most memory added |", "|---|---|---|---|---|"]
    lines += [
        f"| {kind} | {t.inputs:,} | {t.failures.total()} | {t.cpu_s:.1f} s | {t.grown_bytes >> 20} MB |"
        for kind, t in (*sorted(done.items()), ("**all**", every))
    ]
    return "\n".join(lines)


def collect(path: Path, done: Mapping[str, Tally]) -> dict[str, Tally]:
    """The results of a file of earlier runs, with these added to it."""
    known = json.loads(path.read_text()) if path.exists() else {}
    every = {k: Tally(**{**v, "failures": Counter(v["failures"])}) for k, v in known.items()}
    for kind, tally in done.items():
        every.setdefault(kind, Tally()).add(tally)
    path.write_text(json.dumps({k: vars(t) for k, t in every.items()}))
    return every


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--save", type=Path)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--replay", type=Path, nargs="+")
    options = parser.parse_args()
    if options.replay:
        with tempfile.TemporaryDirectory() as name:
            make_seeds(Path(name))
            failures = replay((n for p in options.replay for n in p.read_text().splitlines()), Path(name))
        print("\n".join(failures) or "all is well")
        return bool(failures)
    done: Mapping[str, Tally] = fuzz(options.count, options.seed, options.kind or list(KINDS), options.save)
    failed = any(t.failures for t in done.values())
    print(table(collect(options.into, done) if options.into else done))
    return failed


if __name__ == "__main__":
    sys.exit(main())
