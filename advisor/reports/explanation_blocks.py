"""Why a rule fired in a capture, or why not, as blocks: the tree, the numbers, their origin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from advisor.model.explanation import Explanation, Reason, ScopeExplanation
from advisor.model.numbers import amount, fact_unit, first_few, session_time, value_text
from advisor.model.rules import judges_capture
from advisor.reports.blocks import (
    Block,
    Gap,
    Grid,
    Heading,
    Item,
    Labelled,
    Next,
    Paragraph,
    Title,
    command,
    listed,
)
from advisor.reports.ending import WIDTH, fixed
from advisor.reports.finding_text import IN_FULL, SHOWN, Detail, Shown, finding
from advisor.reports.layout import GLUE
from advisor.reports.phrases import clock, remedy_text, window

#: Scopes printed in full without -v: where the rule fired, and where it did not.
FIRED, OTHERS = 3, 1
_HEADINGS = {
    "fired": "Why it fired",
    "overruled": "Why it would fire",
    "quiet": "Why not",
    "not_evaluated": "What is missing",
}
#: The sign of a condition, and the word beside it.
_TRUTH = {True: ("ok", "yes"), False: ("no", "no"), None: ("?", "unknown")}


def explanation(doc: Explanation, verbosity: int = 0, full: bool = False) -> Iterator[Block]:
    """The whole answer; without -v the relevant scopes. `full`: findings too, without -v alone."""
    yield Title(f"{doc.code} {doc.cause}")
    yield Paragraph(f"{doc.title} ({doc.kind})", strong=True, dense=True)
    yield Labelled("capture", doc.input.path)
    if doc.captures > 1:
        rank = doc.scopes[0].scope.rank
        which = "" if rank is None else f"; this one is rank {rank}"
        yield Labelled("job", f"{doc.captures} ranks{which}")
    if analysed := window(doc.input):
        yield Labelled("window", analysed)
    yield Paragraph(doc.sentence, strong=True)
    if full and doc.findings:
        seen: Shown = {}
        detail = SHOWN if verbosity <= 0 else IN_FULL if verbosity == 1 else Detail()
        for found in doc.findings:
            yield finding(found, bool(doc.input.steps), detail, seen)
        if verbosity <= 0:
            yield from _next(doc)
            checked = any(advice.verify for advice in doc.findings[0].recommendations)
            if checked and doc.captures == 1 and not judges_capture(doc.code):
                yield fixed(doc.input.path)
            return
    fired = [s for s in doc.scopes if s.state == "fired"]
    shown = list(doc.scopes if verbosity > 0 else fired[:FIRED] or doc.scopes[:OTHERS])
    for one in shown:
        yield from _scope(doc, one, verbosity)
    if rest := doc.scopes[len(shown) :]:
        states = Counter(one.state.replace("_", " ") for one in rest)
        counts = ", ".join(f"{n} {state}" for state, n in states.items())
        yield Paragraph(f"and {amount(len(rest), 'more place')}: {counts} (-v)")
    yield from _facts(doc, shown, verbosity)
    yield from _next(doc)


def _next(doc: Explanation) -> Iterator[Block]:
    yield Gap()
    missing = doc.state == "not_evaluated"
    doctor = command("advisor doctor", doc.input.path, "", WIDTH - len("Next: "))
    yield Next(doctor if missing else f"advisor explain {doc.code}")


def _scope(doc: Explanation, one: ScopeExplanation, verbosity: int) -> Iterator[Block]:
    heading = "What stopped it" if one.state == "quiet" and one.stopped_by else _HEADINGS[one.state]
    yield Heading(heading, one.scope.label() or "whole trace")
    if one.severity is not None and one.rank is not None:
        held = ""
        if one.impact is not None and one.impact.share:
            held = f", {value_text(one.impact.share, 'ratio')} of the {one.impact.of(bool(doc.input.steps))}"
        yield Item(f"number {one.rank} of the report{held}", one.severity, one.severity.upper())
    if one.message:
        yield Paragraph(one.message, dense=True)
    yield from _reasons(one.reasons, _Depth(one.state, verbosity))
    supply: dict[str, list[str]] = {}
    for item in one.missing:
        supply.setdefault(item.remedy or "", []).append(item.fact)
    for remedy, facts in supply.items():
        text = remedy_text(remedy).removeprefix("needs ") if remedy else "nothing that can be recorded"
        yield Labelled("supply", f"{text}, for {', '.join(facts)}")
    for label, related in (
        ("folds in", one.explains),
        ("folded in", one.explained_by),
        ("overrules", one.overrules),
        ("overruled", one.overruled_by),
    ):
        by = "by " if label in ("folded in", "overruled") else ""
        names = [f"{by}{r.code}{GLUE}{r.cause}{r.scope.aside()}" for r in related]
        more = [f": {r.message}" if r.message and verbosity > 0 else "" for r in related]
        yield from listed(label, map(str.__add__, names, more))
    if one.confidence is not None:
        product = ", the product of" if one.factors else ""
        yield Labelled("confidence", f"{value_text(one.confidence, 'ratio')}{product}")
    if one.factors:
        rows = tuple((f"{f.factor:.3f}", f.name, f.why) for f in one.factors)
        yield Grid(("factor", "of", "because"), rows, wrapped=True)


class _Depth(Struct, frozen=True):
    """A position in the tree; `state` is that of the explained rule."""

    state: str
    verbosity: int
    nested: bool = False

    def shows(self, reason: Reason) -> bool:
        """Whether to print this reason: not a passed guard of another rule."""
        passed = reason.kind == "guard" and reason.holds is not False
        return self.verbosity > 0 or not (self.nested and passed)

    def goes_on(self, reason: Reason) -> bool:
        """Whether to print the reasons below: not below a guard that passed nor, if the rule did not fire,
        below a condition that holds."""
        if self.verbosity > 0 or (reason.kind == "guard" and reason.holds is not False):
            return self.verbosity > 0
        return self.state in ("fired", "overruled") or reason.holds is not True


def _reasons(reasons: Sequence[Reason], at: _Depth) -> Iterator[Item]:
    branches = [r for r in reasons if r.kind == "branch"]
    inside = replace(at, nested=True)
    for reason in reasons:
        if reason.kind == "outcome":
            # The name of a symptom is followed by its rule and scope: print its reasons alone.
            yield from _reasons(reason.reasons, at)
        elif reason.kind != "branch" and at.shows(reason):
            below = tuple(_reasons(reason.reasons, inside)) if at.goes_on(reason) else ()
            rules = [r.rule for r in reason.reasons if r.rule is not None and reason.kind == "state"]
            names = first_few([f"{r.code}{r.scope.aside()}" for r in rules], 3)
            text = reason.text + (f": {names}" if names else "")
            yield Item(text, *_TRUTH[reason.holds], below=below)
    if branches and at.verbosity <= 0:
        yield Item(f"{amount(len(branches), 'other way')} to fire, further off (-v)")
        return
    for branch in branches:
        yield Item("another way to fire, further off", below=tuple(_reasons(branch.reasons, inside)))


def _facts(doc: Explanation, shown: Sequence[ScopeExplanation], verbosity: int) -> Iterator[Block]:
    used = [(one.scope, set(_names(one.reasons, _Depth(one.state, verbosity)))) for one in shown]
    facts = [
        f
        for f in doc.facts
        if verbosity > 0 or any(f.fact in names and f.scope.encloses(scope) for scope, names in used)
    ]
    if not facts:
        return
    yield Heading("Where the numbers come from", clock(doc.input))
    for fact in facts:
        where = fact.scope.label() or "whole trace"
        notes = [fact.meaning, f"computed: {fact.how}" if fact.how else ""]
        for source in fact.sources:
            columns = f": {', '.join(source.columns)}" if source.columns else ""
            notes.append(f"from {source.table}{f' ({source.native})' if source.native else ''}{columns}")
        notes += ["from the metadata of the capture"] * (not fact.sources)
        window = " to ".join(map(session_time, fact.window_ns or ()))
        notes.append(f"over {window or 'the whole capture'}")
        shown_value = value_text(fact.value, fact_unit(fact.fact, fact.unit))
        yield Item(f"{shown_value}, {where}", code=fact.fact, notes=tuple(filter(None, notes)))


def _names(reasons: Sequence[Reason], at: _Depth) -> Iterator[str]:
    """Facts of the part of the tree that is shown."""
    for reason in reasons:
        if reason.kind == "branch" or not at.shows(reason):
            continue
        if reason.condition is not None:
            yield reason.condition.fact
        if reason.kind == "outcome" or at.goes_on(reason):
            yield from _names(reason.reasons, replace(at, nested=True))
