"""The file of a workbook: the same bytes for the same content."""

from __future__ import annotations

import gc
import io
import re
import sys
import tempfile
import zipfile
from datetime import datetime
from typing import TYPE_CHECKING

from advisor.errors import InputError

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
    _save(workbook, written)
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


def _save(workbook: Workbook, written: io.BytesIO) -> None:
    """openpyxl writes sheets to temporary files first, and complains a second time from a generator."""
    try:
        workbook.save(written)
    except OSError as error:
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        why, error.__traceback__ = error.strerror, None
        gc.collect()
        sys.unraisablehook = complain
        room = f"make room in {tempfile.gettempdir()}, or set TMPDIR"
        raise InputError(f"the workbook cannot be written ({why}); {room}") from None
