"""Plans for every goal, engine and place: what they say, that they explain all, that they fit."""

from __future__ import annotations

import itertools
import re
import shlex
from functools import cache

import pytest
import yaml

from advisor.capture.goals import plan, troubles
from advisor.capture.nsys_options import flag_of, joined, merged, options_in, spelled
from advisor.capture.request import again
from advisor.cli.app import VERBS
from advisor.errors import InputError
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.files import capture_knowledge, references
from advisor.knowledge.package_data import data_dir
from advisor.knowledge.verb_files import TroubleFile, capture_goals, troubleshooting
from advisor.model.capture_plan import CapturePlan
from advisor.model.options import PlanRequest, declared
from tests.checklist.test_items import check_command

GOALS = [g.id for g in capture_goals().goals]
ENGINES = list(capture_goals().programs)
PLACES = [p.id for p in capture_goals().places]


def commands(made: CapturePlan, step: str | None = None) -> list[str]:
    return [line.command for s in made.steps if step in (None, s.id) for line in s.lines]


def text(made: CapturePlan) -> str:
    """Everything that the plan says."""
    return made.model_dump_json()


@cache
def planned(goal: str, engine: str, place: str = "bare") -> CapturePlan:
    """A plan of which nothing else is wished; many tests look at the same."""
    return plan(PlanRequest(goal, engine, place=place))


@cache
def taught_text() -> str:
    """All that the plans of two engines say, at a desk and on a cluster."""
    wishes = itertools.product(GOALS, ("tensorrt-llm", "native"), ("bare", "slurm"))
    return "\n".join(text(planned(*wish)) for wish in wishes)


# --- every plan ------------------------------------------------------------------------------


@pytest.mark.parametrize(("goal", "engine"), list(itertools.product(GOALS, ENGINES)))
def test_every_plan_is_whole(goal: str, engine: str) -> None:
    """At a desk, and for each goal and each engine once everywhere else."""
    for place in PLACES if goal == GOALS[0] or engine == ENGINES[0] else PLACES[:1]:
        made = planned(goal, engine, place)
        assert not re.search(r"\{[a-z_]+\}", " ".join(commands(made)).replace("${MODEL}", ""))
        record = [c for c in commands(made) if re.search(r"nsys (profile|launch|start) -", c)]
        assert record, place
        assert any(c.startswith("advisor ") for c in commands(made, "read"))
        # Every option of every nsys command is explained.
        used = {o for c in commands(made) for o in options_in(c)}
        assert used <= {f.option for f in made.flags}
        assert [f.option for f in made.flags if not f.why] == []
        # So is what a variant adds, once.
        more = [f for v in made.variants for f in v.flags]
        added = {o for v in made.variants for line in v.lines for o in options_in(line)}
        assert {f.option for f in more} == added - {f.option for f in made.flags}
        assert len({f.option for f in more}) == len(more)
        assert [f.option for f in more if not f.why] == []
        assert made.command_file


@pytest.mark.parametrize("goal", GOALS)
def test_the_commands_of_ours_exist(goal: str) -> None:
    for engine in ENGINES:
        made = planned(goal, engine)
        lines = [*commands(made), *(line for v in made.variants for line in v.lines)]
        for line in lines:
            if line.startswith("advisor "):
                check_command(line)


def test_the_same_plan_without_questions() -> None:
    asked = PlanRequest(
        "tail",
        "pytorch",
        "decode",
        "mpi",
        8,
        ("python", "a b.py"),
        repeat=3,
        without_graphs=True,
        release=(2024, 1),
        name="x_%p",
    )
    assert again(asked) == (
        "advisor capture tail --engine pytorch --phase decode --where mpi --ranks 8 --repeat 3 "
        "--name x_%p --without-graphs --nsys 2024.1 -- python 'a b.py'"
    )
    assert plan(asked).again == again(asked)
    assert again(PlanRequest("tail")) == "advisor capture tail"


# --- what the field notes teach --------------------------------------------------------------


def test_tensorrt_llm_records_iterations_by_its_variable() -> None:
    made = plan(PlanRequest("kernel-breakdown", "tensorrt-llm", "decode", iterations="100-150"))
    (line,) = commands(made, "record")
    assert line.startswith("TLLM_PROFILE_START_STOP=100-150 TLLM_LLMAPI_ENABLE_NVTX=1 nsys profile")
    assert "--capture-range=cudaProfilerApi" in line
    assert "--cuda-graph-trace=node" in line
    assert "--trace-fork-before-exec=true" in line
    assert "trtllm-bench" in line
    assert "trtllm-bench --model ${MODEL} prepare-dataset" in commands(made, "prepare")[0]
    assert "--input-mean 1 --output-mean 128" in commands(made, "prepare")[0]


