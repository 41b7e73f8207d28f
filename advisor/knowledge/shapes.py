"""Shapes of the files in `knowledge/`: no unknown key, every pattern compiles, units plausible."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import field

from advisor.knowledge.kernel_names import Patterns
from advisor.model.file_content import Constraint, FileContent
from advisor.model.gain import Option
from advisor.model.rules import FactCondition
from advisor.numerals import read_int

Family = Literal[
    "gemm",
    "gemv",
    "attention",
    "norm",
    "elementwise",
    "reduction",
    "activation",
    "rope",
    "embedding",
    "kv_cache",
    "sampling",
    "moe",
    "quantise",
    "communication",
    "copy",
    "memset",
    "index",
    "softmax",
    "scan_sort",
    "optimizer",
    "conv",
    "speculation",
    "other",
]
KernelSource = Literal[
    "flashinfer", "vllm", "sglang", "tensorrt-llm", "pytorch-eager", "inductor/triton", "native"
]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"]
Phase = Literal["prefill", "decode", "mixed"]
Role = Literal[
    "gc", "gil_wait", "gil_hold", "preparation", "data_loading", "sampling", "startup", "waiting", "encoder"
]
Transfer = Literal["fetch", "send", "complete", "receiving", "sending"]
MarkerKind = Literal["embedding", "sampling", "loss", "optimizer"]


def _compiles(text: str) -> str:
    try:
        re.compile(text)
    except re.error as fault:
        raise ValueError(f"bad pattern {text!r}: {fault}") from fault
    return text


def _all_compile(patterns: Patterns) -> Patterns:
    for text in patterns.texts:
        _compiles(text)
    return patterns


#: A regular expression.
Pattern = Annotated[str, Constraint(check=_compiles)]
#: A pattern or a list of them, as they are searched for.
Searched = Annotated[Patterns, Constraint(check=_all_compile)]
Text = Annotated[str, Constraint(min_length=1)]
Key = Annotated[str, Constraint(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Name = Annotated[str, Constraint(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")]


class Data(FileContent, frozen=True, kw_only=True):
    """The content of a file of `knowledge/`."""


class File(Data, frozen=True, kw_only=True):
    schema_: Literal[1] = field(name="schema")


# --- kernel_families.yaml ------------------------------------------------------------------------


class KernelEntry(Data, frozen=True, kw_only=True):
    match: tuple[Pattern, ...] = ()
    words: tuple[Pattern, ...] = ()
    family: Family
    operation: Text
    phase: Phase | None = None
    engine: KernelSource | None = None


class NamelessEntry(Data, frozen=True, kw_only=True):
    """Limits of the resources of a launch: registers a thread, bytes of shared memory a block, ns."""

    match: Pattern
    min_registers: int = 0
    max_registers: int = 1 << 31
    min_shared_bytes: int = 0
    max_shared_bytes: int = 1 << 31
    min_median_ns: int = 0
    max_median_ns: int = 1 << 62
    family: Family
    operation: Text

    def holds(self, registers: int, shared_bytes: int, median_ns: float) -> bool:
        return (
            self.min_registers <= registers <= self.max_registers
            and self.min_shared_bytes <= shared_bytes <= self.max_shared_bytes
            and self.min_median_ns <= median_ns <= self.max_median_ns
        )


class Traits(Data, frozen=True, kw_only=True):
    arch: Annotated[str, Constraint(pattern=r"^sm(\d+|\{1\})$")] | None = None
    precision: Precision | None = None
    simt_fp32: Literal[True] | None = None
    skinny: Literal[True] | None = None
    row_blocks: Literal[True] | None = None
    quantised: Literal[True] | None = None
    integer: Literal[True] | None = None
    widens: Literal[True] | None = None
    log_softmax: Literal[True] | None = None
    scales_and_adds: Literal[True] | None = None
    combines: Literal[True] | None = None
    splits: Literal[True] | None = None
    convolves: Literal["direct", "unfolded"] | None = None


class TraitEntry(Data, frozen=True, kw_only=True):
    match: Pattern
    set: Traits


class KernelFile(File, frozen=True, kw_only=True):
    fusions: dict[Text, dict[Literal["apart", "fused"], list[Pattern]]]
    carriers: list[Pattern]
    frameworks: list[Pattern]
    nameless: list[NamelessEntry]
    kernels: Annotated[list[KernelEntry], Constraint(min_length=1)]
    traits: list[TraitEntry]


# --- step_ranges.yaml ----------------------------------------------------------------------------


class StepEntry(Data, frozen=True, kw_only=True):
    match: Pattern
    kind: Literal["pass", "loop"]
    phase: Phase | Literal["from_groups"] | None = None
    engine: Text | None = None


class StepFile(File, frozen=True, kw_only=True):
    steps: Annotated[list[StepEntry], Constraint(min_length=1)]
    roles: dict[Role, list[Pattern]]
    speculation: dict[Literal["draft", "verify", "forward"], list[Pattern]]
    transfers: dict[Transfer, list[Pattern]]
    markers: dict[MarkerKind, list[Pattern]]
    inner: list[Pattern]
    containers: list[Pattern]
    functions: list[Pattern]


# --- call_sites.yaml -----------------------------------------------------------------------------


FrameKind = Literal["application", "framework", "library", "below"]


class Frames(Data, frozen=True, kw_only=True):
    """Frames of a backtrace, by patterns of the module's path and of the symbol."""

    modules: Searched
    symbols: Searched


