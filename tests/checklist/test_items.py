"""What facts answer, item by item; and what must hold of all items."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.checklist.items import CaptureFacts, capture_facts, checklist
from advisor.cli.main import main
from advisor.comparison.change_facts import EVERY_FACT
from advisor.engine.lint_names import fact_tests, facts_used
from advisor.engine.values import placeholders
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import references
from advisor.knowledge.verb_files import ChecklistFile, ChecklistItem, checklist_items
from advisor.model.facts import Fact, Scope
from advisor.model.file_schema import schema_model
from advisor.model.findings import Diagnosis, Input, NotEvaluated, Threshold, Tool
from advisor.model.review import CheckEntry
from tests.for_each import for_each
from tests.shipped import shipped_rules

ITEMS = checklist_items().items
RULES = shipped_rules()
JUDGED = RULES.about("checklist").by_cause


SAMPLED = {"capture.sample_count": 5, "activity.sm_ratio": 0.5}


def known(captures: list[dict[str, Any]], engine: str | None = None, **limits: float) -> CaptureFacts:
    """Captures with these facts; a list is one value a device."""
    values: dict[str, list[list[Any]]] = {}
    for at, facts in enumerate(captures):
        for name, value in facts.items():
            lists = values.setdefault(name, [[] for _ in captures])
            lists[at] += value if isinstance(value, list) else [value]
    return CaptureFacts(
        captures=tuple(f"/data/run{i}.sqlite" for i in range(len(captures))),
        engine=engine,
        values={n: tuple(map(tuple, v)) for n, v in values.items()},
        units={n: EVERY_FACT[n].unit for n in values},
        limits={(k[:6], k[8:]): v for k, v in limits.items()},
    )


def entry(name: str, *captures: dict[str, Any], engine: str | None = None, **limits: float) -> CheckEntry:
    listed = checklist(known(list(captures), engine, **limits))
    return next(e for e in listed.entries if e.id == name)


# --- one item --------------------------------------------------------------------------------


def test_without_a_capture_everything_is_asked() -> None:
    listed = checklist(CaptureFacts())
    assert all(e.open and e.by is None and not e.proof for e in listed.entries)
    assert {e.command for e in listed.entries if e.id == "profiler-cheap"} == {"advisor doctor TRACE"}


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ({"capture.gpu_work_count": 12_752, "capture.kernel_count": 12_736}, "yes"),
        ({"capture.gpu_work_count": 0}, "no"),
        ({"capture.kernel_count": 3}, None),
    ],
)
def test_yes_no_and_unknown(facts: dict[str, Any], answer: str | None) -> None:
    found = entry("cuda-collected", facts)
    assert found.answer == answer
    assert found.by == ("capture" if answer else None)


def test_the_number_is_said() -> None:
    found = entry("cuda-collected", {"capture.gpu_work_count": 12_752, "capture.kernel_count": 9})
    assert found.proof == "9 kernels among 12,752 GPU operations"
    (condition,) = found.conditions
    assert (condition.value, condition.threshold, condition.holds) == (12_752, 1, True)


def test_the_limit_is_that_of_the_rule() -> None:
    facts = {"capture.size_bytes": 3e9, "capture.event_count": 10}
    assert entry("small-enough", facts, CAP106__max_size=2e9, CAP106__max_events=2e7).answer == "no"
    assert entry("small-enough", facts, CAP106__max_size=4e9, CAP106__max_events=2e7).answer == "yes"


def replaced(folder: Path, code: str, old: str, new: str) -> Path:
    """A folder with a rule of ours, changed by its user."""
    path = RULES.path(code)
    assert path is not None
    body = path.read_text(encoding="utf-8")
    assert old in body
    (folder / path.name).write_text(body.replace(old, new), encoding="utf-8")
    return folder


def test_a_question_may_be_replaced_by_a_rule_of_the_users(tmp_path: Path) -> None:
    facts = known([SAMPLED])
    stricter = replaced(tmp_path, "CHK208", "param: CAP108.min_samples", "value: 100")

    def answer(*folders: Path) -> str | None:
        return next(e.answer for e in checklist(facts, None, folders).entries if e.id == "metrics-sampled")

    assert (answer(), answer(stricter)) == ("yes", "no")


def test_a_rule_of_the_users_without_the_parameter_leaves_ours(tmp_path: Path) -> None:
    folder = replaced(tmp_path, "CAP108", "min_samples", "least_samples")
    entries = checklist(known([SAMPLED]), None, [folder]).entries
    assert next(e.answer for e in entries if e.id == "metrics-sampled") == "yes"


def test_no_condition_holds_a_number_of_its_own() -> None:
    """What `--param` moves is the limit of a rule; the checklist has one where no finding judges the fact."""
    held = [c for rule in JUDGED.values() for _, c in fact_tests(rule)]
    assert held
    assert [c for c in held if type(c.value) in (int, float)] == []
    of_findings = {c.fact for rule in RULES.rules if rule not in JUDGED.values() for _, c in fact_tests(rule)}
    own = {c.fact for rule in JUDGED.values() for _, c in fact_tests(rule) if c.param in rule.params}
    assert own == {"kernel.unmapped_ratio"}
    assert not own & of_findings
    few = entry("metrics-sampled", SAMPLED, CAP108__min_samples=10)
    assert (few.answer, entry("metrics-sampled", SAMPLED).answer) == ("no", "yes")


def test_several_devices_must_all_hold() -> None:
    limit = {"CAP110__min_overhead": 0.05}
    assert entry("profiler-cheap", {"capture.overhead_idle_ratio": [0.0, 0.01]}, **limit).answer == "yes"
    found = entry("profiler-cheap", {"capture.overhead_idle_ratio": [0.0, 0.2]}, **limit)
    assert found.answer == "no"
    assert found.proof == "0 % to 20 % of the window is idle time that the profiler caused"


def test_several_captures_name_who_says_what() -> None:
    found = entry(
        "cuda-collected",
        {"capture.gpu_work_count": 4, "capture.kernel_count": 4},
        {"capture.gpu_work_count": 0, "capture.kernel_count": 0},
    )
    assert found.answer == "no"
    assert found.proof == (
        "run0.sqlite: 4 kernels among 4 GPU operations; run1.sqlite: 0 kernels among 0 GPU operations"
    )
    missing = entry("cuda-collected", {"capture.gpu_work_count": 4}, {})
    assert missing.answer is None


def test_phases_may_come_from_different_captures() -> None:
    prefill, decode = (
        {"phase.is_prefill": True, "phase.is_decode": False},
        {"phase.is_prefill": False, "phase.is_decode": True},
    )
    assert entry("phases-apart", prefill, decode).answer == "yes"
    assert entry("phases-apart", decode).answer is None


def test_what_is_not_told_is_a_no_with_the_flag_that_would_tell() -> None:
    diagnosis = Diagnosis(
        tool=Tool(version="1", engine="python"),
        inputs=(Input(path="a.sqlite", format="nsys-sqlite"),),
        verdict="",
        not_evaluated=(
            NotEvaluated(
                code="HST103", cause="gil", missing=("host.gil_wait_ratio",), flag="--trace=python-gil"
            ),
        ),
    )
    listed = checklist(capture_facts([diagnosis]))
    found = next(e for e in listed.entries if e.id == "gil-recorded")
    assert found.answer == "no"
    assert found.proof == "the capture does not record host.gil_wait_ratio (--trace=python-gil would)"


def test_items_of_other_engines_do_not_apply() -> None:
    assert entry("dataset-prepared", {}, engine="vllm").proof == "for tensorrt-llm; this is vllm"
    assert entry("dataset-prepared", {}, engine="tensorrt-llm").answer is None
    assert entry("gil-recorded", {}, engine="native").answer == "not_applicable"
    listed = checklist(CaptureFacts(engine="vllm"))
    assert next(e for e in listed.entries if e.id == "dataset-prepared").answer == "not_applicable"


def test_items_apply_by_facts() -> None:
    assert entry("expert-balance", {"kernel.moe_ratio": [0.0, 0.3]}).answer is None
    assert entry("expert-balance", {"kernel.moe_ratio": 0.0}).proof == "no mixture-of-experts kernels"
    assert entry("expert-balance", {}).answer is None
    assert entry("all-ranks", {}).answer == "not_applicable"
    many = {"ranks.world_size": 8, "ranks.count": 3, "ranks.missing_count": 5}
    assert entry("all-ranks", many).proof == "3 ranks given, 5 missing"


def test_known_of_takes_facts_inputs_and_limits() -> None:
    diagnosis = Diagnosis(
        tool=Tool(version="1", engine="python"),
        inputs=(Input(path="x/a.sqlite", format="f", cuda="13.0", serving_engine="vllm"),),
        verdict="",
        facts=(Fact(name="launch.idle_ratio", value=0.5, unit="ratio", scope=Scope(device=0)),),
        thresholds=(
            Threshold(code="CAP105", param="min_steps", value=7, default=5, unit="count", origin="seed"),
        ),
    )
    found = capture_facts([diagnosis])
    assert found.values["launch.idle_ratio"] == ((0.5,),)
    assert found.values["input.cuda"] == (("13.0",),)
    assert found.limits == {("CAP105", "min_steps"): 7}
    assert found.engine == "vllm"
    assert capture_facts([diagnosis], "sglang").engine == "sglang"


@pytest.mark.parametrize(
    ("producer", "cuda", "answer"),
    [
        ("NVIDIA Nsight Systems 2023.4.4.54", "13.0", "no"),
        ("NVIDIA Nsight Systems 2025.5.1", "13.0", None),
        ("NVIDIA Nsight Systems 2023.4.4.54", "12.2", None),
        ("NVIDIA Nsight Systems 2023.4.4.54", None, None),
        ("PyTorch profiler", "13.0", None),
    ],
)
def test_an_nsys_older_than_the_driver_is_told(producer: str, cuda: str | None, answer: str | None) -> None:
    entry = Input(path="a.sqlite", format="nsys-sqlite", producer=producer, cuda=cuda)
    diagnosis = Diagnosis(tool=Tool(version="1", engine="python"), inputs=(entry,), verdict="")
    found = {e.id: e for e in checklist(capture_facts([diagnosis])).entries}["nsys-new-enough"]
    # Whether the viewer is new enough only a person knows, so nothing but a no comes from facts.
    assert found.answer == answer
    assert producer in found.proof


@pytest.mark.parametrize(
    ("given", "answer", "proof"),
    [
        (("decode_eager_bs1", "decode_graph_bs1"), "yes", "Improvement"),
        (("decode_graph_bs1", "decode8b_graph_bs1"), None, "Not comparable"),
        (("decode_graph_bs1", "decode_graph_bs1"), None, "the same steps"),
        (("decode_graph_bs1",), None, ""),
    ],
)
def test_it_takes_a_comparison_that_ran(
    given: tuple[str, ...], answer: str | None, proof: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two captures alone are no comparison: they have to do the same work."""
    folder = Path(__file__).parents[2] / "examples" / "captures"
    paths = [str(folder / f"{name}.sqlite.xz") for name in given]
    if len(set(paths)) < len(paths):  # of one path the program would read one capture
        paths[1] = str(shutil.copy(paths[1], tmp_path / "again.sqlite.xz"))
    assert main(["checklist", *paths, "--no-input", "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    found = next(e for e in entries if e["id"] == "compared-with-baseline")
    assert found["answer"] == answer
    assert proof in found["proof"]
    assert bool(proof) == bool(found["proof"])


#: What proves nothing about an item: facts of another tool, of half of it, or of nothing at all.
UNPROVEN: dict[str, dict[str, Any]] = {
    "nsys-reachable": {"capture.nsys_recorded": False},
    "counters-permitted": {
        "capture.sample_count": 60,
        "capture.nsys_recorded": False,
        "activity.sm_ratio": 0.9,
    },
    "versions-noted": {"capture.nsys_recorded": True},
    "graph-mode-chosen": {"capture.graphs_launched": False, "capture.opaque_graph_ratio": 0.0},
    "metrics-sampled": {"capture.sample_count": 60},
    "sm-analysed": {"activity.sm_busy_ratio": 0.9},
    "bandwidth-analysed": {"activity.dram_busy_ratio": 0.9, "activity.work_recorded": False},
    "redacted": {},
}


@pytest.mark.parametrize("item", UNPROVEN)
def test_nothing_is_ticked_without_a_proof(item: str) -> None:
    assert entry(item, UNPROVEN[item]).answer != "yes"


# --- all items -------------------------------------------------------------------------------


def named_facts(item: ChecklistItem) -> Iterator[str]:
    """Every fact that an item speaks of."""
    if item.id in JUDGED:
        yield from (name for _, name in facts_used(JUDGED[item.id]))
    for line in item.say:
        for placeholder in placeholders(line):
            yield placeholder.name


@for_each(ITEMS, lambda i: i.id)
def test_facts_parameters_engines_and_sources_exist(item: ChecklistItem) -> None:
    assert [f for f in named_facts(item) if f not in EVERY_FACT] == []
    if item.id not in JUDGED:
        assert all((item.question, item.why, item.how))
        assert item.source in references()
        return
    assert not any((item.question, item.why, item.how, item.source)), "the rule says it"
    rule = JUDGED[item.id]
    assert all((rule.docs.fix, rule.docs.references))
    for _, test in fact_tests(rule):
        assert test.over is not None, "one of several captures would be looked at"  # type: ignore[attr-defined]
        if test.param and test.param not in rule.params:
            code, _, param = test.param.partition(".")
            used = {c.fact for _, c in fact_tests(RULES.by_code[code]) if c.param == param}
            assert test.fact in used, f"{test.param} is no limit of {test.fact}"
        if test.fact == "input.serving_engine" and isinstance(test.value, str):
            assert test.value in engines()


def test_every_rule_about_the_checklist_has_an_item() -> None:
    assert sorted(JUDGED) == sorted(i.id for i in ITEMS if i.id in JUDGED)


#: The checklist of the field notes, in its words' sense.
SEEDS = {
    "representative-workload",
    "steady-iterations",
    "cuda-collected",
    "nvtx-collected",
    "sm-analysed",
    "bandwidth-analysed",
    "dominant-kernels",
    "cpu-analysed",
    "gil-recorded",
    "compared-with-baseline",
    "documented",
    # before, during and after
    "shapes-chosen",
    "release-build",
    "nsys-reachable",
    "nsys-status",
    "warmed-up",
    "load-levels",
    "graph-mode-chosen",
    "phases-apart",
    "server-wrapped",
    "counters-permitted",
}


def test_the_seeds_are_covered() -> None:
    ids = [item.id for item in ITEMS]
    assert set(ids) >= SEEDS
    assert [i.stage for i in ITEMS] == sorted(
        (i.stage for i in ITEMS), key=["before", "during", "after"].index
    )


def test_every_command_of_ours_exists() -> None:
    for item in ITEMS:
        if item.command and item.command.startswith("advisor"):
            check_command(item.command)


def check_command(command: str) -> None:
    """The verb and the options of a command line of ours."""
    from advisor.cli.app import VERBS, app

    words = command.split("#")[0].split()
    verb = words[1] if words[1] in VERBS else "diagnose"
    found: Any = app.get_command(None, verb)
    rest = words[2:]
    while hasattr(found, "commands") and rest:
        found, rest = found.commands[rest[0]], rest[1:]
    known_options = {o for p in found.params for o in (*p.opts, *p.secondary_opts)}
    used = [w.partition("=")[0] for w in rest[: rest.index("--") if "--" in rest else None]]
    assert [w for w in used if re.match(r"--?[a-z]", w) and w not in known_options] == [], command


@pytest.mark.parametrize(
    ("change", "says"),
    [({"question": "Is it"}, "question"), ({"stage": "later"}, "stage"), ({"yes": []}, "yes")],
)
def test_a_faulty_item_is_refused(change: dict[str, Any], says: str) -> None:
    item = {
        "id": "x",
        "stage": "before",
        "question": "Is it?",
        "why": "w",
        "how": "h",
        "source": "seed-0",
        **change,
    }
    stages = {"before": "b", "during": "d", "after": "a"}
    with pytest.raises(ValueError, match=says):
        schema_model(ChecklistFile).model_validate({"schema": 1, "stages": stages, "items": [item]})


def test_ids_are_unique() -> None:
    ids = [item.id for item in ITEMS]
    assert len(set(ids)) == len(ids)
