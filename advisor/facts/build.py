"""All facts of one trace."""

from __future__ import annotations

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
from advisor.facts.waits import interruption_facts, other_call_facts, switch_facts, wait_facts
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.metrics.matmuls import Decoder, matmuls, recorded_weights
from advisor.model.facts import FactBase, Scope


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
    tokens that one verification of drafts yields."""
    window = a.window
    out = FactWriter(CATALOGUE, (window.start, window.end), a.trace.tables)
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
    for device in a.devices:
        own, put = a.on(device), out.at(Scope(device=device))
        device_facts(own, device, put)
        in_use_facts(own, device, put)
        shape_facts(own, device, put)
        pass_facts(own, device, put)
        expert_facts(own, device, put)
        layer_facts(own, device, put)
        host_facts(own, device, put)
        wait_facts(own, device, put)
        other_call_facts(own, device, put)
        switch_facts(own, device, put)
        memory_facts(own, device, put)
        copy_facts(own, device, put)
        unified_facts(own, device, put)
        sized = matmuls(own, device)
        provenance_facts(own, device, put, sized)
        weights = weight_bytes or recorded_weights(own, sized)
        activity_facts(own, device, put, weights)
        phase_facts(own, device, put, weights)
        speculation_facts(own, device, put, acceptance)
        transfer_facts(own, device, put)
        batch_facts(own, put)
        rate_facts(own, device, put, weights, decoder.parameters if decoder else None)
        product_facts(own, device, put, decoder)
        waits = ranks.waits.get(device) if ranks else None
        operation_facts(own, device, put, waits)
        drift_facts(own, device, put)
        communication_facts(own, device, put, waits)
        network_facts(own, device, put)
        sampled_facts(own, device, put)
        evidence(own, device, put)
        call_site_tables(own, device, put)
    out.explain_missing(a)
    return out.base
