"""GPUs: their peak rates, and features that only some of them have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import field

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Name, Pattern, Precision, Searched, Text
from advisor.model.capture import Device
from advisor.model.file_content import Constraint


class GpuSpec(Data, frozen=True, kw_only=True):
    """Peaks of one GPU as its vendor states them, dense; None if not known for certain."""

    name: Text
    match: Searched
    name_is_shared: bool = False
    source: Text
    sm: Annotated[int, Constraint(ge=60, le=130)] | None = None  # None for other vendors than NVIDIA
    dram_gb_per_s: Annotated[float, Constraint(ge=100, le=50_000)]
    sm_count: Annotated[int, Constraint(ge=10, le=400)] | None = None
    memory_gb: Annotated[int, Constraint(ge=4, le=1_000)] | None = None
    tensor_tflops: dict[Precision, float] = field(default_factory=dict)
    fp32_tflops: Annotated[float, Constraint(ge=1, le=200)] | None = None
    clock_mhz: Annotated[int, Constraint(ge=500, le=4_000)] | None = None
    l2_mib: Annotated[float, Constraint(ge=2, le=500)] | None = None
    last_level_mib: Annotated[float, Constraint(ge=2, le=4_000)] | None = None
    tdp_w: Annotated[int, Constraint(ge=10, le=3_000)] | None = None
    nvlink_gb_per_s: Annotated[float, Constraint(ge=50, le=8_000)] | None = None
    links: Literal["none", "bridge"] | None = None
    pcie_generation: Annotated[int, Constraint(ge=3, le=6)] | None = None
    htod_gb_per_s: Annotated[float, Constraint(ge=5, le=500)] | None = None

    @property
    def dram_bytes_per_s(self) -> float:
        return self.dram_gb_per_s * 1e9

    @property
    def htod_bytes_per_s(self) -> float | None:
        """The rate that large pinned copies reach in practice."""
        return None if self.htod_gb_per_s is None else self.htod_gb_per_s * 1e9

    def flop_per_s(self, precision: Precision) -> float | None:
        """Dense peak for operands of this precision; fp32 is that of the ordinary cores."""
        if precision == "fp32":
            value = self.fp32_tflops
        else:
            value = self.tensor_tflops.get("fp16" if precision == "bf16" else precision)
        return None if value is None else value * 1e12


class Generations(Data, frozen=True, kw_only=True):
    """Compute capabilities, both ends included."""

    since: float
    until: float = 1e3


class GpuFeature(Data, frozen=True, kw_only=True):
    """The GPUs with a feature, by vendor (none of one not named). `words`: how texts refer to it."""

    nvidia: Generations | None = None
    amd: Generations | None = None
    words: Pattern
    source: Text


class GpuFile(File, frozen=True, kw_only=True):
    features: dict[Name, GpuFeature]
    gpus: Annotated[list[GpuSpec], Constraint(min_length=1)]


#: GPUs of AMD, by name.
_AMD = r"AMD|Radeon|Instinct|\bMI\d"

#: What a driver calls a board that came after it (nvidia-smi on a pre-release tray of Vera Rubin, vr200 of
#: NVIDIA/k8s-test-infra).
_NAMELESS = "NVIDIA Graphics Device"

#: A part of a GPU: ``NVIDIA H100 80GB HBM3 MIG 1g.10gb``.
_SLICE = re.compile(r"\bMIG \d+g\.")


@cache
def gpus() -> tuple[GpuSpec, ...]:
    return tuple(shipped("gpus.yaml", GpuFile).gpus)


@cache
def gpu(name: str | None, sm_count: int | None = None) -> GpuSpec | None:
    """The GPU of this name (as ``TARGET_INFO_GPU.name`` spells it), with `sm_count` if boards share it,
    or None; of a slice of one (MIG) no peak is known."""
    if _SLICE.search(name or ""):
        return None
    named = (g for g in gpus() if g.match.found(name or ""))
    return next((g for g in named if not g.name_is_shared or g.sm_count == sm_count), None)


def gpu_of(device: Device) -> GpuSpec | None:
    """The GPU model of a device; where its driver has no name for it yet, that of its compute capability
    if only one is known to have it."""
    if device.name == _NAMELESS and device.compute_capability:
        major, minor = device.compute_capability
        alike = [g for g in gpus() if g.sm == 10 * major + minor]
        return alike[0] if len(alike) == 1 else None
    return gpu(device.name, device.sm_count)


def dram_peak(device: Device) -> float | None:
    """Peak DRAM bandwidth, bytes/s: the lower of device and data sheet; None if neither is known."""
    about = gpu_of(device)
    known = (device.bandwidth_bytes_per_s, about.dram_bytes_per_s if about else None)
    return min((rate for rate in known if rate), default=None)


def l2_bytes(device: Device) -> float | None:
    """As reported by the device, else from the table."""
    about = gpu_of(device)
    return device.l2_bytes or (about.l2_mib * 2**20 if about and about.l2_mib else None)


def cached_bytes(device: Device) -> float:
    """Bytes that need not come from memory: those of the largest cache of the device, or where that is not
    known of any GPU."""
    about = gpu_of(device)
    if about and about.last_level_mib:
        return about.last_level_mib * 2**20
    return l2_bytes(device) or max(max(g.l2_mib or 0, g.last_level_mib or 0) for g in gpus()) * 2**20


def gpu_links(device: Device) -> str | None:
    """How GPUs of this model reach each other: ``NVLink``, ``bridge`` (between pairs of boards), ``PCIe``;
    None if unknown."""
    about = gpu_of(device)
    if about is None:
        return None
    if about.links is not None:
        return {"none": "PCIe", "bridge": "bridge"}[about.links]
    return "NVLink" if about.nvlink_gb_per_s else None


@cache
def gpu_features() -> Mapping[str, GpuFeature]:
    """Features that only some GPUs have, by name."""
    return MappingProxyType(shipped("gpus.yaml", GpuFile).features)


def gpu_has(feature: str, device: Device) -> bool | None:
    """Whether the device has it, by its vendor and compute capability; None if that is unknown."""
    about, known = gpu_of(device), gpu_features()[feature]
    those = known.amd if re.search(_AMD, device.name or "") else known.nvidia
    if those is None:
        return False
    if device.compute_capability:
        capability = float("{}.{}".format(*device.compute_capability))
    elif about and about.sm:
        capability = about.sm / 10
    else:
        return None
    return those.since <= capability <= those.until
