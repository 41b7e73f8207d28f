"""Facts about drafts and transfers of the KV cache, over hand-made captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.model.facts import TRACE, FactBase
from advisor.sources.open import open_trace
from tests.builder import Export
from tests.facts.test_values import STEP, US, expect_values
from tests.scenarios.machine import GEMM


def built(export: Export, folder: Path, acceptance: float | None = None) -> FactBase:
    with open_trace(export.write(folder / "t.sqlite")) as trace:
        return build_facts(measure(trace), acceptance=acceptance)


def speculative() -> Export:
    """Of 250 us of GPU time a step, 50 are drafted, though they run after the range, and 150 verified."""
    e = Export().gpu().process(1)
    for i in range(10):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US)
        e.range("step[DRAFT bs=1]", t, t + 10 * US).launch(t, 5 * US, GEMM.name, t + 20 * US, 50 * US)
        e.range("step[VERIFY bs=4]", t + 10 * US, t + 30 * US)
        e.launch(t + 15 * US, 5 * US, GEMM.name, t + 100 * US, 150 * US)
        e.launch(t + 40 * US, 5 * US, GEMM.name, t + 300 * US, 50 * US)
    return e


def test_drafting_and_verifying(tmp_path: Path) -> None:
    base = built(speculative(), tmp_path)
    expect_values(
        base,
        {
            "speculation.draft_ratio": 0.2,
            "speculation.verify_ratio": 0.6,
            "speculation.draft_ms": 0.05,
            "speculation.verify_ms": 0.15,
            "speculation.break_even_tokens": 200 / 150,
            "speculation.acceptance_given": False,
            "speculation.ms_per_token": None,
        },
    )


def test_the_cost_of_an_accepted_token(tmp_path: Path) -> None:
    """200 us yield 2.5 tokens, which without drafts take at most 150 us each."""
    expect_values(
        built(speculative(), tmp_path, acceptance=2.5),
        {
            "speculation.acceptance_given": True,
            "speculation.ms_per_token": 0.08,
            "speculation.speedup_limit": 150 / 80,
        },
    )


def fetching(*, ids: bool = True, read: bool = True, step: str = "decode_step") -> Export:
    """Every other step of 1 ms the host posts a transfer at 100-200 us, which it sees complete at 700 us.
    The device runs from 50 to 450 us of each step."""
    e = Export().gpu().process(1)
    for i in range(10):
        t = i * STEP
        e.range(f"{step} {i}", t, t + 900 * US)
        e.launch(t, 5 * US, GEMM.name, t + 50 * US, 400 * US)
        if i % 2:
            number = {"uint64Value": 0x7F00_0000_0000 + i % 4} if ids else {}
            text = e.string(f"nixl::postXferReq.{'read' if read else 'write'}")
            e.nvtx(59, t + 100 * US, t + 200 * US, textId=text, domainId=3, **number)
            mark = e.string("nixl::xfer.complete")
            e.nvtx(34, t + 700 * US, None, textId=mark, domainId=3, **number)
            e.nvtx(34, t + 720 * US, None, textId=mark, domainId=3, uint64Value=1)  # of another transfer
    return e


def test_the_device_waits_for_a_fetched_cache(tmp_path: Path) -> None:
    """Of the 600 us of a transfer the device idles 250; the last one outlasts the window."""
    expect_values(
        built(fetching(), tmp_path),
        {
            "kv.transfer_count": 5,
            "kv.transfer_ms": 0.6,
            "kv.post_ms": 0.1,
            "kv.post_ratio": 1 / 6,
            "kv.waiting_ratio": 4 * 0.25 / 9,
            "kv.host_gap_ratio": 4 * 0.25 / (9 * 0.55),
        },
    )


def test_a_cache_that_is_sent_keeps_no_device_waiting(tmp_path: Path) -> None:
    expect_values(built(fetching(read=False), tmp_path), {"kv.transfer_ms": 0.6, "kv.waiting_ratio": 0.0})


def test_without_ids_no_transfer_has_an_end(tmp_path: Path) -> None:
    expect_values(
        built(fetching(ids=False), tmp_path),
        {"kv.transfer_count": 5, "kv.post_ms": 0.1, "kv.transfer_ms": None, "kv.waiting_ratio": 0.0},
    )


def test_an_engine_that_waits_for_transfers(tmp_path: Path) -> None:
    """The range lasts from 500 to 800 us of each step; the device is idle for all of it."""
    e = Export().gpu().process(1)
    for i in range(10):
        t = i * STEP
        e.range(f"decode_step {i}", t, t + 900 * US).launch(t, 5 * US, GEMM.name, t + 50 * US, 400 * US)
        e.range("_check_disagg_gen_transfer_status", t + 500 * US, t + 800 * US)
    expect_values(built(e, tmp_path), {"kv.transfer_count": 0, "kv.waiting_ratio": 0.3})


@pytest.mark.parametrize(
    ("step", "read", "side"),
    [
        ("decode_step", True, "decode"),
        ("prefill_step", False, "prefill"),
        ("decode_step", False, "not-told"),
        ("iteration", True, "not-told"),
    ],
)
def test_transfers_and_steps_tell_the_side(tmp_path: Path, step: str, read: bool, side: str) -> None:
    assert built(fetching(read=read, step=step), tmp_path).value("capture.serving_side", TRACE) == side


@pytest.mark.parametrize(
    ("command", "filled"),
    [
        ("vllm serve m --max-num-seqs 64", 0.125),
        ("python3 -m sglang.launch_server --max-running-requests=4", 1.0),
        ("python3 -m sglang.launch_server --max-running-requests=64 --dp-size 4", None),
        ("vllm serve m", None),
    ],
)
def test_how_full_decode_steps_are(tmp_path: Path, command: str, filled: float | None) -> None:
    e = Export().gpu().process(1).command(*command.split())
    for i in range(9):
        t, batch = i * STEP, 7 + i % 3
        e.range(f"execute_context_0(0)_generation_{batch}({batch})", t, t + 900 * US)
        e.launch(t, 5 * US, GEMM.name, t + 50 * US, 400 * US)
    expect_values(built(e, tmp_path), {"serving.decode_batch": 8.0, "serving.batch_fill_ratio": filled})
