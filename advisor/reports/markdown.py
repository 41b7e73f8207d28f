"""Markdown that fits a comment on a pull request: verdict, findings, budget; details fold away.

Names from a capture are data: they stand in code spans, and in text every sign that Markdown,
HTML or GitHub (mentions, issue numbers, formulas) would read is made harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from advisor.model.facts import Table
from advisor.model.findings import UNREADABLE, Advice, Budget, Diagnosis, Finding
from advisor.reports import phrases
from advisor.reports.budget_bar import unanswered, words
from advisor.reports.finding_text import verify_text
from advisor.reports.layout import clean, cut_end, cut_middle
from advisor.reports.numbers import milliseconds, percent, value_text
from advisor.reports.ranks_text import CAPTION, SHOWN, rank_columns
from advisor.reports.wording import remedy_lead

#: A comment on GitHub may hold 65,536 characters; counted in bytes, to be on the safe side.
LIMIT = 64_000
NAME = 72
#: Beyond so many devices the budget tells the least, middle and greatest share.
COLUMNS = 8
_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_LINE_START = re.compile(r"^(\s*)([#+>-]|\d+[.)])")


@dataclass(frozen=True)
class Detail:
    """How much is told; what does not fit is left out step by step."""

    findings: int = 50
    rows: int = 8
    tables: int = 3
    places: int = 3
    lists: bool = True
    table: int = 50


STEPS = (
    Detail(),
    Detail(rows=5, tables=1),
    Detail(findings=10, rows=5, tables=1, places=1),
    Detail(findings=5, rows=3, tables=1, places=0),
    Detail(findings=3, rows=0, tables=0, places=0),
    Detail(findings=0, lists=False, table=20),
    Detail(findings=0, lists=False, table=5),
    Detail(findings=0, lists=False, table=1),
)


def render(diagnoses: Sequence[Diagnosis], many: bool = False) -> bytes:  # noqa: ARG001
    """The diagnoses one after the other, in at most `LIMIT` bytes together."""
    out = b""
    for detail in STEPS:
        text = "\n---\n\n".join(_diagnosis(d, detail) for d in diagnoses)
        out = text.encode("utf-8", "replace")
        if len(out) <= LIMIT:
            return out
    note = b"\n\n_Cut here: too long for one comment; `--format json` holds all of it._\n"
    cut = out[: LIMIT - len(note)].decode("utf-8", "ignore")
    return cut.rpartition("\n")[0].encode() + note


def text(value: str) -> str:
    """Text that stays text in Markdown."""
    out = escape(clean(value), quote=False)
    out = _SPECIAL.sub(r"\\\1", out)
    # An empty comment keeps GitHub from seeing a mention, an issue or a formula.
    out = re.sub(r"(?<![&\w])([@#])(?=\w)", r"\1<!-- -->", out)
    out = out.replace("$", "<span>$</span>")
    return _LINE_START.sub(lambda m: f"{m[1]}\\{m[2]}" if len(m[2]) == 1 else m[0], out)


def code(value: str, width: int | None = None) -> str:
    """A code span that holds any text, also inside a table."""
    shown = clean(value) if width is None else cut_middle(value, width)
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
    """A cell: what looks like code in a code span."""
    return code(value) if re.search(r"[_<>(){}*`$@#/]|::", value) else text(value)


def table(heads: Sequence[str], numbers: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    """A table of finished cells."""
    lines = [
        f"| {' | '.join(heads)} |",
        f"|{'|'.join('--:' if n else '---' for n in numbers)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def folded(summary: str, body: str) -> str:
    """A part that opens on demand; `summary` is text."""
    head = escape(clean(summary), quote=False)
    return f"<details>\n<summary>{head}</summary>\n\n{body}\n\n</details>"


def _diagnosis(diagnosis: Diagnosis, detail: Detail) -> str:
    head, rest = phrases.headline(diagnosis)
    parts = [f"## {text(head or phrases.title(diagnosis) or 'advisor')}", prose(rest)]
    parts += [_about(diagnosis), text(phrases.baseline_text(diagnosis))]
    parts.append(_overview(diagnosis, detail))
    steps = bool(diagnosis.steps)
    clock = phrases.clock(*diagnosis.inputs)
    parts += [_finding(f, steps, detail, clock) for f in diagnosis.findings[: detail.findings]]
    parts += [_gone(diagnosis), _budget(diagnosis), _ranks(diagnosis), _what_if(diagnosis)]
    if detail.lists:
        parts += [_kernels(diagnosis, detail), _healthy(diagnosis)]
        parts += [_not_judged(diagnosis), _sensitivity(diagnosis), _thresholds(diagnosis)]
    parts.append(_foot(diagnosis))
    return "\n\n".join(p for p in parts if p) + "\n"


def _about(diagnosis: Diagnosis) -> str:
    lines = []
    for entry in diagnosis.inputs[:4]:
        known = " · ".join(text(m) for m in phrases.machine(entry))
        lines.append(code(phrases.capture_name(entry)) + (f" · {known}" if known else ""))
        if numbers := phrases.devices(entry):
            lines.append(f"devices {text(numbers)}")
        if entry.format != UNREADABLE:
            lines.append(f"workload {text(phrases.workload(entry))}")
    if len(diagnosis.inputs) > 4:
        lines.append(f"and {len(diagnosis.inputs) - 4} more captures")
    load = phrases.load(diagnosis)
    if load:
        lines.append(text(", ".join(load)) + (" (profiled)" if diagnosis.steps else ""))
    return "<br>\n".join(lines)


def _overview(diagnosis: Diagnosis, detail: Detail) -> str:
    """One row a finding: what it costs and the first thing to do."""
    if not diagnosis.findings:
        return ""
    marked = diagnosis.baseline is not None
    gains = any(phrases.speedup(f) for f in diagnosis.findings)
    heads = ["#", "severity", *["baseline"] * marked, "finding", "cost", *["gain"] * gains]
    heads.append("do first")
    rows = []
    for f in diagnosis.findings[: detail.table]:
        first = prose(cut_end(f.recommendations[0].action, 120)) if f.recommendations else ""
        state = [f"**{f.baseline}**" if f.baseline == "new" else f.baseline or ""] * marked
        where = phrases.scope(f)
        finding = f"**{code(f.code)} {text(f.cause)}**{f' ({text(where)})' if where else ''}"
        rows.append(
            [
                str(f.rank),
                phrases.badge(f),
                *state,
                f"{finding}<br>{prose(f.title)}",
                text(phrases.cost_text(f, bool(diagnosis.steps))),
                *[text(phrases.speedup(f))] * gains,
                first,
            ]
        )
    left = len(diagnosis.findings) - len(rows)
    more = f"\n\n_{left} more in the JSON document._" if left else ""
    return table(heads, [True, *[False] * (len(heads) - 1)], rows) + more


def _finding(finding: Finding, steps: bool, detail: Detail, clock: str) -> str:
    f = finding
    body = [prose(f.message), _conditions(f)]
    facts = [
        ("Cost", phrases.cost_text(f, steps)),
        ("Gain", phrases.gain(f)),
        ("Explains", ", ".join(dict.fromkeys(f"{s.code} {s.cause}" for s in f.explains))),
        ("Confidence", value_text(f.confidence, "ratio")),
    ]
    body.append("\n".join(f"- **{label}**: {text(said)}" for label, said in facts if said))
    if f.gain is not None and f.gain.speedup is not None and f.gain.assumptions:
        body.append(f"Assuming: {text('; '.join(f.gain.assumptions))}.")
    body += [_evidence(e, detail) for e in f.evidence[: detail.tables] if detail.rows]
    if detail.places and f.time_ranges:
        body.append(f"**Where** ({clock})")
        body.append("\n".join(f"- {text(phrases.place(r))}" for r in f.time_ranges[: detail.places]))
        left = len(f.time_ranges) - detail.places
        body.append(f"and {left} more" if left > 0 else "")
    if f.recommendations:
        body.append("**What to do**")
        body.append("\n".join(_advice(i, a) for i, a in enumerate(f.recommendations, 1)))
    links = [f"[{text(r.title or r.id)}]({r.url})" for r in f.references if _link(r.url)]
    body.append(f"References: {', '.join(links)}" if links else "")
    state = f" [{f.baseline}]" if f.baseline else ""
    summary = f"{f.rank}. {phrases.badge(f)}{state}: {phrases.name(f)}"
    return folded(summary, "\n\n".join(b for b in body if b))


def _conditions(finding: Finding) -> str:
    signs = {True: "✓", False: "✗", None: "?"}
    rows = []
    for c in finding.conditions:
        value, op, threshold = phrases.condition_parts(c)
        limit = f"{escape(op)} {text(threshold)}"
        rows.append([code(c.fact), text(value), limit, signs[c.holds]])
    if not rows:
        return ""
    return table(["because", "value", "threshold", ""], [False, True, True, False], rows)


def _evidence(evidence: Table, detail: Detail) -> str:
    if not evidence.rows:
        return ""
    heads, numbers, rows = phrases.table_cells(evidence, detail.rows, NAME)
    left = len(evidence.rows) - len(rows)
    cells = [[c if n else name(c) for c, n in zip(row, numbers, strict=True)] for row in rows]
    more = f"\n\nand {left} more" if left else ""
    return f"**{text(evidence.title)}**\n\n{table([text(h) for h in heads], numbers, cells)}{more}"


def _advice(number: int, advice: Advice) -> str:
    lines = [f"{number}. {prose(advice.action.rstrip('.'))} (effort {advice.effort})"]
    for option in advice.options:
        engine = "" if option.engine == "any" else f"{text(option.engine)}: "
        since = f" (since {text(option.since)})" if option.since else ""
        lines.append(f"   - {engine}{code(option.line)}{since}")
    if advice.verify is not None:
        lines.append(f"   - verify: {text(verify_text(advice.verify))}")
    return "\n".join(lines)


def _gone(diagnosis: Diagnosis) -> str:
    b = diagnosis.baseline
    if b is None or not b.gone:
        return ""
    rows = [
        [text(phrases.STATUS[g.status]), code(g.code), text(phrases.name(g)[len(g.code) :])] for g in b.gone
    ]
    return "### In the baseline only\n\n" + table(["now", "code", "finding"], [False] * 3, rows)


def _budget(diagnosis: Diagnosis) -> str:
    """Parts as rows, devices as columns; phases fold away."""
    whole = [b for b in diagnosis.budget if b.phase is None]
    phases = [b for b in diagnosis.budget if b.phase is not None]
    if not whole:
        return ""
    out = f"### Budget of the window\n\n{_budget_table(whole)}"
    out += "".join(f"\n\n{text(sentence)}" for sentence in unanswered(whole))
    return f"{out}\n\n{folded('Budget by phase', _budget_table(phases))}" if phases else out


def _budget_table(budgets: Sequence[Budget]) -> str:
    names = list(dict.fromkeys(p.part for b in budgets for p in b.parts))
    shares = [{p.part: p for p in b.parts} for b in budgets]
    largest = {n: max((s[n].share for s in shares if n in s), default=0.0) for n in names}
    shown = sorted((n for n in names if largest[n] >= 0.0005), key=lambda n: -largest[n])
    heads = ["part", *(text(f"{b.place}{f', {b.phase}' if b.phase else ''}") for b in budgets)]
    rows = [[text(words(n)), *(f"{percent(s[n].share)} %" if n in s else "" for s in shares)] for n in shown]
    if len(budgets) == 1:
        heads.append("ms")
        rows = [[*row, milliseconds(shares[0][n].ms)] for row, n in zip(rows, shown, strict=True)]
    elif len(budgets) > COLUMNS:
        heads = ["part", "least", "median", "most"]
        known = [[s[n].share for s in shares if n in s] for n in shown]
        rows = [
            [text(words(n)), *(f"{percent(v)} %" for v in (min(k), median(k), max(k)))]
            for n, k in zip(shown, known, strict=True)
        ]
    return table(heads, [False, *[True] * (len(heads) - 1)], rows)


def _ranks(diagnosis: Diagnosis) -> str:
    """Whom each rank waits for and who comes last; the ranks that matter most of many."""
    found = rank_columns(diagnosis, SHOWN)
    if found is None:
        return ""
    rows = zip(*(texts for texts, _ in found.cells), strict=True)
    shown = table([text(h) for h in found.heads], [n for _, n in found.cells], rows)
    more = f"\n\nand {found.hidden} more that cause less waiting" if found.hidden else ""
    return f"### Ranks\n\n{text(CAPTION.capitalize())}.\n\n{shown}{more}"


def _what_if(diagnosis: Diagnosis) -> str:
    """What each fix would win alone, then what the top ones win together."""
    rows = [
        [str(f.rank), code(f.code), text(phrases.gain(f))] for f in diagnosis.findings if phrases.speedup(f)
    ]
    if not rows:
        return ""
    out = [table(["#", "code", "estimate"], [True, False, False], rows)]
    if diagnosis.combined is not None:
        fixes = ", then ".join(s.what_if for s in diagnosis.combined.steps)
        out.append(f"Together ({text(fixes)}): {text(phrases.combined(diagnosis))}")
    return "### What a fix would win\n\n" + "\n\n".join(out)


def _sensitivity(diagnosis: Diagnosis) -> str:
    if diagnosis.sensitivity is None:
        return ""
    lines = [f"- {text('; '.join(phrases.flip_lines(f)))}" for f in diagnosis.sensitivity]
    body = "\n".join(lines) or "No verdict: every number is further than a tenth from its threshold."
    return folded(f"Near a threshold: {len(lines)}", body)


def _kernels(diagnosis: Diagnosis, detail: Detail) -> str:
    kernels = diagnosis.tables.get("kernels")
    if kernels is None or not kernels.rows:
        return ""
    shown = _evidence(kernels, Detail(rows=10 if detail.rows >= 5 else 5))
    return folded(f"Top kernels ({len(kernels.rows)} listed)", shown)


def _healthy(diagnosis: Diagnosis) -> str:
    parts = (
        (f"In order: {len(diagnosis.ticks)} checked and found well", diagnosis.ticks),
        (f"Close: {len(diagnosis.close)} near a threshold or not small", diagnosis.close),
    )
    return "\n\n".join(
        folded(summary, "\n".join(f"- {code(h.code)} {prose(h.text)}" for h in entries))
        for summary, entries in parts
        if entries
    )


def _not_judged(diagnosis: Diagnosis) -> str:
    lines = []
    for stopped_by, flag, entries in phrases.by_reason(diagnosis):
        names = dict.fromkeys(f"{code(e.code)} {text(e.cause)}" for e in entries)
        lead = remedy_lead(flag) if flag else "no option helps"
        needed = code(flag) if lead == "capture with" else text(flag)
        if stopped_by:
            lead, needed = "stopped by", text(stopped_by)
        lines.append(f"- {' '.join(t for t in (lead, needed) if t)}: {', '.join(names)}")
    count = len({e.code for e in diagnosis.not_evaluated})
    summary = f"Not judged: {count} causes, stopped or for lack of facts"
    return folded(summary, "\n".join(lines)) if lines else ""


def _thresholds(diagnosis: Diagnosis) -> str:
    lines = [
        f"- {code(f'{t.code}.{t.param}')} = {text(value_text(t.value, t.unit))} "
        f"(default {text(value_text(t.default, t.unit))})"
        for t in diagnosis.thresholds
        if t.value != t.default
    ]
    return folded(f"Changed thresholds: {len(lines)}", "\n".join(lines)) if lines else ""


def _foot(diagnosis: Diagnosis) -> str:
    tool = diagnosis.tool
    explain = f"; {code(f'advisor explain {diagnosis.findings[0].code}')}" if diagnosis.findings else ""
    return f"<sub>{text(tool.name)} {text(tool.version)}, engine {text(tool.engine)}{explain}</sub>"


def _link(url: str | None) -> bool:
    """Only what is safe inside a Markdown link."""
    return bool(url) and re.fullmatch(r"https?://[^\s()<>\"'`|]+", url or "") is not None
