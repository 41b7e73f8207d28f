"""What of `knowledge/engines` was found in which release of the engine, when and where.

`knowledge/verified.yaml` is written by ``benchmarks/options.py``, which reads the packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from advisor.knowledge.files import engines, shipped
from advisor.knowledge.kernel_names import required_literals
from advisor.knowledge.shapes import Data, EngineData, File, OptionLine, Text, release
from advisor.model.findings import Option

#: Options as a parser takes them; identifiers that no English word looks like, keywords and calls.
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*\w")
_NAME = re.compile(r"(?<![\w<>/.-])(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(\(|\"?: |=)?(?![\w/>])")
_PLACEHOLDER = re.compile(r"<[^<>]*>")
#: Commands of nsys inside an engine's line; the file of any engine holds them.
_NSYS = re.compile(r"\bnsys (?:profile|launch|start|stop|export)[^;]*")
#: What stands before the literals of a range's pattern; any one of them will do.
RANGE = "range "
#: Literals of a range's pattern that are too short to be found anywhere but by chance.
_MIN_RANGE = 6


class Item(NamedTuple):
    """An option, variable, call, key or range; `since` and `until` are the releases that should
    have it, both included, `before` the first that need not."""

    name: str
    since: str | None = None
    until: str | None = None
    before: str | None = None

    def expected_in(self, version: str) -> bool:
        """Whether the knowledge says that this release has the item; not where `since` is a release
        of something else, as ``CUDA 11.8``."""
        used, first = release(version) or (), () if self.since is None else release(self.since)
        return (
            first is not None
            and first <= used
            and (self.until is None or used <= (release(self.until) or ()))
            and (self.before is None or used < (release(self.before) or ()))
        )


class Verification(Data):
    """One item: where it was found (`witness`: a file of the newest release of `found`, or a
    document where `found` is empty), or why nobody looked for it (`excuse`)."""

    found: list[Text] = Field(default_factory=list)
    witness: Text | None = None
    excuse: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.witness is None) == (self.excuse is None) or (self.found and self.excuse):
            raise ValueError("give a witness or an excuse")
        return self


class EngineVerification(Data):
    """`releases` are those of the engine that were read, oldest first, `packages` others that it is
    built on; `source` is what was read in place of a package: a repository or a document."""

    read: date
    packages: list[Text] = Field(default_factory=list)
    releases: list[Text] = Field(default_factory=list)
    source: Text | None = None
    items: dict[Text, Verification]


class VerifiedFile(File):
    engines: dict[Text, EngineVerification]


@cache
def verified() -> Mapping[str, EngineVerification]:
    """By engine."""
    return shipped("verified.yaml", VerifiedFile).engines


def items(data: EngineData) -> list[Item]:
    """What the file of an engine names, once for each spelling and its releases."""
    found: list[Item] = []
    for line in (line for lines in data.options.values() for line in lines):
        text = line.line if data.name == "any" else _NSYS.sub(" ", line.line)
        found += [Item(name, line.since, line.until) for name in names_in(text)]
        if line.before is not None:
            found += [Item(name, None, line.until, line.since) for name in names_in(line.before)]
    found += [Item(variable.variable, variable.since) for variable in data.capture]
    for sign in data.recognise.ranges:
        literals = sorted(t for t in required_literals(sign.match) if len(t) >= _MIN_RANGE)
        found += [Item(f"{RANGE}{' | '.join(literals)}")] if literals else []
    return list(dict.fromkeys(found))


def names_in(text: str) -> Iterator[str]:
    """Options, variables, calls and keys in a line of an engine's file."""
    text = _PLACEHOLDER.sub(" ", text)
    yield from _OPTION.findall(text)
    for hit in _NAME.finditer(_OPTION.sub(" ", text)):
        name, follows = hit[1], hit[2]
        if follows or "_" in name or re.search(r"[a-z][A-Z]", name):
            yield name


def checked_against(engine: str) -> str | None:
    """The newest release in which the options of an engine were looked for, ``0.33.0``."""
    known = verified().get(engine)
    return known.releases[-1] if known and known.releases else None


def unverified(engine: str, data: EngineData) -> list[str]:
    """Items without verification and excuse, and items that a release lacks which should have
    them; empty where all is well."""
    known = verified().get(engine)
    if known is None:
        return [f"{engine}: not in knowledge/verified.yaml"]
    return faults(items(data), known.items, known.releases)


def faults(wanted: Sequence[Item], known: Mapping[str, Verification], releases: Sequence[str]) -> list[str]:
    """The same for the items and verifications given."""
    out = []
    for item in wanted:
        outcome = known.get(item.name)
        if outcome is None:
            out.append(f"{item.name}: not verified")
        elif outcome.found and not item.name.startswith(RANGE):  # a range of any release is one
            missing = [r for r in releases if item.expected_in(r) and r not in outcome.found]
            out += [f"{item.name}: missing in {', '.join(missing)}"] if missing else []
    return out


# --- the lines of the serving engine in use that carry out an action ------------------------------

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
