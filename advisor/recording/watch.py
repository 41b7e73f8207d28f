"""Running a program under watch: its output is shown and kept, and it is stopped at limits of size, disk
and time, and by Ctrl-C; nothing of it is left running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import IO
from uuid import uuid4

from msgspec import Struct

from advisor import process
from advisor.errors import INTERRUPTED, InputError
from advisor.model.run import BY_SIGNAL
from advisor.numerals import read_float
from advisor.recording import guard

#: A disk with less than this is full: exports and reports need room, too.
SPARE_BYTES = 128 << 20
_LOOK_S, _MEASURE_S = guard.LOOK_S, 0.5
_LAST_LINES = 40
#: Most of the output that is kept.
_KEPT_BYTES = 16 << 20


class Limits(Struct, frozen=True):
    """When to stop: at bytes in the folder, after seconds, on a disk that is nearly full; and how long it may
    take to end after that."""

    bytes: int | None = None
    seconds: float | None = None
    full_disk: bool = True
    flush_s: float = 300.0


class Ended(Struct, frozen=True):
    """How a program ended: `stopped` says why it was asked to, `killed` whether it did not obey."""

    code: int
    seconds: float
    stopped: str | None
    killed: bool
    interrupted: bool
    last: tuple[str, ...]


#: Told what is happening.
Notify = Callable[[str], None]
#: Told why a program is to be run once more; whether it may be.
MayRepeat = Callable[[str], bool]


class NothingRecorded(InputError):
    """A program ended and left no recording: `code` is the exit code for that, of the program where it
    failed by itself."""

    def __init__(self, text: str, code: int | None) -> None:
        super().__init__(text)
        self.exit_code = code or 2


def code_of(ended: Ended) -> int | None:
    """The exit code of a program that left no recording: its own where it ended by itself; after Ctrl-C that
    of shells."""
    if ended.interrupted:
        return INTERRUPTED
    return ended.code if ended.stopped is None else None


class Watched:
    """One program, started with marks in its environment in a session of its own, so that Ctrl-C reaches
    it only through us; a guard ends it should this process be killed. Its files grow in `folder`, in which
    there may be others; its output goes to `log` and, where given, to `echo`."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        echo: IO[bytes] | None = None,
        input: int | None = subprocess.DEVNULL,
    ) -> None:
        self._folder, self._last = folder, deque[bytes](maxlen=_LAST_LINES)
        self._mark, self._before = uuid4().hex, size_of(folder)
        marked = {**process.environment(), **(environment or {}), guard.MARK: self._mark}
        self._log = log.open("ab")
        self._guard = _guard(self._mark)
        try:
            self._process = subprocess.Popen(
                list(words),
                stdin=input,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=marked,
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            self._dismiss()
            raise InputError(f"{words[0]}: cannot be run ({error.strerror or error})") from error
        self._send(f"{self._process.pid}\n")
        self._begun = monotonic()
        self._reader = Thread(target=self._read, args=(echo,), daemon=True)
        self._reader.start()

    def _read(self, echo: IO[bytes] | None) -> None:
        assert self._process.stdout is not None
        kept = 0
        for line in self._process.stdout:
            self._last.append(line)
            if kept < _KEPT_BYTES:
                kept += len(line)
                with suppress(OSError, ValueError):  # a full disk; what is recorded matters more
                    self._log.write(line)
                    self._log.flush()
            if echo is not None:
                with suppress(OSError, ValueError):
                    echo.write(line)
                    echo.flush()

    def wait(self, limits: Limits, notify: Notify, doing: str, skipped_s: float = 0.0) -> Ended:
        """Wait for the end, in the beginning for `skipped_s` seconds that are not recorded; ask for it
        (SIGINT, as Ctrl-C does) at a limit. A second Ctrl-C, or a program that takes longer than `flush_s`
        to obey, ends it at once."""
        stopped: str | None = None
        asked = measured = 0.0
        interrupted = killed = False
        try:
            while self._process.poll() is None:
                now = monotonic()
                try:
                    sleep(_LOOK_S)
                    if now - measured >= _MEASURE_S:
                        measured = now
                        size = max(size_of(self._folder) - self._before, 0)
                        waits = now - self._begun < skipped_s
                        now_doing = f"skipping the first {skipped_s:.0f} s" if waits else doing
                        if stopped is not None:
                            now_doing = "waiting for its end"
                        notify(f"{now_doing}, {size_text(size)}")
                        over = self._over(limits, size, now) if stopped is None else None
                        if over is not None:
                            stopped, asked = over, now
                            self._interrupt()
                    if stopped is not None and now - asked > limits.flush_s:
                        killed = True
                        break
                except KeyboardInterrupt:
                    if stopped is not None:
                        killed = interrupted = True
                        break
                    stopped, asked, interrupted = "Ctrl-C", now, True
                    self._interrupt()
            self._end()
        except BaseException:
            self._end()
            raise
        code = self._process.returncode
        # A program that a signal ended reports it as the shell does.
        code = BY_SIGNAL - code if code < 0 else code
        last = b"".join(self._last).decode("utf-8", "replace").splitlines()
        return Ended(code, monotonic() - self._begun, stopped, killed, interrupted, tuple(last))

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def end(self) -> None:
        """End it at once, with all that it started."""
        self._end()

    def last_line(self) -> str:
        """What it printed last, or its exit code."""
        printed = [line.decode("utf-8", "replace").strip() for line in self._last]
        return next((line[:160] for line in reversed(printed) if line), f"exit code {self._process.poll()}")

    def _over(self, limits: Limits, size: int, now: float) -> str | None:
        if limits.bytes is not None and size >= limits.bytes:
            return f"--at-most {size_text(limits.bytes)} reached"
        if limits.seconds is not None and now - self._begun >= limits.seconds:
            return f"{limits.seconds:.0f} s are over"
        if limits.full_disk and (free := free_bytes(self._folder)) < SPARE_BYTES:
            return f"the disk is nearly full ({size_text(free)} free)"
        return None

    def _interrupt(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def _end(self) -> None:
        """End every process of it, and collect its last output."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            begun = monotonic()
            while found := [*self._left()]:
                for pid in found:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                if monotonic() - begun > guard.GRACE_S:
                    break
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK_S)
        self._process.wait()
        self._reader.join(guard.GRACE_S)
        self._log.close()
        self._dismiss()

    def _send(self, text: str) -> None:
        assert self._guard.stdin is not None
        with suppress(OSError):  # somebody killed it
            self._guard.stdin.write(text.encode())
            self._guard.stdin.flush()

    def _dismiss(self) -> None:
        """End the guard, once."""
        assert self._guard.stdin is not None
        if not self._guard.stdin.closed:
            self._send(guard.OVER)
            with suppress(OSError):
                self._guard.stdin.close()
        self._guard.wait()

    def _left(self) -> Iterator[int]:
        """Its processes that run: those with the mark, where the system shows environments, and itself."""
        if self._process.poll() is None:
            yield self._process.pid
        yield from (pid for pid in guard.marked(self._mark) if pid != self._process.pid)


def _guard(mark: str) -> subprocess.Popen[bytes]:
    """The process that ends what has the mark if this one is killed."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def free_bytes(folder: Path) -> int:
    """What is free on the disk of a folder."""
    return shutil.disk_usage(folder).free


def size_of(folder: Path) -> int:
    """The bytes of all files below; files that vanish meanwhile count nothing."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(root, name)).st_size
    return size


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def size_text(size: float) -> str:
    """``2 GB``, ``1.5 MB``"""
    for name in ("", "K", "M", "G"):
        if size < 1000:
            return f"{size:.3g} {name}B"
        size /= 1000
    return f"{size:.3g} TB"


def parse_size(text: str, option: str) -> int:
    """``2GB``, ``500 MB``, ``1.5G`` and bare bytes, decimal as disks are sold. Raises InputError."""
    plain = text.strip().upper().removesuffix("B").strip()
    unit = plain[-1:] if plain[-1:] in _UNITS else ""
    size = (read_float(plain.removesuffix(unit), commas=False) or 0.0) * _UNITS[unit]
    if not 0 < size < float("inf"):
        raise InputError(f"{option}: '{text}' is not a size; write 500MB or 2GB")
    return int(size)
