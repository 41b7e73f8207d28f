"""The catalogue of facts of one trace, as `knowledge/facts/` declares them: the single source for rule
checking, for ``advisor facts`` and for the documentation. A fact without a value is missing, never zero.
Definitions: docs/definitions.md.

And all facts of one trace, with the evidence tables that findings print: small, sorted, with units.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from advisor.facts import (
    activity,
    capture,
    communication,
    copies,
    damage,
    device,
    drift,
    host,
    load,
    memory,
    operations,
    operators,
    phases,
    profiled_sums,
    provenance,
    serving,
    sums,
    ties,
    waits,
)
from advisor.facts.device import of_older_architecture
from advisor.facts.needs import explain_missing
from advisor.facts.writer import FactWriter
from advisor.knowledge.facts import facts_of
from advisor.metrics.budgeted.matmuls import Decoder, matmuls, recorded_weights
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.budgeted.step_times import step_times
from advisor.metrics.budgeted.waited import calls_by
from advisor.metrics.intervals import Coverage, Spans, union
from advisor.metrics.loaded.kernels import MATMUL, Names, dense, distribution, extremes
from advisor.metrics.loaded.stage import Loaded
from advisor.metrics.profiled.stage import Profiled
from advisor.metrics.stepped.stage import Stepped
from advisor.model.arrays import (
    Array,
    by_label,
    distinct,
    largest,
    lengths,
    median_of,
    nearest_rank,
    picked,
    rows_at,
)
from advisor.model.facts import FactBase, Row, Scope, Value
from advisor.model.parts import IDLE
from advisor.model.tasks import run_tasks
from advisor.sources.schema import Call

#: The modules that compute facts, in the order of pages; a file of the same name has their declarations.
_MODULES = (
    capture,
    damage,
    device,
    host,
    waits,
    ties,
    copies,
    memory,
    activity,
    phases,
    serving,
    provenance,
    operators,
    operations,
    communication,
    drift,
    sums,
    profiled_sums,
    load,
)

CATALOGUE = facts_of(*(module.__name__.rpartition(".")[2] for module in _MODULES))

#: Facts made of all captures of a job; a single rank has none of them.
JOINT = frozenset(name for name, spec in CATALOGUE.items() if spec.over_ranks == "joint")

_ROWS = 200  # the diagnosis keeps this many of its main tables
_FEW = 10
_API_SUFFIX = r"_v\d+$"


def evidence(a: Profiled, device: int, out: FactWriter) -> None:
    _kernels(a, device, out)
    if a.trace.has("api_calls"):
        _calls(a, device, out)
    _steps(a, out)
    budget = a.budgets[device]
    window = budget.window.nonzero_length
    idle = sorted(((budget.ns[p], IDLE[p].words) for p in IDLE if budget.ns[p]), key=lambda x: -x[0])
    out.table("idle.parts", [[words, ns / 1e6, ns / window] for ns, words in idle])
    gap = budget.gap_parts["host_gap"]
    starts, threads = budget.gaps.start / 1e9, budget.gaps.thread
    out.table("host.gaps", rows_at(largest(gap, _FEW), starts, gap / 1e6, _named(a, threads)))
    _collections(a, device, out)
    _holders(a, device, out)


def _collections(a: Budgeted, device: int, out: FactWriter) -> None:
    """The garbage collections on the feeding thread, the longest first."""
    budget, feeder = a.budgets[device], a.feeder(device)
    if feeder is None or feeder not in a.states.gc:
        return
    spans = budget.window.cut(a.states.gc[feeder])
    idle = Coverage(Spans(budget.gaps.start, budget.gaps.end)).within(spans.start, spans.end)
    length = spans.end - spans.start
    top, threads = np.argsort(-length, kind="stable")[:_FEW], _named(a, np.full(len(length), feeder))
    out.table("host.collections", rows_at(top, spans.start / 1e9, length / 1e6, idle / 1e6, threads))


def _named(a: Loaded, threads: Array) -> list[int | str]:
    """Threads by number, those with a name as ``detokenizer (777)``."""
    names = dict(a.trace.capture.threads)
    return [f"{names[t]} ({t})" if t in names else t for t in threads.tolist()]


def _holders(a: Budgeted, device: int, out: FactWriter) -> None:
    """Who holds the GIL while the feeding thread waits for it."""
    feeder = a.feeder(device)
    chosen = [i for i, role in a.roles.items() if role == "gil_hold"]
    if feeder is None or feeder not in a.states.gil or not chosen:
        return
    waits = a.window.cut(a.states.gil[feeder])
    rows = a.ranges.rows(chosen)
    held = Coverage(waits).within(rows["start"], rows["end"])
    threads, of = np.unique(rows["thread"], return_inverse=True)
    time = np.bincount(of, held, minlength=len(threads))
    shares = time / max(waits.total, 1)
    out.table("host.gil_holders", rows_at(largest(time, _FEW), _named(a, threads), time / 1e6, shares))


def _kernels(a: Profiled, device: int, out: FactWriter) -> None:
    kernels = a.kernels(device)
    name, duration = kernels.name, kernels.length
    if len(name) == 0:
        return
    d = distribution(name, duration, len(a.names.ids))
    total = max(float(d.total.sum()), 1.0)
    order, named = largest(d.total, known=d.count), a.names
    times = (d.total / 1e6, d.total / total, *(v / 1e3 for v in (d.p50, d.p95, d.p99, d.maximum)))
    labels = named.texts, named.operations, named.families
    out.table("kernels.top", rows_at(order[:_ROWS], *labels, d.count, *times))
    families, (count, time) = by_label([named.families[i] for i in order], d.count[order], d.total[order])
    rows = rows_at(np.arange(len(families)), families, count.astype(int), time / 1e6, time / total)
    out.table("kernels.families", rows)
    found, entity = a.activity.get(device), list[Row]()
    for family, many, _, share in rows:
        levels = {f"{m}_ratio": found.of(family, m) if found else None for m in ("dram", "sm", "tensor")}
        entity.append({"device": device, "family": family, "count": many, "time_ratio": share, **levels})
    out.entity("family", entity)
    launch = a.trace.columns("kernels", ("blocks", "local_bytes"))
    blocks, local = (launch[n][kernels.row] for n in ("blocks", "local_bytes"))
    heaviest = partial(_heaviest, a.names, name, duration)
    out.table("kernels.local", heaviest(local > 0, local))
    if sms := a.device(device).sm_count:
        small = (blocks > 0) & (blocks * 2 < sms) & ~a.communication[kernels.at]
        title = f"Kernels that launch fewer than {sms // 2} blocks"
        out.table("kernels.small_grid", heaviest(small, blocks), title=title)
    fp32 = a.names.mask(lambda k: k.family in MATMUL and k.traits.get("simt_fp32") is True)
    out.table("kernels.fp32", heaviest(fp32[name], blocks))
    capability, old = a.device(device).compute_capability, of_older_architecture(a, device)
    if capability and old is not None:
        title = f"Kernels built for less than sm_{capability[0]}0, share of the kernel time"
        out.table("kernels.old_architecture", heaviest(old, blocks), title=title)


def _heaviest(
    names: Names, name: Array, duration: Array, mask: Array, held: Array
) -> list[list[Value | None]]:
    """The heaviest kernels of `mask`, each with the most that its launches hold of something (`held`)."""
    time = np.bincount(name[mask], duration[mask], minlength=len(names.ids))
    count = np.bincount(name[mask], minlength=len(names.ids))
    most = extremes(name[mask], held[mask], len(names.ids))[1]
    whole = max(float(duration.sum()), 1.0)
    return rows_at(largest(time, _FEW), names.texts, names.operations, count, time / whole, most)


def _calls(a: Budgeted, device: int, out: FactWriter) -> None:
    rows = np.flatnonzero(a.calls_in_window).astype(np.int32)
    calls = a.trace.columns("api_calls", ("start", "end", "call", "name_id", "thread"))
    threads = len(distinct(picked(calls["thread"], rows)))
    note = f", summed over {threads} threads" if threads > 1 else ""
    ids, group = dense(picked(calls["name_id"], rows))
    group = group.astype(np.int32)
    names = [re.sub(_API_SUFFIX, "", t) for t in a.trace.texts(ids.tolist())]
    kind = np.zeros(len(ids), np.int64)
    kind[group] = picked(calls["call"], rows)
    length = lengths(*(picked(calls[n], rows) for n in ("start", "end")))
    del rows  # as large as each of the others
    d = distribution(group, length, len(ids))
    host = max(a.host_window[1] - a.host_window[0], 1)
    order = largest(d.total, known=d.count)
    per_step = d.count / a.step_count if a.step_count else [None] * len(ids)
    columns = (names, d.count, per_step, d.total / 1e6, d.total / host, d.p50 / 1e3, d.maximum / 1e3)
    out.table("api.top", rows_at(order[:_ROWS], *columns), note=note)
    for key, wanted in (
        ("launch.top_calls", (Call.LAUNCH, Call.GRAPH_LAUNCH)),
        ("sync.top_calls", (Call.SYNC, Call.COPY)),
        ("alloc.calls", (Call.ALLOC, Call.FREE)),
    ):
        out.table(key, rows_at(order[np.isin(kind[order], wanted)][:_FEW], *columns), note=note)
    waits, window = calls_by(a, a.feeder(device), Call.SYNC), a.budgets[device].program_ns
    entity: list[Row] = []
    for i in order[kind[order] == Call.SYNC].tolist():
        mine = waits[calls["name_id"][waits] == ids[i]]
        spans = union(calls["start"][mine], calls["end"][mine])
        idle, many = a.budgets[device].idle_inside(spans), len(mine)
        entity.append(
            {
                "device": device,
                "name": names[i],
                "count": many,
                "per_step": many / a.step_count if a.step_count else None,
                "time_ratio": spans.total / host,
                "idle_ratio": idle / window,
                "p50_ns": float(d.p50[i]),
                "max_ns": float(d.maximum[i]),
            }
        )
    out.entity("sync_call", entity)


def _steps(a: Stepped, out: FactWriter) -> None:
    if not a.step_count:
        return
    times = step_times(a) / 1e6
    phases, rows = a.window_phases, []
    for phase in sorted(set(phases.tolist())):
        mine = times[phases == phase]
        rows.append([phase, len(mine), median_of(mine), mine.mean(), nearest_rank(mine, 99), mine.max()])
    out.table("steps.phases", rows)
    slowest = np.argsort(-times, kind="stable")[:5]
    ends = a.steps.gpu_end[a.window_steps] / 1e9
    out.table("steps.slowest", rows_at(slowest, a.window_steps, phases, times, ends))


#: A capture seen from a device, the device, and where its facts go.
View = tuple[Profiled, int, FactWriter]


def build_facts(
    a: Profiled,
    weight_bytes: int | None = None,
    ranks: communication.CrossRank | None = None,
    decoder: Decoder | None = None,
    acceptance: float | None = None,
    engine: str | None = None,
) -> FactBase:
    """Facts, entities and evidence of one trace; `weight_bytes` is the size of the weights that a step
    reads (if not given, it follows from the recorded sizes of its products), `decoder` the sizes of the
    model, `ranks` the cross-rank values of several ranks in this capture, `acceptance` the number of
    tokens that one verification of drafts yields, `engine` the serving engine by its name in
    `knowledge/engines`.

    Parts of it run at the same time for a large capture, where two threads take 0.6 of the time of one (1.0 M
    kernels), one after the other for a huge one: none reads or replaces facts of another.
    """
    window = a.window
    waits = ranks.waits if ranks else {}

    def part(fill: Callable[..., None], *given: Any) -> Callable[[], FactBase]:
        def filled() -> FactBase:
            out = FactWriter(CATALOGUE, (window.start, window.end), a.trace.tables, a.step_count > 0)
            fill(a, out, *given)
            return out.base

        return filled

    parts = {
        "operations": part(_of_operations, waits),
        "trace": part(_of_trace, ranks, engine),
        "kernels": part(_of_kernels, waits),
        "host": part(_of_host, ranks),
        "evidence": part(_evidence),
        "model": part(_of_model, weight_bytes, decoder, acceptance),
    }
    base = FactBase()
    for each in run_tasks(a.trace.threads, parts).values():
        base.update(each)
    explain_missing(a, base, CATALOGUE)
    return base


def _views(a: Profiled, out: FactWriter) -> list[View]:
    return [(a.seen_from(device), device, out.at(Scope(device=device))) for device in a.devices]


def _of_trace(
    a: Profiled, out: FactWriter, ranks: communication.CrossRank | None, engine: str | None
) -> None:
    serving.side_facts(a, out)
    sums.sums_facts(a, out)
    load.load_facts(a, out)
    provenance.stack_facts(a, out)
    provenance.match_facts(a, out)
    damage.window_facts(a, out)
    communication.turn_facts(a, out)
    waits.interruption_facts(a, out)
    waits.request_facts(a, out)
    capture.capture_facts(a, out)
    if ranks is None:
        communication.rank_facts(a, out)
    else:
        ranks.put(out)
    activity.over_time(a, out)
    memory.reservation_facts(a, engine, out)
    for number in activity.sampled_devices(a):
        put = out.at(Scope(device=number))
        activity.sampled_facts(a, number, put)
        memory.memory_facts(a, number, put)


def _of_operations(a: Profiled, out: FactWriter, waits: Mapping[int, Array]) -> None:
    for view in _views(a, out):
        operations.layer_facts(*view)  # needs no budget
        operations.operation_facts(*view, waits.get(view[1]))
        operations.expert_facts(*view)


def _of_host(a: Profiled, out: FactWriter, ranks: communication.CrossRank | None) -> None:
    for view in _views(a, out):
        of_host, waited = (ranks.of_host, ranks.waited) if ranks else ({}, {})
        host.host_facts(*view, of_host.get(view[1]), waited.get(view[1]))
        waits.wait_facts(*view)
        waits.sync_call_facts(*view)
        waits.other_call_facts(*view)
        waits.switch_facts(*view)
        ties.tie_facts(*view)
        memory.memory_facts(*view)
        copies.copy_facts(*view)
        copies.memset_facts(*view)
        serving.replay_facts(*view)
        memory.retry_facts(*view)
        serving.transfer_facts(*view)  # reads those of the host


def _of_kernels(a: Profiled, out: FactWriter, waits: Mapping[int, Array]) -> None:
    for view in _views(a, out):
        device.device_facts(*view)
        memory.unified_facts(*view)  # knows places of device.device_facts better
        operations.in_use_facts(*view)
        operations.shape_facts(*view)
        phases.pass_facts(*view)
        drift.drift_facts(*view)
        damage.node_time_facts(*view)
        communication.communication_facts(*view, waits.get(view[1]))
        communication.network_facts(*view)
        activity.sampled_facts(*view)


def _of_model(
    a: Profiled, out: FactWriter, weight_bytes: int | None, decoder: Decoder | None, acceptance: float | None
) -> None:
    for view in _views(a, out):
        own, number, put = view
        sized = matmuls(own, number)
        weights = weight_bytes or recorded_weights(own, sized)
        provenance.provenance_facts(*view, sized)
        operators.operator_facts(*view)
        activity.activity_facts(*view, weights)
        phases.phase_facts(*view, weights)
        serving.speculation_facts(*view, acceptance)
        serving.batch_facts(own, put)
        serving.rate_facts(*view, weights, decoder.parameters if decoder else None)
        phases.product_facts(*view, decoder)


def _evidence(a: Profiled, out: FactWriter) -> None:
    for view in _views(a, out):
        evidence(*view)
        provenance.call_site_tables(*view)
