"""The last report of this user: its captures, and the options of its analysis, for ``advisor show 1``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from advisor.config import Settings
from advisor.errors import AdvisorError, InputError
from advisor.model.options import Options, declared
from advisor.pipeline.inputs import Given, Pair, Served
from advisor.reading import held, parse_json, read_text
from advisor.recording.seal import key_path
from advisor.writing import replace_file


class Last(NamedTuple):
    """Captures, absolute where the command is given in another folder, and the settings of their report."""

    traces: tuple[Path, ...]
    settings: Settings


def path() -> Path:
    """Where it is kept: beside the key of runs, in the folder of programs' state. Raises RuntimeError where
    there is no home folder."""
    return key_path().with_name("last.json")


def chosen(settings: Settings) -> dict[str, Any]:
    """The options of the analysis that are not as they would be without a word."""
    plain = Options()
    found: dict[str, Any] = {}
    for key, setting in declared(Options).items():
        value = getattr(settings, setting.name)
        if value == getattr(plain, setting.name):
            continue
        if setting.paths:
            many = setting.kind == "list"
            value = [str(Path(p).absolute()) for p in value] if many else str(Path(value).absolute())
        found[key] = list(value) if isinstance(value, tuple) else value
    return found


def keep(given: Given, settings: Settings) -> bool:
    """Keep it, and say whether that worked: not for what was read from a pipe, nor without a home folder."""
    paths: list[Path] = []
    for each in given.inputs:
        beside = [each.beside] if isinstance(each, Pair) else [each.log] if isinstance(each, Served) else []
        paths += [each.path, *beside]
    if any(held(each) is not None for each in paths):
        return False
    document = {
        "folder": str(Path.cwd()),
        "traces": [str(each) for each in paths],
        "together": settings.pair,
        "options": chosen(settings),
    }
    with suppress(OSError, RuntimeError, ValueError):
        place = path()
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(place, (json.dumps(document).encode(),))
        return True
    return False


def recall(settings: Settings) -> Last:
    """The last report, with its options where `settings` name none. Raises InputError if there is none."""
    try:
        document = parse_json(read_text(path()))
        here = Path(document["folder"]) == Path.cwd()
        traces = tuple(Path(t) if here else Path(document["folder"]) / t for t in document["traces"])
        known, plain = declared(Options), Options()
        given: dict[str, Any] = {"pair": bool(document["together"])}
        for key, value in document["options"].items():
            setting = known[key]
            if getattr(settings, setting.name) != getattr(plain, setting.name):
                continue
            many = setting.kind == "list"
            made = [Path(v) if setting.paths else v for v in (value if many else [value])]
            given[setting.name] = tuple(made) if many else made[0]
        return Last(traces, replace(settings, **given))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, AdvisorError):
        raise InputError("no report was made yet; name a capture: advisor show TRACE 1") from None
