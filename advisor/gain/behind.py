"""What a fix saves behind others: less where two save the same time, more where each holds the other."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from advisor.gain import limits
from advisor.gain.estimate import Replayer
from advisor.gain.fixes import settled
from advisor.gain.replay_ops import NoEstimate
from advisor.gain.whatifs import Fix
from advisor.model.gain import WORTH


class Behind(Struct, frozen=True):
    """What a fix saves once others are done, as a share of the step without any; `part_of`: the position
    of the one that saves the same time."""

    saves: float
    part_of: int


def saved_twice(replayer: Replayer, fixes: Sequence[Fix], alone: Sequence[float]) -> dict[int, Behind]:
    """The fixes, by position, that save the time of one before them: applied in this order, each saves less
    than `REPEATS_RATIO` of what it saves `alone` (shares of the step), both as shares of what is left. At
    most `MOST_FIXES` are applied; a fix that then wins nothing is applied no further."""
    first = _step(replayer, ())
    if first is None:
        return {}
    done: list[int] = []
    left, found = first, dict[int, Behind]()
    for i, fix in enumerate(fixes):
        if len(done) >= limits.MOST_FIXES:
            break
        after = _step(replayer, [*(fixes[j] for j in done), fix])
        if after is None:
            continue
        if done and alone[i] >= WORTH and _repeats(left, after, alone[i]):
            part_of = _first_alike(replayer, fixes, done, i, alone[i])
            found[i] = Behind(max(left - after, 0.0) / first, part_of)
        if after < left:
            done.append(i)
            left = after
    return found


def held_by_each_other(replayer: Replayer, fixes: Sequence[Fix], after_all: float) -> list[float]:
    """What each of these fixes saves once all others are done, as a share of the step without any;
    `after_all`: the step with all of them, ms."""
    first = _step(replayer, ())
    assert first is not None
    steps = (_step(replayer, [f for f in fixes if f is not fix]) for fix in fixes)
    return [max((first if others is None else others) - after_all, 0.0) / first for others in steps]


def _repeats(before: float, after: float, alone: float) -> bool:
    return 1 - after / before < limits.REPEATS_RATIO * alone


def _first_alike(replayer: Replayer, fixes: Sequence[Fix], done: Sequence[int], i: int, alone: float) -> int:
    """The first of the fixes that are done behind which this one saves so little; else the first of all,
    as they save its time together."""
    for j in done:
        before, after = _step(replayer, [fixes[j]]), _step(replayer, [fixes[j], fixes[i]])
        if before is not None and after is not None and _repeats(before, after, alone):
            return j
    return done[0]


def _step(replayer: Replayer, fixes: Sequence[Fix]) -> float | None:
    """The step with these fixes in their order, ms, in the middle of the range; None if they do not apply."""
    try:
        chosen = [settled(fix, replayer.work) for fix in fixes]
        return replayer.step_ns(chosen, replayer.middle_of(chosen)) / 1e6
    except NoEstimate:
        return None
