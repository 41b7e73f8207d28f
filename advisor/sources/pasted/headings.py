"""The meaning of the headings of `nsys stats`, in all its releases, and of the cells below them."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from advisor.numerals import read_float

#: Heading of a list of operations, of nsys or nvprof, in lower case without its unit -> our column.
LISTED = {
    "start": "start",
    "duration": "duration",
    "corrid": "correlation",
    "correlation_id": "correlation",
    "grdx": "grid_x",
    "grdy": "grid_y",
    "grdz": "grid_z",
    "blkx": "block_x",
    "blky": "block_y",
    "blkz": "block_z",
    "grid x": "grid_x",
    "grid y": "grid_y",
    "grid z": "grid_z",
    "block x": "block_x",
    "block y": "block_y",
    "block z": "block_z",
    "reg/trd": "registers",
    "registers per thread": "registers",
    "stcsmem": "static_bytes",
    "static smem": "static_bytes",
    "smem": "static_bytes",
    "dymsmem": "dynamic_bytes",
    "dynamic smem": "dynamic_bytes",
    "bytes": "bytes",
    "size": "bytes",
    "throughput": "throughput",
    "srcmemkd": "src_memory",
    "srcmemtype": "src_memory",
    "dstmemkd": "dst_memory",
    "dstmemtype": "dst_memory",
    "device": "device",
    "ctx": "context",
    "context": "context",
    "strm": "stream",
    "stream": "stream",
    "name": "name",
    "pid": "process",
    "tid": "thread",
}
#: Columns of text among these.
WORDS = frozenset(("name", "device", "src_memory", "dst_memory"))

#: Heading of any table, likewise -> our field; "" is known and not needed.
_FIELDS = {
    **{heading: "word" if column in WORDS else "" for heading, column in LISTED.items()},
    **dict.fromkeys(("total time", "total", "total proj time"), "total"),
    **dict.fromkeys(
        ("instances", "num calls", "calls", "count", "operations", "range instances", "kern inst"), "count"
    ),
    **dict.fromkeys(("avg", "average", "proj avg"), "average"),
    **dict.fromkeys(("med", "median", "proj med"), "median"),
    **dict.fromkeys(("min", "minimum", "proj min"), "least"),
    **dict.fromkeys(("max", "maximum", "proj max"), "most"),
    **dict.fromkeys(("stddev", "std dev", "proj stddev"), "deviation"),
    **dict.fromkeys(("name", "kernel name", "operation", "function"), "name"),
    **dict.fromkeys(("range", "nvtx range"), "range"),
    **{
        f"{p}{n}": f"{part}.{f}"
        for p, part in (("a", "calls"), ("q", "queue"), ("k", "kernels"))
        for n, f in (
            ("avg", "average"),
            ("med", "median"),
            ("min", "least"),
            ("max", "most"),
            ("stddev", "deviation"),
        )
    },
    **dict.fromkeys(
        (
            "tavg",
            "tmed",
            "tmin",
            "tmax",
            "tstddev",
            "total range time",
            "total gpu ops",
            "avg gpu ops",
            "avg range lvl",
            "avg num child",
            "nvtx inst",
            "correlid",
            "greenctx",
            "devid",
            "t-pri",
            "result",
        ),
        "",
    ),
    **dict.fromkeys(("style", "api name", "api function", "thread name"), "word"),
    "qcount": "queue.count",
    "time": "percent",
    "category": "category",
    "start": "start",
    "duration": "duration",
    "bytes": "bytes",
}
TEXTS = ("name", "range", "category", "word")
_SCALE = {
    **dict.fromkeys(("", "ns", "nsec", "nanoseconds", "b", "bytes", "%"), 1.0),
    **dict.fromkeys(("us", "usec", "μs", "µs"), 1e3),
    **dict.fromkeys(("ms", "msec"), 1e6),
    **dict.fromkeys(("s", "sec", "seconds"), 1e9),
    "kb": 1e3,
    "kib": 1024.0,
    "mb": 1e6,
    "mib": 2.0**20,
    "gb": 1e9,
    "gib": 2.0**30,
}
_BYTES = frozenset(("b", "bytes", "kb", "kib", "mb", "mib", "gb", "gib"))

_UNIT = re.compile(r"(?<!\s)\s*(?:\(([^()]*)\)|:([a-z]+))$")
HEADING = re.compile(
    "(?i)("
    + "|".join(re.escape(h).replace(r"\ ", r"\s?") for h in sorted(_FIELDS, key=len, reverse=True))
    + r")\s?(\((?:%|[a-zµμ]{1,11}(?:/s)?)\))?(?=\s|$)"
)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?")


class Column(NamedTuple):
    field: str
    scale: float
    bytes: bool


def heading_of(heading: str) -> tuple[str, str]:
    """A heading in lower case without its unit, and the unit."""
    text = " ".join(heading.strip().strip("\"'*`").lower().split())
    hit = _UNIT.search(text)
    return (text[: hit.start()], hit[1] or hit[2]) if hit else (text, "")


def column_of(heading: str) -> Column | None:
    text, unit = heading_of(heading)
    name = _FIELDS.get(text)
    if name is None:
        return None
    return Column(name, scale_of(unit), unit in _BYTES)


def scale_of(unit: str) -> float:
    """How many ns or bytes a unit is; 1 for an unknown one."""
    return _SCALE.get(unit, 1.0)


def cells_of(line: str, delimiter: str) -> list[str]:
    if delimiter == "|":
        return [c.strip() for c in line.replace("│", "|").strip().strip("|").split("|")]
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return []


def number(text: str) -> float:
    """A number as written by any release, spreadsheet or person; NaN for none. Raises ValueError."""
    text = text.strip().strip("\"'")
    if text in ("", "-", "n/a", "N/A", "nan", "None", "null"):
        return math.nan
    hit = _NUMBER.match(text)
    scale = _SCALE.get(text[hit.end() :].strip().lower()) if hit else None
    if hit is None or scale is None:
        raise ValueError(text)
    plain = hit[0]
    if re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", plain):
        plain = plain.replace(",", "")
    elif re.fullmatch(r"[-+]?\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?", plain):
        plain = plain.replace(".", "").replace(",", ".")
    if (value := read_float(plain.replace(",", "."))) is None:
        raise ValueError(text)
    return value * scale


def spaced(line: str, columns: Sequence[Column | None]) -> list[str] | None:
    """Cells of a line of text in columns: only a name may contain spaces, and it is the first or last."""
    wide = re.split(r"\s{2,}|\t", line.strip())
    if len(wide) == len(columns):
        return wide
    # A unit after its number belongs to it.
    words = re.sub(r"(?<=\d) (?=(?:%|[num]?s|[KMG]i?B)(?:\s|$))", "", line).split()
    last = columns[-1]
    if last is not None and last.field in ("name", "range"):
        cells = words[: len(columns) - 1]
        return [*cells, " ".join(words[len(cells) :])] if len(words) >= len(columns) else None
    at = len(words) - len(columns) + 1
    return [" ".join(words[:at]), *words[at:]] if at > 0 else None
