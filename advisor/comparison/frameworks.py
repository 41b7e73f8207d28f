"""Serving engines side by side on one workload: time, kernels, memory, launch path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count

from advisor import __version__
from advisor.comparison.before_after import side_doc
from advisor.comparison.change_facts import RuleOptions, parameter
from advisor.comparison.comparability import judge, launch_ratio
from advisor.comparison.sides import Kernel, Side, by_operation, phase_words
from advisor.errors import InputError
from advisor.knowledge.engine_signs import engines, options_for
from advisor.knowledge.verb_files import Condition, Difference, framework_differences, limit
from advisor.metrics.loaded.kernels import MATMUL, UNFUSED
from advisor.model.comparison import FrameworkTable, Metric, SideDoc
from advisor.model.findings import Tool
from advisor.model.numbers import duration, times, value_text

Number = float | None

#: A row of the table for one side: group, name, unit and value.
Cell = tuple[str, str, str, Number | str]
#: Rows that are facts.
_FACTS: tuple[tuple[str, str, str, str], ...] = (
    ("memory", "allocation calls", "count", "alloc.calls_per_step"),
    ("memory", "time in them", "ratio", "alloc.time_ratio"),
    ("memory", "exposed copies", "ratio", "copy.exposed_ratio"),
    ("memory", "pageable copies", "ratio", "copy.pageable_ratio"),
    ("memory", "uploaded a step", "bytes", "copy.htod_bytes_per_step"),
    ("memory", "copies on the device", "ratio", "copy.dtod_busy_ratio"),
    ("memory", "memory in use", "ratio", "memory.used_ratio"),
    ("launch path", "launch calls", "count", "launch.calls_per_step"),
    ("launch path", "graph launches", "count", "graph.launches_per_step"),
    ("launch path", "kernel time in graphs", "ratio", "graph.kernel_ratio"),
    ("launch path", "waiting calls", "count", "sync.calls_per_step"),
    ("launch path", "read-backs", "count", "sync.readbacks_per_step"),
    ("launch path", "idle from launching", "ratio", "launch.idle_ratio"),
    ("launch path", "idle between steps", "ratio", "host.gap_ratio"),
    ("launch path", "GPU busy", "ratio", "budget.busy_ratio"),
)


def table(
    columns: Sequence[tuple[str | None, Side]],
    throughput: Mapping[str, float],
    batch: Mapping[str, float],
    phase: str | None = None,
) -> FrameworkTable:
    """The table and what its differences mean. Raises InputError for unknown names."""
    names = _names(columns)
    served = {
        n: next(iter(side.texts("serving_engine")), None) for n, (_, side) in zip(names, columns, strict=True)
    }
    for option, given in (("--throughput", throughput), ("--batch", batch)):
        if strangers := [n for n in given if n not in names]:
            raise InputError(
                f"{option}: there is no column '{strangers[0]}'; the columns are {', '.join(names)}"
            )
    sides = [side for _, side in columns]
    chosen = _phase(sides, phase)
    metrics = _metrics(names, sides, chosen, throughput, batch)
    rows = _numbers(names, metrics)
    apart = _apart(names, sides, chosen, batch)
    needed = rows.get("kernel time x throughput", ("", []))[1]
    docs = tuple(side_doc(s).replaced(name=n) for n, s in zip(names, sides, strict=True))
    return FrameworkTable(
        tool=Tool(version=__version__, engine="none"),
        columns=docs,
        phase=chosen,
        summary=f"Not comparable: {apart}." if apart else _summary(len(names), rows),
        metrics=tuple(metrics),
        differences=() if apart else tuple(_differences(rows, metrics, served)),
        notes=tuple(_notes(docs, sides, chosen, batch, bool(apart), needed)),
    )


def _apart(names: Sequence[str], sides: Sequence[Side], phase: str, batch: Mapping[str, float]) -> str | None:
    """What keeps the columns from being compared, by the limits of ``advisor compare``: the GPU, the model,
    or the work of a step where no batch is known by which times could be divided; None if nothing does."""
    first, chosen = sides[0], RuleOptions()
    model, work = (parameter("comparison", "CMP106", name, chosen) for name in ("min_model", "min_work"))
    for name, other in zip(names[1:], sides[1:], strict=True):
        alike = judge(first, other, [(phase, phase, phase)])
        for found in alike.of(phase):
            if found.state != "differs":
                continue
            if found.check == "GPU":
                return f"{names[0]} ran on {found.before}, {name} on {found.after}"
            if found.check == "model" and found.score < model:
                return f"the models differ; {names[0]}: {found.before}; {name}: {found.after}"
            sized = all(batch.get(n) or s.mean(phase, "batch") for n, s in zip(names, sides, strict=True))
            if found.check == "work" and found.score < work and not sized:
                return (
                    f"a {phase_words(phase)} does {found.after:.3g} times the work in {name} as in {names[0]}"
                )
    return None


def _names(columns: Sequence[tuple[str | None, Side]]) -> list[str]:
    """The given name, else the engine found in the kernels, else the file; each once."""
    out: list[str] = []
    for given, side in columns:
        engine = side.texts("serving_engine")
        path = side.diagnoses[0].inputs[0].path.replace("\\", "/").rpartition("/")[2]
        name = given or (engine[0] if engine else path.split(".")[0])
        free = chain([name], (f"{name}-{number}" for number in count(2)))
        out.append(next(one for one in free if one not in out))
    return out


def _phase(sides: Sequence[Side], wanted: str | None) -> str:
    """The compared phase: the requested one, else decode, else the largest common one."""
    common = [p for p in sides[0].phases if all(p in s.phases for s in sides)]
    if wanted is not None and wanted not in common:
        raise InputError(f"--phase: not every capture has {wanted} steps; all have {common or '-'}")
    if not common:
        seen = "; ".join(", ".join(s.phases) or "none" for s in sides)
        raise InputError(f"the captures have no phase of steps in common ({seen}); see --phase")
    return wanted or ("decode" if "decode" in common else common[0])


def _metrics(
    names: Sequence[str],
    sides: Sequence[Side],
    phase: str,
    throughput: Mapping[str, float],
    batch: Mapping[str, float],
) -> list[Metric]:
    columns = [_column(s, phase, batch.get(n), throughput.get(n)) for n, s in zip(names, sides, strict=True)]
    return [
        Metric(name=row[0][1], unit=row[0][2], values=values, group=row[0][0])
        for row in zip(*columns, strict=True)
        if set(values := tuple(value for *_, value in row)) != {None}
    ]


def _column(side: Side, phase: str, batch: Number, throughput: Number) -> Iterator[Cell]:
    """The rows for one side. A token: one sequence of the batch, if that is known."""
    times = side.times(phase)
    kernels = side.kernels(phase).values()
    step = float(sorted(times)[len(times) // 2]) if len(times) else None
    numbers = ("kernel_ms", "kernel_calls", "layers", "matmul")
    spent, calls, layers, products = (side.mean(phase, name) for name in numbers)
    size = batch or side.mean(phase, "batch")
    unfused = sum(k.ms for k in kernels if k.name.family in UNFUSED)
    attention = sum(k.ms for k in kernels if k.name.family == "attention") or None
    matrix = sum(k.ms for k in kernels if k.name.family in MATMUL) or None
    yield "time", "step time", "ms", step
    yield "time", "batch", "count", size
    yield "time", "time per token", "ms", _over(step, size)
    yield "time", "kernel time per step", "ms", spent
    yield "time", "kernel time per token", "ms", _over(spent, size)
    yield "kernels", "kernels per step", "count", calls
    yield "kernels", "kernels per token", "count", _over(calls, size)
    yield "kernels", "layers", "count", layers
    yield "kernels", "kernels per layer", "count", _over(calls, layers)
    yield "kernels", "matrix products per layer", "count", _over(products, layers)
    yield "kernels", "unfused share", "ratio", _over(unfused, sum(k.ms for k in kernels))
    yield "kernels", "attention time per layer", "ms", _over(attention, layers)
    yield "kernels", "attention time per call", "ms", _per_call(kernels, "attention")
    yield "kernels", "attention share", "ratio", _over(attention, spent)
    yield "kernels", "product time per layer", "ms", _over(matrix, layers)
    yield "kernels", "product share", "ratio", _over(matrix, spent)
    yield "kernels", "FFN time per layer", "ms", _over(_ffn_ns(side, phase), 1e6)
    yield "kernels", "attention", "text", _largest(side, phase, "attention")
    yield "kernels", "matrix products", "text", _largest(side, phase, "gemm", "gemv")
    for group, name, unit, fact in _FACTS:
        yield group, name, unit, side.device_fact(fact)
    yield "measured", "throughput", "tok_per_s", throughput
    yield "measured", "tokens a second in it", "tok_per_s", _over(_times(size, 1e3), step)
    share = _times(_times(spent, 1e-3 / (size or 1.0)), throughput)
    yield "measured", "kernel time x throughput", "ratio", share


def _ffn_ns(side: Side, phase: str) -> Number:
    """Of a layer's feed-forward network or experts; layers are found in the commonest phase alone."""
    commonest = max(side.phases, key=lambda p: (side.steps(p), p))
    return side.device_fact("layer.ffn_ns") if phase == commonest else None


