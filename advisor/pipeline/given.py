"""Values given by the user besides the capture: bytes of weights a step, step time without the profiler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.metrics.budgeted.matmuls import Decoder
from advisor.numerals import read_float
from advisor.reading import parse_json, read_text

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30}
#: No model is larger; also keeps sizes finite.
_MOST = 1e18
#: No engine verifies more tokens of a sequence at once.
_MOST_TOKENS = 1024
#: No step lasts longer, ms: eleven days.
_LONGEST_MS = 1e9
#: Where configs of mixture-of-experts models keep the number of experts.
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
_PRECISION_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0}


def given_weights(text: str | None) -> int | None:
    """Bytes of the weights if the user gave them, else None."""
    return None if text is None else parse_weights(text)


def given_decoder(text: str | None) -> Decoder | None:
    """The sizes of the model, if the user gave its config.json, else None."""
    if not text or not Path(text).is_file():
        return None
    return _decoder_of(_config(Path(text)))


def parse_weights(text: str) -> int:
    """Bytes of the weights: a number such as ``16e9`` or ``15GB``, or a model's config.json. Raises
    InputError for anything else, and for a config from which the bytes read by a step do not follow."""
    hit = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if hit and hit[2] in _SIZES:
        size = (read_float(hit[1]) or 0.0) * _SIZES[hit[2]]
        if not 1 <= size <= _MOST:
            raise InputError(f"--weight-bytes: invalid size '{text}'; expected bytes, such as 16GB")
        return round(size)
    path = Path(text)
    if not path.is_file():
        raise InputError(f"--weight-bytes: '{text}' is neither a size such as 16GB nor a config.json")
    try:
        decoder = _decoder_of(_config(path))
        return round(decoder.parameters * decoder.bytes_each)
    except KeyError as fault:
        why = f"it has no {fault.args[0]}"
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as fault:
        why = str(fault)
    raise InputError(
        f"--weight-bytes: {path} does not give the bytes that a step reads ({why}); "
        "give the number instead, such as 16GB"
    )


def _config(path: Path) -> dict[str, Any]:
    config = parse_json(read_text(path))
    found: dict[str, Any] = config.get("text_config") or config
    return found


def _decoder_of(config: dict[str, Any]) -> Decoder:
    """The sizes of a dense Llama-like decoder. Raises KeyError, ValueError or TypeError for other configs."""
    experts = next((config[k] for k in _EXPERTS if config.get(k)), 0)
    if experts > 1:
        raise ValueError(f"how many of its {experts} experts are read depends on the batch")

    def number(key: str, default: int | None = None) -> int:
        value = config.get(key)
        value = default if value is None else value
        if not isinstance(value, int):
            raise KeyError(key)
        return value

    hidden, layers = number("hidden_size"), number("num_hidden_layers")
    heads = number("num_attention_heads")
    kv_heads, head = number("num_key_value_heads", heads), number("head_dim", hidden // heads)
    inner, vocabulary = number("intermediate_size"), number("vocab_size")
    return Decoder(layers, hidden, heads * head, kv_heads * head, inner, vocabulary, _bytes_each(config))


def _bytes_each(config: dict[str, Any]) -> float:
    """Bytes of one weight: of its quantised form where the config names one."""
    packed = config.get("quantization_config")
    if not packed:
        kind = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
        return _PRECISION_BYTES.get(kind, 2.0)
    bits, method = packed.get("bits"), str(packed.get("quant_method"))
    if isinstance(bits, int):
        return bits / 8
    if "fp8" in method or packed.get("load_in_8bit"):
        return 1.0
    if packed.get("load_in_4bit"):
        return 0.5
    raise ValueError(f"weights quantised by {method}")


def given_acceptance(text: str | None) -> float | None:
    """``2.8`` tokens a verification and sequence, as engines log it ("mean acceptance length" of vLLM,
    "accept len" of SGLang); at least the one that needs no draft. Raises InputError."""
    if text is None:
        return None
    value = read_float(text, commas=False)
    if value is None or not 1 <= value < _MOST_TOKENS:
        raise InputError(f"--acceptance: invalid value '{text}'; expected tokens from 1 on, such as 2.8")
    return value


def given_step_ns(text: str | None) -> float | None:
    """``9.92`` (milliseconds) as ns; None if it was not given. Raises InputError."""
    if text is None:
        return None
    value = read_float(text.lower().removesuffix("ms"), commas=False)
    if value is None or not 0 < value < _LONGEST_MS:
        raise InputError(f"--unprofiled-step: '{text}' is not a time in milliseconds, such as 9.92")
    return value * 1e6
