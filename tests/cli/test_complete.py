"""What the shell completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builder import Export


def completed(line: str, folder: Path) -> list[str]:
    """What bash would offer for the last word of the line."""
    words = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_ADVISOR_COMPLETE": "complete_bash",
    }
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'advisor'; from advisor.cli.main import run; run()",
        ],
        env={**os.environ, **words, "PYTHONPATH": root},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("advisor explain LCH101", "LCH101"),
        ("advisor show a.sqlite launch-b", "launch-bound"),
        ("advisor whatif a.sqlite --fix cuda_g", "cuda_graphs"),
        ("advisor capture --engine vl", "vllm"),
        ("advisor diagnose a.sqlite --nvtx dec", "decode_step"),
        ("advisor diagnose a.sqlite --select LCH101,SYN10", "LCH101,SYN101"),
        ("advisor diagnose absent.sqlite --nvtx dec", None),
    ],
)
def test_values(tmp_path: Path, line: str, offered: str | None) -> None:
    Export().process(1).range("decode_step", 0, 90_000).launch(at=10_000).write(tmp_path / "a.sqlite")
    found = completed(line, tmp_path)
    assert (offered in found) if offered else not found
    assert all(word.startswith(line.split()[-1]) for word in found)
