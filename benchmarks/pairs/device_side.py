"""Workloads whose cause lies in what the GPU is given: copies, precision, kernels that are not fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gpu
import torch
import torch.nn.functional as F
from decoder import Decoder, Decoding, Prefill, plain_attention, plain_norm
from measure import Gain, Variant
from torch import Tensor

MEGABYTES = 1 << 20


def copies() -> Iterator[Variant]:
    """64 MiB to the device in every decode step: pageable, pinned, beside the step, not at all."""
    replay = Decoding(Decoder("middle", 8)).graph_step()
    size = 64 * MEGABYTES if gpu.HERE else MEGABYTES
    pageable = torch.empty(size, dtype=torch.uint8).random_()
    pinned = gpu.pinned(pageable)
    there = torch.empty_like(pageable, device=gpu.DEVICE)
    side = gpu.new_stream()

    def copied(source: Tensor) -> Callable[[], None]:
        def step() -> None:
            there.copy_(source, non_blocking=source is pinned)
            replay()

        return step

    def beside() -> None:
        with gpu.on(side):
            there.copy_(pinned, non_blocking=True)
        replay()

    none = Gain("transfer-bound", "no copy in the step", "copy_none")
    yield Variant("copy_none", "copies", replay, never=("transfer-bound", "pageable-copies"), marks=False)
    yield Variant(
        "copy_pageable",
        "copies",
        copied(pageable),
        ("pageable-copies", "transfer-bound"),
        gains=(Gain("pageable-copies", "pinned source", "copy_pinned"), none),
    )
    yield Variant(
        "copy_pinned",
        "copies",
        copied(pinned),
        ("transfer-bound",),
        ("pageable-copies",),
        gains=(none, Gain("transfer-bound", "the copy on a stream of its own", "copy_beside")),
    )
    yield Variant("copy_beside", "copies", beside, never=("pageable-copies",))


def logits() -> Iterator[Variant]:
    """The logits of all sequences copied to the host in every step, against their tokens alone."""
    replay = Decoding(Decoder("middle", 64)).graph_step()
    scores = torch.randn(64, 128_256 if gpu.HERE else 512, device=gpu.DEVICE)

    def step() -> None:
        replay()
        scores.cpu()

    gains = (Gain("transfer-bound", "tokens only", "logits_none"),)
    yield Variant("logits_none", "copies", replay, marks=False)
    yield Variant("logits_to_host", "copies", step, ("pageable-copies", "transfer-bound"), gains=gains)


def offload() -> Iterator[Variant]:
    """Weights that come from the host layer by layer: waited for, fetched a layer ahead, resident."""
    model = Decoder("middle", 4, length=4096 if gpu.HERE else 64)
    prompt = Prefill(model, 4096)
    names = ("qkv", "out", "up", "down")
    home = [{n: gpu.pinned(getattr(layer, n).data.cpu()) for n in names} for layer in model.layers]
    buffers = [{n: torch.empty_like(w, device=gpu.DEVICE) for n, w in home[0].items()} for _ in range(2)]
    copy_stream = gpu.new_stream()
    count = len(home)
    index = 0

    def fetch(i: int, stream: object) -> None:
        with gpu.on(stream):
            for name, weight in home[i % count].items():
                buffers[i % 2][name].copy_(weight, non_blocking=True)
        layer = model.layers[i % count]
        for name in names:
            getattr(layer, name).data = buffers[i % 2][name]

    yield Variant("offload_resident", "offload", prompt.step, ("compute-bound",), calls=4)

    def run(after_layer: Callable[[Tensor], None], first: Callable[[], None]) -> Callable[[], None]:
        def step() -> None:
            nonlocal index
            index = 0
            model.after_layer = after_layer
            first()
            prompt.step()

        return step

    def exposed(_: Tensor) -> None:
        nonlocal index
        index += 1
        if index < count:
            gpu.join(copy_stream)
            fetch(index, copy_stream)
            gpu.join(None, waits_for=copy_stream)

    def begin_exposed() -> None:
        gpu.join(copy_stream)
        fetch(0, copy_stream)
        gpu.join(None, waits_for=copy_stream)

    gains = (Gain("transfer-bound", "fetched a layer ahead", "offload_prefetched"),)
    top = ("transfer-bound", "waits-for-other-streams")
    yield Variant("offload_exposed", "offload", run(exposed, begin_exposed), top, gains=gains, calls=4)

    def prefetched(_: Tensor) -> None:
        """The next layer's weights are there; those after it go where this layer's were."""
        nonlocal index
        index += 1
        gpu.join(None, waits_for=copy_stream)
        gpu.join(copy_stream)
        if index + 1 < count:
            fetch(index + 1, copy_stream)

    def begin_prefetched() -> None:
        begin_exposed()
        fetch(1, copy_stream)

    yield Variant("offload_prefetched", "offload", run(prefetched, begin_prefetched), calls=4)


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as FP8 with a scale of its own, (rows, 1)."""
    scale = x.abs().amax(-1, keepdim=True).float() / 448.0
    scale = scale.clamp(min=1e-12)
    return (x.float() / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale


def quantising() -> Iterator[Variant]:
    """FP8 products whose inputs are quantised by several kernels, by one, and BF16 ones."""
    known: dict[int, tuple[Tensor, Tensor]] = {}

    def linear(quantise: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[Tensor, Tensor], Tensor]:
        def product(x: Tensor, weight: Tensor) -> Tensor:
            if id(weight) not in known:
                known[id(weight)] = _quantised(weight)
            w, w_scale = known[id(weight)]
            a, a_scale = quantise(x.reshape(-1, x.shape[-1]))
            y = torch._scaled_mm(a, w.t(), a_scale, w_scale.t(), out_dtype=x.dtype)
            return y.reshape(*x.shape[:-1], -1)

        return product

    fused = torch.compile(_quantised, dynamic=True)
    for kind, calls in (("decode", 8), ("prefill", 4)):
        known.clear()
        if kind == "decode":
            loop = Decoding(Decoder("middle", 64))
            model, make = loop.model, loop.graph_step
        else:
            prompt = Prefill(Decoder("middle", 2, length=2048 if gpu.HERE else 64), 2048)
            model, make = prompt.model, lambda: prompt.step  # noqa: B023
        names = {w: f"quantise_{w}_{kind}" for w in ("bf16", "separate", "fused")}
        yield Variant(names["bf16"], "quantising", make(), calls=calls)
        model.linear = linear(fused)
        yield Variant(names["fused"], "quantising", make(), calls=calls)
        model.linear = linear(_quantised)
        gains = (Gain("unfused-quantise|unfused-elementwise", "one kernel quantises", names["fused"]),)
        top = ("unfused-quantise", "unfused-elementwise")
        yield Variant(names["separate"], "quantising", make(), top, gains=gains, calls=calls)


def precision() -> Iterator[Variant]:
    """Products in FP32, TF32 and BF16."""
    prompt = Prefill(Decoder("middle", 2, length=1024, dtype=torch.float32), 1024)
    gains = (
        Gain("fp32-matmul", "TF32 products", "precision_tf32", "tensor_rate:precision=tf32"),
        Gain("fp32-matmul", "BF16 products", "precision_bf16"),
    )
    torch.set_float32_matmul_precision("highest")
    yield Variant("precision_fp32", "precision", prompt.step, ("fp32-matmul",), gains=gains, calls=3)
    torch.set_float32_matmul_precision("high")
    top = ("fp32-matmul", "compute-bound")
    yield Variant(
        "precision_tf32", "precision", prompt.step, top, ("launch-bound",), gains=gains[1:], calls=4
    )
    del prompt
    prompt = Prefill(Decoder("middle", 2, length=1024), 1024)
    yield Variant("precision_bf16", "precision", prompt.step, ("compute-bound",), ("fp32-matmul",), calls=4)


def casts() -> Iterator[Variant]:
    """FP32 weights that autocast casts in every step, against BF16 ones."""
    wide = Decoding(Decoder("large", 8, dtype=torch.float32))

    def step() -> None:
        with torch.autocast(gpu.DEVICE, torch.bfloat16):
            wide.step()

    gains = (Gain("repeated-weight-casts", "weights kept in BF16", "casts_none"),)
    yield Variant("casts_every_step", "precision", step, ("repeated-weight-casts",), gains=gains, calls=5)
    plain = Decoding(Decoder("large", 8))
    yield Variant("casts_none", "precision", plain.step, never=("repeated-weight-casts",), calls=6)


def attention() -> Iterator[Variant]:
    """Attention by products and a softmax against the fused kernel, in prompts and in decode steps."""
    prompt = Prefill(Decoder("middle", 2, length=2048), 2048)
    top = ("unfused-attention", "unfused-elementwise")
    yield Variant(
        "sdpa_prefill", "attention", prompt.step, ("compute-bound",), ("unfused-attention",), calls=4
    )
    prompt.model.attention = plain_attention
    gains = (Gain("unfused-attention", "fused attention", "sdpa_prefill"),)
    yield Variant("plain_prefill", "attention", prompt.step, top, gains=gains, calls=4)
    del prompt
    loop = Decoding(Decoder("middle", 16, length=4096 if gpu.HERE else 256))
    yield Variant("sdpa_decode", "attention", loop.graph_step())
    loop.model.attention = plain_attention
    gains = (Gain("unfused-attention", "fused attention", "sdpa_decode"),)
    yield Variant("plain_decode", "attention", loop.graph_step(), gains=gains)


def fusion() -> Iterator[Variant]:
    """Norms and activations written out, against the same model compiled."""
    prompt = Prefill(Decoder("middle", 2, length=2048), 2048)
    prompt.model.norm = plain_norm
    gains = (Gain("unfused-elementwise", "compiled model", "compiled_prefill"),)
    top = ("unfused-elementwise", "compute-bound")
    yield Variant("written_out_prefill", "fusion", prompt.step, top, gains=gains, calls=4)
    plain = prompt.model
    prompt.model = torch.compile(plain)
    yield Variant("compiled_prefill", "fusion", prompt.step, calls=4)
    del prompt, plain
    loop = Decoding(Decoder("small", 32))
    loop.model.norm = plain_norm
    gains = (Gain("unfused-elementwise", "compiled model", "compiled_decode"),)
    yield Variant("written_out_decode", "fusion", loop.graph_step(), gains=gains)
    loop.model = torch.compile(loop.model)
    loop.forward()
    yield Variant("compiled_decode", "fusion", loop.graph_step())


def cache_joins() -> Iterator[Variant]:
    """A KV cache that every step copies to make it longer, against one written in place."""
    loop = Decoding(Decoder("middle", 16, length=2048 if gpu.HERE else 256))
    yield Variant("cache_in_place", "attention", loop.graph_step(), never=("kv-cache-concatenation",))
    loop.model.appends = True
    gains = (Gain("kv-cache-concatenation", "written in place", "cache_in_place"),)
    yield Variant("cache_joined", "attention", loop.graph_step(), ("kv-cache-concatenation",), gains=gains)


def streams() -> Iterator[Variant]:
    """Products beside the decode step on another stream, after it, and without them; and two
    independent chains of small products in turn and at once."""
    replay = Decoding(Decoder("middle", 8)).graph_step()
    side = gpu.new_stream()
    a = torch.randn(4096 if gpu.HERE else 64, 4096 if gpu.HERE else 64, device=gpu.DEVICE).bfloat16()

    def beside() -> None:
        gpu.join(side)
        with gpu.on(side):
            for _ in range(4):
                a @ a
        replay()
        gpu.join(None, waits_for=side)

    def after() -> None:
        replay()
        for _ in range(4):
            a @ a

    yield Variant("stream_alone", "streams", replay)
    yield Variant("stream_beside", "streams", beside)
    yield Variant("stream_after", "streams", after)
    weights = [torch.randn(1024, 1024, device=gpu.DEVICE).bfloat16() for _ in range(12)]
    xs = [torch.randn(256, 1024, device=gpu.DEVICE).bfloat16() for _ in range(2)]

    def chain(x: Tensor) -> None:
        for w in weights:
            x = F.silu(x @ w)

    def in_turn() -> None:
        for x in xs:
            chain(x)

    def at_once() -> None:
        gpu.join(side)
        with gpu.on(side):
            chain(xs[0])
        chain(xs[1])
        gpu.join(None, waits_for=side)

    yield Variant("chains_in_turn", "streams", gpu.graphed(in_turn), marks=False)
    yield Variant("chains_at_once", "streams", gpu.graphed(at_once), marks=False)
