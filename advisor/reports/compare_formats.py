"""Formats of comparisons beside text: which blocks a document has, and what CI servers read."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from advisor.model.comparison import Comparison, ContextScaling, FrameworkTable, PhaseChange, RouterExperiment
from advisor.reports import sarif as sarif_report
from advisor.reports.blocks import Block
from advisor.reports.compare_blocks import comparison, span
from advisor.reports.experiment_blocks import context, frameworks, router
from advisor.reports.junit import fit
from advisor.reports.layout import clean

#: What the page is called.
TITLES = {
    "comparison": "Before against after",
    "context-scaling": "Short against long context",
    "frameworks": "Serving engines side by side",
    "moe-router": "Learned against perfect routing",
}

Document = Comparison | ContextScaling | FrameworkTable | RouterExperiment


def blocks_of(document: Document, verbosity: int = 0) -> Iterator[Block]:
    if isinstance(document, Comparison):
        return comparison(document, verbosity)
    if isinstance(document, ContextScaling):
        return context(document, verbosity)
    if isinstance(document, FrameworkTable):
        return frameworks(document, verbosity)
    return router(document, verbosity)


def html(document: Document) -> bytes:
    """A page of its own, with every row."""
    from advisor.reports.html.blocks import change_view, render

    charts = {}
    if isinstance(document, Comparison | ContextScaling):
        names = ("before", "after") if isinstance(document, Comparison) else ("short", "long")
        view = change_view(document.budget, names)
        charts = {"Budget": view} if view is not None else {}
    return render(TITLES[document.kind], document.tool.version, blocks_of(document, 1), charts)


def workbook(document: Document) -> bytes:
    """The numbers as sheets."""
    from advisor.reports.workbook.experiments import render

    return render(document, TITLES[document.kind])


def junit(document: Comparison) -> bytes:
    """One test case a phase, and one for the whole; what cannot be compared is an error."""
    root = Xml.Element("testsuites", name="advisor")
    suite = Xml.SubElement(root, "testsuite", name="advisor compare")
    cases = [("verdict", document.verdict, document.summary)]
    cases += [(p.phase, p.verdict, _phase(p)) for p in document.phases]
    counts = {"failure": 0, "error": 0}
    for name, verdict, text in cases:
        case = Xml.SubElement(suite, "testcase", classname="advisor.compare", name=fit(clean(name)))
        kind = {"regression": "failure", "not-comparable": "error"}.get(verdict)
        if kind is None:
            Xml.SubElement(case, "system-out").text = fit(clean(text))
        else:
            counts[kind] += 1
            Xml.SubElement(case, kind, message=fit(clean(text)), type=verdict)
    for element in (root, suite):
        element.set("tests", str(len(cases)))
        element.set("failures", str(counts["failure"]))
        element.set("errors", str(counts["error"]))
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def sarif(document: Comparison) -> bytes:
    """One run over the captures of both sides. Where no phase could be compared there is no
    result, and the run is said to have failed: it must not pass for a clean one."""
    paths = [i.path for side in (document.before, document.after) for i in side.inputs]
    judged = any(f.invalidates for f in document.findings)
    unjudged = document.verdict == "not-comparable" and not judged
    return sarif_report.log(
        [
            sarif_report.run(
                document.tool,
                "compare",
                list(dict.fromkeys(paths)),
                document.findings,
                document.not_evaluated,
                steps=True,
                failed=document.summary if unjudged else "",
                properties={
                    "verdict": document.verdict,
                    "summary": clean(document.summary),
                    "comparability": round(document.comparability.score, 4),
                },
            )
        ]
    )


def _phase(phase: PhaseChange) -> str:
    return phase.why or f"{phase.phase}: {phase.verdict}, typical {span(phase.typical)}"


def github(document: Comparison) -> bytes:
    """Workflow commands of GitHub Actions: the verdict, then the notes."""
    level = {"regression": "error", "not-comparable": "error"}.get(document.verdict, "notice")
    lines = [f"::{level} title=advisor compare%3A {document.verdict}::{_data(document.summary)}"]
    lines += [f"::notice title=advisor compare::{_data(note)}" for note in document.notes]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
