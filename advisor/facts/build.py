"""All facts of one trace."""

from __future__ import annotations

from advisor.facts.activity import activity_facts, opaque_activity_facts
from advisor.facts.capture import capture_facts
from advisor.facts.copies import copy_facts
from advisor.facts.device import device_facts
from advisor.facts.evidence import evidence
from advisor.facts.host import host_facts
from advisor.facts.operations import operation_facts
from advisor.facts.phases import phase_facts
from advisor.facts.writer import FactWriter
from advisor.metrics.analysis import Analysis
from advisor.model.facts import FactBase


def build_facts(a: Analysis, weight_bytes: int | None = None) -> FactBase:
    """Facts, entities and evidence of one trace; `weight_bytes` is what a step reads of weights."""
    window = a.window
    out = FactWriter((window.start, window.end))
    capture_facts(a, out)
    opaque_activity_facts(a, out)
    for device in a.devices:
        device_facts(a, device, out)
        host_facts(a, device, out)
        copy_facts(a, device, out)
        activity_facts(a, device, out, weight_bytes)
        phase_facts(a, device, out)
        operation_facts(a, device, out)
        evidence(a, device, out)
    out.explain_missing(a.trace.tables)
    return out.base
