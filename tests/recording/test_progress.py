"""What a terminal shows while a command is recorded."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.recording.conftest import Made

pexpect = pytest.importorskip("pexpect")


@pytest.mark.slow
def test_the_line_says_what_it_waits_for_and_makes_room_for_output(nsys: Made) -> None:
    nsys()
    code = "import time\nfor i in range(4): time.sleep(0.8); print('line', i, flush=True)"
    words = ["-m", "advisor", "run", "--once", "--delay", "2", "--", sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "TERM": "xterm"}
    child = pexpect.spawn(sys.executable, words, env=env, timeout=120, encoding="utf-8")
    shown = child.read()
    assert "run-1: skipping the first 2 s, " in shown
    assert re.search(r"run-1: recording, [\d.]+ KB, \d s", shown)
    for number in range(1, 4):
        assert f"\r\x1b[Kline {number}" in shown
