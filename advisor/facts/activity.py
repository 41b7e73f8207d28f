"""Facts from GPU-metric samples: activity, and clocks, power and temperature while a device is busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.facts import limits
from advisor.facts.damage import hidden_graph_ratio
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.gpus import dram_peak, gpu_of
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage
from advisor.metrics.loaded.kernels import MATMUL
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.loaded.workload import UNKNOWN
from advisor.metrics.profiled.activity import Activity
from advisor.metrics.profiled.sampled import Samples, burst_levels, time_at_level, unrecorded_ratio
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.load import over
from advisor.model.arrays import Array, median_of
from advisor.sources.schema import TABLES

_CLOCK_COLUMNS = (
    "time",
    "device",
    "sm_active",
    "gr_active",
    "sm_clock_hz",
    "sm_clock_max_hz",
    "power_w",
    "power_limit_w",
    "throttled",
    "overheated",
    "slowed",
    "temperature_c",
    "performance_state",
)


@predicate
def matrix_products(a: Budgeted) -> bool:
    return bool(a.names.mask(lambda k: k.family in MATMUL)[a.op_name[a.device_kernels(a.main_device)]].any())


@predicate
def ten_samples(a: Profiled) -> bool:
    return _enough(a, len(a.samples(a.main_device) or ()))


@predicate
def program_with_weights(a: Loaded) -> bool:
    return a.program.kind == UNKNOWN or a.program.is_model is not False


@predicate
def busy_samples(a: Budgeted) -> bool:
    return bool(_clock_samples(a, a.main_device)[2].any())


def sampled_facts(a: Profiled, device: int, out: FactWriter) -> None:
    """What the samples say by themselves: utilisation over the window, bursts, clocks; and of a
    device without recorded work also what it does while it is busy."""
    samples = a.samples(device)
    if a.trace.has("samples"):
        state_facts(a, device, out)
    if samples is None:
        return
    if not work_recorded(a, device):
        out.put("activity.unused", _unused(a, device))
        if samples.busy is not None:  # the only busy time that is known
            busy = float(samples.busy.mean())
            out |= {"activity.work_recorded": False, "activity.kernels_resolved": False}
            out |= {"activity.busy_ratio": busy, "activity.idle_ratio": 1.0 - busy}
            _while_busy(samples, busy, samples.busy, out)
    if _enough(a, len(samples)):
        out |= {
            "activity.sm_ratio": samples.mean("sm_active"),
            "activity.gr_ratio": samples.mean("gr_active"),
            "activity.dram_ratio": None if samples.dram is None else _mean(samples.dram),
        }
    if bursts := burst_levels(samples):
        out |= {
            "activity.burst_low_ratio": bursts.low,
            "activity.burst_high_ratio": bursts.high,
            "activity.burst_count": bursts.times,
        }
    clock_facts(a, device, out)


#: Stretches that a log is drawn in, at most.
_MOMENTS = 120
#: What a log of samples holds: words, column, factor to the unit in the words, column of its limit, and
#: whether it counts while the device is busy.
_HELD = (
    ("busy, %", "gr_active", 100.0, None, False),
    ("SM active, %", "sm_active", 100.0, None, False),
    ("SM clock, MHz", "sm_clock_hz", 1e-6, "sm_clock_max_hz", True),
    ("power, W", "power_w", 1.0, "power_limit_w", True),
    ("temperature, C", "temperature_c", 1.0, None, False),
    ("memory, GiB", "memory_used_bytes", 2.0**-30, "memory_total_bytes", False),
)


def stretches(time: Array) -> list[tuple[float, Array]]:
    """At most `_MOMENTS` stretches of equal length of a log: when each begins, and its rows; none of a log of
    one moment."""
    known = time[~np.isnan(time)]
    if not len(known) or (length := float(np.ptp(known))) <= 0:
        return []
    number = min(_MOMENTS, len(np.unique(known)))
    begin = float(known.min())
    at = np.clip(((time - begin) / length * number), 0, number - 1)
    return [
        (i * length / number, rows) for i in range(number) if len(rows := np.flatnonzero(np.floor(at) == i))
    ]


def over_time(a: Budgeted, out: FactWriter) -> None:
    """The tables `samples.held`: what the samples of each device hold, over all of the log and at its ends;
    and `samples.moments`: their means over time."""
    if not a.trace.capture.recorder.samples_only:
        return
    rows = a.trace.columns("samples", tuple(TABLES["samples"]))
    table: list[list[Any]] = []
    for device in sampled_devices(a):
        _, mine, busy = _clock_samples(a, device)
        for words, column, factor, limit, while_busy in _HELD:
            at = np.flatnonzero((busy if while_busy and busy.any() else mine) & ~np.isnan(rows[column]))
            if not len(at):
                continue
            values = rows[column][at] * factor
            quarters = np.array_split(values, 4)
            ends = (quarters[0], quarters[-1]) if len(quarters[-1]) else (values, values)
            of = rows[limit][at] * factor if limit else np.full(1, np.nan)
            most = None if np.isnan(of).all() else float(np.nanmax(of))
            cells = (values.mean(), values.min(), values.max(), *(q.mean() for q in ends))
            share = float(values.mean()) / most if most else None
            table.append([device, words, *(float(c) for c in cells), most, share])
    out.table("samples.held", table)
    moments = stretches(rows["time"] / 1e9)
    columns = [rows[column] * factor for _, column, factor, _, _ in _HELD]
    out.table("samples.moments", [[at, *(over(np.mean, c[i]) for c in columns)] for at, i in moments])


def _enough(a: Loaded, count: int) -> bool:
    """A sampler that was asked once or twice does not say how a GPU is used."""
    return count >= limits.LOG_SAMPLES or not a.trace.capture.recorder.samples_only


def _unused(a: Loaded, device: int) -> bool | None:
    """The samples of this device show neither work nor memory of a program, and those of another one do;
    None if one device is sampled."""
    rows = a.trace.columns("samples", ("device", "gr_active", "memory_used_bytes"))
    mine = rows["device"] == device
    if mine.all():
        return None
    about, active = a.device(device), rows["gr_active"]
    size = about.memory_bytes if about is not None else None
    works = [
        np.nanmean(active[at]) >= limits.USED_RATIO for at in (mine, ~mine) if not np.isnan(active[at]).all()
    ]
    held = size and np.nanmax(rows["memory_used_bytes"][mine], initial=0) > limits.HELD_MEMORY_RATIO * size
    return works == [False, True] and not held


def _while_busy(samples: Samples, busy: float, inside: Array | None, out: FactWriter) -> None:
    """Means over the busy share of the window. `inside` is how much of each sample the device is
    busy, given where the samples do not resolve kernels: then each counts as a whole."""
    if busy <= 0:
        return
    for name, column in (("sm", "sm_active"), ("tensor", "tensor_active")):
        if (value := samples.mean(column)) is not None:
            out.put(f"activity.{name}_busy_ratio", min(value / busy, 1.0))
    if samples.dram is None or np.isnan(dram := _mean(samples.dram)):
        return
    out.put("activity.dram_busy_ratio", min(dram / busy, 1.0))
    # An upper bound, whichever kernels the samples belong to.
    out.put("activity.dram_bound_most_ratio", min(dram / busy / limits.DRAM_BOUND_RATIO, 1.0))
    if inside is not None:
        held = time_at_level(samples.dram, inside, limits.DRAM_BOUND_RATIO)
        out.put("activity.dram_bound_window_ratio", min(held, busy))


def work_recorded(a: Budgeted, device: int) -> bool:
    """False if the capture lacks the device's work: samples alone, and graphs of which neither the
    kernels nor the runs are recorded."""
    return device in a.devices and hidden_graph_ratio(a) < limits.HIDDEN_GRAPHS_RATIO


def sampled_devices(a: Budgeted) -> list[int]:
    """Devices known from samples alone: opaque graphs, and logs without a trace."""
    if a.devices or not a.trace.has("samples"):
        return []
    return sorted(set(a.trace.columns("samples", ("device",))["device"].tolist()))


def activity_facts(a: Profiled, device: int, out: FactWriter, weight_bytes: int | None) -> None:
    budget = a.budgets[device]
    window = budget.window.nonzero_length
    busy = budget.busy_ns / window
    out.put("bandwidth.peak_rate", dram_peak(a.device(device)))
    if weight_bytes:
        time = float(a.ops.length[a.device_kernels(device)].sum())
        read = read_ratio(a, device, weight_bytes * a.step_count, time)
        out.put("bandwidth.weights_ratio", read)
        if read is not None and a.samples(device) is None:
            held = min(read / limits.ACHIEVABLE_RATIO, 1.0) * min(time / window, busy)
            out.put("activity.dram_bound_window_ratio", held)
    samples = a.samples(device)
    if not work_recorded(a, device):
        return
    out |= {"activity.work_recorded": True, "activity.busy_ratio": busy, "activity.idle_ratio": 1.0 - busy}
    if samples is None:
        return
    spans = budget.busy
    late = a.sample_lag(device)
    out.put("activity.samples_off_ms", abs(late) / 1e6)
    if late:  # nothing that depends on which kernels a sample covers
        _while_busy(samples, busy, None, out)
        return
    out.put("activity.unrecorded_ratio", unrecorded_ratio(samples, spans))
    inside = Coverage(spans).within(samples.time, samples.time + samples.period) / samples.period
    del spans  # large, and no longer needed
    found = _with_weights(a, device, weight_bytes)
    resolved = found is not None and "dram" in found.level and bool(found.resolved("dram").any())
    out.put("activity.kernels_resolved", resolved)
    _while_busy(samples, busy, None if resolved else inside, out)
    if found is None:
        return
    shares = found.share
    if resolved:
        time, level = found.share_above("dram", limits.DRAM_BOUND_RATIO)
        out.put("activity.dram_bound_busy_ratio", min(time / busy, 1.0) if busy else None)
        out.put("activity.dram_bound_window_ratio", min(time, 1.0))
        out.put("activity.dram_bound_level_ratio", level)
        likely, most = (
            min(t / busy, 1.0) if busy else 0.0 for t in found.share_near("dram", limits.DRAM_BOUND_RATIO)
        )
        bound = out.value("activity.dram_bound_most_ratio") or 1.0
        between = likely, max(likely, min(most, bound))
        unknown = "kernels whose bandwidth the samples do not show on either side of the limit"
        out.put_between({"activity.dram_bound_likely_ratio": between}, unknown)
        known = float(shares[found.resolved("dram")].sum())
        out.put("activity.resolved_ratio", min(known / busy, 1.0) if busy else None)
    weighted = [
        (found.of(f, "tensor"), sum(s for (g, _), s in zip(found.groups, shares, strict=True) if g == f))
        for f in sorted(MATMUL)
    ]
    known_ = [(v, s) for v, s in weighted if v is not None]
    if known_:
        out.put("activity.matmul_tensor_ratio", sum(v * s for v, s in known_) / sum(s for _, s in known_))
    safe = {measure: found.safe(measure) for measure in found.level}
    rows = []
    for i, (f, label) in enumerate(found.groups):
        seen = {m: float(found.level[m][i]) for m, of in safe.items() if of[i]}
        levels = (seen.get(m) for m in ("dram", "sm", "tensor"))
        error = max((float(found.error[m][i]) for m in seen), default=None)
        rows.append([f, label or "all", float(shares[i]), *levels, error])
    out.table("activity.groups", rows)


def _with_weights(a: Profiled, device: int, weight_bytes: int | None) -> Activity | None:
    """The activity inside kernels; if the bytes of the weights are known, matrix products read them at
    least once a step. Products outside all groups may have read at the peak."""
    found = a.activity.get(device)
    if found is None or not weight_bytes:
        return found
    at = a.device_kernels(device)
    products = at[a.names.mask(lambda k: k.family in MATMUL)[a.op_name[at]]]
    time = float(a.ops.length[products].sum())
    shown = sum(s for (f, _), s in zip(found.groups, found.share, strict=True) if f in MATMUL)
    shown_ns = min(float(shown) * a.budgets[device].window.nonzero_length, time)
    read = read_ratio(a, device, weight_bytes * a.step_count, time)
    if read is None or not shown_ns:
        return found
    return found.reading(MATMUL, (read * time - (time - shown_ns)) / shown_ns)


def read_ratio(a: Loaded, device: int, size: int, time_ns: float) -> float | None:
    """Bandwidth of reading `size` bytes in `time_ns`, of the device's peak (nsys-profiling skill:
    BW_efficiency = weight_bytes / kernel_time / peak). None if the peak is unknown or the result exceeds
    it: then something else was read."""
    peak = dram_peak(a.device(device))
    if not peak or not size or not time_ns:
        return None
    ratio = size / time_ns * 1e9 / peak
    return ratio if ratio <= 1.0 else None


# --- clocks, power and temperature while a device is busy -----------------------------------------


def _clock_samples(a: Budgeted, device: int) -> tuple[dict[str, Any], Array, Array]:
    """All samples, and masks of those of the device in the window and of the busy ones among them."""
    rows = a.trace.columns("samples", _CLOCK_COLUMNS)
    mine = (rows["device"] == device) & (rows["time"] >= a.window.start)
    mine &= rows["time"] <= a.window.end
    active = rows["sm_active"] if not np.isnan(rows["sm_active"][mine]).all() else rows["gr_active"]
    if np.isnan(active[mine]).all() and mine.sum() > 1 and device in a.budgets:
        # A sampler of power and heat alone: each sample stands for the time since the one before.
        time = rows["time"][mine]
        before = np.append(time[0] - median_of(np.diff(time)), time[:-1]).astype(np.int64)
        ran = Coverage(a.budgets[device].compute).within(before, time)
        active = np.full(len(active), np.nan)
        active[mine] = ran / np.maximum(time - before, 1)
    return rows, mine, mine & (np.nan_to_num(active) >= limits.BUSY_SAMPLE_RATIO)


def state_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """The performance state of a busy board: one look at it tells that."""
    rows, mine, busy = _clock_samples(a, device)
    state, power, limit = (rows[n][busy] for n in ("performance_state", "power_w", "power_limit_w"))
    out.put("clock.power_over_limit", _mean(power / limit))
    known = state[~np.isnan(state)]
    if not len(known):
        return
    low = float((known >= limits.LOW_STATE).mean())
    out.put("clock.low_state_ratio", low)
    out.put("clock.low_state_window_ratio", low * float(busy.sum() / max(mine.sum(), 1)))
    out.put("clock.performance_state", f"P{median_of(known):.0f}")


def clock_facts(a: Budgeted, device: int, out: FactWriter) -> None:
    """Only busy samples count: an idle GPU clocks down on purpose."""
    rows, mine, busy = _clock_samples(a, device)
    if not busy.any():
        return
    clock, top, power, limit, held, heated, slowed, heat = (rows[n][busy] for n in _CLOCK_COLUMNS[4:-1])
    about, spec = a.device(device), gpu_of(a.device(device))
    highest = about.clock_hz if np.isnan(top).all() else float(np.nanmax(top))
    if not highest and not np.isnan(rows["sm_clock_hz"][mine]).all():
        boost = 1e6 * (spec.clock_mhz or 0) if spec else 0.0
        seen = float(np.nanmax(rows["sm_clock_hz"][mine]))  # held down all along, it shows no higher one
        if boost or np.nan_to_num(_mean(held)) < limits.BUSY_SAMPLE_RATIO:
            highest = max(seen, boost)  # at least these it can reach
    mean_clock, hottest = _mean(clock), float(np.nanmax(heat, initial=-np.inf))
    if highest and not np.isnan(mean_clock):
        ratio, share = mean_clock / highest, float(busy.sum() / max(mine.sum(), 1))
        out.put("clock.busy_ratio", min(ratio, 1.0))
        out.put("clock.lost_window_ratio", max(1.0 - ratio, 0.0) * share)
        quarters = np.array_split(clock[~np.isnan(clock)], 4)
        if len(quarters[-1]) >= limits.QUARTER_SAMPLES:
            medians = [median_of(q) for q in quarters]
            out.put("clock.fall_ratio", 1.0 - medians[-1] / max(*medians, 1.0))
    rated = spec is not None and spec.tdp_w is not None and bool(np.isnan(limit).all())
    if spec is not None and rated:
        limit = np.full(len(power), float(spec.tdp_w or np.nan))
    at_limit = np.where(np.isnan(power) | np.isnan(limit), np.nan, power >= limits.AT_LIMIT_RATIO * limit)
    # The driver's own reasons take precedence over the measured power, which at its limit holds nothing down
    # as long as the clock is at its highest.
    full = clock >= limits.FULL_CLOCK_RATIO * (highest or np.inf)
    limited = np.where(np.isnan(held), np.where(full, 0.0 * at_limit, at_limit), held)
    # The limit may be set below the rated power: samples below the rating may still be at the limit.
    unsure = rated and bool(np.isnan(held).any())
    shares = {"clock.power_limited_ratio": _mean(at_limit), "clock.limited_ratio": _mean(limited)}
    out.put_between({n: (s, 1.0 if unsure else s) for n, s in shares.items() if not np.isnan(s)})
    if highest and not np.isnan(mean_clock) and not np.isnan(limited).all():
        out.put("clock.unexplained_ratio", _mean((limited == 0) & (clock < limits.LOW_CLOCK_RATIO * highest)))
    if spent := np.nansum(limited):
        hot, slow = (np.nansum(of) / spent for of in (heated, slowed))
        out.put("clock.limit", "heat" if hot >= 0.5 else "hardware's own" if slow >= 0.5 else "power")
    out.put("clock.held_back_ratio", _mean(held))
    out.put("clock.temperature_max_c", hottest)
    table: list[list[Any]] = [
        ["SM clock while busy", mean_clock / 1e6, "MHz"],
        ["highest SM clock", highest / 1e6 if highest else np.nan, "MHz"],
        ["power while busy", _mean(power), "W"],
        ["rated power" if rated else "power limit", _mean(limit), "W"],
        ["held down by the driver", 100.0 * _mean(held), "% of samples"],
        ["highest temperature", hottest, "C"],
    ]
    out.table("clock.samples", [row for row in table if np.isfinite(row[1])])


def _mean(values: Array) -> float:
    """NaN without any value."""
    return np.nan if np.isnan(values).all() else float(np.nanmean(values))
