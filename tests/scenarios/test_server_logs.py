"""Logs of serving engines with one known fault each, healthy ones, and near misses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import advisor
from advisor.cli.main import main
from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from tests.captures import committed
from tests.kineto_builder import Profile
from tests.scenarios.support import fact, ranked
from tests.server_logs import ENGINES, Moment, Server, llama, sglang, vllm

BUSY = Moment(running=16, output=800.0)
#: 24 tokens a second less for each request once prompts are read.
PROMPTS = [BUSY, replace(BUSY, output=350.0, prompt=9000.0)] * 8
MILD = [BUSY, replace(BUSY, output=640.0, prompt=9000.0)] * 8
LONG = [Moment(running=16, output=800.0, cache=0.1)] * 6 + [Moment(running=16, output=400.0, cache=0.6)] * 6
SHORT = [Moment(running=16, output=800.0, cache=0.1)] * 6 + [Moment(running=16, output=640.0, cache=0.6)] * 6
FULL = Moment(running=64, waiting=20, output=2400.0)
CLIFF = [Moment(running=48, output=2400.0)] * 8 + [Moment(running=80, output=1500.0, graph=False)] * 4
REPLICAS = [Moment(running=n, output=40.0 * n, replica=i) for _ in range(6) for i, n in enumerate((30, 6))]
EVEN = [Moment(running=n, output=40.0 * n, replica=i) for _ in range(6) for i, n in enumerate((20, 16))]
IDLE = [Moment(running=0, output=0.0)] * 8 + [BUSY] * 4


def of(moments: Sequence[Moment] | Moment, **settings: object) -> Server:
    return Server(moments=[moments] * 12 if isinstance(moments, Moment) else moments, **settings)  # type: ignore[arg-type]


#: Engine and server -> its only cause; None if nothing is wrong.
SCENES: dict[str, tuple[str, Server, str | None]] = {
    **{f"{e} healthy": (e, of(BUSY), None) for e in ENGINES},
    **{
        f"{e} idle": (e, of(IDLE), "server-without-requests")
        for e in ("vllm", "vllm-v0", "statistics", "prometheus")
    },
    **{f"{e} at its limit": (e, of(FULL), "batch-limit-reached") for e in ("vllm", "vllm-v0", "sglang")},
    **{
        f"{e} near its limit": (e, of(replace(FULL, running=60)), "requests-wait") for e in ("vllm", "sglang")
    },
    **{
        f"{e} at its limit, few wait": (e, of([FULL] * 3 + [replace(FULL, waiting=0)] * 9), None)
        for e in ("vllm", "sglang")
    },
    **{
        f"{e} cache full": (e, of(replace(FULL, cache=0.98, running=40)), "kv-cache-full")
        for e in ("vllm", "vllm-v0", "sglang", "statistics", "prometheus")
    },
    **{
        f"{e} cache nearly full": (e, of(replace(FULL, cache=0.9, running=40)), "kv-cache-full")
        for e in ("vllm", "sglang")
    },
    "vllm-v0 preempts": ("vllm-v0", of(BUSY, preempted=5), "kv-cache-full"),
    "sglang retracts": ("sglang", of(BUSY, preempted=5), "kv-cache-full"),
    "prometheus preempts": ("prometheus", of(BUSY, preempted=5), "kv-cache-full"),
    "sglang beyond graphs": ("sglang", of(CLIFF, limit=128), "decode-beyond-graphs"),
    "sglang within graphs": ("sglang", of([replace(m, graph=True) for m in CLIFF], limit=128), None),
    "vllm without graphs": ("vllm", of(BUSY, no_graphs=True), "decode-beyond-graphs"),
    "vllm-v0 without graphs": ("vllm-v0", of(BUSY, no_graphs=True), "decode-beyond-graphs"),
    **{
        f"{e} prompts": (e, of(PROMPTS), "prompts-starve-decodes")
        for e in ("vllm", "sglang", "trtllm", "statistics")
    },
    **{f"{e} few prompts": (e, of(MILD), None) for e in ("vllm", "sglang", "trtllm", "statistics")},
    "sglang rejects": ("sglang", of(replace(BUSY, accepted=1.3), drafted=4), "drafts-rejected"),
    "sglang accepts": ("sglang", of(replace(BUSY, accepted=2.9), drafted=4), None),
    "vllm rejects": ("vllm", of(replace(BUSY, accepted=1.3)), "drafts-rejected"),
    "vllm accepts": ("vllm", of(replace(BUSY, accepted=2.1)), None),
    **{f"{e} long contexts": (e, of(LONG), "slower-with-context") for e in ("vllm", "sglang")},
    **{f"{e} contexts": (e, of(SHORT), None) for e in ("vllm", "sglang")},
    **{f"{e} uneven": (e, of(REPLICAS), "uneven-replicas") for e in ("vllm", "sglang", "prometheus")},
    **{f"{e} even": (e, of(EVEN), None) for e in ("vllm", "sglang", "prometheus")},
}


def told(folder: Path, text: str) -> Diagnosis:
    path = folder / "server.log"
    path.write_text(text)
    return advisor.diagnose(path)


@pytest.mark.parametrize(("engine", "server", "cause"), SCENES.values(), ids=SCENES)
def test_the_cause(tmp_path: Path, engine: str, server: Server, cause: str | None) -> None:
    found = ranked(told(tmp_path, ENGINES[engine](server)))
    assert found == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (vllm(Server()), "Next: advisor attach http://HOST:PORT"),
        (sglang(Server()), "Next: advisor attach http://HOST:PORT"),
        (vllm(Server()).replace("GPU KV cache", "CPU KV cache"), " AFTER"),
        (llama(Server()), "Next: capture the server with nsys profile --trace=cuda,nvtx"),
    ],
)
def test_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str) -> None:
    """The profiler of the server itself, where one command starts it; nothing of a GPU for a CPU."""
    path = tmp_path / "server.log"
    path.write_text(text)
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(line)


def test_a_finding_is_followed_by_how_to_profile_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.log"
    path.write_text(vllm(of(FULL)))
    assert main([str(path)]) == 0
    shown = capsys.readouterr().out
    assert "Next: advisor show" in shown
    assert shown.rstrip().endswith("Then: advisor attach http://HOST:PORT")


@pytest.mark.parametrize("name", [name for name in SCENES if name.startswith("vllm ")])
def test_a_server_on_a_cpu_gets_no_advice_about_gpus(tmp_path: Path, name: str) -> None:
    """The same load, of which the log says that the cache is in the memory of the host."""
    text = vllm(SCENES[name][1]).replace("GPU KV cache", "CPU KV cache")
    found = told(tmp_path, text)
    assert fact(found, "load.on_cpu", None) is True
    for finding in found.findings:
        said = [finding.message, *(r.action for r in finding.recommendations)]
        said += [option.line for r in finding.recommendations for option in r.options]
        assert not re.search("(?i)gpu|cuda", " ".join(said)), finding.code


SMI = "timestamp, index, utilization.gpu [%]\n" + "".join(
    f"2026/11/05 13:22:{i:02d}.000, 0, 40 %\n" for i in range(30)
)


@pytest.mark.parametrize("turned", [False, True])
def test_a_log_and_samples_of_one_server_are_one_thing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], turned: bool
) -> None:
    paths = [tmp_path / "server.log", tmp_path / "smi.csv"]
    for path, text in zip(paths, (vllm(Server()), SMI), strict=True):
        path.write_text(text)
    assert main([*map(str, paths[::-1] if turned else paths), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    known = {f["name"]: f["value"] for f in document["facts"]}
    assert known["load.running"] == 16
    assert known["activity.busy_ratio"] == pytest.approx(0.4)


def test_two_logs_are_two_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path in paths:
        path.write_text(vllm(Server()))
    assert main([*map(str, paths)]) == 0
    assert "2 captures" in capsys.readouterr().out


def test_requests_that_lost_their_cache_alone_hold_no_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.log"
    path.write_text(sglang(Server(preempted=5)))
    assert main([str(path)]) == 0
    shown = capsys.readouterr().out
    assert "kv-cache-full" in shown
    assert "0 %" not in shown.replace("30 %", "")


def test_there_are_enough_of_them() -> None:
    assert len(SCENES) >= 40


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0", "sglang", "trtllm", "statistics"])
def test_time_per_token_and_requests(tmp_path: Path, engine: str) -> None:
    found = told(tmp_path, ENGINES[engine](of(BUSY)))
    assert fact(found, "load.token_ms", None) == pytest.approx(20.0, rel=0.01)
    assert fact(found, "load.running", None) == 16
    assert fact(found, "load.output_per_s", None) == pytest.approx(800.0, rel=0.01)


def test_metrics_give_means_between_the_first_and_the_last_scrape(tmp_path: Path) -> None:
    found = told(tmp_path, ENGINES["prometheus"](of(BUSY)))
    assert fact(found, "load.token_ms", None) == pytest.approx(20.0, rel=0.01)


def scrapes(name: str, values: Sequence[float], labels: str = '{engine="0"}') -> list[str]:
    """A counter of tokens, and eight requests that run, at every half second."""
    return [
        f"vllm:num_requests_running{labels} 8.0 {i * 500}\nvllm:{name}{labels} {value} {i * 500}\n"
        for i, value in enumerate(values)
    ]


def test_scrapes_with_times_tell_rates(tmp_path: Path) -> None:
    """400 tokens in half a second, of eight requests: one in 10 ms. The pause at the end is one of five."""
    found = told(tmp_path, "".join(scrapes("generation_tokens_total", [0, 400, 800, 1200, 1600, 1600])))
    assert fact(found, "load.output_per_s", None) == pytest.approx(800)
    assert fact(found, "load.token_ms", None) == pytest.approx(10.0)
    assert fact(found, "load.lines", None) == 6


def test_a_counter_that_begins_anew_tells_no_rate(tmp_path: Path) -> None:
    """The server was restarted between two scrapes."""
    found = told(tmp_path, "".join(scrapes("generation_tokens_total", [9000, 9400, 100, 500])))
    assert fact(found, "load.output_per_s", None) == pytest.approx(800)


def test_drafts_that_metrics_count(tmp_path: Path) -> None:
    """100 drafts of three tokens, 180 of which are accepted: 2.8 tokens a verification."""
    text = "".join(
        f"vllm:num_requests_running 8.0 {i * 1000}\n"
        f"vllm:spec_decode_num_drafts_total {i * 100} {i * 1000}\n"
        f"vllm:spec_decode_num_draft_tokens_total {i * 300} {i * 1000}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {i * 180} {i * 1000}\n"
        for i in range(3)
    )
    found = told(tmp_path, text)
    assert fact(found, "load.accepted_tokens", None) == pytest.approx(2.8)
    assert fact(found, "load.acceptance_ratio", None) == pytest.approx(0.6)


def test_ranks_of_one_server_that_say_the_same_count_once(tmp_path: Path) -> None:
    text = "".join(
        f'sglang:num_running_reqs{{tp_rank="{rank}",dp_rank="{rank // 2}"}} {10 + rank // 2}\n'
        for rank in range(4)
    )
    found = told(tmp_path, text)
    assert (fact(found, "load.replicas", None), fact(found, "load.running", None)) == (2, 21)


def test_settings_beside_metrics(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        "# server: vLLM API server version 0.33.0\n# server: max_num_seqs=16\n"
        + ENGINES["prometheus"](of(BUSY)),
    )
    assert fact(found, "load.batch_limit", None) == 16
    assert found.inputs[0].serving_engine == "vllm"


def test_timings_of_llama(tmp_path: Path) -> None:
    found = told(tmp_path, llama(of(replace(BUSY, output=100.0))))
    assert fact(found, "load.token_ms", None) == pytest.approx(10.0, rel=0.01)


def test_advice_names_the_option_of_the_engine_and_its_release(tmp_path: Path) -> None:
    (first, *_) = told(tmp_path, vllm(of(FULL))).findings
    assert any("--max-num-seqs" in o.line for r in first.recommendations for o in r.options)
    (first, *_) = told(tmp_path, sglang(of(FULL))).findings
    assert any("--max-running-requests" in o.line for r in first.recommendations for o in r.options)


def test_a_wide_split_for_few_requests_is_noted(tmp_path: Path) -> None:
    found = told(tmp_path, vllm(of(Moment(running=2, output=100.0), tensor_parallel=8)))
    assert "split-too-wide" in [note.cause for note in found.observed]
    found = told(tmp_path, vllm(of(BUSY, tensor_parallel=8)))
    assert "split-too-wide" not in [note.cause for note in found.observed]


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    text = vllm(of(BUSY)).replace("Running: 16 reqs", "Running: many reqs", 2)
    assert fact(told(tmp_path, text), "load.lines", None) == 10


@pytest.mark.parametrize("engine", ENGINES)
def test_digits_that_are_torn_cost_their_line_alone(tmp_path: Path, engine: str) -> None:
    text = ENGINES[engine](of(BUSY))
    lines = text.splitlines()
    for at in range(len(lines) - 3, len(lines) - 1):
        lines[at] = lines[at].replace(".", "..").replace("0", "0.", 3)
    assert fact(told(tmp_path, "\n".join(lines)), "load.running", None) is not None


def test_a_log_without_load_says_so_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("INFO 11-05 13:20:01 [api_server.py:1896] vLLM API server version 0.11.0\nINFO ready\n")
    with pytest.raises(InputError) as caught:
        advisor.diagnose(path)
    assert "\n" not in str(caught.value)


def test_a_log_beside_a_capture_adds_its_load(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(vllm(of(FULL)))
    trace = Profile().process(100)
    for i in range(200):
        trace.launch(
            at=10_000 * i, dur=5_000, kernel="gemm", kernel_start=10_000 * i + 6_000, kernel_dur=3_000
        )
    path = trace.write(tmp_path / "trace.json")
    alone, both = advisor.diagnose(path), advisor.diagnose(path, advisor.Options(log=log))
    assert set(ranked(both)) - set(ranked(alone)) == {"batch-limit-reached"}
    assert fact(both, "load.logged", None) is True
    assert fact(alone, "load.logged", None) is False
    with pytest.raises(InputError, match="no server's log"):
        advisor.diagnose(path, advisor.Options(log=path))


# --- the step without the profiler, by the log ----------------------------------------------------


def beside(folder: Path, moment: Moment) -> Diagnosis:
    """A captured decode with this log of its server."""
    log = folder / "server.log"
    log.write_text(vllm(of(moment)))
    return advisor.diagnose(committed("decode_eager_bs1"), advisor.Options(log=log))


def test_the_log_of_the_server_tells_the_step_without_the_profiler(tmp_path: Path) -> None:
    alone = advisor.diagnose(committed("decode_eager_bs1"))
    wide = alone.inputs[0].untraced_step_ms
    assert wide is not None
    assert wide.high > 1.2 * wide.low
    step = (wide.low + wide.mid) / 2
    found = beside(tmp_path, Moment(running=2, output=2 * 1000 / step))
    known = found.inputs[0].untraced_step_ms
    assert known is not None
    assert known.low == known.high == pytest.approx(step, rel=0.01)
    assert found.inputs[0].untraced_step_from == "by the log"
    ranges = [d.findings[0].gain for d in (alone, found)]
    before, after = (
        g.speedup.high / g.speedup.low for g in ranges if g is not None and g.speedup is not None
    )
    assert after < before
    assert any("ms, by the log" in text for text in found.findings[0].gain.assumptions)  # type: ignore[union-attr]


def test_a_what_if_beside_a_log_states_what_the_report_states(tmp_path: Path) -> None:
    wide = advisor.diagnose(committed("decode_eager_bs1")).inputs[0].untraced_step_ms
    assert wide is not None
    found = beside(tmp_path, Moment(running=2, output=2 * 1000 / ((wide.low + wide.mid) / 2)))
    first = found.findings[0]
    assert first.gain is not None
    options = advisor.Options(log=tmp_path / "server.log")
    asked = advisor.whatif(committed("decode_eager_bs1"), first.code, options)
    assert asked.step_before_ms == first.gain.step_before_ms == found.inputs[0].untraced_step_ms
    assert asked.step_after_ms == first.gain.step_after_ms
    assert asked.speedup == first.gain.speedup
    assert any("ms, by the log" in text for text in asked.assumptions)
    alone = advisor.whatif(committed("decode_eager_bs1"), first.code)
    assert alone.step_before_ms == wide


def test_drafted_tokens_make_several_tokens_of_one_step(tmp_path: Path) -> None:
    wide = advisor.diagnose(committed("decode_eager_bs1")).inputs[0].untraced_step_ms
    assert wide is not None
    found = beside(tmp_path, Moment(running=1, output=3 * 1000 / wide.mid, accepted=3.0))
    assert found.inputs[0].untraced_step_ms.mid == pytest.approx(wide.mid, rel=0.02)  # type: ignore[union-attr]
    assert found.inputs[0].untraced_step_from == "by the log"


def test_a_log_of_another_load_tells_nothing_of_the_step(tmp_path: Path) -> None:
    alone = advisor.diagnose(committed("decode_eager_bs1")).inputs[0]
    assert alone.untraced_step_ms is not None
    slow = Moment(running=16, output=16 * 1000 / (3 * alone.untraced_step_ms.high))
    prompts = Moment(running=2, output=2 * 1000 / alone.untraced_step_ms.mid, prompt=20_000.0)
    for moment in (slow, prompts):
        found = beside(tmp_path, moment).inputs[0]
        assert (found.untraced_step_ms, found.untraced_step_from) == (alone.untraced_step_ms, None)


def test_all_replicas_are_shown_and_none_is_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.log"
    path.write_text(vllm(of(REPLICAS)))
    assert main([str(path)]) == 0
    shown = capsys.readouterr().out
    assert "replica" in shown
    assert " more (-v)" not in shown
