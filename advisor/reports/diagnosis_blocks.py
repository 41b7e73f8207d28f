"""The diagnosis as blocks: the short form, findings in full, kernels, healthy checks, rules not judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from advisor.model.findings import Diagnosis
from advisor.model.gain import Flip
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import amount, fact_unit, heading_parts, limit_text, value_text
from advisor.reports import blocks as b
from advisor.reports import ending, finding_text, manager, phrases, summary
from advisor.reports.finding_text import IN_FULL, Detail, Shown, finding, grid
from advisor.reports.layout import GLUE
from advisor.reports.phrases import INPUTS, header
from advisor.reports.rank_blocks import SHOWN, ranks

TOP = 5
#: Changes of a moved threshold that are named without -v.
CHANGES = 3
#: For formats with a size limit: ever less detail, until the report fits.
STEPS = (
    Detail(findings=50, rows=8, tables=3, places=3, table=50),
    Detail(findings=50, rows=5, tables=1, places=3, table=50),
    Detail(findings=10, rows=5, tables=1, places=1, table=50),
    Detail(findings=5, rows=3, tables=1, places=0, table=50),
    Detail(findings=3, rows=0, tables=0, places=0, table=50),
    Detail(findings=0, lists=False, table=20),
    Detail(findings=0, lists=False, table=5),
    Detail(findings=0, lists=False, table=1),
)


class TextOptions(Struct, frozen=True):
    """How much detail. `top`: findings listed; `ranking`: the arithmetic of their order; `named`: of
    several captures, so that each is named; `reader`: who reads it, if not an engineer; `show`: commands that
    show a finding of this report, but for its number, of which the first that fits is printed."""

    top: int = TOP
    verbosity: int = 0
    ranking: bool = False
    named: bool = False
    reader: str | None = None
    show: tuple[str, ...] = ()


def report(
    diagnoses: Sequence[Diagnosis], options: TextOptions | None = None, many: bool = False
) -> b.Report:
    """Diagnoses as they are delivered."""
    return b.Report(
        diagnoses,
        partial(shown, diagnoses, options or TextOptions(named=many)),
        phrases.title(diagnoses[0]) if len(diagnoses) == 1 else f"{len(diagnoses)} captures",
        many,
        [partial(_folded, diagnoses, detail) for detail in STEPS],
        level=2,
    )


def shown(diagnoses: Sequence[Diagnosis], options: TextOptions, width: int = 80) -> Iterator[b.Block]:
    """The short form of one diagnosis, a row each of several, with -v all of each."""
    if options.reader == "manager":
        for d in diagnoses:
            yield b.Title(d.inputs[0].path)
            yield b.Paragraph(" ".join(manager.sentences(d)), dense=True)
    elif options.verbosity < 0:
        for diagnosis in diagnoses:
            yield from _quiet(diagnosis, options)
    elif options.verbosity == 0 and options.named:
        yield from summary.table(diagnoses)
    else:
        for i, diagnosis in enumerate(diagnoses):
            if i:
                yield b.Rule()
            if options.verbosity > 0:
                detail = IN_FULL if options.verbosity == 1 else Detail()
                yield from full(diagnosis, detail, options.ranking, width, options.show)
                continue
            yield from summary.summary(diagnosis, options.top)
            if options.ranking:
                yield from finding_text.ranking(diagnosis)
            yield from sensitivity(diagnosis, CHANGES)
            yield from ending.end(diagnosis, width, show=options.show)


def _quiet(diagnosis: Diagnosis, options: TextOptions) -> Iterator[b.Block]:
    """The fix and its gain, with the finding that asks for it; then the comparison with the baseline."""
    first = summary.headline(diagnosis)
    name = f"{diagnosis.inputs[0].path}: " if options.named else ""
    state = f", {phrases.state(first)}" if first is not None and first.baseline else ""
    found = f" ({first.code} {first.cause}{state})" if first is not None else ""
    yield b.Paragraph(f"{name}{summary.verdict(diagnosis)}{found}", dense=True)
    if words := phrases.baseline_text(diagnosis):
        yield b.Paragraph(words, dense=True)
    yield from gone(diagnosis)


def _folded(diagnoses: Sequence[Diagnosis], detail: Detail) -> Iterator[b.Block]:
    """The short form, and all the rest in parts that open on demand."""
    for i, d in enumerate(diagnoses):
        if i:
            yield b.Rule()
        yield from summary.summary(d, detail.table or 0, 0)
        if detail.lists:
            yield b.Fold("Capture", "", tuple(header(d, INPUTS)))
        yield from entries(d, detail)
        yield from rest(d, detail)
        yield from ending.end(d, 80, 1)


def full(
    d: Diagnosis, detail: Detail, ranking: bool, width: int, show: Sequence[str] = ()
) -> Iterator[b.Block]:
    """The whole document."""
    yield from header(d)
    if d.headline is not None:
        yield b.Paragraph(summary.verdict(d), strong=True)
    yield b.Paragraph(d.verdict, dense=d.headline is not None)
    if text := phrases.baseline_text(d):
        yield b.Paragraph(text)
    yield from entries(d, detail)
    if ranking:
        yield from finding_text.ranking(d)
    yield from rest(d, detail)
    if detail.rows is None:
        yield from facts(d)
    yield from tables(d, detail.rows)
    yield from ending.end(d, width, 1, show)


def entries(d: Diagnosis, detail: Detail) -> Iterator[b.Entry]:
    """Every finding, most severe first."""
    shown: Shown = {}
    clock = phrases.clock(*d.inputs)
    for found in d.findings[: detail.findings]:
        yield finding(found, bool(d.steps), detail, shown, clock)


def rest(d: Diagnosis, detail: Detail) -> Iterator[b.Block]:
    """The parts besides findings; lists only if `detail` has them."""
    yield from gone(d)
    yield from todo(d)
    yield from finding_text.combined(d)
    yield from ranks(d, None if detail.table is None else SHOWN)
    yield from budget(d)
    if not detail.lists:
        return
    if phases := tuple(b for b in d.budget if b.phase is not None):
        yield b.Fold("Budget by phase", "", (b.Bars(phases, brief=False),))
    yield from kernels(d, detail.rows or TOP_KERNELS)
    yield from healthy(d, detail.table is None)
    yield from not_judged(d, detail.table is None)
    yield from sensitivity(d)
    yield from thresholds(d)


def budget(d: Diagnosis) -> Iterator[b.Block]:
    """Where the time of each GPU goes in the whole window."""
    if whole := tuple(b for b in d.budget if b.phase is None):
        yield b.Heading("Budget of the window", "where each GPU's time goes, in parts that add up")
        yield b.Bars(whole, brief=False)


def gone(d: Diagnosis) -> Iterator[b.Block]:
    """Findings that only the baseline has, with their status here."""
    if d.baseline is not None and d.baseline.gone:
        yield b.Heading("In the baseline only")
        for entry in d.baseline.gone:
            known = entry.status == "gone"
            yield b.Item(phrases.STATUS[entry.status], "ok" if known else "?", phrases.name(entry))


TOP_KERNELS = 20
#: Least share of kernel time without a known name that is mentioned.
UNNAMED = 0.01
#: Columns of the kernel table that a report shows, under any of their names, in this order.
KERNEL_COLUMNS = (("share",), ("calls", "count"), ("p50",), ("operation",), ("kernel", "name"))


def kernels(diagnosis: Diagnosis, rows: int | None = TOP_KERNELS) -> Iterator[b.Block]:
    """The kernels with most GPU time, and what to measure next; None: every row and column."""
    parts: list[b.Block] = []
    table = diagnosis.tables.get("kernels")
    if table is not None and table.rows and rows is None:
        parts.append(replace(grid(table, item="kernel"), title=""))
    elif table is not None and table.rows:
        at = {heading_parts(heading)[0]: i for i, heading in enumerate(table.columns)}
        found = (next((at[n] for n in names if n in at), None) for names in KERNEL_COLUMNS)
        shown = [i for i in found if i is not None]
        cells = tuple(tuple(row[i] for i in shown) for row in table.rows[:rows])
        parts.append(b.Grid(tuple(table.columns[i] for i in shown), cells))
    # The device where most is matched by a catch-all only.
    values = (f.value for f in diagnosis.facts if f.name == "kernel.unmapped_ratio")
    unnamed = max((v for v in values if isinstance(v, int | float)), default=0.0)
    if unnamed >= UNNAMED:
        text = f"{value_text(unnamed, 'ratio')} of kernel time, in kernels that no pattern knows"
        parts.append(b.Labelled("unnamed", text))
    if (target := diagnosis.next_target) is not None:
        share = value_text(target.share, "ratio")
        parts += [
            b.Labelled("optimise", f"{target.family} ({share} of kernel time): {target.why}"),
            b.Labelled("measure", kernel_label(target.kernel)),
            b.Command(target.command),
        ]
    if parts:
        yield b.Fold("Top kernels", "share of kernel time", tuple(parts))


def healthy(diagnosis: Diagnosis, conditions: bool = True) -> Iterator[b.Block]:
    """Healthy checks, those close to a finding, and what is noted, the most relevant first; and the rules
    that do not apply, by name."""
    for title, note, sign, entries in (
        ("Healthy", f"{len(diagnosis.ticks)} checked, in order", "ok", diagnosis.ticks),
        ("Close", "no finding, but within a tenth of a threshold", "partly", diagnosis.close),
        ("Observed", "no fault: an observation, or 3 % of the step or more", "partly", diagnosis.observed),
    ):
        items = [
            b.Item(e.text, sign, f"{e.code} {e.cause}{e.scope.aside()}", tuple(map(limit_text, notes)))
            for e in entries
            for notes in (e.conditions if conditions else (),)
        ]
        if items:
            yield b.Fold(title, note, tuple(items))
    if count := diagnosis.does_not_apply:
        there = {e.code for e in (*diagnosis.healthy, *diagnosis.observed)}
        away = dict.fromkeys(
            f"{e.code}{GLUE}{e.cause}" for e in diagnosis.not_applicable if e.code not in there
        )
        note = f"{amount(count, 'rule')}: what they look at is not in the capture"
        yield b.Fold("Does not apply", note, (b.Item(", ".join(away)),))


def not_judged(diagnosis: Diagnosis, why: bool = True) -> Iterator[b.Block]:
    """Stopped rules, and rules that lack facts by what would supply them; most first."""
    if not diagnosis.not_evaluated:
        return
    count = len({e.code for e in diagnosis.not_evaluated})
    items = []
    for stopped_by, flag, entries in phrases.by_reason(diagnosis):
        names = dict.fromkeys(f"{e.code}{GLUE}{e.cause}" for e in entries)
        lead = f"stopped by {stopped_by}" if stopped_by else "no option helps"
        if flag and not stopped_by:
            lead = f"{phrases.remedy_lead(flag)} {flag}"
        shown = [e for e in entries if why and (e.why or not stopped_by)]
        reasons = [e.why or f"needs {', '.join(e.missing)}" for e in shown]
        notes = (f"{e.code}: {r}{e.scope.aside()}" for e, r in zip(shown, reasons, strict=True))
        items.append(b.Item(", ".join(names), code=lead, notes=tuple(dict.fromkeys(notes))))
    yield b.Fold("Not judged", f"{amount(count, 'rule')}, by what would supply what they lack", tuple(items))


def thresholds(diagnosis: Diagnosis, unchanged: bool = False) -> Iterator[b.Block]:
    """Changed thresholds, and on demand the others as well."""
    changed = [t for t in diagnosis.thresholds if t.value != t.default]
    rows = []
    for t in diagnosis.thresholds if unchanged else changed:
        source = t.title or t.source
        origin = f"{t.origin}, {source}" if unchanged and source else t.origin
        rows.append((f"{t.code}.{t.param}", b.Number(t.value, t.unit), b.Number(t.default, t.unit), origin))
    listed = b.Grid(("parameter", "value", "default", "origin"), tuple(rows), item="threshold")
    if rows and unchanged:
        yield b.Fold("Thresholds", f"{len(rows)}, {len(changed)} changed; set with `--param`", (listed,))
    elif rows:
        yield b.Fold("Changed thresholds", amount(len(rows), "parameter"), (listed,))


def facts(diagnosis: Diagnosis) -> Iterator[b.Block]:
    """Every fact with its value, as the rules saw it; then the tables."""
    if not diagnosis.facts:
        return
    rows = tuple(
        (f.name, b.Number(f.value, fact_unit(f.name, f.unit)), f.scope.label()) for f in diagnosis.facts
    )
    listed = b.Grid(("fact", "value", "scope"), rows, item="fact")
    yield b.Fold("Facts", f"{amount(len(rows), 'value')} that the rules saw", (listed,))


def tables(diagnosis: Diagnosis, rows: int | None = None) -> Iterator[b.Block]:
    """The tables of the document except the kernels, at most this many rows of each."""
    for name, table in diagnosis.tables.items():
        if name != "kernels" and table.rows:
            yield grid(table, rows)


def todo(diagnosis: Diagnosis) -> Iterator[b.Block]:
    """What to do, in a feasible order."""
    if diagnosis.do:
        yield b.Heading("Do, in this order")
    for i, item in enumerate(diagnosis.do, 1):
        saved = [] if item.saved is None else [f"saves {value_text(item.saved, 'ratio')} alone"]
        if item.saved_in_plan is not None:
            saved.append(f"{value_text(item.saved_in_plan, 'ratio')} in the plan")
        note = "; ".join(t for t in (", ".join([item.cause, *saved]), item.because) if t)
        yield b.Item(item.action, f"{i}.", notes=(note,))


def sensitivity(diagnosis: Diagnosis, changes: int | None = None) -> Iterator[b.Block]:
    """An entry a threshold: the number, the threshold tried, and the changed outcomes."""
    flips = diagnosis.sensitivity
    if flips is None:
        return
    items = [_flip(f, changes) for f in flips]
    none = b.Item("no verdict: every number is further than a tenth from its threshold")
    yield b.Fold("Near a threshold", "what a tenth more or less would change", tuple(items or [none]))


def _flip(flip: Flip, limit: int | None) -> b.Item:
    found = {(c.code, c.before, c.after): c for c in flip.changes}
    changes = []
    for c in list(found.values())[:limit]:
        became = f"{c.before} → {c.after}".replace("not_evaluated", "not evaluated")
        changes.append(f"{c.code} {c.cause}{c.scope.aside()} {became}")
    if len(changes) < len(found):
        changes.append(f"and {len(found) - len(changes)} more (-v)")
    unit = fact_unit(flip.facts[0].fact if flip.facts else "", flip.unit)
    old, new = value_text(flip.threshold, unit), value_text(flip.moved_to, unit)
    notes = [f"threshold {flip.code}.{flip.param} {old}, tried {new}"]
    for fact in flip.facts:
        number = value_text(fact.value, fact_unit(fact.fact, fact.unit))
        notes.append(f"number {fact.fact} is {number}{fact.scope.aside()}")
    if flip.first_before or flip.first_after:
        notes.append(f"first {flip.first_after or 'nothing'} instead of {flip.first_before or 'nothing'}")
    return b.Item("; ".join(changes), notes=tuple(notes))
