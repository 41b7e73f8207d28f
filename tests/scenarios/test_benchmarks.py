"""Reports of benchmarks: every tool's report of one run says the same of its load, and what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.benchmark_reports import (
    SERVING,
    STEPS,
    Ran,
    llama_bench,
    llama_csv,
    llama_json,
    llama_sql,
    one_batch,
    sglang_serving,
    trtllm,
    vllm_latency,
    vllm_serve,
    vllm_throughput,
)
from tests.captures import committed
from tests.scenarios.support import fact, ranked
from tests.scenarios.test_server_logs import of
from tests.server_logs import Moment, vllm

HEALTHY = Ran()
LATE = Ran(in_flight=64, first_ms=5_000.0, token_ms=20.0)
NEAR = Ran(in_flight=64, first_ms=2_400.0, token_ms=20.0)


def told(folder: Path, text: str) -> Diagnosis:
    path = folder / "report"
    path.write_text(text)
    return advisor.diagnose(path)


@pytest.mark.parametrize("report", SERVING.values(), ids=SERVING)
@pytest.mark.parametrize("ran", [HEALTHY, LATE], ids=["few", "many"])
def test_every_report_of_a_run_says_the_same(tmp_path: Path, report: Callable[[Ran], str], ran: Ran) -> None:
    found = told(tmp_path, report(ran))
    assert found.inputs[0].format == "benchmark"
    wanted = {
        "load.lines": 1,
        "load.in_flight": ran.in_flight,
        "load.output_per_s": ran.tokens_per_s,
        "load.token_ms": ran.token_ms,
        "load.first_token_ms": ran.first_ms,
        "load.request_ms": ran.request_ms,
        "load.output_tokens": ran.output_tokens,
        "load.first_token_ratio": ran.first_ms / ran.request_ms,
        "load.running": ran.tokens_per_s * ran.token_ms / 1e3,
    }
    assert {name: fact(found, name, None) for name in wanted} == pytest.approx(wanted, rel=0.01)
    assert fact(found, "load.idle_ratio", None) is None


COUNTS_FAILED = ("vllm serve", "vllm JSON", "sglang JSON", "aiperf", "aiperf CSV")


@pytest.mark.parametrize("name", SERVING)
def test_requests_that_failed_are_told_and_those_that_did_not(tmp_path: Path, name: str) -> None:
    """100 of 500; none; and a report that does not count them, of which nothing is known."""
    counted = name in COUNTS_FAILED
    some = told(tmp_path, SERVING[name](Ran(failed=100)))
    none = told(tmp_path, SERVING[name](Ran(failed=0)))
    untold = told(tmp_path, SERVING[name](Ran()))
    assert [fact(found, "load.failed", None) for found in (some, none, untold)] == (
        [100, 0, None] if counted else [None] * 3
    )
    notes = [[note.cause for note in found.observed] for found in (some, none, untold)]
    assert notes == [["requests-failed"] if counted else [], [], []]
    if counted:
        assert "100 requests failed, 20 % of all that were sent" in some.observed[0].text
        assert "no fault that it can show but 100 failed requests." in some.verdict
    assert "failed" not in none.verdict


def test_a_report_of_which_all_requests_failed_is_refused_with_their_number(tmp_path: Path) -> None:
    text = vllm_serve(Ran(failed=400)).replace(" 400\nFailed", " 0\nFailed")
    zero = "\n".join(
        re.sub(r"[\d.]+$", "0.00", line) if "Failed" not in line else line for line in text.split("\n")
    )
    with pytest.raises(InputError, match="400 requests failed and none was answered"):
        told(tmp_path, zero)


@pytest.mark.parametrize("report", SERVING.values(), ids=SERVING)
def test_a_late_first_token(tmp_path: Path, report: Callable[[Ran], str]) -> None:
    assert ranked(told(tmp_path, report(LATE))) == ["first-token-late"]
    assert ranked(told(tmp_path, report(NEAR))) == []
    assert ranked(told(tmp_path, report(HEALTHY))) == []


def test_short_answers_are_read_for_their_prompts(tmp_path: Path) -> None:
    assert ranked(told(tmp_path, vllm_serve(Ran(output_tokens=8)))) == []


@pytest.mark.parametrize("report", STEPS.values(), ids=STEPS)
def test_a_batch_gives_its_step(tmp_path: Path, report: Callable[[int, float], str]) -> None:
    batch = 1 if report in (llama_bench, llama_json, llama_csv, llama_sql) else 8
    found = told(tmp_path, report(batch, 8.0))
    assert fact(found, "load.token_ms", None) == pytest.approx(8.0, rel=0.01)
    assert fact(found, "load.output_per_s", None) == pytest.approx(batch * 125.0, rel=0.01)
    assert ranked(found) == []


def test_latency_and_throughput_of_vllm(tmp_path: Path) -> None:
    found = told(tmp_path, vllm_latency(8, 128, 1.28))
    assert fact(found, "load.output_per_s", None) == pytest.approx(800.0)
    assert fact(found, "load.token_ms", None) == pytest.approx(10.0)
    assert fact(told(tmp_path, vllm_throughput(1000.0)), "load.output_per_s", None) == 1000.0


@pytest.mark.parametrize("options", ["--output-len 100 --batch-size 4", "--output-len=100 --batch-size=4"])
def test_the_command_line_before_a_latency_tells_of_how_many_tokens_it_is(
    tmp_path: Path, options: str
) -> None:
    """100 tokens of four sequences in a second: 10 ms a token."""
    lines = "".join(f"{p}% percentile latency: 1.0 seconds\n" for p in (10, 25, 50, 75))
    found = told(tmp_path, f"vllm bench latency --model m {options}\nAvg latency: 1.0 seconds\n{lines}")
    assert fact(found, "load.token_ms", None) == pytest.approx(10.0)
    assert (fact(found, "load.running", None), fact(found, "load.lines", None)) == (4, 1)


@pytest.mark.parametrize("options", ["--output-len 8", "--output-len 64 --input-len 2048"])
def test_a_latency_that_is_mostly_of_prompts_tells_no_step(tmp_path: Path, options: str) -> None:
    found = told(tmp_path, f"vllm bench latency {options}\nAvg latency: 1.0 seconds\n")
    assert "load.token_ms" not in {f.name for f in found.facts}
    assert fact(found, "load.request_ms", None) == pytest.approx(1000.0)


def test_a_latency_of_unknown_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a report of vllm bench latency: 1 s a batch"):
        told(tmp_path, "vllm bench latency\nAvg latency: 1.0 seconds\n")


def sweep(*rates: tuple[float, float]) -> str:
    """Runs with so many requests at once, and ms a token."""
    return "\n".join(vllm_serve(Ran(in_flight=n, token_ms=ms)) for n, ms in rates)


def test_more_requests_than_give_more_tokens(tmp_path: Path) -> None:
    past = told(tmp_path, sweep((1, 8.0), (16, 10.0), (64, 44.0)))
    assert "load-past-its-peak" in [note.cause for note in past.observed]
    assert fact(past, "load.knee", None) == 16
    rising = told(tmp_path, sweep((1, 8.0), (16, 10.0), (64, 16.0)))
    two = told(tmp_path, sweep((16, 10.0), (64, 44.0)))
    for found in (rising, two):
        assert "load-past-its-peak" not in [note.cause for note in found.observed]


def test_few_requests_on_many_gpus(tmp_path: Path) -> None:
    found = told(tmp_path, trtllm(Ran(in_flight=2, tensor_parallel=8)))
    assert "split-too-wide" in [note.cause for note in found.observed]


def test_drafts_that_are_rejected(tmp_path: Path) -> None:
    for accepted, causes in ((1.3, ["drafts-rejected"]), (2.9, [])):
        text = sglang_serving(HEALTHY).replace(
            "Concurrency:", f"Accept length:          {accepted}\nConcurrency:"
        )
        found = told(tmp_path, text)
        assert [f.cause for f in (*found.findings, *found.observed)] == causes


def test_a_log_with_lines_of_the_load_goes_before_the_report_in_it(tmp_path: Path) -> None:
    found = told(tmp_path, vllm(of(Moment(running=5, output=500.0))) + vllm_serve(HEALTHY))
    assert found.inputs[0].format == "server-log"
    assert fact(found, "load.running", None) == 5


@pytest.mark.parametrize(
    "text", ["= PERFORMANCE OVERVIEW\n", "Serving Benchmark Result\nMean TTFT (ms): x\n"]
)
def test_a_report_without_numbers_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        told(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_benchmark_of_decode_steps_tells_the_step_without_the_profiler(tmp_path: Path) -> None:
    alone = advisor.diagnose(committed("decode_eager_bs1")).inputs[0].untraced_step_ms
    assert alone is not None
    report = tmp_path / "bench.txt"
    report.write_text(one_batch(1, alone.mid))
    found = advisor.diagnose(committed("decode_eager_bs1"), advisor.Options(log=report)).inputs[0]
    assert found.untraced_step_ms is not None
    assert found.untraced_step_ms.low == pytest.approx(alone.mid, rel=0.01)
    assert found.untraced_step_from == "by the log"


def test_the_benchmark_of_vllm_of_2024_is_not_that_of_sglang(tmp_path: Path) -> None:
    """It printed a line on input tokens as well; only SGLang's counts tokens again by their text."""
    text = (
        "============ Serving Benchmark Result ============\n"
        "Successful requests:                     200\n"
        "Benchmark duration (s):                  50.00\n"
        "Total generated tokens:                  40000\n"
        "Input token throughput (tok/s):          900.00\n"
        "Output token throughput (tok/s):         800.00\n"
        "Mean TTFT (ms):                          120.00\n"
        "Mean TPOT (ms):                          20.00\n"
    )
    assert (told(tmp_path, text).inputs[0].producer or "").startswith("vllm bench serve")
    again = "Total generated tokens (retokenized):    39990\n"
    assert (told(tmp_path, text + again).inputs[0].producer or "").startswith("sglang.bench_serving")


def test_requests_that_failed_only_after_a_change_are_told(tmp_path: Path) -> None:
    sides = []
    for name, failed in (("before", 0), ("after", 100)):
        sides.append(tmp_path / f"{name}.txt")
        sides[-1].write_text(vllm_serve(Ran(failed=failed)))
    assert "Also: requests that failed from 0 to 100." in advisor.compare(*sides).summary
    assert "Also" not in advisor.compare(sides[0], sides[0]).summary
