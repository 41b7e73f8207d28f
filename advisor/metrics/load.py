"""The load of a serving engine by what it says of it: requests, tokens, cache, graphs, replicas."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.metrics import limits
from advisor.metrics.analysis import Analysis
from advisor.model.arrays import Array
from advisor.sources.schema import LOAD_BOTH, LOAD_DECODE, LOAD_PREFILL, TABLES
from advisor.sources.trace import Trace


class Load(Struct):
    """Columns of the table `load`; NaN for what a line does not say."""

    kind: Array
    replica: Array
    running: Array
    waiting: Array
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


def load_of(trace: Trace) -> Load:
    columns = trace.columns("load", TABLES["load"])
    return Load(**{name: np.asarray(columns[name], float) for name in TABLES["load"]})


def logged_step_ns(a: Analysis) -> float | None:
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


def by_replica(load: Load) -> dict[int, float]:
    """Mean number of requests of each replica that is named."""
    at = load.counted & ~np.isnan(load.replica)
    return {int(r): float(load.running[at & (load.replica == r)].mean()) for r in np.unique(load.replica[at])}
