"""Findings for tools: one line a finding as linters print it, annotations of GitHub Actions, JUnit XML.

GitHub shows ten annotations of each level a step; they come in the order of rank, so the first are shown.
JUnit has one test case a rule that was evaluated, so that a CI server shows and counts them: a rule with
a finding at or above `low` fails, one that could not be judged is skipped. A rule evaluated for several
devices is one case; its text names each of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as Xml

from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis, Finding
from advisor.reports import phrases
from advisor.reports.blocks import Report
from advisor.reports.compare_blocks import span
from advisor.reports.finding_text import SHOWN, cost_text
from advisor.reports.finding_text import finding as whole
from advisor.reports.output_file import clean
from advisor.reports.summary import first_fix, saves, verdict
from advisor.reports.text import plain


def concise(report: Report) -> bytes:
    """``a.sqlite: LCH101 high launch-bound (84.2 % of the step): use CUDA graphs (saves 76.3 %)``"""
    lines: list[str] = []
    for doc in report.documents:
        if isinstance(doc, Diagnosis):
            lines += (_line(f, phrases.path_of(doc, f.scope.rank), bool(doc.steps)) for f in doc.findings)
        elif isinstance(doc, Comparison):
            lines += (_line(f, doc.after.inputs[0].path, True) for f in doc.findings)
    return "".join(f"{clean(line)}\n" for line in lines).encode("utf-8", "replace")


def _line(f: Finding, path: str, steps: bool) -> str:
    share = phrases.share_text(f)
    of = f.impact.of(steps) if f.impact is not None else ""
    parts = [
        f"{path}: {f.code}",
        "limit" if f.kind == "limit" else f.severity,
        f"[{phrases.state(f)}]" if f.baseline else "",
        f.cause,
        f"({share} of the {of})" if share else "",
    ]
    fix = _fix(f)
    return " ".join(p for p in parts if p) + (f": {fix}" if fix else "")


def _fix(f: Finding) -> str:
    """``use CUDA graphs (saves 76.3 %)``; empty without a recommendation."""
    fix, saved = first_fix(f), saves(f)
    return f"{fix} (saves {saved})" if fix and saved else fix


def _against(diagnosis: Diagnosis) -> list[str]:
    """The comparison with the baseline, and what only the baseline has; empty without one."""
    if diagnosis.baseline is None:
        return []
    gone = (f"{phrases.STATUS[g.status]}: {phrases.name(g)}" for g in diagnosis.baseline.gone)
    return [phrases.baseline_text(diagnosis), *gone]


# --- GitHub ---------------------------------------------------------------------------------------

COMMANDS = {"high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def github(report: Report) -> bytes:
    """One line a finding, before them the verdict, after them what is gone; of a comparison its notes."""
    lines: list[str] = []
    for doc in report.documents:
        if isinstance(doc, Diagnosis):
            lines += _annotations(doc)
        elif isinstance(doc, Comparison):
            level = {"regression": "error", "not-comparable": "error"}.get(doc.verdict, "notice")
            lines.append(_command(level, f"advisor compare: {doc.verdict}", "", [doc.summary]))
            lines += (_command("notice", "advisor compare", "", [note]) for note in doc.notes)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _annotations(diagnosis: Diagnosis) -> Iterator[str]:
    """GitHub shows little more than what a finding is, costs and asks for; the page of the run the rest."""
    file = phrases.path_of(diagnosis, None)
    yield _command("notice", f"advisor: {phrases.title(diagnosis)}", file, [verdict(diagnosis)])
    for f in diagnosis.findings:
        title = f"{f.baseline}: " * bool(f.baseline) + f"{phrases.name(f)}, {f.severity}"
        cost, fix = cost_text(f, bool(diagnosis.steps)), _fix(f)
        about = [f"{f.title}.", *[f"Cost: {cost}"] * bool(cost), *[f"Fix: {fix}"] * bool(fix)]
        yield _command(COMMANDS[f.severity], title, phrases.path_of(diagnosis, f.scope.rank), about)
    if against := _against(diagnosis):
        yield _command("notice", "advisor: baseline", file, against)


def _command(level: str, title: str, file: str, lines: Sequence[str]) -> str:
    """``::error title=...,file=...::message``; a `file` makes GitHub show it at that file."""
    # GitHub resolves paths from the checkout only, which is the current folder in a workflow.
    file = file.removeprefix(os.path.join(os.getcwd(), ""))
    where = f",file={_property(clean(file))}" if file else ""
    message = _data("\n".join(clean(line) for line in lines))
    return f"::{level} title={_property(clean(title))}{where}::{message}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# --- JUnit ----------------------------------------------------------------------------------------


def junit(report: Report) -> bytes:
    """One suite a capture or comparison."""
    root = Xml.Element("testsuites", name="advisor")
    suites = [
        _compared(root, d) if isinstance(d, Comparison) else _suite(root, d)
        for d in report.documents
        if isinstance(d, Diagnosis | Comparison)
    ]
    for suite in suites:
        cases = list(suite.iter("testcase"))
        suite.set("tests", str(len(cases)))
        for count, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(sum(case.find(child) is not None for case in cases)))
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(s.get(count, "0")) for s in suites)))
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(root: Xml.Element, diagnosis: Diagnosis) -> Xml.Element:
    suite = Xml.SubElement(root, "testsuite", name=fit(phrases.title(diagnosis) or "advisor"))
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
    for entry in (*diagnosis.healthy, *diagnosis.observed):
        if entry.code not in fired:
            close = "close to a finding: " if entry.close else ""
            _output(case(entry.code, entry.cause), f"{close}{entry.text}")
    for entry in diagnosis.not_applicable:
        if entry.code not in cases:
            skipped = Xml.SubElement(case(entry.code, entry.cause), "skipped")
            skipped.set("message", "does not apply: what it looks at is not in the capture")
    for missing in diagnosis.not_evaluated:
        if missing.code in cases:
            continue  # it could be evaluated for another device
        skipped = Xml.SubElement(case(missing.code, missing.cause), "skipped")
        skipped.set("message", fit(f"not judged: {phrases.why_not_judged(missing, True)}"))
    if against := _against(diagnosis):
        _output(suite, "\n".join(against))
    return suite


def _compared(root: Xml.Element, doc: Comparison) -> Xml.Element:
    """One test case a phase, and one for the whole; a failed comparison is an error."""
    suite = Xml.SubElement(root, "testsuite", name="advisor compare")
    cases = [("verdict", doc.verdict, doc.summary)]
    for p in doc.phases:
        cases.append((p.phase, p.verdict, p.why or f"{p.phase}: {p.verdict}, typical {span(p.typical)}"))
    for name, outcome, text in cases:
        case = Xml.SubElement(suite, "testcase", classname="advisor.compare", name=clean(name))
        kind = {"regression": "failure", "not-comparable": "error"}.get(outcome)
        if kind is None:
            _output(case, text)
        else:
            Xml.SubElement(case, kind, message=clean(text), type=outcome)
    return suite


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


def _output(element: Xml.Element, text: str) -> None:
    Xml.SubElement(element, "system-out").text = fit(text)


def fit(text: str) -> str:
    """The text in its lines, without characters that XML cannot contain or that control a terminal."""
    return "\n".join(map(clean, text.split("\n")))
