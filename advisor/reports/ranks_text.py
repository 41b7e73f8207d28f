"""The ranks of a job, one line each: what they hide, which ranks they wait for, which comes last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.model.facts import Cell
from advisor.model.findings import UNREADABLE, Diagnosis
from advisor.model.numbers import column, value_text
from advisor.reports.blocks import Block, Grid, Heading, Labelled, Title
from advisor.reports.layout import GLUE
from advisor.reports.phrases import machine, workload

SHOWN = 16
CAPTION = "shares of each rank's window; last and causes: of all collectives"
#: Columns of the table of ranks that are shown here, with a shorter head; all are in the document.
_HEADS = {
    "rank": "rank",
    "busy:ratio": "busy:ratio",
    "exposed_collectives:ratio": "exposed:ratio",
    "overlap:ratio": "overlap:ratio",
    "waits:ratio": "waits:ratio",
    "comes_last:ratio": "last:ratio",
    "causes:ratio": "causes:ratio",
    "clock_offset:us": "clock:us",
}


def job(diagnosis: Diagnosis) -> Iterator[Block]:
    """The captures of one job in a few lines: what they share, and what each has to say."""
    read = [i for i in diagnosis.inputs if i.format != UNREADABLE]
    first, last = diagnosis.inputs[0], diagnosis.inputs[-1]
    yield Title(first.path)
    if first.path != last.path:
        yield Title(f"to {last.path}")
    yield Labelled("ranks", ranks_read(diagnosis))
    if read:
        names = ("device", "producer", "driver")
        shared = read[0].model_copy(update={n: _same([getattr(i, n) for i in read]) for n in names})
        yield Labelled("captured", f"{GLUE}· ".join(machine(shared)))
        yield Labelled("workload", workload(read[0]))
        busy = [i.busy_share for i in read if i.busy_share is not None]
        if busy:
            ends = dict.fromkeys(value_text(b, "ratio") for b in (min(busy), max(busy)))
            yield Labelled("load", f"GPUs busy {' to '.join(ends)} of their windows")
    for entry in (i for i in diagnosis.inputs if i.format == UNREADABLE):
        yield Labelled("missing", f"rank {entry.rank}: {'; '.join(entry.warnings)}")
    for rank, text in ((i.rank, w) for i in read for w in i.warnings):
        yield Labelled("warning", f"rank {rank}: {text}")


def ranks_read(diagnosis: Diagnosis) -> str:
    """``2 of 3 read``: of the ranks of the job, as far as its captures say how many there are."""
    read = sum(i.format != UNREADABLE for i in diagnosis.inputs)
    sizes = (f.value for f in diagnosis.facts if f.name == "ranks.world_size")
    world = max([len(diagnosis.inputs), *(v for v in sizes if isinstance(v, int))])
    return f"{read} of {world} read" if world > read else f"{read} read"


def _same(texts: Sequence[str | None]) -> str | None:
    """What all say, else what most say with a word on the rest."""
    known = Counter(t for t in texts if t)
    if not known:
        return None
    text, _ = min(known.items(), key=lambda item: (-item[1], item[0]))
    return text if len(known) == 1 else f"{text} and others"


def ranks(diagnosis: Diagnosis, limit: int | None = None) -> Iterator[Block]:
    """The table of ranks, of many those that cause most waiting; nothing where one stands alone."""
    table = rank_columns(diagnosis, limit)
    if table is not None:
        yield Heading("Ranks", CAPTION)
        yield Grid(
            tuple(table.heads), tuple(zip(*(texts for texts, _ in table.cells), strict=True)), table.hidden
        )


class RankTable(NamedTuple):
    """The table of ranks by column: texts, and whether they are numbers; `hidden` ranks are left
    out."""

    heads: list[str]
    cells: list[tuple[list[str], bool]]
    hidden: int


def rank_columns(diagnosis: Diagnosis, limit: int | None) -> RankTable | None:
    """At most `limit` ranks, those that cause most waiting; None where one rank stands alone."""
    table = diagnosis.tables.get("ranks")
    if table is None or len(table.rows) < 2:
        return None
    at = {head: i for i, head in enumerate(table.columns)}
    rows = list(table.rows)
    hidden = 0
    if limit is not None and len(rows) > limit:
        rows.sort(key=lambda r: (-_number(r[at["causes:ratio"]]), -_number(r[at["waits:ratio"]])))
        hidden = len(rows) - limit
        rows = rows[:limit]
    heads, cells = [], []
    for head, short in _HEADS.items():
        values = [row[at[head]] for row in rows]
        if head in at and any(v is not None for v in values):
            name, texts, number = column(short, values)
            heads.append(name)
            cells.append((texts, number))
    return RankTable(heads, cells, hidden)


def path_of(diagnosis: Diagnosis, rank: int | None) -> str:
    """The file that a finding about this rank is about: else the first one."""
    own = next((i.path for i in diagnosis.inputs if rank is not None and i.rank == rank), None)
    return own or (diagnosis.inputs[0].path if diagnosis.inputs else "")


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0
