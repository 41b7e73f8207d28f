"""How a document shows itself in a Python session: one line, and a short page in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.model.capture import Frozen

#: Letters of a sentence in the one line.
_LETTERS = 120


class Shown(Frozen):
    """A document that has one sentence, by default its `summary`, and rows for a table below it."""

    def _sentence(self) -> str:
        return str(getattr(self, "summary", ""))

    def _rows(self) -> Iterator[Sequence[object]]:
        yield from ()

    def __repr__(self) -> str:
        text = self._sentence()
        short = text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1].rstrip()}…"
        return f"<{type(self).__name__}: {short}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in self._rows()
        )
        return f"<p><b>{escape(self._sentence())}</b></p>" + (f"<table>{rows}</table>" if rows else "")
