"""Reading files: side inputs, whole and never without a limit, and what is being read now; and temporary
folders for copies of captures, which a killed run does not leave behind for good.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import stat
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import Any

from advisor import locks, process
from advisor.errors import InputError
from advisor.numerals import read_float, read_int

#: More than any saved diagnosis, benchmark report, sampler log of a day or workbook measured.
MOST_BYTES = 64 << 20
#: The same for files written by hand; our own rules have 8 KB.
MOST_WRITTEN_BYTES = 1 << 20
#: Longer lines are no lines of a log or a table: they are left out, and counted where lines are.
LONGEST_LINE = 50_000
#: Paths of open descriptors (`/dev/stdin`, `<(command)`): a pipe there ends by itself.
_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")

#: The user's name for standard input.
STDIN = Path("-")
#: Content kept in memory by the name shown for it: standard input, several pasted tables as one.
_held: dict[Path, bytes] = {}

#: How the documents begin that advisor writes.
SAVED = re.compile(rb"\s*\{\s*\"schema_version\"\s*:")
#: How text in UTF-16 begins.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")

#: Memory is given back after this many bytes read, at most once in this many seconds.
_LARGE, _OFTEN_S = 64 << 20, 0.2


class Reading:
    """The current stage of this process, for displays of progress, the file that it read last, and the bytes
    that it has read."""

    doing = "reading"
    path: Path | None = None
    count = 0
    #: Whether memory counts for more than time: giving it back costs a fifth of a diagnosis.
    saves_memory = False
    _trimmed = 0.0

    def give_back(self) -> None:
        """Return freed memory, which the C library keeps for new arrays, to the system: now and then,
        after much was read, because each time takes some ms."""
        if self.saves_memory and self.count > _LARGE and monotonic() - self._trimmed > _OFTEN_S:
            process.give_back()
            self._trimmed = monotonic()


READING = Reading()


def hold(path: Path, data: bytes) -> None:
    """Let `path` name a file of this content, as often as it is opened."""
    _held[path] = data


def held(path: Path) -> bytes | None:
    """The content that is kept under this name."""
    return _held.get(path)


def read_bytes(path: Path, at_most: int = MOST_BYTES) -> bytes:
    """The content of a file. Raises OSError, and InputError for pipes, devices and anything larger."""
    READING.path = path
    content = held(path)
    if content is None:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or is_descriptor(path)):
            raise InputError(f"{path}: not a regular file; save it to disk first")
        with path.open("rb") as file:
            content = file.read(at_most + 1)
    if len(content) > at_most:
        raise InputError(
            f"{path}: larger than {at_most >> 20} MB, too large for what is read here; name another file"
        )
    return content


def is_descriptor(path: Path) -> bool:
    """Whether it stands for a file that is already open, such as a pipe with a writer."""
    return str(path).startswith(_DESCRIPTORS)


def read_text(path: Path, at_most: int = MOST_BYTES) -> str:
    """The same as text; raises UnicodeDecodeError for anything but UTF-8."""
    return read_bytes(path, at_most).decode("utf-8")


def decoded(data: bytes) -> str:
    """Text in UTF-8 or, as PowerShell redirects it, UTF-16; invalid bytes are replaced."""
    coding = "utf-16" if data[:2] in UTF_16 else "utf-8-sig"
    return data.decode(coding, "replace")


def leads_out(path: Path, root: Path) -> Path | None:
    """What of `path`, a file or a folder with all that is in it, lies outside of `root` once links are
    resolved; None if nothing does."""
    try:
        real = os.path.realpath(root)
        left, seen = [path], set()
        while left:
            one = left.pop()
            place = os.path.realpath(one)
            if os.path.commonpath((real, place)) != real:
                return one
            if place in seen or not os.path.isdir(place):
                continue
            seen.add(place)
            with suppress(OSError), os.scandir(place) as entries:
                inside = (
                    (Path(one, e.name), e.is_symlink(), e.is_dir(follow_symlinks=False)) for e in entries
                )
                left += [entry for entry, linked, folder in inside if linked or folder]
    except (OSError, ValueError):  # a name that no file can have
        return path
    return None


def short_lines(text: str) -> tuple[list[str], int]:
    """The lines of a text that are no longer than `LONGEST_LINE`, and how many are longer."""
    lines = text.splitlines()
    kept = [line for line in lines if len(line) <= LONGEST_LINE]
    return kept, len(lines) - len(kept)


def cut_lines(text: str) -> str:
    """The text with a note in place of each longer line, which readers of tables count as a row that they
    cannot read."""
    lines = text.splitlines()
    if all(len(line) <= LONGEST_LINE for line in lines):
        return text
    notes = (line if len(line) <= LONGEST_LINE else f"(a line of {len(line):,} characters)" for line in lines)
    return "\n".join(notes)


def similar(path: Path) -> str:
    """`; did you mean '...'?` with the nearest name of a file beside a missing one, else nothing; for a URL
    what to do with it."""
    if path.parts[:1] in (("http:",), ("https:",)):
        return "; URLs are not read: download it first (a server that runs: advisor attach URL)"
    there = sorted(path.parent.iterdir()) if path.parent.is_dir() else ()
    stems = {p.name.partition(".")[0]: p for p in there if p != path}  # it may be a link to nowhere
    near = get_close_matches(path.name.partition(".")[0], stems, 1, 0.75)
    return f"; did you mean '{stems[near[0]]}'?" if near else ""


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    """A JSON document. Raises ValueError, also if it is nested too deeply."""
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("nested too deeply") from None


#: Names in documents of advisor whose numbers are shares, lie not below 0, or are the ends of a range.
_SHARES = frozenset(
    (
        "share",
        "busy_share",
        "collectives_share",
        "marginal_share",
        "saved",
        "saves",
        "saved_in_plan",
        "was",
        "confidence",
        "serving_confidence",
        "step_confidence",
        "workload_confidence",
    )
)
_AMOUNTS = frozenset(
    (
        "ms",
        "window_ms",
        "step_ms",
        "startup_ms",
        "median_ms",
        "mean_ms",
        "p99_ms",
        "bound_ms",
        "kernel_ms",
        "step_before_ms",
        "step_after_ms",
        "bin_ns",
        "count",
        "steps",
        "ranks",
        "calls",
        "kernel_calls",
        "kernels_per_step",
        "attention",
        "matmul",
        "layers",
        "gpu_count",
        "tokens_per_s",
    )
)
_ORDERED = (
    ("low", "mid", "high"),
    ("start_ns", "end_ns"),
    ("median_ms", "p99_ms"),
    ("blocks_min", "blocks_max"),
)
_ROUNDED = 1e-6


def parse_saved(text: str | bytes) -> Any:
    """The same for a document written by advisor. Refuses numbers beyond 64 bits, whose sums overflow, shares
    beyond 0 to 1, amounts below 0 and ranges that end before they begin."""
    hooks = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), _amount)
    return parse_json(text, **hooks, object_hook=_possible)


def _amount(text: str) -> int | float:
    value = read_float(text) if set(text) & set(".eE") else read_int(text)
    if value is None or not abs(value) < 2.0**63:
        raise ValueError(f"number out of range: {text[:20]}")
    return value


def _possible(entry: dict[str, Any]) -> dict[str, Any]:
    for name, value in entry.items():
        if name in _SHARES or name in _AMOUNTS:
            most = 1 + _ROUNDED if name in _SHARES else math.inf
            if isinstance(value, int | float) and not -_ROUNDED <= value <= most:
                raise ValueError(f"impossible number: {name} is {value:g}")
    for names in _ORDERED:
        ends = [end for name in names if isinstance(end := entry.get(name), int | float)]
        if len(ends) == len(names) and ends != sorted(ends):
            raise ValueError(f"impossible range: {', '.join(map(str, ends))} are {', '.join(names)}")
    return entry


#: A name that no other program gives a lock: `.lock` occurs in environments of uv, for one.
_LOCK = ".advisor-scratch"


class Scratch:
    """A folder in the temporary folder, or in `parent`, removed when it is closed. Its process holds a lock
    on it. Folders without a lock were left by killed runs, and are removed when the next one is made beside
    them. InputError if none can be made."""

    def __init__(self, parent: Path | None = None, prefix: str = "advisor-") -> None:
        import tempfile  # most captures are read where they lie

        parent = parent or Path(tempfile.gettempdir())
        _sweep(parent, prefix)
        while True:
            try:
                self._folder = tempfile.TemporaryDirectory(
                    prefix=prefix, dir=parent, ignore_cleanup_errors=True
                )
            except OSError as error:  # which names the folder that could not be made
                raise InputError(f"cannot write in {parent}: {error.strerror}") from error
            self.path = Path(self._folder.name)
            self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            with suppress(OSError):  # without locks nothing is swept
                locks.take(self._lock)
            if (self.path / _LOCK).exists():  # else another run swept it before it was locked
                break
            os.close(self._lock)

    def close(self) -> None:
        self._folder.cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the folders of dead runs of this user."""
    if not hasattr(os, "getuid"):
        return
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                if locks.take(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
