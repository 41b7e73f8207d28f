"""Every limit says where it comes from, and is used."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    *(p for p in sorted((ROOT / "advisor/metrics/limits").glob("*.py")) if p.stem != "__init__"),
    ROOT / "advisor/facts/limits.py",
    ROOT / "advisor/gain/limits.py",
]
#: What a comment names as the origin.
ORIGIN = re.compile(r"\b(?:Measured|Documented|Computed|Judged)\b")
LIMITS = [
    (f"{path.stem}.{name}", " ".join(comment.replace("#: ", "").split()))
    for path in MODULES
    for comment, name in re.findall(
        r"((?:^#: .*\n)*)^([A-Z_]+) =", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
]


def sections() -> dict[str, str]:
    """The text of each section of the calibration by its anchor."""
    text = (ROOT / "knowledge/calibration.md").read_text("utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {head.replace(" ", "-"): body for head, body in zip(parts[::2], parts[1::2], strict=True)}


def test_each_limit_has_one_origin() -> None:
    assert [name for name, comment in LIMITS if len(set(ORIGIN.findall(comment))) == 0] == []


def test_cited_sections_are_there() -> None:
    cited = {(name, s) for name, text in LIMITS for s in re.findall(r"calibration#([\w-]+)", text)}
    assert {(name, section) for name, section in cited if section not in sections()} == set()


def test_what_was_measured_names_its_captures_or_its_numbers() -> None:
    captures = set(re.findall(r"`(\w+)`", sections()["captures"]))
    unnamed = []
    for name, comment in LIMITS:
        measured = comment.partition("Measured")[2]
        cited = re.match(r" \(calibration#([\w-]+)", measured)
        named = set(re.findall(r"`(\w+)`", sections()[cited[1]])) & captures if cited else set()
        if measured and not named and not re.search(r"\d|\bnone\b|no operation", measured):
            unnamed.append(name)
    assert unnamed == []


def test_every_limit_is_used() -> None:
    code = "\n".join(p.read_text("utf-8") for p in (ROOT / "advisor").rglob("*.py"))
    used = set(re.findall(r"\blimits\.(?:[a-z]+\.)?([A-Z_]+)\b", code.replace("_limits.", " limits.")))
    within = set(re.findall(r"\* ([A-Z_]+)$", code, re.MULTILINE))
    assert {name.partition(".")[2] for name, _ in LIMITS} - used - within == set()


def test_limits_are_many() -> None:
    assert len(LIMITS) > 250
