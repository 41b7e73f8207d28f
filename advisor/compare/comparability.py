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

from advisor.compare.sides import Kernel, Side
from advisor.knowledge.compare import factor, limit
from advisor.model.comparison import Reason
from advisor.model.facts import Cell
from advisor.model.numbers import megahertz, percent

#: One layer more or less may be a draft head.
_LAYERS_APART = 1
#: Families whose launch size follows tokens and hidden size, and nothing else.
_SIZED = frozenset(
    ("elementwise", "norm", "activation", "rope", "copy", "quantise", "kv_cache", "embedding",
     "index", "reduction", "softmax", "memset", "sampling")
)  # fmt: skip
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

    def score(self, phase: str | None = None) -> float:
        own = self.by_phase.get(phase, ()) if phase is not None else ()
        return prod(r.score for r in (*self.reasons, *own))

    def differing(self, phase: str | None = None) -> list[str]:
        """The differences, the most severe first."""
        own = self.by_phase.get(phase, ()) if phase is not None else ()
        found = [r for r in (*self.reasons, *own) if r.state == "differs" and r.score < 1.0]
        return [r.text for r in sorted(found, key=lambda r: r.score)]


def judge(before: Side, after: Side, phases: list[tuple[str, str | None, str | None]]) -> Reasons:
    """All checks; `phases` as `sides.paired` gives them."""
    overlap = sum(min(before.shares.get(b, 0.0), after.shares.get(a, 0.0)) for _, b, a in phases if b and a)
    model = _model(before, after, phases)
    work = {label: _work_similarity(before, after, b, a) for label, b, a in phases if b and a}
    reasons = (
        *_machine(before, after),
        *_capture(before, after),
        *_usable(before, after),
        _model_reason(before, after, phases, model),
        _mix(before, after, overlap),
    )
    by_phase: dict[str, tuple[Reason, ...]] = {
        label: (_work_reason(before, after, label, b, a, work[label]),) for label, b, a in phases if b and a
    }
    return Reasons(reasons, by_phase, model, overlap, work)


# ---------------------------------------------------------------- machine and tools


def _machine(before: Side, after: Side) -> Iterator[Reason]:
    b, a = (", ".join(dict.fromkeys(g for w in s.works for g in w.gpus)) for s in (before, after))
    yield _alike("GPU", b or None, a or None, 0.0, f"the GPU is {b} before and {a} after")
    n, m = (max((w.gpu_count for w in s.works), default=0) for s in (before, after))
    yield _alike("GPUs", n or None, m or None, factor("gpu-count"), f"GPUs at work: {n} before, {m} after")
    for check, name in (("driver", "driver"), ("CUDA", "cuda")):
        b, a = (", ".join(s.texts(name)) for s in (before, after))
        yield _alike(check, b or None, a or None, factor("toolkit"), f"{check} {b} before, {a} after")
    clock = [_clock(s) for s in (before, after)]
    shift = clock_shift(before, after)
    apart = shift > limit("sm-clock")
    b, a = ("unknown" if c is None else megahertz(c) for c in clock)
    text = f"the SM clock is {b} before and {a} after" if apart else ""
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
    kinds = [all(w.sm_clock_hz for w in s.works) for s in (before, after)]
    if kinds[0] != kinds[1]:  # a sampled clock cannot be compared with a nominal one
        kinds = [False, False]
    clocks = []
    for side in (before, after):
        name = "sm_clock_hz" if all(kinds) else "clock_hz"
        known = [v for w in side.works if (v := getattr(w, name))]
        clocks.append(sum(known) / len(known) if known else None)
    b, a = clocks
    return abs(a / b - 1.0) if a and b else 0.0


