"""Rows that a step gathers from many tables, one kernel each: embeddings of a recommender, and KV caches of
beams that changed places."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import KernelFamily
from advisor.metrics.kernels import ATTENTION, MATMUL
from advisor.metrics.passes import in_order
from advisor.model.arrays import Array, begins_run

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis

#: At least this many gathers in a stretch without products read as many tables, or the cache of each layer.
_MANY = 8
#: Shorter gathers move rows of an input, not a cache, ns.
_CACHE_NS = 3_000


class Gathers(Struct, frozen=True):
    """`of` is a mask over what was asked about; `start` and `end` (ns) are those of each stretch."""

    of: Array
    start: Array
    end: Array


def embedding_lookups(a: Analysis, at: Array, step: Array) -> Gathers:
    """Embeddings and embedding bags of which many follow each other, and their gradients, among operations
    given as for `sampling_sorts`. PyTorch runs `nn.Embedding` as a plain gather, which in a language model is
    something else."""
    plain = a.program.is_language_model is not True
    return _many(a, at, step, lambda k: k.family == "embedding" or (plain and _gathers_rows(k)), 0)


def cache_reorders(a: Analysis, at: Array, step: Array) -> Gathers:
    """Gathers of whole KV caches in a language model, as beam search has them: layer after layer, without a
    product between."""
    if not a.program.is_language_model:
        return _none(at)
    return _many(a, at, step, _gathers_rows, _CACHE_NS)


def _none(at: Array) -> Gathers:
    return Gathers(np.zeros(len(at), bool), np.empty(0, np.int64), np.empty(0, np.int64))


def _gathers_rows(kernel: KernelFamily) -> bool:
    return kernel.family == "index" and kernel.operation.startswith("row gather")


def _many(
    a: Analysis, at: Array, step: Array, wanted: Callable[[KernelFamily], bool], least_ns: int
) -> Gathers:
    """Wanted kernels of at least this many ns, of which at least `_MANY` follow each other without a
    product."""
    mask = a.names.mask(wanted)
    if not mask.any() or not len(at):
        return _none(at)
    q = in_order(a, at, step)
    mine = mask[q.name] & (q.length >= least_ns)
    heavy = a.names.mask(lambda k: k.family in MATMUL | ATTENTION)[q.name]
    stretch = np.cumsum(heavy | begins_run(q.run))
    mine &= (np.bincount(stretch, mine) >= _MANY)[stretch]
    if not mine.any():
        return _none(at)
    found = np.flatnonzero(mine)
    first = begins_run(stretch[found])
    out = np.zeros(len(at), bool)
    out[q.of] = mine
    of = at[q.of[found]]
    return Gathers(out, a.ops.start[of[first]], a.ops.end[of[np.append(first[1:], True)]])
