"""Two recordings of one program: which operation of one corresponds to which of the other.

Steps of both are compared by the order of their operations, names as operations of the
kernel families (the two tools spell C++ names differently); where the steps are the same in both, or one
lacks or adds kernels, the order decides. Without steps the neighbours of an operation do.
"""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.loaded.kernels import dense, is_unknown, nth_alike
from advisor.metrics.loaded.operations import Kind, combinations, join
from advisor.metrics.stepped.recording import Recording
from advisor.model.arrays import Array, begins_run, distinct, marked
from advisor.sources.schema import MISSING, base_name

#: Sequences up to this length are compared exactly.
_LONGEST = 5_000
#: Number of kinds of steps that are compared.
_KINDS = 200
#: Neighbours on each side that identify an operation, tried from the most to the fewest.
_NEIGHBOURS = (16, 8, 4, 2, 1)


class Match(Struct, frozen=True):
    """Operations of a capture, each with its counterpart in the other recording, or MISSING, and how well
    the two match.

    `time_ratio` is the share of GPU time that is matched, `other_ratio` that of the operations of the other
    recording (in the steps that are compared), `kernels` the number of matched kernels whose launch shapes
    are known on both sides, `same` those of equal shape.
    """

    other: Array
    by: str
    time_ratio: float
    other_ratio: float
    same: Array
    kernels: Array

    @property
    def quality(self) -> float:
        """The lower of both shares; the share of the time where no steps show which parts belong together."""
        return min(self.time_ratio, self.other_ratio) if self.by == "steps" else self.time_ratio

    @property
    def same_ratio(self) -> float | None:
        """Share of the matched kernels that were launched with the same grid and block."""
        return float(self.same[self.kernels].mean()) if self.kernels.any() else None


def align(a: Recording, b: Recording) -> Match:
    """The operations of `b` that those of `a` correspond to, on the main device and process of each."""
    tokens: dict[str, int] = {}
    mine, own = _sequence(a, tokens)
    theirs, other = _sequence(b, tokens)
    found = np.full(len(a.ops), MISSING, np.int64)
    steps = len(a.steps) > 1 and len(b.steps) > 1
    if steps:
        _by_steps(_steps(a, mine, own), _steps(b, theirs, other), found)
    rest = found[mine] < 0
    if not steps:
        found[mine[rest]] = _by_neighbours(own, other, theirs)[rest]
    length = a.ops.length[mine]
    used = np.isin(theirs, found[found >= 0])
    if steps:  # of a step that ran often one is enough
        step = b.steps.op_step[theirs]
        used = used[np.isin(step, distinct(step[used]))]
    return Match(
        found,
        "steps" if steps else "order",
        float(length[found[mine] >= 0].sum() / max(length.sum(), 1)),
        float(used.mean()) if len(used) else 0.0,
        *_same_launch(a, b, found),
    )


def _sequence(a: Recording, tokens: dict[str, int]) -> tuple[Array, Array]:
    """Positions of the operations in the order of the device, and the token of each."""
    ops = a.ops
    mine = np.flatnonzero(
        (ops.device == a.main_device) & (ops.process == a.main_process) & (ops.kind != Kind.GRAPH_RUN)
    )
    names = a.names
    pairs = zip(names.known, names.short, strict=True) if a.trace.has("kernels") else ()
    labels = [short if is_unknown(known) else known.operation for known, short in pairs]
    own = np.array([tokens.setdefault(label, len(tokens)) for label in labels], np.int64)
    out = np.full(len(mine), MISSING, np.int64)
    name = a.op_name[mine]
    out[name >= 0] = own[name[name >= 0]]
    for kind in (Kind.COPY, Kind.MEMSET):
        out[ops.kind[mine] == kind] = tokens.setdefault(f" {kind.name}", len(tokens))
    return mine, out


def _steps(a: Recording, mine: Array, tokens: Array) -> list[tuple[bytes, Array, Array]]:
    """The operations of each step and their tokens; equal sequences have equal bytes."""
    step = a.steps.op_step[mine]
    inside = np.flatnonzero(step >= 0)
    inside = inside[np.argsort(step[inside], kind="stable")]
    at = np.searchsorted(step[inside], np.arange(len(a.steps) + 1))
    found = []
    for lo, hi in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        own = tokens[inside[lo:hi]]
        found.append((own.tobytes(), mine[inside[lo:hi]], own))
    return found


def _by_steps(
    mine: list[tuple[bytes, Array, Array]], theirs: list[tuple[bytes, Array, Array]], found: Array
) -> None:
    """Fill `found` for the operations of each step from the most similar step of the other recording."""
    kinds: dict[bytes, list[tuple[Array, Array]]] = {}
    for key, ops, tokens in theirs:
        kinds.setdefault(key, []).append((ops, tokens))
    pairs: dict[bytes, tuple[bytes, Array] | None] = {}
    turn: dict[bytes, int] = {}
    for key, ops, tokens in mine:
        if key not in pairs and len(pairs) < _KINDS:
            pairs[key] = _most_like(tokens, key, kinds)
        if (hit := pairs.get(key)) is None:
            continue
        other, at = hit
        same = kinds[other]
        turn[key] = turn.get(key, -1) + 1
        chosen = same[turn[key] % len(same)][0]
        found[ops] = np.where(at < 0, MISSING, chosen[np.maximum(at, 0)])


