"""The log of a server beside samples of its GPU: one thing where their times meet, else two."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

import advisor
from advisor.cli.main import main
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from advisor.model.options import Options
from tests.scenarios.support import fact, ranked

START = datetime(2025, 11, 14, 22, 13)
FULL = "Running: 40 reqs, Waiting: 30 reqs, GPU KV cache usage: 99.0%"
FREE = "Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 20.0%"


def line(at: datetime, load: str, stamp: str = "%m-%d %H:%M:%S") -> str:
    return (
        f"INFO {at:{stamp}} [loggers.py:127] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg "
        f"generation throughput: 1000.0 tokens/s, {load}, Prefix cache hit rate: 12.0%\n"
    )


def log(begin: datetime = START, load: str = FULL, lines: int = 6, stamp: str = "%m-%d %H:%M:%S") -> str:
    return "".join(line(begin + timedelta(seconds=10 * i), load, stamp) for i in range(lines))


def samples(begin: datetime = START, seconds: int = 60, stamp: str = "%Y/%m/%d %H:%M:%S.000") -> str:
    head = "timestamp,index,utilization.gpu,clocks.sm,clocks.max.sm,temperature.gpu\n"
    rows = (f"{begin + timedelta(seconds=i):{stamp}},0,98,1900,1980,60\n" for i in range(seconds))
    return head + "".join(rows)


def written(folder: Path, server: str, gpu: str) -> tuple[Path, Path]:
    of_server, of_gpu = folder / "server.log", folder / "smi.csv"
    of_server.write_text(server)
    of_gpu.write_text(gpu)
    return of_server, of_gpu


def diagnosed(of_gpu: Path, of_server: Path) -> Diagnosis:
    return advisor.diagnose(of_gpu, Options(log=of_server))


@pytest.mark.parametrize(
    "stamp",
    [
        "%m-%d %H:%M:%S",
        "%Y-%m-%d %H:%M:%S,123",
        "%Y-%m-%dT%H:%M:%S.123456",
        "%b %d %H:%M:%S",
        "%m/%d/%Y-%H:%M:%S",
        "%Y/%m/%d - %H:%M:%S",
        "%H:%M:%S",  # without a date nothing speaks against it
    ],
)
def test_of_one_time_they_are_one_thing(tmp_path: Path, stamp: str) -> None:
    of_server, of_gpu = written(tmp_path, log(stamp=stamp), samples())
    found = diagnosed(of_gpu, of_server)
    assert ranked(found) == ["kv-cache-full"]
    assert fact(found, "load.lines", None) == 6


def test_only_lines_from_the_time_of_the_samples_count(tmp_path: Path) -> None:
    """Full for 40 minutes, then free while it is sampled, then full again."""
    hour = [
        log(START - timedelta(minutes=40), FULL, 230),
        log(START, FREE, 6),
        log(START + timedelta(minutes=5), FULL, 100),
    ]
    of_server, of_gpu = written(tmp_path, "".join(hour), samples())
    found = diagnosed(of_gpu, of_server)
    assert ranked(found) == []
    assert (fact(found, "load.lines", None), fact(found, "load.running", None)) == (6, 8)
    assert "of the log 6 of 336 lines count" in " ".join(found.inputs[0].warnings)


@pytest.mark.parametrize(
    "apart", [timedelta(days=6), timedelta(days=-1), timedelta(days=365), timedelta(minutes=7)]
)
def test_of_different_times_they_are_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], apart: timedelta
) -> None:
    of_server, of_gpu = written(tmp_path, log(stamp="%Y-%m-%d %H:%M:%S"), samples(START + apart))
    assert main([str(of_server), str(of_gpu)]) == 0
    told = capsys.readouterr()
    assert "2 captures" in told.out
    assert "of another time than" in told.err
    with pytest.raises(InputError, match=r"of another time than .* \(2025-11-14 22:13, and "):
        diagnosed(of_gpu, of_server)


@pytest.mark.parametrize("hours", [-5, 1, 5.5, 9])
def test_a_container_may_log_another_zone(tmp_path: Path, hours: float) -> None:
    """Neither names its zone, so that one in which they meet is taken, and said."""
    of_server, of_gpu = written(tmp_path, log(), samples(START + timedelta(hours=hours)))
    found = diagnosed(of_gpu, of_server)
    assert ranked(found) == ["kv-cache-full"]
    assert f"{abs(hours):g} h {'behind' if hours > 0 else 'ahead of'}" in " ".join(found.inputs[0].warnings)


def test_zones_that_are_named_are_believed(tmp_path: Path) -> None:
    utc = log(START - timedelta(hours=2), stamp="%Y-%m-%dT%H:%M:%S.123Z")
    of_server, of_gpu = written(tmp_path, utc, samples(stamp="%Y-%m-%dT%H:%M:%S+02:00"))
    assert fact(diagnosed(of_gpu, of_server), "load.lines", None) == 6
    of_server.write_text(log(START, stamp="%Y-%m-%dT%H:%M:%S.123Z"))
    with pytest.raises(InputError, match="of another time"):
        diagnosed(of_gpu, of_server)


def test_a_year_that_the_log_leaves_out_may_have_ended(tmp_path: Path) -> None:
    eve = datetime(2025, 12, 31, 23, 59, 40)
    of_server, of_gpu = written(tmp_path, log(eve), samples(datetime(2026, 1, 1), 30))
    assert fact(diagnosed(of_gpu, of_server), "load.lines", None) == 5


def test_days_between_lines_count(tmp_path: Path) -> None:
    """The second part is two days later at the same time of day."""
    later = START + timedelta(days=2)
    of_server, of_gpu = written(tmp_path, log(load=FREE) + log(later), samples(later))
    assert ranked(diagnosed(of_gpu, of_server)) == ["kv-cache-full"]