def _capture(before: Side, after: Side) -> Iterator[Reason]:
    both = (before, after)
    producers = [
        {t.split(" ")[0] if "Nsight" not in t else "nsys" for t in s.texts("producer")} for s in both
    ]
    b, a = (", ".join(sorted(names)) or None for names in producers)
    yield _alike("profiler", b, a, 0.0, f"{b} recorded the one side and {a} the other")
    b, a = ("one block" if any(w.opaque for w in s.works) else "kernels" for s in both)
    text = f"CUDA graphs are recorded as {b} before and as {a} after (--cuda-graph-trace)"
    yield _alike("graphs", b, a, 0.0, text)
    traced = [{x for w in s.works for x in w.sources} for s in both]
    b, a = (", ".join(sorted(t)) or None for t in traced)
    only = (", ".join(sorted(t - o)) or "nothing more" for t, o in (traced, traced[::-1]))
    yield _alike("traced", b, a, factor("traced"), "traced besides: {} before, {} after".format(*only))
    rates = [{f"{w.sample_hz / 1e3:,.3g} kHz" for w in s.works if w.sample_hz} for s in both]
    b, a = (", ".join(sorted(r)) or "not sampled" for r in rates)
    yield _alike("GPU metrics", b, a, 1.0, f"GPU metrics: {b} before, {a} after")
    b, a = (", ".join(s.texts("step_method")) or None for s in both)
    yield _alike("steps", b, a, factor("step-method"), f"steps are known by {b} before, {a} after")
    b, a = (", ".join(s.texts("serving_engine")) or None for s in both)
    yield _alike("serving engine", b, a, 1.0, f"{b} served before, {a} after")


def _usable(before: Side, after: Side) -> Iterator[Reason]:
    """Captures that cannot be analysed cannot be compared."""
    for side in (before, after):
        void = [
            f.title[:1].lower() + f.title[1:]
            for d in side.diagnoses
            for f in d.findings
            if f.invalidates and f.cause != _OPAQUE
        ]
        if void:
            text = f"{side.name}: {', '.join(dict.fromkeys(void))}"
            yield Reason(check="capture", state="differs", score=0.0, text=text)


# ---------------------------------------------------------------- model and work


def _fingerprint(side: Side, phase: str) -> dict[str, float | None]:
    return {n: side.mean(phase, n) for n in ("layers", "attention", "matmul")}


def _identity_phase(phases: list[tuple[str, str | None, str | None]]) -> tuple[str, str] | None:
    """The phase that represents the model best: decode, else the largest common one."""
    common = [(b, a) for _, b, a in phases if b and a]
    return next((p for p in common if "decode" in p), common[0] if common else None)


def _model(before: Side, after: Side, phases: list[tuple[str, str | None, str | None]]) -> float | None:
    """Likeness of the two models, 0..1, by what no optimisation changes: the number of layers and of
    attention kernels; matrix products may be fused, down to half of them."""
    common = _identity_phase(phases)
    if common is None:
        return None
    b, a = _fingerprint(before, common[0]), _fingerprint(after, common[1])
    factors = []
    if b["layers"] and a["layers"]:
        ratio = _likeness(b["layers"], a["layers"])
        apart = abs(b["layers"] - a["layers"]) > _LAYERS_APART
        factors.append(factor("layers") * ratio if apart else 1.0)
    elif b["attention"] and a["attention"]:
        factors.append(_likeness(b["attention"], a["attention"]))
    if b["matmul"] and a["matmul"]:
        factors.append(min(1.0, 2.0 * _likeness(b["matmul"], a["matmul"])))
        if _routes(before, common[0], b["layers"]) != _routes(after, common[1], a["layers"]):
            factors.append(factor("experts"))
    return prod(factors) if factors else None


def _routes(side: Side, phase: str, layers: float | None) -> bool:
    """Whether every layer chooses experts: a mixture of experts is another model than a dense one."""
    calls = sum(k.calls for k in side.kernels(phase).values() if k.name.family in _ROUTING)
    return bool(layers) and calls >= (layers or 0.0)


def _likeness(b: float, a: float) -> float:
    return min(b, a) / max(b, a) if min(b, a) > 0 else 0.0


