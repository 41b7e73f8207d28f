"""The step time of a run without the profiler, as the user gives it."""

from __future__ import annotations

import math

from advisor.errors import InputError


def given_step_ns(text: str | None) -> float | None:
    """``9.92`` (milliseconds) as ns; None where it was not given. Raises InputError."""
    if text is None:
        return None
    try:
        value = float(text.lower().removesuffix("ms"))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"--unprofiled-step: '{text}' is not a time in milliseconds, such as 9.92")
    return value * 1e6
