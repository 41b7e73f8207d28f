"""`Work`: what one step of a capture does and how long its steps took, so that runs can be compared.

It is part of the `Diagnosis`, so a saved one can be compared like the capture it came from. `Excerpt` is
a stretch of its timeline that pages draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from advisor.model.records import Frozen


class Event(NamedTuple):
    """Times in ns, `start` from that of the excerpt; an event may begin before or end after it. `track`,
    `name` and `note` are positions in its texts, `call` that of the issuing event, -1 where none is shown."""

    track: int
    start: int
    length: int
    name: int
    note: int
    call: int = -1


@dataclass(frozen=True)
class Excerpt:
    """Events between two times of the capture (ns): the longest of the `total` in this range. `place` is
    the place of a finding that is shown, None for a step."""

    title: str
    start_ns: int
    end_ns: int
    tracks: tuple[str, ...]
    texts: tuple[str, ...]
    events: tuple[Event, ...]
    total: int
    place: tuple[int, int] | None = None

    def beside(self, other: Excerpt, names: tuple[str, str]) -> Excerpt:
        """Both from a common 0 on, one above the other."""
        tracks, texts, calls = len(self.tracks), len(self.texts), len(self.events)
        moved = (
            e._replace(
                track=e.track + tracks,
                name=e.name + texts,
                note=e.note + texts,
                call=e.call + calls if e.call >= 0 else -1,
            )
            for e in other.events
        )
        both = zip(names, (self, other), strict=True)
        return replace(
            self,
            start_ns=0,
            end_ns=max(self.end_ns - self.start_ns, other.end_ns - other.start_ns),
            tracks=tuple(f"{name}: {track}" for name, one in both for track in one.tracks),
            texts=self.texts + other.texts,
            events=self.events + tuple(moved),
            total=self.total + other.total,
        )


@dataclass(frozen=True)
class Sketch:
    """The drawing of a comparison: step times (ms) of the phase that takes most time, and a typical step
    of each side above the other, if the events are available."""

    phase: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    steps: Excerpt | None = None


#: At most this many step times of a phase are kept, evenly thinned, and this many kernel names.
MAX_SAMPLES = 2_000
MAX_KERNELS = 200


class KernelName(Frozen, frozen=True, kw_only=True):
    """A kernel of the capture; the rows of a phase point to it by position."""

    name: str
    operation: str
    family: str


class KernelWork(Frozen, frozen=True, kw_only=True):
    """One kernel in the steps of one phase: means over the steps."""

    kernel: int
    calls: float
    ms: float
    #: Blocks of a launch: mean, fewest and most.
    blocks: float
    blocks_min: int
    blocks_max: int


class PhaseWork(Frozen, frozen=True, kw_only=True):
    """The steps of one phase. `steps` is 0 if no steps were found: then there is one phase, the whole
    window, and "a step" means the window.

    `times_ms` are in order of time. `attention` and `matmul` count main kernels a step (without their
    split-K reductions and combines); `layers` is how often a step repeats its block. `batch` and `tokens`
    are means of the numbers in the range names of each step."""

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


class Work(Frozen, frozen=True, kw_only=True):
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

    def __post_init__(self) -> None:
        if not all(0 <= k.kernel < len(self.kernels) for phase in self.phases for k in phase.kernels):
            raise ValueError("a phase runs a kernel that is not listed")
