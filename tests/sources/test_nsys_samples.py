"""GPU metrics: names, units, devices and times of the long table become columns of the wide one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from advisor.sources.nsys.samples import column_of_metric
from advisor.sources.open import open_trace
from advisor.sources.schema import TABLES
from advisor.sources.trace import Columns
from tests.builder import Export


def samples(export: Export, tmp_path: Path) -> Columns:
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        return trace.columns("samples", TABLES["samples"])


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("SM Active [Throughput %]", "sm_active"),
        ("SMs Active [Throughput %]", "sm_active"),
        ("SMs Active", "sm_active"),
        ("SM Issue [Throughput %]", "sm_issue"),
        ("Tensor Active [Throughput %]", "tensor_active"),
        ("DRAM Read Bandwidth [Throughput %]", "dram_read"),
        ("DRAM Write Bandwidth [Throughput %]", "dram_write"),
        ("GR Active [Throughput %]", "gr_active"),
        ("PCIe RX Throughput [Throughput %]", "pcie_rx"),
        ("PCIe RX", "pcie_rx"),
        ("PCIe TX Throughput [Throughput %]", "pcie_tx"),
        ("NVLink RX Requests User Data [Throughput %]", "nvlink_rx"),
        ("NVLink bytes received [Throughput %]", "nvlink_rx"),
        ("NVLink bytes transmitted", "nvlink_tx"),
        ("VRAM Read Bandwidth [Throughput %]", "dram_read"),
        ("VRAM Write Bandwidth", "dram_write"),
        ("PCIe Read Throughput [Throughput %]", "pcie_rx"),
        ("PCIe Read Requests to BAR1", None),
        ("NVLINK TX [Throughput %]", "nvlink_tx"),
        ("GPC Clock Frequency [MHz]", "sm_clock_hz"),
        ("SYS Clock Frequency [MHz]", None),
        ("Compute Warps in Flight [Throughput %]", None),
        ("Unallocated Warps in Active SMs [Avg Warps per Cycle]", None),
        ("SM Active [Avg]", None),
        ("Something New [Throughput %]", None),
        ("", None),
    ],
)
def test_metric_names(name: str, column: str | None) -> None:
    assert column_of_metric(name) == column


def test_long_rows_become_wide_ones(tmp_path: Path) -> None:
    wide = samples(
        Export()
        .gpu()
        .gpu_metrics(
            {
                "SM Active": [0, 50, 100],
                "Compute Warps in Flight": [9, 9, 9],
                "DRAM Read Bandwidth": [91, 92, 93],
                "GPC Clock Frequency": [1_980_000_000, 1_979_996_250, 345_000_000],
            },
            period_ns=100_000,
            start=36_599,
        ),
        tmp_path,
    )
    assert wide["time"].tolist() == [36_599, 136_599, 236_599]
    assert wide["device"].tolist() == [0, 0, 0]
    assert wide["sm_active"].tolist() == [0.0, 0.5, 1.0]
    assert wide["dram_read"].tolist() == [0.91, 0.92, 0.93]
    assert wide["sm_clock_hz"].tolist() == [1_980_000_000, 1_979_996_250, 345_000_000]
    assert np.isnan(wide["tensor_active"]).all()
    assert np.isnan(wide["power_w"]).all()


def test_a_clock_that_keeps_the_unit_of_its_name(tmp_path: Path) -> None:
    export = Export().gpu_metrics({"GPC Clock Frequency": [1980, 345]})
    assert samples(export, tmp_path)["sm_clock_hz"].tolist() == [1.98e9, 3.45e8]


def test_metric_ids_of_another_capture(tmp_path: Path) -> None:
    export = Export().gpu_metrics({"Tensor Active": [1], "SM Active": [2]}, first_id=40)
    wide = samples(export, tmp_path)
    assert (wide["tensor_active"][0], wide["sm_active"][0]) == (0.01, 0.02)


def test_no_sample_is_not_zero(tmp_path: Path) -> None:
    wide = samples(Export().gpu_metrics({"SM Active": [5, None, 7], "GR Active": [1, 2, 3]}), tmp_path)
    assert math.isnan(wide["sm_active"][1])
    assert wide["sm_active"][[0, 2]].tolist() == [0.05, 0.07]


def test_samples_before_the_session_are_dropped(tmp_path: Path) -> None:
    export = Export().gpu_metrics({"SM Active": [1, 2, 3]}, period_ns=10, start=-15)
    assert samples(export, tmp_path)["time"].tolist() == [5]


def test_a_sample_at_the_very_beginning_is_kept_and_not_noted(tmp_path: Path) -> None:
    export = Export().gpu_metrics({"SM Active": [1, 2, 3]}, period_ns=10, start=-10)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.columns("samples", ("time",))["time"].tolist() == [0, 10]
        (row,) = trace.ledger.rows()
    assert (row.kind, row.count, row.rows) == ("dropped", 1, 3)


def test_requests_and_responses_of_nvlink_add_up(tmp_path: Path) -> None:
    names = ("Requests Protocol", "Requests User", "Responses Protocol", "Responses User")
    export = Export().gpu_metrics(
        {f"NVLink RX {name} Data": [10 * (i + 1), 0] for i, name in enumerate(names)}
    )
    wide = samples(export, tmp_path)
    assert wide["nvlink_rx"].tolist() == [1.0, 0.0]
    assert np.isnan(wide["nvlink_tx"]).all()


def test_several_gpus_with_the_same_metric_ids(tmp_path: Path) -> None:
    export = Export().gpu(id=0).gpu(id=1)
    export.gpu_metrics({"SM Active": [10, 11]}, gpu=0, start=5)
    export.gpu_metrics({"Tensor Active": [20, 21], "SM Active": [30, 31]}, gpu=1, start=0)
    wide = samples(export, tmp_path)
    assert wide["time"].tolist() == [0, 5, 100_000, 100_005]
    assert wide["device"].tolist() == [1, 0, 1, 0]
    assert wide["sm_active"].tolist() == [0.30, 0.10, 0.31, 0.11]
    assert wide["tensor_active"][[0, 2]].tolist() == [0.20, 0.21]
    assert np.isnan(wide["tensor_active"][[1, 3]]).all()


def test_rows_in_no_order(tmp_path: Path) -> None:
    export = Export().gpu_metrics({"SM Active": [1, 2]}, start=500_000)
    export.gpu_metrics({"SM Issue": [3, 4]}, start=500_000, first_id=1)
    export.gpu_metrics({"GR Active": [5]}, start=0, first_id=2)
    wide = samples(export, tmp_path)
    assert wide["time"].tolist() == [0, 500_000, 600_000]
    assert wide["sm_issue"][1:].tolist() == [0.03, 0.04]
    assert wide["gr_active"][0] == 0.05


@pytest.mark.parametrize("schema", ["3.7", "3.16"])
def test_with_and_without_a_raw_timestamp(tmp_path: Path, schema: str) -> None:
    wide = samples(Export(schema).gpu_metrics({"SM Active": [1, 2]}, start=7), tmp_path)
    assert wide["time"].tolist() == [7, 100_007]


def test_null_timestamps_fall_back_to_raw_ones_of_the_session_clock(tmp_path: Path) -> None:
    export = Export("3.16").gpu_metrics({"SM Active": [1, 2]}, start=7, null_timestamps=True)
    export.row("GENERIC_EVENT_SOURCES", sourceId=1, data='{"TimeSource": "SessionNs"}')
    assert samples(export, tmp_path)["time"].tolist() == [7, 100_007]


def test_only_raw_timestamps(tmp_path: Path) -> None:
    export = Export("3.16").gpu_metrics({"SM Active": [1, 2]}, start=7)
    export.row("GENERIC_EVENT_SOURCES", sourceId=1, data='{"TimeSource": "SessionNs"}')
    export.without_columns("GPU_METRICS", "timestamp")
    assert samples(export, tmp_path)["time"].tolist() == [7, 100_007]


@pytest.mark.parametrize(
    "export",
    [
        Export("3.16").gpu_metrics({"SM Active": [1]}, null_timestamps=True),
        Export().gpu_metrics({"SM Active": [1]}, null_timestamps=True),
        Export().gpu_metrics({"SM Active": [1]}, start=-5),
        Export().gpu_metrics({"Something New": [1]}),
        Export().gpu_metrics({"SM Active": [1]}).without_tables("TARGET_INFO_GPU_METRICS"),
        Export().gpu_metrics({"SM Active": [1]}).without_columns("GPU_METRICS", "value"),
    ],
    ids=["another clock", "no times", "before the session", "unknown", "nameless", "no values"],
)
def test_samples_that_cannot_be_used_are_absent_and_said_so(tmp_path: Path, export: Export) -> None:
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert not trace.has("samples")
        assert any("GPU_METRICS" in line for line in trace.capture.warnings)


@pytest.mark.parametrize("as_json", [False, True], ids=["tables", "json"])
def test_power_and_temperature_of_a_plugin_stand_alone(tmp_path: Path, as_json: bool) -> None:
    """Milliwatts are told by their size; a second GPU's type has another low byte."""
    export = Export("3.7" if as_json else "3.25").gpu(id=0).gpu(id=1)
    for gpu in (0, 1):
        watts = [90_000 + gpu, 690_000]
        export.plugin_samples(
            {"Power": watts, "Temperature": [40, 71], "Fan": [1, 2]}, gpu=gpu, as_json=as_json
        )
    wide = samples(export, tmp_path)
    assert wide["time"].tolist() == [0, 0, 100_000_000, 100_000_000]
    assert wide["device"].tolist() == [0, 1, 0, 1]
    assert wide["power_w"].tolist() == [90.0, 90.001, 690.0, 690.0]
    assert wide["temperature_c"].tolist() == [40, 40, 71, 71]
    assert np.isnan(wide["gr_active"]).all()


