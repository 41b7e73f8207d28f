"""Sections of the `Diagnosis` that describe the capture: inputs, budget, steps, tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from advisor.facts.activity import sampled_devices
from advisor.facts.capture import samples_alone
from advisor.facts.catalog import CATALOGUE
from advisor.facts.load import is_load_alone, serves_language_model
from advisor.facts.needs import DEVICE_LOG, MORE_COLUMNS, combine, lacks, reason, remedy
from advisor.knowledge.engine_signs import (
    Program,
    ServingEngine,
    action_sentence,
    action_title,
    detect,
    named,
    options_for,
)
from advisor.knowledge.files import titled
from advisor.metrics.budgeted.budget import PARTS
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.intervals import Coverage, Spans, union
from advisor.metrics.loaded.kernels import composition, kernel_rows
from advisor.metrics.loaded.operations import Kind
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.loaded.workload import NO_KERNELS, UNKNOWN
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.stage import Stepped
from advisor.model import findings as m
from advisor.model.arrays import median_of, nearest_rank, rounded
from advisor.model.capture import LOAD, SUMS, InputDevice, Recorder
from advisor.model.facts import FactBase, Interval, Scope, Table
from advisor.model.gain import Option
from advisor.model.numbers import percent
from advisor.model.options import own_option
from advisor.pipeline.measuring import measuring_command

_BINS = 2_000
_MARKS = 500
_TABLE_ROWS = 200
#: Texts of ranges in which a serving engine is searched for.
_RANGES = 5_000
_OPERATOR = re.compile(r"^(?:aten::|_C\w*::)")
#: From this share of graph launches without kernels on, kernels are missing because of them.
HIDDEN = 0.01
NO_ESTIMATE = "ranked by the share of the step that the cause holds"


def milliseconds(a: Budgeted) -> Callable[[str, Scope, float | None], float | None]:
    """Turns a share of the window less the profiler into milliseconds a step (of the window without steps),
    the profiler's of the window, and a share of the capture into milliseconds of the capture."""
    whole = a.startup.capture_length / 1e6

    def ms_of(part: str, scope: Scope, share: float | None) -> float | None:
        if share is None or a.trace.summed or is_load_alone(a):
            return None
        own = a if scope.device is None else a.on(scope.device)
        if part == "capture":
            return share * whole
        device = own.main_device if scope.device is None else scope.device
        of_window = part == "profiler" or device not in a.budgets  # of samples alone
        length = own.window.length if of_window else a.budgets[device].program_ns
        return share * length / 1e6 / max(own.step_count, 1)

    return ms_of


def serving_engine(a: Loaded, chosen: str | None) -> ServingEngine:
    """The serving engine named by the user, else the one found in the names of the trace."""
    if chosen:
        return named(chosen)
    total = np.bincount(a.names.index, kernel_rows(a.trace, a.names)[0], minlength=len(a.names.texts))
    times = dict(zip(a.names.texts, total.tolist(), strict=True))
    ranges = list(dict.fromkeys(a.ranges.matching(lambda t: t).values()))
    capture = a.trace.capture
    return detect(times, ranges[:_RANGES], capture.command or capture.options.get("processes"))


def program_of(a: Stepped) -> Program:
    """Properties of the program in the capture, which advice should fit."""
    capture, kernels = a.trace.capture, a.names.texts
    release = capture.producer_version if capture.recorder.nsys_options else None
    device = a.device(a.main_device)
    command, on_cpu = " ".join(capture.command), "on_cpu" in capture.options
    return Program(is_language_model(a.workload), kernels, command, release, device, on_cpu)


def is_language_model(workload: str | None) -> bool | None:
    """None if the workload is unknown."""
    return None if workload in (None, UNKNOWN, NO_KERNELS) else str(workload).startswith("LLM")


def with_options(
    findings: tuple[m.Finding, ...], serving: ServingEngine, program: Program
) -> tuple[m.Finding, ...]:
    """Findings whose advice names the option of the engine in use; advice and references have titles."""

    def lines(action: str) -> tuple[Option, ...]:
        return options_for(action, serving.name, program, serving.version)

    def advised(f: m.Finding) -> m.Finding:
        advice = (
            r.replaced(title=action_title(r.id), sentence=action_sentence(r.id), options=lines(r.id))
            for r in f.recommendations
        )
        return f.replaced(
            recommendations=tuple(advice),
            alternatives=tuple(o.replaced(options=lines(o.action)) for o in f.alternatives),
            gain=f.gain or m.Gain(reason=NO_ESTIMATE),
        )

    return tuple(titled(advised(f)) for f in findings)


