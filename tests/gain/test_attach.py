"""Gains of findings: estimates or reasons, and the top fixes together without counting twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.engine.rank import rank
from advisor.errors import InputError
from advisor.gain.attach import Gains, combine
from advisor.gain.replay_ops import NoEstimate
from advisor.model.findings import Advice, Alternative, Finding, Impact, Input, Tool
from advisor.model.gain import Gain, Ranking, Span, saved_by
from advisor.pipeline.explain import answer
from tests.builder import Export
from tests.gain import scenes
from tests.gain.support import US, fix, replayer
from tests.metrics.support import analysis
from tests.shipped import shipped_rules

RULES = shipped_rules().by_code


def finding(code: str, severity: str = "high") -> Finding:
    """A finding as inference leaves it: with the what-if of its rule, without numbers."""
    rule = RULES[code]
    gain = None
    if rule.gain is not None:
        gain = Gain(
            what_if=rule.gain.what_if, params=rule.gain.params, measure=rule.gain.measure, per=rule.gain.per
        )
    return Finding(
        code=code,
        cause=rule.cause,
        title=rule.title,
        severity=severity,
        confidence=0.8,
        message="",
        gain=gain,
    )


def gains(export: Export, folder: Path) -> Gains:
    return Gains(analysis(export, folder))


def test_alternatives_have_estimates_of_their_own(tmp_path: Path) -> None:
    asked = (Gain(what_if="remove_host_gap"), Gain(what_if="fp8_kv_cache"), None)
    ways = tuple(Alternative(action="do-this", text="Do this", gain=gain) for gain in asked)
    one = finding("LCH101").replaced(alternatives=ways)
    (found,) = gains(scenes.waiting(), tmp_path).with_gains([one])
    wins, unknown, unasked = (way.gain for way in found.alternatives)
    assert wins is not None
    assert wins.speedup is not None
    assert wins.speedup.mid > 1.2
    assert unknown is not None
    assert "record GPU metrics" in (unknown.reason or "")
    assert unasked is None


@pytest.mark.parametrize(("held", "told"), [(0.15, True), (0.60, False)])
def test_a_fix_that_wins_more_than_its_cause_holds_says_why(tmp_path: Path, held: float, told: bool) -> None:
    """Kernels of 3 us, one each 20 us, hold 15 % of the step; fused, half of their launches go, too."""
    one = finding("KRN105").replaced(impact=Impact(share=held, part="compute"))
    (found,) = gains(scenes.eager(kernel=scenes.ADD), tmp_path).with_gains([one])
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert found.gain.why_more == ("the launches of the fused kernels disappear, too" if told else None)


def test_an_estimate_or_a_reason(tmp_path: Path) -> None:
    found = gains(scenes.waiting(), tmp_path).with_gains(
        [finding(c) for c in ("HST101", "HST102", "KRN107", "UTL102")]
    )
    gap, gc, older, bytes_ = (f.gain for f in found)
    assert gap is not None
    assert gap.speedup is not None
    assert gap.step_after_ms is not None
    assert gap.step_after_ms.mid == pytest.approx(0.1009)
    assert gap.reason is None
    assert any("hands over no result" in text for text in gap.assumptions)
    assert any("between nothing and 16 us" in text for text in gap.assumptions)
    assert gc is not None
    assert gc.speedup is None
    assert "no garbage collection was recorded" in (gc.reason or "")
    assert older is not None
    assert older.what_if is None
    assert "is not in the capture" in (older.reason or "")
    assert bytes_ is not None
    assert "record GPU metrics" in (bytes_.reason or "")


def test_a_rule_that_names_no_known_what_if(tmp_path: Path) -> None:
    wrong = finding("HST101").replaced(gain=Gain(what_if="magic"))
    (one,) = gains(scenes.waiting(), tmp_path).with_gains([wrong])
    assert one.gain is not None
    assert "unknown what-if 'magic'" in (one.gain.reason or "")


def test_a_capture_without_gpu_work_says_so(tmp_path: Path) -> None:
    found = gains(Export().process(1).call("cudaFree_v3020", 0), tmp_path)
    (one,) = found.with_gains([finding("LCH101")])
    assert one.gain is not None
    assert one.gain.reason == "the capture holds no GPU operations to replay"
    assert one.gain.what_if == "cuda_graphs"
    assert found.combined([one]) is None


def held(code: str, share: float) -> Finding:
    advice = Advice(id="r1", action="do-this")
    impact = Impact(share=share, part="compute")
    return finding(code).replaced(impact=impact, recommendations=(advice,))


def other_of(gain: Gain, *pair: Gain) -> Span:
    """The speed-up of the other one of the two."""
    (other,) = (g.speedup for g in pair if g is not gain)
    assert other is not None
    return other


def balanced(kernel: int) -> Export:
    """A launch each 20 us, and FP32 products of `kernel` us on a device with tensor cores."""

    def step(e: Export, t: int) -> None:
        for k in range(20):
            at = t + 20 * k * US
            product = {"kernel": "ampere_sgemm_128x64_tn", "kernel_dur": kernel * US}
            e.launch(at=at, dur=5 * US, kernel_start=at + 7 * US, **product)

    return scenes.capture(step, 400, name="NVIDIA H200", capability=(9, 0))


def test_fixes_that_gain_only_together(tmp_path: Path) -> None:
    """Without tracing, host and device take about 330 us a step each: a faster one waits for the other."""
    some = gains(balanced(kernel=16), tmp_path)
    found = some.with_gains([held("KRN106", 0.6), held("LCH101", 0.2), finding("SYN101")])
    precision, graphs, other = (f.gain for f in found)
    assert precision is not None
    assert graphs is not None
    assert other is not None
    assert precision.joint is not None
    assert graphs.joint is not None
    assert other.joint is None
    assert precision.joint.codes == ("KRN106", "LCH101")
    assert precision.joint.speedup.mid > 3
    # Each wins nearly all of that once the other is done, and nearly nothing before.
    together = saved_by(precision.joint.speedup)
    for gain in (precision, graphs):
        assert gain.speedup is not None
        assert gain.after_first == pytest.approx(
            together - saved_by(other_of(gain, precision, graphs)), abs=0.02
        )
    ranked = rank(found, RULES)
    assert [(f.code, f.severity) for f in ranked[:2]] == [("KRN106", "high"), ("LCH101", "high")]


def test_a_report_names_all_fixes_that_gain_only_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    main(["diagnose", str(balanced(kernel=16).write(tmp_path / "trace.sqlite"))])
    printed = capsys.readouterr().out
    assert "Use CUDA graphs and lower the precision: step 0.338 → 0.029 ms" in printed
    main(["diagnose", "-v", str(tmp_path / "trace.sqlite")])
    assert "once the others are fixed" in capsys.readouterr().out


def test_a_fix_that_gains_alone_is_not_joined(tmp_path: Path) -> None:
    """The device idles three quarters of the time: graphs alone save most of it."""
    found = gains(balanced(kernel=5), tmp_path).with_gains([held("KRN106", 0.25), held("LCH101", 0.7)])
    assert all(f.gain is not None and f.gain.joint is None for f in found)


def test_the_gain_decides_the_rank(tmp_path: Path) -> None:
    found = gains(scenes.waiting(), tmp_path).with_gains([finding("SYN101"), finding("HST101")])
    ranked = rank(found, RULES)
    assert [f.code for f in ranked] == ["HST101", "SYN101"]
    terms = ranked[0].ranking
    assert terms is not None
    assert (terms.share_from, terms.confidence) == ("gain", 0.8)
    assert terms.share == pytest.approx(1 - 100.9 / 162)
    assert terms.score == pytest.approx(terms.share * 0.8, abs=1e-6)


def test_together_in_order(tmp_path: Path) -> None:
    """Host code goes piece by piece, the wait behind it with the last one."""
    some = gains(scenes.waiting(gc=20), tmp_path)
    listed = [finding("HST102"), finding("HST101"), finding("HST106"), finding("UTL107")]
    found = some.combined(some.with_gains(listed))
    assert found is not None
    # HST106 names the same fix as HST101, and a larger batch is no latency fix.
    assert [s.code for s in found.steps] == ["HST102", "HST101"]
    gc, gap = found.steps
    assert gc.step_before_ms == pytest.approx(0.162)
    assert gc.step_after_ms == pytest.approx(0.142)
    assert gap.step_before_ms == gc.step_after_ms
    assert gap.step_after_ms == pytest.approx(0.1009)
    total = sum(s.marginal_ms for s in found.steps)
    assert total == pytest.approx(found.step_before_ms.mid - found.step_after_ms.mid)
    assert found.step_after_ms.mid >= found.bound_ms.mid - 1e-9
    assert found.speedup.mid <= found.bound_speedup.mid + 1e-9


def test_a_fix_that_loses_is_not_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is made again without it. Here all that wins less than a fifth counts as lost."""
    some = gains(scenes.waiting(gc=20), tmp_path)
    listed = some.with_gains([finding("HST102"), finding("HST101")])
    assert some.combined(listed) is not None  # the second wins nothing after the first
    monkeypatch.setattr("advisor.gain.limits.LOSS_RATIO", -0.2)
    assert some.combined(listed) is None


