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
from advisor.facts.spec import INPUT, RECORDING, FactSpec, FactWriter
from advisor.knowledge.files import titled, with_sources
from advisor.model.facts import TRACE, Level, Scope, Subject, Unit
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
            "facts": tuple(self.inference.facts),
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


# --- the catalogue of facts about comparisons, beside that of facts about one trace ---------------
# A rule's `subject` says what it is about: one trace, two sides of a comparison, two context lengths, or
# two routers. It is judged there and nowhere else.

_Row = tuple[str, Unit, str, str]  # name, unit, meaning, how


def _group(level: Level, rows: list[_Row]) -> dict[str, FactSpec]:
    return {name: FactSpec(name, unit, level, meaning, (), how) for name, unit, meaning, how in rows}


_PAIRS = "median ratio over all pairs of a step before and a step after"
_SURE = "the near end of its 98 % interval, noise between runs included; at most 0 where the steps do not separate"

COMPARISON: Mapping[str, FactSpec] = {
    **_group("trace", [
        ("compare.captures_count", "count", "Captures of both sides", "count"),
        ("compare.driver_changed", "flag", "The driver versions differ", "capture metadata"),
        ("compare.cuda_changed", "flag", "The CUDA versions differ", "capture metadata"),
        ("compare.clock_shift_ratio", "ratio", "Difference of the SM clocks", "sampled clocks where both sides have them, else nominal ones"),
        ("compare.toolkits", "text", "Driver, CUDA and clock of both sides", "capture metadata"),
        ("compare.model_similarity_ratio", "ratio", "Likeness of the models", "layers, attention kernels and matrix products a step; products may be fused down to half"),
        ("compare.phase_overlap_ratio", "ratio", "Share of the step time that lies in the same phases on both sides", "sum of the lesser share of each phase"),
    ]),
    **_group("phase", [
        ("compare.comparability_ratio", "ratio", "How far the sides may be compared", "product of the checks: machine, capture, model, phases, work"),
        ("compare.work_similarity_ratio", "ratio", "Likeness of the work of a step", "tokens or batch by the range names, else launch sizes of the kernels that both sides run"),
        ("compare.differences", "text", "What differs between the sides, gravest first", "the checks that failed"),
        ("compare.step_before_ms", "ms", "Median step before", "quantile over all captures of the side"),
        ("compare.step_after_ms", "ms", "Median step after", "quantile over all captures of the side"),
        ("compare.step_time_change_ratio", "ratio", "Change of the typical step; positive is slower", _PAIRS),
        ("compare.step_time_slower_least_ratio", "ratio", "Slow-down of the typical step that is certain", _SURE),
        ("compare.step_time_faster_ratio", "ratio", "Share of the typical step that is saved", _PAIRS),
        ("compare.step_time_faster_least_ratio", "ratio", "Saving of the typical step that is certain", _SURE),
        ("compare.step_time_shift_ratio", "ratio", "Size of the change of the typical step, whichever way", _PAIRS),
        ("compare.step_time_shift_least_ratio", "ratio", "Size of that change that is certain", _SURE),
        ("compare.step_mean_change_ratio", "ratio", "Change of the mean step; positive is slower", "mean after / mean before - 1"),
        ("compare.step_mean_slower_least_ratio", "ratio", "Slow-down of the mean step that is certain", _SURE),
        ("compare.step_mean_faster_ratio", "ratio", "Share of the mean step that is saved", "1 - mean after / mean before"),
        ("compare.step_mean_faster_least_ratio", "ratio", "Saving of the mean step that is certain", _SURE),
        ("compare.slowdown_ratio", "ratio", "The larger slow-down, of the typical and of the mean step", "maximum"),
        ("compare.resolution_ratio", "ratio", "Smallest slow-down that these captures could have shown", "distance of the change to the near end of its interval, plus the noise floor"),
    ]),
    **_group("trace", [
        ("context.comparability_ratio", "ratio", "How far the two captures may be compared, their context apart", "product of the checks: machine, capture, model, phases"),
        ("context.step_growth_ratio", "ratio", "Growth of the typical step from the short to the long context", _PAIRS),
        ("context.attention_step_growth_ratio", "ratio", "Growth of the attention kernels over the short step", "milliseconds a step"),
    ]),
    **_group("operation", [
        ("context.is_attention", "flag", "The operation is attention, or a part of it", "kernel family"),
        ("context.operation_family", "text", "Kernel family of the operation", "kernel names"),
        ("context.operation_growth_ratio", "ratio", "Growth of the operation's time a step over its time at the short context", "milliseconds a step"),
        ("context.operation_step_growth_ratio", "ratio", "The same over the whole short step", "milliseconds a step"),
        ("context.operation_short_ms", "ms", "Time of the operation a step at the short context", "sum over the steps / steps"),
        ("context.operation_long_ms", "ms", "The same at the long context", "sum over the steps / steps"),
    ]),
    **_group("trace", [
        ("moe.gain_ratio", "ratio", "Change of throughput with perfect routing; negative is a loss", "mean throughput perfect / learned - 1; times are inverted"),
        ("moe.gain_least_ratio", "ratio", "The near end of its 98 % interval", "runs of both sides, Student's distribution on logarithms"),
        ("moe.result", "text", "What perfect routing did to the throughput, in words", "gain"),
        ("moe.runs_count", "count", "Runs of both sides", "count"),
    ]),
}  # fmt: skip

#: Every fact that a rule may name.
EVERY_FACT: Mapping[str, FactSpec] = {**CATALOGUE, **COMPARISON, **RECORDING, **INPUT}
