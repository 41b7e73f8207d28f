"""Facts from GPU-metric samples."""

from __future__ import annotations

from advisor.facts.clocks import clock_facts
from advisor.facts.device import ACHIEVABLE, DRAM_LIMIT
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import gpu
from advisor.metrics.activity import Samples, burst_levels
from advisor.metrics.analysis import Analysis
from advisor.metrics.kernels import MATMUL
from advisor.model.facts import Scope


def sampled_facts(a: Analysis, device: int, out: FactWriter) -> None:
    """What the samples say by themselves: utilisation over the window, bursts, clocks."""
    samples = a.samples(device)
    if samples is None:
        return
    scope = Scope(device=device)
    out.put("activity.sm_ratio", samples.mean("sm_active"), scope)
    out.put("activity.gr_ratio", samples.mean("gr_active"), scope)
    out.put("activity.dram_ratio", _mean_dram(samples), scope)
    bursts = burst_levels(samples)
    if bursts:
        out.put("activity.burst_low_ratio", bursts[0], scope)
        out.put("activity.burst_high_ratio", bursts[1], scope)
    clock_facts(a, device, out)


def _mean_dram(samples: Samples) -> float | None:
    return None if samples.dram is None else float(samples.dram.mean())


def sampled_devices(a: Analysis) -> list[int]:
    """Devices of which samples are all there is: opaque graphs, and logs without a trace."""
    if a.devices or not a.trace.has("samples"):
        return []
    return sorted(set(a.trace.columns("samples", ("device",))["device"].tolist()))


def activity_facts(a: Analysis, device: int, out: FactWriter, weight_bytes: int | None) -> None:
    scope, budget = Scope(device=device), a.budgets[device]
    window = max(budget.window.length, 1)
    busy = budget.busy_ns / window
    if weight_bytes:
        time = float((a.ops.end - a.ops.start)[a.device_kernels(device)].sum())
        read = read_ratio(a, device, weight_bytes * a.step_count, time)
        out.put("bandwidth.weights_ratio", read, scope)
        if read is not None and a.samples(device) is None:
            held = min(read / ACHIEVABLE, 1.0) * min(time / window, busy)
            out.put("activity.dram_bound_window_ratio", held, scope)
    samples = a.samples(device)
    if samples is None:
        return
    sm, tensor = samples.mean("sm_active"), samples.mean("tensor_active")
    dram = _mean_dram(samples)
    if busy > 0:
        for name, value in (("sm", sm), ("tensor", tensor), ("dram", dram)):
            if value is not None:
                out.put(f"activity.{name}_busy_ratio", min(value / busy, 1.0), scope)
        if dram is not None:
            # However the samples divide over the kernels, no more time can be at the limit.
            most = min(dram / busy / DRAM_LIMIT, 1.0)
            out.put("activity.dram_bound_most_ratio", most, scope)
    found = a.activity.get(device)
    if found is None:
        return
    shares = found.share
    if "dram" in found.level:
        time, level = found.share_above("dram", DRAM_LIMIT)
        out.put("activity.dram_bound_busy_ratio", min(time / busy, 1.0) if busy else None, scope)
        out.put("activity.dram_bound_window_ratio", min(time, 1.0), scope)
        out.put("activity.dram_bound_level_ratio", level, scope)
        known = float(shares[found.resolved("dram")].sum())
        out.put("activity.resolved_ratio", min(known / busy, 1.0) if busy else None, scope)
    weighted = [(found.of(f, "tensor"), sum(s for (g, _), s in zip(
        found.groups, shares, strict=True) if g == f)) for f in sorted(MATMUL)]  # fmt: skip
    known_ = [(v, s) for v, s in weighted if v is not None]
    if known_:
        out.put("activity.matmul_tensor_ratio",
                sum(v * s for v, s in known_) / sum(s for _, s in known_), scope)  # fmt: skip
    safe = {measure: found.safe(measure) for measure in found.level}
    out.table("activity.groups", scope, "Sampled activity inside kernels (least squares)",
              ("family", "kernel and blocks", "share:ratio", "DRAM:ratio", "SM:ratio",
               "Tensor:ratio", "error:ratio"),
              [[f, label or "all", float(shares[i]),
                *(float(found.level[m][i]) if m in safe and safe[m][i] else None
                  for m in ("dram", "sm", "tensor")),
                max((float(found.error[m][i]) for m in safe if safe[m][i]), default=None)]
               for i, (f, label) in enumerate(found.groups)])  # fmt: skip


def read_ratio(a: Analysis, device: int, size: int, time_ns: float) -> float | None:
    """Bandwidth of reading `size` bytes in `time_ns`, of the device's peak (seed-4: BW_efficiency =
    weight_bytes / kernel_time / peak). None where the peak is not known, and where memory cannot
    be as fast: then the size is not that of what was read."""
    about = a.device(device)
    known = gpu(about.name)
    peak = about.bandwidth_bytes_per_s or (known.dram_bytes_per_s if known else None)
    if not peak or not size or not time_ns:
        return None
    ratio = size / time_ns * 1e9 / peak
    return ratio if ratio <= 1.0 else None
