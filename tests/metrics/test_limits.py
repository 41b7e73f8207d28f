"""Every limit says where it comes from, and is used."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    *(p for p in sorted((ROOT / "advisor/metrics/limits").glob("*.py")) if p.stem != "__init__"),
    ROOT / "advisor/facts/limits.py",
    ROOT / "advisor/gain/limits.py",
]
#: What a comment names as the origin: a section, a measurement, a computation, a choice, or who says so.
ORIGIN = re.compile(
    r"calibration#|Measured|Computed|Choice|[Cc]hoice|`min_|vLLM|NVIDIA|Linux|nsys-|triage scripts|docs/"
)
LIMITS = [
    (f"{path.stem}.{name}", " ".join(comment.replace("#: ", "").split()))
    for path in MODULES
    for comment, name in re.findall(
        r"((?:^#: .*\n)*)^([A-Z_]+) =", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
]


@pytest.mark.parametrize("comment", [pytest.param(text, id=name) for name, text in LIMITS])
def test_a_limit_has_an_origin(comment: str) -> None:
    assert ORIGIN.search(comment), comment
    known = re.findall(r"^## (.+)$", (ROOT / "knowledge/calibration.md").read_text("utf-8"), re.MULTILINE)
    sections = {heading.replace(" ", "-") for heading in known}
    assert set(re.findall(r"calibration#([\w-]+)", comment)) <= sections


def test_every_limit_is_used() -> None:
    code = "\n".join(p.read_text("utf-8") for p in (ROOT / "advisor").rglob("*.py"))
    used = set(re.findall(r"\blimits\.(?:[a-z]+\.)?([A-Z_]+)\b", code.replace("_limits.", " limits.")))
    within = set(re.findall(r"\* ([A-Z_]+)$", code, re.MULTILINE))
    assert {name.partition(".")[2] for name, _ in LIMITS} - used - within == set()


def test_limits_are_many() -> None:
    assert len(LIMITS) > 250
