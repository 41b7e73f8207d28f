"""Facts about collectives, and GPUs of one process that take turns. Only all ranks together distinguish
waiting from transfer: with `waits` given facts are about the transfer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.metrics.analysis import Analysis
from advisor.metrics.collectives import (
    JOINING,
    blocking,
    device_collectives,
    find_turns,
    overlap,
    rows_of_collectives,
    small,
)
from advisor.metrics.intervals import Coverage, subtract, union
from advisor.metrics.kernels import distribution
from advisor.model.arrays import Array, distinct, largest, rows_at
from advisor.model.facts import Interval, Value
from advisor.sources.schema import MISSING, NIC_WAITS

#: With this many calls two slow ones do not move the median.
_MIN_CALLS = 5

ALIKE = Need(f"fewer than {_MIN_CALLS} collectives of one kind have one size, or one place in certain steps", needs.LONGER)  # fmt: skip
_SIZES = Need("the sizes of collectives are not recorded", needs.SIZES, lambda a: bool((device_collectives(a, a.main_device).bytes != MISSING).any()))  # fmt: skip
_WORLD = Need("the capture does not record how many ranks the job has", needs.ALL_RANKS)
_OTHERS = Need("the captures of the other ranks were not given", needs.ALL_RANKS)
SAME_KERNELS = Need("less than half of the kernel time is in kernels that the other ranks run alike")

WORK = Need("no kernels are what takes longer on the late ranks")

_SIZED = {"kernels": f"{needs.SPAN} name_id", "collectives": "start device stream bytes"}
_PACES = {"kernels": f"{needs.SPAN} name_id grid_x grid_y grid_z threads"}
#: The columns that collectives are matched by.
_MATCHED = {
    "kernels": f"{needs.SPAN} stream name_id",
    "collectives": "start device stream name_id bytes group_id sequence",
}

#: A sample counts as communication if collectives run for at least this share of it.
_INSIDE = 0.5


FACTS = (
    *group("device", needs.CUDA, [
        Entry("comm.time_ratio", "ratio", "kernels", "Share of the untraced step in which collectives run", "union / untraced window"),
        Entry("comm.exposed_ratio", "ratio", "kernels", "The same while no other kernel runs", "budget part communication"),
        Entry("comm.exposed_transfer_ratio", "ratio", "kernels", "The same without waiting for late ranks; of one rank alone, with it", "comm.exposed_ratio minus the exposed waiting that all ranks show together"),
        Entry("comm.blocking_ratio", "ratio", "kernels api_calls", "Share of the exposed time after which a kernel begins that was launched by then, or whose launch waited for it: it waited for the collective", "launch of the next kernel, and synchronising calls, against the end of the collective", columns={"kernels": f"{needs.SPAN} name_id correlation", "api_calls": "start end call correlation"}, needs=(needs.COLLECTIVES, Need("no collective is exposed, or no launch is known of the kernels after them"))),
        Entry("comm.waiting_known", "flag", "kernels", "Other ranks show how long collectives wait for a late one", "matched collectives of several ranks", needs=(needs.COLLECTIVES,)),
        Entry("comm.overlap_ratio", "ratio", "kernels", "Share of the collective time that other kernels hide", "1 - exposed / union", needs=(needs.COLLECTIVES,)),
        Entry("comm.calls_per_step", "count", "kernels", "Collective kernels a step", "count in the window / steps", needs=(needs.COLLECTIVES, needs.STEPS)),
        Entry("comm.max_over_mean", "ratio", "kernels", "Longest call over the mean call, of the kind and size of collective for which it is worst (with all ranks: their transfers); place in the step where sizes are not recorded", f"kinds and sizes with at least {_MIN_CALLS} calls", needs=(needs.COLLECTIVES, ALIKE)),
        Entry("comm.excess_ratio", "ratio", "kernels", "Share of the untraced step that calls take beyond twice the median of their kind and size (or place)", "sum of the excess / untraced window", needs=(needs.COLLECTIVES, ALIKE)),
        Entry("comm.repeated_excess_ratio", "ratio", "kernels", "That share without the longest call: what happened once does not count", "sum of the excess but the largest / untraced window", needs=(needs.COLLECTIVES, ALIKE)),
        *needs.counted("comm.small_calls", "kernels", "Collectives below 1 MiB that run exposed,", "sizes from the tracer's arguments; without any, all-reduces, all-gathers and reduce-scatters under 0.1 ms, where most are", columns=_SIZED, needs=(needs.COLLECTIVES,)),
        Entry("comm.small_exposed_ratio", "ratio", "kernels", "Share of the untraced step in which they run exposed", "sum / untraced window", columns=_SIZED, needs=(needs.COLLECTIVES,)),
        Entry("comm.reduces_ratio", "ratio", "kernels", "How much of the exposed time of collectives lies in those that join the parts of a model split over GPUs (all-reduce, all-gather, reduce-scatter): the rest exchanges tokens with experts, or sends to one rank", "by the names of their kernels and calls", needs=(needs.COLLECTIVES,)),
        Entry("comm.sizes_known", "flag", "kernels", "The sizes of some collectives are recorded", "sizes from the tracer's arguments", columns=_SIZED, needs=(needs.COLLECTIVES,)),
        *needs.counted("comm.row_calls", "kernels", "Collectives in a row,", "those shorter than 100 us that follow another one of their kind, with no other kernel beside them or between", needs=(needs.COLLECTIVES,)),
        Entry("comm.row_exposed_ratio", "ratio", "kernels", "Share of the untraced step in which they run exposed", "sum / untraced window", needs=(needs.COLLECTIVES,)),
    ], columns={"kernels": f"{needs.SPAN} name_id"}),
    *group("trace", needs.CUDA, [
        Entry("ranks.count", "count", "", "Ranks that were given", "captures of one job", columns={}, needs=()),
        Entry("ranks.world_size", "count", "", "Ranks that the job has", "metadata of the captures, else the highest rank given", columns={}, needs=(_WORLD,)),
        Entry("ranks.missing_count", "count", "", "Ranks of the job that were not given", "world size minus given", columns={}, needs=(_WORLD,)),
        Entry("ranks.matched_count", "count", "", "Collectives that were found on every rank that takes part", "matched by communicator and sequence number, else by kind and order in time on aligned clocks"),
        Entry("ranks.wait_ratio", "ratio", "", "Share of the collective time that is waiting for the last rank", "own duration minus the shortest over the ranks, over all durations"),
        Entry("ranks.wait_window_ratio", "ratio", "", "Share of the untraced step that ranks wait so with no other kernel beside it, on average", "mean over the ranks"),
        Entry("ranks.expert_wait_ratio", "ratio", "", "The part of that waiting for which expert kernels took longer on the rank that came last", "time of expert kernels since the collective before, against that of each rank that waits"),
        Entry("ranks.expert_wait_window_ratio", "ratio", "", "The same as a share of the untraced step, on average", "mean over the ranks"),
        Entry("ranks.stage_wait_ratio", "ratio", "", "Share of the untraced step in which ranks wait in transfers between stages of a pipeline with no other kernel beside them, on average", "sends and receives whose end two ranks share at a time, one of them with several partners; mean over the ranks"),
        Entry("ranks.most_caused_ratio", "ratio", "", "Largest share of all waiting that one rank causes", "largest rank.caused_ratio"),
        Entry("ranks.late_part", "text", "", "What ranks did longer than the others before they came late, whichever rank it was", "largest sum of the differences since the collective before"),
        Entry("ranks.late_part_ratio", "ratio", "", "The part of the lateness that this makes", "sum of these differences / sum of the lateness"),
        Entry("ranks.busy_spread", "ratio", "", "Largest busy share of a rank minus the smallest", "budgets", columns=needs.OPS),
    ], columns=_MATCHED, needs=(_OTHERS,), over_ranks="joint"),
    *group("rank", needs.CUDA, [
        Entry("rank.last_ratio", "ratio", "", "Share of the matched collectives to which this rank comes last and makes others wait", "shortest duration: all of them end together"),
        Entry("rank.caused_ratio", "ratio", "", "Share of all waiting that this rank causes", "waiting in collectives to which it comes last"),
        Entry("rank.caused_over_even", "ratio", "", "That share over an even one", "rank.caused_ratio x ranks"),
        Entry("rank.late_ns", "ns", "", "How much later than the others this rank comes to those collectives, on average", "own duration against the mean of the others"),
        Entry("rank.late_part", "text", "", "What it did longer than the others before it came late", "largest difference to their mean since the collective before", columns=needs.GAPS),
        Entry("rank.steady_ratio", "ratio", "", "How much less this rank waits than the others where it is late always, alone or together with other ranks; 0 where it is not", "1 - own waiting / waiting of the ranks that are not late, in collectives of both; the late ranks are those before the widest gap in the mean arrivals, if each waits for less than half as long as the rest"),
        Entry("rank.late_names", "text", "", "This rank and those that are late together with it", "by rank.steady_ratio"),
        Entry("rank.late_caused_ratio", "ratio", "", "Share of all waiting that these ranks cause", "sum of rank.caused_ratio"),
        Entry("rank.late_by_ns", "ns", "", "How much later than the others these ranks come to the collectives that all of them share, on average", "mean waiting of the others minus their own"),
        Entry("rank.late_work", "text", "", "What takes most longer on these ranks since the collective before", "largest difference of the means", columns=needs.GAPS),
        Entry("rank.late_pattern", "text", "", "Why these ranks are late: data-parallel attention, experts, work, copies, pace, host, or waits for other work", "rank.late_work, the kernel family that takes most longer, and whether all kernels do", columns=needs.GAPS),
        Entry("rank.late_family", "text", "", "The kernel family that takes most longer a step on these ranks", "time a step there minus that on the others", columns=_PACES, needs=(_OTHERS, WORK)),
        Entry("rank.late_call_ns", "ns", "", "How long a kernel of this family takes on these ranks, on average", "time / calls", columns=_PACES, needs=(_OTHERS, WORK)),
        Entry("rank.others_call_ns", "ns", "", "How long it takes on the other ranks, on average", "time / calls", columns=_PACES, needs=(_OTHERS, WORK)),
        Entry("rank.slower_ratio", "ratio", "", "How much longer its kernels take than the same kernels, launched as often and with the same shapes, on the other ranks; 0 where they take less", "time at its own medians / at the medians of the others - 1", columns=_PACES, needs=(_OTHERS, SAME_KERNELS)),
        Entry("rank.slower_alike_ratio", "ratio", "", "Share of that kernel time in kernels that take longer by at least half of it, with the heaviest kernel or without it, whichever is less", "sum / compared kernel time", columns=_PACES, needs=(_OTHERS, SAME_KERNELS)),
        Entry("rank.clock_offset_ns", "ns", "", "What was added to the clock of this rank, in the middle of its window", "median over the ends of matched collectives, against the rank with most of them"),
        Entry("rank.left_out_count", "count", "", "Collectives that others entered before the window of this rank, the last, begins: they are left out", "starts and windows on aligned clocks"),
        Entry("rank.began_later_ns", "ns", "", "How long before that window the first rank entered one of them, at most", "starts and windows on aligned clocks"),
        Entry("rank.wait_ratio", "ratio", "", "Share of its untraced step that this rank waits in collectives", "own duration minus the shortest / untraced window"),
    ], columns=_MATCHED, needs=(_OTHERS,), over_ranks="joint"),
    *group("device", needs.NETWORK, [
        Entry("network.card_count", "count", "network", "Network cards that carry data in the window", "distinct cards with bytes", needs=()),
        Entry("network.peak_rate", "bytes_per_s", "network", "The most that one card sends, or receives, in a sample", "max over the samples of the window", needs=()),
        Entry("network.waits_ratio", "ratio", "network kernels", "Share of the sampled communication that no kernel hides in which a network card has data to send and cannot send it", "samples that lie in such communication for at least half of their time: count with send waits / count", needs=(needs.COLLECTIVES, Need("no sample of a network card lies mostly in exposed communication", needs.NETWORK))),
    ], columns={"network": "start end nic kind value", "kernels": "start end device name_id"}),
)  # fmt: skip


class CrossRank(NamedTuple):
    """The cross-rank view of one capture: the time that each collective waited for a later rank (by
    device; negative if no other rank has it), and a function that writes the facts about the ranks."""

    waits: Mapping[int, Array]
    put: Callable[[FactWriter], None]


class Calls(NamedTuple):
    """Columns of collectives, a row a call: `duration` and `exposed` in ns, `size` in bytes, `place` in
    the step, whether it is `small`."""

    kind: Array
    duration: Array
    exposed: Array
    size: Array
    place: Array
    small: Array


def call_facts(calls: Calls, window: int) -> dict[str, Value | None]:
    """Numbers about single calls, without waiting where that is known. Only calls of one kind and size
    are similar, or, if the size is unknown, of one place in the step."""
    kind, duration, exposed, size, place, small = calls
    out: dict[str, Value | None] = {}
    sized = size != MISSING
    # Calls with neither size nor place cannot be compared.
    known = np.flatnonzero(sized | (place != MISSING))
    keys = np.column_stack([kind, size, np.where(sized, MISSING, place)])[known]
    alike = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    d = distribution(alike, duration[known], int(alike.max(initial=-1)) + 1)
    enough = d.count >= _MIN_CALLS
    if enough.any():
        ratio = d.maximum * d.count / np.maximum(d.total, 1)
        excess = np.maximum(duration[known] - 2 * d.p50[alike], 0)[enough[alike]]
        out["comm.max_over_mean"] = ratio[enough].max()
        out["comm.excess_ratio"] = excess.sum() / window
        out["comm.repeated_excess_ratio"] = (excess.sum() - excess.max()) / window
    out["comm.small_exposed_ratio"] = exposed[small].sum() / window
    return out


def transfer_facts(
    calls: Calls, wait: Array, found: Array, exposed_ratio: float, window: int
) -> dict[str, Value | None]:
    """`call_facts` without the waiting, and the exposed share without it. `wait` is known for the calls
    `found` on the other ranks, and counts as exposed as far as its call is; the other calls are assumed
    to be similar. `exposed_ratio` is the budget's: streams overlap."""
    some, waited = Calls(*(column[found] for column in calls)), wait[found]
    part = float(some.duration.sum()) / max(float(calls.duration.sum()), 1.0)
    waiting = float(np.minimum(some.exposed, waited).sum()) / max(float(some.exposed.sum()), 1.0)
    rest = some._replace(duration=some.duration - waited, exposed=np.maximum(some.exposed - waited, 0))
    numbers = call_facts(rest, max(round(window * part), 1))
    return {"comm.exposed_transfer_ratio": max(exposed_ratio * (1.0 - waiting), 0.0), **numbers}


