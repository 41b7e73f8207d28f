"""What `advisor stats` counts: rows of the whole capture or of the window, by kernel name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from advisor.metrics.analysis import Analysis
from advisor.metrics.intervals import Spans, union
from advisor.metrics.kernels import dense
from advisor.metrics.operations import Kind
from advisor.model.arrays import Array
from advisor.sources.schema import MISSING
from advisor.sources.trace import Columns

NameStyle = Literal["full", "base", "mangled", "operation"]

_KINDS = {
    "kernels": Kind.KERNEL, "copies": Kind.COPY, "memsets": Kind.MEMSET,
    "graph_runs": Kind.GRAPH_RUN,
}  # fmt: skip


@dataclass(frozen=True)
class Labels:
    """A name for each row of a table: `code[i]` is the position of row i's name in `texts`."""

    code: Array
    texts: list[str]

    def of(self, codes: Array) -> list[str]:
        """The names behind codes."""
        return [self.texts[i] for i in codes.tolist()]


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

    def columns(self, table: str, names: Iterable[str]) -> Columns:
        """Columns of the rows that count."""
        found = self.a.trace.columns(table, names)
        if self.whole:
            return found
        rows = self.rows(table)
        return {name: values[rows] for name, values in found.items()}

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
    def labels(self) -> Labels:
        """Names of all kernel rows of the capture, in the chosen style.

        A row without a base or mangled name goes by its full one, as in `nsys stats`.
        """
        trace = self.a.trace
        if self.names == "operation":
            named = self.a.names
            texts = sorted(set(named.operations))
            number = {text: i for i, text in enumerate(texts)}
            code = np.array([number[o] for o in named.operations], np.int64)
            return Labels(code[named.index] if len(code) else named.index, texts)
        ids = trace.columns("kernels", ("name_id",))["name_id"]
        if self.names != "full":
            column = "short_name_id" if self.names == "base" else "mangled_name_id"
            own = trace.columns("kernels", (column,))[column]
            ids = np.where(own == MISSING, ids, own)
        return text_labels(self.a, ids)

    @property
    def kernels(self) -> Labels:
        """Names of the kernel rows that count."""
        return Labels(self.labels.code[self.rows("kernels")], self.labels.texts)

    @property
    def scope(self) -> str:
        """Which part of the capture counts, for the header."""
        if self.whole:
            return "whole capture"
        window, choice = self.a.window, self.a.selection
        kind = "window" if choice.window or choice.nvtx else "steady window"
        phase = f", {choice.phase} steps only" if choice.phase else ""
        return (
            f"{kind} {window.start / 1e9:.6f}s to {window.end / 1e9:.6f}s "
            f"({window.method}{phase}; {window.length / 1e6:.3f} ms)"
        )


def text_labels(a: Analysis, ids: Array) -> Labels:
    """Names from ids of the string pool, in the order of their ids; equal texts share a code."""
    distinct, code = dense(ids)
    texts = a.trace.texts(distinct.tolist())
    first: dict[str, int] = {}
    merged = [first.setdefault(text, len(first)) for text in texts]
    if len(first) == len(texts):
        return Labels(code, texts)
    return Labels(np.array(merged, np.int64)[code], list(first))
