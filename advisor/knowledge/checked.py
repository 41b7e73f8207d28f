"""How old the knowledge is: the releases of each engine in which its options were looked for, and when."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from advisor.knowledge.engine_signs import engines
from advisor.knowledge.package_data import plain
from advisor.knowledge.shapes import release


class Checked(NamedTuple):
    """`title` of an engine, the newest release of it that was read, and the day, ``2026-11-28``."""

    title: str
    release: str | None
    day: str


@cache
def checked() -> dict[str, Checked]:
    """By engine, as knowledge/verified.yaml says."""
    found = plain("knowledge", "verified.yaml")["engines"]
    return {
        name: Checked(data.title, (entry.get("releases") or [None])[-1], str(entry["read"]))
        for name, data in engines().items()
        if (entry := found.get(name)) is not None
    }


def listing() -> Iterator[str]:
    """A line on the day of the last check, and one an engine with a release."""
    all_of = checked().values()
    yield f"knowledge of {max(c.day for c in all_of)}; options checked in"
    for one in sorted(all_of, key=lambda c: c.title.casefold()):
        if one.release is not None:
            yield f"  {one.title} {one.release}, read {one.day}"


def newer_engine(name: str | None, version: str | None) -> str:
    """A sentence where the engine of a capture is newer than the release that was read; empty else, and
    where either is unknown."""
    known = checked().get(name or "")
    used, read = release(version), release(known.release) if known else None
    if known is None or used is None or read is None or used <= read:
        return ""
    return f" Options were checked up to {known.title} {known.release}; this is {version}."
