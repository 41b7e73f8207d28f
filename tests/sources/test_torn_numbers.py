"""Numbers of logs that are torn, beyond every range or in another unit: counted, and never believed."""

from __future__ import annotations

import json
import re
import sqlite3
import warnings
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.numerals import finite, read_float, read_int
from advisor.sources.open import open_trace
from advisor.sources.serving.metrics_text import read_metrics
from advisor.sources.trace import Source
from tests import pasted, profiler_tables, server_logs
from tests.builder import Export

DIGITS = "9" * 4_301
GOOD = server_logs.vllm(server_logs.Server())
METRICS = "vllm:num_requests_running 8\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.5\n"
SMI = "timestamp, index, utilization.gpu [%], power.draw [W]\n"
DCGM = "#Entity   GRACT  SMACT  DRAMA\n"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12.0),
        ("412,352", 412_352.0),
        ("-0.5e3", -500.0),
        *[
            (t, None)
            for t in (",,,", "", "1.2.3", "1,2,3", "9,92", "1_000", "nan", "inf", "1e999", DIGITS, "1 2")
        ],
    ],
)
def test_a_number_of_a_text(text: str, number: float | None) -> None:
    assert read_float(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("-3", -3), *[(t, None) for t in ("1.5", ",", DIGITS, "9" * 30, "x")]]
)
def test_a_whole_number_of_a_text(text: str, number: int | None) -> None:
    assert read_int(text) == number


def test_what_people_type_has_no_commas() -> None:
    assert [read_float(text, commas=False) for text in ("9,920", "9.92")] == [None, 9.92]
    assert [read_int(text, commas=False) for text in ("1,000", "1000")] == [None, 1000]


def test_what_is_a_number_of_a_document() -> None:
    values = (1, 2.5, True, "3", None, [], 10**400, float("nan"), float("inf"))
    assert [finite(v) for v in values] == [1.0, 2.5, *[None] * 7]


def saved(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.log"
    path.write_text(text)
    return path


def read(tmp_path: Path, text: str) -> Source:
    path = saved(tmp_path, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return open_trace(path).source


@pytest.mark.parametrize(
    "line",
    [
        "GPU KV cache size: ,,, tokens",
        f"GPU KV cache size: {DIGITS} tokens",
        f"Capture cuda graph bs [{DIGITS}]",
        f"max_num_seqs={DIGITS}",
        f"#retracted_reqs: {DIGITS}",
        GOOD.splitlines()[-1].replace("Running: 16", f"Running: {DIGITS}"),
        f"Decode batch. #running-req: {DIGITS}, #token: 5",
        f"iter = 5, num_scheduled_requests: {DIGITS}",
        f"eval time = {DIGITS} ms / 5 runs",
        '{"iterLatencyMS": "x", "numActiveRequests": [1], "kvCacheStats": [1], "inflightBatchingStats": 5}',
        '{"predicted_per_second": "fast"}',
        "x" * 60_000,
    ],
)
def test_a_torn_line_is_counted_and_the_others_are_read(line: str, tmp_path: Path) -> None:
    whole, torn = read(tmp_path, GOOD), read(tmp_path, f"{GOOD}{line}\n")
    assert len(torn.read_columns("load", ("running",))["running"]) == 12
    kept = {"cache_tokens", "batch_limit", "preempted"}
    assert {k: torn.capture.options.get(k) for k in kept} == {k: whole.capture.options.get(k) for k in kept}
    if "cuda graph" not in line:
        assert sum(row.count for row in torn.ledger.rows()) == 1


def test_sizes_of_graphs_as_numpy_prints_them(tmp_path: Path) -> None:
    assert read(tmp_path, f"{GOOD}Capture cuda graph bs [1 2 48]\n").capture.options["largest_graph"] == "48"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Running: 16", "Running: 99999999999"),
        ("usage: 30.0%", "usage: 7700.0%"),
        ("rate: 12.0%", "rate: 900.0%"),
        ("throughput: 800.0", "throughput: " + "9" * 300),
    ],
)
def test_a_line_of_the_load_that_cannot_be_is_dropped_and_told(
    before: str, after: str, tmp_path: Path
) -> None:
    head, last = GOOD.rstrip().rsplit("\n", 1)
    assert before in last
    source = read(tmp_path, f"{head}\n{last.replace(before, after)}\n")
    assert len(source.read_columns("load", ("running",))["running"]) == 11
    assert "1 of 12 rows of load dropped" in str(source.ledger.warnings(()))


