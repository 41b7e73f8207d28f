"""JSON: exactly the document, or a list of documents; the same bytes for the same input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from pydantic_core import PydanticSerializationError

from advisor.model.findings import SCHEMA_VERSION, Diagnosis
from advisor.model.records import Frozen
from advisor.reports.blocks import Report
from advisor.reports.output_file import escaped


class Diagnoses(Frozen):
    """Several independent captures."""

    schema_version: int = SCHEMA_VERSION
    diagnoses: tuple[Diagnosis, ...]


def document(report: Report) -> bytes:
    """One document, or the list of several."""
    if all(isinstance(d, Diagnosis) for d in report.documents):
        return render(cast("Sequence[Diagnosis]", report.documents), report.many)
    if report.many:
        whole = [d.model_dump(mode="json", warnings=False) for d in report.documents]
        return _bytes(json.dumps(whole, indent=2, ensure_ascii=False))
    return document_bytes(report.documents[0])


def render(diagnoses: Sequence[Diagnosis], many: bool = False) -> bytes:
    """One document, or ``{schema_version, diagnoses: [...]}`` for several inputs."""
    single = len(diagnoses) == 1 and not many
    return document_bytes(diagnoses[0] if single else Diagnoses(diagnoses=tuple(diagnoses)))


def document_bytes(document: Frozen) -> bytes:
    """Any document as JSON."""
    try:
        text = document.model_dump_json(indent=2, warnings=False)
    except PydanticSerializationError:
        # A file name that is not UTF-8 holds surrogates; JSON can carry them as \udcXX.
        text = json.dumps(document.model_dump(), indent=2, ensure_ascii=False)
    return _bytes(text)


def _bytes(text: str) -> bytes:
    return f"{escaped(text)}\n".encode("utf-8", "backslashreplace")
