"""llama.cpp and TensorRT-LLM by what several lines of a log, or a scrape, say: slots that work at once,
layers that stay on the CPU, a host that is slower than the device; each with a healthy partner."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.scenarios.support import fact, ranked


def told(folder: Path, text: str) -> Diagnosis:
    path = folder / "server.log"
    path.write_text(text)
    return advisor.diagnose(path)


def timing(slot: int, task: int, each_ms: float) -> str:
    """As the server prints it when a request of 100 prompt tokens and 200 others is done."""
    return (
        f"slot print_timing: id  {slot} | task {task} | \n"
        f"prompt eval time =     100.00 ms /   100 tokens (    1.00 ms per token)\n"
        f"       eval time = {200 * each_ms:11.2f} ms /   200 tokens ({each_ms:8.2f} ms per token)\n"
        f"      total time = {200 * each_ms + 100:11.2f} ms /   300 tokens\n"
    )


def taken(slot: int, task: int) -> str:
    return f"slot launch_slot_: id  {slot} | task {task} | processing task\n"


def released(slot: int, task: int) -> str:
    return f"slot      release: id  {slot} | task {task} | stop processing: n_tokens = 300, truncated = 0\n"


@pytest.mark.parametrize("releases", [True, False])
def test_slots_that_work_at_once_are_counted_and_their_tokens_added(tmp_path: Path, releases: bool) -> None:
    """Three requests of 50 ms a token side by side are 60 tokens a second."""
    done = "".join(timing(i, i, 50.0) + (released(i, i) if releases else "") for i in range(3))
    found = told(tmp_path, "".join(taken(i, i) for i in range(3)) + done)
    assert fact(found, "load.running", None) == 3
    assert fact(found, "load.output_per_s", None) == pytest.approx(60)
    assert fact(found, "load.token_ms", None) == pytest.approx(50)


def test_requests_one_after_the_other_are_one_at_once(tmp_path: Path) -> None:
    text = "".join(taken(i % 2, i) + timing(i % 2, i, 50.0) + released(i % 2, i) for i in range(4))
    found = told(tmp_path, text)
    assert fact(found, "load.running", None) == 1
    assert fact(found, "load.output_per_s", None) == pytest.approx(20)


METRICS = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 9000
llamacpp:prompt_tokens_seconds 850.5
llamacpp:predicted_tokens_seconds 25
llamacpp:requests_processing 6
llamacpp:requests_deferred 11
llamacpp:n_busy_slots_per_decode 5.6
"""


def test_a_scrape_of_llama_cpp(tmp_path: Path) -> None:
    """Its rates are those of a slot while it works: 5.6 of them give 140 tokens a second."""
    found = told(tmp_path, METRICS)
    assert found.inputs[0].format == "server-metrics"
    values = {"running": 6, "waiting": 11, "slots_busy": 5.6, "slot_output_per_s": 25, "token_ms": 40}
    for name, value in (values | {"output_per_s": 140, "slot_prompt_per_s": 850.5}).items():
        assert fact(found, f"load.{name}", None) == pytest.approx(value), name


@pytest.mark.parametrize(
    "line",
    ["load_tensors: offloaded {}/33 layers to GPU", 'time=x level=INFO msg="offloaded {}/33 layers to GPU"'],
)
def test_layers_that_stay_on_the_cpu_are_the_cause(tmp_path: Path, line: str) -> None:
    """Those of a model that is on the GPU whole are none."""
    rest = "\n" + timing(0, 0, 77.0)
    found = told(tmp_path, line.format(20) + rest)
    assert ranked(found)[0] == "layers-on-cpu"
    assert found.findings[0].message.startswith("20 of 33 layers are on the GPU")
    assert "layers-on-cpu" not in ranked(told(tmp_path, line.format(33) + rest))


@pytest.mark.parametrize(("places", "on_cpu"), [(["CPU_Mapped"], True), (["CUDA0", "CPU_Mapped"], None)])
def test_weights_in_the_memory_of_the_host_alone_are_those_of_a_server_on_a_cpu(
    tmp_path: Path, places: list[str], on_cpu: bool | None
) -> None:
    text = "".join(f"load_tensors: {place:>12} model buffer size =  4100.22 MiB\n" for place in places)
    assert fact(told(tmp_path, text + timing(0, 0, 50.0)), "load.on_cpu", None) is on_cpu


def steps(host_ms: float, device_ms: float) -> str:
    return "".join(
        f"[06/11/2025-10:00:0{i}] [TRT-LLM] [RANK 0] [I] iter = {i}, global_rank = 0, rank = 0, "
        f"currank_total_requests = 0/0, host_step_time = {host_ms}ms, prev_device_step_time = {device_ms}ms, "
        "timestamp = 2025-06-11 10:00:00, num_scheduled_requests: 8, "
        "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 8}\n"
        for i in range(6)
    )


def test_a_host_that_takes_longer_than_the_device_is_the_cause(tmp_path: Path) -> None:
    """One that waits for it takes as long; the near miss takes a fifth longer."""
    found = told(tmp_path, steps(12.0, 4.0))
    assert ranked(found)[0] == "host-outlasts-device"
    assert found.findings[0].share == pytest.approx(2 / 3)
    assert "host-outlasts-device" not in ranked(told(tmp_path, steps(12.0, 11.9)))
    assert "host-outlasts-device" not in ranked(told(tmp_path, steps(12.0, 10.0)))


def test_a_report_of_vllm_bench_latency_tells_no_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a report of vllm bench latency: 1\.5 s a batch") as caught:
        told(tmp_path, "Avg latency: 1.5012 seconds\n50% percentile latency: 1.4987 seconds\n")
    assert "\n" not in str(caught.value)
