"""Files that must be converted before they can be read: compressed captures, unpacked to a temporary
folder and within limits; and reports of Nsight Systems (.nsys-rep), which only the user's own nsys can
read.
"""

from __future__ import annotations

import errno
import gzip
import lzma
import shlex
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from advisor.errors import InputError
from advisor.reading import READING
from advisor.sources.sqlite.file import MAGIC, stated_size

#: How much of a file is read to detect its kind.
HEAD_BYTES = 4096
#: Magic of supported compressions -> what opens it.
_OPENERS: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
FAULTS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
#: Traces shrink to a 34th at most (measured on 60 of other people's); a file that unpacks to more than
#: this many times its size, and to more than memory can spare, is an attack.
_MOST_TIMES, _UNSUSPECTED_BYTES = 200, 256 << 20
#: Space left free on the disk: other programs write there too.
_SPARE_BYTES = 64 << 20
_CHUNK = 1 << 20
#: A full disk, a quota, a limit on the size of files.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def opener(head: bytes) -> Callable[[Path], BinaryIO] | None:
    """What opens a compressed file with this beginning; None for any other."""
    return next((found for magic, found in _OPENERS.items() if head.startswith(magic)), None)


def unpack(
    shown: Path, packed: BinaryIO, copy: Path, wanted: Callable[[bytes], bool] = lambda _: True
) -> bytes:
    """Writes the content to `copy`, all of it if its beginning is `wanted`; returns that beginning. Raises
    InputError if the file is damaged, or holds more than its header says, than there is room for, or than any
    capture of its size."""
    with _damage_reported(shown, copy.parent), copy.open("wb") as file:
        head = packed.read(HEAD_BYTES)
        file.write(head)
        if not wanted(head):
            return head
        most = max(_MOST_TIMES * shown.stat().st_size, _UNSUSPECTED_BYTES)
        if head.startswith(MAGIC):
            most = stated_size(head) or most
        done = len(head)
        while chunk := packed.read(_CHUNK):
            done += len(chunk)
            if done > most + _CHUNK:
                limit = f"{most >> 20:,} MB" if most >= 1 << 20 else f"{most:,} bytes"
                raise InputError(
                    f"{shown}: unpacks to more than {limit}, which its header or its size "
                    "does not allow; if it is right, unpack it yourself"
                )
            if shutil.disk_usage(copy.parent).free < _SPARE_BYTES + len(chunk):
                raise OSError(errno.ENOSPC, "no space left")
            file.write(chunk)
            READING.count += len(chunk)
    return head


@contextmanager
def _damage_reported(shown: Path, folder: Path) -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        raise InputError(
            f"{shown}: the compressed file is cut short or damaged ({error}); copy it again"
        ) from error
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise InputError(
            f"{shown}: no room to unpack it in {folder}; unpack it elsewhere, or set TMPDIR"
        ) from error


REPORT_SUFFIXES = (".nsys-rep", ".qdrep")


def export_report(report: Path, shown: Path, folder: Path) -> Path:
    """The report as an SQLite export in `folder`. Raises InputError about `shown` if nsys is absent or
    fails."""
    nsys = shutil.which("nsys")
    target = shlex.quote(shown.with_suffix(".sqlite").name)
    by_hand = f"nsys export --type=sqlite -o {target} {shlex.quote(str(shown))}"
    if nsys is None:
        raise InputError(f"{shown}: an Nsight Systems report, which only nsys can read; export it: {by_hand}")
    if report.suffix not in REPORT_SUFFIXES:  # nsys goes by the name; this may be an unpacked copy
        named = folder / "report.nsys-rep"
        named.symlink_to(report.resolve())
        report = named
    exported = folder / "report.sqlite"
    options = ["--type=sqlite", "--force-overwrite=true", f"--output={exported}"]
    command = [str(Path(nsys).absolute()), "export", *options, str(report.absolute())]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=folder, check=False)
    except OSError as error:
        raise InputError(
            f"{shown}: {nsys} cannot be run ({error.strerror or error}); elsewhere: {by_hand}"
        ) from error
    if done.returncode == 0 and exported.is_file():
        return exported
    output = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace").splitlines()
    why = output[-1].strip()[:160] if output else f"exit code {done.returncode}"
    raise InputError(
        f"{shown}: nsys could not export it ({why}); an nsys at least as new as the report can: {by_hand}"
    )
