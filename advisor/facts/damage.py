"""Facts about events lost from a capture, what shows the loss, what the recording tool reports about it,
rows that cannot be true, and work outside the window.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import capture_knowledge
from advisor.knowledge.kernel_names import search
from advisor.knowledge.shapes import Refusal
from advisor.metrics.budgeted.graph_nodes import uneven_nodes
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import EMPTY, joined, union
from advisor.metrics.loaded.integrity import find_invalid
from advisor.metrics.loaded.losses import uneven_share
from advisor.metrics.loaded.operations import GOOD_RESULTS, Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.loaded.workload import ran_on
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.recording import Recording
from advisor.metrics.stepped.stage import Stepped
from advisor.metrics.stepped.startup import work_span
from advisor.metrics.stepped.window import OutsideWork, outside_work
from advisor.model.arrays import Array, among, distinct, where
from advisor.model.facts import Value
from advisor.model.numbers import session_time
from advisor.numerals import read_int
from advisor.sources.schema import MISSING, Call, base_name
from advisor.sources.trace import TIMELESS

_LOST = re.compile(r"(?i)\blost\b|\bdropp(?:ed|ing)\b|buffer.{0,500}(?:full|overflow)|overflowed")
#: Vague notices ("might have been") and losses of CPU samples say nothing about CUDA events.
_NOT_LOSS = re.compile(r"(?i)\bmight\b|cpu (?:ip|sampling|context)|backtrace|perf event")
#: The number of lost events in a message of the profiler.
_COUNT = re.compile(r"\d+(?:,\d{3})*")

Sign = tuple[str, float]

#: A row that fails a check of :mod:`advisor.metrics.integrity`, in words.
_WORDS = {
    "no time": "have no time that can be read",
    "end before start": "end before they start",
    "times apart": "lie months from the others",
    "left out": "lie months from the others and are left out",
    "before its launch": "start before the call that issued them",
    "recorded twice": "are recorded twice",
    "without length": "last no time",
    "negative size": "have a negative size",
    "overlap on a stream": "overlap the one ahead on their stream",
    "overlap of replays": "overlap a graph launch on their stream",
    "after its wait": "end after a call has returned that waited for them",
    "issued by another kind of call": "carry the correlation id of a call that issues no such work",
    "overlap on a thread": "overlap the one ahead on their thread",
    "ids in no order": "carry a lower correlation id than the call ahead on their thread",
    "one launch for several": "share a launch call with another",
    "correlation id repeated": "carry the correlation id of another",
    "name without text": "have a name without text",
    "named like a call": "have the name of a call",
    "named like a kernel": "have the name of a kernel",
    "above 100 %": "show a share above 100 %",
}
_COUNTS = {
    "capture.end_before_start_count": ("end before start",),
    "capture.before_launch_count": ("before its launch",),
    "capture.stream_overlap_count": ("overlap on a stream", "overlap of replays"),
    "capture.outlasted_wait_count": ("after its wait",),
    "capture.misissued_count": ("issued by another kind of call",),
    "capture.call_overlap_count": ("overlap on a thread",),
    "capture.impossible_size_count": ("negative size", "without length"),
    "capture.repeated_row_count": ("recorded twice",),
    "capture.repeated_correlation_count": ("correlation id repeated", "one launch for several"),
    "capture.disordered_correlation_count": ("ids in no order",),
    "capture.far_time_count": ("times apart", "left out"),
    "capture.nameless_count": ("name without text", "named like a call", "named like a kernel"),
    "capture.overfull_sample_count": ("above 100 %",),
}
_NOUNS = {
    "api_calls": "API calls",
    "graph_runs": "graph runs",
    "host_calls": "OS calls",
    "ranges": "NVTX ranges",
    "overheads": "overhead rows",
}


@predicate
def named_steps(a: Stepped) -> bool:
    return a.damage.step_ranges > 0


@predicate
def no_gpu_work(a: Loaded) -> bool:
    return not len(a.ops)


def damage_facts(a: Budgeted, out: FactWriter, rows: int) -> None:
    """Losses of a capture with this many `rows` of events, and what shows them."""
    texts = a.trace.texts(a.trace.columns("diagnostics", ("text_id",))["text_id"].tolist())
    signs = [*_stretches(a, out), *_launches(a, out), *_left_out(a, out), *_reported(out, texts, rows)]
    invalid = str(out.base.value("capture.invalid_rows"))
    signs += [(text, 1.0) for text in invalid.split("; ") if text != "none"]
    names = ("damaged", "lost_row", "lost_copy_idle", "invalid_row")
    found = _refusals(texts)
    out |= {
        "capture.lost_ratio": max(out.value(f"capture.{name}_ratio") or 0.0 for name in names),
        "capture.damage_signs": "; ".join(text for text, _ in signs) or "none",
        "capture.refusal": found[0].id if found else "none",
        "capture.next_refusal": found[1].id if len(found) > 1 else "none",
        "capture.refusal_text": "; ".join(r.says for r in found) or None,
    }
    out.table("capture.damage", signs)
    if not found and out.base.value("capture.gpu_work_count") == 0:
        captured = a.captured.sure and 2 * a.captured.launches >= max(a.captured.all_launches, 1)
        processor, shown_by = (
            ("graphs", "CUDA graphs were being captured, which records launches and runs none of them")
            if captured
            else ran_on(a.trace, a.ranges)
        )
        out |= {"capture.ran_on": processor, "capture.ran_on_signs": shown_by}


def node_time_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Only ROCm was seen to give nodes of graphs times that are not theirs; of other GPUs none count."""
    if not a.trace.has("kernels") or not len(a.device_kernels(device)):
        return
    found = uneven_nodes(a, device) if a.trace.capture.vendor == "AMD" else None
    out.put("graph.uneven_node_ratio", 0.0 if found is None else found.share)
    out.put("graph.node_time_over", None if found is None else found.over)