class CallSiteFile(File, frozen=True, kw_only=True):
    """`is_operation` is true for a range that a library puts around every operation."""

    below: Frames
    framework: Frames
    is_operation: Searched = field(name="operation_ranges")

    def frame(self, name: str, module: str) -> FrameKind:
        """What a frame is; `name` is the function's without arguments, empty if not resolved.

        A frame of someone's module whose function is unknown is a library."""
        kinds: tuple[tuple[FrameKind, Frames], ...] = (("below", self.below), ("framework", self.framework))
        for kind, frames in kinds:
            if frames.modules.found(module) or (name and frames.symbols.found(name)):
                return kind if name or kind == "below" else "library"
        return "application" if name else "library"


# --- engines/*.yaml, actions.yaml ----------------------------------------------------------------


class Sign(Data, frozen=True, kw_only=True):
    """Evidence of an engine in a capture, with its weight."""

    match: Searched
    weight: Annotated[float, Constraint(gt=0, le=20)]


class Recognise(Data, frozen=True, kw_only=True):
    kernels: list[Sign] = field(default_factory=list)
    ranges: list[Sign] = field(default_factory=list)
    commands: list[Sign] = field(default_factory=list)
    image: Pattern | None = None  # a container whose name contains the release, as its group


def release(text: str | None) -> tuple[int, ...] | None:
    """``0.5.20`` as numbers that compare; None for anything but a release, such as ``CUDA 11.8``."""
    found = re.match(r"\d{1,18}(?:\.\d{1,18})*", text or "")
    return tuple(read_int(n) or 0 for n in found[0].split(".")) if found else None


def up_to(version: tuple[int, ...], last: str | None) -> bool:
    """Whether a release is `last`, a patch of it (0.12.1 of 0.12) or an earlier one."""
    numbers = release(last)
    return numbers is None or version[: len(numbers)] <= numbers


class OptionLine(Data, frozen=True, kw_only=True):
    """`since` is the first release that accepts the line, `before` its spelling in earlier ones, `until` the
    last. `language_model`: only for language models, or only for other programs. `processor`: only where the
    model runs on it. `in_use`: found in the kernel names of a capture that already does what the line
    switches on."""

    line: Text
    since: Text | None = None
    until: Text | None = None
    before: Text | None = None
    note: Text | None = None
    language_model: bool | None = None
    processor: Literal["gpu", "cpu"] | None = None
    in_use: Pattern | None = None

    def option(self, engine: str, version: str | None = None) -> Option | None:
        """The line as `version` of the engine accepts it, or None if it does not; as current releases
        accept it if `version` is None, with an older spelling in the note."""
        line, since, notes = self.line, self.since, [self.note]
        used, first = release(version), release(since)
        if used is None:
            if self.until is not None:
                return None
            if self.before is not None:
                notes.append(f"before {since}: {self.before}")
        else:
            if not up_to(used, self.until):
                return None
            if first is not None and used < first:
                if self.before is None:
                    return None
                line, since = self.before, None
        note = "; ".join(n for n in notes if n)
        return Option(engine=engine, line=f"{line}  # {note}" if note else line, since=since)


class CaptureVariable(Data, frozen=True, kw_only=True):
    """An environment variable of the engine for a capture; `supplies` says what it adds, `since` is the
    first release that knows it, `until` the last."""

    variable: Annotated[str, Constraint(pattern=r"^[A-Z][A-Z0-9_]*$")]
    value: Text
    effect: Text
    since: Text | None = None
    until: Text | None = None
    supplies: list[Literal["gc", "ranges", "preparation", "capture-range", "children", "profiler"]] = field(
        default_factory=list
    )

    @property
    def setting(self) -> str:
        """``NAME=value``, as it stands before a command."""
        return f"{self.variable}={self.value}"

    def known_in(self, version: str | None) -> bool:
        """Whether this release accepts it; the newest one if `version` is None."""
        used = release(version)
        if used is None:
            return self.until is None
        return (release(self.since) or ()) <= used and up_to(used, self.until)


