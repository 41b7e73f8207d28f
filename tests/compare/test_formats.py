"""Comparisons as HTML, workbooks, SARIF and JUnit: valid, self-contained, and the same numbers."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
import xmlschema
from openpyxl import load_workbook

from advisor.comparison.before_after import compare
from advisor.comparison.context import scaling
from advisor.comparison.frameworks import table
from advisor.comparison.router import experiment
from advisor.model.comparison import Comparison
from advisor.reports import sarif, text
from advisor.reports.experiment_blocks import Document, report
from advisor.reports.html import report as html
from advisor.reports.html.charts import change_view
from advisor.reports.layout import Page
from advisor.reports.tool_formats import github, junit
from advisor.reports.workbook import experiments
from tests.compare.support import diagnosed, side

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
NASTY = 'void evil<script>alert(1)</script>_"=1+1|gemm'
KINDS = ("comparison", "not comparable", "no phase in common", "context", "engines", "router")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    folder = tmp_path_factory.mktemp("captures")
    base = side("before", diagnosed(folder / "a.sqlite", steps=30))
    slow = side(
        "after",
        diagnosed(
            folder / "b.sqlite", steps=30, attention=30.0, seed=1, gap=20.0, gemm_name=NASTY, driver="570.1"
        ),
    )
    routers = [side(n, *s.diagnoses) for n, s in (("learned", base), ("perfect", slow))]
    other = side("after", diagnosed(folder / "c.sqlite", layers=12))
    prefill = side("after", diagnosed(folder / "d.sqlite", steps=0, prefills=20))
    return {
        "comparison": compare(base, slow),
        "not comparable": compare(base, other),
        "no phase in common": compare(base, prefill),
        "context": scaling(base, slow, (1, 2048)),
        "engines": table([("one", base), ("two", slow)], {"one": 2000.0}, {"one": 1, "two": 1}),
        "router": experiment(["100", "101"], ["125", "126"], "tok/s", traces=routers),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_whole_and_runs_only_its_own_script(documents: dict[str, Document], kind: str) -> None:
    page = html.document(report(documents[kind])).decode()
    assert "default-src 'none'" in page
    scripts = re.findall(r"<script[^>]*>", page)
    assert scripts.count("<script>") == 1
    assert all("application/json" in s for s in scripts if s != "<script>")
    assert "alert(1)</script>" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for word in documents[kind].summary.split()[:6]:
        assert word.strip(".,:") in text
    assert re.findall(r"<h2 id=\"c0-\w+\">", page)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_document_gives_the_same_bytes(documents: dict[str, Document], kind: str) -> None:
    document = documents[kind]
    assert html.document(report(document)) == html.document(report(document))
    assert experiments.render(document) == experiments.render(document)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_text_fits_80_columns(documents: dict[str, Document], kind: str, verbosity: int) -> None:
    page = Page()
    text.write(page, report(documents[kind], verbosity).blocks(80))
    assert page.lines
    assert max(len(line.plain) for line in page.lines) <= 80


def test_bars_of_both_sides_have_one_scale(documents: dict[str, Document]) -> None:
    document = documents["comparison"]
    assert isinstance(document, Comparison)
    view = change_view(document.budget, ("before", "after"))
    assert view is not None
    assert [bar.label for bar in view.bars] == ["before", "after"]
    for bar in view.bars:
        assert sum(p.share for p in bar.pieces) == pytest.approx(1.0)
    assert view.bars[0].pieces[-1].words == "shorter by"
    assert view.bars[1].pieces[-1].words != "shorter by"
    assert change_view((), ("before", "after")) is None


def sheets(document: Document) -> Any:
    return load_workbook(BytesIO(experiments.render(document)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_workbook_opens_and_holds_no_formula_from_a_capture(
    documents: dict[str, Document], kind: str
) -> None:
    book = sheets(documents[kind])
    assert book.sheetnames[0] == "Summary"
    cells = [c for ws in book for row in ws.iter_rows() for c in row if c.value is not None]
    assert any(documents[kind].summary in str(c.value) for c in cells)
    assert all(str(c.value).startswith("=SUM(") for c in cells if c.data_type == "f")


def test_numbers_of_the_workbook_are_those_of_the_document(documents: dict[str, Document]) -> None:
    document = documents["comparison"]
    assert isinstance(document, Comparison)
    book = sheets(document)
    assert book.sheetnames == [
        "Summary",
        "Comparability",
        "Budget",
        "Operations",
        "API calls",
        "Findings",
        "Promises",
        "Thresholds",
    ]
    rows = [[c.value for c in row] for row in book["Summary"].iter_rows()]
    (step,) = [r for r in rows if r[1] == "typical (median)"]
    phase = document.phases[0]
    assert phase.before is not None
    assert phase.after is not None
    assert phase.typical is not None
    assert step[2:7] == pytest.approx(
        [
            phase.before.median_ms,
            phase.after.median_ms,
            phase.typical.mid,
            phase.typical.low,
            phase.typical.high,
        ]
    )
    budget = [[c.value for c in row] for row in book["Budget"].iter_rows()]
    parts = [r for r in budget if r[0] == "all"]
    assert [r[2] for r in parts] == [p.before_ms for p in document.budget if p.phase is None]
    (total,) = [r for r in budget if r[1] == "sum of all"]
    first = next(i for i, r in enumerate(budget, 1) if r[0] == "all")
    assert total[2] == f"=SUM(C{first}:C{first + len(parts) - 1})"
    operations = [[c.value for c in row] for row in book["Operations"].iter_rows()]
    assert [r[8] for r in operations if r[1] == "attention"] == [
        pytest.approx(o.change_ms) for o in document.operations if o.family == "attention"
    ]


# --- what CI servers read --------------------------------------------------------------------


def run_of(document: Document) -> dict[str, Any]:
    assert isinstance(document, Comparison)
    found: dict[str, Any] = json.loads(sarif.document(report(document)))
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(found)
    (run,) = found["runs"]
    return dict(run)


def test_sarif_has_a_result_for_a_regression(documents: dict[str, Document]) -> None:
    run = run_of(documents["comparison"])
    (result,) = [r for r in run["results"] if r["ruleId"] == "CMP101"]
    assert result["level"] in ("warning", "error")
    assert run["properties"]["verdict"] == "regression"
    assert len(run["artifacts"]) == 2
    assert run["invocations"][0]["executionSuccessful"]


def test_sarif_never_passes_for_clean_where_nothing_could_be_compared(documents: dict[str, Document]) -> None:
    for kind in ("not comparable", "no phase in common"):
        (result,) = run_of(documents[kind])["results"]
        assert (result["ruleId"], result["level"]) == ("CMP106", "error")
    # Rules of one's own may leave a phase unjudged.
    run = run_of(documents["no phase in common"].replaced(findings=()))
    assert not run["results"]
    (call,) = run["invocations"]
    assert not call["executionSuccessful"]
    (told,) = call["toolExecutionNotifications"]
    assert told["level"] == "error"
    assert told["message"]["text"].startswith("Not comparable: ")


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("comparison", ("2", "2", "0")),
        ("not comparable", ("2", "0", "2")),
        ("no phase in common", ("3", "0", "3")),
    ],
)
def test_junit_fails_and_errs(
    documents: dict[str, Document], kind: str, counts: tuple[str, str, str]
) -> None:
    document = documents[kind]
    assert isinstance(document, Comparison)
    text = junit(report(document)).decode()
    xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd")).validate(text)
    found = re.search(r'<testsuites[^>]*tests="(\d+)"[^>]*failures="(\d+)"[^>]*errors="(\d+)"', text)
    assert found is not None
    assert found.groups() == counts


@pytest.mark.parametrize("kind", ["not comparable", "no phase in common", "comparison"])
def test_github_annotates_an_error(documents: dict[str, Document], kind: str) -> None:
    document = documents[kind]
    assert isinstance(document, Comparison)
    assert github(report(document)).startswith(b"::error title=advisor compare%3A ")


def test_junit_is_well_formed_whatever_a_capture_is_called(documents: dict[str, Document]) -> None:
    document = documents["comparison"]
    assert isinstance(document, Comparison)
    odd = "kernel \ufffe\x00"
    phases = tuple(p.replaced(phase=odd, why=odd) for p in document.phases)
    made = document.replaced(summary=odd, phases=phases)
    Xml.fromstring(junit(report(made)))


@pytest.mark.parametrize("kind", KINDS)
def test_sources_are_named_by_their_titles(documents: dict[str, Document], kind: str) -> None:
    document = documents[kind]
    sources = [(r.id, r.title) for f in getattr(document, "findings", ()) for r in f.references]
    sources += [(t.source, t.title) for t in getattr(document, "thresholds", ()) if t.source]
    assert sources or kind == "engines"  # judged by no rule
    assert [key for key, title in sources if not title] == []
    key = re.compile(r"\b(?:seed|peers)-\d")
    assert not key.search(html.document(report(document)).decode())
    if isinstance(document, Comparison):
        assert not key.search(sarif.document(report(document)).decode())
        assert not key.search(junit(report(document)).decode())
