"""Whether two sides can be compared: the same machine, capture, model and work, or what differs.

Every check gives a factor between 0 (never) and 1; comparability is their product. Unrecorded properties
cost a little, because they may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log, prod
from typing import Literal

import numpy as np
from msgspec import Struct

from advisor.comparison.sides import Kernel, Phase, Side, shared
from advisor.knowledge.verb_files import factor, limit
from advisor.model.comparison import Reason
from advisor.model.facts import Cell
from advisor.model.numbers import megahertz, percent

#: One layer more or less may be a draft head.
_LAYERS_APART = 1
#: Families whose launch size follows tokens and hidden size, and nothing else.
_SIZED = frozenset(
    (
        "elementwise",
        "norm",
        "activation",
        "rope",
        "copy",
        "quantise",
        "kv_cache",
        "embedding",
        "index",
        "reduction",
        "softmax",
        "memset",
        "sampling",
        "speculation",
    )
)
#: Families that choose experts; sampling sorts, too, but once a step and not in every layer.
_ROUTING = frozenset(("moe", "scan_sort"))
#: Launches of at most this many blocks are at their smallest and do not reflect the work.
_SMALLEST = 2
#: Findings that make step times worthless; opaque graphs are judged by what both sides show.
_OPAQUE = "opaque-cuda-graphs"


class Reasons(Struct, frozen=True):
    """Reasons about the captures as a whole, and about each phase; similarities by name."""

    reasons: tuple[Reason, ...]
    by_phase: dict[str, tuple[Reason, ...]]
    model: float | None
    phase_overlap: float
    work: dict[str, float | None]

    def of(self, phase: str | None) -> tuple[Reason, ...]:
        """About the captures, and about this phase."""
        return (*self.reasons, *self.by_phase.get(phase or "", ()))

    def score(self, phase: str) -> float:
        return prod(r.score for r in self.of(phase))

    def differing(self, phase: str | None = None) -> list[str]:
        """The differences, the most severe first."""
        found = [r for r in self.of(phase) if r.state == "differs" and r.score < 1.0]
        return [r.text for r in sorted(found, key=lambda r: r.score)]


def judge(before: Side, after: Side, phases: Sequence[Phase]) -> Reasons:
    """All checks; `phases` as `sides.paired` gives them."""
    common = shared(phases)
    overlap = sum(min(before.shares.get(b, 0.0), after.shares.get(a, 0.0)) for _, b, a in common)
    model = _model(before, after, [(b, a) for _, b, a in common])
    reasons = (
        *_machine(before, after),
        *_capture(before, after),
        *_usable(before, after),
        model,
        _mix(before, after, overlap),
    )
    work = {label: _work(before, after, label, b, a) for label, b, a in common}
    known = {label: None if r.state == "unknown" else r.score for label, r in work.items()}
    likeness = None if model.state == "unknown" else model.score
    return Reasons(reasons, {label: (r,) for label, r in work.items()}, likeness, overlap, known)


def _machine(before: Side, after: Side) -> Iterator[Reason]:
    old, new = (", ".join(dict.fromkeys(g for w in s.works for g in w.gpus)) for s in (before, after))
    yield _alike("GPU", old or None, new or None, 0.0, f"the GPU is {old} before and {new} after")
    old_count, new_count = (max((w.gpu_count for w in s.works), default=0) for s in (before, after))
    yield _alike(
        "GPUs",
        old_count or None,
        new_count or None,
        factor("gpu-count"),
        f"GPUs at work: {old_count} before, {new_count} after",
    )
    for check, name in (("driver", "driver"), ("CUDA", "cuda")):
        old, new = (", ".join(s.texts(name)) for s in (before, after))
        yield _alike(check, old or None, new or None, factor("toolkit"), f"{check} {old} before, {new} after")
    clock = [_clock(s) for s in (before, after)]
    shift = clock_shift(before, after)
    apart = shift > limit("sm-clock")
    old, new = ("unknown" if c is None else megahertz(c) for c in clock)
    text = f"the SM clock is {old} before and {new} after" if apart else ""
    found = reason("clock", clock, not apart, 1.0 / (1.0 + shift) if apart else 1.0, text)
    yield found.replaced(state="unknown") if None in clock else found


def _clock(side: Side) -> float | None:
    """Sampled SM clock, else the nominal one."""
    sampled = [w.sm_clock_hz for w in side.works if w.sm_clock_hz]
    nominal = [w.clock_hz for w in side.works if w.clock_hz]
    known = sampled if len(sampled) == len(side.works) else nominal
    return sum(known) / len(known) if known else None


def clock_shift(before: Side, after: Side) -> float:
    """Relative difference of the clocks; 0 if either side does not record it."""
    sides = [s.works for s in (before, after)]
    # A sampled clock cannot be compared with a nominal one.
    name = "sm_clock_hz" if all(w.sm_clock_hz for works in sides for w in works) else "clock_hz"
    known = [[v for w in works if (v := getattr(w, name))] for works in sides]
    old, new = (sum(clocks) / max(len(clocks), 1) for clocks in known)
    return abs(new / old - 1.0) if new and old else 0.0


def _capture(before: Side, after: Side) -> Iterator[Reason]:
    both = (before, after)
    producers = [
        {t.split(" ")[0] if "Nsight" not in t else "nsys" for t in s.texts("producer")} for s in both
    ]
    old, new = (", ".join(sorted(names)) or None for names in producers)
    yield _alike("profiler", old, new, 0.0, f"{old} recorded the one side and {new} the other")
    old, new = ("one block" if any(w.opaque for w in s.works) else "kernels" for s in both)
    text = f"CUDA graphs are recorded as {old} before and as {new} after (--cuda-graph-trace)"
    yield _alike("graphs", old, new, 0.0, text)
    traced = [{x for w in s.works for x in w.sources} for s in both]
    old, new = (", ".join(sorted(t)) or None for t in traced)
    only = (", ".join(sorted(t - o)) or "nothing more" for t, o in (traced, traced[::-1]))
    yield _alike("traced", old, new, factor("traced"), "traced besides: {} before, {} after".format(*only))
    rates = [{f"{w.sample_hz / 1e3:,.3g} kHz" for w in s.works if w.sample_hz} for s in both]
    old, new = (", ".join(sorted(r)) or "not sampled" for r in rates)
    yield _alike("GPU metrics", old, new, 1.0, f"GPU metrics: {old} before, {new} after")
    old, new = (", ".join(s.texts("step_method")) or None for s in both)
    yield _alike("steps", old, new, factor("step-method"), f"steps are known by {old} before, {new} after")
    old, new = (", ".join(s.texts("serving_engine")) or None for s in both)
    yield _alike("serving engine", old, new, 1.0, f"{old} served before, {new} after")


def _usable(before: Side, after: Side) -> Iterator[Reason]:
    """Captures that cannot be analysed cannot be compared."""
    for side in (before, after):
        found = [f for d in side.diagnoses for f in d.findings if f.invalidates and f.cause != _OPAQUE]
        titles = dict.fromkeys(f.title[:1].lower() + f.title[1:] for f in found)
        if titles:
            text = f"{side.name}: {', '.join(titles)}"
            yield Reason(check="capture", state="differs", score=0.0, text=text)


def _fingerprint(side: Side, phase: str) -> dict[str, float | None]:
    return {n: side.mean(phase, n) for n in ("layers", "attention", "matmul")}


def _model(before: Side, after: Side, common: Sequence[tuple[str, str]]) -> Reason:
    """Likeness of the two models, 0..1, by what no optimisation changes: the number of layers and of
    attention kernels; matrix products may be fused, down to half of them."""
    unknown = Reason(check="model", state="unknown", score=factor("untold"))
    if not common:
        return unknown
    # The phase that represents the model best: decode, else the largest one.
    phases = next((p for p in common if "decode" in p), common[0])
    old, new = _fingerprint(before, phases[0]), _fingerprint(after, phases[1])
    routes = [_routes(s, p, f["layers"]) for s, p, f in zip((before, after), phases, (old, new), strict=True)]
    factors = []
    if old["layers"] and new["layers"]:
        ratio = _likeness(old["layers"], new["layers"])
        apart = abs(old["layers"] - new["layers"]) > _LAYERS_APART
        factors.append(factor("layers") * ratio if apart else 1.0)
    elif old["attention"] and new["attention"]:
        factors.append(_likeness(old["attention"], new["attention"]))
    if old["matmul"] and new["matmul"]:
        factors.append(min(1.0, 2.0 * _likeness(old["matmul"], new["matmul"])))
        if routes[0] != routes[1]:
            factors.append(factor("experts"))
    if not factors:
        return unknown
    texts = [
        (f"{f['layers']:.0f} layers, " if f["layers"] else "")
        + f"{f['matmul'] or 0:.0f} matrix products and {f['attention'] or 0:.0f} attention kernels a step"
        + (", experts" if chosen else "")
        for f, chosen in zip((old, new), routes, strict=True)
    ]
    likeness = prod(factors)
    text = f"the models differ: {texts[0]} before, {texts[1]} after"
    return reason("model", texts, likeness > limit("same-model"), likeness, text)


def _routes(side: Side, phase: str, layers: float | None) -> bool:
    """Whether every layer chooses experts: a mixture of experts is another model than a dense one."""
    calls = sum(k.calls for k in side.kernels(phase).values() if k.name.family in _ROUTING)
    return bool(layers) and calls >= (layers or 0.0)


def _likeness(old: float, new: float) -> float:
    return min(old, new) / max(old, new) if min(old, new) > 0 else 0.0


def _mix(before: Side, after: Side, overlap: float) -> Reason:
    least = limit("shown-phase")
    held = [{p: share for p, share in sorted(s.shares.items()) if share >= least} for s in (before, after)]
    texts = [", ".join(f"{percent(share)} {p}" for p, share in shares.items()) or None for shares in held]
    text = "the step time is {} before and {} after".format(*(t or "unknown" for t in texts))
    return reason("phases", texts, overlap > limit("same-phases"), overlap, text)


def window_work_ratio(before: Side, after: Side, old_phase: str, new_phase: str) -> float | None:
    """Kernels in the window after over those before, if steps are unknown; else None. Such windows hold
    what was recorded, and twice the time is twice the work."""
    if before.steps(old_phase) and after.steps(new_phase):
        return None
    old, new = before.mean(old_phase, "kernel_calls"), after.mean(new_phase, "kernel_calls")
    return new / old if old and new else None


def _work_ratio(before: Side, after: Side, old_phase: str, new_phase: str) -> float | None:
    if not before.steps(old_phase) or not after.steps(new_phase):
        return window_work_ratio(before, after, old_phase, new_phase)
    for name in ("tokens", "batch"):
        old, new = before.mean(old_phase, name), after.mean(new_phase, name)
        if old and new:
            return new / old
    return launch_ratio(before.kernels(old_phase), after.kernels(new_phase))


def launch_ratio(before: dict[str, Kernel], after: dict[str, Kernel]) -> float | None:
    """Median ratio (after over before) of the blocks a launch, over the kernels of both sides whose size
    depends on the work, weighted by time; None if there are none."""
    both = [(k, after[n]) for n, k in before.items() if n in after and k.name.family in _SIZED]
    sized = [
        (log(y.blocks / x.blocks), min(x.ms, y.ms), max(x.blocks, y.blocks))
        for x, y in both
        if min(x.blocks, y.blocks) > 0
    ]
    large = [s for s in sized if s[2] > _SMALLEST] or sized
    if not large:
        return None
    large.sort()
    weight = np.cumsum([w for _, w, _ in large])
    at = int(np.searchsorted(weight, weight[-1] / 2)) if weight[-1] > 0 else len(large) // 2
    return float(np.exp(large[at][0]))


def _work(before: Side, after: Side, label: str, b: str, a: str) -> Reason:
    """How similar the amount of work a step is, 0..1: tokens by the range names, else the launch sizes of
    the kernels that both sides run."""
    ratio = _work_ratio(before, after, b, a)
    text = f"no steps are known, and the window after holds {ratio or 1.0:.3g} times the kernels"
    if before.steps(b) and after.steps(a):
        text = f"a {label} step does {ratio or 1.0:.3g} times the work (batch or tokens)"
    return of_ratio("work", label, ratio, limit("same-work"), text)


def of_ratio(check: str, phase: str, ratio: float | None, least: float, text: str) -> Reason:
    """A check of a ratio, after over before; the two sides are the same if it is near 1."""
    if ratio is None:
        return Reason(check=check, phase=phase, state="unknown", score=factor("untold"))
    likeness = min(ratio, 1 / ratio)
    return reason(check, (1.0, round(ratio, 3)), likeness >= least, likeness, text, phase)


def reason(
    check: str, ends: Sequence[Cell], same: bool, score: float, text: str, phase: str | None = None
) -> Reason:
    """One check; `ends` are its results before and after."""
    before, after = ends
    state: Literal["same", "differs"] = "same" if same else "differs"
    return Reason(check=check, phase=phase, before=before, after=after, state=state, score=score, text=text)


def _alike(check: str, before: Cell, after: Cell, score: float, text: str) -> Reason:
    if before is None or after is None:
        return Reason(check=check, before=before, after=after, state="unknown", score=1.0)
    same = before == after
    return reason(check, (before, after), same, 1.0 if same else score, "" if same else text)