class EngineData(File, frozen=True, kw_only=True):
    """One serving engine: how to recognise it, and the options that carry out an action in it. `sides`
    are found in the command line of a server that only reads prompts, or only decodes; the first group of
    `batch_limit` is the most sequences that the command lets a rank run at once. `reserves_memory` is set if
    it takes a set share of the device memory when it starts."""

    name: Key
    title: Text
    base: Key | None = None
    inherit_options: bool = False
    recognise: Recognise = field(default_factory=Recognise)
    sides: dict[Literal["prefill", "decode"], Pattern] = field(default_factory=dict)
    batch_limit: Pattern | None = None
    reserves_memory: bool = False
    options: dict[Key, Annotated[list[OptionLine], Constraint(min_length=1, max_length=4)]]
    traits: dict[str, Text] = field(default_factory=dict)
    capture: list[CaptureVariable] = field(default_factory=list)


class ActionFile(File, frozen=True, kw_only=True):
    """`actions` have options of engines, `advice` is for a person alone, each as a sentence; `titles` are
    a few words for tables. An action is not advised where one of its conditions in `unless` holds."""

    actions: dict[Key, Text]
    advice: dict[Key, Text]
    unless: dict[Key, Annotated[tuple[FactCondition, ...], Constraint(min_length=1)]] = field(
        default_factory=dict
    )
    titles: dict[Key, Annotated[str, Constraint(max_length=34)]] = field(default_factory=dict)


# --- references.yaml, capture.yaml ---------------------------------------------------------------


class Source(Data, frozen=True, kw_only=True):
    title: Text
    url: Annotated[str, Constraint(pattern=r"^https://\S+$")] | None = None


class ReferenceFile(File, frozen=True, kw_only=True):
    references: dict[Annotated[str, Constraint(pattern=r"^[a-z0-9.-]+$")], Source]


class EvidenceFile(File, frozen=True, kw_only=True):
    """What benchmarks/evidence.py saw of the rules that name a capture or a scene: by its name, the codes
    of those that fire there, each with the parameters that let it, and of those that are quiet."""

    fires: dict[Text, dict[Text, tuple[Text, ...]]]
    quiet: dict[Text, tuple[Text, ...]]


class NsysRuleFile(File, frozen=True, kw_only=True):
    causes: Annotated[
        dict[Annotated[str, Constraint(pattern=r"^[a-z0-9_]+$")], Key], Constraint(min_length=1)
    ]


Release = Annotated[str, Constraint(pattern=r"^\d+\.\d+$")]


class Spelling(Data, frozen=True, kw_only=True):
    """How releases before `before` spell an option."""

    before: Release
    as_: Annotated[str, Constraint(pattern=r"^--?[a-z]")] = field(name="as")


class Flag(Data, frozen=True, kw_only=True):
    """One nsys option: the tables it supplies and what it costs."""

    flag: Annotated[str, Constraint(pattern=r"^--?[a-z]")]
    supplies: list[Text]
    cost: Annotated[int, Constraint(ge=0, le=3)]
    mends: list[Key] = field(default_factory=list)
    overhead: Text
    note: Text
    since: Release | None = None
    spelled: Spelling | None = None


class Pitfall(Data, frozen=True, kw_only=True):
    id: Key
    text: Text
    source: Key
    applies: list[Text] = field(default_factory=list)


class ReleaseEntry(Data, frozen=True, kw_only=True):
    """The first release of nsys made for a CUDA major version."""

    cuda: Annotated[int, Constraint(ge=11, le=30)]
    nsys: Release


class Refusal(Data, frozen=True, kw_only=True):
    """A reason for missing CUDA events: the tool's wording (`pattern`), and plain words."""

    id: Key
    pattern: Text
    says: Text
    source: Key


class HardwareTrace(Data, frozen=True, kw_only=True):
    """CUDA traced by the GPU itself: how the diagnostics say so, the trace source that forbids it,
    and the first compute capability and nsys release for which it is the default."""

    announced: Searched
    forbidden_by: Text
    compute_capability: int
    since: Release
    source: Key


class CudaError(Data, frozen=True, kw_only=True):
    """What a call returned: the runtime's name, plain words, and the kind of error."""

    name: Text
    kind: Key
    says: Text


class CaptureKnowledge(File, frozen=True, kw_only=True):
    flags: Annotated[list[Flag], Constraint(min_length=1)]
    hardware_trace: HardwareTrace
    pitfalls: list[Pitfall]
    releases: list[ReleaseEntry] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    errors: dict[int, CudaError] = field(default_factory=dict)
