"""Options of nsys as `knowledge/` describes them, and the options a capture was recorded with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from advisor.knowledge.files import capture_knowledge
from advisor.knowledge.shapes import Flag
from advisor.knowledge.verb_files import capture_goals
from advisor.model.capture import Capture
from advisor.model.capture_plan import FlagText, Pitfall
from advisor.numerals import read_float, read_int

#: Event types of an export -> their names in --trace.
_SOURCES = {
    "cuda": "cuda",
    "nvtxevents": "nvtx",
    "osruntime": "osrt",
    "cublas": "cublas",
    "cudnn": "cudnn",
    "cusparse": "cusparse",
    "mpi": "mpi",
    "ucx": "ucx",
    "openacc": "openacc",
    "openmp": "openmp",
    "graphics": "opengl",
    "vulkan": "vulkan",
    "pythongil": "python-gil",
}
#: How a list of sources is written.
TRACE_ORDER = ("cuda", "nvtx", "cublas", "cudnn", "osrt", "python-gil")
#: Tables that show that a source was traced, if the export does not name it.
_SHOWN_BY = {
    "cuda": ("kernels", "copies", "memsets", "graph_runs", "api_calls"),
    "nvtx": ("ranges",),
    "osrt": ("host_calls",),
}
_SECRET = re.compile(
    r"(?i)(?:^|[^a-z]|auth|access)token(?![a-z])|secret|passw|api[_-]?key|access[_-]?key|credential"
)
_SECRET_VALUE = re.compile(r"^(?:sk|hf|ghp|nvapi)[-_]\w{8,}")
MASK = "***"
#: Year and number of a release of nsys.
Release = tuple[int, int]


class Recording(Struct, frozen=True):
    """`options` in canonical spelling, one a --trace source; `known` is False if the export
    does not list options, so they are inferred from what was recorded. `release` of nsys: (2023, 4)."""

    options: tuple[str, ...]
    known: bool
    command: tuple[str, ...]
    release: Release | None

    def has(self, option: str) -> bool:
        """True if the option, or one that includes it, was on."""
        name, _, value = option.partition("=")
        if name == "--gpu-metrics-frequency":
            given = (read_float(o[len(name) + 1 :]) for o in self.options if name_of(o) == name)
            least = read_float(value)
            return any(least is not None and rate is not None and least <= rate for rate in given)
        return option in self.options


def recording_of(
    capture: Capture,
    tables: Collection[str],
    *,
    gil_ranges: bool = False,
    backtraces: bool = False,
    profiler_calls: bool = False,
) -> Recording:
    """The options that were on; none if another tool recorded. Those that exports do not list are inferred
    from ranges of the GIL, backtraces of CUDA calls, and calls that start and stop the profiler."""
    if not capture.recorder.nsys_options:
        return Recording((), False, masked(capture.command), None)
    on = {k.rpartition(":")[2]: v.strip().lower() for k, v in capture.options.items()}
    types = [t for t in capture.trace_sources if not t.startswith("COLLECT_")]
    sources = [_SOURCES.get(t.lower(), t.lower()) for t in types]
    known = bool(sources)
    if not known:
        sources = [s for s, shown in _SHOWN_BY.items() if any(t in tables for t in shown)]
    if gil_ranges:
        sources.append("python-gil")
    order = [s for s in TRACE_ORDER if s in sources]
    options = [f"--trace={s}" for s in dict.fromkeys([*order, *sources])]
    hertz = capture.sample_hz
    sampled = on.get("COLLECT_IP_BACKTRACE_SAMPLES") == "true" or "host_samples" in tables
    memory = on.get("COLLECT_GPU_MEMORY_USAGE") == "true" or "allocations" in tables
    found = (
        (f"--cuda-graph-trace={capture.graph_trace_mode}", capture.graph_trace_mode),
        ("--gpu-metrics-devices=all", hertz or "samples" in tables),
        (f"--gpu-metrics-frequency={hertz or 0:.0f}", hertz),
        ("--cuda-memory-usage=true", memory),
        ("--cudabacktrace=all", backtraces),
        ("--sample=process-tree", sampled),
        ("--sample=none", known and not sampled),
        ("--trace-fork-before-exec=true", on.get("TRACE_AFTER_FORK_BEFORE_EXEC") == "true"),
        ("--capture-range=cudaProfilerApi", profiler_calls),
    )
    options += [option for option, was_on in found if was_on]
    release = re.match(r"(\d{4})\.(\d+)", capture.producer_version or "")
    number = (read_int(release[1]) or 0, read_int(release[2]) or 0) if release else None
    return Recording(tuple(options), known, masked(capture.command), number)


def masked(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command line without the values of likely credentials."""
    out: list[str] = []
    hide = False
    for word in command:
        name, equals, _ = word.partition("=")
        if hide or _SECRET_VALUE.match(word):
            out.append(MASK)
        elif equals and _SECRET.search(name):
            out.append(f"{name}={MASK}")
        else:
            out.append(word)
        hide = word.startswith("-") and not equals and bool(_SECRET.search(word))
    return tuple(out)