def _most_like(
    tokens: Array, key: bytes, kinds: dict[bytes, list[tuple[Array, Array]]]
) -> tuple[bytes, Array] | None:
    """The kind of step that holds most of the sequence, and the position in it of each of its operations."""
    if key in kinds:
        return key, np.arange(len(tokens))
    best: tuple[float, bytes, Array] | None = None
    size = int(tokens.max(initial=0)) + 1
    count = np.bincount(tokens, minlength=size)
    ranked = []
    for other, steps in kinds.items():
        theirs = np.bincount(steps[0][1], minlength=size)[:size]
        common = float(np.minimum(count, theirs).sum())
        ranked.append((2 * common / (len(tokens) + len(steps[0][1]) or 1), other))
    for upper, other in sorted(ranked, reverse=True)[:8]:
        if upper < limits.kernels.ALIKE_RATIO or (best and upper <= best[0]):
            break
        at = _matched(tokens, kinds[other][0][1])
        alike = 2 * float((at >= 0).sum()) / (len(tokens) + len(kinds[other][0][1]))
        if best is None or alike > best[0]:
            best = alike, other, at
    return best[1:] if best and best[0] >= limits.kernels.ALIKE_RATIO else None


def _matched(own: Array, other: Array) -> Array:
    """Position in `other` of each token of `own`, in order; MISSING for tokens that only `own` has."""
    if max(len(own), len(other)) > _LONGEST:
        return _by_neighbours(own, other, np.arange(len(other)))
    at = np.full(len(own), MISSING, np.int64)
    for block in SequenceMatcher(None, own.tolist(), other.tolist(), False).get_matching_blocks():
        at[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return at


def _by_neighbours(own: Array, other: Array, positions: Array) -> Array:
    """Match operations with equal neighbours in order; where the other recording has fewer of them, start
    again. `positions` are those of `other`."""
    found = np.full(len(own), MISSING, np.int64)
    if not len(own) or not len(other):
        return found
    for reach in _NEIGHBOURS:
        open_ = np.flatnonzero(found < 0)
        if not len(open_):
            break
        mine, theirs = (_context(t, reach) for t in (own, other))
        order = np.argsort(theirs, kind="stable")
        ranked = theirs[order]
        first = np.searchsorted(ranked, mine[open_], "left")
        count = np.searchsorted(ranked, mine[open_], "right") - first
        turn, hit = nth_alike(mine[open_]), count > 0
        found[open_[hit]] = positions[order[first[hit] + turn[hit] % count[hit]]]
    return found


def _context(tokens: Array, reach: int) -> Array:
    """A fingerprint of each token with its neighbours."""
    padded = np.concatenate((np.full(reach, -2), tokens, np.full(reach, -2))).astype(np.uint64)
    mixed = np.zeros(len(tokens), np.uint64)
    for k in range(2 * reach + 1):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + padded[k : k + len(tokens)] + np.uint64(1)
    return mixed


def _same_launch(a: Recording, b: Recording, found: Array) -> tuple[Array, Array]:
    """Masks of the matched kernels with equal grid and block, and of those with grids known in both."""
    same, known = np.zeros(len(found), bool), np.zeros(len(found), bool)
    rows = np.flatnonzero((found >= 0) & (a.ops.kind == Kind.KERNEL))
    rows = rows[b.ops.kind[found[rows]] == Kind.KERNEL]
    if not len(rows):
        return same, known
    names = ("grid_x", "grid_y", "grid_z", "threads")
    mine, theirs = (x.trace.columns("kernels", names) for x in (a, b))
    at, other = a.ops.row[rows], b.ops.row[found[rows]]
    same[rows] = np.all([mine[n][at] == theirs[n][other] for n in names], axis=0)
    known[rows] = (mine["grid_x"][at] > 0) & (theirs["grid_x"][other] > 0)
    return same, known


def match_calls(a: Recording, b: Recording, found: Array, rows: Array) -> Array:
    """The rows of api_calls of `b` that correspond to `rows` of those of `a`: the n-th call of a name after
    the launch of the same operation."""
    linked = (found >= 0) & (a.ops.api >= 0)
    linked[linked] = b.ops.api[found[linked]] >= 0
    counterpart = np.full(a.trace.rows("api_calls") + 1, MISSING, np.int64)  # the last for calls without any
    counterpart[a.ops.api[linked]] = b.ops.api[found[linked]]
    anchors = np.flatnonzero(counterpart >= 0)
    bases: dict[str, int] = {}
    theirs = _after(b, distinct(counterpart[anchors]), bases)
    anchor, *name_and_number = _after(a, anchors, bases)
    mine = [column[rows] for column in (counterpart[anchor], *name_and_number)]
    keys = combinations(*(np.concatenate(pair) for pair in zip(theirs, mine, strict=True)))[1]
    out = join(keys[: len(theirs[0])], keys[len(theirs[0]) :])
    return np.where(mine[0] == MISSING, MISSING, out)


def _after(a: Recording, anchors: Array, bases: dict[str, int]) -> tuple[Array, Array, Array]:
    """For each call: the last anchor before it on its thread, its name, and its number among the calls of
    that name since then."""
    start, thread, name_id = a.trace.columns("api_calls", ("start", "thread", "name_id")).values()
    ids, at = dense(name_id)
    codes = [bases.setdefault(base_name(text), len(bases)) for text in a.trace.texts(ids.tolist())]
    name, order = np.array(codes, np.int64)[at], np.lexsort((start, thread))
    is_anchor = marked(len(order), anchors)[order]
    opens = is_anchor | begins_run(thread[order])
    since = np.cumsum(opens) - 1
    last, number = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    last[order] = np.where(is_anchor, order, MISSING)[opens][since]
    number[order] = nth_alike(since, name[order])
    return last, name, number
