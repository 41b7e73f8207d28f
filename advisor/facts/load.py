"""Facts of a serving engine's load, from lines of its log or from its metrics.

Each line counts requests at one moment and tokens since the line before it, so time per token is the number
of requests over tokens a second. Lines of equal weight stand for equal stretches: engines log at a fixed
pace.
"""

from __future__ import annotations

import numpy as np

from advisor.facts.activity import stretches
from advisor.facts.needs import predicate
from advisor.facts.writer import FactWriter
from advisor.knowledge.layer_counts import least_layers
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped import load as loads
from advisor.sources.schema import LOAD_BOTH

#: Facts that a log or a scrape says as such.
_OPTIONS = (
    "host_step_ms",
    "device_step_ms",
    "host_longer_ratio",
    "device_idle_ratio",
    "slots_busy",
    "slot_output_per_s",
    "slot_prompt_per_s",
    "requests_a_batch",
    "prompt_ms",
    "tensor_parallel",
)


@predicate
def log_says(a: Loaded, column: str) -> bool:
    return a.trace.has("load") and bool((~np.isnan(a.trace.columns("load", (column,))[column])).any())


@predicate
def log_has_option(a: Loaded, name: str) -> bool:
    return name in a.trace.capture.options


def is_load_alone(a: Loaded) -> bool:
    """True for a server's log or metrics without a capture of its GPU."""
    return a.trace.has("load") and not len(a.ops) and not a.trace.has("api_calls")


def serves_language_model(a: Loaded) -> bool:
    """True for a server's log or metrics without a capture, unless its engine serves models of any kind."""
    return is_load_alone(a) and "any_model" not in a.trace.capture.options


def load_facts(a: Loaded, out: FactWriter) -> None:
    out.put("load.logged", a.trace.has("load"))
    if not a.trace.has("load"):
        return
    load, options = loads.load_of(a.trace), a.trace.capture.options
    before = loads.prompt_servers_of(a.trace)
    _counted, active = load.counted, load.active
    limit = _option(options, "batch_limit")
    prompts = loads.slowdown(load, load.behind_prompts, active & ~load.behind_prompts)
    context = loads.context_slowdown(load)
    most = loads.over(np.max, load.running)
    replicas, readers = loads.replicas_of(load), loads.prompt_servers(before)
    running, waiting = loads.total(r.running for r in replicas), loads.total(r.waiting for r in replicas)
    fetching = loads.total(r.fetching for r in replicas)
    lines_waiting = loads.waiting_share(load)
    queue_ms = loads.mean_of(load.queue_ms, load.queue_count)
    request_ms = loads.mean_of(load.request_ms, load.request_count)
    out |= {
        "load.lines": len(load.kind) + len(before.kind),
        "load.since_start": "since_start" in options,
        "load.on_cpu": "on_cpu" in options or None,
        "load.running": running,
        "load.running_most": most,
        "load.running_spread_ratio": loads.running_spread(load),
        "load.waiting": waiting,
        "load.fetching": fetching,
        "load.fetching_ratio": loads.fetching_share(load),
        "load.fetching_line_ratio": loads.fetching_lines(load),
        "load.not_fetched_ratio": _quotient(fetching, (running or 0.0) + (fetching or 0.0)),
        "load.waiting_per_running": _quotient(waiting, running),
        "load.waiting_ratio": lines_waiting,
        "load.held_back_ratio": lines_waiting or None,
        "load.idle_ratio": _idle(load),
        "load.output_per_s": loads.total(r.output_per_s for r in replicas),
        "load.prompt_per_s": loads.total(r.prompt_per_s for r in readers or replicas),
        "load.token_ms": loads.common_token_ms(replicas),
        "load.queue_ms": queue_ms,
        "load.cache_used": max((r.cache_used for r in replicas if r.cache_used is not None), default=None),
        "load.cache_most": loads.over(np.max, load.cache_used),
        "load.cache_least": loads.least_cache(replicas),
        "load.prefix_hit_ratio": loads.mean_of(load.prefix_hit, load.prefix_count),
        "load.preemptions": _option(options, "preempted"),
        "load.aborted": _option(options, "aborted"),
        "load.failed": loads.over(np.sum, load.failed),
        "load.completed": loads.over(np.sum, load.completed),
        "load.failed_ratio": _failed(load),
        "load.batch_limit": limit,
        # More requests than a limit allows were not under that limit.
        "load.batch_fill_ratio": most / limit if most is not None and limit and most <= limit else None,
        "load.prompt_slowdown": prompts,
        "load.prompt_cost_ratio": _added(prompts),
        "load.context_slowdown": context,
        "load.context_cost_ratio": _added(context),
        "load.in_flight": loads.over(np.mean, load.in_flight),
        "load.first_token_ms": loads.mean_of(load.first_token_ms, load.first_token_count),
        "load.request_ms": request_ms,
        "load.output_tokens": loads.over(np.mean, load.output_tokens),
        "load.first_token_ratio": _first_token(load),
        "load.queue_ratio": _quotient(queue_ms, max(request_ms or 0.0, queue_ms or 0.0)),
        **{f"load.{name}": _option(options, name) for name in _OPTIONS},
    }
    if serves_language_model(a):
        out.put("workload.is_language_model", True)
    _layers(options, out)
    _graphs(load, options, out)
    _speculation(load, options, out)
    if (found := loads.knee(load)) is not None:
        out |= {"load.knee": found[0], "load.beyond_knee_ratio": 1 - found[0] / found[1]}
    named = [r for r in replicas if r.number is not None]
    out.put("load.replicas", len(named) or None)
    alike = [r.running for r in named if r.running is not None]
    if len(alike) > 1 and (top := max(alike)):
        out.put("load.replica_spread_ratio", 1 - float(np.mean(alike)) / top)
    if readers:
        out |= {
            "load.prompt_servers": len(readers),
            "load.prompt_servers_waiting": loads.total(r.waiting for r in readers),
            "load.prompt_servers_waiting_ratio": loads.waiting_share(before),
        }
    parts = sorted([*named, *readers], key=lambda r: r.number or 0)
    _parts(load, parts, loads.names_of(a.trace), out)
    if np.isnan(load.in_flight).all():  # runs of a benchmark follow none another
        _moments(load if len(load.kind) else before, out)


