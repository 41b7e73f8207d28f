"""What findings say: every share names its whole."""

from __future__ import annotations

import re

from advisor.engine.remarks import unnamed
from advisor.knowledge.engine_signs import action_sentence
from advisor.model.rules import RuleSpec
from tests.for_each import for_each
from tests.shipped import shipped_rules

RULES = [r for r in shipped_rules().by_code.values() if r.subject == "trace" and r.kind != "question"]


def test_a_share_of_nothing_is_seen() -> None:
    assert unnamed("The GPU waits for {a.b_ratio|pct}. Copies take {a.c_ratio|pct} of the step.") == [
        "The GPU waits for {a.b_ratio|pct}."
    ]


#: Rules of what only language models have: prompts, drafts, beams, a cache; logs of the
#: servers of one; halves of a batch that exchange with experts. And those on the capture.
OF_LANGUAGE_MODELS = (
    "CAP",
    "CHK",
    "CMP",
    "COM108",
    "COM113",
    "KRN120",
    "KRN125",
    "KRN130",
    "LOD",
    "MOE",
    "UTL109",
    "UTL111",
)
_LANGUAGE = re.compile(r"(?i)\b(?:tokens?|decod\w+|prefill\w*|KV|logits|prompts?|beams?)\b")
#: Facts that only such programs have; what experts exchange are tokens.
_KNOWN = ("workload.", "capture.serving", "kernel.static_cache", "comm.exchange_part_ratio")


@for_each(
    [
        r
        for r in RULES
        if r.scope != "phase" and not r.code.startswith(OF_LANGUAGE_MODELS) and not _LANGUAGE.search(r.title)
    ],
    lambda r: r.code,
)
def test_advice_for_any_program_speaks_of_no_tokens(rule: RuleSpec) -> None:
    """A vision model or a simulation has none: such words need a condition on the kind of program."""
    told = [
        advice.id
        for advice in (*rule.recommendations, *rule.alternatives)
        if _LANGUAGE.search(f"{advice.action} {action_sentence(advice.id)}")
        and not any(c.fact.startswith(_KNOWN) for c in advice.applies_when)
    ]
    assert told == []
