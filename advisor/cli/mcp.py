"""``advisor mcp``: the verbs as tools for agents."""

from __future__ import annotations

import gc
from pathlib import Path

from advisor.cli.settings import option, switch
from advisor.errors import InputError


def mcp(
    root: list[Path] | None = option("DIR", "Folder that may be read (repeatable; here)."),
    redact: bool = switch("--redact", "Take paths, names and secrets out of every answer."),
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
    gc.enable()  # a server lives long
    serve(Tools(roots, redact))
