"""What-ifs on the device's side: bytes, fusion, communication."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from advisor.facts import limits as fact_limits
from advisor.facts.device import is_skinny
from advisor.facts.operators import slow_operators
from advisor.gain import limits
from advisor.gain.changes import what_if
from advisor.gain.exposure import overlaps, uncovered
from advisor.gain.inputs import NONE, Inputs
from advisor.gain.profiler import Scenario, usual_node_gaps
from advisor.gain.replay_ops import NoEstimate, Work, require
from advisor.gain.resources import time_alone
from advisor.gain.whatifs import Fix, constant
from advisor.knowledge.shapes import Precision
from advisor.metrics.budgeted.collectives import collectives_in_line, collectives_in_rows, small_collectives
from advisor.metrics.budgeted.layers import is_layout_change
from advisor.metrics.budgeted.passes import (
    cache_reorders,
    embedding_lookups,
    narrowed_weights,
    quantised_inputs,
    sampling_kernels,
    sampling_sorts,
)
from advisor.metrics.loaded.kernels import ATTENTION, UNFUSED, is_combining, is_simt_fp32, is_tf32
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.workload import TRAINING
from advisor.model.arrays import Array, marked, median_of
from advisor.sources.schema import Call

#: Bytes of an operand in memory.
_BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}


def _in(lean: int, readings: tuple[float, float, float]) -> float:
    """The value in one reading of a fix: -1 pessimistic, 0 middle, 1 optimistic."""
    return readings[lean + 1]


# ---------------------------------------------------------------- bytes


@what_if("int8_weights")
def fp8_weights(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Optimistic: kernels at the limit keep their bandwidth and take half the time. Pessimistic:
    each product is preceded by kernels that cast its input."""
    mine = _wide_weights(fix, work, 8)
    changed = _fewer_bytes(fix, inputs, work, mine, lean)
    if lean < 0:
        level = work.streaming[0]
        gap = scenario.node_gap * constant("graph_node_gap")
        cast = constant("cast_kernels") * (work.short_kernel + gap)
        extra = np.where(mine & ~np.isnan(level), cast, 0.0)
        changed = changed.with_ops(duration=changed.ops.duration + extra)
    return changed


