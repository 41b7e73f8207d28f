"""The first screen of printed tables and of a server's log: the largest rows, the load, and no more than a
text can prove."""

from __future__ import annotations

from pathlib import Path

import advisor
from tests.pasted import pasted
from tests.profiler_tables import table
from tests.reports.fixture import plain
from tests.scenarios.test_profiler_tables import Scene
from tests.server_logs import Server, vllm
from tests.sources.test_pasted import ALL


def screen(folder: Path, text: str) -> str:
    path = folder / "given.txt"
    path.write_text(text)
    return plain(advisor.diagnose(path), width=100)


def test_the_largest_rows_of_a_profiler_table_have_our_names(tmp_path: Path) -> None:
    text = screen(tmp_path, table(Scene(product_us=4.0, small=100).rows()))
    assert "by the sums alone" in text
    assert "of the capture" not in text
    assert "GEMM (nvjet)" in text
    assert "nvjet_sm90" in text


def test_the_largest_rows_of_a_table_of_nsys_have_our_names(tmp_path: Path) -> None:
    assert "attention" in screen(tmp_path, pasted(ALL, "columns"))


def test_a_table_without_the_gpu_shows_the_operators(tmp_path: Path) -> None:
    rows = [r for r in Scene().rows() if not r.gpu]
    assert "aten::mm" in screen(tmp_path, table(rows, backend=None))


def test_the_load_of_a_server_is_one_line(tmp_path: Path) -> None:
    text = screen(tmp_path, vllm(Server()))
    assert "16 requests run" in text
    assert "800 tokens/s" in text
