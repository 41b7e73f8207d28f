"""Steps of one side that hold several steps of the other: counted alike before models are compared.

Where all kernels run k times as often a step on one side, those once a step among them, its step is
k steps of the other. A deeper model repeats its layers, not what comes once a step.
"""

from __future__ import annotations

from advisor.compare.sides import Side, paired
from advisor.model.findings import Diagnosis
from advisor.model.work import PhaseWork, Work

#: Most steps in one that are tried.
_MOST = 8
#: A kernel with at most so many calls a step lies outside the layers.
_ONCE = 2.5
#: Counts of calls are multiples up to this share, for all but this share of the time.
_NEAR, _REST = 0.02, 0.05


def in_equal_steps(before: Side, after: Side) -> tuple[Side, Side, tuple[str, ...]]:
    """Both sides, the one with longer steps divided, and what was done in words."""
    for _, b, a in paired(before, after):
        if b is None or a is None:
            continue
        for one, other, mine, theirs in ((before, after, b, a), (after, before, a, b)):
            k = _multiple(one, other, mine, theirs)
            if k > 1:
                told = f"One step {one.name} is {k} steps {other.name}: its times count by {k}."
                divided = Side(one.name, [_divided(d, k) for d in one.diagnoses])
                sides = (divided, other) if one is before else (other, divided)
                return *sides, (told,)
    return before, after, ()


def _multiple(one: Side, other: Side, mine: str, theirs: str) -> int:
    """How many steps of `other` a step of `one` holds; 1 where the ratio is not whole."""
    long, short = one.kernels(mine), other.kernels(theirs)
    common = [name for name in long if name in short and short[name].calls > 0]
    once = [name for name in common if short[name].calls <= _ONCE]
    if not once or not any(short[name].calls > _ONCE for name in common):
        return 1
    ratios = {name: long[name].calls / short[name].calls for name in common}
    k = round(ratios[max(once, key=lambda name: short[name].ms)])
    if not 1 < k <= _MOST:
        return 1
    whole = sum(kernel.ms for kernel in long.values())
    alike = sum(long[n].ms for n in common if abs(ratios[n] / k - 1) <= _NEAR)
    return k if alike >= (1 - _REST) * whole else 1


def _divided(d: Diagnosis, k: int) -> Diagnosis:
    """A diagnosis whose steps are counted as k each."""
    steps = tuple(
        s.model_copy(
            update={
                "count": s.count * k,
                **{name: getattr(s, name) / k for name in ("median_ms", "mean_ms", "p99_ms")},
            }
        )
        for s in d.steps
    )
    return d.model_copy(update={"steps": steps, "work": None if d.work is None else _work(d.work, k)})


def _work(work: Work, k: int) -> Work:
    return work.model_copy(update={"phases": tuple(_phase(p, k) for p in work.phases)})


def _phase(p: PhaseWork, k: int) -> PhaseWork:
    kernels = tuple(x.model_copy(update={"calls": x.calls / k, "ms": x.ms / k}) for x in p.kernels)
    rest = {name: getattr(p, name) / k for name in ("kernel_calls", "kernel_ms", "attention", "matmul")}
    return p.model_copy(
        update={
            "steps": p.steps * k,
            "times_ms": tuple(t / k for t in p.times_ms),
            "layers": p.layers // k if p.layers and p.layers % k == 0 else p.layers,
            "kernels": kernels,
            **rest,
        }
    )