@what_if()
def int4_weights(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of FP8 weights twice the share of the bytes remains. Pessimistic: widening them costs a part of
    that."""
    mine = _wide_weights(fix, work, 4)
    changed = _fewer_bytes(fix, inputs, work, mine, lean, np.where(work.weight_bits == 8, 2.0, 1.0))
    if lean < 0:
        before = inputs.ops.duration
        lost = constant("unpack_loss") * (before - changed.ops.duration)
        changed = changed.with_ops(duration=changed.ops.duration + lost)
    return changed


def _wide_weights(fix: Fix, work: Work, bits: int) -> Array:
    """Matrix products whose weights have more bits than the fix leaves them."""
    wide = work.matmul & (work.weight_bits > bits)
    if work.matmul.any() and not wide.any():
        raise NoEstimate(f"the weights are stored in {bits} bits or fewer already")
    return wide & ~work.once_a_step if fix.params["output_head"] == "keep" else wide


@what_if("int8_kv_cache")
def fp8_kv_cache(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    return _fewer_bytes(fix, inputs, work, work.attention, lean)


@what_if()
def faster_products(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    level, _ = work.dram
    mine = _with_level(work.select(is_skinny), level)
    reach = min(fix.number("reach") + lean * constant("product_reach_spread"), 1.0)
    factor = np.where(mine, np.minimum(np.nan_to_num(level) / reach, 1.0), 1.0)
    return inputs.with_ops(duration=inputs.ops.duration * factor)


def _with_level(mine: Array, level: Array) -> Array:
    """Those of these kernels whose DRAM activity is known. Raises NoEstimate if none is."""
    text = "how near these kernels are to the memory limit is not known"
    return require(mine & ~np.isnan(level), f"{text}: record GPU metrics, or give --weight-bytes")


def _fewer_bytes(
    fix: Fix, inputs: Inputs, work: Work, mine: Array, lean: int, times: Array | float = 1.0
) -> Inputs:
    """A kernel at DRAM level L streams for L / `ACHIEVABLE_RATIO` of its time; that part shrinks with the
    bytes (to `bytes_ratio` x `times`), the rest (launch, ramp, arithmetic that is not hidden) remains."""
    level, error = work.streaming
    mine = _with_level(mine, level)
    saved = np.maximum(1.0 - fix.number("bytes_ratio") * times, 0.0)
    streams = np.clip(
        (np.nan_to_num(level) + lean * np.nan_to_num(error)) / fact_limits.ACHIEVABLE_RATIO, 0.0, 1.0
    )
    if lean > 0:
        streams = np.where(np.nan_to_num(level) >= fact_limits.DRAM_BOUND_RATIO, 1.0, streams)
    factor = np.where(mine, 1.0 - saved * streams, 1.0)
    return inputs.with_ops(duration=inputs.ops.duration * factor)


@what_if()
def tensor_rate(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Products get faster by the ratio of the rates, as far as their kernels come near to the new one.
    Skinny ones wait for their bytes."""
    to: Precision = str(fix.params["precision"])  # type: ignore[assignment]
    simt = work.select(is_simt_fp32)
    of: dict[Precision, Array] = {"fp32": simt}
    if to == "bf16":
        of["tf32"] = work.select(is_tf32)
    if to in ("fp8", "int8", "fp4"):
        # Libraries have convolutions in INT8, but hardly any in FP8 or FP4.
        products = work.matmul if to == "int8" else work.matmul & ~work.family(frozenset(("conv",)))
        of = {"bf16": products & (work.weight_bits == 16) & ~simt}
    if to == "fp4":
        of["fp8"] = products & (work.weight_bits == 8)
    of = {precision: mine for precision, mine in of.items() if mine.any()}
    if not of:
        raise NoEstimate("the replayed steps hold no products that this changes")
    new, factor = work.flop_per_s(to), np.ones(len(inputs.ops))
    for precision, mine in of.items():
        old = work.flop_per_s(precision)
        if not old or not new:
            raise NoEstimate(f"the rate of this GPU in {to if old else precision} is not known")
        ratio = min(old / new * _rate_loss(lean), 1.0)
        least = max(_BYTES[to] / _BYTES[precision], ratio)
        factor[mine] = np.where(work.select(is_skinny), least, ratio)[mine]
    if to == "bf16":
        factor *= _half_as_wide(inputs, work, np.logical_or.reduce(list(of.values())), lean)
    return inputs.with_ops(duration=inputs.ops.duration * factor)


@what_if()
def healthy_kernels(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Operators with recorded sizes that reach less than half of what healthy kernels do take as long as
    these: as long as captured in the pessimistic estimate, at the best measured share in the optimistic
    one."""
    slow = slow_operators(work.a, work.a.main_device)
    if slow is None:
        raise NoEstimate("no operator is that far below what healthy kernels reach")
    usual, best = np.ones(len(work.a.ops)), np.ones(len(work.a.ops))
    usual[slow.at], best[slow.at] = slow.usual, slow.best
    require(usual[work.at] < 1, "the replayed steps hold no such operator")
    if lean < 0:
        return inputs
    return inputs.with_ops(duration=inputs.ops.duration * (best if lean else usual)[work.at])


@what_if()
def tensor_convolutions(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """A convolution on the ordinary cores did no more than these can in its time, and tensor cores do that at
    `reach` of their rate. Pessimistic: the ordinary cores ran at their peak; middle: at half of it;
    optimistic: the convolution costs next to nothing. What only unfolds disappears, but for a part of its
    time in the pessimistic estimate."""
    direct = work.select(lambda k: k.traits.get("convolves") == "direct")
    unfolded = work.select(lambda k: k.traits.get("convolves") == "unfolded")
    require(direct | unfolded, "the replayed steps hold no convolutions of that kind")
    stays = np.ones(len(inputs.ops))
    stays[unfolded] = _in(lean, limits.ABSORBED_REMAINS)
    if direct.any():
        ordinary, tensor = work.flop_per_s("fp32"), work.flop_per_s("bf16")
        if not ordinary or not tensor:
            raise NoEstimate("the rate of this GPU in bf16 or fp32 is not known")
        most = min(ordinary / (tensor * fix.number("reach")), 1.0)
        stays[direct] = most * _in(lean, limits.ORDINARY_CORES_REACH)
    return inputs.with_ops(duration=inputs.ops.duration * stays)


def _rate_loss(lean: int) -> float:
    """How much further products stay below the new rate than below the old one."""
    return float(constant("rate_loss") ** _in(lean, limits.RATE_LOSS_POWERS))


def _half_as_wide(inputs: Inputs, work: Work, products: Array, lean: int) -> Array:
    """The remaining time of kernels besides products in FP32, if these hold most of the products' time: a
    part for kernels on values of 32 bits, except their start and end. Attention in FP32 makes three products
    in TF32 of each; at most half of its time remains."""
    ops, factor = inputs.ops, np.ones(len(inputs.ops))
    if 2 * ops.duration[products].sum() < ops.duration[work.matmul].sum():
        return factor
    training = work.a.program.kind == TRAINING
    stays = _in(lean, limits.HALVED_IN_TRAINING_REMAINS if training else limits.HALVED_REMAINS)
    moved = UNFUSED | {"reduction"}
    wide = work.select(lambda k: k.family in moved and k.traits.get("precision") in (None, "fp32"))
    least = np.minimum(limits.SHORT_KERNEL_NS / 2 / np.maximum(ops.duration, 1.0), 1.0)
    factor[wide] = np.maximum(least, stays)[wide]
    old, new = work.flop_per_s("tf32"), work.flop_per_s("bf16")
    if old and new:
        attention = work.select(lambda k: k.family in ATTENTION and k.traits.get("precision") == "fp32")
        factor[attention] = min(old / 3 / new * _rate_loss(lean), 0.5)
    return factor


# ---------------------------------------------------------------- fusion and communication


@what_if()
def fuse_elementwise(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of the kernels of a chain the longest remains, and a part of the time that the others take on the
    device and the host, except host code. A repeated copy or gather moves several tensors, such as the cache
    of each layer: its time remains."""
    stays = _in(lean, limits.FUSED_REMAINS)
    ops = inputs.ops
    require(work.unfused & (ops.duration > 0), "the replayed steps hold no elementwise kernels")
    order = ops.stream, ops.step, inputs.waits.op, inputs.joins.on
    found = work.remembered(_chained, work.unfused, ops.duration, *order, work.name, work.moves)
    if found is None:  # a chain of one kernel stays as it is
        return inputs
    gone, shorter = found
    return _shortened(inputs, gone, np.where(shorter, stays, 1.0), stays)


def _chained(
    unfused: Array,
    duration: Array,
    stream: Array,
    step: Array,
    waited: Array,
    joined: Array,
    name: Array,
    moves: Array,
) -> tuple[Array, Array] | None:
    """Masks of the kernels of chains except the longest of each chain, and of these without copies and
    gathers that repeat the kernel before; None if no elementwise kernel follows another."""
    order = np.argsort(stream, kind="stable")
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    candidate = (unfused & (duration > 0))[order]
    stream, step = stream[order], step[order]
    ends = marked(len(order), waited)
    ends[joined] = True
    cut = (stream[1:] != stream[:-1]) | (step[1:] != step[:-1]) | ends[order][:-1]
    follows = np.concatenate(([False], candidate[:-1] & ~cut)) & candidate
    if not follows.any():
        return None
    # Chains are numbered; of each, the first of the longest kernels remains.
    chain = np.cumsum(candidate & ~follows) - 1
    duration = duration[order]
    longest = np.zeros(int(chain[-1]) + 1)
    np.maximum.at(longest, chain[candidate], duration[candidate])
    at = np.flatnonzero(candidate & (duration == longest[np.maximum(chain, 0)]))
    keeper = marked(len(order), at[np.unique(chain[at], return_index=True)[1]])
    name = name[order]
    alike = follows & moves[order] & np.concatenate(([False], name[1:] == name[:-1]))
    gone = (candidate & ~keeper)[back]
    return gone, gone & ~alike[back]


@what_if()
def absorb_kernels(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Pessimistic: a part of their time moves into other kernels. Products of attention wait for the scores,
    which one kernel keeps: a part of their time remains as well."""
    which = fix.params["which"]
    pieces = which == "attention_pieces"
    in_registers = pieces or which == "quantisation"
    stays = _in(lean, limits.IN_REGISTERS_REMAINS if in_registers else limits.ABSORBED_REMAINS)
    kernels: dict[str, Callable[[], Array]] = {
        "dequantisation": lambda: work.dequantising,
        "weight_casts": lambda: narrowed_weights(*work.placed, work.attention_pieces),
        "quantisation": lambda: quantised_inputs(*work.placed),
        "kv_combines": lambda: work.select(is_combining),
        "concatenations": lambda: work.concatenations,
        "sampling_sorts": lambda: sampling_sorts(*work.placed),
        "sampling": lambda: sampling_kernels(*work.placed),
        "layout_changes": lambda: work.select(is_layout_change),
        "memsets": lambda: np.asarray(work.kind == Kind.MEMSET),
        "attention_pieces": lambda: work.attention_pieces.inner,
        "cache_joins": lambda: work.cache_joins,
        "cache_reorders": lambda: cache_reorders(*work.placed).of,
        "embedding_lookups": lambda: embedding_lookups(*work.placed).of,
    }
    mine = require(kernels[str(which)](), f"the replayed steps hold no kernels of that kind ({which})")
    if which == "cache_joins":
        # One kernel that writes a token remains for each.
        least = work.short_kernel / np.maximum(inputs.ops.duration, 1.0)
        return _shortened(inputs, mine, np.where(mine, np.clip(least, stays / 4, 1.0), 1.0), 1.0)
    share = np.where(mine, stays, 1.0)
    if which == "embedding_lookups":  # one kernel still reads the rows
        share[mine] = _in(lean, limits.LOOKUPS_REMAINS)
    if pieces:
        products, slow = work.attention_pieces.products, work.select(is_simt_fp32)
        share[products] = _in(lean, limits.ATTENTION_REMAINS)
        share[products & slow] = _in(lean, limits.SLOW_ATTENTION_REMAINS)
    return _shortened(inputs, mine, share, stays)


@what_if()
def split_attention(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Attention of few blocks takes as much less as it fills less of the SMs with one block each.
    Pessimistic: twice that, and at least half, as splits are uneven and have to be added up. Optimistic: SMs
    run several blocks at once, so that it reads the cache at the rate of the memory, where that is known. No
    reading is faster than that."""
    filled = work.waves
    mine = require(work.attention & (2 * filled < 1) & (filled > 0), "no attention kernel has few blocks")
    level, error = work.attention_reads
    read = np.clip((level - lean * error) / fact_limits.ACHIEVABLE_RATIO, 0.0, 1.0)
    best = np.where(np.isnan(read), filled / 2, read)
    share = {-1: np.clip(2 * filled, 0.5, 1.0), 0: filled, 1: best}[lean]
    share = np.fmax(share, read)
    return inputs.with_ops(duration=inputs.ops.duration * np.where(mine, share, 1.0))


@what_if()
def merge_adapters(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    mine = require(work.adapters, "the replayed steps hold no kernels of adapters")
    return _shortened(inputs, mine, np.where(mine, 0.0, 1.0), 0.0)


def _shortened(inputs: Inputs, mine: Array, share: Array, stays: float) -> Inputs:
    """`share` of each operation's time remains, `stays` of the cost of launching `mine` except host code.
    Idle time before a graph node that is longer than between others waits for another node, and stays."""
    ops, calls = inputs.ops, inputs.calls
    usual = usual_node_gaps(inputs)
    waited = (
        np.where(ops.node, np.maximum(ops.gap - median_of(ops.gap[usual]), 0.0), 0.0) if usual.any() else 0.0
    )
    launched = marked(len(calls), ops.calls_of(mine))
    launched &= calls.kind == Call.LAUNCH
    held = np.where(calls.host_code, calls.pre, calls.explained)
    gap = np.where(ops.gap < limits.WAIT_NS, (ops.gap - waited) * share + waited, ops.gap)
    return inputs.with_ops(duration=ops.duration * share, gap=gap).with_calls(
        own=np.where(launched, calls.own * stays, calls.own),
        pre=np.where(launched, held + (calls.pre - held) * stays, calls.pre),
    )


@what_if()
def shorten_node_gaps(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    usual = require(usual_node_gaps(inputs), "no graph run was traced node by node")
    stays = _in(lean, limits.NODE_GAPS_REMAIN)
    return inputs.with_ops(gap=np.where(usual, inputs.ops.gap * stays, inputs.ops.gap))


#: Why nothing hides collectives.
_SETS_THE_PACE = (
    "no other kernels are left to hide the collectives behind: they set the pace; move fewer bytes, or use "
    "fewer ranks on this link"
)
_IN_LINE = (
    "in decode steps the next layer begins with what the collectives join, and neither the other half of a "
    "batch nor other requests compute meanwhile: as the step is, nothing can hide them"
)


@what_if()
def overlap_communication(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Collectives run beside the other kernels: both end with the longer of them (Amdahl), so that no more
    is hidden than the other kernels take without a collective beside them. Those in line with the layers of
    decode steps stay. Pessimistic: half of that where
    the capture shows collectives beside kernels, nothing where none runs so.

    Transfers between two GPUs that need nothing of their step can be received a step ahead, as far as
    its other work hides them: on a stream of their own, and in the optimistic reading before all kernels
    of the step, where one rank alone cannot tell a cache to come from the result of a stage before."""
    mine = require(work.communication, "the replayed steps hold no collectives")
    in_line = work.found_by(collectives_in_line)
    why = _SETS_THE_PACE if not in_line.any() else _IN_LINE
    mine = require(mine & ~in_line & (work.exposed > 0), why) if in_line.any() else mine
    duration = inputs.ops.duration
    exposed = float((duration * work.exposed)[mine].sum())
    alone = float((duration * uncovered(work.a, work.at))[(work.kind == Kind.KERNEL) & ~mine].sum())
    hidden = min(alone / max(exposed, 1.0), 1.0)
    ahead = _apart(inputs, work) | (_leading(inputs, work) if lean > 0 else False)
    if hidden * exposed < limits.HIDDEN_RATIO * float(duration[work.communication].sum()) and not ahead.any():
        raise NoEstimate(why)
    if lean < 0:
        hidden *= limits.HIDDEN_AT_WORST if overlaps(work.a) else 0.0
    share = np.full(len(work), hidden * fix.number("overlap"))
    if ahead.any() and lean >= 0:
        share[ahead] = min(float(duration[~mine].sum() / max(duration[ahead].sum(), 1.0)), 1.0)
    beside = max(inputs.beside, time_alone(work, duration, mine & ~ahead))
    changed = inputs.with_ops(duration=duration * np.where(mine, 1 - share * work.exposed, 1.0))
    return replace(changed, beside=beside)


def _apart(inputs: Inputs, work: Work) -> Array:
    """Mask of the transfers between two GPUs that other streams wait for and that wait for none."""
    joins = inputs.joins
    if not len(joins):
        return np.zeros(len(work), bool)
    return work.transfers & marked(len(work), joins.on) & ~marked(len(work), joins.op)


def _leading(inputs: Inputs, work: Work) -> Array:
    """Mask of the transfers between two GPUs before which no other work of their step was issued."""
    step = inputs.ops.step
    other = np.flatnonzero(~work.transfers & (step != NONE))
    first = np.full(int(step.max(initial=0)) + 1, len(step))
    np.minimum.at(first, step[other], other)
    return np.asarray(work.transfers & (step != NONE) & (np.arange(len(step)) < first[step]))


@what_if()
def one_shot_collectives(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Of the exposed time goes a part of what one trip over NVLink can save."""
    text = "the replayed steps hold no collectives that are known to be small"
    mine = require(work.found_by(small_collectives), text)
    goes = constant("one_shot_saves") * _in(lean, limits.ONE_SHOT_SAVED)
    share = np.where(mine, goes * work.exposed, 0.0)
    return inputs.with_ops(duration=inputs.ops.duration * (1 - share))


@what_if()
def merge_collectives(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int) -> Inputs:
    """Each but the first of a row begins no transfer of its own: the shortest of them, which moves next to
    nothing, shows what that takes at most."""
    mine = require(work.found_by(collectives_in_rows), "the replayed steps hold no collectives in a row")
    begins = inputs.ops.duration[mine].min() * _in(lean, limits.BEGINS_TRANSFER)
    share = np.where(mine, 1 - begins / np.maximum(inputs.ops.duration, max(begins, 1.0)), 1.0)
    return _shortened(inputs, mine, share, 0.0)
