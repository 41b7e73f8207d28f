"""A Perfetto trace in protobuf: tracks that hold layers of slices, and counters, as a stream.

A track of Perfetto is a stack: an interval that begins inside another one has to end inside it.
Intervals that break this go to further lanes of their track.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from advisor.export import packets as pb
from advisor.model.arrays import Array, distinct


class Order(Struct, frozen=True):
    """Beginnings and ends of intervals in the order of time. `begins` are rows by (start, longest
    first); each is at `begin_at` of the sequence. `ends` are the rows with a duration, by end, the
    innermost first; each is at `end_at`. An end comes before a beginning at the same time."""

    begins: Array
    ends: Array
    begin_at: Array
    end_at: Array


def in_order(start: Array, end: Array) -> Order:
    """The order of intervals with ``end >= start``."""
    begins = np.lexsort((-end, start)) if len(start) else np.empty(0, np.int64)
    lasting = begins[end[begins] > start[begins]]
    backwards = lasting[::-1]
    ends = backwards[np.argsort(end[backwards], kind="stable")]
    starts, stops = start[begins], end[ends]
    begin_at = np.arange(len(begins)) + np.searchsorted(stops, starts, "right")
    end_at = np.arange(len(ends)) + np.searchsorted(starts, stops, "left")
    return Order(begins, ends, begin_at, end_at)


def lanes(start: Array, end: Array, track: Array, order: Order | None = None) -> Array:
    """Lane of each interval within its track, 0 if the track's intervals nest."""
    lane = np.zeros(len(start), np.int64)
    order = order or in_order(start, end)
    # Points in time are left out: they fit everywhere.
    lasting = end[order.begins] > start[order.begins]
    rows = np.concatenate((order.begins[lasting], order.ends))
    at = np.concatenate((order.begin_at[lasting], order.end_at))
    opens = np.repeat([1, -1], [int(lasting.sum()), len(order.ends)])
    by_track = np.lexsort((at, track[rows]))
    rows, opens = rows[by_track], opens[by_track]
    # An end belongs to the latest open beginning of its level: the same interval, if all nest.
    level = np.cumsum(opens) + (opens < 0)
    pairs = rows[np.argsort(level, kind="stable")].reshape(-1, 2)
    for name in distinct(track[pairs[pairs[:, 0] != pairs[:, 1]]]).tolist():
        mine = order.begins[track[order.begins] == name]
        lane[mine] = _first_free(start[mine].tolist(), end[mine].tolist())
    return lane


def _first_free(starts: list[int], ends: list[int]) -> list[int]:
    """The first lane on which each interval nests; they are ordered by (start, longest first)."""
    open_: list[list[int]] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        for lane, stack in enumerate(open_):  # noqa: B007
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or stack[-1] >= end:
                break
        else:
            lane, stack = len(open_), []
            open_.append(stack)
        if end > start:
            stack.append(end)
        found.append(lane)
    return found


#: Number of events encoded at once, of slices sorted at once (about), and of texts in one packet.
_CHUNK, _ROWS, _TEXTS = 1 << 16, 1 << 17, 1 << 12


class Note(Struct, frozen=True):
    """One detail of every slice of a layer: numbers, or with `texts` positions in these."""

    name: str
    values: Array
    texts: Sequence[str] | None = None


class Layer(Struct, frozen=True):
    """Slices of one kind. `track` are ids of tracks, `name` positions in `names`, and slices of one
    `flow` above 0 are joined by arrows. Times are ns from the capture's zero."""

    category: str
    start: Array
    end: Array
    track: Array
    name: Array
    names: Sequence[str]
    notes: tuple[Note, ...] = ()
    flow: Array | None = None


class _Encoded(Struct, frozen=True):
    """A layer with its interned texts, and its number in its group."""

    layer: Layer
    number: int
    names: int
    fields: bytes
    notes: list[tuple[bytes, int, int, Array]] = field(default_factory=list)


class _Part(Struct, frozen=True):
    """Rows of a group of layers written together: `rows` of each layer, and the first position of each."""

    rows: list[Array]
    first: list[int]
    start: Array
    end: Array
    track: Array


def _first() -> list[bytes]:
    return [pb.packet(pb.number(pb.SEQUENCE_FLAGS, pb.CLEARED))]


