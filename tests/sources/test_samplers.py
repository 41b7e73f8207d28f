"""Logs of nvidia-smi and dcgmi: units, headers and time stamps of every shape they come in."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from advisor.cli.main import main
from advisor.errors import InputError
from advisor.sources.open import open_trace
from advisor.sources.samplers.log import SampleLog, WithSamples, read_log
from advisor.sources.samplers.rows import SMI_CSV, Stamp, read_stamp, recognise
from advisor.sources.trace import Columns, Trace
from tests.builder import Export
from tests.kineto_builder import EPOCH_NS, Profile

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
    read = columns(
        found, "time", "gr_active", "power_w", "sm_clock_hz", "memory_used_bytes", "throttled", "sm_active"
    )
    assert np.diff(read["time"]).tolist() == [100_000_000]
    assert read["time"][0] == 0
    assert found.begin_ns == found.capture.start_utc_ns == 1_700_000_000 * 10**9
    assert found.local
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
    assert found.begin_ns is None
    assert "a second apart" in found.capture.warnings[0]
    assert columns(found, "gr_active")["gr_active"].tolist() == [0.8, 0.9]


def test_a_header_written_again_and_a_torn_last_line_are_passed_over(tmp_path: Path) -> None:
    head = SMI.splitlines()[0]
    found = log(tmp_path, SMI + head + "\n" + "2023/11/14 22:13:21.000, 0, NVI")
    assert len(columns(found, "time")["time"]) == 2


def test_dmon(tmp_path: Path) -> None:
    read = columns(
        log(tmp_path, DMON, "dmon.txt"), "time", "gr_active", "power_w", "sm_clock_hz", "temperature_c"
    )
    assert read["gr_active"].tolist() == [0.97, 0.0]
    assert read["temperature_c"].tolist() == [61, 55]
    assert np.diff(read["time"]).tolist() == [10**9]


def test_dmon_with_date_and_time(tmp_path: Path) -> None:
    text = "#Date       Time        gpu    pwr     sm   pclk\n 20231114  22:13:20  0  690  97  1455\n"
    found = log(tmp_path, text, "dmon.txt")
    assert found.begin_ns == 1_700_000_000 * 10**9
    assert found.capture.warnings == found.lacking


@pytest.mark.parametrize("gpu", ["1e999", "-1e999"])
def test_a_gpu_beyond_all_numbers_is_none(gpu: str, tmp_path: Path) -> None:
    text = f"#Date       Time        gpu    pwr     sm\n 20231114  22:13:20  {gpu}  690  97\n"
    assert columns(log(tmp_path, text, "dmon.txt"), "device")["device"].tolist() == [0]


def test_dcgm_profiling_fields_are_sm_activity(tmp_path: Path) -> None:
    found = log(tmp_path, DCGM, "dcgm.txt")
    read = columns(found, "device", "sm_active", "tensor_active", "dram_read", "gr_active")
    assert sorted(read["device"].tolist()) == [0, 0, 1]
    first = read["device"] == 0
    assert read["sm_active"][first].tolist() == [0.97, 0.96]
    assert read["tensor_active"][first].tolist() == [0.703, 0.7]


def test_rows_without_headings_are_refused_with_what_adds_them(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text("2026/04/25 16:06:06.780, 0 %, 0 %, 2 MiB, 20146 MiB, 27, 11.64 W\n" * 20)
    with pytest.raises(InputError, match=r"without headings.*record with --format=csv in place"):
        open_trace(path)


def test_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sampler log that is known") as refused:
        log(tmp_path, "a,b\n1,2\n")
    assert "\n" not in str(refused.value)


def test_a_log_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without a single sample"):
        log(tmp_path, SMI.splitlines()[0])


# ------------------------------------------------------------------ shapes of logs


def test_dmon_in_all_its_columns(tmp_path: Path) -> None:
    text = (
        "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa"
        "   mclk   pclk  pviol  tviol     fb   bar1   ccpm  rxpci  txpci\n"
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %      %      %"
        "    MHz    MHz      %   bool     MB     MB     MB   MB/s   MB/s\n"
        " 20231114   22:13:20      0    690     61     70     97     40      0      0      0      0"
        "   3201   1455     88      0   2048      1      0     10     20\n"
        " 20231114   22:13:20      1    690     90     70     97     40      0      0      0      0"
        "   3201   1455      0      1   1024      1      0     10     20\n"
    )
    read = columns(
        log(tmp_path, text, "dmon.log"),
        "device",
        "power_w",
        "gr_active",
        "sm_clock_hz",
        "memory_used_bytes",
        "throttled",
        "overheated",
    )
    assert read["device"].tolist() == [0, 1]
    assert read["gr_active"].tolist() == [0.97, 0.97]
    assert read["sm_clock_hz"].tolist() == [1.455e9, 1.455e9]
    assert read["memory_used_bytes"].tolist() == [2 * 2**30, 2**30]
    assert read["throttled"].tolist() == [1.0, 1.0]
    assert read["overheated"].tolist() == [0.0, 1.0]


def test_dmon_as_csv_and_with_the_time_alone(tmp_path: Path) -> None:
    text = (
        "#Time, gpu, pwr, sm, pclk\n#HH:MM:SS, Idx, W, %, MHz\n"
        "23:59:58, 0, 690, 97, 1455\n00:00:03, 0, 690, 50, 1455\n"
    )
    found = log(tmp_path, text, "dmon.csv")
    assert found.begin_ns is None
    assert found.capture.warnings == found.lacking
    assert columns(found, "time")["time"].tolist() == [0, 5 * 10**9]  # over midnight


def test_dcgmi_columns_stay_in_their_places(tmp_path: Path) -> None:
    """A field that is not used stands between two that are."""
    text = (
        "# Entity  GPUTL  MCUTL  POWER\n      Id\n"
        "    GPU 0    100     40  690.1\n    GPU-I 0    7      7    7.0\n    GPU 1  20  5  90.5\n"
    )
    read = columns(log(tmp_path, text, "d.txt"), "device", "gr_active", "power_w")
    assert read["device"].tolist() == [0, 1]
    assert read["gr_active"].tolist() == [1.0, 0.2]
    assert read["power_w"].tolist() == [690.1, 90.5]


def test_dcgm_as_csv(tmp_path: Path) -> None:
    text = (
        "timestamp,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_SM_ACTIVE,DCGM_FI_DEV_FB_USED,"
        "DCGM_FI_DEV_POWER_USAGE\n"
        "1700000000.250,0,100,0.5,2048,690.1\n1700000000.250,1,90,0.25,1024,140737488355328\n"
        "1700000001.250,0,,0.75,2048,690.1\n"
    )
    found = log(tmp_path, text, "dcgm.csv")
    assert not found.local
    assert found.begin_ns == 1_700_000_000_250_000_000
    read = columns(found, "time", "device", "gr_active", "sm_active", "memory_used_bytes", "power_w")
    assert read["time"].tolist() == [0, 0, 10**9]
    assert read["sm_active"].tolist() == [0.5, 0.25, 0.75]
    assert np.isnan(read["gr_active"][2])
    assert np.isnan(read["power_w"][1])  # how DCGM writes that there is none
    assert found.capture.format == "DCGM csv"


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        ("Not Active, Not Active, Not Active", (0.0, 0.0)),
        ("Active, Not Active, Not Active", (1.0, 0.0)),
        ("Not Active, Not Active, Active", (1.0, 1.0)),
        ("[N/A], [N/A], [N/A]", (None, None)),
    ],
)
def test_reasons_one_by_one(tmp_path: Path, active: str, expected: tuple[float | None, float | None]) -> None:
    text = (
        "index, utilization.gpu [%], clocks_throttle_reasons.sw_power_cap, "
        "clocks_throttle_reasons.hw_slowdown, clocks_throttle_reasons.sw_thermal_slowdown, "
        f"clocks_throttle_reasons.gpu_idle\n0, 90 %, {active}, Active\n"
    )
    read = columns(log(tmp_path, text), "throttled", "overheated")
    for name, value in zip(("throttled", "overheated"), expected, strict=True):
        assert (None if np.isnan(read[name][0]) else read[name][0]) == value


def test_a_spreadsheet_of_another_country(tmp_path: Path) -> None:
    text = (
        '"timestamp";"index";"utilization.gpu [%]";"power.draw [W]"\n'
        '"14.11.2023 22:13:20,5";0;"97,5 %";"690,10 W"\n'
    )
    found = log(tmp_path, text.replace("20,5", "20.5"))
    assert found.begin_ns == 1_700_000_000_500_000_000
    read = columns(found, "gr_active", "power_w")
    assert read["gr_active"][0] == pytest.approx(0.975)
    assert read["power_w"][0] == pytest.approx(690.1)


@pytest.mark.parametrize(
    ("text", "dated", "zoned"),
    [
        ("2023/11/14 22:13:20.000", True, False),
        ("2023-11-14T22:13:20", True, False),
        ("2023-11-14T23:13:20+01:00", True, True),
        ("2023-11-14T22:13:20Z", True, True),
        ("20231114 22:13:20", True, False),
        ("11/14/2023 10:13:20 PM", True, False),
        ("14.11.2023 22:13:20", True, False),
        ("Tue Nov 14 22:13:20 2023", True, False),
        ("1700000000", True, True),
        ("1700000000.0", True, True),
        ("1700000000000", True, True),
        ("1700000000000000", True, True),
        ("1700000000000000000", True, True),
    ],
)
def test_shapes_of_time_stamps(text: str, dated: bool, zoned: bool) -> None:
    assert read_stamp(text) == Stamp(1_700_000_000 * 10**9, dated, zoned)


@pytest.mark.parametrize("text", ["", "N/A", "yesterday", "12", "2023/13/45 99:99:99", "20231114"])
def test_no_time_stamp(text: str) -> None:
    assert read_stamp(text) is None


def test_fractions_of_a_second_are_exact() -> None:
    for text, fraction in (("1700000000.123456789", 123_456_789), ("1700000000123.5", 123_500_000)):
        stamp = read_stamp(text)
        assert stamp is not None
        assert stamp.ns == 1_700_000_000 * 10**9 + fraction


def test_digits_beyond_the_nanosecond_are_cut_off() -> None:
    assert read_stamp("1700000000.1234567899") == Stamp(1_700_000_000_123_456_789, True, True)


def test_seconds_since_1970_begin_with_nine_digits() -> None:
    assert read_stamp("100000000") == Stamp(10**17, True, True)
    assert read_stamp("99999999") is None


def times(found: SampleLog, device: int = 0) -> list[int]:
    read = columns(found, "time", "device")
    return [t // 10**9 for t, d in zip(read["time"], read["device"], strict=True) if d == device]


def test_times_of_day_go_on_over_every_midnight(tmp_path: Path) -> None:
    rows = "".join(f"0, {clock}, 50\n" for clock in ("23:00:00", "05:00:00", "22:00:00", "04:00:00"))
    found = log(tmp_path, f"index, time, utilization.gpu\n{rows}")
    assert [t // 3600 for t in times(found)] == [0, 6, 23, 29]
    assert times(log(tmp_path, "index, time, utilization.gpu\n0, 23:00:00, 50\n")) == [0]


def test_a_clock_set_back_by_half_a_day_is_no_midnight(tmp_path: Path) -> None:
    found = log(tmp_path, "index, time, utilization.gpu\n0, 12:00:00, 50\n0, 00:00:00, 60\n")
    assert [t // 3600 for t in times(found)] == [0, 12]


def test_dates_are_kept_where_one_gpu_follows_another(tmp_path: Path) -> None:
    row = "{}, 2023/11/{} 22:00:00, 50\n"
    rows = "".join(row.format(gpu, day) for gpu in (0, 1) for day in (14, 15))
    found = log(tmp_path, f"index, timestamp, utilization.gpu\n{rows}")
    assert times(found, 0) == times(found, 1) == [0, 86_400]


def test_lines_without_a_sample_are_counted(tmp_path: Path) -> None:
    text = "index, utilization.gpu, clocks.sm\n0, 80, 1500\n0, 9\n0, 90, 1600\n"
    found = log(tmp_path, text)
    ((count, of),) = [(r.count, r.rows) for r in found.ledger.rows()]
    assert (count, of) == (1, 3)
    assert found.capture.size_bytes == len(text)


def test_each_gpu_has_its_own_memory(tmp_path: Path) -> None:
    text = "index, utilization.gpu, memory.total\n0, 5, 80000\n1, 5, 40000\n"
    assert [d.memory_bytes for d in log(tmp_path, text).devices] == [80000 << 20, 40000 << 20]


def test_used_memory_alone_tells_no_total(tmp_path: Path) -> None:
    read = columns(log(tmp_path, "index, utilization.gpu, memory.used\n0, 5, 9\n"), "memory_total_bytes")
    assert np.isnan(read["memory_total_bytes"]).all()


@pytest.mark.parametrize(("name", "hot"), [("pviol", 0.0), ("tviol", 1.0)])
def test_one_counter_of_violations_is_enough(tmp_path: Path, name: str, hot: float) -> None:
    read = columns(log(tmp_path, f"# gpu sm {name}\n 0 97 12\n"), "throttled", "overheated")
    assert (read["throttled"][0], read["overheated"][0]) == (1.0, hot)


def test_memory_is_what_is_used_free_and_reserved(tmp_path: Path) -> None:
    text = "index, utilization.gpu, memory.used, memory.free, memory.reserved\n0, 5, 100, 30, 4\n"
    total = columns(log(tmp_path, text), "memory_total_bytes")["memory_total_bytes"]
    assert total.tolist() == [134 * 2**20]


def test_a_fraction_behind_a_time_of_day_is_one_of_a_second() -> None:
    assert read_stamp("01:02:03.5") == Stamp(3723 * 10**9 + 500_000_000, False, False)


def test_lines_before_the_header_are_passed_over(tmp_path: Path) -> None:
    found = log(tmp_path, "driver, 580.159\n" + SMI)
    assert columns(found, "gr_active")["gr_active"].tolist() == [1.0, 0.5]


def test_a_word_before_the_header_is_passed_over(tmp_path: Path) -> None:
    found = log(tmp_path, "power\n" + SMI)
    assert columns(found, "gr_active")["gr_active"].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("time,power,temp", SMI_CSV),
        ("gpu,power,temp", SMI_CSV),
        ("power,temp", None),  # of anything
        ("time,power", None),
        ("power.draw,price", SMI_CSV),
    ],
)
def test_words_of_every_day_need_a_time_or_a_gpu_beside_them(header: str, kind: str | None) -> None:
    assert recognise([header]) == kind


def test_a_log_of_power_shell(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_bytes(SMI.encode("utf-16"))
    assert columns(read_log(path), "gr_active")["gr_active"].tolist() == [1.0, 0.5]


def test_gpus_are_told_apart_by_what_there_is(tmp_path: Path) -> None:
    head, row = "timestamp, {}utilization.gpu [%]\n", "2023/11/14 22:13:20.000, {}50 %\n"
    by_uuid = head.format("uuid, ") + row.format("GPU-b, ") + row.format("GPU-a, ")
    assert columns(log(tmp_path, by_uuid), "device")["device"].tolist() == [0, 1]
    with pytest.raises(InputError, match="add `index`"):
        log(tmp_path, head.format("") + 2 * row.format(""))


def test_another_table_is_no_log(tmp_path: Path) -> None:
    endless = 'timestamp,index,"' + "x" * 200_000
    for text in ("time,power,price\n1,2,3\n", "#gpu price\n1 2\n", "x\n", "", endless):
        with pytest.raises(InputError, match="no sampler log"):
            log(tmp_path, text)


SCREEN = """\
Thu Nov 23 22:13:20 2023
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.127.05             Driver Version: 550.127.05     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:19:00.0 Off |                    0 |
| N/A   31C    P0             76W /  700W |    2048MiB / 143771MiB |     97%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 4070     WDDM  | 00000000:01:00.0  On |                  N/A |
|  0%   38C    P8    12W /  N/A |    207MiB / 12288MiB |      3%      Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|    0   N/A  N/A      1234      C   python                                     2040MiB |
"""


def test_screens_of_nvidia_smi(tmp_path: Path) -> None:
    found = log(tmp_path, SCREEN + SCREEN.replace("22:13:20", "22:13:25").replace("97%", "10%"))
    read = columns(
        found, "time", "device", "gr_active", "power_w", "power_limit_w", "memory_used_bytes", "temperature_c"
    )
    assert read["time"].tolist() == [0, 0, 5_000_000_000, 5_000_000_000]
    assert read["device"].tolist() == [0, 1, 0, 1]
    assert read["gr_active"].tolist() == pytest.approx([0.97, 0.03, 0.1, 0.03])
    assert read["power_w"].tolist() == [76, 12, 76, 12]
    assert read["power_limit_w"][:2].tolist() == [700, pytest.approx(np.nan, nan_ok=True)]
    assert read["memory_used_bytes"][:2].tolist() == [2 << 30, 207 << 20]
    assert [(d.name, d.bus_id) for d in found.devices] == [
        ("NVIDIA H200", "00000000:19:00.0"),
        ("NVIDIA GeForce RTX 4070", "00000000:01:00.0"),
    ]
    assert found.capture.producer == "nvidia-smi"


def test_tegrastats(tmp_path: Path) -> None:
    text = (
        "06-13-2026 14:17:07 RAM 3308/7607MB (lfb 32x4MB) SWAP 11/3804MB (cached 0MB) CPU [0%@1510] "
        "GR3D_FREQ 99%@[1098,1098] cpu@61.5C gpu@62.3C tj@62.4C VDD_IN 12517mW/10898mW\n"
        "06-13-2026 14:17:08 RAM 3300/7607MB (lfb 32x4MB) CPU [0%@1510] GR3D_FREQ 0% GPU@60C\n"
    )
    found = log(tmp_path, text, "tegra.log")
    read = columns(found, "time", "gr_active", "sm_clock_hz", "temperature_c", "memory_used_bytes")
    assert read["time"].tolist() == [0, 1_000_000_000]
    assert read["gr_active"].tolist() == [0.99, 0.0]
    assert read["sm_clock_hz"][0] == 1.098e9
    assert read["temperature_c"].tolist() == [62.3, 60]
    assert found.devices[0].memory_bytes == 7607 << 20


def test_one_metric_a_line(tmp_path: Path) -> None:
    """As a monitoring system stores what the exporter of DCGM says of two machines, each with a GPU 0."""
    lines = [
        f'"2025-07-18T20:42:3{second}Z","{metric}","0","nvidia0","GPU-{host}","H100","{host}","{value}"'
        for metric, values in (("DCGM_FI_DEV_GPU_UTIL", (90, 80)), ("DCGM_FI_DEV_FB_USED", (1024, 2048)))
        for second in (4, 5)
        for host, value in zip("ab", values, strict=True)
    ]
    head = "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,value"
    read = columns(
        log(tmp_path, "\n".join([head, *lines])), "time", "device", "gr_active", "memory_used_bytes"
    )
    assert read["time"].tolist() == [0, 0, 10**9, 10**9]
    assert read["device"].tolist() == [0, 1, 0, 1]
    assert read["gr_active"].tolist() == [0.9, 0.8] * 2
    assert read["memory_used_bytes"].tolist() == [1 << 30, 2 << 30] * 2


@pytest.mark.parametrize(
    ("head", "row", "expected"),
    [
        ("timestamp,gpu_utilization,memory_used,memory_total", "{t},50, 1024, 15360", (0.5, 1 << 30)),
        ("time,gpu,gpu_util_pct,mem_used_mib,power_w", "{t},0,50,1024,70", (0.5, 1 << 30)),
        ("Time,GPU,Temp (C),Util (%),Memory Used (GB)", "{t},RTX 3070,40,50,1", (0.5, 1 << 30)),
        ("time,gpu_util,gpu_mem_used_bytes", "{t},0.5,1073741824", (0.5, 1 << 30)),
        ("time,gpu_id,sm_active,vram_used_mb", "{t},1,50,1024", (None, 1 << 30)),
    ],
)
def test_tables_of_scripts(head: str, row: str, expected: tuple[float | None, float], tmp_path: Path) -> None:
    text = "\n".join([head, *(row.format(t=f"2025-05-19 16:19:2{i}") for i in range(3))])
    found = log(tmp_path, text)
    read = columns(found, "time", "gr_active", "sm_active", "memory_used_bytes")
    assert read["time"].tolist() == [0, 10**9, 2 * 10**9]
    share = read["sm_active"] if expected[0] is None else read["gr_active"]
    assert share.tolist() == [0.5] * 3
    assert read["memory_used_bytes"].tolist() == [expected[1]] * 3


def test_tables_of_other_things_are_no_logs() -> None:
    for head in (
        "time,cpu_util,memory_used",
        "epoch,gpu_hours,loss",
        "timestamp,gpu_power_w,co2_kg",
        "gpu,util_cost",
    ):
        assert recognise([head]) is None


# ------------------------------------------------------------------ joined to a trace


def traced(folder: Path, start_utc_ns: int | None, utc_offset_h: float = 0) -> Trace:
    export = Export(start_utc_ns=start_utc_ns, utc_offset_h=utc_offset_h, duration=500_000_000)
    export.process(1).launch(at=0, kernel_dur=400_000_000)
    return open_trace(export.write(folder / "t.sqlite"))


def joined_at(trace: Trace, found: SampleLog, offset: int | None = None) -> int:
    return int(Trace(WithSamples(trace.source, found, offset)).columns("samples", ("time",))["time"][0])


@pytest.mark.parametrize("zone", [0, 2, -7, 5.75])
def test_local_time_is_that_of_the_traced_machine(tmp_path: Path, zone: float) -> None:
    """nvidia-smi prints what the clock on the wall shows."""
    begun = 1_700_000_000 * 10**9 - round(zone * 3600) * 10**9 - 50_000_000
    trace = traced(tmp_path, begun, zone)
    assert trace.capture.utc_offset_s == zone * 3600
    assert joined_at(trace, log(tmp_path, SMI)) == 50_000_000


def test_a_log_kept_in_utc_on_a_machine_that_is_not(tmp_path: Path) -> None:
    trace = traced(tmp_path, 1_700_000_000 * 10**9 - 50_000_000, 2)
    assert joined_at(trace, log(tmp_path, SMI)) == 50_000_000


def test_a_trace_that_tells_no_zone_has_the_one_that_fits(tmp_path: Path) -> None:
    path = Profile("epoch").launch(at=0).launch(at=400_000_000).write(tmp_path / "t.json")
    moment = datetime.fromtimestamp(EPOCH_NS // 10**9, timezone(timedelta(hours=-3, minutes=-30)))
    text = f"timestamp, index, utilization.gpu [%]\n{moment:%Y/%m/%d %H:%M:%S}.200, 0, 50 %\n"
    with open_trace(path) as trace:
        joined = Trace(WithSamples(trace.source, log(tmp_path, text), None))
        assert abs(joined.columns("samples", ("time",))["time"][0]) < 10**9
        assert "UTC-03:30" in joined.capture.warnings[-1]


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


def test_a_capture_keeps_its_own_samples_and_takes_what_they_lack(tmp_path: Path) -> None:
    """SM and DRAM activity at 10 kHz must not give way to a log that says only `busy`."""
    export = Export(start_utc_ns=1_700_000_000 * 10**9, duration=500_000_000).gpu().process(1)
    export.launch(at=0, kernel_dur=400_000_000)
    export.gpu_metrics({"SMs Active": [80] * 40}, period_ns=10_000_000)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        own = trace.columns("samples", ("time", "sm_active"))
        joined = Trace(WithSamples(trace.source, log(tmp_path, SMI), None))
        read = joined.columns("samples", ("time", "sm_active", "power_w", "gr_active"))
    assert read["time"].tolist() == own["time"].tolist()
    assert read["sm_active"].tolist() == own["sm_active"].tolist()
    held = read["time"] <= 300_000_000  # two periods after the last row of the log
    assert np.isnan(read["gr_active"][~held]).all()
    assert read["gr_active"][held].tolist() == [1.0 if t < 10**8 else 0.5 for t in read["time"][held]]
    assert read["power_w"][0] == pytest.approx(690.1)


# ------------------------------------------------------------------ which GPU is which


def two_gpus(folder: Path) -> Trace:
    """CUDA calls the GPU on bus 41 its device 0, nsys and the driver call it 1."""
    export = Export(start_utc_ns=1_700_000_000 * 10**9, duration=500_000_000)
    export.gpu(0, cuda=1, bus="0000:01:00.0").gpu(1, cuda=0, bus="0000:41:00.0")
    export.process(1).launch(at=0, kernel_dur=400_000_000)
    return open_trace(export.write(folder / "two.sqlite"))


def test_a_gpu_has_its_number_in_nsys_its_ordinal_and_its_bus(tmp_path: Path) -> None:
    trace = two_gpus(tmp_path)
    assert [(d.id, d.bus_id, d.cuda_ordinals) for d in trace.devices] == [
        (0, "0000:01:00.0", (1,)),
        (1, "0000:41:00.0", (0,)),
    ]
    assert trace.columns("kernels", ("device",))["device"].tolist() == [1]


def test_gpus_of_a_log_are_matched_by_their_bus(tmp_path: Path) -> None:
    """The log was taken with the GPUs in another order."""
    head = "timestamp, index, pci.bus_id, utilization.gpu [%]\n"
    rows = (
        "2023/11/14 22:13:20.000, 0, 00000000:41:00.0, 90 %\n"
        "2023/11/14 22:13:20.000, 1, 00000000:01:00.0, 10 %\n"
    )
    joined = Trace(WithSamples(two_gpus(tmp_path).source, log(tmp_path, head + rows), None))
    read = joined.columns("samples", ("device", "gr_active"))
    assert dict(zip(read["device"].tolist(), read["gr_active"].tolist(), strict=True)) == {1: 0.9, 0: 0.1}
    assert not joined.capture.warnings


def test_without_a_bus_the_numbers_are_taken_to_agree_and_that_is_said(tmp_path: Path) -> None:
    head = "timestamp, index, utilization.gpu [%]\n"
    rows = "2023/11/14 22:13:20.000, 0, 90 %\n2023/11/14 22:13:20.000, 1, 10 %\n"
    joined = Trace(WithSamples(two_gpus(tmp_path).source, log(tmp_path, head + rows), None))
    assert joined.columns("samples", ("device",))["device"].tolist() == [0, 1]
    assert "record pci.bus_id to match them" in joined.capture.warnings[-1]


def test_the_report_says_once_which_number_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_gpus(tmp_path)
    assert main(["diagnose", str(tmp_path / "two.sqlite")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    said = "devices 1 (NVIDIA H200, bus 0000:41:00.0, CUDA 0); numbers are the GPU ids of Nsight"
    assert shown.count(said) == 1


def test_years_that_no_clock_shows_are_lines_that_could_not_be_read(tmp_path: Path) -> None:
    days = ("2026/01/01", "2420/01/01", "2026/01/01", "0001/01/01")
    lines = [f"{day} 00:00:0{i}.000, 0, 5{i} %" for i, day in enumerate(days)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["timestamp, index, utilization.gpu [%]", *lines]))
    with open_trace(path) as trace:
        samples = trace.columns("samples", ("time",))
        assert samples["time"].tolist()[-1] - samples["time"].tolist()[0] == 2_000_000_000
        (row,) = trace.ledger.rows()
        assert (row.severity, row.count, row.rows) == ("warning", 2, 4)


def test_bits_tell_what_is_heat(tmp_path: Path) -> None:
    """Bit 2 is a limit of power, bit 5 one of heat."""
    for bits, expected in (("0x4", [1.0, 0.0]), ("0x20", [1.0, 1.0]), ("0x1", [0.0, 0.0])):
        text = f"index, utilization.gpu [%], clocks_event_reasons.active\n0, 90 %, {bits}\n"
        read = columns(log(tmp_path, text), "throttled", "overheated")
        assert [read["throttled"][0], read["overheated"][0]] == expected


def test_a_blank_of_dcgm_is_no_mask(tmp_path: Path) -> None:
    text = "gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_CLOCK_THROTTLE_REASONS\n0,90,2147483632\n0,90,64\n"
    read = columns(log(tmp_path, text), "throttled", "overheated")
    assert [v[0] == v[0] for v in read.values()] == [False, False]
    assert [v[1] for v in read.values()] == [1.0, 1.0]


def test_without_time_each_gpu_counts_for_itself(tmp_path: Path) -> None:
    found = log(tmp_path, "index, utilization.gpu [%]\n0, 1 %\n1, 2 %\n0, 3 %\n1, 4 %\n")
    assert columns(found, "time")["time"].tolist() == [0, 0, 10**9, 10**9]


def test_quoted_cells_may_stand_behind_a_space(tmp_path: Path) -> None:
    found = log(tmp_path, 'index, "utilization.gpu [%]", "power.draw [W]"\n0, "90 %", "3,5 W"\n')
    assert columns(found, "gr_active")["gr_active"].tolist() == [0.9]


@pytest.mark.parametrize(
    ("log", "numbers"),
    [(SMI, "those of nvidia-smi, in the order of the PCI bus"), (DCGM, "those of dcgmi, in")],
)
def test_whose_numbers_of_gpus_are_meant(tmp_path: Path, log: str, numbers: str) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    with open_trace(path) as trace:
        assert (trace.capture.device_numbers or "").startswith(numbers)


@pytest.mark.parametrize(("second", "days"), [("07:59:59", 1), ("10:00:00", 0)])
def test_a_clock_without_days_that_goes_back_more_than_half_a_day_has_passed_midnight(
    tmp_path: Path, second: str, days: int
) -> None:
    path = tmp_path / "log"
    path.write_text(
        "#Time        gpu    pwr     sm\n#HH:MM:SS    Idx      W      %\n"
        f" 20:00:00      0    690     97\n {second}      0    690     97\n"
    )
    hours = int(second[:2]) + int(second[3:5]) / 60 + int(second[6:]) / 3600 - 20 + 24 * days
    with open_trace(path) as trace:
        time = trace.columns("samples", ("time",))["time"]
    assert abs(int(time[1] - time[0])) == pytest.approx(abs(hours) * 3600e9)


def test_one_column_may_be_of_any_table() -> None:
    assert recognise(["power.draw [W]", "70.1 W"]) is None
    assert recognise(["timestamp, power.draw [W]", "2023/11/14 22:13:20.000, 70.1 W"]) == SMI_CSV


def test_columns_that_a_log_lacks_are_named_as_its_tool_names_them(tmp_path: Path) -> None:
    text = (
        "timestamp, index, utilization.gpu, clocks.sm, temperature.gpu\n2023/11/14 22:13:20, 0, 97, 9, 82\n"
    )
    said = log(tmp_path, text).capture.warnings[0]
    assert "clocks.max.sm, power.draw, power.limit, clocks_throttle_reasons.active, memory.used" in said
    assert "utilization.gpu" not in said
    assert "add them to `nvidia-smi --query-gpu`" in said
    heading = re.search(r"docs/run.md, '(.+?)'", said)
    assert heading is not None
    assert f"## {heading[1]}\n" in DOCUMENTED
    said = log(tmp_path, DCGM, "dcgm.txt").capture.warnings[-1]
    assert "113 (DCGM_FI_DEV_MAX_SM_CLOCK), 155 (DCGM_FI_DEV_POWER_USAGE)" in said
    assert "dcgmi dmon -e" in said


DOCUMENTED = (Path(__file__).parents[2] / "docs" / "run.md").read_text(encoding="utf-8")


def test_the_query_of_the_documentation_lacks_nothing(tmp_path: Path) -> None:
    (query,) = re.findall(r"^nvidia-smi .*--query-gpu=(\S+)", DOCUMENTED, re.MULTILINE)
    value = {"timestamp": "2023/11/14 22:13:20.000", "name": "NVIDIA H100", "pci.bus_id": "00000000:18:00.0"}
    value["clocks_throttle_reasons.active"] = "0x0000000000000004"
    row = ", ".join(value.get(name, "1") for name in query.split(","))
    found = log(tmp_path, f"{query.replace(',', ', ')}\n{row}\n")
    assert found.lacking == ()
    assert columns(found, "throttled")["throttled"].tolist() == [1.0]


#: Number of a field of DCGM -> its short name, as dcgmi dmon prints it (dcgm_fields.cpp).
SHORT = {
    "100": "SMCLK", "112": "DVCCTR", "113": "SMMAX", "150": "TMPTR", "155": "POWER", "160": "PMLMT",
    "203": "GPUTL", "250": "FBTTL", "252": "FBUSD", "1001": "GRACT", "1002": "SMACT", "1004": "TENSO",
    "1005": "DRAMA",
}  # fmt: skip


def test_the_fields_of_the_documentation_lack_nothing(tmp_path: Path) -> None:
    (fields,) = re.findall(r"^dcgmi dmon -e (\S+)", DOCUMENTED, re.MULTILINE)
    names = [SHORT[number] for number in fields.split(",")]
    text = f"#Entity  {'  '.join(names)}\nID\nGPU 0  {'  '.join('4' for _ in names)}\n"
    found = log(tmp_path, text, "dcgm.txt")
    assert found.lacking == ()
    read = columns(found, "throttled", "power_limit_w", "sm_clock_max_hz")
    assert [float(v[0]) for v in read.values()] == [1.0, 4.0, 4e6]
