"""The first screen of printed tables and of a server's log: the largest rows, the load, and no more than a
text can prove."""

from __future__ import annotations

from pathlib import Path

import advisor
from tests.pasted import pasted
from tests.profiler_tables import table
from tests.reports.fixture import plain
from tests.scenarios.test_profiler_tables import Scene
from tests.server_logs import Moment, Server, vllm
from tests.sources.test_pasted import ALL

CAPTURE = Path(__file__).parents[2] / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"


def screen(folder: Path, text: str) -> str:
    path = folder / "given.txt"
    path.write_text(text)
    return plain(advisor.diagnose(path), width=100)


def test_the_largest_rows_of_a_profiler_table_have_our_names(tmp_path: Path) -> None:
    text = screen(tmp_path, table(Scene(product_us=4.0, small=100).rows()))
    assert "by the sums alone" in " ".join(text.split())
    assert "of the capture" not in text
    assert "GEMM (nvjet)" in text
    assert "nvjet 192x192" in text


def test_the_largest_rows_of_a_table_of_nsys_have_our_names(tmp_path: Path) -> None:
    assert "attention" in screen(tmp_path, pasted(ALL, "columns"))


def test_a_table_without_the_gpu_shows_the_operators(tmp_path: Path) -> None:
    rows = [r for r in Scene().rows() if not r.gpu]
    assert "aten::mm" in screen(tmp_path, table(rows, backend=None))


def test_the_load_of_a_server_is_one_line(tmp_path: Path) -> None:
    text = screen(tmp_path, vllm(Server()))
    assert "16 requests running" in text
    assert "800 tokens/s" in text


def test_a_promise_says_what_it_means_in_tokens(tmp_path: Path) -> None:
    """A step of the capture takes 9.6 ms: so does a token of one request at 104 tokens a second."""
    log = tmp_path / "server.log"
    for tokens, wanted in ((104.0, "a second at this load"), (20.0, "not one load")):
        log.write_text(vllm(Server(moments=[Moment(running=1, output=tokens)] * 6)))
        shown = plain(advisor.diagnose(CAPTURE, advisor.Options(log=log)), width=120)
        assert wanted in shown
