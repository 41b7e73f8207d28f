"""Facts about work that serving engines name in their ranges besides steps: drafts and their
verification, transfers of the KV cache, and the side of disaggregated serving; what the steps deliver.
"""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import needs
from advisor.facts.activity import WEIGHT_BYTES, read_ratio
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import StepName, step_patterns
from advisor.knowledge.gpus import gpu_of
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import EMPTY, Coverage, union_by
from advisor.metrics.kernels import launch_shape
from advisor.metrics.phases import step_sizes, step_times
from advisor.metrics.waited import kv_transfers
from advisor.model.arrays import median_of
from advisor.sources.schema import MISSING

#: This many sizes of steps are named.
_SHOWN = 6

_SPECULATES = Need("no range is named after drafting or verifying", "NVTX ranges around draft and verify")
_BOTH = Need("drafting and verifying do not both have ranges", "NVTX ranges around draft and verify")
_ACCEPTS = Need("the tokens that a verification yields are not given", "--acceptance")
_TRANSFERS = Need("no range tells of transfers of the KV cache", "NIXL 1.4 or TensorRT-LLM, which have ranges for them")  # fmt: skip
_SIZES = Need("the names of the steps do not tell how many sequences they hold", "an NVTX range around each step that names its batch")  # fmt: skip
_TOKENS = Need("the names of the steps do not tell how many tokens they work on", "an NVTX range around each step that names its batch")  # fmt: skip
_REPLAYED = Need("no graph is replayed for batches of several sizes")
_POSTED = Need("no transfer was posted in the window")
_COMPLETED = Need("no transfer was posted and seen complete in the window", needs.LONGER)

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.serving_side", "text", "", "What the recorded server does where prefill and decode run on different servers: prefill, decode, not-told", "options on the command line, as knowledge/engines names them; else the phase of all steps, where ranges tell that the KV cache is fetched or sent"),
    ], columns={}, windowed=False),
    *group("device", needs.NVTX, [
        Entry("speculation.draft_ratio", "ratio", "ranges api_calls", "Share of the GPU time whose work was issued inside ranges around drafting", "time of those operations / time of all operations of the window"),
        Entry("speculation.verify_ratio", "ratio", "ranges api_calls", "Share of the GPU time whose work was issued inside ranges around verifying drafts", "as above"),
        Entry("speculation.draft_ms", "ms", "ranges api_calls", "GPU time of one draft", "time of those operations / ranges around drafting that begin on the host side of the window"),
        Entry("speculation.verify_ms", "ms", "ranges api_calls", "GPU time of one verification", "as above"),
        Entry("speculation.break_even_tokens", "ratio", "ranges api_calls", "Tokens a sequence that a verification has to yield so that drafting costs no more time than it saves, if a step without drafts takes as long as a verification", "(draft time + verify time) / verify time", needs=(_SPECULATES, _BOTH)),
        Entry("speculation.acceptance_given", "flag", "ranges api_calls", "The user says how many tokens a verification yields (--acceptance)", "the option", needs=(_SPECULATES, _BOTH)),
        Entry("speculation.ms_per_token", "ms", "ranges api_calls", "GPU time of drafting and verifying for each token that a sequence accepts (needs --acceptance)", "(draft time + verify time) / verifications / accepted tokens", needs=(_SPECULATES, _BOTH, _ACCEPTS)),
        Entry("speculation.speedup_limit", "ratio", "ranges api_calls", "How much faster than steps without drafts a sequence gets its tokens at most (needs --acceptance)", "accepted tokens / speculation.break_even_tokens: a step without drafts takes no longer than a verification", needs=(_SPECULATES, _BOTH, _ACCEPTS)),
    ], columns={"ranges": needs.RANGES, **needs.GAPS}, needs=(_SPECULATES,)),
    *group("device", needs.CUDA, [
        Entry("graph.replaying_step_ratio", "ratio", "kernels api_calls", "Share of the steps that take most of their GPU work from graphs", "steps with more than half of their operations from graphs / steps; without steps 0", needs=(needs.KERNELS,)),
        Entry("graph.eager_steps", "text", "kernels ranges", "Sizes or phases of the steps that replay no graph while others do: batches and phases of which no step does", "names of the steps, else phases", columns=needs.STEP_COLUMNS, needs=(needs.STEPS, Need("all steps replay graphs, or none does, or their names and phases do not tell them apart"))),
    ], columns=needs.STEP_COLUMNS),
    *group("device", needs.NVTX, [
        Entry("serving.decode_batch", "count", "ranges", "Sequences in a decode step", "median, by the names of the steps"),
        Entry("serving.batch_fill_ratio", "ratio", "ranges", "The same over the most sequences that the command lets the server run at once", "option on the command line, as knowledge/engines names it; none above 1", needs=(needs.STEPS, _SIZES, Need("the command line does not say how many sequences may run at once"))),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, _SIZES)),
    *group("device", needs.CUDA, [
        Entry("serving.tokens_per_s", "count_per_s", "ranges", "Tokens that the steps work on a second, as captured: prompts read and tokens generated", "tokens by range names over step times", needs=(needs.STEPS, _TOKENS)),
        Entry("serving.model_bandwidth_ratio", "ratio", "kernels", "Model-bandwidth utilisation: bytes of the weights over the time of a decode step, over the peak bandwidth (needs --weight-bytes)", "weight bytes x decode steps / their time / peak; none above 1", needs=(needs.STEPS, needs.PEAK, WEIGHT_BYTES)),
        Entry("serving.model_flop_ratio", "ratio", "ranges kernels", "Model-FLOP utilisation: two operations a parameter and token over the time of the steps, over the dense 16-bit peak (needs --weight-bytes config.json)", "2 x parameters x tokens / step times / peak; attention is not counted", needs=(needs.STEPS, _TOKENS, Need("the number of parameters is not given", "--weight-bytes config.json"))),
        Entry("graph.padded_ratio", "ratio", "ranges kernels", "Share of the sequences that replayed decode graphs compute for nothing: batches of several sizes replay one graph, whose size is at least that of the largest", "sum of (largest - batch) / sum of largest, over the steps that replay the same kernels in the same launch shapes", needs=(needs.STEPS, _TOKENS, _REPLAYED)),
        Entry("graph.padded_window_ratio", "ratio", "ranges kernels", "The same as a share of the untraced step, if all time of these steps followed the batch", "padded share of the steps' busy time", needs=(needs.STEPS, _TOKENS, _REPLAYED)),
    ], columns=needs.STEP_COLUMNS),
    *group("device", needs.NVTX, [
        Entry("kv.transfer_count", "count", "ranges", "Transfers of the KV cache that the process posted", "ranges nixl::postXferReq that begin on the host side of the window"),
        Entry("kv.transfer_ms", "ms", "ranges", "Time of a transfer, from its post until the program sees that it is complete", "median; post and mark with one id", needs=(_TRANSFERS, _POSTED, _COMPLETED)),
        Entry("kv.post_ms", "ms", "ranges", "Time of the call that posts a transfer", "median", needs=(_TRANSFERS, _POSTED)),
        Entry("kv.post_ratio", "ratio", "ranges", "Share of the time of the transfers in which they are still being posted, one descriptor after another", "sum of the calls / sum of the transfers", needs=(_TRANSFERS, _POSTED, _COMPLETED)),
        Entry("kv.host_gap_ratio", "ratio", "kernels api_calls", "How much of the host gaps lies in those spans; 0 where no range tells of transfers", "overlap, at most the gap, over host.gap_ratio", columns={"ranges": "start end process text_id", **needs.GAPS}, needs=(needs.FEEDER,)),
        Entry("kv.waiting_ratio", "ratio", "ranges kernels", "Share of the untraced step in which the device runs nothing while a fetched transfer is on its way or the engine waits for transfers", "idle time inside those spans / untraced window"),
    ], columns={"ranges": "start end process text_id payload", **needs.GAPS}, needs=(_TRANSFERS,)),
)  # fmt: skip


