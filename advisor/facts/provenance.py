"""Facts about where GPU work comes from: modules, lines, operators and the sizes of matrix products, as
recorded or taken from another recording (`--together`); which code makes the calls that findings are about;
and what timing Python calls costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.facts import limits
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.gpus import dram_peak, gpu_of, l2_bytes
from advisor.knowledge.shapes import Precision
from advisor.metrics.budgeted.callsites import GROUPS, CallSiteFinder, CallSites
from advisor.metrics.budgeted.matmuls import Matmuls, Shape, Sized, attentions
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.loaded.kernels import UNFUSED, heaviest
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.origins import Origins, module_tree
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array, percentiles
from advisor.model.capture import Capture
from advisor.model.numbers import percent
from advisor.sources.schema import OPERATIONS

_ROWS = 10
_TREE_ROWS = 200
#: Bytes of an element -> the precision whose peak counts.
_PRECISION: dict[int, Precision] = {1: "fp8", 2: "fp16", 4: "tf32"}
_SITES = 10
_WHAT = {
    "launch": "launch calls",
    "sync": "waiting calls",
    "copy": "copy and memset calls",
    "alloc": "allocation and free calls",
}
_HOW = {
    "backtraces": "CUDA backtraces",
    "stacks": "Python stacks",
    "samples": "CPU samples",
    "ranges": "enclosing ranges",
}
_NAMELESS = {"backtraces": "(without a backtrace)", "ranges": "(outside of ranges)"}


@predicate
def second_recording(a: Profiled) -> bool:
    return a.other is not None


@predicate
def python_calls(a: Loaded) -> bool:
    return _recorded(a.trace.capture)


@predicate
def cost_of_python_calls(a: Stepped) -> bool:
    return _callback_ns(_call_rows(a)) is not None


def provenance_facts(a: Budgeted, device: int, out: FactWriter, products: Matmuls | None) -> None:
    found = a.provenance.ops
    at = a.device_ops(device)
    duration = a.ops.length[at].astype(float)
    if found is None or not duration.sum():
        return
    for name, known, names in (
        ("operator", found.operator, found.operators),
        ("module", found.module, found.modules),
        ("line", found.line, found.lines),
    ):
        if names:  # recorded at all
            out.put(f"origin.{name}_ratio", duration[known[at] >= 0].sum() / duration.sum())
    kernels = a.device_kernels(device)
    unfused = kernels[a.names.mask(lambda k: k.family in UNFUSED)[a.op_name[kernels]]]
    if heaviest := _heaviest(a, found, unfused):
        out.put("origin.unfused_place", f"{heaviest[0][0]} ({percent(heaviest[0][3], 2)})")
    out.table("origins.places", _heaviest(a, found, kernels))
    rows = []
    for r in module_tree(found, at, duration)[:_TREE_ROWS]:
        name, own, total = f"{'. ' * r.level}{r.name}", r.self_ns / 1e6, r.total_ns / 1e6
        rows.append([name, r.objects, r.kernels, own, total, r.total_ns / duration.sum()])
    out.table("origins.modules", rows)
    if products is not None:
        known = products.product >= 0
        odd = np.array([p.is_misaligned for _, p in products.products])[np.maximum(products.product, 0)]
        misaligned = products.duration[odd & known].sum() / a.budgets[device].program_ns
        sized = products.duration[known].sum() / max(products.duration.sum(), 1.0)
        out |= {
            "kernel.matmul_sized_ratio": sized,
            "kernel.misaligned_window_ratio": min(misaligned, 1.0),
            "kernel.matmul_flop_ratio": _reached(a, device, products)[0],
        }
        out.table("kernels.matmuls", _by_sizes(a, device, products))
    if (attention := attentions(a, device)) is not None:
        of_peak, of_memory = _reached(a, device, attention)
        out |= {"kernel.attention_flop_ratio": of_peak, "kernel.attention_bandwidth_ratio": of_memory}
        out.table("kernels.attention", _by_sizes(a, device, attention))


def match_facts(a: Stepped, out: FactWriter) -> None:
    """How well the other recording fits this one."""
    match = a.provenance.match
    out.put("origin.match_ratio", a.provenance.quality)
    out.put("origin.same_shape_ratio", None if match is None else match.same_ratio)


def _heaviest(a: Loaded, found: Origins, at: Array) -> list[tuple[str, int, float, float]]:
    """The places that launch most kernel time: place, kernels, ms, share; empty if none is recorded."""
    if not found.known[at].any():
        return []
    duration = a.ops.length[at].astype(float)
    heaviest = [row for row in found.by_place(at, duration) if row[2]][:_ROWS]
    return [(place, count, time / 1e6, time / duration.sum()) for place, count, time in heaviest]


def _rates(a: Loaded, device: int) -> Mapping[Precision, float]:
    about = gpu_of(a.device(device))
    return about.tensor_tflops if about else {}


def _reached(a: Loaded, device: int, found: Sized[Shape]) -> tuple[float | None, float | None]:
    """Operations and bytes a second, of the peaks of their precision and of memory (without cached
    bytes); None above the peaks, which means that a part did not run (or the sizes are wrong)."""
    rates, bandwidth = _rates(a, device), dram_peak(a.device(device))
    size = np.array([p.size for _, p in found.products])[np.maximum(found.product, 0)]
    reached, spent = 0.0, 0.0
    for width, precision in _PRECISION.items():
        time, flop, _ = found.of((size == width) & (found.product >= 0))
        if time and (peak := rates.get(precision)):
            reached, spent = reached + flop / (peak * 1e3), spent + time
    of_peak = reached / spent if spent else None
    took, _, moved = found.of(np.isin(size, list(_PRECISION)) & ~_cached(a, device, found)[found.product])
    of_memory = moved / took * 1e9 / bandwidth if took and bandwidth else None
    return _possible(of_peak), _possible(of_memory)


def _cached(a: Loaded, device: int, found: Sized[Shape]) -> Array:
    """Of every product, whether its operands come from the L2 cache: they fit, and move faster than memory
    can."""
    room, bandwidth = l2_bytes(a.device(device)), dram_peak(a.device(device))
    cached = np.zeros(len(found.products), bool)
    for i, (_, product) in enumerate(found.products):
        time, _, moved = found.of(found.product == i)
        cached[i] = product.bytes <= (room or 0) and moved > time * (bandwidth or np.inf) / 1e9
    return cached


def _possible(ratio: float | None) -> float | None:
    return ratio if ratio is not None and ratio <= 1 else None


def _by_sizes(a: Loaded, device: int, found: Sized[Shape]) -> list[list[Any]]:
    """Rows by operator and sizes, the one with most time first."""
    rates, known, whole = _rates(a, device), dram_peak(a.device(device)), float(found.duration.sum())
    cached, rows = _cached(a, device, found), list[list[Any]]()
    for i, (operator, product) in enumerate(found.products):
        mine = found.product == i
        time, flop, moved = found.of(mine)
        peak = rates.get(_PRECISION[product.size]) if product.size in _PRECISION else None
        of_peak = flop / time / (peak * 1e3) if peak and time else None
        of_memory = moved / time * 1e9 / known if known and time and moved and not cached[i] else None
        named: tuple[Any, ...] = operator, str(product), product.size or None, (mine & ~found.reduction).sum()
        tflops, share = flop / max(time, 1.0) / 1e3, time / max(whole, 1.0)
        rows.append([*named, time / 1e6, tflops, of_peak, of_memory, share])
    return sorted(rows, key=lambda row: -row[4])[:_ROWS]


# --- which code makes the calls that a finding is about: tables call_sites.* ---------------------


def call_site_tables(a: Budgeted, device: int, out: FactWriter) -> None:
    """One table a class of calls that the feeding thread makes in the window; where the capture
    names none of them, one table `call_sites.flag` with the option that would."""
    feeder = a.feeder(device)
    if feeder is None:
        return
    finder, known = CallSiteFinder(a, device, feeder), False
    for kind in GROUPS:
        if (found := finder.of(kind)) is not None:
            known = True
            _sites(found, kind, a.step_count, out)
            top = next((s for s in found.sites if s.where), None)
            if top is not None and top.time_ns >= limits.SITE_RATIO * found.time_ns:
                out.put(f"origin.{kind}_place", top.where)
    if known or not any(map(finder.has, GROUPS)):
        return
    recorder = a.trace.capture.recorder
    if recorder.backtraces is None:  # ranges are all that this tool can record about it
        title, options = "The calling code is not recorded", [recorder.ranges]
    elif a.trace.has("ranges"):
        title, options = "The calling functions are not recorded", [recorder.backtraces]
    else:
        title = "Neither the calling functions nor ranges around them are recorded"
        options = [recorder.backtraces, recorder.ranges]
    out.table("call_sites.flag", [[option] for option in options if option], title=title)


def _sites(found: CallSites, kind: str, steps: int, out: FactWriter) -> None:
    """The heaviest sites; unnamed ones last."""
    title = f"Where the {_WHAT[kind]} come from, by {_HOW[found.source]}"
    columns = "called from, call, calls, a step, total:ms, share:ratio, GPU idle:ms"
    if found.source == "ranges":
        columns = columns.replace("called from", "range")
    elif found.source == "samples":
        title += f" ({sum(s.calls for s in found.sites)} in {found.calls} calls)"
        columns = "called from, call, samples, total:ms, share:ratio"
    rows = []
    for site in sorted(found.sites, key=lambda s: s.where is None)[:_SITES]:
        where, share = site.where or _NAMELESS.get(found.source, "-"), site.time_ns / max(found.time_ns, 1)
        row = [where, site.call, site.calls, site.time_ns / 1e6, share]
        if found.source != "samples":
            row.insert(3, site.calls / steps if steps else None)
            row.append(site.idle_ns / 1e6)
        rows.append(row)
    out.table(f"call_sites.{kind}", rows, title=f"{title}, share of their time", columns=columns)


# --- Python calls that the profiler timed, and what timing them costs -----------------------------


def stack_facts(a: Stepped, out: FactWriter) -> None:
    recorded = _recorded(a.trace.capture)
    out.put("capture.stack_recorded", recorded)
    out.put("capture.stack_option", "with_stack" if recorded else None)
    if not a.trace.has("python_rows"):
        return
    rows = _call_rows(a)
    count = len(rows["start"])
    out.put("capture.python_call_count", count)
    if not count:
        return
    if operators := _operators(a, int(rows["thread"][0])):
        out.put("capture.python_calls_per_operator", count / operators)
    each, (lo, hi) = _callback_ns(rows), a.host_window
    if each is not None:
        out.put("capture.stack_cost_ratio", min(2 * count * each / max(hi - lo, 1), 1.0))


def _recorded(capture: Capture) -> bool:
    """Whether the PyTorch profiler timed Python calls; other profilers sample stacks."""
    asked = capture.options.get("with_stack", "").lower() in ("1", "true")
    return asked or "python_function" in capture.trace_sources


def _call_rows(a: Stepped) -> dict[str, Array]:
    """Timed Python calls that lie in the window, of the thread with most of them."""
    rows = a.trace.columns("python_rows", ("start", "end", "thread"))
    lo, hi = a.host_window
    inside = (rows["start"] >= lo) & (rows["end"] <= hi)
    if inside.any():
        inside &= rows["thread"] == heaviest(rows["thread"][inside])
    return {name: values[inside] for name, values in rows.items()}


def _operators(a: Stepped, thread: int) -> int:
    ranges = a.trace.columns("ranges", ("start", "thread", "domain"))
    lo, hi = a.host_window
    inside = (ranges["start"] >= lo) & (ranges["start"] < hi) & (ranges["thread"] == thread)
    return int((inside & (ranges["domain"] == OPERATIONS)).sum())


def _callback_ns(rows: dict[str, Array]) -> float | None:
    """The cost of one begin or end of a Python call, ns; None if times are too few or too coarse."""
    apart = np.diff(np.sort(np.concatenate((rows["start"], rows["end"]))))
    if len(apart) < limits.CALLBACKS:
        return None
    return percentiles(apart, 100 * limits.CALLBACK_QUANTILE)[0] or None