def test_a_fix_that_finds_nothing_left_says_why(tmp_path: Path) -> None:
    r = replayer(scenes.copying(), tmp_path)
    found = combine(r, [fix("remove_copy"), fix("remove_gc"), fix("overlap_copy", gb_per_s=100)])
    assert [s.note is None for s in found.steps] == [True, False, True]
    assert found.steps[1].marginal_ms == 0
    with pytest.raises(NoEstimate, match="garbage"):
        combine(r, [fix("remove_gc")])


def test_the_same_fix_wins_once(tmp_path: Path) -> None:
    """Half the bytes twice would be a quarter; a batch may be doubled twice."""
    export = scenes.sampled((scenes.GEMM, 200, 69, 4), (scenes.GEMM, 200, 69, 4))
    r = replayer(export, tmp_path)
    for again in (fix("fp8_weights"), fix("fp8_weights", bytes_ratio=0.25)):
        found = combine(r, [fix("fp8_weights"), again])
        assert [s.note for s in found.steps] == [None, "fp8_weights is applied already"]
        assert found.steps[1].marginal_ms == 0
        assert found.step_after_ms.mid == found.steps[0].step_after_ms


def test_throughput_in_between(tmp_path: Path) -> None:
    export = scenes.kernels((scenes.GEMM, 100), (scenes.ADD, 50), grid=8, step="decode_step")
    r = replayer(export, tmp_path)
    found = combine(r, [fix("batch", n=2), fix("batch", n=2)])
    assert [s.speedup for s in found.steps] == pytest.approx([2.0, 4.0])
    assert found.speedup.mid == pytest.approx(4.0)


