"""A run: a command that was recorded and diagnosed, kept in a folder of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Self

from msgspec import field

from advisor.model.capture import Shown
from advisor.model.comparison import Comparison, GainCheck
from advisor.model.findings import SCHEMA_VERSION, Diagnosis, StepSummary
from advisor.model.gain import Named, Span
from advisor.model.records import Frozen

#: What became of a predicted gain, in a word.
OUTCOMES: dict[str, Literal["kept", "missed"]] = {
    "as predicted": "kept",
    "more than predicted": "kept",
    "less than predicted": "missed",
    "no effect": "missed",
}


#: The exit code that a shell reports of a program that a signal ended, before the number of the signal.
BY_SIGNAL = 128


def ending(code: int) -> str:
    """``exit code 3``, or ``killed by SIGSEGV`` for the 139 of a shell."""
    with suppress(ValueError):
        if code > BY_SIGNAL:
            return f"killed by {signal.Signals(code - BY_SIGNAL).name}"
    return f"exit code {code}"


class Promise(Named, frozen=True, kw_only=True):
    """What a fix that was applied was to make of the step, and the step measured, both without the profiler,
    in milliseconds."""

    what_if: str
    before_ms: float
    promised_ms: Span
    measured_ms: Span
    outcome: Literal["kept", "missed"]


def promises(checks: Sequence[GainCheck]) -> tuple[Promise, ...]:
    """The promises of the fixes that were applied."""
    found = []
    for check in checks:
        predicted, after = check.predicted.step_after_ms, check.measured_after_ms
        outcome = OUTCOMES.get(check.outcome)
        if predicted is not None and outcome is not None:
            found.append(
                Promise(
                    code=check.code,
                    cause=check.cause,
                    what_if=check.predicted.what_if or "",
                    before_ms=check.measured_before_ms,
                    promised_ms=predicted,
                    measured_ms=check.untraced_after_ms or Span(low=after, mid=after, high=after),
                    outcome=outcome,
                )
            )
    return tuple(found)


class Pass(Frozen, frozen=True, kw_only=True):
    """A further pass: the options that it `added`, the codes of the rules that waited for it, and those of
    them that it `decided`."""

    added: tuple[str, ...]
    waiting: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()


class Run(Frozen, frozen=True, kw_only=True):
    """One run. `options` are those of the recorder as they were used, `variables` the plan's; `exit_code` is
    of the command, null where the recording ended it; `stopped` says why a recording ended early, `notes`
    what was done otherwise than planned; `captures` are names in its folder. `commit` and `dirty` are of
    the working folder's git repository; `promises` those of the run `against` which it was recorded;
    `unprofiled_ms` is the step timed without a profiler, by the recorder torch. The recorder "server" is the
    profiler of a serving engine that was attached to. `seal` shows that this user recorded it."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["run"] = "run"
    name: str
    begun: str
    state: Literal["begun", "recorded", "diagnosed", "failed"] = "begun"
    command: tuple[str, ...]
    goal: str
    recorder: Literal["nsys", "torch", "server"] = "nsys"
    serving_engine: str
    request: dict[str, str | int | bool] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    at_most: int | None = None
    commit: str | None = None
    dirty: bool | None = None
    seconds: float | None = None
    bytes: int = 0
    exit_code: int | None = None
    stopped: str | None = None
    refused: tuple[str, ...] = ()
    passes: tuple[Pass, ...] = ()
    notes: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
    unprofiled_ms: float | None = None
    verdict: str = ""
    steps: tuple[StepSummary, ...] = ()
    against: str | None = None
    promises: tuple[Promise, ...] = ()
    seal: str | None = None


class Timed(NamedTuple):
    """A step (ms) and the phase that it is of; None for one that was timed without the profiler, where the
    recording shows no steps of a GPU."""

    ms: float
    phase: str | None


def timed(run: Run) -> Timed | None:
    """The step of a run: of the phase with most steps, else the one that was timed without the profiler."""
    if (step := max(run.steps, key=lambda s: s.count, default=None)) is not None:
        return Timed(step.median_ms, step.phase)
    return None if run.unprofiled_ms is None else Timed(run.unprofiled_ms, None)


class RunList(Frozen, frozen=True, kw_only=True):
    """The runs of a folder, the oldest first."""

    schema_version: int = SCHEMA_VERSION
    folder: str
    runs: tuple[Run, ...]


class RunReport(Frozen, frozen=True, kw_only=True):
    """A run with its diagnoses."""

    schema_version: int = SCHEMA_VERSION
    run: Run
    diagnoses: tuple[Diagnosis, ...]


class Measured(Frozen, frozen=True, kw_only=True):
    """Steps that were timed without the profiler, before and after, in milliseconds, and by how much the
    second one is longer, relative to the first."""

    before_ms: float
    after_ms: float
    change: float


def measured(before: Run, after: Run) -> Measured | None:
    """The change of the step timed without the profiler, where both runs have one."""
    first, second = before.unprofiled_ms, after.unprofiled_ms
    if not first or second is None:
        return None
    return Measured(before_ms=first, after_ms=second, change=round(second / first - 1, 6))


class Again(Shown, frozen=True, kw_only=True):
    """A run repeated after a change: the promises of the run before it and what became of them, the whole
    comparison, the step timed without the profiler, the verdict on what to do next, and the steps of all
    runs until now."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["again"] = "again"
    name: str
    against: str
    promises: tuple[Promise, ...]
    comparison: Comparison
    next: str
    measured: Measured | None = None
    history: tuple[Run, ...] = ()

    def written(self) -> Self:
        return self.replaced(comparison=self.comparison.written())

    def _sentence(self) -> str:
        return self.comparison.summary

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((p.outcome, p.cause, p.promised_ms.mid, p.measured_ms.mid) for p in self.promises)


class Score(Frozen, frozen=True, kw_only=True):
    """The promises of one what-if: how many were kept, and the middle of measured over promised steps."""

    what_if: str
    kept: int
    missed: int
    ratio: float


class Scores(Frozen, frozen=True, kw_only=True):
    """The calibration of a user's own runs: names of what-ifs and numbers, nothing of the runs."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["promises"] = "promises"
    advisor: str
    scores: tuple[Score, ...]
