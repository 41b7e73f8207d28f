"""Quantiles, launch path and activity, on tables small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.knowledge.files import KernelFamily
from advisor.metrics.loaded.kernels import (
    base_name,
    composition,
    dense,
    distribution,
    extremes,
    is_helper,
    is_simt_fp32,
    is_tf32,
    kernel_rows,
    nth_alike,
    shorten,
    weight_bits,
    weighted_median,
    worked,
)
from advisor.metrics.loaded.operations import Kind, contexts, join, times_of
from advisor.metrics.profiled.activity import bounded_least_squares
from advisor.model.arrays import ordered
from tests.builder import Export
from tests.metrics.support import analysis

US = 1_000


def test_quantiles_are_nearest_rank_and_the_median_is_interpolated() -> None:
    d = distribution(np.zeros(4, np.int64), np.array([40, 10, 20, 30]), 1)
    assert d.p50[0] == 25
    assert d.p95[0] == d.p99[0] == d.maximum[0] == 40
    assert d.minimum[0] == 10
    assert d.total[0] == 100


def test_the_tail_score_adds_up_what_lies_above_the_median() -> None:
    d = distribution(np.zeros(5, np.int64), np.array([10, 10, 10, 15, 60]), 1)
    assert d.tail[0] == 5 + 50


@pytest.mark.parametrize("longest", [2**26, 2**30 - 1])
@pytest.mark.parametrize("of", [np.int32, np.int64])
def test_quantiles_of_lengths_in_32_bits_are_the_same(longest: int, of: type[Any]) -> None:
    group, values = np.array([0, 1, 1, 0], of), np.array([longest, 5, longest - 1, 3])
    d = distribution(group, values.astype(np.int32), 2)
    assert d.maximum.tolist() == [longest, longest - 1]
    assert d.total.tolist() == [longest + 3, longest + 4]
    assert d.minimum.tolist() == [3, 5]


@pytest.mark.parametrize("longest", [2**30 - 1, 2**30, 2**31, 2**33])
def test_long_kernels_keep_their_length(tmp_path: Path, longest: int) -> None:
    export = Export()
    for i in range(3):
        export.launch(i * (longest + 20_000), kernel_dur=longest)
    found = analysis(export, tmp_path)
    assert found.ops.length.tolist() == [longest] * 3
    assert found.kernels(0).length.sum() == 3 * longest
    assert int(found.ops.length[0] + found.ops.length[1]) == 2 * longest


@pytest.mark.parametrize("wanted", ["kernels", "first and last", "all", "copies"])
def test_times_of_some_operations(tmp_path: Path, wanted: str) -> None:
    """Kernels with copies between are views of their own table; others are gathered, or whole columns."""
    export = Export()
    for i in range(4):
        export.launch(i * 100_000).copy(i * 100_000 + 50_000)
    found = analysis(export, tmp_path)
    ops, kernels = found.ops, found.trace.columns("kernels", ("start", "end"))
    kernel = ops.kind == Kind.KERNEL
    ends = np.isin(ops.row, (0, 3)) & kernel
    mask = {"kernels": kernel, "first and last": ends, "all": ops.kind >= 0, "copies": ~kernel}[wanted]
    start, end = times_of(found.trace, ops, mask)
    assert (start.tolist(), end.tolist()) == (ops.start[mask].tolist(), ops.end[mask].tolist())
    assert np.shares_memory(start, kernels["start"]) is (wanted == "kernels")
    assert np.shares_memory(start, ops.start) is (wanted == "all")


@pytest.mark.parametrize("context", [1, 2**30, 2**40])
def test_contexts_keep_their_number(tmp_path: Path, context: int) -> None:
    export = Export().launch(1_000, contextId=context).launch(50_000, contextId=context + 1)
    export.copy(90_000)
    found = analysis(export, tmp_path)
    assert contexts(found.trace, found.ops)[:2].tolist() == [context, context + 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 10**6)), min_size=1, max_size=60))
def test_distribution_agrees_with_numpy(rows: list[tuple[int, int]]) -> None:
    group = np.array([g for g, _ in rows], np.int64)
    value = np.array([v for _, v in rows], np.int64)
    d = distribution(group, value, 4)
    for g in range(4):
        mine = value[group == g]
        assert d.count[g] == len(mine)
        if len(mine):
            assert d.p50[g] == np.median(mine)
            assert d.total[g] == mine.sum()
            assert d.tail[g] == np.maximum(mine - np.median(mine), 0).sum()
            assert d.p99[g] == np.percentile(mine, 99, method="inverted_cdf")


def test_durations_beyond_eighteen_minutes_do_not_break_the_sort() -> None:
    d = distribution(np.array([0, 0, 1]), np.array([1 << 41, 5, 7]), 2)
    assert d.maximum.tolist() == [1 << 41, 7]


few = st.integers(0, 2)


@given(st.lists(st.tuples(few, few, few, st.integers(-9, 2**17)), min_size=1, max_size=40), st.booleans())
def test_rows_are_ordered_as_by_a_lexsort(rows: list[tuple[int, ...]], in_order: bool) -> None:
    keys = np.array(sorted(rows, key=lambda r: r[::-1]) if in_order else rows, np.int64).T
    assert ordered(*keys).tolist() == np.lexsort(keys).tolist()
    keys[1] = 7
    assert ordered(*keys).tolist() == np.lexsort(keys).tolist()


@given(st.lists(st.integers(-(10**7), 10**7), max_size=40))
def test_dense_numbers_values_in_order(values: list[int]) -> None:
    keys, index = dense(np.array(values, np.int64))
    assert keys.tolist() == sorted(set(values))
    assert keys[index].tolist() == values


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
@example([2**64 - 1, 2**64 - 3])
def test_dense_takes_keys_of_64_bits(values: list[int]) -> None:
    keys, index = dense(np.array(values, np.uint64))
    assert keys.tolist() == sorted(set(values))
    assert keys[index].tolist() == values


@pytest.mark.parametrize("kinds", [2, 60_000])
def test_dense_keeps_keys_apart_that_share_a_slot(kinds: int) -> None:
    known = np.random.default_rng(1).integers(-(2**62), 2**62, kinds)  # on 262,144 slots
    values = np.resize(known, 60_000)
    keys, index = dense(values)
    assert keys.tolist() == sorted(set(values.tolist()))
    assert (keys[index] == values).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 10**6)), max_size=40))
def test_extremes_of_each_group(rows: list[tuple[int, int]]) -> None:
    group, values = np.array(rows, np.int64).reshape(-1, 2).T
    least, most = extremes(group, values, 4)
    for g in range(4):
        mine = [v for of, v in rows if of == g]
        assert least[g] == min(mine, default=2**63 - 1)
        assert most[g] == max([0, *mine])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_rows_are_counted_among_their_like(rows: list[tuple[int, int]]) -> None:
    """One column up and another down is a row of another kind: (1, 0) and (0, 1)."""
    columns = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    assert nth_alike(*columns).tolist() == [rows[:i].count(row) for i, row in enumerate(rows)]


@given(
    st.lists(st.integers(0, 50), max_size=30, unique=True),
    st.lists(st.integers(0, 60), max_size=30),
    st.sampled_from([1, 10**12]),
)
def test_join_finds_each_key_by_table_and_by_sorting(keys: list[int], wanted: list[int], scale: int) -> None:
    found = join(np.array(keys, np.int64) * scale, np.array(wanted, np.int64) * scale)
    assert found.tolist() == [keys.index(w) if w in keys else -1 for w in wanted]


def test_bounded_least_squares_recovers_a_mixture() -> None:
    rng = np.random.default_rng(1)
    share = rng.dirichlet((2, 1, 1), size=500)
    truth = np.array([0.9, 0.1, 0.5])
    x = bounded_least_squares(share.T @ share, share.T @ (share @ truth))
    assert x == pytest.approx(truth, abs=1e-4)


def test_bounded_least_squares_stays_within_its_bounds() -> None:
    design = np.array([[1.0, 0.0], [0.0, 1.0]])
    x = bounded_least_squares(design, np.array([-3.0, 7.0]))
    assert x.tolist() == [0.0, 1.0]


def test_a_device_with_a_hundredth_of_the_work_of_the_busiest_is_judged() -> None:
    device, time = np.array([0, 1, 0, 2, 3]), np.array([600, 10, 400, 9, 0])
    assert worked(device, time) == [0, 1]
    assert worked(device[:0], time[:0]) == []


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("void ns::k<a<b, 3>(c), d>(e<f>, int)", "ns::k"),
        ("k", "k"),
        ("void k<unbalanced<a>", "k"),
        ("<a>(b)", "<a>(b)"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_what_its_function_is_called(name: str, base: str) -> None:
    assert base_name(name) == base


def test_what_a_matrix_kernel_computes_in() -> None:
    def kernel(family: Any, operation: str = "gemm", **traits: str | bool) -> KernelFamily:
        return KernelFamily(family, operation, None, None, traits)

    assert is_simt_fp32(kernel("gemm", simt_fp32=True))
    assert not is_simt_fp32(kernel("elementwise", simt_fp32=True))
    assert not is_simt_fp32(kernel("gemm"))
    assert is_tf32(kernel("gemm", precision="tf32"))
    assert not is_tf32(kernel("elementwise", precision="tf32"))
    assert is_helper(kernel("gemm", "split-K reduction"))
    assert is_helper(kernel("attention", "combine"))
    assert not is_helper(kernel("elementwise", "split-K reduction"))
    assert not is_helper(kernel("gemm"))
    bits = [weight_bits(kernel("gemm", **t)) for t in ({}, {"precision": "fp8"}, {"quantised": True})]
    assert bits == [16, 8, 4]


def test_names_are_cut_in_the_middle() -> None:
    assert shorten("abcdefghij", 10) == "abcdefghij"
    cut = shorten("elementwise_kernel_with_a_long_tail", 15)
    assert len(cut) == 15
    assert cut.startswith("element")
    assert cut.endswith("tail")
    assert shorten("abcdefghijkl", 7) == "abcd…kl"  # two thirds of what is left beside the mark


def test_times_by_label_are_sums_largest_first() -> None:
    labels, index, duration = ["gemm", "copy", "gemm", "norm"], np.array([0, 1, 2, 0]), np.array([3, 9, 5, 2])
    assert composition(labels, index, duration) == {"gemm": 10.0, "copy": 9.0}
    assert list(composition(labels, index, duration)) == ["gemm", "copy"]
    assert list(composition(["b", "a"], np.array([0, 1]), np.array([5, 5]))) == ["a", "b"]


def test_a_median_of_sums_counts_what_is_known() -> None:
    assert weighted_median(np.array([np.nan, 5.0, 9.0]), np.array([10, 1, 0])) == 5.0
    assert np.isnan(weighted_median(np.array([np.nan, 3.0]), np.array([1, 0])))


def test_kernels_without_a_short_name_have_their_whole_one(tmp_path: Path) -> None:
    export = Export().gpu().process(1).launch(0, kernel="void a<int>(float*)")
    export.launch(9 * US, kernel="void b<int>(float*)", short="")
    names = analysis(export, tmp_path).names
    assert dict(zip(names.texts, names.short, strict=True)) == {
        "void a<int>(float*)": "void a",
        "void b<int>(float*)": "void b<int>(float*)",
    }


def test_each_row_of_a_capture_stands_for_one_kernel(tmp_path: Path) -> None:
    a = analysis(
        Export().gpu().process(1).launch(0, kernel_dur=3 * US).launch(9 * US, kernel_dur=US), tmp_path
    )
    time, count = kernel_rows(a.trace, a.names)
    assert (time.tolist(), count.tolist()) == ([3 * US, US], [1, 1])


def sampled(lag_periods: float = 0.0) -> Export:
    """One GEMM at 90 % DRAM and one small kernel at 10 %, in turns that drift over the samples."""
    export = Export().gpu(sm_count=132, bandwidth=4.8e12).process(1)
    period, t, busy = 100 * US, 0, []
    for i in range(400):
        gemm, small = 60 * US + (i * 7) % 31 * US, 25 * US + (i * 11) % 17 * US
        export.launch(
            at=t,
            dur=US,
            kernel="nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT",
            kernel_start=t + 2 * US,
            kernel_dur=gemm,
        )
        busy.append((t + 2 * US, t + 2 * US + gemm, 0.9, 0.8))
        t += 3 * US + gemm
        export.launch(
            at=t,
            dur=US,
            kernel="vectorized_elementwise_kernel",
            kernel_start=t + 2 * US,
            kernel_dur=small,
            grid=(4, 1, 1),
        )
        busy.append((t + 2 * US, t + 2 * US + small, 0.1, 0.2))
        t += 8 * US + small + (i % 5) * 40 * US
    dram, sm = [], []
    shift = round(lag_periods * period)
    for s in range(shift, t, period):
        level = [
            sum(max(0, min(b, s + period) - max(a, s)) * v[k] for a, b, *v in busy) / period for k in (0, 1)
        ]
        dram.append(round(100 * level[0]))
        sm.append(round(100 * level[1]))
    return export.gpu_metrics(
        {"DRAM Read Bandwidth": dram, "DRAM Write Bandwidth": [0] * len(dram), "SM Active": sm},
        period_ns=period,
    )


def test_activity_is_attributed_to_the_kernels_that_caused_it(tmp_path: Path) -> None:
    a = analysis(sampled(), tmp_path)
    found = a.activity[0]
    assert found is not None
    assert a.sample_lag(0) == 0
    assert found.of("gemm", "dram") == pytest.approx(0.9, abs=0.02)
    assert found.of("elementwise", "dram") == pytest.approx(0.1, abs=0.03)
    share, level = found.share_above("dram", 0.736)
    assert level == pytest.approx(0.9, abs=0.02)
    assert 0.3 < share < 0.5


def test_attribution_is_off_where_samples_do_not_follow_the_kernels(tmp_path: Path) -> None:
    late = analysis(sampled(lag_periods=2.0), tmp_path)
    assert 0 not in late.activity
    assert abs(late.sample_lag(0)) == pytest.approx(200_000, rel=0.2)


def test_too_few_samples_attribute_nothing(tmp_path: Path) -> None:
    export = Export().gpu(sm_count=132).process(1).launch(at=0, kernel_dur=900 * US)
    export.gpu_metrics({"SM Active": [90] * 5, "DRAM Read Bandwidth": [50] * 5})
    a = analysis(export, tmp_path)
    assert a.activity.get(0) is None
    assert a.samples(0) is not None


def test_families_and_operations_of_names_are_looked_up_once(tmp_path: Path) -> None:
    """Tables index them for every name: lists made anew at each access made this quadratic."""
    names = analysis(Export().gpu().process(1).launch(0, kernel="sgemm"), tmp_path).names
    assert names.families == ["gemm"]
    assert names.families is names.families
    assert names.operations is names.operations
