"""Characters that could control a terminal, or that a format cannot contain."""

from __future__ import annotations

import re

#: Could move the cursor or reorder the line; JSON contains them unescaped.
_CONTROL = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
_IN_JSON = re.compile(f"[{_CONTROL}]")
#: With those that JSON escapes, and those that XML cannot hold.
_UNSAFE = re.compile(f"[\x00-\x1f{_CONTROL}\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """`text` on one line, without control characters."""
    return _UNSAFE.sub(lambda m: " " if m.group() in "\t\r\n" else "?", text)


def escaped(document: str) -> str:
    """A JSON document of the same value, without characters that control a terminal."""
    if document.isascii() and "\x7f" not in document:  # most: takes no time
        return document
    return _IN_JSON.sub(lambda m: f"\\u{ord(m[0]):04x}", document)
