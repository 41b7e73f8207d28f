"""Facts of a server's load: values that can be read off its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.metrics.analysis import Analysis
from advisor.model.facts import TRACE, FactBase
from advisor.sources.open import open_trace
from tests.benchmark_reports import Ran, trtllm, vllm_serve
from tests.facts.test_values import expect_values
from tests.server_logs import Moment, Server, sglang, vllm

METRICS = """\
vllm:num_requests_running{engine="0"} 4
vllm:request_queue_time_seconds_sum{engine="0"} 3.0
vllm:request_queue_time_seconds_count{engine="0"} 10
"""


def facts(folder: Path, text: str) -> FactBase:
    path = folder / "server.log"
    path.write_text(text)
    with open_trace(path) as trace:
        return build_facts(Analysis(trace))


def test_values_of_vllm(tmp_path: Path) -> None:
    moments = [
        Moment(running=10, waiting=0, output=400.0, cache=0.2, replica=0, accepted=2.0),
        Moment(running=30, waiting=4, output=900.0, prompt=100.0, cache=0.6, replica=1, accepted=3.0),
        Moment(running=0, waiting=0, output=0.0, cache=0.0, replica=0),
    ]
    base = facts(tmp_path, vllm(Server(limit=40, tensor_parallel=2, drafted=4, moments=moments)))
    expect_values(
        base,
        {
            "load.logged": True,
            "load.lines": 5,
            "load.running": 40 / 3,
            "load.running_most": 30.0,
            "load.waiting": 4 / 3,
            "load.waiting_ratio": 1 / 3,
            "load.idle_ratio": 1 / 3,
            "load.output_per_s": 650.0,
            "load.prompt_per_s": 100 / 3,
            "load.token_ms": (25 + 100 / 3) / 2,
            "load.cache_used": 0.4,
            "load.cache_most": 0.6,
            "load.prefix_hit_ratio": 0.12,
            "load.preemptions": 0,
            "load.accepted_tokens": 2.5,
            "load.acceptance_ratio": 0.375,
            "load.rejected_ratio": 0.625,
            "load.batch_limit": 40.0,
            "load.batch_fill_ratio": 0.75,
            "load.replicas": 2,
            "load.replica_spread_ratio": 1 - 17.5 / 30,
            "load.tensor_parallel": 2.0,
        },
        TRACE,
    )


def test_values_of_steps_with_and_without_graphs(tmp_path: Path) -> None:
    moments = [Moment(running=n, output=n * 10.0, graph=n <= 32) for n in (8, 16, 32, 48)]
    base = facts(tmp_path, sglang(Server(largest_graph=32, moments=moments)))
    expect_values(base, {"load.eager_ratio": 0.25, "load.graph_batch": 32.0, "load.eager_batch": 48.0}, TRACE)


def test_values_of_lines_that_are_compared(tmp_path: Path) -> None:
    usual, prompts = Moment(output=800.0, cache=0.1), Moment(output=400.0, prompt=9000.0, cache=0.1)
    base = facts(tmp_path, vllm(Server(moments=[usual, prompts] * 4)))
    expect_values(base, {"load.prompt_slowdown": 2.0, "load.prompt_cost_ratio": 0.5}, TRACE)
    longer = Moment(output=200.0, cache=0.5)
    base = facts(tmp_path, vllm(Server(moments=[usual] * 4 + [longer] * 4)))
    expect_values(base, {"load.context_slowdown": 4.0, "load.context_cost_ratio": 0.75}, TRACE)


def test_values_of_benchmarks(tmp_path: Path) -> None:
    """16 requests of 100 ms and 127 further tokens of 10 ms: 11.7 a second, 1,495 tokens a second."""
    runs = [
        Ran(in_flight=n, output_tokens=128, first_ms=100.0, token_ms=ms)
        for n, ms in ((1, 10.0), (16, 10.0), (64, 100.0))
    ]
    base = facts(tmp_path, trtllm(runs[1]))
    expect_values(
        base,
        {
            "load.in_flight": 16.0,
            "load.output_per_s": 1494.8905,
            "load.first_token_ms": 100.0,
            "load.request_ms": 1370.0,
            "load.output_tokens": pytest.approx(128.0, rel=1e-4),
            "load.first_token_ratio": 100 / 1370,
        },
        TRACE,
    )
    base = facts(tmp_path, "\n".join(map(vllm_serve, runs)))
    expect_values(base, {"load.knee": 16.0, "load.beyond_knee_ratio": 0.75}, TRACE)


def test_values_of_metrics(tmp_path: Path) -> None:
    base = facts(tmp_path, METRICS)
    assert base.value("load.queue_ms", TRACE) == pytest.approx(300.0)
    later = METRICS.replace(" 3.0", " 9.0").replace(" 10\n", " 20\n")
    assert facts(tmp_path, METRICS + later).value("load.queue_ms", TRACE) == pytest.approx(450.0)