def _workload(a: Stepped) -> str:
    if not is_load_alone(a):
        return a.workload
    return "LLM serving" if serves_language_model(a) else "serving"


def _without_steps(a: Loaded) -> str | None:
    """What stands in for steps where a capture has none by its kind."""
    if a.trace.summed:
        return SUMS
    return LOAD if is_load_alone(a) else None


Remedy = Callable[[str], str | None]


def remedies(a: Loaded, base: FactBase, serving: ServingEngine) -> Remedy:
    """Returns a function: what would supply a fact that this capture lacks."""
    hidden = hidden_graphs(base)
    traced = {source.lower() for source in a.trace.capture.trace_sources}
    foreign = a.trace.capture.vendor != "NVIDIA"
    idle = no_gpu_work(base)

    def of(name: str) -> str | None:
        if name not in CATALOGUE or name in base.undecided:
            return None
        found = remedy(
            CATALOGUE[name],
            a.trace.tables,
            base.missing.get(name),
            hidden_graphs=hidden,
            no_gpu_work=idle,
            lost_work=lost_work(base),
            nvtx="nvtxevents" in traced,
            serving=serving.name,
        )
        if found == DEVICE_LOG and samples_alone(a):
            return MORE_COLUMNS
        # nsys records nothing of another vendor's GPUs.
        return None if foreign and found is not None and of_nsys(found) else found

    return of


def hidden_graphs(base: FactBase) -> bool:
    """CUDA graphs were replayed whose kernels are not in the capture."""
    opaque = base.value("capture.opaque_graph_ratio")
    return isinstance(opaque, float) and opaque >= HIDDEN


def no_gpu_work(base: FactBase) -> bool:
    """The process never used a GPU that CUDA can trace: tracing it again records nothing new."""
    idle = base.value("capture.cuda_traced") is True or base.value("capture.ran_on") in ("cpu", "accelerator")
    return idle and base.value("capture.gpu_work_count") == 0 and not lost_work(base)


def lost_work(base: FactBase) -> bool:
    """Kernels were launched, and none was recorded although CUDA was traced."""
    return base.value("capture.lost_kernel_ratio") == 1.0


def reasons(a: Loaded, base: FactBase) -> Remedy:
    """Returns a function: why a fact has no value, also if it has one in another scope."""

    def of(name: str) -> str | None:
        known = base.missing.get(name)
        return known or (reason(CATALOGUE[name], a.trace.tables) if name in CATALOGUE else None)

    return of


def of_nsys(flag: str) -> bool:
    """Whether a remedy is an option of `nsys profile`, not one of ours and no advice in words."""
    return flag.startswith("-") and own_option(flag) is None


def by_tool(flag: str, recorder: Recorder) -> str:
    """A remedy with the name of nsys, if another tool recorded."""
    return flag if recorder.nsys_options or not of_nsys(flag) else f"nsys profile {flag}"


def with_remedies(
    entries: tuple[m.NotEvaluated, ...], of: Remedy, recorder: Recorder
) -> tuple[m.NotEvaluated, ...]:
    """Rules that could not be judged, with the option that supplies the missing facts of this capture; the
    rule's own flag only says what it needs in general. Options are those of `nsys profile`, which is named if
    another tool recorded."""

    def supplied(entry: m.NotEvaluated) -> m.NotEvaluated:
        known = [name for name in entry.missing if name in CATALOGUE]
        flag = combine(f for name in known if (f := of(name))) if known else entry.flag
        return entry.replaced(flag=flag and by_tool(flag, recorder), lacks=flag and lacks(flag))

    return tuple(map(supplied, entries))


