"""Text of `nsys stats` -> its tables: any of its formats, several in one text, from 2020 to 2026.

Headings decide what a column is, so the reports of all releases are read alike: text in columns,
boxed or in Markdown, CSV with any delimiter, JSON; numbers with thousands, names cut or not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.model.capture import Capture, Recorder
from advisor.reading import UTF_16, cut_lines, decoded, hold
from advisor.sources.packed import HEAD_BYTES
from advisor.sources.pasted.header import Header, header_of
from advisor.sources.pasted.headings import column_of
from advisor.sources.pasted.locales import marked
from advisor.sources.pasted.markup import as_text
from advisor.sources.pasted.other_tools import other_text
from advisor.sources.pasted.raw_tables import RawTable, Row, Table
from advisor.sources.pasted.timeline import timeline_of
from advisor.sources.pasted.wrapped import unwrapped
from advisor.sources.schema import TABLES, Summed
from advisor.sources.trace import Columns, InMemory

#: Names of reports as nsys writes them, today's and those up to 2022, and the titles of 2020.
_REPORT = re.compile(
    r"(?i)\b((?:cuda|nvtx|osrt|um|nccl|openmp|mpi)_\w{0,60}?(?:sum|trace))\b|\b(gpukernsum|cudaapisum|osrtsum"
    r"|nvtxsum|gpumem(?:time|size)sum|nvtxppsum|kernexecsum|gputrace|apigpusum)\b"
    r"|(CUDA API|CUDA (?:GPU )?Kernel|CUDA Memory Operation|Operating System Runtime API|NVTX)"
    r"[ \w()]{0,100} (?:Statistics|Summary)"
)
_TITLE = re.compile(
    r"^\s*(?:\*\*|Processing |Generating |Exporting |NOTICE|SKIPPED|Using |\[\d+/\d+\]|#|```)|:\s*$"
)
_RULE = re.compile(r"^[\s|+:=\-─━┼│├┤]*$")
_BEGUN = re.compile(
    r"(?m)^(?:Processing|Generating SQLite|NOTICE: Existing SQLite|[ \t]*\*\* )"
    r'|\A\s*\[\s*\{\s*"(?:Time \(%\)|Total|Start|PID|NVTX Range|Range)'
)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read_tables(text: str) -> list[Table]:
    """The tables of a text, the first of each report; empty if it holds none."""
    rest, raw = _json_tables(marked(_ESCAPE.sub("", as_text(text))))
    raw += _text_tables(unwrapped(cut_lines(rest)))
    found: dict[str, Table] = {}
    for one in sorted(raw, key=lambda r: r.derived):  # a report of its own before parts of others
        one.settle()
        if not one.cells:
            continue
        for table in one.tables():
            table.doubtful = one.doubtful
            table.kind = " ".join((table.report, *(sorted(one.header.fields) if one.derived else ())))
            if table.rows:
                found.setdefault(table.report, table)
    return list(found.values())


def _text_tables(text: str) -> list[RawTable]:
    found: list[RawTable] = []
    now: RawTable | None = None
    hint, inside = "", False
    for line in text.splitlines():
        header = header_of(line)
        if header is not None:
            now, inside = RawTable(header, hint), True
            found.append(now)
            continue
        if not line.strip() or _RULE.match(line):
            inside = inside and bool(line.strip())
            continue
        if now is not None and now.add(now.header.cells(line)):
            inside = True
        elif (hit := _REPORT.search(line)) or _TITLE.search(line):
            hint = (hit[1] or hit[2] or hit[3]).lower() if hit else hint
            now, inside = None, False
        elif now is not None and inside:
            now.torn += 1
    return found


def _json_tables(text: str) -> tuple[str, list[RawTable]]:
    """Arrays of objects in a text, and the text without them."""
    found: list[RawTable] = []
    rest, at, decoder = [], 0, json.JSONDecoder()
    for hit in re.finditer(r"^\s*\[\s*\{", text, re.MULTILINE):
        if hit.start() < at:
            continue
        try:
            rows, end = decoder.raw_decode(text, text.index("[", hit.start()))
        except (ValueError, RecursionError):
            continue
        keys = list(dict.fromkeys(k for r in rows if isinstance(r, dict) for k in r))
        header = Header(tuple(map(column_of, keys)), ",")
        before = text[at : hit.start()]
        rest.append(before)
        at = end
        if not header.is_known:
            continue
        hints = list(_REPORT.finditer(before))
        raw = RawTable(header, (hints[-1][0] if hints else "").lower())
        for row in rows:
            cells = ["" if row.get(k) is None else str(row.get(k)) for k in keys]
            raw.torn += not raw.add(cells)
        found.append(raw)
    return "".join([*rest, text[at:]]), found


RECORDER = Recorder(
    clock="no times: sums of the whole recording",
    again="nsys export --type=sqlite REPORT.nsys-rep; advisor REPORT.sqlite",
)
#: More than all reports of the longest known capture.
_MOST_BYTES = 256 << 20
#: A row of nvidia-smi, which begins with the time where the query does.
_SMI_ROW = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+,")
_VERSION = re.compile(r"nsight-systems(?:-cli)?/(\d{4}\.\d+(?:\.\d+)?)")


def sums_columns(rows: Sequence[tuple[Summed, Row]]) -> tuple[Columns, list[str]]:
    """The table `sums` of these rows, and the texts of its names."""
    ids: dict[str, int] = {}
    columns: Columns = {
        "report": np.array([report for report, _ in rows], np.int64),
        "name_id": np.array([ids.setdefault(row.name, len(ids)) for _, row in rows], np.int64),
        **{n: np.array([row.values.get(n, math.nan) for _, row in rows]) for n in TABLES["sums"][2:]},
    }
    return columns, list(ids)


class PastedTables(InMemory):
    """The sums of one text: of all GPUs and processes of the recording together, counted as one device."""

    def __init__(self, shown: Path, text: str) -> None:
        tables = read_tables(text)
        if not tables and _SMI_ROW.match(text.lstrip()):
            raise InputError(
                f"{shown}: rows of nvidia-smi without headings, which say what the columns are; add them as "
                "the first line, or record with --format=csv in place of --format=csv,noheader"
            )
        if not tables:
            raise InputError(f"{shown}: {_unread(text)}")
        super().__init__()
        rows = [(Summed[t.report.upper()], row) for t in tables for row in t.rows]
        self._tables["sums"], self._texts = sums_columns(rows)
        version, torn = _VERSION.search(text), sum(t.torn for t in tables)
        what = "lines inside the tables that could not be read or are impossible"
        self.ledger.note("dropped", what, "sums", torn, len(rows) + torn)
        two, doubtful = "numbers that can be read in two ways", sum(t.doubtful for t in tables)
        self.ledger.note("doubted", f"{two}, read with a decimal point", "sums", doubtful, len(rows))
        self.capture = Capture(
            path=str(shown),
            format="nsys-stats",
            recorder=RECORDER,
            size_bytes=len(text.encode("utf-8", "replace")),
            producer="nsys stats",
            producer_version=version[1] if version else None,
            device_numbers="all GPUs of the recording together",
        )


def _unread(text: str) -> str:
    """What a text is in which no table can be read, and what to give in its place."""
    if other := other_text(text):
        return "; ".join(other)
    if _REPORT.search(text) or is_tables(text.encode("utf-8", "replace")):
        return (
            "output of nsys without a table that can be read; print it with its headings: "
            "nsys stats --format csv REPORT.nsys-rep"
        )
    return (
        "no capture, log or table that is known; give a capture, a table with its headings (nsys stats, "
        "key_averages()), or a server's log or /metrics"
    )


def open_tables(path: Path, shown: Path) -> InMemory:
    """The timeline that a file lists, else its tables. Raises InputError if it holds neither."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{shown}: too large for tables of nsys stats (more than {_MOST_BYTES >> 20} MiB)")
    return read_listed(shown, decoded(path.read_bytes()))


