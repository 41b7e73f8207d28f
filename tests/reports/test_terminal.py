from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from advisor.model.facts import Fact, Scope, Table
from advisor.model.findings import Diagnosis, NotEvaluated, Option
from advisor.model.sensitivity import Flip, FlipFact, StateChange
from advisor.reports.layout import print_lines
from advisor.reports.terminal import TextOptions, plain, render
from tests.reports.fixture import DIAGNOSIS, HEALTHY, NASTY


def text(diagnosis: Diagnosis = DIAGNOSIS, **options: int | bool) -> str:
    return plain(diagnosis, TextOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_too_wide(width: int, verbosity: int, unicode: bool) -> None:
    for line in render(DIAGNOSIS, TextOptions(width, unicode, verbosity=verbosity)):
        assert cell_len(line.plain) <= width, line.plain


def test_order_of_the_report() -> None:
    shown = text()
    places = [
        "/data/captures",
        "NVIDIA H200 · nsys 2023.4.4 · driver 580.159 · CUDA 13.0",
        "31 decode, 1 prefill",
        "(profiled)",
        "848 kernels per step, GPU busy 41.0 %",
        "start-up",
        "Launch-bound decode",
        "1. ▲ HIGH   LCH101 launch-bound",
        "launch.idle_ratio 55.3 % >= 10.0 %",
        "55.3 % of the step (launch call, 5.49 ms a step)",
        "step 9.92 (9.10 to 10.60) → 2.31 (2.10 to 2.90) ms, 4.29 x",
        "Idle by the call that ends it",
        "1.234567s for 124 us, stream 7, thread 41873",
        "Capture the decode step as a CUDA graph",
        "vLLM: drop --enforce-eager (since 0.2.0)",
        "verify: launch.idle_ratio falls, now 55.3 %",
        "UTL100 gpu-idle, LCH100 queue-empty",
        "not estimated: the wait also orders two streams",
        "Also noted",
        "Budget of the window",
        "Top kernels",
        "gemv (43.0 % of kernel time)",
        "ncu --set full",
        "In order",
        "ALC101: 0.1 allocation and free calls",
        "Not judged",
        "capture with --gpu-metrics-devices=all",
        "UTL102 memory-bandwidth-bound,",
        "UTL105 tensor-cores-idle",
        "no option helps: COM102",
        "stopped by launch-bound: HST101",
        "Next: advisor explain LCH101",
    ]
    at = 0
    for place in places:
        assert place in shown[at:], place
        at = shown.index(place, at)
    assert shown.rstrip().splitlines()[-1] == "Next: advisor explain LCH101"


def test_functions_that_make_the_calls_are_shown_wherever_their_table_stands() -> None:
    first, sites, last = (
        Table(title=title, columns=(head, "calls"), rows=((row, 3),))
        for title, head, row in (
            ("Copies", "direction", "HtoD"),
            ("Where the copy calls come from", "called from", "load_batch"),
            ("Calls by time", "call", "cudaMemcpy"),
        )
    )
    found = DIAGNOSIS.findings[0].model_copy(update={"evidence": (first, last, sites)})
    shown = text(DIAGNOSIS.model_copy(update={"findings": (found,)}))
    assert "HtoD" in shown
    assert "load_batch" in shown
    assert "Calls by time" not in shown


@pytest.mark.parametrize(("share", "told"), [(0.034, True), (0.009, False), (None, False)])
def test_kernels_that_no_pattern_knows_are_told_by_their_share(share: float | None, told: bool) -> None:
    name = "kernel.unmapped_ratio"
    facts = tuple(f for f in DIAGNOSIS.facts if f.name != name)
    if share is not None:
        facts += (Fact(name=name, value=share, unit="ratio"),)
    shown = text(DIAGNOSIS.model_copy(update={"facts": facts}))
    assert ("unnamed   3.4 % of kernel time" in shown) is told


def test_a_condition_that_does_not_hold_is_shown_only_on_request() -> None:
    assert "launch.empty_queue_ratio" not in text()
    assert "launch.empty_queue_ratio 9.96 % >= 10.00 %" in re.sub(r"\s+", " ", text(verbosity=1)).replace(
        "9.960", "9.96"
    ).replace("10.000", "10.00")


def test_markup_in_names_is_literal() -> None:
    assert NASTY.split("\x1b", maxsplit=1)[0][:20] in text(width=120)
    assert "<script>" in text(width=120)
    assert "iteration [3]" in text()


def test_no_escape_code_of_a_name_reaches_the_terminal() -> None:
    assert "\x1b" not in text(verbosity=1)


def test_colour_is_an_addition_only() -> None:
    coloured, bare = io.StringIO(), io.StringIO()
    for stream, options in ((coloured, {"force_terminal": True}), (bare, {"no_color": True})):
        console = Console(file=stream, width=80, markup=False, highlight=False, **options)  # type: ignore[arg-type]
        print_lines(console, render(DIAGNOSIS, TextOptions()))
    assert "\x1b[" in coloured.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue()) == bare.getvalue() == text()


