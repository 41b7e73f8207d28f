"""What of `knowledge/engines` was found in which release of the engine, when and where.

`knowledge/verified.yaml` is written by ``options.py``, which reads the packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from typing import NamedTuple

from msgspec import field

from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import shipped
from advisor.knowledge.kernel_names import required_literals
from advisor.knowledge.shapes import Data, EngineData, File, Text, release, up_to

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
            and up_to(used, self.until)
            and (self.before is None or used < (release(self.before) or ()))
        )


class Verification(Data, frozen=True, kw_only=True):
    """One item: where it was found (`witness`: a file of the newest release of `found`, or a
    document where `found` is empty), or why nobody looked for it (`excuse`)."""

    found: list[Text] = field(default_factory=list)
    witness: Text | None = None
    excuse: Text | None = None

    def __post_init__(self) -> None:
        if (self.witness is None) == (self.excuse is None) or (self.found and self.excuse):
            raise ValueError("give a witness or an excuse")


class EngineVerification(Data, frozen=True, kw_only=True):
    """`releases` are those of the engine that were read, oldest first, `packages` others that it is
    built on; `source` is what was read in place of a package: a repository or a document."""

    read: date
    packages: list[Text] = field(default_factory=list)
    releases: list[Text] = field(default_factory=list)
    source: Text | None = None
    items: dict[Text, Verification]


class VerifiedFile(File, frozen=True, kw_only=True):
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
    found += [Item(variable.variable, variable.since, variable.until) for variable in data.capture]
    for sign in data.recognise.ranges:
        literals = sorted(t for t in required_literals(sign.match.texts[0]) if len(t) >= _MIN_RANGE)
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


def releases_table() -> str:
    """Markdown: what was looked for of each engine, and how often a release lacks what it should have."""
    rows = ["| engine | releases | names | found | found elsewhere | not looked for | missing |"]
    rows.append("|---|---|---|---|---|---|---|")
    for name, known in sorted(verified().items()):
        answers, data = list(known.items.values()), engines()[name]
        found, excused = sum(bool(a.found) for a in answers), sum(a.excuse is not None for a in answers)
        counts = (len(answers), found, len(answers) - found - excused, excused, len(unverified(name, data)))
        used = ", ".join(known.releases) or known.source or ""
        rows.append(f"| {data.title} | {used} | {' | '.join(map(str, counts))} |")
    return "\n".join(rows)
