"""The lines of the serving engine in use that carry out an action."""

from __future__ import annotations

from advisor.knowledge.files import engines
from advisor.knowledge.shapes import EngineData
from advisor.model.findings import Option

MOST = 3


def options_for(
    action_key: str,
    engine_name: str | None,
    language_model: bool | None = None,
    version: str | None = None,
) -> tuple[Option, ...]:
    """At most three lines: of the engine, else of the library it extends, else of any engine.
    `language_model` says whether the program is one; None, where it is not known, keeps all lines.
    `version` is the release of the engine, where known: lines are spelled for it.

    A server is steered by its own options, never by patching the library below it: only an engine
    whose file says `inherit_options` shows the lines of its base.
    """
    known = engines()
    name = engine_name if engine_name in known else None
    while name is not None:
        data = known[name]
        if found := _fitting(data, action_key, language_model, version):
            return found
        # What the library below can do, its own releases tell.
        name, version = (data.base if data.inherit_options else None), None
    return _fitting(known["any"], action_key, language_model, None)


def _fitting(
    data: EngineData, action_key: str, language_model: bool | None, version: str | None
) -> tuple[Option, ...]:
    options = (
        line.option(data.name, version)
        for line in data.options.get(action_key, [])
        if None in (language_model, line.language_model) or line.language_model == language_model
    )
    return tuple(option for option in options if option is not None)[:MOST]
