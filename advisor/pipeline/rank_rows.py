"""The ranks in one capture: the collectives of each device that has any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict

from advisor.metrics.collectives import LEADS, Collectives, device_collectives, leads
from advisor.metrics.pace import kernel_paces
from advisor.ranks.align import UNKNOWN, RankRows

if TYPE_CHECKING:
    from advisor.facts.communication import CrossRank
    from advisor.facts.writer import FactWriter
    from advisor.metrics.analysis import Analysis
    from advisor.model.facts import FactBase, Table
    from advisor.model.findings import Budget
    from advisor.ranks.waits import Waits


def rank_rows(a: Analysis) -> tuple[tuple[RankRows, ...], bool]:
    """A rank for each device with collectives, or one where they are fewer than two; and whether
    their numbers come from the capture's metadata. Else they count from 0."""
    ranks, known = _ranks(a)
    return tuple(_rows(a, *rank) for rank in ranks), known


def _ranks(a: Analysis) -> tuple[list[tuple[int, int, Collectives | None]], bool]:
    """Number, device and collectives of each rank, and whether the numbers are known."""
    found = {device: device_collectives(a, device) for device in a.devices}
    several = {d: c for d, c in found.items() if len(c)}
    if len(several) < 2:
        listed = [d.id for d in a.trace.devices]
        device = next(iter(several or found), listed[0] if listed else 0)
        number = a.trace.capture.rank
        return [(number or 0, device, found.get(device))], number is not None
    numbers = [_mpi_rank(a, device) for device in several]
    known = None not in numbers and len(set(numbers)) == len(numbers)
    return [
        (number if known and number is not None else i, device, calls)
        for i, (number, (device, calls)) in enumerate(zip(numbers, several.items(), strict=True))
    ], known


def waits_inside(a: Analysis) -> Waits | None:
    """Waiting between the GPUs of one capture, its share by device set as `a.waited`; None
    where fewer than two communicate."""
    from advisor.ranks.waits import reduce_ranks

    ranks, _ = _ranks(a)
    if len(ranks) < 2:
        return None
    found = reduce_ranks([_rows(a, *rank) for rank in ranks], one_clock=True)
    a.waited = {
        r.device: float(wait.sum()) / max(int(r.duration.sum()), 1)
        for r, wait in zip(found.ranks, found.wait, strict=True)
    }
    return found


def cross_rank(a: Analysis, waits: Waits) -> CrossRank:
    """The same for the facts of the capture."""
    from advisor.facts.communication import CrossRank
    from advisor.ranks.facts import job_facts

    def put(out: FactWriter) -> None:
        busy = [b.busy_ratio for b in a.budgets.values()]
        job_facts(out, waits, world_size=a.trace.capture.world_size, busy=busy)

    by_device = {
        r.device: np.where(known, wait, UNKNOWN)
        for r, wait, known in zip(waits.ranks, waits.wait, waits.found, strict=True)
    }
    return CrossRank(by_device, put)


def rank_section(waits: Waits, budgets: Sequence[Budget], base: FactBase) -> Table:
    """The table of the ranks in this capture."""
    from advisor.model.facts import Scope
    from advisor.ranks.sections import rank_table

    rank_of = {r.device: r.rank for r in waits.ranks}
    own = [b.replaced(rank=rank_of[b.device]) for b in budgets if b.device in rank_of]
    overlaps = {
        (rank, device): ratio
        for device, rank in rank_of.items()
        if isinstance(ratio := base.value("comm.overlap_ratio", Scope(device=device)), float)
    }
    return rank_table(waits, own, overlaps)


def _rows(a: Analysis, rank: int, device: int, found: Collectives | None) -> RankRows:
    window = a.window
    if found is None:
        found = device_collectives(a, device) if device in a.budgets else Collectives()
    lead = leads(a, device, found) if len(found) else np.empty((0, len(LEADS)))
    return RankRows(
        **asdict(found),
        rank=rank,
        device=device,
        zero=a.trace.capture.start_utc_ns,
        window=(window.start, window.end),
        window_ns=a.budgets[device].window.length if device in a.budgets else window.length,
        steps=a.step_count,
        leads=LEADS,
        lead=np.where(np.isnan(lead), UNKNOWN, lead).astype(np.int64),
        paces=kernel_paces(a, device) if len(found) else (),
    )


def _mpi_rank(a: Analysis, device: int) -> int | None:
    """The MPI rank of the process that runs most of the device's collectives."""
    known = dict(a.trace.capture.process_ranks)
    at = a.device_kernels(device)
    process = a.ops.process[at[a.communication[at]]]
    if not known or len(process) == 0:
        return None
    ids, count = np.unique(process, return_counts=True)
    return known.get(int(ids[np.argmax(count)]))
