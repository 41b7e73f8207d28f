"""A scrape of the DCGM exporter is one sample of each GPU; a second scrape is the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.sources.open import open_trace


def scrape(*busy: float) -> str:
    lines = ["# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).", "# TYPE DCGM_FI_DEV_POWER_USAGE gauge"]
    for metric, scale in (("DCGM_FI_DEV_POWER_USAGE", 400.0), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.0)):
        lines += [
            f'{metric}{{gpu="{i}",UUID="GPU-{i}",modelName="NVIDIA H100 80GB HBM3"}} {b * scale}'
            for i, b in enumerate(busy)
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("scrapes", [1, 2, 5])
def test_each_scrape_is_a_sample_of_each_gpu(tmp_path: Path, scrapes: int) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(scrape(0.5, 0.25) * scrapes)
    with open_trace(path) as trace:
        assert trace.capture.format == "DCGM exporter"
        assert [d.name for d in trace.devices] == ["NVIDIA H100 80GB HBM3"] * 2
        samples = trace.columns("samples", ("device", "gr_active", "power_w"))
        assert sorted(samples["device"].tolist()) == [0] * scrapes + [1] * scrapes
        first = samples["device"] == 0
        assert samples["gr_active"][first].tolist() == [0.5] * scrapes
        assert samples["power_w"][~first].tolist() == [100.0] * scrapes


def test_power_at_the_moment_counts_before_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    more = {"DCGM_FI_DEV_POWER_USAGE_INSTANT": 250, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 600}
    lines = [f'{metric}{{gpu="0",modelName="NVIDIA GB300"}} {watts}\n' for metric, watts in more.items()]
    path.write_text(scrape(0.5) + "".join(lines))
    with open_trace(path) as trace:
        read = trace.columns("samples", ("power_w", "power_limit_w"))
        assert [read[n].tolist() for n in ("power_w", "power_limit_w")] == [[250.0], [600.0]]


def test_lines_without_a_value_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(scrape(0.5) + 'DCGM_FI_PROF_SM_ACTIVE{gpu="0"} \nDCGM_FI_DEV_SM_CLOCK{gpu="0"\n')
    with open_trace(path) as trace:
        assert trace.columns("samples", ("gr_active",))["gr_active"].tolist() == [0.5]
