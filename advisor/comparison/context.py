"""Short against long context: which operations grow. Only attention should."""

from __future__ import annotations

from math import prod
from typing import Any

from advisor.comparison import comparability
from advisor.comparison.before_after import measure, side_doc
from advisor.comparison.change_facts import COMPARISON, Judgement, RuleOptions, judge
from advisor.comparison.differences import budget_changes
from advisor.comparison.sides import (
    NOT_HOST,
    Operation,
    Phase,
    Side,
    operation_pairs,
    paired,
    phase_words,
    ratio,
    shared,
)
from advisor.facts.writer import FactWriter
from advisor.knowledge.verb_files import limit, read_of_context
from advisor.model.comparison import Comparability, ContextScaling, Scaling
from advisor.model.facts import TRACE, Scope
from advisor.model.findings import Span
from advisor.model.numbers import first_few, milliseconds, percent

#: Operations that get facts of their own, by the size of their change.
_KEPT = 20
_ATTENTION = "attention"
_GROWTH = ("context-scaling", "sparse-attention-grows")


def scaling(
    short: Side, long: Side, tokens: tuple[int, int] | None = None, options: RuleOptions | None = None
) -> ContextScaling:
    """Operations, step time and budget at two context lengths (`tokens`: short, long)."""
    phases = paired(short, long)
    chosen = _phase(phases)
    alike = comparability.judge(short, long, phases)
    reasons = tuple(r for r in alike.reasons if r.check != "phases")
    about: dict[str, Any] = {"short": side_doc(short), "long": side_doc(long), "tokens": tokens}
    rules = options or RuleOptions()
    if chosen is None:
        return ContextScaling(
            **about,
            verdict="not-comparable",
            summary="Not comparable: the captures have no phase in common.",
            comparability=Comparability(score=0.0, reasons=reasons),
            **judge(FactWriter(COMPARISON), "context", rules).parts(),
        )
    label, short_phase, long_phase = chosen
    # The batch must be the same; prompts may be longer.
    old, new = short.mean(short_phase, "batch"), long.mean(long_phase, "batch")
    batch = new / old if old and new else None
    if batch is None:
        batch = comparability.launch_ratio(short.kernels(short_phase), long.kernels(long_phase))
    text = f"a {label} step serves {batch or 1.0:.3g} times the batch"
    reasons += (comparability.of_ratio("batch", label, batch, limit("same-batch"), text),)
    score = prod(r.score for r in reasons)
    measured = measure(short, long, label, short_phase, long_phase)
    step = measured.before.median_ms if measured.before else 0.0
    kernels = short.kernels(short_phase).values(), long.kernels(long_phase).values()
    rows = [_row(old, new, step) for old, new in operation_pairs(*kernels)]
    rows.sort(key=lambda r: (-abs(r.long_ms - r.short_ms), r.operation))
    attention = sum(r.long_ms - r.short_ms for r in rows if r.attention)
    of_step = attention / step if step else None
    growth = measured.typical.span if measured.typical else None
    facts = _facts(rows, score, growth.mid if growth else None, of_step)
    judged = judge(facts, "context", rules, {TRACE: step})
    rows = [
        r.replaced(grows=any(judged.fired(c, Scope(operation=r.operation)) for c in _GROWTH)) for r in rows
    ]
    in_ms = None
    if growth is not None:
        in_ms = Span(low=growth.low * step, mid=growth.mid * step, high=growth.high * step)
    comparable = score >= judged.param("CMP102", "min_comparability")
    verdict = _verdict(rows, comparable, of_step or 0.0, growth)
    doc = ContextScaling(
        **about,
        verdict=verdict,  # type: ignore[arg-type]
        summary="",
        phase=label,
        step_short_ms=step or None,
        step_long_ms=measured.after.median_ms if measured.after else None,
        growth=growth,
        growth_ms=in_ms,
        growth_per_1k_ms=_per_1k(in_ms, tokens),
        attention_growth_ms=round(attention, 6),
        comparability=Comparability(score=score, reasons=reasons),
        operations=tuple(rows),
        budget=tuple(p for p in budget_changes(short, long, [chosen]) if p.phase is None),
        **judged.parts(),
    )
    return doc.replaced(summary=_summary(doc), notes=tuple(_notes(doc, short, long, chosen, judged)))


def _phase(phases: list[Phase]) -> tuple[str, str, str] | None:
    """Decode if both have it, else the largest phase other than prefill, else the largest."""
    order = sorted(shared(phases), key=lambda p: (p[0] != "decode", p[0] in ("prefill", "mixed")))
    return order[0] if order else None


