"""The perfect-router experiment: does uneven routing hold a mixture of experts back? Its numbers come from
reports of trtllm-bench, vllm bench, sglang or genai-perf, from CSV, or bare ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from msgspec import Struct

from advisor.comparison.change_facts import COMPARISON, Judgement, RuleOptions, judge, parameter
from advisor.comparison.sides import Side, ratio
from advisor.comparison.statistics import HOST_SPREAD, t_quantile
from advisor.errors import InputError, invalid_choice
from advisor.facts.writer import FactWriter
from advisor.knowledge.verb_files import limit, moe_router
from advisor.model.comparison import ExpertKernels, RouterExperiment, RouterRuns
from advisor.model.numbers import milliseconds
from advisor.model.work import KernelWork
from advisor.numerals import read_float
from advisor.reading import read_bytes, similar
from advisor.sources.serving.benchmarks import read_runs
from advisor.sources.serving.report_numbers import COMPARED

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
        raise InputError(f"{min(twice)}: the same report on both sides says nothing about the router")
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
        learned=_side("learned", a),
        perfect=_side("perfect", b),
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


def _side(name: str, runs: Runs) -> RouterRuns:
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
        note = "no expert kernels are seen"
        return ExpertKernels(name=side.name, path=path, note=note)  # type: ignore[arg-type]
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


# --- numbers of benchmark reports -----------------------------------------------------------------

#: Kinds of bare numbers, and whether more is better.
UNITS: Mapping[str, bool] = {"tok/s": True, "req/s": True, "ms": False}
#: Metric of bare numbers, before their unit.
GIVEN = "given "


class Runs(Struct, frozen=True):
    """One number a run, all of one metric. `better_high` says which way is good."""

    metric: str
    unit: str
    better_high: bool
    values: tuple[float, ...]
    sources: tuple[str, ...]

    @property
    def is_bare(self) -> bool:
        """Whether the numbers were given directly, not read from reports."""
        return self.metric.startswith(GIVEN)

    @property
    def rates(self) -> tuple[float, ...]:
        """The values as throughput: times are inverted."""
        return self.values if self.better_high else tuple(1e3 / v for v in self.values)


#: A run: where it was read, and its value by metric.
Run = tuple[str, dict[str, float]]


def read_sides(
    learned: Sequence[str], perfect: Sequence[str], unit: str | None, metric: str | None
) -> tuple[Runs, Runs]:
    """The runs of both sides by the first metric that all of them report, or the requested one. Raises
    InputError for files without numbers, bare numbers without a unit, and sides without a common metric."""
    if unit is not None and unit not in UNITS:
        raise invalid_choice("--unit", unit, UNITS)
    if metric is not None and metric not in COMPARED:
        raise invalid_choice("--metric", metric, COMPARED)
    sides = [list(_runs(side, unit)) for side in (learned, perfect)]
    for name, runs in zip(("LEARNED", "PERFECT"), sides, strict=True):
        if not runs:
            raise InputError(f"{name}: no run was given")
    order = [metric] if metric else [*([f"{GIVEN}{unit}"] if unit else []), *COMPARED]
    chosen = next((m for m in order if all(m in v for runs in sides for _, v in runs)), None)
    if chosen is None:
        metrics = [sorted({m for _, v in runs for m in v}) for runs in sides]
        raise InputError(
            f"the two sides have no metric in common: {', '.join(metrics[0]) or 'none'} against "
            f"{', '.join(metrics[1]) or 'none'}"
        )
    known = COMPARED.get(chosen)
    shown = known.unit if known is not None else unit or ""
    better = known.better == "higher" if known is not None else UNITS[shown]
    found = [
        Runs(chosen, shown, better, tuple(v[chosen] for _, v in runs), tuple(s for s, _ in runs))
        for runs in sides
    ]
    return found[0], found[1]


def _runs(sources: Sequence[str], unit: str | None) -> Iterator[Run]:
    """The runs of reports and bare numbers, several of them separated by commas."""
    for text in (part.strip() for s in sources for part in s.split(",") if part.strip()):
        number = _number(text)
        if number is None:
            yield from _read(Path(text))
        elif unit is None:
            raise InputError(
                f"{text}: say what the numbers are: --unit tok/s (more is better) or "
                "--unit ms (less is better)"
            )
        else:
            yield text, {f"{GIVEN}{unit}": number}


def _number(text: str) -> float | None:
    value = read_float(text, commas=False)
    if value is None and text.strip().lower().lstrip("+-") not in ("nan", "inf", "infinity"):
        return None
    if value is None or value <= 0:
        raise InputError(f"{text}: a throughput or time is a positive number")
    return value


def _read(path: Path) -> list[Run]:
    """The runs of one report."""
    try:
        text = read_bytes(path).decode("utf-8-sig", "replace")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{similar(path)}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder; name the reports in it, with commas between") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    kept = ({m: v for m, v in run.items() if m in COMPARED} for run in read_runs(text))
    runs = [run for run in kept if run]
    if not runs:
        raise InputError(
            f"{path}: no throughput or time of trtllm-bench, vllm bench, sglang or genai-perf is "
            "found in it, nor a CSV column such as output_throughput; give the number itself, with "
            "--unit (captures go with --traces)"
        )
    many = len(runs) > 1
    return [(f"{path} ({i})" if many else str(path), run) for i, run in enumerate(runs, 1)]
