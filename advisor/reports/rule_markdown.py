"""The page of a rule in Markdown, from the same text as ``advisor explain``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from advisor.reports.numbers import CHANGES
from advisor.reports.rule_text import condition_line, origin, threshold

if TYPE_CHECKING:
    from advisor.model.findings import Reference
    from advisor.model.rules import RuleSpec


def render(rules: Iterable[RuleSpec], references: Mapping[str, Reference]) -> str:
    """All rules, in order of code, with a table of contents."""
    ordered = sorted(rules, key=lambda r: r.code)
    head = ["# Rules", ""]
    head += [f"- [{r.code} {r.cause}](#{r.code.lower()}-{r.cause}): {r.title}" for r in ordered]
    return "\n".join([*head, "", *(_rule(r, references) for r in ordered)])


def _rule(rule: RuleSpec, references: Mapping[str, Reference]) -> str:
    docs = rule.docs
    lines = [f"## {rule.code} {rule.cause}", "", f"**{rule.title}** ({rule.kind}, by {rule.scope})"]
    for head, text in (
        ("", docs.what),
        ("Why it matters: ", docs.why),
        ("Harmless when: ", docs.harmless_when),
    ):
        lines += ["", f"{head}{text.strip()}"]
    lines += ["", "Fires when:", ""]
    for i, branch in enumerate(rule.when.branches):
        lines += ["", "or", ""] if i else []
        lines += [f"- `{condition_line(c, rule)}`" for c in branch]
    lines += ["", "unless", "", *(f"- `{condition_line(g, rule)}`" for g in rule.unless)] * bool(
        rule.unless
    )
    if docs.fix:
        lines += ["", f"How to fix: {docs.fix.strip()}"]
    if rule.recommendations:
        lines += ["", "What to do:", ""]
    for advice in rule.recommendations:
        verify = advice.verify
        check = f" Verify: `{verify.fact}` {CHANGES[verify.expect]}." if verify else ""
        lines.append(f"- {advice.action.rstrip('.')} (effort {advice.effort}).{check}")
    if docs.verify:
        lines += ["", f"How to verify: {docs.verify.strip()}"]
    if rule.params:
        lines += ["", "| parameter | default | origin |", "|---|---|---|"]
        lines += [f"| {n} | {threshold(rule, n)} | {origin(p)} |" for n, p in rule.params.items()]
    if rule.needs is not None:
        lines += ["", f"Capture with `{rule.needs.flag}`."]
    known = [(k, references.get(k)) for k in docs.references]
    if known:
        links = (f"[{r.title or k}]({r.url})" if r and r.url else k for k, r in known)
        lines += ["", f"References: {', '.join(links)}"]
    return "\n".join([*lines, ""])
