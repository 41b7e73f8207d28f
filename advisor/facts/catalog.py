"""The catalogue of facts: what the modules that compute them declare, and the tables that rules may
join. The single source for rule checking, for ``advisor facts`` and for the documentation.

A fact without a value is missing, never zero. Definitions: docs/definitions.md.
"""

from __future__ import annotations

from advisor.facts import (
    activity,
    capture,
    communication,
    copies,
    damage,
    device,
    host,
    memory,
    operations,
    phases,
    provenance,
    serving,
    sums,
    waits,
)
from advisor.facts.spec import PART_MEANINGS, EntitySpec, FactSpec

#: What the impact of a rule may be a share of: a part of the budget, several of them, or a whole.
IMPACT_PARTS = (*PART_MEANINGS, "idle", "step", "steps", "capture")

_DECLARED = (
    *capture.FACTS, *capture.STARTUP_FACTS,
    *damage.FACTS, *device.FACTS, *host.FACTS, *waits.FACTS,
    *copies.FACTS, *memory.FACTS,
    *activity.FACTS, *phases.FACTS, *serving.FACTS,
    *provenance.FACTS, *operations.LAYER_FACTS, *operations.FACTS, *communication.FACTS,
    *communication.TURN_FACTS, *phases.DRIFT_FACTS, *sums.FACTS,
)  # fmt: skip

CATALOGUE: dict[str, FactSpec] = {spec.name: spec for spec in _DECLARED}

#: Facts made of all captures of a job; a single rank has none of them.
JOINT = frozenset(name for name, spec in CATALOGUE.items() if spec.over_ranks == "joint")

ENTITIES: dict[str, EntitySpec] = {
    spec.name: spec
    for spec in (
        EntitySpec("copy_class", "device", "Copies by direction and kind of memory", {
            "device": int, "kind": str, "memory": str, "count": int, "per_step": float,
            "bytes": int, "mean_bytes": float, "time_ratio": float, "exposed_ratio": float,
            "rate_bytes_per_s": float,
        }),
        EntitySpec("sync_call", "device", "Blocking calls by name", {
            "device": int, "name": str, "count": int, "per_step": float, "time_ratio": float,
            "idle_ratio": float, "p50_ns": float, "max_ns": float,
        }),
        EntitySpec("family", "device", "Kernel families", {
            "device": int, "family": str, "count": int, "time_ratio": float, "dram_ratio": float,
            "sm_ratio": float, "tensor_ratio": float,
        }),
    )
}  # fmt: skip
