"""The lines of the serving engine in use that carry out an action, as `knowledge/engines` names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from advisor.knowledge.files import engines
from advisor.knowledge.shapes import EngineData, OptionLine
from advisor.model.findings import Option

MOST = 3


class Program(NamedTuple):
    """What a capture shows of the program: whether it is a language model (None where that is not
    known), the names of its kernels, its command line, and the release of nsys that recorded it."""

    language_model: bool | None = None
    kernels: Sequence[str] = ()
    command: str = ""
    nsys: str | None = None

    def uses(self, option: OptionLine) -> bool:
        """Whether the capture shows that the line is in effect: given with the command, or by a
        kernel that runs only then."""
        given = re.search(rf"(?<!\S){re.escape(option.line)}(?!\S)", self.command)
        pattern = option.in_use
        return bool(given) or (pattern is not None and any(re.search(pattern, name) for name in self.kernels))


UNKNOWN = Program()


def options_for(
    action_key: str, engine_name: str | None, program: Program = UNKNOWN, version: str | None = None
) -> tuple[Option, ...]:
    """At most three lines: of the engine, else of the library it extends, else of any engine;
    none that the program uses already. `version` is the release of the engine, where known: lines
    are spelled for it.

    A server is steered by its own options, never by patching the library below it: only an engine
    whose file says `inherit_options` shows the lines of its base.
    """
    known = engines()
    name = engine_name if engine_name in known else None
    while name is not None:
        data = known[name]
        if found := _fitting(data, action_key, program, version):
            return found
        # What the library below can do, its own releases tell.
        name, version = (data.base if data.inherit_options else None), None
    return _fitting(known["any"], action_key, program, program.nsys)


def _fitting(data: EngineData, action_key: str, program: Program, version: str | None) -> tuple[Option, ...]:
    wanted = program.language_model
    options = (
        line.option(data.name, version)
        for line in data.options.get(action_key, [])
        if (None in (wanted, line.language_model) or line.language_model == wanted) and not program.uses(line)
    )
    return tuple(option for option in options if option is not None)[:MOST]
