"""The load of a serving engine by what it says of it: requests, tokens, cache, graphs, replicas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import Array
from advisor.sources.schema import LOAD_BOTH, LOAD_DECODE, LOAD_PREFILL, TABLES
from advisor.sources.trace import Trace

#: What names of containers say: whether they read prompts for others.
_KINDS = (
    (True, re.compile(r"(?i)prefill|(?<![a-z])ctx|context")),
    (False, re.compile(r"(?i)decode|(?<![a-z])gen(?![a-z])")),
)


class Load(Struct):
    """Columns of the table `load`; NaN for what a line does not say."""

    kind: Array
    replica: Array
    running: Array
    waiting: Array
    fetching: Array
    prompt_per_s: Array
    output_per_s: Array
    cache_used: Array
    prefix_hit: Array
    accepted: Array
    acceptance: Array
    graph: Array
    step_ms: Array
    token_ms: Array
    queue_ms: Array
    in_flight: Array
    first_token_ms: Array
    request_ms: Array
    output_tokens: Array
    token_count: Array
    queue_count: Array
    first_token_count: Array
    request_count: Array
    prefix_count: Array
    time_s: Array
    stretch_s: Array
    under_load_s: Array
    failed: Array
    completed: Array

    @property
    def counted(self) -> Array:
        """Lines that count requests."""
        return ~np.isnan(self.running)

    @property
    def active(self) -> Array:
        """Lines about requests that decode and give tokens."""
        decodes = self.counted & (self.kind != LOAD_PREFILL) & (self.running > 0) & (self.output_per_s > 0)
        return np.asarray(decodes)

    @property
    def per_token_ms(self) -> Array:
        """Time (ms) of one more token of each request; NaN if no request decodes."""
        ms = np.full(len(self.running), np.nan)
        at = self.active
        ms[at] = self.running[at] / self.output_per_s[at] * 1e3
        return ms

    @property
    def behind_prompts(self) -> Array:
        """Of the active lines, those with prompts: in the line itself, or in lines since the last one."""
        at = self.active
        own = (self.kind == LOAD_BOTH) & (np.nan_to_num(self.prompt_per_s) > np.nan_to_num(self.output_per_s))
        prompts = np.cumsum(self.kind == LOAD_PREFILL)
        before = np.zeros(len(at), bool)
        rows = np.flatnonzero(self.kind != LOAD_PREFILL)
        before[rows] = np.diff(prompts[rows], prepend=0) > 0
        return np.asarray(at & (own | before))

    def rows(self, at: Array) -> Load:
        """The lines `at`."""
        return Load(**{name: getattr(self, name)[at] for name in TABLES["load"]})


def load_of(trace: Trace) -> Load:
    """All lines but those of servers that read prompts for others."""
    load = _all_lines(trace)
    return load.rows(~_prompts_alone(load, trace))


def prompt_servers_of(trace: Trace) -> Load:
    """The lines of servers that read prompts for others, which decode: none where each does both."""
    load = _all_lines(trace)
    return load.rows(_prompts_alone(load, trace))


def names_of(trace: Trace) -> list[str]:
    """The names of the replicas, by number; empty where lines number them."""
    names = trace.capture.options.get("replicas", "")
    return names.split(", ") if names else []


def _all_lines(trace: Trace) -> Load:
    columns = trace.columns("load", TABLES["load"])
    return Load(**{name: np.asarray(columns[name], float) for name in TABLES["load"]})


def _prompts_alone(load: Load, trace: Trace) -> Array:
    """True for lines of servers that only read prompts: beside others that give tokens by the names of their
    containers, or as they read as many tokens as any and give next to none; of one server by what it says of
    itself."""
    names = names_of(trace)
    if not names and "reads_for_others" in trace.capture.options:
        return np.ones(len(load.kind), bool)
    numbers = [int(n) for n in np.unique(load.replica[~np.isnan(load.replica)])]
    kinds = [next((kind for kind, sign in _KINDS if sign.search(name)), None) for name in names]
    if len(names) == len(numbers) > 1 and {True, False} <= set(kinds):
        alone = [n for n, kind in zip(numbers, kinds, strict=True) if kind]
    else:
        rates = [
            [over(np.mean, values[load.replica == n]) or 0.0 for n in numbers]
            for values in (load.prompt_per_s, load.output_per_s)
        ]
        read, given = (max(rate, default=0.0) for rate in rates)
        alone = [
            number
            for number, reads, gives in zip(numbers, *rates, strict=True)
            if reads > 0
            and reads >= limits.kernels.PROMPT_SERVER_READS * read
            and gives < limits.kernels.PROMPT_SERVER_GIVES * given
        ]
    return np.isin(load.replica, alone)


def logged_step_ns(a: Stepped) -> float | None:
    """Time (ns) of a decode step by the engine's log: that of one more token of each request, times the
    tokens that a verification of drafts yields; medians over lines behind which no prompt was read. Of a
    benchmark that times decode steps, their median. None with fewer than three such lines, and where not all
    steps of the window are known to decode."""
    phases = {a.steps.phase[i] for i in a.window_steps.tolist()}
    if not a.trace.has("load") or phases != {"decode"}:
        return None
    load = load_of(a.trace)
    accepted = load.accepted[~np.isnan(load.accepted)]
    steps = load.step_ms[(load.kind == LOAD_DECODE) & ~np.isnan(load.in_flight)]
    if len(steps):  # a benchmark that times single decode steps
        return float(np.median(steps)) * 1e6
    ms = load.per_token_ms[load.active & ~load.behind_prompts]
    if len(ms) < limits.kernels.LOAD_LINES:
        return None
    return float(np.median(ms) * (np.median(accepted) if len(accepted) else 1.0)) * 1e6


def logged_requests(a: Loaded) -> tuple[float, float] | None:
    """How many requests run and how many wait at a replica: means over the lines of the engine's log that
    count both and in which some run. None without such a line."""
    if not a.trace.has("load"):
        return None
    load = load_of(a.trace)
    both = (load.running > 0) & ~np.isnan(load.waiting) & (load.under_load_s != 0)
    return (float(load.running[both].mean()), float(load.waiting[both].mean())) if both.any() else None


def slowdown(load: Load, slow: Array, usual: Array) -> float | None:
    """How many times as long a token takes on the lines `slow` as on `usual` ones with about as many
    requests; None with fewer than three lines on a side."""
    ms = load.per_token_ms
    slow, usual = slow & ~np.isnan(ms), usual & ~np.isnan(ms)
    if slow.sum() < limits.kernels.LOAD_LINES:
        return None
    ratios = []
    for i in np.flatnonzero(slow):
        near = usual & (
            np.abs(load.running - load.running[i]) <= limits.kernels.LIKE_LOAD_RATIO * load.running[i]
        )
        if near.sum() >= limits.kernels.LOAD_LINES:
            ratios.append(ms[i] / np.median(ms[near]))
    return float(np.median(ratios)) if len(ratios) >= limits.kernels.LOAD_LINES else None


def context_slowdown(load: Load) -> float | None:
    """The same for lines whose requests hold at least twice the cache of the shortest third."""
    held = load.cache_used / np.maximum(load.running, 1)
    at = load.active & ~load.behind_prompts & (held > 0)
    if at.sum() < 2 * limits.kernels.LOAD_LINES:
        return None
    short = np.quantile(held[at], 1 / 3)
    return slowdown(load, at & (held >= 2 * short), at & (held <= short))


def eager(load: Load) -> tuple[Array, Array]:
    """Decode lines without a CUDA graph, and with one."""
    at = load.active & (load.kind == LOAD_DECODE)
    return at & (load.graph == 0), at & (load.graph == 1)


def knee(load: Load) -> tuple[float, float] | None:
    """Of runs of a benchmark with different numbers of requests at once: the smallest number that gives
    nearly the most tokens a second, and the largest; None of fewer than three."""
    at = ~np.isnan(load.in_flight) & (load.output_per_s > 0)
    sent, rate = load.in_flight[at], load.output_per_s[at]
    if len(np.unique(sent.round())) < limits.kernels.LOAD_LINES:
        return None
    return float(sent[rate >= limits.kernels.NEARLY_MOST_RATIO * rate.max()].min()), float(sent.max())


def mean_of(values: Array, counts: Array) -> float | None:
    """The mean over all that rows count, each row as often as it counts; None without a value. Rows that do
    not count weigh alike."""
    known = ~np.isnan(values)
    if not known.any():
        return None
    weights = np.ones(known.sum()) if np.isnan(counts[known]).any() else counts[known]
    return float(np.average(values[known], weights=weights))


class Replica(Struct, frozen=True):
    """The load of one replica; means over its lines, None for what they do not say."""

    number: int | None
    running: float | None
    waiting: float | None
    fetching: float | None
    output_per_s: float | None
    prompt_per_s: float | None
    token_ms: float | None
    cache_used: float | None


def replicas_of(load: Load) -> list[Replica]:
    """The replicas that lines name, by number; one where no line names any."""
    named = np.unique(load.replica[~np.isnan(load.replica)]).tolist()
    chosen: list[tuple[int | None, Array]] = [(int(r), load.replica == r) for r in named]
    chosen = chosen or [(None, np.ones(len(load.kind), bool))]
    return [_replica(number, load, np.asarray(at)) for number, at in chosen]


def prompt_servers(load: Load) -> list[Replica]:
    """Servers that read prompts for others, in order of their numbers. Each gives one token a request, which
    is no step, so its time of a token is unknown."""
    if not len(load.kind):
        return []
    return [msgspec.structs.replace(replica, token_ms=None) for replica in replicas_of(load)]


def _replica(number: int | None, load: Load, at: Array) -> Replica:
    return Replica(
        number,
        running=_under_load(load, at, load.running),
        waiting=_under_load(load, at, load.waiting),
        fetching=_under_load(load, at, load.fetching),
        output_per_s=_rate(load, at),
        prompt_per_s=over(np.mean, load.prompt_per_s[at]),
        token_ms=token_ms(load, at),
        cache_used=over(np.mean, load.cache_used[at & load.counted & (load.running > 0)]),
    )


def _under_load(load: Load, at: Array, values: Array) -> float | None:
    """The mean over the time in which requests run or wait, where rows tell it, else over the rows."""
    lasts = at & (load.under_load_s > 0) & ~np.isnan(values)
    if lasts.any():
        return float(np.average(values[lasts], weights=load.under_load_s[lasts]))
    return over(np.mean, values[at])


def _rate(load: Load, at: Array) -> float | None:
    """Tokens a second while requests run: the mean where rows tell how long they are of, else the median."""
    lasts = at & ~np.isnan(load.stretch_s) & ~np.isnan(load.output_per_s) & (load.running > 0)
    if lasts.any():
        return float(np.average(load.output_per_s[lasts], weights=load.stretch_s[lasts]))
    return over(np.median, load.output_per_s[at & (load.active | ~load.counted)])


def token_ms(load: Load, at: Array) -> float | None:
    """Time (ms) of one more token of a request: as the engine measured it, else by requests and tokens a
    second of at least three lines, of which each is of another stretch."""
    if (measured := mean_of(load.token_ms[at], load.token_count[at])) is not None:
        return measured
    ms = load.per_token_ms[load.active & at]
    return float(np.median(ms)) if len(ms) >= limits.kernels.LOAD_LINES else None


def waiting_share(load: Load) -> float | None:
    """The share of the lines with a request that waits for a place, 0 to 1; None if none counts them. Those
    that wait for a KV cache from elsewhere do not wait for a place."""
    return _above_zero(load.waiting - np.nan_to_num(load.fetching))


def fetching_lines(load: Load) -> float | None:
    """The share of the lines with a request that waits for a KV cache from elsewhere, 0 to 1."""
    return _above_zero(load.fetching)


def _above_zero(values: Array) -> float | None:
    return over(lambda known: (known > 0).mean(), values)


def fetching_share(load: Load) -> float | None:
    """The share of the waiting requests that wait for a KV cache from elsewhere, 0 to 1; None if no row
    counts them. A row without a number counts as none."""
    at = load.counted & (load.waiting > 0)
    if np.isnan(load.fetching[at]).all():
        return None
    return float(min(np.nansum(load.fetching[at]) / load.waiting[at].sum(), 1.0))


def running_spread(load: Load) -> float | None:
    """How much the requests that run vary while others wait: (most - least) / most, of the replica that
    varies most; None if no replica has two such lines."""
    waits = load.counted & (load.waiting > 0) & (load.running > 0) & (load.under_load_s != 0)
    by_replica = [load.running[waits & (load.replica == r)] for r in np.unique(load.replica[waits])]
    if np.isnan(load.replica[waits]).all():
        by_replica = [load.running[waits]]
    return max((float(np.ptp(n) / n.max()) for n in by_replica if len(n) > 1), default=None)


def common_token_ms(replicas: Sequence[Replica]) -> float | None:
    """The time of a token over all replicas, each by its tokens; None if they differ so much that it is
    that of none."""
    known = [(r.token_ms, r.output_per_s or 0.0) for r in replicas if r.token_ms is not None]
    if not known or max(known)[0] > limits.kernels.LIKE_REPLICAS_FACTOR * min(known)[0]:
        return None
    weights = [tokens for _, tokens in known]
    return float(np.average([ms for ms, _ in known], weights=weights if all(weights) else None))


def least_cache(replicas: Sequence[Replica]) -> float | None:
    """The use of the cache of the replica that uses least of it; nothing of one without requests. None if no
    replica tells."""
    known = [r.cache_used or 0.0 for r in replicas if r.cache_used is not None or r.running == 0]
    return min(known) if any(r.cache_used is not None for r in replicas) else None


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def over(statistic: Callable[[Array], object], values: Array) -> float | None:
    """A statistic over the values that are known; None if none is."""
    known = values[~np.isnan(values)]
    return float(np.asarray(statistic(known))) if len(known) else None
