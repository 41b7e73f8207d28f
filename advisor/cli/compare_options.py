"""What was typed for `compare` and its kin, as the options of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.config import Settings
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.pipeline.compare import CompareOptions

Texts = Sequence[str] | None
#: Rules that have a gate and a noise floor.
_GATED = ("CMP101", "CMP104", "CMP105")


def options(settings: Settings, gate: str | None = None, noise_floor: str | None = None) -> CompareOptions:
    """Raises InputError for a gate or noise floor that is not a percentage."""
    from advisor.pipeline.compare import CompareOptions

    thresholds: dict[tuple[str, str], Any] = {}
    for name, text in (("gate", gate), ("noise_floor", noise_floor)):
        if text is not None:
            share = percent(text, f"--{name.replace('_', '-')}")
            thresholds.update({(code, name): share for code in _GATED})
    return CompareOptions(settings, settings.folder, thresholds)


def percent(text: str, option: str) -> float:
    """``5``, ``5%`` and ``0.05`` are all five per cent."""
    plain = text.strip().removesuffix("%").strip()
    try:
        value = float(plain)
    except ValueError:
        raise InputError(f"{option}: invalid percentage '{text}'; expected 5% or 0.05") from None
    share = value / 100 if "%" in text or value >= 1 else value
    if not 0 <= share < 10:
        raise InputError(f"{option}: {text} is out of range; write 5% or 0.05")
    return share


def sides(
    sources: Texts, before: Texts, after: Texts, names: str = "BEFORE AFTER"
) -> tuple[list[str], list[str]]:
    """The two sides: two sources, or what follows --before and --after."""
    given, left, right = list(sources or ()), list(before or ()), list(after or ())
    if left or right:
        # One side by option, the other as the bare source.
        if len(given) == 1 and not left:
            left, given = given, []
        elif len(given) == 1 and not right:
            right, given = given, []
        if given or not left or not right:
            raise InputError("give both --before and --after, and no source besides")
        return left, right
    if len(given) != 2:
        hint = "" if len(given) < 2 else "; several captures a side: --before A1 A2 --after B1 B2"
        raise InputError(f"expected two captures ({names}), got {len(given)}{hint}")
    return [given[0]], [given[1]]


def engines(sources: Texts, before: Texts, after: Texts) -> list[tuple[str | None, str]]:
    """``NAME=TRACE`` or ``TRACE`` for each column."""
    if before or after:
        raise InputError("--frameworks takes captures side by side, not --before and --after")
    given = list(sources or ())
    if len(given) < 2:
        raise InputError("--frameworks: give two or more captures, [NAME=]TRACE each")
    out: list[tuple[str | None, str]] = []
    for text in given:
        name, equals, source = text.partition("=")
        named = bool(equals and name and source) and not Path(text).exists()
        out.append((name, source) if named else (None, text))
    return out


def numbers(texts: Texts, option: str) -> dict[str, float]:
    """``NAME=31.7`` -> {"NAME": 31.7}"""
    out = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            out[name] = float(value)
        except ValueError:
            out[name] = 0.0
        if not name or out[name] <= 0:
            raise InputError(f"{option} {text}: write NAME=NUMBER")
    return out


def lengths(text: str | None) -> tuple[int, int] | None:
    """``1,2048`` -> (1, 2048)"""
    if text is None:
        return None
    parts = text.replace(" ", "").split(",")
    if len(parts) != 2 or not all(p.isdigit() for p in parts) or int(parts[0]) >= int(parts[1]):
        raise InputError(f"--tokens: '{text}' is not SHORT,LONG in tokens, such as 1,2048")
    return int(parts[0]), int(parts[1])
