"""Rule files -> :class:`RuleSet`. All problems of all files come in one RuleError."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import force_setattr

from advisor.errors import InputError, RuleError, near
from advisor.knowledge.files import nsys_rules
from advisor.knowledge.package_data import CASES_SUFFIX, data_dir, is_built, names, plain
from advisor.knowledge.yaml_files import MOST_OF_A_FILE, Loc, Problem, Source, read
from advisor.model.facts import Subject
from advisor.model.numbers import amount
from advisor.model.rules import RuleSpec
from advisor.reading import MOST_WRITTEN_BYTES, read_text

#: Number of problems listed in all.
MOST_LISTED = 500


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
    return data_dir("rules")


def load_rules(*directories: Path) -> RuleSet:
    """Every rule below the directories; a later directory replaces whole rules by code.

    Without a directory: the built-in rules. Raises RuleError with all problems."""
    rules, problems = read_rules(directories or (builtin_dir(),))
    refuse(problems)
    return rules


def load_rule(name: str, *directories: Path) -> RuleSpec:
    """One rule by code, cause or the name of nsys for the same question, from the last directory that has
    it. RuleError if none has."""
    places, name = directories or (builtin_dir(),), name.strip()
    path = _file_of(nsys_rules().get(name.lower(), name), places)
    if path is not None:
        ours = data_dir("rules")
        built = is_built() and path.is_relative_to(ours)
        source = _built(ours, path.relative_to(ours).as_posix()) if built else read(path)
        rule = _rule_of(source)
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


def read_rules(directories: Sequence[Path], *, trusted: bool = True) -> tuple[RuleSet, list[Problem]]:
    """The readable rules, and the problems of the rest. Rules that come with the package are `trusted` unless
    they are to be checked."""
    rules: dict[str, RuleSpec] = {}
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for directory in directories:
        found, wrong = _read_folder(directory, trusted)
        problems.extend(wrong)
        here: dict[str, str] = {}
        for source in found:
            rule = _rule_of(source)
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


def _read_folder(directory: Path, trusted: bool) -> tuple[list[Source], list[Problem]]:
    """Every file of rules below the folder, and what is wrong with the folder."""
    if not directory.is_dir():
        what = "not a directory; name the one that holds the rules"
        what = what if directory.exists() else "no such directory; check the path"
        return [], [Problem(str(directory), 0, what)]
    if not os.access(directory, os.R_OK | os.X_OK):
        return [], [Problem(str(directory), 0, "permission denied; make it readable: chmod u+rx FOLDER")]
    if trusted and directory == data_dir("rules") and is_built():
        return [_built(directory, name) for name in names("rules")], []
    files = _files(directory)
    if (size := sum(p.stat().st_size for p in files if p.is_file())) > MOST_RULES_BYTES:
        what = f"holds {-(-size >> 20)} MB of rules, at most {MOST_RULES_BYTES >> 20}; name a folder of fewer"
        return [], [Problem(str(directory), 0, what)]
    misnamed = list(_misnamed(directory))
    if not files and not misnamed:
        what = "holds no rule (CODE.yaml); name the folder that holds the rules"
        return [], [Problem(str(directory), 0, what)]
    return [read(path) for path in files], misnamed


def _built(folder: Path, name: str) -> Source:
    """One of our own files of rules, as it was parsed when the package was built."""
    return Source(str(folder / name), data=plain("rules", name), known_right=True)


def _rule_of(source: Source) -> RuleSpec | None:
    """The rule in a file; None with the reasons added to its problems."""
    if source.known_right:
        rule: RuleSpec | None = RuleSpec.from_data(source.data)
    else:
        from advisor.engine.parse import validate

        rule = validate(source, RuleSpec)
    source.data = None
    path = Path(source.path)
    if rule is not None and rule.code != path.stem:
        text = f"the code {rule.code} differs from the file name {path.name}; make them equal"
        source.problems.append(source.problem(("code",), text))
        return None
    return rule


def stamps(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of each file of rules below the folder, by which a change of them is noticed."""
    known = ((path, path.stat()) for path in _files(directory) if path.is_file())
    return tuple((str(path), about.st_mtime_ns, about.st_size) for path, about in known)


def _files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*.yaml") if not p.name.endswith(CASES_SUFFIX))


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
