"""knowledge/calibration.md: every cited section is there, and says what the captures give."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from advisor.facts.catalog import CATALOGUE, build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import FactBase
from advisor.pipeline.diagnose import open_trace
from tests.docs.scripts import script
from tests.for_each import for_each
from tests.shipped import shipped_rules

anchor = script("docs/headings.py").anchor

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "knowledge" / "calibration.md").read_text(encoding="utf-8")
FOLDERS = (ROOT / "examples" / "captures", ROOT / "tests" / "data" / "captures")
CITED = re.compile(r"calibration#([\w-]+)")
FACT_LINE = re.compile(r"^- `([a-z]+\.[a-z0-9_]+)` fires: (.+); quiet: (.+)$", re.MULTILINE)
VALUE = re.compile(r"`(\w+)` (-?\d[\d,]*(?:\.\d+)?)")


def sections() -> dict[str, str]:
    """The text of each section by its anchor."""
    parts = re.split(r"^##? (.+)$", TEXT, flags=re.MULTILINE)[1:]
    return {anchor(head): text for head, text in zip(parts[::2], parts[1::2], strict=True)}


SECTIONS = sections()
RULE_SECTIONS = sorted(name for name in SECTIONS if re.fullmatch(r"[a-z]{3}\d{3}", name))
CAPTURES = set(re.findall(r"`(\w+)`", SECTIONS["captures"]))


def cited() -> dict[str, str]:
    """Every anchor that a rule or the code cites, with one place that does."""
    found: dict[str, str] = {}
    for folder, ending in (("rules", "*.yaml"), ("knowledge", "*.yaml"), ("advisor", "*.py")):
        for path in sorted((ROOT / folder).rglob(ending)):
            for name in CITED.findall(path.read_text(encoding="utf-8")):
                found.setdefault(name, str(path.relative_to(ROOT)))
    return found


def test_every_cited_section_is_there() -> None:
    missing = {f"{name} (in {where})" for name, where in cited().items() if name not in SECTIONS}
    assert not missing


def test_every_section_of_a_rule_is_cited() -> None:
    assert set(RULE_SECTIONS) <= set(cited())


@for_each(RULE_SECTIONS)
def test_a_section_names_thresholds_facts_and_captures(name: str) -> None:
    text = SECTIONS[name]
    plain = text.replace(",", "")
    for rule in shipped_rules().active:
        for param, spec in rule.params.items():
            if spec.source == f"calibration#{name}":
                assert f"`{param}` {spec.default}" in plain, f"{rule.code}.{param}"
    lines = FACT_LINE.findall(text)
    assert lines, "no line of a fact with both sides"
    for fact, fires, quiet in lines:
        assert fact in CATALOGUE
        named = {capture for capture, _ in VALUE.findall(f"{fires} {quiet}")}
        assert named, f"{fact}: no capture"
        assert named <= CAPTURES
    if any(fires == "none" for _, fires, _ in lines):
        assert re.search(r"[Nn]o (labelled|capture)", text), "say that no capture fires"


@cache
def facts_of(path: Path) -> FactBase:
    with open_trace(path) as trace:
        return build_facts(measure(trace))


def _committed(name: str) -> Path | None:
    paths = (folder / f"{name}.sqlite.xz" for folder in FOLDERS)
    return next((p for p in paths if p.is_file()), None)


def _values() -> list[tuple[str, str, str, str]]:
    """(section, fact, capture, value as written) of the captures that are in the repository."""
    return [
        (name, fact, capture, value)
        for name in RULE_SECTIONS
        for fact, fires, quiet in FACT_LINE.findall(SECTIONS[name])
        for capture, value in VALUE.findall(f"{fires} {quiet}")
        if _committed(capture) is not None
    ]


@for_each(_values(), " ".join)
def test_the_values_are_those_of_the_captures(written_down: tuple[str, str, str, str]) -> None:
    """Within 6 % or half of the last digit; of several phases or operations, one."""
    name, fact, capture, value = written_down
    path = _committed(capture)
    assert path is not None
    written = float(value.replace(",", ""))
    digit = 10.0 ** -len(value.partition(".")[2])
    slack = max(0.06 * abs(written), 0.51 * digit)
    found = [f.value for f in facts_of(path) if f.name == fact]
    assert found, f"{capture} has no {fact}"
    near = [v for v in found if isinstance(v, int | float) and abs(v - written) <= slack]
    assert near, f"{name}: {fact} of {capture} is {found}, not {value}"
