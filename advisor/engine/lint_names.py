"""Names in rules against the catalogues: facts, entities, tables, what-ifs, actions, references."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from advisor.engine.load import RuleSet
from advisor.engine.values import placeholders
from advisor.errors import near
from advisor.knowledge.facts import FactSpec
from advisor.knowledge.shapes import EvidenceFile
from advisor.knowledge.yaml_files import Loc
from advisor.model.operands import Strict
from advisor.model.rules import Action, Answer, Doubt, FactCondition, GainSpec, Param, RuleSpec


class Catalogues(Struct, frozen=True):
    """Known names; None disables the check. Entities: table -> field -> Python type. What-ifs: name ->
    parameter -> its choices, none for a number."""

    facts: Mapping[str, FactSpec]
    entities: Mapping[str, Mapping[str, type]] | None = None
    tables: Collection[str] | None = None
    what_ifs: Mapping[str, Mapping[str, Collection[str]]] | None = None
    actions: Collection[str] | None = None
    parts: Collection[str] | None = None
    references: Collection[str] | None = None
    evidence: EvidenceFile | None = None


class Context(Struct, frozen=True):
    rules: RuleSet
    known: Catalogues

    def param(self, rule: RuleSpec, name: str | None) -> Param | None:
        """The parameter that a condition of the rule names: its own, or that of another rule."""
        code, _, own = (name or "").rpartition(".")
        owner = self.rules.by_code.get(code) if code else rule
        return None if owner is None else owner.params.get(own)

    def beside(self, rule: RuleSpec, name: str) -> bool:
        """Whether a file or folder of this name lies beside the rule."""
        path = self.rules.path(rule.code)
        return path is not None and (path.parent / name).exists()


Finding = tuple[Loc, str]
Validator = Callable[[RuleSpec, Context], Iterator[Finding]]


def facts_used(rule: RuleSpec) -> Iterator[tuple[Loc, str]]:
    """Every fact a rule names, with its place."""
    for loc, test in fact_tests(rule):
        yield (*loc, "fact"), test.fact
    if rule.impact is not None:
        for name in rule.impact.facts:
            yield ("impact", "fact" if name == rule.impact.fact else "otherwise"), name
    if rule.severity.tail is not None:
        yield ("severity", "tail"), rule.severity.tail
    if rule.then.one_for is not None:
        yield ("then", "one_for"), rule.then.one_for
    for i, advice in enumerate(rule.recommendations):
        if advice.verify is not None:
            yield ("recommendations", i, "verify", "fact"), advice.verify.fact
    for loc, template in templates(rule):
        for p in placeholders(template):
            if not p.is_param:
                yield loc, p.name


def fact_tests(rule: RuleSpec) -> Iterator[tuple[Loc, FactCondition]]:
    return ((loc, item) for loc, item in models_in(rule) if isinstance(item, FactCondition))


def templates(rule: RuleSpec) -> Iterator[tuple[Loc, str]]:
    """Every text with placeholders, with its place."""
    for loc, item in models_in(rule):
        names = next((names for kind, names in _TEXTS.items() if isinstance(item, kind)), ())
        yield from (((*loc, n), text) for n in names if (text := getattr(item, n)) is not None)


#: The texts of a rule in which values of facts and parameters may stand.
_TEXTS: dict[type[Strict], tuple[str, ...]] = {
    RuleSpec: ("message", "healthy"),
    Doubt: ("text",),
    Action: ("action",),
    Answer: ("reason", "remedy"),
}


def models_in(item: object, loc: Loc = ()) -> Iterator[tuple[Loc, Strict]]:
    """A part of a rule and everything inside it that has keys of its own, each with its place."""
    if isinstance(item, Strict):
        yield loc, item
        for name in item.__struct_fields__:
            if isinstance(value := getattr(item, name), Strict | tuple):
                yield from models_in(value, (*loc, name))
    elif isinstance(item, tuple):
        for i, each in enumerate(item):
            yield from models_in(each, (*loc, i))


# --- validators ------------------------------------------------------------------------------


def known_names(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Everything that a rule names is in its catalogue; evidence may also be a join of the rule."""

    def numbered(loc: Loc, names: Iterable[str]) -> Iterator[tuple[Loc, str]]:
        return (((*loc, i), name) for i, name in enumerate(names))

    known, joins, impact = context.known, rule.when.join, rule.impact
    entities = numbered(("when", "join"), (j.entity for j in joins))
    evidence = None if known.tables is None else (*known.tables, *(j.as_ for j in joins))
    gains = ((loc, item.what_if) for loc, item in models_in(rule) if isinstance(item, GainSpec))
    parts = [(("impact", "part"), impact.part), *numbered(("impact", "also"), impact.also)] if impact else []
    used: list[tuple[str, Collection[str] | None, Iterable[tuple[Loc, str]]]] = [
        ("fact", known.facts, facts_used(rule)),
        ("entity", known.entities, (((*loc, "entity"), name) for loc, name in entities)),
        ("evidence table or join", evidence, numbered(("evidence",), rule.evidence)),
        ("what-if", known.what_ifs, (((*loc, "what_if"), name) for loc, name in gains)),
        ("part", known.parts, parts),
        ("reference", known.references, numbered(("docs", "references"), rule.docs.references)),
    ]
    for what, names, found in used:
        for loc, name in found:
            if names is not None and name not in names:
                yield loc, f"unknown {what} {name}; {near(name, names, 'correct the name')}"


