"""What operators compute and move, by the formulas of knowledge/operators.yaml: sums worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.knowledge.operators import (
    OperatorEntry,
    evaluated,
    operator_entries,
    operator_work,
    operators_with_values,
    parsed,
    recorded_parts,
)
from advisor.sources.kineto.columns import NUMBERED

BF16 = "c10::BFloat16"


def recorded(sizes: list[Any], types: list[str], strides: Any = (), numbers: Any = ()) -> str:
    return " ".join(map(json.dumps, (sizes, types, list(strides), list(numbers))))


@pytest.mark.parametrize(
    ("name", "sizes", "types", "numbers", "flop", "moved"),
    [
        ("aten::mm", [[8, 16], [16, 4]], [BF16] * 2, [], 2 * 8 * 16 * 4, 2 * (8 * 16 + 16 * 4 + 8 * 4)),
        (
            "aten::addmm",
            [[4], [8, 16], [16, 4], [], []],
            [BF16] * 3 + ["Scalar"] * 2,
            [],
            2 * 8 * 16 * 4 + 8 * 4,
            2 * (4 + 8 * 16 + 16 * 4 + 8 * 4),
        ),
        (
            "aten::linear",
            [[2, 4, 16], [5, 16], []],
            [BF16, BF16, ""],
            [],
            2 * 8 * 16 * 5,
            2 * (8 * 16 + 16 * 5 + 8 * 5),
        ),
        (
            "aten::bmm",
            [[3, 8, 16], [3, 16, 4]],
            ["float"] * 2,
            [],
            3 * 2 * 8 * 16 * 4,
            3 * 4 * (8 * 16 + 16 * 4 + 8 * 4),
        ),
        (
            "aten::_scaled_mm",
            [[8, 16], [16, 4], [1], [1]],
            ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2,
            [],
            2 * 8 * 16 * 4,
            8 * 16 + 16 * 4 + 2 * 8 * 4,
        ),
        # two values of 4 bits a byte
        (
            "aiter::gemm_a4w4",
            [[8, 16], [4, 16]],
            ["unsigned char"] * 2,
            [],
            2 * 8 * 32 * 4,
            8 * 16 + 4 * 16 + 2 * 8 * 4,
        ),
        # 4 tokens choose 2 of 8 experts: 8 x (1 - (3/4)^4) of them are read
        (
            "vllm::inplace_fused_experts",
            [[4, 32], [8, 24, 32], [8, 32, 12], [4, 2], [4, 2]],
            [BF16] * 3 + ["float", "int"],
            [],
            2 * 4 * 2 * (24 * 32 + 32 * 12),
            2 * 4 * 32 * 2 + 8 * (1 - 0.75**4) * 2 * (24 * 32 + 32 * 12),
        ),
        # grouped queries, no mask
        (
            "aten::_flash_attention_forward",
            [[2, 10, 8, 64], [2, 20, 2, 64], [2, 20, 2, 64], *[[]] * 6],
            [BF16] * 3 + [""] * 6,
            ["", "", "", "", "", "10", "20", "0.", "False"],
            4 * 2 * 8 * 10 * 20 * 64,
            2 * 2 * (2 * 10 * 8 * 64 + 2 * 20 * 2 * 64),
        ),
        # query i of 10 sees the first 11 + i of 20 keys
        (
            "aten::_flash_attention_forward",
            [[2, 10, 8, 64], [2, 20, 2, 64], [2, 20, 2, 64], *[[]] * 6],
            [BF16] * 3 + [""] * 6,
            ["", "", "", "", "", "10", "20", "0.", "True"],
            4 * 2 * 8 * sum(11 + i for i in range(10)) * 64,
            2 * 2 * (2 * 10 * 8 * 64 + 2 * 20 * 2 * 64),
        ),
        # padding 1, stride 2: 112 x 112 results
        (
            "aten::convolution",
            [[2, 3, 224, 224], [8, 3, 3, 3], [], *[[]] * 6],
            [BF16] * 2 + [""] * 7,
            ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
            2 * 2 * 8 * 112 * 112 * 27,
            2 * (2 * 3 * 224 * 224 + 8 * 27 + 2 * 8 * 112 * 112),
        ),
        # each pixel becomes 2 x 2
        (
            "aten::convolution",
            [[1, 16, 10, 10], [16, 4, 2, 2], [], *[[]] * 6],
            [BF16] * 2 + [""] * 7,
            ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"],
            2 * 16 * 100 * 4 * 4,
            2 * (16 * 100 + 16 * 4 * 4 + 4 * 400),
        ),
        # in three dimensions, by the arguments of the slow path
        (
            "aten::slow_conv_dilated3d",
            [[1, 4, 6, 8, 8], [5, 4, 3, 3, 3], [], [5], [], [], []],
            ["float"] * 2 + [""] * 5,
            ["", "", "[3, 3, 3]", "", "[1, 1, 1]", "[0, 0, 0]", "[2, 2, 2]"],
            2 * 5 * (2 * 4 * 4) * 4 * 27,
            4 * (4 * 6 * 64 + 5 * 4 * 27 + 5 * 2 * 4 * 4),
        ),
        # the gradient of the weights alone
        (
            "aten::convolution_backward",
            [[1, 8, 10, 10], [1, 3, 10, 10], [8, 3, 3, 3], *[[]] * 8],
            [BF16] * 3 + [""] * 8,
            [*[""] * 7, "False", "", "1", "[False, True, True]"],
            2 * 8 * 100 * 27,
            2 * (8 * 100 + 3 * 100 + 8 * 27),
        ),
        (
            "_C::fused_add_rms_norm",
            [[8, 64], [8, 64], [64], []],
            [BF16] * 3 + ["Scalar"],
            [],
            6 * 512,
            4 * 1024 + 128,
        ),
        ("aten::mul", [[4, 1, 8], [5, 8]], [BF16, "float"], [], 160, 2 * 32 + 4 * 40 + 4 * 160),
        ("aten::copy_", [[4, 8], [4, 8], []], ["float", BF16, "Scalar"], [], 0, 32 * 4 + 32 * 2),
        ("aten::embedding", [[1000, 64], [2, 7]], [BF16, "long int"], [], 0, 14 * 8 + 2 * 14 * 64 * 2),
    ],
)
def test_operations_and_bytes(
    name: str, sizes: list[Any], types: list[str], numbers: list[str], flop: float, moved: float
) -> None:
    work = operator_work(name, recorded(sizes, types, numbers=numbers))
    assert work is not None
    assert (work.flop, work.bytes) == (pytest.approx(flop), pytest.approx(moved))


def test_a_dimension_that_only_repeats_is_read_once() -> None:
    once = operator_work("aten::copy_", recorded([[8, 64], [8, 64]], [BF16] * 2, [[64, 1], [0, 1]]))
    assert once is not None
    assert once.bytes == 2 * (8 * 64 + 64)


def test_operations_are_known_without_types_and_bytes_are_not() -> None:
    work = operator_work("aten::mm", "[[8, 16], [16, 4]]")
    assert work is not None
    assert (work.flop, work.bytes, work.precision) == (1024, None, None)


@pytest.mark.parametrize(
    "text",
    [
        recorded([[8, 16], [15, 4]], [BF16] * 2),  # sizes that do not fit each other
        recorded([[8, 16]], [BF16]),
        recorded([[8, 0], [0, 4]], [BF16] * 2),
        "[[8, 16], [16, 4",
        "7",
        "",
        '{"a": 1}',
        recorded([["x", 16], [16, 4]], [BF16] * 2),
    ],
)
def test_arguments_that_do_not_fit_give_no_work(text: str) -> None:
    assert operator_work("aten::mm", text) is None


def test_numbers_that_are_not_recorded_give_no_work() -> None:
    sizes = [[2, 3, 224, 224], [8, 3, 3, 3], [], *[[]] * 6]
    assert operator_work("aten::convolution", recorded(sizes, [BF16] * 2 + [""] * 7)) is None
    same = ["", "", "", "[1, 1]", "same", "[1, 1]", "1"]
    assert operator_work("aten::conv2d", recorded(sizes[:7], [BF16] * 2 + [""] * 5, numbers=same)) is None


def test_an_operator_that_is_not_listed_has_no_work() -> None:
    assert operator_work("aten::nonzero", recorded([[8]], ["bool"])) is None
    assert operator_work("vllm::moe_forward", recorded([[8, 16], [8, 4]], [BF16] * 2)) is None


@pytest.mark.parametrize(
    "formula",
    [
        "__import__('os')",
        "m.k",
        "m[0]",
        "lambda: 1",
        "max(m for m in k)",
        "m if k else 1",
        "'a'*9",
        "m %  2",
        "1 +",
    ],
)
def test_a_formula_is_arithmetic_and_nothing_else(formula: str) -> None:
    with pytest.raises(ValueError, match="bad formula"):
        parsed(formula)


def test_a_formula_in_numbers() -> None:
    assert evaluated(parsed("max(m, 2)*(k - 1)//2 + 0.5"), {"m": 3, "k": 4}) == 4.5
    with pytest.raises(ArithmeticError):
        evaluated(parsed("m**k"), {"m": 9, "k": 10**9})
    with pytest.raises(KeyError):
        evaluated(parsed("m"), {})


def test_an_entry_with_an_unknown_name_is_refused() -> None:
    entry = {"names": ["a::b"], "family": "gemm", "sizes": ["m k"], "flop": "2*m*n", "source": "x"}
    with pytest.raises(ValueError, match="`flop` has an unknown name 'n'"):
        OperatorEntry.from_data(entry)


def test_every_entry_names_where_it_comes_from() -> None:
    for entries in operator_entries().values():
        assert all(entry.source for entry in entries)


def test_numbers_are_read_of_all_operators_that_need_them() -> None:
    assert all(NUMBERED.search(name) for name in operators_with_values())


def test_parts_stand_one_behind_the_other() -> None:
    assert recorded_parts('[[1,2]] ["float"] [[2,1]] ["1"]') == [[[1, 2]], ["float"], [[2, 1]], ["1"]]
    assert recorded_parts('[[1,2]]["float"]') == [[[1, 2]], ["float"]]
