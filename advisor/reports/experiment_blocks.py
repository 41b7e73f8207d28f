"""Context scaling, engines side by side, the router experiment; and reports of comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from advisor.model.comparison import Comparison, ContextScaling, FrameworkTable, RouterExperiment
from advisor.model.facts import Cell
from advisor.model.numbers import digits, milliseconds, signed, times, value_text
from advisor.reports import compare_blocks as two
from advisor.reports.blocks import Block, Command, Grid, Heading, Labelled, Paragraph, Report, first, labelled
from advisor.reports.compare_blocks import ROWS, advice, change, span

#: Engines that fit beside each other on 80 columns.
ABREAST = 4


def context(doc: ContextScaling, verbosity: int = 0) -> Iterator[Block]:
    """Operations at two context lengths."""
    yield from two.sides(("short", doc.short), ("long", doc.long), verbosity=verbosity)
    yield Paragraph(doc.summary, strong=True)
    if (per := doc.growth_per_1k_ms) is not None and doc.tokens is not None and doc.growth_ms is not None:
        growth = f"{per.mid:+.3f} ms per 1,000 tokens ({per.low:+.3f} to {per.high:+.3f})"
        lengths = f"{doc.tokens[0]:,} to {doc.tokens[1]:,} tokens"
        yield Labelled("TPOT growth", f"{growth}, from {lengths}: {doc.growth_ms.mid:+.2f} ms a step")
    elif doc.growth is not None:
        yield Labelled("step growth", f"{span(doc.growth)}, 98 % interval")
    yield from (Labelled("note", note) for note in doc.notes)
    yield from two.comparable(doc.comparability, verbosity)
    rows: list[tuple[Cell, ...]] = []
    for r in doc.operations:
        what = "GROWS" if r.grows else "attention" if r.attention else ""
        ms = (milliseconds(r.short_ms), milliseconds(r.long_ms), change(r.short_ms, r.long_ms))
        rows.append((r.operation, what, *ms, f"{signed(r.step_growth)} %"))
    if rows:
        yield Heading("Operations", "milliseconds a step; of the short step")
        kept, more = first(rows, None if verbosity > 0 else ROWS)
        yield Grid(("operation", "", "short", "long", "growth", "of step"), kept, more)
    yield from two.budget(doc.budget, verbosity, ("short", "long"))
    yield from advice(doc.findings, verbosity)
    if verbosity > 0:
        yield from two.unknown(doc.not_evaluated)


def frameworks(doc: FrameworkTable, verbosity: int = 0) -> Iterator[Block]:
    """Engines in columns, metrics in rows."""
    for column in doc.columns:
        entry = column.inputs[0]
        about = [entry.path, entry.device, entry.serving_engine, f"{entry.steps or 0} steps"]
        yield Labelled(column.name, ", ".join(a for a in about if a))
    yield Paragraph(doc.summary, strong=True)
    names = [c.name for c in doc.columns]
    for group in dict.fromkeys(m.group for m in doc.metrics):
        found = [m for m in doc.metrics if m.group == group]
        yield Heading(group.capitalize(), f"{doc.phase} steps" if group == "time" else "")
        shown = [m for m in found if m.unit != "text" and (verbosity > 0 or any(m.values))]
        for at in range(0, len(names), ABREAST):
            part = slice(at, at + ABREAST)
            rows = ((m.name, *(_value(v, m.unit) for v in m.values[part])) for m in shown)
            yield Grid(("", *names[part]), tuple(rows))
        for m in found:
            users: dict[str, list[str]] = {}  # eager, graph: FlashAttention 3; vllm: FlashInfer
            for name, value in zip(names, m.values, strict=True) if m.unit == "text" else ():
                users.setdefault("not seen" if value is None else str(value), []).append(name)
            yield from labelled(
                (m.name, "; ".join(f"{', '.join(who)}: {what}" for what, who in users.items()))
            )
        none = (m.name for m in found if m.unit != "text" and m not in shown)
        yield from labelled(("none", ", ".join(none)))
    if doc.differences:
        yield Heading("What the differences mean")
        for text in doc.differences:
            label, _, rest = text.partition(": ")
            yield Labelled(label.lower(), rest)
    yield Heading("Notes")
    yield from (Labelled("", note) for note in doc.notes)


def _value(value: Cell, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value_text(value)} tok/s" if unit == "tok_per_s" else value_text(value, unit)


def router(doc: RouterExperiment, verbosity: int = 0) -> Iterator[Block]:
    """Learned against perfect routing."""
    yield Paragraph(doc.summary, strong=True)
    yield Labelled("certain", "yes" if doc.certain else "no: repeat both sides")
    yield from (Labelled("note", note) for note in doc.notes)
    given = doc.learned.metric.startswith("given")
    what = doc.learned.unit if given else f"{doc.learned.metric}, {doc.learned.unit}"
    yield Heading("Runs", what)
    rows = []
    for side in (doc.learned, doc.perfect):
        values = ", ".join(digits(v, 6) for v in side.values[:6]) + (", ..." if len(side.values) > 6 else "")
        rows.append((side.name, len(side.values), digits(side.mean, 6), values))
    yield Grid(("router", "runs", "mean", "values"), tuple(rows))
    gain = f"{signed(doc.gain)} % throughput with perfect routing"
    if doc.gain_low is None or doc.gain_high is None:
        yield Labelled("gain", f"{gain} (one run a side: no interval)")
    else:
        low, high = signed(doc.gain_low), signed(doc.gain_high)
        yield Labelled("gain", f"{gain}, 98 % interval {low} to {high} %")
    if doc.experts:
        yield Heading("Expert kernels", "as the captures show them")
        tails = []
        for e in doc.experts:
            ratios = (e.max_over_p50, e.p99_over_p50, e.imbalance)
            tails.append((e.name, e.expert_share, *("-" if r is None else f"{times(r)} x" for r in ratios)))
        heads = ("router", "share:ratio", "max over p50", "p99 over p50", "largest over mean launch")
        yield Grid(heads, tuple(tails))
        for e in doc.experts:
            sized = f"launch sizes of {e.kernel} vary, as tokens per expert do" if e.kernel else ""
            yield from labelled((e.name, "; ".join(t for t in (sized, e.note) if t)))
    yield from (Labelled(h.code, h.text) for h in doc.healthy)
    yield from advice(doc.findings, verbosity)


def router_help(known: Mapping[str, Any]) -> Iterator[Block]:
    """How to run the experiment, as `knowledge/moe_router.yaml` says, where no runs are given."""
    yield Paragraph("Does uneven routing hold a mixture-of-experts model back?", strong=True)
    for command in known["commands"]:
        yield Labelled(command["title"], "")
        yield Command(command["line"])
    yield Labelled("repeat", known["repeat"])
    yield Labelled("models", "; ".join(f"{m['name']} ({m['method']})" for m in known["models"]))
    yield Labelled("backends", ", ".join(known["backends"]))
    yield Labelled("mind", f"{known['notice']} {known['how']}")
    yield Labelled("read", f"more than 10 % more throughput with {known['variable']}=1: routing is uneven")


Document = Comparison | ContextScaling | FrameworkTable | RouterExperiment
#: Title and blocks of each kind of document.
KINDS: dict[str, tuple[str, Callable[[Any, int], Iterator[Block]]]] = {
    "comparison": ("Before against after", two.comparison),
    "context-scaling": ("Short against long context", context),
    "frameworks": ("Serving engines side by side", frameworks),
    "moe-router": ("Learned against perfect routing", router),
}


def report(document: Document, verbosity: int = 0) -> Report:
    """A document of this family; HTML has every row. With `verbosity` below 0 the summary alone."""
    title, blocks = KINDS[document.kind]

    def shown(_width: int) -> Iterable[Block]:
        return blocks(document, verbosity) if verbosity >= 0 else (Paragraph(document.summary),)

    return Report((document,), shown, title, whole=lambda: blocks(document, 1))