def input_of(a: Budgeted, serving: ServingEngine) -> m.Input:
    capture, window = a.trace.capture, a.window
    device = a.device(a.devices[0]) if a.devices else next(iter(a.trace.devices), None)
    names = {d.name for d in a.trace.devices if d.id in a.devices and d.name}
    name = device.name if device is not None else None
    if len(a.devices) > 1:
        name = f"{len(a.devices)} x {names.pop()}" if len(names) == 1 else f"{len(a.devices)} GPUs"
    busy = [b.busy_ratio for b in a.budgets.values()]
    own = a.in_window & (a.ops.process == a.main_process)
    kernels = int((a.ops.kind[own] == Kind.KERNEL).sum())
    return m.Input(
        path=capture.path,
        format=capture.format,
        producer=" ".join(x for x in (capture.producer, capture.producer_version) if x) or None,
        device=name,
        devices=tuple(
            InputDevice(id=d.id, name=d.name, bus_id=d.bus_id, cuda_ordinals=d.cuda_ordinals)
            for d in (a.device(n) for n in a.devices or sampled_devices(a))
        ),
        device_numbers=capture.device_numbers,
        clock=capture.recorder.clock,
        driver=capture.driver,
        cuda=capture.cuda,
        serving_engine=serving.name,
        serving_version=serving.version,
        serving_confidence=serving.confidence if serving.name else None,
        serving_evidence=serving.evidence,
        window_ms=window.length / 1e6,
        window_ns=(window.start, window.end),
        window_method=window.method,
        steps=len(a.window_steps) or (len(a.repeated) if a.repeated.level != "layer" else 0) or None,
        step_method=a.repeated.method if len(a.repeated) else _without_steps(a),
        step_confidence=a.repeated.confidence if len(a.repeated) else None,
        step_levels=dict(a.steps.levels),
        workload=_workload(a),
        workload_confidence=a.program.confidence or None,
        kernels_per_step=kernels / a.step_count if a.step_count and kernels else None,
        busy_share=float(np.mean(busy)) if busy else None,
        startup_ms=a.startup.length / 1e6 if a.startup.length else None,
        together=a.provenance.in_words,
        warnings=a.trace.ledger.warnings(a.trace.warnings),
        ledger=a.trace.ledger.rows(),
    )


def budgets(a: Budgeted) -> tuple[m.Budget, ...]:
    """One budget a device, then one for each phase of its steps if there are several."""
    out = []
    for device, budget in a.budgets.items():
        out.append(_budget(device, None, np.array([budget.ns[p] for p in PARTS], float)))
        phases, rows = a.on(device).window_phases, budget.by_step[a.on(device).window_steps]
        names = sorted(set(phases.tolist()))
        if len(names) > 1:
            out += [_budget(device, phase, rows[phases == phase].sum(axis=0)) for phase in names]
    return tuple(out)


def _budget(device: int, phase: str | None, ns: Any) -> m.Budget:
    whole = float(ns.sum())
    return m.Budget(
        device=device,
        phase=phase,
        window_ms=whole / 1e6,
        parts=tuple(
            m.Part(part=p, ms=float(v) / 1e6, share=float(v) / whole if whole else 0.0)
            for p, v in zip(PARTS, ns, strict=True)
        ),
    )


def steps(a: Budgeted) -> tuple[m.StepSummary, ...]:
    """Steps by device and phase, those of the device with most GPU time first."""
    out = []
    for device in sorted(a.devices or [a.main_device], key=lambda d: d != a.main_device):
        own = a.on(device)
        times, phases = step_times(own) / 1e6, own.window_phases
        by_phase = {phase: times[phases == phase] for phase in sorted(set(phases.tolist()))}
        out += [
            m.StepSummary(
                phase=phase,
                count=len(mine),
                median_ms=median_of(mine),
                mean_ms=float(mine.mean()),
                p99_ms=nearest_rank(mine, 99),
                process=own.main_process if own.main_process >= 0 else None,
                device=device,
            )
            for phase, mine in by_phase.items()
        ]
    return tuple(out)


_MAIN_TABLES = {
    "kernels": "kernels.top",
    "families": "kernels.families",
    "api": "api.top",
    "copies": "copies.classes",
    "steps": "steps.phases",
    "activity": "activity.groups",
    "modules": "origins.modules",
    "places": "origins.places",
    "matmuls": "kernels.matmuls",
    "layers": "layers.parts",
    "operators": "operators.top",
    "load": "load.parts",
    "samples": "samples.held",
    "load_over_time": "load.moments",
    "samples_over_time": "samples.moments",
}


