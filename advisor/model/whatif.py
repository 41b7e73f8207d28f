"""The answer to a what-if question of the user: `advisor whatif --format json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from advisor.model.capture import Frozen, Shown
from advisor.model.findings import SCHEMA_VERSION, Input, Tool
from advisor.model.gain import CombinedStep, Span


class Replay(Frozen):
    """How the estimate was made: which steps were replayed, and how well the unchanged replay
    reproduces them (`error`, relative)."""

    steps: int
    of_steps: int
    captured_ms: float
    replayed_ms: float
    error: float


class WhatIfReport(Shown):
    """Predicted step time after some fixes, applied in order."""

    schema_version: int = SCHEMA_VERSION
    tool: Tool
    input: Input
    fixes: tuple[CombinedStep, ...]
    measure: Literal["latency", "throughput"]
    per: Literal["step", "token"]
    step_before_ms: Span
    step_after_ms: Span
    speedup: Span
    bound_ms: Span
    bound_speedup: Span
    assumptions: tuple[str, ...]
    replay: Replay

    def _sentence(self) -> str:
        names = ", ".join(f.what_if for f in self.fixes)
        before, after = self.step_before_ms.mid, self.step_after_ms.mid
        return (
            f"{names}: {before:.3g} ms a {self.per} to {after:.3g} ms, {self.speedup.mid:.3g} times as fast"
        )

    def _rows(self) -> Iterator[tuple[object, ...]]:
        return ((f.what_if, f"{f.step_before_ms:.3g} ms", f"{f.step_after_ms:.3g} ms") for f in self.fixes)


class WhatIfList(Frozen):
    """The what-ifs that there are, as `knowledge/whatifs.yaml` describes them."""

    schema_version: int = 1
    whatifs: dict[str, dict[str, Any]]
