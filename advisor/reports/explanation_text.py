"""Why a rule fired in a capture, or why not, for people: the tree, the numbers, their origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.model.explanation import Explanation, FactSource, Reason, Related, ScopeExplanation
from advisor.model.facts import Scope
from advisor.model.findings import ConditionDoc
from advisor.model.numbers import (
    UNKNOWN,
    condition_text,
    digits,
    fact_unit,
    percent,
    session_time,
    value_text,
)
from advisor.reports.blocks import LEVEL_STYLE, level_text, write
from advisor.reports.finding_text import SHOWN, Detail, Shown, finding
from advisor.reports.layout import GLUE, Page, Segment, pad
from advisor.reports.phrases import clock
from advisor.reports.wording import remedy_lead

#: Scopes told in full without -v: of those in which the rule fired, and of the others.
FIRED, OTHERS = 3, 1
_WORD_WIDTH = 9
_HEADINGS = {
    "fired": "Why it fired",
    "overruled": "Why it would fire",
    "quiet": "Why not",
    "not_evaluated": "What is missing",
}


def explanation(page: Page, doc: Explanation, verbosity: int = 0, full: bool = False) -> None:
    """The whole answer; without -v the scopes that matter and the facts that they rest on. In `full`
    the findings of the rule as well, and without -v they alone."""
    page.line((f"{doc.code} {doc.cause}", "bold"), (f"  {doc.kind}", "dim"))
    page.wrapped(doc.title, style="bold")
    page.labelled("capture", doc.input.path, 2)
    if doc.input.window_ns is not None and doc.input.window_ns[1] > doc.input.window_ns[0]:
        lo, hi = doc.input.window_ns
        how = f", {doc.input.window_method}" if doc.input.window_method else ""
        page.labelled(
            "window", f"{session_time(lo)} to {session_time(hi)} ({value_text(hi - lo, 'ns')}{how})"
        )
    page.blank()
    page.wrapped(doc.sentence, style="bold")
    if full and doc.findings:
        seen: Shown = {}
        detail = Detail() if verbosity > 0 else SHOWN
        write(page, (finding(f, bool(doc.input.steps), detail, seen) for f in doc.findings))
        if verbosity <= 0:
            page.blank()
            page.line(("Next: ", "dim"), (_next(doc), "bold"))
            return
    shown = list(_shown(doc, verbosity))
    for one in shown:
        _scope(page, doc, one, verbosity)
    if len(shown) < len(doc.scopes):
        page.blank()
        rest = doc.scopes[len(shown) :]
        word = "place" if len(rest) == 1 else "places"
        page.line((f"and {len(rest)} more {word}: {_count(rest)} (-v)", "dim"))
    _facts(page, doc, shown, verbosity)
    page.blank()
    page.line(("Next: ", "dim"), (_next(doc), "bold"))


def _shown(doc: Explanation, verbosity: int) -> Iterator[ScopeExplanation]:
    fired = [s for s in doc.scopes if s.state == "fired"]
    if verbosity > 0:
        yield from doc.scopes
    elif fired:
        yield from fired[:FIRED]
    else:
        yield from doc.scopes[:OTHERS]


def _count(scopes: tuple[ScopeExplanation, ...]) -> str:
    states: dict[str, int] = {}
    for one in scopes:
        states[one.state] = states.get(one.state, 0) + 1
    return ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in states.items())


def _next(doc: Explanation) -> str:
    if doc.state == "not_evaluated":
        return f"advisor doctor {doc.input.path}"
    return f"advisor explain {doc.code}"


# --- one scope -------------------------------------------------------------------------------


def _scope(page: Page, doc: Explanation, one: ScopeExplanation, verbosity: int) -> None:
    heading = "What stopped it" if one.state == "quiet" and one.stopped_by else _HEADINGS[one.state]
    page.heading(heading, one.scope.label() or "whole trace")
    if one.severity is not None and one.rank is not None:
        held = ""
        if one.impact is not None and one.impact.share:
            share = value_text(one.impact.share, "ratio")
            held = f" {share} of the {one.impact.of(bool(doc.input.steps))}"
        page.line(
            f"  finding {one.rank}  ",
            (level_text(page.glyphs, one.severity), LEVEL_STYLE[one.severity]),
            held,
        )
    if one.message:
        page.wrapped(one.message, ["  "], 2)
    _reasons(page, one.reasons, _Depth(2, one.state, verbosity))
    _remedies(page, one)
    for label, related in (
        ("folds in", one.explains),
        ("folded in", one.explained_by),
        ("overrules", one.overrules),
        ("overruled", one.overruled_by),
    ):
        _related(page, label, related, verbosity)
    if one.confidence is not None:
        _confidence(page, one)


def _remedies(page: Page, one: ScopeExplanation) -> None:
    """What would supply the missing facts, those of one remedy together."""
    by: dict[str, list[str]] = {}
    for item in one.missing:
        by.setdefault(item.remedy or "", []).append(item.fact)
    for remedy, facts in by.items():
        lead = f"{remedy_lead(remedy)} ".replace("needs ", "") if remedy else ""
        text = remedy or "nothing that can be recorded"
        page.wrapped(text, [("  supply    ", "dim"), lead], 14, "bold")
        page.wrapped(f"for {', '.join(facts)}", [" " * 12], 14)


def _related(page: Page, label: str, items: tuple[Related, ...], verbosity: int) -> None:
    by = {"folded in": "by ", "overruled": "by "}.get(label, "")
    for i, item in enumerate(items):
        where = item.scope.label()
        name = f"{by}{item.code}{GLUE}{item.cause}{f' ({where})' if where else ''}"
        text = f"{name}: {item.message}" if item.message and verbosity > 0 else name
        page.labelled(label if i == 0 else "", text, 2)


def _confidence(page: Page, one: ScopeExplanation) -> None:
    """The factors and their product, so that the arithmetic can be followed."""
    page.labelled("sure", f"{value_text(one.confidence, 'ratio')}, the product of", 2)
    for factor in one.factors:
        number = f"{factor.factor:.3f}"
        page.wrapped(factor.why, [f"    {number}  ", (pad(factor.name, 9), "dim")], 20)


# --- the tree --------------------------------------------------------------------------------


def _sign(page: Page, holds: bool | None, indent: int) -> Segment:
    """Truth as a glyph and a word, so that it reads without colour."""
    glyph, word, style = {
        True: (page.glyphs.ok, "yes", "green"),
        False: (page.glyphs.no, "no", "red"),
        None: ("?", "unknown", "yellow"),
    }[holds]
    return (f"{' ' * indent}{glyph} {pad(word, _WORD_WIDTH - 2)}", style)


@dataclass(frozen=True)
class _Depth:
    """Where in the tree one is; `state` is that of the rule which is explained."""

    indent: int
    state: str
    verbosity: int
    nested: bool = False

    def below(self) -> _Depth:
        return replace(self, indent=self.indent + 2, nested=True)

    def tells(self, reason: Reason) -> bool:
        """Whether it is worth a line: a guard of another rule that let that one pass is not."""
        return self.verbosity > 0 or not (
            self.nested and reason.kind == "guard" and reason.holds is not False
        )

    def goes_on(self, reason: Reason) -> bool:
        """Whether the reasons below say more: not of what let pass, nor, where the rule did not
        fire, of what holds anyway."""
        if self.verbosity > 0:
            return True
        if reason.kind == "guard" and reason.holds is not False:
            return False
        return self.state in ("fired", "overruled") or reason.holds is not True


def _reasons(page: Page, reasons: tuple[Reason, ...], at: _Depth) -> None:
    branches = [r for r in reasons if r.kind == "branch"]
    for reason in reasons:
        if reason.kind == "branch":
            continue
        if reason.kind == "outcome":
            # Which rule a symptom is, and where, stands behind its name: its reasons are new.
            _reasons(page, reason.reasons, at)
        elif at.tells(reason):
            sign = _sign(page, reason.holds, at.indent)
            page.wrapped(_text(reason), [sign, " "], at.indent + _WORD_WIDTH + 1)
            if at.goes_on(reason):
                _reasons(page, reason.reasons, at.below())
    if branches and at.verbosity <= 0:
        ways = "1 other way" if len(branches) == 1 else f"{len(branches)} other ways"
        page.line(" " * at.indent, (f"{ways} to fire, further off (-v)", "dim"))
        return
    for branch in branches:
        page.line(" " * at.indent, ("another way to fire, further off", "dim"))
        _reasons(page, branch.reasons, at.below())


def _text(reason: Reason) -> str:
    if reason.kind == "guard":
        word = {True: "not stopped: ", False: "stopped: ", None: "not checked: "}[reason.holds]
        if reason.condition is not None:
            return word + _condition(reason.condition, None, reason.why, guard=True)
        return word + reason.text.partition(", as ")[2]
    if reason.condition is not None:
        return _condition(reason.condition, reason.off_by, reason.why)
    if reason.kind == "state":
        rules = [r.rule for r in reason.reasons if r.rule is not None]
        names = [f"{r.code}{_where(r.scope)}" for r in rules[:3]]
        more = f" and {len(rules) - 3} more" if len(rules) > 3 else ""
        return reason.text + (f": {', '.join(names)}{more}" if names else "")
    return reason.text


def _where(scope: Scope) -> str:
    label = scope.label()
    return f" ({label})" if label else ""


def _condition(condition: ConditionDoc, off: float | None, why: str | None, guard: bool = False) -> str:
    named = f" ({condition.param})" if condition.param else ""
    if condition.holds is None:
        wanted = condition_text(condition).replace(f" {UNKNOWN}", "", 1)
        return f"{wanted}{named}: unknown{f', as {why}' if why else ''}"
    text = condition_text(condition) + named
    if guard:
        return f"{text} {'holds' if condition.holds else 'is false'}"
    if condition.holds:
        return text
    return text + distance(off)


def distance(off: float | None) -> str:
    """How far a value is from its threshold, in per cent of the threshold."""
    if off is None:
        return ""
    if off == 0.0:
        return ", exactly on it"
    if off >= 10:
        return f", off by {digits(off)} times the threshold"
    return f", off by {percent(off, 3 if off >= 0.0001 else 7)} of the threshold"


# --- where the numbers come from -------------------------------------------------------------


def _facts(page: Page, doc: Explanation, shown: list[ScopeExplanation], verbosity: int) -> None:
    facts = [f for f in doc.facts if verbosity > 0 or _used(f, shown, verbosity)]
    if not facts:
        return
    page.heading("Where the numbers come from")
    page.wrapped(clock(doc.input), ["  "], 2, "dim")
    for fact in facts:
        shown_value = value_text(fact.value, fact_unit(fact.fact, fact.unit))
        where = fact.scope.label() or "whole trace"
        page.line("  ", (fact.fact, "bold"), f" = {shown_value}", (f"  {where}", "dim"))
        if fact.meaning:
            page.wrapped(fact.meaning, ["    "], 4)
        if fact.how:
            page.labelled("computed", fact.how, 4)
        for i, source in enumerate(fact.sources):
            columns = f": {', '.join(source.columns)}" if source.columns else ""
            native = f" ({source.native})" if source.native else ""
            page.labelled("from" if i == 0 else "", f"{source.table}{native}{columns}", 4)
        if not fact.sources:
            page.labelled("from", "the metadata of the capture", 4)
        if fact.window_ns is None:
            page.labelled("over", "the whole capture", 4)
        else:
            lo, hi = fact.window_ns
            page.labelled("over", f"{session_time(lo)} to {session_time(hi)}", 4)


def _used(fact: FactSource, shown: list[ScopeExplanation], verbosity: int) -> bool:
    """Whether the fact stands in a part of the tree that is told."""
    return any(
        fact.fact in set(_names(one.reasons, _Depth(0, one.state, verbosity)))
        and fact.scope.encloses(one.scope)
        for one in shown
    )


def _names(reasons: tuple[Reason, ...], at: _Depth) -> Iterator[str]:
    for reason in reasons:
        if reason.kind == "branch" or not at.tells(reason):
            continue
        if reason.condition is not None:
            yield reason.condition.fact
        if reason.kind == "outcome" or at.goes_on(reason):
            yield from _names(reason.reasons, at.below())
