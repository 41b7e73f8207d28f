"""One line a finding, as linters print it: capture, code, severity, cause, cost and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.model.findings import Diagnosis
from advisor.reports import phrases
from advisor.reports.layout import clean
from advisor.reports.ranks_text import path_of
from advisor.reports.summary import first_fix, saves


def render(diagnoses: Sequence[Diagnosis], many: bool = False) -> bytes:  # noqa: ARG001
    """``decode.sqlite: LCH101 high launch-bound (84.2 % of the step): use CUDA graphs (saves
    76.3 %)``"""
    lines = (f"{clean(line)}\n" for d in diagnoses for line in _lines(d))
    return "".join(lines).encode("utf-8", "replace")


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    for f in diagnosis.findings:
        share = phrases.share_text(f)
        of = f.impact.of(bool(diagnosis.steps)) if f.impact is not None else ""
        won = f" (saves {saves(f)})" if saves(f) else ""
        parts = [
            f"{path_of(diagnosis, f.scope.rank)}: {f.code}",
            "limit" if f.kind == "limit" else f.severity,
            f"[{phrases.state(f)}]" if f.baseline else "",
            f.cause,
            f"({share} of the {of})" if share else "",
        ]
        yield " ".join(p for p in parts if p) + (f": {first_fix(f)}{won}" if first_fix(f) else "")
