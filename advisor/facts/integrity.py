"""Facts about rows that cannot be true."""

from __future__ import annotations

from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.integrity import find_invalid
from advisor.model.facts import TRACE, Value

#: What one row that fails a check of :mod:`advisor.metrics.integrity` is called in words.
_WORDS = {
    "end before start": "end before they start",
    "times apart": "lie months from the others",
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
    "capture.far_time_count": ("times apart",),
    "capture.nameless_count": ("name without text",),
    "capture.overfull_sample_count": ("above 100 %",),
}
_NOUNS = {"api_calls": "API calls", "graph_runs": "graph runs", "host_calls": "OS calls",
          "ranges": "NVTX ranges", "overheads": "overhead rows"}  # fmt: skip


def integrity_facts(a: Analysis, out: FactWriter) -> None:
    """Counts by invariant, and all of them in words."""
    invalid = find_invalid(a.trace, a.ops)
    out.put_all({name: sum(map(invalid.of, checks)) for name, checks in _COUNTS.items()})
    out.put("capture.view_count", len(invalid.views))
    out.put("capture.invalid_row_ratio", invalid.worst_ratio)
    said = [f"{view} is a view, not a table" for view in invalid.views]
    rows = list[list[Value | None]]()
    for (check, table), count in invalid.counts.items():
        what, of = _NOUNS.get(table, table), a.trace.rows(table)
        said.append(f"{count:,} of {of:,} {what} {_WORDS[check]}")
        rows.append([_WORDS[check], what, count, count / of])
    out.put("capture.invalid_rows", "; ".join(said) or "none")
    out.table("capture.invalid", TRACE, "Rows that cannot be true",
              ("what is wrong", "rows", "count", "share"), rows)  # fmt: skip