def _refusals(texts: Sequence[str]) -> list[Refusal]:
    """Why events of CUDA are missing, as the tool says, in the order in which it does."""
    known = capture_knowledge().refusals
    named = [r for text in dict.fromkeys(texts) for r in known if search(r.pattern, text)]
    return [r for i, r in enumerate(named) if r not in named[:i]]


def _stretches(a: Stepped, out: FactWriter) -> list[Sign]:
    """Jumps of the correlation ids, and step ranges that lost their calls."""
    damage = a.damage
    if a.startup.capture_length:
        out.put("capture.damaged_ratio", min(damage.holes.total / a.startup.capture_length, 1.0))
    if a.trace.has("api_calls"):
        out.put("capture.correlation_jump", damage.jump)
        if damage.step_ranges:
            out.put("capture.empty_step_ratio", damage.empty_steps / damage.step_ranges)
    signs = (
        (damage.jump, f"correlation ids jump by {damage.jump:,}"),
        (damage.empty_steps, f"{damage.empty_steps} of {damage.step_ranges} step ranges hold no CUDA call"),
    )
    return [(text, float(number)) for number, text in signs if number]


def _launches(a: Budgeted, out: FactWriter) -> list[Sign]:
    """Launches whose work is missing."""
    kernels, runs = a.trace.rows("kernels"), a.trace.rows("graph_runs")
    lasts = a.ops.end - a.ops.start
    blocks = float(lasts[a.ops.kind == Kind.GRAPH_RUN].sum() / max(int(lasts.sum()), 1))
    out.put("capture.unseen_graph_ratio", max(blocks, hidden_graph_ratio(a)))
    if not a.trace.has("api_calls") or not _linked(a):
        out.put("capture.opaque_graph_ratio", 1.0 if runs else None)
        out.put("capture.hidden_graph_ratio", 0.0 if runs else None)
        return []
    losses, recorded = a.losses, kernels + runs
    lost_copies = len(losses.lost_copies)
    opaque = losses.opaque_graphs / max(losses.graph_launches, 1)
    out |= {
        "capture.captured_launch_ratio": a.captured.launches / max(a.captured.all_launches, 1),
        "capture.launch_without_kernel_ratio": losses.lost_launches / max(losses.launches, 1),
        "capture.lost_kernel_ratio": losses.lost_kernels / max(recorded + losses.lost_kernels, 1),
        "capture.lost_call_ratio": losses.lost_calls / max(losses.kernels, 1),
        "capture.lost_copy_ratio": lost_copies / max(losses.copies, 1),
        "capture.lost_copy_idle_ratio": _idle_around(a, losses.lost_copies),
        "capture.opaque_graph_ratio": 1.0 if runs else opaque,
        "capture.hidden_graph_ratio": hidden_graph_ratio(a),
    }
    none = "" if recorded else " and none is recorded"
    signs = (  # in numbers, never as a share that rounds to 0
        (losses.lost_launches, losses.launches, f"kernel launches left no kernel{none}"),
        (losses.lost_graphs, losses.graph_launches, "graph launches left no row"),
        (losses.lost_nodes, losses.nodes, "nodes of graph replays left no row"),
        (losses.lost_calls, losses.kernels, "kernels stand without their call"),
        (lost_copies, losses.copies, "copy calls left no copy"),
    )
    return [(f"{lost:,} of {of:,} {text}", float(lost)) for lost, of, text in signs if lost]


