"""How much larger a batch may be by the sequences that run, as ranges name them, and the requests that
wait, as the engine's log counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.gain.fixes import room_for_batch
from advisor.gain.replay_ops import NoEstimate
from advisor.model.findings import Diagnosis
from tests.gain import scenes
from tests.gain.support import replayer
from tests.scenarios.machine import DECODE_LAYER, Machine
from tests.server_logs import Moment, Server, vllm

ROWS = ((scenes.GEMM, 40), (scenes.ATTENTION, 20))


def room(folder: Path, step: str) -> tuple[float, str]:
    return room_for_batch(replayer(scenes.kernels(*ROWS, step=step), folder).work)


@pytest.mark.parametrize(
    ("step", "times"),
    [
        ("execute_context_0(0)_generation_2(2)", 8),
        ("execute_context_0(0)_generation_40(40)", 4),
        ("step[DECODE bs=64 toks=64]", 2),
        ("iteration", 8),
    ],
)
def test_ranges_that_name_the_sequences_of_a_step_bound_a_larger_batch(
    step: str, times: int, tmp_path: Path
) -> None:
    """Up to some 190 tokens the products of an H200 wait for their weights."""
    n, why = room(tmp_path, step)
    assert n == times
    assert ("by their ranges" in why) == (step != "iteration")


def test_a_batch_at_the_ridge_has_no_room(tmp_path: Path) -> None:
    with pytest.raises(NoEstimate, match="decode steps run 128 sequences by their ranges"):
        room(tmp_path, "execute_context_0(0)_generation_128(128)")


def capture(folder: Path) -> Path:
    """A decode whose kernels have a few blocks."""
    m = Machine()
    for i in range(12):
        with m.step(f"decode_step {i}"):
            for kernel, us in DECODE_LAYER * 22:
                m.launch(kernel, 3 * us, grid=(16, 1, 1))
    return m.write(folder)


def promised(path: Path, moment: Moment | None) -> Diagnosis:
    """What is said of a capture with this log of its server."""
    if moment is None:
        return advisor.diagnose(path)
    log = path.with_name("server.log")
    log.write_text(vllm(Server(moments=[moment] * 12)))
    return advisor.diagnose(path, advisor.Options(log=log))


def times_as_much(d: Diagnosis) -> float | None:
    gains = [f.gain for f in d.findings if f.gain is not None and f.gain.what_if == "batch"]
    assert gains
    return next((float(g.params["n"]) for g in gains if g.speedup is not None), None)


def test_no_more_requests_than_wait_make_a_larger_batch(tmp_path: Path) -> None:
    """Without a log eight times as much is assumed. Where three requests wait for one that runs, four is all
    there is; where too few wait, a larger batch wins nothing, with the reason."""
    path = capture(tmp_path)
    assert times_as_much(promised(path, None)) == 8
    assert times_as_much(promised(path, Moment(running=1, waiting=3))) == 4
    idle = promised(path, Moment(running=2, waiting=1))
    assert times_as_much(idle) is None
    why = [str(f.gain.reason) for f in idle.findings if f.gain is not None and f.gain.what_if == "batch"]
    assert "1 requests wait by the log while 2 run" in why[0]
