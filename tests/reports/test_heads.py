"""What every format says of the capture: the same words, and no blank for what is not known."""

from __future__ import annotations

import html
import io
import re

import pytest
from openpyxl import load_workbook

from advisor.model.capture import InputDevice
from advisor.model.findings import Diagnosis, Input
from advisor.reports import markdown
from advisor.reports.diagnosis_blocks import TextOptions
from advisor.reports.diagnosis_blocks import report as diagnosis_report
from advisor.reports.workbook import book
from tests.reports.fixture import DIAGNOSIS, html_page, plain

FORMATS = ("terminal", "markdown", "html", "workbook")


def shown(diagnosis: Diagnosis, form: str) -> str:
    """The text of a report in one line, without its markup."""
    if form == "terminal":
        out = plain(diagnosis, TextOptions(verbosity=1), width=400)
    elif form == "markdown":
        out = html.unescape(markdown.document(diagnosis_report([diagnosis])).decode()).replace("\\", "")
        out = out.replace("**: ", " ").replace("**", "")
    elif form == "html":
        out = html.unescape(re.sub(r"<[^>]+>", " ", html_page([diagnosis]).decode()))
    else:
        sheets = load_workbook(io.BytesIO(book.render([diagnosis])))
        cells = (c.value for s in sheets for row in s.iter_rows() for c in row)
        out = " ".join(str(v) for v in cells if v is not None)
    return " ".join(out.split())


def of(**known: object) -> Diagnosis:
    entry = Input(path="a.sqlite", format="nsys-sqlite", **known)  # type: ignore[arg-type]
    return DIAGNOSIS.replaced(inputs=(entry,))


@pytest.mark.parametrize("form", FORMATS)
def test_what_the_capture_does_not_name_is_unknown(form: str) -> None:
    text = shown(of(), form)
    for what in ("device", "driver", "workload"):
        assert re.search(rf"{what} unknown", text, re.IGNORECASE), what
    assert re.search("(recorder|recorded with) unknown", text, re.IGNORECASE)
    assert re.search("(serving )?engine unknown", text, re.IGNORECASE)


@pytest.mark.parametrize("form", FORMATS)
def test_the_numbers_of_devices_and_the_confidence_of_the_workload(form: str) -> None:
    gpu = InputDevice(id=1, name="NVIDIA H200", bus_id="0000:3b:00.0", cuda_ordinals=(0,))
    text = shown(of(devices=(gpu,), workload="LLM decode", workload_confidence=0.8), form)
    assert "1 (NVIDIA H200, bus 0000:3b:00.0, CUDA 0)" in text
    assert "LLM decode, 80 % sure" in text
