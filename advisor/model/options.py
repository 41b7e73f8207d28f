"""The options that users may set, declared once: options of the analysis (Python argument, flag and key
of a configuration file) and of a plan to record, and formats of output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints


class Flag(NamedTuple):
    """How an option is given outside of Python. `key` is its name in a configuration file, and with
    dashes that of its flag, if the field has another one; `counted`: it may be repeated."""

    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    key: str = ""
    short: tuple[str, ...] = ()
    at_least: int | None = None
    counted: bool = False


def one_of(help: str, *choices: str) -> Flag:
    """A flag for a closed set of values."""
    return Flag("|".join(choices), help, choices)


class Setting(NamedTuple):
    """An option: its field, kind (text, list, bool or int), default, flag, and whether it holds paths."""

    name: str
    kind: str
    default: Any
    flag: Flag
    paths: bool = False


def declared(record: type) -> dict[str, Setting]:
    """The options that the fields of a data class declare, by key: with dashes the name of the flag."""
    hints = get_type_hints(record, include_extras=True)
    found = {}
    for field in fields(record):
        if get_origin(hints[field.name]) is not Annotated:
            continue  # only Python sets it
        plain, flag = get_args(hints[field.name])
        types = (plain, *get_args(plain))
        listed = get_origin(plain) is tuple
        kind = "list" if listed else next((t.__name__ for t in types if t in (bool, int)), "text")
        setting = Setting(field.name, kind, field.default, flag, Path in types)
        found[flag.key or field.name] = setting
    return found


@dataclass(frozen=True)
class Options:
    """What the user may choose about one diagnosis."""

    window: Annotated[str | None, Flag("FROM/TO", "Analyse this part: 5s/7s, 5s/, 1s2ms/.")] = None
    nvtx: Annotated[str | None, Flag("RANGE[@DOMAIN][/N]", "Analyse these NVTX ranges.")] = None
    phase: Annotated[str | None, one_of("Analyse this phase.", "prefill", "decode")] = None
    weight_bytes: Annotated[str | None, Flag("N|config.json", "Size of the weights, for bandwidth.")] = None
    unprofiled_step: Annotated[str | None, Flag("MS", "Step time of a run without the profiler, ms.")] = None
    acceptance: Annotated[
        str | None, Flag("TOKENS", "Tokens that one verification of drafts yields a sequence, mean.")
    ] = None
    gpu_metrics: Annotated[
        Path | None, Flag("FILE", "Log of nvidia-smi or dcgmi: alone, or joined to TRACE.")
    ] = None
    gpu_metrics_offset: Annotated[
        str | None, Flag("TIME", "Where that log begins in session time: 1.5s.")
    ] = None
    log: Annotated[Path | None, Flag("FILE", "Log or /metrics of the server in TRACE: its load.")] = None
    serving_engine: Annotated[
        str | None, Flag("NAME[@VERSION]", "Serving engine, where the capture hides it.")
    ] = None
    rules: Annotated[tuple[Path, ...], Flag("DIR", "Rules to add or replace (repeatable).")] = ()
    params: Annotated[
        tuple[str, ...], Flag("CODE.NAME=VALUE", "Change a threshold (repeatable).", key="param")
    ] = ()
    engine: Annotated[
        Literal["durable", "python"] | None, one_of("Inference engine of the rules.", "durable", "python")
    ] = None
    sensitivity: Annotated[bool, Flag("", "List verdicts near a threshold.")] = False
    redact: Annotated[
        bool, Flag("", "Take folders, names of people and hosts, and secrets out of the report.")
    ] = False
    together: Path | None = None  # another recording of the same program, which names its parts
    mask: bool = False  # take credentials out of commands and texts, which `redact` does too
    strict: bool = False  # a disagreement of the engines is an error


_VALUES = {name: setting.flag.metavar for name, setting in declared(Options).items()}
#: Our options, with what stands for their values.
_OWN = {f"--{f.name.replace('_', '-')}": _VALUES.get(f.name, "") for f in fields(Options)}


def own_option(remedy: str) -> str | None:
    """``--log FILE`` where what would supply a fact begins with an option of ours; the others that begin with
    a dash are of nsys."""
    option = remedy.partition(" ")[0]
    return f"{option} {_OWN[option]}".strip() if option in _OWN else None


@dataclass(frozen=True)
class PlanRequest:
    """What the user specified about a capture to record; the rest is chosen. `release` is that of nsys."""

    goal: str
    engine: Annotated[str | None, Flag("NAME[@VERSION]", "Serving engine.", short=("--serving-engine",))] = (
        None
    )
    phase: Annotated[Literal["prefill", "decode"] | None, one_of("One phase.", "prefill", "decode")] = None
    place: Annotated[
        str, Flag("PLACE", "bare, docker, kubernetes, mpi or slurm (default bare).", key="where")
    ] = "bare"
    ranks: Annotated[
        int | None, Flag("N", "Processes of the job (default 2 where several are compared).", at_least=1)
    ] = None
    command: tuple[str, ...] = ()
    iterations: Annotated[str | None, Flag("A-B", "Record these iterations (TensorRT-LLM).")] = None
    repeat: Annotated[int | None, Flag("N", "Record N ranges, not one.", at_least=1)] = None
    input_len: Annotated[int | None, Flag("N", "Tokens of a prompt (default: by phase).", at_least=1)] = None
    output_len: Annotated[int | None, Flag("N", "Tokens of an answer, in decode.", at_least=1)] = None
    delay: Annotated[int | None, Flag("S", "Record by the clock: skip S seconds.", at_least=0)] = None
    duration: Annotated[int | None, Flag("S", "Record S seconds.", at_least=1)] = None
    name: Annotated[str | None, Flag("PATTERN", "Output of nsys; %h, %p, %q{VAR} work.")] = None
    without_graphs: Annotated[bool, Flag("", "CUDA graphs off: exact kernel times.")] = False
    release: Annotated[
        tuple[int, int] | None, Flag("RELEASE", "Spell options for nsys 2023.4, say.", key="nsys")
    ] = None


#: What a verb produces: any document, or one whose findings a CI server can show.
Kind = Literal["document", "findings"]


class Format(NamedTuple):
    """`writer` of `advisor.reports` turns a report into bytes; `suffixes` are of its files."""

    name: str
    writer: str
    suffixes: tuple[str, ...] = ()
    serves: tuple[Kind, ...] = ("document", "findings")


FORMATS = (
    Format("text", "text.document"),
    Format("json", "json_report.document", (".json",)),
    Format("markdown", "markdown.document", (".md",)),
    Format("html", "html.report.document", (".html", ".htm")),
    Format("sarif", "sarif.document", (".json", ".sarif"), ("findings",)),
    Format("junit", "tool_formats.junit", (".xml",), ("findings",)),
    Format("github", "tool_formats.github", (), ("findings",)),
    Format("concise", "tool_formats.concise", (), ("findings",)),
)


def format_names(kind: Kind) -> tuple[str, ...]:
    """The formats of a kind of document."""
    return tuple(f.name for f in FORMATS if kind in f.serves)


def format_writer(name: str) -> Callable[[Any], bytes]:
    """The function that writes a format."""
    module, _, function = next(f.writer for f in FORMATS if f.name == name).rpartition(".")
    writer: Callable[[Any], bytes] = getattr(import_module(f"advisor.reports.{module}"), function)
    return writer