def _parts(load: loads.Load, replicas: list[loads.Replica], names: list[str], out: FactWriter) -> None:
    """The table of the replicas, or of the runs of a benchmark."""
    runs = ~np.isnan(load.in_flight)
    if len(replicas) > 1:
        out.table(
            "load.parts",
            [
                (
                    names[i] if names else str(r.number),
                    r.running,
                    r.waiting,
                    r.output_per_s,
                    r.prompt_per_s,
                    r.token_ms,
                    r.cache_used,
                )
                for i, r in enumerate(replicas)
            ],
        )
    elif runs.sum() > 1:
        columns = (
            load.in_flight,
            load.running,
            load.output_per_s,
            load.token_ms,
            load.first_token_ms,
            load.failed,
        )
        rows = [[None if np.isnan(v) else float(v) for v in row] for row in np.column_stack(columns)[runs]]
        out.table(
            "load.parts",
            [(i, *row) for i, row in enumerate(rows, 1)],
            title="Load of each run",
            columns="run, on their way, decoding, tokens:per_s, a token:ms, first token:ms, failed",
        )


def _moments(load: loads.Load, out: FactWriter) -> None:
    """The table of the load over time; without times each row is a second."""
    rows = np.arange(len(load.kind), dtype=float)
    time = rows if np.isnan(load.time_s).all() else load.time_s
    token_ms = np.where(np.isnan(load.token_ms), load.per_token_ms, load.token_ms)
    table: list[list[float | None]] = []
    for at, where in stretches(time):
        numbers = np.unique(load.replica[where][~np.isnan(load.replica[where])])
        each = [where[load.replica[where] == n] for n in numbers] or [where]
        added = [
            loads.total(loads.over(np.mean, values[mine]) for mine in each)
            for values in (load.running, load.waiting, load.output_per_s)
        ]
        mean = [loads.over(np.mean, values[where]) for values in (load.cache_used, token_ms)]
        table.append([at, *added[:2], *mean, added[2]])
    out.table("load.moments", table)


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _failed(load: loads.Load) -> float | None:
    """Of all requests of the runs that count both."""
    sent = load.failed + load.completed
    known = ~np.isnan(sent)
    return _quotient(float(load.failed[known].sum()), float(sent[known].sum()))


