"""One entry in the registry of formats serves every verb."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.model.options import FORMATS, format_names, format_writer

VERBS = {
    "explain": ("explain", "ASK104"),
    "plan": ("capture", "bandwidth", "--engine", "vllm", "--where", "kubernetes"),
    "troubles": ("capture", "--troubleshoot"),
    "checklist": ("checklist", "--no-input", "-v"),
    "what-ifs": ("whatif", "--list"),
    "goals": ("capture", "--list"),
    "facts": ("facts", "--match", "sync."),
}
Captured = pytest.CaptureFixture[str]


def test_every_format_has_its_writer() -> None:
    for format in FORMATS:
        assert callable(format_writer(format.name))
    assert set(format_names("document")) < set(format_names("findings"))


class Nesting(HTMLParser):
    """Elements that are left open or closed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("verb", VERBS)
def test_the_formats_of_a_verb_say_the_same(verb: str, capsys: Captured, tmp_path: Path) -> None:
    made = {}
    for format in format_names("document"):
        assert main([*VERBS[verb], "--format", format]) == 0
        made[format] = capsys.readouterr().out
        file = tmp_path / format
        assert main([*VERBS[verb], "--format", format, "-o", str(file)]) == 0
        assert file.read_text(encoding="utf-8") == made[format]
    assert json.loads(made["json"])
    page = Nesting()
    page.feed(made["html"])
    assert page.open == []
    assert made["html"].count("<script") == 1
    words = [w for w in made["text"].split() if w.isalpha()]
    for other in ("markdown", "html"):
        missing = {w for w in words if w not in made[other]}
        assert missing <= {"Next", "Again"}, missing
