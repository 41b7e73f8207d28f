"""A table as it appears in a text: its rows as they are added, and the tables of sums that it is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from advisor.sources.pasted import locales
from advisor.sources.pasted.header import Header
from advisor.sources.pasted.headings import TEXTS
from advisor.sources.ranges import MOST_NS

#: Name of the row for the part of a table that its shares show as missing.
REST = "[rows that were not pasted]"
_CUT = 99.0
_CALL = re.compile(r"^(?:cuda|hip)[A-Z]\w+|^cu[A-Z]\w+")

Values = dict[str, float]


class Row(NamedTuple):
    """One line: its name and its numbers by field; times in ns, sizes in bytes."""

    name: str
    values: Values


class Table(Struct):
    """One table. `report` is the subject of its rows: kernels, calls, copies, sizes, ranges, host_calls,
    or queue; `torn` counts unreadable lines inside it, `doubtful` rows whose numbers can be read in two ways.
    Tables of one `kind` are one report of nsys."""

    report: str
    rows: list[Row] = field(default_factory=list)
    torn: int = 0
    kind: str = ""
    doubtful: int = 0


class RawTable(Struct):
    """A table as it appears in the text."""

    header: Header
    hint: str
    cells: list[dict[str, Any]] = field(default_factory=list)
    torn: int = 0
    doubtful: int = 0
    _read: list[tuple[dict[str, Any] | None, ...]] = field(default_factory=list)

    @property
    def derived(self) -> bool:
        """Whether its rows are also those of another report, split or joined differently."""
        fields = self.header.fields
        return bool(fields & {"category", "kernels.average", "duration"}) or {"name", "range"} <= fields

    def add(self, cells: Sequence[str] | None) -> bool:
        """Add one row; False if the cells do not form a row."""
        columns = self.header.columns
        if cells is None or len(cells) < len(columns):
            return False
        if len(cells) > len(columns):  # a name with the delimiter in it
            cut = len(columns) - 1
            cells = [*cells[:cut], self.header.delimiter.join(cells[cut:])]
        read_ = tuple(self._row(cells, way) for way in locales.WAYS)
        self._read.append(read_)
        if not any(read_):
            self._read.pop()
            return False
        return True

    def _row(self, cells: Sequence[str], way: int) -> dict[str, Any] | None:
        """The cells of a row, its numbers read in one way; None if that cannot be."""
        row: dict[str, Any] = {}
        try:
            for column, cell in zip(self.header.columns, cells, strict=True):
                if column is None or column.field == "word":
                    continue
                if column.field in TEXTS:
                    row[column.field] = str(cell).strip().strip('"')
                else:
                    value = locales.read(str(cell), way) * column.scale
                    if column.field and not (column.field == "count" and not value > 0):
                        row[column.field] = value
        except ValueError:
            return None
        return row if (row.get("name") or row.get("range")) and _is_possible(row) else None

    def settle(self) -> None:
        """Decide how the numbers are written: the way in which most rows can be read, and most add up."""
        ways = [[row[way] for row in self._read] for way in locales.WAYS]
        scores = [locales.score(rows) for rows in ways]
        best = max(locales.WAYS, key=lambda way: (scores[way], -way))
        found = [row for row in ways[best] if row is not None]
        self.torn += len(self._read) - len(found)
        other = [ways[way] for way in locales.WAYS if scores[way] == scores[best]]
        self.doubtful = max(sum(a != b for a, b in zip(ways[best], rows, strict=True)) for rows in other)
        self.cells, self._read = found, []

    def tables(self) -> Iterator[Table]:
        """The tables that it is made of: some reports join several."""
        fields = self.header.fields
        if "kernels.average" in fields:
            yield from self._launches()
        elif "duration" in fields:
            yield from self._summed()
        elif {"name", "range"} <= fields:
            yield from self._of_largest_range()
        elif "category" in fields:
            kinds = {"CUDA_API": "calls", "CUDA_KERNEL": "kernels", "MEMORY_OPER": "copies"}
            for category, report in kinds.items():
                rows = [c for c in self.cells if str(c.get("category", "")).upper() == category]
                yield Table(report, [_row(c) for c in rows], self.torn)
        else:
            yield Table(self._report(), [*map(_row, self.cells), *self._rest()], self.torn)

    def _rest(self) -> Iterator[Row]:
        """The missing part, by the shares, if only the first rows were pasted."""
        shown = math.fsum(c.get("percent", math.nan) for c in self.cells)
        total = math.fsum(c.get("total", math.nan) for c in self.cells)
        if 0 < shown < _CUT and total > 0 and "range" not in self.cells[0]:
            yield Row(REST, {"total": total * (100.0 - shown) / shown, "count": 0})

    def _report(self) -> str:
        names = [str(c.get("name", "")) for c in self.cells]
        if "range" in self.header.fields:
            return "ranges"
        if any(c.bytes for c in self.header.columns if c) or "size" in self.hint:
            return "sizes"
        if names and all(n.startswith("[CUDA") for n in names):
            return "copies"
        for word, report in (
            ("osrt", "host_calls"),
            ("operating", "host_calls"),
            ("api", "calls"),
            ("kern", "kernels"),
            ("mem", "copies"),
        ):
            if word in self.hint:
                return report
        calls = sum(bool(_CALL.match(n)) for n in names)
        if 2 * calls >= len(names):
            return "calls"
        plain = sum(bool(re.fullmatch(r"[a-z_][a-z0-9_]*", n)) and "kernel" not in n for n in names)
        return "host_calls" if plain == len(names) and not _IS_KERNEL.search(" ".join(names)) else "kernels"

    def _launches(self) -> Iterator[Table]:
        """cuda_kern_exec_sum: time of the launch calls, the queue and the kernels, by kernel."""
        for report in ("kernels", "queue"):
            rows = []
            for cells in self.cells:
                count = cells.get(f"{report}.count", cells.get("count", math.nan))
                values = {f.partition(".")[2]: v for f, v in cells.items() if f.startswith(report + ".")}
                values |= {"count": count, "total": count * values.get("average", math.nan)}
                if count > 0:
                    rows.append(Row(cells["name"], values))
            yield Table(report, rows, self.torn)

    def _summed(self) -> Iterator[Table]:
        """Reports with a line for every operation or call."""
        by_name: dict[tuple[str, str], list[float]] = {}
        for cells in self.cells:
            name, copy = cells["name"], cells["name"].startswith("[CUDA")
            report = "copies" if copy else "calls" if _CALL.match(name) else "kernels"
            by_name.setdefault((report, name), []).append(cells["duration"])
            if copy and not math.isnan(cells.get("bytes", math.nan)):
                by_name.setdefault(("sizes", name), []).append(cells["bytes"])
        for report in dict.fromkeys(r for r, _ in by_name):
            rows = [Row(n, _statistics(sorted(v))) for (r, n), v in by_name.items() if r == report]
            yield Table(report, rows, self.torn)

    def _of_largest_range(self) -> Iterator[Table]:
        """nvtx_kern_sum counts a kernel in every range around it, so only one kind of range is used."""
        total: dict[str, float] = {}
        for cells in self.cells:
            kind = re.sub(r"\d+", "#", cells["range"])
            total[kind] = total.get(kind, 0.0) + cells.get("total", 0.0)
        largest = max(total, key=lambda k: total[k], default="")
        rows = [_row(c) for c in self.cells if re.sub(r"\d+", "#", c["range"]) == largest]
        yield Table("kernels", rows, self.torn)


def _is_possible(row: dict[str, Any]) -> bool:
    """Whether no number is below 0 or longer than any recording, the middle ones lie between the least and
    the most, and the total is one of so many numbers."""
    if not all(0 <= row.get(n, 0) < MOST_NS for n in _KNOWN):
        return False
    if any(v < 0 for n, v in row.items() if n not in TEXTS) or row.get("percent", 0.0) > _MOST_PERCENT:
        return False
    least, most = row.get("least", 0.0), row.get("most", math.inf)
    room = _ROUNDED * most + _ROUNDED_NS if most < math.inf else 0.0
    if any(v < least - room or v > most + room for n in _MIDDLE if (v := row.get(n)) is not None):
        return False
    total, count = row.get("total", math.nan), row.get("count", math.nan)
    lowest = max(most if most < math.inf else 0.0, count * least)
    return not (total < lowest * (1 - _ROUNDED) - _ROUNDED_NS * count or total > count * (most + room))


#: Numbers of a row that no table leaves empty, and those between the least and the most.
_KNOWN = ("count", "total", "average", "least", "most", "duration")
_MIDDLE = ("average", "median")
#: Tables round: to a microsecond, in units of seconds more.
_ROUNDED, _ROUNDED_NS, _MOST_PERCENT = 0.01, 1_000.0, 100.5

_IS_KERNEL = re.compile(
    r"(?i)gemm|attention|norm|softmax|elementwise|nccl|reduce|_kernel|triton_|nvjet|cutlass"
)


def _row(cells: dict[str, Any]) -> Row:
    """Total, count and mean follow from each other."""
    values = {f: v for f, v in cells.items() if f not in TEXTS}
    count, total = values.get("count", math.nan), values.get("total", math.nan)
    average = values.get("average", math.nan)
    if math.isnan(total):
        values["total"] = count * average
    if math.isnan(count):
        values["count"] = round(total / average) if average else math.nan
    # Since 2023 a range begins with its domain, which is empty for most.
    return Row(cells.get("name") or cells["range"].removeprefix(":"), values)


def _statistics(values: list[float]) -> Values:
    n, total = len(values), math.fsum(values)
    median = (values[(n - 1) // 2] + values[n // 2]) / 2
    return {
        "count": n,
        "total": total,
        "average": total / n,
        "median": median,
        "least": values[0],
        "most": values[-1],
    }
