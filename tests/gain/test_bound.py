"""No combination of fixes, in any order and however the capture is read, beats the GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.gain.attach import combine
from advisor.gain.estimate import Replayer
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import NoEstimate
from advisor.gain.whatifs import Fix, catalogue
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer

LATENCY = sorted(k for k, w in catalogue().whatifs.items() if w.measure == "latency")
#: What a step may hold: a kernel, a copy with a wait behind it, an allocation, or host code.
PART = st.sampled_from(["gemm", "add", "nccl", "pageable", "pinned", "readback", "malloc", "sync", "host"])
NAMES = {"gemm": scenes.GEMM, "add": scenes.ADD, "nccl": scenes.NCCL}
EASE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def capture(parts: Sequence[tuple[str, int]]) -> Export:
    """Six steps of parts of (kind, us), each behind what the stream and the host did before."""
    export = Export().gpu().process(1)
    host = free = 0
    for i in range(6):
        begin = host
        for kind, length in (*parts, ("gemm", 20)):
            start = max(host + 7 * US, free + US)
            if kind in NAMES:
                export.launch(
                    at=host, dur=5 * US, kernel=NAMES[kind], kernel_start=start, kernel_dur=length * US
                )
                free, host = start + length * US, host + 5 * US
            elif kind in ("pageable", "pinned", "readback"):
                way, memory = ("DtoH", "pageable") if kind == "readback" else ("HtoD", kind)
                export.copy(
                    at=host,
                    dur=start + (length + 2) * US - host,
                    bytes=length * 10_000,
                    kind=way,
                    memory=memory,
                    copy_start=start,
                    copy_dur=length * US,
                )
                free = start + length * US
                host = free + 2 * US
            elif kind == "sync":
                back = max(host + US, free + 3 * US)
                export.sync(at=host, dur=back - host)
                host = back
            elif kind == "malloc":
                export.call("cudaMalloc_v3020", host, length * US)
                host += length * US
            else:
                host += length * US
            host += 2 * US
        export.range(f"iteration {i}", begin, host - US)
    return export


def steps() -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(PART, st.integers(1, 300)), min_size=1, max_size=8)


def applicable(r: Replayer, names: Sequence[str]) -> list[Fix]:
    """The fixes that find something to change, each in its turn."""
    used: list[Fix] = []
    for name in names:
        try:
            r.step_ns([*used, fix(name)], Scenario(leans=(0,) * (len(used) + 1)))
        except NoEstimate:
            continue
        used.append(fix(name))
    return used


@EASE
@given(
    parts=steps(),
    names=st.lists(st.sampled_from(LATENCY), min_size=1, max_size=4, unique=True),
    launch=st.floats(0, 1),
    gap=st.floats(0, 1),
    lean=st.integers(-1, 1),
)
def test_no_reading_of_any_combination_beats_the_gpu(
    parts: list[tuple[str, int]], names: list[str], launch: float, gap: float, lean: int
) -> None:
    r = replayer(capture(parts), Path(mkdtemp()))
    used = applicable(r, names)
    scenario = Scenario(launch, gap, (lean,) * len(used))
    step, bound = r.step_ns(used, scenario), r.bound_ns(used, scenario)
    assert step >= bound * (1 - 1e-9)
    inputs = r.inputs(used, scenario)
    mine = np.isin(inputs.ops.step, r.excerpt.measured)
    busiest = np.bincount(inputs.ops.stream[mine], inputs.ops.duration[mine]).max()
    assert bound >= busiest / len(r.excerpt.measured) * (1 - 1e-9)


@EASE
@given(parts=steps(), names=st.permutations(LATENCY).map(lambda n: n[:4]), n=st.sampled_from([0, 2, 16]))
def test_ranges_are_in_order_and_within_the_bound(
    parts: list[tuple[str, int]], names: list[str], n: int
) -> None:
    r = replayer(capture(parts), Path(mkdtemp()))
    used = applicable(r, names)
    more = [*used, *([fix("batch", n=n)] if n else [])]
    if not more:
        return
    found = r.estimate(more)
    for span in (found.before, found.after, found.speedup, found.bound, found.bound_speedup):
        assert 0 < span.low <= span.mid <= span.high < math.inf
    # The marginal gains add up, and nothing is won twice.
    together = combine(r, more)
    won = sum(s.marginal_ms for s in together.steps)
    assert math.isclose(won, found.before.mid - found.after.mid, abs_tol=1e-9)
    assert found.after.low >= found.bound.low * (1 - 1e-9)
    assert found.speedup.high <= found.bound_speedup.high * (1 + 1e-9)
    if all(f.what_if != "cuda_graphs" for f in used):
        # All others only take time away. A graph also changes when its first kernel starts.
        assert found.speedup.low >= min(1.0, found.speedup.mid) * (1 - 1e-9)
    if n and not used:
        assert found.speedup.high <= n * (1 + 1e-9)
