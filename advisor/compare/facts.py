"""Facts of a comparison for the rule engine, and what the rules make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from advisor import __version__
from advisor.compare.catalog import COMPARISON
from advisor.engine.findings import Conclusions, conclude
from advisor.engine.infer import Inference, default_engine, infer
from advisor.engine.load import RuleSet, builtin_dir, load_rules
from advisor.engine.params import ParamKey, parse_params, resolve_params
from advisor.model.facts import TRACE, Fact, FactBase, Scope, Value
from advisor.model.findings import Tool
from advisor.model.rules import Subject


@dataclass(frozen=True)
class RuleOptions:
    """Which rules judge, and with which thresholds. `settings` are set where the rule has such a
    parameter: {("CMP101", "gate"): 0.1}."""

    rules: tuple[Path, ...] = ()
    params: tuple[str, ...] = ()
    settings: Mapping[ParamKey, Any] | None = None
    engine: Literal["durable", "python"] | None = None


class ComparisonFacts:
    """Fills a `FactBase` with facts of the comparison catalogue."""

    def __init__(self) -> None:
        self.base = FactBase()

    def put(self, name: str, value: Value | None, scope: Scope = TRACE) -> None:
        """Store a value; None and NaN stay missing."""
        spec = COMPARISON[name]
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return
        self.base.add(Fact(name, value, spec.unit, scope, method=spec.how))

    def put_all(self, values: Mapping[str, Value | None], scope: Scope = TRACE) -> None:
        for name, value in values.items():
            self.put(name, value, scope)


@dataclass(frozen=True)
class Judgement:
    """The outcomes of the rules of one subject."""

    inference: Inference
    found: Conclusions
    tool: Tool

    def fired(self, cause: str, scope: Scope = TRACE) -> bool:
        """Whether a rule fired in this scope, or in one around it."""
        return any(
            o.cause == cause and o.state == "fired" and o.scope.encloses(scope)
            for o in self.inference.outcomes
        )

    def parts(self) -> dict[str, Any]:
        """The sections that every document of this kind has."""
        return {
            "tool": self.tool,
            "findings": self.found.findings,
            "healthy": self.found.healthy,
            "not_evaluated": self.found.not_evaluated,
            "facts": tuple(self.inference.facts),
            "thresholds": self.found.thresholds,
        }

    def param(self, code: str, name: str) -> float:
        """A threshold in force."""
        return float(self.inference.program.params[code, name])  # type: ignore[arg-type]


def _chosen(subject: Subject, options: RuleOptions) -> tuple[RuleSet, dict[ParamKey, Any]]:
    """The rules of a subject, and the parameters that differ from their defaults."""
    rules = _read(options.rules, subject) if options.rules else _builtin(subject)
    params: dict[ParamKey, Any] = dict(parse_params(rules, options.params))
    for key, value in (options.settings or {}).items():
        if key[0] in rules.by_code and key[1] in rules.by_code[key[0]].params:
            params.setdefault(key, value)
    return rules, params


@cache
def _builtin(subject: Subject) -> RuleSet:
    return _read((), subject)


def _read(folders: Sequence[Path], subject: Subject) -> RuleSet:
    return load_rules(builtin_dir(), *folders).about(subject)


def parameter(subject: Subject, code: str, name: str, options: RuleOptions) -> float:
    """A threshold in force, for what is worded before the rules are run."""
    rules, params = _chosen(subject, options)
    return float(resolve_params(rules, params)[code, name])  # type: ignore[arg-type]


def judge(
    facts: ComparisonFacts, subject: Subject, options: RuleOptions, ms: Mapping[Scope, float] | None = None
) -> Judgement:
    """Run the rules of a subject. `ms` are the step times that shares are of, by scope."""
    rules, params = _chosen(subject, options)
    reason = "not recorded in the captures"
    present = {name for name, _ in facts.base.facts}
    facts.base.missing.update({n: reason for n in COMPARISON if n not in present})
    engine = options.engine or default_engine()
    inference = infer(facts.base, rules, engine=engine, params=params)

    def ms_of(_part: str, scope: Scope, share: float | None) -> float | None:
        whole = (ms or {}).get(scope, (ms or {}).get(TRACE))
        return None if share is None or whole is None else share * whole

    return Judgement(
        inference, conclude(inference, ms_of=ms_of), Tool(version=__version__, engine=inference.engine)
    )
