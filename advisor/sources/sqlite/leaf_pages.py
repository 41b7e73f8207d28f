"""The records of leaf pages, decoded by NumPy.

Rows whose record headers are equal byte for byte have the same layout, and a block of pages has few
layouts: the header of one row of each is parsed in Python, the values of all rows are then gathered
by offset.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.arrays import Array
from advisor.sources.schema import MISSING, Ints

Bytes = NDArray[np.uint8]

LEAF = 13

#: Bytes of value for serial types 0..9; 7 is a real, 10 and 11 do not occur in files.
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_REAL, _ZERO, _ONE = 7, 8, 9

#: Odd multiplier that spreads header bytes over the hash, and its bits that choose a slot.
_SPREAD, _SLOT_BITS = np.uint64(0x9E3779B97F4A7C15), 20

#: More kinds than this in a block, and parsing their headers would cost more than SQL does.
_MOST_KINDS = 4096

#: Mask of the first n bytes of a big-endian word.
_FIRST_BYTES = np.array([(1 << 64) - (1 << 64 - 8 * n) for n in range(9)], np.uint64)


class NotPlain(Exception):
    """The table, or this part of it, is not a plain rowid table of short rows of integers."""


class _Layout(NamedTuple):
    """Where one kind of record holds the wanted values: of each its offset from the end of the header,
    64 - 8 * its bytes, the value itself where no bytes are stored, and whether any are. `payload`: bytes of
    header and values together."""

    values: list[tuple[int, int, int, bool]]
    payload: int


class Table(NamedTuple):
    """What is asked of a table, and the layouts of its records seen so far."""

    wanted: tuple[int, ...]  # places in the record
    layouts: dict[bytes, _Layout]
    keep: tuple[int, Ints] | None  # position in `wanted`, values


def decode(raw: Bytes, pages: int, size: int, table: Table) -> list[Ints]:
    """The wanted columns of all rows on leaf pages of `size` bytes; eight more bytes follow them."""
    cell = _cells(raw, pages, size)
    if not len(cell):
        return [np.empty(0, np.int64) for _ in table.wanted]
    payload, record = _payload(raw, cell)
    if int(np.max(payload)) > size - 35:
        raise NotPlain("rows that spill over to other pages")
    record = _after_varint(raw, record)  # the rowid
    header = raw[record]
    if int(np.max(header)) > 127:
        raise NotPlain("long record header")
    words = np.ndarray((len(raw) - 7,), ">i8", raw.data, strides=(1,))
    kind, rows = _group(words, record, header)
    layouts = []
    for row in rows:
        head = raw[record[row] : record[row] + header[row]].tobytes()
        layout = table.layouts.get(head)
        if layout is None:
            layout = table.layouts[head] = _parse(head, table.wanted)
        layouts.append(layout)
    if (np.array([layout.payload for layout in layouts])[kind] != payload).any():
        raise NotPlain("a record that contradicts its own length")
    values = _Values(words, record + header, kind, layouts)
    if table.keep is None:
        return [values.column(k) for k in range(len(table.wanted))]
    position, accepted = table.keep
    values.select(np.isin(values.column(position), accepted))
    return [values.column(k) for k in range(len(table.wanted))]


def _cells(raw: Bytes, pages: int, size: int) -> Ints:
    """Positions of all cells in the block, in the order of rows."""
    page = raw[: pages * size].reshape(pages, size)
    if (page[:, 0] != LEAF).any():
        raise NotPlain("leaves at different depths")
    count = page[:, 3:5].copy().view(">u2").astype(np.int64)  # one column
    most = int(np.max(count))
    if 8 + 2 * most > size:
        raise NotPlain("more cells than fit a page")
    pointer = page[:, 8 : 8 + 2 * most].copy().view(">u2").astype(np.int64)
    real = np.arange(most) < count
    base = np.arange(pages, dtype=np.int64)[:, None] * size
    if (pointer[real] >= size).any():
        raise NotPlain("pages point outside themselves")
    cells: Ints = (pointer + base)[real]
    return cells


class _Values:
    """The values of a block's rows, gathered column by column."""

    def __init__(self, words: Array, data: Ints, kind: Ints, layouts: list[_Layout]) -> None:
        self._words = words
        self._data = data
        self._kind = kind
        values = np.array([layout.values for layout in layouts], np.int64)
        self._offset, self._shift, self._constant, stored = values.T.copy()
        self._stored = stored.astype(bool)

    def select(self, rows: NDArray[np.bool_]) -> None:
        self._data = self._data[rows]
        self._kind = self._kind[rows]

    def column(self, k: int) -> Ints:
        stored, constant = self._stored[k], self._constant[k]
        if not stored.any():
            same: Ints = constant[self._kind]
            return same
        offset = self._by_row(self._offset[k])
        # Eight bytes from the value's first on: an arithmetic shift leaves it, sign and all.
        value: Ints = self._words[self._data + offset].astype(np.int64)
        value >>= self._by_row(self._shift[k])
        if not stored.all():
            value = np.where(stored[self._kind], value, constant[self._kind])
        return value

    def _by_row(self, of_layout: Ints) -> Any:
        """One number where all layouts agree, else one for each row."""
        first = of_layout[0]
        return first if (of_layout == first).all() else of_layout[self._kind]


