"""Texts in the forms of public issues: the values of each, its first causes, and those that it has not.

Texts of these forms that people pasted lie beside the checkout, where it has them: they say theirs as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import advisor
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.captures import SHARED
from tests.pasted_forms import FORMS, Form

PASTED = SHARED / "pasted" / "forms"
GPU_BOUND = Form(
    facts={"sums.kernel_ms": 1000.0, "sums.busy_most_ratio": 0.9524, "sums.product_ratio": 0.82},
    never=("launches-outlast-kernels",),
)
#: The same of the texts beside the checkout.
SEEN: Mapping[str, Form] = {
    "gpubound_rowlimit.txt": GPU_BOUND,
    "gpubound_withsync.txt": GPU_BOUND,
    "ka_shapes_mem.txt": Form(
        facts={"sums.kernel_ms": 1000.0, "sums.busy_most_ratio": 1.0, "sums.product_ratio": 0.8},
        never=("launches-outlast-kernels",),
    ),
    "ka_torch14.txt": Form(
        facts={"sums.product_ratio": 0.9975, "sums.host_ms": 581.286}, never=("no-gpu-activity",)
    ),
    "vllm_bench_2026_two.txt": Form(refused=r"6\.99 and 6\.03 ms a token"),
    "vllm_bench_ttft_heavy.txt": Form(facts={"load.running": 249.8, "load.token_ms": 41.94}),
    "sglang_bare_line.log": Form(
        facts={"load.running": 1004, "load.waiting": 12190, "load.cache_used": 0.93, "load.token_ms": None},
        causes=("kv-cache-full", "server-overloaded"),
    ),
    "sglang_retract.log": Form(
        facts={"load.preemptions": 21, "load.token_ms": 67.97},
        causes=("kv-cache-full", "decode-beyond-graphs"),
    ),
    "vllm_dp4.log": Form(
        facts={
            "load.running": 131,
            "load.waiting": 66.67,
            "load.output_per_s": 2257.5,
            "load.cache_used": 0.9253,
            "load.token_ms": None,
        },
        causes=("uneven-replicas",),
    ),
    "vllm_preempt_v0.log": Form(facts={"load.preemptions": 101}, causes=("kv-cache-full",)),
    "vllm_cpu_real.log": Form(
        facts={"load.on_cpu": True, "load.cache_most": 1.0, "load.preemptions": None},
        causes=("kv-cache-full", "server-overloaded"),
        never=("decode-beyond-graphs",),
    ),
    "scrapes2.txt": Form(
        facts={"load.first_token_ms": 5000.0, "load.token_ms": 40.0, "load.since_start": False}
    ),
    "llama_metrics.txt": Form(
        facts={
            "load.running": 4,
            "load.waiting": 4,
            "load.slots_busy": 3.88376,
            "load.slot_prompt_per_s": 914.814,
            "load.slot_output_per_s": 39.8736,
        },
        causes=("all-slots-busy",),
    ),
    "llama_server_slots.log": Form(
        facts={"load.running": 4, "load.output_per_s": 40.0, "load.token_ms": 100}
    ),
    "llama_perf_2025.txt": Form(
        facts={"load.layers_on_gpu": 20, "load.layers": 41, "load.output_per_s": 12.99},
        causes=("layers-on-cpu",),
    ),
    "trtllm_iter_2025b.log": Form(
        facts={"load.host_step_ms": 12.355, "load.device_step_ms": 4.15}, causes=("host-outlasts-device",)
    ),
    "triton_metrics.txt": Form(
        facts={"load.queue_ms": 70.0, "load.request_ms": 81.2, "load.requests_a_batch": 1.002},
        causes=("requests-queue",),
    ),
    "rocm_smi.txt": Form(refused="rocm-smi"),
    "vllm_bench_latency.txt": Form(refused=r"vllm bench latency: 2\.34 s a batch"),
    "vllm_queue_metrics.txt": Form(
        facts={"load.first_token_ms": 7299.0, "load.queue_ms": 6020.0, "load.since_start": True},
        causes=("kv-cache-full", "server-overloaded", "requests-queue"),
    ),
    "nsys_expert.txt": Form(refused="nsys analyze"),
    "vllm_queue_with_room.log": Form(
        facts={"load.running": 600, "load.waiting": 4473.5, "load.cache_most": 0.592},
        causes=("batch-limit-reached",),
    ),
}


def causes(found: Diagnosis) -> list[str]:
    return [f.cause for f in found.findings if f.severity != "info"]


def holds(path: Path, form: Form) -> None:
    """The text says what its form has to say."""
    if form.refused:
        with pytest.raises(InputError, match=form.refused) as caught:
            advisor.diagnose(path)
        assert "nsys stats" not in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    found = advisor.diagnose(path)
    known = {f.name: f.value for f in found.facts}
    assert {n: known.get(n) for n in form.facts} == {
        n: v if v is None or isinstance(v, bool) else pytest.approx(v, rel=1e-3)
        for n, v in form.facts.items()
    }
    assert causes(found)[: len(form.causes)] == list(form.causes)
    assert not set(causes(found)) & set(form.never)
    assert all(f.share is None or f.share >= 0.001 for f in found.findings)


@pytest.mark.parametrize("name", FORMS)
def test_a_text_of_each_form(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FORMS[name].text)
    holds(path, FORMS[name])


@pytest.mark.skipif(not PASTED.is_dir(), reason="no texts beside this checkout")
@pytest.mark.parametrize("name", SEEN)
def test_the_text_that_was_pasted(name: str) -> None:
    holds(PASTED / name, SEEN[name])


def test_both_hold_each_form_that_is_labelled() -> None:
    assert FORMS.keys() == SEEN.keys()
    if PASTED.is_dir():
        rows = (PASTED / "labels.tsv").read_text().splitlines()[1:]
        assert {row.split("\t")[0] for row in rows} == SEEN.keys()
