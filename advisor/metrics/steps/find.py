"""Chooses the segmentation of a capture that is its steps: weighs all evidence for the outermost level that
repeats and holds a pass of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.metrics import limits
from advisor.metrics.steps import apart, graphs, ranges, sequence
from advisor.metrics.steps.model import Steps, Work, no_steps, timed
from advisor.model.arrays import Array, begins_run, distinct, median_of
from advisor.sources.schema import DTOH, MISSING

#: Kinds of kernels that occur once a pass.
_KINDS = ("embedding", "sampling", "optimizer", "loss")


class Marker(Struct, frozen=True):
    """Events of one kind, as positions of the operations that they belong to, ascending; `passes` gives the
    pass (a group between heavy kernels) of each."""

    kind: str
    at: Array
    group: Array

    @property
    def passes(self) -> int:
        """How many passes these events show: between two lies a matrix product or attention."""
        return len(distinct(self.group))

    def ends(self) -> Array:
        """The last event of each pass."""
        return np.asarray(self.at[np.append(begins_run(self.group)[1:], True)])

    def starts(self) -> Array:
        """The first event of each pass."""
        return self.at[begins_run(self.group)]

    def share(self, steps: Steps) -> float:
        """Share of the parts that hold one of the events."""
        return np.count_nonzero(steps.held(self.at)) / max(len(steps), 1)


def find_markers(work: Work) -> list[Marker]:
    """The markers of a process on a device, by operators and ranges, else by kernels."""
    at: dict[str, list[Array]] = {}
    named: dict[str, list[int]] = {}
    for i, kind in work.ranges.matching(work.patterns.marker).items():
        named.setdefault(kind, []).append(i)
    for kind, chosen in named.items():
        rows = work.ranges_of(chosen)
        at.setdefault(kind, []).extend(work.issued_in(rows["start"], rows["end"]))
    by_range = {kind for kind, found in at.items() if any(len(p) for p in found)}
    for kind in _KINDS:
        if kind not in by_range:
            at.setdefault(kind, []).append(work.of_kind(kind))
    positions = {kind: distinct(np.concatenate(at[kind])) for kind in sorted(at)}
    return [Marker(kind, some, work.groups(some)) for kind, some in positions.items() if len(some)]


def confirmations(markers: Sequence[Marker], steps: Steps) -> int:
    """How many of the markers occur in almost every part, and once."""
    return sum(
        m.share(steps) >= limits.steps.MARKER_HELD_RATIO
        and len(distinct(m.group[steps.op_step[m.at] >= 0])) <= len(steps)
        for m in markers
    )


#: Methods whose parts end with an operation, which may be lost.
_BY_WORK = ("graph launches", "kernel sequence", "markers", "copies")


def find_steps(work: Work) -> Steps:
    """The steps of one process on one device, and the levels repeated inside them."""
    found = _outermost(work)
    return replace(found, levels=ranges.step_levels(work, found))


def _outermost(work: Work) -> Steps:
    marked = ranges.named_ranges(work)
    if opaque := graphs.opaque_graphs(work):
        return marked if len(marked) else opaque
    # A single marked step that holds most of the capture: repetitions inside it are layers.
    whole = len(marked) == 1 and work.share_inside(marked.op_step) > 0.5
    enough = len(marked) >= 2 or (whole and marked.level == "step")
    if enough or marked.method == "opaque graph launches" or (marked.empty and not len(marked)):
        return marked
    markers = find_markers(work)
    if (training := _between_evaluations(work, markers)) is not work:
        work, markers = training, find_markers(training)
    # If several were seen, other passes were recorded whose work was not.
    several = whole or marked.ranges_seen > 1
    if (found := _repeated(work, markers, several)) is not None:
        return _marked(found, marked)
    if several:
        return marked
    if len(marked) == 1:
        return _marked(_whole(ranges.without_setup(work, marked), marked.phase, marked.ranges_seen), marked)
    # One update of the weights is one iteration, of however many micro-batches.
    once = any(m.kind == "optimizer" and m.passes == 1 for m in markers) or {m.passes for m in markers} == {1}
    if work.is_model and once:
        return _marked(_whole(work, ("unknown",), 0), marked)
    return marked


def _repeated(work: Work, markers: Sequence[Marker], several: bool) -> Steps | None:
    """The first candidate that nothing refutes, with its confidence by what confirms it. With `several` steps
    marked by ranges, or one that holds most of the work, what nothing confirms is refuted."""
    inner = ranges.inner_work(work)
    attention = work.of_kind("attention")
    for found, is_outer in _with_outer(work, _candidates(work, markers)):
        steps = _with_first_pass(work, markers, found)
        if work.share_inside(steps.op_step) < limits.steps.UNMARKED_RATIO or _lacks_ends(work, steps):
            continue
        visible = _visible(work, markers, steps)
        # Parts that lack a marker lie inside a pass.
        if any(m.share(steps) < limits.steps.MARKER_MISSED_RATIO for m in visible) or _is_inner(inner, steps):
            continue
        if steps.method in ("kernel sequence", "copies") and _holds_tokens(work, markers, steps, attention):
            continue
        confirming = confirmations(markers, steps)
        # Parts of something longer are steps if a marker that did not create them confirms them.
        agreeing = len(visible) if steps.method == "graph launches" else confirming
        if is_outer is False and agreeing < 1 + (steps.method == "markers"):
            continue
        if confirming:
            sure = min(steps.confidence + limits.steps.CONFIRMED_BY, limits.steps.CONFIRMED_MOST)
            steps = replace(steps, confidence=round(sure, 2))
        elif (
            (is_outer is None and (steps.method == "waits" or _fed_once(work, steps)))
            or (is_outer is None and _is_one_program(work, steps))
            or (is_outer is not False and _waited_for(work, steps, attention))
            or (work.denoises and _is_denoiser(steps))
        ):
            steps = replace(steps, confidence=limits.steps.FED_CONFIDENCE)
        elif several:
            continue  # repetitions in the only marked iteration may well be layers
        elif sequence.once_each(steps, attention):
            steps = replace(steps, level="layer")
        # The calls that launch graphs are recorded even if the work of some is lost.
        certain = steps.method not in _BY_WORK or (steps.method == "graph launches" and not is_outer)
        if not certain and work.lost * len(steps) > limits.steps.LOST_ENDS:
            steps = replace(steps, confidence=min(steps.confidence, limits.steps.LOST_ENDS_CONFIDENCE))
        return steps
    return None


def _between_evaluations(work: Work, markers: Sequence[Marker]) -> Work:
    """The longest stretch of training, the last of several, if passes of another kind come between two
    updates now and then: an evaluation after each epoch."""
    last = next((m.ends() for m in markers if m.kind == "optimizer"), np.empty(0, np.int64))
    if len(last) < 2 * limits.steps.REPEATS or any(
        m.passes < limits.steps.MARKER_HELD_RATIO * len(last) for m in markers
    ):
        return work
    main = work.main_stream
    size = np.diff(np.searchsorted(main, last), prepend=0)[1:]
    usual = int(median_of(size))
    first = np.flatnonzero(np.append(True, size > limits.steps.EVALUATION_FACTOR * usual))
    count = np.diff(np.append(first, len(last)))
    longest = len(count) - 1 - int(np.argmax(count[::-1]))
    if (
        len(first) == 1
        or usual < limits.steps.UPDATE_KERNELS
        or count[longest] < max(limits.steps.REPEATS, limits.steps.UPDATES_RATIO * len(last))
    ):
        return work
    begin, end = int(first[longest]), int(first[longest] + count[longest] - 1)
    # The step that ends with the first of these updates is as long as the next one.
    head = main[max(np.searchsorted(main, last[begin]) - usual + 1, 0)]
    return replace(work, since=int(work.launched[head]), until=int(work.launched[last[end]]) + 1)


def _with_first_pass(work: Work, markers: Sequence[Marker], steps: Steps) -> Steps:
    """The steps with the pass before them, if the marker of their passes occurs there once: a prompt runs
    other kernels than the tokens after it."""
    if steps.method not in _BY_WORK or not len(steps):
        return steps
    before = work.mine & (steps.op_step < 0) & (work.launched < steps.host_start[0])
    confirmed = [m for m in markers if confirmations([m], steps)]
    passes = {len(distinct(m.group[before[m.at]])) for m in confirmed}
    if before.sum() < limits.steps.FRAGMENT_RATIO * median_of(steps.size) or passes != {1}:
        return steps
    first = timed(work, np.where(before, 0, MISSING), 1, steps.method, 0.0)
    times = ("host_start", "host_end", "gpu_start", "gpu_end")
    both: dict[str, Any] = {n: np.concatenate((getattr(first, n), getattr(steps, n))) for n in times}
    op_step = np.where(steps.op_step >= 0, steps.op_step + 1, first.op_step)
    return replace(steps, phase=first.phase + steps.phase, op_step=op_step, **both)


def _lacks_ends(work: Work, steps: Steps) -> bool:
    """True if some parts contain the work of several others: the end of a part was lost there. Between
    markers, a part as long but with other kernels holds a prompt or an encoder as well."""
    if steps.method not in _BY_WORK:
        return False
    times = steps.size / max(ranges.usual_size(steps.size), 1)
    long = np.flatnonzero(
        (times > limits.steps.SEVERAL_FACTOR)
        & (np.abs(times - np.rint(times)) <= limits.steps.SPREAD_RATIO * times)
    )
    if not len(long) or steps.method != "markers":
        return bool(len(long))
    row = np.full(len(steps) + 1, MISSING)  # the last entry is that of no step
    row[long] = np.arange(len(long))
    row[np.argmin(np.abs(times - 1))] = len(long)
    held = np.flatnonzero(row[steps.op_step] >= 0)
    kinds = int(work.name.max(initial=0)) + 2
    cell = row[steps.op_step[held]] * kinds + work.name[held] + 1
    count = np.bincount(cell, minlength=(len(long) + 1) * kinds).reshape(-1, kinds)
    differ = np.abs(count[:-1] - np.rint(times[long])[:, None] * count[-1]).sum(axis=1)
    return bool((differ <= 2 * limits.steps.SPREAD_RATIO * steps.size[long]).any())


def _fed_once(work: Work, steps: Steps) -> bool:
    """True if parts that hold layers, all of one size, each read their inputs or return their result to the
    host once: tokens or images."""
    parts = steps.size[1:-1]
    if (
        not len(parts)
        or np.ptp(parts) > limits.steps.SPREAD_RATIO * median_of(parts)
        or not any(ranges.repeated_kernels(work, steps))
    ):
        return False
    at = work.of_kind("index"), work.copied(DTOH)
    once = [Marker("", a, work.groups(a)) for a in at if len(a)]
    odd = np.flatnonzero(parts != median_of(parts))
    return bool(confirmations(once, steps)) and not sequence.constant_stride(odd, len(parts))


def _waited_for(work: Work, steps: Steps, attention: Array) -> bool:
    """True if all parts are equally long and the host waits once in each, for the result of a pass; without
    any of the operations `attention`, of which layers hold one, all alike. Equal kernels are no proof."""
    parts = steps.size[1:-1]
    name = work.name[work.main_stream[steps.op_step[work.main_stream] == 1]]
    name = name[name >= 0]
    again = np.flatnonzero(name[1 : len(name) // 2 + 1] == name[:1]) + 1
    if any((name[n:] == name[:-n]).all() for n in again.tolist()):
        return False
    if len(parts) < limits.steps.REPEATS or np.ptp(parts) > limits.steps.SPREAD_RATIO * median_of(parts):
        return False
    held = steps.held(work.waited_behind)[1:-1]
    often = 1 if (steps.op_step[attention] >= 0).any() else max(held[0], 1)
    return bool((held == often).all()) and not sequence.once_each(steps, attention)


def _is_one_program(work: Work, steps: Steps) -> bool:
    """True if the parts cover nearly everything, and every operation fused by XLA, which numbers them
    through the whole program, occurs once in each part."""
    fused = work.of_kind("elementwise (XLA)")
    step = steps.op_step[fused]
    count = np.bincount(work.name[fused][(step > 0) & (step < len(steps) - 1)])
    whole = work.share_inside(steps.op_step) >= limits.steps.WHOLE_PROGRAM_RATIO
    return whole and (count > 0).sum() >= 2 and bool((count[count > 0] == len(steps) - 2).all())


def _is_denoiser(steps: Steps) -> bool:
    """True for parts of one size that are too long for a block of a denoiser."""
    parts = steps.size[1:-1]
    usual = median_of(parts) if len(parts) else 0.0
    return (
        usual >= limits.steps.DENOISER_OPERATIONS
        and float((np.abs(parts - usual) <= limits.steps.SPREAD_RATIO * usual).mean())
        >= limits.steps.MARKER_HELD_RATIO
    )


def _with_outer(work: Work, candidates: Iterator[Steps]) -> Iterator[tuple[Steps, bool | None]]:
    """Each segmentation, followed by the longer parts that it may lie in; the flag says whether a
    segmentation is the outer of two, None if it is the only one."""
    for steps in candidates:
        outer = ranges.outer_steps(work, steps)
        yield steps, None if outer is None else False
        if outer is not None:
            yield outer, True


def _visible(work: Work, markers: Sequence[Marker], steps: Steps) -> list[Marker]:
    """The markers that can occur in these steps. An operator is not recorded when a graph replays its
    kernels: one that only occurs in passes launched kernel by kernel proves nothing about graph runs."""
    if steps.method != "graph launches":
        return list(markers)
    replays = distinct(steps.op_step[work.mine & (work.ops.graph_node != 0)])
    return [m for m in markers if np.isin(steps.op_step[m.at], replays).any()]


def _marked(steps: Steps, marked: Steps) -> Steps:
    """The steps, and the lost events that the ranges show."""
    return replace(steps, empty=marked.empty, ranges_seen=marked.ranges_seen or steps.ranges_seen)


def _candidates(work: Work, markers: Sequence[Marker]) -> Iterator[Steps]:
    """Segmentations, those with the best evidence first."""
    by_kind = {m.kind: m for m in markers}
    if (optimizer := by_kind.get("optimizer")) is not None and optimizer.passes >= 2:
        yield _by_marker(work, optimizer, limits.steps.UPDATE_CONFIDENCE, "training iteration")
    yield from ranges.repeated_ranges(work)
    yield from ranges.repeated_functions(work)
    if (replays := graphs.periodic_graphs(work)) is not None:
        yield replays
    yield from sequence.routed_sequences(work, work.of_kind("top-k"))
    yield from apart.passes_apart(work, work.of_kind("attention"))
    yield from sequence.kernel_sequences(work)
    for kind in ("sampling", "loss", "embedding"):
        marker = by_kind.get(kind)
        # Two passes are believed if every marker of passes confirms them.
        agreed = len(markers) > 1 and len({m.passes for m in markers}) == 1
        if marker is not None and marker.passes >= (2 if agreed else limits.steps.REPEATS):
            steps = _by_marker(work, marker, limits.steps.MARKER_CONFIDENCE, "step")
            if median_of(steps.size) >= limits.steps.STEP_OPERATIONS:
                yield steps
    yield from sequence.layer_sequences(work)
    yield from sequence.copy_sequences(work)
    yield from sequence.waited_sequences(work, work.of_kind("attention"))


def _holds_tokens(work: Work, markers: Sequence[Marker], steps: Steps, attention: Array) -> bool:
    """True if the parts are requests: each holds several samplings, with attention in layer after layer
    between them. A router of experts chooses in every layer, with one attention between."""
    sampling = next((m for m in markers if m.kind == "sampling"), None)
    if sampling is None or sampling.passes < 2 * len(steps):
        return False
    tokens = _by_marker(work, sampling, limits.steps.MARKER_CONFIDENCE, "step").op_step[attention]
    return bool(median_of(np.bincount(tokens[tokens >= 0], minlength=1)) >= 2)


def _by_marker(work: Work, marker: Marker, confidence: float, level: str) -> Steps:
    """Steps that end with the last event of a pass; inputs are embedded at the beginning of a pass."""
    if marker.kind == "embedding":
        last = np.append(marker.starts()[1:] - 1, np.flatnonzero(work.mine)[-1])
    else:
        last = marker.ends()
    return sequence.segmented(work, distinct(last), "markers", confidence, level=level)


def _is_inner(inner: Array, steps: Steps) -> bool:
    """True if almost every part holds one range that names a layer or a block."""
    if not len(inner) or steps.method == "ranges":
        return False
    held = steps.held(inner)
    return bool(
        np.count_nonzero(held) >= limits.steps.INNER_RANGE_RATIO * len(steps)
        and held.sum() <= limits.steps.SEVERAL_FACTOR * len(steps) + 1
    )


def _whole(work: Work, phase: tuple[str, ...], seen: int) -> Steps:
    """The only pass: all of this work."""
    if not work.mine.any():
        return no_steps(len(work.ops), seen=seen)
    op_step = np.where(work.mine, 0, MISSING)
    return timed(work, op_step, 1, "single pass", limits.steps.APART_CONFIDENCE, phase=phase, level="pass")
