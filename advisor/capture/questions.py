"""The questions that people ask of a capture, and whether this one answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from advisor.engine.text import percent
from advisor.facts.needs import LOSSLESS, NODES, OWNER
from advisor.model.checkup import Answer, Question
from advisor.model.facts import FactBase

_SAMPLES = "--gpu-metrics-devices=all"
_FASTER = f"{_SAMPLES} --gpu-metrics-frequency=100000"
_CUDA = "--trace=cuda,nvtx"
#: Kernels of this share of the busy time must be resolved by the samples for a whole answer.
RESOLVED = 0.5
#: From this share of hidden graph launches or lost events on an answer is no whole one.
SOME = 0.01
LOST = 0.05

_Reply = tuple[Answer, str, str | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the answers rest on."""

    facts: FactBase
    tables: frozenset[str]
    step_method: str | None = None
    phases: tuple[str, ...] = ()
    world_size: int | None = None
    backtraces: bool = False
    no_gpu_work: bool = False  # CUDA was traced, and the process never used the GPU

    def number(self, name: str) -> float | None:
        """A fact of the whole trace, else the largest over the scopes that have it."""
        values = [
            float(f.value)
            for (n, _), f in self.facts.facts.items()
            if n == name and isinstance(f.value, int | float)
        ]
        return max(values, default=None)

    def has(self, *names: str) -> bool:
        return any(n in names for n, _ in self.facts.facts)

    @property
    def kernels(self) -> bool:
        return "kernels" in self.tables

    @property
    def hidden(self) -> float:
        return self.number("capture.opaque_graph_ratio") or 0.0

    @property
    def kernel_flag(self) -> str:
        """What would record the kernels."""
        return NODES if self.hidden >= SOME else self.cuda_flag

    @property
    def cuda_flag(self) -> str:
        """What would record CUDA at work."""
        if self.number("capture.lost_kernel_ratio") == 1.0:
            return LOSSLESS
        return OWNER if self.no_gpu_work else _CUDA

    @property
    def damaged(self) -> bool:
        lost = ("capture.damaged_ratio", "capture.lost_row_ratio")
        invalid = self.number("capture.invalid_row_ratio") or 0.0
        return any((self.number(name) or 0.0) >= LOST for name in lost) or invalid > SOME


def questions(seen: Seen) -> Iterator[Question]:
    """Every question with its answer, in the order in which people ask them."""
    for key, text, answer in _QUESTIONS:
        reply, reason, remedy = answer(seen)
        yield Question(id=key, question=text, answer=reply, reason=reason, remedy=remedy)


def _kernel_breakdown(seen: Seen) -> _Reply:
    if not seen.kernels and seen.hidden >= SOME:
        return "no", "the kernels are hidden inside CUDA graphs", NODES
    if not seen.kernels:
        return "no", "no kernel was recorded", seen.cuda_flag
    count = f"{seen.number('capture.kernel_count') or 0:,.0f} kernels were recorded"
    if seen.hidden >= SOME:
        return (
            "partly",
            f"{count}, but {percent(seen.hidden)} of the graph launches hide theirs",
            NODES,
        )
    if seen.damaged:
        return "partly", f"{count}, but the capture is damaged", None
    return "yes", count, None


def _host_overhead(seen: Seen) -> _Reply:
    if "api_calls" not in seen.tables:
        return "no", "no CUDA call was recorded", seen.cuda_flag
    if seen.damaged:
        return "partly", "the capture is damaged", None
    cost = seen.number("capture.traced_call_cost_ratio") or 0.0
    if cost >= 0.10:
        return "partly", f"tracing itself costs at least {percent(cost)} of the window", None
    return "yes", "every CUDA call of the host has its time", None


def _idle(seen: Seen) -> _Reply:
    if seen.hidden >= SOME:
        return "no", "a graph run whose kernels are hidden looks like idle time", NODES
    if not seen.has("budget.idle_ratio"):
        return "no", "no GPU work was recorded", seen.cuda_flag
    if "api_calls" not in seen.tables:
        return "partly", "idle time is known, the calls that end it are not", _CUDA
    if seen.damaged:
        return "partly", "what looks idle may be damage of the capture", None
    unknown = seen.number("budget.unknown_ratio") or 0.0
    if unknown >= 0.05:
        return "partly", f"{percent(unknown)} of the window is idle that no call explains", None
    return "yes", "each gap is joined to the call that ends it", None


