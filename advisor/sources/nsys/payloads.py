"""Sizes and communicators of collectives, from the payloads of NCCL's NVTX ranges.

NCCL puts them into the payload of its NVTX ranges (fields by name, from src/include/nvtx_payload_schemas.h of
NCCL). The export describes payloads in NVTX_PAYLOAD_SCHEMAS and _ENTRIES and keeps them as bytes in
`NVTX_EVENTS.binaryData`, behind a header that names the schema. Kernels carry none of it: a range belongs to
the kernel that its thread launches next, for inside a group NCCL launches at its end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advisor.sources.nsys.table_map import NVTX, NVTX_RANGES, process_of, thread_of
from advisor.sources.schema import MISSING, Call, Ints
from advisor.sources.trace import Columns, Is, RawTables, rows_of

SCHEMAS, ENTRIES = "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
PAYLOAD = "binaryData"
SIZE, COMMUNICATOR = "Message size [bytes]", "NCCL communicator ID"

#: Domain, schema, size of the payload and total size, each in 64 bits, of which the first two use 32
#: (seen in exports of 2026); then the payload. The fields read are 64-bit numbers.
_HEADER, _FIELD = struct.Struct("<IIIIQQ"), struct.Struct("<Q")
_MOST_BYTES = 1 << 62


class Layout(NamedTuple):
    """Positions of size and communicator in a payload of one schema; `length` of the whole payload."""

    length: int
    size: int
    communicator: int


class Operation(NamedTuple):
    """One call of NCCL that moves data: its thread, start, size and communicator."""

    start: int
    bytes: int
    communicator: int


def layouts(raw: RawTables) -> dict[int, Layout]:
    """Schema -> layout, for the schemas of calls that move data."""
    fields: dict[int, dict[str, int]] = {}
    for schema, name, offset in rows_of(raw, ENTRIES, schemaId=int, name=str, offset=object):
        if name in (SIZE, COMMUNICATOR):
            fields.setdefault(schema, {})[name] = offset or 0
    return {
        schema: Layout(length, at[SIZE], at[COMMUNICATOR])
        for schema, length in rows_of(raw, SCHEMAS, schemaId=int, payloadSize=int)
        if len(at := fields.get(schema, {})) == 2 and max(at.values()) + _FIELD.size <= length
    }


def payloads_recorded(raw: RawTables, nvtx: str = NVTX) -> bool:
    """True if NVTX ranges of the export carry payloads of NCCL calls."""
    if not raw.has(ENTRIES) or PAYLOAD not in raw.columns(nvtx) or not layouts(raw):
        return False
    return raw.count(nvtx, [{PAYLOAD: Is.SET}], at_most=1) > 0


def operations(raw: RawTables, nvtx: str = NVTX) -> dict[int, list[Operation]]:
    """The calls by thread (serialised id), in order of time."""
    known = layouts(raw)
    out: dict[int, list[Operation]] = {}
    start, thread, kind = (c.tolist() for c in raw.read(nvtx, ["start", "globalTid", "eventType"]))
    for i, payload in enumerate(raw.blobs(nvtx, PAYLOAD)):
        if payload is not None and kind[i] in NVTX_RANGES:
            found = _decoded(payload, known)
            if found is not None:
                out.setdefault(thread[i], []).append(Operation(start[i], *found))
    return {thread: sorted(calls) for thread, calls in out.items()}


def _decoded(payload: bytes, known: dict[int, Layout]) -> tuple[int, int] | None:
    """(bytes, communicator) of a payload of a known schema; None if anything in it is invalid."""
    if len(payload) < _HEADER.size:
        return None
    _, _, schema, _, length, _ = _HEADER.unpack_from(payload)
    layout = known.get(schema)
    if layout is None or length != layout.length or len(payload) < _HEADER.size + length:
        return None
    size, group = (
        _FIELD.unpack_from(payload, _HEADER.size + at)[0] for at in (layout.size, layout.communicator)
    )
    return (size, group) if size < _MOST_BYTES else None


def attributed(operations: Sequence[Operation], launches: Sequence[int]) -> list[Operation | None]:
    """For each launch of a collective kernel on one thread (start times, ascending) its call; None if a
    group of calls became fewer or more kernels."""
    out: list[Operation | None] = []
    done = 0
    at = 0
    while at < len(launches):
        until = done
        while until < len(operations) and operations[until].start <= launches[at]:
            until += 1
        # Launches with no further call in between belong to the same group.
        last = at + 1
        following = operations[until].start if until < len(operations) else None
        while last < len(launches) and (following is None or launches[last] < following):
            last += 1
        group = operations[done:until]
        whole = len(group) == last - at
        out += group if whole else [None] * (last - at)
        done, at = until, last
    return out


def collectives(raw: RawTables, nvtx: str, kernels: Columns, nccl: Ints, calls: Columns) -> Columns:
    """The table `collectives` with `communicator` instead of an id. `nccl` are the rows of its `kernels`."""
    launch = np.flatnonzero(calls["call"] == int(Call.LAUNCH))
    keys = _keys(calls["process"][launch], calls["correlation"][launch])
    order = np.argsort(keys, kind="stable")
    wanted = _keys(kernels["process"][nccl], kernels["correlation"][nccl])
    place = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
    hit = (keys[order][place] == wanted) if len(keys) else np.zeros(len(nccl), bool)
    row = launch[order[place]] if len(keys) else place
    size = np.full(len(nccl), MISSING, np.int64)
    group = np.zeros(len(nccl), np.uint64)
    for thread, served in operations(raw, nvtx).items():
        process, number = (int(f(np.array([thread]))[0]) for f in (process_of, thread_of))
        same = (calls["process"][row] == process) & (calls["thread"][row] == number)
        mine = np.flatnonzero(hit & same)
        mine = mine[np.argsort(calls["start"][row[mine]], kind="stable")]
        for i, found in zip(
            mine.tolist(), attributed(served, calls["start"][row[mine]].tolist()), strict=True
        ):
            if found is not None:
                size[i], group[i] = found.bytes, found.communicator
    known = np.flatnonzero(size != MISSING)
    rows = nccl[known]
    return {
        **{n: kernels[n][rows] for n in ("start", "device", "stream", "process", "correlation")},
        "bytes": size[known],
        "communicator": group[known].astype(np.int64, casting="unsafe"),
        "sequence": np.full(len(rows), MISSING, np.int64),
        "name_id": np.full(len(rows), MISSING, np.int64),
    }


def _keys(process: Ints, correlation: Ints) -> Ints:
    return (process << 32) + correlation
