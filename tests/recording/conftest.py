from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recording.standin import StandIn
from tests.scenarios.machine import SILU, Machine

Made = Callable[..., StandIn]


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small capture of decode steps that the host launches too slowly."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.layers(30, [(SILU, 1.5)] * 8)
            m.wait()
    return m.write(tmp_path_factory.mktemp("export"))


@pytest.fixture
def nsys(tmp_path: Path, export: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes the nsys of PATH, in an empty current folder."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TEST_FOLDER", str(tmp_path))
    monkeypatch.setattr("advisor.recording.nsys._IMPORTERS", ("../host-linux-*/QdstrmImporter",))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def make(**behaviour: Any) -> StandIn:
        return StandIn(tmp_path / "bin", export, **behaviour)

    return make