def tables(a: Budgeted, base: FactBase) -> dict[str, Table]:
    """The main tables (of the first device if there are several), at most 200 rows each."""
    scope = Scope(device=a.devices[0]) if a.devices else Scope(device=0) if a.trace.summed else Scope()
    found = ((key, base.table(name, scope)) for key, name in _MAIN_TABLES.items())
    return {key: table.first(_TABLE_ROWS) for key, table in found if table is not None}


def timeline(a: Profiled) -> m.Timeline:
    """The window in at most 2,000 bins: busy, copies, host calls and samples by device."""
    window = a.window
    if window.length <= 0:
        return m.Timeline()
    span = window.end - window.start
    bins = min(_BINS, span)
    edges = np.array([window.start + span * i // bins for i in range(bins + 1)], np.int64)
    width = np.maximum(np.diff(edges), 1)
    lanes = []

    def lane(name: str, device: int | None, values: Any) -> None:
        shown = rounded(values, 4).astype(object)
        shown[np.isnan(values)] = None
        lanes.append(m.Lane(name=name, device=device, values=tuple(shown.tolist())))

    def covered(name: str, device: int, spans: Spans) -> None:
        lane(name, device, Coverage(spans).within(edges[:-1], edges[1:]) / width)

    for device, budget in a.budgets.items():
        covered("compute", device, budget.compute)
        copy = a.device_copies(device)
        if len(copy):
            covered("copies", device, union(a.ops.start[copy], a.ops.end[copy]))
        feeder = a.feeder(device)
        if feeder is not None:
            calls = a.threads.of(feeder)
            covered("host in CUDA calls", device, Spans(calls.start, calls.end))
        samples = a.samples(device)
        if samples is None:
            continue
        at_bin = np.clip(np.searchsorted(edges, samples.time, "right") - 1, 0, bins - 1)
        count = np.bincount(at_bin, minlength=bins)
        measured = {
            "SM Active": samples.values.get("sm_active"),
            "Tensor Active": samples.values.get("tensor_active"),
            "DRAM": samples.dram,
        }
        for name, values in measured.items():
            if values is not None:
                total = np.bincount(at_bin, np.nan_to_num(values), minlength=bins)
                with np.errstate(invalid="ignore", divide="ignore"):
                    lane(name, device, np.where(count > 0, total / count, np.nan))
    begin = np.append(a.steps.gpu_start[:1], a.steps.gpu_end)
    marks = tuple(
        Interval(start_ns=int(begin[i]), end_ns=int(a.steps.gpu_end[i]), label=a.steps.phase[i])
        for i in a.window_steps[:_MARKS].tolist()
    )
    return m.Timeline(start_ns=window.start, bin_ns=int(width[0]), lanes=tuple(lanes), marks=marks)


def next_target(a: Budgeted) -> m.NextTarget | None:
    """The family that holds most kernel time, its largest kernel and the command to examine it."""
    if a.trace.summed:
        name, (duration, calls) = a.names.index, kernel_rows(a.trace, a.names)
        total, known = duration.sum(), np.where(calls > 0, duration, 0)  # without rows that were cut off
    elif a.devices:
        ran = a.kernels(a.devices[0])
        name, total, known, calls = ran.name, ran.length.sum(), ran.length, np.ones(len(ran.name))
    else:
        return None
    by_name, calls = (np.bincount(name, n, len(a.names.ids)) for n in (known, calls))
    times = composition(a.names.families, np.arange(len(by_name)), by_name)
    if not times:
        return None
    # The kernel is not why a collective takes long: ncu would not help.
    family = next((f for f in times if f != "communication"), next(iter(times)))
    i = int(np.argmax(np.where(a.names.mask(lambda k: k.family == family), by_name, -1.0)))
    measure = measuring_command(a.names.texts[i], a.names.short[i], a.trace.capture.vendor)
    if _OPERATOR.match(a.names.texts[i]):  # its kernel, which could be measured, is not known
        measure = a.trace.capture.recorder.again
    return m.NextTarget(
        family=family,
        share=times[family] / total,
        kernel=a.names.texts[i],
        command=measure,
        why=f"{a.names.operations[i]}: {percent(by_name[i] / total)} of kernel time in {int(calls[i])} calls",
        collectives_share=0.0 if family == "communication" else times.get("communication", 0.0) / total,
    )
