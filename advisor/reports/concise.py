"""One line a finding, as linters print it: capture, code, severity, cause, cost and what to do."""

from __future__ import annotations

from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis, Finding
from advisor.reports import phrases
from advisor.reports.blocks import Report
from advisor.reports.characters import clean
from advisor.reports.header import path_of
from advisor.reports.summary import first_fix, saves


def document(report: Report) -> bytes:
    """``decode.sqlite: LCH101 high launch-bound (84.2 % of the step): use CUDA graphs (saves
    76.3 %)``"""
    lines: list[str] = []
    for doc in report.documents:
        if isinstance(doc, Diagnosis):
            lines += (_line(f, path_of(doc, f.scope.rank), bool(doc.steps)) for f in doc.findings)
        elif isinstance(doc, Comparison):
            lines += (_line(f, doc.after.inputs[0].path, True) for f in doc.findings)
    return "".join(f"{clean(line)}\n" for line in lines).encode("utf-8", "replace")


def _line(f: Finding, path: str, steps: bool) -> str:
    share = phrases.share_text(f)
    of = f.impact.of(steps) if f.impact is not None else ""
    won = f" (saves {saves(f)})" if saves(f) else ""
    parts = [
        f"{path}: {f.code}",
        "limit" if f.kind == "limit" else f.severity,
        f"[{phrases.state(f)}]" if f.baseline else "",
        f.cause,
        f"({share} of the {of})" if share else "",
    ]
    return " ".join(p for p in parts if p) + (f": {first_fix(f)}{won}" if first_fix(f) else "")