def _over(value: Number, by: Number) -> Number:
    return None if value is None or not by else value / by


def _times(value: Number, by: Number) -> Number:
    return None if value is None or by is None else value * by


def _per_call(kernels: Iterable[Kernel], family: str) -> Number:
    """Time of a family, what adds up parts included, over the calls of the operation that takes most."""
    found = by_operation(k for k in kernels if k.name.family == family).values()
    main = max(found, key=lambda o: (o.ms, o.name), default=None)
    return _over(sum(o.ms for o in found), main.calls if main else None)


def _largest(side: Side, phase: str, *families: str) -> str | None:
    """The operation of these families that takes most time."""
    own = [k for k in side.kernels(phase).values() if k.name.family in families]
    spent = {o.name: o.ms for o in by_operation(own).values()}
    return max(spent, key=lambda n: (spent[n], n), default=None)


#: A row by its name: its unit, and its numbers with their columns.
Rows = Mapping[str, tuple[str, list[tuple[float, str]]]]


def _numbers(names: Sequence[str], metrics: Sequence[Metric]) -> Rows:
    rows = ((m.name, m.unit, zip(m.values, names, strict=True)) for m in metrics)
    return {
        name: (unit, [(float(v), column) for v, column in values if isinstance(v, int | float)])
        for name, unit, values in rows
    }


