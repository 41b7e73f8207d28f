"""Fields of a PyTorch profiler trace before its events, without reading all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError
from advisor.sources.packed import FAULTS, HEAD_BYTES, opener

if TYPE_CHECKING:
    from advisor.model.capture import Capture

#: The events begin within this many bytes: devices and process groups come before them.
_EVENTS_BYTES = 4 << 20
#: Information about the job lies within this.
_INFO_BYTES = 1 << 18
_INFO = re.compile(rb'"distributedInfo"\s*:\s*\{(.{0,400})', re.DOTALL)
_NUMBER = {name: re.compile(rb'"%s"\s*:\s*(\d+)' % name) for name in (b"rank", b"world_size")}


def is_trace(path: Path) -> bool:
    """True for a file that begins like a trace. Raises InputError for one that cannot be read."""
    try:
        return b'"traceEvents"' in _head(path, _EVENTS_BYTES)
    except (OSError, *FAULTS) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def peek(path: Path) -> Capture:
    """Rank and world size, if they come before the events."""
    found: dict[bytes, int] = {}
    try:
        hit = _INFO.search(_head(path, _INFO_BYTES))
    except (OSError, *FAULTS):
        hit = None  # reported when it is read
    if hit is not None:
        numbers = {name: pattern.search(hit[1]) for name, pattern in _NUMBER.items()}
        found = {name: int(number[1]) for name, number in numbers.items() if number}
    from advisor.model.capture import Capture

    return Capture(
        path=str(path), format="kineto-json", rank=found.get(b"rank"), world_size=found.get(b"world_size")
    )


def _head(path: Path, size: int) -> bytes:
    """The beginning of a file, unpacked if it is compressed."""
    with path.open("rb") as file:
        packed = opener(file.read(HEAD_BYTES))
    with packed(path) if packed else path.open("rb") as file:
        return file.read(size)