def test_both_standard_profiles_without_a_phase() -> None:
    lines = commands(plan(PlanRequest("kernel-breakdown", "native")), "record")
    assert "--prompt-len 2048 --output-len 1 " in lines[0]
    assert "--prompt-len 1 --output-len 128 " in lines[1]
    assert "-o advisor_kernel_breakdown_prefill" in lines[0]
    assert len(commands(plan(PlanRequest("kernel-breakdown", command=("python", "x.py"))), "record")) == 1


def test_lengths_of_ones_own_load() -> None:
    """A prefill is over with the first token, however long the answers of the load are."""
    asked = PlanRequest("kernel-breakdown", "vllm", input_len=4096, output_len=256)
    made = plan(asked)
    lines = commands(made, "record")
    assert "--input-len 4096 --output-len 1 " in f"{lines[0]} "
    assert "--input-len 4096 --output-len 256 " in f"{lines[1]} "
    assert "--input-len 4096 --output-len 256" in made.again


def test_the_clock_where_nothing_else_tells() -> None:
    (line,) = commands(plan(PlanRequest("kernel-breakdown", "tgi", "decode")), "record")
    assert "--delay=90 --duration=30" in line
    (line,) = commands(plan(PlanRequest("tail", "vllm", "decode", delay=5, duration=7)), "record")
    assert "--delay=5 --duration=7" in line
    assert "--capture-range" not in line


@pytest.mark.parametrize(
    ("engine", "has", "lacks"),
    [
        (
            "vllm",
            ["--profiler-config.profiler cuda", "0.11.2 to 0.12 have"],
            ["VLLM_TORCH_CUDA_PROFILE=1 VLLM"],
        ),
        ("vllm@0.33.0", ["--profiler-config.profiler cuda"], ["VLLM_TORCH_CUDA_PROFILE=1 nsys"]),
        ("vllm@0.11.1", ["--delay=90", "--num-iters 1000000"], ["VLLM_TORCH_CUDA_PROFILE", "--profile"]),
        ("vllm@0.12.0", ["VLLM_TORCH_CUDA_PROFILE=1"], ["--profiler-config"]),
        ("sglang", ["sglang.benchmark.one_batch", "before 0.5.20"], ["-m sglang.bench_one_batch"]),
        ("sglang@0.5.23", ["sglang.benchmark.one_batch"], ["sglang.bench_", "before 0.5"]),
        ("sglang@0.5.5", ["-m sglang.bench_one_batch"], ["sglang.benchmark.", "SGLANG_ENABLE_NVTX"]),
    ],
)
def test_commands_and_variables_are_those_of_the_release(
    engine: str, has: list[str], lacks: list[str]
) -> None:
    made = plan(PlanRequest("kernel-breakdown", engine, "decode"))
    said = [line.command for step in made.steps for line in step.lines]
    text = "\n".join([*said, *(note for step in made.steps for note in step.notes)])
    assert [t for t in has if t not in text] == []
    assert [t for t in lacks if t in text] == []


def test_a_running_server_is_launched_once_and_recorded_often() -> None:
    made = plan(PlanRequest("running-server", "vllm", duration=20))
    (launch,) = commands(made, "launch")
    start = commands(made, "record")
    assert "nsys launch --trace=cuda,nvtx --cuda-graph-trace=node" in launch
    assert "--session-new=advisor -- vllm serve" in launch
    # nsys launch refuses what belongs to nsys start.
    assert not re.search(r"--sample|--gpu-metrics|--export|--force-overwrite| -o ", launch)
    assert start[1].startswith("nsys start --session=advisor --sample=none")
    # Ranges of steps last from one request to the other, whichever model runner vLLM takes.
    assert [re.sub(".*/", "", c) for c in start[2:5]] == ["start_profile", "sleep 20", "stop_profile"]
    assert start[5:] == ["nsys stop --session=advisor"]
    assert "VLLM_NVTX" not in launch
    assert "VLLM_NVTX_SCOPES_FOR_PROFILING=1" in text(plan(PlanRequest("running-server", "vllm@0.24.0")))
    assert "attach-nothing" in {v.id for v in made.variants}
    assert "--start-later=true" in text(made)