def known_evidence(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Captures and scenes that a rule names are on the firing side, as knowledge/evidence.yaml says. A rule
    of the user may name files beside it."""
    known = context.known.evidence
    if known is None:
        return
    for name, param in rule.params.items():
        if param.origin != "measured":
            continue
        if not param.captures:
            text = "a measured threshold names its captures; add `captures`, or call its origin judged"
            yield ("params", name, "origin"), text
        for i, capture in enumerate(param.captures):
            if not context.beside(rule, capture) and name not in known.fires.get(capture, {}).get(
                rule.code, ()
            ):
                yield ("params", name, "captures", i), _not_firing(capture, f"{rule.code} by {name}")
    shown = rule.shown_by
    for i, capture in enumerate(shown.captures if shown else ()):
        if not context.beside(rule, capture) and rule.code not in known.fires.get(capture, {}):
            yield ("shown_by", "captures", i), _not_firing(capture, rule.code)
    for i, scene in enumerate(shown.scenes if shown else ()):
        if rule.code not in known.fires.get(scene.cause, {}):
            yield ("shown_by", "scenes", i, "cause"), _not_firing(scene.cause, rule.code)
        if rule.code not in known.quiet.get(scene.partner, ()):
            text = f"{scene.partner} is not known to leave {rule.code} quiet"
            yield ("shown_by", "scenes", i, "partner"), f"{text}; name a scene without the cause"


def _not_firing(name: str, what: str) -> str:
    return f"{name} is neither a file beside the rule nor known to fire {what}; name a capture with the cause"


def known_fields(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    for i, join in enumerate(rule.when.join):
        known = (context.known.entities or {}).get(join.entity)
        named: list[tuple[tuple[int | str, ...], str]] = [
            *((("on", k), f) for k, f in enumerate(join.on)),
            *((("where", j, "field"), w.field) for j, w in enumerate(join.where)),
        ]
        for at, name in named:
            if known is not None and name not in known:
                hint = near(name, known, "correct the name")
                yield ("when", "join", i, *at), f"{join.entity} has no field {name}; {hint}"


def known_actions(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """An id close to a known one is a typing error; any other is advice of the user's own."""
    known = context.known.actions
    for loc, item in models_in(rule):
        if not isinstance(item, Action) or known is None or item.id in known:
            continue
        if hint := near(item.id, known, "", cutoff=0.8):
            yield (*loc, "id"), f"unknown action {item.id}; {hint}"


def known_fixes(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Parameters of a what-if are among its own, and take one of their choices."""
    known = context.known.what_ifs or {}
    for loc, gain in models_in(rule):
        if not isinstance(gain, GainSpec) or gain.what_if not in known:
            continue
        for name, value in gain.params.items():
            at, choices = (*loc, "params", name), known[gain.what_if].get(name)
            if choices is None:
                hint = near(name, known[gain.what_if], "it takes no such one")
                yield at, f"{gain.what_if} has no parameter {name}; {hint}"
            elif choices and value not in choices:
                hint = near(str(value), choices, "correct it")
                yield at, f"unknown {name} '{value}' of {gain.what_if}; {hint}"


#: The validators of names.
NAMES: tuple[Validator, ...] = (known_names, known_fields, known_actions, known_fixes, known_evidence)
