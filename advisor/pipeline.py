"""The pipeline: capture -> trace -> metrics -> facts -> inference -> `Diagnosis`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from advisor.errors import InputError
from advisor.model.findings import Diagnosis, Tool

if TYPE_CHECKING:
    from advisor.sources.trace import Trace

Progress = Callable[[str], None]

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "ki": 2**10, "mi": 2**20, "gi": 2**30}  # fmt: skip
_PRECISION_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0}


@dataclass(frozen=True)
class Options:
    """What the user may choose about one diagnosis."""

    window: str | None = None
    nvtx: str | None = None
    phase: str | None = None
    weight_bytes: str | None = None
    serving_engine: str | None = None
    rules: tuple[Path, ...] = ()
    params: tuple[str, ...] = ()
    engine: Literal["durable", "python"] | None = None


def open_trace(path: str | Path) -> Trace:
    """The columns of a capture. Raises InputError where it cannot be read as one."""
    from advisor.sources.open import open_trace as open_

    return open_(Path(path))


def diagnose(
    path: str | Path, options: Options | None = None, progress: Progress | None = None
) -> Diagnosis:
    """Diagnose one capture. `progress` is told the name of each stage as it begins.

    Raises InputError for a capture or selection that cannot be used, RuleError for bad rules.
    """
    from advisor import __version__, document
    from advisor.engine.findings import conclude
    from advisor.engine.infer import default_engine, infer
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.engine.params import parse_params
    from advisor.facts.build import build_facts
    from advisor.metrics.analysis import Analysis, Selection

    chosen = options or Options()
    say = progress or (lambda _: None)
    weights = parse_weights(chosen.weight_bytes) if chosen.weight_bytes else None
    rules = load_rules(builtin_dir(), *chosen.rules)
    params = parse_params(rules, chosen.params)
    say("reading")
    with open_trace(path) as trace:
        analysis = Analysis(trace, Selection(chosen.window, chosen.nvtx, chosen.phase))
        facts = build_facts(analysis, weights)
        say("inferring")
        engine = chosen.engine or default_engine()
        inference = infer(facts, rules, engine=engine, params=params)
        found = conclude(inference, ms_of=document.milliseconds(analysis))
        serving = document.serving_engine(analysis, chosen.serving_engine)
        findings = document.with_options(found.findings, serving)
        inputs = (document.input_of(analysis, serving),)
        return Diagnosis(
            tool=Tool(version=__version__, engine=engine),
            inputs=inputs,
            verdict=document.verdict(analysis, findings, found.not_evaluated),
            findings=findings,
            overruled=found.overruled,
            healthy=found.healthy,
            not_evaluated=document.with_remedies(found.not_evaluated, trace.tables),
            budget=document.budgets(analysis),
            steps=document.steps(analysis),
            facts=document.facts(facts),
            thresholds=found.thresholds,
            tables=document.tables(analysis, facts),
            timeline=document.timeline(analysis),
            next_target=document.next_target(analysis, facts),
        )


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
