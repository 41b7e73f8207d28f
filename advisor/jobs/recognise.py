"""Whether several captures are the ranks of one job, and which rank each is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from advisor.errors import InputError
from advisor.model.capture import Capture
from advisor.numerals import read_int

#: `report_rank3.sqlite`, `worker3_step_12.pt.trace.json`, `rank-003.json.gz`.
_NAMED = tuple(re.compile(rf"(?i)(?<![a-z]){word}[-_.=]?(\d+)(?!\d)") for word in ("rank", "worker"))
_DIGITS = re.compile(r"(\d+)")


class Plan(NamedTuple):
    """The captures of one job by rank: its number, None if only the order gives it. `why`: the evidence."""

    files: tuple[tuple[int | None, Path], ...]
    why: str


def rank_in_name(path: Path) -> int | None:
    """The rank in a file's name, else in its folder's."""
    for name in (path.name, path.absolute().parent.name):
        for pattern in _NAMED:
            if hits := pattern.findall(name):
                return read_int(hits[-1])
    return None


def recognise(
    paths: Sequence[Path], look: Callable[[Path], Capture], forced: bool | None = None
) -> tuple[Plan | None, str | None]:
    """The plan of a job, None for independent captures; and a hint to the user, if any. `look` reads a
    capture's metadata, if names do not give the rank; `forced`: `--ranks` (True) or `--independent`
    (False)."""
    if forced is False or len(paths) < 2:
        return None, None
    numbers = [rank_in_name(p) for p in paths]
    if distinct(numbers):
        return _plan(paths, numbers, "the ranks in their names"), None
    seen = [_metadata(p, look) for p in paths]
    both = zip(seen, numbers, strict=True)
    named = [m.rank if m is not None and m.rank is not None else n for m, n in both]
    sizes = {m.world_size for m in seen if m is not None} - {None}
    # An unreadable capture has no known rank; it must not hide the results of the others.
    readable = [n for n, m in zip(named, seen, strict=True) if n is not None or m is not None]
    if len(readable) > 1 and distinct(readable) and len(sizes) <= 1:
        return _plan(paths, named, "the ranks in their metadata"), None
    known = [n for n in named if n is not None]
    if forced:
        if (twice := next((n for n in known if known.count(n) > 1), None)) is not None:
            same = [str(p) for p, n in zip(paths, named, strict=True) if n == twice]
            raise InputError(
                f"--ranks: rank {twice} is given twice ({', '.join(same[:2])}); give the captures of one run"
            )
        return _plan(paths, named if distinct(named) else [None] * len(paths), "--ranks"), None
    size = next(iter(sizes)) if len(sizes) == 1 and all(m and m.world_size for m in seen) else 0
    if size is not None and len(paths) <= size and not known:
        return _plan(paths, named, f"the world size {size} in their metadata"), None
    if 0 < len(known) < len(paths) and distinct(known):
        hint = f"{len(known)} of {len(paths)} captures name their rank; give --ranks if they are one job"
        return None, hint
    return None, None


def _metadata(path: Path, look: Callable[[Path], Capture]) -> Capture | None:
    """None for an unreadable capture: the error appears when it is diagnosed."""
    try:
        return look(path)
    except InputError:
        return None


def distinct(numbers: Sequence[int | None]) -> bool:
    """Whether all are known and none is there twice."""
    return None not in numbers and len(set(numbers)) == len(numbers)


def _plan(paths: Sequence[Path], numbers: Sequence[int | None], why: str) -> Plan:
    def place(pair: tuple[int | None, Path]) -> tuple[bool, int, list[tuple[int, int, str]]]:
        """By rank, else by name, `r2` before `r10`."""
        rank, path = pair
        parts = [p for p in _DIGITS.split(str(path)) if p]
        return (
            rank is None,
            rank or 0,
            [(0, n, "") if (n := read_int(p)) is not None else (1, 0, p) for p in parts],
        )

    return Plan(tuple(sorted(zip(numbers, paths, strict=True), key=place)), why)
