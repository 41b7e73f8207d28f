"""What each plan would record, by the stages that its program goes through: work of the phase, enough steps,
every rank, CUDA graphs by node or none. Each fault that plans once had is noticed."""

from __future__ import annotations

import itertools
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from advisor.capture.goals import plan
from advisor.errors import InputError
from advisor.knowledge.verb_files import capture_goals
from advisor.model.options import PlanRequest
from advisor.reports import listings
from advisor.reports.blocks import Report
from advisor.reports.text import document
from tests.docs.scripts import script

plans: Any = script("benchmarks/plans.py")
ENGINES = list(capture_goals().programs)
GOALS = [g.id for g in capture_goals().goals]
PLACES = [p.id for p in capture_goals().places]


def wrong(asked: PlanRequest) -> list[str]:
    """What a plan does not record of what is asked for."""
    engine, _, version = (asked.engine or "").partition("@")
    made = plan(asked)
    found = plans.seen(made, engine, version)
    return [fault for phase, seen in found for fault in plans.faults(made, asked, phase, seen)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", plans.RANKS)
def test_a_plan_records_what_its_goal_asks_for(engine: str, ranks: int) -> None:
    """At a desk; the other places and releases are slow."""
    for goal, off in itertools.product(GOALS, (False, True)):
        asked = PlanRequest(goal, engine, ranks=ranks, without_graphs=off)
        assert wrong(asked) == [], asked


@pytest.mark.parametrize(
    "engine", [f"{name}@{version}" for name, known in plans.RELEASES.items() for version in known if version]
)
def test_so_do_plans_of_each_release(engine: str) -> None:
    for phase in ("prefill", "decode"):
        assert wrong(PlanRequest("kernel-breakdown", engine, phase)) == []


@pytest.mark.slow
def test_every_plan_records_what_is_asked_for() -> None:
    found = [*plans.rows()]
    assert [row for row in found if row[-1]] == []
    page = Path(plans.__file__).with_suffix(".md").read_text(encoding="utf-8")
    assert page == plans.table(found), "python benchmarks/plans.py --write"


# --- each fault is noticed -----------------------------------------------------------------------------


def steps(text: str, engine: str, version: str = "") -> dict[str, float]:
    """What a command line would record."""
    at = plans.line(text)
    made = plan(PlanRequest("kernel-breakdown", engine, "decode"))
    program = next(p for words, p in plans.PROGRAMS if words in " ".join(at.program))
    return plans.recorded(at, [*program(at, version, made)])


RANGE = "nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop -o x"
ONE_BATCH = (
    "python3 -m sglang.benchmark.one_batch --model-path M --batch-size 1 --input-len 1 --output-len 128"
)
CUDA = "--profile --profile-activities CUDA_PROFILER"
LATENCY = (
    "vllm bench latency --model M --input-len 2048 --output-len 1 --profiler-config.profiler cuda --profile"
)


def test_a_range_that_ends_with_the_prefill_holds_no_decode() -> None:
    assert steps(f"{RANGE} {ONE_BATCH} {CUDA}", "sglang") == {"prefill": 1}
    assert steps(f"{RANGE} {ONE_BATCH} {CUDA} --profile-stage decode", "sglang") == {"decode": 1}
    some = f"{RANGE} {ONE_BATCH} {CUDA} --profile-stage decode --profile-start-step 32 --profile-steps 32"
    assert steps(some, "sglang") == {"decode": 32}
    with pytest.raises(InputError, match=r"not known in 0\.5\.9"):
        steps(some, "sglang", "0.5.9")
    on = RANGE.replace("=stop", "=none")
    assert steps(f"{on} {ONE_BATCH} {CUDA} --profile-stage decode", "sglang", "0.5.9") == {"decode": 63}


def test_one_prompt_of_one_token_is_one_step() -> None:
    assert steps(f"{RANGE} {LATENCY} --batch-size 1", "vllm") == {"prefill": 1}
    many = f"{LATENCY} --batch-size 16 --max-num-batched-tokens 2048"
    assert steps(f"{RANGE} {many}", "vllm") == {"prefill": 16}


def test_releases_that_cannot_start_the_profiler_record_nothing() -> None:
    old = LATENCY.replace(" --profiler-config.profiler cuda", "")
    variable = "VLLM_TORCH_CUDA_PROFILE=1"
    assert steps(f"{variable} {RANGE} {old} --batch-size 16", "vllm", "0.11.2") == {"prefill": 4}
    assert steps(f"{variable} {RANGE} {old}", "vllm", "0.11.1") == {}
    assert steps(f"{RANGE} {old}", "vllm", "0.12.0") == {}


def test_eight_engines_of_one_gpu_are_noticed() -> None:
    with pytest.raises(InputError, match="8 engines of 1 GPUs each"):
        plans.ranks_of(plans.line(f"srun -n 8 {RANGE} vllm bench latency --model M"), "vllm")


# --- what stands in the commands -------------------------------------------------------------------------


def recording(asked: PlanRequest) -> list[str]:
    return plans.commands(plan(asked), "record")


@pytest.mark.parametrize(
    ("engine", "option"),
    [
        ("vllm", "--enforce-eager"),
        ("sglang", "--cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill=disabled"),
        ("sglang@0.5.5", "--disable-cuda-graph"),
        ("tensorrt-llm", "--extra_llm_api_options /tmp/advisor_without_graphs.yaml"),
        ("native", "--cuda-graph false request"),
        ("tgi", "--cuda-graphs 0"),
        ("nim", "env NIM_DISABLE_CUDA_GRAPH=1 "),
        ("dynamo", "--enforce-eager"),
    ],
)
def test_graphs_off_stand_in_the_commands(engine: str, option: str) -> None:
    made = plan(PlanRequest("kernel-breakdown", engine, without_graphs=True))
    assert all(option in c and "--cuda-graph-trace=node" in c for c in plans.commands(made, "record"))
    printed = "".join(block.text for block in listings.plan(made, -1) if hasattr(block, "text"))
    assert option in printed  # with -q too
    if engine == "tensorrt-llm":
        assert "echo 'cuda_graph_config: null' > /tmp/advisor_without_graphs.yaml" in printed


def test_the_parallel_size_is_the_programs_own() -> None:
    """Ranks are started by srun or mpirun where the engine has them join."""
    for place in PLACES:
        (line,) = recording(PlanRequest("multi-gpu", "vllm", "decode", place, 8))
        assert line.endswith("--tensor-parallel-size 8")
        assert "srun" not in line
        assert "mpirun" not in line
        assert "%q{" not in line
    (line,) = recording(PlanRequest("multi-gpu", "tensorrt-llm", "decode", "slurm", 8))
    assert line.startswith("srun -n 8 --mpi=pmix nsys profile")
    assert "trtllm-llmapi-launch trtllm-bench" in line
    assert line.endswith("--tp 8")
    (line,) = recording(PlanRequest("multi-gpu", "pytorch", "decode", "slurm", 8))
    assert line.startswith("srun -n 8 nsys profile")


@pytest.mark.parametrize(
    ("command", "added"),
    [
        ("vllm serve M", " --profiler-config.profiler cuda --tensor-parallel-size 8 --enforce-eager"),
        ("vllm serve M -tp 4", " --profiler-config.profiler cuda --enforce-eager"),
        ("vllm serve M --enforce-eager", " --profiler-config.profiler cuda --tensor-parallel-size 8"),
        ("python serve.py", ""),
    ],
)
def test_a_command_that_is_given_gets_what_the_plan_needs(command: str, added: str) -> None:
    engine = "vllm" if "vllm" in command else "pytorch"
    words = tuple(shlex.split(command))
    asked = PlanRequest("kernel-breakdown", engine, ranks=8, command=words, without_graphs=True)
    (line,) = recording(asked)
    assert line.endswith(f" {command}{added}")
    if engine == "vllm":  # a server is recorded between two requests, under load
        load = plans.commands(plan(asked), "load")
        assert [c.rpartition("/")[2] for c in load[1:]] == ["start_profile", "stop_profile"]


@pytest.mark.parametrize("engine", ["tgi", "nim", "dynamo", "sglang@0.4.6"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_servers_by_the_clock_get_a_load_of_the_phase(engine: str, phase: str) -> None:
    made = plan(PlanRequest("kernel-breakdown", engine, phase))
    (load,) = plans.commands(made, "load")
    prompt, output = {"prefill": (2048, 1), "decode": (1, 128)}[phase]
    assert str(prompt) in load
    assert str(output) in load


@pytest.mark.parametrize("engine", ["diffusers", "xdit"])
def test_diffusion_has_steps_of_denoising(engine: str) -> None:
    made = plan(PlanRequest("kernel-breakdown", engine))
    assert "prefill" not in " ".join(plans.commands(made))
    (line,) = plans.commands(made, "record")
    assert "20" in line
    assert [n.what for s in made.steps if s.id == "record" for n in s.lines] == ["steps of denoising"]


# --- what is printed can be pasted -------------------------------------------------------------------------


PASTED = [
    PlanRequest("multi-gpu", "vllm", name="my runs/a b_%p", ranks=8),
    PlanRequest("kernel-breakdown", "tgi", place="kubernetes", name="/my results/x"),
    PlanRequest("running-server", "nim", name="it's"),
    PlanRequest("tail", "pytorch", "decode", "slurm", 8, ("python", "a b.py", "--x=1 2"), name="a (1)"),
    PlanRequest("kernel-breakdown", "tensorrt-llm", without_graphs=True),
]


@pytest.mark.parametrize("asked", PASTED)
def test_what_is_printed_in_80_columns_is_what_is_meant(asked: PlanRequest) -> None:
    """A shell reads the words of each command as they were planned, however the page is broken."""
    made = plan(asked)
    meant = [c.command for s in made.steps for c in s.lines if c.shell]
    text = document(Report((made,), lambda _: listings.plan(made, -1), "")).decode()
    assert max(map(len, text.splitlines())) <= 80
    joined = text.replace("\\\n", "")
    shown = [shlex.split(line) for line in joined.splitlines() if line.strip()]
    assert [[w for w in words if w] for words in shown] == [shlex.split(c) for c in meant]
    syntax = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    assert syntax.stderr == ""


def test_a_path_with_blanks_is_one_word() -> None:
    made = plan(PlanRequest("kernel-breakdown", "vllm", "decode", name="my runs/a b_%q{RANK}"))
    (line,) = plans.commands(made, "record")
    assert plans.line(line).options["-o"] == "my runs/a b_%q{RANK}"
    read = plans.commands(made, "read")[0]
    assert shlex.split(read) == ["advisor", "my runs/a b_*.sqlite"]
    assert "*" in read.replace("'", "")


def test_stacks_are_recorded_of_slow_calls_alone() -> None:
    for goal, engine in itertools.product(GOALS, ENGINES):
        made = plan(PlanRequest(goal, engine))
        text = made.model_dump_json()
        for found in text.split("--cudabacktrace=")[1:]:
            assert found.split(":")[1][:5] == "80000", (goal, engine)
