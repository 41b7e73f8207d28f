"""How many bytes of weights a step reads, as the user says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from advisor.errors import InputError

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "ki": 2**10, "mi": 2**20, "gi": 2**30}  # fmt: skip
_PRECISION_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0}


def given_weights(text: str | None) -> int | None:
    """Bytes of the weights where the user gave them, else None."""
    return parse_weights(text) if text else None


def parse_weights(text: str) -> int:
    """Bytes of the weights: a number such as ``16e9`` or ``15GB``, or a model's config.json."""
    hit = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if hit and hit[2] in _SIZES:
        return round(float(hit[1]) * _SIZES[hit[2]])
    path = Path(text)
    if not path.is_file():
        raise InputError(
            f"--weight-bytes: '{text}' is neither a size such as 16GB nor a config.json"
        )
    try:
        return _weights_of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as fault:
        raise InputError(
            f"--weight-bytes: {path} is not a model config that tells its size ({fault}); "
            "give the number of bytes instead"
        ) from None


def _weights_of(config: dict[str, object]) -> int:
    """Weights that one step of a dense Llama-like decoder reads: all layers and the output head."""

    def number(key: str, default: int | None = None) -> int:
        value = config.get(key, default)
        if not isinstance(value, int):
            raise KeyError(key)
        return value

    hidden, layers = number("hidden_size"), number("num_hidden_layers")
    heads = number("num_attention_heads")
    kv_heads, head = number("num_key_value_heads", heads), number("head_dim", hidden // heads)
    attention = hidden * head * (2 * heads + 2 * kv_heads)
    mlp = 3 * hidden * number("intermediate_size")
    parameters = layers * (attention + mlp) + hidden * number("vocab_size")
    kind = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
    return round(parameters * _PRECISION_BYTES.get(kind, 2.0))
