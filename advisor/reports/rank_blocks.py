"""The ranks of a job: a table of them, and in a line which of them make the others wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.model.facts import Cell
from advisor.model.findings import Diagnosis
from advisor.model.gain import WORTH
from advisor.model.numbers import column, percent
from advisor.reports.blocks import Block, Grid, Heading, first

SHOWN = 10
CAPTION = "shares of each rank's window; last and causes: of all collectives"
#: Columns of the document's table that are not shown, and shorter heads for some.
_LEFT_OUT = ("device", "window:ms", "compute:ratio")
_SHORT = {"exposed_collectives": "exposed", "comes_last": "last", "clock_offset": "clock"}


def ranks(diagnosis: Diagnosis, limit: int | None = None) -> Iterator[Block]:
    """The table of ranks, or of the `limit` that cause the most waiting; empty for a single rank."""
    table = diagnosis.tables.get("ranks")
    if table is None or len(table.rows) < 2:
        return
    at = {head: i for i, head in enumerate(table.columns)}

    def order(row: Sequence[Cell]) -> list[float]:
        """The rank that causes the most waiting first; on a tie, the one that waits the longest."""
        cells = (row[at[name]] for name in ("causes:ratio", "waits:ratio"))
        return [-float(cell) if isinstance(cell, int | float) else 0.0 for cell in cells]

    many = limit is not None and len(table.rows) > limit
    rows, hidden = first(sorted(table.rows, key=order) if many else table.rows, limit)
    heads, cells = [], []
    for head, i in at.items():
        values = [row[i] for row in rows]
        if head not in _LEFT_OUT and any(v is not None for v in values):
            name, colon, unit = head.partition(":")
            shown, texts, _ = column(f"{_SHORT.get(name, name)}{colon}{unit}", values)
            heads.append(shown)
            cells.append(texts)
    yield Heading("Ranks", CAPTION)
    yield Grid(tuple(heads), tuple(zip(*cells, strict=True)), hidden)


def _caused(diagnosis: Diagnosis) -> list[tuple[float, Cell]]:
    """Which share of the waiting in collectives each rank causes, the most first; empty where waiting takes
    less than is worth a fix."""
    table = diagnosis.tables.get("ranks")
    waits = next((f.value for f in diagnosis.facts if f.name == "ranks.wait_window_ratio"), None)
    if table is None or len(table.rows) < 2 or (isinstance(waits, float) and waits < WORTH):
        return []
    rank, causes = (table.columns.index(name) for name in ("rank", "causes:ratio"))
    cells = [(row[causes], row[rank]) for row in table.rows]
    known = [(float(share), name) for share, name in cells if isinstance(share, int | float) and share > 0]
    return sorted(known, key=lambda k: -k[0])


def late_and_waiting(diagnosis: Diagnosis) -> tuple[int, ...]:
    """The rank that causes the most waiting, and the one that causes the least of those that wait for it."""
    caused = [name for _, name in _caused(diagnosis) if isinstance(name, int)]
    if not caused:
        return ()
    others = [b.rank for b in diagnosis.budget if b.rank is not None and b.rank not in caused]
    return caused[0], (others or caused)[-1]


def waiting(diagnosis: Diagnosis, limit: int) -> str:
    """``rank 7 causes 44.7 % of the waiting in collectives, rank 5 30.8 %``: at most `limit` ranks, of those
    that cause enough to be worth a fix; empty where waiting takes less than that."""
    shown = [(share, name) for share, name in _caused(diagnosis)[:limit] if share >= WORTH]
    texts = [f"rank {name} {percent(share)}" for share, name in shown[1:]]
    if shown:
        texts.insert(0, f"rank {shown[0][1]} causes {percent(shown[0][0])} of the waiting in collectives")
    return ", ".join(texts)
