"""`generate` of transformers on a Llama with random weights, as most people start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gpu
import torch
from measure import Gain, Variant

TOKENS = 12


def generates() -> Iterator[Variant]:
    """A cache that grows, a static one, and a static one with the compiled forward."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048 if gpu.HERE else 64,
        intermediate_size=5632 if gpu.HERE else 128,
        num_hidden_layers=8 if gpu.HERE else 2,
        num_attention_heads=32 if gpu.HERE else 4,
        num_key_value_heads=4,
        vocab_size=32000 if gpu.HERE else 256,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(gpu.DEVICE, torch.bfloat16).eval()

    def call(batch: int, **options: Any) -> Callable[[], None]:
        ids = torch.randint(5, config.vocab_size, (batch, 64), device=gpu.DEVICE)
        mask = torch.ones_like(ids)

        def step() -> None:
            with torch.no_grad():
                model.generate(
                    ids,
                    attention_mask=mask,
                    max_new_tokens=TOKENS,
                    min_new_tokens=TOKENS,
                    do_sample=False,
                    pad_token_id=0,
                    **options,
                )

        return step

    for batch in (1, 8):
        compiled = Gain(
            "launch-bound", "static cache, compiled forward (CUDA graphs)", f"hf_compiled_b{batch}"
        )
        for way, options in {
            "dynamic": {},
            "static": {"cache_implementation": "static", "disable_compile": True},
        }.items():
            yield Variant(
                f"hf_{way}_b{batch}",
                "generate",
                call(batch, **options),
                ("launch-bound",),
                gains=(compiled,),
                calls=1,
                steps_a_call=TOKENS,
                marks=False,
            )
    for batch in (1, 8):  # last: compiling takes the most time
        yield Variant(
            f"hf_compiled_b{batch}",
            "generate",
            call(batch, cache_implementation="static"),
            top=("host-gap", "graph-replay-gaps", "launch-bound"),
            calls=1,
            steps_a_call=TOKENS,
            marks=False,
        )
