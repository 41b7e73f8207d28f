"""`Work`: what one step of a capture does and how long its steps took, so that runs compare.

It travels inside the `Diagnosis`, hence a saved one compares as well as the capture it came from.
"""

from __future__ import annotations

from advisor.model.capture import Frozen

#: At most this many step times of a phase are kept, evenly thinned, and this many kernel names.
MAX_SAMPLES = 2_000
MAX_KERNELS = 200


class KernelName(Frozen):
    """A kernel of the capture; the rows of a phase point to it by position."""

    name: str
    operation: str
    family: str


class KernelWork(Frozen):
    """One kernel in the steps of one phase: means over the steps."""

    kernel: int
    calls: float
    ms: float
    #: Blocks of a launch: mean, fewest and most.
    blocks: float
    blocks_min: int
    blocks_max: int


class PhaseWork(Frozen):
    """The steps of one phase. `steps` is 0 where no steps were found: then there is one phase, the
    whole window, and "a step" means the window.

    `times_ms` are in order of time. `attention` and `matmul` count main kernels a step (their
    split-K reductions and combines left out); `layers` is how often a step repeats its block.
    `batch` and `tokens` are means of what the range names say of each step.
    """

    phase: str
    steps: int
    times_ms: tuple[float, ...] = ()
    kernels: tuple[KernelWork, ...] = ()
    kernel_calls: float = 0.0
    kernel_ms: float = 0.0
    attention: float = 0.0
    matmul: float = 0.0
    layers: int | None = None
    batch: float | None = None
    tokens: float | None = None


class Work(Frozen):
    """Machine and options of a run, its kernels, and its steps by phase."""

    gpus: tuple[str, ...] = ()
    gpu_count: int = 0
    clock_hz: float | None = None
    sm_clock_hz: float | None = None
    sources: tuple[str, ...] = ()
    graph_trace: str | None = None
    sample_hz: float | None = None
    opaque: bool = False
    kernels: tuple[KernelName, ...] = ()
    phases: tuple[PhaseWork, ...] = ()
