from collections.abc import Sequence

from advisor.model.arrays import Array

MOST_COLUMNS: int
NARROW: int

def decode(
    pages: Array,
    page_size: int,
    places: Array,
    outs: Sequence[Array],
    row: int,
    missing: int,
    keep: int,
    kept: Array,
) -> int: ...
def search(ranked: Array, wanted: Array, right: bool, out: Array) -> None: ...
def measure(start: Array, end: Array, left: Array, time: Array, negative: bool, out: Array) -> None: ...
def shares(
    start: Array, end: Array, column: Array, lo: Array, hi: Array, columns: int, across: bool, out: Array
) -> None: ...
