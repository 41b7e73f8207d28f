"""Checks of a rule set against the catalogues: many small validators, one list of problems.

A validator takes a rule in its context and yields (place, text). It knows nothing of files; the
catalogues come as arguments, so that this stage does not depend on ``advisor.facts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from advisor.engine.compile import conditions, references, try_compile
from advisor.engine.lint_names import (
    NAMES,
    Catalogues,
    Context,
    Finding,
    Validator,
    fact_tests,
    facts_used,
    models_in,
    templates,
)
from advisor.engine.load import RuleSet, read_rules, refuse
from advisor.engine.parse import draft
from advisor.engine.values import FORMATS, ParamValue, placeholders, resolve_params, stray_brace
from advisor.knowledge.package_data import CASES_SUFFIX
from advisor.knowledge.yaml_files import Loc, Problem, read
from advisor.model.facts import sees, subject_of
from advisor.model.operands import Comparison
from advisor.model.rules import FactCondition, RuleSpec, SymptomCondition


def lint(rules: RuleSet, known: Catalogues) -> list[Problem]:
    """Every problem of a rule set that loaded, in order of place; empty when it is sound."""
    context = Context(rules, known)
    problems = [
        rules.problem(rule.code, loc, text)
        for rule in rules.active
        for check in VALIDATORS
        for loc, text in check(rule, context)
    ]
    problems += try_compile(rules, resolve_params(rules, {}))[1]
    return sorted(set(problems))


def check_rules(known: Catalogues, *directories: Path) -> RuleSet:
    """Load and lint; one RuleError with the problems of both. While a file does not load, the names that it
    may define are not reported as unknown, and its own names are checked as far as it can be read."""
    rules, problems = read_rules(directories, trusted=False)
    if not problems:
        refuse(lint(rules, known))
        return rules
    context = Context(rules, known)
    for rule in rules.active:
        for check in SINGLE:
            problems += [rules.problem(rule.code, at, text) for at, text in check(rule, context)]
    refuse([*problems, *_wrong_names({p.path for p in problems}, known)])
    return rules


def _wrong_names(paths: Iterable[str], known: Catalogues) -> Iterator[Problem]:
    """The unknown names in files that do not load."""
    for path in paths:
        if path.endswith(CASES_SUFFIX) or not path.endswith(".yaml"):
            continue
        source = read(Path(path))
        rule = None if source.problems else draft(source, RuleSpec)
        if rule is not None:
            context = Context(RuleSet((rule,), {rule.code: source}), known)
            yield from (source.problem(at, text) for check in NAMES for at, text in check(rule, context))


# --- validators ------------------------------------------------------------------------------


def visible_facts(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """A rule sees the facts of its own level and wider ones, with `over` any fact, and so does `verify`.
    Questions about a recording are given each fact at its largest."""
    if rule.subject == "recording":
        return
    wide = {(*loc, "fact") for loc, test in fact_tests(rule) if getattr(test, "over", None)}
    for loc, name in facts_used(rule):
        if "verify" in loc or loc in wide:
            continue
        visible = sees(rule.scope)
        if "overrules_where" in loc:  # evaluated in the scope of the other cause
            other = context.rules.by_cause.get(rule.then.overrules_where[int(loc[2])].cause)
            visible = visible if other is None else sees(other.scope)
        spec = context.known.facts.get(name)
        if spec is not None and spec.level not in visible:
            text = f"{name} is a fact of each {spec.level}, which a rule of scope {rule.scope} does not see"
            yield loc, f"{text}; use a wider fact or a narrower scope"


def visible_outcomes(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Outcomes are seen from the same or a narrower scope, with `over: any` from a wider one."""
    for loc, item in conditions(rule):
        if isinstance(item, FactCondition):
            continue
        name = item.symptom if isinstance(item, SymptomCondition) else item.cause
        target = context.rules.by_cause.get(name)
        if target is None:
            continue
        if item.over is None and target.scope not in sees(rule.scope):
            hint = "add `over: any`" if rule.scope in sees(target.scope) else "they never meet"
            yield loc, f"{name} has the scope {target.scope}, this rule {rule.scope}; {hint}"
        elif item.over == "any" and rule.scope not in sees(target.scope):
            text = f"`over: any` looks at narrower scopes, and {name} has the scope {target.scope}"
            yield loc, f"{text}; remove it"


