"""Shares are printed by `percent` alone, with a space before the sign."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "advisor"
#: Python's own format of a share, in an f-string or given to `format`.
BY_HAND = re.compile(r"""%\}|["']\.\d%["']""")


def test_no_share_is_formatted_by_hand() -> None:
    by_hand = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_HAND.search(line)
    ]
    assert by_hand == [], "write percent(...)"