def test_top_limits_what_is_told_in_full() -> None:
    shown = text(top=1)
    assert "22 copies of up to 4 KiB" not in shown
    assert "1 more  --top 2 shows all in full" in shown
    assert "SYN103 readback-per-layer" in shown


def test_what_an_earlier_finding_showed_is_not_repeated() -> None:
    again = DIAGNOSIS.findings[0].model_copy(update={"rank": 2, "code": "LCH102"})
    twice = DIAGNOSIS.model_copy(update={"findings": (DIAGNOSIS.findings[0], again)})
    shown = text(twice)
    assert shown.count("cuLaunchKernelEx") == shown.count("vLLM: drop") == 1
    assert "Idle by the call that ends it: as in 1." in shown
    assert "options: as in 1." in shown
    assert text(twice, verbosity=1).count("vLLM: drop") == 2


def test_quiet_is_the_verdict_and_one_line_a_finding() -> None:
    lines = text(verbosity=-1).splitlines()
    assert lines[0].startswith("Launch-bound decode")
    assert [line.split()[0] for line in lines[-3:]] == ["1", "2", "3"]
    assert len(lines) == 5


def test_a_share_of_all_is_a_percentage_too() -> None:
    first = DIAGNOSIS.findings[0]
    assert first.impact is not None
    whole = first.model_copy(update={"impact": first.impact.model_copy(update={"share": 1.0})})
    shown = text(DIAGNOSIS.model_copy(update={"findings": (whole,)}), verbosity=-1)
    assert f"{first.cause} 100.0 %  " in shown


def test_a_limit_is_named_as_one_and_not_as_an_alarm() -> None:
    first, *rest = DIAGNOSIS.findings
    limit = first.model_copy(update={"kind": "limit"})
    shown = text(DIAGNOSIS.model_copy(update={"findings": (limit, *rest)}))
    (line,) = [row for row in shown.splitlines() if row.startswith("1. ")]
    assert "LIMIT" in line
    assert "HIGH" not in line


def test_what_is_close_is_not_among_the_ticks() -> None:
    first, *rest = DIAGNOSIS.healthy
    close = first.model_copy(update={"close": True})
    shown = text(DIAGNOSIS.model_copy(update={"healthy": (close, *rest)}))
    assert f"In order  {len(rest)} checked" in shown
    assert shown.index("Close  no finding") < shown.index(f"~ {first.code}:")


def test_verbose_adds_facts_and_phases() -> None:
    shown = text(verbosity=1)
    for part in ("Facts", "Budget by phase", "Changed thresholds", "max_over_p50"):
        assert part in shown
        assert part not in text()


def test_plain_signs_are_ascii() -> None:
    shown = text(HEALTHY, unicode=False)
    assert shown.isascii()
    assert "+ SYN101: Waits cost" in shown


def test_a_healthy_capture() -> None:
    shown = text(HEALTHY)
    assert "Nothing to fix above 3 %" in shown
    assert "Next: advisor rules list" in shown


def test_of_a_void_capture_only_the_flags_are_listed() -> None:
    void = DIAGNOSIS.findings[0].model_copy(update={"invalidates": True, "severity": "info"})
    shown = text(DIAGNOSIS.model_copy(update={"findings": (void,)}))
    assert "LCH101 launch-bound" in shown
    assert "Also noted" not in shown
    assert "capture with --gpu-metrics-devices=all: 2 causes" in shown
    assert "UTL105" not in shown


def test_an_empty_diagnosis_renders() -> None:
    bare = Diagnosis(tool=HEALTHY.tool, inputs=(), verdict="Nothing to analyse.")
    assert text(bare).startswith("Nothing to analyse.")


def test_same_input_same_text() -> None:
    again = Diagnosis.model_validate_json(DIAGNOSIS.model_dump_json())
    assert text(again, verbosity=1) == text(verbosity=1)


def test_what_is_in_order_is_cut_to_the_most_telling() -> None:
    entry = DIAGNOSIS.healthy[0]
    many = tuple(entry.model_copy(update={"code": f"ABC{i}"}) for i in range(101, 127))
    shown = text(DIAGNOSIS.model_copy(update={"healthy": many}))
    assert "26 checked and found well" in shown
    assert "✓ ABC108: " in shown
    assert "ABC109" not in shown
    assert "  and 18 more (-v)" in shown
    full = text(DIAGNOSIS.model_copy(update={"healthy": many}), verbosity=1)
    assert "ABC126" in full
    assert "18 more (-v)" not in full


