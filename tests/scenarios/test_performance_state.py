"""A busy board in a low performance state, as nvidia-smi prints it: a lock or a supply, not the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.scenarios.support import fact, ranked, severity

#: What `nvidia-smi` prints of one GPU.
SCREEN = """Sun Nov 29 12:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 3060        On  |   00000000:01:00.0 Off |                  N/A |
| 30%   48C    {state}            {watts:3d}W /  170W |   11800MiB /  12288MiB |    {busy:3d}%      Default |
+-----------------------------------------+------------------------+----------------------+
"""


Made = Callable[[Path, str, int], Diagnosis]


def screen(folder: Path, state: str, watts: int, busy: int = 98) -> Diagnosis:
    path = folder / "nvidia-smi.txt"
    path.write_text(SCREEN.format(state=state, watts=watts, busy=busy))
    return advisor.diagnose(path)


def log(folder: Path, state: str, watts: int) -> Diagnosis:
    """A minute of one sample a second."""
    path = folder / "smi.csv"
    lines = ["timestamp, name, pstate, utilization.gpu [%], power.draw [W], power.limit [W]"]
    lines += [
        f"2026/11/29 12:00:{i:02d}.000, NVIDIA GeForce RTX 3060, {state}, 97 %, {watts} W, 170.00 W"
        for i in range(60)
    ]
    path.write_text("\n".join(lines) + "\n")
    return advisor.diagnose(path)


@pytest.mark.parametrize("made", [screen, log])
def test_a_busy_board_in_a_low_state_far_from_its_limits(tmp_path: Path, made: Made) -> None:
    """Before the memory that is nearly full: a smaller batch would not release the clocks."""
    d = made(tmp_path, "P3", 33)
    assert ranked(d)[0] == "low-performance-state"
    assert severity(d, "low-performance-state") == "high"
    assert d.findings[0].recommendations[0].id == "release-clocks"
    assert fact(d, "clock.performance_state") == "P3"
    assert fact(d, "clock.low_state_ratio") == 1.0
    assert fact(d, "clock.low_state_window_ratio") == 1.0
    assert fact(d, "clock.power_over_limit") == pytest.approx(33 / 170)


@pytest.mark.parametrize("made", [screen, log])
@pytest.mark.parametrize("state", ["P0", "P2"])
def test_a_board_in_the_state_in_which_it_computes(tmp_path: Path, made: Made, state: str) -> None:
    """The healthy partner: GeForce boards run CUDA in P2."""
    assert severity(made(tmp_path, state, 150), "low-performance-state") is None


@pytest.mark.parametrize("made", [screen, log])
def test_a_board_at_its_power_limit(tmp_path: Path, made: Made) -> None:
    """The near miss: what holds it down is the limit."""
    assert severity(made(tmp_path, "P3", 169), "low-performance-state") is None


def test_an_idle_board_rests_in_a_low_state(tmp_path: Path) -> None:
    assert severity(screen(tmp_path, "P8", 12, busy=0), "low-performance-state") is None
