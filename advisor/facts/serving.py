"""Facts about work that serving engines name in their ranges besides steps: drafts and their
verification, transfers of the KV cache, and the side of disaggregated serving; what the steps deliver.
"""

from __future__ import annotations

import re

import numpy as np

from advisor.facts.activity import read_ratio
from advisor.facts.writer import FactWriter
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import StepName, step_patterns
from advisor.knowledge.gpus import gpu_of
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import decode_batch, step_sizes, step_times
from advisor.metrics.budgeted.waited import kv_transfers
from advisor.metrics.intervals import EMPTY, Coverage, Spans, intersect
from advisor.metrics.loaded.idle_threads import gap_name
from advisor.metrics.loaded.kernels import launch_shape
from advisor.metrics.stepped.enclosed import enclosed
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import median_of
from advisor.model.numbers import first_few
from advisor.numerals import read_int
from advisor.sources.schema import MISSING

#: This many sizes of steps are named.
_SHOWN = 6


#: Actions on the KV cache by a server that only decodes, or only reads prompts.
_MOVES = {"decode": {"fetch", "receiving"}, "prefill": {"send", "sending"}}


def side_facts(a: Stepped, out: FactWriter) -> None:
    """The side of disaggregated serving, by the options of the command, else by the phase of all
    steps where the KV cache is moved."""
    if a.trace.summed or a.trace.capture.recorder.samples_only:
        return
    command = " ".join(a.trace.capture.command or ())
    sides = [pair for e in engines().values() for pair in e.sides.items()]
    found: set[str] = {side for side, text in sides if re.search(text, command)}
    if not found:
        moves = set(a.ranges.matching(step_patterns().transfer).values())
        phases = set(a.window_phases.tolist())
        found = {side for side, kinds in _MOVES.items() if moves & kinds and phases == {side}}
    out.put("capture.serving_side", found.pop() if len(found) == 1 else "not-told")


def batch_facts(a: Stepped, out: FactWriter) -> None:
    """How full the decode steps are."""
    if (batch := decode_batch(a, a.window_steps)) is None:
        return
    command = " ".join(a.trace.capture.command or ())
    limits = [e.batch_limit for e in engines().values() if e.batch_limit]
    found = {read_int(hit[1]) for text in limits if (hit := re.search(text, command))}
    out.put("serving.decode_batch", batch)
    if len(found) == 1 and (limit := found.pop()):
        out.put("serving.batch_fill_ratio", min(batch / limit, 1.0))


def speculation_facts(a: Budgeted, device: int, out: FactWriter, acceptance: float | None) -> None:
    """GPU time of drafting and of verifying, by the ranges in which their work was issued; `acceptance`
    is the number of tokens that one verification yields a sequence, if the user gave it."""
    parts = a.ranges.matching(step_patterns().speculation)
    at = a.device_ops(device)
    at = at[a.ops.api[at] >= 0]
    if not parts or not len(at):
        return
    calls = a.trace.columns("api_calls", ("start", "thread"))
    issued, thread = (values[a.ops.api[at]] for values in calls.values())
    length, (first, last), times = a.ops.length[at].astype(float), a.host_window, dict[str, float]()
    names = {"draft": "draft", "verify": "verify" if "verify" in parts.values() else "forward"}
    if "draft" not in parts.values() and names["verify"] == "forward":
        return
    for part, name in names.items():
        chosen = [i for i, found in parts.items() if found == name]
        inside, rows = a.ranges.hold(chosen, thread, issued), a.ranges.rows(chosen)
        if not inside.any():
            continue
        times[part] = time = float(length[inside].sum())
        out.put(f"speculation.{part}_ratio", time / length.sum())
        if count := int(((rows["start"] >= first) & (rows["start"] < last)).sum()):
            out.put(f"speculation.{part}_ms", time / count / 1e6)
    if len(times) < 2:
        return
    break_even = sum(times.values()) / times["verify"]
    out.put("speculation.break_even_tokens", break_even)
    out.put("speculation.acceptance_given", acceptance is not None)
    verify_ms = out.value("speculation.verify_ms")
    if acceptance and verify_ms:
        out.put("speculation.ms_per_token", break_even * verify_ms / acceptance)
        out.put("speculation.speedup_limit", acceptance / break_even)


def transfer_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """How long the KV cache travels, and how long the device waits for it."""
    found, (first, last), budget = kv_transfers(a, device), a.host_window, a.budgets[device]
    gap, gaps = budget.gap_parts["host_gap"], budget.gaps
    awaited = Coverage(EMPTY if found is None else found.awaited).within(gaps.start, gaps.end)
    if out.value("host.gap_ratio") is not None:
        out.put("kv.host_gap_ratio", np.minimum(awaited, gap).sum() / max(gap.sum(), 1))
        blocked = budget.gap_parts["os"]
        out.put("kv.os_idle_ratio", np.minimum(awaited, blocked).sum() / max(blocked.sum(), 1))
    if found is None:
        return
    begins = (found.start >= first) & (found.start < last)
    posting, travel = found.end - found.start, found.done - found.start
    known = begins & (found.done != MISSING)
    waiting = budget.idle_inside(found.awaited)
    out |= {
        "kv.transfer_count": begins.sum(),
        "kv.post_ms": median_of(posting[begins]) / 1e6 if begins.any() else None,
        "kv.waiting_ratio": waiting / budget.program_ns,
    }
    feeder = a.feeder(device)
    if waiting and feeder is not None:
        asking = found.asking
        inside = enclosed(a.ranges, a.repeated, feeder, asking, passes=True)
        held = budget.idle_inside(Spans(asking.start[inside], asking.end[inside]))
        out.put("kv.step_wait_ratio", held / waiting)
        idle = Spans(gaps.start[awaited > 0], gaps.end[awaited > 0])
        if (named := gap_name(a, feeder, intersect(idle, asking))) is not None:
            out.put("kv.waiting_range", named.text)
    if known.any():
        out.put("kv.transfer_ms", median_of(travel[known]) / 1e6)
        out.put("kv.post_ratio", min(posting[known].sum() / max(travel[known].sum(), 1), 1.0))


