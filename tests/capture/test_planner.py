"""The one recapture command: what it keeps, adds, leaves out, and says beside itself."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from advisor.capture import nsys_options
from advisor.capture.nsys_options import Recording, masked
from advisor.capture.planner import Situation, UnmetNeed, plan
from advisor.knowledge.files import capture_knowledge
from advisor.model.capture_plan import Named, Plan

CUDA = ("--trace=cuda", "--trace=nvtx", "--cuda-graph-trace=node", "--sample=none")
OSRT, GIL = "--trace=cuda,nvtx,osrt", "--trace=cuda,nvtx,python-gil"
SAMPLES, FASTER = "--gpu-metrics-devices=all", ("--gpu-metrics-devices=all --gpu-metrics-frequency=100000")
MEMORY = "--cuda-memory-usage=true"
LONGER = "a longer capture (10 to 50 steps)"


def blocked(**remedies: str | None) -> list[UnmetNeed]:
    return [UnmetNeed(Named(code=code, cause=f"cause-{code.lower()}"), fix) for code, fix in remedies.items()]


def made(
    needs: list[UnmetNeed],
    options: tuple[str, ...] = CUDA,
    command: tuple[str, ...] = ("python3", "serve.py"),
    release: tuple[int, int] | None = (2025, 5),
    **about: Any,
) -> Plan:
    return plan(Recording(options, True, command, release), needs, Situation(**about))


def codes(rules: tuple[Any, ...]) -> list[str]:
    return [r.code for r in rules]


def traced(found: Plan) -> list[str]:
    (one,) = (w for w in found.command.split() if w.startswith("--trace="))
    return one[len("--trace=") :].split(",")


def test_what_was_recorded_is_kept_and_what_is_missing_added() -> None:
    found = made(blocked(AAA101=OSRT, AAA102=GIL, AAA103=SAMPLES))
    assert found.command == (
        "nsys profile --trace=cuda,nvtx,osrt,python-gil --cuda-graph-trace=node "
        "--gpu-metrics-devices=all --sample=none --force-overwrite=true --export=sqlite "
        "--output=advisor_recapture python3 serve.py"
    )
    assert codes(found.enables) == ["AAA101", "AAA102", "AAA103"]
    new = {o.option for o in found.options if o.new}
    assert new == {"--trace=osrt", "--trace=python-gil", "--gpu-metrics-devices=all"}
    (osrt,) = (o for o in found.options if o.option == "--trace=osrt")
    assert osrt.purpose == "gives host_calls"
    assert "large files" in osrt.overhead


def test_every_capture_gets_cuda_ranges_and_graph_nodes() -> None:
    found = made([], options=("--trace=cuda", "--cuda-graph-trace=graph"))
    assert traced(found) == ["cuda", "nvtx"]
    assert "--cuda-graph-trace=node" in found.command
    assert "--cuda-graph-trace=graph" not in found.command


def test_graphics_are_not_traced_again() -> None:
    assert "opengl" not in traced(made([], options=("--trace=opengl", *CUDA)))


def test_a_higher_rate_replaces_the_one_that_was_too_low() -> None:
    options = (*CUDA, SAMPLES, "--gpu-metrics-frequency=10000")
    found = made(blocked(AAA101=FASTER), options=options)
    assert "--gpu-metrics-frequency=100000" in found.command
    assert "=10000 " not in found.command
    assert codes(found.enables) == ["AAA101"]
    faster = (*CUDA, SAMPLES, "--gpu-metrics-frequency=200000")
    assert made(blocked(AAA101=FASTER), options=faster).enables == ()


def test_an_option_that_costs_more_than_it_enables_is_left_out() -> None:
    needs = blocked(AAA101=SAMPLES, AAA102=MEMORY, AAA103=MEMORY)
    found = made(needs)
    assert "--cuda-memory-usage" not in found.command
    (left,) = found.left_out
    assert (left.option, codes(left.rules)) == (MEMORY, ["AAA102", "AAA103"])
    assert "leave it out when timing" in left.overhead


def test_it_is_taken_where_it_enables_enough_or_nothing_else_is_missing() -> None:
    many = blocked(**{f"AAA10{i}": MEMORY for i in range(4)})
    found = made([*many, *blocked(AAB101=SAMPLES)])
    assert MEMORY in found.command
    assert found.left_out == ()
    only = made(blocked(AAA101=MEMORY, AAA102=MEMORY))
    assert MEMORY in only.command
    assert codes(only.enables) == ["AAA101", "AAA102"]
    assert "memory-usage-slows" in {p.id for p in only.pitfalls}


def test_rules_that_share_an_option_pay_for_it_together() -> None:
    """The rate alone costs more than one rule; it comes with the samples that three need."""
    found = made(blocked(AAA101=SAMPLES, AAA102=FASTER, AAA103=FASTER))
    assert FASTER.split()[1] in found.command
    assert codes(found.enables) == ["AAA101", "AAA102", "AAA103"]


def test_the_order_of_the_rules_does_not_matter() -> None:
    needs = blocked(AAA101=OSRT, AAA102=FASTER, AAA103=MEMORY, AAA104=GIL, AAA105=SAMPLES)
    assert made(needs).command == made(needs[::-1]).command


def test_what_no_option_does_is_said_beside_the_command() -> None:
    found = made(blocked(AAA101=LONGER, AAA102=LONGER, AAA103=f"{SAMPLES} and {LONGER}"))
    (also,) = found.also
    assert (also.need, codes(also.rules)) == (LONGER, ["AAA101", "AAA102", "AAA103"])
    assert found.enables == ()
    assert SAMPLES in found.command


def test_what_nothing_helps_enables_nothing() -> None:
    found = made(blocked(AAA101=None, AAA102="--trace=cuda,nvtx"))
    assert (found.enables, found.also, found.left_out) == ((), (), ())


# --- engines ---------------------------------------------------------------------------------


def test_an_engine_gets_its_own_variables_and_others_none() -> None:
    needs = blocked(AAA101="TLLM_PROFILE_RECORD_GC=1")
    about = {"causes": frozenset({"startup-in-window"}), "startup_ms": 4_200.0}
    trt = made(needs, serving="tensorrt-llm", **about)
    assert trt.command.startswith("TLLM_PROFILE_START_STOP=100-150 TLLM_PROFILE_RECORD_GC=1 nsys")
    assert "--capture-range=cudaProfilerApi --capture-range-end=stop" in trt.command
    assert "--delay" not in trt.command
    assert "--trace-fork-before-exec=true" in trt.command
    plain = made([], serving="pytorch", **about)
    assert "TLLM" not in plain.command
    assert "--delay=5 --duration=10" in plain.command
    assert "--trace-fork-before-exec" not in plain.command
    assert plain.addresses == ("startup-in-window",)


def test_ranges_of_the_engine_come_with_nvtx() -> None:
    options = ("--trace=cuda", "--cuda-graph-trace=node")
    said = made([], options=options, serving="vllm", version="0.24.0").command
    assert "VLLM_NVTX_SCOPES_FOR_PROFILING=1" in said
    assert "VLLM_NVTX" not in made([], serving="vllm", version="0.24.0").command
    # Model runner V2 has none: the profile has to be started by its endpoint.
    assert "VLLM_NVTX" not in made([], options=options, serving="vllm", version="0.29.0").command
    assert "VLLM_NVTX" not in made([], options=options, serving="vllm").command


def test_a_program_that_switches_the_profiler_keeps_doing_so() -> None:
    found = made([], options=(*CUDA, "--capture-range=cudaProfilerApi"), startup_ms=900.0)
    assert "--capture-range=cudaProfilerApi" in found.command
    assert "--duration" not in found.command


# --- findings, releases, pitfalls ------------------------------------------------------------


def test_findings_about_the_capture_are_mended() -> None:
    causes = frozenset({"no-gpu-metrics", "sampling-too-coarse"})
    found = made([], causes=causes)
    assert set(found.addresses) == causes
    assert FASTER in found.command
    assert "counters" in {p.id for p in found.pitfalls}  # sampled for the first time
    again = made([], options=(*CUDA, SAMPLES), causes=frozenset({"sampling-too-coarse"}))
    assert "counters" not in {p.id for p in again.pitfalls}


def test_options_are_spelled_as_the_release_spells_them() -> None:
    needs = blocked(AAA101=SAMPLES)
    old, new = made(needs, release=(2023, 4)), made(needs, release=(2024, 6))
    assert "--gpu-metrics-device=all" in old.command
    assert "--gpu-metrics-devices=all" in new.command
    assert "--gpu-metrics-device=all" in {o.option for o in old.options}


def test_a_release_older_than_the_driver_is_to_be_replaced() -> None:
    found = made(blocked(AAA101=SAMPLES), release=(2023, 4), cuda="13.0")
    assert "nsys 2025.3 or newer" in found.also[0].need
    assert "--gpu-metrics-devices=all" in found.command  # as the newer one spells it
    assert "newer-viewer" in {p.id for p in found.pitfalls}
    assert made([], release=(2025, 5), cuda="13.0").also == ()
    assert made([], release=(2023, 4), cuda="12.8").also == ()


def test_pitfalls_are_those_of_this_command() -> None:
    plain = {p.id for p in made([]).pitfalls}
    assert "node-trace-inflates" in plain
    assert not plain & {"counters", "client-profiled", "environment", "release-build"}
    traces = {"--cudabacktrace=all"}
    assert "backtraces-slow" in {p.id for p in made([], options=(*CUDA, *traces)).pitfalls}
    stacks = [w for w in made([], options=(*CUDA, *traces)).command.split() if "backtrace" in w]
    assert stacks == ["--cudabacktrace=kernel:80000,sync:80000,memory:80000"]
    secrets = made([], causes=frozenset({"secrets-in-export"}))
    assert "environment" in {p.id for p in secrets.pitfalls}


# --- the program -----------------------------------------------------------------------------


def test_the_command_can_be_pasted_into_a_shell() -> None:
    argv = ("python3", "my serve.py", "--name=it's", "$HOME")
    words = shlex.split(made([], command=argv).command)
    assert tuple(words[-4:]) == argv


def test_without_a_command_there_is_a_placeholder() -> None:
    assert made([], command=()).command.endswith(" COMMAND")
    client = made([], command=("curl", "x"), causes=frozenset({"wrong-process"}))
    assert client.command.endswith(" COMMAND")
    assert "client-profiled" in {p.id for p in client.pitfalls}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (("serve", "--api-key", "abc", "-p", "1"), ("serve", "--api-key", "***", "-p", "1")),
        (("serve", "--hf-token=abc"), ("serve", "--hf-token=***")),
        (("env", "MY_SECRET=abc", "serve"), ("env", "MY_SECRET=***", "serve")),
        (("login", "hf_abcdefghijkl"), ("login", "***")),
        (("serve", "--max-num-batched-tokens", "2048"), ("serve", "--max-num-batched-tokens", "2048")),
        (("serve", "--tokenizer=x"), ("serve", "--tokenizer=x")),
    ],
)
def test_credentials_are_not_repeated(command: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    assert masked(command) == wanted


def test_cost_and_release_of_an_option_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    known = capture_knowledge()
    changes: dict[str, dict[str, Any]] = {
        "--trace=osrt": {"cost": 3},
        "--trace=python-gil": {"since": "2024.2"},
    }
    flags = [f.replaced(**changes.get(f.flag, {})) for f in known.flags]
    monkeypatch.setattr(nsys_options, "capture_knowledge", lambda: known.replaced(flags=flags))
    needs = blocked(AAA101=OSRT, AAA102=GIL)
    found = made(needs, release=(2023, 4))
    assert codes(found.left_out[0].rules) == ["AAA101"]
    assert [a.need for a in found.also] == ["nsys 2024.2 or newer for --trace=python-gil"]
    assert made(needs, release=(2024, 2)).also == ()