def communication_facts(a: Analysis, device: int, out: FactWriter, waits: Array | None = None) -> None:
    """Without collectives among the recorded kernels, communication takes 0 of the time. `waits` has a
    time for each collective, negative if unknown."""
    if not a.trace.has("kernels"):
        return
    found, budget = device_collectives(a, device), a.budgets[device]
    exposed, window = budget.share("communication"), budget.untraced_ns
    if len(found) == 0:
        names = ("comm.time_ratio", "comm.exposed_ratio", "comm.exposed_transfer_ratio")
        out |= dict.fromkeys(names, 0.0)
        return
    time, hidden = overlap(a, device)
    sized, little = found.bytes != MISSING, small(found)
    known = waits is not None and bool((waits >= 0).any())
    if waits is None or not known:
        waits = np.zeros(len(found), np.int64)
    calls = Calls(found.kind, found.duration, found.exposed, found.bytes, found.place, little)
    row = rows_of_collectives(a, device, found)
    joins = np.array([kind in JOINING for kind in found.kinds], bool)[found.kind]
    out |= {
        "comm.time_ratio": time / window,
        "comm.exposed_ratio": exposed,
        "comm.blocking_ratio": blocking(a, device, found),
        "comm.waiting_known": known,
        "comm.overlap_ratio": hidden / max(time, 1),
        "comm.calls_per_step": len(found) / a.step_count if a.step_count else None,
        **transfer_facts(calls, waits, waits >= 0, exposed, window),
        "comm.row_exposed_ratio": found.exposed[row].sum() / window,
        **a.rates(device, {"comm.row_calls": len(row)}),
        **a.rates(device, {"comm.small_calls": (little & (found.exposed > 0)).sum()}),
        "comm.reduces_ratio": found.exposed[joins].sum() / max(int(found.exposed.sum()), 1),
        "comm.sizes_known": sized.any(),
    }
    d = distribution(found.kind, found.duration, len(found.kinds))
    alone = np.bincount(found.kind, found.exposed, minlength=len(found.kinds))
    shares = d.total / 1e6, d.total / window, alone / window
    columns = (found.kinds, d.count, *shares, d.p50 / 1e3, d.maximum / 1e3)
    out.table("comm.kinds", rows_at(np.flatnonzero(d.count), *columns))
    longest = rows_at(largest(found.exposed, 50), found.start, found.end, found.kind)
    out.places("communication", [Interval(lo, hi, None, None, found.kinds[k]) for lo, hi, k in longest])


