"""What kind of program a capture holds: evidence weighed by ``knowledge/workloads.yaml``.

`look` gathers what the capture shows, `judge` weighs it, `printed` adds the phase to a language
model. A capture of the shell or of the driver alone shows nothing: then it is unknown.
`trace_method` says who traced CUDA: the GPU itself, which makes no graph launch longer, or CUPTI.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from advisor.knowledge.engine_signs import Evidence, Processor, WorkloadFile, workload_knowledge
from advisor.knowledge.files import KernelFamily, capture_knowledge, step_patterns
from advisor.knowledge.kernel_names import search
from advisor.knowledge.shapes import release
from advisor.metrics import limits
from advisor.metrics.loaded.host import Ranges
from advisor.metrics.loaded.kernels import MATMUL, Names, composition, kernel_rows, sums_of
from advisor.model.arrays import Array, among
from advisor.sources.schema import Call, Summed
from advisor.sources.trace import Trace

LANGUAGE_MODEL = "language-model"
DIFFUSION = "diffusion inference"
TRAINING = "training"
UNKNOWN = "unknown"
MICRO_BENCHMARK = "micro-benchmark"
NO_KERNELS = "no GPU kernels"
#: Each step takes inputs of its own: none is computed from the result of the step before.
OF_OWN_INPUTS = frozenset(("vision or encoder inference", "recommendation inference", "LLM prefill"))
CUDA_CPP = "cuda-c++"


#: Calls that leave work on a GPU.
_ISSUING = (Call.LAUNCH, Call.GRAPH_LAUNCH, Call.COPY, Call.MEMSET)
_ACCELERATOR = re.compile(r"^(?:mtia|xpu|hpu|glow|privateuse1)_")
_ARGUMENTS = re.compile(r", (?:seq|op_id|sizes) ?=.*", re.DOTALL)
_OPERATOR = re.compile(r"^_?[a-z]\w*(?:\.\w+)*::|^autograd::|Backward\d*$|^detach_?$")


class WorkloadSigns(Struct, frozen=True):
    """Evidence found in a capture. `kernels` and `families` are shares (0..1) of the kernel time without
    communication; texts are distinct, operators without their arguments."""

    ranges: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    command: str = ""
    kernels: Mapping[str, float] = field(default_factory=dict)
    families: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)


class Judgement(Struct, frozen=True):
    """`kind` is a name of the knowledge file, or `unknown`; `confidence` is 0..1."""

    kind: str
    confidence: float
    framework: str

    @property
    def is_language_model(self) -> bool | None:
        """None if nothing shows the kind of program; a short test may be part of one."""
        if self.kind in (UNKNOWN, MICRO_BENCHMARK):
            return None
        return self.kind == LANGUAGE_MODEL

    @property
    def is_model(self) -> bool | None:
        """Whether the program trains or runs a neural network; None if unknown."""
        if self.kind == UNKNOWN:
            return False if self.framework == CUDA_CPP else None
        return self.kind in (LANGUAGE_MODEL, TRAINING) or "inference" in self.kind

    @property
    def denoises(self) -> bool:
        """Whether each step is one pass of a model over the whole picture."""
        return self.kind == DIFFUSION


def look(trace: Trace, names: Names, ranges: Ranges) -> WorkloadSigns:
    """The evidence in a capture; each distinct name is classified once."""
    written, operators = _split_texts(ranges)
    hits = list(ranges.matching(step_patterns().step).values())
    if trace.summed:
        written = tuple(sums_of(trace, Summed.RANGES).names)
        operators = tuple(n for n in sums_of(trace, Summed.WHOLE).names if n not in written)
        hits = [hit for text in written if (hit := step_patterns().step(text))]
    features = {"named_phases": float(sum(hit.phase is not None for hit in hits))}
    duration, count = kernel_rows(trace, names)
    families = composition(names.families, names.index, duration)
    families.pop("communication", None)
    kernels = {}
    if whole := sum(families.values()):
        time, launches = (np.bincount(names.index, v, len(names.ids)) for v in (duration, count))
        features |= _features(names, time, launches)
        shares = zip(names.texts, names.families, (time / whole).tolist(), strict=True)
        kernels = {text: share for text, family, share in shares if family != "communication"}
    return WorkloadSigns(
        ranges=written,
        operators=operators,
        modules=trace.capture.modules,
        command=" ".join(trace.capture.command),
        kernels=kernels,
        families={family: time / whole for family, time in families.items()} if whole else {},
        features=features,
    )


def _split_texts(ranges: Ranges) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ranges written by people, one of each kind, and operators. `emit_nvtx` writes operators as ordinary
    ranges, with their arguments behind a comma."""
    written: dict[str, None] = {}
    operators: dict[str, None] = {}
    by_profiler = ranges.by_profiler
    for i in np.unique(ranges.kinds[1], return_index=True)[1].tolist():
        text = ranges.texts[i]
        plain = _ARGUMENTS.sub("", text)
        operator = by_profiler[i] or plain != text or _OPERATOR.search(text)
        (operators if operator else written)[plain] = None
    return tuple(written), tuple(operators)


