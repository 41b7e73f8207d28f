"""``advisor explain CODE``: what a rule looks at, why it matters, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", hidden=True)],
    rules: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Rules to look in first (repeatable).")
    ] = None,
) -> None:
    """Explain the rule of this CODE: what, why, when harmless, how to fix, how to verify."""
    from advisor.cli.output import make_page, print_page
    from advisor.engine.load import builtin_dir, load_rule
    from advisor.knowledge import references
    from advisor.reports.rule_text import explain as write

    rule = load_rule(code, builtin_dir(), *(rules or ()))
    page = make_page()
    write(page, rule, references())
    print_page(page)
