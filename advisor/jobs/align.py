"""One clock for all ranks: absolute time, refined by the ends of collectives.

A collective ends at nearly the same moment on every rank that takes part, whoever came late. Equal
communicators and sequence numbers, if known, give the difference of two clocks; else the ends of one rank
are searched for among those of another, near the absolute time first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.jobs.pattern import LEVELS_NS, MIN_PATTERN, SIGMA, best_shift, centre, evidence, spacing
from advisor.metrics.budgeted.collectives import Collectives
from advisor.metrics.intervals import EMPTY, Spans
from advisor.metrics.profiled.pace import KernelPace
from advisor.model.arrays import Array, distinct, median_of
from advisor.sources.schema import MISSING

UNKNOWN = MISSING


class RankRows(Collectives, frozen=True, kw_only=True):
    """Collectives of one device of one rank.

    `zero` is the absolute time (ns since 1970) of the session's 0, None if the capture does not
    record it. `window` and `steps` are those of the analysis. `lead[i]` is what the device did since
    the collective before, by the columns that `leads` names, UNKNOWN in the first row. `paces` are
    the heaviest kernels of the device, `profiler_ns` is what the profiler took of the window. `busy` is
    when a rank computes that sends to another or receives from it, in session time.
    """

    rank: int
    device: int
    zero: int | None
    window: tuple[int, int]
    window_ns: int
    steps: int
    leads: tuple[str, ...]
    lead: Array
    paces: tuple[KernelPace, ...] = ()
    profiler_ns: int = 0
    busy: Spans = EMPTY

    @property
    def program_ns(self) -> int:
        """What shares of the rank are of, ns: its window without what the profiler took; at least 1."""
        return max(self.window_ns - self.profiler_ns, 1)

    def packed(self) -> RankRows:
        """The same in as few bytes as the values take."""
        return self._each(_smallest)

    def unpacked(self) -> RankRows:
        """The same with times in 64-bit integers, for arithmetic; the rest stays small."""
        start, duration, exposed = (a.astype(np.int64) for a in (self.start, self.duration, self.exposed))
        return replace(self, start=start, duration=duration, exposed=exposed)

    def take(self, mask: Array) -> RankRows:
        """The collectives of the mask."""
        return self._each(lambda column: column[mask])

    def _each(self, change: Callable[[Array], Array]) -> RankRows:
        columns = ((n, getattr(self, n)) for n in self.__struct_fields__)
        changed: dict[str, Any] = {n: change(c) for n, c in columns if isinstance(c, np.ndarray)}
        return replace(self, **changed)


def _smallest(values: Array) -> Array:
    """Integers in the smallest signed type that holds them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return values.astype(np.min_scalar_type(min(low, -1 - high, -1)))


#: How far the clocks of two machines may differ, ns: searched first, and at most.
_NEAR, _FAR = 50_000_000, 5_000_000_000
#: A rank that takes turns between communicators shares only some collectives: at least this share of all
#: must end close together, this many times more than by chance.
_MIN_CLOSE, _MIN_CALLS, _OVER_CHANCE = 0.05, 8, 3.0
#: From this share on two ranks share all that they do.
_MOST = 0.7
#: No clock drifts faster than this; a larger drift is noise.
_MAX_DRIFT = 2e-4
#: How far the ends of one collective may be apart when clocks are fitted to them.
_CLOSE_NS = 5_000
_MIN_FOR_DRIFT = 30
#: This many other ranks are tried before a rank counts as communicating with none of them.
_MAX_TRIES = 8
#: Kinds in which every rank contributes as many bytes as any other.
SAME_SIZE = frozenset(("all-reduce", "reduce", "broadcast"))


