"""The traces that a server writes when its profiler stops: found, waited for until whole, and kept."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from advisor.errors import InputError
from advisor.numerals import read_int
from advisor.recording.server import Engine, Pace
from advisor.recording.watch import Notify, size_text

#: Below the folder of a run, for a server on this machine that takes a folder to write to.
TRACES = "traces"
#: Traces of the process that answers requests: no GPU works for it.
_FRONTEND = "async_llm"
_TRACE = re.compile(r"\.json(?:\.gz)?$")
_OWN_RANK = re.compile(r"-TP-(\d+)")
_RANK = re.compile(r"rank\d+")
_CHUNK = 1 << 20
#: The time in the name of a trace: seconds, or thousandths, millionths, billionths of one.
_TIME = re.compile(r"(?<!\d)(1\d{9}(?:\d{3}){0,3})(?!\d)")
#: Times within a trace: what all are relative to (ns), and that of an event (us).
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d{1,19})\b')
_EVENT = re.compile(rb'"ts":\s*(\d{1,17}(?:\.\d{1,6})?)\b')
#: Below, a time counts from the start of a machine or a program.
_A_DATE = 1e9
#: Clocks of two machines, and the whole seconds in which a server says what its clock shows.
_SKEW_S = 2.0

#: Size and time of a file.
Stamp = tuple[int, int]


class Files:
    """The traces of processes with a GPU in a folder, and which of them are new: written since the beginning,
    and not of a profile that was over before `since`, in seconds of the server's clock."""

    def __init__(self, folder: Path, since: float = 0.0) -> None:
        self.folder, self._since = folder, since
        self._ends: dict[tuple[Path, Stamp], float | None] = {}
        self._before: dict[Path, Stamp] = {}
        self._before = self.new()

    def new(self) -> dict[Path, Stamp]:
        """Those that were not there in the beginning, or have changed, without older ones."""
        return {path: stamp for path, stamp in self._changed().items() if not self._is_older(path, stamp)}

    def older(self) -> list[str]:
        """Names of those that were written meanwhile and are of an earlier profile."""
        found = self._changed().items()
        return sorted(path.name for path, stamp in found if self._is_older(path, stamp))

    def _is_older(self, path: Path, stamp: Stamp) -> bool:
        if (path, stamp) not in self._ends:
            self._ends[path, stamp] = written_at(path)
        end = self._ends[path, stamp]
        return end is not None and end < self._since - _SKEW_S

    def _changed(self) -> dict[Path, Stamp]:
        found = {}
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                if _TRACE.search(entry.name) and _FRONTEND not in entry.name:
                    with suppress(OSError):
                        known = entry.stat()
                        found[Path(entry.path)] = (known.st_size, known.st_mtime_ns)
        return {path: stamp for path, stamp in found.items() if self._before.get(path) != stamp}


def collected(
    files: Files, engine: Engine, pace: Pace, flush_s: float, notify: Notify
) -> tuple[list[Path], list[str], bool]:
    """The traces that were written, once they are whole; notes on those that are not or are missing after
    `flush_s`, and whether Ctrl-C ended the waiting."""
    begun = monotonic()
    try:
        _wait(files, engine, pace, flush_s, notify)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    new = files.new()
    whole = [path for path in new if _is_whole(path)]
    notes = []
    if torn := sorted(path.name for path in new.keys() - {*whole}):
        notes.append(f"left out, since the server had not finished writing: {', '.join(torn)}")
    if old := files.older():
        notes.append(f"left out, since it is of an earlier profile: {', '.join(old)}")
    if engine.ranks and whole and len(whole) < engine.ranks:
        notes.append(
            f"{len(whole)} of {engine.ranks} ranks wrote a trace into {files.folder} in "
            f"{monotonic() - begun:.0f} s; other machines write into folders of their own: the diagnosis is "
            "without them"
        )
    return whole, notes, interrupted


def _wait(files: Files, engine: Engine, pace: Pace, flush_s: float, notify: Notify) -> None:
    """Until the files of all ranks are whole and grow no more."""
    begun = still = monotonic()
    last: dict[Path, Stamp] = {}
    expected = f" of {engine.ranks}" if engine.ranks else ""
    while monotonic() - begun < flush_s:
        if (new := files.new()) != last:
            last, still = new, monotonic()
        quiet = bool(new) and monotonic() - still >= pace.quiet
        if quiet and len(new) >= (engine.ranks or 1) and all(map(_is_whole, new)):
            return
        size = size_text(sum(size for size, _ in new.values()))
        notify(f"waiting for traces, {len(new)}{expected} there, {size}")
        sleep(min(pace.look, pace.quiet))


def written_at(path: Path) -> float | None:
    """When the profile of a trace was over, in seconds since 1970: as its name says, else its last events, if
    they have the time of the day; None if neither says so."""
    if name := _TIME.search(path.name):
        digits = name[1]
        return float(digits) / float(10 ** (len(digits) - 10))
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin = end = file.read(_CHUNK)
            while chunk := file.read(_CHUNK):
                end = (end + chunk)[-_CHUNK:]
    except (OSError, EOFError, zlib.error):
        return None
    base = _BASE.search(begin)
    last = max((float(hit) for hit in _EVENT.findall(end)), default=0.0) / 1e6
    found = last + (int(base[1]) / 1e9 if base else 0.0)
    return found if found >= _A_DATE else None


def _is_whole(path: Path) -> bool:
    """Whether a trace has its end: the brace of JSON, packed or not. Raises InputError for one of another
    user, which cannot be read."""
    end = b""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if path.suffix != ".gz":
                file.seek(max(path.stat().st_size - _CHUNK, 0))
            while chunk := file.read(_CHUNK):
                end = (end + chunk)[-64:]
    except PermissionError:
        raise InputError(f"{path}: is not readable for this user; the server runs as another one") from None
    except (OSError, EOFError, zlib.error):
        return False
    return end.rstrip().endswith((b"}", b"]"))


def kept(path: Path, found: Sequence[Path], folder: Path) -> Path:
    """The trace in the folder of the run, under a name that says its rank where the server's own does so in
    its way; a link where that is possible, so that nothing is there twice."""
    ranks = {p: read_int(hit[1]) for p in found if (hit := _OWN_RANK.search(p.name))}
    name = path.name
    if len({*ranks.values()}) == len(found) > 1 and not _RANK.search(name):
        name = f"rank{ranks[path]}_{name}"
    target = folder / name
    try:
        os.link(path, target)
    except OSError:  # another file system
        try:
            shutil.copyfile(path, target)
        except OSError as error:
            raise InputError(
                f"{target}: cannot be written ({error.strerror}); the traces are in {path.parent}"
            ) from error
    if path.parent == folder / TRACES:
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()
    return target