def test_graphs_off_and_its_price() -> None:
    made = plan(PlanRequest("kernel-breakdown", "vllm"))
    variant = next(v for v in made.variants if v.id == "without-graphs")
    assert "about 5 us" in variant.text
    assert variant.options[0].line.startswith("--enforce-eager")
    off = plan(PlanRequest("kernel-breakdown", "vllm", without_graphs=True))
    assert all("--cuda-graph-trace=node" in c for c in commands(off, "record"))
    assert all("--enforce-eager" in c for c in commands(off, "record"))


def test_several_ranges_in_one_run() -> None:
    (line,) = commands(plan(PlanRequest("tail", "pytorch", "decode", repeat=4)), "record")
    assert "--capture-range-end=repeat:4" in line


def test_every_range_has_a_report_of_its_own() -> None:
    made = plan(PlanRequest("tail", "pytorch", "decode", repeat=4))
    assert commands(made, "read")[:2] == [
        "advisor advisor_tail_decode.*.sqlite",
        "advisor stats advisor_tail_decode.1.sqlite --report tail --limit 15",
    ]
    assert "repeat-ranges" not in {v.id for v in made.variants}
    # Ranks are compared range by range.
    ranks = plan(PlanRequest("multi-gpu", "pytorch", "decode", "slurm", repeat=4))
    assert commands(ranks, "read") == ["advisor advisor_multi_gpu_decode_*_rank*.1.sqlite --ranks"]


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("place", PLACES)
def test_variants_speak_of_what_the_plan_writes(goal: str, place: str) -> None:
    made = planned(goal, "tensorrt-llm", place)
    lines = [line for v in made.variants for line in v.lines]
    assert not any("dataset_run" in line for line in lines)
    written = {w for c in commands(made) for w in re.findall(r"-o (\S+)", c)}
    for line in lines:
        for report in re.findall(r"(\S+)\.nsys-rep", line):
            assert report in written, line


def test_variants_lead_back_to_this_plan() -> None:
    asked = PlanRequest("kernel-breakdown", "vllm", "decode", command=("python", "a b.py"))
    lines = [line for v in plan(asked).variants for line in v.lines]
    said = "advisor capture kernel-breakdown --engine vllm --phase decode"
    assert f"{said} --without-graphs -- python 'a b.py'" in lines
    assert f"{said} --command-file nsys_kernel-breakdown.cfg" in lines
    clock = plan(PlanRequest("kernel-breakdown", "vllm", delay=3, without_graphs=True))
    assert not {"repeat-ranges", "without-graphs"} & {v.id for v in clock.variants}
    assert "graph-is-default" not in {p.id for p in clock.pitfalls}


def test_counters_ask_for_their_privilege() -> None:
    made = plan(PlanRequest("bandwidth", "vllm"))
    assert "nsys profile --gpu-metrics-set=help" in commands(made, "check")
    assert "ERR_NVGPUCTRPERM" in text(made)
    assert {"counters"} <= {p.id for p in made.pitfalls}
    old = plan(PlanRequest("bandwidth", "vllm", release=(2023, 4)))
    assert "--gpu-metrics-device=all" in commands(old, "record")[0]
    assert "--gpu-metrics-devices=all" in commands(made, "record")[0]


def test_memory_and_backtraces_are_runs_of_their_own() -> None:
    made = plan(PlanRequest("memory", "pytorch"))
    assert "--cuda-memory-usage=true" in commands(made, "record")[0]
    assert "memory-usage-slows" in {p.id for p in made.pitfalls}
    host = plan(PlanRequest("host-overhead", "pytorch"))
    assert "--cudabacktrace=kernel:80000" in text(host)
    assert "--cudabacktrace" not in commands(host, "record")[0]
    assert "python-gil" in commands(host, "record")[0]
    assert "python-gil" not in commands(plan(PlanRequest("host-overhead", "native")), "record")[0]


def test_a_report_a_rank() -> None:
    mpi = commands(plan(PlanRequest("multi-gpu", "pytorch", "decode", "mpi", 8)), "record")[0]
    assert mpi.startswith("mpirun -np 8 nsys profile --trace=cuda,nvtx,mpi")
    assert "_rank%q{OMPI_COMM_WORLD_RANK} " in mpi
    slurm = plan(PlanRequest("multi-gpu", "tensorrt-llm", "decode", "slurm", 4))
    assert "%h_rank%q{SLURM_PROCID}" in commands(slurm, "record")[0]
    # Variables reach all nodes by nsys, not by the shell of one.
    assert "--env-var=TLLM_PROFILE_START_STOP=100-150," in commands(slurm, "record")[0]
    assert commands(slurm, "read") == ["advisor advisor_multi_gpu_decode_*_rank*.sqlite --ranks"]
    # An engine that starts its workers itself has all GPUs in one report.
    assert "RANK" not in commands(plan(PlanRequest("multi-gpu", "vllm")), "record")[0]
    assert "network_interface" in text(slurm)


