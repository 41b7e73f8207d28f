"""Facts of a serving engine's load, from lines of its log or from its metrics.

Each line counts requests at one moment and tokens since the line before it, so time per token is the number
of requests over tokens a second. Lines of equal weight stand for equal stretches: engines log at a fixed pace.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from advisor.facts.spec import Entry, FactWriter, Need, group
from advisor.metrics import load as loads
from advisor.metrics.analysis import Analysis
from advisor.model.arrays import Array
from advisor.sources.schema import LOAD_BOTH

_LOG = "--log server.log"


def _says(column: str, words: str) -> Need:
    def met(a: Analysis) -> bool:
        return a.trace.has("load") and bool((~np.isnan(a.trace.columns("load", (column,))[column])).any())

    return Need(f"the log does not say {words}", None, met)


def _set(name: str, words: str) -> Need:
    supply = "the lines of the log from the start of the server"
    return Need(f"the log does not say {words}", supply, lambda a: name in a.trace.capture.options)


_RUNNING = _says("running", "how many requests run")
_WAITING = _says("waiting", "how many requests wait")
_CACHE = _says("cache_used", "how full the KV cache is")
_OUTPUT = Need("no line has requests that decode and their tokens a second")
_GRAPH = _says("graph", "whether a CUDA graph was used")
_LIKE = Need("fewer than three lines on each side have about as many requests")

FACTS = group("trace", _LOG, [
    Entry("load.logged", "flag", "", "The load of the server is known, from its log or its metrics", "format of the input; --log", columns={}),
    Entry("load.lines", "count", "load", "Lines of the log, or scrapes of metrics, that tell of the load", "rows"),
    Entry("load.running", "count", "load", "Requests that run", "mean over lines", needs=(_RUNNING,)),
    Entry("load.running_most", "count", "load", "Most requests that run at once", "largest over lines", needs=(_RUNNING,)),
    Entry("load.waiting", "count", "load", "Requests that wait", "mean over lines", needs=(_WAITING,)),
    Entry("load.waiting_ratio", "ratio", "load", "Share of the lines with a request that waits", "lines / lines", needs=(_WAITING,)),
    Entry("load.idle_ratio", "ratio", "load", "Share of the lines without a request that runs or waits", "lines / lines; lines about single steps say nothing of the time between them", needs=(_RUNNING, Need("the log has a line a step: there is none while the server idles"))),
    Entry("load.output_per_s", "count_per_s", "load", "Tokens a second that the server gives", "median over lines with requests that decode", needs=(_OUTPUT,)),
    Entry("load.prompt_per_s", "count_per_s", "load", "Tokens of prompts a second", "mean over lines that say it", needs=(_says("prompt_per_s", "how many tokens of prompts are read"),)),
    Entry("load.token_ms", "ms", "load", "Time per output token of a request", "the metric of the engine, else median of requests / tokens a second", needs=(_OUTPUT,)),
    Entry("load.queue_ms", "ms", "load", "Time that a request waits before it runs", "mean, by the metric of the engine", needs=(_says("queue_ms", "how long requests wait"),)),
    Entry("load.cache_used", "ratio", "load", "Share of the KV cache in use", "mean over lines with requests", needs=(_CACHE,)),
    Entry("load.cache_most", "ratio", "load", "Largest share of the KV cache in use", "largest over lines", needs=(_CACHE,)),
    Entry("load.prefix_hit_ratio", "ratio", "load", "Share of the tokens of prompts found in the prefix cache", "mean over lines that say it", needs=(_says("prefix_hit", "how many tokens of prompts were cached"),)),
    Entry("load.preemptions", "count", "load", "Requests that lost their KV cache to others and start again", "counter of the engine, or lines that say so"),
    Entry("load.accepted_tokens", "count", "load", "Tokens that one verification of drafted tokens yields a request", "median over lines", needs=(_says("accepted", "how many drafted tokens are accepted"),)),
    Entry("load.acceptance_ratio", "ratio", "load", "Share of the drafted tokens that are accepted", "median over lines; else (accepted - 1) / tokens drafted", needs=(Need("the log does not say how many drafted tokens are accepted"),)),
    Entry("load.rejected_ratio", "ratio", "load", "Share of the drafted tokens that are thrown away", "1 - load.acceptance_ratio", needs=(Need("the log does not say how many drafted tokens are accepted"),)),
    Entry("load.eager_ratio", "ratio", "load", "Share of the decode steps without a CUDA graph", "lines / lines that say it; 1 if the server was started without graphs", needs=(_GRAPH,)),
    Entry("load.graph_batch", "count", "load", "Largest batch that ran as a CUDA graph, or that one was captured for", "option, else largest over lines", needs=(_GRAPH,)),
    Entry("load.eager_batch", "count", "load", "Smallest batch that ran without a CUDA graph", "smallest over lines", needs=(_GRAPH, Need("every decode step used a graph"))),
    Entry("load.batch_limit", "count", "load", "Most requests that the server lets run at once", "option of the start-up lines", needs=(_set("batch_limit", "how many requests may run at once"),)),
    Entry("load.batch_fill_ratio", "ratio", "load", "How much of that limit the most requests fill", "load.running_most / load.batch_limit", needs=(_RUNNING, _set("batch_limit", "how many requests may run at once"))),
    Entry("load.prompt_slowdown", "ratio", "load", "How many times as long a token takes while prompts are read", "median over lines with prompts, each over the median of lines without and about as many requests", needs=(_OUTPUT, _LIKE)),
    Entry("load.prompt_cost_ratio", "ratio", "load", "Share of the time per token that reading prompts adds", "1 - 1 / load.prompt_slowdown, at least 0", needs=(_OUTPUT, _LIKE)),
    Entry("load.context_cost_ratio", "ratio", "load", "Share of the time per token that a longer context adds", "1 - 1 / load.context_slowdown, at least 0", needs=(_OUTPUT, _CACHE, _LIKE)),
    Entry("load.context_slowdown", "ratio", "load", "How many times as long a token takes for requests with twice the context", "as load.prompt_slowdown, by KV cache a request", needs=(_OUTPUT, _CACHE, _LIKE)),
    Entry("load.replicas", "count", "load", "Replicas that the log names", "distinct", needs=(_says("replica", "which replica it is"),)),
    Entry("load.replica_spread_ratio", "ratio", "load", "How far the replica with most requests is above the mean of all", "(most - mean) / most of the mean requests of each", needs=(_RUNNING, Need("the log names one replica"))),
    Entry("load.tensor_parallel", "count", "load", "GPUs that each replica is split over", "option of the start-up lines", needs=(_set("tensor_parallel", "over how many GPUs the model is split"),)),
], columns={"load": "kind running waiting output_per_s"}, windowed=False)  # fmt: skip


def is_load_alone(a: Analysis) -> bool:
    """True for a server's log or metrics without a capture of its GPU."""
    return a.trace.has("load") and not len(a.ops) and not a.trace.has("api_calls")


