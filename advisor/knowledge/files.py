"""Loader of `knowledge/`: what an expert carries in the head, as validated and cached data.

Everything is read once, on first use; a faulty file is one clear error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import yaml
from pydantic import ValidationError

from advisor.errors import AdvisorError
from advisor.knowledge.kernel_names import function_name, words
from advisor.knowledge.shapes import (
    ActionFile,
    CallSiteFile,
    CaptureKnowledge,
    Data,
    EngineData,
    Family,
    Frames,
    GpuFile,
    GpuSpec,
    KernelEntry,
    KernelFile,
    KernelSource,
    MarkerKind,
    Phase,
    ReferenceFile,
    Role,
    StepFile,
)
from advisor.model.findings import Reference

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_T = TypeVar("_T", bound=Data)


# --- files ---------------------------------------------------------------------------------------


def data_dir(kind: Literal["rules", "knowledge"]) -> Path:
    """The folder of our rules or knowledge: in the installed package, else in the checkout."""
    return _first_there(f"folder '{kind}'", _PACKAGE / "_data" / kind, _CHECKOUT / kind)


def demo_capture() -> Path:
    """The capture that ``advisor demo`` diagnoses."""
    in_checkout = _CHECKOUT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"
    return _first_there("demo capture", _PACKAGE / "_data" / "demo.sqlite.xz", in_checkout)


def _first_there(what: str, *paths: Path) -> Path:
    for path in paths:
        if path.exists():
            return path
    raise AdvisorError(f"{what} not found at {paths[-1]}: reinstall advisor")


class _UniqueKeys(_Loader):  # type: ignore[misc]
    """Refuses a key that appears twice: YAML would let the last one win without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen and not isinstance(key.value, list):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' appears twice", key.start_mark
                )
            seen.add(key.value if not isinstance(key.value, list) else id(key))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(path: Path) -> Any:
    """The content of one YAML file; a fault is an error that names the file and the line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise AdvisorError(f"cannot read {path}: {fault}") from fault


def load(path: Path, model: type[_T]) -> _T:
    """One knowledge file, checked against its model; the error has a line for each fault."""
    try:
        return model.model_validate(read_yaml(path))
    except ValidationError as fault:
        lines = []
        for error in fault.errors():
            place = "".join(f"{part}: " for part in (".".join(map(str, error["loc"])),) if part)
            lines.append(f"{path}: {place}{error['msg'].removeprefix('Value error, ')}")
        raise AdvisorError("\n".join(lines)) from fault


def _load(name: str, model: type[_T]) -> _T:
    return load(data_dir("knowledge") / name, model)


# --- kernel names --------------------------------------------------------------------------------


class KernelFamily(NamedTuple):
    """What a kernel's name says about it. `phase` and `engine` are hints, never proof."""

    family: Family
    operation: str
    phase: Phase | None
    engine: KernelSource | None
    traits: Mapping[str, str | bool]
    of_framework: bool = False

    @property
    def sm(self) -> int | None:
        """The SM architecture that the name gives away (75, 80, 90, 100, ...)."""
        arch = self.traits.get("arch")
        return int(arch[2:]) if isinstance(arch, str) else None


