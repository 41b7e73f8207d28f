"""All facts of one trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from advisor.facts.activity import activity_facts, sampled_devices, sampled_facts
from advisor.facts.capture import capture_facts
from advisor.facts.catalog import CATALOGUE
from advisor.facts.communication import CrossRank, communication_facts, network_facts, rank_facts, turn_facts
from advisor.facts.copies import copy_facts
from advisor.facts.damage import window_facts
from advisor.facts.device import device_facts
from advisor.facts.evidence import evidence
from advisor.facts.host import host_facts
from advisor.facts.memory import memory_facts, unified_facts
from advisor.facts.operations import expert_facts, in_use_facts, layer_facts, operation_facts, shape_facts
from advisor.facts.passes import pass_facts
from advisor.facts.phases import drift_facts, phase_facts, product_facts, rate_facts
from advisor.facts.provenance import call_site_tables, match_facts, provenance_facts, stack_facts
from advisor.facts.serving import batch_facts, side_facts, speculation_facts, transfer_facts
from advisor.facts.sums import sums_facts
from advisor.facts.waits import (
    interruption_facts,
    other_call_facts,
    switch_facts,
    sync_call_facts,
    wait_facts,
)
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.matmuls import Decoder, matmuls, recorded_weights
from advisor.model.arrays import Array
from advisor.model.facts import FactBase, Scope
from advisor.model.once import at_once

#: A device, the analysis of it, and where its facts go.
View = tuple[Analysis, int, FactWriter]


def build_facts(
    a: Analysis,
    weight_bytes: int | None = None,
    ranks: CrossRank | None = None,
    decoder: Decoder | None = None,
    acceptance: float | None = None,
) -> FactBase:
    """Facts, entities and evidence of one trace; `weight_bytes` is the size of the weights that a step
    reads (if not given, it follows from the recorded sizes of its products), `decoder` the sizes of the
    model, `ranks` the cross-rank values of several ranks in this capture, `acceptance` the number of
    tokens that one verification of drafts yields.

    Parts of it run at the same time for a large capture: none reads or replaces facts of another.
    """
    window = a.window
    out = FactWriter(CATALOGUE, (window.start, window.end), a.trace.tables)
    views = [(a.on(device), device, out.at(Scope(device=device))) for device in a.devices]
    waits = ranks.waits if ranks else {}
    at_once(
        a.trace.threads,
        lambda: (a.budgets, a.activity),  # they take longest, and all others but the next need them
        partial(_of_operations, views, waits),
        partial(_of_trace, a, out, ranks),
        partial(_evidence, views),
        partial(_of_host, views),
        partial(_of_kernels, views, waits),
        partial(_of_model, views, weight_bytes, decoder, acceptance),
    )
    out.explain_missing(a)
    return out.base


def _of_trace(a: Analysis, out: FactWriter, ranks: CrossRank | None) -> None:
    capture_facts(a, out)
    side_facts(a, out)
    sums_facts(a, out)
    stack_facts(a, out)
    match_facts(a, out)
    window_facts(a, out)
    turn_facts(a, out)
    interruption_facts(a, out)
    if ranks is None:
        rank_facts(a, out)
    else:
        ranks.put(out)
    for device in sampled_devices(a):
        put = out.at(Scope(device=device))
        sampled_facts(a, device, put)
        memory_facts(a, device, put)


def _of_operations(views: Sequence[View], waits: Mapping[int, Array]) -> None:
    for view in views:
        own, device, put = view
        operation_facts(own, device, put, waits.get(device))
        layer_facts(*view)
        expert_facts(*view)


def _of_host(views: Sequence[View]) -> None:
    for view in views:
        host_facts(*view)
        wait_facts(*view)
        sync_call_facts(*view)
        other_call_facts(*view)
        switch_facts(*view)
        memory_facts(*view)
        copy_facts(*view)
        transfer_facts(*view)  # reads those of the host


def _of_kernels(views: Sequence[View], waits: Mapping[int, Array]) -> None:
    for view in views:
        own, device, put = view
        device_facts(*view)
        unified_facts(*view)  # knows places of device_facts better
        in_use_facts(*view)
        shape_facts(*view)
        pass_facts(*view)
        drift_facts(*view)
        communication_facts(own, device, put, waits.get(device))
        network_facts(*view)
        sampled_facts(*view)


def _of_model(
    views: Sequence[View], weight_bytes: int | None, decoder: Decoder | None, acceptance: float | None
) -> None:
    for own, device, put in views:
        sized = matmuls(own, device)
        provenance_facts(own, device, put, sized)
        weights = weight_bytes or recorded_weights(own, sized)
        activity_facts(own, device, put, weights)
        phase_facts(own, device, put, weights)
        speculation_facts(own, device, put, acceptance)
        batch_facts(own, put)
        rate_facts(own, device, put, weights, decoder.parameters if decoder else None)
        product_facts(own, device, put, decoder)


def _evidence(views: Sequence[View]) -> None:
    for view in views:
        evidence(*view)
        call_site_tables(*view)
