"""The string pool of an nsys export, with the texts that some tables hold in their own rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.errors import InputError
from advisor.sources.nsys.tables import STRINGS
from advisor.sources.raw import Ints, RawTables
from advisor.sources.schema import MISSING

#: Ids from here on leave no room for those of interned texts.
_LAST_ID = 1 << 62


class StringPool:
    """Ids of StringIds as the file has them; interned texts get ids beyond the file's largest."""

    def __init__(self, raw: RawTables) -> None:
        self._raw = raw
        self._in_file = {"id", "value"} <= set(raw.columns(STRINGS))
        self._interned: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._next: int | None = None

    def text(self, ids: Sequence[int]) -> list[str]:
        """The strings behind ids; an unknown id reads as an empty string."""
        wanted = {int(i) for i in ids}
        found = {i: self._interned[i] for i in wanted if i in self._interned}
        if self._in_file:
            found |= self._raw.texts(STRINGS, sorted(wanted - found.keys()))
        return [found.get(int(i), "") for i in ids]

    def merged(self, ids: Ints, known: Sequence[int], codes: Ints, texts: Sequence[str]) -> Ints:
        """`ids`, and where they are missing an id for the text that the row itself holds: the one
        in `texts` that its code stands for.

        `known` are the distinct ids: a text equal to one of their strings gets that id, any other
        text one id however often it occurs.
        """
        by_text = {text: number for number, text in zip(known, self.text(known), strict=True)}
        numbers = [by_text[text] if text in by_text else self.intern(text) for text in texts]
        own = np.array([*numbers, MISSING], np.int64)[codes]  # code -1, no text: the last one
        return np.where(ids == MISSING, own, ids)

    def intern(self, text: str) -> int:
        """An id beyond the file's own for this text, always the same one."""
        if text not in self._ids:
            if self._next is None:
                last = self._raw.last_id(STRINGS) if self._in_file else 0
                if last >= _LAST_ID:
                    raise InputError(
                        f"{STRINGS} holds the id {last}, which no nsys writes; export the capture again"
                    )
                self._next = last + 1
            self._ids[text] = self._next
            self._interned[self._next] = text
            self._next += 1
        return self._ids[text]
