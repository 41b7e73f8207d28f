"""No part of the time vanishes without a word: over every real capture that is at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.captures import diagnosed, each

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    ROOT / "examples" / "captures",
    ROOT / "tests" / "data" / "captures",
    ROOT.parent / "shared" / "traces",
)
CAPTURES = [
    path for folder in FOLDERS for path in sorted(folder.rglob("*.[gx]z")) if ".tar." not in path.name
]
#: A part of so much of the window is spoken of, in a finding or in a sentence that says why not.
SPOKEN = 0.03
STEPS = re.compile(r"(?<!marks )\b(?:an?|per|the|each) (?:\w+ )?step\b(?! range)")


@pytest.mark.parametrize("path", each(CAPTURES))
def test_every_part_of_the_time_is_spoken_of(path: Path) -> None:
    d = diagnosed(path)
    for budget in d.budget:
        assert sum(part.share for part in budget.parts) == pytest.approx(1, abs=1e-3)
        silent = [p.part for p in budget.parts if p.share >= SPOKEN and not p.findings and not p.why]
        assert not silent or budget.phase is not None
    said = " ".join([d.verdict, *(f.message for f in d.findings), *(h.text for h in d.healthy)])
    assert "missing from 0" not in said
    assert not [f.cause for f in d.findings if f.impact and (f.impact.share or 0) > 1.0001]
    if not d.inputs[0].steps:
        assert not STEPS.search(" ".join([d.verdict, *(f.message for f in d.findings)]))
