"""Logs of nvidia-smi and dcgmi: units, headers and time stamps of every shape they come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.sources.open import open_trace
from advisor.sources.overlay import WithSamples
from advisor.sources.samplers import SampleLog, read_log
from advisor.sources.trace import Columns, Trace
from tests.builder import Export

SMI = """\
timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], \
power.draw [W], power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], temperature.gpu, \
clocks_event_reasons.active
2023/11/14 22:13:20.000, 0, NVIDIA H200, 100 %, 2048 MiB, 143771 MiB, 690.10 W, 700.00 W, \
1455 MHz, 1980 MHz, 61, 0x0000000000000004
2023/11/14 22:13:20.100, 0, NVIDIA H200, 50 %, 2048 MiB, 143771 MiB, [N/A], 700.00 W, \
1980 MHz, 1980 MHz, 60, 0x0000000000000001
"""
DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk
# Idx      W      C      C      %      %      %      %    MHz    MHz
    0    690     61      -     97     40      0      0   3201   1455
    0    120     55      -      0      0      0      0   3201   1980
"""
DCGM = """\
#Entity   GPUTL  GRACT  SMACT  TENSO  DRAMA  SMCLK
ID
GPU 0     100    0.998  0.970  0.703  0.220  1455
GPU 1     N/A    0.100  0.050  0.000  0.010  1980
GPU 0     100    0.998  0.960  0.700  0.221  1450
"""


def log(folder: Path, text: str, name: str = "samples.csv") -> SampleLog:
    path = folder / name
    path.write_text(text)
    return read_log(path)


def columns(found: SampleLog, *names: str) -> Columns:
    return found.read_columns("samples", names)


def test_nvidia_smi_csv_with_units(tmp_path: Path) -> None:
    found = log(tmp_path, SMI)
    read = columns(found, "time", "gr_active", "power_w", "sm_clock_hz", "memory_used_bytes",
                   "throttled", "sm_active")  # fmt: skip
    assert np.diff(read["time"]).tolist() == [100_000_000]
    assert read["time"][0] == 1_700_000_000 * 10**9
    assert read["gr_active"].tolist() == [1.0, 0.5]
    assert read["power_w"][0] == pytest.approx(690.1)
    assert np.isnan(read["power_w"][1])
    assert read["sm_clock_hz"].tolist() == [1.455e9, 1.98e9]
    assert read["memory_used_bytes"][0] == 2 * 2**30
    assert read["throttled"].tolist() == [1.0, 0.0]
    assert found.devices[0].name == "NVIDIA H200"


def test_that_a_kernel_was_running_is_no_sm_activity(tmp_path: Path) -> None:
    assert np.isnan(columns(log(tmp_path, SMI), "sm_active")["sm_active"]).all()
    assert np.isnan(columns(log(tmp_path, DMON), "sm_active")["sm_active"]).all()


def test_nvidia_smi_csv_without_units_or_time(tmp_path: Path) -> None:
    text = "index, utilization.gpu, clocks.sm\n0, 80, 1500\n0, 90, 1600\n"
    found = log(tmp_path, text)
    assert not found.absolute
    assert columns(found, "gr_active")["gr_active"].tolist() == [0.8, 0.9]


def test_a_header_written_again_and_a_torn_last_line_are_passed_over(tmp_path: Path) -> None:
    head = SMI.splitlines()[0]
    found = log(tmp_path, SMI + head + "\n" + "2023/11/14 22:13:21.000, 0, NVI")
    assert len(columns(found, "time")["time"]) == 2


def test_dmon(tmp_path: Path) -> None:
    read = columns(log(tmp_path, DMON, "dmon.txt"), "time", "gr_active", "power_w", "sm_clock_hz",
                   "temperature_c")  # fmt: skip
    assert read["gr_active"].tolist() == [0.97, 0.0]
    assert read["temperature_c"].tolist() == [61, 55]
    assert np.diff(read["time"]).tolist() == [10**9]


def test_dmon_with_date_and_time(tmp_path: Path) -> None:
    text = (
        "#Date       Time        gpu    pwr     sm   pclk\n 20231114  22:13:20  0  690  97  1455\n"
    )
    found = log(tmp_path, text, "dmon.txt")
    assert found.absolute
    assert columns(found, "time")["time"].tolist() == [1_700_000_000 * 10**9]


def test_dcgm_profiling_fields_are_sm_activity(tmp_path: Path) -> None:
    found = log(tmp_path, DCGM, "dcgm.txt")
    read = columns(found, "device", "sm_active", "tensor_active", "dram_read", "gr_active")
    assert sorted(read["device"].tolist()) == [0, 0, 1]
    first = read["device"] == 0
    assert read["sm_active"][first].tolist() == [0.97, 0.96]
    assert read["tensor_active"][first].tolist() == [0.703, 0.7]


def test_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sampler log that is known") as refused:
        log(tmp_path, "a,b\n1,2\n")
    assert "\n" not in str(refused.value)


def test_a_log_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without a single sample"):
        log(tmp_path, SMI.splitlines()[0])


def traced(folder: Path, start_utc_ns: int | None) -> Trace:
    export = Export(start_utc_ns=start_utc_ns).process(1).launch(at=0, kernel_dur=400_000_000)
    return open_trace(export.write(folder / "t.sqlite"))


def test_samples_join_a_trace_by_absolute_time(tmp_path: Path) -> None:
    trace = traced(tmp_path, 1_700_000_000 * 10**9 - 50_000_000)
    joined = Trace(WithSamples(trace.source, log(tmp_path, SMI), None))
    assert joined.columns("samples", ("time",))["time"].tolist() == [50_000_000, 150_000_000]
    assert joined.has("kernels")


def test_an_offset_says_where_a_log_without_time_begins(tmp_path: Path) -> None:
    trace = traced(tmp_path, None)
    joined = Trace(WithSamples(trace.source, log(tmp_path, DMON, "d.txt"), 20_000_000))
    assert joined.columns("samples", ("time",))["time"][0] == 20_000_000


def test_without_a_common_clock_an_offset_is_asked_for(tmp_path: Path) -> None:
    trace = traced(tmp_path, None)
    with pytest.raises(InputError, match="--gpu-metrics-offset"):
        WithSamples(trace.source, log(tmp_path, SMI), None)


def test_samples_of_another_hour_are_refused(tmp_path: Path) -> None:
    trace = traced(tmp_path, 1_700_000_000 * 10**9 + 3600 * 10**9)
    with pytest.raises(InputError, match="miss the capture"):
        WithSamples(trace.source, log(tmp_path, SMI), None)
