"""A page for each serving engine: what to type, and what advice becomes there, from knowledge/engines and
knowledge/capture_goals.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headings import row

from advisor.knowledge.engine_signs import actions, engines
from advisor.knowledge.verb_files import capture_goals

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/engines"
#: A server that runs already is profiled by itself.
ATTACH = {
    "vllm": "advisor attach http://localhost:8000 --traces DIR",
    "sglang": "advisor attach http://localhost:30000",
}
LIST = """\
# Engines

<!-- Written by docs/build.py from knowledge/engines and knowledge/capture_goals.yaml; do not edit. -->

For anyone who knows which engine serves and wants the lines to type. The engine is found in the command
line and in the names of kernels; where neither names it, `--serving-engine NAME@VERSION` does, and advice is
worded for that release.

| engine | record it |
|---|---|
{rows}

## Containers, WSL, no root

In a container or a pod run it inside, where nsys and advisor are installed:

    docker exec -it NAME advisor run -- COMMAND
    kubectl exec -it POD -- advisor run -- COMMAND

`advisor capture --where docker` and `--where kubernetes` print what they need. Under WSL and without root
nsys records CUDA and NVTX; counters of the GPU and samples of the processor need more rights, and a recording
that is refused them is made again without.
"""


def engine_pages() -> dict[Path, str]:
    """The page of every engine, and the list of them, by path."""
    named = [name for name in engines() if name != "any"]
    rows = (row((f"[{engines()[n].title}](engines/{n}.md)", f"`{_typed(n)[0]}`")) for n in named)
    pages = {FOLDER / f"{name}.md": "\n".join(_page(name)) + "\n" for name in named}
    return {ROOT / "docs/engines.md": LIST.format(rows="\n".join(rows)), **pages}


def _typed(name: str) -> list[str]:
    """The commands that record it, in the spelling of the newest release: a program of the user's own, a
    server and its load."""
    program = capture_goals().program(name)
    own = (
        ["advisor run --recorder torch -- python program.py"]
        if program.benchmark.startswith("python ")
        else []
    )
    if program.serve.startswith("python "):
        return own
    words = program.by_phase.get("decode", "")
    filled = {"by_phase": f" {words}" if words else "", "prompt": "1000", "output": "256"}
    # Others are for plans: several ranks, no graphs, recordings that the server itself starts.
    serve, load = (
        re.sub(r"(?<!\$)\{(\w+)\}", lambda found: filled.get(found[1], ""), text)
        for text in (program.serve.removeprefix("env"), program.load)
    )
    serve = serve.strip()
    server = f"advisor run -- {serve}", f"{load}    # load, from another shell"
    return [*own, *(line.replace("${MODEL}", "MODEL") for line in server)]


def _page(name: str) -> Iterator[str]:
    engine, programs = engines()[name], capture_goals().programs
    yield f"# {engine.title.removeprefix('a ')}\n"
    yield f"<!-- Written by docs/build.py from knowledge/engines/{name}.yaml; do not edit. -->\n"
    here = "what to type, and what each piece of advice is called here"
    yield f"For anyone who serves with {engine.title}: {here}.\n"
    yield "## Record\n"
    yield from (f"    {line}" for line in _typed(name))
    if name in ATTACH:
        yield f"    {ATTACH[name]}    # or: a server that runs already"
    yield "\nWhat happens then: [from a command to a verified win](../run.md). Containers, WSL and no root:"
    yield "[engines](../engines.md#containers-wsl-no-root).\n"
    notes = [f"`{v.setting}`: {v.effect}{_releases(v.since, v.until)}" for v in engine.capture]
    notes += programs[name].notes if name in programs else []
    if notes:
        yield "Variables for a capture, and what to know:\n"
        yield from (f"- {note}" for note in notes)
        yield ""
    yield "## What advice becomes\n"
    yield "| advice | here | note |\n|---|---|---|"
    sentences = actions()
    for action, lines in engine.options.items():
        for i, line in enumerate(lines):
            older = f"before {line.since}: `{line.before}`" if line.before else ""
            note = "; ".join(filter(None, (_releases(line.since, line.until).strip(" ()"), older, line.note)))
            yield row(("" if i else sentences.get(action, action), f"`{line.line}`", note))
    if engine.inherit_options and engine.base:
        yield f"\nFor what is not listed: [{engines()[engine.base].title}]({engine.base}.md)."


def _releases(since: str | None, until: str | None) -> str:
    """`` (from 0.5.14 on)``, `` (until 0.5.9)`` or nothing."""
    parts = [f"from {since} on" if since else "", f"until {until}" if until else ""]
    told = ", ".join(filter(None, parts))
    return f" ({told})" if told else ""