def _payload(raw: Bytes, pos: Ints) -> tuple[Ints, Ints]:
    """The varint of one or two bytes at each position, and the positions behind it."""
    value = raw[pos].astype(np.int64)
    longer = value > 127
    if not longer.any():
        return value, pos + 1
    second = raw[pos + 1].astype(np.int64)
    if (longer & (second > 127)).any():
        raise NotPlain("rows of 16 KiB and more")
    value = np.where(longer, (value & 127) << 7 | second, value)
    return value, pos + 1 + longer


def _after_varint(raw: Bytes, pos: Ints) -> Ints:
    """The positions behind the varints at these positions."""
    more = raw[pos] > 127
    pos = pos + 1
    for _ in range(8):
        if not more.any():
            break
        again = raw[pos] > 127
        pos = pos + more
        more &= again
    return pos


def _group(words: Array, record: Ints, header: Bytes) -> tuple[Ints, Ints]:
    """Rows of equal record header: a number for each row's kind, and one row of each kind."""
    length = header.astype(np.int64)
    longest, even = int(np.max(length)), int(np.min(length)) == int(np.max(length))
    heads = []
    for at in range(0, longest, 8):
        word = words[record + at].astype(np.uint64)
        if not even or longest < at + 8:  # blank the bytes behind the header
            inside = np.clip((longest if even else length) - at, 0, 8)
            word &= _FIRST_BYTES[inside]
        heads.append(word)
    mixed = heads[0] * _SPREAD
    for word in heads[1:]:
        mixed = ((mixed ^ (mixed >> np.uint64(29))) + word) * _SPREAD
    # A slot for each kind, by the top bits of the hash: a table of which few slots are touched.
    slot = (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
    order = np.arange(len(record))
    number = np.empty(1 << _SLOT_BITS, np.int64)
    number[slot] = order  # of the rows of a slot the last one stays
    holder = number[slot]
    rows = np.flatnonzero(holder == order)
    number[slot[rows]] = np.arange(len(rows))
    kind: Ints = number[slot]
    if not _alike(heads, holder):  # two kinds in one slot: sort instead
        _, rows, kind = np.unique(mixed, return_index=True, return_inverse=True)
        if not _alike(heads, rows[kind]):
            raise NotPlain("two kinds of record with one hash")
    if len(rows) > _MOST_KINDS:
        raise NotPlain("too many kinds of record")
    return kind, rows


def _alike(heads: list[NDArray[np.uint64]], other: Ints) -> bool:
    """True if each row's header equals that of its other row."""
    return all(bool((word == word[other]).all()) for word in heads)


def _parse(head: bytes, wanted: tuple[int, ...]) -> _Layout:
    """The layout of records with this header."""
    kinds, at = [], 1
    while at < len(head):
        kind = 0
        while head[at] > 127:
            kind = kind << 7 | head[at] & 127
            at += 1
            if at == len(head):
                raise NotPlain("a header cut short")
        kinds.append(kind << 7 | head[at])
        at += 1
    if len(kinds) <= max(wanted):
        raise NotPlain("rows older than a column that was added to the table")
    starts = [0]
    for kind in kinds:
        starts.append(starts[-1] + (_SIZES[kind] if kind < 10 else (kind - 12) // 2))
    values = []
    for column in wanted:
        kind = kinds[column]
        if kind == _REAL or kind > _ONE:
            raise NotPlain("a column holds other than integers")
        size, constant = _SIZES[kind], {_ZERO: 0, _ONE: 1}.get(kind, MISSING)
        values.append((starts[column], 64 - 8 * size, constant, True) if size else (0, 0, constant, False))
    return _Layout(values, len(head) + starts[-1])
