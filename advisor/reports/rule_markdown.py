"""Rules in Markdown, from the same text as ``advisor explain``: an index, and a page a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.model.numbers import CHANGES, fact_unit, named_unit, value_text
from advisor.reports.rule_text import condition_line, if_unknown, join_line, judged_for, origin, threshold

if TYPE_CHECKING:
    from advisor.model.findings import Reference
    from advisor.model.rules import RuleSpec

#: The first letters of a code -> what its rules are about, in the order of the index.
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
}


@dataclass(frozen=True)
class Example:
    """One case of a rule in words: the situation, what is known of it, what comes out."""

    name: str
    known: str
    outcome: str


@dataclass(frozen=True)
class Links:
    """Where a page may point. `to` gives the address of another rule; `sources` that of a
    parameter's source, None where it has no address."""

    rules: Mapping[str, RuleSpec] = field(default_factory=dict)  # by cause
    to: Callable[[RuleSpec], str] = lambda rule: f"#{anchor(f'{rule.code} {rule.cause}')}"
    sources: Callable[[str], str | None] = lambda source: None  # noqa: ARG005

    def rule(self, cause: str) -> str:
        """A cause by name, as a link where its rule is known."""
        found = self.rules.get(cause)
        return cause if found is None else f"[{cause}]({self.to(found)})"


def render(rules: Iterable[RuleSpec], references: Mapping[str, Reference]) -> str:
    """All rules in one document: the index, then every page."""
    ordered = sorted(rules, key=lambda r: r.code)
    links = Links({r.cause: r for r in ordered})
    return "\n".join([index(ordered, links), *(page(r, references, links, 2) for r in ordered)])


# --- the index -------------------------------------------------------------------------------


def index(rules: Iterable[RuleSpec], links: Links) -> str:
    """One table a family: code, cause, title, kind, scope, severity, one line."""
    families: dict[str, list[RuleSpec]] = {}
    for rule in sorted(rules, key=lambda r: r.code):
        families.setdefault(rule.code.rstrip("0123456789"), []).append(rule)
    known = list(FAMILIES)
    lines = ["# Rules"]
    for family in sorted(families, key=lambda f: (known.index(f) if f in known else 99, f)):
        lines += ["", f"## {FAMILIES.get(family, family)}", ""]
        lines += [
            "| code | cause | title | kind | scope | severity | what |",
            "|---|---|---|---|---|---|---|",
        ]
        for rule in families[family]:
            cells = (
                f"[{rule.code}]({links.to(rule)})",
                rule.cause,
                rule.title,
                rule.kind,
                rule.scope,
                highest_severity(rule),
                first_sentence(rule.docs.what),
            )
            lines.append(row(cells))
    return "\n".join([*lines, ""])