@pytest.mark.parametrize(
    "gauge",
    [
        "vllm:kv_cache_usage_perc -0.5",
        "vllm:num_requests_waiting -5",
        "vllm:num_requests_running 1e308",
        "vllm:kv_cache_usage_perc 7700",
    ],
)
def test_a_gauge_that_cannot_be_is_not_believed(gauge: str, tmp_path: Path) -> None:
    name = gauge.split()[0]
    bad = "".join(f"{gauge}\n" if line.startswith(name) else f"{line}\n" for line in METRICS.splitlines())
    source = read(tmp_path, METRICS + bad + METRICS)
    assert len(source.read_columns("load", ("running",))["running"]) == 2
    assert [row.count for row in source.ledger.rows()] == [1]


def test_a_column_beyond_its_range_throughout_costs_no_other(tmp_path: Path) -> None:
    text = METRICS.replace("waiting 0", "waiting -5") * 4
    columns = read(tmp_path, text).read_columns("load", ("running", "waiting"))
    assert columns["running"].tolist() == [8.0] * 4
    assert (columns["waiting"] != columns["waiting"]).all()


def test_a_fork_that_exports_percent_is_read_as_a_share(tmp_path: Path) -> None:
    text = "".join(METRICS.replace("0.5", str(percent)) for percent in (77, 76.5, 0, 80))
    used = read(tmp_path, text).read_columns("load", ("cache_used",))["cache_used"]
    assert used.tolist() == pytest.approx([0.77, 0.765, 0.0, 0.8])


def test_values_that_are_no_number_end_no_scrape(tmp_path: Path) -> None:
    more = "vllm:num_preemptions_total NaN\nvllm:num_requests_waiting +Inf\nvllm:prompt_tokens_total 1e309\n"
    assert len(read(tmp_path, METRICS + more).read_columns("load", ("running",))["running"]) == 1


def test_a_counter_that_cannot_be_is_left_out() -> None:
    text = "".join(f"{METRICS}vllm:num_preemptions_total {n}\n" for n in ("8", "1e308", "-3", "12"))
    assert read_metrics(text).preempted == 4


@pytest.mark.parametrize("cell", ["-5 %, 300.00 W", "7700 %, 300.00 W", "50 %, -1 W", "50 %, 1e12 W"])
def test_a_sample_that_cannot_be_is_dropped_and_told(cell: str, tmp_path: Path) -> None:
    lines = [f"2024/05/01 10:00:{i:02}.000, 0, 50 %, 300.00 W\n" for i in range(20)]
    lines[7] = f"2024/05/01 10:00:07.000, 0, {cell}\n"
    source = read(tmp_path, SMI + "".join(lines))
    assert len(source.read_columns("samples", ("time",))["time"]) == 19
    assert "1 of 20 rows of samples dropped: values that cannot be" in str(source.ledger.warnings(()))


def test_ratios_of_dcgm_in_percent_are_read_as_shares(tmp_path: Path) -> None:
    source = read(tmp_path, DCGM + "GPU 0  99.8  50.5  40.0\n" * 5)
    columns = source.read_columns("samples", ("gr_active", "sm_active", "dram_read"))
    assert [c[0] for c in columns.values()] == pytest.approx([0.998, 0.505, 0.4])


@pytest.mark.parametrize(
    "text", [METRICS.replace("8", "1e308"), SMI + "2024/05/01 10:00:00, 0, -5 %, -1 W\n"]
)
def test_nothing_but_what_cannot_be_is_told_in_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from advisor.cli.main import main

    (tmp_path / "t.log").write_text(text)
    code = main([str(tmp_path / "t.log")])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "internal error" not in err
    assert "Warning" not in err
    assert code in (0, 2)


