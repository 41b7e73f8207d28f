from __future__ import annotations

import json

from advisor.model.findings import Diagnosis
from advisor.reports.json_report import render
from tests.reports.fixture import DIAGNOSIS, HEALTHY, MUL


def test_one_document_is_exactly_the_diagnosis() -> None:
    shown = render([DIAGNOSIS]).decode().replace("\\u202e", "\u202e")
    assert shown == DIAGNOSIS.model_dump_json(indent=2) + "\n"
    assert Diagnosis.model_validate_json(render([DIAGNOSIS])) == DIAGNOSIS


def test_keys_of_schema_version_1() -> None:
    document = json.loads(render([DIAGNOSIS]))
    assert list(document)[:9] == [
        "schema_version",
        "tool",
        "inputs",
        "verdict",
        "headline",
        "do",
        "options",
        "findings",
        "overruled",
    ]
    assert document["schema_version"] == 1
    assert document["findings"][0]["cause"] == "launch-bound"
    assert {"rank", "device", "process", "phase", "operation"} <= set(document["findings"][0]["scope"])


def test_kernel_names_are_whole() -> None:
    assert MUL in json.loads(render([DIAGNOSIS]))["tables"]["kernels"]["rows"][1]


def test_several_are_a_list() -> None:
    document = json.loads(render([DIAGNOSIS, HEALTHY]))
    assert document["schema_version"] == 1
    assert [d["verdict"] for d in document["diagnoses"]] == [DIAGNOSIS.verdict, HEALTHY.verdict]
    assert len(json.loads(render([HEALTHY], many=True))["diagnoses"]) == 1


def test_same_bytes_again() -> None:
    again = Diagnosis.model_validate_json(render([DIAGNOSIS]))
    assert render([again]) == render([DIAGNOSIS])


def test_a_file_name_that_is_not_utf8() -> None:
    odd = HEALTHY.inputs[0].replaced(path="caf\udce9.sqlite")
    document = render([HEALTHY.replaced(inputs=(odd,))])
    assert json.loads(document)["inputs"][0]["path"] == "caf\udce9.sqlite"


def test_nothing_in_it_reorders_or_controls_a_terminal() -> None:
    odd = HEALTHY.replaced(verdict="a\u202eb\x9b1m\x7f\x1b")
    assert b"a\\u202eb\\u009b1m\\u007f\\u001b" in render([odd])
    assert json.loads(render([odd]))["verdict"] == odd.verdict
