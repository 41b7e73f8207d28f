"""Nothing is advised that the GPU of a capture cannot run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.knowledge.engine_signs import Program, engines, options_for
from advisor.knowledge.gpus import gpu_features, gpu_has, gpus
from advisor.knowledge.package_data import data_dir
from advisor.model.capture import Device
from advisor.model.options import Options
from advisor.model.rules import Action
from advisor.pipeline.diagnose import all_rules, diagnose
from tests.builder import Export
from tests.scenarios.machine import ADD, DECODE_ATTENTION, GEMV, Machine

#: One GPU of every generation since Pascal, of NVIDIA and AMD.
DEVICES = [
    Device(id=0, name=name, compute_capability=capability)
    for name, capability in (
        ("Tesla P100-PCIE-16GB", (6, 0)), ("Tesla V100-SXM2-16GB", (7, 0)), ("Tesla T4", (7, 5)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)), ("NVIDIA GeForce RTX 3090", (8, 6)), ("NVIDIA L4", (8, 9)),
        ("NVIDIA H100 80GB HBM3", (9, 0)), ("NVIDIA B200", (10, 0)), ("NVIDIA B300 SXM6", (10, 3)),
        ("NVIDIA GeForce RTX 5090", (12, 0)), ("AMD Instinct MI210", (9, 0)),
        ("AMD Instinct MI300X", (9, 4)),
    )
]  # fmt: skip
#: Rules that need what only nsys records (options, environment, ranges of it, samples), or that speak of both
#: profilers: UTL100; or of an engine that runs on NVIDIA alone: LOD116.
OF_NSYS = {"CAP108", "CAP112", "CAP114", "CAP118", "CAP123", "CAP126", "LOD116", "UTL100"}
RULES = all_rules((data_dir("rules"),)).rules


def lacked(text: str, device: Device) -> list[str]:
    """What a text speaks of that the device cannot do."""
    return [n for n, f in gpu_features().items() if re.search(f.words, text) and gpu_has(n, device) is False]


def shown(advice: Action, device: Device) -> bool:
    """Whether what is known of the device alone lets the advice through."""
    known: dict[str, bool | None] = {f"gpu.{name}": gpu_has(name, device) for name in gpu_features()}
    if not gpu_has("nsight", device):
        known |= {
            "capture.nsys_recorded": False,
            "capture.refusal": None,
            "capture.next_refusal": None,
            "activity.work_recorded": None,
        }
    tests = [c for c in advice.applies_when if c.fact in known]
    return all((known[c.fact] == c.value) == (c.op != "ne") for c in tests if c.op in ("eq", "ne", "one_of"))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_no_advice_names_what_the_device_lacks(device: Device) -> None:
    found = [
        (rule.code, advice.id, lacked(advice.action, device))
        for rule in RULES
        for advice in (*rule.recommendations, *rule.alternatives)
        if shown(advice, device) and (rule.code not in OF_NSYS or gpu_has("nsight", device))
    ]
    assert len(found) > 100
    assert [one for one in found if one[2]] == []


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_no_option_line_names_what_the_device_lacks(device: Device) -> None:
    program = Program(device=device)
    lines = [o for n, e in engines().items() for topic in e.options for o in options_for(topic, n, program)]
    assert len(lines) > 100
    assert [(o.engine, o.line) for o in lines if lacked(o.line, device)] == []


def test_a_device_has_what_its_generation_has() -> None:
    has = {d.name: {n for n in gpu_features() if gpu_has(n, d)} for d in DEVICES}
    eight = {"tensor_cores", "bf16", "tf32", "int8", "cudnn_attention", "flashinfer", "nsight"}
    assert has["Tesla P100-PCIE-16GB"] == {"nsight"}
    assert has["Tesla V100-SXM2-16GB"] == {"tensor_cores", "nsight"}
    assert has["Tesla T4"] == {"tensor_cores", "int8", "flashinfer", "nsight"}
    assert has["NVIDIA A100-SXM4-80GB"] == has["NVIDIA GeForce RTX 3090"] == eight
    assert has["NVIDIA L4"] == {*eight, "fp8"}
    hopper = {*eight, "fp8", "dependent_launch", "wgmma", "multicast", "allreduce_fusion"}
    assert has["NVIDIA H100 80GB HBM3"] == hopper
    assert has["NVIDIA B200"] == has["NVIDIA B300 SXM6"] == {*hopper, "fp4", "mxfp8", "tcgen05"} - {"wgmma"}
    assert has["NVIDIA GeForce RTX 5090"] == {*eight, "fp8", "fp4", "mxfp8", "dependent_launch"}
    assert has["AMD Instinct MI210"] == {"tensor_cores", "bf16", "int8"}
    assert has["AMD Instinct MI300X"] == {"tensor_cores", "bf16", "int8", "fp8"}


def test_the_name_tells_where_the_capability_is_not_recorded() -> None:
    assert gpu_has("fp8", Device(id=0, name="NVIDIA A100-SXM4-80GB")) is False
    assert gpu_has("fp8", Device(id=0, name="NVIDIA H200")) is True
    assert gpu_has("fp8", Device(id=0)) is None
    assert gpu_has("nsight", Device(id=0, name="AMD Radeon of next year")) is False


def test_rates_are_given_for_types_that_the_device_takes() -> None:
    for about in gpus():
        # XF32 of AMD has a rate, and PyTorch's switch for TF32 no effect there.
        known = {n for n, f in gpu_features().items() if about.name.startswith("MI") is False or f.amd}
        for precision in set(about.tensor_tflops) & known:
            assert gpu_has(precision, Device(id=0, name=about.name)) is not False, about.name


@pytest.mark.parametrize(
    ("name", "capability", "width"),
    [("NVIDIA A100-SXM4-80GB", (8, 0), "int8"), ("NVIDIA H200", (9, 0), "fp8"), (None, None, "fp8")],
)
def test_a_memory_bound_decode_is_advised_what_its_gpu_takes(
    tmp_path: Path, name: str | None, capability: tuple[int, int] | None, width: str
) -> None:
    m = Machine(Export().gpu(name=name, bandwidth=2e12, capability=capability))
    weights = round(0.8 * 2e12 * 22 * 66e-6)
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, [(ADD, 2), (DECODE_ATTENTION, 4), (GEMV, 60)])
    d = diagnose(m.write(tmp_path), Options(weight_bytes=str(weights)))
    found = next(f for f in d.findings if f.cause == "memory-bandwidth-bound")
    assert found.gain is not None
    assert found.gain.what_if == f"{width}_weights"
    assert found.gain.speedup is not None
    assert found.recommendations[0].id == f"{width}-weights"
    other = "fp8" if width == "int8" else "int8"
    named = {r.id for r in found.recommendations} | {o.action for o in found.alternatives}
    assert f"{width}-kv-cache" in named
    assert not any(n.startswith(other) for n in named)
    assert not any(o.what_if.startswith(other) for o in d.options)
