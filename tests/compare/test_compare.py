"""Before against after, from captures to verdict: generated, committed and labelled pairs."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from openpyxl import load_workbook

from advisor.comparison.before_after import compare
from advisor.comparison.change_facts import RuleOptions
from advisor.comparison.statistics import HOST_SPREAD
from advisor.errors import InputError
from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis
from advisor.model.gain import Span
from advisor.model.options import Options
from advisor.model.work import PhaseWork
from advisor.pipeline import compare as pipeline_compare
from advisor.pipeline.diagnose import diagnose
from advisor.reports.blocks import Labelled
from advisor.reports.compare_blocks import comparison
from advisor.reports.json_report import document_bytes
from advisor.reports.workbook.experiments import render as workbook
from tests.captures import committed, smaller_of
from tests.compare.support import (
    ATTENTION,
    LABELLED,
    ROOT,
    committed_diagnosis,
    decoder,
    diagnosed,
    side,
    with_times,
)

FP8 = "nvjet_sm90_qqtst_128x16_128x11_2x1_v_bz_algo2_TNT"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    return diagnosed(tmp_path_factory.mktemp("base") / "base.sqlite", steps=40)


def against(base: Diagnosis, tmp_path: Path, **changes: Any) -> Comparison:
    """The base against a capture that differs from it."""
    other = diagnosed(tmp_path / "after.sqlite", **{"steps": 40, "seed": 1, **changes})
    return compare(side("before", base), side("after", other))


def reasons(found: Comparison) -> set[str]:
    return {r.check for r in found.comparability.reasons if r.state == "differs" and r.score < 1}


# --- verdicts --------------------------------------------------------------------------------


def test_another_capture_of_the_same_is_no_change(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path)
    assert found.verdict == "no-change"
    assert found.comparability.score == 1.0
    assert not found.contributions
    assert {h.cause for h in found.healthy} == {"toolkit-differs", "no-change"}
    assert not found.findings
    assert not [o for o in found.operations if o.status != "same"]


def test_slower_attention_is_a_regression_and_is_named(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, attention=28.0)
    assert found.verdict == "regression"
    (first,) = found.phases
    assert first.typical is not None
    assert first.typical.mid == pytest.approx(6 * 8 / 435, rel=0.1)
    assert first.typical.low > 0.08
    worst = found.operations[0]
    assert (worst.status, worst.family) == ("slower", "attention")
    assert worst.change_ms == pytest.approx(0.048, rel=0.1)
    assert worst.kernels_before == worst.kernels_after == (ATTENTION,)
    (finding,) = [f for f in found.findings if f.cause == "regression"]
    assert finding.severity == "medium"
    compute = next(p for p in found.budget if p.part == "compute")
    assert compute.change_ms == pytest.approx(0.048, rel=0.15)


def test_the_verdict_says_where_the_change_comes_from(base: Diagnosis, tmp_path: Path) -> None:
    slower = against(base, tmp_path, attention=28.0)
    (part,) = slower.contributions
    assert (part.part, part.share) == ("compute", pytest.approx(1.0, abs=0.1))
    assert part.operation == slower.operations[0].operation
    assert part.operation_ms == slower.operations[0].change_ms
    # Kernels that are too small were so before.
    assert part.cause is None
    assert "ms a step, +0.0" in slower.summary
    assert f"are compute ({part.operation} +0.0" in slower.summary


@pytest.mark.parametrize("swapped", [False, True])
def test_the_finding_that_holds_the_change_is_named_with_its_fix(
    base: Diagnosis, tmp_path: Path, swapped: bool
) -> None:
    """400 us of host code between steps of 435 us, of which kernels that are queued hide none."""
    other = diagnosed(tmp_path / "gap.sqlite", steps=40, gap=400.0)
    both = (other, base) if swapped else (base, other)
    found = compare(*(side(name, d) for name, d in zip(("before", "after"), both, strict=True)))
    assert found.verdict == ("improvement" if swapped else "regression")
    part = found.contributions[0]
    assert (part.code, part.cause) == ("HST101", "host-gap")
    assert "(host-gap)" in found.summary
    # What is gone needs no advice.
    (finding,) = [f for f in other.findings if f.cause == "host-gap"]
    assert part.action == (None if swapped else finding.recommendations[0].action)
    blocks = [b for b in comparison(found) if isinstance(b, Labelled) and b.label == "HST101"]
    assert [b.text for b in blocks] == ([] if swapped else [part.action])
    cells = [c.value for row in load_workbook(BytesIO(workbook(found)))["Summary"].iter_rows() for c in row]
    assert (f"To do: {part.action}" in cells) is not swapped


def test_the_lists_of_a_comparison_are_data_frames(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path)
    frames = found.frames()
    assert frames["phases"]["phase"].tolist() == [p.phase for p in found.phases]
    assert len(frames["facts"]) == len(found.facts) > 0
    assert {"before.mean_ms", "after.mean_ms"} <= set(frames["phases"])
    assert len(frames["notes"]) == len(found.notes)


def test_faster_products_are_an_improvement(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, gemm=22.0, gemm_name=FP8)
    assert found.verdict == "improvement"
    assert found.operations[0].status == "faster"
    assert found.operations[0].kernels_after == (FP8,)
    assert "improvement" in {h.cause for h in found.healthy}


def test_a_change_below_the_gate_is_none(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, attention=22.5)
    assert found.verdict == "no-change"
    assert found.phases[0].typical is not None
    assert 0.02 < found.phases[0].typical.mid < 0.05


def test_gate_and_floor_are_parameters(base: Diagnosis, tmp_path: Path) -> None:
    other = diagnosed(tmp_path / "after.sqlite", steps=40, attention=22.5)
    sides = side("before", base), side("after", other)
    stricter = RuleOptions(settings={(c, "gate"): 0.02 for c in ("CMP101", "CMP104", "CMP105")})
    assert compare(*sides, stricter).verdict == "regression"
    assert compare(*sides, RuleOptions(params=("CMP101.gate=0.02",))).verdict == "regression"
    lax = RuleOptions(params=("CMP101.gate=0.02", "CMP101.noise_floor=0.5"))
    assert compare(*sides, lax).verdict == "no-change"


def test_steps_that_stall_are_a_regression_of_the_mean(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, slow=(4, 400.0))
    assert found.verdict == "regression"
    (phase,) = found.phases
    assert phase.typical is not None
    assert phase.mean is not None
    assert abs(phase.typical.mid) < 0.02
    assert phase.mean.mid > 0.15
    assert "mean" in found.summary


def test_one_step_a_side_decides_nothing_but_a_large_change(base: Diagnosis) -> None:
    def after(ms: float) -> Comparison:
        sides = (with_times(base, {"decode": [time]}) for time in (10.0, ms))
        before, later = sides
        return compare(side("before", before), side("after", later))

    undecided = after(10.2)
    assert undecided.verdict == "not-comparable"
    assert undecided.summary.startswith("Not decided: one step on a side")
    assert after(20.0).verdict == "regression"


def test_steps_of_several_lengths_are_said_to_be_mixed(base: Diagnosis) -> None:
    """Before, a little more than half of the steps is long; after, a little less, and all of them
    take twice as long: most pairs got slower while the median fell."""
    before = with_times(base, {"decode": [220.0] * 11 + [68.0] * 9})
    after = with_times(base, {"decode": [440.0] * 9 + [136.0] * 11})
    found = compare(side("before", before), side("after", after))
    (phase,) = found.phases
    assert phase.before is not None
    assert phase.after is not None
    assert phase.typical is not None
    assert phase.after.median_ms < phase.before.median_ms
    assert phase.typical.mid > 0.05
    assert any("several lengths are mixed" in n for n in found.notes)
    same = compare(side("before", before), side("after", before))
    assert not any("several lengths" in n for n in same.notes)


def in_pairs(d: Diagnosis) -> Diagnosis:
    """The same capture, two steps counted as one."""

    def twice(item: Any, *names: str) -> dict[str, Any]:
        return {name: 2 * getattr(item, name) for name in names if getattr(item, name) is not None}

    def phase(p: PhaseWork) -> PhaseWork:
        times = tuple(a + b for a, b in zip(p.times_ms[::2], p.times_ms[1::2], strict=False))
        kernels = tuple(k.replaced(**twice(k, "calls", "ms")) for k in p.kernels)
        own = twice(p, "layers", "attention", "matmul", "kernel_calls", "kernel_ms")
        update = {"steps": p.steps // 2, "times_ms": times, "kernels": kernels, **own}
        return p.replaced(**update)

    assert d.work is not None
    steps = tuple(
        s.replaced(count=s.count // 2, **twice(s, "median_ms", "mean_ms", "p99_ms")) for s in d.steps
    )
    work = d.work.replaced(phases=tuple(phase(p) for p in d.work.phases))
    return d.replaced(steps=steps, work=work)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_step_that_holds_two_of_the_other_side_is_counted_as_two(base: Diagnosis, swapped: bool) -> None:
    first, second = (in_pairs(base), base) if swapped else (base, in_pairs(base))
    found = compare(side("before", first), side("after", second))
    assert found.verdict == "no-change"
    (told,) = (n for n in found.notes if n.startswith("One step"))
    assert told.startswith(f"One step {'before is 2 steps after' if swapped else 'after is 2 steps before'}")


def test_twice_the_layers_are_another_model(base: Diagnosis, tmp_path: Path) -> None:
    """What comes once a step still does: these are no two steps in one."""
    found = against(base, tmp_path, layers=12)
    assert not any(n.startswith("One step") for n in found.notes)
    assert "model" in reasons(found)


def test_a_slower_host_behind_a_faster_step_is_named(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, gemm=20.0, gap=60.0)
    assert found.verdict == "improvement"
    (told,) = (n for n in found.notes if n.startswith("The host got slower"))
    assert "which the step as a whole hides" in told
    assert "host gap (+0.06 ms)" in told
    (tmp_path / "faster").mkdir()
    faster = against(base, tmp_path / "faster", gemm=20.0)
    assert not any("host got slower" in n for n in faster.notes)


def test_added_and_gone_kernels(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, cat=6.0)
    added = found.operations[0]
    assert (added.operation, added.status, added.calls_after) == ("concatenate", "added", 6.0)
    other = diagnosed(tmp_path / "more.sqlite", steps=40, cat=6.0)
    back = compare(side("before", other), side("after", base))
    assert back.operations[0].status == "gone"
    assert back.verdict == "improvement"


def test_graphs_take_the_launches_away(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, graph_mode="node")
    calls = {c.call: (c.calls_before, c.calls_after) for c in found.calls}
    assert calls["cudaGraphLaunch"] == (0.0, 1.0)
    assert calls["cudaLaunchKernel"][0] > 20
    assert calls["cudaLaunchKernel"][1] == 0


# --- comparability ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"gpu": "NVIDIA A100-SXM4-80GB"}, "GPU"),
        ({"layers": 12}, "model"),
        ({"layers": 3}, "model"),
        ({"blocks": 2048}, "work"),
        ({"graph_mode": "graph"}, "graphs"),
        ({"prefills": 30}, "phases"),
        ({"routed": True}, "model"),
    ],
)
def test_what_is_not_the_same_is_not_comparable(
    base: Diagnosis, tmp_path: Path, changes: dict[str, Any], check: str
) -> None:
    found = against(base, tmp_path, **changes)
    assert found.verdict == "not-comparable"
    assert check in reasons(found)
    assert found.summary.startswith("Not comparable: ")
    assert not found.checks
    assert [f.cause for f in found.findings if f.invalidates] == ["not-comparable"] or not any(
        p.before and p.after for p in found.phases
    )


@pytest.mark.parametrize(
    ("changes", "check", "score", "said"),
    [
        ({"driver": "570.86"}, "driver", 0.97, "driver 580.159 before, 570.86 after"),
        ({"cuda": "12.8"}, "CUDA", 0.97, "CUDA 13.0 before, 12.8 after"),
        ({"clock": 1.7e9}, "clock", 1980 / 2260, "the SM clock is 1,980 MHz before and 1,700 MHz"),
    ],
)
def test_another_toolkit_is_noted_and_costs_a_little(
    base: Diagnosis, tmp_path: Path, changes: dict[str, Any], check: str, score: float, said: str
) -> None:
    found = against(base, tmp_path, **changes)
    (noted,) = [f for f in found.findings if f.cause == "toolkit-differs"]
    assert (noted.code, noted.severity) == ("CMP103", "info")
    assert noted.message in found.notes
    assert found.verdict == "no-change"
    (reason,) = [r for r in found.comparability.reasons if r.state == "differs"]
    assert reason.check == check
    assert reason.text.startswith(said)
    # The clock is 280 MHz, or 280 / 1980, lower: 1 / (1 + 280 / 1980).
    assert reason.score == found.comparability.score == pytest.approx(score)


def test_drivers_of_the_same_version_are_in_order(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path)
    assert not [f for f in found.findings if f.code == "CMP103"]
    (well,) = [h for h in found.healthy if h.code == "CMP103"]
    assert "same on both sides" in well.text


@pytest.mark.parametrize(
    ("work", "check", "score", "said"),
    [
        ({"sources": ("Cuda",)}, "traced", 0.9, "traced besides: NvtxEvents before, nothing"),
        ({"sample_hz": 10_000.0}, "GPU metrics", 1.0, "GPU metrics: not sampled before, 10 kHz after"),
        ({"gpu_count": 2}, "GPUs", 0.7, "GPUs at work: 1 before, 2 after"),
        ({"gpus": ("NVIDIA B200",)}, "GPU", 0.0, "the GPU is NVIDIA H200 before and NVIDIA B200 after"),
        ({"opaque": True}, "graphs", 0.0, "CUDA graphs are recorded as kernels before and as one"),
    ],
)
def test_each_check_has_a_score_and_a_reason(
    base: Diagnosis, work: dict[str, Any], check: str, score: float, said: str
) -> None:
    assert base.work is not None
    other = base.replaced(work=base.work.replaced(**work))
    found = compare(side("before", base), side("after", other))
    (reason,) = [r for r in found.comparability.reasons if r.state == "differs"]
    assert (reason.check, reason.score) == (check, score)
    assert reason.text.startswith(said)
    assert found.comparability.score == pytest.approx(score)
    assert found.verdict == ("not-comparable" if score < 0.5 else "no-change")


def test_steps_that_were_found_in_another_way_cost_a_little(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, ranges=False)
    (reason,) = [r for r in found.comparability.reasons if r.check == "steps"]
    assert reason.score == 0.9
    assert reason.text == "steps are known by ranges before, kernel sequence after"


def test_the_model_and_the_mix_of_phases_have_scores(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, layers=3)
    (model,) = [r for r in found.comparability.reasons if r.check == "model"]
    assert model.score < 0.75
    assert "6 layers, 6 matrix products" in model.text
    (tmp_path / "after.sqlite").unlink()
    found = against(base, tmp_path, prefills=30)
    (mix,) = [r for r in found.comparability.reasons if r.check == "phases"]
    assert mix.score < 0.6
    assert mix.text.startswith("the step time is 100 % decode before and ")


def test_what_one_side_does_not_tell_is_unknown_and_not_different(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, driver="")
    assert found.verdict == "no-change"
    assert {r.check for r in found.comparability.reasons if r.state == "unknown"} == {"driver"}
    (unknown,) = found.not_evaluated
    assert (unknown.code, unknown.missing) == ("CMP103", ("compare.driver_changed",))


def test_what_was_traced_costs_little(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, traced=("Cuda", "NvtxEvents", "OSRuntime"))
    assert found.comparability.score == pytest.approx(0.9)
    assert found.verdict == "no-change"


def test_fewer_products_of_the_same_layers_are_the_same_model(base: Diagnosis, tmp_path: Path) -> None:
    """Fused projections, another attention kernel, quantised products: all may be compared."""
    found = against(base, tmp_path, gemm_name=FP8, attention=18.0)
    assert found.comparability.score == 1.0


def test_a_phase_that_one_side_lacks_is_said(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, prefills=1)
    assert found.verdict == "no-change"
    assert [(p.phase, p.verdict, p.why) for p in found.phases][-1] == (
        "prefill",
        "not-comparable",
        "only after",
    )
    (doubt,) = found.doubts
    assert doubt.startswith("Prefill step: not compared (only after); it holds ")
    assert doubt in found.notes


def test_steps_without_names_pair_with_the_only_phase(base: Diagnosis, tmp_path: Path) -> None:
    found = against(base, tmp_path, ranges=False)
    assert len(found.phases) == 1
    assert found.verdict == "no-change"


def test_a_damaged_capture_is_not_comparable() -> None:
    good, bad = (committed_diagnosis(n) for n in ("decode_eager_bs1", "whole_run_no_capture_range"))
    found = compare(side("before", good), side("after", bad))
    assert found.verdict == "not-comparable"
    assert any("after: the capture is damaged" in r.text for r in found.comparability.reasons)


# --- one capture against itself --------------------------------------------------------------

WITH_STEPS = (
    "decode_eager_bs1",
    "decode8b_graph_bs1",
    "prefill8b_bs4",
    "decode_cpu_gap",
    "decode_h2d_pageable",
    "decode_graph_opaque",
    "decode_gc",
    "two_processes",
)


@pytest.mark.parametrize("name", smaller_of(WITH_STEPS))
def test_a_capture_against_itself_is_no_change(name: str) -> None:
    found = committed_diagnosis(name)
    same = compare(side("before", found), side("after", found))
    assert same.verdict == "no-change"
    assert all(c.status == "same" for c in same.changes)
    assert all(abs(p.change_ms) < 1e-9 for p in same.budget)
    again = compare(side("before", found), side("after", found))
    assert document_bytes(again) == document_bytes(same)


SPLIT = (
    "decode_eager_bs1",
    "decode8b_graph_bs1",
    "decode_cpu_gap",
    "decode_h2d_pageable",
    "decode_gc",
    "two_processes",
)


@pytest.mark.parametrize("name", smaller_of(SPLIT))
def test_random_halves_of_one_capture_are_no_change(name: str) -> None:
    found, rng = committed_diagnosis(name), np.random.default_rng(3)
    assert found.work is not None
    for _ in range(15):
        halves: list[dict[str, list[float]]] = [{}, {}]
        for phase in found.work.phases:
            order = rng.permutation(len(phase.times_ms))
            for half, part in zip(halves, np.array_split(order, 2), strict=True):
                half[phase.phase] = [phase.times_ms[i] for i in sorted(part.tolist())]
        one, other = (with_times(found, h) for h in halves)
        assert compare(side("before", one), side("after", other)).verdict == "no-change"


# --- the gate --------------------------------------------------------------------------------


def resampled(diagnosis: Diagnosis, rng: np.random.Generator, scale: float = 1.0) -> Diagnosis:
    """As many steps, drawn from those that were recorded."""
    assert diagnosis.work is not None
    times = {}
    for phase in diagnosis.work.phases:
        own = np.array(phase.times_ms)
        times[phase.phase] = (scale * own[rng.integers(0, len(own), len(own))]).tolist()
    return with_times(diagnosis, times)


def verdicts(name: str, scale: float, count: int) -> Counter[str]:
    found, rng = committed_diagnosis(name), np.random.default_rng(11)
    return Counter(
        compare(side("before", resampled(found, rng)), side("after", resampled(found, rng, scale))).verdict
        for _ in range(count)
    )


#: How often steps are drawn.
DRAWS = pytest.mark.parametrize("draws", [15, pytest.param(100, marks=pytest.mark.slow)])


@DRAWS
@pytest.mark.parametrize("name", ["decode8b_graph_bs1", "two_processes", "prefill8b_bs4"])
def test_the_gate_raises_at_most_one_false_alarm_in_a_hundred(name: str, draws: int) -> None:
    assert verdicts(name, 1.0, draws)["regression"] <= draws / 100


@DRAWS
def test_the_gate_sees_a_tenth_on_steps_that_the_gpu_drives(draws: int) -> None:
    assert verdicts("decode8b_graph_bs1", 1.10, draws)["regression"] == draws
    assert verdicts("decode8b_graph_bs1", 1.03, draws)["regression"] == 0


@DRAWS
def test_one_capture_of_a_host_bound_step_sees_only_large_slow_downs(draws: int) -> None:
    assert verdicts("decode_eager_bs1", 1.10, draws)["regression"] == 0
    assert verdicts("decode_eager_bs1", 1.40, draws)["regression"] == draws


def test_rules_of_ones_own_judge_a_comparison(base: Diagnosis, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    text = (ROOT / "rules" / "comparison" / "CMP101.yaml").read_text(encoding="utf-8")
    (folder / "CMP101.yaml").write_text(text.replace("gate: {default: 0.05", "gate: {default: 0.3"))
    other = diagnosed(tmp_path / "slow.sqlite", steps=40, attention=30.0)
    sides = side("before", base), side("after", other)
    assert compare(*sides).verdict == "regression"
    assert compare(*sides, RuleOptions(rules=(folder,))).verdict != "regression"
    assert compare(*sides).verdict == "regression"


# --- sides -----------------------------------------------------------------------------------


def test_several_captures_a_side_show_the_noise_between_runs(tmp_path: Path) -> None:
    """Runs of a loop that the host holds back differ; three a side show by how much."""
    quick = [
        diagnosed(tmp_path / f"a{i}.sqlite", gap=gap, seed=i) for i, gap in enumerate((1000.0, 1010.0, 995.0))
    ]
    slow = [
        diagnosed(tmp_path / f"b{i}.sqlite", gap=gap, seed=9 + i)
        for i, gap in enumerate((1160.0, 1150.0, 1155.0))
    ]
    single = compare(side("before", quick[0]), side("after", slow[0]))
    assert single.verdict == "no-change"
    assert single.phases[0].resolution is not None
    assert single.phases[0].resolution > 0.5 * HOST_SPREAD
    assert any("would have shown" in n for n in single.notes)
    several = compare(side("before", *quick), side("after", *slow))
    assert several.verdict == "regression"
    assert several.phases[0].before is not None
    assert several.phases[0].before.captures == 3
    assert len(several.before.inputs) == 3


def test_the_same_capture_twice_is_no_repeat(tmp_path: Path) -> None:
    one = str(decoder(tmp_path / "one.sqlite"))
    two = str(decoder(tmp_path / "two.sqlite", seed=1))
    with pytest.raises(InputError, match="holds the same steps as"):
        pipeline_compare.compare([one, one], [two])


def test_a_folder_of_captures_that_are_no_job_is_refused(tmp_path: Path) -> None:
    one = str(decoder(tmp_path / "rank0.sqlite"))
    with pytest.raises(InputError, match="whose captures are no ranks of one job"):
        pipeline_compare.compare([str(tmp_path)], [one])


def test_saved_diagnoses_compare_like_their_captures(tmp_path: Path) -> None:
    paths = [decoder(tmp_path / "a.sqlite"), decoder(tmp_path / "b.sqlite", attention=30.0)]
    saved = []
    for path in paths:
        saved.append(path.with_suffix(".json"))
        saved[-1].write_bytes(document_bytes(diagnose(path)))
    live = pipeline_compare.compare([str(paths[0])], [str(paths[1])])
    told = pipeline_compare.compare([str(saved[0])], [str(saved[1])])
    assert live == told
    assert live.verdict == "regression"
    with pytest.raises(InputError, match="--redact works on the capture that it came from"):
        pipeline_compare.compare([str(saved[0])], [str(paths[1])], Options(redact=True))


def test_a_diagnosis_of_an_older_or_newer_version_is_read(base: Diagnosis, tmp_path: Path) -> None:
    document = json.loads(document_bytes(base))
    document["work"] = None
    document["brought_by_a_later_version"] = {"x": 1}
    document["inputs"][0]["new_key"] = 3
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document))
    found = pipeline_compare.compare([str(path)], [str(decoder(tmp_path / "b.sqlite", steps=40))])
    assert found.verdict == "no-change"
    assert found.phases[0].before is not None
    assert found.phases[0].before.steps == 39
    assert {n.code for n in found.not_evaluated} >= {"CMP106"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema_version": 1}', "not a saved diagnosis"),
        ('{"schema_version": 7, "tool": {}}', "schema version 7, this advisor reads 1"),
        ('{"schema_version": 1, "kind": "comparison"}', "a saved comparison, not a diagnosis"),
        ('{"schema_version": 1, "diagnoses": []}', "holds no diagnosis"),
        ('{"schema_version": 2, "diagnoses": [{"schema_version": 1}]}', "schema version 2, this advisor"),
        ('{"schema_version": 1,', "not a JSON document"),
        ('{"schema_version": 1, "verdict": 1e308}', "not a saved diagnosis .number out of range: 1e308"),
    ],
)
def test_what_is_no_diagnosis_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        pipeline_compare.load(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("findings.0.impact.share", 1.5, "impossible number: share is 1.5"),
        ("work.phases.0.kernel_calls", -1.0, "impossible number: kernel_calls is -1"),
        ("inputs.0.untraced_step_ms.low", 1e6, "impossible range: .* are low, mid, high"),
        ("findings.0.time_ranges.0.end_ns", -1, "impossible range: .* are start_ns, end_ns"),
    ],
)
def test_a_diagnosis_of_numbers_that_cannot_be(tmp_path: Path, place: str, value: float, said: str) -> None:
    document = json.loads(document_bytes(committed_diagnosis("decode_eager_bs1")))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    assert pipeline_compare.load(str(path))
    *holders, last = (int(p) if p.isdigit() else p for p in place.split("."))
    at = document
    for step in holders:
        at = at[step]
    at[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=said) as error:
        pipeline_compare.load(str(path))
    assert "\n" not in str(error.value)


# --- findings and promises -------------------------------------------------------------------


def test_findings_that_went_came_and_changed() -> None:
    before, after = (committed_diagnosis(n) for n in ("decode_eager_bs1", "decode_h2d_pageable"))
    found = compare(side("before", before), side("after", after))
    status = {c.cause: c.status for c in found.changes}
    assert status["launch-bound"] == "gone"
    assert status["transfer-bound"] == "new"
    check = next(c for c in found.checks if c.verify.fact == "launch.calls_per_step")
    assert (check.outcome, check.after) == ("as promised", 0.0)


def test_the_side_with_eager_launches_is_said_to_be_faster_unprofiled() -> None:
    """Its 796 launches a step cost tracing that graphs do not: 12.73 ms traced, measured 9.9 without."""
    eager, graphs = (committed_diagnosis(n) for n in ("decode_eager_bs1", "decode_graph_bs1"))
    for sides, name in (((eager, graphs), "before"), ((graphs, eager), "after")):
        note = next(n for n in compare(side("before", sides[0]), side("after", sides[1])).notes if "796" in n)
        assert f"{name} has 796 more eager launches" in note
        mid, low, high = (float(x) for x in re.findall(r"\d+\.\d+", note))
        assert low < mid < 12.0
        assert low < 9.9 < high
    assert not [n for n in compare(side("before", eager), side("after", eager)).notes if "eager" in n]


def test_a_finding_whose_rule_could_not_look_is_not_gone() -> None:
    before, after = (committed_diagnosis(n) for n in ("decode_eager_bs1", "decode_graph_opaque"))
    found = compare(side("before", before), side("after", after))
    (launch,) = [c for c in found.changes if c.cause == "launch-bound"]
    assert launch.status == "unknown"
    assert launch.note


def test_a_share_that_grows_because_the_step_shrank_did_not_move(tmp_path: Path) -> None:
    """Half of the idle time goes, so the small kernels hold a larger share of the same length."""
    before = diagnosed(tmp_path / "a.sqlite", gap=1200.0, norm=40.0)
    after = diagnosed(tmp_path / "b.sqlite", gap=100.0, norm=40.0)
    found = compare(side("before", before), side("after", after))
    grown = [
        c
        for c in found.checks
        if c.unit == "ratio"
        and c.verify.now == _share(before, c.code)
        and c.before is not None
        and c.after is not None
        and float(c.after) > 1.2 * float(c.before)
    ]
    assert grown
    assert {c.outcome for c in grown} == {"unchanged"}


def _share(diagnosis: Diagnosis, code: str) -> float | None:
    finding = next(f for f in diagnosis.findings if f.code == code)
    return None if finding.impact is None else finding.impact.share


def mended(before: Diagnosis, ms: float, untraced: float = 1.0) -> Diagnosis:
    """The launch-bound capture after its launches went into a graph, with steps of `ms`, of which the
    share `untraced` is left without the profiler."""
    assert before.work is not None
    phase = before.work.phases[0]
    mean = sum(phase.times_ms) / len(phase.times_ms)
    moved = {"launch.idle_ratio": 0.0, "launch.calls_per_step": 1.0, "launch.eager_kernel_ratio": 0.0}
    own = ms * untraced
    steps = {"step_ms": ms, "untraced_step_ms": Span(low=own, mid=own, high=own)}
    return with_times(before, {phase.phase: [t * ms / mean for t in phase.times_ms]}).replaced(
        inputs=tuple(i.replaced(**steps) for i in before.inputs),
        findings=tuple(f for f in before.findings if f.cause != "launch-bound"),
        facts=tuple(replace(f, value=moved[f.name]) if f.name in moved else f for f in before.facts),
    )


def test_predicted_gains_are_held_against_the_measured_step() -> None:
    before = committed_diagnosis("decode_eager_bs1")
    (finding,) = [f for f in before.findings if f.cause == "launch-bound"]
    assert finding.gain is not None
    promised = finding.gain.step_after_ms
    assert promised is not None

    def outcome(after: Diagnosis) -> tuple[str, float]:
        found = compare(side("before", before), side("after", after))
        (gain,) = [g for g in found.gains if g.cause == "launch-bound"]
        assert gain.predicted.step_after_ms == promised
        return gain.outcome, gain.measured_after_ms

    assert outcome(before)[0] == "not applied"
    assert outcome(mended(before, promised.mid)) == ("as predicted", pytest.approx(promised.mid, rel=0.05))
    assert outcome(mended(before, 1.3 * promised.high))[0] == "less than predicted"
    # What was promised is a step without the profiler.
    long = 1.3 * promised.high
    assert outcome(mended(before, long, untraced=promised.mid / long))[0] == "as predicted"
    assert outcome(mended(before, 0.7 * promised.low))[0] == "more than predicted"
    mean = before.steps[0].mean_ms
    assert outcome(mended(before, mean))[0] == "no effect"


def test_every_number_to_watch_is_checked_after_the_fix() -> None:
    before = committed_diagnosis("decode_eager_bs1")
    found = compare(side("before", before), side("after", mended(before, 2.0)))
    watched = {(f.code, a.verify.fact) for f in before.findings for a in f.recommendations if a.verify}
    assert {(c.code, c.verify.fact) for c in found.checks} == watched
    outcome = {c.verify.fact: (c.outcome, c.after) for c in found.checks}
    assert outcome["launch.idle_ratio"] == ("as promised", 0.0)
    assert outcome["launch.calls_per_step"] == ("as promised", 1.0)
    worse = compare(side("before", mended(before, 2.0)), side("after", before))
    assert not [c for c in worse.checks if c.cause == "launch-bound"]


def test_a_capture_compared_with_itself_says_so() -> None:
    before = committed_diagnosis("decode_eager_bs1")
    assert "one recording" in " ".join(compare(side("before", before), side("after", before)).doubts)
    after = mended(before, 2.0)
    assert "one recording" not in " ".join(compare(side("before", before), side("after", after)).doubts)


# --- the labelled pairs ----------------------------------------------------------------------


def _labels() -> list[dict[str, str]]:
    path = LABELLED / "labels.yaml"
    return yaml.safe_load(path.read_text())["compare"] if path.is_file() else []


def _labelled(name: str) -> Path:
    for ending in (".sqlite.xz", ".sqlite"):
        path = LABELLED / f"{name}{ending}"
        if path.is_file():
            return path
    return committed(name.rpartition("/")[2])


@pytest.mark.slow
@pytest.mark.skipif(not _labels(), reason="the labelled captures are not on this machine")
@pytest.mark.parametrize("want", _labels(), ids=lambda w: f"{w['before']}-{w['after']}")
def test_labelled_pairs(want: dict[str, str]) -> None:
    found = pipeline_compare.compare([str(_labelled(want["before"]))], [str(_labelled(want["after"]))])
    fair = {want["verdict"]}
    if "not-comparable is also fair" in want.get("note", ""):
        fair.add("not-comparable")
    assert found.verdict in fair, found.summary
