from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from advisor.model.facts import Fact, Scope
from advisor.model.findings import Diagnosis, NotEvaluated
from advisor.model.gain import Flip, FlipFact, Span, StateChange, ToDo
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.layout import print_lines
from tests.reports.fixture import DIAGNOSIS, HEALTHY, NASTY, in_order, page_lines, plain


def short(
    diagnosis: Diagnosis = DIAGNOSIS, width: int = 80, unicode: bool = True, **options: int | bool
) -> str:
    return plain(diagnosis, TextOptions(**options), width, unicode)  # type: ignore[arg-type]


def text(diagnosis: Diagnosis = DIAGNOSIS, **options: int | bool) -> str:
    """All that `-v` prints."""
    return short(diagnosis, **{"verbosity": 1, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_too_wide(width: int, verbosity: int, unicode: bool) -> None:
    for line in page_lines([DIAGNOSIS], TextOptions(verbosity=verbosity), width, unicode):
        assert cell_len(line.plain) <= width, line.plain


# --- the short form --------------------------------------------------------------------------


def test_the_short_form_begins_with_what_to_do_and_what_it_wins() -> None:
    lines = short().splitlines()
    assert lines[:2] == [
        "/data/captures/2026-11-20/decode_[eager]_batch_size_1.sqlite",
        "NVIDIA H200 · nsys 2023.4.4 · transformers · LLM decode · 31 decode steps, 1",
    ]
    assert "Use CUDA graphs: step 9.92 → 2.31 ms, 4.29 x (3.10 to 4.70)" in lines[:8]
    assert len(lines) <= 30
    # The path would not fit.
    assert lines[-2:] == ["Next: advisor show TRACE 1", "Fixed? advisor compare TRACE AFTER"]


def test_the_short_form_has_one_table_with_shares_savings_and_fixes() -> None:
    lines = short().splitlines()
    (head,) = [i for i, line in enumerate(lines) if line.split()[:2] == ["#", "severity"]]
    assert lines[head].split("  ")[-1] == "do first"
    assert [line.split() for line in lines[head + 1 : head + 3]] == [
        ["1", "▲", "HIGH", "LCH101", "launch-bound", "55.3", "%", "-", "use", "CUDA", "graphs"],
        ["2", "▽", "LOW", "SYN103", "readback-per-layer", "3.1", "%", "-", "on", "device"],
    ]
    assert "noted     CAP109 sampling-too-coarse" in short()
    last = " ".join(short().split())
    assert "2 findings, 1 note; 2 checks in order, 5 not judged: no GPU metrics (2), " in last
    assert "no host trace (1) and 2 more. All: -v; share: --html FILE; gate: --fail-on high Next: " in last
    assert "2 findings (1 high, 1 low), 1 note · 2 in order · 5 not judged" in text()


def test_what_a_fix_saves_alone_stands_in_the_table_and_behind_which_it_saves_another_share() -> None:
    first, second = DIAGNOSIS.findings[:2]
    assert first.gain is not None
    own = first.replaced(gain=first.gain.replaced(alone=0.767))
    part = second.replaced(gain=first.gain.replaced(alone=0.25, after_first=0.04, part_of=first.code))
    printed = short(DIAGNOSIS.replaced(findings=(own, part)))
    assert "55.3 %  76.7 %  use CUDA graphs" in printed
    assert re.search(r"readback-per-layer +3\.1 % +25 %  part of #1: ", printed)


def test_more_tokens_are_no_shorter_step() -> None:
    first = DIAGNOSIS.findings[0]
    assert first.gain is not None
    batch = first.gain.replaced(measure="throughput", per="token")
    shown = short(DIAGNOSIS.replaced(findings=(first.replaced(gain=batch),)))
    assert "Use CUDA graphs: more tokens/s; no step gets shorter\n" in shown
    assert "55.3 %      -  use CUDA graphs" in shown


def test_what_has_to_be_done_before_stands_before() -> None:
    """All that the fix requires, and what they win together."""
    headline, (first, other) = DIAGNOSIS.headline, DIAGNOSIS.findings[:2]
    assert headline is not None
    assert first.gain is not None
    needed = ToDo(
        code=other.code,
        cause=other.cause,
        id="a",
        action=other.recommendations[0].action,
        because=f"before {first.cause}: a graph holds no wait",
    )
    own = ToDo(code=first.code, cause=first.cause, id="b", action=first.recommendations[0].action)
    after = first.gain.replaced(step_after_ms=Span(low=1, mid=2, high=3))
    asked = {"do": (needed, own), "headline": headline.replaced(together=after)}
    shown = short(DIAGNOSIS.replaced(**asked))
    assert "On device, then use CUDA graphs: step 9.92 → 2.00 ms" in shown

    elsewhere = needed.replaced(because="before startup-in-window: another cause")
    shown = short(DIAGNOSIS.replaced(**{**asked, "do": (elsewhere, own)}))
    assert "\nUse CUDA graphs: step 9.92 → 2.00 ms" in shown


def test_limits_stand_apart_from_what_is_to_mend() -> None:
    first, *rest = DIAGNOSIS.findings
    limit = first.replaced(kind="limit")
    shown = short(DIAGNOSIS.replaced(findings=(limit, *rest)))
    assert "  limit     #1 high LCH101 launch-bound 55.3 %: use CUDA graphs" in shown
    assert "▲ HIGH" not in shown


def test_a_rule_that_fired_in_several_places_takes_one_row() -> None:
    first = DIAGNOSIS.findings[0]
    there = first.replaced(rank=2, scope=Scope(device=1))
    shown = short(DIAGNOSIS.replaced(findings=(first, there)))
    assert "LCH101 launch-bound (2 places)" in shown
    assert len([line for line in shown.splitlines() if "HIGH" in line]) == 1


def test_top_limits_the_rows_of_the_table() -> None:
    shown = short(top=1)
    assert "SYN103" not in shown
    assert "... and 1 more (-v)" in shown


def test_warnings_of_the_capture_are_on_the_first_screen() -> None:
    assert "warning   CPU sampling was not available (2 times)" in short()


def test_a_capture_without_a_fault_says_so_and_what_to_measure() -> None:
    target = DIAGNOSIS.next_target
    assert target is not None
    shown = short(HEALTHY.replaced(next_target=target))
    assert "Nothing to fix above 3 %" in shown
    assert "  ncu --set full" in shown
    assert shown.splitlines()[-1] == "Next: the ncu line above"
    assert short(HEALTHY).splitlines()[-1] == "Next: advisor rules list"
    assert "gemv 43 % of kernel time" in shown
    target = target.replaced(collectives_share=0.5)
    shown = short(HEALTHY.replaced(next_target=target))
    assert "collectives 50 %, gemv 43 % of kernel time" in shown


def test_several_captures_get_a_row_each_and_totals() -> None:
    lines = [line.plain for line in page_lines([DIAGNOSIS, HEALTHY], TextOptions(named=True), 100)]
    assert lines[0].split("  ")[1] == "capture"
    assert lines[1].split() == [
        "decode_[eager]_batch_size_1",
        "-",
        "41",
        "%",
        "▲",
        "LCH101",
        "-",
        "use",
        "CUDA",
        "graphs",
    ]
    assert lines[2].split()[0] == "well"
    assert lines[2].endswith("nothing to fix")
    assert lines[4] == "2 captures: 1 high, 1 with nothing to fix; -v prints each in full"


def test_quiet_is_what_to_do_and_what_it_wins() -> None:
    lines = short(verbosity=-1, width=120).splitlines()
    assert lines == ["Use CUDA graphs: step 9.92 → 2.31 ms, 4.29 x (3.10 to 4.70) (LCH101 launch-bound)"]
    named = short(verbosity=-1, width=120, named=True)
    assert named.startswith("/data/captures/2026-11-20/decode_[eager]_batch_size_1.sqlite: Use CUDA graphs")


# --- all of it -------------------------------------------------------------------------------


def test_order_of_the_report() -> None:
    shown = text()
    places = [
        "/data/captures",
        "NVIDIA H200 · nsys 2023.4.4 · driver 580.159 · CUDA 13.0",
        "31 decode, 1 prefill",
        "(profiled)",
        "848 kernels per step, GPU busy 41 %",
        "start-up",
        "Use CUDA graphs: step 9.92",
        "Launch-bound decode",
        "1. ▲ HIGH   LCH101 launch-bound",
        "because ",
        "launch.idle_ratio          55.3 %  >= 10 %    yes    min_idle",
        "55.3 % of the step (launch or other call, 5.49 ms",
        "untraced step 9.92 (9.10 to 10.60) → 2.31 (2.10 to 2.90) ms, 4.29 x",
        "Idle by the call that ends it",
        "1.234567s for 124 us, stream 7, thread 41873",
        "Capture the decode step as a CUDA graph",
        "vLLM: drop --enforce-eager (since 0.2.0)",
        "verify: launch.idle_ratio falls, now 55.3 %",
        "UTL100 gpu-idle, LCH100 queue-empty",
        "not estimated: the wait also orders two streams",
        "Budget of the window",
        "Top kernels",
        "gemv (43 % of kernel time)",
        "ncu --set full",
        "Healthy",
        "ALC101 allocation-churn (device 0): 0.1 allocation and free calls",
        "Not judged",
        "capture with --gpu-metrics-devices=all",
        "UTL102 memory-bandwidth-bound,",
        "UTL105 tensor-cores-idle",
        "no option helps: COM102",
        "stopped by launch-bound: HST101",
        "Next: advisor show TRACE 1",
    ]
    in_order(shown, places)
    assert shown.rstrip().splitlines()[-1] == "Next: advisor show TRACE 1"


@pytest.mark.parametrize(("share", "told"), [(0.034, True), (0.009, False), (None, False)])
def test_kernels_that_no_pattern_knows_are_told_by_their_share(share: float | None, told: bool) -> None:
    name = "kernel.unmapped_ratio"
    facts = tuple(f for f in DIAGNOSIS.facts if f.name != name)
    if share is not None:
        facts += (Fact(name=name, value=share, unit="ratio"),)
    shown = text(DIAGNOSIS.replaced(facts=facts))
    assert ("unnamed   3.4 % of kernel time" in shown) is told


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
        print_lines(console, page_lines([DIAGNOSIS]))
    assert "\x1b[" in coloured.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue()) == bare.getvalue() == short()


def test_a_limit_is_named_as_one_and_not_as_an_alarm() -> None:
    first, *rest = DIAGNOSIS.findings
    limit = first.replaced(kind="limit")
    shown = text(DIAGNOSIS.replaced(findings=(limit, *rest)))
    (line,) = [row for row in shown.splitlines() if row.startswith("1. ")]
    assert "LIMIT" in line
    assert "HIGH" not in line


def test_what_is_close_is_not_among_the_ticks() -> None:
    first, *rest = DIAGNOSIS.healthy
    close = first.replaced(close=True)
    shown = text(DIAGNOSIS.replaced(healthy=(close, *rest)))
    assert f"Healthy  {len(rest)} checked" in shown
    assert shown.index("Close  no finding") < shown.index(f"~ {first.code} ")


def test_verbose_adds_facts_and_phases() -> None:
    for part in ("Budget by phase", "Changed thresholds"):
        assert part in text()
        assert part not in short()
    for part in ("Facts", "max_over_p50"):
        assert part in text(verbosity=2)
        assert part not in text()


def test_plain_signs_are_ascii() -> None:
    assert text(HEALTHY, unicode=False).isascii()
    assert "+ SYN101 blocking-sync: Waits cost" in text(HEALTHY, unicode=False)
    assert "step 9.92 -> 2.31 ms" in short(unicode=False)
    assert " | " in short(unicode=False).splitlines()[1]


def test_a_healthy_capture() -> None:
    shown = text(HEALTHY)
    assert "Nothing to fix above 3 %" in shown
    assert "Next: advisor rules list" in shown


def test_an_empty_diagnosis_renders() -> None:
    bare = Diagnosis(tool=HEALTHY.tool, inputs=(), verdict="Nothing to analyse.")
    assert short(bare).startswith("Nothing to analyse.")
    assert "Nothing to analyse." in text(bare)


def test_same_input_same_text() -> None:
    again = Diagnosis.model_validate_json(DIAGNOSIS.model_dump_json())
    assert text(again, verbosity=1) == text(verbosity=1)


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
    section = text(DIAGNOSIS.replaced(not_evaluated=entries))
    section = section[section.index("Not judged") : section.index("Next:")]
    assert [line for line in section.splitlines()[1:] if not line.startswith("    ")][:4] == [
        "  capture with --trace=cuda,nvtx,osrt: KRN101 cause-krn101, KRN103 cause-krn103",
        "  give advisor --weight-bytes: KRN104 cause-krn104",
        "  needs a longer capture (10 to 50 steps): KRN102 cause-krn102",
        "  no option helps: KRN105 cause-krn105",
    ]


@pytest.mark.parametrize(
    ("engine", "confidence", "evidence", "wanted"),
    [
        ("vllm", 0.92, ("range: execute_context_1(2)",), "vllm, 92 % sure"),
        ("vllm", 1.0, ("named by --serving-engine",), "vllm (as named)"),
        ("vllm", None, (), "CUDA 13.0 · vllm\n"),
    ],
)
def test_the_engine_is_shown_with_its_confidence(
    engine: str, confidence: float | None, evidence: tuple[str, ...], wanted: str
) -> None:
    entry = DIAGNOSIS.inputs[0].replaced(
        serving_engine=engine, serving_confidence=confidence, serving_evidence=evidence
    )
    told = DIAGNOSIS.replaced(inputs=(entry,))
    assert wanted in text(told, width=120)
    if evidence:
        assert f"evidence: {evidence[0]}" in text(told, verbosity=1)


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
    shown = text(DIAGNOSIS.replaced(sensitivity=(flip(first_before="LCH101"),)))
    section = shown[shown.index("Near a threshold") :].splitlines()
    assert section[1:5] == [
        "  LCH101 launch-bound (device 0) fired → not evaluated",
        "      threshold LCH101.min_idle 10 %, tried 11 %",
        "      number launch.idle_ratio is 10.5 %",
        "      first nothing instead of LCH101",
    ]


def test_many_changes_of_one_threshold_are_counted() -> None:
    changes = tuple(flip().changes[0].replaced(code=f"AAA{i}") for i in range(5))
    told = DIAGNOSIS.replaced(sensitivity=(flip(changes=changes),))
    assert "and 2 more (-v)" in short(told)
    assert "AAA4" in text(told, verbosity=1)


def test_sensitivity_is_told_only_where_asked() -> None:
    assert "Near a threshold" not in text()
    none = text(DIAGNOSIS.replaced(sensitivity=()))
    assert "no verdict: every number is further than a tenth" in none


def test_the_last_line_names_the_tool_of_the_command_above() -> None:
    assert HEALTHY.next_target is None
    target = DIAGNOSIS.next_target
    assert target is not None
    amd = target.replaced(command="rocprof-compute profile --name measured")
    for one, name in ((target, "ncu"), (amd, "rocprof-compute")):
        shown = text(HEALTHY.replaced(next_target=one))
        assert shown.rstrip().splitlines()[-1] == f"Next: the {name} line above"
