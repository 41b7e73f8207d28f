"""Options of nsys as `knowledge/` describes them: found, ordered, spelled, explained."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from advisor.capture.recording import TRACE_ORDER
from advisor.knowledge.capture import capture_goals
from advisor.knowledge.files import capture_knowledge
from advisor.knowledge.shapes import Flag
from advisor.model.capture_plan import FlagText

Release = tuple[int, int]
#: Sources of --trace in the order in which they are written.
SOURCES = ("none", *TRACE_ORDER, "mpi")
#: Options that `nsys start` takes; `nsys launch` takes the others.
OF_START = frozenset({
    "--gpu-metrics-devices", "--gpu-metrics-frequency", "--gpu-metrics-set", "--sample",
    "--cpuctxsw", "--capture-range", "--capture-range-end", "--export", "--force-overwrite",
    "--stats", "--enable", "-o",
})  # fmt: skip
_NSYS = re.compile(r"(?:^|[\s;/])nsys (?:profile|launch|start|stop|export) ")
_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*(?:=[^\s;]+)?|-o)(?=[\s;])")


def name_of(option: str) -> str:
    """``--delay`` of ``--delay=10``."""
    return option.partition("=")[0].split(" ")[0]


def _flags() -> list[Flag]:
    return [*capture_knowledge().flags, *capture_goals().flags]


def flag_of(option: str) -> Flag | None:
    """What is known of an option: by its whole text or the most of it, else by its name, else by an
    old spelling. A source of --trace is known by an entry that lists it."""
    flags = _flags()
    if name_of(option) == "--trace":
        source = option[8:]
        return next(
            (
                f
                for f in flags
                if name_of(f.flag) == "--trace" and source in (f.flag[8:], *f.flag[8:].split(","))
            ),
            None,
        )
    begun = [f for f in flags if "=" in f.flag and option.startswith(f.flag)]
    if begun:
        return max(begun, key=lambda f: len(f.flag))
    plain = next((f for f in flags if f.flag == name_of(option)), None)
    alike = next((f for f in flags if name_of(f.flag) == name_of(option)), None)
    old = next((f for f in flags if f.spelled is not None and f.spelled.as_ == option), None)
    return plain or alike or old


def joined(options: Sequence[str], release: Release | None = None) -> list[str]:
    """The options as they are typed: sources of --trace in one, spelled for `release`."""
    traced = [s for o in options if o.startswith("--trace=") for s in o[8:].split(",")]
    sources = sorted(dict.fromkeys(traced), key=lambda s: (_place(s), s))
    out = [f"--trace={','.join(sources)}"] if sources else []
    return [*out, *(spelled(o, release) for o in options if not o.startswith("--trace="))]


def _place(source: str) -> int:
    return SOURCES.index(source) if source in SOURCES else len(SOURCES)


def spelled(option: str, release: Release | None) -> str:
    """The option as this release of nsys spells it."""
    flag = flag_of(option)
    if flag is None or flag.spelled is None or release is None or flag.flag != option:
        return option
    return flag.spelled.as_ if release < number(flag.spelled.before) else option


def number(release: str) -> tuple[int, ...]:
    """``2023.4`` as numbers, so that releases compare."""
    return tuple(int(n) for n in release.split("."))


def newer(options: Iterable[str], release: Release | None) -> list[str]:
    """Options that this release does not know yet."""
    flags = ((option, flag_of(option)) for option in options)
    return [
        f"nsys {flag.since} or newer for {option}"
        for option, flag in flags
        if flag is not None and flag.since and release is not None and release < number(flag.since)
    ]


def merged(options: Sequence[str], added: Collection[str]) -> list[str]:
    """`options` with `added`: a new value of an option takes the place of the old one."""
    names = {name_of(o) for o in added if name_of(o) != "--trace"}
    kept = [o for o in options if name_of(o) not in names]
    return list(dict.fromkeys([*kept, *added]))


def options_in(command: str) -> list[str]:
    """Options of nsys in a command line, not those of the program; sources of --trace one by
    one."""
    found: list[str] = []
    for call in _NSYS.finditer(command):
        mine = command[call.end() - 1 :].partition(";")[0]
        end = re.search(r" -o \S+| -- | \.\.\.", mine)
        mine = mine[: end.end()] if end else mine
        for option in _OPTION.findall(f"{mine} "):
            if option.startswith("--trace="):
                found += [f"--trace={s}" for s in option[8:].split(",")]
            else:
                found.append(option)
    return found


def explained(commands: Iterable[str]) -> Iterator[FlagText]:
    """Every option of every nsys command, once, with what it is for."""
    for option in dict.fromkeys(o for command in commands for o in options_in(command)):
        flag = flag_of(option)
        yield FlagText(
            option=option,
            why="" if flag is None else flag.note,
            supplies=() if flag is None else tuple(flag.supplies),
            overhead="" if flag is None else flag.overhead,
        )
