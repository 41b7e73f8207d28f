"""JUnit XML: one test case a rule that was evaluated, so that a CI server shows and counts them.

A rule with a finding at or above `low` fails, a rule that could not be judged is skipped. A rule
evaluated for several devices is one case; its text names each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis, Finding
from advisor.reports import phrases
from advisor.reports.blocks import Report
from advisor.reports.characters import clean
from advisor.reports.compare_blocks import span
from advisor.reports.finding_text import SHOWN
from advisor.reports.finding_text import finding as whole
from advisor.reports.text import plain


def document(report: Report) -> bytes:
    """One suite a capture or comparison."""
    root = Xml.Element("testsuites", name="advisor")
    suites = [
        _compared(root, d) if isinstance(d, Comparison) else _suite(root, d)
        for d in report.documents
        if isinstance(d, Diagnosis | Comparison)
    ]
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(s.get(count, "0")) for s in suites)))
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(root: Xml.Element, diagnosis: Diagnosis) -> Xml.Element:
    suite = Xml.SubElement(root, "testsuite", name=fit(phrases.title(diagnosis) or "advisor"))
    _properties(suite, diagnosis)
    cases: dict[str, Xml.Element] = {}

    def case(code: str, cause: str) -> Xml.Element:
        if code not in cases:
            about = {"classname": f"advisor.{code[:3]}", "name": fit(f"{code} {cause}")}
            cases[code] = Xml.SubElement(suite, "testcase", about)
        return cases[code]

    fired: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        fired.setdefault(finding.code, []).append(finding)
    for code, findings in fired.items():
        _finding(case(code, findings[0].cause), findings, bool(diagnosis.steps))
    for entry in diagnosis.healthy:
        if entry.code not in fired:
            close = "close to a finding: " if entry.close else ""
            _output(case(entry.code, entry.cause), f"{close}{entry.text}")
    for missing in diagnosis.not_evaluated:
        if missing.code in cases:
            continue  # it could be evaluated for another device
        why = phrases.why_not_judged(missing)
        flag = f"; {phrases.remedy_text(missing.flag)}" if missing.flag else ""
        skipped = Xml.SubElement(case(missing.code, missing.cause), "skipped")
        skipped.set("message", fit(f"not judged: {why}{flag}"))
    _count(suite)
    if diagnosis.baseline is not None:
        gone = (f"{phrases.STATUS[g.status]}: {phrases.name(g)}" for g in diagnosis.baseline.gone)
        text = "\n".join([phrases.baseline_text(diagnosis), *gone])
        Xml.SubElement(suite, "system-out").text = fit(text)
    return suite


def _compared(root: Xml.Element, doc: Comparison) -> Xml.Element:
    """One test case a phase, and one for the whole; a failed comparison is an error."""
    suite = Xml.SubElement(root, "testsuite", name="advisor compare")
    texts = (p.why or f"{p.phase}: {p.verdict}, typical {span(p.typical)}" for p in doc.phases)
    phases = ((p.phase, p.verdict, text) for p, text in zip(doc.phases, texts, strict=True))
    for name, verdict, text in (("verdict", doc.verdict, doc.summary), *phases):
        case = Xml.SubElement(suite, "testcase", classname="advisor.compare", name=clean(name))
        kind = {"regression": "failure", "not-comparable": "error"}.get(verdict)
        if kind is None:
            _output(case, text)
        else:
            Xml.SubElement(case, kind, message=clean(text), type=verdict)
    _count(suite)
    return suite


def _properties(suite: Xml.Element, diagnosis: Diagnosis) -> None:
    properties = Xml.SubElement(suite, "properties")
    for name, value in (
        ("verdict", diagnosis.verdict),
        ("tool", f"{diagnosis.tool.name} {diagnosis.tool.version}"),
        ("capture", ", ".join(i.path for i in diagnosis.inputs)),
        ("device", ", ".join(i.device for i in diagnosis.inputs if i.device)),
        ("baseline", "" if diagnosis.baseline is None else diagnosis.baseline.path),
    ):
        if value:
            Xml.SubElement(properties, "property", name=name, value=clean(value))


def _finding(case: Xml.Element, findings: Sequence[Finding], has_steps: bool) -> None:
    heads = ((f.severity.upper(), phrases.state(f), phrases.scope(f)) for f in findings)
    bodies = (plain(whole(f, has_steps, SHOWN, {}).blocks) for f in findings)
    parts = zip(heads, bodies, strict=True)
    text = "\n\n".join(f"{', '.join(filter(None, head))}\n{body}" for head, body in parts)
    # Findings come in the order of their rank: the first one is the most severe.
    worst = findings[0]
    if all(f.severity == "info" for f in findings):
        _output(case, text)
        return
    kind = f"{worst.severity} {phrases.state(worst)}".strip()
    Xml.SubElement(case, "failure", type=kind, message=clean(worst.title)).text = fit(text)


def _output(case: Xml.Element, text: str) -> None:
    Xml.SubElement(case, "system-out").text = fit(text)


def _count(suite: Xml.Element) -> None:
    cases = list(suite.iter("testcase"))
    suite.set("tests", str(len(cases)))
    for count, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(child) is not None for case in cases)))


def fit(text: str) -> str:
    """The text in its lines, without characters that XML cannot contain or that control a terminal."""
    return "\n".join(map(clean, text.split("\n")))