def test_a_lone_surrogate_in_a_name_costs_no_trace(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": "g\ud800emm", "pid": 0, "tid": 7, "ts": 1, "dur": 5}
        | {"args": {"device": 0, "stream": 7, "correlation": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 0, "dur": 1}
        | {"args": {"correlation": 1}},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    source = open_trace(path).source
    name = int(source.read_columns("kernels", ("name_id",))["name_id"][0])
    assert source.text([name]) == ["g\ufffdemm"]


# --- lines without end ---------------------------------------------------------------------------------

LONG = "x" * 60_000
SUMS = [
    profiler_tables.operator("aten::mm", 64, 20.0, device=64 * 300.0),
    profiler_tables.call("cudaLaunchKernel", 192, 6.0),
    profiler_tables.kernel("ampere_gemm", 64, 300.0),
]
KERNELS = pasted.printed(
    "cuda_gpu_kern_sum", *((f"gemm{i}", 9, 40_000.0, 39_000.0, 38_000, 48_000, 1.5) for i in range(4))
)


@pytest.mark.parametrize(
    "text",
    [
        METRICS,
        SMI + "".join(f"2024/05/01 10:00:0{i}.000, 0, 50 %, 300.00 W\n" for i in range(4)),
        DCGM + "GPU 0  0.5  0.5  0.4\n" * 4,
        profiler_tables.table(SUMS),
        profiler_tables.as_csv(SUMS),
        profiler_tables.as_markdown(SUMS),
        pasted.as_csv(KERNELS),
        pasted.as_columns(KERNELS),
        pasted.as_boxes(KERNELS),
    ],
    ids=["metrics", "smi", "dcgmi", "printed", "csv", "markdown", "nsys csv", "nsys columns", "nsys boxes"],
)
def test_a_line_without_end_is_counted(text: str, tmp_path: Path) -> None:
    lines = text.splitlines(keepends=True)
    at = len(lines) // 2 + 1  # inside the table
    whole, more = read(tmp_path, text), read(tmp_path, "".join([*lines[:at], f"{LONG}\n", *lines[at:]]))
    assert not list(whole.ledger.rows())
    assert [row.count for row in more.ledger.rows()] == [1]


def test_a_quote_without_end_in_a_table_is_counted(tmp_path: Path) -> None:
    source = read(tmp_path, profiler_tables.as_csv(SUMS) + '9,"' + "x\n" * 80_000)
    assert [row.count for row in source.ledger.rows()] == [1]


# --- numbers of settings and tables that contradict others ---------------------------------------------


@pytest.mark.parametrize("value", ["1.2.3", "10.0.0.1"])
def test_a_release_is_no_setting(value: str, tmp_path: Path) -> None:
    options = read(tmp_path, GOOD.replace("'max_num_seqs': 64", f"'max_num_seqs': {value}")).capture.options
    assert "batch_limit" not in options


def test_a_setting_at_the_end_of_a_sentence_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, f"{GOOD}chunked_prefill_size=2048.\n").capture.options["token_budget"] == "2048"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("Med (ns)", "90000"),
        ("Avg (ns)", "1"),
        ("StdDev (ns)", "-1.5"),
        ("Med (ns)", "-3"),
        ("Time (%)", "7700"),
        ("Total Time (ns)", "9" * 19),
        ("Total Time (ns)", "0"),
    ],
)
def test_a_row_of_a_table_that_contradicts_itself_is_dropped(column: str, value: str, tmp_path: Path) -> None:
    one, *rest = KERNELS.rows
    changed = tuple(value if name == column else cell for name, cell in zip(KERNELS.head, one, strict=True))
    source = read(tmp_path, pasted.as_csv(pasted.Printed(KERNELS.report, KERNELS.head, (changed, *rest))))
    assert [row.count for row in source.ledger.rows() if row.kind == "dropped"] == [1]


def test_a_total_of_a_table_that_no_recording_reaches_is_left_out(tmp_path: Path) -> None:
    text = profiler_tables.table(SUMS)
    text = re.sub(r"Self CPU time total: \S+", "Self CPU time total: 99999999999999999999ms", text)
    with open_trace(saved(tmp_path, text)) as trace:
        assert max(trace.columns("sums", ("total",))["total"]) < 10**12


@pytest.mark.parametrize("column", ["computeMajor", "smCount", "totalMemory", "memoryBandwidth", "clockRate"])
def test_a_gpu_says_nothing_that_no_gpu_has(column: str, tmp_path: Path) -> None:
    path = Export("3.17").gpu().launch(0, 5_000, "gemm").write(tmp_path / "t.sqlite")
    db = sqlite3.connect(path)
    db.execute(f"update TARGET_INFO_GPU set {column} = {2**60}")
    db.commit()
    db.close()
    with open_trace(path) as trace:
        (device,) = trace.devices
        known = (device.sm_count, device.memory_bytes, device.bandwidth_bytes_per_s, device.clock_hz)
    assert (device.compute_capability is None) == (column == "computeMajor")
    assert sum(value is None for value in known) == (column != "computeMajor")


@pytest.mark.parametrize("start", ["9e999", "end + 100000"])
def test_waits_that_end_before_they_start_are_damage(
    start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = Export("3.17").gpu()
    for i in range(9):
        export.launch(i * 100_000, 5_000, "gemm").sync(i * 100_000 + 50_000, 20_000)
    path = export.write(tmp_path / "t.sqlite")
    db = sqlite3.connect(path)
    db.execute(f"update CUPTI_ACTIVITY_KIND_SYNCHRONIZATION set start = {start} where rowid % 3 = 0")
    db.commit()
    db.close()
    assert main(["facts", str(path), "--match", "capture.invalid_rows"]) == 0
    assert "3 of 9 waits end before they start" in capsys.readouterr().out