#: Sources of --trace in the order in which they are written.
SOURCES = ("none", *TRACE_ORDER, "mpi")
#: Options that `nsys start` takes; `nsys launch` takes the others.
OF_START = frozenset(
    {
        "--gpu-metrics-devices",
        "--gpu-metrics-frequency",
        "--gpu-metrics-set",
        "--sample",
        "--cpuctxsw",
        "--capture-range",
        "--capture-range-end",
        "--export",
        "--force-overwrite",
        "--stats",
        "--enable",
        "-o",
    }
)
_NSYS = re.compile(r"(?:^|[\s;/])nsys (?:profile|launch|start|stop|export) ")
_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*(?:=[^\s;]+)?|-o)(?=[\s;])")


def name_of(option: str) -> str:
    """``--delay`` of ``--delay=10``."""
    return option.partition("=")[0].split(" ")[0]


def _flags() -> list[Flag]:
    return [*capture_knowledge().flags, *capture_goals().flags]


def flag_of(option: str) -> Flag | None:
    """What is known about an option: by its whole text or most of it, else by its name, else by an old
    spelling. A source of --trace is known by an entry that lists it."""
    flags = _flags()
    if name_of(option) == "--trace":
        source = option[8:]
        traced = (f for f in flags if name_of(f.flag) == "--trace")
        return next((f for f in traced if source in (f.flag[8:], *f.flag[8:].split(","))), None)
    begun = [f for f in flags if "=" in f.flag and option.startswith(f.flag)]
    if begun:
        return max(begun, key=lambda f: len(f.flag))
    name = name_of(option)
    alike = [f for f in flags if name_of(f.flag) == name]
    old = [f for f in flags if f.spelled is not None and f.spelled.as_ == option]
    return next(iter([*(f for f in alike if f.flag == name), *alike, *old]), None)


def apart(option: str) -> list[str]:
    """An option of --trace for each of its sources; any other option as it is."""
    return [f"--trace={s}" for s in option[8:].split(",")] if option.startswith("--trace=") else [option]


def joined(options: Sequence[str], release: Release | None = None) -> list[str]:
    """The options as typed: sources of --trace in one, spelled for `release`."""
    traced = [one[8:] for o in options if o.startswith("--trace=") for one in apart(o)]
    # Unknown sources come last, in order of name.
    sources = [s for s in SOURCES if s in traced] + sorted(set(traced) - set(SOURCES))
    out = [f"--trace={','.join(sources)}"] if sources else []
    return [*out, *(spelled(o, release) for o in options if not o.startswith("--trace="))]


def spelled(option: str, release: Release | None) -> str:
    """The option as this release of nsys spells it."""
    flag = flag_of(option)
    if flag is None or flag.spelled is None or release is None or flag.flag != option:
        return option
    return flag.spelled.as_ if release < number(flag.spelled.before) else option


def number(release: str) -> tuple[int, ...]:
    """``2023.4`` as numbers, so that releases compare."""
    return tuple(read_int(n) or 0 for n in release.split("."))


def newer(options: Iterable[str], release: Release | None) -> list[str]:
    """Options that this release does not know yet."""
    since = [(option, flag.since) for option in options if (flag := flag_of(option)) and flag.since]
    return [f"nsys {s} or newer for {o}" for o, s in since if release is not None and release < number(s)]


def merged(options: Sequence[str], added: Collection[str]) -> list[str]:
    """`options` with `added`: a new value of an option replaces the old one."""
    names = {name_of(o) for o in added if name_of(o) != "--trace"}
    kept = [o for o in options if name_of(o) not in names]
    return list(dict.fromkeys([*kept, *added]))


def options_in(command: str) -> list[str]:
    """Options of nsys in a command line, without those of the program; sources of --trace one by one."""
    found: list[str] = []
    for call in _NSYS.finditer(command):
        mine = command[call.end() - 1 :].partition(";")[0]
        end = re.search(r" -o \S+| -- | \.\.\.", mine)
        mine = mine[: end.end()] if end else mine
        found += [one for option in _OPTION.findall(f"{mine} ") for one in apart(option)]
    return found


def explained(commands: Iterable[str]) -> Iterator[FlagText]:
    """Every option of every nsys command, once, with its purpose."""
    for option in dict.fromkeys(o for command in commands for o in options_in(command)):
        flag = flag_of(option)
        yield FlagText(
            option=option,
            why="" if flag is None else flag.note,
            supplies=() if flag is None else tuple(flag.supplies),
            overhead="" if flag is None else flag.overhead,
        )


def pitfalls(applying: Collection[str], named: Collection[str] = ()) -> Iterator[Pitfall]:
    """The traps that are `named`, and those of options and causes that apply."""
    for trap in capture_knowledge().pitfalls:
        if trap.id in named or not set(trap.applies).isdisjoint(applying):
            yield Pitfall(id=trap.id, text=trap.text)
