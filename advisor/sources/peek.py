"""The metadata of a capture, without reading or exporting all of it only to learn its rank."""

from __future__ import annotations

import re
from pathlib import Path

from advisor.model.capture import Capture
from advisor.sources.open import is_profiler_json, needs_export, open_trace
from advisor.sources.packed import FAULTS, HEAD_BYTES, opener

#: Kineto writes what it knows of the job before the events.
_HEAD_BYTES = 1 << 18
_INFO = re.compile(rb'"distributedInfo"\s*:\s*\{(.{0,400})', re.DOTALL)
_NUMBER = {name: re.compile(rb'"%s"\s*:\s*(\d+)' % name) for name in (b"rank", b"world_size")}


def peek(path: Path) -> Capture:
    """What the capture says of itself. Of a PyTorch profiler trace only rank and world size, where
    they stand before the events; of a report that nsys has yet to export nothing.

    Raises InputError for anything but a capture.
    """
    if needs_export(path.name.lower()):
        return Capture(path=str(path), format="nsys-rep")
    if path.is_file() and is_profiler_json(path):
        return _kineto(path)
    with open_trace(path) as trace:
        return trace.capture


def _kineto(path: Path) -> Capture:
    found: dict[bytes, int] = {}
    try:
        hit = _INFO.search(_head(path))
    except (OSError, *FAULTS):
        hit = None  # told when it is read
    if hit is not None:
        numbers = {name: pattern.search(hit[1]) for name, pattern in _NUMBER.items()}
        found = {name: int(number[1]) for name, number in numbers.items() if number}
    return Capture(
        path=str(path), format="kineto-json", rank=found.get(b"rank"), world_size=found.get(b"world_size")
    )


def _head(path: Path) -> bytes:
    """The beginning of a file, unpacked where it is compressed."""
    with path.open("rb") as file:
        packed = opener(file.read(HEAD_BYTES))
    with packed(path) if packed else path.open("rb") as file:
        return file.read(_HEAD_BYTES)
