"""Logs that tell of single requests, and of single steps: TGI, Ollama, details of vLLM's iterations; requests
of vLLM that wait for their KV cache to come from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from advisor.reports.html.charts import strips
from tests.reports.fixture import html_page
from tests.scenarios.support import fact, ranked


def told(folder: Path, text: str) -> Diagnosis:
    path = folder / "server.log"
    path.write_text(text)
    return advisor.diagnose(path)


def tgi(total: str, queue: str, inference: str, token: str) -> str:
    return (
        "2024-05-16T10:00:00.000000Z  INFO compat_generate{default_return_full_text=true}:generate{"
        f'parameters=GenerateParameters {{ max_new_tokens: Some(50) }} total_time="{total}" '
        f'validation_time="356.2µs" queue_time="{queue}" inference_time="{inference}" '
        f'time_per_token="{token}" seed="None"}}: '
        "text_generation_router::server: router/src/server.rs:289: Success\n"
    )


def test_requests_of_tgi(tmp_path: Path) -> None:
    """1.6 s of 4 s in the queue, and 80 tokens of 30 ms; the other waits for nothing and makes 20 of 60,
    in which reading its prompt is too large a share."""
    found = told(tmp_path, tgi("4.0s", "1.6s", "2.4s", "30ms") + tgi("1200.5ms", "500µs", "1.2s", "60ms"))
    assert found.inputs[0].producer == "TGI"
    assert found.inputs[0].serving_engine == "tgi"
    expected = {"request_ms": 2600.25, "queue_ms": 800.25, "token_ms": 30, "output_tokens": 50}
    for name, value in expected.items():
        assert fact(found, f"load.{name}", None) == pytest.approx(value), name
    assert ranked(found) == ["requests-queue"]


def test_requests_of_tgi_as_json(tmp_path: Path) -> None:
    """`--json-output`: fields of the span in the order of their names, and once more among all spans."""
    span = (
        '{"inference_time":"2.4s","name":"generate","parameters":"GenerateParameters { best_of: None }",'
        '"queue_time":"1.6s","seed":"None","time_per_token":"30ms","total_time":"4.0s","validation_time":"1ms"}'
    )
    line = (
        '{"timestamp":"2024-05-16T10:00:00.000000Z","level":"INFO","message":"Success","target":'
        '"text_generation_router::server","filename":"router/src/server.rs","line_number":402,'
        f'"span":{span},"spans":[{span}]}}\n'
    )
    found = told(tmp_path, line * 3)
    for name, value in {"request_ms": 4000, "queue_ms": 1600, "token_ms": 30, "output_tokens": 80}.items():
        assert fact(found, f"load.{name}", None) == pytest.approx(value), name
    assert fact(found, "load.lines", None) == 3


GIN = '[GIN] 2025/11/28 - 17:45:{:02d} | {} | {} |       127.0.0.1 | {:<8} "{}"\n'.format


def test_requests_of_ollama(tmp_path: Path) -> None:
    """2.5 s and 1 min 3.5 s; pages of other kinds and failed requests are none."""
    text = GIN(1, 200, " 2.5s", "POST", "/api/chat") + GIN(2, 200, "1m3.5s", "POST", "/v1/chat/completions")
    text += GIN(3, 200, "133.458µs", "HEAD", "/") + GIN(4, 404, "1.2ms", "POST", "/api/chat")
    found = told(tmp_path, text)
    assert found.inputs[0].producer == "Ollama"
    assert fact(found, "load.request_ms", None) == pytest.approx(33_000)
    assert fact(found, "load.lines", None) == 2


def test_layers_that_ollama_leaves_on_the_cpu(tmp_path: Path) -> None:
    """Beside its requests alone, without any line of tokens."""
    text = 'time=2025-11-28T17:45:00Z level=INFO source=ggml.go:482 msg="offloaded 20/33 layers to GPU"\n'
    found = told(tmp_path, text + GIN(1, 200, " 9.5s", "POST", "/api/generate"))
    assert ranked(found) == ["layers-on-cpu"]


def iteration(prompts: int, read: int, decodes: int, ms: float, dummy: bool = False) -> str:
    return (
        f"(APIServer pid=7) INFO 06-01 08:00:01 [loggers.py:198] Engine 000: Iteration(7): {prompts} context "
        f"requests, {read} context tokens, {decodes} generation requests, {decodes} generation tokens, "
        f"iteration elapsed time: {ms:.2f} ms{' (dummy)' * dummy}, GPU KV cache usage: 40.0%\n"
    )


def test_iterations_of_vllm(tmp_path: Path) -> None:
    """Eight requests decode, 20 ms a step: 400 tokens/s. A dummy step is none."""
    found = told(tmp_path, iteration(0, 0, 8, 20.0) * 5 + iteration(0, 0, 0, 1.0, dummy=True))
    for name, value in {"running": 8, "output_per_s": 400, "token_ms": 20, "cache_used": 0.4}.items():
        assert fact(found, f"load.{name}", None) == pytest.approx(value), name


def vllm(running: int, waiting: int, fetch: str = "", cache: float = 40.0) -> str:
    return (
        "(APIServer pid=7) INFO 06-01 08:00:01 [loggers.py:248] Engine 000: Avg prompt throughput: 0.0 "
        f"tokens/s, Avg generation throughput: 800.0 tokens/s, Running: {running} reqs, Waiting: {waiting} "
        f"reqs, {fetch}GPU KV cache usage: {cache}%\n"
    )


def test_iterations_beside_the_lines_about_all_of_them_count_once(tmp_path: Path) -> None:
    found = told(tmp_path, vllm(16, 0) * 4 + iteration(1, 900, 3, 50.0) * 40)
    assert fact(found, "load.running", None) == 16
    assert fact(found, "load.lines", None) == 4


def fetches(start: int, on_their_way: int, there: int) -> str:
    return f"KV fetch: {start} waiting to start, {on_their_way} in progress, {there} completed waiting, "


def test_requests_that_wait_for_their_cache_are_no_matter_of_the_batch(tmp_path: Path) -> None:
    """14 of 20; the near miss has 7 of 20, and a server without such fetches its batch limit. A cache that is
    there waits for a place."""
    found = told(tmp_path, vllm(16, 20, fetches(4, 10, 2)) * 6)
    assert fact(found, "load.fetching", None) == 14
    assert fact(found, "load.fetching_ratio", None) == pytest.approx(0.7)
    assert ranked(found) == ["kv-cache-fetched-late"]
    assert ranked(told(tmp_path, vllm(16, 20, fetches(2, 5, 2)) * 6)) == ["batch-limit-reached"]
    assert ranked(told(tmp_path, vllm(16, 20, fetches(0, 1, 19)) * 6)) == ["batch-limit-reached"]
    assert ranked(told(tmp_path, vllm(16, 20) * 6)) == ["batch-limit-reached"]


def test_the_same_by_the_metrics(tmp_path: Path) -> None:
    text = "".join(
        f'vllm:num_requests_kv_fetch_by_stage{{engine="0",stage="{stage}"}} {count}\n'
        for stage, count in {"waiting_to_start": 4, "in_progress": 10, "completed_waiting": 2}.items()
    )
    gauges = 'vllm:num_requests_running{engine="0"} 16\nvllm:num_requests_waiting{engine="0"} 20\n'
    assert ranked(told(tmp_path, gauges + text)) == ["kv-cache-fetched-late"]


def test_the_page_draws_a_load_over_time(tmp_path: Path) -> None:
    """One line for each thing that the log tells, with its name and values beside it; none of one moment."""
    lines = [
        f"INFO 02-28 15:0{i}:00 metrics.py:455] Avg prompt throughput: 0.0 tokens/s, Avg generation "
        f"throughput: {100 * i}.0 tokens/s, Running: {i} reqs, Swapped: 0 reqs, Pending: 0 reqs, "
        f"GPU KV cache usage: {i}.0%\n"
        for i in range(1, 7)
    ]
    found = told(tmp_path, "".join(lines))
    table = found.tables["load_over_time"]
    assert table.rows[-1] == (250.0, 6.0, 0.0, 0.06, 10.0, 600.0)
    drawn = {line.name: (line.least, line.mean, line.most) for line in strips(table)}
    assert drawn["running"] == ("1", "3.5", "6")
    assert drawn["KV cache"] == ("1 %", "3.5 %", "6 %")
    assert "Load over time" in html_page([found]).decode()
    assert "load_over_time" not in told(tmp_path, lines[0]).tables
