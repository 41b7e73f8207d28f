"""Answers that fit: a document is cut where it is longest, and says what was left out."""

from __future__ import annotations

import json
from typing import Any

#: Letters of JSON in an answer; three of them are a token of numbers and names, roughly.
LETTERS = 6_000
#: Entries that a list keeps while another one is longer.
_FEWEST = 1


def size(document: Any) -> int:
    """Letters of the document as compact JSON."""
    return len(text(document))


def text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str)


def without_empty(value: Any) -> Any:
    """The document without nulls and empty lists: what is absent needs no letters."""
    if isinstance(value, dict):
        kept = {k: without_empty(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v not in ([], {}, "")}
    if isinstance(value, list | tuple):
        return [without_empty(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def bounded(document: dict[str, Any], letters: int = LETTERS, first: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document in at most so many letters. Its longest lists lose their last entries, half of
    them at a time and those below the keys `first` before others, then its longest texts their
    ends; `left_out` counts both by place."""
    document = without_empty(document)
    left_out: dict[str, int] = {}
    while size(document) > letters:
        place = _longest(document, first) or _longest(document)
        if place is None:
            break
        holder, key, name = place
        value = holder[key]
        kept = max(len(value) // 2, _FEWEST if isinstance(value, list) else 40)
        left_out[name] = left_out.get(name, 0) + len(value) - kept
        holder[key] = value[:kept] if isinstance(value, list) else value[:kept] + "…"
        document["left_out"] = left_out
    return document


def _longest(document: dict[str, Any], keys: tuple[str, ...] = ()) -> tuple[Any, Any, str] | None:
    """Where the list of several entries with most letters stands, else the longest text; with
    `keys` lists alone, those below them."""
    lists: list[tuple[int, Any, Any, str]] = []
    texts: list[tuple[int, Any, Any, str]] = []

    def look(holder: Any, key: Any, name: str) -> None:
        value = holder[key]
        if isinstance(value, list) and len(value) > _FEWEST:
            lists.append((size(value), holder, key, name))
        elif isinstance(value, str) and len(value) > 80:
            texts.append((len(value), holder, key, name))
        if isinstance(value, dict | list):
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            for at, _ in entries:
                look(value, at, name if isinstance(value, list) else f"{name}.{at}")

    for key in document:
        if key in keys or (not keys and key != "left_out"):
            look(document, key, key)
    found = max(lists or ([] if keys else texts), key=lambda entry: entry[0], default=None)
    return found and found[1:]


def page(rows: list[Any], offset: int, limit: int) -> dict[str, Any]:
    """Rows from `offset` on, how many there are, and where the next page begins."""
    end = offset + limit
    more = {"next_offset": end} if end < len(rows) else {}
    return {"rows": rows[offset:end], "offset": offset, "of": len(rows), **more}
