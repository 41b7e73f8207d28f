"""Why one rule fired in one capture, or why it did not: the document of ``advisor explain``;
and the answer to a what-if question of the user.

Keys may be added, none is renamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from advisor.model.capture import Shown
from advisor.model.facts import Cell, Scope, Severity
from advisor.model.findings import SCHEMA_VERSION, ConditionDoc, Finding, Impact, Input, Related, Tool
from advisor.model.gain import CombinedStep, Span, Timed
from advisor.model.records import Frozen

State = Literal["fired", "overruled", "quiet", "not_evaluated"]


class Reason(Frozen, frozen=True, kw_only=True):
    """One statement of the tree; `holds` is its truth, null if unknown.

    Facts, and guards on facts, have a `condition` with both numbers; `off_by` is how far the value lies
    from the threshold, as a share of the threshold. Statements about another rule have a `rule`. Reasons
    of a branch that did not fire come nearest first."""

    kind: Literal["rule", "outcome", "fact", "state", "rows", "guard", "ruler", "branch"]
    text: str
    holds: bool | None = None
    condition: ConditionDoc | None = None
    off_by: float | None = None
    why: str | None = None
    rule: Related | None = None
    state: State | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Factor:
    """One factor of a confidence, with the reason."""

    name: str
    factor: float
    why: str


class Missing(Frozen, frozen=True, kw_only=True):
    """A fact without a value: the reason, and what would supply it."""

    fact: str
    why: str | None = None
    remedy: str | None = None


class TableSource(Frozen, frozen=True, kw_only=True):
    """A table from which a fact was made; `native` is the profiler's name for it."""

    table: str
    native: str | None = None
    columns: tuple[str, ...] = ()


class FactSource(Frozen, frozen=True, kw_only=True):
    """A value and where it comes from; `window_ns` is in session time, null for the whole file."""

    fact: str
    value: Cell
    unit: str
    scope: Scope = Scope()
    meaning: str = ""
    how: str = ""
    sources: tuple[TableSource, ...] = ()
    window_ns: tuple[int, int] | None = None


class ScopeExplanation(Frozen, frozen=True, kw_only=True):
    """The outcome in one scope; quiet is `close` if little was lacking, not judged if `stopped_by`
    something; it `applies` if what the rule looks at is there."""

    scope: Scope = Scope()
    state: State
    close: bool = False
    applies: bool = True
    stopped_by: str | None = None
    message: str | None = None
    rank: int | None = None
    severity: Severity | None = None
    impact: Impact | None = None
    confidence: float | None = None
    factors: tuple[Factor, ...] = ()
    reasons: tuple[Reason, ...] = ()
    missing: tuple[Missing, ...] = ()
    explains: tuple[Related, ...] = ()
    explained_by: tuple[Related, ...] = ()
    overrules: tuple[Related, ...] = ()
    overruled_by: tuple[Related, ...] = ()


class Explanation(Shown, frozen=True, kw_only=True):
    """Scopes in which the rule fired come first, then the nearest; `findings` are those of the rule.
    `captures` counts those of a job, of which `input` is the one with the first scope."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    input: Input
    captures: int = 1
    code: str
    cause: str
    kind: Literal["symptom", "cause", "limit", "note"]
    title: str
    state: State
    sentence: str
    scopes: tuple[ScopeExplanation, ...]
    facts: tuple[FactSource, ...] = ()
    findings: tuple[Finding, ...] = ()

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((r.text, r.kind) for s in self.scopes[:1] for r in s.reasons)


class Replay(Frozen, frozen=True, kw_only=True):
    """Which steps were replayed, and how well the unchanged replay matches them (`error`, relative)."""

    steps: int
    of_steps: int
    captured_ms: float
    replayed_ms: float
    error: float


class WhatIfReport(Shown, frozen=True, kw_only=True):
    """Predicted step time after some fixes, applied in order; `of_job` says which rank of a job that is."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    input: Input
    of_job: str | None = None
    fixes: tuple[CombinedStep, ...]
    measure: Literal["latency", "throughput"]
    per: Literal["step", "token", "item"]
    of: Timed = "step"
    step_before_ms: Span
    step_after_ms: Span
    speedup: Span
    bound_ms: Span
    bound_speedup: Span
    assumptions: tuple[str, ...]
    replay: Replay

    def _sentence(self) -> str:
        names = ", ".join(f.what_if for f in self.fixes)
        before, after = self.step_before_ms.mid, self.step_after_ms.mid
        return f"{names}: {before:.3g} ms a {self.of} to {after:.3g} ms, {self.speedup.mid:.3g} times as fast"

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((f.what_if, f"{f.step_before_ms:.3g} ms", f"{f.step_after_ms:.3g} ms") for f in self.fixes)


class WhatIfList(Frozen, frozen=True, kw_only=True):
    """The available what-ifs, as `knowledge/whatifs.yaml` describes them."""

    schema_version: int = 1
    whatifs: dict[str, dict[str, Any]]
