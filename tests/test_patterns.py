"""Ordered patterns: the index finds what trying every pattern finds."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
import yaml

from advisor.knowledge.kernel_names import Patterns, required_literals
from advisor.knowledge.package_data import data_dir

KNOWN = ("kernel_families", "step_ranges", "workloads", "call_sites", "gpus")


def texts_in(data: Any) -> list[str]:
    if isinstance(data, str):
        return [data]
    values = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [text for value in values for text in texts_in(value)]


def valid(text: str) -> bool:
    try:
        return bool(re.compile(text))
    except re.error:
        return False


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("rms_norm", {"rms_norm"}),
        ("^nvjet_", {"nvjet_"}),
        ("RMSNorm", {"rmsnorm"}),
        ("(?i)Decode", {"decode"}),
        (r"a\.cpp", {"a.cpp"}),
        ("colou?r", {"colo"}),
        ("gemms?", {"gemm"}),
        ("gemm+x", {"gemm"}),
        ("gemm{0,2}", {"gem"}),
        ("gem{", {"gem{"}),
        ("norm.*kernel", {"kernel"}),
        ("gemm|gemv", {"gemm", "gemv"}),
        ("(?:gemm|gemv)_x", {"gemm", "gemv"}),
        ("ge(?:mm|mv|neral)", {"gemm", "gemv", "general"}),
        ("s[gm]emm", {"emm"}),
        ("(?P<kind>gemm)", {"gemm"}),
        (r"gemm[\]abc]_", {"gemm]", "gemma", "gemmb", "gemmc"}),
        ("[]abc]gemm", {"gemm"}),
        ("[^]abc]+gemm", {"gemm"}),
        (r"gemm\b", {"gemm"}),
        ("gemm|", set()),
        ("(?:gemm)?", set()),
        ("(?:gemm)*?", set()),
        ("(?:gemm|x)", set()),
        ("(?!gemm)", set()),
        ("(?<!gemm)abc", {"abc"}),
        ("(?=gemm)", set()),
        (r"\x41bcd", {"bcd"}),
        (r"(gemm)\1", {"gemm"}),
        ("(?x) ge mm", set()),
        ("(?#gemm)abcd", set()),
        ("gemm++x", {"gemm"}),
        (r"gemm\.+v", {"gemm."}),
        ("(?i:gemm)(?P<n>x{2,})", {"gemm"}),
        (r"gemm[\d]abcd", {"gemm"}),
        ("gemm(?=abcde)", {"gemm"}),
        ("gemm(?:a|b|c|d|e)", {"gemm"}),
        ("ab", set()),
        ("größe", set()),
        ("", set()),
    ],
)
def test_the_literals_that_a_pattern_requires(pattern: str, literals: set[str]) -> None:
    assert required_literals(pattern) == literals


@pytest.mark.parametrize("name", KNOWN)
def test_trying_every_pattern_finds_the_same(name: str) -> None:
    data = yaml.safe_load((data_dir("knowledge") / f"{name}.yaml").read_text(encoding="utf-8"))
    patterns = [text for text in texts_in(data) if valid(text)]
    # A pattern without its signs, and joined to others, is a text that many of them match.
    plain = [re.sub(r"\(\?[a-zP<>:]*|[\\^$()?*+]|\[[^]]*\]", "", text) for text in patterns]
    texts = [*plain, *(f"{a}_{b}" for a, b in zip(plain, plain[7:], strict=False)), "Größe ſtep"]
    searched = Patterns(patterns)
    compiled = [re.compile(p) for p in patterns]
    hits = 0
    for text in texts[:: max(len(texts) // 300, 1)]:
        every = [(i, hit.span()) for i, p in enumerate(compiled) if (hit := p.search(text))]
        assert [(i, hit.span()) for i, hit in searched.all(text)] == every
        first = searched.first(text)
        assert (first and (first[0], first[1].span())) == (every[0] if every else None)
        hits += len(every)
    assert hits > 10


def test_letters_outside_ascii_that_equal_ascii_ones_are_found() -> None:
    assert Patterns(["(?i)step"]).found("\u017ftep")


@pytest.mark.parametrize("other", ["", "\u212aernel", "x\ny"])
def test_texts_in_which_a_pattern_is_found_are_those_of_each_alone(other: str) -> None:
    texts = ("fused_rms_norm", "ampere_sgemm", "kernel", "RMS_NORM", other)
    for text in ("(?i)rms_?norm", "sgemm|nvjet", "(?i)kernel", "^$", "never", "."):
        patterns = Patterns((text,))
        assert patterns.among(texts) == [t for t in texts if patterns.found(t)]
    assert Patterns(("nvjet", "norm$")).among(texts) == ["fused_rms_norm"]


def test_patterns_can_be_kept() -> None:
    patterns = Patterns(["gemm", "norm"])
    assert patterns.found("my_norm")
    kept = pickle.loads(pickle.dumps(patterns))
    found = kept.first("my_norm")
    assert found is not None
    assert found[0] == 1


@pytest.mark.parametrize(
    "text", [r"(?i)gemm_(?P<kind>[a-z]+)(\d*)", r"a|b(?=c)", "[^a-z]x{2,5}$", "(?s)\u212a|."]
)
def test_a_kept_pattern_finds_what_its_text_does(text: str) -> None:
    kept = pickle.loads(pickle.dumps(Patterns([text])))
    for name in ("GEMM_ab12", "my_gemm_x", "bc", "Axxx", "\u212a", "\n", ""):
        hit, expected = kept.first(name), re.search(text, name)
        assert (hit is None) == (expected is None)
        if hit is not None and expected is not None:
            assert (hit[1].span(), hit[1].groups()) == (expected.span(), expected.groups())
            assert hit[1].groupdict() == expected.groupdict()
            assert (hit[1].re.flags, hit[1].re.pattern) == (expected.re.flags, text)


def test_texts_are_searched_in_their_beginning() -> None:
    assert not Patterns(["a{9}$"]).found("b" * 10_000 + "a" * 9)
    assert Patterns(["a{9}$"]).among(("b" * 10_000 + "a" * 9, "a" * 9)) == ["a" * 9]
