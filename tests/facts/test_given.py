"""How many bytes of weights a step reads, as the user says, and what follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.metrics.budgeted.matmuls import Decoder
from advisor.model.findings import Diagnosis
from advisor.model.options import Options
from advisor.pipeline.diagnose import diagnose, opened
from advisor.pipeline.given import given_step_ns, given_weights, parse_weights
from advisor.reports.diagnosis_blocks import TextOptions
from tests.reports.fixture import plain
from tests.scenarios.machine import DECODE_ATTENTION, GEMV, NORM, SILU, Machine
from tests.scenarios.support import fact

#: Llama 3 8B: 7.5 billion weights in layers and output head.
LLAMA = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}  # fmt: skip
PARAMETERS = 32 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 14336) + 4096 * 128256


@pytest.mark.parametrize(
    ("text", "size"),
    [("16e9", 16e9), ("15GB", 15e9), ("2.5 GiB", 2.5 * 2**30), ("700m", 7e8), ("1234", 1234)],
)
def test_a_number(text: str, size: float) -> None:
    assert parse_weights(text) == size


@pytest.mark.parametrize(
    ("more", "each"),
    [
        ({}, 2.0),
        ({"torch_dtype": "float32"}, 4.0),
        ({"torch_dtype": None, "dtype": "float16", "head_dim": None}, 2.0),
        ({"quantization_config": {"quant_method": "fp8"}}, 1.0),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, 0.5),
        ({"num_local_experts": 1}, 2.0),
    ],
)
def test_a_config(tmp_path: Path, more: dict[str, Any], each: float) -> None:
    path = tmp_path / "config.json"
    for config in ({**LLAMA, **more}, {"text_config": {**LLAMA, **more}}):
        path.write_text(json.dumps(config))
        assert parse_weights(str(path)) == PARAMETERS * each


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "invalid size"),
        ("many", "neither a size"),
        ("[1]", "does not give the bytes"),
        ("{}", "it has no hidden_size"),
        (json.dumps({**LLAMA, "num_local_experts": 8}), "8 experts"),
        (json.dumps({**LLAMA, "quantization_config": {"quant_method": "odd"}}), "by odd"),
    ],
)
def test_what_tells_no_size_is_refused(tmp_path: Path, text: str, said: str) -> None:
    if text[0] in "[{":
        path = tmp_path / "config.json"
        path.write_text(text)
        text = str(path)
    with pytest.raises(InputError, match=said) as refused:
        parse_weights(text)
    assert "\n" not in str(refused.value)


#: A step of 22 layers reads its weights in 240 us a layer: 25.3 GB at the 4.8 TB/s of an H200.
LAYER = [(NORM, 3), (GEMV, 50), (DECODE_ATTENTION, 10), (GEMV, 40), (NORM, 3), (GEMV, 90),
         (SILU, 4), (GEMV, 60)]  # fmt: skip
PEAK = 22 * 240e-6 * 4.8e12


def decoded(folder: Path, options: Options | None = None, name: str = "decode_step {}") -> Diagnosis:
    m = Machine()
    for i in range(12):
        with m.step(name.format(i)):
            m.replay(22, LAYER)
    return diagnose(m.export.write(folder / "trace.sqlite"), options)


def of_weights(size: float, folder: Path) -> Diagnosis:
    return decoded(folder, Options(weight_bytes=str(int(size))))


@pytest.mark.parametrize(
    ("share", "cause"), [(0.86, "gemv-at-limit"), (0.75, None), (0.55, "gemv-headroom"), (1.3, None)]
)
def test_weights_in_place_of_samples(tmp_path: Path, share: float, cause: str | None) -> None:
    d = of_weights(share * PEAK, tmp_path)
    told = {f.cause for f in d.findings} | {s.cause for f in d.findings for s in f.explains}
    found = told & {"gemv-at-limit", "gemv-headroom"}
    assert found == ({cause} if cause else set())
    if share <= 1:
        efficiency = next(f for f in d.facts if f.name == "phase.gemm_dram_ratio")
        assert efficiency.value == pytest.approx(share, rel=0.01)
        assert "samples" not in efficiency.tables
    else:  # memory cannot be that fast: the size is wrong, and nothing is said by it
        assert fact(d, "bandwidth.weights_ratio") is None
        missing = next(n for n in d.not_evaluated if n.cause == "gemv-at-limit")
        assert "phase.gemm_dram_ratio" in missing.missing


def test_weights_at_memory_speed_are_memory_bound(tmp_path: Path) -> None:
    d = of_weights(0.86 * PEAK, tmp_path)
    (found,) = (f for f in d.findings if f.cause == "memory-bandwidth-bound")
    assert "gemv-at-limit" in {s.cause for s in found.explains}
    assert "gemv-at-limit" not in {f.cause for f in d.findings}
    assert "given weights" in found.message
    assert "(unknown)" not in found.message
    assert found.severity == "high"


def test_slow_products_are_more_than_a_remark(tmp_path: Path) -> None:
    (found,) = (f for f in of_weights(0.55 * PEAK, tmp_path).findings if f.cause == "gemv-headroom")
    assert found.severity == "high"
    assert found.gain is not None
    assert found.gain.what_if == "faster_products"
    assert found.ranking is not None
    # 240 of 263 us a layer are products; at 80 % of the peak 55 / 80 of that stays.
    assert found.ranking.saved == pytest.approx(240 / 263 * 25 / 80, abs=0.02)


def test_without_weights_the_verdict_prints_the_call_that_gives_them(tmp_path: Path) -> None:
    d = decoded(tmp_path)
    call = f"advisor {tmp_path / 'trace.sqlite'} --weight-bytes N|config.json"
    assert d.verdict.endswith(f": {call}")
    (tmp_path / "given").mkdir()
    assert "--weight-bytes" not in of_weights(0.86 * PEAK, tmp_path / "given").verdict


def test_what_the_steps_deliver(tmp_path: Path) -> None:
    """Each step takes its kernels and the gaps between them: 22 layers of 263 us, at batch 16."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    d = decoded(tmp_path, Options(weight_bytes=str(config)), "step[DECODE bs=16]")
    (source,) = d.inputs
    step = d.steps[0].mean_ms / 1e3
    assert source.tokens_per_s == pytest.approx(16 / step)
    assert source.model_bandwidth_ratio == pytest.approx(2 * PARAMETERS / step / 4.8e12, rel=1e-3)
    assert source.model_flop_ratio == pytest.approx(2 * PARAMETERS * 16 / step / 989e12, rel=1e-2)
    assert fact(d, "serving.tokens_per_s") == source.tokens_per_s
    assert source.window_ms is not None
    written = 16 * d.steps[0].count / (source.window_ms / 1e3)
    assert source.written_tokens_per_s == pytest.approx(written)
    assert fact(d, "serving.written_tokens_per_s") == source.written_tokens_per_s
    assert fact(d, "serving.prompt_tokens_per_s") == source.prompt_tokens_per_s == 0
    assert fact(d, "serving.model_bandwidth_ratio") == source.model_bandwidth_ratio
    assert fact(d, "serving.model_flop_ratio") == source.model_flop_ratio
    (line,) = [x for x in plain(d, TextOptions()).splitlines() if x.startswith("  delivers")]
    assert "tokens/s, over the window (profiled), model-bandwidth" in line


