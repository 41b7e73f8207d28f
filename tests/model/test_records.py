from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from advisor.model.comparison import Comparison, Judged
from advisor.model.findings import Diagnosis, Finding, Impact, Input, Tool
from advisor.model.gain import Span
from advisor.model.records import Frozen
from advisor.model.rules import GainSpec, Where
from advisor.model.writing import NotPlain, json_of
from tests.reports.fixture import DIAGNOSIS, HEALTHY

FINDING = {
    "code": "LCH101",
    "cause": "launch-bound",
    "title": "t",
    "severity": "high",
    "confidence": 0.5,
    "message": "m",
}


@pytest.mark.parametrize(
    ("model", "data", "fault"),
    [
        (Span, {"low": 1, "mid": 2}, "high"),
        (Span, {"low": 1, "mid": 2, "high": 3, "more": 4}, "more"),
        (Finding, {**FINDING, "confidence": 1.5}, "confidence"),
        (Finding, {**FINDING, "severity": "grave"}, "severity"),
        (Finding, {**FINDING, "impact": {"part": 1}}, "impact.part"),
        (GainSpec, {"what_if": "x", "otherwise": {"what_if": "y", "otherwise": {"what_if": 1}}}, "what_if"),
        (Where, {"field": "a", "op": "known", "value": True}, "`known` is for facts"),
        (Where, {"field": "a", "op": "eq"}, "exactly one of `value` and `param`"),
    ],
)
def test_what_is_read_is_checked(model: type[Frozen], data: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        model.model_validate(data)


def test_rules_take_no_number_for_a_text() -> None:
    assert Impact.model_validate({"part": "sync", "share": "0.5"}).share == 0.5
    with pytest.raises(ValueError, match="per"):
        GainSpec.model_validate({"what_if": "x", "per": 1})


def test_documents_are_written_in_the_types_that_they_declare() -> None:
    assert Span(low=1, mid=2, high=3).model_dump_json() == '{"low":1.0,"mid":2.0,"high":3.0}'
    entry = Input(path="a", format="f", warnings=["w"], untraced_step_ms=Span(low=1, mid=2, high=3))
    assert entry.model_dump()["warnings"] == ("w",)
    assert json.loads(entry.model_dump_json())["untraced_step_ms"] == {"low": 1.0, "mid": 2.0, "high": 3.0}


def test_a_document_that_cannot_be_checked_is_written_as_it_is() -> None:
    odd = Input(path="caf\udce9.sqlite", format="f")
    assert odd.model_dump()["path"] == "caf\udce9.sqlite"


def _odd_numbers() -> Input:
    floats = {"low": 1e16, "mid": float("inf"), "high": float("nan")}
    return Input(path="caf\u00e9 \x1f\u2028", format="f", untraced_step_ms=Span(**floats), window_ms=-9.5e22)


@pytest.mark.parametrize(
    "document", [DIAGNOSIS, HEALTHY, _odd_numbers(), Span(low=1, mid=np.float64(2.5), high=1e-7)]
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_the_same_without_pydantic(document: Frozen, indent: int | None) -> None:
    assert json_of(document, indent).decode() == document.model_dump_json(indent=indent)


class _Odd(Frozen):
    value: int | tuple[int, ...]


class _Deep(Frozen):
    number: int = 1
    odd: tuple[complex, ...] = ()


def test_a_type_that_pydantic_alone_writes_is_left_to_it_each_time() -> None:
    for _ in range(2):
        with pytest.raises(NotPlain):
            json_of(_Deep())


@pytest.mark.parametrize("value", ["1", 1.0, True, (1, None), {"a": 1}, np.int64(1)])
def test_what_is_not_of_the_type_declared_is_left_to_pydantic(value: Any) -> None:
    with pytest.raises(NotPlain):
        json_of(_Odd(value=value))


def test_a_path_that_is_not_utf8_is_left_to_pydantic() -> None:
    with pytest.raises(NotPlain):
        json_of(Input(path="caf\udce9.sqlite", format="f"))


def test_documents_are_read_back() -> None:
    assert Diagnosis.model_validate_json(DIAGNOSIS.model_dump_json()) == DIAGNOSIS
    assert pickle.loads(pickle.dumps(DIAGNOSIS)) == DIAGNOSIS
    assert "excerpts" not in DIAGNOSIS.model_dump()


def test_what_rules_say_of_a_comparison_comes_last_in_json() -> None:
    keys = list(Comparison.model_json_schema()["properties"])
    shared = [name for name in Judged.__struct_fields__ if name in keys]
    assert keys[-len(shared) :] == shared
    assert keys[0] == "schema_version"


def test_records_do_not_change() -> None:
    tool = Tool(version="1", engine="python")
    with pytest.raises(AttributeError):
        tool.version = "2"  # type: ignore[misc]
    assert tool.replaced(version="2") == tool.model_copy(update={"version": "2"}) != tool


def test_pydantic_is_imported_where_something_is_checked_or_written() -> None:
    script = (
        "import sys, advisor.model.rules, advisor.knowledge.shapes\n"
        "from advisor.model.gain import Span\n"
        "made = Span(low=1, mid=2, high=3); assert 'pydantic' not in sys.modules\n"
        "made.model_dump(); assert 'pydantic' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
