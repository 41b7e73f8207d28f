"""What values of samplers and servers can be: rows with others are left out, and counted in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from advisor.sources.trace import Ledger

_SHARE, _COUNT, _MS = (0.0, 1.0), (0.0, 1e6), (0.0, 30 * 86_400e3)
#: Column -> the least and the largest value that it can hold, with room above what hardware and servers reach
#: today: a million requests, 1e9 tokens a second, times of 30 days, 100 kW, 100 GHz, 1 PiB.
_RANGES: dict[str, tuple[float, float]] = {
    # samples
    **dict.fromkeys(
        ("gr_active", "sm_active", "sm_issue", "tensor_active", "dram_read", "dram_write"), _SHARE
    ),
    **dict.fromkeys(("sm_clock_hz", "sm_clock_max_hz"), (0.0, 1e11)),
    **dict.fromkeys(("power_w", "power_limit_w"), (0.0, 1e5)),
    "temperature_c": (0.0, 300.0),
    **dict.fromkeys(("memory_used_bytes", "memory_total_bytes"), (0.0, 2.0**50)),
    # load
    **dict.fromkeys(("cache_used", "prefix_hit", "acceptance", "graph"), _SHARE),
    **dict.fromkeys(("replica", "running", "waiting", "in_flight", "failed", "completed"), _COUNT),
    **dict.fromkeys(("prompt_per_s", "output_per_s"), (0.0, 1e9)),
    **dict.fromkeys(("step_ms", "token_ms", "queue_ms", "first_token_ms", "request_ms"), _MS),
    "accepted": (0.0, 1e4),
    "output_tokens": (0.0, 1e9),
}
#: Column -> what it is a part of.
_PARTS = {"memory_used_bytes": "memory_total_bytes"}
#: No sum of the times of a recording is longer: ten years of the work of all its GPUs and threads.
MOST_NS = 10 * 366 * 86_400 * 10**9
#: Tools round, and sum up shares of stretches that overlap a little.
_ROUNDED = 0.01
#: A share above this is stated in percent, if most of its column are.
_IN_PERCENT = 1.5

WHAT = "values that cannot be"


def possible(
    rows: Sequence[Mapping[str, float]], table: str, ledger: Ledger
) -> list[dict[str, float] | None]:
    """The values of each row; None for a row with a value that cannot be, which the ledger counts. A column
    that is beyond its range in most rows that have it says something else: its rows stay without it."""
    beyond = [{n for n, v in row.items() if n in _RANGES and not _within(n, v, row)} for row in rows]
    given: dict[str, int] = {}
    wrong: dict[str, int] = {}
    for row, names in zip(rows, beyond, strict=True):
        for name in row:
            given[name] = given.get(name, 0) + 1
        for name in names:
            wrong[name] = wrong.get(name, 0) + 1
    other = {name for name, count in wrong.items() if 2 * count > given[name]}
    kept: list[dict[str, float] | None] = []
    for row, names in zip(rows, beyond, strict=True):
        kept.append(None if names - other else {n: _clipped(n, v) for n, v in row.items() if n not in other})
    ledger.note("dropped", WHAT, table, sum(row is None for row in kept), len(rows))
    for name in sorted(other):
        ledger.note("dropped", f"{WHAT} in {name}, left out", table, wrong[name], len(rows))
    return kept


def _within(name: str, value: float, row: Mapping[str, float]) -> bool:
    least, most = _RANGES[name]
    most = min(most, row.get(_PARTS.get(name, ""), most))
    room = _ROUNDED if (least, most) == _SHARE else 0.0
    return least <= value <= most + room


def _clipped(name: str, value: float) -> float:
    return min(value, 1.0) if _RANGES.get(name) == _SHARE else value


#: What a GPU can say of itself at most: with room above today's, as above.
_DEVICE_MOST = {
    "sm_count": 10_000,
    "memory_bytes": 2**50,
    "l2_bytes": 2**40,
    "bandwidth_bytes_per_s": 10**16,
    "clock_hz": 10**11,
}


def of_device(name: str, value: int | None) -> int | None:
    """A number of a GPU; None if it is missing, 0, or no GPU has it."""
    return value if value is not None and 0 < value <= _DEVICE_MOST[name] else None


def compute_capability(major: int | None, minor: int | None) -> tuple[int, int] | None:
    """Both parts; None if one is missing or no GPU has it."""
    if major is None or minor is None or not (0 < major < 100 and 0 <= minor < 100):
        return None
    return major, minor


def share_factor(values: Iterable[float]) -> float:
    """What a column of shares is multiplied with to be 0 to 1: 0.01 where its tool states percent, as some
    exporters do under the same name: none is above 100, and half of those above 0 are no ratio."""
    known = [value for value in values if value > 0]
    if not known or max(known) > 100:
        return 1.0
    return 0.01 if 2 * sum(value > _IN_PERCENT for value in known) >= len(known) else 1.0
