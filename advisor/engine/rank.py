"""The order of findings, and the arithmetic behind it.

1. Findings that invalidate the capture, by impact.
2. The rest by score = share of the step x confidence. The share is that of the impact fact; an
   estimated latency gain replaces it by the share of the step that the fix saves. A throughput
   finding is placed by its own score, but never before a latency finding that holds 10 % or more.
   A score counts up to what the severity speaks of: 20 % of the step for medium, 10 % for low.
3. Findings of rules that are capped at info, by score.

Ties by code, then by scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from advisor.model.findings import Finding
from advisor.model.gain import Ranking
from advisor.model.rules import RuleSpec

#: A latency finding of this share is never outranked by a throughput finding.
LATENCY_FIRST = 0.10
#: The most that the score of a severity counts for: the bounds of the severities themselves.
MOST = {"high": 1.0, "medium": 0.20, "low": 0.10, "info": 0.03}


def terms(finding: Finding, rules: Mapping[str, RuleSpec]) -> Ranking:
    """What a finding's place is computed from, before others are looked at; `rules` by code."""
    share = (finding.impact.share if finding.impact else None) or 0.0
    source: Literal["gain", "impact"] = "impact"
    gain = finding.gain
    throughput = gain is not None and gain.measure == "throughput"
    if gain is not None and throughput and gain.speedup is not None and gain.speedup.mid > 0:
        share, source = 1.0 - 1.0 / gain.speedup.mid, "gain"
    elif gain is not None and gain.step_before_ms is not None and gain.step_after_ms is not None:
        before = gain.step_before_ms.mid
        share = 1.0 - gain.step_after_ms.mid / before if before > 0 else 0.0
        source = "gain"
    share = min(1.0, max(0.0, share))
    rule = rules.get(finding.code)
    capped = rule is not None and rule.severity.cap == "info"
    tier = 0 if finding.invalidates else 2 if capped else 1
    score = round(share * finding.confidence, 6)
    return Ranking(
        share=share, share_from=source, confidence=finding.confidence, score=score,
        throughput=throughput, tier=tier,
    )  # fmt: skip


def rank(findings: Iterable[Finding], rules: Mapping[str, RuleSpec]) -> tuple[Finding, ...]:
    """The findings in order, `rank` (from 1) and `score` set; run again once gains are known."""
    rated = [(f, terms(f, rules)) for f in findings]
    ceiling = min(
        (
            t.score
            for _, t in rated
            if t.tier == 1 and not t.throughput and t.share >= LATENCY_FIRST
        ),
        default=None,
    )

    def held(finding: Finding, t: Ranking) -> float | None:
        """The score that a finding counts with, where that is less than its own."""
        if t.tier != 1:
            return None
        most = MOST[finding.severity]
        if t.throughput and ceiling is not None:
            most = min(most, ceiling)
        return most if t.score > most else None

    def place(item: tuple[Finding, Ranking]) -> tuple[object, ...]:
        finding, t = item
        if t.tier == 0:  # by what they take away from the analysis, however sure
            return (0, -t.share, False, 0.0, finding.code, finding.scope.sort_key())
        most = held(finding, t)
        score = t.score if most is None else most
        return (t.tier, -score, t.throughput, -t.score, finding.code, finding.scope.sort_key())

    return tuple(
        finding.model_copy(update={
            "rank": number, "score": t.score,
            "ranking": t.model_copy(update={"placed": held(finding, t)}),
        })
        for number, (finding, t) in enumerate(sorted(rated, key=place), 1)
    )  # fmt: skip