def _idle_around(a: Budgeted, calls: Array) -> float:
    """The largest share of a device's window in gaps between two operations that were issued one before and
    one after one of these calls (rows, ascending)."""
    begun = a.trace.columns("api_calls", ("start",))["start"]
    times, shares = np.sort(begun[calls]), [0.0]
    for device, budget in a.budgets.items() if len(calls) else ():
        api = np.append(a.ops.api[a.ops.device == device], MISSING)  # the last one: no operation
        before, after = api[budget.gaps.prev_op], api[budget.gaps.next_op]
        known = (before != MISSING) & (after != MISSING)
        ahead = [np.searchsorted(times, begun[rows[known]]) for rows in (before, after)]
        held = budget.gaps.length[known][ahead[0] < ahead[1]].sum()
        shares.append(min(float(held) / budget.program_ns, 1.0))
    return max(shares)


def hidden_graph_ratio(a: Loaded) -> float:
    """Share of the graph launches that left neither kernels nor a run as a whole; 0 if unknown."""
    hidden = a.losses.rowless_graphs / max(a.losses.graph_launches, 1)
    return hidden if hidden and a.trace.has("api_calls") and _linked(a) else 0.0


def _linked(a: Loaded) -> bool:
    """Whether both sides hold correlation ids; without them losses cannot be counted."""
    sides = [a.trace.columns(t, ("correlation",))["correlation"] for t in ("api_calls", "kernels")]
    return all(not len(side) or bool((side != MISSING).any()) for side in sides)


def _left_out(a: Recording, out: FactWriter) -> list[Sign]:
    """The missing part of a trace that holds only some of its events."""
    found = a.thinned
    kernels = uneven_share(a.trace, a.ops, a.op_name, a.steps.op_step)
    out.put("capture.left_out_ratio", max(found.share, kernels))
    signs = (
        (found.operators, "operators are missing by their numbers"),
        (found.calls, "CUDA calls are missing by their numbers"),
        (found.products, "matrix products launch nothing"),
        (kernels, "kernels are missing: no two steps run the same"),
    )
    return [(f"{100 * share:.0f} % of the {text}", share) for share, text in signs if share]


def _reported(out: FactWriter, texts: list[str], rows: int) -> list[Sign]:
    """Losses reported by the profiler."""
    losses = [t for t in texts if _LOST.search(t) and not _NOT_LOSS.search(t)]
    caught = [read_int(found[0]) for t in losses if (found := _COUNT.search(t))]
    counts = [count for count in caught if count is not None]
    out.put("capture.lost_event_count", len(losses))
    out.put("capture.uncounted_loss_count", len(losses) - len(counts))
    lost_share = sum(counts) / max(sum(counts) + rows, 1)
    names = ("lost_kernel", "lost_call", "left_out")
    lost = (out.value(f"capture.{name}_ratio") or 0.0 for name in names)
    out.put("capture.lost_row_ratio", max(lost_share, *lost))
    return [(f"the tool says: {t[:100]}", 1.0) for t in losses[:5]]


def error_facts(a: Loaded, out: FactWriter) -> None:
    """Calls that returned an error; the most frequent error that is more than an answer, the first of
    several."""
    if not a.trace.has("api_calls"):
        return
    calls = a.trace.columns("api_calls", ("result", "name_id", "start", "call"))
    bad, recorded = ~among(calls["result"], GOOD_RESULTS), bool((calls["result"] != MISSING).any())
    result, names, start = (calls[n][bad] for n in ("result", "name_id", "start"))
    failed = None
    if recorded:
        out.put("capture.error_call_count", len(result))
        launches = among(calls["call"], (Call.LAUNCH, Call.GRAPH_LAUNCH))
        failed = float(launches[bad].sum() / max(launches.sum(), 1))
        out.put("capture.error_launch_ratio", failed)
    if not len(result):
        out.put("capture.error_kind", "none" if recorded else None)
        out.put("capture.failed_ratio", failed)
        return
    known, codes = capture_knowledge().errors, result[:20].tolist()
    words = [known[code].name if code in known else None for code in codes]
    shown = zip(a.trace.texts(names[:20].tolist()), codes, start[:20] / 1e9, words, strict=True)
    out.table("capture.errors", list(shown))
    grave = np.flatnonzero(~among(result, [code for code, e in known.items() if e.kind == "answer"]))
    grave = grave if len(grave) else np.arange(len(result))
    _, first, count = np.unique(result[grave], return_index=True, return_counts=True)
    worst = grave[min(zip(-count, first, strict=True))[1]]
    code = int(result[worst])
    error = known.get(code)
    what = f"{code}, {error.name}: {error.says}" if error else f"{code}, which is not a known code"
    out.put("capture.error_kind", error.kind if error else "unknown")
    out.put("capture.failed_ratio", 1.0 if error and error.kind in ("crash", "hardware") else failed)
    out.put("capture.error_text", f"{base_name(a.trace.texts([int(names[worst])])[0])} returned {what}")


