"""Files that are not read: packed by other packers, or written by other tools."""

from __future__ import annotations

from typing import NoReturn

from advisor.errors import InputError
from advisor.sources.found import Found
from advisor.sources.pasted.other_tools import other_file

#: Magic of packers that are not unpacked here -> (name, command that does).
OTHER_PACKERS = {
    b"(\xb5/\xfd": ("zstd", "zstd -d"),
    b"BZh": ("bzip2", "bunzip2 -k"),
    b"PK\x03\x04": ("zip", "unzip"),
    b"7z\xbc\xaf": ("7z", "7z x"),
}


def refuse_packed(found: Found) -> NoReturn:
    name, command = next(p for magic, p in OTHER_PACKERS.items() if found.head.startswith(magic))
    way_out = f"unpack it first: {command} {found.shown} (or use xz)"
    raise InputError(f"{found.shown}: compressed with {name}; {way_out}")


def is_other(found: Found) -> bool:
    return other_file(found.name, found.head) is not None


def refuse_other(found: Found) -> NoReturn:
    what, way_out = other_file(found.name, found.head) or ("a file of another tool", "give a capture")
    raise InputError(f"{found.shown}: {what}; {way_out}")
