"""The origin of a capture: the serving engine, by the signs of `knowledge/engines`, with the options that
carry out an action in it; the kind of program, who launched its kernels, and how layers of a model are
named, by ``workloads.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from msgspec import field

from advisor.errors import InputError
from advisor.knowledge.files import shipped
from advisor.knowledge.gpus import gpu_features, gpu_has
from advisor.knowledge.kernel_names import Patterns, search
from advisor.knowledge.package_data import names
from advisor.knowledge.shapes import (
    ActionFile,
    Data,
    EngineData,
    Family,
    File,
    OptionLine,
    Pattern,
    Searched,
    Text,
)
from advisor.model.capture import Device
from advisor.model.file_content import Constraint
from advisor.model.gain import Option
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import percent
from advisor.model.rules import FactCondition
from advisor.numerals import read_int

# --- engines/*.yaml and actions.yaml ---------------------------------------------------------------


@cache
def engines() -> Mapping[str, EngineData]:
    """Serving engines by name; ``any`` holds the lines that suit every engine."""
    known = names("knowledge", "engines")
    return MappingProxyType({PurePath(name).stem: shipped(name, EngineData) for name in known})


@cache
def _action_file() -> ActionFile:
    return shipped("actions.yaml", ActionFile)


@cache
def actions() -> Mapping[str, str]:
    """The action keys that recommendations and engine options share, each with its meaning."""
    return MappingProxyType(_action_file().actions)


@cache
def action_unless() -> Mapping[str, tuple[FactCondition, ...]]:
    """By id, the conditions of which any one makes its advice pointless: what it asks for is in use, or the
    GPU cannot do it."""
    return MappingProxyType(_action_file().unless)


@cache
def recommendation_ids() -> frozenset[str]:
    """Every id of a recommendation in our rules, with options of engines or without."""
    return frozenset((*_action_file().actions, *_action_file().advice))


#: Words of ids in their usual spelling.
_SPELLED = {w.lower(): w for w in ("CUDA", "GPU", "GC", "GIL", "KV", "FP8", "TF32", "NVTX", "NUMA")}


@cache
def action_title(id: str) -> str:
    """What a recommendation asks for, in a few words: ``use CUDA graphs``."""
    given = _action_file().titles.get(id)
    return given or " ".join(_SPELLED.get(word, word) for word in id.split("-"))


@cache
def action_sentence(id: str) -> str:
    """What a recommendation asks for, with object and reason: ``replay the step as a CUDA graph: one
    launch in place of hundreds``; empty for an id that only rules of a user have."""
    return _action_file().actions.get(id) or _action_file().advice.get(id) or ""


# --- which engine a capture shows ------------------------------------------------------------------

#: Below this weight of evidence no engine is named; at it, the confidence is one half.
ENOUGH = 2.0
_RELEASE = re.compile(r"\Av?\d+(?:\.\d++)+\w*")


class ServingEngine(NamedTuple):
    """`name` is None if the capture does not show it, `confidence` 0..1, `version` the release if known."""

    name: str | None
    confidence: float
    evidence: tuple[str, ...]
    version: str | None = None


NO_ENGINE = ServingEngine(None, 0.0, ())


def named(text: str) -> ServingEngine:
    """The engine named by the user as ``NAME`` or ``NAME@VERSION``.

    Raises InputError for an unknown engine and for a malformed version."""
    name, at, version = text.partition("@")
    if name not in engines():
        known = ", ".join(sorted(set(engines()) - {"any"}))
        raise InputError(f"--serving-engine: unknown engine '{name}'; expected one of {known}")
    if at and not _RELEASE.fullmatch(version):
        raise InputError(f"--serving-engine: '{version}' is not a version; write {name}@1.2.3")
    return ServingEngine(name, 1.0, ("named by --serving-engine",), version.lstrip("v") or None)


def detect(
    kernel_names_with_time: Mapping[str, float] | Iterable[tuple[str, float]],
    range_names: Iterable[str],
    command: str | Sequence[str] | None,
) -> ServingEngine:
    """The engine with most evidence; each sign counts once, however often it occurs.

    If an engine is found, the library that it is built on is not a candidate."""
    times = dict(kernel_names_with_time)
    texts = tuple(dict.fromkeys(range_names))
    line = command if isinstance(command, str) else " ".join(command or ())
    found = {name: _evidence(data, times, texts, line) for name, data in engines().items()}
    score = {name: sum(w for w, _ in signs) for name, signs in found.items()}
    likely = {name for name in score if score[name] >= ENOUGH}
    likely -= {base for name in likely for base in _bases(name)}
    if not likely:
        return NO_ENGINE
    best = min(likely, key=lambda name: (-score[name], name))
    rivals = (s for name, s in score.items() if name != best and name not in _bases(best))
    confidence = score[best] / (score[best] + max(rivals, default=0.0) + ENOUGH)
    evidence = tuple(text for _, text in found[best])
    return ServingEngine(best, round(confidence, 2), evidence, _version(best, line))


def _version(name: str, line: str) -> str | None:
    """The release named by an image or a package in the command line: ``vllm-openai:v0.11.0``."""
    package = re.escape(name).replace("\\-", "[-_]")
    image = engines()[name].recognise.image
    found = re.search(
        rf"(?i)\b{package}(?:-openai|/release|\[[\w,]+\])?(?:==|[:@-])?v?(\d+\.\d+\.\d+)", line
    ) or (image and search(image, line))
    return found[1] if found else None


def _evidence(
    data: EngineData, times: Mapping[str, float], texts: tuple[str, ...], line: str
) -> list[tuple[float, str]]:
    total = sum(times.values())
    result = []
    for sign in data.recognise.commands:
        if found := sign.match.first(line):
            result.append((sign.weight, f"command: {found[1][0].strip()}"))
    for sign in data.recognise.ranges:
        if seen := sign.match.among(texts):
            result.append((sign.weight, f"range: {seen[0][:80]}"))
    for sign in data.recognise.kernels:
        seen = sign.match.among(tuple(times))
        if seen:
            top = max(seen, key=lambda name: (times[name], name))
            share = sum(times[name] for name in seen) / total if total else 0.0
            shown = f"kernels, {percent(share)} of kernel time: {kernel_label(top)[:80]}"
            result.append((sign.weight, shown))
    return result


def _bases(name: str) -> set[str]:
    """The engines that this one is built on; their signs are no evidence against it."""
    base = engines()[name].base
    return set() if base is None else {base} | _bases(base)


MOST = 3


class Program(NamedTuple):
    """What a capture shows of the program: whether it is a language model (None if unknown), the names of
    its kernels, its command line, the release of nsys that recorded it, the GPU that it ran on, and whether
    it ran on a CPU instead."""

    language_model: bool | None = None
    kernels: Sequence[str] = ()
    command: str = ""
    nsys: str | None = None
    device: Device = Device(id=0)
    on_cpu: bool = False

    def runs(self, option: OptionLine) -> bool:
        """Whether the processor supports what the line does, as far as is known."""
        if option.processor not in (None, "cpu" if self.on_cpu else "gpu"):
            return False
        named = (
            name
            for name, f in gpu_features().items()
            if re.search(f.words, f"{option.line} {option.note or ''}")
        )
        return all(gpu_has(name, self.device) is not False for name in named)

    def uses(self, option: OptionLine) -> bool:
        """Whether the line is in effect: given in the command, or shown by a kernel that runs only then."""
        given = re.search(rf"(?<!\S){re.escape(option.line)}(?!\S)", self.command)
        pattern = option.in_use
        return bool(given) or (pattern is not None and any(search(pattern, name) for name in self.kernels))


UNKNOWN = Program()


def options_for(
    action_key: str, engine_name: str | None, program: Program = UNKNOWN, version: str | None = None
) -> tuple[Option, ...]:
    """At most three lines: of the engine, else of the library it extends, else of any engine; none that
    the program uses already. `version` is the release of the engine, if known: lines are spelled for it.

    A server is configured by its own options, never by patching the library below it: only an engine
    whose file says `inherit_options` shows the lines of its base."""
    known = engines()
    name = engine_name if engine_name in known else None
    while name is not None:
        data = known[name]
        if found := _fitting(data, action_key, program, version):
            return found
        # The version is that of the engine; the library below it has its own.
        name, version = (data.base if data.inherit_options else None), None
    return _fitting(known["any"], action_key, program, program.nsys)


def _fitting(data: EngineData, action_key: str, program: Program, version: str | None) -> tuple[Option, ...]:
    wanted = program.language_model
    options = (
        line.option(data.name, version)
        for line in data.options.get(action_key, [])
        if (None in (wanted, line.language_model) or line.language_model == wanted)
        and program.runs(line)
        and not program.uses(line)
    )
    return tuple(option for option in options if option is not None)[:MOST]


# --- workloads.yaml --------------------------------------------------------------------------------

Kind = Literal["ranges", "operators", "modules", "kernels", "families", "command", "structure"]
Feature = Literal["named_phases", "decode_attention", "few_tokens", "names", "launches", "framework"]
Share = Annotated[float, Constraint(ge=0, le=1)]
LayerPart = Literal["attention", "ffn"]
#: Minimum and maximum, both inclusive; None is unbounded.
Bounds = tuple[float | None, float | None]


class Evidence(Data, frozen=True, kw_only=True):
    """Evidence in a capture for a workload, or against it."""

    kind: Kind
    weight: Annotated[float, Constraint(ge=-10, le=10)]
    match: Searched | None = None
    families: tuple[Family, ...] = ()
    share: Share = 0.0
    where: dict[Feature, Bounds] = field(default_factory=dict)


class Workload(Data, frozen=True, kw_only=True):
    name: Text
    contains_others: bool = False
    evidence: Annotated[tuple[Evidence, ...], Constraint(min_length=1)]


class Framework(Data, frozen=True, kw_only=True):
    name: Text
    kernels: Searched = Patterns(())
    ranges: Searched = Patterns(())


#: What ran a program. `accelerator`: neither a processor nor a GPU that CUDA or ROCm can use.
Processor = Literal["accelerator", "gpu", "cpu"]


class WorkloadFile(File, frozen=True, kw_only=True):
    """`least` and `decisive` are sums of weights; see the head of the file."""

    least: Annotated[float, Constraint(gt=0)]
    decisive: Annotated[float, Constraint(gt=0)]
    frameworks: tuple[Framework, ...]
    processors: dict[Processor, Pattern]
    workloads: Annotated[tuple[Workload, ...], Constraint(min_length=1)]
    layers: Pattern
    parts: dict[LayerPart, Pattern]

    def layer(self, text: str) -> tuple[int | None, str]:
        """The number of the layer named by a range, and the text that follows it (all without a number)."""
        hit = search(self.layers, text)
        return (read_int(hit[1]), text[hit.end() :]) if hit else (None, text)

    def part(self, text: str) -> LayerPart | None:
        """The part of a layer named by a range or a class of modules."""
        return next((part for part, pattern in self.parts.items() if search(pattern, text)), None)


@cache
def workload_knowledge() -> WorkloadFile:
    return shipped("workloads.yaml", WorkloadFile)
