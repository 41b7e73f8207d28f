"""The steps of the window: their times, slow ones, the sizes in range names."""

from __future__ import annotations

import numpy as np

from advisor.knowledge.engine_signs import detect, engines
from advisor.knowledge.files import StepName, step_patterns
from advisor.metrics import limits
from advisor.metrics.budgeted.budget import BUSY_COLUMNS, PARTS, DeviceBudget
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.waited import kv_transfers
from advisor.metrics.intervals import Coverage, Spans, intersect
from advisor.metrics.stepped.besides import other_work
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, median_of


def step_times(a: Stepped) -> Array:
    """Times of the window's steps, ns, without unrecorded stretches; the first step of a capture counts
    from its first work, and the only one from the begin of the window."""
    begin = a.steps.begin[a.window_steps]
    if len(a.steps) == len(begin) == 1:
        begin = np.maximum(np.minimum(begin, a.window.start), a.steps.host_start)
    end = a.steps.gpu_end[a.window_steps]
    return np.asarray(end - begin - Coverage(a.window.holes).within(begin, end))


def held_by_prompts(a: Stepped) -> Array:
    """Mask of the window's steps that read prompts while sequences that are being decoded wait: those of
    both phases, and those of prompts alone between two decode steps. After the latter more sequences are
    decoded than came in with the prompts, by the range names; where these tell no sizes, kernels of a
    serving engine run, the decode steps between are not each time as many (which a benchmark of one batch
    after the other makes), and nothing waited for a request before (then no sequence ran)."""
    phases = a.window_phases
    held = np.asarray(phases == "mixed")
    decode, prefill = np.flatnonzero(phases == "decode"), np.flatnonzero(phases == "prefill")
    if not len(decode) or not len(prefill):
        return held
    after = np.searchsorted(decode, prefill)
    between = (after > 0) & (after < len(decode))
    prefill, after = prefill[between], after[between]
    sizes = step_sizes(a, a.window_steps)
    pairs = zip(prefill.tolist(), decode[after].tolist(), strict=True)
    left = [_left_over(sizes, prompt, follows) for prompt, follows in pairs]
    if None in left:
        running = _is_server(a) and not _in_turns(after)
        step = a.window_steps[prefill]
        idle = Coverage(a.arrivals.waits).within(a.steps.gpu_end[step - 1], a.steps.gpu_start[step])
        left = (running & (idle == 0)).tolist()
    held[prefill[np.array(left, bool)]] = True
    return held


def _is_server(a: Stepped) -> bool:
    """Whether kernels or the command are of an engine that takes requests into a running batch."""
    name = detect(dict.fromkeys(a.names.texts, 1.0), (), a.trace.capture.command).name
    return name is not None and engines()[name].batch_limit is not None


def _left_over(sizes: list[StepName | None], prompt: int, follows: int) -> bool | None:
    """Whether more sequences are decoded in the step that follows than prompts were read; None if the names
    do not tell."""
    first, then = sizes[prompt] if sizes else None, sizes[follows] if sizes else None
    came, decoded = first and (first.batch or first.context), then and (then.batch or then.generation)
    return decoded > came if came and decoded else None


def _in_turns(after: Array) -> bool:
    """Whether three or more stretches between prompts are alike, and as long as generations."""
    stretches = np.diff(np.unique(after))
    return len(stretches) >= 3 and bool(
        (stretches == max(stretches[0], limits.kernels.GENERATED_STEPS)).all()
    )


#: Position of each step in the steps of its trace, time in ns, and whether it is far slower than the rest.
JudgedSteps = tuple[Array, Array, Array]


def slow_steps(a: Budgeted, besides: Array | None = None) -> JudgedSteps | None:
    """Slow steps of the commonest phase, of those marked `besides` if it is decode, and of those of other
    phases with a stretch that does not belong to the others (`Stretches.lone`): position in `a.steps`, time
    (ns) without start-up, waits for transfers of the KV cache, the work of an additional pass and what the
    profiler took, and whether the step is far slower than the rest; None if fewer than three are certain.
    Steps at the beginning that are slower by half and more are warm-up: they are left out."""
    if a.step_count < 3:
        return None
    phases = a.window_phases
    names, count = np.unique(phases, return_counts=True)
    commonest = names[np.argmax(count)]
    mine = phases == commonest
    extra = np.zeros(len(mine), bool) if besides is None or commonest != "decode" else besides
    mine |= extra
    at = a.window_steps
    stretch = Coverage(a.stretches.lone).within(a.steps.begin[at], a.steps.gpu_end[at])
    other = ~mine & (stretch > 0)
    mine |= other
    times = (step_times(a) + stretch)[mine]
    if a.main_device in a.budgets:
        by_step = a.budgets[a.main_device].by_step[at[mine]]
        # A step that loads a module is slow for a known reason, and one that also runs an encoder is
        # another kind of step.
        times = times - by_step[:, PARTS.index("startup")] - by_step[:, PARTS.index("profiler")]
        times = times - _for_transfers(a, at[mine])
        size, busy = a.steps.size[at[mine]], by_step[:, BUSY_COLUMNS].sum(axis=1)
        more = size >= limits.kernels.MORE_WORK_FACTOR * median_of(size)
        longer = np.maximum(busy - median_of(busy), 0)
        more |= 2 * other_work(a, at[mine], times).sum(axis=1) > np.maximum(longer, 1)
        more &= ~extra[mine]
        times = times - np.where(more, longer, _more_tokens(a, at[mine], busy))
    if (of_others := other[mine]).any():  # each is longer than the steps of its phase by its stretch
        times = np.where(of_others, median_of(times[~of_others]) + stretch[mine], times)
    if len(times) < 3:
        return None
    at = at[mine]
    if at[0] <= 1:  # the first of a capture is not in the window
        cold = (times >= limits.kernels.SLOW_STEP_FACTOR * median_of(times)) & ~extra[mine]
        warm = min(int(np.argmin(cold)), len(times) - 3)
        at, times = at[warm:], times[warm:]
    slow = times > limits.kernels.SLOW_STEP_FACTOR * median_of(times)
    rest = times[~slow]
    slow &= times > rest.mean() + limits.kernels.SLOW_STEP_DEVIATIONS * rest.std()
    return at, times, slow


