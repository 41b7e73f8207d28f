"""A variant of a workload: timed without the profiler, traced, timed again, and labelled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu
import torch
from torch.profiler import ProfilerActivity, profile, schedule

#: Without a GPU nothing is worth measuring: the kit is only tried.
ROUNDS = 4 if gpu.HERE else 1
ROUND_SECONDS = 0.2 if gpu.HERE else 0.0


@dataclass(frozen=True)
class Gain:
    """The mend of `causes` (any of them, parted by |) is the variant `after`. `fix`: the what-if that
    predicts it, with parameters as on the command line, where it is not the one of the finding."""

    causes: str
    change: str
    after: str
    fix: str | None = None


@dataclass(frozen=True)
class Variant:
    """One loop. A call of `step` is one step, or `steps_a_call` of them (on the mean).

    `top`: causes one of which the diagnosis must put first (none given: no demand); `never`: causes
    that it must not say. `period`: after how many calls the loop repeats itself. `marks`: how the
    trace marks its steps: the profiler's own, or none. `batches`: sequences a step -> the variant with
    that many. `options`: further arguments of `torch.profiler.profile`.
    """

    name: str
    family: str
    step: Callable[[], None]
    top: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    gains: tuple[Gain, ...] = ()
    calls: int = 8
    period: int = 1
    steps_a_call: float = 1
    marks: bool = True
    batches: dict[int, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


def timed(variant: Variant, calls: int) -> tuple[float, float]:
    """Milliseconds a step by the host's clock, and by CUDA events around all of the calls."""
    gpu.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if gpu.HERE else []
    begin = time.perf_counter()
    if events:
        events[0].record()
    for _ in range(calls):
        variant.step()
    if events:
        events[1].record()
    gpu.synchronize()
    steps = calls * variant.steps_a_call
    wall = (time.perf_counter() - begin) * 1e3 / steps
    return wall, events[0].elapsed_time(events[1]) / steps if events else wall


def calls_a_round(variant: Variant) -> int:
    """As many as fill a round, in whole periods."""
    wall, _ = timed(variant, variant.period)
    periods = ROUND_SECONDS * 1e3 / max(wall * variant.steps_a_call * variant.period, 1e-3)
    return variant.period * max(1, min(200, round(periods)))


def trace(variant: Variant, path: Path) -> None:
    """Records `calls` calls after a period of warming up, as PyTorch's manual does it."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu.HERE else [])]
    options = {"activities": activities, **variant.options}
    if variant.marks:
        options["schedule"] = schedule(wait=0, warmup=variant.period, active=variant.calls, repeat=1)
        options["on_trace_ready"] = lambda p: p.export_chrome_trace(str(path))
        with profile(**options) as recorder:
            for _ in range(variant.period + variant.calls):
                variant.step()
                recorder.step()
        return
    with profile(**options) as recorder:
        for _ in range(variant.calls):
            variant.step()
        gpu.synchronize()
    recorder.export_chrome_trace(str(path))


def record(variant: Variant, folder: Path) -> dict[str, Any]:
    """The label of a variant, its trace written as `folder/NAME.json.gz`."""
    with variant.around():
        for _ in range(3 * variant.period):
            variant.step()
        calls = calls_a_round(variant)
        before = [timed(variant, calls) for _ in range(ROUNDS)]
        trace(variant, folder / f"{variant.name}.json.gz")
        rounds = before + [timed(variant, calls) for _ in range(ROUNDS)]
    walls = [wall for wall, _ in rounds]
    return {
        "family": variant.family,
        "top": list(variant.top),
        "never": list(variant.never),
        "step_ms": round(statistics.median(walls), 4),
        "band": [round(min(walls), 4), round(max(walls), 4)],
        "rounds_ms": [round(wall, 4) for wall in walls],
        "events_ms": [round(event, 4) for _, event in rounds],
        "calls_a_round": calls,
        "traced_steps": variant.calls * variant.steps_a_call,
        "recorder": " ".join(sorted(variant.options)) or "default",
        "gains": [{k: v for k, v in vars(g).items() if v} for g in variant.gains],
        "batches": {str(n): name for n, name in variant.batches.items()},
    }
