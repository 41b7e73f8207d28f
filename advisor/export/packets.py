"""Packets of a Perfetto trace, whole columns at once.

The format is protobuf: `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto` and
`interned_data.proto` of github.com/google/perfetto. Numbers in packets of rows are varints of a
fixed width (continuation bits on leading zeros, as Perfetto itself writes lengths), so that the
packets of many rows are one matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.model.arrays import Array

#: Fields that are used, by message.
PACKET = 1  # of Trace
TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, SEQUENCE_FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
ANNOTATION, TYPE, NAME_IID, TRACK, CATEGORY_IID, DOUBLE_VALUE, FLOW = 4, 9, 10, 11, 3, 44, 47
ANNOTATION_NAME, INT_VALUE, TEXT_IID = 1, 4, 17
CATEGORIES, NAMES, ANNOTATION_NAMES, TEXTS = 1, 2, 3, 29  # of InternedData

#: `TrackEvent.Type`
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
#: `SequenceFlags`: earlier interned data is forgotten; this packet needs interned data.
CLEARED, NEEDS_INTERNED = 1, 2
#: The one sequence of packets that is written.
OURS = 1
#: Bytes of a varint that holds every time from 0 on.
TIME_BYTES = 9
#: Bytes of a varint that holds a negative number.
SIGNED_BYTES = 10

#: The content of a packet of rows: bytes common to all rows, and a matrix of bytes, one row each.
Part = bytes | Array


def varint(value: int) -> bytes:
    """One number, negative ones in two's complement of 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that is a varint."""
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes) -> bytes:
    """A field that is a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field that is a string."""
    return block(field, value.encode("utf-8", "replace"))


def packet(*fields: bytes) -> bytes:
    """One packet of our sequence."""
    return block(PACKET, b"".join(fields) + number(SEQUENCE, OURS))


def interned(field: int, first: int, texts: Sequence[str]) -> bytes:
    """A packet that gives texts their numbers, from `first` on."""
    rows = (block(field, number(1, i) + text(2, t)) for i, t in enumerate(texts, first))
    return packet(number(SEQUENCE_FLAGS, NEEDS_INTERNED), block(INTERNED, b"".join(rows)))


def width(most: int) -> int:
    """Bytes of a varint that holds numbers from 0 to `most`."""
    return max(-(-int(most).bit_length() // 7), 1)


def varints(values: Array, size: int) -> Array:
    """A matrix of bytes: each number as a varint of `size` bytes."""
    rest = values.astype(np.int64).view(np.uint64)
    out = np.empty((len(values), size), np.uint8)
    for i in range(size):
        out[:, i] = (rest & np.uint64(0x7F)).astype(np.uint8) | (0x80 if i < size - 1 else 0)
        rest = rest >> np.uint64(7)
    return out


def numbers(field: int, values: Array, size: int) -> list[Part]:
    """A field that is a varint, of many rows."""
    return [varint(field << 3), varints(values, size)]


def eight_bytes(field: int, values: Array) -> list[Part]:
    """A field of type fixed64 or double, of many rows; `values` have 8 bytes each."""
    return [varint(field << 3 | 1), np.ascontiguousarray(values).view(np.uint8).reshape(len(values), 8)]


def blocks(field: int, parts: Sequence[Part]) -> list[Part]:
    """A field that is a message, of many rows."""
    size = sum(len(p) if isinstance(p, bytes) else p.shape[1] for p in parts)
    return [varint(field << 3 | 2) + varint(size), *parts]


def events(time: Array, kind: int, *fields: Sequence[Part]) -> list[Part]:
    """A packet of one track event, of many rows; `time` in ns from 0 on."""
    event: list[Part] = [number(TYPE, kind)]
    for parts in fields:
        event += parts
    head = [
        *numbers(TIMESTAMP, time, TIME_BYTES),
        number(SEQUENCE, OURS) + number(SEQUENCE_FLAGS, NEEDS_INTERNED),
    ]
    return blocks(PACKET, [*head, *blocks(TRACK_EVENT, event)])


def matrix(parts: Sequence[Part], rows: int) -> Array:
    """Parts side by side, one row each."""
    arrays = (np.frombuffer(p, np.uint8) if isinstance(p, bytes) else p for p in parts)
    return np.concatenate([np.broadcast_to(a, (rows, a.shape[-1])) for a in arrays], axis=1)


def interleaved(kind: Array, matrices: Sequence[Array]) -> bytes:
    """Rows of several matrices in the order of `kind`: entry i is the next row of matrix kind[i]."""
    sizes = np.array([m.shape[1] for m in matrices], np.int32)
    size = sizes[kind]
    at = np.cumsum(size, dtype=np.int32) - size
    out = np.empty(int(size.sum()), np.uint8)
    for i, rows in enumerate(matrices):
        if len(rows):
            out[at[kind == i][:, None] + np.arange(rows.shape[1], dtype=np.int32)] = rows
    return out.tobytes()