class KernelFamilies:
    """The ordered patterns of ``kernel_families.yaml``; answers are remembered by name."""

    def __init__(self, data: KernelFile) -> None:
        self._entries = [
            (e, [re.compile(p) for p in e.match], [_of_words(p) for p in e.words])
            for e in data.kernels
        ]
        self._carriers = [re.compile(p) for p in data.carriers]
        self._nameless = [(re.compile(n.match), n) for n in data.nameless]
        self._frameworks = [re.compile(p) for p in data.frameworks]
        self._traits = [
            (re.compile(t.match), t.set.model_dump(exclude_none=True)) for t in data.traits
        ]
        self._known: dict[str, KernelFamily] = {}

    def classify(self, names: Sequence[str]) -> list[KernelFamily]:
        """One answer for each full (demangled) kernel name, in the order of `names`."""
        return [self._known.get(name) or self._classify(name) for name in names]

    def is_nameless(self, name: str) -> bool:
        """True for a name that kernels of all kinds share."""
        return any(pattern.search(name) for pattern, _ in self._nameless)

    def by_launch(
        self, name: str, registers: int, shared_bytes: int, median_ns: float
    ) -> KernelFamily:
        """What a kernel of a shared name is, as its launches tell; registers are a thread's, shared
        memory a block's."""
        known = self.classify([name])[0]
        for pattern, entry in self._nameless:
            if pattern.search(name) and entry.holds(registers, shared_bytes, median_ns):
                return known._replace(family=entry.family, operation=entry.operation)
        return known

    def _classify(self, name: str) -> KernelFamily:
        known = function_name(name)
        carrier = any(pattern.search(known.own) for pattern in self._carriers)
        text = known.full if carrier else known.own
        arguments = f" {known.arguments}" if carrier else ""
        entry, hit = self._find(text, words(known.function + arguments))
        if entry is self._entries[-1][0]:
            entry, hit = self._find(text, words(known.own))  # namespaces tell less than the name
        traits: dict[str, str | bool] = {}
        for pattern, values in self._traits:
            if found := pattern.search(known.full):
                for key, value in values.items():
                    traits.setdefault(key, _fill(value, found))
        answer = KernelFamily(
            entry.family, str(_fill(entry.operation, hit)), entry.phase, entry.engine,
            MappingProxyType(traits), any(p.search(known.full) for p in self._frameworks),
        )  # fmt: skip
        self._known[name] = answer
        return answer

    def _find(self, text: str, in_words: str) -> tuple[KernelEntry, re.Match[str]]:
        """The first entry of which a pattern is found; the last one matches anything."""
        for entry, patterns, word_patterns in self._entries:
            for pattern in patterns:
                if hit := pattern.search(text):
                    return entry, hit
            for pattern in word_patterns:
                if hit := pattern.search(in_words):
                    return entry, hit
        raise AdvisorError("kernel_families.yaml: the last entry of `kernels` must match anything")


def _of_words(pattern: str) -> re.Pattern[str]:
    """Matches whole words: ``fill`` does not match prefill, nor ``gemm`` gemma; a number may follow
    the word."""
    return re.compile(rf"(?:^|_)(?:{pattern})\d*(?=_|$)")


def _fill(value: str | bool, hit: re.Match[str]) -> str | bool:
    return value.replace("{1}", hit[1]) if isinstance(value, str) and "{1}" in value else value


@cache
def kernel_families() -> KernelFamilies:
    return KernelFamilies(_load("kernel_families.yaml", KernelFile))


# --- names of ranges -----------------------------------------------------------------------------


class StepName(NamedTuple):
    """What the text of a range says about the step that the range delimits."""

    kind: Literal["pass", "loop"]
    phase: Phase | None = None
    engine: str | None = None
    number: int | None = None
    context: int | None = None
    generation: int | None = None
    batch: int | None = None
    tokens: int | None = None
    generation_tokens: int | None = None


class StepPatterns:
    """The patterns of ``step_ranges.yaml``."""

    def __init__(self, data: StepFile) -> None:
        self._steps = [(re.compile(s.match), s) for s in data.steps]
        self._roles = [(re.compile(p), role) for role, ps in data.roles.items() for p in ps]
        self._markers = [(re.compile(p), kind) for kind, ps in data.markers.items() for p in ps]
        self._inner = [re.compile(p) for p in data.inner]
        self._containers = [re.compile(p) for p in data.containers]
        self._functions = [re.compile(p) for p in data.functions]

    def step(self, text: str) -> StepName | None:
        """The step that a range of this text delimits, or None."""
        for pattern, entry in self._steps:
            if hit := pattern.search(text):
                n = {k: int(v) for k, v in hit.groupdict().items() if v}
                phase = entry.phase
                if phase == "from_groups":
                    phase = _phase(n.get("context", 0), n.get("generation", 0))
                return StepName(entry.kind, phase, entry.engine, **n)
        return None

    def role(self, text: str) -> Role | None:
        """What a range of this text is, where it is no step: garbage collection, GIL, ..."""
        return next((role for pattern, role in self._roles if pattern.search(text)), None)

    def marker(self, text: str) -> MarkerKind | None:
        """What comes once in a pass of the model and a range of this text stands for."""
        return next((kind for pattern, kind in self._markers if pattern.search(text)), None)

    def is_inner(self, text: str) -> bool:
        """True for a range that names a layer, a block or a micro-batch: a part of a pass."""
        return any(pattern.search(text) for pattern in self._inner)

    def is_container(self, text: str) -> bool:
        """True for a range around many passes: a run, an epoch, a benchmark."""
        return any(pattern.search(text) for pattern in self._containers)

    def is_step_function(self, name: str) -> bool:
        """True for a Python function that is called once a step by its name."""
        return any(pattern.search(name) for pattern in self._functions)


