"""Chooses the one command that lets most of the rules run that could not run on a capture.

It starts from the options that the capture was recorded with and adds options greedily: each time those
that enable most rules for their cost (`cost` in knowledge/capture.yaml, in rules), until the remaining
ones cost more than they enable. The needs of a rule are the remedies of its missing facts; a need without
an option (an NVTX range, a longer run) is listed beside the command.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from advisor.capture import nsys_options as nsys
from advisor.facts.needs import NODES, options_of
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import capture_knowledge
from advisor.knowledge.shapes import CaptureVariable
from advisor.knowledge.verb_files import nsys_needed
from advisor.model.capture_plan import Also, LeftOut, Named, Pitfall, Plan, PlanOption
from advisor.model.options import own_option

#: Graphics APIs cost time and say nothing about inference.
_USELESS = frozenset({"--trace=opengl", "--trace=vulkan"})
#: Stacks of every launch make each several times as long: of calls alone that take long by themselves.
_SPARING = {"--cudabacktrace=all": "--cudabacktrace=kernel:80000,sync:80000,memory:80000"}
#: Servers start their workers by fork.
_FORKS = frozenset({"vllm", "sglang", "tensorrt-llm", "tgi", "nim"})
_ALWAYS = ("--trace=cuda", "--trace=nvtx")
_RANGE = "--capture-range=cudaProfilerApi"
_OUTPUT = "advisor_recapture"


class UnmetNeed(Struct, frozen=True):
    """A rule that could not run, and what would supply its missing facts, if anything."""

    rule: Named
    remedy: str | None


class Situation(Struct, frozen=True):
    """What is known about the capture besides its options. `causes` are the findings about it, `version`
    the release of the engine."""

    causes: frozenset[str] = frozenset()
    serving: str | None = None
    version: str | None = None
    cuda: str | None = None
    startup_ms: float = 0.0


class _Needs(Struct):
    """The needs of one rule: options that are not on yet, and those without an option."""

    rule: Named
    options: frozenset[str]
    words: tuple[str, ...]


def _add(chosen: list[str], options: Collection[str]) -> None:
    chosen += [o for o in sorted(options) if o not in chosen]


def plan(recording: nsys.Recording, unmet: Sequence[UnmetNeed], about: Situation) -> Plan:
    """The command, what it enables, what it leaves out and what to watch for."""
    needs = [n for need in unmet if (n := _needs(need, recording)) is not None]
    chosen: list[str] = []
    mends = _mend(chosen, recording, about)
    left = _choose(chosen, needs)
    added = set(chosen)
    enabled = [n for n in needs if n.options <= added]
    # A new value of an option replaces the old one.
    named = {nsys.name_of(o) for o in added} - {"--trace"}
    again = (_SPARING.get(o, o) for o in recording.options)
    kept = [o for o in again if o not in _USELESS and nsys.name_of(o) not in named]
    old = _too_old(recording, about.cuda)
    release = None if old else recording.release
    variables = _variables(chosen, about)
    options = [*kept, *(o for o in added if o not in variables)]
    command = recording.command if "wrong-process" not in about.causes else ()
    listed = [*variables, *_ordered(options)]
    return Plan(
        command=_command(variables, options, command, release),
        options=tuple(_described(listed, recording, about.serving, release)),
        enables=tuple(n.rule for n in enabled if not n.words),
        addresses=mends,
        also=tuple(_also(enabled, [old] if old else nsys.newer(options, release))),
        left_out=tuple(_left_out(left)),
        pitfalls=tuple(_pitfalls(options, added, recording, about, bool(old))),
    )


def _needs(unmet: UnmetNeed, recording: nsys.Recording) -> _Needs | None:
    """None if nothing that can be recorded would help."""
    if unmet.remedy is None:
        return None
    words = [part for part in unmet.remedy.split(" and ") if not options_of(part.split(" ")[0])]
    named = (one for word in options_of(unmet.remedy) for one in nsys.apart(word))
    lacking = {o for o in named if not recording.has(o)}
    options = frozenset(o for o in lacking if own_option(o) is None)
    # Options of advisor need no capture.
    words += [f"advisor {own_option(o)}" for o in sorted(lacking - options)]
    if not options and not words:
        # All of it was on: the recording is not why the fact is missing.
        return None
    return _Needs(unmet.rule, options, tuple(dict.fromkeys(words)))


def _mend(chosen: list[str], recording: nsys.Recording, about: Situation) -> tuple[str, ...]:
    """Add what removes findings about the capture itself, also if it enables no rule."""
    mended = []
    # What every capture should have: most rules use kernels inside graphs, and without graphs node
    # tracing costs nothing.
    _add(chosen, [o for o in (*_ALWAYS, NODES) if not recording.has(o)])
    for flag in capture_knowledge().flags:
        causes = sorted(about.causes.intersection(flag.mends))
        if causes and not recording.has(flag.flag):
            _add(chosen, flag.flag.split())
            mended += causes
    steady = sorted(about.causes & {"startup-in-window", "profile-too-large"})
    if recording.has(_RANGE):
        _add(chosen, _switched(about))
    elif steady:
        # Else start-up is skipped by the clock.
        delay = [f"--delay={math.ceil(about.startup_ms / 1e3)}"] if about.startup_ms > 0 else []
        _add(chosen, _switched(about) or [*delay, "--duration=10"])
        mended += steady
    if about.serving in _FORKS and not recording.has("--trace-fork-before-exec=true"):
        _add(chosen, ["--trace-fork-before-exec=true"])
    return tuple(dict.fromkeys(mended))


def _switched(about: Situation) -> list[str]:
    """The engine's own switch of the profiler, around steady iterations; nothing if it has none."""
    switch = _variable(about, "capture-range")
    if switch is None:
        return []
    return [_RANGE, "--capture-range-end=stop", switch.setting]