class Clock(Struct, frozen=True):
    """Session time of a rank -> common time: ``t + shift + drift * (t - middle)``. `offset` was added to the
    absolute clock. `spread` is how far the ends of collectives are from those of another rank afterwards, ns;
    None if no other rank fits."""

    shift: int
    middle: int = 0
    drift: float = 0.0
    offset: int = 0
    spread: float | None = None

    def __call__(self, time: Array) -> Array:
        moved = time + self.shift
        if self.drift:
            moved = moved + np.rint(self.drift * (time - self.middle)).astype(np.int64)
        return np.asarray(moved)


def align(ranks: Sequence[RankRows]) -> list[Clock]:
    """A clock for each of the ranks, in their order. The one with most collectives keeps its own;
    one that shares no collectives with any other stays on its absolute time."""
    by_size = sorted(range(len(ranks)), key=lambda i: (-len(ranks[i]), i))
    ground = min((r.zero for r in ranks if r.zero is not None), default=0)
    clocks: dict[int, Clock] = {}
    anchors: list[int] = []
    for i in by_size:
        fits: list[tuple[_Fit, int]] = []
        # Groups of neighbours are the usual ones: the rank that served last first.
        for other in anchors[:_MAX_TRIES]:
            found = _fit(ranks[other], clocks[other], ranks[i], ground)
            if found is not None:
                fits.append((found, other))
            if found is not None and found.whole:
                break
        best = max(fits, key=lambda f: (f[0].whole, f[0].score), default=None)
        zero = ranks[i].zero
        if best is None:
            clocks[i] = Clock(ground if zero is None else zero)
        else:
            clocks[i], other = best[0].clock, best[1]
            anchors.remove(other)
            anchors.insert(0, other)
            if clocks[other].spread is None:
                clocks[other] = replace(clocks[other], spread=0.0)
        if best is None or not best[0].whole:
            anchors.insert(0, i)
    return [clocks[i] for i in range(len(ranks))]


def belongs(apart: Array, theirs: Array, expected: int) -> Array:
    """Mask of the pairs that are one collective, by how far `apart` their ends are; none if two ranks
    share none. `theirs` are all ends of one rank, `expected` how many pairs there would be if the ranks
    shared all.

    Usually a rank does everything with the same others. If it takes turns between communicators only some
    pairs are real: these end together much more often than by chance.
    """
    gap = spacing(theirs)
    for level in LEVELS_NS:
        chance = _OVER_CHANCE * 2 * level / gap
        if chance >= _MOST:
            break
        close = apart <= level
        count = int(close.sum())
        if count >= _MOST * expected and count >= MIN_PATTERN:
            return np.asarray(apart <= min(10 * level, gap / 4))
        if count >= max(max(_MIN_CLOSE, chance) * expected, _MIN_CALLS):
            return np.asarray(apart <= 2 * level)
    return np.zeros(len(apart), bool)


def nearest_pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Positions in two ascending arrays whose values are each other's nearest."""
    if len(a) == 0 or len(b) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    of_b, of_a = _nearest(a, b), _nearest(b, a)
    own = np.arange(len(b))
    mutual = of_a[of_b] == own
    return of_b[mutual], own[mutual]


