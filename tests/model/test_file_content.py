from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import ValidationError

from advisor.engine.cases import NewRule
from advisor.gain.whatifs import WhatIfFile
from advisor.knowledge import (
    engine_signs,
    facts,
    gpus,
    healthy_rates,
    launchers,
    layer_counts,
    operators,
    shapes,
    verb_files,
)
from advisor.knowledge.package_data import data_dir, names
from advisor.model.file_content import Constraint, FileContent
from advisor.model.file_schema import schema_model
from advisor.model.rules import CauseCondition, GainSpec, When, Where, WideCondition
from benchmarks.verification import VerifiedFile
from tests.for_each import for_each
from tests.knowledge_files import load

#: What the files of `knowledge/` hold; of a folder, each of its files.
CONTENTS: dict[str, type[FileContent]] = {
    "actions.yaml": shapes.ActionFile,
    "call_sites.yaml": shapes.CallSiteFile,
    "capture.yaml": shapes.CaptureKnowledge,
    "capture_goals.yaml": verb_files.GoalFile,
    "checklist.yaml": verb_files.ChecklistFile,
    "comparison.yaml": verb_files.ComparisonFile,
    "engines": shapes.EngineData,
    "evidence.yaml": shapes.EvidenceFile,
    "facts": facts.FactFile,
    "frameworks.yaml": verb_files.FrameworkFile,
    "gpus.yaml": gpus.GpuFile,
    "healthy_rates.yaml": healthy_rates.HealthyRateFile,
    "kernel_families.yaml": shapes.KernelFile,
    "launchers.yaml": launchers.LauncherFile,
    "layer_counts.yaml": layer_counts.LayerFile,
    "moe_router.yaml": verb_files.RouterFile,
    "new_rule.yaml": NewRule,
    "nsys_rules.yaml": shapes.NsysRuleFile,
    "operators.yaml": operators.OperatorFile,
    "redaction.yaml": verb_files.RedactionFile,
    "references.yaml": shapes.ReferenceFile,
    "step_ranges.yaml": shapes.StepFile,
    "tables.yaml": facts.TableFile,
    "troubleshooting.yaml": verb_files.TroubleFile,
    "verified.yaml": VerifiedFile,
    "whatifs.yaml": WhatIfFile,
    "workloads.yaml": engine_signs.WorkloadFile,
}


@for_each(names("knowledge"))
def test_our_files_satisfy_what_is_declared(name: str) -> None:
    load(data_dir("knowledge") / name, CONTENTS[name.partition("/")[0]])


class Part(FileContent, frozen=True, kw_only=True):
    strict: ClassVar[bool] = True

    name: Annotated[str, Constraint(pattern="^[a-z]+$")]
    parts: Annotated[tuple[Part, ...], Constraint(max_length=2)] = ()
    least: Annotated[float, Constraint(ge=0)] = 0.0
    most: float | None = None

    def __post_init__(self) -> None:
        if self.most is not None and self.most < self.least:
            raise ValueError("`most` is below `least`")


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"name": "A"}, ("name",)),
        ({"name": "a", "least": -1}, ("least",)),
        ({"name": "a", "least": float("nan")}, ("least",)),
        ({"name": "a", "least": "1"}, ("least",)),
        ({"name": "a", "parts": [{"name": "b"}] * 3}, ("parts",)),
        ({"name": "a", "parts": [{"name": "b", "other": 1}]}, ("parts", 0, "other")),
        ({"name": "a", "least": 2, "most": 1}, ()),
        ({"name": "a", "parts": [{"name": "b", "least": 2, "most": 1}]}, ("parts", 0)),
    ],
)
def test_the_model_of_a_content_finds_what_does_not_satisfy_it(
    data: dict[str, Any], place: tuple[Any, ...]
) -> None:
    with pytest.raises(ValidationError) as fault:
        schema_model(Part).model_validate(data)
    assert [e["loc"] for e in fault.value.errors()] == [place]


def test_what_fields_satisfy_together_is_checked_without_the_model_too() -> None:
    assert Part.from_data({"name": "a", "parts": [{"name": "b"}]}).parts[0].name == "b"
    with pytest.raises(ValueError, match=r"below `least` - at `\$\.parts\[1\]`"):
        Part.from_data({"name": "a", "parts": [{"name": "b"}, {"name": "c", "least": 2, "most": 1}]})


def test_conditions_are_told_by_their_first_key() -> None:
    when = When.from_data({"all": [{"fact": "a.b", "op": "ge", "value": 1}, {"cause": "c"}]})
    assert [type(c) for c in when.branches[0]] == [WideCondition, CauseCondition]
    with pytest.raises(ValueError, match="fact, symptom, cause"):
        When.from_data({"all": [{"facts": "a.b"}]})


@pytest.mark.parametrize(
    ("content", "data", "fault"),
    [
        (GainSpec, {"what_if": "x", "per": 1}, "per"),
        (GainSpec, {"what_if": "x", "otherwise": {"what_if": "y", "otherwise": {"what_if": 1}}}, "what_if"),
        (Where, {"field": "a", "op": "known", "value": True}, "`known` is for facts"),
        (Where, {"field": "a", "op": "eq"}, "exactly one of `value` and `param`"),
    ],
)
def test_parts_of_rules_are_checked_both_ways(content: type[FileContent], data: Any, fault: str) -> None:
    for read in (content.from_data, schema_model(content).model_validate):
        with pytest.raises(ValueError, match=fault):
            read(data)
