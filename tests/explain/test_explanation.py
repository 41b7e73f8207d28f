"""`advisor.explain`: why a rule fired in a capture, why not, or what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from math import prod
from pathlib import Path

import pytest

import advisor
from advisor.cli.main import main
from advisor.errors import RuleError
from advisor.model.explanation import Explanation, Reason
from advisor.pipeline.diagnose import Analysed, Options, analyse, diagnose
from advisor.pipeline.explain import explanation
from advisor.pipeline.reported import of_document
from tests.captures import committed
from tests.scenarios.machine import DECODE_LAYER, Machine

EAGER = committed("decode_eager_bs1")
OPAQUE = committed("decode_graph_opaque")


OPEN = ExitStack()


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    """What was analysed for all tests of this module is closed behind them."""
    yield
    analysed.cache_clear()
    OPEN.close()


@cache
def analysed(path: Path, *params: str) -> Analysed:
    return OPEN.enter_context(analyse(path, Options(params=params)))


@cache
def explained(path: Path, code: str, *params: str) -> Explanation:
    """What `advisor.explain` says; each capture is analysed once for all rules."""
    done = analysed(path, *params)
    (named,) = (c for c, r in done.inference.program.by_code.items() if code in (c, r.spec.cause))
    return explanation(done, named)


def every_explanation(path: Path) -> list[Explanation]:
    return [explained(path, code) for code in sorted(analysed(path).inference.program.by_code)]


def walk(reasons: tuple[Reason, ...]) -> Iterator[Reason]:
    for reason in reasons:
        yield reason
        yield from walk(reason.reasons)


def facts_of(reasons: tuple[Reason, ...]) -> dict[str, Reason]:
    return {r.condition.fact: r for r in walk(reasons) if r.condition is not None}


# --- fired -----------------------------------------------------------------------------------


def test_a_fired_cause_down_to_its_facts() -> None:
    found = explained(EAGER, "LCH101")
    assert (found.code, found.cause, found.state) == ("LCH101", "launch-bound", "fired")
    (one,) = found.scopes
    assert one.scope.device == 0
    facts = facts_of(one.reasons)
    idle = facts["launch.idle_ratio"].condition
    assert idle is not None
    assert idle.value == pytest.approx(0.842, abs=0.001)
    assert (idle.threshold, idle.op, idle.param, idle.holds) == (0.1, "ge", "min_idle", True)
    # The symptom that it needs is followed to the number behind it.
    (symptom,) = (r for r in one.reasons if r.kind == "state")
    assert symptom.reasons[0].rule is not None
    assert symptom.reasons[0].rule.code == "LCH100"
    assert facts["launch.empty_queue_ratio"].holds is True


def test_it_says_the_same_as_the_diagnosis() -> None:
    (one,) = explained(EAGER, "launch-bound").scopes
    finding = diagnose(EAGER).findings[0]
    assert (one.rank, one.severity, one.impact) == (1, finding.severity, finding.impact)
    assert (one.message, one.confidence) == (finding.message, finding.confidence)
    assert {s.code for s in one.explains} == {s.code for s in finding.explains}


def test_the_confidence_is_the_product_of_its_factors() -> None:
    (one,) = explained(EAGER, "LCH101").scopes
    names = ["base", "labels", "method", "margin", "found", "steps", "range", "profiler"]
    assert [f.name for f in one.factors] == names
    assert prod(f.factor for f in one.factors) == pytest.approx(one.confidence, abs=0.001)
    assert "15 steps" in one.factors[5].why


def test_numbers_from_samples_say_how_many_there_are() -> None:
    (one,) = explained(committed("decode8b_graph_bs1"), "UTL102").scopes
    (samples,) = (f for f in one.factors if f.name == "samples")
    assert "1,013 samples, which resolve" in samples.why
    assert 0.8 < samples.factor < 1.0


def test_every_fact_says_where_it_comes_from() -> None:
    found = explained(EAGER, "LCH101")
    assert {f.fact for f in found.facts} >= set(facts_of(found.scopes[0].reasons))
    (idle,) = (f for f in found.facts if f.fact == "launch.idle_ratio")
    assert idle.how == "budget parts launch_call + launch_latency + host_between_launches"
    kernels, calls = idle.sources
    assert (kernels.table, kernels.native) == ("kernels", "CUPTI_ACTIVITY_KIND_KERNEL")
    assert {"start", "end", "correlation"} <= set(kernels.columns)
    assert calls.native == "CUPTI_ACTIVITY_KIND_RUNTIME"
    assert idle.window_ns == found.input.window_ns
    (count,) = (f for f in found.facts if f.fact == "capture.kernel_count")
    assert count.window_ns is None  # over the whole file
    assert all(f.sources for f in found.facts)


def test_a_symptom_says_what_it_is_folded_into() -> None:
    found = explained(EAGER, "gpu-idle")
    (one,) = found.scopes
    assert one.rank is None
    assert [r.code for r in one.explained_by] == ["LCH101"]
    assert "folded into LCH101 launch-bound" in found.sentence


def test_causes_that_overrule_each_other() -> None:
    (ruler,) = explained(EAGER, "LCH101").scopes
    assert [r.code for r in ruler.overrules] == ["LCH102"]
    found = explained(EAGER, "LCH102")
    (ruled,) = found.scopes
    assert (found.state, ruled.state) == ("overruled", "overruled")
    assert [r.code for r in ruled.overruled_by] == ["LCH101"]
    assert "LCH101 launch-bound overrules it" in found.sentence


# --- not fired -------------------------------------------------------------------------------


def test_why_not_names_the_nearest_miss_and_how_far_it_is() -> None:
    found = explained(EAGER, "HST101")
    (one,) = found.scopes
    assert (found.state, one.state) == ("quiet", "quiet")
    miss = facts_of(one.reasons)["host.gap_ratio"]
    assert miss.condition is not None
    assert miss.condition.value == pytest.approx(0.0046, abs=0.0001)
    assert miss.condition.threshold == 0.1
    assert miss.off_by == pytest.approx(0.954, abs=0.001)  # of the threshold
    assert "host.gap_ratio is 0.46 %, not more than 10 % (max_gap)" in found.sentence


@pytest.mark.parametrize(
    "capture", [pytest.param(EAGER, marks=pytest.mark.slow), OPAQUE, committed("whole_run_no_capture_range")]
)
def test_the_sentence_says_what_the_tree_shows(capture: Path) -> None:
    """Whatever stood in the way: a number, a symptom, or a rule that stopped it."""
    for one in (f for f in every_explanation(capture) if f.state == "quiet"):
        failing = [r.text for r in walk(one.scopes[0].reasons) if r.holds is False]
        assert any(one.sentence.endswith(f": {text}.") for text in failing), one.sentence


def test_a_threshold_that_is_given_counts() -> None:
    assert explained(EAGER, "HST101", "HST101.max_gap=0.004").state == "fired"
    (one,) = explained(EAGER, "LCH101", "LCH101.min_idle=0.9").scopes
    of_rule = (r for r in one.reasons if r.condition is not None)  # not those of the symptom that it asks for
    miss = next(r for r in of_rule if r.condition.fact == "launch.idle_ratio")
    assert one.state == "quiet"
    assert miss.off_by == pytest.approx((0.9 - 0.8418) / 0.9, abs=0.001)


def test_of_many_scopes_the_nearest_comes_first() -> None:
    found = explained(EAGER, "KRN102")
    assert len(found.scopes) > 5
    first, last = (facts_of(s.reasons) for s in (found.scopes[0], found.scopes[-1]))
    assert first["operation.count"].holds is True
    assert sum(r.holds is not True for r in first.values()) <= sum(r.holds is not True for r in last.values())


# --- missing ---------------------------------------------------------------------------------


def test_what_is_missing_why_and_what_supplies_it() -> None:
    found = explained(EAGER, "HST104")
    (one,) = found.scopes
    assert (found.state, one.confidence) == ("not_evaluated", None)
    (missing,) = one.missing
    assert missing.fact == "host.os_idle_ratio"
    assert missing.why == "the capture holds no host_calls"
    assert missing.remedy == "--trace=cuda,nvtx,osrt"


def test_kernels_hidden_in_graphs_need_node_tracing() -> None:
    """CUDA was traced: `--trace=cuda` would change nothing."""
    (one,) = explained(OPAQUE, "KRN105").scopes
    assert {m.remedy for m in one.missing} == {"--cuda-graph-trace=node"}


# --- generated captures, options, errors -----------------------------------------------------


@pytest.fixture
def script(tmp_path: Path) -> Path:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(22, [(kernel, 1.5) for kernel, _ in DECODE_LAYER])
            m.wait()
    return m.export.write(tmp_path / "trace.sqlite")


def test_a_window_moves_what_is_explained(script: Path) -> None:
    whole = advisor.explain(script, "LCH101")
    part = advisor.explain(script, "LCH101", Options(window="2ms/6ms"))
    assert part.input.window_ns == (2_000_000, 6_000_000)
    (idle,) = (f for f in part.facts if f.fact == "launch.idle_ratio")
    assert idle.window_ns == (2_000_000, 6_000_000)
    assert whole.input.window_ns != part.input.window_ns


def test_both_engines_explain_alike(script: Path) -> None:
    durable, plain = (
        advisor.explain(script, "LCH101", Options(engine=e))  # type: ignore[arg-type]
        for e in (None, "python")
    )
    assert durable.replaced(tool=plain.tool) == plain


def test_an_unknown_name_is_told_before_the_capture_is_read() -> None:
    with pytest.raises(RuleError, match="did you mean 'launch-bound"):
        advisor.explain("no-such-file", "lauch-bound")


@pytest.mark.parametrize("name", ["decode_eager_bs1", "decode_graph_opaque", "no_gpu_work"])
def test_every_rule_can_be_explained_on_every_capture(name: str) -> None:
    for found in every_explanation(committed(name)):
        assert found.code in found.sentence
        assert found.scopes
        for one in found.scopes:
            assert (one.state == "not_evaluated") == bool(one.missing)
            assert (one.confidence is not None) == (one.state in ("fired", "overruled"))


def test_a_saved_diagnosis_names_a_rule_of_the_user_that_overruled_one(tmp_path: Path) -> None:
    """The rule is looked up in the folders that were given, not among ours alone."""
    assert main(["rules", "new", "ACM101", "--into", str(tmp_path)]) == 0
    told = diagnose(EAGER)
    code = told.overruled[0].code
    saved = told.replaced(overruled=(told.overruled[0].replaced(by="ACM101"),))
    found = of_document(saved, code, [tmp_path])
    assert [r.code for scope in found.scopes for r in scope.overruled_by] == ["ACM101"]