def served(folder: Path, batches: list[int], buckets: list[int]) -> Diagnosis:
    """Decode steps of these batches, each replaying the smallest graph that holds it; the tile of
    the products tells the graph."""
    m = Machine()
    for batch in batches * 3:
        bucket = next(b for b in buckets if b >= batch)
        layer = [(k._replace(name=k.name.replace("tst_64x8", f"tst_64x{bucket}")), us) for k, us in LAYER]
        with m.step(f"step[DECODE bs={batch}]"):
            m.replay(22, layer)
    return diagnose(m.export.write(folder / "trace.sqlite"))


def test_batches_that_are_padded_to_a_graph(tmp_path: Path) -> None:
    """Steps of 5 and 8 replay the graph for 8, those of 9 and 16 the one for 16."""
    d = served(tmp_path, [5, 8, 9, 16], [8, 16])
    # 3 and 7 of 48 sequences; the first step and what comes with it are outside the window.
    assert fact(d, "graph.padded_ratio") == pytest.approx(10 / 48, abs=0.02)
    assert fact(d, "graph.padded_window_ratio") == pytest.approx(10 / 48, abs=0.05)
    (found,) = (f for f in d.findings if f.cause == "graph-bucket-padding")
    rows = found.evidence[0].rows
    assert [row[:2] for row in rows] == [(8, 5), (8, 8), (16, 9), (16, 16)]


