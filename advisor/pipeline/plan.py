"""``advisor.plan``: how to record a capture for a goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.capture.goals import plan as build
from advisor.capture.request import PlanRequest
from advisor.errors import invalid_choice
from advisor.model.capture_plan import CapturePlan


def plan(goal: str, command: Sequence[str] = (), **options: Any) -> CapturePlan:
    """The plan that `advisor capture GOAL -- COMMAND` prints; `options` are those of the verb by name:
    `engine`, `phase`, `place`, `ranks`, `iterations`, `repeat`, `delay`, `duration`.

    Raises InputError for a goal, an engine or a place that is unknown, and for an unknown option.
    """
    known = [name for name in PlanRequest.__dataclass_fields__ if name not in ("goal", "command")]
    for name in options:
        if name not in known:
            raise invalid_choice("plan", name, known)
    words = tuple(command.split()) if isinstance(command, str) else tuple(command)
    return build(PlanRequest(goal=goal, command=words, **options))