def highest_severity(rule: RuleSpec) -> str:
    """The most that a finding of this rule can be, or the level it always has."""
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


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[.?!])\s+(?=[A-Z0-9`])", " ".join(text.split()), maxsplit=1)[0]


# --- a page ----------------------------------------------------------------------------------


def page(
    rule: RuleSpec,
    references: Mapping[str, Reference],
    links: Links | None = None,
    level: int = 1,
    examples: Sequence[Example] = (),
    checked: Sequence[str] = (),
) -> str:
    """One rule in full. `level` is that of the heading; sections lie one below. `checked` are the
    releases of engines in which the options for its recommendations were looked for."""
    links = links or Links()
    docs, section = rule.docs, "#" * (level + 1)
    lines = [f"{'#' * level} {rule.code} {rule.cause}", "", f"**{rule.title}**", ""]
    lines += [rule.message, ""] if rule.answers else []
    lines += [f"A {rule.kind}, judged for {judged_for(rule)}; {_severity(rule)}.", ""]
    for head, text in (
        ("What it looks at", docs.what),
        ("Why it matters", docs.why),
        ("Harmless when", docs.harmless_when),
    ):
        lines += [f"{section} {head}", "", text.strip(), ""]
    head = "Answers" if rule.answers else "Fires when"
    lines += [f"{section} {head}", "", *_conditions(rule, links), ""]
    lines += [*_thresholds(rule, references, links)]
    lines += [*_relations(rule, links)]
    if docs.fix or rule.recommendations:
        lines += [f"{section} How to fix", ""]
        lines += [docs.fix.strip(), ""] if docs.fix else []
        lines += [
            *(f"- First {links.rule(r.cause)}, where it was found: {r.because}." for r in rule.requires)
        ]
        lines += [*_recommendations(rule, checked)]
    if docs.verify:
        lines += [f"{section} How to verify", "", docs.verify.strip(), ""]
    if rule.needs is not None:
        lines += [f"Its facts come from a capture with `{rule.needs.flag}`.", ""]
    if examples:
        lines += [f"{section} Examples", "", "| situation | known | outcome |", "|---|---|---|"]
        lines += [row((e.name, e.known, e.outcome)) for e in examples]
        lines.append("")
    if docs.references:
        lines += [f"{section} References", ""]
        lines += [f"- {_reference(key, references.get(key))}" for key in docs.references]
        lines.append("")
    return "\n".join(lines)


def _severity(rule: RuleSpec) -> str:
    """How its severity follows from its impact, in words."""
    spec, impact, levels = rule.severity, rule.impact, rule.severity.levels
    if rule.kind == "note":
        return "listed as healthy"
    if rule.kind == "question":
        return "answered by `advisor doctor`, never a finding"
    if rule.subject == "recording":
        return "asked for by questions, never a finding"
    if rule.invalidates is True:
        return f"severity {spec.cap or 'high'}, before everything else{_withholds(rule)}"
    if impact is None or spec.cap == "info":
        text = "severity info"
    elif len(levels) == 1 and not levels[0].at:
        text = f"severity {levels[0].severity}"
    else:
        text = f"severity by `{impact.fact}`"
        if levels:
            unit = fact_unit(impact.fact, named_unit(impact.fact))
            marks = (f"{x.severity} from {value_text(x.at, unit)}" for x in levels)
            text += f": {', '.join(marks)}"
        if spec.cap not in (None, "high"):
            text += f", at most {spec.cap}"
    for doubt in rule.doubts:
        where = " and ".join(_code(rule, c) for c in doubt.when)
        most = f"at most {doubt.cap}, and " if doubt.cap else ""
        text += f"; {most}less sure (x {doubt.factor:g}) where {where}"
    if not isinstance(rule.invalidates, bool):
        where = _code(rule, rule.invalidates)
        text += f"; {spec.cap or 'high'}, and before everything else, where {where}"
    return text + _withholds(rule)


def _withholds(rule: RuleSpec) -> str:
    """Where nothing else is said of the program, as the end of a sentence."""
    if rule.withholds is False:
        return "; with it nothing is called in order" if rule.withholds_health else ""
    where = "" if rule.withholds is True else f" where {_code(rule, rule.withholds)}"
    return f", and alone with what is said of the capture{where}"


def _code(rule: RuleSpec, condition: object) -> str:
    return f"`{condition_line(condition, rule)}`"


def _condition(rule: RuleSpec, condition: object, links: Links) -> str:
    for kind in ("symptom", "cause"):
        name = getattr(condition, kind, None)
        if name is not None:
            where = ", in any narrower scope" if getattr(condition, "over", None) else ""
            return f"{kind} {links.rule(name)} was found{where}"
    return _code(rule, condition)


def _conditions(rule: RuleSpec, links: Links) -> Iterator[str]:
    if rule.answers:
        yield from _answers(rule, links)
        return
    for i, branch in enumerate(rule.when.branches):
        if i:
            yield from ("", "or", "")
        for condition in branch:
            yield f"- {_condition(rule, condition, links)}"
    needed = [j for j in rule.when.join if not j.optional]
    if needed:
        yield from ("", "and", "")
        yield from (f"- {join_line(j, rule)}" for j in needed)
    if rule.unless:
        yield from ("", "unless", "")
        for guard in rule.unless:
            yield f"- {_condition(rule, guard, links)}{if_unknown(guard)}"


def _answers(rule: RuleSpec, links: Links) -> Iterator[str]:
    """The answers of a question: the first row that holds counts."""
    yield from ("| where | answer | because | remedy |", "|---|---|---|---|")
    where = [" and ".join(_condition(rule, c, links) for c in b) for b in rule.when.branches]
    for text, answer in zip((*where, "otherwise"), rule.answers, strict=True):
        yield row((text, answer.reply, answer.reason, answer.remedy or ""))


def _thresholds(rule: RuleSpec, references: Mapping[str, Reference], links: Links) -> Iterator[str]:
    if not rule.params:
        return
    yield from ("| threshold | default | origin |", "|---|---|---|")
    for name, param in rule.params.items():
        where = links.sources(param.source) if param.source else None
        known = references.get(param.source or "")
        text = origin(param)
        if where:
            text = f"{param.origin}: [{param.source}]({where})"
        elif known is not None and known.title:
            text = f"{param.origin}: {known.title}"
        yield row((f"`{name}`", threshold(rule, name), text))
    yield from ("", f"Change one with `--param {rule.code}.NAME=VALUE`.", "")


def _relations(rule: RuleSpec, links: Links) -> Iterator[str]:
    told = []
    if rule.then.explains:
        told.append(f"Explains {', '.join(map(links.rule, rule.then.explains))}.")
    if rule.then.overrules:
        told.append(f"Overrules {', '.join(map(links.rule, rule.then.overrules))}.")
    over = [r.cause for r in links.rules.values() if rule.cause in r.then.overrules]
    if over:
        told.append(f"Is overruled by {', '.join(map(links.rule, sorted(over)))}.")
    if told:
        yield from (" ".join(told), "")


def _recommendations(rule: RuleSpec, checked: Sequence[str]) -> Iterator[str]:
    for advice in rule.recommendations:
        only = " and ".join(_code(rule, c) for c in advice.applies_when)
        only = f", where {only}" if only else ""
        check = ""
        if advice.verify is not None:
            check = f" Verify: `{advice.verify.fact}` {CHANGES[advice.verify.expect]}."
        action = advice.action.strip().rstrip(".")
        yield f"- **{advice.id}** (effort {advice.effort}{only}): {action}.{check}"
    for other in rule.alternatives:
        only = " and ".join(_code(rule, c) for c in other.applies_when)
        only = f", where {only}" if only else ""
        by = f", what-if `{other.gain.what_if}`" if other.gain is not None else ""
        action = other.action.strip().rstrip(".")
        yield f"- Or **{other.id}** (effort {other.effort}{by}{only}): {action}."
    if checked:
        yield from ("", f"The options that carry these out were checked against {', '.join(checked)}.")
    if rule.recommendations or rule.alternatives:
        yield ""


def _reference(key: str, reference: Reference | None) -> str:
    if reference is None:
        return key
    title = reference.title or key
    return f"[{title}]({reference.url})" if reference.url else title


# --- small parts -----------------------------------------------------------------------------


def row(cells: Iterable[str]) -> str:
    """A row of a table; what would end a cell is escaped."""
    return "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