#: Actions on the KV cache by a server that only decodes, or only reads prompts.
_MOVES = {"decode": {"fetch", "receiving"}, "prefill": {"send", "sending"}}


def side_facts(a: Analysis, out: FactWriter) -> None:
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


def batch_facts(a: Analysis, out: FactWriter) -> None:
    """How full the decode steps are."""
    named = [s for s in step_sizes(a, a.window_steps) if s is not None and s.phase == "decode"]
    if not (held := [n for s in named if (n := s.batch or s.generation)]):
        return
    batch = median_of(held)
    command = " ".join(a.trace.capture.command or ())
    limits = [e.batch_limit for e in engines().values() if e.batch_limit]
    found = {int(hit[1]) for text in limits if (hit := re.search(text, command))}
    out.put("serving.decode_batch", batch)
    if len(found) == 1 and (limit := found.pop()):
        out.put("serving.batch_fill_ratio", min(batch / limit, 1.0))


def speculation_facts(a: Analysis, device: int, out: FactWriter, acceptance: float | None) -> None:
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
    for part in ("draft", "verify"):
        rows = a.ranges.rows([i for i, found in parts.items() if found == part])
        inside = np.zeros(len(at), bool)
        for own, spans in union_by(rows["thread"], rows["start"], rows["end"]).items():
            inside |= (thread == own) & spans.holds(issued)
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


