"""Layers of a model inside its steps, and the part of each that a kernel works for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.knowledge.engine_signs import workload_knowledge
from advisor.knowledge.files import KernelFamily
from advisor.metrics import limits
from advisor.metrics.budgeted.passes import DeviceKernels, attention_pieces
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.host import innermost_on_threads
from advisor.metrics.loaded.kernels import ATTENTION, Names, dense, is_combining, is_helper
from advisor.metrics.loaded.operations import Kind
from advisor.model.arrays import (
    Array,
    among,
    distinct,
    marked,
    median_of,
    merged,
    picked,
    sorting,
    where,
    without,
)
from advisor.sources.schema import MISSING

PARTS = ("attention", "ffn", "other")
#: From this many blocks of queries on, split-KV attention reads a prompt.
_PROMPT_BLOCKS = 2
_ATTENTION, _FFN, _OTHER = range(3)
#: Number of distinct kernel sequences that are examined.
_SEQUENCES = 200
#: The role of a kernel family in the order of a layer.
(_PRODUCT, _CORE, _LATENT, _SOFTMAX, _NORM, _ACTIVATION, _EXPERTS, _CACHE, _ROTATION, _HELPER, _JOIN) = range(
    1, 12
)
_SIGNS = {
    "gemm": _PRODUCT,
    "gemv": _PRODUCT,
    "softmax": _SOFTMAX,
    "norm": _NORM,
    "activation": _ACTIVATION,
    "moe": _EXPERTS,
    "kv_cache": _CACHE,
    "rope": _ROTATION,
}
_ARITHMETIC = frozenset(("multiply", "add", "subtract"))


class Layers(Struct, frozen=True):
    """Kernels (positions `at` in `ops`) that lie in layers: the number of the `layer` in its step (or
    the object, or range), the `part` of it (position in PARTS), the `step` (numbered from 0). `joins`
    are kernels that append to the KV cache by concatenation, by position in `ops`."""

    by: str
    at: Array
    step: Array
    layer: Array
    part: Array
    joins: Array

    @property
    def count(self) -> int:
        return int(self.layer.max()) + 1

    def times(self, duration: Array) -> Array:
        """Kernel time (ns) by step, layer and part."""
        steps = int(self.step.max()) + 1
        shape = (steps, self.count, len(PARTS))
        key = (self.step.astype(np.int64) * self.count + self.layer) * len(PARTS) + self.part
        return np.bincount(key, duration, steps * self.count * len(PARTS)).reshape(shape)


def is_layout_change(kernel: KernelFamily) -> bool:
    """Tensors between NCHW and NHWC, and formats of TensorRT."""
    return kernel.operation.startswith("layout change")


def find_layers(a: Budgeted, device: int) -> Layers | None:
    """Layers by Python modules, else by ranges that number them, else by the order of the kernels in steps
    of the commonest phase; None if nothing shows them, or they hold less than half of the kernel time."""
    kernels = a.kernels(device)
    chosen, step = kernels.of_one_phase if a.step_count else (slice(None), kernels.passes)
    at = kernels.at[chosen]
    if not len(at):
        return None
    order = sorting(step)
    at, step = at[order], step[order]
    duration = picked(a.ops.length, at)
    signs = np.array([_sign(k) for k in a.names.known], np.int8)[picked(a.op_name, at)]
    bounds = np.searchsorted(step, np.arange(int(step.max()) + 2))
    runs = [signs[lo:hi] for lo, hi in pairwise(bounds.tolist())]
    joins = np.zeros(len(at), bool)
    if (signs == _JOIN).any():
        products = attention_pieces(a, at, step).products
        attending = np.where(products, _CORE, signs)  # a product with the keys, where no kernel does all
        joins = _joins(attending, bounds)
    found = (_by_modules(a, at), _by_ranges(a, at, step), _by_order(runs) if a.step_count else None)
    for by, labels in zip(("Python modules", "ranges", "order of the kernels"), found, strict=True):
        if labels is None:
            continue
        layer, part = labels
        inside = where(layer >= 0)
        known, number = dense(layer[inside])
        held = duration[inside].sum() >= limits.kernels.LAYERS_RATIO * duration.sum()
        if len(known) >= limits.kernels.LAYERS and held and (part[inside] == _ATTENTION).any():
            return Layers(by, at[inside], step[inside], number.astype(np.int32), part[inside], at[joins])
    return None


def concatenations(names: Names, kernels: DeviceKernels, layers: Layers | None) -> Array:
    """Positions in `ops` of kernels that only put tensors one behind the other, those that append to the KV
    cache (of these layers) left out."""
    joining = names.mask(lambda k: k.operation == "concatenate")[kernels.name]
    return kernels.at[joining] if layers is None else without(kernels.at[joining], layers.joins)


def _sign(kernel: KernelFamily) -> int:
    if kernel.family in ATTENTION:
        core = _LATENT if "MLA" in kernel.operation else _CORE
        return _HELPER if is_helper(kernel) else core
    if kernel.operation == "concatenate":
        return _JOIN
    if kernel.family == "elementwise" and kernel.operation in _ARITHMETIC:
        return _ROTATION
    return _HELPER if is_helper(kernel) else _SIGNS.get(kernel.family, 0)


def _joins(signs: Array, bounds: Array) -> Array:
    """Mask of the kernels that append keys or values to a cache by concatenation: in their step (`bounds`)
    attention follows, without a rotation (whose halves are concatenated, too) or a product between, and
    nothing writes to a cache."""
    joining, writing = np.flatnonzero(signs == _JOIN), np.flatnonzero(signs == _CACHE)
    decisive = np.flatnonzero(among(signs, (_CORE, _LATENT, _PRODUCT, _ROTATION)))
    following = np.append(decisive, len(signs))[np.searchsorted(decisive, joining)]
    step = np.searchsorted(bounds, joining, "right") - 1
    appends = (following < bounds[step + 1]) & (np.append(signs, 0)[following] == _CORE)
    appends &= (np.diff(np.searchsorted(writing, bounds)) == 0)[step]
    return marked(len(signs), joining[appends])


# ------------------------------------------------------------------------------- by names


def _by_modules(a: Budgeted, at: Array) -> tuple[Array, Array] | None:
    """Of modules of one class below the same parent, the outermost ones that hold attention."""
    found = a.provenance.ops
    if found is None or not found.modules:
        return None
    names, modules = workload_knowledge(), found.modules
    group: dict[tuple[int, str], list[int]] = {}
    below: list[set[str | None]] = [set() for _ in modules]
    for i, module in enumerate(modules):
        group.setdefault((module.parent, module.kind), []).append(i)
    own = [names.part(module.kind) for module in modules]
    for i in range(len(modules) - 1, -1, -1):  # parents come first
        if modules[i].parent >= 0:
            below[modules[i].parent] |= below[i] | {own[i]}
    layer, part, count = [MISSING] * len(modules), [_OTHER] * len(modules), 0
    for i, module in enumerate(modules):
        if module.parent >= 0 and layer[module.parent] >= 0:
            layer[i], part[i] = layer[module.parent], part[module.parent]
            if part[i] == _OTHER and (named := own[i]) is not None:
                part[i] = PARTS.index(named)
        elif (
            own[i] is None
            and len(group[module.parent, module.kind]) >= limits.kernels.LAYERS
            and "attention" in below[i]
        ):
            layer[i], count = count, count + 1
    of = found.module[at]
    layers, parts = (np.append(np.array(v, np.int64), MISSING)[of] for v in (layer, part))
    return layers, parts


def _by_ranges(a: Budgeted, at: Array, step: Array) -> tuple[Array, Array] | None:
    """Ranges with the number of a layer around the launch, and the outermost one that names its part; where
    none has a number, ranges that name attention and feed-forward networks are counted in each step."""
    names, ranges = workload_knowledge(), a.ranges
    if not a.trace.has("api_calls"):
        return None
    layers = ranges.matching(lambda text: names.layer(text)[0])
    layers = {i: number for i, number in layers.items() if not ranges.by_profiler[i]}
    named_parts = ranges.matching(lambda text: names.part(names.layer(text)[1]))
    parts = {i: PARTS.index(name) for i, name in named_parts.items() if not ranges.by_profiler[i]}
    if len(set(layers.values())) < limits.kernels.LAYERS:
        return _unnumbered(a, at, step, parts) if len(set(parts.values())) > 1 else None
    rows = ranges.rows(list(layers))
    numbers = np.array([layers[i] for i in rows["text"].tolist()], np.int64)
    layer = _around(a, at, rows, numbers, 64)
    rows = ranges.rows(list(parts))
    part = _around(a, at, rows, np.array([parts[i] for i in rows["text"].tolist()], np.int64), 1)
    return layer, np.where(part >= 0, part, _OTHER)


def _unnumbered(a: Budgeted, at: Array, step: Array, parts: dict[int, int]) -> tuple[Array, Array]:
    """Layer k holds the k-th attention range of a step, and the k-th network of as many; else those networks
    that follow its attention."""
    rows = a.ranges.rows(list(parts))
    of_row = np.array([parts[i] for i in rows["text"].tolist()], np.int64)
    hit = _around(a, at, rows, np.arange(len(of_row)), 1)
    layer = np.full(len(at), MISSING, np.int64)
    for one in distinct(step).tolist():
        mine = np.flatnonzero((step == one) & (hit >= 0))
        used = distinct(hit[mine])
        used = used[np.argsort(rows["start"][used], kind="stable")]
        attention = of_row[used] == _ATTENTION
        count = np.cumsum(attention) - 1
        if attention.sum() * 2 == len(used):
            count = np.where(attention, count, np.cumsum(~attention) - 1)
        number = np.zeros(len(of_row), np.int64)
        number[used] = np.maximum(count, 0)
        layer[mine] = number[hit[mine]]
    return layer, np.where(hit >= 0, np.append(of_row, 0)[hit], _OTHER)


def _around(a: Budgeted, at: Array, rows: Mapping[str, Array], label: Array, depth: int) -> Array:
    """Label of the innermost of these ranges, at most `depth` levels down, around each launch."""
    out = np.full(len(at), MISSING, np.int64)
    called = a.ops.api[at] >= 0
    calls, api = a.trace.columns("api_calls", ("thread", "start")), a.ops.api[at[called]]
    out[called] = innermost_on_threads(calls["thread"][api], calls["start"][api], rows, label, depth)
    return out


# ------------------------------------------------------------------------------- by order


def _by_order(runs: Sequence[Array]) -> tuple[Array, Array] | None:
    """Layers of the kernels of steps, given their signs. Steps with the same sequence are examined once."""
    known: dict[bytes, tuple[Array, Array, int]] = {}
    found = []
    for signs in runs:
        if (key := signs.tobytes()) not in known:
            if len(known) == _SEQUENCES:
                return None
            known[key] = _in_sequence(signs)
        found.append(known[key])
    counts = np.array([count for _, _, count in found])
    usual = int(median_of(counts))
    if usual < limits.kernels.LAYERS or float((counts == usual).mean()) < limits.kernels.LAYERS_AGREE_RATIO:
        return None
    empty = [np.where(count == usual, layer, MISSING) for layer, _, count in found]
    return np.concatenate(empty), np.concatenate([part for _, part, _ in found])


def _in_sequence(signs: Array) -> tuple[Array, Array, int]:
    """Layer and part of each kernel of a step, and the number of layers; 0 if they cannot be labels.

    Attention is what lies between the first product after a feed-forward network and the product that
    follows the attention kernel (with softmax as a kernel of its own the second one, after that with the
    values; of latent attention, MLA, also the one after that). The feed-forward network reaches from the
    next product or expert kernel to the last product between the last activation and the norm after it
    (without norms the first product), or the last expert kernel; where neither is a kernel, to the last
    product before the last norm. An activation before the attention kernel belongs to a network beside it.
    """
    layer, part = np.full(len(signs), MISSING, np.int32), np.full(len(signs), _OTHER, np.int8)
    places = {sign: np.flatnonzero(signs == sign) for sign in range(1, 12)}
    products, experts = places[_PRODUCT], places[_EXPERTS]
    anchors, own = _anchors(places)
    if len(anchors) < limits.kernels.LAYERS or (
        own == 2 and np.ptp(np.diff(np.searchsorted(products, anchors)))
    ):
        return layer, part, 0  # a softmax may also belong to a router
    ends = _ends(signs, places, anchors, own)
    if ends is None or np.mean([lo == hi for lo, hi in ends]) > 1 - limits.kernels.LAYERS_AGREE_RATIO:
        return layer, part, 0
    before = [a - e for a, (_, e) in zip(anchors[1:].tolist(), ends, strict=False)]
    start = max(int(anchors[0]) - int(median_of(before)), -1)
    heavy = merged(products, experts)
    for k, (out, end) in enumerate(ends):
        layer[start + 1 : end + 1] = k
        for low, high, kind in ((start, out, _ATTENTION), (out, end, _FFN)):
            first = heavy[np.searchsorted(heavy, low, "right") :][:1]
            if len(first) and first[0] <= high:
                part[first[0] : high + 1] = kind
        beside = [i for i in places[_ACTIVATION].tolist() if start < i < anchors[k]]
        up = [p for p in products.tolist() if start < p < beside[-1]] if beside else []
        if len(up) > 1:  # attention and network read the same input: the network begins first
            part[up[-1] : beside[-1] + 1] = _FFN
        start = end
    return layer, part, len(anchors)


def _anchors(places: Mapping[int, Array]) -> tuple[Array, int]:
    """The attention kernel of each layer, and how many products follow it within attention."""
    cores = merged(places[_CORE], places[_LATENT])
    anchors, own = (cores, 1) if len(cores) else (places[_SOFTMAX], 2)
    anchors = anchors[np.diff(np.searchsorted(places[_PRODUCT], anchors), prepend=-1) > 0]
    if own == 1 and len(anchors):
        # The last attention kernel of each layer: between two layers lies a kernel of a network, but not
        # between an indexer of sparse attention, or self-attention, and what follows it.
        behind = np.searchsorted(merged(places[_ACTIVATION], places[_EXPERTS]), anchors)
        kept = anchors[np.append(np.diff(behind) > 0, True)]
        anchors = kept if 3 * len(kept) >= len(anchors) else anchors
    return anchors, own


def _ends(
    signs: Array, places: Mapping[int, Array], anchors: Array, own: int
) -> list[tuple[int, int]] | None:
    """Where attention and its layer end, for each anchor; None if a layer lacks its product."""
    products, experts = places[_PRODUCT], places[_EXPERTS]
    ends: list[tuple[int, int]] = []
    for anchor, limit in zip(anchors.tolist(), [*anchors[1:].tolist(), len(signs)], strict=True):

        def within(at: Array, low: int, high: int = limit) -> Array:
            return np.asarray(at[np.searchsorted(at, low, "right") : np.searchsorted(at, high)])

        after = within(products, anchor)
        if len(after) < own:
            return None
        out = int(after[own - 1])
        norm = [*within(places[_NORM], anchor).tolist(), limit][0]
        if signs[anchor] == _LATENT and len(after) > 1 and after[1] < norm:
            out = int(after[1])  # a separate product brings the values back from the latent space
        active, expert = within(places[_ACTIVATION], out, int(after[-1])), within(experts, out)
        if len(active):  # the up projection may follow the activation of the gate
            begun = int(active[-1])
            norm = [*within(places[_NORM], begun).tolist(), limit][0]
            down = within(products, begun).tolist()
            last = [p for p in down if p < norm < limit][-1:] or down[:1]
        else:
            norms = within(places[_NORM], out, int(after[-1]))
            below = within(products, out, int(norms[-1])) if len(norms) and not len(expert) else expert[:0]
            last = below[-1:].tolist()
        last += expert[-1:].tolist()
        ends.append((_with_helpers(signs, out), _with_helpers(signs, max(last, default=out))))
    return ends


def _with_helpers(signs: Array, at: int) -> int:
    """The end of the operation at `at` with its reductions and combining kernels."""
    while at + 1 < len(signs) and signs[at + 1] == _HELPER:
        at += 1
    return at


def in_norms(a: Budgeted, found: Layers) -> Array:
    """Which of the kernels of layers are norms or activations."""
    mask = a.names.mask(lambda k: k.family in ("norm", "activation"))
    return np.asarray(mask[a.op_name[found.at]] & (a.ops.kind[found.at] == Kind.KERNEL))


def full_splits(a: Budgeted, device: int, *, prompts: bool = False) -> Array:
    """Which kernels of a device are split-KV attention that has no need to split, or only those for
    `prompts`: [kernels], bool.

    FlashAttention-2 puts blocks of 64 to 128 queries along x: a second block means a prompt. Along y and z
    are sequences, heads and splits: where nothing adds up splits there are none, and as many blocks as SMs
    fill the device (``run_mha_fwd_splitkv_dispatch`` of Dao-AILab/flash-attention)."""
    kernels, sms = a.kernels(device), a.device(device).sm_count
    splitting = a.names.mask(lambda k: k.traits.get("splits") is True)[kernels.name]
    if not splitting.any():
        return splitting
    columns = a.trace.columns("kernels", ("grid_x",))["grid_x"][a.ops.row[kernels.at]]
    full = columns >= _PROMPT_BLOCKS
    if a.steps.method == "ranges":  # which name the steps that read no prompt
        decodes = np.array([*(phase == "decode" for phase in a.steps.phase), False])  # MISSING is the last
        full &= ~decodes[kernels.step]
    if sms and not prompts and not a.names.mask(is_combining)[kernels.name].any():
        full = full | (kernels.blocks >= sms)
    return np.asarray(splitting & full)
