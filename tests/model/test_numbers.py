from __future__ import annotations

import pytest

from advisor.model.findings import ConditionDoc
from advisor.model.numbers import (
    column,
    condition_text,
    distance,
    limit_text,
    megahertz,
    milliseconds,
    named_unit,
    percent,
    session_time,
    signed,
    times,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.523, "ratio", "52.3 %"),
        (0.0, "ratio", "0 %"),
        (0.000234, "ratio", "0.02 %"),
        (-0.0000041, "ratio", "0 %"),
        (1e-12, "ratio", "0 %"),
        (1.0, "ratio", "100 %"),
        (12_400, "ns", "12.4 us"),
        (999, "ns", "999 ns"),
        (0, "ns", "0 ns"),
        (2.31, "ms", "2.31 ms"),
        (2_310.0, "ms", "2.31 s"),
        (0.0021, "ms", "2.1 us"),
        (1_234, "count", "1,234"),
        (847.5, "count", "848"),
        (12.25, "count", "12.2"),
        (4_800_000_000_000.0, "bytes_per_s", "4.8 TB/s"),
        (512, "bytes", "512 B"),
        (52_100, "count_per_s", "52.1 k/s"),
        (12, "count_per_s", "12 /s"),
        (10_000, "hz", "10 kHz"),
        (3.2, "times", "3.20 x"),
        (250_000_000_000, "ns", "250 s"),
        (7.2e12, "ns", "2 h"),
        (0.99996, "ratio", "100 %"),
        (("a", "b"), "text", "a, b"),
        (True, "flag", "yes"),
        (None, "ratio", "unknown"),
        ("vllm", "text", "vllm"),
        (float("nan"), "ratio", "nan"),
        (float("inf"), "ns", "inf"),
    ],
)
def test_value_text(value: float, unit: str, shown: str) -> None:
    assert value_text(value, unit) == shown


def test_numbers_that_are_compared_at_a_glance_keep_their_decimals() -> None:
    assert [signed(r) for r in (-0.837, 0.023, 5.13, 1.0, 0.9994)] == [
        "-83.7",
        "+2.3",
        "+513",
        "+100",
        "+99.9",
    ]
    assert [milliseconds(t) for t in (0, 0.5, 1, 99.994, 100)] == ["0.00", "0.500", "1.00", "99.99", "100.0"]
    assert [times(n) for n in (1, 99.99, 100)] == ["1.00", "99.99", "100"]


def test_places_in_time_are_those_of_the_session() -> None:
    assert column("start:ms", [1_234.567]) == ("start", ["1.234567s"], True)


def condition(**values: object) -> ConditionDoc:
    return ConditionDoc.model_validate({"fact": "launch.idle_ratio", "op": "ge", **values})


def test_condition_shows_both_numbers() -> None:
    shown = condition_text(condition(value=0.523, threshold=0.1, unit="ratio"))
    assert shown == "launch.idle_ratio 52.3 % >= 10 %"


def test_condition_never_shows_two_equal_numbers_that_differ() -> None:
    shown = condition_text(condition(value=0.09996, threshold=0.1, unit="ratio", op="lt"))
    assert shown == "launch.idle_ratio 9.996 % < 10 %"


def test_condition_at_the_threshold() -> None:
    shown = condition_text(condition(value=0.1, threshold=0.1, unit="ratio"))
    assert shown == "launch.idle_ratio 10 % >= 10 %"


def test_condition_on_a_quotient_is_a_factor() -> None:
    shown = condition_text(condition(fact="operation.max_over_p50", value=3.217, threshold=2.0, unit="ratio"))
    assert shown == "operation.max_over_p50 3.22 x >= 2.00 x"


def test_condition_on_a_list() -> None:
    shown = condition_text(
        condition(fact="a.kind", op="one_of", value="x", threshold=("x", "y"), unit="text")
    )
    assert shown == "a.kind x in [x, y]"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"value": 0.0046, "threshold": 0.1, "unit": "ratio", "holds": False}, "0.46 %, limit 10 %"),
        ({"op": "lt", "value": 15, "threshold": 5, "holds": False}, "15, minimum 5"),
        ({"value": 0.5, "threshold": 0.1, "unit": "ratio", "holds": True}, "50 % >= 10 %"),
        ({"value": None, "threshold": 0.1, "unit": "ratio"}, "unknown >= 10 %"),
        ({"op": "eq", "value": True, "threshold": True, "holds": True}, "yes"),
        ({"op": "eq", "value": False, "threshold": True, "holds": False}, "no, a finding if yes"),
        ({"op": "ne", "value": "x", "threshold": "x", "holds": False}, "x, a finding if not x"),
        (
            {"op": "one_of", "value": "z", "threshold": ("x", "y"), "holds": False},
            "z, a finding if one of x, y",
        ),
    ],
)
def test_a_condition_of_a_healthy_rule_claims_nothing_that_is_not_so(
    values: dict[str, object], told: str
) -> None:
    assert limit_text(condition(**values)) == f"launch.idle_ratio {told}"


