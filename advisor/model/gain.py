"""Estimates and advice: the gain of a fix, the gain of several together, how findings are ranked by it,
and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from msgspec import field

from advisor.model.facts import Cell, Scope, Severity
from advisor.model.records import Frozen


class Named(Frozen, frozen=True, kw_only=True):
    """A rule, by its code and its cause."""

    code: str
    cause: str


class Span(Frozen, frozen=True, kw_only=True):
    """A range of an estimate."""

    low: float
    mid: float
    high: float

    def in_ms(self) -> Span:
        """The same in ms, of a range in ns."""
        return Span(low=self.low / 1e6, mid=self.mid / 1e6, high=self.high / 1e6)


def over_all(spans: Sequence[Span | None]) -> Span | None:
    """From the lowest end to the highest, around the mean; None if one is unknown."""
    known = [s for s in spans if s is not None]
    if not known or len(known) < len(spans):
        return None
    mid = sum(s.mid for s in known) / len(known)
    return Span(low=min(s.low for s in known), mid=mid, high=max(s.high for s in known))


#: A fix that saves less than this share of the step is not reported.
WORTH = 0.03
#: A cause that holds this share of the step is tried together with others: saving all of it would be of
#: medium severity.
HOLDS_MUCH = 0.10
#: Reports print a smaller speed-up as 1.00 x: an alternative that gains no more is not offered.
LEAST = 1.005
#: Efforts of fixes, the least first.
EFFORTS = ("low", "medium", "high")
#: A fix saves at most what its cause holds, and usually less: without an estimate this part of it counts.
HELD_FACTOR = 0.3
#: A fix that may save less than half of its estimate counts for this part of its score: convention. With a
#: larger one, wide estimates stand before narrow ones of nearly the same size.
PERHAPS_HALF = 0.85

#: What is timed: the usual step, or all of a window without steps.
Timed = Literal["step", "window"]


def whole(has_steps: bool) -> Timed:
    """What shares that decide are of, in a word: the step without the profiler, or the window where there
    are no steps."""
    return "step" if has_steps else "window"


def share_saved(speedup: float) -> float:
    """1 - 1 / speed-up; 0 for a fix that makes the step longer."""
    return max(0.0, 1.0 - 1.0 / speedup) if speedup > 0 else 0.0


def may_be_half(speedup: Span) -> bool:
    """Whether the range is so wide that the low end saves less than half of the middle."""
    return share_saved(speedup.low) < share_saved(speedup.mid) / 2.0


def perhaps_saved(gain: Gain | None) -> float | None:
    """Share of the step that a fix which makes it shorter perhaps saves, by the optimistic end of its range,
    where that is `HOLDS_MUCH` or more and the middle is less; else None. What a capture does not record
    is no proof that nothing is there."""
    if gain is None or gain.speedup is None or gain.measure != "latency":
        return None
    most = share_saved(gain.speedup.high)
    return most if most >= HOLDS_MUCH > share_saved(gain.speedup.mid) else None


def steadiness(speedup: Span) -> float:
    """The part of a finding's score that counts for its place among those of one severity."""
    return PERHAPS_HALF if may_be_half(speedup) else 1.0


def saved_by(speedup: Span) -> float:
    """Share of the untraced step that a fix saves: the middle of its range."""
    return round(share_saved(speedup.mid), 9)


class Joint(Frozen, frozen=True, kw_only=True):
    """The gain of the fixes of several causes of which none alone gains much: where host and device take
    about the same time, a faster one waits for the other. `traced` as of a `Gain`."""

    codes: tuple[str, ...]
    step_before_ms: Span
    step_after_ms: Span
    speedup: Span
    traced: bool = False


class Gain(Frozen, frozen=True, kw_only=True):
    """The gain of a fix, or the `reason` for having none. `why_more`: why it exceeds the time of its cause;
    `of`: what is timed; `traced`: it may save less than half of the middle estimate, as the capture does
    not show what tracing launches cost, or how long the gaps between graph nodes are without.

    `alone` is the share of the step that the fix saves by itself, at the middle of the range. `after_first`
    is what it saves once the fixes are done that it stands behind, as a share of the same step: less where
    they save the same time (`part_of`: the code of that finding), more where they hold each other
    (`joint`); None if neither is so. `part_of` alone: its time lies in that finding's, and no estimate says
    what is left."""

    what_if: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    measure: Literal["latency", "throughput"] | None = None
    per: Literal["step", "token", "item"] | None = None
    of: Timed = "step"
    step_before_ms: Span | None = None
    step_after_ms: Span | None = None
    speedup: Span | None = None
    traced: bool = False
    why_more: str | None = None
    assumptions: tuple[str, ...] = ()
    reason: str | None = None
    joint: Joint | None = None
    alone: float | None = None
    after_first: float | None = None
    part_of: str | None = None


class Prediction(NamedTuple):
    """The gain of a fix and of its alternatives; `doubt`: tracing alone may have caused the finding."""

    gain: Gain
    others: tuple[tuple[Gain | None, Gain | None], ...]
    doubt: str | None


