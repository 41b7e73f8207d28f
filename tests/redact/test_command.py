"""Of a command line only what is known to be harmless stays."""

from __future__ import annotations

import re
import shlex

import pytest

from advisor.capture.redact_command import clean, kept_words, named
from advisor.capture.redact_text import Scrubber
from advisor.capture.redact_trace import masked
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.verb_files import redaction

SCRUBBER = Scrubber(words=("alice",))


def cleaned(line: str) -> str:
    return " ".join(clean(shlex.split(line), SCRUBBER))


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("run --api-key whatever", "run --api-key redacted"),
        ("run --hf-token x", "run --hf-token redacted"),
        ("run --api-key=abc", "run --api-key=redacted"),
        ("run --api-key=", "run --api-key="),
        ("env HF_TOKEN=abc python x.py", "env HF_TOKEN=redacted python x.py"),
        ("run --prompt 'tell me about bob'", "run --prompt redacted"),
        ("run --prompt tell me about bob", "run --prompt redacted redacted redacted redacted"),
        ("run --system-prompt=secretive", "run --system-prompt=redacted"),
        ("run --user bob --tenant acme", "run --user redacted --tenant redacted"),
        ("run --user 1000 --tenant_id 31337", "run --user redacted --tenant_id redacted"),
        ("run --db.user_name=17", "run --db.user_name=redacted"),
        ("run -p hunter2x", "run -p redacted"),
        ("run -phunter2x", "run -predacted"),
        ("mysql -p 12345678", "mysql -p redacted"),
        ("run pg:PASSWORD@host", "run redacted"),
        ("run --dsn pg:PASSWORD@host", "run --dsn redacted"),
        ("curl -u bob:hunter2x https://x", "curl -u redacted redacted"),
        ("run model.owner=bob model.size=7", "run model.owner=redacted model.size=7"),
        ("run --phone 491711234567", "run --phone redacted"),
        ("""run --config '{"user": "bob", "batch": 8}'""", 'run --config {"user": "redacted", "batch": 8}'),
        ("sh -lc 'vllm serve a/b --api-key k1 && rm'",
         "sh -lc vllm serve a/b --api-key redacted '&&' redacted"),
        ("run 'free text of bob'", "run redacted"),
    ],
)  # fmt: skip
def test_what_goes(line: str, clean: str) -> None:
    assert cleaned(line) == clean


@pytest.mark.parametrize(
    "line",
    [
        "python -u -m sglang.launch_server --tp 2 --attention-backend flashinfer",
        "vllm serve meta-llama/Llama-3.1-8B --dtype bfloat16 --max-num-seqs 256 --enforce-eager",
        "vllm serve --enforce-eager meta-llama/Llama-3.1-8B -O3 --gpu-memory-utilization=0.9 -p 8000",
        "torchrun --standalone --nproc-per-node 8 train.py --lr 1e-5 --cuda-graph-sizes 1 2 4 8",
        """vllm serve a/b --kv-transfer-config '{"kv_role": "kv_producer", "kv_port": 14579}'""",
        "env CUDA_VISIBLE_DEVICES=0,1 python x.py --kv-cache-dtype fp8",
        "llama-server -ngl 99 -fa -c 8192",
        "python -m vllm.entrypoints.openai.api_server --model a/b --swap-space 4GiB",
    ],
)
def test_what_stays(line: str) -> None:
    assert clean(words := shlex.split(line), SCRUBBER) == words


def test_paths_lose_their_folders() -> None:
    assert cleaned("/home/bob/bin/vllm serve /data/acme/model") == "/redacted/vllm serve /redacted"
    assert (
        cleaned("python /home/bob/acme/run.py --model /data/acme/model")
        == "python /redacted/run.py --model /redacted"
    )


def test_what_stays_is_named() -> None:
    words = [
        "/redacted/vllm",
        "serve",
        "meta-llama/Llama-3.1-8B",
        "--dtype",
        "bf16",
        "--port",
        "8000",
        "--user",
        "redacted",
    ]
    assert list(kept_words(words)) == ["meta-llama/Llama-3.1-8B"]


def test_options_of_people_name_them() -> None:
    line = "run --user bobby --tenant=acme --api-key k1 --prompt 'who is bob' --prompt word --user 7"
    found = [("bobby", False), ("acme", False), ("k1", True), ("who is bob", True)]
    assert list(named(shlex.split(line))) == found


def test_lines_of_advice_stay_as_they_are() -> None:
    """What we advise to add is recognised where it is in use: so each engine's own options must survive."""
    lost = []
    for engine in engines().values():
        for options in engine.options.values():
            for option in options:
                for text in (option.line, option.before or ""):
                    if not text.startswith("-") or re.search(r"[<>\[\]|]|\.\.\.|\bor\b|,\s", text):
                        continue
                    try:
                        words = ["run", *shlex.split(text)]
                    except ValueError:
                        continue
                    if clean(words, SCRUBBER) != words:
                        lost.append((engine.name, text, clean(words, SCRUBBER)[1:]))
    assert lost == []


def test_names_of_the_list_are_written_as_they_are_compared() -> None:
    known = redaction()
    assert not known.people & known.options
    assert known.words == {word.lower() for word in known.words}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("vllm serve --api-key abc123 --user bob", "vllm serve --api-key redacted --user bob"),
        ("run --dsn pg:PASSWORD@host", "run --dsn pg:redacted"),
        ("run HF_TOKEN=hf_aB3dE5gH7jK9mN1pQ3sT", "run HF_TOKEN=redacted"),
        ("mysql -p hunter2x", "mysql -p redacted"),
        ("run postgres://bob:hunter2x@db/x", "run postgres://redacted"),
    ],
)
def test_a_command_is_shown_without_credentials(line: str, shown: str) -> None:
    assert " ".join(masked(shlex.split(line))) == shown