def one_subject(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """A rule uses facts of its own subject (`verify` of any), a question also those of its trace."""
    seen = {rule.subject, *(("trace",) if rule.subject in ("recording", "checklist") else ())}
    for loc, name in facts_used(rule):
        if "verify" not in loc and subject_of(name) not in seen:
            text = f"{name} is a fact of subject {subject_of(name)}, this rule's is {rule.subject}"
            yield loc, f"{text}; correct one of them"
    for loc, name, _ in references(rule):
        target = context.rules.by_cause.get(name)
        if target is not None and target.subject != rule.subject:
            yield loc, f"{name} has the subject {target.subject}, not {rule.subject}; remove it"


def explained_symptoms(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Causes explain symptoms of their own scope or a narrower one."""
    for i, name in enumerate(rule.then.explains):
        target = context.rules.by_cause.get(name)
        if rule.kind not in ("cause", "limit"):
            yield ("then", "explains", i), f"a {rule.kind} explains nothing; remove {name}"
        elif target is not None and rule.scope not in sees(target.scope):
            text = f"{name} has the scope {target.scope}, wider than this rule's {rule.scope}"
            yield ("then", "explains", i), f"{text}: it is never folded in; remove it"


def required_causes(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Required causes exist, and no fix requires itself, not even through others."""
    by_cause = context.rules.by_cause
    for i, requirement in enumerate(rule.requires):
        target = by_cause.get(requirement.cause)
        at = ("requires", i, "cause")
        if target is None:
            yield at, f"no rule has the cause {requirement.cause}; correct the name"
        elif target.kind != "cause":
            yield at, f"{requirement.cause} is a {target.kind}; only causes have a fix to require"
        elif rule.cause in _all_required(requirement.cause, context):
            yield at, f"{requirement.cause} requires {rule.cause} in turn; remove one of the two"


def _all_required(cause: str, context: Context) -> set[str]:
    """The cause and all that its fix requires, directly or through others."""
    found: set[str] = set()
    todo = [cause]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            target = context.rules.by_cause.get(name)
            todo += [] if target is None else [r.cause for r in target.requires]
    return found


def overruled_causes(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    for loc, name, _ in references(rule):
        if loc[0] != "then" or not str(loc[1]).startswith("overrules"):
            continue
        target = context.rules.by_cause.get(name)
        if rule.kind == "symptom":
            yield loc, f"a symptom overrules nothing; remove {name}"
        elif target is None:
            continue
        elif target.kind in ("note", "limit"):
            yield loc, f"{name} is a {target.kind}; only causes are overruled"
        elif rule.scope not in sees(target.scope) and target.scope not in sees(rule.scope):
            text = f"{name} has the scope {target.scope}, this rule {rule.scope}; they never meet"
            yield loc, f"{text}, remove it"


def params_used(rule: RuleSpec, _: Context) -> Iterator[Finding]:
    """Every parameter is used, and every one that is used exists."""
    used = {c.param for _, c in models_in(rule) if isinstance(c, Comparison)}
    for loc, template in templates(rule):
        for p in placeholders(template):
            if p.is_param:
                used.add(p.name)
                if p.name not in rule.params:
                    yield loc, f"the parameter {p.name} is not in `params`; add it"
    for name, param in rule.params.items():
        if name not in used and param.sets is None:
            yield ("params", name), f"the parameter {name} is used nowhere; remove it"


def parameters_set(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """A parameter that sets one of another rule has the default and the unit of that parameter."""
    for name, param in rule.params.items():
        if param.sets is not None:
            code, _, other = param.sets.partition(".")
            target = context.rules.by_code.get(code)
            known = None if target is None else target.params.get(other)
            if known is None:
                yield ("params", name, "sets"), f"unknown parameter {param.sets}; correct it"
            elif (known.default, known.unit) != (param.default, param.unit):
                text = f"{param.sets} has another default or unit than {name}; give both the same"
                yield ("params", name, "sets"), text


def operand_types(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Text is compared with text, flag with flag, number with number, and a parameter in the fact's unit."""
    for loc, test in fact_tests(rule):
        spec = context.known.facts.get(test.fact)
        if spec is not None:
            yield from _typed(loc, test, test.fact, spec.unit, rule, context)
    for i, join in enumerate(rule.when.join):
        fields = (context.known.entities or {}).get(join.entity, {})
        for j, where in enumerate(join.where):
            if where.field in fields:
                unit = {str: "text", bool: "flag"}.get(fields[where.field], "")
                name = f"{join.entity}.{where.field}"
                yield from _typed(("when", "join", i, "where", j), where, name, unit, rule, context)


def _typed(
    loc: Loc, test: Comparison, name: str, unit: str, rule: RuleSpec, context: Context
) -> Iterator[Finding]:
    """One comparison; an empty unit is a number of unknown unit."""
    param = context.param(rule, test.param)
    value: ParamValue | None = test.value if param is None else param.default
    if value is None or test.op == "known":
        return
    is_text, is_flag = isinstance(value, str | tuple), isinstance(value, bool)
    kind = "text" if is_text else "flag" if is_flag else "number"
    wanted = unit if unit in ("text", "flag") else "number"
    if kind != wanted:
        yield (*loc, "param" if param else "value"), f"{name} is a {wanted}, compared with a {kind}"
    elif test.op not in ("eq", "ne", "one_of") and wanted != "number":
        yield (*loc, "op"), f"{name} is a {wanted}: compare with eq or ne, not {test.op}"
    elif param is not None and unit and param.unit != unit:
        text = f"{test.param} is in {param.unit} and {name} in {unit}; give one unit"
        yield (*loc, "param"), text


def number_facts(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """An impact is a number."""
    if rule.impact is not None:
        for name in rule.impact.facts:
            spec = context.known.facts.get(name)
            if spec is not None and spec.unit in ("text", "flag"):
                key = "fact" if name == rule.impact.fact else "otherwise"
                yield ("impact", key), f"{name} is a {spec.unit}; an impact is a number"
    elif rule.severity.levels:
        yield ("severity", "levels"), "levels grade the impact; add `impact` or remove them"


def message_formats(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    """Placeholders are well formed, and their formats fit the units."""
    for loc, template in templates(rule):
        if (stray := stray_brace(template)) is not None:
            yield (loc, f"`{stray}` is not a placeholder; write {{fact|format}} or {{param.NAME|format}}")
        for p in placeholders(template):
            if p.format not in FORMATS:
                yield loc, f"unknown format {p.format}; use one of {', '.join(FORMATS)}"
                continue
            source = rule.params.get(p.name) if p.is_param else context.known.facts.get(p.name)
            if source is None or p.format == "text":
                continue
            units = FORMATS[p.format]
            if source.unit in ("text", "flag") or (units is not None and source.unit not in units):
                yield loc, f"the format {p.format} does not fit {p.name}, which is in {source.unit}"


def optional_joins(rule: RuleSpec, _: Context) -> Iterator[Finding]:
    for i, join in enumerate(rule.when.join):
        if join.optional and join.as_ not in rule.evidence:
            text = f"the optional join {join.as_} is not evidence; list it there or remove it"
            yield ("when", "join", i, "as"), text


def docs_present(rule: RuleSpec, _: Context) -> Iterator[Finding]:
    """Empty phrases are reported like missing texts."""
    for name in ("what", "why", "harmless_when"):
        if len(getattr(rule.docs, name).split()) < 3:
            yield ("docs", name), f"docs.{name} says too little; write a sentence"


def distinct_advice(rule: RuleSpec, _: Context) -> Iterator[Finding]:
    """One action may have a text for each kind of program; each must then have a condition."""
    ids = [r.id for r in rule.recommendations]
    for i, one in enumerate(rule.recommendations):
        if one.id in ids[:i] and not all(r.applies_when for r in rule.recommendations if r.id == one.id):
            text = f"the recommendation {one.id} appears twice; say when each applies"
            yield ("recommendations", i, "id"), text


def distinct_conditions(rule: RuleSpec, _: Context) -> Iterator[Finding]:
    """The same condition twice in a branch is a mistake."""
    seen: dict[tuple[int | str, ...], list[object]] = {}
    for loc, item in conditions(rule):
        above = seen.setdefault(tuple(loc[:-1]), [])
        if item in above:
            yield loc, "the same condition stands above; remove one"
        above.append(item)


def cases_beside(rule: RuleSpec, context: Context) -> Iterator[Finding]:
    path = context.rules.path(rule.code)
    if path is not None and rule.lifecycle == "stable":
        wanted = path.with_name(f"{rule.code}{CASES_SUFFIX}")
        if not wanted.is_file():
            yield ("lifecycle",), f"a stable rule has cases; write {wanted.name} beside it"


#: Validators of one rule alone, and of all rules together.
SINGLE: tuple[Validator, ...] = (
    *NAMES,
    visible_facts,
    params_used,
    operand_types,
    number_facts,
    message_formats,
    optional_joins,
    docs_present,
    distinct_advice,
    distinct_conditions,
    cases_beside,
)
VALIDATORS: tuple[Validator, ...] = (
    *SINGLE,
    parameters_set,
    one_subject,
    visible_outcomes,
    explained_symptoms,
    overruled_causes,
    required_causes,
)
