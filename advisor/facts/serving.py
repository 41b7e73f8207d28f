"""Facts about work that serving engines name in their ranges besides steps: drafts and their
verification, transfers of the KV cache, and the side of disaggregated serving.
"""

from __future__ import annotations

import re

import numpy as np

from advisor.facts import needs
from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.knowledge.files import engines, step_patterns
from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Coverage, union
from advisor.metrics.phases import step_sizes
from advisor.metrics.waited import kv_transfers
from advisor.model.arrays import distinct, median_of
from advisor.sources.schema import MISSING

_SPECULATES = Need("no range is named after drafting or verifying", "NVTX ranges around draft and verify")
_BOTH = Need("drafting and verifying do not both have ranges", "NVTX ranges around draft and verify")
_ACCEPTS = Need("the tokens that a verification yields are not given", "--acceptance")
_TRANSFERS = Need("no range tells of transfers of the KV cache", "NIXL 1.4 or TensorRT-LLM, which have ranges for them")  # fmt: skip
_SIZES = Need("the names of the steps do not tell how many sequences they hold", "an NVTX range around each step that names its batch")  # fmt: skip
_LIMIT = Need("the command line does not say how many sequences may run at once")
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
    *group("device", needs.NVTX, [
        Entry("serving.decode_batch", "count", "ranges", "Sequences in a decode step", "median, by the names of the steps"),
        Entry("serving.batch_fill_ratio", "ratio", "ranges", "The same over the most sequences that the command lets the server run at once", "option on the command line, as knowledge/engines names it; none above 1", needs=(needs.STEPS, _SIZES, _LIMIT)),
    ], columns=needs.STEP_COLUMNS, needs=(needs.STEPS, _SIZES)),
    *group("device", needs.NVTX, [
        Entry("kv.transfer_count", "count", "ranges", "Transfers of the KV cache that the process posted", "ranges nixl::postXferReq that begin on the host side of the window"),
        Entry("kv.transfer_ms", "ms", "ranges", "Time of a transfer, from its post until the program sees that it is complete", "median; post and mark with one id", needs=(_TRANSFERS, _POSTED, _COMPLETED)),
        Entry("kv.post_ms", "ms", "ranges", "Time of the call that posts a transfer", "median", needs=(_TRANSFERS, _POSTED)),
        Entry("kv.post_ratio", "ratio", "ranges", "Share of the time of the transfers in which they are still being posted, one descriptor after another", "sum of the calls / sum of the transfers", needs=(_TRANSFERS, _POSTED, _COMPLETED)),
        Entry("kv.host_gap_ratio", "ratio", "kernels api_calls", "How much of the host gaps lies in those spans; 0 where no range tells of transfers", "overlap, at most the gap, over host.gap_ratio", columns={"ranges": "start end process text_id", **needs.GAPS}, needs=(needs.FEEDER,)),
        Entry("kv.waiting_ratio", "ratio", "ranges kernels", "Share of the window in which the device runs nothing while a fetched transfer is on its way or the engine waits for transfers", "idle time inside those spans / window"),
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
    held = [n for s in named if (n := s.batch or s.generation)]
    if not held:
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
    issued, thread = (calls[n][a.ops.api[at]] for n in ("start", "thread"))
    length = a.ops.length[at].astype(float)
    first, last = a.host_window
    times = {}
    for part in ("draft", "verify"):
        rows = a.ranges.rows([i for i, found in parts.items() if found == part])
        inside = np.zeros(len(at), bool)
        for own in distinct(rows["thread"]).tolist():
            spans = union(rows["start"][rows["thread"] == own], rows["end"][rows["thread"] == own])
            inside |= (thread == own) & spans.holds(issued)
        if not inside.any():
            continue
        times[part] = time = float(length[inside].sum())
        out.put(f"speculation.{part}_ratio", time / float(length.sum()))
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
    found = kv_transfers(a, device)
    (first, last) = a.host_window
    budget = a.budgets[device]
    gap = budget.gap_parts["host_gap"]
    inside = np.zeros(len(gap))
    if found is not None:
        inside = np.minimum(Coverage(found.awaited).within(budget.gaps.start, budget.gaps.end), gap)
    if out.value("host.gap_ratio") is not None:
        out.put("kv.host_gap_ratio", float(inside.sum() / max(gap.sum(), 1)))
    if found is None:
        return
    begins = (found.start >= first) & (found.start < last)
    posting, travel = found.end - found.start, found.done - found.start
    known = begins & (found.done != MISSING)
    out |= {
        "kv.transfer_count": int(begins.sum()),
        "kv.transfer_ms": median_of(travel[known]) / 1e6 if known.any() else None,
        "kv.post_ms": median_of(posting[begins]) / 1e6 if begins.any() else None,
        "kv.post_ratio": min(float(posting[known].sum() / max(travel[known].sum(), 1)), 1.0)
        if known.any()
        else None,
        "kv.waiting_ratio": budget.idle_inside(found.awaited) / budget.window.nonzero_length,
    }