def _phase(context: int, generation: int) -> Phase | None:
    if context and generation:
        return "mixed"
    return "prefill" if context else "decode" if generation else None


@cache
def step_patterns() -> StepPatterns:
    return StepPatterns(_load("step_ranges.yaml", StepFile))


# --- frames of backtraces ------------------------------------------------------------------------


FrameKind = Literal["application", "framework", "library", "below"]


class CallSitePatterns:
    """The patterns of ``call_sites.yaml``."""

    def __init__(self, data: CallSiteFile) -> None:
        self._kinds: tuple[tuple[FrameKind, Frames], ...] = (
            ("below", data.below), ("framework", data.framework),
        )  # fmt: skip
        self._operations = data.operation_ranges

    def frame(self, name: str, module: str) -> FrameKind:
        """What a frame is; `name` is the function's without arguments, empty where not resolved.

        A frame of someone's module whose function is not known is a library.
        """
        for kind, frames in self._kinds:
            if any(re.search(p, module) for p in frames.modules) or (
                name and any(re.search(p, name) for p in frames.symbols)
            ):
                return kind if name or kind == "below" else "library"
        return "application" if name else "library"

    def is_operation(self, text: str) -> bool:
        """True for a range that a library puts around every operation."""
        return any(re.search(p, text) for p in self._operations)


@cache
def call_site_patterns() -> CallSitePatterns:
    return CallSitePatterns(_load("call_sites.yaml", CallSiteFile))


# --- GPUs, serving engines, references, capture --------------------------------------------------


@cache
def gpus() -> tuple[GpuSpec, ...]:
    return tuple(_load("gpus.yaml", GpuFile).gpus)


@cache
def gpu(name: str | None) -> GpuSpec | None:
    """The GPU of this name (as ``TARGET_INFO_GPU.name`` spells it), or None."""
    return next((g for g in gpus() if any(re.search(p, name or "") for p in g.match)), None)


@cache
def engines() -> Mapping[str, EngineData]:
    """Serving engines by name; ``any`` holds the lines that suit every engine."""
    paths = sorted((data_dir("knowledge") / "engines").glob("*.yaml"))
    found = {path.stem: load(path, EngineData) for path in paths}
    for stem, data in found.items():
        if data.name != stem or (data.base is not None and data.base not in found):
            raise AdvisorError(f"engines/{stem}.yaml: name must be the file's, base must exist")
        if unknown := data.options.keys() - actions().keys():
            raise AdvisorError(f"engines/{stem}.yaml: unknown actions {sorted(unknown)}")
    return MappingProxyType(found)


@cache
def actions() -> Mapping[str, str]:
    """The action keys that recommendations and engine options share, each with its meaning."""
    return MappingProxyType(_load("actions.yaml", ActionFile).actions)


@cache
def recommendation_ids() -> frozenset[str]:
    """Every id that a recommendation of our rules has, with options of engines or without."""
    data = _load("actions.yaml", ActionFile)
    return frozenset((*data.actions, *data.advice))


@cache
def references() -> Mapping[str, Reference]:
    data = _load("references.yaml", ReferenceFile).references
    return MappingProxyType({k: Reference(id=k, title=v.title, url=v.url) for k, v in data.items()})


@cache
def capture_knowledge() -> CaptureKnowledge:
    """nsys options and traps."""
    return _load("capture.yaml", CaptureKnowledge)
