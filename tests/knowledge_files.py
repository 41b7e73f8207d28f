"""Files of `knowledge/`, checked: every fault of a file is a line of one error."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from advisor.errors import AdvisorError
from advisor.knowledge.package_data import parsed
from advisor.model.file_content import FileContent
from advisor.model.file_schema import schema_model

C = TypeVar("C", bound=FileContent)


def load(path: Path, content: type[C]) -> C:
    """The content of a file. AdvisorError with a line for each fault."""
    data = parsed(path)
    try:
        schema_model(content).model_validate(data)
    except ValidationError as fault:
        places = ((".".join(map(str, e["loc"])), e["msg"]) for e in fault.errors())
        raise AdvisorError("\n".join(f"{path}: {place}: {what}" for place, what in places)) from fault
    return content.from_data(data)
