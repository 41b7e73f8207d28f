"""The review workbook: one file that people who did not run the tool can read, sort and sign.

It contains nothing but the contents of its documents. Text from a capture stays text. Ten sheets at most:
Summary (the verdict, the main findings, the budget, caveats, the state of the review), Findings and
Checklist are designed, the others declared as tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from openpyxl import Workbook
from openpyxl.utils import get_column_letter

from advisor.model.findings import SEVERITIES, Diagnosis
from advisor.model.numbers import UNKNOWN, amount
from advisor.model.review import Checklist, History, Review
from advisor.model.rules import judges_capture
from advisor.reports import phrases, rank_blocks
from advisor.reports.blocks import Labelled, Number
from advisor.reports.review_blocks import sentence as history_sentence
from advisor.reports.summary import headline, verdict, why
from advisor.reports.workbook import findings_sheet as decided
from advisor.reports.workbook import review_sheet as answers
from advisor.reports.workbook import style, table_sheets
from advisor.reports.workbook.chart import budget
from advisor.reports.workbook.evidence import Captures, Row, evidence
from advisor.reports.workbook.findings_sheet import MEETING, MET, speedup
from advisor.reports.workbook.sheet import FIRST, LAST, Area, GridSheet, Link, Sheet, shown

if TYPE_CHECKING:
    from openpyxl.cell.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet

#: Sheets of diagnoses, in order: the note below the title, and the colour of the tab.
SHEETS = {
    "Comparison": ("", "1F3A57"),
    "Ranks": (rank_blocks.CAPTION, "1F3A57"),
    "Findings": (decided.NOTE, "A81C12"),
    "Recommendations": ("", None),
    "Checklist": (answers.HINT, "B8860B"),
    "Evidence": ("what each finding rests on", None),
    "Kernels": ("share of kernel time, in the window", None),
    "Steps": ("", None),
    "Rules": ("each rule that fired, is in order, or could not be judged, with the reason", None),
    "Facts": ("what the rules compare", None),
    "Thresholds": ("changed ones stand out; Measured is what was compared with them", None),
}


def render(
    diagnoses: Sequence[Diagnosis],
    checklist: Checklist | None = None,
    review: Review | None = None,
    since: History | None = None,
    day: str = "",
) -> bytes:
    """The workbook of these diagnoses; `review` fills in earlier answers and decisions. With `since`,
    what became of findings until the last of them, it begins with that; `day` says which of them are
    overdue."""
    book = Workbook()
    captures = Captures(tuple(diagnoses))
    first = book.active
    assert first is not None
    first.title = "Summary"
    first.sheet_properties.tabColor = "1F3A57"
    ranks = len(diagnoses) == 1 and "ranks" in diagnoses[0].tables
    if since is not None:
        tracked = book.create_sheet(decided.SINCE, 0)
        tracked.sheet_properties.tabColor = "7A1FA0"
        decided.since_review(Sheet(tracked, tracked.title, history_sentence(since, day)), since, day)
        book.active = 0
    # Ten sheets at most: steps stand below a comparison or ranks, thresholds below the rules.
    wanted = {
        "Ranks": ranks,
        "Steps": len(diagnoses) == 1 and not ranks,
        "Comparison": captures.many,
        "Checklist": bool(checklist),
        "Thresholds": bool(diagnoses) and since is None,
    }
    made = _sheets(book, [name for name in SHEETS if wanted.get(name, bool(diagnoses))])
    before = since or review
    cells: dict[str, str] = {}
    advice: dict[tuple[str, str], str] = {}
    rows = [Row(label, d, f, cells, advice) for label, d in captures for f in d.findings]
    tally: dict[str, str] = {}  # where decisions and answers are, for formulas that count them
    if diagnoses:
        cells |= evidence(made["Evidence"], rows, captures.many)
        advice |= decided.recommendations(made["Recommendations"], captures, rows, before)
        area = decided.findings(made["Findings"], captures, rows, before)
        for name, head in (("decisions", decided.DECISION), ("keys", decided.KEY)):
            tally[name] = f"Findings!{area.column(head, absolute=True)}"
        table_sheets.kernels(made["Kernels"], captures)
        if captures.many:
            table_sheets.comparison(made["Comparison"], captures)
        if ranks:
            made["Ranks"].table(*shown(diagnoses[0].tables["ranks"]), filter=True, freeze=True)
        table_sheets.steps(made["Comparison" if captures.many else "Ranks" if ranks else "Steps"], captures)
        table_sheets.rules(made["Rules"], captures)
        table_sheets.facts(made["Facts"], captures)
        table_sheets.thresholds(made.get("Thresholds"), made["Rules"], captures)
    if checklist is not None:
        area = answers.checklist(made["Checklist"], checklist, review)
        tally["answers"] = f"Checklist!{area.column(answers.ANSWER, absolute=True)}"
    summary(first, captures, rows, tally)
    return style.package(book)


def _sheets(book: Workbook, names: Iterable[str]) -> dict[str, Sheet]:
    """New sheets of these names, in their order."""
    made = {}
    for name in names:
        note, color = SHEETS[name]
        made[name] = Sheet(book.create_sheet(name), name, note)
        made[name].ws.sheet_properties.tabColor = color
    return made


TOP = 5
#: Heads of the columns that are numbers.
RIGHT = ("share", "speed-up")


def summary(worksheet: Worksheet, captures: Captures, rows: Sequence[Row], tally: Mapping[str, str]) -> None:
    """Fill the first sheet."""
    grid = GridSheet(worksheet)
    _title(grid, captures)
    if len(captures.diagnoses) == 1:
        _tiles(grid, captures.diagnoses[0])
    _top(grid, rows, captures.many)
    if captures.diagnoses:
        budget(grid, captures)
        _caveats(grid, captures)
    _review(grid, tally, len(rows))
    _about(grid, captures)
    worksheet.print_area = f"A1:{get_column_letter(LAST)}{grid.row}"
    if not captures.many:  # one page, upright
        worksheet.page_setup.orientation = "portrait"
        worksheet.page_setup.fitToHeight = 1


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


#: Columns of the top findings: header, value, columns of the grid; the last takes the rest of them.
COLUMNS: tuple[tuple[str, Callable[[Row], Any], int], ...] = (
    ("#", lambda _: None, 1),
    ("severity", lambda r: r.finding.severity, 1),
    ("code", lambda r: r.proof, 1),
    ("finding", lambda r: r.finding.title, 3),
    ("capture", lambda r: r.label, 1),
    ("share", lambda r: Number(r.finding.share, "ratio"), 1),
    ("speed-up", lambda r: Number(*speedup(r.finding)), 1),
    ("fix", lambda r: r.fix, 0),
)


def _top(grid: GridSheet, rows: Sequence[Row], many: bool) -> None:
    """The five main findings, with a link to the evidence of each."""

    def weight(row: Row) -> tuple[bool, float, str, str]:
        f = row.finding
        return (not f.invalidates, -(f.share or 0.0) * f.confidence, f.code, row.capture)

    shown = (sorted(rows, key=weight) if many else rows)[:TOP]
    if not shown:
        return
    more = len(rows) - len(shown)
    grid.heading("Top findings", f"and {more} more on the sheet Findings" if more > 0 else "")
    columns = [c for c in COLUMNS if many or c[0] != "capture"]
    ends = [*accumulate((c[2] for c in columns), initial=FIRST)][: len(columns)]
    spans = [*zip(columns, pairwise([*ends, LAST + 1]), strict=True)]
    for (head, _, _), (first, end) in spans:
        grid.merged(first, end - 1, head, **style.HEADER, right=head in RIGHT, indent=head == "fix")
    begin = grid.row + 1
    for number, row in enumerate(shown, 1):
        grid.row += 1
        grid.merged(FIRST, FIRST, number)
        for (head, get, _), (first, end) in spans[1:]:
            value: Any = get(row)
            if isinstance(value, Link):
                grid.merged(first, end - 1, value.text)
                grid.link(grid.row, first, value)
                continue
            value, unit = (value.value, value.unit) if isinstance(value, Number) else (value, "")
            grid.merged(first, end - 1, value, unit=unit, right=head in RIGHT, indent=head == "fix")
        grid.rule()
    area = Area(grid.ws, begin - 1, begin, grid.row, {head: first for (head, _, _), (first, _) in spans})
    area.coloured("severity", style.LEVELS)
    area.bars("share")
    grid.row += 1


def _review(grid: GridSheet, tally: Mapping[str, str], findings: int) -> None:
    """The progress of the review: formulas that follow the cells to fill in."""
    keys, decisions, answered = (tally.get(name) for name in ("keys", "decisions", "answers"))
    cells: dict[str, str] = {}
    if decisions and findings:
        cells = {
            "findings": f"=COUNTA({keys})",
            "decided": f"=COUNTA({decisions})",
            "accepted": f'=COUNTIF({decisions},"accept")',
            "still open": f"=COUNTA({keys})-COUNTA({decisions})",
        }
    if answered:
        cells |= {f"checklist: {word}": f'=COUNTIF({answered},"{word}")' for word in ("yes", "no")}
    if not cells:
        return
    sheets = ["Findings"] * bool(keys) + ["Checklist"] * bool(answered)
    grid.heading("Review", f"counted from what is filled in on {' and '.join(sheets)}")
    for i, (label, formula) in enumerate(cells.items()):
        cell = _tile(grid, i, label)
        cell.value, cell.number_format = formula, "0"
    grid.row += 3
    if not decisions:
        return
    for label, (first, last) in MEETING.items():
        grid.merged(first - 2, first - 1, label, bold=True)
        grid.merged(first, last, None, ground=style.FILL_IN)
    grid.ws.cell(grid.row, MEETING[MET][0]).number_format = style.DATE
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
            known = phrases.header_input(entry, d.main_steps if len(d.inputs) == 1 else None)
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
        if d.not_judged:
            text = f"{lead}{amount(d.not_judged, 'rule')} not judged"
            flags = [(len({e.code for e in es}), flag) for _, flag, es in phrases.by_reason(d) if flag]
            count, flag = max(flags, default=(0, ""))  # the option with which most of them could be judged
            if count > 1:
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
