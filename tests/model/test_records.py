from __future__ import annotations

import importlib
import json
import math
import pickle
import pkgutil
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest

import advisor
from advisor.model.comparison import Comparison, ContextScaling, RouterExperiment
from advisor.model.file_content import OwnType
from advisor.model.findings import Diagnosis, Finding, Input, Tool
from advisor.model.gain import Span
from advisor.model.records import Frozen
from tests.reports.fixture import DIAGNOSIS

FINDING = {
    "code": "LCH101",
    "cause": "launch-bound",
    "title": "t",
    "severity": "high",
    "confidence": 0.5,
    "message": "m",
}


def test_keys_of_a_later_version_are_left_out() -> None:
    assert Span.model_validate({"low": 1, "mid": 2, "high": 3, "more": 4}) == Span(low=1, mid=2, high=3)


@pytest.mark.parametrize(
    ("model", "data", "fault"),
    [
        (Span, {"low": 1, "mid": 2}, "high"),
        (Finding, {**FINDING, "confidence": 1.5}, "confidence"),
        (Finding, {**FINDING, "severity": "grave"}, "severity"),
        (Finding, {**FINDING, "impact": {"part": 1}}, "impact.part"),
    ],
)
def test_what_is_read_is_checked(model: type[Frozen], data: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        model.model_validate(data)


def test_documents_are_written_in_the_types_that_they_declare() -> None:
    assert Span(low=1, mid=2, high=3).model_dump_json() == '{"low":1.0,"mid":2.0,"high":3.0}'
    entry = Input(path="a", format="f", warnings=["w"], untraced_step_ms=Span(low=1, mid=2, high=3))
    assert entry.model_dump()["warnings"] == ("w",)
    assert json.loads(entry.model_dump_json())["untraced_step_ms"] == {"low": 1.0, "mid": 2.0, "high": 3.0}


def test_numbers_of_numpy_are_written_as_others() -> None:
    entry = Input(path="a", format="f", steps=3).replaced(window_ms=np.int64(2), steps=np.int32(4))
    assert entry.model_dump_json() == Input(path="a", format="f", steps=4, window_ms=2.0).model_dump_json()


def test_numbers_are_spelled_as_documents_always_did() -> None:
    text = Input(path="1e5", format="f", window_ms=1e23, step_ms=math.inf, startup_ms=1e-7).model_dump_json()
    assert '"path":"1e5"' in text
    assert '"window_ms":1e+23' in text
    assert '"step_ms":null' in text
    assert '"startup_ms":1e-7' in text


def test_a_path_that_is_not_utf8_is_kept() -> None:
    odd = Input(path="caf\udce9.sqlite", format="f")
    assert odd.model_dump()["path"] == "caf\udce9.sqlite"


def test_documents_are_read_back() -> None:
    assert Diagnosis.model_validate_json(DIAGNOSIS.model_dump_json()) == DIAGNOSIS
    assert pickle.loads(pickle.dumps(DIAGNOSIS)) == DIAGNOSIS
    assert "excerpts" not in DIAGNOSIS.model_dump()


@pytest.mark.parametrize("model", [Comparison, ContextScaling, RouterExperiment])
def test_what_rules_say_of_a_comparison_comes_last_in_json(model: type[Frozen]) -> None:
    keys = list(model.__struct_fields__)
    assert keys[0] == "schema_version"
    assert keys[-5:] == ["findings", "healthy", "not_evaluated", "facts", "thresholds"]


def test_threads_that_make_the_first_record_of_a_class_at_once() -> None:
    script = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from advisor.model.findings import Diagnosis\n"
        "from advisor.model.gain import Span\n"
        "def make(_): return Span(low=1, mid=2, high=3), Diagnosis.__struct_fields__\n"
        "with ThreadPoolExecutor(20) as threads:\n"
        "    first, *others = threads.map(make, range(20))\n"
        "assert all(other == first for other in others)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_records_do_not_change() -> None:
    tool = Tool(version="1", engine="python")
    with pytest.raises(AttributeError, match="immutable"):
        tool.version = "2"  # type: ignore[misc]
    assert tool.replaced(version="2") == tool.replaced(version="2") != tool


def models(base: type[Frozen]) -> list[type[Frozen]]:
    return [one for model in base.__subclasses__() for one in (model, *models(model))]


def test_defaults_are_of_the_types_that_fields_declare() -> None:
    """They are not checked: JSON would say 0 for 0.0."""
    for module in pkgutil.walk_packages(advisor.__path__, "advisor."):
        if module.name.startswith(("advisor.model.", "advisor.reports.")):
            importlib.import_module(module.name)
    wrong = [
        f"{model.__name__}.{field.name}"
        for model in models(Frozen)
        for field in msgspec.structs.fields(model)
        if field.default not in (msgspec.NODEFAULT, msgspec.UNSET)
        if not isinstance(field.default, OwnType)
        if repr(msgspec.convert(msgspec.to_builtins(field.default), field.type)) != repr(field.default)
    ]
    assert wrong == []