def test_causes_that_wait_for_the_same_stand_in_one_entry() -> None:
    flags = {
        "KRN101": "--trace=cuda,nvtx,osrt",
        "KRN102": "a longer capture (10 to 50 steps)",
        "KRN103": "--trace=cuda,nvtx,osrt",
        "KRN104": "--weight-bytes",
        "KRN105": None,
    }
    entries = tuple(
        NotEvaluated(code=code, cause=f"cause-{code.lower()}", missing=("f.a",), flag=flag)
        for code, flag in flags.items()
    )
    section = text(DIAGNOSIS.model_copy(update={"not_evaluated": entries}))
    section = section[section.index("Not judged") : section.index("Next:")]
    assert section.splitlines()[1:] == [
        "  capture with --trace=cuda,nvtx,osrt: KRN101 cause-krn101, KRN103 cause-krn103",
        "  give advisor --weight-bytes: KRN104 cause-krn104",
        "  needs a longer capture (10 to 50 steps): KRN102 cause-krn102",
        "  no option helps: KRN105 cause-krn105",
        "",
    ]


@pytest.mark.parametrize(
    ("engine", "confidence", "evidence", "wanted"),
    [
        ("vllm", 0.92, ("range: execute_context_1(2)",), "vllm (0.92)"),
        ("vllm", 1.0, ("named by --serving-engine",), "vllm (as named)"),
        ("vllm", None, (), "CUDA 13.0 · vllm\n"),
    ],
)
def test_the_engine_is_shown_with_its_confidence(
    engine: str, confidence: float | None, evidence: tuple[str, ...], wanted: str
) -> None:
    entry = DIAGNOSIS.inputs[0].model_copy(
        update={"serving_engine": engine, "serving_confidence": confidence, "serving_evidence": evidence}
    )
    told = DIAGNOSIS.model_copy(update={"inputs": (entry,)})
    assert wanted in text(told, width=120)
    if evidence:
        assert f"told by {evidence[0]}" in text(told, verbosity=1)


def test_at_most_three_options_are_printed() -> None:
    found = DIAGNOSIS.findings[0]
    options = tuple(Option(engine="vllm", line=f"--option-{i}") for i in range(4))
    advice = found.recommendations[0].model_copy(update={"options": options})
    one = found.model_copy(update={"recommendations": (advice,)})
    shown = text(DIAGNOSIS.model_copy(update={"findings": (one,)}))
    assert "--option-2" in shown
    assert "--option-3" not in shown


def flip(**more: Any) -> Flip:
    change = StateChange(
        code="LCH101", cause="launch-bound", scope=Scope(device=0), before="fired", after="not_evaluated"
    )
    near = FlipFact(fact="launch.idle_ratio", op="ge", value=0.105, unit="ratio")
    body: dict[str, Any] = {
        "code": "LCH101",
        "cause": "launch-bound",
        "param": "min_idle",
        "unit": "ratio",
        "threshold": 0.1,
        "moved_to": 0.11,
        "facts": (near,),
        "changes": (change,),
    }
    return Flip(**body | more)


def test_verdicts_near_a_threshold() -> None:
    shown = text(DIAGNOSIS.model_copy(update={"sensitivity": (flip(first_before="LCH101"),)}))
    section = shown[shown.index("Near a threshold") :].splitlines()
    assert section[1:5] == [
        "  LCH101 launch-bound (device 0) fired → not evaluated",
        "    threshold LCH101.min_idle 10.0 %, tried 11.0 %",
        "    number    launch.idle_ratio is 10.5 %",
        "    first     nothing instead of LCH101",
    ]


def test_many_changes_of_one_threshold_are_counted() -> None:
    changes = tuple(flip().changes[0].model_copy(update={"code": f"AAA{i}"}) for i in range(5))
    told = DIAGNOSIS.model_copy(update={"sensitivity": (flip(changes=changes),)})
    assert "and 2 more (-v)" in text(told)
    assert "AAA4" in text(told, verbosity=1)


def test_sensitivity_is_told_only_where_asked() -> None:
    assert "Near a threshold" not in text()
    none = text(DIAGNOSIS.model_copy(update={"sensitivity": ()}))
    assert "no verdict: every number is further than a tenth" in none


def test_the_last_line_names_the_tool_of_the_command_above() -> None:
    assert HEALTHY.next_target is None
    target = DIAGNOSIS.next_target
    assert target is not None
    amd = target.model_copy(update={"command": "rocprof-compute profile --name measured"})
    for one, name in ((target, "ncu"), (amd, "rocprof-compute")):
        shown = text(HEALTHY.model_copy(update={"next_target": one}))
        assert shown.rstrip().splitlines()[-1] == f"Next: the {name} line above"
