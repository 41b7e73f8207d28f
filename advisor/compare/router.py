"""The perfect-router experiment: does uneven routing hold a mixture of experts back?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Any

from advisor.compare.benchmarks import Runs, read_sides
from advisor.compare.change_facts import COMPARISON, Judgement, RuleOptions, judge, parameter
from advisor.compare.sides import Side, ratio
from advisor.compare.statistics import HOST_SPREAD, t_quantile
from advisor.errors import InputError
from advisor.facts.spec import FactWriter
from advisor.knowledge.verb_files import limit, moe_router
from advisor.model.comparison import ExpertKernels, RouterExperiment, RouterRuns
from advisor.model.numbers import milliseconds
from advisor.model.work import KernelWork

#: Runs that differ by this factor do not measure the same.
_APART = 1_000
_EXPERTS = "moe"
#: Kernels whose presence shows that experts are separate products.
_ROUTING = frozenset(("scan_sort", "moe"))
_PRODUCTS = frozenset(("gemm", "gemv"))
#: The activation between the products of an expert: its size is the number of tokens, padded to the most.
_SIZED = "activation"
_EVEN = "launch sizes do not vary: tokens are even, padded to a fixed count, or grouped"


def experiment(
    learned: Sequence[str],
    perfect: Sequence[str],
    unit: str | None = None,
    metric: str | None = None,
    traces: Sequence[Side] | None = None,
    options: RuleOptions | None = None,
) -> RouterExperiment:
    """The verdict by the runs of both sides. Raises InputError for inputs without a number."""
    a, b = read_sides(learned, perfect, unit, metric)
    if not a.is_bare and (twice := set(a.sources) & set(b.sources)):
        raise InputError(f"{min(twice)}: the same report on both sides says nothing of the router")
    rates = (*a.rates, *b.rates)
    if not 0 < max(rates) < _APART * min(rates):
        raise InputError("the runs differ by more than a thousand times: they do not measure the same")
    # Rounded, so that 110 against 100 is no more than 10 %.
    gain = round(fmean(b.rates) / fmean(a.rates) - 1.0, 12)
    low, high = _interval(a, b, gain)
    facts, runs = FactWriter(COMPARISON), len(a.values) + len(b.values)
    facts |= {"moe.gain_ratio": gain, "moe.gain_least_ratio": low, "moe.runs_count": runs}
    chosen = options or RuleOptions()
    worth = parameter("router", "MOE102", "worth_loss", chosen)  # a loss is named from here on
    facts.put("moe.result", _result(gain, worth))
    judged = judge(facts, "router", chosen)
    line = judged.param("MOE101", "min_gain")
    # Against the noise of repeats; without an interval, against that of a host-bound loop.
    certain = abs(math.log1p(gain) - math.log1p(line)) > math.log1p(HOST_SPREAD)
    if low is not None and high is not None:
        certain = low > line or high <= line
    guilty = judged.fired("router-imbalance")
    return RouterExperiment(
        learned=_runs("learned", a),
        perfect=_runs("perfect", b),
        certain=certain,
        verdict="router-imbalance" if guilty else "routing-not-the-bottleneck",
        summary=_summary(a, b, gain, low, high, worth, guilty),
        gain=gain,
        gain_low=low,
        gain_high=high,
        experts=tuple(_experts(s) for s in traces or ()),
        notes=tuple(_notes(gain, low, certain, line, judged)),
        **judged.parts(),
    )


def _runs(name: str, runs: Runs) -> RouterRuns:
    same: dict[str, Any] = {n: getattr(runs, n) for n in ("values", "unit", "metric", "sources")}
    return RouterRuns(name=name, mean=fmean(runs.values), **same)  # type: ignore[arg-type]


def _interval(a: Runs, b: Runs, gain: float) -> tuple[float | None, float | None]:
    """98 % interval of the gain by Student on logarithms; None if each side has one run."""
    logs = [[math.log(v) for v in side.rates] for side in (a, b)]
    freedom = sum(len(side) - 1 for side in logs)
    if freedom == 0:
        return None, None
    pooled = sum((len(s) - 1) * variance(s) for s in logs if len(s) > 1) / freedom
    pooled = max(pooled, limit("run-spread") ** 2)  # few runs can agree by chance
    far = t_quantile(freedom) * math.sqrt(pooled * sum(1 / len(s) for s in logs))
    far = min(far, math.log(_APART))
    mid = math.log1p(gain)
    return math.expm1(mid - far), math.expm1(mid + far)


def _result(gain: float, worth: float) -> str:
    if abs(gain) < limit("routing-gain"):
        return f"the same within {ratio(limit('routing-gain'), sign=False)}"
    text = f"{ratio(abs(gain), sign=False)} {'higher' if gain > 0 else 'lower'}"
    return f"{text}, a loss" if gain <= -worth else text


def _summary(
    a: Runs, b: Runs, gain: float, low: float | None, high: float | None, worth: float, guilty: bool
) -> str:
    head = "Routing holds the throughput back" if guilty else "Routing is not the bottleneck"
    values = " to ".join(milliseconds(fmean(r.values)) for r in (a, b))
    interval = ""
    if low is not None and high is not None:
        interval = f"; 98 % interval of the gain {ratio(low)[:-2]} to {ratio(high)}"
    what = f"with perfect routing the throughput is {_result(gain, worth)}"
    return f"{head}: {what} ({values} {a.unit}{interval})."


def _notes(gain: float, low: float | None, certain: bool, line: float, judged: Judgement) -> list[str]:
    known, notes = moe_router(), []
    if (factor := max(1 + gain, 1 / (1 + gain))) > limit("same-benchmark"):
        notes.append(
            f"A factor of {factor:.3g} is more than balance can do: are "
            "both sides the same benchmark of the same model?"
        )
    if low is None:
        notes.append(
            "One run a side gives no interval. Repeats of a host-bound loop differed by up to 18 "
            "%; " + ("the verdict stands even so." if certain else "repeat both sides three times.")
        )
    elif not certain:
        notes.append(f"The interval contains the line of {ratio(line, sign=False)}: add runs.")
    if gain <= -judged.param("MOE102", "worth_loss"):
        notes.append(
            "Ideal balance cannot make experts slower: a loss says that the runs vary by more than "
            "the effect looked for, or that perfect routing costs something of its own."
        )
    models = "; ".join(f"{m.name} ({m.method})" for m in known.models)
    notes.append(f"{known.variable} is supported by {models}, with {', '.join(known.backends)}.")
    notes.append(f"{known.how} {known.notice}")
    return notes


def _experts(side: Side) -> ExpertKernels:
    """Tail and spread of the expert kernels of one capture."""
    work = side.works[0]
    rows = [(work.kernels[k.kernel], k) for p in work.phases for k in p.kernels]
    families = {name.family for name, _ in rows}
    path, total = side.diagnoses[0].inputs[0].path, sum(k.ms for _, k in rows)
    own = [(n, k) for n, k in rows if n.family == _EXPERTS and "GEMM" in n.operation]
    note = ""
    if not own and families & _ROUTING:
        own = [(n, k) for n, k in rows if n.family in _PRODUCTS]
        note = "experts are plain matrix products here; all products are looked at"
    if not own:
        return ExpertKernels(name=side.name, path=path, note="no expert kernels are seen")  # type: ignore[arg-type]
    names = {n.operation for n, _ in own}
    facts = [f for f in side.diagnoses[0].facts if f.scope.operation in names]
    tails = {(f.name, f.scope.operation): f.value for f in facts if isinstance(f.value, int | float)}

    def most(fact: str) -> float | None:
        return max((float(value) for (name, _), value in tails.items() if name == fact), default=None)

    uneven, kernel = _uneven([(n.operation, k) for n, k in own])
    if uneven is None:
        uneven, kernel = _uneven([(n.operation, k) for n, k in rows if n.family == _SIZED])
    return ExpertKernels(
        name=side.name,  # type: ignore[arg-type]
        path=path,
        expert_share=sum(k.ms for _, k in own) / total if total else None,
        max_over_p50=most("operation.max_over_p50"),
        p99_over_p50=most("operation.p99_over_p50"),
        imbalance=uneven,
        kernel=kernel,
        note=note if uneven is not None else "; ".join(t for t in (note, _EVEN) if t),
    )


def _uneven(rows: Sequence[tuple[str, KernelWork]]) -> tuple[float | None, str | None]:
    """Largest over mean launch size of the kernel with most time whose launches vary."""
    for name, k in sorted(rows, key=lambda r: -r[1].ms):
        vary = k.blocks_min < k.blocks_max and k.blocks > 0
        if vary and (factor := k.blocks_max / k.blocks) >= limit("uneven-launches"):
            return factor, name
    return None, None