def _choose(chosen: list[str], needs: Sequence[_Needs]) -> list[_Needs]:
    """Add options greedily; returns the needs that stay unmet."""
    while True:
        have = set(chosen)
        open_ = [n for n in needs if not n.options <= have]
        worth: list[tuple[float, int, tuple[str, ...]]] = []
        for candidate in open_:
            new = tuple(sorted(candidate.options - have))
            enables = sum(1 for n in open_ if n.options <= have | candidate.options)
            loses = sum(f.cost for f in map(nsys.flag_of, new) if f is not None) - enables
            worth.append((loses, -enables, new))
        best = min(worth, default=None)
        # If nothing else is missing, even a costly option is chosen.
        if best is None or (best[0] > 0 and (chosen or len(open_) < len(needs))):
            return open_
        _add(chosen, best[2])
        if best[0] > 0:
            return [n for n in open_ if not n.options <= set(chosen)]


def _variable(about: Situation, key: str) -> CaptureVariable | None:
    data = engines().get(about.serving or "")
    known = () if data is None else (v for v in data.capture if v.known_in(about.version))
    return next((v for v in known if key in v.supplies), None)


def _variables(chosen: Sequence[str], about: Situation) -> list[str]:
    """Environment variables; the engine's own ranges come with NVTX if they have to be requested."""
    found = [o for o in chosen if not o.startswith("-")]
    ranges = _variable(about, "ranges")
    if ranges is not None and "--trace=nvtx" in chosen:
        found.append(ranges.setting)
    return list(dict.fromkeys(found))


_ORDER = (
    "--trace",
    "--cuda-graph-trace",
    "--gpu-metrics-devices",
    "--gpu-metrics-frequency",
    "--enable",
    "--cuda-memory-usage",
    "--cuda-event-trace",
    "--cudabacktrace",
    "--sample",
    "--python-sampling",
    "--capture-range",
    "--capture-range-end",
    "--delay",
    "--duration",
    "--trace-fork-before-exec",
)


def _ordered(options: Collection[str]) -> list[str]:
    def place(option: str) -> tuple[int, int, str]:
        name, _, value = option.partition("=")
        rank = nsys.TRACE_ORDER.index(value) if value in nsys.TRACE_ORDER else len(nsys.TRACE_ORDER)
        return (_ORDER.index(name) if name in _ORDER else len(_ORDER), rank, option)

    return sorted(dict.fromkeys(options), key=place)


def _command(
    variables: Sequence[str],
    options: Collection[str],
    command: Sequence[str],
    release: tuple[int, int] | None,
) -> str:
    """The whole line. `release`: spell options as that release of nsys does."""
    words = [*variables, "nsys profile", *nsys.joined(_ordered(options), release)]
    words += ["--force-overwrite=true", "--export=sqlite", f"--output={_OUTPUT}"]
    words.append(shlex.join(command) if command else "COMMAND")
    return " ".join(words)


def _described(
    options: Sequence[str], recording: nsys.Recording, serving: str | None, release: tuple[int, int] | None
) -> Iterator[PlanOption]:
    data = engines().get(serving or "")
    known = {} if data is None else {v.setting: v.effect for v in data.capture}
    for option in options:
        flag = nsys.flag_of(option)
        purpose = known.get(option, "")
        if flag is not None:
            purpose = f"gives {', '.join(flag.supplies)}" if flag.supplies else flag.note
        yield PlanOption(
            option=nsys.spelled(option, release),
            new=not recording.has(option),
            purpose=purpose,
            overhead="" if flag is None else flag.overhead,
        )


def _also(enabled: Sequence[_Needs], releases: Sequence[str]) -> Iterator[Also]:
    """What the command alone does not do."""
    by: dict[str, list[Named]] = {}
    for need in enabled:
        if need.words:
            by.setdefault(" and ".join(need.words), []).append(need.rule)
    for release in releases:
        yield Also(need=release)
    for words, rules in sorted(by.items(), key=lambda item: (-len(item[1]), item[0])):
        yield Also(need=words, rules=tuple(rules))


def _left_out(left: Sequence[_Needs]) -> Iterator[LeftOut]:
    by: dict[tuple[str, ...], list[Named]] = {}
    for need in left:
        by.setdefault(tuple(_ordered(need.options)), []).append(need.rule)
    for options, rules in sorted(by.items(), key=lambda item: (-len(item[1]), item[0])):
        costs = [f.overhead for o in options if (f := nsys.flag_of(o)) is not None and f.cost > 0]
        yield LeftOut(option=" ".join(options), rules=tuple(rules), overhead="; ".join(costs))


def _too_old(recording: nsys.Recording, cuda: str | None) -> str | None:
    """The release of nsys that the driver needs, if the one in use is older."""
    if cuda is None or recording.release is None:
        return None
    if (needed := nsys_needed(recording.release, cuda)) is None:
        return None
    used = ".".join(map(str, recording.release))
    return f"nsys {needed} or newer: {used} is older than CUDA {cuda} of the driver"


def _pitfalls(
    options: Sequence[str], added: Collection[str], recording: nsys.Recording, about: Situation, old: bool
) -> Iterator[Pitfall]:
    """Pitfalls of the command, the findings and the tool."""
    here = {*options, *map(nsys.name_of, options), *about.causes}
    if old:
        here.add("old-nsys")
    if "--gpu-metrics-devices=all" in added and not recording.has("--gpu-metrics-devices=all"):
        here.add("first-samples")
    return nsys.pitfalls(here)
