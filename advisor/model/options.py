"""What the user may choose, declared once: options of the analysis (Python argument, flag and key of a
configuration file), and formats of output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple


class Flag(NamedTuple):
    """How an option is given outside of Python. `key` is its name in a configuration file, and
    with dashes that of its flag, where the field has another one; `typed`: no file sets it."""

    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    key: str = ""
    short: tuple[str, ...] = ()
    at_least: int | None = None
    typed: bool = False


def one_of(help: str, *choices: str) -> Flag:
    """A flag for a closed set of values."""
    return Flag("|".join(choices), help, choices)


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
    strict: bool = False  # a disagreement of the engines is an error


#: What a verb delivers: any document, or one whose findings a CI server can show.
Kind = Literal["document", "findings"]


class Format(NamedTuple):
    """`module` of `advisor.reports` has a function `document`, which turns a report into bytes; files
    with one of `suffixes` are of this format."""

    name: str
    module: str
    suffixes: tuple[str, ...] = ()
    serves: tuple[Kind, ...] = ("document", "findings")


FORMATS = (
    Format("text", "text"),
    Format("json", "json_report", (".json",)),
    Format("markdown", "markdown", (".md",)),
    Format("html", "html.report", (".html", ".htm")),
    Format("sarif", "sarif", (".json", ".sarif"), ("findings",)),
    Format("junit", "junit", (".xml",), ("findings",)),
    Format("github", "github", (), ("findings",)),
    Format("concise", "concise", (), ("findings",)),
)


def format_names(kind: Kind) -> tuple[str, ...]:
    """The formats of a kind of document."""
    return tuple(f.name for f in FORMATS if kind in f.serves)


def format_module(name: str) -> str:
    """The module that writes a format."""
    return next(f"advisor.reports.{f.module}" for f in FORMATS if f.name == name)
