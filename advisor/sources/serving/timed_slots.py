"""A log of llama.cpp whose lines have times, as they have since 2026 -> its load over time, from when each
slot took a request and gave it back: requests that run, and tokens a second, in stretches of equal length."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from advisor.model.arrays import Array
from advisor.numerals import read_float, read_int
from advisor.sources.schema import LOAD_DECODE

Row = dict[str, float]

#: Minutes, seconds, milliseconds and microseconds since the start: `0.37.171.661 I slot launch_slot_: ...`.
_TIME = re.compile(r"^(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")
_SLOT = re.compile(r"\bslot\s+(\w+): id\s+(\d{1,9}) \| task -?\d{1,12} \| *(.*)")
_DONE = re.compile(r"^(prompt eval|eval) time =\s*(\d+(?:\.\d+)?) ms /\s*(\d+) tokens")
_EACH = re.compile(r"\(\s*(\d+(?:\.\d+)?) ms per token")
#: Stretches that a log is divided into, at most, and the shortest one, in seconds.
_STRETCHES = 60
_SHORTEST_S = 1.0


class Request(NamedTuple):
    """When it was `taken`, gave its `first` token and its slot back, in seconds since the server began;
    tokens of its prompt and answer, and the time of one more of them."""

    taken: float
    first: float
    given_back: float
    prompt: float
    output: float
    token_ms: float | None


class _Slot(Struct):
    taken: float
    values: dict[str, tuple[float, float, float | None]] = field(default_factory=dict)


class TimedSlots(Struct):
    """Reads lines in their order."""

    slots: dict[str, _Slot] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take a line."""
        time, hit = _TIME.match(line), _SLOT.search(line) if "slot" in line else None
        if time is None or hit is None:
            return
        minutes, *parts = (read_int(text) or 0 for text in time.groups())
        now = minutes * 60 + parts[0] + parts[1] / 1e3 + parts[2] / 1e6
        what, slot, text = hit.groups()
        if what.startswith("launch_slot"):
            self.slots[slot] = _Slot(now)
        elif slot not in self.slots:
            return
        elif what == "print_timing" and (done := _DONE.match(text)):
            ms, count, each = read_float(done[2]), read_float(done[3]), _EACH.search(text)
            if ms is not None and count is not None:
                self.slots[slot].values[done[1]] = ms / 1e3, count, read_float(each[1]) if each else None
        elif what == "release":
            self._give_back(self.slots.pop(slot), now)

    def _give_back(self, slot: _Slot, now: float) -> None:
        if "eval" not in slot.values or now <= slot.taken:
            return
        lasted, output, token_ms = slot.values["eval"]
        _, prompt, _ = slot.values.get("prompt eval", (0.0, 0.0, None))
        first = max(now - lasted, slot.taken)
        self.requests.append(Request(slot.taken, first, now, prompt, output, token_ms))

    def settings(self) -> dict[str, float]:
        """What is no row, by our names."""
        read = [r.first - r.taken for r in self.requests]
        return {"prompt_ms": 1e3 * sum(read) / len(read)} if read else {}

    def rows(self) -> list[Row]:
        """One row a stretch, from the first request to the last; none without requests."""
        return list(_rows(self.requests)) if self.requests else []


def _rows(requests: Sequence[Request]) -> Iterator[Row]:
    taken, first, given_back, prompt, output, token_ms = np.array(
        [[np.nan if v is None else v for v in r] for r in requests]
    ).T
    begin, end = float(taken.min()), float(given_back.max())
    number = max(min(_STRETCHES, int((end - begin) / _SHORTEST_S)), 1)
    length = (end - begin) / number
    stretch = np.minimum(((given_back - begin) / length).astype(int), number - 1)
    for i in range(number):
        lo, hi = begin + i * length, begin + (i + 1) * length
        row: Row = {
            "kind": float(LOAD_DECODE),
            "time_s": i * length,
            "stretch_s": length,
            "running": float(_overlap(taken, given_back, lo, hi).sum() / length),
            "prompt_per_s": float((prompt * _part(taken, first, lo, hi)).sum() / length),
            "output_per_s": float((output * _part(first, given_back, lo, hi)).sum() / length),
        }
        ended = (stretch == i) & (token_ms > 0) & (output > 0)
        if ended.any():
            row["token_ms"] = float(np.average(token_ms[ended], weights=output[ended]))
            row["token_count"] = float(output[ended].sum())
        yield row


def _overlap(begin: Array, end: Array, lo: float, hi: float) -> Array:
    return np.asarray(np.maximum(np.minimum(end, hi) - np.maximum(begin, lo), 0.0))


def _part(begin: Array, end: Array, lo: float, hi: float) -> Array:
    """How much of each stretch of time lies between two times; all of one without length that lies there."""
    length = end - begin
    inside = _overlap(begin, end, lo, hi) / np.where(length > 0, length, 1.0)
    return np.asarray(np.where(length > 0, inside, (begin >= lo) & (begin < hi)))