def test_containers_and_pods() -> None:
    pod = plan(PlanRequest("tail", "sglang", "decode", "kubernetes"))
    assert [s.id for s in pod.steps][:2] == ["enter", "check"]
    assert "kubectl exec -it POD -- bash" in commands(pod, "enter")
    assert "runAsUser: 0" in text(pod)
    assert "dpkg --force-depends" in text(pod)
    assert "-o /results/advisor_tail_decode" in commands(pod, "record")[0]
    assert commands(pod, "fetch")[0] == (
        "kubectl cp POD:/results/advisor_tail_decode.sqlite advisor_tail_decode.sqlite"
    )
    docker = plan(PlanRequest("tail", "sglang", "decode", "docker"))
    assert commands(docker, "read")[0] == "advisor results/advisor_tail_decode.sqlite"


def test_the_six_variables_of_tensorrt_llm_are_all_planned_somewhere() -> None:
    said = " ".join(text(planned(goal, "tensorrt-llm")) for goal in GOALS)
    for variable in engines()["tensorrt-llm"].capture:
        assert f"{variable.variable}=" in said, variable.variable


#: Whatever else the notes teach of capturing has its place in some plan.
TAUGHT = (
    "--stats=true",
    "--command-file=",
    "--delay",
    "--duration",
    "--start-later=true",
    "%q{",
    "%h",
    "--capture-range-end=repeat:",
    "--gpu-metrics-set=help",
    "--enable=nvml_metrics",
    "--enable=network_interface",
    "nsys plugins list",
    "--tables=",
    "--times=",
    "parquetdir",
    "nsys status -e",
    "/usr/local/cuda/bin",
    "trtllm-serve",
    "trtllm-bench",
    "token-norm-dist",
    "build_wheel.py --nvtx",
    "cublas,cudnn",
    "chrome://tracing",
    "advisor moe",
    "prompt 2048",
    "single request",
    "nsys sessions list",
    "release",
)