# --- rows that cannot be true ---------------------------------------------------------------------


def integrity_facts(a: Profiled, out: FactWriter) -> None:
    """Counts by invariant, and all of them in words; the trace's ledger takes note of them."""
    invalid = find_invalid(a.trace, a.ops)
    causes = [f"{view} is a view, not a table" for view in invalid.views]
    rows = list[list[Value | None]]()
    for (check, table), count in invalid.counts.items():
        dropped, _ = a.trace.ledger.get(("dropped", TIMELESS, table), (0, 0))
        what, of = _NOUNS.get(table, table), a.trace.rows(table) + a.trace.left_out.get(table, 0) + dropped
        causes.append(f"{count:,} of {of:,} {what} {_WORDS[check]}")
        if check != "no time" or not dropped:
            a.trace.ledger.note("doubted", _WORDS[check], table, count, of)
        rows.append([_WORDS[check], what, count, count / of])
    out |= {
        **{name: sum(map(invalid.of, checks)) for name, checks in _COUNTS.items()},
        "capture.view_count": len(invalid.views),
        "capture.invalid_row_ratio": invalid.worst_ratio,
        "capture.invalid_rows": "; ".join(causes) or "none",
    }
    out.table("capture.invalid", rows)


# --- how much GPU work the window holds, and how much lies outside it -----------------------------


def window_facts(a: Budgeted, out: FactWriter) -> None:
    """Work inside and outside the windows of all devices; nothing where none was recorded."""
    if not len(a.ops):
        return
    chosen = a.selection
    if a.trace.has("api_calls"):
        earlier, (first, last) = a.earlier_work.total, work_span(a.trace, a.ops)
        out.put("capture.earlier_work_ratio", earlier / max(last - first, 1))
        out.put("capture.earlier_work_ms", earlier / 1e6)
    devices = [a.on(int(d)) for d in distinct(a.ops.device).tolist()]
    by_device = list(map(_outside, devices))
    length = sum(one.window.length for one in devices)
    inside, outside = sum(found.inside for found in by_device), sum(found.outside for found in by_device)
    out |= {
        "capture.window_work_count": sum(len(a.device_ops(d)) for d in a.devices),
        "capture.window_busy_ms": inside / 1e6,
        "capture.window_busy_ratio": inside / length if length else None,
        "capture.steps_busy_ratio": inside / length if length and a.step_count else 0.0,
        "capture.window_chosen": bool(chosen.window or chosen.nvtx or chosen.phase),
        "capture.outside_work_ratio": outside / (inside + outside) if inside + outside else 0.0,
        "capture.whole_work_window": _whole(a, by_device),
        "capture.step_levels": ", ".join(f"{n} {w}" for w, n in a.steps.levels) or None,
    }
    rows = list[list[Value | None]]()
    for place in by_device[0].places:
        spans = joined(*(found.places[place] for found in by_device))
        ns = sum(found.places[place].total for found in by_device)
        if len(spans):
            first, last = spans.start[0] / 1e9, spans.end[-1] / 1e9
            rows.append([place, ns / 1e6, ns / (inside + outside), first, last])
    out.table("capture.outside_work", rows)


def _outside(own: Stepped) -> OutsideWork:
    """Work of one device outside its window."""
    ops, mine, late = own.ops, own.ops.device == own.main_device, EMPTY
    if own.trace.has("api_calls"):
        lo, hi = own.host_window
        at = np.flatnonzero(mine & (ops.api >= 0) & (ops.end > own.window.end))
        begun = own.trace.columns("api_calls", ("start",))["start"][ops.api[at]]
        at = at[(begun >= lo) & (begun < hi)]
        late = union(ops.start[at], ops.end[at])
    work = union(ops.start[where(mine)], ops.end[where(mine)])
    return outside_work(work, late, own.window, own.steps, own.startup)


def _whole(a: Budgeted, by_device: list[OutsideWork]) -> str | None:
    """The argument of ``--window`` that includes all GPU work except start-up."""
    outside = joined(*(spans for found in by_device for spans in found.places.values()))
    if not len(outside):
        return None
    lo = min([int(outside.start[0]), *(a.on(d).window.start for d in a.devices)])
    hi = max([int(outside.end[-1]), *(a.on(d).window.end for d in a.devices)])
    return f"{session_time(lo // 1000 * 1000)}/{session_time(-(-hi // 1000) * 1000)}"