def _row(short: Operation, long: Operation, step: float) -> Scaling:
    return Scaling(
        operation=short.name,
        family=short.family,
        attention=short.family == _ATTENTION and read_of_context(short.name) != "fixed",
        calls_short=round(short.calls, 3),
        calls_long=round(long.calls, 3),
        short_ms=round(short.ms, 6),
        long_ms=round(long.ms, 6),
        growth=long.ms / short.ms - 1 if short.ms else None,
        step_growth=(long.ms - short.ms) / step if step else 0.0,
    )


def _facts(rows: list[Scaling], score: float, growth: float | None, attention: float | None) -> FactWriter:
    out = FactWriter(COMPARISON)
    out |= {
        "context.comparability_ratio": score,
        "context.step_growth_ratio": growth,
        "context.attention_step_growth_ratio": attention,
    }
    for row in rows[:_KEPT]:
        own = out.at(Scope(operation=row.operation))
        own |= {
            "context.is_attention": row.attention,
            "context.operation_family": row.family,
            "context.operation_reads": read_of_context(row.operation),
            # An operation that is new at the long context grew by all of itself.
            "context.operation_growth_ratio": 1.0 if row.growth is None else row.growth,
            "context.operation_step_growth_ratio": row.step_growth,
            "context.operation_short_ms": row.short_ms,
            "context.operation_long_ms": row.long_ms,
        }
    return out


def _per_1k(growth: Span | None, tokens: tuple[int, int] | None) -> Span | None:
    if growth is None or tokens is None or tokens[0] == tokens[1]:
        return None
    per = (tokens[1] - tokens[0]) / 1000
    low, high = sorted((growth.low / per, growth.high / per))
    return Span(low=low, mid=growth.mid / per, high=high)


def _verdict(rows: list[Scaling], comparable: bool, attention: float, growth: Span | None) -> str:
    if not comparable:
        return "not-comparable"
    if any(r.grows for r in rows):
        return "context-scaling"
    worth = limit("growth-share")
    if attention >= worth or (growth is not None and growth.low >= worth):
        return "only-attention-scales"
    return "no-growth"


def _summary(doc: ContextScaling) -> str:
    if doc.verdict == "not-comparable":
        why = [r.text for r in sorted(doc.comparability.reasons, key=lambda r: r.score) if r.text]
        return f"Not comparable: {why[0] if why else 'too little in common'}."
    step = phase_words(doc.phase or "unknown")
    text = (
        f"the typical {step} takes {milliseconds(doc.step_short_ms or 0.0)} ms at the short "
        f"context and {milliseconds(doc.step_long_ms or 0.0)} ms at the long one"
    )
    text += f" ({ratio(doc.growth.mid)})." if doc.growth is not None else "."
    if doc.verdict == "no-growth":
        return f"Nothing grows: {text}"
    share = ""
    total = doc.growth_ms.mid if doc.growth_ms is not None else 0.0
    if total > 0:
        share = f", {percent(min(max(doc.attention_growth_ms / total, 0.0), 1.0), 2)} of it by attention"
    if doc.verdict == "only-attention-scales":
        return f"Only attention grows: {text[:-1]}{share}."
    listed = first_few([r.operation for r in doc.operations if r.grows], 3)
    also = any(r.attention and not r.grows and r.step_growth >= limit("growth-share") for r in doc.operations)
    what = (
        f"Not only attention grows, but also {listed}" if also else f"Growth that should not be, of {listed}"
    )
    return f"{what}: {text[:-1]}{share if also else ''}."


def _notes(
    doc: ContextScaling, short: Side, long: Side, phase: tuple[str, str, str], judged: Judgement
) -> list[str]:
    notes = []
    if doc.phase == "prefill":
        notes.append(
            "The captures have no decode steps in common. In prefill all work grows with the "
            "prompt; compare decode steps (long outputs) to judge what the context costs."
        )
    if doc.tokens is None:
        notes.append("Give the context lengths with --tokens SHORT,LONG to see the cost per token.")
    step = doc.step_short_ms or 0.0
    one = len(short.phases) == len(long.phases) == 1
    old, new = (s.budget(None if one else p) for s, p in ((short, phase[1]), (long, phase[2])))
    host = sum(new.get(p, 0.0) - old.get(p, 0.0) for p in {*old, *new} if p not in NOT_HOST)
    if step and host >= max(limit("growth-share") * step, 2 * limit("operation-share")):
        notes.append(
            f"The device waits {milliseconds(host)} ms a step longer for the host at the long "
            "context: look for work that walks over the whole sequence (block tables, sampling)."
        )
    if any(n.missing for n in judged.found.not_evaluated):
        notes.append("Kernels are missing in one capture, so operations could not be judged.")
    return notes
