"""Documents of `compare`, `moe` and their kin. Stable JSON, as the `Diagnosis` is.

"Before" and "after" are two sides of one or more captures. Changes are ratios (0.05: five per
cent); of a time, positive is slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from msgspec import UNSET, UnsetType

from advisor.model.capture import Shown
from advisor.model.facts import Cell, Fact, Scope, Severity
from advisor.model.findings import (
    SCHEMA_VERSION,
    Finding,
    Healthy,
    Input,
    NotEvaluated,
    Threshold,
    Tool,
    Verdict,
)
from advisor.model.gain import Gain, Named, Span, Verify
from advisor.model.records import Frozen
from advisor.model.work import Sketch


class Tabular(Shown, frozen=True, kw_only=True):
    """A document whose lists are tables of pandas."""

    def frames(self) -> dict[str, Any]:
        """The lists of the document as pandas data frames (pandas is imported here), a row an entry;
        columns of nested values are dotted: ``change.mid``."""
        import pandas as pd

        lists = {name: value for name, value in self.model_dump().items() if isinstance(value, tuple)}
        return {
            name: pd.json_normalize(list(v)) if v and isinstance(v[0], dict) else pd.DataFrame({name: v})
            for name, v in lists.items()
        }


class SideDoc(Frozen, frozen=True, kw_only=True):
    """One side: the captures as they were read, and the verdict on each."""

    name: str
    inputs: tuple[Input, ...]
    verdicts: tuple[str, ...] = ()


class Reason(Frozen, frozen=True, kw_only=True):
    """One thing that two sides should share. `score` multiplies comparability (1: no doubt)."""

    check: str
    before: Cell = None
    after: Cell = None
    state: Literal["same", "differs", "unknown"]
    score: float = 1.0
    text: str = ""
    phase: str | None = None


class Comparability(Frozen, frozen=True, kw_only=True):
    """May the sides be compared? `score` is that of the phase that compares best, 0..1."""

    score: float
    reasons: tuple[Reason, ...] = ()


class StepTimes(Frozen, frozen=True, kw_only=True):
    """Steps of one phase on one side; `samples` are the times that the intervals rest on."""

    steps: int
    samples: int
    captures: int
    median_ms: float
    mean_ms: float
    p99_ms: float


class PhaseChange(Frozen, frozen=True, kw_only=True):
    """The steps of one phase: `typical` is the median ratio over all pairs of steps, `mean` the ratio of the
    means, both with their interval; `resolution` the smallest change that could have shown. Windows without
    steps are compared per kernel: `work_ratio` is the kernels after over those before."""

    phase: str
    share: float
    before: StepTimes | None = None
    after: StepTimes | None = None
    typical: Span | None = None
    mean: Span | None = None
    work_ratio: float | None = None
    noise: float | None = None
    resolution: float | None = None
    comparability: float | None = None
    verdict: Verdict
    why: str = ""


class PartChange(Frozen, frozen=True, kw_only=True):
    """A part of the budget, in milliseconds a step."""

    part: str
    before_ms: float
    after_ms: float
    phase: str | None = None

    @property
    def change_ms(self) -> float:
        return self.after_ms - self.before_ms


class Contribution(Frozen, frozen=True, kw_only=True):
    """What a part of the budget adds to the change of the step: `share` of it, 0..1. `code` and
    `cause` are of the finding that holds most of the part, after where it grew and before where it
    shrank; `action` is what that finding asks for first, where the part grew. `operation` is the one
    that changed most in a part that computes, communicates or copies."""

    part: str
    change_ms: float
    share: float
    code: str | None = None
    cause: str | None = None
    action: str | None = None
    operation: str | None = None
    operation_ms: float | None = None


OperationStatus = Literal[
    "added", "gone", "slower", "faster", "more calls", "fewer calls", "other kernels", "same"
]


class OperationChange(Frozen, frozen=True, kw_only=True):
    """One logical operation, a step: calls, time, and its largest three kernels."""

    operation: str
    family: str
    phase: str
    status: OperationStatus
    calls_before: float
    calls_after: float
    before_ms: float
    after_ms: float
    kernels_before: tuple[str, ...] = ()
    kernels_after: tuple[str, ...] = ()

    @property
    def change_ms(self) -> float:
        return self.after_ms - self.before_ms


class CallChange(Frozen, frozen=True, kw_only=True):
    """One CUDA API call, a step."""

    call: str
    calls_before: float
    calls_after: float
    before_ms: float
    after_ms: float


class FindingChange(Frozen, frozen=True, kw_only=True):
    """A finding on either side: gone only where its rule was judged again."""

    status: Literal["gone", "new", "changed", "same", "unknown"]
    code: str
    cause: str
    title: str
    scope: Scope = Scope()
    severity_before: Severity | None = None
    severity_after: Severity | None = None
    share_before: float | None = None
    share_after: float | None = None
    ms_before: float | None = None
    ms_after: float | None = None
    note: str = ""


class AdviceCheck(Named, frozen=True, kw_only=True):
    """Did the number that a recommendation names move as it promised? Shares of the step are judged
    by what they are in milliseconds: they grow by themselves where the step shrinks. A recommendation that
    was not followed promises nothing: `not applied`."""

    severity: Severity
    id: str
    verify: Verify
    before: Cell = None
    after: Cell = None
    unit: str = ""
    outcome: Literal["as promised", "unchanged", "other way", "unknown", "not applied"]


#: How a predicted gain held.
GainOutcome = Literal[
    "as predicted", "less than predicted", "more than predicted", "no effect", "not applied", "with others",
    "not known",
]  # fmt: skip


class GainCheck(Named, frozen=True, kw_only=True):
    """The predicted gain of a fix against the change of the step time. The prediction is of the step
    without the profiler; `untraced_after_ms` is that of the measured step. One fix of several that were made
    has no number of its own (`with others`): one more check has what was predicted for all of them.
    Whether a fix was made at all may be `not known` where others were."""

    predicted: Gain
    measured_before_ms: float
    measured_after_ms: float
    untraced_after_ms: Span | None = None
    measured_speedup: float
    outcome: GainOutcome


class ValueChange(Frozen, frozen=True, kw_only=True):
    """A value that both sides measured themselves, without steps: a number of a server's load, of samples, or
    with `row` the time of a row of a printed table. `better` says which way is good; one with `alike` has to
    be alike on both sides for a verdict."""

    name: str
    what: str
    unit: str
    before: float | None = None
    after: float | None = None
    better: Literal["lower", "higher"] | None = None
    alike: bool = False
    row: bool = False

    @property
    def change(self) -> float | None:
        """After over before, less 1; None if a side lacks it or was 0."""
        return self.after / self.before - 1 if self.before and self.after is not None else None


class Comparison(Tabular, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION
    kind: Literal["comparison"] = "comparison"
    tool: Tool
    before: SideDoc
    after: SideDoc
    verdict: Verdict
    summary: str
    comparability: Comparability
    phases: tuple[PhaseChange, ...] = ()
    budget: tuple[PartChange, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    operations: tuple[OperationChange, ...] = ()
    calls: tuple[CallChange, ...] = ()
    #: Of recordings without steps.
    values: tuple[ValueChange, ...] = ()
    changes: tuple[FindingChange, ...] = ()
    checks: tuple[AdviceCheck, ...] = ()
    gains: tuple[GainCheck, ...] = ()
    notes: tuple[str, ...] = ()
    #: Slow-downs that this verdict could hide; they stand among the notes, too.
    doubts: tuple[str, ...] = ()
    #: For pages; no part of the JSON.
    sketch: Sketch | UnsetType = UNSET
    findings: tuple[Finding, ...] = ()
    healthy: tuple[Healthy, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    facts: tuple[Fact, ...] = ()
    thresholds: tuple[Threshold, ...] = ()

    def written(self) -> Self:
        return self.replaced(sketch=UNSET)

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((c.status, c.code, c.title) for c in self.changes)


# --- context length ------------------------------------------------------------------------------


class Scaling(Frozen, frozen=True, kw_only=True):
    """One operation at two context lengths, milliseconds a step. `growth` is its growth over its
    own time, `step_growth` over the short step."""

    operation: str
    family: str
    attention: bool
    calls_short: float
    calls_long: float
    short_ms: float
    long_ms: float
    growth: float | None = None
    step_growth: float = 0.0
    grows: bool = False


class ContextScaling(Tabular, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION
    kind: Literal["context-scaling"] = "context-scaling"
    tool: Tool
    short: SideDoc
    long: SideDoc
    tokens: tuple[int, int] | None = None
    verdict: Literal["only-attention-scales", "context-scaling", "no-growth", "not-comparable"]
    summary: str
    phase: str | None = None
    step_short_ms: float | None = None
    step_long_ms: float | None = None
    growth: Span | None = None
    growth_ms: Span | None = None
    growth_per_1k_ms: Span | None = None
    attention_growth_ms: float = 0.0
    comparability: Comparability
    operations: tuple[Scaling, ...] = ()
    budget: tuple[PartChange, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    healthy: tuple[Healthy, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    facts: tuple[Fact, ...] = ()
    thresholds: tuple[Threshold, ...] = ()


# --- serving engines side by side ----------------------------------------------------------------


class Metric(Frozen, frozen=True, kw_only=True):
    """One row of the table: a value for each engine, in the order of the columns."""

    name: str
    unit: str
    values: tuple[Cell, ...]
    group: str


class FrameworkTable(Frozen, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION
    kind: Literal["frameworks"] = "frameworks"
    tool: Tool
    columns: tuple[SideDoc, ...]
    phase: str
    summary: str
    metrics: tuple[Metric, ...]
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --- the perfect-router experiment ---------------------------------------------------------------


class RouterRuns(Frozen, frozen=True, kw_only=True):
    """Runs with one router; `values` as they were read, in `unit`."""

    name: Literal["learned", "perfect"]
    values: tuple[float, ...]
    unit: str
    metric: str
    sources: tuple[str, ...] = ()
    mean: float


class ExpertKernels(Frozen, frozen=True, kw_only=True):
    """Expert kernels of one capture: their tail, and how unevenly tokens spread over experts where
    the launch sizes of separate expert kernels show it (largest over mean)."""

    name: Literal["learned", "perfect"]
    path: str
    expert_share: float | None = None
    max_over_p50: float | None = None
    p99_over_p50: float | None = None
    imbalance: float | None = None
    kernel: str | None = None
    note: str = ""


class RouterExperiment(Tabular, frozen=True, kw_only=True):
    """Learned against perfect routing. `gain` is the change of throughput with perfect routing
    (0.1: ten per cent more); its ends are None if one run a side gives no interval."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["moe-router"] = "moe-router"
    tool: Tool
    learned: RouterRuns
    perfect: RouterRuns
    verdict: Literal["router-imbalance", "routing-not-the-bottleneck"]
    certain: bool
    summary: str
    gain: float
    gain_low: float | None = None
    gain_high: float | None = None
    experts: tuple[ExpertKernels, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    healthy: tuple[Healthy, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    facts: tuple[Fact, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
