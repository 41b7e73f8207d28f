"""Logs, samples and printed tables before against after: compared by the values that they hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import openpyxl
import pytest

import advisor
from advisor.cli.main import main
from advisor.model.comparison import Comparison
from tests.benchmark_reports import Ran, vllm_serve
from tests.profiler_tables import Sum, call, kernel, operator, table
from tests.server_logs import Moment, Server, prometheus, sglang, vllm

SMI = "timestamp, index, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz]\n"


def log(running: int = 16, output: float = 800.0) -> str:
    return vllm(Server(moments=[Moment(running=running, output=output)] * 6))


def compared(folder: Path, before: str, after: str) -> Comparison:
    paths = [folder / "before.txt", folder / "after.txt"]
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(text)
    return advisor.compare(*paths)


def changes(made: Comparison) -> dict[str, tuple[float | None, float | None]]:
    return {v.name: (v.before, v.after) for v in made.values}


def test_a_server_that_got_faster(tmp_path: Path) -> None:
    """16 requests at 800 tokens a second take 20 ms a token, at 1,000 they take 16 ms."""
    made = compared(tmp_path, log(output=800.0), log(output=1000.0))
    assert made.verdict == "improvement"
    assert changes(made)["load.token_ms"] == (pytest.approx(20.0), pytest.approx(16.0))
    assert made.summary.startswith("Improvement: the time of a token went from 20 ms to 16 ms (-20.0 %).")
    assert not made.notes


def test_a_server_that_got_slower(tmp_path: Path) -> None:
    assert compared(tmp_path, log(output=1000.0), log(output=800.0)).verdict == "regression"


def test_a_difference_below_the_gate_is_none(tmp_path: Path) -> None:
    assert compared(tmp_path, log(output=800.0), log(output=810.0)).verdict == "no-change"


def test_another_load_is_not_compared(tmp_path: Path) -> None:
    made = compared(tmp_path, log(running=16), log(running=64, output=2400.0))
    assert made.verdict == "not-comparable"
    assert "another load: requests that run from 16 to 64" in made.summary
    assert "load.token_ms" in changes(made)


def test_another_engine_is_not_compared(tmp_path: Path) -> None:
    made = compared(tmp_path, log(), sglang(Server()))
    assert made.verdict == "not-comparable"
    assert "the serving engine is vllm before and sglang after" in made.summary


def test_metrics_are_compared_by_what_came_between_their_scrapes(tmp_path: Path) -> None:
    old, new = (prometheus(Server(moments=[Moment(running=16, output=rate)] * 3)) for rate in (800.0, 1600.0))
    assert changes(compared(tmp_path, old, new))["load.token_ms"] == (20.0, 10.0)


def test_reports_of_benchmarks(tmp_path: Path) -> None:
    old, new = (
        vllm_serve(Ran(in_flight=16, output_tokens=128, first_ms=100.0, token_ms=ms)) for ms in (10.0, 8.0)
    )
    made = compared(tmp_path, old, new)
    assert made.verdict == "improvement"
    assert changes(made)["load.token_ms"] == (10.0, 8.0)


def test_one_log_twice_says_so(tmp_path: Path) -> None:
    made = compared(tmp_path, log(), log())
    assert made.verdict == "no-change"
    assert made.notes == ("all values are equal: this is perhaps one recording compared with itself",)


def rows(product_us: float, products: int = 64) -> Sequence[Sum]:
    return [
        operator("aten::mm", products, 30.0, device=products * product_us),
        call("cudaLaunchKernel", products + 128, 6.0),
        kernel("ampere_bf16_s16816gemm", products, product_us),
        kernel("vectorized_elementwise_kernel", 128, 4.0),
    ]


def test_printed_tables_row_by_row(tmp_path: Path) -> None:
    made = compared(tmp_path, table(rows(300.0)), table(rows(150.0)))
    assert made.verdict == "improvement"
    found = changes(made)
    assert found["sums.kernel_ms"] == (pytest.approx(19.712), pytest.approx(10.112))
    assert found["kernels.ampere_bf16_s16816gemm"] == (pytest.approx(19.2), pytest.approx(9.6))
    assert next(v.what for v in made.values if v.row) == "ampere_bf16_s16816gemm"


def test_tables_of_other_work_are_not_compared(tmp_path: Path) -> None:
    made = compared(tmp_path, table(rows(300.0)), table(rows(300.0, products=640)))
    assert made.verdict == "not-comparable"
    assert "kernels from 192 to 768" in made.summary


def test_samples_say_levels_and_no_verdict(tmp_path: Path) -> None:
    old, new = (
        SMI + "".join(f"2026/01/01 00:00:{i:02d}.000, 0, {busy} %, 1980 MHz, 1980 MHz\n" for i in range(30))
        for busy in (40, 90)
    )
    made = compared(tmp_path, old, new)
    assert made.verdict == "not-comparable"
    assert "samples do not say how much work was done" in made.summary
    assert changes(made)["activity.busy_ratio"] == (pytest.approx(0.4), pytest.approx(0.9))


def test_a_log_and_a_table_have_nothing_in_common(tmp_path: Path) -> None:
    made = compared(tmp_path, log(), table(rows(300.0)))
    assert made.verdict == "not-comparable"
    assert made.values == ()


def test_all_forms_of_the_report_hold_the_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rate in (("a.log", 800.0), ("b.log", 1000.0)):
        (tmp_path / name).write_text(log(output=rate))
    page, book = tmp_path / "x.html", tmp_path / "x.xlsx"
    sides = [str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    assert main(["compare", *sides, "--html", str(page), "--xlsx", str(book)]) == 0
    assert "the time of a token" in capsys.readouterr().out
    assert "the time of a token" in page.read_text()
    cells = {cell.value for row in openpyxl.load_workbook(book).worksheets[0] for cell in row}
    assert "the time of a token" in cells
    assert main(["compare", *sides, "--format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)["values"]
    assert [v["after"] for v in values if v["name"] == "load.token_ms"] == [16.0]
    assert main(["compare", *reversed(sides), "--fail-on", "regression"]) == 1
