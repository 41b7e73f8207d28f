"""The page that explains a verdict: every state, in every width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from advisor.model.explanation import (
    Explanation,
    Factor,
    FactSource,
    Missing,
    Reason,
    ScopeExplanation,
    TableSource,
)
from advisor.model.facts import Scope
from advisor.model.findings import ConditionDoc, Impact, Input, Related, Tool
from advisor.reports import text as writer
from advisor.reports.explanation_blocks import explanation
from advisor.reports.layout import Page
from tests.reports.fixture import NASTY

DEVICE = Scope(device=0)


def condition(value: float | None, holds: bool | None, fact: str = "launch.idle_ratio") -> Reason:
    doc = ConditionDoc(
        fact=fact, op="ge", threshold=0.1, value=value, unit="ratio", param="min_idle", holds=holds
    )
    off = None if holds is not False or value is None else (0.1 - value) / 0.1
    why = "the capture holds no kernels" if holds is None else None
    return Reason(kind="fact", text=f"{fact} in words", holds=holds, condition=doc, off_by=off, why=why)


def guard(holds: bool, fact: str) -> Reason:
    doc = ConditionDoc(fact=fact, op="gt", threshold=0.2, value=0.0, unit="ratio", holds=not holds)
    return Reason(kind="guard", text=f"not stopped, as {fact} in words", holds=holds, condition=doc)


def nested(holds: bool, *reasons: Reason) -> Reason:
    rule = Related(code="LCH100", cause="queue-empty", scope=DEVICE)
    outcome = Reason(kind="outcome", text="o", holds=holds, rule=rule, reasons=reasons)
    word = "fired" if holds else "did not fire"
    return Reason(kind="state", text=f"symptom queue-empty {word}", holds=holds, reasons=(outcome,))


FIRED = ScopeExplanation(
    scope=DEVICE,
    state="fired",
    message=f"{NASTY} is slow",
    rank=1,
    severity="high",
    impact=Impact(part="launch_call", share=0.55),
    confidence=0.8,
    factors=(Factor(name="base", factor=0.8, why="how often"),),
    reasons=(
        nested(True, condition(0.9, True, "launch.empty_queue_ratio"), guard(True, "a.inner")),
        condition(0.55, True),
        guard(True, "a.outer"),
    ),
    explains=(Related(code="UTL100", cause="gpu-idle", message="idle"),),
)
QUIET = ScopeExplanation(
    scope=DEVICE,
    state="quiet",
    reasons=(
        condition(0.04, False),
        nested(True, condition(0.9, True, "launch.empty_queue_ratio")),
        Reason(kind="branch", text="nor X#2", holds=False, reasons=(condition(0.0, False, "b.x"),)),
    ),
)
MISSING = ScopeExplanation(
    state="not_evaluated",
    reasons=(condition(None, None),),
    missing=(
        Missing(fact="launch.idle_ratio", why="w", remedy="--trace=cuda,nvtx"),
        Missing(fact="b.y", remedy="a longer capture"),
        Missing(fact="b.z"),
    ),
)
SOURCE = FactSource(
    fact="launch.idle_ratio",
    value=0.55,
    unit="ratio",
    scope=DEVICE,
    meaning="Idle",
    how="sum",
    sources=(TableSource(table="kernels", native="CUPTI", columns=("start", "end")),),
    window_ns=(1_000_000, 2_000_000),
)


def doc(*scopes: ScopeExplanation) -> Explanation:
    return Explanation(
        tool=Tool(version="1", engine="python"),
        input=Input(path="t.sqlite", format="nsys-sqlite", steps=5),
        code="LCH101",
        cause="launch-bound",
        kind="cause",
        title="The host is slow",
        state=scopes[0].state,
        sentence="It is so.",
        scopes=scopes,
        facts=(SOURCE, SOURCE.replaced(fact="a.inner")),
    )


def shown(*scopes: ScopeExplanation, verbosity: int = 0, **page: int | bool) -> str:
    made = Page(**page)  # type: ignore[arg-type]
    writer.write(made, explanation(doc(*scopes), verbosity))
    return "".join(f"{line.plain}\n" for line in made.lines)


@pytest.mark.parametrize("scope", [FIRED, QUIET, MISSING])
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("verbosity", [0, 1])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_too_wide(scope: ScopeExplanation, width: int, verbosity: int, unicode: bool) -> None:
    text = shown(scope, verbosity=verbosity, width=width, unicode=unicode)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert unicode or text.isascii()
    assert "\x1b" not in text


def test_fired() -> None:
    text = shown(FIRED)
    assert "▲ HIGH: number 1 of the report, 55 % of the step" in text
    assert "  ✓ yes: symptom queue-empty fired: LCH100 (device 0)" in text
    assert "    ✓ yes: launch.empty_queue_ratio in words" in text
    assert "not stopped, as a.outer in words" in text
    assert "a.inner" not in text  # guards of other rules that let pass: only with -v
    assert "a.inner" in shown(FIRED, verbosity=1)
    assert "folds in    UTL100 gpu-idle\n" in text
    assert "confidence  80 %, the product of\n" in text
    assert "0.800  base  how often" in text


def test_not_fired() -> None:
    text = shown(QUIET)
    assert "✗ no: launch.idle_ratio in words" in text
    assert "1 other way to fire, further off (-v)" in text
    assert "b.x" not in text
    assert "b.x" in shown(QUIET, verbosity=1)
    # What holds anyway is named, its reasons are not.
    assert "symptom queue-empty fired" in text
    assert "launch.empty_queue_ratio" not in text


def test_missing() -> None:
    text = " ".join(shown(MISSING).split())
    assert "? unknown: launch.idle_ratio in words" in text
    assert "supply capture with --trace=cuda,nvtx, for launch.idle_ratio" in text
    assert "supply a longer capture, for b.y" in text
    assert "supply nothing that can be recorded, for b.z" in text


def test_other_places_are_counted() -> None:
    text = shown(FIRED, QUIET, QUIET, MISSING)
    assert "and 3 more places: 2 quiet, 1 not evaluated (-v)" in text
    assert "more places" not in shown(FIRED, QUIET, verbosity=1)


def test_only_numbers_that_are_told_have_their_origin_told() -> None:
    text = shown(FIRED)
    assert "launch.idle_ratio: 55 %, device 0" in text
    assert "from kernels (CUPTI): start, end" in text
    assert "over 0.001000s to 0.002000s" in text
    assert "a.inner: " not in text
    assert "a.inner: " in shown(FIRED, verbosity=1)


@pytest.mark.parametrize(
    ("format", "clock"),
    [
        ("nsys-sqlite", "session times, as the Nsight Systems GUI shows them"),
        ("kineto-json", "times from the first event of the trace on, as Perfetto shows them"),
    ],
)
def test_times_are_those_of_the_tool_that_shows_the_capture(format: str, clock: str) -> None:
    made = Page()
    entry = Input(path="t", format=format, clock=clock)
    writer.write(made, explanation(doc(FIRED).replaced(input=entry)))
    assert [x for x in made.lines if clock[:40] in x.plain]