def test_condition_on_a_symptom() -> None:
    fired = condition(fact="symptom:gpu-idle", op="eq", value="fired", threshold="fired")
    assert condition_text(fired) == "symptom gpu-idle fired"


def test_session_time_is_what_the_gui_shows() -> None:
    assert session_time(1_234_567_890) == "1.234568s"


def test_times_of_one_column_share_one_unit() -> None:
    head, cells, number = column("idle_ns", (98_412_000, 504_220, None))
    assert (head, cells, number) == ("idle ms", ["98.41", "0.50", "unknown"], True)


@pytest.mark.parametrize(
    ("ns", "head", "shown"),
    [
        ((265e6, 249e6), "length ms", ["265.0", "249.0"]),  # in seconds they would look alike
        ((12_328_600e3, 82_610e3, 500e3), "length s", ["12.33", "0.08", "0.00"]),
        ((66_411.8e3, 23.46e3), "length ms", ["66.41", "0.02"]),
        ((7_432.8e3, 32.37e3), "length us", ["7,432.8", "32.37"]),
        ((265e3,), "length us", ["265.0"]),
    ],
)
def test_times_of_a_column_are_told_apart_and_not_too_long(
    ns: tuple[float, ...], head: str, shown: list[str]
) -> None:
    assert column("length_ns", ns)[:2] == (head, shown)


def test_a_thousand_is_one_of_the_next_unit_up_to_the_largest() -> None:
    assert value_text(1000.0, "count_per_s") == "1 k/s"
    assert value_text(1024, "bytes") == "1 KiB"
    assert value_text(1e18, "bytes_per_s") == "1,000,000 TB/s"


def test_cells_of_a_hundred_and_more_have_one_decimal() -> None:
    assert column("a:ms", (100.0, 99.99))[1] == ["100.0", "99.99"]
    assert column("idle_ns", (0, 99_900_000)) == ("idle ms", ["0.00", "99.90"], True)


def test_column_of_places_is_session_time() -> None:
    assert column("start_ns", (1_000_000_000,))[1] == ["1.000000s"]


@pytest.mark.parametrize(
    ("heading", "cells", "head", "shown"),
    [
        ("share", (0.5,), "share", "50 %"),
        ("time_ratio", (0.5,), "time", "50 %"),
        ("copied_bytes", (4096,), "copied", "4 KiB"),
        ("bytes", (4096,), "bytes", "4 KiB"),
        ("rate_bytes_per_s", (2e9,), "rate", "2 GB/s"),
        ("calls_per_s", (2e3,), "calls", "2 k/s"),
        ("count", (12_834,), "count", "12,834"),
        ("total:ms", (1.5,), "total ms", "1.50"),
        ("p50:us", (1.5,), "p50 us", "1.50"),
        ("share:ratio", (0.5,), "share", "50 %"),
        ("at:s", (1.234567,), "at", "1.234567s"),
        ("a step", (12.25,), "a step", "12.2"),
        ("thread", (41_873,), "thread", "41873"),
        ("blocks", (41_873,), "blocks", "41,873"),
        ("kind", ("DtoH",), "kind", "DtoH"),
    ],
)
def test_column(heading: str, cells: tuple[object, ...], head: str, shown: str) -> None:
    got = column(heading, cells)  # type: ignore[arg-type]
    assert (got[0], got[1][0]) == (head, shown)


def test_what_a_capture_does_not_name_is_unknown() -> None:
    assert column("host", ("node7", None)) == ("host", ["node7", "unknown"], False)
    assert column("host", (None,)) == ("host", ["unknown"], False)


@pytest.mark.parametrize(
    ("off", "wanted"),
    [
        (0.0, "exactly on it"),
        (0.054, "off by 5.4 % of the threshold"),
        (0.054321, "off by 5.43 % of the threshold"),
        (12.0, "off by 12 times the threshold"),
    ],
)
def test_distance(off: float, wanted: str) -> None:
    assert distance(off) == wanted


@pytest.mark.parametrize(
    ("fact", "unit"),
    [("operation.max_over_p50", "times"), ("capture.cuda_traced", ""), ("launch.rate_per_s", "count_per_s")],
)
def test_the_unit_that_a_name_ends_in(fact: str, unit: str) -> None:
    assert named_unit(fact) == unit


def test_distances_to_a_threshold_have_three_digits_and_the_smallest_all() -> None:
    assert distance(0.0543210123) == "off by 5.43 % of the threshold"
    assert distance(0.0000123456789) == "off by 0.001235 % of the threshold"


def test_numbers_stand_to_the_right() -> None:
    assert column("share", (0.5, None))[2]


def test_a_clock_is_stated_as_data_sheets_state_it() -> None:
    assert megahertz(1_980e6) == "1,980 MHz"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.11452853808765545, "11.5 %"),  # not by way of 11.45
        (0.3104624264452101, "31 %"),
        (0.7285250492760736, "72.9 %"),
        (0.0312, "3.12 %"),
        (0.000234, "0.02 %"),
        (1e-9, "0 %"),
    ],
)
def test_a_share_is_rounded_once(ratio: float, text: str) -> None:
    assert percent(ratio) == text