def rank_facts(a: Analysis, out: FactWriter) -> None:
    """What one capture records about its job; the rest needs all ranks."""
    size = a.trace.capture.world_size
    out.put("ranks.count", 1)
    if size:
        out.put("ranks.world_size", size)
        out.put("ranks.missing_count", max(size - 1, 0))
    elif a.budgets and not a.communication.any():
        out.put("ranks.missing_count", 0)
        out.put("ranks.matched_count", 0)
        out.put("ranks.stage_wait_ratio", 0.0)


# --- network cards while collectives run ----------------------------------------------------------


def network_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """Without samples of network cards no fact is written."""
    if not a.trace.has("network"):
        return
    budget = a.budgets[device]
    window = (budget.window.start, budget.window.end)
    rows = a.trace.columns("network", ("start", "end", "nic", "kind", "value"), window)
    waits = rows["kind"] == NIC_WAITS
    moves = ~waits & (rows["value"] > 0)
    out.put("network.card_count", len(distinct(rows["nic"][moves])))
    out.put("network.peak_rate", float(rows["value"][moves].max(initial=0)))
    mine = a.device_ops(device)
    mine = mine[a.communication[mine]]
    exposed = subtract(union(a.ops.start[mine], a.ops.end[mine]), budget.compute)
    start, end, value = (rows[name][waits] for name in ("start", "end", "value"))
    inside = Coverage(exposed).within(start, end) >= _INSIDE * np.maximum(end - start, 1)
    if inside.any():
        samples, at = np.unique(start[inside], return_inverse=True)
        out.put("network.waits_ratio", (np.bincount(at, value[inside] > 0, len(samples)) > 0).mean())


