"""The what-ifs: each a small change of the replay's inputs.

``apply(fix, inputs, work, scenario, lean)`` returns the changed inputs. `lean` is -1 for the
pessimistic reading of what the fix does, 0 for the one described in `knowledge/whatifs.yaml`, 1 for
the optimistic one. A fix that cannot be estimated here raises NoEstimate with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from advisor.gain import fixes_batch, fixes_device, fixes_host
from advisor.gain.catalog import Fix, catalogue
from advisor.gain.inputs import Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.work import NoEstimate, Work
from advisor.knowledge.gpus import gpu_has

Change = Callable[[Fix, Inputs, Work, Scenario, int], Inputs]

_NAMES = {
    fixes_host: "cuda_graphs faster_launches remove_sync async_readback async_memset remove_allocations"
    " remove_host_gap remove_gc remove_gil_wait",
    fixes_device: "pin_memory full_link_rate overlap_copy remove_copy fp8_weights int4_weights tensor_rate"
    " faster_products"
    " fp8_kv_cache int8_kv_cache int8_weights shorten_node_gaps fuse_elementwise"
    " overlap_communication one_shot_collectives",
    fixes_batch: "batch speculate fuse_experts balance_experts",
}
FIXES: dict[str, Change] = {n: getattr(module, n) for module, names in _NAMES.items() for n in names.split()}
#: Lines on what a fix rests on in this capture.
NUMBERS: dict[str, Callable[[Fix, Work], list[str]]] = {
    "balance_experts": fixes_batch.routing_numbers,
    "batch": fixes_batch.batch_numbers,
}
#: Fixes that leave the work of the device and its overlap as they are.
KEEPS_WORK = frozenset(_NAMES[fixes_host].split()) - {"async_readback"}
#: Fixes whose effect has a range of its own, beside the profiler's.
LEANING = frozenset((
    "cuda_graphs", "remove_host_gap", "pin_memory", "overlap_copy", "fp8_weights", "int4_weights",
    "tensor_rate", "faster_products", "fp8_kv_cache", "int8_kv_cache", "int8_weights", "batch", "speculate",
    "fuse_elementwise", "fuse_experts", "balance_experts", "shorten_node_gaps", "overlap_communication",
    "remove_sync", "full_link_rate", "faster_launches", "one_shot_collectives",
))  # fmt: skip


def settled(fix: Fix, work: Work) -> Fix:
    """The fix with what the capture decides: how many sequences a larger batch has. Raises NoEstimate."""
    if fix.what_if != "batch" or fix.number("n"):
        return fix
    return replace(fix, params={"n": fixes_batch.room_for_batch(work)[0]})


def apply(fix: Fix, inputs: Inputs, work: Work, scenario: Scenario, lean: int = 0) -> Inputs:
    """The inputs with one fix carried out. Raises NoEstimate."""
    feature = catalogue().whatifs[fix.what_if].feature
    if feature is not None and gpu_has(feature, work.a.device(work.a.main_device)) is False:
        raise NoEstimate(f"this GPU has no {feature.upper()}")
    return FIXES[fix.what_if](fix, inputs, work, scenario, lean)
