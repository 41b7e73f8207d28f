"""What a log of a sampler alone tells of load, clocks, power, heat and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from advisor.model.facts import Scope
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import analyse, diagnose
from tests.builder import Export
from tests.scenarios.machine import GEMM

HEAD = (
    "timestamp, index, utilization.gpu [%], clocks.sm [MHz], clocks.max.sm [MHz], power.draw [W], "
    "power.limit [W], memory.used [MiB], memory.total [MiB], clocks_event_reasons.active"
)
POWER_CAP, HEAT, IDLE = "0x0000000000000004", "0x0000000000000060", "0x0000000000000001"

Row = tuple[int, int, int, int, str]  # utilisation, MHz, W, MiB, reasons


def written(folder: Path, rows: Sequence[Row], period_ms: int = 100, head: str = HEAD) -> Path:
    lines = [head]
    for i, (busy, clock, power, used, reasons) in enumerate(rows):
        seconds, ms = divmod(i * period_ms, 1000)
        lines.append(
            f"2023/11/14 22:{10 + seconds // 60}:{seconds % 60:02d}.{ms:03d}, 0, {busy} %, "
            f"{clock} MHz, 1980 MHz, {power}.50 W, 700.00 W, {used} MiB, 10000 MiB, {reasons}"
        )
    path = folder / "smi.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def clocks(path: Path) -> dict[str, object]:
    with analyse(path) as done:
        return {f.name: f.value for f in done.facts if f.name.startswith("clock.")}


def causes(path: Path) -> list[str]:
    return [f.cause for f in diagnose(path).findings]


def test_only_busy_samples_count(tmp_path: Path) -> None:
    rows = [(100, 1485, 690, 100, POWER_CAP)] * 30 + [(0, 345, 90, 100, IDLE)] * 10
    found = clocks(written(tmp_path, rows))
    assert found["clock.busy_ratio"] == pytest.approx(0.75)
    assert found["clock.lost_window_ratio"] == pytest.approx(0.25 * 0.75)
    assert found["clock.limited_ratio"] == found["clock.held_back_ratio"] == 1.0
    assert found["clock.power_limited_ratio"] == 1.0
    assert found["clock.limit"] == "power"


def test_a_clock_that_falls_halfway(tmp_path: Path) -> None:
    fast, slow = [(100, 1980, 600, 100, "")] * 20, [(100, 1386, 600, 100, "")] * 20
    falling = written(tmp_path, fast + slow)
    assert clocks(falling)["clock.fall_ratio"] == pytest.approx(0.3)
    assert "clock-throttled" in causes(falling)
    rising = written(tmp_path, slow + fast)
    assert clocks(rising)["clock.fall_ratio"] == 0
    assert "clock-throttled" not in causes(rising)


@pytest.mark.parametrize(
    ("reasons", "limit", "action"),
    [
        (POWER_CAP, "power", "raise-power-limit"),
        (HEAT, "heat", "improve-cooling"),
        ("0x0000000000000008", "hardware's own", "read-clock-reasons"),
        ("0x0000000000000088", "hardware's own", "read-clock-reasons"),  # the brake of the supply
        ("0x0000000000000048", "heat", "improve-cooling"),
    ],
)
def test_the_reasons_of_the_driver_come_first(tmp_path: Path, reasons: str, limit: str, action: str) -> None:
    """Whatever the power is, here 86 % of its limit."""
    path = written(tmp_path, [(100, 1200, 600, 100, reasons)] * 30)
    assert clocks(path)["clock.limit"] == limit
    (finding,) = [f for f in diagnose(path).findings if f.cause == "clock-throttled"]
    assert finding.recommendations[0].id == action


def test_a_low_clock_for_which_the_driver_names_no_limit(tmp_path: Path) -> None:
    """Application clocks (0x2); a clock just as high as counts is no fault."""
    assert causes(written(tmp_path, [(100, 1500, 600, 100, "0x0000000000000002")] * 30)) == ["low-clock"]
    assert causes(written(tmp_path, [(100, 1690, 600, 100, "0x0000000000000002")] * 30)) == []


def test_heat_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, [(100, 1200, 500, 100, HEAT)] * 30)
    found = clocks(path)
    assert found["clock.limit"] == "heat"
    assert found["clock.power_limited_ratio"] == 0.0
    (finding,) = [f for f in diagnose(path).findings if f.cause == "clock-throttled"]
    assert "The heat limit holds the clock down in 100 % of the busy samples" in finding.message


def test_power_tells_where_the_driver_does_not(tmp_path: Path) -> None:
    rows = [(100, 1900, 690, 100, "[N/A]")] * 15 + [(100, 1900, 500, 100, "[N/A]")] * 15
    found = clocks(written(tmp_path, rows))
    assert "clock.held_back_ratio" not in found
    assert found["clock.limited_ratio"] == found["clock.power_limited_ratio"] == 0.5


def test_power_that_is_not_known_is_not_below_its_limit(tmp_path: Path) -> None:
    path = written(tmp_path, [(100, 1980, 700, 100, IDLE)] * 20)
    text = path.read_text().replace("700.50 W", "[N/A]", 10)
    path.write_text(text)
    assert clocks(path)["clock.power_limited_ratio"] == 1.0


def test_the_clock_alone_shows_no_limit(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text("index, utilization.gpu, clocks.sm\n" + "0, 90, 1900\n" * 20)
    found = clocks(path)
    assert "clock.limited_ratio" not in found
    assert "clock.limit" not in found
    assert "clock-throttled" not in causes(path)


def test_the_boost_clock_is_the_maximum_where_a_log_has_none(tmp_path: Path) -> None:
    head = "timestamp, index, name, utilization.gpu [%], clocks.sm [MHz]"
    lines = [f"2023/11/14 22:10:{i:02d}.000, 0, NVIDIA H200, 100 %, 1485 MHz" for i in range(40)]
    (tmp_path / "smi.csv").write_text("\n".join([head, *lines]) + "\n")
    assert clocks(tmp_path / "smi.csv")["clock.busy_ratio"] == pytest.approx(1485 / 1980)


def test_an_idle_gpu_is_not_throttled(tmp_path: Path) -> None:
    path = written(tmp_path, [(0, 345, 90, 100, IDLE)] * 40)
    assert clocks(path) == {}
    assert "clock-throttled" not in causes(path)


def test_power_of_an_nsys_plugin_is_held_against_the_rating_of_the_board(tmp_path: Path) -> None:
    """An H200 is rated 700 W. Of the nine samples between its kernels six are at that: at least these are
    held back; a limit that was set lower would hold back the others too."""
    watts = [0] + [690_000] * 6 + [500_000] * 3 + [690_000] * 5
    e = Export("3.25").gpu().process(1).plugin_samples({"Power": watts, "Temperature": [71] * 15})
    for i in range(10):
        e.launch(i * 100_000_000, 10_000, GEMM.name, kernel_dur=99_000_000)
    with analyse(e.write(tmp_path / "t.sqlite")) as done:
        base = done.facts
        assert base.value("clock.limited_ratio", Scope(device=0)) == pytest.approx(2 / 3)
        assert base.value("clock.limit", Scope(device=0)) == "power"
        assert base.value("clock.temperature_max_c", Scope(device=0)) == 71
        assert base.ranges["clock.limited_ratio", Scope(device=0)] == (pytest.approx(2 / 3), 1.0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(5, 1980, 90, 100, IDLE)] * 200, {"low-gpu-utilisation"}),
        ([(100, 1980, 400, 100, IDLE)] * 5 * 20, set()),
        (([(100, 1980, 400, 100, IDLE)] * 5 + [(0, 345, 90, 100, IDLE)] * 5) * 20, {"bursty-utilisation"}),
        ([(90, 1980, 400, 9_700, IDLE)] * 200, {"memory-near-full"}),
        ([(100, 1400, 699, 100, POWER_CAP)] * 200, {"clock-throttled"}),
    ],
)
def test_a_log_alone_runs_the_rules_of_utilisation(
    tmp_path: Path, rows: list[Row], expected: set[str]
) -> None:
    found: Diagnosis = diagnose(written(tmp_path, rows, period_ms=100))
    assert {f.cause for f in found.findings} == expected
    told = " ".join(f.message for f in found.findings)
    assert "SM Active" not in told  # utilisation.gpu is none
    assert "(unknown)" not in told
    assert not any(f.name == "activity.sm_ratio" for f in found.facts)


def test_each_gpu_of_a_log_is_judged_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "dmon.txt"
    path.write_text("# gpu sm pclk\n# Idx % MHz\n" + "0 95 1980\n1 4 1980\n" * 30)
    low = [f.scope for f in diagnose(path).findings if f.cause == "low-gpu-utilisation"]
    assert [scope.device for scope in low] == [1]
