"""``advisor mcp``: the verbs as tools for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InputError


def mcp(
    root: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Folder that may be read (repeatable; here).")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Take paths, names and secrets out of every answer.")
    ] = False,
) -> None:
    """Serve diagnose, show, explain, whatif, compare, doctor, plan and stats to agents.

    Speaks the Model Context Protocol on standard input and output; an agent starts it. Reads only,
    and only below --root. Needs `pip install 'inference-advisor[mcp]'`.
    """
    from advisor.agents.server import serve
    from advisor.agents.tools import Tools

    roots = root or [Path.cwd()]
    for folder in roots:
        if not folder.is_dir():
            raise InputError(f"--root: {folder} is not a folder")
    serve(Tools(roots, redact))
