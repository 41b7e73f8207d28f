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
