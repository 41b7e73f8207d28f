"""A server that reads prompts in some of the steps in which it decodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.reports.diagnosis_blocks import TextOptions
from tests.reports.fixture import plain
from tests.scenarios.machine import GEMM, NORM, PREFILL_ATTENTION, SILU, Machine
from tests.scenarios.support import diagnosed, expect, fact, finding, severity

#: One layer that reads a prompt, in us.
PREFILL_LAYER = ((GEMM, 150), (PREFILL_ATTENTION, 100), (GEMM, 150))
#: The same of a few tokens: shorter than the calls that launch them.
SHORT_PROMPT_LAYER = ((NORM, 2), (GEMM, 4), (PREFILL_ATTENTION, 4), (GEMM, 4), (SILU, 2))


def server(prompt_layers: int, mixed: int = 4) -> Machine:
    """20 steps; every fifth reads a prompt besides, until `mixed` of them have."""
    m = Machine()
    for i in range(20):
        reads = i % 5 == 3 and i // 5 < mixed
        prompts = "1(512)" if reads else "0(0)"
        with m.step(f"execute_context_{prompts}_generation_16(16)"):
            m.replay(4)
            if reads:
                m.layers(prompt_layers, PREFILL_LAYER)
            m.wait()
    return m


def test_prompts_hold_up_decodes(tmp_path: Path) -> None:
    d = diagnosed(server(4), tmp_path)
    assert severity(d, "prefill-holds-decode") == "low"
    assert fact(d, "serving.mixed_step_count") == 4
    assert fact(d, "serving.decode_window_ratio") == pytest.approx(
        15 * 0.2423 / (4 * 1.8423 + 15 * 0.2423), rel=0.02
    )
    usual, held = 0.2423, 0.2423 + 4 * 0.4
    assert fact(d, "serving.decode_step_ms") == pytest.approx(usual)
    assert fact(d, "serving.mixed_step_ms") == pytest.approx(held)
    assert fact(d, "serving.mixed_over_decode") == pytest.approx(held / usual)
    assert fact(d, "serving.held_window_ratio") == pytest.approx(
        4 * (held - usual) / (4 * held + 15 * usual), rel=0.02
    )


@pytest.mark.parametrize(("layers", "mixed"), [(4, 1), (4, 0)])
def test_one_prompt_is_an_exception(tmp_path: Path, layers: int, mixed: int) -> None:
    d = diagnosed(server(layers, mixed), tmp_path)
    assert severity(d, "prefill-holds-decode") is None
    assert fact(d, "serving.mixed_step_count") == mixed


def test_drafts_and_their_verification_are_graphs_of_their_own(tmp_path: Path) -> None:
    """Graphs of six and of eight layers: of the smaller one no node is missing."""
    m = Machine()
    for _ in range(20):
        with m.step("step[DRAFT_LOOP raw_bs=4 bs=4 topk=1]"):
            m.replay(6)
            m.wait()
        with m.step("step[VERIFY bs=4]"):
            m.replay(8)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert severity(d, "damaged-capture") is None
    assert severity(d, "costly-drafts") == "info"
    assert fact(d, "speculation.break_even_tokens") == pytest.approx(1 + 6 / 8, rel=0.03)


@pytest.mark.parametrize("ahead", [False, True])
def test_texts_are_tokenized_between_the_batches_of_an_embedding_server(tmp_path: Path, ahead: bool) -> None:
    """The next batch has texts of its own: the host computes on no result. A thread that works ahead
    leaves no gap."""
    m = Machine()
    for i in range(20):
        if not ahead:
            m.work(8_000, "tokenize")
        with m.step(f"embed_batch {i}"):
            m.copy("HtoD", 64)
            m.layers(24, PREFILL_LAYER)
            m.copy("DtoH", 400, "pageable", gb_per_s=10)
    d = diagnosed(m, tmp_path)
    assert severity(d, "host-gap") == (None if ahead else "high")
    if not ahead:
        found = d.findings[0]
        assert found.gain is not None
        assert found.gain.speedup is not None
        assert "compute-on-device" not in {r.id for r in found.recommendations}


#: A layer of 0.4 ms that reads prompts as an engine runs it.
PROMPT_LAYER = (
    (NORM, 4), (GEMM, 90), (PREFILL_ATTENTION, 100), (GEMM, 50), (NORM, 4), (GEMM, 90), (SILU, 12),
    (GEMM, 50),
)  # fmt: skip


def sglang(layers: int, batch: int = 32) -> Machine:
    """20 decode steps of 0.24 ms; two prompts, `layers` of 0.4 ms each, are read before every fourth."""
    m = Machine()
    for i in range(20):
        if i % 4 == 2:
            with m.step("step[EXTEND bs=2 toks=8192]"):
                m.layers(layers, PROMPT_LAYER)
                m.wait()
        with m.step(f"step[DECODE bs={batch} toks={batch}]"):
            m.replay(4)
            m.wait()
    return m


def test_prompts_alone_between_decodes_hold_them_up(tmp_path: Path) -> None:
    """A token of 32 sequences waits for 120 layers of a prompt: 48 ms, 200 of its own steps."""
    d = diagnosed(sglang(120), tmp_path)
    expect(d, "prefill-holds-decode", never=("step-outliers",))
    assert severity(d, "prefill-holds-decode") == "high"
    assert fact(d, "serving.stall_count") == 5
    usual, prompt = 0.2423, 120 * 0.4
    assert fact(d, "serving.decode_step_ms") == pytest.approx(usual)
    assert fact(d, "serving.stall_ms") == pytest.approx(prompt, rel=0.01)
    assert fact(d, "serving.stall_decode_steps") == pytest.approx(prompt / usual, rel=0.01)
    assert fact(d, "serving.token_p99_ms") == pytest.approx(prompt + usual, rel=0.01)
    # Their ranges name more tokens: such steps are longer, not slower than others of their size.
    assert fact(d, "host.step_outliers") == 0


def test_short_prompts_alone_between_decodes_are_a_low_finding(tmp_path: Path) -> None:
    d = diagnosed(sglang(4), tmp_path)
    assert severity(d, "prefill-holds-decode") == "low"


def test_a_chunk_that_fits_beside_the_decodes(tmp_path: Path) -> None:
    """0.08 ms of prompts before a step of 0.24 ms."""
    m = Machine()
    for i in range(20):
        if i % 4 == 2:
            with m.step("step[EXTEND bs=1 toks=64]"):
                m.layers(1, ((GEMM, 30), (PREFILL_ATTENTION, 20), (GEMM, 30)))
                m.wait()
        with m.step("step[DECODE bs=32 toks=32]"):
            m.replay(4)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert severity(d, "prefill-holds-decode") is None
    assert severity(d, "step-outliers") is None


def test_batches_one_after_the_other_wait_for_no_prompt_but_their_own(tmp_path: Path) -> None:
    """A benchmark of latency: both prompts are read, both are decoded, again and again."""
    d = diagnosed(sglang(120, batch=2), tmp_path)
    assert severity(d, "prefill-holds-decode") is None
    assert fact(d, "serving.stall_count") == 0


def test_prompts_of_vllm_without_decodes_beside_them(tmp_path: Path) -> None:
    m = Machine()
    for i in range(20):
        if i % 6 == 3:
            with m.step("execute_context_1(4096)_generation_0(0)"):
                m.layers(120, PROMPT_LAYER)
                m.wait()
        running = 16 + (i + 3) // 6
        with m.step(f"execute_context_0(0)_generation_{running}({running})"):
            m.replay(4)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert severity(d, "prefill-holds-decode") == "high"
    assert fact(d, "serving.stall_count") == 3


@pytest.mark.parametrize(("at", "found"), [((2, 5, 11, 15), 4), ((2, 7, 12, 17), 4), ((2, 11, 20, 29), 0)])
def test_steps_without_sizes_of_a_serving_engine(tmp_path: Path, at: tuple[int, ...], found: int) -> None:
    """Requests come at uneven distances, or often; batches one after the other evenly."""
    m = Machine()
    for i in range(36):
        if i in at:
            with m.step("prefill"):
                m.layers(120, PROMPT_LAYER)
                m.wait()
        with m.step("decode_step"):
            m.replay(4)
            m.wait()
    d = diagnosed(m, tmp_path)
    assert fact(d, "serving.stall_count") == found
    assert severity(d, "prefill-holds-decode") == ("high" if found else None)


# ------------------------------------------------------------------------------- where launching is slow


def eager_prompts(every: int, eager: bool = True) -> Machine:
    """Each step replays a graph; every so many read a prompt besides, kernel by kernel, which the host
    launches more slowly than they run."""
    m = Machine()
    for i in range(24):
        reads = i % every == 0
        with m.step(f"execute_context_{'1(64)' if reads else '0(0)'}_generation_16(16)"):
            m.replay(10)
            if reads and eager:
                m.layers(12, SHORT_PROMPT_LAYER, call=20)
            elif reads:
                m.replay(12, SHORT_PROMPT_LAYER)
            m.wait()
    return m


def test_launching_that_waits_in_some_steps_names_them(tmp_path: Path) -> None:
    d = diagnosed(eager_prompts(4), tmp_path)
    expect(d, also=("launch-bound",))
    assert fact(d, "launch.idle_phase") == "mixed"
    assert fact(d, "launch.idle_phase_ratio") == pytest.approx(1, abs=0.05)
    assert fact(d, "launch.idle_phase_steps") == 5  # the first step, which is one of them, is left out
    # 12 layers of 5 kernels beside the 80 of the graph.
    assert fact(d, "launch.idle_phase_eager_ratio") == pytest.approx(60 / 140)
    found = finding(d, "launch-bound")
    assert "of the waiting lies in the 5 mixed steps" in found.message
    action = found.recommendations[0].action
    assert action.startswith("The mixed steps launch ")
    assert "Each step" not in action


def test_launching_that_waits_in_every_step_names_none(tmp_path: Path) -> None:
    d = diagnosed(eager_prompts(1), tmp_path)
    assert fact(d, "launch.idle_phase") is None
    assert "of the waiting lies" not in finding(d, "launch-bound").message


def test_prompts_from_graphs_launch_nothing_slowly(tmp_path: Path) -> None:
    expect(diagnosed(eager_prompts(4, eager=False), tmp_path), never=("launch-bound",))


@pytest.mark.parametrize(("mixed", "words"), [(4, " prompt tokens/s, writes "), (0, "delivers  writes ")])
def test_tokens_of_prompts_are_not_delivered(tmp_path: Path, mixed: int, words: str) -> None:
    d = diagnosed(server(4, mixed), tmp_path)
    (line,) = [x for x in plain(d, TextOptions()).splitlines() if x.startswith("  delivers")]
    assert words in line
