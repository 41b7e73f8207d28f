"""Rule files as they were read: where each lies, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.errors import RuleError

if TYPE_CHECKING:
    import yaml

Loc = Sequence[int | str]


class Problem(NamedTuple):
    """One thing that is wrong: where, what, and what to do. Line 0 is the file or folder itself."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.text}"


def refuse(problems: Iterable[Problem]) -> None:
    """Raise one RuleError with a line a problem, in order of place; nothing if there is none."""
    lines = [str(p) for p in sorted(set(problems))]
    if lines:
        raise RuleError("\n".join(lines))


@dataclass(slots=True)
class Source:
    """One file: its data, the problems found on the way, and the line of any place in it."""

    path: str
    text: str
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    _root: yaml.Node | None = None

    def line(self, loc: Loc = ()) -> int:
        """The 1-based line of a place; of the nearest enclosing one where it does not exist."""
        # YAML is imported where it is parsed: rules from the cache need none.
        from advisor.engine.parse import line_of

        return line_of(self, loc)

    def problem(self, loc: Loc, text: str) -> Problem:
        return Problem(self.path, self.line(loc), text)
