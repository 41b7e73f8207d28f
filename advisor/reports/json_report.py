"""JSON: exactly the document, or a list of documents; the same bytes for the same input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Self, cast

from advisor.model.findings import SCHEMA_VERSION, Diagnosis
from advisor.model.records import Frozen
from advisor.reports.blocks import Report
from advisor.reports.output_file import escaped


class Diagnoses(Frozen, frozen=True, kw_only=True):
    """Several independent captures."""

    schema_version: int = SCHEMA_VERSION
    diagnoses: tuple[Diagnosis, ...]

    def written(self) -> Self:
        return self.replaced(diagnoses=tuple(d.written() for d in self.diagnoses))


def document(report: Report) -> bytes:
    """One document, or the list of several."""
    if all(isinstance(d, Diagnosis) for d in report.documents):
        return render(cast("Sequence[Diagnosis]", report.documents), report.many)
    if report.many:
        whole = [json.loads(d.model_dump_json()) for d in report.documents]
        return _bytes(json.dumps(whole, indent=2, ensure_ascii=False))
    return document_bytes(report.documents[0])


def render(diagnoses: Sequence[Diagnosis], many: bool = False) -> bytes:
    """One document, or ``{schema_version, diagnoses: [...]}`` for several inputs."""
    single = len(diagnoses) == 1 and not many
    return document_bytes(diagnoses[0] if single else Diagnoses(diagnoses=tuple(diagnoses)))


def document_bytes(document: Frozen) -> bytes:
    """Any document as JSON."""
    return _bytes(document.model_dump_json(indent=2))


def _bytes(text: str) -> bytes:
    return f"{escaped(text)}\n".encode("utf-8", "backslashreplace")
