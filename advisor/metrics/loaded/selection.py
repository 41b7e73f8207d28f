"""The part of the capture that the user selects, and what it is written as: times, ranges."""

from __future__ import annotations

import re
from difflib import get_close_matches

import numpy as np
from msgspec import Struct

from advisor.errors import InputError
from advisor.metrics.loaded.host import Ranges
from advisor.model.numbers import session_time
from advisor.numerals import read_int

_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
#: Characters of a time; a number of some 300 digits is infinite.
_LONGEST = 100
_TIME = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)(s|ms|us|ns)")


class Selection(Struct, frozen=True):
    """The part of the capture that the user selected: a time window, a range, a phase."""

    window: str | None = None
    nvtx: str | None = None
    phase: str | None = None


def parse_time(text: str) -> int:
    """``1s2ms3us`` -> ns. A bare number is seconds. Raises InputError."""
    text = text.strip()
    with_unit = text + "s" if re.fullmatch(r"\d+(\.\d+)?", text) else text
    if not text or len(text) > _LONGEST or _TIME.sub("", with_unit):
        raise InputError(f"--window: '{text}' is not a time; write it like 5s, 1s2ms3us or 250ms")
    return sum(round(float(n) * _UNITS[u]) for n, u in _TIME.findall(with_unit))


def parse_window(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """``5s/7s``, ``5s/`` or ``/7s`` in session time -> ns. Raises InputError when it is empty or
    lies outside the capture."""
    if "/" not in text:
        raise InputError(f"--window: '{text}' needs a slash: START/END, START/ or /END")
    left, right = text.split("/", 1)
    lo = parse_time(left) if left.strip() else span[0]
    hi = parse_time(right) if right.strip() else span[1]
    if hi <= lo:
        raise InputError(f"--window: {text} ends before it begins")
    if hi <= span[0] or lo >= span[1]:
        raise InputError(
            f"--window: {text} lies outside the capture, which holds CUDA activity from "
            f"{session_time(span[0])} to {session_time(span[1])}"
        )
    return max(lo, span[0]), min(hi, span[1])


def nvtx_window(text: str, ranges: Ranges) -> tuple[int, int]:
    """``RANGE[@DOMAIN][/INDEX]`` -> host times of the ranges of that name: the one at INDEX
    (from 0), else from the first to the last. Raises InputError and names the nearest ranges."""
    name, _, index = text.partition("/")
    name, _, domain = name.partition("@")
    chosen = [i for i, known in enumerate(ranges.texts) if known == name]
    if not chosen:
        near = get_close_matches(name, ranges.texts, n=3, cutoff=0.4)
        hint = f"; nearest: {', '.join(near)}" if near else f"; there are: {_longest(ranges)}"
        if not len(ranges):
            hint = ": the capture holds no NVTX ranges (record with --trace=cuda,nvtx)"
        raise InputError(f"--nvtx: no range is named '{name}'{hint}")
    rows = ranges.rows(chosen)
    mine = rows["domain"] == number if (number := read_int(domain)) is not None else slice(None)
    start, end = rows["start"][mine], rows["end"][mine]
    if len(start) == 0:
        raise InputError(f"--nvtx: range '{name}' has no occurrence in domain {domain}")
    if not index:
        return int(start.min()), int(end.max())
    at = read_int(index)
    if at is None or not 0 <= at < len(start):
        raise InputError(f"--nvtx: '{name}' occurs {len(start)} times; INDEX counts from 0")
    return int(start[at]), int(end[at])


def _longest(ranges: Ranges, shown: int = 8) -> str:
    """The names of ranges that hold most of the time, to choose from."""
    rows = ranges.rows(list(range(len(ranges.texts))))
    total = np.bincount(rows["text"], rows["end"] - rows["start"], len(ranges.texts))
    names = [ranges.texts[i] for i in np.argsort(-total, kind="stable")[:shown]]
    return ", ".join(names) + (f" and {len(total) - shown} more" if len(total) > shown else "")
