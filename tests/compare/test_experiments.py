"""Context lengths, engines side by side, and the perfect-router experiment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from advisor.cli.main import main
from advisor.comparison.context import scaling
from advisor.comparison.frameworks import table
from advisor.comparison.router import experiment, read_sides
from advisor.errors import InputError
from advisor.knowledge.verb_files import capture_goals, framework_differences, moe_router
from advisor.model.comparison import FrameworkTable, Metric
from advisor.pipeline import compare as run
from advisor.pipeline.diagnose import diagnose
from advisor.sources.serving.report_numbers import COMPARED
from tests.compare.support import (
    ATTENTION,
    INDEXER,
    LABELLED,
    LINEAR,
    SPARSE,
    committed_diagnosis,
    diagnosed,
    side,
)
from tests.scenarios.machine import DECODE_LAYER, GEMM, GEMV, NORM, PREFILL_ATTENTION, SILU, Kernel, Machine

# --- context ---------------------------------------------------------------------------------


def test_only_attention_grows(tmp_path: Path) -> None:
    short = side("short", diagnosed(tmp_path / "s.sqlite", attention=10.0))
    long = side("long", diagnosed(tmp_path / "l.sqlite", attention=60.0, seed=1))
    found = scaling(short, long, (1, 2049))
    assert found.verdict == "only-attention-scales"
    assert not found.findings
    assert found.operations[0].attention
    assert found.attention_growth_ms == pytest.approx(0.3, rel=0.05)
    assert found.growth_per_1k_ms is not None
    assert found.growth_per_1k_ms.mid == pytest.approx(0.3 / 2.048, rel=0.1)
    assert found.growth_per_1k_ms.low < found.growth_per_1k_ms.mid < found.growth_per_1k_ms.high
    assert "100 % of it by attention" in found.summary or "99 %" in found.summary


def test_growth_by_hand(tmp_path: Path) -> None:
    """Six layers of norm 6, GEMM 40, attention 10, concatenate 4 and add 4 us, 0.2 us between
    kernels, then 10 us of sampling: 400.2 us a step. At the long context attention takes 40 and
    concatenate 20 us a layer: 6 x 46 = 276 us more."""
    same = {"jitter": 0.0, "steps": 20}
    short = diagnosed(tmp_path / "s.sqlite", attention=10.0, cat=4.0, **same)
    long = diagnosed(tmp_path / "l.sqlite", attention=40.0, cat=20.0, **same)
    found = scaling(side("short", short), side("long", long), (1_000, 3_000))
    assert found.step_short_ms == pytest.approx(0.4002)
    assert found.step_long_ms == pytest.approx(0.6762)
    assert found.growth is not None
    assert found.growth.mid == pytest.approx(276 / 400.2)
    assert found.growth_per_1k_ms is not None
    assert found.growth_per_1k_ms.mid == pytest.approx(0.276 / 2)
    assert found.attention_growth_ms == pytest.approx(0.180)
    rows = {o.operation: o for o in found.operations}
    assert rows["concatenate"].growth == pytest.approx(4.0)
    assert rows["concatenate"].step_growth == pytest.approx(96 / 400.2)
    (named,) = found.findings
    assert (named.code, named.scope.operation) == ("CMP102", "concatenate")
    assert named.impact is not None
    assert named.impact.share == pytest.approx(96 / 400.2, rel=0.01)
    assert "65 % of it by attention" in found.summary  # 180 of 276


@pytest.mark.parametrize(("cat", "grows"), [(4.36, False), (4.44, False), (6.0, True)])
def test_small_growth_is_none(tmp_path: Path, cat: float, grows: bool) -> None:
    """A tenth of the operation and 1 % of the step: 4.44 us a layer is 11 % but 0.7 %."""
    short = diagnosed(tmp_path / "s.sqlite", cat=4.0, jitter=0.0)
    long = diagnosed(tmp_path / "l.sqlite", cat=cat, jitter=0.0)
    found = scaling(side("short", short), side("long", long))
    assert any(f.code == "CMP102" for f in found.findings) == grows


def test_a_cache_that_is_copied_grows_too_and_is_named(tmp_path: Path) -> None:
    short = side("short", diagnosed(tmp_path / "s.sqlite", attention=10.0, cat=4.0))
    long = side("long", diagnosed(tmp_path / "l.sqlite", attention=40.0, cat=20.0, seed=1))
    found = scaling(short, long)
    assert found.verdict == "context-scaling"
    (named,) = found.findings
    assert (named.code, named.scope.operation) == ("CMP102", "concatenate")
    assert [a.id for a in named.recommendations] == ["static-kv-cache"]
    assert [o.operation for o in found.operations if o.grows] == ["concatenate"]
    assert found.growth_per_1k_ms is None
    assert any("--tokens" in n for n in found.notes)


def test_products_that_grow_are_attention_in_pieces(tmp_path: Path) -> None:
    short = side("short", diagnosed(tmp_path / "s.sqlite"))
    long = side("long", diagnosed(tmp_path / "l.sqlite", gemm=60.0, seed=1))
    found = scaling(short, long)
    assert [a.id for f in found.findings for a in f.recommendations] == ["attention-backend"]


@pytest.mark.parametrize(
    ("kernel", "cause", "advised"),
    [
        (LINEAR, "context-scaling", "recurrent-decode"),
        (SPARSE, "sparse-attention-grows", "select-tokens"),
        (INDEXER, None, None),
        (ATTENTION, None, None),
    ],
    ids=["linear", "sparse", "indexer", "full"],
)
@pytest.mark.parametrize("longer", [pytest.param(10.0, marks=pytest.mark.slow), 40.0])
def test_attention_that_must_not_grow(
    kernel: str, cause: str | None, advised: str | None, longer: float, tmp_path: Path
) -> None:
    """A state of fixed size and a fixed number of tokens cost the same at any context; what looks at all
    tokens may grow."""
    same = {"attention_name": kernel, "jitter": 0.0}
    short = side("short", diagnosed(tmp_path / "s.sqlite", attention=10.0, **same))
    found = scaling(short, side("long", diagnosed(tmp_path / "l.sqlite", attention=longer, **same)))
    grows = cause if longer > 10 else None
    assert [f.cause for f in found.findings] == ([grows] if grows else [])
    assert {r.id for f in found.findings for r in f.recommendations if r.id == advised} == (
        {advised} if grows else set()
    )
    expected = "no-growth" if longer == 10 else "context-scaling" if cause else "only-attention-scales"
    assert found.verdict == expected


def test_nothing_grows(tmp_path: Path) -> None:
    short = side("short", diagnosed(tmp_path / "s.sqlite"))
    long = side("long", diagnosed(tmp_path / "l.sqlite", seed=1))
    assert scaling(short, long).verdict == "no-growth"


def test_another_batch_is_no_answer(tmp_path: Path) -> None:
    short = side("short", diagnosed(tmp_path / "s.sqlite"))
    long = side("long", diagnosed(tmp_path / "l.sqlite", blocks=2048, attention=90.0, cat=9.0))
    found = scaling(short, long)
    assert found.verdict == "not-comparable"
    assert not found.findings
    assert "batch" in found.summary


def test_longer_prompts_do_not_matter_to_decode_steps(tmp_path: Path) -> None:
    """Prefill takes a larger share of the time with a longer prompt; that is no difference."""
    short = side("short", diagnosed(tmp_path / "s.sqlite", prefills=1))
    long = side("long", diagnosed(tmp_path / "l.sqlite", prefills=20, attention=60.0))
    found = scaling(short, long)
    assert (found.phase, found.verdict) == ("decode", "only-attention-scales")


def test_captures_of_prefill_alone_say_so() -> None:
    one = side("short", committed_diagnosis("prefill8b_bs4"))
    found = scaling(one, one)
    assert found.verdict == "no-growth"
    assert "no decode steps" in found.notes[0]


# --- engines ---------------------------------------------------------------------------------


def metric(found: FrameworkTable, name: str) -> Metric:
    return next(m for m in found.metrics if m.name == name)


def test_engines_side_by_side(tmp_path: Path) -> None:
    fused = side("a", diagnosed(tmp_path / "a.sqlite", graph_mode="node", norm=2.0))
    plain = side("b", diagnosed(tmp_path / "b.sqlite", cat=5.0, routed=False))
    found = table([("fused", fused), ("plain", plain)], {"fused": 3000.0}, {"fused": 1, "plain": 2})
    assert found.phase == "decode"
    assert metric(found, "layers").values == (6.0, 6.0)
    low, high = metric(found, "kernels per layer").values
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert high - low == pytest.approx(1.0)
    assert metric(found, "kernels per token").values[1] == pytest.approx(31 / 2)
    assert metric(found, "kernel time in graphs").values == (1.0, 0.0)
    step = metric(found, "step time").values[0]
    assert isinstance(step, float)
    assert metric(found, "tokens a second in it").values[0] == pytest.approx(1e3 / step)
    assert metric(found, "throughput").values == (3000.0, None)
    told = " ".join(found.differences)
    assert "Launch path: fused runs 100 %" in told
    assert "Batching" in told


def test_names_come_from_the_user_the_kernels_or_the_file(tmp_path: Path) -> None:
    one, two = (side(n, diagnosed(tmp_path / f"{n}.sqlite", seed=i)) for i, n in enumerate("ab"))
    found = table([(None, one), (None, two), ("mine", two)], {}, {})
    assert [c.name for c in found.columns] == ["pytorch", "pytorch-2", "mine"]
    traits = [
        n.partition(". ")[0] for n in table([("TGI", one), ("b", two)], {}, {}).notes if "fusion: " in n
    ]
    assert traits == ["TGI: Text Generation Inference", "b: PyTorch"]  # of the name, else of the kernels
    with pytest.raises(InputError, match="there is no column 'nim'"):
        table([(None, one), (None, two)], {"nim": 30.0}, {})


def test_engines_need_a_phase_in_common() -> None:
    decode, prefill = (committed_diagnosis(n) for n in ("decode_eager_bs1", "prefill8b_bs4"))
    with pytest.raises(InputError, match="no phase of steps in common"):
        table([(None, side("a", decode)), (None, side("b", prefill))], {}, {})
    with pytest.raises(InputError, match="not every capture has prefill"):
        table([(None, side("a", decode)), (None, side("b", decode))], {}, {}, "prefill")


def test_different_models_and_a_throughput_that_cannot_be(tmp_path: Path) -> None:
    one = side("a", diagnosed(tmp_path / "a.sqlite"))
    two = side("b", diagnosed(tmp_path / "b.sqlite", layers=12))
    found = table([("a", one), ("b", two)], {"a": 50_000.0}, {})
    told = " ".join(found.notes)
    assert found.summary.startswith("Not comparable: the models differ; a: 6 layers")
    assert found.differences == ()
    assert "--batch" in told
    assert "a: the given throughput needs" in told


def test_every_difference_is_about_a_metric_of_the_table(tmp_path: Path) -> None:
    one = side("a", diagnosed(tmp_path / "a.sqlite", cat=5.0, gap=50.0))
    whole = side("b", committed_diagnosis("decode_eager_bs1"))  # with a feed-forward network
    found = table([("a", one), ("b", whole)], {"a": 1.0, "b": 1.0}, {"a": 2, "b": 2})
    names = {m.name for m in found.metrics}
    assert {d.metric for d in framework_differences()} - names <= {"exposed copies"}


def test_time_of_the_feed_forward_network(tmp_path: Path) -> None:
    """Norm 2, products 9 and 9, activation 2 us a layer; the other engine needs 18 us for each product."""
    columns = []
    for name, us in (("a", 9), ("b", 18)):
        m = Machine()
        for i in range(12):
            with m.step(f"decode_step {i}"):
                m.replay(20, [*DECODE_LAYER[:5], (GEMV, us), (SILU, 2), (GEMV, us)])
                m.read_back()
        columns.append((name, side(name, diagnose(m.write(tmp_path, f"{name}.sqlite")))))
    found = table(columns, {}, {})
    low, high = metric(found, "FFN time per layer").values
    assert isinstance(low, float)
    assert high == pytest.approx(low + 0.018)
    assert low == pytest.approx(0.021, abs=0.0011)
    assert "Feed-forward network: a takes" in " ".join(found.differences)
    assert metric(found, "attention time per layer").values == pytest.approx((0.004, 0.004))


def test_layers_of_another_phase_say_nothing_of_this_one(tmp_path: Path) -> None:
    """Layers are found in the commonest phase, here the steps that read prompts."""
    m = Machine()
    prompt = [(NORM, 20), (GEMM, 90), (PREFILL_ATTENTION, 60), (GEMM, 80), (NORM, 20), (GEMM, 90), (SILU, 20),
              (GEMM, 90)]  # fmt: skip
    for i in range(20):
        prefill = i % 4 > 0
        with m.step(f"{'prefill' if prefill else 'decode'} {i}"):
            m.layers(12, prompt if prefill else DECODE_LAYER)
            m.read_back()
    both = side("a", diagnose(m.write(tmp_path)))
    for phase, wanted in (("prefill", True), ("decode", False)):
        found = table([("a", both), ("b", both)], {}, {}, phase)
        assert ("FFN time per layer" in {row.name for row in found.metrics}) == wanted


# --- the router experiment -------------------------------------------------------------------

TRTLLM = {
    "engine": {"model": "m", "backend": "Pytorch"},
    "performance": {
        "total_latency_ms": 1000.0,
        "request_throughput_req_s": 2.0,
        "system_output_throughput_tok_s": 5530.7,
        "system_total_throughput_tok_s": 9402.2,
    },
    "streaming_metrics": {"avg_tpot_ms": 12.5},
}
TRTLLM_TEXT = """
===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     43.2089
Total Output Throughput (tokens/sec):             5530.7382
Total Token Throughput (tokens/sec):              94022.5497
Total Latency (ms):                               115716.9214
"""
OLD_TEXT = "Request Throughput (req/sec):   81.6\nToken Throughput (tokens/sec):  5224.2\n"
VLLM = {
    "request_throughput": 1.5,
    "output_throughput": 310.0,
    "total_token_throughput": 610.0,
    "mean_tpot_ms": 9.5,
}
VLLM_TEXT = """
============ Serving Benchmark Result ============
Request throughput (req/s):              2.43
Output token throughput (tok/s):         2425.01
Total Token throughput (tok/s):          4843.81
Mean TPOT (ms):                          70.14
"""
THROUGHPUT = {"elapsed_time": 10.0, "requests_per_second": 3.0, "tokens_per_second": 777.0}
LATENCY = {"avg_latency": 1.25, "latencies": [1.2, 1.3]}
GENAI = {
    "output_token_throughput": {"unit": "tokens/sec", "avg": 261.25},
    "inter_token_latency": {"unit": "ms", "avg": 30.35},
}
GENAI_CSV = (
    "Metric,avg,min,max,p99\r\n"
    'Inter Token Latency (ms),"1,030.35",27.59,35.60,35.23\r\n\r\n'
    "Metric,Value\r\n"
    "Output Token Throughput (per sec),261.25\r\nRequest Throughput (per sec),1.50\r\n"
)


@pytest.mark.parametrize(
    ("text", "metric", "value"),
    [
        (json.dumps(TRTLLM), "output-throughput", 5530.7),
        (TRTLLM_TEXT, "output-throughput", 5530.7382),
        (OLD_TEXT, "output-throughput", 5224.2),
        (json.dumps(VLLM), "output-throughput", 310.0),
        (VLLM_TEXT, "output-throughput", 2425.01),
        (json.dumps(THROUGHPUT), "total-throughput", 777.0),
        (json.dumps(LATENCY), "latency", 1250.0),
        (json.dumps(GENAI), "output-throughput", 261.25),
        (GENAI_CSV, "output-throughput", 261.25),
        ("run,output_throughput\na,410.5\n", "output-throughput", 410.5),
        ("Step ms\n23.05\n", "step-time", 23.05),
        ('{"output_throughput": 5.5}\n', "output-throughput", 5.5),
    ],
)
def test_reports_are_read(tmp_path: Path, text: str, metric: str, value: float) -> None:
    path = tmp_path / "report"
    path.write_text(text)
    learned, _ = read_sides([str(path)], [str(path)], None, None)
    assert learned.metric == metric
    assert learned.values == (pytest.approx(value),)
    assert learned.better_high == (COMPARED[metric].better == "higher")


def test_a_quoted_thousands_comma_is_no_end_of_cell(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text(GENAI_CSV)
    found, _ = read_sides([str(path)], [str(path)], None, "time-per-output-token")
    assert found.values == (1030.35,)


def test_rows_of_a_csv_and_lines_of_json_are_runs(tmp_path: Path) -> None:
    csv, lines = tmp_path / "a.csv", tmp_path / "b.jsonl"
    csv.write_text("run,output throughput\na,100\nb,102\nc,98\n")
    lines.write_text("".join(f'{{"output_throughput": {v}}}\n' for v in (120, 121)))
    learned, perfect = read_sides([str(csv)], [str(lines)], None, None)
    assert learned.values == (100.0, 102.0, 98.0)
    assert perfect.values == (120.0, 121.0)


@pytest.mark.parametrize(
    ("learned", "perfect", "unit", "said"),
    [
        (["23"], ["26"], None, "--unit"),
        (["23"], ["26"], "furlongs", "expected one of"),
        (["-5"], ["26"], "ms", "positive"),
        (["nan"], ["26"], "ms", "positive"),
        (["no-such-file"], ["26"], "ms", "no such file"),
        ([","], ["26"], "ms", "LEARNED: no run"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    learned: list[str], perfect: list[str], unit: str | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read_sides(learned, perfect, unit, None)


def test_sides_without_a_common_metric_say_what_each_has(tmp_path: Path) -> None:
    one, two, bare = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.txt"
    one.write_text(json.dumps(LATENCY))
    two.write_text(json.dumps({"output_throughput": 5}))
    bare.write_text("nothing to see\n")
    with pytest.raises(InputError, match="latency against output-throughput"):
        read_sides([str(one)], [str(two)], None, None)
    with pytest.raises(InputError, match="no throughput or time"):
        read_sides([str(bare)], [str(two)], None, None)
    with pytest.raises(InputError, match="--metric"):
        read_sides([str(one)], [str(two)], None, "speed")


@pytest.mark.parametrize(
    ("learned", "perfect", "unit", "verdict", "certain"),
    [
        (["100"], ["150"], "tok/s", "router-imbalance", True),
        (["100"], ["112"], "tok/s", "router-imbalance", False),
        (["100"], ["109"], "tok/s", "routing-not-the-bottleneck", False),
        (["100", "101", "99"], ["125", "124", "126"], "tok/s", "router-imbalance", True),
        (["100", "101", "99"], ["103", "104", "102"], "tok/s", "routing-not-the-bottleneck", True),
        (["100", "130", "80"], ["125", "124", "126"], "tok/s", "router-imbalance", False),
        (["20"], ["10"], "ms", "router-imbalance", True),
        (["10"], ["20"], "ms", "routing-not-the-bottleneck", True),
        (["10", "10.1"], ["11.2"], "req/s", "router-imbalance", False),
    ],
)
def test_the_verdict_at_ten_per_cent(
    learned: list[str], perfect: list[str], unit: str, verdict: str, certain: bool
) -> None:
    found = experiment(learned, perfect, unit)
    assert (found.verdict, found.certain) == (verdict, certain)
    causes = {f.cause for f in found.findings} | {h.cause for h in found.healthy}
    assert causes == {verdict}
    assert (found.gain_low is None) == (len(learned) + len(perfect) == 2)


@pytest.mark.parametrize(
    ("learned", "perfect"), [(["1"], ["1000"]), (["1e300", "1"], ["1"]), (["5e-324"], ["5e-324"])]
)
def test_runs_a_thousand_times_apart_do_not_measure_the_same(learned: list[str], perfect: list[str]) -> None:
    with pytest.raises(InputError, match="differ by more than a thousand times"):
        experiment(learned, perfect, "ms")


def test_no_interval_reaches_beyond_a_factor_of_a_thousand() -> None:
    found = experiment(["1", "900"], ["450", "460"], "tok/s")
    assert found.gain_high == pytest.approx(1_000 * (1 + found.gain) - 1)


def test_runs_that_agree_by_luck_do_not_make_the_verdict_certain() -> None:
    found = experiment(["100", "100"], ["111"], "tok/s")
    assert found.gain_low is not None
    assert found.gain_low < 0.10 < found.gain
    assert not found.certain


def test_reports_of_other_benchmarks_are_doubted(tmp_path: Path) -> None:
    told = " ".join(experiment(["5530"], ["261"], "tok/s").notes)
    assert "A factor of 21.2" in told
    assert "same benchmark" in told
    assert "A factor" not in " ".join(experiment(["100"], ["140"], "tok/s").notes)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(TRTLLM))
    with pytest.raises(InputError, match="the same report on both sides"):
        experiment([str(path)], [str(path)])
    assert experiment(["100"], ["100"], "tok/s").gain == 0


def test_exactly_ten_per_cent_is_not_more_than_ten() -> None:
    """100 to 110 is 0.10000000000000009 in floats."""
    for learned, perfect in (("100", "110"), ("1000", "1100"), ("70", "77"), ("0.3", "0.33")):
        found = experiment([learned], [perfect], "tok/s")
        assert (found.verdict, found.gain) == ("routing-not-the-bottleneck", 0.1)
    assert experiment(["100"], ["110.1"], "tok/s").verdict == "router-imbalance"


def test_captures_alone_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["moe", "--traces", "a.sqlite", "b.sqlite"]) == 2
    assert "give their reports as well" in capsys.readouterr().err


def test_the_planned_command_gives_reports_and_captures() -> None:
    line = next(c for v in capture_goals().variants for c in v.commands if c.startswith("advisor moe"))
    assert line.split()[2:] == [
        "LEARNED.json",
        "PERFECT.json",
        "--traces",
        "LEARNED.sqlite",
        "PERFECT.sqlite",
    ]


def test_the_labelled_experiment_names_the_loss() -> None:
    want = {"learned_ms": 23.05, "perfect_ms": 26.34, "verdict": "routing-not-the-bottleneck"}
    if (path := LABELLED / "labels.yaml").is_file():
        want = yaml.safe_load(path.read_text())["moe_router_experiment"]
    found = run.router([str(want["learned_ms"])], [str(want["perfect_ms"])], unit="ms")
    assert found.verdict == want["verdict"]
    assert found.gain == pytest.approx(23.05 / 26.34 - 1)
    assert found.certain
    assert "12.5 % lower, a loss" in found.summary


def test_perfect_routing_is_explained_with_every_result() -> None:
    known = moe_router()
    told = " ".join(experiment(["1"], ["2"], "tok/s").notes)
    for model in ("GPT-OSS (RenormalizeMoeRoutingMethod)", "DeepSeekV3MoeRoutingMethod"):
        assert model in told
    assert "CUTLASS, TRTLLM, TRITON" in told
    assert "wrong by design" in told
    assert known.variable in known.commands[1].line


def test_captures_add_tails_and_imbalance(tmp_path: Path) -> None:
    uneven = side("learned", diagnosed(tmp_path / "l.sqlite", routed=True, spread=400))
    even = side("perfect", diagnosed(tmp_path / "p.sqlite", routed=True, spread=1))
    plain = side("perfect", diagnosed(tmp_path / "d.sqlite"))
    found = experiment(["100"], ["130"], "tok/s", traces=(uneven, even))
    learned, perfect = found.experts
    assert learned.imbalance is not None
    assert learned.imbalance > 1.2
    assert learned.kernel == "SiLU"
    assert perfect.imbalance is None
    assert "do not vary" in perfect.note
    assert learned.max_over_p50 is not None
    (dense,) = experiment(["100"], ["130"], "tok/s", traces=(plain,)).experts
    assert dense.note == "no expert kernels are seen"


FLASHINFER = Kernel(
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1>>(Params)"
)
SPLIT_KV = Kernel("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>(params)")


def backends(
    folder: Path, attention: float, other: float, product: float = 1300, batches: tuple[int, int] = (16, 16)
) -> str:
    """What is said of attention where vLLM runs twice, with FlashInfer for 84 us a layer and with split-KV
    FlashAttention for so long, beside two products of a layer."""
    columns = []
    sides = (("flashinfer", FLASHINFER, other, batches[0]), ("flash", SPLIT_KV, attention, batches[1]))
    for name, kernel, us, batch in sides:
        m = Machine()
        for _ in range(8):
            with m.step(f"execute_context_0(0)_generation_{batch}({batch})"):
                m.replay(10, [(GEMV, product), (kernel, us), (GEMV, product)])
                m.read_back()
        columns.append((name, side(name, diagnose(m.write(folder, f"{name}.sqlite")))))
    return " ".join(d for d in table(columns, {}, {}).differences if d.startswith("Attention backend"))


def test_an_attention_backend_that_takes_a_multiple(tmp_path: Path) -> None:
    said = backends(tmp_path, 970, 84)
    assert "84 us in flashinfer (prefill attention (FlashInfer))" in said
    assert "970 us in flash (decode attention (FlashAttention split-KV)), 11.55 times as long" in said
    assert "Try `--attention-backend FLASHINFER` or `--attention-backend TRITON_ATTN` in flash" in said


@pytest.mark.parametrize(
    ("attention", "product", "batches"),
    [
        (150, 1300, (16, 16)),  # less than twice
        (400, 5000, (16, 16)),  # 4 % of the time
        (970, 1300, (16, 48)),  # another load
    ],
)
def test_attention_backends_that_are_no_difference(
    tmp_path: Path, attention: float, product: float, batches: tuple[int, int]
) -> None:
    assert backends(tmp_path, attention, 84, product, batches) == ""