def ran_on(trace: Trace, ranges: Ranges) -> tuple[Processor | None, str]:
    """What ran a program without recorded GPU work, and how that shows, in words; None if nothing tells.

    Some operators have an implementation for one kind of device only, and work on a GPU needs memory of
    that GPU. Where CUDA was traced, a program that used it has calls that issue work.
    """
    capture = trace.capture
    written, operators = _split_texts(ranges)
    only = {
        kind: next((o for o in operators if search(text, o)), None)
        for kind, text in workload_knowledge().processors.items()
    }
    foreign = next((s for s in capture.trace_sources if _ACCELERATOR.match(s)), None) or only["accelerator"]
    if foreign:
        return "accelerator", f"the program ran on an accelerator without CUDA or ROCm, which has {foreign}"
    if only["gpu"] or "gpu" in capture.memory_of:
        sign = only["gpu"] or "memory of a GPU was allocated"
        return "gpu", f"the program used a GPU ({sign}), and its work there was not recorded"
    calls = trace.columns("api_calls", ("call",))["call"]
    active = trace.columns("samples", ("gr_active", "sm_active")).values()
    at_work = any(bool((each >= limits.recording.ACTIVE_RATIO).any()) for each in active)
    ran = capture.cuda_traced and bool(written or operators or trace.has("host_calls")) and not at_work
    signs = {
        f"{only['cpu']} has an implementation for CPUs only": only["cpu"],
        "operators allocated memory of the CPU alone": capture.memory_of,
        "the profiler found no GPU": capture.gpus_listed == 0,
        f"none of {len(calls):,} CUDA calls issues work": len(calls) and not among(calls, _ISSUING).any(),
        "CUDA was traced, and the recorded processes did not call it": ran and not len(calls),
    }
    if shown := "; ".join(text for text, found in signs.items() if found):
        return "cpu", f"the program ran on the CPU ({shown})"
    if at_work:
        return (
            None,
            "samples show a GPU at work: that of this program was not recorded, or another one used it",
        )
    first = "" if capture.cuda_traced else "CUDA was perhaps not traced, "
    return None, (
        f"{first}another process (a worker, a server) has the work, it ran before or after the recording, "
        "or the program ran on the CPU"
    )


def _features(names: Names, time: Array, launches: Array) -> dict[str, float]:
    """Numbers about kernels for evidence of kind `structure`, from time and launches of each name."""

    def held(wanted: Callable[[KernelFamily], bool]) -> float:
        return float(time[names.mask(wanted)].sum())

    own = names.mask(lambda k: k.family != "communication")
    matmul = held(lambda k: k.family in MATMUL)
    few = held(lambda k: k.family == "gemv" or k.traits.get("skinny") is True)
    return {
        "names": float(own.sum()),
        "launches": float(launches[np.argmax(np.where(own, time, -1))]),
        "few_tokens": few / matmul if matmul else 0.0,
        "decode_attention": held(lambda k: k.family == "attention" and k.phase == "decode")
        / held(lambda k: k.family != "communication"),
    }


