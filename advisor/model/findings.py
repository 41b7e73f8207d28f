"""Outcomes of rules and the `Diagnosis` that reports are made from: keys may be added, none is renamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, Self

from msgspec import UNSET, UnsetType, field
from msgspec.structs import asdict

from advisor.model.capture import InputDevice, LedgerRow, Shown
from advisor.model.facts import SEVERITIES as SEVERITIES
from advisor.model.facts import Cell, Fact, Interval, Scope, Table
from advisor.model.facts import Severity as Severity
from advisor.model.gain import Advice as Advice
from advisor.model.gain import Alternative as Alternative
from advisor.model.gain import Choice, Combined, Flip, Headline, Joint, Named, Ranking, ToDo, whole
from advisor.model.gain import Gain as Gain
from advisor.model.gain import Option as Option
from advisor.model.gain import Span as Span
from advisor.model.gain import Verify as Verify
from advisor.model.records import Frozen
from advisor.model.timeline import Lane as Lane
from advisor.model.timeline import Timeline as Timeline
from advisor.model.work import Excerpt, Work

SCHEMA_VERSION = 1
#: The `format` of an input that could not be read: a missing rank of a job.
UNREADABLE = "unreadable"


def identity(code: str, scope: Scope) -> str:
    """``LCH101@device=0,phase=decode``: equal in captures of the same kind, so without process ids."""
    parts = ((k, v) for k, v in scope.without_process().as_dict().items() if v is not None)
    return f"{code}@{','.join(f'{key}={value}' for key, value in parts)}"


class Tool(Frozen, frozen=True, kw_only=True):
    name: str = "advisor"
    version: str
    engine: str


class Input(Frozen, frozen=True, kw_only=True):
    """One capture as it was read, or one rank of a job: then with its number. `serving_evidence`
    says what speaks for the serving engine, `serving_version` its release where known,
    `device_numbers` in words whose numbers device ids are, `clock` what times count from,
    `step_levels` how often what repeats inside a step. `step_ms` is the mean step as captured,
    `untraced_step_ms` its estimate without the profiler, from which every gain starts, or the time known
    from what `untraced_step_from` says ("as given", "by the log"). `tokens_per_s` counts what the steps
    work on while they run; prompts read and tokens written are over the window, all of them as captured. The
    ratios are of the device's peaks."""

    path: str
    format: str
    producer: str | None = None
    device: str | None = None
    devices: tuple[InputDevice, ...] = ()
    device_numbers: str | None = None
    clock: str | None = None
    driver: str | None = None
    cuda: str | None = None
    serving_engine: str | None = None
    serving_version: str | None = None
    serving_confidence: float | None = None
    serving_evidence: tuple[str, ...] = ()
    window_ms: float | None = None
    window_ns: tuple[int, int] | None = None
    window_method: str | None = None
    steps: int | None = None
    step_method: str | None = None
    step_confidence: float | None = None
    step_levels: dict[str, int] = field(default_factory=dict)
    step_ms: float | None = None
    untraced_step_ms: Span | None = None
    untraced_step_from: str | None = None
    tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    written_tokens_per_s: float | None = None
    model_bandwidth_ratio: float | None = None
    model_flop_ratio: float | None = None
    ranks: int = 1
    rank: int | None = None
    workload: str | None = None
    workload_confidence: float | None = None
    kernels_per_step: float | None = None
    busy_share: float | None = None
    startup_ms: float | None = None
    together: str | None = None
    warnings: tuple[str, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()


class ConditionDoc(Frozen, frozen=True, kw_only=True):
    """One inequality of a rule with both its numbers; `value` is None if the fact is unknown."""

    fact: str
    op: str
    threshold: Cell | tuple[Cell, ...] = None
    value: Cell = None
    unit: str = ""
    param: str | None = None
    holds: bool | None = None


class Impact(Frozen, frozen=True, kw_only=True):
    """The part of the budget that a cause holds. `share` (0..1) is of the analysed window and `ms` of a
    step of it (of the window without steps); if the part is `capture`, both are of the whole capture.
    `parts` are those of the budget that make up most of the share, the largest first; None if unknown."""

    part: str
    ms: float | None = None
    share: float | None = None
    parts: tuple[str, ...] | None = None

    def of(self, has_steps: bool) -> Literal["capture", "step", "window"]:
        """What `share` is a share of."""
        if self.part == "capture":
            return "capture"
        return whole(has_steps and self.part != "profiler")

    def step_ms(self, has_steps: bool) -> float | None:
        """`ms` if it is of a step."""
        return self.ms if self.of(has_steps) == "step" else None


#: The causes that go before all others, though nothing is to be won: the GPU had no work, as no request came
#: or as input comes at a fixed rate.
NO_REQUESTS, PACED = NO_WORK = "waits-for-requests", "paced-input"


class Related(Named, frozen=True, kw_only=True):
    """Another rule related to this one, in one scope."""

    scope: Scope = Scope()
    message: str = ""


class Reference(Frozen, frozen=True, kw_only=True):
    id: str
    title: str = ""
    url: str | None = None


class Finding(Shown, frozen=True, kw_only=True):
    """A `limit` is what bounds a well-run step: no fault. `baseline` says whether a given saved diagnosis
    had the finding too, and `changed` whether it has become worse or better."""

    rank: int = 0
    code: str
    cause: str
    kind: Literal["symptom", "cause", "limit", "note"] = "cause"
    title: str
    severity: Severity
    confidence: float
    scope: Scope = Scope()
    message: str
    invalidates: bool = False
    score: float = 0.0
    ranking: Ranking | None = None
    conditions: tuple[ConditionDoc, ...] = ()
    impact: Impact | None = None
    evidence: tuple[Table, ...] = ()
    time_ranges: tuple[Interval, ...] = ()
    gain: Gain | None = None
    recommendations: tuple[Advice, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    explains: tuple[Related, ...] = ()
    references: tuple[Reference, ...] = ()
    baseline: Literal["new", "known"] | None = None
    changed: Literal["worse", "better"] | None = None

    # msgspec.Meta would say so, too; with it the interpreter may crash at exit (msgspec issue 717).
    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence {self.confidence:g} is not from 0 to 1")

    def _sentence(self) -> str:
        return f"{self.code} {self.cause}, {self.severity}: {self.title}"

    @property
    def share(self) -> float | None:
        return None if self.impact is None else self.impact.share

    @property
    def joint(self) -> Joint | None:
        """What its fix gains only together with those of other causes."""
        return None if self.gain is None else self.gain.joint

    @property
    def part(self) -> str | None:
        """The part of the budget that it refers to."""
        return None if self.impact is None else self.impact.part

    @property
    def part_of(self) -> str | None:
        """The code of the finding before it whose time this one's lies in."""
        return None if self.gain is None else self.gain.part_of

    @property
    def only_part(self) -> bool:
        """Whether it is a part of another finding, and no estimate says what its own fix then saves."""
        return self.gain is not None and self.gain.part_of is not None and self.gain.after_first is None

    @property
    def identity(self) -> str:
        """The identity of the finding across captures: its code and scope."""
        return identity(self.code, self.scope)


class Overruled(Named, frozen=True, kw_only=True):
    by: str
    scope: Scope = Scope()


#: How a rule that is no finding stands; see `advisor.engine.states`.
State = Literal["in order", "close", "observed", "does not apply"]


class Healthy(Named, frozen=True, kw_only=True):
    """Examined and no finding, with the numbers that show it. Only what is `in order` is healthy: if it is
    `close`, a tenth of a threshold would make it a finding; what is `observed` is not small and no
    fault; of what `does not apply` nothing is in the capture."""

    scope: Scope = Scope()
    text: str
    state: State = "in order"
    close: bool = False
    conditions: tuple[ConditionDoc, ...] = ()

    @property
    def applies(self) -> bool:
        return self.state != "does not apply"


class NotEvaluated(Named, frozen=True, kw_only=True):
    """Not judged: facts are missing, which `flag` supplies, or a cause or fact stopped the rule. `lacks` says
    in two or three words what the recording lacks; none if nothing that can be recorded would help."""

    scope: Scope = Scope()
    missing: tuple[str, ...]
    stopped_by: str | None = None
    flag: str | None = None
    lacks: str | None = None
    why: str | None = None


class Part(Frozen, frozen=True, kw_only=True):
    """One part of a budget. If it holds at least 3 % of the window, `findings` are the causes that
    explain it, and `why` says why they hold no more of it, or why there are none."""

    part: str
    ms: float
    share: float
    findings: tuple[str, ...] = ()
    why: str | None = None


class Budget(Frozen, frozen=True, kw_only=True):
    """Exclusive parts of the window of one device (of one rank); they add up to the window."""

    device: int
    rank: int | None = None
    window_ms: float
    phase: str | None = None
    parts: tuple[Part, ...]

    @property
    def place(self) -> str:
        """``device 0``, or ``rank 3, device 0`` in a job."""
        return Scope(rank=self.rank, device=self.device).label()


class StepSummary(Frozen, frozen=True, kw_only=True):
    """Steps of one phase, of the process with most GPU time on a device."""

    phase: str
    count: int
    median_ms: float
    mean_ms: float
    p99_ms: float
    process: int | None = None
    device: int | None = None


class Threshold(Frozen, frozen=True, kw_only=True):
    code: str
    param: str
    value: Cell
    default: Cell
    unit: str
    origin: str
    source: str | None = None
    title: str | None = None  # of the source


class NextTarget(Frozen, frozen=True, kw_only=True):
    """What to measure next, regardless of the findings: the family and kernel with most kernel time, and
    the share of collectives, whose kernels do not show why they take long."""

    family: str
    share: float
    kernel: str
    command: str
    why: str
    collectives_share: float = 0.0


class Gone(Named, frozen=True, kw_only=True):
    """A finding of the baseline only; it is `gone` if its rule was judged again and did not fire."""

    title: str
    severity: Severity
    scope: Scope = Scope()
    status: Literal["gone", "not_evaluated", "overruled"] = "gone"


Verdict = Literal["improvement", "regression", "no-change", "not-comparable"]


class StepChange(Frozen, frozen=True, kw_only=True):
    """The median step of the baseline and of this capture in the phase that takes most time, ms (None without
    steps), and the verdict of ``advisor compare`` on the two captures."""

    before_ms: float | None = None
    after_ms: float | None = None
    verdict: Verdict
    summary: str


class Baseline(Frozen, frozen=True, kw_only=True):
    """The saved diagnosis that findings and the step are compared with. `not_evaluated_before` lists new
    findings whose rule could not be judged in the baseline's capture."""

    path: str
    capture: str
    verdict: str
    new: int
    known: int
    gone: tuple[Gone, ...] = ()
    not_evaluated_before: tuple[str, ...] = ()
    step: StepChange | None = None


class Diagnosis(Shown, frozen=True, kw_only=True):
    """`healthy` is in order or close to a finding; `observed` is seen and no fault; `does_not_apply` counts
    the rules of `not_applicable` that apply nowhere in the capture. `sensitivity` is null if it was not
    requested, empty if no verdict would change."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    inputs: tuple[Input, ...]
    verdict: str
    headline: Headline | None = None
    do: tuple[ToDo, ...] = ()
    options: tuple[Choice, ...] = ()
    findings: tuple[Finding, ...] = ()
    overruled: tuple[Overruled, ...] = ()
    healthy: tuple[Healthy, ...] = ()
    observed: tuple[Healthy, ...] = ()
    not_applicable: tuple[Healthy, ...] = ()
    does_not_apply: int = 0
    not_evaluated: tuple[NotEvaluated, ...] = ()
    budget: tuple[Budget, ...] = ()
    steps: tuple[StepSummary, ...] = ()
    facts: tuple[Fact, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    tables: dict[str, Table] = field(default_factory=dict)
    timeline: Timeline = Timeline()
    combined: Combined | None = None
    next_target: NextTarget | None = None
    sensitivity: tuple[Flip, ...] | None = None
    work: Work | None = None
    baseline: Baseline | None = None
    #: For pages; no part of the JSON.
    excerpts: tuple[Excerpt, ...] | UnsetType = UNSET

    @property
    def ticks(self) -> tuple[Healthy, ...]:
        """Healthy: looked at, and small."""
        return tuple(h for h in self.healthy if h.state == "in order" and not h.close)

    @property
    def close(self) -> tuple[Healthy, ...]:
        """No findings, but a tenth of a threshold away from one."""
        return tuple(h for h in self.healthy if h.close)

    @property
    def lacking(self) -> tuple[NotEvaluated, ...]:
        """Rules for which the capture holds too little, however it was recorded."""
        return tuple(n for n in self.not_evaluated if n.stopped_by is None)

    @property
    def stopped(self) -> tuple[NotEvaluated, ...]:
        """Rules that another cause or a fact of the capture keeps from being judged."""
        return tuple(n for n in self.not_evaluated if n.stopped_by is not None)

    @property
    def not_judged(self) -> int:
        """How many rules were not judged, each once however many places it has."""
        return len({n.code for n in self.not_evaluated})

    @property
    def main_steps(self) -> tuple[StepSummary, ...]:
        """The steps of the device with most GPU time, by phase."""
        return tuple(s for s in self.steps if s.device == self.steps[0].device)

    def written(self) -> Self:
        return self.replaced(excerpts=UNSET)

    def frames(self) -> dict[str, Any]:
        """The tables of the diagnosis as pandas data frames (pandas is imported here)."""
        import pandas as pd

        shown = ("rank", "code", "cause", "severity", "confidence", "share", "message")
        named = {
            "findings": [{name: getattr(f, name) for name in shown} for f in self.findings],
            "facts": [
                {"name": f.name, "value": f.value, "unit": f.unit, **f.scope.as_dict()} for f in self.facts
            ],
            "budget": [
                {"rank": b.rank, "device": b.device, "phase": b.phase, **asdict(p)}
                for b in self.budget
                for p in b.parts
            ],
            "steps": [asdict(s) for s in self.steps],
        }
        frames = {name: pd.DataFrame(rows) for name, rows in named.items()}
        for name, table in self.tables.items():
            if name not in frames:
                frames[name] = pd.DataFrame(list(table.rows), columns=list(table.columns))
        return frames

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((f.rank, f.code, f.severity, f.title, f.message) for f in self.findings)


def named(findings: Iterable[Finding], name: str) -> tuple[Finding, ...]:
    """The findings of a code or cause, or the one with this number."""
    wanted = name.strip().lower()
    return tuple(f for f in findings if wanted in (f.code.lower(), f.cause.lower(), str(f.rank)))
