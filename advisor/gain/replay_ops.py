"""The replayed operations: families, bytes, activity. Arrays follow `Inputs.ops`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from advisor.facts import limits as fact_limits
from advisor.facts.copies import copied, practical_rate
from advisor.gain import limits
from advisor.gain.extract import Extract
from advisor.gain.inputs import NONE, Remembered
from advisor.gain.profiler import tracing_pace
from advisor.gain.whatifs import constant
from advisor.knowledge.files import KernelFamily
from advisor.knowledge.gpus import GpuSpec, dram_peak, gpu_of
from advisor.knowledge.shapes import Precision
from advisor.metrics import limits as metric_limits
from advisor.metrics.budgeted.collectives import kind_of
from advisor.metrics.budgeted.experts import Routing, adapter_kernels, routing
from advisor.metrics.budgeted.layers import concatenations
from advisor.metrics.budgeted.passes import Pieces, attention_pieces, widened_caches, widened_weights
from advisor.metrics.budgeted.waited import host_between_copies
from advisor.metrics.intervals import Coverage
from advisor.metrics.loaded.kernels import ATTENTION, MATMUL, UNFUSED, is_dequantising, weight_bits
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.profiled.activity import Activity
from advisor.metrics.profiled.stage import Profiled
from advisor.model.arrays import Array, among, distinct, median_of
from advisor.sources.schema import DTOH, HTOD, PAGEABLE, PINNED

# CUDA limits of one SM (CUDA C++ Programming Guide, compute capabilities 8.0 to 10.0): resident
# threads, resident blocks, registers, shared memory in bytes.
_SM_THREADS, _SM_BLOCKS, _SM_REGISTERS, _SM_SHARED = 2048, 32, 65_536, 228 << 10


class NoEstimate(Exception):
    """The fix cannot be estimated on this capture; the text says why."""


def require(mine: Array, otherwise: str) -> Array:
    """The mask if it marks anything. Raises NoEstimate with the reason `otherwise`."""
    if not mine.any():
        raise NoEstimate(otherwise)
    return mine


class Work:
    """Properties of the replayed operations; every array is made on first use."""

    def __init__(self, a: Profiled, taken: Extract, weight_bytes: int | None = None) -> None:
        self.a = a
        self.taken = taken
        self.weight_bytes = weight_bytes
        self.at = taken.inputs.ops.at
        self.kind, self.name = a.ops.kind[self.at], a.op_name[self.at]
        self.device = a.ops.device[self.at]
        self.remembered = Remembered()
        self._found: dict[Callable[[Profiled, int], Array], Array] = {}

    def __len__(self) -> int:
        return len(self.at)

    @cached_property
    def steps(self) -> int:
        """Replayed steps that hold work."""
        step = self.taken.inputs.ops.step
        return max(len(distinct(step[step != NONE])), 1)

    def select(self, wanted: Callable[[KernelFamily], object]) -> Array:
        """Mask of the kernels for whose names `wanted` is true."""
        return self._of_name(self.a.names.mask(wanted), False)

    def _of_name(self, values: Sequence[int] | Array, other: int) -> Array:
        """The value of each operation's kernel name; `other` for operations that are no kernels."""
        known = np.append(np.asarray(values), other)
        return np.asarray(known[np.where(self.name >= 0, self.name, len(known) - 1)])

    def family(self, families: frozenset[str]) -> Array:
        """Mask of the kernels of these families."""
        return self.select(lambda k: k.family in families)

    def flop_per_s(self, precision: Precision) -> float | None:
        """Peak rate of the device for operands of a precision; None if it is unknown."""
        return self._about.flop_per_s(precision) if self._about else None

    @cached_property
    def tracing_pace(self) -> float:
        return tracing_pace(self.a, self.taken.inputs)

    @cached_property
    def matmul(self) -> Array:
        return self.family(MATMUL)

    @cached_property
    def weight_bits(self) -> Array:
        """Bits of a weight that each matrix product reads, by its name; 16 for all others."""
        return self._of_name([weight_bits(k) for k in self.a.names.known], 16)

    @cached_property
    def attention(self) -> Array:
        return self.family(ATTENTION)

    @cached_property
    def unfused(self) -> Array:
        return self.family(UNFUSED)

    @cached_property
    def moves(self) -> Array:
        """Mask of the kernels that copy or gather."""
        return self.family(frozenset(("index", "copy")))

    @cached_property
    def placed(self) -> tuple[Profiled, Array, Array]:
        """The replayed operations and their steps, as arguments of the functions about a pass."""
        return self.a, self.at, self.taken.inputs.ops.step

    @cached_property
    def attention_pieces(self) -> Pieces:
        return attention_pieces(*self.placed)

    @cached_property
    def cache_joins(self) -> Array:
        found = (self.a.layers(device) for device in distinct(self.device).tolist())
        joins = [layers.joins for layers in found if layers is not None]
        return np.isin(self.at, np.concatenate(joins)) if joins else np.zeros(len(self), bool)

    @cached_property
    def dequantising(self) -> Array:
        given = *self.placed, self.attention_pieces
        return self.select(is_dequantising) | widened_weights(*given) | widened_caches(*given)

    @cached_property
    def adapters(self) -> Array:
        return adapter_kernels(self.a, self.at)

    @cached_property
    def communication(self) -> Array:
        return np.asarray(self.a.communication[self.at])

    @cached_property
    def transfers(self) -> Array:
        """Mask of the kernels that send to or receive from one other GPU, as far as their names tell."""
        return self.communication & self.select(lambda k: kind_of(k.operation) == "send-recv")

    @cached_property
    def concatenations(self) -> Array:
        """Mask of the kernels that only put tensors one behind the other."""
        a, devices = self.a, distinct(self.device).tolist()
        found = [concatenations(a.names, a.kernels(d), a.layers(d)) for d in devices]
        return np.isin(self.at, np.concatenate(found) if found else [])

    def found_by(self, find: Callable[[Profiled, int], Array]) -> Array:
        """Mask of the operations that `find` gives for one of the devices; searched once."""
        if find not in self._found:
            found = [find(self.a, device) for device in distinct(self.device).tolist()]
            self._found[find] = np.isin(self.at, np.concatenate(found) if found else [])
        return self._found[find]

    @cached_property
    def exposed(self) -> Array:
        """Share of each operation's captured time in which, in the window, no kernel but collectives
        runs; of collectives without the waiting for late ranks, if that is known."""
        ops, window, out = self.a.ops, self.a.window, np.zeros(len(self))
        start, end = (np.clip(t[self.at], window.start, window.end) for t in (ops.start, ops.end))
        length = np.maximum(ops.length[self.at], 1)
        for device, budget in self.a.budgets.items():
            mine = self.device == device
            hidden = Coverage(budget.compute).within(start[mine], end[mine])
            out[mine] = (end[mine] - start[mine] - hidden) / length[mine]
            out[mine & self.communication] *= 1 - self.a.waited.get(device, 0.0)
        return out

    @cached_property
    def computes_on_host(self) -> bool:
        """Whether most of the time of host gaps lies between copies of data to the host and back."""
        return host_between_copies(self.a, self.a.budgets.values(), data=True)

    @cached_property
    def answers_on_host(self) -> bool:
        """The same where what is copied back may be as little as a token."""
        return host_between_copies(self.a, self.a.budgets.values(), data=False)

    @cached_property
    def routing(self) -> tuple[Routing, ...]:
        """How evenly tokens were spread over the experts of each device."""
        return tuple(each for device in distinct(self.device).tolist() for each in routing(self.a, device))

    @cached_property
    def once_a_step(self) -> Array:
        """Kernels that occur at most once a step by name and launch shape, as the output head does."""
        if not self.a.trace.has("kernels"):
            return np.zeros(len(self), bool)
        key = np.where(self.name >= 0, self.name.astype(np.int64) * (1 << 32) + self._column("blocks"), NONE)
        _, at, count = np.unique(key, return_inverse=True, return_counts=True)
        return np.asarray(count[at] <= self.steps)

    def _column(self, column: str) -> Array:
        """A column of the kernel table, 0 for other operations."""
        values = self.a.trace.columns("kernels", (column,))[column]
        kernel = self.kind == Kind.KERNEL
        out = np.zeros(len(self), np.int64)
        out[kernel] = values[self.a.ops.row[self.at][kernel]]
        return out

    @cached_property
    def shape(self) -> Array:
        """A key of each operation's kernel and launch shape."""
        key = (self.name + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        if self.a.trace.has("kernels"):
            key ^= self._column("blocks").astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
            key ^= self._column("threads").astype(np.uint64) * np.uint64(0x165667B19E3779F9)
        return np.asarray(key * np.uint64(0x27D4EB2F165667C5))

    @cached_property
    def short_kernel(self) -> float:
        """Median duration of the short elementwise kernels, ns: the time of one more of them."""
        duration = self.taken.inputs.ops.duration
        short = duration[self.unfused & (duration < limits.SHORT_KERNEL_NS)]
        return median_of(short) if len(short) else constant("sync_call")

    # ------------------------------------------------------------ bandwidth

    @cached_property
    def dram(self) -> tuple[Array, Array]:
        """DRAM activity of every operation (0..1 of peak) and its error; NaN if unknown.

        From samples attributed to kernel and launch shape; if the size of the weights was given, from
        that: bytes a step over the time of the matrix products, against the peak."""
        level, error = self._sampled("dram")
        if self.weight_bytes and self.peak and np.isnan(level[self.matmul]).all():
            duration = self.taken.inputs.ops.duration[self.matmul].sum() / 1e9
            if duration:
                rate = self.weight_bytes * self.steps / duration / self.peak
                level[self.matmul], error[self.matmul] = (
                    min(rate, fact_limits.ACHIEVABLE_RATIO),
                    metric_limits.recording.RESOLVED_ERROR,
                )
        return level, error

    def _sampled(self, measure: str) -> tuple[Array, Array]:
        """Level and error of every operation whose kernel and launch shape samples resolve, else NaN."""
        return self._levels(measure, Activity.resolved)[:2]

    @cached_property
    def streaming(self) -> tuple[Array, Array]:
        """`dram`, and for operations whose error is a little too large for it a part of their activity: the
        smaller, the larger the error. So one step more or less does not change an estimate much."""
        level, error = (column.copy() for column in self.dram)
        near, off, weight = self._levels("dram", lambda found, measure: found.weight(measure) > 0)
        more = np.isnan(level) & ~np.isnan(near)
        level[more], error[more] = (weight * near)[more], (weight * off)[more]
        return level, error

    @cached_property
    def attention_reads(self) -> tuple[Array, Array]:
        """DRAM activity of attention and its error, as `streaming`; where samples do not tell kernels apart,
        by their mean over the busy time, of which the other kernels have between nothing and all that can be
        had; not known where that says little (`LIKELY_ERROR`)."""
        level, error = (column.copy() for column in self.streaming)
        for device in distinct(self.device[self.attention]).tolist():
            samples, budget = self.a.samples(device), self.a.budgets.get(device)
            mine = self.attention & (self.device == device) & np.isnan(level)
            dram = None if samples is None else samples.dram
            if dram is None or np.isnan(dram).all() or budget is None or not mine.any():
                continue
            at = self.a.device_kernels(device)
            of = at[self.a.names.mask(lambda k: k.family in ATTENTION)[self.a.op_name[at]]]
            busy = budget.busy_ns / budget.window.nonzero_length
            mean = float(np.nanmean(dram)) / max(busy, 1e-9)
            share = min(float(self.a.ops.length[of].sum()) / max(budget.busy_ns, 1), 1.0)
            least = max(mean - (1 - share) * fact_limits.ACHIEVABLE_RATIO, 0.0) / max(share, 1e-9)
            most = min(mean / max(share, 1e-9), 1.0)
            if 0 <= most - least <= 2 * metric_limits.recording.LIKELY_ERROR:
                level[mine], error[mine] = (least + most) / 2, (most - least) / 2
        return level, error

    def _levels(self, measure: str, known: Callable[[Activity, str], Array]) -> tuple[Array, Array, Array]:
        """Level, error and weight of every operation in a group that is `known`, else NaN."""
        out = np.full((3, len(self)), np.nan)
        for device, found in self.a.activity.items():
            if found is not None and measure in found.level:
                mine = self._sampled_group(device, found.groups)
                hit = mine != NONE
                hit[hit] = known(found, measure)[mine[hit]]
                of = found.level[measure], found.error[measure], found.weight(measure)
                out[:, hit] = [column[mine[hit]] for column in of]
        return out[0], out[1], out[2]

    def _sampled_group(self, device: int, groups: tuple[tuple[str, str], ...]) -> Array:
        """Position in `groups` (kernel and launch shape) of every operation, NONE if in none."""
        kernels = self.a.device_kernels(device)
        group, labels = self.a.kernel_groups(device)
        known = {label: i for i, label in enumerate(groups) if label[1]}
        of_group = np.array([known.get(label, NONE) for label in labels], np.int64)
        if len(kernels) == 0:
            return np.full(len(self), NONE)
        place = np.minimum(np.searchsorted(kernels, self.at), len(kernels) - 1)
        return np.where(kernels[place] == self.at, of_group[group[place]], NONE)

    @property
    def peak(self) -> float | None:
        """Peak DRAM bandwidth, bytes/s."""
        return dram_peak(self.a.device(int(self.device[0]))) if len(self) else None

    @cached_property
    def _about(self) -> GpuSpec | None:
        return gpu_of(self.a.device(int(self.device[0]))) if len(self) else None

    @cached_property
    def filling(self) -> Array:
        """Share of the device that each kernel's blocks fill at once (above 1: waves): blocks over SMs x
        resident blocks, those limited by threads, registers and shared memory."""
        threads = np.maximum(self._column("threads"), 1)
        resident = np.minimum(_SM_THREADS // threads, _SM_BLOCKS)
        registers = self._column("registers")
        fits = registers > 0
        resident[fits] = np.minimum(resident, _SM_REGISTERS // np.maximum(registers * threads, 1))[fits]
        shared = self._column("shared_bytes")
        fits = shared > 0
        resident[fits] = np.minimum(resident, _SM_SHARED // np.maximum(shared, 1))[fits]
        return np.asarray(self.waves / np.maximum(resident, 1))

    @cached_property
    def waves(self) -> Array:
        """Blocks of each kernel over the SMs of the device."""
        sms = self.a.device(int(self.device[0])).sm_count if len(self) else None
        if not sms or not self.a.trace.has("kernels"):
            raise NoEstimate("the number of SMs of the device is not in the capture")
        return np.asarray(self._column("blocks") / sms)

    @cached_property
    def tensor(self) -> Array:
        """Tensor-core activity of every operation, 0..1; NaN if not known."""
        return self._sampled("tensor")[0]

    @cached_property
    def dram_blur(self) -> tuple[Array, Array]:
        """DRAM level of every operation and how far it may be off: its error, and for short kernels the
        level of their neighbours in samples that are `sample_skew` off."""
        level, error = self.dram
        off = constant("sample_skew") / np.maximum(self.taken.inputs.ops.duration, 1.0)
        swing = np.maximum(level, fact_limits.ACHIEVABLE_RATIO - level)
        return level, np.nan_to_num(error + np.minimum(off, 1.0) * swing)

    @cached_property
    def pipes(self) -> tuple[Array, Array]:
        """DRAM and tensor-core activity of the matrix products: of each if samples resolve both, else their
        mean (that of the window over their share of it, so at most too high); NaN without samples."""
        dram, tensor = self.dram[0].copy(), self.tensor.copy()
        for device in distinct(self.device[self.matmul]).tolist():
            samples = self.a.samples(device)
            mine = self.matmul & (self.device == device) & (np.isnan(dram) | np.isnan(tensor))
            if samples is None or not mine.any():
                continue
            at = self.a.device_kernels(device)
            products = at[self.a.names.mask(lambda k: k.family in MATMUL)[self.a.op_name[at]]]
            spent = self.a.ops.length[products].sum()
            share = max(float(spent) / self.a.window.nonzero_length, 1e-9)
            seen = ((samples.dram, dram), (samples.values.get("tensor_active"), tensor))
            for values, column in seen:
                column[mine] = np.nan
                if values is not None and not np.isnan(values).all():
                    column[mine] = min(float(np.nanmean(values)) / share, 1.0)
        return dram, tensor

    @cached_property
    def ridge(self) -> float | None:
        """Tokens at which a matrix product turns from weights to arithmetic: peak operations over peak
        bytes in 16 bit, where each byte of weight serves one multiply-add a token. In 8 bit both halves
        double, so that the ridge holds for every precision."""
        tflops = self._about.tensor_tflops.get("fp16") if self._about else None
        return tflops * 1e12 / self.peak if tflops and self.peak else None

    @cached_property
    def tokens(self) -> Array:
        """Tokens that each matrix product works on: its arithmetic intensity, from tensor-core over DRAM
        activity; NaN if either is not resolved. Few tokens are padded, and appear as the padded number."""
        if self.ridge is None:
            return np.full(len(self), np.nan)
        level = self.dram[0]
        return np.asarray(self.tensor / np.where(level > 0, level, np.nan) * self.ridge)

    @cached_property
    def decode(self) -> Array:
        """Mask of the operations of decode steps, whose products work on one token a sequence."""
        decodes = np.array([p == "decode" for p in self.a.steps.phase] + [False], bool)
        return np.asarray(decodes[self.taken.inputs.ops.step])  # NONE is the last

    # ------------------------------------------------------------ copies

    @cached_property
    def copied(self) -> Array:
        """Bytes of every copy that the host issued itself; 0 for all others."""
        return self._copies[0]

    @cached_property
    def direction(self) -> Array:
        return self._copies[1]

    @cached_property
    def host_memory(self) -> Array:
        """Memory kind of the host's side; NONE for copies inside the device and all else."""
        return self._copies[2]

    @cached_property
    def _copies(self) -> tuple[Array, Array, Array]:
        size, (way, memory) = np.zeros(len(self), np.int64), np.full((2, len(self)), NONE)
        copy = (self.kind == Kind.COPY) & (self.a.ops.graph_node[self.at] == 0)
        size[copy], way[copy], side = copied(self.a, self.at[copy])
        memory[copy] = np.where(among(way[copy], (HTOD, DTOH)), side, NONE)
        return size, way, memory

    @cached_property
    def to_host(self) -> Array:
        """Mask of the copies to the host, also those inside graphs."""
        out, copy = np.zeros(len(self), bool), self.kind == Kind.COPY
        out[copy] = copied(self.a, self.at[copy])[1] == DTOH
        return out

    @property
    def pageable(self) -> Array:
        return np.asarray(self.host_memory == PAGEABLE)

    def pinned_rate(self, direction: int) -> tuple[float, bool]:
        """Rate of large pinned copies, bytes/s, and whether it was measured in this capture; else the
        rate of the link in the table of GPUs. Raises NoEstimate."""
        at = self.a.device_copies(int(self.device[0]))
        size, way, side = copied(self.a, at)
        mine = (way == direction) & (side == PINNED) & (size >= fact_limits.LINK_COPY_BYTES)
        if mine.any():
            return float(size[mine].sum()) / float(self.a.ops.length[at[mine]].sum()) * 1e9, True
        return self.link_rate(), False

    @property
    def large_pinned(self) -> Array:
        """Copies between pinned host memory and the device that measure the link."""
        moved = among(self.direction, (HTOD, DTOH))
        return np.asarray(moved & (self.host_memory == PINNED) & (self.copied >= fact_limits.LINK_COPY_BYTES))

    def link_rate(self) -> float:
        """What large pinned copies reach on this link by the table of GPUs, bytes/s. Raises NoEstimate."""
        known = practical_rate(self.a, int(self.device[0]))
        if known is None:
            raise NoEstimate("the rate of pinned copies on this link is not known; give it as gb_per_s")
        return known
