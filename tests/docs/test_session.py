"""The session at the beginning of the tour: the program prints it, with the captures that it names."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from advisor.cli.main import main
from tests.recording.standin import StandIn
from tests.test_captures import committed

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"
#: Lines that say how long something took.
_TAKES = re.compile(r"advisor: recorded .* in [\d.]+ s")


def session(number: int) -> tuple[list[str], list[str]]:
    """The words of the command, and the lines that it prints until what is left out."""
    text = TOUR.read_text(encoding="utf-8").split(f"<!-- session {number} -->\n```console\n$ advisor ")[1]
    command, *lines = text.partition("[…]")[0].splitlines()
    return command.split(), lines


def test_the_session_of_the_tour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    Path("generate.py").write_text("print()\n")
    for number, name in ((1, "decode_eager_bs1"), (2, "decode_graph_bs1")):
        export = tmp_path / f"{name}.sqlite"
        export.write_bytes(lzma.decompress(committed(name).read_bytes()))
        StandIn(tmp_path / "bin", export, says="NVIDIA Nsight Systems version 2023.4.4.54")
        words, printed = session(number)
        assert main(words) == 0
        said = capsys.readouterr()
        lines = [line for line in (said.err + said.out).splitlines() if line.startswith("advisor")]
        lines += said.out.splitlines()
        for line in printed:
            if not _TAKES.fullmatch(line):
                assert line in lines
        assert any(_TAKES.fullmatch(line) for line in lines)
