"""Columns of a device's kernels, each gathered from the capture's tables once, as facts about a million
kernels spend most of their time on such gathers; and kernels of a pass of the model that other kernels could
replace: sorting samplers, attention in pieces, weights that are widened before each product, rows gathered
from many tables."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import KernelFamily
from advisor.metrics import limits
from advisor.metrics.loaded.kernels import (
    ATTENTION,
    MATMUL,
    UNFUSED,
    dense,
    is_helper,
    is_product,
    is_quantising,
    launch_shape,
    weight_bits,
)
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, begins_run, distinct, marked, run_of, sorting, where
from advisor.model.once import cached_property

T = TypeVar("T")

#: A softmax by hand subtracts the maximum, sums up powers and divides by the sum.
_BY_HAND = ("max / min", "unary math", "sum")
#: What its backward pass has of it: the gradient is multiplied, divided and summed up, with a scatter to the
#: maximum where that is not detached.
_BACKWARD = ("multiply", "divide", "sum")
_BETWEEN_PRODUCTS = UNFUSED | {"memset", "reduction"}
#: Operators of products with weights, and of two activations.
_OF_WEIGHTS, _OF_ACTIVATIONS = ("linear", "addmm", "_addmm_activation"), ("bmm", "baddbmm")


def gathered(make: Callable[[DeviceKernels], T]) -> cached_property[T]:
    """What this function computes of a device's kernels."""
    return cached_property(make)


class DeviceKernels:
    """A device's kernels in the window; `at` are their positions in `ops`."""

    def __init__(self, a: Stepped, at: Array) -> None:
        self._a, self.at = a, at

    name = gathered(lambda k: k._a.names.index[k.row])
    start = gathered(lambda k: k._a.trace.columns("kernels", ("start",))["start"][k.row])
    end = gathered(lambda k: k._a.trace.columns("kernels", ("end",))["end"][k.row])
    length = gathered(lambda k: k._a.ops.length[k.at])
    step = gathered(lambda k: k._a.steps.op_step[k.at])
    #: The step of each; where there are no steps, all belong to one pass.
    passes = gathered(lambda k: k.step if k._a.step_count else np.zeros(len(k.at), np.int64))
    attention_pieces = gathered(lambda k: attention_pieces(k._a, k.at, k.passes))

    @cached_property
    def of_one_phase(self) -> tuple[Array | slice, Array]:
        """Index of the kernels in the window's steps of the commonest phase, and their steps from 0 on."""
        a, phases = self._a, np.array(self._a.steps.phase)
        common = max(set(a.steps.phase), key=lambda p: (a.steps.phase.count(p), p))
        chosen = np.zeros(len(a.steps) + 1, bool)
        chosen[a.window_steps] = phases[a.window_steps] == common
        inside = where(chosen.take(self.step))
        return inside, (np.cumsum(chosen, dtype=np.int32) - np.int32(1)).take(self.step[inside])

    @property
    def shape(self) -> Array:
        """A number for each grid and block size; few ask for it, and it takes as much memory as times."""
        return launch_shape(self._a.trace, self.row)

    @cached_property
    def row(self) -> Array | slice:
        """Their rows in the table of kernels: a slice, which copies no column, where it is sorted."""
        row = self._a.ops.row[self.at]
        return run_of(row) if (row[1:] > row[:-1]).all() else row

    @cached_property
    def blocks(self) -> Array:
        """Grid sizes, 0 if not recorded."""
        blocks = self._a.trace.columns("kernels", ("blocks",))["blocks"][self.row]
        return blocks if blocks.min(initial=0) >= 0 else np.maximum(blocks, 0)


def narrow_ns(start: Array, end: Array, blocks: Array, sms: int) -> float:
    """Time during which all running kernels together have fewer blocks than half the SMs, ns."""
    time = np.concatenate((start, end))
    order = np.argsort(time, kind="stable")
    running = np.cumsum(np.concatenate((blocks, -blocks))[order])[:-1]
    return float(np.diff(time[order])[(running > 0) & (running * 2 < sms)].sum())


class KernelOrder(Struct, frozen=True):
    """Kernels of steps by stream and time: positions in what was asked about (`of`), in `names` and their
    length (ns). `run` numbers the stretches of one stream and step."""

    of: Array
    name: Array
    length: Array
    run: Array


def in_order(a: Stepped, at: Array, step: Array) -> KernelOrder:
    kept = np.flatnonzero((a.op_name[at] >= 0) & (step >= 0))
    kept = kept[sorting(a.ops.start[at[kept]], a.ops.stream[at[kept]])]
    run = np.cumsum(begins_run(a.ops.stream[at[kept]], step[kept]))
    return KernelOrder(kept, a.op_name[at[kept]], a.ops.length[at[kept]], run)


