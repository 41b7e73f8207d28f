"""Facts of a server's load: values that can be read off its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import TRACE, FactBase
from advisor.sources.open import open_trace
from tests.benchmark_reports import LlamaTests, Ran, llama_bench, llama_json, trtllm, vllm_serve
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
        return build_facts(measure(trace))


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
            "load.running": 10 / 2 + 30,
            "load.running_most": 30.0,
            "load.waiting": 4.0,
            "load.waiting_per_running": 4 / 35,
            "load.since_start": False,
            "load.waiting_ratio": 1 / 3,
            "load.held_back_ratio": 1 / 3,
            "load.idle_ratio": 1 / 3,
            "load.output_per_s": 400.0 + 900.0,
            "load.prompt_per_s": 0.0 + 100.0,
            "load.cache_used": 0.6,
            "load.cache_most": 0.6,
            "load.cache_least": 0.2,
            "load.prefix_hit_ratio": 0.12,
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


def test_a_token_takes_what_three_lines_say(tmp_path: Path) -> None:
    """40 requests and 2,000 tokens a second: 20 ms, by lines of which each is of another stretch."""
    line = Moment(running=40, output=2000.0)
    assert facts(tmp_path, vllm(Server(moments=[line] * 2))).value("load.token_ms", TRACE) is None
    assert facts(tmp_path, vllm(Server(moments=[line] * 3))).value("load.token_ms", TRACE) == 20.0


def replicas(*each: tuple[int, int, float, float]) -> str:
    """Three lines of each replica: requests that run and wait, tokens a second, fill of the cache."""
    moments = [
        Moment(running=n, waiting=w, output=rate, cache=used, replica=i)
        for _ in range(3)
        for i, (n, w, rate, used) in enumerate(each)
    ]
    return vllm(Server(moments=moments))


def test_replicas_are_added(tmp_path: Path) -> None:
    """20 requests at 1,000 tokens a second and 30 at 1,500: both take 20 ms a token."""
    base = facts(tmp_path, replicas((20, 2, 1000.0, 0.4), (30, 4, 1500.0, 0.6)))
    expect_values(
        base,
        {
            "load.running": 50.0,
            "load.waiting": 6.0,
            "load.output_per_s": 2500.0,
            "load.token_ms": 20.0,
            "load.cache_used": 0.6,
            "load.running_spread_ratio": 0.0,
        },
        TRACE,
    )


def test_replicas_that_differ_have_no_common_time_per_token(tmp_path: Path) -> None:
    base = facts(tmp_path, replicas((128, 64, 2100.0, 0.92), (3, 0, 150.0, 0.02)))
    assert base.value("load.token_ms", TRACE) is None
    table = base.table("load.parts", TRACE)
    assert table is not None
    assert [row[:2] + row[5:] for row in table.rows] == [
        ("0", 128.0, pytest.approx(60.952, rel=1e-4), 0.92),
        ("1", 3.0, 20.0, 0.02),
    ]


def test_servers_of_several_containers_are_told_apart(tmp_path: Path) -> None:
    """Docker Compose puts the name before each line; prompts are read by one and decoded by the other."""
    reads = vllm(Server(moments=[Moment(running=2, output=0.0, prompt=9000.0)] * 3))
    decodes = vllm(Server(moments=[Moment(running=40, output=2000.0)] * 3))
    lines = [f"prefill-1  | {line}" for line in reads.splitlines()]
    lines += [f"decode-1   | {line}" for line in decodes.splitlines()]
    base = facts(tmp_path, "\n".join(lines))
    table = base.table("load.parts", TRACE)
    assert table is not None
    assert [row[0] for row in table.rows] == ["prefill-1", "decode-1"]
    assert base.value("load.token_ms", TRACE) == 20.0
    assert base.value("load.replica_spread_ratio", TRACE) is None


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([], None),
        (["Preemptions: 41", "Preemptions: 2"], 43),
        (["a is preempted by PreemptionMode.RECOMPUTE mode, total_num_cumulative_preemption=51"], 51),
        ([f"a is preempted by X mode, total_num_cumulative_preemption={n}" for n in (1, 51, 101)], 101),
        (["KV cache pool is full. Retract requests. #retracted_reqs: 12", "#retracted_reqs: 9"], 21),
    ],
)
def test_requests_that_lost_their_cache(tmp_path: Path, lines: list[str], count: int | None) -> None:
    """vLLM 0.x warns of the 1st, the 51st, the 101st with their number so far; V1 says those since its last
    line; a log that says nothing counts nothing."""
    load = vllm(Server()).splitlines()[-1]
    text = [f"{load}, {line}" if line.startswith("Preemptions") else line for line in lines]
    assert facts(tmp_path, "\n".join([load, *text])).value("load.preemptions", TRACE) == count


def test_a_server_on_a_cpu(tmp_path: Path) -> None:
    text = vllm(Server()).replace("GPU KV cache", "CPU KV cache")
    base = facts(tmp_path, text)
    assert base.value("load.on_cpu", TRACE) is True
    assert base.value("load.cache_used", TRACE) == pytest.approx(0.3)


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
    assert base.value("load.since_start", TRACE) is True


def test_a_request_takes_no_less_than_its_time_in_the_queue(tmp_path: Path) -> None:
    """Those that left the queue wait longer than those that ended took: 300 ms for 200."""
    text = METRICS + ("vllm:e2e_request_latency_seconds_sum 2.0\nvllm:e2e_request_latency_seconds_count 10\n")
    expect_values(facts(tmp_path, text), {"load.queue_ratio": 1.0, "load.request_ms": 200.0}, TRACE)


def test_of_several_scrapes_only_what_came_between_counts(tmp_path: Path) -> None:
    """6 s over 10 requests, then 2 s over 30: 200 ms each; the 3 s before the first scrape are history."""
    scrapes = [
        METRICS.replace(" 3.0", f" {seconds}").replace(" 10\n", f" {count}\n")
        for seconds, count in ((3.0, 10), (9.0, 20), (11.0, 50))
    ]
    base = facts(tmp_path, "".join(scrapes))
    assert base.value("load.queue_ms", TRACE) == pytest.approx(200.0)
    assert base.value("load.since_start", TRACE) is False


def test_a_counter_that_fell_is_of_a_server_that_started_again(tmp_path: Path) -> None:
    scrapes = [
        METRICS.replace(" 3.0", f" {seconds}").replace(" 10\n", f" {count}\n")
        for seconds, count in ((90.0, 100), (1.0, 10), (3.0, 20))
    ]
    assert facts(tmp_path, "".join(scrapes)).value("load.queue_ms", TRACE) == pytest.approx(200.0)


LINE = (
    "{} | INFO 11-28 13:22:00 [loggers.py:127] Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg "
    "generation throughput: {:.1f} tokens/s, Running: {} reqs, Waiting: {} reqs, {}GPU KV cache usage: 50%\n"
)


V0 = (
    "INFO 11-28 13:22:00 metrics.py:345] Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: "
    "900.0 tokens/s, Running: 40 reqs, Swapped: {} reqs, Pending: {} reqs, GPU KV cache usage: 98.0%.\n"
)


def test_requests_whose_cache_was_moved_to_the_host_wait(tmp_path: Path) -> None:
    expect_values(facts(tmp_path, V0.format(12, 3)), {"load.waiting": 15}, TRACE)
    expect_values(facts(tmp_path, V0.format(0, 0)), {"load.waiting": 0}, TRACE)


@pytest.mark.parametrize(("now", "lost"), [((0, 0, 0), None), ((0, 4, 2), 4)])
def test_requests_that_wait_to_get_their_cache_again(
    tmp_path: Path, now: tuple[int, ...], lost: int | None
) -> None:
    """SGLang counts those of a moment: 0 says nothing of the time between."""
    line = (
        "[2026-03-01 13:22:00 TP0] Decode batch, #running-req: 20, #token: 24000, token usage: 0.55, "
        "#transfer-req: 0, #retracted-req: {}, cuda graph: True, gen throughput (token/s): 1000.0, "
        "#queue-req: 0\n"
    )
    assert facts(tmp_path, "".join(map(line.format, now))).value("load.preemptions", TRACE) == lost


def test_values_of_servers_that_read_prompts_for_others(tmp_path: Path) -> None:
    """In three of four lines 20 requests wait to be read."""
    text = "".join(
        LINE.format("prefill", 8000.0, 4.0, 4, 20 if i else 0, "")
        + LINE.format("decode", 0.0, 900.0, 60, 0, "")
        for i in range(4)
    )
    expect_values(
        facts(tmp_path, text),
        {
            "load.prompt_servers": 1,
            "load.prompt_servers_waiting": 15,
            "load.prompt_servers_waiting_ratio": 0.75,
            "load.running": 60,
        },
        TRACE,
    )


def test_a_server_that_reads_for_others_by_its_arguments(tmp_path: Path) -> None:
    text = "args: kv_role='kv_producer'\n" + LINE.format("a", 8000.0, 4.0, 4, 20, "")
    expect_values(facts(tmp_path, text), {"load.prompt_servers": 1, "load.prompt_servers_waiting": 20}, TRACE)


def test_values_of_caches_that_are_fetched(tmp_path: Path) -> None:
    """Six of ten that wait, in half of the lines, beside nine that run."""
    fetch = "KV fetch: 2 waiting to start, 4 in progress, 1 completed waiting, "
    none = "KV fetch: 0 waiting to start, 0 in progress, 0 completed waiting, "
    text = LINE.format("a", 0.0, 900.0, 9, 10, fetch) + LINE.format("a", 0.0, 900.0, 9, 0, none)
    expect_values(
        facts(tmp_path, text),
        {
            "load.fetching": 3,
            "load.fetching_ratio": 0.6,
            "load.fetching_line_ratio": 0.5,
            "load.not_fetched_ratio": 0.25,
            "load.waiting_ratio": 0.5,
        },
        TRACE,
    )


TRITON = """\
nv_inference_request_success{model="m",version="1"} 1000
nv_inference_count{model="m",version="1"} 1000
nv_inference_exec_count{model="m",version="1"} 800
nv_inference_request_duration_us{model="m",version="1"} 50000000
nv_inference_queue_duration_us{model="m",version="1"} 40000000
"""


def test_values_of_triton(tmp_path: Path) -> None:
    """40 of 50 ms in the queue, 1.25 requests a batch."""
    expect_values(
        facts(tmp_path, TRITON),
        {"load.queue_ratio": 0.8, "load.request_ms": 50.0, "load.requests_a_batch": 1.25},
        TRACE,
    )


LLAMA = """\
llamacpp:tokens_predicted_total 9000
llamacpp:prompt_tokens_seconds 800.0
llamacpp:predicted_tokens_seconds 25.0
llamacpp:requests_processing 4
llamacpp:requests_deferred 2
llamacpp:n_busy_slots_per_decode 3.5
"""


def test_a_counter_that_the_last_scrape_lacks_is_not_known(tmp_path: Path) -> None:
    first, last = (
        [f"{line} {1_700_000_000_000 + at}" for line in (*LLAMA.splitlines(), f"llamacpp:n_decode_total {n}")]
        for at, n in ((0, 100), (5000, 200))
    )
    base = facts(tmp_path, "\n".join([*first, *(line for line in last if "n_busy_slots" not in line)]))
    assert base.value("load.slots_busy") is None
    assert base.value("load.running") == 4


def test_values_of_llama_cpp(tmp_path: Path) -> None:
    """Its rates are those of a slot while it works."""
    expect_values(
        facts(tmp_path, LLAMA),
        {"load.slots_busy": 3.5, "load.slot_output_per_s": 25.0, "load.slot_prompt_per_s": 800.0},
        TRACE,
    )


def test_a_value_below_zero_is_unknown(tmp_path: Path) -> None:
    text = LLAMA.replace("predicted_tokens_seconds 25.0", "predicted_tokens_seconds -25.0")
    base = facts(tmp_path, text.replace("requests_deferred 2", "requests_deferred -2"))
    assert base.value("load.slot_output_per_s", TRACE) is None
    assert base.value("load.waiting", TRACE) is None
    assert base.value("load.running", TRACE) == 4


def test_time_to_read_a_prompt(tmp_path: Path) -> None:
    """From 1 s to 3.5 s, less the 2 s of the answer."""
    line = "0.0{}.000 I slot {}: id  0 | task 0 | {}\n".format
    text = line("1.000", "launch_slot_", "processing task")
    text += line("3.500", "print_timing", "       eval time = 2000.00 ms /   100 tokens (20.00 ms per token)")
    text += line("3.500", "release", "stop processing")
    expect_values(facts(tmp_path, text), {"load.prompt_ms": 500.0}, TRACE)


def test_values_of_layers(tmp_path: Path) -> None:
    lines = "load_tensors: offloaded 20/33 layers to GPU\neval time = 100.00 ms / 10 runs\n"
    expect_values(
        facts(tmp_path, lines),
        {"load.layers": 33, "load.layers_on_gpu": 20, "load.layers_on_cpu_ratio": 13 / 33},
        TRACE,
    )


def test_values_of_the_least_layers(tmp_path: Path) -> None:
    """A Llama of 8B has 32 layers and that of the output."""
    expect_values(
        facts(tmp_path, llama_bench(1, 8.0, LlamaTests(gpu_layers=20))),
        {"load.layers_least": 33, "load.layers_on_gpu": 20, "load.layers_on_cpu_ratio": 13 / 33},
        TRACE,
    )


def test_values_of_host_and_device(tmp_path: Path) -> None:
    """12 ms of the host and 4 ms of the device in each step: the device idles for two thirds."""
    lines = "".join(
        f"[TRT-LLM] [RANK 0] [I] iter = {i}, global_rank = 0, rank = 0, currank_total_requests = 0/0, "
        "host_step_time = 12.0ms, prev_device_step_time = 4.0ms, num_scheduled_requests: 8, "
        "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 8}\n"
        for i in range(6)
    )
    expect_values(
        facts(tmp_path, lines),
        {
            "load.host_step_ms": 12.0,
            "load.device_step_ms": 4.0,
            "load.host_longer_ratio": 1.0,
            "load.device_idle_ratio": 2 / 3,
        },
        TRACE,
    )


SERVED = """\
============ Serving Benchmark Result ============
Successful requests:                     1000
Benchmark duration (s):                  50.00
Total generated tokens:                  201000
Request throughput (req/s):              20.00
Output token throughput (tok/s):         4020.00
Mean TTFT (ms):                          2000.00
Mean TPOT (ms):                          80.00
Mean ITL (ms):                           40.00
"""


def test_time_between_tokens_counts_who_decodes(tmp_path: Path) -> None:
    """4,000 tokens a second after the first ones, 40 ms apart: 160 requests decode. A request takes 2 s and
    200 times 40 ms, so 200 of 20 a second are on their way."""
    expect_values(
        facts(tmp_path, SERVED),
        {"load.running": 160.0, "load.token_ms": 40.0, "load.request_ms": 10_000.0, "load.in_flight": 200.0},
        TRACE,
    )


def test_one_token_a_request_is_no_time_a_token(tmp_path: Path) -> None:
    one = SERVED.replace("4020.00", "20.00").replace("201000", "1000").replace(" 80.00", " 0.00")
    assert facts(tmp_path, one.replace(" 40.00", " 0.00")).value("load.token_ms", TRACE) is None


def test_reports_of_a_like_load_are_not_one(tmp_path: Path) -> None:
    after = SERVED.replace(" 40.00", " 30.00").replace(" 80.00", " 60.00")
    with pytest.raises(InputError, match=r"40 and 30 ms a token\); give each a file of its own"):
        facts(tmp_path, SERVED + after)


def ended(engine: str, short: int | None, whole: int) -> str:
    """One scrape: requests that run, that ended, and that ended without a whole answer."""
    if engine == "vllm":
        reasons = {"stop": whole} | ({} if short is None else {"abort": short})
        counts = [f'vllm:request_success_total{{finished_reason="{r}"}} {n}.0' for r, n in reasons.items()]
        return "\n".join(['vllm:num_requests_running{engine="0"} 8.0', *counts, ""])
    names = {
        "sglang": (
            "sglang:num_running_reqs",
            "sglang:num_requests_total",
            "sglang:num_aborted_requests_total",
        ),
        "tgi": ("tgi_batch_current_size", "tgi_request_count", "tgi_request_failure"),
        "triton": (
            "nv_inference_pending_request_count",
            "nv_inference_request_success",
            "nv_inference_request_failure",
        ),
    }
    counts = [8, whole, short]
    return "".join(f"{name} {n}\n" for name, n in zip(names[engine], counts, strict=True) if n is not None)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "triton"])
def test_requests_that_were_aborted_by_metrics(tmp_path: Path, engine: str) -> None:
    """Of one scrape those since the start, of several those between; without the counter it is not known."""
    for scrapes, count in (
        ([(7, 93)], 7),
        ([(0, 93)], 0),
        ([(None, 93)], None),
        ([(7, 93), (7, 150), (12, 200)], 5),
        ([(40, 93), (2, 5)], 0),  # it started again
        ([(None, 93), (None, 150)], None),
    ):
        base = facts(tmp_path, "".join(ended(engine, short, whole) for short, whole in scrapes))
        assert base.value("load.aborted", TRACE) == count, scrapes


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi"])
def test_the_first_request_that_is_aborted_brings_its_counter(tmp_path: Path, engine: str) -> None:
    text = ended(engine, None, 93) + ended(engine, 3, 150)
    assert facts(tmp_path, text).value("load.aborted", TRACE) == 3


def test_requests_that_end_by_an_error_are_none_that_end(tmp_path: Path) -> None:
    text = ended("vllm", 4, 90) + 'vllm:request_success_total{finished_reason="error"} 2.0\n'
    assert facts(tmp_path, text).value("load.aborted", TRACE) == 6


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([], None),
        (["INFO 11-28 13:22:00 async_llm_engine.py:134] Aborted request cmpl-0a1b-0."], 1),
        (["INFO 11-28 13:22:00 [async_llm.py:420] Request cmpl-0a1b-0 aborted."] * 3, 3),
        (["INFO 11-28 13:22:00 server.py:10] Request to be aborted."], None),
    ],
)
def test_requests_that_were_aborted_by_lines_of_vllm(
    tmp_path: Path, lines: list[str], count: int | None
) -> None:
    text = "\n".join([vllm(Server()), *lines])
    assert facts(tmp_path, text).value("load.aborted", TRACE) == count


FAILED = {"load.failed": 100.0, "load.completed": 400.0, "load.failed_ratio": 0.2}


def test_values_of_requests_that_failed(tmp_path: Path) -> None:
    """Runs are added; a run that counts none is not known, and does not count."""
    expect_values(facts(tmp_path, vllm_serve(Ran(failed=100))), FAILED, TRACE)
    expect_values(
        facts(tmp_path, vllm_serve(Ran(failed=0))), {"load.failed": 0, "load.failed_ratio": 0}, TRACE
    )
    base = facts(tmp_path, vllm_serve(Ran()))
    assert base.value("load.failed", TRACE) is None
    assert base.value("load.failed_ratio", TRACE) is None
    runs = [Ran(in_flight=n, failed=failed) for n, failed in ((1, 0), (16, 100), (64, None))]
    base = facts(tmp_path, "\n".join(map(vllm_serve, runs)))
    expect_values(base, {"load.failed": 100, "load.completed": 1200, "load.failed_ratio": 1 / 9}, TRACE)
    table = base.table("load.parts", TRACE)
    assert table is not None
    assert [row[-1] for row in table.rows] == [0, 100, None]


def test_values_of_experts(tmp_path: Path) -> None:
    text = llama_json(1, 20.0).replace('"n_batch": 2048', '"n_batch": 2048, "n_cpu_moe": 10')
    expect_values(
        facts(tmp_path, text), {"load.experts_on_cpu": True, "load.expert_layers_on_cpu": 10}, TRACE
    )
