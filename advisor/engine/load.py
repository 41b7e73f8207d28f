"""Rule files -> :class:`RuleSet`. All problems of all files come in one RuleError."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import force_setattr

from advisor.cache import cached, content_of
from advisor.errors import InputError, RuleError, near
from advisor.knowledge.files import nsys_rules
from advisor.model.facts import Subject
from advisor.model.numbers import amount
from advisor.model.rules import RuleSpec
from advisor.reading import MOST_WRITTEN_BYTES, read_text

if TYPE_CHECKING:
    import yaml


# --- rule files as they were read: where each lies, and what is wrong with it ---------------------

Loc = Sequence[int | str]


class Problem(NamedTuple):
    """One thing that is wrong: where, what, and what to do. Line 0 is the file or folder itself."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.text}"


#: Number of problems listed for one file, and in all: the first have to be fixed before others are read.
MOST_OF_A_FILE, MOST_LISTED = 50, 500


def refuse(problems: Iterable[Problem]) -> None:
    """Raise one RuleError that lists all problems by place, a line each; does nothing without problems."""
    found = sorted(set(problems))
    lines: list[str] = []
    listed = 0
    for path, group in groupby(found, key=lambda p: p.path):
        here = list(group)
        shown = here[: min(MOST_OF_A_FILE, MOST_LISTED - listed)]
        if not shown:
            lines.append(f"and {len(found) - listed:,} more problems in other files")
            break
        lines += map(str, shown)
        if more := len(here) - len(shown):
            lines.append(f"{path}: and {amount(more, 'more problem')}")
        listed += len(here)
    if lines:
        raise RuleError("\n".join(lines))


class Source(Struct):
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


CASES_SUFFIX = ".cases.yaml"
#: The most that one folder of rules may hold: nearly twenty times the rules of this package. 5,000 short
#: rules (5 MB) take 9 s and 0.2 GB to check, and 4 s in a diagnosis.
MOST_RULES_BYTES = 8 << 20


class RuleSet(Struct, frozen=True, eq=False, dict=True):
    """Rules in order of code, and where each was read. Immutable."""

    rules: tuple[RuleSpec, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "rules", tuple(sorted(self.rules, key=lambda r: r.code)))

    @cached_property
    def by_code(self) -> Mapping[str, RuleSpec]:
        return {r.code: r for r in self.rules}

    @cached_property
    def by_cause(self) -> Mapping[str, RuleSpec]:
        return {r.cause: r for r in self.rules}

    @property
    def active(self) -> tuple[RuleSpec, ...]:
        """The rules that are evaluated: all except removed ones, which only reserve their code."""
        return tuple(r for r in self.rules if r.lifecycle != "removed")

    def about(self, subject: Subject) -> RuleSet:
        """The rules whose facts are about this: a diagnosis of one trace judges no comparison."""
        return RuleSet(tuple(r for r in self.rules if r.subject == subject), self.sources)

    def with_words(self, text: str) -> list[RuleSpec]:
        """The active rules whose cause or title has words that begin with each word of `text`."""
        words = [re.compile(rf"\b{re.escape(w)}", re.IGNORECASE) for w in text.split()]
        return [r for r in self.active if all(w.search(f"{r.cause} {r.title}") for w in words)]

    def problem(self, code: str, loc: Loc, text: str) -> Problem:
        """A problem at a place of a rule; rules that came from no file are named by code."""
        source = self.sources.get(code)
        return Problem(code, 1, text) if source is None else source.problem(loc, text)

    def path(self, code: str) -> Path | None:
        source = self.sources.get(code)
        return None if source is None else Path(source.path)

    def __iter__(self) -> Iterator[RuleSpec]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