class TraceFile(Struct):
    """Gives out ids and numbers; `zero` is what the capture's file calls its time 0, ns. `new` packets
    describe tracks and texts; they come before the next slices or values."""

    zero: int
    new: list[bytes] = field(default_factory=_first)
    _ids: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, str], int] = field(default_factory=dict)
    _described: dict[int, bytes] = field(default_factory=dict)
    _lanes: dict[tuple[int, int], int] = field(default_factory=dict)

    def take(self) -> bytes:
        """The packets that are new since the last call."""
        new, self.new = b"".join(self.new), []
        return new

    def track(self, described: bytes) -> int:
        """Id of a new track; `described` is the encoded description without the id."""
        self._ids += 1
        self._described[self._ids] = described
        self.new.append(pb.packet(pb.block(pb.DESCRIPTOR, pb.number(1, self._ids) + described)))
        return self._ids

    def slices(self, layers: Sequence[Layer]) -> Iterator[bytes]:
        """Slices of layers that may lie on the same tracks, in the order of time."""
        layers = [layer for layer in layers if len(layer.start)]
        encoded = [self._intern(layer, number) for number, layer in enumerate(layers)]
        for part in _parts(layers):
            yield from self._slices(encoded, part)

    def _slices(self, encoded: Sequence[_Encoded], part: _Part) -> Iterator[bytes]:
        start, end, track = part.start, part.end, part.track
        order = in_order(start, end)
        lane = lanes(start, end, track, order)
        above = np.flatnonzero(lane)
        _, first = np.unique(np.stack((track[above], lane[above])), axis=1, return_index=True)
        for row in above[np.sort(first)].tolist():
            mine = (track == track[row]) & (lane == lane[row])
            key = int(track[row]), int(lane[row])
            if key not in self._lanes:
                # Tracks of one name below one parent are shown as one.
                self._lanes[key] = self.track(self._described[key[0]])
            track[mine], lane[mine] = self._lanes[key], 0
        kinds = np.concatenate([self._kinds(e, part) for e in encoded])
        sequence = np.empty(len(order.begins) + len(order.ends), np.int64)
        kind = np.full(len(sequence), 4 * len(encoded), np.int16)
        sequence[order.begin_at], sequence[order.end_at] = order.begins, order.ends
        kind[order.begin_at] = kinds[order.begins]
        yield self.take()
        for at in range(0, len(sequence), _CHUNK):
            rows, these = sequence[at : at + _CHUNK], kind[at : at + _CHUNK]
            yield pb.interleaved(these, self._matrices(encoded, part, rows, these))

    def counter(self, track: int, time: Array, value: Array) -> Iterator[bytes]:
        """Values of a counter track."""
        yield self.take()
        for at in range(0, len(time), _CHUNK):
            part = slice(at, at + _CHUNK)
            rows = np.maximum(time[part].astype(np.int64) + self.zero, 0)
            values = value[part].astype(np.float64)
            fields = [pb.number(pb.TRACK, track), *pb.eight_bytes(pb.DOUBLE_VALUE, values)]
            yield pb.matrix(pb.events(rows, pb.COUNTER, fields), len(rows)).tobytes()

    def _intern(self, layer: Layer, number: int) -> _Encoded:
        """A layer of a group, by number, whose texts have numbers."""
        category = self._number(pb.CATEGORIES, layer.category)
        names = self._texts(pb.NAMES, layer.names)
        found = _Encoded(layer, number, names, pb.number(pb.CATEGORY_IID, category))
        for note in layer.notes:
            head = pb.number(pb.ANNOTATION_NAME, self._number(pb.ANNOTATION_NAMES, note.name))
            if note.texts is None:
                size = pb.SIGNED_BYTES if (note.values < 0).any() else pb.width(note.values.max())
                found.notes.append((head, pb.INT_VALUE, size, note.values))
            else:
                base = self._texts(pb.TEXTS, note.texts)
                size = pb.width(base + len(note.texts))
                found.notes.append((head, pb.TEXT_IID, size, note.values + base))
        return found

    def _number(self, field: int, text: str) -> int:
        """The number of a text that several layers use."""
        if (field, text) not in self._known:
            self._known[field, text] = self._texts(field, (text,))
        return self._known[field, text]

    def _texts(self, field: int, texts: Sequence[str]) -> int:
        """The number of the first of these texts, which follow each other."""
        first = self._numbers.get(field, 0) + 1
        self._numbers[field] = first + len(texts) - 1
        parts = range(0, len(texts), _TEXTS)
        self.new += (pb.interned(field, first + i, texts[i : i + _TEXTS]) for i in parts)
        return first

    @staticmethod
    def _kinds(encoded: _Encoded, part: _Part) -> Array:
        """Kind of packet that begins each slice: 4 a layer, +1 with a flow, +2 without duration."""
        layer, rows = encoded.layer, part.rows[encoded.number]
        own = slice(first := part.first[encoded.number], first + len(rows))
        flow = 0 if layer.flow is None else (layer.flow[rows] > 0)
        return np.asarray(4 * encoded.number + flow + 2 * (part.end[own] <= part.start[own]), np.int16)

    def _matrices(self, encoded: Sequence[_Encoded], part: _Part, rows: Array, kinds: Array) -> list[Array]:
        size = pb.width(self._ids)
        found = []
        for kind in range(4 * len(encoded)):
            mine = rows[kinds == kind]
            kind_of = pb.INSTANT if kind & 2 else pb.BEGIN
            fields = self._fields(encoded[kind // 4], part, mine, size, bool(kind & 1))
            found.append(pb.matrix(pb.events(self._time(part.start[mine]), kind_of, fields), len(mine)))
        mine = rows[kinds == 4 * len(encoded)]
        tracks = pb.numbers(pb.TRACK, part.track[mine], size)
        closing = pb.events(self._time(part.end[mine]), pb.END, tracks)
        return [*found, pb.matrix(closing, len(mine))]

    def _time(self, time: Array) -> Array:
        return np.maximum(time.astype(np.int64) + self.zero, 0)

    @staticmethod
    def _fields(encoded: _Encoded, part: _Part, rows: Array, size: int, flow: bool) -> list[pb.Part]:
        layer = encoded.layer
        own = part.rows[encoded.number][rows - part.first[encoded.number]]
        name_size = pb.width(encoded.names + len(layer.names))
        fields = [encoded.fields, *pb.numbers(pb.TRACK, part.track[rows], size)]
        fields += pb.numbers(pb.NAME_IID, layer.name[own].astype(np.int64) + encoded.names, name_size)
        for head, kind, width, values in encoded.notes:
            fields += pb.blocks(pb.ANNOTATION, [head, *pb.numbers(kind, values[own], width)])
        if flow and layer.flow is not None:
            fields += pb.eight_bytes(pb.FLOW, layer.flow[own].astype(np.int64))
        return fields


def _parts(layers: Sequence[Layer]) -> Iterator[_Part]:
    """The rows of a group, in parts that end where no slice is open, so that no slice lies in two."""
    if not layers:
        return
    cuts = _quiet(layers)
    of = [np.searchsorted(cuts, layer.start, "right").astype(np.int32) for layer in layers]
    for number in range(len(cuts) + 1):
        rows = [np.flatnonzero(part == number) for part in of]
        start, end, track = (
            np.concatenate(
                [getattr(layer, name)[own] for layer, own in zip(layers, rows, strict=True)]
            ).astype(np.int64)
            for name in ("start", "end", "track")
        )
        first = np.cumsum([0, *map(len, rows)]).tolist()
        yield _Part(rows, first, start, np.maximum(end, start), track)


def _quiet(layers: Sequence[Layer]) -> Array:
    """Times at which no slice of the layers is open, about `_ROWS` rows apart."""
    start = np.concatenate([layer.start for layer in layers])
    if len(start) <= _ROWS:
        return np.empty(0, np.int64)
    order = np.argsort(start, kind="stable")
    end = np.concatenate([layer.end for layer in layers])[order]
    start = start[order]
    quiet = np.flatnonzero(start[1:] > np.maximum.accumulate(np.maximum(end, start))[:-1]) + 1
    at = np.searchsorted(quiet, np.arange(_ROWS, len(start), _ROWS))
    return np.asarray(start[np.unique(quiet[at[at < len(quiet)]])])
