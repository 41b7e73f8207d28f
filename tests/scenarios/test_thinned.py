"""Traces of which a part of the events was kept: what is left lies far apart, and is not idle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.scenarios.support import fact

US = 1_000


def profiled(
    kept: float = 1.0, *, ids: int = 12, operators: bool = True, empty: float = 0.0, amd: bool = False
) -> Profile:
    """Eight steps of sixty products that each launch a kernel, `ids` numbers apart. Of the launches
    `kept` are in the file; with `operators`, the products go with them. A share `empty` of the products
    works on nothing and launches nothing."""
    p, chance, number = Profile(amd=amd).gpu(), Random(1), 0
    for step in range(8):
        p.annotation(f"decode_step {step}", step * 1_200 * US, 1_190 * US)
        for i in range(60):
            number, at = number + 1, (step * 1_200 + i * 20) * US
            there = chance.random() < kept
            p.correlation += ids - 1
            if there or not operators:
                p.op("aten::mm", at, 18 * US, **{"External id": number})
            if chance.random() < empty:
                p.correlation -= ids - 1
            elif there:
                p.launch(at + 2 * US, 4 * US, f"gemm_{i % 4}", kernel_dur=3 * US)
            else:
                p.correlation += 1
    return p


def diagnosed(p: Profile, folder: Path) -> Diagnosis:
    return advisor.diagnose(p.write(folder / "trace.json"))


@pytest.mark.parametrize(
    ("thinned", "share", "told"),
    [
        (profiled(0.5), 0.5, "of the operators are missing by their numbers"),
        (profiled(0.5, operators=False), 0.5, "of the matrix products launch nothing"),
        (profiled(0.25), 0.75, "of the CUDA calls are missing by their numbers"),
        (profiled(0.5, ids=1, amd=True), 0.5, "of the CUDA calls are missing by their numbers"),
    ],
)
def test_numbers_that_do_not_follow_tell_what_is_missing(
    thinned: Profile, share: float, told: str, tmp_path: Path
) -> None:
    d = diagnosed(thinned, tmp_path)
    assert fact(d, "capture.left_out_ratio", None) == pytest.approx(share, abs=0.05)
    assert d.findings[0].cause == "damaged-capture"
    assert d.findings[0].recommendations[0].id == "diagnose-whole-trace"
    assert told in d.findings[0].message


@pytest.mark.parametrize(
    "whole",
    [
        profiled(),
        profiled(amd=True, ids=1),
        profiled(empty=0.4),  # experts without a token
        profiled(ids=15),
    ],
)
def test_a_whole_trace_misses_nothing(whole: Profile, tmp_path: Path) -> None:
    d = diagnosed(whole, tmp_path)
    assert fact(d, "capture.left_out_ratio", None) == 0.0
    assert "damaged-capture" not in [f.cause for f in d.findings]


@pytest.mark.parametrize(("ids", "share"), [(15, 0.0), (29, 0.0), (60, 0.75)])
def test_ids_of_calls_tell_where_nothing_else_does(ids: int, share: float, tmp_path: Path) -> None:
    """One call in four of a step that is host-bound: as if launching took four times as long."""
    e = Export().gpu().process(100)
    for step in range(12):
        begin = step * 2_000 * US
        e.range(f"decode_step {step}", begin, begin + 1_990 * US)
        for i in range(50):
            e.correlation += ids
            e.call("cudaLaunchKernel_v7000", begin + i * 38 * US, 4 * US, correlation=e.correlation)
            e.kernel(begin + (i * 38 + 6) * US, 3 * US, f"k{i % 5}")
    d = advisor.diagnose(e.write(tmp_path / "trace.sqlite"))
    assert fact(d, "capture.left_out_ratio", None) == pytest.approx(share)
    causes = [f.cause for f in d.findings]
    assert ("damaged-capture" in causes) == bool(share)
    assert ("launch-bound" in causes) == (not share)
    if share:
        assert not [f.cause for f in d.findings if f.gain is not None and f.gain.speedup is not None]
        assert d.headline is None or d.headline.saves is None


def shared(beside: int) -> Export:
    """Twenty steps of 1 ms of kernels and 3 ms of host code, in which the samples show the GPU so many
    percent active."""
    e = Export().gpu().process(100)
    for step in range(20):
        begin = step * 4_000 * US
        e.range(f"decode_step {step}", begin, begin + 3_990 * US)
        for i in range(10):
            e.launch(begin + i * 10 * US, 4 * US, f"k{i % 5}", begin + (20 + i * 100) * US, 99 * US)
    active = [100 if i % 40 < 10 else beside for i in range(800)]
    samples = {"GR Active": active, "SMs Active": [min(a, 90) for a in active]}
    return e.gpu_metrics(samples, 100 * US)


@pytest.mark.parametrize(("beside", "share"), [(1, 0.006), (60, 0.33)])
def test_a_gpu_that_works_where_nothing_is_recorded_is_not_idle(
    beside: int, share: float, tmp_path: Path
) -> None:
    """Another process uses it, or rows are missing; a faster host wins none of that time."""
    d = advisor.diagnose(shared(beside).write(tmp_path / "trace.sqlite"))
    assert fact(d, "activity.unrecorded_ratio") == pytest.approx(share, rel=0.25)
    causes = [f.cause for f in d.findings]
    assert causes[0] == ("unrecorded-gpu-work" if beside > 1 else "host-gap")
    assert ("host-gap" in causes) == (beside == 1)


def stepped(
    kept: float = 1.0, *, converges: bool = False, experts: bool = False, graph: bool = False
) -> Export:
    """Ten steps of twelve layers of eight kernels, of whose launches `kept` are in the file. A solver
    repeats its layers until it `converges`; `experts` work on tokens that chance gives them."""
    e, chance = Export().gpu().process(100), Random(3)
    for step in range(16):
        begin = step * 12_000 * US
        e.range(f"decode_step {step}", begin, begin + 11_990 * US)
        if graph:
            e.call("cudaGraphLaunch_v10000", begin, 9 * US)
        for i in range(24 + (chance.randrange(-2, 3) if converges else 0)):
            for k in range(8):
                at = begin + (i * 8 + k) * 50 * US
                if chance.random() >= kept or (experts and k < 2 and chance.random() < 0.4):
                    continue
                if graph:
                    e.kernel(at + 20 * US, 3 * US, f"k{k}", correlation=e.correlation)
                else:
                    e.launch(at=at, dur=4 * US, kernel_start=at + 6 * US, kernel_dur=3 * US, kernel=f"k{k}")
    return e


@pytest.mark.parametrize(
    ("script", "share"),
    [
        (partial(stepped, 0.5), 0.5),
        (partial(stepped, 0.85), 0.15),
        (partial(stepped, 0.7, graph=True), 0.3),
        (stepped, 0.0),
        (partial(stepped, graph=True), 0.0),
        (partial(stepped, converges=True), 0.0),
        (partial(stepped, experts=True), 0.0),
    ],
)
def test_steps_of_which_no_two_run_the_same(
    script: Callable[[], Export], share: float, tmp_path: Path
) -> None:
    """Calls left out with their kernels leave numbers that are no further apart than elsewhere."""
    d = advisor.diagnose(script().write(tmp_path / "trace.sqlite"))
    assert fact(d, "capture.left_out_ratio", None) == pytest.approx(share, abs=0.3 * share)
    assert (d.findings[0].cause == "damaged-capture") == bool(share)
