"""The first sheet: the verdict, the five findings that matter, the budget, what to mind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from openpyxl.styles import Alignment
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.pagebreak import Break

from advisor.model.findings import SEVERITIES, Diagnosis
from advisor.reports import phrases
from advisor.reports.numbers import UNKNOWN, amount
from advisor.reports.wording import remedy_text
from advisor.reports.workbook.board import FIRST, LAST, Board
from advisor.reports.workbook.captures import Captures, Row
from advisor.reports.workbook.chart import budget
from advisor.reports.workbook.findings import bars, levels, speedup
from advisor.reports.workbook.sheet import Link, Sheet
from advisor.reports.workbook.style import BAND, HEAD, LEVELS, MUTED, SOFT, align, fill, font, number_format

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

TOP = 5
#: Heads of the columns that are numbers.
RIGHT = ("share", "speed-up")


@dataclass(frozen=True)
class Tally:
    """Where decisions and answers stand, for formulas that count them."""

    decisions: str | None = None
    keys: str | None = None
    answers: str | None = None


def summary(
    worksheet: Worksheet,
    captures: Captures,
    rows: Sequence[Row],
    evidence: dict[str, str],
    tally: Tally,
    sheets: dict[str, str],
) -> None:
    """Fill the sheet."""
    board = Board(worksheet)
    _title(board, captures)
    if len(captures.diagnoses) == 1:
        _tiles(board, captures.diagnoses[0])
    _top(board, rows, evidence, captures.many)
    if captures.diagnoses:
        # The verdict and what follows from it is one page, the rest another.
        worksheet.row_breaks.append(Break(id=board.row))
        budget(board, captures)
        _caveats(board, captures)
    _review(board, tally, len(rows), sheets)
    Sheet.page(_Page(worksheet))
    worksheet.print_area = f"A1:{get_column_letter(LAST)}{board.row}"


class _Page(Sheet):
    """Links, formats and the print set-up of a sheet that has a grid of its own."""

    def __init__(self, worksheet: Worksheet) -> None:
        self.ws = worksheet
        self._head = 0


def _title(board: Board, captures: Captures) -> None:
    names, many, diagnoses = captures.labels, captures.many, captures.diagnoses
    title = f"Review of {len(names)} captures" if many else "".join(names[:1]) or "Checklist"
    for column in range(1, LAST + 1):
        board.ws.cell(board.row, column).fill = fill(BAND)
        board.ws.cell(board.row + 1, column).fill = fill(BAND)
    board.merged(FIRST, LAST, title, size=17, bold=True, color="FFFFFF", ground=BAND, middle=True)
    board.row += 1
    entry = None if many or not diagnoses else diagnoses[0].inputs[0]
    known = [] if entry is None else [*phrases.machine(entry), phrases.untraced(entry) or ""]
    about = "  ·  ".join(filter(None, known)) if diagnoses and diagnoses[0].inputs else ""
    board.merged(FIRST, LAST, about or ", ".join(names), color="D5DEE8", ground=BAND)
    board.row += 2
    if not many:
        for diagnosis in diagnoses:
            _verdict(board, diagnosis)
        return
    for name, diagnosis in captures:
        head, rest = phrases.headline(diagnosis)
        board.merged(FIRST, FIRST + 2, name, bold=True)
        board.merged(FIRST + 3, LAST, head or rest)
        board.rule()
        board.row += 1


def _verdict(board: Board, diagnosis: Diagnosis) -> None:
    head, rest = phrases.headline(diagnosis)
    worst = diagnosis.findings[0].severity if diagnosis.findings else "info"
    ink, ground = LEVELS[worst] if head else ("17734A", "E4F5EC")
    if head:
        board.merged(FIRST, LAST, head, size=15, bold=True, color=ink, ground=ground, middle=True)
        board.row += 1
    board.merged(FIRST, LAST, rest, size=11, ground=ground)
    board.row += 1


def _tiles(board: Board, d: Diagnosis) -> None:
    """Six numbers at a glance."""
    busy = [i.busy_share for i in d.inputs if i.busy_share is not None]
    kernels = [i.kernels_per_step for i in d.inputs if i.kernels_per_step is not None]
    step = max(d.steps, key=lambda s: s.count) if d.steps else None
    top = next((f for f in d.findings if f.impact and f.impact.share is not None), None)
    gains = [
        f.gain.speedup.mid for f in d.findings if f.gain and f.gain.speedup and f.gain.measure == "latency"
    ]
    phase = "" if step is None or step.phase == UNKNOWN else f"{step.phase} "
    counts = {s: sum(f.severity == s for f in d.findings) for s in SEVERITIES}
    tiles: list[tuple[str, Any, str]] = [
        (f"{phase}step, median" if step else "steps", step.median_ms if step else "none", "ms"),
        ("GPU busy in the window", fmean(busy) if busy else None, "ratio"),
        (
            f"largest share: {top.code}" if top else "largest share",
            top.impact.share if top and top.impact else None,
            "ratio",
        ),
        ("best speed-up of a step", max(gains) if gains else "none", "times"),
        ("kernels a step", fmean(kernels) if kernels else None, ""),
        ("findings high / medium", f"{counts['high']} / {counts['medium']}", ""),
    ]
    board.row += 1
    for i, (label, value, unit) in enumerate(tiles):
        first = FIRST + 2 * i
        board.merged(first, first + 1, label, size=9.5, color=MUTED, ground=SOFT, height=16)
        board.row += 1
        if isinstance(value, float) and not unit:
            value = round(value, 1)
        board.merged(
            first,
            first + 1,
            "unknown" if value is None else value,
            unit=unit,
            size=17,
            bold=True,
            ground=SOFT,
            height=27,
        )
        cell = board.ws.cell(board.row, first)
        cell.alignment = Alignment(horizontal="left", vertical="center")
        if isinstance(value, int | float):
            cell.number_format = number_format(value, unit) or "General"
        board.row -= 1
    board.row += 2


def _top(board: Board, rows: Sequence[Row], evidence: dict[str, str], many: bool) -> None:
    """The five findings that matter, with a link to what proves each."""
    ranked = sorted(rows, key=_weight) if many else list(rows)
    shown = ranked[:TOP]
    if not shown:
        return
    more = len(rows) - len(shown)
    board.heading("Top findings", f"and {more} more on the sheet Findings" if more > 0 else "")
    spans = {
        "#": (2, 2),
        "severity": (3, 3),
        "code": (4, 4),
        "finding": (5, 7),
        "share": (8, 8),
        "speed-up": (9, 9),
        "do first": (10, 13),
    }
    if many:
        spans |= {"capture": (8, 8), "share": (9, 9), "speed-up": (10, 10), "do first": (11, 13)}
    for head, (first, last) in spans.items():
        board.merged(
            first,
            last,
            head,
            size=9.5,
            color=MUTED,
            bold=True,
            ground=HEAD,
            right=head in RIGHT,
            indent=head == "do first",
        )
    begin = board.row + 1
    for number, row in enumerate(shown, 1):
        board.row += 1
        f = row.finding
        cells: dict[str, tuple[Any, str]] = {
            "#": (number, ""),
            "severity": (f.severity, ""),
            "code": (f.code, ""),
            "finding": (f.title, ""),
            "share": (f.impact.share if f.impact else None, "ratio"),
            "speed-up": speedup(f),
            "capture": (row.label, ""),
            "do first": (f.recommendations[0].action if f.recommendations else None, ""),
        }
        for head, (first, last) in spans.items():
            value, unit = cells[head]
            board.merged(first, last, value, unit=unit, right=head in RIGHT, indent=head == "do first")
        target = evidence.get(f.code)
        if target:
            Sheet.link(_Page(board.ws), board.row, spans["code"][0], Link(f.code, sheet=target))
        board.rule()
    page = _Page(board.ws)
    levels(page, f"C{begin}:C{board.row}")
    share = get_column_letter(spans["share"][0])
    bars(page, f"{share}{begin}:{share}{board.row}")
    board.row += 1


def _weight(row: Row) -> tuple[bool, float, str, str]:
    f = row.finding
    share = f.impact.share if f.impact and f.impact.share is not None else 0.0
    return (not f.invalidates, -share * f.confidence, f.code, row.capture)


def _review(board: Board, tally: Tally, findings: int, sheets: dict[str, str]) -> None:
    """How far the review is: formulas that follow what is filled in."""
    cells: list[tuple[str, str]] = []
    if tally.decisions and findings:
        cells += [
            ("findings", f"=COUNTA({tally.keys})"),
            ("decided", f"=COUNTA({tally.decisions})"),
            ("accepted", f'=COUNTIF({tally.decisions},"accept")'),
            ("still open", f"=COUNTA({tally.keys})-COUNTA({tally.decisions})"),
        ]
    if tally.answers:
        cells += [
            ("checklist: yes", f'=COUNTIF({tally.answers},"yes")'),
            ("checklist: no", f'=COUNTIF({tally.answers},"no")'),
        ]
    if not cells:
        return
    board.heading("Review", "counted from what is filled in on " + " and ".join(sheets.values()))
    for i, (label, formula) in enumerate(cells):
        first = FIRST + 2 * i
        board.merged(first, first + 1, label, size=9.5, color=MUTED, ground=SOFT, height=16)
        board.row += 1
        cell = board.ws.cell(board.row, first)
        cell.value = formula
        cell.number_format = "0"
        board.ws.merge_cells(start_row=board.row, end_row=board.row, start_column=first, end_column=first + 1)
        for column in (first, first + 1):
            board.ws.cell(board.row, column).fill = fill(SOFT)
        cell.font = font(14, bold=True)
        cell.alignment = align()
        board.tall(22)
        board.row -= 1
    board.row += 2


def _best(d: Diagnosis) -> str:
    """What would let most of the rules look that could not."""
    flags = [(len({e.code for e in es}), flag) for _, flag, es in phrases.by_reason(d) if flag]
    if not flags:
        return ""
    count, flag = max(flags)
    return f"; {remedy_text(flag)} to let {count} of them"


def _caveats(board: Board, captures: Captures) -> None:
    """What is wrong with the captures themselves, and what they cannot answer."""
    lines: list[tuple[str, str]] = []
    for label, d in captures:
        lead = f"{label}: " if captures.many else ""
        for f in d.findings:
            if f.code.startswith("CAP"):
                lines.append((f.code, f"{lead}{f.title}. {f.message}"))
        for entry in d.inputs:
            lines += [("warning", f"{lead}{w}") for w in dict.fromkeys(entry.warnings)]
        if d.lacking:
            codes = len({e.code for e in d.lacking})
            lines.append(("cannot say", f"{lead}{amount(codes, 'rule')} could not look{_best(d)}"))
        if d.ticks:
            text = f"{lead}{amount(len(d.ticks), 'check')} found well (sheet In order)"
            lines.append(("in order", text))
    if not lines:
        return
    board.heading("What to mind", "the captures themselves, and what they cannot answer")
    for label, text in lines:
        board.merged(FIRST, FIRST + 1, label, bold=True, color=MUTED)
        board.merged(FIRST + 2, LAST, text)
        board.rule()
        board.row += 1
