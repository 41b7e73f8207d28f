"""The sizes of a dense Llama-like decoder, and the matrix products that one of its steps makes."""

from __future__ import annotations

from typing import NamedTuple


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
        """Those that one step reads: of all layers and the output head."""
        layer = 2 * self.hidden * (self.queries + self.keys) + 3 * self.hidden * self.intermediate
        return self.layers * layer + self.hidden * self.vocabulary

    def products(self, count: int) -> list[tuple[str, int]]:
        """Name and parameters of the products of a layer, in the order in which they run, and of the
        output head, where a step makes `count` products; empty where it makes other ones."""
        joined = [("query, key and value", self.hidden * (self.queries + 2 * self.keys))]
        apart = [(n, self.hidden * s) for n, s in
                 (("query", self.queries), ("key", self.keys), ("value", self.keys))]  # fmt: skip
        gated = [("gate and up", 2 * self.hidden * self.intermediate)]
        single = [(n, self.hidden * self.intermediate) for n in ("gate", "up")]
        for attention in (joined, apart):
            for mlp in (gated, single):
                one = [*attention, ("attention output", self.hidden * self.queries), *mlp]
                one.append(("down", self.hidden * self.intermediate))
                if count == self.layers * len(one) + 1:
                    return [*one, ("output head", self.hidden * self.vocabulary)]
        return []
