"""``advisor run --passes``: what a recording cannot answer becomes the plan of the next one."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from advisor.cli.main import main
from tests.recording.conftest import Made
from tests.recording.standin import StandIn
from tests.recording.test_run import LONG, PY, QUICK, Started, files, marked, needs_proc, record
from tests.scenarios.machine import SILU, Machine

Captured = pytest.CaptureFixture[str]


def steps(folder: Path, *, blocked: bool) -> Path:
    """Steps during which the host waits; with `blocked` calls of the system are recorded, too."""
    m = Machine()
    for i in range(12):
        with m.step(f"step {i}"):
            m.layers(30, [(SILU, 20)] * 8)
            m.wait()
            if blocked:
                m.blocked(3000, "pthread_cond_timedwait")
            else:
                m.work(3000)
    folder.mkdir()
    return m.write(folder)


@pytest.fixture
def tool(nsys: Made, tmp_path: Path) -> StandIn:
    """An nsys whose capture has calls of the system where they are traced."""
    plain, more = steps(tmp_path / "plain", blocked=False), steps(tmp_path / "more", blocked=True)
    return nsys(export=str(plain), export_with={"osrt": str(more)})


def run(*words: str, command: list[str] = QUICK) -> int:
    return main(["run", "--delay", "0", "-q", *words, "--", *command])


def test_a_second_pass_judges_what_the_first_could_not(tool: StandIn, capsys: Captured) -> None:
    assert run() == 0
    err = capsys.readouterr().err
    first, second = tool.profiled
    assert "pass 2 would add " in err
    added = [o for o in second if o not in first and not o.startswith("--output")]
    assert any("osrt" in o for o in added)
    assert {"--cuda-graph-trace=node", "--duration=30"} <= {*first} & {*second}
    kept = record()
    (more,) = kept["passes"]
    assert "HST104" in more["waiting"]
    assert "HST104" in more["decided"]
    assert f"judged {len(more['decided'])} of {len(more['waiting'])} rules that waited" in err
    assert any(note.startswith("no pass could answer") for note in kept["notes"])
    assert kept["captures"] == ["capture.sqlite"]
    assert {p.name for p in Path(".advisor/runs/run-1/pass-1").iterdir()} == {
        "capture.sqlite",
        "capture.nsys-rep",
    }
    diagnosis = json.loads(Path(".advisor/runs/run-1/diagnosis.json").read_text())
    assert "HST104" not in {n["code"] for n in diagnosis["not_evaluated"]}
    assert main(["runs", "show", "run-1"]) == 0
    assert "pass 2" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--once",), ("--passes", "1")])
def test_one_pass(tool: StandIn, words: tuple[str, ...]) -> None:
    assert run(*words) == 0
    assert len(tool.profiled) == 1
    assert record()["passes"] == []


@pytest.mark.slow
def test_it_ends_when_there_is_nothing_to_add(tool: StandIn, capsys: Captured) -> None:
    """Each pass adds something; the same plan is never recorded twice."""
    assert run("--passes", "9") == 0
    plans = [tuple(o for o in p if not o.startswith("--output")) for p in tool.profiled]
    assert 2 <= len(plans) < 9
    assert len(set(plans)) == len(plans)
    assert capsys.readouterr().err.count(" would add ") == len(plans) - 1


@pytest.mark.slow
def test_again_repeats_the_last_plan_once(tool: StandIn) -> None:
    assert run() == 0
    assert main(["run", "--again", "-q"]) == 0
    assert len(tool.profiled) == 3
    *_, second, third = ([o for o in p if not o.startswith("--output")] for p in tool.profiled)
    assert second == third


@pytest.mark.slow
def test_counters_that_were_refused_are_not_asked_for_again(tool: StandIn) -> None:
    behaviour = json.loads((tool.folder / "behaviour.json").read_text())
    tool.behave(**behaviour, refuses_counters="ERR_NVGPUCTRPERM")
    assert main(["run", "bandwidth", "--delay", "0", "-q", "--passes", "3", "--", *QUICK]) == 0
    with_counters = [p for p in tool.profiled if any(o.startswith("--gpu-metrics") for o in p)]
    assert with_counters == tool.profiled[:1]


@pytest.mark.slow
def test_a_pass_that_fails_leaves_the_one_before(tool: StandIn, capsys: Captured) -> None:
    known = json.loads((tool.folder / "behaviour.json").read_text())
    tool.behave(**known, fails_with="osrt")
    assert run() == 0
    err = capsys.readouterr().err
    assert "pass 2 failed, pass 1 is diagnosed" in err
    kept = record()
    assert (kept["state"], kept["passes"], kept["captures"]) == ("diagnosed", [], ["capture.sqlite"])
    assert "pass-1" not in files()
    assert {"capture.sqlite", "capture.nsys-rep"} <= files()


@pytest.mark.slow
def test_no_second_pass_after_a_failure_or_a_limit(tool: StandIn) -> None:
    assert run(command=[PY, "-c", "raise SystemExit(3)"]) == 3
    assert run("--stop-after", "1", command=LONG) == 0
    assert len(tool.profiled) == 2


@pytest.mark.slow
@needs_proc
def test_ctrl_c_in_the_second_pass_keeps_the_first(tool: StandIn) -> None:
    code = "import os, time\nif os.path.exists('once'): open('twice', 'w'); time.sleep(60)\nopen('once', 'w')"
    begun = Started("--passes", "2", "--delay", "0", command=[PY, "-c", code], once=False)
    exit_code, out, err = begun.when(Path("twice"), signal.SIGINT)
    assert (exit_code, marked()) == (130, [])
    assert "capture.sqlite" in out
    assert "pass 1 is diagnosed" in err
    assert record()["state"] == "diagnosed"
    assert len(tool.profiled) == 2


def test_weights_are_read_where_the_command_names_them(tool: StandIn) -> None:  # noqa: ARG001
    Path("model").mkdir()
    config = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 4}
    config |= {"vocab_size": 100, "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}
    Path("model/config.json").write_text(json.dumps(config))
    found = []
    for words in (["--model", "other"], ["--model", "model"], ["--model=model"], ["model/config.json"]):
        assert run("--once", command=[*QUICK, *words]) == 0
        saved = json.loads(Path(f".advisor/runs/run-{len(found) + 1}/diagnosis.json").read_text())
        found.append("activity.dram_bound_window_ratio" in {f["name"] for f in saved["facts"]})
    assert found == [False, True, True, True]