def transfer_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """How long the KV cache travels, and how long the device waits for it."""
    found, (first, last), budget = kv_transfers(a, device), a.host_window, a.budgets[device]
    gap, gaps = budget.gap_parts["host_gap"], budget.gaps
    if out.value("host.gap_ratio") is not None:
        awaited = Coverage(EMPTY if found is None else found.awaited).within(gaps.start, gaps.end)
        out.put("kv.host_gap_ratio", np.minimum(awaited, gap).sum() / max(gap.sum(), 1))
    if found is None:
        return
    begins = (found.start >= first) & (found.start < last)
    posting, travel = found.end - found.start, found.done - found.start
    known = begins & (found.done != MISSING)
    out |= {
        "kv.transfer_count": begins.sum(),
        "kv.post_ms": median_of(posting[begins]) / 1e6 if begins.any() else None,
        "kv.waiting_ratio": budget.idle_inside(found.awaited) / budget.untraced_ns,
    }
    if known.any():
        out.put("kv.transfer_ms", median_of(travel[known]) / 1e6)
        out.put("kv.post_ratio", min(posting[known].sum() / max(travel[known].sum(), 1), 1.0))


# --- what the steps deliver ------------------------------------------------------------------------


def rate_facts(
    a: Analysis, device: int, out: FactWriter, weight_bytes: int | None, parameters: int | None
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


def _padding(a: Analysis, device: int, sizes: list[StepName | None], out: FactWriter) -> None:
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
    lost = (busy * wasted / bucket).sum() / a.budgets[device].untraced_ns
    out.put("graph.padded_window_ratio", min(lost, 1.0))
    sizes_, count = np.unique(np.stack((bucket, batch[mine])), axis=1, return_counts=True)
    out.table("graph.buckets", np.vstack((sizes_, count)).T.tolist())


def replay_facts(a: Analysis, device: int, out: FactWriter) -> None:
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
    shown = ", ".join(without[:_SHOWN]) + (
        f" and {len(without) - _SHOWN} more" if len(without) > _SHOWN else ""
    )
    out.put("graph.eager_steps", shown or None)


def _kind_of_step(size: StepName | None, phase: str) -> str:
    """``decode of 72``; the phase alone where the size is not known, which of a prompt hardly recurs."""
    phase = "" if phase == "unknown" else phase
    if size is not None and size.batch and phase in ("decode", ""):
        return f"{phase or 'batch'} of {size.batch}"
    return phase
