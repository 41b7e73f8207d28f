"""Layers of a model inside its steps: found by modules, ranges, or the order of the kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.metrics.stats.reports import make_report
from advisor.model.facts import FactBase, Scope
from advisor.reports.html import report as html
from advisor.reports.stats_tables import report
from advisor.sources.open import open_trace
from tests.facts.test_values import expect_values
from tests.kineto_builder import Profile
from tests.scenarios.machine import (
    ADD,
    DECODE_ATTENTION,
    DECODE_LAYER,
    GEMV,
    MUL,
    NORM,
    SILU,
    Kernel,
    Machine,
)

US = 1_000
DEVICE = Scope(device=0)
JOIN = Kernel(
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, int, 3, 64, 64>(T)"
)
WRITE = Kernel("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, 0>(T)")
MLA = Kernel("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>, true>(T)")
INDEXER = Kernel("void deep_gemm::sm90_fp8_paged_mqa_logits<1, 32, 128, 64>(T)")


def facts(path: Path) -> FactBase:
    with open_trace(path) as trace:
        return build_facts(measure(trace))


def decode(layer: tuple[tuple[Kernel, float], ...] = DECODE_LAYER, layers: int = 4) -> Machine:
    """Six steps: an embedding of 3 us, the layers as a CUDA graph, a head of 30 us."""
    m = Machine()
    for i in range(6):
        with m.step(f"decode_step {i}"):
            m.launch(ADD, 3)
            m.replay(layers, layer)
            m.launch(NORM, 2)
            m.launch(GEMV, 30)
            m.wait()
    return m


def test_the_order_of_the_kernels_shows_layers_of_a_graph(tmp_path: Path) -> None:
    base = facts(decode().write(tmp_path))
    expect_values(
        base,
        {
            "layer.count": 4,
            "layer.source": "order of the kernels",
            "layer.time_ns": 39_000.0,
            "layer.attention_ns": 15_000.0,
            "layer.ffn_ns": 20_000.0,
            "layer.norm_ratio": 6 / 39,
            "layer.cache_join_ratio": 0.0,
        },
    )
    rows = base.table("layers.parts", DEVICE).rows  # type: ignore[union-attr]
    assert rows[0][0] == "ffn"
    assert sum(float(r[4]) for r in rows) == pytest.approx(1.0)  # type: ignore[arg-type]


def test_the_up_projection_may_follow_the_activation(tmp_path: Path) -> None:
    """Gate, SiLU, up, multiply, down: the network ends with the last product before the norm."""
    layer = (*DECODE_LAYER[:5], (GEMV, 9), (SILU, 2), (GEMV, 9), (MUL, 2), (GEMV, 9))
    base = facts(decode(layer).write(tmp_path))
    expect_values(base, {"layer.attention_ns": 15_000.0, "layer.ffn_ns": 31_000.0, "layer.count": 4})


@pytest.mark.parametrize(
    ("between", "share"),
    [
        pytest.param(((JOIN, 2), (JOIN, 2)), 4 / 43, id="cache that grows"),
        pytest.param(((JOIN, 2), (MUL, 2)), 0.0, id="halves of a rotation"),
        pytest.param(((JOIN, 2), (WRITE, 2)), 0.0, id="paged cache"),
        pytest.param(((WRITE, 2), (JOIN, 2)), 0.0, id="halves of a head beside a paged cache"),
    ],
)
def test_concatenation_before_attention_appends_to_the_cache(
    tmp_path: Path, between: tuple[tuple[Kernel, float], ...], share: float
) -> None:
    base = facts(decode((*DECODE_LAYER[:2], *between, *DECODE_LAYER[2:])).write(tmp_path))
    expect_values(base, {"layer.cache_join_ratio": share, "layer.attention_ns": 19_000.0})
    named = {r[1] for r in base.table("layers.parts", DEVICE).rows}  # type: ignore[union-attr]
    assert ("KV cache append by concatenation" in named) == bool(share)
    assert ("KV cache write (vLLM)" in named) == (WRITE in dict(between))


def test_numbered_ranges_show_layers_and_parts(tmp_path: Path) -> None:
    """The norm lies in neither part; kernels of an order that says nothing are placed by their ranges."""
    m = Machine()
    for i in range(6):
        with m.step(f"decode_step {i}"):
            for n in range(4):
                begin = m.now
                m.launch(NORM, 4)
                for part, kernels in (("attn", ((GEMV, 8), (DECODE_ATTENTION, 7))), ("mlp", ((GEMV, 20),))):
                    inner = m.now
                    for kernel, us in kernels:
                        m.launch(kernel, us)
                    m.export.range(f"model.layers.{n}.{part}", int(inner * US), int(m.now * US))
                m.export.range(f"model.layers.{n}", int(begin * US), int(m.now * US))
            m.wait()
    wanted = {"layer.count": 4, "layer.attention_ns": 15_000.0, "layer.ffn_ns": 20_000.0}
    expect_values(facts(m.write(tmp_path)), {**wanted, "layer.norm_ratio": 4 / 39, "layer.source": "ranges"})


def test_ranges_without_a_number_are_counted_in_each_step(tmp_path: Path) -> None:
    m = Machine()
    for i in range(6):
        with m.step(f"decode_step {i}"):
            for _ in range(4):
                for part, kernels in (("attn", ((GEMV, 8), (DECODE_ATTENTION, 7))), ("mlp", ((GEMV, 20),))):
                    begin = m.now
                    for kernel, us in kernels:
                        m.launch(kernel, us)
                    m.export.range(part, int(begin * US), int(m.now * US))
            m.launch(GEMV, 30)
            m.wait()
    wanted = {"layer.count": 4, "layer.attention_ns": 15_000.0, "layer.ffn_ns": 20_000.0}
    expect_values(facts(m.write(tmp_path)), {**wanted, "layer.source": "ranges"})


def test_latent_attention_has_two_products_behind_it_and_an_indexer_before(tmp_path: Path) -> None:
    """MLA: what leaves the latent space, and the output; sparse attention scores the tokens first."""
    layer = (
        (NORM, 2), (GEMV, 6), (INDEXER, 3), (GEMV, 4), (JOIN, 2), (MLA, 4), (GEMV, 3), (GEMV, 5),
        (NORM, 2), (GEMV, 9), (SILU, 2), (GEMV, 9),
    )  # fmt: skip
    base = facts(decode(layer).write(tmp_path))
    wanted = {"layer.count": 4, "layer.attention_ns": 27_000.0, "layer.ffn_ns": 20_000.0}
    expect_values(base, wanted)


NETWORK = ((GEMV, 9), (SILU, 2))


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(((GEMV, 6), (DECODE_ATTENTION, 4), (GEMV, 5), *NETWORK), id="network last"),
        pytest.param(((GEMV, 6), *NETWORK, (DECODE_ATTENTION, 4), (GEMV, 5)), id="network first"),
    ],
)
def test_attention_and_network_may_read_one_input(
    tmp_path: Path, layer: tuple[tuple[Kernel, float], ...]
) -> None:
    base = facts(decode(((NORM, 2), *layer, (GEMV, 9))).write(tmp_path))
    expect_values(base, {"layer.count": 4, "layer.attention_ns": 15_000.0, "layer.ffn_ns": 20_000.0})


def test_modules_of_one_class_are_layers(tmp_path: Path) -> None:
    """Also where PyTorch recorded one forward pass, which makes no steps."""
    p = Profile().gpu(name="NVIDIA H200", sms=132).process(100)
    at = 0
    p.python("nn.Module: Model_0", 0, 500 * US)
    for n in range(4):
        p.python(f"nn.Module: DecoderLayer_{n}", at, 100 * US)
        for k, (name, kernels) in enumerate(
            (
                ("RMSNorm", ((NORM, 4),)),
                ("Attention", ((GEMV, 8), (DECODE_ATTENTION, 7))),
                ("MLP", ((GEMV, 20),)),
            )
        ):
            begin = at + k * 30 * US
            p.python(f"nn.Module: {name}_{n}", begin, 29 * US)
            for j, (kernel, us) in enumerate(kernels):
                p.launch(begin + j * 9 * US, 5 * US, kernel.name, begin + j * 9 * US + 6 * US, int(us * US))
        at += 100 * US
    path = p.write(tmp_path / "trace.json.gz")
    wanted = {"layer.count": 4, "layer.attention_ns": 15_000.0, "layer.ffn_ns": 20_000.0}
    expect_values(facts(path), {**wanted, "layer.source": "Python modules"})
    with open_trace(path) as trace:
        frame = make_report(measure(trace), "layers").frame
        modules = make_report(measure(trace), "modules")
    assert frame["Total (ns)"].tolist() == [39_000.0] * 4
    assert frame["FFN (ns)"].tolist() == [20_000.0] * 4
    page = html.document(report("t", [modules])).decode()
    assert re.findall(r'heading">(\w+)', page)[:3] == ["Model_0", "DecoderLayer_0", "MLP_0"]
    assert "<small>total us</small> 156.0" in page


def test_two_layers_are_none_and_the_reason_says_what_would_show_them(tmp_path: Path) -> None:
    base = facts(decode(layers=2).write(tmp_path))
    assert base.value("layer.count", DEVICE) is None
    assert "layers with attention" in base.missing["layer.norm_ratio"]
