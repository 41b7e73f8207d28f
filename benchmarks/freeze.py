"""Compares what two versions of advisor print and write, byte by byte, over captures and all verbs.

usage: python benchmarks/freeze.py BEFORE AFTER FOLDER|CAPTURE... [--only TEXT] [--every N] [--seconds N]
           [--jobs N] [--lines N]

BEFORE and AFTER are checkouts, run with this Python, or `advisor` commands, run with theirs. Of each capture
come all formats of a diagnosis and what every verb says of it, and once what needs no capture: help, rules,
plans, errors. Standard output, messages, exit codes and files have to be equal. What differs is listed, with
the first lines of each difference; the exit code is then 1. Only the folders of both versions and of the run,
and the time at which a workbook was written, are taken out. A workbook is compared part by part, and its
cells are named.

A capture takes half a minute of processor time: `--only` names captures or command lines that hold a text,
`--every` takes each Nth capture, and after `--seconds` the rest is counted and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from freeze_lines import OF_A_CAPTURE, ONCE
from openpyxl import load_workbook

SERVER = Path(__file__).with_name("freeze_server.py")
#: A command that takes longer is ended, on both sides alike.
LIMIT_S = 120
#: Files in a folder of captures that are none.
NOT_CAPTURES = (".md", ".yaml", ".yml", ".py", "LICENSE", "NOTICE")
#: What a checkout holds beside the program.
NOT_NEEDED = (".git", ".venv", "tests", "benchmarks", "__pycache__", ".*_cache")
#: What differs in two workbooks with the same content: the time of writing.
TIME_OF_WRITING = re.compile(rb"<dcterms:(created|modified)[^>]*>[^<]*")


class Side:
    """One version: a process that runs its command lines in folders below `scratch`."""

    def __init__(self, version: Path, scratch: Path) -> None:
        self.scratch = scratch
        scratch.mkdir(parents=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FORCE_", "COMP_"))}
        environment |= {"XDG_CACHE_HOME": str(scratch / "cache"), "COLUMNS": "80", "PYTHONHASHSEED": "0"}
        python = sys.executable
        if version.is_dir():
            # A copy is not edited meanwhile, and its path as long on both sides: lines are broken by length.
            self.home = scratch / "version"
            shutil.copytree(version, self.home, symlinks=True, ignore=shutil.ignore_patterns(*NOT_NEEDED))
            environment["PYTHONPATH"] = str(self.home)
        else:
            python = version.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#!").strip()
            self.home = version.parents[1]
        pipe = subprocess.PIPE
        command = [python, "-P", str(SERVER)]
        self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self._known: dict[Path, int] = {}

    def folder(self, name: str) -> Path:
        """A folder to run in."""
        made = self.scratch / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def run(self, words: Sequence[str], folder: Path) -> dict[str, bytes]:
        """What a command line gave: streams, exit code, and the files that it wrote, by name."""
        out, err = self.scratch / "out", self.scratch / "err"
        self._new(folder)
        job = {"words": words, "folder": str(folder), "out": str(out), "err": str(err), "seconds": LIMIT_S}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer
            print(json.dumps(job), file=self._server.stdin, flush=True)
        if not (code := self._server.stdout.readline().strip()):
            raise SystemExit(f"{self.home}: its process ended; does this version start?")
        given = {"exit code": code.encode(), "stdout": out.read_bytes(), "stderr": err.read_bytes()}
        given |= {str(path.relative_to(folder)): path.read_bytes() for path in self._new(folder)}
        return {name: self._plain(text, folder) for name, text in given.items()}

    def _new(self, folder: Path) -> list[Path]:
        """Files that are new or changed since the last call."""
        now = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}
        changed = [path for path, when in now.items() if self._known.get(path) != when]
        self._known.update(now)
        return sorted(changed)

    def _plain(self, text: bytes, folder: Path) -> bytes:
        for path, name in ((folder, b"FOLDER"), (self.home, b"VERSION"), (self.scratch, b"SCRATCH")):
            text = text.replace(str(path).encode(), name)
        return text

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


def differences(before: dict[str, bytes], after: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """What is not the same of two outputs, with the lines that differ."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if old is None or new is None:
            yield name, ["written " + ("before only" if new is None else "after only")]
        elif name.endswith(".xlsx"):
            if found := workbooks(old, new):
                yield name, found
        else:
            yield name, changed_lines(_lines(old), _lines(new))


