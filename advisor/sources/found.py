"""What is recognised."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Found(NamedTuple):
    """What to recognise: a readable `path`, `shown` for messages, the unpacked `head`, empty for a folder."""

    path: Path
    shown: Path
    head: bytes

    @property
    def name(self) -> str:
        """The file name in lower case without `.gz` or `.xz`."""
        return self.shown.name.lower().removesuffix(".gz").removesuffix(".xz")
