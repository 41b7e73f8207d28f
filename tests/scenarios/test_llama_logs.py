"""llama.cpp and TensorRT-LLM by what several lines of a log, or a scrape, say: slots that work at once,
layers that stay on the CPU, a host that is slower than the device; each with a healthy partner."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.benchmark_reports import LlamaTests, llama_bench, llama_csv, llama_json, llama_sql
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


def timed(at_once: int, prompt_s: float, answer_s: float, rounds: int = 5) -> str:
    """Lines with times, as since 2026: slots that take requests of 100 prompt tokens and 200 others one after
    the other, without a pause."""
    lines: list[tuple[float, str]] = []
    for i in range(rounds):
        begin = 7.0 + i * (prompt_s + answer_s)
        end = begin + prompt_s + answer_s
        for slot in range(at_once):
            where = f"id  {slot} | task {i * at_once + slot} | "
            rates = (
                f"prompt eval time = {prompt_s * 1e3:10.2f} ms /   100 tokens ({prompt_s * 10:8.2f} ms per "
                f"token, {100 / prompt_s:8.2f} tokens per second)",
                f"       eval time = {answer_s * 1e3:10.2f} ms /   200 tokens ({answer_s * 5:8.2f} ms per "
                f"token, {200 / answer_s:8.2f} tokens per second)",
                f"      total time = {(prompt_s + answer_s) * 1e3:10.2f} ms /   300 tokens",
                "   graphs reused =        198",
            )
            lines.append((begin, f"slot launch_slot_: {where}processing task, is_child = 0"))
            lines += [(end, f"slot print_timing: {where}{rate}") for rate in rates]
            lines.append((end, f"slot      release: {where}stop processing: n_tokens = 299, truncated = 0"))
    texts = (f"{s // 60:.0f}.{s % 60:06.3f}.000 I {text}\n" for s, text in sorted(lines, key=lambda e: e[0]))
    return f"0.01.038.170 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024\n{''.join(texts)}"


def test_lines_with_times_tell_the_load_over_time(tmp_path: Path) -> None:
    """Two slots, each 5 s a request of 200 tokens: 80 tokens/s while both read or answer, 40 of prompts."""
    found = told(tmp_path, timed(2, prompt_s=1.0, answer_s=4.0))
    expected = {"running": 2, "batch_limit": 4, "output_per_s": 80, "prompt_per_s": 40, "token_ms": 20}
    for name, value in (expected | {"prompt_ms": 1000, "lines": 25}).items():
        assert fact(found, f"load.{name}", None) == pytest.approx(value, rel=1e-3), name


def test_scrapes_of_llama_cpp_count_what_ended_between_them(tmp_path: Path) -> None:
    """Four requests of 100 tokens end together every 10 s, each of which took 8 s for its answer: 40
    tokens/s, 80 ms a token; a scrape every 5 s sees every second one. The history is none of it."""
    scrapes = [
        f"llamacpp:tokens_predicted_total {90_000 + 400 * (i // 2)} {i * 5000}\n"
        f"llamacpp:tokens_predicted_seconds_total {100 + 32 * (i // 2)} {i * 5000}\n"
        f"llamacpp:predicted_tokens_seconds {12.5 if i % 2 == 0 else 0} {i * 5000}\n"
        f"llamacpp:n_decode_total {1000 * i} {i * 5000}\n"
        f"llamacpp:n_busy_slots_per_decode 4 {i * 5000}\n"
        f"llamacpp:requests_processing 4 {i * 5000}\nllamacpp:requests_deferred 3 {i * 5000}\n"
        for i in range(9)
    ]
    found = told(tmp_path, "".join(scrapes))
    expected = {"running": 4, "waiting": 3, "output_per_s": 40, "token_ms": 80, "slots_busy": 4}
    for name, value in (expected | {"slot_output_per_s": 12.5}).items():
        assert fact(found, f"load.{name}", None) == pytest.approx(value), name
    assert ranked(found) == ["all-slots-busy"]


def scraped(running: list[int], waiting: list[int], every_ms: list[int] | None = None) -> str:
    """Scrapes of these requests, 2 s apart, or each so long after the one before as `every_ms` says."""
    at, text = 0, ""
    for i, (runs, waits) in enumerate(zip(running, waiting, strict=True)):
        at += 2000 if every_ms is None else every_ms[i]
        text += f"llamacpp:requests_processing {runs} {at}\nllamacpp:requests_deferred {waits} {at}\n"
        text += f"llamacpp:n_decode_total {100 * i} {at}\n"
    return text


def test_requests_are_counted_while_there_are_some(tmp_path: Path) -> None:
    """Scrapes begin before the load and end after it, between scrapes; a pause between is none of it."""
    idle, four = [0] * 3, [4] * 5
    found = told(tmp_path, scraped(idle + four + idle + four + idle, idle + [3] * 5 + idle + [3] * 5 + idle))
    assert fact(found, "load.running", None) == pytest.approx(4, rel=0.03)
    assert fact(found, "load.waiting", None) == pytest.approx(3, rel=0.03)
    assert fact(found, "load.running_spread_ratio", None) == 0


def test_scrapes_count_by_the_time_between_them(tmp_path: Path) -> None:
    """4 s with 2 requests, one of a change and 1 s with 4: (8 + 3 + 4) / 6."""
    text = scraped([2, 2, 4, 4], [0] * 4, [1000, 4000, 1000, 1000])
    assert fact(told(tmp_path, text), "load.running", None) == pytest.approx(15 / 6)


def test_a_server_without_requests_runs_none(tmp_path: Path) -> None:
    found = told(tmp_path, scraped([0] * 4, [0] * 4))
    assert (fact(found, "load.running", None), fact(found, "load.idle_ratio", None)) == (0, 1)


def test_a_rate_is_what_the_line_says_it_is(tmp_path: Path) -> None:
    """The first token of an answer comes with its prompt: 20 tokens are 19 steps of 10 ms."""
    line = "eval time =  190.00 ms /  20 tokens (  10.00 ms per token,  100.00 tokens per second)\n"
    assert fact(told(tmp_path, line * 3), "load.token_ms", None) == pytest.approx(10)


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("draft acceptance rate = 0.25000 (   50 accepted /   200 generated)", None),
        ("draft acceptance = 0.25000 (   50 accepted /   200 generated), mean len =  1.50", 1.5),
    ],
)
def test_drafts_of_llama_cpp(tmp_path: Path, line: str, accepted: float | None) -> None:
    found = told(tmp_path, timing(0, 0, 50.0) + line + "\n")
    assert fact(found, "load.acceptance_ratio", None) == pytest.approx(0.25)
    assert fact(found, "load.accepted_tokens", None) == accepted
    assert ranked(found) == ["drafts-rejected"]


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


LLAMA_8B, LLAMA_13B = "llama 8B Q4_K - Medium", "llama 13B Q4_K - Medium"
#: Of a name that is not known.
STRANGER = "stranger ?B Q8_0"


@pytest.mark.parametrize("report", [llama_bench, llama_json, llama_csv, llama_sql])
@pytest.mark.parametrize(
    ("model", "parameters", "on_gpu", "least"),
    [
        (LLAMA_13B, 13.02e9, 20, 41),
        (LLAMA_8B, 8.03e9, 0, 33),
        (LLAMA_8B, 8.03e9, 32, 33),  # all but that of the output
        ("qwen3moe 30B.A3B Q4_K - Medium", 30.53e9, 24, 49),
        ("LLaMA 7B mostly Q4_0", 6.74e9, 20, 33),  # as releases of 2023 write it
        (STRANGER, 12.0e9, 12, 21),
    ],
)
def test_layers_that_llama_bench_leaves_on_the_cpu(
    tmp_path: Path, report: Callable[..., str], model: str, parameters: float, on_gpu: int, least: int
) -> None:
    found = told(tmp_path, report(1, 110.0, LlamaTests(model, parameters, on_gpu)))
    assert ranked(found) == ["layers-on-cpu"]
    assert fact(found, "load.layers_least", None) == least
    assert fact(found, "load.layers_on_cpu_ratio", None) == pytest.approx(1 - on_gpu / least)
    assert f"{on_gpu} of at least {least} layers are on the GPU" in found.findings[0].message


@pytest.mark.parametrize("report", [llama_bench, llama_json, llama_csv, llama_sql])
@pytest.mark.parametrize(
    ("model", "parameters", "on_gpu", "backend"),
    [
        (LLAMA_8B, 8.03e9, 33, "CUDA"),  # all of them
        (LLAMA_13B, 13.02e9, 99, "ROCm"),
        ("llama 1B Q8_0", 1.24e9, 20, "CUDA"),  # 16 layers and the output
        (STRANGER, 12.0e9, 21, "CUDA"),  # as many as such a model has at least
        (STRANGER, 0.5e9, 4, "CUDA"),
        (LLAMA_8B, 8.03e9, -1, "CUDA"),  # left to llama.cpp
        (LLAMA_8B, 8.03e9, None, "CPU"),
        (LLAMA_8B, 8.03e9, None, "BLAS"),
    ],
)
def test_llama_bench_with_all_layers_where_they_belong(
    tmp_path: Path,
    report: Callable[..., str],
    model: str,
    parameters: float,
    on_gpu: int | None,
    backend: str,
) -> None:
    found = told(tmp_path, report(1, 8.0, LlamaTests(model, parameters, on_gpu, backend)))
    assert ranked(found) == []
    assert fact(found, "load.on_cpu", None) is (True if on_gpu is None else None)


def test_of_several_numbers_of_layers_the_most_counts(tmp_path: Path) -> None:
    """A test of which number is best leaves some on the CPU on purpose."""
    tried = [llama_bench(1, 100.0 / n, LlamaTests(gpu_layers=n)) for n in (1, 10, 20)]
    assert fact(told(tmp_path, "\n".join(tried)), "load.layers_on_gpu", None) == 20
    assert ranked(told(tmp_path, "\n".join([*tried, llama_bench(1, 8.0)]))) == []


def test_of_several_models_the_one_with_most_on_the_cpu_counts(tmp_path: Path) -> None:
    large = llama_bench(1, 110.0, LlamaTests(LLAMA_13B, 13.02e9, 20))
    found = told(tmp_path, f"{llama_bench(1, 8.0, LlamaTests(gpu_layers=33))}\n{large}")
    assert (fact(found, "load.layers_on_gpu", None), fact(found, "load.layers_least", None)) == (20, 41)


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


def with_columns(report: str, **columns: str) -> str:
    """The JSON or the table of llama-bench with more columns, alike in all tests."""
    if report.startswith("["):
        return json.dumps([{**test, **columns} for test in json.loads(report)])
    lines = []
    for line in report.splitlines():
        cells = columns if " test " in line else dict.fromkeys(columns, "---") if "---" in line else None
        added = [*cells] if cells is columns else [*(cells or columns).values()]
        lines.append(f"| {' | '.join(added)} {line}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("report", "columns", "layers"),
    [
        (llama_json, {"n_cpu_moe": "24"}, 24),
        (llama_bench, {"n_cpu_moe": "24"}, 24),
        (llama_json, {"n_cpu_moe": "0", "tensor_buft_overrides": r"\.ffn_.*_exps\.=CPU"}, None),
        (llama_bench, {"ot": "exps=CPU"}, None),
    ],
)
def test_experts_that_llama_bench_leaves_on_the_cpu_are_named(
    tmp_path: Path, report: Callable[..., str], columns: dict[str, str], layers: int | None
) -> None:
    """All layers are on the GPU by `ngl`; none of their experts, or of some of them."""
    model = LlamaTests("qwen3moe 30B.A3B Q4_K - Medium", 30.53e9, 99)
    found = told(tmp_path, with_columns(report(1, 20.0, model), **columns))
    assert [note.cause for note in found.observed] == ["experts-on-cpu"]
    assert fact(found, "load.expert_layers_on_cpu", None) == layers
    assert ranked(found) == []


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"n_cpu_moe": "0"},
        {"n_cpu_moe": "0", "tensor_buft_overrides": "none"},
        {"tensor_buft_overrides": "exps=CUDA0"},
    ],
)
def test_experts_on_the_gpu_or_where_nothing_tells(tmp_path: Path, columns: dict[str, str]) -> None:
    found = told(tmp_path, with_columns(llama_json(1, 20.0), **columns))
    assert [note.cause for note in found.observed] == []
    assert fact(found, "load.experts_on_cpu", None) is (False if "n_cpu_moe" in columns else None)
