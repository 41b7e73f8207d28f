"""Text of `key_averages().table()` of the PyTorch profiler, torch 1.4 to 2.11 -> its rows.

Headings decide what a cell is: GPU columns are called CUDA, Device, XPU, HIP or after another backend, or are
missing. Before torch 1.7 there is no column of an operator's own GPU time: each row, and the total below,
counts what an operator calls as well. Each line may begin with what a logger or a launcher put there; lines
of several processes may mix.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, field

from advisor.numerals import read_float
from advisor.reading import cut_lines
from advisor.sources.pasted.wrapped import unwrapped_between
from advisor.sources.ranges import MOST_NS

#: Heading -> our field, most specific first; `(\w+)` is the name of the backend.
_HEADINGS = (
    ("overload", r"Overload Name"),
    ("name", r"Name"),
    ("percent", r"Self \w+ (?:time )?(?:total )?%|\w+ (?:time )?total %"),
    ("memory", r"Self \w+ Mem|(?!Self\b)\w+ Mem"),
    ("self_host", r"Self CPU(?: (?:time )?total)?(?! time| Mem| %| total %)"),
    ("self_device", r"Self (?!CPU)\w+(?: (?:time )?total)?(?! Mem| %| total %)"),
    ("average", r"CPU time avg"),
    ("device_average", r"(?!Self\b)\w+ time avg"),
    ("host", r"CPU (?:time )?total"),
    ("device", r"(?!Self\b|Total\b)\w+ (?:time )?total"),
    ("count", r"# of Calls|Number of Calls"),
    ("text", r"Node ID|Input Shapes|Source Location"),
    ("flops", r"(?:Total )?[KMGTP]?FLOP[sS]"),
)
_HEADING = re.compile(
    "|".join(
        rf"(?P<{name}>\b(?:{text})|# of Calls)" if name == "count" else rf"(?P<{name}>\b(?:{text}))"
        for name, text in _HEADINGS
    )
)
_TIMES = ("self_host", "host", "self_device", "device", "average", "device_average")
_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "μs": 1e3, "ns": 1.0}
_TIME = r"-?\d[\d.,]*(?:[eE][-+]?\d+)?\s?(?:[mun]s|[µμ]s|s)"
_CELL = {
    **dict.fromkeys(_TIMES, _TIME),
    "percent": r"(?:-?\d[\d.,]*\s?%|NaN|nan|0|--)",
    "memory": r"(?:-?\d[\d.,]*\s?[KMGT]?[bB]|0|--)",
    "count": r"\d[\d,]*",
}
#: What loggers, launchers, prompts and quotations put before a line; the first two tell processes apart.
_BEFORE = re.compile(
    r"^\s*(?:(?P<key>\(\w[\w \t=.:-]{0,60}\)|\[?rank ?\d+\]?:?|\d{1,3}:|\d{1,3}\|(?=\s))"
    r"|(?:INFO|WARNING|DEBUG|ERROR|NOTICE)\b:?|\d{2,4}-\d\d(?:-\d\d)?[ T]\d\d:\d\d:\d\d[.,\d]*Z?:?"
    r"|\[[\w.\- ]{1,60}:\d{1,6}\]|\[\d{4}-[^\]]{1,40}\]|[#>$]+(?=\s)|//)"
)
_TOTAL = re.compile(rf"(?:Self )?\b(\w+) time total:\s*({_TIME})")
_RULE = re.compile(r"^(?=.*---)[\s|+:=\-─━┼│├┤]*$")
_LONGEST_LINE = 20_000
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SPACE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
#: Columns of a table of `key_averages()` that pandas wrote, in us -> our field.
_EXPORTED = re.compile(r"^(self_)?(cpu|cuda|device|xpu|hip|privateuse1)_time_total(?:_us)?$")
_DEVICE_TYPE = re.compile(r"(?i)cuda|hip|xpu|privateuse|mtia|^1$")


class Operator(NamedTuple):
    """One row: times in ns over all its calls, without what it called (`self_`) and with; NaN without the
    column. `on_device` is None if the table does not say whether it is work of the GPU itself."""

    name: str
    calls: float
    self_host: float
    host: float
    self_device: float = math.nan
    device: float = math.nan
    on_device: bool | None = None


class ProfilerTable(Struct):
    """One table; the totals are those of its closing lines, NaN without them. `torn` counts lines inside it
    that could not be read, `negative` times below zero, which some releases print; those of rows read as 0,
    and totals as unknown. `whole`: GPU times, the total as well, count what an operator calls (before torch
    1.7)."""

    backend: str | None
    whole: bool = False
    rows: list[Operator] = field(default_factory=list)
    host_total: float = math.nan
    device_total: float = math.nan
    torn: int = 0
    negative: int = 0


class Layout(NamedTuple):
    """Fields of the columns in order; `delimiter` is empty for text in columns."""

    fields: tuple[str, ...]
    delimiter: str
    backend: str | None
    line: re.Pattern[str] | None

    @property
    def whole(self) -> bool:
        """Whether its GPU times count what an operator calls as well."""
        return "device" in self.fields and "self_device" not in self.fields

    def cells(self, line: str) -> dict[str, str] | None:
        if self.line is None:
            found = _split(line, self.delimiter)
            return dict(zip(self.fields, found, strict=True)) if len(found) == len(self.fields) else None
        hit = self.line.match(line)
        return {name.rstrip("0123456789"): cell for name, cell in hit.groupdict().items()} if hit else None


def layout_of(line: str) -> Layout | None:
    """The columns of a line of headings; None for any other line."""
    if len(line) > _LONGEST_LINE or "CPU" not in line or "Calls" not in line:
        return None
    line = line.replace("│", "|")
    for delimiter in ("|", "\t", ";", ","):
        if line.count(delimiter) > 3:
            texts = _split(line, delimiter)
            found = [_HEADING.fullmatch(t.strip("*` ")) for t in texts]
            fields = tuple(str(h.lastgroup) if h else "unknown" for h in found)
            if _is_table(fields) and (delimiter != "\t" or all(texts)):
                return Layout(fields, delimiter, _backend(line), None)
    hits = list(_HEADING.finditer(line))
    fields = tuple(str(h.lastgroup) for h in hits)
    if not _is_table(fields) or _HEADING.sub("", line).strip():
        return None
    cells = [
        rf"(?<!\s)\s++(?P<{f}{i}>{_CELL[f]})" for i, f in enumerate(fields) if f in _CELL
    ]  # what stands behind the count is not needed
    first = r"\s*(?P<name>\S.*?)"
    return Layout(fields, "", _backend(line), re.compile(first + "".join(cells) + r"(?:\s.*)?$"))


def _is_table(fields: Sequence[str]) -> bool:
    """The name, and the count with at least one time of the host or the GPU."""
    return {"name", "count"} <= set(fields) and bool({"self_host", "host", "self_device"} & set(fields))


def _backend(line: str) -> str | None:
    names = re.findall(r"\bSelf (\w+)", line) + re.findall(r"\b(\w+) (?:time )?total(?! %)", line)
    return next((name for name in names if name != "CPU"), None)


def _split(line: str, delimiter: str) -> list[str]:
    if delimiter in ("|", "\t"):
        cells = line.replace("│", "|").strip(" \n|" if delimiter == "|" else "\n").split(delimiter)
        return [cell.strip() for cell in cells]
    try:
        return [c.strip() for c in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]
    except csv.Error:
        return []


def read_profiler_tables(text: str) -> list[ProfilerTable]:
    """The tables of a text in their order; empty if it holds none."""
    exported = list(_exported(text))
    found: list[ProfilerTable] = []
    for lines in _by_process(text):
        found += _tables(lines)
    return [t for t in [*exported, *found] if t.rows]


def has_headings(text: str) -> bool:
    """True if a line of the text holds the headings of such a table."""
    lines = plain_text(text).splitlines()
    return any(layout_of(_without_prefix(line)[1]) or _export_fields(line) for line in lines)


def plain_text(text: str) -> str:
    """Without the colours of a terminal, with spaces of every kind as plain ones, and with lines whole that a
    terminal broke."""
    plain = _SPACE.sub(" ", _ESCAPE.sub("", cut_lines(text)))
    return unwrapped_between(plain, lambda line: layout_of(line) is not None) if "---" in plain else plain


def _without_prefix(line: str) -> tuple[str, str]:
    """What tells the process of a line, empty if nothing does, and the line itself."""
    key, at = "", 0
    while hit := _BEFORE.match(line[at:]):
        key += hit["key"] or ""
        at += hit.end()
    return key, line[at:]


def _by_process(text: str) -> list[list[str]]:
    """The lines of each process, without colours and with plain spaces."""
    lines: dict[str, list[str]] = {}
    for line in plain_text(text).splitlines():
        key, rest = _without_prefix(line)
        lines.setdefault(key, []).append(rest)
    return list(lines.values())


def _tables(lines: Iterable[str]) -> Iterator[ProfilerTable]:
    table: ProfilerTable | None = None
    layout: Layout | None = None
    inside = False
    for line in lines:
        header = layout_of(line)
        if header is not None:
            layout, table, inside = header, ProfilerTable(header.backend, header.whole), True
            yield table
            continue
        if table is None or layout is None:
            continue
        for name, text in _TOTAL.findall(line):
            with suppress(ValueError):
                total = _nanoseconds(text)
                table.negative += total < 0
                if total >= 0:
                    setattr(table, "host_total" if name == "CPU" else "device_total", total)
            inside = False
        if not inside or not line.strip() or _TOTAL.search(line):
            continue
        if _RULE.match(line):
            inside = not table.rows
        elif not _added(table, layout.cells(line)):
            continued = "text" in layout.fields and not re.search(rf"\s{_TIME}\s", line)
            table.torn += not continued


def _added(table: ProfilerTable, cells: dict[str, str] | None) -> bool:
    """Add one row; False if it cannot be read."""
    if cells is None or not cells.get("name", "").strip("* `"):
        return False
    try:
        values = {f: _nanoseconds(cells[f]) for f in _TIMES if f in cells}
        count = read_float(cells["count"])
    except ValueError:
        return False
    if count is None or not 0 < count < 2**53 or any(abs(v) >= MOST_NS for v in values.values()):
        return False
    table.negative += sum(v < 0 for v in values.values())
    times = {f: max(v, 0.0) for f, v in values.items() if f not in ("average", "device_average")}
    if "host" not in times:
        times["host"] = max(values.get("average", math.nan), 0.0) * count
    table.rows.append(_operator(_plain(cells["name"]), count, times, None))
    return True


def _plain(name: str) -> str:
    """The name without marks of Markdown, and without the overload that some tables print behind it."""
    name = re.split(r"\s{2,}", name.strip())[0]
    for mark in ("**", "`"):
        name = name.removeprefix(mark).removesuffix(mark) if name.startswith(mark) else name
    hit = re.match(r"^(\w+::\w+|(?:cuda|cu|hip)[A-Z]\w+) [\w.]+$", name)
    return hit[1] if hit else name


def _operator(name: str, calls: float, times: dict[str, float], on_device: bool | None) -> Operator:
    own, whole, device_own, device = (
        times.get(f, math.nan) for f in ("self_host", "host", "self_device", "device")
    )
    return Operator(name, calls, own, whole, device_own, device, on_device)


def _nanoseconds(text: str) -> float:
    """A time with its unit. Raises ValueError for anything else."""
    hit = re.fullmatch(r"(-?[\d.,]+(?:[eE][-+]?\d+)?)\s?([mun]?s|[µμ]s)", text.strip().strip('"*`'))
    if hit is None:
        raise ValueError(text)
    number = hit[1]
    # Python prints a point; a spreadsheet may have put a comma in its place, or one between thousands.
    number = number.replace(",", "") if "." in number else number.replace(",", ".")
    if (value := read_float(number)) is None or abs(value) * _UNITS[hit[2]] >= MOST_NS:
        raise ValueError(text)
    return value * _UNITS[hit[2]]


def _export_fields(line: str) -> dict[str, int] | None:
    """Our fields of the headings of an export of `key_averages()`, with their columns."""
    if "time_total" not in line or len(line) > _LONGEST_LINE:
        return None
    delimiter = max(",;\t", key=line.count)
    fields: dict[str, int] = {}
    for i, heading in enumerate(_split(line.strip("\ufeff"), delimiter)):
        text = heading.strip().lower()
        if hit := _EXPORTED.match(text):
            side = "host" if hit[2] == "cpu" else "device"
            fields.setdefault(f"self_{side}" if hit[1] else side, i)
        elif text in ("key", "name", "count", "device_type"):
            fields.setdefault("name" if text == "key" else text, i)
    return fields if {"name", "count", "host"} <= set(fields) else None


def _exported(text: str) -> Iterator[ProfilerTable]:
    lines = cut_lines(text).splitlines()
    for at, line in enumerate(lines):
        fields = _export_fields(line)
        if fields is None:
            continue
        of_gpu = {"self_device", "device"} & set(fields)
        table = ProfilerTable("CUDA" if of_gpu else None, of_gpu == {"device"})
        try:
            for cells in csv.reader(lines[at + 1 :], delimiter=max(",;\t", key=line.count)):
                if not cells:
                    break
                _add_exported(table, fields, cells)
        except csv.Error:  # a quote that does not end
            table.torn += 1
        yield table
        return


def _add_exported(table: ProfilerTable, fields: dict[str, int], cells: Sequence[str]) -> None:
    if max(fields.values()) >= len(cells):
        table.torn += 1
        return
    read: dict[str, str] = {f: cells[i] for f, i in fields.items()}
    count = read_float(read["count"])
    values = {f: read_float(read[f]) for f in _TIMES if f in read}
    times = {f: value * 1e3 for f, value in values.items() if value is not None}
    if (
        count is None
        or len(times) < len(values)
        or not read["name"]
        or not 0 < count < 2**53
        or any(not abs(v) < MOST_NS for v in times.values())
    ):
        table.torn += 1
        return
    table.negative += sum(v < 0 for v in times.values())
    times = {f: max(v, 0.0) for f, v in times.items()}
    on_device = bool(_DEVICE_TYPE.search(read["device_type"])) if "device_type" in read else None
    table.rows.append(_operator(read["name"], count, times, on_device))
