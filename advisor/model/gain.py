"""Estimates: what a fix would win, what several win together, and how findings are ranked by it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from advisor.model.capture import Frozen


class Span(Frozen):
    """A range of an estimate."""

    low: float
    mid: float
    high: float


class Gain(Frozen):
    """What a fix would win, or the reason why no estimate is made."""

    what_if: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    measure: Literal["latency", "throughput"] | None = None
    per: Literal["step", "token"] | None = None
    step_before_ms: Span | None = None
    step_after_ms: Span | None = None
    speedup: Span | None = None
    assumptions: tuple[str, ...] = ()
    reason: str | None = None


class CombinedStep(Frozen):
    """One of several fixes applied in order. Times are middle estimates a step, with all fixes so
    far; `speedup` counts tokens a second once one of them wins throughput; `bound_ms` is what the
    GPU itself needs then, however fast the host."""

    code: str | None = None
    cause: str | None = None
    what_if: str
    params: dict[str, Any] = Field(default_factory=dict)
    measure: Literal["latency", "throughput"] = "latency"
    step_before_ms: float
    step_after_ms: float
    marginal_ms: float
    marginal_share: float
    speedup: float
    bound_ms: float
    note: str | None = None


class Combined(Frozen):
    """What the top fixes win together: nothing that one has won is counted for another. The bound
    is what the GPU itself needs then: no step is shorter, no speed-up larger, whatever the host."""

    steps: tuple[CombinedStep, ...]
    step_before_ms: Span
    step_after_ms: Span
    speedup: Span
    bound_ms: Span
    bound_speedup: Span
    assumptions: tuple[str, ...] = ()


class Ranking(Frozen):
    """The arithmetic of a finding's place: share of the step x confidence = score. `share_from`
    is "gain" or "impact"; tier 0 invalidates the capture, 2 is capped at info. `placed` is the
    score that it was placed by where that is less: that of the latency finding that a throughput
    gain stands behind, or the most that its severity counts for."""

    share: float
    share_from: Literal["gain", "impact"]
    confidence: float
    score: float
    throughput: bool
    tier: int
    placed: float | None = None
