"""The first sheet: the verdict, the five main findings, the budget, caveats, the state of the review."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.pagebreak import Break

from advisor.model.findings import SEVERITIES, Diagnosis
from advisor.model.numbers import UNKNOWN, amount
from advisor.model.rules import judges_capture
from advisor.reports import phrases
from advisor.reports.blocks import Labelled, Number
from advisor.reports.header import header_input
from advisor.reports.summary import headline, verdict, why
from advisor.reports.workbook import style
from advisor.reports.workbook.chart import budget
from advisor.reports.workbook.evidence import Captures, Row
from advisor.reports.workbook.findings_sheet import bars, coloured, speedup
from advisor.reports.workbook.sheet import FIRST, LAST, GridSheet, Link

if TYPE_CHECKING:
    from openpyxl.cell.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet

TOP = 5
#: Heads of the columns that are numbers.
RIGHT = ("share", "speed-up")
#: The line for the meeting: labels that `advisor review import` looks for, and where to fill in.
NAMES, DAY = "Present", "Date of the review"
MEETING = {DAY: (4, 5), NAMES: (8, LAST)}


class Tally(Struct, frozen=True):
    """Where decisions and answers are, for formulas that count them."""

    decisions: str | None = None
    keys: str | None = None
    answers: str | None = None


def summary(worksheet: Worksheet, captures: Captures, rows: Sequence[Row], tally: Tally) -> None:
    """Fill the sheet."""
    grid = GridSheet(worksheet)
    _title(grid, captures)
    if len(captures.diagnoses) == 1:
        _tiles(grid, captures.diagnoses[0])
    _top(grid, rows, captures.many)
    if captures.diagnoses:
        # The verdict and its consequences are one page, the rest another.
        worksheet.row_breaks.append(Break(id=grid.row))
        budget(grid, captures)
        _caveats(grid, captures)
    _review(grid, tally, len(rows))
    worksheet.row_breaks.append(Break(id=grid.row))
    _about(grid, captures)
    worksheet.print_area = f"A1:{get_column_letter(LAST)}{grid.row}"


def _title(grid: GridSheet, captures: Captures) -> None:
    names, many, diagnoses = captures.labels, captures.many, captures.diagnoses
    title = f"Review of {len(names)} captures" if many else "".join(names[:1]) or "Checklist"
    for row in (grid.row, grid.row + 1):
        grid.ws.cell(row, 1).fill = style.fill(style.BAND)
    grid.merged(FIRST, LAST, title, size=17, bold=True, color="FFFFFF", ground=style.BAND, middle=True)
    grid.row += 1
    entries = [] if many else [i for d in diagnoses for i in d.inputs[:1]]
    known = [t for i in entries for t in (*phrases.machine(i), phrases.step_time([i]))]
    about = "  ·  ".join(filter(None, known)) or ", ".join(names)
    grid.merged(FIRST, LAST, about, color="D5DEE8", ground=style.BAND)
    grid.row += 2
    for name, diagnosis in captures:
        if many:
            grid.merged(FIRST, FIRST + 2, name, bold=True)
            grid.merged(FIRST + 3, LAST, verdict(diagnosis))
            grid.rule()
            grid.row += 1
            continue
        first = headline(diagnosis)
        ink, ground = style.LEVELS[first.severity] if first is not None else (style.GOOD, style.GOOD_BG)
        grid.merged(
            FIRST, LAST, verdict(diagnosis), size=15, bold=True, color=ink, ground=ground, middle=True
        )
        grid.row += 1
        if text := why(diagnosis, whole=True):
            grid.merged(FIRST, LAST, text, size=11, ground=ground)
            grid.row += 1


def _tiles(grid: GridSheet, d: Diagnosis) -> None:
    """Six numbers at a glance."""
    busy = [i.busy_share for i in d.inputs if i.busy_share is not None]
    kernels = [i.kernels_per_step for i in d.inputs if i.kernels_per_step is not None]
    step = max(d.steps, key=lambda s: s.count) if d.steps else None
    top = next((f for f in d.findings if f.share is not None), None)
    known = (speedup(f) for f in d.findings)
    gains = [value for value, unit in known if value is not None and unit == "times"]
    phase = "" if step is None or step.phase == UNKNOWN else f"{step.phase} "
    counts = {s: sum(f.severity == s for f in d.findings) for s in SEVERITIES}
    tiles: list[tuple[str, Any, str]] = [
        (f"{phase}step, median" if step else "steps", step.median_ms if step else "none", "ms"),
        ("GPU busy in the window", fmean(busy) if busy else None, "ratio"),
        (f"largest share: {top.code}" if top else "largest share", top and top.share, "ratio"),
        ("best speed-up of a step", max(gains) if gains else "none", "times"),
        ("kernels a step", fmean(kernels) if kernels else None, ""),
        ("findings high / medium", f"{counts['high']} / {counts['medium']}", ""),
    ]
    grid.row += 1
    for i, (label, value, unit) in enumerate(tiles):
        cell = _tile(grid, i, label)
        if isinstance(value, float) and not unit:
            value = round(value, 1)
        style.put(cell, UNKNOWN if value is None else value, unit)
    grid.row += 2


def _tile(grid: GridSheet, number: int, label: str) -> Cell:
    """A label and, below it, the cell of a number that stands out."""
    first = FIRST + 2 * number
    grid.merged(first, first + 1, label, **style.LABEL)
    grid.row += 1
    grid.merged(first, first + 1, "", size=17, bold=True, ground=style.SOFT, middle=True, height=27)
    grid.row -= 1
    return grid.ws.cell(grid.row + 1, first)


def _share(row: Row) -> Number:
    return Number(row.finding.share, "ratio")


#: Columns of the top findings: header, value, and the first and last column of the grid.
_LEFT: tuple[tuple[str, Callable[[Row], Any], tuple[int, int]], ...] = (
    ("#", lambda _: None, (2, 2)), ("severity", lambda r: r.finding.severity, (3, 3)),
    ("code", lambda r: r.proof, (4, 4)), ("finding", lambda r: r.finding.title, (5, 7)),
)  # fmt: skip


def _speed(row: Row) -> Number:
    return Number(*speedup(row.finding))


def _fix(row: Row) -> str | None:
    return next((a.action for a in row.finding.recommendations), None)


ONE = (*_LEFT, ("share", _share, (8, 8)), ("speed-up", _speed, (9, 9)), ("fix", _fix, (10, 13)))
MANY = (
    *_LEFT, ("capture", lambda r: r.label, (8, 8)), ("share", _share, (9, 9)), ("speed-up", _speed, (10, 10)),
    ("fix", _fix, (11, 13)),
)  # fmt: skip


def _top(grid: GridSheet, rows: Sequence[Row], many: bool) -> None:
    """The five main findings, with a link to the evidence of each."""
    ranked = sorted(rows, key=_weight) if many else list(rows)
    shown = ranked[:TOP]
    if not shown:
        return
    more = len(rows) - len(shown)
    grid.heading("Top findings", f"and {more} more on the sheet Findings" if more > 0 else "")
    for head, _, (first, last) in (spans := MANY if many else ONE):
        grid.merged(first, last, head, **style.HEADER, right=head in RIGHT, indent=head == "fix")
    begin = grid.row + 1
    for number, row in enumerate(shown, 1):
        grid.row += 1
        grid.merged(FIRST, FIRST, number)
        for head, get, (first, last) in spans[1:]:
            value: Any = get(row)
            unit = ""
            if isinstance(value, Link):
                grid.merged(first, last, value.text)
                grid.link(grid.row, first, value)
                continue
            if isinstance(value, Number):
                value, unit = value.value, value.unit
            grid.merged(first, last, value, unit=unit, right=head in RIGHT, indent=head == "fix")
        grid.rule()
    coloured(grid, f"C{begin}:C{grid.row}", style.LEVELS)
    share = get_column_letter(next(first for head, _, (first, _) in spans if head == "share"))
    bars(grid, f"{share}{begin}:{share}{grid.row}")
    grid.row += 1


def _weight(row: Row) -> tuple[bool, float, str, str]:
    f = row.finding
    return (not f.invalidates, -(f.share or 0.0) * f.confidence, f.code, row.capture)


def _review(grid: GridSheet, tally: Tally, findings: int) -> None:
    """The progress of the review: formulas that follow the cells to fill in."""
    cells: dict[str, str] = {}
    if tally.decisions and findings:
        cells = {
            "findings": f"=COUNTA({tally.keys})",
            "decided": f"=COUNTA({tally.decisions})",
            "accepted": f'=COUNTIF({tally.decisions},"accept")',
            "still open": f"=COUNTA({tally.keys})-COUNTA({tally.decisions})",
        }
    if tally.answers:
        cells |= {f"checklist: {word}": f'=COUNTIF({tally.answers},"{word}")' for word in ("yes", "no")}
    if not cells:
        return
    sheets = ["Findings"] * bool(tally.keys) + ["Checklist"] * bool(tally.answers)
    grid.heading("Review", f"counted from what is filled in on {' and '.join(sheets)}")
    for i, (label, formula) in enumerate(cells.items()):
        cell = _tile(grid, i, label)
        cell.value, cell.number_format = formula, "0"
    grid.row += 3
    if not tally.decisions:
        return
    for label, (first, last) in MEETING.items():
        grid.merged(first - 2, first - 1, label, bold=True)
        grid.merged(first, last, None, ground=style.FILL_IN)
    grid.ws.cell(grid.row, MEETING[DAY][0]).number_format = style.DATE
    grid.row += 1


def _about(grid: GridSheet, captures: Captures) -> None:
    """What was read, with which version, and how to make this workbook again."""
    entries: list[tuple[str, str]] = []
    for d in captures.diagnoses[:1]:
        made_by = f"{d.tool.name} {d.tool.version}, rule engine {d.tool.engine}, schema {d.schema_version}"
        entries.append(("Made by", made_by))
    if paths := [i.path for d in captures.diagnoses for i in d.inputs]:
        named = " ".join(f"'{p}'" if " " in p else p for p in paths)
        entries.append(("Command", f"advisor diagnose {named} --xlsx FILE"))
        entries.append(("Explain a code", "advisor explain CODE --trace CAPTURE"))
    entries.append(("After the review", "advisor review import FILE --format markdown"))
    for d in captures.diagnoses:
        for entry in d.inputs:
            entries += [("File", entry.path), ("Format", entry.format)]
            known = header_input(entry, d.main_steps if len(d.inputs) == 1 else None)
            entries += [(b.label.capitalize(), b.text) for b in known if isinstance(b, Labelled)]
    grid.heading("About")
    for label, text in entries:
        grid.merged(FIRST, FIRST + 1, label, bold=label == "File", color=style.MUTED)
        grid.merged(FIRST + 2, LAST, text)
        grid.row += 1


def _caveats(grid: GridSheet, captures: Captures) -> None:
    """Faults of the captures themselves, and questions that they cannot answer."""
    lines: list[tuple[str, str]] = []
    for label, d in captures:
        lead = f"{label}: " if captures.many else ""
        about = (f for f in d.findings if judges_capture(f.code))
        lines += [(f.code, f"{lead}{f.title}. {f.message}") for f in about]
        for entry in d.inputs:
            lines += [("warning", f"{lead}{w}") for w in dict.fromkeys(entry.warnings)]
        if d.lacking:
            text = f"{lead}{amount(len({e.code for e in d.lacking}), 'rule')} not judged"
            flags = [(len({e.code for e in es}), flag) for _, flag, es in phrases.by_reason(d) if flag]
            if flags:
                count, flag = max(flags)  # the option with which most of them could be judged
                text += f"; {phrases.remedy_text(flag)} for {count} of them"
            lines.append(("not judged", text))
        if d.ticks:
            lines.append(("in order", f"{lead}{amount(len(d.ticks), 'check')} in order (sheet Rules)"))
    if not lines:
        return
    grid.heading("Caveats", "the captures themselves, and what they cannot answer")
    for label, text in lines:
        grid.merged(FIRST, FIRST + 1, label, bold=True, color=style.MUTED)
        grid.merged(FIRST + 2, LAST, text)
        grid.rule()
        grid.row += 1
