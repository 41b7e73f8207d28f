"""How heavy a finding is: by the share of the step that its fix saves, else by the share that it holds."""

from __future__ import annotations

from advisor.model.findings import SEVERITIES, Severity
from advisor.model.gain import WORTH, Gain, Ranking, saved_by

#: Severity from this share of the step saved on; below the last one, info.
SEVERITY_TABLE: tuple[tuple[float, Severity], ...] = ((0.20, "high"), (0.10, "medium"), (WORTH, "low"))


def by_share(share: float) -> Severity:
    return next((severity for at, severity in SEVERITY_TABLE if share >= at), "info")


def least(*severities: Severity | None) -> Severity:
    return min((s for s in severities if s), key=SEVERITIES.index)


def saved_of(gain: Gain | None) -> float | None:
    """Share of the step that the fix saves by itself, at the middle of its range; None without an
    estimate."""
    return None if gain is None or gain.speedup is None else saved_by(gain.speedup)


def graded_by(gain: Gain | None) -> float | None:
    """The share by which severity is graded: what the fix saves after the fixes that come before it, if that
    is known, else what it saves alone. A fix that repeats another one is still worth a line."""
    alone = saved_of(gain)
    if gain is None or alone is None or gain.after_first is None:
        return alone
    if gain.part_of is not None and alone >= WORTH:
        return max(gain.after_first, WORTH)
    return gain.after_first


def severity_of(terms: Ranking, held: float, saved: float | None, perhaps: bool = False) -> Severity:
    """By the rule's own levels; else by the share saved, or without an estimate by the share `held` (at most
    medium, unless that is lost), and at least by the slowest steps' share (at most medium); at most the cap,
    and medium for what the analysis has set aside. A fix that `perhaps` saves much is at least low."""
    most: Severity | None = "medium" if terms.aside else None
    if terms.levels is not None:
        return least(terms.levels, terms.cap, most)
    tail, at_least = least(by_share(terms.tail), "medium"), SEVERITIES[0]
    if saved is not None:
        own, at_least = by_share(saved), "low" if perhaps else "info"
    else:
        own = by_share(held) if terms.lost else least(by_share(held), "medium")
    return least(max(own, tail, at_least, key=SEVERITIES.index), terms.cap, most)
