"""How grave a finding is."""

from __future__ import annotations

from typing import Literal

Severity = Literal["info", "low", "medium", "high"]
#: From the least to the gravest.
SEVERITIES: tuple[Severity, ...] = ("info", "low", "medium", "high")
