"""A Perfetto trace in protobuf: tracks that hold layers of slices, and counters, as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from advisor.export import packets as pb
from advisor.export.lanes import in_order, lanes
from advisor.model.arrays import Array

#: Events of which the bytes are made at once.
_CHUNK = 1 << 16
#: Texts in one packet.
_TEXTS = 1 << 12


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
    """A layer with what was interned of it, and where its rows begin among those of its group."""

    layer: Layer
    number: int
    first: int
    names: int
    fields: bytes
    notes: list[tuple[bytes, int, int, Array]] = field(default_factory=list)


class TraceFile(Struct):
    """Gives out ids and numbers; `zero` is what the capture's file calls its time 0, ns."""

    zero: int
    _ids: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, str], int] = field(default_factory=dict)
    _described: dict[int, bytes] = field(default_factory=dict)

    def begin(self) -> bytes:
        """The first packet."""
        return pb.packet(pb.number(pb.SEQUENCE_FLAGS, pb.CLEARED))

    def track(self, described: bytes) -> tuple[int, bytes]:
        """Id and packet of a new track, of which `described` is all but the id."""
        self._ids += 1
        self._described[self._ids] = described
        return self._ids, pb.packet(pb.block(pb.DESCRIPTOR, pb.number(1, self._ids) + described))

    def slices(self, layers: Sequence[Layer]) -> Iterator[bytes]:
        """Slices of layers that may lie on the same tracks, in the order of time."""
        layers = [layer for layer in layers if len(layer.start)]
        if not layers:
            return
        start = np.concatenate([layer.start for layer in layers]).astype(np.int64)
        end = np.maximum(np.concatenate([layer.end for layer in layers]).astype(np.int64), start)
        track = np.concatenate([layer.track for layer in layers]).astype(np.int64)
        order = in_order(start, end)
        lane = lanes(start, end, track, order)
        for row in np.flatnonzero(lane > 0)[_firsts(track[lane > 0], lane[lane > 0])].tolist():
            mine = (track == track[row]) & (lane == lane[row])
            # Tracks of one name below one parent are shown as one.
            new, described = self.track(self._described[int(track[row])])
            yield described
            track[mine], lane[mine] = new, 0
        encoded: list[_Encoded] = []
        for layer in layers:
            yield from self._intern(layer, encoded)
        kinds = np.concatenate([self._kinds(e, start, end) for e in encoded])
        sequence = np.empty(len(order.begins) + len(order.ends), np.int64)
        kind = np.full(len(sequence), 4 * len(layers), np.int16)
        sequence[order.begin_at], sequence[order.end_at] = order.begins, order.ends
        kind[order.begin_at] = kinds[order.begins]
        start, end = (np.maximum(t + self.zero, 0) for t in (start, end))
        for at in range(0, len(sequence), _CHUNK):
            rows, these = sequence[at : at + _CHUNK], kind[at : at + _CHUNK]
            yield pb.interleaved(these, self._matrices(encoded, rows, these, start, end, track))

    def counter(self, track: int, time: Array, value: Array) -> Iterator[bytes]:
        """Values of a counter track."""
        for at in range(0, len(time), _CHUNK):
            part = slice(at, at + _CHUNK)
            rows = np.maximum(time[part].astype(np.int64) + self.zero, 0)
            values = value[part].astype(np.float64)
            fields = [pb.number(pb.TRACK, track), *pb.eight_bytes(pb.DOUBLE_VALUE, values)]
            yield pb.matrix(pb.events(rows, pb.COUNTER, fields), len(rows)).tobytes()

    # -------------------------------------------------------------- one group of layers

    def _intern(self, layer: Layer, encoded: list[_Encoded]) -> Iterator[bytes]:
        """Add a layer to those of its group; the packets give its texts their numbers."""
        category, given = self._number(pb.CATEGORIES, layer.category)
        yield given
        names, given = self._texts(pb.NAMES, layer.names)
        yield given
        first = encoded[-1].first + len(encoded[-1].layer.start) if encoded else 0
        found = _Encoded(layer, len(encoded), first, names, pb.number(pb.CATEGORY_IID, category))
        for note in layer.notes:
            name, given = self._number(pb.ANNOTATION_NAMES, note.name)
            yield given
            head = pb.number(pb.ANNOTATION_NAME, name)
            if note.texts is None:
                signed = bool((note.values < 0).any())
                size = pb.SIGNED_BYTES if signed else pb.width(note.values.max())
                found.notes.append((head, pb.INT_VALUE, size, note.values))
            else:
                base, given = self._texts(pb.TEXTS, note.texts)
                yield given
                size = pb.width(base + len(note.texts))
                found.notes.append((head, pb.TEXT_IID, size, note.values.astype(np.int64) + base))
        encoded.append(found)

    def _number(self, field: int, text: str) -> tuple[int, bytes]:
        """The number of a text that several layers use, and the packet that gives it."""
        known = self._known.get((field, text))
        if known is not None:
            return known, b""
        found = self._texts(field, (text,))
        self._known[field, text] = found[0]
        return found

    def _texts(self, field: int, texts: Sequence[str]) -> tuple[int, bytes]:
        """The number of the first of these texts, which follow each other, and their packets."""
        first = self._numbers.get(field, 0) + 1
        self._numbers[field] = first + len(texts) - 1
        parts = range(0, len(texts), _TEXTS)
        return first, b"".join(pb.interned(field, first + i, texts[i : i + _TEXTS]) for i in parts)

    @staticmethod
    def _kinds(encoded: _Encoded, start: Array, end: Array) -> Array:
        """Kind of packet that begins each slice: 4 a layer, +1 with a flow, +2 without duration."""
        layer, first = encoded.layer, encoded.first
        rows = slice(first, first + len(layer.start))
        flow = 0 if layer.flow is None else (layer.flow > 0)
        return np.asarray(4 * encoded.number + flow + 2 * (end[rows] <= start[rows]), np.int16)

    def _matrices(
        self, encoded: Sequence[_Encoded], rows: Array, kinds: Array, start: Array, end: Array, track: Array
    ) -> list[Array]:
        size = pb.width(self._ids)
        found = []
        for kind in range(4 * len(encoded)):
            mine = rows[kinds == kind]
            kind_of = pb.INSTANT if kind & 2 else pb.BEGIN
            fields = self._fields(encoded[kind // 4], mine, track, size, bool(kind & 1))
            found.append(pb.matrix(pb.events(start[mine], kind_of, fields), len(mine)))
        mine = rows[kinds == 4 * len(encoded)]
        closing = pb.events(end[mine], pb.END, pb.numbers(pb.TRACK, track[mine], size))
        return [*found, pb.matrix(closing, len(mine))]

    @staticmethod
    def _fields(encoded: _Encoded, rows: Array, track: Array, size: int, flow: bool) -> list[pb.Part]:
        layer, own = encoded.layer, rows - encoded.first
        name_size = pb.width(encoded.names + len(layer.names))
        fields = [encoded.fields, *pb.numbers(pb.TRACK, track[rows], size)]
        fields += pb.numbers(pb.NAME_IID, layer.name[own].astype(np.int64) + encoded.names, name_size)
        for head, kind, width, values in encoded.notes:
            fields += pb.blocks(pb.ANNOTATION, [head, *pb.numbers(kind, values[own], width)])
        if flow and layer.flow is not None:
            fields += pb.eight_bytes(pb.FLOW, layer.flow[own].astype(np.int64))
        return fields


def _firsts(*keys: Array) -> Array:
    """Positions of the first row of each combination."""
    return np.sort(np.unique(np.stack(keys), axis=1, return_index=True)[1])