def read_listed(shown: Path, text: str) -> InMemory:
    """The same for a text that was read."""
    if "uration" in text:
        listed = timeline_of(shown, text)
        if listed is not None:
            return listed
    return PastedTables(shown, text)


def is_tables(head: bytes) -> bool:
    """True if a file begins like the output of `nsys stats`, or has one of its headings in the beginning."""
    if not is_text(head):
        return False
    text = _ESCAPE.sub("", decoded(head))
    return bool(_BEGUN.search(text)) or any(map(header_of, text.splitlines()))


def is_text(head: bytes) -> bool:
    """True for UTF-8 or UTF-16; the last character may be cut."""
    if head[:2] in UTF_16:
        return True
    return bool(head.strip()) and b"\0" not in head and "\ufffd" not in head.decode("utf-8", "replace")[:-1]


def as_one_recording(paths: Sequence[Path], together: bool) -> list[Path]:
    """The paths, with tables that `nsys stats` printed into several files as one capture: files without a
    report in common belong to one recording; with `together` the user said so."""
    texts = {path: text for path in paths if (text := _pasted(path)) is not None}
    seen: dict[str, Path] = {}
    for path, text in texts.items():
        tables = read_tables(text)
        twice = next(((seen[t.kind], t) for t in tables if seen.setdefault(t.kind, path) != path), None)
        if tables and twice is None:
            continue
        if not together:
            return list(paths)
        if twice is not None:
            raise InputError(f"--together: {twice[0]} and {path} both have sums of {twice[1].report}")
        raise InputError(f"--together: {path}: no table of nsys stats with a row that can be read")
    if len(texts) < 2:
        return list(paths)
    joined = Path(" + ".join(str(path) if i == 0 else path.name for i, path in enumerate(texts)))
    # nsys names files for their reports, which headings alone do not always tell.
    headed = (f"# {path.name.replace('_cuda', ' cuda')}\n{text}" for path, text in texts.items())
    hold(joined, "\n\n".join(headed).encode())
    return [joined if path in texts else path for path in paths if path not in [*texts][1:]]


def _pasted(path: Path) -> str | None:
    """The text of a file of printed tables; None for other files and for faults that the reader reports."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            return decoded(head + file.read()) if is_tables(head) else None
    except OSError:
        return None
