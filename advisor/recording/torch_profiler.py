"""Recording a Python program with the profiler of PyTorch, by the launcher in its own Python."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from msgspec import Struct

from advisor.model.run import ending
from advisor.recording import launcher
from advisor.recording.record import LOG, Recorded
from advisor.recording.watch import (
    Ended,
    Limits,
    MayRepeat,
    NothingRecorded,
    Notify,
    Watched,
    code_of,
    size_of,
)

TRACE = "trace.json"
_WANTED, _RESULT = "wanted.json", "steps.json"
_PYTHON = re.compile(r"(?:pythonw?|pypy)[\d.]*(?:\.exe)?")
#: Options of Python that take a value as a word of its own.
_WITH_VALUE = ("-W", "-X")


class Program(NamedTuple):
    """A Python command line: the interpreter with its options, what is run (script, module or code), and its
    arguments."""

    python: tuple[str, ...]
    kind: str
    target: str
    arguments: tuple[str, ...]


def parse(command: Sequence[str]) -> Program | None:
    """The parts of a command line, None unless it is `python` with a script, a module or code."""
    if not command or not _PYTHON.fullmatch(Path(command[0]).name):
        return None
    at = 1
    while at < len(command) and command[at].startswith("-") and command[at] not in ("-m", "-c", "-"):
        at += 2 if command[at] in _WITH_VALUE else 1
    python, rest = tuple(command[:at]), tuple(command[at:])
    kind = {"-m": "module", "-c": "code"}.get(rest[0], "script") if rest else ""
    target = rest[1:] if kind in ("module", "code") else rest
    if not target or target[0] == "-":
        return None
    return Program(python, kind, target[0], target[1:])


class Torch(Struct, frozen=True):
    """How to profile: `of` names the function whose calls are steps (None: found by itself), `steps` how
    many; `until_end`: the program runs on afterwards."""

    program: Program
    of: str | None = None
    steps: int = 20
    stacks: bool = False
    memory: bool = False
    until_end: bool = False

    def record(
        self, limits: Limits, folder: Path, notify: Notify, echo: IO[bytes] | None, may_repeat: MayRepeat
    ) -> Recorded:
        """Record into `folder`; once more with fewer steps where the program makes few and `may_repeat`
        allows it. Raises NothingRecorded."""
        folder = folder.absolute()
        wanted: dict[str, Any] = {"steps": self.steps, "stacks": self.stacks, "memory": self.memory}
        notes: list[str] = []
        while True:
            ended, found = self._run(wanted, limits, folder, notify, echo)
            count = int(found.get("steps") or 0)
            alone = int(found.get("threads") or 0) <= 1 and not found.get("error")
            again = not notes and count > 0 and alone and ended.stopped is None and ended.code == 0
            if found.get("trace") or not again:
                break
            if not may_repeat(f"it makes {count} steps, fewer than were to be recorded"):
                raise NothingRecorded(
                    f"the program makes {count} steps, fewer than were to be recorded; record fewer: "
                    f"--steps {fewer(count)['steps']}",
                    None,
                )
            wanted |= fewer(count)
            notes.append(
                f"the program makes {count} steps: recorded again, {wanted['steps']} of them profiled"
            )
        if ended.killed:
            notes.append("the program did not end by itself and was killed")
        if not found.get("trace"):
            raise NothingRecorded(_nothing(ended, found), _code(ended, found))
        if found.get("by"):
            notes.append(f"steps are {found['by']}")
        return Recorded(
            options=tuple(f"{key}={value}" for key, value in wanted.items()),
            captures=(folder / TRACE,),
            code=None if ended.stopped is not None or found.get("over") else ended.code,
            stopped=ended.stopped,
            interrupted=ended.interrupted,
            seconds=ended.seconds,
            size=size_of(folder),
            last=ended.last,
            notes=tuple(notes),
            versions={"torch": str(found.get("torch"))},
            unprofiled_ms=found.get("unprofiled_ms"),
        )

    def _run(
        self, wanted: dict[str, Any], limits: Limits, folder: Path, notify: Notify, echo: IO[bytes] | None
    ) -> tuple[Ended, dict[str, Any]]:
        result = folder / _RESULT
        settings = {
            "steps": wanted,
            "of": self.of,
            "until_end": self.until_end,
            "trace": str(folder / TRACE),
            "result": str(result),
        }
        (folder / _WANTED).write_text(json.dumps(settings), encoding="utf-8")
        p = self.program
        words = [*p.python, launcher.__file__, str(folder / _WANTED), p.kind, p.target, *p.arguments]
        result.unlink(missing_ok=True)
        ended = Watched(words, folder, folder / LOG, None, echo, None).wait(limits, notify, "recording")
        try:
            found = json.loads(result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        return ended, found if isinstance(found, dict) else {}


def fewer(count: int) -> dict[str, int]:
    """How to divide `count` steps: a quarter warm, a quarter timed, the rest profiled."""
    part, settling = count // 4, int(count >= 4)
    return {"warm": part, "timed": part, "settling": settling, "steps": count - 2 * part - settling}


def _code(ended: Ended, found: dict[str, Any]) -> int | None:
    """The exit code where there is no trace: that of the program, unless the launcher made it."""
    code = code_of(ended)
    return None if found.get("over") or code in (launcher.NO_TORCH, launcher.NO_STEPS) else code


def _nothing(ended: Ended, found: dict[str, Any]) -> str:
    """Why there is no trace."""
    last = next((line.strip() for line in reversed(ended.last) if line.strip()), "")[:160]
    if ended.code == launcher.NO_TORCH:
        return f"the profiler of PyTorch records where torch is installed; this Python has none ({last})"
    if ended.code == launcher.NO_STEPS:
        return last
    if ended.stopped is not None:
        return f"stopped before anything was recorded ({ended.stopped})"
    if ended.code:
        printed = f": {last}" if last else ""
        return f"the program ended ({ending(ended.code)}) before anything was recorded{printed}"
    if error := found.get("error"):
        return f"the profiler of PyTorch failed: {error}"
    threads, children = int(found.get("threads") or 0), int(found.get("children") or 0)
    if not found.get("steps") and children:
        return (
            f"no module of torch was called in this process, which started others ({children}) that are not "
            "recorded: use --recorder nsys, advisor attach for a server, or --recorder torch in each rank"
        )
    if not found.get("steps"):
        return (
            "no steps were found: no optimizer and no module of torch was called; name the function whose "
            "calls are steps: --steps-of module:function"
        )
    if threads > 1:
        return (
            f"modules of torch were called in {threads} threads, in none often enough to be recorded (one "
            "thread is); use --recorder nsys, or advisor attach for a server"
        )
    return f"the profiler wrote no trace: {last or 'the program printed nothing'}"
