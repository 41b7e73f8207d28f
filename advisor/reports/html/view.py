"""What the HTML templates draw: the parts of a diagnosis as finished texts and shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from advisor.model.facts import Interval, Table
from advisor.model.findings import UNREADABLE, ConditionDoc, Diagnosis, Finding, Input, NotEvaluated
from advisor.model.numbers import UNKNOWN, amount, condition_parts, digits, milliseconds, value_text
from advisor.reports import phrases
from advisor.reports.html.budget import BudgetView, budget_view
from advisor.reports.html.charts import LatencyRow, StepChart, latencies, step_chart
from advisor.reports.html.gains import GainView, gain_view
from advisor.reports.html.tables import TableView, fact_rows, table_view, threshold_rows
from advisor.reports.layout import clean

PLACES = 6
#: Captures of a job that are described one by one.
INPUTS = 4
#: Findings that are unfolded when the page opens.
OPEN = 3


@dataclass(frozen=True)
class ConditionView:
    fact: str
    value: str
    op: str
    threshold: str
    holds: bool | None
    param: str


@dataclass(frozen=True)
class FindingView:
    """`number` is the place of the finding in the document; `repeated` names the tables that an
    earlier finding shows, with its rank."""

    number: int
    found: Finding
    where: str
    share: str
    cost: str
    gain: str
    speedup: str
    conditions: list[ConditionView]
    tables: list[TableView]
    repeated: list[tuple[str, int]]
    places: list[tuple[int, str]]
    more_places: list[tuple[int, str]]
    strip: list[tuple[float, float]]
    explains: list[str]

    @property
    def open(self) -> bool:
        """Unfolded at first: the few that matter most."""
        return self.number < OPEN and (self.found.severity != "info" or self.found.invalidates)


@dataclass(frozen=True)
class CaptureView:
    """One diagnosis, in the order of the page."""

    id: str
    diagnosis: Diagnosis
    title: str
    headline: str
    verdict: str
    figures: list[tuple[str, str, str]]
    facts: list[tuple[str, str]]
    warnings: list[str]
    findings: list[FindingView]
    budget: BudgetView | None
    phases: BudgetView | None
    steps: StepChart | None
    latencies: list[LatencyRow]
    ranks: TableView | None
    kernels: TableView | None
    tables: list[TableView]
    gains: GainView | None
    not_judged: list[tuple[str, str, list[NotEvaluated]]]
    fact_rows: TableView | None
    thresholds: TableView | None
    lanes: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def clock(self) -> str:
        return phrases.clock(*self.diagnosis.inputs)

    @property
    def changed(self) -> int:
        return sum(t.value != t.default for t in self.diagnosis.thresholds)


def capture_view(diagnosis: Diagnosis, number: int) -> CaptureView:
    """Everything that the page of one diagnosis shows."""
    head, rest = phrases.headline(diagnosis)
    shown: dict[Table, int] = {}
    kernels, ranks = diagnosis.tables.get("kernels"), diagnosis.tables.get("ranks")
    whole = [b for b in diagnosis.budget if b.phase is None]
    by_phase = [b for b in diagnosis.budget if b.phase is not None]
    return CaptureView(
        id=f"c{number}",
        diagnosis=diagnosis,
        title=phrases.title(diagnosis) or "advisor",
        headline=head,
        verdict=rest,
        figures=_figures(diagnosis),
        facts=_facts(diagnosis),
        warnings=_warnings(diagnosis.inputs),
        findings=[_finding(i, f, diagnosis, shown) for i, f in enumerate(diagnosis.findings)],
        budget=budget_view(whole) if whole else None,
        phases=budget_view(by_phase) if by_phase else None,
        steps=step_chart(diagnosis),
        latencies=latencies(kernels) if kernels is not None else [],
        ranks=table_view(ranks, "ranks") if ranks is not None and len(ranks.rows) > 1 else None,
        kernels=table_view(kernels, "kernels") if kernels is not None and kernels.rows else None,
        tables=[table_view(t, k) for k, t in diagnosis.tables.items() if k != "kernels" and t.rows],
        gains=gain_view(diagnosis),
        not_judged=phrases.by_reason(diagnosis),
        fact_rows=fact_rows(diagnosis),
        thresholds=threshold_rows(diagnosis),
        lanes=_lanes(diagnosis),
    )


def _figures(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """The few numbers that a meeting asks for: label, value, note."""
    figures = []
    for s in diagnosis.main_steps[:3]:
        note = f"mean {milliseconds(s.mean_ms)}, p99 {milliseconds(s.p99_ms)}"
        step = "step" if s.phase == UNKNOWN else f"{clean(s.phase)} step"
        steps = amount(s.count, step)
        label = f"{step}, median (profiled)"
        figures.append((label, f"{milliseconds(s.median_ms)} ms", f"{note} ms; {steps}"))
    for entry in diagnosis.inputs[:1] if len(diagnosis.inputs) == 1 else ():
        if entry.untraced_step_ms is not None:
            value = f"{milliseconds(entry.untraced_step_ms.mid)} ms"
            figures.append(("mean step, untraced (estimated)", value, phrases.untraced(entry) or ""))
        if entry.busy_share is not None:
            busy = value_text(entry.busy_share, "ratio")
            figures.append(("GPU busy", busy, "of the analysed window"))
        if entry.kernels_per_step is not None:
            count = digits(round(entry.kernels_per_step, 1))
            figures.append(("kernels per step", count, ""))
        if entry.window_ms:
            note = clean(entry.window_method or "")
            figures.append(("window", value_text(entry.window_ms, "ms"), note))
    return figures


def _facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """What was read, by label; several captures share one list."""
    facts: list[tuple[str, str]] = []
    for entry in diagnosis.inputs[:INPUTS]:
        place = "" if entry.rank is None else f" of rank {entry.rank}"
        facts.append((f"capture{place}", clean(entry.path)))
        if entry.ranks > 1:
            facts.append(("ranks", str(entry.ranks)))
        if entry.format != UNREADABLE:
            facts += [known for known in phrases.described(entry) if known[0] != "engine evidence"]
    if len(diagnosis.inputs) > INPUTS:
        facts.append(("more captures", str(len(diagnosis.inputs) - INPUTS)))
    return facts


def _warnings(inputs: Sequence[Input]) -> list[str]:
    texts = [clean(w) for entry in inputs for w in entry.warnings]
    counted = ((text, len(list(group))) for text, group in groupby(sorted(texts)))
    return [f"{text} ({times} times)" if times > 1 else text for text, times in counted]


def _finding(number: int, found: Finding, diagnosis: Diagnosis, shown: dict[Table, int]) -> FindingView:
    places = list(enumerate(map(phrases.place, found.time_ranges)))
    fresh = [t for t in found.evidence if t.rows and shown.setdefault(t, number) == number]
    return FindingView(
        number=number,
        found=found,
        where=phrases.scope(found),
        share=phrases.share_text(found),
        cost=phrases.cost_text(found, bool(diagnosis.steps)),
        gain=phrases.gain(found),
        speedup=phrases.speedup(found),
        conditions=[_condition(c, found.code) for c in found.conditions],
        tables=[table_view(t) for t in fresh],
        repeated=[
            (clean(t.title), diagnosis.findings[shown[t]].rank)
            for t in found.evidence
            if t.rows and t not in fresh
        ],
        places=places[:PLACES],
        more_places=places[PLACES:],
        strip=_strip(found.time_ranges, diagnosis),
        explains=list(dict.fromkeys(f"{clean(s.code)} {clean(s.cause)}" for s in found.explains)),
    )


def _condition(condition: ConditionDoc, code: str) -> ConditionView:
    value, op, threshold = condition_parts(condition)
    return ConditionView(
        fact=clean(condition.fact),
        value=value,
        op=op,
        threshold=threshold,
        holds=condition.holds,
        param=f"{code}.{condition.param}" if condition.param else "",
    )


def _strip(ranges: Iterable[Interval], diagnosis: Diagnosis) -> list[tuple[float, float]]:
    """Start and length of ranges as parts of a thousand of the window, each wide enough to see."""
    low, high = window_of(diagnosis)
    if high <= low:
        return []
    out = []
    for r in ranges:
        start = max(min((r.start_ns - low) / (high - low), 1.0), 0.0)
        end = max(min((r.end_ns - low) / (high - low), 1.0), 0.0)
        out.append((round(1000 * start, 2), round(max(1000 * (end - start), 1.2), 2)))
    return out


def window_of(diagnosis: Diagnosis) -> tuple[int, int]:
    """Session times that the timeline spans."""
    t = diagnosis.timeline
    if len(diagnosis.inputs) == 1 and diagnosis.inputs[0].window_ns is not None:
        return diagnosis.inputs[0].window_ns
    bins = max((len(lane.values) for lane in t.lanes), default=0)
    return t.start_ns, t.start_ns + bins * t.bin_ns


def _lanes(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """The timeline in words: lane, mean and largest value of a bin."""
    out = []
    for lane in diagnosis.timeline.lanes:
        known = [v for v in lane.values if v is not None]
        if not known:
            continue
        name = clean(lane.name) + (f", device {lane.device}" if lane.device is not None else "")
        unit = "ratio" if lane.unit == "ratio" else lane.unit
        mean = value_text(sum(known) / len(known), unit)
        out.append((name, mean, value_text(max(known), unit)))
    return out
