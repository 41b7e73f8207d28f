"""The first stage: the tables of a capture, and what they hold without regard to steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from advisor.knowledge.engine_signs import workload_knowledge
from advisor.knowledge.files import kernel_families, step_patterns
from advisor.metrics.intervals import Spans
from advisor.metrics.loaded.captured import Captured, graph_captures
from advisor.metrics.loaded.host import Ranges, Threads
from advisor.metrics.loaded.kernels import Names, kernel_names
from advisor.metrics.loaded.losses import Losses, Thinned, earlier_work, find_losses, find_thinned
from advisor.metrics.loaded.operations import Kind, Operations, Runs, find_runs, operations
from advisor.metrics.loaded.selection import Selection
from advisor.metrics.loaded.workload import Judgement, judge, look
from advisor.model.arrays import Array
from advisor.model.capture import Device
from advisor.model.tasks import run_tasks
from advisor.sources.schema import MISSING
from advisor.sources.trace import Trace


class Loaded(Struct, frozen=True, eq=False):
    """The tables of a capture; arrays have one entry an operation of `ops`.

    `op_name`: position of its kernel name in `names`, MISSING for other operations. `communication`: mask of
    collectives. `roles`: ranges that are no steps but explain time, position in `ranges.texts` -> role.
    `program`: what kind of program was captured, without regard to phases. `runs`: the programs that ran one
    after the other. `earlier_work`: when work launched before the recording held up the device. `selection`
    is what the user chose of it.
    """

    trace: Trace
    selection: Selection
    ops: Operations
    names: Names
    op_name: Array
    communication: Array
    ranges: Ranges
    threads: Threads
    roles: dict[int, str]
    program: Judgement
    runs: Runs
    captured: Captured
    losses: Losses
    thinned: Thinned
    earlier_work: Spans

    def device(self, number: int) -> Device:
        """What the capture records of a device; an empty description if it records nothing."""
        return next((d for d in self.trace.devices if d.id == number), Device(id=number))


def fields_of(stage: type[Struct], a: Struct) -> dict[str, Any]:
    """The fields that a stage has, of it or of a later one, to make the next stage of."""
    return {name: getattr(a, name) for name in stage.__struct_fields__}


def load(trace: Trace, selection: Selection | None = None) -> Loaded:
    """Read the tables of a capture and join GPU work to its calls and names."""
    read = run_tasks(
        trace.threads,
        {"names": lambda: kernel_names(trace, kernel_families()), "operations": lambda: operations(trace)},
    )
    names, ops = read["names"], read["operations"]
    assert isinstance(names, Names)
    assert isinstance(ops, Operations)
    op_name = np.full(len(ops), MISSING, np.int32)
    kernel = ops.kind == Kind.KERNEL
    op_name[kernel] = names.index[ops.row[kernel]]
    collective = np.append(names.mask(lambda k: k.family == "communication"), False)  # MISSING is the last
    ranges, captured = Ranges(trace), graph_captures(trace, ops)
    return Loaded(
        trace=trace,
        selection=selection or Selection(),
        ops=ops,
        names=names,
        op_name=op_name,
        communication=collective[op_name],
        ranges=ranges,
        threads=Threads(trace),
        roles=dict(ranges.matching(step_patterns().role)),
        program=judge(look(trace, names, ranges), workload_knowledge()),
        runs=find_runs(trace, ops, op_name),
        captured=captured,
        losses=find_losses(trace, ops, captured),
        thinned=find_thinned(trace),
        earlier_work=earlier_work(trace, ops),
    )
