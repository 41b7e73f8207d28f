"""What `advisor stats` counts: rows of the whole capture or of the window, by kernel name."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Spans, union
from advisor.metrics.kernels import dense
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.model.numbers import session_time
from advisor.sources.schema import MISSING

NameStyle = Literal["full", "base", "mangled", "operation"]

_KINDS = {"kernels": Kind.KERNEL, "copies": Kind.COPY, "memsets": Kind.MEMSET, "graph_runs": Kind.GRAPH_RUN}


class Query:
    """One analysis, the rows of it that count, and how kernels are named."""

    def __init__(self, a: Analysis, names: NameStyle = "full", whole: bool = False) -> None:
        """`whole`: count every row of the capture, whatever the window."""
        self.a = a
        self.names = names
        self.whole = whole

    def rows(self, table: str) -> Array:
        """Row numbers of a table that count, ascending.

        GPU work counts where it overlaps the window outside its holes. Host rows of a phase are
        those that start in the host ranges of its steps, because the host runs ahead of the GPU.
        """
        trace = self.a.trace
        if self.whole or not trace.has(table):
            return np.arange(trace.rows(table))
        if table in _KINDS:
            ops = self.a.ops
            return np.sort(ops.row[(ops.kind == _KINDS[table]) & self.a.in_window])
        span = trace.columns(table, ("start", "end"))
        spans = self._phase_host
        if spans is not None:
            at = np.searchsorted(spans.start, span["start"], "right") - 1
            inside = (at >= 0) & (span["start"] < spans.end[np.maximum(at, 0)])
        else:
            window = self.a.window
            inside = (span["end"] > window.start) & (span["start"] < window.end)
            if len(window.holes):
                at = np.searchsorted(window.holes.start, span["start"], "right") - 1
                inside &= ~((at >= 0) & (span["start"] < window.holes.end[np.maximum(at, 0)]))
        return np.flatnonzero(inside)

    def frame(self, table: str, *columns: str) -> pd.DataFrame:
        """Columns of the rows that count, by row number; `ns` is the time from start to end. Kernels
        have their `name` in the chosen style."""
        found = pd.DataFrame(self.a.trace.columns(table, ("start", "end", *columns)))
        found["ns"] = found["end"] - found["start"]
        if table == "kernels":
            found["name"] = self.all_names
        return found if self.whole else found.loc[self.rows(table)]

    def texts(self, ids: Array | pd.Series) -> Any:
        """A categorical of names from ids of the string pool, ordered by their ids; equal texts are one
        category."""
        distinct, code = dense(np.asarray(ids))
        first: dict[str, int] = {}
        merged = [first.setdefault(t, len(first)) for t in self.a.trace.texts(distinct.tolist())]
        return pd.Categorical.from_codes(np.array(merged, np.int64)[code], pd.Index(list(first)))

    @cached_property
    def _phase_host(self) -> Spans | None:
        """Host times of the steps of the chosen phase, None where they are unknown."""
        steps, at = self.a.steps, self.a.window_steps
        known = steps.method in ("ranges", "graph launches")
        if not self.a.selection.phase or not known or len(at) == 0:
            return None
        begins = np.append(steps.host_start, max(int(steps.host_end[-1]), steps.host_start[-1] + 1))
        return union(begins[at], begins[at + 1])

    @cached_property
    def all_names(self) -> Any:
        """A categorical of the names of all kernel rows of the capture.

        A row without a base or mangled name goes by its full one, as in `nsys stats`.
        """
        if self.names == "operation":
            named = self.a.names
            return pd.Categorical(np.array(named.operations, object)[named.index])
        ids = self.a.trace.columns("kernels", ("name_id",))["name_id"]
        if self.names != "full":
            column = "short_name_id" if self.names == "base" else "mangled_name_id"
            own = self.a.trace.columns("kernels", (column,))[column]
            ids = np.where(own == MISSING, ids, own)
        return self.texts(ids)

    @property
    def scope(self) -> str:
        """Which part of the capture counts, for the header."""
        if self.whole:
            return "whole capture"
        window, choice = self.a.window, self.a.selection
        kind = "window" if choice.window or choice.nvtx else "steady window"
        phase = f", {choice.phase} steps only" if choice.phase else ""
        return (
            f"{kind} {session_time(window.start)} to {session_time(window.end)} "
            f"({window.method}{phase}; {window.length / 1e6:.3f} ms)"
        )
