"""What is sound in a rule and yet not finished: texts that no rule should keep, and what a reader misses.

``advisor rules check`` prints these beside problems; they do not make it fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from advisor.engine.lint_names import Finding, models_in, templates
from advisor.engine.load import RuleSet
from advisor.knowledge.yaml_files import Problem
from advisor.model.rules import Action, RuleSpec

_SHARE = re.compile(r"\{(?!param)[\w.]+\|pct\}")
#: What a share is of (`|share` prints it); levels of the GPU's counters are of their peak.
_WHOLE = re.compile(
    r"\|share\}|\bof \w|\bwindow\b|GR Active|SM Active|tensor pipe|\bDRAM\b|percentile|"
    r"launching them one by one"
)
Remarks = Callable[[RuleSpec], Iterator[Finding]]


def remarks(rules: RuleSet, actions: Collection[str], scaffold: Collection[str]) -> list[Problem]:
    """Every remark on the active rules, in order of place. `actions` are those of knowledge/actions.yaml,
    `scaffold` the texts that ``advisor rules new`` writes to be replaced."""

    def unwritten(rule: RuleSpec) -> Iterator[Finding]:
        for loc, model in models_in(rule):
            for name in model.__struct_fields__:
                text = getattr(model, name)
                if isinstance(text, str) and text in scaffold:
                    yield (*loc, name), "the text of `advisor rules new` stands here; write your own"

    def unlisted(rule: RuleSpec) -> Iterator[Finding]:
        for loc, action in models_in(rule):
            if isinstance(action, Action) and action.id not in actions:
                text = f"the action {action.id} is not in knowledge/actions.yaml"
                yield (*loc, "id"), f"{text}: no option of an engine is printed with it"

    checks: tuple[Remarks, ...] = (unwritten, unlisted, unnamed_shares, never_graded)
    found = (
        rules.problem(rule.code, loc, text)
        for rule in rules.active
        for check in checks
        for loc, text in check(rule)
    )
    return sorted(set(found))


def unnamed(text: str) -> list[str]:
    """The sentences of a message that hold a share and do not say of what."""
    sentences = re.split(r"(?<=[.;])\s", text)
    return [s for s in sentences if _SHARE.search(s) and not _WHOLE.search(s)]


def unnamed_shares(rule: RuleSpec) -> Iterator[Finding]:
    """Messages, healthy texts and doubts of rules about a trace name the whole of each share."""
    if rule.subject != "trace" or rule.kind == "question":
        return
    for loc, text in templates(rule):
        if loc[-1] in ("message", "healthy", "text") and unnamed(text):
            yield loc, "a share without its whole; write {fact|share}, or say what it is of"


def never_graded(rule: RuleSpec) -> Iterator[Finding]:
    """A cause has a severity by its impact."""
    graded = rule.impact is not None or rule.invalidates is not False or rule.severity.cap == "info"
    if rule.kind == "cause" and rule.subject == "trace" and not graded:
        yield (
            ("kind",),
            "a cause without `impact` has the severity info: it will only be a note; add `impact`",
        )