def builtin_dir() -> Path:
    """The rules that ship with the package: inside the wheel, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_data" / "rules"
    return shipped if shipped.is_dir() else package.parent / "rules"


def load_rules(*directories: Path) -> RuleSet:
    """Every rule below the directories; a later directory replaces whole rules by code.

    Without a directory: the built-in rules. Raises RuleError with all problems."""
    places = directories or (builtin_dir(),)

    def read() -> RuleSet:
        rules, problems = read_rules(places)
        refuse(problems)
        return rules

    return cached("rules", [content(places[0])], read) if places == (builtin_dir(),) else read()


def content(directory: Path) -> bytes:
    """The content of a folder of rules: the names of all YAML files, and a digest of those with rules."""
    files = yaml_files(directory)
    return os.fsencode("\0".join(files)) + content_of(f for f in files if not f.endswith(CASES_SUFFIX))


def load_rule(name: str, *directories: Path) -> RuleSpec:
    """One rule by code, cause or the name of nsys for the same question, from the last directory that has
    it. RuleError if none has."""
    places, name = directories or (builtin_dir(),), name.strip()
    path = _file_of(nsys_rules().get(name.lower(), name), places)
    if path is not None:
        rule, source = _read_rule(path)
        refuse(source.problems)
        assert rule is not None
        return rule
    files = [p for d in places for p in _files(d)]
    known = [*(p.stem for p in files), *filter(None, map(_cause_in, files)), *nsys_rules()]
    wanted = name.upper() if name[-1:].isdigit() else name.lower()
    kind = "code" if wanted[-3:].isdigit() else "code or cause"
    hint = near(wanted, known, "see `advisor rules list`", most=3)
    raise RuleError(f"no rule has the {kind} {name}; {hint}")


def _file_of(name: str, places: Sequence[Path]) -> Path | None:
    """The file of a code, else of a cause, which is searched in the text without parsing it."""
    named = (p for place in reversed(places) for p in sorted(place.rglob(f"{name.upper()}.yaml")))
    caused = (p for place in reversed(places) for p in _files(place) if _cause_in(p) == name.lower())
    return next(chain(named, caused), None)


def _cause_in(path: Path) -> str | None:
    """The `cause:` value, found without parsing the YAML."""
    try:
        found = re.search(r"^cause: *([a-z0-9-]+)", read_text(path, MOST_WRITTEN_BYTES), re.MULTILINE)
    except (OSError, UnicodeDecodeError, InputError):
        return None
    return None if found is None else found[1]


def read_rules(directories: Sequence[Path]) -> tuple[RuleSet, list[Problem]]:
    """The readable rules, and the problems of the rest."""
    rules: dict[str, RuleSpec] = {}
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for directory in directories:
        if not directory.is_dir():
            what = "not a directory; name the one that holds the rules"
            what = what if directory.exists() else "no such directory; check the path"
            problems.append(Problem(str(directory), 0, what))
            continue
        here: dict[str, str] = {}
        files = _files(directory)
        if (size := sum(p.stat().st_size for p in files if p.is_file())) > MOST_RULES_BYTES:
            what = f"holds {size >> 20} MB of rules, at most {MOST_RULES_BYTES >> 20}; name a folder of fewer"
            problems.append(Problem(str(directory), 0, what))
            continue
        problems.extend(_misnamed(directory))
        for path in files:
            rule, source = _read_rule(path)
            problems.extend(source.problems)
            if rule is None:
                continue
            if rule.code in here:
                text = f"the code {rule.code} is also defined in {here[rule.code]}; keep one"
                problems.append(source.problem(("code",), text))
                continue
            here[rule.code] = source.path
            before = rules.get(rule.code)
            if before is not None and before.cause != rule.cause:
                text = (
                    f"the cause of {rule.code} is {before.cause} and must stay so; "
                    f"give `{rule.cause}` a code of its own"
                )
                problems.append(source.problem(("cause",), text))
                continue
            rules[rule.code], sources[rule.code] = rule, source
    problems.extend(_same_cause(rules.values(), sources))
    return RuleSet(tuple(rules.values()), sources), problems


def _read_rule(path: Path) -> tuple[RuleSpec | None, Source]:
    from advisor.engine.parse import read, validate

    source = read(path)
    rule = validate(source, RuleSpec)
    source.data = None
    if rule is not None and rule.code != path.stem:
        text = f"the code {rule.code} differs from the file name {path.name}; make them equal"
        source.problems.append(source.problem(("code",), text))
        return None, source
    return rule, source


def yaml_files(directory: Path) -> list[str]:
    """Every YAML file below the folder, in order of path."""
    found = (os.path.join(at, n) for at, _, names in os.walk(directory) for n in names)
    return sorted(p for p in found if p.endswith((".yaml", ".yml")))


def _files(directory: Path) -> list[Path]:
    found = sorted(Path(p) for p in yaml_files(directory) if p.endswith(".yaml"))
    return [p for p in found if not p.name.endswith(CASES_SUFFIX)]


def _misnamed(directory: Path) -> Iterator[Problem]:
    """Files that look like rules but would silently be ignored; cases without their rule."""
    for path in sorted(directory.rglob("*.yml")):
        yield Problem(str(path), 1, "rule files end in .yaml; rename it")
    for path in sorted(directory.rglob(f"*{CASES_SUFFIX}")):
        rule = path.with_name(path.name.removesuffix(CASES_SUFFIX) + ".yaml")
        if not rule.is_file():
            yield Problem(str(path), 1, f"there is no {rule.name} beside these cases; add it")


def _same_cause(rules: Iterable[RuleSpec], sources: Mapping[str, Source]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for rule in sorted(rules, key=lambda r: r.code):
        if rule.cause in first:
            text = f"the cause {rule.cause} belongs to {first[rule.cause]}; one cause has one code"
            yield sources[rule.code].problem(("cause",), text)
        first.setdefault(rule.cause, rule.code)
