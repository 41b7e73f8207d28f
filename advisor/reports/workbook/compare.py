"""Several captures side by side: what each suffers from, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openpyxl.utils import get_column_letter

from advisor.model.findings import Diagnosis
from advisor.reports.workbook.captures import Captures
from advisor.reports.workbook.findings import bars
from advisor.reports.workbook.sheet import Column, Number, Sheet, field
from advisor.reports.workbook.style import MUTED, UNDER, align, font

#: A fact is compared where it has one value in each capture.
FACTS = (
    "step.time_median_ms", "kernel.per_step", "budget.busy_ratio", "budget.idle_ratio",
    "launch.idle_ratio", "graph.kernel_ratio", "sync.idle_ratio", "copy.exposed_ratio",
    "alloc.calls_per_step", "activity.sm_busy_ratio", "activity.tensor_busy_ratio",
    "activity.dram_busy_ratio", "comm.exposed_ratio", "host.gap_ratio",
    "capture.overhead_idle_ratio",
)  # fmt: skip


def comparison(sheet: Sheet, captures: Captures) -> None:
    """Captures, then findings by share, then facts; changes are formulas over the first one."""
    sheet.records(OVERVIEW, [_Overview(label, d) for label, d in captures])
    _matrix(sheet, captures)
    _facts(sheet, captures)


class _Overview:
    """A capture in one row."""

    def __init__(self, label: str, d: Diagnosis) -> None:
        top = d.findings[0] if d.findings else None
        self.label, self.entry = label, d.inputs[0]
        self.share = top.share if top else None
        self.step = max(d.steps, key=lambda s: s.count).median_ms if d.steps else None
        kernels = self.entry.kernels_per_step
        self.kernels = round(kernels, 1) if kernels is not None else None
        self.high, self.medium = (sum(f.severity == s for f in d.findings) for s in ("high", "medium"))
        self.lacking = len({e.code for e in d.lacking})
        self.first = f"{top.code} {top.cause}" if top else "nothing to fix"


OVERVIEW = (
    field("Capture", 36, "label", wrap=True), field("Share", 13, "share", "ratio"),
    field("Step, median (ms)", 13, "step", "fixed"), field("GPU busy", 13, "entry.busy_share", "ratio"),
    field("Kernels a step", 13, "kernels"), field("High", 13, "high"), field("Medium", 13, "medium"),
    field("Not judged", 13, "lacking"), field("First finding", 34, "first", wrap=True),
)  # fmt: skip


def _matrix(sheet: Sheet, captures: Captures) -> None:
    """A row a cause, a column a capture; the cell is the share of the step that it holds."""
    shares: dict[tuple[str, str], list[float | str | None]] = {}
    count = len(captures.diagnoses)
    for at, d in enumerate(captures.diagnoses):
        for f in d.findings:
            cells = shares.setdefault((f.code, f.cause), [None] * count)
            now = cells[at]
            if f.share is None:
                cells[at] = now if now is not None else "found"
            else:
                cells[at] = max(f.share, now) if isinstance(now, float) else f.share
    sheet.heading("Findings", "the share of the step that each cause holds; empty: not found")
    columns = [Column("Code and cause", 36), *_heads(captures, "ratio")]
    ordered = sorted(shares.items(), key=lambda kv: (-_largest(kv[1]), kv[0]))
    area = sheet.table(columns, [[f"{c} {cause}", *cells] for (c, cause), cells in ordered])
    for i in range(count):
        bars(sheet, area.column(2 + i))


def _heads(captures: Captures, unit: str = "") -> list[Column]:
    return [Column(label, 16, unit) for label in captures.labels]


def _largest(cells: Sequence[float | str | None]) -> float:
    return max((c for c in cells if isinstance(c, float)), default=0.0)


def _facts(sheet: Sheet, captures: Captures) -> None:
    """Telling facts, and how the others differ from the first capture."""
    sheet.heading("Facts", "changes are formulas: against the first capture, shares in points")
    columns = [Column("Fact", 36), *_heads(captures)]
    columns += [Column(f"{label}: change", 16) for label in captures.labels[1:]]
    diagnoses = captures.diagnoses
    rows: list[list[Any]] = []
    shares: list[bool] = []
    for name in FACTS:
        found = [_single(d, name) for d in diagnoses]
        if any(f is not None for f in found):
            cells = [None if f is None else Number(*f) for f in found]
            rows.append([name, *cells, *[None] * (len(diagnoses) - 1)])
            shares.append(any(f is not None and f[1] == "ratio" for f in found))
    area = sheet.table(columns, rows)
    if not rows:
        return
    for row, share in zip(range(area.first, area.last + 1), shares, strict=True):
        base = f"$B{row}"
        for i in range(1, len(diagnoses)):
            other = f"{get_column_letter(2 + i)}{row}"
            cell = sheet.ws.cell(row, 1 + len(diagnoses) + i)
            known = f"ISNUMBER({base}),ISNUMBER({other})"
            if share:
                cell.value = f'=IF(AND({known}),ROUND(100*({other}-{base}),1),"")'
                cell.number_format = '+0.0" pts";-0.0" pts";"="'
            else:
                part = f'IF({base}<>0,{other}/{base}-1,"")'
                cell.value = f'=IF(AND({known}),IF({other}={base},0,{part}),"")'
                cell.number_format = '+0.0%;-0.0%;"="'
            cell.font, cell.border = font(), UNDER
            cell.alignment = align(right=True)
    sheet.text(1, "A comparison with a verdict: advisor compare BEFORE AFTER", color=MUTED)
    sheet.row += 2


def _single(d: Diagnosis, name: str) -> tuple[float, str] | None:
    found = [f for f in d.facts if f.name == name]
    if len(found) != 1 or isinstance(found[0].value, bool | str | None):
        return None
    return float(found[0].value), found[0].unit