def _for_transfers(a: Budgeted, steps: Array) -> Array:
    """Idle time (ns) of the device in each step while the engine waits for transfers of the KV cache."""
    found, gaps = kv_transfers(a, a.main_device), a.budgets[a.main_device].gaps
    if found is None:
        return np.zeros(len(steps))
    idle = intersect(found.asking, Spans(gaps.start, gaps.end))
    return Coverage(idle).within(a.steps.begin[steps], a.steps.gpu_end[steps])


def _more_tokens(a: Stepped, steps: Array, busy: Array) -> Array:
    """GPU time (ns) by which each step is longer than the usual one because it reads more tokens, by the
    range names: of the median step with as many tokens where there are enough, else of the step itself.
    Decode steps have one token a sequence and are compared as they are."""
    extra, tokens = np.zeros(len(busy)), np.zeros(len(busy))
    for i, named in enumerate(step_sizes(a, steps)[: len(busy)]):
        tokens[i] = (named.tokens or named.context or 0) if named is not None else 0
    usual = median_of(busy)
    for size in np.unique(tokens[tokens > median_of(tokens)]).tolist():
        alike = tokens == size
        enough = alike.sum() >= limits.kernels.LIKE_SIZED_STEPS
        held = np.full(alike.sum(), median_of(busy[alike])) if enough else busy[alike]
        extra[alike] = np.maximum(held - usual, 0)
    return extra


def slower_part(budget: DeviceBudget, step: Array, slow: Array) -> tuple[str, float]:
    """The part of the budget that is longer in the slow steps by most, and by how much (ns, over all of
    them): each against the median of the others."""
    parts = budget.by_step[step]
    usual = np.array([median_of(part) for part in parts[~slow].T])
    more = (parts[slow] - usual).sum(axis=0)
    most = int(np.argmax(more))
    return PARTS[most], float(more[most])


def longest_gap_of(a: Stepped, budget: DeviceBudget, step: int) -> int:
    """Where the longest idle gap of a step begins, or else the step (ns)."""
    begin, end = int(a.steps.begin[step]), int(a.steps.gpu_end[step])
    gaps = budget.gaps.take(np.flatnonzero((budget.gaps.start >= begin) & (budget.gaps.start < end)))
    at = int(gaps.start[np.argmax(gaps.length)]) if len(gaps) else begin
    return next((t for t in a.stretches.lone.start.tolist() if begin <= t < end), at)


def pause_ns(found: JudgedSteps | None, budget: DeviceBudget) -> float:
    """Time that few slow steps among even ones lose in host gaps, beyond the gap of a median step; 0 if
    many are slow: the program then runs like that."""
    if found is None:
        return 0.0
    step, _, slow = found
    if (
        not slow.any()
        or slow.sum() > max(len(step) * limits.kernels.PAUSED_STEPS_RATIO, 1)
        or len(step) < limits.kernels.EVEN_STEPS
    ):
        return 0.0
    held = budget.by_step[step, PARTS.index("host_gap")]
    return float(np.maximum(held[slow] - median_of(held[~slow]), 0).sum())


def once_ratio(a: Stepped, budget: DeviceBudget) -> float:
    """How much of the host gaps the longest one holds, if the window lies between too few steps to show
    whether it recurs; 0 if there are enough, or if it is a single pass."""
    gap = budget.gap_parts["host_gap"]
    if not 0 < a.step_count < min(limits.kernels.EVEN_STEPS, len(a.steps)):
        return 0.0
    return float(gap.max(initial=0)) / max(float(gap.sum()), 1.0)


def step_sizes(a: Stepped, steps: Array) -> list[StepName | None]:
    """Batch and tokens in the range name of each step; its prompts and generations are a batch."""
    none: list[StepName | None] = [None] * max(len(steps), 1)
    if a.steps.method != "ranges" or not len(steps):
        return none
    named = a.ranges.matching(step_patterns().step)
    rows = a.ranges.rows(list(named))
    mine = rows["thread"] == a.steps.thread
    start, text = rows["start"][mine], rows["text"][mine]
    at = np.searchsorted(start, a.steps.host_start[steps])
    found: list[StepName | None] = []
    for i, begin in zip(at.tolist(), a.steps.host_start[steps].tolist(), strict=True):
        hit = named[int(text[i])] if i < len(start) and start[i] == begin else None
        if hit is not None and hit.batch is None and hit.generation is not None:
            hit = hit._replace(batch=(hit.context or 0) + hit.generation)
        found.append(hit)
    return found


def decode_batch(a: Stepped, steps: Array) -> float | None:
    """How many sequences the usual decode step among these runs, by the names of their ranges; None if they
    do not say."""
    named = [s for s in step_sizes(a, steps) if s is not None and s.phase == "decode"]
    held = [n for s in named if (n := s.batch or s.generation)]
    return median_of(held) if held else None
