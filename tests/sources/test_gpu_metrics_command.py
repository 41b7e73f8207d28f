"""`advisor diagnose --gpu-metrics FILE`, alone and joined to a capture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.cli.main import main
from tests.builder import Export

Run = Callable[..., int]

#: Begins 50 ms before the log does, at half past eleven in the evening in Berlin.
START = 1_700_000_000 * 10**9 - 50_000_000


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *args: main(["diagnose", *(str(a) for a in args)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [
        f"2023/11/14 23:13:{20 + i // 10}.{i % 10}00, 0, 96 %, 1400 MHz, 1980 MHz, 695 W, 700 W"
        for i in range(30)
    ]
    head = "timestamp, index, utilization.gpu [%], clocks.sm [MHz], clocks.max.sm [MHz]"
    head += ", power.draw [W], power.limit [W]"
    (tmp_path / "smi.csv").write_text("\n".join([head, *rows]) + "\n")
    return tmp_path / "smi.csv"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    made = Export(start_utc_ns=START, utc_offset_h=1, duration=4 * 10**9).gpu().process(1)
    for i in range(30):
        made.launch(at=i * 100_000_000, kernel="gemm", kernel_dur=95_000_000)
    return made.write(tmp_path / "t.sqlite")


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    read: dict[str, object] = json.loads(capsys.readouterr().out)
    return read


def causes(document: dict[str, object]) -> set[str]:
    findings = document["findings"]
    assert isinstance(findings, list)
    return {f["cause"] for f in findings}


def test_a_log_alone(run: Run, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--gpu-metrics", log, "--format", "json") == 0
    document = shown(capsys)
    assert causes(document) == {"clock-throttled"}
    assert run("--gpu-metrics", log, "-v") == 0
    assert "0.000000s to 2.900000s" in capsys.readouterr().out  # not since 1970


def test_a_log_joined_by_absolute_time(
    run: Run, log: Path, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capture, "--format", "json") == 0
    assert "clock-throttled" not in causes(shown(capsys))
    assert run(capture, "--gpu-metrics", log, "--format", "json") == 0
    document = shown(capsys)
    assert "clock-throttled" in causes(document)
    assert "no-gpu-metrics" not in causes(document)


def test_a_log_joined_by_an_offset(
    run: Run, log: Path, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (capture, "--gpu-metrics", log, "--format", "json", "--gpu-metrics-offset")
    assert run(*options, "50ms") == 0
    assert "clock-throttled" in causes(shown(capsys))
    assert run(*options, "9s") == 2
    assert "miss the capture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "offset", "why"),
    [
        ("nowhere.csv", (), "no such file"),
        ("t.sqlite", (), "no sampler log that is known"),
        ("smi.csv", ("--gpu-metrics-offset", "soon"), "soon"),
    ],
)
@pytest.mark.usefixtures("log")
def test_what_cannot_be_joined_is_told_in_one_line(
    run: Run, capture: Path, capsys: pytest.CaptureFixture[str], name: str, offset: tuple[str, ...], why: str
) -> None:
    assert run(capture, "--gpu-metrics", name, *offset) == 2
    said = capsys.readouterr().err
    assert said.startswith("advisor: error: ")
    assert why in said
    assert said.count("\n") == 1