def test_a_graph_for_each_batch_pads_nothing(tmp_path: Path) -> None:
    d = served(tmp_path, [5, 8, 9, 16], [5, 8, 9, 16])
    assert fact(d, "graph.padded_ratio") is None
    assert "graph-bucket-padding" not in {f.cause for f in d.findings}


def test_nothing_is_delivered_that_no_name_tells(tmp_path: Path) -> None:
    d = decoded(tmp_path)
    (source,) = d.inputs
    assert (source.tokens_per_s, source.model_bandwidth_ratio, source.model_flop_ratio) == (None,) * 3
    assert "delivers" not in plain(d, TextOptions())


#: A layer of the config above by its four products, and its output head: us.
PRODUCTS = [(GEMV, 13), (DECODE_ATTENTION, 5), (GEMV, 12), (GEMV, 61), (SILU, 2), (GEMV, 31)]
HEAD = [(GEMV, 274)]


@pytest.mark.parametrize("layers", [4, 5])
def test_each_product_is_measured_by_its_own_weights(tmp_path: Path, layers: int) -> None:
    """The steps run four layers. With a config of five their products are not those of the model."""
    m = Machine()
    for i in range(8):
        with m.step(f"decode_step {i}"):
            m.replay(4, PRODUCTS)
            m.replay(1, HEAD)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**LLAMA, "num_hidden_layers": layers}))
    d = diagnose(m.export.write(tmp_path / "trace.sqlite"), Options(weight_bytes=str(config)))
    found = [f for f in d.findings if f.cause == "gemv-headroom"]
    if layers == 5:
        assert found == []
        assert fact(d, "phase.slowest_product_ratio") == fact(d, "phase.gemm_dram_ratio")
        return
    assert fact(d, "phase.slowest_product") == "attention output"
    assert fact(d, "kernel.joined_products") is True
    assert "fuse-projections" not in [r.id for r in found[0].recommendations]  # they are joined
    slowest = 2 * 4096 * 4096 / 12e-6 / 4.8e12
    assert fact(d, "phase.slowest_product_ratio") == pytest.approx(slowest)
    rates = {
        row[0]: (row[1], row[4])
        for row in next(t for t in found[0].evidence if "config.json" in t.title).rows
    }
    assert list(rates) == ["query, key and value", "attention output", "gate and up", "down", "output head"]
    assert rates["down"] == (2 * 4096 * 14336, pytest.approx(2 * 4096 * 14336 / 31e-6 / 4.8e12))
    window = fact(d, "phase.gemm_window_ratio")
    assert isinstance(window, float)
    times = {
        "query, key and value": 52,
        "attention output": 48,
        "gate and up": 244,
        "down": 124,
        "output head": 274,
    }
    spare = sum(times[n] * max(1 - rate / 0.92, 0) for n, (_, rate) in rates.items()) / sum(times.values())
    assert fact(d, "phase.product_headroom_window_ratio") == pytest.approx(window * spare)


@pytest.mark.parametrize(
    ("count", "names"),
    [(33 * 4 - 3, 5), (32 * 5 + 1, 6), (32 * 6 + 1, 7), (32 * 7 + 1, 8), (32 * 4, 0), (32 * 8 + 1, 0)],
)
def test_products_joined_or_apart(count: int, names: int) -> None:
    llama = Decoder(32, 4096, 4096, 1024, 14336, 128256, 2.0)
    products = llama.products(count)
    assert len(products) == names
    assert not products or sum(p for _, p in products[:-1]) * 32 + products[-1][1] == llama.parameters


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "1e308", "1e9", "fast", ""])
def test_what_is_no_time_of_a_step_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a time in milliseconds"):
        given_step_ns(text)
    assert given_step_ns("9.92ms") == 9.92e6


def test_an_empty_size_of_weights_is_no_size() -> None:
    assert given_weights(None) is None
    with pytest.raises(InputError, match="'' is neither a size"):
        given_weights("")


def test_the_begin_of_a_log_needs_the_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="add --gpu-metrics FILE"):
        opened(tmp_path / "a.sqlite", Options(gpu_metrics_offset="1s"))
