"""The file of a workbook: the same bytes for the same content."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openpyxl import Workbook

#: The time in the package; a workbook says nothing of when it was made.
EPOCH = datetime(2000, 1, 1)
_STAMP = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*(<)")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
MAX_NAME = 31
_FORBIDDEN = re.compile(r"[\[\]:*?/\\']")


def package(workbook: Workbook) -> bytes:
    """The workbook as a file; time stamps are fixed."""
    workbook.properties.creator = "advisor"
    workbook.properties.created = EPOCH
    written = io.BytesIO()
    workbook.save(written)
    out = io.BytesIO()
    stamp = EPOCH.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "docProps/core.xml":
                content = _STAMP.sub(rb"\g<1>" + stamp + rb"\g<2>", content)
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            target.writestr(entry, content)
    return out.getvalue()


class Names:
    """Names of sheets: at most 31 characters, without forbidden ones, unique without regard to
    case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        """`wanted`, or the nearest name to it that is free."""
        base = _FORBIDDEN.sub("-", wanted).strip() or "Sheet"
        name, number = base[:MAX_NAME], 1
        while name.lower() in self._taken or name.lower() == "history":
            number += 1
            tail = f" {number}"
            name = base[: MAX_NAME - len(tail)] + tail
        self._taken.add(name.lower())
        return name
