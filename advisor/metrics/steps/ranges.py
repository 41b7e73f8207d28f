"""Steps that ranges delimit, by names known to mark a step or by the contents of the ranges; levels
inside steps; and whether steps lie in something longer that repeats: then parts differ at a constant
stride, by their size or by the pause before them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.metrics import limits
from advisor.metrics.intervals import positions
from advisor.metrics.steps.model import Level, Steps, Work, graph_launches, no_steps, opaque_steps, timed
from advisor.metrics.steps.sequence import constant_stride, segmented
from advisor.model.arrays import Array, among, distinct, marked, median_of, pairs
from advisor.sources.schema import DTOH, MISSING, OPERATIONS, Call

#: Number of the longest functions that are examined.
_FUNCTIONS = 20

#: Operators as PyTorch writes them into NVTX: `aten::mm`, `MmBackward0, seq = 5, op_id = 7, sizes = [...]`.
_OPERATOR = re.compile(r"^aten::|, (?:seq|op_id|sizes) = ")


def named_ranges(work: Work) -> Steps:
    """The steps of ranges whose name marks a step."""
    best, most = no_steps(len(work.ops)), -1
    named = work.ranges.matching(work.patterns.step) if len(work.calls["start"]) else {}
    rows = work.ranges_of(list(named))
    loop = np.array([named[t].kind != "pass" for t in rows["text"].tolist()], bool)
    phases = {text: name.phase or "unknown" for text, name in named.items()}
    # A pass (one forward) describes a step better than the loop around it, unless passes are annotated
    # only in part.
    for is_loop, thread in pairs(loop, rows["thread"]):
        chosen = np.flatnonzero((loop == is_loop) & (rows["thread"] == thread))
        steps = _steps_of(work, rows, chosen, thread, phases)
        held = int((steps.op_step >= 0).sum())
        if held > most * (limits.steps.OUTER_RANGE_FACTOR if is_loop else 1.0):
            best, most = replace(steps, level="iteration" if is_loop else "step"), held
    return _completed(work, best)


def _steps_of(
    work: Work, rows: dict[str, Array], chosen: Array, thread: int, phase_of: Mapping[int, str]
) -> Steps:
    """The steps that these ranges of one thread delimit; `phase_of` has the phase by text."""
    # Of ranges that begin at once the longest comes first.
    chosen = chosen[np.lexsort((-rows["end"][chosen], rows["start"][chosen]))]
    start, end = rows["start"][chosen], rows["end"][chosen]
    # Of nested ranges of one kind the outer one counts.
    outer = np.concatenate(([True], end[1:] > np.maximum.accumulate(end)[:-1]))
    # Those inside one in which the recording ended, which has no end, would count as outer ones.
    within = np.isin(rows["text"][chosen[outer]], rows["text"][chosen[~outer]])
    whole = len(within) - np.count_nonzero(within)
    outer[np.flatnonzero(outer)[whole:]] &= not within[whole:].all() or whole < limits.steps.REPEATS
    chosen, start, end = chosen[outer], start[outer], end[outer]
    calls, ops = work.calls, work.ops
    call_step = _holding(calls["start"], start, end)
    call_step[calls["process"] != work.process] = MISSING

    held = marked(len(start) + 1, call_step)[:-1]  # the last of those in none
    op_step = call_step.take(ops.api) if len(call_step) else np.full(len(ops), MISSING, np.int32)
    op_step[(ops.api < 0) | ~work.mine] = MISSING
    phases = tuple(phase_of.get(int(t), "unknown") for t in rows["text"][chosen])
    works = marked(len(start) + 1, op_step)[:-1]
    empty = tuple((int(a), int(b)) for a, b in zip(start[~held], end[~held], strict=True))
    marks: dict[str, Any] = {"thread": thread, "empty": empty, "ranges_seen": len(start)}
    graphs = call_step[calls["call"] == Call.GRAPH_LAUNCH] if len(ops) == 0 else call_step[:0]
    if (graphs >= 0).any():
        keep = np.flatnonzero(marked(len(start) + 1, graphs)[:-1])
        phases = tuple(phases[i] for i in keep)
        return opaque_steps(work, start[keep], end[keep], op_step, phases, **marks)
    keep = np.flatnonzero(works)
    if _is_cut_off(work, keep, call_step, op_step):
        op_step[op_step == keep[-1]] = MISSING
        keep = keep[:-1]
    if len(keep) == 0:
        return no_steps(len(ops), empty, len(start))
    if len(keep) < len(start):
        renumber = np.full(len(start) + 1, MISSING, np.int32)
        renumber[keep] = np.arange(len(keep))
        op_step = renumber.take(op_step)
    phases, host = tuple(phases[i] for i in keep), (start[keep], end[keep])
    return timed(
        work,
        op_step,
        len(keep),
        "ranges",
        limits.steps.NAMED_RANGE_CONFIDENCE,
        phase=phases,
        host=host,
        **marks,
    )


def _is_cut_off(work: Work, steps: Array, call_step: Array, op_step: Array) -> bool:
    """True if the recording ended in the last of these steps, of which only a part of the work ran: that of
    its last launch is missing, which that of the step before has left, or all of the main stream's, of which
    all others hold some."""
    if len(steps) <= limits.steps.REPEATS:
        return False
    before, last = int(steps[-2]), int(steps[-1])
    main = marked(int(call_step.max()) + 2, op_step[work.main_stream])  # the last of those in none
    if main[steps[:-1]].all() and not main[last]:
        return True
    launches = among(work.calls["call"], (Call.LAUNCH, Call.GRAPH_LAUNCH))
    ends = [np.flatnonzero(launches & (call_step == step))[-1:] for step in (before, last)]
    if not all(len(row) for row in ends):
        return False
    left = [bool((work.ops.api == row[0]).any()) for row in ends]
    return left == [True, False]


def _holding(time: Array, start: Array, end: Array) -> Array:
    """The range that holds each time, MISSING if none does; of overlapping ranges the later one. Ranges
    are sorted by start and not nested."""
    if (time[1:] < time[:-1]).any():
        at = positions(start, time, "right") - 1
        return np.where((at >= 0) & (time < end[at]), at, MISSING).astype(np.int32)
    first = np.searchsorted(time, start)
    following = np.append(first[1:], len(time))
    last = np.maximum(np.minimum(np.searchsorted(time, end), following), first)
    counts = np.stack((last - first, following - last), axis=1).ravel()
    number = np.stack((np.arange(len(start)), np.full(len(start), MISSING)), axis=1).ravel()
    return np.repeat(np.append(MISSING, number).astype(np.int32), np.append(first[:1], counts))


def _completed(work: Work, steps: Steps) -> Steps:
    """Ranges that mark a part of the pass (the forward of a training step): extended to the next one, and
    a single one to the whole capture."""
    inside = work.share_inside(steps.op_step)
    if len(steps) <= 1 or steps.method != "ranges" or inside >= limits.steps.PART_OF_PASS_RATIO:
        return steps
    at = np.searchsorted(steps.host_start, work.launched, "right") - 1
    whole = np.where(at >= 0, at, MISSING)
    if work.share_inside(whole) <= inside:
        return steps
    host = steps.host_start, steps.host_end
    longer = timed(
        work, whole, len(steps), "ranges", limits.steps.OUTER_RANGE_CONFIDENCE, phase=steps.phase, host=host
    )
    return replace(longer, thread=steps.thread, empty=steps.empty, ranges_seen=steps.ranges_seen)


def without_setup(work: Work, marked: Steps) -> Work:
    """The work from the only marked pass on, if what was issued before it holds no matrix product and began
    longer ago than the pass takes: models that are built and weights that are sent."""
    begin = int(marked.host_start[0])
    before = work.mine & (work.launched < begin)
    kernels = before & (work.name >= 0)
    if not before.any() or work.heavy[work.name[kernels]].any():
        return work
    lead = begin - int(work.launched[before].min())
    return replace(work, since=begin) if lead > int(work.ops.end[work.mine].max()) - begin else work


def repeated_ranges(work: Work) -> Iterator[Steps]:
    """Ranges of any name that repeat and hold the work between them, the outermost first. Ranges of
    operators, layers, parts of a pass and whole runs are left out by name."""
    patterns, (kinds, kind_of) = work.patterns, work.ranges.kinds
    if not len(kinds) or not len(work.calls["start"]):
        return
    parts = (patterns.step, patterns.role, patterns.marker, patterns.is_inner, patterns.is_container)
    whole = [not _OPERATOR.search(text) and not any(is_part(text) for is_part in parts) for text in kinds]
    rows = work.ranges_of(np.flatnonzero(np.array(whole, bool)[kind_of]).tolist())
    rows["kind"] = np.where(rows["domain"] > OPERATIONS, kind_of[rows["text"]], MISSING)
    found: list[Steps] = []
    for kind, thread in pairs(rows["kind"], rows["thread"]):
        chosen = np.flatnonzero((rows["kind"] == kind) & (rows["thread"] == thread))
        if kind == MISSING or len(chosen) < limits.steps.REPEATS:
            continue
        steps = replace(
            _steps_of(work, rows, chosen, thread, {}), confidence=limits.steps.UNKNOWN_NAME_CONFIDENCE
        )
        held = work.share_inside(steps.op_step, copies=True)
        if len(steps) >= limits.steps.REPEATS and held >= limits.steps.UNNAMED_RANGE_RATIO:
            found.append(steps)
    yield from sorted(found, key=len)


def repeated_functions(work: Work) -> Iterator[Steps]:
    """Calls of Python functions that repeat and hold the work between them, the outermost first;
    functions called later in a step come after earlier ones, of which they may be parts."""
    if not work.trace.has("python_calls") or not len(work.calls["start"]):
        return
    rows = work.trace.columns("python_calls", ("start", "end", "process", "thread", "text_id"))
    at = np.flatnonzero(rows["process"] == work.process)
    at = at[np.argsort(rows["start"][at], kind="stable")]
    rows = {n: v[at] for n, v in rows.items()}
    known, function, count = np.unique(rows["text_id"], return_inverse=True, return_counts=True)
    time = np.bincount(function, rows["end"] - rows["start"], minlength=len(known))
    longest = np.argsort(-time, kind="stable")
    longest = longest[count[longest] >= limits.steps.REPEATS][:_FUNCTIONS].tolist()
    names = [t.rpartition(": ")[2] for t in work.trace.texts(known[longest].tolist())]
    found: list[tuple[bool, int, Steps]] = []
    for number, name in zip(longest, names, strict=True):
        chosen = np.flatnonzero(function == number)
        named = work.patterns.is_step_function(name)
        steps = _steps_of(work, rows | {"text": rows["text_id"]}, chosen, MISSING, {})
        if (
            len(steps) >= limits.steps.REPEATS
            and work.share_inside(steps.op_step) >= limits.steps.UNNAMED_RANGE_RATIO
        ):
            sure = limits.steps.UNKNOWN_NAME_CONFIDENCE if named else limits.steps.UNKNOWN_FUNCTION_CONFIDENCE
            marked = replace(steps, method="Python functions", confidence=sure, ranges_seen=0)
            found.append((not named, len(steps), replace(marked, empty=())))
    yield from (steps for _, _, steps in sorted(found, key=lambda f: f[:2]))


def inner_work(work: Work) -> Array:
    """The first operation of every range that names a layer, a block or a micro-batch."""
    chosen = [i for i, text in enumerate(work.ranges.texts) if work.patterns.is_inner(text)]
    rows = work.ranges_of(chosen)
    return work.issued_in(rows["start"], rows["end"])[0] if chosen else np.empty(0, np.int64)


# --- what repeats inside steps, and longer parts that they may lie in -----------------------------


def step_levels(work: Work, steps: Steps) -> tuple[Level, ...]:
    """The levels inside the steps, outer ones first; empty if the steps are uncertain."""
    if not len(steps) or not steps.believed:
        return ()
    # A model that was compiled in pieces launches a graph for each.
    launched = work.calls["start"][graph_launches(work)]
    graphs = _per_step(np.searchsorted(steps.host_start, launched, "right") - 1, steps)
    found = [Level("graph launches", graphs), *_inner_ranges(work, steps), *repeated_kernels(work, steps)]
    return tuple(sorted((level for level in found if level.per_step > 1), key=lambda level: level.per_step))


def _inner_ranges(work: Work, steps: Steps) -> Iterator[Level]:
    """Ranges that number layers, blocks or micro-batches."""
    kinds, kind_of = work.ranges.kinds
    numbered = [i for i, kind in enumerate(kind_of.tolist()) if "#" in kinds[kind]]
    rows = work.ranges_of([i for i in numbered if work.patterns.is_inner(work.ranges.texts[i])])
    kind = kind_of[rows["text"]]
    at = np.searchsorted(steps.host_start, rows["start"], "right") - 1
    inside = rows["start"] < steps.host_end[np.maximum(at, 0)]
    for number in distinct(kind).tolist():
        yield Level(f"ranges {kinds[number]}", _per_step(at[inside & (kind == number)], steps))


def repeated_kernels(work: Work, steps: Steps) -> Iterator[Level]:
    """The longest run of kernels that repeats in a step of the usual size."""
    main = work.main_kernels
    size = steps.held(main)
    usual = int(np.argmin(np.abs(size - median_of(size))))
    sequence = work.name[main[steps.op_step[main] == usual]]
    if len(sequence) < limits.steps.REPEATS * limits.steps.LAYER_OPERATIONS:
        return
    names, count = np.unique(sequence, return_counts=True)
    for n in distinct(count[count >= limits.steps.REPEATS]).tolist():
        for name in names[count == n].tolist():
            period = np.diff(np.flatnonzero(sequence == name))
            length = int(median_of(period))
            regular = float((period == length).mean()) >= limits.steps.REGULAR_RETURNS_RATIO
            if (
                regular
                and length >= limits.steps.LAYER_OPERATIONS
                and n * length >= limits.steps.REPEATED_RATIO * len(sequence)
            ):
                yield Level(f"repeats of {length} kernels", n)
                return


def _per_step(step: Array, steps: Steps) -> int:
    """The number of repetitions in a step; 0 if it differs from step to step."""
    count = np.bincount(step[step >= 0], minlength=len(steps))
    usual = int(median_of(count))
    return usual if float((count == usual).mean()) >= limits.steps.LEVEL_RATIO else 0


def outer_steps(work: Work, steps: Steps) -> Steps | None:
    """The longer steps that contain these as parts; None if nothing indicates any."""
    if len(steps) < 2 * limits.steps.REPEATS:
        return None
    size = steps.size
    layered = any(repeated_kernels(work, steps))
    odd = np.abs(size - usual_size(size)) > (
        limits.steps.SPREAD_RATIO * usual_size(size) if layered or work.lost else 0
    )
    # The capture may begin and end within a part.
    odd[[0, -1]] = False
    at = _first_of_each(np.flatnonzero(odd))
    stride = constant_stride(at, len(steps))
    # Results of almost every part may go to the host, which decides what comes next.
    read_back = np.count_nonzero(steps.held(work.copied(DTOH))) >= limits.steps.LAST_STEP_RATIO * len(steps)
    if layered and (stride >= limits.steps.PASSES_A_STEP or read_back):
        return None
    if not stride and not layered:
        pause = _pauses(work, steps)
        at = _first_of_each(
            np.flatnonzero(
                pause > limits.steps.BOUNDARY_PAUSE_NS + limits.steps.BOUNDARY_PAUSE_FACTOR * median_of(pause)
            )
        )
        stride = constant_stride(at, len(steps)) if len(at) >= limits.steps.REPEATS else 0
    if not stride:
        return None
    if len(steps) - at[-1] >= limits.steps.LAST_STEP_RATIO * stride:
        at = np.append(at, len(steps))
    main = work.main_stream
    reached = np.maximum.accumulate(steps.op_step[main])
    last = main[np.searchsorted(reached, at - 1, "right") - 1]
    found = segmented(work, last, steps.method, limits.steps.PARTS_CONFIDENCE)
    return replace(found, thread=steps.thread) if len(found) >= limits.steps.REPEATS else None


def _first_of_each(at: Array) -> Array:
    """The first place of each run of neighbours."""
    return at[np.diff(at, prepend=-2) > 1]


def _pauses(work: Work, steps: Steps) -> Array:
    """The longest time that the main stream idles before an operation of each part, ns."""
    main = work.main_stream
    part = steps.op_step[main]
    idle = np.append(0, work.ops.start[main][1:] - work.ops.end[main][:-1])
    longest = np.zeros(len(steps), np.int64)
    np.maximum.at(longest, part[part >= 0], idle[part >= 0])
    longest[0] = 0
    return longest


def usual_size(size: Array) -> float:
    """The size of most parts, with some tolerance."""
    known, ranked = distinct(size), np.sort(size)
    below = np.searchsorted(ranked, known * (1 - limits.steps.SPREAD_RATIO), "left")
    return float(
        known[np.argmax(np.searchsorted(ranked, known * (1 + limits.steps.SPREAD_RATIO), "right") - below)]
    )
