"""GPUs: what they reach at most, and what only some of them can do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from advisor.knowledge.files import shipped
from advisor.knowledge.kernel_names import pattern
from advisor.knowledge.shapes import GpuFeature, GpuFile, GpuSpec
from advisor.model.capture import Device

#: GPUs of AMD, by name.
_AMD = r"AMD|Radeon|Instinct|\bMI\d"

#: A part of a GPU: ``NVIDIA H100 80GB HBM3 MIG 1g.10gb``.
_SLICE = re.compile(r"\bMIG \d+g\.")


@cache
def gpus() -> tuple[GpuSpec, ...]:
    return tuple(shipped("gpus.yaml", GpuFile).gpus)


@cache
def gpu(name: str | None) -> GpuSpec | None:
    """The GPU of this name (as ``TARGET_INFO_GPU.name`` spells it), or None; of a slice of one (MIG)
    no peak is known."""
    if _SLICE.search(name or ""):
        return None
    return next((g for g in gpus() if any(pattern(p).found(name or "") for p in g.match)), None)


def dram_peak(device: Device) -> float | None:
    """Peak DRAM bandwidth, bytes/s: what the device reports or the datasheet says, the lower where
    both do; None where neither does."""
    about = gpu(device.name)
    known = (device.bandwidth_bytes_per_s, about.dram_bytes_per_s if about else None)
    return min((rate for rate in known if rate), default=None)


@cache
def gpu_features() -> Mapping[str, GpuFeature]:
    """What only some GPUs can do, by name."""
    return MappingProxyType(shipped("gpus.yaml", GpuFile).features)


def gpu_has(feature: str, device: Device) -> bool | None:
    """Whether the device can do it, by its compute capability; None where that is not known."""
    about, known = gpu(device.name), gpu_features()[feature]
    if device.compute_capability:
        capability = float("{}.{}".format(*device.compute_capability))
    elif about and about.sm:
        capability = about.sm / 10
    else:
        return None
    those = known.amd if re.search(_AMD, device.name or "") else known.nvidia
    return those is not None and those.since <= capability <= those.until