def load_facts(a: Analysis, out: FactWriter) -> None:
    out.put("load.logged", a.trace.has("load"))
    if not a.trace.has("load"):
        return
    load, options = loads.load_of(a.trace), a.trace.capture.options
    counted, active = load.counted, load.active
    limit = _option(options, "batch_limit")
    prompts = loads.slowdown(load, load.behind_prompts, active & ~load.behind_prompts)
    context = loads.context_slowdown(load)
    most = float(load.running[counted].max()) if counted.any() else None
    out |= {
        "load.lines": len(load.kind),
        "load.running": _over(np.mean, load.running[counted]),
        "load.running_most": most,
        "load.waiting": _over(np.mean, load.waiting),
        "load.waiting_ratio": _over(np.mean, (load.waiting > 0)[~np.isnan(load.waiting)]),
        "load.idle_ratio": _idle(load),
        "load.output_per_s": _over(np.median, load.output_per_s[active]),
        "load.prompt_per_s": _over(np.mean, load.prompt_per_s),
        "load.token_ms": _over(np.median, load.token_ms) or _over(np.median, load.per_token_ms),
        "load.queue_ms": _over(np.mean, load.queue_ms),
        "load.cache_used": _over(np.mean, load.cache_used[counted & (load.running > 0)]),
        "load.cache_most": _over(np.max, load.cache_used),
        "load.prefix_hit_ratio": _over(np.mean, load.prefix_hit),
        "load.preemptions": int(_option(options, "preempted") or 0),
        "load.batch_limit": limit,
        "load.batch_fill_ratio": most / limit if most is not None and limit else None,
        "load.prompt_slowdown": prompts,
        "load.prompt_cost_ratio": _added(prompts),
        "load.context_slowdown": context,
        "load.context_cost_ratio": _added(context),
        "load.tensor_parallel": _option(options, "tensor_parallel"),
    }
    _graphs(load, options, out)
    _speculation(load, options, out)
    replicas = loads.by_replica(load)
    out.put("load.replicas", len(replicas) or None)
    if len(replicas) > 1 and (top := max(replicas.values())):
        out.put("load.replica_spread_ratio", 1 - float(np.mean(list(replicas.values()))) / top)


def _over(statistic: Callable[[Array], object], values: Array) -> float | None:
    known = values[~np.isnan(values)] if values.dtype != bool else values
    return float(np.asarray(statistic(known))) if len(known) else None


def _added(slowdown: float | None) -> float | None:
    return None if slowdown is None else max(1 - 1 / slowdown, 0.0)


def _option(options: dict[str, str], name: str) -> float | None:
    return float(options[name]) if name in options else None


def _idle(load: loads.Load) -> float | None:
    """Engines that log a line a step are silent while they idle."""
    both = load.counted & (load.kind == LOAD_BOTH)
    if not both.any():
        return None
    return float(((load.running == 0) & (np.nan_to_num(load.waiting) == 0))[both].mean())


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
    accepted, share = _over(np.median, load.accepted), _over(np.median, load.acceptance)
    drafted = _option(options, "drafted")
    if share is None and accepted is not None and drafted:
        share = max(accepted - 1, 0.0) / drafted
    out |= {
        "load.accepted_tokens": accepted,
        "load.acceptance_ratio": share,
        "load.rejected_ratio": None if share is None else max(1 - share, 0.0),
    }
