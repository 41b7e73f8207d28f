"""``advisor.whatif``: what changes named by the user would gain in a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor import __version__
from advisor.engine.infer import default_engine
from advisor.engine.load import builtin_dir, load_rules
from advisor.errors import InputError, near
from advisor.gain.attach import combine
from advisor.gain.estimate import Replayer
from advisor.gain.excerpt import MOST_OPS, NoReplay, recorded_times
from advisor.gain.replay_ops import NoEstimate
from advisor.gain.whatifs import SEE_LISTS, Fix, catalogue, make_fix, split_fix
from advisor.metrics.analysis import Analysis
from advisor.model.explanation import Replay, WhatIfReport
from advisor.model.findings import Input, Tool
from advisor.model.rules import RuleSpec
from advisor.pipeline import document
from advisor.pipeline.diagnose import Options, Progress, analysis_of
from advisor.pipeline.given import given_step_ns, given_weights
from advisor.ranks.reduction import waits_inside


def parse_fixes(texts: Sequence[str], rules: Mapping[str, RuleSpec]) -> list[Fix]:
    """``NAME[:param=value]...`` -> fixes; NAME: a what-if, a rule's code or its cause. Raises InputError."""
    by_cause = {r.cause: r for r in rules.values()}
    known = catalogue().whatifs
    out = []
    for text in texts:
        name, params = split_fix(text)
        rule = rules.get(name.upper()) or by_cause.get(name)
        if name in known:
            out.append(make_fix(name, params))
        elif rule is None:
            hint = near(name, [*known, *rules, *by_cause], SEE_LISTS)
            raise InputError(f"--fix: '{name}' is neither a what-if nor a rule; {hint}")
        elif rule.gain is None:
            raise InputError(
                f"--fix: {rule.code} names no what-if ({catalogue().no_estimate.get(rule.cause)}); "
                "see 'advisor whatif --list'"
            )
        else:
            spec = rule.gain
            out.append(make_fix(spec.what_if, {**spec.params, **params}, rule.code, rule.cause))
    return out


def answer(
    a: Analysis,
    fixes: Sequence[Fix],
    tool: Tool,
    source: Input,
    weight_bytes: int | None = None,
    unprofiled_ns: float | None = None,
) -> WhatIfReport:
    """Predicted step time with the fixes applied in order. Raises InputError if no estimate is possible."""
    try:
        replayer = Replayer(a, weight_bytes, MOST_OPS, unprofiled_ns)
        found = combine(replayer, fixes)
    except (NoReplay, NoEstimate) as reason:
        raise InputError(f"{source.path}: no estimate: {reason}") from None
    throughput = any(catalogue().whatifs[f.what_if].measure == "throughput" for f in fixes)
    excerpt = replayer.excerpt
    captured = float(recorded_times(replayer.a, excerpt).mean())
    same = ("of", "step_before_ms", "step_after_ms", "speedup", "bound_ms", "bound_speedup", "assumptions")
    return WhatIfReport(
        tool=tool,
        input=source,
        fixes=found.steps,
        measure="throughput" if throughput else "latency",
        per=("token" if a.program.is_language_model else "item") if throughput else "step",
        **{name: getattr(found, name) for name in same},
        replay=Replay(
            steps=len(excerpt.measured),
            of_steps=excerpt.whole,
            captured_ms=captured / 1e6,
            replayed_ms=replayer.captured_ns / 1e6,
            error=replayer.captured_ns / captured - 1.0,
        ),
    )


def whatif(
    path: str | Path,
    fixes: str | Sequence[str],
    options: Options | None = None,
    progress: Progress | None = None,
) -> WhatIfReport:
    """The gain of a change, or of several, applied in order: ``whatif("t.sqlite", "batch:n=8")``.

    Raises InputError for an unknown fix, and for a capture that allows no estimate.
    """
    chosen = options or Options()
    say = progress or (lambda _: None)
    fixes = [fixes] if isinstance(fixes, str) else fixes
    parsed = parse_fixes(fixes, load_rules(builtin_dir(), *chosen.rules).by_code)
    weights = given_weights(chosen.weight_bytes)
    unprofiled = given_step_ns(chosen.unprofiled_step)
    say("reading")
    with analysis_of(path, chosen) as analysis:
        serving = document.serving_engine(analysis, chosen.serving_engine)
        source = document.input_of(analysis, serving)
        say("replaying")
        tool = Tool(version=__version__, engine=chosen.engine or default_engine())
        waits_inside(analysis)
        return answer(analysis, parsed, tool, source, weights, unprofiled)
