"""Services that run a pass for each request: made captures of passes at uneven times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from tests.scenarios.machine import GEMM, NORM, PREFILL_ATTENTION, SILU, Kernel, Machine

#: One layer of an encoder, in us.
ENCODER_LAYER: tuple[tuple[Kernel, float], ...] = (
    (NORM, 3), (GEMM, 41), (PREFILL_ATTENTION, 30), (GEMM, 20), (NORM, 3), (GEMM, 60), (SILU, 6), (GEMM, 60),
)  # fmt: skip


def uneven(count: int, mean_ms: float, seed: int = 3) -> list[float]:
    """Times between requests that come independently of each other, in us."""
    return [float(us) for us in np.random.default_rng(seed).exponential(mean_ms * 1e3, count)]


def even(count: int, mean_ms: float, spread: float = 0.03, seed: int = 3) -> list[float]:
    """Equal times, but for so much."""
    return [mean_ms * 1e3 * (1 + u) for u in np.random.default_rng(seed).uniform(-spread, spread, count)]


Pass = Callable[[Machine], None]


def encoder(layers: int = 20) -> Pass:
    """Inputs go up, every kernel is launched by a call of its own, the result is waited for."""

    def run(m: Machine) -> None:
        m.copy("HtoD", 8)
        m.layers(layers, ENCODER_LAYER)
        m.copy("DtoH", 16)
        m.wait()

    return run


def replayed(layers: int = 20) -> Pass:
    """The same as one graph."""

    def run(m: Machine) -> None:
        m.copy("HtoD", 8)
        m.replay(layers, ENCODER_LAYER, call=15)
        m.copy("DtoH", 16)
        m.wait()

    return run


def service(
    gaps: Sequence[float],
    run: Pass,
    *,
    name: str | None = "encode_batch",
    between: Callable[[Machine, float], None] = Machine.work,
) -> Machine:
    """A pass after each of these times, which `between` fills."""
    m = Machine()
    for i, gap in enumerate(gaps):
        between(m, gap)
        with m.step(f"{name} {i}") if name else nullcontext():
            run(m)
    return m