def test_the_answer_to_a_question(tmp_path: Path) -> None:
    tool, source = Tool(version="1", engine="python"), Input(path="t.sqlite", format="nsys")
    a = analysis(scenes.waiting(), tmp_path)
    report = answer(a, [fix("remove_host_gap")], tool, source)
    assert report.replay.steps == report.replay.of_steps == 5
    assert report.replay.captured_ms == pytest.approx(0.162)
    assert report.replay.error == pytest.approx(0.0, abs=1e-12)
    assert (report.measure, report.per) == ("latency", "step")
    assert report.speedup.mid == pytest.approx(162 / 100.9)
    assert report.fixes[0].what_if == "remove_host_gap"
    with pytest.raises(InputError, match=r"t\.sqlite: no estimate: .*collectives"):
        answer(a, [fix("overlap_communication")], tool, source)


def test_options_where_nothing_is_at_fault(tmp_path: Path) -> None:
    """Halving the weights' bytes shortens GEMMs at 69 % of the peak bandwidth; it is offered to
    language models alone. What cannot be replayed offers nothing."""
    export = scenes.sampled((scenes.GEMM, 200, 69, 4), (scenes.GEMM, 200, 69, 4))
    some = gains(export, tmp_path)
    found = some.options(language_model=True)
    assert found is not None
    assert [o.what_if for o in found] == ["fp8_weights"]
    assert found[0].saved == pytest.approx(1 - 1 / found[0].speedup.mid)
    assert some.options(language_model=False) == ()
    (tmp_path / "other").mkdir()
    idle = gains(Export().process(1).call("cudaFree_v3020", 0), tmp_path / "other")
    assert idle.options(language_model=True) is None


def test_a_launch_bound_step_that_tracing_alone_may_have_made(tmp_path: Path) -> None:
    """Kernels of 40 us in steps of 60.9 us: untraced, the host may keep up. Kernels of 3 us in the
    same steps leave the device waiting however little tracing cost."""

    def told(us: int, folder: Path) -> Finding:
        def step(e: Export, t: int) -> None:
            e.launch(at=t, dur=5_000, kernel_start=t + 7_000, kernel_dur=us * 1_000)

        folder.mkdir()
        one = finding("LCH101").replaced(ranking=Ranking(confidence=0.8))
        (found,) = gains(scenes.capture(step, 24), folder).with_gains([one])
        return found

    near, far = told(15, tmp_path / "near"), told(3, tmp_path / "far")
    assert "perhaps not for an untraced run" in near.message
    assert "untraced" not in far.message


def test_what_tracing_cost_may_leave_open_whether_a_fix_saves_half(tmp_path: Path) -> None:
    """Kernels of 14 us, launched each 20 us: with all of the cost of tracing taken out the device keeps
    up, with none of it a graph saves 30 %. Kernels of 1 us wait for their launch either way."""
    for kernel, traced in ((14, True), (1, False)):
        (tmp_path / str(kernel)).mkdir()
        (one,) = gains(balanced(kernel), tmp_path / str(kernel)).with_gains([finding("LCH101")])
        assert one.gain is not None
        assert one.gain.speedup is not None
        assert one.gain.traced is traced
        assert saved_by(one.gain.speedup) == pytest.approx(1 - 1 / one.gain.speedup.mid)


def test_the_untraced_step_is_between_the_traced_one_and_the_work(tmp_path: Path) -> None:
    step = gains(scenes.waiting(), tmp_path).untraced
    assert step is not None
    assert step.low <= step.mid <= step.high
