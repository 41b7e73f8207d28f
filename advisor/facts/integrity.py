"""Facts about rows that cannot be true."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.spec import Entry, group
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.integrity import find_invalid
from advisor.model.facts import TRACE, Value

#: What one row that fails a check of :mod:`advisor.metrics.integrity` is called in words.
_WORDS = {
    "end before start": "end before they start",
    "times apart": "lie months from the others",
    "left out": "lie months from the others and are left out",
    "before its launch": "start before the call that issued them",
    "recorded twice": "are recorded twice",
    "overlap on a stream": "overlap the one ahead on their stream",
    "one launch for several": "share a launch call with another",
    "correlation id repeated": "carry the correlation id of another",
    "name without text": "have a name without text",
    "above 100 %": "show a share above 100 %",
}
_COUNTS = {
    "capture.end_before_start_count": ("end before start",),
    "capture.before_launch_count": ("before its launch",),
    "capture.stream_overlap_count": ("overlap on a stream",),
    "capture.repeated_row_count": ("recorded twice",),
    "capture.repeated_correlation_count": ("correlation id repeated", "one launch for several"),
    "capture.far_time_count": ("times apart", "left out"),
    "capture.nameless_count": ("name without text",),
    "capture.overfull_sample_count": ("above 100 %",),
}
_NOUNS = {"api_calls": "API calls", "graph_runs": "graph runs", "host_calls": "OS calls",
          "ranges": "NVTX ranges", "overheads": "overhead rows"}  # fmt: skip

FACTS = (
    *group("trace", needs.CUDA, [
        Entry("capture.invalid_row_ratio", "ratio", "", "Rows that cannot be true, as the largest share over the tables", "rows that break at least one of the invariants below over the rows of their table; 1 where more than 1 % of the times of a table lie months from the others or a table is a view, since everything rests on those; fewer such rows are left out"),
        Entry("capture.invalid_rows", "text", "", "What cannot be true in the capture, with counts", "in words, by check and table"),
        Entry("capture.end_before_start_count", "count", "", "Rows that end before they start", "end < start", columns={**origin.OPS, "api_calls": "start end", "ranges": "start end"}),
        Entry("capture.before_launch_count", "count", "", "GPU operations that start before the call that issued them", "more than 5 us before the start of the call of the same (process, correlation)", columns={**origin.OPS, "api_calls": origin.CALLS}),
        Entry("capture.stream_overlap_count", "count", "", "Kernels that overlap the previous kernel on their stream", "by more than 1 us; graph nodes left out; of launches that allow it (LaunchKernelEx) those that also end before it", columns={"kernels": f"{origin.SPAN} {origin.JOIN} context stream graph_node"}),
        Entry("capture.repeated_row_count", "count", "", "Rows that are in a table twice", "equal times, place, correlation and name", columns={**origin.OPS, "api_calls": f"{origin.CALLS} name_id"}),
        Entry("capture.repeated_correlation_count", "count", "", "Issuing calls that carry the correlation id of an earlier one, and kernels whose launch call has run another", "by (process, correlation); calls inside others and graph launches left out", columns={"api_calls": origin.CALLS, "kernels": origin.JOIN}),
        Entry("capture.far_time_count", "count", "", "Rows that lie more than 30 days from the others", "start against the median start of the largest table", columns={**origin.OPS, "api_calls": "start", "ranges": "start"}),
        Entry("capture.nameless_count", "count", "", "Kernels and calls whose name is not in the table of strings", "ids without a text", columns={"kernels": "name_id", "api_calls": "name_id"}),
        Entry("capture.overfull_sample_count", "count", "", "Samples with a share of a peak above 105 %", "row count", columns={"samples": "gr_active sm_active dram_read dram_write"}),
        Entry("capture.view_count", "count", "", "Tables of the export that the file holds as views", "not read", columns={}),
    ], columns={**origin.GAPS, "ranges": "start end", "host_calls": "start end", "overheads": "start end", "samples": "gr_active"}, windowed=False),
)  # fmt: skip


def integrity_facts(a: Analysis, out: FactWriter) -> None:
    """Counts by invariant, and all of them in words; the trace's ledger takes note of them."""
    invalid = find_invalid(a.trace, a.ops)
    out.put_all({name: sum(map(invalid.of, checks)) for name, checks in _COUNTS.items()})
    out.put("capture.view_count", len(invalid.views))
    out.put("capture.invalid_row_ratio", invalid.worst_ratio)
    causes = [f"{view} is a view, not a table" for view in invalid.views]
    rows = list[list[Value | None]]()
    for (check, table), count in invalid.counts.items():
        what, of = _NOUNS.get(table, table), a.trace.rows(table) + a.trace.left_out.get(table, 0)
        causes.append(f"{count:,} of {of:,} {what} {_WORDS[check]}")
        a.trace.ledger.note("doubted", _WORDS[check], table, count, of)
        rows.append([_WORDS[check], what, count, count / of])
    out.put("capture.invalid_rows", "; ".join(causes) or "none")
    out.table(
        "capture.invalid",
        TRACE,
        "Rows that cannot be true",
        ("what is wrong", "rows", "count", "share"),
        rows,
    )
