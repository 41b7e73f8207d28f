"""Steps without ranges: the repeating sequence of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.metrics import limits
from advisor.metrics.loaded.kernels import heaviest
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.steps.model import Steps, Work, timed
from advisor.model.arrays import Array, begins_run, marked, median_of, without
from advisor.sources.schema import DTOH, HTOD, MISSING


def kernel_sequences(work: Work) -> Iterator[Steps]:
    """Segmentations by a kernel that returns after an almost constant number of operations, those with
    most parts first.

    A kernel that comes once a layer returns regularly, too, but irregularly at the end of each step, so
    its irregular returns are evenly spaced; such kernels are skipped.
    """
    main, seen = work.main_kernels, set[int]()
    for position in _returns(work, main):
        n = len(position)
        if (
            n not in seen
            and n <= len(main) / limits.steps.STEP_OPERATIONS
            and _marks_steps(position, len(main), work.denoises)
        ):
            seen.add(n)
            yield _by_kernel(work, main, position)


def layer_sequences(work: Work) -> Iterator[Steps]:
    """Segmentations by the irregular returns of a kernel of every layer, those with fewest parts first."""
    main = work.main_kernels
    ends = {len(last): last for p in _returns(work, main) for last in _ends_of_layers(p, len(main))}
    yield from (_by_kernel(work, main, ends[n]) for n in sorted(ends))


def _returns(work: Work, main: Array) -> Iterator[Array]:
    """Positions among the kernels of the main stream of each name that comes often enough, the most frequent
    first; of two equally frequent ones the earlier, since names are numbered in the order of rows."""
    if len(main) < limits.steps.STEP_OPERATIONS * limits.steps.REPEATS:
        return
    sequence = work.name[main]
    order = np.argsort(sequence, kind="stable")
    ranked = sequence[order]
    first = np.flatnonzero(begins_run(ranked))
    count = np.diff(np.append(first, len(ranked)))
    for i in np.lexsort((order[first], -count)).tolist():
        if count[i] >= limits.steps.REPEATS:
            yield order[first[i] : first[i] + count[i]]


def _by_kernel(work: Work, main: Array, position: Array) -> Steps:
    return segmented(work, main[_at_pause(work, main, position)], "kernel sequence", 0.5)


def copy_sequences(work: Work) -> Iterator[Steps]:
    """Segmentations by copies on the main stream that return after an almost constant number of kernels:
    results come down and inputs go up once a pass, whatever runs in between."""
    main = work.main_stream
    before = np.cumsum(work.name[main] >= 0)
    if (
        not len(main)
        or before[-1] < limits.steps.STEP_OPERATIONS * limits.steps.REPEATS
        or not work.trace.has("copies")
    ):
        return
    for direction in (DTOH, HTOD):
        at = np.flatnonzero(np.isin(main, work.copied(direction)))
        at = at[at > 0]
        # Copies without a kernel between are one event: the last of them ends a step, the first of
        # them begins one.
        returns, first = np.unique(before[at], return_index=True)
        if len(returns) >= limits.steps.REPEATS and _marks_steps(returns, int(before[-1])):
            last = at[np.append(first[1:], len(at)) - 1] if direction == DTOH else at[first] - 1
            yield segmented(work, main[last], "copies", 0.5)


def segmented(work: Work, last: Array, method: Any, confidence: float, **more: Any) -> Steps:
    """The steps that end with these operations of the main stream. Work of other streams belongs to the
    step in which it was issued."""
    # Around the steps of a denoiser run other models.
    if method != "markers" and len(last) > 1 and not work.denoises:
        last = _without_fragments(last, work.main_stream)
    issued = np.maximum.accumulate(work.launched[last])
    step = np.searchsorted(issued, work.launched, "left")
    on_main = marked(len(work.ops), work.main_stream)
    step = np.where(on_main, np.searchsorted(last, np.arange(len(work.ops)), "left"), step)
    step = np.where(step < len(last), step, MISSING)
    # Operations before the first whole step do not belong to it.
    length = median_of(np.diff(last)) if len(last) > 1 else len(work.ops)
    before = np.arange(len(work.ops)) <= last[0] - round(float(length))
    return timed(work, np.where(before, MISSING, step), len(last), method, confidence, **more)


def _without_fragments(last: Array, main: Array) -> Array:
    """The last operations of steps, without the fragment before the first step, and with one that ends
    with the capture. An operation that marks steps may stand anywhere in them: if the fragments at both
    ends make one step, the capture begins and ends with a step."""
    at = np.searchsorted(main, last)
    size = np.diff(at, prepend=-1)
    usual, tail = median_of(size[1:]), len(main) - 1 - int(at[-1])
    first = int(np.argmax(size >= limits.steps.FRAGMENT_RATIO * usual))
    if first and abs(size[0] + tail - usual) <= limits.steps.SPREAD_RATIO * usual:
        return np.asarray(main[at + tail])
    whole = tail >= (limits.steps.FRAGMENT_RATIO if first else limits.steps.LAST_STEP_RATIO) * usual
    return np.append(last[first:], main[-1]) if whole else last[first:]


def _at_pause(work: Work, main: Array, position: Array) -> Array:
    """The positions moved within the period to the operation after which the device regularly idles,
    which is where one step ends and the next begins; unchanged if there is none."""
    period = np.diff(position)
    median = int(median_of(period))
    even = position[:-1][period == median]
    if len(even) < 2:
        return position
    gap = np.append(work.ops.start[main][1:] - work.ops.end[main][:-1], 0)
    pauses = np.median(gap[even[:, None] + np.arange(median)], axis=0)
    best = int(np.argmax(pauses))
    if pauses[best] < max(limits.steps.BOUNDARY_PAUSE_NS, limits.steps.BOUNDARY_PAUSE_FACTOR * pauses[0]):
        return position
    moved = position + best
    head, last = int(moved[0]) - median, len(main) - 1
    if work.denoises:
        return np.asarray(moved[moved <= last])
    # A whole step may come before the first return, and one that is cut short after the last.
    if head >= limits.steps.FIRST_STEP_RATIO * median - 1:
        moved = np.insert(moved, 0, head)
    moved = moved[moved <= last]
    if last - moved[-1] >= limits.steps.LAST_STEP_RATIO * median:
        moved = np.append(moved, last)
    return moved


def _ends_of_layers(position: Array, length: int) -> list[Array]:
    """The returns at which a pass ends: the next period is uneven, and this recurs at a constant stride."""
    period = np.diff(position)
    odd = np.flatnonzero(period != median_of(period))
    # Passes of one model have the same number of layers.
    if not constant_stride(odd + 1, len(position)) or np.ptp(np.diff(odd)):
        return []
    last = position[odd]
    return [last] if len(last) >= limits.steps.REPEATS - 1 and _marks_steps(last, length) else []


def constant_stride(odd: Array, count: int) -> int:
    """The stride between the places `odd` of `count`, 0 if it is not constant or there are fewer than
    two. Two places prove a stride only if they cut the whole in three."""
    spacing = np.diff(odd)
    if len(odd) < 2 or not _at_one_stride(spacing):
        return 0
    stride = round(float(spacing.mean()))
    edges = np.array([odd[0], count - odd[-1]])
    least = stride - 1 if len(odd) == 2 else 0
    return (
        stride
        if edges.max() <= (1 + limits.steps.STRIDE_SPREAD_RATIO) * stride + 1 and edges.min() >= least
        else 0
    )


def _at_one_stride(spacing: Array) -> bool:
    """Whether distances between places, two at least, are about equal."""
    least = int(spacing.min())
    return least >= 2 and bool(np.ptp(spacing) <= max(1, limits.steps.STRIDE_SPREAD_RATIO * least))


def _marks_steps(position: Array, length: int, denoises: bool = False) -> bool:
    """True if a kernel at these positions of a sequence of `length` comes once a step. If a program
    `denoises`, several pictures hold several steps each, which are longer than any block."""
    period = np.diff(position)
    median = median_of(period)
    if median < limits.steps.STEP_OPERATIONS or median * len(position) < limits.steps.RETURNS_RATIO * length:
        return False
    if (
        np.abs(period - median) <= limits.steps.SPREAD_RATIO * median
    ).mean() < limits.steps.REGULAR_RETURNS_RATIO:
        return False
    if denoises and median >= limits.steps.DENOISER_OPERATIONS:
        return True
    odd = np.flatnonzero(period != median)
    odd = odd[odd > 0]  # the first return follows warm-up or a prefill
    if len(odd) == 0:
        return True
    # Adjacent irregular returns are the end of one step; that of the last step says nothing.
    odd = odd[np.concatenate(([True], np.diff(odd) > 1))]
    odd = odd[odd < len(period) - 1]
    if len(odd) == 1:
        # Two passes: the single end is in the middle.
        before, after = int(odd[0]), len(period) - 1 - int(odd[0])
        return min(before, after) < limits.steps.LAYERS_AROUND or abs(before - after) > 2
    if len(odd) == 0:
        return True
    spacing = np.diff(odd)
    return not (_at_one_stride(spacing) or _recurs(period[1:]))


def _recurs(period: Array) -> bool:
    """True if uneven periods repeat as a group, such as the stages of a convolutional network."""
    usual, count = median_of(period), len(period)
    sizes = np.arange(2, count // limits.steps.REPEATS + 1)
    odd = period != usual
    before = np.concatenate(([0], np.cumsum(odd)))
    # Comparing whole sequences at every size is quadratic. Equal odd periods lie on one side of the
    # usual one, which bounds their number: only sizes that can reach the share are compared.
    either = before[count - sizes] + before[count] - before[sizes] - _coincidences(odd)[sizes]
    most = sum(_coincidences(side)[sizes] for side in (period > usual, period < usual))
    for size in sizes[(either > 0) & (most >= limits.steps.GROUP_RETURNS_RATIO * either - 0.5)].tolist():
        compared = odd[size:] | odd[:-size]
        if (period[size:] == period[:-size])[compared].mean() >= limits.steps.GROUP_RETURNS_RATIO:
            return True
    return False


def _coincidences(marked: Array) -> Array:
    """How many pairs of marked places lie each distance apart, by Fourier transform: n log n."""
    count = len(marked)
    spectrum = np.fft.rfft(marked, 2 * count)
    return np.asarray(np.rint(np.fft.irfft(np.abs(spectrum) ** 2, 2 * count))[:count])


def once_each(steps: Steps, operations: Array) -> bool:
    """True if each part holds one of these operations, as a layer holds one attention."""
    held = steps.held(operations)[1:-1]  # the first and the last may be cut
    return bool(len(held) and (held == 1).all())


# --- steps of few kernels: between two waits of the host the same work runs, again and again ---------


def waited_sequences(work: Work, attention: Array) -> Iterator[Steps]:
    """The segmentation by the waits of the thread that feeds the main stream, if the work launched
    between them is the same in period after period; None if a period repeats one thing, which may be
    several passes, or contains one of the operations `attention`, as a layer does."""
    main = work.main_stream
    main = main[np.argsort(work.launched[main], kind="stable")]
    api = work.ops.api[main]
    if not (api >= 0).any():
        return
    thread, rows = work.calls["thread"], work.waits
    rows = rows[thread[rows] == heaviest(thread[api[api >= 0]])]
    place = np.full(len(work.ops), MISSING)
    place[main] = np.arange(len(main))
    last = np.sort(place[work.last_before(main, rows)])
    code = _codes(work, main)
    least = 1 if (work.ops.kind[main] == Kind.GRAPH_RUN).any() else limits.steps.WAIT_KERNELS
    length = work.length[main]
    for waits in range(1, min(limits.steps.WAITS_A_PASS, len(last) // limits.steps.WAIT_REPEATS) + 1):
        at = last[(len(last) - 1) % waits :: waits]
        size = np.diff(at)
        usual = int(np.sort(size)[len(size) // 2]) if len(size) >= limits.steps.WAIT_REPEATS else 0
        if usual < 2:
            continue
        even = np.flatnonzero(size == usual)
        held = at[even][:, None] + 1 + np.arange(usual)
        typical = code[held[len(held) // 2]]
        alike = (code[held] == typical).all(axis=1)
        same, held = even[alike], held[alike]
        odd = without(np.arange(len(size)), same)
        if len(same) < limits.steps.WAIT_EQUAL_RATIO * len(size) or constant_stride(odd, len(size)):
            continue
        once = np.isin(main[held[0]], attention).sum() == 1
        loop = not once and not _again(typical) and (typical >= 0).sum() >= least
        if loop and length[held].sum() >= limits.steps.WAIT_TIME_RATIO * length.sum():
            yield segmented(work, main[at], "waits", limits.steps.APART_CONFIDENCE)
        return


def routed_sequences(work: Work, routing: Array) -> Iterator[Steps]:
    """The segmentation by waits without a copy, as at the end of an iteration, if each part routes tokens
    to experts (operations `routing`) equally often and reads values back throughout: the number of
    kernels of experts depends on their tokens."""
    main = work.main_stream
    main = main[np.argsort(work.launched[main], kind="stable")]
    if not len(routing) or not (work.ops.api[main] >= 0).any():
        return
    read = np.isin(main, work.copied(DTOH))
    behind = np.isin(main, work.last_before(main, work.waits))
    last = np.flatnonzero(behind & ~read)
    if len(last) < limits.steps.REPEATS:
        return
    part = np.searchsorted(last, np.arange(len(main)))
    count = len(last) + 1
    both = np.isin(main, routing), read
    routed, reads = (np.bincount(part[mine], minlength=count)[1:-1] for mine in both)
    if (
        len(routed)
        and routed.min() > 0
        and np.ptp(routed) == 0
        and (reads >= limits.steps.READBACKS_A_LAYER * routed).all()
    ):
        yield segmented(work, main[last], "waits", limits.steps.APART_CONFIDENCE)


def _codes(work: Work, main: Array) -> Array:
    """What each of these operations is: its kernel's name, or a kind of copy or memset (negative)."""
    kind = work.ops.kind[main]
    code = np.where(work.name[main] >= 0, work.name[main], -10 - kind)
    code[kind == Kind.GRAPH_RUN] = len(work.heavy)
    copies = kind == Kind.COPY
    code[copies] = -100 - work.direction[main[copies]]
    return np.asarray(code)


def _again(code: Array) -> bool:
    """True if it is the same thing several times."""
    return any((code[n:] == code[:-n]).all() for n in range(1, len(code) // 2 + 1) if len(code) % n == 0)