# --- GPUs of one process that take turns ----------------------------------------------------------


_COMPUTES = Need("the process computes on no GPU in the window", needs.OWNER)

TURN_FACTS = group("trace", needs.CUDA, [
    Entry("gpus.computing_count", "count", "kernels", "GPUs that the main process computes on in the window", "GPUs with at least 5 % of the compute time of the busiest one"),
    Entry("gpus.alone_ratio", "ratio", "kernels", "Share of the time in which any of them computes that a single one does so", "union of the kernels but collectives, and of copies between GPUs, by GPU", needs=(_COMPUTES, Need("the process computes on one GPU"))),
    Entry("gpus.turn_wait_ratio", "ratio", "kernels", "Share of the window in which a GPU does not compute while another one does, on average", "(time of any - own time) / window, mean over the GPUs"),
], columns={"kernels": f"{needs.SPAN} name_id process"}, needs=(_COMPUTES,))  # fmt: skip


def turn_facts(a: Analysis, out: FactWriter) -> None:
    found = find_turns(a)
    if found is None:
        return
    out |= {
        "gpus.computing_count": len(found.devices),
        "gpus.alone_ratio": found.alone_ratio if len(found.devices) > 1 else None,
        "gpus.turn_wait_ratio": found.waiting_ratio,
    }
    if len(found.devices) == 1:
        return
    window, each = max(found.window, 1), zip(found.devices, found.compute, found.alone, strict=True)
    rows = [
        [d, own / 1e6, own / window, alone / window, (found.any - own) / window] for d, own, alone in each
    ]
    out.table("gpus.turns", rows)
