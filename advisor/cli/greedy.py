"""Options that take as many values as follow them: ``--before A1 A2 --after B1 B2``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand


class GreedyCommand(TyperCommand):
    """A command some of whose list options swallow all words up to the next option."""

    greedy: ClassVar[frozenset[str]] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, self.greedy))


def spread(args: Sequence[str], greedy: Iterable[str]) -> list[str]:
    """``--before A B`` as ``--before A --before B``, the form that the parser knows."""
    wanted = frozenset(greedy)
    out: list[str] = []
    current = ""
    waits = False  # the option has no value yet; where none comes, the parser says so
    for i, word in enumerate(args):
        if word in wanted or word == "--" or (word.startswith("-") and word != "-"):
            if waits:
                out.append(current)
            current, waits = (word, True) if word in wanted else ("", False)
            if word == "--":
                return [*out, *args[i:]]
            if not current:
                out.append(word)
        else:
            out += [current, word] if current else [word]
            waits = False
    return [*out, current] if waits else out
