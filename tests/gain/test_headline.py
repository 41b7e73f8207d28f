"""A larger batch makes no step shorter, so no headline says that it saves part of one."""

from __future__ import annotations

from typing import Literal

import pytest

from advisor.model.findings import Finding, Gain
from advisor.model.gain import Span
from advisor.pipeline.verdict import headline


@pytest.mark.parametrize(("measure", "saves"), [("latency", 0.875), ("throughput", None)])
def test_what_a_headline_saves(measure: Literal["latency", "throughput"], saves: float | None) -> None:
    found = Finding(
        code="UTL107",
        cause="under-filled-gpu",
        title="Few blocks",
        severity="medium",
        confidence=0.9,
        message="Few blocks.",
        gain=Gain(what_if="batch", measure=measure, speedup=Span(low=8, mid=8, high=8)),
    )
    said = headline([found], {})
    assert said is not None
    assert said.saves == saves
