"""Lists of operations with their times -> the tables of a timeline: those of `nsys stats -r cuda_gpu_trace`
(`gputrace` up to 2022) and `nvprof --print-gpu-trace`, with the calls of `cuda_api_trace` beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from advisor.model.arrays import Array
from advisor.model.capture import Capture, Device, Recorder
from advisor.numerals import read_int
from advisor.reading import cut_lines
from advisor.sources.kineto.reader import short_name
from advisor.sources.pasted.header import header_of
from advisor.sources.pasted.headings import LISTED, WORDS, cells_of, heading_of, number, scale_of
from advisor.sources.schema import COPY_KINDS, MEMORY_KINDS, MISSING, UNKNOWN_MEMORY, classify
from advisor.sources.trace import Columns, InMemory

RECORDER = Recorder(clock="times as the list prints them", nsys_options=True)

_INTEGERS = (
    "correlation",
    "context",
    "stream",
    "process",
    "thread",
    "registers",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
)
#: nvprof counts in powers of two, and prints the units in a line below the headings.
_BINARY = {"kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30}
#: Names of copies, of all releases: ``HtoD``, ``Host-to-Device``.
_PLACES = {"host": "h", "device": "d", "array": "a", "peer": "p"}
_DIRECTION = re.compile(r"\b(host|device|array|peer|h|d|a|p)-?to-?(host|device|array|peer|h|d|a|p)\b")
_JSON = re.compile(r"^[ \t]*\[\s*\{", re.MULTILINE)
_DEVICE = re.compile(r"^(.*)\((\d{1,6})\)$")
_GRAPH = re.compile(r"\[CUDA graph (\d{1,18})\]")
#: nsys prints bytes in MB with three decimals; below this many bytes the rate says more.
_FEW_BYTES = 1e6


class PastedTimeline(InMemory):
    """The operations of one list. Without a list of CUDA calls it does not say who launched them."""

    def __init__(self, shown: Path, text: str, lists: Sequence[Columns], torn: int, old: bool) -> None:
        super().__init__()
        ids: dict[str, int] = {}
        calls = [c for c in lists if _are_calls(c)]
        work = _joined([c for c in lists if not _are_calls(c)])
        work["process"] = np.full(len(work["start"]), 0, np.int64)
        if calls and (call := _joined(calls)) and len(np.unique(call["process"])) == 1:
            work["process"][:] = call["process"][0]
            self._tables["api_calls"] = _calls(call, ids)
        names = work.pop("name")
        kinds = np.array([_kind_of(n) for n in np.unique(names)])[np.unique(names, return_inverse=True)[1]]
        rows = {table: np.flatnonzero(kinds == table) for table in ("kernels", "memsets", "graph_runs")}
        rows["copies"] = np.flatnonzero(np.char.isdigit(kinds))
        work["device"], self.devices = _devices(work.pop("device", None), len(names))
        for table, at in rows.items():
            if not len(at):
                continue
            of = {name: column[at] for name, column in work.items()}
            of["graph_node"] = np.zeros(len(at), np.int64)
            if table == "kernels":
                of |= _kernels(of, names[at], ids)
            elif table == "copies":
                of["kind"] = kinds[at].astype(np.int64)
            elif table == "memsets":
                of["memory"] = of["src_memory"]
            else:
                found = map(_GRAPH.fullmatch, names[at].tolist())
                of["graph"] = np.array([read_int(hit[1]) or 0 for hit in found if hit], np.int64)
            self._tables[table] = of
        self._texts = list(ids)
        self.ledger.note(
            "dropped", "lines that could not be read or are impossible", "lists", torn, len(names)
        )
        end = max(int(c["end"].max()) for c in self._tables.values())
        self.capture = Capture(
            path=str(shown),
            format="nsys-stats",
            recorder=RECORDER,
            size_bytes=len(text.encode("utf-8", "replace")),
            producer="nvprof" if old else "nsys stats",
            duration_ns=end - min(int(c["start"].min()) for c in self._tables.values()),
            device_numbers="the ids in the list",
        )


def timeline_of(shown: Path, text: str) -> PastedTimeline | None:
    """The timeline in a text; None if it lists no operation of a GPU with its times."""
    lists: list[Columns] = []
    torn, old = 0, False
    for headings, rows, units in _lists(text):
        columns, bad = _read(headings, rows, units)
        torn += bad
        old = old or units is not None
        if len(columns["start"]):
            lists.append(columns)
    if all(_are_calls(c) for c in lists):
        return None
    return PastedTimeline(shown, text, lists, torn, old)


Cells = list[list[str]]


def _lists(text: str) -> Iterator[tuple[list[str], Cells, list[str] | None]]:
    """Headings, cells and the line of units, if there is one, of each list of a text."""
    if (array := _JSON.search(text)) is not None:
        yield from _of_json(text, text.index("[", array.start()))
        return
    lines = cut_lines(text).splitlines()
    at = 0
    while at < len(lines):
        header = header_of(lines[at]) if "uration" in lines[at] else None
        at += 1
        if header is None or not {"start", "duration", "name"} <= header.fields:
            continue
        begin = at
        while at < len(lines) and lines[at].strip():
            at += 1
        block = [line for line in lines[begin:at] if line.strip(" -+|=─┼│")]
        split = _by(lines[begin])
        if header.delimiter:
            split = partial(cells_of, delimiter=header.delimiter)
        headings, cells = split(lines[begin - 1]), [split(line) for line in block]
        units = cells[0] if cells and _are_units(cells[0]) else None
        yield headings, cells[units is not None :], units


def _of_json(text: str, begin: int) -> Iterator[tuple[list[str], Cells, None]]:
    try:
        rows, _ = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        return
    rows = [r for r in rows if isinstance(r, dict)]
    headings = list(dict.fromkeys(str(k) for r in rows for k in r))
    if {"start", "duration", "name"} <= {heading_of(h)[0] for h in headings}:
        yield headings, [["" if r.get(h) is None else str(r[h]) for h in headings] for r in rows], None


def _by(rule: str) -> Callable[[str], list[str]]:
    """Cells of a line by the dashes below the headings: cells may be empty, and a number may begin further
    left than its dashes, as the last one ends with the line."""
    spans = [hit.span() for hit in re.finditer("-+", rule)]
    bounds = [0, *(end for _, end in spans[:-1])]
    return lambda line: [line[b:e].strip() for b, e in zip(bounds, [*bounds[1:], len(line)], strict=True)]


def _are_units(cells: Sequence[str]) -> bool:
    return any(cells) and all(not c or (not c[0].isdigit() and len(c) <= 4) for c in cells)


def _read(headings: Sequence[str], rows: Cells, units: Sequence[str] | None) -> tuple[Columns, int]:
    """The columns of a list, in order of time, and how many of its lines are no rows."""
    width = len(headings)
    good = [r for r in rows if len(r) == width]
    found: Columns = {}
    for at, heading in enumerate(headings):
        text, unit = heading_of(heading)
        name = LISTED.get(text)
        if name is None or name in found:
            continue
        cells = [r[at] for r in good]
        if name in WORDS:
            found[name] = np.array([c.strip().strip('"') for c in cells], object)
            continue
        given = units[at].lower() if units is not None and at < len(units) else unit
        base = given.removesuffix("/s")
        scale = _BINARY.get(base) if units is not None else None
        found[name] = _numbers(cells) * (scale_of(base) if scale is None else scale)
    start, length = found["start"], found["duration"]
    true = (start >= 0) & (length >= 0) & (start + length < 2.0**62) & (found["name"] != "")
    order = np.flatnonzero(true)
    order = order[np.argsort(start[order], kind="stable")]
    rest = np.full(len(order), np.nan)
    rows_of = {name: column[order] for name, column in found.items()}
    begin = np.rint(rows_of["start"]).astype(np.int64)
    shared = [rows_of.get(name, rest) for name in ("static_bytes", "dynamic_bytes")]
    out: Columns = {
        **{name: _integers(rows_of.get(name, rest)) for name in _INTEGERS},
        "start": begin,
        "end": begin + np.rint(rows_of["duration"]).astype(np.int64),
        "name": rows_of["name"],
        "bytes": _bytes(rows_of, rest),
        "shared_bytes": _integers(np.nansum(shared, axis=0)),
        **{name: _memory(rows_of.get(name), len(order)) for name in ("src_memory", "dst_memory")},
    }
    if "device" in rows_of:
        out["device"] = rows_of["device"]
    return out, len(rows) - len(order)


def _numbers(cells: list[str]) -> Array:
    """NaN for an empty cell and for anything but a number."""
    plain = np.char.replace(np.char.strip(np.array(cells, str)), ",", "") if cells else np.array([], str)
    plain[plain == ""] = "nan"
    try:
        return plain.astype(float)
    except ValueError:
        return np.array([_number(c) for c in cells])


def _number(cell: str) -> float:
    try:
        return number(cell)
    except ValueError:
        return np.nan


def _integers(values: Array) -> Array:
    known = np.isfinite(values) & (np.abs(values) < 2.0**62)
    return np.where(known, np.rint(np.where(known, values, 0)), MISSING).astype(np.int64)


def _bytes(found: Columns, rest: Array) -> Array:
    size = found.get("bytes", rest)
    by_rate = found.get("throughput", rest) * found["duration"] / 1e9
    return _integers(np.where((size < _FEW_BYTES) & (by_rate > 0), by_rate, size))


def _memory(words: Array | None, rows: int) -> Array:
    if words is None:
        return np.full(rows, MISSING)
    kinds, at = np.unique(words.astype(str), return_inverse=True)
    return np.array([MEMORY_KINDS.get(k.lower(), UNKNOWN_MEMORY) if k else MISSING for k in kinds])[at]


def _joined(lists: Sequence[Columns]) -> Columns:
    shared = set.intersection(*(set(c) for c in lists))
    return {name: np.concatenate([c[name] for c in lists]) for name in shared}


def _are_calls(columns: Columns) -> bool:
    first = columns["name"][:1].tolist()
    return bool(first) and bool(re.match(r"(?:cuda|hip)[A-Z]|cu[A-Z]", first[0])) and "device" not in columns


def _kind_of(name: str) -> str:
    """The table of an operation by its name, for copies the number of their direction; "" for others."""
    if not name.startswith("["):
        return "kernels"
    text = name.lower()
    if "memset" in text:
        return "memsets"
    if _GRAPH.fullmatch(name):
        return "graph_runs"
    hit = _DIRECTION.search(text)
    if "memcpy" not in text or hit is None:
        return ""
    way = "to".join(_PLACES.get(place, place) for place in hit.groups())
    return str(COPY_KINDS.get(f"unified {way}" if "unified" in text else way, ""))


def _kernels(of: Columns, names: Array, ids: dict[str, int]) -> Columns:
    texts, at = np.unique(names.astype(str), return_inverse=True)
    full = np.array([ids.setdefault(t, len(ids)) for t in texts.tolist()], np.int64)
    short = np.array([ids.setdefault(short_name(t), len(ids)) for t in texts.tolist()], np.int64)
    return {
        "name_id": full[at],
        "short_name_id": short[at],
        "blocks": _product(of["grid_x"], of["grid_y"], of["grid_z"]),
        "threads": _product(of["block_x"], of["block_y"], of["block_z"]),
    }


def _product(*sizes: Array) -> Array:
    known = np.logical_and.reduce([s > 0 for s in sizes])
    return np.where(known, np.multiply.reduce([s.astype(np.int64) for s in sizes]), MISSING)


def _calls(call: Columns, ids: dict[str, int]) -> Columns:
    texts, at = np.unique(call.pop("name").astype(str), return_inverse=True)
    names = np.array([ids.setdefault(t, len(ids)) for t in texts.tolist()], np.int64)
    classes = np.array([int(classify(t)) for t in texts.tolist()], np.int64)
    return call | {"name_id": names[at], "call": classes[at]}


def _devices(words: Array | None, rows: int) -> tuple[Array, tuple[Device, ...]]:
    """The number of each operation's GPU, and the GPUs."""
    if words is None:
        return np.zeros(rows, np.int64), (Device(id=0),)
    texts, at = np.unique(words.astype(str), return_inverse=True)
    found = [_DEVICE.fullmatch(t) for t in texts.tolist()]
    numbers = [(read_int(hit[2]) if hit else 0) or 0 for hit in found]
    names = {
        n: (hit[1].rstrip() if hit else t) or None
        for n, hit, t in zip(numbers, found, texts.tolist(), strict=True)
    }
    return np.array(numbers, np.int64)[at], tuple(Device(id=n, name=names[n]) for n in sorted(names))