def test_a_plugin_fills_what_gpu_metrics_lack(tmp_path: Path) -> None:
    """Power in watts stays as it is; it holds until the plugin's next sample."""
    export = Export("3.25").gpu().gpu_metrics({"GR Active": [50] * 4}, 50_000_000)
    wide = samples(export.plugin_samples({"power_usage_instant": [400, 500]}), tmp_path)
    assert wide["gr_active"].tolist() == [0.5] * 4
    assert wide["power_w"].tolist() == [400, 400, 500, 500]


def test_dcgm_samples_clock_memory_and_the_power_limit(tmp_path: Path) -> None:
    fields = {"sm_clock": [1980, 1410], "fb_used": [1024, 2048], "fb_total": [81920] * 2}
    export = Export("3.25").gpu().plugin_samples(fields | {"enforced_power_limit": [700, 700]})
    wide = samples(export, tmp_path)
    assert wide["sm_clock_hz"].tolist() == [1980e6, 1410e6]
    assert wide["memory_used_bytes"].tolist() == [1 << 30, 2 << 30]
    assert wide["memory_total_bytes"].tolist() == [80 << 30] * 2
    assert wide["power_limit_w"].tolist() == [700, 700]


def test_generic_events_of_other_sources_are_no_samples(tmp_path: Path) -> None:
    export = Export("3.25").process(1).launch(at=0).plugin_samples({"rdma_read_bytes": [1, 2]})
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert not trace.has("samples")


@pytest.mark.parametrize(("most", "factor"), [(5_000, 1.0), (5_001, 1e-3)])
def test_power_beyond_any_board_is_in_milliwatts(tmp_path: Path, most: int, factor: float) -> None:
    wide = samples(Export("3.25").gpu().plugin_samples({"Power": [400, most]}), tmp_path)
    assert wide["power_w"].tolist() == [400 * factor, most * factor]


def test_values_of_a_plugin_that_are_no_numbers_or_of_no_event_are_left_out(tmp_path: Path) -> None:
    export = Export("3.25").gpu().plugin_samples({"Power": [400, 500]})
    kind = 1 << 48 | 2 << 32
    export.row("GENERIC_EVENT_DATA", genericEventId=kind + 7, fieldIdx=0, doubleVal=9.0)
    export.row("GENERIC_EVENTS", genericEventId=kind + 1, timestamp=5, typeId=kind)
    export.row("GENERIC_EVENT_DATA", genericEventId=kind + 1, fieldIdx=0, doubleVal=None)
    assert samples(export, tmp_path)["power_w"].tolist() == [400, 500]
