"""The lines of the serving engine in use that carry out an action."""

from __future__ import annotations

from advisor.knowledge.files import engines
from advisor.knowledge.shapes import EngineData, OptionLine
from advisor.model.findings import Option

MOST = 3


def options_for(
    action_key: str, engine_name: str | None, language_model: bool | None = None
) -> tuple[Option, ...]:
    """At most three lines: of the engine, else of the library it extends, else of any engine.
    `language_model` says whether the program is one; None, where it is not known, keeps all lines.

    A server is steered by its own options, never by patching the library below it: only an engine
    whose file says `inherit_options` shows the lines of its base.
    """
    known = engines()
    name = engine_name if engine_name in known else None
    while name is not None:
        data = known[name]
        if lines := _fitting(data, action_key, language_model):
            return tuple(line.option(name) for line in lines[:MOST])
        name = data.base if data.inherit_options else None
    lines = _fitting(known["any"], action_key, language_model)
    return tuple(line.option("any") for line in lines[:MOST])


def _fitting(data: EngineData, action_key: str, language_model: bool | None) -> list[OptionLine]:
    return [
        line
        for line in data.options.get(action_key, [])
        if None in (language_model, line.language_model) or line.language_model == language_model
    ]
