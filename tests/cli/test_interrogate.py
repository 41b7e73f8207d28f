"""`explain CODE --trace` and `doctor`, on real captures: text, JSON, files, exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.model.capture_plan import Checkup
from advisor.model.explanation import Explanation
from tests.builder import Export
from tests.captures import committed

Captured = pytest.CaptureFixture[str]
Cli = Callable[..., int]
EAGER = committed("decode_eager_bs1")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *args: main([str(a) for a in args])


def wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > 80]


# --- explain ---------------------------------------------------------------------------------


def test_why_it_fired(cli: Cli, capsys: Captured) -> None:
    assert cli("explain", "lch101", "--trace", EAGER) == 0
    shown = capsys.readouterr().out
    at = 0
    for part in (
        "LCH101 launch-bound",
        "LCH101 launch-bound fired (device 0): finding 1 of 2",
        "Why it fired  device 0",
        "▲ HIGH: number 1 of the report",
        "✓ yes: symptom queue-empty fired: LCH100 (device 0)",
        "✓ yes: launch.empty_queue_ratio is 97.2 %, at least 50 % (min_empty)",
        "✓ yes: launch.idle_ratio is 84.2 %, at least 10 % (min_idle)",
        "folds in    UTL100 gpu-idle (device 0)",
        "overrules   LCH102 launch-storm (device 0)",
        "confidence  85.8 %, the product of",
        "0.850  base",
        "0.987  steps     15 steps in the window",
        "Where the numbers come from",
        "launch.idle_ratio: 84.2 %, device 0",
        "computed: budget parts launch_call",
        "from kernels (CUPTI_ACTIVITY_KIND_KERNEL): start, end",
        "over 0.029145s to 0.219516s",
        "Next: advisor explain LCH101",
    ):
        assert part in shown[at:], part
        at = shown.index(part, at)
    assert wide(shown) == []


def test_a_cause_may_be_named(cli: Cli, capsys: Captured) -> None:
    assert cli("explain", "launch-bound", "--trace", EAGER) == 0
    named = capsys.readouterr().out
    assert cli("explain", "LCH101", "--trace", EAGER) == 0
    assert named == capsys.readouterr().out
    assert cli("explain", "launch-bound") == 0
    assert "Harmless when" in capsys.readouterr().out


def test_why_not(cli: Cli, capsys: Captured) -> None:
    assert cli("explain", "host-gap", "--trace", EAGER) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "did not fire (device 0)" in shown
    assert (
        "✗ no: host.gap_ratio is 0.46 %, not more than 10 % (max_gap): off by 95.4 % of the threshold"
        in shown
    )


def test_what_is_missing(cli: Cli, capsys: Captured) -> None:
    assert cli("explain", "HST104", "--trace", EAGER) == 0
    shown = capsys.readouterr().out
    assert "? unknown: whether host.os_idle_ratio is more than 5 % (max_idle) is" in shown
    assert "supply    capture with --trace=cuda,nvtx,osrt" in shown
    assert shown.endswith(("Next: advisor doctor TRACE\n", f"Next: advisor doctor {EAGER}\n"))


def test_places_and_branches_that_are_further_off_wait_for_v(cli: Cli, capsys: Captured) -> None:
    assert cli("explain", "KRN102", "--trace", EAGER) == 0
    brief = capsys.readouterr().out
    assert "2 other ways to fire, further off (-v)" in brief
    assert "more places: " in brief
    assert cli("explain", "KRN102", "--trace", EAGER, "-v") == 0
    full = capsys.readouterr().out
    assert "another way to fire, further off" in full
    assert len(full) > 5 * len(brief)
    assert wide(brief + full) == []


def test_options_of_diagnose_count(cli: Cli, capsys: Captured) -> None:
    assert cli("explain", "HST101", "--trace", EAGER, "--param", "HST101.max_gap=0.001") == 0
    assert "HST101 host-gap fired" in capsys.readouterr().out
    assert cli("explain", "LCH101", "--trace", EAGER, "--window", "0.1s/0.15s") == 0
    assert "0.100000s to 0.150000s" in capsys.readouterr().out
    assert cli("explain", "LCH101", "--trace", EAGER, "--engine", "clips") == 2


def test_explain_as_json(cli: Cli, capsys: Captured, tmp_path: Path) -> None:
    assert cli("explain", "LCH101", "--trace", EAGER, "--format", "json") == 0
    out = capsys.readouterr().out
    found = Explanation.model_validate_json(out)
    assert (found.code, found.state) == ("LCH101", "fired")
    assert json.loads(out)["schema_version"] == 1
    file = tmp_path / "why.json"
    args = ("explain", "LCH101", "--trace", EAGER, "--format", "json", "-o", file)
    assert cli(*args) == 0
    assert file.read_text(encoding="utf-8") == out
    assert cli(*args) == 2
    assert "add --force" in capsys.readouterr().err
    assert cli(*args, "--force") == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("XYZ999", "--trace", EAGER), "no rule has the code XYZ999"),
        (("LCH101", "--trace", "none.sqlite"), "none.sqlite: no such file"),
        (("LCH101", "--trace", "."), ".: no captures (exports and traces"),
        (("LCH101", "--window", "1s/2s"), "--window asks about a capture"),
        (("LCH101", "--trace", EAGER, "--format", "xml"), "expected one of text, json"),
        (("LCH101", "--trace", EAGER, "--param", "LCH101.no=1"), "unknown parameter LCH101.no"),
    ],
)
def test_bad_questions(cli: Cli, capsys: Captured, args: tuple[str | Path, ...], message: str) -> None:
    assert cli("explain", *args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_plain_explain_stays_light() -> None:
    """Neither arrays nor frames nor the analysis are loaded for a page of text."""
    script = (
        "import sys; from advisor.cli.main import main; main(['explain', 'launch-bound']); "
        "heavy = {'numpy', 'pandas', 'durable', 'advisor.pipeline.diagnose'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- doctor ----------------------------------------------------------------------------------


def test_doctor(cli: Cli, capsys: Captured) -> None:
    assert cli("doctor", EAGER) == 0
    shown = capsys.readouterr().out
    words, at = " ".join(shown.split()), 0
    for part in (
        "NVIDIA H200",
        "file nsys-sqlite",
        "program python3 llm_workload.py",
        "--trace=cuda,nvtx --cuda-graph-trace=node",
        "sampled GPU metrics at 10,000 Hz",
        "12,736 kernels",
        "It answers 5 of 10 questions",
        "What it can answer",
        "✓ yes: Which kernels take the GPU's time?",
        "~ partly: What do launches",
        "✗ no: Do the Python GIL",
        "neither was traced; capture with --trace=cuda,nvtx,python-gil",
        "Capture quality",
        "CAP109 sampling-too-coarse",
        "Rules that cannot run",
        "ALC103 memory-growth",
        "Record again lets",
        "nsys profile --trace=cuda,nvtx,osrt,python-gil",
        "new --trace=osrt: gives host_calls; overhead: large files",
        "also nsys 2025.3 or newer",
        "not --cuda-memory-usage=true",
        "mind node-level graph tracing",
        "Next: advisor",
    ):
        assert part in words[at:], part
        at = words.index(part, at)
    assert "LCH101" not in shown.split("Rules that cannot run")[0]
    assert wide(shown) == []


@pytest.mark.parametrize("name", ["decode_graph_opaque", "no_gpu_work", "two_processes"])
def test_it_fits_eighty_columns(cli: Cli, capsys: Captured, name: str) -> None:
    for more in ((), ("-v",)):
        assert cli("doctor", committed(name), *more) == 0
        assert wide(capsys.readouterr().out) == []


def test_strict_fails_on_a_bad_capture_only(cli: Cli, capsys: Captured) -> None:
    assert cli("doctor", EAGER, "--strict") == 0  # info only
    assert cli("doctor", committed("decode_graph_opaque")) == 0
    capsys.readouterr()
    assert cli("doctor", committed("decode_graph_opaque"), "--strict") == 1
    assert "CAP102" in capsys.readouterr().out


def test_doctor_as_json(cli: Cli, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "checkup.json"
    assert cli("doctor", EAGER, "--format", "json", "-o", file, "--serving-engine", "vllm") == 0
    found = Checkup.model_validate_json(file.read_bytes())
    assert found.input.serving_engine == "vllm"
    assert len(found.questions) == 10
    assert capsys.readouterr().out == ""


def test_doctor_of_what_is_no_capture(cli: Cli, capsys: Captured, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_text("no database")
    assert cli("doctor", bad) == 2
    assert cli("doctor", tmp_path / "none.sqlite") == 2
    assert cli("doctor", EAGER, "--serving-engine", "quantum") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 3)


def test_no_escape_code_of_a_name_reaches_the_terminal(cli: Cli, capsys: Captured, tmp_path: Path) -> None:
    export = Export().gpu().process(1).command("python3", "\x1b[31mred")
    path = export.launch(at=0, kernel="\x1b[31mgemm").write(tmp_path / "t.sqlite")
    assert cli("doctor", path) == 0
    assert cli("explain", "KRN101", "--trace", path, "-v") == 0
    assert "\x1b" not in capsys.readouterr().out


# --- one finding in full ---------------------------------------------------------------------


def test_show_prints_a_finding_with_its_evidence_and_options(cli: Cli, capsys: Captured) -> None:
    path = committed("decode_eager_bs1")
    assert cli("show", path, "1") == 0
    shown = capsys.readouterr().out
    for part in ("because ", "cost ", "gain ", "assumes ", "evidence ", "where ", "fix ", "verify: "):
        assert f"   {part}" in shown, part
    assert "torch.compile" in shown
    assert wide(shown) == []
    assert cli("show", path, "LCH101") == 0
    assert capsys.readouterr().out == shown


def test_show_of_a_rule_that_found_nothing_says_why_not(cli: Cli, capsys: Captured) -> None:
    path = committed("decode_eager_bs1")
    assert cli("show", path, "blocking-sync") == 0
    shown = capsys.readouterr().out
    assert cli("explain", "blocking-sync", "--trace", path) == 0
    assert capsys.readouterr().out == shown


def test_show_of_a_number_that_is_no_finding(cli: Cli, capsys: Captured) -> None:
    assert cli("show", committed("decode_eager_bs1"), "99") == 2
    assert "no finding 99; the capture has 2 findings and 2 notes (1 to 4)" in capsys.readouterr().err


def test_notes_are_counted_apart_from_findings_as_in_the_report(cli: Cli, capsys: Captured) -> None:
    path = committed("decode_eager_bs1")
    for number, told in (
        ("2", "finding 2 of 2, 6.87 % of the step."),
        ("3", "note 1 of 2, number 3 of the report, 0.03 % of the window."),
    ):
        assert cli("show", path, number) == 0
        assert f": {told}" in " ".join(capsys.readouterr().out.split())


def test_after_the_verify_lines_stands_the_command_that_checks_them(cli: Cli, capsys: Captured) -> None:
    path = committed("decode_eager_bs1")
    shutil.copyfile(path, "run.sqlite.xz")
    assert cli("show", "run.sqlite.xz", "1") == 0
    shown = capsys.readouterr().out
    assert "verify: launch.idle_ratio falls" in shown
    assert shown.endswith("Fixed? advisor compare run.sqlite.xz AFTER\n")
    assert cli("show", path, "sampling-too-coarse") == 0
    assert "Fixed?" not in capsys.readouterr().out, "another capture of the same program wins nothing"


# --- sensitivity -----------------------------------------------------------------------------


def test_sensitivity(cli: Cli, capsys: Captured) -> None:
    path = committed("prefill8b_bs4")
    assert cli(path, "--sensitivity") == 0
    shown = capsys.readouterr().out
    section = shown[shown.index("Near a threshold") :]
    assert "UTL103 compute-bound (device 0) fired → quiet" in section
    assert "threshold UTL103.min_sm 90 %, tried 99 %" in section
    assert "number activity.sm_busy_ratio is 97.8 % (device 0)" in section
    assert "instead of UTL103" in section
    assert wide(shown) == []
    assert cli(path) == 0
    assert "Near a threshold" not in capsys.readouterr().out


def test_sensitivity_may_stand_in_the_configuration(cli: Cli, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "advisor.toml").write_text("sensitivity = true\n")
    assert cli(committed("decode_gc")) == 0
    assert "no verdict: every number is further than a tenth" in capsys.readouterr().out
