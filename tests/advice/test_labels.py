"""What each capture's report advises: what comes first, what before what, and what must not be
said. The labels are in labels.yaml; captures beside the checkout are skipped where it has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.model.findings import SEVERITIES, Diagnosis
from advisor.model.gain import HOLDS_MUCH, LEAST, WORTH
from tests.captures import DATA, EXAMPLES, SHARED, diagnosed
from tests.shipped import shipped_rules

DOCUMENT = yaml.safe_load((Path(__file__).parent / "labels.yaml").read_text(encoding="utf-8"))
SETS: dict[str, list[str]] = DOCUMENT.pop("never")
RULES = {rule.cause: rule for rule in shipped_rules().by_code.values()}
#: What a finding saves at least, for it to be high.
HIGH = 0.20
#: Rules with levels of their own: they tell of the capture or of memory, not of time.
OWN_LEVELS = ("CAP", "ALC103", "ALC104")


def _file(section: str, name: str) -> Path | None:
    folders = [EXAMPLES, DATA] if section == "committed" else [SHARED / section]
    for folder in folders:
        for ending in ("", ".xz", ".sqlite.xz", ".json.gz"):
            if (found := folder / f"{name}{ending}").is_file():
                return found
    return None


def _captures() -> Iterator[Any]:
    for section, labels in DOCUMENT.items():
        for name, label in labels.items():
            path = _file(section, name)
            skip = pytest.mark.skipif(path is None, reason=f"{section}/{name} is not beside the tests")
            marks = [] if section == "committed" else [pytest.mark.slow, skip]
            yield pytest.param(path, label, id=f"{section}/{name}", marks=marks)


each_capture = pytest.mark.parametrize(("path", "label"), list(_captures()))


def to_do(d: Diagnosis) -> list[str]:
    return [item.id for item in d.do]


def said(d: Diagnosis) -> Iterator[str]:
    """Every piece of advice of a report, with its id."""
    for finding in d.findings:
        for advice in finding.recommendations:
            lines = " ".join(option.line for option in advice.options)
            yield f"{advice.id}: {advice.action} {lines}"
        yield from (a.action for a in finding.alternatives)
    yield from (f"{item.id}: {item.action}" for item in d.do)
    yield from (str(option) for option in d.options)


@each_capture
def test_the_advice_of_a_capture(path: Path, label: dict[str, Any]) -> None:
    """One test a capture: it is diagnosed once, on whichever worker."""
    d = diagnosed(path)
    check_order(to_do(d), label)
    words = [w for name in label["advice_never"] for w in SETS.get(name, [name])]
    assert [(w, text) for w in words for text in said(d) if w.lower() in text.lower()] == []
    check_high(d, healthy=bool(label.get("healthy")))
    check_badges(d)
    check_requirements(d)
    check_limits(d)
    check_gains(d)
    check_states(d)


def check_order(order: list[str], label: dict[str, Any]) -> None:
    first = order[:1]
    if "do_first" in label:
        assert first == [] if not label["do_first"] else set(first) & set(label["do_first"]), first
    for before, after in label.get("do_before", ()):
        assert {before, after} <= set(order)
        assert order.index(before) < order.index(after)


def check_high(d: Diagnosis, *, healthy: bool) -> None:
    """High is a fifth of the step saved; nothing is high in a healthy capture."""
    high = [f for f in d.findings if f.severity == "high"]
    slight = [
        f.cause
        for f in high
        if not f.invalidates
        and not f.code.startswith(OWN_LEVELS)
        and (f.ranking is None or (f.ranking.saved or 0) < HIGH)
    ]
    assert slight == []
    assert not (healthy and high)


def check_badges(d: Diagnosis) -> None:
    """The list goes down in severity, what invalidates the capture first, what is info by its rule
    last; what is to be done is named once."""
    places = [(f.ranking.tier, -SEVERITIES.index(f.severity)) for f in d.findings if f.ranking]
    assert places == sorted(places)
    assert len(set(to_do(d))) == len(d.do)


def check_requirements(d: Diagnosis) -> None:
    """What a fix requires is to be done before it, wherever its cause was found."""
    order = [item.cause for item in d.do]
    for cause in order:
        first = {r.cause for r in RULES[cause].requires} & {f.cause for f in d.findings}
        assert first <= set(order[: order.index(cause)]), cause


def check_limits(d: Diagnosis) -> None:
    """No fault stands for a limit, and none overrules one."""
    folded = [s.cause for f in d.findings if f.kind != "limit" for s in f.explains]
    assert [c for c in (*folded, *(o.cause for o in d.overruled)) if RULES[c].kind == "limit"] == []


def check_gains(d: Diagnosis) -> None:
    """Every gain of a step starts from the step of the header, in order; none is a loss, nor is another way
    offered that wins nothing. More tokens a step are no headline multiple."""
    for found in d.findings:
        gains = [found.gain, *(o.gain for o in found.alternatives)]
        for gain in (g for g in gains if g is not None and g.speedup is not None):
            assert gain.of == "window" or gain.step_before_ms == d.inputs[0].untraced_step_ms
            assert 1.0 <= gain.speedup.mid <= gain.speedup.high
            assert gain.speedup.low <= gain.speedup.mid
        assert all(g.speedup.mid >= LEAST for g in gains[1:] if g is not None and g.speedup is not None)
        if d.headline is not None and found.code == d.headline.code and found.gain is not None:
            assert found.gain.measure != "throughput" or d.headline.saves is None


def check_states(d: Diagnosis) -> None:
    """A capture that is damaged or too short has no ticks, unless a whole step is busy; nothing is to be
    fixed only where no fix saves 3 %; the plan holds no fix that loses."""
    causes = {f.cause for f in d.findings}
    busy = next((f.value for f in d.facts if f.name == "capture.steps_busy_ratio"), 0.0)
    short = "window-too-short" in causes and isinstance(busy, float) and busy < 0.9
    assert not ((short or "damaged-capture" in causes) and d.healthy)
    if "Nothing to fix" in d.verdict:
        assert d.options == ()
        assert all(f.ranking is None or (f.ranking.saved or 0) < WORTH for f in d.findings)
        parts = [p for b in d.budget for p in b.parts if p.part != "compute"]
        assert all(p.share < HOLDS_MUCH for p in parts), "a part of the budget that no finding is about"
    if d.combined is not None:
        assert all(step.marginal_share > -0.001 for step in d.combined.steps)


def test_enough_captures_are_labelled() -> None:
    assert sum(len(labels) for labels in DOCUMENT.values()) >= 25
    assert len(DOCUMENT["committed"]) >= 12
