"""A decoder as Llama's with random weights, whose parts can be exchanged one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gpu
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
Linear = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int

    @property
    def head(self) -> int:
        return self.hidden // self.heads


SHAPES = {
    "short": Shape(2, 2048, 32, 4, 5632, 32000),
    "small": Shape(8, 2048, 32, 4, 5632, 32000),
    "middle": Shape(6, 4096, 32, 8, 14336, 32000),
    "large": Shape(4, 8192, 64, 8, 28672, 32000),
}
#: Stands in for every shape where there is no GPU.
TINY = Shape(2, 128, 4, 2, 256, 512)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """`q` (batch, heads, tokens, head); `k`, `v` with fewer heads; no mask: causal."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """As `fused_attention`, by a product, a mask, a softmax and a product that each go through memory."""
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return scores.float().softmax(-1).to(q.dtype) @ v


def fused_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight)


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    """A root-mean-square norm written out, as models' own code has it."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        h, d = shape.hidden, shape.head
        self.shape = shape
        self.qkv = self.weight((shape.heads + 2 * shape.kv_heads) * d, h)
        self.out = self.weight(h, h)
        self.up = self.weight(2 * shape.ffn, h)
        self.down = self.weight(h, shape.ffn)
        self.norm1, self.norm2 = nn.Parameter(torch.ones(h)), nn.Parameter(torch.ones(h))

    @staticmethod
    def weight(*size: int) -> nn.Parameter:
        return nn.Parameter(torch.randn(*size, device=gpu.DEVICE) * 0.02)


class Decoder(nn.Module):
    """`model(ids, positions, mask)`: the next token of each sequence, (batch, 1)."""

    def __init__(
        self, shape: str, batch: int, *, length: int = 1024, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        s = SHAPES[shape] if gpu.HERE else TINY
        self.shape, self.batch, self.length = s, batch, length
        self.attention: Attention = fused_attention
        self.linear: Linear = F.linear
        self.norm = fused_norm
        self.after_layer: Callable[[Tensor], None] | None = None
        self.appends = False
        self.embedding = Layer.weight(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.last_norm = nn.Parameter(torch.ones(s.hidden))
        self.to(gpu.DEVICE, dtype or torch.bfloat16)
        kind = self.embedding.dtype
        cache = (s.layers, batch, s.kv_heads, length, s.head)
        self.k = torch.zeros(cache, device=gpu.DEVICE, dtype=kind)
        self.v = torch.zeros_like(self.k)
        rate = 1.0 / 10000 ** (torch.arange(0, s.head, 2, device=gpu.DEVICE).float() / s.head)
        angle = torch.outer(torch.arange(length, device=gpu.DEVICE).float(), rate)
        self.cos, self.sin = angle.cos().to(kind), angle.sin().to(kind)
        self.requires_grad_(False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[positions].to(x.dtype), self.sin[positions].to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def attend(self, i: int, x: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        s, layer = self.shape, self.layers[i]
        batch, tokens, _ = x.shape
        qkv = self.linear(x, layer.qkv).view(batch, tokens, -1, s.head).transpose(1, 2)
        q, k, v = qkv.split((s.heads, s.kv_heads, s.kv_heads), 1)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        if mask is not None and self.appends:
            k, v = torch.cat((self.k[i, :, :, 1:], k), 2), torch.cat((self.v[i, :, :, 1:], v), 2)
        else:
            self.k[i].index_copy_(2, positions, k.to(self.k.dtype))
            self.v[i].index_copy_(2, positions, v.to(self.v.dtype))
            if mask is not None:
                k, v = self.k[i], self.v[i]
        out = self.attention(q, k, v, mask)
        return self.linear(out.transpose(1, 2).reshape(batch, tokens, -1), layer.out)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            x = x + self.attend(i, self.norm(x, layer.norm1), positions, mask)
            gate, up = self.linear(self.norm(x, layer.norm2), layer.up).chunk(2, -1)
            x = x + self.linear(F.silu(gate) * up, layer.down)
            if self.after_layer is not None:
                self.after_layer(x)
        return self.logits(x).argmax(-1)

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(self.norm(x[:, -1:], self.last_norm), self.embedding)


@dataclass
class Decoding:
    """One decode step of `model`: every sequence at the same position, its token fed back."""

    model: Decoder
    at: int = 128

    def __post_init__(self) -> None:
        m = self.model
        self.ids = torch.randint(0, m.shape.vocab, (m.batch, 1), device=gpu.DEVICE)
        self.positions = torch.full((1,), self.at, device=gpu.DEVICE)
        self.mask = (torch.arange(m.length, device=gpu.DEVICE) <= self.at)[None, None, None]
        self.host = gpu.pinned(torch.empty_like(self.ids, device="cpu"))

    @torch.no_grad()
    def forward(self) -> None:
        self.ids.copy_(self.model(self.ids, self.positions, self.mask))

    def read(self) -> list[int]:
        """The tokens on the host, waited for as an engine's loop does."""
        self.host.copy_(self.ids, non_blocking=True)
        if gpu.HERE:
            torch.cuda.current_stream().synchronize()
        return [int(row[0]) for row in self.host.tolist()]

    def step(self) -> None:
        self.forward()
        self.read()

    def graph_step(self) -> Callable[[], None]:
        """A step whose forward is one CUDA graph."""
        forward = gpu.graphed(self.forward)

        def step() -> None:
            forward()
            self.read()

        return step


@dataclass
class Prefill:
    """One prompt step of `model`."""

    model: Decoder
    tokens: int

    def __post_init__(self) -> None:
        m = self.model
        if not gpu.HERE:
            self.tokens = min(self.tokens, 32)
        self.ids = torch.randint(0, m.shape.vocab, (m.batch, self.tokens), device=gpu.DEVICE)
        self.positions = torch.arange(self.tokens, device=gpu.DEVICE)

    @torch.no_grad()
    def step(self) -> None:
        self.model(self.ids, self.positions)
