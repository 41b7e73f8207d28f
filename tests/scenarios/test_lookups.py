"""Rows that a step gathers from many tables: recommenders, and beam search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.scenarios import eager
from tests.scenarios.eager import Eager
from tests.scenarios.machine import DECODE_LAYER, FULL, GEMV, Kernel, Machine
from tests.scenarios.support import diagnosed, fact, ranked, severity

BAG = Kernel(
    "void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float, long>(long)", 132
)
BATCHED = Kernel(
    "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float, float, long, 2ul>(int)"
)
GATHER = Kernel("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)")
SELECT = Kernel(
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2>(int)"
)
GRADIENT = Kernel(
    "void at::native::(anonymous namespace)::compute_grad_weight_bags<c10::BFloat16, long>(long const*)", 132
)
RELU = eager.vector("at::native::relu_kernel")
FORMS = pytest.mark.parametrize("nsys", [False, True], ids=["pytorch", "nsys"])


def recommender(tables: int, lookup: Kernel, us: float, *, nsys: bool, gradients: bool = False) -> Eager:
    """Products for the dense features, a lookup in each table, and products for all of them."""
    p = Eager(nsys=nsys, host=5)
    for _ in range(12):
        with p.step():
            for _ in range(3):
                p.op("aten::addmm", eager.GEMM, 12)
                p.op("aten::relu", RELU, 4)
            for _ in range(tables):
                p.op("aten::_embedding_bag", lookup, us)
            p.op("aten::cat", eager.CAT, 10)
            for _ in range(4):
                p.op("aten::addmm", eager.GEMM, 20)
                p.op("aten::relu", RELU, 5)
            if gradients:
                for _ in range(4):
                    p.op("aten::mm", eager.GEMM, 20)
                for _ in range(tables):
                    p.op("aten::_embedding_bag_dense_backward", GRADIENT, us)
            p.wait()
    return p


def written(p: Eager, folder: Path) -> Diagnosis:
    return advisor.diagnose(p.write(folder))


@FORMS
@pytest.mark.parametrize("lookup", [BAG, GATHER])
def test_one_kernel_for_each_embedding_table(lookup: Kernel, nsys: bool, tmp_path: Path) -> None:
    d = written(recommender(64, lookup, 6, nsys=nsys), tmp_path)
    assert ranked(d)[0] == "unbatched-embeddings"
    assert fact(d, "embedding.lookups_per_step") == 64
    (found,) = (f for f in d.findings if f.cause == "unbatched-embeddings")
    assert found.severity == "high"
    assert found.recommendations[0].id == "batched-embeddings"
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    # Half of the lookups' time stays beside 36 + 12 + 10 + 100 us.
    assert found.gain.step_after_ms.mid == pytest.approx(0.158 + 0.192, rel=0.05)


@FORMS
def test_gradients_of_tables_count_too(nsys: bool, tmp_path: Path) -> None:
    d = written(recommender(26, BAG, 12, nsys=nsys, gradients=True), tmp_path)
    assert ranked(d)[0] == "unbatched-embeddings"
    assert fact(d, "embedding.lookups_per_step") == 52


@FORMS
@pytest.mark.parametrize(("tables", "lookup"), [(1, BATCHED), (7, BAG)])
def test_a_batched_lookup_and_few_tables(tables: int, lookup: Kernel, nsys: bool, tmp_path: Path) -> None:
    d = written(recommender(tables, lookup, 30, nsys=nsys), tmp_path)
    assert severity(d, "unbatched-embeddings") is None
    assert fact(d, "embedding.lookups_per_step") == 0


def beams(after: Callable[[Machine], None]) -> Machine:
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(24, [(kernel, 2 * us) for kernel, us in DECODE_LAYER])
            m.launch(GEMV, 40)
            after(m)
            m.wait()
    return m


@pytest.mark.parametrize("gather", [GATHER, SELECT])
def test_caches_are_gathered_in_the_order_of_the_beams(gather: Kernel, tmp_path: Path) -> None:
    d = diagnosed(beams(lambda m: m.layers(48, [(gather, 40)])), tmp_path)
    assert ranked(d)[0] == "cache-reordering"
    assert severity(d, "cache-reordering") == "high"
    assert severity(d, "unbatched-embeddings") is None
    assert severity(d, "slow-sampling") is None  # they are no logits, though behind the last product
    (found,) = (f for f in d.findings if f.cause == "cache-reordering")
    assert found.gain is not None
    assert found.gain.step_after_ms is not None
    assert found.gain.step_after_ms.mid == pytest.approx(24 * 0.078 + 0.04, rel=0.05)


@pytest.mark.parametrize(("count", "us"), [(48, 2), (7, 40)])
def test_gathers_of_rows_and_of_few_caches(count: int, us: float, tmp_path: Path) -> None:
    d = diagnosed(beams(lambda m: m.layers(count, [(Kernel(GATHER.name, FULL), us)])), tmp_path)
    assert fact(d, "kernel.cache_reorder_window_ratio") == 0
