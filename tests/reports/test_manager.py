"""Five sentences for a manager: what is slow, why, what to do, what it wins, how sure."""

from __future__ import annotations

import re

import pytest

from advisor.model.findings import Diagnosis
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.manager import sentences
from tests.reports.fixture import DIAGNOSIS, HEALTHY, html_page
from tests.reports.test_diagnosis_blocks import page_lines

#: A code of a rule, the name of a fact, an option of ours.
CODES = re.compile(r"\b[A-Z]{3}\d{3}\b|\b[a-z]+\.[a-z_]{3,}|--[a-z]")


@pytest.mark.parametrize("diagnosis", [DIAGNOSIS, HEALTHY])
def test_five_sentences_without_codes(diagnosis: Diagnosis) -> None:
    found = sentences(diagnosis)
    assert len(found) == 5
    assert all(re.match(r"[A-Z0-9]", text) and text.endswith(".") for text in found)
    assert not CODES.search(" ".join(found))


def test_the_gain_and_how_sure_are_those_of_the_first_finding() -> None:
    first = DIAGNOSIS.findings[0]
    text = " ".join(sentences(DIAGNOSIS))
    assert first.title in text
    assert f"{round(100 * first.confidence)} % sure" in text
    assert DIAGNOSIS.headline is not None
    headline = DIAGNOSIS.headline.replaced(together=None)
    without = first.replaced(gain=None)
    alone = DIAGNOSIS.replaced(findings=(without,), headline=headline)
    assert sentences(alone)[3] == "What that wins cannot be estimated from this recording."


def test_an_option_in_the_advice_is_left_out() -> None:
    first = DIAGNOSIS.findings[0]
    advice = first.recommendations[0].replaced(
        sentence="record again with --cuda-graph-trace=node, to see the kernels inside CUDA graphs"
    )
    found = first.replaced(recommendations=(advice,))
    texts = sentences(DIAGNOSIS.replaced(findings=(found, *DIAGNOSIS.findings[1:])))
    assert texts[2] == "What to do: record again, to see the kernels inside CUDA graphs."


def test_the_text_and_the_head_of_the_page_say_them() -> None:
    shown = " ".join(line.plain for line in page_lines([DIAGNOSIS], TextOptions(reader="manager"), 80))
    assert " ".join(sentences(DIAGNOSIS)) in shown
    assert sentences(DIAGNOSIS)[1] in html_page([DIAGNOSIS]).decode()