def _added(slowdown: float | None) -> float | None:
    return None if slowdown is None else max(1 - 1 / slowdown, 0.0)


def _option(options: dict[str, str], name: str) -> float | None:
    return float(options[name]) if name in options else None


def _idle(load: loads.Load) -> float | None:
    """Engines that log a line a step are silent while they idle, and a benchmark does not say."""
    both = load.counted & (load.kind == LOAD_BOTH) & np.isnan(load.in_flight)
    if not both.any():
        return None
    return float(((load.running == 0) & (np.nan_to_num(load.waiting) == 0))[both].mean())


def _first_token(load: loads.Load) -> float | None:
    """Of the mean run; a request takes no less than its first token."""
    first, whole = load.first_token_ms, np.maximum(load.request_ms, load.first_token_ms)
    known = ~np.isnan(whole)
    return float((first[known] / whole[known]).mean()) if known.any() else None


def _layers(options: dict[str, str], out: FactWriter) -> None:
    """How many layers are on the GPU, of how many. A benchmark tells the first alone, for each model; of
    several the one with the largest share on the CPU is meant."""
    on_gpu, of = _option(options, "layers_on_gpu"), _option(options, "layers")
    tested = [
        (layers, least + 1)  # with that of the output
        for layers, least in _tested(options)
        if least is not None
    ]
    if (experts := _option(options, "expert_layers_on_cpu")) is not None:
        out.put("load.experts_on_cpu", experts > 0)
        out.put("load.expert_layers_on_cpu", experts if np.isfinite(experts) else None)
    if on_gpu is not None and of:
        out |= {"load.layers_on_gpu": on_gpu, "load.layers": of, "load.layers_on_cpu_ratio": 1 - on_gpu / of}
    elif tested:
        on_gpu, least = min(tested, key=lambda model: model[0] / model[1])
        out |= {
            "load.layers_on_gpu": on_gpu,
            "load.layers_least": least,
            "load.layers_on_cpu_ratio": max(1 - on_gpu / least, 0.0),
        }


def _tested(options: dict[str, str]) -> list[tuple[float, int | None]]:
    """Of each model that was tested its layers on the GPU, and how many it has at least."""
    models, parameters, layers = (
        options.get(f"tested_{name}", "").split("; ") for name in ("models", "parameters", "gpu_layers")
    )
    return [
        (float(on_gpu), least_layers(model, float(size) if size else None))
        for model, size, on_gpu in zip(models, parameters, layers, strict=True)
        if on_gpu
    ]


def _graphs(load: loads.Load, options: dict[str, str], out: FactWriter) -> None:
    without, with_ = loads.eager(load)
    known = _option(options, "largest_graph")
    if "no_graphs" in options:
        out.put("load.eager_ratio", 1.0)
    elif without.any() or with_.any():
        out.put("load.eager_ratio", without.sum() / (without.sum() + with_.sum()))
    largest = known or (float(load.running[with_].max()) if with_.any() else None)
    out.put("load.graph_batch", largest)
    if without.any():
        out.put("load.eager_batch", float(load.running[without].min()))


def _speculation(load: loads.Load, options: dict[str, str], out: FactWriter) -> None:
    accepted, share = loads.over(np.median, load.accepted), loads.over(np.median, load.acceptance)
    drafted = _option(options, "drafted")
    if share is None and accepted is not None and drafted:
        share = max(accepted - 1, 0.0) / drafted
    out |= {
        "load.accepted_tokens": accepted,
        "load.acceptance_ratio": share,
        "load.rejected_ratio": None if share is None else max(1 - share, 0.0),
    }