class CombinedStep(Frozen, frozen=True, kw_only=True):
    """One of several fixes applied in order. Times are middle estimates a step, with all fixes so far;
    `speedup` counts tokens a second once one of them improves throughput; `bound_ms` is the time that the
    GPU itself then needs, however fast the host."""

    code: str | None = None
    cause: str | None = None
    what_if: str
    params: dict[str, Any] = field(default_factory=dict)
    measure: Literal["latency", "throughput"] = "latency"
    step_before_ms: float
    step_after_ms: float
    marginal_ms: float
    marginal_share: float
    speedup: float
    bound_ms: float
    note: str | None = None


class Combined(Frozen, frozen=True, kw_only=True):
    """The gain of the top fixes together: no time is counted twice. The bound is the time that the GPU
    itself then needs: with any host no step is shorter and no speed-up larger. `of`: what is timed;
    `traced` as of a `Gain`."""

    steps: tuple[CombinedStep, ...]
    of: Timed = "step"
    step_before_ms: Span
    step_after_ms: Span
    speedup: Span
    traced: bool = False
    bound_ms: Span
    bound_speedup: Span
    assumptions: tuple[str, ...] = ()


class Choice(Frozen, frozen=True, kw_only=True):
    """A what-if that no finding asks for, and the share of the step that it saves."""

    what_if: str
    title: str
    saved: float
    speedup: Span


class Ranking(Frozen, frozen=True, kw_only=True):
    """The arithmetic of a finding's severity and place. `share` is `saved`, the share of the step that
    the fix saves (`after_first` of its gain where that is known, else `alone`), or without an estimate the
    share that the cause holds (`share_from` "gain" or "impact"); times the confidence it is the score.
    Tier 0 invalidates the capture, 2 is capped at info.
    `levels` is the severity by levels of the rule's own, `cap` the maximum that the rule and its doubts
    allow; `tail` a share of the slowest steps, which counts if it is more than the impact; `measured`:
    the impact is a measured difference; `lost`: all that the cause holds is lost, so that it may be high
    without an estimate; `aside`: the analysis has set it aside, and it is medium at most; `behind`: what
    made the severity lower than its share, in words, as that comes first."""

    share: float = 0.0
    share_from: Literal["gain", "impact"] = "impact"
    saved: float | None = None
    confidence: float
    score: float = 0.0
    throughput: bool = False
    tier: int = 1
    levels: Severity | None = None
    cap: Severity | None = None
    tail: float = 0.0
    measured: bool = False
    lost: bool = False
    aside: bool = False
    behind: str | None = None


# --- advice ----------------------------------------------------------------------------------------


class Option(Frozen, frozen=True, kw_only=True):
    """The line of a serving engine that carries out an action."""

    engine: str
    line: str
    since: str | None = None


class Verify(Frozen, frozen=True, kw_only=True):
    fact: str
    expect: Literal["decrease", "increase", "present", "absent"]
    now: Cell = None
    unit: str = ""


class Advice(Frozen, frozen=True, kw_only=True):
    """One recommendation of a finding; `title` is the action in a few words, `sentence` with
    object and reason, `condition` what has to hold
    for it and the capture does not show (`action` begins with it), `gain` what it would gain by itself, if
    that is not the gain of the finding."""

    id: str
    title: str = ""
    sentence: str = ""
    action: str
    condition: str | None = None
    options: tuple[Option, ...] = ()
    effort: Literal["low", "medium", "high"] = "medium"
    verify: Verify | None = None
    gain: Gain | None = None


class Alternative(Frozen, frozen=True, kw_only=True):
    """An alternative fix: `action` is its key, `gain` what it would gain, if a what-if exists, `condition` as
    of `Advice`."""

    action: str
    text: str
    condition: str | None = None
    what_if: str | None = None
    gain: Gain | None = None
    effort: Literal["low", "medium", "high"] = "medium"
    options: tuple[Option, ...] = ()


class ToDo(Named, frozen=True, kw_only=True):
    """One thing to do, in a feasible order. `saved` is the share of the step that it saves alone,
    `saved_in_plan` after those before it; `because`: why it comes before a later one."""

    id: str
    action: str
    saved: float | None = None
    saved_in_plan: float | None = None
    because: str = ""


class Headline(Named, frozen=True, kw_only=True):
    """The subject of the verdict: its cause, what to `do` first, and the share of the step that the fix
    of the cause `saves` by itself; `together` is the estimate with the fixes that it requires, if any."""

    do: str | None = None
    saves: float | None = None
    together: Gain | None = None


class FlipFact(Frozen, frozen=True, kw_only=True):
    """A value between a threshold and the one tried in its place."""

    fact: str
    op: str
    value: Cell
    unit: str = ""
    scope: Scope = Scope()


class StateChange(Named, frozen=True, kw_only=True):
    """A change of a rule's outcome: fired, quiet, overruled or not_evaluated."""

    scope: Scope = Scope()
    before: str
    after: str


class Flip(Named, frozen=True, kw_only=True):
    """A verdict that changes if one threshold is moved by a tenth. `first_before` and `first_after` are
    codes, present only if another finding would come first."""

    param: str
    unit: str
    threshold: Cell
    moved_to: Cell
    facts: tuple[FlipFact, ...] = ()
    changes: tuple[StateChange, ...] = ()
    first_before: str | None = None
    first_after: str | None = None