@pytest.mark.parametrize("taught", TAUGHT)
def test_what_the_notes_teach_is_planned(taught: str) -> None:
    assert taught in taught_text()


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (PlanRequest("kernels-breakdown"), "did you mean 'kernel-breakdown'"),
        (PlanRequest("tail", "vlm"), "did you mean 'vllm'"),
        (PlanRequest("tail", place="moon"), "expected one of bare, docker"),
        (PlanRequest("tail", "vllm", iterations="1-2"), "has no variable that names iterations"),
        (PlanRequest("tail", "tensorrt-llm", iterations="1to2"), "not of the form 100-150"),
        (PlanRequest("tail", "tensorrt-llm", iterations="1-2", delay=3), "give one of them"),
        (PlanRequest("running-server", "vllm", repeat=2), "nsys start and stop confine the recording"),
    ],
)
def test_wishes_that_cannot_be_planned(asked: PlanRequest, says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan(asked)


# --- options ---------------------------------------------------------------------------------


def test_options_of_nsys_only() -> None:
    line = "A=1 nsys profile --trace=cuda,nvtx --sample=none -o x python y.py --delay 3 -o z"
    assert options_in(line) == ["--trace=cuda", "--trace=nvtx", "--sample=none", "-o"]
    assert options_in("nsys launch --trace=cuda -- server --delay=1") == ["--trace=cuda"]
    assert options_in("exec nsys profile --sample=none ... run --bin x") == ["--sample=none"]
    assert options_in("nsys --version; dpkg --force-depends nsys") == []


def test_options_joined_merged_spelled() -> None:
    assert joined(["--sample=none", "--trace=osrt", "--trace=cuda"]) == ["--trace=cuda,osrt", "--sample=none"]
    assert merged(["--delay=1", "--trace=cuda"], ["--delay=2", "--trace=nvtx"]) == [
        "--trace=cuda",
        "--delay=2",
        "--trace=nvtx",
    ]
    assert spelled("--gpu-metrics-devices=all", (2023, 4)) == "--gpu-metrics-device=all"
    assert flag_of("--no-such-option=3") is None
    assert flag_of("--trace=unheard") is None
    ended = flag_of("--capture-range-end=repeat:3")
    assert ended is not None
    assert ended.note.startswith("repeat[:N] records every range")
    library = flag_of("--trace=cudnn")
    assert library is not None
    assert library.flag == "--trace=cublas,cudnn"


# --- the data --------------------------------------------------------------------------------


def test_goals_and_engines_are_those_of_the_issue() -> None:
    assert {
        "kernel-breakdown",
        "host-overhead",
        "bandwidth",
        "tail",
        "memory",
        "multi-gpu",
        "running-server",
        "benchmark",
    } == set(GOALS)
    assert set(ENGINES) <= set(engines())


def test_pitfalls_and_variants_are_used() -> None:
    data = capture_goals()
    assert {v for g in data.goals for v in g.variants} == {v.id for v in data.variants}
    traps = {p.id for p in capture_knowledge().pitfalls}
    assert {t for g in (*data.goals, *data.places) for t in g.pitfalls} <= traps
    assert {*data.programs, *(e for v in data.variants for e in v.engines)} <= engines().keys()


def test_command_lines_are_well_quoted() -> None:
    data = capture_goals()
    lines = [c.command for p in data.places for c in (*p.before, *p.after)]
    lines += [c for p in data.programs.values() for c in (p.serve, p.benchmark, p.load)]
    lines += [c for n in troubleshooting().nodes for c in n.commands]
    for line in lines:
        shlex.split(line, comments=True)


# --- troubleshooting -------------------------------------------------------------------------


def test_the_symptoms_of_the_issue_are_there() -> None:
    ids = {n.id for n in troubleshooting().nodes if n.symptom}
    # Each can be picked from the first question, none only on the way.
    assert ids == set(troubleshooting().start.symptoms)
    assert ids >= {
        "permission-denied",
        "no-cuda",
        "empty-report",
        "leftover-qdstrm",
        "version-mismatch",
        "no-nvtx",
        "too-large",
        "wrapped-client",
    }


def test_every_path_ends_in_a_remedy() -> None:
    nodes = troubleshooting().by_id
    assert len(nodes) == len(troubleshooting().nodes)
    reached = set()

    def ends(name: str, *above: str) -> None:
        node = nodes[name]
        assert name not in above
        assert node.source in references()
        reached.add(name)
        if not node.answers:
            assert node.say
            assert node.commands
        for answer in node.answers:
            ends(answer.then, name, *above)

    for symptom in troubleshooting().start.symptoms:
        assert nodes[symptom].symptom
        ends(symptom)
    assert reached == nodes.keys()


def test_the_commands_of_the_tree_exist() -> None:
    for node in troubleshooting().nodes:
        for command in node.commands:
            if command.startswith("advisor "):
                assert command.split()[1] in VERBS or command.split()[1].endswith(".sqlite")
                check_command(command)


def test_a_branch_of_the_tree() -> None:
    whole, branch = troubles(), troubles("no-nvtx")
    assert branch.symptoms == ("no-nvtx",)
    assert {n.id for n in branch.nodes} < {n.id for n in whole.nodes}
    assert {n.id for n in whole.nodes} == set(troubleshooting().by_id)
    with pytest.raises(InputError, match="did you mean 'no-nvtx'"):
        troubles("no-nvt")


def test_a_node_without_question_and_remedy_is_refused() -> None:
    source = (data_dir("knowledge") / "troubleshooting.yaml").read_text(encoding="utf-8")
    faulty = source.replace("    say: Add it.\n", "")
    with pytest.raises(ValueError, match="a question with two answers or more, or a remedy"):
        TroubleFile.from_data(yaml.safe_load(faulty))


@pytest.mark.parametrize("key", declared(PlanRequest))
def test_a_flag_a_function_and_the_line_that_says_it_again_are_one_declaration(key: str) -> None:
    option = declared(PlanRequest)[key]
    values = {"int": 7, "bool": True, "text": (*option.flag.choices, "vllm")[0]}
    value = (2024, 2) if key == "nsys" else values[option.kind]
    flag = f"--{key.replace('_', '-')}"
    given = {"int": " 7", "bool": ""}.get(option.kind, f" {'2024.2' if key == 'nsys' else value}")
    assert again(PlanRequest("tail", **{option.name: value})) == f"advisor capture tail {flag}{given}"