def _differences(rows: Rows, metrics: Sequence[Metric], served: Mapping[str, str | None]) -> list[str]:
    """What the rows mean; `served` is the engine of each column, if known."""
    out = []
    texts = {m.name: dict(zip(served, m.values, strict=True)) for m in metrics if m.unit == "text"}
    for rule in framework_differences():
        unit, known = rows.get(rule.metric, ("", []))
        if len(known) < 2 or not all(_reached(rows, c) for c in rule.where):
            continue
        (low, lower), (high, higher) = min(known), max(known)
        if _exceeds(rule, low, high):
            ends = {"low_value": _shown(low, unit), "high_value": _shown(high, unit)}
            ends["ratio"] = times(high / low) if low > 0 else "many"
            for end, column in (("low", lower), ("high", higher)):
                ends[f"{end}_kind"] = str(texts.get(rule.kind, {}).get(column) or "an unknown kernel")
            if rule.kind and ends["low_kind"] == ends["high_kind"]:
                continue  # the same kernels take longer where they have more to do
            text = rule.text
            if rule.action and (switch := _switch(rule.action, served[higher])):
                text = f"{text} {rule.advice}"
                ends["switch"] = switch
            out.append(text.format(low=lower, high=higher, **ends))
    return out


def _reached(rows: Rows, condition: Condition) -> bool:
    """Whether the values of another row are such that a difference means something; unknown ones are."""
    values = [v for v, _ in rows.get(condition.metric, ("", []))[1]]
    if not values:
        return condition.if_unknown
    far = max(values) / min(values) if min(values) > 0 else float("inf")
    return (condition.min_value or 0.0) <= max(values) and (
        condition.max_ratio is None or far <= condition.max_ratio
    )