def framework(signs: WorkloadSigns, known: WorkloadFile) -> str:
    """The framework that launched the kernels; a group of kernels without signs of one is CUDA C++."""
    texts = (*signs.ranges, *signs.operators)
    for candidate in known.frameworks:
        if candidate.kernels.among(tuple(signs.kernels)) or candidate.ranges.among(texts):
            return candidate.name
    return CUDA_CPP if signs.kernels else UNKNOWN


def judge(signs: WorkloadSigns, known: WorkloadFile) -> Judgement:
    """The workload with most evidence, `unknown` if there is too little of it.

    The confidence grows with the evidence, with its margin over the next workload and with the number of
    kinds of evidence that agree.
    """
    made_by = framework(signs, known)
    features = {"framework": float(made_by not in (CUDA_CPP, UNKNOWN)), **signs.features}
    signs = replace(signs, features=features)
    found = {w.name: [e for e in w.evidence if _is_shown(e, signs)] for w in known.workloads}
    score = {name: sum(e.weight for e in evidence) for name, evidence in found.items()}
    order = sorted(score, key=lambda name: -score[name])  # stable: ties as in the file
    best = next(
        (w.name for w in known.workloads if w.contains_others and score[w.name] >= known.decisive), order[0]
    )
    if score[best] < known.least:
        return Judgement(UNKNOWN, 0.0, made_by)
    rival = max((score[n] for n in order if n != best), default=0.0)
    margin = 1 - limits.kernels.RIVAL_RATIO * min(max(rival, 0.0) / score[best], 1.0)
    kinds = len({e.kind for e in found[best] if e.weight > 0})
    sure = score[best] / (score[best] + known.least)
    one, most = limits.kernels.ONE_KIND_RATIO, limits.kernels.EVIDENCE_KINDS
    agreed = one + (1 - one) * min(kinds - 1, most - 1) / (most - 1)
    return Judgement(best, round(sure * margin * agreed, 2), made_by)


def _is_shown(e: Evidence, signs: WorkloadSigns) -> bool:
    if e.kind == "structure":
        limits = ((signs.features.get(name, math.nan), *ends) for name, ends in e.where.items())
        return all(
            not math.isnan(v) and (lo is None or v >= lo) and (hi is None or v <= hi) for v, lo, hi in limits
        )
    if e.kind == "families":
        share = sum(signs.families.get(name, 0.0) for name in e.families)
        return share > 0 and share >= e.share
    match = e.match
    assert match is not None
    if e.kind == "kernels":
        share = sum(signs.kernels[name] for name in match.among(tuple(signs.kernels)))
        return share > 0 and share >= e.share
    if e.kind == "command":
        return bool(signs.command) and match.found(signs.command)
    texts = {"ranges": signs.ranges, "operators": signs.operators, "modules": signs.modules}[e.kind]
    return bool(match.among(texts))


def printed(judgement: Judgement, phases: Sequence[str], time: Array) -> str:
    """The workload as printed: for a language model with phases, by the time (ns) of each step's phase."""
    if not judgement.is_language_model:
        return judgement.kind
    phase = np.array(phases, dtype=str)
    whole = float(time[phase != UNKNOWN].sum())
    for one in ("decode", "prefill"):
        if whole and float(time[phase == one].sum()) >= limits.kernels.ONE_PHASE_RATIO * whole:
            return f"LLM {one}"
    return "LLM serving"


TraceMethod = Literal["hardware", "software", "not-told"]


def trace_method(trace: Trace) -> TraceMethod | None:
    """The method named in the diagnostics; software if the options, the release or the GPU leave no other,
    not-told if both are possible, and None if another tool than nsys recorded the capture."""
    capture, known = trace.capture, capture_knowledge().hardware_trace
    if not capture.recorder.nsys_options:
        return None
    diagnostics = trace.texts(trace.columns("diagnostics", ("text_id",))["text_id"].tolist())
    if any(map(known.announced, diagnostics)):
        return "hardware"
    majors = [d.compute_capability[0] for d in trace.devices if d.compute_capability]
    recorded, first = release(capture.producer_version), release(known.since)
    older = recorded is not None and first is not None and recorded < first
    forbidden = known.forbidden_by in {source.lower() for source in capture.trace_sources}
    if older or forbidden or (majors and max(majors) < known.compute_capability):
        return "software"
    return "not-told"
