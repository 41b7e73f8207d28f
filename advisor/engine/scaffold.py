"""The text of a new rule and its cases: sound as they are, to be changed bit by bit."""

from __future__ import annotations

from advisor.engine.lint_names import FactLike

#: The format of a message for the unit of a fact; a plain number otherwise.
_FORMATS = {
    "ratio": "pct", "ns": "ns", "us": "us", "ms": "ms", "bytes": "bytes", "count": "int",
    "hz": "rate", "count_per_s": "rate", "bytes_per_s": "rate",
}  # fmt: skip

_RULE = """\
schema: 1
code: {code}
cause: {cause}
title: The problem in a few words
kind: cause                   # cause | symptom (folded into its cause) | note (healthy)
scope: {scope}
lifecycle: stable

params:
  limit: {{default: {limit}, unit: {unit}, origin: measured}}

when:
  all:
    - {{fact: {fact}, op: ge, param: limit}}

confidence: {{method: measured, base: 0.8}}
message: "{fact} is {{{fact}|{format}}}, at least {{param.limit|{format}}}"

recommendations:
  - id: change-{cause}  # one of knowledge/actions.yaml brings the options of the engines
    action: Say what to change.
    effort: medium
    verify: {{fact: {fact}, expect: decrease}}

docs:
  what: Say what the rule looks at.
  why: Say what it costs the user.
  harmless_when: Say when it may be ignored.
"""

_CASES = """\
rule: {code}
cases:
  - name: at the limit
    facts: {{{fact}: {limit}}}
    expect: {{outcome: fired}}
  - name: just below the limit
    facts: {{{fact}: {below}}}
    expect: {{outcome: quiet}}
  - name: not recorded
    expect: {{outcome: not_evaluated, missing: [{fact}]}}
"""


def new_rule(code: str, cause: str, fact: str, spec: FactLike) -> tuple[str, str]:
    """``CODE.yaml`` and ``CODE.cases.yaml`` of a rule that fires where a number reaches a limit."""
    limit, below = ("0.10", "0.09") if spec.unit == "ratio" else ("10", "9")
    values = {
        "code": code,
        "cause": cause,
        "fact": fact,
        "scope": spec.level,
        "unit": spec.unit,
        "limit": limit,
        "below": below,
        "format": _FORMATS.get(spec.unit, "num"),
    }
    return _RULE.format(**values), _CASES.format(**values)
