"""What every plan of ``advisor capture`` would record: the stages that its program goes through, from the
released sources of each engine, under the window that the plan gives to nsys.

    python benchmarks/plans.py [--write]

A row is a plan of a goal, an engine, a release, one or eight ranks and a place; `--write` writes
benchmarks/plans.md. The exit code is 1 where a plan does not record what its goal asks for: work of the
phase, enough steps, every rank, CUDA graphs by node or none.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from advisor.capture.goals import plan
from advisor.errors import InputError
from advisor.knowledge.verb_files import capture_goals
from advisor.model.capture_plan import CapturePlan
from advisor.model.options import PlanRequest

#: Releases of each engine before and after each change of how it is profiled.
RELEASES = {
    "vllm": ("0.10.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", ""),
    "sglang": ("0.4.6", "0.5.4", "0.5.5", "0.5.9", "0.5.10", "0.5.14", ""),
    "dynamo": ("0.9.0", ""),
}
RANKS = (1, 8)
#: Steps that a recording has to hold: below, a median is one of few.
FEWEST = 5
#: A server or a loop works on until nsys ends it.
ON = math.inf


class Event(NamedTuple):
    """Work of a kind (load, warm-up, prefill, decode, denoise) for some steps, or a call that starts or stops
    the profiler."""

    kind: str
    steps: float = 0


class Seen(NamedTuple):
    """What a recording holds: steps of each kind, ranks whose GPUs are in the reports, and `graphs`: as node,
    or off where the program has none."""

    steps: dict[str, float]
    ranks: int
    graphs: str


START, STOP = Event("start"), Event("stop")


class Line(NamedTuple):
    """A line of a plan, apart: variables, words before nsys, its options, and the program."""

    variables: dict[str, str]
    before: list[str]
    options: dict[str, str]
    program: list[str]


def line(text: str) -> Line:
    """The line that records."""
    words = shlex.split(text)
    at = words.index("nsys")
    variables = dict(w.split("=", 1) for w in words[:at] if re.match(r"[A-Z]\w*=", w))
    before = [w for w in words[:at] if not re.match(r"[A-Z]\w*=", w)]
    options: dict[str, str] = {}
    at += 2
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        if words[at] == "-o":
            options["-o"], at = words[at + 1], at + 2
            continue
        name, _, value = words[at].partition("=")
        options[name], at = value, at + 1
    for one in options.get("--env-var", "").split(","):
        if one:
            variables[one.partition("=")[0]] = one.partition("=")[2]
    return Line(variables, before, options, words[at + (words[at : at + 1] == ["--"]) :])


def value(words: Sequence[str], name: str, default: str = "") -> str:
    """The value of an option of a program."""
    for i, word in enumerate(words):
        if word == name:
            return words[i + 1] if i + 1 < len(words) else ""
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return default


def number(words: Sequence[str], name: str, default: int) -> int:
    text = value(words, name, str(default))
    if not text.isdecimal():
        raise InputError(f"{name} {text} is no number")
    return int(text)


# --- the programs ----------------------------------------------------------------------------------


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("."))) if text else (999,)


def vllm_latency(at: Line, version: str, _: CapturePlan) -> Iterator[Event]:
    """vllm/benchmarks/latency.py: the prompts of a batch are prefilled as many tokens a step as
    --max-num-batched-tokens allows; with --profile one batch runs between start_profile and stop_profile,
    which reach the CUDA profiler from 0.11.2 on by a variable, from 0.13 on by an option."""
    words, used = at.program, _release(version)
    size, prompt, out = (
        number(words, f"--{n}", d) for n, d in (("batch-size", 8), ("input-len", 32), ("output-len", 128))
    )
    prefills = math.ceil(size * prompt / number(words, "--max-num-batched-tokens", 8192))
    batch = [Event("prefill", prefills), Event("decode", out - 1)]
    if value(words, "--profiler-config.profiler") and used < (0, 13):
        raise InputError("--profiler-config is not known before 0.13")
    by_variable = at.variables.get("VLLM_TORCH_CUDA_PROFILE") == "1" and (0, 11, 2) <= used < (0, 16)
    cuda = value(words, "--profiler-config.profiler") == "cuda" or by_variable
    yield Event("load")
    yield Event("warm-up", number(words, "--num-iters-warmup", 10))
    if "--profile" in words:
        yield from [START, *batch, STOP] if cuda else batch
        return
    for each in batch:
        if each.steps:
            yield Event(each.kind, each.steps * number(words, "--num-iters", 30))


def sglang_one_batch(at: Line, version: str, _: CapturePlan) -> Iterator[Event]:
    """sglang/benchmark/one_batch.py (bench_one_batch.py before 0.5.20): a warm-up, then for each batch size
    one prefill and `output_len - 1` decodes. --profile-activities and --profile-stage exist from 0.5.5 on and
    record one decode in the middle; --profile-start-step and --profile-steps from 0.5.10 on."""
    words, used = at.program, _release(version)
    since = {"--profile-activities": (0, 5, 5), "--profile-stage": (0, 5, 5)}
    since |= {"--profile-start-step": (0, 5, 10), "--profile-steps": (0, 5, 10)}
    for name, first in since.items():
        if name in words and used < first:
            raise InputError(f"{name} is not known in {version}")
    i = words.index("--batch-size") + 1
    sizes = list(itertools.takewhile(lambda w: not w.startswith("--"), words[i:]))
    stage = value(words, "--profile-stage", "all")
    cuda = "--profile" in words and value(words, "--profile-activities") == "CUDA_PROFILER"
    decodes = number(words, "--output-len", 16) - 1
    first = number(words, "--profile-start-step", (decodes + 1) // 2)
    some = number(words, "--profile-steps", 1)
    yield Event("load")
    yield Event("warm-up", 1)
    for _size in sizes:
        marked = cuda and stage in ("all", "prefill")
        yield from [START, Event("prefill", 1), STOP] if marked else [Event("prefill", 1)]
        if cuda and stage in ("all", "decode") and decodes > first:
            last = min(first + some, decodes)
            yield from [Event("decode", first), START, Event("decode", last - first), STOP]
            yield Event("decode", decodes - last)
        else:
            yield Event("decode", decodes)


def trtllm_bench(at: Line, _version: str, made: CapturePlan) -> Iterator[Event]:
    """tensorrt_llm/bench: one request after the other with --concurrency 1, each a prefill and decodes, an
    iteration each; TLLM_PROFILE_START_STOP=A-B calls the profiler at these iterations of the executor."""
    place = value(at.program, "--dataset")
    (data,) = [c for c in commands(made, "prepare") if place in c]
    words = shlex.split(data)
    requests, out = number(words, "--num-requests", 0), number(words, "--output-mean", 0)
    first, last = map(int, at.variables["TLLM_PROFILE_START_STOP"].split("-"))
    work = (["prefill"] + ["decode"] * (out - 1)) * requests
    yield Event("load")
    yield from (Event(k, len([*g])) for k, g in itertools.groupby(work[:first]))
    yield START
    yield from (Event(k, len([*g])) for k, g in itertools.groupby(work[first:last]))
    if len(work) >= last:
        yield STOP


def native_bench(at: Line, _version: str, _made: CapturePlan) -> Iterator[Event]:
    """bench_serving of a Rust engine: the measured iterations stand between the calls of the profiler."""
    words = at.program
    rounds, out = number(words, "--iters", 1), number(words, "--output-len", 1)
    yield Event("warm-up", number(words, "--warmup", 1))
    yield from [START, Event("prefill", rounds), Event("decode", rounds * (out - 1)), STOP]


def own_script(at: Line, _version: str, made: CapturePlan) -> Iterator[Event]:
    """A script of the user that makes the calls which the plan shows, around 10 to 50 steps."""
    code = " ".join(commands(made, "prepare"))
    assert "cudaProfilerStart" in code
    assert "cudaProfilerStop" in code
    out = value(at.program, "--output-len")
    kind = "denoise" if "denois" in code else "prefill" if out == "1" else "decode"
    yield from [Event("load"), Event("warm-up", 5), START, Event(kind, 20), STOP]


def server(at: Line, _version: str, made: CapturePlan) -> Iterator[Event]:
    """A server works on what its load asks for, as long as that lasts: decode, unless answers are one
    token."""
    loads = [
        c for c in commands(made) if re.search(r"xargs -P|bench serve|bench_serving|benchmark\.serving", c)
    ]
    yield Event("load")
    if not loads:
        return
    mine = next((c for c in loads if _fits(c, at)), loads[0])
    many = re.search(r"seq (\d+) \||--num-prompts (\d+)", mine)
    if many is None or int(many[1] or many[2]) < 1000:
        raise InputError(f"a load that ends early: {mine}")
    one = re.search(r"(?:max_tokens|max_new_tokens)\W+1\b|output-len 1\b", mine)
    yield Event("prefill" if one else "decode", ON)


def _fits(load: str, at: Line) -> bool:
    """Whether a load is that of the phase whose report is written."""
    one = re.search(r"(?:max_tokens|max_new_tokens)\W+1\b|output-len 1\b", load) is not None
    return one == at.options.get("-o", "").endswith("prefill")


def unknown(_at: Line, _version: str, _made: CapturePlan) -> Iterator[Event]:
    """A program of which nothing is known works on after its start."""
    yield from [Event("load"), Event("decode", ON)]


PROGRAMS = (
    ("vllm bench latency", vllm_latency),
    ("sglang.benchmark.one_batch", sglang_one_batch),
    ("sglang.bench_one_batch", sglang_one_batch),
    ("trtllm-bench", trtllm_bench),
    ("bench_serving", native_bench),
    ("bench.py", own_script),
    ("generate.py", own_script),
    ("flux_example.py", own_script),
    ("transformers serve", server),
    ("vllm serve", server),
    ("launch_server", server),
    ("dynamo.vllm", server),
    ("text-generation-launcher", server),
    ("start_server.sh", server),
    ("trtllm-serve", server),
)


# --- nsys ------------------------------------------------------------------------------------------


def recorded(at: Line, events: Sequence[Event]) -> dict[str, float]:
    """The work that falls into the window of the options: ranges of the profiler, or the clock, by which the
    work that goes on is met."""
    found: dict[str, float] = {}
    if at.options.get("--capture-range") != "cudaProfilerApi":
        steady = [e for e in events if e.steps and e.kind not in ("load", "warm-up")]
        return {e.kind: e.steps for e in steady if e.steps >= 100_000}
    on, over, end = False, False, at.options.get("--capture-range-end", "stop-shutdown")
    for event in events:
        if event == START:
            on = not over
        elif event == STOP:
            if on and end != "none":
                on, over = False, not end.startswith("repeat")
        elif on and event.steps:
            found[event.kind] = found.get(event.kind, 0) + event.steps
    return found


def ranks_of(at: Line, engine: str) -> int:
    """GPUs whose work is in the reports: one nsys around a program that works on several, or one for each."""
    words = " ".join(at.before)
    many = re.search(r"(?:-np?|--nproc-per-node) (\d+)", words)
    size = re.search(
        r"(?:--tensor-parallel-size|--tp-size|--tp_size|--tp|--num-shard)[ =](\d+)|PARALLEL_SIZE=(\d+)",
        " ".join(at.program),
    )
    own = int(size[1] or size[2]) if size else 1
    if many and engine in ("vllm", "sglang", "tgi", "nim", "dynamo"):
        raise InputError(f"{many[1]} engines of {own} GPUs each")
    if many and engine == "tensorrt-llm" and "trtllm-llmapi-launch" not in at.program:
        raise InputError(f"{many[1]} engines of {own} GPUs each")
    return int(many[1]) if many else own


_OFF = (
    "--enforce-eager",
    "--cuda-graph-backend-decode=disabled",
    "--disable-cuda-graph",
    "advisor_without_graphs.yaml",
    "--cuda-graphs 0",
    "NIM_DISABLE_CUDA_GRAPH=1",
    "--cuda-graph false",
)


def graphs_of(at: Line, made: CapturePlan) -> str:
    """How CUDA graphs are recorded; off where the program replays none."""
    code = " ".join(line.command for step in made.steps for line in step.lines if not line.shell)
    text = " ".join(at.program)
    if any(o in text for o in _OFF) or "TORCHINDUCTOR_CUDAGRAPHS=0" in code:
        return "off"
    return at.options.get("--cuda-graph-trace", "whole")


# --- every plan --------------------------------------------------------------------------------------


def commands(made: CapturePlan, step: str | None = None) -> list[str]:
    return [n.command for s in made.steps if step in (None, s.id) for n in s.lines]


def seen(made: CapturePlan, engine: str, version: str) -> list[tuple[str, Seen]]:
    """For each line of a plan that records: the phase that it is for, and what it records."""
    found = []
    if made.goal == "running-server":
        launch, start = commands(made, "launch")[0], commands(made, "record")
        at = line(launch.replace("nsys launch", "nsys profile"))
        begun = {
            w.partition("=")[0]: w.partition("=")[2] for w in shlex.split(start[1]) if w.startswith("--")
        }
        at.options.update({k: v for k, v in begun.items() if k != "--session"})
        program = next((p for words, p in PROGRAMS if words in " ".join(at.program)), unknown)
        events = [e for e in program(at, version, made) if e not in (START, STOP)]
        if program in (own_script, native_bench):
            events = [*unknown(at, version, made)]
        steps = {e.kind: e.steps for e in events if e.steps == ON}
        return [("", Seen(steps, ranks_of(at, engine), graphs_of(at, made)))]
    for text in commands(made, "record"):
        at = line(text)
        program = next((p for words, p in PROGRAMS if words in " ".join(at.program)), unknown)
        phase = next(
            (
                p
                for p in ("prefill", "decode")
                if at.options["-o"].partition("%")[0].rstrip("_ranh").endswith(p)
            ),
            "",
        )
        steps = recorded(at, [*program(at, version, made)])
        found.append((phase, Seen(steps, ranks_of(at, engine), graphs_of(at, made))))
    return found


def faults(made: CapturePlan, asked: PlanRequest, phase: str, found: Seen) -> Iterator[str]:
    """What a plan does not record of what its goal asks for."""
    if not found.steps:
        yield "nothing is recorded"
        return
    kinds = {*found.steps}
    own = sum(found.steps.values())
    if phase and phase not in kinds:
        yield f"no {phase}"
    elif phase and found.steps[phase] < 0.9 * own and own != ON:
        yield f"{phase} is {found.steps[phase]:.0f} of {own:.0f} steps"
    if own < FEWEST:
        yield f"{own:.0f} steps"
    wanted = asked.ranks or 1
    single = made.engine in ("any", "native") and made.place not in ("mpi", "slurm")
    if found.ranks != wanted and not single and not (made.goal == "running-server" and made.engine in OWN):
        yield f"{found.ranks} of {wanted} ranks"
    if made.goal == "memory":
        return
    if asked.without_graphs and found.graphs != "off" and made.engine not in ("any", "diffusers", "xdit"):
        yield f"graphs: {found.graphs}"
    if not asked.without_graphs and found.graphs not in ("node",):
        yield f"graphs: {found.graphs}"


#: Servers of the user, whose own words say over how many GPUs they work.
OWN = ("any", "native", "pytorch", "transformers", "diffusers", "xdit")


def wishes() -> Iterator[tuple[PlanRequest, str]]:
    """Every goal, engine, release, number of ranks and place; with graphs, and at a desk without as well."""
    data = capture_goals()
    for goal, engine in itertools.product(data.goals, data.programs):
        for version, ranks, place in itertools.product(
            RELEASES.get(engine, ("",)), RANKS, [p.id for p in data.places]
        ):
            name = f"{engine}@{version}" if version else engine
            for off in (False, True) if place == "bare" else (False,):
                yield PlanRequest(goal.id, name, place=place, ranks=ranks, without_graphs=off), version


def rows() -> Iterator[tuple[str, ...]]:
    """A row a line that records."""
    for asked, version in wishes():
        engine = (asked.engine or "").partition("@")[0]
        made = plan(asked)
        try:
            each = seen(made, engine, version)
        except InputError as error:
            yield (asked.goal, asked.engine or "", str(asked.ranks), asked.place, "", "", str(error))
            continue
        for phase, found in each:
            steps = ", ".join(
                f"{kind} {'on' if count >= 100_000 else f'{count:.0f}'}"
                for kind, count in found.steps.items()
            )
            wrong = "; ".join(faults(made, asked, phase, found))
            yield (
                asked.goal,
                asked.engine or "",
                str(asked.ranks),
                asked.place,
                f"{phase or '-'}: {steps or 'nothing'}",
                f"{found.ranks}, graphs {found.graphs}",
                wrong,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    found = [*rows()]
    wrong = [row for row in found if row[-1]]
    for row in wrong:
        print(" | ".join(row))
    print(f"{len(found)} lines that record, {len(wrong)} do not record what is asked for")
    if args.write:
        Path(__file__).with_suffix(".md").write_text(table(found), encoding="utf-8")
    return int(bool(wrong))


def table(found: Sequence[tuple[str, ...]]) -> str:
    """The page: rows that differ in the goal or the place alone are one."""
    merged: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for goal, engine, ranks, place, steps, seen_, wrong in found:
        merged.setdefault((engine, ranks, steps, seen_, wrong), []).append((goal, place))
    text = [
        "# What each plan records",
        "",
        "<!-- Written by benchmarks/plans.py --write; do not edit. -->",
        "",
        f"{len(found)} lines that record, of plans of every goal, engine, release, one and eight ranks and",
        "place, against the stages that the program goes through:",
        f"{sum(bool(r[-1]) for r in found)} do not record what is asked for. Steps are those inside of the",
        "window; *on*: the work goes on while nsys records. No release: the newest.",
        "",
        "| engine | ranks | goals | where | phase: steps recorded | ranks in the reports | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for (engine, ranks, steps, seen_, wrong), each in sorted(
        merged.items(), key=lambda m: (m[0][0].partition("@")[0], m[0])
    ):
        goals = ", ".join(dict.fromkeys(g for g, _ in each))
        places = ", ".join(dict.fromkeys(p for _, p in each))
        text.append(f"| {engine} | {ranks} | {goals} | {places} | {steps} | {seen_} | {wrong} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
