"""The sizes of a decoder, and matrix products with the sizes that the profiler recorded: operations, bytes,
and what they reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import KernelFamily
from advisor.knowledge.operators import recorded_parts
from advisor.metrics import limits
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import ATTENTION, MATMUL
from advisor.metrics.loaded.operations import combinations
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, median_of, rows_at
from advisor.sources.schema import MISSING


class Decoder(NamedTuple):
    """Sizes in elements; `queries` and `keys` are those of all heads, `bytes_each` of one weight."""

    layers: int
    hidden: int
    queries: int
    keys: int
    intermediate: int
    vocabulary: int
    bytes_each: float

    @property
    def parameters(self) -> int:
        """The number of parameters that one step reads: of all layers and the output head."""
        layer = 2 * self.hidden * (self.queries + self.keys) + 3 * self.hidden * self.intermediate
        return self.layers * layer + self.hidden * self.vocabulary

    def products(self, count: int) -> list[tuple[str, int]]:
        """Name and parameters of the products of a layer, in the order in which they run, and of the
        output head, where a step makes `count` products; empty if it makes other ones."""
        joined = [("query, key and value", self.hidden * (self.queries + 2 * self.keys))]
        apart = [
            (n, self.hidden * s)
            for n, s in (("query", self.queries), ("key", self.keys), ("value", self.keys))
        ]
        gated = [("gate and up", 2 * self.hidden * self.intermediate)]
        single = [(n, self.hidden * self.intermediate) for n in ("gate", "up")]
        for attention in (joined, apart):
            for mlp in (gated, single):
                one = [*attention, ("attention output", self.hidden * self.queries), *mlp]
                one.append(("down", self.hidden * self.intermediate))
                if count == self.layers * len(one) + 1:
                    return [*one, ("output head", self.hidden * self.vocabulary)]
        return []


#: The second kernel of a product.
REDUCTION = "GEMM split-K reduction"

#: Position of the left operand among those of an operator; the right one follows it.
_LEFT = {
    "mm": 0,
    "_int_mm": 0,
    "_scaled_mm": 0,
    "addmm": 1,
    "_addmm_activation": 1,
    "bmm": 0,
    "baddbmm": 1,
    "linear": 0,
}
#: Products of two activations: neither operand is a weight.
_BATCHED = ("bmm", "baddbmm")
_BYTES = {
    "c10::half": 2, "c10::bfloat16": 2, "float": 4, "double": 8, "signed char": 1, "char": 1,
    "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1, "c10::float8_e4m3fnuz": 1, "c10::float8_e5m2fnuz": 1,
}  # fmt: skip


class Product(NamedTuple):
    """``batch`` products of m x k by k x n elements of ``size`` bytes (0: unknown)."""

    batch: int
    m: int
    k: int
    n: int
    size: int
    is_weight: bool

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.k * self.n

    @property
    def weight_bytes(self) -> int:
        return self.k * self.n * self.size if self.is_weight else 0

    @property
    def is_misaligned(self) -> bool:
        """Whether rows of the weights are not a multiple of the 16 bytes that tensor cores load at once
        (NVIDIA, matrix multiplication background)."""
        return self.is_weight and bool(self.size) and any(n * self.size % 16 for n in (self.k, self.n))

    @property
    def bytes(self) -> int:
        """Both operands and the result, each once."""
        return self.batch * self.size * (self.m * self.k + self.k * self.n + self.m * self.n)

    def __str__(self) -> str:
        return (f"{self.batch} x " if self.batch > 1 else "") + f"{self.m} x {self.k} x {self.n}"


def _operands(recorded: str, at: int) -> tuple[list[Any], int]:
    """Sizes of the operands of an operator, recorded as sizes, then types, in JSON; and the bytes of an
    element of the one at this position, 0 if unknown. Raises ValueError and IndexError."""
    sizes, types = [*recorded_parts(recorded), []][:2]
    return sizes, _BYTES.get(str(types[at]).lower(), 0) if types else 0


@cache
def product_of(operator: str, operands: str) -> Product | None:
    """The product of an operator (``aten::addmm``) with recorded operands; None for another operator and
    for sizes that do not fit each other."""
    name = operator.rpartition("::")[2]
    if name not in _LEFT:
        return None
    try:
        sizes, size = _operands(operands, _LEFT[name] + 1)
        left, right = sizes[_LEFT[name]], sizes[_LEFT[name] + 1]
        if name == "linear":
            right = right[::-1]
        *outer, k = map(int, left)
        *batches, rows, n = map(int, right)
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    batch = 1
    if name in _BATCHED:
        batch, outer = (batches or [1])[0], outer[1:]
    m = int(np.prod(outer)) if outer else 1
    if rows != k or min(m, k, n, batch) < 1:
        return None
    return Product(batch, m, k, n, size, name not in _BATCHED)


#: Operators of attention by where heads stand: behind the tokens of a sequence, or before them.
_HEADS_LAST = ("_flash_attention_forward", "_efficient_attention_forward", "_flash_attn_forward")
_HEADS_FIRST = (
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention",
    "_cudnn_attention_forward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)


class Attention(NamedTuple):
    """Attention of all queries over all keys, ``size`` bytes an element (0: unknown): a causal mask
    leaves half of the operations out, and is not recorded."""

    batch: int
    heads: int
    queries: int
    keys: int
    key_heads: int
    width: int
    size: int

    @property
    def flop(self) -> int:
        """Of the two products; Dao et al., FlashAttention-2, section 4.1."""
        return 4 * self.batch * self.heads * self.queries * self.keys * self.width

    @property
    def bytes(self) -> int:
        """Queries and results, keys and values, each once."""
        rows = self.heads * self.queries + self.key_heads * self.keys
        return 2 * self.batch * self.size * rows * self.width

    def __str__(self) -> str:
        return f"{self.batch} x {self.heads} heads x {self.queries} x {self.width} x {self.keys}"


@cache
def attention_of(operator: str, operands: str) -> Attention | None:
    """The same for an operator of attention whose sequences are padded to one length."""
    name = operator.rpartition("::")[2]
    order = (0, 1, 2, 3) if name in _HEADS_FIRST else (0, 2, 1, 3) if name in _HEADS_LAST else None
    if order is None:
        return None
    try:
        sizes, size = _operands(operands, 0)
        batch, heads, queries, width = (int(sizes[0][i]) for i in order)
        _, key_heads, keys, deep = (int(sizes[1][i]) for i in order)
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    if width != deep or min(batch, heads, queries, keys, key_heads, width) < 1:
        return None
    return Attention(batch, heads, queries, keys, key_heads, width, size)


Shape = TypeVar("Shape", Product, Attention)


class Sized(Struct, Generic[Shape], frozen=True):
    """Kernels of some families of a device in its window (positions `at` in `ops`), each with what it
    works on (position in `products`, MISSING if no sizes are recorded)."""

    at: Array
    product: Array
    products: list[tuple[str, Shape]]
    duration: Array
    reduction: Array

    def of(self, chosen: Array) -> tuple[float, float, float]:
        """Time (ns), operations and bytes of chosen kernels whose sizes are known."""
        mine = chosen & (self.product >= 0)
        count = np.bincount(self.product[mine & ~self.reduction], minlength=len(self.products))
        flop = sum(n * p.flop for n, (_, p) in zip(count.tolist(), self.products, strict=True))
        size = sum(n * p.bytes for n, (_, p) in zip(count.tolist(), self.products, strict=True))
        return float(self.duration[mine].sum()), float(flop), float(size)


Matmuls = Sized[Product]


def matmuls(a: Budgeted, device: int) -> Matmuls | None:
    """None if no matrix kernel has recorded sizes."""
    return _sized(a, device, MATMUL, product_of)


def attentions(a: Budgeted, device: int) -> Sized[Attention] | None:
    """The same for attention."""
    return _sized(a, device, ATTENTION, attention_of)


def _sized(
    a: Budgeted, device: int, families: Collection[str], read: Callable[[str, str], Shape | None]
) -> Sized[Shape] | None:
    origins = a.provenance.ops
    at = a.device_kernels(device)
    if origins is None or not len(at) or not origins.operand_texts:
        return None
    at = at[a.names.mask(lambda k: k.family in families)[a.op_name[at]]]
    reduction = a.names.mask(lambda k: k.operation == REDUCTION)[a.op_name[at]]
    operator, operands = origins.operator[at], origins.operands[at]
    first, pair = combinations(operator, operands)
    known: dict[tuple[str, Shape], int] = {}
    of_pair = np.full(len(first), MISSING, np.int64)
    for place, (i, j) in enumerate(rows_at(first, operator, operands)):
        name = origins.operators[i]
        if min(i, j) >= 0 and (found := read(name, origins.operand_texts[j])) is not None:
            of_pair[place] = known.setdefault((name, found), len(known))
    if not known:
        return None
    return Sized(at, of_pair[pair], list(known), a.ops.length[at].astype(float), reduction)


def recorded_weights(a: Stepped, found: Matmuls | None) -> int | None:
    """Bytes of the weights that a decode step multiplies by, the median of the window. None if sizes or
    types are unknown of nearly all products, and in a prefill, which reads more than weights."""
    if found is None or not a.step_count or not (a.window_phases == "decode").all():
        return None
    step = a.steps.op_step[found.at]
    inside = np.isin(step, a.window_steps)
    with_operands = np.array([*(p.size > 0 for _, p in found.products), False])[found.product]
    whole = float(found.duration[inside].sum())
    if (
        not whole
        or float(found.duration[inside & ~with_operands].sum()) > limits.kernels.UNSIZED_RATIO * whole
    ):
        return None
    weights = np.array([*(p.weight_bytes for _, p in found.products), 0])[found.product]
    mine = inside & with_operands & ~found.reduction
    by_step = np.bincount(step[mine], weights[mine], minlength=len(a.steps))[a.window_steps]
    return int(median_of(by_step)) or None


def own_products(names: Sequence[str], known: Sequence[KernelFamily]) -> Array:
    """Names of products that a program brings itself: names of libraries' products contain the tile."""
    return np.array(
        [
            k.operation in ("GEMM", "GEMV")
            and not k.of_framework
            and k.sm is None
            and k.engine is None
            and not re.search(r"\dx\d", name.split("(")[0])
            for name, k in zip(names, known, strict=True)
        ],
        bool,
    )
