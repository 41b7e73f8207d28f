"""The default report of every capture of this repository has no technical word that the glossary lacks.

A word of a report is in the glossary, a name (of a product, a file, a rule, an option), or one of the
ordinary words of `ordinary_words.txt`: everyday English in its everyday meaning. A new word makes the test
fail until it is put into one of the two.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from advisor.cli.main import main
from advisor.engine.load import load_rules

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = sorted(p for folder in ("examples", "tests/data") for p in (ROOT / folder / "captures").iterdir())
ORDINARY = frozenset((Path(__file__).with_name("ordinary_words.txt")).read_text().split())
#: What no reader looks up: products and units.
NAMES = frozenset(
    [
        "blackwell",
        "cuda",
        "inductor",
        "nsight",
        "nvidia",
        "python",
        "pytorch",
        "tesla",
        "transformers",
        "vllm",
        "wsl",
        "mb",
        "gb",
        "gib",
        "mib",
        "us",
        "ms",
        "ns",
        "tb",
    ]
)
_NAMES = (
    r"(?m)^\S+$|\S*[/\\]\S*",  # paths
    r"\S*([A-Za-z\u2588])\1{2,}\S*",  # bars of the budget
    r"\bcuda[A-Z]\w+",
    r"--[\w-]+(?: [A-Z]+)?|\b\w+(?:-\w+)+\b|\b\w*_\w*\b",  # options, causes, names of code
    r"\b[A-Z]{3}\d{3}\b|\b[A-Z]\d{2,4}\b",  # rules, GPUs
)
_ENDINGS = ("", "s", "es", "ed", "d", "ing")


def glossary() -> set[str]:
    """The words of the left column, each part of it by itself."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[1:]
    return {word for term in terms for word in re.findall(r"[a-z0-9]+", term.lower())}


def words(report: str) -> set[str]:
    """The words of a report, without names: paths, rules and causes, options, GPUs, bars of the budget."""
    for name in _NAMES:
        report = re.sub(name, " ", report)
    return {w.lower() for w in re.findall(r"[A-Za-z]+\d*", report) if len(w) > 1}


def unexplained(report: str) -> list[str]:
    known = ORDINARY | NAMES | glossary()

    def is_known(word: str) -> bool:
        stems = (word.removesuffix(end) for end in _ENDINGS if word.endswith(end))
        return any(stem in known or f"{stem}e" in known for stem in stems)

    return sorted(w for w in words(report) if not is_known(w))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: p.name)
def test_the_default_report_has_no_word_that_is_not_explained(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(path)])
    report = capsys.readouterr().out
    assert "Next:" in report
    assert unexplained(report) == []


def test_no_headline_has_a_word_that_is_not_explained() -> None:
    """What a report of any capture can say first: titles of findings, actions in a sentence and in short."""
    titles = [r.title for r in load_rules() if r.kind != "question"]
    assert len(titles) > 100
    named = yaml.safe_load((ROOT / "knowledge/actions.yaml").read_text(encoding="utf-8"))
    texts = [*titles, *(text for key in ("actions", "advice", "titles") for text in named[key].values())]
    assert unexplained("\n".join(f" {text}" for text in texts)) == []


def test_a_word_that_nobody_explains_is_found() -> None:
    assert unexplained("the warp scheduler of SM 3 stalls; see XFR101 pageable-copies") == [
        "scheduler",
        "stalls",
    ]


def test_no_ordinary_word_is_in_the_glossary() -> None:
    assert not ORDINARY & glossary()