#: Families of what makes a token of the last product of a step.
_SAMPLING = frozenset(("sampling", "scan_sort", "softmax", "reduction", "elementwise", "copy", "index"))


def sampling_sorts(a: Stepped, at: Array, step: Array) -> Array:
    """Mask over operations (positions `at` in `ops`, with their step, -1 for none): the sorts and scans
    behind the last matrix product of their step."""
    return _behind_products(a, at, step, lambda k: k.family == "scan_sort" and k.operation != "top-k")


def sampling_kernels(a: Stepped, at: Array, step: Array) -> Array:
    """The same of all that may choose a token there: softmax, sorts, reductions and what is between them; not
    the caches that are gathered in the order of the beams afterwards."""
    behind = _behind_products(a, at, step, lambda k: k.family in _SAMPLING)
    return np.asarray(behind & ~cache_reorders(a, at, step).of)


def _behind_products(a: Stepped, at: Array, step: Array, wanted: Callable[[KernelFamily], bool]) -> Array:
    name = a.op_name[at]
    product, mine = (np.append(of, False)[name] for of in (a.names.mask(is_product), a.names.mask(wanted)))
    if not mine.any():
        return mine
    order = sorting(a.ops.start[at])
    product, mine, step = product[order], mine[order], step[order]
    last = np.full(int(step.max(initial=-1)) + 2, len(name))  # the last entry is that of no step
    products = np.flatnonzero(product & (step >= 0))
    last[step[products]] = products
    found = np.flatnonzero(mine)
    found = found[found > last[step[found]]]
    return marked(len(name), found if isinstance(order, slice) else order[found])


class Pieces(Struct, frozen=True):
    """Attention that runs as a product, kernels with a softmax among them, and a product. `inner` (what runs
    between, and long copies just before) and `products` are masks over the given operations; `count` is the
    number of pieces."""

    inner: Array
    products: Array
    count: int


def attention_pieces(a: Stepped, at: Array, step: Array) -> Pieces:
    """The pieces among operations, given as for `sampling_sorts`. One piece a step is a loss or a sampler.
    Products with weights, if operators are recorded, do not belong to attention."""
    softmax = a.names.mask(lambda k: k.family == "softmax" and k.traits.get("log_softmax") is not True)
    if not softmax.any() and not set(_BY_HAND) <= set(a.names.operations):
        none = np.zeros(len(at), bool)
        return Pieces(none, none, 0)
    kernels = in_order(a, at, step)
    product = a.names.mask(is_product)[kernels.name]
    edges = np.flatnonzero(product)
    first, second = edges[:-1], edges[1:]
    product &= ~_operators(a, at[kernels.of], _OF_WEIGHTS)

    def within(wanted: Array) -> Array:
        """Sums of a value over the kernels between each product and the next."""
        total = np.append(0, np.cumsum(wanted))
        return np.asarray(total[second] - total[first + 1])

    def some(*operations: str) -> Array:
        """Whether each of these operations runs between a product and the next."""
        masks = (a.names.mask(lambda k, one=one: k.operation == one) for one in operations)
        return np.asarray(np.logical_and.reduce([within(mask[kernels.name]) > 0 for mask in masks]))

    def between(most: int, others: Array, besides: Array | int = 0) -> Array:
        """Which products have at most this many kernels between, long ones (with those `besides`, ns), and
        none of the others."""
        near = product[first] & product[second] & (kernels.run[first] == kernels.run[second])
        near &= (second - first - 1 <= most) & (within(others) == 0)
        long = within(kernels.length) + besides >= limits.kernels.SCORES_RATIO * (
            kernels.length[first] + kernels.length[second]
        )
        return np.asarray(near & long)

    small = a.names.mask(lambda k: k.family in _BETWEEN_PRODUCTS and k.operation != "loss")[kernels.name]
    by_hand, softmaxes = some(*_BY_HAND), within(softmax[kernels.name])
    is_copy = a.names.mask(lambda k: k.operation == "copy / layout change")[kernels.name]
    begin, copied = _copies_before(kernels, first, is_copy)
    found = between(limits.kernels.SCORES_DISTANCE, ~small, copied)
    found &= (softmaxes == 1) | (softmaxes == 0) & by_hand  # linear attention has two, of queries and keys
    if found.any():
        cubes = (kernels.name.astype(np.int64) + 1) ** 3
        kind = dense(within(cubes))[1]  # equal sums: the same kernels, in any order
        found &= (np.bincount(kind, found) > len(distinct(kernels.run[first[found]])))[kind]
    if (forward := np.flatnonzero(found & by_hand & (softmaxes == 0))).size:
        # Behind the forward pass, as often as in it: a norm by hand comes more often.
        scatter = a.names.mask(lambda k: k.family == "index")[kernels.name]
        back = some(*_BACKWARD) & ~by_hand & ~found & (softmaxes == 0)
        back &= between(2 * limits.kernels.SCORES_DISTANCE, ~small & ~scatter)
        last = np.full(int(kernels.run[-1]) + 1, len(first))
        last[kernels.run[first[forward]]] = forward  # ascending: the last one of each run stays
        back &= np.arange(len(first)) > last[kernels.run[first]]
        found |= back & (np.bincount(kind, back) == len(forward))[kind]
    edge = np.zeros(len(kernels.of) + 1, np.int64)
    np.add.at(edge, np.append(first[found] + 1, begin[found]), 1)
    np.add.at(edge, np.append(second[found], first[found]), -1)
    inner = marked(len(at), kernels.of[np.cumsum(edge[:-1]) > 0])
    products = marked(len(at), kernels.of[np.append(first[found], second[found])])
    return Pieces(inner, products, int(found.sum()))


