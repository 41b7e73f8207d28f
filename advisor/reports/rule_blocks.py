"""Rules as blocks: the page of each, which ``advisor explain CODE`` prints, and the index of all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from advisor.model.facts import ASKED_BY
from advisor.model.findings import Reference
from advisor.model.numbers import CHANGES, OPS, fact_unit, named_unit, value_text
from advisor.model.rules import RuleSpec
from advisor.reports.blocks import Block, Gap, Grid, Heading, Item, Next, Paragraph, Title

#: The first letters of a code -> the subject of its rules, in the order of the index.
FAMILIES = {
    "CAP": "Capture quality",
    "UTL": "Utilisation",
    "LCH": "Launch path",
    "SYN": "Synchronisation",
    "XFR": "Transfers",
    "ALC": "Allocation",
    "KRN": "Kernels",
    "HST": "Host",
    "COM": "Communication",
    "MOE": "Mixture of experts",
    "CMP": "Comparison",
    "ASK": "Questions of advisor doctor",
    "CHK": "Questions of advisor checklist",
}


class Example(Struct, frozen=True):
    """One case of a rule in words: the situation, its facts, and the result."""

    name: str
    known: str
    outcome: str


def index(rules: Iterable[RuleSpec]) -> Iterator[Block]:
    """One table a family: code, cause, title, kind, scope, severity, one line."""
    families: dict[str, list[RuleSpec]] = {}
    for rule in sorted(rules, key=lambda r: r.code):
        families.setdefault(rule.code.rstrip("0123456789"), []).append(rule)
    known = list(FAMILIES)
    yield Title("Rules")
    heads = ("code", "cause", "title", "kind", "scope", "severity", "what")
    for family in sorted(families, key=lambda f: (known.index(f) if f in known else 99, f)):
        yield Heading(FAMILIES.get(family, family))
        rows = []
        for r in families[family]:
            first = re.split(r"(?<=[.?!])\s+(?=[A-Z0-9`])", " ".join(r.docs.what.split()), maxsplit=1)[0]
            rows.append((r.code, r.cause, r.title, r.kind, r.scope, highest_severity(r), first))
        yield Grid(heads, tuple(rows), wrapped=True)


def lines(rules: Sequence[RuleSpec]) -> Iterator[Block]:
    """A line a rule: code, cause and title, with the kind of all but causes, and whether it is a preview."""
    rows = ((r.code, r.cause, r.title + _in_brackets(r)) for r in rules)
    yield Grid(("code", "cause", "title"), tuple(rows), wrapped=True)


def _in_brackets(rule: RuleSpec) -> str:
    words = [
        *([] if rule.kind == "cause" else [rule.kind]),
        *([] if rule.lifecycle == "stable" else [rule.lifecycle]),
    ]
    return f" ({', '.join(words)})" if words else ""


def highest_severity(rule: RuleSpec) -> str:
    """The highest severity of a finding of this rule, or the one it always has."""
    spec = rule.severity
    if rule.kind in ("note", "question"):
        return rule.kind
    if rule.invalidates is True:
        return spec.cap or "high"
    levels = [level.severity for level in spec.levels]
    if rule.impact is None:
        return "info"
    if len(levels) == 1:
        return levels[0]
    top = spec.cap or (levels[-1] if levels else "high")
    return top if top == "info" else f"up to {top}"


def page(
    rule: RuleSpec,
    references: Mapping[str, Reference],
    overruled_by: Sequence[str] = (),
    examples: Sequence[Example] = (),
    checked: Sequence[str] = (),
) -> Iterator[Block]:
    """One rule in full. `overruled_by`: causes; `checked`: releases whose options were verified."""
    docs = rule.docs
    yield Title(f"{rule.code} {rule.cause}")
    yield Paragraph(rule.title, strong=True, dense=True)
    if rule.answers:
        yield Paragraph(rule.message)
    state = "" if rule.lifecycle == "stable" else f" ({rule.lifecycle})"
    where = "the capture as a whole" if rule.scope == "trace" else f"each {rule.scope}"
    where = "all captures together" if rule.subject == "checklist" else where
    yield Paragraph(f"A {rule.kind}{state}, judged for {where}; {_severity(rule)}.")
    yield from _section("What it looks at", docs.what)
    yield from _section("Why it matters", docs.why)
    yield from _section("Harmless when", docs.harmless_when)
    yield Heading("Answers" if rule.answers else "Fires when")
    yield from _conditions(rule)
    yield from _thresholds(rule, references)
    for word, causes in (
        ("Explains", rule.then.explains),
        ("Overrules", (*rule.then.overrules, *(o.cause for o in rule.then.overrules_where))),
        ("Is overruled by", overruled_by),
    ):
        if causes:
            yield Paragraph(f"{word} {', '.join(causes)}.")
    if docs.fix or rule.recommendations:
        yield from _section("How to fix", docs.fix)
        for first in rule.requires:
            yield Item(f"First {first.cause}, where it was found: {first.because}.", "-")
        yield from _recommendations(rule)
        if checked:
            yield Paragraph(f"The options that carry these out were checked against {', '.join(checked)}.")
    if docs.verify:
        yield from _section("How to verify", docs.verify)
    if rule.needs is not None:
        yield Paragraph(f"Its facts come from a capture with `{rule.needs.flag}`.")
    if examples:
        yield Heading("Examples")
        rows = tuple((e.name, e.known, e.outcome) for e in examples)
        yield Grid(("situation", "known", "outcome"), rows, wrapped=True)
    yield from _shown_by(rule)
    if docs.references:
        yield Heading("References")
        for key in docs.references:
            known = references.get(key)
            yield Item(key, "-") if known is None else Item(known.title or key, "-", url=known.url or "")


def explain(rule: RuleSpec, references: Mapping[str, Reference]) -> Iterator[Block]:
    """The page as ``advisor explain CODE`` prints it."""
    yield from page(rule, references)
    yield Gap()
    verb = ASKED_BY.get(rule.subject)
    yield Next(f"advisor {verb} TRACE" if verb else f"advisor TRACE --select {rule.code}")


def _section(head: str, text: str | None) -> Iterator[Block]:
    yield Heading(head)
    for paragraph in text.strip().split("\n\n") if text else ():
        yield Paragraph(paragraph)


def _severity(rule: RuleSpec) -> str:
    """How its severity follows from its impact, in words."""
    spec, impact, levels = rule.severity, rule.impact, rule.severity.levels
    if rule.kind == "note":
        return "listed as healthy"
    if rule.kind == "question":
        return f"answered by `advisor {ASKED_BY[rule.subject]}`, never a finding"
    if rule.subject == "recording":
        return "asked for by questions, never a finding"
    if rule.invalidates is True:
        return f"severity {spec.cap or 'high'}, before everything else{_withholds(rule)}"
    if impact is None or spec.cap == "info":
        text = "severity info"
    elif len(levels) == 1 and not levels[0].at:
        text = f"severity {levels[0].severity}"
    else:
        unit = fact_unit(impact.fact, named_unit(impact.fact))
        marks = ", ".join(f"{x.severity} from {value_text(x.at, unit)}" for x in levels)
        text = f"severity by `{impact.fact}`" + (f": {marks}" if marks else "")
        text += "" if spec.cap in (None, "high") else f", at most {spec.cap}"
    if rule.severity.lost is not False:
        where = "" if rule.severity.lost is True else f" where {_all(rule, (rule.severity.lost,))}"
        text += f"; without an estimate, too, by all that it holds{where}"
    if rule.severity.aside is not False:
        where = "" if rule.severity.aside is True else f" where {_all(rule, (rule.severity.aside,))}"
        text += f"; set aside by the analysis, so at most medium and behind all else{where}"
    for doubt in rule.doubts:
        most = f"at most {doubt.cap}, and " if doubt.cap else ""
        text += f"; {most}less sure (x {doubt.factor:g}) where {_all(rule, doubt.when)}"
    if not isinstance(rule.invalidates, bool):
        where = _all(rule, (rule.invalidates,))
        text += f"; {spec.cap or 'high'}, and before everything else, where {where}"
    return text + _withholds(rule)


def _withholds(rule: RuleSpec) -> str:
    """Which other findings it withholds, as the end of a sentence."""
    if rule.withholds is False:
        return "; where it fires nothing is reported as in order" if rule.withholds_health else ""
    where = "" if rule.withholds is True else f" where {_all(rule, (rule.withholds,))}"
    return f", and only findings about the capture beside it{where}"


def _all(rule: RuleSpec, conditions: Iterable[object]) -> str:
    return " and ".join(f"`{condition_line(c, rule)}`" for c in conditions)


def _conditions(rule: RuleSpec) -> Iterator[Block]:
    """When it fires; the answers of a question, of which the first whose conditions hold counts."""
    where = [" and ".join(_condition(rule, c) for c in branch) for branch in rule.when.branches]
    for i, answer in enumerate(rule.answers):
        known = f"where {where[i]}" if i < len(where) else "otherwise"
        text, *notes = [n for n in (answer.reason, known, answer.remedy or "") if n]
        yield Item(text, code=answer.reply.replace("_", " "), notes=tuple(notes))
    if rule.answers:
        return
    for i, branch in enumerate(rule.when.branches):
        if i:
            yield Paragraph("or", dense=True)
        yield from (Item(_condition(rule, condition), "-") for condition in branch)
    for join in rule.when.join:
        if not join.optional:
            wanted = (f"{w.field} {OPS[w.op]} {_operand(w, rule, named_unit(w.field))}" for w in join.where)
            rows = " and ".join(wanted)
            yield Item(f"`rows of {join.entity} exist{f' with {rows}' if rows else ''}`", "-")
    if rule.unless:
        yield Paragraph("unless", dense=True)
    for guard in rule.unless:  # by default the rule is not evaluated without the fact
        unknown = " (passes where that is unknown)" if guard.if_unknown else ""
        yield Item(_condition(rule, guard) + unknown, "-")


def _condition(rule: RuleSpec, condition: object) -> str:
    if (outcome := _outcome(condition)) is not None:
        name, where = outcome
        return f"{name} was found{', ' if where else ''}{where}"
    return f"`{condition_line(condition, rule)}`"


def _outcome(condition: object) -> tuple[str, str] | None:
    """The symptom or cause that a condition refers to, and where else than here; None of any other."""
    for kind in ("symptom", "cause"):
        name = getattr(condition, kind, None)
        if name is not None:
            return f"{kind} {name}", "in any narrower scope" if getattr(condition, "over", None) else ""
    return None


def condition_line(condition: object, rule: RuleSpec) -> str:
    """``launch.idle_ratio >= 10 % (min_idle)``, or the name of a symptom or cause."""
    if (outcome := _outcome(condition)) is not None:
        return " ".join(outcome).rstrip()
    fact, op = getattr(condition, "fact", ""), getattr(condition, "op", "")
    over = getattr(condition, "over", None)
    return f"{over + ' ' if over else ''}{fact} {OPS[op]} {_operand(condition, rule, named_unit(fact), fact)}"


def _operand(comparison: object, rule: RuleSpec, unit: str, fact: str = "") -> str:
    name = getattr(comparison, "param", None)
    if name is not None and name not in rule.params:
        return str(name)  # of another rule
    if name is not None:
        param = rule.params[name]
        return f"{value_text(param.default, fact_unit(fact, param.unit))} ({name})"
    return value_text(getattr(comparison, "value", None), unit)


def _shown_by(rule: RuleSpec) -> Iterator[Block]:
    """The captures and scenes of known cause in which the rule fires."""
    if rule.lifecycle == "preview":
        yield Heading("Shown by")
        yield Paragraph(
            "Nothing yet: no capture or scene of known cause shows it, which lowers its confidence."
        )
    if rule.shown_by is None:
        return
    yield Heading("Shown by")
    for capture in rule.shown_by.captures:
        yield Item(f"{capture}, which is labelled with it", "-")
    for scene in rule.shown_by.scenes:
        yield Item(f"{scene.cause}; quiet in {scene.partner}", "-")


def _thresholds(rule: RuleSpec, references: Mapping[str, Reference]) -> Iterator[Block]:
    if not rule.params:
        return
    yield Heading("Thresholds", f"change one with --param {rule.code}.NAME=VALUE")
    rows = []
    for name, param in rule.params.items():
        known = references.get(param.source or "")
        source = known.title if known is not None and known.title else param.source
        origin = {"seed": "documented", "peer": "documented"}.get(param.origin, param.origin)
        rows.append((name, threshold(rule, name), origin, source or "", ", ".join(param.captures)))
    heads = ("threshold", "default", "origin", "source", "measured on")
    width = 5 if any(row[4] for row in rows) else 4
    yield Grid(heads[:width], tuple(row[:width] for row in rows), wrapped=True)


def threshold(rule: RuleSpec, name: str) -> str:
    """The default of a parameter, in the unit of the fact that it is compared with."""
    param = rule.params[name]
    conditions = (*(c for branch in rule.when.branches for c in branch), *rule.unless)
    facts = [getattr(c, "fact", "") for c in conditions if getattr(c, "param", None) == name]
    return value_text(param.default, fact_unit(facts[0] if facts else "", param.unit))


def _recommendations(rule: RuleSpec) -> Iterator[Block]:
    for advice in rule.recommendations:
        only = f", where {_all(rule, advice.applies_when)}" if advice.applies_when else ""
        text = f"{advice.action.strip().rstrip('.')} (effort {advice.effort}{only})"
        check = advice.verify
        notes = [] if check is None else [f"verify: `{check.fact}` {CHANGES[check.expect]}"]
        notes += [f"where that is not known: if {advice.if_unknown}"] if advice.if_unknown else []
        yield Item(text, "-", advice.id, tuple(notes))
    for other in rule.alternatives:
        only = f", where {_all(rule, other.applies_when)}" if other.applies_when else ""
        by = f", what-if `{other.gain.what_if}`" if other.gain is not None else ""
        text = f"{other.action.strip().rstrip('.')} (effort {other.effort}{by}{only})"
        yield Item(text, "-", f"or {other.id}")
