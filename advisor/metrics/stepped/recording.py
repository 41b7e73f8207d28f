"""A capture with the steps of one process on one device: what is needed to line up two recordings."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from advisor.knowledge.files import step_patterns
from advisor.metrics.loaded.kernels import heaviest
from advisor.metrics.loaded.stage import Loaded, fields_of
from advisor.metrics.stepped.phases import with_phases
from advisor.metrics.stepped.startup import find_startup
from advisor.metrics.steps.find import find_steps
from advisor.metrics.steps.model import Steps, Work, no_steps
from advisor.sources.schema import MISSING

#: Kernels that come once a step, by their operation; others count by their family.
_ONCE_A_STEP = ("loss", "elementwise (XLA)", "top-k")


class Recording(Loaded, frozen=True, eq=False):
    """`repeated` is the best candidate for steps, with its confidence; `steps` are these, or none where they
    may be no steps."""

    main_device: int
    main_process: int
    repeated: Steps
    steps: Steps


def find_recording(loaded: Loaded, device: int | None = None, process: int | None = None) -> Recording:
    """The steps of a process on a device; by default the device with most GPU time, and the process with
    most of it there."""
    if device is None:
        device = heaviest_device(loaded)
    else:
        loaded = replace(loaded, runs=loaded.runs.on(device, loaded.ops))
    process = heaviest_process(loaded, device) if process is None else process
    repeated = _repeated(loaded, device, process)
    steps = repeated if repeated.believed else no_steps(len(loaded.ops), repeated.empty, repeated.ranges_seen)
    return Recording(
        **fields_of(Loaded, loaded), main_device=device, main_process=process, repeated=repeated, steps=steps
    )


def heaviest_device(loaded: Loaded) -> int:
    """The device with most GPU time; 0 without GPU work."""
    ops = loaded.ops
    return heaviest(ops.device, np.maximum(ops.length, 0)) if len(ops) else 0


def heaviest_process(loaded: Loaded, device: int) -> int:
    """The process with most GPU time on the device; without GPU work the one with most calls."""
    ops = loaded.ops
    mine = ops.device == device
    if mine.any():
        return heaviest(ops.process[mine], np.maximum(ops.length[mine], 0))
    called = loaded.trace.columns("api_calls", ("process",))["process"]
    return heaviest(called) if len(called) else MISSING


def _repeated(loaded: Loaded, device: int, process: int) -> Steps:
    """The best candidate for steps, with the phases of a language model."""
    names, program = loaded.names, loaded.program
    work = Work(
        loaded.trace,
        loaded.ops,
        process,
        device,
        loaded.op_name,
        loaded.ranges,
        step_patterns(),
        [k.operation if k.operation in _ONCE_A_STEP else k.family for k in names.known],
        max(loaded.losses.share, loaded.thinned.share),
        program.denoises,
        loaded.runs.since,
        loaded.runs.until,
    )
    found = find_steps(work)
    if not found.believed and (cold := find_startup(loaded, found).end):
        found = max(found, find_steps(replace(work, since=cold)), key=lambda s: s.confidence)
    if not len(found) or not loaded.trace.has("kernels"):
        return found
    return with_phases(found, loaded.trace, loaded.ops, names, program.is_language_model)
