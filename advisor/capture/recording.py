"""How a capture was recorded, in the words of ``nsys profile``, as far as the export lists them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from advisor.model.capture import Capture

#: Event types of an export -> the name that --trace has for them.
_SOURCES = {
    "cuda": "cuda", "nvtxevents": "nvtx", "osruntime": "osrt", "cublas": "cublas",
    "cudnn": "cudnn", "cusparse": "cusparse", "mpi": "mpi", "ucx": "ucx", "openacc": "openacc",
    "openmp": "openmp", "graphics": "opengl", "vulkan": "vulkan", "pythongil": "python-gil",
}  # fmt: skip
#: How a list of sources is written.
TRACE_ORDER = ("cuda", "nvtx", "cublas", "cudnn", "osrt", "python-gil")
#: Tables that show that a source was traced, where the export does not name it.
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


@dataclass(frozen=True, slots=True)
class Recording:
    """`options` in canonical spelling, one a --trace source; `known` is False where the export
    does not list options, so they are inferred from what was recorded."""

    options: tuple[str, ...]
    known: bool
    command: tuple[str, ...]
    release: tuple[int, int] | None

    def has(self, option: str) -> bool:
        """True where the option, or one that includes it, was on."""
        name, _, value = option.partition("=")
        if name == "--gpu-metrics-frequency":
            return any(float(value) <= float(v) for n, v in self._pairs() if n == name)
        return option in self.options

    def _pairs(self) -> list[tuple[str, str]]:
        return [(n, v) for n, _, v in (o.partition("=") for o in self.options)]


def recording_of(
    capture: Capture,
    tables: Collection[str],
    *,
    gil_ranges: bool = False,
    backtraces: bool = False,
    profiler_calls: bool = False,
) -> Recording:
    """The options that were on; none where another tool recorded.

    What exports do not list is inferred from what was recorded: ranges of the GIL, backtraces of CUDA
    calls, calls that start and stop the profiler.
    """
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
    if capture.graph_trace_mode:
        options.append(f"--cuda-graph-trace={capture.graph_trace_mode}")
    if capture.sample_hz or "samples" in tables:
        options.append("--gpu-metrics-devices=all")
    if capture.sample_hz:
        options.append(f"--gpu-metrics-frequency={capture.sample_hz:.0f}")
    if on.get("COLLECT_GPU_MEMORY_USAGE") == "true" or "allocations" in tables:
        options.append("--cuda-memory-usage=true")
    if backtraces:
        options.append("--cudabacktrace=all")
    if on.get("COLLECT_IP_BACKTRACE_SAMPLES") == "true" or "host_samples" in tables:
        options.append("--sample=process-tree")
    elif known:
        options.append("--sample=none")
    if on.get("TRACE_AFTER_FORK_BEFORE_EXEC") == "true":
        options.append("--trace-fork-before-exec=true")
    if profiler_calls:
        options.append("--capture-range=cudaProfilerApi")
    return Recording(tuple(options), known, masked(capture.command), release_of(capture))


def release_of(capture: Capture) -> tuple[int, int] | None:
    """Year and number of the nsys release: (2023, 4) of ``2023.4.4.54``."""
    found = re.match(r"(\d{4})\.(\d+)", capture.producer_version or "")
    return None if found is None else (int(found[1]), int(found[2]))


def masked(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command line without the values of what looks like a credential."""
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
