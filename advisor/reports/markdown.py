"""Blocks as GitHub Markdown, such as a comment on a pull request; details fold away.

Names from a capture are data: they are put into code spans, and in text every sign that Markdown, HTML or
GitHub (mentions, issue numbers, formulas) would interpret is made harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from advisor.model.findings import Budget
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import milliseconds, percent
from advisor.reports import blocks as b
from advisor.reports.budget_bar import shares, unanswered, words
from advisor.reports.layout import cut_middle
from advisor.reports.output_file import clean
from advisor.reports.text import plain

#: A comment on GitHub may hold 65,536 characters; counted in bytes, to be on the safe side.
LIMIT = 64_000
#: Width that blocks are made for.
WIDTH = 80
NAME = 72
_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_LINE_START = re.compile(r"^(\s*)([#+>-]|\d+[.)])")
LEVELS = {"high": "▲", "medium": "◆", "low": "▽"}
LIST_SIGNS = {"ok": "✓ ", "no": "✗ ", "partly": "~ ", "?": "? "}
SIGNS = {"yes": "✓", "no": "✗", "unknown": "?"}


def document(report: b.Report) -> bytes:
    """The blocks of a report in at most `LIMIT` bytes: of its details the first that fit."""
    out = b""
    for blocks in report.details or (lambda: report.blocks(WIDTH),):
        out = write(blocks(), report.level).encode("utf-8", "replace")
        if len(out) <= LIMIT or not report.details:
            return out
    note = b"\n\n_Cut here: too long for one comment; `--format json` holds all of it._\n"
    cut = out[: LIMIT - len(note)].decode("utf-8", "ignore")
    return cut.rpartition("\n")[0].encode() + note


def write(listed: Iterable[b.Block], level: int = 2) -> str:
    """Blocks as text; `level` is that of the first headings."""
    out: list[str] = []
    in_list = False
    for block in listed:
        if made := _block(block, level):
            # Entries of one list follow each other without an empty line.
            if out and not (_in_list(block) and in_list):
                out.append("")
            out.append(made)
            in_list = _in_list(block)
    return "\n".join([*out, ""])


def _in_list(block: b.Block) -> bool:
    return isinstance(block, b.Labelled | b.Item | b.Do | b.Places)


def _block(block: b.Block, level: int) -> str:
    match block:
        case b.Title(shown):
            return f"{'#' * level} {text(shown)}"
        case b.Heading(shown, note):
            return f"{'#' * level}# {text(shown)}{f' ({text(note)})' if note else ''}"
        case b.Paragraph(shown, strong):
            return f"**{text(shown)}**" if strong else prose(shown)
        case b.Labelled(label, shown, url):
            shown = f"[{text(shown)}]({url})" if url else prose(shown)
            return f"- **{text(label)}**: {shown}" if label else f"  - {shown}"
        case b.Places():
            return "\n".join(_block(line, level) for line in block.labelled)
        case b.Command(line):
            return f"```sh\n{clean(line)}\n```"
        case b.Item():
            return _item(block, level)
        case b.Rule():
            return "---"
        case b.Do(shown, options, note, verify, label):
            lines = [f"- **{label}**: {prose(shown)}"]
            for engine, line, remark in options:
                lead, tail = f"{text(engine)}: " if engine else "", f" ({text(remark)})" if remark else ""
                lines.append(f"  - {lead}{code(line)}{tail}")
            below = (text(note), f"verify: {text(verify)}" if verify else "")
            return "\n".join([*lines, *(f"  - {line}" for line in below if line)])
        case b.Next(line, when):
            return f"{text(when)} {code(line)}"
        case b.Bars(budgets, brief):
            return "" if brief else _budget(budgets)
        case b.Heat():
            return f"```text\n{plain([block])}\n```"
        case b.Grid():
            return _grid(block)
        case b.Fold(shown, note, inside):
            return folded(f"{shown}{f': {note}' if note else ''}", write(inside, level + 1).rstrip())
        case b.Entry():
            state = f" [{block.state}]" if block.state else ""
            head = f"{block.number}. {LEVELS.get(block.level, '·')} {block.level}{state}: {block.name}"
            return folded(f"{head} ({block.note})", write(block.blocks, level + 1).rstrip())
        case _:
            return ""


def _item(item: b.Item, level: int) -> str:
    tick = "" if item.tick is None else f"[{'x' if item.tick else ' '}] "
    sign = "" if tick else LIST_SIGNS.get(item.sign, "")
    shown = f"[{text(item.text)}]({item.url})" if item.url else prose(item.text)
    lead = f"**{text(item.code)}**: " if item.code else ""
    lines = [f"- {tick}{sign}{lead}{shown}", *(f"  - {prose(n)}" for n in item.notes)]
    if item.below:
        inside = write(item.below, level).rstrip().replace("\n", "\n  ")
        # A list continues in the next line, other blocks are separated.
        lines.append(f"  {inside}" if _in_list(item.below[0]) else f"\n  {inside}")
    return "\n".join(lines).replace("\n  \n", "\n\n")


def _grid(grid: b.Grid) -> str:
    if not grid.rows:
        return ""
    made = b.columns(grid)
    signs = {"severity": {v: f"{LEVELS.get(v, '·')} {v}" for v in b.LEVEL_STYLE}, "holds": SIGNS}
    rows = [
        [
            clean(cells[i])
            if number
            else prose(cells[i]).replace("\n", " ")
            if grid.wrapped and at == len(made) - 1
            else signs.get(head, {}).get(cells[i]) or name(cut_middle(kernel_label(cells[i]), NAME))
            for at, (head, cells, number) in enumerate(made)
        ]
        for i in range(len(grid.rows))
    ]
    more = f"\n\nand {grid.more} more" if grid.more else ""
    title = f"- **evidence**: {prose(grid.title)}\n\n" if grid.title else ""
    return title + table([text(m[0]).replace("\\#", "#") for m in made], [m[2] for m in made], rows) + more


def text(value: str) -> str:
    """Text that stays plain in Markdown."""
    out = escape(clean(value), quote=False)
    out = _SPECIAL.sub(r"\\\1", out)
    # An empty comment keeps GitHub from seeing a mention, an issue or a formula.
    out = re.sub(r"(?<![&\w])([@#])(?=\w)", r"\1<!-- -->", out)
    out = out.replace("$", "<span>$</span>")
    return _LINE_START.sub(lambda m: f"{m[1]}\\{m[2]}" if len(m[2]) == 1 else m[0], out)


def code(value: str) -> str:
    """A code span that holds any text, also inside a table."""
    shown = clean(value)
    if not shown.strip():
        return ""
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{space}{shown.replace('|', chr(92) + '|')}{space}{fence}"


def prose(value: str) -> str:
    """Text of a rule, which quotes commands in backticks as Markdown does."""
    pieces = re.split(r"`([^`]+)`", clean(value))
    return "".join(code(p) if i % 2 else text(p) for i, p in enumerate(pieces))


def name(value: str) -> str:
    """A cell: likely code in a code span."""
    return code(value) if re.search(r"[_<>(){}*`$@#/]|::", value) else text(value)


def table(heads: Sequence[str], numbers: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    """A table of finished cells."""
    first, *rest = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    return "\n".join([first, f"|{'|'.join('--:' if n else '---' for n in numbers)}|", *rest])


def folded(summary: str, body: str) -> str:
    """A part that opens on demand; `summary` is text."""
    head = escape(clean(summary), quote=False)
    return f"<details>\n<summary>{head}</summary>\n\n{body}\n\n</details>"


def _budget(budgets: Sequence[Budget]) -> str:
    """Parts as rows, devices as columns; why no finding explains the large ones."""
    held = shares(budgets, 0.0005)
    places = [text(f"{b.place}{f', {b.phase}' if b.phase else ''}") for b in budgets]
    heads = ["least", "median", "most"] if held.many else places
    rows = [[text(words(n)), *("" if s is None else percent(s) for s in held.cells[n])] for n in held.parts]
    if len(budgets) == 1:
        ms = {p.part: milliseconds(p.ms) for p in budgets[0].parts}
        heads, rows = [*heads, "ms"], [[*row, ms[n]] for row, n in zip(rows, held.parts, strict=True)]
    why = "".join(f"\n\n{text(sentence)}" for sentence in unanswered(budgets))
    return table(["part", *heads], [False, *[True] * len(heads)], rows) + why