def _copies_before(kernels: KernelOrder, products: Array, is_copy: Array) -> tuple[Array, Array]:
    """Where the copies just before each product begin, and what they take, ns: those of half its length or
    more. So long are keys and values that are repeated for the heads that share them, where a step reads more
    of them than it computes; what only changes a layout is shorter."""
    index = np.arange(len(kernels.of))
    if not len(products):
        return products, products
    following = products[np.minimum(np.searchsorted(products, index), len(products) - 1)]
    long = (
        is_copy & (2 * kernels.length >= kernels.length[following]) & (kernels.run == kernels.run[following])
    )
    begin = np.maximum.accumulate(np.where(long, -1, index))[np.maximum(products - 1, 0)] + 1
    begin = np.minimum(begin, products)
    total = np.append(0, np.cumsum(kernels.length))
    return begin, total[products] - total[begin]


def _operators(a: Stepped, at: Array, names: Collection[str]) -> Array:
    """Which of these operations come from operators of these names, if operators are recorded."""
    origins = a.provenance.ops
    if origins is None or not origins.operators:
        return np.zeros(len(at), bool)
    of = np.array([n.rpartition("::")[2] in names for n in origins.operators] + [False], bool)
    return np.asarray(of[origins.operator[at]] | of[origins.outer[at]])


def widened_weights(a: Stepped, at: Array, step: Array, attention: Pieces) -> Array:
    """Mask over operations, given as for `sampling_sorts`: kernels of a framework that widen the weights of
    the following product to 16 bits, more than once a step. Signs: a cast from another type than FP32, and
    about the length of a product that is bound by its bytes."""
    return _converted(a, at, step, attention, _multiplies_16_bits, narrow=False)


def widened_caches(a: Stepped, at: Array, step: Array, attention: Pieces) -> Array:
    """The same before a kernel that computes attention: keys and values that are stored in fewer bits."""
    return _converted(
        a, at, step, attention, lambda k: k.family in ATTENTION and not is_helper(k), narrow=False
    )


def narrowed_weights(a: Stepped, at: Array, step: Array, attention: Pieces) -> Array:
    """The same for casts from FP32 to 16 bits, as automatic mixed precision makes them for a model held in
    FP32: casts of activations are shorter, or the product is bound by arithmetic."""
    return _converted(a, at, step, attention, _multiplies_16_bits, narrow=True)


def quantised_inputs(a: Stepped, at: Array, step: Array) -> Array:
    """Mask over operations, given as for `sampling_sorts`: kernels that only quantise what the following
    matrix product reads, with few other kernels between."""
    out = np.zeros(len(at), bool)
    if not (quantising := a.names.mask(is_quantising)).any():
        return out
    kernels = in_order(a, at, step)
    mine = quantising[kernels.name]
    product = a.names.mask(lambda k: k.family in MATMUL and not is_helper(k))[kernels.name]
    ends = np.flatnonzero(product)
    if len(ends):
        to = ends[np.minimum(np.searchsorted(ends, np.arange(len(kernels.of))), len(ends) - 1)]
        between = np.cumsum(~mine & ~product)
        near = (between[to] - between >= 0) & (between[to] - between <= limits.kernels.QUANTISING_DISTANCE)
        out[kernels.of[mine & near & (kernels.run == kernels.run[to])]] = True
    return out


