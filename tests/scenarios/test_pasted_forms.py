"""Texts in the forms of public issues, beside the checkout: the values that each says, and its causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

import advisor
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.captures import SHARED

FORMS = SHARED / "pasted" / "forms"
pytestmark = pytest.mark.skipif(not FORMS.is_dir(), reason="no texts beside this checkout")


class Form(NamedTuple):
    """Facts with their values, None for an unknown one; causes in their order, and those it has not."""

    facts: Mapping[str, float | bool | None] = {}
    causes: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


GPU_BOUND = Form({"sums.kernel_ms": 1000.0}, never=("launches-outlast-kernels",))
READ = {
    "gpubound_rowlimit.txt": GPU_BOUND,
    "gpubound_withsync.txt": GPU_BOUND,
    "ka_shapes_mem.txt": Form({"sums.kernel_ms": 1000.0}, never=("launches-outlast-kernels",)),
    "ka_torch14.txt": Form(never=("no-gpu-activity",)),
    "vllm_bench_ttft_heavy.txt": Form({"load.running": 249.8, "load.token_ms": 41.94}),
    "sglang_bare_line.log": Form(
        {"load.running": 1004, "load.waiting": 12190, "load.cache_used": 0.93, "load.token_ms": None},
        ("kv-cache-full", "server-overloaded"),
    ),
    "sglang_retract.log": Form(
        {"load.preemptions": 21, "load.token_ms": 67.97}, ("kv-cache-full", "decode-beyond-graphs")
    ),
    "vllm_dp4.log": Form(
        {"load.running": 131, "load.waiting": 66.67, "load.output_per_s": 2257.5, "load.token_ms": None},
        ("uneven-replicas",),
    ),
    "vllm_preempt_v0.log": Form({"load.preemptions": 101}, ("kv-cache-full",)),
    "vllm_cpu_real.log": Form(
        {"load.on_cpu": True, "load.cache_most": 1.0, "load.preemptions": None},
        ("kv-cache-full", "server-overloaded"),
    ),
    "scrapes2.txt": Form({"load.first_token_ms": 5000.0, "load.token_ms": 40.0, "load.since_start": False}),
    "triton_metrics.txt": Form(
        {"load.queue_ms": 70.0, "load.request_ms": 81.2, "load.requests_a_batch": 1.002}, ("requests-queue",)
    ),
    "vllm_queue_metrics.txt": Form(
        {"load.first_token_ms": 7299.0, "load.queue_ms": 6020.0, "load.since_start": True},
        ("kv-cache-full", "server-overloaded", "requests-queue"),
    ),
    "vllm_queue_with_room.log": Form(
        {"load.running": 600, "load.waiting": 4473.5, "load.cache_most": 0.592}, ("batch-limit-reached",)
    ),
}
REFUSED = {
    "vllm_bench_2026_two.txt": r"6\.99 and 6\.03 ms a token",
    "rocm_smi.txt": "rocm-smi",
    "nsys_expert.txt": "nsys analyze",
}


def causes(found: Diagnosis) -> list[str]:
    return [f.cause for f in found.findings if f.severity != "info"]


@pytest.mark.parametrize("name", READ)
def test_what_a_text_says(name: str) -> None:
    form = READ[name]
    found = advisor.diagnose(FORMS / name)
    known = {f.name: f.value for f in found.facts}
    assert {n: known.get(n) for n in form.facts} == {
        n: v if v is None or isinstance(v, bool) else pytest.approx(v, rel=1e-3)
        for n, v in form.facts.items()
    }
    assert causes(found)[: len(form.causes)] == list(form.causes)
    assert not set(causes(found)) & set(form.never)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InputError, match=REFUSED[name]) as caught:
        advisor.diagnose(FORMS / name)
    assert "nsys stats" not in str(caught.value)