def _bandwidth(seen: Seen) -> _Reply:
    if "samples" not in seen.tables:
        if seen.has("bandwidth.weights_ratio"):
            return "partly", "from the size of the weights alone", _SAMPLES
        return "no", "no GPU metrics were sampled", _SAMPLES
    resolved = seen.number("activity.resolved_ratio")
    if resolved is not None and resolved >= RESOLVED:
        return "yes", f"the samples resolve {percent(resolved)} of the busy time", None
    if not seen.kernels:
        return "partly", "the mean over the window is known, the kernels are not", seen.kernel_flag
    return "partly", "the mean is known; the samples do not resolve the kernels", _FASTER


def _tails(seen: Seen) -> _Reply:
    calls, steps = seen.has("operation.max_over_p50"), seen.has("host.step_max_over_median")
    longer = "a longer capture (10 to 50 steps)"
    if calls and steps:
        return "yes", "calls and steps repeat often enough", None
    if calls:
        return "partly", "of calls, yes; of steps there are too few", longer
    if not seen.kernels:
        return "no", "no kernel was recorded", seen.kernel_flag
    if steps:
        return "partly", "of steps, yes; of calls too few are alike", longer
    return "no", "nothing repeats often enough", longer


def _python(seen: Seen) -> _Reply:
    gil, gc = seen.has("host.gil_wait_ratio"), seen.has("host.gc_idle_ratio")
    if gil and gc:
        return "yes", "GIL and garbage collection have ranges", None
    if gil:
        return "partly", "the GIL, yes; collections only show as host code", None
    if gc:
        return "partly", "collections, yes; waiting for the GIL was not traced", (
            "--trace=cuda,nvtx,python-gil"
        )  # fmt: skip
    return "no", "neither was traced", "--trace=cuda,nvtx,python-gil"


def _memory(seen: Seen) -> _Reply:
    if seen.has("memory.growth_ratio") and seen.has("memory.used_ratio"):
        return "yes", "growth and level of device memory are known", None
    if seen.has("memory.growth_ratio"):
        return "partly", "growth, yes; the level at the start is not known", None
    if seen.has("memory.used_ratio"):
        return "partly", "the level, yes; single allocations are not", "--cuda-memory-usage=true"
    if "allocations" in seen.tables:
        return "partly", "allocations are there, too few steps to see growth", None
    return "no", "no allocation was recorded", "--cuda-memory-usage=true"


def _communication(seen: Seen) -> _Reply:
    share = seen.number("budget.communication_ratio")
    if share is None:
        return "no", "no kernel was recorded", seen.kernel_flag
    if (seen.world_size or 1) > 1:
        return (
            "partly",
            (f"one rank of {seen.world_size}: what is transfer and what is waiting needs all"),
            "the captures of all ranks",
        )
    if share == 0.0:
        return "yes", "no collective is exposed here", None
    return "partly", "how long collectives are exposed, not which rank they wait for", (
        "the captures of all ranks"
    )  # fmt: skip


def _phases(seen: Seen) -> _Reply:
    told = tuple(p for p in seen.phases if p in ("prefill", "decode", "mixed"))
    if not seen.number("capture.step_count"):
        return "no", "no step structure was found", (
            "an NVTX range around each step" if "ranges" in seen.tables else seen.cuda_flag
        )  # fmt: skip
    if not told:
        return "partly", "steps were found, not what they do", "an NVTX range around each step"
    if seen.step_method == "ranges":
        return "yes", f"NVTX ranges name the steps: {', '.join(told)}", None
    return "partly", f"guessed from {seen.step_method}: {', '.join(told)}", (
        "an NVTX range around each step"
    )  # fmt: skip


def _call_sites(seen: Seen) -> _Reply:
    if seen.backtraces:
        return "yes", "CUDA calls carry backtraces", None
    wanted = "--cudabacktrace=kernel:500 --sample=process-tree"
    if "host_samples" in seen.tables and "callchains" in seen.tables:
        return "partly", "CPU samples show where the host is, not which call made it", wanted
    if "ranges" in seen.tables:
        return "partly", "only the NVTX ranges around a call", wanted
    return "no", "neither backtraces nor ranges were recorded", wanted


_QUESTIONS: tuple[tuple[str, str, Callable[[Seen], _Reply]], ...] = (
    ("kernel-breakdown", "Which kernels take the GPU's time?", _kernel_breakdown),
    ("host-overhead", "What do launches and other CUDA calls cost the host?", _host_overhead),
    ("idle-attribution", "Why is the GPU idle when it is?", _idle),
    ("bandwidth", "Are kernels bound by memory or by compute?", _bandwidth),
    ("tails", "Do some calls or steps take far longer than others?", _tails),
    ("gil-gc", "Do the Python GIL or garbage collection cost time?", _python),
    ("memory", "Does device memory grow, or run full?", _memory),
    ("communication", "What does communication between GPUs cost?", _communication),
    ("phases", "What are prefill and decode steps, and how long?", _phases),
    ("call-sites", "Which code makes a slow call?", _call_sites),
)