def _model_reason(
    before: Side, after: Side, phases: list[tuple[str, str | None, str | None]], likeness: float | None
) -> Reason:
    common = _identity_phase(phases)
    if likeness is None or common is None:
        return Reason(check="model", state="unknown", score=factor("untold"))
    texts = []
    for side, phase in ((before, common[0]), (after, common[1])):
        f = _fingerprint(side, phase)
        layers = f"{f['layers']:.0f} layers, " if f["layers"] else ""
        experts = ", experts" if _routes(side, phase, f["layers"]) else ""
        texts.append(
            f"{layers}{f['matmul'] or 0:.0f} matrix products and {f['attention'] or 0:.0f} "
            f"attention kernels a step{experts}"
        )
    text = f"the models differ: {texts[0]} before, {texts[1]} after"
    return reason("model", texts, likeness > limit("same-model"), likeness, text)


def _mix(before: Side, after: Side, overlap: float) -> Reason:
    least = limit("shown-phase")
    held = [{p: share for p, share in sorted(s.shares.items()) if share >= least} for s in (before, after)]
    texts = [", ".join(f"{percent(share)} {p}" for p, share in shares.items()) or None for shares in held]
    text = "the step time is {} before and {} after".format(*(t or "unknown" for t in texts))
    return reason("phases", texts, overlap > limit("same-phases"), overlap, text)


def _work_similarity(before: Side, after: Side, b: str, a: str) -> float | None:
    """How similar the amount of work a step is, 0..1: tokens by the range names, else the launch sizes of
    the kernels that both sides run."""
    ratio = _work_ratio(before, after, b, a)
    return None if ratio is None else min(ratio, 1 / ratio)


def window_work_ratio(before: Side, after: Side, b: str, a: str) -> float | None:
    """Kernels in the window after over those before, if steps are unknown; else None. Such windows hold
    what was recorded, and twice the time is twice the work."""
    if before.steps(b) and after.steps(a):
        return None
    x, y = before.mean(b, "kernel_calls"), after.mean(a, "kernel_calls")
    return y / x if x and y else None


def _work_ratio(before: Side, after: Side, b: str, a: str) -> float | None:
    if not before.steps(b) or not after.steps(a):
        return window_work_ratio(before, after, b, a)
    for name in ("tokens", "batch"):
        x, y = before.mean(b, name), after.mean(a, name)
        if x and y:
            return y / x
    return launch_ratio(before.kernels(b), after.kernels(a))


def launch_ratio(before: dict[str, Kernel], after: dict[str, Kernel]) -> float | None:
    """Median ratio (after over before) of the blocks a launch, over the kernels of both sides whose size
    depends on the work, weighted by time; None if there are none."""
    both = [(k, after[n]) for n, k in before.items() if n in after and k.name.family in _SIZED]
    shared = [
        (log(y.blocks / x.blocks), min(x.ms, y.ms), max(x.blocks, y.blocks))
        for x, y in both
        if min(x.blocks, y.blocks) > 0
    ]
    large = [s for s in shared if s[2] > _SMALLEST] or shared
    if not large:
        return None
    large.sort()
    weight = np.cumsum([w for _, w, _ in large])
    at = int(np.searchsorted(weight, weight[-1] / 2)) if weight[-1] > 0 else len(large) // 2
    return float(np.exp(large[at][0]))


def _work_reason(before: Side, after: Side, label: str, b: str, a: str, likeness: float | None) -> Reason:
    if likeness is None:
        return Reason(check="work", phase=label, state="unknown", score=factor("untold"))
    ratio = _work_ratio(before, after, b, a) or 1.0
    text = f"no steps are known, and the window after holds {ratio:.3g} times the kernels"
    if before.steps(b) and after.steps(a):
        text = f"a {label} step does {ratio:.3g} times the work (batch or tokens)"
    return reason("work", (1.0, round(ratio, 3)), likeness >= limit("same-work"), likeness, text, label)


def reason(
    check: str, ends: Sequence[Cell], same: bool, score: float, text: str, phase: str | None = None
) -> Reason:
    """One check; `ends` are its results before and after."""
    state: Literal["same", "differs"] = "same" if same else "differs"
    before, after = ends
    return Reason(check=check, phase=phase, before=before, after=after, state=state, score=score, text=text)


def _alike(check: str, before: Cell, after: Cell, score: float, text: str) -> Reason:
    if before is None or after is None:
        return Reason(check=check, before=before, after=after, state="unknown", score=1.0)
    same = before == after
    return reason(check, (before, after), same, 1.0 if same else score, "" if same else text)