# --- what the steps deliver ------------------------------------------------------------------------


def rate_facts(
    a: Budgeted, device: int, out: FactWriter, weight_bytes: int | None, parameters: int | None
) -> None:
    """`weight_bytes` and `parameters` count the weights that one step reads, where the user gave them."""
    if not a.step_count:
        return
    times, decode = step_times(a), a.window_phases == "decode"
    seconds = float(times.sum()) / 1e9
    if weight_bytes and decode.any():
        read = read_ratio(a, device, weight_bytes * int(decode.sum()), float(times[decode].sum()))
        out.put("serving.model_bandwidth_ratio", read)
    sizes = step_sizes(a, a.window_steps)
    _padding(a, device, sizes, out)
    counts = [_tokens(size) for size in sizes]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not seconds:
        return
    out.put("serving.tokens_per_s", sum(known) / seconds)
    _delivered(sizes, a.window.length / 1e9, out)
    about = gpu_of(a.device(device))
    peak = about.tensor_tflops.get("fp16") if about else None
    if parameters and peak:
        ratio = 2 * parameters * sum(known) / seconds / (peak * 1e12)
        out.put("serving.model_flop_ratio", ratio if ratio <= 1 else None)


def _tokens(size: StepName | None) -> int | None:
    """Tokens of one step: those in its name, else one for each sequence of a decode."""
    if size is None:
        return None
    if size.tokens is not None:
        return size.tokens + (size.generation_tokens or size.generation or 0)
    return size.batch if size.phase == "decode" or not size.context else None


def _delivered(sizes: list[StepName | None], seconds: float, out: FactWriter) -> None:
    """What users get over the whole window: a token for each sequence that a step decodes, drafts aside, and
    the prompts that the steps read."""
    read, written = 0, 0
    for size in sizes:
        tokens = _tokens(size)
        if size is None or tokens is None:
            return
        decoding = size.generation or (size.batch if size.phase == "decode" else 0)
        if decoding is None:
            return
        written += decoding
        read += 0 if size.phase == "decode" else max(tokens - (size.generation_tokens or decoding), 0)
    if seconds > 0:
        out.put("serving.prompt_tokens_per_s", read / seconds)
        out.put("serving.written_tokens_per_s", written / seconds)


def _padding(a: Budgeted, device: int, sizes: list[StepName | None], out: FactWriter) -> None:
    """How far batches are below the largest that replays the same graph, if names show batches."""
    batch = np.array([s.batch or 0 if s is not None and s.phase == "decode" else 0 for s in sizes])
    at = a.device_kernels(device)
    at = at[a.ops.graph_node[at] != 0]
    if not batch.any() or not len(at):
        return
    number = np.full(len(a.steps) + 1, len(batch))
    number[a.window_steps] = np.arange(len(batch))
    step = number[a.steps.op_step[at]]
    shape = launch_shape(a.trace, a.ops.row[at]).astype(np.uint64)
    mark = (shape + np.uint64(1)) * (
        a.op_name[at].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    )
    graph = np.zeros(len(batch) + 1, np.uint64)
    np.add.at(graph, step, mark)  # wraps: a fingerprint of the kernels of the step
    mine = (batch > 0) & (graph[:-1] != 0)
    _, group = np.unique(graph[:-1][mine], return_inverse=True)
    largest = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, group, batch[mine])
    bucket = largest[group]
    if (bucket == batch[mine]).all():
        return
    wasted = bucket - batch[mine]
    busy = np.bincount(step, a.ops.length[at], len(batch) + 1)[:-1][mine]
    out.put("graph.padded_ratio", wasted.sum() / bucket.sum())
    lost = (busy * wasted / bucket).sum() / a.budgets[device].program_ns
    out.put("graph.padded_window_ratio", min(lost, 1.0))
    sizes_, count = np.unique(np.stack((bucket, batch[mine])), axis=1, return_counts=True)
    out.table("graph.buckets", np.vstack((sizes_, count)).T.tolist())


def replay_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Which steps replay graphs, and what the others are."""
    if not len(a.device_kernels(device)):
        return
    at, steps = a.window_steps, a.steps
    if not len(at):
        out.put("graph.replaying_step_ratio", 0.0)
        return
    from_graph = np.flatnonzero((a.ops.graph_node != 0) & (steps.op_step >= 0))
    replays = (2 * steps.held(from_graph) > steps.size)[at]
    out.put("graph.replaying_step_ratio", replays.mean())
    if replays.all() or not replays.any():
        return
    names = [_kind_of_step(*each) for each in zip(step_sizes(a, at), a.window_phases.tolist(), strict=True)]
    kinds = list(dict.fromkeys(names))
    with_graph = {name for name, replay in zip(names, replays.tolist(), strict=True) if replay}
    without = [kind for kind in kinds if kind and kind not in with_graph]
    out.put("graph.eager_steps", first_few(without, _SHOWN) or None)


def _kind_of_step(size: StepName | None, phase: str) -> str:
    """``decode of 72``; the phase alone where the size is not known, which of a prompt hardly recurs."""
    phase = "" if phase == "unknown" else phase
    if size is not None and size.batch and phase in ("decode", ""):
        return f"{phase or 'batch'} of {size.batch}"
    return phase
