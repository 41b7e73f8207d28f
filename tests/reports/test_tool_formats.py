"""SARIF, JUnit XML and GitHub annotations: valid by their schemas, and the same diagnosis."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
import xmlschema

from advisor.model.facts import Scope
from advisor.model.findings import SEVERITIES, Diagnosis, Tool
from advisor.pipeline.diagnose import diagnose
from advisor.reports import sarif
from advisor.reports.diagnosis_blocks import report
from advisor.reports.output_file import clean
from advisor.reports.tool_formats import github, junit
from tests.captures import committed
from tests.reports.fixture import DIAGNOSIS, HEALTHY, NASTY
from tests.reports.test_html import FULL

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
BARE = Diagnosis(tool=Tool(version="0.1.0", engine="python"), inputs=(), verdict="Nothing.")
ODD_PATH = "/tmp/a b/ü%\udcff\ud800,:\x1b[31m\u202e.sqlite"
ODD = HEALTHY.replaced(inputs=(HEALTHY.inputs[0].replaced(path=ODD_PATH),))
SAMPLES = {
    "full": [FULL],
    "plain": [DIAGNOSIS],
    "healthy": [HEALTHY],
    "bare": [BARE],
    "odd": [ODD],
    "many": [FULL, HEALTHY, DIAGNOSIS],
}


def sarif_of(*diagnoses: Diagnosis) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(sarif.document(report(diagnoses)))
    return document


# ------------------------------------------------------------------ SARIF


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", SAMPLES)
def test_sarif_validates(name: str, validator: Any) -> None:
    validator.validate(sarif_of(*SAMPLES[name]))


@pytest.mark.parametrize("name", ["decode_eager_bs1", "no_gpu_work", "two_processes"])
def test_sarif_of_real_captures_validates(name: str, validator: Any) -> None:
    document = sarif_of(diagnose(committed(name)))
    validator.validate(document)
    assert document["runs"][0]["results"]


def test_the_validator_sees_what_is_wrong(validator: Any) -> None:
    document = sarif_of(FULL)
    document["runs"][0]["results"][0]["level"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)


def test_sarif_results() -> None:
    run = sarif_of(FULL)["runs"][0]
    results = run["results"]
    assert [r["ruleId"] for r in results] == ["LCH101", "SYN103", "CAP109", "SYN101"]
    assert [r["level"] for r in results] == ["error", "note", "note", "error"]
    assert [r["baselineState"] for r in results] == ["new", "unchanged", "unchanged", "absent"]
    first = results[0]
    location = first["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"].endswith(
        "/decode_%5Beager%5D_batch_size_1.sqlite"
    )
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "device 0/phase decode"
    assert "launch.idle_ratio 55.3 % >= 10 %" in first["properties"]["conditions"]
    rules = run["tool"]["driver"]["rules"]
    for result in results:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    launch = rules[first["ruleIndex"]]
    assert launch["name"] == "LaunchBound"
    assert "drop --enforce-eager" in launch["help"]["text"]
    assert "advisor explain LCH101" in launch["help"]["markdown"]
    assert launch["helpUri"] == "https://example.invalid/graphs"
    notes = run["invocations"][0]["toolConfigurationNotifications"]
    assert [n["descriptor"]["id"] for n in notes] == ["UTL102", "UTL105", "HST103", "COM102", "HST101"]
    assert "--gpu-metrics-devices=all" in notes[0]["message"]["text"]


def test_sarif_without_a_baseline_has_no_state() -> None:
    for result in sarif_of(DIAGNOSIS)["runs"][0]["results"]:
        assert "baselineState" not in result


def test_fingerprints_depend_on_code_and_scope_alone() -> None:
    def prints(diagnosis: Diagnosis) -> list[str]:
        results = sarif_of(diagnosis)["runs"][0]["results"]
        return [r["partialFingerprints"][sarif.FINGERPRINT] for r in results]

    first = DIAGNOSIS.findings[0]
    other = first.replaced(message="other numbers", severity="low", rank=9, conditions=())
    moved = first.replaced(scope=Scope(device=1, phase="decode"))
    pid = first.replaced(scope=replace(first.scope, process=4711))
    elsewhere = DIAGNOSIS.replaced(
        findings=(other, moved, pid), inputs=(DIAGNOSIS.inputs[0].replaced(path="b.sqlite"),)
    )
    again = prints(elsewhere)
    assert again[0] == prints(DIAGNOSIS)[0]
    assert again[1] != again[0]
    assert again[2] == again[0]  # a process has another id in every run
    assert len(set(prints(DIAGNOSIS))) == 3


def test_uris() -> None:
    def uri(path: str) -> str:
        given = HEALTHY.inputs[0].replaced(path=path)
        found = sarif_of(HEALTHY.replaced(inputs=(given,)))
        return str(found["runs"][0]["artifacts"][0]["location"]["uri"])

    assert uri("a/b c.sqlite") == "a/b%20c.sqlite"
    assert uri("/x/a#b?.sqlite") == "file:///x/a%23b%3F.sqlite"
    assert uri("C:\\x\\a.sqlite") == "file:///C:/x/a.sqlite"
    assert uri("a\udcff.sqlite") == "a%FF.sqlite"
    assert uri("a:b.sqlite") == "a%3Ab.sqlite"


# ------------------------------------------------------------------ JUnit


@pytest.fixture(scope="module")
def junit_schema() -> Any:
    return xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd"))


@pytest.mark.parametrize("name", SAMPLES)
def test_junit_validates(name: str, junit_schema: Any) -> None:
    data = junit(report(SAMPLES[name]))
    junit_schema.validate(Xml.fromstring(data))


def test_junit_holds_nothing_that_controls_a_terminal() -> None:
    update = {"code": f"ABC101{NASTY}", "cause": NASTY, "message": f"a\n{NASTY}", "title": NASTY}
    finding = DIAGNOSIS.findings[0].replaced(**update)
    missing = DIAGNOSIS.not_evaluated[0].replaced(cause=NASTY, code="ABC102")
    nasty = {"findings": (finding,), "not_evaluated": (missing,), "verdict": NASTY}
    text = junit(report([DIAGNOSIS.replaced(**nasty)])).decode()
    assert "ABC101[bold red]gemm" in text
    assert not [c for c in text if clean(c) != c and c != "\n"]


def test_junit_of_a_real_capture(junit_schema: Any) -> None:
    diagnosis = diagnose(committed("decode_eager_bs1"))
    root = Xml.fromstring(junit(report([diagnosis])))
    junit_schema.validate(root)
    cases = {str(c.get("name")).split()[0]: c for c in root.iter("testcase")}
    told = {f.code: f.severity for f in reversed(diagnosis.findings)}
    for code, severity in told.items():
        worst = max(SEVERITIES.index(f.severity) for f in diagnosis.findings if f.code == code)
        failed = cases[code].find("failure") is not None
        assert failed == (worst >= 1), (code, severity)
    for entry in diagnosis.not_evaluated:
        if entry.code not in told and entry.code not in {h.code for h in diagnosis.healthy}:
            assert cases[entry.code].find("skipped") is not None
    for healthy in diagnosis.healthy:
        if healthy.code not in told:
            assert {c.tag for c in cases[healthy.code]} == {"system-out"}


def test_junit_says_what_the_diagnosis_says() -> None:
    root = Xml.fromstring(junit(report([FULL])))
    suite = root[0]
    assert dict(root.attrib) == {"name": "advisor", "tests": "10", "failures": "2", "errors": "0"}
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("10", "2", "5")
    assert len(list(suite.iter("testcase"))) == 10
    failure = suite.find(".//testcase[@name='LCH101 launch-bound']/failure")
    assert failure is not None
    assert failure.get("type") == "high new"
    text = failure.text or ""
    for part in (
        "launch.idle_ratio ",
        "55.3 %  >= 10 %",
        "55.3 % of the step",
        "drop --enforce-eager",
        "explains  UTL100 gpu-idle",
    ):
        assert part in text
    info = suite.find(".//testcase[@name='CAP109 sampling-too-coarse']")
    assert info is not None
    assert info.find("failure") is None
    skipped = suite.find(".//testcase[@name='HST103 gil-contention']/skipped")
    assert skipped is not None
    assert "--trace=cuda,nvtx,python-gil" in str(skipped.get("message"))
    assert "1 new, 2 known, 1 gone" in (suite.findtext("system-out") or "")


def test_several_scopes_of_a_rule_are_one_case() -> None:
    first = DIAGNOSIS.findings[0]
    second = first.replaced(scope=Scope(device=1), rank=2, severity="info")
    both = DIAGNOSIS.replaced(findings=(first, second))
    root = Xml.fromstring(junit(report([both])))
    cases = [c for c in root.iter("testcase") if str(c.get("name")).startswith("LCH101")]
    assert len(cases) == 1
    assert "device 1" in (cases[0].findtext("failure") or "")


# ------------------------------------------------------------------ GitHub


def test_github_commands() -> None:
    lines = github(report([FULL])).decode().splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        "::notice",
        "::error",
        "::notice",
        "::notice",
        "::notice",
    ]
    assert re.match(
        r"::error title=new%3A LCH101 launch-bound \(device 0%2C decode\)%2C high,"
        r"file=/data/captures/2026-11-20/decode_\[eager\]_batch_size_1.sqlite::The host"
        r" launches kernels one by one",
        lines[1],
    )
    assert "%0ACost: 55.3 %25 of the" in lines[1]
    assert "%0AFix: " in lines[1]
    assert max(len(line) for line in lines) < 400
    assert lines[-1].startswith("::notice title=advisor%3A baseline")


def test_files_of_annotations_are_named_from_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = DIAGNOSIS.inputs[0].replaced(path=str(tmp_path / "out" / "a.sqlite"))
    text = github(report([DIAGNOSIS.replaced(inputs=(own,))])).decode()
    assert text.count(",file=out/a.sqlite::") == len(text.splitlines())


@pytest.mark.parametrize("name", SAMPLES)
def test_each_command_is_one_line(name: str) -> None:
    nasty = DIAGNOSIS.findings[0].replaced(
        title=f"a\r\n::error::x {NASTY}", message="b\n::set-output name=x::y"
    )
    diagnoses = [d.replaced(findings=(nasty, *d.findings)) for d in SAMPLES[name]]
    data = github(report(diagnoses))
    assert b"\r" not in data
    for line in data.decode().splitlines():
        assert re.match(r"::(error|warning|notice) title=[^:\n]*::", line), line


def test_nothing_in_a_command_moves_the_cursor() -> None:
    """Neither names from the capture nor the name of its file."""
    text = github(report([ODD, DIAGNOSIS])).decode()
    assert "file=/tmp/a b/ü%25??%2C%3A?[31m?.sqlite" in text
    assert clean(text.replace("\n", "")) == text.replace("\n", "")


def test_levels_of_github() -> None:
    for severity, command in zip(SEVERITIES, ("notice", "notice", "warning", "error"), strict=True):
        one = DIAGNOSIS.findings[1].replaced(severity=severity)
        lines = github(report([DIAGNOSIS.replaced(findings=(one,))])).decode()
        assert lines.splitlines()[1].startswith(f"::{command} ")


def test_sarif_names_what_is_in_order_beside_what_could_not_be_judged() -> None:
    (run,) = json.loads(sarif.document(report([DIAGNOSIS])))["runs"]
    assert [t.split()[0] for t in run["properties"]["inOrder"]] == ["ALC101", "XFR102"]
    assert "close" not in run["properties"]
    assert len(run["invocations"][0]["toolConfigurationNotifications"]) >= 4