def _nearest(among: Array, values: Array) -> Array:
    """Position of the value of `among` (ascending) that is nearest to each of `values`."""
    right = np.minimum(np.maximum(np.searchsorted(among, values), 1), len(among) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(values - among[left] <= among[right] - values, left, right)


class _Fit(NamedTuple):
    """A clock, its evidence, and whether the two ranks share most of what they do."""

    clock: Clock
    score: float
    whole: bool


def _fit(other: RankRows, clock: Clock, mine: RankRows, ground: int) -> _Fit | None:
    """The clock of `mine` that makes its collectives end with those of `other`."""
    if min(len(other), len(mine)) < MIN_PATTERN:
        return None
    base = mine.zero if mine.zero is not None else ground
    absolute = mine.zero is not None and other.zero is not None
    theirs = clock(other.start + other.duration)
    ends = mine.start + mine.duration
    order_a, order_b = np.argsort(theirs, kind="stable"), np.argsort(ends, kind="stable")
    theirs, ends = theirs[order_a], ends[order_b] + base
    pairs = _by_key(other, order_a, mine, order_b)
    if pairs is not None:
        line = _line(theirs[pairs[0]], ends[pairs[1]], base)
        return None if line is None else _Fit(line, float(len(pairs[0])), True)
    codes = _codes(other, mine)
    code_a, code_b = codes[0][order_a], codes[1][order_b]
    best: _Fit | None = None
    limits: tuple[int | None, ...] = (_NEAR, _FAR) if absolute else (None,)
    for limit in limits:
        for at_a, at_b in _classes(code_a, code_b):
            found = _by_pattern(theirs[at_a], code_a[at_a], ends[at_b], code_b[at_b], base, limit)
            if found is None:
                continue
            fit = _rated(theirs, code_a, found(ends - base), code_b, found)
            if best is None or (fit.whole, fit.score) > (best.whole, best.score):
                best = fit
        if best is not None:
            break
    if best is None or best.whole or not absolute:
        return best
    # If two ranks share little, a fit needs more evidence than the clocks themselves.
    asis = _rated(theirs, code_a, ends, code_b, Clock(base, spread=float(_CLOSE_NS)))
    return asis if asis.score >= best.score - SIGMA else best


def _classes(code_a: Array, code_b: Array) -> Iterator[tuple[Array, Array]]:
    """All collectives, then those of each kind: the ranks may share one kind and not another."""
    yield np.arange(len(code_a)), np.arange(len(code_b))
    kinds = np.intersect1d(code_a, code_b)
    if len(kinds) > 1:
        for kind in kinds.tolist()[:8]:
            at_a, at_b = np.flatnonzero(code_a == kind), np.flatnonzero(code_b == kind)
            if min(len(at_a), len(at_b)) >= MIN_PATTERN:
                yield at_a, at_b


def _by_pattern(
    theirs: Array, code_a: Array, ends: Array, code_b: Array, base: int, limit: int | None
) -> Clock | None:
    shift = best_shift(theirs, code_a, ends, code_b, limit)
    if shift is None:
        return None
    at = np.arange(len(ends)) + shift[0]
    inside = (at >= 0) & (at < len(theirs))
    at = np.clip(at, 0, len(theirs) - 1)
    same = np.flatnonzero(inside & (code_a[at] == code_b))

    def agrees(clock: Clock | None, a: Array, b: Array) -> bool:
        return clock is not None and bool(belongs(np.abs(a - clock(b - base)), theirs, len(a)).any())

    found = _line(theirs[at[same]], ends[same], base)
    if agrees(found, theirs[at[same]], ends[same]):
        return found
    # A rank lost events, or shares only some: pairs of neighbours after the shift.
    near, own = nearest_pairs(theirs, ends + shift[1])
    same = code_a[near] == code_b[own]
    near, own = near[same], own[same]
    close = np.abs(theirs[near] - ends[own] - shift[1]) <= spacing(theirs) / 4
    found = _line(theirs[near[close]], ends[own[close]], base)
    return found if agrees(found, theirs[near], ends[own]) else None


def _rated(theirs: Array, code_a: Array, mine: Array, code_b: Array, clock: Clock) -> _Fit:
    """The evidence that the collectives are the same ones."""
    near, own = nearest_pairs(theirs, mine)
    apart, same = np.abs(theirs[near] - mine[own]), code_a[near] == code_b[own]
    within = int(((mine >= theirs[0]) & (mine <= theirs[-1])).sum())
    agreed = int(belongs(apart[same], theirs, within).sum())
    score = 0.0
    for code in distinct(code_b[own]).tolist():  # rare kinds do not match by chance
        mine_ = same & (code_b[own] == code)
        if mine_.any():
            gap = spacing(theirs[code_a == code])
            score = max(score, float(evidence(apart, mine_, gap)))
    return _Fit(clock, score, agreed >= _MOST * max(within, 1))


def kinds_of(ranks: Sequence[RankRows]) -> list[Array]:
    """By rank the kind of each collective, numbered alike on all."""
    names = sorted({k for r in ranks for k in r.kinds})
    return [np.array([names.index(k) for k in r.kinds], np.int64)[r.kind] for r in ranks]


def keys_of(ranks: Sequence[RankRows]) -> list[Array]:
    """By rank one integer for communicator and sequence number, UNKNOWN where one of them is."""
    names = {name: i for i, name in enumerate(sorted({g for r in ranks for g in r.groups}))}
    out = []
    for rows in ranks:
        known = (rows.group != UNKNOWN) & (rows.sequence != UNKNOWN)
        index = np.array([names[g] for g in rows.groups] or [0], np.int64)
        out.append(np.where(known, (index[np.maximum(rows.group, 0)] << 40) + rows.sequence, UNKNOWN))
    return out


def _codes(a: RankRows, b: RankRows) -> tuple[Array, Array]:
    """What two calls of one collective have in common: the kind, and the size if it is the same on all ranks
    and known."""
    codes, kinds = kinds_of((a, b)), len({*a.kinds, *b.kinds})
    if all((r.bytes != UNKNOWN).all() for r in (a, b)):
        for rows, code in zip((a, b), codes, strict=True):
            alike = np.array([k in SAME_SIZE for k in rows.kinds], bool)[rows.kind]
            code += kinds * np.where(alike, rows.bytes.astype(np.int64) + 1, 0)
    return codes[0], codes[1]


def _by_key(a: RankRows, order_a: Array, b: RankRows, order_b: Array) -> tuple[Array, Array] | None:
    """Positions of collectives with one communicator and number; None if few are known."""
    keys = [key[order] for key, order in zip(keys_of((a, b)), (order_a, order_b), strict=True)]
    if any((key == UNKNOWN).all() for key in keys):
        return None
    both, at_a, at_b = np.intersect1d(keys[0], keys[1], return_indices=True)
    real = both != UNKNOWN
    return (at_a[real], at_b[real]) if real.sum() >= MIN_PATTERN else None


def _line(theirs: Array, mine: Array, base: int) -> Clock | None:
    """The clock under which most pairs of ends agree: an offset and, over many pairs, a drift.
    `mine` are absolute times, `base` those of the session's 0."""
    if len(theirs) < MIN_PATTERN:
        return None
    delta = theirs - mine
    middle = int(median_of(mine))

    def fitted(drift: float) -> tuple[int, float, float]:
        """Offset, spread, and the drift that is left in what is close."""
        rest = delta - np.rint(drift * (mine - middle)).astype(np.int64)
        offset = centre(rest)
        apart = np.abs(rest - offset)
        close = apart <= max(_CLOSE_NS, median_of(apart))
        offset = int(median_of(rest[close]))
        at = (mine[close] - middle).astype(float)
        at -= at.mean()
        left = float((at * (rest[close] - offset)).sum() / max(float((at * at).sum()), 1.0))
        return offset, median_of(np.abs(rest[close] - offset)), left

    offset, spread, _ = fitted(0.0)
    drift = 0.0
    if len(delta) >= _MIN_FOR_DRIFT:
        third = len(delta) // 3
        first, last = slice(0, third), slice(len(delta) - third, None)
        length = float(median_of(mine[last] - middle) - median_of(mine[first] - middle))
        rise = float(centre(delta[last]) - centre(delta[first]))
        if length > 0 and abs(rise / length) <= _MAX_DRIFT:
            better = rise / length + fitted(rise / length)[2]
            moved, closer, _ = fitted(better)
            if closer * 1.25 + 100 < spread:  # a drift that explains nothing is dropped
                offset, spread, drift = moved, closer, better
    return Clock(base + offset, middle - base, drift, offset, spread)
