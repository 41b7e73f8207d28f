"""The verdict of a diagnosis: one sentence."""

from __future__ import annotations

from advisor.facts.capture import samples_alone
from advisor.metrics.analysis import Analysis
from advisor.model.findings import Finding, NotEvaluated

#: Below this share of the window a finding is not worth a sentence.
WORTH = 0.03


def verdict(
    a: Analysis, findings: tuple[Finding, ...], not_evaluated: tuple[NotEvaluated, ...]
) -> str:
    """One sentence: what holds the step, or that nothing does and what bounds it then."""
    what = "" if a.workload.startswith(("LLM", "no GPU", "unknown")) else f"{a.workload}: "
    telling = [f for f in findings if f.severity != "info" or f.invalidates]
    if telling:
        first = telling[0]
        sentence = f"{first.title}: {first.message}"
        rest = [f.cause for f in telling[1:3]]
        if rest:
            sentence += f" Then: {', '.join(rest)}."
        return what + sentence
    if samples_alone(a):
        return (
            "GPU samples alone, and nothing to fix that they can tell"
            f"{_bound(findings)}. Which kernels run, and what the GPU waits for, takes a trace."
        )
    if not len(a.ops):
        return f"{what}No GPU work was recorded, so nothing can be judged."
    busy = max(b.busy_ns / max(b.window.length, 1) for b in a.budgets.values())
    bound = _bound(findings)
    unknown = f" {len(not_evaluated)} rules could not look." if not_evaluated else ""
    return (
        f"{what}Nothing to fix above {WORTH:.0%} of the step: the GPU is busy {busy:.0%} of the "
        f"window{bound}.{unknown}"
    )


def _bound(findings: tuple[Finding, ...]) -> str:
    ranked = [f for f in findings if f.impact is not None and f.impact.share]
    return f"; the next candidate is {ranked[0].cause}" if ranked else ""