def _switch(action: str, engine: str | None) -> str:
    """How an engine carries an action out; empty if no option is known."""
    lines = options_for(action, engine) if engine in engines() else ()
    return " or ".join(f"`{o.line.partition('  # ')[0]}`" for o in lines[:2])


def _exceeds(rule: Difference, low: float, high: float) -> bool:
    if high < rule.min_value or high <= 0:
        return False
    if rule.min_ratio is not None:
        return low <= 0 or high / low >= rule.min_ratio
    return rule.min_difference is not None and high - low >= rule.min_difference


def _shown(value: float, unit: str) -> str:
    if unit == "ms":
        return duration(value * 1e6)
    return value_text(value, unit if unit == "ratio" else "")


def _summary(columns: int, rows: Rows) -> str:
    for wanted in ("throughput", "time per token", "step time"):
        unit, known = rows.get(wanted, ("", []))
        if len(known) < max(columns, 2):
            continue
        best, worst = (max, min) if wanted == "throughput" else (min, max)
        (first, fast), (last, slow) = best(known), worst(known)
        factor = max(first, last) / max(min(first, last), 1e-12)
        value = f"{_shown(first, unit)}{' tok/s' if wanted == 'throughput' else ''}"
        return f"{fast} is fastest by {wanted} ({value}): {times(factor)} x as fast as {slow}."
    return "The captures do not show which engine is fastest."


def _notes(
    docs: Sequence[SideDoc],
    sides: Sequence[Side],
    phase: str,
    batch: Mapping[str, float],
    apart: bool,
    busy: Sequence[tuple[float, str]],
) -> list[str]:
    notes = []
    gpus = {g for s in sides for w in s.works for g in w.gpus}
    if len(gpus) > 1 and not apart:
        notes.append(f"Different GPUs: {', '.join(sorted(gpus))}. Times compare machines, too.")
    layers = {round(v) for s in sides if (v := s.mean(phase, "layers"))}
    if len(layers) > 1 and not apart:
        listed = ", ".join(map(str, sorted(layers)))
        notes.append(f"The captures seem to run different models ({listed} layers).")
    sizes = [s.mean(phase, "batch") for s in sides]
    if None in sizes and not batch:
        notes.append(
            f"The batch of a {phase_words(phase)} is not in the range names: give it with "
            "--batch NAME=N for times per token."
        )
        ratios = [launch_ratio(sides[0].kernels(phase), s.kernels(phase)) for s in sides[1:]]
        if any(r is not None and max(r, 1 / r) > limit("launch-size") for r in ratios):
            notes.append("Launch sizes of shared kernels differ: the batches are not the same.")
    notes += [
        f"{name}: the given throughput needs {share:.1f} times the kernel time there is, so the capture "
        "served a smaller batch than the benchmark (see --batch)."
        for share, name in busy
        if share > limit("kernel-time")
    ]
    by_engine: dict[str, list[str]] = {}
    for doc, side in zip(docs, sides, strict=True):
        given = doc.name.lower()
        for name in [given] if given in engines() else side.texts("serving_engine")[:1]:
            by_engine.setdefault(name, []).append(doc.name)
    for name, users in by_engine.items():
        data = engines().get(name)
        if data is not None and data.traits:
            traits = [f"{k.replace('_', ' ')}: {v}" for k, v in data.traits.items()]
            notes.append(f"{', '.join(users)}: {data.title}. {'; '.join(traits)}.")
    notes.append("Times are those of profiled runs; eager launches are slowed by tracing.")
    return notes