def _converted(
    a: Stepped, at: Array, step: Array, attention: Pieces, into: Callable[[KernelFamily], bool], narrow: bool
) -> Array:
    out = np.zeros(len(at), bool)
    widens = a.names.mask(lambda k: k.traits.get("widens") is True)
    narrows = a.names.mask(lambda k: k.operation == "cast") & ~widens
    if not (narrows if narrow else widens).any():
        return out
    kernels = in_order(a, at, step)
    product = a.names.mask(into)[kernels.name] & ~attention.products[kernels.of]
    product &= ~_operators(a, at[kernels.of], _OF_ACTIVATIONS)
    moving = (
        a.names.mask(lambda k: k.family in ("copy", "elementwise"))[kernels.name]
        & ~attention.inner[kernels.of]
    )
    cast = a.names.mask(lambda k: k.operation != "multiply")
    ends = np.flatnonzero(~moving)
    place = np.searchsorted(ends, np.arange(len(kernels.of)))  # of the kernel that ends the run of each
    to = np.append(ends, len(kernels.of) - 1)[place]
    mine = moving & product[to] & (kernels.run == kernels.run[to]) if len(to) else moving
    mine &= kernels.length >= np.maximum(
        limits.kernels.WIDENING_RATIO * kernels.length[to], limits.kernels.WIDENING_NS
    )

    def before(wanted: Array) -> Array:
        """Sums of a value over the kernels of each run."""
        return np.bincount(place, np.where(mine, wanted, 0), len(ends) + 1)

    if narrow:
        mine &= narrows[kernels.name]
        shown = before(mine) > 0
    else:  # a cast from FP32 behind a widening multiplication is one of an activation, not of a weight
        shown = before((widens & cast)[kernels.name]) > 0
        shown |= (before(widens[kernels.name]) > 0) & (before(narrows[kernels.name]) == 0)
    enough = shown & (before(mine) <= limits.kernels.WIDENING_DISTANCE)
    enough &= before(kernels.length) >= limits.kernels.WIDENED_RATIO * np.append(kernels.length[ends], 0)
    if enough.sum() > len(distinct(kernels.run[mine & enough[place]])):
        out[kernels.of] = mine & enough[place]
    return out


def _multiplies_16_bits(kernel: KernelFamily) -> bool:
    whole = is_product(kernel) and not is_helper(kernel)
    narrow = weight_bits(kernel) == 16 and kernel.traits.get("precision") not in ("fp32", "tf32")
    return whole and narrow and kernel.traits.get("integer") is not True


# --- rows that a step gathers from many tables: embeddings of a recommender, KV caches of beams that changed
# places; one kernel each


class Gathers(Struct, frozen=True):
    """`of` is a mask over what was asked about; `start` and `end` (ns) are those of each stretch."""

    of: Array
    start: Array
    end: Array


def embedding_lookups(a: Stepped, at: Array, step: Array) -> Gathers:
    """Embeddings and embedding bags of which many follow each other, and their gradients, among operations
    given as for `sampling_sorts`. PyTorch runs `nn.Embedding` as a plain gather, which in a language model is
    something else."""
    plain = a.program.is_language_model is not True
    return _gathers(a, at, step, lambda k: k.family == "embedding" or (plain and _gathers_rows(k)), 0)


def cache_reorders(a: Stepped, at: Array, step: Array) -> Gathers:
    """Gathers of whole KV caches in a language model, as beam search has them: layer after layer, without a
    product between."""
    language_model = a.program.is_language_model
    return _gathers(
        a, at, step, lambda k: bool(language_model) and _gathers_rows(k), limits.kernels.CACHE_GATHER_NS
    )


def _gathers_rows(kernel: KernelFamily) -> bool:
    return kernel.family == "index" and kernel.operation.startswith("row gather")


def _gathers(
    a: Stepped, at: Array, step: Array, wanted: Callable[[KernelFamily], bool], least_ns: int
) -> Gathers:
    """Wanted kernels of at least this many ns, `GATHERS` or more in a row without a product between."""
    mask = a.names.mask(wanted)
    some = mask.any() and np.append(mask, False)[a.op_name[at]] & (a.ops.length[at] >= least_ns)
    if not np.any(some):
        return Gathers(np.zeros(len(at), bool), *np.empty((2, 0), np.int64))
    kernels = in_order(a, at, step)
    mine = mask[kernels.name] & (kernels.length >= least_ns)
    heavy = a.names.mask(lambda k: k.family in MATMUL | ATTENTION)[kernels.name]
    stretch = np.cumsum(heavy | begins_run(kernels.run))
    mine &= (np.bincount(stretch, mine) >= limits.kernels.GATHERS)[stretch]
    found = np.flatnonzero(mine)
    first, of = begins_run(stretch[found]), at[kernels.of[found]]
    last = np.append(first[1:], True)[: len(found)]
    return Gathers(marked(len(at), kernels.of[found]), a.ops.start[of[first]], a.ops.end[of[last]])