def _lines(data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return [f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"]
    # A page is a few long lines: one a tag shows what differs.
    return (text.replace("><", ">\n<") if text.startswith("<!doctype") else text).splitlines()


def changed_lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Lines with `-` or `+` in front; those of long texts are paired by position."""
    if len(old) + len(new) > 20_000:
        pairs = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
        return [line for a, b in pairs for line in (f"-{a}", f"+{b}")] or ["one is longer"]
    found = difflib.unified_diff(old, new, lineterm="", n=0)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))] or ["line ends differ"]


def workbooks(old: bytes, new: bytes) -> list[str]:
    """Parts of two workbooks that differ, and the cells in them."""
    parts = []
    for data in (old, new):
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            parts.append({n: TIME_OF_WRITING.sub(b"", book.read(n)) for n in book.namelist()})
    names = sorted(n for n in {*parts[0], *parts[1]} if parts[0].get(n) != parts[1].get(n))
    return [*(f"part {n}" for n in names), *changed_lines(cells(old), cells(new))] if names else []


def cells(data: bytes) -> list[str]:
    """One line a cell that holds something: place, value, number format, link, font, fill."""
    return [
        f"{sheet.title}!{cell.coordinate}: {cell.value!r} {cell.number_format}"
        f" {cell.hyperlink and cell.hyperlink.target} {cell.font.b} {cell.font.color and cell.font.color.rgb}"
        f" {cell.fill.fgColor.rgb} {cell.comment and cell.comment.text!r}"
        for sheet in load_workbook(io.BytesIO(data)).worksheets
        for row in sheet.iter_rows()
        for cell in row
        if cell.value is not None or cell.comment is not None
    ]


def captures(given: Iterable[Path]) -> list[Path]:
    """The files, and those in folders, without what describes them."""
    found: list[Path] = []
    for path in given:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        found += [p for p in inside if not p.name.endswith(NOT_CAPTURES)]
    return found


def placed(capture: Path, folder: Path) -> str:
    """The capture in the folder, an archive unpacked; its name there."""
    if ".tar" in capture.name:
        name = capture.name.partition(".tar")[0]
        with tarfile.open(capture) as archive:
            archive.extractall(folder / name, filter="data")
        inside = list((folder / name).iterdir())
        return f"{name}/{inside[0].name}" if len(inside) == 1 else name
    (folder / capture.name).symlink_to(capture.resolve())
    return capture.name


class Bench:
    """Both versions, and what to run; each difference is printed when it is found."""

    def __init__(
        self, versions: Sequence[Path], scratch: Path, deadline: float, only: str, lines: int
    ) -> None:
        self.sides = [Side(v, scratch / name) for v, name in zip(versions, "ab", strict=True)]
        self.deadline, self.only, self.lines = deadline, only, lines
        self.done: Counter[str] = Counter()

    def compare(self, where: str, template: str, name: str = "") -> None:
        """Run one command line on both sides."""
        line = template.replace("{}", name)
        if time.monotonic() > self.deadline:
            self.done["left out"] += 1
            return
        before, after = (side.run(line.split(), side.folder(where)) for side in self.sides)
        self.done["compared"] += 1
        self.done["ended"] += int(before["exit code"]) < 0
        for what, text in differences(before, after):
            self.done["differing"] += 1
            shown = "".join(f"\n    {each[:200]}" for each in text[: self.lines])
            print(f"{where}: advisor {line}: {what}: {len(text)} lines{shown}", flush=True)

    def of_capture(self, capture: Path, number: int, options: dict[str, str]) -> None:
        """All command lines for a capture."""
        where = f"{number}/{capture.parent.name}"
        name, _ = (placed(capture, side.folder(where)) for side in self.sides)
        for template in OF_A_CAPTURE.split("\n")[1:-1]:
            if self.only in str(capture) or self.only in template:
                self.compare(where, re.sub(r"[A-Z]{5,}", lambda m: options.get(m[0], m[0]), template), name)

    def asked(self, *words: str) -> str:
        """What the version before says."""
        given = self.sides[0].run(words, self.sides[0].folder("asked"))
        return (given["stdout"] + given["stderr"]).decode()

    def options(self) -> dict[str, str]:
        """Values of options that are taken from the version before: reports and what-ifs."""
        reports = self.asked("stats", "x", "-r", "-").rpartition("expected one of ")[2].strip().split(", ")
        fixes = json.loads(self.asked("whatif", "--list", "--format", "json"))["whatifs"]
        return {
            "REPORTS": " ".join(f"-r {name}" for name in reports),
            "FIXES": " ".join(f"--fix {name}" for name in fixes),
        }

    def once(self) -> Iterator[str]:
        """Command lines that need no capture: those listed, help of all verbs, all rules, all plans."""
        yield from ONCE.split("\n")[1:-1]
        yield "--help"
        for verb in verbs(self.asked("--help")):
            yield f"{verb} --help"
            yield from (f"{verb} {each} --help" for each in verbs(self.asked(verb, "--help")))
        rules = json.loads(self.asked("rules", "list", "--format", "json"))
        for rule in rules:
            yield f"explain {rule['code']} -v"
        for rule in rules[::5]:
            yield from (f"explain {rule['cause']} --format {f}" for f in ("json", "markdown", "html"))
        known = json.loads(self.asked("capture", "--list", "--format", "json"))
        yield from (f"capture kernel-breakdown --engine {engine} -v" for engine in known["engines"])
        for goal in known["goals"]:
            yield f"capture {goal} --engine vllm"
            yield from (f"capture {goal} --where {place} -v --format json" for place in known["places"])
        yield from (f"capture --troubleshoot {symptom}" for symptom in known["symptoms"])

    def close(self) -> None:
        """End both."""
        for side in self.sides:
            side.close()


def verbs(help: str) -> list[str]:
    """The verbs that a help text lists."""
    listed = re.search(r"^(?:Verbs|Commands):\n((?:  .*\n?)+)", help, re.MULTILINE)
    return re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="checkout or `advisor` command")
    parser.add_argument("after", type=Path)
    parser.add_argument("captures", type=Path, nargs="*")
    parser.add_argument("--only", default="", help="captures or command lines that hold this")
    parser.add_argument("--every", type=int, default=1, help="each Nth capture")
    parser.add_argument("--seconds", type=float, default=3600, help="then the rest is left out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--lines", type=int, default=6, help="lines shown of a difference")
    args = parser.parse_args(words)
    deadline = time.monotonic() + args.seconds
    chosen = captures(args.captures)[:: args.every]
    versions = [args.before.absolute(), args.after.absolute()]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(args.jobs) as pool:
        benches = [
            Bench(versions, Path(name, str(i)), deadline, args.only, args.lines) for i in range(args.jobs)
        ]
        options = benches[0].options() if chosen else {}
        free = list(benches)

        def job(number: int, capture: Path) -> None:
            bench = free.pop()
            bench.of_capture(capture, number, options)
            free.append(bench)

        bench = benches[0]
        for line in bench.once():
            if args.only in line:
                bench.compare("once", line)
        list(pool.map(job, range(len(chosen)), chosen))
        for bench in benches:
            bench.close()
    done = sum((bench.done for bench in benches), Counter[str]())
    print(
        f"{done['compared']} command lines on {len(chosen)} captures: {done['differing']} outputs differ, "
        f"{done['left out']} command lines left out, {done['ended']} ended after {LIMIT_S} s"
    )
    return int(bool(done["differing"] or not done["compared"]))


if __name__ == "__main__":
    sys.exit(main())
