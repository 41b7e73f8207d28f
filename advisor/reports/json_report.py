"""JSON: exactly the document, or a list of documents; the same bytes for the same input."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from advisor.model.capture import Frozen
from advisor.model.findings import SCHEMA_VERSION, Diagnosis


class Diagnoses(Frozen):
    """Several independent captures."""

    schema_version: int = SCHEMA_VERSION
    diagnoses: tuple[Diagnosis, ...]


def render(diagnoses: Sequence[Diagnosis], many: bool = False) -> bytes:
    """One document, or ``{schema_version, diagnoses: [...]}`` for several inputs."""
    document: Frozen
    if len(diagnoses) == 1 and not many:
        document = diagnoses[0]
    else:
        document = Diagnoses(diagnoses=tuple(diagnoses))
    return document_bytes(document)


def document_bytes(document: BaseModel) -> bytes:
    """Any document as JSON."""
    try:
        text = document.model_dump_json(indent=2)
    except PydanticSerializationError:
        # A file name that is not UTF-8 holds surrogates; JSON can carry them as \udcXX.
        text = json.dumps(document.model_dump(), indent=2, ensure_ascii=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")
