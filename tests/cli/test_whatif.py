"""`advisor whatif` on a capture whose step time after the fix can be worked out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from advisor.cli.main import main
from tests.gain import scenes

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return str(scenes.waiting().write(tmp_path / "t.sqlite"))


def test_text(trace: str, capsys: Captured) -> None:
    assert main(["whatif", trace, "--fix", "HST101"]) == 0
    shown = capsys.readouterr().out
    assert "HST101 remove_host_gap" in shown
    assert "step 0.162 → 0.10" in shown
    assert "5 of 5 steps" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_json(trace: str, capsys: Captured) -> None:
    assert main(["whatif", trace, "--fix", "batch:n=2", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert report["measure"] == "throughput"
    assert report["fixes"][0]["params"] == {"n": 2}
    assert report["step_after_ms"]["mid"] == pytest.approx(0.162)
    assert report["speedup"]["mid"] == pytest.approx(2.0)


def test_json_of_a_file_whose_name_is_not_utf_8(trace: str) -> None:
    odd = Path(trace).rename("bad\udcff.sqlite")
    wanted = ["--fix", "HST101", "--format", "json", "-o", "out.json"]
    assert main(["whatif", str(odd), *wanted]) == 0
    assert json.loads(Path("out.json").read_bytes())["schema_version"] == 1


def test_several_fixes_in_order(trace: str, capsys: Captured) -> None:
    wanted = ["--fix", "remove_host_gap:idle_waits=kept", "--fix", "remove_sync:which=all"]
    assert main(["whatif", trace, *wanted, "--format", "json"]) == 0
    fixes = json.loads(capsys.readouterr().out)["fixes"]
    assert [f["what_if"] for f in fixes] == ["remove_host_gap", "remove_sync"]
    assert [f["step_after_ms"] for f in fixes] == pytest.approx([0.112, 0.1009])
    assert fixes[1]["step_before_ms"] == fixes[0]["step_after_ms"]


def test_a_file(trace: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "answer.txt"
    assert main(["whatif", trace, "--fix", "HST101", "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert "remove_host_gap" in out.read_text(encoding="utf-8")
    assert main(["whatif", trace, "--fix", "HST101", "-o", str(out)]) == 2
    assert main(["whatif", trace, "--fix", "HST101", "-o", str(out), "--force"]) == 0


def test_list(capsys: Captured) -> None:
    assert main(["whatif", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "cuda_graphs: Replay the work of a step as one CUDA graph" in shown
    assert ":n=0 times as much work a step; 0: as much as" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_list_as_json(tmp_path: Path, capsys: Captured) -> None:
    assert main(["whatif", "--list", "--format", "json"]) == 0
    whatifs = json.loads(capsys.readouterr().out)["whatifs"]
    assert whatifs["batch"]["measure"] == "throughput"
    assert whatifs["batch"]["params"]["n"]["most"] == 4096
    assert all(w["assumptions"] for w in whatifs.values())
    out = tmp_path / "list.txt"
    assert main(["whatif", "--list", "-o", str(out)]) == 0
    assert "remove_gc: Keep the garbage collector" in out.read_text(encoding="utf-8")


def test_a_batch_wins_tokens_not_time(trace: str, capsys: Captured) -> None:
    assert main(["whatif", trace, "--fix", "batch:n=4"]) == 0
    shown = capsys.readouterr().out
    assert "throughput: the speed-up counts tokens a second" in shown
    assert "nothing left to win" not in shown


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["whatif"], "at least one --fix"),
        (["whatif", "TRACE"], "at least one --fix"),
        (["whatif", "TRACE", "--fix", "nonsense"], "neither a what-if nor a rule"),
        (["whatif", "TRACE", "--fix", "batch:n=0.5"], "from 1 to 4096"),
        (["whatif", "TRACE", "--fix", ""], "names no what-if"),
        (["whatif", "--list", "--format", "xml"], "expected one of text, json"),
        (["whatif", "TRACE", "--fix", "remove_gc"], "no estimate: no garbage collection"),
        (["whatif", "TRACE", "--fix", "HST101", "--format", "yaml"], "expected one of text, json"),
        (["whatif", "gone.sqlite", "--fix", "HST101"], "gone.sqlite"),
    ],
)
def test_one_line_where_it_cannot(trace: str, capsys: Captured, arguments: list[str], why: str) -> None:
    assert main([trace if a == "TRACE" else a for a in arguments]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1


def test_diagnose_explains_its_ranking(trace: str, capsys: Captured) -> None:
    assert main(["diagnose", trace, "--explain-ranking"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Ranking share of the step saved x confidence = score" in shown
    ranked = r"1 high SYN101 blocking-sync: 1 - 1 / 1\.606 = 0\.3772 x (0\.\d{4}) = (0\.\d{4})"
    found = re.search(ranked, shown)
    assert found
    assert float(found[2]) == pytest.approx(0.3772 * float(found[1]), abs=1e-4)


def test_a_measured_step_time_is_where_the_estimate_starts(trace: str, capsys: Captured) -> None:
    ask = ["whatif", trace, "--fix", "HST101", "--format", "json", "--unprofiled-step"]
    assert main([*ask, "0.2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["step_before_ms"] == {"low": 0.2, "mid": 0.2, "high": 0.2}
    assert main([*ask, "fast"]) == 2
    assert "--unprofiled-step: 'fast' is not a time in milliseconds" in capsys.readouterr().err
