"""Pages say who needs them, with an example; the page of one finding and the ten questions hold today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import advisor
from advisor.cli.main import main
from advisor.model.numbers import condition_text

ROOT = Path(__file__).resolve().parents[2]
#: Lists that are generated whole.
GENERATED = frozenset(["cli", "facts", "rules", "gain_calibration"])
PAGES = sorted(p for p in (ROOT / "docs").glob("*.md") if p.stem not in GENERATED)
DEMO = "examples/captures/decode_eager_bs1.sqlite.xz"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_begins_with_who_needs_it_and_an_example(page: Path) -> None:
    _, first, *rest = page.read_text(encoding="utf-8").replace("<!--", "\n\n<!--").split("\n\n")
    others = [p for p in (first, *rest[:4]) if p.strip() and not p.startswith("<!--")]
    assert others[0].startswith(("For anyone", "One job")), others[0]
    assert any(re.search(r"^    \S|^```|`[^`]+`", p, re.MULTILINE) for p in others[:3])


def test_examples_name_verbs_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = {
        verb
        for page in PAGES
        for verb in re.findall(
            r"^    advisor ([a-z]+)(?: |$)", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert len(verbs) > 5
    for verb in sorted(verbs):
        assert main([verb, "--help"]) == 0, verb
    assert capsys.readouterr().out


def test_the_traced_finding_is_that_of_today() -> None:
    text = (ROOT / "docs" / "how_it_decides.md").read_text(encoding="utf-8")
    found = advisor.diagnose(ROOT / DEMO).findings[0]
    rows = re.findall(
        r"^\| `([\w.]+)` \| (at (?:least|most)) ([\d.,]+[ \w%]*) \| ([^|]+?) \|", text, re.MULTILINE
    )
    conditions = {c.fact: condition_text(c) for c in found.conditions if ":" not in c.fact}
    assert {fact for fact, *_ in rows} == set(conditions)
    for fact, word, threshold, value in rows:
        sign = ">=" if word == "at least" else "<="
        assert all(part in conditions[fact] for part in (sign, threshold.strip(), value)), conditions[fact]
    assert found.gain is not None
    assert found.gain.speedup is not None
    assert f"{found.gain.speedup.mid:.2f} x" in text


def asked() -> list[tuple[str, str]]:
    """The command of each question, and what has to stand in its answer."""
    text = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| [^|]+ \| `advisor ([^`]*)`?[^|]*\| ([^|]+?) \|$", text, re.MULTILINE)
    plain = re.findall(r"^\| \d+ \| [^|]+ \| the [^|`]*(?:`-v`[^|]*)?\| ([^|]+?) \|$", text, re.MULTILINE)
    return [*rows, *(("report.sqlite", words) for words in plain)]


def test_ten_questions_are_answered_by_the_first_screen_or_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = asked()
    assert len(questions) == 10
    for line, words in questions:
        args = [str(tmp_path / a) if a == "report.html" else a for a in line.split()]
        args = [str(ROOT / DEMO) if a == "report.sqlite" else a for a in args]
        code = main(args)
        printed = capsys.readouterr()
        answer = " ".join((printed.out + printed.err).split())
        if words == "wrote":
            assert (tmp_path / "report.html").is_file()
        elif words.isdigit():
            assert code == int(words)
        else:
            for part in words.split(", "):
                assert part in answer, (line, part)
