"""Facts of a comparison for the rule engine, and what the rules make of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from advisor import __version__
from advisor.engine.conclude import Conclusions, conclude
from advisor.engine.infer import Inference, default_engine, infer
from advisor.engine.load import RuleSet, builtin_dir, load_rules
from advisor.engine.values import ParamKey, parse_params, resolve_params
from advisor.facts.catalog import CATALOGUE
from advisor.facts.writer import FactWriter
from advisor.knowledge.facts import FactSpec, facts_of
from advisor.knowledge.files import titled, with_sources
from advisor.model.facts import TRACE, Scope, Subject, documented
from advisor.model.findings import Tool


class RuleOptions(Struct, frozen=True):
    """Which rules judge, with which thresholds. `settings`: {("CMP101", "gate"): 0.1}, where rules have
    it."""

    rules: tuple[Path, ...] = ()
    params: tuple[str, ...] = ()
    settings: Mapping[ParamKey, Any] | None = None
    engine: Literal["durable", "python"] | None = None


class Judgement(Struct, frozen=True):
    """The outcomes of the rules of one subject."""

    inference: Inference
    found: Conclusions
    tool: Tool

    def fired(self, cause: str, scope: Scope = TRACE) -> bool:
        """Whether a rule fired in this scope, or in one around it."""
        fired = (o for o in self.inference.outcomes if o.state == "fired" and o.cause == cause)
        return any(o.scope.encloses(scope) for o in fired)

    def parts(self) -> dict[str, Any]:
        """The sections that every document of this kind has."""
        return {
            "tool": self.tool,
            "findings": tuple(map(titled, self.found.findings)),
            "healthy": tuple(h for h in self.found.healthy if h.applies),
            "not_evaluated": self.found.not_evaluated,
            "facts": documented(self.inference.facts),
            "thresholds": with_sources(self.found.thresholds),
        }

    def param(self, code: str, name: str) -> float:
        """A threshold in force."""
        return float(self.inference.program.params[code, name])  # type: ignore[arg-type]


def _chosen(subject: Subject, options: RuleOptions) -> tuple[RuleSet, dict[ParamKey, Any]]:
    """The rules of a subject, and the parameters that differ from their defaults."""
    rules = _builtin(subject)
    if options.rules:
        rules = load_rules(builtin_dir(), *options.rules).about(subject)
    params: dict[ParamKey, Any] = dict(parse_params(rules, options.params))
    for key, value in (options.settings or {}).items():
        if key[0] in rules.by_code and key[1] in rules.by_code[key[0]].params:
            params.setdefault(key, value)
    return rules, params


@cache
def _builtin(subject: Subject) -> RuleSet:
    return load_rules(builtin_dir()).about(subject)


def parameter(subject: Subject, code: str, name: str, options: RuleOptions) -> float:
    """A threshold in force, for texts made before the rules are run."""
    rules, params = _chosen(subject, options)
    return float(resolve_params(rules, params)[code, name])  # type: ignore[arg-type]


def judge(
    facts: FactWriter, subject: Subject, options: RuleOptions, ms: Mapping[Scope, float] | None = None
) -> Judgement:
    """Run the rules of a subject. `ms`: by scope, the step time that a share refers to."""
    rules, params = _chosen(subject, options)
    lacking = COMPARISON.keys() - {name for name, _ in facts.base.facts}
    facts.base.missing |= dict.fromkeys(lacking, "not recorded in the captures")
    inference = infer(facts.base, rules, engine=options.engine or default_engine(), params=params)

    def ms_of(_part: str, scope: Scope, share: float | None) -> float | None:
        whole = (ms or {}).get(scope, (ms or {}).get(TRACE))
        return None if share is None or whole is None else share * whole

    tool = Tool(version=__version__, engine=inference.engine)
    return Judgement(inference, conclude(inference, ms_of=ms_of), tool)


# --- the catalogues of facts beside that of one trace ----------------------------------------------
# A rule's `subject` says what it is about: one trace, two sides of a comparison, two context lengths, two
# routers, how a capture was recorded, or the captures of a checklist. It is judged there and nowhere else.

COMPARISON = facts_of("comparison")

#: Every fact that a rule may name.
EVERY_FACT: Mapping[str, FactSpec] = {**CATALOGUE, **facts_of("comparison", "recording", "input")}
