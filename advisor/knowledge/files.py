"""Loader of `knowledge/`: expert knowledge as validated data.

Everything is read once, on first use; a faulty file is one clear error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict

from advisor.errors import AdvisorError
from advisor.knowledge.kernel_names import Patterns, function_name, words
from advisor.knowledge.package_data import data_dir, plain
from advisor.knowledge.shapes import (
    CallSiteFile,
    CaptureKnowledge,
    Data,
    EvidenceFile,
    Family,
    KernelEntry,
    KernelFile,
    KernelSource,
    NsysRuleFile,
    Phase,
    ReferenceFile,
    StepFile,
)
from advisor.model.findings import Finding, Reference, Threshold
from advisor.numerals import read_int

_T = TypeVar("_T", bound=Data)
_R = TypeVar("_R")


# --- files ---------------------------------------------------------------------------------------


def shipped(name: str, content: type[_T]) -> _T:
    """One of our own knowledge files, which tests have checked."""
    try:
        return content.from_data(plain("knowledge", name))
    except msgspec.ValidationError as fault:
        raise AdvisorError(f"{data_dir('knowledge') / name}: {fault}") from fault


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
        """The SM architecture contained in the name (75, 80, 90, 100, ...)."""
        arch = self.traits.get("arch")
        return int(arch[2:]) if isinstance(arch, str) else None


#: Around patterns of whole words (``fill`` is not in prefill, ``gemm`` not in gemma); a number may follow.
_WHOLE_WORDS = r"(?:^|_)(?:{})\d*(?=_|$)"
#: The number at the end of a name, as a word of its own.
_NUMBER = re.compile(r"_\d+$")


class KernelFamilies:
    """The ordered patterns of ``kernel_families.yaml``; answers are remembered by name."""

    def __init__(self, data: KernelFile) -> None:
        self._entries = data.kernels
        #: The entry of each pattern; those of `words` come after those of `match` in an entry.
        self._of_text = [i for i, e in enumerate(data.kernels) for _ in e.match]
        self._of_words = [i for i, e in enumerate(data.kernels) for _ in e.words]
        self._texts = Patterns(p for e in data.kernels for p in e.match)
        self._words = Patterns((p for e in data.kernels for p in e.words), _WHOLE_WORDS)
        self._carriers = Patterns(data.carriers)
        self.fusions = data.fusions
        self._nameless = data.nameless
        #: True for a name that kernels of all kinds share.
        self.is_nameless = Patterns(n.match for n in data.nameless)
        self._frameworks = Patterns(data.frameworks)
        self._traits = [{k: v for k, v in asdict(t.set).items() if v is not None} for t in data.traits]
        self._trait_names = Patterns(t.match for t in data.traits)
        self._known: dict[str, KernelFamily] = {}

    def classify(self, names: Sequence[str]) -> list[KernelFamily]:
        """One answer for each full (demangled) kernel name, in the order of `names`."""
        return [self._known.get(name) or self._classify(name) for name in names]

    def by_launch(self, name: str, registers: int, shared_bytes: int, median_ns: float) -> KernelFamily:
        """What a kernel of a shared name is, by its launch: registers a thread, shared bytes a block."""
        known = self.classify([name])[0]
        for i, _ in self.is_nameless.all(name):
            entry = self._nameless[i]
            if entry.holds(registers, shared_bytes, median_ns):
                return known._replace(family=entry.family, operation=entry.operation)
        return known

    def _classify(self, name: str) -> KernelFamily:
        # Compilers number thousands of kernels (triton_poi_fused_add_7); the number means nothing.
        numbered = _NUMBER.sub("_0", name)
        answer = self._known.get(numbered) or self._judged(numbered)
        self._known[numbered] = self._known[name] = answer
        return answer

    def _judged(self, name: str) -> KernelFamily:
        known = function_name(name)
        carrier = self._carriers.found(known.own)
        text = known.full if carrier else known.own
        arguments = f" {known.arguments}" if carrier else ""
        entry, hit = self._find(text, words(known.function + arguments))
        if entry is self._entries[-1]:
            entry, hit = self._find(text, words(known.own))  # namespaces are less informative than the name
        traits: dict[str, str | bool] = {}
        for i, found in self._trait_names.all(known.full):
            for key, value in self._traits[i].items():
                traits.setdefault(key, _fill(value, found))
        return KernelFamily(
            entry.family,
            str(_fill(entry.operation, hit)),
            entry.phase,
            entry.engine,
            MappingProxyType(traits),
            self._frameworks.found(known.full),
        )

    def _find(self, text: str, in_words: str) -> tuple[KernelEntry, re.Match[str]]:
        """The first entry with a matching pattern; the last one matches anything."""
        hits = (self._of_text, self._texts.first(text)), (self._of_words, self._words.first(in_words))
        found = [(entries[hit[0]], hit[1]) for entries, hit in hits if hit is not None]
        if not found:
            raise AdvisorError("kernel_families.yaml: the last entry of `kernels` must match anything")
        at, match = min(found, key=lambda one: one[0])  # `match` goes before `words`
        return self._entries[at], match


def _fill(value: str | bool, hit: re.Match[str]) -> str | bool:
    return value.replace("{1}", hit[1]) if isinstance(value, str) and "{1}" in value else value


@cache
def kernel_families() -> KernelFamilies:
    return KernelFamilies(shipped("kernel_families.yaml", KernelFile))


# --- names of ranges -----------------------------------------------------------------------------


class StepName(NamedTuple):
    """The step described by the text of the range that delimits it."""

    kind: Literal["pass", "loop"]
    phase: Phase | None = None
    engine: str | None = None
    number: int | None = None
    context: int | None = None
    generation: int | None = None
    batch: int | None = None
    tokens: int | None = None
    generation_tokens: int | None = None


class NamedPatterns(Generic[_R]):
    """Patterns under names; a text belongs to the name of the first of all patterns that it matches."""

    def __init__(self, patterns: Mapping[_R, Sequence[str]]) -> None:
        self._names = [name for name, texts in patterns.items() for _ in texts]
        self._patterns = Patterns(text for texts in patterns.values() for text in texts)

    def __call__(self, text: str) -> _R | None:
        found = self._patterns.first(text)
        return None if found is None else self._names[found[0]]


class StepPatterns:
    """The patterns of ``step_ranges.yaml``."""

    def __init__(self, data: StepFile) -> None:
        self._steps, self._step_texts = data.steps, Patterns(s.match for s in data.steps)
        # Each takes the text of a range (or the name of a function):
        #: what it is if it does not mark a step: garbage collection, GIL, ...
        self.role = NamedPatterns(data.roles)
        #: The part of speculative decoding that it is around: draft or verify.
        self.speculation = NamedPatterns(data.speculation)
        #: What a range or mark shows about a transfer of the KV cache.
        self.transfer = NamedPatterns(data.transfers)
        #: What occurs once in a pass of the model and marks it.
        self.marker = NamedPatterns(data.markers)
        #: True if it names a layer, a block or a micro-batch: a part of a pass.
        self.is_inner = Patterns(data.inner)
        #: True for a range around many passes: a run, an epoch, a benchmark.
        self.is_container = Patterns(data.containers)
        #: True for a Python function that is called once a step by its name.
        self.is_step_function = Patterns(data.functions)

    def step(self, text: str) -> StepName | None:
        """The step that a range of this text delimits, or None."""
        found = self._step_texts.first(text)
        if found is None:
            return None
        entry = self._steps[found[0]]
        n = {k: number for k, v in found[1].groupdict().items() if (number := read_int(v)) is not None}
        phase = entry.phase
        if phase == "from_groups":
            phase = _phase(n.get("context", 0), n.get("generation", 0))
        return StepName(entry.kind, phase, entry.engine, **n)


def _phase(context: int, generation: int) -> Phase | None:
    if context and generation:
        return "mixed"
    return "prefill" if context else "decode" if generation else None


@cache
def step_patterns() -> StepPatterns:
    return StepPatterns(shipped("step_ranges.yaml", StepFile))


# --- call sites, references, capture --------------------------------------------------------------


@cache
def call_site_patterns() -> CallSiteFile:
    return shipped("call_sites.yaml", CallSiteFile)


@cache
def references() -> Mapping[str, Reference]:
    data = shipped("references.yaml", ReferenceFile).references
    return MappingProxyType({k: Reference(id=k, title=v.title, url=v.url) for k, v in data.items()})


@cache
def evidence() -> EvidenceFile:
    """In which captures and scenes the rules fire that name them."""
    return shipped("evidence.yaml", EvidenceFile)


def titled(finding: Finding) -> Finding:
    """The finding with the titles and addresses of its references."""
    return finding.replaced(references=tuple(references().get(r.id, r) for r in finding.references))


def with_sources(thresholds: Iterable[Threshold]) -> tuple[Threshold, ...]:
    """The thresholds with the titles of their sources; a section of the calibration has its address."""
    return tuple(map(_with_source, thresholds))


@cache  # a program has a few hundred, the same for each capture
def _with_source(threshold: Threshold) -> Threshold:
    if threshold.source is None:
        return threshold
    known = references().get(threshold.source)
    address = threshold.source.replace("calibration#", "knowledge/calibration.md#")
    return threshold.replaced(title=known.title if known else address)


@cache
def capture_knowledge() -> CaptureKnowledge:
    """nsys options and traps."""
    return shipped("capture.yaml", CaptureKnowledge)


@cache
def nsys_rules() -> Mapping[str, str]:
    """Names of rules of `nsys analyze` and recipes of `nsys recipe` -> the cause that answers the same."""
    return MappingProxyType(shipped("nsys_rules.yaml", NsysRuleFile).causes)
