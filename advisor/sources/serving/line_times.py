"""When the lines of a server's log were written, and which of them lie in the time of samples of its GPU."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from advisor.model.arrays import Array
from advisor.numerals import read_float, read_int

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME_OF_DAY = re.compile(
    r"(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,](\d{1,9}))?(?!\d)(?!:\d)(Z|[+-]\d\d:?\d\d)?"
)
#: What stands before a time of day: `2025-11-28T`, `2025/11/28 - ` (Gin), `11/28/2025-` (TensorRT-LLM),
#: `11-28 ` (vLLM), `Nov 28 ` (journald).
_DATES = (
    re.compile(r"(?<!\d)(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)(?:T| - | )$"),
    re.compile(r"(?<!\d)(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4})[- ]$"),
    re.compile(r"(?<![\d-])(?P<month>\d\d)-(?P<day>\d\d) $"),
    re.compile(r"(?<![A-Za-z])(?P<name>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) $"),
)
_DATE_LENGTH = 16
_DAY = 24 * 3600.0
#: Without a date, a time of day that falls by this much is of the day after.
_HALF_A_DAY = _DAY / 2
#: Time zones are a multiple of this from UTC, up to so many hours.
_ZONE_STEP_S, _MOST_ZONE_S = 900, 14 * 3600
#: A line of the load tells of the time since the one before: engines log every 10 s or more often.
_PACE_S = 10.0


class Moment(NamedTuple):
    """A day, of which the `year` may be unknown, and seconds since its midnight; `zoned` if in UTC."""

    year: int | None
    month: int
    day: int
    second: float
    zoned: bool

    def __str__(self) -> str:
        minutes, hours = divmod(int(self.second) // 60, 60)[::-1]
        year = "" if self.year is None else f"{self.year}-"
        return f"{year}{self.month:02d}-{self.day:02d} {hours:02d}:{minutes:02d}"

    def near(self, other_ns: int) -> int | None:
        """Nanoseconds since 1970, as if in UTC; without a year in the one that is nearest to `other_ns`. None
        for a day that does not exist."""
        about = datetime.fromtimestamp(other_ns // 10**9, UTC).year
        found: list[int] = []
        for year in (about - 1, about, about + 1) if self.year is None else (self.year,):
            try:
                days = date(year, self.month, self.day).toordinal() - date(1970, 1, 1).toordinal()
            except ValueError:  # 29 February
                continue
            found.append(int((days * _DAY + self.second) * 1e9))
        return min(found, key=lambda ns: abs(ns - other_ns), default=None)


def moment_of(ms: int) -> Moment | None:
    """The moment so many milliseconds after 1970, UTC; None for one that no calendar has."""
    try:
        at = datetime.fromtimestamp(ms / 1e3, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    second = at.hour * 3600 + at.minute * 60 + at.second + at.microsecond / 1e6
    return Moment(at.year, at.month, at.day, second, True)


class Clock(Struct):
    """Seconds since the first line with a time of day. `began` is that line's moment, None without a date."""

    began: Moment | None = None
    first: float | None = None
    last: float = 0.0
    days: int = 0
    date: int | None = None

    def read(self, line: str) -> float | None:
        """The time of a line; None without one."""
        if (hit := _TIME_OF_DAY.search(line)) is None:
            return None
        hours, minutes, seconds = (read_float(text) or 0.0 for text in hit.group(1, 2, 3))
        now = hours * 3600 + minutes * 60 + seconds + (read_float(f"0.{hit[4]}") or 0.0 if hit[4] else 0.0)
        found = _date(line[max(hit.start() - _DATE_LENGTH, 0) : hit.start()])
        day = None if found is None else date(found[0] or 2000, found[1], found[2]).toordinal()
        if day is not None and self.date is not None and day >= self.date:
            self.days += day - self.date
        else:
            self.days += self.last - now > _HALF_A_DAY
        self.date, self.last = day, now
        if self.first is None:
            self.first = now
            if found is not None:
                zone = hit[5] or ""
                self.began = Moment(*found, now - _zone(zone), bool(zone))
        return max(now + self.days * _DAY - self.first, 0.0)


def _date(before: str) -> tuple[int | None, int, int] | None:
    """Year, month and day that stand before a time of day; None if there are none."""
    for pattern in _DATES:
        if hit := pattern.search(before):
            found = hit.groupdict()
            name = (found.get("name") or "").lower()
            month = _MONTHS.index(name) + 1 if name in _MONTHS else read_int(found.get("month") or "")
            year, day = read_int(found.get("year") or ""), read_int(found["day"])
            try:
                date(year or 2000, month or 0, day or 0)
            except ValueError:
                return None
            return year, month or 0, day or 0
    return None


def _zone(text: str) -> float:
    """Seconds by which local time is ahead of UTC: of ``+02:00`` 7200."""
    digits = text.replace(":", "")
    if len(digits) < 5:
        return 0.0
    hours, minutes = read_int(digits[1:3]) or 0, read_int(digits[3:5]) or 0
    return (hours * 3600 + minutes * 60) * (-1.0 if digits[0] == "-" else 1.0)


class Within(NamedTuple):
    """Lines of a log in the time of samples: which they are, the time of the log's first in that of the
    samples (s), and the seconds by which their clocks differ."""

    rows: Array
    shift_s: float
    zone_s: int


def within(times_s: Array, began: Moment, start_ns: int, lasts_s: float, zoned: bool) -> Within | None:
    """Which lines lie in `lasts_s` from `start_ns` on, or just behind; None if none does. `zoned` if both
    name their time zones: else containers often log UTC and samplers local time."""
    if (log_ns := began.near(start_ns)) is None:
        return None
    apart = (log_ns - start_ns) / 1e9
    steps = 0 if zoned else _MOST_ZONE_S // _ZONE_STEP_S
    for step in sorted(range(-steps, steps + 1), key=abs):
        shift = apart + step * _ZONE_STEP_S
        rows = (times_s + shift >= -_PACE_S) & (times_s + shift <= lasts_s + _PACE_S)
        if rows.any():
            return Within(np.asarray(rows), shift, step * _ZONE_STEP_S)
    return None
